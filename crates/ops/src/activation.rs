//! Activations, forward and backward, in the definitions of MIOpen.

use crate::steps::{Steps, wide};
use crate::{ElementType, Op, OpError, View};

/// What an activation computes; the numbers are those of `miopenActivationMode_t`, where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum ActivationMode {
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
    /// `x / (1 + exp(-x))`. MIOpen has no number for it, nor for what follows.
    Silu = 1000,
    /// `x min(max(x + 3, 0), 6) / 6`.
    Hardswish = 1001,
    /// `x (1 + erf(x / sqrt(2))) / 2`.
    Gelu = 1002,
}

/// An activation: a mode and its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Activation {
    /// Which.
    pub mode: ActivationMode,
    /// First number of some.
    pub alpha: f64,
    /// Second.
    pub beta: f64,
    /// Third.
    pub gamma: f64,
}

/// Bases of [`ActivationMode::Power`] up to this count as 0, and `beta` of [`ActivationMode::Tanh`] in the backward direction.
const TINY: f64 = 1e-6;

impl Activation {
    /// `max(x, 0)`.
    pub const RELU: Self = Self { mode: ActivationMode::Relu, alpha: 0.0, beta: 0.0, gamma: 0.0 };

    /// Of that mode, by its number, if there is one; `numbers` are alpha, beta and gamma.
    pub fn new(mode: i32, [alpha, beta, gamma]: [f64; 3]) -> Option<Self> {
        use ActivationMode::{
            Abs, Clamp, ClippedRelu, Elu, LeakyRelu, Logistic, PassThrough, Power, Relu, SoftRelu, Tanh,
        };
        let modes =
            [PassThrough, Logistic, Tanh, Relu, SoftRelu, Abs, Power, ClippedRelu, LeakyRelu, Elu, Clamp];
        let mode = *modes.get(usize::try_from(mode).ok()?)?;
        Some(Self { mode, alpha, beta, gamma })
    }

    /// What convolutions' kernels know, as an activation; none where they apply none.
    pub fn from_kernels(activation: wave32_problem::Activation) -> Option<Self> {
        use wave32_problem::Activation;
        let (mode, alpha) = match activation {
            Activation::None => return None,
            Activation::Relu => (ActivationMode::Relu, 0.0),
            Activation::Relu6 => (ActivationMode::ClippedRelu, 6.0),
            Activation::Silu => (ActivationMode::Silu, 0.0),
            Activation::Hardswish => (ActivationMode::Hardswish, 0.0),
            Activation::Gelu => (ActivationMode::Gelu, 0.0),
            Activation::LeakyRelu(slope) => (ActivationMode::LeakyRelu, f64::from(slope) / 100.0),
        };
        Some(Self { mode, alpha, beta: 0.0, gamma: 0.0 })
    }

    /// The same as convolutions' kernels know it, if they do.
    pub(crate) fn of_kernels(&self) -> Option<wave32_problem::Activation> {
        use wave32_problem::Activation;
        match self.mode {
            ActivationMode::Relu => Some(Activation::Relu),
            ActivationMode::ClippedRelu if self.alpha == 6.0 => Some(Activation::Relu6),
            ActivationMode::LeakyRelu => Activation::leaky(self.alpha),
            ActivationMode::Silu => Some(Activation::Silu),
            ActivationMode::Hardswish => Some(Activation::Hardswish),
            ActivationMode::Gelu => Some(Activation::Gelu),
            _ => None,
        }
    }

