//! Attention against sums in f64.

use crate::common;

use common::{close, emulated_stream, get, philox, put, random, room, stream, values};
use rand::Rng;
use wave32_ops::{Attended, Attention, Dropout, ElementType, Gradients, View, attention, attention_back};
use wave32_solve::DeviceCaps;

/// Sizes of a case.
struct Case {
    n: u64,
    heads: u64,
    /// Heads of keys and values.
    shared: u64,
    queries: u64,
    keys: u64,
    e: u64,
    ev: u64,
}

impl Case {
    const fn new(n: u64, [heads, shared]: [u64; 2], [queries, keys]: [u64; 2], [e, ev]: [u64; 2]) -> Self {
        Self { n, heads, shared, queries, keys, e, ev }
    }
}

const CASES: [Case; 14] = [
    Case::new(2, [3, 3], [5, 7], [8, 8]),
    Case::new(1, [2, 2], [64, 64], [40, 40]),
    Case::new(2, [4, 2], [65, 130], [64, 64]),
    Case::new(1, [3, 1], [70, 33], [12, 72]),
    Case::new(1, [1, 1], [1, 200], [80, 80]),
    Case::new(1, [2, 2], [130, 129], [128, 128]),
    Case::new(3, [1, 1], [17, 1], [4, 4]),
    // A causal mask ends behind the last key.
    Case::new(1, [1, 1], [150, 100], [16, 16]),
    // Between the variants' sizes, and more elements than one launch has room for.
    Case::new(2, [2, 2], [70, 65], [36, 44]),
    Case::new(1, [1, 1], [66, 90], [52, 76]),
    Case::new(1, [2, 2], [66, 70], [12, 100]),
    Case::new(1, [2, 1], [33, 70], [160, 160]),
    Case::new(1, [2, 1], [150, 67], [40, 40]),
    Case::new(1, [1, 1], [66, 65], [256, 252]),
];

/// What is added to a score, and what a weight is multiplied with after the softmax.
#[derive(Clone, Copy)]
struct Shown<'a> {
    mask: &'a dyn Fn(u64) -> f64,
    kept: &'a dyn Fn(u64) -> f64,
}

impl<'a> Shown<'a> {
    fn by(mask: &'a dyn Fn(u64) -> f64) -> Self {
        Self { mask, kept: &|_| 1.0 }
    }
}

/// The result and the logarithms of the sums, by the definition.
fn reference(
    case: &Case,
    [q, k, v]: [&[f64]; 3],
    Shown { mask, kept }: Shown<'_>,
    scale: f64,
) -> (Vec<f64>, Vec<f64>) {
    let &Case { n, heads, shared, queries, keys, e, ev } = case;
    let (mut out, mut sums) = (Vec::new(), Vec::new());
    for row in 0..n * heads * queries {
        let (item, head) = (row / queries / heads, row / queries % heads);
        let of =
            |key: u64, size: u64| (((item * shared + head / (heads / shared)) * keys + key) * size) as usize;
        let scores: Vec<f64> = (0..keys)
            .map(|key| {
                let (a, b) = (&q[(row * e) as usize..], &k[of(key, e)..]);
                (0..e as usize).map(|d| a[d] * b[d]).sum::<f64>() * scale + mask(row * keys + key)
            })
            .collect();
        let most = scores.iter().fold(f64::NEG_INFINITY, |m, &s| m.max(s));
        let weights: Vec<f64> =
            scores.iter().map(|s| if most == f64::NEG_INFINITY { 0.0 } else { (s - most).exp() }).collect();
        let sum: f64 = weights.iter().sum();
        sums.push(if sum == 0.0 { f64::NEG_INFINITY } else { most + sum.ln() });
        for d in 0..ev as usize {
            let dot: f64 = (0..keys)
                .map(|key| kept(row * keys + key) * weights[key as usize] * v[of(key, ev) + d])
                .sum();
            out.push(if sum == 0.0 { 0.0 } else { dot / sum });
        }
    }
    (out, sums)
}

