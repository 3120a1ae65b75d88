//! Rewritings give what the problem itself gives, exactly on integers, in every pass.

use rand::{Rng, SeedableRng};
use wave32_cpu::oracle;
use wave32_probe::rewrite::{Split, candidates};
use wave32_problem::{ConvProblem, ConvSpec, DType, Direction, Layout, Rewrite};
use wave32_verify::data::{Data, NoMemory};
use wave32_verify::inputs::{Inputs, Kind};

/// The f64 oracle, rounded to the storage type as a device would.
fn oracle(p: &ConvProblem, inputs: &Inputs) -> Result<Data, NoMemory> {
    let (a, b) = (inputs.a.to_f64()?, inputs.b.to_f64()?);
    let mut values = oracle::conv(p, &wave32_cpu::Inputs { a: &a, b: &b, bias: None }).into_iter();
    Data::generate(p.spec().dtype, p.output_elements(), || values.next().unwrap_or(f64::NAN) as f32)
}

fn through(p: &ConvProblem, inputs: &Inputs, rewrites: &[Rewrite]) -> Result<Data, NoMemory> {
    let Some((first, rest)) = rewrites.split_first() else { return oracle(p, inputs) };
    Split::new(*first, p).unwrap().compute(p, inputs, &mut |sub, part| through(sub, part, rest))
}

fn agree(spec: ConvSpec, rewrites: &[Rewrite]) {
    let p = ConvProblem::new(spec).unwrap();
    let inputs = Inputs::new(&p.clone().into(), Kind::Integer, 7, 0).unwrap();
    let (right, got) = (oracle(&p, &inputs).unwrap(), through(&p, &inputs, rewrites).unwrap());
    // Values, for a sum of nothing may be -0.
    let differ = (0..right.len()).filter(|&i| right.get(i) != got.get(i)).count();
    assert_eq!(differ, 0, "{p} with {rewrites:?}: {differ} of {} differ", right.len());
}

#[test]
fn every_candidate_gives_the_same_result() {
    for direction in Direction::ALL {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            let base = ConvSpec {
                direction,
                layout,
                n: 3,
                c: 4,
                k: 8,
                h: 50,
                w: 37,
                r: 3,
                s: 3,
                pad: [1, 1],
                ..ConvSpec::default()
            };
            let p = ConvProblem::new(base.clone()).unwrap();
            let found = candidates(&p);
            assert_eq!(found.len(), 4, "{found:?}");
            found.iter().for_each(|rewrites| agree(base.clone(), rewrites));
        }
    }
}

#[test]
fn random_problems_survive_every_candidate() {
    let mut rng = rand::rngs::StdRng::seed_from_u64(20);
    let mut done = 0;
    while done < 150 {
        let groups = [1, 1, 2, 4][rng.random_range(0..4)];
        let spec = ConvSpec {
            direction: Direction::ALL[rng.random_range(0..3)],
            dtype: [DType::F32, DType::F16][rng.random_range(0..2)],
            layout: [Layout::Nchw, Layout::Nhwc][rng.random_range(0..2)],
            n: rng.random_range(1..3),
            c: groups * rng.random_range(1..4),
            k: groups * rng.random_range(1..4),
            h: rng.random_range(1..70),
            w: rng.random_range(1..70),
            r: rng.random_range(1..6),
            s: rng.random_range(1..6),
            stride: [rng.random_range(1..4), rng.random_range(1..4)],
            pad: [rng.random_range(0..4), rng.random_range(0..4)],
            dilation: [rng.random_range(1..4), rng.random_range(1..3)],
            groups,
            ..ConvSpec::default()
        };
        let Ok(p) = ConvProblem::new(spec.clone()) else { continue };
        for rewrites in candidates(&p) {
            agree(spec.clone(), &rewrites);
            done += 1;
        }
    }
}

#[test]
fn tiles_are_no_larger_than_asked_and_channels_no_powers_of_two() {
    let spec = ConvSpec {
        n: 2,
        c: 16,
        k: 32,
        h: 224,
        w: 224,
        r: 7,
        s: 7,
        pad: [3, 3],
        stride: [2, 2],
        ..ConvSpec::default()
    };
    let p = ConvProblem::new(spec).unwrap();
    for rewrites in candidates(&p) {
        let mut sub = p.clone();
        for rewrite in &rewrites {
            sub = Split::new(*rewrite, &sub).unwrap().sub;
        }
        let s = sub.spec();
        for rewrite in &rewrites {
            match rewrite {
                Rewrite::PadChannels { .. } => {
                    assert!(!(s.c as u64).is_power_of_two() && !(s.k as u64).is_power_of_two())
                }
                Rewrite::Tiles { .. } => assert!(s.h <= 32 && s.w <= 32 && s.pad == [0, 0]),
                Rewrite::Batch { .. } => assert_eq!(s.n, 1),
            }
        }
    }
}

#[test]
fn what_cannot_be_cut_says_so() {
    let wide = ConvSpec { h: 100, w: 100, r: 33, s: 33, ..ConvSpec::default() };
    let p = ConvProblem::new(wide).unwrap();
    assert!(Split::new(Rewrite::Tiles { h: 32, w: 32 }, &p).is_err() && candidates(&p).is_empty());
    assert!(Split::new(Rewrite::Batch { n: 1 }, &p).is_err());
}
