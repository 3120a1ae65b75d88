use super::*;
use crate::testing::{indices, place, seeded, sizes as some_sizes, strides as some_strides};
use rand::Rng;
use std::collections::BTreeSet;

/// The places of all elements, in the usual order of their indices.
fn places(sizes: &[i64], strides: &[i64]) -> Vec<i64> {
    indices(sizes).iter().map(|index| place(index, strides)).collect()
}

/// `sizes` with the dimensions in another order.
fn permuted(values: &[i64], order: &[usize]) -> Vec<i64> {
    order.iter().map(|&dim| values[dim]).collect()
}

#[test]
fn contiguous_elements_lie_in_the_order_of_their_indices() {
    seeded(|random| {
        let sizes = some_sizes(random, 5);
        let strides = contiguous(&sizes);
        let places = places(&sizes, &strides);
        assert_eq!(places, Vec::from_iter(0..places.len() as i64), "{sizes:?}");
        assert!(is_contiguous(&sizes, &strides) && is_dense(&sizes, &strides));
        assert!(strides.iter().all(|&stride| stride > 0), "{sizes:?}");
    });
}

/// Channels last is the usual order of N H W C.
#[test]
fn channels_lie_last() {
    seeded(|random| {
        let sizes: Dims = (0..random.random_range(2..6)).map(|_| random.random_range(0..5)).collect();
        let order: Vec<usize> = [0].into_iter().chain(2..sizes.len()).chain([1]).collect();
        let strides = channels_last(&sizes);
        assert_eq!(permuted(&strides, &order)[..], contiguous(&permuted(&sizes, &order))[..], "{sizes:?}");
        assert!(sizes.contains(&0) || is_channels_last(&sizes, &strides), "{sizes:?}");
        assert_eq!(in_format(false, &sizes), contiguous(&sizes));
        assert_eq!(in_format(true, &sizes), if sizes.len() > 2 { strides } else { contiguous(&sizes) });
    });
}

#[test]
fn a_span_reaches_to_the_last_place() {
    seeded(|random| {
        let sizes = some_sizes(random, 4);
        let strides = some_strides(random, &sizes);
        let last = places(&sizes, &strides).into_iter().max();
        assert_eq!(span(&sizes, &strides), last.map_or(0, |last| last as u64 + 1), "{sizes:?} {strides:?}");
    });
    assert_eq!(checked_span(&[1 << 40, 1 << 40], &[1 << 40, 1]), None);
    assert_eq!(span(&[1 << 40, 1 << 40], &[1 << 40, 1]), u64::MAX);
    assert_eq!(checked_span(&[2], &[-1]), None);
}

/// Dense: as many places as elements, and no place between that is none.
#[test]
fn dense_elements_fill_their_range() {
    seeded(|random| {
        let sizes = some_sizes(random, 4);
        let strides = some_strides(random, &sizes);
        let all = places(&sizes, &strides);
        let different: BTreeSet<i64> = all.iter().copied().collect();
        let fills = different.len() == all.len() && span(&sizes, &strides) == all.len() as u64;
        assert_eq!(is_dense(&sizes, &strides), fills, "{sizes:?} {strides:?}");
        assert_eq!(
            is_contiguous(&sizes, &strides),
            all.iter().copied().eq(0..all.len() as i64),
            "{sizes:?} {strides:?}"
        );
        // Without expanded dimensions these tensors do not overlap.
        assert_eq!(overlap(&sizes, &strides), different.len() < all.len(), "{sizes:?} {strides:?}");
    });
}

#[test]
fn strides_are_alike_that_lead_to_the_same_places() {
    seeded(|random| {
        let sizes: Dims = some_sizes(random, 3).iter().map(|&size| size.max(1)).collect();
        let (a, b) = (some_strides(random, &sizes), some_strides(random, &sizes));
        let same = places(&sizes, &a) == places(&sizes, &b);
        assert_eq!(are_alike(&sizes, &a, &b), same, "{sizes:?} {a:?} {b:?}");
    });
}

/// The layouts that PyTorch's documentation of channels last names, and two that are both formats at once.
#[test]
fn channels_last_is_suggested_by_the_order_of_strides() {
    for (sizes, strides, suggested) in [
        (&[2, 3, 4, 5][..], &[60, 1, 15, 3][..], true),
        (&[2, 3, 4, 5], &[60, 20, 5, 1], false),
        // With gaps: a slice of channels.
        (&[2, 2, 4, 5], &[60, 1, 15, 3], true),
        // One channel fits both: the strides decide.
        (&[2, 1, 4, 5], &[20, 1, 5, 1], true),
        (&[2, 1, 4, 5], &[20, 20, 5, 1], false),
        // N 1 1 1 is taken for the usual order.
        (&[2, 1, 1, 1], &[1, 1, 1, 1], false),
        (&[2, 3, 1, 1], &[3, 1, 3, 3], true),
        (&[2, 3, 4, 5, 6], &[360, 1, 90, 18, 3], true),
        (&[2, 3, 4], &[12, 1, 3], false),
        (&[2, 0, 4, 5], &[20, 1, 5, 1], false),
        (&[2, 3, 4, 5], &[20, 0, 5, 1], false),
    ] {
        assert_eq!(suggest_channels_last(sizes, strides), suggested, "{sizes:?} {strides:?}");
    }
}

#[test]
fn a_signal_is_an_image_of_height_1() {
    assert!(suggest_channels_last_image(&[2, 3, 4], &[12, 1, 3]));
    assert!(!suggest_channels_last_image(&[2, 3, 4], &[12, 4, 1]));
    seeded(|random| {
        let sizes: Dims = (0..4).map(|_| random.random_range(1..5)).collect();
        let strides = some_strides(random, &sizes);
        assert_eq!(suggest_channels_last_image(&sizes, &strides), suggest_channels_last(&sizes, &strides));
    });
}

