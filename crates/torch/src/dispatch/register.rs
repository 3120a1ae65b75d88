//! From a plain Rust function to a kernel that libtorch calls.

use crate::abi::calls::{BUILD_VERSION, Boxed, Word, api, check};
use crate::abi::error::Error;
use crate::abi::raise::raise;
use crate::abi::stack::{Argument, Owned, Return};
use crate::dispatch::fallback;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A kernel and the operator that it is of: `relu`, `add.out`.
pub struct Registration {
    /// Name and overload, without the namespace.
    pub name: &'static str,
    /// What libtorch calls.
    pub call: Boxed,
}

/// A kernel of an operator: a function whose parameters are the schema's (see [`crate::abi::stack`]) and whose result is
/// a `Result<_, Error>`; libtorch calls it through [`enter`], or the function given.
#[macro_export]
macro_rules! kernel {
    ($name:literal, $kernel:expr) => {
        $crate::kernel!($name, $kernel, $crate::dispatch::register::enter)
    };
    ($name:literal, $kernel:expr, $enter:expr) => {
        $crate::dispatch::register::Registration {
            name: $name,
            call: {
                /// # Safety
                /// Called by libtorch with the arguments of the operator that it was registered for.
                unsafe extern "C-unwind" fn call(
                    stack: *mut $crate::abi::calls::Word,
                    arguments: u64,
                    results: u64,
                ) {
                    let (name, kernel, enter) = ($name, $kernel, $enter);
                    // SAFETY: by the caller.
                    unsafe { enter(name, &kernel, stack, arguments, results) }
                }
                call
            },
        }
    };
}

/// A table of kernels: `ops! { "relu" => relu, "mul.out" => mul_out }`.
#[macro_export]
macro_rules! ops {
    ($($name:literal => $kernel:expr),* $(,)?) => {
        &[$($crate::kernel!($name, $kernel)),*]
    };
}

/// A function that can be a kernel; `Marker` tells implementations for different arities apart.
pub trait Kernel<Marker> {
    /// Parameters.
    const ARGUMENTS: usize;
    /// Decodes, calls, and gives the results to the stack.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// The stack starts with the arguments that the parameters stand for.
    unsafe fn run(&self, name: &'static str, stack: &mut [Word]) -> Result<(), Error>;
}

macro_rules! kernels {
    ($($value:ident: $type:ident),*) => {
        impl<F, R, $($type: Argument),*> Kernel<fn($($type),*) -> R> for F
        where
            // The first bound finds the parameters' types, the second lets them be lent for any lifetime.
            F: Fn($($type),*) -> Result<R, Error> + for<'x> Fn($($type::Item<'x>),*) -> Result<R, Error>,
            R: Return,
        {
            const ARGUMENTS: usize = [$(stringify!($value)),*].len();

            unsafe fn run(&self, name: &'static str, stack: &mut [Word]) -> Result<(), Error> {
                #[allow(clippy::too_many_arguments)]
                fn call<R, $($type),*>(
                    kernel: impl Fn($($type),*) -> Result<R, Error>,
                    $($value: $type),*
                ) -> Result<R, Error> {
                    kernel($($value),*)
                }
                let &mut [$($value,)* ..] = stack else {
                    return Err(Error::Invalid(format!("{name} was called with too few arguments")));
                };
                // All are taken before any error returns, so that none leaks.
                // SAFETY: by the caller.
                $(let $value = unsafe { <$type::Owned as Owned>::take($value) };)*
                $(let $value = $value?;)*
                let result = match call::<R, $($type::Item<'_>),*>(self, $($type::lend(&$value)),*) {
                    Err(Error::NoKernel(why)) if !is_own(name) => {
                        fallback::run::<R>(name, &why, &[$(&|py| Owned::to_python(&$value, py)),*])
                    }
                    other => other,
                };
                let result = result?;
                crate::dispatch::index_errors::after_operator()?;
                result.put(stack)
            }
        }
    };
}

macro_rules! arities {
    ($first:ident: $first_type:ident $(, $value:ident: $type:ident)*) => {
        kernels!($first: $first_type $(, $value: $type)*);
        arities!($($value: $type),*);
    };
    () => {};
}
arities!(
    a: A, b: B, c: C, d: D, e: E, f: G, g: H, h: I, i: J, j: K, k: L, l: M, m: N, n: O, o: P, p: Q, q: S, r: T,
    s: U, t: V
);

