//! The tools of the conformance checks: random data, fixture plans, comparisons, buffers that are freed.

use super::{Case, FIXTURE_THREADS, Fixture, PATIENCE};
use crate::{BufferId, DeviceError, Operands, PlanDevice, Queue, Runner};
use wave32_problem::{ConvProblem, ConvSpec};
use wave32_solve::{Access, Binding, Launch, Model, Plan, Role};

/// SplitMix64 (Steele, Lea, Flood 2014): enough for test data, and the same on every platform.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    pub(super) fn words(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| self.next() as u32).collect()
    }
}

/// A check's tools: the device, and every buffer it made.
pub(super) struct Bench<'a, Q> {
    pub(super) device: &'a mut Runner<Q>,
    pub(super) fixture: &'a Fixture,
    pub(super) random: Random,
    pub(super) made: Vec<BufferId>,
}

pub(super) fn text(error: DeviceError) -> String {
    error.to_string()
}

pub(super) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Where two equally long byte strings differ first, if they do.
pub(super) fn same(found: &[u8], expected: &[u8], what: &str) -> Result<(), String> {
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    match differs {
        None => ensure(found.len() == expected.len(), || format!("{what}: lengths differ")),
        Some(at) => {
            let (found, expected) = (found[at], expected[at]);
            Err(format!("{what}: byte {at} is {found:#04x}, expected {expected:#04x}"))
        }
    }
}

pub(super) fn to_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A plan around fixture launches; its problem is a placeholder that they do not compute.
pub(super) fn fixture_plan(launches: Vec<Launch>) -> Plan {
    let problem = ConvProblem::new(ConvSpec::default()).expect("the default is a valid problem");
    Plan { problem: problem.into(), solver: "fixture", config: String::new(), tuned: false, workspace_bytes: 0, launches }
}

pub(super) fn spin(fixture: &Fixture, rounds: u32) -> Launch {
    let count = FIXTURE_THREADS;
    Launch {
        kernel: fixture.spin.into(),
        grid: [1, 1, 1],
        params: vec![0, count, rounds],
        bindings: vec![Binding {
            role: Role::Y,
            offset: 0,
            size: 4 * u64::from(count),
            access: Access::Write,
        }],
        flops: 6 * u64::from(rounds) * u64::from(count),
        bytes: 4 * u64::from(count),
        model: Model::Stream { bytes: 0 },
    }
}

impl<Q: Queue> Bench<'_, Q> {
    /// `dst = src * mul + add` on the first `count` words.
    pub(super) fn step(&self, (src, dst): (Role, Role), count: u32, mul: u32, add: u32) -> Launch {
        let range = |role, access| Binding { role, offset: 0, size: 4 * u64::from(count), access };
        Launch {
            kernel: self.fixture.step.into(),
            grid: [count.div_ceil(FIXTURE_THREADS), 1, 1],
            params: vec![0, count, mul, add],
            bindings: vec![range(src, Access::Read), range(dst, Access::Write)],
            flops: 2 * u64::from(count),
            bytes: 8 * u64::from(count),
            model: Model::Stream { bytes: 0 },
        }
    }

    pub(super) fn alloc(&mut self, bytes: usize) -> Result<BufferId, String> {
        let id = self.device.alloc(bytes as u64).map_err(text)?;
        self.made.push(id);
        Ok(id)
    }

    pub(super) fn with(&mut self, content: &[u8]) -> Result<BufferId, String> {
        let id = self.alloc(content.len())?;
        self.device.write(id, 0, content).map_err(text)?;
        Ok(id)
    }

    pub(super) fn read(&mut self, id: BufferId, bytes: usize) -> Result<Vec<u8>, String> {
        // Poisoned, so that a read that does nothing is seen.
        let mut data = vec![0xdb; bytes];
        self.device.read(id, 0, &mut data).map_err(text)?;
        Ok(data)
    }

    pub(super) fn free_all(&mut self) {
        self.made.drain(..).for_each(|id| self.device.free(id));
    }

    /// The launches with each one cut at random columns.
    pub(super) fn cut(&mut self, launches: &[Launch]) -> Vec<Launch> {
        let mut parts = Vec::new();
        for launch in launches {
            let mut x = 0;
            while x < launch.grid[0] {
                let count = 1 + self.random.below(u64::from(launch.grid[0] - x)) as u32;
                parts.push(launch.cut(x, count));
                x += count;
            }
        }
        parts
    }

    /// The plan makes the expected bytes: twice, whatever is in the workspace, and when cut.
    pub(super) fn case(&mut self, case: &Case) -> Result<(), String> {
        let mut operands = Operands::new();
        for (role, content) in &case.inputs {
            operands = operands.with(*role, self.with(content)?, 0);
        }
        let guard = 256;
        let output = self.alloc(case.expected.len() + guard)?;
        operands = operands.with(case.output, output, 0);
        let workspace = case.plan.workspace_bytes as usize;
        let scratch = if workspace > 0 { Some(self.alloc(workspace)?) } else { None };
        if let Some(scratch) = scratch {
            operands = operands.with(Role::Workspace, scratch, 0);
        }
        let cut = Plan { launches: self.cut(&case.plan.launches), ..case.plan.clone() };
        for (plan, poison, what) in
            [(&case.plan, 0xa5, "first run"), (&case.plan, 0xff, "second run"), (&cut, 0x7f, "cut run")]
        {
            if let Some(scratch) = scratch {
                self.device.write(scratch, 0, &vec![poison; workspace]).map_err(text)?;
            }
            self.device.write(output, 0, &vec![poison; case.expected.len() + guard]).map_err(text)?;
            self.device.run(plan, &operands, PATIENCE).map_err(text)?;
            let found = self.read(output, case.expected.len() + guard)?;
            let (inside, outside) = found.split_at(case.expected.len());
            same(inside, &case.expected, what)?;
            same(outside, &vec![poison; guard], &format!("{what}, past the end"))?;
        }
        for (role, content) in &case.inputs {
            let (id, _) = operands.get(*role).ok_or("an input went missing")?;
            same(&self.read(id, content.len())?, content, &format!("{role:?}, an input, was changed"))?;
        }
        Ok(())
    }
}

pub(super) fn expect_misuse<T: std::fmt::Debug>(
    result: Result<T, DeviceError>,
    what: &str,
) -> Result<(), String> {
    ensure(matches!(result, Err(DeviceError::Misuse(_))), || {
        format!("{what}: expected misuse, got {result:?}")
    })
}
