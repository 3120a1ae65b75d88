//! Copies within the device and between it and the host.

use crate::abi::calls::{Device as CxxDevice, PRIVATE_USE_1, api};
use crate::abi::error::Error;
use crate::abi::stack::{Device, Layout};
use crate::dispatch::index_errors;
use crate::dispatch::register::Registration;
use crate::runtime::bridge::{run, view};
use crate::runtime::{graph, state};
use crate::tensors::tensor::Tensor;
use crate::tensors::{dlpack, dtype};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use wave32_device::Queue;
use wave32_ops::View;
use wave32_torch_logic::{MemoryFormat, ScalarType, strides, views};

/// Kernels of `aten`, where [`can_convert`] says so: they call what may throw C++ exceptions.
pub const OPS: &[Registration] = &[crate::kernel!("_to_copy", to_copy, uncaught)];

/// The schema of what `python/wave32/_fuse.py` calls under autocast.
pub const SCHEMAS: &[&str] = &["kept_cast(Tensor input, ScalarType dtype) -> Tensor"];

/// Its kernel.
pub const OWN: &[Registration] = crate::ops! { "kept_cast" => kept_cast };

/// Whether this torch has what [`OPS`] calls.
pub fn can_convert() -> bool {
    api().to_copy.is_some() && api().is_negated.is_some()
}

/// Whether copies to the CPU wait, whatever they are told: else torch would take pinned memory for them, which there is not.
static WAITS: AtomicBool = AtomicBool::new(false);

/// From now on copies to the CPU wait; false where torch's own conversion is in place.
pub fn wait_for_copies() -> bool {
    WAITS.store(true, Ordering::Relaxed);
    can_convert()
}

thread_local! {
    /// The operand of [`Keeping`]; 0 where there is none.
    static KEEPS: Cell<usize> = const { Cell::new(0) };
}

/// While it lives, conversions of one operand that this thread asks for may share memory: nobody will write to their results.
/// The device keeps such results as long as nothing writes to what they were made of.
pub struct Keeping(());

impl Keeping {
    /// Of that operand, from now on.
    pub fn begin(x: &Tensor) -> Self {
        KEEPS.set(x.implementation());
        Self(())
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        KEEPS.set(0);
    }
}

/// What the device keeps of that conversion, or will keep from now on; none where it keeps nothing.
fn kept(x: &Tensor, to: ScalarType) -> Result<Option<Tensor>, Error> {
    if KEEPS.get() != x.implementation()
        || x.dtype()? != ScalarType::F32
        || !matches!(to, ScalarType::F16 | ScalarType::BF16)
        || x.numel() == 0
        || !x.is_dense()
    {
        return Ok(None);
    }
    let (from, into) = (view(x)?, to.try_into()?);
    let Some(address) = run(|queue| wave32_ops::kept_cast(queue, &from, into))? else { return Ok(None) };
    dlpack::tensor(address, &x.sizes(), &x.strides(), to).inspect_err(|_| state::free(address)).map(Some)
}

/// `x.to(dtype)` for one who does not write to the result: the device may keep it.
fn kept_cast(x: &Tensor, to: ScalarType) -> Result<Tensor, Error> {
    let _keeping = Keeping::begin(x);
    match kept(x, to)? {
        Some(made) => Ok(made),
        None => converted(x, to),
    }
}

fn converted(x: &Tensor, to: ScalarType) -> Result<Tensor, Error> {
    let made = x.empty_like(to)?;
    copy(x, &made)?;
    Ok(made)
}

