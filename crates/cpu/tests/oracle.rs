//! The oracle against cases computed by hand, against PyTorch, and against itself.

mod common;

use common::{Operands, fresh_seed, random_problem, rng};
use rand::Rng;
use wave32_cpu::{Inputs, oracle};
use wave32_problem::{Activation, ConvProblem, ConvSpec, Direction, Epilogue, Layout};

fn check(spec: ConvSpec, a: &[f64], b: &[f64], bias: Option<&[f64]>, want: &[f64]) {
    let p = ConvProblem::new(spec).unwrap();
    assert_eq!(oracle::conv(&p, &Inputs { a, b, bias }), want, "{p}");
}

/// 2x2 filter 1 2 / 3 4 over the 3x3 image 1..9.
fn square() -> ConvSpec {
    ConvSpec { h: 3, w: 3, r: 2, s: 2, ..ConvSpec::default() }
}

const IMAGE: [f64; 9] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
const FILTER: [f64; 4] = [1.0, 2.0, 3.0, 4.0];

#[test]
fn forward_by_hand() {
    // 1*1 + 2*2 + 3*4 + 4*5 = 37; one column on adds 1+2+3+4 = 10, one row on 30.
    check(square(), &IMAGE, &FILTER, None, &[37.0, 47.0, 67.0, 77.0]);
    // Stride 2, padding 1: windows around the corners, e.g. 4*1; 3*2 + 4*3; 2*4 + 4*7; all of 5 6 8 9.
    let padded = ConvSpec { stride: [2, 2], pad: [1, 1], ..square() };
    check(padded, &IMAGE, &FILTER, None, &[4.0, 18.0, 36.0, 77.0]);
    // Dilation 2: the four corners, 1*1 + 2*3 + 3*7 + 4*9.
    check(ConvSpec { dilation: [2, 2], ..square() }, &IMAGE, &FILTER, None, &[64.0]);
    // Bias -40 turns 37 negative; ReLU cuts it.
    let epilogue = Epilogue { bias: true, activation: Activation::Relu };
    check(ConvSpec { epilogue, ..square() }, &IMAGE, &FILTER, Some(&[-40.0]), &[0.0, 7.0, 27.0, 37.0]);
}

#[test]
fn backward_by_hand() {
    // dy = 1 1 / 1 1 spreads the filter: dx is the filter's four shifted copies summed.
    let ones = [1.0; 4];
    let dx = [1.0, 3.0, 2.0, 4.0, 10.0, 6.0, 3.0, 7.0, 4.0];
    check(ConvSpec { direction: Direction::BackwardData, ..square() }, &ones, &FILTER, None, &dx);
    // dw: sums of the four 2x2 windows, 1+2+4+5 and so on.
    let dw = [12.0, 16.0, 24.0, 28.0];
    check(ConvSpec { direction: Direction::BackwardWeights, ..square() }, &IMAGE, &ones, None, &dw);
}

#[test]
fn groups_and_channels_last_by_hand() {
    // Two groups of one channel, filters 10 and 100, two pixels; channels interleaved.
    let spec = ConvSpec { c: 2, k: 2, groups: 2, w: 2, layout: Layout::Nhwc, ..ConvSpec::default() };
    check(spec.clone(), &[1.0, 2.0, 3.0, 4.0], &[10.0, 100.0], None, &[10.0, 200.0, 30.0, 400.0]);
    // One group, two channels in, one out: 1*10 + 2*100, 3*10 + 4*100.
    let dense = ConvSpec { k: 1, groups: 1, ..spec };
    check(dense, &[1.0, 2.0, 3.0, 4.0], &[10.0, 100.0], None, &[210.0, 430.0]);
}

#[test]
fn transposed_by_hand() {
    // 1-D, stride 2, filter 1 2 3: pixel 5 paints 5 10 15, pixel 7 paints 7 14 21 two further on.
    let spec = ConvSpec { w: 2, s: 3, stride: [1, 2], transposed: true, ..ConvSpec::default() };
    let (x, w) = ([5.0, 7.0], [1.0, 2.0, 3.0]);
    check(spec.clone(), &x, &w, None, &[5.0, 10.0, 22.0, 14.0, 21.0]);
    // Output padding adds a pixel that nothing reaches.
    let longer = ConvSpec { output_pad: [0, 1], ..spec.clone() };
    check(longer, &x, &w, None, &[5.0, 10.0, 22.0, 14.0, 21.0, 0.0]);
    // Backward: dx[0] = dy[0..3] . w, dx[1] = dy[2..5] . w; dw[s] = 5*dy[s] + 7*dy[s+2].
    let dy = [1.0, 2.0, 3.0, 4.0, 5.0];
    let data = ConvSpec { direction: Direction::BackwardData, ..spec.clone() };
    check(data, &dy, &w, None, &[14.0, 26.0]);
    let weights = ConvSpec { direction: Direction::BackwardWeights, ..spec };
    check(weights, &x, &dy, None, &[26.0, 38.0, 50.0]);
}

#[test]
fn transposed_definition_equals_the_plain_problem_it_maps_to() {
    let seed = fresh_seed();
    let mut rng = rng(seed);
    let mut seen = 0;
    while seen < 60 {
        let p = random_problem(&mut rng, 200_000);
        if !p.spec().transposed {
            continue;
        }
        seen += 1;
        let o = Operands::new(&p, || rng.random_range(-1.0..1.0f32));
        let plain = p.to_plain();
        let mut i = o.inputs();
        if p.spec().direction == Direction::BackwardWeights {
            std::mem::swap(&mut i.a, &mut i.b);
        }
        let error = o.error(&p, &oracle::conv(&plain, &i));
        assert!(error <= 1e-14, "{error}: seed {seed}, {p}");
    }
}

#[derive(serde::Deserialize)]
struct Fixture {
    torch: String,
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    spec: ConvSpec,
    a: Vec<f64>,
    b: Vec<f64>,
    bias: Option<Vec<f64>>,
    out: Vec<f64>,
}

/// `scripts/oracle_torch.py` writes the fixture.
#[test]
fn agrees_with_pytorch() {
    let fixture: Fixture = serde_json::from_str(include_str!("data/torch_oracle.json")).unwrap();
    assert!(fixture.cases.len() >= 60, "the fixture (PyTorch {}) lost its cases", fixture.torch);
    for (index, case) in fixture.cases.into_iter().enumerate() {
        let p = ConvProblem::new(case.spec).unwrap();
        let got = oracle::conv(&p, &Inputs { a: &case.a, b: &case.b, bias: case.bias.as_deref() });
        assert_eq!(got.len(), case.out.len(), "case {index}: {p}");
        for (i, (got, want)) in got.iter().zip(&case.out).enumerate() {
            let limit = 1e-12 * want.abs().max(1.0);
            assert!((got - want).abs() <= limit, "case {index}, element {i}: {got} against {want}: {p}");
        }
    }
}
