//! The device, its queue and its random numbers.

pub mod bridge;
pub(crate) mod generator;
pub mod graph;
pub mod peers;
pub mod rng;
pub mod state;
