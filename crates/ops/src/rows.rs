//! Softmax and norms of rows that the registers of one workgroup hold (`kernels/persistent.kern`): each element is read and written once.

use crate::batch_norm::NormActivation;
use crate::call::{Call, by_float, fit, flag, read, write};
use crate::norm::NormShape;
use crate::{ElementType, OpError, Queue, View};
use wave32_params::{Name, persistent as kernel};

const THREADS: u64 = 256;

/// A configuration of the kernel: its variants of each pass, elements of a vector, vectors a thread.
struct Config {
    softmax: [Name<kernel::Kernel>; 3],
    softmax_backward: [Name<kernel::Kernel>; 3],
    norm: [Name<kernel::Kernel>; 3],
    norm_backward: [Name<kernel::Kernel>; 3],
    vector: u64,
    vectors: u64,
}

/// The first that holds a row is taken.
const CONFIGS: [Config; 3] = [
    Config {
        softmax: kernel::SOFT_V4N2,
        softmax_backward: kernel::SOFT_DX_V4N2,
        norm: kernel::NORM_V4N2,
        norm_backward: kernel::NORM_DX_V4N2,
        vector: 4,
        vectors: 2,
    },
    Config {
        softmax: kernel::SOFT_V4N8,
        softmax_backward: kernel::SOFT_DX_V4N8,
        norm: kernel::NORM_V4N8,
        norm_backward: kernel::NORM_DX_V4N8,
        vector: 4,
        vectors: 8,
    },
    Config {
        softmax: kernel::SOFT_V1N8,
        softmax_backward: kernel::SOFT_DX_V1N8,
        norm: kernel::NORM_V1N8,
        norm_backward: kernel::NORM_DX_V1N8,
        vector: 1,
        vectors: 8,
    },
];

/// Rows of contiguous tensors, and how they are held.
pub(crate) struct Rows {
    rows: u64,
    /// Elements of a row.
    count: u64,
    dtype: ElementType,
    config: &'static Config,
    /// log2 of the threads of a row.
    lanes: u32,
}

/// What is computed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pass<'a> {
    /// Or its logarithm.
    Softmax { log: bool },
    /// From the result and the gradient of it.
    SoftmaxBackward { log: bool },
    /// Writes the statistics.
    Norm { norm: &'a Norm<'a>, eps: f32, activation: NormActivation },
    /// The gradient of its input.
    NormBackward { norm: &'a Norm<'a> },
}

/// Weights of a norm and its rows' statistics, mean and inverse deviation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norm<'a> {
    pub shape: NormShape,
    pub weight: Option<&'a View>,
    pub bias: Option<&'a View>,
    pub statistics: [&'a View; 2],
}

impl Norm<'_> {
    /// True where weights lie like a row. Else a vector of a row has one weight, which is read by itself.
    fn is_by_vector(&self) -> bool {
        self.shape.inner == 1 && self.shape.rows_per_item == 1
    }
}

impl Rows {
    /// `rows` of `count` elements of these tensors; `None` where a tensor is not contiguous, is of another type or not of
    /// f32, f16 or bf16, or where a row is too long.
    pub fn new(rows: u64, count: u64, tensors: &[Option<&View>]) -> Option<Self> {
        let mut tensors = tensors.iter().flatten();
        let first = tensors.clone().next()?;
        by_float(kernel::SOFT_V4N2, first.dtype)?;
        let plain = |view: &&View| view.dtype == first.dtype && view.is_contiguous();
        if rows == 0 || count == 0 || !tensors.clone().all(plain) {
            return None;
        }
        let places = tensors.all(|view| view.begins_with_vector());
        let fits = |config: &&Config| {
            count <= THREADS * config.vector * config.vectors
                && (config.vector == 1 || places && count.is_multiple_of(config.vector))
        };
        let config = CONFIGS.iter().find(fits)?;
        let lanes = (count / config.vector).div_ceil(config.vectors).next_power_of_two().clamp(8, THREADS);
        Some(Self { rows, count, dtype: first.dtype, config, lanes: lanes.ilog2() })
    }

