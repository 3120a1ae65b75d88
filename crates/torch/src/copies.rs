//! Copies within the device and between it and the host.

use crate::bridge::{run, view};
use crate::dtype::DType;
use crate::error::Error;
use crate::index_errors;
use crate::state;
use crate::tensor::Tensor;

/// `dst.copy_(src)`; sizes are equal (the dispatcher broadcasts before).
///
/// # Errors
/// The stream's; `Torch`.
pub fn copy(src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    if src.sizes() != dst.sizes() {
        return copy(&expand(src, dst.sizes())?, dst);
    }
    if dst.numel() == 0 || src.is_same(dst) {
        return Ok(());
    }
    match (src.is_wave(), dst.is_wave()) {
        (true, true) => within(src, dst),
        (true, false) => download(src, dst),
        (false, true) => upload(src, dst),
        (false, false) => dst.copy_from(src),
    }
}

/// `src` seen with `sizes`, as `expand` does it.
fn expand(src: &Tensor, sizes: &[i64]) -> Result<Tensor, Error> {
    let (from, strides) = (src.sizes(), src.strides());
    let mismatch = || Error::Invalid(format!("a tensor of sizes {from:?} does not broadcast to {sizes:?}"));
    let new = sizes.len().checked_sub(from.len()).ok_or_else(mismatch)?;
    let mut expanded = crate::tensor::Dims::from_elem(0, sizes.len());
    for d in 0..from.len() {
        match (from[d], sizes[new + d]) {
            (a, b) if a == b => expanded[new + d] = strides[d],
            (1, _) => {}
            _ => return Err(mismatch()),
        }
    }
    src.alias(sizes, &expanded, src.offset())
}

/// Between two tensors of the device.
fn within(src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    let alike = src.dtype()? == dst.dtype()? && src.is_dense() && same_layout(src, dst);
    let (from, to, bytes) = (src.address(), dst.address(), src.span_bytes()?);
    if alike && from == to {
        return Ok(());
    }
    if alike && (from + bytes <= to || to + bytes <= from) {
        return state::with(|stream| stream.copy(from, to, bytes));
    }
    strided(src, dst)
}

/// Between tensors of the device that differ in strides or type, or overlap; through the host where the
/// device has no kernel for that.
fn strided(src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    let overlap = src.address() < dst.address() + dst.span_bytes()?
        && dst.address() < src.address() + src.span_bytes()?;
    if !overlap {
        let on_device = view(src).and_then(|from| Ok((from, view(dst)?)));
        let copied = on_device.and_then(|(from, to)| run(|queue| wave32_ops::copy(queue, &from, &to)));
        if !matches!(
            copied,
            Err(Error::NoKernel(_) | Error::Device(wave32_device::DeviceError::Unsupported(_)))
        ) {
            return copied;
        }
    }
    upload(&to_host(src)?, dst)
}

fn same_layout(a: &Tensor, b: &Tensor) -> bool {
    // Strides of dimensions of size 1 mean nothing.
    let pairs = a.strides().iter().zip(b.strides()).zip(a.sizes());
    pairs.into_iter().all(|((a, b), size)| a == b || *size == 1)
}

/// Writes a tensor of the CPU into one of the device.
fn upload(src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    let (address, dtype) = (dst.address(), dst.dtype()?);
    if !(src.dtype()? == dtype && dst.is_dense() && same_layout(src, dst)) {
        // The CPU casts and reorders. Where the device's tensor has gaps, what lies there is kept.
        let image = match dst.is_dense() {
            true => Tensor::empty_cpu(dst.sizes(), dst.strides(), dtype)?,
            false => to_host(dst)?,
        };
        image.copy_from(src)?;
        return send(address, &image);
    }
    send(address, src)
}

fn send(address: u64, image: &Tensor) -> Result<(), Error> {
    let bytes = image.host_bytes()?;
    state::with(|stream| stream.upload(address, bytes))
}

/// Reads a tensor of the device into one of the CPU.
fn download(src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    if src.dtype()? == dst.dtype()? && src.is_dense() && same_layout(src, dst) {
        let (address, bytes) = (src.address(), dst.host_bytes_mut()?);
        state::with(|stream| stream.download(address, bytes))?;
        return index_errors::check();
    }
    dst.copy_from(&to_host(src)?)
}

/// A copy on the CPU with the same sizes and strides, gaps included.
///
/// # Errors
/// The stream's; `Torch`.
pub fn to_host(src: &Tensor) -> Result<Tensor, Error> {
    let (sizes, strides, dtype) = (src.sizes(), src.strides(), src.dtype()?);
    let host = Tensor::empty_cpu(sizes, strides, dtype)?;
    let (address, bytes) = (src.address(), host.host_bytes_mut()?);
    if !bytes.is_empty() {
        state::with(|stream| stream.download(address, bytes))?;
        index_errors::check()?;
    }
    Ok(host)
}

/// A copy on the device.
///
/// # Errors
/// The stream's; `Torch`.
pub fn to_device(src: &Tensor) -> Result<Tensor, Error> {
    let made = src.empty_like(src.dtype()?)?;
    copy(src, &made)?;
    Ok(made)
}

/// Fills a dense tensor with copies of one element's bytes, where whole words make that.
///
/// # Errors
/// `NoKernel` where they do not; the stream's.
pub fn fill(tensor: &Tensor, element: &[u8]) -> Result<(), Error> {
    let bytes = tensor.span_bytes()?;
    if bytes == 0 {
        return Ok(());
    }
    let uniform = element.iter().all(|byte| *byte == element[0]);
    let word = match *element {
        [a] => [a; 4],
        [a, b] => [a, b, a, b],
        [a, b, c, d] => [a, b, c, d],
        [a, ..] if uniform => [a; 4],
        _ => return Err(Error::NoKernel("a pattern of more than one word".into())),
    };
    let address = tensor.address();
    if !tensor.is_dense() {
        return Err(Error::NoKernel("a fill with gaps".into()));
    }
    // Blocks start at whole words, so only views of small elements do not; the odd end goes as an upload.
    let whole = if address.is_multiple_of(4) { bytes & !3 } else { 0 };
    let pattern: Vec<u8> = word.into_iter().cycle().take((bytes - whole) as usize).collect();
    state::with(|stream| {
        stream.fill(address, whole, u32::from_le_bytes(word))?;
        if pattern.is_empty() { Ok(()) } else { stream.upload(address + whole, &pattern) }
    })
}

/// The bytes of `value` as one element.
///
/// # Errors
/// `NoKernel` for types that the host converts.
pub fn element(value: f64, dtype: DType) -> Result<Vec<u8>, Error> {
    Ok(match dtype {
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::I64 => (value as i64).to_le_bytes().to_vec(),
        DType::I32 => (value as i32).to_le_bytes().to_vec(),
        DType::I16 => (value as i16).to_le_bytes().to_vec(),
        DType::I8 => (value as i8).to_le_bytes().to_vec(),
        DType::U8 => (value as i64 as u8).to_le_bytes().to_vec(),
        DType::Bool => vec![u8::from(value != 0.0)],
        _ if value.to_bits() == 0 => vec![0; dtype.bytes() as usize],
        // Through f32, as PyTorch does: `from_f64` drops half of the mantissa before it rounds.
        DType::F16 => half::f16::from_f32(value as f32).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        other => return Err(Error::NoKernel(format!("a fill of {}", other.name()))),
    })
}
