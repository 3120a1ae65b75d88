//! What a RADV makes of every kernel for several chips, and how long it takes: `scripts/drivers.py` makes a page of it.
//!
//!     cargo run -q -p wave32-kernelc --example drivers -- [--times 2] [--only SUBSTRING] [--launcher FILE]
//!
//! Prints a table, tab-separated, one row a kernel and chip. `WAVE32_RADV_ROOT` says whose RADV. With `--launcher` RADV
//! runs on the virtual card of that `wave32-vgpu`, else on its own null device.

use std::path::Path;
use std::process::ExitCode;
use wave32_cards::targets;
use wave32_kernelc::isa::wave64_lines;
use wave32_kernelc::table::Row;
use wave32_kernelc::{CompileError, aco, parallel, readback};
use wave32_params::variants::{self, Variant};

/// RDNA1 is what wave32 is made for; of each later generation the chips that its first and its newest boards carry.
const TARGETS: &[&str] = &["gfx1010", "gfx1011", "gfx1012", "gfx1030", "gfx1100", "gfx1200", "gfx1201"];

fn main() -> ExitCode {
    aco::serve_if_child();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("drivers: {reason}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let (mut asked, mut only) = (aco::Asked { times: 2, launcher: None }, "");
    for pair in arguments.chunks(2) {
        match pair {
            [word, value] if word == "--times" => {
                asked.times = value.parse().map_err(|e| format!("{value}: {e}"))?;
            }
            [word, value] if word == "--launcher" => asked.launcher = Some(value.into()),
            [word, value] if word == "--only" => only = value,
            _ => return Err(format!("{}: see the top of examples/drivers.rs", pair.join(" "))),
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../kernels");
    let all = variants::read(&root)?;
    let wanted: Vec<&Variant> = all.iter().filter(|v| v.name.contains(only)).collect();
    let inputs = parallel::map(&wanted, |variant| readback::spirv(&root, variant));
    let inputs = inputs.into_iter().collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    println!("# kernels: {}", inputs.len());
    println!(
        "kernel\tchip\tvgprs\tsgprs\tlds\tvgpr_spills\tsgpr_spills\tscratch\toccupancy\tcode_bytes\thot_fma\t\
         hot_instructions\tsubgroup\twave64_lines\tms"
    );
    let found = parallel::map(TARGETS, |target| chip(target, &inputs, &asked));
    for result in found {
        let Some((chip, family)) = result? else { continue };
        println!("# driver: {}", family.driver);
        for variant in &wanted {
            // Older drivers, and some chips, have no matrix instructions or dot products.
            let compiled = match family.kernels.get(&variant.name) {
                Some(compiled) => compiled,
                None if variant.needs_instructions() => continue,
                None => return Err(format!("{chip}: no answer on {}", variant.name)),
            };
            let row = Row::aco(variant, &chip, compiled).map_err(|e| e.to_string())?;
            let numbers = [
                row.vgprs,
                row.sgprs,
                row.lds_bytes,
                row.vgpr_spills,
                row.sgpr_spills,
                row.scratch_bytes,
                row.occupancy,
                row.code_bytes,
                row.hot.fma,
                row.hot.instructions,
                compiled.subgroup_size,
                wave64_lines(&compiled.isa),
            ];
            let numbers = numbers.map(|n| n.to_string()).join("\t");
            let ms = compiled.time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
            println!("{}\t{chip}\t{numbers}\t{ms:.2}", variant.name);
        }
    }
    Ok(())
}

/// The chip's name and what RADV makes for it; none where this RADV does not know the chip.
fn chip(
    target: &str,
    inputs: &[aco::Input],
    asked: &aco::Asked,
) -> Result<Option<(String, aco::Family)>, String> {
    let known = targets::by_name(target).and_then(|target| Some((target, target.chip?)));
    let (known, chip) = known.ok_or_else(|| format!("{target}: crates/cards has no chip"))?;
    let chip = chip.driver_name();
    let inputs: Vec<aco::Input> = inputs
        .iter()
        .filter(|input| known.has_matrix() || input.needs != aco::Needs::Matrix)
        .cloned()
        .collect();
    // A Mesa calls a chip by its target until the chip has a name.
    for name in [chip.as_str(), target] {
        match aco::compile(name, &inputs, asked) {
            Ok(family) => return Ok(Some((chip.clone(), family))),
            Err(CompileError::Tool(reason)) if reason.contains(aco::UNKNOWN) => {}
            Err(reason) => return Err(reason.to_string()),
        }
    }
    eprintln!("drivers: this RADV does not know {chip}");
    Ok(None)
}
