//! Reads back what both compilers make of the kernels.
//!
//!     cargo run -q -p wave32-kernelc --example golden -- --report [--only SUBSTRING] [--all-targets]
//!     cargo run -q -p wave32-kernelc --example golden -- --isa VARIANT [--target gfx1010|navi10]
//!     cargo run -q -p wave32-kernelc --example golden -- --bless [--only SUBSTRING]
//!
//! --bless writes the golden table, `crates/kernels/golden/resources.tsv`, if every gate holds; with --only, the rows of these variants
//! and those that are gone.
//!
//! Works on the texts in kernels/ (or in `--kernels FOLDER`) as they are now; nothing needs to be rebuilt
//! after an edit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wave32_kernelc::clang::{self, Clang};
use wave32_kernelc::table::{Row, problems, render};
use wave32_kernelc::{CompileError, Target, aco, parallel, readback, source};
use wave32_params::variants::{self, Variant};

fn main() -> ExitCode {
    aco::serve_if_child();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Options::parse(&arguments).and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(reason) => {
            eprintln!("golden: {reason}");
            ExitCode::from(2)
        }
    }
}

#[derive(Default)]
struct Options {
    report: bool,
    bless: bool,
    all_targets: bool,
    only: Option<String>,
    isa: Option<String>,
    target: Option<String>,
    kernels: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--report" => options.report = true,
                "--bless" => options.bless = true,
                "--all-targets" => options.all_targets = true,
                "--only" => options.only = Some(value()?),
                "--isa" => options.isa = Some(value()?),
                "--target" => options.target = Some(value()?),
                "--kernels" => options.kernels = Some(PathBuf::from(value()?)),
                _ => return Err(format!("unknown word {word}; see the top of examples/golden.rs")),
            }
        }
        if usize::from(options.report) + usize::from(options.bless) + usize::from(options.isa.is_some()) != 1
        {
            return Err("say one of --report, --bless, --isa VARIANT".to_string());
        }
        Ok(options)
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// True where every gate holds.
fn run(options: &Options) -> Result<bool, String> {
    let root = options.kernels.clone().unwrap_or_else(|| repository().join("kernels"));
    // Read now rather than `variants::all()`: an edit needs no rebuild.
    let all = variants::read(&root)?;
    let only = options.only.as_deref().unwrap_or_default();
    let wanted: Vec<&Variant> = all.iter().filter(|v| v.name.contains(only)).collect();
    if wanted.is_empty() {
        return Err(format!("no variant's name contains `{only}`"));
    }
    let scratch = std::env::temp_dir().join(format!("wave32-golden-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let result = match &options.isa {
        Some(name) => isa(&root, &scratch, &all, name, options.target.as_deref().unwrap_or("gfx1010")),
        None if options.bless => bless(&root, &scratch, &all, &wanted),
        None => read_back(options, &root, &scratch, &wanted),
    };
    // Best effort: it is in the system's temporary folder.
    let _ = std::fs::remove_dir_all(&scratch);
    result
}

fn read_back(options: &Options, root: &Path, scratch: &Path, wanted: &[&Variant]) -> Result<bool, String> {
    let everything = options.all_targets;
    let clang = Clang::find().map_err(|e| e.to_string())?;
    let targets = if everything { known_targets(&clang, scratch)? } else { vec!["gfx1010"] };
    let families = if everything { aco::families() } else { vec!["navi10".to_string()] };
    let text = |e: CompileError| e.to_string();
    let mut rows = Vec::new();
    for target in targets {
        let built: Vec<&Variant> = wanted.iter().copied().filter(|v| v.code_of(target).is_some()).collect();
        rows.extend(readback::llvm(root, &clang, scratch, &built, &[target]).map_err(text)?);
    }
    let wanted = &for_driver(wanted);
    let radv = parallel::map(&families, |family| readback::radv(root, wanted, family));
    for result in radv {
        rows.extend(result.map_err(text)?.0);
    }
    let problems = problems(&rows, wanted);
    report(&rows);
    problems.iter().for_each(|p| println!("GATE {p}"));
    Ok(problems.is_empty())
}

/// The driver of the table has neither matrix instructions nor dot products.
fn for_driver<'v>(wanted: &[&'v Variant]) -> Vec<&'v Variant> {
    wanted.iter().copied().filter(|v| !v.needs_instructions()).collect()
}

