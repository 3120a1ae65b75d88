//! `VK_VALVE_shader_mixed_float_dot_product`, which `ash` does not have yet (docs.vulkan.org, revision 1).

use ash::vk;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr;

/// `VkPhysicalDeviceShaderMixedFloatDotProductFeaturesVALVE`.
#[repr(C)]
pub(crate) struct MixedFloatDotProductFeatures<'a> {
    s_type: vk::StructureType,
    p_next: *mut c_void,
    /// `shaderMixedFloatDotProductFloat16AccFloat32`.
    pub(crate) float16_with_float32_sum: vk::Bool32,
    float16_with_float16_sum: vk::Bool32,
    bfloat16: vk::Bool32,
    float8: vk::Bool32,
    chain: PhantomData<&'a ()>,
}

impl MixedFloatDotProductFeatures<'_> {
    /// As wave32 asks for it.
    pub(crate) fn of_float16() -> Self {
        Self { float16_with_float32_sum: vk::TRUE, ..Self::default() }
    }

    pub(crate) const EXTENSION: &'static CStr = c"VK_VALVE_shader_mixed_float_dot_product";
    /// Extension 674 of the registry: its first structure.
    const TYPE: i32 = 1_000_673_000;
}

impl Default for MixedFloatDotProductFeatures<'_> {
    fn default() -> Self {
        Self {
            s_type: vk::StructureType::from_raw(Self::TYPE),
            p_next: ptr::null_mut(),
            float16_with_float32_sum: vk::FALSE,
            float16_with_float16_sum: vk::FALSE,
            bfloat16: vk::FALSE,
            float8: vk::FALSE,
            chain: PhantomData,
        }
    }
}

// SAFETY: the specification lets it follow VkPhysicalDeviceFeatures2, and it begins as every such structure does.
unsafe impl vk::ExtendsPhysicalDeviceFeatures2 for MixedFloatDotProductFeatures<'_> {}
// SAFETY: as above, VkDeviceCreateInfo.
unsafe impl vk::ExtendsDeviceCreateInfo for MixedFloatDotProductFeatures<'_> {}
