//! The convolution that an operator's arguments ask for.

use crate::{ScalarType, Wrong};
use wave32_ops::{ElementType, storage};
use wave32_problem::{ConvProblem, ConvSpec};

/// What both passes are told of the geometry.
#[derive(Debug, Clone, Copy)]
pub struct Geometry<'a> {
    /// By axis.
    pub stride: &'a [i64],
    /// By axis.
    pub padding: &'a [i64],
    /// By axis.
    pub dilation: &'a [i64],
    /// Whether the image grows.
    pub transposed: bool,
    /// By axis; of a transposed convolution.
    pub output_padding: &'a [i64],
    /// Groups of channels.
    pub groups: i64,
}

/// A per-axis list as height and width; one axis is the width of an image of height 1.
fn pair(values: &[i64], height: i64) -> Result<[i64; 2], Wrong> {
    match *values {
        [w] => Ok([height, w]),
        [h, w] => Ok([h, w]),
        _ => Err(Wrong::NoKernel(format!("convolution over {} axes", values.len()))),
    }
}

/// Sizes as N C H W.
fn image(sizes: &[i64]) -> Result<[i64; 4], Wrong> {
    match *sizes {
        [n, c, l] => Ok([n, c, 1, l]),
        [n, c, h, w] => Ok([n, c, h, w]),
        ref other => Err(Wrong::NoKernel(format!("convolution of a tensor of sizes {other:?}"))),
    }
}

/// The forward convolution of an input and a weight, each by sizes and type.
///
/// # Errors
/// `Invalid`, as PyTorch words it, for channels or types that do not go together; `NoKernel` for what the engine does not
/// take.
pub fn spec(
    (input, of_input): (&[i64], ScalarType),
    (weight, of_weight): (&[i64], ScalarType),
    geometry: &Geometry<'_>,
) -> Result<ConvSpec, Wrong> {
    let [n, c, h, w] = image(input)?;
    let [first, second, r, s] = image(weight)?;
    let k = if geometry.transposed { second * geometry.groups } else { first };
    let taken = if geometry.transposed { first } else { second * geometry.groups };
    if taken != c {
        let given =
            if geometry.transposed { "transposed=1".into() } else { format!("groups={}", geometry.groups) };
        return Err(Wrong::Invalid(format!(
            "Given {given}, weight of size {weight:?}, expected input{input:?} to have {taken} channels, but got {c} channels instead"
        )));
    }
    if of_input != of_weight {
        let (a, b) = (of_input.name(), of_weight.name());
        return Err(Wrong::Invalid(format!("Input type ({a}) and weight type ({b}) should be the same")));
    }
    // PyTorch takes them up to the dilation; the convolution whose gradient this is has no such shape.
    let is_wide = |(extra, stride): (&i64, &i64)| extra >= stride && *extra > 0;
    if geometry.transposed && geometry.output_padding.iter().zip(geometry.stride).any(is_wide) {
        return Err(Wrong::NoKernel("an output padding that is not smaller than the stride".into()));
    }
    let element = ElementType::try_from(of_input)?;
    Ok(ConvSpec {
        dtype: storage(element).map_err(|refused| Wrong::NoKernel(refused.to_string()))?,
        n,
        c,
        h,
        w,
        k,
        r,
        s,
        stride: pair(geometry.stride, 1)?,
        pad: pair(geometry.padding, 0)?,
        dilation: pair(geometry.dilation, 1)?,
        groups: geometry.groups,
        transposed: geometry.transposed,
        output_pad: if geometry.transposed { pair(geometry.output_padding, 0)? } else { [0, 0] },
        ..ConvSpec::default()
    })
}

