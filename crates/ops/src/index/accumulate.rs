//! Sums into named places.
//!
//! [`scatter_add`] into rows of up to 4096 elements compares each of them with all indices of its row. All
//! else goes through a table of offsets, 8192 sources at a time: each finds its rank among the offsets by
//! counting (8192 comparisons), then the first of equal ones adds them all up. Linear in the number of
//! sources, with a constant that a sort would beat from about a million of them on.

use super::{Errors, Picked, TABLE, THREADS, Walk, bad_shape, check_index, dimension, lines, sources};
use crate::scratch::scratch;
use crate::{Call, Common, DType, Kind, OpError, Queue, View, copy};

// `mode` in kernels/accumulate.kern.
const RANK: u32 = 0;
const SEGMENTS: u32 = 1;
const ROWS: u32 = 2;
/// Sources ranked at a time.
const CHUNK: u64 = 8192;
/// Longest row that is compared with all of its indices.
const MAX_COMPARED: u64 = 4096;

/// `output[.., indices[j], ..] += source[.., j, ..]` along `dim`; sources of index `ignored` are left out.
///
/// # Errors
/// `bad-shape`, `bad-type`, `too-many-elements`, `range-too-large`, the device's.
pub fn add(
    queue: &mut dyn Queue,
    output: &View,
    dim: usize,
    indices: &View,
    source: &View,
    ignored: Option<u32>,
    errors: Errors,
) -> Result<(), OpError> {
    if output.rank() == 0 || indices.rank() != 1 {
        return Err(bad_shape(output, indices, source));
    }
    let mut at = vec![None; dim];
    at.push(Some(*indices));
    let picked = Picked::new(output, &at)?;
    if picked.sizes != source.sizes() {
        return Err(bad_shape(output, indices, source));
    }
    segments(queue, &picked, output, source, ignored, errors)
}

/// `output[indices] += values`; see [`super::put`]. Of several values for one element all count.
///
/// # Errors
/// As [`add`]; `no-broadcast`.
pub fn put_add(
    queue: &mut dyn Queue,
    output: &View,
    indices: &[Option<View>],
    values: &View,
    errors: Errors,
) -> Result<(), OpError> {
    let picked = Picked::new(output, indices)?;
    let values = values.broadcast(&picked.sizes)?;
    segments(queue, &picked, output, &values, None, errors)
}

/// `output[indices[i][j][k]][j][k] += source[i][j][k]`, and alike for other `dim`.
///
/// # Errors
/// As [`add`].
pub fn scatter_add(
    queue: &mut dyn Queue,
    output: &View,
    dim: usize,
    indices: &View,
    source: &View,
    errors: Errors,
) -> Result<(), OpError> {
    check_index(indices)?;
    same_type(output, source)?;
    let source = sources(source, indices)?;
    let places = lines(output, dim, indices)?;
    if indices.elements() == 0 {
        return Ok(());
    }
    let (limit, stride) = dimension(output, dim);
    if indices.rank() > 0 && output.rank() > 0 && limit <= MAX_COMPARED {
        return rows(queue, output, dim, indices, &source, errors);
    }
    scratch(queue, DType::I32, indices.sizes(), |queue, table| {
        Walk {
            mode: TABLE,
            own: table,
            bound: output,
            places: &places,
            index: indices,
            limit,
            stride,
            ignored: 0,
        }
        .launch(queue, errors)?;
        add_table(queue, output, table, &[], &[], &source, 0)
    })
}

fn rows(
    queue: &mut dyn Queue,
    output: &View,
    dim: usize,
    indices: &View,
    source: &View,
    errors: Errors,
) -> Result<(), OpError> {
    let (limit, stride) = dimension(output, dim);
    // The rows that have indices, by their first elements.
    let mut narrowed = *output;
    for (at, &size) in indices.sizes().iter().enumerate() {
        narrowed = narrowed.narrow(at, 0, size.min(output.sizes()[at]));
    }
    let [heads, index_heads, source_heads] = [&narrowed, indices, source].map(|view| view.select(dim, 0));
    let common = Common::new(&[&heads, &source_heads, &index_heads]);
    let sizes = common.sizes4();
    let count = sizes[1..].iter().product::<u64>() * limit;
    let length = indices.sizes()[dim];
    let kernel = kernel(output.dtype);
    common.outer(3, |offsets| {
        let mut call = Call::new();
        let to = u64::from(call.view(queue, output, true)?) + offsets[0];
        let from = u64::from(call.view(queue, source, false)?) + offsets[1];
        let named = u64::from(call.view(queue, indices, false)?) + offsets[2];
        call.range(queue, errors.0, 1, 4, true)?;
        call.range(queue, errors.0, 1, 4, true)?;
        call.word(ROWS).numbers(&[count])?.words([output.dtype.code(), indices.dtype.code()]);
        call.numbers(&[limit, length, to, from, named, 0, sizes[2], sizes[3], limit])?;
        for (view, along) in [(0, stride), (1, source.strides()[dim]), (2, indices.strides()[dim])] {
            call.numbers(&common.strides4(view)[1..])?.numbers(&[along])?;
        }
        call.work(4 * count * length, count * length);
        call.launch_items(queue, kernel, count, THREADS)
    })
}