/// A sum, and the root of the sum of its terms' squares: the size of its error, if each term is off by chance.
fn sum(terms: impl Iterator<Item = f64>) -> (f64, f64) {
    let (sum, squares) = terms.fold((0.0, 0.0), |(sum, squares), term| (sum + term, squares + term * term));
    (sum, squares.sqrt())
}

/// The gradients of q, k, v and the mask for that of the result, by the definition, each with the sum of the magnitudes of its terms.
fn reference_back(
    case: &Case,
    [q, k, v, grad]: [&[f64]; 4],
    shown: Shown<'_>,
    scale: f64,
) -> [Vec<(f64, f64)>; 4] {
    let &Case { n, heads, shared, queries, keys, e, ev } = case;
    let (out, sums) = reference(case, [q, k, v], shown, scale);
    let scores = (n * heads * queries * keys) as usize;
    let mut made = [q.len(), k.len(), v.len(), scores].map(|of| vec![(0.0, 0.0); of]);
    let add = |to: &mut (f64, f64), term: f64, size: f64| *to = (to.0 + term, to.1 + size.abs());
    let (e, ev) = (e as usize, ev as usize);
    for row in 0..(n * heads * queries) as usize {
        let (item, head) = (row as u64 / queries / heads, row as u64 / queries % heads);
        let of_out = row * ev..(row + 1) * ev;
        // The kernel's dot is with the rounded result: its error is of the size of its terms, even where they cancel.
        let (dot, dot_size) = sum(out[of_out.clone()].iter().zip(&grad[of_out.clone()]).map(|(a, b)| a * b));
        for key in 0..keys {
            let at = ((item * shared + head / (heads / shared)) * keys + key) as usize;
            let (of_q, of_k, of_v) = (row * e, at * e, at * ev);
            let score = (0..e).map(|d| q[of_q + d] * k[of_k + d]).sum::<f64>() * scale
                + (shown.mask)(row as u64 * keys + key);
            if sums[row] == f64::NEG_INFINITY {
                continue;
            }
            let weight = (score - sums[row]).exp();
            let kept = (shown.kept)(row as u64 * keys + key);
            let (product, product_size) =
                sum(of_out.clone().map(|o| kept * grad[o] * v[of_v + o - row * ev]));
            let change = weight * (product - dot) * scale;
            let size = weight * (product_size + dot_size) * scale;
            made[3][row * keys as usize + key as usize] = (change / scale, size / scale);
            for d in 0..e {
                add(&mut made[0][of_q + d], change * k[of_k + d], size * k[of_k + d]);
                add(&mut made[1][of_k + d], change * q[of_q + d], size * q[of_q + d]);
            }
            for d in 0..ev {
                let term = kept * weight * grad[row * ev + d];
                add(&mut made[2][of_v + d], term, term);
            }
        }
    }
    made
}

/// That gradients of q, k, v and the mask are right up to errors of `tolerance` in what they are sums of.
fn gradients_close(found: &[Vec<f64>], wanted: &[Vec<(f64, f64)>], tolerance: f64, what: &str) {
    assert_eq!(found.len(), wanted.len());
    for ((name, found), wanted) in ["dq", "dk", "dv", "dmask"].iter().zip(found).zip(wanted) {
        assert_eq!(found.len(), wanted.len());
        // Products of elements, and dots with a rounded result, are in the terms.
        let largest = wanted.iter().fold(0.0, |most: f64, (_, size)| most.max(*size));
        for (i, (f, (e, size))) in found.iter().zip(wanted).enumerate() {
            let bound = 2.0 * tolerance * (size + 0.1 * largest) + 1e-6;
            assert!((f - e).abs() <= bound, "{name} {i} of {what}: {f}, not {e}, {size}");
        }
    }
}

