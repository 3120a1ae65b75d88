//! How close a result must be. The promises of the project, in one place.

use wave32_problem::{DType, Problem};

/// Bounds for one problem on inputs uniform in [-1, 1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Most `||out - ref|| / ||ref||`.
    pub normwise: f64,
    /// Most `|out - ref|` of a single element.
    pub element: f64,
    /// What the sum that an output is made of is typically worth: its root mean square.
    pub typical: f64,
    /// `||ref||` is taken to be at least what `typical` makes of it: the results may say little of the sums they were made of.
    pub is_of_sums: bool,
}

/// Does this solver multiply transformed numbers? Winograd trades accuracy for speed in f32, and its results on integers are
/// only near to integers. It is known by its name.
pub fn is_transformed(solver: &str) -> bool {
    solver.contains("winograd")
}

/// The normwise promise for a storage type and a solver.
pub fn normwise(dtype: DType, solver: &str) -> f64 {
    match dtype {
        DType::F32 if is_transformed(solver) => 2e-5,
        DType::F32 => 1.5e-6,
        DType::F16 => 7e-3,
        DType::BF16 => 5.6e-2,
    }
}

impl Tolerance {
    /// Bounds for a problem.
    ///
    /// A product of two uniform numbers in [-1, 1) has a root mean square of 1/3, a sum of K of them
    /// sqrt(K)/3. An element may be off by the normwise promise at that size, times what the worst of
    /// 10^9 normally distributed errors can be: 6 sigma; more for f32, whose error is a walk of many
    /// roundings rather than one, and for Winograd in f16.
    pub fn new(problem: &Problem, solver: &str) -> Self {
        let (factor, added) = match problem {
            Problem::Conv(p) => (1.0, f64::from(u8::from(p.spec().epilogue.bias))),
            Problem::Matmul(p) => {
                let added = p.spec().added.map_or(0.0, |added| added.beta.0.abs());
                (p.spec().alpha.0.abs(), added)
            }
        };
        let typical = factor * (problem.reduction_len() as f64).sqrt() / 3.0;
        let of_one = Self::relative(problem.dtype(), solver, typical + added);
        Self { typical, is_of_sums: problem.activation().cuts_large(), ..of_one }
    }

    /// Bounds for outputs that are typically worth so much.
    pub fn relative(dtype: DType, solver: &str, typical: f64) -> Self {
        let normwise = normwise(dtype, solver);
        let worst = match dtype {
            DType::F32 => 16.0,
            // A tile's corners are further off than its middle.
            DType::F16 if is_transformed(solver) => 12.0,
            _ => 6.0,
        };
        Self { normwise, element: worst * normwise * typical, typical, is_of_sums: false }
    }
}

/// Largest magnitude up to which every integer is representable.
pub fn exact_integers(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 16_777_216.0,
        DType::F16 => 2048.0,
        DType::BF16 => 256.0,
    }
}
