//! From a plain Rust function to a kernel that libtorch calls.

use crate::abi::calls::{BUILD_VERSION, Boxed, Handle, Word, api, check};
use crate::abi::error::Error;
use crate::abi::raise::raise;
use crate::abi::stack::{Argument, Owned, Return};
use crate::abi::unboxed::{Candidate, Functions, Passed, Returned, Way};
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
    /// What C++ calls, where it can.
    pub functions: fn() -> Functions,
}

impl Registration {
    /// As C++ may call it.
    pub fn candidate(&self) -> Candidate {
        Candidate { name: self.name, way: Way::C, functions: self.functions }
    }
}

/// The name of the operator that a kernel is of, as a type.
pub trait Named {
    /// Name and overload, without the namespace.
    const NAME: &'static str;
    /// Whether a panic becomes an error. Not where the kernel calls what may throw C++ exceptions: they pass.
    const CATCHES: bool;
}

/// The functions for C++ of a kernel, which is a function or a closure that holds nothing.
pub fn functions_of<Name: Named, Marker, K: Kernel<Marker>>(_: &K) -> Functions {
    K::functions::<Name>()
}

/// A kernel of an operator: a function whose parameters are the schema's (see [`crate::abi::stack`]) and whose result is
/// a `Result<_, Error>`; libtorch calls it through [`enter`], or the function given.
#[macro_export]
macro_rules! kernel {
    ($name:literal, $kernel:expr) => {
        $crate::kernel!($name, $kernel, $crate::dispatch::register::enter, true)
    };
    ($name:literal, $kernel:expr, uncaught) => {
        $crate::kernel!($name, $kernel, $crate::dispatch::register::enter_uncaught, false)
    };
    ($name:literal, $kernel:expr, $enter:expr, $catches:literal) => {
        $crate::dispatch::register::Registration {
            name: $name,
            functions: $crate::functions!($name, $kernel, $catches),
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

/// The functions for C++ of a kernel.
#[macro_export]
macro_rules! functions {
    ($name:literal, $kernel:expr, $catches:literal) => {{
        fn functions() -> $crate::abi::unboxed::Functions {
            struct ThisOperator;
            impl $crate::dispatch::register::Named for ThisOperator {
                const NAME: &'static str = $name;
                const CATCHES: bool = $catches;
            }
            $crate::dispatch::register::functions_of::<ThisOperator, _, _>(&$kernel)
        }
        functions
    }};
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

    /// What C++ calls.
    fn functions<Name: Named>() -> Functions;
}

/// The one value of a type without any size: a function's or a closure's that holds nothing.
fn the_one<'a, K: 'a>() -> &'a K {
    const { assert!(size_of::<K>() == 0, "a kernel holds nothing") };
    // SAFETY: a value of no bytes lies anywhere; one was given to `functions_of`, so there are such.
    unsafe { std::ptr::NonNull::dangling().as_ref() }
}

macro_rules! kernels {
    ($arity:ident; $($value:ident: $type:ident),*) => {
        #[allow(clippy::too_many_arguments)] // as many as the schema has
        mod $arity {
            use super::*;

            /// The kernel's result, or that of what runs where it refuses.
            pub(super) fn checked<F, R, $($type: Argument),*>(
                kernel: &F,
                name: &'static str,
                $($value: &$type::Owned),*
            ) -> Result<R, Error>
            where
                F: Fn($($type),*) -> Result<R, Error> + for<'x> Fn($($type::Item<'x>),*) -> Result<R, Error>,
                R: Return,
            {
                fn call<R, $($type),*>(
                    kernel: impl Fn($($type),*) -> Result<R, Error>,
                    $($value: $type),*
                ) -> Result<R, Error> {
                    kernel($($value),*)
                }
                let result = match call::<R, $($type::Item<'_>),*>(kernel, $($type::lend($value)),*) {
                    Err(Error::NoKernel(why)) if !is_own(name) => {
                        fallback::run::<R>(name, &why, &[$(&|py| Owned::to_python($value, py)),*])
                    }
                    other => other,
                };
                let result = result?;
                crate::dispatch::index_errors::after_operator()?;
                Ok(result)
            }

            /// Once for those below.
            ///
            /// # Safety
            /// The arguments are what C++ passes.
            #[inline(never)]
            unsafe fn guarded<Name: Named, F, R, $($type: Passed),*>($($value: <$type as Passed>::Cxx),*) -> R
            where
                F: Fn($($type),*) -> Result<R, Error> + for<'x> Fn($($type::Item<'x>),*) -> Result<R, Error>,
                R: Return,
            {
                let run = || {
                    // SAFETY: by the caller.
                    $(let $value = unsafe { <$type as Passed>::hold($value) }?;)*
                    checked::<F, R, $($type),*>(the_one::<F>(), Name::NAME, $(&$value),*)
                };
                let result = if Name::CATCHES {
                    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(panicked(Name::NAME, &*panic)))
                } else {
                    run()
                };
                match result {
                    Ok(result) => result,
                    Err(error) => raise(error),
                }
            }

            /// # Safety
            /// As of [`guarded`]; there is room for the result.
            pub(super) unsafe extern "C-unwind" fn by_value<Name: Named, F, R, $($type: Passed),*>(
                out: *mut Word,
                _functor: Handle,
                _keys: u64,
                $($value: <$type as Passed>::Cxx),*
            ) -> *mut Word
            where
                F: Fn($($type),*) -> Result<R, Error> + for<'x> Fn($($type::Item<'x>),*) -> Result<R, Error>,
                R: Returned,
            {
                // SAFETY: by the caller.
                unsafe { guarded::<Name, F, R, $($type),*>($($value),*).place(out) };
                out
            }

            /// Answers its first or its last argument.
            ///
            /// # Safety
            /// As of [`guarded`].
            pub(super) unsafe extern "C-unwind" fn by_reference<const LAST: bool, Name: Named, F, R, $($type: Passed),*>(
                _functor: Handle,
                _keys: u64,
                $($value: <$type as Passed>::Cxx),*
            ) -> Handle
            where
                F: Fn($($type),*) -> Result<R, Error> + for<'x> Fn($($type::Item<'x>),*) -> Result<R, Error>,
                R: Return,
            {
                // SAFETY: by the caller.
                drop(unsafe { guarded::<Name, F, R, $($type),*>($($value),*) });
                let all = [$(<$type as Passed>::tensor($value)),*];
                all[if LAST { all.len() - 1 } else { 0 }]
            }
        }

        impl<F, R, $($type: Passed),*> Kernel<fn($($type),*) -> R> for F
        where
            // The first bound finds the parameters' types, the second lets them be lent for any lifetime.
            F: Fn($($type),*) -> Result<R, Error> + for<'x> Fn($($type::Item<'x>),*) -> Result<R, Error>,
            R: Returned,
        {
            const ARGUMENTS: usize = [$(stringify!($value)),*].len();

            unsafe fn run(&self, name: &'static str, stack: &mut [Word]) -> Result<(), Error> {
                let &mut [$($value,)* ..] = stack else {
                    return Err(Error::Invalid(format!("{name} was called with too few arguments")));
                };
                // All are taken before any error returns, so that none leaks.
                // SAFETY: by the caller.
                $(let $value = unsafe { <$type::Owned as Owned>::take($value) };)*
                $(let $value = $value?;)*
                $arity::checked::<F, R, $($type),*>(self, name, $(&$value),*)?.put(stack)
            }

            fn functions<Name: Named>() -> Functions {
                Functions {
                    arguments: vec![$(<$type as Passed>::SCHEMA),*],
                    result: R::SCHEMA,
                    by_value: $arity::by_value::<Name, F, R, $($type),*> as *const (),
                    first: $arity::by_reference::<false, Name, F, R, $($type),*> as *const (),
                    last: $arity::by_reference::<true, Name, F, R, $($type),*> as *const (),
                }
            }
        }
    };
}

macro_rules! arities {
    ($first:ident: $first_type:ident $(, $value:ident: $type:ident)*) => {
        kernels!($first; $first: $first_type $(, $value: $type)*);
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
        catch_unwind(run).unwrap_or_else(|panic| Err(panicked(name, &*panic)))
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

/// The error that a panic in an operator becomes.
pub(crate) fn panicked(name: &str, panic: &(dyn std::any::Any + Send)) -> Error {
    Error::Torch(format!("wave: a bug in {name}: {}", panic_text(panic)))
}

/// What a panic said.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
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
