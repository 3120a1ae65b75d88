//! What is being tried right now, on disk before it starts: after a wedged GPU, a reset or a power cycle the next
//! probe knows what did it, and does not do it again.

use crate::finding::Identity;
use crate::known::Key;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use wave32_host::file::{TABLE, read_plain};

/// The folder with one file for each attempt in flight.
#[derive(Debug)]
pub struct Quarantine {
    folder: PathBuf,
    next: u64,
}

/// One attempt in flight.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Whose results it belongs to.
    pub identity: Identity,
    /// What is tried.
    pub key: Key,
    /// Seconds since 1970.
    pub when: u64,
    owner: Owner,
}

/// A process, told apart from a later one of the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    pid: u32,
    started: Option<u64>,
    boot: Option<String>,
}

impl Owner {
    fn of(pid: u32) -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        // Field 22, counted behind the command's name, which is in parentheses and may hold anything.
        let started = stat.and_then(|s| s.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok());
        Self { pid, started, boot: boot.map(|b| b.trim().to_string()) }
    }

    fn lives(&self) -> bool {
        let now = Self::of(self.pid);
        now.started.is_some() && now == *self
    }
}

/// An attempt that is in flight until this is cleared.
#[derive(Debug)]
pub struct InFlight(PathBuf);

impl InFlight {
    /// It ended, in whatever way: the parent saw it.
    ///
    /// # Errors
    /// The error of the file system call that failed.
    pub fn clear(self) -> std::io::Result<()> {
        std::fs::remove_file(&self.0)
    }
}

impl Quarantine {
    /// The quarantine in a folder, made if needed.
    ///
    /// # Errors
    /// The error of the file system call that failed.
    pub fn open(folder: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_path_buf(), next: 0 })
    }

    /// Records an attempt; it is on the disk when this returns.
    ///
    /// # Errors
    /// The error of the file system call that failed. Then the attempt must not be made.
    pub fn enter(&mut self, identity: &Identity, key: &Key, when: u64) -> std::io::Result<InFlight> {
        let pid = std::process::id();
        let record = Record { identity: identity.clone(), key: key.clone(), when, owner: Owner::of(pid) };
        let path = self.folder.join(format!("{pid}-{when}-{}.json", self.next));
        self.next += 1;
        let mut file = File::create_new(&path)?;
        file.write_all(&serde_json::to_vec(&record)?)?;
        file.sync_all()?;
        // The name must last too.
        File::open(&self.folder)?.sync_all()?;
        Ok(InFlight(path))
    }

    /// The attempts during which their probe or the machine went down, with the files to remove once the results
    /// have them. Half a record, of which nothing is known, is removed here.
    ///
    /// # Errors
    /// The error of the file system call that failed.
    pub fn left_behind(&self) -> std::io::Result<Vec<(Record, InFlight)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|e| e != "json") {
                continue;
            }
            let Ok(text) = read_plain(&path, TABLE) else { continue };
            match serde_json::from_slice::<Record>(&text) {
                Ok(record) if record.owner.lives() => {}
                Ok(record) => found.push((record, InFlight(path))),
                // Another probe may be writing it this moment: only an old one is known to be half.
                Err(_) if old(&path) => drop(std::fs::remove_file(&path)),
                Err(_) => {}
            }
        }
        Ok(found)
    }
}

/// The record in a file, if it is whole and its probe is gone.
pub fn left(file: &Path) -> Option<Record> {
    let record: Record = serde_json::from_slice(&read_plain(file, TABLE).ok()?).ok()?;
    (!record.owner.lives()).then_some(record)
}

fn old(path: &Path) -> bool {
    let age = std::fs::metadata(path).and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
    age.is_some_and(|age| age.as_secs() > 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key { problem: "MIOpenDriver conv -n 1".into(), solver: "GemmFwdRest".into(), rewrite: Vec::new() }
    }

    #[test]
    fn what_a_dead_probe_left_is_found_and_what_a_live_one_does_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut quarantine = Quarantine::open(folder.path()).unwrap();
        let mine = quarantine.enter(&Identity::example(), &key(), 7).unwrap();
        assert!(quarantine.left_behind().unwrap().is_empty());
        // The same record as a process of an earlier boot would have left it.
        let text = std::fs::read_to_string(&mine.0).unwrap();
        let mut record: Record = serde_json::from_str(&text).unwrap();
        record.owner.boot = Some("another boot".into());
        std::fs::write(folder.path().join("1-7-0.json"), serde_json::to_string(&record).unwrap()).unwrap();
        let left = quarantine.left_behind().unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!((left[0].0.key.clone(), left[0].0.when), (key(), 7));
        left.into_iter().for_each(|(_, file)| file.clear().unwrap());
        mine.clear().unwrap();
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    #[test]
    fn half_a_record_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let quarantine = Quarantine::open(folder.path()).unwrap();
        std::fs::write(folder.path().join("1-1-0.json"), "{\"identity\":").unwrap();
        assert!(quarantine.left_behind().unwrap().is_empty());
    }
}
