//! An engine plugin for hipDNN: wave32's convolutions behind hipDNN's plugin ABI.
//!
//! hipDNN's backend opens the library, hands it graphs as FlatBuffers ([`schema`]), and asks which of its engines takes
//! them. [`graph`] finds in a graph the convolution that we do, with the bias and activation behind it, or says why it is
//! none of ours; [`work`] holds the plan and runs it. [`general`] and [`engine`] are the exported calls, each a few lines
//! around a safe function through [`entry::call`].
//!
//! The engine is that of the drop-in for MIOpen (`wave32-miopen`): its handles, solver table and kernels. Nothing is
//! searched, compiled or written to disk.

// Exported calls have hipDNN's names.
#![allow(non_snake_case)]

pub mod engine;
pub mod entry;
pub mod general;
pub mod graph;
pub mod schema;
pub mod work;
