//! Softmax, LRN, tensor operations and reductions against loops in f64.

mod common;

use common::{FLOATS, Id, NONE, ONE, Type, ZERO, at, card, index};
use std::ffi::{c_int, c_void};

type In = *const c_void;
type Io = *mut c_void;

unsafe extern "C" {
    fn miopenSoftmaxForward_V2(
        handle: Id,
        alpha: *const f32,
        x_desc: Id,
        x: In,
        beta: *const f32,
        y_desc: Id,
        y: Io,
        algorithm: c_int,
        mode: c_int,
    ) -> c_int;
    fn miopenSoftmaxBackward_V2(
        handle: Id,
        alpha: *const f32,
        y_desc: Id,
        y: In,
        dy_desc: Id,
        dy: In,
        beta: *const f32,
        dx_desc: Id,
        dx: Io,
        algorithm: c_int,
        mode: c_int,
    ) -> c_int;
    fn miopenCreateLRNDescriptor(descriptor: *mut Id) -> c_int;
    fn miopenDestroyLRNDescriptor(descriptor: Id) -> c_int;
    fn miopenSetLRNDescriptor(descriptor: Id, mode: c_int, n: u32, alpha: f64, beta: f64, k: f64) -> c_int;
    fn miopenLRNGetWorkSpaceSize(y: Id, bytes: *mut usize) -> c_int;
    fn miopenLRNForward(
        handle: Id,
        descriptor: Id,
        alpha: *const f32,
        x_desc: Id,
        x: In,
        beta: *const f32,
        y_desc: Id,
        y: Io,
        backward: bool,
        workspace: Io,
    ) -> c_int;
    fn miopenLRNBackward(
        handle: Id,
        descriptor: Id,
        alpha: *const f32,
        y_desc: Id,
        y: In,
        dy_desc: Id,
        dy: In,
        x_desc: Id,
        x: In,
        beta: *const f32,
        dx_desc: Id,
        dx: Io,
        workspace: In,
    ) -> c_int;
    fn miopenOpTensor(
        handle: Id,
        op: c_int,
        alpha1: *const f32,
        a_desc: Id,
        a: In,
        alpha2: *const f32,
        b_desc: Id,
        b: In,
        beta: *const f32,
        c_desc: Id,
        c: Io,
    ) -> c_int;
    fn miopenSetTensor(handle: Id, y_desc: Id, y: Io, alpha: In) -> c_int;
    fn miopenScaleTensor(handle: Id, y_desc: Id, y: Io, alpha: In) -> c_int;
    fn miopenTransformTensor(
        handle: Id,
        alpha: *const f32,
        x_desc: Id,
        x: In,
        beta: *const f32,
        y_desc: Id,
        y: Io,
    ) -> c_int;
    fn miopenCreateReduceTensorDescriptor(descriptor: *mut Id) -> c_int;
    fn miopenDestroyReduceTensorDescriptor(descriptor: Id) -> c_int;
    fn miopenSetReduceTensorDescriptor(
        descriptor: Id,
        op: c_int,
        dtype: c_int,
        nan: c_int,
        indices: c_int,
        indices_type: c_int,
    ) -> c_int;
    fn miopenGetReductionIndicesSize(handle: Id, descriptor: Id, a: Id, c: Id, bytes: *mut usize) -> c_int;
    fn miopenReduceTensor(
        handle: Id,
        descriptor: Id,
        indices: Io,
        indices_bytes: usize,
        workspace: Io,
        bytes: usize,
        alpha: *const f32,
        a_desc: Id,
        a: In,
        beta: *const f32,
        c_desc: Id,
        c: Io,
    ) -> c_int;
}

/// Elements by the softmax that they are of.
fn rows([n, c, h, w]: [usize; 4], over_images: bool) -> Vec<Vec<usize>> {
    let all = 0..n * c * h * w;
    let (groups, group): (usize, Box<dyn Fn(usize) -> usize>) = match over_images {
        true => (n, Box::new(move |at| at / (c * h * w))),
        false => (n * h * w, Box::new(move |at| at / (c * h * w) * h * w + at % (h * w))),
    };
    let mut rows = vec![Vec::new(); groups];
    all.for_each(|at| rows[group(at)].push(at));
    rows
}

