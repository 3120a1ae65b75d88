//! Products of matrices in tiles (`kernels/gemm.kern`): operands are read where they lie, factors, what is added and an
//! activation are part of the launch.

use super::build::{
    Builder, Cheapest, HALF_UP, MAX_LAUNCHES, NewLaunch, Region, activation_flags, part, partial_stride,
    read, unused, usable,
};
use super::skinny::Tensor;
use super::tensors::check_storage;
use crate::model::{SPLITS, chunk};
use crate::{DeviceCaps, Model, Plan, Policy, Refusal, Role, Solver};
use wave32_params::gemm;
use wave32_params::gemm::{FLAG_ADD, FLAG_LHS_K, FLAG_PARTIAL, FLAG_RHS_K, FLAG_WIDE};
use wave32_params::variants::Variant;
use wave32_problem::{DType, MatmulProblem, Pass};

/// What a byte of a partial result costs: it is written, read by a pass of its own, and nothing overlaps.
pub(super) const PARTIAL_WEIGHT: u64 = 3;

/// Tiles of the result; any sizes and strides.
pub struct Gemm;

impl Solver<MatmulProblem> for Gemm {
    fn name(&self) -> &'static str {
        "gemm"
    }

    fn applicable(&self, problem: &MatmulProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        check_storage(problem.spec().dtype, caps)?;
        Product::new(problem, caps).map(drop)
    }

    fn plan(&self, problem: &MatmulProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal> {
        let product = Product::new(problem, caps)?;
        let mut best = Cheapest::new(caps);
        for variant in usable("gemm", problem, caps, policy).filter(|v| product.takes(v)) {
            let slices = problem.reduction_len().div_ceil(variant.define("BK") as u64);
            for splits in SPLITS.into_iter().filter(|&s| s == 1 || u64::from(s) * 2 <= slices) {
                let config = format!("{}/{splits}", variant.tag);
                if policy.config.as_ref().is_none_or(|name| *name == config) {
                    let mut builder = Builder::new(problem, caps);
                    let made = product.emit(&mut builder, variant, splits, problem);
                    best.offer(made.and_then(|()| builder.finish(self.name(), config, policy.workspace_cap)));
                }
            }
        }
        best.plan()
    }
}

/// How the kernel reads an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    /// Four neighbours along k at once.
    AlongK,
    /// Four neighbours along the other side at once.
    AlongSide,
    /// Element by element, neighbouring lanes along k or along the other side.
    Apart { is_along_k: bool },
}

/// Of a tensor whose dimension `k` is the sum's and `side` the other.
fn lies(tensor: &Tensor, k: usize, side: usize) -> Lies {
    let is_whole = |dim: usize| {
        tensor.strides[dim] == 1
            && tensor.sizes[dim].is_multiple_of(4)
            && tensor.first.is_multiple_of(4)
            && (0..3).all(|other| other == dim || tensor.strides[other].is_multiple_of(4))
    };
    if is_whole(k) {
        Lies::AlongK
    } else if is_whole(side) {
        Lies::AlongSide
    } else {
        // A stride of 0 is that of a size of 1, or of repeated elements.
        let along = |dim: usize| if tensor.sizes[dim] == 1 { u64::MAX } else { tensor.strides[dim] };
        Lies::Apart { is_along_k: along(k) <= along(side) }
    }
}

/// The product's tensors, `batch` matrices a launch.
struct Product {
    lhs: Tensor,
    rhs: Tensor,
    out: Tensor,
    added: Option<Tensor>,
    lie: [Lies; 2],
    batch: u64,
}

impl Product {
    /// Refuses matrices of which a launch cannot bind one.
    fn new(problem: &MatmulProblem, caps: &DeviceCaps) -> Result<Self, Refusal> {
        let [lhs, rhs] = Tensor::operands(problem);
        let out = Tensor::result(problem);
        let added = problem.spec().added.map(|_| Tensor::added(problem));
        let size = problem.spec().dtype.size();
        let mut batch = (problem.spec().batch as u64).min(u64::from(caps.max_groups[2]));
        while ![Some(lhs), Some(rhs), Some(out), added]
            .into_iter()
            .flatten()
            .all(|tensor| tensor.narrow(0, 0, batch).fits(caps, size))
        {
            if batch == 1 {
                return Err(Refusal::new("tensor-too-large", "a matrix is more than a launch binds"));
            }
            batch = batch.div_ceil(2);
        }
        let lie = [lies(&lhs, 2, 1), lies(&rhs, 1, 2)];
        Ok(Self { lhs, rhs, out, added, lie, batch })
    }

    /// Both operands are read as vectors, or neither: two that are transposed are not.
    fn takes(&self, variant: &Variant) -> bool {
        let along = |name| if variant.define(name) == 1 { Lies::AlongK } else { Lies::AlongSide };
        match self.lie {
            [Lies::Apart { .. }, _] | [_, Lies::Apart { .. }] | [Lies::AlongSide, Lies::AlongK] => {
                variant.define("VEC") == 0
            }
            // These are of convolutions.
            _ if variant.defines.contains_key("IMAGES") || variant.is_of_planes() => false,
            lie => variant.define("VEC") == 1 && lie == [along("ALONG_K"), along("BLONG_K")],
        }
    }

