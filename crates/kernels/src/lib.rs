//! The compiled kernels: SPIR-V for Vulkan and one ELF code object per gfx target for HIP.
//!
//! The build script makes them from `kernels/` (docs/kernels.md tells how) and this crate embeds them.
//! What a kernel needs to be launched (threads, buffers, parameter words) is in
//! `wave32_params::variants`; its entry point is `main` in SPIR-V and the variant's name in a code object.
#![forbid(unsafe_code)]

pub mod sibling;

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};
use wave32_cards::targets::{code_of, dot_code_of};

/// Why there is no code object for a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no kernels for {target} in this build: {reason}")]
pub struct Missing {
    /// The target asked for.
    pub target: String,
    /// What to know about it: the compiler was missing, or which targets there are.
    pub reason: &'static str,
}

/// Aligned for what reads it: SPIR-V is 32-bit words, ELF headers want 8 bytes.
const ALIGNMENT: usize = 8;

/// Zeros that stay for the program's life, aligned.
fn room(length: usize) -> &'static mut [u8] {
    let room = vec![0; length + ALIGNMENT].leak();
    let skip = room.as_ptr().align_offset(ALIGNMENT);
    &mut room[skip..skip + length]
}

/// Embedded bytes, compressed by zstd until somebody wants them.
struct Packed {
    small: &'static [u8],
    length: usize,
    bytes: OnceLock<&'static [u8]>,
}

impl Packed {
    const fn new(small: &'static [u8], length: usize) -> Self {
        Self { small, length, bytes: OnceLock::new() }
    }

    fn bytes(&self) -> &'static [u8] {
        self.bytes.get_or_init(|| {
            let room = room(self.length);
            let found = zstd::bulk::decompress_to_buffer(self.small, room);
            assert_eq!(found.ok(), Some(self.length), "what the build compressed");
            room
        })
    }
}

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The SPIR-V 1.3 module of the variant called `name`: little-endian words, at an address divisible by 4.
pub fn spirv(name: &str) -> Option<&'static [u8]> {
    MODULES.binary_search_by_key(&name, |(n, ..)| n).ok().map(|index| module(MODULES[index]))
}

fn module((_, source, start, length): (&str, usize, usize, usize)) -> &'static [u8] {
    &SOURCES[source].bytes()[start..start + length]
}

/// Every variant's name with its SPIR-V, sorted by name.
pub fn modules() -> impl ExactSizeIterator<Item = (&'static str, &'static [u8])> {
    MODULES.iter().map(|found| (found.0, module(*found)))
}

/// The code objects (ELF, version 4) that hold all variants for `target`, e.g. `gfx1010`: one, and one more with dot products where the
/// first is code of a target without them.
///
/// # Errors
/// [`Missing`] where this build has none for it, with the reason.
pub fn code_objects(target: &str) -> Result<Vec<&'static [u8]>, Missing> {
    let missing = || Missing { target: target.to_string(), reason: LEFT_OUT };
    let target = TARGETS.iter().find(|name| **name == target).ok_or_else(missing)?;
    let first = code_of(target);
    let second = dot_code_of(target).filter(|second| *second != first);
    let sources = [first].into_iter().chain(second);
    sources.map(|source| code_object(source, target).ok_or_else(missing)).collect()
}

/// The code object of `source`, under the name of `target`, which runs it too.
fn code_object(source: &'static str, target: &'static str) -> Option<&'static [u8]> {
    let (_, code) = CODE_OBJECTS.iter().find(|(name, _)| *name == source)?;
    let code = code.bytes();
    if source == target {
        return Some(code);
    }
    // The build embeds what siblings share once.
    static RENAMED: Mutex<BTreeMap<[&str; 2], &[u8]>> = Mutex::new(BTreeMap::new());
    let mut renamed = RENAMED.lock().unwrap_or_else(|e| e.into_inner());
    Some(renamed.entry([source, target]).or_insert_with(|| {
        let place = room(code.len());
        place.copy_from_slice(code);
        sibling::retarget(place, source, target).expect("the build made this code object for its target");
        place
    }))
}

/// The gfx targets this build has code objects for; empty where it was built without clang.
pub fn targets() -> &'static [&'static str] {
    TARGETS
}
