//! libtorch's codes of types and memory formats.

use crate::abi::calls::{Api, api};
use crate::abi::error::Error;
use std::sync::OnceLock;
use wave32_torch_logic::MemoryFormat;
use wave32_torch_logic::ScalarType;

fn ask(dtype: ScalarType, api: &Api) -> i32 {
    let getter = match dtype {
        ScalarType::F32 => api.aoti_torch_dtype_float32,
        ScalarType::F16 => api.aoti_torch_dtype_float16,
        ScalarType::BF16 => api.aoti_torch_dtype_bfloat16,
        ScalarType::F64 => api.aoti_torch_dtype_float64,
        ScalarType::I64 => api.aoti_torch_dtype_int64,
        ScalarType::I32 => api.aoti_torch_dtype_int32,
        ScalarType::I16 => api.aoti_torch_dtype_int16,
        ScalarType::I8 => api.aoti_torch_dtype_int8,
        ScalarType::U8 => api.aoti_torch_dtype_uint8,
        ScalarType::Bool => api.aoti_torch_dtype_bool,
        ScalarType::U16 => api.aoti_torch_dtype_uint16,
        ScalarType::U32 => api.aoti_torch_dtype_uint32,
        ScalarType::U64 => api.aoti_torch_dtype_uint64,
        ScalarType::C32 => api.aoti_torch_dtype_complex32,
        ScalarType::C64 => api.aoti_torch_dtype_complex64,
        ScalarType::C128 => api.aoti_torch_dtype_complex128,
        ScalarType::F8E5M2 => api.aoti_torch_dtype_float8_e5m2,
        ScalarType::F8E4M3 => api.aoti_torch_dtype_float8_e4m3fn,
        // The number that it has in every version that knows it.
        ScalarType::F8E5M2Z => return 25,
        ScalarType::F8E4M3Z => return 26,
        ScalarType::F8E8M0 => return 44,
        ScalarType::F4x2 => return 45,
        ScalarType::Bits8 => return 21,
        ScalarType::Bits16 => return 22,
    };
    // SAFETY: a getter of a constant.
    unsafe { getter() }
}

struct Codes {
    to_torch: [i32; ScalarType::ALL.len()],
    from_torch: [Option<ScalarType>; 64],
}

fn codes() -> &'static Codes {
    static CODES: OnceLock<Codes> = OnceLock::new();
    CODES.get_or_init(|| {
        let mut codes = Codes { to_torch: [0; ScalarType::ALL.len()], from_torch: [None; 64] };
        for &dtype in ScalarType::ALL {
            let code = ask(dtype, api());
            codes.to_torch[dtype as usize] = code;
            if let Some(slot) = codes.from_torch.get_mut(code as usize) {
                *slot = Some(dtype);
            }
        }
        codes
    })
}

/// libtorch's code.
pub fn code(dtype: ScalarType) -> i32 {
    codes().to_torch[dtype as usize]
}

/// The type of libtorch's code.
///
/// # Errors
/// `Invalid` for types that the device has no memory for (quantised and sub-byte ones).
pub fn of_code(code: i32) -> Result<ScalarType, Error> {
    let known = usize::try_from(code).ok().and_then(|code| codes().from_torch.get(code).copied().flatten());
    known.ok_or_else(|| Error::Invalid(format!("the wave device has no tensors of ScalarType {code}")))
}

/// libtorch's code of a memory format.
pub fn format_code(format: MemoryFormat) -> i32 {
    let api = api();
    let getter = match format {
        MemoryFormat::Contiguous => api.aoti_torch_memory_format_contiguous_format,
        MemoryFormat::Preserve => api.aoti_torch_memory_format_preserve_format,
        MemoryFormat::ChannelsLast => api.aoti_torch_memory_format_channels_last,
        MemoryFormat::ChannelsLast3d => api.aoti_torch_memory_format_channels_last_3d,
    };
    // SAFETY: a getter of a constant.
    unsafe { getter() }
}

/// The memory format of libtorch's code.
///
/// # Errors
/// `Invalid` for an unknown code.
pub fn format_of_code(code: i32) -> Result<MemoryFormat, Error> {
    let known = MemoryFormat::ALL.iter().copied().find(|format| code == format_code(*format));
    known.ok_or_else(|| Error::Invalid(format!("unknown memory format {code}")))
}
