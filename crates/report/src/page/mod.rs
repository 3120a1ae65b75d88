//! The report as one page that needs nothing else: no script, nothing from outside.

mod speed;

use crate::schema::{CardReadings, Class, Device, Reading, Report, State};
use crate::sensors::highest;
use crate::verdict::Overall;
use std::fmt::{Result, Write};
use wave32_verify::html::escape;
use wave32_verify::sheet::duration;

const STYLE: &str = include_str!("style.css");

/// The page.
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(report, &mut out);
    out
}

fn write(report: &Report, out: &mut String) -> Result {
    let main = report.main_device();
    let title = main.map_or("no device", |d| d.name.as_str());
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>wave32 report: {}</title><style>{STYLE}</style></head><body><main>",
        escape(title)
    )?;
    head(report, main, out)?;
    checks(report, out)?;
    for bench in &report.benches {
        speed::bench(report, bench, out)?;
    }
    sensors(report, out)?;
    devices(report, out)?;
    parts(report, out)?;
    kernel_log(report, out)?;
    doctor(report, out)?;
    writeln!(
        out,
        "<footer class=\"quiet\">Made by <code>wave32 report</code> {}, schema {}. Names, home folders, serial numbers, ids \
         and addresses were taken out. Modelled times are computed, not measured.</footer></main></body></html>",
        escape(&report.wave32),
        report.schema
    )
}

fn head(report: &Report, main: Option<&Device>, out: &mut String) -> Result {
    writeln!(out, "<p class=\"over\">wave32 report &middot; {}</p>", date(report.unix_time))?;
    if let Some(device) = main {
        writeln!(
            out,
            "<h1>{}</h1><p><span class=\"badge\">{}</span> {}</p>",
            escape(&device.name),
            device.class.name(),
            escape(&device.driver)
        )?;
    } else {
        writeln!(out, "<h1>No device</h1>")?;
    }
    let machine = &report.machine;
    let mut words = vec![machine.system.clone().unwrap_or_else(|| "unknown system".into())];
    words.extend(machine.kernel.iter().map(|kernel| format!("kernel {kernel}")));
    words.extend(machine.wsl.then(|| "WSL".into()));
    words.extend(machine.container.then(|| "container".into()));
    words.push(machine.processor.clone());
    words.push(format!("{:.0} GiB", machine.memory_bytes as f64 / f64::from(1 << 30)));
    writeln!(out, "<p class=\"quiet\">{}</p>", escape(&words.join(" \u{b7} ")))?;
    let (overall, text) = report.verdict();
    let class = match overall {
        Overall::Right => "right",
        Overall::Wrong => "wrong",
        Overall::Partial => "partial",
    };
    let (word, rest) = text.split_once(": ").unwrap_or((&text, ""));
    writeln!(out, "<div class=\"verdict {class}\"><b>{}</b>{}</div>", escape(word), escape(rest))?;
    facts(report, main, out)
}

/// The figures that people look for first.
fn facts(report: &Report, main: Option<&Device>, out: &mut String) -> Result {
    let mut facts: Vec<(String, String)> = Vec::new();
    let mine = |id: &str| main.is_some_and(|d| d.id == id);
    if let Some(check) = report.checks.iter().find(|c| mine(&c.device)) {
        let [passed, failed, _] = check.counts();
        facts.push((
            format!("{passed} of {}", passed + failed),
            format!("problems right on {}", check.device),
        ));
    }
    if let Some(bench) = report.benches.iter().find(|b| mine(&b.device)) {
        let rate = bench.rows.iter().filter_map(|r| r.row.tflops()).max_by(f64::total_cmp);
        facts.extend(rate.map(|t| (rate_text(t), "in the fastest layer".into())));
        facts.extend(
            bench
                .against_model(None)
                .map(|r| (format!("{r:.2}"), "of the modelled speed (geometric mean)".into())),
        );
    }
    for card in &report.sensors.cards {
        let hottest = highest(&card.readings, |r| r.junction_c).or(highest(&card.readings, |r| r.edge_c));
        facts.extend(hottest.map(|c| (format!("{c:.0} \u{b0}C"), "hottest reading".into())));
        facts.extend(
            highest(&card.readings, |r| r.shader_mhz)
                .map(|mhz| (format!("{mhz:.0} MHz"), "highest clock".into())),
        );
    }
    facts.push((duration(report.seconds), "for all of it".into()));
    writeln!(out, "<div class=\"facts\">")?;
    for (figure, what) in facts {
        writeln!(out, "<div class=\"fact\"><b>{}</b><span>{}</span></div>", escape(&figure), escape(&what))?;
    }
    writeln!(out, "</div>")
}

