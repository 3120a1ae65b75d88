//! Products in tiles, against f64: every variant of the kernel, whole and split, with what is added, at the edges.

use crate::common;

use common::products::{arranged, product, tolerance};
use common::{TestQueue, close, get, random, room, stream, values};
use rand::Rng;
use rand::rngs::StdRng;
use wave32_ops::{ElementType, Planner, Sum};
use wave32_params::variants::{self, Variant};
use wave32_problem::{Activation, DType, Pass};
use wave32_solve::{Fp16Accumulation, Policy};

const TYPES: [(ElementType, DType); 3] =
    [(ElementType::F32, DType::F32), (ElementType::F16, DType::F16), (ElementType::BF16, DType::BF16)];

/// Of sums in f16.
const SUMMED_IN_F16: f64 = 7e-3;

fn planner(config: Option<String>) -> Planner {
    let is_half = config.as_ref().is_some_and(|config| config.starts_with('h'));
    let fp16_accumulation = if is_half { Fp16Accumulation::Always } else { Fp16Accumulation::Never };
    Planner::new(Policy { only: Some("gemm".into()), config, fp16_accumulation, ..Policy::default() })
}

/// A product, scaled and added to or not, against f64.
struct Case {
    dtype: ElementType,
    /// Batch, rows, terms, columns.
    sizes: [u64; 4],
    how: [u32; 2],
    /// Factors; of what is added, whether it has a batch, rows and columns.
    sum: Option<(f64, f64, [bool; 3])>,
    tolerance: f64,
    what: String,
}

impl Case {
    fn check(&self, stream: &mut TestQueue, planner: &mut Planner, random: &mut StdRng) {
        let [g, m, k, n] = self.sizes;
        let [a, b] = [g * m * k, g * k * n].map(|count| values(random, self.dtype, count, 1.0));
        let va = arranged(stream, self.dtype, [g, m, k], self.how[0], &a);
        let vb = arranged(stream, self.dtype, [g, k, n], self.how[1], &b);
        let out = room(stream, self.dtype, &[g, m, n]);
        let mut expected = product(&a, &b, self.sizes);
        let mut views = vec![va, vb, out];
        let done = match self.sum {
            None => planner.matmul(stream, Pass::Forward, &views[0], &views[1], &views[2]),
            Some((alpha, beta, has)) => {
                let sizes = [0, 1, 2].map(|dim| if has[dim] { [g, m, n][dim] } else { 1 });
                let added = values(random, self.dtype, sizes.iter().product(), 1.0);
                let activation = Activation::ALL[random.random_range(0..Activation::ALL.len())];
                for (at, value) in expected.iter_mut().enumerate() {
                    let place = [at as u64 / (m * n), at as u64 / n % m, at as u64 % n];
                    let from = (0..3).fold(0, |from, dim| from * sizes[dim] + place[dim] % sizes[dim]);
                    *value = activation.apply(alpha * *value + beta * added[from as usize]);
                }
                let view = arranged(stream, self.dtype, sizes, random.random_range(0..6), &added);
                views.push(view);
                let sum = Sum { added: view, beta, alpha, activation };
                planner.addmm(stream, Pass::Forward, &sum, &views[0], &views[1], &views[2])
            }
        };
        done.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        let found = get(stream, &views[2]);
        close(&found, &expected, self.tolerance, &self.what);
        views.iter().for_each(|view| stream.free(view.address - view.address % 512));
    }
}

