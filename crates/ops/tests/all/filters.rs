//! Prepared filters that a queue keeps: made once while the filters stay as they are, again after any write, never too much
//! of them; and scratch memory that does not make independent work wait.

use crate::common;

use common::random;
use rand::Rng;
use rand::rngs::StdRng;
use std::time::Duration;
use wave32_cpu::{Inputs, oracle};
use wave32_device::DeviceError;
use wave32_ops::{
    Arg, ConvChain, ConvOperands, ElementType, Elementwise, Number, Op, Planner, Queue, View, Work, fill,
};
use wave32_problem::{
    Activation, ConvProblem, ConvSpec, DType, Direction, Factor, MatmulProblem, MatmulSpec, Matrices, Pass,
};
use wave32_solve::{DeviceCaps, Policy};
use wave32_vulkan::{Options, VulkanQueue};

/// A Vulkan queue that notes the kernels it launches.
struct Noting {
    queue: VulkanQueue,
    launched: Vec<String>,
}

impl Queue for Noting {
    fn caps(&self) -> &DeviceCaps {
        self.queue.caps()
    }

    fn launch(
        &mut self,
        kernel: &str,
        grid: [u32; 3],
        params: &[u32],
        args: &[Arg],
        work: Work,
    ) -> Result<(), DeviceError> {
        self.launched.push(kernel.into());
        self.queue.launch(kernel, grid, params, args, work)
    }

    common::stream::rest_of_queue!(queue);
}

