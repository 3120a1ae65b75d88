//! Convolutions with post-ops against the CPU oracle, what their kernels absorb, and the cache of plans.

use crate::common;

use common::{TestQueue, close, get, put, random, stream, values};
use std::sync::Arc;
use wave32_cpu::{Inputs, oracle};
use wave32_device::DeviceError;
use wave32_ops::activation::{Activation, ActivationMode};
use wave32_ops::{Arg, ConvChain, ConvOperands, ElementType, Planner, PostOp, Queue, View, Work, storage};
use wave32_problem::{ConvProblem, ConvSpec, Direction, Layout};
use wave32_solve::{DeviceCaps, Policy, usual_boards};

/// A device that counts the elementwise launches.
struct Counting {
    stream: TestQueue,
    elementwise: usize,
}

impl Queue for Counting {
    fn caps(&self) -> &DeviceCaps {
        self.stream.caps()
    }

    fn launch(
        &mut self,
        kernel: &str,
        grid: [u32; 3],
        params: &[u32],
        args: &[Arg],
        work: Work,
    ) -> Result<(), DeviceError> {
        self.elementwise += usize::from(kernel.starts_with("ew_"));
        Queue::launch(&mut self.stream, kernel, grid, params, args, work)
    }

    common::stream::rest_of_queue!(stream);
}

/// A post-op of a test; its operands are made for the problem.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Bias,
    /// Of f32, whatever the convolution's type is.
    WideBias,
    Relu,
    Leaky,
    /// One that kernels know.
    Known(wave32_problem::Activation),
    Residual,
    /// What lay where the result goes.
    Sum,
    /// The same, both with factors.
    SumOfBoth,
}
use Step::{Bias, Known, Leaky, Relu, Residual, Sum, SumOfBoth, WideBias};

const LEAKY: Activation = Activation { mode: ActivationMode::LeakyRelu, alpha: 0.125, beta: 0.0, gamma: 0.0 };

/// Strides of an image in that layout, with gaps where `gap` is more than 1.
fn strides([_, c, h, w]: [u64; 4], layout: Layout, gap: u64) -> [u64; 4] {
    match layout {
        Layout::Nchw => [c * h * w * gap, h * w * gap, w * gap, gap],
        Layout::Nhwc => [c * h * w * gap, gap, c * w * gap, c * gap],
    }
}

/// Runs one chain on `queue`, and compares result, absorbed post-ops and launches.
fn check(queue: &mut Counting, spec: &ConvSpec, dtype: ElementType, steps: &[Step], fused: usize, gap: u64) {
    let (mut random, seed) = random();
    let spec = ConvSpec { dtype: storage(dtype).unwrap(), ..spec.clone() };
    let problem = ConvProblem::new(spec).unwrap();
    let s = problem.spec();
    let sizes = |of: [i64; 4]| of.map(|size| size as u64);
    let filter = if s.transposed { [s.c, s.k / s.groups] } else { [s.k, s.c / s.groups] };
    let images = [
        sizes([s.n, s.c, s.h, s.w]),
        sizes([filter[0], filter[1], s.r, s.s]),
        sizes([s.n, s.k, problem.out_h(), problem.out_w()]),
    ];
    let (result, [a, b]) = match s.direction {
        Direction::Forward => (2, [0, 1]),
        Direction::BackwardData => (0, [2, 1]),
        Direction::BackwardWeights => (1, [0, 2]),
    };
    let data = images.map(|image| values(&mut random, dtype, image.iter().product(), 1.0));
    let views: [View; 3] = std::array::from_fn(|at| {
        put(&mut queue.stream, dtype, &images[at], &strides(images[at], s.layout, gap), &data[at])
    });
    // The order of memory changes no element.
    let plain = ConvProblem::new(ConvSpec { layout: Layout::Nchw, ..s.clone() }).unwrap();
    let mut expected = oracle::conv(&plain, &Inputs { a: &data[a], b: &data[b], bias: None });

    let target = images[result];
    let mut post_ops = Vec::new();
    for step in steps {
        let relu = |value: f64| value.max(0.0);
        match step {
            Bias | WideBias => {
                let of = if matches!(step, WideBias) { ElementType::F32 } else { dtype };
                let bias = values(&mut random, of, target[1], 1.0);
                for (at, value) in expected.iter_mut().enumerate() {
                    *value += bias[at / (target[2] * target[3]) as usize % target[1] as usize];
                }
                post_ops.push(PostOp::Bias(put(&mut queue.stream, of, &target[1..2], &[1], &bias)));
            }
            Relu => {
                expected.iter_mut().for_each(|value| *value = relu(*value));
                post_ops.push(PostOp::Activation(Activation::RELU));
            }
            Leaky => {
                expected.iter_mut().for_each(|value| *value = relu(*value) - 0.125 * relu(-*value));
                post_ops.push(PostOp::Activation(LEAKY));
            }
            &Known(activation) => {
                expected.iter_mut().for_each(|value| *value = activation.apply(*value));
                post_ops.extend(Activation::from_kernels(activation).map(PostOp::Activation));
            }
            Residual | Sum | SumOfBoth => {
                let sum = !matches!(step, Residual);
                let (alpha, beta) = if matches!(step, SumOfBoth) { (0.5, -2.0) } else { (1.0, 1.0) };
                let fresh = values(&mut random, dtype, target.iter().product(), 1.0);
                let other = if sum { &data[result] } else { &fresh };
                for (value, other) in expected.iter_mut().zip(other) {
                    *value = alpha * *value + beta * other;
                }
                let lies = strides(target, s.layout, 1);
                let fresh = put(&mut queue.stream, dtype, &target, &lies, &fresh);
                let other = if sum { views[result] } else { fresh };
                post_ops.push(PostOp::Add { alpha, beta, other });
            }
        }
    }

    let what = format!("{problem} {dtype:?} {steps:?}, gap {gap}, seed {seed}");
    let chain = ConvChain::new(problem.clone(), post_ops);
    assert_eq!(chain.fused(), fused, "{what}");
    let absorbed = chain.problem().spec().epilogue;
    let is_activated = absorbed.activation != wave32_problem::Activation::None;
    assert_eq!(usize::from(absorbed.bias) + usize::from(is_activated), fused, "{what}");
    let [x, w, y] = &views;
    queue.elementwise = 0;
    // These solvers' kernels add nothing to their results.
    let skip =
        if steps.contains(&Sum) { vec!["direct_few".into(), "im2col_gemm".into()] } else { Vec::new() };
    let mut planner = Planner::new(Policy { skip, ..Policy::default() });
    planner.convolve(queue, &chain, ConvOperands { x, w, y }).unwrap();
    // With two factors there is one more. Kernels of forward passes add what lies in their result's place, and then an activation.
    let scaled = steps.iter().filter(|step| matches!(step, SumOfBoth)).count();
    let summing = match steps[fused..] {
        _ if s.direction != Direction::Forward || gap > 1 || is_activated => 0,
        [Sum, Relu | Known(_), ..] => 2,
        [Sum, ..] => 1,
        _ => 0,
    };
    assert_eq!(queue.elementwise, steps.len() - fused + scaled - summing, "{what}");
    let tolerance = if dtype == ElementType::F32 { 1e-6 } else { 4e-3 };
    close(&get(&mut queue.stream, &views[result]), &expected, tolerance, &what);
}

