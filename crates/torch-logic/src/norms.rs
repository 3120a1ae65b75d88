//! The rows that normalisations work on.

use crate::{Dims, Wrong};
use wave32_ops::NormShape;

/// Rows and elements of a layer norm of a tensor of `sizes`, and the sizes of its statistics.
///
/// # Errors
/// `NoKernel` for what PyTorch refuses, which the CPU words.
pub fn layer(sizes: &[i64], normalized: &[i64]) -> Result<(NormShape, Dims), Wrong> {
    let front = sizes.len().checked_sub(normalized.len()).filter(|&front| sizes[front..] == *normalized);
    let front = front
        .filter(|_| !normalized.is_empty())
        .ok_or_else(|| Wrong::NoKernel(format!("a layer norm of {sizes:?} over {normalized:?}")))?;
    let rows = sizes[..front].iter().product::<i64>() as u64;
    let mut statistics = Dims::from_slice(&sizes[..front]);
    statistics.extend(normalized.iter().map(|_| 1));
    Ok((NormShape::layer(rows, normalized.iter().product::<i64>() as u64), statistics))
}

/// The shape of a group norm of a tensor of `sizes`.
///
/// # Errors
/// `NoKernel` for what PyTorch refuses, which the CPU words.
pub fn group(sizes: &[i64], [batch, channels, inner, groups]: [i64; 4]) -> Result<NormShape, Wrong> {
    let fits = groups > 0
        && channels % groups == 0
        && batch >= 0
        && inner >= 0
        && batch * channels * inner == sizes.iter().product::<i64>();
    if !fits {
        return Err(Wrong::NoKernel(format!("a group norm of {sizes:?} by {groups} groups")));
    }
    Ok(NormShape::group(batch as u64, channels as u64, inner as u64, groups as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{seeded, sizes as some_sizes};
    use rand::Rng;

    /// Statistics broadcast to the tensor, one of each for a row.
    #[test]
    fn a_layer_norm_has_a_row_for_each_of_its_statistics() {
        seeded(|random| {
            let sizes = some_sizes(random, 4);
            let front = random.random_range(0..=sizes.len());
            let Ok((shape, statistics)) = layer(&sizes, &sizes[front..]) else {
                return assert_eq!(front, sizes.len());
            };
            assert_eq!(statistics.iter().product::<i64>() as u64, shape.rows, "{sizes:?} from {front}");
            assert_eq!((shape.rows * shape.channels * shape.inner) as i64, sizes.iter().product::<i64>());
            assert_eq!(crate::sizes::broadcast([&statistics, &sizes]), Ok(sizes));
        });
        for normalized in [&[][..], &[3], &[5, 4], &[2, 3, 4, 5]] {
            assert!(matches!(layer(&[3, 4, 5], normalized), Err(Wrong::NoKernel(_))), "{normalized:?}");
        }
    }

    #[test]
    fn a_group_norm_has_a_row_for_each_group_of_an_image() {
        seeded(|random| {
            let (batch, groups, each) =
                (random.random_range(0..4), random.random_range(1..4), random.random_range(1..4));
            let [h, w] = [random.random_range(0..4), random.random_range(1..4)];
            let sizes = [batch, groups * each, h, w];
            let shape = group(&sizes, [batch, groups * each, h * w, groups]).unwrap();
            assert_eq!((shape.rows, shape.rows_per_item), ((batch * groups) as u64, groups as u64));
            assert_eq!((shape.channels, shape.inner), (each as u64, (h * w) as u64));
        });
        for wrong in [[2, 4, 9, 3], [2, 4, 8, 2], [2, 4, 9, 0], [-2, -4, 9, 2]] {
            assert!(matches!(group(&[2, 4, 3, 3], wrong), Err(Wrong::NoKernel(_))), "{wrong:?}");
        }
    }
}
