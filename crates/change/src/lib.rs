//! Changing files so that nothing is lost: a plan is shown as a diff, carried out whole or not at all, and taken
//! back byte for byte, even around what the user edited since.
//!
//! [`Draft`] reads and makes a [`ChangePlan`]; a [`Session`] of a [`Store`] carries it out: old and new contents and a
//! manifest are on the disk before the first file is touched, each file is replaced in one rename, and the change
//! counts once its folder has its last name. Whatever is found half done is taken back by the next session. To
//! undo is a change like any other.
//!
//! All of it is below a [`Root`], which lets no link lead outside. What only reads files beneath a root uses the same one.
#![forbid(unsafe_code)]

mod calls;
mod disk;
pub mod drop_in;
mod error;
mod journal;
mod plan;
mod recover;
mod rights;
mod root;
mod session;
pub mod startup;
mod store;
mod undo;

#[cfg(test)]
mod attack_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod tests;

#[cfg(feature = "fault-injection")]
pub use calls::faults;
pub use disk::Meta;
pub use error::ChangeError;
pub use journal::{Manifest, Step};
pub use plan::{ChangePlan, Draft};
pub use root::Root;
pub use session::Session;
pub use store::{Made, Store};

/// How names begin that nobody but we give: hidden, so that no shell, linker or systemd reads them.
const BESIDE: &str = ".wave32-";
/// The longest file that a person writes. What is longer is not read, shown or merged.
const TEXT: u64 = 64 << 20;
/// The longest library.
const LIBRARY: u64 = 1 << 30;
