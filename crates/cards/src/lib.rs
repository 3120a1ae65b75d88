//! What is known of AMD's GPUs before anyone asks a driver: targets, and the boards that carry them.
//!
//! - [`targets`]: each gfx target, how it is recognised, and what its chip has. A target is one file of `src/targets/`.
//! - [`Board`]: each board that is sold under a name. A board is one row in the file of its target.
//! - [`sysfs`]: which target a card of this machine truly has.
#![forbid(unsafe_code)]

mod board;
pub mod sysfs;
pub mod targets;

pub use board::{Board, Clocks, Memory, MemoryKind, NameError, Seen, all, by_id, find, named, rdna1};
