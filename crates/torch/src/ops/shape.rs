//! Concatenation, reversal, triangles, padding.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::dispatch::result::{bits, empty_in_format, prepare, same_elements};
use crate::runtime::bridge::{run, view};
use crate::tensors::copies::{self, contiguous};
use crate::tensors::layout::suggests_channels_last;
use crate::tensors::memory_ops::resize_output_to;
use crate::tensors::tensor::Tensor;
use wave32_ops::pad::{Padding, pad, pad_backward};
use wave32_ops::{View, rearrange};
use wave32_torch_logic::sizes::{self, wrap};
use wave32_torch_logic::{Dims, ScalarType, strides, windows};

/// Kernels of `aten`.
pub const OPS: &[Registration] = crate::ops! {
    "cat.out" => cat,
    "flip" => flip,
    "roll" => roll,
    "channel_shuffle" => channel_shuffle,
    "tril.out" => |x: &Tensor, diagonal: i64, out: &Tensor| triangle(x, false, diagonal, out),
    "triu.out" => |x: &Tensor, diagonal: i64, out: &Tensor| triangle(x, true, diagonal, out),
    "reflection_pad1d.out" => |x: &Tensor, sides: &[i64], out: &Tensor| padded_into(Padding::Reflect, x, sides, out),
    "reflection_pad2d" => |x: &Tensor, sides: &[i64]| padded(Padding::Reflect, x, sides),
    "reflection_pad2d.out" => |x: &Tensor, sides: &[i64], out: &Tensor| padded_into(Padding::Reflect, x, sides, out),
    "reflection_pad3d" => |x: &Tensor, sides: &[i64]| padded(Padding::Reflect, x, sides),
    "reflection_pad3d.out" => |x: &Tensor, sides: &[i64], out: &Tensor| padded_into(Padding::Reflect, x, sides, out),
    "replication_pad1d.out" => |x: &Tensor, sides: &[i64], out: &Tensor| padded_into(Padding::Replicate, x, sides, out),
    "replication_pad2d" => |x: &Tensor, sides: &[i64]| padded(Padding::Replicate, x, sides),
    "replication_pad2d.out" => |x: &Tensor, sides: &[i64], out: &Tensor| padded_into(Padding::Replicate, x, sides, out),
    "replication_pad3d" => |x: &Tensor, sides: &[i64]| padded(Padding::Replicate, x, sides),
    "replication_pad3d.out" => |x: &Tensor, sides: &[i64], out: &Tensor| padded_into(Padding::Replicate, x, sides, out),
    "reflection_pad1d_backward.grad_input" => |grad: &Tensor, x: &Tensor, sides: &[i64], to: &Tensor| {
        unpadded_into(Padding::Reflect, grad, x, sides, to)
    },
    "reflection_pad2d_backward" => |grad: &Tensor, x: &Tensor, sides: &[i64]| unpadded(Padding::Reflect, grad, x, sides),
    "reflection_pad2d_backward.grad_input" => |grad: &Tensor, x: &Tensor, sides: &[i64], to: &Tensor| {
        unpadded_into(Padding::Reflect, grad, x, sides, to)
    },
    "reflection_pad3d_backward" => |grad: &Tensor, x: &Tensor, sides: &[i64]| unpadded(Padding::Reflect, grad, x, sides),
    "reflection_pad3d_backward.grad_input" => |grad: &Tensor, x: &Tensor, sides: &[i64], to: &Tensor| {
        unpadded_into(Padding::Reflect, grad, x, sides, to)
    },
    "replication_pad1d_backward.grad_input" => |grad: &Tensor, x: &Tensor, sides: &[i64], to: &Tensor| {
        unpadded_into(Padding::Replicate, grad, x, sides, to)
    },
    "replication_pad2d_backward" => |grad: &Tensor, x: &Tensor, sides: &[i64]| unpadded(Padding::Replicate, grad, x, sides),
    "replication_pad2d_backward.grad_input" => |grad: &Tensor, x: &Tensor, sides: &[i64], to: &Tensor| {
        unpadded_into(Padding::Replicate, grad, x, sides, to)
    },
    "replication_pad3d_backward" => |grad: &Tensor, x: &Tensor, sides: &[i64]| unpadded(Padding::Replicate, grad, x, sides),
    "replication_pad3d_backward.grad_input" => |grad: &Tensor, x: &Tensor, sides: &[i64], to: &Tensor| {
        unpadded_into(Padding::Replicate, grad, x, sides, to)
    },
};

