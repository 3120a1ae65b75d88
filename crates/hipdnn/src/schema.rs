//! The parts of hipDNN's FlatBuffers schemas that we read: tables of public `*.fbs` files, their fields by number.
//!
//! Every buffer is verified before a field is read, as far as we read it: where a table, vector or string of ours leaves
//! the buffer, [`graph`] and [`engine_config`] say so. What a value means is not looked at here.
//!
//! Fields behind those that we know came with later schemas. A table tells whether it has any (`Fields::beyond`), since
//! what they mean for a convolution nobody can know here.

use flatbuffers::{
    Follow, ForwardsUOffset, InvalidFlatbuffer, Table, VOffsetT, Vector, Verifiable, Verifier,
    VerifierOptions,
};
use std::ops::Range;

/// Where a table's vtable holds its field number `at`.
const fn slot(at: usize) -> VOffsetT {
    (4 + 2 * at) as VOffsetT
}

/// `DataType` of `data_types.fbs`, those that we know.
pub mod data_type {
    /// Not told here: the graph's own field says.
    pub const UNSET: i8 = 0;
    /// f32.
    pub const FLOAT: i8 = 1;
    /// f16.
    pub const HALF: i8 = 2;
    /// bfloat16.
    pub const BFLOAT16: i8 = 3;
}

/// `ConvMode.CROSS_CORRELATION` of `convolution_common.fbs`.
pub const CROSS_CORRELATION: i8 = 2;

/// `PointwiseMode` of `pointwise_attributes.fbs`, those that we know.
pub mod pointwise_mode {
    /// `|x|`.
    pub const ABS: i8 = 1;
    /// `a + b`.
    pub const ADD: i8 = 2;
    /// Exponential linear unit.
    pub const ELU_FWD: i8 = 14;
    /// `max(x, 0)`, with clips and a slope.
    pub const RELU_FWD: i8 = 34;
    /// `1 / (1 + exp(-x))`.
    pub const SIGMOID_FWD: i8 = 37;
    /// Hyperbolic tangent.
    pub const TANH_FWD: i8 = 47;
}

/// `NodeAttributes` of `graph.fbs`: which table is in a node.
mod attributes {
    pub const POINTWISE: u8 = 2;
    pub const FORWARD: u8 = 5;
    pub const BACKWARD_DATA: u8 = 6;
    pub const BACKWARD_WEIGHTS: u8 = 7;
}

/// A verified table.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a>(Table<'a>);

impl<'a> Fields<'a> {
    /// Is a field there? (Defaults are not written.)
    fn has(self, at: usize) -> bool {
        self.0.vtable().get(slot(at)) != 0
    }

    /// Is a field there of those numbered from `at`?
    fn beyond(self, at: usize) -> bool {
        // Not by `num_fields`: it counts on four bytes, which a broken vtable may not have.
        (usize::from(slot(at))..self.0.vtable().num_bytes())
            .step_by(2)
            .any(|at| self.0.vtable().get(at as VOffsetT) != 0)
    }

    fn get<T: Follow<'a> + 'a>(self, at: usize) -> Option<T::Inner> {
        // SAFETY: only accessors of verified tables call this, with the type that their verifier has for the field.
        unsafe { self.0.get::<T>(slot(at), None) }
    }

    fn i8(self, at: usize) -> i8 {
        self.get::<i8>(at).unwrap_or(0)
    }

    fn i64(self, at: usize) -> i64 {
        self.get::<i64>(at).unwrap_or(0)
    }

    fn longs(self, at: usize) -> Vec<i64> {
        self.get::<ForwardsUOffset<Vector<i64>>>(at).map(|found| found.iter().collect()).unwrap_or_default()
    }
}

/// Makes a table of the schema a type that [`flatbuffers`] verifies and reads.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident, |$verifier:ident| $fields:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name<'a>(Fields<'a>);

        impl<'a> Follow<'a> for $name<'a> {
            type Inner = Self;
            unsafe fn follow(buffer: &'a [u8], at: usize) -> Self {
                // SAFETY: the caller's promise is that a table is there.
                Self(Fields(unsafe { Table::new(buffer, at) }))
            }
        }

        impl Verifiable for $name<'_> {
            fn run_verifier(verifier: &mut Verifier, at: usize) -> Result<(), InvalidFlatbuffer> {
                let $verifier = verifier.visit_table(at)?;
                $fields.finish();
                Ok(())
            }
        }
    };
}

