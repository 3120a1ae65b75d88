//! Batch norm against its formulas in f64: both modes, layouts, generations of calls, with an activation behind.

mod common;

use common::normal::{Case, Statistics, cases};
use common::{Id, NONE, ONE, Type, ZERO, at, card};
use std::ffi::{c_int, c_void};

type In = *const c_void;
type Io = *mut c_void;

unsafe extern "C" {
    fn miopenDeriveBNTensorDescriptor(derived: Id, x: Id, mode: c_int) -> c_int;
    fn miopenCreateActivationDescriptor(descriptor: *mut Id) -> c_int;
    fn miopenDestroyActivationDescriptor(descriptor: Id) -> c_int;
    fn miopenSetActivationDescriptor(descriptor: Id, mode: c_int, alpha: f64, beta: f64, gamma: f64)
    -> c_int;
    fn miopenBatchNormalizationForwardTraining(
        handle: Id,
        mode: c_int,
        alpha: *const f32,
        beta: *const f32,
        x_desc: Id,
        x: In,
        y_desc: Id,
        y: Io,
        desc: Id,
        scale: In,
        bias: In,
        factor: f64,
        mean: Io,
        variance: Io,
        epsilon: f64,
        saved_mean: Io,
        saved_inverse: Io,
    ) -> c_int;
    fn miopenBatchNormForwardTrainingActivation_V2(
        handle: Id,
        mode: c_int,
        alpha: *const f32,
        beta: *const f32,
        x_desc: Id,
        x: In,
        y_desc: Id,
        y: Io,
        s: Id,
        b: Id,
        m: Id,
        v: Id,
        scale: In,
        bias: In,
        factor: f64,
        old_mean: In,
        old_variance: In,
        mean: Io,
        variance: Io,
        epsilon: f64,
        saved_mean: Io,
        saved_inverse: Io,
        activation: Id,
    ) -> c_int;
    fn miopenBatchNormalizationForwardInference(
        handle: Id,
        mode: c_int,
        alpha: *const f32,
        beta: *const f32,
        x_desc: Id,
        x: In,
        y_desc: Id,
        y: Io,
        desc: Id,
        scale: In,
        bias: In,
        mean: In,
        variance: In,
        epsilon: f64,
    ) -> c_int;
    fn miopenBatchNormForwardInferenceActivationInvVariance(
        handle: Id,
        mode: c_int,
        alpha: *const f32,
        beta: *const f32,
        x_desc: Id,
        x: In,
        y_desc: Id,
        y: Io,
        s: Id,
        b: Id,
        m: Id,
        v: Id,
        scale: In,
        bias: In,
        mean: In,
        inverse: In,
        activation: Id,
    ) -> c_int;
    fn miopenBatchNormalizationBackward(
        handle: Id,
        mode: c_int,
        a: *const f32,
        b: *const f32,
        c: *const f32,
        d: *const f32,
        x_desc: Id,
        x: In,
        dy_desc: Id,
        dy: In,
        dx_desc: Id,
        dx: Io,
        desc: Id,
        scale: In,
        dscale: Io,
        dbias: Io,
        epsilon: f64,
        mean: In,
        inverse: In,
    ) -> c_int;
    fn miopenBatchNormBackwardActivation(
        handle: Id,
        mode: c_int,
        a: *const f32,
        b: *const f32,
        c: *const f32,
        d: *const f32,
        x_desc: Id,
        x: In,
        dy_desc: Id,
        dy: In,
        dx_desc: Id,
        dx: Io,
        s: Id,
        bi: Id,
        m: Id,
        v: Id,
        scale: In,
        bias: In,
        dscale: Io,
        dbias: Io,
        epsilon: f64,
        mean: In,
        inverse: In,
        activation: Id,
    ) -> c_int;
}

