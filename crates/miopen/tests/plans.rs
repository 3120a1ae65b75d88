//! Fusion plans and Find 2.0 against a convolution in f64; dropout; calls that are refused.

mod common;

use common::{Card, FLOATS, Id, NONE, ONE, Tensor, Type, ZERO, at, card, index};
use std::ffi::{c_int, c_void};

type In = *const c_void;
type Io = *mut c_void;

#[repr(C)]
struct Argument {
    id: u32,
    descriptor: *const Id,
    buffer: Io,
}

#[rustfmt::skip]
unsafe extern "C" {
    fn miopenCreateConvolutionDescriptor(conv: *mut Id) -> c_int;
    fn miopenDestroyConvolutionDescriptor(conv: Id) -> c_int;
    fn miopenInitConvolutionDescriptor(
        conv: Id, mode: c_int, ph: c_int, pw: c_int, sh: c_int, sw: c_int, dh: c_int, dw: c_int,
    ) -> c_int;
    fn miopenCreateActivationDescriptor(descriptor: *mut Id) -> c_int;
    fn miopenSetActivationDescriptor(descriptor: Id, mode: c_int, alpha: f64, beta: f64, gamma: f64) -> c_int;
    fn miopenDestroyActivationDescriptor(descriptor: Id) -> c_int;
    fn miopenCreateFusionPlan(plan: *mut Id, direction: c_int, input: Id) -> c_int;
    fn miopenDestroyFusionPlan(plan: Id) -> c_int;
    fn miopenCompileFusionPlan(handle: Id, plan: Id) -> c_int;
    fn miopenCreateOpConvForward(plan: Id, op: *mut Id, conv: Id, w: Id) -> c_int;
    fn miopenCreateOpBiasForward(plan: Id, op: *mut Id, bias: Id) -> c_int;
    fn miopenCreateOpBatchNormInference(plan: Id, op: *mut Id, mode: c_int, parameters: Id) -> c_int;
    fn miopenCreateOpActivationForward(plan: Id, op: *mut Id, mode: c_int) -> c_int;
    fn miopenCreateOperatorArgs(arguments: *mut Id) -> c_int;
    fn miopenDestroyOperatorArgs(arguments: Id) -> c_int;
    fn miopenSetOpArgsConvForward(arguments: Id, op: Id, a: *const f32, b: *const f32, w: In) -> c_int;
    fn miopenSetOpArgsBiasForward(arguments: Id, op: Id, a: *const f32, b: *const f32, bias: In) -> c_int;
    fn miopenSetOpArgsBatchNormInference(
        arguments: Id, op: Id, a: *const f32, b: *const f32, scale: In, bias: In, mean: In, variance: In, epsilon: f64,
    ) -> c_int;
    fn miopenSetOpArgsActivForward(
        arguments: Id, op: Id, a: *const f32, b: *const f32, alpha: f64, beta: f64, gamma: f64,
    ) -> c_int;
    fn miopenExecuteFusionPlan(handle: Id, plan: Id, x_desc: Id, x: In, y_desc: Id, y: Io, arguments: Id) -> c_int;
    fn miopenConvolutionBiasActivationForward(
        handle: Id, alpha1: *const f32, x_desc: Id, x: In, w_desc: Id, w: In, conv: Id, algorithm: c_int, workspace: Io,
        bytes: usize, alpha2: *const f32, z_desc: Id, z: In, bias_desc: Id, bias: In, activation: Id, y_desc: Id, y: Io,
    ) -> c_int;
    fn miopenCreateConvProblem(problem: *mut Id, conv: Id, direction: c_int) -> c_int;
    fn miopenDestroyProblem(problem: Id) -> c_int;
    fn miopenSetProblemTensorDescriptor(problem: Id, id: u32, descriptor: Id) -> c_int;
    fn miopenFindSolutions(
        handle: Id, problem: Id, options: Id, solutions: *mut Id, count: *mut usize, most: usize,
    ) -> c_int;
    fn miopenGetSolutionWorkspaceSize(solution: Id, bytes: *mut usize) -> c_int;
    fn miopenGetSolutionSize(solution: Id, bytes: *mut usize) -> c_int;
    fn miopenSaveSolution(solution: Id, data: *mut u8) -> c_int;
    fn miopenLoadSolution(solution: *mut Id, data: *const u8, bytes: usize) -> c_int;
    fn miopenDestroySolution(solution: Id) -> c_int;
    fn miopenRunSolution(
        handle: Id, solution: Id, count: usize, arguments: *const Argument, workspace: Io, bytes: usize,
    ) -> c_int;
    fn miopenCreateDropoutDescriptor(descriptor: *mut Id) -> c_int;
    fn miopenDestroyDropoutDescriptor(descriptor: Id) -> c_int;
    fn miopenSetDropoutDescriptor(
        descriptor: Id, handle: Id, chance: f32, states: Io, bytes: usize, seed: u64, mask: bool, evolves: bool, rng: c_int,
    ) -> c_int;
    fn miopenDropoutForward(
        handle: Id, descriptor: Id, noise: Id, x_desc: Id, x: In, y_desc: Id, y: Io, reserve: Io, bytes: usize,
    ) -> c_int;
    fn miopenDropoutBackward(
        handle: Id, descriptor: Id, noise: Id, dy_desc: Id, dy: In, dx_desc: Id, dx: Io, reserve: Io, bytes: usize,
    ) -> c_int;
    fn miopenCreateRNNDescriptor(descriptor: *mut Id) -> c_int;
    fn miopenCTCLoss() -> c_int;
}

