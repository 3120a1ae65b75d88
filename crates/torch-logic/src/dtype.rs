//! Element types of tensors.

use crate::Wrong;
use wave32_ops::ElementType;

macro_rules! dtypes {
    ($($name:ident, $bytes:literal, $dlpack:expr, $text:literal;)*) => {
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
            pub const fn dlpack(self) -> (u8, u8) {
                match self { $(Self::$name => ($dlpack, $bytes * 8),)* }
            }

            /// As PyTorch prints it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

dtypes! {
    F32, 4, 2, "float32";
    F16, 2, 2, "float16";
    BF16, 2, 4, "bfloat16";
    F64, 8, 2, "float64";
    I64, 8, 0, "int64";
    I32, 4, 0, "int32";
    I16, 2, 0, "int16";
    I8, 1, 0, "int8";
    U8, 1, 1, "uint8";
    Bool, 1, 6, "bool";
    U16, 2, 1, "uint16";
    U32, 4, 1, "uint32";
    U64, 8, 1, "uint64";
    C32, 4, 5, "complex32";
    C64, 8, 5, "complex64";
    C128, 16, 5, "complex128";
    F8E5M2, 1, 12, "float8_e5m2";
    F8E4M3, 1, 10, "float8_e4m3fn";
    F8E5M2Z, 1, 1, "float8_e5m2fnuz";
    F8E4M3Z, 1, 1, "float8_e4m3fnuz";
    F8E8M0, 1, 1, "float8_e8m0fnu";
    F4x2, 1, 1, "float4_e2m1fn_x2";
    Bits8, 1, 1, "bits8";
    Bits16, 2, 1, "bits16";
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

impl ScalarType {
    /// True for f16, bf16, f32 and f64.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F64)
    }

    /// True for complex types.
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::C32 | Self::C64 | Self::C128)
    }

    /// True for types that DLPack does not carry everywhere: their tensors are made as bytes and looked at anew.
    pub const fn is_exotic(self) -> bool {
        matches!(self, Self::F8E5M2Z | Self::F8E4M3Z | Self::F8E8M0 | Self::F4x2 | Self::Bits8 | Self::Bits16)
    }

    /// The type of one of the two parts of a complex number.
    pub const fn part(self) -> Option<Self> {
        match self {
            Self::C32 => Some(Self::F16),
            Self::C64 => Some(Self::F32),
            Self::C128 => Some(Self::F64),
            _ => None,
        }
    }

    /// The complex type of two such parts.
    pub const fn of_parts(self) -> Option<Self> {
        match self {
            Self::F16 => Some(Self::C32),
            Self::F32 => Some(Self::C64),
            Self::F64 => Some(Self::C128),
            _ => None,
        }
    }

    /// The whole numbers that elements are moved as, which have their size.
    ///
    /// # Errors
    /// `NoKernel` for elements of more than eight bytes.
    pub fn as_bits(self) -> Result<Self, Wrong> {
        Ok(match self.bytes() {
            1 => Self::U8,
            2 => Self::I16,
            4 => Self::I32,
            8 => Self::I64,
            _ => return Err(Wrong::NoKernel(format!("an operation on {}", self.name()))),
        })
    }
}

/// The element types that device operations know.
impl TryFrom<ScalarType> for ElementType {
    type Error = Wrong;

    fn try_from(dtype: ScalarType) -> Result<Self, Wrong> {
        Ok(match dtype {
            ScalarType::F32 => Self::F32,
            ScalarType::F16 => Self::F16,
            ScalarType::BF16 => Self::BF16,
            ScalarType::F64 => Self::F64,
            ScalarType::I64 => Self::I64,
            ScalarType::I32 => Self::I32,
            ScalarType::I16 => Self::I16,
            ScalarType::I8 => Self::I8,
            ScalarType::U8 => Self::U8,
            ScalarType::Bool => Self::Bool,
            other => return Err(Wrong::NoKernel(format!("an operation on {}", other.name()))),
        })
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
    /// Every format.
    pub const ALL: &[Self] = &[Self::Contiguous, Self::ChannelsLast, Self::ChannelsLast3d, Self::Preserve];

    /// As PyTorch names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contiguous => "contiguous_format",
            Self::ChannelsLast => "channels_last",
            Self::ChannelsLast3d => "channels_last_3d",
            Self::Preserve => "preserve_format",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digits behind a type's name are its bits, of a pack of two those of one.
    #[test]
    fn names_say_how_many_bits_a_type_has() {
        for dtype in ScalarType::ALL {
            let name = dtype.name();
            let digits: String =
                name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
            let packed = if name.ends_with("_x2") { 2 } else { 1 };
            let bits = digits.parse().map_or(8, |bits: u64| bits * packed);
            assert_eq!(dtype.bytes() * 8, bits, "{name}");
            assert_eq!(u64::from(dtype.dlpack().1), bits, "{name}");
        }
    }

    #[test]
    fn every_type_is_named_once() {
        let names: std::collections::BTreeSet<_> = ScalarType::ALL.iter().map(|dtype| dtype.name()).collect();
        assert_eq!(names.len(), ScalarType::ALL.len());
    }

    /// DLPack: 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool, 10 and 12 the two 8-bit floats that torch's
    /// reader knows. Exotic types travel as unsigned numbers.
    #[test]
    fn dlpack_s_codes_are_those_of_its_header() {
        for &dtype in ScalarType::ALL {
            let code = match dtype.name() {
                _ if dtype.is_exotic() => 1,
                "bool" => 6,
                "bfloat16" => 4,
                "float8_e5m2" => 12,
                "float8_e4m3fn" => 10,
                name if name.starts_with("uint") => 1,
                name if name.starts_with("int") => 0,
                name if name.starts_with("float") => 2,
                name if name.starts_with("complex") => 5,
                name => panic!("{name}"),
            };
            assert_eq!(dtype.dlpack().0, code, "{}", dtype.name());
        }
    }

    #[test]
    fn a_complex_number_is_two_floats() {
        for &dtype in ScalarType::ALL {
            assert_eq!(dtype.part().is_some(), dtype.is_complex(), "{}", dtype.name());
            if let Some(part) = dtype.part() {
                assert!(part.is_float() && 2 * part.bytes() == dtype.bytes(), "{}", dtype.name());
                assert_eq!(part.of_parts(), Some(dtype));
            }
        }
    }

    #[test]
    fn elements_move_as_whole_numbers_of_their_size() {
        for &dtype in ScalarType::ALL {
            match dtype.as_bits() {
                Ok(bits) => {
                    assert_eq!(bits.bytes(), dtype.bytes());
                    assert_eq!(ElementType::try_from(bits).map(ElementType::size), Ok(dtype.bytes()));
                }
                Err(wrong) => assert_eq!(
                    (dtype, wrong),
                    (ScalarType::C128, Wrong::NoKernel("an operation on complex128".into()))
                ),
            }
        }
    }

    /// Those that operations know have there the name, and the size, that they have here.
    #[test]
    fn a_type_of_the_device_s_operations_is_the_type_of_that_name() {
        let known =
            ScalarType::ALL.iter().filter_map(|&dtype| Some((dtype, ElementType::try_from(dtype).ok()?)));
        let known: Vec<_> = known.collect();
        assert_eq!(known.len(), ElementType::ALL.len());
        for (dtype, element) in known {
            assert_eq!(format!("{dtype:?}"), format!("{element:?}"));
            assert_eq!(dtype.bytes(), element.size());
        }
    }
}
