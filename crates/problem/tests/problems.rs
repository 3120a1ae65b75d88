//! Construction against independent arithmetic, output sizes by hand, and the laws of `to_plain`.

mod specs;

use proptest::prelude::*;
use specs::{any_spec, valid_spec};
use wave32_problem::{ConvProblem, ConvSpec, DType, Direction, Epilogue, ProblemError};

/// One axis by the definition, in 128 bits; `None` where a rule is broken or a number passes 63 bits.
fn axis_size(s: &ConvSpec, axis: usize) -> Option<i128> {
    let small = |v: i128| (v < 1 << 63).then_some(v);
    let input = i128::from([s.h, s.w][axis]);
    let filter = i128::from([s.r, s.s][axis]);
    let [stride, pad, dilation, extra] =
        [s.stride, s.pad, s.dilation, s.output_pad].map(|pair| i128::from(pair[axis]));
    let reach = small((filter - 1) * dilation + 1)?;
    let border = small(2 * pad)?;
    if s.transposed {
        // Input pixel i lands on i*stride .. i*stride + reach - 1; the border is cut off, the extra added.
        let last = (input - 1).checked_mul(stride)?.checked_add(reach)?;
        let out = small(last + extra)? - border;
        (extra < stride && out > 0).then_some(out)
    } else {
        // Positions 0, stride, 2*stride, ... whose last tap is still inside.
        let room = small(input + border)? - reach;
        (extra == 0 && room >= 0).then_some(room / stride + 1)
    }
}

fn below_2_63(factors: &[i128]) -> Option<u128> {
    let product = factors.iter().try_fold(1u128, |a, &b| a.checked_mul(u128::try_from(b).ok()?))?;
    (product < 1 << 63).then_some(product)
}

/// Every rule again, by other means: `Some(output size)` for a legal problem.
fn legal(s: &ConvSpec) -> Option<[i128; 2]> {
    let at_least_one = [s.n, s.c, s.h, s.w, s.k, s.r, s.s, s.groups];
    let positive = at_least_one.into_iter().chain(s.stride).chain(s.dilation).all(|v| v > 0);
    let not_negative = s.pad.into_iter().chain(s.output_pad).all(|v| v >= 0);
    if !positive || !not_negative || s.c % s.groups != 0 || s.k % s.groups != 0 {
        return None;
    }
    if s.direction != Direction::Forward && s.epilogue != Epilogue::default() {
        return None;
    }
    let [p, q] = [axis_size(s, 0)?, axis_size(s, 1)?];
    let [n, c, h, w, k, r, f, g] = [s.n, s.c, s.h, s.w, s.k, s.r, s.s, s.groups].map(i128::from);
    let bytes = if s.dtype == DType::F32 { 4 } else { 2 };
    let tensors = below_2_63(&[bytes, n, c, h, w])?
        + below_2_63(&[bytes, n, k, p, q])?
        + below_2_63(&[bytes, k, c / g, r, f])?
        + if s.epilogue.bias { below_2_63(&[bytes, k])? } else { 0 };
    let [u, v] = if s.transposed { [h, w] } else { [p, q] };
    below_2_63(&[2, n, k, c / g, r, f, u, v])?;
    (tensors < 1 << 63).then_some([p, q])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn accepts_exactly_what_is_legal(spec in any_spec()) {
        match (ConvProblem::new(spec.clone()), legal(&spec)) {
            (Ok(problem), Some(out)) => {
                prop_assert_eq!([problem.out_h(), problem.out_w()].map(i128::from), out);
                // None of these may overflow (the test profile checks arithmetic).
                prop_assert!(problem.bytes() < 1 << 63);
                prop_assert!(problem.flops() < 1 << 63);
                prop_assert!(problem.reduction_len() >= 1);
                prop_assert!(problem.output_elements() >= 1);
                prop_assert_eq!(problem.to_plain().flops(), problem.flops());
            }
            (Err(error), None) => {
                let text = error.to_string();
                prop_assert!(!text.is_empty() && !text.contains('\n'), "{:?}", text);
            }
            (got, want) => prop_assert!(false, "{:?} but the rules say {:?}", got, want),
        }
    }

    #[test]
    fn plain_form_is_the_same_arithmetic(spec in valid_spec()) {
        let problem = ConvProblem::new(spec.clone()).expect("the strategy makes legal ones");
        let plain = problem.to_plain();
        prop_assert_eq!(plain.to_plain(), plain.clone(), "plain twice is plain");
        if !spec.transposed {
            prop_assert_eq!(plain, problem);
            return Ok(());
        }
        prop_assert!(!plain.spec().transposed);
        prop_assert_eq!([plain.out_h(), plain.out_w()], [spec.h, spec.w]);
        prop_assert_eq!(plain.x_elements(), problem.y_elements());
        prop_assert_eq!(plain.y_elements(), problem.x_elements());
        prop_assert_eq!(plain.w_elements(), problem.w_elements());
        prop_assert_eq!(plain.output_elements(), problem.output_elements());
        prop_assert_eq!(plain.reduction_len(), problem.reduction_len());
        prop_assert_eq!(plain.flops(), problem.flops());
        prop_assert_eq!(plain.bytes(), problem.bytes());
        prop_assert_eq!(plain.bias_elements(), problem.bias_elements());
        prop_assert_eq!(problem.bias_elements(), if spec.epilogue.bias { spec.k as u64 } else { 0 });
        let direction = match spec.direction {
            Direction::Forward => Direction::BackwardData,
            Direction::BackwardData => Direction::Forward,
            Direction::BackwardWeights => Direction::BackwardWeights,
        };
        prop_assert_eq!(plain.spec().direction, direction);
        // `to_plain` skips construction; construction must agree.
        let bare = |s: &ConvSpec| ConvSpec { epilogue: Epilogue::default(), ..s.clone() };
        let again = ConvProblem::new(bare(plain.spec())).expect("the plain form is legal");
        prop_assert_eq!([again.out_h(), again.out_w()], [plain.out_h(), plain.out_w()]);
        prop_assert_eq!(again.spec(), &bare(plain.spec()));
    }
}

