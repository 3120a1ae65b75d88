//! Deterministic mode (`torch.use_deterministic_algorithms`), read from libtorch at the price of two calls.

use crate::abi::calls::api;
use crate::abi::error::Error;
use crate::tensors::copies;
use crate::tensors::tensor::Tensor;
use wave32_torch_logic::ScalarType;

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
        ScalarType::F32 => &f32::NAN.to_le_bytes(),
        ScalarType::F64 => &f64::NAN.to_le_bytes(),
        ScalarType::F16 => &half::f16::NAN.to_le_bytes(),
        ScalarType::BF16 => &half::bf16::NAN.to_le_bytes(),
        ScalarType::C32 => &[0, 0x7e, 0, 0],
        ScalarType::C64 => &[0, 0, 0xc0, 0x7f, 0, 0, 0, 0],
        ScalarType::C128 => &[0, 0, 0, 0, 0, 0, 0xf8, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0],
        ScalarType::I64 => &i64::MAX.to_le_bytes(),
        ScalarType::I32 => &i32::MAX.to_le_bytes(),
        ScalarType::I16 => &i16::MAX.to_le_bytes(),
        ScalarType::I8 => &i8::MAX.to_le_bytes(),
        ScalarType::U64 => &u64::MAX.to_le_bytes(),
        ScalarType::U32 => &u32::MAX.to_le_bytes(),
        ScalarType::U16 => &u16::MAX.to_le_bytes(),
        ScalarType::U8 => &[u8::MAX],
        ScalarType::Bool => &[1],
        ScalarType::F8E4M3 | ScalarType::F8E5M2 => &[0x7f],
        ScalarType::F8E4M3Z | ScalarType::F8E5M2Z => &[0x80],
        ScalarType::F8E8M0 => &[0xff],
        // Types without arithmetic, which PyTorch's CPU does not fill either.
        ScalarType::F4x2 | ScalarType::Bits8 | ScalarType::Bits16 => return Ok(()),
    };
    copies::fill(tensor, element)
}
