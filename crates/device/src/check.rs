//! What every device checks of a launch before a driver sees it.

use crate::DeviceError;
use crate::queue::{MAX_ARGS, MAX_PARAMS};
use wave32_solve::{Binding, DeviceCaps, Launch};

/// A launch as a queue gets it.
#[derive(Debug, Clone, Copy)]
pub struct LaunchShape<'a> {
    /// The kernel's name.
    pub kernel: &'a str,
    /// Workgroups along x, y, z.
    pub grid: [u32; 3],
    /// The first workgroup's x index, if there are parameters.
    pub first: Option<u32>,
    /// Parameters given.
    pub params: usize,
    /// Buffers given.
    pub buffers: usize,
}

impl LaunchShape<'_> {
    /// That a kernel of `params` parameters and `buffers` buffers can be launched so on a device of these capabilities.
    ///
    /// x may be larger than the device's limit: it is cut.
    ///
    /// # Errors
    /// `Misuse` where the launch contradicts the kernel; `Unsupported` past the device's limits.
    pub fn check(&self, params: u32, buffers: u32, caps: &DeviceCaps) -> Result<(), DeviceError> {
        let name = self.kernel;
        if self.params != params as usize
            || self.buffers != buffers as usize
            || self.params > MAX_PARAMS
            || self.buffers > MAX_ARGS
        {
            return Err(DeviceError::Misuse(format!(
                "kernel `{name}` takes {params} params (1 to {MAX_PARAMS}) and {buffers} buffers (at most {MAX_ARGS}), it was given {} and {}",
                self.params, self.buffers
            )));
        }
        let [x, y, z] = self.grid;
        let last = self.first.and_then(|first| first.checked_add(x));
        if x == 0 || y == 0 || z == 0 || last.is_none() {
            let first = self.first.map_or("none".into(), |first| first.to_string());
            let text = format!("kernel `{name}`: a grid of {x}x{y}x{z} workgroups from {first} cannot be");
            return Err(DeviceError::Misuse(text));
        }
        if y > caps.max_groups[1] || z > caps.max_groups[2] {
            let [_, most_y, most_z] = caps.max_groups;
            let text = format!(
                "kernel `{name}`: a grid of {x}x{y}x{z}, the device launches {most_y} in y, {most_z} in z"
            );
            return Err(DeviceError::Unsupported(text));
        }
        Ok(())
    }
}

/// As [`LaunchShape::check`], of a plan's launch, whose bindings are not placed yet.
///
/// # Errors
/// The same; `Unsupported` for a binding past the device's limit.
pub fn launch(launch: &Launch, params: u32, buffers: u32, caps: &DeviceCaps) -> Result<(), DeviceError> {
    let shape = LaunchShape {
        kernel: &launch.kernel,
        grid: launch.grid,
        first: launch.params.first().copied(),
        params: launch.params.len(),
        buffers: launch.bindings.len(),
    };
    shape.check(params, buffers, caps)?;
    match launch.bindings.iter().find(|binding| binding.size > caps.max_range) {
        Some(binding) => Err(too_long(&launch.kernel, binding.size, caps)),
        None => Ok(()),
    }
}

fn too_long(kernel: &str, bytes: u64, caps: &DeviceCaps) -> DeviceError {
    let most = caps.max_range;
    DeviceError::Unsupported(format!(
        "kernel `{kernel}`: a binding of {bytes} bytes, the device binds {most} at most"
    ))
}

/// That a device of these capabilities can bind `bytes` from byte `at` of its memory.
///
/// # Errors
/// `Misuse` for no bytes or a crooked start; `Unsupported` past the device's limit.
pub fn arg(kernel: &str, at: u64, bytes: u64, caps: &DeviceCaps) -> Result<(), DeviceError> {
    let alignment = caps.offset_alignment;
    if bytes == 0 || !at.is_multiple_of(alignment) {
        let text = format!(
            "kernel `{kernel}`: a binding of {bytes} bytes at {at:#x}, which is to be a multiple of {alignment}"
        );
        return Err(DeviceError::Misuse(text));
    }
    if bytes > caps.max_range { Err(too_long(kernel, bytes, caps)) } else { Ok(()) }
}

/// The first byte of a binding in a buffer of `bytes` bytes whose operand starts at byte `start`.
///
/// # Errors
/// `Misuse` where the range is not all in the buffer, empty, or not aligned as the device wants it.
pub fn binding(
    launch: &Launch,
    binding: &Binding,
    start: u64,
    bytes: u64,
    caps: &DeviceCaps,
) -> Result<u64, DeviceError> {
    let misuse = |what: String| {
        DeviceError::Misuse(format!("kernel `{}`, operand {:?}: {what}", launch.kernel, binding.role))
    };
    let offset = start.checked_add(binding.offset);
    let end = offset.and_then(|offset| offset.checked_add(binding.size));
    let offset = match (offset, end) {
        (Some(offset), Some(end)) if end <= bytes && binding.size > 0 => offset,
        _ => {
            return Err(misuse(format!(
                "{} bytes from {start} + {} are not in a buffer of {bytes} bytes",
                binding.size, binding.offset
            )));
        }
    };
    let alignment = caps.offset_alignment;
    if !offset.is_multiple_of(alignment) {
        return Err(misuse(format!("offset {offset} is not a multiple of {alignment}")));
    }
    Ok(offset)
}

/// That the operand a launch binds is there.
///
/// # Errors
/// `Misuse` where the operand was not given.
pub fn operand<T>(launch: &Launch, binding: &Binding, found: Option<T>) -> Result<T, DeviceError> {
    let text = || format!("kernel `{}`, operand {:?}: it is not bound", launch.kernel, binding.role);
    found.ok_or_else(|| DeviceError::Misuse(text()))
}

/// That `len` bytes from `offset` lie in a buffer of `bytes` bytes.
///
/// # Errors
/// `Misuse` where the range is not within `bytes`.
pub fn range(offset: u64, len: usize, bytes: u64) -> Result<(), DeviceError> {
    match offset.checked_add(len as u64).filter(|&end| end <= bytes) {
        Some(_) => Ok(()),
        None => {
            let text = format!("bytes {offset}.. of length {len} are not all in a buffer of {bytes} bytes");
            Err(DeviceError::Misuse(text))
        }
    }
}
