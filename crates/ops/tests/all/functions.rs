//! Functions, activations and losses, element by element, against references in f64.

use crate::common;

use common::{close, get, put, put_plain, random, room, rounded, stream, values};
use rand::Rng;
use wave32_ops::{ElementType, Elementwise, Op, Operand};

const F: ElementType = ElementType::F32;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// erf by its series, or erfc by its continued fraction.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    let value = if a < 3.0 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-18 * sum.abs() {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        1.0 - erfc_large(a)
    };
    value.copysign(x)
}

fn erfc_large(a: f64) -> f64 {
    let fraction = (1..=60).rev().fold(0.0, |f, k| f64::from(k) / 2.0 / (a + f));
    (-a * a).exp() / std::f64::consts::PI.sqrt() / (a + fraction)
}

fn gelu_derivative(x: f64) -> f64 {
    0.5 * (1.0 + erf(x / 2f64.sqrt())) + x * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

fn derivative(f: impl Fn(f64) -> f64, x: f64) -> f64 {
    let h = 1e-5;
    (f(x + h) - f(x - h)) / (2.0 * h)
}

/// Relative to each element: for functions, where `common::close` is relative to the largest.
fn near(found: &[f64], expected: &[f64], tolerance: f64, inputs: &[f64], what: &str) {
    for ((&f, &e), &x) in found.iter().zip(expected).zip(inputs) {
        let same = f == e || (f.is_nan() && e.is_nan());
        let e32 = f64::from(e as f32);
        let fine = same || f == e32 || (f - e).abs() <= tolerance * e.abs() + 1e-37;
        assert!(fine, "{what}({x}) is {f}, expected {e}");
    }
}

type Binary = (Op, fn(f64, f64) -> f64);
type Unary = (Op, fn(f64) -> f64, f64, f64);

#[test]
fn functions_are_accurate() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let special =
        [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-30, -1e-6, 3e38];
    let cases: &[Unary] = &[
        (Op::Exp, f64::exp, -90.0, 89.0),
        (Op::Expm1, f64::exp_m1, -3.0, 3.0),
        (Op::Exp2, f64::exp2, -100.0, 100.0),
        (Op::Log, f64::ln, 0.0, 4.0),
        (Op::Log, f64::ln, 0.0, 1e30),
        (Op::Log2, f64::log2, 0.0, 9.0),
        (Op::Log10, f64::log10, 0.0, 2000.0),
        (Op::Log1p, f64::ln_1p, -1.0, 2.0),
        (Op::Sqrt, f64::sqrt, 0.0, 1e6),
        (Op::Rsqrt, |x| 1.0 / x.sqrt(), 0.0, 100.0),
        (Op::Reciprocal, |x| 1.0 / x, -5.0, 5.0),
        (Op::Asin, f64::asin, -1.0, 1.0),
        (Op::Acos, f64::acos, -1.0, 1.0),
        (Op::Atan, f64::atan, -20.0, 20.0),
        (Op::Sinh, f64::sinh, -60.0, 60.0),
        (Op::Sinh, f64::sinh, -2.0, 2.0),
        (Op::Cosh, f64::cosh, -60.0, 60.0),
        (Op::Tanh, f64::tanh, -3.0, 3.0),
        (Op::Asinh, f64::asinh, -50.0, 50.0),
        (Op::Acosh, f64::acosh, 1.0, 50.0),
        (Op::Atanh, f64::atanh, -1.0, 1.0),
        (Op::Erf, erf, -4.0, 4.0),
        (Op::Erfc, |x| if x > 2.0 { erfc_large(x) } else { 1.0 - erf(x) }, 2.0, 8.0),
        (Op::Erfc, |x| if x > 2.0 { erfc_large(x) } else { 1.0 - erf(x) }, -4.0, 2.0),
        (Op::Sigmoid, sigmoid, -80.0, 80.0),
        (Op::LogSigmoid, |x| -(-x).exp().ln_1p(), -80.0, 15.0),
        (Op::Silu, |x| x * sigmoid(x), -30.0, 30.0),
        (Op::Neg, |x| -x, -9.0, 9.0),
        (Op::Abs, f64::abs, -9.0, 9.0),
        (Op::Relu, |x| if x < 0.0 { 0.0 } else { x }, -9.0, 9.0),
        (Op::Identity, |x| x, -9.0, 9.0),
        (
            Op::Sign,
            |x| if x == 0.0 || x.is_nan() { if x.is_nan() { 0.0 } else { x * 0.0 } } else { x.signum() },
            -9.0,
            9.0,
        ),
        (Op::Floor, f64::floor, -9.0, 9.0),
        (Op::Ceil, f64::ceil, -9.0, 9.0),
        (Op::Round, f64::round_ties_even, -9.0, 9.0),
        (Op::Trunc, f64::trunc, -9.0, 9.0),
        (Op::LogicalNot, |x| f64::from(x == 0.0), -9.0, 9.0),
    ];
    for &(op, reference, low, high) in cases {
        let mut x: Vec<f64> = (0..3001).map(|_| rounded(F, random.random_range(low..high))).collect();
        x.extend(special.map(|v| rounded(F, v)));
        // Once through the vectorized kernel, once through the strided one.
        for strides in [&[1][..], &[3][..]] {
            let input = put(&mut stream, F, &[x.len() as u64], strides, &x);
            let out = room(&mut stream, F, &[x.len() as u64]);
            Elementwise::new(op, F).run(&mut stream, &[(&input).into()], &out).unwrap();
            let expected: Vec<f64> = x.iter().map(|&v| reference(v)).collect();
            // 1 / 3e38 is subnormal: devices may flush it. acos and atanh end in steep slopes.
            let found: Vec<f64> = get(&mut stream, &out);
            near(&found, &expected, 1.5e-6, &x, &format!("seed {seed}: {op:?}"));
        }
    }
}

