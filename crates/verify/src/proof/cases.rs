//! Operands with what must come out of them: what a check runs and compares with.

use crate::output::fold::{self, Fold};
use crate::process::protocol::{Failure, Verdict};
use crate::proof::compare::{OutputShape, Reference, first_not_finite};
use crate::proof::data::Data;
use crate::proof::inputs::{Inputs, Kind, rng};
use crate::proof::tolerance::exact_integers;
use rayon::prelude::*;
use wave32_cpu::oracle;
use wave32_problem::{Activation, DType, Problem};
use wave32_solve::{HasRoles, Role};

/// FLOP up to which the f64 oracle computes every output; larger problems are compared with exact sums of all outputs
/// or with the CPU backend in full (integers), and with the oracle at sampled outputs.
pub const ORACLE_FLOPS: u64 = 100_000_000;

/// FLOP from which exact sums of all outputs take the place of the CPU backend's results.
const FOLD_FLOPS: u64 = 20_000_000_000;

/// Outputs sampled anywhere, as many at the edges of tiles, and as many on the border, of a problem too large for the full
/// oracle.
const SAMPLES: u64 = 4096;

/// Products that the sampled outputs of one problem may take: where each is a sum of millions, fewer are looked at.
const SAMPLED_PRODUCTS: u64 = 4_000_000_000;

/// Outputs sampled where exact sums cover all of them: the oracle shares nothing with the sums.
const FEW_SAMPLES: u64 = 256;

/// Bytes that results and workspaces are filled with before each run. All are NaN in the 16-bit types
/// or absurd; the first is NaN in every type.
pub const POISONS: [u8; 3] = [0xff, 0x7f, 0x55];

/// Operands with what must come out.
#[derive(Debug)]
pub struct Case {
    /// The operands.
    pub inputs: Inputs,
    /// What must come out.
    pub reference: Reference,
    /// What `reference` was computed with, for people.
    pub against: String,
}

impl Case {
    /// Integer operands whose result is exact in any order of summation. `on_cpu` where the CPU backend itself
    /// is under test, which then cannot be the reference.
    ///
    /// # Errors
    /// Out of memory, or the problem has no operands of this kind.
    pub fn integer(p: &Problem, seed: u64, on_cpu: bool) -> Result<Self, Failure> {
        // A product of the CPU backend takes a thirtieth of the time of one of the sums. Where it is under test, the sums
        // have only to end soon.
        let cheaper = if on_cpu { 8.0 } else { 32.0 };
        let folds =
            (on_cpu || p.flops() >= FOLD_FLOPS) && p.conv().is_some_and(|p| fold::applies(p, cheaper));
        Self::integer_by(p, seed, |inputs| match (oracle_fits(p), folds, on_cpu) {
            (true, _, _) | (false, false, true) => by_oracle(p, inputs, seed),
            (false, true, _) => by_fold(p, inputs, seed),
            (false, false, false) => by_cpu(p, inputs),
        })
    }

    /// As [`Case::integer`], by exact sums of all outputs, whatever the problem's size.
    ///
    /// # Errors
    /// See [`Case::integer`]; a problem with an activation, which is not linear.
    pub fn folded(p: &Problem, seed: u64) -> Result<Self, Failure> {
        if p.conv().is_none_or(|p| p.spec().epilogue.activation != Activation::None) {
            return Err(Failure::new(
                Verdict::Error,
                "only convolutions without an activation have such sums",
            ));
        }
        Self::integer_by(p, seed, |inputs| by_fold(p, inputs, seed))
    }

    fn integer_by(
        p: &Problem,
        seed: u64,
        refer: impl Fn(&Inputs) -> Result<(Reference, String), Failure>,
    ) -> Result<Self, Failure> {
        if let Problem::Matmul(p) = p {
            let factors = [Some(p.spec().alpha), p.spec().added.map(|added| added.beta)];
            if factors.iter().flatten().any(|factor| factor.0.fract() != 0.0) {
                let text = "alpha and beta must be whole numbers: the check is exact on integers";
                return Err(Failure::new(Verdict::Unsupported, text));
            }
        }
        let limit = exact_integers(p.dtype());
        for attempt in 0..8 {
            let inputs = Inputs::new(p, Kind::Integer, seed, attempt)?;
            let (reference, against) = refer(&inputs)?;
            // Sums of this size are a chance of 10^-14 an element; then the next attempt is sparser.
            if reference.max_abs() <= limit {
                return Ok(Self { inputs, reference, against });
            }
        }
        Err(Failure::new(
            Verdict::Error,
            "no integer operands with exact results were found: please report this",
        ))
    }

    /// Operands uniform in [-1, 1), with the f64 oracle's results.
    ///
    /// # Errors
    /// Out of memory on the host.
    pub fn random(p: &Problem, seed: u64) -> Result<Self, Failure> {
        let inputs = Inputs::new(p, Kind::Random, seed, 0)?;
        let (reference, against) = by_oracle(p, &inputs, seed)?;
        Ok(Self { inputs, reference, against })
    }
}

/// Refuses what the host's memory cannot hold: operands, result, their wide copies and the buffers' images.
///
/// # Errors
/// `OutOfMemory` where the problem needs more than `cap` bytes; it says how many.
pub fn fits_memory(p: &Problem, cap: u64) -> Result<(), Failure> {
    let elements = |role| match p {
        Problem::Conv(p) => u128::from(p.role_elements(role)),
        Problem::Matmul(p) => u128::from(p.role_elements(role)),
    };
    let elements: u128 = Role::ALL.into_iter().map(elements).sum();
    // Small problems have a reference of f64 each, and operands of f64.
    let wide = if oracle_fits(p) { 8 } else { 4 };
    let wanted = elements * u128::from(3 * p.dtype().size() + wide);
    if wanted <= u128::from(cap) {
        return Ok(());
    }
    let (wanted, cap) = (wanted as f64 / 1e9, cap as f64 / 1e9);
    let text = format!(
        "checking it takes about {wanted:.1} GB of host memory and the cap is {cap:.1} GB; use --max-gflop, a smaller problem or a larger --memory-cap"
    );
    Err(Failure::new(Verdict::OutOfMemory, text))
}