/// Room with heads behind rows in memory.
fn rows_first(stream: &mut common::TestQueue, dtype: ElementType, [n, h, l, e]: [u64; 4]) -> View {
    let plain = room(stream, dtype, &[n, l, h, e]);
    View::new(plain.address, dtype, &[n, h, l, e], &[l * h * e, e, h * e, 1]).unwrap()
}

/// As `put`, at the start of a block: the kernel reads by vectors.
fn put4(
    stream: &mut common::TestQueue,
    dtype: ElementType,
    sizes: &[u64],
    strides: &[u64],
    data: &[f64],
) -> View {
    let mut data = data.to_vec();
    data.resize(data.len().next_multiple_of(5), 0.0);
    put(stream, dtype, sizes, strides, &data)
}

#[test]
fn every_shape_mask_and_type() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let types = stream.float_types(&mut random);
    // An error of a score is one of its exponential: scores are sums of up to 256 products of at most 4, times 0.3.
    for (dtype, tolerance) in [(ElementType::F32, 1e-5), (ElementType::F16, 1e-3), (ElementType::BF16, 8e-3)]
    {
        if !types.contains(&dtype) {
            continue;
        }
        // The types differ in loads and stores alone: a few shapes are enough for the others.
        let own = CASES
            .iter()
            .filter(|case| dtype == ElementType::F32 || case.e <= 40 || (case.e == case.ev && case.e <= 80));
        for case in stream.part().pick_one_of(3, own, &mut random) {
            let &Case { n, heads, shared, queries, keys, e, ev } = case;
            let of_q = [n, heads, queries, e];
            let [q_data, k_data, v_data] = [[heads, queries, e], [shared, keys, e], [shared, keys, ev]]
                .map(|[h, l, size]| values(&mut random, dtype, n * h * l * size, 2.0));
            // Heads beside each other in a row, as layers of transformers leave them.
            let q = put4(&mut stream, dtype, &of_q, &[queries * heads * e, e, heads * e, 1], &q_data);
            let plain = |h: u64, l: u64, size: u64| [h * l * size, l * size, size, 1];
            let k = put4(&mut stream, dtype, &[n, shared, keys, e], &plain(shared, keys, e), &k_data);
            let v = put4(&mut stream, dtype, &[n, shared, keys, ev], &plain(shared, keys, ev), &v_data);
            let grad_data = values(&mut random, dtype, n * heads * queries * ev, 2.0);
            let grad_strides = [queries * heads * ev, ev, heads * ev, 1];
            let grad = put4(&mut stream, dtype, &[n, heads, queries, ev], &grad_strides, &grad_data);
            let mut added = values(&mut random, dtype, n * heads * queries * keys, 3.0);
            added.iter_mut().for_each(|m| {
                if random.random_bool(0.3) {
                    *m = f64::NEG_INFINITY
                }
            });
            // A query that sees nothing.
            added[..keys as usize].fill(f64::NEG_INFINITY);
            let full = [n, heads, queries, keys];
            let mask = put(&mut stream, dtype, &full, &plain(heads, queries, keys), &added);
            let of_row: Vec<f64> = added[added.len() - keys as usize..].to_vec();
            let row = put(&mut stream, dtype, &full, &[0, 0, 0, 1], &of_row);
            for (kind, mask) in
                [("none", None), ("causal", None), ("whole", Some(&mask)), ("row", Some(&row))]
            {
                let causal = kind == "causal";
                let what = format!(
                    "{dtype:?} {n} x {heads}/{shared} x {queries} x {keys}, {e}, {ev}, mask {kind}, seed {seed}"
                );
                let of_mask = |at: u64| match kind {
                    "whole" => added[at as usize],
                    "row" => of_row[(at % keys) as usize],
                    "causal" if at % keys > at / keys % queries => f64::NEG_INFINITY,
                    _ => 0.0,
                };
                let (expected, expected_sums) =
                    reference(case, [&q_data, &k_data, &v_data], Shown::by(&of_mask), f64::from(0.3f32));
                let task = Attention { mask, causal, ..Attention::new(&q, &k, &v, 0.3) };
                // By tiles, and by whole queries where the device is small enough to be filled and reads keys as numbers; these
                // in f16 arithmetic too.
                for (scalar_loads, sums_in_f16) in [(false, false), (true, false), (true, true)] {
                    let caps = DeviceCaps { scalar_loads, compute_units: 0, ..stream.caps().clone() };
                    let is_f16 = sums_in_f16 && dtype == ElementType::F16 && caps.float16_math;
                    // Sums of 32 products up to 4 in f16: 0.0093 was the most in 320 heads of these sizes, computed so on the host.
                    // Matrix instructions take weights in f16, each off by up to a 2048th.
                    let in_matrices = dtype == ElementType::F16 && caps.float16_matrix && !scalar_loads;
                    let (tolerance, of_sums) = match (is_f16, in_matrices) {
                        (true, _) => (1.5e-2, 7e-3),
                        (_, true) => (2e-3, 5e-4),
                        _ => (tolerance, 1e-5),
                    };
                    stream.set_caps(caps);
                    let out = room(&mut stream, dtype, &[n, heads, queries, ev]);
                    let sums = room(&mut stream, ElementType::F32, &[n, heads, queries]);
                    let task = Attention { sums_in_f16, no_matrix: scalar_loads, ..task };
                    attention(&mut stream, &task, &out, Some(&sums)).unwrap();
                    close(&get(&mut stream, &out), &expected, tolerance, &what);
                    for (found, wanted) in get(&mut stream, &sums).iter().zip(&expected_sums) {
                        let off = (found - wanted).abs();
                        assert!(
                            found == wanted || off <= of_sums * (1.0 + wanted.abs()),
                            "{what}: {found}, not {wanted}"
                        );
                    }
                }
                let all = [&q_data[..], &k_data, &v_data, &grad_data];
                let gradients = reference_back(case, all, Shown::by(&of_mask), f64::from(0.3f32));
                let stats = room(&mut stream, ElementType::F32, &[2, n, heads, queries]);
                let out = rows_first(&mut stream, dtype, [n, heads, queries, ev]);
                attention(&mut stream, &task, &out, Some(&stats.narrow(0, 0, 1))).unwrap();
                let made = Attended { out: &out, grad: &grad, stats: &stats };
                let mut gradients_of = |scalar_loads: bool, plain: bool| {
                    let caps = DeviceCaps { scalar_loads, compute_units: 0, ..stream.caps().clone() };
                    stream.set_caps(caps);
                    let mut gradient = |sizes: [u64; 4]| {
                        if plain {
                            room(&mut stream, dtype, &sizes)
                        } else {
                            rows_first(&mut stream, dtype, sizes)
                        }
                    };
                    let [dq, dk, dv] = [[n, heads, queries, e], [n, shared, keys, e], [n, shared, keys, ev]]
                        .map(&mut gradient);
                    let wanted = Gradients { q: &dq, kv: Some([&dk, &dv]), mask: None };
                    attention_back(&mut stream, &task, &made, &wanted).unwrap();
                    [dq, dk, dv].map(|view| get(&mut stream, &view))
                };
                // By tiles, and by whole rows where such a kernel takes them.
                let by_rows = mask.is_none() && e == ev && e == 40;
                for scalar_loads in if by_rows { &[false, true][..] } else { &[false] } {
                    let found = gradients_of(*scalar_loads, true);
                    gradients_close(&found, &gradients[..3], tolerance, &format!("{what}, {scalar_loads}"));
                    if kind == "none" {
                        let again = gradients_of(*scalar_loads, false);
                        assert_eq!(again, found, "{what}: laid out otherwise, and again");
                    }
                }
                stream.set_caps(DeviceCaps { scalar_loads: true, compute_units: 0, ..stream.caps().clone() });
                // The same bits again, without the sums.
                let again = room(&mut stream, dtype, &[n, heads, queries, ev]);
                attention(&mut stream, &task, &again, None).unwrap();
                assert_eq!(get(&mut stream, &again), get(&mut stream, &out), "{what}");
            }
        }
    }
}

