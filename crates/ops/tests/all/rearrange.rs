//! Flip, roll, concatenation, triangles and padding against plain loops.

use crate::common;

use common::{close, get, put, random, stream, values};
use rand::Rng;
use wave32_ops::pad::{Padding, pad, pad_backward};
use wave32_ops::rearrange::{cat, flip, roll, triangle};
use wave32_ops::{ElementType, View};

/// Every place of a tensor, in order.
fn places(sizes: &[u64]) -> Vec<Vec<u64>> {
    sizes.iter().fold(vec![vec![]], |all, &size| {
        all.iter().flat_map(|place| (0..size).map(move |i| [&place[..], &[i]].concat())).collect()
    })
}

/// Index of an element of a plain tensor.
fn at(sizes: &[u64], place: &[u64]) -> usize {
    sizes.iter().zip(place).fold(0, |sum, (&size, &i)| sum * size as usize + i as usize)
}

#[test]
fn flip_and_roll() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let forms: [(&[u64], &[u64], &[u64]); 3] = [
        (&[3, 5, 7], &[70, 14, 2], &[1, 3, 16]),
        (&[2, 3, 2, 2, 3], &[36, 12, 6, 3, 1], &[1, 2, 6, 12, 24]),
        (&[9], &[2], &[1]),
    ];
    for (turn, dtype) in ElementType::ALL.into_iter().enumerate() {
        let (sizes, from, to) = forms[turn % 3];
        let count = sizes.iter().product();
        let data = values(&mut random, dtype, count, 90.0);
        let input = put(&mut stream, dtype, sizes, from, &data);
        let dims: Vec<usize> = (0..sizes.len()).filter(|_| random.random_bool(0.6)).collect();
        let shifts: Vec<(usize, i64)> = dims.iter().map(|&dim| (dim, random.random_range(-9..9))).collect();
        let what = format!("{sizes:?} {dims:?} {shifts:?} {dtype:?}, seed {seed}");

        let output = put(&mut stream, dtype, sizes, to, &[]);
        flip(&mut stream, &input, &dims, &output).unwrap();
        let flipped = places(sizes).into_iter().map(|mut place| {
            dims.iter().for_each(|&dim| place[dim] = sizes[dim] - 1 - place[dim]);
            data[at(sizes, &place)]
        });
        close(&get(&mut stream, &output), &flipped.collect::<Vec<_>>(), 0.0, &format!("flip {what}"));

        let output = put(&mut stream, dtype, sizes, to, &[]);
        roll(&mut stream, &input, &shifts, &output).unwrap();
        let mut rolled = vec![0.0; data.len()];
        for (mut place, &v) in places(sizes).into_iter().zip(&data) {
            for &(dim, shift) in &shifts {
                place[dim] = (place[dim] as i64 + shift).rem_euclid(sizes[dim] as i64) as u64;
            }
            rolled[at(sizes, &place)] = v;
        }
        close(&get(&mut stream, &output), &rolled, 0.0, &format!("roll {what}"));
    }
}

/// What lies at each place of `sizes` where the inputs, of these lengths, lie one after the other along `dim`.
fn joined(lengths: &[u64], inputs: &[(View, Vec<f64>)], dim: usize, sizes: &[u64]) -> Vec<f64> {
    let mut rest: Vec<_> = inputs.iter().map(|(_, data)| data.iter()).collect();
    let source: Vec<usize> = lengths.iter().enumerate().flat_map(|(k, &n)| vec![k; n as usize]).collect();
    places(sizes).iter().map(|place| *rest[source[place[dim] as usize]].next().unwrap()).collect()
}

