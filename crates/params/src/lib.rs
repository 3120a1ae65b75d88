//! Every kernel's variants and what it takes: [`variants`], and a module for each source in `kernels/` with its parameters
//! and buffers as structs, its constants (flags, modes) and the names of its variants. `build.rs` writes the modules, so
//! that a launch which swaps, forgets or misnames a parameter does not compile:
//!
//! ```
//! use wave32_params::{Divisors, Params, copy};
//! let (sizes, from, to) = ([3, 4, 5], [60, 20, 5, 1], [1, 3, 12, 48]);
//! let by = Divisors::new(sizes.map(u64::from));
//! let params = copy::Params { count: 120, in_type: 0, out_type: 0, in_at: 0, out_at: 0, size: sizes, i: from, o: to, by };
//! assert_eq!(params.words().len(), 21);
//! ```
//!
//! Sizes in the place of strides:
//! ```compile_fail,E0308
//! use wave32_params::{Divisors, Params, copy};
//! let (sizes, from, to) = ([3, 4, 5], [60, 20, 5, 1], [1, 3, 12, 48]);
//! let by = Divisors::new(sizes.map(u64::from));
//! let params = copy::Params { count: 120, in_type: 0, out_type: 0, in_at: 0, out_at: 0, size: from, i: sizes, o: to, by };
//! ```
//! A parameter that is missing:
//! ```compile_fail,E0063
//! use wave32_params::{Divisors, Params, copy};
//! let (sizes, from, to) = ([3, 4, 5], [60, 20, 5, 1], [1, 3, 12, 48]);
//! let by = Divisors::new(sizes.map(u64::from));
//! let params = copy::Params { count: 120, in_type: 0, out_type: 0, in_at: 0, size: sizes, i: from, o: to, by };
//! ```
//! One that the kernel does not have:
//! ```compile_fail,E0560
//! let params = wave32_params::amp_scale::Params { scale_at: 0, tracker_at: 0, found_at: 0, interval: 1, growth: 1.0, backoff: 1.0 };
//! ```
//! Two strides that are swapped:
//! ```
//! use wave32_params::{Along, Strides};
//! let strides = Strides { n: Along(60), c: Along(20), h: Along(5), w: Along(1) };
//! let same = Strides { n: strides.n, c: strides.c, h: strides.h, w: strides.w };
//! ```
//! ```compile_fail,E0308
//! use wave32_params::{Along, Strides};
//! let strides = Strides { n: Along(60), c: Along(20), h: Along(5), w: Along(1) };
//! let swapped = Strides { n: strides.c, c: strides.n, h: strides.h, w: strides.w };
//! ```
#![forbid(unsafe_code)]

pub mod interface;
mod rows;
pub mod variants;

use std::fmt;
use std::marker::PhantomData;

pub use interface::MAX_PARAMS;

/// A kernel source.
pub trait Kernel {
    /// File stem in `kernels/`.
    const SOURCE: &'static str;
    /// Its parameters.
    type Params: Params;
    /// Its buffers, each a `B`.
    type Buffers<B>: Buffers<B>;
}

/// Parameters of a kernel.
pub trait Params {
    /// An array of 32-bit words.
    type Words: AsRef<[u32]>;
    /// The words as the kernel takes them. The first is 0: a launch adds it to its workgroups' x.
    fn words(&self) -> Self::Words;
}

/// Buffers of a kernel.
pub trait Buffers<B> {
    /// An array of them.
    type Array: AsRef<[B]>;
    /// In the order of their bindings.
    fn array(self) -> Self::Array;
}

/// The name of a variant of the kernel source `K`.
pub struct Name<K>(&'static str, PhantomData<K>);

impl<K> Name<K> {
    const fn new(name: &'static str) -> Self {
        Self(name, PhantomData)
    }

    /// `<source>_<tag>_<dtype>`.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl<K> Clone for Name<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Name<K> {}

impl<K> fmt::Debug for Name<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A stride in elements along one axis, `'n'`, `'c'`, `'h'` or `'w'`; those of other axes are other types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Along<const AXIS: char>(pub u32);

/// Element strides of a four-dimensional tensor: images (or filters), channels, rows, columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    /// From image to image, filter to filter.
    pub n: Along<'n'>,
    /// From channel to channel.
    pub c: Along<'c'>,
    /// From row to row.
    pub h: Along<'h'>,
    /// From column to column.
    pub w: Along<'w'>,
}

impl Strides {
    /// In that order.
    pub const fn new(n: u32, c: u32, h: u32, w: u32) -> Self {
        Self { n: Along(n), c: Along(c), h: Along(h), w: Along(w) }
    }
}

/// Two numbers of 16 bits, along y and along x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair(pub [i32; 2]);

impl Pair {
    /// The word: y low, x high.
    pub fn word(self) -> u32 {
        let [y, x] = self.0;
        (y as u32 & 0xffff) | (x as u32) << 16
    }

    /// Both as counts.
    pub fn counts(self) -> [u32; 2] {
        self.0.map(|v| v as u32)
    }
}

impl From<[u32; 2]> for Pair {
    fn from(counts: [u32; 2]) -> Self {
        Self(counts.map(|v| v as i32))
    }
}

/// What `quotient` of `kernels/divide.h` divides indices below 2^31 with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Divisors(pub(crate) [u32; 4]);

impl Divisors {
    /// For three divisors.
    pub fn new(divisors: [u64; 3]) -> Self {
        let mut words = [0; 4];
        for (at, divisor) in divisors.into_iter().enumerate() {
            let (magic, shift) = Self::one(divisor);
            words[at] = magic;
            words[3] |= shift << (8 * at);
        }
        Self(words)
    }

    /// Factor and shift (31 and more) for one divisor.
    pub fn one(divisor: u64) -> (u32, u32) {
        // 2^(31 + log) / divisor, rounded up: off by less than one part in 2^31.
        let log = divisor.max(1).next_power_of_two().trailing_zeros();
        (((1u64 << (31 + log)) / divisor.max(1) + 1) as u32, 31 + log)
    }
}

#[allow(
    missing_docs,
    clippy::module_name_repetitions,
    reason = "the kernel sources name and describe what they take"
)]
mod kernels {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}
pub use kernels::*;
