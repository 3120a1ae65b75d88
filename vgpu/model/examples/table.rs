//! The table of docs/model_vgpu_table.md: modelled times of a suite's convolutions beside the quick model's.
//!
//!     cargo run -p wave32-model --example table -- shapes

use std::process::ExitCode;
use wave32_model::{Effort, Model, ModelCard};
use wave32_problem::{DType, Direction, Problem};
use wave32_solve::{DeviceCaps, Policy, explain};
use wave32_verify::suites;

fn main() -> ExitCode {
    match std::env::args().skip(1).map(|name| suite(&name)).collect::<Result<Vec<()>, String>>() {
        Ok(done) if !done.is_empty() => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("give suites: {}", suites::names().join(", "));
            ExitCode::from(2)
        }
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn suite(name: &str) -> Result<(), String> {
    let entries = suites::load(name).map_err(|e| e.to_string())?;
    let models = ModelCard::usual().into_iter().map(Model::new).collect::<Result<Vec<_>, _>>();
    let models = models.map_err(|e| e.to_string())?;
    for dtype in [DType::F32, DType::F16] {
        println!("\n## {name}, {}\n", dtype.name());
        println!("Modelled ms (bound) / the quick model's ms.\n");
        let heads: Vec<&str> = models.iter().map(|m| m.card().name).collect();
        println!("| problem | pass | {} |\n|---|---|{}", heads.join(" | "), "---|".repeat(heads.len()));
        let mut ratios = vec![Vec::new(); models.len()];
        for entry in &entries {
            for direction in Direction::ALL {
                let problem =
                    entry.pass(direction, Some(dtype)).map_err(|e| format!("{}: {e}", entry.label))?;
                let cells: Vec<String> = models
                    .iter()
                    .zip(&mut ratios)
                    .map(|(model, ratios)| cell(&problem, model, ratios))
                    .collect();
                println!("| {} | {} | {} |", entry.label, direction.name(), cells.join(" | "));
            }
        }
        for (model, ratios) in models.iter().zip(&mut ratios) {
            println!("\n{}", summary(model.card().name, ratios));
        }
    }
    Ok(())
}

fn cell(problem: &Problem, model: &Model, ratios: &mut Vec<f64>) -> String {
    let Ok(board) = wave32_cards::named(model.card().name) else { return "no such card".into() };
    let Some((plan, quick)) = explain(problem, &DeviceCaps::of(board), &Policy::default()).chosen else {
        return "no plan".into();
    };
    match model.plan(&plan, Effort::SAMPLE) {
        Ok(time) => {
            ratios.push(time.time.low / quick);
            let longest = time.launches.iter().max_by(|a, b| a.time.low.total_cmp(&b.time.low));
            let bound = longest.map_or(String::new(), |l| l.bound.to_string());
            format!("{:.3}-{:.3} ({bound}) / {:.3}", time.time.low * 1e3, time.time.high * 1e3, quick * 1e3)
        }
        Err(error) => format!("{error}"),
    }
}

fn summary(card: &str, ratios: &mut [f64]) -> String {
    ratios.sort_by(f64::total_cmp);
    let mean = (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp();
    let at = |share: f64| ratios.get((share * ratios.len() as f64) as usize).copied().unwrap_or(f64::NAN);
    format!(
        "{card}: modelled over quick, geometric mean {mean:.2}; a tenth below {:.2}, half below {:.2}, a tenth above {:.2}; {} plans.",
        at(0.1),
        at(0.5),
        at(0.9),
        ratios.len()
    )
}
