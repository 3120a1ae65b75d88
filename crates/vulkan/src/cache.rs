//! The pipeline cache on disk: one file per driver and card, so that kernels compile once per machine.
//!
//! Nothing that can be wrong with the file or its folder is ever an error: a file that is not exactly
//! what was written is ignored, a folder that cannot be written to is left alone, each with one warning. What is in
//! the file goes to the driver, so a file or folder that another user may have written to is not used.

use std::io;
use std::path::{Path, PathBuf};
use wave32_host::file::{self, fnv1a};

/// Start of the file; the digit is the format's version.
const MAGIC: &[u8; 8] = b"w32pc\x001\n";
/// Magic, identity, payload length, payload checksum.
const HEADER: usize = MAGIC.len() + IDENTITY + 8 + 8;
const IDENTITY: usize = 3 * 4 + 3 * 16;
/// Largest file that is read; a healthy one is a few megabytes.
const LIMIT: u64 = 256 << 20;

/// What a pipeline cache belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) vendor: u32,
    pub(crate) device: u32,
    pub(crate) driver_version: u32,
    pub(crate) driver_uuid: [u8; 16],
    pub(crate) device_uuid: [u8; 16],
    pub(crate) cache_uuid: [u8; 16],
}

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

#[cfg(test)]
impl Identity {
    /// One for tests.
    pub(crate) fn example() -> Self {
        Self {
            vendor: 1,
            device: 2,
            driver_version: 3,
            driver_uuid: [4; 16],
            device_uuid: [5; 16],
            cache_uuid: [6; 16],
        }
    }
}

impl DiskCache {
    /// The file for `identity` in `dir`, which need not exist.
    pub(crate) fn new(dir: &Path, identity: &Identity) -> Self {
        let mut bytes = [0; IDENTITY];
        let words = [identity.vendor, identity.device, identity.driver_version];
        let fields = words.iter().flat_map(|w| w.to_le_bytes());
        let uuids = identity.driver_uuid.into_iter().chain(identity.device_uuid).chain(identity.cache_uuid);
        bytes.iter_mut().zip(fields.chain(uuids)).for_each(|(to, from)| *to = from);
        let path = dir.join(format!("vulkan-pipelines-{:016x}.bin", fnv1a(&bytes)));
        Self { path, identity: bytes }
    }

    /// What was saved, if it is all there and belongs to this driver and card.
    pub(crate) fn load(&self) -> Option<Vec<u8>> {
        // A folder of others' is told of where it is written to.
        if self.foreign().is_some() {
            return None;
        }
        let content = match file::read_own(&self.path, LIMIT) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                log::warn!(
                    "pipeline cache {} cannot be read, going on without it: {error}",
                    self.path.display()
                );
                return None;
            }
        };
        match self.payload(&content) {
            Ok(payload) => Some(payload.to_vec()),
            Err(why) => {
                log::warn!("pipeline cache {} is ignored and will be rewritten: {why}", self.path.display());
                None
            }
        }
    }

    /// Why the folder is not to be trusted, where it is there.
    fn foreign(&self) -> Option<String> {
        file::foreign(&std::fs::metadata(self.path.parent()?).ok()?)
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
        if number(8) != fnv1a(payload) {
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
        let dir = self.path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(dir)?;
        if let Some(why) = self.foreign() {
            let text =
                format!("its folder is not safe to use: {why}; remove it, or `chmod 700` it if it is yours");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        if std::fs::metadata(&self.path).is_ok_and(|found| !found.is_file()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "something else is in its place; remove it",
            ));
        }
        let numbers = [payload.len() as u64, fnv1a(payload)].map(u64::to_le_bytes);
        let content = [&MAGIC[..], &self.identity, &numbers[0], &numbers[1], payload].concat();
        // Some file systems report a full disk only where it is made durable.
        file::save_durably(&self.path, &content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(device: u32) -> Identity {
        Identity { device, ..Identity::example() }
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

    #[cfg(target_os = "linux")]
    #[test]
    fn pipes_and_endless_files_in_its_place_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(dir.path(), &identity(2));
        assert!(std::process::Command::new("mkfifo").arg(&cache.path).status().unwrap().success());
        assert_eq!(cache.load(), None, "nobody writes to the pipe, and nobody waits for it");
        cache.save(b"pipelines");
        assert_eq!(std::fs::metadata(&cache.path).unwrap().len(), 0, "a pipe is not replaced");
        std::fs::remove_file(&cache.path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &cache.path).unwrap();
        assert_eq!(cache.load(), None);
        std::fs::remove_file(&cache.path).unwrap();
        std::fs::File::create(&cache.path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(cache.load(), None);
        cache.save(b"pipelines");
        assert_eq!(cache.load().as_deref(), Some(&b"pipelines"[..]));
    }

    #[cfg(unix)]
    #[test]
    fn what_other_users_may_write_is_neither_read_nor_written() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("wave32");
        let cache = DiskCache::new(&folder, &identity(2));
        cache.save(b"pipelines");
        let mode = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        mode(&folder, 0o777);
        assert_eq!(cache.load(), None, "a folder that everybody may write to");
        cache.save(b"others");
        mode(&folder, 0o755);
        assert_eq!(cache.load().as_deref(), Some(&b"pipelines"[..]), "it was left alone");
        mode(&cache.path, 0o666);
        assert_eq!(cache.load(), None, "a file that everybody may write to");
        mode(&cache.path, 0o600);
        assert!(cache.load().is_some());
        // Root reads what is another user's, which is why it must not trust it.
        if std::os::unix::fs::chown(&folder, Some(65534), None).is_ok() {
            assert_eq!(cache.load(), None, "another user's folder");
        }
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
