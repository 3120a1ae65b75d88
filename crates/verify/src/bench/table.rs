//! Tables for people.

use super::stats::geometric_mean;
use super::{BenchMode, Comparison, Pair, Report, Row};
use crate::output::sheet::{Sheet, figure};
use std::fmt::Write as _;

fn optional(value: Option<f64>) -> String {
    value.map_or("-".to_string(), figure)
}

fn percent(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |v| format!("{:.1}%", v * 100.0))
}

/// Who, the rows, and a line for each pass and type.
pub fn table(report: &Report) -> String {
    let subject = &report.subject;
    let mode = if report.mode == BenchMode::Warm { "warm" } else { "cold" };
    let mut text =
        format!("{} {} ({}), {}, {mode} caches\n", subject.id, subject.name, subject.driver, subject.clock);
    if let Some(rates) = &subject.rates {
        let (peak, bandwidth) = (figure(rates.peak_tflops), figure(rates.bandwidth_gbs));
        let _ = writeln!(
            text,
            "floor: the longer of arithmetic at {peak} TFLOPS f32 and memory at {bandwidth} GB/s, both {}",
            rates.source
        );
    }
    let mut table = Sheet::new(&["problem", "pass", "type", "solver", "ms", "TFLOPS", "GB/s", "of floor"], 4);
    for row in report.rows.iter().filter(|row| row.time.is_some()) {
        let solver = match row.config.as_str() {
            "" => row.solver.clone(),
            config => format!("{} {config}{}", row.solver, if row.tuned { " (tuned)" } else { "" }),
        };
        let numbers = [
            optional(row.median_ms()),
            optional(row.tflops()),
            optional(row.gbs()),
            percent(row.floor_share()),
        ];
        let words = [shortened(&row.label), row.direction.clone(), row.dtype.clone(), solver];
        table.row(words.into_iter().chain(numbers));
    }
    let _ = writeln!(text, "\n{table}");
    text.push_str(&totals(report));
    for row in report.failures() {
        let error = row.error.as_deref().unwrap_or_default();
        let _ = writeln!(
            text,
            "not timed: {} {} {} {}: {error}",
            row.label, row.direction, row.dtype, row.solver
        );
    }
    if !report.too_large.is_empty() {
        let count = report.too_large.len();
        let _ =
            writeln!(text, "{count} larger problems left out by --max-gflop: {}", list(&report.too_large));
    }
    if let Some(reason) = &report.ended_early {
        let _ = writeln!(text, "ended early: {reason}");
    }
    text
}

/// Sums over the chosen solvers, by pass and type.
fn totals(report: &Report) -> String {
    let mut text = String::new();
    for (direction, dtype) in passes(report.rows.iter()) {
        let rows: Vec<&Row> = report
            .rows
            .iter()
            .filter(|r| r.chosen && r.time.is_some() && r.direction == direction && r.dtype == dtype)
            .collect();
        if rows.is_empty() {
            continue;
        }
        let sum: f64 = rows.iter().filter_map(|r| r.median_ms()).sum();
        let tflops = rows.iter().map(|r| r.flops as f64).sum::<f64>() / sum / 1e9;
        let share = geometric_mean(rows.iter().filter_map(|r| r.floor_share()));
        let _ = writeln!(
            text,
            "{direction} {dtype}: {} problems in {} ms, {} TFLOPS; share of floor {} (geometric mean)",
            rows.len(),
            figure(sum),
            figure(tflops),
            percent(share)
        );
    }
    text
}

/// Each pass and type there is, in order of appearance.
fn passes<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for row in rows {
        let pass = (row.direction.clone(), row.dtype.clone());
        if !found.contains(&pass) {
            found.push(pass);
        }
    }
    found
}

/// Two reports side by side, with geometric means.
pub fn comparison_table(a: &Report, b: &Report, comparison: &Comparison) -> String {
    let name = |report: &Report| {
        let subject = &report.subject;
        format!("{} {} ({}), wave32 {}", subject.id, subject.name, subject.driver, report.wave32)
    };
    let mut text = format!("A: {}\nB: {}\n", name(a), name(b));
    let mut table =
        Sheet::new(&["problem", "pass", "type", "A solver", "B solver", "A ms", "B ms", "A/B"], 5);
    for Pair { a, b } in &comparison.pairs {
        let ratio = Pair { a: a.clone(), b: b.clone() }.speedup();
        let words =
            [shortened(&a.label), a.direction.clone(), a.dtype.clone(), a.solver.clone(), b.solver.clone()];
        let numbers = [optional(a.median_ms()), optional(b.median_ms()), optional(ratio)];
        table.row(words.into_iter().chain(numbers));
    }
    let _ = writeln!(text, "\n{table}");
    for (direction, dtype) in passes(comparison.pairs.iter().map(|p| &p.a)) {
        let mean = optional(comparison.mean(&direction, &dtype));
        let _ = writeln!(text, "{direction} {dtype}: B is {mean} times as fast (geometric mean)");
    }
    if comparison.unmatched > 0 {
        let _ = writeln!(text, "{} rows are in one report only", comparison.unmatched);
    }
    text
}

/// A label that fits a terminal: its end says most.
pub(super) fn shortened(label: &str) -> String {
    const MAX_LABEL: usize = 48;
    let count = label.chars().count();
    if count <= MAX_LABEL {
        label.to_string()
    } else {
        format!("…{}", label.chars().skip(count - MAX_LABEL + 1).collect::<String>())
    }
}

fn list(labels: &[String]) -> String {
    const SHOWN: usize = 4;
    let more = labels.len().saturating_sub(SHOWN);
    let shown = labels.iter().take(SHOWN).map(|l| shortened(l)).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}
