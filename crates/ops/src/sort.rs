//! Sorting along a dimension.

use crate::call::{Call, fit, fit_all, fit_inner, read, write};
use crate::scratch::scratch;
use crate::{Common, ElementType, OpError, Queue, View, copy};
use wave32_params::{sort_block, sort_merge};

const THREADS: u64 = 256;

/// `places[.., i, ..]` = where along `dim` the i-th element of `x` in order is, equal ones in their own order;
/// NaN counts as the largest. `places` (int64) may be shorter than `x` along `dim`.
///
/// # Errors
/// `different-sizes`, `bad-type`, `too-many-elements`, `range-too-large`; [`OpError::Device`] where the device fails.
pub fn argsort(
    queue: &mut dyn Queue,
    x: &View,
    dim: usize,
    descending: bool,
    places: &View,
) -> Result<(), OpError> {
    let wanted = places.sizes().get(dim).copied();
    let fits = wanted
        .is_some_and(|wanted| wanted <= x.sizes()[dim] && x.narrow(dim, 0, wanted).sizes() == places.sizes());
    if x.rank() != places.rank() || !fits {
        let detail = format!("{:?} along {dim} into {:?}", x.sizes(), places.sizes());
        return Err(OpError::refused("different-sizes", detail));
    }
    if places.dtype != ElementType::I64 {
        return Err(OpError::refused("bad-type", format!("places in {:?}", places.dtype)));
    }
    if places.elements() == 0 {
        return Ok(());
    }
    let count = x.sizes()[dim];
    let rows = x.elements() / count;
    let pair = [2 * rows, count];
    // Two of each: merging goes from one to the other.
    scratch(queue, ElementType::I64, &pair, |queue, keys| {
        scratch(queue, ElementType::I32, &pair, |queue, found| {
            let side = |view: &View, at: u64| view.narrow(0, at * rows, rows);
            blocks(queue, x, dim, descending, &side(keys, 0), &side(found, 0))?;
            let (mut run, mut at) = (THREADS, 0);
            while run < count {
                let [from, to] = [at, 1 - at].map(|at| [side(keys, at), side(found, at)]);
                merge(queue, run, &from, &to)?;
                (run, at) = (run * 2, 1 - at);
            }
            copy(queue, &rows_as(&side(found, at), x, dim)?.narrow(dim, 0, places.sizes()[dim]), places)
        })
    })
}

/// Rows one after the other seen with the sizes of `x`, whose rows lie along `dim`.
fn rows_as(rows: &View, x: &View, dim: usize) -> Result<View, OpError> {
    let mut strides = vec![1; x.rank()];
    let mut next = x.sizes()[dim];
    for other in (0..x.rank()).rev().filter(|&other| other != dim) {
        strides[other] = next;
        next *= x.sizes()[other];
    }
    View::new(rows.address, rows.dtype, x.sizes(), &strides)
}

/// Sorts every [`THREADS`] elements.
fn blocks(
    queue: &mut dyn Queue,
    x: &View,
    dim: usize,
    descending: bool,
    keys: &View,
    found: &View,
) -> Result<(), OpError> {
    let count = x.sizes()[dim];
    let common = Common::new(&[&x.select(dim, 0), &rows_as(found, x, dim)?.select(dim, 0)]);
    let kept = common.sizes4();
    let rows: u64 = kept.iter().product();
    common.outer(4, |offsets| {
        let buffers = sort_block::Buffers {
            src: read(queue, x)?,
            to_keys: write(queue, keys)?,
            to: write(queue, found)?,
        };
        Call {
            kernel: sort_block::T,
            params: sort_block::Params {
                count: fit(count)?,
                descending: descending.into(),
                dtype: x.dtype.code(),
                x_at: fit(buffers.src.at() + offsets[0])?,
                k: fit_inner(kept)?,
                x: fit_all(common.strides4(0))?,
                xd: fit(x.strides()[dim])?,
                to_at: fit(buffers.to.at() + offsets[1])?,
                to_keys_at: fit(buffers.to_keys.at() + offsets[1])?,
            },
            buffers,
            flops: THREADS * rows * count,
            bytes: rows * count * (x.dtype.size() + 12),
        }
        .launch_items(queue, rows * count.div_ceil(THREADS), 1)
    })
}

/// Merges neighbouring runs of each row.
fn merge(
    queue: &mut dyn Queue,
    run: u64,
    [keys, found]: &[View; 2],
    [to_keys, to]: &[View; 2],
) -> Result<(), OpError> {
    let (rows, count) = (keys.sizes()[0], keys.sizes()[1]);
    let buffers = sort_merge::Buffers {
        keys: read(queue, keys)?,
        from: read(queue, found)?,
        to_keys: write(queue, to_keys)?,
        to: write(queue, to)?,
    };
    let steps = u64::from(run.ilog2()) + 1;
    Call {
        kernel: sort_merge::T,
        params: sort_merge::Params {
            rows: fit(rows)?,
            count: fit(count)?,
            run: fit(run)?,
            keys_at: fit(buffers.keys.at())?,
            from_at: fit(buffers.from.at())?,
            to_at: fit(buffers.to.at())?,
            to_keys_at: fit(buffers.to_keys.at())?,
        },
        buffers,
        flops: 4 * steps * rows * count,
        bytes: rows * count * (24 + 8 * steps),
    }
    .launch_items(queue, rows * count, THREADS)
}
