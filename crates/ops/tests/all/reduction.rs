//! Reductions against sums over indices in f64.

use crate::common;

use common::{TestQueue, close, get, put, put_plain, random, room, rounded, stream, values};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use wave32_ops::{ElementType, Reduce, View, extreme, reduce, variance};

/// The elements of each result, in index order: the reference of everything below.
fn groups(sizes: &[u64], dims: &[usize], data: &[f64]) -> Vec<Vec<f64>> {
    let kept: Vec<usize> = (0..sizes.len()).filter(|dim| !dims.contains(dim)).collect();
    let count: u64 = kept.iter().map(|&dim| sizes[dim]).product();
    let mut groups = vec![Vec::new(); count as usize];
    for (at, &value) in data.iter().enumerate() {
        let mut rest = at as u64;
        let mut index = vec![0; sizes.len()];
        for dim in (0..sizes.len()).rev() {
            (index[dim], rest) = (rest % sizes[dim], rest / sizes[dim]);
        }
        let group = kept.iter().fold(0, |group, &dim| group * sizes[dim] + index[dim]);
        groups[group as usize].push(value);
    }
    groups
}

fn expected(how: Reduce, group: &[f64]) -> f64 {
    let pick = |better: fn(f64, f64) -> bool| {
        group.iter().copied().reduce(|a, b| if a.is_nan() || better(a, b) { a } else { b }).unwrap()
    };
    let sum = |map: &dyn Fn(f64) -> f64| group.iter().map(|&v| map(v)).sum::<f64>();
    match how {
        Reduce::Sum => sum(&|v| v),
        Reduce::Mean => sum(&|v| v) / group.len() as f64,
        Reduce::Prod => group.iter().product(),
        Reduce::Max => pick(|a, b| a > b),
        Reduce::Min => pick(|a, b| a < b),
        Reduce::Any => f64::from(group.iter().any(|&v| v != 0.0)),
        Reduce::All => f64::from(group.iter().all(|&v| v != 0.0)),
        Reduce::CountNonzero | Reduce::Norm(0.0) => sum(&|v| f64::from(v != 0.0)),
        Reduce::Norm(f64::INFINITY) => group.iter().fold(0.0, |a, v| a.max(v.abs())),
        Reduce::Norm(f64::NEG_INFINITY) => group.iter().fold(f64::INFINITY, |a, v| a.min(v.abs())),
        Reduce::Norm(p) => sum(&|v| v.abs().powf(p)).powf(1.0 / p),
    }
}

/// Strides of `sizes` laid out in a random order of dimensions, with gaps.
fn shuffled(random: &mut StdRng, sizes: &[u64], gap: u64) -> Vec<u64> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.shuffle(random);
    let (mut strides, mut stride) = (vec![0; sizes.len()], 1);
    for dim in order {
        (strides[dim], stride) = (stride, stride * sizes[dim] + gap);
    }
    strides
}

const SHAPES: &[(&[u64], &[usize])] = &[
    (&[37], &[0]),
    (&[5, 7, 3], &[1]),
    (&[5, 7, 3], &[0, 2]),
    (&[3, 5, 9, 11], &[0, 2, 3]),
    (&[70_001], &[0]),
    (&[3, 40_009], &[1]),
    (&[40_009, 5], &[0]),
    (&[2, 3, 2, 5, 3, 2, 3], &[1, 3, 5]),
    (&[2, 3, 2, 5, 3, 2, 3, 2], &[0, 2, 4, 5, 7]),
    (&[1, 4, 1], &[0, 2]),
    // Read by four where they lie so.
    (&[300_004], &[0]),
    (&[9, 4], &[1]),
    (&[3, 40_012], &[1]),
    (&[5, 8, 12], &[0, 2]),
    (&[3, 8, 12], &[1, 2]),
    // Four results at once.
    (&[9, 4], &[0]),
    (&[40_009, 8], &[0]),
    (&[12, 9, 16], &[1]),
    (&[5, 6, 8, 4], &[0, 2]),
    (&[2, 35_001, 12], &[0, 1]),
];

#[test]
fn sums_and_extremes_of_every_shape() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for &(sizes, dims) in SHAPES {
        for shuffle in [false, true] {
            let count: u64 = sizes.iter().product();
            let data = values(&mut random, ElementType::F32, count, 3.0);
            let plain = View::contiguous(0, ElementType::F32, sizes).unwrap();
            let strides = if shuffle { shuffled(&mut random, sizes, 1) } else { plain.strides().to_vec() };
            let input = put(&mut stream, ElementType::F32, sizes, &strides, &data);
            for how in [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min, Reduce::Norm(2.0)] {
                check(&mut stream, how, &input, dims, &data, ElementType::F32, 2e-6, seed);
            }
            let found = places(&mut stream, &input, dims, &data, false);
            assert_eq!(found.0, found.1, "{sizes:?} {dims:?} seed {seed}");
        }
    }
}

