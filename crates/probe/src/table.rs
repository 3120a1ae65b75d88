//! The table that the cards' owners drew by hand: shapes down, solvers across, what came of each.

use crate::campaign::{FIND, ProbeShape, Report, Tried};
use crate::protocol::SolverVerdict;
use std::collections::BTreeMap;
use std::fmt::Write;
use wave32_verify::sheet::{Sheet, duration, figure};
use wave32_verify::suites::short;

/// Failures told in full; the JSON and the table on disk have all.
const SHOWN: usize = 30;

/// The end-of-run text.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(report, &mut out);
    out
}

fn write(report: &Report, out: &mut String) -> std::fmt::Result {
    writeln!(out, "{}\n{}\n", report.identity, report.identity.library)?;
    let solvers = solvers(report);
    grid(report, &solvers, out)?;
    writeln!(out)?;
    for (index, solver) in solvers.iter().enumerate() {
        let name = if solver == FIND { "MIOpen's own choice (Find), what PyTorch runs" } else { solver };
        writeln!(out, "  [{}] {name}", index + 1)?;
    }
    writeln!(
        out,
        "  a time: works, exact on integers and within the promise on random numbers; refuses: MIOpen says no; * see below"
    )?;
    rewrites(report, out)?;
    failures(report, out)?;
    writeln!(out, "\n{}", verdict(report))?;
    if !report.superseded.is_empty() {
        writeln!(out, "\nof MIOpens that are not here any more; `wave32 probe --prune` removes")?;
    }
    report.superseded.iter().try_for_each(|old| writeln!(out, "  {old}"))
}

/// The solvers in the order of their columns: Find, then those tried most often. Those that refuse everything have
/// none.
fn solvers(report: &Report) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for tried in report.tried.iter().filter(|t| t.row.finding.verdict != SolverVerdict::Refuses) {
        *counts.entry(&tried.row.key.solver).or_default() += 1;
    }
    let mut names: Vec<(&str, usize)> = counts.into_iter().collect();
    names.sort_by_key(|(name, count)| (*name != FIND, std::cmp::Reverse(*count)));
    names.into_iter().map(|(name, _)| name.to_string()).collect()
}

/// What is known of a shape under a solver as it is, and the rewriting that helped.
fn cell<'r>(report: &'r Report, shape: &ProbeShape, solver: &str) -> (Option<&'r Tried>, Option<&'r Tried>) {
    let of = |t: &&Tried| t.row.key.problem == shape.line && t.row.key.solver == solver;
    let plain = report.tried.iter().filter(of).find(|t| t.row.key.rewrite.is_empty());
    let helped = report.tried.iter().filter(of).find(|t| !t.row.key.rewrite.is_empty() && t.row.is_safe());
    (plain, helped)
}

fn grid(report: &Report, solvers: &[String], out: &mut String) -> std::fmt::Result {
    let mut header = vec!["shape".to_string(), "pass".to_string()];
    header.extend((1..=solvers.len()).map(|i| format!("[{i}]")));
    let mut sheet = Sheet::of_words(&header);
    for shape in &report.shapes {
        let spec = shape.problem.spec();
        let pass = format!("{} {}", spec.dtype.name(), spec.direction.name());
        let mut line = vec![short(&shape.problem), pass];
        line.extend(solvers.iter().map(|solver| {
            let (plain, helped) = cell(report, shape, solver);
            let star = if helped.is_some() { "*" } else { "" };
            plain.map_or(String::new(), |t| said(t) + star)
        }));
        sheet.row(line);
    }
    write!(out, "{sheet}")
}

fn said(tried: &Tried) -> String {
    let finding = &tried.row.finding;
    match (finding.verdict, finding.ms) {
        (SolverVerdict::Works, Some(ms)) => time(ms),
        (verdict, _) => verdict.name().to_string(),
    }
}

fn time(ms: f64) -> String {
    format!("{} ms", figure(ms))
}

fn rewrites(report: &Report, out: &mut String) -> std::fmt::Result {
    let mut header = false;
    for tried in report.tried.iter().filter(|t| !t.row.key.rewrite.is_empty() && t.row.is_safe()) {
        if !std::mem::replace(&mut header, true) {
            writeln!(out, "\n* made safe, with the same result, by")?;
        }
        let ways: Vec<String> = tried.row.key.rewrite.iter().map(ToString::to_string).collect();
        let (finding, key) = (&tried.row.finding, &tried.row.key);
        let shape = report.shapes.iter().find(|s| s.line == key.problem);
        let (label, pass) = shape
            .map_or((key.problem.clone(), ""), |s| (short(&s.problem), s.problem.spec().direction.name()));
        writeln!(
            out,
            "  {label} {pass}, {}: {} ({}{})",
            key.solver,
            ways.join(", "),
            if finding.pieces > 1 { format!("{} pieces, ", finding.pieces) } else { String::new() },
            time(finding.ms.unwrap_or(0.0))
        )?;
    }
    Ok(())
}

/// MIOpen's own choice, where it is an error: a solver that refuses leaves others, this leaves PyTorch none.
fn is_choice_without_result(tried: &Tried) -> bool {
    tried.row.key.solver == FIND && tried.row.finding.verdict != SolverVerdict::Works
}

fn failures(report: &Report, out: &mut String) -> std::fmt::Result {
    let failed = |t: &&Tried| {
        t.row.key.rewrite.is_empty() && (t.row.finding.verdict.is_failure() || is_choice_without_result(t))
    };
    let failed: Vec<&Tried> = report.tried.iter().filter(failed).collect();
    if failed.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nfailures")?;
    for tried in failed.iter().take(SHOWN) {
        let (key, finding) = (&tried.row.key, &tried.row.finding);
        let remembered = if tried.remembered { " (remembered)" } else { "" };
        writeln!(out, "  {:<7} {}{remembered}", finding.verdict.name(), key.solver)?;
        writeln!(out, "      {}", key.problem)?;
        writeln!(out, "      {}", finding.detail)?;
    }
    if failed.len() > SHOWN {
        writeln!(out, "  ... and {} more; --json has them all", failed.len() - SHOWN)?;
    }
    Ok(())
}

/// How it went and what to do, in a few lines.
fn verdict(report: &Report) -> String {
    let safe =
        |shape: &&ProbeShape| report.tried.iter().any(|t| t.row.key.problem == shape.line && t.row.is_safe());
    let total = report.shapes.len();
    let found = report.shapes.iter().filter(safe).count();
    let plain_find = |shape: &&ProbeShape| cell(report, shape, FIND).0.is_some_and(is_choice_without_result);
    let broken = report.shapes.iter().filter(plain_find).count();
    let mut text = format!(
        "{found} of {total} shapes have a safe way through MIOpen here; its own choice fails on {broken}. {}, seed {}\nkept in {}",
        duration(report.elapsed_s),
        report.seed,
        report.table.display()
    );
    if let Some(why) = &report.stopped {
        let next = if report.interrupted {
            "run the same command again to go on"
        } else {
            "restart the machine, then run the same command again: it goes on behind what did this"
        };
        text = format!("STOPPED: {why}; {next}\n{text}");
    } else if found < total {
        text += "\nshapes without one: use wave32 on Vulkan for them (`wave32 verify LINE --device vulkan` proves it here)";
    }
    if broken > 0 {
        text += "\nwhere its own choice fails, PyTorch does: `wave32 run --route rocm -- CMD` has wave32's convolutions instead";
    }
    text
}
