//! Carrying out plans: all of one or nothing, whatever happens in between.

use super::BESIDE;
use super::disk::{self, Identity};
use super::error::ChangeError;
use super::journal::{Journal, Lock, Manifest, Stage, Step};
use super::plan::{ChangePlan, Planned, read};
use super::rights::Rights;
use super::store::Store;
use super::{LIBRARY, TEXT};
use crate::root::Spot;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The right to change files.
pub struct Session<'s> {
    pub(super) store: &'s Store,
    pub(super) journal: Journal,
    pub(super) force: bool,
    pub(super) recovered: Vec<Manifest>,
    pub(super) _lock: Lock,
    /// Given back last.
    pub(super) _rights: Rights,
}

impl Store {
    /// Keeps other processes out, and takes back whatever was cut short; with `force` even where the user edited
    /// the same lines since (their version is kept beside).
    ///
    /// # Errors
    /// Another process holds the lock for longer than `deadline`; what was cut short cannot be taken back; a journal
    /// that others could have written.
    pub fn lock(&self, deadline: Duration, force: bool) -> Result<Session<'_>, ChangeError> {
        heed_limits();
        let rights = self.rights()?;
        let journal = Journal::make(&self.root, &self.folder)?;
        let lock = Lock::take(&journal, deadline)?;
        let mut session =
            Session { store: self, journal, force, recovered: Vec::new(), _lock: lock, _rights: rights };
        session.recover()?;
        Ok(session)
    }
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
    pub fn apply(&self, plan: &ChangePlan) -> Result<Option<u64>, ChangeError> {
        if plan.is_empty() {
            return Ok(None);
        }
        let id = self.journal.next()?;
        let steps = plan.steps.iter().enumerate().map(|(k, p)| self.settled(id, k, p));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        self.unchanged(plan, &steps)?;
        let manifest = Manifest {
            format: 1,
            title: plan.title.clone(),
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            undoes: plan.undoes,
            steps,
            then: plan.then.clone(),
        };
        let done = self.prepare(id, &manifest, plan).and_then(|()| self.carry_out(id, &manifest, plan));
        let Err(cause) = done else { return Ok(Some(id)) };
        let taken_back = (|| {
            if self.journal.is_at(id, Stage::Done)? {
                // Only the very last flush failed.
                return Ok(true);
            }
            match self.journal.is_at(id, Stage::Pending)? {
                true => self.take_back(id, &manifest)?,
                false => self.journal.forget(id, Stage::New)?,
            }
            Ok(false)
        })();
        match taken_back {
            Ok(true) => Ok(Some(id)),
            Ok(false) => Err(cause),
            Err(ChangeError::Io { path, reason, .. }) => {
                let store = self.journal.path.clone();
                Err(ChangeError::Stuck { cause: cause.to_string(), path, reason, store })
            }
            Err(other) => Err(other),
        }
    }

    /// The step with the place to which a removed file goes: the store, or beside itself on another file system.
    fn settled(&self, id: u64, k: usize, planned: &Planned) -> Result<Step, ChangeError> {
        let Step::Move { from, to } = &planned.step else { return Ok(planned.step.clone()) };
        if !to.as_os_str().is_empty() {
            return Ok(planned.step.clone());
        }
        let (parked, there) = self.journal.parked()?;
        let found = self.store.root.look(from).map_err(ChangeError::io("look at", from))?;
        let near = found.is_some_and(|found| found.st_dev == there.st_dev);
        let to = if near { &parked } else { from.parent().unwrap_or(from) };
        Ok(Step::Move { from: from.clone(), to: to.join(format!("{BESIDE}{id}-{k}-removed")) })
    }

    /// Is everything still as the plan saw it?
    fn unchanged(&self, plan: &ChangePlan, steps: &[Step]) -> Result<(), ChangeError> {
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
                    let length = planned.before.as_ref().map_or(0, |bytes| bytes.len() as u64);
                    (path, read(&self.store.root, path, TEXT.max(length).min(LIBRARY))? == expected)
                }
                Step::MakeFolder { path, .. } => (path, !self.exists(path)?),
                Step::Move { from, to } => (from, self.exists(from)? && (freed(to) || !self.exists(to)?)),
                Step::RemoveFolder { path, .. } => (path, true),
            };
            if !same {
                return Err(ChangeError::Changed(path.clone()));
            }
        }
        Ok(())
    }

    pub(super) fn exists(&self, path: &Path) -> Result<bool, ChangeError> {
        let found = self.store.root.look(path).map_err(ChangeError::io("look at", path))?;
        Ok(found.is_some())
    }

    /// Two names of one file: it has been linked, and not replaced yet.
    pub(super) fn is_same_file(&self, one: &Path, other: &Path) -> Result<bool, ChangeError> {
        let file = |path: &Path| {
            let found = self.store.root.look(path).map_err(ChangeError::io("look at", path))?;
            Ok(found.map(|found| Identity::from(&found)))
        };
        let (one, other): (Option<_>, Option<_>) = (file(one)?, file(other)?);
        Ok(one.is_some() && one == other)
    }

    /// The user removed the whole folder (a virtual environment, say): nothing of ours is left in it.
    pub(super) fn folder_is_gone(&self, path: &Path) -> Result<bool, ChangeError> {
        path.parent().map_or(Ok(false), |folder| Ok(!self.exists(folder)?))
    }

    /// The name `path`, by its folder's handle.
    pub(super) fn spot(&self, path: &Path) -> Result<Spot, ChangeError> {
        self.store.root.spot(path).map_err(ChangeError::io("open the folder of", path))
    }

    /// Writes down what will be done, before anything is touched.
    fn prepare(&self, id: u64, manifest: &Manifest, plan: &ChangePlan) -> Result<(), ChangeError> {
        let text = serde_json::to_vec_pretty(manifest).map_err(|e| ChangeError::Journal {
            path: self.journal.shown(id, Stage::New),
            why: e.to_string(),
        })?;
        let mut files: Vec<(String, &[u8])> = Vec::new();
        for (k, planned) in plan.steps.iter().enumerate() {
            for (when, contents) in [("before", &planned.before), ("after", &planned.after)] {
                files.extend(contents.as_ref().map(|bytes| (format!("{k}.{when}"), bytes.as_slice())));
            }
        }
        files.push(("manifest.json".into(), &text));
        self.journal.write(id, &files)?;
        self.journal.rename(id, Stage::New, Stage::Pending)
    }

    /// Does the steps. All that needs space is written beside its place before the first file is replaced.
    fn carry_out(&self, id: u64, manifest: &Manifest, plan: &ChangePlan) -> Result<(), ChangeError> {
        for step in &manifest.steps {
            if let Step::MakeFolder { path, meta } = step {
                disk::make_folder(&self.spot(path)?, *meta)
                    .map_err(ChangeError::io("make the folder", path))?;
            }
        }
        let mut written = vec![None; manifest.steps.len()];
        for (k, (step, planned)) in manifest.steps.iter().zip(&plan.steps).enumerate() {
            if let (Step::Write { path, after: Some(meta), .. }, Some(bytes)) = (step, &planned.after) {
                let spot = self.spot(path)?;
                let new = disk::write(&beside(&spot, id, k, "new"), bytes, *meta, Some(&spot));
                written[k] = Some((new.map_err(ChangeError::io("write", path))?, spot));
            }
        }
        for (k, step) in manifest.steps.iter().enumerate() {
            match step {
                Step::MakeFolder { .. } => {}
                Step::Write { path, after: Some(_), .. } => {
                    let Some((new, spot)) = &written[k] else { continue };
                    disk::replace(&beside(spot, id, k, "new"), spot, *new)
                        .map_err(ChangeError::io("replace", path))?;
                }
                // What is moved to its place replaces it.
                Step::Write { path, after: None, .. } if manifest.moves_to(path) => {}
                Step::Write { path, after: None, .. } => {
                    disk::remove_file(&self.spot(path)?).map_err(ChangeError::io("remove", path))?;
                }
                Step::Move { from, to } => {
                    let (old, new) = (self.spot(from)?, self.spot(to)?);
                    let moved = if manifest.writes(from) {
                        // The old file keeps its name until the new one takes it, where there are such links.
                        disk::link(&old, &new).or_else(|e| self.move_unless_linked(&old, &new, e))
                    } else if manifest.removes(to) {
                        disk::move_over(&old, &new)
                    } else {
                        disk::move_to(&old, &new)
                    };
                    moved.map_err(ChangeError::io("move", from))?;
                }
                Step::RemoveFolder { path, .. } => self.remove_if_empty(path)?,
            }
        }
        self.journal.rename(id, Stage::Pending, Stage::Done)
    }

    /// Where a file cannot have a second name it is moved; where only what came after that failed, it has it.
    fn move_unless_linked(&self, old: &Spot, new: &Spot, error: std::io::Error) -> std::io::Result<()> {
        match new.look()? {
            Some(_) => Err(error),
            None => disk::move_to(old, new),
        }
    }
}

/// A file that grows beyond `ulimit -f` is an error like any other, not the end of the process.
fn heed_limits() {
    #[cfg(target_os = "linux")]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        // With a handler and not ignored: programs that are started from here get the signal back.
        ONCE.call_once(|| {
            let flag = std::sync::Arc::default();
            let _ = signal_hook::flag::register(nix::libc::SIGXFSZ, flag);
        });
    }
}

/// A hidden name in the same folder, which no shell, linker or systemd reads.
pub(super) fn beside(spot: &Spot, id: u64, k: usize, what: &str) -> Spot {
    spot.beside(format!("{BESIDE}{id}-{k}-{what}"))
}
