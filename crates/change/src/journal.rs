//! What is remembered about a change, and where: enough to take it back from any point.
//!
//! One folder a change, under the store. Its name tells how far it came, and changes in one rename:
//! `7.new` (being prepared, nothing touched), `7.pending` (files may have been touched), `7` (done),
//! `7.gone` (taken back, to be deleted).
//!
//! What stands there is believed and done, so only its owner may have written it: a journal, a lock or a manifest of
//! somebody else's, or open to others' writing, is refused.

use super::disk::{self, Meta};
use super::error::ChangeError;
use super::{BESIDE, LIBRARY};
use crate::calls;
use crate::root::{Root, Spot, is_dir, is_file};
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One thing done to one path. Paths are those inside the root, with every link followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Step {
    /// A folder that was not there.
    MakeFolder {
        /// Where.
        #[serde(with = "path_text")]
        path: PathBuf,
        /// Its permissions.
        meta: Meta,
    },
    /// A folder that we made, if nobody put anything into it.
    RemoveFolder {
        /// Where.
        #[serde(with = "path_text")]
        path: PathBuf,
        /// Its permissions.
        meta: Meta,
    },
    /// New contents for a file; none means that there is no such file.
    Write {
        /// Where.
        #[serde(with = "path_text")]
        path: PathBuf,
        /// As it was; the contents are in the change's folder.
        before: Option<Meta>,
        /// As it shall be.
        after: Option<Meta>,
    },
    /// A file, link or folder put somewhere else as it is.
    Move {
        /// From where.
        #[serde(with = "path_text")]
        from: PathBuf,
        /// To where; nothing is there yet.
        #[serde(with = "path_text")]
        to: PathBuf,
    },
}

/// A change as it is written to the disk before anything is touched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Of this file; 1.
    pub format: u32,
    /// What the change is for, in words.
    pub title: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The change that this one takes back.
    pub undoes: Option<u64>,
    /// In the order in which they are done.
    pub steps: Vec<Step>,
    /// Commands that were to be run once all of it was done; they are no part of what is taken back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<String>,
}

impl Manifest {
    /// Is a new file put at `path`?
    pub(super) fn writes(&self, at: &Path) -> bool {
        self.steps.iter().any(|s| matches!(s, Step::Write { path, after: Some(_), .. } if path == at))
    }

    /// Is the file at `path` taken away?
    pub(super) fn removes(&self, at: &Path) -> bool {
        self.steps.iter().any(|s| matches!(s, Step::Write { path, after: None, .. } if path == at))
    }

    /// Where the file goes that is moved away from `path`.
    pub(super) fn kept(&self, path: &Path) -> Option<&Path> {
        self.steps.iter().find_map(|s| match s {
            Step::Move { from, to } if from == path => Some(to.as_path()),
            _ => None,
        })
    }

    /// Is another file moved to `path`?
    pub(super) fn moves_to(&self, path: &Path) -> bool {
        self.steps.iter().any(|s| matches!(s, Step::Move { to, .. } if to == path))
    }
}

/// How far a change came; the ending of its folder's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    New,
    Pending,
    Done,
    Gone,
}

impl Stage {
    const ALL: [Self; 4] = [Self::New, Self::Pending, Self::Done, Self::Gone];

    fn ending(self) -> &'static str {
        match self {
            Self::New => ".new",
            Self::Pending => ".pending",
            Self::Done => "",
            Self::Gone => ".gone",
        }
    }
}

/// Where changes are remembered: a folder of the acting user's, opened through no link.
#[derive(Debug)]
pub(super) struct Journal {
    folder: Arc<OwnedFd>,
    /// Inside the root, links followed.
    pub inside: PathBuf,
    /// Its name outside, to be shown.
    pub path: PathBuf,
}

/// A manifest is some KiB long.
const LONGEST_MANIFEST: u64 = 16 << 20;
/// Where removed files go.
const PARKED: &str = "parked";
const LOCK: &str = "lock";

impl Journal {
    /// The journal at `folder` (inside the root); nothing where there is none.
    pub fn find(root: &Root, folder: &Path) -> Result<Option<Self>, ChangeError> {
        let path = root.host(folder);
        let failed = |e| ChangeError::io("open", &path)(e);
        let inside = root.resolve(folder).map_err(failed)?;
        if root.look(&inside).map_err(failed)?.is_none() {
            return Ok(None);
        }
        let spot = root.spot(&inside).map_err(failed)?;
        let around = calls::look_at(&spot.folder).map_err(|e| failed(e.into()))?;
        if let Some(parent) = path.parent() {
            trusted(parent, &around)?;
        }
        let folder = Arc::new(open_folder(&spot, &path)?);
        Ok(Some(Self { folder, inside, path }))
    }