#[test]
fn trigonometry_holds_for_large_arguments() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let cases: [Unary; 3] =
        [(Op::Sin, f64::sin, 0.0, 0.0), (Op::Cos, f64::cos, 0.0, 0.0), (Op::Tan, f64::tan, 0.0, 0.0)];
    for range in [3.0, 100.0, 4096.0, 1e5, 1e9, 1e20, 3e38] {
        let x = values(&mut random, F, 4001, range);
        let input = put_plain(&mut stream, F, &[4001], &x);
        let out = room(&mut stream, F, &[4001]);
        for (op, reference, ..) in cases {
            Elementwise::new(op, F).run(&mut stream, &[(&input).into()], &out).unwrap();
            for (&x, f) in x.iter().zip(get(&mut stream, &out)) {
                let e = reference(x);
                let scale = if op == Op::Tan { 1.0 + e * e } else { 1.0 };
                assert!((f - e).abs() <= 3e-7 * scale, "{op:?}({x}) is {f}, expected {e}, seed {seed}");
            }
        }
    }
}

#[test]
fn activations_and_losses_match_their_definitions() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let gelu = |x: f64| 0.5 * x * (1.0 + erf(x / 2f64.sqrt()));
    let gelu_tanh =
        |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh());
    let mish = |x: f64| x * x.exp().ln_1p().tanh();
    let silu = |x: f64| x * sigmoid(x);
    let hardswish = |x: f64| x * (x + 3.0).clamp(0.0, 6.0) / 6.0;
    let hardsigmoid = |x: f64| (x + 3.0).clamp(0.0, 6.0) / 6.0;
    let (s, t) = (0.75, 1.25);
    let elu = move |x: f64| if x < 0.0 { s * (0.5 * x).exp_m1() } else { t * x };
    let softplus = move |x: f64| if x * s > t { x } else { (s * x).exp().ln_1p() / s };
    let smooth = move |d: f64| if d.abs() < s { 0.5 * d * d / s } else { d.abs() - 0.5 * s };
    let huber = move |d: f64| if d.abs() <= s { 0.5 * d * d } else { s * (d.abs() - 0.5 * s) };
    type Reference<'a> = Box<dyn Fn(f64, f64, f64) -> f64 + 'a>;
    let cases: Vec<(Op, Reference)> = vec![
        (Op::Gelu, Box::new(|a, _, _| gelu(a))),
        (Op::GeluTanh, Box::new(|a, _, _| gelu_tanh(a))),
        (Op::Mish, Box::new(|a, _, _| mish(a))),
        (Op::Softplus, Box::new(|a, _, _| softplus(a))),
        (Op::LeakyRelu, Box::new(|a, _, _| if a > 0.0 { a } else { a * s })),
        (Op::Hardswish, Box::new(|a, _, _| hardswish(a))),
        (Op::Hardsigmoid, Box::new(|a, _, _| hardsigmoid(a))),
        (Op::Hardshrink, Box::new(|a, _, _| if a.abs() <= s { 0.0 } else { a })),
        (
            Op::Softshrink,
            Box::new(|a, _, _| {
                if a > s {
                    a - s
                } else if a < -s {
                    a + s
                } else {
                    0.0
                }
            }),
        ),
        (Op::ShrinkBackward, Box::new(|a, b, _| if b.abs() <= s { 0.0 } else { a })),
        (Op::Threshold, Box::new(|a, _, _| if a <= s { t } else { a })),
        (Op::ThresholdBackward, Box::new(|a, b, _| if b <= s { 0.0 } else { a })),
        (Op::LeakyReluBackward, Box::new(|a, b, _| if b > 0.0 { a } else { a * s })),
        (Op::HardswishBackward, Box::new(|a, b, _| a * derivative(hardswish, b))),
        (Op::HardsigmoidBackward, Box::new(|a, b, _| a * derivative(hardsigmoid, b))),
        (Op::HardtanhBackward, Box::new(|a, b, _| if b > s && b < t { a } else { 0.0 })),
        (Op::PreluBackwardWeight, Box::new(|a, b, _| if b > 0.0 { 0.0 } else { a * b })),
        (Op::Prelu, Box::new(|a, b, _| if a > 0.0 { a } else { a * b })),
        (Op::PreluBackward, Box::new(|a, b, c| if b > 0.0 { a } else { a * c })),
        (Op::SigmoidBackward, Box::new(|a, b, _| a * b * (1.0 - b))),
        (Op::TanhBackward, Box::new(|a, b, _| a * (1.0 - b * b))),
        (Op::SiluBackward, Box::new(|a, b, _| a * derivative(silu, b))),
        (Op::MishBackward, Box::new(|a, b, _| a * derivative(mish, b))),
        (Op::GeluBackward, Box::new(|a, b, _| a * gelu_derivative(b))),
        (Op::GeluTanhBackward, Box::new(|a, b, _| a * derivative(gelu_tanh, b))),
        (Op::SoftplusBackward, Box::new(|a, b, _| if b * s > t { a } else { a * sigmoid(b * s) })),
        (Op::LogSigmoidBackward, Box::new(|a, b, _| a * sigmoid(-b))),
        (Op::Mse, Box::new(|a, b, _| (a - b) * (a - b))),
        (Op::MseBackward, Box::new(|a, b, c| s * (b - c) * a)),
        (Op::SmoothL1, Box::new(|a, b, _| smooth(a - b))),
        (Op::SmoothL1Backward, Box::new(|a, b, c| t * a * derivative(smooth, b - c))),
        (Op::Huber, Box::new(|a, b, _| huber(a - b))),
        (Op::HuberBackward, Box::new(|a, b, c| t * a * derivative(huber, b - c))),
        (Op::Addcmul, Box::new(|a, b, c| a + s * b * c)),
        (Op::Addcdiv, Box::new(|a, b, c| a + s * b / c)),
        (Op::Lerp, Box::new(|a, b, c| a + c * (b - a))),
    ];
    let n = 1003;
    let [a, b, c] = [0; 3].map(|_| values(&mut random, F, n, 5.0));
    let views = [&a, &b, &c].map(|v| put_plain(&mut stream, F, &[n], v));
    let operands = views.each_ref().map(Operand::from);
    let out = room(&mut stream, F, &[n]);
    for (op, reference) in cases {
        Elementwise::with(op, F, s, t).run(&mut stream, &operands, &out).unwrap();
        let expected: Vec<f64> = a.iter().zip(&b).zip(&c).map(|((&a, &b), &c)| reference(a, b, c)).collect();
        close(&get(&mut stream, &out), &expected, 2e-6, &format!("seed {seed}: {op:?}"));
    }
    // ELU takes a third number as operand c.
    let [x, y, _] = operands;
    let third = Operand::from(0.5);
    Elementwise::with(Op::Elu, F, s, t).run(&mut stream, &[x, x, third], &out).unwrap();
    let result: Vec<f64> = a.iter().map(|&a| elu(a)).collect();
    close(&get(&mut stream, &out), &result, 1e-6, "Elu");
    Elementwise::with(Op::EluBackward, F, s, t).run(&mut stream, &[y, x, third], &out).unwrap();
    let expected: Vec<f64> = b.iter().zip(&a).map(|(&g, &a)| g * derivative(elu, a)).collect();
    close(&get(&mut stream, &out), &expected, 2e-6, "EluBackward");
    let result = put_plain(&mut stream, F, &[n], &result);
    Elementwise::with(Op::EluBackwardOfResult, F, s, t)
        .run(&mut stream, &[y, (&result).into(), third], &out)
        .unwrap();
    close(&get(&mut stream, &out), &expected, 2e-6, "EluBackwardOfResult");
    // Probabilities for binary cross-entropy.
    let p: Vec<f64> = (0..n).map(|_| rounded(F, random.random_range(0.001..0.999))).collect();
    let q: Vec<f64> = (0..n).map(|_| rounded(F, random.random_range(0.0..1.0))).collect();
    let [p_view, q_view] = [&p, &q].map(|v| put_plain(&mut stream, F, &[n], v));
    Elementwise::new(Op::Bce, F).run(&mut stream, &[(&p_view).into(), (&q_view).into()], &out).unwrap();
    let expected: Vec<f64> =
        p.iter().zip(&q).map(|(&p, &q)| -(q * p.ln() + (1.0 - q) * (1.0 - p).ln())).collect();
    close(&get(&mut stream, &out), &expected, 2e-6, "Bce");
    let operands = [x, (&p_view).into(), (&q_view).into()];
    Elementwise::with(Op::BceBackward, F, s, 0.0).run(&mut stream, &operands, &out).unwrap();
    let expected: Vec<f64> =
        a.iter().zip(&p).zip(&q).map(|((&a, &p), &q)| s * a * (p - q) / (p * (1.0 - p))).collect();
    close(&get(&mut stream, &out), &expected, 2e-6, "BceBackward");
}