#[test]
fn inputs_lie_one_after_the_other() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for dim in 0..3 {
        let lengths = [2, 0, 5, 1];
        let mut sizes = [3, 4, 5];
        let mut inputs: Vec<(View, Vec<f64>)> = Vec::new();
        for length in lengths {
            sizes[dim] = length;
            // Two types into one, two layouts.
            let dtype = [ElementType::F32, ElementType::I32][random.random_range(0..2)];
            let data = values(&mut random, dtype, sizes.iter().product(), 9.0);
            let strides = [1, sizes[0], sizes[0] * sizes[1]];
            inputs.push((put(&mut stream, dtype, &sizes, &strides, &data), data));
        }
        sizes[dim] = 8;
        let output = put(&mut stream, ElementType::F32, &sizes, &[sizes[1] * 9, 9, 1], &[]);
        let views: Vec<View> = inputs.iter().map(|(view, _)| *view).collect();
        cat(&mut stream, &views, dim, &output).unwrap();
        let expected = joined(&lengths, &inputs, dim, &sizes);
        close(&get(&mut stream, &output), &expected, 0.0, &format!("dim {dim}, seed {seed}"));
        assert!(cat(&mut stream, &views[1..], dim, &output).is_err());
    }
}

#[test]
fn many_inputs_of_one_type_lie_one_after_the_other() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for turn in 0..60 {
        let dtype = ElementType::ALL[turn % ElementType::ALL.len()];
        let mut sizes = [random.random_range(1..4), random.random_range(1..5), [1, 4, 8][turn % 3]];
        let mut dim = random.random_range(0..3);
        // More than a launch takes; some are empty, some of another layout.
        let mut lengths: Vec<u64> =
            (0..random.random_range(2..17)).map(|_| [0, 1, 4, 8, 40][random.random_range(0..5)]).collect();
        // The first turns make sure of each kernel: rows of whole 16 bytes (`put` leaves no gap before multiples of
        // five values), and rows an odd number of elements apart.
        let wide = turn < ElementType::ALL.len();
        let sure = turn < 2 * ElementType::ALL.len();
        if sure {
            (sizes, dim, lengths) =
                ([2, 3, if wide { 16 } else { 1 }], 1, if wide { vec![5, 10] } else { vec![1, 4, 8] });
        }
        let mut inputs: Vec<(View, Vec<f64>)> = Vec::new();
        for &length in &lengths {
            sizes[dim] = length;
            let data = values(&mut random, dtype, sizes.iter().product(), 90.0);
            let strides = match random.random_range(0..5) {
                _ if sure => [sizes[1] * sizes[2], sizes[2], 1],
                0 => [1, sizes[0], sizes[0] * sizes[1]],
                1 => [sizes[1] * sizes[2] + 16, sizes[2], 1],
                _ => [sizes[1] * sizes[2], sizes[2], 1],
            };
            inputs.push((put(&mut stream, dtype, &sizes, &strides, &data), data));
        }
        sizes[dim] = lengths.iter().sum();
        let gap = if sure { [1, 16][usize::from(wide)] } else { [0, 16, 1][random.random_range(0..3)] };
        let output = put(&mut stream, dtype, &sizes, &[sizes[1] * sizes[2] + gap, sizes[2], 1], &[]);
        let views: Vec<View> = inputs.iter().map(|(view, _)| *view).collect();
        cat(&mut stream, &views, dim, &output).unwrap();
        let expected = joined(&lengths, &inputs, dim, &sizes);
        let what = format!("{dtype:?} {lengths:?} along {dim} of {sizes:?}, gap {gap}, seed {seed}");
        close(&get(&mut stream, &output), &expected, 0.0, &what);
    }
}

#[test]
fn triangles() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for dtype in ElementType::ALL {
        let sizes: &[u64] = [&[5, 7][..], &[2, 4, 3], &[2, 2, 2, 3, 4]][random.random_range(0..3)];
        let (upper, diagonal) = (random.random_bool(0.5), random.random_range(-5..6));
        let data = values(&mut random, dtype, sizes.iter().product(), 90.0);
        let plain = View::contiguous(0, dtype, sizes).unwrap();
        let doubled: Vec<u64> = plain.strides().iter().map(|stride| 2 * stride).collect();
        let input = put(&mut stream, dtype, sizes, &doubled, &data);
        let output = put(&mut stream, dtype, sizes, plain.strides(), &[]);
        triangle(&mut stream, &input, upper, diagonal, &output).unwrap();
        let expected = places(sizes).into_iter().zip(&data).map(|(place, &v)| {
            let above = place[sizes.len() - 1] as i64 - place[sizes.len() - 2] as i64 - diagonal;
            if (upper && above >= 0) || (!upper && above <= 0) { v } else { 0.0 }
        });
        let what = format!("{sizes:?} upper {upper} {diagonal} {dtype:?}, seed {seed}");
        close(&get(&mut stream, &output), &expected.collect::<Vec<_>>(), 0.0, &what);
    }
}