    /// The journal at `folder`, made where there is none, and private.
    pub fn make(root: &Root, folder: &Path) -> Result<Self, ChangeError> {
        let path = root.host(folder);
        let failed = |e| ChangeError::io("make the folder", &path)(e);
        let inside = root.resolve(folder).map_err(failed)?;
        let missing = || -> std::io::Result<()> {
            let above: Vec<&Path> = inside.ancestors().filter(|above| above.file_name().is_some()).collect();
            for above in above.into_iter().rev() {
                if root.look(above)?.is_none() {
                    let spot = root.spot(above)?;
                    let mode = if above == inside { 0o700 } else { 0o755 };
                    match calls::make_folder(&spot.folder, &spot.name, mode) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(e) => return Err(e.into()),
                    }
                }
            }
            Ok(())
        };
        missing().map_err(failed)?;
        let journal = Self::find(root, folder)?.ok_or(std::io::ErrorKind::NotFound.into()).map_err(failed)?;
        let mode = calls::look_at(&journal.folder).map_err(|e| failed(e.into()))?.st_mode & 0o7777;
        if mode != 0o700 {
            // Ours, and never open to others' writing: wave32 used to leave the rest to the umask.
            calls::permit(&journal.folder, 0o700).map_err(|e| failed(e.into()))?;
        }
        match calls::make_folder(&journal.folder, OsStr::new(PARKED), 0o700) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(failed(e.into())),
        }
        open_folder(&journal.spot(PARKED), &journal.path.join(PARKED))?;
        Ok(journal)
    }

    fn spot(&self, name: impl Into<OsString>) -> Spot {
        Spot { folder: Arc::clone(&self.folder), name: name.into() }
    }

    /// Where removed files go, and what is known of that folder.
    pub fn parked(&self) -> Result<(PathBuf, Stat), ChangeError> {
        let found = calls::look(&self.folder, OsStr::new(PARKED));
        let found = found.map_err(|e| ChangeError::io("look at", &self.path.join(PARKED))(e.into()))?;
        Ok((self.inside.join(PARKED), found))
    }

    fn name(id: u64, stage: Stage) -> String {
        format!("{id}{}", stage.ending())
    }

    /// What the change's folder is called outside, to be shown.
    pub fn shown(&self, id: u64, stage: Stage) -> PathBuf {
        self.path.join(Self::name(id, stage))
    }

    /// Every change that left a folder, oldest first.
    pub fn all(&self) -> Result<Vec<(u64, Stage)>, ChangeError> {
        let names =
            calls::open_to_read(&self.folder, OsStr::new("."), OFlags::DIRECTORY).and_then(calls::names);
        let mut found = Vec::new();
        for name in names.map_err(|e| ChangeError::io("read", &self.path)(e.into()))? {
            let Some(name) = name.to_str() else { continue };
            let digits = name.trim_end_matches(|c: char| !c.is_ascii_digit());
            let stage = Stage::ALL.into_iter().find(|stage| stage.ending() == &name[digits.len()..]);
            if let (Ok(id), Some(stage)) = (digits.parse(), stage) {
                found.push((id, stage));
            }
        }
        found.sort_unstable_by_key(|&(id, _)| id);
        Ok(found)
    }

    /// The number of the next change.
    pub fn next(&self) -> Result<u64, ChangeError> {
        let last = self.all()?.last().map_or(0, |&(id, _)| id);
        last.checked_add(1).ok_or_else(|| ChangeError::Journal {
            path: self.shown(last, Stage::Done),
            why: "there is no number after this one, so it is none that wave32 gave".into(),
        })
    }

    /// Has the change come that far?
    pub fn is_at(&self, id: u64, stage: Stage) -> Result<bool, ChangeError> {
        let found = self.spot(Self::name(id, stage)).look();
        Ok(found.map_err(ChangeError::io("look at", &self.shown(id, stage)))?.is_some())
    }

    /// A file of a change; nothing else than our own regular file.
    fn file(&self, id: u64, stage: Stage, name: &str, limit: u64) -> Result<Vec<u8>, ChangeError> {
        let shown = self.shown(id, stage);
        let folder = open_folder(&self.spot(Self::name(id, stage)), &shown)?;
        let path = shown.join(name);
        let bad = |why: String| ChangeError::Journal { path: path.clone(), why };
        let file = calls::open_to_read(&folder, OsStr::new(name), OFlags::empty());
        let file = file.map_err(|e| bad(std::io::Error::from(e).to_string()))?;
        let found = calls::look_at(&file).map_err(|e| ChangeError::io("look at", &path)(e.into()))?;
        if !is_file(&found) {
            return Err(bad("it is no regular file".into()));
        }
        trusted(&path, &found)?;
        let size = u64::try_from(found.st_size).unwrap_or(u64::MAX);
        if size > limit {
            return Err(bad(format!("it is longer than {} MiB", limit >> 20)));
        }
        calls::read(&file, size).map_err(|e| ChangeError::io("read", &path)(e.into()))
    }

    /// What is written of a change.
    pub fn read(&self, id: u64, stage: Stage) -> Result<Manifest, ChangeError> {
        let text = self.file(id, stage, "manifest.json", LONGEST_MANIFEST)?;
        let bad = |why: String| {
            Err(ChangeError::Journal { path: self.shown(id, stage).join("manifest.json"), why })
        };
        let manifest: Manifest = match serde_json::from_slice(&text) {
            Ok(manifest) => manifest,
            Err(e) => return bad(e.to_string()),
        };
        match manifest.format {
            1 => manifest.checked().or_else(bad),
            other => bad(format!("written by another wave32 (format {other}); use that one to undo")),
        }
    }

    /// Where the contents of step `k` of a change are kept, to be shown.
    pub fn copy(&self, id: u64, stage: Stage, k: usize, when: &str) -> PathBuf {
        self.shown(id, stage).join(format!("{k}.{when}"))
    }

    /// The file of step `k` as it was before, or shall be after.
    pub fn contents(
        &self,
        (id, stage): (u64, Stage),
        k: usize,
        when: &str,
        meta: Option<Meta>,
    ) -> Result<Option<(Vec<u8>, Meta)>, ChangeError> {
        let Some(meta) = meta else { return Ok(None) };
        Ok(Some((self.file(id, stage, &format!("{k}.{when}"), LIBRARY)?, meta)))
    }

    /// Makes the folder of a new change with these files.
    pub fn write(&self, id: u64, files: &[(String, &[u8])]) -> Result<(), ChangeError> {
        let shown = self.shown(id, Stage::New);
        let spot = self.spot(Self::name(id, Stage::New));
        let made = || -> std::io::Result<Spot> {
            calls::make_folder(&spot.folder, &spot.name, 0o700)?;
            let folder = spot.open(OFlags::DIRECTORY)?;
            Ok(Spot { folder: Arc::new(folder), name: OsString::new() })
        };
        let folder = made().map_err(ChangeError::io("make the folder", &shown))?;
        // Private, as old contents may be.
        let found =
            calls::look_at(&folder.folder).map_err(|e| ChangeError::io("look at", &shown)(e.into()))?;
        let meta = Meta { mode: 0o600, ..Meta::from(&found) };
        for (name, bytes) in files {
            disk::write(&folder.beside(name), bytes, meta, None)
                .map_err(ChangeError::io("write", &shown.join(name)))?;
        }
        calls::flush(&folder.folder).map_err(|e| ChangeError::io("write", &shown)(e.into()))
    }

    /// Tells that a change came further.
    pub fn rename(&self, id: u64, from: Stage, to: Stage) -> Result<(), ChangeError> {
        disk::move_to(&self.spot(Self::name(id, from)), &self.spot(Self::name(id, to)))
            .map_err(ChangeError::io("write", &self.shown(id, to)))
    }

    /// Deletes what is remembered of a change.
    pub fn forget(&self, id: u64, stage: Stage) -> Result<(), ChangeError> {
        let shown = self.shown(id, stage);
        let spot = self.spot(Self::name(id, stage));
        if spot.look().map_err(ChangeError::io("look at", &shown))?.is_none() {
            return Ok(());
        }
        let folder = Arc::new(open_folder(&spot, &shown)?);
        let names = calls::open_to_read(&folder, OsStr::new("."), OFlags::DIRECTORY).and_then(calls::names);
        for name in names.map_err(|e| ChangeError::io("read", &shown)(e.into()))? {
            let path = shown.join(&name);
            disk::remove_file(&Spot { folder: Arc::clone(&folder), name })
                .map_err(ChangeError::io("remove", &path))?;
        }
        disk::remove_folder(&spot).map_err(ChangeError::io("remove", &shown))
    }
}