/// `x.to(dtype)` within the device by a launch; torch's own way, by an empty tensor and a copy, takes the dispatcher three
/// times more. All else goes that way.
#[allow(clippy::too_many_arguments)] // the schema's
fn to_copy(
    x: &Tensor,
    dtype: Option<ScalarType>,
    layout: Option<Layout>,
    device: Option<Device>,
    pinned: Option<bool>,
    non_blocking: bool,
    format: Option<MemoryFormat>,
) -> Result<Tensor, Error> {
    let (Some(torchs), Some(is_negated)) = (api().to_copy, api().is_negated) else {
        return Err(Error::Invalid("registered only where it can be called".into()));
    };
    let device = device.map(CxxDevice::from);
    let stays =
        device.is_none_or(|device| device.kind == PRIVATE_USE_1) && layout.is_none_or(|layout| layout.0 == 0);
    let is_plain = stays && pinned != Some(true) && matches!(format, None | Some(MemoryFormat::Preserve));
    let from = x.dtype()?;
    let to = dtype.unwrap_or(from);
    // SAFETY: a live handle.
    if is_plain && x.is_wave() && from.is_float() && to.is_float() && !unsafe { is_negated(x.handle()) } {
        if let Some(made) = kept(x, to)? {
            return Ok(made);
        }
        return converted(x, to);
    }
    let to_host = device.is_some_and(|device| device.kind == 0);
    let non_blocking = non_blocking && !(to_host && WAITS.load(Ordering::Relaxed));
    let made = Tensor::undefined()?;
    let code = |dtype| dtype::code(dtype) as i8;
    let (dtype, layout) = (dtype.map(code).into(), layout.map(|layout| layout.0 as i8).into());
    let (pinned, format) =
        (pinned.map(u8::from).into(), format.map(|format| dtype::format_code(format) as i8).into());
    // SAFETY: the types are those that the mangled name says; the result is constructed where the first argument says.
    unsafe { torchs(made.handle(), x.handle(), dtype, layout, device.into(), pinned, non_blocking, format) };
    Ok(made)
}

