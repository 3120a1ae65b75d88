//! The summary that a tired person can read.

use crate::output::report::{Report, Row, Tally};
use crate::output::sheet::{Sheet, duration};
use crate::process::protocol::Verdict;
use std::fmt::Write;
use wave32_host::text::one_line;

/// Failures printed in full; the rest is counted. JSON and HTML have all.
const SHOWN: usize = 40;

/// The end-of-run text: one line for each device, type and direction; then the failures with their
/// repro; then one line that says how it went.
pub fn summary(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(report, &mut out);
    out
}

fn write(report: &Report, out: &mut String) -> std::fmt::Result {
    for d in &report.devices {
        let (name, driver) = (one_line(&d.device.name), one_line(&d.device.driver));
        writeln!(out, "{:<10} {name} ({driver})", d.device.id)?;
        let scaled =
            report.rows.iter().filter(|r| r.device == d.device.id && r.scaled_from.is_some()).count();
        if let (Some(max), true) = (d.max_gflop, scaled > 0) {
            let (named, distinct) = (d.named, d.distinct);
            writeln!(
                out,
                "           suites scaled down to {max} GFLOP a problem here: {named} problems became {distinct} \
                 different ones, {scaled} of them smaller (--max-gflop none runs full size)"
            )?;
        }
    }
    writeln!(out)?;
    let header = ["device", "dtype", "pass", "passed", "failed", "unsupported", "worst error"];
    let mut sheet = Sheet::of_words(&header);
    for ([device, dtype, direction], tally) in &report.groups() {
        sheet.row([
            device.clone(),
            dtype.clone(),
            direction.clone(),
            tally.of(Verdict::Pass).to_string(),
            failures(tally),
            tally.of(Verdict::Unsupported).to_string(),
            tally.worst.map_or("-".into(), |(error, bound)| format!("{error:.1e} of {bound:.1e} allowed")),
        ]);
    }
    write!(out, "{sheet}")?;
    let failed: Vec<&Row> = report.rows.iter().filter(|r| r.outcome.verdict.is_failure()).collect();
    if !failed.is_empty() {
        writeln!(out, "\nfailures")?;
    }
    for row in failed.iter().take(SHOWN) {
        failure(row, out)?;
    }
    if failed.len() > SHOWN {
        writeln!(out, "  ... and {} more; --json or --html has them all", failed.len() - SHOWN)?;
    }
    tuned(report, out)?;
    sampled(report, out)?;
    unsupported(report, out)?;
    writeln!(out, "\n{}", verdict(report))
}

/// `0`, or the counts by verdict.
fn failures(tally: &Tally) -> String {
    let counts: Vec<String> = tally
        .verdicts
        .iter()
        .filter(|(v, _)| v.is_failure())
        .map(|(v, n)| format!("{n} {}", v.name()))
        .collect();
    if counts.is_empty() { "0".into() } else { counts.join(", ") }
}

fn failure(row: &Row, out: &mut String) -> std::fmt::Result {
    writeln!(out, "  {:<13} {} {}", row.outcome.verdict.name(), row.device, row.label)?;
    writeln!(out, "      {}", row.outcome.detail)?;
    if let Some(repro) = &row.repro {
        writeln!(out, "      {repro}")?;
    }
    if let Some(shrunk) = &row.shrunk {
        writeln!(out, "      smallest found: {shrunk}")?;
    }
    Ok(())
}

/// How many ran as `wave32 tune` had measured.
fn tuned(report: &Report, out: &mut String) -> std::fmt::Result {
    let count = report.rows.iter().filter(|row| row.outcome.solvers.iter().any(|s| s.tuned)).count();
    if count == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "\n{count} ran tuned: as `wave32 tune` measured it to be the fastest (WAVE32_TUNE=0: as the model chooses)"
    )
}

/// What was not compared output by output, and what that leaves, with one example.
fn sampled(report: &Report, out: &mut String) -> std::fmt::Result {
    let whole = |against: &str| against.is_empty() || against.ends_with("every output");
    let is_sampled = |row: &&Row| {
        row.outcome.verdict == Verdict::Pass
            && !(whole(&row.outcome.exact_against) && whole(&row.outcome.close_against))
    };
    let Some(first) = report.rows.iter().find(is_sampled) else { return Ok(()) };
    let count = report.rows.iter().filter(is_sampled).count();
    writeln!(
        out,
        "\n{count} of those passed were too large to be compared output by output (--json and --html tell each), the first:\n  \
         integers: {}\n  random numbers: {}",
        first.outcome.exact_against, first.outcome.close_against
    )
}

/// One example a device of what no solver takes.
fn unsupported(report: &Report, out: &mut String) -> std::fmt::Result {
    for d in &report.devices {
        let here = |r: &&Row| r.device == d.device.id && r.outcome.verdict == Verdict::Unsupported;
        if let Some(first) = report.rows.iter().find(here) {
            let count = report.rows.iter().filter(here).count();
            writeln!(
                out,
                "\n{count} problems are unsupported on {}, the first: {}",
                d.device.id, first.outcome.detail
            )?;
        }
    }
    Ok(())
}

/// How it went, in one line.
pub fn verdict(report: &Report) -> String {
    let total = report.total();
    let (passed, failed) = (total.of(Verdict::Pass), total.failed());
    let unsupported = match total.of(Verdict::Unsupported) {
        0 => String::new(),
        n => format!(", {n} unsupported"),
    };
    let time = format!("{} in {}, seed {}", unsupported, duration(report.elapsed_s), report.seed);
    if report.interrupted {
        let left = report.not_run;
        return format!("INTERRUPTED with {left} problems not run: {passed} passed, {failed} failed{time}");
    }
    match (passed, failed) {
        (0, 0) => format!("NOTHING VERIFIED: 0 passed, 0 failed{time}"),
        (_, 0) => format!("ALL RIGHT: {passed} passed, 0 failed{time}"),
        _ => format!("FAILED: {passed} passed, {failed} failed{time}"),
    }
}
