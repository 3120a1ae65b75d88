//! Elements named by other tensors: selected, gathered, scattered, accumulated.
//!
//! An index outside of its dimension never touches memory: reads give 0, writes do not happen, and the word
//! at [`Errors`] becomes 1, for the caller to look at when it waits for the device anyway.
//!
//! Sums are taken in the order of the sources, without atomics, so that they repeat bit for bit
//! (`accumulate` says at what cost). Where [`scatter`] or [`put`] write one element several times, which
//! of them stays is open, as in PyTorch.

mod accumulate;
mod nonzero;

use crate::call::{Call, fit, fit_all, fit_inner, range, read, write};
use crate::scratch::scratch;
use crate::{Common, ElementType, OpError, Queue, View};
use wave32_params::Divisors;
use wave32_params::index as kernel;
use wave32_params::index::{IGNORE, MASK, MORE, TABLE, WRAP, WRITE};
use wave32_solve::Access;

pub use accumulate::{add, put_add, scatter_add};
pub use nonzero::{count_nonzero, nonzero, nonzero_counts};

const THREADS: u64 = 256;
/// Limit of a table's entries, which were checked when it was made.
const ANYWHERE: u64 = i32::MAX as u64;

/// Address of a word that becomes 1 where an index is out of range; 0 before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errors(pub u64);

/// `output[.., j, ..] = input[.., indices[j], ..]` along `dim`; `indices` has at most one dimension.
///
/// # Errors
/// `bad-shape`, `bad-type`, `too-many-elements`, `range-too-large`; [`OpError::Device`] where the device fails.
pub fn select(
    queue: &mut dyn Queue,
    input: &View,
    dim: usize,
    indices: &View,
    output: &View,
    errors: Errors,
) -> Result<(), OpError> {
    let mut sizes = input.sizes().to_vec();
    if dim < sizes.len() {
        sizes[dim] = indices.elements();
    }
    if indices.rank() > 1 || sizes != output.sizes() || input.dtype != output.dtype {
        return Err(bad_shape(input, indices, output));
    }
    let mut names = vec![0; sizes.len()];
    let mut places = input.strides().to_vec();
    if let Some(at) = names.get_mut(dim) {
        *at = indices.strides().first().copied().unwrap_or(0);
        places[dim] = 0;
    }
    let (limit, stride) = dimension(input, dim);
    let index = View::new(indices.address, indices.dtype, &sizes, &names)?;
    let places = View::new(input.address, input.dtype, &sizes, &places)?;
    Walk { mode: 0, own: output, bound: input, places: &places, index: &index, limit, stride, ignored: 0 }
        .launch(queue, errors)
}

/// `output[i][j][k] = input[indices[i][j][k]][j][k]`, and alike for other `dim`.
///
/// # Errors
/// As [`select`].
pub fn gather(
    queue: &mut dyn Queue,
    input: &View,
    dim: usize,
    indices: &View,
    output: &View,
    errors: Errors,
) -> Result<(), OpError> {
    if indices.sizes() != output.sizes() || input.dtype != output.dtype {
        return Err(bad_shape(input, indices, output));
    }
    let places = lines(input, dim, indices)?;
    let (limit, stride) = dimension(input, dim);
    Walk { mode: 0, own: output, bound: input, places: &places, index: indices, limit, stride, ignored: 0 }
        .launch(queue, errors)
}

/// `output[indices[i][j][k]][j][k] = source[i][j][k]`, and alike for other `dim`; `source` broadcasts to the
/// sizes of `indices` or is larger.
///
/// # Errors
/// As [`select`].
pub fn scatter(
    queue: &mut dyn Queue,
    output: &View,
    dim: usize,
    indices: &View,
    source: &View,
    errors: Errors,
) -> Result<(), OpError> {
    if source.dtype != output.dtype {
        return Err(bad_shape(output, indices, source));
    }
    let source = sources(source, indices)?;
    let places = lines(output, dim, indices)?;
    let (limit, stride) = dimension(output, dim);
    Walk {
        mode: WRITE,
        own: &source,
        bound: output,
        places: &places,
        index: indices,
        limit,
        stride,
        ignored: 0,
    }
    .launch(queue, errors)
}

