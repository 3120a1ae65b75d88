//! Times plans on a [`PlanDevice`] by its own timestamps.

use super::stats::repeats;
use super::{BenchMode, Case, Gone, Meter, Rates, Row, Settings, Subject};
use crate::proof::inputs::{Inputs, Kind, roles};
use std::time::Duration;
use wave32_device::{BufferId, DeviceError, Operands, PlanDevice, Times};
use wave32_problem::Problem;
use wave32_solve::{Plan, Role, plan, plans};

/// Device time that the timed runs of one plan should fill.
const FILL: Duration = Duration::from_millis(200);

/// Bytes of operands that cold runs rotate through: twice the largest last-level cache of any GPU we
/// know of (256 MiB).
const COLD_BYTES: u64 = 512 << 20;

/// Most operand sets of a cold measurement: more would only cost upload time, as even tiny operands are
/// then separated by this many others.
const COLD_SETS: u64 = 64;

/// A GPU's meter.
pub struct GpuMeter<'a> {
    device: &'a mut dyn PlanDevice,
    rates: Rates,
}

impl<'a> GpuMeter<'a> {
    /// A meter of this device.
    pub fn new(device: &'a mut dyn PlanDevice) -> Self {
        let rates = Subject::modelled(device.caps());
        Self { device, rates }
    }

    fn upload(&mut self, problem: &Problem, plans: &[Plan], settings: &Settings) -> Result<Sets, Failure> {
        let size = |role: Role| plans.iter().map(|p| p.role_bytes(role)).max().unwrap_or(0);
        let per_set: u64 = Role::ALL.into_iter().map(size).sum();
        let count = match settings.mode {
            BenchMode::Warm => 1,
            BenchMode::Cold => (COLD_BYTES / per_set.max(1) + 1).clamp(2, COLD_SETS),
        };
        let inputs =
            Inputs::new(problem, Kind::Random, settings.seed, 0).map_err(|e| Failure::Row(e.to_string()))?;
        let ([a, b], _) = roles(problem);
        let mut sets = Sets::default();
        for _ in 0..count {
            let mut operands = Operands::new();
            for role in Role::ALL {
                if size(role) == 0 {
                    continue;
                }
                let buffer = match self.device.alloc(size(role)) {
                    Ok(buffer) => buffer,
                    Err(error) => return Err(self.give_up(sets, error)),
                };
                sets.buffers.push(buffer);
                operands = operands.with(role, buffer, 0);
                let data = match role {
                    _ if role == a => Some(&inputs.a),
                    _ if role == b => Some(&inputs.b),
                    Role::Bias => inputs.bias.as_ref(),
                    _ => None,
                };
                let written = data.map_or(Ok(()), |data| self.device.write(buffer, 0, data.bytes()));
                if let Err(error) = written {
                    return Err(self.give_up(sets, error));
                }
            }
            sets.operands.push(operands);
        }
        Ok(sets)
    }

    fn give_up(&mut self, sets: Sets, error: DeviceError) -> Failure {
        sets.free(self.device);
        error.into()
    }

    fn time(&mut self, plan: &Plan, sets: &Sets, settings: &Settings) -> Result<Times, Failure> {
        // The first run is cold in every way; it also teaches the device its time budget.
        self.device.run(plan, &sets.operands[0], settings.deadline)?;
        let once = self.device.run(plan, &sets.operands[0], settings.deadline)?.total;
        let count = settings.repeats.unwrap_or_else(|| repeats(once, FILL, 5, 1000));
        Ok(self.device.time(plan, &sets.operands, count.max(1), settings.deadline)?)
    }
}

/// Operands on the device.
#[derive(Default)]
struct Sets {
    operands: Vec<Operands>,
    buffers: Vec<BufferId>,
}

impl Sets {
    fn free(self, device: &mut dyn PlanDevice) {
        for buffer in self.buffers {
            device.free(buffer);
        }
    }
}

/// Ends a row, or everything.
enum Failure {
    Row(String),
    Gone(String),
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Timeout { .. } | DeviceError::Lost(_) => Self::Gone(error.to_string()),
            other => Self::Row(other.to_string()),
        }
    }
}

impl Meter for GpuMeter<'_> {
    fn subject(&self) -> Subject {
        let info = self.device.info();
        Subject {
            id: info.id.clone(),
            name: info.name.clone(),
            driver: info.driver.clone(),
            rates: Some(self.rates.clone()),
            clock: "device timestamps".to_string(),
        }
    }

    fn measure(&mut self, case: &Case, settings: &Settings, rows: &mut Vec<Row>) -> Result<(), Gone> {
        let row = || Row::new(case, Some(&self.rates));
        let caps = self.device.caps();
        let chosen = match plan(&case.problem, caps, &settings.policy) {
            Ok(chosen) => chosen,
            Err(error) => {
                rows.push(row().failed(error));
                return Ok(());
            }
        };
        let mut candidates = vec![chosen];
        if settings.all_solvers {
            let others = plans(&case.problem, caps, &settings.policy);
            let first = candidates[0].solver;
            candidates.extend(others.into_iter().filter(|p| p.solver != first));
        }
        let planned = |rates: &Rates, index: usize, plan: &Plan| Row {
            solver: plan.solver.to_string(),
            config: plan.config.clone(),
            chosen: index == 0,
            tuned: plan.tuned,
            workspace_bytes: plan.workspace_bytes,
            ..Row::new(case, Some(rates))
        };
        let sets = match self.upload(&case.problem, &candidates, settings) {
            Ok(sets) => sets,
            Err(Failure::Row(error)) => {
                rows.push(planned(&self.rates, 0, &candidates[0]).failed(error));
                return Ok(());
            }
            Err(Failure::Gone(error)) => {
                rows.push(planned(&self.rates, 0, &candidates[0]).failed(&error));
                return Err(Gone(error));
            }
        };
        let mut gone = None;
        for (index, plan) in candidates.iter().enumerate() {
            let row = planned(&self.rates, index, plan);
            match self.time(plan, &sets, settings) {
                Ok(Times { each, mean }) => {
                    let ms = |time: &Duration| time.as_secs_f64() * 1e3;
                    let runs: Vec<f64> = each.iter().map(ms).collect();
                    rows.push(row.timed(&runs).back_to_back(ms(&mean)));
                }
                Err(Failure::Row(error)) => rows.push(row.failed(error)),
                Err(Failure::Gone(error)) => {
                    rows.push(row.failed(&error));
                    gone = Some(Gone(error));
                    break;
                }
            }
        }
        sets.free(self.device);
        gone.map_or(Ok(()), Err)
    }
}
