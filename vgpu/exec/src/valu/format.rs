//! The three float formats, as bits in the low end of 64; exact numbers, rounded once.

use std::cmp::Ordering;

use super::mode::{Mode, Round};

/// A float format. Its values are bits, zero-extended.
pub trait Format {
    /// Bits of the fraction.
    const FRACTION: u32;
    /// Bits in all.
    const WIDTH: u32;
    /// Exponent of the smallest normal number.
    const MIN_EXP: i32;
    /// Where MODE has its rounding.
    const ROUND: u32;
    /// Where MODE has its denormals.
    const DENORM: u32;

    /// Plus infinity.
    const INF: u64 = (1 << (Self::WIDTH - 1)) - (1 << Self::FRACTION);
    /// The sign.
    const SIGN: u64 = 1 << (Self::WIDTH - 1);
    /// What makes a NaN quiet.
    const QUIET: u64 = 1 << (Self::FRACTION - 1);
    /// The NaN of an invalid operation; `v_div_fixup` names this one.
    const NAN: u64 = Self::SIGN | Self::INF | Self::QUIET;
    /// 1.
    const ONE: u64 = ((Self::INF / 2) >> Self::FRACTION) << Self::FRACTION;

    /// Rounded to nearest by the host; NaNs are whatever it makes.
    fn add_nearest(a: u64, b: u64) -> u64;
    /// See [`Format::add_nearest`].
    fn mul_nearest(a: u64, b: u64) -> u64;
    /// See [`Format::add_nearest`].
    fn fma_nearest(a: u64, b: u64, c: u64) -> u64;
    /// Exactly; NaNs are whatever it makes.
    fn to_f64(a: u64) -> f64;
    /// A double that is exact in this format; NaNs are whatever it makes.
    fn of_exact(x: f64) -> u64;
}

/// Half.
pub struct F16;
/// Single.
pub struct F32;
/// Double.
pub struct F64;

/// The single of a half, by integer and exact float steps alone, so that loops over it become vectors.
#[inline(always)]
pub fn single_of_half(h: u32) -> f32 {
    let magnitude = h & 0x7fff;
    // Moves the exponent's bias by a multiplication, which normalises denormals too.
    let scaled = (f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000)).to_bits();
    let bits = if magnitude >= 0x7c00 { magnitude << 13 | 0x7f80_0000 } else { scaled };
    f32::from_bits(bits | (h & 0x8000) << 16)
}

/// The half nearest to a single, ties to even.
#[inline(always)]
pub fn half_of_single(x: f32) -> u32 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let normal = (magnitude.wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13).wrapping_sub(112 << 10);
    // Added to 1/2, the single's last bit weighs as much as the half's denormals do.
    let denormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let finite = if magnitude < 0x3880_0000 { denormal } else { normal };
    let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    let half = if magnitude >= 0x4780_0000 { special } else { finite };
    half | bits >> 16 & 0x8000
}

/// Rounds a sum of three-word floats to odd: exact, or with the last bit set, so that rounding it again to half the
/// precision rounds right.
#[inline(always)]
fn sum_to_odd(p: f32, c: f32) -> f32 {
    let s = p + c;
    let t = s - p;
    let error = (p - (s - t)) + (c - t);
    let away = (error.to_bits() ^ s.to_bits()) >> 31 == 0;
    let inexact = error != 0.0 && s.to_bits() & 1 == 0;
    let step = if away { 1 } else { u32::MAX };
    f32::from_bits(s.to_bits().wrapping_add(if inexact { step } else { 0 }))
}

impl Format for F16 {
    const FRACTION: u32 = 10;
    const WIDTH: u32 = 16;
    const MIN_EXP: i32 = -14;
    const ROUND: u32 = 2;
    const DENORM: u32 = 6;

    // A single has more than twice a half's precision and two bits: rounding sums and products twice changes nothing.
    #[inline(always)]
    fn add_nearest(a: u64, b: u64) -> u64 {
        u64::from(half_of_single(single_of_half(a as u32) + single_of_half(b as u32)))
    }

    #[inline(always)]
    fn mul_nearest(a: u64, b: u64) -> u64 {
        u64::from(half_of_single(single_of_half(a as u32) * single_of_half(b as u32)))
    }

