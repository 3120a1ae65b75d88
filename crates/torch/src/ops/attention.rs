//! Attention, and its gradients, for `python/wave32/_attention.py`: operands are (batch, head, row, element), a mask is
//! added to the scores.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::ops::matmul::pass;
use crate::runtime::bridge::{planned, view};
use crate::tensors::copies::copy;
use crate::tensors::tensor::Tensor;
use wave32_ops::{Attended, Attention, Dropout, ElementType, Gradients, View};
use wave32_torch_logic::ScalarType;

/// Schemas of what `python/wave32/_attention.py` calls. `stats`: for each query the logarithm of the sum, and room for the
/// backward pass's number; then, with dropout, the key of its random numbers; nothing where none is wanted. `dropped`: how many of
/// 65536 weights dropout drops; `key_of`: the statistics that another call with the same dropout returned.
pub const SCHEMAS: &[&str] = &[
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal, float scale, int dropped, bool wants_stats, \
     Tensor? key_of=None) -> (Tensor out, Tensor stats)",
    "attention_back(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor out, Tensor stats, Tensor grad, bool causal, float scale, \
     int dropped, bool of_keys, bool of_mask) -> (Tensor dq, Tensor dk, Tensor dv, Tensor dmask)",
];

/// Kernels of those.
pub const OWN: &[Registration] = crate::ops! { "attention" => forward, "attention_back" => backward };

/// Widest head that the kernels take.
const MAX_HEAD: i64 = 256;

/// That the kernels take these: one type and rank 4, heads of at most [`MAX_HEAD`] elements in multiples of 4, keys and values
/// for a whole number of query heads each.
fn check([q, k, v]: [&Tensor; 3], mask: Option<&Tensor>) -> Result<(), Error> {
    let refused = |why: &str| Err(Error::NoKernel(format!("attention {why}")));
    let dtype = q.dtype()?;
    if !matches!(dtype, ScalarType::F32 | ScalarType::F16 | ScalarType::BF16) {
        return refused("of this type");
    }
    for x in [Some(q), Some(k), Some(v), mask].into_iter().flatten() {
        if !x.is_wave() || x.dtype()? != dtype || x.dim() != 4 {
            return refused("of several types, devices or ranks");
        }
    }
    let [q, k, v] = [q, k, v].map(Tensor::sizes);
    if [&q, &k, &v].iter().any(|x| x.contains(&0) || x[3] % 4 != 0 || x[3] > MAX_HEAD) {
        return refused("with heads of such a size");
    }
    if k[..3] != v[..3] || q[0] != k[0] || q[3] != k[3] || q[1] % k[1] != 0 {
        return refused("of such sizes");
    }
    Ok(())
}

/// Itself where the kernel can read it by four elements, else a copy.
fn in_vectors(x: &Tensor) -> Result<Tensor, Error> {
    let (sizes, strides) = (x.sizes(), x.strides());
    let by_four = (0..3).all(|dim| sizes[dim] == 1 || strides[dim] % 4 == 0);
    if strides[3] == 1 && x.offset() % 4 == 0 && by_four {
        return x.share();
    }
    let made = Tensor::empty(&sizes, x.dtype()?)?;
    copy(x, &made)?;
    Ok(made)
}

/// Where the result is written: laid out as the query where torch would take a fused kernel on the CPU, whose heads have
/// contiguous elements here.
fn room(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor, Error> {
    let is_fused = v.sizes()[3] == q.sizes()[3] && [q, k, v].iter().all(|x| x.strides()[3] == 1);
    if is_fused {
        let like_query = q.empty_like(q.dtype()?)?;
        if like_query.strides()[3] == 1 {
            return Ok(like_query);
        }
    }
    let sizes = q.sizes();
    Tensor::empty(&[sizes[0], sizes[1], sizes[2], v.sizes()[3]], q.dtype()?)
}

#[allow(clippy::too_many_arguments)] // the schema's
fn forward(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    causal: bool,
    scale: f64,
    dropped: i64,
    wants_stats: bool,
    key_of_other: Option<&Tensor>,
) -> Result<(Tensor, Tensor), Error> {
    check([q, k, v], mask)?;
    let out = room(q, k, v)?;
    let sizes = q.sizes();
    let rows = sizes[..3].iter().product::<i64>();
    let drops = dropped > 0;
    let stats = Tensor::empty(
        &[if wants_stats || drops { 2 * rows } else { 0 } + key_elements(drops)],
        ScalarType::F32,
    )?;
    let sums =
        if wants_stats { Some(view(&stats.alias(&sizes[..3], &row_major(&sizes[..3]), 0)?)?) } else { None };
    let key = if drops { Some(key_of(key_of_other.unwrap_or(&stats))?) } else { None };
    if let (Some(key), None) = (&key, key_of_other) {
        crate::ops::random::bits(key)?;
    }
    let [q, k, v] = [in_vectors(q)?, in_vectors(k)?, in_vectors(v)?];
    let (qv, kv, vv, to) = (view(&q)?, view(&k)?, view(&v)?, view(&out)?);
    let mask = mask.map(view).transpose()?;
    planned(|planner, queue| {
        let sums_in_f16 = planner.fp16_accumulation(None).allows(pass());
        let (scale, mask) = (scale as f32, mask.as_ref());
        let no_matrix = planner.no_matrix();
        let dropout = dropout(dropped, key.as_ref());
        let task = Attention { q: &qv, k: &kv, v: &vv, mask, scale, causal, dropout, sums_in_f16, no_matrix };
        wave32_ops::attention(queue, &task, &to, sums.as_ref())
    })?;
    Ok((out, stats))
}

/// Elements of `stats` that are the key of dropout.
fn key_elements(drops: bool) -> i64 {
    if drops { 2 } else { 0 }
}

/// The key of dropout: the bits of the last elements of `stats`.
fn key_of(stats: &Tensor) -> Result<View, Error> {
    if stats.numel() < 2 || !stats.is_wave() || stats.dtype()? != ScalarType::F32 {
        return Err(Error::Invalid("attention: `key_of` is not what another call returned".into()));
    }
    let own = view(&stats.alias(&[2], &[1], stats.numel() - 2)?)?;
    Ok(View::new(own.address, ElementType::I32, &[2], &[1])?)
}

fn dropout(dropped: i64, key: Option<&View>) -> Option<Dropout<'_>> {
    Some(Dropout { dropped: u16::try_from(dropped).ok()?, key: key? })
}

