//! Tables of text and figures in them, the same in every report.

use comfy_table::{Cell, CellAlignment, Table, presets};
use std::fmt;
use wave32_host::text::one_line;

/// A table: a header, and lines of cells in columns.
#[derive(Debug)]
pub struct Sheet(Table);

impl Sheet {
    /// A table of these columns; those from `numbers_from` on are aligned to the right.
    pub fn new<S: AsRef<str>>(header: &[S], numbers_from: usize) -> Self {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(header.iter().map(AsRef::as_ref));
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if index >= numbers_from {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self(table)
    }

    /// A table of words.
    pub fn of_words<S: AsRef<str>>(header: &[S]) -> Self {
        Self::new(header, usize::MAX)
    }

    /// Adds a line. Names come from files and drivers: each cell stays one line and shows what it holds.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.add_row(cells.into_iter().map(|cell| Cell::new(one_line(&cell))));
    }
}

impl fmt::Display for Sheet {
    /// Without the blanks that fill the last column.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lines().try_for_each(|line| writeln!(f, "{}", line.trim_end()))
    }
}

/// Three significant digits, so that microseconds and seconds read alike.
pub fn figure(value: f64) -> String {
    let digits = if value <= 0.0 { 0 } else { (2 - value.log10().floor() as i64).clamp(0, 6) as usize };
    format!("{value:.digits$}")
}

/// `42 s`, `3 min 7 s`.
pub fn duration(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    if whole < 60 { format!("{whole} s") } else { format!("{} min {} s", whole / 60, whole % 60) }
}
