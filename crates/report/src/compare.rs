//! A report's times beside the model's.

use crate::schema::{Bench, BenchRow, Device, Report};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use wave32_cards::Board;
use wave32_problem::Problem;
use wave32_solve::{DeviceCaps, Plan, Policy, explain};
use wave32_verify::bench::geometric_mean;
use wave32_verify::sheet::{Sheet, figure};

/// A time from the model of instructions, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // its ends
pub struct Bracket {
    pub low_ms: f64,
    pub high_ms: f64,
}

/// One layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// As measured, with the quick model's time.
    pub measured: BenchRow,
    /// The instructions' time.
    pub bracket: Option<Bracket>,
    /// False where this wave32 would take another plan than the one that was measured.
    pub same_plan: bool,
}

/// A device's layers beside the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Who was measured.
    pub device: Device,
    /// Where the brackets come from, or why there are none.
    pub by: String,
    /// Timed layers, in order.
    pub layers: Vec<Layer>,
}

/// What the cost model says of a problem on a device, in milliseconds, and the plan that it chooses.
pub fn cost_model(problem: &Problem, caps: &DeviceCaps) -> Option<(Plan, f64)> {
    let (plan, seconds) = explain(problem, caps, &Policy::default()).chosen?;
    Some((plan, seconds * 1e3))
}

/// The board that a device is, where it is one that is known here.
pub fn board(device: &Device) -> Option<&'static Board> {
    device.is_modelled().then(|| wave32_cards::named(&device.name).ok())?
}

/// Sets a bench beside the models. `bracket` models a plan: the number of its row, and the plan.
pub fn compare(
    report: &Report,
    bench: &Bench,
    by: &str,
    mut bracket: impl FnMut(usize, &BenchRow, &Plan) -> Option<Bracket>,
) -> Option<Comparison> {
    let device = report.device(&bench.device)?.clone();
    let caps = device.caps.clone()?;
    let timed = bench.rows.iter().filter(|r| r.row.time.is_some()).enumerate();
    let layers = timed.filter_map(|(index, measured)| {
        let problem: Problem = measured.row.line.parse().ok()?;
        let (plan, model_ms) = cost_model(&problem, &caps)?;
        let same_plan = (plan.solver, &plan.config) == (measured.row.solver.as_str(), &measured.row.config);
        let measured = BenchRow { model_ms: Some(model_ms), ..measured.clone() };
        Some(Layer { bracket: bracket(index, &measured, &plan), measured, same_plan })
    });
    Some(Comparison { layers: layers.collect(), device, by: by.into() })
}

impl Comparison {
    /// Geometric means of modelled over measured: the quick model, and both ends of the bracket.
    pub fn means(&self, direction: &str) -> [Option<f64>; 3] {
        let of = || self.layers.iter().filter(|l| l.measured.row.direction == direction);
        let ratio = |l: &Layer, ms: Option<f64>| Some(ms? / l.measured.row.median_ms()?);
        [
            geometric_mean(of().filter_map(|l| l.measured.against_model())),
            geometric_mean(of().filter_map(|l| ratio(l, l.bracket.map(|b| b.low_ms)))),
            geometric_mean(of().filter_map(|l| ratio(l, l.bracket.map(|b| b.high_ms)))),
        ]
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let Device { id, name, driver, .. } = &self.device;
        let mut out = format!("{id} {name} ({driver})\n");
        let _ = writeln!(
            out,
            "quick: the cost model that chooses plans (docs/model.md). {}\n\
             of model: modelled over measured; above 1 the card is faster than the model says\n",
            self.by
        );
        let head = ["layer", "pass", "measured ms", "quick ms", "of model", "bracket ms", "of bracket"];
        let mut table = Sheet::new(&head, 2);
        for Layer { measured, bracket, same_plan } in &self.layers {
            let Some(ms) = measured.row.median_ms() else { continue };
            let quick = measured.model_ms.map_or("-".into(), figure);
            let ratio = measured.against_model().map_or("-".into(), |r| format!("{r:.2}"));
            let (range, within) = bracket.map_or(("-".into(), "-".into()), |b| {
                let ends = format!("{} to {}", figure(b.low_ms), figure(b.high_ms));
                (ends, format!("{:.2} to {:.2}", b.low_ms / ms, b.high_ms / ms))
            });
            let mark = if *same_plan { "" } else { " *" };
            let label = format!("{}{mark}", measured.row.label);
            table.row([label, measured.row.direction.clone(), figure(ms), quick, ratio, range, within]);
        }
        let _ = writeln!(out, "{table}");
        for direction in ["fwd", "bwd", "wrw"] {
            let [quick, low, high] = self.means(direction);
            let Some(quick) = quick else { continue };
            let bracket = match (low, high) {
                (Some(low), Some(high)) => format!("; bracket {low:.2} to {high:.2}"),
                _ => String::new(),
            };
            let _ =
                writeln!(out, "{direction}: geometric mean of modelled over measured {quick:.2}{bracket}");
        }
        if self.layers.iter().any(|layer| !layer.same_plan) {
            let _ = writeln!(out, "* measured with another plan than this wave32 takes");
        }
        out
    }
}
