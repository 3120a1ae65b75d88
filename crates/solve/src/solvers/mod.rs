//! The solver table: one row a solver, reference last.

mod build;
mod direct;
mod gather;
mod igemm;
mod im2col;
mod tensors;
mod wrw;

use crate::Solver;

/// Every solver, in order of preference at equal cost.
pub fn solvers() -> &'static [&'static dyn Solver] {
    &[&igemm::Gemm1x1, &igemm::IgemmPacked, &igemm::Igemm, &im2col::Im2colGemm, &direct::Direct]
}
