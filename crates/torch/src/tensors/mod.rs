//! Tensors and their memory.

pub mod copies;
pub(crate) mod dlpack;
pub mod dtype;
pub(crate) mod empty;
pub(crate) mod layout;
pub mod memory_ops;
pub(crate) mod pinned;
pub(crate) mod storage;
pub mod tensor;
