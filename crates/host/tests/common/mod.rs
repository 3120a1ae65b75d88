//! Libraries that carry wave32's note.

/// A shared library of nothing but the note that wave32's libraries carry.
pub fn ours(name: &str, version: &str, cut: bool) -> Vec<u8> {
    let mut note = Vec::new();
    let text = format!("{name} {version}");
    for number in [7, text.len() as u32, 1] {
        note.extend(number.to_le_bytes());
    }
    note.extend(b"wave32\0\0");
    note.extend(text.bytes());
    note.resize(note.len().next_multiple_of(4), 0);
    let mut all = b"\x7fELF\x02\x01\x01".to_vec();
    all.resize(16, 0);
    all.extend(3u16.to_le_bytes()); // shared object
    all.extend(62u16.to_le_bytes()); // x86-64
    all.extend(1u32.to_le_bytes());
    all.extend(
        [0u64.to_le_bytes(), 64u64.to_le_bytes(), 0u64.to_le_bytes(), 0u64.to_le_bytes()].concat()[..28]
            .iter(),
    );
    for field in [64u16, 56, 2, 64, 0, 0] {
        all.extend(field.to_le_bytes());
    }
    let end = 64 + 2 * 56 + note.len() as u64;
    let rest = if cut { 4096 } else { 0 };
    for (kind, offset, size) in [(4u32, 176u64, note.len() as u64), (1, 0, end + rest)] {
        all.extend(kind.to_le_bytes());
        all.extend(4u32.to_le_bytes());
        for field in [offset, offset, offset, size, size, 4] {
            all.extend(field.to_le_bytes());
        }
    }
    all.extend(note);
    all
}
