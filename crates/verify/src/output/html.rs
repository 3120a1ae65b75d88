//! The report as one page that needs nothing else: style, chart and script are inside.

use crate::output::report::{Report, Row};
use crate::output::sheet::duration;
use crate::output::table::verdict;
use crate::process::protocol::Verdict;
use std::fmt::Write;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");

/// Text that is safe between tags and inside quotes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The page.
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(report, &mut out);
    out
}

fn write(report: &Report, out: &mut String) -> std::fmt::Result {
    let state = if report.is_clean() { "good" } else { "bad" };
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>wave32 verify</title><style>{STYLE}</style></head><body><main>"
    )?;
    writeln!(out, "<h1>wave32 verify</h1><p class=\"verdict {state}\">{}</p>", escape(&verdict(report)))?;
    let what = escape(&report.selection.join(" "));
    let time = duration(report.elapsed_s);
    writeln!(
        out,
        "<p class=\"quiet\">wave32 {} &middot; <time data-unix=\"{}\"></time> &middot; {time} &middot; {what}</p>",
        escape(&report.version),
        report.started
    )?;
    devices(report, out)?;
    groups(report, out)?;
    writeln!(out, "<h2>Errors against their bounds</h2>{}", histogram(report))?;
    failures(report, out)?;
    problems(report, out)?;
    writeln!(out, "</main><script>{SCRIPT}</script></body></html>")
}

fn devices(report: &Report, out: &mut String) -> std::fmt::Result {
    writeln!(out, "<div class=\"cards\">")?;
    for d in &report.devices {
        let memory = d.device.memory_bytes as f64 / f64::from(1 << 30);
        let scaled = match d.max_gflop {
            Some(max) => {
                format!("suites scaled down to {max} GFLOP: {} problems became {}", d.named, d.distinct)
            }
            None => format!("{} problems at full size", d.distinct),
        };
        writeln!(
            out,
            "<div class=\"card\"><b>{}</b><span>{}</span><span class=\"quiet\">{} &middot; {} &middot; {memory:.1} GiB</span>\
             <span class=\"quiet\">{}</span></div>",
            escape(&d.device.id),
            escape(&d.device.name),
            d.device.kind,
            escape(&d.device.driver),
            escape(&scaled)
        )?;
    }
    writeln!(out, "</div>")
}

fn groups(report: &Report, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "<h2>Summary</h2><div class=\"scroll\"><table><thead><tr><th>Device<th>Type<th>Pass<th class=n>Passed"
    )?;
    let shown = [
        Verdict::Wrong,
        Verdict::Crash,
        Verdict::Hang,
        Verdict::OutOfMemory,
        Verdict::DeviceLost,
        Verdict::Error,
        Verdict::Unsupported,
    ];
    for v in shown {
        write!(out, "<th class=n>{}", v.name())?;
    }
    writeln!(out, "<th class=n>Worst error<th class=n>Allowed</tr></thead><tbody>")?;
    for ([device, dtype, direction], tally) in report.groups() {
        let passed = tally.of(Verdict::Pass);
        write!(out, "<tr><td>{}<td>{dtype}<td>{direction}<td class=n>{passed}", escape(&device))?;
        for v in shown {
            let count = tally.of(v);
            let class = if count > 0 && v.is_failure() { "n bad" } else { "n" };
            write!(out, "<td class=\"{class}\">{count}")?;
        }
        let (error, bound) =
            tally.worst.map_or(("-".into(), "-".into()), |(e, b)| (format!("{e:.1e}"), format!("{b:.1e}")));
        writeln!(out, "<td class=n>{error}<td class=n>{bound}</tr>")?;
    }
    writeln!(out, "</tbody></table></div>")
}

/// Bars: how many problems reached which share of their bound, on a logarithmic scale.
fn histogram(report: &Report) -> String {
    const BINS: usize = 24; // four a decade, from a millionth of the bound to the bound itself and beyond
    let mut counts = [0usize; BINS + 1];
    let mut exact = 0usize;
    for solver in report.rows.iter().flat_map(|r| &r.outcome.solvers) {
        match solver.error {
            Some(0.0) => exact += 1,
            Some(error) => {
                let place = ((error / solver.bound).log10() + 6.0) * 4.0;
                counts[(place.max(0.0) as usize).min(BINS)] += 1;
            }
            None => {}
        }
    }
    let highest = counts.iter().copied().max().unwrap_or(0).max(1);
    let (width, height, bar) = (900.0, 180.0, 900.0 / (BINS + 1) as f64);
    let mut svg = format!(
        // Half a label of room on either side.
        "<svg viewBox=\"-20 0 {} {}\" role=\"img\" aria-label=\"error histogram\">",
        width + 40.0,
        height + 40.0
    );
    for (i, &count) in counts.iter().enumerate() {
        let tall = height * 0.9 * count as f64 / highest as f64;
        let (x, y) = (i as f64 * bar, height - tall);
        let class = if i == BINS { "over" } else { "bar" };
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{tall:.1}\"><title>{count} results</title></rect>",
            x + 1.0,
            bar - 2.0
        );
        if count > 0 {
            let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{count}</text>", x + bar / 2.0, y - 4.0);
        }
    }
    for decade in 0..=6 {
        let x = f64::from(decade) * 4.0 * bar;
        let label = if decade == 6 { "bound".to_string() } else { format!("1e{}", decade - 6) };
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{:.1}\"/><text class=\"axis\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>",
            height + 8.0,
            height + 24.0
        );
    }
    let _ = write!(
        svg,
        "</svg><p class=\"quiet\">Normwise error of each solver's result on random inputs, as a share of what is allowed; {exact} had no error at all.</p>"
    );
    svg
}

