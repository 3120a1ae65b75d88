//! Which gfx targets a file has code for: fat binaries, code objects, packed archives, kernel libraries.
//!
//! Only headers are read: of each bundle in a library of gigabytes a few KiB. Formats: clang's
//! `ClangOffloadBundler` documentation (plain and compressed bundles), LLVM `AMDGPUUsage` (the target in an ELF
//! header's flags), and TheRock's `kpack` archives, whose table of contents names the targets.

use crate::system::System;
use object::read::elf::{ElfFile64, FileHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _, ReadCache};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use wave32_cards::targets;

const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const COMPRESSED: &[u8] = b"CCOB";
const PACKED: &[u8] = b"KPAK";
/// Bundles begin at multiples of this in a library.
const ALIGNMENT: u64 = 4096;
/// Read at each bundle's start; its header is some hundred bytes.
const HEADER: u64 = 4096;
/// A bundle's header ends well before this.
const LONGEST_HEADER: usize = 64 << 10;
/// Piece of a search where a bundle does not tell its length.
const PIECE: u64 = 1 << 20;
/// A table of contents is some hundred KiB.
const LONGEST_CONTENTS: u64 = 16 << 20;

/// What a file has code for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeObjects {
    /// Targets, features left out.
    pub targets: BTreeSet<String>,
    /// The code is in `.kpack` archives beside the library, not in it.
    pub packed_elsewhere: bool,
    /// False where reading stopped early: then a target that is missing here may be there.
    pub complete: bool,
}

/// Reads a file's targets; none if it is not readable.
pub fn read(system: &System, path: &str) -> Option<CodeObjects> {
    let mut file = system.open(path)?;
    let mut found = CodeObjects { complete: true, ..CodeObjects::default() };
    let mut start = [0; 24];
    let length = fill(&mut file, 0, &mut start);
    let size = system.size(path)?;
    match &start[..length] {
        s if s.starts_with(b"\x7fELF") => elf(system, file, &mut found),
        s if s.starts_with(BUNDLE) || s.starts_with(COMPRESSED) => {
            walk(system, &mut file, 0, size, &mut found);
        }
        s if s.starts_with(PACKED) => packed(system, &mut file, size, &mut found),
        _ => {}
    }
    Some(found)
}

fn elf(system: &System, file: File, found: &mut CodeObjects) {
    let cache = ReadCache::new(file);
    let Ok(elf) = ElfFile64::<LittleEndian, _>::parse(&cache) else {
        return;
    };
    let header = elf.elf_header();
    if header.e_machine(LittleEndian) == object::elf::EM_AMDGPU {
        found.targets.extend(targets::by_elf(header.e_flags(LittleEndian).0).map(String::from));
        return;
    }
    found.packed_elsewhere = elf.section_by_name(".rocm_kpack_ref").is_some();
    // `hipFatBinSegment` only points into `.hip_fatbin`.
    let range = elf.section_by_name(".hip_fatbin").and_then(|section| section.file_range());
    drop(elf);
    if let Some((offset, size)) = range {
        walk(system, &mut cache.into_inner(), offset, offset.saturating_add(size), found);
    }
}

/// Visits each bundle between two offsets.
fn walk(system: &System, file: &mut File, start: u64, end: u64, found: &mut CodeObjects) {
    let mut at = start;
    while at < end {
        if !system.grant(HEADER) {
            found.complete = false;
            return;
        }
        let mut head = vec![0; HEADER.min(end - at) as usize];
        let length = fill(file, at, &mut head);
        head.truncate(length);
        let next = if head.starts_with(BUNDLE) {
            plain(&head, found).map(|length| at.saturating_add(length))
        } else if is_compressed(&head) {
            compressed(system, file, at, &head, found).map(|length| at.saturating_add(length))
        } else {
            None
        };
        at = match next {
            // Zeroes and padding up to the next bundle.
            Some(next) => match (next.max(at + 1) - start).checked_next_multiple_of(ALIGNMENT) {
                Some(next) => start.saturating_add(next),
                // A header that tells of more than any file has.
                None => return,
            },
            None => match search(system, file, at + 1, end, found) {
                Some(next) => next,
                None => return,
            },
        };
    }
}

