//! Kernels of operators with a `Scalar`, which libtorch's C ABI cannot carry: Python's calls come through Python, those
//! of C++ directly ([`crate::abi::unboxed`]).
//!
//! A kernel is written as any other, with [`Scalar`] among its parameters or as its result, and gets a row in a
//! table made by [`scalar_ops!`](crate::scalar_ops). Python registers a builtin for each row; the kernel runs without the GIL.

use crate::abi::calls::Word;
use crate::abi::conversions::{FromPython, ToPython, number_of};
use crate::abi::error::Error;
use crate::abi::stack::{Argument, Owned};
use crate::abi::unboxed::Functions;
use crate::dispatch::register::panicked;
use crate::tensors::tensor::Tensor;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyList, PyString, PyTuple};
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wave32_torch_logic::Scalar;

/// A number, or a tensor where the schema says so: numbers promote otherwise than tensors without dimensions.
#[derive(Debug)]
pub enum Either {
    /// A Python number.
    Number(Scalar),
    /// A tensor.
    Tensor(Tensor),
}

impl Owned for Either {
    unsafe fn take(_: Word) -> Result<Self, Error> {
        Err(Error::Invalid("numbers come through Python: use scalar_ops!".into()))
    }
    fn to_python(&self, py: Python<'_>) -> Result<Py<PyAny>, Error> {
        match self {
            Self::Number(number) => ToPython::to_python(*number, py),
            Self::Tensor(tensor) => Owned::to_python(tensor, py),
        }
    }
}

impl Argument for &Either {
    type Owned = Either;
    type Item<'x> = &'x Either;
    fn lend(owned: &Either) -> &Either {
        owned
    }
}

impl FromPython for Either {
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        match number_of(object)? {
            Some(number) => Ok(Self::Number(number)),
            None => Tensor::of_object(object).map(Self::Tensor),
        }
    }
}

impl Owned for Scalar {
    unsafe fn take(_: Word) -> Result<Self, Error> {
        Err(Error::Invalid("a Scalar cannot come through the C ABI: use scalar_ops!".into()))
    }
    fn to_python(&self, py: Python<'_>) -> Result<Py<PyAny>, Error> {
        ToPython::to_python(*self, py)
    }
}

impl Argument for Scalar {
    type Owned = Self;
    type Item<'x> = Self;
    fn lend(owned: &Self) -> Self {
        *owned
    }
}

impl Argument for &[Scalar] {
    type Owned = SmallVec<[Scalar; 4]>;
    type Item<'x> = &'x [Scalar];
    fn lend(owned: &Self::Owned) -> &[Scalar] {
        owned
    }
}

impl Owned for SmallVec<[Scalar; 4]> {
    unsafe fn take(_: Word) -> Result<Self, Error> {
        Err(Error::Invalid("numbers come through Python: use scalar_ops!".into()))
    }
    fn to_python(&self, py: Python<'_>) -> Result<Py<PyAny>, Error> {
        let items: Result<Vec<_>, _> = self.iter().map(|number| ToPython::to_python(*number, py)).collect();
        Ok(PyList::new(py, items?)?.into_any().unbind())
    }
}

impl Argument for Option<Scalar> {
    type Owned = Self;
    type Item<'x> = Self;
    fn lend(owned: &Self) -> Self {
        *owned
    }
}

