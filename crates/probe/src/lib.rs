//! Which of the vendor's MIOpen solvers are safe on this machine, shape by shape.
//!
//! The process that reports never loads MIOpen. It walks the problems ([`campaign`]) and hands attempts over a pipe
//! ([`protocol`]) to a guarded child ([`child`]) with a deadline and a memory cap. The child runs the problem through
//! MIOpen ([`vendor`], [`vendor_conv`], over [`ffi`]) and checks it against the f64 oracle ([`attempt`]); a shape that a solver cannot
//! take safely is tried in other shapes with the same result ([`rewrite`]). What is in flight is on disk before it
//! starts ([`quarantine`]), and what came of it stays ([`known`]) until its MIOpen is no more ([`superseded`]). [`table`] prints it,
//! [`standing`] reads it for one shape. [`device`] has `wave32 verify` check a whole libMIOpen.

pub mod attempt;
pub mod campaign;
pub mod child;
pub mod device;
pub mod ffi;
pub mod finding;
pub mod known;
mod lane;
pub mod memory;
pub mod protocol;
pub mod quarantine;
pub mod rewrite;
pub mod solvers;
pub mod standing;
pub mod superseded;
pub mod table;
pub mod vendor;
pub mod vendor_conv;
