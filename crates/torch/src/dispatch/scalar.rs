//! Kernels of operators with a `Scalar`, which libtorch's C ABI cannot carry: they are called through Python.
//!
//! A kernel is written as any other, with [`Scalar`] among its parameters or as its result, and gets a row in a
//! table made by [`scalar_ops!`](crate::scalar_ops). Python registers a builtin for each row; the call holds the GIL.

use crate::abi::calls::{Word, api, check};
use crate::abi::error::Error;
use crate::abi::stack::{Argument, Owned};
use crate::dispatch::register::panic_text;
use crate::tensors::dtype::{MemoryFormat, ScalarType};
use crate::tensors::tensor::Tensor;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyCFunction, PyComplex, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use smallvec::{Array, SmallVec};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A number of a schema's type `Scalar`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Real and imaginary part.
    Complex(f64, f64),
}

impl Scalar {
    /// As a float.
    ///
    /// # Errors
    /// `NoKernel` where a float does not carry it exactly.
    pub fn float(self) -> Result<f64, Error> {
        match self {
            Self::Bool(value) => Ok(f64::from(u8::from(value))),
            Self::Int(value) if value.unsigned_abs() <= 1 << 53 => Ok(value as f64),
            Self::Float(value) => Ok(value),
            other => Err(Error::NoKernel(format!("the number {other:?}"))),
        }
    }
}

impl Scalar {
    /// As a number of the device's operations.
    ///
    /// # Errors
    /// `NoKernel` for complex numbers.
    pub fn number(self) -> Result<wave32_ops::Number, Error> {
        match self {
            Self::Bool(value) => Ok(wave32_ops::Number::Int(value.into())),
            Self::Int(value) => Ok(wave32_ops::Number::Int(value)),
            Self::Float(value) => Ok(wave32_ops::Number::Float(value)),
            Self::Complex(..) => Err(Error::NoKernel("a complex number".into())),
        }
    }
}

impl Scalar {
    /// That elements of the type hold the number, with its fraction lost where they are whole: what PyTorch asks of
    /// numbers that it writes.
    ///
    /// # Errors
    /// `Invalid`, as PyTorch words it.
    pub fn fits(self, to: ScalarType) -> Result<(), Error> {
        let (least, most, name) = match to {
            ScalarType::I64 => (-9_223_372_036_854_775_808.0, 9_223_372_036_854_774_784.0, "int64_t"),
            ScalarType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX), "int"),
            ScalarType::I16 => (-32768.0, 32767.0, "int16_t"),
            ScalarType::I8 => (-128.0, 127.0, "int8_t"),
            // Negative whole numbers wrap.
            ScalarType::U8 if matches!(self, Self::Int(_)) => (-255.0, 255.0, "uint8_t"),
            ScalarType::U8 => (0.0, 255.0, "uint8_t"),
            ScalarType::F32 => (-f64::from(f32::MAX), f64::from(f32::MAX), "float"),
            ScalarType::F16 => (-65504.0, 65504.0, "c10::Half"),
            ScalarType::BF16 => {
                let most = half::bf16::MAX.to_f64();
                (-most, most, "c10::BFloat16")
            }
            _ => return Ok(()),
        };
        let value = match self {
            Self::Float(value) => value,
            Self::Int(value) if to != ScalarType::I64 => value as f64,
            _ => return Ok(()),
        };
        // Floats hold what is no number.
        let fits = (least..=most).contains(&value) || to.is_float() && !value.is_finite();
        if fits {
            return Ok(());
        }
        Err(Error::Invalid(format!("value cannot be converted to type {name} without overflow")))
    }
}

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
        match Scalar::of(object)? {
            Some(number) => Ok(Self::Number(number)),
            None => Tensor::of_object(object).map(Self::Tensor),
        }
    }
}

/// `torch.get_default_dtype()`.
pub fn default_float() -> ScalarType {
    if let Some(default) = api().default_dtype {
        // SAFETY: reads a setting of the process.
        return ScalarType::from_code(i32::from(unsafe { default() })).unwrap_or(ScalarType::F32);
    }
    crate::abi::gil::attach(|py| {
        let dtype = py.import("torch").and_then(|torch| torch.getattr("get_default_dtype")?.call0());
        dtype.ok().and_then(|dtype| ScalarType::from_python(&dtype).ok()).unwrap_or(ScalarType::F32)
    })
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

impl Argument for Option<Scalar> {
    type Owned = Self;
    type Item<'x> = Self;
    fn lend(owned: &Self) -> Self {
        *owned
    }
}

/// A parameter that Python passes.
pub trait FromPython: Owned {
    /// Takes it.
    ///
    /// # Errors
    /// `Invalid` for an object of another type; `Torch`.
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error>;
}

fn wrong(object: &Bound<'_, PyAny>, wanted: &str) -> Error {
    let kind = object.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string());
    Error::Invalid(format!("expected {wanted}, got {kind}"))
}

