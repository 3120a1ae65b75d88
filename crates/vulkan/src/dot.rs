//! `VK_VALVE_shader_mixed_float_dot_product`, which `ash` does not have yet (docs.vulkan.org, revision 1). `wave32-kernelc` includes this file:
//! this crate is built with what that one makes.

use ash::vk;
use std::ffi::{CStr, c_void};
use std::ptr;

/// `VkPhysicalDeviceShaderMixedFloatDotProductFeaturesVALVE`.
#[repr(C)]
pub(crate) struct MixedFloatDotProductFeatures {
    pub(crate) s_type: vk::StructureType,
    pub(crate) p_next: *mut c_void,
    /// `shaderMixedFloatDotProductFloat16AccFloat32`.
    pub(crate) float16_with_float32_sum: vk::Bool32,
    /// Sums in f16, bf16, and numbers of 8 bits.
    pub(crate) others: [vk::Bool32; 3],
}

impl MixedFloatDotProductFeatures {
    pub(crate) const EXTENSION: &'static CStr = c"VK_VALVE_shader_mixed_float_dot_product";
    /// Extension 674 of the registry: its first structure.
    const TYPE: i32 = 1_000_673_000;
}

impl Default for MixedFloatDotProductFeatures {
    fn default() -> Self {
        Self {
            s_type: vk::StructureType::from_raw(Self::TYPE),
            p_next: ptr::null_mut(),
            float16_with_float32_sum: vk::FALSE,
            others: [vk::FALSE; 3],
        }
    }
}

// SAFETY: the specification lets it follow VkPhysicalDeviceFeatures2, and it begins as every such structure does.
unsafe impl vk::ExtendsPhysicalDeviceFeatures2 for MixedFloatDotProductFeatures {}
// SAFETY: as above, VkDeviceCreateInfo.
unsafe impl vk::ExtendsDeviceCreateInfo for MixedFloatDotProductFeatures {}
