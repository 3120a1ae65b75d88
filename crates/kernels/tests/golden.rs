//! The golden table of resources against what is embedded, and the gates on it.
//!
//! Code objects are read back from this build's own; RADV compiles this build's SPIR-V. Rows are compared
//! exactly where the compiler is the one of the table's header; otherwise only the gates decide. A
//! compiler that is not installed is said on the test's output; `WAVE32_REQUIRE_COMPILERS=1` (set by `make test`)
//! makes that a failure. So are targets that `WAVE32_GFX_TARGETS` leaves out. `WAVE32_BLESS=1` writes the table instead, if
//! every gate holds.
//!
//! RDNA1's chips get the same code: by LLVM, gfx1010's is that of all three; by RADV, NAVI10 has rows, and a sample of the
//! variants, another one each time, is compiled for the others and must equal them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::ExitCode;
use wave32_cards::targets::code_of;
use wave32_kernelc::clang::{self, Clang};
use wave32_kernelc::table::{self, Row};
use wave32_kernelc::{CompileError, aco, parallel, readback};
use wave32_params::variants::{self, Variant};

/// One variant of so many is compiled for each chip that has no rows.
const SAMPLE: usize = 24;

fn main() -> ExitCode {
    aco::serve_if_child();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/resources.tsv");
    if std::env::var_os("WAVE32_BLESS").is_some() {
        return match bless(&golden) {
            Ok(rows) => {
                println!("golden: {rows} rows written");
                ExitCode::SUCCESS
            }
            Err(reason) => fail(&[reason]),
        };
    }
    let golden = match std::fs::read_to_string(&golden) {
        Ok(text) => text,
        Err(e) => return fail(&[format!("{}: {e}", golden.display())]),
    };
    let variants: Vec<&Variant> = variants::all().iter().collect();
    let required = std::env::var_os("WAVE32_REQUIRE_COMPILERS").is_some();
    let mut failures = Vec::new();
    for (compiler, result) in [("clang", llvm(&variants)), ("driver", radv(&variants))] {
        match result {
            Ok((rows, version)) => failures.extend(check(&golden, compiler, &rows, &version, &variants)),
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
    eprintln!("golden: if the change is meant: WAVE32_BLESS=1 cargo test -p wave32-kernels --test golden");
    ExitCode::FAILURE
}

/// Writes the table; returns its number of rows.
fn bless(path: &Path) -> Result<usize, String> {
    if std::env::var_os("WAVE32_GFX_TARGETS").is_some() {
        return Err("the table is not written: WAVE32_GFX_TARGETS leaves targets out; unset it".to_string());
    }
    let variants: Vec<&Variant> = variants::all().iter().collect();
    let (mut rows, clang) = llvm(&variants).map_err(|e| e.to_string())?;
    let (found, driver) = radv(&variants).map_err(|e| e.to_string())?;
    rows.extend(found);
    let problems = table::problems(&rows, &variants);
    if !problems.is_empty() {
        return Err(format!("the table is not written:\n{}", problems.join("\n")));
    }
    let text = table::render(&[("clang", clang), ("driver", driver)], &rows);
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(rows.len())
}

/// What is embedded, read back; and the clang that made it.
fn llvm(variants: &[&Variant]) -> Result<(Vec<Row>, String), CompileError> {
    let clang = Clang::find()?;
    let scratch = std::env::temp_dir().join(format!("wave32-golden-test-{}", std::process::id()));
    let io = |e: std::io::Error| CompileError::Tool(format!("{}: {e}", scratch.display()));
    std::fs::create_dir_all(&scratch).map_err(io)?;
    let read = |target: &&str| {
        let bytes = wave32_kernels::code_object(target).map_err(|e| CompileError::Tool(e.to_string()))?;
        let path = scratch.join(format!("{target}.elf"));
        std::fs::write(&path, bytes).map_err(io)?;
        let built: Vec<&Variant> = variants.iter().copied().filter(|v| v.is_for(target)).collect();
        readback::code_object(&clang, &path, target, &built)
    };
    let left_out = |target: &&str| {
        let is_out =
            std::env::var_os("WAVE32_GFX_TARGETS").is_some() && !wave32_kernels::targets().contains(target);
        if is_out {
            println!("golden: {target} not checked: WAVE32_GFX_TARGETS leaves it out");
        }
        is_out
    };
    let mut targets = clang::targets();
    targets.retain(|target| code_of(target) == *target && !left_out(target));
    let rows: Result<Vec<Vec<Row>>, CompileError> = parallel::map(&targets, read).into_iter().collect();
    // Best effort: it is in the system's temporary folder.
    let _ = std::fs::remove_dir_all(&scratch);
    Ok((rows?.concat(), clang.version))
}

fn radv(variants: &[&Variant]) -> Result<(Vec<Row>, String), CompileError> {
    let spirv = |v: &&Variant| {
        let bytes = wave32_kernels::spirv(&v.name).ok_or_else(|| CompileError::ReadBack {
            what: "the embedded SPIR-V".to_string(),
            reason: format!("{} is not there", v.name),
        })?;
        Ok(readback::aco_input(v, bytes.to_vec()))
    };
    let inputs = variants.iter().map(spirv).collect::<Result<Vec<_>, CompileError>>()?;
    let families = aco::families();
    let Some((first, others)) = families.split_first() else { return Ok((Vec::new(), String::new())) };
    let every = |step: usize, from: usize| -> (Vec<&Variant>, Vec<aco::Input>) {
        (
            variants.iter().copied().skip(from).step_by(step).collect(),
            inputs.iter().skip(from).step_by(step).cloned().collect(),
        )
    };
    // Two halves side by side; neighbours take about as long.
    let halves = [every(2, 0), every(2, 1)];
    let (mut rows, mut driver) = (Vec::new(), String::new());
    for result in parallel::map(&halves, |(variants, inputs)| readback::radv_spirv(variants, inputs, first)) {
        let (found, version) = result?;
        rows.extend(found);
        driver = version;
    }
    let (sample, inputs) = every(SAMPLE, RandomState::new().hash_one(0) as usize % SAMPLE);
    for result in parallel::map(others, |family| readback::radv_spirv(&sample, &inputs, family)) {
        for row in result?.0 {
            let alike = Row { target: first.clone(), ..row.clone() };
            if !rows.contains(&alike) {
                let reason = format!("{} is not as on {first}: {row:?}", row.target);
                return Err(CompileError::ReadBack { what: row.variant, reason });
            }
        }
    }
    Ok((rows, driver))
}

/// What is wrong with `rows`: gates, and differences from the table where the versions agree.
fn check(golden: &str, compiler: &str, rows: &[Row], version: &str, variants: &[&Variant]) -> Vec<String> {
    let mut failures = table::problems(rows, variants);
    let header = format!("# {compiler}: ");
    let Some(golden_version) = golden.lines().find_map(|line| line.strip_prefix(&header)) else {
        failures.push(format!("resources.tsv has no line `{header}...`"));
        return failures;
    };
    if golden_version != version {
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
    let (want, have) = (lines(golden), lines(&table::render(&[], rows)));
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
