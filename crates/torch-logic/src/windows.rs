//! Pooling, padding and resampling: windows over images, and the sizes that they leave. What PyTorch refuses becomes
//! `NoKernel`: the CPU words the error.

use crate::{Dims, Wrong};
use wave32_ops::View;
use wave32_ops::pad::Padding;
use wave32_ops::pool::Windows;

/// (N, C, H, W) of an image or a batch of images; `axes` of them (1 or 2) are the image's.
///
/// # Errors
/// `NoKernel` for other ranks.
pub fn images(plain: &View, axes: usize) -> Result<View, Wrong> {
    let (sizes, strides) = (plain.sizes(), plain.strides());
    let rank = sizes.len();
    let refused = || Wrong::NoKernel(format!("images of sizes {sizes:?}"));
    if rank != axes + 1 && rank != axes + 2 {
        return Err(refused());
    }
    let (mut all, mut steps) = ([1; 4], [0; 4]);
    for axis in 0..axes {
        (all[3 - axis], steps[3 - axis]) = (sizes[rank - 1 - axis], strides[rank - 1 - axis]);
    }
    let front = rank - axes;
    for at in 0..front {
        (all[2 - front + at], steps[2 - front + at]) = (sizes[at], strides[at]);
    }
    View::new(plain.address, plain.dtype, &all, &steps).map_err(|_| refused())
}

/// What PyTorch takes as height and width.
fn pair(values: &[i64], absent: [u64; 2]) -> Result<[u64; 2], Wrong> {
    let bad = |_| Wrong::NoKernel(format!("pooling by {values:?}"));
    Ok(match *values {
        [] => absent,
        [both] => [u64::try_from(both).map_err(bad)?; 2],
        [h, w] => [u64::try_from(h).map_err(bad)?, u64::try_from(w).map_err(bad)?],
        _ => return Err(Wrong::NoKernel(format!("pooling by {values:?}"))),
    })
}

/// Sliding windows over images of `sizes` and the sizes of what comes out.
///
/// # Errors
/// `NoKernel` for what PyTorch refuses.
pub fn sliding(
    sizes: &[i64],
    [kernel, stride, padding, dilation]: [&[i64]; 4],
    ceil: bool,
) -> Result<(Windows, Dims), Wrong> {
    let kernel = pair(kernel, [1; 2])?;
    let (stride, padding) = (pair(stride, kernel)?, pair(padding, [0; 2])?);
    let dilation = pair(dilation, [1; 2])?;
    let refused =
        || Wrong::NoKernel(format!("pooling of {sizes:?} by {kernel:?} with {stride:?} and {padding:?}"));
    if !(3..=4).contains(&sizes.len()) || [kernel, stride, dilation].as_flattened().contains(&0) {
        return Err(refused());
    }
    let mut outs = Dims::from_slice(sizes);
    for at in 0..2 {
        let axis = sizes.len() - 2 + at;
        let size = sizes[axis] as u64;
        let reach = dilation[at].saturating_mul(kernel[at] - 1).saturating_add(1);
        if padding[at] > reach / 2 {
            return Err(refused());
        }
        let slack = (size + 2 * padding[at]).checked_sub(reach);
        // In ceil mode a window may start on a fraction of a step, even where not one fits whole.
        let more = if ceil { stride[at] - 1 } else { 0 };
        let mut count = match slack {
            Some(slack) => (slack + more) / stride[at] + 1,
            None if size + 2 * padding[at] + more >= reach => 1,
            None => return Err(refused()),
        };
        if ceil && (count - 1) * stride[at] >= size + padding[at] {
            count -= 1;
        }
        outs[axis] = count as i64;
    }
    if sizes[sizes.len() - 3..].contains(&0) || outs.iter().skip(outs.len() - 2).any(|&size| size < 1) {
        return Err(refused());
    }
    Ok((Windows::Sliding { kernel, stride, padding, dilation }, outs))
}

/// Sizes of images of `sizes` that are pooled to a height and width.
///
/// # Errors
/// `NoKernel` for what PyTorch refuses.
pub fn adaptive(sizes: &[i64], wanted: &[i64]) -> Result<Dims, Wrong> {
    let rank = sizes.len();
    let refused = || Wrong::NoKernel(format!("adaptive pooling of {sizes:?} to {wanted:?}"));
    if !(3..=4).contains(&rank) || sizes[rank - 2..].contains(&0) || wanted.iter().any(|&size| size < 0) {
        return Err(refused());
    }
    let mut outs = Dims::from_slice(sizes);
    match *wanted {
        [both] => outs[rank - 2..].fill(both),
        [h, w] => outs[rank - 2..].copy_from_slice(&[h, w]),
        _ => return Err(refused()),
    }
    Ok(outs)
}

