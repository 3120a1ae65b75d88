//! Reductions of tensors.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Data, DataType, Id, In, Out, Status};
use crate::abi::handle::Handle;
use crate::abi::slot::{self, DescriptorValue};
use crate::layers::steps::{Blend, Steps, one_float_type, wide};
use crate::layers::tensor::{Tensor, tensor_of};
use std::ffi::{c_int, c_void};
use wave32_ops::{ElementType, Op, OpError, Reduce, View, copy, extreme, reduce};

/// What a reduction descriptor describes, in the ABI's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reduction {
    operation: c_int,
    computes_in: c_int,
    nan: c_int,
    indices: c_int,
    indices_type: c_int,
}

impl DescriptorValue for Reduction {
    const KIND: &'static str = "reduction descriptor";
}

const MIN: c_int = 2;
const MAX: c_int = 3;
const ABS_MAX: c_int = 4;

impl Reduction {
    fn how(self) -> Reduce {
        match self.operation {
            0 => Reduce::Sum,
            1 => Reduce::Prod,
            MIN => Reduce::Min,
            MAX => Reduce::Max,
            ABS_MAX => Reduce::Norm(f64::INFINITY),
            5 => Reduce::Mean,
            6 => Reduce::Norm(1.0),
            _ => Reduce::Norm(2.0),
        }
    }

    fn is_extreme(self) -> bool {
        matches!(self.operation, MIN | MAX | ABS_MAX)
    }

    /// Bytes of the places for a result of so many elements.
    fn places(self, elements: u64) -> u64 {
        if self.indices == 1 && self.is_extreme() { elements * 4 } else { 0 }
    }

    /// `a` without its NaNs, where they are not to count.
    fn numbers(self, steps: &mut Steps, a: &View) -> Result<View, OpError> {
        if self.nan == 1 || !self.is_extreme() {
            return Ok(*a);
        }
        let instead = match self.operation {
            MIN => f64::INFINITY,
            MAX => f64::NEG_INFINITY,
            _ => 0.0,
        };
        let made = steps.make(a.dtype, a.sizes())?;
        let operands = [a.into(), f64::NEG_INFINITY.into()];
        steps.run(Op::NanToNum, &operands, [instead, f64::INFINITY], &made)?;
        Ok(made)
    }

    /// Reduces `a` to `out`, whose dimensions of size 1 are those to go over; `places` (I32, in order) is where the
    /// extremes are among the reduced.
    fn run(self, steps: &mut Steps, a: &View, out: &View, places: Option<&View>) -> Result<(), OpError> {
        let dims: Vec<usize> = (0..out.rank()).filter(|&dim| out.sizes()[dim] == 1).collect();
        let a = self.numbers(steps, a)?;
        let Some(places) = places else { return reduce(steps.queue, self.how(), &a, &dims, out) };
        let mut from = a;
        if self.operation == ABS_MAX {
            from = steps.make(a.dtype, a.sizes())?;
            steps.run(Op::Abs, &[(&a).into()], [0.0; 2], &from)?;
        }
        let values = steps.make(wide(out.dtype), out.sizes())?;
        let found = steps.make(ElementType::I64, out.sizes())?;
        extreme(steps.queue, self.operation == MIN, &from, &dims, Some(&values), Some(&found))?;
        copy(steps.queue, &found, places)?;
        steps.copy(&values, out)
    }
}

/// That c's sizes are a's, or 1.
fn check(a: &Tensor, c: &Tensor) -> Outcome {
    let (from, to) = (a.sizes(), c.sizes());
    let fits = from.len() == to.len() && from.iter().zip(to).all(|(&a, &c)| c == 1 || c == a);
    match fits {
        true if to.contains(&1) => Ok(()),
        true => Err(Failure::bad(format!("{from:?} to {to:?}: nothing is reduced"))),
        false => Err(Failure::bad(format!("{from:?} does not reduce to {to:?}"))),
    }
}

/// Creates an empty descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateReduceTensorDescriptor(descriptor: Out<Id>) -> Status {
    call("miopenCreateReduceTensorDescriptor", || slot::create::<Reduction>(&descriptor, None))
}

/// Destroys it.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroyReduceTensorDescriptor(descriptor: Id) -> Status {
    call("miopenDestroyReduceTensorDescriptor", || slot::destroy::<Reduction>(descriptor))
}