#[test]
fn kernels_absorb_a_bias_and_an_activation_and_the_rest_is_launched() {
    let Some(stream) = stream() else { return };
    let mut queue = Counting { stream, elementwise: 0 };
    let base = ConvSpec { n: 2, c: 6, h: 7, w: 5, k: 4, r: 3, s: 3, pad: [1, 1], ..ConvSpec::default() };
    let chains: [(&[Step], usize); 18] = [
        (&[], 0),
        (&[Bias], 1),
        (&[Relu], 1),
        (&[Bias, Relu], 2),
        (&[Bias, Relu, Residual], 2),
        (&[Bias, Residual, Relu], 1),
        (&[Residual, Bias, Relu], 0),
        (&[Relu, Bias], 1),
        (&[Bias, Bias, Relu], 1),
        (&[Bias, Leaky, Relu], 1),
        (&[Leaky], 0),
        (&[SumOfBoth, Bias, Relu], 0),
        (&[Bias, Leaky, SumOfBoth, Relu], 1),
        (&[Sum], 0),
        (&[Bias, Sum, Relu], 1),
        (&[Bias, Sum, Leaky, Relu], 1),
        (&[Sum, Relu, Residual], 0),
        (&[Relu, Sum, Relu], 1),
    ];
    for (at, (steps, fused)) in chains.into_iter().enumerate() {
        for dtype in [ElementType::F32, ElementType::F16] {
            // Where elements lie apart, operands are copied and the result is made elsewhere.
            for gap in [1, 2] {
                let is_last = (at as u64 + gap).is_multiple_of(2);
                let layout = if is_last { Layout::Nhwc } else { Layout::Nchw };
                check(&mut queue, &ConvSpec { layout, ..base.clone() }, dtype, steps, fused, gap);
            }
        }
    }
    for activation in wave32_problem::Activation::ALL.into_iter().skip(1) {
        for dtype in [ElementType::F32, ElementType::F16] {
            check(&mut queue, &base, dtype, &[Bias, Known(activation), Residual], 2, 1);
            check(&mut queue, &base, dtype, &[Bias, Sum, Known(activation)], 1, 1);
            check(&mut queue, &base, dtype, &[Residual, Known(activation)], 0, 1);
        }
    }
    let wide = [WideBias, Relu];
    check(&mut queue, &base, ElementType::F32, &wide, 2, 1);
    check(&mut queue, &base, ElementType::F16, &wide, 0, 1);
    let transposed = ConvSpec { transposed: true, stride: [2, 1], groups: 2, ..base };
    check(&mut queue, &transposed, ElementType::F32, &[Bias, Relu, Leaky], 2, 1);
}

