//! The operands of a check: integers that must come out exactly, and uniform numbers.

use crate::proof::data::{Data, NoMemory};
use crate::proof::tolerance::exact_integers;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use wave32_problem::{Direction, Problem};
use wave32_solve::{HasRoles, Role};

/// Which operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Small integers: every partial sum and every output is exact, so any order of summation agrees.
    Integer,
    /// Uniform in [-1, 1), rounded to the storage type.
    Random,
}

/// Operands in the order of the CPU crate: forward x, w; backward-data dy, w; backward-weights x, dy; of a product a, b.
#[derive(Debug)]
pub struct Inputs {
    /// First operand.
    pub a: Data,
    /// Second operand.
    pub b: Data,
    /// Bias of a forward pass that has one; what is added to a product.
    pub bias: Option<Data>,
}

/// Magnitude and density of integer operands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Integers {
    /// Values are in `-magnitude..=magnitude`.
    pub magnitude: i32,
    /// Probability that a value is drawn at all rather than 0.
    pub density: f64,
}

impl Integers {
    /// The largest integers whose sums stay exact.
    ///
    /// A sum of K products of such values has a standard deviation of sqrt(K) times the values'
    /// variance; eight of them must stay below the integers that the output type represents, and the
    /// largest sum possible below those that f32 does. Where even -1, 0, 1 are too much, most values
    /// become 0. `attempt` halves the density again after a reference that was out of range.
    pub fn for_problem(p: &Problem, attempt: u32) -> Self {
        const SIGMAS: f64 = 8.0;
        let k = p.reduction_len() as f64;
        let limit = exact_integers(p.dtype());
        let variance = |m: i32| f64::from(m * (m + 1)) / 3.0;
        let fits = |m: i32| SIGMAS * k.sqrt() * variance(m) <= limit && k * f64::from(m * m) <= 16_777_216.0;
        let dense = (1..=8).rev().find(|&m| fits(m));
        let (magnitude, density) = match dense {
            Some(m) => (m, 1.0),
            None => (1, (limit / (SIGMAS * k.sqrt() * variance(1))).min(1.0)),
        };
        Self { magnitude, density: density / f64::from(1u32 << attempt.min(16)) }
    }

    /// A value of 64 random bits: the upper half says whether it is drawn, the lower which it is.
    fn value(&self, bits: u64) -> f32 {
        if (bits >> 32) as f64 >= self.density * 4_294_967_296.0 {
            return 0.0;
        }
        let values = (2 * self.magnitude + 1) as u64;
        ((((bits & 0xffff_ffff) * values) >> 32) as i32 - self.magnitude) as f32
    }
}

/// Which tensors a problem reads, in the order of [`Inputs`], and which it writes.
pub fn roles(p: &Problem) -> ([Role; 2], Role) {
    match p.conv().map(|p| p.spec().direction) {
        None | Some(Direction::Forward) => ([Role::X, Role::W], Role::Y),
        Some(Direction::BackwardData) => ([Role::Y, Role::W], Role::X),
        Some(Direction::BackwardWeights) => ([Role::X, Role::Y], Role::W),
    }
}

/// A number in [-1, 1): the upper 24 bits, which f32 holds exactly.
fn uniform(bits: u64) -> f32 {
    (bits >> 40) as f32 / (1u32 << 23) as f32 - 1.0
}

/// A generator for one purpose: the same seed and purpose always give the same numbers.
pub fn rng(seed: u64, purpose: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(mix(seed ^ purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// The seed of one problem of a campaign: of its text, so that a line alone reproduces it.
pub fn problem_seed(base: u64, line: &str) -> u64 {
    line.bytes().fold(mix(base), |h, b| mix(h ^ u64::from(b)))
}

/// SplitMix64's finaliser (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators").
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Inputs {
    /// Operands of `kind` for the problem.
    ///
    /// # Errors
    /// [`NoMemory`] where the host has too little memory.
    pub fn new(p: &Problem, kind: Kind, seed: u64, attempt: u32) -> Result<Self, NoMemory> {
        let ([a, b], _) = roles(p);
        let elements = |role| match p {
            Problem::Conv(p) => p.role_elements(role),
            Problem::Matmul(p) => p.role_elements(role),
        };
        let (na, nb) = (elements(a), elements(b));
        let bias = Some(elements(Role::Bias)).filter(|&elements| elements > 0);
        let integers = Integers::for_problem(p, attempt);
        let tensor = |len: u64, purpose: u64| {
            // Each element is of its index alone, so that any number of threads makes the same tensor.
            let base = mix(seed ^ mix(purpose + if kind == Kind::Integer { 16 } else { 0 }));
            Data::of_indices(p.dtype(), len, |index| {
                let bits = mix(base.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
                match kind {
                    Kind::Random => uniform(bits),
                    Kind::Integer => integers.value(bits),
                }
            })
        };
        Ok(Self { a: tensor(na, 1)?, b: tensor(nb, 2)?, bias: bias.map(|len| tensor(len, 3)).transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave32_problem::{ConvProblem, ConvSpec, DType};

    #[test]
    fn integers_keep_sums_exact() {
        for dtype in DType::ALL {
            for c in [1, 3, 64, 512, 4096, 1 << 20] {
                let spec = ConvSpec { dtype, c, r: 3, s: 3, h: 3, w: 3, ..ConvSpec::default() };
                let p = Problem::from(ConvProblem::new(spec).unwrap());
                let i = Integers::for_problem(&p, 0);
                let v = f64::from(i.magnitude * (i.magnitude + 1)) / 3.0 * i.density;
                let sigma = (p.reduction_len() as f64).sqrt() * v;
                assert!(8.0 * sigma <= exact_integers(dtype) * 1.0001, "{dtype:?} {c}: {i:?}");
                assert!(sigma > 0.1, "{dtype:?} {c}: nothing left to check with {i:?}");
            }
        }
    }

    #[test]
    fn values_are_spread_over_all_that_they_may_be() {
        let integers = Integers { magnitude: 3, density: 0.5 };
        let mut count = [0u32; 7];
        let (mut sum, mut squares) = (0.0, 0.0);
        for index in 0..70_000u64 {
            let bits = mix(index);
            count[(integers.value(bits) + 3.0) as usize] += 1;
            let value = uniform(bits);
            assert!((-1.0..1.0).contains(&value));
            sum += f64::from(value);
            squares += f64::from(value * value);
        }
        // Half are 0 from the start, and a seventh of the others.
        for (at, &count) in count.iter().enumerate() {
            let wanted = if at == 3 { 40_000.0 } else { 5_000.0 };
            assert!((f64::from(count) - wanted).abs() < 600.0, "{at}: {count}");
        }
        assert!(sum.abs() < 1000.0 && (squares / 70_000.0 - 1.0 / 3.0).abs() < 0.01, "{sum} {squares}");
    }

    #[test]
    fn seeds_reproduce_and_differ() {
        let p: Problem =
            ConvProblem::new(ConvSpec { c: 8, h: 8, w: 8, ..ConvSpec::default() }).unwrap().into();
        let bytes = |seed, kind| Inputs::new(&p, kind, seed, 0).unwrap().a.bytes().to_vec();
        assert_eq!(bytes(1, Kind::Random), bytes(1, Kind::Random));
        assert_ne!(bytes(1, Kind::Random), bytes(2, Kind::Random));
        assert_ne!(problem_seed(1, "a"), problem_seed(1, "b"));
        assert!(
            Inputs::new(&p, Kind::Integer, 5, 0)
                .unwrap()
                .a
                .to_f64()
                .unwrap()
                .iter()
                .all(|v| v.fract() == 0.0)
        );
    }
}
