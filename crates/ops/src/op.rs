//! [`Op`]: the elementwise operations, as `kernels/ew_ops.h` defines them.

use crate::Kind;
use wave32_params::ew_ops;

/// An elementwise operation on a, b, c with parameters s, t; the discriminants are the kernels' codes. In backward
/// operations a is the gradient and b the forward's input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Op {
    /// `a + b`.
    Add = ew_ops::OP_ADD,
    /// `a - b`.
    Sub = ew_ops::OP_SUB,
    /// `a * b`.
    Mul = ew_ops::OP_MUL,
    /// `a / b`.
    Div = ew_ops::OP_DIV,
    /// `a + s b`.
    AddScaled = ew_ops::OP_ADD_SCALED,
    /// The larger; NaN wins.
    Maximum = ew_ops::OP_MAXIMUM,
    /// The smaller; NaN wins.
    Minimum = ew_ops::OP_MINIMUM,
    /// `max(a, 0)`, NaN kept.
    Relu = ew_ops::OP_RELU,
    /// `a <= s ? t : a`.
    Threshold = ew_ops::OP_THRESHOLD,
    /// `b <= s ? 0 : a`.
    ThresholdBackward = ew_ops::OP_THRESHOLD_BACKWARD,
    /// `-a`.
    Neg = ew_ops::OP_NEG,
    /// `|a|`.
    Abs = ew_ops::OP_ABS,
    /// `a`.
    Identity = ew_ops::OP_IDENTITY,
    /// `a + s b c`.
    Addcmul = ew_ops::OP_ADDCMUL,
    /// `a + s b / c`.
    Addcdiv = ew_ops::OP_ADDCDIV,
    /// `a + c (b - a)`.
    Lerp = ew_ops::OP_LERP,
    /// `a == b`.
    Eq = ew_ops::OP_EQ,
    /// `a != b`.
    Ne = ew_ops::OP_NE,
    /// `a < b`.
    Lt = ew_ops::OP_LT,
    /// `a <= b`.
    Le = ew_ops::OP_LE,
    /// `a > b`.
    Gt = ew_ops::OP_GT,
    /// `a >= b`.
    Ge = ew_ops::OP_GE,
    /// Both are not 0.
    LogicalAnd = ew_ops::OP_LOGICAL_AND,
    /// One is not 0.
    LogicalOr = ew_ops::OP_LOGICAL_OR,
    /// Just one is not 0.
    LogicalXor = ew_ops::OP_LOGICAL_XOR,
    /// `a == 0`.
    LogicalNot = ew_ops::OP_LOGICAL_NOT,
    /// `a ? b : c`.
    Where = ew_ops::OP_WHERE,
    /// `min(max(a, b), c)`.
    Clamp = ew_ops::OP_CLAMP,
    /// -1, 0 or 1.
    Sign = ew_ops::OP_SIGN,
    /// `s + i t` at element i.
    Arange = ew_ops::OP_ARANGE,
    /// `s + i t` in the first half, `c - (count - 1 - i) t` in the second.
    Linspace = ew_ops::OP_LINSPACE,
    /// Square root.
    Sqrt = ew_ops::OP_SQRT,
    /// `a & b`.
    BitwiseAnd = ew_ops::OP_BITWISE_AND,
    /// `a | b`.
    BitwiseOr = ew_ops::OP_BITWISE_OR,
    /// `a ^ b`.
    BitwiseXor = ew_ops::OP_BITWISE_XOR,
    /// `~a`; of truth values take [`Op::LogicalNot`].
    BitwiseNot = ew_ops::OP_BITWISE_NOT,
    /// `a << b`; s is the number of bits.
    ShiftLeft = ew_ops::OP_SHIFT_LEFT,
    /// `a >> b`; s is the number of bits.
    ShiftRight = ew_ops::OP_SHIFT_RIGHT,
    /// `floor(a / b)`.
    DivFloor = ew_ops::OP_DIV_FLOOR,
    /// `trunc(a / b)`.
    DivTrunc = ew_ops::OP_DIV_TRUNC,
    /// Python's `a % b`.
    Remainder = ew_ops::OP_REMAINDER,
    /// C's `fmod(a, b)`.
    Fmod = ew_ops::OP_FMOD,
    /// `a` to the power of `b`.
    Pow = ew_ops::OP_POW,
    /// Down to a whole number.
    Floor = ew_ops::OP_FLOOR,
    /// Up to a whole number.
    Ceil = ew_ops::OP_CEIL,
    /// To the nearest whole number, ties to even.
    Round = ew_ops::OP_ROUND,
    /// Towards 0 to a whole number.
    Trunc = ew_ops::OP_TRUNC,
    /// `a - trunc(a)`.
    Frac = ew_ops::OP_FRAC,
    /// Exp.
    Exp = ew_ops::OP_EXP,
    /// `exp(a) - 1`.
    Expm1 = ew_ops::OP_EXPM1,
    /// `2^a`.
    Exp2 = ew_ops::OP_EXP2,
    /// Log.
    Log = ew_ops::OP_LOG,
    /// Log2.
    Log2 = ew_ops::OP_LOG2,
    /// Log10.
    Log10 = ew_ops::OP_LOG10,
    /// `log(1 + a)`.
    Log1p = ew_ops::OP_LOG1P,
    /// `1 / sqrt(a)`.
    Rsqrt = ew_ops::OP_RSQRT,
    /// `1 / a`.
    Reciprocal = ew_ops::OP_RECIPROCAL,
    /// Sin.
    Sin = ew_ops::OP_SIN,
    /// Cos.
    Cos = ew_ops::OP_COS,
    /// Tan.
    Tan = ew_ops::OP_TAN,
    /// Error function.
    Erf = ew_ops::OP_ERF,
    /// Complementary error function.
    Erfc = ew_ops::OP_ERFC,
    /// Inverse error function.
    Erfinv = ew_ops::OP_ERFINV,
    /// Angle of the point (b, a).
    Atan2 = ew_ops::OP_ATAN2,
    /// Asin.
    Asin = ew_ops::OP_ASIN,
    /// Acos.
    Acos = ew_ops::OP_ACOS,
    /// Atan.
    Atan = ew_ops::OP_ATAN,
    /// Sinh.
    Sinh = ew_ops::OP_SINH,
    /// Cosh.
    Cosh = ew_ops::OP_COSH,
    /// Tanh.
    Tanh = ew_ops::OP_TANH,
    /// Asinh.
    Asinh = ew_ops::OP_ASINH,
    /// Acosh.
    Acosh = ew_ops::OP_ACOSH,
    /// Atanh.
    Atanh = ew_ops::OP_ATANH,
    /// Sigmoid.
    Sigmoid = ew_ops::OP_SIGMOID,
    /// `log(sigmoid(a))`.
    LogSigmoid = ew_ops::OP_LOG_SIGMOID,
    /// `log(1 + exp(s a)) / s`, a above `s a = t`.
    Softplus = ew_ops::OP_SOFTPLUS,
    /// `a sigmoid(a)`.
    Silu = ew_ops::OP_SILU,
    /// `a tanh(log(1 + exp(a)))`.
    Mish = ew_ops::OP_MISH,
    /// GELU by erf.
    Gelu = ew_ops::OP_GELU,
    /// GELU by tanh.
    GeluTanh = ew_ops::OP_GELU_TANH,
    /// `a > 0 ? a : s a`.
    LeakyRelu = ew_ops::OP_LEAKY_RELU,
    /// `a < 0 ? s expm1(c a) : t a`.
    Elu = ew_ops::OP_ELU,
    /// `a hardsigmoid(a)`.
    Hardswish = ew_ops::OP_HARDSWISH,
    /// `clamp(a + 3, 0, 6) / 6`.
    Hardsigmoid = ew_ops::OP_HARDSIGMOID,
    /// 0 within -s..s.
    Hardshrink = ew_ops::OP_HARDSHRINK,
    /// Towards 0 by s.
    Softshrink = ew_ops::OP_SOFTSHRINK,
    /// 0 where b is within -s..s.
    ShrinkBackward = ew_ops::OP_SHRINK_BACKWARD,
    /// Backward of leaky relu.
    LeakyReluBackward = ew_ops::OP_LEAKY_RELU_BACKWARD,
    /// Backward of elu.
    EluBackward = ew_ops::OP_ELU_BACKWARD,
    /// As [`Op::EluBackward`], from the output.
    EluBackwardOfResult = ew_ops::OP_ELU_BACKWARD_OF_RESULT,
    /// Backward of hardswish.
    HardswishBackward = ew_ops::OP_HARDSWISH_BACKWARD,
    /// Backward of hardsigmoid.
    HardsigmoidBackward = ew_ops::OP_HARDSIGMOID_BACKWARD,
    /// `s < b < t ? a : 0`.
    HardtanhBackward = ew_ops::OP_HARDTANH_BACKWARD,
    /// `b > 0 ? 0 : a b`.
    PreluBackwardWeight = ew_ops::OP_PRELU_BACKWARD_WEIGHT,
    /// Backward of sigmoid.
    SigmoidBackward = ew_ops::OP_SIGMOID_BACKWARD,
    /// Backward of tanh.
    TanhBackward = ew_ops::OP_TANH_BACKWARD,
    /// Backward of silu.
    SiluBackward = ew_ops::OP_SILU_BACKWARD,
    /// Backward of mish.
    MishBackward = ew_ops::OP_MISH_BACKWARD,
    /// Backward of gelu.
    GeluBackward = ew_ops::OP_GELU_BACKWARD,
    /// Backward of gelu tanh.
    GeluTanhBackward = ew_ops::OP_GELU_TANH_BACKWARD,
    /// Backward of softplus.
    SoftplusBackward = ew_ops::OP_SOFTPLUS_BACKWARD,
    /// Backward of log sigmoid.
    LogSigmoidBackward = ew_ops::OP_LOG_SIGMOID_BACKWARD,
    /// Squared error.
    Mse = ew_ops::OP_MSE,
    /// `s (b - c) a`.
    MseBackward = ew_ops::OP_MSE_BACKWARD,
    /// Smooth L1 with beta s.
    SmoothL1 = ew_ops::OP_SMOOTH_L1,
    /// Smooth L1 with beta s, times t.
    SmoothL1Backward = ew_ops::OP_SMOOTH_L1_BACKWARD,
    /// Huber with delta s.
    Huber = ew_ops::OP_HUBER,
    /// Huber with delta s, times t.
    HuberBackward = ew_ops::OP_HUBER_BACKWARD,
    /// Binary cross-entropy.
    Bce = ew_ops::OP_BCE,
    /// Binary cross-entropy, times s.
    BceBackward = ew_ops::OP_BCE_BACKWARD,
    /// `a > 0 ? a : a b`.
    Prelu = ew_ops::OP_PRELU,
    /// `b > 0 ? a : a c`.
    PreluBackward = ew_ops::OP_PRELU_BACKWARD,
    /// The larger; NaN loses.
    Fmax = ew_ops::OP_FMAX,
    /// The smaller; NaN loses.
    Fmin = ew_ops::OP_FMIN,
    /// `sqrt(a^2 + b^2)`.
    Hypot = ew_ops::OP_HYPOT,
    /// `|a|` with the sign of b.
    Copysign = ew_ops::OP_COPYSIGN,
    /// `a log(b)`, 0 where a is.
    Xlogy = ew_ops::OP_XLOGY,
    /// `a log(1 + b)`, 0 where a is.
    Xlog1py = ew_ops::OP_XLOG1PY,
    /// s in place of NaN, t of infinity, b of minus infinity.
    NanToNum = ew_ops::OP_NAN_TO_NUM,
    /// `log(a / (1 - a))` of a clamped to s..1 - s; of a itself where s is negative.
    Logit = ew_ops::OP_LOGIT,
    /// Backward of logit.
    LogitBackward = ew_ops::OP_LOGIT_BACKWARD,
    /// `a sigmoid(b)`.
    Glu = ew_ops::OP_GLU,
    /// `a b` times the derivative of sigmoid at c.
    GluBackward = ew_ops::OP_GLU_BACKWARD,
    /// `log(exp(a) + exp(b))`.
    Logaddexp = ew_ops::OP_LOGADDEXP,
    /// `log2(2^a + 2^b)`.
    Logaddexp2 = ew_ops::OP_LOGADDEXP2,
    /// 1 where the sign is negative, of zeros and NaN too.
    Signbit = ew_ops::OP_SIGNBIT,
    /// 0, b or 1 by a's sign.
    Heaviside = ew_ops::OP_HEAVISIDE,
    /// `sin(pi a) / (pi a)`, 1 at 0.
    Sinc = ew_ops::OP_SINC,
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

    /// True where the kernel for activations, their gradients and what else is frequent has it.
    pub(crate) fn is_frequent(self) -> bool {
        matches!(
            self,
            Self::Clamp
                | Self::HardtanhBackward
                | Self::Div
                | Self::Exp
                | Self::Tanh
                | Self::Hardsigmoid
                | Self::HardsigmoidBackward
                | Self::Gelu
                | Self::GeluBackward
                | Self::GeluTanh
                | Self::GeluTanhBackward
                | Self::Silu
                | Self::SiluBackward
                | Self::Sigmoid
                | Self::SigmoidBackward
                | Self::LeakyRelu
                | Self::LeakyReluBackward
                | Self::Hardswish
                | Self::HardswishBackward
                | Self::TanhBackward
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
    fn every_operation_of_the_kernels_is_there_once() {
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