#[test]
fn softmax_of_every_kind() {
    let Some(mut card) = card() else { return };
    for turn in 0..18 {
        let (dtype, algorithm, mode) = (FLOATS[turn % 3], (turn / 3 % 3) as c_int, (turn / 9) as c_int);
        let sizes = [card.size(1, 3), card.size(1, 7), card.size(1, 4), card.size(1, 4)];
        let [order, other] = [card.layout(), card.layout()];
        let (alpha, beta) = if turn % 2 == 0 { (1.0_f32, 0.0_f32) } else { (1.5, 0.5) };
        let what = format!(
            "softmax {algorithm} {mode} {dtype:?} {sizes:?}, alpha {alpha} beta {beta}, seed {}",
            card.seed
        );
        let (x, xs) = card.random(dtype, &sizes, &order, [-4.0, 4.0]);
        let (y, mut ys) = card.random(dtype, &sizes, &other, [-1.0, 1.0]);
        let (dy, dys) = card.random(dtype, &sizes, &order, [-1.0, 1.0]);
        let (dx, mut dxs) = card.random(dtype, &sizes, &other, [-1.0, 1.0]);
        let mut expected = vec![0.0; xs.len()];
        for row in rows(sizes, mode == 0) {
            let sum: f64 = row.iter().map(|&at| xs[at].exp()).sum();
            for &at in &row {
                expected[at] = if algorithm == 2 { xs[at] - sum.ln() } else { xs[at].exp() / sum };
            }
        }
        if beta == 0.0 {
            y.write(&vec![f64::NAN; xs.len()]);
            ys.fill(0.0);
        }
        // SAFETY: living descriptors and tensors that fit them.
        let done = unsafe {
            miopenSoftmaxForward_V2(
                card.handle,
                &alpha,
                x.desc,
                x.data,
                &beta,
                y.desc,
                y.data,
                algorithm,
                mode,
            )
        };
        assert_eq!(done, 0, "{what}");
        let blend = |new: f64, old: f64| f64::from(alpha) * new + f64::from(beta) * old;
        y.expect(&expected.iter().zip(&ys).map(|(&e, &old)| blend(e, old)).collect::<Vec<_>>(), &what);
        // The gradient, of the result itself.
        y.write(&expected);
        let result: Vec<_> = expected.iter().map(|&e| dtype.round(e)).collect();
        for row in rows(sizes, mode == 0) {
            let dot: f64 =
                row.iter().map(|&at| dys[at] * if algorithm == 2 { 1.0 } else { result[at] }).sum();
            for &at in &row {
                expected[at] = match algorithm {
                    2 => dys[at] - result[at].exp() * dot,
                    _ => result[at] * (dys[at] - dot),
                };
            }
        }
        // SAFETY: as above.
        let done = unsafe {
            miopenSoftmaxBackward_V2(
                card.handle,
                &alpha,
                y.desc,
                y.data,
                dy.desc,
                dy.data,
                &beta,
                dx.desc,
                dx.data,
                algorithm,
                mode,
            )
        };
        assert_eq!(done, 0, "{what}");
        if beta == 0.0 {
            dxs.fill(0.0);
        }
        let expected: Vec<_> = expected.iter().zip(&dxs).map(|(&e, &old)| blend(e, old)).collect();
        dx.near(&expected, 2.0 * dtype.tolerance(), &format!("gradient of {what}"));
    }
}