fn open(options: Options) -> Option<Noting> {
    match wave32_vulkan::open(None, options) {
        Ok(queue) => Some(Noting { queue, launched: Vec::new() }),
        Err(error) if std::env::var_os("WAVE32_REQUIRE_VULKAN").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// A convolution on the device, and what it should be.
struct Case {
    chain: ConvChain,
    data: [Vec<f64>; 3],
    views: [View; 3],
    result: usize,
}

fn floats(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect()
}

impl Case {
    fn new(queue: &mut Noting, random: &mut StdRng, spec: &ConvSpec) -> Self {
        let problem = ConvProblem::new(spec.clone()).unwrap();
        let s = problem.spec();
        let images = [
            [s.n, s.c, s.h, s.w],
            [s.k, s.c / s.groups, s.r, s.s],
            [s.n, s.k, problem.out_h(), problem.out_w()],
        ];
        let images = images.map(|sizes| sizes.map(|size| size as u64));
        let data = images.map(|sizes| whole(random, sizes.iter().product()));
        let views = [0, 1, 2].map(|at| {
            let address = queue.alloc(data[at].len() as u64 * 4).unwrap();
            queue.upload(address, &floats(&data[at])).unwrap();
            View::contiguous(address, ElementType::F32, &images[at]).unwrap()
        });
        let result = if s.direction == Direction::Forward { 2 } else { 0 };
        Self { chain: ConvChain::new(problem, Vec::new()), data, views, result }
    }

    /// Runs it; the kernels that prepared filters, and the result's bytes, which are right.
    fn run(&self, planner: &mut Planner, queue: &mut Noting, what: &str) -> (Vec<String>, Vec<u8>) {
        let out = &self.views[self.result];
        fill(queue, out, Number::Float(f64::NAN)).unwrap();
        queue.launched.clear();
        let [x, w, y] = &self.views;
        planner.convolve(queue, &self.chain, ConvOperands { x, w, y }).unwrap();
        let mut prepared = queue.launched.clone();
        prepared.retain(|name| name.starts_with("pack") || name.starts_with("winograd_filter"));
        let mut bytes = vec![0; out.elements() as usize * 4];
        queue.download(out.address, &mut bytes).unwrap();
        let image = if self.result == 2 { 0 } else { 2 };
        let inputs = Inputs { a: &self.data[image], b: &self.data[1], bias: None };
        let right = oracle::conv(self.chain.problem(), &inputs);
        let got = bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        let wrong: f64 = got.zip(&right).map(|(got, right)| (got - right).powi(2)).sum();
        let norm: f64 = right.iter().map(|right| right * right).sum();
        assert!(wrong <= 4e-10 * norm, "{what}: {} of {}", wrong.sqrt(), norm.sqrt());
        (prepared, bytes)
    }

    fn upload(&mut self, queue: &mut Noting, first: usize, values: &[f64]) {
        self.data[1][first..][..values.len()].copy_from_slice(values);
        queue.upload(self.views[1].address + 4 * first as u64, &floats(values)).unwrap();
    }
}

/// Small whole numbers, which any order of sums adds alike.
fn whole(random: &mut StdRng, count: u64) -> Vec<f64> {
    (0..count).map(|_| f64::from(random.random_range(-4..=4))).collect()
}

/// Convolutions whose plans prepare filters, of each kind, and their solvers; a configuration behind some.
fn specs() -> Vec<(&'static str, ConvSpec)> {
    let plain = ConvSpec { n: 2, c: 16, h: 9, w: 12, k: 24, ..ConvSpec::default() };
    let three = ConvSpec { r: 3, s: 3, pad: [1, 1], ..plain.clone() };
    let back = |spec: &ConvSpec| ConvSpec { direction: Direction::BackwardData, ..spec.clone() };
    vec![
        ("gemm_1x1", plain.clone()),
        ("gemm_1x1", back(&plain)),
        ("igemm_packed", three.clone()),
        ("igemm_packed", back(&three)),
        ("igemm_packed", back(&ConvSpec { stride: [2, 2], ..three.clone() })),
        ("winograd", three.clone()),
        ("winograd", back(&three)),
        ("winograd f2/k32", three.clone()),
        ("winograd f2/k32", back(&three)),
    ]
}

fn planner(solver: &str) -> Planner {
    let (solver, config) =
        solver.split_once(' ').map_or((solver, None), |(solver, config)| (solver, Some(config)));
    let config = config.map(String::from);
    Planner::new(Policy { only: Some(solver.into()), config, ..Policy::default() })
}

#[test]
fn filters_are_prepared_once_until_something_writes_there() {
    let Some(mut queue) = open(Options::default()) else { return };
    let (mut random, seed) = random();
    for (solver, spec) in specs() {
        let mut planner = planner(solver);
        let mut case = Case::new(&mut queue, &mut random, &spec);
        let what = format!("{} by {solver}, seed {seed}", case.chain.problem());
        let settle = |case: &Case, planner: &mut Planner, queue: &mut Noting, what: &str| {
            let (first, bytes) = case.run(planner, queue, what);
            let (second, same) = case.run(planner, queue, what);
            let (third, again) = case.run(planner, queue, what);
            assert!(!first.is_empty() && first == second && third.is_empty(), "{what}: {first:?} {third:?}");
            assert!(bytes == same && bytes == again, "{what}: other bits");
        };
        settle(&case, &mut planner, &mut queue, &what);
        let (count, w) = (case.data[1].len(), case.views[1]);
        // From the host, one element.
        let at = random.random_range(0..count);
        case.upload(&mut queue, at, &[3.0]);
        settle(&case, &mut planner, &mut queue, &format!("{what}, uploaded"));
        // A copy on the device, onto the end.
        let other = queue.alloc(4 * count as u64).unwrap();
        let fresh = whole(&mut random, 8);
        queue.upload(other, &floats(&fresh)).unwrap();
        queue.copy(other, w.address + 4 * (count as u64 - 8), 32).unwrap();
        case.data[1][count - 8..].copy_from_slice(&fresh);
        settle(&case, &mut planner, &mut queue, &format!("{what}, copied to"));
        // A fill.
        queue.fill(w.address, 16, 2.0f32.to_bits()).unwrap();
        case.data[1][..4].fill(2.0);
        settle(&case, &mut planner, &mut queue, &format!("{what}, filled"));
        // A kernel, through a view of a part, in place.
        let part = w.narrow(0, 1, 2);
        Elementwise::new(Op::Neg, ElementType::F32).run(&mut queue, &[(&part).into()], &part).unwrap();
        let each = count / w.sizes()[0] as usize;
        case.data[1][each..3 * each].iter_mut().for_each(|value| *value = -*value);
        settle(&case, &mut planner, &mut queue, &format!("{what}, negated"));
        // What reads them, or writes beside them, changes nothing.
        queue.copy(w.address, other, 4 * count as u64).unwrap();
        queue.fill(other, 4 * count as u64, 0).unwrap();
        assert!(case.run(&mut planner, &mut queue, &what).0.is_empty(), "{what}, read");
        queue.free(other);
    }
}

#[test]
fn memory_that_is_freed_and_used_again_holds_other_filters() {
    let Some(mut queue) = open(Options::default()) else { return };
    let (mut random, seed) = random();
    for (solver, spec) in specs() {
        let mut planner = planner(solver);
        let mut reused = 0;
        let mut before: Vec<(u64, u64)> = Vec::new();
        for round in 0..8 {
            let case = Case::new(&mut queue, &mut random, &spec);
            let what = format!("{} by {solver}, round {round}, seed {seed}", case.chain.problem());
            let start = case.views[1].address;
            let end = start + 4 * case.data[1].len() as u64;
            reused += u32::from(before.iter().any(|&(s, e)| start < e && s < end));
            before.push((start, end));
            for run in 0..3 {
                let (prepared, _) = case.run(&mut planner, &mut queue, &what);
                assert_eq!(prepared.is_empty(), run == 2, "{what}, run {run}");
            }
            // The filters first, so that their block is found again.
            case.views.iter().for_each(|view| queue.free(view.address));
            assert_eq!(queue.kept().unwrap().bytes(), 0, "{what}: filters that are gone are kept");
        }
        assert!(reused > 0, "no block was used again: nothing was put to the test, seed {seed}");
    }
    assert_eq!(queue.queue.empty_cache().map(|()| queue.queue.heap_stats().allocated).unwrap(), 0);
}

#[test]
fn what_is_kept_makes_way_where_memory_runs_out() {
    let cap = 12 << 20;
    let Some(mut queue) = open(Options { memory_cap: Some(cap), ..Options::default() }) else { return };
    let (mut random, seed) = random();
    // Without parts, whose sums would need memory too.
    let config = Some("p64x64k8/1".into());
    let mut planner = Planner::new(Policy { only: Some("igemm_packed".into()), config, ..Policy::default() });
    let spec = ConvSpec { c: 64, k: 256, r: 3, s: 3, pad: [1, 1], h: 6, w: 6, ..ConvSpec::default() };
    let cases: Vec<Case> = (0..4).map(|_| Case::new(&mut queue, &mut random, &spec)).collect();
    let what = format!("{} x 4, seed {seed}", cases[0].chain.problem());
    for _ in 0..3 {
        cases.iter().for_each(|case| drop(case.run(&mut planner, &mut queue, &what)));
    }
    let kept = queue.kept().unwrap().bytes();
    assert!(kept > 2 << 20, "{kept} bytes kept");
    let large = cap - queue.queue.heap_stats().reserved + (1 << 20);
    let large = queue.alloc(large).expect("there is room without what is kept");
    assert_eq!(queue.kept().unwrap().bytes(), 0);
    queue.free(large);
    // It works on, with less of it.
    for _ in 0..4 {
        cases.iter().for_each(|case| drop(case.run(&mut planner, &mut queue, &what)));
    }
    assert!(queue.kept().unwrap().bytes() <= kept / 2, "{what}");
}

/// Backward-data and backward-weights of a layer both need scratch memory, and not each other.
#[test]
fn independent_work_does_not_wait_for_scratch_memory() {
    // So few launches that they are one submit. A busy processor's launches are long, and would go in submits of their own.
    let submit_target = Some(Duration::from_secs(3600));
    let Some(mut queue) = open(Options { submit_target, ..Options::default() }) else { return };
    let (mut random, seed) = random();
    let config = Some("p64x64k8/1".into());
    let mut planner = Planner::new(Policy { only: Some("igemm_packed".into()), config, ..Policy::default() });
    let back = ConvSpec {
        direction: Direction::BackwardData,
        n: 1,
        c: 16,
        k: 16,
        h: 8,
        w: 8,
        r: 3,
        s: 3,
        pad: [1, 1],
        ..ConvSpec::default()
    };
    let mut cases: Vec<Case> = (0..3).map(|_| Case::new(&mut queue, &mut random, &back)).collect();
    for case in &cases {
        case.run(&mut planner, &mut queue, &format!("seed {seed}"));
    }
    // Other filters each time, as in training.
    for case in &mut cases {
        case.upload(&mut queue, 0, &[1.0]);
    }
    queue.synchronize().unwrap();
    queue.barrier().unwrap();
    let before = queue.queue.counts().barriers;
    for case in &cases {
        let [x, w, y] = &case.views;
        planner.convolve(&mut queue, &case.chain, ConvOperands { x, w, y }).unwrap();
    }
    // One in each, between packing filters and using them.
    let barriers = queue.queue.counts().barriers - before;
    assert_eq!(barriers, 3, "seed {seed}");
}

/// A product of few elements and long sums: the fastest plan splits them, on any device; one does not.
#[test]
fn a_product_without_room_for_its_workspace_takes_a_smaller_plan() {
    let (mut random, seed) = random();
    let (side, depth) = (120u64, 6000u64);
    let [bytes, out_bytes] = [side * depth * 4, side * side * 4];
    // Room for the operands, one of which has gaps.
    let memory_cap = Some(3 * bytes + out_bytes + 4096);
    let Some(mut queue) = open(Options { memory_cap, ..Options::default() }) else {
        return;
    };
    let (a, b) = (whole(&mut random, side * depth), whole(&mut random, side * depth));
    let spread: Vec<f64> = a.iter().flat_map(|&value| [value, f64::NAN]).collect();
    let addresses = [2 * bytes, bytes, out_bytes].map(|bytes| queue.alloc(bytes).unwrap());
    queue.upload(addresses[0], &floats(&spread)).unwrap();
    queue.upload(addresses[1], &floats(&b)).unwrap();
    queue.fill(addresses[2], out_bytes, f32::NAN.to_bits()).unwrap();
    let strides = [2 * side * depth, 2 * depth, 2];
    let va = View::new(addresses[0], ElementType::F32, &[1, side, depth], &strides).unwrap();
    let vb = View::contiguous(addresses[1], ElementType::F32, &[1, depth, side]).unwrap();
    let out = View::contiguous(addresses[2], ElementType::F32, &[1, side, side]).unwrap();
    let mut planner = Planner::default();
    let matrices = |strides: &[u64]| Matrices { first: 0, strides: [0, 1, 2].map(|at| strides[at] as i64) };
    let spec = MatmulSpec {
        dtype: DType::F32,
        batch: 1,
        m: side as i64,
        k: depth as i64,
        n: side as i64,
        a: matrices(va.strides()),
        b: matrices(vb.strides()),
        alpha: Factor(1.0),
        added: None,
        activation: Activation::None,
        pass: Pass::Forward,
    };
    let fastest =
        &planner.ranked(&queue.caps().clone(), &MatmulProblem::new(spec).unwrap(), false).unwrap()[0];
    assert!(fastest.plan.workspace_bytes > out_bytes, "it needs no workspace: nothing is put to the test");
    planner
        .matmul(&mut queue, Pass::Forward, &va, &vb, &out)
        .unwrap_or_else(|error| panic!("{error}, seed {seed}"));
    let mut got = vec![0; out_bytes as usize];
    queue.download(out.address, &mut got).unwrap();
    let (side, depth) = (side as usize, depth as usize);
    for at in (0..side * side).step_by(97) {
        let (row, column) = (at / side, at % side);
        let right: f64 = (0..depth).map(|t| a[row * depth + t] * b[t * side + column]).sum();
        let b = &got[4 * at..];
        assert_eq!(f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])), right, "seed {seed}");
    }
}
