//! Random problems over everything a problem can be; one in eight is a product of matrices. The same seed gives the same problems.

use rand::Rng;
use rand::seq::IndexedRandom;
use wave32_problem::{
    Activation, Added, ConvProblem, ConvSpec, DType, Direction, Epilogue, Factor, Layout, MatmulProblem,
    MatmulSpec, Matrices, Pass, Problem,
};

/// FLOP of the largest problem made: small enough that hundreds take a minute anywhere.
const MAX_FLOPS: u64 = 8_000_000;

/// `count` problems in the given directions and types; products count as forward.
pub fn problems(count: usize, seed: u64, directions: &[Direction], dtypes: &[DType]) -> Vec<Problem> {
    let mut rng = crate::proof::inputs::rng(seed, 77);
    let mut found = Vec::with_capacity(count);
    // Most draws make sense; the bound is there for filters that allow none.
    for _ in 0..count.saturating_mul(1000) {
        if found.len() >= count {
            break;
        }
        if directions.contains(&Direction::Forward) && rng.random_bool(0.125) {
            let Some(spec) = draw_product(&mut rng, dtypes) else { break };
            found.extend(
                MatmulProblem::new(spec).ok().filter(|p| p.flops() <= MAX_FLOPS).map(Problem::Matmul),
            );
            continue;
        }
        let Some(spec) = draw(&mut rng, directions, dtypes) else { break };
        found.extend(ConvProblem::new(spec).ok().filter(|p| p.flops() <= MAX_FLOPS).map(Problem::Conv));
    }
    found
}

/// A channel count: around tile sizes, odd, prime, or 1.
fn channels(rng: &mut impl Rng) -> i64 {
    const TELLING: [i64; 16] = [1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 61, 64, 97];
    if rng.random_bool(0.7) { TELLING[rng.random_range(0..TELLING.len())] } else { rng.random_range(1..130) }
}

/// Matrices in order, transposed, with gaps, from another element on, or all the same one.
fn matrices(rng: &mut impl Rng, [rows, columns]: [i64; 2]) -> Matrices {
    let dense = rows * columns;
    let (row, column) = match rng.random_range(0..5) {
        0 | 1 => (columns, 1),
        2 => (1, rows),
        3 => (2 * columns + 3, 2),
        _ => (1, rows + rng.random_range(1..9)),
    };
    let first = if rng.random_bool(0.2) { rng.random_range(1..20) } else { 0 };
    let batch = match rng.random_range(0..6) {
        0 => 0,
        1 => dense + 2 * (rows + columns) * (row + column),
        // Dense ones overlap nothing; those with gaps interleave, which reading allows.
        _ => dense,
    };
    Matrices { first, strides: [batch, row, column] }
}

fn any_activation(rng: &mut impl Rng) -> Activation {
    Activation::ALL[rng.random_range(0..Activation::ALL.len())]
}

fn draw_product(rng: &mut impl Rng, dtypes: &[DType]) -> Option<MatmulSpec> {
    let dtype = *dtypes.choose(rng)?;
    let batch = if rng.random_bool(0.6) { 1 } else { rng.random_range(2..7) };
    let mut side = || if rng.random_bool(0.3) { rng.random_range(1..17) } else { rng.random_range(1..300) };
    let (m, n) = (side(), side());
    let k = match rng.random_range(0..4) {
        0 => rng.random_range(1..17),
        1 => rng.random_range(300..3000),
        _ => rng.random_range(1..300),
    };
    let (a, b) = (matrices(rng, [m, k]), matrices(rng, [k, n]));
    let factor = |rng: &mut dyn rand::RngCore| [1.0, 1.0, -1.0, 2.0][(rng.next_u32() % 4) as usize];
    let alpha = Factor(factor(rng));
    let added = rng.random_bool(0.4).then(|| {
        let matrices = if rng.random_bool(0.5) {
            Matrices { first: 0, strides: [0, 0, 1] }
        } else {
            matrices(rng, [m, n])
        };
        Added { beta: Factor(factor(rng)), matrices }
    });
    let activation = if rng.random_bool(0.3) { any_activation(rng) } else { Activation::None };
    let pass = if rng.random_bool(0.3) { Pass::Backward } else { Pass::Forward };
    Some(MatmulSpec { dtype, batch, m, k, n, a, b, alpha, added, activation, pass })
}

/// A height or width.
fn extent(rng: &mut impl Rng) -> i64 {
    match rng.random_range(0..10) {
        0 => 1,
        1..=3 => rng.random_range(1..9),
        4..=8 => rng.random_range(8..40),
        _ => rng.random_range(40..140),
    }
}