fn oracle_fits(p: &Problem) -> bool {
    p.flops() <= ORACLE_FLOPS
}

/// The f64 oracle: in full, or at sampled outputs.
fn by_oracle(p: &Problem, inputs: &Inputs, seed: u64) -> Result<(Reference, String), Failure> {
    if oracle_fits(p) {
        let (a, b) = (inputs.a.to_f64()?, inputs.b.to_f64()?);
        let bias = inputs.bias.as_ref().map(Data::to_f64).transpose()?;
        let wide = wave32_cpu::Inputs { a: &a, b: &b, bias: bias.as_deref() };
        return Ok((Reference::Full(oracle::all(p, &wide)), "f64 oracle, every output".into()));
    }
    let values = sampled(p, inputs, seed, SAMPLES)?;
    let against = format!("f64 oracle at {}", looked_at(p, values.len()));
    Ok((Reference::Sampled(values), against))
}

/// How many outputs of how many, and which, for people.
fn looked_at(p: &Problem, count: usize) -> String {
    let all = p.output_elements();
    let unseen = 100.0 * (1.0 - count as f64 / all as f64);
    format!(
        "{count} of {all} outputs (corners, border, edges of tiles, anywhere): of outputs wrong one at a time it does not \
         see {unseen:.4} %"
    )
}

/// What the f64 oracle says of some outputs, `most` of each kind.
fn sampled(p: &Problem, inputs: &Inputs, seed: u64, most: u64) -> Result<Vec<(u64, f64)>, Failure> {
    let count = (SAMPLED_PRODUCTS / p.reduction_len().max(1) / 3).clamp(64, most);
    let picked = OutputShape::of_output(p).sample(count, &mut rng(seed, 9));
    let bias = inputs.bias.as_ref();
    Ok(match (&inputs.a, &inputs.b, bias) {
        (Data::F32(a), Data::F32(b), None) => at(p, &wave32_cpu::Inputs { a, b, bias: None }, &picked),
        (Data::F32(a), Data::F32(b), Some(Data::F32(bias))) => {
            at(p, &wave32_cpu::Inputs { a, b, bias: Some(bias) }, &picked)
        }
        (Data::F16(a), Data::F16(b), None) => at(p, &wave32_cpu::Inputs { a, b, bias: None }, &picked),
        (Data::F16(a), Data::F16(b), Some(Data::F16(bias))) => {
            at(p, &wave32_cpu::Inputs { a, b, bias: Some(bias) }, &picked)
        }
        (Data::BF16(a), Data::BF16(b), None) => at(p, &wave32_cpu::Inputs { a, b, bias: None }, &picked),
        (Data::BF16(a), Data::BF16(b), Some(Data::BF16(bias))) => {
            at(p, &wave32_cpu::Inputs { a, b, bias: Some(bias) }, &picked)
        }
        _ => return Err(Failure::new(Verdict::Error, "operands of several types: please report this")),
    })
}

fn at<T: oracle::Value>(p: &Problem, i: &wave32_cpu::Inputs<'_, T>, picked: &[u64]) -> Vec<(u64, f64)> {
    picked.par_iter().map(|&index| (index, oracle::at(p, i, index))).collect()
}

/// Exact sums over every output, and the oracle at some.
fn by_fold(p: &Problem, inputs: &Inputs, seed: u64) -> Result<(Reference, String), Failure> {
    let Some(conv) = p.conv() else {
        return Err(Failure::new(
            Verdict::Error,
            "a product of matrices has no such sums: please report this",
        ));
    };
    let folded = Fold::new(conv, inputs, seed);
    let values = sampled(p, inputs, seed, FEW_SAMPLES)?;
    let (all, some) = (folded.outputs(), values.len());
    let against = format!(
        "exact sums over all {all} outputs (one wrong output is always seen, any other error missed with a probability \
         below {:.0e}), f64 oracle at {some}",
        fold::MISS
    );
    Ok((Reference::Folded(Box::new(folded), values), against))
}

/// Every output by the CPU backend in f32, which is exact on integer operands.
fn by_cpu(p: &Problem, inputs: &Inputs) -> Result<(Reference, String), Failure> {
    let wide = p.with_dtype(DType::F32).map_err(|e| Failure::new(Verdict::Error, e.to_string()))?;
    let (a, b) = (inputs.a.to_f32()?, inputs.b.to_f32()?);
    let bias = inputs.bias.as_ref().map(Data::to_f32).transpose()?;
    let mut out = Data::filled(DType::F32, wide.output_elements(), POISONS[0])?;
    let len = out.len();
    let options = wave32_cpu::Options::default();
    let bias = bias.as_ref().map(Data::view);
    wave32_cpu::run_problem(&wide, a.view(), b.view(), bias, out.view_mut(0..len), &options)
        .map_err(|e| Failure::new(Verdict::Error, format!("the CPU reference failed: {e}")))?;
    if let Some(index) = first_not_finite(&out) {
        let at = OutputShape::of_output(&wide).name(index as u64);
        return Err(Failure::new(Verdict::Error, format!("the CPU reference is not finite at {at}")));
    }
    Ok((Reference::FullF32(out), "CPU backend in f32, every output".into()))
}
