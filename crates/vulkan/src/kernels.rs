//! Where SPIR-V comes from, and what it may ask of a device.

use crate::adapter::Features;
use std::borrow::Cow;
use std::collections::HashMap;

/// A compiled kernel: entry point `main`, storage buffers at set 0 bindings `0..buffers`, push constants
/// of `params` 32-bit words.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The module, in little-endian words.
    pub spirv: Cow<'static, [u8]>,
    /// Threads of a workgroup (x only).
    pub threads: u32,
    /// Storage buffers it binds.
    pub buffers: u32,
    /// 32-bit words it takes; the first is the first workgroup's x index.
    pub params: u32,
}

/// Finds kernels by the variant name that plans carry.
pub trait KernelSource: Send + Sync {
    /// The kernel of that name.
    fn kernel(&self, name: &str) -> Option<Kernel>;
}

impl<F: Fn(&str) -> Option<Kernel> + Send + Sync> KernelSource for F {
    fn kernel(&self, name: &str) -> Option<Kernel> {
        self(name)
    }
}

/// The kernels that come with wave32.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shipped;

impl KernelSource for Shipped {
    fn kernel(&self, name: &str) -> Option<Kernel> {
        let variant = wave32_params::variants::find(name)?;
        let spirv = Cow::Borrowed(wave32_kernels::spirv(name)?);
        Some(Kernel { spirv, threads: variant.threads, buffers: variant.buffers, params: variant.params })
    }
}

/// Words in front of a module's first instruction.
const HEADER: usize = 5;

/// The module's words, if it looks like SPIR-V that this device may be given.
///
/// Giving a driver a module whose capabilities were not enabled is undefined behaviour, so they are
/// read here first.
pub(crate) fn words(spirv: &[u8], features: &Features) -> Result<Vec<u32>, String> {
    const MAGIC: u32 = 0x0723_0203;
    const OP_CAPABILITY: u32 = 17;
    let words: Vec<u32> =
        spirv.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    if words.len() <= HEADER || words[0] != MAGIC || !spirv.len().is_multiple_of(4) {
        return Err("its module is not SPIR-V".into());
    }
    let mut at = HEADER;
    // Capabilities are the first instructions of a module.
    while words.get(at).is_some_and(|word| word & 0xffff == OP_CAPABILITY) {
        let capability = words.get(at + 1).copied().unwrap_or_default();
        if let Some(lacking) = lacks(capability, features) {
            return Err(format!("it needs {lacking}, which the driver does not offer"));
        }
        at += 2;
    }
    Ok(words)
}

/// Bytes of local memory of a module: what its variables of the storage class Workgroup take, which are numbers, vectors and arrays of
/// these. Numbers of instructions: SPIR-V specification, section 3, "Instructions".
pub(crate) fn local_bytes(words: &[u32]) -> u32 {
    const WORKGROUP: u32 = 4;
    let (mut types, mut pointers, mut numbers) = (HashMap::new(), HashMap::new(), HashMap::new());
    let (mut at, mut sum) = (HEADER, 0u32);
    while let Some(first) = words.get(at) {
        let end = at + (first >> 16).max(1) as usize;
        let of = |map: &HashMap<u32, u32>, id: u32| map.get(&id).copied().unwrap_or(0);
        match (first & 0xffff, words.get(at + 1..end).unwrap_or_default()) {
            // OpTypeInt, OpTypeFloat.
            (21 | 22, &[id, bits, ..]) => _ = types.insert(id, bits / 8),
            // OpTypeVector.
            (23, &[id, part, count]) => _ = types.insert(id, of(&types, part).saturating_mul(count)),
            // OpTypeArray, whose length is a constant's id.
            (28, &[id, part, count]) => {
                types.insert(id, of(&types, part).saturating_mul(of(&numbers, count)));
            }
            // OpTypePointer.
            (32, &[id, WORKGROUP, part]) => _ = pointers.insert(id, part),
            // OpConstant.
            (43, &[_, id, value, ..]) => _ = numbers.insert(id, value),
            // OpVariable.
            (59, &[pointer, _, WORKGROUP, ..]) => {
                sum = sum.saturating_add(of(&types, of(&pointers, pointer)));
            }
            _ => {}
        }
        at = end;
    }
    sum
}

