//! Elements named by other tensors.

use crate::abi::error::Error;
use crate::dispatch::index_errors;
use crate::dispatch::register::Registration;
use crate::dispatch::result::{alone, apart, bits, overlap, prepare, same_elements};
use crate::runtime::bridge::{run, view};
use crate::tensors::copies::{self, contiguous};
use crate::tensors::tensor::Tensor;
use wave32_device::Queue;
use wave32_ops::{View, index};
use wave32_torch_logic::number::element;
use wave32_torch_logic::sizes::wrap;
use wave32_torch_logic::{Dims, Scalar, ScalarType};

/// Kernels of `aten`.
pub const OPS: &[Registration] = crate::ops! {
    "index_select" => select,
    "index_select.out" => select_out,
    "gather.out" => |x: &Tensor, dim: i64, index: &Tensor, _sparse_grad: bool, out: &Tensor| gather(x, dim, index, out),
    "scatter.src_out" => |x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, out: &Tensor| {
        in_order(index)?;
        scatter(x, dim, index, source, out)
    },
    "scatter_add.out" => scatter_add,
    "index_copy.out" => |x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, out: &Tensor| {
        in_order(index)?;
        index_copy(x, dim, index, source, out)
    },
    "index_fill_.int_Tensor" => index_fill,
    "nonzero" => nonzero,
    "embedding_dense_backward" => embedding_backward,
};

/// Schemas of what `python/wave32/_index_ops.py` calls: forms with a `Scalar`, and with lists of optional tensors.
/// The C ABI takes the latter's elements out of a list that the caller may share (autograd does), so that they may
/// only come with a list made for the call.
pub const SCHEMAS: &[&str] = &[
    "scatter_value_(Tensor(a!) self, int dim, Tensor index, float value) -> Tensor(a!)",
    "index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source) -> Tensor(a!)",
    "index_get(Tensor self, Tensor?[] indices, *, Tensor(a!) out) -> Tensor(a!)",
    "index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate) -> Tensor(a!)",
    "scatter_any(Tensor self, int dim, Tensor index, Tensor src, *, Tensor(a!) out) -> Tensor(a!)",
    "index_copy_any(Tensor self, int dim, Tensor index, Tensor source, *, Tensor(a!) out) -> Tensor(a!)",
];

/// Kernels of those.
pub const OWN: &[Registration] = crate::ops! {
    "scatter_value_" => scatter_value,
    "index_add_" => index_add,
    "index_get" => get,
    "index_put_" => put,
    "scatter_any" => scatter,
    "index_copy_any" => index_copy,
};

/// In deterministic mode `_ordered.py` decides which of several values for one place stays, and then calls the form
/// whose writes come in any order.
fn in_order(index: &Tensor) -> Result<(), Error> {
    if index.numel() > 1 && crate::dispatch::deterministic::is_on() {
        return Err(Error::NoKernel("writes in the order of the sources".into()));
    }
    Ok(())
}

fn select(x: &Tensor, dim: i64, index: &Tensor) -> Result<Tensor, Error> {
    let sizes = selected_sizes(x, dim, index)?;
    let out = Tensor::empty(&sizes, x.dtype()?)?;
    select_into(x, dim, index, &out)?;
    Ok(out)
}

fn select_out(x: &Tensor, dim: i64, index: &Tensor, out: &Tensor) -> Result<Tensor, Error> {
    prepare(out, &selected_sizes(x, dim, index)?, x.dtype()?, &[x, index])?;
    if same_elements(out, x) {
        return Err(Error::NoKernel("a selection into its source".into()));
    }
    select_into(x, dim, index, out)?;
    out.share()
}

fn selected_sizes(x: &Tensor, dim: i64, index: &Tensor) -> Result<Dims, Error> {
    let dim = wrap(dim, x.sizes().len())?;
    if index.dim() > 1 || !matches!(index.dtype()?, ScalarType::I64 | ScalarType::I32) || !index.is_wave() {
        return Err(Error::NoKernel(format!("a selection by sizes {:?}", index.sizes())));
    }
    reachable(x, dim, index)?;
    let mut sizes = x.sizes();
    if let Some(size) = sizes.get_mut(dim) {
        *size = index.numel();
    }
    Ok(sizes)
}