type Longs<'a> = ForwardsUOffset<Vector<'a, i64>>;
type Tables<'a, T> = ForwardsUOffset<Vector<'a, ForwardsUOffset<T>>>;

table! {
    /// `Graph` of `graph.fbs`: name 0, compute_data_type 1, intermediate_data_type 2, io_data_type 3, tensors 4, nodes 5,
    /// preferred_engine_id 6, is_override_shape_enabled 7, min_required_engine_api_version 8, id 9.
    Graph,
    |table| table
        .visit_field::<i8>("compute_data_type", slot(1), false)?
        .visit_field::<i8>("intermediate_data_type", slot(2), false)?
        .visit_field::<i8>("io_data_type", slot(3), false)?
        .visit_field::<Tables<Tensor>>("tensors", slot(4), false)?
        .visit_field::<Tables<Node>>("nodes", slot(5), false)?
        .visit_field::<bool>("is_override_shape_enabled", slot(7), false)?
        .visit_field::<ApiVersion>("min_required_engine_api_version", slot(8), false)?
}

impl<'a> Graph<'a> {
    /// What nodes compute in that do not say.
    pub fn compute_type(self) -> i8 {
        self.0.i8(1)
    }

    /// The type of virtual tensors that do not say.
    pub fn intermediate_type(self) -> i8 {
        self.0.i8(2)
    }

    /// The type of other tensors that do not say.
    pub fn io_type(self) -> i8 {
        self.0.i8(3)
    }

    /// All tensors.
    pub fn tensors(self) -> Option<Vector<'a, ForwardsUOffset<Tensor<'a>>>> {
        self.0.get::<Tables<Tensor>>(4)
    }

    /// All nodes, in an order in which they can run.
    pub fn nodes(self) -> Option<Vector<'a, ForwardsUOffset<Node<'a>>>> {
        self.0.get::<Tables<Node>>(5)
    }

    /// May sizes change at each run?
    pub fn has_override_shapes(self) -> bool {
        self.0.get::<bool>(7).unwrap_or(false)
    }

    /// The plugin ABI that the graph needs: major, minor, patch.
    pub fn api_version(self) -> Option<[u32; 3]> {
        self.0.get::<ApiVersion>(8)
    }
}

/// The struct `EngineApiVersion` of `graph.fbs`.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct ApiVersion([u8; 12]);

impl Follow<'_> for ApiVersion {
    type Inner = [u32; 3];
    unsafe fn follow(buffer: &[u8], at: usize) -> [u32; 3] {
        let word = |from: usize| u32::from_le_bytes(std::array::from_fn(|byte| buffer[from + byte]));
        [word(at), word(at + 4), word(at + 8)]
    }
}

impl Verifiable for ApiVersion {
    fn run_verifier(verifier: &mut Verifier, at: usize) -> Result<(), InvalidFlatbuffer> {
        verifier.in_buffer::<Self>(at)
    }
}

table! {
    /// `TensorAttributes` of `tensor_attributes.fbs`: uid 0, name 1, data_type 2, strides 3, dims 4, virtual 5,
    /// value 6 and 7; then came runtime scalars, ragged offsets and alignment, not in all versions under the same numbers.
    Tensor,
    |table| table
        .visit_field::<i64>("uid", slot(0), false)?
        .visit_field::<i8>("data_type", slot(2), false)?
        .visit_field::<Longs>("strides", slot(3), false)?
        .visit_field::<Longs>("dims", slot(4), false)?
        .visit_field::<bool>("virtual", slot(5), false)?
}

impl Tensor<'_> {
    /// Its number, by which nodes and buffers name it.
    pub fn uid(self) -> i64 {
        self.0.i64(0)
    }

    /// [`data_type`].
    pub fn data_type(self) -> i8 {
        self.0.i8(2)
    }

    /// In elements.
    pub fn strides(self) -> Vec<i64> {
        self.0.longs(3)
    }

    /// Sizes.
    pub fn dims(self) -> Vec<i64> {
        self.0.longs(4)
    }

    /// Is it between nodes only, without memory?
    pub fn is_virtual(self) -> bool {
        self.0.get::<bool>(5).unwrap_or(false)
    }

    /// Is it a number in the graph, ragged, aligned in a way of its own, or something newer?
    pub fn is_special(self) -> bool {
        self.0.beyond(6)
    }
}

