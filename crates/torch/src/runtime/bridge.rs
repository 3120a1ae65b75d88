//! From tensors to the views that `wave32_ops` works on.

use crate::abi::error::Error;
use crate::runtime::state;
use crate::tensors::tensor::Tensor;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use wave32_device::DeviceError;
use wave32_ops::{OpError, Planner, Queue, View};
use wave32_solve::Fp16Accumulation;
use wave32_torch_logic::ScalarType;

impl From<OpError> for Error {
    fn from(error: OpError) -> Self {
        match error {
            // As of a device without doubles.
            OpError::Device(DeviceError::Unsupported(why)) => Self::NoKernel(why),
            OpError::Device(error) => error.into(),
            refused => Self::NoKernel(refused.to_string()),
        }
    }
}

/// A tensor of the device as a view.
///
/// # Errors
/// `NoKernel` for what no operation takes: an exotic type, too many dimensions, another device.
pub fn view(tensor: &Tensor) -> Result<View, Error> {
    view_as(tensor, tensor.dtype()?)
}

/// A tensor of the device as a view of another type of the same size.
///
/// # Errors
/// As [`view`].
pub fn view_as(tensor: &Tensor, dtype: ScalarType) -> Result<View, Error> {
    if !tensor.is_wave() {
        return Err(Error::NoKernel("an operand on another device".into()));
    }
    let positive = |dims: &[i64]| dims.iter().map(|&d| d as u64).collect::<smallvec::SmallVec<[u64; 8]>>();
    let (sizes, strides) = (positive(&tensor.sizes()), positive(&tensor.strides()));
    Ok(View::new(tensor.address(), dtype.try_into()?, &sizes, &strides)?)
}

/// Runs operations on the stream.
///
/// # Errors
/// Theirs; a refusal becomes `NoKernel`, and the call then runs on the CPU.
pub fn run<T>(work: impl FnOnce(&mut dyn Queue) -> Result<T, OpError>) -> Result<T, Error> {
    state::perform(|queue| work(queue))
}

/// As [`run`], with the process' plans.
///
/// # Errors
/// As [`run`].
pub fn planned<T>(work: impl FnOnce(&mut Planner, &mut dyn Queue) -> Result<T, OpError>) -> Result<T, Error> {
    run(|queue| work(&mut planner(), queue))
}

/// The process' plans.
fn planner() -> MutexGuard<'static, Planner> {
    static PLANNER: LazyLock<Mutex<Planner>> = LazyLock::new(|| {
        let policy = wave32_solve::Policy::from_env().unwrap_or_else(|error| {
            crate::stderr::write(&format!("wave: {error}; the environment's choice of solvers is ignored\n"));
            wave32_solve::Policy::default()
        });
        Mutex::new(Planner::new(policy))
    });
    // A panic leaves at worst a plan unmade.
    PLANNER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether convolutions may be transformed (Winograd) from now on, where that is said; whether they could be.
pub fn winograd(is_allowed: Option<bool>) -> bool {
    let mut planner = planner();
    match is_allowed {
        Some(is_allowed) => planner.allow("winograd", is_allowed),
        None => planner.allows("winograd"),
    }
}

/// Which passes may sum in f16 from now on, where that is said; which could.
pub fn fp16_accumulation(which: Option<Fp16Accumulation>) -> Fp16Accumulation {
    planner().fp16_accumulation(which)
}
