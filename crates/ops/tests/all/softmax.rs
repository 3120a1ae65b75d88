//! Softmax and negative log likelihood against sums in f64.

use crate::common;

use common::{
    close, close_beside, errors, get, put, put_plain, raised, random, room, rounded, stream, values,
};
use rand::Rng;
use wave32_ops::{
    ElementType, NllLoss, Reduction, View, nll_loss, nll_loss_backward, softmax, softmax_backward,
};

/// For each element of `sizes` in index order: which row along `dim` it is of.
fn rows(sizes: &[u64], dim: usize) -> Vec<usize> {
    let inner: u64 = sizes[dim + 1..].iter().product();
    let count: u64 = sizes.iter().product();
    (0..count).map(|i| (i / (inner * sizes[dim]) * inner + i % inner) as usize).collect()
}

#[test]
fn rows_without_a_sum_are_nan_and_no_others() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for dtype in [ElementType::F32, ElementType::F16, ElementType::BF16] {
        for count in [24, 64, 1000, 4100, 197, 8196] {
            let mut data = values(&mut random, dtype, 6 * count, 6.0);
            for (row, value) in [(1, f64::NAN), (2, f64::INFINITY), (4, f64::NEG_INFINITY)] {
                data[row * count as usize + random.random_range(0..count as usize)] = value;
            }
            data[3 * count as usize..4 * count as usize].fill(f64::NEG_INFINITY);
            let x = put_plain(&mut stream, dtype, &[6, count], &data);
            for log in [false, true] {
                let y = room(&mut stream, dtype, &[6, count]);
                softmax(&mut stream, log, &x, 1, &y).unwrap();
                for (at, found) in get(&mut stream, &y).iter().enumerate() {
                    let is_nan = (1..4).contains(&(at as u64 / count));
                    let what = format!("{dtype:?} {count}, log {log}: element {at} is {found}, seed {seed}");
                    assert_eq!(found.is_nan(), is_nan, "{what}");
                }
            }
        }
    }
}

#[test]
fn softmax_and_its_gradient() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for (dtype, tolerance) in [(ElementType::F32, 2e-6), (ElementType::F16, 1e-3), (ElementType::BF16, 8e-3)]
    {
        for (sizes, strides, dim) in [
            (vec![3, 21, 5, 7], vec![735, 1, 147, 21], 1),
            (vec![5, 1001], vec![1003, 1], 1),
            (vec![67, 3], vec![4, 1], 0),
            (vec![2, 3, 2, 3, 2], vec![1, 300, 60, 7, 26], 3),
            // Rows that registers hold: by vectors, by more of them, by elements; and one that is too long.
            (vec![9, 64], vec![64, 1], 1),
            (vec![3, 5, 1000], vec![5000, 1000, 1], 2),
            (vec![2, 4100], vec![4100, 1], 1),
            (vec![2, 8192], vec![8192, 1], 1),
            (vec![70, 197], vec![197, 1], 1),
            (vec![2, 3], vec![3, 1], 1),
            (vec![2, 8196], vec![8196, 1], 1),
        ] {
            let count: u64 = sizes.iter().product();
            let data = values(&mut random, dtype, count, 6.0);
            let x = put(&mut stream, dtype, &sizes, &strides, &data);
            let rows = rows(&sizes, dim);
            let totals = |of: &dyn Fn(usize) -> f64| {
                let mut totals = vec![0.0; rows.iter().max().unwrap() + 1];
                (0..rows.len()).for_each(|i| totals[rows[i]] += of(i));
                totals
            };
            let sums = totals(&|i| data[i].exp());
            for log in [false, true] {
                let what = format!("{dtype:?} {sizes:?} along {dim}, log {log}, seed {seed}");
                let expected: Vec<f64> = (0..rows.len())
                    .map(|i| if log { data[i] - sums[rows[i]].ln() } else { data[i].exp() / sums[rows[i]] })
                    .collect();
                let y = put(&mut stream, dtype, &sizes, &strides, &[]);
                softmax(&mut stream, log, &x, dim, &y).unwrap();
                close(&get(&mut stream, &y), &expected, tolerance, &what);

                let result: Vec<f64> = expected.iter().map(|&v| rounded(dtype, v)).collect();
                let y = put_plain(&mut stream, dtype, &sizes, &result);
                let grads = values(&mut random, dtype, count, 2.0);
                let grad = put(&mut stream, dtype, &sizes, &strides, &grads);
                let factor = |i: usize| if log { 1.0 } else { result[i] };
                let dots = totals(&|i| grads[i] * factor(i));
                let sizes_of_dots = totals(&|i| grads[i].abs() * factor(i));
                let magnitude = |i: usize| match log {
                    true => grads[i].abs() + result[i].exp() * sizes_of_dots[rows[i]],
                    false => (grads[i].abs() + sizes_of_dots[rows[i]]) * result[i],
                };
                let magnitudes: Vec<f64> = (0..rows.len()).map(magnitude).collect();
                let expected: Vec<f64> = (0..rows.len())
                    .map(|i| match log {
                        true => grads[i] - result[i].exp() * dots[rows[i]],
                        false => (grads[i] - dots[rows[i]]) * result[i],
                    })
                    .collect();
                let grad_input = room(&mut stream, dtype, &sizes);
                softmax_backward(&mut stream, log, &grad, &y, dim, &grad_input).unwrap();
                close_beside(&get(&mut stream, &grad_input), &expected, &magnitudes, tolerance, &what);
            }
        }
    }
    // What does not begin at a vector.
    let data = values(&mut random, ElementType::F32, 4 * 33, 6.0);
    let all = put_plain(&mut stream, ElementType::F32, &[4 * 33], &data);
    let x = View::contiguous(all.address + 4, ElementType::F32, &[4, 32]).unwrap();
    let y = room(&mut stream, ElementType::F32, &[4, 32]);
    softmax(&mut stream, false, &x, 1, &y).unwrap();
    let expected = data[1..=128].chunks(32).flat_map(|row| {
        let sum: f64 = row.iter().map(|v| v.exp()).sum();
        row.iter().map(|v| v.exp() / sum).collect::<Vec<_>>()
    });
    close(&get(&mut stream, &y), &expected.collect::<Vec<_>>(), 2e-6, &format!("misplaced, seed {seed}"));

    let double = room(&mut stream, ElementType::F64, &[2, 2]);
    assert!(softmax(&mut stream, false, &double, 1, &double).is_err());
}

