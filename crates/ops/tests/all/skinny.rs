//! Products with a small side, against f64: every form of the kernel, aligned and not, in one launch, in parts and in
//! pieces that a device can bind.

use crate::common;

use common::products::{arranged, product, tolerance};
use common::{TestQueue, close, get, random, room, stream, values};
use rand::Rng;
use rand::rngs::StdRng;
use wave32_ops::{ElementType, Planner, Sum};
use wave32_problem::{Activation, Pass};

#[test]
fn products_with_a_small_side() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let mut planner = Planner::default();
    let types = stream.float_types(&mut random);
    for turn in 0..90 {
        let (dtype, turn) = (types[turn % types.len()], turn / types.len());
        let (few, many) = (random.random_range(1..=16u64), random.random_range(17..=400));
        // Now and then of the sizes that networks have: multiples of 4.
        let whole = |size: u64| if turn % 2 == 0 { size.next_multiple_of(4) } else { size };
        let [few, many, other] = [few, many, random.random_range(1..=700)].map(whole);
        let [m, k, n] = match turn % 3 {
            0 => [few, other, many],
            1 => [many, other, few],
            _ => [other, few, many],
        };
        let g = random.random_range(1..=2);
        let how = [random.random_range(0..6), random.random_range(0..6)];
        check(&mut stream, &mut planner, dtype, [g, m, k, n], how, &mut random, seed);
    }
}

/// Every variant: rows and columns of the large operand and outer products, narrow and wide, aligned and not.
#[test]
fn every_form_of_the_kernel() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let mut planner = Planner::default();
    for dtype in stream.float_types(&mut random) {
        for (few, many) in [(4, 512), (16, 512), (16, 513)] {
            for (how, sizes) in
                [([0, 1], [few, many, 512]), ([0, 0], [few, 512, many]), ([0, 0], [512, few, many])]
            {
                let [m, k, n] = sizes;
                check(&mut stream, &mut planner, dtype, [1, m, k, n], how, &mut random, seed);
            }
        }
    }
}

/// A product against f64, the operands in the arrangements `how`.
fn check(
    stream: &mut TestQueue,
    planner: &mut Planner,
    dtype: ElementType,
    [g, m, k, n]: [u64; 4],
    how: [u32; 2],
    random: &mut StdRng,
    seed: u64,
) {
    let (a, b) = (values(random, dtype, g * m * k, 1.0), values(random, dtype, g * k * n, 1.0));
    let va = arranged(stream, dtype, [g, m, k], how[0], &a);
    let vb = arranged(stream, dtype, [g, k, n], how[1], &b);
    let out = room(stream, dtype, &[g, m, n]);
    planner.matmul(stream, Pass::Forward, &va, &vb, &out).unwrap();
    let what = format!("{dtype:?} {g}x{m}x{k}x{n}, arrangements {how:?}, seed {seed}");
    close(&get(stream, &out), &product(&a, &b, [g, m, k, n]), tolerance(dtype), &what);
    [va, vb, out].iter().for_each(|view| stream.free(view.address - view.address % 512));
}

