//! Kernels' names, from the symbols of code objects as they lie in the card's memory.
//!
//! The runtime loads a code object's segments, the first of which begins with the ELF header and holds the dynamic
//! symbols; a kernel's descriptor is the symbol `<kernel>.kd`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use wave32_exec::Memory;

const PAGE: u64 = 4096;
/// How far a descriptor lies from its ELF header at most: the first segment of a code object of 64 MiB.
const MAX_PAGES: u64 = 1 << 14;
const LONGEST_NAME: usize = 4096;
/// A code object with more is none of a compiler's.
const MAX_SYMBOLS: u32 = 1 << 16;
const PT_DYNAMIC: u32 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;

/// Names by the descriptors' addresses, as long as no memory comes or goes.
#[derive(Debug, Default)]
pub struct Names {
    known: Mutex<(u64, HashMap<u64, String>)>,
}

impl Names {
    /// The name of the kernel whose descriptor lies at `descriptor`; empty if it has none.
    pub fn of<M: Memory>(&self, memory: &M, descriptor: u64) -> String {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = memory.generation();
        if known.0 != generation {
            *known = (generation, HashMap::new());
        }
        known.1.entry(descriptor).or_insert_with(|| find(memory, descriptor).unwrap_or_default()).clone()
    }
}

fn bytes<M: Memory, const N: usize>(memory: &M, address: u64) -> Option<[u8; N]> {
    let region = memory.region(address).filter(|region| region.holds(address, N as u64))?;
    let mut out = [0; N];
    memory.read(&region, address, &mut out);
    Some(out)
}

fn word<M: Memory>(memory: &M, address: u64) -> Option<u32> {
    bytes(memory, address).map(u32::from_le_bytes)
}

fn long<M: Memory>(memory: &M, address: u64) -> Option<u64> {
    bytes(memory, address).map(u64::from_le_bytes)
}

/// Sums of what memory holds wrap: nothing lies there then.
fn find<M: Memory>(memory: &M, descriptor: u64) -> Option<String> {
    let last = descriptor & !(PAGE - 1);
    let base = (0..MAX_PAGES)
        .map_while(|page| last.checked_sub(page * PAGE))
        .map_while(|base| Some((base, bytes::<M, 4>(memory, base)?)))
        .find(|(_, magic)| magic == b"\x7fELF")?
        .0;
    let at = |offset: u64| base.wrapping_add(offset);
    let (headers, count) = (at(long(memory, base + 32)?), bytes(memory, base + 56).map(u16::from_le_bytes)?);
    let dynamic = (0..u64::from(count))
        .map(|i| headers.wrapping_add(56 * i))
        .find(|header| word(memory, *header) == Some(PT_DYNAMIC))
        .and_then(|header| long(memory, header.wrapping_add(16)))?;
    let tag = |wanted: u64| {
        (0..64)
            .map(|i| at(dynamic).wrapping_add(16 * i))
            .map_while(|entry| Some((long(memory, entry)?, entry)).filter(|(tag, _)| *tag != 0))
            .find(|(tag, _)| *tag == wanted)
            .and_then(|(_, entry)| long(memory, entry.wrapping_add(8)))
    };
    let (symbols, strings) = (at(tag(DT_SYMTAB)?), at(tag(DT_STRTAB)?));
    let symbol_count = word(memory, at(tag(DT_HASH)?).wrapping_add(4))?.min(MAX_SYMBOLS);
    (0..u64::from(symbol_count)).map(|i| symbols.wrapping_add(24 * i)).find_map(|symbol| {
        if at(long(memory, symbol.wrapping_add(8))?) != descriptor {
            return None;
        }
        let name = text(memory, strings.wrapping_add(u64::from(word(memory, symbol)?)))?;
        name.strip_suffix(".kd").map(str::to_owned)
    })
}

fn text<M: Memory>(memory: &M, address: u64) -> Option<String> {
    let mut name = Vec::new();
    for i in 0..LONGEST_NAME as u64 {
        match bytes::<M, 1>(memory, address.wrapping_add(i))? {
            [0] => return String::from_utf8(name).ok(),
            [byte] => name.push(byte),
        }
    }
    None
}
