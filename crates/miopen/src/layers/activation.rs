//! Calls for activations, forward and backward.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Data, Id, In, Out, Status};
use crate::abi::handle::Handle;
use crate::abi::slot::{self, DescriptorValue};
use crate::layers::steps::{Blend, Steps, alike};
use crate::layers::tensor::tensor_of;
use std::ffi::c_int;
pub use wave32_ops::activation::{Activation, ActivationMode};

impl DescriptorValue for Activation {
    const KIND: &'static str = "activation descriptor";
}

/// An activation of the caller's numbers.
///
/// # Errors
/// Bad parameter where `mode` is not a value of the C enum.
pub fn activation(mode: c_int, numbers: [f64; 3]) -> Outcome<Activation> {
    Activation::new(mode, numbers).ok_or_else(|| Failure::bad("no such activation mode"))
}

/// Creates an empty descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateActivationDescriptor(descriptor: Out<Id>) -> Status {
    call("miopenCreateActivationDescriptor", || slot::create::<Activation>(&descriptor, None))
}

/// Destroys it.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroyActivationDescriptor(descriptor: Id) -> Status {
    call("miopenDestroyActivationDescriptor", || slot::destroy::<Activation>(descriptor))
}

/// Sets it.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetActivationDescriptor(
    descriptor: Id,
    mode: c_int,
    alpha: f64,
    beta: f64,
    gamma: f64,
) -> Status {
    call("miopenSetActivationDescriptor", || slot::set(descriptor, activation(mode, [alpha, beta, gamma])?))
}

/// What it was set to; each may be null.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetActivationDescriptor(
    descriptor: Id,
    mode: Out<c_int>,
    alpha: Out<f64>,
    beta: Out<f64>,
    gamma: Out<f64>,
) -> Status {
    call("miopenGetActivationDescriptor", || {
        let found = slot::get::<Activation>(descriptor)?;
        mode.set_if_wanted(found.mode as c_int);
        alpha.set_if_wanted(found.alpha);
        beta.set_if_wanted(found.beta);
        gamma.set_if_wanted(found.gamma);
        Ok(())
    })
}

/// `y = activation(x)`; alpha is 1 and beta 0.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenActivationForward(
    handle: Id,
    descriptor: Id,
    alpha: In<f32>,
    x_desc: Id,
    x: Data,
    beta: In<f32>,
    y_desc: Id,
    y: Data,
) -> Status {
    call("miopenActivationForward", || {
        let handle = Handle::of(handle)?;
        let activation = slot::get::<Activation>(descriptor)?;
        Blend::plain(&alpha, &beta)?;
        let x = tensor_of(x_desc, "xDesc")?.view("x", x)?;
        let y = tensor_of(y_desc, "yDesc")?.view("y", y)?;
        alike(&[("x", &x), ("y", &y)])?;
        handle.run(|engine| Ok(activation.forward(&mut Steps::new(&mut engine.queue), &x, &y)?))
    })
}

/// `dx = dy * activation'(x)`; alpha is 1 and beta 0. Of x and y the one that the mode needs may not be null.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenActivationBackward(
    handle: Id,
    descriptor: Id,
    alpha: In<f32>,
    y_desc: Id,
    y: Data,
    dy_desc: Id,
    dy: Data,
    x_desc: Id,
    x: Data,
    beta: In<f32>,
    dx_desc: Id,
    dx: Data,
) -> Status {
    call("miopenActivationBackward", || {
        let handle = Handle::of(handle)?;
        let activation = slot::get::<Activation>(descriptor)?;
        Blend::plain(&alpha, &beta)?;
        let dy = tensor_of(dy_desc, "dyDesc")?.view("dy", dy)?;
        let dx = tensor_of(dx_desc, "dxDesc")?.view("dx", dx)?;
        let (reads_x, reads_y) = match activation.mode {
            ActivationMode::PassThrough => (false, false),
            ActivationMode::Logistic | ActivationMode::Tanh => (false, true),
            ActivationMode::Power | ActivationMode::Elu => (true, true),
            _ => (true, false),
        };
        let read = |wanted, desc, name: &str, data| match wanted {
            true => tensor_of(desc, name)?.view(name, data),
            false => Ok(dy),
        };
        let (x, y) = (read(reads_x, x_desc, "x", x)?, read(reads_y, y_desc, "y", y)?);
        let all = [("dy", &dy), ("dx", &dx), ("x", &x), ("y", &y)];
        alike(&all)?;
        handle.run(|engine| Ok(activation.backward(&mut Steps::new(&mut engine.queue), &dy, &x, &y, &dx)?))
    })
}
