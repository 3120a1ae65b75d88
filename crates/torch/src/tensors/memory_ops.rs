//! Operators that make tensors, look at them otherwise, or move their bytes.

use crate::abi::calls::{BUILD_VERSION, Numbers, api, check};
use crate::abi::conversions::default_float;
use crate::abi::error::Error;
use crate::abi::stack::{Device, Layout};
use crate::dispatch::deterministic;
use crate::dispatch::register::Registration;
use crate::dispatch::scalar::ScalarOp;
use crate::ops;
use crate::scalar_ops;
use crate::tensors::copies;
use crate::tensors::layout::{self, given_format};
use crate::tensors::tensor::Tensor;
use std::sync::atomic::{AtomicBool, Ordering};
use wave32_device::Queue;
use wave32_torch_logic::strides::{channels_last, contiguous, preserved, span};
use wave32_torch_logic::{Dims, MemoryFormat, Scalar, ScalarType, sizes, views};

/// Kernels of `aten`.
pub const OPS: &[Registration] = ops! {
    "empty.memory_format" => empty,
    "empty_strided" => empty_strided,
    "view" => view,
    "as_strided" => as_strided,
    "_reshape_alias" => reshape_alias,
    "unfold" => unfold,
    "view_as_real" => view_as_real,
    "view_as_complex" => view_as_complex,
    "resize_" => resize_,
    "_copy_from" => copy_from,
    "_copy_from_and_resize" => copy_from_and_resize,
    "zero_" => zero_,
};

/// Kernels with a `Scalar`.
pub const SCALAR_OPS: &[ScalarOp] = scalar_ops! {
    "fill_.Scalar" => fill_,
    "_local_scalar_dense" => local_scalar_dense,
};

/// Operators of this device's own, for its Python side: handles to and from torch before 2.14, and `out=` of composites.
pub const SCHEMAS: &[&str] =
    &["take(Tensor self) -> int", "resize_output_(Tensor(a!) self, int[] sizes) -> ()"];

/// Kernels of those.
pub const OWN: &[Registration] = ops! { "take" => take, "resize_output_" => resize_output };

/// Operators of this device's own that get no tensor, so that no device's key selects them.
pub const FREE_SCHEMAS: &[&str] = &["give(int handle) -> Tensor"];

/// Kernels of those.
pub const FREE: &[Registration] = ops! { "give" => give };

fn empty(
    sizes: &[i64],
    dtype: Option<ScalarType>,
    layout: Option<Layout>,
    _device: Option<Device>,
    _pinned: Option<bool>,
    format: Option<MemoryFormat>,
) -> Result<Tensor, Error> {
    strided_only(layout)?;
    if let Some(size) = sizes.iter().find(|size| **size < 0) {
        return Err(Error::Invalid(format!(
            "Trying to create tensor with negative dimension {size}: {sizes:?}"
        )));
    }
    let dtype = dtype.unwrap_or_else(default_float);
    warn_of_complex_half(dtype)?;
    let made = match given_format(format) {
        None | Some(MemoryFormat::Contiguous) => Tensor::empty(sizes, dtype),
        Some(MemoryFormat::ChannelsLast) if sizes.len() == 4 => {
            Tensor::empty_strided(sizes, &channels_last(sizes), dtype)
        }
        Some(MemoryFormat::ChannelsLast3d) if sizes.len() == 5 => {
            Tensor::empty_strided(sizes, &channels_last(sizes), dtype)
        }
        Some(MemoryFormat::Preserve) => Tensor::empty(sizes, dtype),
        Some(_) => Err(Error::Invalid("required rank 4 tensor to use channels_last format".into())),
    };
    deterministic::fresh(made?)
}

/// What PyTorch says once of the first tensor of such numbers.
fn warn_of_complex_half(dtype: ScalarType) -> Result<(), Error> {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if dtype != ScalarType::C32 || TOLD.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    Ok(crate::abi::gil::warn("ComplexHalf support is experimental and many operators don't support it yet.")?)
}

fn empty_strided(
    sizes: &[i64],
    strides: &[i64],
    dtype: Option<ScalarType>,
    layout: Option<Layout>,
    _device: Option<Device>,
    _pinned: Option<bool>,
) -> Result<Tensor, Error> {
    strided_only(layout)?;
    let dtype = dtype.unwrap_or_else(default_float);
    warn_of_complex_half(dtype)?;
    deterministic::fresh(Tensor::empty_strided(sizes, strides, dtype)?)
}

fn strided_only(layout: Option<Layout>) -> Result<(), Error> {
    match layout {
        None | Some(Layout(0)) => Ok(()),
        Some(_) => Err(Error::Invalid("the wave device has strided tensors only".into())),
    }
}