/// A convolution of stride 1 with its operands.
struct Case {
    conv: Id,
    x: Tensor,
    w: Tensor,
    xs: Vec<f64>,
    ws: Vec<f64>,
    sizes: [usize; 4],
    filter: [usize; 4],
    outs: [usize; 4],
    order: [usize; 4],
    pad: usize,
    what: String,
}

impl Drop for Case {
    fn drop(&mut self) {
        // SAFETY: made for this case.
        unsafe { miopenDestroyConvolutionDescriptor(self.conv) };
    }
}

impl Case {
    fn new(card: &mut Card, dtype: Type) -> Self {
        let sizes = [card.size(1, 2), card.size(1, 5), card.size(3, 7), card.size(3, 7)];
        let (size, order) = (card.size(1, 3), card.layout());
        let (filter, pad) = ([card.size(1, 6), sizes[1], size, size], size / 2);
        let out = |at: usize| sizes[at] + 2 * pad + 1 - size;
        let outs = [sizes[0], filter[0], out(2), out(3)];
        let (x, xs) = card.random(dtype, &sizes, &order, [-1.0, 1.0]);
        let (w, ws) = card.random(dtype, &filter, &order, [-1.0, 1.0]);
        let mut conv = 0;
        // SAFETY: the call writes one number.
        unsafe {
            assert_eq!(miopenCreateConvolutionDescriptor(&mut conv), 0);
            let p = pad as c_int;
            assert_eq!(miopenInitConvolutionDescriptor(conv, 0, p, p, 1, 1, 1, 1), 0);
        }
        let what = format!("{dtype:?} {sizes:?} with {filter:?} in order {order:?}, seed {}", card.seed);
        Self { conv, x, w, xs, ws, sizes, filter, outs, order, pad, what }
    }

    /// Calls `each` with the index in y, x, w of every product.
    fn products(&self, mut each: impl FnMut(usize, usize, usize)) {
        let [n, k, oh, ow] = self.outs;
        let [_, c, r, s] = self.filter;
        for at in 0..n * k * oh * ow {
            let (image, channel, row, column) =
                (at / (k * oh * ow), at / (oh * ow) % k, at / ow % oh, at % ow);
            for tap in 0..c * r * s {
                let (from, down, right) = (tap / (r * s), tap / s % r, tap % s);
                let (h, w) = (row + down, column + right);
                let inside = |at: usize, size: usize| at >= self.pad && at - self.pad < size;
                if inside(h, self.sizes[2]) && inside(w, self.sizes[3]) {
                    let x = index(self.sizes, [image, from, h - self.pad, w - self.pad]);
                    each(at, x, index(self.filter, [channel, from, down, right]));
                }
            }
        }
    }

    fn forward(&self) -> Vec<f64> {
        let mut y = vec![0.0; self.outs.iter().product()];
        self.products(|to, x, w| y[to] += self.xs[x] * self.ws[w]);
        y
    }

    fn channel(&self, at: usize) -> usize {
        at / (self.outs[2] * self.outs[3]) % self.outs[1]
    }
}

