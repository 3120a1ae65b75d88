//! Convolutions, through the solver table.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::dispatch::result::overlap;
use crate::runtime::bridge::{planned, run, view};
use crate::tensors::copies::contiguous;
use crate::tensors::layout::convolves_channels_last;
use crate::tensors::tensor::Tensor;
use std::cell::RefCell;
use wave32_device::DeviceError;
use wave32_ops::activation::Activation;
use wave32_ops::{ConvChain, ConvOperands, OpError, PostOp, Reduce, reduce};
use wave32_problem::{ConvProblem, ConvSpec, Direction};
use wave32_torch_logic::ScalarType;
use wave32_torch_logic::convolution::{self, Geometry, problem};
use wave32_torch_logic::strides::in_format;

/// The kernels of this file.
pub const OPS: &[Registration] = crate::ops! {
    "convolution" => plain,
    "convolution_backward" => backward,
};

/// Schemas of what `python/wave32/_fuse.py` calls.
pub const SCHEMAS: &[&str] = &[
    "convolution_activation(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, \
     bool transposed, int[] output_padding, int groups, str activation) -> Tensor",
    "convolution_sum_(Tensor(a!) self, Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, \
     bool transposed, int[] output_padding, int groups, str activation) -> Tensor(a!)",
];

/// Kernels of those.
pub const OWN: &[Registration] = crate::ops! {
    "convolution_activation" => forward,
    "convolution_sum_" => forward_sum,
};

/// The forward convolution that the arguments ask for.
fn spec(input: &Tensor, weight: &Tensor, geometry: &Geometry<'_>) -> Result<ConvSpec, Error> {
    let (sizes, of_weight) = (input.sizes(), weight.sizes());
    let spec = convolution::spec((&sizes, input.dtype()?), (&of_weight, weight.dtype()?), geometry)?;
    view(input)?;
    Ok(spec)
}

#[allow(clippy::too_many_arguments)] // the schema's
fn plain(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    transposed: bool,
    output_padding: &[i64],
    groups: i64,
) -> Result<Tensor, Error> {
    forward(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, "none")
}

/// With an activation, in the words of a problem's line: `leaky_relu20` has the slope 0.2.
#[allow(clippy::too_many_arguments)] // the schema's
fn forward(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    transposed: bool,
    output_padding: &[i64],
    groups: i64,
    activation: &str,
) -> Result<Tensor, Error> {
    let geometry = Geometry { stride, padding, dilation, transposed, output_padding, groups };
    let (problem, output) = result(input, weight, &geometry)?;
    if output.numel() == 0 {
        return Ok(output);
    }
    let chain = chain(problem, bias, None, activation)?;
    let requested = matches!(STATISTICS.replace(Statistics::NotRequested), Statistics::Requested);
    let all = [input, weight, &output];
    match if requested && output.is_contiguous() { launch_with_statistics(&chain, all)? } else { None } {
        Some(statistics) => STATISTICS.set(Statistics::Computed(statistics)),
        None => launch(&chain, all)?,
    }
    Ok(output)
}

/// The forward convolution that the arguments ask for, and memory for its result.
fn result(input: &Tensor, weight: &Tensor, geometry: &Geometry<'_>) -> Result<(ConvProblem, Tensor), Error> {
    let spec = spec(input, weight, geometry)?;
    let (n, k) = (spec.n, spec.k);
    // An empty batch has a shape as well.
    let problem = problem(ConvSpec { n: n.max(1), ..spec })?;
    let all = [n, k, problem.out_h(), problem.out_w()];
    let sizes = if input.dim() == 3 { &[n, k, all[3]][..] } else { &all };
    let strides = in_format(convolves_channels_last(input, weight), sizes);
    Ok((problem, Tensor::empty_strided(sizes, &strides, input.dtype()?)?))
}

/// A forward convolution with a bias, a sum and an activation, in that order, as far as they are there.
fn chain(
    problem: ConvProblem,
    bias: Option<&Tensor>,
    sum: Option<PostOp>,
    activation: &str,
) -> Result<ConvChain, Error> {
    let bias = bias.map(view).transpose()?.map(PostOp::Bias);
    let activation =
        activation.parse().map_err(|()| Error::NoKernel(format!("an activation {activation:?}")))?;
    let activation = Activation::from_kernels(activation).map(PostOp::Activation);
    Ok(ConvChain::new(problem, [bias, sum, activation].into_iter().flatten().collect()))
}

/// Launches a chain with input, weight and output.
fn launch(chain: &ConvChain, [input, weight, output]: [&Tensor; 3]) -> Result<(), Error> {
    let (x, w, y) = (view(input)?, view(weight)?, view(output)?);
    planned(|planner, queue| planner.convolve(queue, chain, ConvOperands { x: &x, w: &w, y: &y }))
}

/// The moments of the result's channels for a batch norm behind it ([`ConvChain::with_statistics`]).
enum Statistics {
    NotRequested,
    /// For the next convolution of this thread.
    Requested,
    Computed(Tensor),
}

thread_local! {
    static STATISTICS: RefCell<Statistics> = const { RefCell::new(Statistics::NotRequested) };
}

/// The next convolution on this thread computes its result's moments where its kernels can; [`take_statistics`] gives them.
pub fn request_statistics() {
    STATISTICS.set(Statistics::Requested);
}

