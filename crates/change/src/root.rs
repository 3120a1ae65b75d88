//! A folder that stands for `/`: nothing outside it is read or written.
//!
//! Two ways lead to a file. What a user or a recorded machine names is walked with its links, which stay within, absolute
//! ones too. What a plan or a manifest names has had its links followed, and is opened through none ([`Root::spot`]): a
//! link that turns up there since is an error. Either way it is handles that are used, never names looked up anew.

use crate::calls;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Symbolic links followed before a path counts as a loop, as in Linux.
const MAX_LINKS: usize = 40;

/// The folder that every path lies under; `/` on a live system.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
    folder: Arc<OwnedFd>,
}

/// A name in a folder, of which there is a handle.
#[derive(Debug, Clone)]
pub(crate) struct Spot {
    pub folder: Arc<OwnedFd>,
    pub name: OsString,
}

/// Where a path leads.
struct Walked {
    /// Without links.
    names: Vec<OsString>,
    /// What is there.
    handle: Option<OwnedFd>,
    /// Something on the way is not there, be it that `..` led back from it.
    missing: bool,
    /// The users and groups that own the links on the way.
    givers: BTreeSet<(u32, u32)>,
}

impl Root {
    /// Takes `folder` for `/`.
    ///
    /// # Errors
    /// `folder` is not a directory, or cannot be opened.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let path = folder.canonicalize()?;
        let folder = Arc::new(calls::open_path(CWD, &path, OFlags::DIRECTORY)?);
        Ok(Self { path, folder })
    }

    /// What `inside` (as programs under this root would name it) is called outside: to be shown, not opened.
    #[must_use]
    pub fn host(&self, inside: &Path) -> PathBuf {
        self.path.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// The file that `inside` names once every link is followed, absolute ones within this root. What does not
    /// exist yet is taken as it is written.
    ///
    /// # Errors
    /// A chain of links that does not end; a folder that may not be read.
    pub fn resolve(&self, inside: &Path) -> io::Result<PathBuf> {
        Ok(self.trail(inside)?.0)
    }

    /// Like [`Root::resolve`], with the users and groups that own the links on the way.
    pub(crate) fn trail(&self, inside: &Path) -> io::Result<(PathBuf, BTreeSet<(u32, u32)>)> {
        let Walked { names, givers, .. } = self.walk(inside)?;
        Ok((join(&names), givers))
    }

    /// Like [`Root::resolve`], but a link in the last place stands for itself: for what is to be taken away.
    ///
    /// # Errors
    /// As [`Root::resolve`].
    pub fn resolve_parent(&self, inside: &Path) -> io::Result<PathBuf> {
        match (inside.parent(), inside.file_name()) {
            (Some(parent), Some(name)) => Ok(self.resolve(parent)?.join(name)),
            _ => Err(io::Error::other("names no file")),
        }
    }

    /// Is there a regular file, links followed?
    ///
    /// # Errors
    /// The system's error where the path cannot be looked up.
    pub fn is_file(&self, inside: &Path) -> io::Result<bool> {
        unless_absent(self.stat(inside).map(|found| is_file(&found)))
    }

    /// Is there a folder, links followed?
    ///
    /// # Errors
    /// The system's error where the path cannot be looked up.
    pub fn is_dir(&self, inside: &Path) -> io::Result<bool> {
        unless_absent(self.stat(inside).map(|found| is_dir(&found)))
    }

    /// Is there anything, be it a link that leads nowhere?
    ///
    /// # Errors
    /// The system's error where the path cannot be looked up.
    pub fn is_there(&self, inside: &Path) -> io::Result<bool> {
        let found = self.resolve_parent(inside).and_then(|real| self.look(&real));
        unless_absent(found.map(|found| found.is_some()))
    }

    /// What is there, links followed.
    ///
    /// # Errors
    /// The file cannot be looked up.
    pub fn stat(&self, inside: &Path) -> io::Result<Stat> {
        Ok(calls::look_at(self.find(inside)?)?)
    }

    /// A handle that names what is there, links followed.
    ///
    /// # Errors
    /// The file cannot be looked up.
    pub fn find(&self, inside: &Path) -> io::Result<OwnedFd> {
        match calls::open_within(&self.folder, relative(inside), OFlags::PATH, true) {
            Err(e) if is_unknown(e) => {
                let walked = self.walk(inside)?;
                walked.handle.filter(|_| !walked.missing).ok_or(io::ErrorKind::NotFound.into())
            }
            found => Ok(found?),
        }
    }

    /// A regular file, opened to be read, links followed. Nothing else is opened at all.
    ///
    /// # Errors
    /// It is no regular file; it cannot be read.
    pub fn open(&self, inside: &Path) -> io::Result<File> {
        let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
        if !is_file(&self.stat(inside)?) {
            return Err(no_file());
        }
        let file = self.open_any(inside, OFlags::empty())?;
        // It may have been exchanged.
        if is_file(&calls::look_at(&file)?) { Ok(file) } else { Err(no_file()) }
    }

    /// Whatever is there, a device too, opened to be read without waiting.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open_device(&self, inside: &Path) -> io::Result<File> {
        self.open_any(inside, OFlags::empty())
    }

    /// Whatever is there, opened to be read without waiting.
    fn open_any(&self, inside: &Path, more: OFlags) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | more;
        match calls::open_within(&self.folder, relative(inside), flags, true) {
            Err(e) if is_unknown(e) => match self.found(inside)? {
                top if top.file_name().is_none() => {
                    Ok(calls::open_to_read(&self.folder, OsStr::new("."), more)?.into())
                }
                real => Ok(self.spot(&real)?.open(more)?.into()),
            },
            opened => Ok(opened?.into()),
        }
    }

    /// Like [`Root::resolve`], of what is there.
    fn found(&self, inside: &Path) -> io::Result<PathBuf> {
        let Walked { names, missing, .. } = self.walk(inside)?;
        if missing { Err(io::ErrorKind::NotFound.into()) } else { Ok(join(&names)) }
    }

    /// The names in a folder, links to it followed.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn names(&self, inside: &Path) -> io::Result<Vec<OsString>> {
        Ok(calls::names(self.open_any(inside, OFlags::DIRECTORY)?)?)
    }

    /// The text of the link at `inside`.
    ///
    /// # Errors
    /// It is no link; it cannot be looked up.
    pub fn link(&self, inside: &Path) -> io::Result<PathBuf> {
        let spot = self.spot(&self.resolve_parent(inside)?)?;
        let handle = calls::open_path(&spot.folder, Path::new(&spot.name), OFlags::empty())?;
        Ok(calls::link_text(handle)?.into())
    }

    /// What is at the end of `inside`, or the last thing on the way that is there; links are not followed.
    pub(crate) fn nearest(&self, inside: &Path) -> io::Result<Stat> {
        let mut handle = self.top()?;
        let mut found = calls::look_at(&handle)?;
        for name in parts(inside) {
            let next = match calls::open_path(&handle, Path::new(&name), OFlags::empty()) {
                Err(Errno::NOENT | Errno::NOTDIR) => break,
                next => next?,
            };
            let stat = calls::look_at(&next)?;
            if is_link(&stat) {
                break;
            }
            (handle, found) = (next, stat);
        }
        Ok(found)
    }

    /// The name `real`, in a folder to which no link leads.
    pub(crate) fn spot(&self, real: &Path) -> io::Result<Spot> {
        let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(io::Error::other("names no file"));
        };
        Ok(Spot { folder: Arc::new(self.plain(parent, OFlags::DIRECTORY)?), name: name.into() })
    }

    /// What is at `real`, a link for itself; nothing where a folder on the way is not there.
    ///
    /// # Errors
    /// The file cannot be looked up.
    pub fn look(&self, real: &Path) -> io::Result<Option<Stat>> {
        if real.file_name().is_none() {
            return Ok(Some(calls::look_at(&self.folder)?));
        }
        match self.spot(real) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            spot => spot?.look(),
        }
    }

    /// A handle that names what is at `real`, to which no link leads.
    fn plain(&self, real: &Path, more: OFlags) -> io::Result<OwnedFd> {
        if real.components().any(|part| part == Component::ParentDir) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it leads upwards"));
        }
        match calls::open_within(&self.folder, relative(real), OFlags::PATH | more, false) {
            Err(e) if is_unknown(e) => {}
            found => return Ok(found?),
        }
        let mut handle = self.top()?;
        for name in parts(real) {
            handle = calls::open_path(&handle, Path::new(&name), OFlags::empty())?;
            if is_link(&calls::look_at(&handle)?) {
                return Err(Errno::LOOP.into());
            }
        }
        if more.contains(OFlags::DIRECTORY) && !is_dir(&calls::look_at(&handle)?) {
            return Err(Errno::NOTDIR.into());
        }
        Ok(handle)
    }

    fn top(&self) -> io::Result<OwnedFd> {
        Ok(calls::open_path(&self.folder, Path::new("."), OFlags::DIRECTORY)?)
    }

    fn walk(&self, inside: &Path) -> io::Result<Walked> {
        let mut walked =
            Walked { names: Vec::new(), handle: Some(self.top()?), missing: false, givers: BTreeSet::new() };
        let mut rest: VecDeque<OsString> = parts(inside).collect();
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            if part == ".." {
                walked.names.pop();
                walked.handle = match self.plain(&join(&walked.names), OFlags::empty()) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                    found => Some(found?),
                };
                continue;
            }
            let next = match &walked.handle {
                None => None,
                Some(folder) => match calls::open_path(folder, Path::new(&part), OFlags::empty()) {
                    Err(Errno::NOENT | Errno::NOTDIR) => None,
                    next => Some(next?),
                },
            };
            let stat = next.as_ref().map(calls::look_at).transpose()?;
            if let (Some(link), Some(stat)) = (&next, stat.filter(is_link)) {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                walked.givers.insert((stat.st_uid, stat.st_gid));
                let target = PathBuf::from(calls::link_text(link)?);
                if target.is_absolute() {
                    walked.names.clear();
                    walked.handle = Some(self.top()?);
                }
                parts(&target).collect::<Vec<_>>().into_iter().rev().for_each(|part| rest.push_front(part));
                continue;
            }
            walked.names.push(part);
            walked.missing |= next.is_none();
            walked.handle = next;
        }
        Ok(walked)
    }
}