/// `dst.copy_(src)`; sizes are equal (the dispatcher broadcasts before).
///
/// # Errors
/// `Device`, `Gone` or `OutOfMemory` from the queue; `Torch` where a call into libtorch fails.
pub fn copy(src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    if src.sizes() != dst.sizes() {
        let sizes = dst.sizes();
        let strides = views::expand(&src.sizes(), &src.strides(), &sizes)?;
        return copy(&src.alias(&sizes, &strides, src.offset())?, dst);
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

/// Between two tensors of the device.
fn within(src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    let alike = src.dtype()? == dst.dtype()? && src.is_dense() && same_layout(src, dst);
    let (from, to, bytes) = (src.address(), dst.address(), src.span_bytes()?);
    if alike && from == to {
        return Ok(());
    }
    if alike && (from + bytes <= to || to + bytes <= from) {
        return run(|queue| wave32_ops::copy_bytes(queue, from, to, bytes));
    }
    strided(src, dst)
}

/// Between tensors of the device that differ in strides or type, or overlap; through the host where the
/// device has no kernel for that.
fn strided(src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    let overlap = src.address() < dst.address() + dst.span_bytes()?
        && dst.address() < src.address() + src.span_bytes()?;
    if !overlap {
        if src.dtype()? != dst.dtype()? && (src.dtype()?.is_complex() || dst.dtype()?.is_complex()) {
            let copied = by_parts(src, dst);
            if !is_refusal(&copied) {
                return copied;
            }
        }
        // Elements of one type move as they are, whatever type that is.
        let look = if src.dtype()? == dst.dtype()? { lanes } else { view };
        let on_device = look(src).and_then(|from| Ok((from, look(dst)?)));
        let copied = on_device.and_then(|(from, to)| run(|queue| wave32_ops::copy(queue, &from, &to)));
        if !is_refusal(&copied) {
            return copied;
        }
    }
    upload(&to_host(src)?, dst)
}

fn is_refusal(copied: &Result<(), Error>) -> bool {
    matches!(copied, Err(Error::NoKernel(_) | Error::Device(wave32_device::DeviceError::Unsupported(_))))
}

/// Between complex numbers and others, or of another width: real parts, then imaginary ones, which are 0 of real
/// numbers and lost to them.
fn by_parts(src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    let [from, from_imaginary] = parts(src)?;
    let [to, to_imaginary] = parts(dst)?;
    run(|queue| {
        if let Some(to) = &to_imaginary {
            match &from_imaginary {
                Some(from) => wave32_ops::copy(queue, from, to)?,
                None => wave32_ops::fill(queue, to, wave32_ops::Number::Int(0))?,
            }
        }
        from.zip(to).map_or(Ok(()), |(from, to)| wave32_ops::copy(queue, &from, &to))
    })
}

/// Real and imaginary part; of real numbers just the first.
fn parts(tensor: &Tensor) -> Result<[Option<View>; 2], Error> {
    let Some(part) = tensor.dtype()?.part() else { return Ok([Some(view(tensor)?), None]) };
    let part = wave32_ops::ElementType::try_from(part)?;
    let sizes: SmallVec<[u64; 8]> = tensor.sizes().iter().map(|&size| size as u64).collect();
    let strides: SmallVec<[u64; 8]> = tensor.strides().iter().map(|&stride| stride as u64 * 2).collect();
    let at = |address| Ok::<_, Error>(Some(View::new(address, part, &sizes, &strides)?));
    Ok([at(tensor.address())?, at(tensor.address() + part.size())?])
}

/// A view of elements as whole numbers of their size; those of sixteen bytes are two along a dimension more.
fn lanes(tensor: &Tensor) -> Result<View, Error> {
    let dtype = match tensor.dtype()?.bytes() {
        1 => wave32_ops::ElementType::U8,
        2 => wave32_ops::ElementType::I16,
        4 => wave32_ops::ElementType::I32,
        _ => wave32_ops::ElementType::I64,
    };
    let wide = tensor.dtype()?.bytes() / dtype.size();
    let mut sizes: SmallVec<[u64; 8]> = tensor.sizes().iter().map(|&size| size as u64).collect();
    let mut strides: SmallVec<[u64; 8]> =
        tensor.strides().iter().map(|&stride| stride as u64 * wide).collect();
    if wide > 1 {
        sizes.push(wide);
        strides.push(1);
    }
    Ok(View::new(tensor.address(), dtype, &sizes, &strides)?)
}

pub(crate) fn same_layout(a: &Tensor, b: &Tensor) -> bool {
    strides::are_alike(&a.sizes(), &a.strides(), &b.strides())
}

/// Writes a tensor of the CPU into one of the device.
fn upload(src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    let (address, dtype) = (dst.address(), dst.dtype()?);
    if !(src.is_cpu() && src.dtype()? == dtype && dst.is_dense() && same_layout(src, dst)) {
        // The CPU casts and reorders, and gets what another device holds. Where the device's tensor has gaps, what lies there is kept.
        let image = match dst.is_dense() {
            true => Tensor::empty_cpu(&dst.sizes(), &dst.strides(), dtype)?,
            false => to_host(dst)?,
        };
        image.copy_from(src)?;
        return send(address, &image);
    }
    send(address, src)
}

fn send(address: u64, image: &Tensor) -> Result<(), Error> {
    // Numbers are part of a graph, tensors are not: a replay would copy what they held at the capture.
    if image.numel() * image.dtype()?.bytes() as i64 > 16 {
        graph::refuse("a copy from the CPU", "Copy before the replay, into a tensor that the graph reads")?;
    }
    image.read_host(|bytes| state::with(|queue| queue.upload(address, bytes)))
}

/// Reads a tensor of the device into one of the CPU, or by way of it into another device's.
fn download(src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    if dst.is_cpu() && src.dtype()? == dst.dtype()? && src.is_dense() && same_layout(src, dst) {
        let address = src.address();
        dst.write_host(|bytes| state::with(|queue| queue.download(address, bytes)))?;
        return index_errors::check();
    }
    dst.copy_from(&to_host(src)?)
}

/// A copy on the CPU with the same sizes and strides, gaps included.
///
/// # Errors
/// `Device`, `Gone` or `OutOfMemory` from the queue; `Torch` where a call into libtorch fails.
pub fn to_host(src: &Tensor) -> Result<Tensor, Error> {
    let host = Tensor::empty_cpu(&src.sizes(), &src.strides(), src.dtype()?)?;
    if host.numel() > 0 {
        let address = src.address();
        host.write_host(|bytes| state::with(|queue| queue.download(address, bytes)))?;
        index_errors::check()?;
    }
    Ok(host)
}

/// A copy on the device.
///
/// # Errors
/// `Device`, `Gone` or `OutOfMemory` from the queue; `Torch` where a call into libtorch fails.
pub fn to_device(src: &Tensor) -> Result<Tensor, Error> {
    let made = src.empty_like(src.dtype()?)?;
    copy(src, &made)?;
    Ok(made)
}

/// The tensor itself where it is contiguous, else a contiguous copy.
///
/// # Errors
/// `Device`, `Gone` or `OutOfMemory` from the queue.
pub fn contiguous(tensor: &Tensor) -> Result<Tensor, Error> {
    if tensor.is_contiguous() {
        return tensor.share();
    }
    let made = Tensor::empty(&tensor.sizes(), tensor.dtype()?)?;
    copy(tensor, &made)?;
    Ok(made)
}

/// Fills a tensor with copies of one element's bytes; one byte stands for an element of such bytes.
///
/// # Errors
/// `NoKernel` for too many dimensions; `Device`, `Gone` or `OutOfMemory` from the queue.
pub fn fill(tensor: &Tensor, element: &[u8]) -> Result<(), Error> {
    let (bytes, size) = (tensor.span_bytes()?, tensor.dtype()?.bytes() as usize);
    if bytes == 0 {
        return Ok(());
    }
    let uniform = element.iter().all(|byte| *byte == element[0]);
    let word = match *element {
        [a] => Some([a; 4]),
        [a, b] => Some([a, b, a, b]),
        [a, b, c, d] => Some([a, b, c, d]),
        [a, ..] if uniform => Some([a; 4]),
        _ => None,
    };
    let Some(word) = word.filter(|_| tensor.is_dense()) else {
        return if element.len() == size {
            fill_places(tensor, element)
        } else {
            fill_places(tensor, &vec![element[0]; size])
        };
    };
    let address = tensor.address();
    // Blocks start at whole words, so only views of small elements do not; the odd end goes as an upload.
    let whole = if address.is_multiple_of(4) { bytes & !3 } else { 0 };
    let pattern: Vec<u8> = word.into_iter().cycle().take((bytes - whole) as usize).collect();
    run(|queue| {
        wave32_ops::fill_words(queue, address, whole, u32::from_le_bytes(word))?;
        if pattern.is_empty() { Ok(()) } else { Ok(queue.upload(address + whole, &pattern)?) }
    })
}

/// Element by element: gaps are kept, and a place that several elements share is written once.
fn fill_places(tensor: &Tensor, element: &[u8]) -> Result<(), Error> {
    let plain = lanes(tensor)?;
    let wide = element.len().div_ceil(8);
    let rank = tensor.sizes().len();
    let mut sizes: SmallVec<[u64; 8]> = plain.sizes()[..rank].iter().copied().collect();
    for (size, &stride) in sizes.iter_mut().zip(plain.strides()) {
        *size = if stride == 0 { 1 } else { *size };
    }
    for (at, part) in element.chunks(8).enumerate().take(wide) {
        let mut raw = [0; 8];
        raw[..part.len()].copy_from_slice(part);
        let address = plain.address + 8 * at as u64;
        let view = View::new(address, plain.dtype, &sizes, &plain.strides()[..rank])?;
        let bits = wave32_ops::Number::Int(i64::from_le_bytes(raw));
        run(|queue| wave32_ops::fill(queue, &view, bits))?;
    }
    Ok(())
}
