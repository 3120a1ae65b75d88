//! How close a result must be. The promises of the project, in one place.

use wave32_problem::DType;

/// Bounds for one problem on inputs uniform in [-1, 1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Most `||out - ref|| / ||ref||`.
    pub normwise: f64,
    /// Most `|out - ref|` of a single element.
    pub element: f64,
    /// What one output is typically worth: the root mean square of a sum of `reduction_len` products.
    pub typical: f64,
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
    /// Bounds for sums of `reduction_len` products.
    ///
    /// A product of two uniform numbers in [-1, 1) has a root mean square of 1/3, a sum of K of them
    /// sqrt(K)/3. An element may be off by the normwise promise at that size, times what the worst of
    /// 10^9 normally distributed errors can be: 6 sigma, and for f32, whose error is a walk of many
    /// roundings rather than one, more.
    pub fn new(dtype: DType, solver: &str, reduction_len: u64, bias: bool) -> Self {
        let typical = (reduction_len as f64).sqrt() / 3.0;
        let of_one = Self::relative(dtype, solver, typical + if bias { 1.0 } else { 0.0 });
        Self { typical, ..of_one }
    }

    /// Bounds for outputs that are typically worth so much.
    pub fn relative(dtype: DType, solver: &str, typical: f64) -> Self {
        let normwise = normwise(dtype, solver);
        let worst = if dtype == DType::F32 { 16.0 } else { 6.0 };
        Self { normwise, element: worst * normwise * typical, typical }
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
