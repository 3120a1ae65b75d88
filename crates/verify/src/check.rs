//! The checks of one problem on one backend.
//!
//! In order, for each solver: integer operands must come out exactly; uniform operands within the
//! promise, with no NaN or infinity; further runs from differently poisoned buffers bit for bit the
//! same; guard bands and operands untouched throughout. Where the plan needs a workspace and the problem
//! is small, the plan that does without is checked too.

use crate::backend::{Backend, Candidate, Run};
use crate::compare::{Reference, Shape, close, exact, first_not_finite};
use crate::data::Data;
use crate::inputs::{Inputs, Kind, problem_seed, rng};
use crate::plant::{Fault, Plants};
use crate::protocol::{Failure, Job, Outcome, SolverResult, Verdict};
use crate::tolerance::{Tolerance, exact_integers};
use rayon::prelude::*;
use std::time::Duration;
use wave32_cpu::oracle;
use wave32_problem::ConvProblem;
use wave32_solve::Policy;

/// FLOP up to which the f64 oracle computes every output; larger problems are compared with the CPU
/// backend in full (exact check) and with the oracle at sampled outputs.
pub const ORACLE_FLOPS: u64 = 100_000_000;

/// Outputs sampled inside, and as many on the border, of a problem too large for the full oracle.
const SAMPLES: u64 = 4096;

/// Bytes that results and workspaces are filled with before each run. All are NaN in the 16-bit types
/// or absurd; the first is NaN in every type.
const POISONS: [u8; 3] = [0xff, 0x7f, 0x55];

/// FLOP up to which the workspace-free plan is checked beside the chosen one.
const SECOND_PLAN_FLOPS: u64 = 5_000_000_000;

/// Runs a job. `stage` hears what is done next, so that a hang or crash has a place.
pub fn check(backend: &mut Backend, job: &Job, plants: &Plants, stage: &mut dyn FnMut(&str)) -> Outcome {
    let problem = match ConvProblem::new(job.spec.clone()) {
        Ok(problem) => problem,
        Err(error) => return Outcome::early(Verdict::Unsupported, error.to_string()),
    };
    let mut checker =
        Checker { problem, job, plants, stage, solvers: Vec::new(), against: Default::default() };
    let stopped = checker.all(backend).err();
    let Checker { solvers, against: [exact_against, close_against], .. } = checker;
    let worst = stopped.into_iter().chain(solvers.iter().filter_map(|s: &SolverResult| s.failure.clone()));
    // A failed solver outranks one that merely does not run here.
    let worst = worst.max_by_key(|f| f.verdict.is_failure());
    let (verdict, detail) = worst.map_or((Verdict::Pass, String::new()), |f| (f.verdict, f.detail));
    Outcome { verdict, detail, solvers, exact_against, close_against }
}

struct Checker<'a> {
    problem: ConvProblem,
    job: &'a Job,
    plants: &'a Plants,
    stage: &'a mut dyn FnMut(&str),
    solvers: Vec<SolverResult>,
    against: [String; 2],
}

/// Operands with what must come out.
struct Case {
    inputs: Inputs,
    reference: Reference,
}