/// The normal distribution up to x, as exact far below 0 as above.
fn normal(x: f64) -> f64 {
    let a = x.abs() / 2f64.sqrt();
    let tail = 0.5 * if a < 2.0 { 1.0 - erf(a) } else { erfc_large(a) };
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// Twice what `gelu_tanh` has the hyperbolic tangent of, and its derivative.
fn gelu_inner(x: f64) -> [f64; 2] {
    let k = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
    [k * (x + 0.044715 * x * x * x), k * (1.0 + 3.0 * 0.044715 * x * x)]
}

/// The kernel of what networks use most takes them of each type: results are rounded once.
#[test]
fn activations_of_every_type_are_rounded_once() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    const SLOPE: f64 = 0.125;
    const LOW: f64 = -1.5;
    const HIGH: f64 = 6.0;
    let cases: [Binary; 20] = [
        (Op::Clamp, |a, _| a.clamp(LOW, HIGH)),
        (Op::HardtanhBackward, |a, b| if b <= SLOPE || b >= HIGH { 0.0 } else { a }),
        (Op::Div, |a, b| a / b),
        (Op::Exp, |a, _| a.exp()),
        (Op::Tanh, |a, _| a.tanh()),
        (Op::Hardsigmoid, |a, _| (a + 3.0).clamp(0.0, 6.0) / 6.0),
        (Op::HardsigmoidBackward, |a, b| if b > -3.0 && b < 3.0 { a / 6.0 } else { 0.0 }),
        (Op::Gelu, |a, _| a * normal(a)),
        (Op::GeluBackward, |a, b| {
            a * (normal(b) + b * (-0.5 * b * b).exp() / (2.0 * std::f64::consts::PI).sqrt())
        }),
        (Op::GeluTanh, |a, _| a * sigmoid(gelu_inner(a)[0])),
        (Op::GeluTanhBackward, |a, b| {
            let [inner, by] = gelu_inner(b);
            a * (sigmoid(inner) + b * sigmoid(inner) * sigmoid(-inner) * by)
        }),
        (Op::Silu, |a, _| a * sigmoid(a)),
        (Op::SiluBackward, |a, b| a * (sigmoid(b) + b * sigmoid(b) * sigmoid(-b))),
        (Op::Sigmoid, |a, _| sigmoid(a)),
        (Op::SigmoidBackward, |a, b| a * (1.0 - b) * b),
        (Op::TanhBackward, |a, b| a * (1.0 - b * b)),
        (Op::LeakyRelu, |a, _| if a > 0.0 { a } else { a * SLOPE }),
        (Op::LeakyReluBackward, |a, b| if b > 0.0 { a } else { a * SLOPE }),
        (Op::Hardswish, |a, _| a * (a + 3.0).clamp(0.0, 6.0) / 6.0),
        (Op::HardswishBackward, |a, b| {
            if b <= -3.0 {
                0.0
            } else if b < 3.0 {
                a * (b / 3.0 + 0.5)
            } else {
                a
            }
        }),
    ];
    // Half a unit in the last place, and the least number.
    let types = [
        (ElementType::F32, 2f64.powi(-24), 1e-37),
        (ElementType::F16, 2f64.powi(-11), 2f64.powi(-25)),
        (ElementType::BF16, 2f64.powi(-8), 1e-37),
    ];
    for (dtype, rounding, least) in types {
        // Not whole vectors; the first are the largest.
        let mut draw = |range: f64| -> Vec<f64> {
            let far = [200.0, -200.0, 30.0, -30.0, -14.0, 14.0, 0.0, -0.0].into_iter();
            far.chain((0..4099).map(|_| random.random_range(-range..range)))
                .map(|v| rounded(dtype, v))
                .collect()
        };
        let (a, b) = (draw(9.0), draw(9.0));
        let views = [&a, &b].map(|values| put_plain(&mut stream, dtype, &[values.len() as u64], values));
        for (op, reference) in cases {
            let out = room(&mut stream, dtype, &[a.len() as u64]);
            let is_backward = format!("{op:?}").ends_with("Backward");
            let [a_view, b_view] = views.each_ref().map(Operand::from);
            let operands = match op {
                Op::Clamp => vec![a_view, LOW.into(), HIGH.into()],
                _ if is_backward || op == Op::Div => vec![a_view, b_view],
                _ => vec![a_view],
            };
            Elementwise::with(op, dtype, SLOPE, HIGH).run(&mut stream, &operands, &out).unwrap();
            // What the sum of two terms loses, and what an exponential of a rounded number does.
            let of_sum = |a: f64, b: f64| if is_backward { 4e-7 * a.abs() * (1.0 + b.abs()) } else { 0.0 };
            let of_f32 = if op == Op::GeluTanh { 3e-5 } else { 1.5e-6 };
            for ((&a, &b), found) in a.iter().zip(&b).zip(get(&mut stream, &out)) {
                let wanted = reference(a, b);
                let allowed = (1.01 * rounding + of_f32) * wanted.abs() + 1.01 * least + of_sum(a, b);
                let same = found == rounded(dtype, wanted) || (found.is_nan() && wanted.is_nan());
                let fine = same || (found - wanted).abs() <= allowed;
                assert!(fine, "seed {seed}: {op:?} of {dtype:?} {a} and {b} is {found}, expected {wanted}");
            }
        }
    }
}

