//! A report in a few lines.

use crate::schema::{Class, Report, Sensors, State};
use crate::sensors::highest;
use std::fmt::Write;
use wave32_verify::sheet::{Sheet, duration};

/// Lines of failures that are shown.
const SHOWN: usize = 5;

/// The report for a terminal.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(report, &mut out);
    out
}

/// `2.4 times as fast as modelled`, `0.81 of the modelled speed`.
pub fn against_model(ratio: f64) -> String {
    if ratio >= 1.0 {
        format!("{ratio:.2} times the modelled speed")
    } else {
        format!("{ratio:.2} of the modelled speed")
    }
}

fn write(report: &Report, out: &mut String) -> std::fmt::Result {
    let (_, verdict) = report.verdict();
    writeln!(out, "{verdict}")?;
    if let Some(device) = report.main_device() {
        writeln!(out, "{} ({}), {}", device.name, device.driver, device.class.name())?;
    }
    let system = report.machine.system.as_deref().unwrap_or("unknown system");
    let kernel = report.machine.kernel.as_deref().unwrap_or("unknown");
    writeln!(out, "{system}, kernel {kernel}; wave32 {}, {}\n", report.wave32, duration(report.seconds))?;
    let mut table = Sheet::new(&["device", "right", "failed", "unsupported", "not run", "worst error"], 1);
    for check in &report.checks {
        let [passed, failed, unsupported] = check.counts();
        let worst = check.worst().map_or("-".into(), |(e, b)| format!("{e:.1e} of {b:.1e} allowed"));
        let numbers = [passed, failed, unsupported, check.not_run].map(|n| n.to_string());
        table.row([check.device.clone()].into_iter().chain(numbers).chain([worst]));
    }
    if !report.checks.is_empty() {
        writeln!(out, "{table}")?;
    }
    for failure in report.checks.iter().flat_map(|c| &c.failures).take(SHOWN) {
        writeln!(out, "  {} {}\n    {}", failure.verdict.name(), failure.line, failure.detail)?;
    }
    for bench in &report.benches {
        let timed = bench.rows.len() - bench.failures().count();
        let model = bench
            .against_model(None)
            .map_or(String::new(), |ratio| format!(", {} (geometric mean)", against_model(ratio)));
        writeln!(out, "speed on {}: {timed} of {} problems timed{model}", bench.device, bench.problems)?;
    }
    sensors(&report.sensors, out)?;
    let new = report.kernel_log.lines.iter().filter(|line| line.new).count();
    match (&report.kernel_log.source, &report.kernel_log.note) {
        (Some(source), _) => writeln!(
            out,
            "kernel log ({source}): {} lines about GPUs, {new} of them new",
            report.kernel_log.lines.len()
        )?,
        (None, note) => writeln!(out, "kernel log: {}", note.as_deref().unwrap_or("not read"))?,
    }
    for absent in &report.absent {
        writeln!(out, "no {} device: {}", absent.route, absent.why)?;
    }
    for part in report.parts.iter().filter(|part| part.state != State::Done) {
        writeln!(out, "{} {}: {}", part.name, part.state.name(), part.note.as_deref().unwrap_or("-"))?;
    }
    if report.devices.iter().any(|d| d.class == Class::VirtualCard) {
        writeln!(out, "on wave32's virtual card: right or wrong counts, times would mean nothing")?;
    }
    Ok(())
}

fn sensors(sensors: &Sensors, out: &mut String) -> std::fmt::Result {
    for card in &sensors.cards {
        let readings = &card.readings;
        let (first, last) = (readings.first().and_then(|r| r.edge_c), readings.last().and_then(|r| r.edge_c));
        if let (Some(first), Some(last), Some(most)) = (first, last, highest(readings, |r| r.edge_c)) {
            let hottest =
                highest(readings, |r| r.junction_c).map_or(String::new(), |c| format!(" (junction {c:.0})"));
            let clock = highest(readings, |r| r.shader_mhz)
                .map_or(String::new(), |mhz| format!(", clock up to {mhz:.0} MHz"));
            writeln!(
                out,
                "{}: {first:.0} degrees before, {most:.0}{hottest} at most, {last:.0} after{clock}",
                card.address
            )?;
        }
    }
    if let Some(note) = &sensors.note {
        writeln!(out, "temperatures: {note}")?;
    }
    Ok(())
}
