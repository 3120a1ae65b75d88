//! Scaled dot product attention without the matrix of scores: a launch of `kernels/attention.kern`, or of `attention_rows.kern` or
//! `attention_matrix.kern` where these are faster. `attention/back.rs` has its gradients.

mod back;

pub use back::{Attended, Gradients, attention_back};

use crate::call::{Bound, Call, by_float, fit, fit_all, flag, read, write};
use crate::{ElementType, OpError, Queue, View};
use wave32_params::{
    Kernel, Name, attention as kernel, attention_matrix as matrix, attention_rows as rows, variants,
};
use wave32_solve::DeviceCaps;

/// Queries of a workgroup.
const BLOCK: u64 = 64;
/// Elements that loads take at once.
const VECTOR: u64 = 4;
/// Most elements of a head.
const MAX_HEAD: u64 = 256;
/// Room for elements of a head's values, and the variants. More take a launch for each part of the elements.
const VARIANTS: [(u64, [Name<kernel::Kernel>; 3]); 4] =
    [(40, kernel::D40), (64, kernel::D64), (80, kernel::D80), (128, kernel::D128)];

/// Variants of the kernel that goes without local memory.
struct RowsVariants {
    /// Elements of a head: of its queries, keys and values alike.
    elements: u64,
    /// Queries that a thread has.
    queries: u64,
    /// The variant for each type.
    names: [Name<rows::Kernel>; 2],
    /// The variant that multiplies in f16.
    in_f16: Name<rows::Kernel>,
}

const ROWS: [RowsVariants; 3] = [
    RowsVariants { elements: 40, queries: 2, names: rows::D40, in_f16: rows::H40 },
    RowsVariants { elements: 64, queries: 1, names: rows::D64, in_f16: rows::H64 },
    RowsVariants { elements: 80, queries: 1, names: rows::D80, in_f16: rows::H80 },
];
/// Variants of the kernel of matrix instructions, by the elements of a head: of its queries, keys and values alike.
const MATRIX: [(u64, Name<matrix::Kernel>); 3] = [(40, matrix::D40), (64, matrix::D64), (80, matrix::D80)];

/// Threads of [`ROWS`].
const ROWS_THREADS: u64 = 64;
/// Most elements from a tensor's first to its last that it takes, less what a binding may begin earlier.
const ROWS_MAX_EXTENT: u64 = (1 << 29) - 256;

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
    /// Weights that do not count.
    pub dropout: Option<Dropout<'a>>,
    /// Runs of products of f16 numbers may be summed in f16, where a kernel does.
    pub sums_in_f16: bool,
    /// Without the device's matrix instructions.
    pub no_matrix: bool,
}

/// Which weights do not count, after the softmax; the others are divided by the share of those that do.
#[derive(Debug, Clone, Copy)]
pub struct Dropout<'a> {
    /// How many of 65536, on average: at least one.
    pub dropped: u16,
    /// Two random I32 numbers, contiguous: which weights these are follows from them, the head, the query and the key alone.
    pub key: &'a View,
}

impl<'a> Attention<'a> {
    /// Without a mask, of all keys; sums are f32.
    pub fn new(q: &'a View, k: &'a View, v: &'a View, scale: f32) -> Self {
        Self {
            q,
            k,
            v,
            mask: None,
            scale,
            causal: false,
            dropout: None,
            sums_in_f16: false,
            no_matrix: false,
        }
    }

    /// Neither a mask nor dropout, which few kernels know.
    fn is_plain(&self) -> bool {
        self.mask.is_none() && self.dropout.is_none()
    }
}

/// Sizes of a task.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    n: u64,
    /// Heads of the queries, and of the keys.
    heads: u64,
    shared: u64,
    queries: u64,
    keys: u64,
    e: u64,
    ev: u64,
}

