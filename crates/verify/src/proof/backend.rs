//! Where a problem runs: the CPU backend, or a GPU that runs plans. Each run has guarded,
//! poisoned buffers of its own.

use crate::process::protocol::{Device as DeviceReport, Failure, Ready, Verdict};
use crate::proof::bands::{GUARD, fill_guard, guard_damage};
use crate::proof::data::Data;
use crate::proof::inputs::{Inputs, roles};
use std::time::Duration;
use wave32_device::{BufferId, DeviceError, DeviceKind, Operands, PlanDevice, Runner};
use wave32_host::system;
use wave32_problem::Problem;
use wave32_solve::{Plan, Policy, Role};

/// Bytes of an operand that are read back at a time.
const PIECE: usize = 32 << 20;

/// A device to verify.
pub enum Backend {
    /// im2col and GEMM of the CPU crate.
    Cpu,
    /// Anything that runs plans.
    Gpu(Box<dyn PlanDevice>),
}

/// Opens devices that this crate does not know; `None` for a name that is not its own.
pub type Opener = fn(&str) -> Option<Result<Box<dyn PlanDevice>, DeviceError>>;

/// One way to compute a problem on a backend.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its solver.
    pub solver: String,
    /// The solver's configuration.
    pub config: String,
    /// Scratch bytes it needs, or may use on the CPU.
    pub workspace_bytes: u64,
    /// Chosen since `wave32 tune` measured it to be the best.
    pub tuned: bool,
    how: How,
}

#[derive(Debug, Clone)]
enum How {
    Cpu { cap: u64 },
    Gpu(Box<Plan>),
}

/// What a run left behind.
#[derive(Debug)]
pub struct Run {
    /// The result.
    pub out: Data,
    /// What was written although it must not be: a guard band or an operand.
    pub damage: Option<String>,
}

impl Backend {
    /// Opens the device of that name: `cpu`, `vulkan` or `hip` (the best one), `vulkan:N` or `hip:N`.
    ///
    /// # Errors
    /// `NotFound` for any other name; what [`wave32_vulkan::open`] and [`wave32_hip::open`] answer.
    pub fn open(id: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::NotFound(id.to_string());
        let (driver, index) = match id.split_once(':') {
            Some((driver, index)) => (driver, Some(index.parse().map_err(|_| unknown())?)),
            None => (id, None),
        };
        match (driver, index) {
            ("cpu", None) => Ok(Self::Cpu),
            ("vulkan", index) => {
                let queue = wave32_vulkan::open(index, wave32_vulkan::Options::default())?;
                Ok(Self::Gpu(Box::new(Runner::new(queue))))
            }
            ("hip", index) => {
                let options = wave32_hip::Options { separate_blocks: true, ..wave32_hip::Options::default() };
                Ok(Self::Gpu(Box::new(Runner::new(wave32_hip::open(index, options)?))))
            }
            _ => Err(unknown()),
        }
    }

    /// Identity and capabilities.
    pub fn ready(&self) -> Ready {
        match self {
            Self::Cpu => Ready { device: cpu_device(), caps: None },
            Self::Gpu(gpu) => Ready { device: gpu.info().into(), caps: Some(gpu.caps().clone()) },
        }
    }

    /// The ways to compute the problem within the policy, best first: the chosen one alone unless `all`.
    ///
    /// # Errors
    /// `Unsupported` where no solver takes the problem; it has every solver's reason.
    pub fn candidates(&self, p: &Problem, policy: &Policy, all: bool) -> Result<Vec<Candidate>, Failure> {
        let Self::Gpu(gpu) = self else {
            let cap = policy.workspace_cap.unwrap_or(wave32_cpu::Options::default().workspace_cap);
            return Ok(vec![Candidate {
                solver: "cpu".into(),
                config: format!("cap{cap}"),
                workspace_bytes: cap,
                tuned: false,
                how: How::Cpu { cap },
            }]);
        };
        // `plan` first: its error carries every refusal.
        let chosen = wave32_solve::plan(p, gpu.caps(), policy)
            .map_err(|error| Failure::new(Verdict::Unsupported, error.to_string()))?;
        let plans = if all { wave32_solve::plans(p, gpu.caps(), policy) } else { vec![chosen] };
        Ok(plans
            .into_iter()
            .map(|plan| Candidate {
                solver: plan.solver.to_string(),
                config: plan.config.clone(),
                workspace_bytes: plan.workspace_bytes,
                tuned: plan.tuned,
                how: How::Gpu(Box::new(plan)),
            })
            .collect())
    }

