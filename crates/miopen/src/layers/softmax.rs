//! Softmax and its logarithm, over channels or whole images.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Data, Id, In, Status};
use crate::abi::handle::Handle;
use crate::layers::steps::{Blend, Steps, alike};
use crate::layers::tensor::tensor_of;
use std::ffi::c_int;
use wave32_ops::{OpError, View, softmax, softmax_backward};

/// `miopenSoftmaxAlgorithm_t`: the fast and the accurate one are one here, which never overflows.
#[derive(Debug, Clone, Copy)]
struct How {
    log: bool,
    over_images: bool,
}

impl How {
    fn from_c(algorithm: c_int, mode: c_int) -> Outcome<Self> {
        match (algorithm, mode) {
            (0..=2, 0 | 1) => Ok(Self { log: algorithm == 2, over_images: mode == 0 }),
            _ => Err(Failure::bad(format!("softmax algorithm {algorithm}, mode {mode}: no such thing"))),
        }
    }

    /// Runs `work` on views with one dimension to go over, which is 1.
    fn run(
        self,
        steps: &mut Steps,
        inputs: &[&View],
        out: &View,
        work: impl FnOnce(&mut Steps, &[View], &View) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        if !self.over_images {
            return work(steps, &inputs.iter().map(|&view| *view).collect::<Vec<_>>(), out);
        }
        let sizes = [out.sizes()[0], out.sizes()[1..].iter().product()];
        let flat = |view: &View| View::contiguous(view.address, view.dtype, &sizes);
        let mut flattened = Vec::new();
        for view in inputs {
            flattened.push(flat(&steps.contiguous(view)?)?);
        }
        if out.is_contiguous() {
            return work(steps, &flattened, &flat(out)?);
        }
        let made = steps.make(out.dtype, out.sizes())?;
        work(steps, &flattened, &flat(&made)?)?;
        steps.copy(&made, out)
    }
}

const CHANNELS: How = How { log: false, over_images: false };

fn check(views: &[(&str, &View)]) -> Outcome {
    alike(views)?;
    match views.first() {
        Some((_, view)) if view.rank() < 2 => Err(Failure::bad("a tensor of one dimension has no channels")),
        _ => Ok(()),
    }
}

fn forward(handle: Id, how: How, blend: Blend, x: (Id, Data), y: (Id, Data)) -> Outcome {
    let handle = Handle::of(handle)?;
    let x = tensor_of(x.0, "xDesc")?.view("x", x.1)?;
    let y = tensor_of(y.0, "yDesc")?.view("y", y.1)?;
    check(&[("x", &x), ("y", &y)])?;
    handle.run(|engine| {
        let steps = &mut Steps::new(&mut engine.queue);
        Ok(blend.store(steps, &y, |steps, out| {
            how.run(steps, &[&x], out, |steps, x, y| softmax(steps.queue, how.log, &x[0], 1, y))
        })?)
    })
}

fn backward(handle: Id, how: How, blend: Blend, y: (Id, Data), dy: (Id, Data), dx: (Id, Data)) -> Outcome {
    let handle = Handle::of(handle)?;
    let y = tensor_of(y.0, "yDesc")?.view("y", y.1)?;
    let dy = tensor_of(dy.0, "dyDesc")?.view("dy", dy.1)?;
    let dx = tensor_of(dx.0, "dxDesc")?.view("dx", dx.1)?;
    check(&[("y", &y), ("dy", &dy), ("dx", &dx)])?;
    handle.run(|engine| {
        let steps = &mut Steps::new(&mut engine.queue);
        Ok(blend.store(steps, &dx, |steps, out| {
            how.run(steps, &[&dy, &y], out, |steps, from, dx| {
                softmax_backward(steps.queue, how.log, &from[0], &from[1], 1, dx)
            })
        })?)
    })
}

/// `y = alpha softmax(x) + beta y` over channels.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSoftmaxForward(
    handle: Id,
    alpha: In<f32>,
    x_desc: Id,
    x: Data,
    beta: In<f32>,
    y_desc: Id,
    y: Data,
) -> Status {
    call("miopenSoftmaxForward", || {
        forward(handle, CHANNELS, Blend::read(&alpha, &beta)?, (x_desc, x), (y_desc, y))
    })
}

/// `y = alpha softmax(x) + beta y`, or the logarithm.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenSoftmaxForward_V2(
    handle: Id,
    alpha: In<f32>,
    x_desc: Id,
    x: Data,
    beta: In<f32>,
    y_desc: Id,
    y: Data,
    algorithm: c_int,
    mode: c_int,
) -> Status {
    call("miopenSoftmaxForward_V2", || {
        let how = How::from_c(algorithm, mode)?;
        forward(handle, how, Blend::read(&alpha, &beta)?, (x_desc, x), (y_desc, y))
    })
}

/// `dx = alpha gradient + beta dx` over channels.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenSoftmaxBackward(
    handle: Id,
    alpha: In<f32>,
    y_desc: Id,
    y: Data,
    dy_desc: Id,
    dy: Data,
    beta: In<f32>,
    dx_desc: Id,
    dx: Data,
) -> Status {
    call("miopenSoftmaxBackward", || {
        let blend = Blend::read(&alpha, &beta)?;
        backward(handle, CHANNELS, blend, (y_desc, y), (dy_desc, dy), (dx_desc, dx))
    })
}

/// `dx = alpha gradient + beta dx`, of softmax or its logarithm.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenSoftmaxBackward_V2(
    handle: Id,
    alpha: In<f32>,
    y_desc: Id,
    y: Data,
    dy_desc: Id,
    dy: Data,
    beta: In<f32>,
    dx_desc: Id,
    dx: Data,
    algorithm: c_int,
    mode: c_int,
) -> Status {
    call("miopenSoftmaxBackward_V2", || {
        let (how, blend) = (How::from_c(algorithm, mode)?, Blend::read(&alpha, &beta)?);
        backward(handle, how, blend, (y_desc, y), (dy_desc, dy), (dx_desc, dx))
    })
}
