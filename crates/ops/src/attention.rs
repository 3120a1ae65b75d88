//! Scaled dot product attention in one launch, without the matrix of scores (`kernels/attention.kern`).

use crate::call::{Bound, Call, by_float, fit, flag, read, write};
use crate::{ElementType, OpError, Queue, View};
use wave32_params::{Name, attention as kernel};

/// Queries of a workgroup.
const BLOCK: u64 = 64;
/// Elements that loads take at once.
const VECTOR: u64 = 4;
/// Most elements of a head.
const MAX_HEAD: u64 = 256;
/// Room for elements of a head's values, and the variants. More take a launch for each part of the elements.
const VARIANTS: [(u64, [Name<kernel::Kernel>; 3]); 4] =
    [(40, kernel::D40), (64, kernel::D64), (80, kernel::D80), (128, kernel::D128)];

/// Tensors of rank 4: `[batch][head][query or key][element]`.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// Queries.
    pub q: &'a View,
    /// Keys; as many heads, or so few that each serves equally many heads of the queries.
    pub k: &'a View,
    /// Values.
    pub v: &'a View,
    /// Added to the scores: `[batch][head][query][key]`, of strides that may be 0.
    pub mask: Option<&'a View>,
    /// What scores are multiplied with.
    pub scale: f32,
    /// A query sees the keys up to its own place only.
    pub causal: bool,
}

/// A tensor's strides of batch, head and row, and its start, in vectors of four.
struct Rows {
    start: u32,
    strides: [u32; 3],
}

impl Rows {
    fn new(what: &str, view: &View, bound: Bound) -> Result<Self, OpError> {
        let [n, h, l, e] = <[u64; 4]>::try_from(view.strides()).unwrap_or_default();
        let sizes = view.sizes();
        // A stride that nothing is multiplied with may be anything.
        let used = |stride: u64, size: u64| if size > 1 { stride } else { 0 };
        let strides = [used(n, sizes[0]), used(h, sizes[1]), used(l, sizes[2])];
        let in_vectors = |number: u64| number.is_multiple_of(VECTOR);
        if used(e, sizes[3]) > 1 || !in_vectors(bound.at()) || !strides.iter().all(|&s| in_vectors(s)) {
            let detail = format!("{what} of strides {:?}", view.strides());
            return Err(OpError::refused("not-in-vectors", detail));
        }
        let [n, h, l] = strides.map(|stride| fit(stride / VECTOR));
        Ok(Self { start: fit(bound.at() / VECTOR)?, strides: [n?, h?, l?] })
    }
}

