//! What operators that write into a given tensor have in common.

use crate::abi::error::Error;
use crate::runtime::bridge;
use crate::tensors::layout::{overlaps_itself, shared, suggests_channels_last};
use crate::tensors::memory_ops::resize_output;
use crate::tensors::tensor::Tensor;
use wave32_ops::View;
use wave32_torch_logic::{ScalarType, strides, windows};

/// Makes `out` ready for a result of these sizes and that type.
///
/// # Errors
/// `Invalid` for a result of another device; `NoKernel` for another type, and where `out` overlaps itself or shares memory
/// with an operand in another layout; the stream's.
pub fn prepare(out: &Tensor, sizes: &[i64], dtype: ScalarType, operands: &[&Tensor]) -> Result<(), Error> {
    if !out.is_wave() {
        return Err(elsewhere(out));
    }
    exactly(out, dtype)?;
    if out.sizes()[..] != sizes[..] {
        resize_output(out, sizes)?;
    }
    alone(out)?;
    for operand in operands {
        if overlap(out, operand)? && !same_elements(out, operand) {
            return Err(Error::NoKernel("a result that overlaps an operand".into()));
        }
    }
    Ok(())
}

/// That `out` is of the result's type. Some operators convert to another, some refuse it: the CPU does as it does.
///
/// # Errors
/// `NoKernel` where it is not: the call runs on the CPU.
pub fn exactly(out: &Tensor, dtype: ScalarType) -> Result<(), Error> {
    if out.dtype()? == dtype {
        return Ok(());
    }
    Err(Error::NoKernel(format!("a result of {} in {}", dtype.name(), out.dtype()?.name())))
}

/// That no two elements of `out` are one place in memory. Most operators refuse that, others write it as often as it has
/// elements: the CPU does as it does.
///
/// # Errors
/// `NoKernel` where it is not: the call runs on the CPU.
pub fn alone(out: &Tensor) -> Result<(), Error> {
    if overlaps_itself(out) {
        return Err(Error::NoKernel("a result that overlaps itself".into()));
    }
    Ok(())
}

/// Refuses to write into `out` where that is an operand's memory.
///
/// # Errors
/// `Invalid`, as PyTorch words it, where both are dense; `NoKernel` where only their ranges overlap.
pub fn apart(out: &Tensor, operands: &[&Tensor]) -> Result<(), Error> {
    for operand in operands {
        if !overlap(out, operand)? {
            continue;
        }
        if out.is_dense() && operand.is_dense() {
            return Err(shared());
        }
        return Err(Error::NoKernel("a result that overlaps an operand".into()));
    }
    Ok(())
}

/// True where the ranges of memory that both reach over have some in common.
///
/// # Errors
/// `Invalid` for an element type that wave32 does not know.
pub fn overlap(a: &Tensor, b: &Tensor) -> Result<bool, Error> {
    let (a_end, b_end) = (a.address() + a.span_bytes()?, b.address() + b.span_bytes()?);
    Ok(a.address() < b_end && b.address() < a_end)
}

/// True where both are the same elements in the same order.
pub fn same_elements(a: &Tensor, b: &Tensor) -> bool {
    a.address() == b.address() && a.sizes() == b.sizes() && a.strides() == b.strides()
}

/// A view for operations that move elements as they are, whatever their type.
///
/// # Errors
/// `NoKernel` for elements of more than eight bytes; see [`bridge::view`].
pub fn bits(tensor: &Tensor) -> Result<View, Error> {
    bridge::view_as(tensor, tensor.dtype()?.as_bits()?)
}

/// A new tensor with the sizes of one that was made of `like`, channels last where that is.
///
/// # Errors
/// `Device`, `Gone` or `OutOfMemory` from the queue.
pub fn empty_in_format(like: &Tensor, sizes: &[i64]) -> Result<Tensor, Error> {
    Tensor::empty_strided(sizes, &strides::in_format(suggests_channels_last(like), sizes), like.dtype()?)
}

/// (N, C, H, W) of a tensor that is an image or a batch of images; `axes` of them (1 or 2) are the image's.
///
/// # Errors
/// `NoKernel` for other ranks; see [`bridge::view`].
pub fn images(tensor: &Tensor, axes: usize) -> Result<View, Error> {
    Ok(windows::images(&bridge::view(tensor)?, axes)?)
}

/// An operand or a result is of another device.
pub fn elsewhere(tensor: &Tensor) -> Error {
    let other = if tensor.is_cpu() { "cpu" } else { "another" };
    Error::Invalid(format!(
        "Expected all tensors to be on the same device, but found at least two devices, wave:0 and {other}!"
    ))
}
