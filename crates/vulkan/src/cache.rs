//! The pipeline cache on disk: one file per driver and card, so that kernels compile once per machine.
//!
//! Nothing that can be wrong with the file or its folder is ever an error: a file that is not exactly
//! what was written is ignored, a folder that cannot be written to is left alone, each with one warning.

use crate::adapter::Identity;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Start of the file; the digit is the format's version.
const MAGIC: &[u8; 8] = b"w32pc\x001\n";
/// Magic, identity, payload length, payload checksum.
const HEADER: usize = MAGIC.len() + IDENTITY + 8 + 8;
const IDENTITY: usize = 3 * 4 + 3 * 16;
/// Largest file that is read; a healthy one is a few megabytes.
const LIMIT: u64 = 256 << 20;

/// The file of one driver and card.
#[derive(Debug, Clone)]
pub(crate) struct DiskCache {
    path: PathBuf,
    identity: [u8; IDENTITY],
}

/// `$XDG_CACHE_HOME/wave32`, else `~/.cache/wave32` (`%LOCALAPPDATA%\wave32` on Windows).
pub(crate) fn default_dir() -> Option<PathBuf> {
    // The XDG specification says that relative paths are to be ignored.
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = if cfg!(windows) {
        absolute("LOCALAPPDATA")
    } else {
        absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
    };
    Some(base?.join("wave32"))
}

impl DiskCache {
    /// The file for `identity` in `dir`, which need not exist.
    pub(crate) fn new(dir: &Path, identity: &Identity) -> Self {
        let mut bytes = [0; IDENTITY];
        let words = [identity.vendor, identity.device, identity.driver_version];
        let fields = words.iter().flat_map(|w| w.to_le_bytes());
        let uuids = identity.driver_uuid.into_iter().chain(identity.device_uuid).chain(identity.cache_uuid);
        bytes.iter_mut().zip(fields.chain(uuids)).for_each(|(to, from)| *to = from);
        let path = dir.join(format!("vulkan-pipelines-{:016x}.bin", checksum(&bytes)));
        Self { path, identity: bytes }
    }

    /// What was saved, if it is all there and belongs to this driver and card.
    pub(crate) fn load(&self) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        let read =
            std::fs::File::open(&self.path).and_then(|file| file.take(LIMIT).read_to_end(&mut content));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                log::warn!(
                    "pipeline cache {} cannot be read, going on without it: {error}",
                    self.path.display()
                );
                return None;
            }
            Ok(_) => {}
        }
        match self.payload(&content) {
            Ok(payload) => Some(payload.to_vec()),
            Err(why) => {
                log::warn!("pipeline cache {} is ignored and will be rewritten: {why}", self.path.display());
                None
            }
        }
    }

    fn payload<'a>(&self, content: &'a [u8]) -> Result<&'a [u8], &'static str> {
        let (header, payload) = content.split_at_checked(HEADER).ok_or("it is truncated")?;
        let (magic, rest) = header.split_at(MAGIC.len());
        let (identity, numbers) = rest.split_at(IDENTITY);
        let number =
            |at: usize| numbers[at..at + 8].iter().rev().fold(0u64, |n, &byte| n << 8 | u64::from(byte));
        if magic != MAGIC {
            return Err("it is not a pipeline cache of this version of wave32");
        }
        if identity != self.identity {
            return Err("it belongs to another driver or card");
        }
        if number(0) != payload.len() as u64 {
            return Err("it is truncated");
        }
        if number(8) != checksum(payload) {
            return Err("its checksum is wrong");
        }
        Ok(payload)
    }

    /// Replaces the file. Readers see the old one or the new one, never a part: it is written beside
    /// and renamed.
    pub(crate) fn save(&self, payload: &[u8]) {
        if let Err(error) = self.write(payload) {
            let path = self.path.display();
            log::warn!(
                "pipeline cache {path} cannot be written, kernels will be compiled again next time: {error}"
            );
        }
    }

    fn write(&self, payload: &[u8]) -> io::Result<()> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let dir = self.path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        std::fs::create_dir_all(dir)?;
        let unique = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.path.with_extension(format!("{}-{unique}.tmp", std::process::id()));
        let write = || {
            let mut file = std::fs::File::create_new(&temporary)?;
            file.write_all(MAGIC)?;
            file.write_all(&self.identity)?;
            file.write_all(&(payload.len() as u64).to_le_bytes())?;
            file.write_all(&checksum(payload).to_le_bytes())?;
            file.write_all(payload)?;
            // Some file systems report a full disk only here.
            file.sync_all()?;
            std::fs::rename(&temporary, &self.path)
        };
        write().inspect_err(|_| {
            let _ = std::fs::remove_file(&temporary);
        })
    }
}

/// FNV-1a, 64 bits: against accidents, not against attackers, who could write the folder anyway.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(device: u32) -> Identity {
        Identity {
            vendor: 1,
            device,
            driver_version: 3,
            driver_uuid: [4; 16],
            device_uuid: [5; 16],
            cache_uuid: [6; 16],
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let nested = dir.path().join("not/there/yet");
        let cache = DiskCache::new(&nested, &identity(2));
        assert_eq!(cache.load(), None);
        for payload in [&b"first"[..], b"second, longer", b""] {
            cache.save(payload);
            assert_eq!(cache.load().as_deref(), Some(payload));
        }
        assert_eq!(std::fs::read_dir(&nested).unwrap().count(), 1, "temporary files are gone");
        assert_eq!(DiskCache::new(&nested, &identity(9)).load(), None, "another card, another file");
    }

    #[test]
    fn damaged_and_foreign_files_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(dir.path(), &identity(2));
        cache.save(b"some pipelines");
        let good = std::fs::read(&cache.path).unwrap();
        let refused = |content: &[u8], what: &str| {
            std::fs::write(&cache.path, content).unwrap();
            assert_eq!(cache.load(), None, "{what}");
        };
        for length in 0..good.len() {
            refused(&good[..length], &format!("cut to {length} bytes"));
        }
        for position in 0..good.len() {
            let mut flipped = good.clone();
            flipped[position] ^= 0x10;
            refused(&flipped, &format!("byte {position} flipped"));
        }
        refused(&[&good[..], b"x"].concat(), "a byte too many");
        let other = DiskCache::new(dir.path(), &identity(9));
        other.save(b"some pipelines");
        refused(&std::fs::read(&other.path).unwrap(), "another card's file under this name");
        std::fs::write(&cache.path, &good).unwrap();
        assert!(cache.load().is_some());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_failure() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, b"in the way").unwrap();
        let cache = DiskCache::new(&file, &identity(2)); // even root cannot make a folder inside a file
        cache.save(b"some pipelines");
        assert_eq!(cache.load(), None);
        // A directory where the file should be.
        let cache = DiskCache::new(dir.path(), &identity(2));
        std::fs::create_dir(&cache.path).unwrap();
        cache.save(b"some pipelines");
        assert_eq!(cache.load(), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "temporary files are gone");
    }
}
