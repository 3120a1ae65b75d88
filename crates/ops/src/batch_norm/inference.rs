//! Batch norm by running statistics.

use super::{BatchNorm, NormChain, Shape, THREADS, variant, vector};
use crate::call::{Call, fit, fit_all, flag, read, write};
use crate::{OpError, Queue, View};
use wave32_params::bn_inference;

/// One pass.
pub fn run(
    queue: &mut dyn Queue,
    x: &View,
    norm: &BatchNorm<'_>,
    (mean, variance): (&View, &View),
    chain: &NormChain<'_>,
    y: &View,
    shape: &Shape,
) -> Result<(), OpError> {
    let bound = read(queue, x)?;
    let bind = |view: Option<&View>| view.map_or(Ok(bound.unused()), |view| read(queue, view));
    let buffers = bn_inference::Buffers {
        x: bound,
        add: bind(chain.added)?,
        mean: read(queue, mean)?,
        var: read(queue, variance)?,
        gamma: bind(norm.gamma)?,
        beta: bind(norm.beta)?,
        dst: write(queue, y)?,
    };
    let ats = [buffers.x, buffers.add, buffers.dst].map(|bound| bound.at());
    let vec = vector(shape, &ats);
    let names = if vec == 4 { bn_inference::X4 } else { bn_inference::X1 };
    let [x_at, add_at, out_at] = fit_all(ats.map(|at| at / vec))?;
    let (count, row) = (x.elements() / vec, shape.length / vec);
    // Those of a group are then of at most PLANES rows.
    let steps = if row >= u64::from(bn_inference::MIN_ROW) { 4 } else { 1 };
    let code = |view: Option<&View>| view.map_or(0, |view| view.dtype.code());
    let (act, most) = chain.activation.words();
    Call {
        kernel: variant(names, x.dtype)?,
        params: bn_inference::Params {
            count: fit(count)?,
            channels: fit(shape.channels)?,
            row: fit(row)?,
            steps,
            x_at,
            add_at,
            out_at,
            flags: flag(chain.added.is_some(), bn_inference::FLAG_ADD)
                | flag(norm.gamma.is_some(), bn_inference::FLAG_GAMMA)
                | flag(norm.beta.is_some(), bn_inference::FLAG_BETA),
            act,
            most,
            eps: norm.eps,
            mean_at: fit(buffers.mean.at())?,
            var_at: fit(buffers.var.at())?,
            gamma_at: fit(buffers.gamma.at())?,
            beta_at: fit(buffers.beta.at())?,
            mean_type: mean.dtype.code(),
            var_type: variance.dtype.code(),
            gamma_type: code(norm.gamma),
            beta_type: code(norm.beta),
        },
        buffers,
        flops: 3 * x.elements(),
        bytes: (2 + u64::from(chain.added.is_some())) * x.elements() * x.dtype.size(),
    }
    .launch_items(queue, count, THREADS * u64::from(steps))
}