/// The name of the feature that a capability needs and the device lacks. Numbers: SPIR-V specification,
/// section 3.31, "Capability".
fn lacks(capability: u32, features: &Features) -> Option<String> {
    let (present, name) = match capability {
        0 | 1 => (true, "Shader"),
        // GroupNonUniform and its kinds, in the order of VkSubgroupFeatureFlagBits.
        61..=68 => (features.subgroup_operations >> (capability - 61) & 1 == 1, "subgroup operations"),
        9 => (features.float16, "shaderFloat16"),
        10 => (features.float64, "shaderFloat64"),
        11 => (features.int64, "shaderInt64"),
        22 => (features.int16, "shaderInt16"),
        39 => (features.int8, "shaderInt8"),
        // VulkanMemoryModel, CooperativeMatrixKHR.
        5345 | 6022 => (features.float16_matrix, "cooperativeMatrix"),
        // DotProductFloat16AccFloat32VALVE.
        6912 => (features.float16_dot, "shaderMixedFloatDotProductFloat16AccFloat32"),
        4448 => (features.storage8, "storageBuffer8BitAccess"),
        4433 => (features.storage16, "storageBuffer16BitAccess"),
        other => return Some(format!("SPIR-V capability {other}")),
    };
    (!present).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(capabilities: &[u32]) -> Vec<u8> {
        let mut words = vec![0x0723_0203, 0x1_0300, 0, 10, 0];
        words.extend(capabilities.iter().flat_map(|&c| [2 << 16 | 17, c]));
        words.extend([3 << 16 | 14, 0, 1]); // OpMemoryModel Logical GLSL450
        words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect()
    }

    #[test]
    fn capabilities_are_held_against_features() {
        let none = Features::default();
        let half = Features { float16: true, storage16: true, ..none };
        assert!(words(&module(&[1]), &none).is_ok_and(|w| w.len() == 10));
        assert!(words(&module(&[1, 9, 4433]), &half).is_ok());
        assert!(words(&module(&[1, 9]), &none).is_err_and(|e| e.contains("shaderFloat16")));
        assert!(words(&module(&[1, 4433]), &none).is_err_and(|e| e.contains("storageBuffer16BitAccess")));
        let ballot = Features { subgroup_operations: 0b1001, ..none };
        assert!(words(&module(&[1, 61, 64]), &ballot).is_ok());
        assert!(words(&module(&[1, 61, 63]), &ballot).is_err_and(|e| e.contains("subgroup")));
        assert!(words(&module(&[1, 10]), &half).is_err_and(|e| e.contains("shaderFloat64")));
        assert!(words(&module(&[1, 12]), &half).is_err_and(|e| e.contains("capability 12")));
    }

    #[test]
    fn local_memory_is_counted() {
        let all = Features {
            float16: true,
            storage16: true,
            float16_matrix: true,
            float16_dot: true,
            subgroup_operations: u32::MAX,
            ..Features::default()
        };
        let of = |name: &str| local_bytes(&words(&Shipped.kernel(name).unwrap().spirv, &all).unwrap());
        // Two slices of both operands.
        assert_eq!(of("igemm_p64x64_f32"), 2 * (64 + 64) * 16 * 4);
        assert_eq!(of("cast_to_half_f16"), 0);
        for variant in wave32_params::variants::all().iter().filter(|v| v.is_matrix()) {
            let (counted, planned) = (of(&variant.name), variant.matrix_lds());
            assert!(variant.source == "pack" || counted <= planned, "{}: {counted}, {planned}", variant.name);
        }
        // No end, and cut off: no panic.
        for bad in [&[0; 9][..], &[0, 0, 0, 0, 0, 9 << 16 | 59, 1, 1, 4]] {
            assert_eq!(local_bytes(bad), 0);
        }
    }

    #[test]
    fn garbage_is_no_module() {
        let good = module(&[1]);
        for bad in [&[][..], &good[..4], &good[..good.len() - 1], &[0; 64]] {
            assert!(words(bad, &Features::default()).is_err(), "{} bytes", bad.len());
        }
        // Cut inside the capability: no panic.
        let _ = words(&good[..24], &Features::default());
    }
}
