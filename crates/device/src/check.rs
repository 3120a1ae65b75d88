//! What every device checks of a launch before a driver sees it.

use crate::DeviceError;
use wave32_solve::{Binding, DeviceCaps, Launch};

/// That a kernel of `params` words and `buffers` buffers can be launched so on a device of these capabilities.
///
/// x may be larger than the device's limit: it is cut.
///
/// # Errors
/// `Misuse` where the launch contradicts the kernel; `Unsupported` past the device's limits.
pub fn launch(launch: &Launch, params: u32, buffers: u32, caps: &DeviceCaps) -> Result<(), DeviceError> {
    let name = &launch.kernel;
    let (given_params, given_buffers) = (launch.params.len(), launch.bindings.len());
    if given_params != params as usize || given_buffers != buffers as usize || given_params == 0 {
        return Err(DeviceError::Misuse(format!(
            "kernel `{name}` takes {params} params (at least 1) and {buffers} buffers, the plan gives {given_params} and {given_buffers}"
        )));
    }
    let [x, y, z] = launch.grid;
    if x == 0 || y == 0 || z == 0 || launch.params[0].checked_add(x).is_none() {
        let first = launch.params[0];
        let text = format!("kernel `{name}`: a grid of {x}x{y}x{z} workgroups from {first} cannot be");
        return Err(DeviceError::Misuse(text));
    }
    if y > caps.max_groups[1] || z > caps.max_groups[2] {
        let [_, most_y, most_z] = caps.max_groups;
        let text =
            format!("kernel `{name}`: a grid of {x}x{y}x{z}, it launches {most_y} in y, {most_z} in z");
        return Err(DeviceError::Unsupported(text));
    }
    if let Some(binding) = launch.bindings.iter().find(|binding| binding.size > caps.max_range) {
        let (size, most) = (binding.size, caps.max_range);
        let text = format!("kernel `{name}`: a binding of {size} bytes, it binds {most} at most");
        return Err(DeviceError::Unsupported(text));
    }
    Ok(())
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
/// `Misuse` where it is not.
pub fn operand<T>(launch: &Launch, binding: &Binding, found: Option<T>) -> Result<T, DeviceError> {
    let text = || format!("kernel `{}`, operand {:?}: it is not bound", launch.kernel, binding.role);
    found.ok_or_else(|| DeviceError::Misuse(text()))
}

/// That `len` bytes from `offset` lie in a buffer of `bytes` bytes.
///
/// # Errors
/// `Misuse`.
pub fn range(offset: u64, len: usize, bytes: u64) -> Result<(), DeviceError> {
    match offset.checked_add(len as u64).filter(|&end| end <= bytes) {
        Some(_) => Ok(()),
        None => {
            let text = format!("bytes {offset}.. of length {len} are not all in a buffer of {bytes} bytes");
            Err(DeviceError::Misuse(text))
        }
    }
}
