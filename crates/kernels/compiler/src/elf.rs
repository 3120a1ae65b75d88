//! Registers, LDS, spills and code size of the kernels of a gfx code object.
//!
//! The figures are in the object's metadata note, as MessagePack ("User Guide for AMDGPU Backend",
//! LLVM, section "Code Object V4 Metadata"). The note is what a runtime allocates by.

use crate::CompileError;
use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{LittleEndian, Object, ObjectSymbol};
use rmpv::Value;
use std::collections::BTreeMap;

/// One kernel's figures.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelMetadata {
    /// Vector registers.
    pub vgprs: u32,
    /// Scalar registers.
    pub sgprs: u32,
    /// Vector registers spilled to memory.
    pub vgpr_spills: u32,
    /// Scalar registers spilled.
    pub sgpr_spills: u32,
    /// LDS bytes.
    pub lds_bytes: u32,
    /// Scratch bytes a lane.
    pub scratch_bytes: u32,
    /// Bytes of machine code.
    pub code_bytes: u32,
    /// Lanes a wavefront.
    pub wave_size: u32,
    /// Most threads of a workgroup.
    pub max_threads: u32,
    /// Pointer arguments to buffers.
    pub buffers: u32,
    /// 32-bit words of the arguments passed by value.
    pub params: u32,
}

/// NT_AMDGPU_METADATA
const METADATA_NOTE: u32 = 32;

/// The figures of every kernel of the code object `elf`, by kernel name.
///
/// # Errors
/// [`CompileError::ReadBack`] where it is no code object with metadata.
pub fn metadata(elf: &[u8]) -> Result<BTreeMap<String, KernelMetadata>, CompileError> {
    let bad =
        |reason: String| CompileError::ReadBack { what: "a code object's metadata".to_string(), reason };
    let object_error = |e: object::Error| bad(e.to_string());
    let file = ElfFile64::<LittleEndian>::parse(elf).map_err(object_error)?;
    let sizes: BTreeMap<&str, u64> =
        file.symbols().filter_map(|symbol| Some((symbol.name().ok()?, symbol.size()))).collect();
    let header = FileHeader64::<LittleEndian>::parse(elf).map_err(object_error)?;
    let mut kernels = BTreeMap::new();
    for section in header.section_headers(LittleEndian, elf).map_err(object_error)? {
        let Some(mut notes) = section.notes(LittleEndian, elf).map_err(object_error)? else { continue };
        while let Some(note) = notes.next().map_err(object_error)? {
            if note.n_type(LittleEndian).0 != METADATA_NOTE || note.name() != b"AMDGPU" {
                continue;
            }
            let tree = rmpv::decode::read_value(&mut note.desc()).map_err(|e| bad(e.to_string()))?;
            let list = field(&tree, "amdhsa.kernels").and_then(Value::as_array);
            for kernel in list.ok_or_else(|| bad("no amdhsa.kernels".to_string()))? {
                let (name, mut figures) = kernel_metadata(kernel).map_err(bad)?;
                figures.code_bytes = sizes.get(name.as_str()).map_or(0, |&size| size as u32);
                kernels.insert(name, figures);
            }
        }
    }
    if kernels.is_empty() { Err(bad("it has no AMDGPU metadata note".to_string())) } else { Ok(kernels) }
}

fn field<'a>(map: &'a Value, key: &str) -> Option<&'a Value> {
    map.as_map()?.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value)
}

fn kernel_metadata(kernel: &Value) -> Result<(String, KernelMetadata), String> {
    let name = field(kernel, ".name").and_then(Value::as_str).ok_or("a kernel without a .name")?;
    let number = |key: &str| -> Result<u32, String> {
        let value = field(kernel, key).and_then(Value::as_u64).and_then(|v| u32::try_from(v).ok());
        value.ok_or_else(|| format!("{name} has no number {key}"))
    };
    let arguments = field(kernel, ".args").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let of_kind = |kind: &'static str| {
        arguments.iter().filter(move |a| field(a, ".value_kind").and_then(Value::as_str) == Some(kind))
    };
    let size = |a: &Value| field(a, ".size").and_then(Value::as_u64).unwrap_or(0) as u32;
    let figures = KernelMetadata {
        vgprs: number(".vgpr_count")?,
        sgprs: number(".sgpr_count")?,
        vgpr_spills: number(".vgpr_spill_count")?,
        sgpr_spills: number(".sgpr_spill_count")?,
        lds_bytes: number(".group_segment_fixed_size")?,
        scratch_bytes: number(".private_segment_fixed_size")?,
        code_bytes: 0,
        wave_size: number(".wavefront_size")?,
        max_threads: number(".max_flat_workgroup_size")?,
        buffers: of_kind("global_buffer").count() as u32,
        params: of_kind("by_value").map(size).sum::<u32>() / 4,
    };
    Ok((name.to_string(), figures))
}
