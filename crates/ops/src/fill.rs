//! Results that depend on the index alone.

use crate::{ElementType, Elementwise, Number, Op, OpError, Operand, Queue, View};

/// Every element becomes `value`.
///
/// # Errors
/// As [`Elementwise::run`].
pub fn fill(queue: &mut dyn Queue, out: &View, value: Number) -> Result<(), OpError> {
    let bytes = out.elements() * out.dtype.size();
    let words = bytes != 0 && out.address.is_multiple_of(4) && bytes.is_multiple_of(4);
    if let Some(word) = word(out.dtype, value).filter(|_| words && out.is_contiguous()) {
        return fill_words(queue, out.address, bytes, word);
    }
    Elementwise::new(Op::Identity, out.dtype).run(queue, &[Operand::Value(value)], out)
}

/// From so many bytes on the device's own command fills as quickly as the memory takes it.
const LARGE: u64 = 1 << 20;

/// Repeats a word in whole words of memory. A kernel fills few: see [`crate::copy_bytes`].
///
/// # Errors
/// As [`Elementwise::run`]; [`OpError::Device`] for places that are no whole words.
pub fn fill_words(queue: &mut dyn Queue, address: u64, bytes: u64, word: u32) -> Result<(), OpError> {
    if bytes >= LARGE || !(address | bytes).is_multiple_of(4) {
        return Ok(queue.fill(address, bytes, word)?);
    }
    let out = View::contiguous(address, ElementType::I32, &[bytes / 4])?;
    Elementwise::new(Op::Identity, out.dtype).run(
        queue,
        &[Operand::Value(Number::Int(i64::from(word)))],
        &out,
    )
}

/// The 32-bit word that repeats in memory, where one does and is known without rounding to 16-bit floats.
fn word(dtype: ElementType, value: Number) -> Option<u32> {
    let byte = |byte: u8| u32::from(byte) * 0x0101_0101;
    match dtype {
        _ if matches!(value, Number::Int(0))
            || value == Number::Float(0.0) && value.float().is_sign_positive() =>
        {
            Some(0)
        }
        ElementType::F32 => Some((value.float() as f32).to_bits()),
        ElementType::I32 => Some(value.int() as u32),
        ElementType::I16 => Some(u32::from(value.int() as u16) * 0x1_0001),
        ElementType::I8 | ElementType::U8 => Some(byte(value.int() as u8)),
        ElementType::Bool => Some(byte(u8::from(value.float() != 0.0))),
        ElementType::F16 | ElementType::BF16 | ElementType::F64 | ElementType::I64 => None,
    }
}

/// `out[i] = start + i step` of a result of one dimension.
///
/// # Errors
/// As [`Elementwise::run`].
pub fn arange(queue: &mut dyn Queue, out: &View, start: Number, step: Number) -> Result<(), OpError> {
    let arange = Elementwise { op: Op::Arange, compute: out.dtype, parameters: [start, step] };
    arange.run(queue, &[], out)
}

/// Evenly spaced numbers from `start` to `end`, both included, in a result of one dimension.
///
/// # Errors
/// As [`Elementwise::run`].
pub fn linspace(queue: &mut dyn Queue, out: &View, start: Number, end: Number) -> Result<(), OpError> {
    let gaps = out.elements().saturating_sub(1);
    let step = if gaps == 0 { 0.0 } else { (end.float() - start.float()) / gaps as f64 };
    let linspace =
        Elementwise { op: Op::Linspace, compute: out.dtype, parameters: [start, Number::Float(step)] };
    // One element is the start, though it is in the second half.
    let last = Operand::Value(if gaps == 0 { start } else { end });
    linspace.run(queue, &[0i64.into(), 0i64.into(), last], out)
}

/// Ones on the diagonal of a matrix, zeros beside it.
///
/// # Errors
/// As [`Elementwise::run`]; `not-a-matrix`.
pub fn eye(queue: &mut dyn Queue, out: &View) -> Result<(), OpError> {
    let (&[rows, columns], &[down, right]) = (out.sizes(), out.strides()) else {
        return Err(OpError::refused("not-a-matrix", format!("{:?}", out.sizes())));
    };
    fill(queue, out, Number::Int(0))?;
    let diagonal = View::new(out.address, out.dtype, &[rows.min(columns)], &[down + right])?;
    fill(queue, &diagonal, Number::Int(1))
}