table! {
    /// `Node` of `graph.fbs`: name 0, compute_data_type 1, attributes 2 and 3.
    Node,
    |table| table
        .visit_field::<i8>("compute_data_type", slot(1), false)?
        .visit_union::<u8, _>("attributes_type", slot(2), "attributes", slot(3), false, |key, verifier, at| match key {
            attributes::POINTWISE => verifier.verify_union_variant::<ForwardsUOffset<Pointwise>>("Pointwise", at),
            attributes::FORWARD | attributes::BACKWARD_DATA | attributes::BACKWARD_WEIGHTS => {
                verifier.verify_union_variant::<ForwardsUOffset<Convolution>>("Convolution", at)
            }
            _ => Ok(()),
        })?
}

/// What a node does.
#[derive(Debug, Clone, Copy)]
pub enum Attributes<'a> {
    /// `ConvolutionFwdAttributes`: x, w, y.
    Forward(Convolution<'a>),
    /// `ConvolutionBwdAttributes`: dy, w, dx.
    BackwardData(Convolution<'a>),
    /// `ConvolutionWrwAttributes`: x, dy, dw.
    BackwardWeights(Convolution<'a>),
    /// `PointwiseAttributes`.
    Pointwise(Pointwise<'a>),
    /// Anything else, by its number in `NodeAttributes`.
    Other(u8),
}

impl<'a> Node<'a> {
    /// What it computes in.
    pub fn compute_type(self) -> i8 {
        self.0.i8(1)
    }

    /// What it does.
    pub fn attributes(self) -> Attributes<'a> {
        let kind = self.0.get::<u8>(2).unwrap_or(0);
        let convolution = || self.0.get::<ForwardsUOffset<Convolution>>(3);
        let found = match kind {
            attributes::FORWARD => convolution().map(Attributes::Forward),
            attributes::BACKWARD_DATA => convolution().map(Attributes::BackwardData),
            attributes::BACKWARD_WEIGHTS => convolution().map(Attributes::BackwardWeights),
            attributes::POINTWISE => self.0.get::<ForwardsUOffset<Pointwise>>(3).map(Attributes::Pointwise),
            _ => None,
        };
        found.unwrap_or(Attributes::Other(kind))
    }

    /// Has it fields that we do not know?
    pub fn is_special(self) -> bool {
        self.0.beyond(4)
    }
}

table! {
    /// `Convolution{Fwd,Bwd,Wrw}Attributes` of the files of that name: three tensors 0 to 2, the third the result;
    /// pre_padding 3, post_padding 4, stride 5, dilation 6, conv_mode 7, umd_flops 8, umd_bytes 9 (for choosing engines).
    Convolution,
    |table| table
        .visit_field::<i64>("first_tensor_uid", slot(0), false)?
        .visit_field::<i64>("second_tensor_uid", slot(1), false)?
        .visit_field::<i64>("third_tensor_uid", slot(2), false)?
        .visit_field::<Longs>("pre_padding", slot(3), false)?
        .visit_field::<Longs>("post_padding", slot(4), false)?
        .visit_field::<Longs>("stride", slot(5), false)?
        .visit_field::<Longs>("dilation", slot(6), false)?
        .visit_field::<i8>("conv_mode", slot(7), false)?
}

impl Convolution<'_> {
    /// Its three tensors, the result last.
    pub fn tensors(self) -> [i64; 3] {
        [0, 1, 2].map(|at| self.0.i64(at))
    }

    /// Padding before and after.
    pub fn pads(self) -> [Vec<i64>; 2] {
        [3, 4].map(|at| self.0.longs(at))
    }

    /// Strides.
    pub fn strides(self) -> Vec<i64> {
        self.0.longs(5)
    }

    /// Dilations.
    pub fn dilations(self) -> Vec<i64> {
        self.0.longs(6)
    }

    /// `ConvMode`.
    pub fn mode(self) -> i8 {
        self.0.i8(7)
    }

    /// Has it fields that we do not know?
    pub fn is_special(self) -> bool {
        self.0.beyond(10)
    }
}

table! {
    /// `PointwiseAttributes` of `pointwise_attributes.fbs`: operation 0, relu_lower_clip 1, relu_upper_clip 2,
    /// relu_lower_clip_slope 3, axis 4, in_0 5, in_1 6, in_2 7, out_0 8, swish_beta 9, elu_alpha 10, softplus_beta 11.
    Pointwise,
    |table| table
        .visit_field::<i8>("operation", slot(0), false)?
        .visit_field::<f32>("relu_lower_clip", slot(1), false)?
        .visit_field::<f32>("relu_upper_clip", slot(2), false)?
        .visit_field::<f32>("relu_lower_clip_slope", slot(3), false)?
        .visit_field::<i64>("in_0_tensor_uid", slot(5), false)?
        .visit_field::<i64>("in_1_tensor_uid", slot(6), false)?
        .visit_field::<i64>("out_0_tensor_uid", slot(8), false)?
        .visit_field::<f32>("elu_alpha", slot(10), false)?
}

/// Numbers that change a pointwise operation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Numbers {
    /// `relu_lower_clip`.
    pub lower: Option<f32>,
    /// `relu_upper_clip`.
    pub upper: Option<f32>,
    /// `relu_lower_clip_slope`.
    pub slope: Option<f32>,
    /// `elu_alpha`.
    pub alpha: Option<f32>,
}