/// Runs a kernel for libtorch.
///
/// # Safety
/// `stack` has the arguments of the operator that the kernel is of, and room for its results.
pub unsafe fn enter<Marker>(
    name: &'static str,
    kernel: &impl Kernel<Marker>,
    stack: *mut Word,
    arguments: u64,
    results: u64,
) {
    let run = |stack: &mut [Word]| {
        // SAFETY: by the caller.
        let run = AssertUnwindSafe(|| unsafe { expect_arguments(name, kernel, stack, arguments) });
        catch_unwind(run).unwrap_or_else(|panic| {
            Err(Error::Torch(format!("wave: a bug in {name}: {}", panic_text(&*panic))))
        })
    };
    // SAFETY: by the caller.
    unsafe { on_stack(stack, arguments, results, run) }
}

/// As [`enter`], for a kernel that calls what may throw C++ exceptions: nothing on their way catches them, so the kernel
/// must not panic.
///
/// # Safety
/// As there.
pub unsafe fn enter_uncaught<Marker>(
    name: &'static str,
    kernel: &impl Kernel<Marker>,
    stack: *mut Word,
    arguments: u64,
    results: u64,
) {
    // SAFETY: by the caller.
    let run = |stack: &mut [Word]| unsafe { expect_arguments(name, kernel, stack, arguments) };
    // SAFETY: by the caller.
    unsafe { on_stack(stack, arguments, results, run) }
}

unsafe fn on_stack(
    stack: *mut Word,
    arguments: u64,
    results: u64,
    run: impl FnOnce(&mut [Word]) -> Result<(), Error>,
) {
    // SAFETY: by the caller; libtorch sizes the stack for the larger of both.
    let stack = unsafe { std::slice::from_raw_parts_mut(stack, arguments.max(results) as usize) };
    if let Err(error) = run(stack) {
        raise(error);
    }
}

unsafe fn expect_arguments<Marker, K: Kernel<Marker>>(
    name: &'static str,
    kernel: &K,
    stack: &mut [Word],
    arguments: u64,
) -> Result<(), Error> {
    if arguments != K::ARGUMENTS as u64 {
        return Err(Error::Invalid(format!(
            "this torch calls {name} with {arguments} arguments, its kernel was written for {}",
            K::ARGUMENTS
        )));
    }
    // SAFETY: by the caller.
    unsafe { kernel.run(name, stack) }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic")
}

/// Operators of this device's own, which the CPU has not: whoever calls one knows what to call where it refuses.
static OWN: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

fn own() -> MutexGuard<'static, BTreeSet<&'static str>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_own(name: &str) -> bool {
    own().contains(name)
}

/// Registers kernels of `namespace` for a dispatch key. They stay for the life of the process.
///
/// # Errors
/// `Torch` where a call into libtorch fails.
pub fn register(namespace: &str, key: &str, ops: &[Registration]) -> Result<(), Error> {
    if namespace == "wave" {
        own().extend(ops.iter().map(|op| op.name));
    }
    let (namespace, key) = (text(namespace), text(key));
    let mut library = std::ptr::null_mut();
    // SAFETY: NUL-terminated texts, a place for the answer.
    let status = unsafe {
        (api().aoti_torch_library_init_impl)(
            namespace.as_ptr(),
            key.as_ptr(),
            c"wave32".as_ptr(),
            0,
            &raw mut library,
        )
    };
    check(status, "library_init_impl")?;
    for op in ops {
        let name = text(op.name);
        // SAFETY: a live library, a kernel with libtorch's signature.
        let status = unsafe { (api().torch_library_impl)(library, name.as_ptr(), op.call, BUILD_VERSION) };
        check(status, op.name)?;
    }
    Ok(())
}

/// Defines operators of the namespace `wave`.
///
/// # Errors
/// `Torch` where a call into libtorch fails.
pub fn define(schemas: &[&str]) -> Result<(), Error> {
    let mut library = std::ptr::null_mut();
    // SAFETY: NUL-terminated texts, a place for the answer.
    let status = unsafe {
        (api().aoti_torch_library_init_fragment)(c"wave".as_ptr(), c"wave32".as_ptr(), 0, &raw mut library)
    };
    check(status, "library_init_fragment")?;
    for schema in schemas {
        let schema = text(schema);
        // SAFETY: a live library, a NUL-terminated text.
        check(unsafe { (api().aoti_torch_library_def)(library, schema.as_ptr()) }, "library_def")?;
    }
    Ok(())
}

fn text(text: &str) -> CString {
    CString::new(text).expect("names and schemas in this crate's tables have no NUL")
}
