//! Reductions.

use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::dispatch::result::prepare;
use crate::dispatch::scalar::ScalarOp;
use crate::runtime::bridge::{run, view};
use crate::tensors::tensor::Tensor;
use wave32_ops::{Reduce, cumsum, extreme, reduce, variance};
use wave32_torch_logic::sizes::{Reduced, wrap};
use wave32_torch_logic::{Scalar, ScalarType, promotion};

/// Kernels of `aten`.
pub const OPS: &[Registration] = crate::ops! {
    "sum.dim_IntList" => |x: &Tensor, dims: Option<&[i64]>, keep: bool, dtype: Option<ScalarType>| {
        reduced(Reduce::Sum, x, dims, keep, sum_type(x, dtype)?)
    },
    "sum.IntList_out" => |x: &Tensor, dims: Option<&[i64]>, keep: bool, dtype: Option<ScalarType>, out: &Tensor| {
        reduced_into(Reduce::Sum, x, dims, keep, dtype, out)
    },
    "mean.dim" => |x: &Tensor, dims: Option<&[i64]>, keep: bool, dtype: Option<ScalarType>| {
        reduced(Reduce::Mean, x, dims, keep, float_type(dtype.unwrap_or(x.dtype()?))?)
    },
    "mean.out" => |x: &Tensor, dims: Option<&[i64]>, keep: bool, dtype: Option<ScalarType>, out: &Tensor| {
        float_type(dtype.unwrap_or(x.dtype()?))?;
        reduced_into(Reduce::Mean, x, dims, keep, dtype, out)
    },
    "prod" => |x: &Tensor, dtype: Option<ScalarType>| reduced(Reduce::Prod, x, None, false, sum_type(x, dtype)?),
    "prod.int_out" => |x: &Tensor, dim: i64, keep: bool, dtype: Option<ScalarType>, out: &Tensor| {
        reduced_into(Reduce::Prod, x, Some(&[dim]), keep, dtype, out)
    },
    "amax.out" => |x: &Tensor, dims: &[i64], keep: bool, out: &Tensor| {
        reduced_into(Reduce::Max, x, Some(dims), keep, Some(x.dtype()?), out)
    },
    "amin.out" => |x: &Tensor, dims: &[i64], keep: bool, out: &Tensor| {
        reduced_into(Reduce::Min, x, Some(dims), keep, Some(x.dtype()?), out)
    },
    "max" => |x: &Tensor| reduced(Reduce::Max, x, None, false, x.dtype()?),
    "min" => |x: &Tensor| reduced(Reduce::Min, x, None, false, x.dtype()?),
    "max.unary_out" => |x: &Tensor, out: &Tensor| {
        reduced_into(Reduce::Max, x, None, false, Some(x.dtype()?), out)
    },
    "min.unary_out" => |x: &Tensor, out: &Tensor| {
        reduced_into(Reduce::Min, x, None, false, Some(x.dtype()?), out)
    },
    "aminmax.out" => |x: &Tensor, dim: Option<i64>, keep: bool, least: &Tensor, most: &Tensor| {
        let dims = dim.map(|dim| [dim]);
        let dims = dims.as_ref().map(|dims| &dims[..]);
        let dtype = Some(x.dtype()?);
        let least = reduced_into(Reduce::Min, x, dims, keep, dtype, least)?;
        Ok((least, reduced_into(Reduce::Max, x, dims, keep, dtype, most)?))
    },
    "max.dim_max" => |x: &Tensor, dim: i64, keep: bool, values: &Tensor, places: &Tensor| {
        extreme_into(false, x, dim, keep, values, places)
    },
    "min.dim_min" => |x: &Tensor, dim: i64, keep: bool, values: &Tensor, places: &Tensor| {
        extreme_into(true, x, dim, keep, values, places)
    },
    "argmax.out" => |x: &Tensor, dim: Option<i64>, keep: bool, out: &Tensor| place_into(false, x, dim, keep, out),
    "argmin.out" => |x: &Tensor, dim: Option<i64>, keep: bool, out: &Tensor| place_into(true, x, dim, keep, out),
    "any.out" => |x: &Tensor, dim: i64, keep: bool, out: &Tensor| truth(Reduce::Any, x, Some(&[dim]), keep, out),
    "all.out" => |x: &Tensor, dim: i64, keep: bool, out: &Tensor| truth(Reduce::All, x, Some(&[dim]), keep, out),
    "any.dims_out" => |x: &Tensor, dims: Option<&[i64]>, keep: bool, out: &Tensor| {
        truths(Reduce::Any, x, dims, keep, out)
    },
    "all.dims_out" => |x: &Tensor, dims: Option<&[i64]>, keep: bool, out: &Tensor| {
        truths(Reduce::All, x, dims, keep, out)
    },
    "any.all_out" => |x: &Tensor, out: &Tensor| truth(Reduce::Any, x, None, false, out),
    "all.all_out" => |x: &Tensor, out: &Tensor| truth(Reduce::All, x, None, false, out),
    "count_nonzero.dim_IntList" => |x: &Tensor, dims: &[i64]| {
        reduced(Reduce::CountNonzero, x, Some(dims), false, ScalarType::I64)
    },
    "cumsum.out" => cumsum_into,
};

