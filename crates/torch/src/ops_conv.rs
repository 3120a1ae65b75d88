//! Convolutions, through the solver table.

use crate::bridge::{contiguous, planned, run, view};
use crate::error::Error;
use crate::layout::{convolves_channels_last, laid_out};
use crate::register::Op;
use crate::tensor::Tensor;
use wave32_ops::{ConvOperands, Reduce, epilogue, reduce, storage};
use wave32_problem::{ConvProblem, ConvSpec, Direction};

/// The kernels of this file.
pub const OPS: &[Op] = crate::ops! {
    "convolution" => convolution::<false>,
    "convolution_backward" => backward,
};

/// Schemas of what `python/wave32/_fuse.py` calls.
pub const SCHEMAS: &[&str] = &[
    "convolution_relu(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, \
     bool transposed, int[] output_padding, int groups) -> Tensor",
];

/// Kernels of those.
pub const OWN: &[Op] = crate::ops! { "convolution_relu" => convolution::<true> };

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

/// Sizes of the output in the input's number of dimensions.
fn output_sizes(spec: &ConvSpec, rank: i64) -> Result<crate::tensor::Dims, Error> {
    // An empty batch has a shape as well. What is wrong, or stranger than the engine takes, the CPU says or does.
    let shape = ConvSpec { n: spec.n.max(1), ..spec.clone() };
    let problem =
        ConvProblem::new(shape).map_err(|error| Error::NoKernel(format!("convolution: {error}")))?;
    let all = [spec.n, spec.k, problem.out_h(), problem.out_w()];
    Ok(if rank == 3 { [all[0], all[1], all[3]].into_iter().collect() } else { all.into_iter().collect() })
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
    forward(input, weight, bias, &geometry, RELU)
}

fn forward(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    geometry: &Geometry<'_>,
    relu: bool,
) -> Result<Tensor, Error> {
    let mut spec = spec(input, weight, geometry)?;
    let output = Tensor::empty(&output_sizes(&spec, input.dim())?, input.dtype()?)?;
    let last = convolves_channels_last(input, weight);
    if output.numel() == 0 {
        return laid_out(output, last);
    }
    spec.epilogue = epilogue(bias.is_some(), relu);
    let (x, w) = (contiguous(input)?, contiguous(weight)?);
    let bias = bias.map(contiguous).transpose()?;
    let (x, w, y, b) = (view(&x)?, view(&w)?, view(&output)?, bias.as_ref().map(view).transpose()?);
    planned(|planner, queue| {
        planner.convolve(queue, &spec, ConvOperands { x: &x, w: &w, y: &y, bias: b.as_ref() })
    })?;
    laid_out(output, last)
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
        let result = Tensor::empty(&like.sizes(), dtype)?;
        if empty {
            crate::copies::fill(&result, &vec![0; dtype.bytes() as usize])?;
        } else {
            // Only the other operand is read.
            let other = contiguous(if index == 0 { weight } else { input })?;
            let (target, other) = (view(&result)?, view(&other)?);
            let (x, w) = if index == 0 { (&target, &other) } else { (&other, &target) };
            let spec = ConvSpec { direction, ..spec.clone() };
            planned(|planner, queue| {
                planner.convolve(queue, &spec, ConvOperands { x, w, y: &y, bias: None })
            })?;
        }
        made[index] = laid_out(result, last)?;
    }
    if wanted(2) {
        made[2] = match bias_sizes {
            // Of an input without channels PyTorch makes an output without any, whatever the bias has.
            Some(sizes) if grad.numel() == 0 => {
                let zeros = Tensor::empty(sizes, dtype)?;
                crate::copies::fill(&zeros, &vec![0; dtype.bytes() as usize])?;
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
