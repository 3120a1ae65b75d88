//! The report for people.

use super::rocm::Source;
use super::{Report, Row};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use wave32_check::notes::NoteVerdict;
use wave32_host::text::{one_line, quoted};
use wave32_probe::protocol::SolverVerdict as Probed;
use wave32_probe::standing::Safe;
use wave32_verify::sheet::{Sheet, figure};

/// The table, what is to be said of single layers, and the sums.
pub fn text(report: &Report) -> String {
    let mut out = format!("{} on {}\n\n", quoted(&report.model), one_line(&report.on));
    let known: Vec<&Row> = report.rows.iter().filter(|r| r.line.is_some()).collect();
    // Writing to a String cannot fail.
    let _ = match &report.rocm {
        Some(source) => rocm(report, &known, source, &mut out),
        None => vulkan(report, &known, &mut out),
    };
    out
}

fn first(row: &Row) -> String {
    row.names.first().cloned().unwrap_or_default()
}

fn layers(rows: &[&Row], wanted: impl Fn(&Row) -> bool) -> u32 {
    rows.iter().filter(|r| wanted(r)).map(|r| r.layers).sum()
}

/// How many convolutions there are, and how much work.
fn sums(report: &Report, known: &[&Row]) -> String {
    let total: u32 = report.rows.iter().map(|r| r.layers).sum();
    let gflop: f64 = known.iter().map(|r| r.gflop * f64::from(r.layers)).sum();
    format!("{total} convolutions, {} different, {gflop:.2} GFLOP", known.len())
}

fn remarks(report: &Report, out: &mut String) -> std::fmt::Result {
    report.rows.iter().filter(|r| !r.remark.is_empty()).try_for_each(|row| {
        let state = if row.line.is_none() { "not known: " } else { "" };
        writeln!(out, "\n{}: {state}{}", one_line(&first(row)), one_line(&row.remark))
    })
}

fn vulkan(report: &Report, known: &[&Row], out: &mut String) -> std::fmt::Result {
    let mut sheet = Sheet::of_words(&[
        "layers",
        "shape",
        "pass",
        "GFLOP",
        "route",
        "solver",
        "modelled ms",
        "plain MIOpen",
        "first",
    ]);
    for row in known {
        sheet.row([
            row.layers.to_string(),
            row.shape.clone(),
            row.pass.to_string(),
            format!("{:.3}", row.gflop),
            row.route.unwrap_or("none").to_string(),
            row.solver.clone().unwrap_or_default(),
            row.modelled_s.map_or("-".into(), |s| figure(s * f64::from(row.layers) * 1e3)),
            row.notes.name().to_string(),
            first(row),
        ]);
    }
    write!(out, "{sheet}")?;
    remarks(report, out)?;
    let ms: f64 = known.iter().filter_map(|r| Some(r.modelled_s? * f64::from(r.layers) * 1e3)).sum();
    let total: u32 = report.rows.iter().map(|r| r.layers).sum();
    let [vulkan, cpu] = ["vulkan", "cpu"].map(|route| layers(known, |r| r.route == Some(route)));
    writeln!(
        out,
        "\n{}: {vulkan} on vulkan (modelled {} ms), {cpu} on the CPU, {} not known",
        sums(report, known),
        figure(ms),
        total - vulkan - cpu
    )?;
    let [hang, ok] =
        [NoteVerdict::Hang, NoteVerdict::Ok].map(|verdict| layers(known, |r| r.notes == verdict));
    writeln!(
        out,
        "under plain MIOpen, as an RX 5600 XT's owner noted ({}): {hang} hang, {ok} ok, {} not noted",
        report.notes,
        total - hang - ok
    )
}

/// The solver, and what is to be done to the problem first.
fn way(safe: &Safe) -> String {
    let rewrites: Vec<String> = safe.rewrite.iter().map(ToString::to_string).collect();
    if rewrites.is_empty() {
        safe.solver.clone()
    } else {
        format!("{}: {}", safe.solver, rewrites.join(", "))
    }
}

fn rocm(report: &Report, known: &[&Row], source: &Source, out: &mut String) -> std::fmt::Result {
    let mut sheet = Sheet::of_words(&[
        "",
        "layers",
        "shape",
        "pass",
        "safe way through MIOpen",
        "ms",
        "MIOpen's choice",
        "first",
    ]);
    // What each solver does, what works first, then the worst; with the lines of the table that it holds for.
    let mut solvers: BTreeMap<(Option<Reverse<Probed>>, String), Vec<String>> = BTreeMap::new();
    for (index, row) in known.iter().enumerate() {
        let number = format!("[{}]", index + 1);
        let best = row.rocm.as_ref().and_then(|standing| standing.safe.first());
        let choice = row.rocm.as_ref().and_then(|standing| standing.choice);
        let mut add = |verdict, solver| solvers.entry((verdict, solver)).or_default().push(number.clone());
        if let Some(standing) = &row.rocm {
            standing.safe.iter().for_each(|safe| add(None, way(safe)));
            standing.dangers.iter().for_each(|bad| add(Some(Reverse(bad.verdict)), bad.solver.clone()));
        }
        sheet.row([
            number,
            row.layers.to_string(),
            row.shape.clone(),
            row.pass.to_string(),
            match (&row.rocm, best) {
                (None, _) => "not probed".into(),
                (Some(_), None) => "NONE".into(),
                (Some(_), Some(safe)) => way(safe),
            },
            best.and_then(|safe| safe.ms).map_or("-".into(), |ms| figure(ms * f64::from(row.layers))),
            choice.map_or("-", Probed::name).to_string(),
            first(row),
        ]);
    }
    write!(out, "{sheet}")?;
    if !solvers.is_empty() {
        let mut sheet = Sheet::of_words(&["", "solver", "on"]);
        for ((verdict, solver), numbers) in &solvers {
            let verdict = verdict.map_or(Probed::Works, |Reverse(verdict)| verdict);
            sheet.row([verdict.name().to_string(), solver.clone(), numbers.join(" ")]);
        }
        write!(out, "\n{sheet}")?;
    }
    remarks(report, out)?;
    let of = |wanted: &dyn Fn(&[Safe]) -> bool| {
        layers(known, |r| r.rocm.as_ref().is_some_and(|standing| wanted(&standing.safe)))
    };
    let plain = |safe: &[Safe]| safe.iter().any(|way| way.rewrite.is_empty());
    let unprobed = layers(known, |r| r.rocm.is_none());
    writeln!(
        out,
        "\n{}: {} have a safe way through MIOpen here, {} only a rewritten one, {} none, {unprobed} were never probed, {} not known",
        sums(report, known),
        of(&plain),
        of(&|safe| !safe.is_empty() && !plain(safe)),
        of(&<[Safe]>::is_empty),
        report.rows.iter().filter(|r| r.line.is_none()).map(|r| r.layers).sum::<u32>()
    )?;
    writeln!(out, "{} ({})", source.identity.library, source.why)?;
    match source.probed {
        true => writeln!(out, "as {} has it", source.table.display())?,
        false => writeln!(out, "NO TABLE of what works here yet: there would be {}", source.table.display())?,
    }
    match &source.probe {
        Some(command) => writeln!(out, "to probe what was not probed to its end:\n  {command}"),
        None => Ok(()),
    }
}