/// Strides of 16 bytes where a variant wants them; every other size is odd. Where a part is enough, one of ten
/// variants.
#[test]
fn every_variant_whole_and_split() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for (element, dtype) in TYPES {
        // Storage of 16 bits differs in loads and stores alone: one tile of each layout.
        let is_enough = |v: &Variant| match (v.is_half(), dtype) {
            (true, _) => stream.caps().float16_math,
            (false, _) if v.is_matrix() => stream.caps().float16_matrix,
            (false, _) if v.is_dot() => stream.caps().float16_dot,
            (false, DType::F32) => true,
            (false, _) => ["64x64d", "s64x64"].iter().any(|tag| v.tag.ends_with(tag)),
        };
        let of_convolutions = |v: &Variant| v.defines.contains_key("IMAGES") || v.is_of_planes();
        let own = variants::of("gemm", dtype).filter(|v| !of_convolutions(v) && is_enough(v));
        for variant in stream.part().pick_one_of(10, own, &mut random) {
            let along = |name| variant.define("VEC") == 1 && variant.define(name) == 1;
            let (is_wide, bk) = (variant.define("VEC") == 1, variant.define("BK") as u64);
            let (a_along, b_along) = (along("ALONG_K"), along("BLONG_K"));
            for splits in [1, 3] {
                let sizes = loop {
                    let mut side = |most| random.random_range(1..=most);
                    let [g, mut m, mut k, mut n] = [side(2u64), side(300), side(150) + 6 * bk, side(300)];
                    if is_wide {
                        k = if a_along || b_along { k.next_multiple_of(4) } else { k };
                        m = if a_along { m } else { m.next_multiple_of(4) };
                        n = if b_along { n } else { n.next_multiple_of(4) };
                    }
                    // `put` skips 8 bytes for each of the count modulo 5.
                    if [g * m * k, g * k * n].iter().all(|count| count % 5 % 2 == 0) {
                        break [g, m, k, n];
                    }
                };
                let any = random.random_range(0..6);
                let how = if is_wide { [u32::from(!a_along), u32::from(b_along)] } else { [1, any] };
                // Two that are transposed are read element by element.
                let how = if is_wide { how } else { [how[0], 1] };
                let has = [random.random_bool(0.5), random.random_bool(0.5), random.random_bool(0.5)];
                let sum = (splits == 3 || random.random_bool(0.5)).then_some((-0.5, 2.0, has));
                let what = format!("{} /{splits} {sizes:?} {how:?} {sum:?}, seed {seed}", variant.name);
                let mut planner = planner(Some(format!("{}/{splits}", variant.tag)));
                let tolerance = if variant.is_half() { SUMMED_IN_F16 } else { tolerance(element) };
                Case { dtype: element, sizes, how, sum, tolerance, what }.check(
                    &mut stream,
                    &mut planner,
                    &mut random,
                );
            }
        }
    }
}

#[test]
fn any_sizes_and_strides() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let mut planner = planner(None);
    let types = stream.float_types(&mut random);
    for turn in 0..120 {
        let (dtype, turn) = (types[turn % types.len()], turn / types.len());
        let mut side = |most| random.random_range(1..=most);
        let sizes = [side(3), side(90), side(200), side(90)];
        // Now and then of the sizes that networks have.
        let sizes = if turn % 4 == 0 { sizes.map(|size: u64| size.next_multiple_of(4)) } else { sizes };
        let how = [random.random_range(0..6), random.random_range(0..6)];
        let has = [random.random_bool(0.5), random.random_bool(0.5), random.random_bool(0.5)];
        let sum = (turn % 5 == 0).then_some((1.5, -1.0, has));
        let what = format!("{dtype:?} {sizes:?} {how:?} {sum:?}, seed {seed}");
        let tolerance = tolerance(dtype);
        Case { dtype, sizes, how, sum, tolerance, what }.check(&mut stream, &mut planner, &mut random);
    }
}

/// One matrix for the whole batch, and one row for all rows.
#[test]
fn repeated_operands() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let mut planner = planner(None);
    for (g, m, k, n) in [(3, 65, 64, 68), (2, 33, 70, 41)] {
        let (a, b) = (
            values(&mut random, ElementType::F32, m * k, 1.0),
            values(&mut random, ElementType::F32, g * n, 1.0),
        );
        let va = arranged(&mut stream, ElementType::F32, [1, m, k], 0, &a).broadcast(&[g, m, k]).unwrap();
        let vb = arranged(&mut stream, ElementType::F32, [g, 1, n], 0, &b).broadcast(&[g, k, n]).unwrap();
        let out = room(&mut stream, ElementType::F32, &[g, m, n]);
        planner.matmul(&mut stream, Pass::Forward, &va, &vb, &out).unwrap();
        let all_a: Vec<f64> = (0..g).flat_map(|_| a.clone()).collect();
        let rows = b.chunks_exact(n as usize);
        let all_b: Vec<f64> = rows.flat_map(|row| row.repeat(k as usize)).collect();
        let what = format!("{g} of {m}x{k}x{n}, seed {seed}");
        close(
            &get(&mut stream, &out),
            &product(&all_a, &all_b, [g, m, k, n]),
            tolerance(ElementType::F32),
            &what,
        );
    }
}

/// Sums of small integers are exact, in every layout and split.
#[test]
fn integers_are_exact() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for splits in [1, 4] {
        for how in [[0, 0], [0, 1], [1, 0], [1, 1]] {
            for (m, k, n) in [(68, 136, 72), (67, 133, 71)] {
                let mut whole = |count| -> Vec<f64> {
                    (0..count).map(|_| f64::from(random.random_range(-8i32..=8))).collect()
                };
                let (a, b) = (whole(m * k), whole(k * n));
                let va = arranged(&mut stream, ElementType::F32, [1, m, k], how[0], &a);
                let vb = arranged(&mut stream, ElementType::F32, [1, k, n], how[1], &b);
                let out = room(&mut stream, ElementType::F32, &[1, m, n]);
                let mut planner = Planner::new(Policy {
                    only: Some("gemm".into()),
                    workspace_cap: (splits == 1).then_some(0),
                    ..Policy::default()
                });
                planner.matmul(&mut stream, Pass::Forward, &va, &vb, &out).unwrap();
                let what = format!("{m}x{k}x{n} {how:?}, seed {seed}");
                assert_eq!(get(&mut stream, &out), product(&a, &b, [1, m, k, n]), "{what}");
            }
        }
    }
}

