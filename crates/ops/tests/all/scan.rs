//! Running sums against sums in f64.

use crate::common;

use common::{close, get, put, random, stream, values};
use wave32_ops::{ElementType, View, cumsum};

#[test]
fn running_sums() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for (from, to, tolerance) in [
        (ElementType::F32, ElementType::F32, 2e-6),
        (ElementType::F16, ElementType::F32, 2e-6),
        (ElementType::F32, ElementType::F64, 1e-13),
        (ElementType::I8, ElementType::I64, 0.0),
        (ElementType::Bool, ElementType::I64, 0.0),
    ] {
        for (sizes, strides, dim) in [
            (vec![1500], vec![3], 0),
            (vec![5, 257, 3], vec![1, 15, 5], 1),
            (vec![2, 3, 2, 3, 256], vec![3, 1, 7000, 1600, 6], 4),
            (vec![300, 4], vec![4, 1], 1),
            // Rows of several workgroups.
            (vec![65_537], vec![1], 0),
            (vec![3, 98_304, 2], vec![1, 6, 3], 1),
        ] {
            let count: u64 = sizes.iter().product();
            let data = values(&mut random, from, count, 5.0);
            let x = put(&mut stream, from, &sizes, &strides, &data);
            let y = put(&mut stream, to, &sizes, &strides, &[]);
            cumsum(&mut stream, &x, dim, &y).unwrap();
            let step = sizes[dim + 1..].iter().product::<u64>() as usize;
            let mut expected = data.clone();
            for i in (0..data.len()).filter(|i| !((i / step) as u64).is_multiple_of(sizes[dim])) {
                expected[i] += expected[i - step];
            }
            let what = format!("{from:?} to {to:?} {sizes:?} along {dim} seed {seed}");
            close(&get(&mut stream, &y), &expected, tolerance, &what);
        }
    }
    let x = put(&mut stream, ElementType::F32, &[2], &[1], &[1.0, 2.0]);
    let other = View::contiguous(x.address, ElementType::F32, &[1, 2]).unwrap();
    assert!(cumsum(&mut stream, &x, 0, &other).is_err());
}
