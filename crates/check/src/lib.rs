//! Will this network run here? Its convolutions, read from an ONNX file, and the verdict of the cards' owners on them.
//!
//! [`onnx`] is the file's format, [`infer`] walks the graph for the shapes (`rules` has the rule of each operator),
//! [`layers`] makes convolution problems of them, [`notes`] says which shapes an owner saw hang.
#![forbid(unsafe_code)]

pub mod infer;
pub mod layers;
pub mod notes;
pub mod onnx;
mod rules;