#[test]
fn chains_of_operations() {
    let Some(mut card) = card() else { return };
    for turn in 0..12 {
        let dtype = FLOATS[turn % 3];
        let case = Case::new(&mut card, dtype);
        let (with_bias, with_norm, with_relu) = (turn & 1 == 0, turn & 2 == 0, turn & 4 == 0);
        let what = format!("bias {with_bias}, norm {with_norm}, relu {with_relu}, {}", case.what);
        let y = card.poisoned(dtype, &case.outs, &case.order);
        let channels = [1, case.outs[1], 1, 1];
        let in_order = [0, 1, 2, 3];
        let (bias, biases) = card.random(dtype, &channels, &in_order, [-1.0, 1.0]);
        let [(scale, scales), (shift, shifts), (mean, means)] =
            [(); 3].map(|()| card.random(Type::F32, &channels, &in_order, [-1.0, 1.0]));
        let (spread, variances) = card.random(Type::F32, &channels, &in_order, [0.5, 1.5]);
        let (mut plan, mut arguments, mut op) = (0, 0, 0);
        let (one, zero, h) = (at(&ONE), at(&ZERO), card.handle);
        // SAFETY: living descriptors and tensors that fit them.
        unsafe {
            assert_eq!(miopenCreateFusionPlan(&mut plan, 0, case.x.desc), 0);
            assert_eq!(miopenCreateOperatorArgs(&mut arguments), 0);
            assert_eq!(miopenCompileFusionPlan(h, plan), 8, "an empty plan");
            assert_eq!(miopenCreateOpConvForward(plan, &mut op, case.conv, case.w.desc), 0, "{what}");
            assert_eq!(miopenSetOpArgsConvForward(arguments, op, one, zero, case.w.data), 0);
            if with_bias {
                assert_eq!(miopenCreateOpBiasForward(plan, &mut op, bias.desc), 0);
                assert_eq!(miopenSetOpArgsBiasForward(arguments, op, one, zero, bias.data), 0);
            }
            if with_norm {
                assert_eq!(miopenCreateOpBatchNormInference(plan, &mut op, 1, scale.desc), 0);
                let done = miopenSetOpArgsBatchNormInference(
                    arguments,
                    op,
                    one,
                    zero,
                    scale.data,
                    shift.data,
                    mean.data,
                    spread.data,
                    1e-3,
                );
                assert_eq!(done, 0);
            }
            if with_relu {
                assert_eq!(miopenCreateOpActivationForward(plan, &mut op, 3), 0);
                assert_eq!(miopenSetOpArgsActivForward(arguments, op, one, zero, 0.0, 0.0, 0.0), 0);
            }
            assert_eq!(miopenCompileFusionPlan(h, plan), 0, "{what}");
            let (x, args) = (&case.x, arguments);
            assert_eq!(miopenExecuteFusionPlan(h, plan, x.desc, x.data, y.desc, y.data, args), 0, "{what}");
            assert_eq!(miopenDestroyOperatorArgs(arguments), 0);
            assert_eq!(
                miopenExecuteFusionPlan(h, plan, x.desc, x.data, y.desc, y.data, args),
                3,
                "destroyed"
            );
            assert_eq!(miopenCreateOpConvForward(plan, &mut op, case.conv, case.w.desc), 0);
            assert_eq!(miopenCompileFusionPlan(h, plan), 8, "a second convolution");
            assert_eq!(miopenDestroyFusionPlan(plan), 0);
        }
        let expected: Vec<f64> = case
            .forward()
            .iter()
            .enumerate()
            .map(|(at, y)| {
                let (mut y, c) = (*y, case.channel(at));
                y += if with_bias { biases[c] } else { 0.0 };
                if with_norm {
                    y = (y - means[c]) / (variances[c] + 1e-3).sqrt() * scales[c] + shifts[c];
                }
                if with_relu { y.max(0.0) } else { y }
            })
            .collect();
        // Each operation rounds.
        y.near(&expected, 4.0 * dtype.tolerance(), &what);
    }
}

