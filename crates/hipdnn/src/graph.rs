//! From a graph to the convolution that we do, with what is behind it; or why it is none of ours.
//!
//! Taken: one convolution or one of its gradients; behind a forward pass or a gradient of data, the addition of one number
//! a channel (what PyTorch builds for a bias); behind a forward pass, an activation. Tensors between nodes are virtual
//! and nobody else's. What is not understood to the last field is refused, and hipDNN asks its next engine.

use crate::entry::Outcome;
use crate::schema::{
    self, Attributes, CROSS_CORRELATION, Graph, Node, Numbers, Pointwise, data_type, pointwise_mode,
};
use std::collections::HashMap;
use wave32_miopen::activation::{Activation, ActivationMode};
use wave32_miopen::bound_conv::BoundConv;
use wave32_miopen::convolution::{Convolution, MAX_SPATIAL};
use wave32_miopen::ffi::{Data, DataType};
use wave32_miopen::tensor::Tensor;
use wave32_ops::{PostOp, View};
use wave32_problem::Direction;

/// Why a graph is not ours.
pub type Refusal = String;

/// More tensors than a graph of ours has, with some that nobody uses.
const MAX_TENSORS: usize = 16;

/// What a graph wants, and by which numbers its buffers come.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// The convolution.
    pub bound: BoundConv,
    /// x, w and y, or their gradients.
    pub uids: [i64; 3],
    /// The result among them.
    pub result: usize,
    /// The result's tensor.
    pub made: Tensor,
    /// What is added to each channel.
    pub bias: Option<i64>,
    /// What becomes of the sum.
    pub activation: Option<Activation>,
}

/// A tensor as the graph tells it.
struct TensorAttrs {
    uid: i64,
    data_type: i8,
    dims: Vec<i64>,
    strides: Vec<i64>,
    is_virtual: bool,
    is_special: bool,
}

/// All tensors, by number.
struct Tensors(HashMap<i64, TensorAttrs>);

impl Tensors {
    fn read(graph: Graph) -> Result<Self, Refusal> {
        let list = graph.tensors().ok_or("a graph without tensors")?;
        if list.len() > MAX_TENSORS {
            return Err(format!("{} tensors", list.len()));
        }
        let mut found = HashMap::new();
        for tensor in list {
            let is_virtual = tensor.is_virtual();
            let otherwise = if is_virtual { graph.intermediate_type() } else { graph.io_type() };
            let attrs = TensorAttrs {
                uid: tensor.uid(),
                data_type: Some(tensor.data_type()).filter(|&t| t != data_type::UNSET).unwrap_or(otherwise),
                dims: tensor.dims(),
                strides: tensor.strides(),
                is_virtual,
                is_special: tensor.is_special(),
            };
            if found.insert(attrs.uid, attrs).is_some() {
                return Err(format!("two tensors have the uid {}", tensor.uid()));
            }
        }
        Ok(Self(found))
    }

    fn get(&self, uid: i64) -> Result<&TensorAttrs, Refusal> {
        let attrs = self.0.get(&uid).ok_or_else(|| format!("no tensor has the uid {uid}"))?;
        if attrs.is_special {
            return Err(format!("tensor {uid} is a number, ragged, aligned in its own way, or newer"));
        }
        Ok(attrs)
    }

    /// One that has memory.
    fn real(&self, uid: i64) -> Result<&TensorAttrs, Refusal> {
        let attrs = self.get(uid)?;
        if attrs.is_virtual { Err(format!("tensor {uid} is virtual")) } else { Ok(attrs) }
    }
}

impl TensorAttrs {
    fn tensor(&self) -> Result<Tensor, Refusal> {
        let dtype = match self.data_type {
            data_type::FLOAT => DataType::Float,
            data_type::HALF => DataType::Half,
            data_type::BFLOAT16 => DataType::BFloat16,
            other => return Err(format!("tensor {} has data type {other}", self.uid)),
        };
        Tensor::new(dtype, &self.dims, &self.strides).map_err(|failure| failure.message)
    }
}