/// The test above would prove little if its random problems were all of one sort.
#[test]
fn random_problems_are_of_both_sorts() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut draw = || any_spec().new_tree(&mut runner).expect("no filter in it").current();
    let legal = (0..4000).filter(|_| ConvProblem::new(draw()).is_ok()).count();
    assert!((200..3800).contains(&legal), "{legal} of 4000 are legal");
}

/// `[h, w, r, s]`, stride, pad, dilation, output pad -> output size, worked out on paper.
#[test]
fn output_sizes_by_hand() {
    type Row = ([i64; 4], [i64; 2], [i64; 2], [i64; 2], Option<[i64; 2]>, [i64; 2]);
    let plain = None;
    let rows: &[Row] = &[
        ([48, 48, 3, 3], [1, 1], [1, 1], [1, 1], plain, [48, 48]),
        ([224, 224, 7, 7], [2, 2], [3, 3], [1, 1], plain, [112, 112]), // ResNet's stem
        ([227, 227, 11, 11], [4, 4], [0, 0], [1, 1], plain, [55, 55]), // AlexNet's first
        ([56, 57, 3, 3], [2, 2], [1, 1], [1, 1], plain, [28, 29]),
        ([5, 5, 5, 5], [1, 1], [0, 0], [1, 1], plain, [1, 1]),
        ([7, 7, 3, 3], [1, 1], [2, 2], [2, 2], plain, [7, 7]),
        ([17, 17, 1, 7], [1, 1], [0, 3], [1, 1], plain, [17, 17]), // Inception's 1x7
        ([1, 1, 3, 3], [1, 1], [1, 1], [1, 1], plain, [1, 1]),
        ([1, 16000, 1, 80], [1, 4], [0, 38], [1, 1], plain, [1, 4000]), // 1-D audio
        ([10, 20, 2, 5], [3, 7], [0, 1], [4, 2], plain, [2, 2]),
        ([5, 5, 1, 1], [100, 2], [0, 0], [1, 1], plain, [1, 3]),
        ([28, 28, 2, 2], [2, 2], [0, 0], [1, 1], Some([0, 0]), [56, 56]), // U-Net's upsampling
        ([7, 7, 3, 3], [2, 2], [1, 1], [1, 1], Some([1, 1]), [14, 14]),
        ([1, 1, 4, 4], [1, 1], [0, 0], [1, 1], Some([0, 0]), [4, 4]), // DCGAN's first
        ([4, 4, 4, 4], [2, 2], [1, 1], [1, 1], Some([0, 0]), [8, 8]),
        ([5, 6, 3, 2], [3, 1], [2, 0], [2, 3], Some([2, 0]), [15, 9]),
    ];
    for &([h, w, r, s], stride, pad, dilation, transposed, out) in rows {
        let output_pad = transposed.unwrap_or_default();
        let transposed = transposed.is_some();
        let spec =
            ConvSpec { h, w, r, s, stride, pad, dilation, transposed, output_pad, ..Default::default() };
        let problem = ConvProblem::new(spec.clone()).unwrap_or_else(|e| panic!("{spec:?}: {e}"));
        assert_eq!([problem.out_h(), problem.out_w()], out, "{spec:?}");
    }
}

