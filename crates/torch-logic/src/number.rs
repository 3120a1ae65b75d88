//! Numbers: Python's, those that kernels take, and the bytes of elements.

use crate::promotion::category;
use crate::{ScalarType, Wrong};
use half::{bf16, f16};
use wave32_ops::Number;

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
    /// As of types: 0 truth value, 1 whole number, 2 float, 3 complex.
    pub const fn category(self) -> u32 {
        match self {
            Self::Bool(_) => 0,
            Self::Int(_) => 1,
            Self::Float(_) => 2,
            Self::Complex(..) => 3,
        }
    }

    /// As a float.
    ///
    /// # Errors
    /// `NoKernel` where a float does not carry it exactly.
    pub fn float(self) -> Result<f64, Wrong> {
        match self {
            Self::Bool(value) => Ok(f64::from(u8::from(value))),
            Self::Int(value) if value.unsigned_abs() <= 1 << 53 => Ok(value as f64),
            Self::Float(value) => Ok(value),
            other => Err(Wrong::NoKernel(format!("the number {other:?}"))),
        }
    }

    /// As a number of the device's operations.
    ///
    /// # Errors
    /// `NoKernel` for complex numbers.
    pub fn number(self) -> Result<Number, Wrong> {
        match self {
            Self::Bool(value) => Ok(Number::Int(value.into())),
            Self::Int(value) => Ok(Number::Int(value)),
            Self::Float(value) => Ok(Number::Float(value)),
            Self::Complex(..) => Err(Wrong::NoKernel("a complex number".into())),
        }
    }

    /// That elements of the type hold the number, with its fraction lost where they are whole: what PyTorch asks of
    /// numbers that it writes.
    ///
    /// # Errors
    /// `Invalid`, as PyTorch words it.
    pub fn fits(self, to: ScalarType) -> Result<(), Wrong> {
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
                let most = bf16::MAX.to_f64();
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
        Err(Wrong::Invalid(format!("value cannot be converted to type {name} without overflow")))
    }

    /// Its bytes as one element.
    ///
    /// # Errors
    /// `NoKernel` where the host converts it.
    pub fn bytes(self, dtype: ScalarType) -> Result<Vec<u8>, Wrong> {
        let (real, imaginary) = match self {
            Self::Complex(real, imaginary) => (real, imaginary),
            Self::Int(whole) if whole >= 0 => {
                let bytes = whole.to_le_bytes();
                match dtype {
                    ScalarType::U16 if whole <= 0xffff => return Ok(bytes[..2].to_vec()),
                    ScalarType::U32 if whole <= 0xffff_ffff => return Ok(bytes[..4].to_vec()),
                    ScalarType::U64 => return Ok(bytes.to_vec()),
                    _ => (self.float()?, 0.0),
                }
            }
            real => (real.float()?, 0.0),
        };
        match dtype.part() {
            Some(part) => Ok([element(real, part)?, element(imaginary, part)?].concat()),
            None if self.category() == 3 => Err(Wrong::NoKernel(format!("the number {self:?}"))),
            None => element(real, dtype),
        }
    }

    /// The element that starts with these bytes, which are as many as the type has, or more.
    ///
    /// # Errors
    /// `NoKernel` for exotic types.
    pub fn read(dtype: ScalarType, bytes: &[u8]) -> Result<Self, Wrong> {
        let mut raw = [0; 8];
        let length = bytes.len().min(8).min(dtype.bytes() as usize);
        raw[..length].copy_from_slice(&bytes[..length]);
        let word = u64::from_le_bytes(raw);
        let float = |bits: u64| f64::from(f32::from_bits(bits as u32));
        Ok(match dtype {
            ScalarType::Bool => Self::Bool(word != 0),
            ScalarType::U8 | ScalarType::U16 | ScalarType::U32 | ScalarType::I64 => Self::Int(word as i64),
            ScalarType::I32 => Self::Int(i64::from(word as i32)),
            ScalarType::I16 => Self::Int(i64::from(word as i16)),
            ScalarType::I8 => Self::Int(i64::from(word as i8)),
            ScalarType::F64 => Self::Float(f64::from_bits(word)),
            ScalarType::F32 => Self::Float(float(word)),
            ScalarType::F16 => Self::Float(f16::from_bits(word as u16).to_f64()),
            ScalarType::BF16 => Self::Float(bf16::from_bits(word as u16).to_f64()),
            ScalarType::C64 => Self::Complex(float(word), float(word >> 32)),
            other => return Err(Wrong::NoKernel(format!("the value of a {}", other.name()))),
        })
    }
}

/// The bytes of `value` as one element.
///
/// # Errors
/// `NoKernel` for types that the host converts.
pub fn element(value: f64, dtype: ScalarType) -> Result<Vec<u8>, Wrong> {
    Ok(match dtype {
        ScalarType::F32 => (value as f32).to_le_bytes().to_vec(),
        ScalarType::F64 => value.to_le_bytes().to_vec(),
        ScalarType::I64 => (value as i64).to_le_bytes().to_vec(),
        ScalarType::I32 => (value as i32).to_le_bytes().to_vec(),
        ScalarType::I16 => (value as i16).to_le_bytes().to_vec(),
        ScalarType::I8 => (value as i8).to_le_bytes().to_vec(),
        ScalarType::U8 => (value as i64 as u8).to_le_bytes().to_vec(),
        ScalarType::Bool => vec![u8::from(value != 0.0)],
        _ if value.to_bits() == 0 => vec![0; dtype.bytes() as usize],
        // Through f32, as PyTorch does: `from_f64` drops half of the mantissa before it rounds.
        ScalarType::F16 => f16::from_f32(value as f32).to_le_bytes().to_vec(),
        ScalarType::BF16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        other => return Err(Wrong::NoKernel(format!("a fill of {}", other.name()))),
    })
}