#[test]
fn lrn_in_both_directions() {
    let Some(mut card) = card() else { return };
    let mut descriptor = 0;
    // SAFETY: the call writes one number.
    assert_eq!(unsafe { miopenCreateLRNDescriptor(&mut descriptor) }, 0);
    for turn in 0..12 {
        let (dtype, across) = (FLOATS[turn % 3], turn % 2 == 1);
        let sizes = [card.size(1, 2), card.size(1, 7), card.size(1, 6), card.size(1, 6)];
        let (n, order) = (card.size(1, 5), card.layout());
        let (alpha, beta, k) = (0.8, 0.75, 1.5);
        let what = format!("LRN over {n}, across {across}, {dtype:?} {sizes:?}, seed {}", card.seed);
        let (x, xs) = card.random(dtype, &sizes, &order, [-2.0, 2.0]);
        let (dy, dys) = card.random(dtype, &sizes, &order, [-1.0, 1.0]);
        let (y, dx) = (card.poisoned(dtype, &sizes, &order), card.poisoned(dtype, &sizes, &order));
        let workspace = card.plain(Type::F32, &sizes);
        let (mut bytes, one, zero) = (0, at(&ONE), at(&ZERO));
        // SAFETY: living descriptors and tensors that fit them.
        unsafe {
            let mode = c_int::from(across);
            assert_eq!(miopenSetLRNDescriptor(descriptor, mode, n as u32, alpha, beta, k), 0);
            assert_eq!(miopenLRNGetWorkSpaceSize(y.desc, &mut bytes), 0);
            assert_eq!(bytes, xs.len() * 4);
            let (h, ws) = (card.handle, workspace.data);
            let done = miopenLRNForward(h, descriptor, one, x.desc, x.data, zero, y.desc, y.data, true, ws);
            assert_eq!(done, 0, "{what}");
            let done = miopenLRNBackward(
                h, descriptor, one, y.desc, y.data, dy.desc, dy.data, x.desc, x.data, zero, dx.desc, dx.data,
                ws,
            );
            assert_eq!(done, 0, "{what}");
        }
        // All elements within a window that starts `before` elements ahead.
        let window = |[b, c, r, s]: [usize; 4], before: usize| {
            let along = |at: usize, size: usize| at.saturating_sub(before)..(at + n - before).min(size);
            let whole = |at: usize| at..at + 1;
            let (cs, rs, ss) = match across {
                true => (along(c, sizes[1]), whole(r), whole(s)),
                false => (whole(c), along(r, sizes[2]), along(s, sizes[3])),
            };
            let mut all = Vec::new();
            for c in cs {
                for r in rs.clone() {
                    all.extend(ss.clone().map(|s| index(sizes, [b, c, r, s])));
                }
            }
            all
        };
        let share = alpha / if across { n as f64 } else { (n * n) as f64 };
        let places: Vec<[usize; 4]> = (0..xs.len())
            .map(|at| {
                let [_, c, h, w] = sizes;
                [at / (c * h * w), at / (h * w) % c, at / w % h, at % w]
            })
            .collect();
        let scale: Vec<f64> = places
            .iter()
            .map(|&p| k + share * window(p, (n - 1) / 2).iter().map(|&at| xs[at] * xs[at]).sum::<f64>())
            .collect();
        let ys: Vec<f64> = xs.iter().zip(&scale).map(|(x, scale)| x * scale.powf(-beta)).collect();
        y.expect(&ys, &what);
        let expected: Vec<f64> = places
            .iter()
            .enumerate()
            .map(|(at, &p)| {
                let sum: f64 = window(p, n / 2).iter().map(|&at| ys[at] * dys[at] / scale[at]).sum();
                dys[at] * scale[at].powf(-beta) - 2.0 * beta * share * xs[at] * sum
            })
            .collect();
        dx.near(&expected, 2.0 * dtype.tolerance(), &format!("gradient of {what}"));
    }
    // SAFETY: made above.
    assert_eq!(unsafe { miopenDestroyLRNDescriptor(descriptor) }, 0);
}

