//! Sums into named places.
//!
//! [`scatter_add`] into rows of up to 4096 elements compares each of them with all indices of its row. All
//! else goes through a table of offsets, 8192 sources at a time: each finds its rank among the offsets by
//! counting (8192 comparisons), then the first of equal ones adds them all up. Linear in the number of
//! sources, with a constant that a sort would beat from about a million of them on.

use super::{Errors, Picked, TABLE, THREADS, Walk, bad_shape, check_index, dimension, lines, sources};
use crate::call::{Call, fit, fit_all, fit_inner, range, read, write};
use crate::scratch::scratch;
use crate::{Common, ElementType, Kind, OpError, Queue, View, copy};
use wave32_params::{Name, accumulate};
use wave32_solve::Access;

/// Sources ranked at a time.
const CHUNK: u64 = 8192;
/// Longest row that is compared with all of its indices.
const MAX_COMPARED: u64 = 4096;

/// `output[.., indices[j], ..] += source[.., j, ..]` along `dim`; sources of index `ignored` are left out.
///
/// # Errors
/// `bad-shape`, `bad-type`, `too-many-elements`, `range-too-large`; [`OpError::Device`] where the device fails.
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
    scratch(queue, ElementType::I32, indices.sizes(), |queue, table| {
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
    common.outer(3, |offsets| {
        let raised = range(queue, errors.0, 1, 4, Access::Write)?;
        let buffers = accumulate::Buffers {
            dst: write(queue, output)?,
            src: read(queue, source)?,
            index: read(queue, indices)?,
            order: raised.unused(),
            errors: raised,
        };
        let strides = |view: usize, along: u64| {
            let [_, a, b, c] = common.strides4(view);
            fit_all([a, b, c, along])
        };
        Call {
            kernel: kernel(output.dtype),
            params: accumulate::Params {
                mode: accumulate::ROWS,
                count: fit(count)?,
                dtype: output.dtype.code(),
                index_type: indices.dtype.code(),
                limit: fit(limit)?,
                sources: fit(length)?,
                dst_at: fit(buffers.dst.at() + offsets[0])?,
                src_at: fit(buffers.src.at() + offsets[1])?,
                index_at: fit(buffers.index.at() + offsets[2])?,
                order_at: 0,
                size: fit_all([sizes[2], sizes[3], limit])?,
                d: strides(0, stride)?,
                v: strides(1, source.strides()[dim])?,
                i: strides(2, indices.strides()[dim])?,
            },
            buffers,
            flops: 4 * count * length,
            bytes: count * length,
        }
        .launch_items(queue, count, THREADS)
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
    scratch(queue, ElementType::I32, &[chunk], |queue, order| {
        for start in (0..sources).step_by(chunk as usize) {
            let length = chunk.min(sources - start);
            let entries = View::contiguous(table.address + 4 * start, ElementType::I32, &[length])?;
            rank(queue, &entries, order)?;
            common.outer(3, |offsets| {
                let bound = read(queue, order)?;
                let buffers = accumulate::Buffers {
                    dst: write(queue, output)?,
                    src: read(queue, source)?,
                    index: read(queue, &entries)?,
                    order: bound,
                    errors: bound.unused(),
                };
                let count = length * each;
                let inner_strides = |first: u64, view: usize| {
                    let [_, a, b, c] = common.strides4(view);
                    fit_all([first, a, b, c])
                };
                Call {
                    kernel: kernel(output.dtype),
                    params: accumulate::Params {
                        mode: accumulate::SEGMENTS,
                        count: fit(count)?,
                        dtype: output.dtype.code(),
                        index_type: ElementType::I32.code(),
                        limit: 0,
                        sources: fit(length)?,
                        dst_at: fit(buffers.dst.at() + offsets[0])?,
                        src_at: fit(buffers.src.at() + offsets[1] + start * step)?,
                        index_at: fit(buffers.index.at())?,
                        order_at: fit(bound.at())?,
                        size: fit_inner(inner)?,
                        d: inner_strides(0, 0)?,
                        v: inner_strides(step, 1)?,
                        i: [0; 4],
                    },
                    buffers,
                    flops: 4 * count,
                    bytes: count * 3 * output.dtype.size(),
                }
                .launch_items(queue, count, THREADS)
            })?;
        }
        Ok(())
    })
}

/// `order[r]`: which of the table's entries is the r-th smallest.
fn rank(queue: &mut dyn Queue, entries: &View, order: &View) -> Result<(), OpError> {
    let length = entries.elements();
    let index = read(queue, entries)?;
    let to = write(queue, order)?;
    let none = index.unused();
    Call {
        kernel: accumulate::I,
        params: accumulate::Params {
            mode: accumulate::RANK,
            count: fit(length)?,
            dtype: ElementType::I32.code(),
            index_type: ElementType::I32.code(),
            limit: 0,
            sources: fit(length)?,
            dst_at: 0,
            src_at: 0,
            index_at: fit(index.at())?,
            order_at: fit(to.at())?,
            size: [1; 3],
            d: [0; 4],
            v: [0; 4],
            i: [0; 4],
        },
        buffers: accumulate::Buffers { dst: none, src: none, index, order: to, errors: none },
        flops: 8 * length * length,
        bytes: 8 * length,
    }
    .launch_items(queue, length, THREADS)
}

fn kernel(dtype: ElementType) -> Name<accumulate::Kernel> {
    match Kind::of([dtype]) {
        Kind::Float => accumulate::F,
        Kind::Int => accumulate::I,
        Kind::Double => accumulate::D,
    }
}

fn same_type(output: &View, source: &View) -> Result<(), OpError> {
    if output.dtype == source.dtype {
        return Ok(());
    }
    Err(OpError::refused("bad-type", format!("{:?} to {:?}", source.dtype, output.dtype)))
}
