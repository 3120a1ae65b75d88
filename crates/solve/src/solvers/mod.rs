//! The solver tables: one row a solver, reference last.

mod build;
mod direct;
mod few;
mod gather;
mod gemm;
mod igemm;
mod im2col;
mod skinny;
mod tensors;
mod winograd;
mod wrw;

use crate::Solver;
use wave32_problem::MatmulProblem;

/// Every solver, in order of preference at equal cost.
pub fn solvers() -> &'static [&'static dyn Solver] {
    &[
        &igemm::Gemm1x1,
        &winograd::Winograd,
        &igemm::IgemmPacked,
        &igemm::Igemm,
        &im2col::Im2colGemm,
        &few::Few,
        &direct::Direct,
    ]
}

/// Every solver of products of matrices, in order of preference at equal cost.
pub fn matmul_solvers() -> &'static [&'static dyn Solver<MatmulProblem>] {
    &[&gemm::Gemm, &skinny::Skinny]
}
