//! Sorting against the host's stable sort.

use crate::common;

use common::{get, put, random, room, stream, values};
use std::cmp::Ordering;
use wave32_ops::{ElementType, View, argsort};

/// NaN is the largest; zeros of both signs are the same.
fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

#[test]
fn places_are_those_of_a_stable_sort() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for dtype in ElementType::ALL {
        for (sizes, strides, dim, wanted) in [
            (vec![1500], vec![3], 0, 1500),
            (vec![5, 257, 3], vec![1, 15, 5], 1, 40),
            (vec![2, 3, 2, 3, 300], vec![3, 1, 9000, 1800, 6], 4, 300),
            (vec![3, 256], vec![256, 1], 1, 256),
            (vec![1, 4], vec![4, 1], 1, 3),
            (vec![600, 2], vec![2, 1], 0, 1),
        ] {
            let count: u64 = sizes.iter().product();
            // Few values, so that many are equal.
            let mut data = values(&mut random, dtype, count, 9.0);
            if dtype.is_float() {
                for (at, value) in data.iter_mut().enumerate() {
                    match at % 13 {
                        0 => *value = value.trunc(),
                        1 if at % 3 == 0 => *value = f64::NAN,
                        2 => *value = if at % 2 == 0 { -0.0 } else { 0.0 },
                        3 if at % 5 == 0 => *value = f64::NEG_INFINITY,
                        4 if at % 5 == 0 => *value = f64::INFINITY,
                        _ => {}
                    }
                }
            }
            let x = put(&mut stream, dtype, &sizes, &strides, &data);
            let mut outs = sizes.clone();
            outs[dim] = wanted;
            for descending in [false, true] {
                let places = room(&mut stream, ElementType::I64, &outs);
                argsort(&mut stream, &x, dim, descending, &places).unwrap();
                let found = get(&mut stream, &places);
                let step = sizes[dim + 1..].iter().product::<u64>() as usize;
                let (size, wanted) = (sizes[dim] as usize, wanted as usize);
                for outer in 0..data.len() / (size * step) {
                    for inner in 0..step {
                        let at = |i: usize| data[(outer * size + i) * step + inner];
                        let mut expected: Vec<usize> = (0..size).collect();
                        expected.sort_by(|&a, &b| {
                            let up = order(at(a), at(b));
                            if descending { up.reverse() } else { up }
                        });
                        let row: Vec<usize> = (0..wanted)
                            .map(|i| found[(outer * wanted + i) * step + inner] as usize)
                            .collect();
                        assert_eq!(row, expected[..wanted], "{dtype:?} {sizes:?} along {dim} seed {seed}");
                    }
                }
            }
        }
    }
}

#[test]
fn refuses_what_does_not_fit() {
    let Some(mut stream) = stream() else { return };
    let x = room(&mut stream, ElementType::F32, &[4, 5]);
    for (dtype, sizes, dim) in [
        (ElementType::I32, vec![4, 5], 1),
        (ElementType::I64, vec![4, 6], 1),
        (ElementType::I64, vec![3, 5], 1),
        (ElementType::I64, vec![4, 5], 2),
        (ElementType::I64, vec![20], 0),
    ] {
        let places = View::contiguous(0, dtype, &sizes).unwrap();
        assert!(argsort(&mut stream, &x, dim, false, &places).is_err(), "{dtype:?} {sizes:?}");
    }
}
