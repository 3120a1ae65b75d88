//! Elementwise calls on tensors: two operands, fill, scale, copy with conversion of layout.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Data, DataType, Id, In, Status};
use crate::abi::handle::Handle;
use crate::layers::steps::{Blend, Steps, one_float_type, one_size, wide};
use crate::layers::tensor::{Tensor, tensor_of};
use std::ffi::{c_int, c_void};
use wave32_ops::{Elementwise, Number, Op, OpError, View, fill};

/// `c = op(alpha1 a, alpha2 b) + beta c`, b broadcast to c.
fn combine(
    steps: &mut Steps,
    op: Op,
    (alpha1, a): (f64, &View),
    (alpha2, b): (f64, &View),
    beta: f64,
    c: &View,
) -> Result<(), OpError> {
    let scaled = |steps: &mut Steps, by: f64, of: &View| {
        if by == 1.0 {
            return Ok(*of);
        }
        let made = steps.make(wide(of.dtype), of.sizes())?;
        steps.run(Op::Mul, &[of.into(), by.into()], [0.0; 2], &made)?;
        Ok::<_, OpError>(made)
    };
    let a = scaled(steps, alpha1, a)?;
    Blend { alpha: 1.0, beta }.store(steps, c, |steps, out| {
        if op == Op::Add {
            return steps.run(Op::AddScaled, &[(&a).into(), b.into()], [alpha2, 0.0], out);
        }
        let b = scaled(steps, alpha2, b)?;
        steps.run(op, &[(&a).into(), (&b).into()], [0.0; 2], out)
    })
}

/// `C = op(alpha1 A, alpha2 B) + beta C`: the three numbers are f32. A has C's sizes; B's are C's or 1.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenOpTensor(
    handle: Id,
    operation: c_int,
    alpha1: In<f32>,
    a_desc: Id,
    a: Data,
    alpha2: In<f32>,
    b_desc: Id,
    b: Data,
    beta: In<f32>,
    c_desc: Id,
    c: Data,
) -> Status {
    call("miopenOpTensor", || {
        let handle = Handle::of(handle)?;
        let op = match operation {
            0 => Op::Add,
            1 => Op::Mul,
            2 => Op::Minimum,
            3 => Op::Maximum,
            _ => return Err(Failure::bad(format!("{operation} is no tensor operation"))),
        };
        let (alpha1, alpha2) = (alpha1.get("alpha1")?.into(), alpha2.get("alpha2")?.into());
        let beta = beta.get("beta")?.into();
        let a = tensor_of(a_desc, "aDesc")?.view("A", a)?;
        let b = tensor_of(b_desc, "bDesc")?.view("B", b)?;
        let c = tensor_of(c_desc, "cDesc")?.view("C", c)?;
        one_float_type(&[("A", &a), ("B", &b), ("C", &c)])?;
        one_size(&[("A", &a), ("C", &c)])?;
        let fits = b.rank() == c.rank()
            && b.sizes().iter().zip(c.sizes()).all(|(&size, &whole)| size == 1 || size == whole);
        if !fits {
            return Err(Failure::bad(format!("B {:?} does not broadcast to C {:?}", b.sizes(), c.sizes())));
        }
        handle.run(|engine| {
            let steps = &mut Steps::new(&mut engine.queue);
            Ok(combine(steps, op, (alpha1, &a), (alpha2, &b), beta, &c)?)
        })
    })
}

/// A number of the tensor's own type.
fn number(tensor: &Tensor, value: &In<c_void>) -> Outcome<Number> {
    let float = |value: f32| Number::Float(value.into());
    // SAFETY: the header says that it is of the tensor's type.
    Ok(unsafe {
        match tensor.dtype {
            DataType::Float => float(value.cast::<f32>().get("alpha")?),
            DataType::Half => float(half::f16::from_bits(value.cast::<u16>().get("alpha")?).to_f32()),
            DataType::BFloat16 => float(half::bf16::from_bits(value.cast::<u16>().get("alpha")?).to_f32()),
            DataType::Double => Number::Float(value.cast::<f64>().get("alpha")?),
            DataType::Int32 => Number::Int(value.cast::<i32>().get("alpha")?.into()),
            DataType::Int8 => Number::Int(value.cast::<i8>().get("alpha")?.into()),
            DataType::Int64 => Number::Int(value.cast::<i64>().get("alpha")?),
        }
    })
}

/// Fills a tensor with `alpha`, which is of the tensor's type.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetTensor(handle: Id, y_desc: Id, y: Data, alpha: In<c_void>) -> Status {
    call("miopenSetTensor", || {
        let (handle, tensor) = (Handle::of(handle)?, tensor_of(y_desc, "yDesc")?);
        let (y, value) = (tensor.view("y", y)?, number(&tensor, &alpha)?);
        handle.run(|engine| Ok(fill(&mut engine.queue, &y, value)?))
    })
}

/// Multiplies a tensor with `alpha`, which is of the tensor's type.
#[unsafe(no_mangle)]
pub extern "C" fn miopenScaleTensor(handle: Id, y_desc: Id, y: Data, alpha: In<c_void>) -> Status {
    call("miopenScaleTensor", || {
        let (handle, tensor) = (Handle::of(handle)?, tensor_of(y_desc, "yDesc")?);
        let (y, value) = (tensor.view("y", y)?, number(&tensor, &alpha)?);
        let by = wave32_ops::Operand::Value(value);
        handle.run(|engine| {
            let multiply = Elementwise::new(Op::Mul, y.dtype);
            Ok(multiply.run(&mut engine.queue, &[(&y).into(), by], &y)?)
        })
    })
}

/// `y = alpha x + beta y`, whatever the layouts; both numbers are f32. Integers are copied only.
#[unsafe(no_mangle)]
pub extern "C" fn miopenTransformTensor(
    handle: Id,
    alpha: In<f32>,
    x_desc: Id,
    x: Data,
    beta: In<f32>,
    y_desc: Id,
    y: Data,
) -> Status {
    call("miopenTransformTensor", || {
        let handle = Handle::of(handle)?;
        let blend = Blend::read(&alpha, &beta)?;
        let x = tensor_of(x_desc, "xDesc")?.view("x", x)?;
        let y = tensor_of(y_desc, "yDesc")?.view("y", y)?;
        one_size(&[("x", &x), ("y", &y)])?;
        if x.dtype != y.dtype {
            return Err(Failure::bad(format!("x is {:?}, y {:?}", x.dtype, y.dtype)));
        }
        if !x.dtype.is_float() && blend != (Blend { alpha: 1.0, beta: 0.0 }) {
            return Err(Failure::absent("scaled copies of integers"));
        }
        handle.run(|engine| {
            let steps = &mut Steps::new(&mut engine.queue);
            Ok(blend.store(steps, &y, |steps, out| steps.copy(&x, out))?)
        })
    })
}