    /// Every launch of a plan.
    fn emit(
        &self,
        builder: &mut Builder<'_, MatmulProblem>,
        variant: &'static Variant,
        splits: u32,
        problem: &MatmulProblem,
    ) -> Result<(), Refusal> {
        let all = problem.spec().batch as u64;
        let stride = u64::from(partial_stride(problem.output_elements()));
        let partials = (splits > 1).then(|| builder.reserve(4 * u64::from(splits) * stride));
        if let Some(region) = partials
            && (region.size > builder.caps().max_range || region.size / 4 >= 1 << 31)
        {
            let detail = format!("{} bytes of partial results", region.size);
            return Err(Refusal::new("workspace-too-large", detail));
        }
        let most = u64::from(builder.caps().max_groups[2] / splits).max(1).min(self.batch);
        if all.div_ceil(most) > MAX_LAUNCHES {
            let detail = format!("{}, takes {MAX_LAUNCHES}", all.div_ceil(most));
            return Err(Refusal::new("too-many-launches", detail));
        }
        for at in (0..all).step_by(most as usize) {
            let count = most.min(all - at);
            let some = |tensor: Tensor| tensor.narrow(0, at, count);
            let piece = Self {
                lhs: some(self.lhs),
                rhs: some(self.rhs),
                out: some(self.out),
                added: self.added.map(some),
                batch: count,
                ..*self
            };
            piece.launch(builder, variant, splits, partials, problem)?;
        }
        if let Some(part) = partials {
            let total = problem.output_elements() as u32;
            builder.sum_results(part, (total, splits, stride as u32), PARTIAL_WEIGHT);
        }
        Ok(())
    }

    fn launch(
        &self,
        builder: &mut Builder<'_, MatmulProblem>,
        variant: &'static Variant,
        splits: u32,
        partials: Option<Region>,
        problem: &MatmulProblem,
    ) -> Result<(), Refusal> {
        let (caps, s) = (builder.caps(), problem.spec());
        let dtype = s.dtype;
        let [bm, bn, bk] = ["BM", "BN", "BK"].map(|name| variant.define(name) as u64);
        let ([_, rows, depth], [_, _, cols]) = (self.lhs.sizes, self.rhs.sizes);
        let (lhs, lhs_at) = self.lhs.bind(caps, dtype)?;
        let (rhs, rhs_at) = self.rhs.bind(caps, dtype)?;
        let added = self.added.map(|tensor| tensor.bind(caps, dtype)).transpose()?;
        let (dst, sums, out_at) = match partials {
            Some(region) => (unused(Role::Y), part(region), self.out.first as u32),
            None => {
                let (out, at) = self.out.bind(caps, dtype)?;
                (part(out), unused(Role::Y), at)
            }
        };
        let flag = |flag: u32, is_set: bool| if is_set { flag } else { 0 };
        let is_along_k = |lies| matches!(lies, Lies::AlongK | Lies::Apart { is_along_k: true });
        let flags = flag(FLAG_PARTIAL, partials.is_some())
            | flag(FLAG_WIDE, cols.is_multiple_of(4))
            | flag(FLAG_ADD, added.is_some())
            | activation_flags(s.activation)
            | flag(FLAG_LHS_K, is_along_k(self.lie[0]))
            | flag(FLAG_RHS_K, is_along_k(self.lie[1]));
        let slices = depth.div_ceil(bk).div_ceil(u64::from(splits)) as u32;
        let fit = |strides: [u64; 3]| strides.map(|stride| stride as u32);
        let [lhs_g, lhs_m, lhs_k] = fit(self.lhs.strides);
        let [rhs_g, rhs_k, rhs_n] = fit(self.rhs.strides);
        let [out_g, out_m, _] = fit(self.out.strides);
        let [add_g, add_m, add_n] = fit(self.added.map_or([0; 3], |added| added.strides));
        let up = if variant.is_half() && s.pass == Pass::Backward { HALF_UP } else { 1.0 };
        let results = partials.map_or(dtype.size(), |_| 4 * u64::from(splits));
        builder.launch::<gemm::Kernel>(NewLaunch {
            variant,
            grid: [cols.div_ceil(bn) as u32, rows.div_ceil(bm) as u32, self.batch as u32 * splits],
            params: gemm::Params {
                rows: rows as u32,
                cols: cols as u32,
                depth: depth as u32,
                slices,
                chunk: chunk(slices, bk as u32, dtype == DType::F32),
                splits,
                partial: partial_stride(problem.output_elements()),
                flags,
                lhs_at,
                lhs_m,
                lhs_k,
                lhs_g,
                rhs_at,
                rhs_k,
                rhs_n,
                rhs_g,
                out_at,
                out_m,
                out_g,
                add_at: added.map_or(0, |(_, at)| at),
                add_m,
                add_n,
                add_g,
                run: 0,
                lhs_run: 0,
                rhs_run: 0,
                alpha: s.alpha.0 as f32 / up,
                beta: s.added.map_or(0.0, |added| added.beta.0 as f32),
                up,
            },
            buffers: gemm::Buffers {
                lhs: read(lhs),
                rhs: read(rhs),
                dst,
                part: sums,
                added: added.map_or(unused(Role::Y), |(source, _)| read(source)),
            },
            flops: 2 * self.batch * rows * cols * depth,
            bytes: self.batch * ((rows + cols) * depth * dtype.size() + rows * cols * results),
            model: Model::Tiles { depth: u64::from(slices) * bk },
        });
        Ok(())
    }
}
