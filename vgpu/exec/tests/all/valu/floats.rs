//! The model's floats: LLVM's APFloat, with MODE's denormals and the NaN rules around it.

use rustc_apfloat::ieee::{Double, Half, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

/// A format by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fmt {
    H,
    S,
    D,
}

/// MODE's bits.
#[derive(Debug, Clone, Copy)]
pub struct M(pub u32);

impl M {
    pub fn round(self, f: Fmt) -> Round {
        let shift = if f == Fmt::S { 0 } else { 2 };
        [Round::NearestTiesToEven, Round::TowardPositive, Round::TowardNegative, Round::TowardZero]
            [(self.0 >> shift & 3) as usize]
    }

    fn denorm(self, f: Fmt) -> u32 {
        self.0 >> if f == Fmt::S { 4 } else { 6 } & 3
    }

    /// Denormals kept on neither side.
    pub fn flushing(self, f: Fmt) -> M {
        M(self.0 & !(3 << if f == Fmt::S { 4 } else { 6 }))
    }

    pub fn keeping(self, f: Fmt) -> M {
        M(self.0 | 3 << if f == Fmt::S { 4 } else { 6 })
    }

    pub fn nearest(self) -> M {
        M(self.0 & !15)
    }

    pub fn ieee(self) -> bool {
        self.0 & 0x200 != 0
    }

    pub fn dx10_clamp(self) -> bool {
        self.0 & 0x100 != 0
    }

    pub fn keeps_results(self, f: Fmt) -> bool {
        self.denorm(f) & 2 != 0
    }
}

/// Runs `$body` with `$t` the format's type.
macro_rules! with {
    ($f:expr, $t:ident => $body:expr) => {
        match $f {
            Fmt::H => {
                type $t = Half;
                $body
            }
            Fmt::S => {
                type $t = Single;
                $body
            }
            Fmt::D => {
                type $t = Double;
                $body
            }
        }
    };
}

impl Fmt {
    pub fn width(self) -> u32 {
        match self {
            Fmt::H => 16,
            Fmt::S => 32,
            Fmt::D => 64,
        }
    }

    pub fn sign(self) -> u64 {
        1 << (self.width() - 1)
    }

    fn quiet_bit(self) -> u64 {
        1 << match self {
            Fmt::H => 9,
            Fmt::S => 22,
            Fmt::D => 51,
        }
    }

    pub fn is_nan(self, x: u64) -> bool {
        with!(self, T => T::from_bits(x.into()).is_nan())
    }

    pub fn is_signalling(self, x: u64) -> bool {
        with!(self, T => T::from_bits(x.into()).is_signaling())
    }

    pub fn is_denormal(self, x: u64) -> bool {
        with!(self, T => T::from_bits(x.into()).is_denormal())
    }

    pub fn is_zero(self, x: u64) -> bool {
        with!(self, T => T::from_bits(x.into()).is_zero())
    }

    pub fn is_inf(self, x: u64) -> bool {
        with!(self, T => T::from_bits(x.into()).is_infinite())
    }

    pub fn negative(self, x: u64) -> bool {
        x & self.sign() != 0
    }

    pub fn inf(self) -> u64 {
        with!(self, T => T::INFINITY.to_bits() as u64)
    }

    pub fn nan(self) -> u64 {
        self.sign() | self.inf() | self.quiet_bit()
    }

    pub fn quiet(self, x: u64) -> u64 {
        x | self.quiet_bit()
    }

    /// An input, flushed if MODE says so.
    pub fn take(self, m: M, x: u64) -> u64 {
        if self.is_denormal(x) && m.denorm(self) & 1 == 0 { x & self.sign() } else { x }
    }

    /// A result, flushed if MODE says so.
    pub fn give(self, m: M, x: u64) -> u64 {
        if self.is_denormal(x) && m.denorm(self) & 2 == 0 { x & self.sign() } else { x }
    }

    fn first_nan(self, xs: &[u64]) -> Option<u64> {
        xs.iter().copied().find(|&x| self.is_nan(x)).map(|x| self.quiet(x))
    }

    /// The bits of a result that no NaN went into.
    fn made<T: Float>(self, m: M, x: T) -> u64 {
        if x.is_nan() { self.nan() } else { self.give(m, x.to_bits() as u64) }
    }

    pub fn add(self, m: M, a: u64, b: u64) -> u64 {
        let (a, b) = (self.take(m, a), self.take(m, b));
        self.first_nan(&[a, b]).unwrap_or_else(|| {
            with!(self, T => {
                let sum = T::from_bits(a.into()).add_r(T::from_bits(b.into()), m.round(self)).value;
                self.made(m, sum)
            })
        })
    }

    pub fn sub(self, m: M, a: u64, b: u64) -> u64 {
        let (a, b) = (self.take(m, a), self.take(m, b));
        self.first_nan(&[a, b]).unwrap_or_else(|| {
            with!(self, T => {
                let sum = T::from_bits(a.into()).sub_r(T::from_bits(b.into()), m.round(self)).value;
                self.made(m, sum)
            })
        })
    }

