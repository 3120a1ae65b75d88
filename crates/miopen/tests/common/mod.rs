//! A card's memory and tensors on it, for tests that call the C ABI.
//!
//! Without a HIP runtime and a card the tests are skipped, unless `WAVE32_REQUIRE_HIP` demands them; the virtual card runs them:
//! `target/vgpu/wave32-vgpu run --strict -- TEST-PROGRAM`.
#![allow(dead_code, reason = "each test file uses its part")]

use half::{bf16, f16};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use wave32_miopen as _;

pub type Id = usize;

unsafe extern "C" {
    pub fn miopenCreate(handle: *mut Id) -> c_int;
    pub fn miopenDestroy(handle: Id) -> c_int;
    pub fn miopenCreateTensorDescriptor(tensor: *mut Id) -> c_int;
    pub fn miopenDestroyTensorDescriptor(tensor: Id) -> c_int;
    pub fn miopenSetTensorDescriptor(
        tensor: Id,
        dtype: c_int,
        rank: c_int,
        sizes: *const c_int,
        strides: *const c_int,
    ) -> c_int;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    F16 = 0,
    F32 = 1,
    I32 = 2,
    U8 = 3,
    BF16 = 5,
    F64 = 6,
    I64 = 9,
    /// Not MIOpen's: places of 16 bits.
    U16 = 100,
}

pub const FLOATS: [Type; 3] = [Type::F32, Type::F16, Type::BF16];

impl Type {
    pub fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::BF16 | Self::U16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// Relative error that a few roundings of results in this type may make.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::F16 => 3e-3,
            Self::BF16 => 2e-2,
            Self::F64 => 1e-12,
            _ => 1e-5,
        }
    }

    pub fn round(self, value: f64) -> f64 {
        self.read(&self.bytes(value))
    }

    fn bytes(self, value: f64) -> Vec<u8> {
        match self {
            Self::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
            Self::BF16 => bf16::from_f64(value).to_le_bytes().to_vec(),
            Self::F32 => (value as f32).to_le_bytes().to_vec(),
            Self::F64 => value.to_le_bytes().to_vec(),
            Self::I32 => (value as i32).to_le_bytes().to_vec(),
            Self::I64 => (value as i64).to_le_bytes().to_vec(),
            Self::U8 => vec![value as u8],
            Self::U16 => (value as u16).to_le_bytes().to_vec(),
        }
    }

    fn read(self, bytes: &[u8]) -> f64 {
        let take = |count: usize| bytes[..count].iter().rev().fold(0u64, |word, &b| word << 8 | u64::from(b));
        match self {
            Self::F16 => f16::from_bits(take(2) as u16).to_f64(),
            Self::BF16 => bf16::from_bits(take(2) as u16).to_f64(),
            Self::F32 => f32::from_bits(take(4) as u32).into(),
            Self::F64 => f64::from_bits(take(8)),
            Self::I32 => f64::from(take(4) as i32),
            Self::I64 => take(8) as i64 as f64,
            Self::U8 => f64::from(bytes[0]),
            Self::U16 => take(2) as f64,
        }
    }
}

type Malloc = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int;

/// A handle and the runtime's memory calls.
pub struct Card {
    pub handle: Id,
    malloc: Malloc,
    free: Free,
    copy: Copy,
    pub random: StdRng,
    pub seed: u64,
    _hip: libloading::Library,
}

/// The card, with random numbers from a fresh seed or that of `WAVE32_TEST_SEED`.
pub fn card() -> Option<Card> {
    let mut handle = 0;
    // SAFETY: the call writes one number.
    if unsafe { miopenCreate(&mut handle) } != 0 {
        assert!(std::env::var_os("WAVE32_REQUIRE_HIP").is_none(), "no card, and one is demanded");
        eprintln!("skipped: no HIP runtime or no card");
        return None;
    }
    let names = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];
    // SAFETY: the runtime that the handle has loaded already.
    let hip =
        names.iter().find_map(|name| unsafe { libloading::Library::new(name) }.ok()).expect("libamdhip64");
    // SAFETY: the runtime's calls, with their types.
    let (malloc, free, copy) = unsafe {
        let malloc = *hip.get::<Malloc>(b"hipMalloc").unwrap();
        (malloc, *hip.get::<Free>(b"hipFree").unwrap(), *hip.get::<Copy>(b"hipMemcpy").unwrap())
    };
    let seed = std::env::var("WAVE32_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| rand::rng().random());
    Some(Card { handle, malloc, free, copy, random: StdRng::seed_from_u64(seed), seed, _hip: hip })
}

impl Drop for Card {
    fn drop(&mut self) {
        // SAFETY: made by miopenCreate.
        unsafe { miopenDestroy(self.handle) };
    }
}

/// A tensor on the card with a descriptor.
pub struct Tensor {
    pub dtype: Type,
    pub sizes: Vec<usize>,
    strides: Vec<usize>,
    pub desc: Id,
    pub data: *mut c_void,
    bytes: usize,
    free: Free,
    copy: Copy,
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: both were made for this tensor; the runtime waits for work on the memory.
        unsafe {
            miopenDestroyTensorDescriptor(self.desc);
            (self.free)(self.data);
        }
    }
}

