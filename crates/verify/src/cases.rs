//! Operands with what must come out of them: what a check runs and compares with.

use crate::compare::{Reference, Shape, first_not_finite};
use crate::data::Data;
use crate::inputs::{Inputs, Kind, rng};
use crate::protocol::{Failure, Verdict};
use crate::tolerance::exact_integers;
use rayon::prelude::*;
use wave32_cpu::oracle;
use wave32_problem::{ConvProblem, ConvSpec, DType};

/// FLOP up to which the f64 oracle computes every output; larger problems are compared with the CPU
/// backend in full (exact check) and with the oracle at sampled outputs.
pub const ORACLE_FLOPS: u64 = 100_000_000;

/// Outputs sampled inside, and as many on the border, of a problem too large for the full oracle.
const SAMPLES: u64 = 4096;

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
    /// Too little memory, or no such operands.
    pub fn integer(p: &ConvProblem, seed: u64, on_cpu: bool) -> Result<Self, Failure> {
        let limit = exact_integers(p.spec().dtype);
        for attempt in 0..8 {
            let inputs = Inputs::new(p, Kind::Integer, seed, attempt)?;
            let (reference, against) = match (oracle_fits(p), on_cpu) {
                (true, _) | (false, true) => by_oracle(p, &inputs, seed)?,
                (false, false) => by_cpu(p, &inputs)?,
            };
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
    /// Too little memory.
    pub fn random(p: &ConvProblem, seed: u64) -> Result<Self, Failure> {
        let inputs = Inputs::new(p, Kind::Random, seed, 0)?;
        let (reference, against) = by_oracle(p, &inputs, seed)?;
        Ok(Self { inputs, reference, against })
    }
}

/// Refuses what the host's memory cannot hold: operands, result, their wide copies and the buffers' images.
///
/// # Errors
/// `OutOfMemory` with what it takes.
pub fn fits_memory(p: &ConvProblem, cap: u64) -> Result<(), Failure> {
    let elements = u128::from(p.x_elements()) + u128::from(p.w_elements()) + u128::from(p.y_elements());
    let wanted = elements * u128::from(3 * p.spec().dtype.size() + 8);
    if wanted <= u128::from(cap) {
        return Ok(());
    }
    let (wanted, cap) = (wanted as f64 / 1e9, cap as f64 / 1e9);
    let text = format!(
        "checking it takes about {wanted:.1} GB of host memory and the cap is {cap:.1} GB; use --max-gflop, a smaller problem or a larger --memory-cap"
    );
    Err(Failure::new(Verdict::OutOfMemory, text))
}

fn oracle_fits(p: &ConvProblem) -> bool {
    p.flops() <= ORACLE_FLOPS
}

/// The f64 oracle: in full, or at sampled outputs.
fn by_oracle(p: &ConvProblem, inputs: &Inputs, seed: u64) -> Result<(Reference, String), Failure> {
    let (a, b) = (inputs.a.to_f64()?, inputs.b.to_f64()?);
    let bias = inputs.bias.as_ref().map(Data::to_f64).transpose()?;
    let wide = wave32_cpu::Inputs { a: &a, b: &b, bias: bias.as_deref() };
    if oracle_fits(p) {
        return Ok((Reference::Full(oracle::conv(p, &wide)), "f64 oracle, every output".into()));
    }
    let picked = Shape::of_output(p).sample(SAMPLES, &mut rng(seed, 9));
    let against = format!("f64 oracle at {} outputs, all corners and the border among them", picked.len());
    let values = picked.par_iter().map(|&i| (i, oracle::conv_at(p, &wide, i))).collect();
    Ok((Reference::Sampled(values), against))
}

/// Every output by the CPU backend in f32, which is exact on integer operands.
fn by_cpu(p: &ConvProblem, inputs: &Inputs) -> Result<(Reference, String), Failure> {
    let wide = ConvProblem::new(ConvSpec { dtype: DType::F32, ..p.spec().clone() })
        .map_err(|e| Failure::new(Verdict::Error, e.to_string()))?;
    let (a, b) = (inputs.a.to_f32()?, inputs.b.to_f32()?);
    let bias = inputs.bias.as_ref().map(Data::to_f32).transpose()?;
    let mut out = Data::filled(DType::F32, wide.output_elements(), POISONS[0])?;
    let len = out.len();
    let options = wave32_cpu::Options::default();
    let bias = bias.as_ref().map(Data::view);
    wave32_cpu::run(&wide, a.view(), b.view(), bias, out.view_mut(0..len), &options)
        .map_err(|e| Failure::new(Verdict::Error, format!("the CPU reference failed: {e}")))?;
    if let Some(index) = first_not_finite(&out) {
        let at = Shape::of_output(&wide).name(index as u64);
        return Err(Failure::new(Verdict::Error, format!("the CPU reference is not finite at {at}")));
    }
    Ok((Reference::FullF32(out), "CPU backend in f32, every output".into()))
}