    pub fn mul(self, m: M, a: u64, b: u64) -> u64 {
        let (a, b) = (self.take(m, a), self.take(m, b));
        self.first_nan(&[a, b]).unwrap_or_else(|| {
            with!(self, T => {
                let product = T::from_bits(a.into()).mul_r(T::from_bits(b.into()), m.round(self)).value;
                self.made(m, product)
            })
        })
    }

    pub fn div(self, m: M, a: u64, b: u64) -> u64 {
        let (a, b) = (self.take(m, a), self.take(m, b));
        self.first_nan(&[a, b]).unwrap_or_else(|| {
            with!(self, T => {
                let quotient = T::from_bits(a.into()).div_r(T::from_bits(b.into()), m.round(self)).value;
                self.made(m, quotient)
            })
        })
    }

    pub fn fma(self, m: M, a: u64, b: u64, c: u64) -> u64 {
        let [a, b, c] = [a, b, c].map(|x| self.take(m, x));
        self.first_nan(&[a, b, c]).unwrap_or_else(|| {
            with!(self, T => {
                let [a, b, c] = [a, b, c].map(|x| T::from_bits(x.into()));
                let sum = a.mul_add_r(b, c, m.round(self)).value;
                self.made(m, sum)
            })
        })
    }

    pub fn scale(self, m: M, x: u64, n: i32) -> u64 {
        let x = self.take(m, x);
        self.first_nan(&[x]).unwrap_or_else(|| {
            with!(self, T => {
                let y = T::from_bits(x.into()).scalbn_r(n.clamp(-10_000, 10_000) as _, m.round(self));
                self.made(m, y)
            })
        })
    }

    pub fn to_integral(self, m: M, x: u64, round: Round) -> u64 {
        let x = self.take(m, x);
        self.first_nan(&[x]).unwrap_or_else(
            || with!(self, T => T::from_bits(x.into()).round_to_integral(round).value.to_bits() as u64),
        )
    }

    /// As an integer of `width`, saturated; NaN is 0.
    pub fn to_int(self, x: u64, width: usize, signed: bool, round: Round) -> i128 {
        if self.is_nan(x) {
            return 0;
        }
        let mut exact = false;
        with!(self, T => {
            let x = T::from_bits(x.into());
            if signed { x.to_i128_r(width, round, &mut exact).value } else { x.to_u128_r(width, round, &mut exact).value as i128 }
        })
    }

    pub fn of_int(self, m: M, x: i128) -> u64 {
        with!(self, T => T::from_i128_r(x, m.round(self)).value.to_bits() as u64)
    }

    /// In another format.
    pub fn to(self, m: M, x: u64, to: Fmt) -> u64 {
        let x = self.take(m, x);
        if self.is_nan(x) {
            // The sign and the first bits of the fraction stay.
            let fraction = x & (self.quiet_bit() * 2 - 1);
            let (from, onto) = (self.quiet_bit().trailing_zeros(), to.quiet_bit().trailing_zeros());
            let moved = if from > onto { fraction >> (from - onto) } else { fraction << (onto - from) };
            let sign = if self.negative(x) { to.sign() } else { 0 };
            return to.quiet(sign | to.inf() | moved);
        }
        let mut loses = false;
        macro_rules! convert {
            ($t:ident) => {
                with!(self, F => {
                    let y: $t = F::from_bits(x.into()).convert_r(m.round(to), &mut loses).value;
                    y.to_bits() as u64
                })
            };
        }
        let y = match to {
            Fmt::H => convert!(Half),
            Fmt::S => convert!(Single),
            Fmt::D => convert!(Double),
        };
        to.give(m, y)
    }

    pub fn f64(self, x: u64) -> f64 {
        f64::from_bits(self.to(M(0xf0), x, Fmt::D))
    }

    /// How two numbers compare; none with a NaN.
    pub fn cmp(self, m: M, a: u64, b: u64) -> Option<std::cmp::Ordering> {
        let (a, b) = (self.take(m, a), self.take(m, b));
        with!(self, T => T::from_bits(a.into()).partial_cmp(&T::from_bits(b.into())))
    }

    /// The smaller or larger; zeros order by sign.
    pub fn extreme(self, m: M, a: u64, b: u64, larger: bool) -> u64 {
        let (a, b) = (self.take(m, a), self.take(m, b));
        if m.ieee() {
            for x in [a, b] {
                if self.is_signalling(x) {
                    return self.quiet(x);
                }
            }
        }
        match (self.is_nan(a), self.is_nan(b)) {
            (true, _) => b,
            (_, true) => a,
            _ => with!(self, T => {
                let (x, y) = (T::from_bits(a.into()), T::from_bits(b.into()));
                (if larger { x.maximum(y) } else { x.minimum(y) }).to_bits() as u64
            }),
        }
    }
}
