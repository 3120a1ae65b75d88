//! Standard error of a watched program: passed on byte by byte, less the lines that MIOpen was asked to write.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A line is held back no longer than this many bytes while it may still be MIOpen's.
const LONGEST: usize = 4096;

/// The last problem that MIOpen said it was given.
#[derive(Debug, Clone, Default)]
pub struct LastCommand(Arc<Mutex<Option<(String, Instant)>>>);

impl LastCommand {
    /// The line from `MIOpenDriver` on, and when it came.
    pub fn get(&self) -> Option<(String, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, line: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((line, Instant::now()));
    }
}

/// `MIOpenDriver conv -n ...` of a line `MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv ...`; newer
/// versions begin with `MIOpen: `.
fn driver_line(line: &str) -> Option<&str> {
    let (head, rest) = line.split_once(": Command [LogCmd")?;
    let at = rest.find("MIOpenDriver")?;
    head.starts_with("MIOpen").then(|| rest[at..].trim_end())
}

/// Splits a stream into what is passed on and MIOpen's lines.
struct Filter {
    last: LastCommand,
    /// The user asked for MIOpen's lines too.
    keep: bool,
    /// The line so far, while it may be MIOpen's.
    held: Vec<u8>,
    /// The rest of this line is passed on.
    passing: bool,
}

impl Filter {
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for &byte in bytes {
            if self.passing {
                out.push(byte);
                self.passing = byte != b'\n';
                continue;
            }
            self.held.push(byte);
            let may_be = self.held.iter().zip(b"MIOpen").all(|(a, b)| a == b) && self.held.len() < LONGEST;
            if byte == b'\n' || !may_be {
                self.end_line(out);
                self.passing = byte != b'\n';
            }
        }
    }

    /// Decides about what is held.
    fn end_line(&mut self, out: &mut Vec<u8>) {
        let held = std::mem::take(&mut self.held);
        match driver_line(&String::from_utf8_lossy(&held)) {
            Some(line) => {
                self.last.set(line.to_string());
                if self.keep {
                    out.extend(held);
                }
            }
            None => out.extend(held),
        }
    }
}

/// Passes `from` on to `to` until it ends; a reader that left does not stop the program.
pub fn pass(mut from: impl Read, mut to: impl Write, keep: bool, last: LastCommand) {
    let mut filter = Filter { last, keep, held: Vec::new(), passing: false };
    let (mut buffer, mut out) = ([0u8; 8192], Vec::new());
    loop {
        let count = match from.read(&mut buffer) {
            // A terminal's other side is gone with EIO.
            Ok(0) => break,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => break,
            Ok(count) => count,
        };
        filter.feed(&buffer[..count], &mut out);
        let _ = to.write_all(&out).and_then(|()| to.flush());
        out.clear();
    }
    filter.end_line(&mut out);
    let _ = to.write_all(&out).and_then(|()| to.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        "MIOpenDriver conv -n 1 -c 16 -H 48 -W 48 -k 32 -y 3 -x 3 -p 1 -q 1 -m conv -g 1 -F 1 -t 1";

    fn filtered(pieces: &[&str], keep: bool) -> (String, Option<String>) {
        let last = LastCommand::default();
        let mut filter = Filter { last: last.clone(), keep, held: Vec::new(), passing: false };
        let mut out = Vec::new();
        pieces.iter().for_each(|piece| filter.feed(piece.as_bytes(), &mut out));
        filter.end_line(&mut out);
        (String::from_utf8(out).unwrap(), last.get().map(|(line, _)| line))
    }

    #[test]
    fn lines_of_miopen_are_taken_out_and_kept() {
        for prefix in
            ["MIOpen(HIP): Command [LogCmdConvolution] ./bin/", "MIOpen: Command [LogCmdFindConvolution] "]
        {
            let text = format!("loss 1.5\n{prefix}{LINE}\nMIOpen(HIP): Warning [x] y\nend");
            for size in [1, 3, 7, 4096] {
                let bytes = text.as_bytes().chunks(size).map(|c| std::str::from_utf8(c).unwrap());
                let (out, line) = filtered(&bytes.collect::<Vec<_>>(), false);
                assert_eq!(out, "loss 1.5\nMIOpen(HIP): Warning [x] y\nend");
                assert_eq!(line.as_deref(), Some(LINE));
            }
            assert_eq!(filtered(&[&text], true).0, text);
        }
    }

    #[test]
    fn what_is_no_line_of_miopen_passes_at_once() {
        let last = LastCommand::default();
        let mut filter = Filter { last, keep: false, held: Vec::new(), passing: false };
        let mut out = Vec::new();
        filter.feed(b"50%|#####", &mut out);
        assert_eq!(out, b"50%|#####");
        filter.feed(b"\r60%", &mut out);
        assert_eq!(out, b"50%|#####\r60%");
    }
}