/// May two elements lie in one place? (True for some tensors of a strange order, too.)
fn overlaps(tensor: &Tensor) -> bool {
    let dims = tensor.strides().iter().zip(tensor.sizes());
    let mut dims: Vec<(u64, u64)> =
        dims.map(|(&stride, &size)| (stride, size)).filter(|dim| dim.1 > 1).collect();
    dims.sort_unstable();
    let mut last = 0;
    dims.into_iter().any(|(stride, size)| {
        let within = stride <= last;
        last += stride * (size - 1);
        within
    })
}

/// A convolution node: x, w and y, and the descriptor.
struct Root {
    direction: Direction,
    uids: [i64; 3],
    result: usize,
    convolution: Convolution,
}

impl Root {
    fn read(node: Node, graph: Graph) -> Result<Self, Refusal> {
        let (direction, attributes, order) = match node.attributes() {
            Attributes::Forward(found) => (Direction::Forward, found, [0, 1, 2]),
            Attributes::BackwardData(found) => (Direction::BackwardData, found, [2, 1, 0]),
            Attributes::BackwardWeights(found) => (Direction::BackwardWeights, found, [0, 2, 1]),
            Attributes::Pointwise(_) => return Err("the first node is pointwise".into()),
            Attributes::Other(kind) => return Err(format!("the first node is of kind {kind}")),
        };
        if attributes.is_special() || node.is_special() {
            return Err("a convolution with fields that are newer than wave32".into());
        }
        if attributes.mode() != CROSS_CORRELATION {
            return Err(format!("convolution mode {}, not cross-correlation", attributes.mode()));
        }
        if compute_type(node, graph) != data_type::FLOAT {
            return Err(format!("a convolution computed in data type {}", compute_type(node, graph)));
        }
        let [before, after] = attributes.pads();
        if before != after {
            return Err(format!("padding of {before:?} before, {after:?} after"));
        }
        let (strides, dilations) = (attributes.strides(), attributes.dilations());
        let spatial = before.len();
        if !(1..=MAX_SPATIAL).contains(&spatial) || strides.len() != spatial || dilations.len() != spatial {
            return Err(format!("pads {before:?}, strides {strides:?}, dilations {dilations:?}"));
        }
        let mut convolution = Convolution::default();
        convolution.spatial = spatial;
        let fields = [
            (&mut convolution.pads, before, 0),
            (&mut convolution.strides, strides, 1),
            (&mut convolution.dilations, dilations, 1),
        ];
        for (field, given, least) in fields {
            for (at, value) in field.iter_mut().zip(given) {
                if !(least..=i64::from(i32::MAX)).contains(&value) {
                    return Err(format!("a pad, stride or dilation of {value}"));
                }
                *at = value;
            }
        }
        let attrs = attributes.tensors();
        let uids = order.map(|at| attrs[at]);
        let result = match direction {
            Direction::Forward => 2,
            Direction::BackwardData => 0,
            Direction::BackwardWeights => 1,
        };
        Ok(Self { direction, uids, result, convolution })
    }
}

fn compute_type(node: Node, graph: Graph) -> i8 {
    Some(node.compute_type()).filter(|&found| found != data_type::UNSET).unwrap_or(graph.compute_type())
}

/// An activation with its numbers.
fn activation(mode: i8, numbers: Numbers) -> Result<Activation, Refusal> {
    let with =
        |mode, alpha: f32, beta: f32| Activation { mode, alpha: alpha.into(), beta: beta.into(), gamma: 0.0 };
    let Numbers { lower, upper, slope, alpha } = numbers;
    let all = [lower, upper, slope, alpha];
    if all.into_iter().flatten().any(|number| !number.is_finite()) {
        return Err(format!("an activation with the numbers {numbers:?}"));
    }
    Ok(match mode {
        pointwise_mode::ABS => with(ActivationMode::Abs, 1.0, 1.0),
        pointwise_mode::SIGMOID_FWD => with(ActivationMode::Logistic, 1.0, 1.0),
        pointwise_mode::TANH_FWD => with(ActivationMode::Tanh, 1.0, 1.0),
        pointwise_mode::ELU_FWD => with(ActivationMode::Elu, alpha.unwrap_or(1.0), 0.0),
        pointwise_mode::RELU_FWD => match (lower.unwrap_or(0.0), upper, slope.unwrap_or(0.0)) {
            (0.0, None, 0.0) => with(ActivationMode::Relu, 0.0, 0.0),
            (0.0, None, slope) => with(ActivationMode::LeakyRelu, slope, 0.0),
            (lower, Some(upper), 0.0) if lower <= upper => with(ActivationMode::Clamp, lower, upper),
            _ => return Err(format!("a ReLU with the numbers {numbers:?}")),
        },
        other => return Err(format!("pointwise operation {other}")),
    })
}

