//! What shall change: made by reading only, shown as a diff, carried out elsewhere.

use super::disk::Meta;
use super::error::ChangeError;
use super::journal::Step;
use super::{LIBRARY, TEXT};
use crate::calls;
use crate::root::{Root, is_dir, is_file};
use diffy::DiffOptions;
use rustix::fs::OFlags;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// One step with the contents it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    pub step: Step,
    /// The file's contents, for [`Step::Write`].
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
    /// The user's own version, to be kept under this name.
    pub note: Option<String>,
}

/// A list of changes, to be carried out together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePlan {
    pub(super) title: String,
    pub(super) undoes: Option<u64>,
    pub(super) steps: Vec<Planned>,
    pub(super) then: Vec<String>,
}

impl ChangePlan {
    /// Nothing to do? (To take back what somebody has taken back by hand is to be written down, at least.)
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.then.is_empty() && self.undoes.is_none()
    }

    /// The steps, for programs.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().map(|planned| &planned.step)
    }

    /// Commands to run once the files are changed; whoever carries out the plan runs them.
    #[must_use]
    pub fn then(&self) -> &[String] {
        &self.then
    }

    /// The changes as a unified diff, with paths and contents made safe for a terminal.
    #[must_use]
    pub fn diff(&self) -> String {
        let mut out = String::new();
        if self.steps.is_empty() && self.undoes.is_some() {
            out += "(nothing is left of it; it will be marked as undone)\n";
        }
        for Planned { step, before, after, note } in &self.steps {
            let _ = match step {
                Step::MakeFolder { path, .. } => writeln!(out, "new folder {}", shown(path)),
                Step::RemoveFolder { path, .. } => {
                    writeln!(out, "remove folder {} if it is empty", shown(path))
                }
                Step::Move { from, to } => writeln!(out, "move {} to {}", shown(from), shown(to)),
                Step::Write { path, .. } => {
                    let name =
                        |contents: &Option<_>| contents.as_ref().map_or("/dev/null".into(), |_| shown(path));
                    writeln!(out, "--- {}\n+++ {}", name(before), name(after)).and_then(|()| {
                        if let Some(bytes) = [after, before].into_iter().flatten().find(|b| is_binary(b)) {
                            let what = if after.is_some() { "put" } else { "removed" };
                            return writeln!(out, "({} bytes that are no text, {what})", bytes.len());
                        }
                        let old = readable(before.as_deref().unwrap_or_default());
                        let new = readable(after.as_deref().unwrap_or_default());
                        let patch = DiffOptions::new().create_patch(&old, &new).to_string();
                        // Its own header names no files.
                        let start = patch.find("@@").unwrap_or(patch.len());
                        out.write_str(&patch[start..])
                    })
                }
            };
            if let Some(note) = note {
                let _ = writeln!(out, "({note})");
            }
        }
        for command in &self.then {
            let _ = writeln!(out, "then run: {command}");
        }
        out
    }
}

/// A plan in the making. Later edits of a file see earlier ones.
#[derive(Debug)]
pub struct Draft<'r> {
    root: &'r Root,
    plan: ChangePlan,
}

impl<'r> Draft<'r> {
    /// An empty plan; `title` tells what it is for.
    #[must_use]
    pub fn new(root: &'r Root, title: impl Into<String>) -> Self {
        Self {
            root,
            plan: ChangePlan { title: title.into(), undoes: None, steps: Vec::new(), then: Vec::new() },
        }
    }

    /// Gives `path` the contents that `edit` makes of the present ones (none: no such file). Links are followed;
    /// folders on the way are made. A new file gets `mode`; one that is there keeps its own.
    ///
    /// # Errors
    /// What cannot be read, what is no plain file, and what `edit` refuses.
    pub fn edit(
        &mut self,
        path: &Path,
        mode: u32,
        edit: impl FnOnce(Option<&[u8]>) -> Result<Vec<u8>, ChangeError>,
    ) -> Result<(), ChangeError> {
        self.edit_up_to(path, mode, TEXT, edit)
    }