    /// Runs a candidate once: result and workspace filled with `poison` bytes, guard bands around every
    /// buffer.
    ///
    /// # Errors
    /// The device's error as a [`Failure`].
    pub fn run(
        &mut self,
        p: &Problem,
        candidate: &Candidate,
        inputs: &Inputs,
        poison: u8,
        deadline: Duration,
    ) -> Result<Run, Failure> {
        match (self, &candidate.how) {
            (Self::Gpu(gpu), How::Gpu(plan)) => {
                let mut buffers = Buffers { device: gpu.as_mut(), held: Vec::new() };
                buffers.run(p, plan, inputs, poison, deadline)
            }
            (_, How::Cpu { cap }) => run_cpu(p, *cap, inputs, poison),
            (Self::Cpu, How::Gpu(_)) => Err(Failure::new(Verdict::Error, "a GPU plan cannot run on the CPU")),
        }
    }
}

/// The CPU as a device.
pub fn cpu_device() -> DeviceReport {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    DeviceReport {
        id: "cpu".into(),
        name: system::processor().unwrap_or_else(|| std::env::consts::ARCH.to_string()),
        driver: format!("wave32-cpu {}, {threads} threads", env!("CARGO_PKG_VERSION")),
        kind: DeviceKind::Cpu,
        memory_bytes: system::memory_bytes().unwrap_or(0),
        unusable: None,
    }
}

fn run_cpu(p: &Problem, cap: u64, inputs: &Inputs, poison: u8) -> Result<Run, Failure> {
    let dtype = p.dtype();
    let (size, len) = (dtype.size(), p.output_elements());
    let guard = GUARD / size;
    let mut guarded = Data::filled(dtype, len + 2 * guard, poison)?;
    let (before, after) = (GUARD as usize, ((guard + len) * size) as usize);
    fill_guard(&mut guarded.bytes_mut()[..before]);
    fill_guard(&mut guarded.bytes_mut()[after..]);
    let range = guard as usize..(guard + len) as usize;
    let options = wave32_cpu::Options { workspace_cap: cap, ..wave32_cpu::Options::default() };
    let bias = inputs.bias.as_ref().map(Data::view);
    wave32_cpu::run_problem(
        p,
        inputs.a.view(),
        inputs.b.view(),
        bias,
        guarded.view_mut(range.clone()),
        &options,
    )
    .map_err(|error| Failure::new(Verdict::Error, error.to_string()))?;
    let damage = guard_damage(&guarded.bytes()[..before], "the result", "before")
        .or_else(|| guard_damage(&guarded.bytes()[after..], "the result", "after"));
    // The operands are borrowed immutably: that they stay as they are is the compiler's promise.
    Ok(Run { out: guarded.slice(range), damage })
}

/// The buffers of one run; all are freed when it is over, however it ends.
struct Buffers<'a> {
    device: &'a mut dyn PlanDevice,
    held: Vec<BufferId>,
}

impl Drop for Buffers<'_> {
    fn drop(&mut self) {
        self.held.drain(..).for_each(|buffer| self.device.free(buffer));
    }
}