    /// `y = activation(x)`; both may be one tensor.
    ///
    /// # Errors
    /// As [`crate::Elementwise::run`].
    pub fn forward(&self, steps: &mut Steps, x: &View, y: &View) -> Result<(), OpError> {
        let Self { alpha, beta, gamma, .. } = *self;
        let one = |op| (op, [0.0; 2]);
        let (op, parameters) = match self.mode {
            ActivationMode::PassThrough if x == y => return Ok(()),
            ActivationMode::PassThrough => return steps.copy(x, y),
            ActivationMode::Clamp => {
                return steps.run(Op::Clamp, &[x.into(), alpha.into(), beta.into()], [0.0; 2], y);
            }
            ActivationMode::ClippedRelu => {
                return steps.run(Op::Clamp, &[x.into(), 0.0.into(), alpha.into()], [0.0; 2], y);
            }
            ActivationMode::Elu => {
                return steps.run(Op::Elu, &[x.into(), x.into(), 1.0.into()], [alpha, 1.0], y);
            }
            ActivationMode::Tanh if alpha != 1.0 || beta != 1.0 => {
                let made = steps.make(wide(y.dtype), y.sizes())?;
                steps.run(Op::Mul, &[x.into(), alpha.into()], [0.0; 2], &made)?;
                steps.run(Op::Tanh, &[(&made).into()], [0.0; 2], &made)?;
                return steps.run(Op::Mul, &[(&made).into(), beta.into()], [0.0; 2], y);
            }
            ActivationMode::Power => {
                let (base, power) = self.base(steps, x)?;
                steps.run(Op::Pow, &[(&base).into(), gamma.into()], [0.0; 2], &power)?;
                return steps.run(Op::ThresholdBackward, &[(&power).into(), (&base).into()], [TINY, 0.0], y);
            }
            ActivationMode::Logistic => one(Op::Sigmoid),
            ActivationMode::Tanh => one(Op::Tanh),
            ActivationMode::Relu => one(Op::Relu),
            ActivationMode::SoftRelu => (Op::Softplus, [1.0, 40.0]),
            ActivationMode::Abs => one(Op::Abs),
            ActivationMode::LeakyRelu => (Op::LeakyRelu, [alpha, 0.0]),
            ActivationMode::Silu => one(Op::Silu),
            ActivationMode::Hardswish => one(Op::Hardswish),
            ActivationMode::Gelu => one(Op::Gelu),
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
    /// As [`crate::Elementwise::run`].
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
            ElementType::F64 => bound.next_up(),
            _ => f64::from((bound as f32).next_up()),
        };
        let (op, operands, parameters) = match self.mode {
            ActivationMode::PassThrough => return steps.copy(dy, dx),
            ActivationMode::Tanh if beta.abs() <= TINY => {
                return steps.run(Op::Identity, &[0.0.into()], [0.0; 2], dx);
            }
            ActivationMode::Tanh => {
                let made = steps.make(wide(dx.dtype), dx.sizes())?;
                let slope = [(alpha * beta).into(), y.into(), y.into()];
                steps.run(Op::Addcmul, &slope, [-alpha / beta, 0.0], &made)?;
                return steps.run(Op::Mul, &[dy.into(), (&made).into()], [0.0; 2], dx);
            }
            ActivationMode::Power => {
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
            ActivationMode::Elu => {
                let made = steps.make(wide(dx.dtype), dx.sizes())?;
                steps.run(Op::Add, &[y.into(), alpha.into()], [0.0; 2], &made)?;
                return steps.run(Op::PreluBackward, &[dy.into(), x.into(), (&made).into()], [0.0; 2], dx);
            }
            ActivationMode::Logistic => (Op::SigmoidBackward, y, [0.0; 2]),
            ActivationMode::Relu => (Op::ThresholdBackward, x, [0.0; 2]),
            ActivationMode::SoftRelu => (Op::Glu, x, [0.0; 2]),
            ActivationMode::Abs => (Op::LeakyReluBackward, x, [-1.0, 0.0]),
            ActivationMode::ClippedRelu => (Op::HardtanhBackward, x, [0.0, above(alpha)]),
            ActivationMode::LeakyRelu => (Op::LeakyReluBackward, x, [alpha, 0.0]),
            ActivationMode::Silu => (Op::SiluBackward, x, [0.0; 2]),
            ActivationMode::Hardswish => (Op::HardswishBackward, x, [0.0; 2]),
            ActivationMode::Gelu => (Op::GeluBackward, x, [0.0; 2]),
            ActivationMode::Clamp => (Op::HardtanhBackward, x, [alpha, above(beta)]),
        };
        steps.run(op, &[dy.into(), operands.into()], parameters, dx)
    }
}