/// What is behind the convolution, gathered node by node.
struct EpilogueMatch<'t> {
    tensors: &'t Tensors,
    direction: Direction,
    /// The last node's result.
    made: i64,
    bias: Option<i64>,
    activation: Option<Activation>,
}

impl EpilogueMatch<'_> {
    fn take(&mut self, node: Node, graph: Graph) -> Result<(), Refusal> {
        let pointwise = match node.attributes() {
            Attributes::Pointwise(found) => found,
            Attributes::Other(kind) => return Err(format!("a node of kind {kind} behind a convolution")),
            _ => return Err("two convolutions".into()),
        };
        if pointwise.is_special() || node.is_special() {
            return Err("a pointwise operation with an axis, a third operand, or newer fields".into());
        }
        let between = self.tensors.get(self.made)?;
        if !between.is_virtual {
            return Err(format!("tensor {}, between two nodes, is an output too", self.made));
        }
        let computed = compute_type(node, graph);
        let result = match pointwise.mode() {
            pointwise_mode::ADD => self.add(pointwise, between, computed)?,
            mode => self.activate(pointwise, mode, computed)?,
        };
        let next = self.tensors.get(result)?;
        if next.uid == between.uid || next.dims != between.dims {
            return Err(format!("tensor {result} of {:?} is made of one of {:?}", next.dims, between.dims));
        }
        self.made = result;
        Ok(())
    }

    fn add(&mut self, node: Pointwise, between: &TensorAttrs, computed: i8) -> Result<i64, Refusal> {
        let (first, second, result) = node.tensors();
        let other = match (first == self.made, second) {
            (true, Some(second)) if second != self.made => second,
            (false, Some(second)) if second == self.made => first,
            _ => return Err("an addition of something else than the convolution's result".into()),
        };
        if self.direction == Direction::BackwardWeights || self.bias.is_some() || self.activation.is_some() {
            return Err("an addition that is not a bias".into());
        }
        let attrs = self.tensors.real(other)?;
        let bias = attrs.tensor()?;
        let one_a_channel =
            bias.sizes().len() >= 2
                && bias.sizes().len() == between.dims.len()
                && bias.sizes().iter().zip(&between.dims).enumerate().all(|(at, (&size, &dim))| {
                    if at == 1 { i64::try_from(size) == Ok(dim) } else { size == 1 }
                });
        if !one_a_channel || (bias.sizes()[1] > 1 && bias.strides()[1] != 1) {
            return Err(format!("an addition of {:?} to {:?}, not of a bias", attrs.dims, between.dims));
        }
        // PyTorch computes it in the bias's type. We do in f32, which rounds less.
        if computed != data_type::FLOAT && computed != attrs.data_type {
            return Err(format!("an addition computed in data type {computed}"));
        }
        self.bias = Some(other);
        Ok(result)
    }

    fn activate(&mut self, node: Pointwise, mode: i8, computed: i8) -> Result<i64, Refusal> {
        let found = activation(mode, node.numbers())?;
        let (first, second, result) = node.tensors();
        if self.direction != Direction::Forward || self.activation.is_some() || second.is_some() {
            return Err(format!("pointwise operation {mode} where no activation belongs"));
        }
        if first != self.made || computed != data_type::FLOAT {
            return Err(format!("pointwise operation {mode} of tensor {first}, in data type {computed}"));
        }
        self.activation = Some(found);
        Ok(result)
    }
}

