//! Calls that run on the CPU and come back: counted, told once per operator, refused on wish.

use crate::abi::{BUILD_VERSION, Word, api, check};
use crate::copies;
use crate::error::Error;
use crate::stack::Return;
use crate::tensor::Tensor;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What to do about a call without a kernel (`WAVE_FALLBACK`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Warn,
    Quiet,
    Refuse,
}

fn policy() -> Policy {
    match std::env::var("WAVE_FALLBACK").as_deref() {
        Ok("error") => Policy::Refuse,
        Ok("quiet") => Policy::Quiet,
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
/// `NoKernel` where fallbacks are refused.
pub fn count(name: &str, why: &str) -> Result<Option<String>, Error> {
    let policy = policy();
    if policy == Policy::Refuse {
        return Err(Error::NoKernel(format!(
            "{name}: {why}; WAVE_FALLBACK=error forbids to run it on the CPU"
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

/// Set beside an operator's written arguments where its CPU kernel cannot be called with lists from here (the C
/// ABI's `SymInt[]` is none to kernels that take `int[]`): `wave::cpu_...`, defined in Python, is called instead.
const DETOUR: u32 = 1 << 31;

/// Which arguments an operator writes, from its schema: `aten::add.out` to a bit per position.
static WRITTEN: OnceLock<HashMap<String, u32>> = OnceLock::new();

/// Sets that table, once, at load.
pub fn set_written(table: HashMap<String, u32>) {
    WRITTEN.get_or_init(|| table);
}

/// An argument, copied for a call on the CPU; pairs of tensor and copy are appended.
pub type Give<'a> = &'a dyn Fn(&mut Vec<(Tensor, Tensor)>) -> Result<Word, Error>;

/// Runs `aten::{name}` on copies of its arguments.
///
/// # Safety
/// The arguments are those of that operator, and `R` its results.
pub unsafe fn run<R: Return>(name: &str, why: &str, arguments: &[Give<'_>]) -> Result<R, Error> {
    let full = format!("aten::{name}");
    let Some(written) = WRITTEN.get().and_then(|table| table.get(&full)).copied() else {
        // One of this device's own: whoever called it knows what to call instead.
        return Err(Error::NoKernel(why.into()));
    };
    if let Some(text) = count(&full, why)? {
        warn(&text);
    }
    let mut seen = Vec::new();
    let mut back = Vec::new();
    let mut stack = Vec::with_capacity(arguments.len().max(8));
    for (position, give) in arguments.iter().enumerate() {
        let before = seen.len();
        stack.push(give(&mut seen)?);
        if written & (1 << position) != 0 {
            back.extend(before..seen.len());
        }
    }
    stack.resize(arguments.len().max(8), 0);
    let called = if written & DETOUR != 0 { format!("wave::cpu_{name}") } else { full };
    let (base, overload) = called.split_once('.').unwrap_or((&called, ""));
    let (base, overload) = (CString::new(base), CString::new(overload));
    let (Ok(base), Ok(overload)) = (base, overload) else {
        return Err(Error::Invalid(format!("{name} is no operator's name")));
    };
    // SAFETY: by the caller; the stack has room for the results of any operator with a kernel here.
    let status = unsafe {
        (api().torch_call_dispatcher)(base.as_ptr(), overload.as_ptr(), stack.as_mut_ptr(), BUILD_VERSION)
    };
    check(status, "a call on the CPU")?;
    for (original, copy) in back.into_iter().map(|index: usize| &seen[index]) {
        if original.sizes() != copy.sizes() {
            crate::memory_ops::resize(original, copy.sizes())?;
        }
        copies::copy(copy, original)?;
    }
    // SAFETY: by the caller.
    unsafe { R::from_cpu(&stack, &seen) }
}

fn warn(text: &str) {
    if let Ok(text) = CString::new(text) {
        // SAFETY: NUL-terminated texts. The warning cannot throw here: Python's filters are applied when
        // the interpreter is back.
        unsafe { (api().aoti_torch_warn)(c"wave".as_ptr(), c"wave32".as_ptr(), 0, text.as_ptr()) };
    }
}