#[allow(clippy::too_many_arguments)]
fn check(
    stream: &mut TestQueue,
    how: Reduce,
    input: &View,
    dims: &[usize],
    data: &[f64],
    to: ElementType,
    tolerance: f64,
    seed: u64,
) {
    let groups = groups(input.sizes(), dims, data);
    let kept: Vec<u64> =
        (0..input.rank()).filter(|dim| !dims.contains(dim)).map(|dim| input.sizes()[dim]).collect();
    let expected: Vec<f64> = groups.iter().map(|group| rounded(to, expected(how, group))).collect();
    let out = room(stream, to, &kept);
    reduce(stream, how, input, dims, &out).unwrap();
    let what = format!("{how:?} of {input:?} over {dims:?} to {to:?}, seed {seed}");
    let found = get(stream, &out);
    // Sums cancel: their errors are relative to their terms.
    let terms = |group: &Vec<f64>| match how {
        Reduce::Sum => group.iter().map(|v| v * v).sum::<f64>().sqrt(),
        Reduce::Mean => group.iter().map(|v| v * v).sum::<f64>().sqrt() / group.len() as f64,
        _ => 0.0,
    };
    let scale = groups.iter().map(terms).fold(0.0, f64::max);
    let scale = expected.iter().filter(|v| v.is_finite()).fold(scale, |scale, v| scale.max(v.abs()));
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let same = found == expected || (found.is_nan() && expected.is_nan());
        let error = (found - expected).abs();
        assert!(same || error <= tolerance * scale, "{what}: element {i} is {found}, expected {expected}");
    }
    // Once more, with the dimensions kept: the same bits.
    let ones: Vec<u64> =
        (0..input.rank()).map(|dim| if dims.contains(&dim) { 1 } else { input.sizes()[dim] }).collect();
    let again = room(stream, to, &ones);
    reduce(stream, how, input, dims, &again).unwrap();
    close(&get(stream, &again), &found, 0.0, &what);
}

/// Found and expected (value, index) pairs.
type Pairs = Vec<(f64, f64)>;

fn places(stream: &mut TestQueue, input: &View, dims: &[usize], data: &[f64], least: bool) -> (Pairs, Pairs) {
    let groups = groups(input.sizes(), dims, data);
    let (values, indices) = (
        room(stream, input.dtype, &[groups.len() as u64]),
        room(stream, ElementType::I64, &[groups.len() as u64]),
    );
    let kept: Vec<u64> =
        (0..input.rank()).filter(|dim| !dims.contains(dim)).map(|dim| input.sizes()[dim]).collect();
    let shaped = |view: &View| View::contiguous(view.address, view.dtype, &kept).unwrap();
    extreme(stream, least, input, dims, Some(&shaped(&values)), Some(&shaped(&indices))).unwrap();
    let only = room(stream, ElementType::I64, &kept);
    extreme(stream, least, input, dims, None, Some(&only)).unwrap();
    let expected = groups.iter().map(|group| {
        let mut best = 0;
        for (at, &v) in group.iter().enumerate() {
            let w = group[best];
            if !w.is_nan() && (v.is_nan() || if least { v < w } else { v > w }) {
                best = at;
            }
        }
        (group[best], best as f64)
    });
    let expected: Pairs = expected.collect();
    let indices = get(stream, &indices);
    assert_eq!(get(stream, &only), indices);
    (get(stream, &values).into_iter().zip(indices).collect(), expected)
}

