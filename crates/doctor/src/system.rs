//! The machine as a tree of files under one root, and what only a running process knows of it.
//!
//! Every read goes through [`System`], so that a recorded tree is examined exactly as a live machine is.
//! Symbolic links stay inside the root ([`Root`]), absolute ones too. Nothing blocks: only regular files are read,
//! and only so many bytes of them.

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wave32_change::Root;

/// Name of the file at the root of a recorded tree that holds its [`Process`].
pub const MACHINE_FILE: &str = "wave32-machine.json";

/// No configuration file, log or sysfs attribute that matters is longer.
const TEXT_LIMIT: u64 = 1 << 20;

/// What the process knows and no file tells: recorded trees bring it along.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Effective user; none where it is not known.
    pub uid: Option<u32>,
    /// Groups of the process, the primary one among them.
    pub groups: Vec<u32>,
    /// Device nodes, which a recorded tree cannot hold. Not used on a live machine.
    pub devices: BTreeMap<String, Node>,
    /// Free bytes where a build would go.
    pub free_bytes: Option<u64>,
}

/// A device node's permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Permission bits, e.g. 0o660.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A root folder that cannot be examined.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// Not a folder, or not readable.
    #[error("{path}: {reason}; name the root folder of a machine, such as / or a recorded tree")]
    Root {
        /// As given.
        path: String,
        /// The system's words.
        reason: String,
    },
    /// The tree's record of its process.
    #[error("{path}: {reason}")]
    Machine {
        /// The file.
        path: String,
        /// What is wrong in it.
        reason: String,
    },
}

/// A machine to examine.
#[derive(Debug)]
pub struct System {
    /// None where it cannot be opened: then nothing is there.
    root: Option<Root>,
    /// Facts of the process.
    pub process: Process,
    /// True for the machine we run on: then device nodes, free space and drivers can be asked.
    pub live: bool,
    budget: Budget,
}

/// What may be read of large files in total.
#[derive(Debug)]
struct Budget {
    bytes: Cell<u64>,
    deadline: Cell<Option<Instant>>,
}

impl System {
    /// The running machine.
    pub fn live() -> Self {
        let env = std::env::vars_os();
        let env = env.filter_map(|(k, v)| Some((k.into_string().ok()?, v.to_string_lossy().into_owned())));
        let process = Process {
            env: env.collect(),
            uid: uid(),
            groups: groups(),
            devices: BTreeMap::new(),
            free_bytes: free_bytes(Path::new(".")),
        };
        Self::new(PathBuf::from("/"), process, true)
    }

    /// A tree recorded from some machine; `/` is the running machine.
    ///
    /// # Errors
    /// No folder there, or its record of the process cannot be read.
    pub fn at(root: &Path) -> Result<Self, RootError> {
        let fail = |reason: std::io::Error| RootError::Root {
            path: root.display().to_string(),
            reason: reason.to_string(),
        };
        let path = root.canonicalize().map_err(fail)?;
        if path == Path::new("/") {
            return Ok(Self::live());
        }
        let root = Root::new(&path).map_err(fail)?;
        root.names(Path::new("/")).map_err(fail)?;
        let process = recorded(&root).map_err(|reason| RootError::Machine {
            path: path.join(MACHINE_FILE).display().to_string(),
            reason,
        })?;
        Ok(Self::of(Some(root), process, false))
    }

    /// A root with given facts of the process, for tests.
    pub fn new(root: PathBuf, process: Process, live: bool) -> Self {
        Self::of(Root::new(&root).ok(), process, live)
    }

    fn of(root: Option<Root>, process: Process, live: bool) -> Self {
        let budget = Budget { bytes: Cell::new(u64::MAX), deadline: Cell::new(None) };
        Self { root, process, live, budget }
    }

    /// Bounds what [`System::grant`] hands out from now on.
    pub fn limit(&self, bytes: u64, time: Duration) {
        self.budget.bytes.set(bytes);
        self.budget.deadline.set(Instant::now().checked_add(time));
    }

    /// Asks for leave to read that much of a large file.
    pub fn grant(&self, bytes: u64) -> bool {
        let left = self.budget.bytes.get();
        let in_time = self.budget.deadline.get().is_none_or(|deadline| Instant::now() < deadline);
        if bytes > left || !in_time {
            return false;
        }
        self.budget.bytes.set(left - bytes);
        true
    }

    /// Time until the limit, or a day where there is none.
    pub(crate) fn time_left(&self) -> Duration {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        self.budget.deadline.get().map_or(Duration::from_secs(86400), left)
    }

