//! The files of [`crate::topology`] on disk, and which paths lead to them.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::settings::Settings;
use crate::topology::{self, ADDRESS, RENDER_MINOR};

/// Where a path leads that a program asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum CardPath {
    /// The card itself.
    Card,
    /// A file of ours.
    File(CString),
}

/// None for the paths that are not ours, which is decided without a system call.
pub fn place(path: &[u8]) -> Option<CardPath> {
    if !(path.starts_with(b"/sys/") || path.starts_with(b"/dev/") || path.starts_with(b"/proc/")) {
        return None;
    }
    if path == b"/dev/kfd" || path == format!("/dev/dri/renderD{RENDER_MINOR}").as_bytes() {
        return Some(CardPath::Card);
    }
    let below =
        |prefix: &str| path.strip_prefix(prefix.as_bytes()).filter(|rest| rest.is_empty() || rest[0] == b'/');
    // What /sys/class links to is the same folder here.
    let file = below("/sys/devices/virtual/kfd")
        .or_else(|| below("/sys/class/kfd"))
        .map(|rest| (b"kfd".as_slice(), rest))
        .or_else(|| below("/sys/module/amdgpu").map(|rest| (b"module".as_slice(), rest)))
        .or_else(|| {
            (matches!(path, b"/dev/dri" | b"/dev/dri/")).then_some((b"dri".as_slice(), b"".as_slice()))
        })
        .or_else(|| below(&format!("/sys/dev/char/226:{RENDER_MINOR}")).map(|rest| (b"drm".as_slice(), rest)))
        .or_else(|| {
            below(&format!("{}/{ADDRESS}", wave32_cards::sysfs::PCI))
                .map(|rest| (b"drm/device".as_slice(), rest))
        })
        .or_else(|| (path == b"/proc/modules").then_some((b"modules".as_slice(), b"".as_slice())))?;
    let root = root()?;
    let mut full = root.as_os_str().as_bytes().to_vec();
    full.push(b'/');
    full.extend_from_slice(file.0);
    full.extend_from_slice(file.1);
    CString::new(full).ok().map(CardPath::File)
}

fn root() -> Option<&'static Path> {
    static ROOT: OnceLock<Option<PathBuf>> = OnceLock::new();
    ROOT.get_or_init(|| {
        let settings = Settings::from_environment();
        let written =
            settings.and_then(|settings| write(&settings, &std::env::temp_dir()).map_err(|e| e.to_string()));
        written.map_err(|reason| log!("no virtual card: {reason}")).ok()
    })
    .as_deref()
}

/// A folder of this user's with the card's files, shared by all processes that want the same.
fn write(settings: &Settings, temporary: &Path) -> io::Result<PathBuf> {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    // What the strict card stops, atomics on host memory and fine-grained accesses, is what a board without them cannot do.
    let atomics = !settings.strict;
    let mut files: Vec<(String, String)> = topology::files(settings.card, processors, host_bytes(), atomics)
        .into_iter()
        .map(|(path, text)| (format!("kfd/kfd/topology/{path}"), text))
        .collect();
    for (name, text) in [("initstate", "live"), ("refcnt", "0"), ("coresize", "0")] {
        files.push((format!("module/{name}"), format!("{text}\n")));
    }
    files.extend(
        topology::pci(settings.card).into_iter().map(|(path, text)| (format!("drm/device/{path}"), text)),
    );
    files.push((format!("dri/renderD{RENDER_MINOR}"), String::new()));
    files.push((format!("drm/device/drm/renderD{RENDER_MINOR}/dev"), format!("226:{RENDER_MINOR}\n")));
    // Another spelling than the one that leads here.
    let real = std::fs::read_to_string("/proc//modules").unwrap_or_default();
    files.push(("modules".into(), format!("amdgpu 1 0 - Live 0x0000000000000000\n{real}")));

    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    let name = format!("wave32-vgpu-{user}-{:016x}", fingerprint(&files));
    let folder = temporary.join(&name);
    if is_ours(&folder, user) {
        return Ok(folder);
    }
    let new = temporary.join(format!("{name}.{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&new)?;
    std::fs::create_dir_all(new.join("module/holders"))?;
    for (path, text) in &files {
        let path = new.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(&new))?;
        std::fs::write(path, text)?;
    }
    // Only its last part counts, and that may lead nowhere.
    std::os::unix::fs::symlink("../../../../bus/pci", new.join("drm/device/subsystem"))?;
    // Whoever is first wins; the others' folders say the same.
    let renamed = std::fs::rename(&new, &folder);
    if renamed.is_err() {
        std::fs::remove_dir_all(&new)?;
    }
    if is_ours(&folder, user) { Ok(folder) } else { renamed.map(|()| folder) }
}

/// A folder, not a link to one, that nobody else may write.
fn is_ours(folder: &Path, user: u32) -> bool {
    std::fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0)
}

/// FNV-1a.
fn fingerprint(files: &[(String, String)]) -> u64 {
    let bytes = files.iter().flat_map(|(path, text)| path.bytes().chain([0]).chain(text.bytes()).chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The machine's memory.
pub fn host_bytes() -> u64 {
    // SAFETY: asks for numbers.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> Option<CardPath> {
        place(path.as_bytes())
    }

    #[test]
    fn only_the_cards_paths_are_taken() {
        assert_eq!(at("/dev/kfd"), Some(CardPath::Card));
        assert_eq!(at("/dev/dri/renderD128"), Some(CardPath::Card));
        for other in
            ["/dev/kfd2", "/dev/dri/renderD129", "/etc/passwd", "/sys/module/amdgpu2", "/proc/modulesx", ""]
        {
            assert_eq!(at(other), None, "{other}");
        }
        let Some(CardPath::File(file)) = at("/sys/devices/virtual/kfd/kfd/topology/nodes/1/properties")
        else {
            panic!("not taken")
        };
        let text = std::fs::read_to_string(file.to_str().unwrap()).unwrap();
        assert!(text.contains("gfx_target_version 100100\n"), "{text}");
    }

    #[test]
    fn the_folder_is_shared_and_never_somebody_elses() {
        let settings = Settings::read(|_| None).unwrap();
        let temporary = std::env::temp_dir().join(format!("vgpu-test-{}", std::process::id()));
        std::fs::create_dir(&temporary).unwrap();
        let folder = write(&settings, &temporary).unwrap();
        assert_eq!(write(&settings, &temporary).unwrap(), folder);
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 1, "nothing is left over");
        std::fs::remove_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink("/tmp", &folder).unwrap();
        write(&settings, &temporary).unwrap_err();
        std::fs::remove_dir_all(&temporary).unwrap();
    }
}