/// In one launch where there is a kernel, else behind the product; what is added is not read with a factor of 0.
#[test]
fn products_are_scaled_and_added_to() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let mut planner = Planner::default();
    for (turn, [g, m, k, n]) in
        [[1, 3, 64, 70], [2, 70, 65, 5], [1, 40, 7, 30], [1, 2, 40_000, 24], [1, 40, 41, 42]]
            .into_iter()
            .enumerate()
    {
        for (alpha, beta) in [(1.0, 1.0), (-0.5, 2.0), (1.5, 0.0)] {
            let [a, b] =
                [g * m * k, g * k * n].map(|count| values(&mut random, ElementType::F32, count, 1.0));
            let va = arranged(&mut stream, ElementType::F32, [g, m, k], 0, &a);
            let vb = arranged(&mut stream, ElementType::F32, [g, k, n], turn as u32 % 2, &b);
            // A bias of the columns, of the rows, and a whole matrix.
            let sizes = [[1, 1, n], [1, m, 1], [g, m, n]][random.random_range(0..3)];
            let mut added = values(&mut random, ElementType::F32, sizes.iter().product(), 1.0);
            if beta == 0.0 {
                added.fill(f64::NAN);
            }
            let view = arranged(&mut stream, ElementType::F32, sizes, random.random_range(0..6), &added);
            let out = room(&mut stream, ElementType::F32, &[g, m, n]);
            let activation = Activation::ALL[random.random_range(0..Activation::ALL.len())];
            let sum = Sum { added: view, beta, alpha, activation };
            planner.addmm(&mut stream, Pass::Forward, &sum, &va, &vb, &out).unwrap();
            let mut expected = product(&a, &b, [g, m, k, n]);
            for (at, value) in expected.iter_mut().enumerate() {
                let [i, j, l] = [at as u64 / (m * n), at as u64 / n % m, at as u64 % n];
                let [_, rows, columns] = sizes;
                let from = (i % sizes[0] * rows + j % rows) * columns + l % columns;
                *value *= alpha;
                if beta != 0.0 {
                    *value += beta * added[from as usize];
                }
                *value = activation.apply(*value);
            }
            let what = format!("{g}x{m}x{k}x{n}, {alpha}, {beta} of {sizes:?}, {activation}, seed {seed}");
            close(&get(&mut stream, &out), &expected, tolerance(ElementType::F32), &what);
        }
    }
}

#[test]
fn long_sums_are_cut_and_repeat_bit_for_bit() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let mut planner = Planner::default();
    for (m, k, n, how) in [(2, 30_000, 40, 1), (5, 40_001, 20, 0), (30, 20_000, 3, 0), (1, 70_000, 9, 1)] {
        let [a, b] = [m * k, k * n].map(|count| values(&mut random, ElementType::F32, count, 1.0));
        let va = arranged(&mut stream, ElementType::F32, [1, m, k], 0, &a);
        let vb = arranged(&mut stream, ElementType::F32, [1, k, n], how, &b);
        let mut made = Vec::new();
        for _ in 0..2 {
            let out = room(&mut stream, ElementType::F32, &[1, m, n]);
            planner.matmul(&mut stream, Pass::Forward, &va, &vb, &out).unwrap();
            made.push(get(&mut stream, &out));
        }
        assert_eq!(made[0], made[1], "{m}x{k}x{n}, seed {seed}");
        let what = format!("{m}x{k}x{n}, seed {seed}");
        close(&made[0], &product(&a, &b, [1, m, k, n]), tolerance(ElementType::F32), &what);
    }
}

/// What lies beside the operands, and what a lane reads for want of an element of its own, reaches no sum.
#[test]
fn infinities_stay_where_they_are() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let mut planner = Planner::default();
    for [m, k, n] in [[3, 100, 50], [50, 100, 3], [3, 101, 51], [40, 3, 50], [16, 300, 129]] {
        for how in [0, 1] {
            let mut a = values(&mut random, ElementType::F32, m * k, 1.0);
            let mut b = values(&mut random, ElementType::F32, k * n, 1.0);
            let infinite = random.random_range(0..b.len());
            b[infinite] = f64::INFINITY;
            b[(k * n - 1) as usize] = f64::INFINITY;
            a[(m * k - 1) as usize] = f64::NEG_INFINITY;
            let va = arranged(&mut stream, ElementType::F32, [1, m, k], how, &a);
            let vb = arranged(&mut stream, ElementType::F32, [1, k, n], how, &b);
            let out = room(&mut stream, ElementType::F32, &[1, m, n]);
            planner.matmul(&mut stream, Pass::Forward, &va, &vb, &out).unwrap();
            let what = format!("{m}x{k}x{n}, arrangement {how}, seed {seed}");
            close(
                &get(&mut stream, &out),
                &product(&a, &b, [1, m, k, n]),
                tolerance(ElementType::F32),
                &what,
            );
        }
    }
}
