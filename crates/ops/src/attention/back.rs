//! Gradients of attention, without the matrix of scores: two launches of `kernels/attention_back.kern`, or of
//! `attention_matrix_back.kern`, or three of `attention_rows_back.kern` where these are faster; one more where the mask has a gradient.

use super::{Attention, BLOCK, Rows, Sizes, VECTOR, by_matrix, dropped, fits_rows, grid, mask_strides};
use crate::call::{Bound, Call, by_float, fit, flag, read, write};
use crate::{ElementType, OpError, Queue, View};
use wave32_params::{
    Name, attention_back as back, attention_matrix_back as matrix_back, attention_rows_back as rows_back,
};

/// Room for elements of a head's results, and the variants. More take a launch for each part of the elements.
const BACK_VARIANTS: [(u64, [Name<back::Kernel>; 3]); 4] =
    [(40, back::D40), (64, back::D64), (80, back::D80), (128, back::D128)];
/// Elements of a head for which kernels go back without local memory; with 64 these would take as long as those of tiles.
const ROWS_BACK_HEAD: u64 = 40;
/// Of the gradients of queries, keys and values, by type.
const ROWS_BACK: [[Name<rows_back::Kernel>; 2]; 3] = [rows_back::Q40, rows_back::K40, rows_back::V40];
/// Of matrix instructions, by the elements of a head: with more they need more local memory than most devices have.
const MATRIX_BACK: [(u64, Name<matrix_back::Kernel>); 2] = [(40, matrix_back::D40), (64, matrix_back::D64)];

/// What gradients are computed from, beside the task.
#[derive(Debug, Clone, Copy)]
pub struct Attended<'a> {
    /// The forward pass's result.
    pub out: &'a View,
    /// Its gradient, with the same strides.
    pub grad: &'a View,
    /// `[2][batch][head][query]`, contiguous, f32: first the logarithms of the sums that [`super::attention`] wrote; the second half
    /// is written. With dropout two more elements, whose bits are its key.
    pub stats: &'a View,
}

/// Where gradients are written.
#[derive(Debug, Clone, Copy)]
pub struct Gradients<'a> {
    /// Of the queries.
    pub q: &'a View,
    /// Of keys and values: of those that several heads share, the sum over these heads in order.
    pub kv: Option<[&'a View; 2]>,
    /// Of the mask, of each score: `[batch][head][query][key]`, contiguous.
    pub mask: Option<&'a View>,
}

/// `wanted` gets the gradients. Those of queries, keys and values are dense: contiguous, or `[batch][row][head][element]` in memory.
///
/// # Errors
/// As [`super::attention`]; `layout` where a result is laid out otherwise, `different-layouts` where `out` and `grad` or the gradients
/// of keys and values are; `no-mask` where a mask's gradient is wanted without a mask, or of a causal task.
pub fn attention_back(
    queue: &mut dyn Queue,
    task: &Attention<'_>,
    made: &Attended<'_>,
    wanted: &Gradients<'_>,
) -> Result<(), OpError> {
    let &Attention { q, k, v, dropout, .. } = task;
    let &Attended { out, grad, stats } = made;
    let &Gradients { q: dq, kv: dkv, mask: dmask } = wanted;
    let sizes = Sizes::of(task)?;
    let Sizes { n, heads, queries, keys, ev, .. } = sizes;
    let (of_result, of_scores) = ([n, heads, queries, ev], [n, heads, queries, keys]);
    let mut views = vec![(out, &of_result[..]), (grad, &of_result), (dq, q.sizes())];
    views.extend(dmask.map(|dmask| (dmask, &of_scores[..])));
    views.extend(dkv.into_iter().flat_map(|[dk, dv]| [(dk, k.sizes()), (dv, v.sizes())]));
    if views.iter().any(|(view, sizes)| view.sizes() != *sizes)
        || stats.elements() != 2 * n * heads * queries + if dropout.is_some() { 2 } else { 0 }
        || !stats.is_contiguous()
    {
        return Err(OpError::refused("different-sizes", "of a result, a gradient or the sums".to_string()));
    }
    if views.iter().any(|(view, _)| view.dtype != q.dtype) || stats.dtype != ElementType::F32 {
        return Err(OpError::refused("element-type", format!("{:?}, and other types beside it", q.dtype)));
    }
    if dmask.is_some() && (task.mask.is_none() || task.causal) {
        return Err(OpError::refused("no-mask", "a mask's gradient is of a mask alone".to_string()));
    }
    if let Some(dmask) = dmask.filter(|dmask| !dmask.is_contiguous()) {
        return Err(OpError::refused(
            "layout",
            format!("a mask's gradient of strides {:?}", dmask.strides()),
        ));
    }
    // A word has room for both numbers of heads.
    if heads > u64::from(u16::MAX) {
        return Err(OpError::refused("too-many-heads", format!("{n} x {heads}")));
    }
    if out.elements() == 0 {
        return Ok(());
    }
    pass(queue, task, sizes, made, Side::Queries(dq))?;
    dkv.map_or(Ok(()), |dkv| pass(queue, task, sizes, made, Side::Keys(dkv)))?;
    dmask.map_or(Ok(()), |dmask| pass(queue, task, sizes, made, Side::Scores(dmask)))
}

