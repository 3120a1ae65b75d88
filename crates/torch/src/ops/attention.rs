//! Attention, and its gradients, for `python/wave32/_attention.py`.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::runtime::bridge::{run, view};
use crate::tensors::tensor::Tensor;
use wave32_ops::{Attended, Attention};

/// Schemas of what `python/wave32/_attention.py` calls. `sums` is written where it has elements.
pub const SCHEMAS: &[&str] = &[
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor(a!) out, Tensor(b!) sums, float scale, bool causal) -> ()",
    "attention_back(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor out, Tensor grad, Tensor(a!) stats, Tensor(b!) dq, \
     Tensor(c!)? dk, Tensor(d!)? dv, float scale, bool causal) -> ()",
];

/// Kernels of those.
pub const OWN: &[Registration] = crate::ops! { "attention" => forward, "attention_back" => backward };

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

#[allow(clippy::too_many_arguments)] // the schema's
fn backward(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    out: &Tensor,
    grad: &Tensor,
    stats: &Tensor,
    dq: &Tensor,
    dk: Option<&Tensor>,
    dv: Option<&Tensor>,
    scale: f64,
    causal: bool,
) -> Result<(), Error> {
    let (q, k, v, dq) = (view(q)?, view(k)?, view(v)?, view(dq)?);
    let (out, grad, stats) = (view(out)?, view(grad)?, view(stats)?);
    let mask = mask.map(view).transpose()?;
    let dkv = dk.zip(dv).map(|(dk, dv)| Ok::<_, Error>([view(dk)?, view(dv)?])).transpose()?;
    let task = Attention { q: &q, k: &k, v: &v, mask: mask.as_ref(), scale: scale as f32, causal };
    let made = Attended { out: &out, grad: &grad, stats: &stats };
    run(|queue| wave32_ops::attention_back(queue, &task, &made, &dq, dkv.as_ref().map(|[dk, dv]| [dk, dv])))
}