fn select_into(x: &Tensor, dim: i64, index: &Tensor, out: &Tensor) -> Result<(), Error> {
    let (from, names, to) = (bits(x)?, view(index)?, bits(out)?);
    let (dim, word) = (wrap(dim, x.sizes().len())?, index_errors::word()?);
    if out.numel() == 0
        && index.numel() > 0
        && let Some(&size) = x.sizes().get(dim)
    {
        // Nothing is copied, but places are checked: those of one number, repeated.
        let (number, chosen) =
            (Tensor::empty(&[1], ScalarType::I32)?, Tensor::empty(&[index.numel()], ScalarType::I32)?);
        let (number, chosen) = (view(&number)?, view(&chosen)?);
        return run(|queue| {
            let repeated = View::new(number.address, number.dtype, &[size as u64], &[0])?;
            index::select(queue, &repeated, 0, &names, &chosen, word)
        });
    }
    run(|queue| index::select(queue, &from, dim, &names, &to, word))
}

fn gather(x: &Tensor, dim: i64, index: &Tensor, out: &Tensor) -> Result<Tensor, Error> {
    let dim = wrap(dim, x.sizes().len())?;
    reachable(x, dim, index)?;
    prepare(out, &index.sizes(), x.dtype()?, &[x, index])?;
    if same_elements(out, x) {
        return Err(Error::NoKernel("a gather into its source".into()));
    }
    if index.numel() == 0 {
        // Of any type, as PyTorch has it.
        return out.share();
    }
    let (from, names, to) = (bits(x)?, view(index)?, bits(out)?);
    let word = index_errors::word()?;
    run(|queue| index::gather(queue, &from, dim, &names, &to, word))?;
    out.share()
}

/// That places of a dimension can be named: in one of size 0 there are none, and no memory for kernels to look at.
fn reachable(x: &Tensor, dim: usize, index: &Tensor) -> Result<(), Error> {
    if index.numel() > 0 && x.sizes().get(dim) == Some(&0) {
        return Err(Error::Index(format!("index is out of bounds for dimension {dim} with size 0")));
    }
    Ok(())
}

/// Makes `out` a copy of `x` to write into; `operands` must not be part of it.
fn copied(x: &Tensor, out: &Tensor, operands: &[&Tensor]) -> Result<(), Error> {
    prepare(out, &x.sizes(), x.dtype()?, &[x])?;
    prepare(out, &x.sizes(), x.dtype()?, operands)?;
    if operands.iter().any(|operand| operand.numel() > 0 && same_elements(out, operand)) {
        return Err(Error::NoKernel("a result that overlaps an operand".into()));
    }
    if same_elements(x, out) { Ok(()) } else { copies::copy(x, out) }
}

fn scatter(x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, out: &Tensor) -> Result<Tensor, Error> {
    let dim = wrap(dim, x.sizes().len())?;
    if source.dtype()? != x.dtype()? {
        return Err(Error::NoKernel("a source of another type".into()));
    }
    let (names, from) = (view(index)?, bits(source)?);
    reachable(x, dim, index)?;
    copied(x, out, &[index, source])?;
    if index.numel() == 0 {
        return out.share();
    }
    let (to, word) = (bits(out)?, index_errors::word()?);
    run(|queue| index::scatter(queue, &to, dim, &names, &from, word))?;
    out.share()
}

/// The caller has checked that a float holds the value.
fn scatter_value(x: &Tensor, dim: i64, index: &Tensor, value: f64) -> Result<Tensor, Error> {
    let dim = wrap(dim, x.sizes().len())?;
    reachable(x, dim, index)?;
    alone(x)?;
    if Scalar::Float(value).fits(x.dtype()?).is_err() {
        return Err(Error::NoKernel(format!("{value} as {}", x.dtype()?.name())));
    }
    let one = Tensor::empty(&[], x.dtype()?)?;
    let element = element(value, x.dtype()?)?;
    let address = one.address();
    crate::runtime::state::with(|queue| queue.upload(address, &element))?;
    apart(x, &[index])?;
    let (names, from, to) = (view(index)?, bits(&one)?, bits(x)?);
    let word = index_errors::word()?;
    run(|queue| index::scatter(queue, &to, dim, &names, &from, word))?;
    x.share()
}