/// Kernels of `aten` with a `Scalar`.
pub const SCALAR_OPS: &[ScalarOp] = crate::scalar_ops! {
    "linalg_vector_norm" => |x: &Tensor, order: Scalar, dims: Option<&[i64]>, keep: bool, dtype: Option<ScalarType>| {
        norm(x, Some(order), dims, keep, dtype)
    },
    "linalg_vector_norm.out" => vector_norm_out,
    "norm.ScalarOpt_dim" => |x: &Tensor, order: Option<Scalar>, dims: &[i64], keep: bool| {
        norm(x, order, Some(dims), keep, None)
    },
    "norm.out" => |x: &Tensor, order: Option<Scalar>, dims: &[i64], keep: bool, out: &Tensor| {
        norm_into(x, order, Some(dims), keep, None, out)
    },
    "var.correction" => |x: &Tensor, dims: Option<&[i64]>, correction: Option<Scalar>, keep: bool| {
        spread(false, x, dims, correction, keep)
    },
    "std.correction" => |x: &Tensor, dims: Option<&[i64]>, correction: Option<Scalar>, keep: bool| {
        spread(true, x, dims, correction, keep)
    },
    "var.correction_out" => |x: &Tensor, dims: Option<&[i64]>, by: Option<Scalar>, keep: bool, out: &Tensor| {
        spread_into(false, x, dims, by, keep, out)
    },
    "std.correction_out" => |x: &Tensor, dims: Option<&[i64]>, by: Option<Scalar>, keep: bool, out: &Tensor| {
        spread_into(true, x, dims, by, keep, out)
    },
    "var_mean.correction" => |x: &Tensor, dims: Option<&[i64]>, correction: Option<Scalar>, keep: bool| {
        spread_and_mean(false, x, dims, correction, keep)
    },
    "std_mean.correction" => |x: &Tensor, dims: Option<&[i64]>, correction: Option<Scalar>, keep: bool| {
        spread_and_mean(true, x, dims, correction, keep)
    },
};

/// How a norm of that order reduces, in that type.
fn norm_of(x: &Tensor, order: Option<Scalar>, dtype: ScalarType) -> Result<Reduce, Error> {
    let (own, order) = (x.dtype()?, order.unwrap_or(Scalar::Int(2)).float()?);
    // A narrower type rounds elements before it squares them; without elements some orders are errors.
    let narrows = float_type(own)? != dtype && (float_type(dtype)?.bytes() <= own.bytes());
    if narrows || order.is_nan() || (x.numel() == 0 && !(0.0..f64::INFINITY).contains(&order)) {
        return Err(Error::NoKernel(format!(
            "a norm of order {order} of {} in {}",
            own.name(),
            dtype.name()
        )));
    }
    Ok(Reduce::Norm(order))
}

fn norm(
    x: &Tensor,
    order: Option<Scalar>,
    dims: Option<&[i64]>,
    keep: bool,
    dtype: Option<ScalarType>,
) -> Result<Tensor, Error> {
    let dtype = dtype.unwrap_or(x.dtype()?);
    reduced(norm_of(x, order, dtype)?, x, dims, keep, dtype)
}

