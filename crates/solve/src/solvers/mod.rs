//! The solver tables: one row a solver, reference last.

mod build;
mod direct;
mod few;
mod gather;
mod igemm;
mod im2col;
mod matmul;
mod patch;
mod skinny;
mod taps;
mod tensors;
mod window;
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
    &[
        &matmul::AsConv(&igemm::Gemm1x1),
        &matmul::AsConv(&igemm::IgemmPacked),
        &matmul::AsConv(&igemm::Igemm),
        &matmul::AsConv(&direct::Direct),
        &skinny::Skinny,
    ]
}