    #[inline(always)]
    fn fma_nearest(a: u64, b: u64, c: u64) -> u64 {
        let product = single_of_half(a as u32) * single_of_half(b as u32); // exact
        let addend = single_of_half(c as u32);
        let sum = product + addend;
        let odd = sum_to_odd(product, addend);
        u64::from(half_of_single(if sum.abs() < f32::INFINITY { odd } else { sum }))
    }

    #[inline(always)]
    fn to_f64(a: u64) -> f64 {
        f64::from(single_of_half(a as u32))
    }

    #[inline(always)]
    fn of_exact(x: f64) -> u64 {
        u64::from(half_of_single(x as f32))
    }
}

impl Format for F32 {
    const FRACTION: u32 = 23;
    const WIDTH: u32 = 32;
    const MIN_EXP: i32 = -126;
    const ROUND: u32 = 0;
    const DENORM: u32 = 4;

    #[inline(always)]
    fn add_nearest(a: u64, b: u64) -> u64 {
        u64::from((f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits())
    }

    #[inline(always)]
    fn mul_nearest(a: u64, b: u64) -> u64 {
        u64::from((f32::from_bits(a as u32) * f32::from_bits(b as u32)).to_bits())
    }

    #[inline(always)]
    fn fma_nearest(a: u64, b: u64, c: u64) -> u64 {
        let [a, b, c] = [a, b, c].map(|x| f32::from_bits(x as u32));
        u64::from(a.mul_add(b, c).to_bits())
    }

    #[inline(always)]
    fn to_f64(a: u64) -> f64 {
        f64::from(f32::from_bits(a as u32))
    }

    #[inline(always)]
    fn of_exact(x: f64) -> u64 {
        u64::from((x as f32).to_bits())
    }
}

impl Format for F64 {
    const FRACTION: u32 = 52;
    const WIDTH: u32 = 64;
    const MIN_EXP: i32 = -1022;
    const ROUND: u32 = 2;
    const DENORM: u32 = 6;

    #[inline(always)]
    fn add_nearest(a: u64, b: u64) -> u64 {
        (f64::from_bits(a) + f64::from_bits(b)).to_bits()
    }

    #[inline(always)]
    fn mul_nearest(a: u64, b: u64) -> u64 {
        (f64::from_bits(a) * f64::from_bits(b)).to_bits()
    }

    #[inline(always)]
    fn fma_nearest(a: u64, b: u64, c: u64) -> u64 {
        f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits()
    }

    #[inline(always)]
    fn to_f64(a: u64) -> f64 {
        f64::from_bits(a)
    }

    #[inline(always)]
    fn of_exact(x: f64) -> u64 {
        x.to_bits()
    }
}

/// Whether NaN.
#[inline(always)]
pub fn is_nan<F: Format>(x: u64) -> bool {
    x & (F::SIGN - 1) > F::INF
}

/// Whether a signalling NaN.
#[inline(always)]
pub fn is_signalling<F: Format>(x: u64) -> bool {
    is_nan::<F>(x) && x & F::QUIET == 0
}

/// Whether denormal or zero.
#[inline(always)]
pub fn is_small<F: Format>(x: u64) -> bool {
    x & F::INF == 0
}

/// With denormals as zeros of their sign.
#[inline(always)]
pub fn flushed<F: Format>(x: u64) -> u64 {
    if is_small::<F>(x) { x & F::SIGN } else { x }
}

/// The biased exponent.
#[inline(always)]
pub fn exponent<F: Format>(x: u64) -> i32 {
    ((x & F::INF) >> F::FRACTION) as i32
}

/// An input as the mode has it: denormals may count as zeros.
#[inline(always)]
pub fn input<F: Format>(m: Mode, x: u64) -> u64 {
    if m.denormals_in::<F>() { x } else { flushed::<F>(x) }
}

/// A result as the mode has it: denormals may be flushed.
#[inline(always)]
pub fn output<F: Format>(m: Mode, x: u64) -> u64 {
    if m.denormals_out::<F>() { x } else { flushed::<F>(x) }
}

/// A number: `significand * 2^exp`; the significand's last bit may stand for all below it that were not zero.
#[derive(Debug, Clone, Copy)]
pub struct Exact {
    /// Below zero.
    pub negative: bool,
    /// The bits that count.
    pub significand: u128,
    /// The weight of the last one.
    pub exp: i32,
}

/// Shifts right; what falls off stays as a set last bit.
fn shift_sticky(x: u128, by: u32) -> u128 {
    match by {
        0 => x,
        1..=127 => x >> by | u128::from(x << (128 - by) != 0),
        _ => u128::from(x != 0),
    }
}

impl Exact {
    /// A finite float's.
    pub fn of<F: Format>(x: u64) -> Self {
        let fraction = x & ((1 << F::FRACTION) - 1);
        let e = exponent::<F>(x);
        let hidden = if e == 0 { 0 } else { 1 << F::FRACTION };
        Self {
            negative: x & F::SIGN != 0,
            significand: u128::from(fraction | hidden),
            exp: e.max(1) - 1 + F::MIN_EXP - F::FRACTION as i32,
        }
    }

