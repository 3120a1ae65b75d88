//! Sizes and strides of views.

use crate::sizes::wrap;
use crate::strides::{contiguous, expanded, span};
use crate::{Dims, Wrong};

/// Strides of a view with `new` sizes, which have as many elements; none where the elements would have to move.
pub fn view_strides(sizes: &[i64], strides: &[i64], new: &[i64]) -> Option<Dims> {
    if sizes.contains(&0) {
        return Some(if sizes == new { Dims::from_slice(strides) } else { contiguous(new) });
    }
    let mut made = Dims::from_elem(1, new.len());
    let mut next = new.len();
    // Runs of old dimensions that are one piece of memory, last first.
    let mut run = 1;
    let mut base = strides.last().copied().unwrap_or(1);
    for d in (0..sizes.len()).rev() {
        run *= sizes[d];
        let ends = d == 0 || sizes[d - 1] != 1 && strides[d - 1] != run * base;
        if !ends {
            continue;
        }
        let mut covered = 1;
        while next > 0 && (covered < run || new[next - 1] == 1) {
            next -= 1;
            made[next] = covered * base;
            covered *= new[next];
        }
        if covered != run {
            return None;
        }
        if d > 0 {
            base = strides[d - 1];
            run = 1;
        }
    }
    // What is left can only be ones: the element counts agree.
    while next > 0 {
        next -= 1;
        made[next] = if next + 1 < new.len() { made[next + 1] * new[next + 1] } else { 1 };
    }
    Some(made)
}

/// Strides of a view that is broadcast to `sizes`.
///
/// # Errors
/// `Invalid` where it does not broadcast to them.
pub fn expand(own: &[i64], strides: &[i64], sizes: &[i64]) -> Result<Dims, Wrong> {
    let fits = |front: usize| own.iter().zip(&sizes[front..]).all(|(&from, &to)| from == to || from == 1);
    if sizes.len().checked_sub(own.len()).is_some_and(fits) {
        return Ok(expanded(own, strides, sizes));
    }
    Err(Wrong::Invalid(format!("a tensor of sizes {own:?} does not broadcast to {sizes:?}")))
}

/// Sizes and strides of windows of `size` elements along a dimension, every `step`.
///
/// # Errors
/// `Index` for a dimension out of range; `Invalid`, as PyTorch words it, where no window fits.
pub fn unfold(
    sizes: &[i64],
    strides: &[i64],
    dimension: i64,
    size: i64,
    step: i64,
) -> Result<(Dims, Dims), Wrong> {
    let d = wrap(dimension, sizes.len())?;
    let length = sizes.get(d).copied().unwrap_or(1);
    if size < 0 || size > length || step <= 0 {
        return Err(Wrong::Invalid(format!(
            "maximum size for tensor at dimension {d} is {length} but size is {size}, step is {step}"
        )));
    }
    let (mut sizes, mut strides) = (Dims::from_slice(sizes), Dims::from_slice(strides));
    strides.push(strides.get(d).copied().unwrap_or(1));
    if !sizes.is_empty() {
        sizes[d] = (length - size) / step + 1;
        strides[d] *= step;
    }
    sizes.push(size);
    Ok((sizes, strides))
}

