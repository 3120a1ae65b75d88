//! Writes graphs as hipDNN's C++ front end does, from the public schemas; shares nothing with the reader.

use flatbuffers::{FlatBufferBuilder, Push, TableFinishedWIPOffset, WIPOffset};

pub const FLOAT: i8 = 1;
pub const HALF: i8 = 2;
pub const BFLOAT16: i8 = 3;
pub const ADD: i8 = 2;
pub const RELU: i8 = 34;

/// `NodeAttributes`.
pub const FORWARD: u8 = 5;
pub const BACKWARD_DATA: u8 = 6;
pub const BACKWARD_WEIGHTS: u8 = 7;
const POINTWISE: u8 = 2;

type Builder = FlatBufferBuilder<'static>;
type Done = WIPOffset<TableFinishedWIPOffset>;

/// Byte offset of field `at` in a vtable: two bytes each, behind two sizes.
fn field(at: u16) -> u16 {
    at * 2 + 4
}

#[derive(Debug, Clone, Default)]
pub struct Tensor {
    pub uid: i64,
    pub data_type: i8,
    pub dims: Vec<i64>,
    pub strides: Vec<i64>,
    pub is_virtual: bool,
    /// A field beyond `virtual`, by number, of eight bytes.
    pub extra: Option<(u16, i64)>,
}

#[derive(Debug, Clone, Default)]
pub struct Convolution {
    pub kind: u8,
    /// In the order of the kind's table.
    pub tensors: [i64; 3],
    pub before: Vec<i64>,
    pub after: Vec<i64>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    pub mode: i8,
    pub compute: i8,
    pub extra: Option<(u16, i64)>,
}

#[derive(Debug, Clone, Default)]
pub struct Pointwise {
    pub mode: i8,
    pub inputs: [Option<i64>; 3],
    pub output: i64,
    pub compute: i8,
    /// Number of the field, and its value.
    pub numbers: Vec<(u16, f32)>,
}

#[derive(Debug, Clone)]
pub enum Node {
    Convolution(Convolution),
    Pointwise(Pointwise),
    /// An empty table of that kind.
    Other(u8),
}

#[derive(Debug, Clone, Default)]
pub struct Graph {
    pub compute: i8,
    pub intermediate: i8,
    pub io: i8,
    pub tensors: Vec<Tensor>,
    pub nodes: Vec<Node>,
    pub has_override_shapes: bool,
    pub version: Option<[u32; 3]>,
}

/// The struct `EngineApiVersion`.
struct Version([u32; 3]);