#[test]
fn training_and_its_gradient() {
    let Some(mut card) = card() else { return };
    for (dtype, spatial, _) in cases() {
        let Case { layer, what, x, scale, bias, order } = Case::new(&mut card, dtype, spatial);
        let (mode, kept) = (c_int::from(spatial), layer.kept());
        let (y, dx) =
            (card.poisoned(dtype, &layer.sizes, &order), card.poisoned(dtype, &layer.sizes, &order));
        let [saved_mean, saved_inverse, dscale, dbias] = [(); 4].map(|()| card.plain(Type::F32, &kept));
        let (running, means) = card.random(Type::F32, &kept, &[0, 1, 2, 3], [-1.0, 1.0]);
        let (spread, variances) = card.random(Type::F32, &kept, &[0, 1, 2, 3], [0.5, 1.5]);
        let (dy, dys) = card.random(dtype, &layer.sizes, &order, [-1.0, 1.0]);
        let (one, zero) = (at(&ONE), at(&ZERO));
        let train = |[mean, variance, saved_mean, saved_inverse]: [Io; 4]| {
            // SAFETY: living descriptors and tensors that fit them.
            let done = unsafe {
                miopenBatchNormalizationForwardTraining(
                    card.handle,
                    mode,
                    one,
                    zero,
                    x.desc,
                    x.data,
                    y.desc,
                    y.data,
                    scale.desc,
                    scale.data,
                    bias.data,
                    0.25,
                    mean,
                    variance,
                    layer.epsilon,
                    saved_mean,
                    saved_inverse,
                )
            };
            assert_eq!(done, 0, "{what}");
        };
        let backward = |[saved_mean, saved_inverse]: [Io; 2]| {
            // SAFETY: as above.
            let done = unsafe {
                miopenBatchNormalizationBackward(
                    card.handle,
                    mode,
                    one,
                    zero,
                    one,
                    zero,
                    x.desc,
                    x.data,
                    dy.desc,
                    dy.data,
                    dx.desc,
                    dx.data,
                    scale.desc,
                    scale.data,
                    dscale.data,
                    dbias.data,
                    layer.epsilon,
                    saved_mean,
                    saved_inverse,
                )
            };
            assert_eq!(done, 0, "{what}");
        };
        // SAFETY: living descriptors.
        assert_eq!(unsafe { miopenDeriveBNTensorDescriptor(scale.desc, x.desc, mode) }, 0, "{what}");
        train([running.data, spread.data, saved_mean.data, saved_inverse.data]);
        backward([saved_mean.data, saved_inverse.data]);
        let s = layer.statistics();
        y.expect(&layer.forward(&s), &what);
        saved_mean.expect(&s.mean, &format!("saved mean of {what}"));
        let inverse: Vec<_> = s.variance.iter().map(|v| 1.0 / (v + layer.epsilon).sqrt()).collect();
        saved_inverse.near(&inverse, 3e-5, &format!("saved inverse variance of {what}"));
        let mix = |old: &[f64], new: &[f64]| {
            old.iter().zip(new).map(|(o, n)| 0.75 * o + 0.25 * n).collect::<Vec<_>>()
        };
        running.expect(&mix(&means, &s.mean), &format!("running mean of {what}"));
        let unbiased: Vec<_> = s.variance.iter().map(|v| v * s.count / (s.count - 1.0)).collect();
        spread.near(&mix(&variances, &unbiased), 3e-5, &format!("running variance of {what}"));
        let [dxs, dscales, dbiases] = layer.backward(&s, &dys);
        dx.near(&dxs, layer.gradient_tolerance(dtype, &s, &dys), &format!("gradient of {what}"));
        dscale.near(&dscales, 1e-4, &format!("gradient of scale of {what}"));
        dbias.near(&dbiases, 1e-4, &format!("gradient of bias of {what}"));

        // Without anything kept; and the gradient without anything saved.
        y.write(&vec![f64::NAN; layer.xs.len()]);
        dx.write(&vec![f64::NAN; layer.xs.len()]);
        train([NONE; 4]);
        backward([NONE; 2]);
        y.expect(&layer.forward(&s), &what);
        dx.near(
            &dxs,
            layer.gradient_tolerance(dtype, &s, &dys),
            &format!("gradient without statistics of {what}"),
        );
    }
}

#[test]
fn inference_with_statistics_given() {
    let Some(mut card) = card() else { return };
    let mut relu = 0;
    // SAFETY: the call writes one number.
    unsafe {
        assert_eq!(miopenCreateActivationDescriptor(&mut relu), 0);
        assert_eq!(miopenSetActivationDescriptor(relu, 3, 0.0, 0.0, 0.0), 0);
    }
    for (dtype, spatial, _) in cases() {
        let Case { layer, what, x, scale, bias, order } = Case::new(&mut card, dtype, spatial);
        let (mode, kept) = (c_int::from(spatial), layer.kept());
        let y = card.poisoned(dtype, &layer.sizes, &order);
        let (mean, means) = card.random(Type::F32, &kept, &[0, 1, 2, 3], [-1.0, 1.0]);
        let (spread, variances) = card.random(Type::F32, &kept, &[0, 1, 2, 3], [0.5, 1.5]);
        let (one, zero) = (at(&ONE), at(&ZERO));
        // SAFETY: living descriptors and tensors that fit them.
        let done = unsafe {
            miopenBatchNormalizationForwardInference(
                card.handle,
                mode,
                one,
                zero,
                x.desc,
                x.data,
                y.desc,
                y.data,
                scale.desc,
                scale.data,
                bias.data,
                mean.data,
                spread.data,
                layer.epsilon,
            )
        };
        assert_eq!(done, 0, "{what}");
        let s = Statistics { mean: means.clone(), variance: variances.clone(), count: 1.0 };
        y.expect(&layer.forward(&s), &what);
        // The same numbers as inverse variances, and an activation.
        // SAFETY: as above.
        let done = unsafe {
            miopenBatchNormForwardInferenceActivationInvVariance(
                card.handle,
                mode,
                one,
                zero,
                x.desc,
                x.data,
                y.desc,
                y.data,
                scale.desc,
                bias.desc,
                mean.desc,
                spread.desc,
                scale.data,
                bias.data,
                mean.data,
                spread.data,
                relu,
            )
        };
        assert_eq!(done, 0, "{what}");
        let variance = variances.iter().map(|v| 1.0 / (v * v) - layer.epsilon).collect();
        let s = Statistics { mean: means, variance, count: 1.0 };
        let expected: Vec<_> = layer.forward(&s).iter().map(|y| y.max(0.0)).collect();
        y.expect(&expected, &format!("inverse variances, relu: {what}"));
    }
    // SAFETY: made above.
    assert_eq!(unsafe { miopenDestroyActivationDescriptor(relu) }, 0);
}

