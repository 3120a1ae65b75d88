//! What is more than a launch can bind, in parts: on a device that binds little, so that small tensors are large.

use crate::common;

use common::{Narrow, close, get, put, put_plain, random, room, stream, values};
use wave32_cpu::{Inputs, oracle};
use wave32_ops::activation::Activation;
use wave32_ops::{
    ConvChain, ConvOperands, ElementType, Planner, PostOp, Reduce, View, extreme, reduce, storage, variance,
};
use wave32_problem::{ConvProblem, ConvSpec, Direction, Layout};
use wave32_solve::{Policy, too_large};

/// Strides of a dense image in that layout.
fn strides([_, c, h, w]: [u64; 4], layout: Layout) -> [u64; 4] {
    match layout {
        Layout::Nchw => [c * h * w, h * w, w, 1],
        Layout::Nhwc => [c * h * w, 1, c * w, c],
    }
}

/// Of each way to be too large: many images, images that do not begin where a binding may, one long image, several.
fn specs() -> Vec<ConvSpec> {
    let plain = ConvSpec { c: 8, k: 8, r: 3, s: 3, pad: [1, 1], ..ConvSpec::default() };
    vec![
        ConvSpec { n: 24, h: 16, w: 16, ..plain.clone() },
        ConvSpec { n: 23, h: 15, w: 17, ..plain.clone() },
        ConvSpec { n: 1, h: 110, w: 20, ..plain.clone() },
        ConvSpec { n: 3, h: 111, w: 19, pad: [2, 0], ..plain.clone() },
        ConvSpec { n: 1, h: 120, w: 20, stride: [2, 2], dilation: [2, 1], pad: [3, 2], ..plain.clone() },
        ConvSpec { n: 1, h: 130, w: 20, r: 1, s: 1, stride: [3, 2], pad: [0, 0], ..plain.clone() },
        ConvSpec { n: 1, c: 8, k: 24, h: 60, w: 20, ..plain.clone() },
        ConvSpec { n: 2, h: 120, w: 20, groups: 4, ..plain.clone() },
        ConvSpec { n: 1, h: 60, w: 20, stride: [2, 2], output_pad: [1, 0], transposed: true, ..plain },
    ]
}

#[test]
fn convolutions_are_right_in_parts() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let mut planner = Planner::default();
    let mut tried = 0;
    for spec in specs() {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            for direction in Direction::ALL {
                for dtype in [ElementType::F32, ElementType::F16] {
                    let spec = ConvSpec { layout, direction, dtype: storage(dtype).unwrap(), ..spec.clone() };
                    let Ok(problem) = ConvProblem::new(spec) else { continue };
                    let s = problem.spec();
                    let filter = if s.transposed { [s.c, s.k / s.groups] } else { [s.k, s.c / s.groups] };
                    let images = [
                        [s.n, s.c, s.h, s.w],
                        [filter[0], filter[1], s.r, s.s],
                        [s.n, s.k, problem.out_h(), problem.out_w()],
                    ];
                    let images = images.map(|sizes| sizes.map(|size| size as u64));
                    let (result, [a, b]) = match direction {
                        Direction::Forward => (2, [0, 1]),
                        Direction::BackwardData => (0, [2, 1]),
                        Direction::BackwardWeights => (1, [0, 2]),
                    };
                    let data = images.map(|sizes| values(&mut random, dtype, sizes.iter().product(), 1.0));
                    let views: [View; 3] = std::array::from_fn(|at| {
                        put(&mut stream, dtype, &images[at], &strides(images[at], layout), &data[at])
                    });
                    let plain = ConvProblem::new(ConvSpec { layout: Layout::Nchw, ..s.clone() }).unwrap();
                    let mut expected = oracle::conv(&plain, &Inputs { a: &data[a], b: &data[b], bias: None });
                    let mut post_ops = Vec::new();
                    if direction == Direction::Forward {
                        let bias = values(&mut random, dtype, s.k as u64, 1.0);
                        let area = (images[2][2] * images[2][3]) as usize;
                        for (at, value) in expected.iter_mut().enumerate() {
                            *value = (*value + bias[at / area % s.k as usize]).max(0.0);
                        }
                        let bias = put_plain(&mut stream, dtype, &[s.k as u64], &bias);
                        post_ops = vec![PostOp::Bias(bias), PostOp::Activation(Activation::RELU)];
                    }
                    let mut narrow = Narrow::new(stream, dtype.size() << 14);
                    assert!(too_large(&problem, &narrow.caps).is_some(), "{problem} fits");
                    let chain = ConvChain::new(problem.clone(), post_ops);
                    let [x, w, y] = &views;
                    let done = planner.convolve(&mut narrow, &chain, ConvOperands { x, w, y });
                    stream = narrow.stream;
                    done.unwrap_or_else(|error| panic!("{problem}: {error}"));
                    let tolerance = if dtype == ElementType::F32 { 2e-5 } else { 7e-3 };
                    close(
                        &get(&mut stream, &views[result]),
                        &expected,
                        tolerance,
                        &format!("{problem}, seed {seed}"),
                    );
                    views.iter().for_each(|view| stream.free(view.address));
                    tried += 1;
                }
            }
        }
    }
    assert!(tried >= 100, "{tried} problems");
}

