//! The child's side of one attempt: the problem through MIOpen, checked against the f64 oracle.

use crate::memory::Memory;
use crate::protocol::{Attempt, Finding, SolverVerdict, Way};
use crate::rewrite::{RewriteError, Split};
use crate::vendor::Vendor;
use crate::vendor_conv::{Run, VendorConv};
use std::collections::HashMap;
use wave32_problem::{ConvProblem, Problem, Rewrite};
use wave32_verify::cases::{Case, POISONS, fits_memory};
use wave32_verify::compare::{OutputShape, close, exact};
use wave32_verify::data::{Data, NoMemory};
use wave32_verify::inputs::{Inputs, problem_seed};
use wave32_verify::tolerance::Tolerance;

/// `miopenConvolutionAlgoFFT` and `miopenConvolutionAlgoWinograd`: fractions appear on the way, so integers need not
/// come out exactly, and the bound on the error is the wider one.
const TRANSFORMED: [i32; 2] = [2, 3];

/// Runs on random operands beyond the first: they time it and show whether its bits repeat.
const REPEATS: u32 = 3;

/// Tries it. `stage` hears what is done next.
pub fn attempt(vendor: &Vendor, job: &Attempt, stage: &mut dyn FnMut(&str)) -> Finding {
    run(vendor, job, stage).unwrap_or_else(|finding| finding)
}

impl From<NoMemory> for Finding {
    fn from(error: NoMemory) -> Self {
        Self::of(SolverVerdict::OutOfMemory, error.to_string())
    }
}

impl From<RewriteError> for Finding {
    fn from(error: RewriteError) -> Self {
        Self::of(SolverVerdict::Refuses, error.to_string())
    }
}

fn run(vendor: &Vendor, job: &Attempt, stage: &mut dyn FnMut(&str)) -> Result<Finding, Finding> {
    let problem =
        ConvProblem::new(job.spec.clone()).map_err(|e| Finding::of(SolverVerdict::Refuses, e.to_string()))?;
    let any = Problem::from(problem.clone());
    fits_memory(&any, job.memory_cap)?;
    let seed = problem_seed(job.seed, &problem.to_string());
    let mut runner =
        Runner { vendor, job, vendor_conv: HashMap::new(), how: None, ms: 0.0, launches: 0, poison: 0 };

    // One run before any reference is computed: how it runs decides what may be asked of the result.
    stage("making operands");
    let random = Case::random(&any, seed)?;
    stage("the first run");
    let shape = OutputShape::of_output(&any);
    let first = runner.whole(&problem, &random.inputs, POISONS[0], stage)?;
    let pieces = runner.launches;
    let algorithm = runner.algorithm();
    let transformed = algorithm.is_some_and(|a| TRANSFORMED.contains(&a));
    let name = if transformed { "winograd" } else { "direct" };
    let tolerance = Tolerance::new(&any, name);
    let mut finding = Finding {
        bound: Some(tolerance.normwise),
        algorithm,
        workspace_bytes: runner.how.map_or(0, Run::workspace),
        pieces,
        ..Finding::of(SolverVerdict::Works, "")
    };
    match close(&first, &random.reference, &tolerance, &shape) {
        Ok(error) => finding.error = Some(error),
        Err((error, detail)) => {
            finding.error = error.is_finite().then_some(error);
            return Err(Finding { verdict: SolverVerdict::Wrong, detail, ..finding });
        }
    }
    if !transformed {
        stage("the integers' reference");
        let integer = Case::integer(&any, seed, false)?;
        stage("the run on integers");
        let out = runner.whole(&problem, &integer.inputs, POISONS[0], stage)?;
        if let Err(detail) = exact(&out, &integer.reference, &shape, &[POISONS[0]; 4]) {
            return Err(Finding { verdict: SolverVerdict::Wrong, detail, ..finding });
        }
    }
    let mut deterministic = true;
    for repeat in 0..REPEATS {
        stage(&format!("run {} of {REPEATS} for the time", repeat + 1));
        let poison = POISONS[(repeat as usize + 1) % POISONS.len()];
        let again = runner.whole(&problem, &random.inputs, poison, stage)?;
        deterministic &= again.bytes() == first.bytes();
        if let Err((error, detail)) = close(&again, &random.reference, &tolerance, &shape) {
            let error = error.is_finite().then_some(error);
            return Err(Finding {
                verdict: SolverVerdict::Wrong,
                error,
                detail: format!("a repeat: {detail}"),
                ..finding
            });
        }
        finding.ms = Some(finding.ms.map_or(runner.ms, |best: f64| best.min(runner.ms)));
    }
    finding.deterministic = Some(deterministic);
    Ok(finding)
}