/// Opens a folder of the journal that nobody else could have written to.
fn open_folder(spot: &Spot, path: &Path) -> Result<OwnedFd, ChangeError> {
    let found = spot.look().map_err(ChangeError::io("look at", path))?;
    if found.is_some_and(|found| !is_dir(&found)) {
        let why = "is no folder".into();
        return Err(ChangeError::Untrusted { path: path.into(), why, next: "move it out of the way".into() });
    }
    let folder = spot.open(OFlags::DIRECTORY).map_err(ChangeError::io("open", path))?;
    trusted(path, &calls::look_at(&folder).map_err(|e| ChangeError::io("look at", path)(e.into()))?)?;
    Ok(folder)
}

/// Could only the acting user, or root, have written this?
fn trusted(path: &Path, found: &Stat) -> Result<(), ChangeError> {
    let own = rustix::process::geteuid().as_raw();
    let shown = path.display();
    let (why, next) = if found.st_uid != own && found.st_uid != 0 {
        let why = format!("belongs to user {}, not to user {own}", found.st_uid);
        (why, format!("if all of it is yours, `sudo chown -R {own} {shown}`; else move it away"))
    } else if found.st_mode & 0o022 != 0 {
        let why = format!("may be written to by others (its mode is {:o})", found.st_mode & 0o7777);
        (
            why,
            format!(
                "see that nobody else put anything there, then `chmod -R go-w {shown}`; else move it away"
            ),
        )
    } else {
        return Ok(());
    };
    Err(ChangeError::Untrusted { path: path.into(), why, next })
}

