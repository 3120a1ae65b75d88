//! Bias of a convolution, forward and backward.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Data, Id, In, Status};
use crate::abi::handle::Handle;
use crate::layers::steps::{Blend, Steps};
use crate::layers::tensor::{Tensor, tensor_of};
use wave32_ops::{Reduce, reduce};

/// That `b` has one element for each channel of `y`.
fn check(b: &Tensor, y: &Tensor) -> Outcome {
    let (bias, image) = (b.sizes(), y.sizes());
    let fits = bias.len() == image.len()
        && image.len() >= 2
        && bias.iter().enumerate().all(|(at, &size)| size == if at == 1 { image[1] } else { 1 });
    if !fits || b.dtype != y.dtype {
        let text = format!("a bias of sizes {bias:?} ({:?}) for {image:?} ({:?})", b.dtype, y.dtype);
        return Err(Failure::bad(text));
    }
    Ok(())
}

/// `y = alpha * (y + b) + beta * y`, as in MIOpen.
#[unsafe(no_mangle)]
pub extern "C" fn miopenConvolutionForwardBias(
    handle: Id,
    alpha: In<f32>,
    bias: Id,
    bias_data: Data,
    beta: In<f32>,
    y: Id,
    y_data: Data,
) -> Status {
    call("miopenConvolutionForwardBias", || {
        let (handle, b, y) = (Handle::of(handle)?, tensor_of(bias, "bDesc")?, tensor_of(y, "yDesc")?);
        check(&b, &y)?;
        let Blend { alpha, beta } = Blend::read(&alpha, &beta)?;
        let factors = Blend { alpha, beta: alpha + beta };
        let (b, y) = (b.view("b", bias_data)?, y.view("y", y_data)?);
        let b = b.broadcast(y.sizes())?;
        handle.run(|engine| Ok(factors.mix(&mut Steps::new(&mut engine.queue), &b, &y)?))
    })
}

/// `db = alpha * sum of dy over all but channels + beta * db`.
#[unsafe(no_mangle)]
pub extern "C" fn miopenConvolutionBackwardBias(
    handle: Id,
    alpha: In<f32>,
    dy: Id,
    dy_data: Data,
    beta: In<f32>,
    db: Id,
    db_data: Data,
) -> Status {
    call("miopenConvolutionBackwardBias", || {
        let (handle, dy, db) = (Handle::of(handle)?, tensor_of(dy, "dyDesc")?, tensor_of(db, "dbDesc")?);
        check(&db, &dy)?;
        let factors = Blend::read(&alpha, &beta)?;
        let (dy, db) = (dy.view("dy", dy_data)?, db.view("db", db_data)?);
        let dims: Vec<usize> = (0..dy.rank()).filter(|&dim| dim != 1).collect();
        handle.run(|engine| {
            let steps = &mut Steps::new(&mut engine.queue);
            Ok(factors.store(steps, &db, |steps, sum| reduce(steps.queue, Reduce::Sum, &dy, &dims, sum))?)
        })
    })
}
