//! Code objects: ELF files of the AMDGPU ABI ("Code Object", LLVM's AMDGPU guide), for loading without a runtime.

use crate::{DESCRIPTOR_BYTES, Descriptor, HeapMemory, Stop};
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSegment as _, ObjectSymbol as _};
use std::collections::BTreeMap;
use wave32_isa::Target;

/// A code object, read.
#[derive(Debug, Clone)]
pub struct CodeObject {
    /// The card it is for.
    pub target: Target,
    /// Kernels by name, and where their descriptors lie from the object's base.
    pub kernels: BTreeMap<String, (Descriptor, u64)>,
    /// Other symbols: device variables.
    pub variables: BTreeMap<String, u64>,
    segments: Vec<(u64, Vec<u8>)>,
    bytes: u64,
    relocations: Vec<(u64, u64)>,
}

/// A symbol type of code object v2: a kernel, without a descriptor symbol of its own.
const STT_AMDGPU_HSA_KERNEL: u8 = 10;
/// Of a code object in memory: far more than any has, and little enough to be had.
const MAX_BYTES: u64 = 1 << 28;
// What the dynamic linker has to do with addresses.
const R_AMDGPU_ABS64: u32 = 3;
const R_AMDGPU_RELATIVE64: u32 = 13;

impl CodeObject {
    /// Reads an ELF file.
    ///
    /// # Errors
    /// [`Stop::Dispatch`] with the reason: no ELF of the AMDGPU, another card's, contradictory.
    pub fn parse(elf: &[u8]) -> Result<Self, Stop> {
        let refuse = |reason: String| Stop::Dispatch { reason };
        let file =
            ElfFile64::<LittleEndian>::parse(elf).map_err(|e| refuse(format!("no code object: {e}")))?;
        let header = file.elf_header();
        if header.e_machine.get(LittleEndian) != object::elf::EM_AMDGPU {
            return Err(refuse("an ELF file, but not for AMD GPUs".into()));
        }
        let machine = header.e_flags.get(LittleEndian).0 & 0xff;
        let target = wave32_cards::targets::TARGETS.iter().find(|target| u32::from(target.elf) == machine);
        let target = target.and_then(|target| Target::named(target.name)).ok_or_else(|| {
            let name = target.map_or_else(|| format!("machine {machine:#x}"), |target| target.name.into());
            refuse(format!("code for {name}, not for gfx1010 to gfx1012"))
        })?;
        let mut segments = Vec::new();
        let mut bytes = 0;
        for segment in file.segments() {
            let data = segment.data().map_err(|e| refuse(format!("a segment is cut off: {e}")))?;
            let size = segment.size().max(data.len() as u64);
            let end = segment.address().checked_add(size).filter(|end| *end <= MAX_BYTES);
            bytes = end.ok_or_else(|| refuse("a segment that is too large".into()))?.max(bytes);
            segments.push((segment.address(), data.to_vec()));
        }
        let mut object = Self {
            target,
            kernels: BTreeMap::new(),
            variables: BTreeMap::new(),
            segments,
            bytes,
            relocations: Vec::new(),
        };
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let (Ok(name), true) = (symbol.name(), symbol.is_definition()) else { continue };
            let at = symbol.address();
            let old = symbol.elf_symbol().st_type().0 == STT_AMDGPU_HSA_KERNEL;
            if let Some(kernel) = name.strip_suffix(".kd").or(old.then_some(name)) {
                let descriptor = Descriptor::parse(&object.bytes_at(at, DESCRIPTOR_BYTES))?;
                object.kernels.insert(kernel.to_string(), (descriptor, at));
            } else if symbol.kind() == object::SymbolKind::Data {
                object.variables.insert(name.to_string(), at);
            }
        }
        let symbols: Vec<u64> = file.dynamic_symbols().map(|s| s.address()).collect();
        for (at, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let object::RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            let addend = relocation.addend() as u64;
            let value = match (r_type.0, relocation.target()) {
                (R_AMDGPU_RELATIVE64, _) => addend,
                // The null symbol is not among the symbols listed.
                (R_AMDGPU_ABS64, object::RelocationTarget::Symbol(index)) => {
                    let symbol = index.0.checked_sub(1).and_then(|i| symbols.get(i));
                    symbol.ok_or_else(|| refuse("a relocation names no symbol".into()))?.wrapping_add(addend)
                }
                _ => return Err(refuse(format!("relocation type {} is not known", r_type.0))),
            };
            if at.checked_add(8).is_none_or(|end| end > bytes) {
                return Err(refuse(format!("a relocation at {at:#x}, outside the object")));
            }
            object.relocations.push((at, value));
        }
        Ok(object)
    }

    fn bytes_at(&self, at: u64, count: usize) -> Vec<u8> {
        let within = |(base, data): &(u64, Vec<u8>)| {
            let from = usize::try_from(at.checked_sub(*base)?).ok()?;
            data.get(from..)?.get(..count).map(<[u8]>::to_vec)
        };
        self.segments.iter().find_map(within).unwrap_or_default()
    }

    /// Puts it into memory; returns its base, which addresses of kernels and variables count from.
    pub fn load(&self, memory: &mut HeapMemory) -> u64 {
        let base = memory.alloc(self.bytes.max(1));
        for (at, data) in &self.segments {
            memory.store(base + at, data);
        }
        for (at, value) in &self.relocations {
            memory.store(base + at, &base.wrapping_add(*value).to_le_bytes());
        }
        base
    }
}
