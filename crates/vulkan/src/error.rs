//! From `VkResult` and the allocator's errors to [`DeviceError`].

use ash::vk;
use gpu_allocator::AllocationError;
use wave32_device::DeviceError;

/// The typed error of a failed driver call outside of memory allocation.
pub(crate) fn driver(call: &'static str, code: vk::Result) -> DeviceError {
    match code {
        vk::Result::ERROR_DEVICE_LOST => DeviceError::Lost(call.into()),
        vk::Result::ERROR_OUT_OF_HOST_MEMORY | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => {
            DeviceError::OutOfMemory { requested: 0, in_use: 0 }
        }
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => DeviceError::Unavailable(
            "no Vulkan driver works here; install one (Mesa's `mesa-vulkan-drivers`)".into(),
        ),
        code => DeviceError::Driver { call, code: format!("{code:?}") },
    }
}

/// As [`driver`], for use in `map_err`.
pub(crate) fn at(call: &'static str) -> impl FnOnce(vk::Result) -> DeviceError {
    move |code| driver(call, code)
}

/// The typed error of an allocation of `requested` bytes while `in_use` are held.
pub(crate) fn memory(error: &AllocationError, requested: u64, in_use: u64) -> DeviceError {
    match error {
        AllocationError::OutOfMemory | AllocationError::FailedToMap(_) => {
            DeviceError::OutOfMemory { requested, in_use }
        }
        other => DeviceError::Driver { call: "vkAllocateMemory", code: other.to_string() },
    }
}
