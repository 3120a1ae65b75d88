//! Types of MIOpen's C ABI, as in `miopen.h` of ROCm 5.2 to 7; reading and writing the caller's memory.

use crate::abi::entry::{Failure, Outcome};
pub use crate::abi::status::{self, Status};
use std::ffi::{c_int, c_void};

/// A `miopenHandle_t` or a descriptor: a number that [`crate::abi::objects`] knows, and never an address that we read. 0 is null.
pub type Id = usize;

/// An address on the card, or null. Only looked at by the runtime and by kernels.
pub type Data = usize;

/// A `T *` of the caller's that a call writes to.
///
/// Only a C caller makes one, and it promises what the header says: null, or as many `T` as the call's other arguments
/// tell, alive during the call.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Writes one value.
    ///
    /// # Errors
    /// Bad parameter, where the pointer is null.
    pub fn set(&self, name: &str, value: T) -> Outcome {
        self.set_all(name, &[value])
    }

    /// Writes one value, unless the caller does not want it.
    pub fn set_if_wanted(&self, value: T) {
        let _ = self.set("", value);
    }

    /// Writes several values.
    ///
    /// # Errors
    /// As [`Out::set`].
    pub fn set_all(&self, name: &str, values: &[T]) -> Outcome {
        if self.0.is_null() && !values.is_empty() {
            return Err(Failure::bad(format!("{name} is null")));
        }
        for (at, value) in values.iter().enumerate() {
            // SAFETY: not null, and the caller promises room for what the call writes (see the type).
            unsafe { self.0.add(at).write_unaligned(*value) };
        }
        Ok(())
    }

    /// Reads what is there, of an argument that the call also writes.
    ///
    /// # Errors
    /// As [`Out::set`].
    pub fn held(&self, name: &str) -> Outcome<T> {
        self.check(name)?;
        // SAFETY: not null, and the caller promises a value (see the type).
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// That it is not null, before work is done.
    ///
    /// # Errors
    /// As [`Out::set`].
    pub fn check(&self, name: &str) -> Outcome {
        if self.0.is_null() { Err(Failure::bad(format!("{name} is null"))) } else { Ok(()) }
    }

    /// True where the caller gave none.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// A `const T *` of the caller's that a call reads; the promise is that of [`Out`].
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl In<c_void> {
    /// As a pointer to `T`.
    ///
    /// # Safety
    /// The header says that it points to `T`, for the call's other arguments.
    pub unsafe fn cast<T>(&self) -> In<T> {
        In(self.0.cast())
    }
}

impl<T: Copy> In<T> {
    /// Reads one value.
    ///
    /// # Errors
    /// Bad parameter, where the pointer is null.
    pub fn get(&self, name: &str) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Failure::bad(format!("{name} is null")));
        }
        // SAFETY: not null, and the caller promises a value (see the type).
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Reads `count` values.
    ///
    /// # Errors
    /// As [`In::get`].
    pub fn get_all(&self, name: &str, count: usize) -> Outcome<Vec<T>> {
        if self.0.is_null() && count > 0 {
            return Err(Failure::bad(format!("{name} is null")));
        }
        // SAFETY: not null, and the caller promises `count` values (see the type).
        Ok((0..count).map(|at| unsafe { self.0.add(at).read_unaligned() }).collect())
    }

    /// True where the caller gave none.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// `miopenDataType_t`, those that tensors here may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum DataType {
    /// 16-bit float.
    Half = 0,
    /// 32-bit float.
    Float = 1,
    /// 32-bit integer.
    Int32 = 2,
    /// 8-bit integer.
    Int8 = 3,
    /// bfloat16.
    BFloat16 = 5,
    /// 64-bit float.
    Double = 6,
    /// 64-bit integer.
    Int64 = 9,
}

impl DataType {
    /// From the caller's number.
    ///
    /// # Errors
    /// Not implemented for 8-bit floats and packs of 4; bad parameter for what is no type.
    pub fn from_c(value: c_int) -> Outcome<Self> {
        Ok(match value {
            0 => Self::Half,
            1 => Self::Float,
            2 => Self::Int32,
            3 => Self::Int8,
            5 => Self::BFloat16,
            6 => Self::Double,
            9 => Self::Int64,
            4 | 7 | 8 => return Err(Failure::absent(format!("tensors of data type {value}"))),
            _ => return Err(Failure::bad(format!("{value} is no data type"))),
        })
    }

    /// As operations call it.
    pub fn element(self) -> wave32_ops::ElementType {
        use wave32_ops::ElementType;
        match self {
            Self::Half => ElementType::F16,
            Self::Float => ElementType::F32,
            Self::Int32 => ElementType::I32,
            Self::Int8 => ElementType::I8,
            Self::BFloat16 => ElementType::BF16,
            Self::Double => ElementType::F64,
            Self::Int64 => ElementType::I64,
        }
    }

    /// Bytes of an element.
    pub fn size(self) -> u64 {
        self.element().size()
    }
}

/// `miopenConvAlgoPerf_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Perf {
    /// The pass's algorithm; all passes share the numbers.
    pub algorithm: c_int,
    /// Milliseconds.
    pub time: f32,
    /// Workspace bytes.
    pub memory: usize,
}

/// `miopenConvSolution_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ConvSolution {
    /// Milliseconds.
    pub time: f32,
    /// Workspace bytes.
    pub workspace_size: usize,
    /// Which solver.
    pub solution_id: u64,
    /// `miopenConvAlgorithm_t`.
    pub algorithm: c_int,
}

/// `miopenConvAlgorithm_t` and its three shadows.
pub mod algorithm {
    use std::ffi::c_int;
    /// Matrix product, perhaps of unfolded images.
    pub const GEMM: c_int = 0;
    /// Direct.
    pub const DIRECT: c_int = 1;
    /// Winograd.
    pub const WINOGRAD: c_int = 3;
    /// Implicit matrix product.
    pub const IMPLICIT_GEMM: c_int = 5;
}
