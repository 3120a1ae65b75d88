//! Times as bars: beside the model's where there is one.

use super::rate_text;
use crate::schema::{Bench, BenchRow, Report};
use std::fmt::{Result, Write};
use wave32_verify::html::escape;
use wave32_verify::sheet::figure;

const PASSES: [(&str, &str); 3] = [("fwd", "Forward"), ("bwd", "Backward-data"), ("wrw", "Backward-weights")];

pub(super) fn bench(report: &Report, bench: &Bench, out: &mut String) -> Result {
    let modelled = bench.against_model(None).is_some();
    let name = report.device(&bench.device).map_or("", |d| d.name.as_str());
    writeln!(
        out,
        "<h2>How fast? {} <span class=\"quiet\">{}</span></h2>",
        escape(&bench.device),
        escape(name)
    )?;
    let what = if modelled {
        "<span class=\"key\"></span> measured speed; <span class=\"key model\"></span> the model's prediction for this card \
         (the cost model that chooses plans). A bar beyond the mark is faster than predicted."
    } else {
        "<span class=\"key\"></span> measured rate, in f32. There is no model of this device to compare with."
    };
    writeln!(out, "<p class=\"quiet\">{what} Times by {}, median of warm runs.</p>", escape(&bench.clock))?;
    for (direction, title) in PASSES {
        let rows: Vec<&BenchRow> =
            bench.rows.iter().filter(|r| r.row.direction == direction && r.row.time.is_some()).collect();
        if rows.is_empty() {
            continue;
        }
        let mean = bench
            .against_model(Some(direction))
            .map_or(String::new(), |r| format!(", {r:.2} of the modelled speed (geometric mean)"));
        let open = if direction == "fwd" { " open" } else { "" };
        writeln!(
            out,
            "<details{open}><summary>{title}: {} layers{mean}</summary><div class=\"bars\">",
            rows.len()
        )?;
        let most = rows.iter().filter_map(|r| r.row.tflops()).fold(1e-12, f64::max);
        for row in rows {
            bar(row, most, out)?;
        }
        writeln!(out, "</div></details>")?;
    }
    for row in bench.failures() {
        writeln!(
            out,
            "<div class=\"failure\">{} {}: {}</div>",
            escape(&row.row.label),
            escape(&row.row.direction),
            escape(row.row.error.as_deref().unwrap_or_default())
        )?;
    }
    if bench.not_run > 0 || !bench.too_large.is_empty() {
        let large = match bench.too_large.len() {
            0 => String::new(),
            n => format!(" {n} layers are too large for this device."),
        };
        writeln!(
            out,
            "<p class=\"quiet\">{} of {} problems were not run for want of time.{large}</p>",
            bench.not_run, bench.problems
        )?;
    }
    Ok(())
}

/// Half of the track is the model's speed; without a model the whole is the highest rate.
fn bar(row: &BenchRow, most: f64, out: &mut String) -> Result {
    let (Some(ms), Some(tflops)) = (row.row.median_ms(), row.row.tflops()) else { return Ok(()) };
    let (width, mark, text) = match (row.against_model(), row.model_ms) {
        (Some(ratio), Some(model)) => {
            ((ratio * 50.0).min(100.0), "<u></u>", format!("{} ms / {}", figure(ms), figure(model)))
        }
        _ => (tflops / most * 100.0, "", format!("{} ms, {}", figure(ms), rate_text(tflops))),
    };
    writeln!(
        out,
        "<span>{}</span><span class=\"track\"><i style=\"width:{width:.1}%\"></i>{mark}</span><span class=\"n\">{text}</span>",
        escape(&row.row.label)
    )
}