fn norm_into(
    x: &Tensor,
    order: Option<Scalar>,
    dims: Option<&[i64]>,
    keep: bool,
    dtype: Option<ScalarType>,
    out: &Tensor,
) -> Result<Tensor, Error> {
    let dtype = dtype.unwrap_or(x.dtype()?);
    reduced_into(norm_of(x, order, dtype)?, x, dims, keep, Some(dtype), out)
}

fn vector_norm_out(
    x: &Tensor,
    order: Scalar,
    dims: Option<&[i64]>,
    keep: bool,
    dtype: Option<ScalarType>,
    out: &Tensor,
) -> Result<Tensor, Error> {
    norm_into(x, Some(order), dims, keep, dtype, out)
}

/// The correction, which is 1 unless told, of a variance that a kernel computes.
fn correction_of(x: &Tensor, correction: Option<Scalar>) -> Result<f32, Error> {
    if x.numel() == 0 {
        return Err(Error::NoKernel("a variance of nothing".into()));
    }
    let correction = correction.unwrap_or(Scalar::Int(1)).float()?;
    // The kernel takes it in f32.
    if float_type(x.dtype()?)? == ScalarType::F64 && f64::from(correction as f32) != correction {
        return Err(Error::NoKernel(format!("a correction of {correction} in f64")));
    }
    Ok(correction as f32)
}

fn spread(
    root: bool,
    x: &Tensor,
    dims: Option<&[i64]>,
    correction: Option<Scalar>,
    keep: bool,
) -> Result<Tensor, Error> {
    let (correction, shape) = (correction_of(x, correction)?, shape_of(x, dims, keep)?);
    let out = Tensor::empty(&shape.sizes, x.dtype()?)?;
    let (from, to) = (view(x)?, view(&out)?);
    run(|queue| variance(queue, &from, &shape.dims, correction, root, Some(&to), None))?;
    Ok(out)
}

fn spread_into(
    root: bool,
    x: &Tensor,
    dims: Option<&[i64]>,
    correction: Option<Scalar>,
    keep: bool,
    out: &Tensor,
) -> Result<Tensor, Error> {
    let (correction, shape) = (correction_of(x, correction)?, shape_of(x, dims, keep)?);
    prepare_apart(out, &shape.sizes, x.dtype()?, x)?;
    let (from, to) = (view(x)?, view(out)?);
    run(|queue| variance(queue, &from, &shape.dims, correction, root, Some(&to), None))?;
    out.share()
}

/// The mean is taken by itself: the variance's, from sums about a shift, is nan where an element is infinite.
fn spread_and_mean(
    root: bool,
    x: &Tensor,
    dims: Option<&[i64]>,
    correction: Option<Scalar>,
    keep: bool,
) -> Result<(Tensor, Tensor), Error> {
    let out = spread(root, x, dims, correction, keep)?;
    Ok((out, reduced(Reduce::Mean, x, dims, keep, float_type(x.dtype()?)?)?))
}

fn float_type(dtype: ScalarType) -> Result<ScalarType, Error> {
    if dtype.is_float() {
        Ok(dtype)
    } else {
        Err(Error::NoKernel(format!("a mean or norm in {}", dtype.name())))
    }
}

/// Sums of whole numbers are `int64`.
fn sum_type(x: &Tensor, dtype: Option<ScalarType>) -> Result<ScalarType, Error> {
    dtype.map_or_else(|| x.dtype().map(promotion::sum_type), Ok)
}

/// What a reduction of `x` leaves.
fn shape_of(x: &Tensor, dims: Option<&[i64]>, keep: bool) -> Result<Reduced, Error> {
    Ok(Reduced::new(&x.sizes(), dims, keep)?)
}

fn reduced(
    how: Reduce,
    x: &Tensor,
    dims: Option<&[i64]>,
    keep: bool,
    dtype: ScalarType,
) -> Result<Tensor, Error> {
    let shape = shape_of(x, dims, keep)?;
    let out = Tensor::empty(&shape.sizes, dtype)?;
    launch(how, x, &shape, &out)?;
    Ok(out)
}