impl Sizes {
    /// # Errors
    /// `different-sizes`, `element-type`, `head-too-large`, `not-in-vectors`.
    fn of(task: &Attention<'_>) -> Result<Self, OpError> {
        let &Attention { q, k, v, mask, .. } = task;
        let refused = |name: &'static str, detail: String| Err(OpError::refused(name, detail));
        let (&[n, heads, queries, e], &[kn, shared, keys, ke]) = (q.sizes(), k.sizes()) else {
            return refused("different-sizes", format!("{:?} and {:?}", q.sizes(), k.sizes()));
        };
        let ev = v.sizes().last().copied().unwrap_or(0);
        let is_whole = shared > 0 && heads.is_multiple_of(shared);
        if (kn, ke) != (n, e) || v.sizes() != [n, shared, keys, ev] || !is_whole {
            return refused("different-sizes", format!("{:?}, {:?}, {:?}", q.sizes(), k.sizes(), v.sizes()));
        }
        if mask.is_some_and(|mask| mask.sizes() != [n, heads, queries, keys]) {
            return refused("different-sizes", "of the mask".to_string());
        }
        if [Some(k), Some(v), mask].into_iter().flatten().any(|view| view.dtype != q.dtype) {
            return refused("element-type", format!("{:?}, and other types beside it", q.dtype));
        }
        if !e.is_multiple_of(VECTOR) || !ev.is_multiple_of(VECTOR) || e == 0 || keys == 0 {
            return refused("not-in-vectors", format!("heads of {e} and {ev} elements, {keys} keys"));
        }
        let is_key = |key: &View| key.dtype == ElementType::I32 && key.elements() == 2 && key.is_contiguous();
        if task.dropout.is_some_and(|dropout| dropout.dropped == 0 || !is_key(dropout.key)) {
            return refused("different-sizes", "of the key of dropout".to_string());
        }
        if e > MAX_HEAD || ev > MAX_HEAD {
            return refused("head-too-large", format!("heads of {e} and {ev} elements"));
        }
        Ok(Self { n, heads, shared, queries, keys, e, ev })
    }

    /// How many heads of the queries have the same keys.
    fn share(self) -> u64 {
        self.heads / self.shared
    }

    /// Elements in each part of `size`, equal parts that some variant has room for.
    fn part(size: u64) -> u64 {
        let most = VARIANTS[VARIANTS.len() - 1].0;
        size.div_ceil(size.div_ceil(most)).next_multiple_of(VECTOR)
    }

    /// Products of all queries with all keys, of which a causal mask leaves a half.
    fn flops(self, elements: u64, causal: bool) -> u64 {
        2 * self.n * self.heads * self.queries * self.keys * elements / if causal { 2 } else { 1 }
    }
}

/// As groups along y and z.
///
/// # Errors
/// `too-many-heads`.
fn grid(queue: &dyn Queue, heads: u64, n: u64) -> Result<[u32; 2], OpError> {
    let [_, most_y, most_z] = queue.caps().max_groups;
    let (y, z) = (u32::try_from(heads).ok(), u32::try_from(n).ok());
    match (y.filter(|&y| y <= most_y), z.filter(|&z| z <= most_z)) {
        (Some(y), Some(z)) => Ok([y, z]),
        _ => Err(OpError::refused("too-many-heads", format!("{n} x {heads}"))),
    }
}

/// Strides of a mask; none has zeros.
///
/// # Errors
/// `too-many-elements`.
fn mask_strides(mask: Option<&View>) -> Result<[u32; 4], OpError> {
    fit_all(mask.map_or([0; 4], |mask| <[u64; 4]>::try_from(mask.strides()).unwrap_or_default()))
}

/// A tensor's strides of batch, head and row, and its start, in vectors of four.
#[derive(Debug, Clone, Copy)]
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

/// Whether kernels without local memory take a task of so many threads, which go over `others` as scalars. Their wavefronts wait
/// for their own sums: there must be a few on each of a compute unit's two SIMDs.
fn fits_rows(task: &Attention<'_>, others: [&View; 2], threads: u64, caps: &DeviceCaps) -> bool {
    let enough = 2 * 4 * u64::from(caps.wave_size) * u64::from(caps.compute_units);
    let are_near = others.iter().all(|view| view.extent() <= ROWS_MAX_EXTENT);
    caps.scalar_loads && task.is_plain() && are_near && threads >= enough
}

/// Queries of a thread and the kernel that goes without local memory, where it takes the task.
fn by_rows(task: &Attention<'_>, sizes: Sizes, caps: &DeviceCaps) -> Option<(u64, Name<rows::Kernel>)> {
    let Sizes { n, heads, queries, e, ev, .. } = sizes;
    let of = ROWS.iter().find(|of| (e, ev) == (of.elements, of.elements))?;
    let takes = fits_rows(task, [task.k, task.v], n * heads * queries / of.queries, caps);
    let sums_in_f16 = task.sums_in_f16 && task.q.dtype == ElementType::F16 && caps.float16_math;
    let kernel = if sums_in_f16 { of.in_f16 } else { *of.names.get(task.q.dtype as usize)? };
    takes.then_some((of.queries, kernel))
}

