//! The vendor's library beneath.

pub mod next;