impl Buffers<'_> {
    /// Bytes in front of the data: the guard band, as long as the device's alignment wants it.
    fn lead(&self) -> u64 {
        GUARD.next_multiple_of(self.device.caps().offset_alignment.max(1))
    }

    /// A buffer with guard bands around `data`.
    fn guarded(&mut self, data: &[u8]) -> Result<BufferId, Failure> {
        let (lead, bytes) = (self.lead(), data.len() as u64);
        let buffer = self.device.alloc(lead + bytes + GUARD)?;
        self.held.push(buffer);
        let mut band = vec![0; lead as usize];
        fill_guard(&mut band);
        self.device.write(buffer, 0, &band)?;
        self.device.write(buffer, lead, data)?;
        let mut band = [0; GUARD as usize];
        fill_guard(&mut band);
        self.device.write(buffer, lead + bytes, &band)?;
        Ok(buffer)
    }

    fn damage(&mut self, buffer: BufferId, bytes: u64, what: &str) -> Result<Option<String>, Failure> {
        let lead = self.lead();
        for (side, offset, len) in [("before", 0, lead), ("after", lead + bytes, GUARD)] {
            let mut band = vec![0; len as usize];
            self.device.read(buffer, offset, &mut band)?;
            if let Some(text) = guard_damage(&band, what, side) {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    fn run(
        &mut self,
        p: &Problem,
        plan: &Plan,
        inputs: &Inputs,
        poison: u8,
        deadline: Duration,
    ) -> Result<Run, Failure> {
        let ([role_a, role_b], role_out) = roles(p);
        let lead = self.lead();
        let mut operands = Operands::new();
        let mut given: Vec<(Role, &Data)> = vec![(role_a, &inputs.a), (role_b, &inputs.b)];
        given.extend(inputs.bias.as_ref().map(|bias| (Role::Bias, bias)));
        let mut placed = Vec::new();
        for &(role, data) in &given {
            let buffer = self.guarded(data.bytes())?;
            operands = operands.with(role, buffer, lead);
            placed.push((role, buffer, data.bytes().len() as u64));
        }
        let mut out = Data::filled(p.dtype(), p.output_elements(), poison)?;
        let out_buffer = self.guarded(out.bytes())?;
        operands = operands.with(role_out, out_buffer, lead);
        placed.push((role_out, out_buffer, out.bytes().len() as u64));
        if plan.workspace_bytes > 0 {
            let size = usize::try_from(plan.workspace_bytes).map_err(|_| {
                Failure::new(Verdict::OutOfMemory, "the workspace is larger than the address space")
            })?;
            let buffer = self.guarded(&vec![poison; size])?;
            operands = operands.with(Role::Workspace, buffer, lead);
            placed.push((Role::Workspace, buffer, plan.workspace_bytes));
        }
        self.device.run(plan, &operands, deadline)?;
        self.device.read(out_buffer, lead, out.bytes_mut())?;
        let mut damage = None;
        for &(role, buffer, bytes) in &placed {
            damage = damage.or(self.damage(buffer, bytes, &format!("{role:?}"))?);
        }
        // Piece by piece: a second copy of an operand of gigabytes would cost more than the run.
        let longest = given.iter().map(|(_, data)| data.bytes().len()).max().unwrap_or(0);
        let mut piece = vec![0; longest.min(PIECE)];
        for (&(role, data), &(_, buffer, _)) in given.iter().zip(&placed) {
            for (given, offset) in data.bytes().chunks(PIECE).zip((lead..).step_by(PIECE)) {
                let now = &mut piece[..given.len()];
                self.device.read(buffer, offset, now)?;
                if now != given {
                    damage = damage.or(Some(format!("operand {role:?} was written")));
                    break;
                }
            }
        }
        Ok(Run { out, damage })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_device_say_what_is() {
        for id in ["gpu", "vulkan:x", "vulkanic", "hip:", "cpu:0", ""] {
            let text = Backend::open(id).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(text.contains("wave32 devices"), "{id}: {text}");
        }
    }
}