/// The kernels of matrix instructions: of each size of heads, without a mask and with the causal one; scores that fall, rise by little
/// and by much.
#[test]
fn matrix_instructions_emulated() {
    let Some(mut stream) = emulated_stream() else { return };
    let (mut random, seed) = random();
    for (e, heads, shared, queries, keys) in
        [(40, 2, 1, 150, 67), (64, 4, 2, 65, 130), (80, 1, 1, 1, 200), (40, 1, 1, 70, 64), (64, 1, 1, 33, 1)]
    {
        let dtype = ElementType::F16;
        let kernel = wave32_params::variants::find(&format!("attention_matrix_d{e}_f16")).unwrap();
        if kernel.matrix_lds() > stream.caps().lds_per_group {
            continue;
        }
        let case = Case { n: 2, heads, shared, queries, keys, e, ev: e };
        for rise in [0.0, -0.5, 0.5, 30.0] {
            let of_rows = |h: u64, l: u64| [l * h * e, e, h * e, 1];
            let [mut q_data, mut k_data, v_data] = [[heads, queries], [shared, keys], [shared, keys]]
                .map(|[h, l]| values(&mut random, dtype, 2 * h * l * e, 2.0));
            if rise != 0.0 {
                q_data.chunks_mut(e as usize).for_each(|row| row[0] = 1.0);
                let keys_of = k_data.chunks_mut(e as usize).enumerate();
                keys_of
                    .for_each(|(at, row)| row[0] = common::rounded(dtype, rise * (at as u64 % keys) as f64));
            }
            let q = put4(&mut stream, dtype, &[2, heads, queries, e], &of_rows(heads, queries), &q_data);
            let k = put4(&mut stream, dtype, &[2, shared, keys, e], &of_rows(shared, keys), &k_data);
            let v = put4(&mut stream, dtype, &[2, shared, keys, e], &of_rows(shared, keys), &v_data);
            for causal in [false, true] {
                let what =
                    format!("{e} elements, {queries} x {keys}, rise {rise}, causal {causal}, seed {seed}");
                let hidden =
                    |at: u64| if causal && at % keys > at / keys % queries { f64::NEG_INFINITY } else { 0.0 };
                let (expected, expected_sums) =
                    reference(&case, [&q_data, &k_data, &v_data], Shown::by(&hidden), f64::from(0.3f32));
                let task = Attention { causal, ..Attention::new(&q, &k, &v, 0.3) };
                let mut made = [0, 1].map(|_| {
                    let out = room(&mut stream, dtype, &[2, heads, queries, e]);
                    let sums = room(&mut stream, ElementType::F32, &[2, heads, queries]);
                    attention(&mut stream, &task, &out, Some(&sums)).unwrap();
                    (get(&mut stream, &out), get(&mut stream, &sums))
                });
                assert_eq!(made[0], made[1], "{what}: the same bits again");
                let (out, sums) = std::mem::take(&mut made[0]);
                // A weight in f16 is off by up to a 2048th.
                close(&out, &expected, 2e-3, &what);
                for (found, wanted) in sums.iter().zip(&expected_sums) {
                    let off = (found - wanted).abs();
                    assert!(
                        found == wanted || off <= 5e-4 * (1.0 + wanted.abs()),
                        "{what}: {found}, not {wanted}"
                    );
                }
                // Scores that are far apart make gradients of products that cancel.
                if e > 64 || rise != 0.0 {
                    continue;
                }
                let grad_data = values(&mut random, dtype, 2 * heads * queries * e, 2.0);
                let strides = of_rows(heads, queries);
                let grad = put4(&mut stream, dtype, &[2, heads, queries, e], &strides, &grad_data);
                let all = [&q_data[..], &k_data, &v_data, &grad_data];
                let wanted = reference_back(&case, all, Shown::by(&hidden), f64::from(0.3f32));
                let stats = room(&mut stream, ElementType::F32, &[2, 2, heads, queries]);
                let out = rows_first(&mut stream, dtype, [2, heads, queries, e]);
                attention(&mut stream, &task, &out, Some(&stats.narrow(0, 0, 1))).unwrap();
                let made = Attended { out: &out, grad: &grad, stats: &stats };
                let found = [0, 1].map(|turn| {
                    let [dq, dk, dv] = [[heads, queries], [shared, keys], [shared, keys]].map(|[h, l]| {
                        let sizes = [2, h, l, e];
                        if turn == 0 {
                            room(&mut stream, dtype, &sizes)
                        } else {
                            rows_first(&mut stream, dtype, sizes)
                        }
                    });
                    let wanted = Gradients { q: &dq, kv: Some([&dk, &dv]), mask: None };
                    attention_back(&mut stream, &task, &made, &wanted).unwrap();
                    [dq, dk, dv].map(|view| get(&mut stream, &view))
                });
                assert_eq!(found[0], found[1], "{what}: laid out otherwise, and again");
                gradients_close(&found[0], &wanted[..3], 2e-3, &what);
            }
        }
        assert!(stream.has_launched(&kernel.name), "{}", kernel.name);
        let back = format!("attention_matrix_back_d{e}_f16");
        assert!(e > 64 || stream.has_launched(&back), "{back}");
    }
}

