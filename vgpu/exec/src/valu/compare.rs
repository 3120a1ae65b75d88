//! Comparisons (RDNA ISA 12.9): a bit for each lane, zero for those that are off. `v_cmpx` writes EXEC alone.

// Of NaN "not less" is more than "greater or equal".
#![allow(clippy::nonminimal_bool, clippy::neg_cmp_op_on_partial_ord, clippy::double_comparisons)]

use super::format::{F16, F32, F64, Format, input, is_nan, is_signalling, is_small};
use super::mode::Mode;
use crate::lanes::{Handlers, Kind, Lane, three};
use wave32_isa::Opcode;

/// Sources of a float comparison as doubles, which order alike.
#[inline(always)]
fn floats<F: Format>(m: Mode, a: u64, b: u64) -> (f64, f64) {
    (F::to_f64(input::<F>(m, a)), F::to_f64(input::<F>(m, b)))
}

/// Whether `x` is of one of the classes that `classes` has a bit for.
fn class<F: Format>(x: u64, classes: u64) -> bool {
    let negative = x & F::SIGN != 0;
    let magnitude = x & !F::SIGN;
    let class = if is_nan::<F>(x) {
        if is_signalling::<F>(x) { 0 } else { 1 }
    } else {
        let distance = if magnitude == F::INF {
            0
        } else if magnitude == 0 {
            3
        } else if is_small::<F>(x) {
            2
        } else {
            1
        };
        if negative { 2 + distance } else { 9 - distance }
    };
    classes >> class & 1 != 0
}

/// `v_cmp` and `v_cmpx` of a predicate.
macro_rules! compares {
    ($($cmp:ident $cmpx:ident: $a_kind:ident $b_kind:ident |$m:tt, $a:tt, $b:tt| $holds:expr;)*) => {
        $(
            #[allow(non_camel_case_types)]
            struct $cmp;

            impl Lane for $cmp {
                const DST: Kind = Kind::Mask;
                const SRC: [Kind; 3] = three(&[Kind::$a_kind, Kind::$b_kind]);

                #[inline(always)]
                fn lane($m: Mode, [$a, $b, _]: [u64; 3]) -> u64 {
                    u64::from($holds)
                }
            }
        )*

        /// The handlers of the comparisons.
        pub(super) fn bind(op: Opcode) -> Option<Handlers> {
            Some(match op {
                $(Opcode::$cmp | Opcode::$cmpx => Handlers::of::<$cmp>(),)*
                _ => return None,
            })
        }
    };
}

