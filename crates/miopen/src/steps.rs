//! What calls are made of besides one operation of `wave32-ops`: elementwise steps, and memory between them.

use crate::entry::{Failure, Outcome};
use crate::ffi::In;
use wave32_ops::{DType, Elementwise, Number, Op, OpError, Operand, Queue, View, copy};

/// Launches, and the memory that they need in between: given back when this is dropped, behind what was launched.
pub struct Steps<'q> {
    /// Where to.
    pub queue: &'q mut dyn Queue,
    taken: Vec<u64>,
}

impl<'q> Steps<'q> {
    /// None yet.
    pub fn new(queue: &'q mut dyn Queue) -> Self {
        Self { queue, taken: Vec::new() }
    }

    /// Memory for a contiguous tensor.
    ///
    /// # Errors
    /// The device's.
    pub fn make(&mut self, dtype: DType, sizes: &[u64]) -> Result<View, OpError> {
        let bytes = sizes.iter().product::<u64>() * dtype.size();
        let address = self.queue.alloc(bytes.max(4))?;
        self.taken.push(address);
        View::contiguous(address, dtype, sizes)
    }

    /// A contiguous tensor with the same elements: itself, or a copy.
    ///
    /// # Errors
    /// The device's.
    pub fn contiguous(&mut self, view: &View) -> Result<View, OpError> {
        if view.is_contiguous() {
            return Ok(*view);
        }
        let made = self.make(view.dtype, view.sizes())?;
        copy(self.queue, view, &made)?;
        Ok(made)
    }

    /// `out = op(operands)` with the op's parameters s and t.
    ///
    /// # Errors
    /// The operation's.
    pub fn run(&mut self, op: Op, operands: &[Operand], [s, t]: [f64; 2], out: &View) -> Result<(), OpError> {
        Elementwise::with(op, wide(out.dtype), s, t).run(self.queue, operands, out)
    }

    /// The same in whole numbers, without parameters.
    ///
    /// # Errors
    /// The operation's.
    pub fn count(&mut self, op: Op, operands: &[Operand], out: &View) -> Result<(), OpError> {
        Elementwise::new(op, DType::I64).run(self.queue, operands, out)
    }

    /// `start + i step` along one dimension.
    ///
    /// # Errors
    /// The device's.
    pub fn range(&mut self, start: i64, step: i64, len: u64) -> Result<View, OpError> {
        let made = self.make(DType::I64, &[len])?;
        wave32_ops::arange(self.queue, &made, Number::Int(start), Number::Int(step))?;
        Ok(made)
    }

    /// `out = from`, converted; nothing where they are one.
    ///
    /// # Errors
    /// The copy's.
    pub fn copy(&mut self, from: &View, out: &View) -> Result<(), OpError> {
        if from == out { Ok(()) } else { copy(self.queue, from, out) }
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.taken.drain(..).for_each(|address| self.queue.free(address));
    }
}

/// The type to keep intermediate results of `dtype` in.
pub fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// `result = alpha * computed + beta * result`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blend {
    /// Of what is computed.
    pub alpha: f64,
    /// Of what was there; where it is 0, that is never read.
    pub beta: f64,
}

impl Blend {
    /// From the caller's two floats, which are f32 whatever the tensors are.
    ///
    /// # Errors
    /// Bad parameter: null.
    pub fn read(alpha: &In<f32>, beta: &In<f32>) -> Outcome<Self> {
        Ok(Self { alpha: alpha.get("alpha")?.into(), beta: beta.get("beta")?.into() })
    }

    /// That they are 1 and 0, as MIOpen demands of this call.
    ///
    /// # Errors
    /// Bad parameter: they are not.
    pub fn plain(alpha: &In<f32>, beta: &In<f32>) -> Outcome {
        match Self::read(alpha, beta)? {
            Self { alpha: 1.0, beta: 0.0 } => Ok(()),
            Self { alpha, beta } => Err(Failure::bad(format!("alpha {alpha}, beta {beta}: only 1 and 0"))),
        }
    }

    /// Lets `work` compute, and puts the result where it belongs.
    ///
    /// # Errors
    /// The work's, the device's.
    pub fn store(
        self,
        steps: &mut Steps,
        out: &View,
        work: impl FnOnce(&mut Steps, &View) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        if self == (Self { alpha: 1.0, beta: 0.0 }) {
            return work(steps, out);
        }
        let made = steps.make(wide(out.dtype), out.sizes())?;
        work(steps, &made)?;
        self.mix(steps, &made, out)
    }

    /// Puts what was computed where it belongs. What is between is wide, so that halves are rounded once.
    ///
    /// # Errors
    /// The device's.
    pub fn mix(self, steps: &mut Steps, made: &View, out: &View) -> Result<(), OpError> {
        let Self { alpha, beta } = self;
        if beta == 0.0 {
            return match alpha == 1.0 {
                true => steps.copy(made, out),
                false => steps.run(Op::Mul, &[made.into(), alpha.into()], [0.0; 2], out),
            };
        }
        if beta == 1.0 {
            return steps.run(Op::AddScaled, &[out.into(), made.into()], [alpha, 0.0], out);
        }
        let scaled = steps.make(wide(out.dtype), out.sizes())?;
        steps.run(Op::Mul, &[out.into(), beta.into()], [0.0; 2], &scaled)?;
        steps.run(Op::AddScaled, &[(&scaled).into(), made.into()], [alpha, 0.0], out)
    }
}

/// That these are of one floating type.
///
/// # Errors
/// Bad parameter: they are not.
pub fn one_float_type(views: &[(&str, &View)]) -> Outcome {
    let Some(((first, view), rest)) = views.split_first() else { return Ok(()) };
    let text = |why: String| Err(Failure::bad(why));
    if !view.dtype.is_float() {
        return text(format!("{first} is {:?}, not a floating type", view.dtype));
    }
    match rest.iter().find(|(_, other)| other.dtype != view.dtype) {
        Some((name, other)) => text(format!("{first} is {:?}, {name} {:?}", view.dtype, other.dtype)),
        None => Ok(()),
    }
}

/// That these are of one floating type and the same sizes.
///
/// # Errors
/// Bad parameter: they are not.
pub fn alike(views: &[(&str, &View)]) -> Outcome {
    one_float_type(views)?;
    one_size(views)
}

/// That these have the same sizes.
///
/// # Errors
/// Bad parameter: they have not.
pub fn one_size(views: &[(&str, &View)]) -> Outcome {
    let Some(((first, view), rest)) = views.split_first() else { return Ok(()) };
    match rest.iter().find(|(_, other)| other.sizes() != view.sizes()) {
        Some((name, other)) => {
            let (a, b) = (view.sizes(), other.sizes());
            Err(Failure::bad(format!("sizes differ: {first} {a:?}, {name} {b:?}")))
        }
        None => Ok(()),
    }
}