fn scatter_add(x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, out: &Tensor) -> Result<Tensor, Error> {
    let dim = wrap(dim, x.sizes().len())?;
    if source.dtype()? != x.dtype()? {
        return Err(Error::NoKernel("a source of another type".into()));
    }
    let (names, from) = (view(index)?, view(source)?);
    reachable(x, dim, index)?;
    copied(x, out, &[index, source])?;
    if index.numel() == 0 {
        return out.share();
    }
    let (to, word) = (view(out)?, index_errors::word()?);
    run(|queue| index::scatter_add(queue, &to, dim, &names, &from, word))?;
    out.share()
}

fn index_add(x: &Tensor, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor, Error> {
    let dim = wrap(dim, x.sizes().len())?;
    if x.numel() == 0 {
        return Err(Error::NoKernel("sums of no elements, which may name what is not there".into()));
    }
    reachable(x, dim, index)?;
    alone(x)?;
    apart(x, &[index, source])?;
    let (names, from, to) = (listed(index)?, listed_view(view(source)?)?, listed_view(view(x)?)?);
    let word = index_errors::word()?;
    run(|queue| index::add(queue, &to, dim, &names, &from, None, word))?;
    x.share()
}

/// An index of one dimension; a scalar names one place.
fn listed(index: &Tensor) -> Result<View, Error> {
    match view(index)? {
        plain if plain.rank() > 1 => Err(Error::NoKernel(format!("an index of sizes {:?}", index.sizes()))),
        plain => listed_view(plain),
    }
}

/// A scalar as a tensor of one dimension.
fn listed_view(plain: View) -> Result<View, Error> {
    if plain.rank() > 0 { Ok(plain) } else { Ok(View::new(plain.address, plain.dtype, &[1], &[1])?) }
}

fn index_copy(x: &Tensor, dim: i64, index: &Tensor, source: &Tensor, out: &Tensor) -> Result<Tensor, Error> {
    let dim = wrap(dim, x.sizes().len())?;
    let names = listed(index)?;
    let mut expected = x.sizes();
    if let Some(size) = expected.get_mut(dim) {
        *size = names.sizes()[0] as i64;
    }
    if source.dtype()? != x.dtype()? || source.sizes()[..] != expected[..] {
        return Err(Error::NoKernel(format!("a source of sizes {:?}", source.sizes())));
    }
    let from = listed_view(bits(source)?)?;
    reachable(x, dim, index)?;
    copied(x, out, &[index, source])?;
    put_along(&listed_view(bits(out)?)?, dim, names, &from)?;
    out.share()
}

fn put_along(to: &View, dim: usize, names: View, from: &View) -> Result<(), Error> {
    let mut indices = vec![None; dim];
    indices.push(Some(names));
    let word = index_errors::word()?;
    run(|queue| index::put(queue, to, &indices, from, word))
}

fn index_fill(x: &Tensor, dim: i64, index: &Tensor, value: &Tensor) -> Result<Tensor, Error> {
    let dim = wrap(dim, x.sizes().len())?;
    if index.dtype()? != ScalarType::I64 {
        return Err(Error::Index("index_fill_(): Expected dtype int64 for index.".into()));
    }
    if value.dim() != 0 || value.dtype()? != x.dtype()? {
        return Err(Error::NoKernel(format!("a fill with a value of sizes {:?}", value.sizes())));
    }
    alone(x)?;
    // PyTorch takes the number out of the tensor first, so that it may be one of those that are written.
    let value = if overlap(x, value)? { copies::to_device(value)? } else { on_device(value)? };
    reachable(x, dim, index)?;
    apart(x, &[index])?;
    put_along(&listed_view(bits(x)?)?, dim, listed(index)?, &bits(&value)?)?;
    x.share()
}

fn on_device(tensor: &Tensor) -> Result<Tensor, Error> {
    if tensor.is_wave() { tensor.share() } else { copies::to_device(tensor) }
}

/// Indices per dimension as PyTorch takes them: masks become the places that they mark (which waits for the
/// device: how many there are decides sizes), those of the CPU come over.
fn named(x: &Tensor, indices: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>, Error> {
    let mut all = Vec::new();
    for index in indices {
        let Some(index) = index.as_ref().filter(|index| index.is_defined()) else {
            all.push(None);
            continue;
        };
        let index = on_device(index)?;
        match index.dtype()? {
            ScalarType::I64 | ScalarType::I32 => all.push(Some(index)),
            ScalarType::Bool | ScalarType::U8 => {
                warn_of_bytes(&index)?;
                let (sizes, mask) = (x.sizes(), index.sizes());
                if mask.is_empty() || sizes.get(all.len()..all.len() + mask.len()) != Some(&mask) {
                    return Err(Error::NoKernel(format!("a mask of sizes {mask:?}")));
                }
                let places = nonzero(&index)?;
                let (count, rank) = (places.sizes()[0], places.sizes()[1]);
                let (down, across) = (places.strides()[0], places.strides()[1]);
                for dim in 0..rank {
                    all.push(Some(places.alias(&[count], &[down], places.offset() + dim * across)?));
                }
            }
            other => return Err(Error::NoKernel(format!("an index of {}", other.name()))),
        }
    }
    Ok(all)
}

/// What PyTorch says of masks that are not of truths.
fn warn_of_bytes(mask: &Tensor) -> Result<(), Error> {
    if mask.dtype()? != ScalarType::U8 {
        return Ok(());
    }
    Ok(crate::abi::gil::warn(
        "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.",
    )?)
}

/// Waits for the device: how many places there are is a size.
fn nonzero(x: &Tensor) -> Result<Tensor, Error> {
    if x.dtype()?.is_complex() {
        return Err(Error::NoKernel("zeros of complex numbers, which have signs".into()));
    }
    let plain = contiguous(x)?;
    // Bits will do for types that have no view, but not for the signs of floats.
    let from = if plain.dtype()?.is_float() { view(&plain)? } else { bits(&plain)? };
    let rank = x.dim();
    let mut counts = vec![0u8; 4 * index::nonzero_counts(from.elements()) as usize];
    let starts = Tensor::empty(&[counts.len() as i64 / 4], ScalarType::I32)?;
    let mut total = 0i64;
    if !counts.is_empty() {
        let (to, address) = (view(&starts)?, starts.address());
        run(|queue| index::count_nonzero(queue, &from, &to))?;
        crate::runtime::state::with(|queue| queue.download(address, &mut counts))?;
        index_errors::check()?;
        for count in counts.chunks_exact_mut(4) {
            let many = i64::from(u32::from_le_bytes([count[0], count[1], count[2], count[3]]));
            // The device binds fewer than 2^31 elements.
            count.copy_from_slice(&(total as u32).to_le_bytes());
            total += many;
        }
        crate::runtime::state::with(|queue| queue.upload(address, &counts))?;
    }
    // Column after column, as the CPU has it.
    let out = Tensor::empty_strided(&[total, rank], &[1, total], ScalarType::I64)?;
    let (starts, to) = (view(&starts)?, view(&out)?);
    run(|queue| index::nonzero(queue, &from, &starts, &to))?;
    Ok(out)
}

fn all_reachable(x: &Tensor, indices: &[Option<Tensor>]) -> Result<(), Error> {
    let named = indices.iter().enumerate().filter_map(|(dim, index)| Some((dim, index.as_ref()?)));
    let mut named = named.filter(|(_, index)| index.is_defined()).peekable();
    // An index without elements makes all of them name nothing.
    if named.clone().any(|(_, index)| index.numel() == 0) {
        return Ok(());
    }
    named.try_for_each(|(dim, index)| reachable(x, dim, index))
}

fn views(indices: &[Option<Tensor>]) -> Result<Vec<Option<View>>, Error> {
    indices.iter().map(|index| index.as_ref().map(view).transpose()).collect()
}

fn get(x: &Tensor, indices: &[Option<Tensor>], out: &Tensor) -> Result<Tensor, Error> {
    let indices = named(x, indices)?;
    all_reachable(x, &indices)?;
    let (from, names) = (bits(x)?, views(&indices)?);
    let sizes: Dims = index::picked_sizes(&from, &names)?.into_iter().map(|size| size as i64).collect();
    prepare(out, &sizes, x.dtype()?, &[x])?;
    if out.numel() > 0 && same_elements(out, x) {
        return Err(Error::NoKernel("a result that overlaps an operand".into()));
    }
    let (to, word) = (bits(out)?, index_errors::word()?);
    run(|queue| index::get(queue, &from, &names, &to, word))?;
    out.share()
}

fn put(x: &Tensor, indices: &[Option<Tensor>], values: &Tensor, accumulate: bool) -> Result<Tensor, Error> {
    if values.dtype()? != x.dtype()? {
        return Err(Error::NoKernel("values of another type".into()));
    }
    let values = if values.numel() == 1 { on_device(values)? } else { values.share()? };
    if x.is_wave() && !values.is_wave() {
        return Err(Error::Invalid("expected device wave:0 but got device cpu for value tensor".into()));
    }
    alone(x)?;
    if !x.is_wave() {
        return Err(Error::NoKernel("a tensor of another device".into()));
    }
    if !accumulate && values.numel() == 1 && fill_marked(x, indices, &values)? {
        return x.share();
    }
    let indices = named(x, indices)?;
    all_reachable(x, &indices)?;
    // Operands that are written meanwhile would depend on the order of the writes.
    let operands: Vec<&Tensor> = indices.iter().flatten().chain([&values]).collect();
    apart(x, &operands)?;
    let names = views(&indices)?;
    let word = index_errors::word()?;
    if accumulate {
        let (to, from) = (view(x)?, view(&values)?);
        run(|queue| index::put_add(queue, &to, &names, &from, word))?;
    } else {
        let (to, from) = (bits(x)?, bits(&values)?);
        run(|queue| index::put(queue, &to, &names, &from, word))?;
    }
    x.share()
}

/// `x[mask] = value` without waiting for the device; false where the indices are not one mask.
fn fill_marked(x: &Tensor, indices: &[Option<Tensor>], value: &Tensor) -> Result<bool, Error> {
    let [Some(mask)] = indices else { return Ok(false) };
    let marks =
        mask.is_defined() && matches!(mask.dtype()?, ScalarType::Bool | ScalarType::U8) && mask.is_wave();
    if !marks || x.sizes().get(..mask.sizes().len()) != Some(&mask.sizes()) {
        return Ok(false);
    }
    warn_of_bytes(mask)?;
    let (to, plain) = (bits(x)?, view(mask)?);
    let missing = to.rank() - plain.rank();
    let sizes = [plain.sizes(), &vec![1; missing][..]].concat();
    let strides = [plain.strides(), &vec![0; missing][..]].concat();
    let plain = View::new(plain.address, plain.dtype, &sizes, &strides)?;
    apart(x, &[mask, value])?;
    let one = bits(value)?;
    let one = View::new(one.address, one.dtype, &[], &[])?;
    let word = index_errors::word()?;
    run(|queue| index::masked_fill(queue, &to, &plain, &one, word))?;
    Ok(true)
}

fn embedding_backward(
    grad: &Tensor,
    indices: &Tensor,
    rows: i64,
    padding: i64,
    scale_by_frequency: bool,
) -> Result<Tensor, Error> {
    if scale_by_frequency || !grad.dtype()?.is_float() {
        return Err(Error::NoKernel("gradients scaled by frequency".into()));
    }
    let width = grad.sizes().last().copied().unwrap_or(0);
    let (grad, indices) = (contiguous(grad)?, contiguous(indices)?);
    if grad.numel() != indices.numel() * width {
        return Err(Error::NoKernel(format!("gradients of sizes {:?}", grad.sizes())));
    }
    let out = Tensor::empty(&[rows, width], grad.dtype()?)?;
    copies::fill(&out, &[0])?;
    if grad.numel() == 0 {
        return Ok(out);
    }
    reachable(&out, 0, &indices)?;
    let names = indices.alias(&[indices.numel()], &[1], indices.offset())?;
    let lines = grad.alias(&[indices.numel(), width], &[width, 1], grad.offset())?;
    let (names, from, to) = (view(&names)?, view(&lines)?, view(&out)?);
    let word = index_errors::word()?;
    run(|queue| index::add(queue, &to, 0, &names, &from, u32::try_from(padding).ok(), word))?;
    Ok(out)
}
