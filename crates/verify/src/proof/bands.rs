//! Guard bands: bytes around every buffer that nobody may write.

/// Fewest bytes before and after each buffer that must stay as they are.
pub const GUARD: u64 = 256;

/// The byte that guard byte `i` holds.
fn guard_byte(i: usize) -> u8 {
    (i as u8).wrapping_mul(37) ^ 0x5a
}

/// Fills a guard band.
pub fn fill_guard(bytes: &mut [u8]) {
    bytes.iter_mut().enumerate().for_each(|(i, b)| *b = guard_byte(i));
}

/// Says which byte of a guard band was written; `None` where none was.
pub fn guard_damage(bytes: &[u8], what: &str, side: &str) -> Option<String> {
    let first = bytes.iter().enumerate().position(|(i, &b)| b != guard_byte(i))?;
    let count = bytes.iter().enumerate().filter(|&(i, &b)| b != guard_byte(i)).count();
    Some(format!(
        "guard band {side} {what} was written: {count} bytes, the first is byte {first} of the band"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_guard_byte_is_named() {
        let mut band = vec![0; 256];
        fill_guard(&mut band);
        assert_eq!(guard_damage(&band, "Y", "after"), None);
        band[3] ^= 0x80;
        let text = guard_damage(&band, "Y", "after").unwrap();
        assert!(text.contains("after Y") && text.contains("byte 3"), "{text}");
    }
}
