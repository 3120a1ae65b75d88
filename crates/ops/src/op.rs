//! [`Op`]: the elementwise operations, as `kernels/ew_ops.h` defines them.

use crate::Kind;

/// An elementwise operation on a, b, c with parameters s, t; the discriminants are the kernels' codes. In backward
/// operations a is the gradient and b the forward's input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Op {
    /// `a + b`.
    Add = 0,
    /// `a - b`.
    Sub = 1,
    /// `a * b`.
    Mul = 2,
    /// `a / b`.
    Div = 3,
    /// `a + s b`.
    AddScaled = 4,
    /// The larger; NaN wins.
    Maximum = 5,
    /// The smaller; NaN wins.
    Minimum = 6,
    /// `max(a, 0)`, NaN kept.
    Relu = 7,
    /// `a <= s ? t : a`.
    Threshold = 8,
    /// `b <= s ? 0 : a`.
    ThresholdBackward = 9,
    /// `-a`.
    Neg = 10,
    /// `|a|`.
    Abs = 11,
    /// `a`.
    Identity = 12,
    /// `a + s b c`.
    Addcmul = 13,
    /// `a + s b / c`.
    Addcdiv = 14,
    /// `a + c (b - a)`.
    Lerp = 15,
    /// `a == b`.
    Eq = 16,
    /// `a != b`.
    Ne = 17,
    /// `a < b`.
    Lt = 18,
    /// `a <= b`.
    Le = 19,
    /// `a > b`.
    Gt = 20,
    /// `a >= b`.
    Ge = 21,
    /// Both are not 0.
    LogicalAnd = 22,
    /// One is not 0.
    LogicalOr = 23,
    /// Just one is not 0.
    LogicalXor = 24,
    /// `a == 0`.
    LogicalNot = 25,
    /// `a ? b : c`.
    Where = 26,
    /// `min(max(a, b), c)`.
    Clamp = 27,
    /// -1, 0 or 1.
    Sign = 28,
    /// `s + i t` at element i.
    Arange = 29,
    /// `s + i t` in the first half, `c - (count - 1 - i) t` in the second.
    Linspace = 30,
    /// Square root.
    Sqrt = 31,
    /// `a & b`.
    BitwiseAnd = 32,
    /// `a | b`.
    BitwiseOr = 33,
    /// `a ^ b`.
    BitwiseXor = 34,
    /// `~a`; of truth values take [`Op::LogicalNot`].
    BitwiseNot = 35,
    /// `a << b`; s is the number of bits.
    ShiftLeft = 36,
    /// `a >> b`; s is the number of bits.
    ShiftRight = 37,
    /// `floor(a / b)`.
    DivFloor = 38,
    /// `trunc(a / b)`.
    DivTrunc = 39,
    /// Python's `a % b`.
    Remainder = 40,
    /// C's `fmod(a, b)`.
    Fmod = 41,
    /// `a` to the power of `b`.
    Pow = 42,
    /// Down to a whole number.
    Floor = 43,
    /// Up to a whole number.
    Ceil = 44,
    /// To the nearest whole number, ties to even.
    Round = 45,
    /// Towards 0 to a whole number.
    Trunc = 46,
    /// `a - trunc(a)`.
    Frac = 47,
    /// Exp.
    Exp = 48,
    /// `exp(a) - 1`.
    Expm1 = 49,
    /// `2^a`.
    Exp2 = 50,
    /// Log.
    Log = 51,
    /// Log2.
    Log2 = 52,
    /// Log10.
    Log10 = 53,
    /// `log(1 + a)`.
    Log1p = 54,
    /// `1 / sqrt(a)`.
    Rsqrt = 55,
    /// `1 / a`.
    Reciprocal = 56,
    /// Sin.
    Sin = 57,
    /// Cos.
    Cos = 58,
    /// Tan.
    Tan = 59,
    /// Error function.
    Erf = 60,
    /// Complementary error function.
    Erfc = 61,
    /// Inverse error function.
    Erfinv = 62,
    /// Angle of the point (b, a).
    Atan2 = 63,
    /// Asin.
    Asin = 64,
    /// Acos.
    Acos = 65,
    /// Atan.
    Atan = 66,
    /// Sinh.
    Sinh = 67,
    /// Cosh.
    Cosh = 68,
    /// Tanh.
    Tanh = 69,
    /// Asinh.
    Asinh = 70,
    /// Acosh.
    Acosh = 71,
    /// Atanh.
    Atanh = 72,
    /// Sigmoid.
    Sigmoid = 73,
    /// `log(sigmoid(a))`.
    LogSigmoid = 74,
    /// `log(1 + exp(s a)) / s`, a above `s a = t`.
    Softplus = 75,
    /// `a sigmoid(a)`.
    Silu = 76,
    /// `a tanh(log(1 + exp(a)))`.
    Mish = 77,
    /// GELU by erf.
    Gelu = 78,
    /// GELU by tanh.
    GeluTanh = 79,
    /// `a > 0 ? a : s a`.
    LeakyRelu = 80,
    /// `a < 0 ? s expm1(c a) : t a`.
    Elu = 81,
    /// `a hardsigmoid(a)`.
    Hardswish = 82,
    /// `clamp(a + 3, 0, 6) / 6`.
    Hardsigmoid = 83,
    /// 0 within -s..s.
    Hardshrink = 84,
    /// Towards 0 by s.
    Softshrink = 85,
    /// 0 where b is within -s..s.
    ShrinkBackward = 86,
    /// Backward of leaky relu.
    LeakyReluBackward = 87,
    /// Backward of elu.
    EluBackward = 88,
    /// As [`Op::EluBackward`], from the output.
    EluBackwardOfResult = 89,
    /// Backward of hardswish.
    HardswishBackward = 90,
    /// Backward of hardsigmoid.
    HardsigmoidBackward = 91,
    /// `s < b < t ? a : 0`.
    HardtanhBackward = 92,
    /// `b > 0 ? 0 : a b`.
    PreluBackwardWeight = 93,
    /// Backward of sigmoid.
    SigmoidBackward = 94,
    /// Backward of tanh.
    TanhBackward = 95,
    /// Backward of silu.
    SiluBackward = 96,
    /// Backward of mish.
    MishBackward = 97,
    /// Backward of gelu.
    GeluBackward = 98,
    /// Backward of gelu tanh.
    GeluTanhBackward = 99,
    /// Backward of softplus.
    SoftplusBackward = 100,
    /// Backward of log sigmoid.
    LogSigmoidBackward = 101,
    /// Squared error.
    Mse = 102,
    /// `s (b - c) a`.
    MseBackward = 103,
    /// Smooth L1 with beta s.
    SmoothL1 = 104,
    /// Smooth L1 with beta s, times t.
    SmoothL1Backward = 105,
    /// Huber with delta s.
    Huber = 106,
    /// Huber with delta s, times t.
    HuberBackward = 107,
    /// Binary cross-entropy.
    Bce = 108,
    /// Binary cross-entropy, times s.
    BceBackward = 109,
    /// `a > 0 ? a : a b`.
    Prelu = 110,
    /// `b > 0 ? a : a c`.
    PreluBackward = 111,
    /// The larger; NaN loses.
    Fmax = 112,
    /// The smaller; NaN loses.
    Fmin = 113,
    /// `sqrt(a^2 + b^2)`.
    Hypot = 114,
    /// `|a|` with the sign of b.
    Copysign = 115,
    /// `a log(b)`, 0 where a is.
    Xlogy = 116,
    /// `a log(1 + b)`, 0 where a is.
    Xlog1py = 117,
    /// s in place of NaN, t of infinity, b of minus infinity.
    NanToNum = 118,
    /// `log(a / (1 - a))` of a clamped to s..1 - s; of a itself where s is negative.
    Logit = 119,
    /// Backward of logit.
    LogitBackward = 120,
    /// `a sigmoid(b)`.
    Glu = 121,
    /// `a b` times the derivative of sigmoid at c.
    GluBackward = 122,
    /// `log(exp(a) + exp(b))`.
    Logaddexp = 123,
    /// `log2(2^a + 2^b)`.
    Logaddexp2 = 124,
    /// 1 where the sign is negative, of zeros and NaN too.
    Signbit = 125,
    /// 0, b or 1 by a's sign.
    Heaviside = 126,
    /// `sin(pi a) / (pi a)`, 1 at 0.
    Sinc = 127,
}