impl Pattern {
    /// From a serialized graph, which begins at a multiple of 8.
    ///
    /// # Errors
    /// Why the graph is refused, in one line.
    pub fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        let graph =
            schema::graph(bytes).map_err(|error| format!("no graph that wave32 can read: {error}"))?;
        if graph.has_override_shapes() {
            return Err("sizes that change at each run".into());
        }
        if let Some([major, minor, _]) =
            graph.api_version().filter(|&[major, minor, _]| (major, minor) != (1, 0))
        {
            return Err(format!("it needs version {major}.{minor} of the plugin ABI"));
        }
        let nodes = graph.nodes().filter(|nodes| !nodes.is_empty()).ok_or("a graph without nodes")?;
        // A convolution, a bias, an activation.
        if nodes.len() > 3 {
            return Err(format!("{} nodes", nodes.len()));
        }
        let root = Root::read(nodes.get(0), graph)?;
        let tensors = Tensors::read(graph)?;
        let first = root.uids[root.result];
        let (direction, mut uids) = (root.direction, root.uids);
        let mut matched =
            EpilogueMatch { tensors: &tensors, direction, made: first, bias: None, activation: None };
        for node in nodes.iter().skip(1) {
            matched.take(node, graph)?;
        }
        let EpilogueMatch { made, bias, activation, .. } = matched;
        uids[root.result] = made;
        Self::of(&root, &tensors, uids, bias, activation)
    }

    fn of(
        root: &Root,
        tensors: &Tensors,
        uids: [i64; 3],
        bias: Option<i64>,
        activation: Option<Activation>,
    ) -> Result<Self, Refusal> {
        let Root { direction, result, .. } = *root;
        let inputs = uids.iter().enumerate().filter(|(at, _)| *at != result).map(|(_, &uid)| uid);
        if inputs.chain(bias).any(|uid| uid == uids[result]) {
            return Err(format!("tensor {} is read and written", uids[result]));
        }
        let [x, w, y] = {
            let mut read = Vec::new();
            for uid in uids {
                read.push(tensors.real(uid)?.tensor()?);
            }
            <[Tensor; 3]>::try_from(read).map_err(|_| "three tensors")?
        };
        let made = [x, w, y][result];
        if overlaps(&made) {
            return Err(format!("tensor {}, the result, has elements that share a place", uids[result]));
        }
        if let Some(bias) = bias
            && tensors.real(bias)?.tensor()?.dtype != made.dtype
        {
            return Err("a bias of another type than the result".into());
        }
        let between = tensors.0.values().filter(|attrs| attrs.is_virtual);
        let io = tensors.real(uids[result])?.data_type;
        for attrs in between {
            if ![io, data_type::FLOAT, data_type::UNSET].contains(&attrs.data_type) {
                return Err(format!(
                    "tensor {}, between nodes, has data type {}",
                    attrs.uid, attrs.data_type
                ));
            }
        }
        // Groups are not told: each filter has so many channels.
        let channels = |tensor: &Tensor| tensor.sizes().get(1).copied().unwrap_or(0) as i64;
        let (c, each) = (channels(&x), channels(&w));
        if each == 0 || c % each != 0 {
            return Err(format!("filters of {each} channels on an image of {c}"));
        }
        let mut convolution = root.convolution;
        convolution.groups = c / each;
        let bound = BoundConv::new(direction, &convolution, &x, &w, &y).map_err(|failure| failure.message)?;
        Ok(Self { bound, uids, result, made, bias, activation })
    }

    /// What is behind the convolution, with the bias at that address.
    ///
    /// # Errors
    /// None: a bias has one dimension.
    pub fn post_ops(&self, bias: Data) -> Outcome<Vec<PostOp>> {
        let (dtype, channels) = (self.made.dtype.element(), self.made.sizes()[1]);
        let bias = self.bias.map(|_| View::contiguous(bias as u64, dtype, &[channels])).transpose()?;
        Ok(bias.map(PostOp::Bias).into_iter().chain(self.activation.map(PostOp::Activation)).collect())
    }
}
