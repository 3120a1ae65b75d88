//! Text of others (files, drivers, arguments) as a terminal may have it: shown, not obeyed.

use std::borrow::Cow;
use std::fmt::Write;

/// True for what a terminal acts on, or what makes text look like other text: control characters, marks that turn the
/// direction of writing, line separators, and the byte order mark.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn escaped(text: &str, keep: &[char]) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) && !keep.contains(&c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// The text with what a terminal would act on as escapes; its lines and tabs stay.
pub fn readable(text: &str) -> Cow<'_, str> {
    let keep = ['\n', '\t'];
    if text.chars().any(|c| acts(c) && !keep.contains(&c)) {
        escaped(text, &keep).into()
    } else {
        text.into()
    }
}

/// As [`readable`], and on one line: for names.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if text.chars().any(acts) { escaped(text, &[]).into() } else { text.into() }
}

/// Bytes as [`one_line`]; those that are no UTF-8 as `\xNN`.
pub fn one_line_of_bytes(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(&one_line(chunk.valid()));
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// `most` characters of the text at most: its beginning and its end, with what was left out counted between.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    // Bytes are never fewer than characters.
    if text.len() <= most {
        return text.into();
    }
    let count = text.chars().count();
    if count <= most {
        return text.into();
    }
    let (head, tail) = (most * 2 / 3, most / 4);
    let begin: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{begin}...({} characters)...{end}", count - head - tail).into()
}

/// An argument or a name out of a file for a message: on one line and not long.
pub fn quoted(text: &str) -> String {
    // What is left out is not escaped first: an escape is longer than its character.
    one_line(&shortened(text, 120)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_escaped() {
        let hostile = "a\u{1b}[31mb\r\u{7}\u{9b}2J\u{202e}c\u{feff}\n\td\u{7f}";
        let shown = readable(hostile);
        assert_eq!(shown, "a\\u{1b}[31mb\\r\\u{7}\\u{9b}2J\\u{202e}c\\u{feff}\n\td\\u{7f}");
        assert!(!one_line(hostile).contains(['\n', '\t']));
        for plain in ["", "über 日本 \u{1f600}", "C:\\x"] {
            assert!(matches!(one_line(plain), Cow::Borrowed(same) if same == plain));
        }
        assert_eq!(one_line_of_bytes(b"a\xff\xfeb\x1b"), "a\\xff\\xfeb\\u{1b}");
    }

    #[test]
    fn long_texts_keep_their_ends() {
        let long = format!("begin{}end", "ü".repeat(100_000));
        let short = shortened(&long, 120);
        assert!(short.len() < 300 && short.starts_with("begin") && short.ends_with("end"), "{short}");
        assert!(short.contains("characters"), "{short}");
        assert_eq!(shortened("üüü", 3), "üüü");
        assert!(quoted(&"\u{1b}".repeat(100_000)).len() < 1000);
    }
}
