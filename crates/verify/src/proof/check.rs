//! The checks of one problem on one backend.
//!
//! In order, for each solver: integer operands must come out exactly (of a transformed solver, and behind an activation that
//! makes fractions of integers: within its promise); uniform operands within the promise, with no NaN or infinity; further runs
//! from differently poisoned buffers bit for bit the same; guard bands and operands untouched throughout. Where the plan needs a
//! workspace and the problem is small, the plan that does without is checked too.

use crate::process::protocol::{Failure, Job, Outcome, Phases, SolverResult, Verdict};
use crate::proof::backend::{Backend, Candidate, Run};
use crate::proof::cases::{Case, POISONS, fits_memory};
use crate::proof::compare::{OutputShape, Reference, close, exact, first_not_finite};
use crate::proof::data::Data;
use crate::proof::inject::{Fault, Faults};
use crate::proof::inputs::{Inputs, problem_seed};
use crate::proof::tolerance::{Tolerance, is_transformed};
use std::time::{Duration, Instant};
use wave32_problem::Problem;
use wave32_solve::Policy;

/// FLOP up to which the workspace-free plan is checked beside the chosen one.
const SECOND_PLAN_FLOPS: u64 = 5_000_000_000;

/// Runs a job. `stage` hears what is done next, so that a hang or crash has a place.
pub fn check(backend: &mut Backend, job: &Job, faults: &Faults, stage: &mut dyn FnMut(&str)) -> Outcome {
    let problem = match Problem::try_from(job.spec.clone()) {
        Ok(problem) => problem,
        Err(error) => return Outcome::early(Verdict::Unsupported, error.to_string()),
    };
    let mut checker = Checker {
        problem,
        job,
        faults,
        stage,
        solvers: Vec::new(),
        against: Default::default(),
        phases: Phases::default(),
    };
    let begin = Instant::now();
    let stopped = checker.all(backend).err();
    let Checker { solvers, against: [exact_against, close_against], mut phases, .. } = checker;
    phases.comparisons_s = begin.elapsed().as_secs_f64() - phases.references_s - phases.runs_s;
    let worst = stopped.into_iter().chain(solvers.iter().filter_map(|s: &SolverResult| s.failure.clone()));
    // A failed solver outranks one that merely does not run here.
    let worst = worst.max_by_key(|f| f.verdict.is_failure());
    let (verdict, detail) = worst.map_or((Verdict::Pass, String::new()), |f| (f.verdict, f.detail));
    Outcome { verdict, detail, solvers, exact_against, close_against, phases }
}

struct Checker<'a> {
    problem: Problem,
    job: &'a Job,
    faults: &'a Faults,
    stage: &'a mut dyn FnMut(&str),
    solvers: Vec<SolverResult>,
    against: [String; 2],
    phases: Phases,
}

impl Checker<'_> {
    fn all(&mut self, backend: &mut Backend) -> Result<(), Failure> {
        fits_memory(&self.problem, self.job.memory_cap)?;
        self.faults.inject(&self.job.line);
        let mut candidates = backend.candidates(&self.problem, &self.job.policy, self.job.all_solvers)?;
        self.add_without_workspace(backend, &mut candidates);
        let seed = problem_seed(self.job.seed, &self.job.line);
        let on_cpu = matches!(backend, Backend::Cpu);

        (self.stage)("the integer check's reference");
        let begin = Instant::now();
        let integer = match self.job.fold {
            true => Case::folded(&self.problem, seed)?,
            false => Case::integer(&self.problem, seed, on_cpu)?,
        };
        self.phases.references_s += begin.elapsed().as_secs_f64();
        self.against[0].clone_from(&integer.against);
        let mut alive = vec![true; candidates.len()];
        for (candidate, alive) in candidates.iter().zip(&mut alive) {
            let (result, ended) = self.integer_check(backend, candidate, &integer);
            *alive = result.failure.is_none();
            self.solvers.push(result);
            ended?;
        }
        drop(integer);

        (self.stage)("the random check's reference");
        let begin = Instant::now();
        let random = Case::random(&self.problem, seed)?;
        self.phases.references_s += begin.elapsed().as_secs_f64();
        self.against[1].clone_from(&random.against);
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
        if self.faults.has(Fault::Lost, line) {
            return Err(wave32_device::DeviceError::Lost("a planted fault".into()).into());
        }
        let begin = Instant::now();
        let ran = backend.run(&self.problem, candidate, inputs, poison, self.deadline());
        self.phases.runs_s += begin.elapsed().as_secs_f64();
        let Run { mut out, damage } = ran?;
        self.faults.spoil(line, run, &self.problem, &mut out);
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
        let dtype = self.problem.dtype();
        let mut result = SolverResult {
            solver: candidate.solver.clone(),
            config: candidate.config.clone(),
            workspace_bytes: candidate.workspace_bytes,
            tuned: candidate.tuned,
            error: None,
            bound: crate::proof::tolerance::normwise(dtype, &candidate.solver),
            runs: 1,
            failure: None,
        };
        let shape = OutputShape::of_output(&self.problem);
        let poison = [POISONS[0]; 4];
        let checked = self.run(backend, candidate, &case.inputs, 0).and_then(|out| {
            if is_transformed(&candidate.solver) || !self.problem.activation().keeps_integers() {
                return self.near_integers(backend, candidate, case, &out, &shape);
            }
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

    /// A result on integers that need not be exact, every output: within the promise, relative to what is exact. Where only sums
    /// of the exact outputs are known, a solver that is not transformed is held to these, and then its outputs are compared.
    fn near_integers(
        &mut self,
        backend: &mut Backend,
        candidate: &Candidate,
        case: &Case,
        out: &Data,
        shape: &OutputShape,
    ) -> Result<(), Failure> {
        let wrong = |text: String| Failure::new(Verdict::Wrong, text);
        let of_all;
        let reference = match &case.reference {
            Reference::Folded(..) => {
                let skip = vec![candidate.solver.clone()];
                let policy =
                    Policy { skip, workspace_cap: self.job.policy.workspace_cap, ..Policy::default() };
                let others = backend.candidates(&self.problem, &policy, true)?;
                let direct = others.iter().find(|other| !is_transformed(&other.solver));
                let direct = direct.ok_or_else(|| wrong("no other solver to compare with".into()))?;
                let outputs = self.run(backend, direct, &case.inputs, 0)?;
                exact(&outputs, &case.reference, shape, &[POISONS[0]; 4]).map_err(wrong)?;
                of_all = Reference::FullF32(outputs);
                &of_all
            }
            known => known,
        };
        // Few sums may all be 0.
        let typical = reference.root_mean_square().max(1.0);
        let tolerance = Tolerance::relative(self.problem.dtype(), &candidate.solver, typical);
        close(out, reference, &tolerance, shape)
            .map(drop)
            .map_err(|(_, text)| wrong(text.replacen("random check", "integer check", 1)))
    }

    fn random_check(
        &mut self,
        backend: &mut Backend,
        candidate: &Candidate,
        case: &Case,
        result: &mut SolverResult,
    ) -> Result<(), Failure> {
        let wrong = |text: String| Failure::new(Verdict::Wrong, text);
        let shape = OutputShape::of_output(&self.problem);
        let first = self.run(backend, candidate, &case.inputs, 1)?;
        result.runs += 1;
        if let Some(index) = first_not_finite(&first) {
            let at = shape.name(index as u64);
            return Err(wrong(format!("random check: {} at {at}", first.get(index))));
        }
        let tolerance = Tolerance::new(&self.problem, &candidate.solver);
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