/// A sum longer than a chunk goes through memory, with and without a workspace, to the same bits each time.
#[test]
fn long_sums_repeat_bit_for_bit() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for (cap, how, k) in [(Some(0), [0, 0], 9000), (None, [0, 1], 12_345), (Some(0), [1, 0], 8193)] {
        let (m, n) = (20, 36);
        let mut planner =
            Planner::new(Policy { only: Some("gemm".into()), workspace_cap: cap, ..Policy::default() });
        let [a, b] = [m * k, k * n].map(|count| values(&mut random, ElementType::F32, count, 1.0));
        let added = values(&mut random, ElementType::F32, n, 1.0);
        let va = arranged(&mut stream, ElementType::F32, [1, m, k], how[0], &a);
        let vb = arranged(&mut stream, ElementType::F32, [1, k, n], how[1], &b);
        let view = arranged(&mut stream, ElementType::F32, [1, 1, n], 0, &added);
        let mut expected = product(&a, &b, [1, m, k, n]);
        expected
            .iter_mut()
            .enumerate()
            .for_each(|(at, value)| *value = Activation::Gelu.apply(2.0 * *value + added[at % n as usize]));
        let mut made = Vec::new();
        for _ in 0..2 {
            let out = room(&mut stream, ElementType::F32, &[1, m, n]);
            let sum = Sum { added: view, beta: 1.0, alpha: 2.0, activation: Activation::Gelu };
            planner.addmm(&mut stream, Pass::Forward, &sum, &va, &vb, &out).unwrap();
            made.push(get(&mut stream, &out));
        }
        let what = format!("{m}x{k}x{n} {how:?}, seed {seed}");
        assert_eq!(made[0], made[1], "{what}");
        close(&made[0], &expected, tolerance(ElementType::F32), &what);
    }
}

/// Sums in f16 where the policy allows them for the pass, and gradients so small that their products are not f16's.
#[test]
fn sums_in_f16_of_tiny_gradients() {
    let Some(mut stream) = stream() else { return };
    let caps = stream.caps().clone();
    if !caps.float16_math {
        return;
    }
    let (mut random, seed) = random();
    let layouts = [([0, 0], "nn"), ([0, 1], "nt"), ([1, 0], "tn")];
    let layouts = stream.part().pick(layouts, 1, &mut random);
    for (fp16_accumulation, pass, is_half) in [
        (Fp16Accumulation::Never, Pass::Forward, false),
        (Fp16Accumulation::Matmul, Pass::Forward, true),
        (Fp16Accumulation::Matmul, Pass::Backward, false),
        (Fp16Accumulation::Forward, Pass::Forward, true),
        (Fp16Accumulation::Forward, Pass::Backward, false),
        (Fp16Accumulation::Always, Pass::Backward, true),
    ] {
        for &(how, lie) in &layouts {
            let config = format!("{}{lie}64x64/1", if is_half { "h" } else { "" });
            let policy = Policy {
                only: Some("gemm".into()),
                config: Some(config),
                fp16_accumulation,
                ..Policy::default()
            };
            let mut planner = Planner::new(policy.clone());
            let [m, k, n] = [72, 320, 64];
            let what = format!("{fp16_accumulation:?} {pass:?} {lie}, seed {seed}");
            let size = if pass == Pass::Backward { 4e-6 } else { 30.0 };
            let a = values(&mut random, ElementType::F16, m * k, size);
            let b = values(&mut random, ElementType::F16, k * n, 0.5);
            let va = arranged(&mut stream, ElementType::F16, [1, m, k], how[0], &a);
            let vb = arranged(&mut stream, ElementType::F16, [1, k, n], how[1], &b);
            let out = room(&mut stream, ElementType::F16, &[1, m, n]);
            planner
                .matmul(&mut stream, pass, &va, &vb, &out)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            close(&get(&mut stream, &out), &product(&a, &b, [1, m, k, n]), SUMMED_IN_F16, &what);
            if !is_half {
                let forbidden = Policy { config: Some(format!("h{lie}64x64/1")), ..policy };
                assert!(Planner::new(forbidden).matmul(&mut stream, pass, &va, &vb, &out).is_err(), "{what}");
            }
        }
    }
}