    /// Gives the library at `path`, which may be longer than what a person writes, these contents.
    ///
    /// # Errors
    /// As [`Draft::edit`].
    pub fn edit_library(&mut self, path: &Path, contents: &[u8]) -> Result<(), ChangeError> {
        self.edit_up_to(path, 0o644, LIBRARY, |_| Ok(contents.to_vec()))
    }

    fn edit_up_to(
        &mut self,
        path: &Path,
        mode: u32,
        limit: u64,
        edit: impl FnOnce(Option<&[u8]>) -> Result<Vec<u8>, ChangeError>,
    ) -> Result<(), ChangeError> {
        let real = self.real(path)?;
        let earlier = self.plan.steps.iter().position(
            |planned| matches!(&planned.step, Step::Write { path, after: Some(_), .. } if *path == real),
        );
        if let Some(index) = earlier {
            let planned = &mut self.plan.steps[index];
            planned.after = Some(edit(planned.after.as_deref())?);
            return Ok(());
        }
        // A plan that wants a file and something below it could not be carried out.
        let clash = self.plan.steps.iter().find_map(|planned| match &planned.step {
            Step::MakeFolder { path, .. } if *path == real => Some(path),
            Step::Write { path, .. } if real.starts_with(path) => Some(path),
            _ => None,
        });
        if let Some(path) = clash {
            let (why, next) =
                ("would be both file and folder".into(), "choose other places with --to".into());
            return Err(ChangeError::Refused { path: path.clone(), why, next });
        }
        let (before, meta) = match read(self.root, &real, limit)? {
            Some((bytes, meta)) => (Some(bytes), Some(meta)),
            None => (None, None),
        };
        let after = edit(before.as_deref())?;
        if before.as_ref() == Some(&after) {
            return Ok(());
        }
        let new = match meta {
            Some(meta) => meta,
            None => self.folders(&real)?.with_mode(mode),
        };
        self.plan.steps.push(Planned {
            step: Step::Write { path: real, before: meta, after: Some(new) },
            before,
            after: Some(after),
            note: None,
        });
        Ok(())
    }

    /// Gives line `number` (from 1) of `path` other words, if it still is `expected`.
    ///
    /// # Errors
    /// It is not, or belongs to a command of several lines; what [`Draft::edit`] refuses.
    pub fn replace_line(
        &mut self,
        path: &Path,
        number: usize,
        expected: &str,
        new: &str,
    ) -> Result<(), ChangeError> {
        self.edit(path, 0o644, |old| {
            let mut lines: Vec<&[u8]> = old.unwrap_or_default().split_inclusive(|&b| b == b'\n').collect();
            let plain =
                |line: &[u8]| String::from_utf8_lossy(line).trim_end_matches(['\n', '\r']).to_string();
            let index = number.wrapping_sub(1);
            let before = index.checked_sub(1).and_then(|i| lines.get(i)).map(|line| plain(line));
            let refused = |why: String| {
                let next = format!("edit it by hand: {expected}");
                Err(ChangeError::Refused { path: path.into(), why, next })
            };
            let Some(line) = lines.get(index).filter(|line| plain(line) == expected) else {
                return refused(format!("line {number} is no longer what it was"));
            };
            if expected.ends_with('\\') || before.is_some_and(|before| before.ends_with('\\')) {
                return refused(format!("line {number} is part of a longer command"));
            }
            let end = &line[expected.len().min(line.len())..];
            let new = [new.as_bytes(), end].concat();
            lines[index] = &new;
            Ok(lines.concat())
        })
    }