/// Writes the rows of `wanted` into the table, if every gate holds.
fn bless(root: &Path, scratch: &Path, all: &[Variant], wanted: &[&Variant]) -> Result<bool, String> {
    let path = repository().join("crates/kernels/golden/resources.tsv");
    let old = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let text = |e: CompileError| e.to_string();
    let clang = Clang::find().map_err(text)?;
    let (mut rows, driver) = readback::radv(root, &for_driver(wanted), "navi10").map_err(text)?;
    for target in known_targets(&clang, scratch)? {
        let built = clang::made_for(target, wanted);
        rows.extend(readback::llvm(root, &clang, scratch, &built, &[target]).map_err(text)?);
    }
    let problems = problems(&rows, wanted);
    problems.iter().for_each(|p| println!("GATE {p}"));
    if !problems.is_empty() {
        return Ok(false);
    }
    let versions = [("clang", clang.version.as_str()), ("driver", driver.as_str())];
    if wanted.len() < all.len()
        && let Some((what, version)) =
            versions.iter().find(|(what, version)| !old.contains(&format!("# {what}: {version}\n")))
    {
        return Err(format!("{what} is {version} here, another in the table: leave --only out"));
    }
    let is_kept = |line: &&str| {
        let name = line.split('\t').next().unwrap_or_default();
        all.iter().any(|v| v.name == name) && !wanted.iter().any(|v| v.name == name)
    };
    let lines: Vec<String> =
        old.lines().filter(is_kept).map(String::from).chain(rows.iter().map(Row::line)).collect();
    println!("golden: {} rows, {} of them written anew", lines.len(), rows.len());
    std::fs::write(&path, render(&versions, lines)).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(true)
}

fn known_targets(clang: &Clang, scratch: &Path) -> Result<Vec<&'static str>, String> {
    let mut known = clang::targets();
    known.retain(|target| clang.knows(target, scratch));
    if known == clang::targets() {
        Ok(known)
    } else {
        Err(format!("{} knows only {known:?}: use a newer one", clang.version))
    }
}

/// One line per variant: each target's figures side by side.
fn report(rows: &[Row]) {
    let mut by_variant: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        by_variant.entry(&row.variant).or_default().push(row);
    }
    println!(
        "{:<32} {:>8} {:>5} {:>5} {:>5} {:>4} {:>6} {:>5}  FMA share of the hottest loop",
        "variant", "target", "vgpr", "sgpr", "lds", "occ", "code", "spill"
    );
    for (variant, rows) in by_variant {
        for row in rows {
            let spills = row.vgpr_spills + row.sgpr_spills + row.scratch_bytes;
            println!(
                "{variant:<32} {:>8} {:>5} {:>5} {:>5} {:>4} {:>6} {:>5}  {:>5.1} % ({}/{})",
                row.target,
                row.vgprs,
                row.sgprs,
                row.lds_bytes,
                row.occupancy,
                row.code_bytes,
                spills,
                row.hot.share() * 100.0,
                row.hot.fma,
                row.hot.instructions
            );
        }
    }
}

/// Prints one variant's disassembly.
fn isa(root: &Path, scratch: &Path, all: &[Variant], name: &str, target: &str) -> Result<bool, String> {
    let variant =
        all.iter().find(|v| v.name == name).ok_or_else(|| format!("no variant is called {name}"))?;
    let text = |e: CompileError| e.to_string();
    if target.starts_with("navi") {
        let input = readback::spirv(root, variant).map_err(text)?;
        let compiled = aco::compile(target, &[input], &aco::Asked::default()).map_err(text)?;
        print!("{}", compiled.kernels[name].isa);
    } else {
        let clang = Clang::find().map_err(text)?;
        let source = source::source(root, variant, Target::Hip).map_err(text)?;
        let object = clang.relocatable(&source, target, scratch).map_err(text)?;
        print!("{}", clang.disassemble(&object).map_err(text)?);
    }
    Ok(true)
}
