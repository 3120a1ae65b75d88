//! Bars of milliseconds on a logarithmic axis, one group a problem, one colour a solver.

use super::table::shortened;
use super::{Report, Row};
use crate::output::sheet::figure;
use std::fmt::Write as _;

const COLORS: [&str; 8] =
    ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999933", "#777777"];
const LABELS: f64 = 330.0;
const PLOT: f64 = 620.0;
const FIGURES: f64 = 190.0;
const BAR: f64 = 14.0;
const GAP: f64 = 6.0;

/// The powers of ten that hold every value.
struct Axis {
    low: i32,
    high: i32,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|v| *v > 0.0 && v.is_finite())
            .fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            return Self { low: -1, high: 0 };
        }
        let low = low.log10().floor() as i32;
        Self { low, high: (high.log10().ceil() as i32).max(low + 1) }
    }

    fn x(&self, value: f64) -> f64 {
        let share = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        LABELS + PLOT * share.clamp(0.0, 1.0)
    }
}

/// The report's timed rows as a picture that needs nothing else.
pub fn svg(report: &Report) -> String {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.time.is_some()).collect();
    let mut solvers: Vec<&str> = Vec::new();
    for row in &rows {
        if !solvers.contains(&row.solver.as_str()) {
            solvers.push(&row.solver);
        }
    }
    let axis = Axis::of(rows.iter().flat_map(|r| r.median_ms().into_iter().chain(r.floor_ms)));
    let groups = rows.chunk_by(|a, b| (&a.line, &a.label) == (&b.line, &b.label)).count();
    let legend_rows = solvers.len().div_ceil(4).max(1) as f64;
    let top = 66.0 + 20.0 * legend_rows;
    let height = top + rows.len() as f64 * BAR + groups as f64 * GAP + 34.0;
    let width = LABELS + PLOT + FIGURES;
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    title(&mut out, report);
    legend(&mut out, &solvers, report.subject.rates.is_some());
    gridlines(&mut out, &axis, top, height - 28.0);
    let mut y = top + GAP;
    for group in rows.chunk_by(|a, b| (&a.line, &a.label) == (&b.line, &b.label)) {
        let middle = y + group.len() as f64 * BAR / 2.0 + 4.0;
        let name = format!("{} {} {}", shortened(&group[0].label), group[0].direction, group[0].dtype);
        text(&mut out, LABELS - 8.0, middle, "end", "#222222", &name);
        for row in group {
            bar(&mut out, row, &axis, y, solvers.iter().position(|s| *s == row.solver).unwrap_or(0));
            y += BAR;
        }
        y += GAP;
    }
    out.push_str("</svg>\n");
    out
}

fn title(out: &mut String, report: &Report) {
    let subject = &report.subject;
    let _ = writeln!(
        out,
        "<text x=\"16\" y=\"24\" font-size=\"16\" font-weight=\"600\">{}</text>",
        escaped(&format!("wave32 bench: {} {}", subject.id, subject.name))
    );
    let mut line = format!("median milliseconds by {}, shorter is faster; logarithmic axis", subject.clock);
    if let Some(rates) = &subject.rates {
        let (peak, bandwidth) = (figure(rates.peak_tflops), figure(rates.bandwidth_gbs));
        let _ = write!(line, "; floor from {peak} TFLOPS and {bandwidth} GB/s ({})", rates.source);
    }
    text(out, 16.0, 44.0, "start", "#555555", &line);
}

fn legend(out: &mut String, solvers: &[&str], floor: bool) {
    for (index, solver) in solvers.iter().enumerate() {
        let (x, y) = (16.0 + 240.0 * (index % 4) as f64, 58.0 + 20.0 * (index / 4) as f64);
        let color = COLORS[index % COLORS.len()];
        let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"10\" fill=\"{color}\"/>");
        text(out, x + 18.0, y + 9.0, "start", "#222222", solver);
    }
    if floor {
        let x = LABELS + PLOT;
        let _ = writeln!(out, "<rect x=\"{x}\" y=\"57\" width=\"2\" height=\"12\" fill=\"#000000\"/>");
        text(out, x + 18.0, 67.0, "start", "#222222", "floor");
    }
}

fn gridlines(out: &mut String, axis: &Axis, top: f64, bottom: f64) {
    for power in axis.low..=axis.high {
        let x = axis.x(10f64.powi(power));
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"#dddddd\"/>"
        );
        let value = 10f64.powi(power);
        let label = if power < 0 {
            format!("{value:.*} ms", power.unsigned_abs() as usize)
        } else {
            format!("{value} ms")
        };
        text(out, x, bottom + 16.0, "middle", "#555555", &label);
    }
}

fn bar(out: &mut String, row: &Row, axis: &Axis, y: f64, color: usize) {
    let Some(ms) = row.median_ms() else { return };
    let end = axis.x(ms);
    let (width, thickness, color) = ((end - LABELS).max(1.0), BAR - 2.0, COLORS[color % COLORS.len()]);
    let hint = escaped(&format!("{}\n{} {}", row.line, row.solver, row.config));
    let _ = writeln!(
        out,
        "<rect x=\"{LABELS}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{thickness}\" fill=\"{color}\"><title>{hint}</title></rect>"
    );
    let mut past = end.max(LABELS);
    if let Some(floor) = row.floor_ms {
        let x = axis.x(floor) - 1.0;
        past = past.max(x + 2.0);
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"2\" height=\"{thickness}\" fill=\"#000000\"/>"
        );
    }
    let figures = format!("{} ms, {} TFLOPS", figure(ms), row.tflops().map_or(String::new(), figure));
    text(out, past + 6.0, y + BAR - 4.0, "start", "#222222", &figures);
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, color: &str, content: &str) {
    let content = escaped(content);
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\">{content}</text>"
    );
}

/// XML's special characters named, and those it forbids replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() && c != '\n' => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}