/// `output = input[indices]` in the manner of NumPy: `indices[d]` names places along dimension `d`, negative
/// ones counting from the end; dimensions without indices stay whole.
///
/// # Errors
/// As [`select`]; `no-broadcast`.
pub fn get(
    queue: &mut dyn Queue,
    input: &View,
    indices: &[Option<View>],
    output: &View,
    errors: Errors,
) -> Result<(), OpError> {
    let picked = Picked::new(input, indices)?;
    if picked.sizes != output.sizes() || input.dtype != output.dtype {
        return Err(OpError::refused("bad-shape", format!("{:?} into {output:?}", picked.sizes)));
    }
    picked.walk(queue, 0, output, input, errors)
}

/// The sizes of what [`get`] gives, and of what [`put`] broadcasts its values to.
///
/// # Errors
/// `bad-shape`, `bad-type`, `no-broadcast`.
pub fn picked_sizes(input: &View, indices: &[Option<View>]) -> Result<Vec<u64>, OpError> {
    Ok(Picked::new(input, indices)?.sizes)
}

/// `output[indices] = values`; see [`get`]. `values` broadcasts.
///
/// # Errors
/// As [`get`].
pub fn put(
    queue: &mut dyn Queue,
    output: &View,
    indices: &[Option<View>],
    values: &View,
    errors: Errors,
) -> Result<(), OpError> {
    let picked = Picked::new(output, indices)?;
    let values = values.broadcast(&picked.sizes)?;
    if values.dtype != output.dtype {
        return Err(OpError::refused("bad-type", format!("{:?} to {:?}", values.dtype, output.dtype)));
    }
    picked.walk(queue, WRITE, &values, output, errors)
}

/// `output = value` wherever `mask` (of bytes) is not 0. Both broadcast; `errors` stays as it is.
///
/// # Errors
/// `no-broadcast`, `bad-type`, `too-many-elements`, `range-too-large`; [`OpError::Device`] where the device fails.
pub fn masked_fill(
    queue: &mut dyn Queue,
    output: &View,
    mask: &View,
    value: &View,
    errors: Errors,
) -> Result<(), OpError> {
    let (mask, value) = (mask.broadcast(output.sizes())?, value.broadcast(output.sizes())?);
    if !matches!(mask.dtype, ElementType::Bool | ElementType::U8) || value.dtype != output.dtype {
        return Err(bad_shape(output, &mask, &value));
    }
    Walk {
        mode: WRITE | MASK,
        own: &value,
        bound: output,
        places: output,
        index: &mask,
        limit: 0,
        stride: 0,
        ignored: 0,
    }
    .launch_unchecked(queue, errors)
}

/// A tensor indexed by several others.
struct Picked {
    /// What comes out: the broadcast indices' sizes in place of the dimensions that they index, in front
    /// where those are not neighbours.
    sizes: Vec<u64>,
    /// Where in `sizes` the indices' part begins, and its length.
    at: usize,
    named: usize,
    /// The indexed tensor's strides over `sizes`; 0 in the indices' part.
    places: Vec<u64>,
    /// The indices, broadcast, with size and stride of the dimension of each.
    indices: Vec<(View, u64, u64)>,
}

impl Picked {
    fn new(tensor: &View, indices: &[Option<View>]) -> Result<Self, OpError> {
        let given: Vec<(usize, View)> =
            indices.iter().enumerate().filter_map(|(dim, view)| view.map(|view| (dim, view))).collect();
        let (Some(&(first, _)), Some(&(last, _))) = (given.first(), given.last()) else {
            return Err(OpError::refused("bad-shape", "no index"));
        };
        if indices.len() > tensor.rank() {
            return Err(OpError::refused("bad-shape", format!("{} indices of {tensor:?}", indices.len())));
        }
        let common = broadcast_sizes(given.iter().map(|(_, view)| view.sizes()))?;
        let neighbours = last - first + 1 == given.len();
        let (at, named) = (if neighbours { first } else { 0 }, common.len());
        let (mut sizes, mut places) = (Vec::new(), Vec::new());
        for (dim, (&size, &stride)) in tensor.sizes().iter().zip(tensor.strides()).enumerate() {
            if indices.get(dim).is_none_or(Option::is_none) {
                sizes.push(size);
                places.push(stride);
            }
        }
        sizes.splice(at..at, common.iter().copied());
        places.splice(at..at, std::iter::repeat_n(0, named));
        let indices = given
            .iter()
            .map(|(dim, view)| {
                let (limit, stride) = dimension(tensor, *dim);
                check_index(view)?;
                Ok((view.broadcast(&common)?, limit, stride))
            })
            .collect::<Result<_, OpError>>()?;
        Ok(Self { sizes, at, named, places, indices })
    }