/// That `as_strided` stays inside a storage of that many bytes.
///
/// # Errors
/// `Invalid`, as PyTorch words it.
pub fn as_strided(
    sizes: &[i64],
    strides: &[i64],
    offset: i64,
    element: u64,
    storage: u64,
) -> Result<(), Wrong> {
    if sizes.len() != strides.len() {
        return Err(Wrong::Invalid(format!(
            "mismatch in length of strides and shape: as_strided got sizes {sizes:?} and strides {strides:?}"
        )));
    }
    if offset < 0 || sizes.iter().chain(strides).any(|n| *n < 0) {
        return Err(Wrong::Invalid(format!(
            "as_strided: sizes {sizes:?}, strides {strides:?} and storage offset {offset} do not describe a view \
             (Negative strides are not supported at the moment)"
        )));
    }
    let elements = span(sizes, strides);
    let needed = elements.saturating_add(offset as u64).saturating_mul(element);
    if elements > 0 && needed > storage {
        return Err(Wrong::Invalid(format!(
            "setStorage: sizes {sizes:?}, strides {strides:?}, storage offset {offset}, and itemsize {element} requiring a \
             storage size of {needed} are out of bounds for storage of size {storage}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{indices, place, seeded, sizes as some_sizes, strides as some_strides};
    use rand::Rng;

    /// Sizes of as many elements.
    fn reshaped(random: &mut impl Rng, numel: i64) -> Vec<i64> {
        let (mut left, mut sizes) = (numel, Vec::new());
        while left > 1 || random.random_bool(0.3) {
            let divisors: Vec<i64> = (1..=left).filter(|by| left % by == 0).collect();
            let size = divisors[random.random_range(0..divisors.len())];
            sizes.push(size);
            left /= size;
        }
        sizes
    }

    /// The place of each element is known. Strides lead to those places where each dimension's is the distance of its
    /// neighbours everywhere; else there are none.
    fn naive_view(sizes: &[i64], strides: &[i64], new: &[i64]) -> Option<Vec<i64>> {
        let places: Vec<i64> = indices(sizes).iter().map(|index| place(index, strides)).collect();
        let all = indices(new);
        let at = |index: &Vec<i64>| places[all.iter().position(|other| other == index).unwrap()];
        let mut made = Vec::new();
        for dim in 0..new.len() {
            let mut stride = None;
            for index in all.iter().filter(|index| index[dim] > 0) {
                let mut before = index.clone();
                before[dim] -= 1;
                let distance = at(index) - at(&before);
                if *stride.get_or_insert(distance) != distance {
                    return None;
                }
            }
            made.push(stride.unwrap_or(0));
        }
        Some(made)
    }

    #[test]
    fn a_view_has_the_same_elements_in_the_same_order() {
        seeded(|random| {
            let sizes: Dims = some_sizes(random, 4).iter().map(|&size| size.clamp(1, 3)).collect();
            let strides = some_strides(random, &sizes);
            let new = reshaped(random, sizes.iter().product());
            let (found, naive) = (view_strides(&sizes, &strides, &new), naive_view(&sizes, &strides, &new));
            assert_eq!(found.is_some(), naive.is_some(), "{sizes:?} {strides:?} as {new:?}");
            let (Some(found), Some(naive)) = (found, naive) else { return };
            for (dim, &size) in new.iter().enumerate() {
                assert!(size == 1 || found[dim] == naive[dim], "{sizes:?} {strides:?} as {new:?}: {found:?}");
            }
        });
    }

    #[test]
    fn views_of_nothing_have_any_strides() {
        assert_eq!(view_strides(&[0, 3], &[7, 2], &[0, 3]).as_deref(), Some(&[7, 2][..]));
        assert_eq!(view_strides(&[0, 3], &[7, 2], &[3, 0]).as_deref(), Some(&[1, 1][..]));
        assert_eq!(view_strides(&[], &[], &[1, 1]).as_deref(), Some(&[1, 1][..]));
    }

    #[test]
    fn a_view_broadcasts_where_sizes_do() {
        seeded(|random| {
            let (own, sizes) = (some_sizes(random, 3), some_sizes(random, 4));
            let strides = some_strides(random, &own);
            let broadcasts = crate::sizes::broadcast([&own, &sizes]).is_ok_and(|both| both == sizes);
            let found = expand(&own, &strides, &sizes);
            assert_eq!(found.is_ok(), broadcasts, "{own:?} to {sizes:?}");
            if let Ok(found) = found {
                assert_eq!(found, expanded(&own, &strides, &sizes));
            }
        });
    }

    #[test]
    fn windows_follow_each_other_by_the_step() {
        seeded(|random| {
            let sizes: Dims = (0..random.random_range(1..4)).map(|_| random.random_range(1..7)).collect();
            let strides = some_strides(random, &sizes);
            let dim = random.random_range(0..sizes.len());
            let (size, step) = (random.random_range(0..=sizes[dim]), random.random_range(1..4));
            let (made, steps) = unfold(&sizes, &strides, dim as i64, size, step).unwrap();
            // Starts from which a window still fits.
            let starts = (0..).step_by(step as usize).take_while(|start| start + size <= sizes[dim]).count();
            assert_eq!(
                (made[dim], made[sizes.len()]),
                (starts as i64, size),
                "{sizes:?} by {size} each {step}"
            );
            for index in indices(&made) {
                let mut element = index[..sizes.len()].to_vec();
                element[dim] = index[dim] * step + index[sizes.len()];
                assert_eq!(place(&index, &steps), place(&element, &strides));
            }
        });
        assert_eq!(unfold(&[], &[], 0, 1, 1), Ok((Dims::from_slice(&[1]), Dims::from_slice(&[1]))));
        assert!(matches!(unfold(&[3], &[1], 1, 1, 1), Err(Wrong::Index(_))));
        for (size, step) in [(4, 1), (-1, 1), (1, 0)] {
            assert!(matches!(unfold(&[3], &[1], 0, size, step), Err(Wrong::Invalid(_))));
        }
    }

    #[test]
    fn a_view_stays_in_its_storage() {
        seeded(|random| {
            let sizes = some_sizes(random, 3);
            let strides = some_strides(random, &sizes);
            let (offset, element, storage) =
                (random.random_range(0..9), 1 << random.random_range(0..4), random.random_range(0..400));
            let ends = indices(&sizes)
                .into_iter()
                .map(|index| (place(&index, &strides) + offset + 1) as u64 * element);
            let inside = ends.max().unwrap_or(0) <= storage;
            let found = as_strided(&sizes, &strides, offset, element, storage);
            assert_eq!(found.is_ok(), inside, "{sizes:?} {strides:?} from {offset} of {storage}: {found:?}");
        });
        assert!(as_strided(&[2], &[1, 1], 0, 4, 100).is_err());
        assert!(as_strided(&[2], &[-1], 1, 4, 100).is_err());
        assert!(as_strided(&[2], &[1], -1, 4, 100).is_err());
        assert!(as_strided(&[i64::MAX, 2], &[i64::MAX, 1], 0, 4, 100).is_err());
    }
}