impl Checker<'_> {
    fn all(&mut self, backend: &mut Backend) -> Result<(), Failure> {
        self.fits_memory()?;
        self.plants.strike(&self.job.line);
        let mut candidates = backend.candidates(&self.problem, &self.job.policy, self.job.all_solvers)?;
        self.add_without_workspace(backend, &mut candidates);
        let seed = problem_seed(self.job.seed, &self.job.line);
        let on_cpu = matches!(backend, Backend::Cpu);

        (self.stage)("the integer check's reference");
        let integer = self.integer_case(seed, on_cpu)?;
        let mut alive = vec![true; candidates.len()];
        for (candidate, alive) in candidates.iter().zip(&mut alive) {
            let (result, ended) = self.integer_check(backend, candidate, &integer);
            *alive = result.failure.is_none();
            self.solvers.push(result);
            ended?;
        }
        drop(integer);

        (self.stage)("the random check's reference");
        let random = self.random_case(seed)?;
        for (index, candidate) in candidates.iter().enumerate().filter(|(i, _)| alive[*i]) {
            let mut result = self.solvers[index].clone();
            let failure = self.random_check(backend, candidate, &random, &mut result).err();
            let failure = failure.map(|f| blame(f, candidate));
            let ended = failure.as_ref().is_some_and(|f| f.verdict.spoils_device());
            result.failure = failure.clone();
            self.solvers[index] = result;
            if let (true, Some(failure)) = (ended, failure) {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Refuses what the host's memory cannot hold: operands, result, their wide copies and the buffers' images.
    fn fits_memory(&self) -> Result<(), Failure> {
        let p = &self.problem;
        let elements = u128::from(p.x_elements()) + u128::from(p.w_elements()) + u128::from(p.y_elements());
        let wanted = elements * u128::from(3 * p.spec().dtype.size() + 8);
        if wanted <= u128::from(self.job.memory_cap) {
            return Ok(());
        }
        let (wanted, cap) = (wanted as f64 / 1e9, self.job.memory_cap as f64 / 1e9);
        let text = format!(
            "checking it takes about {wanted:.1} GB of host memory and the cap is {cap:.1} GB; use --max-gflop, a smaller problem or a larger --memory-cap"
        );
        Err(Failure::new(Verdict::OutOfMemory, text))
    }

    /// The plan within a workspace cap of 0, unless the policy or a candidate is that already.
    fn add_without_workspace(&self, backend: &Backend, candidates: &mut Vec<Candidate>) {
        let none_needed = candidates.iter().all(|c| c.workspace_bytes == 0);
        if none_needed || self.problem.flops() > SECOND_PLAN_FLOPS {
            return;
        }
        let policy = Policy { workspace_cap: Some(0), ..self.job.policy.clone() };
        let found = backend.candidates(&self.problem, &policy, false).unwrap_or_default();
        let new =
            |c: &Candidate| !candidates.iter().any(|o| (&o.solver, &o.config) == (&c.solver, &c.config));
        let added: Vec<Candidate> = found.into_iter().filter(new).collect();
        candidates.extend(added);
    }

    fn deadline(&self) -> Duration {
        Duration::try_from_secs_f64(self.job.run_deadline_s).unwrap_or(Duration::from_secs(60))
    }

    fn oracle_fits(&self) -> bool {
        self.problem.flops() <= ORACLE_FLOPS
    }

    fn integer_case(&mut self, seed: u64, on_cpu: bool) -> Result<Case, Failure> {
        let limit = exact_integers(self.problem.spec().dtype);
        for attempt in 0..8 {
            let inputs = Inputs::new(&self.problem, Kind::Integer, seed, attempt)?;
            let reference = match (self.oracle_fits(), on_cpu) {
                (true, _) | (false, true) => self.oracle(&inputs, seed, 0)?,
                (false, false) => self.cpu_reference(&inputs)?,
            };
            // Sums of this size are a chance of 10^-14 an element; then the next attempt is sparser.
            if reference.max_abs() <= limit {
                return Ok(Case { inputs, reference });
            }
        }
        Err(Failure::new(
            Verdict::Error,
            "no integer operands with exact results were found: please report this",
        ))
    }

    fn random_case(&mut self, seed: u64) -> Result<Case, Failure> {
        let inputs = Inputs::new(&self.problem, Kind::Random, seed, 0)?;
        let reference = self.oracle(&inputs, seed, 1)?;
        Ok(Case { inputs, reference })
    }

    /// The f64 oracle: in full, or at sampled outputs.
    fn oracle(&mut self, inputs: &Inputs, seed: u64, check: usize) -> Result<Reference, Failure> {
        let (a, b) = (inputs.a.to_f64()?, inputs.b.to_f64()?);
        let bias = inputs.bias.as_ref().map(Data::to_f64).transpose()?;
        let wide = wave32_cpu::Inputs { a: &a, b: &b, bias: bias.as_deref() };
        if self.oracle_fits() {
            self.against[check] = "f64 oracle, every output".into();
            return Ok(Reference::Full(oracle::conv(&self.problem, &wide)));
        }
        let picked = Shape::of_output(&self.problem).sample(SAMPLES, &mut rng(seed, 9));
        self.against[check] =
            format!("f64 oracle at {} outputs, all corners and the border among them", picked.len());
        let values = picked.par_iter().map(|&i| (i, oracle::conv_at(&self.problem, &wide, i))).collect();
        Ok(Reference::Sampled(values))
    }

    /// Every output by the CPU backend in f32, which is exact on integer operands.
    fn cpu_reference(&mut self, inputs: &Inputs) -> Result<Reference, Failure> {
        self.against[0] = "CPU backend in f32, every output".into();
        let dtype = wave32_problem::DType::F32;
        let spec = wave32_problem::ConvSpec { dtype, ..self.problem.spec().clone() };
        let wide = ConvProblem::new(spec).map_err(|e| Failure::new(Verdict::Error, e.to_string()))?;
        let (a, b) = (inputs.a.to_f32()?, inputs.b.to_f32()?);
        let bias = inputs.bias.as_ref().map(Data::to_f32).transpose()?;
        let mut out = Data::filled(dtype, wide.output_elements(), POISONS[0])?;
        let len = out.len();
        let bias = bias.as_ref().map(Data::view);
        wave32_cpu::run(
            &wide,
            a.view(),
            b.view(),
            bias,
            out.view_mut(0..len),
            &wave32_cpu::Options::default(),
        )
        .map_err(|e| Failure::new(Verdict::Error, format!("the CPU reference failed: {e}")))?;
        if let Some(index) = first_not_finite(&out) {
            let at = Shape::of_output(&wide).name(index as u64);
            return Err(Failure::new(Verdict::Error, format!("the CPU reference is not finite at {at}")));
        }
        Ok(Reference::FullF32(out))
    }

    /// One run with what was planted, and its guard bands.
    fn run(
        &mut self,
        backend: &mut Backend,
        candidate: &Candidate,
        inputs: &Inputs,
        run: u32,
    ) -> Result<Data, Failure> {
        let poison = POISONS[run as usize % POISONS.len()];
        (self.stage)(&format!("{} {}, run {run}", candidate.solver, candidate.config));
        let line = &self.job.line;
        if self.plants.has(Fault::Lost, line) {
            return Err(wave32_device::DeviceError::Lost("a planted fault".into()).into());
        }
        let Run { mut out, damage } =
            backend.run(&self.problem, candidate, inputs, poison, self.deadline())?;
        self.plants.spoil(line, run, &mut out);
        match damage {
            Some(text) => Err(Failure::new(Verdict::Wrong, text)),
            None => Ok(out),
        }
    }

    fn integer_check(
        &mut self,
        backend: &mut Backend,
        candidate: &Candidate,
        case: &Case,
    ) -> (SolverResult, Result<(), Failure>) {
        let dtype = self.problem.spec().dtype;
        let mut result = SolverResult {
            solver: candidate.solver.clone(),
            config: candidate.config.clone(),
            workspace_bytes: candidate.workspace_bytes,
            error: None,
            bound: crate::tolerance::normwise(dtype, &candidate.solver),
            runs: 1,
            failure: None,
        };
        let shape = Shape::of_output(&self.problem);
        let poison = [POISONS[0]; 4];
        let checked = self.run(backend, candidate, &case.inputs, 0).and_then(|out| {
            exact(&out, &case.reference, &shape, &poison).map_err(|text| Failure::new(Verdict::Wrong, text))
        });
        let Err(mut failure) = checked else {
            return (result, Ok(()));
        };
        failure = blame(failure, candidate);
        result.failure = Some(failure.clone());
        let ended = if failure.verdict.spoils_device() { Err(failure) } else { Ok(()) };
        (result, ended)
    }

    fn random_check(
        &mut self,
        backend: &mut Backend,
        candidate: &Candidate,
        case: &Case,
        result: &mut SolverResult,
    ) -> Result<(), Failure> {
        let wrong = |text: String| Failure::new(Verdict::Wrong, text);
        let shape = Shape::of_output(&self.problem);
        let first = self.run(backend, candidate, &case.inputs, 1)?;
        result.runs += 1;
        if let Some(index) = first_not_finite(&first) {
            let at = shape.name(index as u64);
            return Err(wrong(format!("random check: {} at {at}", first.get(index))));
        }
        let (spec, length) = (self.problem.spec(), self.problem.reduction_len());
        let tolerance = Tolerance::new(spec.dtype, &candidate.solver, length, spec.epilogue.bias);
        match close(&first, &case.reference, &tolerance, &shape) {
            Ok(error) => result.error = Some(error),
            Err((error, text)) => {
                result.error = Some(error);
                return Err(wrong(text));
            }
        }
        for repeat in 0..self.job.repeat {
            let again = self.run(backend, candidate, &case.inputs, 2 + repeat)?;
            result.runs += 1;
            let (a, b) = (first.bytes(), again.bytes());
            if a == b {
                continue;
            }
            let size = element_size(&first);
            let elements = a.chunks(size).zip(b.chunks(size));
            let differing: Vec<usize> =
                elements.enumerate().filter(|(_, (x, y))| x != y).map(|(i, _)| i).collect();
            let index = differing.first().copied().unwrap_or_default();
            let (count, at) = (differing.len(), shape.name(index as u64));
            let (x, y) = (first.get(index), again.get(index));
            return Err(wrong(format!("two runs differ in {count} outputs, first at {at}: {x} and {y}")));
        }
        Ok(())
    }
}

/// The failure with the solver's name in front.
fn blame(mut failure: Failure, candidate: &Candidate) -> Failure {
    failure.detail = format!("{} {}: {}", candidate.solver, candidate.config, failure.detail);
    failure
}

/// Bytes an element.
fn element_size(data: &Data) -> usize {
    (data.bytes().len() / data.len().max(1)).max(1)
}