fn segments(
    queue: &mut dyn Queue,
    picked: &Picked,
    output: &View,
    source: &View,
    ignored: Option<u32>,
    errors: Errors,
) -> Result<(), OpError> {
    same_type(output, source)?;
    if picked.sizes.contains(&0) {
        return Ok(());
    }
    let part = picked.at..picked.at + picked.named;
    let rest = |all: &[u64]| [&all[..part.start], &all[part.end..]].concat();
    let (sizes, places) = (rest(&picked.sizes), rest(&picked.places));
    picked.table(queue, ignored, errors, |queue, table| {
        add_table(queue, output, table, &sizes, &places, source, picked.at)
    })
}

/// `output[table[j] + rest] += source[j, rest]`, where `rest` goes over `sizes` with strides `places`, and the
/// table's dimensions are those of `source` from `at` on.
fn add_table(
    queue: &mut dyn Queue,
    output: &View,
    table: &View,
    sizes: &[u64],
    places: &[u64],
    source: &View,
    at: usize,
) -> Result<(), OpError> {
    let part = at..at + table.rank();
    let named = View::new(source.address, source.dtype, table.sizes(), &source.strides()[part.clone()])?;
    let merged = Common::new(&[&named]);
    if merged.sizes.len() > 1 {
        // Sources have to be equally far from each other.
        return scratch(queue, source.dtype, source.sizes(), |queue, plain| {
            copy(queue, source, plain)?;
            add_table(queue, output, table, sizes, places, plain, at)
        });
    }
    let step = merged.strides[0][0];
    let strides = [&source.strides()[..part.start], &source.strides()[part.end..]].concat();
    let to = View::new(output.address, output.dtype, sizes, places)?;
    let from = View::new(source.address, source.dtype, sizes, &strides)?;
    let common = Common::new(&[&to, &from]);
    let inner = common.sizes4();
    let each: u64 = inner[1..].iter().product();
    let (sources, most) = (table.elements(), ((1 << 31) - 1) / each);
    if most == 0 {
        return Err(OpError::refused("too-many-elements", format!("{each} for each index")));
    }
    let chunk = CHUNK.min(most).min(sources);
    scratch(queue, DType::I32, &[chunk], |queue, order| {
        for start in (0..sources).step_by(chunk as usize) {
            let length = chunk.min(sources - start);
            let entries = View::contiguous(table.address + 4 * start, DType::I32, &[length])?;
            rank(queue, &entries, order)?;
            common.outer(3, |offsets| {
                let mut call = Call::new();
                let to = u64::from(call.view(queue, output, true)?) + offsets[0];
                let from = u64::from(call.view(queue, source, false)?) + offsets[1] + start * step;
                let named = u64::from(call.view(queue, &entries, false)?);
                let order_at = u64::from(call.view(queue, order, false)?);
                call.view(queue, order, false)?;
                let count = length * each;
                call.word(SEGMENTS).numbers(&[count])?.words([output.dtype.code(), DType::I32.code()]);
                call.numbers(&[0, length, to, from, named, order_at])?.numbers(&inner[1..])?;
                call.numbers(&[0])?.numbers(&common.strides4(0)[1..])?;
                call.numbers(&[step])?.numbers(&common.strides4(1)[1..])?.words([0; 4]);
                call.work(4 * count, count * 3 * output.dtype.size());
                call.launch_items(queue, kernel(output.dtype), count, THREADS)
            })?;
        }
        Ok(())
    })
}

/// `order[r]`: which of the table's entries is the r-th smallest.
fn rank(queue: &mut dyn Queue, entries: &View, order: &View) -> Result<(), OpError> {
    let length = entries.elements();
    let mut call = Call::new();
    call.view(queue, entries, false)?;
    call.view(queue, entries, false)?;
    let named = u64::from(call.view(queue, entries, false)?);
    let order_at = u64::from(call.view(queue, order, true)?);
    call.view(queue, entries, false)?;
    call.word(RANK).numbers(&[length])?.words([DType::I32.code(); 2]);
    call.numbers(&[0, length, 0, 0, named, order_at])?.words([1; 3]).words([0; 12]);
    call.work(8 * length * length, 8 * length);
    call.launch_items(queue, "accumulate_i_f32", length, THREADS)
}

fn kernel(dtype: DType) -> &'static str {
    match Kind::of([dtype]) {
        Kind::Float => "accumulate_f_f32",
        Kind::Int => "accumulate_i_f32",
        Kind::Double => "accumulate_d_f32",
    }
}

fn same_type(output: &View, source: &View) -> Result<(), OpError> {
    if output.dtype == source.dtype {
        return Ok(());
    }
    Err(OpError::refused("bad-type", format!("{:?} to {:?}", source.dtype, output.dtype)))
}
