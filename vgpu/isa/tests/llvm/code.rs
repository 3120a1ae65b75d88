//! Whole code objects held against LLVM: every instruction of every function.

use std::collections::{BTreeSet, HashMap};

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use wave32_isa::{DecodeError, Opcode, Target, decode};

/// Machine code for one target.
pub struct Code {
    /// For messages.
    pub name: String,
    pub target: Target,
    pub wave64: bool,
    pub words: Vec<u32>,
}

/// What was met.
#[derive(Default)]
pub struct Met {
    pub instructions: usize,
    pub graphics: usize,
    pub ops: BTreeSet<Opcode>,
}

impl Met {
    /// Says how much of the table was met.
    pub fn print(&self, what: &str) {
        println!(
            "{what}: {} different instructions agree with LLVM ({} of graphics left out); {} of the table's {} operations",
            self.instructions,
            self.graphics,
            self.ops.len(),
            Opcode::ALL.len()
        );
    }
}

pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four"))).collect()
}

/// The functions of an AMDGPU ELF. Kernels say in their descriptor (`.kd`) whether they are wave32.
pub fn functions(name: &str, elf: &[u8]) -> Vec<Code> {
    let file = object::File::parse(elf).unwrap_or_else(|error| panic!("{name}: {error}"));
    let object::FileFlags::Elf { e_flags, .. } = file.flags() else { panic!("{name}: no ELF flags") };
    let target = match e_flags.0 & 0xff {
        0x33 => Target::Gfx1010,
        0x34 => Target::Gfx1011,
        0x35 => Target::Gfx1012,
        other => panic!("{name}: machine {other:#x} is no gfx10.1"),
    };
    let data = |symbol: &object::Symbol<'_, '_>| {
        let section = file.section_by_index(symbol.section_index()?).ok()?;
        let at = (symbol.address() - section.address()) as usize;
        section.data().ok()?.get(at..at + symbol.size() as usize).map(<[u8]>::to_vec)
    };
    let named: HashMap<_, _> = file.symbols().filter_map(|s| Some((s.name().ok()?.to_owned(), s))).collect();
    let mut found = Vec::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0) {
        let function = symbol.name().expect("a name");
        let descriptor = named.get(&format!("{function}.kd")).and_then(&data);
        // KERNEL_CODE_PROPERTIES, ENABLE_WAVEFRONT_SIZE32.
        let wave64 = descriptor.is_some_and(|bytes| bytes[57] & 4 == 0);
        let words = words(&data(&symbol).expect("its bytes"));
        found.push(Code { name: format!("{name}: {function}"), target, wave64, words });
    }
    found
}

/// Our text, and the first place where the encoding stands.
type Ours = (String, String);

/// Decodes all and compares each different encoding with LLVM's text.
pub fn compare(codes: &[Code]) -> Met {
    let mut met = Met::default();
    let mut seen: HashMap<(&str, bool), HashMap<Vec<u8>, Ours>> = HashMap::new();
    for code in codes {
        let cpu = match code.target {
            Target::Gfx1010 => "gfx1010",
            Target::Gfx1011 => "gfx1011",
            Target::Gfx1012 => "gfx1012",
        };
        let seen = seen.entry((cpu, code.wave64)).or_default();
        let mut at = 0;
        while at < code.words.len() {
            let rest = &code.words[at..];
            match decode(rest, code.target, code.wave64) {
                Ok(inst) => {
                    let size = usize::from(inst.len / 4);
                    let bytes = rest[..size].iter().flat_map(|word| word.to_le_bytes()).collect();
                    let place = || (inst.text(), format!("{} + {:#x}", code.name, 4 * at));
                    seen.entry(bytes).or_insert_with(place);
                    met.ops.insert(inst.op);
                    at += size;
                }
                // NSA: how many dwords of addresses follow.
                Err(DecodeError::Graphics("MIMG")) => {
                    met.graphics += 1;
                    at += 2 + (rest[0] >> 1 & 3) as usize;
                }
                Err(error) => {
                    panic!("{} + {:#x}: {error}: {:08x?}", code.name, 4 * at, &rest[..rest.len().min(3)])
                }
            }
        }
    }
    for ((cpu, wave64), seen) in seen {
        let (encodings, ours): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
        met.instructions += encodings.len();
        for ((bytes, (ours, place)), theirs) in
            encodings.iter().zip(ours).zip(crate::oracle::disassemble(&encodings, cpu, wave64))
        {
            assert_eq!(Some(&ours), theirs.as_ref(), "{place}: {bytes:02x?}");
        }
    }
    met
}
