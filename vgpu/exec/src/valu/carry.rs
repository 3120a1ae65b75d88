//! Operations that write a mask beside their result: carries, and the scaling before a division (RDNA ISA 12.7, 12.11).

use super::division::scale;
use super::format::{F32, F64};
use super::mode::Mode;
use crate::lanes::{Handlers, Kind, Lane, three};
use wave32_isa::Opcode;

/// `name: RESULT(SOURCES) |mode, a, b, c| result, carry`.
macro_rules! carrying {
    ($($name:ident: $dst:ident($($src:ident),*) |$m:tt, $a:tt, $b:tt, $c:tt| $lane:expr, $carry:expr;)*) => {
        $(
            #[allow(non_camel_case_types)]
            struct $name;

            impl Lane for $name {
                const DST: Kind = Kind::$dst;
                const SRC: [Kind; 3] = three(&[$(Kind::$src),*]);
                const CARRY: bool = true;

                #[inline(always)]
                fn lane($m: Mode, [$a, $b, $c]: [u64; 3]) -> u64 {
                    $lane
                }

                #[allow(unused_variables)]
                #[inline(always)]
                fn carry($m: Mode, [$a, $b, $c]: [u64; 3]) -> bool {
                    $carry
                }
            }
        )*

        /// The handlers of these operations.
        pub(super) fn bind(op: Opcode) -> Option<Handlers> {
            Some(match op {
                $(Opcode::$name => Handlers::of::<$name>(),)*
                _ => return None,
            })
        }
    };
}

carrying! {
    v_add_co_u32: U32(U32, U32) |_, a, b, _| a + b, a + b > MAX;
    v_sub_co_u32: U32(U32, U32) |_, a, b, _| a.wrapping_sub(b), a < b;
    v_subrev_co_u32: U32(U32, U32) |_, a, b, _| b.wrapping_sub(a), b < a;
    v_add_co_ci_u32: U32(U32, U32, Mask) |_, a, b, c| a + b + c, a + b + c > MAX;
    v_sub_co_ci_u32: U32(U32, U32, Mask) |_, a, b, c| a.wrapping_sub(b + c), a < b + c;
    v_subrev_co_ci_u32: U32(U32, U32, Mask) |_, a, b, c| b.wrapping_sub(a + c), b < a + c;
    v_mad_u64_u32: B64(U32, U32, B64) |m, a, b, c| mad_u64(m, a * b, c), (a * b).overflowing_add(c).1;
    v_mad_i64_i32: B64(I32, I32, B64) |m, a, b, c| mad_i64(m, a as i64 * b as i64, c as i64),
        (a as i64 * b as i64).overflowing_add(c as i64).1;
    v_div_scale_f32: F32(F32, F32, F32) |m, a, b, c| scale::<F32>(m, a, b, c).0, scale::<F32>(m, a, b, c).1;
    v_div_scale_f64: F64(F64, F64, F64) |m, a, b, c| scale::<F64>(m, a, b, c).0, scale::<F64>(m, a, b, c).1;
}

const MAX: u64 = u32::MAX as u64;

fn mad_u64(m: Mode, product: u64, c: u64) -> u64 {
    if m.clamp() { product.saturating_add(c) } else { product.wrapping_add(c) }
}

fn mad_i64(m: Mode, product: i64, c: i64) -> u64 {
    (if m.clamp() { product.saturating_add(c) } else { product.wrapping_add(c) }) as u64
}
