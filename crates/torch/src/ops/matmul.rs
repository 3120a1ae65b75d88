//! Matrix products, through the solver table.

use crate::abi::calls::api;
use crate::abi::error::Error;
use crate::dispatch::register::Registration;
use crate::dispatch::result::{alone, elsewhere};
use crate::dispatch::scalar::ScalarOp;
use crate::runtime::bridge::{planned, run, view};
use crate::tensors::copies::contiguous;
use crate::tensors::memory_ops::resize_output;
use crate::tensors::tensor::Tensor;
use wave32_ops::{Elementwise, Number, Op, Sum, View};
use wave32_problem::{Activation, Pass};
use wave32_torch_logic::{Scalar, ScalarType};

/// Kernels of `aten`.
pub const OPS: &[Registration] = crate::ops! {
    "mm" => mm,
    "mm.out" => mm_out,
    "bmm" => bmm,
    "bmm.out" => bmm_out,
};

/// The schema of what `python/wave32/_fuse.py` calls.
pub const SCHEMAS: &[&str] =
    &["linear_activation(Tensor input, Tensor weight, Tensor? bias, str activation) -> Tensor"];

/// Its kernel.
pub const OWN: &[Registration] = crate::ops! {
    "linear_activation" => linear,
};

/// Those with Scalars.
pub const SCALAR_OPS: &[ScalarOp] = crate::scalar_ops! {
    "addmm" => addmm,
    "addmm.out" => addmm_out,
    "baddbmm" => addmm,
    "baddbmm.out" => addmm_out,
};

fn checked(a: &Tensor, b: &Tensor, rank: usize, name: &str) -> Result<Vec<i64>, Error> {
    let (x, y) = (a.sizes(), b.sizes());
    let fits =
        x.len() == rank && y.len() == rank && x[rank - 1] == y[rank - 2] && x[..rank - 2] == y[..rank - 2];
    if !fits {
        return Err(Error::Invalid(format!(
            "{name}: mat1 and mat2 shapes cannot be multiplied ({x:?} and {y:?})"
        )));
    }
    let (of_a, of_b) = (a.dtype()?, b.dtype()?);
    if of_a != of_b {
        // The CPU asks for one type only where it multiplies.
        if rank == 3 && (x.contains(&0) || y.contains(&0)) {
            return Err(Error::NoKernel("a product of different types without elements".into()));
        }
        return Err(Error::Invalid(match name {
            "mm" => format!(
                "expected m1 and m2 to have the same dtype, but got: {} != {}",
                of_a.cxx_name(),
                of_b.cxx_name()
            ),
            "bmm" => {
                format!("expected scalar type {} but found {}", of_a.scalar_name(), of_b.scalar_name())
            }
            _ => format!(
                "mat1 and mat2 must have the same dtype, but got {} and {}",
                of_a.scalar_name(),
                of_b.scalar_name()
            ),
        }));
    }
    let mut sizes = x[..rank - 1].to_vec();
    sizes.push(y[rank - 1]);
    Ok(sizes)
}

/// A matrix as a batch of one.
fn batched(tensor: &Tensor) -> Result<View, Error> {
    let plain = view(tensor)?;
    match (plain.sizes(), plain.strides()) {
        (&[m, n], &[sm, sn]) => Ok(View::new(plain.address, plain.dtype, &[1, m, n], &[m * n, sm, sn])?),
        _ => Ok(plain),
    }
}

