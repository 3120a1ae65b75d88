//! Checks of contents that composites ask for.

use crate::dispatch::index_errors::raise_where;
use crate::dispatch::register::Registration;
use crate::tensors::tensor::Tensor;
use wave32_torch_logic::checks::Check;

/// Schemas of what `python/wave32/_composites.py` calls: `check` is a place in [`Check::ALL`].
pub const SCHEMAS: &[&str] = &["raise_where(Tensor wrong, int check) -> ()"];

/// Kernels of those.
pub const OWN: &[Registration] = crate::ops! {
    "raise_where" => |wrong: &Tensor, check: i64| raise_where(wrong, Check::of(check)?),
};
