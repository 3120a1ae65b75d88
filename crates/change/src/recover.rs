//! Taking back what was cut short, from wherever it stopped.

use super::BESIDE;
use super::disk;
use super::error::ChangeError;
use super::journal::{Manifest, Stage, Step};
use super::plan::read;
use super::session::{Session, beside};
use super::undo::longest;
use crate::root::Spot;
use std::io;
use std::path::{Path, PathBuf};

impl Session<'_> {
    pub(super) fn recover(&mut self) -> Result<(), ChangeError> {
        for (id, stage) in self.journal.all()? {
            match stage {
                Stage::Done => {}
                Stage::New | Stage::Gone => self.journal.forget(id, stage)?,
                Stage::Pending => {
                    let manifest = self.journal.read(id, stage)?;
                    self.take_back(id, &manifest)?;
                    self.recovered.push(manifest);
                }
            }
        }
        Ok(())
    }

    /// Takes back a pending change, wherever it stopped. May itself be cut short and done again.
    pub(super) fn take_back(&self, id: u64, manifest: &Manifest) -> Result<(), ChangeError> {
        for (k, step) in manifest.steps.iter().enumerate().rev() {
            match step {
                Step::Write { path, .. } if self.folder_is_gone(path)? => {}
                Step::Write { path, before, after } => {
                    let spot = self.spot(path)?;
                    let (staged, back) = (beside(&spot, id, k, "new"), beside(&spot, id, k, "back"));
                    remove_if_there(&back).map_err(ChangeError::io("remove", path))?;
                    // A file whose new version still lies beside it was not replaced.
                    if remove_if_there(&staged).map_err(ChangeError::io("remove", path))? {
                        continue;
                    }
                    // Nor was one that is not kept under its other name, or still stands under both.
                    if let Some(kept) = manifest.kept(path)
                        && (!self.exists(kept)? || self.is_same_file(path, kept)?)
                    {
                        continue;
                    }
                    let change = (id, Stage::Pending);
                    let before = self.journal.contents(change, k, "before", *before)?;
                    let after = self.journal.contents(change, k, "after", *after)?;
                    let now = read(&self.store.root, path, longest(&before, &after))?;
                    let wanted = match super::undo::restored(&now, &before, &after) {
                        Some(wanted) => wanted,
                        None => {
                            // Deleted by the user: nothing to keep, but theirs to say.
                            if now.is_some() || !self.force {
                                self.set_aside(path, self.journal.copy(id, Stage::Pending, k, "before"))?;
                            }
                            before
                        }
                    };
                    if wanted == now {
                        continue;
                    }
                    match wanted {
                        None => disk::remove_file(&spot).map_err(ChangeError::io("remove", path))?,
                        Some((bytes, meta)) => disk::write(&back, &bytes, meta, Some(&spot))
                            .and_then(|written| disk::replace(&back, &spot, written))
                            .map_err(ChangeError::io("restore", path))?,
                    }
                }
                Step::MakeFolder { path, .. } => self.remove_if_empty(path)?,
                Step::RemoveFolder { path, .. } if self.exists(path)? => {}
                Step::RemoveFolder { path, meta } => disk::make_folder(&self.spot(path)?, *meta)
                    .map_err(ChangeError::io("restore the folder", path))?,
                Step::Move { from, to } => self.move_back(id, from, to)?,
            }
        }
        self.journal.rename(id, Stage::Pending, Stage::Gone)?;
        self.journal.forget(id, Stage::Gone)
    }

    fn move_back(&self, id: u64, from: &Path, to: &Path) -> Result<(), ChangeError> {
        // Only we use names like these, so they tell whether the move was done; at the other end there may be
        // a file of the user's by now.
        let ours = to.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(BESIDE.as_bytes()));
        let done = if ours { self.exists(to)? } else { !self.exists(from)? };
        if !done {
            return Ok(());
        }
        if !self.exists(to)? {
            let path = self.journal.shown(id, Stage::Pending);
            let why = format!("{} is gone from {} as well", from.display(), to.display());
            return Err(ChangeError::Journal { path, why });
        }
        if self.is_same_file(from, to)? {
            return disk::remove_file(&self.spot(to)?).map_err(ChangeError::io("remove", to));
        }
        if self.exists(from)? {
            self.set_aside(from, self.store.root.host(to))?;
        }
        disk::move_to(&self.spot(to)?, &self.spot(from)?).map_err(ChangeError::io("move back", from))
    }

    /// Puts the user's own version of `path` out of the way, if that is allowed.
    fn set_aside(&self, path: &Path, before: PathBuf) -> Result<(), ChangeError> {
        let name = self.set_aside_name(path, before)?;
        disk::move_to(&self.spot(path)?, &self.spot(&name)?).map_err(ChangeError::io("keep", path))
    }

    /// A free name beside `path` for the user's version, if we may move it.
    pub(super) fn set_aside_name(&self, path: &Path, before: PathBuf) -> Result<PathBuf, ChangeError> {
        if !self.force {
            return Err(ChangeError::Conflict { path: path.into(), before });
        }
        let mut n = 1u32;
        loop {
            let mut name = path.file_name().unwrap_or_default().to_os_string();
            name.push(format!(".yours-{n}"));
            let name = path.with_file_name(name);
            if !self.exists(&name)? {
                return Ok(name);
            }
            n += 1;
        }
    }

    /// Somebody's file in a folder of ours keeps the folder.
    pub(super) fn remove_if_empty(&self, path: &Path) -> Result<(), ChangeError> {
        let gone = |kind| matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        let spot = match self.store.root.spot(path) {
            Err(e) if gone(e.kind()) => return Ok(()),
            spot => spot.map_err(ChangeError::io("open the folder of", path))?,
        };
        match disk::remove_folder(&spot) {
            Err(e) if !gone(e.kind()) && e.kind() != io::ErrorKind::DirectoryNotEmpty => {
                Err(ChangeError::io("remove the folder", path)(e))
            }
            _ => Ok(()),
        }
    }
}

fn remove_if_there(spot: &Spot) -> io::Result<bool> {
    match disk::remove_file(spot) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}
