//! `wave32 report --compare`: a report's times beside the model's.

use crate::explain::aco;
use crate::output::show;
use crate::progress::Progress;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;
use wave32_model::{Effort, Model, ModelCard, PlanTime, STATED_ERROR};
use wave32_report::Report;
use wave32_report::compare::{Bracket, board, compare, cost_model};
use wave32_report::schema::{Bench, BenchRow, Device};
use wave32_solve::Plan;

/// Reads the report, models what it timed, and shows both.
///
/// # Errors
/// The file is no report; nothing in it can be compared.
pub fn main(path: &Path) -> Result<ExitCode> {
    let report = Report::load(path)?;
    let mut texts = Vec::new();
    for bench in &report.benches {
        let Some(device) = report.device(&bench.device).filter(|d| d.is_modelled()) else { continue };
        let (by, brackets) = brackets(bench, device);
        let comparison = compare(&report, bench, &by, |index, _, _| *brackets.get(index)?);
        texts.extend(comparison.map(|c| c.text()));
    }
    if texts.is_empty() {
        bail!(
            "{} has no times of a card: a software driver, a virtual card and a processor have no model to be compared with",
            path.display()
        );
    }
    show(&texts.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// What the model of instructions says of each timed row, and whose code it looked at.
fn brackets(bench: &Bench, device: &Device) -> (String, Vec<Option<Bracket>>) {
    let none = |why: String| (format!("No bracket: {why}"), Vec::new());
    let Some(board) = board(device) else {
        return none(format!("{} is no card that the model of instructions knows", device.name));
    };
    let Some(card) = ModelCard::of(board) else {
        return none(format!(
            "the model of instructions knows RDNA1 only, and {} is another card",
            board.name
        ));
    };
    let llvm = |why: &str| {
        let model = match Model::new(card) {
            Ok(model) => model,
            Err(error) => return none(error.to_string()),
        };
        match walk(bench, device, |_, plan| Ok(model.plan(plan, Effort::SAMPLE)?)) {
            Ok(found) => (
                format!("Bracket: modelled from the instructions of LLVM's code{why}; {STATED_ERROR}."),
                found,
            ),
            Err(error) => none(format!("{error:#}")),
        }
    };
    if !device.id.starts_with("vulkan") {
        return llvm("");
    }
    match walk(bench, device, |row, plan| aco::model(board, &card, &row.row.line, 0, plan)) {
        Ok(found) => (
            format!("Bracket: modelled from the instructions of the installed RADV's code; {STATED_ERROR}."),
            found,
        ),
        Err(error) => llvm(&format!(", as RADV's was not to be had here ({error:#})")),
    }
}

/// Models each timed row in turn.
fn walk(
    bench: &Bench,
    device: &Device,
    mut model: impl FnMut(&BenchRow, &Plan) -> Result<PlanTime>,
) -> Result<Vec<Option<Bracket>>> {
    let timed: Vec<&BenchRow> = bench.rows.iter().filter(|row| row.row.time.is_some()).collect();
    let progress = Progress::new(false, "model      {bar:30} {pos}/{len}  {eta} left  {wide_msg}");
    progress.bar.set_length(timed.len() as u64);
    let mut found = Vec::new();
    for row in timed {
        progress.bar.set_message(row.row.label.clone());
        let time = plan(row, device).map(|plan| model(row, &plan)).transpose();
        progress.bar.inc(1);
        found.push(time?.map(|t| Bracket { low_ms: t.time.low * 1e3, high_ms: t.time.high * 1e3 }));
    }
    progress.bar.finish_and_clear();
    Ok(found)
}

fn plan(row: &BenchRow, device: &Device) -> Option<Plan> {
    let problem = row.row.line.parse().ok()?;
    Some(cost_model(&problem, device.caps.as_ref()?)?.0)
}