fn view(x: &Tensor, sizes: &[i64]) -> Result<Tensor, Error> {
    let sizes = sizes::infer(sizes, x.numel())?;
    let strides = views::view_strides(&x.sizes(), &x.strides(), &sizes).ok_or_else(|| {
        Error::Invalid(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans \
             across two contiguous subspaces). Use .reshape(...) instead."
                .into(),
        )
    })?;
    x.alias(&sizes, &strides, x.offset())
}

fn as_strided(x: &Tensor, sizes: &[i64], strides: &[i64], offset: Option<i64>) -> Result<Tensor, Error> {
    let offset = offset.unwrap_or_else(|| x.offset());
    views::as_strided(sizes, strides, offset, x.dtype()?.bytes(), x.storage_bytes().max(0) as u64)?;
    x.alias(sizes, strides, offset)
}

fn reshape_alias(x: &Tensor, sizes: &[i64], strides: &[i64]) -> Result<Tensor, Error> {
    x.alias(sizes, strides, x.offset())
}

fn unfold(x: &Tensor, dimension: i64, size: i64, step: i64) -> Result<Tensor, Error> {
    let (sizes, strides) = views::unfold(&x.sizes(), &x.strides(), dimension, size, step)?;
    x.alias(&sizes, &strides, x.offset())
}

fn view_as_real(x: &Tensor) -> Result<Tensor, Error> {
    let wrong = || Error::Type("view_as_real is only supported for complex tensors".into());
    let part = x.dtype()?.part().ok_or_else(wrong)?;
    let mut sizes = x.sizes();
    let mut strides: Dims = x.strides().iter().map(|stride| stride * 2).collect();
    sizes.push(2);
    strides.push(1);
    x.alias_as(part, &sizes, &strides, x.offset() * x.dtype()?.bytes() as i64)
}

fn view_as_complex(x: &Tensor) -> Result<Tensor, Error> {
    let part = x.dtype()?;
    let refused = || {
        Error::Refused(format!(
            "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: {}",
            part.name()
        ))
    };
    let whole = part.of_parts().ok_or_else(refused)?;
    let wrong = |text: &str| Err(Error::Invalid(text.into()));
    let (all, steps) = (x.sizes(), x.strides());
    let (Some((last, sizes)), Some((step, strides))) = (all.split_last(), steps.split_last()) else {
        return wrong("Input tensor must have one or more dimensions");
    };
    if *last != 2 {
        return wrong("Tensor must have a last dimension of size 2");
    }
    if *step != 1 {
        return wrong("Tensor must have a last dimension with stride 1");
    }
    if strides.iter().any(|stride| stride % 2 != 0) {
        return wrong("Tensor must have a stride divisible by 2 for all but last dimension");
    }
    if x.offset() % 2 != 0 {
        return wrong("Tensor must have a storage_offset divisible by 2");
    }
    let strides: Dims = strides.iter().map(|stride| stride / 2).collect();
    x.alias_as(whole, sizes, &strides, x.offset() * x.dtype()?.bytes() as i64)
}

fn resize_(x: &Tensor, sizes: &[i64], format: Option<MemoryFormat>) -> Result<Tensor, Error> {
    if x.sizes()[..] != sizes[..] {
        resize(x, sizes)?;
    }
    if let Some(MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d) = given_format(format) {
        let strides = channels_last(sizes);
        set_data(x, &x.alias(sizes, &strides, x.offset())?)?;
    }
    x.share()
}

/// Gives `x` new sizes in place; elements keep their place in memory, new ones are undefined.
///
/// Where the storage is too small, `x` gets a new one: libtorch has no way to grow a storage of ours.
///
/// # Errors
/// `Device`, `Gone` or `OutOfMemory` from the queue; `Torch` where a call into libtorch fails.
pub fn resize(x: &Tensor, sizes: &[i64]) -> Result<(), Error> {
    if let Some(size) = sizes.iter().find(|size| **size < 0) {
        return Err(Error::Invalid(format!("resize_ got the negative size {size}")));
    }
    let (strides, dtype) = (contiguous(sizes), x.dtype()?);
    let end = (span(sizes, &strides) + x.offset() as u64).saturating_mul(dtype.bytes());
    if end <= x.storage_bytes().max(0) as u64 {
        return set_data(x, &x.alias(sizes, &strides, x.offset())?);
    }
    let grown = Tensor::empty(sizes, dtype)?;
    let kept = x.storage_bytes() / dtype.bytes() as i64 - x.offset();
    if kept > 0 {
        let (from, to) = (x.alias(&[kept], &[1], x.offset())?, grown.alias(&[kept], &[1], 0)?);
        copies::copy(&from, &to)?;
    }
    let (whole, kept) = (grown.numel(), kept.max(0));
    if deterministic::fills_memory() && kept < whole {
        deterministic::fill(&grown.alias(&[whole - kept], &[1], kept)?)?;
    }
    set_data(x, &grown)
}

