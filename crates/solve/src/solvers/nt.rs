//! Products of matrices that both lie along the sum (`nt` and `i` of `kernels/gemm.kern`): gradients of filters. A row is a
//! channel, its elements are pixels or tiles.

use super::build::{
    Buffer, Builder, Cheapest, HALF_UP, NewLaunch, partial_stride, read, unused, usable, write,
};
use super::tensors::ConvShape;
use crate::model::{SPLITS, chunk};
use crate::{DeviceCaps, Model, Plan, Policy, Refusal, Role};
use wave32_params::gemm::{self, FLAG_PARTIAL, FLAG_WIDE};
use wave32_params::variants::{self, Variant};
use wave32_problem::{ConvProblem, DType, Layout};

/// `result[group][row][column] = sum over k of lhs[group][row][k] * rhs[group][column][k]`.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    pub groups: u32,
    pub rows: u32,
    pub cols: u32,
    pub depth: u32,
    /// From row to row, and from column to column.
    pub apart: [u32; 2],
    /// k runs through images of so many elements; their strides.
    pub images: Option<(u32, [u32; 2])>,
    /// Longest chain of additions, in elements; none where rounding does not matter.
    pub longest: Option<u32>,
}

/// Whether a variant of the kernel multiplies such operands, in images or whole.
pub fn takes(variant: &Variant, in_images: bool) -> bool {
    let is_nt = ["VEC", "ALONG_K", "BLONG_K"].iter().all(|name| variant.defines.get(*name) == Some(&1));
    is_nt && !variant.is_of_planes() && variant.defines.contains_key("IMAGES") == in_images
}

impl Product {
    /// Launches it; with more than one split, `part` gets the partial results, `partial` elements apart, else `dst` the result. Of a
    /// variant whose results are f32, `part` gets them always.
    pub fn launch(
        &self,
        builder: &mut Builder<'_>,
        variant: &'static Variant,
        (splits, partial): (u32, u32),
        [lhs, rhs, dst, part]: [Buffer; 4],
        (operand_size, result_size): (u64, u64),
    ) {
        let &Self { groups, rows, cols, depth, apart, images, longest } = self;
        let [bm, bn, bk] = ["BM", "BN", "BK"].map(|d| variant.define(d) as u32);
        let slices = depth.div_ceil(bk).div_ceil(splits);
        let (run, strides) = images.unwrap_or((depth, [depth; 2]));
        let wide = if cols.is_multiple_of(4) { FLAG_WIDE } else { 0 };
        let elements = |side: u32| u64::from(groups) * u64::from(side) * u64::from(depth);
        let results = u64::from(groups) * u64::from(rows) * u64::from(cols);
        // Rows of one group follow those of the one before.
        let [lhs_g, rhs_g] = [rows * apart[0], cols * apart[1]];
        let up = match variant.is_half() {
            // Winograd's planes are scaled, but for this.
            true if variant.is_of_planes() => 2.0,
            true => HALF_UP,
            false => 1.0,
        };
        builder.launch::<gemm::Kernel>(NewLaunch {
            variant,
            grid: [cols.div_ceil(bn), rows.div_ceil(bm), groups * splits],
            params: gemm::Params {
                rows,
                cols,
                depth,
                slices,
                chunk: longest.map_or(slices, |longest| chunk(slices, bk, true).min((longest / bk).max(1))),
                splits,
                partial,
                flags: wide | if splits > 1 || variant.is_wide() { FLAG_PARTIAL } else { 0 },
                lhs_at: 0,
                lhs_m: apart[0],
                lhs_k: 1,
                lhs_g,
                rhs_at: 0,
                rhs_k: 1,
                rhs_n: apart[1],
                rhs_g,
                out_at: 0,
                out_m: cols,
                out_g: rows * cols,
                add_at: 0,
                add_m: 0,
                add_n: 0,
                add_g: 0,
                run,
                lhs_run: strides[0] - run,
                rhs_run: strides[1] - run,
                alpha: 1.0 / up,
                beta: 0.0,
                up,
            },
            buffers: gemm::Buffers { lhs, rhs, dst, part, added: unused(lhs.place) },
            flops: 2 * results * u64::from(depth),
            bytes: operand_size * (elements(rows) + elements(cols))
                + u64::from(splits) * results * result_size,
            model: Model::Tiles { depth: u64::from(slices) * u64::from(bk) },
        });
    }
}

/// Gradients of 1x1 filters: images whose channels lie pixel by pixel.
pub fn pointwise(problem: &ConvProblem, caps: &DeviceCaps) -> Result<(ConvShape, Product), Refusal> {
    let s = ConvShape::new(problem, caps)?;
    let pixels = s.pixels();
    // An image has a whole slice of the sum. Those in f16 may be longer.
    let is_whole = |v: &Variant| v.define("BK") <= i64::from(pixels);
    let mut wanted = variants::of("gemm", DType::F32).filter(|v| takes(v, true));
    if problem.spec().layout != Layout::Nchw || !pixels.is_multiple_of(4) || !wanted.all(is_whole) {
        let detail = "pixels of a channel must be contiguous, in multiples of 4, 16 at least";
        return Err(Refusal::new("no-vector-loads", detail));
    }
    let product = Product {
        groups: s.groups,
        rows: s.kg,
        cols: s.cg,
        depth: s.n * pixels,
        apart: [pixels; 2],
        images: Some((pixels, [s.y.n.0, s.x.n.0])),
        longest: (problem.spec().dtype == DType::F32).then_some(crate::model::LONGEST_CHAIN),
    };
    Ok((s, product))
}

/// The cheapest plan for the gradients of 1x1 filters.
pub fn plan(
    solver: &'static str,
    problem: &ConvProblem,
    caps: &DeviceCaps,
    policy: &Policy,
) -> Result<Plan, Refusal> {
    let (shape, product) = pointwise(problem, caps)?;
    let size = problem.spec().dtype.size();
    let stride = partial_stride(problem.w_elements());
    let mut best = Cheapest::new(caps);
    let takes = |v: &&Variant| takes(v, true) && v.define("BK") <= i64::from(shape.pixels());
    for variant in usable("gemm", problem, caps, policy).filter(takes) {
        let slices = product.depth.div_ceil(variant.define("BK") as u32);
        for splits in SPLITS.into_iter().filter(|&splits| splits == 1 || splits * 2 <= slices) {
            let config = format!("{}/{splits}", variant.tag);
            if policy.config.as_ref().is_some_and(|name| *name != config) {
                continue;
            }
            let mut builder = Builder::new(problem, caps);
            let operands = [read(Role::Y), read(Role::X)];
            if splits == 1 {
                let buffers = [operands[0], operands[1], write(Role::W), unused(Role::W)];
                product.launch(&mut builder, variant, (1, 0), buffers, (size, size));
            } else {
                let parts = builder.reserve(4 * u64::from(splits) * u64::from(stride));
                let buffers = [operands[0], operands[1], unused(Role::W), write(parts)];
                product.launch(&mut builder, variant, (splits, stride), buffers, (size, 4));
                builder.reduce(parts, (splits, stride, 2), Role::W, &shape);
            }
            best.offer(builder.finish(solver, config, policy.workspace_cap));
        }
    }
    best.plan()
}