#[test]
fn operations_on_tensors() {
    let Some(mut card) = card() else { return };
    for turn in 0..16 {
        let (dtype, op) = ([Type::F32, Type::F16, Type::BF16, Type::F64][turn / 4], (turn % 4) as c_int);
        let sizes = [card.size(1, 3), card.size(1, 4), card.size(1, 5), card.size(1, 6)];
        let b_sizes = sizes.map(|size| if card.size(0, 1) == 0 { 1 } else { size });
        let [alpha1, alpha2, beta] = if turn % 3 == 0 { [1.0_f32, 1.0, 0.0] } else { [-0.5, 1.25, 0.75] };
        let what =
            format!("op {op} {dtype:?} {sizes:?} {b_sizes:?} {alpha1} {alpha2} {beta}, seed {}", card.seed);
        let [order, other] = [card.layout(), card.layout()];
        let (a, av) = card.random(dtype, &sizes, &order, [-2.0, 2.0]);
        let (b, bv) = card.random(dtype, &b_sizes, &[0, 1, 2, 3], [-2.0, 2.0]);
        let (c, mut cv) = card.random(dtype, &sizes, &other, [-2.0, 2.0]);
        if beta == 0.0 {
            c.write(&vec![f64::NAN; av.len()]);
            cv.fill(0.0);
        }
        let h = card.handle;
        // SAFETY: living descriptors and tensors that fit them.
        let done = unsafe {
            miopenOpTensor(h, op, &alpha1, a.desc, a.data, &alpha2, b.desc, b.data, &beta, c.desc, c.data)
        };
        assert_eq!(done, 0, "{what}");
        let expected: Vec<f64> = (0..av.len())
            .map(|at| {
                let [_, ch, h, w] = sizes;
                let place = [at / (ch * h * w), at / (h * w) % ch, at / w % h, at % w];
                let fold = [0, 1, 2, 3].map(|dim| place[dim].min(b_sizes[dim] - 1));
                let (a, b) = (f64::from(alpha1) * av[at], f64::from(alpha2) * bv[index(b_sizes, fold)]);
                let made = match op {
                    0 => a + b,
                    1 => a * b,
                    2 => a.min(b),
                    _ => a.max(b),
                };
                made + f64::from(beta) * cv[at]
            })
            .collect();
        c.expect(&expected, &what);

        // Fill, scale, convert the layout.
        let half = half::f16::from_f32(1.5).to_bits();
        let brain = half::bf16::from_f32(1.5).to_bits();
        let number: In = match dtype {
            Type::F32 => (&1.5_f32 as *const f32).cast(),
            Type::F64 => (&1.5_f64 as *const f64).cast(),
            Type::F16 => (&raw const half).cast(),
            _ => (&raw const brain).cast(),
        };
        let (filled, moved) = (card.poisoned(dtype, &sizes, &other), card.poisoned(dtype, &sizes, &other));
        // SAFETY: as above; the number is of the tensor's type.
        unsafe {
            assert_eq!(miopenSetTensor(h, filled.desc, filled.data, number), 0, "{what}");
            assert_eq!(miopenScaleTensor(h, filled.desc, filled.data, number), 0, "{what}");
            let done = miopenTransformTensor(h, at(&ONE), a.desc, a.data, at(&ZERO), moved.desc, moved.data);
            assert_eq!(done, 0, "{what}");
        }
        filled.expect(&vec![2.25; av.len()], &format!("fill: {what}"));
        moved.near(&av, 0.0, &format!("copy: {what}"));
        // SAFETY: as above.
        let done = unsafe { miopenTransformTensor(h, &2.0, a.desc, a.data, &0.5, moved.desc, moved.data) };
        assert_eq!(done, 0, "{what}");
        moved.expect(&av.iter().map(|a| 2.5 * a).collect::<Vec<_>>(), &format!("scaled copy: {what}"));
    }
}

