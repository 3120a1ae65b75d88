//! `libwave32_preload.so`: coarse-grained memory for cards whose host memory cannot be coherent.
//!
//! An RDNA1 card whose path to the processor carries no PCIe atomics gets atomics on fine-grained host memory wrong. This
//! library stands before HIP and HSA: what a program asks of `hip` is remembered for the length of the call, and the pool
//! that HIP then names to `hsa` is exchanged for its coarse-grained neighbour. HIP keeps the program's flags, so queries
//! answer as before. What HIP allocates for itself (kernel arguments, signals, device `printf`) is not touched. A process
//! whose cards need nothing (`card`, `policy`) pays one load a call.
//!
//! There are no locks and no threads, and no state but what each process finds out once, so `fork` is safe at any time.
//! Symbols have no versions: the dynamic linker lets them stand for `hip_4.2`, `ROCR_1` and all others.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

/// An ELF note: `wave32 doctor` and `wave32 run` know ours by it.
#[used]
#[unsafe(link_section = ".note.wave32")]
static NOTE: Note = Note { sizes: [7, TEXT.len() as u32, 1], owner: *b"wave32\0\0", text: text() };

#[repr(C, align(4))]
struct Note {
    /// Of the owner, with its end, and of the text; the type.
    sizes: [u32; 3],
    owner: [u8; 8],
    text: [u8; TEXT.len()],
}

const TEXT: &str = concat!("libwave32_preload ", env!("CARGO_PKG_VERSION"));

const fn text() -> [u8; TEXT.len()] {
    let mut bytes = [0; TEXT.len()];
    bytes.copy_from_slice(TEXT.as_bytes());
    bytes
}

mod card;
mod hip;
mod hsa;
mod policy;
mod real;
mod stderr;
