//! Plans modelled with the code that ships.

use rand::Rng;
use wave32_model::{Effort, Model, ModelCard, ModelError};
use wave32_problem::parse_line;
use wave32_solve::{DeviceCaps, Plan, Policy, explain, usual_boards};

/// The model, unless this build has no code objects: then the test is skipped with a line.
fn model() -> Option<Model> {
    match Model::new(ModelCard::usual()[0]) {
        Ok(model) => Some(model),
        Err(error @ ModelError::NoCode(_)) => {
            assert!(std::env::var_os("WAVE32_REQUIRE_COMPILERS").is_none(), "{error}");
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn plan(line: &str) -> Plan {
    let problem = &parse_line(line).expect("a line")[0];
    let (plan, _) =
        explain(problem, &DeviceCaps::of(usual_boards()[0]), &Policy::default()).chosen.expect("a plan");
    plan
}

/// A small convolution, any direction, f32 or f16.
fn any(rng: &mut impl Rng) -> String {
    let word = ["conv", "convfp16"][rng.random_range(0..2)];
    let (c, k) = (16 * rng.random_range(1..5), 16 * rng.random_range(1..5));
    let size = rng.random_range(14..57);
    let (filter, pad) = [(1, 0), (3, 1)][rng.random_range(0..2)];
    let direction = [1, 2, 4][rng.random_range(0..3)];
    format!(
        "MIOpenDriver {word} -n 2 -c {c} -H {size} -W {size} -k {k} -y {filter} -x {filter} -p {pad} -q {pad} -u 1 \
         -v 1 -l 1 -j 1 -m conv -g 1 -F {direction}"
    )
}

/// How far a sample's time may be from that of the whole: the document states it.
const SAMPLING: f64 = 0.35;

#[test]
fn a_sample_stands_for_the_whole() {
    let Some(model) = model() else { return };
    let seed = std::env::var("WAVE32_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("seed {seed}: WAVE32_SEED={seed} repeats this");
    let rng: &mut rand::rngs::StdRng = &mut rand::SeedableRng::seed_from_u64(seed);
    let count = std::env::var("WAVE32_MODEL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    for _ in 0..count {
        let line = any(rng);
        let plan = plan(&line);
        let whole = model.plan(&plan, Effort::ALL).unwrap_or_else(|e| panic!("{line}: {e}"));
        let sample = Effort { recorded: 1, simulated: 500_000 };
        let part = model.plan(&plan, sample).unwrap_or_else(|e| panic!("{line}: {e}"));
        let error = part.time.low / whole.time.low - 1.0;
        let groups: u64 = whole.launches.iter().map(|l| l.groups).sum();
        println!("{:+.1} %: {:.1} us of {} workgroups: {line}", error * 100.0, whole.time.low * 1e6, groups);
        assert!(error.abs() <= SAMPLING, "{line}: {part}{whole}");
        // No time is below what the card's units need at least.
        let (compute, _) = DeviceCaps::of(usual_boards()[0]).floors(plan.problem.flops(), 0);
        assert!(whole.time.low >= compute / 2.0, "{line}: {whole}"); // packed f16 does two a lane
    }
}

#[test]
fn numbers_in_tensors_change_nothing() {
    let Some(model) = model() else { return };
    let line = "MIOpenDriver conv -n 1 -c 32 -H 28 -W 28 -k 32 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1";
    let plan = plan(line);
    let sample = Effort { recorded: 1, simulated: 100_000 };
    let times = [0, 0x3c00, 0x7e00].map(|bits| model.plan_with(&plan, sample, bits).expect("modelled").time);
    assert_eq!(times, [times[0]; 3]);
}
