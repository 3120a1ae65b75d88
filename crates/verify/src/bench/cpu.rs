//! Times the CPU backend by the wall clock.

use super::stats::repeats;
use super::{Case, Gone, Meter, Row, Settings, Subject};
use crate::proof::backend::cpu_device;
use crate::proof::data::{Data, NoMemory};
use crate::proof::inputs::{Inputs, Kind};
use std::time::{Duration, Instant};
use wave32_cpu::Options;

/// Wall time that the timed runs of one problem should fill.
const FILL: Duration = Duration::from_millis(300);

/// The CPU's meter.
pub struct CpuMeter {
    options: Options,
}

impl CpuMeter {
    /// With these threads and this workspace cap.
    pub fn new(options: Options) -> Self {
        Self { options }
    }

    fn time(&self, case: &Case, settings: &Settings) -> Result<Vec<f64>, String> {
        let problem = &case.problem;
        let text = |e: NoMemory| e.to_string();
        let inputs = Inputs::new(problem, Kind::Random, settings.seed, 0).map_err(text)?;
        let mut out = Data::filled(problem.dtype(), problem.output_elements(), 0).map_err(text)?;
        let length = out.len();
        let mut once = || -> Result<Duration, String> {
            let (a, b) = (inputs.a.view(), inputs.b.view());
            let bias = inputs.bias.as_ref().map(Data::view);
            let start = Instant::now();
            wave32_cpu::run_problem(problem, a, b, bias, out.view_mut(0..length), &self.options)
                .map_err(|e| e.to_string())?;
            Ok(start.elapsed())
        };
        let begin = Instant::now();
        let warm = once()?;
        let count = settings.repeats.unwrap_or_else(|| repeats(warm, FILL, 3, 200)).max(1);
        let mut runs = Vec::new();
        for _ in 0..count {
            runs.push(once()?.as_secs_f64() * 1e3);
            // A run cannot be interrupted here, so the deadline only stops the next one.
            if begin.elapsed() > settings.deadline {
                break;
            }
        }
        Ok(runs)
    }
}

impl Meter for CpuMeter {
    fn subject(&self) -> Subject {
        let device = cpu_device();
        Subject {
            id: device.id,
            name: device.name,
            driver: device.driver,
            rates: None,
            clock: "wall clock".to_string(),
        }
    }

    fn measure(&mut self, case: &Case, settings: &Settings, rows: &mut Vec<Row>) -> Result<(), Gone> {
        let row = Row { solver: "cpu".to_string(), ..Row::new(case, None) };
        rows.push(match self.time(case, settings) {
            Ok(runs) => row.timed(&runs),
            Err(error) => row.failed(error),
        });
        Ok(())
    }
}