/// The number as an element of the type that is computed in: whole ones wrap. Floats are rounded only on wish: PyTorch's
/// arithmetic on halves takes them as they are.
pub fn fitted(value: Number, to: ScalarType, rounds: bool) -> Number {
    match to {
        ScalarType::I64 => Number::Int(value.int()),
        ScalarType::I32 => Number::Int(i64::from(value.int() as i32)),
        ScalarType::I16 => Number::Int(i64::from(value.int() as i16)),
        ScalarType::I8 => Number::Int(i64::from(value.int() as i8)),
        ScalarType::U8 => Number::Int(i64::from(value.int() as u8)),
        ScalarType::Bool => Number::Int(i64::from(value.float() != 0.0)),
        ScalarType::F16 if rounds => Number::Float(f16::from_f32(value.float() as f32).to_f64()),
        ScalarType::BF16 if rounds => Number::Float(bf16::from_f32(value.float() as f32).to_f64()),
        _ => value,
    }
}

/// A bound of elements of a type. One that it does not hold is the CPU's: whether that bounds nothing or is refused depends on
/// torch's version.
///
/// # Errors
/// `NoKernel` for such a bound, and for complex numbers.
pub fn bound(value: Scalar, of: ScalarType) -> Result<Number, Wrong> {
    let (least, most) = match of {
        ScalarType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        ScalarType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        ScalarType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        ScalarType::U8 => (0, 255),
        _ => return value.number(),
    };
    match value.number()? {
        Number::Int(number) if !(least..=most).contains(&number) => {
            Err(Wrong::NoKernel(format!("a bound of {number} for {}", of.name())))
        }
        number => Ok(number),
    }
}

/// How many numbers `arange` has.
///
/// # Errors
/// `Invalid`, as PyTorch words it, for a step that does not lead there.
pub fn steps(from: Number, to: Number, by: Number) -> Result<i64, Wrong> {
    if by.float() == 0.0 {
        return Err(Wrong::Invalid("step must be nonzero".into()));
    }
    if (to.float() - from.float()) * by.float() < 0.0 {
        return Err(Wrong::Invalid("upper bound and lower bound inconsistent with step sign".into()));
    }
    Ok(match (from, to, by) {
        (Number::Int(from), Number::Int(to), Number::Int(by)) => {
            let (span, by) = (i128::from(to) - i128::from(from), i128::from(by));
            i64::try_from((span + by - by.signum()) / by).unwrap_or(i64::MAX)
        }
        _ => ((to.float() - from.float()) / by.float()).ceil() as i64,
    })
}

/// How many whole numbers `random_()` draws from: as many as the type holds exactly.
///
/// # Errors
/// `NoKernel` for other types.
pub fn range_of(dtype: ScalarType) -> Result<u64, Wrong> {
    Ok(match dtype {
        ScalarType::F32 => (1 << 24) + 1,
        ScalarType::F16 => (1 << 11) + 1,
        ScalarType::BF16 => (1 << 8) + 1,
        ScalarType::Bool => 2,
        ScalarType::U8 => 1 << 8,
        ScalarType::I8 => 1 << 7,
        ScalarType::I16 => 1 << 15,
        ScalarType::I32 => 1 << 31,
        ScalarType::I64 => 1 << 63,
        other => return Err(Wrong::NoKernel(format!("random_ of {}", other.name()))),
    })
}

/// How many whole numbers `random_(from, to)` draws from; without `to` up to the type's largest.
///
/// # Errors
/// `Invalid`, as PyTorch words it, for an empty range; `NoKernel` for bounds that the type does not hold.
pub fn range_between(dtype: ScalarType, from: i64, to: Option<i64>) -> Result<u64, Wrong> {
    let room = i128::from(range_of(dtype)?);
    // The largest float that is drawn is the range itself.
    let most = if dtype.is_float() { room } else { room - 1 };
    let least = if matches!(dtype, ScalarType::U8 | ScalarType::Bool) { 0 } else { -room };
    if i128::from(from) < least || to.is_some_and(|to| i128::from(to) - 1 > most) {
        return Err(Wrong::NoKernel("bounds beyond the type's".into()));
    }
    match to {
        Some(to) if from >= to => Err(Wrong::Invalid(format!(
            "random_ expects 'from' to be less than 'to', but got from={from} >= to={to}"
        ))),
        Some(to) => Ok(to.wrapping_sub(from) as u64),
        None => Ok(range_of(dtype)?.wrapping_sub(from as u64)),
    }
}

/// A number as elements of a type take it from `arange`: whole ones without a fraction.
pub fn whole_for(number: Number, dtype: ScalarType) -> Number {
    if category(dtype) < 2 { Number::Int(number.int()) } else { number }
}

#[cfg(test)]
mod tests;
