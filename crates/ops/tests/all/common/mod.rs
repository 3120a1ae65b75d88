//! What the tests share: a queue, and tensors whose elements are seen as f64 from here.

pub mod products;
pub mod stream;

pub use stream::{Narrow, TestQueue, emulated_stream, stream};

use half::{bf16, f16};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wave32_ops::index::Errors;
use wave32_ops::{ElementType, Queue, View};

/// A generator with a fresh seed, and the seed to name in failures.
pub fn random() -> (StdRng, u64) {
    let seed = rand::random();
    (StdRng::seed_from_u64(seed), seed)
}

/// `value` as an element of that type holds it.
pub fn rounded(dtype: ElementType, value: f64) -> f64 {
    read(dtype, &bytes(dtype, value))
}

/// The bytes of one element.
pub fn bytes(dtype: ElementType, value: f64) -> Vec<u8> {
    match dtype {
        ElementType::F32 => (value as f32).to_le_bytes().to_vec(),
        // Through f32, as PyTorch's CPU does; `bf16::from_f64` drops the lower half of the mantissa before it rounds.
        ElementType::F16 => f16::from_f32(value as f32).to_le_bytes().to_vec(),
        ElementType::BF16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        ElementType::F64 => value.to_le_bytes().to_vec(),
        ElementType::I64 => (value as i64).to_le_bytes().to_vec(),
        ElementType::I32 => (value as i64 as i32).to_le_bytes().to_vec(),
        ElementType::I16 => (value as i64 as i16).to_le_bytes().to_vec(),
        ElementType::I8 | ElementType::U8 => vec![value as i64 as u8],
        ElementType::Bool => vec![u8::from(value != 0.0)],
    }
}

fn read(dtype: ElementType, b: &[u8]) -> f64 {
    let four = || [b[0], b[1], b[2], b[3]];
    let eight = || [b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]];
    match dtype {
        ElementType::F32 => f32::from_le_bytes(four()).into(),
        ElementType::F16 => f16::from_le_bytes([b[0], b[1]]).to_f64(),
        ElementType::BF16 => bf16::from_le_bytes([b[0], b[1]]).to_f64(),
        ElementType::F64 => f64::from_le_bytes(eight()),
        ElementType::I64 => i64::from_le_bytes(eight()) as f64,
        ElementType::I32 => i32::from_le_bytes(four()).into(),
        ElementType::I16 => i16::from_le_bytes([b[0], b[1]]).into(),
        ElementType::I8 => (b[0] as i8).into(),
        ElementType::U8 | ElementType::Bool => b[0].into(),
    }
}

/// A view in memory of its own with exactly these values at its elements, in index order; what lies
/// between them is poison (0xdb).
pub fn put(
    stream: &mut TestQueue,
    dtype: ElementType,
    sizes: &[u64],
    strides: &[u64],
    values: &[f64],
) -> View {
    let view = View::new(0, dtype, sizes, strides).unwrap();
    let size = dtype.size() as usize;
    let mut data = vec![0xdb; (view.extent() as usize * size).max(1)];
    for (at, &value) in offsets(&view).into_iter().zip(values) {
        data[at * size..][..size].copy_from_slice(&bytes(dtype, value));
    }
    // Not at the start of the block, so that offsets are put to the test.
    let skip = 8 * (values.len() as u64 % 5);
    let address = stream.alloc(data.len() as u64 + skip).unwrap() + skip;
    Queue::upload(stream, address, &data).unwrap();
    View::new(address, dtype, sizes, strides).unwrap()
}

/// As [`put`], contiguous.
pub fn put_plain(stream: &mut TestQueue, dtype: ElementType, sizes: &[u64], values: &[f64]) -> View {
    let plain = View::contiguous(0, dtype, sizes).unwrap();
    put(stream, dtype, sizes, plain.strides(), values)
}

/// A poisoned view for results.
pub fn room(stream: &mut TestQueue, dtype: ElementType, sizes: &[u64]) -> View {
    let view = put_plain(stream, dtype, sizes, &[]);
    assert!(view.is_contiguous());
    view
}

/// The values of a view's elements, in index order.
pub fn get(stream: &mut TestQueue, view: &View) -> Vec<f64> {
    let size = view.dtype.size() as usize;
    let mut data = vec![0; view.extent() as usize * size];
    Queue::download(stream, view.address, &mut data).unwrap();
    offsets(view).into_iter().map(|at| read(view.dtype, &data[at * size..])).collect()
}

fn offsets(view: &View) -> Vec<usize> {
    let mut all = vec![0usize];
    for (&size, &stride) in view.sizes().iter().zip(view.strides()) {
        all = all.iter().flat_map(|&at| (0..size).map(move |i| at + (i * stride) as usize)).collect();
    }
    all
}

/// Random values in -range..range that the type holds exactly.
pub fn values(random: &mut StdRng, dtype: ElementType, count: u64, range: f64) -> Vec<f64> {
    let one = |random: &mut StdRng| match dtype {
        ElementType::Bool => f64::from(random.random_bool(0.5)),
        ElementType::U8 => random.random_range(0.0..range.min(255.0)).trunc(),
        dtype if dtype.is_float() => rounded(dtype, random.random_range(-range..range)),
        _ => random.random_range(-range.min(127.0)..range.min(127.0)).trunc(),
    };
    (0..count).map(|_| one(random)).collect()
}

/// Fails unless every value is within `tolerance` of the expected one, relative to the largest of them (NaN
/// matches NaN, infinities match themselves).
pub fn close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    close_beside(found, expected, expected, tolerance, what);
}

/// The same relative to the largest of `magnitudes`: of what cancels in a difference.
pub fn close_beside(found: &[f64], expected: &[f64], magnitudes: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = magnitudes.iter().filter(|v| v.is_finite()).fold(1e-30, |m: f64, v| m.max(v.abs()));
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let same = f == e || (f.is_nan() && e.is_nan());
        assert!(same || (f - e).abs() <= tolerance * scale, "{what}: element {i} is {f}, expected {e}");
    }
}

/// A word that kernels raise where an index is out of range.
pub fn errors(stream: &mut TestQueue) -> Errors {
    let address = stream.alloc(4).unwrap();
    Queue::fill(stream, address, 4, 0).unwrap();
    Errors(address)
}

/// Whether they did.
pub fn raised(stream: &mut TestQueue, errors: Errors) -> bool {
    let mut word = [0; 4];
    Queue::download(stream, errors.0, &mut word).unwrap();
    assert!(word[0] <= 1 && word[1..] == [0; 3]);
    word[0] == 1
}

/// Philox4x32 of so many rounds, as its paper defines it (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
pub fn philox(rounds: u32, mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..rounds {
        let a = 0xd251_1f53u64 * u64::from(counter[0]);
        let b = 0xcd9e_8d57u64 * u64::from(counter[2]);
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}
