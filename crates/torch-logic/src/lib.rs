//! What the PyTorch device decides without libtorch: types, numbers, sizes, strides, and the words for what is wrong with
//! them. `wave32-torch` asks here and calls libtorch and the device.
//!
//! The rules are PyTorch's. Each module's tests hold it against a naive statement of its rule.

#![forbid(unsafe_code)]

pub mod checks;
pub mod convolution;
pub mod dtype;
pub mod norms;
pub mod number;
pub mod promotion;
pub mod settings;
pub mod sizes;
pub mod strides;
pub mod views;
pub mod windows;
mod wrong;

#[cfg(test)]
mod testing;

pub use dtype::{MemoryFormat, ScalarType};
pub use number::Scalar;
pub use wrong::Wrong;

/// Sizes or strides; no heap up to eight dimensions.
pub type Dims = smallvec::SmallVec<[i64; 8]>;
