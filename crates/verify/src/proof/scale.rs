//! A smaller problem of the same kind, for devices on which the real one would take minutes.

use wave32_problem::{ConvProblem, ConvSpec, MatmulProblem, MatmulSpec, Matrices, Problem};

/// The problem itself if it needs `max_flops` at most; else one that does, or that cannot be made
/// smaller.
///
/// Height and width shrink first, in steps of 8 so that what is left over of a tile stays the same, and
/// never below what keeps filter, stride and both borders in play; then the batch; then the channels,
/// by halves, with the group structure kept.
///
/// Of products of dense matrices the longest side is halved, in steps of 8; others stay.
pub fn scaled(problem: &Problem, max_flops: u64) -> Problem {
    match problem {
        Problem::Conv(problem) => scaled_conv(problem, max_flops).into(),
        Problem::Matmul(problem) => scaled_matmul(problem, max_flops).into(),
    }
}

fn scaled_matmul(problem: &MatmulProblem, max_flops: u64) -> MatmulProblem {
    let mut best = problem.clone();
    while best.flops() > max_flops {
        let s = best.spec();
        let orders = [s.a.order(best.a_sizes()), s.b.order(best.b_sizes())];
        let ([Some(a), Some(b)], None) = (orders, s.added) else { break };
        let most = s.m.max(s.k).max(s.n);
        let half = |size: i64| if size == most { (size / 2 + 4) / 8 * 8 } else { size };
        let (m, k, n) = (half(s.m), half(s.k), half(s.n));
        let (a, b) = (Matrices::dense(a, m, k), Matrices::dense(b, k, n));
        let Ok(smaller) = MatmulProblem::new(MatmulSpec { m, k, n, a, b, ..s.clone() }) else { break };
        if smaller.flops() >= best.flops() {
            break;
        }
        best = smaller;
    }
    best
}

fn scaled_conv(problem: &ConvProblem, max_flops: u64) -> ConvProblem {
    let mut best = problem.clone();
    while best.flops() > max_flops {
        let Some(smaller) = step(best.spec()).into_iter().find_map(|spec| ConvProblem::new(spec).ok()) else {
            break;
        };
        best = smaller;
    }
    best
}

/// Smallest size of an axis that still has an interior: the filter's extent, with stride, thrice.
fn least(s: &ConvSpec, axis: usize) -> i64 {
    let extent = ([s.r, s.s][axis] - 1) * s.dilation[axis] + 1;
    let wanted = if s.transposed { 5 } else { (extent + 2 * s.stride[axis]).max(7) };
    wanted.min([s.h, s.w][axis])
}

/// The next smaller problems, best first.
fn step(s: &ConvSpec) -> Vec<ConvSpec> {
    let mut found = Vec::new();
    // About two thirds each time, in steps of 8; the longer side first keeps the shape near to square.
    let shrunk = |size: i64, least: i64| {
        let cut = ((size / 3) / 8 * 8).max(8);
        if size - cut >= least { Some(size - cut) } else { None }
    };
    let (h, w) = (shrunk(s.h, least(s, 0)), shrunk(s.w, least(s, 1)));
    match (h, w) {
        (Some(h), Some(w)) if s.h == s.w => found.push(ConvSpec { h, w, ..s.clone() }),
        (Some(h), _) if s.h >= s.w => found.push(ConvSpec { h, ..s.clone() }),
        (_, Some(w)) => found.push(ConvSpec { w, ..s.clone() }),
        (Some(h), None) => found.push(ConvSpec { h, ..s.clone() }),
        (None, None) => {}
    }
    if s.n > 1 {
        found.push(ConvSpec { n: s.n / 2, ..s.clone() });
    }
    let (cg, kg) = (s.c / s.groups, s.k / s.groups);
    let narrower_k = ConvSpec { k: s.k / 2, ..s.clone() };
    let narrower_c = ConvSpec { c: s.c / 2, ..s.clone() };
    if kg >= cg && kg % 2 == 0 && kg > 8 {
        found.push(narrower_k);
    } else if cg % 2 == 0 && cg > 8 {
        found.push(narrower_c);
    } else if kg % 2 == 0 && kg > 8 {
        found.push(narrower_k);
    } else if s.groups % 2 == 0 && s.groups > 8 {
        found.push(ConvSpec { groups: s.groups / 2, c: s.c / 2, k: s.k / 2, ..s.clone() });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(problem: &ConvProblem, max_flops: u64) -> ConvProblem {
        scaled_conv(problem, max_flops)
    }

    #[test]
    fn products_shrink_and_keep_their_order() {
        let p: Problem = "gemm -b 3 -m 4096 -k 512 -n 1000 -v 1".parse().unwrap();
        let q = super::scaled(&p, 10_000_000);
        assert!(q.flops() <= 10_000_000 && q.flops() > 1_000_000, "{q}");
        assert!(q.to_string().contains("-b 3") && q.to_string().contains("-u 0 -v 1"), "{q}");
        assert_eq!(super::scaled(&p, u64::MAX), p);
    }

    fn problem(spec: ConvSpec) -> ConvProblem {
        ConvProblem::new(spec).unwrap()
    }

    #[test]
    fn small_problems_stay() {
        let p = problem(ConvSpec { c: 3, k: 4, h: 20, w: 20, r: 3, s: 3, ..ConvSpec::default() });
        assert_eq!(scaled(&p, p.flops()), p);
    }

    #[test]
    fn big_ones_fit_and_keep_their_kind() {
        let specs = [
            ConvSpec { c: 512, k: 512, h: 512, w: 512, r: 3, s: 3, pad: [1, 1], ..ConvSpec::default() },
            ConvSpec {
                n: 32,
                c: 64,
                k: 64,
                h: 56,
                w: 56,
                r: 7,
                s: 7,
                pad: [3, 3],
                stride: [2, 2],
                ..ConvSpec::default()
            },
            ConvSpec {
                c: 960,
                k: 960,
                groups: 960,
                h: 512,
                w: 512,
                r: 3,
                s: 3,
                pad: [1, 1],
                ..ConvSpec::default()
            },
            ConvSpec {
                c: 1024,
                k: 512,
                h: 28,
                w: 28,
                r: 2,
                s: 2,
                stride: [2, 2],
                transposed: true,
                ..ConvSpec::default()
            },
        ];
        for spec in specs {
            let p = problem(spec);
            let q = scaled(&p, 10_000_000);
            assert!(q.flops() <= 10_000_000, "{q}");
            assert!(q.flops() > 500_000, "{q} is smaller than it need be");
            assert_eq!(
                (q.spec().r, q.spec().stride, q.spec().pad),
                (p.spec().r, p.spec().stride, p.spec().pad)
            );
            assert_eq!(q.is_depthwise(), p.is_depthwise());
            assert_eq!(q.spec().h % 8, p.spec().h % 8, "{q}");
        }
    }

    #[test]
    fn what_cannot_shrink_comes_back() {
        let p = problem(ConvSpec { c: 7, k: 7, h: 7, w: 7, r: 3, s: 3, ..ConvSpec::default() });
        assert_eq!(scaled(&p, 1), p);
    }
}
