//! What atomics do to a value (RDNA ISA chapters 12.15 and 12.16, opcode tables), on memory and LDS alike.

use wave32_isa::Opcode;

/// A read-modify-write, of 32 or 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs)] // the manual's names
pub(crate) enum Rmw {
    Swap,
    CmpSwap,
    Add,
    Sub,
    /// The operand less the value.
    Rsub,
    Smin,
    Umin,
    Smax,
    Umax,
    And,
    Or,
    Xor,
    /// Up to the operand, then 0.
    Inc,
    /// Down to 0, then the operand.
    Dec,
    FCmpSwap,
    Fmin,
    Fmax,
    Fadd,
    /// The bits that the operand has are cleared, the second operand's set.
    MskOr,
    /// Less the operand where that is not negative, else more by the second operand.
    Wrap,
}

impl Rmw {
    const ALL: [Self; 20] = [
        Self::Swap,
        Self::CmpSwap,
        Self::Add,
        Self::Sub,
        Self::Rsub,
        Self::Smin,
        Self::Umin,
        Self::Smax,
        Self::Umax,
        Self::And,
        Self::Or,
        Self::Xor,
        Self::Inc,
        Self::Dec,
        Self::FCmpSwap,
        Self::Fmin,
        Self::Fmax,
        Self::Fadd,
        Self::MskOr,
        Self::Wrap,
    ];

    /// From [`crate::Args::imm`], where `bind` left it.
    pub fn from_imm(imm: u16) -> Self {
        Self::ALL[usize::from(imm)]
    }

    /// What the mnemonic says: which, and whether of 64 bits.
    pub fn of(op: Opcode) -> Option<(Self, bool)> {
        let name = op.name();
        let (verb, wide) = if let Some(name) = name.strip_prefix("ds_") {
            let (verb, ty) = name.rsplit_once('_')?;
            let verb = verb.trim_end_matches("_rtn").trim_end_matches("_src2");
            (format!("{verb}_{}", ty.chars().next()?), ty.ends_with("64"))
        } else {
            let (_, verb) = name.split_once("_atomic_")?;
            match verb.strip_suffix("_x2") {
                Some(verb) => (verb.to_owned(), true),
                None => (verb.to_owned(), false),
            }
        };
        let rmw = match verb.as_str() {
            "swap" | "wrxchg_b" | "write_b" => Self::Swap,
            "cmpswap" | "cmpst_b" => Self::CmpSwap,
            "add" | "add_u" => Self::Add,
            "sub" | "sub_u" => Self::Sub,
            "rsub_u" => Self::Rsub,
            "smin" | "min_i" => Self::Smin,
            "umin" | "min_u" => Self::Umin,
            "smax" | "max_i" => Self::Smax,
            "umax" | "max_u" => Self::Umax,
            "and" | "and_b" => Self::And,
            "or" | "or_b" => Self::Or,
            "xor" | "xor_b" => Self::Xor,
            "inc" | "inc_u" => Self::Inc,
            "dec" | "dec_u" => Self::Dec,
            "fcmpswap" | "cmpst_f" => Self::FCmpSwap,
            "fmin" | "min_f" => Self::Fmin,
            "fmax" | "max_f" => Self::Fmax,
            "add_f" => Self::Fadd,
            "mskor_b" => Self::MskOr,
            "wrap_b" => Self::Wrap,
            _ => return None,
        };
        Some((rmw, wide))
    }

    /// Takes two operands.
    pub fn is_ternary(self) -> bool {
        matches!(self, Self::CmpSwap | Self::FCmpSwap | Self::MskOr | Self::Wrap)
    }

    /// The new value of `old`. `a` and `b` are the operands in the order of DS's: `b` replaces what equals `a`.
    /// Of 32 bits all are zero-extended, and the result's high half is nothing.
    pub fn apply(self, wide: bool, flush: bool, old: u64, a: u64, b: u64) -> u64 {
        let signed = |v: u64| if wide { v as i64 } else { i64::from(v as i32) };
        let ones = if wide { u64::MAX } else { u64::from(u32::MAX) };
        match self {
            Self::Swap => a,
            Self::CmpSwap => [old, b][usize::from(old == a)],
            Self::Add => old.wrapping_add(a) & ones,
            Self::Sub => old.wrapping_sub(a) & ones,
            Self::Rsub => a.wrapping_sub(old) & ones,
            Self::Smin => [a, old][usize::from(signed(old) < signed(a))],
            Self::Umin => old.min(a),
            Self::Smax => [a, old][usize::from(signed(old) > signed(a))],
            Self::Umax => old.max(a),
            Self::And => old & a,
            Self::Or => old | a,
            Self::Xor => old ^ a,
            Self::Inc => [old.wrapping_add(1), 0][usize::from(old >= a)],
            Self::Dec => [old.wrapping_sub(1), a][usize::from(old == 0 || old > a)],
            Self::FCmpSwap => [old, b][usize::from(float(wide, old) == float(wide, a))],
            Self::Fmin => [old, a][usize::from(float(wide, a) < float(wide, old))],
            Self::Fmax => [old, a][usize::from(float(wide, a) > float(wide, old))],
            Self::Fadd => u64::from(add(old as u32, a as u32, flush)),
            Self::MskOr => old & !a | b,
            Self::Wrap => [old.wrapping_add(b), old.wrapping_sub(a)][usize::from(old >= a)] & ones,
        }
    }
}

/// Bits as a float; singles widened, which keeps order and NaNs.
fn float(wide: bool, bits: u64) -> f64 {
    if wide { f64::from_bits(bits) } else { f64::from(f32::from_bits(bits as u32)) }
}

/// Rounded to nearest even; denormals become zero where MODE flushes them.
fn add(old: u32, a: u32, flush: bool) -> u32 {
    let calm = |bits: u32| {
        let tiny = bits & 0x7f80_0000 == 0;
        f32::from_bits(if flush && tiny { bits & 0x8000_0000 } else { bits })
    };
    let sum = calm(old) + calm(a);
    let sum = if sum.is_nan() {
        let nan = [old, a].into_iter().find(|&v| f32::from_bits(v).is_nan()).unwrap_or(0x7fc0_0000);
        nan | 0x40_0000
    } else {
        sum.to_bits()
    };
    calm(sum).to_bits()
}