/// Sides as (before, after), negative ones cropping, from the outermost padded dimension on (PyTorch names the last one
/// first), and the padded sizes.
///
/// # Errors
/// `NoKernel` for what PyTorch refuses.
pub fn padded(padding: Padding, sizes: &[i64], flat: &[i64]) -> Result<(Vec<[i64; 2]>, Dims), Wrong> {
    let (rank, axes) = (sizes.len(), flat.len() / 2);
    let refused = || Wrong::NoKernel(format!("{padding:?} padding of {sizes:?} by {flat:?}"));
    let odd = flat.len() % 2 == 1 || (rank != axes + 1 && rank != axes + 2);
    if odd || sizes[rank.saturating_sub(axes + 1)..].contains(&0) {
        return Err(refused());
    }
    let mut padded = Dims::from_slice(sizes);
    let sides: Vec<[i64; 2]> = flat.chunks(2).rev().map(|side| [side[0], side[1]]).collect();
    for (size, side) in padded[rank - axes..].iter_mut().zip(&sides) {
        if padding == Padding::Reflect && side.iter().any(|by| by >= size) || *size + side[0] + side[1] < 1 {
            return Err(refused());
        }
        *size += side[0] + side[1];
    }
    Ok((sides, padded))
}

/// Sizes of a result of resampling, for an input of sizes (N, C, ...).
///
/// # Errors
/// `NoKernel` for what PyTorch refuses.
pub fn resampled(from: &[i64], size: &[i64], axes: usize) -> Result<Dims, Wrong> {
    if from.len() != axes + 2 || size.len() != axes || from[1..].iter().chain(size).any(|&size| size < 1) {
        return Err(Wrong::NoKernel(format!("resampling of {from:?} to {size:?}")));
    }
    let mut sizes = Dims::from_slice(&from[..2]);
    sizes.extend_from_slice(size);
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;
    use rand::Rng;
    use wave32_ops::ElementType;

    #[test]
    fn images_have_four_dimensions() {
        let of = |sizes: &[u64], axes| {
            let plain = View::contiguous(64, ElementType::F32, sizes).unwrap();
            images(&plain, axes).map(|view| (view.sizes().to_vec(), view.strides().to_vec()))
        };
        assert_eq!(of(&[2, 3, 4, 5], 2), Ok((vec![2, 3, 4, 5], vec![60, 20, 5, 1])));
        assert_eq!(of(&[3, 4, 5], 2), Ok((vec![1, 3, 4, 5], vec![0, 20, 5, 1])));
        assert_eq!(of(&[2, 3, 5], 1), Ok((vec![2, 3, 1, 5], vec![15, 5, 0, 1])));
        assert_eq!(of(&[3, 5], 1), Ok((vec![1, 3, 1, 5], vec![0, 5, 0, 1])));
        for (sizes, axes) in [(&[5][..], 1), (&[1, 2, 3, 5], 1), (&[4, 5], 2), (&[1, 2, 3, 4, 5], 2)] {
            assert!(matches!(of(sizes, axes), Err(Wrong::NoKernel(_))), "{sizes:?}");
        }
    }

    /// Windows counted one by one: each starts a stride after the last, and fits into the padded image. In ceil mode it may
    /// stick out by less than a stride, but starts in the image or in what pads it in front.
    fn naive_windows(size: i64, [kernel, stride, padding, dilation]: [i64; 4], ceil: bool) -> i64 {
        let (reach, end) = (dilation * (kernel - 1) + 1, size + padding);
        let fits = |start: &i64| match ceil {
            true => *start < size && start + reach < end + stride,
            false => start + reach <= end,
        };
        (0..).map(|at| at * stride - padding).take_while(fits).count() as i64
    }

    #[test]
    fn windows_slide_over_the_padded_image() {
        seeded(|random| {
            let size = random.random_range(1..12);
            let all = [
                random.random_range(1..5),
                random.random_range(1..4),
                random.random_range(0..3),
                random.random_range(1..3),
            ];
            let ceil = random.random_bool(0.5);
            let [kernel, stride, padding, dilation] = all;
            let found =
                sliding(&[2, 3, 1, size], [&[1, kernel], &[1, stride], &[0, padding], &[1, dilation]], ceil);
            let is_wide = padding > (dilation * (kernel - 1) + 1) / 2;
            let count = naive_windows(size, all, ceil);
            match found {
                Ok((_, sizes)) => {
                    assert_eq!((sizes[3], is_wide), (count, false), "{size} by {all:?}, ceil {ceil}")
                }
                Err(_) => assert!(is_wide || count == 0, "{size} by {all:?}, ceil {ceil}: {count}"),
            }
        });
    }

    #[test]
    fn windows_that_are_not_told_are_the_kernel_s() {
        let (windows, sizes) = sliding(&[3, 9, 9], [&[3], &[], &[], &[]], false).unwrap();
        let expected = Windows::Sliding { kernel: [3; 2], stride: [3; 2], padding: [0; 2], dilation: [1; 2] };
        assert_eq!((windows, &sizes[..]), (expected, &[3, 3, 3][..]));
        for kernel in [&[0][..], &[-1], &[1, 2, 3]] {
            assert!(matches!(sliding(&[3, 9, 9], [kernel, &[1], &[], &[]], false), Err(Wrong::NoKernel(_))));
        }
        for sizes in [&[9, 9][..], &[0, 9, 9], &[1, 0, 9, 9], &[1, 1, 1, 9, 9]] {
            assert!(
                matches!(sliding(sizes, [&[3], &[], &[], &[]], false), Err(Wrong::NoKernel(_))),
                "{sizes:?}"
            );
        }
    }

    #[test]
    fn adaptive_windows_make_the_size_that_is_wanted() {
        assert_eq!(adaptive(&[2, 3, 8, 9], &[4]).as_deref(), Ok(&[2, 3, 4, 4][..]));
        assert_eq!(adaptive(&[3, 8, 9], &[0, 5]).as_deref(), Ok(&[3, 0, 5][..]));
        for (sizes, wanted) in
            [(&[8, 9][..], &[4][..]), (&[3, 0, 9], &[4]), (&[3, 8, 9], &[-1]), (&[3, 8, 9], &[1, 2, 3])]
        {
            assert!(matches!(adaptive(sizes, wanted), Err(Wrong::NoKernel(_))), "{sizes:?} to {wanted:?}");
        }
    }

    /// An element of a padded row is one of the row's: the nearest, or its mirror image, which is there where the padding is
    /// shorter than the row.
    #[test]
    fn sides_are_added_or_cropped() {
        seeded(|random| {
            let (h, w) = (random.random_range(1..6), random.random_range(1..6));
            let flat: Vec<i64> = (0..4).map(|_| random.random_range(-3..6)).collect();
            let padding = if random.random_bool(0.5) { Padding::Reflect } else { Padding::Replicate };
            let row = |size: i64, [before, after]: [i64; 2]| -> Option<i64> {
                let mirrored = |at: i64| {
                    if at < 0 {
                        -at
                    } else if at >= size {
                        2 * (size - 1) - at
                    } else {
                        at
                    }
                };
                let places = -before..size + after;
                // Also where nothing is left of it.
                let reflects = [-before, size + after - 1]
                    .into_iter()
                    .all(|at| (0..size).contains(&mirrored(at)) || (0..size).contains(&at));
                let length = places.end - places.start;
                (length > 0 && (padding == Padding::Replicate || reflects)).then_some(length)
            };
            let (first, second) = (row(h, [flat[2], flat[3]]), row(w, [flat[0], flat[1]]));
            let found = padded(padding, &[2, 3, h, w], &flat);
            let expected = first.zip(second).map(|(h, w)| {
                (vec![[flat[2], flat[3]], [flat[0], flat[1]]], Dims::from_slice(&[2, 3, h, w]))
            });
            assert_eq!(found.ok(), expected, "{padding:?} {h} {w} by {flat:?}");
        });
        for (sizes, flat) in
            [(&[2, 3][..], &[1][..]), (&[2], &[1, 1]), (&[0, 3], &[1, 1]), (&[2, 3, 4, 5], &[1, 1])]
        {
            assert!(
                matches!(padded(Padding::Replicate, sizes, flat), Err(Wrong::NoKernel(_))),
                "{sizes:?} by {flat:?}"
            );
        }
    }

    #[test]
    fn resampling_keeps_images_and_channels() {
        assert_eq!(resampled(&[2, 3, 4, 5], &[8, 9], 2).as_deref(), Ok(&[2, 3, 8, 9][..]));
        assert_eq!(resampled(&[0, 3, 4], &[8], 1).as_deref(), Ok(&[0, 3, 8][..]));
        for (from, size) in [
            (&[2, 3, 4][..], &[8, 9][..]),
            (&[2, 0, 4, 5], &[8, 9]),
            (&[2, 3, 4, 5], &[8, 0]),
            (&[2, 3, 4, 5], &[8]),
        ] {
            assert!(matches!(resampled(from, size, 2), Err(Wrong::NoKernel(_))), "{from:?} to {size:?}");
        }
    }
}