/// How a tensor's memory is seen.
type Viewed = fn(&Tensor) -> Result<View, Error>;

/// How parts are moved into `out`: as they are, or converted to its float type, which they promote to. Parts without
/// elements count for their type. For others what is allowed is the CPU's to say.
fn parts_view(tensors: &[Tensor], out: &Tensor) -> Result<Viewed, Error> {
    let dtype = out.dtype()?;
    match tensors.iter().try_fold(true, |alike, part| Ok::<_, Error>(alike && part.dtype()? == dtype))? {
        true => Ok(bits),
        false if dtype.is_float() => Ok(view),
        false => Err(Error::NoKernel("a concatenation into another type".into())),
    }
}

fn cat(tensors: &[Tensor], dim: i64, out: &Tensor) -> Result<Tensor, Error> {
    if tensors.is_empty() {
        return Err(Error::NoKernel("a concatenation of nothing".into()));
    }
    let (look, dtype) = (parts_view(tensors, out)?, out.dtype()?);
    // An empty tensor of one dimension fits everywhere, as ever.
    let parts: Vec<&Tensor> = tensors.iter().filter(|part| part.sizes()[..] != [0]).collect();
    if parts.is_empty() {
        prepare(out, &[0], dtype, &[])?;
        return out.share();
    }
    let all: Vec<Dims> = parts.iter().map(|part| part.sizes()).collect();
    let (dim, sizes) = sizes::joined(&all, dim)?;
    if out.is_wave() && out.sizes()[..] != sizes[..] {
        // A resized result has its operands' format, all of them counted.
        let format = strides::in_format(tensors.iter().all(suggests_channels_last), &sizes);
        resize_output_to(out, &sizes, &format)?;
    }
    prepare(out, &sizes, dtype, &parts)?;
    if parts.len() > 1 && parts.iter().any(|part| part.numel() > 0 && same_elements(part, out)) {
        return Err(Error::NoKernel("a result that overlaps an operand".into()));
    }
    let views = parts.iter().map(|part| look(part)).collect::<Result<Vec<_>, _>>()?;
    let to = look(out)?;
    run(|queue| rearrange::cat(queue, &views, dim, &to))?;
    out.share()
}

fn flip(x: &Tensor, dims: &[i64]) -> Result<Tensor, Error> {
    let flipped = sizes::distinct(dims, x.sizes().len())?;
    let from = bits(x)?;
    let out = x.empty_like(x.dtype()?)?;
    let to = bits(&out)?;
    run(|queue| rearrange::flip(queue, &from, &flipped, &to))?;
    Ok(out)
}

fn roll(x: &Tensor, shifts: &[i64], dims: &[i64]) -> Result<Tensor, Error> {
    if let (&[_], []) = (shifts, dims) {
        // It is the flattened tensor that rolls.
        let plain = contiguous(x)?;
        let rolled = roll(&plain.alias(&[x.numel()], &[1], plain.offset())?, shifts, &[0])?;
        return rolled.alias(&plain.sizes(), &plain.strides(), 0);
    }
    let (from, rank) = (bits(x)?, x.sizes().len());
    if shifts.is_empty() || shifts.len() != dims.len() || rank == 0 {
        return Err(Error::NoKernel(format!("a roll by {shifts:?} along {dims:?}")));
    }
    let all = sizes::rolls(&x.sizes(), shifts, dims)?;
    // As PyTorch, where a step that moves nothing ends in a contiguous copy.
    let still = dims
        .iter()
        .zip(shifts)
        .any(|(&dim, &shift)| wrap(dim, rank).is_ok_and(|dim| shift % x.sizes()[dim].max(1) == 0));
    let out = if still { Tensor::empty(&x.sizes(), x.dtype()?)? } else { empty_in_format(x, &x.sizes())? };
    let to = bits(&out)?;
    run(|queue| rearrange::roll(queue, &from, &all, &to))?;
    Ok(out)
}

