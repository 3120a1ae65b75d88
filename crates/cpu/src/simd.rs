//! Vector loops of the direct path, compiled for each instruction set and chosen at run time.

use pulp::{Arch, Simd, WithSimd};

/// Longest vector of any instruction set, in f32: buffers are padded by it.
pub const VECTOR: usize = 16;

/// `out[v] = sum over t of weights[t] * data[offsets[t] + v]`.
///
/// `out` may be any length; `data` must reach `VECTOR - 1` elements past each last one read.
pub struct Correlate<'a> {
    pub out: &'a mut [f32],
    pub data: &'a [f32],
    pub offsets: &'a [usize],
    pub weights: &'a [f32],
}

impl Correlate<'_> {
    /// Runs it.
    pub fn run(self) {
        arch().dispatch(self);
    }
}

fn arch() -> Arch {
    static ARCH: std::sync::OnceLock<Arch> = std::sync::OnceLock::new();
    *ARCH.get_or_init(Arch::new)
}

impl WithSimd for Correlate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        const WIDE: usize = 4;
        let Self { out, data, offsets, weights } = self;
        let mut first = 0;
        while first + WIDE * S::F32_LANES <= out.len() {
            let mut sums = [simd.splat_f32s(0.0); WIDE];
            for (offset, weight) in offsets.iter().zip(weights) {
                let from = S::as_simd_f32s(&data[offset + first..][..WIDE * S::F32_LANES]).0;
                let weight = simd.splat_f32s(*weight);
                for i in 0..WIDE {
                    sums[i] = simd.mul_add_f32s(weight, from[i], sums[i]);
                }
            }
            S::as_mut_simd_f32s(&mut out[first..][..WIDE * S::F32_LANES]).0.copy_from_slice(&sums);
            first += WIDE * S::F32_LANES;
        }
        // One vector wide, so four sums over the taps instead: a chain of one waits for each addition.
        while first < out.len() {
            let mut sums = [simd.splat_f32s(0.0); WIDE];
            for (offsets, weights) in offsets.chunks(WIDE).zip(weights.chunks(WIDE)) {
                for (sum, (offset, weight)) in sums.iter_mut().zip(offsets.iter().zip(weights)) {
                    let from = S::as_simd_f32s(&data[offset + first..][..S::F32_LANES]).0;
                    *sum = simd.mul_add_f32s(simd.splat_f32s(*weight), from[0], *sum);
                }
            }
            let sum = simd.add_f32s(simd.add_f32s(sums[0], sums[1]), simd.add_f32s(sums[2], sums[3]));
            let end = out.len().min(first + S::F32_LANES);
            simd.partial_store_f32s(&mut out[first..end], sum);
            first = end;
        }
    }
}

/// Taps whose products [`Dot`] sums side by side.
pub const TAPS: usize = 9;

/// `sums[t] = sum over rows u and v < len of dy[u * len + v] * data[offsets[t] + u * row + v]`, where `len`
/// is a multiple of [`VECTOR`].
pub struct Dot<'a> {
    pub dy: &'a [f32],
    pub len: usize,
    pub data: &'a [f32],
    pub row: usize,
    pub offsets: [usize; TAPS],
}

impl Dot<'_> {
    /// Runs it.
    pub fn run(self) -> [f32; TAPS] {
        arch().dispatch(self)
    }
}

impl WithSimd for Dot<'_> {
    type Output = [f32; TAPS];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> [f32; TAPS] {
        let mut sums = [simd.splat_f32s(0.0); TAPS];
        for (u, dy) in self.dy.chunks_exact(self.len).enumerate() {
            let rows = self.offsets.map(|offset| &self.data[offset + u * self.row..][..self.len]);
            let rows = rows.map(|row| S::as_simd_f32s(row).0);
            for (v, dy) in S::as_simd_f32s(dy).0.iter().enumerate() {
                for t in 0..TAPS {
                    sums[t] = simd.mul_add_f32s(*dy, rows[t][v], sums[t]);
                }
            }
        }
        sums.map(|sum| simd.reduce_sum_f32s(sum))
    }
}

/// `to[j][i] = from[i][j]` for a square of [`VECTOR`] rows and columns.
pub struct Transpose<'a> {
    pub to: &'a mut [f32],
    pub to_row: usize,
    pub from: &'a [f32],
    pub from_row: usize,
}

impl Transpose<'_> {
    /// Runs it.
    pub fn run(self) {
        arch().dispatch(self);
    }
}

impl WithSimd for Transpose<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        // Perfect shuffles: each of the four rounds interleaves row i with row i + 8.
        let mut rows = [[0.0f32; VECTOR]; VECTOR];
        for (i, row) in rows.iter_mut().enumerate() {
            row.copy_from_slice(&self.from[i * self.from_row..][..VECTOR]);
        }
        for _ in 0..4 {
            let mut next = [[0.0f32; VECTOR]; VECTOR];
            for i in 0..VECTOR / 2 {
                let (a, b) = (rows[i], rows[i + VECTOR / 2]);
                for j in 0..VECTOR / 2 {
                    next[2 * i][2 * j] = a[j];
                    next[2 * i][2 * j + 1] = b[j];
                    next[2 * i + 1][2 * j] = a[j + VECTOR / 2];
                    next[2 * i + 1][2 * j + 1] = b[j + VECTOR / 2];
                }
            }
            rows = next;
        }
        for (j, row) in rows.iter().enumerate() {
            self.to[j * self.to_row..][..VECTOR].copy_from_slice(row);
        }
    }
}