impl FromPython for Tensor {
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        match Scalar::of(object)? {
            Some(number) => Self::of_number(number),
            None => Self::of_object(object),
        }
    }
}

impl Tensor {
    /// Another handle to a tensor of Python's.
    ///
    /// # Errors
    /// `Invalid` for an object of another type; `Torch` where a call into libtorch fails.
    pub(crate) fn of_object(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        if let Some(from) = api().tensor_from_pyobject {
            let mut handle = std::ptr::null_mut();
            // SAFETY: a live object; the shim checks that it is a tensor.
            check(unsafe { from(object.as_ptr().cast(), &raw mut handle) }, "tensor_from_pyobject")?;
            // SAFETY: a new reference.
            return Ok(unsafe { Self::from_handle(handle) });
        }
        // Before torch 2.14: what pybind11 would call.
        if let Some(load) = api().tensor_load {
            let made = Self::undefined()?;
            // SAFETY: a handle is an `at::Tensor*`, and the caster is a struct whose one field is such a tensor, which
            // it sets where the object, which is live, is one.
            let is_tensor = unsafe { load(made.handle(), object.as_ptr().cast(), false) };
            return if is_tensor { Ok(made) } else { Err(wrong(object, "a tensor")) };
        }
        // Or an operator of ours gives the handle away as a number.
        let word =
            wave_operator(object.py(), "take").and_then(|take| take.call1((object,))?.extract::<i64>());
        let word = word.map_err(|_| wrong(object, "a tensor"))?;
        // SAFETY: `take` gave this handle away.
        Ok(unsafe { Self::from_handle(word as Word as _) })
    }

    /// A tensor of the CPU without dimensions, which operators take for a number.
    fn of_number(number: Scalar) -> Result<Self, Error> {
        let (dtype, bytes) = match number {
            Scalar::Bool(value) => (ScalarType::Bool, vec![u8::from(value)]),
            Scalar::Int(value) => (ScalarType::I64, value.to_le_bytes().to_vec()),
            Scalar::Float(value) => (ScalarType::F64, value.to_le_bytes().to_vec()),
            Scalar::Complex(real, imaginary) => {
                (ScalarType::C128, [real.to_le_bytes(), imaginary.to_le_bytes()].concat())
            }
        };
        let tensor = Self::empty_cpu(&[], &[], dtype)?;
        tensor.write_host(|to| {
            to.copy_from_slice(&bytes);
            Ok(())
        })?;
        Ok(tensor)
    }
}

impl FromPython for Scalar {
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        Self::of(object)?.ok_or_else(|| wrong(object, "a number"))
    }
}

impl Scalar {
    /// A Python number; none where it is another object.
    fn of(object: &Bound<'_, PyAny>) -> Result<Option<Self>, Error> {
        let out_of_range = |_| Error::NoKernel("an integer of more than 64 bits".into());
        Ok(Some(if let Ok(value) = object.cast::<PyFloat>() {
            Self::Float(value.extract().map_err(|_| wrong(object, "a float"))?)
        } else if let Ok(value) = object.cast::<PyBool>() {
            Self::Bool(value.is_true())
        } else if let Ok(value) = object.cast::<PyInt>() {
            Self::Int(value.extract().map_err(out_of_range)?)
        } else if let Ok(value) = object.cast::<PyComplex>() {
            Self::Complex(value.real(), value.imag())
        } else {
            return Ok(None);
        }))
    }
}

macro_rules! extracted {
    ($($type:ty, $wanted:literal;)*) => {$(
        impl FromPython for $type {
            fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
                object.extract().map_err(|_| wrong(object, $wanted))
            }
        }
    )*};
}
extracted! {
    i64, "an int";
    f64, "a float";
    bool, "a bool";
    String, "a string";
}

impl<T: FromPython> FromPython for Option<T> {
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        if object.is_none() { Ok(None) } else { T::from_python(object).map(Some) }
    }
}

fn each<T: FromPython>(object: &Bound<'_, PyAny>, mut take: impl FnMut(T)) -> Result<(), Error> {
    for item in object.try_iter().map_err(|_| wrong(object, "a list"))? {
        take(T::from_python(&item.map_err(|_| wrong(object, "a list"))?)?);
    }
    Ok(())
}

impl<A: Array> FromPython for SmallVec<A>
where
    A::Item: FromPython,
    Self: Owned,
{
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        let mut all = Self::new();
        each(object, |item| all.push(item))?;
        Ok(all)
    }
}

impl<T: FromPython> FromPython for Vec<T>
where
    Self: Owned,
{
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        let mut all = Self::new();
        each(object, |item| all.push(item))?;
        Ok(all)
    }
}

impl FromPython for ScalarType {
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        let text = object.str()?;
        let text = text.to_string_lossy();
        let named = Self::ALL.iter().find(|dtype| text.strip_prefix("torch.") == Some(dtype.name()));
        named.copied().ok_or_else(|| wrong(object, "a dtype that the device has"))
    }
}

