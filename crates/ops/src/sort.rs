//! Sorting along a dimension.

use crate::scratch::scratch;
use crate::{Call, Common, DType, OpError, Queue, View, copy};

const THREADS: u64 = 256;

/// `places[.., i, ..]` = where along `dim` the i-th element of `x` in order is, equal ones in their own order;
/// NaN counts as the largest. `places` (int64) may be shorter than `x` along `dim`.
///
/// # Errors
/// `different-sizes`, `bad-type`, `too-many-elements`, `range-too-large`, the device's.
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
    if places.dtype != DType::I64 {
        return Err(OpError::refused("bad-type", format!("places in {:?}", places.dtype)));
    }
    if places.elements() == 0 {
        return Ok(());
    }
    let count = x.sizes()[dim];
    let rows = x.elements() / count;
    let pair = [2 * rows, count];
    // Two of each: merging goes from one to the other.
    scratch(queue, DType::I64, &pair, |queue, keys| {
        scratch(queue, DType::I32, &pair, |queue, found| {
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
        let mut call = Call::new();
        let x_at = u64::from(call.view(queue, x, false)?) + offsets[0];
        let keys_at = u64::from(call.view(queue, keys, true)?) + offsets[1];
        let found_at = u64::from(call.view(queue, found, true)?) + offsets[1];
        call.numbers(&[rows, count, THREADS])?.words([descending.into(), x.dtype.code()]);
        call.numbers(&[x_at])?.numbers(&kept[1..])?.numbers(&common.strides4(0))?;
        call.numbers(&[x.strides()[dim], 0, 0, found_at, keys_at])?;
        call.work(THREADS * rows * count, rows * count * (x.dtype.size() + 12));
        call.launch_items(queue, "sort_block_f32", rows * count.div_ceil(THREADS), 1)
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
    let mut call = Call::new();
    let keys_at = call.view(queue, keys, false)?;
    let from_at = call.view(queue, found, false)?;
    let to_keys_at = call.view(queue, to_keys, true)?;
    let to_at = call.view(queue, to, true)?;
    call.numbers(&[rows, count, run])?.words([0; 11]).words([keys_at, from_at, to_at, to_keys_at]);
    let steps = u64::from(run.ilog2()) + 1;
    call.work(4 * steps * rows * count, rows * count * (24 + 8 * steps));
    call.launch_items(queue, "sort_merge_f32", rows * count, THREADS)
}