compares! {
    v_cmp_f_f16 v_cmpx_f_f16: F16 F16 |_, _, _| false;
    v_cmp_lt_f16 v_cmpx_lt_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); a < b };
    v_cmp_eq_f16 v_cmpx_eq_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); a == b };
    v_cmp_le_f16 v_cmpx_le_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); a <= b };
    v_cmp_gt_f16 v_cmpx_gt_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); a > b };
    v_cmp_lg_f16 v_cmpx_lg_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); a < b || a > b };
    v_cmp_ge_f16 v_cmpx_ge_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); a >= b };
    v_cmp_o_f16 v_cmpx_o_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); !a.is_nan() && !b.is_nan() };
    v_cmp_u_f16 v_cmpx_u_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); a.is_nan() || b.is_nan() };
    v_cmp_nge_f16 v_cmpx_nge_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); !(a >= b) };
    v_cmp_nlg_f16 v_cmpx_nlg_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); !(a < b || a > b) };
    v_cmp_ngt_f16 v_cmpx_ngt_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); !(a > b) };
    v_cmp_nle_f16 v_cmpx_nle_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); !(a <= b) };
    v_cmp_neq_f16 v_cmpx_neq_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); a != b };
    v_cmp_nlt_f16 v_cmpx_nlt_f16: F16 F16 |m, a, b| { let (a, b) = floats::<F16>(m, a, b); !(a < b) };
    v_cmp_tru_f16 v_cmpx_tru_f16: F16 F16 |_, _, _| true;
    v_cmp_class_f16 v_cmpx_class_f16: F16 U16 |_, a, b| class::<F16>(a, b);
    v_cmp_f_f32 v_cmpx_f_f32: F32 F32 |_, _, _| false;
    v_cmp_lt_f32 v_cmpx_lt_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); a < b };
    v_cmp_eq_f32 v_cmpx_eq_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); a == b };
    v_cmp_le_f32 v_cmpx_le_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); a <= b };
    v_cmp_gt_f32 v_cmpx_gt_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); a > b };
    v_cmp_lg_f32 v_cmpx_lg_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); a < b || a > b };
    v_cmp_ge_f32 v_cmpx_ge_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); a >= b };
    v_cmp_o_f32 v_cmpx_o_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); !a.is_nan() && !b.is_nan() };
    v_cmp_u_f32 v_cmpx_u_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); a.is_nan() || b.is_nan() };
    v_cmp_nge_f32 v_cmpx_nge_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); !(a >= b) };
    v_cmp_nlg_f32 v_cmpx_nlg_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); !(a < b || a > b) };
    v_cmp_ngt_f32 v_cmpx_ngt_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); !(a > b) };
    v_cmp_nle_f32 v_cmpx_nle_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); !(a <= b) };
    v_cmp_neq_f32 v_cmpx_neq_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); a != b };
    v_cmp_nlt_f32 v_cmpx_nlt_f32: F32 F32 |m, a, b| { let (a, b) = floats::<F32>(m, a, b); !(a < b) };
    v_cmp_tru_f32 v_cmpx_tru_f32: F32 F32 |_, _, _| true;
    v_cmp_class_f32 v_cmpx_class_f32: F32 U32 |_, a, b| class::<F32>(a, b);
    v_cmp_f_f64 v_cmpx_f_f64: F64 F64 |_, _, _| false;
    v_cmp_lt_f64 v_cmpx_lt_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); a < b };
    v_cmp_eq_f64 v_cmpx_eq_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); a == b };
    v_cmp_le_f64 v_cmpx_le_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); a <= b };
    v_cmp_gt_f64 v_cmpx_gt_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); a > b };
    v_cmp_lg_f64 v_cmpx_lg_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); a < b || a > b };
    v_cmp_ge_f64 v_cmpx_ge_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); a >= b };
    v_cmp_o_f64 v_cmpx_o_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); !a.is_nan() && !b.is_nan() };
    v_cmp_u_f64 v_cmpx_u_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); a.is_nan() || b.is_nan() };
    v_cmp_nge_f64 v_cmpx_nge_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); !(a >= b) };
    v_cmp_nlg_f64 v_cmpx_nlg_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); !(a < b || a > b) };
    v_cmp_ngt_f64 v_cmpx_ngt_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); !(a > b) };
    v_cmp_nle_f64 v_cmpx_nle_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); !(a <= b) };
    v_cmp_neq_f64 v_cmpx_neq_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); a != b };
    v_cmp_nlt_f64 v_cmpx_nlt_f64: F64 F64 |m, a, b| { let (a, b) = floats::<F64>(m, a, b); !(a < b) };
    v_cmp_tru_f64 v_cmpx_tru_f64: F64 F64 |_, _, _| true;
    v_cmp_class_f64 v_cmpx_class_f64: F64 U32 |_, a, b| class::<F64>(a, b);
    v_cmp_lt_i16 v_cmpx_lt_i16: I16 I16 |_, a, b| (a as i64) < (b as i64);
    v_cmp_eq_i16 v_cmpx_eq_i16: I16 I16 |_, a, b| (a as i64) == (b as i64);
    v_cmp_le_i16 v_cmpx_le_i16: I16 I16 |_, a, b| (a as i64) <= (b as i64);
    v_cmp_gt_i16 v_cmpx_gt_i16: I16 I16 |_, a, b| (a as i64) > (b as i64);
    v_cmp_ne_i16 v_cmpx_ne_i16: I16 I16 |_, a, b| (a as i64) != (b as i64);
    v_cmp_ge_i16 v_cmpx_ge_i16: I16 I16 |_, a, b| (a as i64) >= (b as i64);
    v_cmp_lt_u16 v_cmpx_lt_u16: U16 U16 |_, a, b| a < b;
    v_cmp_eq_u16 v_cmpx_eq_u16: U16 U16 |_, a, b| a == b;
    v_cmp_le_u16 v_cmpx_le_u16: U16 U16 |_, a, b| a <= b;
    v_cmp_gt_u16 v_cmpx_gt_u16: U16 U16 |_, a, b| a > b;
    v_cmp_ne_u16 v_cmpx_ne_u16: U16 U16 |_, a, b| a != b;
    v_cmp_ge_u16 v_cmpx_ge_u16: U16 U16 |_, a, b| a >= b;
    v_cmp_f_i32 v_cmpx_f_i32: I32 I32 |_, _, _| false;
    v_cmp_lt_i32 v_cmpx_lt_i32: I32 I32 |_, a, b| (a as i64) < (b as i64);
    v_cmp_eq_i32 v_cmpx_eq_i32: I32 I32 |_, a, b| (a as i64) == (b as i64);
    v_cmp_le_i32 v_cmpx_le_i32: I32 I32 |_, a, b| (a as i64) <= (b as i64);
    v_cmp_gt_i32 v_cmpx_gt_i32: I32 I32 |_, a, b| (a as i64) > (b as i64);
    v_cmp_ne_i32 v_cmpx_ne_i32: I32 I32 |_, a, b| (a as i64) != (b as i64);
    v_cmp_ge_i32 v_cmpx_ge_i32: I32 I32 |_, a, b| (a as i64) >= (b as i64);
    v_cmp_t_i32 v_cmpx_t_i32: I32 I32 |_, _, _| true;
    v_cmp_f_u32 v_cmpx_f_u32: U32 U32 |_, _, _| false;
    v_cmp_lt_u32 v_cmpx_lt_u32: U32 U32 |_, a, b| a < b;
    v_cmp_eq_u32 v_cmpx_eq_u32: U32 U32 |_, a, b| a == b;
    v_cmp_le_u32 v_cmpx_le_u32: U32 U32 |_, a, b| a <= b;
    v_cmp_gt_u32 v_cmpx_gt_u32: U32 U32 |_, a, b| a > b;
    v_cmp_ne_u32 v_cmpx_ne_u32: U32 U32 |_, a, b| a != b;
    v_cmp_ge_u32 v_cmpx_ge_u32: U32 U32 |_, a, b| a >= b;
    v_cmp_t_u32 v_cmpx_t_u32: U32 U32 |_, _, _| true;
    v_cmp_f_i64 v_cmpx_f_i64: B64 B64 |_, _, _| false;
    v_cmp_lt_i64 v_cmpx_lt_i64: B64 B64 |_, a, b| (a as i64) < (b as i64);
    v_cmp_eq_i64 v_cmpx_eq_i64: B64 B64 |_, a, b| (a as i64) == (b as i64);
    v_cmp_le_i64 v_cmpx_le_i64: B64 B64 |_, a, b| (a as i64) <= (b as i64);
    v_cmp_gt_i64 v_cmpx_gt_i64: B64 B64 |_, a, b| (a as i64) > (b as i64);
    v_cmp_ne_i64 v_cmpx_ne_i64: B64 B64 |_, a, b| (a as i64) != (b as i64);
    v_cmp_ge_i64 v_cmpx_ge_i64: B64 B64 |_, a, b| (a as i64) >= (b as i64);
    v_cmp_t_i64 v_cmpx_t_i64: B64 B64 |_, _, _| true;
    v_cmp_f_u64 v_cmpx_f_u64: B64 B64 |_, _, _| false;
    v_cmp_lt_u64 v_cmpx_lt_u64: B64 B64 |_, a, b| a < b;
    v_cmp_eq_u64 v_cmpx_eq_u64: B64 B64 |_, a, b| a == b;
    v_cmp_le_u64 v_cmpx_le_u64: B64 B64 |_, a, b| a <= b;
    v_cmp_gt_u64 v_cmpx_gt_u64: B64 B64 |_, a, b| a > b;
    v_cmp_ne_u64 v_cmpx_ne_u64: B64 B64 |_, a, b| a != b;
    v_cmp_ge_u64 v_cmpx_ge_u64: B64 B64 |_, a, b| a >= b;
    v_cmp_t_u64 v_cmpx_t_u64: B64 B64 |_, _, _| true;
}