impl FromPython for MemoryFormat {
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        match &*object.str()?.to_string_lossy() {
            "torch.contiguous_format" => Ok(Self::Contiguous),
            "torch.channels_last" => Ok(Self::ChannelsLast),
            "torch.channels_last_3d" => Ok(Self::ChannelsLast3d),
            "torch.preserve_format" => Ok(Self::Preserve),
            _ => Err(wrong(object, "a memory format")),
        }
    }
}

/// A result that goes to Python.
pub trait ToPython {
    /// Gives it.
    ///
    /// # Errors
    /// `Torch` where a call into libtorch fails.
    fn to_python(self, py: Python<'_>) -> Result<Py<PyAny>, Error>;
}

impl ToPython for Tensor {
    fn to_python(self, py: Python<'_>) -> Result<Py<PyAny>, Error> {
        if !self.is_defined() {
            return Ok(py.None());
        }
        if let Some(to) = api().tensor_to_pyobject {
            let mut object = std::ptr::null_mut();
            // SAFETY: a live handle, the default type, a place for the answer.
            let status = unsafe { to(self.handle(), std::ptr::null_mut(), &raw mut object) };
            check(status, "tensor_to_pyobject")?;
            // SAFETY: a new reference.
            return Ok(unsafe { Bound::from_owned_ptr(py, object.cast()) }.unbind());
        }
        if let Some(wrap) = api().tensor_wrap {
            // SAFETY: a handle is an `at::Tensor*`; the GIL is held; the answer is a new reference, or none with
            // Python's error set.
            let object = unsafe { Bound::from_owned_ptr_or_err(py, wrap(self.handle()).cast()) };
            return Ok(object?.unbind());
        }
        let give = wave_operator(py, "give").and_then(|give| give.call1((self.into_word() as i64,)));
        Ok(give?.unbind())
    }
}

impl ToPython for () {
    fn to_python(self, py: Python<'_>) -> Result<Py<PyAny>, Error> {
        Ok(py.None())
    }
}

impl ToPython for Scalar {
    fn to_python(self, py: Python<'_>) -> Result<Py<PyAny>, Error> {
        Ok(match self {
            Self::Bool(value) => PyBool::new(py, value).to_owned().into_any().unbind(),
            Self::Int(value) => PyInt::new(py, value).into_any().unbind(),
            Self::Float(value) => PyFloat::new(py, value).into_any().unbind(),
            Self::Complex(real, imaginary) => {
                PyComplex::from_doubles(py, real, imaginary).into_any().unbind()
            }
        })
    }
}

impl ToPython for Vec<Tensor> {
    fn to_python(self, py: Python<'_>) -> Result<Py<PyAny>, Error> {
        let items: Result<Vec<_>, _> = self.into_iter().map(|tensor| tensor.to_python(py)).collect();
        Ok(PyList::new(py, items?)?.into_any().unbind())
    }
}

macro_rules! tuples {
    ($($name:ident: $type:ty),*) => {
        impl ToPython for ($($type,)*) {
            fn to_python(self, py: Python<'_>) -> Result<Py<PyAny>, Error> {
                let ($($name,)*) = self;
                let items = [$($name.to_python(py)?),*];
                Ok(PyTuple::new(py, items)?.into_any().unbind())
            }
        }
    };
}
tuples!(a: Tensor, b: Tensor);
tuples!(a: Tensor, b: Tensor, c: Tensor);

fn wave_operator<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("torch")?.getattr("ops")?.getattr("wave")?.getattr(name)?.getattr("default")
}

/// Takes all arguments of a schema, in order.
type FromArguments = for<'py> fn(Python<'py>, &[Bound<'py, PyAny>]) -> Result<Py<PyAny>, Error>;

/// A kernel that Python calls.
pub struct ScalarOp {
    /// Name and overload, without the namespace.
    pub name: &'static str,
    /// What the builtin calls.
    pub call: FromArguments,
}

/// A table of kernels with [`Scalar`]s: `scalar_ops! { "fill_.Scalar" => fill_ }`.
#[macro_export]
macro_rules! scalar_ops {
    ($($name:literal => $kernel:expr),* $(,)?) => {
        &[$($crate::dispatch::scalar::ScalarOp {
            name: $name,
            call: |py, arguments| $crate::dispatch::scalar::PythonKernel::run(&$kernel, py, arguments),
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
                call::<R, $($type::Item<'_>),*>(self, $($type::lend(&$value)),*)?.to_python(py)
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
            let result = catch_unwind(AssertUnwindSafe(|| (op.call)(py, &all))).unwrap_or_else(|panic| {
                Err(Error::Torch(format!("wave: a bug in {}: {}", op.name, panic_text(&*panic))))
            });
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
                    crate::dispatch::index_errors::after_operator()?;
                    Ok(made)
                }
            }
        };
    PyCFunction::new_closure(py, None, None, call)
}
