use super::*;
use crate::testing::{indices, seeded, sizes as some_sizes};
use rand::Rng;

#[test]
fn dimensions_count_from_both_ends() {
    for rank in 0..6 {
        for dim in -8..8 {
            // As Python: what names an element of a list of the dimensions; that of a scalar has one.
            let list = Vec::from_iter(0..rank.max(1));
            let from_front = usize::try_from(dim).ok().and_then(|at| list.get(at));
            let from_back = usize::try_from(-dim - 1).ok().and_then(|at| list.iter().rev().nth(at));
            let expected = if dim < 0 { from_back } else { from_front };
            assert_eq!(wrap(dim, rank).ok(), expected.copied(), "{dim} of {rank}");
        }
    }
    let text = "Dimension out of range (expected to be in range of [-2, 1], but got 2)";
    assert_eq!(wrap(2, 2), Err(Wrong::Index(text.into())));
}

/// From the last dimension on, each is the one size that is not 1; with two of them there is none.
fn naive_broadcast(operands: &[Dims]) -> Option<Vec<i64>> {
    let rank = operands.iter().map(|sizes| sizes.len()).max().unwrap_or(0);
    let mut sizes = Vec::new();
    for back in (1..=rank).rev() {
        let mut others: Vec<i64> = operands
            .iter()
            .filter(|s| s.len() >= back)
            .map(|s| s[s.len() - back])
            .filter(|&size| size != 1)
            .collect();
        others.dedup();
        match others[..] {
            [] => sizes.push(1),
            [one] => sizes.push(one),
            _ => return None,
        }
    }
    Some(sizes)
}

#[test]
fn sizes_broadcast() {
    seeded(|random| {
        let target = some_sizes(random, 4);
        let mut operand = || {
            let front = random.random_range(0..=target.len());
            let change = |&size: &i64| match random.random_range(0..10) {
                0..3 => 1,
                3 => 2,
                _ => size,
            };
            target[front..].iter().map(change).collect::<Dims>()
        };
        let operands: Vec<Dims> = (0..3).map(|_| operand()).collect();
        let found = broadcast(&operands).ok();
        assert_eq!(found.as_deref(), naive_broadcast(&operands).as_deref(), "{operands:?}");
    });
    assert_eq!(broadcast([[0; 0]; 0]), Ok(Dims::new()));
}

#[test]
fn the_last_size_that_does_not_fit_is_told() {
    let text = "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1";
    assert_eq!(broadcast([[2, 3], [5, 4]]), Err(Wrong::Invalid(text.into())));
}

#[test]
fn one_size_is_inferred_from_the_others() {
    seeded(|random| {
        let sizes: Dims = (0..random.random_range(1..5)).map(|_| random.random_range(1..5)).collect();
        let numel = sizes.iter().product();
        assert_eq!(infer(&sizes, numel), Ok(sizes.clone()));
        let mut open = sizes.clone();
        open[random.random_range(0..sizes.len())] = -1;
        assert_eq!(infer(&open, numel), Ok(sizes.clone()), "{open:?} of {numel}");
        // By trying every size.
        let numel = random.random_range(0..40);
        let fitting = (0..=numel)
            .find(|&size| open.iter().map(|&s| if s == -1 { size } else { s }).product::<i64>() == numel);
        let filled =
            fitting.map(|size| open.iter().map(|&s| if s == -1 { size } else { s }).collect::<Dims>());
        assert_eq!(infer(&open, numel).ok(), filled, "{open:?} of {numel}");
    });
}

#[test]
fn sizes_that_nothing_is_inferred_from_are_refused() {
    let text = |wrong: Result<Dims, Wrong>| wrong.unwrap_err().to_string();
    assert_eq!(text(infer(&[2, 3], 7)), "shape '[2, 3]' is invalid for input of size 7");
    assert_eq!(text(infer(&[-1, 3], 7)), "shape '[-1, 3]' is invalid for input of size 7");
    assert_eq!(text(infer(&[-2, 3], 6)), "shape '[-2, 3]' is invalid for input of size 6");
    assert_eq!(text(infer(&[-1, -1], 4)), "only one dimension can be inferred");
    assert!(text(infer(&[-1, 0], 0)).contains("is ambiguous"));
    assert_eq!(infer(&[], 1), Ok(Dims::new()));
}

