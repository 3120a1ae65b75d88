//! The lines of `kernels/variants.txt`.

use std::collections::BTreeMap;

/// One line: `SOURCE TAG DTYPES THREADS [NAME=VALUE ...]`.
pub struct Row {
    pub source: String,
    pub tag: String,
    pub dtypes: Vec<String>,
    #[allow(dead_code, reason = "the build script only wants names")]
    pub threads: u32,
    #[allow(dead_code, reason = "the build script only wants names")]
    pub defines: BTreeMap<String, i64>,
    /// For messages.
    #[allow(dead_code, reason = "the build script only wants names")]
    pub line: String,
}

/// Reads the table; `#` starts a comment.
///
/// # Errors
/// The line's number and what is wrong with it.
pub fn rows(table: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (index, line) in table.lines().enumerate() {
        let bad = |what: &str| format!("variants.txt: line {}: {what}: {line}", index + 1);
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let [source, tag, dtypes, threads, defines @ ..] = words.as_slice() else {
            return Err(bad("needs SOURCE TAG DTYPES THREADS"));
        };
        let threads = threads.parse().map_err(|_| bad(&format!("{threads} is no number")))?;
        let define = |word: &&str| {
            let (name, value) =
                word.split_once('=').ok_or_else(|| bad(&format!("{word} is not NAME=VALUE")))?;
            let value = value.parse().map_err(|_| bad(&format!("{word}: value is no number")))?;
            Ok((name.to_string(), value))
        };
        rows.push(Row {
            source: (*source).to_string(),
            tag: (*tag).to_string(),
            dtypes: dtypes.split(',').map(str::to_string).collect(),
            threads,
            defines: defines.iter().map(define).collect::<Result<_, String>>()?,
            line: format!("line {}", index + 1),
        });
    }
    Ok(rows)
}
