//! From a failing problem to a small one that fails the same way.

use wave32_problem::{
    Activation, ConvProblem, ConvSpec, Epilogue, Factor, Layout, MatmulProblem, MatmulSpec, Matrices,
    MatrixOrder, Pass, Problem,
};

/// Greedily takes the first simpler problem that `still_fails`, until none does or it says to stop
/// (`None`).
pub fn shrink(problem: &Problem, mut still_fails: impl FnMut(&Problem) -> Option<bool>) -> Problem {
    let mut best = problem.clone();
    'again: loop {
        let candidates = match &best {
            Problem::Conv(p) => simpler(p).into_iter().map(Problem::Conv).collect::<Vec<_>>(),
            Problem::Matmul(p) => simpler_products(p).into_iter().map(Problem::Matmul).collect(),
        };
        for candidate in candidates {
            match still_fails(&candidate) {
                Some(true) => {
                    best = candidate;
                    continue 'again;
                }
                Some(false) => {}
                None => return best,
            }
        }
        return best;
    }
}

/// Simpler problems, boldest first: features dropped, then sizes halved, then lowered by one.
fn simpler(p: &ConvProblem) -> Vec<ConvProblem> {
    let s = p.spec();
    let mut specs = vec![
        ConvSpec { transposed: false, output_pad: [0, 0], ..s.clone() },
        ConvSpec { epilogue: Epilogue::default(), ..s.clone() },
        ConvSpec { layout: Layout::Nchw, ..s.clone() },
        ConvSpec { groups: 1, ..s.clone() },
        ConvSpec { dilation: [1, 1], ..s.clone() },
        ConvSpec { stride: [1, 1], output_pad: [0, 0], ..s.clone() },
        ConvSpec { stride: [1, s.stride[1]], output_pad: [0, 0], ..s.clone() },
        ConvSpec { stride: [s.stride[0], 1], output_pad: [0, 0], ..s.clone() },
        ConvSpec { pad: [0, 0], ..s.clone() },
        ConvSpec { output_pad: [0, 0], ..s.clone() },
        ConvSpec { h: 1, r: 1, pad: [0, s.pad[1]], ..s.clone() },
    ];
    type Less = fn(i64) -> i64;
    let ways: [Less; 2] = [|v| v / 2, |v| v - 1];
    for less in ways {
        specs.extend([
            ConvSpec { n: less(s.n), ..s.clone() },
            ConvSpec { h: less(s.h), w: less(s.w), ..s.clone() },
            ConvSpec { h: less(s.h), ..s.clone() },
            ConvSpec { w: less(s.w), ..s.clone() },
            ConvSpec { c: less(s.c / s.groups) * s.groups, ..s.clone() },
            ConvSpec { k: less(s.k / s.groups) * s.groups, ..s.clone() },
            ConvSpec {
                groups: less(s.groups),
                c: less(s.groups) * (s.c / s.groups),
                k: less(s.groups) * (s.k / s.groups),
                ..s.clone()
            },
            ConvSpec { r: less(s.r), ..s.clone() },
            ConvSpec { s: less(s.s), ..s.clone() },
            ConvSpec { pad: [less(s.pad[0]).max(0), s.pad[1]], ..s.clone() },
            ConvSpec { pad: [s.pad[0], less(s.pad[1]).max(0)], ..s.clone() },
        ]);
    }
    let valid = specs.into_iter().filter_map(|spec| ConvProblem::new(spec).ok());
    // Strictly less of something each time, so the descent ends.
    valid.filter(|q| weight(q) < weight(p)).collect()
}