/// The kernel of matrix instructions, where it takes the task and the device has them.
fn by_matrix<K: Kernel>(
    task: &Attention<'_>,
    sizes: Sizes,
    caps: &DeviceCaps,
    kernels: &[(u64, Name<K>)],
) -> Option<Name<K>> {
    if !caps.float16_matrix || task.no_matrix || !task.is_plain() || task.q.dtype != ElementType::F16 {
        return None;
    }
    let (_, kernel) = *kernels.iter().find(|(elements, _)| (sizes.e, sizes.ev) == (*elements, *elements))?;
    (variants::find(kernel.as_str())?.matrix_lds() <= caps.lds_per_group).then_some(kernel)
}

/// The part of a launch's flags that tells how many weights are dropped.
fn dropped(dropout: Option<Dropout<'_>>) -> u32 {
    dropout.map_or(0, |dropout| u32::from(dropout.dropped) << 16)
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
    let &Attention { q, k, v, mask, scale, causal, dropout, .. } = task;
    let refused = |name: &'static str, detail: String| Err(OpError::refused(name, detail));
    let sizes = Sizes::of(task)?;
    let Sizes { n, heads, queries, keys, e, ev, .. } = sizes;
    if out.sizes() != [n, heads, queries, ev]
        || sums.is_some_and(|sums| sums.elements() != n * heads * queries || !sums.is_contiguous())
    {
        return refused("different-sizes", "of the result or the sums".to_string());
    }
    if out.dtype != q.dtype || sums.is_some_and(|sums| sums.dtype != ElementType::F32) {
        return refused("element-type", format!("{:?}, and other types beside it", q.dtype));
    }
    if out.elements() == 0 {
        return Ok(());
    }
    let Some((_, names)) = VARIANTS.iter().find(|(room, _)| ev <= *room) else {
        let part = Sizes::part(ev);
        for first in (0..ev).step_by(part as usize) {
            let of = |view: &View| view.narrow(3, first, part.min(ev - first));
            attention(queue, &Attention { v: &of(v), ..*task }, &of(out), sums)?;
        }
        return Ok(());
    };
    let Some(name) = by_float(*names, q.dtype) else {
        return refused("element-type", format!("{:?}", q.dtype));
    };
    let [y, z] = grid(queue, heads, n)?;
    let bound = read(queue, q)?;
    let buffers = kernel::Buffers {
        q: bound,
        k: read(queue, k)?,
        v: read(queue, v)?,
        mask: mask.map_or(Ok(bound.unused()), |mask| read(queue, mask))?,
        dst: write(queue, out)?,
        sums: sums.map_or(Ok(bound.unused()), |sums| write(queue, sums))?,
        key: dropout.map_or(Ok(bound.unused()), |dropout| read(queue, dropout.key))?,
    };
    let q_rows = Rows::new("queries", q, buffers.q)?;
    let k_rows = Rows::new("keys", k, buffers.k)?;
    let v_rows = Rows::new("values", v, buffers.v)?;
    let o_rows = Rows::new("the result", out, buffers.dst)?;
    let [m_n, m_h, m_l, m_s] = mask_strides(mask)?;
    let ([q_n, q_h, q_l], [k_n, k_h, k_l]) = (q_rows.strides, k_rows.strides);
    let ([v_n, v_h, v_l], [o_n, o_h, o_l]) = (v_rows.strides, o_rows.strides);
    let elements = [q, k, v, out].map(View::elements).iter().sum::<u64>();
    let params = kernel::Params {
        flags: flag(causal, kernel::FLAG_CAUSAL)
            | flag(mask.is_some(), kernel::FLAG_MASK)
            | flag(sums.is_some(), kernel::FLAG_SUMS)
            | dropped(dropout),
        heads: y,
        share: fit(sizes.share())?,
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
        key_at: fit(buffers.key.at())?,
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
        m_n,
        m_h,
        m_l,
        m_s,
    };
    let (flops, bytes) = (sizes.flops(e + ev, causal), elements * q.dtype.size());
    let kernel::Buffers { q, k, v, dst, sums, .. } = buffers;
    if let Some(kernel) = by_matrix(task, sizes, queue.caps(), &MATRIX) {
        let buffers = matrix::Buffers { q, k, v, dst, sums };
        let groups = fit(queries.div_ceil(BLOCK))?;
        return Call { kernel, params, buffers, flops, bytes }.launch(queue, [groups, y, z]);
    }
    if let Some((each, kernel)) = by_rows(task, sizes, queue.caps()) {
        let buffers = rows::Buffers { q, k, v, dst, sums };
        let groups = fit(queries.div_ceil(ROWS_THREADS * each))?;
        return Call { kernel, params, buffers, flops, bytes }.launch(queue, [groups, y, z]);
    }
    Call { kernel: name, params, buffers, flops, bytes }.launch(queue, [fit(queries.div_ceil(BLOCK))?, y, z])
}
