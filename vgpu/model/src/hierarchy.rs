//! A WGP's way to memory: two L0s, its share of L1, of L2's and of DRAM's bandwidth.

use crate::cache::Cache;
use crate::constants as c;
use crate::stream::FIRST;

/// What this WGP gets of what all WGPs share, in bytes a clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    pub(crate) l2: f64,
    pub(crate) dram: f64,
    /// Clocks of a load that goes to DRAM.
    pub(crate) dram_latency: f64,
    /// Lines of the shader array's L1 for each WGP that shares it.
    pub(crate) l1_lines: u64,
}

/// A tensor as the whole launch uses it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tensor {
    /// Its lines: `first..end`.
    pub(crate) first: u32,
    pub(crate) end: u32,
    /// Of the lines that workgroups touch, each counted once a workgroup: the share that comes from, or goes to, DRAM.
    pub(crate) from_dram: f64,
    /// Neighbouring workgroups touch the same lines.
    pub(crate) shared: bool,
}

/// Clocks that each part was busy.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    /// The busier CU's L0.
    pub(crate) l0: f64,
    /// The busier CU's way to L1.
    pub(crate) fill: f64,
    pub(crate) l2: f64,
    pub(crate) dram: f64,
}

/// See the module.
pub(crate) struct Hierarchy<'a> {
    rates: Rates,
    tensors: &'a [Tensor],
    /// Shares of lines that went to DRAM, added up for each tensor: a whole one is a line.
    credit: Vec<f64>,
    l0: [Cache; 2],
    l1: Cache,
    scalar: Cache,
    l0_free: [f64; 2],
    fill_free: [f64; 2],
    l2_free: f64,
    dram_free: f64,
    l0_busy: [f64; 2],
    fill_busy: [f64; 2],
    l2_busy: f64,
    dram_busy: f64,
    /// When the last store arrives.
    pub(crate) stored: f64,
}

impl<'a> Hierarchy<'a> {
    pub(crate) fn new(rates: Rates, tensors: &'a [Tensor]) -> Self {
        Self {
            rates,
            tensors,
            credit: vec![0.0; tensors.len()],
            l0: [0, 1].map(|_| Cache::new(c::L0_BYTES / c::LINE)),
            l1: Cache::new(rates.l1_lines),
            scalar: Cache::new(c::SCALAR_BYTES / c::LINE),
            l0_free: [0.0; 2],
            fill_free: [0.0; 2],
            l2_free: 0.0,
            dram_free: 0.0,
            l0_busy: [0.0; 2],
            fill_busy: [0.0; 2],
            l2_busy: 0.0,
            dram_busy: 0.0,
            stored: 0.0,
        }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            l0: self.l0_busy[0].max(self.l0_busy[1]),
            fill: self.fill_busy[0].max(self.fill_busy[1]),
            l2: self.l2_busy,
            dram: self.dram_busy,
        }
    }

    /// A vector memory instruction of CU `cu` at `now`, of the WGP's `copy`-th workgroup; when it is done.
    pub(crate) fn vector(
        &mut self,
        cu: usize,
        now: f64,
        lines: &[u32],
        bytes: u32,
        store: bool,
        copy: u64,
    ) -> f64 {
        let clocks = u64::from(bytes).div_ceil(c::L0_CLOCK_BYTES).max(lines.len() as u64).max(1) as f64;
        let start = now.max(self.l0_free[cu]);
        self.l0_free[cu] = start + clocks;
        self.l0_busy[cu] += clocks;
        let mut done = start + clocks - 1.0 + c::L0_LATENCY as f64;
        for (i, &line) in lines.iter().enumerate() {
            let (tag, dram) = self.place(line, copy);
            let at = start + i as f64;
            let arrives = if store {
                let part = f64::from(bytes) / lines.len() as f64;
                let sent = self.fill(cu, at, part);
                self.beyond(sent, part, dram)
            } else {
                self.load(cu, at, tag, dram)
            };
            done = done.max(arrives);
        }
        if store {
            self.stored = self.stored.max(done);
        }
        done.ceil()
    }

    /// A scalar load; when it is done.
    pub(crate) fn scalar(&mut self, now: f64, lines: &[u32], copy: u64) -> f64 {
        let mut done = now + c::SMEM_LATENCY as f64;
        for &line in lines {
            let (tag, dram) = self.place(line, copy);
            let arrives = match self.scalar.find(tag) {
                Some(arrives) => arrives,
                None => {
                    let arrives = self.beyond(now, c::LINE as f64, dram);
                    self.scalar.keep(tag, arrives);
                    arrives
                }
            };
            done = done.max(arrives);
        }
        done.ceil()
    }

    fn load(&mut self, cu: usize, at: f64, tag: u64, dram: bool) -> f64 {
        if let Some(arrives) = self.l0[cu].find(tag) {
            return arrives.max(at + c::L0_LATENCY as f64);
        }
        let sent = self.fill(cu, at, c::LINE as f64);
        let arrives = match self.l1.find(tag) {
            Some(arrives) => arrives.max(sent + c::L1_LATENCY as f64),
            None => {
                let arrives = self.beyond(sent, c::LINE as f64, dram);
                self.l1.keep(tag, arrives);
                arrives
            }
        };
        self.l0[cu].keep(tag, arrives);
        arrives
    }

    /// Bytes between a CU and L1; when their turn begins.
    fn fill(&mut self, cu: usize, at: f64, bytes: f64) -> f64 {
        let clocks = bytes / c::FILL_CLOCK_BYTES as f64;
        let start = at.max(self.fill_free[cu]);
        self.fill_free[cu] = start + clocks;
        self.fill_busy[cu] += clocks;
        start
    }

    /// Bytes from or to L2, and DRAM behind it; when they are there.
    fn beyond(&mut self, at: f64, bytes: f64, dram: bool) -> f64 {
        let clocks = bytes / self.rates.l2;
        let start = at.max(self.l2_free);
        self.l2_free = start + clocks;
        self.l2_busy += clocks;
        if !dram {
            return start + c::L2_LATENCY as f64;
        }
        let clocks = bytes / self.rates.dram;
        let start = start.max(self.dram_free);
        self.dram_free = start + clocks;
        self.dram_busy += clocks;
        start + clocks + self.rates.dram_latency
    }

    /// The line as caches know it, and whether L2 has to go to DRAM for it. Workgroups of which only a few were recorded
    /// stand for others at other addresses, save where neighbours share lines.
    fn place(&mut self, line: u32, copy: u64) -> (u64, bool) {
        let number = line & !FIRST;
        let Some(i) = self.tensors.iter().position(|t| (t.first..t.end).contains(&number)) else {
            return (u64::from(number), false); // arguments
        };
        let tensor = self.tensors[i];
        let tag = if tensor.shared { u64::from(number) } else { u64::from(number) | copy << 32 };
        if line & FIRST == 0 {
            return (tag, false);
        }
        self.credit[i] += tensor.from_dram;
        let dram = self.credit[i] >= 1.0 - 1e-9;
        self.credit[i] -= f64::from(u8::from(dram));
        (tag, dram)
    }
}