#[test]
fn reductions_and_indices() {
    let Some(mut card) = card() else { return };
    let mut descriptor = 0;
    // SAFETY: the call writes one number.
    assert_eq!(unsafe { miopenCreateReduceTensorDescriptor(&mut descriptor) }, 0);
    for turn in 0..32 {
        let (op, dtype) = ((turn % 8) as c_int, FLOATS[turn / 8 % 3]);
        let sizes = [card.size(1, 4), card.size(2, 4), card.size(1, 5), card.size(1, 5)];
        let mut c_sizes = sizes.map(|size| if card.size(0, 1) == 0 { 1 } else { size });
        c_sizes[1] = 1;
        let indexed = (2..=4).contains(&op) && turn % 3 != 0;
        let (alpha, beta) = if turn % 2 == 0 { (1.0_f32, 0.0_f32) } else { (0.5, 2.0) };
        let ignores_nan = (2..=4).contains(&op) && turn % 5 == 0;
        let what = format!(
            "reduction {op} {dtype:?} {sizes:?} to {c_sizes:?}, indices {indexed}, NaN ignored {ignores_nan}, {alpha} {beta}, seed {}",
            card.seed
        );
        let order = card.layout();
        let (a, mut av) = card.random(dtype, &sizes, &order, [-1.5, 1.5]);
        if ignores_nan {
            av[0] = f64::NAN;
            a.write(&av);
        }
        let (c, mut cv) = card.random(dtype, &c_sizes, &[0, 1, 2, 3], [-1.0, 1.0]);
        if beta == 0.0 {
            c.write(&vec![f64::NAN; cv.len()]);
            cv.fill(0.0);
        }
        let places = card.plain(Type::I32, &c_sizes);
        let mut bytes = usize::MAX;
        // SAFETY: living descriptors and tensors that fit them.
        unsafe {
            let (nan, wanted) = (c_int::from(!ignores_nan), c_int::from(indexed));
            assert_eq!(miopenSetReduceTensorDescriptor(descriptor, op, 1, nan, wanted, 0), 0);
            let h = card.handle;
            assert_eq!(miopenGetReductionIndicesSize(h, descriptor, a.desc, c.desc, &mut bytes), 0);
            assert_eq!(bytes, if indexed { cv.len() * 4 } else { 0 }, "{what}");
            let indices = if indexed { places.data } else { NONE };
            let done = miopenReduceTensor(
                h, descriptor, indices, bytes, NONE, 0, &alpha, a.desc, a.data, &beta, c.desc, c.data,
            );
            assert_eq!(done, 0, "{what}");
        }
        // The elements of each result, in order.
        let mut groups = vec![Vec::new(); cv.len()];
        for (at, &value) in av.iter().enumerate() {
            let [_, ch, h, w] = sizes;
            let place = [at / (ch * h * w), at / (h * w) % ch, at / w % h, at % w];
            let fold = [0, 1, 2, 3].map(|dim| if c_sizes[dim] == 1 { 0 } else { place[dim] });
            groups[index(c_sizes, fold)].push(value);
        }
        let best = |group: &[f64]| {
            let key = |v: f64| match op {
                2 => -v,
                3 => v,
                _ => v.abs(),
            };
            let mut best = None;
            for (at, &v) in group.iter().enumerate().filter(|(_, v)| !v.is_nan()) {
                if best.is_none_or(|b: usize| key(v) > key(group[b])) {
                    best = Some(at);
                }
            }
            best
        };
        if groups.iter().any(|group| best(group).is_none()) {
            continue; // Nothing but the NaN: no answer is right.
        }
        let reduced = |group: &[f64]| match op {
            0 => group.iter().sum(),
            1 => group.iter().product(),
            2 | 3 => group[best(group).unwrap()],
            4 => group[best(group).unwrap()].abs(),
            5 => group.iter().sum::<f64>() / group.len() as f64,
            6 => group.iter().map(|v| v.abs()).sum(),
            _ => group.iter().map(|v| v * v).sum::<f64>().sqrt(),
        };
        let (alpha, beta) = (f64::from(alpha), f64::from(beta));
        let expected: Vec<f64> =
            groups.iter().zip(&cv).map(|(group, old)| alpha * reduced(group) + beta * old).collect();
        // Terms may cancel; each rounds all the same.
        let largest = |all: &[f64]| all.iter().fold(1e-6_f64, |most, one| most.max(one.abs()));
        let terms: Vec<f64> = groups
            .iter()
            .zip(&cv)
            .map(|(group, old)| {
                alpha * reduced(&group.iter().map(|v| v.abs()).collect::<Vec<_>>()).abs() + (beta * old).abs()
            })
            .collect();
        let tolerance = 2.0 * dtype.tolerance() * (largest(&terms) / largest(&expected)).max(1.0);
        c.near(&expected, tolerance, &what);
        if indexed {
            let expected: Vec<f64> = groups.iter().map(|group| best(group).unwrap() as f64).collect();
            places.near(&expected, 0.0, &format!("indices of {what}"));
        }
    }
    // SAFETY: made above.
    assert_eq!(unsafe { miopenDestroyReduceTensorDescriptor(descriptor) }, 0);
}
