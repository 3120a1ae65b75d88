//! Carrying out plans: all of one or nothing, whatever happens in between.

use super::disk::{Disk, Meta, RealDisk};
use super::error::ChangeError;
use super::journal::{Journal, Lock, Manifest, Stage, Step};
use super::plan::{Plan, Planned, read};
use super::root::Root;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The folder that remembers changes, and the disk on which they are made.
pub struct Store {
    pub(super) root: Root,
    /// Inside the root.
    folder: PathBuf,
    pub(super) journal: Journal,
    disk: Box<dyn Disk>,
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Made {
    /// Its number.
    pub id: u64,
    /// What it was for.
    pub title: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Taken back since.
    pub undone: bool,
}

impl Store {
    /// The store in `folder` (inside the root), which need not be there yet.
    #[must_use]
    pub fn new(root: Root, folder: impl Into<PathBuf>) -> Self {
        Self::with_disk(root, folder, Box::new(RealDisk))
    }

    /// A store whose files change through `disk`.
    #[must_use]
    pub fn with_disk(root: Root, folder: impl Into<PathBuf>, disk: Box<dyn Disk>) -> Self {
        let folder = folder.into();
        let journal = Journal { folder: root.host(&folder) };
        Self { root, folder, journal, disk }
    }

    /// The root of all paths.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Changes that were made here, oldest first; those that only took others back are left out.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn history(&self) -> Result<Vec<Made>, ChangeError> {
        let mut made: Vec<Made> = Vec::new();
        for (id, stage) in self.journal.all()? {
            if stage != Stage::Done {
                continue;
            }
            let Manifest { title, created, undoes, .. } = self.journal.read(id, stage)?;
            match undoes {
                Some(undone) => made.iter_mut().filter(|m| m.id == undone).for_each(|m| m.undone = true),
                None => made.push(Made { id, title, created, undone: false }),
            }
        }
        Ok(made)
    }

    /// Was a change cut short here, by a crash or loss of power? The next command that changes files takes it back.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn interrupted(&self) -> Result<Option<Manifest>, ChangeError> {
        let pending = self.journal.all()?.into_iter().find(|&(_, stage)| stage == Stage::Pending);
        pending.map(|(id, stage)| self.journal.read(id, stage)).transpose()
    }

    /// Keeps other processes out, and takes back whatever was cut short; with `force` even where the user edited
    /// the same lines since (their version is kept beside).
    ///
    /// # Errors
    /// Another process holds the lock for longer than `deadline`; what was cut short cannot be taken back.
    pub fn lock(&self, deadline: Duration, force: bool) -> Result<Session<'_>, ChangeError> {
        let parked = self.journal.folder.join("parked");
        self.make_folders(&parked).map_err(ChangeError::io("make the folder", &parked))?;
        let lock = Lock::take(&self.journal.folder, deadline)?;
        let path = self.journal.folder.join("lock");
        give(&path, &self.journal.folder).map_err(ChangeError::io("give away", &path))?;
        let mut session = Session { store: self, _lock: lock, force, recovered: Vec::new() };
        session.recover()?;
        Ok(session)
    }

    /// Makes `folder` and what is missing above it, as its parent's owner: root may work in a user's home.
    fn make_folders(&self, folder: &Path) -> io::Result<()> {
        let Some(parent) = folder.parent().filter(|_| !folder.is_dir()) else { return Ok(()) };
        self.make_folders(parent)?;
        std::fs::create_dir(folder).or_else(|e| if folder.is_dir() { Ok(()) } else { Err(e) })?;
        give(folder, parent)
    }

    /// Where the contents of step `k` of a change are kept.
    pub(super) fn copy(&self, id: u64, stage: Stage, k: usize, when: &str) -> PathBuf {
        self.journal.folder(id, stage).join(format!("{k}.{when}"))
    }

    /// The file of step `k` as it was before, or shall be after.
    pub(super) fn contents(
        &self,
        (id, stage): (u64, Stage),
        k: usize,
        when: &str,
        meta: Option<Meta>,
    ) -> Result<Option<(Vec<u8>, Meta)>, ChangeError> {
        let Some(meta) = meta else { return Ok(None) };
        let path = self.copy(id, stage, k, when);
        let bytes = std::fs::read(&path).map_err(ChangeError::io("read", &path))?;
        Ok(Some((bytes, meta)))
    }
}

