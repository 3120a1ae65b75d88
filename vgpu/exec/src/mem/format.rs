//! Unified buffer formats of gfx10 (RDNA ISA 8.1.7, "buffer image format"), and what they convert.

use half::f16;

/// How a component's bits are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Unorm,
    Snorm,
    Uscaled,
    Sscaled,
    Uint,
    Sint,
    Float,
}

use Number::{Float, Sint, Snorm, Sscaled, Uint, Unorm, Uscaled};

const WITHOUT_FLOAT: &[Number] = &[Unorm, Snorm, Uscaled, Sscaled, Uint, Sint];
const WITH_FLOAT: &[Number] = &[Unorm, Snorm, Uscaled, Sscaled, Uint, Sint, Float];
const WHOLE: &[Number] = &[Uint, Sint, Float];

/// Layouts in the order of their numbers from 1 on: bits of each component from the lowest, and what they can be.
const LAYOUTS: &[([u32; 4], &[Number])] = &[
    ([8, 0, 0, 0], WITHOUT_FLOAT),
    ([16, 0, 0, 0], WITH_FLOAT),
    ([8, 8, 0, 0], WITHOUT_FLOAT),
    ([32, 0, 0, 0], WHOLE),
    ([16, 16, 0, 0], WITH_FLOAT),
    ([11, 11, 10, 0], WITH_FLOAT),
    ([10, 11, 11, 0], WITH_FLOAT),
    ([2, 10, 10, 10], WITHOUT_FLOAT),
    ([10, 10, 10, 2], WITHOUT_FLOAT),
    ([8, 8, 8, 8], WITHOUT_FLOAT),
    ([32, 32, 0, 0], WHOLE),
    ([16, 16, 16, 16], WITH_FLOAT),
    ([32, 32, 32, 0], WHOLE),
    ([32, 32, 32, 32], WHOLE),
];

/// A format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    bits: [u32; 4],
    number: Number,
}

impl Format {
    /// By its number in an instruction or a descriptor.
    pub fn new(number: u8) -> Option<Self> {
        let mut rest = usize::from(number).checked_sub(1)?;
        for &(bits, numbers) in LAYOUTS {
            if let Some(&number) = numbers.get(rest) {
                return Some(Self { bits, number });
            }
            rest -= numbers.len();
        }
        None
    }

    /// Bytes of an element.
    pub fn bytes(self) -> u32 {
        self.bits.iter().sum::<u32>() / 8
    }

    /// Components that it has.
    pub fn components(self) -> usize {
        self.bits.iter().filter(|&&b| b != 0).count()
    }

    fn is_integer(self) -> bool {
        matches!(self.number, Uint | Sint)
    }

    /// What a component that is not there, or is chosen so, has: one.
    pub fn one(self) -> u32 {
        if self.is_integer() { 1 } else { 1f32.to_bits() }
    }

    /// An element's components as 32 bits each: missing ones are 0, 0, 0 and one.
    pub fn decode(self, element: [u32; 4]) -> [u32; 4] {
        let mut colour = [0, 0, 0, self.one()];
        let mut at = 0;
        for (to, bits) in colour.iter_mut().zip(self.bits) {
            if bits != 0 {
                let (dword, shift) = ((at / 32) as usize, at % 32);
                *to = self.read(element[dword] >> shift & u32::MAX >> (32 - bits), bits);
                at += bits;
            }
        }
        colour
    }

    fn read(self, raw: u32, bits: u32) -> u32 {
        let signed = (raw << (32 - bits)) as i32 >> (32 - bits);
        let float = match self.number {
            Uint => return raw,
            Sint => return signed as u32,
            Unorm => (f64::from(raw) / f64::from(u32::MAX >> (32 - bits))) as f32,
            Snorm => (f64::from(signed) / f64::from(i32::MAX >> (32 - bits))).max(-1.0) as f32,
            Uscaled => raw as f32,
            Sscaled => signed as f32,
            Float => return float_bits(raw, bits),
        };
        float.to_bits()
    }

    /// An element of these components, of 32 bits each: numbers beyond the range become its ends.
    pub fn encode(self, colour: [u32; 4]) -> [u32; 4] {
        let mut element = [0; 4];
        let mut at = 0;
        for (from, bits) in colour.into_iter().zip(self.bits) {
            if bits != 0 {
                element[(at / 32) as usize] |= self.write(from, bits) << (at % 32);
                at += bits;
            }
        }
        element
    }

    fn write(self, value: u32, bits: u32) -> u32 {
        let ones = u32::MAX >> (32 - bits);
        let float = f64::from(f32::from_bits(value));
        // A NaN becomes 0, as `as` has it.
        let unsigned = |v: f64| v.round_ties_even().clamp(0.0, f64::from(ones)) as u32;
        let top = f64::from(i32::MAX >> (32 - bits));
        let signed = |v: f64, least: f64| v.round_ties_even().clamp(least, top) as i32 as u32 & ones;
        match self.number {
            Uint => value.min(ones),
            Sint => (value as i32).clamp(i32::MIN >> (32 - bits), i32::MAX >> (32 - bits)) as u32 & ones,
            Unorm => unsigned(float.clamp(0.0, 1.0) * f64::from(ones)),
            Snorm => signed(float.clamp(-1.0, 1.0) * top, -top),
            Uscaled => unsigned(float.trunc()),
            Sscaled => signed(float.trunc(), -top - 1.0),
            Float if bits == 32 => value,
            Float if bits == 16 => u32::from(f16::from_f32(f32::from_bits(value)).to_bits()),
            Float => small_float(f32::from_bits(value), bits),
        }
    }

    /// A component as 16 bits: a half, or an integer cut off.
    pub fn narrow(self, value: u32) -> u32 {
        if self.is_integer() {
            value & 0xffff
        } else {
            u32::from(f16::from_f32(f32::from_bits(value)).to_bits())
        }
    }

    /// The reverse.
    pub fn widen(self, value: u32) -> u32 {
        match self.number {
            Uint => value,
            Sint => value as i16 as u32,
            _ => f16::from_bits(value as u16).to_f32().to_bits(),
        }
    }
}

/// A float of 32, 16, 11 or 10 bits as one of 32; those of 11 and 10 have five bits of exponent and no sign.
fn float_bits(raw: u32, bits: u32) -> u32 {
    match bits {
        32 => raw,
        16 => f16::from_bits(raw as u16).to_f32().to_bits(),
        _ => f16::from_bits((raw << (15 - bits)) as u16).to_f32().to_bits(),
    }
}

/// The reverse, toward zero; below zero is zero, beyond the range the greatest, a NaN stays one.
fn small_float(value: f32, bits: u32) -> u32 {
    let shift = 15 - bits;
    if value.is_nan() {
        return 0x7fff >> shift;
    }
    if value == f32::INFINITY {
        return 0x7c00 >> shift;
    }
    let greatest = f16::from_bits(0x7bff >> shift << shift).to_f32();
    let value = value.clamp(0.0, greatest);
    // Toward zero: of the two halves around it the lower.
    let near = f16::from_f32(value);
    let below = if near.to_f32() > value { near.to_bits() - 1 } else { near.to_bits() };
    u32::from(below) >> shift
}
