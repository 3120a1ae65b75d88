//! AMD's own gfx10.1 code at hand: ROCr's copy, trap and image kernels.

#[allow(dead_code)]
mod llvm;

use llvm::code::{self, Code};
use wave32_isa::{Form, Op, Target, decode};

const ROCR: &str = "/usr/lib/x86_64-linux-gnu/libhsa-runtime64.so.1";

#[test]
fn kernels_inside_rocr_are_as_llvm_says() {
    if !llvm::present() {
        return;
    }
    let Ok(library) = std::fs::read(ROCR) else {
        eprintln!("skipped: no {ROCR}");
        return;
    };
    let mut codes = embedded_objects(&library);
    let objects = codes.len();
    codes.extend(embedded_arrays(&library));
    let met = code::compare(&codes);
    met.print(&format!("ROCr: {objects} functions of image kernels, {} bare kernels", codes.len() - objects));
    assert!(objects > 0 && codes.len() > objects, "neither may be missing");
}

/// Code objects for gfx10.1 among those inside.
fn embedded_objects(library: &[u8]) -> Vec<Code> {
    let magic = |at: usize| library[at..].starts_with(b"\x7fELF") && library[at + 18] == 224;
    let starts = (0..library.len() - 64).step_by(16).filter(|&at| magic(at));
    let ours = starts.filter(|&at| matches!(library[at + 48], 0x33..=0x35));
    ours.flat_map(|at| {
        // The section headers end the file.
        let field = |offset: usize, bytes: usize| {
            library[at + offset..at + offset + bytes]
                .iter()
                .rev()
                .fold(0, |sum, &byte| sum << 8 | usize::from(byte))
        };
        let end = field(40, 8) + field(58, 2) * field(60, 2);
        code::functions(&format!("ROCr + {at:#x}"), &library[at..at + end])
    })
    .collect()
}

/// Its copy and fill kernels are arrays of dwords: wave64, from an `s_load` at a multiple of 32 bytes to the last `s_endpgm`
/// before what is no code any more.
fn embedded_arrays(library: &[u8]) -> Vec<Code> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + 4 <= library.len() {
        let words = code::words(&library[at..library.len().min(at + 4096)]);
        let starts = decode(&words, Target::Gfx1010, true).is_ok_and(|inst| inst.form == Form::Smem);
        let size = if starts { code_size(&words) } else { 0 };
        if size > 16 {
            let words = words[..size].to_vec();
            found.push(Code {
                name: format!("ROCr + {at:#x}"),
                target: Target::Gfx1010,
                wave64: true,
                words,
            });
        }
        at += (4 * size).next_multiple_of(32).max(32);
    }
    found
}

/// How many dwords up to the last end of program that decoding reaches; 0 if it reaches none.
fn code_size(words: &[u32]) -> usize {
    let (mut at, mut size) = (0, 0);
    while let Ok(inst) = decode(&words[at..], Target::Gfx1010, true) {
        at += usize::from(inst.len / 4);
        if inst.op == Op::s_endpgm {
            size = at;
        }
        if at >= words.len() {
            break;
        }
    }
    size
}
