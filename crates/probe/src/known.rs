//! The known-good table: what came of every attempt, for one card, driver and MIOpen. docs/probe.md has its format.

use crate::finding::{Finding, Identity, SolverVerdict};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wave32_host::file;
use wave32_problem::Rewrite;

/// The format's number; a reader refuses another.
pub const FORMAT: u32 = 1;

/// How long another probe may hold the table.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a row is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The plain problem (one pass, not transposed, no bias) as its MIOpenDriver line.
    pub problem: String,
    /// The solver's name, or `find` for MIOpen's own choice.
    pub solver: String,
    /// What is done to the problem before MIOpen sees it, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewrite: Vec<Rewrite>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is about.
    #[serde(flatten)]
    pub key: Key,
    /// The solver's number; none for `find`.
    pub id: Option<u64>,
    /// The worst verdict ever seen: only where it is `works` may this be used.
    pub worst: SolverVerdict,
    /// What came of it last.
    #[serde(flatten)]
    pub finding: Finding,
    /// When, in seconds since 1970.
    pub when: u64,
}

impl Row {
    /// True where it may be used.
    pub fn is_safe(&self) -> bool {
        self.worst == SolverVerdict::Works
    }
}

/// All rows for one card, driver and MIOpen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// [`FORMAT`].
    pub format: u32,
    /// What they hold for.
    pub identity: Identity,
    /// The rows, sorted by key.
    pub rows: Vec<Row>,
}

/// Why the table cannot be had or kept.
#[derive(Debug, thiserror::Error)]
pub enum KnownError {
    /// The system's answer.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is there and is not what it should be.
    #[error("{path} is no table of this version ({why}); move it away, then probe again")]
    Broken {
        /// Which file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// Another probe does not let go of it.
    #[error("{0} is held by another probe; wait for it or stop it")]
    Held(String),
}

/// Where a table is kept.
#[derive(Debug, Clone)]
pub struct Store {
    path: PathBuf,
    identity: Identity,
}

impl Store {
    /// The table for `identity` in a folder.
    pub fn new(folder: &Path, identity: &Identity) -> Self {
        Self { path: folder.join(format!("{}.json", identity.key())), identity: identity.clone() }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file_error(&self, source: std::io::Error) -> KnownError {
        KnownError::File { path: self.path.display().to_string(), source }
    }

    /// The table; empty where there is none yet.
    ///
    /// # Errors
    /// [`KnownError`] where the table cannot be read or is not valid.
    pub fn read(&self) -> Result<Known, KnownError> {
        let text = match file::read_plain(&self.path, file::TABLE) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Ok(Known { format: FORMAT, identity: self.identity.clone(), rows: Vec::new() });
            }
            Err(e) => return Err(self.file_error(e)),
        };
        let broken = |why: String| KnownError::Broken { path: self.path.display().to_string(), why };
        let known: Known = serde_json::from_slice(&text).map_err(|e| broken(e.to_string()))?;
        if known.format != FORMAT {
            return Err(broken(format!("format {}", known.format)));
        }
        if !known.identity.holds_for(&self.identity) {
            return Err(broken(format!("it is of {}", known.identity)));
        }
        // A row that is searched for and not found would be added once more, and what hung would be tried again.
        if !known.rows.is_sorted_by(|a, b| a.key < b.key) {
            return Err(broken("its rows are not in order".into()));
        }
        Ok(known)
    }

    /// Adds rows to the table on disk, whoever else does so at the same time; the table as it is then.
    ///
    /// # Errors
    /// [`KnownError`]; the table is then as it was.
    pub fn merge(&self, rows: &[Row]) -> Result<Known, KnownError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(|e| self.file_error(e))?;
        let _held = self.hold()?;
        let mut known = self.read()?;
        for row in rows {
            known.add(row.clone());
        }
        let write = || file::save_durably(&self.path, &serde_json::to_vec_pretty(&known)?);
        write().map_err(|e| self.file_error(e))?;
        Ok(known)
    }

    /// The lock, beside the table since that is replaced. Freed when dropped, and by the system when we die.
    fn hold(&self) -> Result<File, KnownError> {
        let path = self.path.with_extension("lock");
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = open.map_err(|e| self.file_error(e))?;
        let end = Instant::now() + PATIENCE;
        loop {
            // SAFETY: the file is open. Not the system call itself, as rustix makes it: the tests let this one fail.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(file);
            }
            let error = Error::last_os_error();
            match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                ErrorKind::WouldBlock | ErrorKind::Interrupted => {
                    return Err(KnownError::Held(path.display().to_string()));
                }
                _ => return Err(self.file_error(error)),
            }
        }
    }
}

impl Known {
    /// The row of that key.
    pub fn get(&self, key: &Key) -> Option<&Row> {
        self.rows.binary_search_by(|row| row.key.cmp(key)).ok().map(|at| &self.rows[at])
    }

