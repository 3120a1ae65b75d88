//! Matrix products in every arrangement of their operands, and a convolution, against f64.

use crate::common;

use common::products::tolerance;
use common::{Narrow, close, get, put, put_plain, random, room, stream, values};
use rand::Rng;
use wave32_ops::{ConvChain, ConvOperands, ElementType, Planner, PostOp};
use wave32_problem::{ConvProblem, ConvSpec, Direction, Pass};

#[test]
fn products_of_any_arrangement() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let mut planner = Planner::default();
    for (dtype, tolerance) in [(ElementType::F32, 1e-6), (ElementType::F16, 2e-3)] {
        for arrangement in 0..9 {
            let mut size = |most| random.random_range(1..=most);
            let (g, m, n, k) = (size(3u64), size(70), size(70), size(90));
            // In order, transposed, or with gaps between elements.
            let strides = |rows: u64, columns: u64, how| match how {
                0 => [rows * columns, columns, 1],
                1 => [rows * columns, 1, rows],
                _ => [rows * columns * 2 + 3, columns * 2, 2],
            };
            let a = values(&mut random, dtype, g * m * k, 1.0);
            let b = values(&mut random, dtype, g * k * n, 1.0);
            let va = put(&mut stream, dtype, &[g, m, k], &strides(m, k, arrangement % 3), &a);
            let vb = put(&mut stream, dtype, &[g, k, n], &strides(k, n, arrangement / 3), &b);
            let out = room(&mut stream, dtype, &[g, m, n]);
            planner.matmul(&mut stream, Pass::Forward, &va, &vb, &out).unwrap();
            let mut expected = Vec::new();
            for (i, j, l) in (0..g).flat_map(|i| (0..m).flat_map(move |j| (0..n).map(move |l| (i, j, l)))) {
                let term = |t| a[((i * m + j) * k + t) as usize] * b[((i * k + t) * n + l) as usize];
                expected.push((0..k).map(term).sum());
            }
            let what = format!("{dtype:?} {g}x{m}x{k}x{n}, arrangement {arrangement}, seed {seed}");
            close(&get(&mut stream, &out), &expected, tolerance, &what);
        }
    }
}

#[test]
fn an_empty_product_is_zero_and_wrong_sizes_are_refused() {
    let Some(mut stream) = stream() else { return };
    let mut planner = Planner::default();
    let a = put_plain(&mut stream, ElementType::F32, &[1, 3, 0], &[]);
    let b = put_plain(&mut stream, ElementType::F32, &[1, 0, 2], &[]);
    let out = room(&mut stream, ElementType::F32, &[1, 3, 2]);
    planner.matmul(&mut stream, Pass::Forward, &a, &b, &out).unwrap();
    assert_eq!(get(&mut stream, &out), [0.0; 6]);
    assert!(planner.matmul(&mut stream, Pass::Forward, &b, &b, &out).is_err());
    let ints = put_plain(&mut stream, ElementType::I64, &[1, 1, 1], &[1.0]);
    let error = planner.matmul(&mut stream, Pass::Forward, &ints, &ints, &ints).unwrap_err();
    assert!(error.to_string().starts_with("element-type"), "{error}");
}

#[test]
fn convolutions_take_operands_at_any_address() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let mut planner = Planner::default();
    let (x, w, bias) = (
        values(&mut random, ElementType::F32, 3 * 5 * 6, 1.0),
        values(&mut random, ElementType::F32, 4 * 3 * 9, 1.0),
        values(&mut random, ElementType::F32, 4, 1.0),
    );
    // `put` starts at 8 * (elements % 5): 0, 24 and 32 bytes into the block.
    let vx = put_plain(&mut stream, ElementType::F32, &[1, 3, 5, 6], &x);
    let vw = put_plain(&mut stream, ElementType::F32, &[4, 3, 3, 3], &w);
    let vb = put_plain(&mut stream, ElementType::F32, &[4], &bias);
    let y = room(&mut stream, ElementType::F32, &[1, 4, 5, 6]);
    let spec = ConvSpec {
        direction: Direction::Forward,
        c: 3,
        h: 5,
        w: 6,
        k: 4,
        r: 3,
        s: 3,
        pad: [1, 1],
        ..ConvSpec::default()
    };
    let chain = ConvChain::new(ConvProblem::new(spec).unwrap(), vec![PostOp::Bias(vb)]);
    planner.convolve(&mut stream, &chain, ConvOperands { x: &vx, w: &vw, y: &y }).unwrap();
    let mut expected = Vec::new();
    for (k, p, q) in
        (0..4usize).flat_map(|k| (0..5usize).flat_map(move |p| (0..6usize).map(move |q| (k, p, q))))
    {
        let mut sum = bias[k];
        for (c, r, s) in
            (0..3usize).flat_map(|c| (0..3usize).flat_map(move |r| (0..3usize).map(move |s| (c, r, s))))
        {
            let (i, j) = (p + r, q + s);
            if (1..=5).contains(&i) && (1..=6).contains(&j) {
                sum += x[(c * 5 + i - 1) * 6 + j - 1] * w[((k * 3 + c) * 3 + r) * 3 + s];
            }
        }
        expected.push(sum);
    }
    close(&get(&mut stream, &y), &expected, 1e-6, &format!("seed {seed}"));
}

#[test]
fn matrices_past_the_devices_range_are_cut() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let mut planner = Planner::default();
    for (m, k, n) in [(3u64, 50u64, 700u64), (300, 70, 5), (90, 20, 110), (90, 10, 110), (3, 300, 52)] {
        let (a, b) = (
            values(&mut random, ElementType::F32, m * k, 1.0),
            values(&mut random, ElementType::F32, k * n, 1.0),
        );
        for turned in [false, true] {
            let va = put_plain(&mut stream, ElementType::F32, &[1, m, k], &a);
            let strides = if turned { [k * n, 1, k] } else { [k * n, n, 1] };
            let vb = put(&mut stream, ElementType::F32, &[1, k, n], &strides, &b);
            let out = room(&mut stream, ElementType::F32, &[1, m, n]);
            let mut narrow = Narrow::new(stream, 16 << 10);
            planner.matmul(&mut narrow, Pass::Forward, &va, &vb, &out).unwrap();
            stream = narrow.stream;
            let mut expected = Vec::new();
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                expected.push((0..k).map(|t| a[(i * k + t) as usize] * b[(t * n + j) as usize]).sum());
            }
            close(
                &get(&mut stream, &out),
                &expected,
                tolerance(ElementType::F32),
                &format!("{m}x{k}x{n}, turned {turned}, seed {seed}"),
            );
        }
    }
}
