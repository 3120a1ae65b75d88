//! The part of the ONNX format that shapes need: <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>.
//!
//! Fields that are not here are skipped by the reader. Weights stay in the file's own bytes.

use bytes::Bytes;
use prost::Message;
use std::path::Path;
use wave32_host::file;

/// A file.
#[derive(Clone, PartialEq, Message)]
pub struct Model {
    /// Who wrote it.
    #[prost(string, tag = "2")]
    pub producer: String,
    /// The network.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<Graph>,
}

/// A network.
#[derive(Clone, PartialEq, Message)]
pub struct Graph {
    /// Operators in an order in which they can run.
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<Node>,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Weights and constants.
    #[prost(message, repeated, tag = "5")]
    pub initializers: Vec<Tensor>,
    /// Inputs; initializers may be among them.
    #[prost(message, repeated, tag = "11")]
    pub inputs: Vec<ValueInfo>,
    /// Outputs.
    #[prost(message, repeated, tag = "12")]
    pub outputs: Vec<ValueInfo>,
    /// Shapes of values between, where the exporter gave them.
    #[prost(message, repeated, tag = "13")]
    pub values: Vec<ValueInfo>,
}

/// An operator.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// Names of its operands; an empty one is left out.
    #[prost(string, repeated, tag = "1")]
    pub inputs: Vec<String>,
    /// Names of its results.
    #[prost(string, repeated, tag = "2")]
    pub outputs: Vec<String>,
    /// Its own name.
    #[prost(string, tag = "3")]
    pub name: String,
    /// What it does.
    #[prost(string, tag = "4")]
    pub op: String,
    /// Its parameters.
    #[prost(message, repeated, tag = "5")]
    pub attributes: Vec<Attribute>,
}

/// A parameter.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A number.
    #[prost(int64, tag = "3")]
    pub i: i64,
    /// A text.
    #[prost(bytes = "bytes", tag = "4")]
    pub s: Bytes,
    /// A tensor.
    #[prost(message, optional, tag = "5")]
    pub t: Option<Tensor>,
    /// Fractions.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// Numbers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
}

/// A tensor's data.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    /// Its shape.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// Its type, an [`element`].
    #[prost(int32, tag = "2")]
    pub dtype: i32,
    /// 64-bit integers.
    #[prost(int64, repeated, tag = "7")]
    pub int64s: Vec<i64>,
    /// 32-bit floats.
    #[prost(float, repeated, tag = "4")]
    pub floats: Vec<f32>,
    /// 32-bit and smaller integers.
    #[prost(int32, repeated, tag = "5")]
    pub int32s: Vec<i32>,
    /// Its name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Its elements, little-endian, where none of the lists has them.
    #[prost(bytes = "bytes", tag = "9")]
    pub raw: Bytes,
}

/// A named value's type.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfo {
    /// The value.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its type.
    #[prost(message, optional, tag = "2")]
    pub ty: Option<Type>,
}

/// A value's type.
#[derive(Clone, PartialEq, Message)]
pub struct Type {
    /// Of a tensor; other values have none of interest.
    #[prost(message, optional, tag = "1")]
    pub tensor: Option<TensorType>,
}

/// A tensor's type.
#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    /// An [`element`].
    #[prost(int32, tag = "1")]
    pub dtype: i32,
    /// Its shape; none where even the rank is open.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Dims>,
}

/// A shape.
#[derive(Clone, PartialEq, Message)]
pub struct Dims {
    /// Its sizes.
    #[prost(message, repeated, tag = "1")]
    pub dims: Vec<Dim>,
}

/// A size.
#[derive(Clone, PartialEq, Message)]
pub struct Dim {
    /// The number.
    #[prost(int64, optional, tag = "1")]
    pub value: Option<i64>,
    /// Or the name of one that is open.
    #[prost(string, optional, tag = "2")]
    pub param: Option<String>,
}

/// Element types.
pub mod element {
    /// binary32.
    pub const FLOAT: i32 = 1;
    /// 32-bit integers.
    pub const INT32: i32 = 6;
    /// 64-bit integers.
    pub const INT64: i32 = 7;
    /// binary16.
    pub const FLOAT16: i32 = 10;
    /// bfloat16.
    pub const BFLOAT16: i32 = 16;
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// The system's answer.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is no such file.
    #[error("{path} is no ONNX file: {why}")]
    Format {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
}

/// Bytes of the largest file there can be: protobuf's own limit.
pub const LARGEST: u64 = 2 << 30;

/// Reads a file.
///
/// # Errors
/// [`OnnxError`] where the file cannot be read or is not a valid ONNX model.
pub fn read(path: &Path) -> Result<Graph, OnnxError> {
    let name = || path.display().to_string();
    let bytes = file::read(path, LARGEST).map_err(|source| OnnxError::File { path: name(), source })?;
    let format = |why: String| OnnxError::Format { path: name(), why };
    let model = Model::decode(Bytes::from(bytes)).map_err(|e| format(e.to_string()))?;
    let graph = model.graph.ok_or_else(|| format("it holds no graph".into()))?;
    if graph.nodes.is_empty() {
        return Err(format("its graph is empty".into()));
    }
    Ok(graph)
}

impl Node {
    /// Operand `index`, unless left out.
    pub fn input(&self, index: usize) -> Option<&str> {
        self.inputs.get(index).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// A parameter.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|a| a.name == name)
    }

    /// A number, or its default.
    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).map_or(default, |a| a.i)
    }

    /// A list of numbers; `None` where it is not given.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|a| a.ints.as_slice())
    }

    /// A text; empty where it is not given.
    pub fn text(&self, name: &str) -> String {
        self.attribute(name).map_or(String::new(), |a| String::from_utf8_lossy(&a.s).into_owned())
    }
}

impl Tensor {
    /// Its numbers, where they are few and integers, or floats that are (sizes, scales).
    pub fn numbers(&self) -> Option<Vec<f64>> {
        const MAX_VALUES: usize = 4096;
        let raw = &self.raw;
        let found: Vec<f64> = match self.dtype {
            element::INT64 if !raw.is_empty() => chunks(raw, |b| i64::from_le_bytes(b) as f64),
            element::INT64 => self.int64s.iter().map(|&v| v as f64).collect(),
            element::INT32 if !raw.is_empty() => chunks(raw, |b| f64::from(i32::from_le_bytes(b))),
            element::INT32 => self.int32s.iter().map(|&v| f64::from(v)).collect(),
            element::FLOAT if raw.len() > 4 * MAX_VALUES => return None,
            element::FLOAT if !raw.is_empty() => chunks(raw, |b| f64::from(f32::from_le_bytes(b))),
            element::FLOAT => self.floats.iter().map(|&v| f64::from(v)).collect(),
            _ => return None,
        };
        let count = self.dims.iter().try_fold(1i64, |a, &b| a.checked_mul(b))?;
        (found.len() <= MAX_VALUES && found.len() as i64 == count).then_some(found)
    }
}

fn chunks<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    bytes.chunks_exact(N).filter_map(|c| c.try_into().ok()).map(read).collect()
}
