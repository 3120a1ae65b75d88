//! Random problems and operands for the tests; every failure prints the seed that makes it again.

#![allow(dead_code)] // each test file uses its own part

use half::{bf16, f16};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wave32_cpu::{CpuError, Inputs, Options, Report, TensorMut, TensorRef, oracle, run_reported};
use wave32_problem::{Activation, ConvProblem, ConvSpec, DType, Direction, Epilogue, Layout};

/// A seed that is new on every run, or `WAVE32_TEST_SEED`.
pub fn fresh_seed() -> u64 {
    match std::env::var("WAVE32_TEST_SEED") {
        Ok(seed) => seed.parse().expect("WAVE32_TEST_SEED is a number"),
        Err(_) => rand::rng().random(),
    }
}

pub fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// A valid problem of at most about `work` multiply-adds.
pub fn random_problem(rng: &mut StdRng, work: u64) -> ConvProblem {
    loop {
        let direction = Direction::ALL[rng.random_range(0..3)];
        let groups = [1, 1, 2, 3, 8][rng.random_range(0..5)];
        let (cg, kg) = ([1, 1, 2, 3, 5, 17, 40], [1, 1, 2, 4, 7, 24, 70]);
        let pick = |rng: &mut StdRng, most: i64| rng.random_range(1..=most);
        let stride = [pick(rng, 3), pick(rng, 3)];
        let transposed = rng.random_bool(0.3);
        let mut output_pad = [0, 0];
        if transposed {
            output_pad = [rng.random_range(0..stride[0]), rng.random_range(0..stride[1])];
        }
        let mut epilogue = Epilogue::default();
        if direction == Direction::Forward {
            epilogue.bias = rng.random();
            epilogue.activation = Activation::ALL[rng.random_range(0..Activation::ALL.len())];
        }
        let spec = ConvSpec {
            direction,
            dtype: DType::ALL[rng.random_range(0..3)],
            layout: [Layout::Nchw, Layout::Nhwc][rng.random_range(0..2)],
            n: pick(rng, 3),
            c: groups * cg[rng.random_range(0..7)],
            h: pick(rng, 20),
            w: pick(rng, 70),
            k: groups * kg[rng.random_range(0..7)],
            r: pick(rng, 5),
            s: pick(rng, 5),
            stride,
            pad: [rng.random_range(0..4), rng.random_range(0..4)],
            dilation: [pick(rng, 3), pick(rng, 3)],
            groups,
            transposed,
            output_pad,
            epilogue,
        };
        if let Ok(p) = ConvProblem::new(spec)
            && p.flops() <= 2 * work
        {
            return p;
        }
    }
}

/// Operands as stored values, exact in f64.
pub struct Operands {
    pub a: Vec<f64>,
    pub b: Vec<f64>,
    pub bias: Option<Vec<f64>>,
}

impl Operands {
    /// `value` draws one element, before rounding to the problem's type.
    pub fn new(p: &ConvProblem, mut value: impl FnMut() -> f32) -> Self {
        let (x, w, y) = (p.x_elements(), p.w_elements(), p.y_elements());
        let (a, b) = match p.spec().direction {
            Direction::Forward => (x, w),
            Direction::BackwardData => (y, w),
            Direction::BackwardWeights => (x, y),
        };
        let mut vector = |len: u64| (0..len).map(|_| stored(p.spec().dtype, value())).collect();
        let (a, b) = (vector(a), vector(b));
        let bias = p.spec().epilogue.bias.then(|| vector(p.spec().k as u64));
        Self { a, b, bias }
    }

    pub fn inputs(&self) -> Inputs<'_, f64> {
        Inputs { a: &self.a, b: &self.b, bias: self.bias.as_deref() }
    }

    pub fn oracle(&self, p: &ConvProblem) -> Vec<f64> {
        oracle::conv(p, &self.inputs())
    }

    /// The operands squared: the root of their convolution is the spread of the products' sums.
    pub fn squared(&self) -> Self {
        let square = |v: &[f64]| v.iter().map(|v| v * v).collect();
        Self { a: square(&self.a), b: square(&self.b), bias: self.bias.as_deref().map(square) }
    }

    /// The normwise error of `got`, a whole output.
    pub fn error(&self, p: &ConvProblem, got: &[f64]) -> f64 {
        let spread: Vec<f64> = self.squared().oracle(p).into_iter().map(f64::sqrt).collect();
        normwise(got, &self.oracle(p), &spread)
    }
}

fn stored(dtype: DType, value: f32) -> f64 {
    match dtype {
        DType::F32 => f64::from(value),
        DType::F16 => f64::from(f16::from_f32(value)),
        DType::BF16 => f64::from(bf16::from_f32(value)),
    }
}

/// Runs the backend on a poisoned output; the result as stored values.
pub fn backend(p: &ConvProblem, o: &Operands, options: &Options) -> Result<(Vec<f64>, Report), CpuError> {
    let len = p.output_elements() as usize;
    macro_rules! typed {
        ($type:ty, $variant:ident, $poison:expr) => {{
            let narrow = |v: &[f64]| v.iter().map(|&v| <$type>::from_f32(v as f32)).collect::<Vec<_>>();
            let (a, b, bias) = (narrow(&o.a), narrow(&o.b), o.bias.as_deref().map(narrow));
            let mut out = vec![$poison; len];
            let bias = bias.as_deref().map(TensorRef::$variant);
            let (a, b) = (TensorRef::$variant(&a), TensorRef::$variant(&b));
            let report = run_reported(p, a, b, bias, TensorMut::$variant(&mut out), options)?;
            Ok((out.into_iter().map(f64::from).collect(), report))
        }};
    }
    match p.spec().dtype {
        DType::F32 => {
            let narrow = |v: &[f64]| v.iter().map(|&v| v as f32).collect::<Vec<_>>();
            let (a, b, bias) = (narrow(&o.a), narrow(&o.b), o.bias.as_deref().map(narrow));
            let mut out = vec![f32::NAN; len];
            let bias = bias.as_deref().map(TensorRef::F32);
            let (a, b) = (TensorRef::F32(&a), TensorRef::F32(&b));
            let report = run_reported(p, a, b, bias, TensorMut::F32(&mut out), options)?;
            Ok((out.into_iter().map(f64::from).collect(), report))
        }
        DType::F16 => typed!(f16, F16, f16::NAN),
        DType::BF16 => typed!(bf16, BF16, bf16::NAN),
    }
}

/// ||got - want|| / ||want||, NaN if any element is.
///
/// A few sums may all cancel, and an error relative to what is left says nothing: the norm is at least
/// that of `spread`, what each sum would be worth if its products had random signs.
pub fn normwise(got: &[f64], want: &[f64], spread: &[f64]) -> f64 {
    assert_eq!([got.len(), spread.len()], [want.len(); 2]);
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let difference = norm(&mut got.iter().zip(want).map(|(a, b)| a - b));
    let scale = norm(&mut want.iter().copied()).max(norm(&mut spread.iter().copied()));
    if difference == 0.0 { 0.0 } else { difference / scale }
}