#[test]
fn padding_and_its_gradient() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let types = [
        (ElementType::F32, 1e-6),
        (ElementType::F16, 4e-3),
        (ElementType::BF16, 3e-2),
        (ElementType::F64, 1e-13),
    ];
    for turn in 0..48 {
        let (dtype, tolerance) = types[turn % 4];
        let padding = [Padding::Reflect, Padding::Replicate][turn / 4 % 2];
        let padded = 1 + turn / 8 % 3;
        let sizes: Vec<u64> = (0..padded + 1 + turn % 2).map(|_| random.random_range(1..6)).collect();
        let front = sizes.len() - padded;
        let most = |size: u64| if padding == Padding::Reflect { size as i64 - 1 } else { 4 };
        let sides: Vec<[i64; 2]> = sizes[front..]
            .iter()
            .map(|&size| {
                let before = random.random_range(-2..=most(size));
                // At least one element is left.
                [before, random.random_range((1 - size as i64 - before).max(-2).min(most(size))..=most(size))]
            })
            .collect();
        if sizes[front..].iter().zip(&sides).any(|(&size, side)| size as i64 + side[0] + side[1] < 1) {
            continue;
        }
        let mut outs = sizes.clone();
        (0..padded)
            .for_each(|k| outs[front + k] = (outs[front + k] as i64 + sides[k][0] + sides[k][1]) as u64);
        let what = format!("{padding:?} {sizes:?} by {sides:?} {dtype:?}, seed {seed}");
        let mut strides = |sizes: &[u64]| {
            let plain = View::contiguous(0, dtype, sizes).unwrap();
            let by = random.random_range(1..3);
            plain.strides().iter().map(|stride| by * stride).collect::<Vec<_>>()
        };
        let (from, to, back_from, back_to) =
            (strides(&sizes), strides(&outs), strides(&outs), strides(&sizes));
        let data = values(&mut random, dtype, sizes.iter().product(), 9.0);
        let grads = values(&mut random, dtype, outs.iter().product(), 2.0);
        let input = put(&mut stream, dtype, &sizes, &from, &data);
        let output = put(&mut stream, dtype, &outs, &to, &[]);
        pad(&mut stream, padding, &sides, &input, &output).unwrap();
        let grad_output = put(&mut stream, dtype, &outs, &back_from, &grads);
        let grad_input = put(&mut stream, dtype, &sizes, &back_to, &[]);
        pad_backward(&mut stream, padding, &sides, &grad_output, &grad_input).unwrap();

        let (mut expected, mut back) = (Vec::new(), vec![0.0; data.len()]);
        let mut terms = back.clone();
        for (mut place, grad) in places(&outs).into_iter().zip(&grads) {
            for k in 0..padded {
                let (size, i) = (sizes[front + k] as i64, place[front + k] as i64 - sides[k][0]);
                let inside = match padding {
                    Padding::Replicate => i.clamp(0, size - 1),
                    Padding::Reflect if i < 0 => -i,
                    Padding::Reflect if i >= size => 2 * (size - 1) - i,
                    Padding::Reflect => i,
                };
                place[front + k] = inside as u64;
            }
            let from = at(&sizes, &place);
            expected.push(data[from]);
            back[from] += grad;
            terms[from] += grad.abs();
        }
        close(&get(&mut stream, &output), &expected, 0.0, &what);
        // Terms may cancel; each rounds all the same.
        let largest = |all: &[f64]| all.iter().fold(1e-30, |most: f64, one| most.max(one.abs()));
        let tolerance = tolerance * largest(&terms) / largest(&back);
        close(&get(&mut stream, &grad_input), &back, tolerance, &format!("gradient: {what}"));
    }
}
