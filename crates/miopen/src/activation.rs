//! Activations, forward and backward.

use crate::entry::{Failure, Outcome, call};
use crate::ffi::{Data, Id, In, Out, Status};
use crate::handle::Handle;
use crate::slot::{self, Described};
use crate::steps::{Blend, Steps, alike, wide};
use crate::tensor::described;
use std::ffi::c_int;
use wave32_ops::{DType, Op, OpError, View};

/// `miopenActivationMode_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Mode {
    /// `x`.
    PassThrough = 0,
    /// `1 / (1 + exp(-x))`.
    Logistic = 1,
    /// `beta tanh(alpha x)`.
    Tanh = 2,
    /// `max(x, 0)`.
    Relu = 3,
    /// `log(1 + exp(x))`.
    SoftRelu = 4,
    /// `|x|`.
    Abs = 5,
    /// `(alpha + beta x) ^ gamma`, 0 where the base is hardly positive.
    Power = 6,
    /// `min(alpha, max(x, 0))`.
    ClippedRelu = 7,
    /// `x > 0 ? x : alpha x`.
    LeakyRelu = 8,
    /// `x > 0 ? x : alpha (exp(x) - 1)`.
    Elu = 9,
    /// `max(alpha, min(beta, x))`.
    Clamp = 10,
}

/// What an activation descriptor describes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Activation {
    /// Which.
    pub mode: Mode,
    /// First number of some.
    pub alpha: f64,
    /// Second.
    pub beta: f64,
    /// Third.
    pub gamma: f64,
}

impl Described for Activation {
    const KIND: &'static str = "activation descriptor";
}

/// Bases of [`Mode::Power`] up to this count as 0, and `beta` of [`Mode::Tanh`] in the backward direction.
const TINY: f64 = 1e-6;

impl Activation {
    /// From the caller's numbers.
    ///
    /// # Errors
    /// Bad parameter: no such mode.
    pub fn new(mode: c_int, [alpha, beta, gamma]: [f64; 3]) -> Outcome<Self> {
        use Mode::{
            Abs, Clamp, ClippedRelu, Elu, LeakyRelu, Logistic, PassThrough, Power, Relu, SoftRelu, Tanh,
        };
        let modes =
            [PassThrough, Logistic, Tanh, Relu, SoftRelu, Abs, Power, ClippedRelu, LeakyRelu, Elu, Clamp];
        let mode = usize::try_from(mode).ok().and_then(|at| modes.get(at).copied());
        let mode = mode.ok_or_else(|| Failure::bad("no such activation mode"))?;
        Ok(Self { mode, alpha, beta, gamma })
    }

    /// `y = activation(x)`; both may be one tensor.
    ///
    /// # Errors
    /// The operations'.
    pub fn forward(&self, steps: &mut Steps, x: &View, y: &View) -> Result<(), OpError> {
        let Self { alpha, beta, gamma, .. } = *self;
        let one = |op| (op, [0.0; 2]);
        let (op, parameters) = match self.mode {
            Mode::PassThrough if x == y => return Ok(()),
            Mode::PassThrough => return steps.copy(x, y),
            Mode::Clamp => return steps.run(Op::Clamp, &[x.into(), alpha.into(), beta.into()], [0.0; 2], y),
            Mode::ClippedRelu => {
                return steps.run(Op::Clamp, &[x.into(), 0.0.into(), alpha.into()], [0.0; 2], y);
            }
            Mode::Elu => return steps.run(Op::Elu, &[x.into(), x.into(), 1.0.into()], [alpha, 1.0], y),
            Mode::Tanh if alpha != 1.0 || beta != 1.0 => {
                let made = steps.make(wide(y.dtype), y.sizes())?;
                steps.run(Op::Mul, &[x.into(), alpha.into()], [0.0; 2], &made)?;
                steps.run(Op::Tanh, &[(&made).into()], [0.0; 2], &made)?;
                return steps.run(Op::Mul, &[(&made).into(), beta.into()], [0.0; 2], y);
            }
            Mode::Power => {
                let (base, power) = self.base(steps, x)?;
                steps.run(Op::Pow, &[(&base).into(), gamma.into()], [0.0; 2], &power)?;
                return steps.run(Op::ThresholdBackward, &[(&power).into(), (&base).into()], [TINY, 0.0], y);
            }
            Mode::Logistic => one(Op::Sigmoid),
            Mode::Tanh => one(Op::Tanh),
            Mode::Relu => one(Op::Relu),
            Mode::SoftRelu => (Op::Softplus, [1.0, 40.0]),
            Mode::Abs => one(Op::Abs),
            Mode::LeakyRelu => (Op::LeakyRelu, [alpha, 0.0]),
        };
        steps.run(op, &[x.into()], parameters, y)
    }

