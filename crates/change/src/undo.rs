//! Plans that take a change back, around what the user did to the files since.

use super::disk::Meta;
use super::error::ChangeError;
use super::journal::{Stage, Step};
use super::plan::{ChangePlan, Planned, is_binary, read};
use super::session::Session;
use super::{LIBRARY, TEXT};
use diffy::{DiffOptions, Line};
use std::path::Path;

pub(super) type Contents = Option<(Vec<u8>, Meta)>;

/// What a file should become when the change from `before` to `after` is taken back and it is `now`; nothing
/// if the user's edit and ours cannot be told apart.
pub(super) fn restored(now: &Contents, before: &Contents, after: &Contents) -> Option<Contents> {
    if now == after || now == before {
        return Some(before.clone());
    }
    match (now, before) {
        // Both we and the user are done with it.
        (None, None) => Some(None),
        // Deleted by the user: to bring it back or not is theirs to say.
        (None, Some(_)) => None,
        (Some((now, now_meta)), before) => {
            let bytes =
                |contents: &Contents| contents.as_ref().map_or(Vec::new(), |(bytes, _)| bytes.clone());
            let (old, new) = (bytes(before), bytes(after));
            if [now, &old, &new].into_iter().any(|bytes| is_binary(bytes)) {
                return None;
            }
            let merged = diffy::merge_bytes(&new, now, &old).ok().or_else(|| unpatched(now, &old, &new))?;
            if merged.is_empty() && before.is_none() {
                return Some(None);
            }
            // Permissions that the user gave since stay.
            let ours = after.as_ref().map(|(_, meta)| *meta);
            let meta = before.as_ref().map(|(_, meta)| *meta).filter(|_| ours == Some(*now_meta));
            Some(Some((merged, meta.unwrap_or(*now_meta))))
        }
    }
}

/// What of a file has to be read to compare it with these: a person's edits are shorter than that.
pub(super) fn longest(before: &Contents, after: &Contents) -> u64 {
    let length = |contents: &Contents| contents.as_ref().map_or(0, |(bytes, _)| bytes.len() as u64);
    TEXT.max(length(before)).max(length(after)).min(LIBRARY)
}

/// A merge takes an edit right beside ours for a conflict. It is none where the lines that we wrote are still
/// there, as we wrote them and nowhere else: those, and only those, become what they were.
fn unpatched(now: &[u8], before: &[u8], after: &[u8]) -> Option<Vec<u8>> {
    let patch = DiffOptions::new().set_context_len(0).create_patch_bytes(before, after);
    let mut done = Vec::new();
    let mut rest = now;
    for hunk in patch.hunks() {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for line in hunk.lines() {
            match line {
                Line::Context(line) => {
                    old.extend_from_slice(line);
                    new.extend_from_slice(line);
                }
                Line::Delete(line) => old.extend_from_slice(line),
                Line::Insert(line) => new.extend_from_slice(line),
            }
        }
        // Lines that we took out left no trace of where they were.
        if new.is_empty() || places(now, &new).len() != 1 {
            return None;
        }
        let place = *places(rest, &new).first()?;
        done.extend_from_slice(&rest[..place]);
        done.extend_from_slice(&old);
        rest = &rest[place + new.len()..];
        // A last line without an end, which now has the user's lines behind it.
        if !old.is_empty() && !old.ends_with(b"\n") && !rest.is_empty() {
            done.push(b'\n');
        }
    }
    done.extend_from_slice(rest);
    Some(done)
}

/// Where `lines` are in `text`: whole lines only.
fn places(text: &[u8], lines: &[u8]) -> Vec<usize> {
    let begins = |&at: &usize| at == 0 || text[at - 1] == b'\n';
    let ends = |&at: &usize| lines.ends_with(b"\n") || at + lines.len() == text.len();
    let found = (0..text.len()).filter(begins).filter(|&at| text[at..].starts_with(lines));
    found.filter(ends).collect()
}

