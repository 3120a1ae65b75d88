//! What every program here needs of the machine around it, whoever made the files, the names and the streams.
#![forbid(unsafe_code)]

pub mod file;
#[cfg(unix)]
pub mod own;
pub mod stream;
pub mod system;
pub mod text;
pub mod torch;
