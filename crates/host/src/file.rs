//! Files that may be endless, huge, pipes or somebody else's; and files that are either whole or as they were.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

/// What may be read of a text with a problem a line.
pub const LINES: u64 = 64 << 20;

/// What may be read of a table, a report or a record of ours.
pub const TABLE: u64 = 256 << 20;

fn too_large(limit: u64) -> io::Error {
    let limit = if limit >= 1 << 20 { format!("{} MiB", limit >> 20) } else { format!("{limit} bytes") };
    io::Error::new(
        ErrorKind::FileTooLarge,
        format!("it is larger than the {limit} that are read of such a file"),
    )
}

/// All of what is open, unless it is more than `limit`.
fn bounded(file: impl Read, size: u64, limit: u64) -> io::Result<Vec<u8>> {
    // A file tells its size; devices and pipes say 0 and are found out by reading.
    if size > limit {
        return Err(too_large(limit));
    }
    let mut bytes = Vec::new();
    let room = usize::try_from(size).map_err(|_| too_large(limit))?;
    bytes.try_reserve_exact(room).map_err(|_| ErrorKind::OutOfMemory)?;
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large(limit)) } else { Ok(bytes) }
}

/// What a user named: a file, or a pipe, whose writer is waited for. Endless ones end at the limit.
///
/// # Errors
/// The system's error; `FileTooLarge` above `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    bounded(file, size, limit)
}

/// What nobody named and lies where one of ours is expected: a plain file, opened without waiting for anybody.
///
/// # Errors
/// The system's; `FileTooLarge` above the limit; `InvalidInput` for pipes, devices and folders.
pub fn read_plain(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let (file, found) = open_plain(path)?;
    bounded(file, found.len(), limit)
}

/// As [`read_plain`], and only what nobody but this user, or root, can have written.
///
/// # Errors
/// As [`read_plain`]; `PermissionDenied` for what others may have written.
pub fn read_own(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let (file, found) = open_plain(path)?;
    if let Some(why) = foreign(&found) {
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    bounded(file, found.len(), limit)
}

fn open_plain(path: &Path) -> io::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    options.read(true);
    // A pipe without a writer would be waited for, for ever.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.union(rustix::fs::OFlags::NOCTTY).bits().cast_signed(),
    );
    let file = options.open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no plain file"));
    }
    Ok((file, found))
}

/// Why others than this user and root may have written this; nothing where they cannot.
#[cfg(unix)]
pub fn foreign(found: &Metadata) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let (owner, us) = (found.uid(), rustix::process::geteuid().as_raw());
    if owner != us && owner != 0 {
        return Some(format!("it belongs to another user ({owner})"));
    }
    // The group's bit is left alone: where each user has a group of their own, it is set by default.
    (found.mode() & 0o002 != 0).then(|| "every user may write to it".into())
}

/// Why others than this user may have written this: not known here.
#[cfg(not(unix))]
pub fn foreign(_: &Metadata) -> Option<String> {
    None
}

/// True for `/dev/stdout` and its like, which lead through /proc to what is open already: those are written to, not
/// replaced.
fn is_open_already(path: &Path) -> bool {
    let mut at = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    for _ in 0..8 {
        if at.starts_with("/proc") {
            return true;
        }
        let Ok(next) = std::fs::read_link(&at) else { return false };
        at = at.parent().map_or(next.clone(), |folder| folder.join(&next));
    }
    false
}

/// Writes a file through a temporary one beside it, so that no reader sees half of it and a failure leaves what was there.
/// A link of that name is replaced; what it leads to stays as it is. Devices, pipes and `/dev/stdout` are written to.
///
/// # Errors
/// The system's error: the disk is full, or the folder is gone.
pub fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, false)
}

/// As [`save`], and on the disk when it comes back.
///
/// # Errors
/// See [`save`].
pub fn save_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, true)
}