    /// A product; of singles and halves, and of doubles too, nothing is lost.
    pub fn times(self, other: Self) -> Self {
        Self {
            negative: self.negative != other.negative,
            significand: self.significand * other.significand,
            exp: self.exp + other.exp,
        }
    }

    /// The highest bit at place 125: room for a carry.
    fn normalised(self) -> Self {
        if self.significand == 0 {
            return self;
        }
        let up = self.significand.leading_zeros() as i32 - 2;
        let significand =
            if up >= 0 { self.significand << up } else { shift_sticky(self.significand, -up as u32) };
        Self { significand, exp: self.exp - up, ..self }
    }

    /// A sum, good for rounding to any of the formats. A sum of zero is negative if both are, or, of opposites, if
    /// rounding goes down.
    pub fn plus(self, other: Self, round: Round) -> Self {
        if self.significand == 0 && other.significand == 0 {
            let negative = if self.negative == other.negative { self.negative } else { round == Round::Down };
            return Self { negative, ..self };
        }
        if self.significand == 0 {
            return other;
        }
        if other.significand == 0 {
            return self;
        }
        let (a, b) = (self.normalised(), other.normalised());
        let (big, small) = if (a.exp, a.significand) >= (b.exp, b.significand) { (a, b) } else { (b, a) };
        let aligned = shift_sticky(small.significand, (big.exp - small.exp) as u32);
        if big.negative == small.negative {
            return Self { significand: big.significand + aligned, ..big };
        }
        let significand = big.significand - aligned;
        let negative = if significand == 0 { round == Round::Down } else { big.negative };
        Self { negative, significand, ..big }
    }

    /// Rounded, once.
    pub fn round<F: Format>(self, round: Round) -> u64 {
        let sign = if self.negative { F::SIGN } else { 0 };
        if self.significand == 0 {
            return sign;
        }
        let leading = 127 - self.significand.leading_zeros() as i32 + self.exp;
        let e = leading.max(F::MIN_EXP);
        let drop = e - F::FRACTION as i32 - self.exp;
        // What is kept, and how what falls off compares with half of the last place; none where nothing does.
        let (kept, fallen) = match drop {
            ..=0 => (self.significand << -drop, None),
            1..128 => {
                let below = self.significand & ((1 << drop) - 1);
                (self.significand >> drop, (below != 0).then(|| below.cmp(&(1 << (drop - 1)))))
            }
            _ => (0, Some(Ordering::Less)),
        };
        let up = fallen.is_some_and(|fallen| match round {
            Round::Nearest => fallen.is_gt() || (fallen.is_eq() && kept & 1 == 1),
            Round::Up => !self.negative,
            Round::Down => self.negative,
            Round::Zero => false,
        });
        // Beyond the largest exponent this is of no use, and not used.
        let bits = (kept as u64 + u64::from(up)).wrapping_add(((e - F::MIN_EXP) as u64) << F::FRACTION);
        if e <= 1 - F::MIN_EXP && bits < F::INF {
            return sign | bits;
        }
        let infinite = match round {
            Round::Nearest => true,
            Round::Up => !self.negative,
            Round::Down => self.negative,
            Round::Zero => false,
        };
        sign | if infinite { F::INF } else { F::INF - 1 }
    }
}