impl Session<'_> {
    /// The plan that takes change `id` back. In a session with force, files that the user edited in the same
    /// lines are restored as well, and the user's version is kept beside them.
    ///
    /// # Errors
    /// No such change, a conflict (unless forced), files that cannot be read.
    pub fn plan_undo(&self, id: u64) -> Result<ChangePlan, ChangeError> {
        let history = super::store::history(&self.journal)?;
        let made = history.iter().find(|made| made.id == id).ok_or(ChangeError::NoSuchChange(id))?;
        let mut plan = ChangePlan {
            title: format!("undo: {}", made.title),
            undoes: Some(id),
            steps: Vec::new(),
            then: Vec::new(),
        };
        if made.undone {
            plan.undoes = None;
            return Ok(plan);
        }
        let manifest = self.journal.read(id, Stage::Done)?;
        for (k, step) in manifest.steps.iter().enumerate().rev() {
            let exists = |path: &Path| self.exists(path);
            let step = match step {
                Step::MakeFolder { path, .. } if !exists(path)? => continue,
                Step::MakeFolder { path, meta } => Step::RemoveFolder { path: path.clone(), meta: *meta },
                Step::RemoveFolder { path, .. } if exists(path)? => continue,
                Step::RemoveFolder { path, meta } => Step::MakeFolder { path: path.clone(), meta: *meta },
                Step::Write { path, .. } if self.folder_is_gone(path)? => continue,
                Step::Move { from, to } => {
                    if !exists(to)? {
                        let path = self.journal.shown(id, Stage::Done);
                        let why = format!("{} is no longer at {}", from.display(), to.display());
                        return Err(ChangeError::Journal { path, why });
                    }
                    // What was put in its place, and is taken away by this plan, gives way.
                    let gives_way = plan
                        .steps
                        .iter()
                        .any(|p| matches!(&p.step, Step::Write { path, after: None, .. } if path == from));
                    if !gives_way && exists(from)? {
                        let kept = self.set_aside_name(from, self.store.root.host(to))?;
                        let step = Step::Move { from: from.clone(), to: kept };
                        let note = Some("yours, kept".into());
                        plan.steps.push(Planned { step, before: None, after: None, note });
                    }
                    Step::Move { from: to.clone(), to: from.clone() }
                }
                Step::Write { path, before, after } => {
                    self.restore(&mut plan, path, (id, k), (*before, *after))?;
                    continue;
                }
            };
            plan.steps.push(Planned { step, before: None, after: None, note: None });
        }
        Ok(plan)
    }

    fn restore(
        &self,
        plan: &mut ChangePlan,
        path: &Path,
        (id, k): (u64, usize),
        (before, after): (Option<Meta>, Option<Meta>),
    ) -> Result<(), ChangeError> {
        let change = (id, Stage::Done);
        let before = self.journal.contents(change, k, "before", before)?;
        let after = self.journal.contents(change, k, "after", after)?;
        // What this plan has moved away by then is not there.
        let moved = plan.steps.iter().any(|p| matches!(&p.step, Step::Move { from, .. } if from == path));
        let limit = longest(&before, &after);
        let now = if moved { None } else { read(&self.store.root, path, limit)? };
        let wanted = match restored(&now, &before, &after) {
            Some(wanted) => wanted,
            None => {
                let copy = self.journal.copy(id, Stage::Done, k, "before");
                if let Some((bytes, meta)) = &now {
                    let kept = self.set_aside_name(path, copy)?;
                    plan.steps.push(Planned {
                        step: Step::Write { path: kept, before: None, after: Some(*meta) },
                        before: None,
                        after: Some(bytes.clone()),
                        note: Some("your version, kept".into()),
                    });
                } else if !self.force {
                    return Err(ChangeError::Conflict { path: path.into(), before: copy });
                }
                before
            }
        };
        if wanted != now {
            let (bytes, meta): (Option<_>, Option<_>) = now.unzip();
            let (new, new_meta): (Option<_>, Option<_>) = wanted.unzip();
            let step = Step::Write { path: path.into(), before: meta, after: new_meta };
            plan.steps.push(Planned { step, before: bytes, after: new, note: None });
        }
        Ok(())
    }
}
