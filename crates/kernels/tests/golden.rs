//! The golden table of resources against what is embedded, and the gates on it.
//!
//! Code objects are read back from this build's own; RADV compiles this build's SPIR-V. Rows are compared
//! exactly where the compiler is the one of the table's header; otherwise only the gates decide. A
//! compiler that is not installed is said on the test's output; `WAVE32_REQUIRE_COMPILERS=1` (set by `make test`)
//! makes that a failure. The table is written by `wave32-kernelc`'s example `golden`.
//!
//! Of a target that `WAVE32_GFX_TARGETS` leaves out, a sample of the variants, another one each time, is compiled and compared.
//!
//! RDNA1's chips get the same code: by LLVM, gfx1010's is that of all three; by RADV, NAVI10 has rows, and a sample of the
//! variants, another one each time, is compiled for the others and must equal them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::ExitCode;
use wave32_kernelc::clang::{self, Clang};
use wave32_kernelc::table::{self, Row};
use wave32_kernelc::{CompileError, aco, parallel, readback};
use wave32_params::variants::{self, Variant};

/// One variant of so many is compiled for each chip that has no rows, and for each target that this build leaves out.
const SAMPLE: usize = 24;

/// What a compiler made.
struct Made {
    rows: Vec<Row>,
    version: String,
    /// Targets of which only a sample of the variants has rows.
    sampled: Vec<&'static str>,
}

