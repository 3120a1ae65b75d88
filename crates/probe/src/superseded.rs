//! What is kept of MIOpens that are not here any more.

use crate::finding::Identity;
use crate::known::{FORMAT, Known};
use crate::quarantine;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use wave32_host::file::{TABLE, read_plain};

/// The folder of tables below that of all that is kept.
pub const TABLES: &str = "tables";
/// The folder of records of what is being tried.
pub const QUARANTINE: &str = "quarantine";

/// A file that holds for nothing here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Superseded {
    /// The file.
    pub file: PathBuf,
    /// Rows of a table; none for the record of an attempt that was cut short.
    pub rows: Option<usize>,
    /// What it held for.
    pub identity: Identity,
    /// Why it does so no more.
    pub why: String,
}

impl fmt::Display for Superseded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what =
            self.rows.map_or("record of an attempt".to_string(), |rows| format!("table of {rows} rows"));
        write!(f, "{}\n    {what}: {}; {}", self.file.display(), self.identity, self.why)
    }
}

impl Superseded {
    /// Removes it.
    ///
    /// # Errors
    /// The error of the file system call that failed. A file that is already gone is no error.
    pub fn remove(&self) -> std::io::Result<()> {
        let gone = |path: &Path| match std::fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
        gone(&self.file)?;
        if self.rows.is_some() { gone(&self.file.with_extension("lock")) } else { Ok(()) }
    }
}

/// Tables and records in the folder of all that is kept whose MIOpen is none of those that are `here`: its file is gone,
/// or is another MIOpen now. What cannot be read is left alone.
pub fn superseded(state: &Path, here: &[Identity]) -> Vec<Superseded> {
    let tables = files(&state.join(TABLES)).filter_map(|file| {
        let known: Known = serde_json::from_slice(&read_plain(&file, TABLE).ok()?).ok()?;
        (known.format == FORMAT).then_some((file, Some(known.rows.len()), known.identity))
    });
    let records = files(&state.join(QUARANTINE))
        .filter_map(|file| quarantine::left(&file).map(|record| (file, None, record.identity)));
    let mut found: Vec<Superseded> = tables
        .chain(records)
        .filter_map(|(file, rows, identity)| {
            let why = why(&identity, here)?;
            Some(Superseded { file, rows, identity, why })
        })
        .collect();
    found.sort_by(|a, b| a.file.cmp(&b.file));
    found
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|e| e.path()).filter(|path| path.extension().is_some_and(|e| e == "json"))
}

/// Why nothing here is what that identity was. Another card, target or kernel is no reason: it may come back.
fn why(old: &Identity, here: &[Identity]) -> Option<String> {
    let library = Path::new(&old.library);
    if here.iter().any(|now| (&now.miopen, &now.hip) == (&old.miopen, &old.hip)) {
        return None;
    }
    if library.is_absolute() && library.try_exists().is_ok_and(|there| !there) {
        return Some(format!("{} is gone", old.library));
    }
    let now = here.iter().find(|now| now.library == old.library)?;
    Some(format!("{} is MIOpen {} with HIP {} now", old.library, now.miopen, now.hip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::{Key, Store};
    use crate::quarantine::Quarantine;

    fn identity(library: &Path, miopen: &str) -> Identity {
        Identity { miopen: miopen.into(), library: library.display().to_string(), ..Identity::example() }
    }

    #[test]
    fn only_what_no_library_here_is_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let [here, other, gone] = ["here.so", "other.so", "gone.so"].map(|name| folder.path().join(name));
        std::fs::write(&here, "").unwrap();
        std::fs::write(&other, "").unwrap();
        let tables = folder.path().join(TABLES);
        let keep = |identity: &Identity| {
            let store = Store::new(&tables, identity);
            store.merge(&[]).unwrap();
            store.path().to_path_buf()
        };
        let now = identity(&here, "3.2.0");
        // The present one; a library that may be anything; another kernel and card on the present one.
        keep(&now);
        keep(&identity(&other, "2.16.0"));
        keep(&Identity { kernel: "6.5.0".into(), ..now.clone() });
        keep(&Identity { card: "AMD Radeon RX 5500 XT".into(), target: "gfx1012".into(), ..now.clone() });
        // A copy elsewhere was of the same versions as the one here: its table holds for that too.
        keep(&Identity { kernel: "6.6.0".into(), ..identity(&gone, "3.2.0") });
        let replaced = keep(&identity(&here, "2.20.0"));
        let missing = keep(&identity(&gone, "3.0.0"));
        std::fs::write(tables.join("broken.json"), "{").unwrap();
        // Pipes, whose writers nobody may wait for.
        for folder in [&tables, &folder.path().join(QUARANTINE)] {
            std::fs::create_dir_all(folder).unwrap();
            let made = std::process::Command::new("mkfifo").arg(folder.join("pipe.json")).status().unwrap();
            assert!(made.success());
        }
        let mut quarantine = Quarantine::open(&folder.path().join(QUARANTINE)).unwrap();
        let key = Key { problem: "MIOpenDriver conv".into(), solver: "find".into(), rewrite: Vec::new() };
        quarantine.enter(&identity(&gone, "3.0.0"), &key, 7).unwrap();
        // That record is of this process, which lives; this one of a process of an earlier boot.
        let live = files(&folder.path().join(QUARANTINE)).find(|path| path.is_file()).unwrap();
        let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(&live).unwrap()).unwrap();
        record["owner"]["boot"] = "another boot".into();
        let left = folder.path().join(QUARANTINE).join("1-7-0.json");
        std::fs::write(&left, record.to_string()).unwrap();

        let found = superseded(folder.path(), std::slice::from_ref(&now));
        let mut want = vec![replaced, missing.clone(), left.clone()];
        want.sort();
        assert_eq!(found.iter().map(|s| s.file.clone()).collect::<Vec<_>>(), want);
        assert!(found.iter().any(|s| s.why.ends_with("is MIOpen 3.2.0 with HIP 5.7.0 now")));
        // Where there is no MIOpen any more, that copy's too.
        let found = superseded(folder.path(), &[]);
        assert!(found.iter().all(|s| s.why.ends_with("gone.so is gone")) && found.len() == 3, "{found:?}");
        found.iter().for_each(|s| s.remove().unwrap());
        assert!(
            !missing.exists() && !missing.with_extension("lock").exists() && !left.exists() && live.exists()
        );
        assert!(superseded(folder.path(), &[]).is_empty());
        assert_eq!(superseded(folder.path(), &[now]).len(), 1);
    }
}