#[test]
fn losses_and_their_gradients() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let errors = errors(&mut stream);
    let (n, c, s) = (5u64, 7u64, 33u64);
    let data = values(&mut random, ElementType::F32, n * c * s, 3.0);
    let input = put(&mut stream, ElementType::F32, &[n, c, s], &[c * s + 3, 1, c], &data);
    let targets: Vec<f64> = (0..n * s).map(|_| f64::from(random.random_range(0..c as u32))).collect();
    let target = put_plain(&mut stream, ElementType::I64, &[n, s], &targets);
    let factors = values(&mut random, ElementType::F32, c, 2.0);
    let factors: Vec<f64> = factors.iter().map(|v| rounded(ElementType::F32, v.abs() + 0.1)).collect();
    let weight = put_plain(&mut stream, ElementType::F32, &[c], &factors);
    for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
        for (weighted, ignore_index) in [(false, -100), (true, -100), (true, 3)] {
            let what = format!("{reduction:?} weighted {weighted} ignoring {ignore_index}, seed {seed}");
            let loss = NllLoss { weight: weighted.then_some(&weight), reduction, ignore_index, errors };
            let factor = |target: f64| match target as i64 == ignore_index {
                true => 0.0,
                false if weighted => factors[target as usize],
                false => 1.0,
            };
            let at = |item: usize, class: usize| (item as u64 / s * c + class as u64) * s + item as u64 % s;
            let each: Vec<f64> = targets
                .iter()
                .enumerate()
                .map(|(item, &t)| -factor(t) * data[at(item, t as usize) as usize])
                .collect();
            let total: f64 = targets.iter().map(|&t| factor(t)).sum();
            let scale = each.iter().map(|v| v.abs()).sum::<f64>();
            let (expected, sizes) = match reduction {
                Reduction::None => (each, vec![n, s]),
                Reduction::Mean => (vec![each.iter().sum::<f64>() / total], vec![]),
                Reduction::Sum => (vec![each.iter().sum()], vec![]),
            };
            let (out, sum) =
                (room(&mut stream, ElementType::F32, &sizes), room(&mut stream, ElementType::F32, &[]));
            nll_loss(&mut stream, &input, &target, &loss, &out, &sum).unwrap();
            for (found, expected) in get(&mut stream, &out).iter().zip(&expected) {
                // A sum may cancel: errors are relative to its terms.
                assert!((found - expected).abs() < 1e-6 * scale, "{what}: {found}, not {expected}");
            }
            let found = get(&mut stream, &sum)[0];
            let wanted = if reduction == Reduction::None { 0.0 } else { total };
            assert!((found - wanted).abs() < 1e-4, "{what}: total weight {found}, not {wanted}");

            let grads = values(&mut random, ElementType::F32, expected.len() as u64, 2.0);
            let grad = put_plain(&mut stream, ElementType::F32, &sizes, &grads);
            let mut expected = vec![0.0; data.len()];
            for (item, &t) in targets.iter().enumerate() {
                let grad = if reduction == Reduction::None { grads[item] } else { grads[0] };
                let divisor = if reduction == Reduction::Mean { found } else { 1.0 };
                expected[at(item, t as usize) as usize] = -factor(t) * grad / divisor;
            }
            let grad_input = put(&mut stream, ElementType::F32, &[n, c, s], &[c * s, s, 1], &[]);
            nll_loss_backward(&mut stream, &grad, &target, &loss, &sum, &grad_input).unwrap();
            close(&get(&mut stream, &grad_input), &expected, 1e-6, &what);
        }
    }
    // A target that is no class reads nothing.
    let wild = put_plain(&mut stream, ElementType::I64, &[n, s], &vec![1e9; (n * s) as usize]);
    assert!(!raised(&mut stream, errors), "seed {seed}");
    let loss = NllLoss { weight: Some(&weight), reduction: Reduction::Sum, ignore_index: -100, errors };
    let (out, sum) = (room(&mut stream, ElementType::F32, &[]), room(&mut stream, ElementType::F32, &[]));
    nll_loss(&mut stream, &input, &wild, &loss, &out, &sum).unwrap();
    assert!(get(&mut stream, &out)[0].is_nan());
    assert!(raised(&mut stream, errors));
    let other = View::contiguous(target.address, ElementType::I64, &[s, n]).unwrap();
    assert!(nll_loss(&mut stream, &input, &other, &loss, &out, &sum).is_err());
}
