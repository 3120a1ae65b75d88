//! Products of matrices: packed, as a 1x1 convolution of the [backend](crate::run()), then the epilogue.

use crate::{CpuError, Options, TensorMut, TensorRef};
use half::{bf16, f16};
use wave32_problem::{ConvProblem, ConvSpec, DType, MatmulProblem, Matrices, Problem};

/// Computes any problem: a convolution as [`crate::run()`] does; of a product of matrices, `a`, `b` and what is added (`bias`)
/// are as long as the problem says, and three packed copies of the matrices in f32 are made beside the workspace.
///
/// # Errors
/// As [`crate::run()`].
pub fn run_problem(
    p: &Problem,
    a: TensorRef,
    b: TensorRef,
    bias: Option<TensorRef>,
    out: TensorMut,
    o: &Options,
) -> Result<(), CpuError> {
    match p {
        Problem::Conv(p) => crate::run(p, a, b, bias, out, o),
        Problem::Matmul(p) => matmul(p, a, b, bias, out, o),
    }
}

fn matmul(
    p: &MatmulProblem,
    a: TensorRef,
    b: TensorRef,
    added: Option<TensorRef>,
    out: TensorMut,
    o: &Options,
) -> Result<(), CpuError> {
    let s = p.spec();
    let read = |name, tensor, matrices: &Matrices, sizes, needed| match (tensor, s.dtype) {
        (TensorRef::F32(v), DType::F32) => packed(name, v, matrices, sizes, needed),
        (TensorRef::F16(v), DType::F16) => packed(name, v, matrices, sizes, needed),
        (TensorRef::BF16(v), DType::BF16) => packed(name, v, matrices, sizes, needed),
        _ => Err(CpuError::DType { tensor: name, needed: s.dtype }),
    };
    let a = read("a", a, &s.a, p.a_sizes(), p.a_elements())?;
    let b = read("b", b, &s.b, p.b_sizes(), p.b_elements())?;
    let added = match (s.added, added) {
        (Some(added), Some(tensor)) => {
            let values = read("bias", tensor, &added.matrices, p.out_sizes(), p.added_elements())?;
            Some((added.beta.0 as f32, values))
        }
        (None, None) => None,
        _ => {
            return Err(CpuError::Bias(
                "what is added is passed where the problem adds something, and only there",
            ));
        }
    };
    let spec = ConvSpec {
        c: s.k * s.batch,
        k: s.m * s.batch,
        w: s.n,
        groups: s.batch,
        dtype: DType::F32,
        ..ConvSpec::default()
    };
    // Checked: the matrices' bytes are below 2^63, those of their packed copies may not be.
    let conv =
        ConvProblem::new(spec).map_err(|_| CpuError::Bias("the matrices are too large for a packed copy"))?;
    let mut product = vec![0f32; p.output_elements() as usize];
    crate::run(&conv, TensorRef::F32(&b), TensorRef::F32(&a), None, TensorMut::F32(&mut product), o)?;
    let alpha = s.alpha.0 as f32;
    let value = |index: usize| {
        let sum = alpha * product[index];
        let sum = added.as_ref().map_or(sum, |(beta, values)| beta.mul_add(values[index], sum));
        s.activation.apply(f64::from(sum)) as f32
    };
    let length = |given: usize| match given == product.len() {
        true => Ok(()),
        false => Err(CpuError::Length { tensor: "out", given: given as u64, needed: product.len() as u64 }),
    };
    match (out, s.dtype) {
        (TensorMut::F32(out), DType::F32) => {
            length(out.len())?;
            out.iter_mut().enumerate().for_each(|(index, to)| *to = value(index));
        }
        (TensorMut::F16(out), DType::F16) => {
            length(out.len())?;
            out.iter_mut().enumerate().for_each(|(index, to)| *to = f16::from_f32(value(index)));
        }
        (TensorMut::BF16(out), DType::BF16) => {
            length(out.len())?;
            out.iter_mut().enumerate().for_each(|(index, to)| *to = bf16::from_f32(value(index)));
        }
        _ => return Err(CpuError::DType { tensor: "out", needed: s.dtype }),
    }
    Ok(())
}

/// The matrices row by row, in f32.
fn packed<T: Copy + Into<f32>>(
    tensor: &'static str,
    values: &[T],
    matrices: &Matrices,
    [batch, rows, columns]: [u64; 3],
    needed: u64,
) -> Result<Vec<f32>, CpuError> {
    if values.len() as u64 != needed {
        return Err(CpuError::Length { tensor, given: values.len() as u64, needed });
    }
    let [first, by_batch, by_row, by_column] =
        [matrices.first, matrices.strides[0], matrices.strides[1], matrices.strides[2]].map(|v| v as u64);
    let mut found = Vec::with_capacity((batch * rows * columns) as usize);
    for (g, row) in (0..batch).flat_map(|g| (0..rows).map(move |row| (g, row))) {
        let start = first + g * by_batch + row * by_row;
        found.extend((0..columns).map(|column| values[(start + column * by_column) as usize].into()));
    }
    Ok(found)
}
