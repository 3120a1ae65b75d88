//! What is remembered about a change, and where: enough to take it back from any point.
//!
//! One folder a change, under the store. Its name tells how far it came, and changes in one rename:
//! `7.new` (being prepared, nothing touched), `7.pending` (files may have been touched), `7` (done),
//! `7.gone` (taken back, to be deleted).

use super::disk::Meta;
use super::error::ChangeError;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
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

/// Where changes are remembered.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    /// On this machine, not inside the root.
    pub folder: PathBuf,
}

impl Journal {
    pub fn folder(&self, id: u64, stage: Stage) -> PathBuf {
        self.folder.join(format!("{id}{}", stage.ending()))
    }

    /// Every change that left a folder, oldest first.
    pub fn all(&self) -> Result<Vec<(u64, Stage)>, ChangeError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(ChangeError::io("read", &self.folder)(e)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(ChangeError::io("read", &self.folder))?.file_name();
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

    pub fn read(&self, id: u64, stage: Stage) -> Result<Manifest, ChangeError> {
        let path = self.folder(id, stage).join("manifest.json");
        let bad = |why: String| ChangeError::Journal { path: path.clone(), why };
        let text = std::fs::read(&path).map_err(|e| bad(e.to_string()))?;
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
        match manifest.format {
            1 => Ok(manifest),
            other => Err(bad(format!("written by another wave32 (format {other}); use that one to undo"))),
        }
    }
}

/// Held while files are looked at and changed, so that two processes do not interleave.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "closing it lets go")] File);

impl Lock {
    /// Waits for the lock, `deadline` at most.
    pub fn take(folder: &Path, deadline: Duration) -> Result<Self, ChangeError> {
        let path = folder.join("lock");
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(ChangeError::io("open", &path))?;
        let begin = Instant::now();
        loop {
            match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
                Err(e) => return Err(ChangeError::io("lock", &path)(e.into())),
            }
            if begin.elapsed() >= deadline {
                let mut holder = String::new();
                let _ = (&mut file).take(32).read_to_string(&mut holder);
                let holder = holder.trim().parse::<u32>();
                let holder = holder.map_or(String::new(), |pid| format!(" (process {pid})"));
                return Err(ChangeError::Locked { holder, seconds: deadline.as_secs() });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Who holds it is for the message above only.
        let _ = file.set_len(0).and_then(|()| file.rewind());
        let _ = write!(file, "{}", std::process::id());
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
