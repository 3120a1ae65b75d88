//! Convolutions, through the solver table.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::runtime::bridge::{planned, run, view};
use crate::tensors::copies::contiguous;
use crate::tensors::layout::convolves_channels_last;
use crate::tensors::tensor::Tensor;
use wave32_ops::activation::Activation;
use wave32_ops::{ConvChain, ConvOperands, PostOp, Reduce, reduce, storage};
use wave32_problem::{ConvProblem, ConvSpec, Direction};
use wave32_torch_logic::strides::in_format;

/// The kernels of this file.
pub const OPS: &[Registration] = crate::ops! {
    "convolution" => convolution::<false>,
    "convolution_backward" => backward,
};

/// Schemas of what `python/wave32/_fuse.py` calls.
pub const SCHEMAS: &[&str] = &[
    "convolution_relu(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, \
     bool transposed, int[] output_padding, int groups) -> Tensor",
];

/// Kernels of those.
pub const OWN: &[Registration] = crate::ops! { "convolution_relu" => convolution::<true> };

/// What both passes are told of the geometry.
struct Geometry<'a> {
    stride: &'a [i64],
    padding: &'a [i64],
    dilation: &'a [i64],
    transposed: bool,
    output_padding: &'a [i64],
    groups: i64,
}

/// A per-axis list as height and width; one axis is the width of an image of height 1.
fn pair(values: &[i64], height: i64) -> Result<[i64; 2], Error> {
    match *values {
        [w] => Ok([height, w]),
        [h, w] => Ok([h, w]),
        _ => Err(Error::NoKernel(format!("convolution over {} axes", values.len()))),
    }
}

/// Sizes as N C H W.
fn image(tensor: &Tensor) -> Result<[i64; 4], Error> {
    match tensor.sizes()[..] {
        [n, c, l] => Ok([n, c, 1, l]),
        [n, c, h, w] => Ok([n, c, h, w]),
        ref other => Err(Error::NoKernel(format!("convolution of a tensor of sizes {other:?}"))),
    }
}

fn spec(input: &Tensor, weight: &Tensor, geometry: &Geometry<'_>) -> Result<ConvSpec, Error> {
    let [n, c, h, w] = image(input)?;
    let [first, second, r, s] = image(weight)?;
    let k = if geometry.transposed { second * geometry.groups } else { first };
    let taken = if geometry.transposed { first } else { second * geometry.groups };
    if taken != c {
        let given =
            if geometry.transposed { "transposed=1".into() } else { format!("groups={}", geometry.groups) };
        return Err(Error::Invalid(format!(
            "Given {given}, weight of size {:?}, expected input{:?} to have {taken} channels, but got {c} channels instead",
            weight.sizes(),
            input.sizes()
        )));
    }
    if input.dtype()? != weight.dtype()? {
        let (a, b) = (input.dtype()?.name(), weight.dtype()?.name());
        return Err(Error::Invalid(format!("Input type ({a}) and weight type ({b}) should be the same")));
    }
    // PyTorch takes them up to the dilation; the convolution whose gradient this is has no such shape.
    let is_wide = |(extra, stride): (&i64, &i64)| extra >= stride && *extra > 0;
    if geometry.transposed && geometry.output_padding.iter().zip(geometry.stride).any(is_wide) {
        return Err(Error::NoKernel("an output padding that is not smaller than the stride".into()));
    }
    Ok(ConvSpec {
        dtype: storage(view(input)?.dtype).map_err(Error::from)?,
        n,
        c,
        h,
        w,
        k,
        r,
        s,
        stride: pair(geometry.stride, 1)?,
        pad: pair(geometry.padding, 0)?,
        dilation: pair(geometry.dilation, 1)?,
        groups: geometry.groups,
        transposed: geometry.transposed,
        output_pad: if geometry.transposed { pair(geometry.output_padding, 0)? } else { [0, 0] },
        ..ConvSpec::default()
    })
}

/// What is wrong, or stranger than the engine takes, the CPU says or does.
fn problem(spec: ConvSpec) -> Result<ConvProblem, Error> {
    ConvProblem::new(spec).map_err(|error| Error::NoKernel(format!("convolution: {error}")))
}

#[allow(clippy::too_many_arguments)] // the schema's
fn convolution<const RELU: bool>(
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
    let geometry = Geometry { stride, padding, dilation, transposed, output_padding, groups };
    let spec = spec(input, weight, &geometry)?;
    let (n, k) = (spec.n, spec.k);
    // An empty batch has a shape as well.
    let problem = problem(ConvSpec { n: n.max(1), ..spec })?;
    let all = [n, k, problem.out_h(), problem.out_w()];
    let sizes = if input.dim() == 3 { &[n, k, all[3]][..] } else { &all };
    let strides = in_format(convolves_channels_last(input, weight), sizes);
    let output = Tensor::empty_strided(sizes, &strides, input.dtype()?)?;
    if output.numel() == 0 {
        return Ok(output);
    }
    let bias = bias.map(view).transpose()?.map(PostOp::Bias);
    let relu = RELU.then_some(PostOp::Activation(Activation::RELU));
    let chain = ConvChain::new(problem, bias.into_iter().chain(relu).collect());
    let (x, w, y) = (view(input)?, view(weight)?, view(&output)?);
    planned(|planner, queue| planner.convolve(queue, &chain, ConvOperands { x: &x, w: &w, y: &y }))?;
    Ok(output)
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