fn rate_text(tflops: f64) -> String {
    if tflops >= 1.0 { format!("{tflops:.1} TFLOPS") } else { format!("{:.1} GFLOPS", tflops * 1e3) }
}

fn checks(report: &Report, out: &mut String) -> Result {
    if report.checks.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "<h2>Does it compute right?</h2><table><thead><tr><th>Device<th class=n>Right<th class=n>Failed\
         <th class=\"n wide\">Unsupported<th class=n>Not run<th class=\"n wide\">Worst error / allowed</tr></thead><tbody>"
    )?;
    for check in &report.checks {
        let [passed, failed, unsupported] = check.counts();
        let worst = check.worst().map_or("-".into(), |(e, b)| format!("{e:.1e} / {b:.1e}"));
        let bad = if failed > 0 { " bad" } else { "" };
        let good = if failed == 0 && passed > 0 { " good" } else { "" };
        let name = report
            .device(&check.device)
            .map_or(String::new(), |d| format!("<br><span class=\"quiet\">{}</span>", escape(&d.name)));
        writeln!(
            out,
            "<tr><td><b>{}</b>{name}<td class=\"n{good}\">{passed}<td class=\"n{bad}\">{failed}<td class=\"n wide\">{unsupported}\
             <td class=n>{}<td class=\"n wide\">{worst}</tr>",
            escape(&check.device),
            check.not_run
        )?;
    }
    writeln!(out, "</tbody></table>")?;
    for check in &report.checks {
        let scaled = check
            .scaled_to_gflop
            .map_or(String::new(), |g| format!("; larger ones scaled down to {g} GFLOP"));
        writeln!(
            out,
            "<p class=\"quiet\">{}: {}{scaled}.</p>",
            escape(&check.device),
            escape(&check.selection)
        )?;
    }
    for (device, failure) in report.checks.iter().flat_map(|c| c.failures.iter().map(|f| (&c.device, f))) {
        writeln!(
            out,
            "<div class=\"failure\"><b class=bad>{}</b> on {}: {}<p>{}</p><code>{}</code></div>",
            failure.verdict.name(),
            escape(device),
            escape(&failure.label),
            escape(&failure.detail),
            escape(failure.repro.as_deref().unwrap_or(&failure.line))
        )?;
    }
    Ok(())
}

fn sensors(report: &Report, out: &mut String) -> Result {
    writeln!(out, "<h2>Temperature and clock</h2>")?;
    if let Some(note) = &report.sensors.note {
        writeln!(out, "<p class=\"quiet\">{}.</p>", escape(note))?;
    }
    for card in &report.sensors.cards {
        self::card(card, out)?;
    }
    Ok(())
}

