//! Where changes are remembered, and whose they are.

use super::error::ChangeError;
use super::journal::{Journal, Manifest, Stage, Step};
use super::rights::Rights;
use crate::root::Root;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The folder that remembers changes, and the root under which they are made.
#[derive(Debug)]
pub struct Store {
    pub(super) root: Root,
    /// Inside the root.
    pub(super) folder: PathBuf,
    /// Inside the root.
    home: Option<PathBuf>,
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
    /// Commands that belonged to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<String>,
}

impl Store {
    /// The store in `folder` (inside the root), which need not be there yet.
    #[must_use]
    pub fn new(root: Root, folder: impl Into<PathBuf>) -> Self {
        Self { root, folder: folder.into(), home: None }
    }

    /// The store of the user whose home is `home` (inside the root): root then works with that user's rights.
    #[must_use]
    pub fn of(self, home: impl Into<PathBuf>) -> Self {
        Self { home: Some(home.into()), ..self }
    }

    /// The root of all paths.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The user and group whose changes these are: of whoever owns the home, or, where none is told, the place of the
    /// journal.
    fn owner(&self) -> Result<(u32, u32), ChangeError> {
        let place = self.home.as_ref().unwrap_or(&self.folder);
        let (real, givers) = self.root.trail(place).map_err(ChangeError::io("find", place))?;
        // Who made a link to it says where it is.
        if let Some(giver) = givers.into_iter().find(|&(uid, _)| uid != 0) {
            return Ok(giver);
        }
        let owner = self.root.nearest(&real).map_err(ChangeError::io("look at", place))?;
        Ok((owner.st_uid, owner.st_gid))
    }

    pub(super) fn rights(&self) -> Result<Rights, ChangeError> {
        let (uid, gid) = self.owner()?;
        Rights::of(uid, gid).map_err(ChangeError::io("take the rights of the owner of", &self.folder))
    }

    /// Is `path` root's, and this the store of another user, as whom root would not be let at it?
    ///
    /// # Errors
    /// The path that cannot be read, and why.
    pub fn is_below(&self, path: &std::path::Path) -> Result<bool, ChangeError> {
        let theirs = self.root.nearest(path).map_err(ChangeError::io("look at", path))?.st_uid;
        Ok(rustix::process::geteuid().is_root() && theirs == 0 && self.owner()?.0 != 0)
    }

    fn journal(&self) -> Result<Option<Journal>, ChangeError> {
        Journal::find(&self.root, &self.folder)
    }

    /// Changes that were made here, oldest first; those that only took others back are left out.
    ///
    /// # Errors
    /// The journal cannot be read, or others could have written it.
    pub fn history(&self) -> Result<Vec<Made>, ChangeError> {
        let _rights = self.rights()?;
        self.journal()?.map_or(Ok(Vec::new()), |journal| history(&journal))
    }

    /// Where the files are now that changes put out of the way and that were not put back.
    ///
    /// # Errors
    /// The journal cannot be read, or others could have written it.
    pub fn put_away(&self) -> Result<BTreeSet<PathBuf>, ChangeError> {
        let _rights = self.rights()?;
        let mut away = BTreeSet::new();
        let Some(journal) = self.journal()? else { return Ok(away) };
        for (id, _) in journal.all()?.into_iter().filter(|&(_, stage)| stage == Stage::Done) {
            for step in journal.read(id, Stage::Done)?.steps {
                if let Step::Move { from, to } = step {
                    away.remove(&from);
                    away.insert(to);
                }
            }
        }
        Ok(away)
    }

    /// Was a change cut short here, by a crash or loss of power? The next command that changes files takes it back.
    ///
    /// # Errors
    /// The journal cannot be read, or others could have written it.
    pub fn interrupted(&self) -> Result<Option<Manifest>, ChangeError> {
        let _rights = self.rights()?;
        let Some(journal) = self.journal()? else { return Ok(None) };
        let pending = journal.all()?.into_iter().find(|&(_, stage)| stage == Stage::Pending);
        pending.map(|(id, stage)| journal.read(id, stage)).transpose()
    }
}

/// See [`Store::history`].
pub(super) fn history(journal: &Journal) -> Result<Vec<Made>, ChangeError> {
    let mut made: Vec<Made> = Vec::new();
    for (id, stage) in journal.all()? {
        if stage != Stage::Done {
            continue;
        }
        let Manifest { title, created, undoes, then, .. } = journal.read(id, stage)?;
        match undoes {
            Some(undone) => made.iter_mut().filter(|m| m.id == undone).for_each(|m| m.undone = true),
            None => made.push(Made { id, title, created, undone: false, then }),
        }
    }
    Ok(made)
}
