//! Copies among every pair of types, strided and not.

mod common;

use common::{close, get, put, random, rounded, stream, values};
use wave32_ops::{ElementType, copy};

#[test]
fn every_pair_of_types_converts() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let (sizes, from_strides, to_strides) = ([3, 5, 7, 2, 2], [211, 14, 2, 71, 1], [140, 28, 4, 2, 1]);
    for from in ElementType::ALL {
        for to in ElementType::ALL {
            let data = values(&mut random, from, 420, 90.0);
            let source = put(&mut stream, from, &sizes, &from_strides, &data);
            let target = put(&mut stream, to, &sizes, &to_strides, &[]);
            copy(&mut stream, &source, &target).unwrap();
            // An unsigned type has no negative values to agree on between a float and a wrapped integer.
            let expected: Vec<f64> = data.iter().map(|&v| rounded(to, v)).collect();
            close(&get(&mut stream, &target), &expected, 0.0, &format!("{from:?} to {to:?}, seed {seed}"));
        }
    }
}

#[test]
fn sizes_must_match_and_empty_copies_do_nothing() {
    let Some(mut stream) = stream() else { return };
    let a = put(&mut stream, ElementType::F32, &[2, 3], &[3, 1], &[1.0; 6]);
    let b = put(&mut stream, ElementType::F32, &[3, 2], &[2, 1], &[2.0; 6]);
    assert!(copy(&mut stream, &a, &b).unwrap_err().to_string().starts_with("different-sizes"));
    let empty = put(&mut stream, ElementType::F32, &[0, 2], &[2, 1], &[]);
    copy(&mut stream, &empty, &empty).unwrap();
}