/// Whose gradients a launch computes.
#[derive(Debug, Clone, Copy)]
enum Side<'a> {
    Queries(&'a View),
    Keys([&'a View; 2]),
    Scores(&'a View),
}

/// Is the view dense with heads behind rows, and not in front of them?
///
/// # Errors
/// `layout` where it is dense in neither way.
fn rows_first(view: &View) -> Result<bool, OpError> {
    if view.is_contiguous() {
        return Ok(false);
    }
    if let (&[n, h, l, e], &[of_n, of_h, of_l, of_e]) = (view.sizes(), view.strides())
        && View::new(view.address, view.dtype, &[n, l, h, e], &[of_n, of_l, of_h, of_e])?.is_contiguous()
    {
        return Ok(true);
    }
    Err(OpError::refused("layout", format!("a gradient of strides {:?}", view.strides())))
}

fn pass(
    queue: &mut dyn Queue,
    task: &Attention<'_>,
    sizes: Sizes,
    made: &Attended<'_>,
    side: Side<'_>,
) -> Result<(), OpError> {
    let &Attention { q, k, v, mask, scale, causal, dropout, .. } = task;
    let &Attended { out, grad, stats } = made;
    let Sizes { n, heads, shared, queries, keys, e, ev } = sizes;
    // The longest of a row's results, in parts that a launch has room for.
    let (of_keys, of_scores, longest) = match side {
        Side::Queries(_) => (false, false, e),
        Side::Keys(_) => (true, false, e.max(ev)),
        // A launch, whatever its room.
        Side::Scores(_) => (false, true, 1),
    };
    let part = Sizes::part(longest);
    let by_room = BACK_VARIANTS.iter().find(|(room, _)| part <= *room).map(|(_, names)| *names);
    let names = if of_scores { Some(back::SCORES) } else { by_room };
    let Some(name) = names.and_then(|names| by_float(names, q.dtype)) else {
        return Err(OpError::refused("element-type", format!("{:?}", q.dtype)));
    };
    let ([a1, a2], [b1, b2]) = if of_keys { ([k, v], [q, grad]) } else { ([q, grad], [k, v]) };
    let ((rows, row_heads), cols) =
        if of_keys { ((keys, shared), queries) } else { ((queries, heads), keys) };
    let [y, z] = grid(queue, row_heads, n)?;
    let bound = read(queue, a1)?;
    let (dst, other) = match side {
        Side::Queries(dst) | Side::Scores(dst) => (dst, read(queue, out)?),
        Side::Keys([dk, dv]) => (dk, write(queue, dv)?),
    };
    let buffers = back::Buffers {
        a1: bound,
        a2: read(queue, a2)?,
        b1: read(queue, b1)?,
        b2: read(queue, b2)?,
        mask: mask.map_or(Ok(bound.unused()), |mask| read(queue, mask))?,
        stats: write(queue, stats)?,
        dst: write(queue, dst)?,
        other,
    };
    let is_rows_first = rows_first(dst)?;
    let other_start = match side {
        Side::Queries(_) | Side::Scores(_) => {
            let (of_out, of_grad) =
                (Rows::new("the result", out, other)?, Rows::new("its gradient", grad, buffers.a2)?);
            if of_out.strides != of_grad.strides {
                let detail = format!("strides {:?} and {:?}", out.strides(), grad.strides());
                return Err(OpError::refused("different-layouts", detail));
            }
            of_out.start
        }
        Side::Keys([_, dv]) => {
            if rows_first(dv)? != is_rows_first {
                return Err(OpError::refused(
                    "different-layouts",
                    "of gradients of keys and values".to_string(),
                ));
            }
            Rows::new("values' gradient", dv, other)?.start
        }
    };
    let operand = |view: &View, bound: Bound| Rows::new("an operand", view, bound);
    let (a1_rows, a2_rows) = (operand(a1, buffers.a1)?, operand(a2, buffers.a2)?);
    let (b1_rows, b2_rows) = (operand(b1, buffers.b1)?, operand(b2, buffers.b2)?);
    let ([a1_n, a1_h, a1_l], [a2_n, a2_h, a2_l]) = (a1_rows.strides, a2_rows.strides);
    let ([b1_n, b1_h, b1_l], [b2_n, b2_h, b2_l]) = (b1_rows.strides, b2_rows.strides);
    let [m_n, m_h, m_l, m_s] = mask_strides(mask)?;
    let dst_at =
        if of_scores { fit(buffers.dst.at())? } else { Rows::new("a gradient", dst, buffers.dst)?.start };
    let has_such_heads =
        (e, ev) == (ROWS_BACK_HEAD, ROWS_BACK_HEAD) && (q.dtype as usize) < ROWS_BACK[0].len();
    let is_by_rows =
        !of_scores && has_such_heads && fits_rows(task, [b1, b2], n * row_heads * rows, queue.caps());
    let of_results = match side {
        Side::Queries(_) => part.min(e),
        Side::Keys(_) => part.min(e) + part.min(ev),
        Side::Scores(_) => 0,
    };
    let bytes = [q, k, v, grad, dst].map(View::elements).iter().sum::<u64>() * q.dtype.size();
    let params = |first: u64| -> Result<back::Params, OpError> {
        Ok(back::Params {
            flags: flag(causal, back::FLAG_CAUSAL)
                | flag(mask.is_some(), back::FLAG_MASK)
                | flag(of_keys, back::FLAG_KEYS)
                | flag(is_rows_first, back::FLAG_ROWS_FIRST)
                | dropped(dropout),
            heads_share: fit(heads | (sizes.share() << 16))?,
            rows: fit(rows)?,
            cols: fit(cols)?,
            sizes: fit((e / VECTOR) | ((ev / VECTOR) << 8) | ((first / VECTOR) << 16))?,
            a1_at: a1_rows.start,
            a2_at: a2_rows.start,
            b1_at: b1_rows.start,
            b2_at: b2_rows.start,
            m_at: fit(buffers.mask.at())?,
            sums_at: fit(buffers.stats.at())?,
            dots_at: fit(n * heads * queries)?,
            dst_at,
            other_at: other_start,
            scale: scale * std::f32::consts::LOG2_E,
            a1_n,
            a1_h,
            a1_l,
            a2_n,
            a2_h,
            a2_l,
            b1_n,
            b1_h,
            b1_l,
            b2_n,
            b2_h,
            b2_l,
            m_n,
            m_h,
            m_l,
            m_s,
        })
    };
    let groups = fit(rows.div_ceil(BLOCK))?;
    if let Some(kernel) = by_matrix(task, sizes, queue.caps(), &MATRIX_BACK).filter(|_| !of_scores) {
        let back::Buffers { a1, a2, b1, b2, stats, dst, other, .. } = buffers;
        let buffers = matrix_back::Buffers { a1, a2, b1, b2, stats, dst, other };
        let flops = sizes.flops(e + ev + of_results, causal);
        return Call { kernel, params: params(0)?, buffers, flops, bytes }.launch(queue, [groups, y, z]);
    }
    if is_by_rows {
        let [of_q, of_k, of_v] = ROWS_BACK.map(|names| names[q.dtype as usize]);
        let params = params(0)?;
        let back::Buffers { a1, a2, b1, b2, stats, dst, other, .. } = buffers;
        let mut launch = |kernel, params, buffers, elements| {
            let flops = sizes.flops(elements, causal);
            Call { kernel, params, buffers, flops, bytes }.launch(queue, [groups, y, z])
        };
        if !of_keys {
            let buffers = rows_back::Buffers { a1, a2, b1, b2, sums: a1.unused(), stats, dst, other };
            return launch(of_q, params, buffers, 2 * e + ev);
        }
        let (sums, unused) = (stats.read(), a1.unused());
        let of_k_buffers = rows_back::Buffers { a1, a2, b1, b2, sums, stats: unused, dst, other: unused };
        launch(of_k, params, of_k_buffers, 2 * e + ev)?;
        let params = back::Params { dst_at: params.other_at, ..params };
        let buffers = rows_back::Buffers { a2: unused, dst: other, ..of_k_buffers };
        return launch(of_v, params, buffers, e + ev);
    }
    for first in (0..longest).step_by(part as usize) {
        let flops = sizes.flops(e + ev + of_results, causal);
        Call { kernel: name, params: params(first)?, buffers, flops, bytes }.launch(queue, [groups, y, z])?;
    }
    Ok(())
}
