//! Calls that run on the CPU and come back: counted, told once per operator, refused on wish.

use crate::abi::error::Error;
use crate::abi::stack::Return;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use wave32_torch_logic::settings;

/// What to do about a call without a kernel (`WAVE32_FALLBACK`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Warn,
    Quiet,
    Refuse,
}

fn policy() -> Policy {
    match settings::variable("WAVE32_FALLBACK").as_ref().map(|(_, text)| text.trim()) {
        Some("error") => Policy::Refuse,
        Some("quiet") => Policy::Quiet,
        _ => Policy::Warn,
    }
}

static COUNTS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

fn counts() -> MutexGuard<'static, BTreeMap<String, u64>> {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls per operator since the start or [`reset`].
pub fn all() -> Vec<(String, u64)> {
    counts().iter().map(|(name, count)| (name.clone(), *count)).collect()
}

/// Forgets the counts; operators are told of again.
pub fn reset() {
    counts().clear();
}

/// Counts one call of `name` (`aten::relu`); a text for the user where this is the first.
///
/// # Errors
/// `Refused` with `WAVE32_FALLBACK=error`.
pub fn count(name: &str, why: &str) -> Result<Option<String>, Error> {
    let policy = policy();
    if policy == Policy::Refuse {
        return Err(Error::Refused(format!(
            "{name}: {why}; WAVE32_FALLBACK=error forbids to run it on the CPU"
        )));
    }
    let first = {
        let mut counts = counts();
        let count = counts.entry(name.to_string()).or_default();
        *count += 1;
        *count == 1
    };
    let told = first && policy == Policy::Warn;
    Ok(told
        .then(|| format!("wave: {name} runs on the CPU ({why}); torch.wave.fallbacks() counts such calls")))
}

/// An argument as Python takes it.
pub type Give<'a> = &'a dyn Fn(Python<'_>) -> Result<Py<PyAny>, Error>;

/// Runs `aten::{name}` on the CPU, through the same Python that runs operators without any kernel: only there
/// does torch take every type that a schema may have.
///
/// # Errors
/// The error of the call on the CPU.
pub fn run<R: Return>(name: &str, why: &str, arguments: &[Give<'_>]) -> Result<R, Error> {
    crate::abi::gil::attach(|py| {
        let arguments: Result<Vec<_>, _> = arguments.iter().map(|give| give(py)).collect();
        let run = py.import("wave32._instead")?.getattr("run_by_name")?;
        R::from_python(&run.call1((name, why, PyList::new(py, arguments?)?))?)
    })
}