impl Push for Version {
    type Output = Self;
    unsafe fn push(&self, to: &mut [u8], _: usize) {
        for (at, word) in self.0.iter().enumerate() {
            to[at * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
    }
    fn alignment() -> flatbuffers::PushAlignment {
        flatbuffers::PushAlignment::new(4)
    }
}

fn tensor(b: &mut Builder, tensor: &Tensor) -> Done {
    let name = b.create_string(&format!("tensor {}", tensor.uid));
    let (strides, dims) = (b.create_vector(&tensor.strides), b.create_vector(&tensor.dims));
    let table = b.start_table();
    b.push_slot(field(0), tensor.uid, 0i64);
    b.push_slot_always(field(1), name);
    b.push_slot(field(2), tensor.data_type, 0i8);
    b.push_slot_always(field(3), strides);
    b.push_slot_always(field(4), dims);
    b.push_slot(field(5), tensor.is_virtual, false);
    if let Some((at, value)) = tensor.extra {
        b.push_slot_always(field(at), value);
    }
    let table = b.end_table(table);
    WIPOffset::new(table.value())
}

fn convolution(b: &mut Builder, node: &Convolution) -> Done {
    let lists = [&node.before, &node.after, &node.strides, &node.dilations].map(|list| b.create_vector(list));
    let table = b.start_table();
    for (at, uid) in node.tensors.iter().enumerate() {
        b.push_slot(field(at as u16), *uid, 0i64);
    }
    for (at, list) in lists.into_iter().enumerate() {
        b.push_slot_always(field(3 + at as u16), list);
    }
    b.push_slot(field(7), node.mode, 0i8);
    if let Some((at, value)) = node.extra {
        b.push_slot_always(field(at), value);
    }
    let table = b.end_table(table);
    WIPOffset::new(table.value())
}

fn pointwise(b: &mut Builder, node: &Pointwise) -> Done {
    let table = b.start_table();
    b.push_slot(field(0), node.mode, 0i8);
    for &(at, value) in &node.numbers {
        b.push_slot_always(field(at), value);
    }
    b.push_slot(field(5), node.inputs[0].unwrap_or(0), 0i64);
    for (at, input) in [(6, node.inputs[1]), (7, node.inputs[2])] {
        if let Some(uid) = input {
            b.push_slot_always(field(at), uid);
        }
    }
    b.push_slot(field(8), node.output, 0i64);
    let table = b.end_table(table);
    WIPOffset::new(table.value())
}

fn node(b: &mut Builder, node: &Node) -> Done {
    let (kind, compute, attributes) = match node {
        Node::Convolution(found) => (found.kind, found.compute, convolution(b, found)),
        Node::Pointwise(found) => (POINTWISE, found.compute, pointwise(b, found)),
        Node::Other(kind) => {
            let table = b.start_table();
            let table = b.end_table(table);
            (*kind, FLOAT, WIPOffset::new(table.value()))
        }
    };
    let name = b.create_string("node");
    let table = b.start_table();
    b.push_slot_always(field(0), name);
    b.push_slot(field(1), compute, 0i8);
    b.push_slot(field(2), kind, 0u8);
    b.push_slot_always(field(3), attributes);
    let table = b.end_table(table);
    WIPOffset::new(table.value())
}

impl Graph {
    pub fn bytes(&self) -> Vec<u8> {
        let mut b = Builder::new();
        let tensors: Vec<Done> = self.tensors.iter().map(|each| tensor(&mut b, each)).collect();
        let nodes: Vec<Done> = self.nodes.iter().map(|each| node(&mut b, each)).collect();
        let (tensors, nodes) = (b.create_vector(&tensors), b.create_vector(&nodes));
        let name = b.create_string("a graph");
        let table = b.start_table();
        b.push_slot_always(field(0), name);
        b.push_slot(field(1), self.compute, 0i8);
        b.push_slot(field(2), self.intermediate, 0i8);
        b.push_slot(field(3), self.io, 0i8);
        b.push_slot_always(field(4), tensors);
        b.push_slot_always(field(5), nodes);
        b.push_slot(field(7), self.has_override_shapes, false);
        if let Some(version) = self.version {
            b.push_slot_always(field(8), Version(version));
        }
        let table = b.end_table(table);
        b.finish_minimal(table);
        b.finished_data().to_vec()
    }

    pub fn convolution(&mut self) -> &mut Convolution {
        match &mut self.nodes[0] {
            Node::Convolution(found) => found,
            other => panic!("{other:?}"),
        }
    }

    pub fn pointwise(&mut self, at: usize) -> &mut Pointwise {
        match &mut self.nodes[at] {
            Node::Pointwise(found) => found,
            other => panic!("{other:?}"),
        }
    }

    pub fn tensor(&mut self, uid: i64) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.uid == uid).unwrap()
    }
}

/// A serialized `EngineConfig`, with a knob that is set.
pub fn engine_config(engine: i64) -> Vec<u8> {
    let mut b = Builder::new();
    let id = b.create_string("global.benchmarking");
    let knob = b.start_table();
    b.push_slot_always(field(0), id);
    let knob = b.end_table(knob);
    let knobs = b.create_vector(&[WIPOffset::<TableFinishedWIPOffset>::new(knob.value())]);
    let table = b.start_table();
    b.push_slot_always(field(0), engine);
    b.push_slot_always(field(1), knobs);
    let table = b.end_table(table);
    b.finish_minimal(table);
    b.finished_data().to_vec()
}