    /// Takes `path` away, whatever it is: a link stands for itself. It is kept until the change is forgotten.
    ///
    /// # Errors
    /// The path that cannot be read, and why.
    pub fn remove(&mut self, path: &Path) -> Result<(), ChangeError> {
        let real = self.real_name(path)?;
        if self.root.look(&real).map_err(ChangeError::io("look at", path))?.is_none() {
            return Ok(());
        }
        // Where it goes is settled when the change has a number.
        let step = Step::Move { from: real, to: PathBuf::new() };
        self.plan.steps.push(Planned { step, before: None, after: None, note: None });
        Ok(())
    }

    /// A command to run once the files are changed. One that is in the plan already comes last.
    pub fn then(&mut self, command: impl Into<String>) {
        let command = command.into();
        self.plan.then.retain(|other| *other != command);
        self.plan.then.push(command);
    }

    /// Puts a file with these contents in the place of `path`, which is kept as it is, to the inode, under the name
    /// `kept` (beginning with `.wave32-`) in the same folder. At no time is there no file at `path`, where the file
    /// system has hard links; whoever has the old one open keeps it.
    ///
    /// # Errors
    /// The path that is not a regular file.
    pub fn replace(&mut self, path: &Path, kept: &Path, contents: Vec<u8>) -> Result<(), ChangeError> {
        let real = self.real_name(path)?;
        let kept = self.real_name(kept)?;
        let found = self.root.look(&real).map_err(ChangeError::io("look at", &real))?;
        let found = found.ok_or(io::ErrorKind::NotFound.into()).map_err(ChangeError::io("look at", &real))?;
        if !is_file(&found) {
            let (why, next) = ("is no plain file".into(), "name the folder that it leads to".into());
            return Err(ChangeError::Refused { path: real, why, next });
        }
        let meta = self.folders(&real)?.with_mode(Meta::from(&found).mode);
        let plain = |step, after| Planned { step, before: None, after, note: None };
        self.plan.steps.push(plain(Step::Move { from: real.clone(), to: kept }, None));
        let write = Step::Write { path: real, before: None, after: Some(meta) };
        self.plan.steps.push(plain(write, Some(contents)));
        Ok(())
    }

    /// Takes back a [`Draft::replace`]: what stands at `path`, if anything, gives way to what was kept.
    ///
    /// # Errors
    /// The file that cannot be read, and why.
    pub fn put_back(&mut self, kept: &Path, path: &Path) -> Result<(), ChangeError> {
        let real = self.real_name(path)?;
        let kept = self.real_name(kept)?;
        if let Some((bytes, meta)) = read(self.root, &real, LIBRARY)? {
            let step = Step::Write { path: real.clone(), before: Some(meta), after: None };
            self.plan.steps.push(Planned { step, before: Some(bytes), after: None, note: None });
        }
        let step = Step::Move { from: kept, to: real };
        self.plan.steps.push(Planned { step, before: None, after: None, note: None });
        Ok(())
    }

    /// The plan.
    #[must_use]
    pub fn finish(mut self) -> ChangePlan {
        self.plan
            .steps
            .retain(|planned| !matches!(planned.step, Step::Write { .. }) || planned.before != planned.after);
        self.plan
    }

    /// The file that `path` names, links followed. Root follows a user's links to that user's own files only.
    fn real(&self, path: &Path) -> Result<PathBuf, ChangeError> {
        let (real, givers) = self.root.trail(path).map_err(ChangeError::io("find", path))?;
        if rustix::process::geteuid().is_root() && givers.iter().any(|&(giver, _)| giver != 0) {
            let owner = self.root.nearest(&real).map_err(ChangeError::io("look at", &real))?.st_uid;
            if let Some((giver, _)) = givers.into_iter().find(|&(giver, _)| giver != 0 && giver != owner) {
                let why =
                    format!("is led by a link of user {giver} to {}, which is not theirs", real.display());
                let next = "name the file itself, or run the command as that user".into();
                return Err(ChangeError::Refused { path: path.into(), why, next });
            }
        }
        Ok(real)
    }

