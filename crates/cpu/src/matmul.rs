//! The one door to the GEMM crate: slices and checked extents instead of pointers.
//!
//! Every call is shaped so that the crate packs nothing and so allocates no matrix of its own: the
//! left operand is a panel of contiguous columns whose height is a multiple of [`LANES`].
#![allow(unsafe_code)]

use std::sync::Once;

/// Panel heights are multiples of this (one AVX-512 vector of f32).
pub const LANES: usize = 16;

/// The best panel height: three vectors, the micro-kernel's.
pub const PANEL: usize = 48;

/// Most columns in one call that the crate takes without packing the left operand.
const COLUMNS: usize = 1024;

/// Panel widths that cover `size` evenly: multiples of [`LANES`] up to `most`, each with its start.
pub fn panels(size: usize, most: usize) -> Vec<(usize, usize)> {
    let vectors = size.div_ceil(LANES);
    let count = vectors.div_ceil(most / LANES);
    let bounds = |i: usize| i * vectors / count * LANES;
    (0..count).map(|i| (bounds(i), bounds(i + 1) - bounds(i))).collect()
}

/// `dst[j][i] = sum over l of lhs[l][i] * rhs[j][l]`, added to what is there where `add`.
///
/// `i` runs over `m` (a multiple of [`LANES`]), `j` over `n`, `l` over `k`. Rows of `dst`, `lhs` and
/// `rhs` start `dst_row`, `lhs_row` and `rhs_row` elements apart.
#[allow(clippy::too_many_arguments)] // a GEMM has these
pub fn panel_times(
    [m, n, k]: [usize; 3],
    dst: &mut [f32],
    dst_row: usize,
    add: bool,
    lhs: &[f32],
    lhs_row: usize,
    rhs: &[f32],
    rhs_row: usize,
) {
    static UNPACKED: Once = Once::new();
    UNPACKED.call_once(|| gemm_common::gemm::set_lhs_packing_threshold_single_thread(COLUMNS / 4));
    if m == 0 || n == 0 {
        return;
    }
    assert!(m.is_multiple_of(LANES) && m <= dst_row && (m <= lhs_row || k <= 1) && k <= rhs_row.max(k));
    assert!((n - 1) * dst_row + m <= dst.len());
    assert!(k == 0 || ((k - 1) * lhs_row + m <= lhs.len() && (n - 1) * rhs_row + k <= rhs.len()));
    for first in (0..n).step_by(COLUMNS) {
        let columns = COLUMNS.min(n - first);
        // SAFETY: the assertions above bound every element that the call reads or writes: dst rows
        // first..first+columns of m, lhs rows 0..k of m, rhs rows first..first+columns of k. dst is
        // exclusively ours, and `m <= dst_row` keeps its elements distinct.
        unsafe {
            gemm_f32::gemm::f32::get_gemm_fn()(
                m,
                columns,
                k,
                dst.as_mut_ptr().add(first * dst_row),
                dst_row as isize,
                1,
                add,
                lhs.as_ptr(),
                lhs_row as isize,
                1,
                rhs.as_ptr().add(if k == 0 { 0 } else { first * rhs_row }),
                rhs_row as isize,
                1,
                1.0,
                1.0,
                false,
                false,
                false,
                gemm_common::Parallelism::None,
            );
        }
    }
}