fn replace(path: &Path, bytes: &[u8], durably: bool) -> io::Result<()> {
    let there = std::fs::metadata(path).ok();
    if is_open_already(path) || there.as_ref().is_some_and(|found| !found.is_file()) {
        // Behind what was written already, where that is a file.
        return OpenOptions::new().append(true).open(path)?.write_all(bytes);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A name that nobody can foresee, and a file that was not there before: nothing planted is followed.
    let mut builder = tempfile::Builder::new();
    builder.prefix(".wave32-").suffix(".tmp");
    #[cfg(unix)]
    let plain = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(plain);
    let mut temporary = builder.tempfile_in(folder)?;
    let before = std::fs::symlink_metadata(path).ok().filter(Metadata::is_file);
    if let Some(before) = before {
        // A report that was private stays so.
        temporary.as_file().set_permissions(before.permissions())?;
    }
    temporary.write_all(bytes)?;
    if durably {
        temporary.as_file().sync_all()?;
    }
    temporary.persist(path).map_err(|error| error.error)?;
    // The name must last too; Windows opens no folder.
    if durably && cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Finds out before the work that a file cannot be written after it. Makes and changes nothing.
///
/// # Errors
/// A line for people: why the file cannot be written.
pub fn writable(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(format!("{} is no folder; make it first", folder.display()));
    }
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err("it is a folder; name a file".into()),
        Ok(found) if !found.is_file() => return access(path),
        Ok(_) => access(path)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.to_string()),
    }
    if is_open_already(path) { Ok(()) } else { access(folder) }
}

#[cfg(unix)]
fn access(path: &Path) -> Result<(), String> {
    let denied = |error: rustix::io::Errno| format!("{}; choose another place", io::Error::from(error));
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(denied)
}

#[cfg(not(unix))]
fn access(path: &Path) -> Result<(), String> {
    let found = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if found.permissions().readonly() { Err("it is read-only; choose another place".into()) } else { Ok(()) }
}

/// FNV-1a, 64 bits: tells content and names apart; against accidents, not against attackers.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn reading_ends_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, [7; 100]).unwrap();
        for reading in [read, read_plain, read_own] {
            assert_eq!(reading(&file, 100).unwrap(), [7; 100]);
            assert_eq!(reading(&file, 99).unwrap_err().kind(), ErrorKind::FileTooLarge);
        }
        // A terabyte that takes no space.
        File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(&file, LINES).unwrap_err().kind(), ErrorKind::FileTooLarge);
        #[cfg(unix)]
        assert_eq!(read(Path::new("/dev/zero"), LINES).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_no_plain_file_is_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from(0o600), 0).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero"), folder.path()] {
            assert_eq!(
                read_plain(path, 10).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{}",
                path.display()
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_others_may_write_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, "x").unwrap();
        for (mode, trusted) in [(0o600, true), (0o644, true), (0o664, true), (0o666, false), (0o602, false)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = read_own(&file, 10).err().map(|error| error.kind());
            assert_eq!(error, (!trusted).then_some(ErrorKind::PermissionDenied), "{mode:o}");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_stays_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("n".repeat(255));
        for text in ["first", "", "third"] {
            save(&file, text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
        assert_eq!(names(folder.path()).len(), 1);
        assert!(save(&folder.path().join("no/folder"), b"x").is_err());
        assert!(save(&folder.path().join("n".repeat(256)), b"x").is_err());
        assert_eq!(names(folder.path()).len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_replaced_modes_kept_and_planted_names_not_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let [victim, link, private] = ["victim", "link", "private"].map(|name| folder.path().join(name));
        std::fs::write(&victim, "kept").unwrap();
        symlink(&victim, &link).unwrap();
        // What the name of a temporary was once.
        let planted = folder.path().join(format!("link.{}.tmp", std::process::id()));
        symlink(&victim, &planted).unwrap();
        save(&link, b"report").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_file() && planted.is_symlink());
        std::fs::write(&private, "old").unwrap();
        std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o600)).unwrap();
        save_durably(&private, b"new").unwrap();
        assert_eq!(std::fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_open_already_is_written_to() {
        use std::os::fd::AsRawFd;
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("out")).unwrap();
        let link = folder.path().join("stdout");
        std::os::unix::fs::symlink(format!("/proc/self/fd/{}", file.as_raw_fd()), &link).unwrap();
        assert_eq!(writable(&link), Ok(()));
        save(&link, b"one ").unwrap();
        save(&link, b"two").unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("out")).unwrap(), "one two");
        assert!(link.is_symlink(), "like /dev/stdout, it must not be replaced");
    }

    #[test]
    fn looking_whether_a_file_can_be_written_makes_none() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| writable(&folder.path().join(name));
        assert_eq!(at("new"), Ok(()));
        assert!(at("no/folder").unwrap_err().contains("make it first"));
        assert!(at(&"n".repeat(256)).is_err());
        assert!(writable(folder.path()).unwrap_err().contains("name a file"));
        assert!(names(folder.path()).is_empty());
    }
}
