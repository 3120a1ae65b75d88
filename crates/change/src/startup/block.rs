//! Our lines in a file that is not ours alone.

use crate::ChangeError;
use std::path::Path;

/// `old` with `body` between marks named `name`: where the marks are, or else at byte `at`.
pub(super) fn with_block(
    path: &Path,
    old: &[u8],
    name: &str,
    body: &str,
    at: usize,
) -> Result<Vec<u8>, ChangeError> {
    let begin = format!("# >>> wave32{name} >>>");
    let end = format!("# <<< wave32{name} <<<");
    let block = format!("{begin} written by `wave32 apply`; `wave32 undo` takes it out\n{body}{end}\n");
    let mut offset = 0;
    let (mut begins, mut ends) = (Vec::new(), Vec::new());
    for line in old.split_inclusive(|&b| b == b'\n') {
        if line.starts_with(begin.as_bytes()) {
            begins.push(offset);
        }
        offset += line.len();
        if line.starts_with(end.as_bytes()) {
            ends.push(offset);
        }
    }
    let (from, to) = match (&begins[..], &ends[..]) {
        ([], []) => (at, at),
        (&[from], &[to]) if from < to => (from, to),
        _ => {
            let why = format!("the lines `{begin}` and `{end}` do not pair up any more");
            let next = "take both out, with what we wrote between them, and run the command again".into();
            return Err(ChangeError::Refused { path: path.into(), why, next });
        }
    };
    let gap: &[u8] = if from > 0 && old[from - 1] != b'\n' { b"\n" } else { b"" };
    Ok([&old[..from], gap, block.as_bytes(), &old[to..]].concat())
}