/// As [`resize`], of an `out=`: with PyTorch's warning where elements would be lost.
///
/// # Errors
/// As [`resize`].
pub fn resize_output(out: &Tensor, sizes: &[i64]) -> Result<(), Error> {
    warn_of_resize(out, sizes);
    resize(out, sizes)
}

/// As [`resize_output`], to these strides, which leave no gaps.
///
/// # Errors
/// As [`resize`].
pub fn resize_output_to(out: &Tensor, sizes: &[i64], strides: &[i64]) -> Result<(), Error> {
    resize_output(out, sizes)?;
    let is_so = out.strides()[..] == strides[..];
    if is_so { Ok(()) } else { set_data(out, &out.alias(sizes, strides, out.offset())?) }
}

/// PyTorch's warning where an `out=` of other sizes has elements to lose.
fn warn_of_resize(out: &Tensor, sizes: &[i64]) {
    if let Some(warn) = api().resize_output_check {
        // SAFETY: a handle is an `at::Tensor*`; warnings are kept or printed, not thrown.
        unsafe { warn(out.handle(), Numbers::of(sizes)) };
    }
}

/// `x.data = new`.
fn set_data(x: &Tensor, new: &Tensor) -> Result<(), Error> {
    let mut stack = [x.share()?.into_word(), new.share()?.into_word()];
    // SAFETY: the operator takes two tensors, which it owns, and answers nothing.
    let status = unsafe {
        (api().torch_call_dispatcher)(
            c"aten::set_data".as_ptr(),
            c"".as_ptr(),
            stack.as_mut_ptr(),
            BUILD_VERSION,
        )
    };
    check(status, "set_data")
}

fn copy_from(src: &Tensor, dst: &Tensor, _non_blocking: bool) -> Result<Tensor, Error> {
    if dst.is_wave() && !src.is_same(dst) {
        layout::no_internal_overlap(dst)?;
        if src.is_wave() {
            layout::no_partial_overlap(dst, src)?;
        }
    }
    copies::copy(src, dst)?;
    dst.share()
}

fn copy_from_and_resize(src: &Tensor, dst: &Tensor) -> Result<Tensor, Error> {
    if src.sizes() != dst.sizes() {
        if dst.is_wave() {
            resize(dst, &src.sizes())?;
        } else {
            let strides = preserved(&src.sizes(), &src.strides());
            set_data(dst, &Tensor::empty_cpu(&src.sizes(), &strides, dst.dtype()?)?)?;
        }
    }
    copies::copy(src, dst)?;
    dst.share()
}

fn zero_(x: &Tensor) -> Result<Tensor, Error> {
    match copies::fill(x, &[0]) {
        Err(Error::NoKernel(_)) => fill_(x, Scalar::Int(0)),
        done => done.and_then(|()| x.share()),
    }
}

fn fill_(x: &Tensor, value: Scalar) -> Result<Tensor, Error> {
    value.fits(x.dtype()?)?;
    let word = value.bytes(x.dtype()?).map_err(Error::from);
    let done = word.and_then(|element| copies::fill(x, &element));
    if let Err(Error::NoKernel(_)) = done {
        let number = match value {
            Scalar::Int(value) => wave32_ops::Number::Int(value),
            other => wave32_ops::Number::Float(other.float()?),
        };
        let view = crate::runtime::bridge::view(x)?;
        crate::runtime::bridge::run(|queue| wave32_ops::fill(queue, &view, number))?;
    } else {
        done?;
    }
    x.share()
}

fn take(x: &Tensor) -> Result<i64, Error> {
    Ok(x.share()?.into_word() as i64)
}

fn give(handle: i64) -> Result<Tensor, Error> {
    // SAFETY: called by `scalar.rs` only, with a handle that it gives away.
    Ok(unsafe { Tensor::from_handle(handle as u64 as _) })
}

/// The number that a tensor of one element is. Waits for the device.
///
/// # Errors
/// `Invalid` for more elements; `NoKernel` for exotic types; the stream's.
pub fn local_scalar_dense(x: &Tensor) -> Result<Scalar, Error> {
    if x.numel() != 1 {
        return Err(Error::Invalid(format!(
            "a Tensor with {} elements cannot be converted to Scalar",
            x.numel()
        )));
    }
    let (dtype, address, mut raw) = (x.dtype()?, x.address(), [0u8; 16]);
    crate::runtime::state::with(|queue| queue.download(address, &mut raw[..dtype.bytes() as usize]))?;
    crate::dispatch::index_errors::check()?;
    Ok(Scalar::read(dtype, &raw)?)
}