#[test]
fn quotients_and_remainders_are_exact() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let n = 4001;
    for (spread, whole) in [(9.0, true), (1000.0, false), (1e30, false)] {
        let mut a = values(&mut random, F, n, spread);
        let mut b = values(&mut random, F, n, 9.0);
        if whole {
            a.iter_mut().chain(&mut b).for_each(|v| *v = v.trunc());
        }
        let [x, y] = [&a, &b].map(|v| put_plain(&mut stream, F, &[n], v));
        let out = room(&mut stream, F, &[n]);
        let cases: [Binary; 5] = [
            (Op::Div, |a, b| f64::from(a as f32 / b as f32)),
            (Op::DivTrunc, |a, b| f64::from((a as f32 / b as f32).trunc())),
            (Op::Fmod, |a, b| a % b),
            (Op::Remainder, |a, b| {
                let m = a % b;
                if m != 0.0 && (b < 0.0) != (m < 0.0) { f64::from(m as f32 + b as f32) } else { m }
            }),
            (Op::DivFloor, |a, b| (a / b).floor()),
        ];
        for (op, reference) in cases {
            Elementwise::new(op, F).run(&mut stream, &[(&x).into(), (&y).into()], &out).unwrap();
            for ((&a, &b), f) in a.iter().zip(&b).zip(get(&mut stream, &out)) {
                let e = reference(a, b);
                let bad = b == 0.0 && matches!(op, Op::DivFloor);
                // `DivFloor` is PyTorch's formula, (a - a % b) / b: its two roundings may cost 1 from quotients of 2^21 on.
                let by_one = op == Op::DivFloor && e.abs() > f64::from(1 << 21) && (f - e).abs() <= 1.0;
                // Quotients past 2^24 have no last whole place to agree on.
                let same = f == e
                    || (f.is_nan() && e.is_nan())
                    || bad
                    || by_one
                    || (f - e).abs() <= 1.5e-7 * e.abs() && (spread > 1e3 || e.abs() > f64::from(1 << 24));
                assert!(same, "{op:?}({a}, {b}) is {f}, expected {e}, seed {seed}");
            }
        }
    }
}