/// The moments, f32 \[channel\]\[part\]\[4\], that the last convolution on this thread computed since they were requested.
pub fn take_statistics() -> Option<Tensor> {
    match STATISTICS.replace(Statistics::NotRequested) {
        Statistics::Computed(tensor) => Some(tensor),
        Statistics::NotRequested | Statistics::Requested => None,
    }
}

/// As [`launch`], by a plan that also computes the moments of the result's channels; none where there is no such plan, or no memory
/// for it: then nothing was launched.
fn launch_with_statistics(
    chain: &ConvChain,
    [input, weight, output]: [&Tensor; 3],
) -> Result<Option<Tensor>, Error> {
    let plan = planned(|planner, queue| Ok(planner.with_statistics(&queue.caps().clone(), chain)))?;
    let Some((plan, parts)) = plan.and_then(|plan| plan.statistics_parts().map(|parts| (plan, parts))) else {
        return Ok(None);
    };
    let statistics = Tensor::empty(&[output.sizes()[1], parts as i64, 4], ScalarType::F32)?;
    let (x, w, y) = (view(input)?, view(weight)?, view(output)?);
    let with_statistics = chain.clone().with_statistics(view(&statistics)?);
    let operands = ConvOperands { x: &x, w: &w, y: &y };
    let done = run(|queue| match with_statistics.run_keeping(queue, &plan, operands) {
        Err(OpError::Device(DeviceError::OutOfMemory { .. })) => Ok(false),
        done => done.map(|()| true),
    })?;
    Ok(done.then_some(statistics))
}

/// `output += convolution(input)`, and an activation of that. What it refuses it has not written.
#[allow(clippy::too_many_arguments)] // the schema's
fn forward_sum(
    output: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    transposed: bool,
    output_padding: &[i64],
    groups: i64,
    activation: &str,
) -> Result<Tensor, Error> {
    let geometry = Geometry { stride, padding, dilation, transposed, output_padding, groups };
    let problem = problem(spec(input, weight, &geometry)?)?;
    let sizes = [problem.spec().n, problem.spec().k, problem.out_h(), problem.out_w()];
    let dtype = output.dtype()?;
    if input.dim() != 4 || output.sizes()[..] != sizes || dtype != input.dtype()? || !output.is_dense() {
        let detail = format!("a sum of {sizes:?} and {:?} of {}", output.sizes(), dtype.name());
        return Err(Error::NoKernel(detail));
    }
    if overlap(output, input)? || overlap(output, weight)? {
        return Err(Error::NoKernel("a sum that overlaps an operand".into()));
    }
    let sum = PostOp::blend(1.0, 1.0, view(output)?);
    launch(&chain(problem, bias, sum, activation)?, [input, weight, output])?;
    output.share()
}

#[allow(clippy::too_many_arguments)] // the schema's
fn backward(
    grad: &Tensor,
    input: &Tensor,
    weight: &Tensor,
    bias_sizes: Option<&[i64]>,
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    transposed: bool,
    output_padding: &[i64],
    groups: i64,
    mask: &[bool],
) -> Result<(Tensor, Tensor, Tensor), Error> {
    let geometry = Geometry { stride, padding, dilation, transposed, output_padding, groups };
    let spec = spec(input, weight, &geometry)?;
    let dtype = input.dtype()?;
    let last = convolves_channels_last(input, weight);
    let grad = contiguous(grad)?;
    let wanted = |index: usize| mask.get(index).copied().unwrap_or(false);
    let mut made = [Tensor::undefined()?, Tensor::undefined()?, Tensor::undefined()?];
    let empty = input.numel() == 0 || grad.numel() == 0;
    let y = view(&grad)?;
    for (index, direction, like) in
        [(0, Direction::BackwardData, input), (1, Direction::BackwardWeights, weight)]
    {
        if !wanted(index) {
            continue;
        }
        let result = Tensor::empty_strided(&like.sizes(), &in_format(last, &like.sizes()), dtype)?;
        if empty {
            crate::tensors::copies::fill(&result, &vec![0; dtype.bytes() as usize])?;
        } else {
            // Only the other operand is read.
            let (target, other) = (view(&result)?, view(if index == 0 { weight } else { input })?);
            let (x, w) = if index == 0 { (&target, &other) } else { (&other, &target) };
            let chain = ConvChain::new(problem(ConvSpec { direction, ..spec.clone() })?, Vec::new());
            planned(|planner, queue| planner.convolve(queue, &chain, ConvOperands { x, w, y: &y }))?;
        }
        made[index] = result;
    }
    if wanted(2) {
        made[2] = match bias_sizes {
            // Of an input without channels PyTorch makes an output without any, whatever the bias has.
            Some(sizes) if grad.numel() == 0 => {
                let zeros = Tensor::empty(sizes, dtype)?;
                crate::tensors::copies::fill(&zeros, &vec![0; dtype.bytes() as usize])?;
                zeros
            }
            _ => bias_gradient(&grad)?,
        };
    }
    let [dx, dw, db] = made;
    Ok((dx, dw, db))
}

/// Sum over all but the channels.
fn bias_gradient(grad: &Tensor) -> Result<Tensor, Error> {
    let made = Tensor::empty(&[grad.sizes()[1]], grad.dtype()?)?;
    let dims: smallvec::SmallVec<[usize; 4]> = (0..grad.dim() as usize).filter(|d| *d != 1).collect();
    let (from, to) = (view(grad)?, view(&made)?);
    run(|queue| reduce(queue, Reduce::Sum, &from, &dims, &to))?;
    Ok(made)
}