/// Sets it. Sums are of f32 at least, whatever type is asked for; indices are of 32 bits.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetReduceTensorDescriptor(
    descriptor: Id,
    operation: c_int,
    computes_in: c_int,
    nan: c_int,
    indices: c_int,
    indices_type: c_int,
) -> Status {
    call("miopenSetReduceTensorDescriptor", || {
        DataType::from_c(computes_in)?;
        if !(0..=7).contains(&operation) || !(0..=1).contains(&nan) || !(0..=1).contains(&indices) {
            return Err(Failure::bad(format!("operation {operation}, NaN {nan}, indices {indices}")));
        }
        slot::set(descriptor, Reduction { operation, computes_in, nan, indices, indices_type })
    })
}

/// What it was set to; each may be null.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetReduceTensorDescriptor(
    descriptor: Id,
    operation: Out<c_int>,
    computes_in: Out<c_int>,
    nan: Out<c_int>,
    indices: Out<c_int>,
    indices_type: Out<c_int>,
) -> Status {
    call("miopenGetReduceTensorDescriptor", || {
        let found = slot::get::<Reduction>(descriptor)?;
        operation.set_if_wanted(found.operation);
        computes_in.set_if_wanted(found.computes_in);
        nan.set_if_wanted(found.nan);
        indices.set_if_wanted(found.indices);
        indices_type.set_if_wanted(found.indices_type);
        Ok(())
    })
}

/// Bytes of the indices that a reduction gives.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetReductionIndicesSize(
    handle: Id,
    descriptor: Id,
    a_desc: Id,
    c_desc: Id,
    bytes: Out<usize>,
) -> Status {
    call("miopenGetReductionIndicesSize", || {
        Handle::of(handle)?;
        let (a, c) = (tensor_of(a_desc, "aDesc")?, tensor_of(c_desc, "cDesc")?);
        check(&a, &c)?;
        bytes.set("sizeInBytes", slot::get::<Reduction>(descriptor)?.places(c.elements()) as usize)
    })
}

/// 0: what a reduction needs is memory of the handle's.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetReductionWorkspaceSize(
    handle: Id,
    descriptor: Id,
    a_desc: Id,
    c_desc: Id,
    bytes: Out<usize>,
) -> Status {
    call("miopenGetReductionWorkspaceSize", || {
        Handle::of(handle)?;
        slot::get::<Reduction>(descriptor)?;
        check(&tensor_of(a_desc, "aDesc")?, &tensor_of(c_desc, "cDesc")?)?;
        bytes.set("sizeInBytes", 0)
    })
}

/// `C = alpha reduced(A) + beta C`; the two numbers are f64 where A is, else f32.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenReduceTensor(
    handle: Id,
    descriptor: Id,
    indices: Data,
    indices_bytes: usize,
    _workspace: Data,
    _workspace_bytes: usize,
    alpha: In<c_void>,
    a_desc: Id,
    a: Data,
    beta: In<c_void>,
    c_desc: Id,
    c: Data,
) -> Status {
    call("miopenReduceTensor", || {
        let (handle, reduction) = (Handle::of(handle)?, slot::get::<Reduction>(descriptor)?);
        let (a_tensor, c_tensor) = (tensor_of(a_desc, "aDesc")?, tensor_of(c_desc, "cDesc")?);
        check(&a_tensor, &c_tensor)?;
        let (a, c) = (a_tensor.view("A", a)?, c_tensor.view("C", c)?);
        one_float_type(&[("A", &a), ("C", &c)])?;
        // SAFETY: both numbers are f64 where A is, else f32.
        let blend = unsafe {
            match a_tensor.dtype {
                DataType::Double => {
                    Blend { alpha: alpha.cast().get("alpha")?, beta: beta.cast().get("beta")? }
                }
                _ => Blend::read(&alpha.cast(), &beta.cast())?,
            }
        };
        let needed = reduction.places(c.elements());
        if needed > 0 && (indices == 0 || (indices_bytes as u64) < needed || reduction.indices_type != 0) {
            let text =
                format!("indices: {needed} bytes, of 32 bits each, are needed; {indices_bytes} are given");
            return Err(Failure::bad(text));
        }
        let places = match needed {
            0 => None,
            _ => Some(View::contiguous(indices as u64, ElementType::I32, c.sizes())?),
        };
        handle.run(|engine| {
            let steps = &mut Steps::new(&mut engine.queue);
            Ok(blend.store(steps, &c, |steps, out| reduction.run(steps, &a, out, places.as_ref()))?)
        })
    })
}