#[test]
fn convolution_and_z_and_bias_and_activation() {
    let Some(mut card) = card() else { return };
    let mut relu = 0;
    // SAFETY: the call writes one number.
    unsafe {
        assert_eq!(miopenCreateActivationDescriptor(&mut relu), 0);
        assert_eq!(miopenSetActivationDescriptor(relu, 3, 0.0, 0.0, 0.0), 0);
    }
    for turn in 0..9 {
        let dtype = FLOATS[turn % 3];
        let case = Case::new(&mut card, dtype);
        // PyTorch gives z in y's own place, another tensor, or none.
        let (alpha, beta) = [(1.0_f32, 0.0_f32), (1.0, 0.5), (0.75, 1.0)][turn / 3];
        let what = format!("alpha {alpha}, z {beta}, {}", case.what);
        let (z, zs) = card.random(dtype, &case.outs, &case.order, [-1.0, 1.0]);
        let (bias, biases) = card.random(dtype, &[1, case.outs[1], 1, 1], &[0, 1, 2, 3], [-1.0, 1.0]);
        let fresh = card.poisoned(dtype, &case.outs, &case.order);
        let y = if turn / 3 == 2 { &z } else { &fresh };
        // SAFETY: living descriptors and tensors that fit them.
        let done = unsafe {
            miopenConvolutionBiasActivationForward(
                card.handle,
                &alpha,
                case.x.desc,
                case.x.data,
                case.w.desc,
                case.w.data,
                case.conv,
                0,
                NONE,
                0,
                &beta,
                z.desc,
                z.data,
                bias.desc,
                bias.data,
                relu,
                y.desc,
                y.data,
            )
        };
        assert_eq!(done, 0, "{what}");
        let made = case.forward();
        let expected: Vec<f64> = (0..made.len())
            .map(|at| {
                let sum = f64::from(alpha) * made[at] + f64::from(beta) * zs[at] + biases[case.channel(at)];
                sum.max(0.0)
            })
            .collect();
        y.near(&expected, 4.0 * dtype.tolerance(), &what);
    }
    // SAFETY: made above.
    assert_eq!(unsafe { miopenDestroyActivationDescriptor(relu) }, 0);
}

#[test]
fn solutions_are_found_saved_and_run() {
    let Some(mut card) = card() else { return };
    for turn in 0..9 {
        let (dtype, direction) = (FLOATS[turn % 3], turn / 3);
        let mut case = Case::new(&mut card, dtype);
        let what = format!("direction {direction}, {}", case.what);
        let (y, ys) = card.random(dtype, &case.outs, &case.order, [-1.0, 1.0]);
        let forward = case.forward();
        let mut dx = vec![0.0; case.xs.len()];
        case.products(|y, x, w| dx[x] += ys[y] * case.ws[w]);
        let mut dw = vec![0.0; case.ws.len()];
        case.products(|y, x, w| dw[w] += ys[y] * case.xs[x]);
        let poison = |tensor: &Tensor| tensor.write(&vec![f64::NAN; tensor.sizes.iter().product()]);
        let (mut problem, mut found, mut count) = (0, [0; 8], 0);
        // SAFETY: living descriptors; room for as many solutions as are asked for.
        unsafe {
            assert_eq!(miopenCreateConvProblem(&mut problem, case.conv, direction as c_int), 0);
            let find = |found: &mut [Id; 8], count: &mut usize| {
                miopenFindSolutions(card.handle, problem, 0, found.as_mut_ptr(), count, found.len())
            };
            assert_eq!(find(&mut found, &mut count), 3, "no tensors yet");
            for (id, desc) in [(1, case.x.desc), (2, case.w.desc), (3, y.desc)] {
                assert_eq!(miopenSetProblemTensorDescriptor(problem, id, desc), 0);
            }
            assert_eq!(miopenSetProblemTensorDescriptor(problem, 41, y.desc), 3, "an activation's");
            assert_eq!(find(&mut found, &mut count), 0, "{what}");
            assert_eq!(miopenDestroyProblem(problem), 0);
        }
        assert!(count > 0, "{what}");
        for &solution in &found[..count] {
            let (mut loaded, mut bytes, mut workspace_bytes) = (0, 0, 0);
            // SAFETY: as many bytes as the solution has.
            let mut saved = unsafe {
                assert_eq!(miopenGetSolutionSize(solution, &mut bytes), 0);
                assert_eq!(miopenGetSolutionWorkspaceSize(solution, &mut workspace_bytes), 0);
                let mut saved = vec![0; bytes];
                assert_eq!(miopenSaveSolution(solution, saved.as_mut_ptr()), 0);
                assert_eq!(miopenDestroySolution(solution), 0);
                assert_eq!(miopenLoadSolution(&mut loaded, saved.as_ptr(), bytes), 0);
                saved
            };
            let workspace = card.plain(Type::U8, &[workspace_bytes.max(1)]);
            let (result, expected) = match direction {
                0 => (&y, &forward),
                1 => (&case.x, &dx),
                _ => (&case.w, &dw),
            };
            poison(result);
            let argument =
                |id, tensor: &Tensor| Argument { id, descriptor: std::ptr::null(), buffer: tensor.data };
            let arguments = [argument(1, &case.x), argument(2, &case.w), argument(3, &y)];
            // SAFETY: living tensors, as many as are told.
            unsafe {
                let ws = workspace.data;
                let run = |count| {
                    miopenRunSolution(card.handle, loaded, count, arguments.as_ptr(), ws, workspace_bytes)
                };
                assert_eq!(run(2), 3, "y is missing");
                assert_eq!(run(3), 0, "{what}");
            }
            result.near(expected, 2.0 * dtype.tolerance(), &what);
            // Cut off, or of something else.
            // SAFETY: as many bytes as are told.
            unsafe {
                let mut none = 0;
                assert_eq!(miopenLoadSolution(&mut none, saved.as_ptr(), bytes - 8), 2);
                saved[0] ^= 1;
                assert_eq!(miopenLoadSolution(&mut none, saved.as_ptr(), bytes), 2);
                assert_eq!(miopenDestroySolution(loaded), 0);
            }
            case.xs = case.xs.iter().map(|&v| dtype.round(v)).collect();
            case.x.write(&case.xs);
            case.w.write(&case.ws);
            y.write(&ys);
        }
    }
}

