//! Attention in one launch, for `python/wave32/_attention.py`.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::runtime::bridge::{run, view};
use crate::tensors::tensor::Tensor;
use wave32_ops::Attention;

/// Schemas of what `python/wave32/_attention.py` calls. `sums` is written where it has elements.
pub const SCHEMAS: &[&str] = &[
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor(a!) out, Tensor(b!) sums, float scale, bool causal) -> ()",
];

/// Kernels of those.
pub const OWN: &[Registration] = crate::ops! { "attention" => forward };

#[allow(clippy::too_many_arguments)] // the schema's
fn forward(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    out: &Tensor,
    sums: &Tensor,
    scale: f64,
    causal: bool,
) -> Result<(), Error> {
    let (q, k, v, to) = (view(q)?, view(k)?, view(v)?, view(out)?);
    let mask = mask.map(view).transpose()?;
    let sums = if sums.numel() > 0 { Some(view(sums)?) } else { None };
    let task = Attention { q: &q, k: &k, v: &v, mask: mask.as_ref(), scale: scale as f32, causal };
    run(|queue| wave32_ops::attention(queue, &task, &to, sums.as_ref()))
}