/// Of all quotients these are the nearest to the middle of two numbers: of an odd b of 24 bits and an m of 25, so that m * b is one more
/// or one less than a * 2^25. Rounded twice, such a quotient comes out as the wrong one of the two.
#[test]
fn quotients_next_to_the_middle_of_two_numbers_are_exact() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    while a.len() < 4001 {
        let divisor = random.random_range(1u64 << 23..1 << 24) | 1;
        // Newton's iteration for 1 / divisor modulo 2^64: each step doubles the right bits, and the first has three.
        let inverse = (0..5).fold(divisor, |x, _| x.wrapping_mul(2u64.wrapping_sub(divisor.wrapping_mul(x))));
        for (middle, beside) in [(inverse, -1), (inverse.wrapping_neg(), 1)] {
            let middle = middle % (1 << 25);
            if middle >= 1 << 24 {
                let signs = [(); 2].map(|()| if random.random_bool(0.5) { -1.0 } else { 1.0 });
                let scale = 2f64.powi(random.random_range(-40..40));
                a.push(signs[0] * scale * ((middle * divisor).wrapping_add_signed(beside) >> 25) as f64);
                b.push(signs[1] * divisor as f64);
            }
        }
    }
    let [x, y] = [&a, &b].map(|v| put_plain(&mut stream, F, &[v.len() as u64], v));
    let out = room(&mut stream, F, &[a.len() as u64]);
    Elementwise::new(Op::Div, F).run(&mut stream, &[(&x).into(), (&y).into()], &out).unwrap();
    for ((&a, &b), found) in a.iter().zip(&b).zip(get(&mut stream, &out)) {
        let wanted = a as f32 / b as f32;
        assert_eq!(a, f64::from(a as f32), "a number of the test has more than 24 bits");
        assert_eq!(found, f64::from(wanted), "{a} / {b} is {found}, expected {wanted}, seed {seed}");
    }
}

