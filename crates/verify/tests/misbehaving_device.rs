//! Devices that misbehave by a single element: the checks must find each of them, and only them.

use std::collections::HashMap;
use std::time::Duration;
use wave32_cpu::Options;
use wave32_device::{BufferId, DeviceError, DeviceInfo, DeviceKind, Operands, PlanDevice, Times, Timing};
use wave32_problem::{ConvProblem, ConvSpec, DType, Direction, Epilogue, ProblemSpec};
use wave32_solve::{DeviceCaps, Plan, Policy, Role, usual_boards};
use wave32_verify::backend::Backend;
use wave32_verify::check::check;
use wave32_verify::data::Data;
use wave32_verify::inject::Faults;
use wave32_verify::protocol::{Job, Outcome, Verdict};

/// What the device does beside computing the right result.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// Nothing.
    None,
    /// Changes the element in front of this buffer.
    Before(Role),
    /// Changes the element behind this buffer.
    After(Role),
    /// Changes the last element of this buffer, an operand.
    Touch(Role),
    /// Leaves the element at this share of the result as it was.
    Skip(f64),
    /// Changes one bit of one result in every run but the first `.0`.
    Drift(u32),
}

/// A GPU whose kernels are the CPU backend.
struct Fake {
    info: DeviceInfo,
    caps: DeviceCaps,
    buffers: HashMap<u64, Vec<u8>>,
    next: u64,
    runs: u32,
    fault: Fault,
}

impl Fake {
    fn new(fault: Fault) -> Self {
        let info = DeviceInfo {
            id: "fake:0".into(),
            name: "fake".into(),
            driver: "none".into(),
            kind: DeviceKind::Virtual,
            memory_bytes: 1 << 30,
        };
        Self {
            info,
            caps: DeviceCaps::of(usual_boards()[0]),
            buffers: HashMap::new(),
            next: 1,
            runs: 0,
            fault,
        }
    }

    /// The buffer bound to `role` and the range of its operand.
    fn place(&self, plan: &Plan, operands: &Operands, role: Role) -> (u64, std::ops::Range<usize>) {
        let (buffer, offset) = operands.get(role).unwrap_or_else(|| panic!("{role:?} is not bound"));
        let start = offset as usize;
        (buffer.0, start..start + plan.role_bytes(role) as usize)
    }

    fn load(&self, plan: &Plan, operands: &Operands, role: Role) -> Data {
        let (buffer, range) = self.place(plan, operands, role);
        let dtype = plan.problem.dtype();
        let mut data = Data::filled(dtype, range.len() as u64 / dtype.size(), 0).unwrap();
        data.bytes_mut().copy_from_slice(&self.buffers[&buffer][range]);
        data
    }

    fn flip(&mut self, buffer: u64, byte: usize) {
        self.buffers.get_mut(&buffer).unwrap()[byte] ^= 1;
    }
}

fn roles(direction: Direction) -> [Role; 3] {
    match direction {
        Direction::Forward => [Role::X, Role::W, Role::Y],
        Direction::BackwardData => [Role::Y, Role::W, Role::X],
        Direction::BackwardWeights => [Role::X, Role::Y, Role::W],
    }
}

impl PlanDevice for Fake {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn alloc(&mut self, bytes: u64) -> Result<BufferId, DeviceError> {
        let id = self.next;
        self.next += 1;
        self.buffers.insert(id, vec![0; bytes as usize]);
        Ok(BufferId(id))
    }