    /// Adds a row. Of two with one key the newer one's finding stays, and the worse of both their worsts: what hung
    /// once is not trusted again.
    fn add(&mut self, row: Row) {
        match self.rows.binary_search_by(|old| old.key.cmp(&row.key)) {
            Err(at) => self.rows.insert(at, row),
            Ok(at) => {
                let old = &self.rows[at];
                let worst = worse(old.worst, row.worst);
                let newest = if old.when > row.when { old.clone() } else { row };
                self.rows[at] = Row { worst, ..newest };
            }
        }
    }
}

/// The worse of two verdicts. A refusal is not bad, but it is not `works` either: the newer run decides by being tried.
fn worse(a: SolverVerdict, b: SolverVerdict) -> SolverVerdict {
    match (a.is_failure(), b.is_failure()) {
        (false, false) => b,
        (true, false) => a,
        (false, true) => b,
        (true, true) => a.max(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(solver: &str, verdict: SolverVerdict, when: u64) -> Row {
        let key = Key {
            problem: "MIOpenDriver conv -n 1".into(),
            solver: solver.into(),
            rewrite: vec![Rewrite::Tiles { h: 32, w: 32 }],
        };
        Row { key, id: Some(91), worst: verdict, finding: Finding::of(verdict, "why"), when }
    }

    #[test]
    fn what_hung_once_is_not_trusted_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path(), &Identity::example());
        assert!(store.read().unwrap().rows.is_empty());
        store.merge(&[row("a", SolverVerdict::Hang, 1), row("b", SolverVerdict::Works, 1)]).unwrap();
        let known =
            store.merge(&[row("a", SolverVerdict::Works, 2), row("b", SolverVerdict::Works, 2)]).unwrap();
        assert_eq!(store.read().unwrap(), known);
        let got = |name| known.get(&row(name, SolverVerdict::Works, 0).key).unwrap();
        assert_eq!((got("a").worst, got("a").finding.verdict), (SolverVerdict::Hang, SolverVerdict::Works));
        assert!(!got("a").is_safe() && got("b").is_safe() && got("b").when == 2);
    }

    #[test]
    fn a_table_that_was_changed_is_read_or_refused() {
        use rand::Rng;
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path(), &Identity::example());
        store.merge(&[row("a", SolverVerdict::Hang, 1), row("b", SolverVerdict::Works, u64::MAX)]).unwrap();
        let whole = std::fs::read(store.path()).unwrap();
        let (mut rng, mut refused) = (rand::rng(), 0);
        for _ in 0..2000 {
            let mut bytes = whole.clone();
            for _ in 0..rng.random_range(1..4) {
                if bytes.is_empty() {
                    break;
                }
                let at = rng.random_range(0..bytes.len());
                match rng.random_range(0..4) {
                    0 => bytes[at] = rng.random(),
                    1 => bytes[at] = b"[]{},:\"0-.e9"[rng.random_range(0..12)],
                    2 => drop(bytes.drain(at..(at + 9).min(bytes.len()))),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            std::fs::write(store.path(), &bytes).unwrap();
            match store.read() {
                Ok(known) => assert_eq!(known.format, FORMAT),
                Err(error) => {
                    refused += 1;
                    assert!(matches!(error, KnownError::Broken { .. }), "{error}");
                }
            }
        }
        assert!(refused > 500, "{refused}");
    }

    #[test]
    fn rows_that_threads_add_at_once_are_all_there() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path(), &Identity::example());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for i in 0..10 {
                        store.merge(&[row(&format!("{thread}-{i}"), SolverVerdict::Works, 1)]).unwrap();
                    }
                });
            }
        });
        assert_eq!(store.read().unwrap().rows.len(), 40);
    }

    #[test]
    fn a_broken_table_is_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path(), &Identity::example());
        let known =
            store.merge(&[row("a", SolverVerdict::Hang, 1), row("b", SolverVerdict::Works, 1)]).unwrap();
        let text = |known: &Known| serde_json::to_string(known).unwrap();
        let mut turned = known.clone();
        turned.rows.reverse();
        let mut twice = known.clone();
        twice.rows.push(row("b", SolverVerdict::Hang, 1));
        let mut other = known.clone();
        other.identity.miopen = "3.0.0".into();
        for (broken, why) in [
            ("{".to_string(), "EOF"),
            (text(&turned), "its rows are not in order"),
            (text(&twice), "its rows are not in order"),
            (text(&other), "MIOpen 3.0.0"),
        ] {
            std::fs::write(store.path(), &broken).unwrap();
            let said = store.merge(&[row("a", SolverVerdict::Works, 2)]).unwrap_err().to_string();
            assert!(said.contains("move it away") && said.contains(why), "{said}");
            assert_eq!(std::fs::read_to_string(store.path()).unwrap(), broken);
        }
    }
}