fn draw(rng: &mut impl Rng, directions: &[Direction], dtypes: &[DType]) -> Option<ConvSpec> {
    let direction = *directions.choose(rng)?;
    let dtype = *dtypes.choose(rng)?;
    let layout = if rng.random_bool(0.3) { Layout::Nhwc } else { Layout::Nchw };
    let one_dimensional = rng.random_bool(0.12);
    let filters: [i64; 8] = [1, 1, 2, 3, 3, 4, 5, 7];
    let mut filter = || filters[rng.random_range(0..filters.len())];
    let (r, s) = if one_dimensional { (1, filter()) } else { (filter(), filter()) };
    let mut pair = |ones: f64, range: std::ops::Range<i64>| {
        if rng.random_bool(ones) {
            return [range.start; 2];
        }
        let first = rng.random_range(range.clone());
        // Different on the two axes in half of the cases: swapped axes show.
        [first, if rng.random_bool(0.5) { first } else { rng.random_range(range) }]
    };
    let stride = pair(0.5, 1..4);
    let dilation = pair(0.7, 1..4);
    let mut pad = pair(0.3, 0..4);
    if one_dimensional {
        pad[0] = 0;
    }
    let (c, k, groups) = match rng.random_range(0..10) {
        0 | 1 => {
            let c = channels(rng);
            (c, c * rng.random_range(1..3), c) // depthwise, with a multiplier at times
        }
        2 | 3 => {
            let g = rng.random_range(2..9);
            (g * rng.random_range(1..9), g * rng.random_range(1..9), g)
        }
        _ => (channels(rng), channels(rng), 1),
    };
    let transposed = rng.random_bool(0.15);
    let output_pad = if transposed { stride.map(|u| rng.random_range(0..u)) } else { [0, 0] };
    let fused = direction == Direction::Forward && rng.random_bool(0.3);
    let epilogue =
        Epilogue { bias: fused, activation: if fused { any_activation(rng) } else { Activation::None } };
    let h = if one_dimensional { 1 } else { extent(rng) };
    let (n, w) = (rng.random_range(1..4), extent(rng));
    Some(ConvSpec {
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_drawn() {
        let found = problems(2000, 5, &Direction::ALL, &DType::ALL);
        assert_eq!(found.len(), 2000);
        let any = |what: &str, test: fn(&ConvSpec) -> bool| {
            let count = found.iter().filter_map(Problem::conv).filter(|p| test(p.spec())).count();
            assert!(count >= 20, "{what}: {count} of 2000");
        };
        let products: Vec<&MatmulSpec> = found
            .iter()
            .filter_map(|p| match p {
                Problem::Matmul(p) => Some(p.spec()),
                Problem::Conv(_) => None,
            })
            .collect();
        let of_products = |what: &str, test: fn(&&&MatmulSpec) -> bool| {
            let count = products.iter().filter(test).count();
            assert!(count >= 10, "{what}: {count} of {}", products.len());
        };
        of_products("batches", |s| s.batch > 1);
        of_products("biases", |s| s.added.is_some_and(|added| added.matrices.strides[1] == 0));
        of_products("activations", |s| s.activation != Activation::None);
        of_products("long sums", |s| s.k > 1000);
        of_products("small sides", |s| s.m <= 16);
        of_products("offsets", |s| s.a.first > 0);
        any("nhwc", |s| s.layout == Layout::Nhwc);
        any("transposed", |s| s.transposed);
        any("output padding", |s| s.output_pad != [0, 0]);
        any("one-dimensional", |s| s.h == 1 && s.r == 1);
        any("depthwise", |s| s.groups > 1 && s.groups == s.c);
        any("grouped", |s| s.groups > 1 && s.groups < s.c);
        any("bias and relu", |s| s.epilogue.bias && s.epilogue.activation == Activation::Relu);
        any("unequal strides", |s| s.stride[0] != s.stride[1]);
        any("dilation", |s| s.dilation != [1, 1]);
        any("prime channels", |s| s.c == 31 || s.c == 61 || s.c == 97);
        any("bf16", |s| s.dtype == DType::BF16);
    }

    #[test]
    fn a_seed_reproduces() {
        let make = |seed| problems(20, seed, &Direction::ALL, &[DType::F32]);
        assert_eq!(make(3), make(3));
        assert_ne!(make(3), make(4));
        assert!(problems(5, 1, &[], &DType::ALL).is_empty());
    }
}
