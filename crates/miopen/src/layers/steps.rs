//! What calls share besides the operations of `wave32-ops`: factors of results, checks of tensors.

use crate::abi::entry::{Failure, Outcome};
use crate::abi::ffi::In;
use wave32_ops::{OpError, PostOp, View};
pub use wave32_ops::{Steps, wide};

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
    /// Bad parameter where a pointer is null.
    pub fn read(alpha: &In<f32>, beta: &In<f32>) -> Outcome<Self> {
        Ok(Self { alpha: alpha.get("alpha")?.into(), beta: beta.get("beta")?.into() })
    }

    /// That they are 1 and 0, as MIOpen demands of this call.
    ///
    /// # Errors
    /// Bad parameter where they are not; the message names the first that differs.
    pub fn plain(alpha: &In<f32>, beta: &In<f32>) -> Outcome {
        match Self::read(alpha, beta)? {
            Self { alpha: 1.0, beta: 0.0 } => Ok(()),
            Self { alpha, beta } => Err(Failure::bad(format!("alpha {alpha}, beta {beta}: only 1 and 0"))),
        }
    }

    /// Lets `work` compute, and puts the result where it belongs.
    ///
    /// # Errors
    /// What `work` returns; [`OpError::Device`] where the device fails.
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
    /// [`OpError::Device`] where the device fails.
    pub fn mix(self, steps: &mut Steps, made: &View, out: &View) -> Result<(), OpError> {
        PostOp::Add { alpha: self.alpha, beta: self.beta, other: *out }.run(steps, made, out)
    }
}

/// That these are of one floating type.
///
/// # Errors
/// Bad parameter where they are not; the message names the first that differs.
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
/// Bad parameter where they are not; the message names the first that differs.
pub fn alike(views: &[(&str, &View)]) -> Outcome {
    one_float_type(views)?;
    one_size(views)
}

/// That these have the same sizes.
///
/// # Errors
/// Bad parameter where they have not; the message has both sizes.
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