impl Op {
    /// Every operation, in the order of the codes.
    pub const ALL: [Self; 128] = [
        Self::Add,
        Self::Sub,
        Self::Mul,
        Self::Div,
        Self::AddScaled,
        Self::Maximum,
        Self::Minimum,
        Self::Relu,
        Self::Threshold,
        Self::ThresholdBackward,
        Self::Neg,
        Self::Abs,
        Self::Identity,
        Self::Addcmul,
        Self::Addcdiv,
        Self::Lerp,
        Self::Eq,
        Self::Ne,
        Self::Lt,
        Self::Le,
        Self::Gt,
        Self::Ge,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
        Self::LogicalNot,
        Self::Where,
        Self::Clamp,
        Self::Sign,
        Self::Arange,
        Self::Linspace,
        Self::Sqrt,
        Self::BitwiseAnd,
        Self::BitwiseOr,
        Self::BitwiseXor,
        Self::BitwiseNot,
        Self::ShiftLeft,
        Self::ShiftRight,
        Self::DivFloor,
        Self::DivTrunc,
        Self::Remainder,
        Self::Fmod,
        Self::Pow,
        Self::Floor,
        Self::Ceil,
        Self::Round,
        Self::Trunc,
        Self::Frac,
        Self::Exp,
        Self::Expm1,
        Self::Exp2,
        Self::Log,
        Self::Log2,
        Self::Log10,
        Self::Log1p,
        Self::Rsqrt,
        Self::Reciprocal,
        Self::Sin,
        Self::Cos,
        Self::Tan,
        Self::Erf,
        Self::Erfc,
        Self::Erfinv,
        Self::Atan2,
        Self::Asin,
        Self::Acos,
        Self::Atan,
        Self::Sinh,
        Self::Cosh,
        Self::Tanh,
        Self::Asinh,
        Self::Acosh,
        Self::Atanh,
        Self::Sigmoid,
        Self::LogSigmoid,
        Self::Softplus,
        Self::Silu,
        Self::Mish,
        Self::Gelu,
        Self::GeluTanh,
        Self::LeakyRelu,
        Self::Elu,
        Self::Hardswish,
        Self::Hardsigmoid,
        Self::Hardshrink,
        Self::Softshrink,
        Self::ShrinkBackward,
        Self::LeakyReluBackward,
        Self::EluBackward,
        Self::EluBackwardOfResult,
        Self::HardswishBackward,
        Self::HardsigmoidBackward,
        Self::HardtanhBackward,
        Self::PreluBackwardWeight,
        Self::SigmoidBackward,
        Self::TanhBackward,
        Self::SiluBackward,
        Self::MishBackward,
        Self::GeluBackward,
        Self::GeluTanhBackward,
        Self::SoftplusBackward,
        Self::LogSigmoidBackward,
        Self::Mse,
        Self::MseBackward,
        Self::SmoothL1,
        Self::SmoothL1Backward,
        Self::Huber,
        Self::HuberBackward,
        Self::Bce,
        Self::BceBackward,
        Self::Prelu,
        Self::PreluBackward,
        Self::Fmax,
        Self::Fmin,
        Self::Hypot,
        Self::Copysign,
        Self::Xlogy,
        Self::Xlog1py,
        Self::NanToNum,
        Self::Logit,
        Self::LogitBackward,
        Self::Glu,
        Self::GluBackward,
        Self::Logaddexp,
        Self::Logaddexp2,
        Self::Signbit,
        Self::Heaviside,
        Self::Sinc,
    ];