/// Takes the targets from a bundle's header; returns where its last entry ends.
fn plain(head: &[u8], found: &mut CodeObjects) -> Option<u64> {
    let mut at = BUNDLE.len();
    let number = |at: &mut usize| {
        let bytes = head.get(*at..*at + 8)?;
        *at += 8;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let entries = number(&mut at)?;
    let mut end = 0u64;
    for _ in 0..entries.min(1024) {
        let (offset, size, length) = (number(&mut at)?, number(&mut at)?, number(&mut at)?);
        let name = head.get(at..at.checked_add(usize::try_from(length).ok()?)?)?;
        at += name.len();
        end = end.max(offset.checked_add(size)?);
        // `hipv4-amdgcn-amd-amdhsa--gfx1010:xnack-`; the host's entry names no target.
        found.targets.extend(targets::all_in(&String::from_utf8_lossy(name)).into_iter().map(String::from));
    }
    Some(end)
}

/// Version 1 to 3 and zlib or zstd, so that four letters in some data are not taken for a bundle.
fn is_compressed(head: &[u8]) -> bool {
    head.starts_with(COMPRESSED) && matches!(head.get(4..8), Some([1..=3, 0, 0 | 1, 0]))
}

/// Takes the targets from the beginning of what is compressed; returns the bundle's length, which version 1
/// does not tell.
fn compressed(
    system: &System,
    file: &mut File,
    at: u64,
    head: &[u8],
    found: &mut CodeObjects,
) -> Option<u64> {
    let word = |from: usize| Some(u32::from_le_bytes(head.get(from..from + 4)?.try_into().ok()?));
    let long = |from: usize| Some(u64::from_le_bytes(head.get(from..from + 8)?.try_into().ok()?));
    // Magic, version, method; then total size, size uncompressed, 8 bytes of hash.
    let (length, begins) = match head[4] {
        1 => (None, 8 + 4 + 8),
        2 => (Some(u64::from(word(8)?)), 8 + 4 + 4 + 8),
        _ => (Some(long(8)?), 8 + 8 + 8 + 8),
    };
    let zstd = head[6] == 1;
    // The first block has to be whole before any of it comes out; blocks hold 128 KiB at most.
    for prefix in [16u64 << 10, 160 << 10] {
        if !system.grant(prefix) {
            break;
        }
        let mut bytes = vec![0; prefix.min(length.unwrap_or(u64::MAX)) as usize];
        let read = fill(file, at.saturating_add(begins), &mut bytes);
        let opened = opened(&bytes[..read], zstd);
        if opened.starts_with(BUNDLE) && plain(&opened, found).is_some() {
            return length;
        }
    }
    found.complete = false;
    length
}

/// The beginning of what some beginning of compressed data holds.
fn opened(bytes: &[u8], zstd: bool) -> Vec<u8> {
    let mut out = vec![0; LONGEST_HEADER];
    let mut reader: Box<dyn Read> = if zstd {
        let Ok(mut decoder) = zstd::stream::read::Decoder::with_buffer(bytes) else {
            return Vec::new();
        };
        // Long windows are what the bundler asks for; memory is only taken as output comes.
        let _ = decoder.window_log_max(31);
        Box::new(decoder)
    } else {
        Box::new(flate2::read::ZlibDecoder::new(bytes))
    };
    let mut length = 0;
    while length < out.len() {
        match reader.read(&mut out[length..]) {
            Ok(n @ 1..) => length += n,
            // The input ends in the midst of it, as it must.
            _ => break,
        }
    }
    out.truncate(length);
    out
}

/// The next bundle's start.
fn search(system: &System, file: &mut File, start: u64, end: u64, found: &mut CodeObjects) -> Option<u64> {
    let mut at = start;
    while at < end {
        if !system.grant(PIECE) {
            found.complete = false;
            return None;
        }
        // Pieces overlap, so that no magic falls between two.
        let mut piece = vec![0; (PIECE.min(end - at)) as usize];
        let length = fill(file, at, &mut piece);
        piece.truncate(length);
        let compressed = memchr::memmem::find_iter(&piece, COMPRESSED).find(|&i| is_compressed(&piece[i..]));
        let next = memchr::memmem::find(&piece, BUNDLE).into_iter().chain(compressed).min();
        if let Some(next) = next {
            return Some(at + next as u64);
        }
        if length <= BUNDLE.len() {
            return None;
        }
        at += (length - BUNDLE.len()) as u64;
    }
    None
}

/// Takes the targets named in a packed archive's table of contents.
fn packed(system: &System, file: &mut File, size: u64, found: &mut CodeObjects) {
    let mut header = [0; 16];
    if fill(file, 0, &mut header) < header.len() {
        return;
    }
    let contents = u64::from_le_bytes(header[8..].try_into().unwrap_or_default());
    let length = size.saturating_sub(contents).min(LONGEST_CONTENTS);
    if !system.grant(length) {
        found.complete = false;
        return;
    }
    let mut bytes = vec![0; length as usize];
    let length = fill(file, contents, &mut bytes);
    let text = String::from_utf8_lossy(&bytes[..length]);
    found.targets.extend(targets::all_in(&text).into_iter().map(String::from));
}

/// Reads what is there from an offset; returns how much that is.
fn fill(file: &mut File, at: u64, buffer: &mut [u8]) -> usize {
    if file.seek(SeekFrom::Start(at)).is_err() {
        return 0;
    }
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    length
}

/// Whether a library's read-only data holds each of these names as a C string: a variable that MIOpen looks up
/// has its name there. None where the library cannot be read far enough to tell.
pub fn has_strings(system: &System, path: &str, names: &[&str]) -> Option<Vec<bool>> {
    let cache = ReadCache::new(system.open(path)?);
    let elf = ElfFile64::<LittleEndian, _>::parse(&cache).ok()?;
    let section = elf.section_by_name(".rodata")?;
    if !system.grant(section.size()) {
        return None;
    }
    let data = section.data().ok()?;
    let has = |name: &&str| memchr::memmem::find(data, format!("{name}\0").as_bytes()).is_some();
    Some(names.iter().map(has).collect())
}

/// The functions that a library defines of those named.
pub fn defines(system: &System, path: &str, names: &[&str]) -> Vec<String> {
    let Some(file) = system.open(path) else {
        return Vec::new();
    };
    let cache = ReadCache::new(file);
    let Ok(elf) = ElfFile64::<LittleEndian, _>::parse(&cache) else {
        return Vec::new();
    };
    use object::ObjectSymbol as _;
    let defined = elf.dynamic_symbols().filter(|symbol| symbol.is_definition());
    let defined = defined.filter_map(|symbol| symbol.name().ok().map(String::from));
    let mut found: Vec<String> = defined.filter(|name| names.contains(&name.as_str())).collect();
    found.sort();
    found
}