impl Manifest {
    /// The manifest, if it is one that wave32 writes: paths that lead down from the root, permission bits that are
    /// such, moves to and from names of ours.
    fn checked(self) -> Result<Self, String> {
        let leads_down = |path: &Path| {
            let mut parts = path.components();
            parts.next() == Some(Component::RootDir)
                && path.file_name().is_some()
                && parts.all(|part| matches!(part, Component::Normal(_)))
                && !path.as_os_str().as_encoded_bytes().contains(&0)
        };
        let is_ours = |path: &Path| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            name.starts_with(BESIDE.as_bytes()) || name.windows(7).any(|part| part == b".yours-")
        };
        for (k, step) in self.steps.iter().enumerate() {
            let (paths, metas, well) = match step {
                Step::MakeFolder { path, meta } | Step::RemoveFolder { path, meta } => {
                    (vec![path], vec![meta], true)
                }
                Step::Write { path, before, after } => {
                    (vec![path], before.iter().chain(after).collect(), before.is_some() || after.is_some())
                }
                Step::Move { from, to } => (vec![from, to], vec![], is_ours(from) || is_ours(to)),
            };
            if let Some(path) = paths.into_iter().find(|path| !leads_down(path)) {
                return Err(format!(
                    "its step {k} names {}, which leads to no file below the root",
                    path.display()
                ));
            }
            if !well || metas.into_iter().any(|meta| meta.mode & !0o7777 != 0) {
                return Err(format!("its step {k} is none that wave32 takes"));
            }
        }
        Ok(self)
    }
}

/// Held while files are looked at and changed, so that two processes do not interleave.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "closing it lets go")] OwnedFd);

impl Lock {
    /// Waits for the lock, `deadline` at most. A link in its place is not followed, and nothing is written into what is
    /// not ours.
    pub fn take(journal: &Journal, deadline: Duration) -> Result<Self, ChangeError> {
        let path = journal.path.join(LOCK);
        let untrusted = |why: &str| {
            let next = format!("see what it is, then `rm {}`", path.display());
            Err(ChangeError::Untrusted { path: path.clone(), why: why.into(), next })
        };
        let file = match calls::open_lock(&journal.folder, OsStr::new(LOCK)) {
            Err(Errno::LOOP) => return untrusted("is a symbolic link"),
            Err(Errno::ISDIR) => return untrusted("is a folder"),
            other => other.map_err(|e| ChangeError::io("open", &path)(e.into()))?,
        };
        let found = calls::look_at(&file).map_err(|e| ChangeError::io("look at", &path)(e.into()))?;
        if !is_file(&found) || found.st_nlink > 1 {
            return untrusted("is no file of its own");
        }
        trusted(&path, &found)?;
        let begin = Instant::now();
        loop {
            match calls::lock(&file) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) => {}
                Err(e) => return Err(ChangeError::io("lock", &path)(e.into())),
            }
            if begin.elapsed() >= deadline {
                let holder = calls::read(&file, 32).unwrap_or_default();
                let holder = String::from_utf8_lossy(&holder).trim().parse::<u32>();
                let holder = holder.map_or(String::new(), |pid| format!(" (process {pid})"));
                return Err(ChangeError::Locked { holder, seconds: deadline.as_secs() });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Who holds it is for the message above only.
        let _ =
            calls::cut(&file).and_then(|()| calls::write(&file, std::process::id().to_string().as_bytes()));
        Ok(Self(file))
    }
}

/// Paths as text where they are text; otherwise byte by byte.
mod path_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Text {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        let text = match path.to_str() {
            Some(text) => Text::Text(text.into()),
            None => Text::Bytes(path.as_os_str().as_bytes().into()),
        };
        text.serialize(serializer)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(match Text::deserialize(deserializer)? {
            Text::Text(text) => PathBuf::from(text),
            Text::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        })
    }
}
