//! Products of matrices in f64, and matrices in every arrangement.

use super::{TestQueue, put};
use wave32_ops::{ElementType, View};

/// `[g, rows, columns]` of the values in an arrangement: in order, transposed, in order with rows apart, transposed with
/// columns apart, with gaps between elements, matrices of a batch interleaved.
pub fn arranged(
    stream: &mut TestQueue,
    dtype: ElementType,
    sizes: [u64; 3],
    how: u32,
    values: &[f64],
) -> View {
    let [g, rows, columns] = sizes;
    let strides = match how {
        0 => [rows * columns, columns, 1],
        1 => [rows * columns, 1, rows],
        2 => [rows * (columns + 5), columns + 5, 1],
        3 => [columns * (rows + 4), 1, rows + 4],
        4 => [rows * columns * 2 + 3, columns * 2, 2],
        _ => [columns, g * columns, 1],
    };
    put(stream, dtype, &sizes, &strides, values)
}

/// Row by row, in f64.
pub fn product(a: &[f64], b: &[f64], [g, m, k, n]: [u64; 4]) -> Vec<f64> {
    let mut out = vec![0.0; (g * m * n) as usize];
    for (at, row) in out.chunks_exact_mut(n as usize).enumerate() {
        for t in 0..k as usize {
            let (left, batch) = (a[at * k as usize + t], at / m as usize);
            let line = &b[(batch * k as usize + t) * n as usize..][..n as usize];
            row.iter_mut().zip(line).for_each(|(sum, right)| *sum += left * right);
        }
    }
    out
}

/// Of a sum rounded to that type. In f32 of chains of up to 4096 terms, of which a single element of many may be five
/// standard deviations off; a term that is missing is off by much more.
pub fn tolerance(dtype: ElementType) -> f64 {
    match dtype {
        ElementType::F32 => 1e-5,
        ElementType::F16 => 1e-3,
        _ => 8e-3,
    }
}