/// Whether dropout keeps a weight: 16 bits of those of its four queries and four keys.
fn is_kept(dropped: u16, key: [u32; 2], head: u64, query: u64, of_key: u64) -> bool {
    let half = query % 4 / 2;
    let counter = [of_key / 4, query / 4, head, half].map(|part| part as u32);
    let word = philox(7, counter, key)[(query % 2 * 2 + of_key % 4 / 2) as usize];
    word >> (16 * (of_key % 2)) & 0xffff >= u32::from(dropped)
}

/// Dropout after the softmax and the mask's gradient, of each variant: the oracle draws the same numbers by itself.
#[test]
fn dropout_and_the_masks_gradient() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let types = stream.float_types(&mut random);
    let cases = [
        Case::new(2, [4, 2], [65, 70], [40, 40]),
        Case::new(1, [2, 2], [70, 129], [64, 64]),
        Case::new(2, [2, 1], [67, 33], [76, 80]),
        Case::new(1, [2, 2], [66, 70], [128, 100]),
        Case::new(2, [2, 1], [9, 70], [16, 160]),
    ];
    for (dtype, tolerance) in [(ElementType::F32, 1e-5), (ElementType::F16, 1e-3), (ElementType::BF16, 8e-3)]
    {
        if !types.contains(&dtype) {
            continue;
        }
        for case in stream.part().pick_one_of(2, cases.iter(), &mut random) {
            let &Case { n, heads, shared, queries, keys, e, ev } = case;
            let plain = |h: u64, l: u64, size: u64| [h * l * size, l * size, size, 1];
            let of = [(heads, queries, e), (shared, keys, e), (shared, keys, ev), (heads, queries, ev)];
            let data = of.map(|(h, l, size)| values(&mut random, dtype, n * h * l * size, 2.0));
            let [q, k, v, grad] = [0, 1, 2, 3].map(|at| {
                let (h, l, size) = of[at];
                put4(&mut stream, dtype, &[n, h, l, size], &plain(h, l, size), &data[at])
            });
            let [q_data, k_data, v_data, grad_data] = &data;
            let added = values(&mut random, dtype, n * heads * queries * keys, 3.0);
            let full = [n, heads, queries, keys];
            let mask = put(&mut stream, dtype, &full, &plain(heads, queries, keys), &added);
            let rows = n * heads * queries;
            let bits: [u32; 2] = random.random();
            for dropped in [0, 6554, 40000] {
                let what = format!(
                    "{dtype:?} {n} x {heads}/{shared} x {queries} x {keys}, {e}, {ev}, {dropped}, seed {seed}"
                );
                let by = 65536.0 / f64::from(65536 - u32::from(dropped));
                let kept = |at: u64| {
                    let (row, of_key) = (at / keys, at % keys);
                    let keeps = dropped == 0 || is_kept(dropped, bits, row / queries, row % queries, of_key);
                    if keeps { by } else { 0.0 }
                };
                let of_mask = |at: u64| added[at as usize];
                let shown = Shown { mask: &of_mask, kept: &kept };
                let scale = f64::from(0.3f32);
                let (expected, _) = reference(case, [q_data, k_data, v_data], shown, scale);
                let wanted = reference_back(case, [q_data, k_data, v_data, grad_data], shown, scale);
                let drops = dropped > 0;
                let stats = room(&mut stream, ElementType::F32, &[2 * rows + if drops { 2 } else { 0 }]);
                let key = View::new(stats.address + 8 * rows, ElementType::I32, &[2], &[1]).unwrap();
                if drops {
                    let words = put(
                        &mut stream,
                        ElementType::I32,
                        &[2],
                        &[1],
                        &bits.map(|word| f64::from(word as i32)),
                    );
                    wave32_ops::copy(&mut stream, &words, &key).unwrap();
                }
                let task = Attention {
                    mask: Some(&mask),
                    dropout: drops.then_some(Dropout { dropped, key: &key }),
                    ..Attention::new(&q, &k, &v, 0.3)
                };
                let made: Vec<Vec<Vec<f64>>> = [0, 1]
                    .map(|_| {
                        let out = room(&mut stream, dtype, &[n, heads, queries, ev]);
                        attention(&mut stream, &task, &out, Some(&stats.narrow(0, 0, rows))).unwrap();
                        let made = Attended { out: &out, grad: &grad, stats: &stats };
                        let sizes =
                            [[n, heads, queries, e], [n, shared, keys, e], [n, shared, keys, ev], full];
                        let [dq, dk, dv, dmask] = sizes.map(|sizes| room(&mut stream, dtype, &sizes));
                        let wanted = Gradients { q: &dq, kv: Some([&dk, &dv]), mask: Some(&dmask) };
                        attention_back(&mut stream, &task, &made, &wanted).unwrap();
                        [out, dq, dk, dv, dmask].map(|view| get(&mut stream, &view)).to_vec()
                    })
                    .to_vec();
                assert_eq!(made[0], made[1], "{what}: the same bits again");
                close(&made[0][0], &expected, tolerance * by, &what);
                gradients_close(&made[0][1..], &wanted, tolerance, &what);
            }
        }
    }
}