    /// Like [`Draft::real`], but a link in the last place stands for itself.
    fn real_name(&self, path: &Path) -> Result<PathBuf, ChangeError> {
        match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) => Ok(self.real(folder)?.join(name)),
            _ => Err(ChangeError::io("find", path)(io::Error::other("names no file"))),
        }
    }

    /// Plans the folders that `path` needs and that are not there; the owner that new files get there.
    fn folders(&mut self, path: &Path) -> Result<Meta, ChangeError> {
        let mut missing = Vec::new();
        let mut owner = None;
        for folder in path.ancestors().skip(1) {
            match self.root.look(folder).map_err(ChangeError::io("look at", folder))? {
                Some(found) if is_dir(&found) => {
                    owner = Some(Meta::from(&found));
                    break;
                }
                Some(_) => {
                    let (why, next) = ("is no folder".into(), "move it out of the way".into());
                    return Err(ChangeError::Refused { path: folder.into(), why, next });
                }
                None => missing.push(folder.to_path_buf()),
            }
        }
        let owner = owner.unwrap_or(Meta { mode: 0o755, uid: 0, gid: 0 });
        // Only root can give files away; everybody else's are their own.
        let owner = match rustix::process::geteuid() {
            uid if uid.is_root() => owner,
            uid => Meta { mode: 0, uid: uid.as_raw(), gid: rustix::process::getegid().as_raw() },
        };
        for path in missing.into_iter().rev() {
            let planned = self.plan.steps.iter();
            if planned
                .clone()
                .any(|p| matches!(&p.step, Step::MakeFolder { path: made, .. } if *made == path))
            {
                continue;
            }
            let step = Step::MakeFolder { path, meta: owner.with_mode(0o755) };
            self.plan.steps.push(Planned { step, before: None, after: None, note: None });
        }
        Ok(owner)
    }
}

/// The file at `real` (links followed already) and its permissions; nothing if it is not there.
pub(super) fn read(root: &Root, real: &Path, limit: u64) -> Result<Option<(Vec<u8>, Meta)>, ChangeError> {
    let refused = |why: &str, next: &str| {
        Err(ChangeError::Refused { path: real.into(), why: why.into(), next: next.into() })
    };
    let plain = "move it out of the way, or choose another place with --to";
    match root.look(real).map_err(ChangeError::io("look at", real))? {
        None => return Ok(None),
        // What is none is not opened.
        Some(found) if !is_file(&found) => return refused("is no plain file", plain),
        Some(_) => {}
    }
    let open = root.spot(real).and_then(|spot| spot.open(OFlags::empty()));
    let file = open.map_err(ChangeError::io("read", real))?;
    // What is opened may be another one by now.
    let found = calls::look_at(&file).map_err(|e| ChangeError::io("look at", real)(e.into()))?;
    if !is_file(&found) {
        return refused("is no plain file", plain);
    }
    if found.st_nlink > 1 {
        let next =
            "replacing one would part it from the others: put the output of `wave32 env` there by hand";
        return refused("has several names (hard links)", next);
    }
    let too_long =
        || refused(&format!("is longer than {} MiB", limit >> 20), "see what it is, and change it by hand");
    if u64::try_from(found.st_size).is_ok_and(|size| size > limit) {
        return too_long();
    }
    // It may grow meanwhile.
    let bytes = calls::read(&file, limit + 1).map_err(|e| ChangeError::io("read", real)(e.into()))?;
    if bytes.len() as u64 > limit {
        return too_long();
    }
    Ok(Some((bytes, Meta::from(&found))))
}

/// What has a zero byte is no text: it is neither shown nor merged line by line.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    memchr::memchr(0, bytes).is_some()
}

/// A path as one line.
fn shown(path: &Path) -> String {
    readable(path.as_os_str().as_encoded_bytes()).replace('\n', "\\n").replace('\t', "\\t")
}

/// Text without anything that a terminal would obey.
fn readable(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' | '\t' => out.push(c),
                c if c.is_control() => out.extend(c.escape_default()),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

impl Meta {
    fn with_mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }
}
