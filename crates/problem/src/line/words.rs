//! From a pasted line to the words after `MIOpenDriver`: colours, prefixes, quotes and comments go.

use crate::{DType, ProblemError};
use std::borrow::Cow;

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// `conv`.
    Conv,
    /// `gemm`.
    Gemm,
}

/// What is left of a line.
pub(super) struct Words<'a> {
    /// From the base argument, as is the storage type (`conv`, `convfp16`, `gemm`, ...).
    pub(super) operation: Operation,
    /// Storage type.
    pub(super) dtype: DType,
    /// MIOpen's log printed it (see the module's text on `-k`).
    pub(super) from_log: bool,
    /// Flags and values.
    pub(super) args: Vec<&'a str>,
}

/// The line without a byte order mark and terminal escape sequences (ECMA-48 CSI and OSC, and two-character ones).
pub(super) fn without_escapes(line: &str) -> Cow<'_, str> {
    // Editors on Windows put a byte order mark in front.
    let line = line.strip_prefix('\u{feff}').unwrap_or(line);
    const ESC: char = '\u{1b}';
    if !line.contains(ESC) {
        return Cow::Borrowed(line);
    }
    let mut clean = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c != ESC {
            clean.push(c);
            continue;
        }
        match chars.next() {
            Some('[') => {
                chars.by_ref().find(|c| ('\u{40}'..='\u{7e}').contains(c));
            }
            Some(']') => {
                chars.by_ref().find(|&c| c == '\u{7}' || c == '\u{9c}');
            }
            _ => {}
        }
    }
    Cow::Owned(clean)
}

/// Finds the base argument and the words after it.
///
/// # Errors
/// [`ProblemError::Line`] where there is none, or one of another operation or type.
pub(super) fn split(line: &str) -> Result<Words<'_>, ProblemError> {
    let words: Vec<&str> = line
        .split_whitespace()
        .take_while(|word| !word.starts_with('#'))
        .map(|word| (word, bare(word)))
        // A lone quote is where a quoted line ended; a pair is an empty value.
        .filter(|(word, bare)| !bare.is_empty() || matches!(*word, "\"\"" | "''"))
        .map(|(_, bare)| bare)
        .collect();
    let driver = words.iter().position(|word| is_driver(word));
    let from_log = words[..driver.unwrap_or(0)].iter().any(|word| word.starts_with("[LogCmd"));
    // Without the driver's name the base argument has to come first.
    let rest = &words[driver.map_or(0, |at| at + 1)..];
    let Some((&base, args)) = rest.split_first() else {
        let found = words.last().copied().unwrap_or("end of line");
        return Err(ProblemError::line(found, EXPECTED));
    };
    let (operation, dtype) = base_of(base)?;
    Ok(Words { operation, dtype, from_log, args: args.to_vec() })
}

const BASES: &str = "conv, convfp16, convbfp16, gemm, gemmfp16 or gemmbfp16";
const EXPECTED: &str = "expected a line such as `MIOpenDriver conv -n 1 -c 16 -H 48 -W 48 -k 32 -y 3 -x 3`";

/// A word out of a quoted line or a list of them.
fn bare(word: &str) -> &str {
    word.trim_matches(|c| matches!(c, '"' | '\'' | '`' | ',' | ';'))
}

/// `./bin/MIOpenDriver`, `C:\rocm\MIOpenDriver.exe`, and `MIOpenDriver:` as old drivers echo themselves.
fn is_driver(word: &str) -> bool {
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word).trim_end_matches(':');
    ["MIOpenDriver", "MIOpenDriver.exe"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn base_of(base: &str) -> Result<(Operation, DType), ProblemError> {
    match base {
        "conv" => Ok((Operation::Conv, DType::F32)),
        "convfp16" => Ok((Operation::Conv, DType::F16)),
        "convbfp16" => Ok((Operation::Conv, DType::BF16)),
        "gemm" => Ok((Operation::Gemm, DType::F32)),
        "gemmfp16" => Ok((Operation::Gemm, DType::F16)),
        "gemmbfp16" => Ok((Operation::Gemm, DType::BF16)),
        "convint8" | "convfp8" | "convbfp8" => {
            let rule = "this storage type is not supported; there are conv (f32), convfp16 and convbfp16";
            Err(ProblemError::line(base, rule))
        }
        _ if base.starts_with('-') => {
            Err(ProblemError::line(base, format!("{BASES} must come first; {EXPECTED}")))
        }
        _ => Err(ProblemError::line(base, format!("not {BASES}; {EXPECTED}"))),
    }
}