/// The checked problem. What is wrong, or stranger than the engine takes, the CPU says or does.
///
/// # Errors
/// `NoKernel`.
pub fn problem(spec: ConvSpec) -> Result<ConvProblem, Wrong> {
    ConvProblem::new(spec).map_err(|error| Wrong::NoKernel(format!("convolution: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;
    use rand::Rng;

    const PLAIN: Geometry<'_> = Geometry {
        stride: &[1, 1],
        padding: &[0, 0],
        dilation: &[1, 1],
        transposed: false,
        output_padding: &[0, 0],
        groups: 1,
    };

    /// How often a filter fits into a padded line, counted; a transposed convolution's line is one on which the filter fits
    /// as often as the input is long.
    fn naive_output(size: i64, filter: i64, [stride, pad, dilation]: [i64; 3]) -> i64 {
        let reach = dilation * (filter - 1) + 1;
        (0..).map(|at| at * stride).take_while(|start| start + reach <= size + 2 * pad).count() as i64
    }

    #[test]
    fn a_problem_has_the_sizes_that_torch_documents() {
        seeded(|random| {
            let groups = random.random_range(1..4);
            let (c, k) = (groups * random.random_range(1..4), groups * random.random_range(1..4));
            let [h, w] = [random.random_range(3..9), random.random_range(3..9)];
            let [r, s] = [random.random_range(1..4), random.random_range(1..4)];
            let mut each = |range: std::ops::Range<i64>| {
                [random.random_range(range.clone()), random.random_range(range)]
            };
            let (stride, padding, dilation) = (each(1..4), each(0..2), each(1..3));
            let geometry =
                Geometry { stride: &stride, padding: &padding, dilation: &dilation, groups, ..PLAIN };
            let (input, weight) = ([2, c, h, w], [k, c / groups, r, s]);
            let spec = spec((&input, ScalarType::F32), (&weight, ScalarType::F32), &geometry).unwrap();
            let lines = [(h, r, 0), (w, s, 1)].map(|(size, filter, at)| {
                naive_output(size, filter, [stride[at], padding[at], dilation[at]])
            });
            let Ok(problem) = problem(spec) else {
                return assert!(lines.contains(&0), "{input:?} by {weight:?}");
            };
            assert_eq!([problem.out_h(), problem.out_w()], lines, "{input:?} by {weight:?}, {geometry:?}");
            let spec = problem.spec();
            assert_eq!((spec.n, spec.c, spec.k, spec.groups), (2, c, k, groups));
        });
    }

    #[test]
    fn a_transposed_convolution_undoes_the_sizes_of_another() {
        seeded(|random| {
            let (c, k, groups) =
                (random.random_range(1..4), random.random_range(1..4), random.random_range(1..3));
            let (size, filter) = (random.random_range(1..9), random.random_range(1..4));
            let (stride, padding) = (random.random_range(1..4), random.random_range(0..2));
            let extra = random.random_range(0..stride);
            let geometry = Geometry {
                stride: &[1, stride],
                padding: &[0, padding],
                transposed: true,
                output_padding: &[0, extra],
                groups,
                ..PLAIN
            };
            let (input, weight) = ([1, c * groups, 1, size], [c * groups, k, 1, filter]);
            let spec = spec((&input, ScalarType::F16), (&weight, ScalarType::F16), &geometry).unwrap();
            assert_eq!((spec.k, spec.c), (k * groups, c * groups));
            let Ok(problem) = problem(spec) else { return };
            assert_eq!(
                naive_output(problem.out_w(), filter, [stride, padding, 1]),
                size,
                "{input:?} by {weight:?}, {geometry:?}"
            );
        });
    }

    #[test]
    fn a_signal_is_an_image_of_height_1() {
        let signal = Geometry { stride: &[2], padding: &[1], dilation: &[3], output_padding: &[0], ..PLAIN };
        let found = spec((&[2, 3, 20], ScalarType::BF16), (&[4, 3, 5], ScalarType::BF16), &signal).unwrap();
        let image = Geometry { stride: &[1, 2], padding: &[0, 1], dilation: &[1, 3], ..PLAIN };
        let expected = spec((&[2, 3, 1, 20], ScalarType::BF16), (&[4, 3, 1, 5], ScalarType::BF16), &image);
        assert_eq!(Ok(found), expected);
    }

    #[test]
    fn channels_and_types_that_do_not_go_together_are_told_in_torch_s_words() {
        let f32 = ScalarType::F32;
        let told = |input: &[i64], weight: &[i64], of: ScalarType, geometry| {
            spec((input, f32), (weight, of), &geometry).unwrap_err()
        };
        assert_eq!(
            told(&[1, 4, 5, 5], &[6, 3, 3, 3], f32, PLAIN),
            Wrong::Invalid(
                "Given groups=1, weight of size [6, 3, 3, 3], expected input[1, 4, 5, 5] to have 3 channels, but got 4 \
                 channels instead"
                    .into()
            )
        );
        assert_eq!(
            told(&[1, 3, 5, 5], &[6, 3, 3, 3], ScalarType::F64, PLAIN),
            Wrong::Invalid("Input type (float32) and weight type (float64) should be the same".into())
        );
        let transposed = Geometry { transposed: true, output_padding: &[1, 0], ..PLAIN };
        assert!(matches!(told(&[1, 3, 5, 5], &[3, 6, 3, 3], f32, transposed), Wrong::NoKernel(_)));
        let volume = Geometry { stride: &[1, 1, 1], ..PLAIN };
        assert!(matches!(told(&[1, 3, 5, 5], &[6, 3, 3, 3], f32, volume), Wrong::NoKernel(_)));
        assert!(matches!(told(&[1, 3, 5, 5, 5], &[6, 3, 3, 3, 3], f32, volume), Wrong::NoKernel(_)));
        let doubles = spec((&[1, 3, 5, 5], ScalarType::F64), (&[6, 3, 3, 3], ScalarType::F64), &PLAIN);
        assert!(matches!(doubles, Err(Wrong::NoKernel(_))));
    }
}