    fn free(&mut self, buffer: BufferId) {
        self.buffers.remove(&buffer.0);
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let start = offset as usize;
        self.buffers.get_mut(&buffer.0).unwrap()[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn read(&mut self, buffer: BufferId, offset: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        let start = offset as usize;
        data.copy_from_slice(&self.buffers[&buffer.0][start..start + data.len()]);
        Ok(())
    }

    fn run(&mut self, plan: &Plan, operands: &Operands, _: Duration) -> Result<Timing, DeviceError> {
        let p = plan.problem.conv().unwrap();
        let size = p.spec().dtype.size() as usize;
        let [a, b, out] = roles(p.spec().direction);
        let (a, b) = (self.load(plan, operands, a), self.load(plan, operands, b));
        let bias = p.spec().epilogue.bias.then(|| self.load(plan, operands, Role::Bias));
        let before = self.load(plan, operands, out);
        let mut result = before.clone();
        let len = result.len();
        let bias = bias.as_ref().map(Data::view);
        wave32_cpu::run(p, a.view(), b.view(), bias, result.view_mut(0..len), &Options::default()).unwrap();
        if let Fault::Skip(share) = self.fault {
            let at = ((len - 1) as f64 * share) as usize * size;
            result.bytes_mut()[at..at + size].copy_from_slice(&before.bytes()[at..at + size]);
        }
        let (buffer, range) = self.place(plan, operands, out);
        self.buffers.get_mut(&buffer).unwrap()[range.clone()].copy_from_slice(result.bytes());
        match self.fault {
            Fault::Before(role) => {
                let (buffer, range) = self.place(plan, operands, role);
                self.flip(buffer, range.start - size);
            }
            Fault::After(role) => {
                let (buffer, range) = self.place(plan, operands, role);
                self.flip(buffer, range.end + size - 1);
            }
            Fault::Touch(role) => {
                let (buffer, range) = self.place(plan, operands, role);
                self.flip(buffer, range.end - size);
            }
            Fault::Drift(first) if self.runs >= first => self.flip(buffer, range.start),
            Fault::None | Fault::Skip(_) | Fault::Drift(_) => {}
        }
        self.runs += 1;
        Ok(Timing::default())
    }

    fn time(&mut self, _: &Plan, _: &[Operands], _: u32, _: Duration) -> Result<Times, DeviceError> {
        Err(DeviceError::Unsupported("nothing is timed here".into()))
    }
}

/// What the checks say of the problem on a device with this fault.
fn outcome(spec: ConvSpec, fault: Fault, only: Option<&str>) -> Outcome {
    checked(spec, fault, only, false)
}

/// As [`outcome`], with integers checked by exact sums as for large problems.
fn folded(spec: ConvSpec, fault: Fault) -> Outcome {
    checked(spec, fault, None, true)
}

fn checked(spec: ConvSpec, fault: Fault, only: Option<&str>, fold: bool) -> Outcome {
    let line = ConvProblem::new(spec.clone()).unwrap().to_string();
    let job = Job {
        spec: ProblemSpec::Conv(spec),
        line,
        seed: 7,
        repeat: 2,
        all_solvers: false,
        policy: Policy { only: only.map(String::from), ..Policy::default() },
        run_deadline_s: 10.0,
        memory_cap: 1 << 30,
        fold,
    };
    check(&mut Backend::Gpu(Box::new(Fake::new(fault))), &job, &Faults::default(), &mut |_| ())
}

/// One problem of each direction and type; forward has a bias.
fn specs() -> impl Iterator<Item = ConvSpec> {
    let types = DType::ALL.into_iter();
    types.flat_map(|dtype| Direction::ALL.into_iter().map(move |direction| (dtype, direction))).map(
        |(dtype, direction)| {
            let epilogue = Epilogue { bias: direction == Direction::Forward, ..ConvSpec::default().epilogue };
            let sizes = ConvSpec { n: 2, c: 8, h: 9, w: 7, k: 16, r: 3, s: 3, ..ConvSpec::default() };
            ConvSpec { direction, dtype, pad: [1, 1], epilogue, ..sizes }
        },
    )
}

#[track_caller]
fn found(outcome: &Outcome, fault: Fault, words: &str) {
    assert_eq!(outcome.verdict, Verdict::Wrong, "{fault:?}: {outcome:?}");
    assert!(outcome.detail.contains(words), "{fault:?}: `{}` lacks `{words}`", outcome.detail);
}

#[test]
fn a_device_that_behaves_passes() {
    for spec in specs() {
        let outcome = outcome(spec, Fault::None, None);
        assert_eq!(outcome.verdict, Verdict::Pass, "{outcome:?}");
        assert_eq!(outcome.solvers[0].runs, 4);
    }
}

#[test]
fn one_element_beside_any_buffer_is_found() {
    for spec in specs() {
        for role in [Role::X, Role::W, Role::Y] {
            let fault = Fault::Before(role);
            let words = format!("guard band before {role:?} was written: 1 bytes");
            found(&outcome(spec.clone(), fault, None), fault, &words);
            let fault = Fault::After(role);
            let words = format!("guard band after {role:?} was written: 1 bytes");
            found(&outcome(spec.clone(), fault, None), fault, &words);
        }
    }
    let forward = specs().next().unwrap();
    for (fault, side) in [(Fault::Before(Role::Bias), "before"), (Fault::After(Role::Bias), "after")] {
        found(&outcome(forward.clone(), fault, None), fault, &format!("guard band {side} Bias"));
    }
}

#[test]
fn one_element_beside_the_workspace_is_found() {
    for (fault, side) in
        [(Fault::Before(Role::Workspace), "before"), (Fault::After(Role::Workspace), "after")]
    {
        let outcome = outcome(specs().next().unwrap(), fault, Some("im2col_gemm"));
        found(&outcome, fault, &format!("guard band {side} Workspace"));
        assert!(outcome.solvers[0].workspace_bytes > 0);
    }
}

#[test]
fn a_touched_operand_is_found() {
    for spec in specs() {
        let [a, b, _] = roles(spec.direction);
        let bias = spec.epilogue.bias.then_some(Role::Bias);
        for role in [a, b].into_iter().chain(bias) {
            let fault = Fault::Touch(role);
            found(&outcome(spec.clone(), fault, None), fault, &format!("operand {role:?} was written"));
        }
    }
}

#[test]
fn one_element_left_unwritten_is_found() {
    for spec in specs() {
        for share in [0.0, 0.37, 1.0] {
            let fault = Fault::Skip(share);
            found(&outcome(spec.clone(), fault, None), fault, "1 of ");
            found(&outcome(spec.clone(), fault, None), fault, "(1 were never written)");
        }
    }
}

#[test]
fn exact_sums_find_one_element_of_a_device() {
    for spec in specs() {
        assert_eq!(folded(spec.clone(), Fault::None).verdict, Verdict::Pass);
        for share in [0.0, 0.37, 1.0] {
            let fault = Fault::Skip(share);
            found(&folded(spec.clone(), fault), fault, "(1 were never written)");
        }
        found(&folded(spec, Fault::Drift(0)), Fault::Drift(0), "integer check: 1 of ");
    }
}

#[test]
fn one_bit_that_changes_between_runs_is_found() {
    for spec in specs() {
        // Of one solver, the third and the fourth run are repeats on random operands: the last bit of a result is within
        // every tolerance.
        for first in [2, 3] {
            let fault = Fault::Drift(first);
            found(
                &outcome(spec.clone(), fault, Some("direct")),
                fault,
                "two runs differ in 1 outputs, first at [",
            );
        }
        // From the first run on, the integers are not exact any more.
        found(&outcome(spec, Fault::Drift(0), Some("direct")), Fault::Drift(0), "integer check: 1 of ");
    }
}
