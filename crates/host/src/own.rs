//! Which libraries are wave32's own: they say so, with their version, in an ELF note named `wave32`.

use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{LittleEndian, ReadCache, ReadRef};
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The drop-in for MIOpen.
pub const MIOPEN: &str = "libMIOpen.so.1";
/// The interposer that gives cards memory that they can use.
pub const PRELOAD: &str = "libwave32_preload.so";
/// How the names of the vendor's files begin while ours have their places.
pub const KEPT: &str = ".wave32-kept-";
/// The note's owner, with the zero that ends it.
const OWNER: &[u8] = b"wave32";

/// A library of wave32's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Own {
    /// Which, as its note says: `libMIOpen 0.1.0` is `libMIOpen`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Every byte that its headers tell of is there.
    pub whole: bool,
}

/// What a library's note says; none where it is somebody else's, or no library.
pub fn of(file: File) -> Option<Own> {
    let length = file.metadata().ok()?.len();
    let cache = ReadCache::new(file);
    let data = &cache;
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let note = header.program_headers(endian, data).ok()?.iter().find_map(|segment| {
        let mut notes = segment.notes(endian, data).ok()??;
        // A damaged file may hold anything: as many as a library has at most.
        (0..64).map_while(|_| notes.next().ok()?).find(|note| note.name() == OWNER)
    })?;
    let text = String::from_utf8_lossy(note.desc()).trim_end_matches('\0').to_string();
    let (name, version) = text.split_once(' ')?;
    Some(Own { name: name.into(), version: version.into(), whole: is_whole(header, data, length) })
}

fn is_whole<'d, R: ReadRef<'d>>(header: &FileHeader64<LittleEndian>, data: R, length: u64) -> bool {
    let Ok(endian) = header.endian() else { return false };
    let (Ok(segments), Ok(sections)) =
        (header.program_headers(endian, data), header.section_headers(endian, data))
    else {
        return false;
    };
    let inside = |offset: u64, size: u64| offset.checked_add(size).is_some_and(|end| end <= length);
    segments.iter().all(|s| inside(s.p_offset(endian), s.p_filesz(endian)))
        && sections.iter().all(|s| s.file_range(endian).is_none_or(|(offset, size)| inside(offset, size)))
}

/// The library at a path. A FIFO or a device is none, and nobody waits for it.
pub fn at(path: &Path) -> Option<Own> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    of(file.metadata().is_ok_and(|found| found.is_file()).then_some(file)?)
}

/// Folders where parts of wave32 lie: beside its program, `../lib/wave32` where it is installed, `../rocm/lib` where it
/// was built.
pub fn folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
    let Some(beside) = program.as_deref().and_then(Path::parent) else { return Vec::new() };
    let above = beside.parent().into_iter();
    let others = above.flat_map(|prefix| [prefix.join("lib/wave32"), prefix.join("rocm/lib")]);
    std::iter::once(beside.to_path_buf()).chain(others).collect()
}

/// The part of that name, in the first of the folders that has one of ours.
pub fn find(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    let wanted = |path: &PathBuf| at(path).is_some_and(|own| own.whole);
    folders.iter().map(|folder| folder.join(name)).find(wanted)
}

/// Is it what a MIOpen's file is called, with or without what auditwheel puts into it?
#[must_use]
pub fn is_miopen(name: &str) -> bool {
    let Some((stem, version)) = name.strip_prefix("libMIOpen").and_then(|rest| rest.split_once(".so")) else {
        return false;
    };
    let hashed = stem.strip_prefix('-').is_some_and(|hash| hash.bytes().all(|b| b.is_ascii_alphanumeric()));
    (stem.is_empty() || hashed) && version.bytes().all(|b| b == b'.' || b.is_ascii_digit())
}

/// The name under which the vendor's file is kept.
pub fn kept_name(path: &Path) -> PathBuf {
    let mut name = OsString::from(KEPT);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::is_miopen;

    #[test]
    fn names_of_miopens() {
        for name in ["libMIOpen.so", "libMIOpen.so.1", "libMIOpen.so.1.0.50200", "libMIOpen-5b3f1c.so.1.0"] {
            assert!(is_miopen(name), "{name}");
        }
        for name in [
            "libMIOpen.so.1.bak",
            "libMIOpen_private.so.1",
            "libMIOpen.a",
            ".wave32-kept-libMIOpen.so",
            "MIOpen.so",
        ] {
            assert!(!is_miopen(name), "{name}");
        }
    }
}