#[test]
fn what_it_does_not_take_is_refused() {
    let Some(mut stream) = stream() else { return };
    let make = |stream: &mut common::TestQueue, sizes: [u64; 4]| room(stream, ElementType::F32, &sizes);
    let good = make(&mut stream, [1, 2, 8, 16]);
    let refusal = |stream: &mut common::TestQueue, q: &View, k: &View, v: &View, out: &View| {
        let task = Attention::new(q, k, v, 1.0);
        attention(stream, &task, out, None).unwrap_err().to_string()
    };
    let odd = make(&mut stream, [1, 2, 8, 6]);
    assert!(refusal(&mut stream, &odd, &odd, &odd, &odd).starts_with("not-in-vectors"));
    let large = make(&mut stream, [1, 2, 8, 260]);
    assert!(refusal(&mut stream, &large, &large, &large, &large).starts_with("head-too-large"));
    let heads = make(&mut stream, [1, 3, 8, 16]);
    assert!(refusal(&mut stream, &good, &heads, &heads, &good).starts_with("different-sizes"));
    let half = room(&mut stream, ElementType::F16, &[1, 2, 8, 16]);
    let stats = room(&mut stream, ElementType::F32, &[2, 1, 2, 8]);
    let turned = rows_first(&mut stream, ElementType::F32, [1, 2, 8, 16]);
    let back = |stream: &mut common::TestQueue, grad: &View, stats: &View, dq: &View| {
        let task = Attention::new(&good, &good, &good, 1.0);
        let made = Attended { out: &good, grad, stats };
        let wanted = Gradients { q: dq, kv: None, mask: None };
        attention_back(stream, &task, &made, &wanted).unwrap_err().to_string()
    };
    assert!(back(&mut stream, &turned, &stats, &good).starts_with("different-layouts"));
    assert!(back(&mut stream, &good, &stats.narrow(0, 0, 1), &good).starts_with("different-sizes"));
    assert!(back(&mut stream, &half, &stats, &good).starts_with("element-type"));
    let scores = room(&mut stream, ElementType::F32, &[1, 2, 8, 8]);
    for (mask, causal) in [(None, false), (Some(&scores), true)] {
        let task = Attention { mask, causal, ..Attention::new(&good, &good, &good, 1.0) };
        let made = Attended { out: &good, grad: &good, stats: &stats };
        let wanted = Gradients { q: &good, kv: None, mask: Some(&scores) };
        let refused = attention_back(&mut stream, &task, &made, &wanted).unwrap_err().to_string();
        assert!(refused.starts_with("no-mask"), "{refused}");
    }
    let wide = room(&mut stream, ElementType::F32, &[1, 2, 8, 32]).narrow(3, 0, 16);
    assert!(back(&mut stream, &good, &stats, &wide).starts_with("layout"));
    assert!(refusal(&mut stream, &good, &half, &half, &good).starts_with("element-type"));
}

