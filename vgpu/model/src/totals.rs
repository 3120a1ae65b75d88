//! What programs launched, kernel by kernel.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::card::ModelCard;
use crate::time::{Bracket, LaunchTime};

/// Rows of the table; JSON has all.
const ROWS: usize = 40;

/// All that a process, or several, launched on a card.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Totals {
    /// The card's name.
    pub card: String,
    /// Launches of all kernels.
    pub launches: u64,
    /// Of all launches, without what lies between them.
    pub time_ms: Bracket,
    /// Microseconds from one launch to the next that waits for it.
    pub between_us: f64,
    /// In the order in which they were first launched.
    pub kernels: Vec<KernelTotal>,
    /// Launches that could not be modelled, by reason.
    pub left_out: BTreeMap<String, u64>,
}

/// A kernel's launches of one grid.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KernelTotal {
    /// Its name.
    pub kernel: String,
    /// Workgroups in x, y, z.
    pub workgroups: [u32; 3],
    /// How many.
    pub launches: u64,
    /// Of all of them.
    pub time_ms: Bracket,
    /// The last that was modelled.
    pub last: LaunchTime,
}

impl Totals {
    /// Nothing yet, on a card.
    pub fn new(card: &ModelCard) -> Self {
        Self { card: card.name.to_owned(), between_us: card.launch * 1e6, ..Self::default() }
    }

    /// Whether nothing was launched.
    pub fn is_empty(&self) -> bool {
        self.launches == 0 && self.left_out.is_empty()
    }

    /// A kernel's launches.
    pub fn launched(&mut self, new: KernelTotal) {
        self.launches += new.launches;
        self.time_ms = self.time_ms + new.time_ms;
        let same = |old: &&mut KernelTotal| (&old.kernel, old.workgroups) == (&new.kernel, new.workgroups);
        match self.kernels.iter_mut().find(same) {
            Some(old) => {
                old.launches += new.launches;
                old.time_ms = old.time_ms + new.time_ms;
                old.last = new.last;
            }
            None => self.kernels.push(new),
        }
    }

    /// What another process launched.
    pub fn add(&mut self, other: Self) {
        other.kernels.into_iter().for_each(|row| self.launched(row));
        for (reason, count) in other.left_out {
            *self.left_out.entry(reason).or_default() += count;
        }
        (self.card, self.between_us) = (other.card, other.between_us);
    }

    /// For people, the longest first.
    pub fn table(&self) -> String {
        if self.is_empty() {
            return "modelled: nothing was launched on the card\n".to_owned();
        }
        let mut kernels: Vec<&KernelTotal> = self.kernels.iter().collect();
        kernels.sort_by(|a, b| b.time_ms.low.total_cmp(&a.time_ms.low));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "modelled on {} from the instructions that ran (boost clock to game clock; nothing was measured):\n\
             {:>21}  {:>8}  {:<10}  kernel (workgroups)",
            self.card, "ms in all", "launches", "bound by"
        );
        for row in kernels.iter().take(ROWS) {
            let ms = format!("{:.3} - {:.3}", row.time_ms.low * 1e3, row.time_ms.high * 1e3);
            let [x, y, z] = row.workgroups;
            let (launches, bound, kernel) = (row.launches, row.last.bound, &row.kernel);
            let _ = writeln!(text, "{ms:>21}  {launches:>8}  {bound:<10}  {kernel} ({x}x{y}x{z})");
        }
        if kernels.len() > ROWS {
            let _ = writeln!(text, "and {} shorter rows; --report FILE has all", kernels.len() - ROWS);
        }
        let _ = writeln!(
            text,
            "{} in all, {} launches; a launch that waits for the one before adds about {:.0} us, copies are not counted",
            self.time_ms, self.launches, self.between_us
        );
        let _ = writeln!(text, "{}", crate::STATED_ERROR);
        for (reason, count) in &self.left_out {
            let _ = writeln!(text, "left out: {count} launches: {reason}");
        }
        text
    }
}