/// Beyond 2^126 the reciprocal of a divisor is subnormal, for which a device may take 0.
#[test]
fn quotients_by_huge_numbers_are_no_zeros() {
    let Some(mut stream) = stream() else { return };
    let huge = [8.6e37, 1e38, 1.8e38, 3e38].map(|v| rounded(F, v));
    let over = [f64::INFINITY, 3e38, 1.3e38, 1e30, 2.5].map(|v| rounded(F, v));
    let signs = [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)];
    let pairs = over.iter().flat_map(|&a| huge.map(|b| (a, b)));
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.flat_map(|(a, b)| signs.map(|(s, t)| (s * a, t * b))).unzip();
    let n = a.len() as u64;
    let [x, y] = [&a, &b].map(|v| put_plain(&mut stream, F, &[n], v));
    let out = room(&mut stream, F, &[n]);
    let cases: [Binary; 2] = [(Op::Div, |a, b| a / b), (Op::Atan2, f64::atan2)];
    for (op, reference) in cases {
        Elementwise::new(op, F).run(&mut stream, &[(&x).into(), (&y).into()], &out).unwrap();
        for ((&a, &b), f) in a.iter().zip(&b).zip(get(&mut stream, &out)) {
            let e = reference(a, b);
            assert!(
                f == e || (f - e).abs() <= 1e-6 * e.abs() + 1e-37,
                "{op:?}({a}, {b}) is {f}, expected {e}"
            );
        }
    }
    let x: Vec<f64> = (0..60).map(|n| rounded(F, -82.0 - 0.1 * f64::from(n))).collect();
    let input = put_plain(&mut stream, F, &[60], &x);
    let out = room(&mut stream, F, &[60]);
    Elementwise::new(Op::Silu, F).run(&mut stream, &[(&input).into()], &out).unwrap();
    let expected: Vec<f64> = x.iter().map(|&x| x * sigmoid(x)).collect();
    near(&get(&mut stream, &out), &expected, 2e-5, &x, "Silu");
}