/// The elements of a result are the groups of indices that differ in reduced dimensions only.
#[test]
fn a_reduction_leaves_the_other_dimensions() {
    seeded(|random| {
        let sizes: Dims = some_sizes(random, 4).iter().map(|&size| size.max(1)).collect();
        let rank = sizes.len();
        let mut named: Vec<i64> = (0..rank as i64).filter(|_| random.random_bool(0.5)).collect();
        named.iter_mut().for_each(|dim| *dim -= if random.random_bool(0.5) { rank as i64 } else { 0 });
        let Ok(shape) = Reduced::new(&sizes, Some(&named), false) else { panic!("{sizes:?} by {named:?}") };
        let all = named.is_empty();
        let is_left = |dim: usize| !all && !named.iter().any(|&n| n.rem_euclid(rank as i64) as usize == dim);
        let groups: std::collections::BTreeSet<Vec<i64>> = indices(&sizes)
            .into_iter()
            .map(|index| {
                index.into_iter().enumerate().filter(|(dim, _)| is_left(*dim)).map(|(_, at)| at).collect()
            })
            .collect();
        assert_eq!(groups, indices(&shape.sizes).into_iter().collect(), "{sizes:?} by {named:?}");
        let kept = Reduced::new(&sizes, Some(&named), true).unwrap();
        let expected: Vec<i64> = (0..rank).map(|dim| if is_left(dim) { sizes[dim] } else { 1 }).collect();
        assert_eq!(kept.sizes[..], expected[..], "{sizes:?} by {named:?}");
        assert_eq!(kept.dims, shape.dims);
    });
}

#[test]
fn a_scalar_reduces_to_itself() {
    for named in [None, Some(&[][..]), Some(&[0]), Some(&[-1])] {
        let expected = Reduced { dims: SmallVec::new(), sizes: Dims::new() };
        assert_eq!(Reduced::new(&[], named, true), Ok(expected));
    }
    assert_eq!(
        Reduced::new(&[2, 3], Some(&[1, -1]), false),
        Err(Wrong::NoKernel("dimension 1 appears twice".into()))
    );
    assert!(matches!(Reduced::new(&[2, 3], Some(&[2]), false), Err(Wrong::Index(_))));
}

#[test]
fn joined_parts_add_up() {
    seeded(|random| {
        let sizes: Dims = (0..random.random_range(1..4)).map(|_| random.random_range(0..5)).collect();
        let dim = random.random_range(0..sizes.len());
        let cut = random.random_range(0..=sizes[dim]);
        let part = |size| {
            let mut part = sizes.clone();
            part[dim] = size;
            part
        };
        let parts = [part(cut), part(sizes[dim] - cut)];
        assert_eq!(joined(&parts, dim as i64), Ok((dim, sizes.clone())), "{parts:?}");
        assert_eq!(joined(&parts, dim as i64 - sizes.len() as i64), Ok((dim, sizes)), "{parts:?}");
    });
    for parts in [&[&[2, 3][..], &[3, 3, 1]][..], &[&[2, 3], &[2, 4]], &[&[]]] {
        assert!(matches!(joined(parts, 0), Err(Wrong::NoKernel(_))), "{parts:?}");
    }
}

#[test]
fn dimensions_are_named_once() {
    assert_eq!(distinct(&[-1, 0], 3), Ok(vec![0, 2]));
    assert_eq!(distinct(&[-1], 0), Ok(vec![]));
    let text = "dim [1, -1] appears multiple times in the list of dims";
    assert_eq!(distinct(&[1, -1], 2), Err(Wrong::Invalid(text.into())));
    assert!(matches!(distinct(&[2], 2), Err(Wrong::Index(_))));
}

/// Rolled one after the other.
#[test]
fn rolls_of_a_dimension_add_up() {
    seeded(|random| {
        let sizes: Dims = (0..3).map(|_| random.random_range(1..5)).collect();
        let dims: Vec<i64> = (0..random.random_range(1..5)).map(|_| random.random_range(-3..3)).collect();
        let shifts: Vec<i64> = dims.iter().map(|_| random.random_range(-9..10)).collect();
        let mut index = [0; 3];
        for (&dim, &shift) in dims.iter().zip(&shifts) {
            let dim = dim.rem_euclid(3) as usize;
            index[dim] = (index[dim] + shift).rem_euclid(sizes[dim]);
        }
        let mut rolled = [0; 3];
        for (dim, shift) in rolls(&sizes, &shifts, &dims).unwrap() {
            assert!(shift.abs() < sizes[dim], "{sizes:?} by {shifts:?} along {dims:?}");
            rolled[dim] = shift.rem_euclid(sizes[dim]);
        }
        assert_eq!(rolled, index, "{sizes:?} by {shifts:?} along {dims:?}");
    });
}