struct Runner<'v, 'j> {
    vendor: &'v Vendor,
    job: &'j Attempt,
    /// The problems that MIOpen got so far, each with how it is run.
    vendor_conv: HashMap<ConvProblem, (VendorConv<'v>, Run)>,
    how: Option<Run>,
    /// Milliseconds on the device and launches of the last whole problem.
    ms: f64,
    launches: u64,
    poison: u8,
}

impl Runner<'_, '_> {
    fn algorithm(&self) -> Option<i32> {
        match self.how? {
            Run::Algorithm(algorithm, _) => Some(algorithm),
            Run::Solver { algorithm, .. } => Some(algorithm),
        }
    }

    /// The problem once, through its rewritings.
    fn whole(
        &mut self,
        p: &ConvProblem,
        inputs: &Inputs,
        poison: u8,
        stage: &mut dyn FnMut(&str),
    ) -> Result<Data, Finding> {
        (self.ms, self.launches, self.poison) = (0.0, 0, poison);
        let job = self.job;
        self.rewritten(p, inputs, &job.rewrite, stage)
    }

    fn rewritten(
        &mut self,
        p: &ConvProblem,
        inputs: &Inputs,
        rewrites: &[Rewrite],
        stage: &mut dyn FnMut(&str),
    ) -> Result<Data, Finding> {
        let Some((first, rest)) = rewrites.split_first() else {
            return self.plain(p, inputs, stage);
        };
        let split = Split::new(*first, p)?;
        split.compute(p, inputs, &mut |sub, part| self.rewritten(sub, part, rest, stage))
    }

    fn plain(
        &mut self,
        p: &ConvProblem,
        inputs: &Inputs,
        stage: &mut dyn FnMut(&str),
    ) -> Result<Data, Finding> {
        if !self.vendor_conv.contains_key(p) {
            let vendor_conv = VendorConv::new(self.vendor, p)?;
            let how = self.prepare(&vendor_conv, p, inputs, stage)?;
            self.vendor_conv.insert(p.clone(), (vendor_conv, how));
        }
        let (vendor_conv, how) = &self.vendor_conv[p];
        self.how = Some(*how);
        let mut out = Data::filled(p.spec().dtype, p.output_elements(), self.poison)?;
        let ran =
            vendor_conv.run(*how, [inputs.a.bytes(), inputs.b.bytes()], out.bytes().len(), self.poison)?;
        out.bytes_mut().copy_from_slice(&ran.out);
        self.ms += ran.ms;
        self.launches += 1;
        Ok(out)
    }

    /// Makes a problem ready: MIOpen itself must say that the solver takes it, since it runs whatever it is told to.
    fn prepare(
        &self,
        vendor_conv: &VendorConv<'_>,
        p: &ConvProblem,
        inputs: &Inputs,
        stage: &mut dyn FnMut(&str),
    ) -> Result<Run, Finding> {
        match &self.job.way {
            Way::Immediate(id) => {
                stage("asking which solvers take it");
                let offered = vendor_conv.solutions()?.into_iter().find(|o| o.id == *id);
                let offer = offered.ok_or_else(|| {
                    Finding::of(SolverVerdict::Refuses, "MIOpen does not offer this solver for this shape")
                })?;
                stage("compiling it");
                vendor_conv.compile(*id)?;
                stage("running it");
                Ok(Run::Solver { id: *id, algorithm: offer.algorithm, workspace: offer.workspace_bytes })
            }
            Way::Find | Way::FindOnly(_) => {
                stage("Find");
                let operands = [
                    Memory::new(self.vendor, inputs.a.bytes())?,
                    Memory::new(self.vendor, inputs.b.bytes())?,
                ];
                let out = Data::filled(p.spec().dtype, p.output_elements(), self.poison)?;
                let result = Memory::new(self.vendor, out.bytes())?;
                let found = vendor_conv.find([&operands[0], &operands[1]], &result)?;
                let (algorithm, workspace) = *found.first().ok_or_else(|| {
                    Finding::of(SolverVerdict::Refuses, "Find found nothing that takes this shape")
                })?;
                stage("running what Find found");
                Ok(Run::Algorithm(algorithm, workspace))
            }
        }
    }
}