impl Spot {
    /// Another name in the same folder.
    pub fn beside(&self, name: impl Into<OsString>) -> Self {
        Self { folder: Arc::clone(&self.folder), name: name.into() }
    }

    /// What is there, a link for itself.
    pub fn look(&self) -> io::Result<Option<Stat>> {
        match calls::look(&self.folder, &self.name) {
            Err(Errno::NOENT) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Opens it to be read, without waiting; not through a link.
    pub fn open(&self, more: OFlags) -> io::Result<OwnedFd> {
        Ok(calls::open_to_read(&self.folder, &self.name, more)?)
    }

    /// A name is on the platter only when its folder is.
    pub fn flush(&self) -> io::Result<()> {
        let folder = calls::open_to_read(&self.folder, OsStr::new("."), OFlags::DIRECTORY)?;
        Ok(calls::flush(folder)?)
    }
}

/// What is not there is no error, nor what only links in a circle lead to.
fn unless_absent(found: io::Result<bool>) -> io::Result<bool> {
    match found {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Ok(false),
        found => found,
    }
}

/// A kernel, or a container's filter, without openat2.
fn is_unknown(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::PERM | Errno::AGAIN)
}

pub(crate) fn is_file(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
}

pub(crate) fn is_dir(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Directory
}

fn is_link(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Symlink
}

/// The path from the root's folder on.
fn relative(inside: &Path) -> &Path {
    match inside.strip_prefix("/").unwrap_or(inside) {
        top if top.as_os_str().is_empty() => Path::new("."),
        below => below,
    }
}

fn join(names: &[OsString]) -> PathBuf {
    names.iter().fold(PathBuf::from("/"), |path, name| path.join(name))
}

/// Names and `..`.
fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_os_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::faults::OldKernel;
    use std::os::unix::fs::symlink;

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("home/u")).unwrap();
        std::fs::create_dir_all(folder.path().join("dots")).unwrap();
        std::fs::write(folder.path().join("dots/bashrc"), "x").unwrap();
        symlink("/dots/bashrc", folder.path().join("home/u/.bashrc")).unwrap();
        symlink("../../../../../dots", folder.path().join("home/u/up")).unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        folder
    }

    #[test]
    fn links_stay_inside() {
        let folder = tree();
        let root = Root::new(folder.path()).unwrap();
        let resolved = |path: &str| root.resolve(Path::new(path)).unwrap();
        assert_eq!(resolved("/home/u/.bashrc"), Path::new("/dots/bashrc"));
        assert_eq!(resolved("/home/u/up/bashrc"), Path::new("/dots/bashrc"));
        assert_eq!(resolved("/home/u/up/new/file"), Path::new("/dots/new/file"));
        assert_eq!(resolved("/../etc/../x"), Path::new("/x"));
        assert!(root.resolve(Path::new("/a")).is_err());
        let link = root.resolve_parent(Path::new("/home/u/.bashrc")).unwrap();
        assert_eq!(link, Path::new("/home/u/.bashrc"));
    }

    /// What each way of looking says, as the kernel walks and as we do.
    #[test]
    fn both_walks_say_the_same() {
        let folder = tree();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "y").unwrap();
        symlink(outside.path(), folder.path().join("out")).unwrap();
        symlink(format!("../../..{}", outside.path().display()), folder.path().join("dots/out")).unwrap();
        rustix::fs::mknodat(CWD, folder.path().join("fifo"), FileType::Fifo, 0o600.into(), 0).unwrap();
        let root = Root::new(folder.path()).unwrap();
        let paths = [
            "/",
            ".",
            "home/u/.bashrc",
            "/home/u/up/bashrc",
            "/home/u/up",
            "/a",
            "/out/secret",
            "/dots/out/secret",
        ];
        let paths =
            paths.into_iter().chain(["/fifo", "/dots/bashrc/x", "/none/..", "/home/../dots", "/none"]);
        for path in paths.map(Path::new) {
            let told = || {
                let look = root.look(path).map(|found| found.map(|found| found.st_ino));
                (
                    root.stat(path).map(|found| found.st_ino).ok(),
                    root.open(path).is_ok(),
                    root.names(path).ok().map(BTreeSet::from_iter),
                    root.link(path).ok(),
                    look.map_err(|e| e.raw_os_error()),
                )
            };
            let new = told();
            let _old = OldKernel::begin();
            assert_eq!(new, told(), "{}", path.display());
            let leads_out = path.ends_with("secret") || path == Path::new("/fifo");
            assert!(!leads_out || !new.1, "{}", path.display());
        }
        assert!(root.spot(Path::new("/home/../dots/x")).is_err());
        assert!(root.spot(Path::new("/out/x")).is_err());
    }
}