fn row_major(sizes: &[i64]) -> [i64; 3] {
    [sizes[1] * sizes[2], sizes[2], 1]
}

/// Unwritten, contiguous or with heads behind rows in memory: as the operand, so that what took heads apart puts the
/// gradients together again without a copy.
fn dense_like(x: &Tensor, rows_first: bool) -> Result<Tensor, Error> {
    let sizes = x.sizes();
    let [_, heads, rows, size] = sizes[..] else { return Err(Error::Invalid("attention of rank 4".into())) };
    if rows_first {
        let steps = [heads * rows * size, size, heads * size, 1];
        return Tensor::empty_strided(&sizes, &steps, x.dtype()?);
    }
    Tensor::empty(&sizes, x.dtype()?)
}

#[allow(clippy::too_many_arguments)] // the schema's
fn backward(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    out: &Tensor,
    stats: &Tensor,
    grad: &Tensor,
    causal: bool,
    scale: f64,
    dropped: i64,
    of_keys: bool,
    of_mask: bool,
) -> Result<(Tensor, Tensor, Tensor, Tensor), Error> {
    check([q, k, v], mask)?;
    let is_like_out = grad.strides() == out.strides() && grad.offset() % 4 == 0;
    let grad = if is_like_out {
        grad.share()?
    } else {
        let made = out.empty_like(out.dtype()?)?;
        copy(grad, &made)?;
        made
    };
    let rows_first = |x: &Tensor| x.strides()[1] < x.strides()[2];
    let dq = dense_like(q, rows_first(q))?;
    let of_keys =
        of_keys.then(|| Ok::<_, Error>([dense_like(k, rows_first(k))?, dense_like(v, rows_first(k))?]));
    let of_keys = of_keys.transpose()?;
    let of_mask =
        mask.filter(|_| of_mask).map(|mask| Tensor::empty(&mask.sizes(), mask.dtype()?)).transpose()?;
    let [q, k, v] = [in_vectors(q)?, in_vectors(k)?, in_vectors(v)?];
    let (qv, kv, vv, dqv) = (view(&q)?, view(&k)?, view(&v)?, view(&dq)?);
    let (ov, gv, sv) = (view(out)?, view(&grad)?, view(stats)?);
    let mask = mask.map(view).transpose()?;
    let views = of_keys.as_ref().map(|[dk, dv]| Ok::<_, Error>([view(dk)?, view(dv)?])).transpose()?;
    let dmask = of_mask.as_ref().map(view).transpose()?;
    let key = if dropped > 0 { Some(key_of(stats)?) } else { None };
    let (scale, mask) = (scale as f32, mask.as_ref());
    let task = Attention {
        mask,
        causal,
        dropout: dropout(dropped, key.as_ref()),
        ..Attention::new(&qv, &kv, &vv, scale)
    };
    let made = Attended { out: &ov, grad: &gv, stats: &sv };
    let wanted = Gradients { q: &dqv, kv: views.as_ref().map(|[dk, dv]| [dk, dv]), mask: dmask.as_ref() };
    planned(|planner, queue| {
        let task = Attention { no_matrix: planner.no_matrix(), ..task };
        wave32_ops::attention_back(queue, &task, &made, &wanted)
    })?;
    let [dk, dv] = match of_keys {
        Some(both) => both,
        None => [Tensor::undefined()?, Tensor::undefined()?],
    };
    Ok((dq, dk, dv, of_mask.map_or_else(Tensor::undefined, Ok)?))
}