/// Takes all arguments of a schema, in order.
type FromArguments = for<'py> fn(Python<'py>, &[Bound<'py, PyAny>]) -> Result<Py<PyAny>, Error>;

/// A kernel that Python calls.
pub struct ScalarOp {
    /// Name and overload, without the namespace.
    pub name: &'static str,
    /// What the builtin calls.
    pub call: FromArguments,
    /// What C++ calls, where it can.
    pub functions: fn() -> Functions,
}

/// A table of kernels with [`Scalar`]s: `scalar_ops! { "fill_.Scalar" => fill_ }`.
#[macro_export]
macro_rules! scalar_ops {
    ($($name:literal => $kernel:expr),* $(,)?) => {
        &[$($crate::dispatch::scalar::ScalarOp {
            name: $name,
            call: |py, arguments| $crate::dispatch::scalar::PythonKernel::run(&$kernel, py, arguments),
            functions: $crate::functions!($name, $kernel, true),
        }),*]
    };
}

/// A function that can be a [`ScalarOp`]; as [`crate::dispatch::register::Kernel`].
pub trait PythonKernel<Marker> {
    /// Calls it.
    ///
    /// # Errors
    /// The kernel's; `Invalid` for arguments of other types.
    fn run<'py>(&self, py: Python<'py>, arguments: &[Bound<'py, PyAny>]) -> Result<Py<PyAny>, Error>;
}

macro_rules! kernels {
    ($($value:ident: $type:ident),*) => {
        impl<F, R: ToPython, $($type: Argument),*> PythonKernel<fn($($type),*) -> R> for F
        where
            F: Fn($($type),*) -> Result<R, Error> + for<'x> Fn($($type::Item<'x>),*) -> Result<R, Error>,
            $($type::Owned: FromPython,)*
        {
            fn run<'py>(&self, py: Python<'py>, arguments: &[Bound<'py, PyAny>]) -> Result<Py<PyAny>, Error> {
                #[allow(clippy::too_many_arguments)]
                fn call<R, $($type),*>(
                    kernel: impl Fn($($type),*) -> Result<R, Error>,
                    $($value: $type),*
                ) -> Result<R, Error> {
                    kernel($($value),*)
                }
                let [$($value),*] = arguments else {
                    return Err(Error::Invalid(format!("wrong number of arguments: {}", arguments.len())));
                };
                $(let $value = <$type::Owned as FromPython>::from_python($value)?;)*
                let run = || call::<R, $($type::Item<'_>),*>(self, $($type::lend(&$value)),*);
                $crate::abi::gil::release(py, run)?.to_python(py)
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
arities!(a: A, b: B, c: C, d: D, e: E, f: G, g: H, h: I, i: J, j: K, k: L, l: M);

/// A builtin that torch's dispatcher calls: puts arguments in the schema's order, with its defaults where the
/// dispatcher left them out, and calls `fallback` where the kernel says that it is none for them.
///
/// # Errors
/// The Python exception, where Python cannot make the function.
pub fn builtin<'py>(
    py: Python<'py>,
    op: &'static ScalarOp,
    names: Vec<Py<PyString>>,
    defaults: Vec<Py<PyAny>>,
    fallback: Py<PyAny>,
) -> PyResult<Bound<'py, PyCFunction>> {
    let call =
        move |arguments: &Bound<'_, PyTuple>, keywords: Option<&Bound<'_, PyDict>>| -> PyResult<Py<PyAny>> {
            let py = arguments.py();
            let mut all: SmallVec<[Bound<'_, PyAny>; 8]> = arguments.iter().collect();
            for (name, default) in names.iter().zip(&defaults).skip(all.len()) {
                let given = keywords.map(|k| k.get_item(name)).transpose()?.flatten();
                all.push(given.unwrap_or_else(|| default.bind(py).clone()));
            }
            let result = catch_unwind(AssertUnwindSafe(|| (op.call)(py, &all)))
                .unwrap_or_else(|panic| Err(panicked(op.name, &*panic)));
            match result {
                Err(Error::NoKernel(why)) => {
                    let with_why = PyDict::new(py);
                    if let Some(keywords) = keywords {
                        with_why.update(keywords.as_mapping())?;
                    }
                    with_why.set_item("why", why)?;
                    Ok(fallback.call(py, arguments, Some(&with_why))?)
                }
                other => {
                    let made = other?;
                    crate::abi::gil::release(py, crate::dispatch::index_errors::after_operator)?;
                    Ok(made)
                }
            }
        };
    PyCFunction::new_closure(py, None, None, call)
}
