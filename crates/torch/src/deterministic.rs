//! Deterministic mode (`torch.use_deterministic_algorithms`), read from libtorch at the price of two calls.

use crate::abi::api;
use crate::copies;
use crate::dtype::DType;
use crate::error::Error;
use crate::tensor::Tensor;

/// True in deterministic mode.
pub fn is_on() -> bool {
    match (api().global_context, api().is_deterministic) {
        // SAFETY: a getter of the one context, and one of its flags.
        (Some(context), Some(is_on)) => unsafe { is_on(context()) },
        _ => false,
    }
}

/// True where fresh memory is to be filled with known values.
pub fn fills_memory() -> bool {
    is_on()
        && match (api().global_context, api().fills_memory) {
            // SAFETY: as above.
            (Some(context), Some(fills)) => unsafe { fills(context()) },
            _ => false,
        }
}

/// A new tensor, filled where the mode asks for it.
///
/// # Errors
/// `Device`, `Gone` or `OutOfMemory` from the queue.
pub fn fresh(tensor: Tensor) -> Result<Tensor, Error> {
    if fills_memory() {
        fill(&tensor)?;
    }
    Ok(tensor)
}

/// Writes what PyTorch writes to memory that nobody wrote: NaN, the largest whole number, true.
///
/// # Errors
/// `Device`, `Gone` or `OutOfMemory` from the queue.
pub fn fill(tensor: &Tensor) -> Result<(), Error> {
    let dtype = tensor.dtype()?;
    let element: &[u8] = match dtype {
        DType::F32 => &f32::NAN.to_le_bytes(),
        DType::F64 => &f64::NAN.to_le_bytes(),
        DType::F16 => &half::f16::NAN.to_le_bytes(),
        DType::BF16 => &half::bf16::NAN.to_le_bytes(),
        DType::C32 => &[0, 0x7e, 0, 0],
        DType::C64 => &[0, 0, 0xc0, 0x7f, 0, 0, 0, 0],
        DType::C128 => &[0, 0, 0, 0, 0, 0, 0xf8, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0],
        DType::I64 => &i64::MAX.to_le_bytes(),
        DType::I32 => &i32::MAX.to_le_bytes(),
        DType::I16 => &i16::MAX.to_le_bytes(),
        DType::I8 => &i8::MAX.to_le_bytes(),
        DType::U64 => &u64::MAX.to_le_bytes(),
        DType::U32 => &u32::MAX.to_le_bytes(),
        DType::U16 => &u16::MAX.to_le_bytes(),
        DType::U8 => &[u8::MAX],
        DType::Bool => &[1],
        DType::F8E4M3 | DType::F8E5M2 => &[0x7f],
        DType::F8E4M3Z | DType::F8E5M2Z => &[0x80],
        DType::F8E8M0 => &[0xff],
        // Types without arithmetic, which PyTorch's CPU does not fill either.
        DType::F4x2 | DType::Bits8 | DType::Bits16 => return Ok(()),
    };
    copies::fill(tensor, element)
}