fn main() -> ExitCode {
    aco::serve_if_child();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/resources.tsv");
    let golden = match std::fs::read_to_string(&golden) {
        Ok(text) => text,
        Err(e) => return fail(&[format!("{}: {e}", golden.display())]),
    };
    let variants: Vec<&Variant> = variants::all().iter().collect();
    let required = std::env::var_os("WAVE32_REQUIRE_COMPILERS").is_some();
    let mut failures = Vec::new();
    for (compiler, result) in [("clang", llvm(&variants)), ("driver", radv(&variants))] {
        match result {
            Ok(made) => failures.extend(check(&golden, compiler, &made, &variants)),
            Err(CompileError::Tool(reason)) if !required => {
                println!("golden: {compiler} not checked: {reason}")
            }
            Err(reason) => failures.push(reason.to_string()),
        }
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { fail(&failures) }
}

fn fail(reasons: &[String]) -> ExitCode {
    reasons.iter().for_each(|reason| eprintln!("golden: {reason}"));
    eprintln!(
        "golden: if the change is meant: cargo run -p wave32-kernelc --example golden -- --bless --only SUBSTRING"
    );
    ExitCode::FAILURE
}

/// One of [`SAMPLE`]; `from` says which.
fn sample<T: Clone>(of: &[T], from: u64) -> Vec<T> {
    of.iter().skip(from as usize % SAMPLE).step_by(SAMPLE).cloned().collect()
}

/// What is embedded, read back, and samples for the targets that this build leaves out.
fn llvm(variants: &[&Variant]) -> Result<Made, CompileError> {
    let clang = Clang::find()?;
    let scratch = std::env::temp_dir().join(format!("wave32-golden-test-{}", std::process::id()));
    let io = |e: std::io::Error| CompileError::Tool(format!("{}: {e}", scratch.display()));
    std::fs::create_dir_all(&scratch).map_err(io)?;
    let read = |target: &&str| {
        let codes = wave32_kernels::code_objects(target).map_err(|e| CompileError::Tool(e.to_string()))?;
        // That which it does not share with an older target comes last.
        let bytes = codes.last().copied().unwrap_or_default();
        let path = scratch.join(format!("{target}.elf"));
        std::fs::write(&path, bytes).map_err(io)?;
        let built = clang::made_for(target, variants);
        readback::code_object(&clang, &path, target, &built)
    };
    let is_left_out = |target: &&str| {
        std::env::var_os("WAVE32_GFX_TARGETS").is_some() && !wave32_kernels::targets().contains(target)
    };
    let own = clang::targets().into_iter().filter(|target| !clang::made_for(target, variants).is_empty());
    let (sampled, whole): (Vec<&str>, Vec<&str>) = own.partition(is_left_out);
    let mut rows = Vec::new();
    for found in parallel::map(&whole, read) {
        rows.extend(found?);
    }
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    for &target in &sampled {
        let chosen = sample(&clang::made_for(target, variants), RandomState::new().hash_one(target));
        println!("golden: {target} is left out by WAVE32_GFX_TARGETS: {} variants compared", chosen.len());
        rows.extend(readback::llvm(&kernels, &clang, &scratch, &chosen, &[target])?);
    }
    // Best effort: it is in the system's temporary folder.
    let _ = std::fs::remove_dir_all(&scratch);
    Ok(Made { rows, version: clang.version, sampled })
}

fn radv(variants: &[&Variant]) -> Result<Made, CompileError> {
    // The driver of Debian 12 has none of these instructions.
    let variants: Vec<&Variant> = variants.iter().copied().filter(|v| !v.needs_instructions()).collect();
    let spirv = |v: &&Variant| {
        let bytes = wave32_kernels::spirv(&v.name).ok_or_else(|| CompileError::ReadBack {
            what: "the embedded SPIR-V".to_string(),
            reason: format!("{} is not there", v.name),
        })?;
        Ok(readback::aco_input(v, bytes.to_vec()))
    };
    let inputs = variants.iter().map(spirv).collect::<Result<Vec<_>, CompileError>>()?;
    let families = aco::families();
    let mut made = Made { rows: Vec::new(), version: String::new(), sampled: Vec::new() };
    let Some((first, others)) = families.split_first() else { return Ok(made) };
    // Two halves side by side; neighbours take about as long.
    let half = |from: usize| -> (Vec<&Variant>, Vec<aco::Input>) {
        (
            variants.iter().copied().skip(from).step_by(2).collect(),
            inputs.iter().skip(from).step_by(2).cloned().collect(),
        )
    };
    let halves = [half(0), half(1)];
    for result in parallel::map(&halves, |(variants, inputs)| readback::radv_spirv(variants, inputs, first)) {
        let (found, version) = result?;
        made.rows.extend(found);
        made.version = version;
    }
    let from = RandomState::new().hash_one(0);
    let (chosen, inputs) = (sample(&variants, from), sample(&inputs, from));
    for result in parallel::map(others, |family| readback::radv_spirv(&chosen, &inputs, family)) {
        for row in result?.0 {
            let alike = Row { target: first.clone(), ..row.clone() };
            if !made.rows.contains(&alike) {
                let reason = format!("{} is not as on {first}: {row:?}", row.target);
                return Err(CompileError::ReadBack { what: row.variant, reason });
            }
        }
    }
    Ok(made)
}

/// What is wrong with what a compiler made: gates, and differences from the table where the versions agree.
fn check(golden: &str, compiler: &str, made: &Made, variants: &[&Variant]) -> Vec<String> {
    let Made { rows, version, sampled } = made;
    let mut failures = table::problems(rows, variants);
    let header = format!("# {compiler}: ");
    let Some(golden_version) = golden.lines().find_map(|line| line.strip_prefix(&header)) else {
        failures.push(format!("resources.tsv has no line `{header}...`"));
        return failures;
    };
    if golden_version != *version {
        println!(
            "golden: {compiler} is {version}, the table's is {golden_version}: only the gates are checked"
        );
        return failures;
    }
    let checked: BTreeSet<&str> = rows.iter().map(|row| row.target.as_str()).collect();
    let key = |line: &str| line.splitn(4, '\t').take(3).map(String::from).collect::<Vec<_>>();
    let family = if compiler == "clang" { "\tllvm\t" } else { "\taco\t" };
    let lines = |text: &str| -> BTreeMap<Vec<String>, String> {
        let is_checked = |line: &&str| line.split('\t').nth(2).is_some_and(|target| checked.contains(target));
        let rows = text.lines().filter(|l| l.contains(family) && !l.starts_with('#')).filter(is_checked);
        rows.map(|l| (key(l), l.to_string())).collect()
    };
    let (mut want, have) =
        (lines(golden), lines(&rows.iter().map(|row| row.line() + "\n").collect::<String>()));
    want.retain(|key, _| !sampled.contains(&key[2].as_str()) || have.contains_key(key));
    let keys: BTreeSet<_> = want.keys().chain(have.keys()).collect();
    for key in keys {
        let show = |side: &BTreeMap<Vec<String>, String>| {
            side.get(key).map_or("no such row".to_string(), String::clone)
        };
        if want.get(key) != have.get(key) {
            failures.push(format!("{compiler}\n  table: {}\n  now:   {}", show(&want), show(&have)));
        }
    }
    failures
}