    /// For a norm: also where its weights can be read along with the rows.
    pub fn of_norm(norm: &Norm<'_>, tensors: [Option<&View>; 3]) -> Option<Self> {
        let shape = norm.shape;
        let [a, b, c] = tensors;
        let made = Self::new(shape.rows, shape.channels * shape.inner, &[a, b, c, norm.weight, norm.bias])?;
        (norm.is_by_vector() || shape.inner.is_multiple_of(made.config.vector)).then_some(made)
    }

    /// Launches it: `src` is the input, or the result for a gradient of softmax; `dy` a gradient's.
    ///
    /// # Errors
    /// `too-many-elements`, `range-too-large`; [`OpError::Device`] where the device fails.
    pub fn run(
        &self,
        queue: &mut dyn Queue,
        pass: Pass<'_>,
        src: &View,
        dy: Option<&View>,
        dst: &View,
    ) -> Result<(), OpError> {
        let config = self.config;
        let (names, flags, norm) = match pass {
            Pass::Softmax { log } => (config.softmax, flag(log, kernel::FLAG_LOG), None),
            Pass::SoftmaxBackward { log } => (config.softmax_backward, flag(log, kernel::FLAG_LOG), None),
            Pass::Norm { norm, .. } => (config.norm, 0, Some(norm)),
            Pass::NormBackward { norm } => (config.norm_backward, 0, Some(norm)),
        };
        let (eps, activation) = match pass {
            Pass::Norm { eps, activation, .. } => (eps, activation),
            _ => (0.0, NormActivation::None),
        };
        let (act, most) = activation.words();
        let name = by_float(names, self.dtype)
            .ok_or_else(|| OpError::refused("element-type", format!("{:?}", self.dtype)))?;
        let bound = read(queue, src)?;
        let operand = |view: Option<&View>| view.map_or(Ok(bound.unused()), |view| read(queue, view));
        let [weight, bias] = [norm.and_then(|n| n.weight), norm.and_then(|n| n.bias)];
        let statistics = |at: usize| match (norm, pass) {
            (Some(norm), Pass::Norm { .. }) => write(queue, norm.statistics[at]),
            (Some(norm), _) => read(queue, norm.statistics[at]),
            (None, _) => Ok(bound.unused()),
        };
        let buffers = kernel::Buffers {
            src: bound,
            dy: operand(dy)?,
            dst: write(queue, dst)?,
            weights: operand(weight)?,
            biases: operand(bias)?,
            means: statistics(0)?,
            rstds: statistics(1)?,
        };
        let vector = self.config.vector;
        let is_by_vector = norm.is_none_or(Norm::is_by_vector);
        let weights = if is_by_vector { vector } else { 1 };
        let params = kernel::Params {
            rows: fit(self.rows)?,
            count: fit(self.count / vector)?,
            flags: flags
                | flag(weight.is_some(), kernel::FLAG_WEIGHTED)
                | flag(bias.is_some(), kernel::FLAG_BIASED),
            lanes: self.lanes,
            per: fit(norm.map_or(1, |norm| norm.shape.rows_per_item))?,
            channels: fit(norm.map_or(0, |norm| norm.shape.channels))?,
            inner: if is_by_vector { 0 } else { fit(norm.map_or(1, |norm| norm.shape.inner))? },
            src_at: fit(bound.at() / vector)?,
            dy_at: fit(buffers.dy.at() / vector)?,
            dst_at: fit(buffers.dst.at() / vector)?,
            w_at: fit(buffers.weights.at() / weights)?,
            b_at: fit(buffers.biases.at() / weights)?,
            mean_at: fit(buffers.means.at())?,
            rstd_at: fit(buffers.rstds.at())?,
            act,
            n: self.count as f32,
            eps,
            most,
        };
        let elements = self.rows * self.count;
        let sides = 2 + u64::from(dy.is_some());
        Call {
            kernel: name,
            params,
            buffers,
            flops: elements * 40,
            bytes: elements * sides * self.dtype.size(),
        }
        .launch_items(queue, self.rows, THREADS >> self.lanes)
    }
}