/// Simpler products: nothing added, dense, then smaller.
fn simpler_products(p: &MatmulProblem) -> Vec<MatmulProblem> {
    let s = p.spec();
    let row = MatrixOrder::RowMajor;
    let dense = |s: &MatmulSpec| MatmulSpec {
        a: Matrices::dense(row, s.m, s.k),
        b: Matrices::dense(row, s.k, s.n),
        ..s.clone()
    };
    let mut specs = vec![
        MatmulSpec { added: None, ..s.clone() },
        MatmulSpec { alpha: Factor(1.0), ..s.clone() },
        MatmulSpec { activation: Activation::None, ..s.clone() },
        MatmulSpec { pass: Pass::Forward, ..s.clone() },
        dense(s),
    ];
    for less in [|v: i64| v / 2, |v: i64| v - 1] {
        // Strides stay, so that what is left lies as before.
        specs.extend([
            MatmulSpec { batch: less(s.batch), ..s.clone() },
            MatmulSpec { m: less(s.m), ..s.clone() },
            MatmulSpec { k: less(s.k), ..s.clone() },
            MatmulSpec { n: less(s.n), ..s.clone() },
        ]);
    }
    let weight = |p: &MatmulProblem| {
        let s = p.spec();
        let odd = [s.a.order(p.a_sizes()), s.b.order(p.b_sizes())]
            .iter()
            .filter(|order| **order != Some(row))
            .count();
        s.batch
            + s.m
            + s.k
            + s.n
            + i64::from(s.alpha != Factor(1.0))
            + i64::from(s.activation != Activation::None)
            + i64::from(s.added.is_some())
            + odd as i64
    };
    let valid = specs.into_iter().filter_map(|spec| MatmulProblem::new(spec).ok());
    valid.filter(|q| weight(q) < weight(p)).collect()
}

/// A measure of complexity that every step lowers.
fn weight(p: &ConvProblem) -> i64 {
    let s = p.spec();
    let sizes = s.n + s.c + s.h + s.w + s.k + s.r + s.s + s.groups;
    let geometry = [s.stride, s.pad, s.dilation, s.output_pad].iter().flatten().sum::<i64>();
    let features = [s.transposed, s.layout == Layout::Nhwc, s.epilogue.bias, !s.epilogue.is_none()];
    sizes + geometry + features.iter().filter(|f| **f).count() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_matters_is_left() {
        let spec =
            ConvSpec { n: 3, c: 24, k: 40, h: 37, w: 29, r: 5, s: 3, groups: 4, ..ConvSpec::default() };
        let spec = ConvSpec { stride: [2, 3], pad: [2, 1], layout: Layout::Nhwc, ..spec };
        let p: Problem = ConvProblem::new(spec).unwrap().into();
        // Fails wherever the height stride is 2 and a group has 5 output channels or more.
        let fails = |p: &Problem| {
            let s = p.conv().unwrap().spec();
            s.stride[0] == 2 && s.k / s.groups >= 5
        };
        let small = shrink(&p, |q| Some(fails(q)));
        assert!(fails(&small));
        let s = small.conv().unwrap().spec();
        assert_eq!((s.n, s.c, s.k, s.h, s.w, s.r, s.s, s.groups), (1, 1, 5, 1, 1, 1, 1, 1), "{small}");
        assert_eq!(s.layout, Layout::Nchw);
    }

    #[test]
    fn of_a_product_what_matters_is_left() {
        let p: Problem = "gemm -b 3 -m 40 -k 33 -n 70 -u 1 -B 2 --b_strides 9000,2,130".parse().unwrap();
        let small = shrink(&p, |q| match q {
            Problem::Matmul(q) => Some(q.spec().k >= 7 && q.spec().b.strides[2] == 130),
            Problem::Conv(_) => None,
        });
        let Problem::Matmul(small) = small else { panic!("a convolution") };
        let s = small.spec();
        assert_eq!((s.batch, s.m, s.k, s.n, s.added), (1, 1, 7, 2, None), "{small}");
    }

    #[test]
    fn it_stops_when_told() {
        let p: Problem =
            ConvProblem::new(ConvSpec { c: 64, h: 64, w: 64, ..ConvSpec::default() }).unwrap().into();
        let mut asked = 0;
        let small = shrink(&p, |_| {
            asked += 1;
            (asked < 3).then_some(true)
        });
        assert_eq!(asked, 3);
        assert!(small != p);
    }
}
