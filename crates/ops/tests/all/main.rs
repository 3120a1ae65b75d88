//! Operations on a GPU against f64 on the host, in one program.

mod attention;
mod batch_norm;
mod chain;
mod common;
mod copy;
mod elementwise;
mod filters;
mod functions;
mod gemm;
mod index;
mod large;
mod lists;
mod matmul;
mod norm;
mod optim;
mod pairs;
mod pool;
mod random;
mod rearrange;
mod reduction;
mod scan;
mod skinny;
mod softmax;
mod sort;
mod upsample;