fn reduced_into(
    how: Reduce,
    x: &Tensor,
    dims: Option<&[i64]>,
    keep: bool,
    dtype: Option<ScalarType>,
    out: &Tensor,
) -> Result<Tensor, Error> {
    let shape = shape_of(x, dims, keep)?;
    prepare_apart(out, &shape.sizes, dtype.unwrap_or(out.dtype()?), x)?;
    launch(how, x, &shape, out)?;
    out.share()
}

/// As [`prepare`]; elements are read after others were written, so that a result may not even be the operand.
fn prepare_apart(out: &Tensor, sizes: &[i64], dtype: ScalarType, x: &Tensor) -> Result<(), Error> {
    prepare(out, sizes, dtype, &[x])?;
    if x.numel() != 0 && out.address() == x.address() {
        return Err(Error::NoKernel("a reduction into its operand".into()));
    }
    Ok(())
}

fn launch(how: Reduce, x: &Tensor, shape: &Reduced, out: &Tensor) -> Result<(), Error> {
    // The CPU converts each element first, which for floats to whole numbers is something else.
    let counts = matches!(how, Reduce::Any | Reduce::All | Reduce::CountNonzero);
    if !counts && x.dtype()?.is_float() && !out.dtype()?.is_float() {
        return Err(Error::NoKernel(format!("a reduction into {}", out.dtype()?.name())));
    }
    let (from, to) = (view(x)?, view(out)?);
    run(|queue| reduce(queue, how, &from, &shape.dims, &to))
}

fn truth(how: Reduce, x: &Tensor, dims: Option<&[i64]>, keep: bool, out: &Tensor) -> Result<Tensor, Error> {
    let dtype = if x.dtype()? == ScalarType::U8 { ScalarType::U8 } else { ScalarType::Bool };
    reduced_into(how, x, dims, keep, Some(dtype), out)
}

/// Here an empty list of dimensions reduces none.
fn truths(how: Reduce, x: &Tensor, dims: Option<&[i64]>, keep: bool, out: &Tensor) -> Result<Tensor, Error> {
    if dims.is_some_and(<[i64]>::is_empty) {
        return Err(Error::NoKernel("a reduction over no dimension".into()));
    }
    truth(how, x, dims, keep, out)
}

fn cumsum_into(x: &Tensor, dim: i64, dtype: Option<ScalarType>, out: &Tensor) -> Result<Tensor, Error> {
    let dim = wrap(dim, x.sizes().len())?;
    prepare(out, &x.sizes(), dtype.unwrap_or(out.dtype()?), &[x])?;
    // A scalar is its own sum, but converted; the CPU converts floats to whole numbers one by one.
    if x.sizes().is_empty() || (x.dtype()?.is_float() && !out.dtype()?.is_float()) {
        return Err(Error::NoKernel(format!(
            "a running sum of {:?} into {}",
            x.sizes(),
            out.dtype()?.name()
        )));
    }
    let (from, to) = (view(x)?, view(out)?);
    run(|queue| cumsum(queue, &from, dim, &to))?;
    out.share()
}

fn extreme_into(
    least: bool,
    x: &Tensor,
    dim: i64,
    keep: bool,
    values: &Tensor,
    places: &Tensor,
) -> Result<(Tensor, Tensor), Error> {
    let shape = shape_of(x, Some(&[dim]), keep)?;
    prepare(values, &shape.sizes, x.dtype()?, &[x])?;
    prepare(places, &shape.sizes, ScalarType::I64, &[x, values])?;
    let (from, to, places_to) = (view(x)?, view(values)?, view(places)?);
    run(|queue| extreme(queue, least, &from, &shape.dims, Some(&to), Some(&places_to)))?;
    Ok((values.share()?, places.share()?))
}

fn place_into(least: bool, x: &Tensor, dim: Option<i64>, keep: bool, out: &Tensor) -> Result<Tensor, Error> {
    let dims = dim.map(|dim| [dim]);
    let shape = shape_of(x, dims.as_ref().map(|dims| &dims[..]), keep)?;
    prepare(out, &shape.sizes, ScalarType::I64, &[x])?;
    let (from, to) = (view(x)?, view(out)?);
    run(|queue| extreme(queue, least, &from, &shape.dims, None, Some(&to)))?;
    out.share()
}