    /// The sizes of the indices' part.
    fn common(&self) -> &[u64] {
        &self.sizes[self.at..self.at + self.named]
    }

    /// A view of the indices' part seen over all of `sizes`.
    fn spread(&self, view: &View) -> Result<View, OpError> {
        let mut strides = vec![0; self.sizes.len()];
        strides[self.at..self.at + self.named].copy_from_slice(view.strides());
        View::new(view.address, view.dtype, &self.sizes, &strides)
    }

    /// Reads or writes `tensor` at the picked places; `own` is the other side.
    fn walk(
        &self,
        queue: &mut dyn Queue,
        mode: u32,
        own: &View,
        tensor: &View,
        errors: Errors,
    ) -> Result<(), OpError> {
        let places = &View::new(tensor.address, tensor.dtype, &self.sizes, &self.places)?;
        let walk = |queue: &mut dyn Queue, index: &View, mode, limit, stride| {
            let index = &self.spread(index)?;
            Walk { mode, own, bound: tensor, places, index, limit, stride, ignored: 0 }.launch(queue, errors)
        };
        if let &[(index, limit, stride)] = self.indices.as_slice() {
            return walk(queue, &index, mode | WRAP, limit, stride);
        }
        self.table(queue, None, errors, |queue, table| walk(queue, table, mode, ANYWHERE, 1))
    }

    /// Runs `work` with a table of the offsets that the indices add up to; `ignored` has none.
    fn table(
        &self,
        queue: &mut dyn Queue,
        ignored: Option<u32>,
        errors: Errors,
        work: impl FnOnce(&mut dyn Queue, &View) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        scratch(queue, ElementType::I32, self.common(), |queue, table| {
            for (at, (index, limit, stride)) in self.indices.iter().enumerate() {
                let more = if at == 0 { 0 } else { MORE };
                let ignore = if ignored.is_some() { IGNORE } else { 0 };
                let mode = TABLE | WRAP | more | ignore;
                let places = View::new(table.address, table.dtype, table.sizes(), &vec![0; table.rank()])?;
                Walk {
                    mode,
                    own: table,
                    bound: table,
                    places: &places,
                    index,
                    limit: *limit,
                    stride: *stride,
                    ignored: ignored.unwrap_or(0),
                }
                .launch(queue, errors)?;
            }
            work(queue, table)
        })
    }
}

/// One launch of the kernel: `own` element by element against places of `bound`.
struct Walk<'a> {
    mode: u32,
    own: &'a View,
    /// The tensor whose places are named.
    bound: &'a View,
    /// Its strides over the sizes of `own`, without the named dimension's.
    places: &'a View,
    index: &'a View,
    limit: u64,
    stride: u64,
    ignored: u32,
}

