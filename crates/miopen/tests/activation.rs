//! Activations against their formulas in f64.

mod common;

use common::{FLOATS, Id, ONE, Type, ZERO, at, card};
use std::ffi::{c_int, c_void};

unsafe extern "C" {
    fn miopenCreateActivationDescriptor(descriptor: *mut Id) -> c_int;
    fn miopenDestroyActivationDescriptor(descriptor: Id) -> c_int;
    fn miopenSetActivationDescriptor(descriptor: Id, mode: c_int, alpha: f64, beta: f64, gamma: f64)
    -> c_int;
    fn miopenActivationForward(
        handle: Id,
        descriptor: Id,
        alpha: *const f32,
        x_desc: Id,
        x: *const c_void,
        beta: *const f32,
        y_desc: Id,
        y: *mut c_void,
    ) -> c_int;
    fn miopenActivationBackward(
        handle: Id,
        descriptor: Id,
        alpha: *const f32,
        y_desc: Id,
        y: *const c_void,
        dy_desc: Id,
        dy: *const c_void,
        x_desc: Id,
        x: *const c_void,
        beta: *const f32,
        dx_desc: Id,
        dx: *mut c_void,
    ) -> c_int;
}

/// The function and its derivative at x.
fn oracle(mode: c_int, [alpha, beta, gamma]: [f64; 3], x: f64) -> (f64, f64) {
    let step = |yes: bool| f64::from(u8::from(yes));
    match mode {
        0 => (x, 1.0),
        1 => {
            let y = 1.0 / (1.0 + (-x).exp());
            (y, y * (1.0 - y))
        }
        2 => {
            let t = (alpha * x).tanh();
            (beta * t, alpha * beta * (1.0 - t * t))
        }
        3 => (x.max(0.0), step(x > 0.0)),
        4 => ((1.0 + x.exp()).ln(), 1.0 / (1.0 + (-x).exp())),
        5 => (x.abs(), if x > 0.0 { 1.0 } else { -1.0 }),
        6 => {
            let base = alpha + beta * x;
            if base <= 1e-6 { (0.0, 0.0) } else { (base.powf(gamma), gamma * beta * base.powf(gamma - 1.0)) }
        }
        7 => (x.max(0.0).min(alpha), step(x > 0.0 && x <= alpha)),
        8 => {
            if x > 0.0 {
                (x, 1.0)
            } else {
                (alpha * x, alpha)
            }
        }
        9 => {
            if x > 0.0 {
                (x, 1.0)
            } else {
                (alpha * x.exp_m1(), alpha * x.exp())
            }
        }
        _ => (x.min(beta).max(alpha), step(x > alpha && x <= beta)),
    }
}

#[test]
fn each_mode_forward_and_backward() {
    let Some(mut card) = card() else { return };
    let mut descriptor = 0;
    // SAFETY: the call writes one number.
    assert_eq!(unsafe { miopenCreateActivationDescriptor(&mut descriptor) }, 0);
    for (turn, (mode, numbers)) in [
        (0, [0.0; 3]),
        (1, [0.0; 3]),
        (2, [1.0, 1.0, 0.0]),
        (2, [0.7, 1.5, 0.0]),
        (3, [0.0; 3]),
        (4, [0.0; 3]),
        (5, [0.0; 3]),
        (6, [0.5, 0.25, 1.5]),
        (7, [1.25, 0.0, 0.0]),
        (8, [0.125, 0.0, 0.0]),
        (9, [0.75, 0.0, 0.0]),
        (10, [-0.5, 1.25, 0.0]),
    ]
    .into_iter()
    .enumerate()
    {
        for dtype in FLOATS {
            let what = format!("mode {mode} {numbers:?} {dtype:?}, seed {}", card.seed);
            let sizes = [card.size(1, 2), card.size(1, 3), card.size(1, 5), card.size(1, 9)];
            let [order, other] = [card.layout(), card.layout()];
            let (x, mut xs) = card.random(dtype, &sizes, &order, [-3.0, 3.0]);
            if turn % 2 == 0 {
                // Bounds themselves.
                (xs[0], *xs.last_mut().unwrap()) = (0.0, 1.25);
                x.write(&xs);
            }
            let (dy, dys) = card.random(dtype, &sizes, &other, [-2.0, 2.0]);
            let (y, dx) = (card.poisoned(dtype, &sizes, &other), card.poisoned(dtype, &sizes, &order));
            let [alpha, beta, gamma] = numbers;
            let (one, zero) = (at(&ONE), at(&ZERO));
            // SAFETY: living descriptors and tensors that fit them.
            unsafe {
                assert_eq!(miopenSetActivationDescriptor(descriptor, mode, alpha, beta, gamma), 0);
                let done = miopenActivationForward(
                    card.handle,
                    descriptor,
                    one,
                    x.desc,
                    x.data,
                    zero,
                    y.desc,
                    y.data,
                );
                assert_eq!(done, 0, "{what}");
            }
            let expected: Vec<_> = xs.iter().map(|&x| oracle(mode, numbers, x)).collect();
            y.expect(&expected.iter().map(|e| e.0).collect::<Vec<_>>(), &what);
            // SAFETY: as above.
            let done = unsafe {
                miopenActivationBackward(
                    card.handle,
                    descriptor,
                    one,
                    y.desc,
                    y.data,
                    dy.desc,
                    dy.data,
                    x.desc,
                    x.data,
                    zero,
                    dx.desc,
                    dx.data,
                )
            };
            assert_eq!(done, 0, "{what}");
            let expected: Vec<_> = expected.iter().zip(&dys).map(|(e, dy)| e.1 * dy).collect();
            // The slope comes from y, which was rounded.
            dx.near(&expected, 3.0 * dtype.tolerance(), &format!("gradient of {what}"));
        }
    }
    let (x, _) = card.random(Type::F32, &[1, 2, 3, 4], &[0, 1, 2, 3], [-1.0, 1.0]);
    let y = card.plain(Type::F32, &[1, 2, 3, 4]);
    let (one, two, zero) = (at(&ONE), at(&2.0), at(&ZERO));
    let wrong = card.plain(Type::F32, &[1, 2, 3, 3]);
    // SAFETY: what is wrong here is what the call must find out.
    unsafe {
        let forward = |handle, descriptor, alpha, x_desc, data, beta, y_desc| {
            miopenActivationForward(handle, descriptor, alpha, x_desc, data, beta, y_desc, y.data)
        };
        let (h, data) = (card.handle, x.data.cast_const());
        assert_eq!(forward(h, descriptor, two, x.desc, data, zero, y.desc), 3, "alpha 2");
        assert_eq!(forward(h, descriptor, std::ptr::null(), x.desc, data, zero, y.desc), 3, "alpha null");
        assert_eq!(forward(h, descriptor, one, x.desc, common::nothing(), zero, y.desc), 3, "x null");
        assert_eq!(forward(h, x.desc, one, x.desc, data, zero, y.desc), 3, "not an activation");
        assert_eq!(forward(h, descriptor, one, x.desc, data, zero, wrong.desc), 3, "sizes");
        assert_eq!(forward(0, descriptor, one, x.desc, data, zero, y.desc), 3, "handle null");
        assert_eq!(miopenSetActivationDescriptor(descriptor, 11, 0.0, 0.0, 0.0), 3);
        assert_eq!(miopenDestroyActivationDescriptor(descriptor), 0);
        assert_eq!(forward(h, descriptor, one, x.desc, data, zero, y.desc), 3, "destroyed");
        assert_eq!(miopenDestroyActivationDescriptor(descriptor), 3);
    }
}
