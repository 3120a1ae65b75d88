//! Reads the table of MIOpen's calls and finds which of them `src/` implements: for `build.rs` and the tests.

use std::collections::BTreeSet;
use std::path::Path;

/// A row of `abi.txt`.
pub struct Call {
    /// The exported name.
    pub name: String,
    /// The first ROCm release whose header has it.
    pub since: String,
    /// What it is about.
    pub group: String,
    /// Its parameters' kinds.
    pub parameters: String,
}

/// The rows.
pub fn table(text: &str) -> Vec<Call> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let row = |line: &str| {
        let mut words = line.split_whitespace().map(String::from);
        let mut next = || words.next().unwrap_or_else(|| panic!("too few words: {line}"));
        Call { name: next(), since: next(), group: next(), parameters: next() }
    };
    lines.map(row).collect()
}

/// The calls that the sources in `folder` implement: `extern "C" fn miopen...(`, or a macro with that name first.
pub fn implemented(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![folder.to_path_buf()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for line in text.lines() {
            let after = match line.split_once("extern \"C\" fn ").or_else(|| line.split_once("!(")) {
                Some((_, after)) => after,
                // An argument of a macro, on a line of its own.
                None => line.trim(),
            };
            let name: String = after.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let rest = &after[name.len()..];
            let ends = ["", "(", ",", ")"].iter().any(|end| match *end {
                "" => rest.is_empty(),
                end => rest.starts_with(end),
            });
            if name.starts_with("miopen") && ends {
                names.insert(name);
            }
        }
    }
    names
}