impl Pointwise<'_> {
    /// [`pointwise_mode`].
    pub fn mode(self) -> i8 {
        self.0.i8(0)
    }

    /// Its first operand, its second, if it has one, and its result.
    pub fn tensors(self) -> (i64, Option<i64>, i64) {
        (self.0.i64(5), self.0.get::<i64>(6), self.0.i64(8))
    }

    /// Those of its numbers that were set.
    pub fn numbers(self) -> Numbers {
        let [lower, upper, slope, alpha] = [1, 2, 3, 10].map(|at| self.0.get::<f32>(at));
        Numbers { lower, upper, slope, alpha }
    }

    /// Has it an axis, a third operand, numbers of operations that we do not do, or fields that we do not know?
    pub fn is_special(self) -> bool {
        const UNUSED: [Range<usize>; 3] = [4..5, 7..8, 9..10];
        UNUSED.into_iter().flatten().any(|at| self.0.has(at)) || self.0.beyond(11)
    }
}

table! {
    /// `EngineConfig` of `engine_config.fbs`: engine_id 0; settings of knobs 1, of which our engine has none.
    EngineConfig,
    |table| table.visit_field::<i64>("engine_id", slot(0), false)?
}

impl EngineConfig<'_> {
    /// The engine that is to run.
    pub fn engine(self) -> i64 {
        self.0.i64(0)
    }
}

fn root<'a, T>(bytes: &'a [u8]) -> Result<T::Inner, String>
where
    T: Follow<'a> + Verifiable + 'a,
{
    // More than any graph of ours has; a buffer from outside is not to keep us busy.
    let options = VerifierOptions { max_tables: 4096, max_apparent_size: 1 << 24, ..Default::default() };
    // The crate tells where it happened on lines of their own.
    let line =
        |error: InvalidFlatbuffer| error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
    flatbuffers::root_with_opts::<T>(&options, bytes).map_err(line)
}

/// A serialized `Graph`; `bytes` begin at a multiple of 8.
///
/// # Errors
/// What is not valid in the buffer, in one line.
pub fn graph(bytes: &[u8]) -> Result<Graph<'_>, String> {
    root::<Graph>(bytes)
}

/// A serialized `EngineConfig`; `bytes` begin at a multiple of 8.
///
/// # Errors
/// What is not valid in the buffer, in one line.
pub fn engine_config(bytes: &[u8]) -> Result<EngineConfig<'_>, String> {
    root::<EngineConfig>(bytes)
}

/// A serialized `EngineDetails` of `engine_details.fbs`: engine_id 0, without knobs. (Its name is a field of some
/// versions only; hosts ask `hipdnnEnginePluginGetEngineName`.)
pub fn engine_details(engine: i64) -> Box<[u8]> {
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let table = builder.start_table();
    builder.push_slot_always(slot(0), engine);
    let table = builder.end_table(table);
    builder.finish_minimal(table);
    builder.finished_data().into()
}