#[test]
fn kernels_of_gradients_absorb_nothing() {
    let Some(stream) = stream() else { return };
    let mut queue = Counting { stream, elementwise: 0 };
    for direction in [Direction::BackwardData, Direction::BackwardWeights] {
        let spec = ConvSpec { direction, n: 2, c: 3, h: 6, w: 4, k: 5, r: 2, s: 3, ..ConvSpec::default() };
        for steps in [&[Bias, Relu][..], &[SumOfBoth], &[Sum, Relu], &[Residual, Leaky]] {
            check(&mut queue, &spec, ElementType::F32, steps, 0, 1);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_runs() {
    let Some(stream) = stream() else { return };
    let mut queue = Counting { stream, elementwise: 0 };
    let mut planner = Planner::default();
    let problem = ConvProblem::new(ConvSpec { c: 2, k: 3, ..ConvSpec::default() }).unwrap();
    let mut image =
        |c: u64| put(&mut queue.stream, ElementType::F32, &[1, c, 1, 1], &[c, 1, 1, 1], &[7.0; 3]);
    let (x, y, short) = (image(2), image(3), image(2));
    let w = put(&mut queue.stream, ElementType::F32, &[3, 2, 1, 1], &[2, 1, 1, 1], &[1.0; 6]);
    let bias = |elements: u64| View::new(x.address, ElementType::F32, &[elements], &[1]).unwrap();
    let other = PostOp::Add { alpha: 1.0, beta: 1.0, other: short };
    let relu = PostOp::Activation(Activation::RELU);
    for post_ops in [vec![PostOp::Bias(bias(2))], vec![relu, PostOp::Bias(bias(2))], vec![other]] {
        let chain = ConvChain::new(problem.clone(), post_ops);
        let refused = planner.convolve(&mut queue, &chain, ConvOperands { x: &x, w: &w, y: &y }).unwrap_err();
        assert!(refused.to_string().starts_with("wrong-size"), "{refused}");
    }
    let chain = ConvChain::new(problem, Vec::new());
    assert!(planner.convolve(&mut queue, &chain, ConvOperands { x: &y, w: &w, y: &y }).is_err());
    assert_eq!(get(&mut queue.stream, &y), [7.0; 3]);
}

#[test]
fn plans_are_kept_for_one_device_and_not_without_bound() {
    let caps = DeviceCaps::of(usual_boards()[0]);
    let problem = |n: i64| ConvProblem::new(ConvSpec { n, c: 4, k: 4, ..ConvSpec::default() }).unwrap();
    let mut planner = Planner::new(Policy { only: Some("direct".into()), ..Policy::default() });
    let mut ranked = |caps: &DeviceCaps, problem: &ConvProblem| planner.ranked(caps, problem, false).unwrap();
    let first = ranked(&caps, &problem(1));
    assert!(Arc::ptr_eq(&first, &ranked(&caps, &problem(1))));
    let relu = vec![PostOp::Activation(Activation::RELU)];
    assert_ne!(first[0].plan, ranked(&caps, ConvChain::new(problem(1), relu).problem())[0].plan);
    let slower = DeviceCaps { clock_mhz: caps.clock_mhz / 2, ..caps.clone() };
    assert!(ranked(&slower, &problem(1))[0].seconds > first[0].seconds);
    let (forgotten, mut n) = (Arc::downgrade(&ranked(&slower, &problem(1))), 1);
    while forgotten.upgrade().is_some() {
        n += 1;
        assert!(n <= 5000, "plans of {n} problems are kept");
        ranked(&slower, &problem(n));
    }
    assert!(n > 4000, "plans of {n} problems only");
}

#[test]
fn a_frugal_plan_needs_no_workspace() {
    let caps = DeviceCaps::of(usual_boards()[0]);
    let spec = ConvSpec { n: 8, c: 64, h: 28, w: 28, k: 64, r: 3, s: 3, pad: [1, 1], ..ConvSpec::default() };
    let problem = ConvProblem::new(ConvSpec { direction: Direction::BackwardWeights, ..spec }).unwrap();
    let mut planner = Planner::default();
    let bytes = |ranked: &[wave32_ops::PricedPlan]| {
        ranked.iter().map(|found| found.plan.workspace_bytes).collect::<Vec<_>>()
    };
    let ranked = planner.ranked(&caps, &problem, false).unwrap();
    assert!(bytes(&ranked).iter().any(|&bytes| bytes > 0) && ranked.is_sorted_by_key(|found| found.seconds));
    let frugal = planner.ranked(&caps, &problem, true).unwrap();
    assert!(!frugal.is_empty() && bytes(&frugal).iter().all(|&bytes| bytes == 0));
    assert!(Arc::ptr_eq(&ranked, &planner.ranked(&caps, &problem, false).unwrap()));
}