#[test]
fn the_running_maximum_may_grow_and_overflow() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let [n, heads, queries, keys, e] = [1, 1, 9, 70, 40];
    for (scalar_loads, dtype) in
        [(false, ElementType::F32), (true, ElementType::F32), (true, ElementType::F16)]
    {
        let sums_in_f16 = dtype == ElementType::F16;
        stream.set_caps(DeviceCaps { scalar_loads, compute_units: 0, ..stream.caps().clone() });
        // Scores rise from key to key, by little and by much; the last case's are beyond f32's exponentials by far. In f16, where
        // a score of 207 is off by 0.1, and these times the logarithm of e are the largest sum.
        for rise in [0.1, 3.0, 40.0, 4000.0] {
            let rise = if sums_in_f16 { f64::min(rise, 600.0) } else { rise };
            let case = Case { n, heads, shared: heads, queries, keys, e, ev: e };
            let q_data = vec![1.0; (queries * e) as usize];
            let k_data: Vec<f64> = (0..keys * e)
                .map(|at| if at % e == 0 { f64::from((rise * (at / e) as f64) as f32) } else { 0.0 })
                .collect();
            let v_data = values(&mut random, dtype, keys * e, 2.0);
            let put_rows = |stream: &mut common::TestQueue, rows: u64, data: &[f64]| {
                put4(stream, dtype, &[1, 1, rows, e], &[rows * e, rows * e, e, 1], data)
            };
            let q = put_rows(&mut stream, queries, &q_data);
            let [k, v] = [&k_data, &v_data].map(|data| put_rows(&mut stream, keys, data));
            for causal in [false, true] {
                let hidden = |at: u64| if causal && at % keys > at / keys { f64::NEG_INFINITY } else { 0.0 };
                let (expected, _) = reference(&case, [&q_data, &k_data, &v_data], Shown::by(&hidden), 1.0);
                let out = room(&mut stream, dtype, &[n, heads, queries, e]);
                let task =
                    Attention { causal, sums_in_f16, no_matrix: true, ..Attention::new(&q, &k, &v, 1.0) };
                attention(&mut stream, &task, &out, None).unwrap();
                let what =
                    format!("{dtype:?}, rise {rise}, causal {causal}, scalar {scalar_loads}, seed {seed}");
                // A score of 280,000 is off by 0.02 in f32.
                let tolerance = if rise > 100.0 || sums_in_f16 { 0.1 } else { 1e-4 };
                close(&get(&mut stream, &out), &expected, tolerance, &what);
            }
        }
    }
}