fn command(text: &str) -> String {
    let text = escape(text);
    format!("<div class=\"command\"><code>{text}</code><button data-copy=\"{text}\">copy</button></div>")
}

fn failures(report: &Report, out: &mut String) -> std::fmt::Result {
    let failed: Vec<&Row> = report.rows.iter().filter(|r| r.outcome.verdict.is_failure()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>Failures ({})</h2>", failed.len())?;
    for row in failed {
        writeln!(
            out,
            "<div class=\"failure\"><b class=\"bad\">{}</b> {} &middot; {} &middot; {} {}<p>{}</p>",
            row.outcome.verdict.name(),
            escape(&row.device),
            escape(&row.label),
            row.dtype,
            row.direction,
            escape(&row.outcome.detail)
        )?;
        if let Some(repro) = &row.repro {
            writeln!(out, "{}", command(repro))?;
        }
        if let Some(shrunk) = &row.shrunk {
            writeln!(
                out,
                "<span class=\"quiet\">smallest found that fails the same way</span>{}",
                command(shrunk)
            )?;
        }
        writeln!(out, "</div>")?;
    }
    Ok(())
}

fn problems(report: &Report, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "<h2>Problems ({})</h2><input id=\"filter\" type=\"search\" placeholder=\"filter: any words, e.g. vulkan f16 wrw resnet\" \
         aria-label=\"filter\"> <span id=\"count\" class=\"quiet\"></span>\
         <div class=\"scroll\"><table id=\"problems\"><thead><tr><th>Verdict<th>Device<th>Problem<th>Type<th>Pass<th class=n>GFLOP\
         <th>Solver<th class=n>Error<th>Compared with<th class=n>Seconds</tr></thead><tbody>",
        report.rows.len()
    )?;
    for row in &report.rows {
        let v = row.outcome.verdict;
        let class = if v.is_failure() {
            "bad"
        } else if v == Verdict::Pass {
            "good"
        } else {
            "quiet"
        };
        let tuned = |is_tuned: bool| if is_tuned { " (tuned)" } else { "" };
        let solvers: Vec<String> = (row.outcome.solvers.iter())
            .map(|s| format!("{} {}{}", s.solver, s.config, tuned(s.tuned)))
            .collect();
        let error = row.worst_error().map_or("-".into(), |e| format!("{e:.1e}"));
        let scaled = match &row.scaled_from {
            Some(full) => format!("<br><span class=\"quiet\">scaled down from {}</span>", escape(full)),
            None => String::new(),
        };
        let against = format!("{}; {}", row.outcome.exact_against, row.outcome.close_against);
        writeln!(
            out,
            "<tr><td class=\"{class}\">{}<td>{}<td>{}<br><code>{}</code>{scaled}<td>{}<td>{}<td class=n>{:.4}<td>{}<td class=n>{error}\
             <td class=\"quiet\">{}<td class=n>{:.2}</tr>",
            v.name(),
            escape(&row.device),
            escape(&row.label),
            escape(&row.line),
            row.dtype,
            row.direction,
            row.flops as f64 / 1e9,
            escape(&solvers.join(", ")),
            escape(&against),
            row.seconds
        )?;
    }
    writeln!(out, "</tbody></table></div>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::protocol::Outcome;

    fn report() -> Report {
        Report {
            version: "0".into(),
            started: 0,
            elapsed_s: 1.0,
            seed: 5,
            interrupted: false,
            not_run: 0,
            selection: vec!["<script>alert(1)</script>".into()],
            devices: Vec::new(),
            rows: vec![Row {
                device: "cpu".into(),
                suite: "line".into(),
                label: "a & b".into(),
                line: "MIOpenDriver conv".into(),
                scaled_from: None,
                stands_for: 1,
                direction: "fwd".into(),
                dtype: "f32".into(),
                flops: 1,
                outcome: Outcome::early(Verdict::Hang, "no \"answer\""),
                seconds: 1.0,
                repro: Some("wave32 verify 'x'".into()),
                shrunk: None,
            }],
        }
    }

    #[test]
    fn the_page_is_self_contained_and_escaped() {
        let page = page(&report());
        assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert"));
        assert!(page.contains("a &amp; b") && page.contains("no &quot;answer&quot;"));
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "the page refers to the outside: {outside}");
        }
        assert!(page.contains("FAILED") && page.contains("HANG") && page.contains("</html>"));
    }

    /// On a telephone a wide table scrolls in its own box, not the page.
    #[test]
    fn every_table_is_in_a_box_that_scrolls() {
        let page = page(&report());
        assert_eq!(page.matches("<table").count(), 2);
        assert_eq!(page.matches("<div class=\"scroll\"><table").count(), 2);
        assert_eq!(page.matches("</table></div>").count(), 2);
        assert!(STYLE.contains(".scroll { overflow: auto;"));
    }
}
