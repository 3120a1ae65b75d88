//! The three storage types, widened to f32 for arithmetic.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A storage type.
pub trait Element: Copy + Send + Sync + 'static {
    fn to_f32(self) -> f32;
    fn from_f32(value: f32) -> Self;
    /// `to` is as long as `from`.
    fn widen(from: &[Self], to: &mut [f32]);
    /// `to` is as long as `from`; rounds to nearest even.
    fn narrow(from: &[f32], to: &mut [Self]);
    /// The slice itself where it already is f32.
    fn as_f32(slice: &[Self]) -> Option<&[f32]>;
}

impl Element for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }
    #[inline(always)]
    fn widen(from: &[Self], to: &mut [f32]) {
        to.copy_from_slice(from);
    }
    #[inline(always)]
    fn narrow(from: &[f32], to: &mut [Self]) {
        to.copy_from_slice(from);
    }
    fn as_f32(slice: &[Self]) -> Option<&[f32]> {
        Some(slice)
    }
}

macro_rules! half_element {
    ($type:ty) => {
        impl Element for $type {
            #[inline(always)]
            fn to_f32(self) -> f32 {
                <$type>::to_f32(self)
            }
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                <$type>::from_f32(value)
            }
            #[inline(always)]
            fn widen(from: &[Self], to: &mut [f32]) {
                from.convert_to_f32_slice(to);
            }
            #[inline(always)]
            fn narrow(from: &[f32], to: &mut [Self]) {
                to.convert_from_f32_slice(from);
            }
            fn as_f32(_: &[Self]) -> Option<&[f32]> {
                None
            }
        }
    };
}
half_element!(f16);
half_element!(bf16);