#[test]
fn every_type_and_operation() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let (sizes, dims) = ([6u64, 7, 9], [1usize]);
    for dtype in ElementType::ALL {
        let strides = shuffled(&mut random, &sizes, 2);
        let data = values(&mut random, dtype, 6 * 7 * 9, 4.0);
        let input = put(&mut stream, dtype, &sizes, &strides, &data);
        let (sums, exact) = if dtype.is_float() { (dtype, false) } else { (ElementType::I64, true) };
        let tolerance = match dtype {
            ElementType::F32 | ElementType::F16 | ElementType::BF16 if !exact => 2e-6,
            ElementType::F64 => 1e-14,
            _ => 0.0,
        };
        // The result may be rounded from either side of a tie.
        let tolerance = match dtype {
            ElementType::F16 => 1e-3,
            ElementType::BF16 => 8e-3,
            _ => tolerance,
        };
        for how in [Reduce::Sum, Reduce::Prod] {
            check(&mut stream, how, &input, &dims, &data, sums, tolerance, seed);
        }
        for how in [Reduce::Max, Reduce::Min] {
            check(&mut stream, how, &input, &dims, &data, dtype, 0.0, seed);
        }
        for how in [Reduce::Any, Reduce::All] {
            check(&mut stream, how, &input, &dims, &data, ElementType::Bool, 0.0, seed);
        }
        check(&mut stream, Reduce::CountNonzero, &input, &dims, &data, ElementType::I64, 0.0, seed);
        let found = places(&mut stream, &input, &dims, &data, true);
        assert_eq!(found.0, found.1, "{dtype:?} seed {seed}");
        if dtype.is_float() {
            for p in [0.0, 1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY] {
                check(&mut stream, Reduce::Norm(p), &input, &dims, &data, dtype, tolerance, seed);
            }
            check(&mut stream, Reduce::Mean, &input, &dims, &data, dtype, tolerance, seed);
        }
    }
    let data = values(&mut random, ElementType::F32, 6 * 7 * 9, 4.0);
    let input = put_plain(&mut stream, ElementType::F32, &sizes, &data);
    check(&mut stream, Reduce::Norm(3.5), &input, &[0, 2], &data, ElementType::F32, 3e-6, seed);
    check(&mut stream, Reduce::Sum, &input, &[0, 1, 2], &data, ElementType::F64, 1e-13, seed);
}

/// No distance from an infinite mean is a number, wherever the infinity is and however many follow.
#[test]
fn the_variance_of_an_infinity_is_none() {
    let Some(mut stream) = stream() else { return };
    for dtype in [ElementType::F32, ElementType::F64] {
        let out = room(&mut stream, dtype, &[1]);
        for count in [2, 5, 8, 31, 3000] {
            for at in [vec![0], vec![count - 1], vec![count / 2], vec![count / 2, count - 1]] {
                let mut data = vec![0.5; count];
                at.iter().for_each(|&at| data[at] = f64::INFINITY);
                let input = put_plain(&mut stream, dtype, &[1, count as u64], &data);
                variance(&mut stream, &input, &[1], 1.0, true, Some(&out), None).unwrap();
                close(&get(&mut stream, &out), &[f64::NAN], 0.0, &format!("{dtype:?}, {at:?} of {count}"));
            }
        }
    }
}

#[test]
fn nan_wins_and_empty_sums_have_their_identity() {
    let Some(mut stream) = stream() else { return };
    for dtype in [ElementType::F32, ElementType::F16, ElementType::F64] {
        let mut data = vec![1.0; 3000];
        data[17] = f64::INFINITY;
        (data[1500], data[2999]) = (f64::NAN, f64::NAN);
        data[700] = f64::NEG_INFINITY;
        let input = put_plain(&mut stream, dtype, &[2, 1500], &data);
        let (values, indices) = (room(&mut stream, dtype, &[2]), room(&mut stream, ElementType::I64, &[2]));
        for (least, first) in [(false, (f64::INFINITY, 17.0)), (true, (f64::NEG_INFINITY, 700.0))] {
            extreme(&mut stream, least, &input, &[1], Some(&values), Some(&indices)).unwrap();
            close(&get(&mut stream, &values), &[first.0, f64::NAN], 0.0, "values");
            close(&get(&mut stream, &indices), &[first.1, 0.0], 0.0, "indices");
            let how = if least { Reduce::Min } else { Reduce::Max };
            reduce(&mut stream, how, &input, &[1], &values).unwrap();
            close(&get(&mut stream, &values), &[first.0, f64::NAN], 0.0, "reduced");
        }
        reduce(&mut stream, Reduce::Sum, &input, &[1], &values).unwrap();
        close(&get(&mut stream, &values), &[f64::NAN, f64::NAN], 0.0, "sums");
        let empty = put_plain(&mut stream, dtype, &[2, 0], &[]);
        let identities = [
            (Reduce::Sum, 0.0),
            (Reduce::Prod, 1.0),
            (Reduce::Mean, f64::NAN),
            (Reduce::Norm(2.0), 0.0),
            (Reduce::Any, 0.0),
            (Reduce::All, 1.0),
            (Reduce::CountNonzero, 0.0),
        ];
        for (how, identity) in identities {
            reduce(&mut stream, how, &empty, &[1], &values).unwrap();
            close(&get(&mut stream, &values), &[identity; 2], 0.0, &format!("{how:?} of nothing"));
        }
        assert!(reduce(&mut stream, Reduce::Max, &empty, &[1], &values).is_err());
        assert!(extreme(&mut stream, false, &empty, &[1], None, Some(&indices)).is_err());
    }
}