/// One broken field each, and what the message must name.
#[test]
fn errors_name_field_value_and_rule() {
    let base = ConvSpec { c: 4, h: 8, w: 8, k: 6, r: 3, s: 3, ..Default::default() };
    assert!(ConvProblem::new(base.clone()).is_ok());
    let cases = [
        (ConvSpec { n: 0, ..base.clone() }, "n = 0: must be at least 1"),
        (ConvSpec { k: -6, ..base.clone() }, "k = -6: must be at least 1"),
        (ConvSpec { stride: [1, 0], ..base.clone() }, "stride_w = 0: must be at least 1"),
        (ConvSpec { dilation: [0, 1], ..base.clone() }, "dilation_h = 0: must be at least 1"),
        (ConvSpec { pad: [0, -1], ..base.clone() }, "pad_w = -1: must not be negative"),
        (ConvSpec { groups: 3, ..base.clone() }, "groups = 3: must divide c = 4 without remainder"),
        (ConvSpec { groups: 4, ..base.clone() }, "groups = 4: must divide k = 6 without remainder"),
        (ConvSpec { r: 9, ..base.clone() }, "r = 9: filter extent 9"),
        (ConvSpec { s: 3, dilation: [1, 4], ..base.clone() }, "s = 3: filter extent 9"),
        (ConvSpec { output_pad: [1, 0], ..base.clone() }, "output_pad_h = 1: only a transposed"),
        (
            ConvSpec { transposed: true, stride: [2, 2], output_pad: [0, 2], ..base.clone() },
            "output_pad_w = 2: must be smaller than the stride, 2",
        ),
        (ConvSpec { transposed: true, pad: [5, 5], ..base.clone() }, "pad_h = 5: 2*5 leaves nothing"),
        (ConvSpec { pad: [i64::MAX, 0], ..base.clone() }, "padding is too large"),
        (ConvSpec { n: 1 << 40, h: 1 << 20, ..base.clone() }, "input size in bytes is too large"),
        (ConvSpec { n: 1 << 55, ..base.clone() }, "input size in bytes is too large"),
        (ConvSpec { n: 1 << 50, ..base.clone() }, "work in FLOP is too large"),
    ];
    for (spec, text) in cases {
        let error = ConvProblem::new(spec.clone()).expect_err(text).to_string();
        assert!(error.starts_with(text), "{spec:?}: {error}");
    }
    let epilogue = Epilogue { bias: true, ..Epilogue::default() };
    let backward = ConvSpec { direction: Direction::BackwardData, epilogue, ..base };
    assert!(matches!(ConvProblem::new(backward), Err(ProblemError::Field { field: "epilogue", .. })));
}

/// Three tensors of almost 2^63 bytes each: every product fits, their sum would not.
#[test]
fn memory_of_all_tensors_together_is_checked() {
    let big = (1 << 61) - 1;
    let spec = ConvSpec { k: big, h: big, stride: [i64::MAX, 1], ..Default::default() };
    let error = ConvProblem::new(spec).expect_err("three times 2^63").to_string();
    assert!(error.starts_with("memory of all tensors in bytes is too large"), "{error}");
}