    /// Memory with `alpha + beta x`, and more of that size.
    fn base(&self, steps: &mut Steps, x: &View) -> Result<(View, View), OpError> {
        let made = [steps.make(wide(x.dtype), x.sizes())?, steps.make(wide(x.dtype), x.sizes())?];
        steps.run(Op::AddScaled, &[self.alpha.into(), x.into()], [self.beta, 0.0], &made[0])?;
        Ok((made[0], made[1]))
    }

    /// `dx = dy * activation'`, from the input x or the result y, whichever MIOpen takes for the mode.
    ///
    /// # Errors
    /// The operations'.
    pub fn backward(
        &self,
        steps: &mut Steps,
        dy: &View,
        x: &View,
        y: &View,
        dx: &View,
    ) -> Result<(), OpError> {
        let Self { alpha, beta, gamma, .. } = *self;
        // The largest number below which a bound itself is: comparisons are in this precision.
        let above = |bound: f64| match dx.dtype {
            DType::F64 => bound.next_up(),
            _ => f64::from((bound as f32).next_up()),
        };
        let (op, operands, parameters) = match self.mode {
            Mode::PassThrough => return steps.copy(dy, dx),
            Mode::Tanh if beta.abs() <= TINY => {
                return steps.run(Op::Identity, &[0.0.into()], [0.0; 2], dx);
            }
            Mode::Tanh => {
                let made = steps.make(wide(dx.dtype), dx.sizes())?;
                let slope = [(alpha * beta).into(), y.into(), y.into()];
                steps.run(Op::Addcmul, &slope, [-alpha / beta, 0.0], &made)?;
                return steps.run(Op::Mul, &[dy.into(), (&made).into()], [0.0; 2], dx);
            }
            Mode::Power => {
                let (base, slope) = self.base(steps, x)?;
                steps.run(
                    Op::Addcdiv,
                    &[0.0.into(), y.into(), (&base).into()],
                    [beta * gamma, 0.0],
                    &slope,
                )?;
                steps.run(Op::Mul, &[(&slope).into(), dy.into()], [0.0; 2], &slope)?;
                return steps.run(Op::ThresholdBackward, &[(&slope).into(), (&base).into()], [TINY, 0.0], dx);
            }
            Mode::Elu => {
                let made = steps.make(wide(dx.dtype), dx.sizes())?;
                steps.run(Op::Add, &[y.into(), alpha.into()], [0.0; 2], &made)?;
                return steps.run(Op::PreluBackward, &[dy.into(), x.into(), (&made).into()], [0.0; 2], dx);
            }
            Mode::Logistic => (Op::SigmoidBackward, y, [0.0; 2]),
            Mode::Relu => (Op::ThresholdBackward, x, [0.0; 2]),
            Mode::SoftRelu => (Op::Glu, x, [0.0; 2]),
            Mode::Abs => (Op::LeakyReluBackward, x, [-1.0, 0.0]),
            Mode::ClippedRelu => (Op::HardtanhBackward, x, [0.0, above(alpha)]),
            Mode::LeakyRelu => (Op::LeakyReluBackward, x, [alpha, 0.0]),
            Mode::Clamp => (Op::HardtanhBackward, x, [alpha, above(beta)]),
        };
        steps.run(op, &[dy.into(), operands.into()], parameters, dx)
    }
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
    call("miopenSetActivationDescriptor", || {
        slot::set(descriptor, Activation::new(mode, [alpha, beta, gamma])?)
    })
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
        let x = described(x_desc, "xDesc")?.view("x", x)?;
        let y = described(y_desc, "yDesc")?.view("y", y)?;
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
        let dy = described(dy_desc, "dyDesc")?.view("dy", dy)?;
        let dx = described(dx_desc, "dxDesc")?.view("dx", dx)?;
        let (reads_x, reads_y) = match activation.mode {
            Mode::PassThrough => (false, false),
            Mode::Logistic | Mode::Tanh => (false, true),
            Mode::Power | Mode::Elu => (true, true),
            _ => (true, false),
        };
        let read = |wanted, desc, name: &str, data| match wanted {
            true => described(desc, name)?.view(name, data),
            false => Ok(dy),
        };
        let (x, y) = (read(reads_x, x_desc, "x", x)?, read(reads_y, y_desc, "y", y)?);
        let all = [("dy", &dy), ("dx", &dx), ("x", &x), ("y", &y)];
        alike(&all)?;
        handle.run(|engine| Ok(activation.backward(&mut Steps::new(&mut engine.queue), &dy, &x, &y, &dx)?))
    })
}