fn card(card: &CardReadings, out: &mut String) -> Result {
    type Quantity = (&'static str, &'static str, fn(&Reading) -> Option<f64>);
    let quantities: [Quantity; 7] = [
        ("edge", "\u{b0}C", |r| r.edge_c),
        ("junction", "\u{b0}C", |r| r.junction_c),
        ("memory", "\u{b0}C", |r| r.memory_c),
        ("shader clock", "MHz", |r| r.shader_mhz),
        ("memory clock", "MHz", |r| r.memory_mhz),
        ("power", "W", |r| r.power_w),
        ("fan", "rpm", |r| r.fan_rpm),
    ];
    writeln!(out, "<h3>{} ({})</h3>", escape(&card.address), escape(&card.driver))?;
    let end = card.readings.last().map_or(1.0, |r| r.at_s).max(1.0);
    let line = |class: &str, of: &dyn Fn(&Reading) -> Option<f64>, most: f64, out: &mut String| {
        let point =
            |r: &Reading| Some(format!("{:.1},{:.1}", r.at_s / end * 600.0, 120.0 - of(r)? / most * 116.0));
        let points: Vec<String> = card.readings.iter().filter_map(point).collect();
        write!(out, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "))
    };
    let clock = highest(&card.readings, |r| r.shader_mhz).unwrap_or(1.0).max(1.0);
    write!(
        out,
        "<svg viewBox=\"0 0 600 120\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"readings over time\">"
    )?;
    line("edge", &|r| r.edge_c, 120.0, out)?;
    line("junction", &|r| r.junction_c, 120.0, out)?;
    line("shader", &|r| r.shader_mhz, clock, out)?;
    writeln!(
        out,
        "</svg><p class=\"quiet\">Solid: temperatures, 0 to 120 \u{b0}C. Dashed: shader clock, 0 to {clock:.0} MHz. {}.</p>\
         <table><thead><tr><th><th class=n>Before<th class=n>Highest<th class=n>After</tr></thead><tbody>",
        duration(end)
    )?;
    for (name, unit, of) in quantities {
        let Some(most) = highest(&card.readings, of) else { continue };
        let at = |reading: Option<&Reading>| reading.and_then(of).map_or("-".into(), |v| format!("{v:.0}"));
        let (first, last) = (at(card.readings.first()), at(card.readings.last()));
        writeln!(
            out,
            "<tr><td>{name}, {unit}<td class=n>{first}<td class=n>{most:.0}<td class=n>{last}</tr>"
        )?;
    }
    writeln!(out, "</tbody></table>")
}

fn devices(report: &Report, out: &mut String) -> Result {
    writeln!(out, "<h2>Devices and routes</h2><table><tbody>")?;
    for device in &report.devices {
        let memory = device.memory_bytes as f64 / f64::from(1 << 30);
        let unusable = device.unusable.as_ref().map_or(String::new(), |why| {
            format!("<br><span class=bad>cannot be used: {}</span>", escape(why))
        });
        let memory =
            if device.class == Class::Processor { String::new() } else { format!(", {memory:.1} GiB") };
        writeln!(
            out,
            "<tr><td><b>{}</b><td>{}<br><span class=\"quiet\">{}{memory} &middot; {}</span>{unusable}</tr>",
            escape(&device.id),
            escape(&device.name),
            escape(&device.driver),
            device.class.name()
        )?;
    }
    for absent in &report.absent {
        writeln!(
            out,
            "<tr><td><b>{}</b><td class=\"quiet\">none: {}</tr>",
            escape(&absent.route),
            escape(&absent.why)
        )?;
    }
    writeln!(out, "</tbody></table>")
}

fn parts(report: &Report, out: &mut String) -> Result {
    writeln!(out, "<h2>What was done</h2><table><tbody>")?;
    for part in &report.parts {
        let class = match part.state {
            State::Hung | State::Failed => " class=bad",
            State::Done => " class=good",
            _ => "",
        };
        let note = part
            .note
            .as_ref()
            .map_or(String::new(), |note| format!("<br><span class=\"quiet\">{}</span>", escape(note)));
        writeln!(
            out,
            "<tr><td>{}{note}<td{class}>{}<td class=n>{}</tr>",
            escape(&part.name),
            part.state.name(),
            duration(part.seconds)
        )?;
    }
    writeln!(out, "</tbody></table>")
}

fn kernel_log(report: &Report, out: &mut String) -> Result {
    let log = &report.kernel_log;
    writeln!(out, "<h2>What the kernel said of GPUs</h2>")?;
    let Some(source) = &log.source else {
        return writeln!(
            out,
            "<p class=\"quiet\">{}.</p>",
            escape(log.note.as_deref().unwrap_or("not read"))
        );
    };
    let new = log.lines.iter().filter(|line| line.new).count();
    writeln!(
        out,
        "<p class=\"quiet\">{}: the last {} lines, {new} of them written while this report was made (coloured).</p>",
        escape(source),
        log.lines.len()
    )?;
    if log.lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "<details{}><summary>Show the lines</summary><pre>", if new > 0 { " open" } else { "" })?;
    for line in &log.lines {
        let text = escape(&line.text);
        if line.new { writeln!(out, "<b>{text}</b>")? } else { writeln!(out, "{text}")? }
    }
    writeln!(out, "</pre></details>")
}

/// Verdicts and findings; the rest of what the doctor says is in the JSON file.
fn doctor(report: &Report, out: &mut String) -> Result {
    let text = |value: &serde_json::Value| escape(value.as_str().unwrap_or_default());
    let list = |name: &str| report.doctor[name].as_array().cloned().unwrap_or_default();
    if report.doctor.is_null() {
        return Ok(());
    }
    writeln!(out, "<h2>What the doctor says</h2><table><tbody>")?;
    for verdict in list("verdicts") {
        writeln!(
            out,
            "<tr><td><b>{}</b><td>{}<td>{}</tr>",
            text(&verdict["route"]),
            text(&verdict["state"]),
            text(&verdict["because"])
        )?;
    }
    writeln!(out, "</tbody></table>")?;
    let findings = list("findings");
    if !findings.is_empty() {
        writeln!(out, "<details><summary>Findings: {}</summary><table><tbody>", findings.len())?;
        for finding in findings {
            writeln!(out, "<tr><td>{}<td>{}</tr>", text(&finding["severity"]), text(&finding["what"]))?;
        }
        writeln!(out, "</tbody></table></details>")?;
    }
    Ok(())
}

/// `2026-11-24`; nobody's clock is told to the minute.
fn date(unix_time: u64) -> String {
    let stamp = i64::try_from(unix_time).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    stamp.map_or("unknown day".into(), |stamp| stamp.strftime("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests;