/// The same arithmetic by the same configuration: the bits of the whole batch.
#[test]
fn a_batch_in_parts_has_the_bits_of_the_whole() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let spec = ConvSpec { n: 40, c: 16, h: 20, w: 20, k: 16, r: 3, s: 3, pad: [1, 1], ..ConvSpec::default() };
    for direction in [Direction::Forward, Direction::BackwardData] {
        for (solver, config) in [
            ("igemm", "g64x64/1"),
            ("winograd", "f4/w64x64/1"),
            ("winograd", "f2/k32"),
            ("igemm_packed", "p64x64/1"),
        ] {
            let problem = ConvProblem::new(ConvSpec { direction, ..spec.clone() }).unwrap();
            let policy =
                Policy { only: Some(solver.into()), config: Some(config.into()), ..Policy::default() };
            let sizes = [[40, 16, 20, 20], [16, 16, 3, 3], [40, 16, 20, 20]];
            let views: [View; 3] = sizes.map(|sizes| {
                let data = values(&mut random, ElementType::F32, sizes.iter().product(), 1.0);
                put_plain(&mut stream, ElementType::F32, &sizes, &data)
            });
            let [x, w, y] = &views;
            let result = if direction == Direction::Forward { y } else { x };
            let chain = ConvChain::new(problem.clone(), Vec::new());
            let Ok(whole) = wave32_solve::plan(&problem, stream.caps(), &policy) else {
                panic!("{solver} {config} is no configuration of {problem}")
            };
            chain.run(&mut stream, &whole, ConvOperands { x, w, y }, None).unwrap();
            let bits = get(&mut stream, result);
            let mut narrow = Narrow::new(stream, 400 << 10);
            let parts = wave32_solve::plan(&problem, &narrow.caps, &policy).unwrap();
            assert!(parts.config.contains(" in ") && parts.launches.len() > whole.launches.len());
            wave32_ops::fill(&mut narrow, result, wave32_ops::Number::Float(f64::NAN)).unwrap();
            chain.run(&mut narrow, &parts, ConvOperands { x, w, y }, None).unwrap();
            stream = narrow.stream;
            assert!(get(&mut stream, result) == bits, "{problem} by {solver}, seed {seed}");
        }
    }
}

#[test]
fn reductions_are_right_in_parts() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let sizes = [6u64, 10, 300];
    let count: u64 = sizes.iter().product();
    let data = values(&mut random, ElementType::F32, count, 1.0);
    let x = put_plain(&mut stream, ElementType::F32, &sizes, &data);
    for dims in [&[0usize][..], &[1], &[2], &[0, 2], &[0, 1, 2], &[1, 2]] {
        let kept: Vec<u64> = (0..3).filter(|dim| !dims.contains(dim)).map(|dim| sizes[dim]).collect();
        // The elements of each result, in order.
        let mut groups = vec![Vec::new(); kept.iter().product::<u64>() as usize];
        for (at, &value) in data.iter().enumerate() {
            let index = [at as u64 / 3000, at as u64 / 300 % 10, at as u64 % 300];
            let group =
                (0..3).filter(|dim| !dims.contains(dim)).fold(0, |g, dim| g * sizes[dim] + index[dim]);
            groups[group as usize].push(value);
        }
        let of = |f: &dyn Fn(&[f64]) -> f64| groups.iter().map(|group| f(group)).collect::<Vec<f64>>();
        let sum = |group: &[f64]| group.iter().sum::<f64>();
        let mean = |group: &[f64]| sum(group) / group.len() as f64;
        let most = |group: &[f64]| group.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let place = |group: &[f64]| group.iter().position(|&value| value == most(group)).unwrap() as f64;
        let spread = |group: &[f64]| {
            let mean = mean(group);
            group.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / group.len() as f64
        };
        let what = format!("over {dims:?}, seed {seed}");
        let outs: Vec<View> = (0..5).map(|_| room(&mut stream, ElementType::F32, &kept)).collect();
        let places = room(&mut stream, ElementType::I64, &kept);
        let mut narrow = Narrow::new(stream, 16 << 10);
        assert!(!x.fits(&narrow.caps));
        for (how, out) in [(Reduce::Sum, &outs[0]), (Reduce::Mean, &outs[1]), (Reduce::Max, &outs[2])] {
            reduce(&mut narrow, how, &x, dims, out).unwrap_or_else(|error| panic!("{how:?} {what}: {error}"));
        }
        // These have no way to join parts of the reduced elements: where those lie too far apart they refuse.
        let is_cut = !dims.contains(&0);
        let found = extreme(&mut narrow, false, &x, dims, Some(&outs[3]), Some(&places));
        assert_eq!(found.is_ok(), is_cut, "{what}: {found:?}");
        let moments = variance(&mut narrow, &x, dims, 0.0, false, Some(&outs[4]), None);
        assert_eq!(moments.is_ok(), is_cut, "{what}: {moments:?}");
        stream = narrow.stream;
        // Values of both signs cancel: what was rounded is as large as the sum of their magnitudes.
        let summed = get(&mut stream, &outs[0]).into_iter().zip(get(&mut stream, &outs[1]));
        for (group, (total, average)) in groups.iter().zip(summed) {
            let limit = 1e-6 * group.iter().map(|value| value.abs()).sum::<f64>();
            assert!((total - sum(group)).abs() <= limit, "sum {what}: {total}, expected {}", sum(group));
            let off = (average - mean(group)).abs() * group.len() as f64;
            assert!(off <= limit, "mean {what}: {average}, expected {}", mean(group));
        }
        close(&get(&mut stream, &outs[2]), &of(&most), 0.0, &format!("largest {what}"));
        if is_cut {
            close(&get(&mut stream, &outs[3]), &of(&most), 0.0, &format!("extreme {what}"));
            close(&get(&mut stream, &places), &of(&place), 0.0, &format!("place {what}"));
            close(&get(&mut stream, &outs[4]), &of(&spread), 1e-6, &format!("variance {what}"));
        }
    }
}