    /// An environment variable of the process, if it is set and not empty.
    pub fn env(&self, name: &str) -> Option<&str> {
        self.process.env.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// The user's home folder.
    pub fn home(&self) -> Option<&str> {
        self.env("HOME").filter(|h| h.starts_with('/'))
    }

    /// The path with every symbolic link followed, as seen inside the root.
    pub fn resolve(&self, path: &str) -> Option<String> {
        let root = self.root.as_ref()?;
        let real = root.resolve(Path::new(path)).ok()?;
        root.look(&real).ok()??;
        real.into_os_string().into_string().ok()
    }

    /// A file's text, cut at a size that no configuration file has; none if it is no regular file.
    pub fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        self.open(path)?.take(TEXT_LIMIT).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A regular file, opened for reading.
    pub fn open(&self, path: &str) -> Option<File> {
        self.root.as_ref()?.open(Path::new(path)).ok()
    }

    /// A device of the running machine, opened for reading without waiting.
    pub(crate) fn open_device(&self, path: &str) -> Option<File> {
        let root = self.root.as_ref().filter(|_| self.live)?;
        root.open_device(Path::new(path)).ok()
    }

    /// Bytes of a regular file.
    pub fn size(&self, path: &str) -> Option<u64> {
        let found = self.root.as_ref()?.stat(Path::new(path)).ok()?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        u64::try_from(found.st_size).ok().filter(|_| is_file)
    }

    /// The names in a folder, sorted; none in one that is not there.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let names = self.root.as_ref().and_then(|root| root.names(Path::new(folder)).ok());
        let names = names.into_iter().flatten().filter_map(|name| name.into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// True where something is, links followed.
    pub fn exists(&self, path: &str) -> bool {
        self.root.as_ref().is_some_and(|root| root.find(Path::new(path)).is_ok())
    }

    /// True for a folder.
    pub fn is_dir(&self, path: &str) -> bool {
        self.root.as_ref().is_some_and(|root| root.is_dir(Path::new(path)).unwrap_or(false))
    }

    /// True for a regular file.
    pub fn is_file(&self, path: &str) -> bool {
        self.root.as_ref().is_some_and(|root| root.is_file(Path::new(path)).unwrap_or(false))
    }

    /// The text of a symbolic link, if the path is one.
    pub fn link(&self, path: &str) -> Option<String> {
        self.root.as_ref()?.link(Path::new(path)).ok()?.into_os_string().into_string().ok()
    }

    /// A device node's permissions.
    pub fn node(&self, path: &str) -> Option<Node> {
        if !self.live {
            return self.process.devices.get(path).copied();
        }
        let found = self.root.as_ref()?.stat(Path::new(path)).ok()?;
        Some(Node { mode: found.st_mode & 0o7777, uid: found.st_uid, gid: found.st_gid })
    }

    /// Names of device nodes in a folder of `/dev`.
    pub fn nodes(&self, folder: &str) -> Vec<String> {
        if self.live {
            return self.names(folder);
        }
        let prefix = format!("{folder}/");
        let names = self.process.devices.keys().filter_map(|path| path.strip_prefix(&prefix));
        names.filter(|name| !name.contains('/')).map(String::from).collect()
    }

    /// Whether the process may read and write a device; none where the user is not known.
    pub fn may_use(&self, node: Node) -> Option<bool> {
        let uid = self.process.uid?;
        let bits = if uid == 0 {
            6
        } else if uid == node.uid {
            node.mode >> 6
        } else if self.process.groups.contains(&node.gid) {
            node.mode >> 3
        } else {
            node.mode
        };
        Some(bits & 6 == 6)
    }
}

impl wave32_cards::sysfs::Files for System {
    fn text(&self, path: &str) -> Option<String> {
        self.text(path)
    }

    fn names(&self, folder: &str) -> Vec<String> {
        self.names(folder)
    }
}

/// What the tree records of its process. Nothing, where it has no such file.
fn recorded(root: &Root) -> Result<Process, String> {
    let file = match root.open(&Path::new("/").join(MACHINE_FILE)) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Process::default()),
        file => file.map_err(|e| e.to_string())?,
    };
    let mut text = Vec::new();
    file.take(TEXT_LIMIT + 1).read_to_end(&mut text).map_err(|e| e.to_string())?;
    if text.len() as u64 > TEXT_LIMIT {
        return Err(format!("it is longer than {} MiB", TEXT_LIMIT >> 20));
    }
    serde_json::from_slice(&text).map_err(|e| e.to_string())
}

fn uid() -> Option<u32> {
    Some(rustix::process::geteuid().as_raw())
}

fn groups() -> Vec<u32> {
    let mut groups: Vec<u32> =
        rustix::process::getgroups().unwrap_or_default().into_iter().map(|g| g.as_raw()).collect();
    groups.push(rustix::process::getegid().as_raw());
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
