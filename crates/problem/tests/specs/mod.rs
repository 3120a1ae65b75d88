//! Random [`ConvSpec`]s: legal ones, and ones with anything in them.
#![allow(dead_code, reason = "each test binary uses its own part")]

use proptest::prelude::*;
use wave32_problem::{Activation, ConvProblem, ConvSpec, DType, Direction, Epilogue, Layout};

fn kind() -> impl Strategy<Value = (Direction, DType, Layout, bool, Epilogue)> {
    let direction = prop::sample::select(Direction::ALL.to_vec());
    let dtype = prop::sample::select(DType::ALL.to_vec());
    let layout = prop::sample::select(vec![Layout::Nchw, Layout::Nhwc]);
    let epilogue = (any::<bool>(), prop::sample::select(Activation::ALL.to_vec()))
        .prop_map(|(bias, activation)| Epilogue { bias, activation });
    (direction, dtype, layout, any::<bool>(), epilogue)
}

/// Legal problems of every kind, from one pixel to large networks' sizes.
pub fn valid_spec() -> impl Strategy<Value = ConvSpec> {
    let sizes = (1..70i64, 1..40i64, 1..40i64, 1..5i64, 1..600i64, 1..600i64);
    let filter =
        ([1..8i64, 1..8i64], [1..5i64, 1..5i64], [0..6i64, 0..6i64], [1..4i64, 1..4i64], [0..4i64, 0..4i64]);
    (kind(), sizes, filter).prop_filter_map("legal", |(kind, sizes, filter)| {
        let (direction, dtype, layout, transposed, epilogue) = kind;
        let (n, c, k, groups, h, w) = sizes;
        let ([r, s], stride, pad, dilation, extra) = filter;
        let spec = ConvSpec {
            direction,
            dtype,
            layout,
            n,
            c: c * groups,
            h,
            w,
            k: k * groups,
            r,
            s,
            stride,
            pad,
            dilation,
            groups,
            transposed,
            output_pad: if transposed { [extra[0] % stride[0], extra[1] % stride[1]] } else { [0, 0] },
            epilogue: if direction == Direction::Forward { epilogue } else { Epilogue::default() },
        };
        ConvProblem::new(spec.clone()).is_ok().then_some(spec)
    })
}

/// Mostly small, sometimes at the edges of 63 bits, sometimes anything.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        60 => 1..5i64,
        3 => -1..3i64,
        6 => 5..1000i64,
        1 => (0..64u32, -2..3i64).prop_map(|(bit, off)| 1i64.wrapping_shl(bit).wrapping_add(off)),
        1 => prop::sample::select(vec![i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX]),
        1 => any::<i64>(),
    ]
}

/// Anything at all, legal or not; a test checks that there are enough of each.
pub fn any_spec() -> impl Strategy<Value = ConvSpec> {
    let pair = || [number(), number()];
    let small = || prop_oneof![12 => Just([0, 0]), 1 => pair()];
    let sizes = (number(), number(), number(), number(), number(), number(), number());
    let groups = prop_oneof![4 => Just(1), 1 => number()];
    (kind(), sizes, pair(), small(), pair(), groups, small()).prop_map(
        |(kind, (n, c, h, w, k, r, s), stride, pad, dilation, groups, output_pad)| {
            let (direction, dtype, layout, transposed, epilogue) = kind;
            let epilogue =
                if direction == Direction::Forward || n % 2 == 0 { epilogue } else { Epilogue::default() };
            ConvSpec {
                direction,
                dtype,
                layout,
                n,
                c,
                h,
                w,
                k,
                r,
                s,
                stride,
                pad,
                dilation,
                groups,
                transposed,
                output_pad,
                epilogue,
            }
        },
    )
}