#[test]
fn training_with_an_activation_and_its_gradient() {
    let Some(mut card) = card() else { return };
    let mut leaky = 0;
    // SAFETY: the call writes one number.
    unsafe {
        assert_eq!(miopenCreateActivationDescriptor(&mut leaky), 0);
        assert_eq!(miopenSetActivationDescriptor(leaky, 8, 0.25, 0.0, 0.0), 0);
    }
    for (dtype, spatial, _) in cases().filter(|case| case.0 != Type::F64) {
        let Case { layer, what, x, scale, bias, order } = Case::new(&mut card, dtype, spatial);
        let (mode, kept) = (c_int::from(spatial), layer.kept());
        let (y, dx) =
            (card.poisoned(dtype, &layer.sizes, &order), card.poisoned(dtype, &layer.sizes, &order));
        let [saved_mean, saved_inverse, dscale, dbias, next_mean, next_variance] =
            [(); 6].map(|()| card.plain(Type::F32, &kept));
        let (old_mean, means) = card.random(Type::F32, &kept, &[0, 1, 2, 3], [-1.0, 1.0]);
        let (old_variance, _) = card.random(Type::F32, &kept, &[0, 1, 2, 3], [0.5, 1.5]);
        let (dy, dys) = card.random(dtype, &layer.sizes, &order, [-1.0, 1.0]);
        let (one, zero, d) = (at(&ONE), at(&ZERO), scale.desc);
        // SAFETY: living descriptors and tensors that fit them.
        unsafe {
            let done = miopenBatchNormForwardTrainingActivation_V2(
                card.handle,
                mode,
                one,
                zero,
                x.desc,
                x.data,
                y.desc,
                y.data,
                d,
                d,
                d,
                d,
                scale.data,
                bias.data,
                0.5,
                old_mean.data,
                old_variance.data,
                next_mean.data,
                next_variance.data,
                layer.epsilon,
                saved_mean.data,
                saved_inverse.data,
                leaky,
            );
            assert_eq!(done, 0, "{what}");
            let done = miopenBatchNormBackwardActivation(
                card.handle,
                mode,
                one,
                zero,
                one,
                zero,
                x.desc,
                x.data,
                dy.desc,
                dy.data,
                dx.desc,
                dx.data,
                d,
                d,
                d,
                d,
                scale.data,
                bias.data,
                dscale.data,
                dbias.data,
                layer.epsilon,
                saved_mean.data,
                saved_inverse.data,
                leaky,
            );
            assert_eq!(done, 0, "{what}");
        }
        let s = layer.statistics();
        let before = layer.forward(&s);
        let slope = |y: f64| if y > 0.0 { 1.0 } else { 0.25 };
        y.expect(&before.iter().map(|&y| y * slope(y)).collect::<Vec<_>>(), &what);
        let mix: Vec<_> = means.iter().zip(&s.mean).map(|(old, new)| 0.5 * old + 0.5 * new).collect();
        next_mean.expect(&mix, &format!("running mean of {what}"));
        old_mean.expect(&means, &format!("previous running mean of {what}"));
        // Where the normalized value is next to 0 its sign, and so the slope, is rounding's choice: off by its share.
        let through: Vec<_> = before.iter().zip(&dys).map(|(&y, dy)| dy * slope(y)).collect();
        if before.iter().all(|y| y.abs() > 1e-4) {
            let [dxs, dscales, dbiases] = layer.backward(&s, &through);
            dx.near(&dxs, layer.gradient_tolerance(dtype, &s, &through), &format!("gradient of {what}"));
            dscale.near(&dscales, 1e-4, &format!("gradient of scale of {what}"));
            dbias.near(&dbiases, 1e-4, &format!("gradient of bias of {what}"));
        }
    }
    // SAFETY: made above.
    assert_eq!(unsafe { miopenDestroyActivationDescriptor(leaky) }, 0);
}