/// What compares and chooses must not lose a NaN, which compilers may when they make a maximum of it.
#[test]
fn a_nan_stays_one_through_activations() {
    let Some(mut stream) = stream() else { return };
    let ops = [
        Op::Relu,
        Op::Threshold,
        Op::LeakyRelu,
        Op::Elu,
        Op::Hardswish,
        Op::Hardsigmoid,
        Op::Hardshrink,
        Op::Softshrink,
        Op::Clamp,
        Op::Prelu,
        Op::Logit,
        Op::Gelu,
        Op::GeluTanh,
        Op::Silu,
        Op::Mish,
        Op::Softplus,
        Op::LogSigmoid,
    ];
    let data: Vec<f64> = (0..37).map(|n| if n % 3 == 1 { f64::NAN } else { 0.25 }).collect();
    let bounds = [0.125, 0.75];
    for dtype in [F, ElementType::F16, ElementType::BF16, ElementType::F64] {
        // Whole rows of four, and elements by themselves.
        for strides in [&[1][..], &[2][..]] {
            let input = put(&mut stream, dtype, &[37], strides, &data);
            let out = room(&mut stream, dtype, &[37]);
            for op in ops {
                let operands = [Operand::from(&input), bounds[0].into(), bounds[1].into()];
                let count = match op {
                    Op::Clamp => 3,
                    Op::Elu => 3,
                    Op::Prelu => 2,
                    _ => 1,
                };
                let (s, t) = if op == Op::Logit { (0.1, 0.0) } else { (0.125, 0.75) };
                Elementwise::with(op, dtype, s, t).run(&mut stream, &operands[..count], &out).unwrap();
                for (&x, f) in data.iter().zip(get(&mut stream, &out)) {
                    assert!(f.is_nan() == x.is_nan(), "{op:?}({x}) of {dtype:?} is {f}");
                }
            }
            // Where the input is NaN the gradient passes.
            for op in [Op::ThresholdBackward, Op::HardtanhBackward, Op::ShrinkBackward] {
                let grad = put_plain(&mut stream, dtype, &[37], &[2.0; 37]);
                let operands = [Operand::from(&grad), Operand::from(&input)];
                Elementwise::with(op, dtype, 0.125, 0.75).run(&mut stream, &operands, &out).unwrap();
                assert_eq!(get(&mut stream, &out), [2.0; 37], "{op:?} of {dtype:?}");
            }
        }
    }
}

#[test]
fn powers_are_accurate() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let edge =
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 0.5, -0.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e10];
    let mut pairs: Vec<(f64, f64)> = edge.iter().flat_map(|&a| edge.map(|b| (a, b))).collect();
    for _ in 0..4000 {
        let pair = (random.random_range(0.01..30.0), random.random_range(-25.0..25.0));
        pairs.push((rounded(F, pair.0), rounded(F, pair.1)));
        pairs.push((
            rounded(F, 1.0 + random.random_range(-0.01..0.01)),
            rounded(F, random.random_range(-3e3..3e3)),
        ));
    }
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
    let n = a.len() as u64;
    let [x, y] = [&a, &b].map(|v| put_plain(&mut stream, F, &[n], v));
    let out = room(&mut stream, F, &[n]);
    Elementwise::new(Op::Pow, F).run(&mut stream, &[(&x).into(), (&y).into()], &out).unwrap();
    for ((&a, &b), f) in a.iter().zip(&b).zip(get(&mut stream, &out)) {
        let e = f64::from(a.powf(b) as f32);
        let same = f == e || (f.is_nan() && e.is_nan());
        assert!(same || (f - e).abs() <= 1e-6 * e.abs() + 1e-37, "{a}^{b} is {f}, expected {e}, seed {seed}");
    }
}
