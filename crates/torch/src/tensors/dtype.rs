//! Element types of tensors.

use crate::abi::calls::{Api, api};
use crate::abi::error::Error;
use std::sync::OnceLock;

/// libtorch's code of a type: asked for, or the number that it has in every version that knows it.
macro_rules! code {
    ($api:ident, get $getter:ident) => {
        // SAFETY: a getter of a constant.
        unsafe { ($api.$getter)() }
    };
    ($api:ident, number $number:literal) => {
        $number
    };
}

macro_rules! dtypes {
    ($($name:ident, $how:ident $what:tt, $bytes:literal, $dlpack:expr, $text:literal;)*) => {
        /// An element type.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum ScalarType { $($name,)* }

        impl ScalarType {
            /// Every type.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Bytes of an element.
            pub const fn bytes(self) -> u64 {
                match self { $(Self::$name => $bytes,)* }
            }

            /// DLPack's code and bits.
            pub(crate) const fn dlpack(self) -> (u8, u8) {
                match self { $(Self::$name => ($dlpack, $bytes * 8),)* }
            }

            /// As PyTorch prints it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            fn ask(self, api: &Api) -> i32 {
                match self { $(Self::$name => code!(api, $how $what),)* }
            }
        }
    };
}

dtypes! {
    F32, get aoti_torch_dtype_float32, 4, 2, "float32";
    F16, get aoti_torch_dtype_float16, 2, 2, "float16";
    BF16, get aoti_torch_dtype_bfloat16, 2, 4, "bfloat16";
    F64, get aoti_torch_dtype_float64, 8, 2, "float64";
    I64, get aoti_torch_dtype_int64, 8, 0, "int64";
    I32, get aoti_torch_dtype_int32, 4, 0, "int32";
    I16, get aoti_torch_dtype_int16, 2, 0, "int16";
    I8, get aoti_torch_dtype_int8, 1, 0, "int8";
    U8, get aoti_torch_dtype_uint8, 1, 1, "uint8";
    Bool, get aoti_torch_dtype_bool, 1, 6, "bool";
    U16, get aoti_torch_dtype_uint16, 2, 1, "uint16";
    U32, get aoti_torch_dtype_uint32, 4, 1, "uint32";
    U64, get aoti_torch_dtype_uint64, 8, 1, "uint64";
    C32, get aoti_torch_dtype_complex32, 4, 5, "complex32";
    C64, get aoti_torch_dtype_complex64, 8, 5, "complex64";
    C128, get aoti_torch_dtype_complex128, 16, 5, "complex128";
    F8E5M2, get aoti_torch_dtype_float8_e5m2, 1, 12, "float8_e5m2";
    F8E4M3, get aoti_torch_dtype_float8_e4m3fn, 1, 10, "float8_e4m3fn";
    F8E5M2Z, number 25, 1, 1, "float8_e5m2fnuz";
    F8E4M3Z, number 26, 1, 1, "float8_e4m3fnuz";
    F8E8M0, number 44, 1, 1, "float8_e8m0fnu";
    F4x2, number 45, 1, 1, "float4_e2m1fn_x2";
    Bits8, number 21, 1, 1, "bits8";
    Bits16, number 22, 2, 1, "bits16";
}

// Names that messages use.
impl ScalarType {
    /// As C++ and some of PyTorch's messages name it.
    pub const fn cxx_name(self) -> &'static str {
        match self {
            Self::F32 => "float",
            Self::F64 => "double",
            Self::F16 => "c10::Half",
            Self::BF16 => "c10::BFloat16",
            Self::I64 => "long int",
            Self::I32 => "int",
            Self::I16 => "short int",
            Self::I8 => "signed char",
            Self::U8 => "unsigned char",
            other => other.name(),
        }
    }

    /// As others name it, after tensor types of old.
    pub const fn scalar_name(self) -> &'static str {
        match self {
            Self::F32 => "Float",
            Self::F64 => "Double",
            Self::F16 => "Half",
            Self::BF16 => "BFloat16",
            Self::I64 => "Long",
            Self::I32 => "Int",
            Self::I16 => "Short",
            Self::I8 => "Char",
            Self::U8 => "Byte",
            Self::Bool => "Bool",
            other => other.name(),
        }
    }
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
            let code = dtype.ask(api());
            codes.to_torch[dtype as usize] = code;
            if let Some(slot) = codes.from_torch.get_mut(code as usize) {
                *slot = Some(dtype);
            }
        }
        codes
    })
}

impl ScalarType {
    /// libtorch's code.
    pub fn code(self) -> i32 {
        codes().to_torch[self as usize]
    }

    /// The type of libtorch's code.
    ///
    /// # Errors
    /// `Invalid` for types that the device has no memory for (quantised and sub-byte ones).
    pub fn from_code(code: i32) -> Result<Self, Error> {
        let known =
            usize::try_from(code).ok().and_then(|code| codes().from_torch.get(code).copied().flatten());
        known.ok_or_else(|| Error::Invalid(format!("the wave device has no tensors of ScalarType {code}")))
    }

    /// True for f16, bf16, f32 and f64.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F64)
    }

    /// True for types that DLPack does not carry everywhere: their tensors are made as bytes and looked at anew.
    pub(crate) const fn is_exotic(self) -> bool {
        matches!(self, Self::F8E5M2Z | Self::F8E4M3Z | Self::F8E8M0 | Self::F4x2 | Self::Bits8 | Self::Bits16)
    }

    /// True for complex types.
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::C32 | Self::C64 | Self::C128)
    }
}

/// How the elements of a new tensor lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryFormat {
    /// Last dimension fastest.
    Contiguous,
    /// Channels fastest, 4-d.
    ChannelsLast,
    /// Channels fastest, 5-d.
    ChannelsLast3d,
    /// As the input's.
    Preserve,
}

impl MemoryFormat {
    fn codes() -> [(i32, Self); 4] {
        let api = api();
        // SAFETY: getters of constants.
        unsafe {
            [
                ((api.aoti_torch_memory_format_contiguous_format)(), Self::Contiguous),
                ((api.aoti_torch_memory_format_preserve_format)(), Self::Preserve),
                ((api.aoti_torch_memory_format_channels_last)(), Self::ChannelsLast),
                ((api.aoti_torch_memory_format_channels_last_3d)(), Self::ChannelsLast3d),
            ]
        }
    }

    /// As PyTorch names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contiguous => "contiguous_format",
            Self::ChannelsLast => "channels_last",
            Self::ChannelsLast3d => "channels_last_3d",
            Self::Preserve => "preserve_format",
        }
    }

    /// The format of libtorch's code.
    ///
    /// # Errors
    /// `Invalid` for an unknown code.
    pub fn from_code(code: i32) -> Result<Self, Error> {
        Self::codes()
            .iter()
            .find(|(known, _)| *known == code)
            .map(|(_, format)| *format)
            .ok_or_else(|| Error::Invalid(format!("unknown memory format {code}")))
    }
}
