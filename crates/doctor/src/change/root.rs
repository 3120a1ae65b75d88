//! A folder that stands for `/`: nothing outside it is read or written.

use std::collections::VecDeque;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Symbolic links followed before a path counts as a loop, as in Linux.
const MAX_LINKS: usize = 40;

/// The folder that every path of a plan lies under; `/` on a live system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// Takes `folder` for `/`.
    ///
    /// # Errors
    /// It is no folder.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let folder = folder.canonicalize()?;
        if folder.is_dir() { Ok(Self(folder)) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// Where `inside` (as programs under this root would name it) really is.
    #[must_use]
    pub fn host(&self, inside: &Path) -> PathBuf {
        self.0.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// The file that `inside` names once every link is followed, absolute ones within this root. What does not
    /// exist yet is taken as it is written.
    ///
    /// # Errors
    /// Links that lead in a circle, folders that may not be read.
    pub fn resolve(&self, inside: &Path) -> io::Result<PathBuf> {
        let mut found = PathBuf::from("/");
        let mut rest: VecDeque<PathBuf> = parts(inside).collect();
        let mut links = 0;
        while let Some(part) = rest.pop_front() {
            match part.components().next() {
                Some(Component::ParentDir) => {
                    found.pop();
                }
                Some(Component::Normal(name)) => {
                    let next = found.join(name);
                    let Some(target) = self.link(&next)? else {
                        found = next;
                        continue;
                    };
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(io::Error::other("symbolic links lead in a circle"));
                    }
                    if target.is_absolute() {
                        found = PathBuf::from("/");
                    }
                    for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                        rest.push_front(part);
                    }
                }
                _ => {}
            }
        }
        Ok(found)
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

    /// Where the link `inside` points to; nothing if it is no link, or not there.
    fn link(&self, inside: &Path) -> io::Result<Option<PathBuf>> {
        let host = self.host(inside);
        match host.symlink_metadata() {
            Ok(found) if found.is_symlink() => Ok(Some(host.read_link()?)),
            Ok(_) => Ok(None),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn parts(path: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    path.components().map(|part| PathBuf::from(part.as_os_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_inside() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("home/u")).unwrap();
        std::fs::create_dir_all(folder.path().join("dots")).unwrap();
        std::fs::write(folder.path().join("dots/bashrc"), "x").unwrap();
        symlink("/dots/bashrc", folder.path().join("home/u/.bashrc")).unwrap();
        symlink("../../../../../dots", folder.path().join("home/u/up")).unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
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
}