impl Walk<'_> {
    fn launch(&self, queue: &mut dyn Queue, errors: Errors) -> Result<(), OpError> {
        check_index(self.index)?;
        self.launch_unchecked(queue, errors)
    }

    /// As [`Walk::launch`], whatever the type of the index.
    fn launch_unchecked(&self, queue: &mut dyn Queue, errors: Errors) -> Result<(), OpError> {
        if self.own.elements() == 0 {
            return Ok(());
        }
        let common = Common::new(&[self.own, self.places, self.index]);
        let sizes = common.sizes4();
        let count: u64 = sizes.iter().product();
        let writes = self.mode & WRITE != 0;
        common.outer(4, |offsets| {
            let own = if writes { read(queue, self.own)? } else { write(queue, self.own)? };
            let (other, other_at) = match self.mode & TABLE {
                // Entries are offsets from the tensor's first element, wherever it is bound.
                TABLE => (own.unused(), offsets[1]),
                _ => {
                    let other = if writes { write(queue, self.bound)? } else { read(queue, self.bound)? };
                    (other, other.at() + offsets[1])
                }
            };
            let buffers = kernel::Buffers {
                own,
                other,
                index: read(queue, self.index)?,
                errors: range(queue, errors.0, 1, 4, Access::Write)?,
            };
            Call {
                kernel: kernel::I,
                params: kernel::Params {
                    mode: self.mode,
                    count: fit(count)?,
                    dtype: self.own.dtype.bits().code(),
                    index_type: self.index.dtype.code(),
                    limit: fit(self.limit)?,
                    stride: fit(self.stride)?,
                    ignored: self.ignored,
                    own_at: fit(own.at() + offsets[0])?,
                    other_at: fit(other_at)?,
                    index_at: fit(buffers.index.at() + offsets[2])?,
                    size: fit_inner(sizes)?,
                    a: fit_all(common.strides4(0))?,
                    b: fit_all(common.strides4(1))?,
                    i: fit_all(common.strides4(2))?,
                    by: Divisors::new([sizes[1], sizes[2], sizes[3]]),
                },
                buffers,
                flops: 0,
                bytes: count * (2 * self.own.dtype.size() + self.index.dtype.size()),
            }
            .launch_items(queue, count, THREADS)
        })
    }
}

/// `tensor` over the sizes of `indices`, without its stride along `dim`.
fn lines(tensor: &View, dim: usize, indices: &View) -> Result<View, OpError> {
    let (sizes, most) = (indices.sizes(), tensor.sizes());
    let inside = sizes.len() == most.len()
        && sizes.iter().zip(most).enumerate().all(|(at, (a, b))| at == dim || a <= b);
    // A scalar counts as one element.
    if !inside && (sizes.len() > 1 || most.len() > 1) {
        return Err(bad_shape(tensor, indices, tensor));
    }
    let mut strides = tensor.strides().to_vec();
    strides.resize(sizes.len(), 0);
    if let Some(stride) = strides.get_mut(dim) {
        *stride = 0;
    }
    View::new(tensor.address, tensor.dtype, sizes, &strides)
}

/// The elements of `source` that belong to `indices`.
fn sources(source: &View, indices: &View) -> Result<View, OpError> {
    let (sizes, most) = (indices.sizes(), source.sizes());
    if sizes.len() == most.len() && sizes.iter().zip(most).all(|(a, b)| a <= b) {
        return View::new(source.address, source.dtype, sizes, source.strides());
    }
    source.broadcast(sizes)
}

/// Size and stride of a dimension; a scalar has one element.
fn dimension(view: &View, dim: usize) -> (u64, u64) {
    match (view.sizes().get(dim), view.strides().get(dim)) {
        (Some(&size), Some(&stride)) => (size, stride),
        _ => (1, 0),
    }
}

fn broadcast_sizes<'a>(all: impl Iterator<Item = &'a [u64]>) -> Result<Vec<u64>, OpError> {
    let mut common: Vec<u64> = Vec::new();
    for sizes in all {
        if sizes.len() > common.len() {
            common.splice(0..0, std::iter::repeat_n(1, sizes.len() - common.len()));
        }
        let front = common.len() - sizes.len();
        for (to, &size) in common[front..].iter_mut().zip(sizes) {
            match (*to, size) {
                (a, b) if a == b || b == 1 => {}
                (1, b) => *to = b,
                _ => return Err(OpError::refused("no-broadcast", format!("{sizes:?} and {common:?}"))),
            }
        }
    }
    Ok(common)
}

fn check_index(index: &View) -> Result<(), OpError> {
    if matches!(index.dtype, ElementType::I64 | ElementType::I32) {
        return Ok(());
    }
    Err(OpError::refused("bad-type", format!("{:?} as index", index.dtype)))
}

fn bad_shape(tensor: &View, indices: &View, other: &View) -> OpError {
    OpError::refused("bad-shape", format!("{tensor:?} at {indices:?} with {other:?}"))
}