fn product(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<(), Error> {
    let (x, y, to) = (batched(a)?, batched(b)?, batched(out)?);
    planned(|planner, queue| planner.matmul(queue, pass(), &x, &y, &to))
}

/// Whether autograd's engine asks for this. Where torch does not say, it may be.
pub fn pass() -> Pass {
    // SAFETY: reads a number of this thread.
    let is_forward = api().graph_task.is_some_and(|task| unsafe { task() } == -1);
    if is_forward { Pass::Forward } else { Pass::Backward }
}

fn mm(a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
    let out = Tensor::empty(&checked(a, b, 2, "mm")?, a.dtype()?)?;
    product(a, b, &out)?;
    Ok(out)
}

fn bmm(a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
    let out = Tensor::empty(&checked(a, b, 3, "bmm")?, a.dtype()?)?;
    product(a, b, &out)?;
    Ok(out)
}

/// That a product of that type may go to `out`, whose elements are apart.
fn typed(out: &Tensor, dtype: ScalarType) -> Result<(), Error> {
    if !out.is_wave() {
        return Err(elsewhere(out));
    }
    if out.dtype()? == dtype {
        return alone(out);
    }
    let (wanted, given) = (dtype.cxx_name(), out.dtype()?.cxx_name());
    Err(Error::Invalid(format!("Expected out tensor to have dtype {wanted}, but got {given} instead")))
}

fn into(
    out: &Tensor,
    sizes: &[i64],
    dtype: ScalarType,
    made: impl FnOnce(&Tensor) -> Result<(), Error>,
) -> Result<Tensor, Error> {
    typed(out, dtype)?;
    if out.sizes()[..] != sizes[..] {
        resize_output(out, sizes)?;
    }
    if out.is_contiguous() {
        made(out)?;
        return out.share();
    }
    let whole = Tensor::empty(sizes, out.dtype()?)?;
    made(&whole)?;
    let (from, to) = (view(&whole)?, view(out)?);
    run(|queue| wave32_ops::copy(queue, &from, &to))?;
    out.share()
}

fn mm_out(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<Tensor, Error> {
    let sizes = checked(a, b, 2, "mm")?;
    into(out, &sizes, a.dtype()?, |to| product(a, b, to))
}

/// `activation(input @ weight.T + bias)`; the activation in the words of a problem's line.
fn linear(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>, activation: &str) -> Result<Tensor, Error> {
    let (sizes, of_weight) = (input.sizes(), weight.sizes());
    let (Some((&k, outer)), &[n, of_sum]) = (sizes.split_last(), &of_weight[..]) else {
        return Err(Error::NoKernel(format!("linear of {sizes:?} and {of_weight:?}")));
    };
    let dtype = input.dtype()?;
    let fits = k == of_sum && bias.is_none_or(|bias| bias.sizes()[..] == [n]);
    let mut types = [Some(weight), bias].into_iter().flatten().map(Tensor::dtype);
    if !fits || types.any(|of| of.ok() != Some(dtype)) {
        return Err(Error::NoKernel(format!(
            "linear of {sizes:?} and {of_weight:?} of different types or sizes"
        )));
    }
    let activation =
        activation.parse().map_err(|()| Error::NoKernel(format!("an activation {activation:?}")))?;
    let out = Tensor::empty(&[outer, &[n]].concat(), dtype)?;
    let m = outer.iter().product::<i64>() as u64;
    if out.numel() == 0 {
        return Ok(out);
    }
    let (input, k, n) = (contiguous(input)?, k as u64, n as u64);
    let (x, w, to) = (view(&input)?, view(weight)?, view(&out)?);
    let x = View::contiguous(x.address, x.dtype, &[1, m, k])?;
    let w = View::new(w.address, w.dtype, &[1, k, n], &[0, w.strides()[1], w.strides()[0]])?;
    let to = View::contiguous(to.address, to.dtype, &[1, m, n])?;
    let (added, beta) = bias.map_or(Ok((to, 0.0)), |bias| view(bias).map(|bias| (bias, 1.0)))?;
    let sum = Sum { added, beta, alpha: 1.0, activation };
    planned(|planner, queue| planner.addmm(queue, pass(), &sum, &x, &w, &to))?;
    Ok(out)
}

fn bmm_out(a: &Tensor, b: &Tensor, out: &Tensor) -> Result<Tensor, Error> {
    let sizes = checked(a, b, 3, "bmm")?;
    into(out, &sizes, a.dtype()?, |to| product(a, b, to))
}

/// `beta * added + alpha * (a @ b)`, for matrices and batches of them. Not by way of `out=`, whose detour through
/// torch's structured kernels takes longer than the launch.
fn addmm(added: &Tensor, a: &Tensor, b: &Tensor, beta: Scalar, alpha: Scalar) -> Result<Tensor, Error> {
    let sizes = checked(a, b, a.sizes().len().clamp(2, 3), "addmm")?;
    if added.dtype()? != a.dtype()? {
        return Err(Error::NoKernel("addmm of different types".into()));
    }
    let out = Tensor::empty(&sizes, a.dtype()?)?;
    addmm_into(added, a, b, (beta.float()?, alpha.float()?), &out)?;
    Ok(out)
}

/// As [`addmm`], into `out`.
fn addmm_out(
    added: &Tensor,
    a: &Tensor,
    b: &Tensor,
    beta: Scalar,
    alpha: Scalar,
    out: &Tensor,
) -> Result<Tensor, Error> {
    let sizes = checked(a, b, a.sizes().len().clamp(2, 3), "addmm")?;
    typed(out, a.dtype()?)?;
    let (alpha, beta) = (alpha.float()?, beta.float()?);
    if beta != 0.0 && (out.is_same(added) || added.dtype()? != a.dtype()?) {
        // What is added is overwritten by the product, or of another type: the product goes elsewhere first.
        if added.dtype()? != a.dtype()? {
            return Err(Error::NoKernel("addmm of different types".into()));
        }
        let made = Tensor::empty(&sizes, a.dtype()?)?;
        addmm_into(added, a, b, (beta, alpha), &made)?;
        crate::tensors::copies::copy(&made, out)?;
        return out.share();
    }
    into(out, &sizes, a.dtype()?, |to| addmm_into(added, a, b, (beta, alpha), to))
}

fn addmm_into(
    added: &Tensor,
    a: &Tensor,
    b: &Tensor,
    (beta, alpha): (f64, f64),
    to: &Tensor,
) -> Result<(), Error> {
    if alpha == 0.0 {
        // The product counts for nothing, infinite or NaN as it may be.
        return scaled(added, beta, to);
    }
    let (x, y, out) = (batched(a)?, batched(b)?, batched(to)?);
    let sum = Sum { added: view(added)?, beta, alpha, activation: Activation::None };
    planned(|planner, queue| planner.addmm(queue, pass(), &sum, &x, &y, &out))
}

/// `to = beta * added`; with 0 what is added is not looked at either.
fn scaled(added: &Tensor, beta: f64, to: &Tensor) -> Result<(), Error> {
    let (from, out) = (view(added)?, view(to)?);
    run(|queue| {
        let from = from.broadcast(out.sizes())?;
        if beta == 0.0 {
            return wave32_ops::fill(queue, &out, Number::Int(0));
        }
        Elementwise::new(Op::Mul, out.dtype).run(queue, &[(&from).into(), beta.into()], &out)
    })
}