#[test]
fn variance_is_sound_far_from_zero() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for (dtype, offset, tolerance) in [
        (ElementType::F32, 0.0, 3e-6),
        (ElementType::F32, 1e4, 3e-6),
        (ElementType::F16, 0.0, 2e-3),
        (ElementType::F64, 1e6, 1e-9),
    ] {
        for &(sizes, dims) in SHAPES {
            let count: u64 = sizes.iter().product();
            let data = values(&mut random, dtype, count, 3.0);
            let data: Vec<f64> = data.iter().map(|v| rounded(dtype, v + offset)).collect();
            let plain = View::contiguous(0, dtype, sizes).unwrap();
            let strides =
                if random.random() { shuffled(&mut random, sizes, 3) } else { plain.strides().to_vec() };
            let input = put(&mut stream, dtype, sizes, &strides, &data);
            let groups = groups(sizes, dims, &data);
            let kept: Vec<u64> =
                (0..sizes.len()).filter(|dim| !dims.contains(dim)).map(|dim| sizes[dim]).collect();
            let (spread, means) = (room(&mut stream, dtype, &kept), room(&mut stream, dtype, &kept));
            for (correction, root) in [(0.0, false), (1.0, true)] {
                let out = (Some(&spread), Some(&means));
                variance(&mut stream, &input, dims, correction, root, out.0, out.1).unwrap();
                let reference = groups.iter().map(|group| {
                    let n = group.len() as f64;
                    let mean = group.iter().sum::<f64>() / n;
                    let square: f64 = group.iter().map(|v| (v - mean).powi(2)).sum();
                    let variance = square / (n - f64::from(correction)).max(0.0);
                    (if root { variance.sqrt() } else { variance }, mean)
                });
                let (expected, expected_means): (Vec<f64>, Vec<f64>) = reference.unzip();
                let what = format!("{dtype:?} {sizes:?} {dims:?} + {offset} seed {seed}");
                close(&get(&mut stream, &spread), &expected, tolerance, &what);
                // Means of values around zero cancel: errors are relative to the values.
                for (found, mean) in get(&mut stream, &means).iter().zip(expected_means) {
                    assert!(
                        (found - mean).abs() <= tolerance * (3.0 + offset),
                        "{what}: {found}, not {mean}"
                    );
                }
            }
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let Some(mut stream) = stream() else { return };
    let input = put_plain(&mut stream, ElementType::F32, &[2, 3], &[1.0; 6]);
    let out = room(&mut stream, ElementType::F32, &[3]);
    let refusal = reduce(&mut stream, Reduce::Sum, &input, &[1], &out).unwrap_err();
    assert!(refusal.to_string().starts_with("different-sizes"), "{refusal}");
}

#[test]
fn long_sums_of_one_sign_lose_nothing() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for (sizes, dims) in [([60_013, 17], [0usize]), ([3, 400_009], [1])] {
        let data = values(&mut random, ElementType::F32, sizes[0] * sizes[1], 1.0);
        let data: Vec<f64> = data.iter().map(|v| v.abs()).collect();
        let input = put_plain(&mut stream, ElementType::F32, &sizes, &data);
        check(&mut stream, Reduce::Sum, &input, &dims, &data, ElementType::F32, 5e-7, seed);
    }
}

#[test]
fn types_of_sixteen_bits_by_four_and_not() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for (dtype, tolerance) in [(ElementType::F16, 1e-3), (ElementType::BF16, 8e-3)] {
        for (columns, start) in [(4096, 0), (4096, 4), (4096, 1), (4099, 0)] {
            let data = values(&mut random, dtype, 3 * 4100, 3.0);
            let all = put_plain(&mut stream, dtype, &[3, 4100], &data);
            let input = all.narrow(1, start, columns);
            let part = |row: u64| (row * 4100 + start) as usize..(row * 4100 + start + columns) as usize;
            let data: Vec<f64> = (0..3).flat_map(|row| data[part(row)].to_vec()).collect();
            for how in [Reduce::Sum, Reduce::Max, Reduce::Norm(2.0)] {
                check(&mut stream, how, &input, &[1], &data, dtype, tolerance, seed);
            }
            check(&mut stream, Reduce::Mean, &input, &[0], &data, dtype, tolerance, seed);
        }
        let data = values(&mut random, dtype, 7001 * 20, 3.0);
        let input = put_plain(&mut stream, dtype, &[7001, 20], &data);
        check(&mut stream, Reduce::Sum, &input, &[0], &data, ElementType::F32, 2e-6, seed);
    }
}
