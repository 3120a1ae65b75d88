//! The solver tables: one row a solver, reference last.

mod batch;
mod build;
mod direct;
mod few;
mod gather;
mod gemm;
mod grouped;
mod igemm;
mod im2col;
mod nt;
mod patch;
mod skinny;
mod taps;
mod tensors;
mod unpacked;
mod window;
mod winograd;
mod winograd_fused;
mod wrw;

pub use build::offered;
pub use tensors::too_large;

use crate::{DeviceCaps, Solver};
use wave32_problem::{ConvProblem, MatmulProblem};

/// Every solver, in order of preference at equal cost.
pub fn solvers() -> &'static [&'static dyn Solver] {
    &[
        &igemm::Gemm1x1,
        &unpacked::Gemm1x1Unpacked,
        &winograd::Winograd,
        &igemm::IgemmPacked,
        &igemm::Igemm,
        &im2col::Im2colGemm,
        &few::Few,
        &direct::Direct,
    ]
}

/// What each solver answers that a plain problem is: on all of its batch, or in parts where no kernel addresses that.
pub fn with_conv_solvers<T>(
    problem: &ConvProblem,
    caps: &DeviceCaps,
    ask: impl FnOnce(&[&dyn Solver]) -> T,
) -> T {
    let Some(parts) = batch::Parts::of(problem, caps) else { return ask(solvers()) };
    let in_parts: Vec<_> = solvers().iter().map(|&solver| batch::InParts { solver, parts }).collect();
    let table: Vec<_> = in_parts.iter().map(|solver| solver as &dyn Solver).collect();
    ask(&table)
}

/// Every solver of products of matrices, in order of preference at equal cost.
pub fn matmul_solvers() -> &'static [&'static dyn Solver<MatmulProblem>] {
    &[&gemm::Gemm, &skinny::Skinny]
}