impl Card {
    /// Bytes on the card, poisoned.
    fn room(&self, bytes: usize) -> *mut c_void {
        let mut data = null_mut();
        // SAFETY: the runtime writes an address; the copy fills what it gave.
        unsafe {
            assert_eq!((self.malloc)(&mut data, bytes), 0);
            assert_eq!((self.copy)(data, vec![0xff_u8; bytes].as_ptr().cast(), bytes, 1), 0);
        }
        data
    }

    /// A poisoned tensor; `order` lists the dimensions as they lie in memory, outermost first.
    pub fn poisoned(&self, dtype: Type, sizes: &[usize], order: &[usize]) -> Tensor {
        let mut strides = vec![0; sizes.len()];
        let mut stride = 1;
        for &dim in order.iter().rev() {
            (strides[dim], stride) = (stride, stride * sizes[dim]);
        }
        let ints = |values: &[usize]| values.iter().map(|&value| value as c_int).collect::<Vec<_>>();
        let mut desc = 0;
        let known = if dtype == Type::U16 { Type::F16 } else { dtype };
        // SAFETY: arrays as long as the rank.
        unsafe {
            assert_eq!(miopenCreateTensorDescriptor(&mut desc), 0);
            let (all, steps) = (ints(sizes), ints(&strides));
            let rank = sizes.len() as c_int;
            assert_eq!(
                miopenSetTensorDescriptor(desc, known as c_int, rank, all.as_ptr(), steps.as_ptr()),
                0
            );
        }
        let bytes = stride * dtype.size();
        let (free, copy) = (self.free, self.copy);
        Tensor { dtype, sizes: sizes.to_vec(), strides, desc, data: self.room(bytes), bytes, free, copy }
    }

    /// A poisoned tensor in order.
    pub fn plain(&self, dtype: Type, sizes: &[usize]) -> Tensor {
        self.poisoned(dtype, sizes, &(0..sizes.len()).collect::<Vec<_>>())
    }

    /// A tensor of these values, given in the order of the indices, and the values as they are in its type.
    pub fn put(&self, dtype: Type, sizes: &[usize], order: &[usize], values: &[f64]) -> (Tensor, Vec<f64>) {
        let made = self.poisoned(dtype, sizes, order);
        made.write(values);
        (made, values.iter().map(|&value| dtype.round(value)).collect())
    }

    /// A tensor of random values.
    pub fn random(
        &mut self,
        dtype: Type,
        sizes: &[usize],
        order: &[usize],
        range: [f64; 2],
    ) -> (Tensor, Vec<f64>) {
        let count = sizes.iter().product();
        let values: Vec<f64> = (0..count).map(|_| self.random.random_range(range[0]..range[1])).collect();
        self.put(dtype, sizes, order, &values)
    }

    /// N, C, H, W or N, H, W, C in memory.
    pub fn layout(&mut self) -> [usize; 4] {
        if self.random.random() { [0, 1, 2, 3] } else { [0, 2, 3, 1] }
    }

    pub fn size(&mut self, from: usize, to: usize) -> usize {
        self.random.random_range(from..=to)
    }
}

impl Tensor {
    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        let count: usize = self.sizes.iter().product();
        (0..count).map(|index| {
            let mut rest = index;
            let dims = self.sizes.iter().zip(&self.strides).rev();
            dims.map(|(size, stride)| {
                let at = rest % size * stride;
                rest /= size;
                at
            })
            .sum()
        })
    }

    pub fn write(&self, values: &[f64]) {
        let mut bytes = vec![0xff; self.bytes];
        let size = self.dtype.size();
        for (at, &value) in self.places().zip(values) {
            bytes[at * size..][..size].copy_from_slice(&self.dtype.bytes(value));
        }
        // SAFETY: as many bytes as the tensor has.
        assert_eq!(unsafe { (self.copy)(self.data, bytes.as_ptr().cast(), self.bytes, 1) }, 0);
    }

    /// Its values in the order of the indices, once work is done.
    pub fn read(&self) -> Vec<f64> {
        let mut bytes = vec![0; self.bytes];
        // SAFETY: as many bytes as the tensor has; the copy waits for work on the null stream.
        assert_eq!(unsafe { (self.copy)(bytes.as_mut_ptr().cast(), self.data, self.bytes, 2) }, 0);
        let size = self.dtype.size();
        self.places().map(|at| self.dtype.read(&bytes[at * size..])).collect()
    }

    /// That it holds `expected`, to its type's tolerance relative to the largest.
    pub fn expect(&self, expected: &[f64], what: &str) {
        self.near(expected, self.dtype.tolerance(), what);
    }

    pub fn near(&self, expected: &[f64], tolerance: f64, what: &str) {
        let found = self.read();
        assert_eq!(found.len(), expected.len(), "{what}");
        let scale = expected.iter().fold(1e-30_f64, |most, value| most.max(value.abs()));
        for (at, (f, e)) in found.iter().zip(expected).enumerate() {
            assert!((f - e).abs() <= tolerance * scale, "{what}: element {at} is {f}, expected {e}");
        }
    }
}

pub const NONE: *mut c_void = null_mut();
pub const ONE: f32 = 1.0;
pub const ZERO: f32 = 0.0;

/// A float's address, as the ABI wants it.
pub fn at(value: &f32) -> *const f32 {
    value
}

pub fn nothing() -> *const c_void {
    null()
}

/// Index of a 4-dimensional tensor in order.
pub fn index([_, c, h, w]: [usize; 4], at: [usize; 4]) -> usize {
    ((at[0] * c + at[1]) * h + at[2]) * w + at[3]
}
