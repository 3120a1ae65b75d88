//! Faults injected for our own tests: `WAVE32_INJECT=hang:SUBSTR,crash:SUBSTR,...`.
//!
//! Only the child reads the variable. Only problems whose line contains SUBSTR are affected. Each fault
//! really happens (to the process, to the bytes of the result), so the tests exercise the real detection.

use crate::proof::compare::OutputShape;
use crate::proof::data::Data;
use std::time::Duration;
use wave32_problem::Problem;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Never comes back.
    Hang,
    /// Dies.
    Crash,
    /// Takes memory without end.
    OutOfMemory,
    /// The last element of every result is changed.
    Wrong,
    /// A tile of 8 x 8 in the middle of every result is that of its neighbour.
    Tile,
    /// The last channel of every result is left out.
    Channel,
    /// The last element of the second run's result alone is changed.
    Flaky,
    /// The device says that it is lost.
    Lost,
}

const NAMES: [(&str, Fault); 8] = [
    ("hang", Fault::Hang),
    ("crash", Fault::Crash),
    ("oom", Fault::OutOfMemory),
    ("wrong", Fault::Wrong),
    ("tile", Fault::Tile),
    ("channel", Fault::Channel),
    ("flaky", Fault::Flaky),
    ("lost", Fault::Lost),
];

/// The faults to inject in this process.
#[derive(Debug, Clone, Default)]
pub struct Faults(Vec<(Fault, String)>);

impl Faults {
    /// From `WAVE32_INJECT`. Words that name no fault are ignored.
    pub fn from_env() -> Self {
        Self::parse(&std::env::var("WAVE32_INJECT").unwrap_or_default())
    }

    /// From the variable's text.
    pub fn parse(text: &str) -> Self {
        let one = |word: &str| {
            let (name, needle) = word.split_once(':')?;
            let (_, fault) = NAMES.iter().find(|(n, _)| *n == name.trim())?;
            (!needle.is_empty()).then(|| (*fault, needle.to_string()))
        };
        Self(text.split(',').filter_map(one).collect())
    }

    /// Whether `fault` is to be injected for the problem of this line.
    pub fn has(&self, fault: Fault, line: &str) -> bool {
        self.0.iter().any(|(f, needle)| *f == fault && line.contains(needle.as_str()))
    }

    /// Hangs, aborts or fills memory, if this line has such a fault.
    pub fn inject(&self, line: &str) {
        if self.has(Fault::Crash, line) {
            std::process::abort();
        }
        while self.has(Fault::Hang, line) {
            std::thread::sleep(Duration::from_secs(1));
        }
        let mut hoard: Vec<Vec<u8>> = Vec::new();
        while self.has(Fault::OutOfMemory, line) {
            // Slow enough that the parent's watch sees it long before the machine suffers.
            hoard.push(vec![1; 8 << 20]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Changes a result, if this line has such a fault. `run` counts the runs from 0.
    pub fn spoil(&self, line: &str, run: u32, p: &Problem, out: &mut Data) {
        if self.has(Fault::Tile, line) {
            spoil_tile(p, out);
        }
        if self.has(Fault::Channel, line) {
            spoil_channel(p, out);
        }
        let is_hit = self.has(Fault::Wrong, line) || (run == 2 && self.has(Fault::Flaky, line));
        if let Some(byte) = out.bytes_mut().last_mut().filter(|_| is_hit) {
            *byte ^= 1;
        }
    }
}

fn put(out: &mut Data, index: u64, value: f64) {
    let index = index as usize;
    match out {
        Data::F32(v) => v[index] = value as f32,
        Data::F16(v) => v[index] = half::f16::from_f64(value),
        Data::BF16(v) => v[index] = half::bf16::from_f64(value),
    }
}

/// The elements of a tile become those of the tile to its right, or one more where there is none: as if a workgroup had
/// the wrong index.
pub fn spoil_tile(p: &Problem, out: &mut Data) {
    let shape = OutputShape::of_output(p);
    let [images, channels, height, width] = shape.dims();
    let at = |h, w| shape.index([images / 2, channels / 2, h, w]);
    for h in 0..height.min(8) {
        for w in 0..width.min(8) {
            let beside = (w + 8 < width).then(|| out.get(at(h, w + 8) as usize));
            let value = beside.unwrap_or(out.get(at(h, w) as usize) + 1.0);
            put(out, at(h, w), value);
        }
    }
}

/// The last channel becomes 0.
pub fn spoil_channel(p: &Problem, out: &mut Data) {
    let shape = OutputShape::of_output(p);
    let [images, channels, height, width] = shape.dims();
    for image in 0..images {
        for h in 0..height {
            (0..width).for_each(|w| put(out, shape.index([image, channels - 1, h, w]), 0.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_matching_lines_are_hit() {
        let faults = Faults::parse("hang:-H 42,wrong:-H 43,nonsense:x,crash:");
        assert!(faults.has(Fault::Hang, "conv -n 1 -H 42 -W 42"));
        assert!(!faults.has(Fault::Hang, "conv -n 1 -H 43"));
        assert!(faults.has(Fault::Wrong, "conv -n 1 -H 43"));
        assert!(!faults.has(Fault::Crash, "anything"));
        faults.inject("conv -n 1 -H 43"); // returns: neither hang nor crash is planted here
    }
}
