//! Arguments and results as Python has them.

use crate::abi::calls::{Word, api, check};
use crate::abi::error::Error;
use crate::tensors::dtype;
use crate::tensors::tensor::Tensor;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList, PyTuple};
use smallvec::{Array, SmallVec};
use wave32_torch_logic::{MemoryFormat, Scalar, ScalarType};

/// `torch.get_default_dtype()`.
pub fn default_float() -> ScalarType {
    if let Some(default) = api().default_dtype {
        // SAFETY: reads a setting of the process.
        return dtype::of_code(i32::from(unsafe { default() })).unwrap_or(ScalarType::F32);
    }
    crate::abi::gil::attach(|py| {
        let dtype = py.import("torch").and_then(|torch| torch.getattr("get_default_dtype")?.call0());
        dtype.ok().and_then(|dtype| ScalarType::from_python(&dtype).ok()).unwrap_or(ScalarType::F32)
    })
}

/// A parameter that Python passes.
pub trait FromPython: Sized {
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
        match number_of(object)? {
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
        number_of(object)?.ok_or_else(|| wrong(object, "a number"))
    }
}

/// A Python number; none where it is another object.
///
/// # Errors
/// `NoKernel` for integers past 64 bits.
pub fn number_of(object: &Bound<'_, PyAny>) -> Result<Option<Scalar>, Error> {
    let out_of_range = |_| Error::NoKernel("an integer of more than 64 bits".into());
    Ok(Some(if let Ok(value) = object.cast::<PyFloat>() {
        Scalar::Float(value.extract().map_err(|_| wrong(object, "a float"))?)
    } else if let Ok(value) = object.cast::<PyBool>() {
        Scalar::Bool(value.is_true())
    } else if let Ok(value) = object.cast::<PyInt>() {
        Scalar::Int(value.extract().map_err(out_of_range)?)
    } else if let Ok(value) = object.cast::<PyComplex>() {
        Scalar::Complex(value.real(), value.imag())
    } else {
        return Ok(None);
    }))
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
{
    fn from_python(object: &Bound<'_, PyAny>) -> Result<Self, Error> {
        let mut all = Self::new();
        each(object, |item| all.push(item))?;
        Ok(all)
    }
}

impl<T: FromPython> FromPython for Vec<T> {
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
