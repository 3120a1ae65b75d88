//! Targets that share their code.

use wave32_cards::targets::{self, code_of};

/// Names another target with the same code in a code object: the machine in the header's flags, and each kernel's note.
///
/// # Errors
/// What is wrong, where it is no code object of `from`, or one of the names is not known here.
pub fn retarget(elf: &mut [u8], from: &str, to: &str) -> Result<(), String> {
    let bad = |reason: String| format!("a code object of {from}: {reason}");
    let machine = |target: &str| {
        let known = targets::by_name(target).filter(|known| known.code_of == Some(code_of(from)));
        known.map(|known| known.elf).ok_or_else(|| bad(format!("{target} has no such sibling")))
    };
    let (old, new) = (machine(from)?, machine(to)?);
    // e_flags, of which the lowest byte is the machine.
    match elf.get_mut(48) {
        Some(flags) if *flags == old => *flags = new,
        other => return Err(bad(format!("its machine is {other:x?}, not {old:#x}"))),
    }
    let (name, renamed) = (format!("amdhsa--{from}"), format!("amdhsa--{to}"));
    let mut notes = 0;
    for at in 0..elf.len().saturating_sub(name.len()) {
        let place = &mut elf[at..at + name.len()];
        if place == name.as_bytes() {
            place.copy_from_slice(renamed.as_bytes());
            notes += 1;
        }
    }
    if notes == 0 { Err(bad("it does not name its target".into())) } else { Ok(()) }
}