    /// True where a kernel of that kind has it.
    pub fn exists_in(self, kind: Kind) -> bool {
        let code = self as u32;
        match kind {
            Kind::Float | Kind::Double => !matches!(code, 32..=37),
            Kind::Int => {
                code < Self::Floor as u32
                    && !matches!(self, Self::Addcdiv | Self::Lerp | Self::Sqrt | Self::Div)
            }
        }
    }

    /// Which kernels have it: those of one family.
    pub(crate) fn family(self) -> usize {
        self as usize >> 4
    }

    /// True where the kernel for the most frequent operations has it.
    pub(crate) fn is_hot(self) -> bool {
        matches!(
            self,
            Self::Add | Self::Sub | Self::Mul | Self::AddScaled | Self::Relu | Self::ThresholdBackward
        )
    }

    /// True where whole numbers are taken as floats.
    pub(crate) fn reads_float(self) -> bool {
        self as u32 >= Self::Exp as u32 || matches!(self, Self::Div | Self::Sqrt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_kernels() {
        let header = include_str!("../../../kernels/ew_ops.h");
        let defined = header.lines().filter_map(|line| line.strip_prefix("#define OP_"));
        let mut found = 0;
        for (line, op) in defined.zip(Op::ALL) {
            let (name, code) = line.split_once(' ').unwrap();
            assert_eq!(name.replace('_', "").to_lowercase(), format!("{op:?}").to_lowercase());
            assert_eq!(code, format!("{}u", op as u32));
            found += 1;
        }
        assert_eq!(found, Op::ALL.len());
    }
}