/// A broadcast element is the one that it repeats.
#[test]
fn expanded_elements_repeat() {
    seeded(|random| {
        let sizes = some_sizes(random, 4);
        let own = narrowed(random, &sizes);
        let strides = some_strides(random, &own);
        let full = expanded(&own, &strides, &sizes);
        for index in indices(&sizes) {
            let behind = &index[sizes.len() - own.len()..];
            let repeated: Vec<i64> =
                behind.iter().zip(&own).map(|(&at, &size)| if size == 1 { 0 } else { at }).collect();
            assert_eq!(place(&index, &full), place(&repeated, &strides), "{own:?} to {sizes:?}");
        }
    });
}

/// Sizes that broadcast to `sizes`.
fn narrowed(random: &mut impl Rng, sizes: &[i64]) -> Dims {
    let front = random.random_range(0..=sizes.len());
    sizes[front..].iter().map(|&size| if random.random_bool(0.3) { 1 } else { size }).collect()
}

/// True where `strides` has no gaps, with a dimension of no elements as one of `least`.
fn is_packed(sizes: &[i64], strides: &[i64], least: i64) -> bool {
    let counted: Vec<i64> = sizes.iter().map(|&size| size.max(least)).collect();
    is_dense(&counted, strides)
}

/// Dense, and of two dimensions whose strides differ the one that was outer stays so.
#[test]
fn preserved_strides_keep_the_order() {
    seeded(|random| {
        let sizes = some_sizes(random, 5);
        let strides = some_strides(random, &sizes);
        let made = preserved(&sizes, &strides);
        assert!(is_packed(&sizes, &made, 1), "{sizes:?} {strides:?}: {made:?}");
        if is_dense(&sizes, &strides) && !sizes.contains(&0) {
            assert!(are_alike(&sizes, &made, &strides), "{sizes:?} {strides:?}: {made:?}");
        }
        if strides.contains(&0) {
            return; // What cannot be compared may stand between.
        }
        for outer in 0..sizes.len() {
            for inner in 0..sizes.len() {
                if strides[outer] > strides[inner] && sizes[inner] > 1 && sizes[outer] > 1 {
                    assert!(made[outer] > made[inner], "{sizes:?} {strides:?}: {made:?}");
                }
            }
        }
    });
}

/// `torch.empty_like` of expanded and sliced tensors, computed by torch 2.15.
#[test]
fn preserved_strides_are_torch_s() {
    for (sizes, strides, made) in [
        (&[2, 3, 4][..], &[0, 4, 1][..], &[12, 4, 1][..]),
        (&[2, 3, 4], &[4, 0, 1], &[12, 4, 1]),
        (&[4, 3, 2], &[1, 8, 40], &[1, 4, 12]),
        (&[3, 4], &[1, 6], &[1, 3]),
        (&[2, 3, 4], &[1, 0, 2], &[1, 2, 6]),
        (&[3, 2], &[1, 1], &[2, 1]),
        (&[2, 3], &[1, 1], &[1, 2]),
    ] {
        assert_eq!(preserved(sizes, strides)[..], *made, "{sizes:?} {strides:?}");
    }
}

#[test]
fn a_result_of_contiguous_operands_is_contiguous() {
    seeded(|random| {
        let sizes = some_sizes(random, 4);
        let operands: Vec<Operand> = (0..random.random_range(0..4))
            .map(|_| narrowed(random, &sizes))
            .map(|own| (own.clone(), contiguous(&own)))
            .collect();
        let made = elementwise(&sizes, &operands);
        assert!(is_contiguous(&sizes, &made), "{sizes:?} of {operands:?}: {made:?}");
    });
}

/// A result of one operand, or of two that lie alike, lies as they do.
#[test]
fn a_result_lies_as_its_operands_do() {
    seeded(|random| {
        let sizes = some_sizes(random, 4);
        let strides = some_strides(random, &sizes);
        let operand = || (sizes.clone(), strides.clone());
        let one = elementwise(&sizes, &[operand()]);
        assert_eq!(one, elementwise(&sizes, &[operand(), operand()]), "{sizes:?} {strides:?}");
        assert!(sizes.contains(&0) || is_dense(&sizes, &one), "{sizes:?} {strides:?}: {one:?}");
        if is_dense(&sizes, &strides) && !sizes.contains(&0) {
            assert!(are_alike(&sizes, &one, &strides), "{sizes:?} {strides:?}: {one:?}");
        }
        if !sizes.contains(&0) && !is_dense(&sizes, &strides) {
            assert_eq!(one, preserved(&sizes, &strides), "{sizes:?} {strides:?}");
        }
    });
}

/// The first operand that tells dimensions apart decides about them.
#[test]
fn the_first_operand_decides() {
    let (turned, usual) = (
        (Dims::from_slice(&[3, 4]), Dims::from_slice(&[1, 3])),
        (Dims::from_slice(&[3, 4]), Dims::from_slice(&[4, 1])),
    );
    assert_eq!(elementwise(&[3, 4], &[turned.clone(), usual.clone()])[..], [1, 3]);
    assert_eq!(elementwise(&[3, 4], &[usual, turned.clone()])[..], [4, 1]);
    let row = (Dims::from_slice(&[4]), Dims::from_slice(&[1]));
    assert_eq!(elementwise(&[3, 4], &[row, turned.clone()])[..], [1, 3]);
    assert_eq!(elementwise(&[3, 4], &[Operand::default(), turned])[..], [1, 3]);
}