fn channel_shuffle(x: &Tensor, groups: i64) -> Result<Tensor, Error> {
    let sizes = x.sizes();
    if sizes.len() < 3 || groups < 1 || sizes[1] % groups != 0 || x.numel() == 0 {
        return Err(Error::NoKernel(format!("a shuffle of {sizes:?} in {groups} groups")));
    }
    let out = empty_in_format(x, &sizes)?;
    let each = sizes[1] / groups;
    // The channels as a matrix on both sides, one of them transposed.
    let matrix = |sizes: &[i64], strides: &[i64], rows: i64, columns: i64, turned: bool| {
        let (mut shape, mut steps) = (Dims::from_slice(sizes), Dims::from_slice(strides));
        let (row, column) = (columns * strides[1], strides[1]);
        (shape[1], steps[1]) = if turned { (columns, column) } else { (rows, row) };
        shape.insert(2, if turned { rows } else { columns });
        steps.insert(2, if turned { row } else { column });
        (shape, steps)
    };
    let (shape, steps) = matrix(&sizes, &x.strides(), groups, each, true);
    let from = x.alias(&shape, &steps, x.offset())?;
    let (shape, steps) = matrix(&sizes, &out.strides(), each, groups, false);
    let to = out.alias(&shape, &steps, out.offset())?;
    copies::copy(&from, &to)?;
    Ok(out)
}

fn triangle(x: &Tensor, upper: bool, diagonal: i64, out: &Tensor) -> Result<Tensor, Error> {
    prepare(out, &x.sizes(), x.dtype()?, &[x])?;
    let (from, to) = (bits(x)?, bits(out)?);
    run(|queue| rearrange::triangle(queue, &from, upper, diagonal, &to))?;
    out.share()
}

fn padded(padding: Padding, x: &Tensor, flat: &[i64]) -> Result<Tensor, Error> {
    let (_, sizes) = windows::padded(padding, &x.sizes(), flat)?;
    padded_into(padding, x, flat, &empty_in_format(x, &sizes)?)
}

fn padded_into(padding: Padding, x: &Tensor, flat: &[i64], out: &Tensor) -> Result<Tensor, Error> {
    if padding == Padding::Reflect && x.dtype()? == ScalarType::Bool {
        return Err(Error::NoKernel("reflection of bools".into()));
    }
    let (sides, sizes) = windows::padded(padding, &x.sizes(), flat)?;
    prepare(out, &sizes, x.dtype()?, &[x])?;
    let (from, to) = (bits(x)?, bits(out)?);
    run(|queue| pad(queue, padding, &sides, &from, &to))?;
    out.share()
}

fn unpadded(padding: Padding, grad: &Tensor, x: &Tensor, flat: &[i64]) -> Result<Tensor, Error> {
    unpadded_into(padding, grad, x, flat, &empty_in_format(x, &x.sizes())?)
}

fn unpadded_into(
    padding: Padding,
    grad: &Tensor,
    x: &Tensor,
    flat: &[i64],
    out: &Tensor,
) -> Result<Tensor, Error> {
    let (sides, sizes) = windows::padded(padding, &x.sizes(), flat)?;
    if grad.sizes()[..] != sizes[..] || grad.dtype()? != x.dtype()? {
        return Err(Error::NoKernel(format!("gradients of sizes {:?}, not {sizes:?}", grad.sizes())));
    }
    prepare(out, &x.sizes(), x.dtype()?, &[grad])?;
    let (from, to) = (view(grad)?, view(out)?);
    run(|queue| pad_backward(queue, padding, &sides, &from, &to))?;
    out.share()
}