/// The right to change files.
pub struct Session<'s> {
    pub(super) store: &'s Store,
    _lock: Lock,
    pub(super) force: bool,
    recovered: Vec<Manifest>,
}

impl Session<'_> {
    /// The store of this session.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.store
    }

    /// The changes that were cut short and are now taken back.
    #[must_use]
    pub fn recovered(&self) -> &[Manifest] {
        &self.recovered
    }

    /// Carries out a plan; its number, or nothing if there was nothing to do.
    ///
    /// # Errors
    /// Any; then every file is as it was, unless the error is [`ChangeError::Stuck`].
    pub fn apply(&self, plan: &Plan) -> Result<Option<u64>, ChangeError> {
        if plan.is_empty() {
            return Ok(None);
        }
        let id = self.store.journal.all()?.last().map_or(1, |&(id, _)| id + 1);
        let steps = plan.steps.iter().enumerate().map(|(k, p)| self.settled(id, k, p));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        self.unchanged(plan, &steps)?;
        let manifest = Manifest {
            format: 1,
            title: plan.title.clone(),
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            undoes: plan.undoes,
            steps,
        };
        let done = self.prepare(id, &manifest, plan).and_then(|()| self.carry_out(id, &manifest, plan));
        let Err(cause) = done else { return Ok(Some(id)) };
        let journal = &self.store.journal;
        if journal.folder(id, Stage::Done).exists() {
            // Only the very last flush failed.
            return Ok(Some(id));
        }
        let taken_back = match journal.folder(id, Stage::Pending).exists() {
            true => self.take_back(id, &manifest),
            false => self.forget(id, Stage::New),
        };
        Err(match taken_back {
            Ok(()) => cause,
            Err(ChangeError::Io { path, reason, .. }) => {
                ChangeError::Stuck { cause: cause.to_string(), path, reason, store: journal.folder.clone() }
            }
            Err(other) => other,
        })
    }

    /// The step with the place to which a removed file goes: the store, or beside itself on another file system.
    fn settled(&self, id: u64, k: usize, planned: &Planned) -> Result<Step, ChangeError> {
        let Step::Move { from, to } = &planned.step else { return Ok(planned.step.clone()) };
        if !to.as_os_str().is_empty() {
            return Ok(planned.step.clone());
        }
        let device =
            |path: &Path| path.symlink_metadata().map(|m| m.dev()).map_err(ChangeError::io("look at", path));
        let store = self.store;
        let parked = device(&store.journal.folder.join("parked"))?;
        let near = parked == device(&store.root.host(from))?;
        let to = if near { store.folder.join("parked") } else { from.parent().unwrap_or(from).into() };
        Ok(Step::Move { from: from.clone(), to: to.join(format!(".wave32-{id}-{k}-removed")) })
    }

    /// Is everything still as the plan saw it?
    fn unchanged(&self, plan: &Plan, steps: &[Step]) -> Result<(), ChangeError> {
        let freed = |path: &Path| {
            steps.iter().any(|step| match step {
                Step::Move { from, .. } => from == path,
                Step::Write { path: removed, after: None, .. } => removed == path,
                _ => false,
            })
        };
        for (planned, step) in plan.steps.iter().zip(steps) {
            let (path, same) = match step {
                // What is put in the place of a file that is kept under another name.
                Step::Write { path, before: None, .. } if freed(path) => (path, true),
                Step::Write { path, before, .. } => {
                    let expected = planned.before.clone().zip(*before);
                    (path, read(&self.store.root, path)? == expected)
                }
                Step::MakeFolder { path, .. } => (path, !self.exists(path)),
                Step::Move { from, to } => (from, self.exists(from) && (freed(to) || !self.exists(to))),
                Step::RemoveFolder { path, .. } => (path, true),
            };
            if !same {
                return Err(ChangeError::Changed(path.clone()));
            }
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        self.store.root.host(path).symlink_metadata().is_ok()
    }

    /// Two names of one file: it has been linked, and not replaced yet.
    fn is_same_file(&self, one: &Path, other: &Path) -> bool {
        let inode = |path: &Path| self.store.root.host(path).symlink_metadata().map(|m| (m.dev(), m.ino()));
        matches!((inode(one), inode(other)), (Ok(one), Ok(other)) if one == other)
    }

    /// The user removed the whole folder (a virtual environment, say): nothing of ours is left in it.
    pub(super) fn folder_is_gone(&self, path: &Path) -> bool {
        path.parent().is_some_and(|folder| !self.exists(folder))
    }

    /// Writes down what will be done, before anything is touched.
    fn prepare(&self, id: u64, manifest: &Manifest, plan: &Plan) -> Result<(), ChangeError> {
        let (store, disk) = (self.store, &*self.store.disk);
        let new = store.journal.folder(id, Stage::New);
        let folder = &store.journal.folder;
        let found = folder.metadata().map_err(ChangeError::io("look at", folder))?;
        // Private, as old contents may be.
        let owner = |mode| Meta { mode, ..Meta::from(&found) };
        let write = |path: PathBuf, bytes: &[u8]| {
            disk.write(&path, bytes, owner(0o600), None).map_err(ChangeError::io("write", &path))
        };
        disk.make_folder(&new, owner(0o700)).map_err(ChangeError::io("make the folder", &new))?;
        for (k, planned) in plan.steps.iter().enumerate() {
            for (when, contents) in [("before", &planned.before), ("after", &planned.after)] {
                if let Some(bytes) = contents {
                    write(store.copy(id, Stage::New, k, when), bytes)?;
                }
            }
        }
        let text = serde_json::to_vec_pretty(manifest)
            .map_err(|e| ChangeError::Journal { path: new.clone(), why: e.to_string() })?;
        write(new.join("manifest.json"), &text)?;
        self.rename_change(id, Stage::New, Stage::Pending)
    }

    /// Does the steps. All that needs space is written beside its place before the first file is replaced.
    fn carry_out(&self, id: u64, manifest: &Manifest, plan: &Plan) -> Result<(), ChangeError> {
        let (root, disk) = (&self.store.root, &*self.store.disk);
        for step in &manifest.steps {
            if let Step::MakeFolder { path, meta } = step {
                disk.make_folder(&root.host(path), *meta)
                    .map_err(ChangeError::io("make the folder", path))?;
            }
        }
        for (k, (step, planned)) in manifest.steps.iter().zip(&plan.steps).enumerate() {
            if let (Step::Write { path, after: Some(meta), .. }, Some(bytes)) = (step, &planned.after) {
                let host = root.host(path);
                disk.write(&beside(&host, id, k, "new"), bytes, *meta, Some(&host))
                    .map_err(ChangeError::io("write", path))?;
            }
        }
        for (k, step) in manifest.steps.iter().enumerate() {
            match step {
                Step::MakeFolder { .. } => {}
                Step::Write { path, after: Some(_), .. } => {
                    let host = root.host(path);
                    disk.replace(&beside(&host, id, k, "new"), &host)
                        .map_err(ChangeError::io("replace", path))?;
                }
                // What is moved to its place replaces it.
                Step::Write { path, after: None, .. } if manifest.moves_to(path) => {}
                Step::Write { path, after: None, .. } => {
                    disk.remove_file(&root.host(path)).map_err(ChangeError::io("remove", path))?;
                }
                Step::Move { from, to } => {
                    let (old, new) = (root.host(from), root.host(to));
                    let moved = if manifest.writes(from) {
                        // The old file keeps its name until the new one takes it, where there are such links.
                        disk.link(&old, &new).or_else(|_| disk.move_to(&old, &new))
                    } else if manifest.removes(to) {
                        disk.replace(&old, &new)
                    } else {
                        disk.move_to(&old, &new)
                    };
                    moved.map_err(ChangeError::io("move", from))?;
                }
                Step::RemoveFolder { path, .. } => self.remove_if_empty(path)?,
            }
        }
        self.rename_change(id, Stage::Pending, Stage::Done)
    }

    fn recover(&mut self) -> Result<(), ChangeError> {
        for (id, stage) in self.store.journal.all()? {
            match stage {
                Stage::Done => {}
                Stage::New | Stage::Gone => self.forget(id, stage)?,
                Stage::Pending => {
                    let manifest = self.store.journal.read(id, stage)?;
                    self.take_back(id, &manifest)?;
                    self.recovered.push(manifest);
                }
            }
        }
        Ok(())
    }

    /// Takes back a pending change, wherever it stopped. May itself be cut short and done again.
    fn take_back(&self, id: u64, manifest: &Manifest) -> Result<(), ChangeError> {
        let (root, disk) = (&self.store.root, &*self.store.disk);
        for (k, step) in manifest.steps.iter().enumerate().rev() {
            match step {
                Step::Write { path, .. } if self.folder_is_gone(path) => {}
                Step::Write { path, before, after } => {
                    let host = root.host(path);
                    let (staged, back) = (beside(&host, id, k, "new"), beside(&host, id, k, "back"));
                    self.remove_if_there(&back)?;
                    // A file whose new version still lies beside it was not replaced.
                    if self.remove_if_there(&staged)? {
                        continue;
                    }
                    // Nor was one that is not kept under its other name, or still stands under both.
                    if manifest
                        .kept(path)
                        .is_some_and(|kept| !self.exists(kept) || self.is_same_file(path, kept))
                    {
                        continue;
                    }
                    let change = (id, Stage::Pending);
                    let before = self.store.contents(change, k, "before", *before)?;
                    let after = self.store.contents(change, k, "after", *after)?;
                    let now = read(root, path)?;
                    let wanted = match super::undo::restored(&now, &before, &after) {
                        Some(wanted) => wanted,
                        None => {
                            // Deleted by the user: nothing to keep, but theirs to say.
                            if now.is_some() || !self.force {
                                self.set_aside(path, self.store.copy(id, Stage::Pending, k, "before"))?;
                            }
                            before
                        }
                    };
                    if wanted == now {
                        continue;
                    }
                    match wanted {
                        None => disk.remove_file(&host).map_err(ChangeError::io("remove", path))?,
                        Some((bytes, meta)) => disk
                            .write(&back, &bytes, meta, Some(&host))
                            .and_then(|()| disk.replace(&back, &host))
                            .map_err(ChangeError::io("restore", path))?,
                    }
                }
                Step::MakeFolder { path, .. } => self.remove_if_empty(path)?,
                Step::RemoveFolder { path, meta } if !self.exists(path) => disk
                    .make_folder(&root.host(path), *meta)
                    .map_err(ChangeError::io("restore the folder", path))?,
                Step::RemoveFolder { .. } => {}
                Step::Move { from, to } => self.move_back(id, from, to)?,
            }
        }
        self.rename_change(id, Stage::Pending, Stage::Gone)?;
        self.forget(id, Stage::Gone)
    }

    fn move_back(&self, id: u64, from: &Path, to: &Path) -> Result<(), ChangeError> {
        // Only we use names like these, so they tell whether the move was done; at the other end there may be
        // a file of the user's by now.
        let ours = to.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(OURS));
        let done = if ours { self.exists(to) } else { !self.exists(from) };
        if !done {
            return Ok(());
        }
        let root = &self.store.root;
        if !self.exists(to) {
            let path = self.store.journal.folder(id, Stage::Pending);
            let why = format!("{} is gone from {} as well", from.display(), to.display());
            return Err(ChangeError::Journal { path, why });
        }
        if self.is_same_file(from, to) {
            let host = root.host(to);
            return self.store.disk.remove_file(&host).map_err(ChangeError::io("remove", to));
        }
        if self.exists(from) {
            self.set_aside(from, root.host(to))?;
        }
        self.store.disk.move_to(&root.host(to), &root.host(from)).map_err(ChangeError::io("move back", from))
    }

    /// Puts the user's own version of `path` out of the way, if that is allowed.
    fn set_aside(&self, path: &Path, before: PathBuf) -> Result<(), ChangeError> {
        let name = self.set_aside_name(path, before)?;
        let (from, to) = (self.store.root.host(path), self.store.root.host(&name));
        self.store.disk.move_to(&from, &to).map_err(ChangeError::io("keep", path))
    }

    /// A free name beside `path` for the user's version, if we may move it.
    pub(super) fn set_aside_name(&self, path: &Path, before: PathBuf) -> Result<PathBuf, ChangeError> {
        if !self.force {
            return Err(ChangeError::Conflict { path: path.into(), before });
        }
        let names = (1..).map(|n| {
            let mut name = path.file_name().unwrap_or_default().to_os_string();
            name.push(format!(".yours-{n}"));
            path.with_file_name(name)
        });
        let mut free = names.filter(|name| !self.exists(name));
        Ok(free.next().unwrap_or_default())
    }

    fn rename_change(&self, id: u64, from: Stage, to: Stage) -> Result<(), ChangeError> {
        let (from, to) = (self.store.journal.folder(id, from), self.store.journal.folder(id, to));
        self.store.disk.move_to(&from, &to).map_err(ChangeError::io("write", &to))
    }

    /// Deletes what is remembered of a change.
    fn forget(&self, id: u64, stage: Stage) -> Result<(), ChangeError> {
        let folder = self.store.journal.folder(id, stage);
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(ChangeError::io("read", &folder)(e)),
        };
        let disk = &*self.store.disk;
        for entry in entries {
            let path = entry.map_err(ChangeError::io("read", &folder))?.path();
            disk.remove_file(&path).map_err(ChangeError::io("remove", &path))?;
        }
        disk.remove_folder(&folder).map_err(ChangeError::io("remove", &folder))
    }

    fn remove_if_there(&self, host: &Path) -> Result<bool, ChangeError> {
        match self.store.disk.remove_file(host) {
            Ok(()) => Ok(true),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(e) => Err(ChangeError::io("remove", host)(e)),
        }
    }

    /// Somebody's file in a folder of ours keeps the folder.
    fn remove_if_empty(&self, path: &Path) -> Result<(), ChangeError> {
        match self.store.disk.remove_folder(&self.store.root.host(path)) {
            Err(e) if !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {
                Err(ChangeError::io("remove the folder", path)(e))
            }
            _ => Ok(()),
        }
    }
}

/// Gives `path` the owner of `like`, where that is another one and we may.
fn give(path: &Path, like: &Path) -> io::Result<()> {
    let (now, like) = (path.metadata()?, like.metadata()?);
    if rustix::process::geteuid().is_root() && (now.uid(), now.gid()) != (like.uid(), like.gid()) {
        std::os::unix::fs::chown(path, Some(like.uid()), Some(like.gid()))?;
    }
    Ok(())
}

/// A hidden name in the same folder, which no shell, linker or systemd reads.
fn beside(host: &Path, id: u64, k: usize, what: &str) -> PathBuf {
    host.with_file_name(format!(".wave32-{id}-{k}-{what}"))
}

/// How names begin that nobody but we give.
const OURS: &[u8] = b".wave32-";
