//! How good the choice is: the chosen plan's time over the best known one's, both simulated.

use crate::Options;
use crate::pool::{Named, name, plans, suite};
use crate::times::{Asked, Times};
use std::collections::HashSet;
use wave32_solve::rates::total;
use wave32_solve::{Candidate, Compiler, cost};

/// Plans further from the best one's price are not looked at.
const SLOWER: f64 = 2.5;

pub fn main(options: &Options) -> Result<(), String> {
    for &(label, compiler) in &options.compilers {
        let caps = options.caps(compiler);
        let mut times = Times::new(options, compiler)?;
        let all = suite(options.dtype)?;
        let of_problem = |named: &Named| named.name.contains(&options.only);
        let chosen: Vec<Named> = all.into_iter().filter(of_problem).collect();
        let step = chosen.len().div_ceil(options.most).max(1);
        // Both suites, every pass: a stride that is no multiple of three.
        let step = if step > 1 && step.is_multiple_of(3) { step + 1 } else { step };
        let judged: Vec<(Named, Vec<Candidate>)> = chosen
            .into_iter()
            .step_by(step)
            .map(|named| {
                let mut all = rivals(plans(&named.problem, &caps, SLOWER), options.rivals);
                // Those that the constants from the H200 rank first may be better than the table thinks.
                let others = plans(&named.problem, &options.caps(Compiler::Other), SLOWER);
                for other in rivals(others, options.rivals / 2) {
                    if all.iter().all(|one| name(&one.plan) != name(&other.plan)) {
                        all.push(Candidate { cost: cost(&other.plan, &caps), ..other });
                    }
                }
                (named, all)
            })
            .collect();
        let asked: Vec<Asked> = judged
            .iter()
            .flat_map(|(_, plans)| plans)
            .flat_map(|candidate| candidate.plan.launches.iter().map(|l| Asked::new(&candidate.plan, l)))
            .collect();
        times.learn(&asked)?;
        let mut ratios = Vec::new();
        let mut errors = Vec::new();
        println!(
            "| problem | pass | chosen | ms | best | ms | chosen / best |\n|---|---|---|---:|---|---:|---:|"
        );
        for (named, plans) in &judged {
            let simulated = |candidate: &Candidate| {
                total(&candidate.plan, &caps, |launch| Some(times.get(launch)?.seconds))
            };
            let timed: Vec<(f64, &Candidate)> =
                plans.iter().filter_map(|candidate| Some((simulated(candidate)?, candidate))).collect();
            let Some(&(first, chosen)) = timed.first() else { continue };
            let (best, rival) = timed.iter().min_by(|a, b| a.0.total_cmp(&b.0)).ok_or("no plan")?;
            ratios.push(first / best);
            errors.extend(timed.iter().map(|(seconds, candidate)| (candidate.cost / seconds).ln()));
            println!(
                "| {} | {} | {} | {:.3} | {} | {:.3} | {:.2} |",
                named.name,
                named.problem.pass(),
                name(&chosen.plan),
                first * 1e3,
                name(&rival.plan),
                best * 1e3,
                first / best
            );
        }
        let mean = (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp();
        let worst = ratios.iter().copied().fold(1.0, f64::max);
        let error = (errors.iter().map(|r| r * r).sum::<f64>() / errors.len().max(1) as f64).sqrt();
        println!(
            "\n{label}: chosen over best {mean:.3} (geometric mean), {worst:.2} (worst), {} problems, {} plans; price over simulated time, root mean square of the logarithm {error:.2}\n",
            ratios.len(),
            errors.len()
        );
    }
    Ok(())
}

/// The chosen plan, and the next ones by price: of each set of kernels the best, then more.
pub fn rivals(all: Vec<Candidate>, count: usize) -> Vec<Candidate> {
    let mut seen = HashSet::new();
    let kernels = |candidate: &Candidate| {
        let mut names: Vec<String> = candidate.plan.launches.iter().map(|l| l.kernel.clone()).collect();
        names.dedup();
        names
    };
    let (mut first, rest): (Vec<Candidate>, Vec<Candidate>) =
        all.into_iter().partition(|candidate| seen.insert(kernels(candidate)));
    first.truncate(1 + count * 2 / 3);
    let more = (1 + count).saturating_sub(first.len());
    first.extend(rest.into_iter().take(more));
    first
}