/// `out` = softmax(scale q k^T + mask) v. `sums`, where wanted, gets the logarithm of the sum of the exponentials of each
/// query's scores: `[batch][head][query]`, contiguous, f32. A query that sees no key gets zeros, and minus infinity there.
///
/// # Errors
/// `different-sizes`, `element-type`, `head-too-large` (more than 256 elements), `not-in-vectors` (sizes of heads and strides
/// must be multiples of four elements, the innermost dimension dense), `too-many-heads`, `too-many-elements`,
/// `range-too-large`; [`OpError::Device`] where the device fails.
pub fn attention(
    queue: &mut dyn Queue,
    task: &Attention<'_>,
    out: &View,
    sums: Option<&View>,
) -> Result<(), OpError> {
    let &Attention { q, k, v, mask, scale, causal } = task;
    let refused = |name: &'static str, detail: String| Err(OpError::refused(name, detail));
    let (&[n, heads, queries, e], &[kn, shared, keys, ke]) = (q.sizes(), k.sizes()) else {
        return refused("different-sizes", format!("{:?} and {:?}", q.sizes(), k.sizes()));
    };
    let ev = v.sizes().last().copied().unwrap_or(0);
    let is_whole = shared > 0 && heads.is_multiple_of(shared);
    if (kn, ke) != (n, e) || v.sizes() != [n, shared, keys, ev] || !is_whole {
        return refused("different-sizes", format!("{:?}, {:?}, {:?}", q.sizes(), k.sizes(), v.sizes()));
    }
    if out.sizes() != [n, heads, queries, ev]
        || mask.is_some_and(|mask| mask.sizes() != [n, heads, queries, keys])
        || sums.is_some_and(|sums| sums.elements() != n * heads * queries || !sums.is_contiguous())
    {
        return refused("different-sizes", "of the result, the mask or the sums".to_string());
    }
    let same = [Some(k), Some(v), mask, Some(out)].into_iter().flatten().all(|view| view.dtype == q.dtype);
    if !same || sums.is_some_and(|sums| sums.dtype != ElementType::F32) {
        return refused("element-type", format!("{:?}, and other types beside it", q.dtype));
    }
    if !e.is_multiple_of(VECTOR) || !ev.is_multiple_of(VECTOR) || e == 0 || keys == 0 {
        return refused("not-in-vectors", format!("heads of {e} and {ev} elements, {keys} keys"));
    }
    if e > MAX_HEAD || ev > MAX_HEAD {
        return refused("head-too-large", format!("heads of {e} and {ev} elements"));
    }
    if out.elements() == 0 {
        return Ok(());
    }
    let Some((_, names)) = VARIANTS.iter().find(|(room, _)| ev <= *room) else {
        // In equal parts.
        let part = ev.div_ceil(ev.div_ceil(VARIANTS[VARIANTS.len() - 1].0)).next_multiple_of(VECTOR);
        for first in (0..ev).step_by(part as usize) {
            let of = |view: &View| view.narrow(3, first, part.min(ev - first));
            attention(queue, &Attention { v: &of(v), ..*task }, &of(out), sums)?;
        }
        return Ok(());
    };
    let Some(name) = by_float(*names, q.dtype) else {
        return refused("element-type", format!("{:?}", q.dtype));
    };
    let [_, most_y, most_z] = queue.caps().max_groups;
    let (Some(y), Some(z)) =
        (u32::try_from(heads).ok().filter(|&y| y <= most_y), u32::try_from(n).ok().filter(|&z| z <= most_z))
    else {
        return refused("too-many-heads", format!("{n} x {heads}"));
    };
    let bound = read(queue, q)?;
    let buffers = kernel::Buffers {
        q: bound,
        k: read(queue, k)?,
        v: read(queue, v)?,
        mask: mask.map_or(Ok(bound.unused()), |mask| read(queue, mask))?,
        dst: write(queue, out)?,
        sums: sums.map_or(Ok(bound.unused()), |sums| write(queue, sums))?,
    };
    let q_rows = Rows::new("queries", q, buffers.q)?;
    let k_rows = Rows::new("keys", k, buffers.k)?;
    let v_rows = Rows::new("values", v, buffers.v)?;
    let o_rows = Rows::new("the result", out, buffers.dst)?;
    let [m_n, m_h, m_l, m_s] = match mask {
        Some(mask) => <[u64; 4]>::try_from(mask.strides()).unwrap_or_default().map(fit),
        None => [Ok(0), Ok(0), Ok(0), Ok(0)],
    };
    let ([q_n, q_h, q_l], [k_n, k_h, k_l]) = (q_rows.strides, k_rows.strides);
    let ([v_n, v_h, v_l], [o_n, o_h, o_l]) = (v_rows.strides, o_rows.strides);
    let products = n * heads * queries * keys * (e + ev);
    let elements = [q, k, v, out].map(View::elements).iter().sum::<u64>();
    Call {
        kernel: name,
        params: kernel::Params {
            flags: flag(causal, kernel::FLAG_CAUSAL)
                | flag(mask.is_some(), kernel::FLAG_MASK)
                | flag(sums.is_some(), kernel::FLAG_SUMS),
            heads: y,
            share: fit(heads / shared)?,
            queries: fit(queries)?,
            keys: fit(keys)?,
            e4: fit(e / VECTOR)?,
            ev4: fit(ev / VECTOR)?,
            q_at: q_rows.start,
            k_at: k_rows.start,
            v_at: v_rows.start,
            o_at: o_rows.start,
            m_at: fit(buffers.mask.at())?,
            sums_at: fit(buffers.sums.at())?,
            scale: scale * std::f32::consts::LOG2_E,
            q_n,
            q_h,
            q_l,
            k_n,
            k_h,
            k_l,
            v_n,
            v_h,
            v_l,
            o_n,
            o_h,
            o_l,
            m_n: m_n?,
            m_h: m_h?,
            m_l: m_l?,
            m_s: m_s?,
        },
        buffers,
        flops: 2 * products / if causal { 2 } else { 1 },
        bytes: elements * q.dtype.size(),
    }
    .launch(queue, [fit(queries.div_ceil(BLOCK))?, y, z])
}