#[test]
fn dropout_and_its_gradient() {
    let Some(mut card) = card() else { return };
    let mut descriptor = 0;
    // SAFETY: the call writes one number.
    assert_eq!(unsafe { miopenCreateDropoutDescriptor(&mut descriptor) }, 0);
    for dtype in FLOATS {
        let sizes = [2, 3, 16, 16];
        let (x, xs) = card.random(dtype, &sizes, &[0, 1, 2, 3], [1.0, 2.0]);
        let (dy, dys) = card.random(dtype, &sizes, &[0, 1, 2, 3], [1.0, 2.0]);
        let (y, dx) = (card.plain(dtype, &sizes), card.plain(dtype, &sizes));
        let (mask, states) = (card.plain(Type::U8, &sizes), card.plain(Type::U8, &[64]));
        let (h, d) = (card.handle, descriptor);
        let forward = || {
            // SAFETY: living descriptors and tensors that fit them.
            let done =
                unsafe { miopenDropoutForward(h, d, 0, x.desc, x.data, y.desc, y.data, mask.data, xs.len()) };
            assert_eq!(done, 0);
            mask.read()
        };
        // SAFETY: as above.
        unsafe {
            let seed = card.seed;
            assert_eq!(miopenSetDropoutDescriptor(d, h, 0.25, states.data, 64, seed, false, false, 0), 0);
        }
        let kept = forward();
        let what = format!("dropout of {dtype:?}, seed {}", card.seed);
        let scale = |v: &f64, keep: &f64| v * keep / 0.75;
        y.expect(&xs.iter().zip(&kept).map(|(x, k)| scale(x, k)).collect::<Vec<_>>(), &what);
        let share = kept.iter().sum::<f64>() / kept.len() as f64;
        assert!((share - 0.75).abs() < 0.07, "{share} kept: {what}");
        // SAFETY: as above.
        let done = unsafe {
            miopenDropoutBackward(h, d, 0, dy.desc, dy.data, dx.desc, dx.data, mask.data, xs.len())
        };
        assert_eq!(done, 0);
        dx.expect(&dys.iter().zip(&kept).map(|(dy, k)| scale(dy, k)).collect::<Vec<_>>(), &what);
        assert_ne!(forward(), kept, "the next mask is another: {what}");
    }
    // SAFETY: made above.
    assert_eq!(unsafe { miopenDestroyDropoutDescriptor(descriptor) }, 0);
}

#[test]
fn what_is_absent_is_refused_and_touches_nothing() {
    let mut untouched = 77;
    // SAFETY: refusals look at no argument.
    unsafe {
        assert_eq!(miopenCreateRNNDescriptor(&mut untouched), 6);
        assert_eq!(miopenCTCLoss(), 6);
    }
    assert_eq!(untouched, 77);
}
