//! Explicit im2col + GEMM: the column matrix goes through memory. The fallback that the first users of these
//! cards fell back on; here bounded, a few images at a time.

use super::build::{
    Buffer, Builder, NewLaunch, Region, epilogue_flags, part, partial_stride, read, single_variant, unused,
    write,
};
use super::gather::{self, FLAG_PARTIAL, FLAG_VEC, Gather, Gathering};
use super::tensors::ConvShape;
use crate::model::chunk;
use crate::{DeviceCaps, Model, Plan, Policy, Refusal, Role, Solver};
use wave32_params::variants::{self, Variant};
use wave32_params::weights::Params as Weights;
use wave32_params::{Along, Pair, Strides, col2im, igemm, im2col, wrw};
use wave32_problem::{ConvProblem, DType, Direction, Layout};

/// Column bytes it asks for where an image needs no more.
const DEFAULT_COLUMNS: u64 = 256 << 20;

/// im2col, GEMM, and for backward-data col2im.
pub struct Im2colGemm;

impl Solver for Im2colGemm {
    fn name(&self) -> &'static str {
        "im2col_gemm"
    }

    fn applicable(&self, problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        ConvShape::new(problem, caps)?;
        let s = problem.spec();
        if s.layout == Layout::Nhwc && s.groups > 1 {
            return Err(Refusal::new("nhwc-groups", "groups are interleaved in NHWC columns"));
        }
        Ok(())
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal> {
        let p = ConvShape::new(problem, caps)?;
        let work = Work::new(&p, problem, caps, policy)?;
        let mut builder = Builder::new(problem, caps);
        let columns = builder.reserve(work.image_bytes * u64::from(work.images));
        match problem.spec().direction {
            Direction::Forward => work.forward(&mut builder, columns),
            Direction::BackwardData => work.backward_data(&mut builder, columns),
            Direction::BackwardWeights => work.backward_weights(&mut builder, columns),
        }
        let config = format!("{}x{}", work.variant.tag, work.images);
        builder.finish(self.name(), config, policy.workspace_cap)
    }
}

/// The numbers that the three directions share.
struct Work<'a> {
    p: &'a ConvShape,
    problem: &'a ConvProblem,
    variant: &'static Variant,
    /// Rows of the column matrix: all groups' channels times taps.
    rows: u32,
    image_bytes: u64,
    /// Images a pass.
    images: u32,
    /// Row of channel `c`, tap `t` is `c * cdiv + t * tdiv`: the filter's memory order.
    cdiv: u32,
    tdiv: u32,
}

impl<'a> Work<'a> {
    fn new(
        p: &'a ConvShape,
        problem: &'a ConvProblem,
        caps: &DeviceCaps,
        policy: &Policy,
    ) -> Result<Self, Refusal> {
        let spec = problem.spec();
        let backward_data = spec.direction == Direction::BackwardData;
        // Backward-data sums into its columns: they are f32 whatever the storage type.
        let size = if backward_data { 4 } else { spec.dtype.size() };
        let row_count = u64::from(p.groups) * u64::from(p.cg) * u64::from(p.taps());
        let image_bytes = row_count * u64::from(p.pixels()) * size;
        // Behind the columns lie, for backward-weights, its sums, at the device's alignment.
        let sums = 4 * u64::from(partial_stride(problem.w_elements()));
        let need = |images: u64| match spec.direction {
            Direction::BackwardWeights => {
                (images * image_bytes).next_multiple_of(caps.region_alignment()) + sums
            }
            _ => images * image_bytes,
        };
        let cap = policy.workspace_cap.unwrap_or(u64::MAX).min(DEFAULT_COLUMNS.max(need(1)));
        if need(1) > cap {
            let detail = format!("the columns of one image need {} bytes of {cap}", need(1));
            return Err(Refusal::new("workspace-cap", detail));
        }
        let elements = row_count * u64::from(p.pixels());
        if elements > 1 << 30 {
            let detail = format!("the column matrix of one image has {elements} elements");
            return Err(Refusal::new("tensor-too-large", detail));
        }
        let behind = need(1) - image_bytes;
        let columns = cap.saturating_sub(behind).max(image_bytes).min(caps.max_range);
        let most = (columns / image_bytes).min((1 << 30) / elements).min(u64::from(p.n));
        let mut images = most.min(u64::from(caps.max_groups[2])).max(1);
        // What the alignment takes differs with the number of images.
        while images > 1 && need(images) > cap {
            images -= 1;
        }
        let source = if spec.direction == Direction::BackwardWeights { "wrw" } else { "igemm" };
        let variant = variants::of(source, spec.dtype)
            .filter(|v| !v.is_half())
            .filter(|v| v.define("MODE") == 0 && policy.config.as_ref().is_none_or(|c| c.starts_with(&v.tag)))
            .find(|v| p.kg.min(p.cg * p.taps()) >= v.define("BM") as u32 || v.tag == "g64x64")
            .ok_or_else(|| Refusal::new("no-config", "the configuration asked for does not fit"))?;
        let (cdiv, tdiv) = match spec.layout {
            Layout::Nchw => (p.taps(), 1),
            Layout::Nhwc => (1, p.cg),
        };
        Ok(Self {
            p,
            problem,
            variant,
            rows: row_count as u32,
            image_bytes,
            images: images as u32,
            cdiv,
            tdiv,
        })
    }

    /// (first image, images) of each pass.
    fn passes(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (n, step) = (self.p.n, self.images);
        (0..n).step_by(step as usize).map(move |first| (first, step.min(n - first)))
    }

    fn group_rows(&self) -> u32 {
        self.p.cg * self.p.taps()
    }

    fn image_elements(&self) -> u32 {
        self.rows * self.p.pixels()
    }

    /// y as planes of one row.
    fn y_planes(&self) -> Strides {
        Strides { h: Along(0), ..self.p.y }
    }

    /// The column matrix as images of one row.
    fn columns(&self) -> Strides {
        Strides::new(self.image_elements(), self.p.pixels(), 0, 1)
    }

    fn im2col(&self, builder: &mut Builder<'_>, columns: Region, first: u32, images: u32) {
        let p = self.p;
        let variant = single_variant("im2col", self.problem.spec().dtype);
        let params = im2col::Params {
            pixels: p.pixels(),
            jw: p.ow,
            rows: self.rows,
            cdiv: self.cdiv,
            tdiv: self.tdiv,
            channels: p.groups * p.cg,
            taps: [p.r, p.s].into(),
            x: p.x,
            h: p.h,
            w: p.w,
            str: p.stride.into(),
            org: Pair(p.pad.map(|v| -v)),
            dil: Pair(p.dilation),
            x_first: first * p.x.n.0,
            cn: self.image_elements(),
        };
        builder.launch::<im2col::Kernel>(NewLaunch {
            variant,
            grid: [p.pixels().div_ceil(variant.threads), self.rows, images],
            params,
            buffers: im2col::Buffers { src: read(Role::X), col: write(columns) },
            flops: 0,
            bytes: 2 * self.image_bytes * u64::from(images),
            // Writes of columns cost twice their bytes.
            model: Model::Stream { bytes: 4 * self.image_bytes * u64::from(images) },
        });
    }

    /// A pointwise gather with the column matrix on one side.
    fn gather(&self, images: u32) -> Gather {
        let p = self.p;
        let (columns, pixels) = (self.group_rows(), p.pixels());
        Gather {
            flags: 0,
            rows: p.kg,
            cols: images * pixels,
            pixels,
            jw: pixels,
            kc: columns,
            taps: Pair([1, 1]),
            src: self.columns(),
            h: 1,
            w: pixels,
            str: Pair([1, 1]),
            org: Pair([0, 0]),
            dil: Pair([0, 0]),
            am: columns,
            ak: 1,
            at: 0,
            au: 0,
            a0: 0,
            ag: p.kg * columns,
            dst: self.y_planes(),
            o0: 0,
            src0: 0,
            slices: 0,
            chunk: 0,
            partial: 0,
        }
    }

    fn gemm(&self, builder: &mut Builder<'_>, mut g: Gather, buffers: igemm::Buffers<Buffer>) {
        let v = self.variant;
        let [bm, bn, bk] = ["BM", "BN", "BK"].map(|d| v.define(d) as u32);
        g.slices = g.depth().div_ceil(bk);
        g.chunk = chunk(g.slices, bk, self.problem.spec().dtype == DType::F32);
        builder.launch::<igemm::Kernel>(NewLaunch {
            variant: v,
            grid: [g.cols.div_ceil(bn), g.rows.div_ceil(bm), self.p.groups],
            params: g,
            buffers,
            flops: super::build::gather_flops(&g, self.p.groups),
            bytes: self.image_bytes * u64::from(g.cols / g.pixels),
            model: Model::Tiles { depth: g.depth().into() },
        });
    }

    fn forward(&self, builder: &mut Builder<'_>, columns: Region) {
        for (first, images) in self.passes() {
            self.im2col(builder, columns, first, images);
            let mut g = self.gather(images);
            g.o0 = first * self.p.y.n.0;
            // jw is the whole plane, so rows of dst never matter.
            let vectors =
                g.dst.w.0 == 1 && [g.pixels, g.dst.n.0, g.dst.c.0].iter().all(|v| v.is_multiple_of(4));
            g.flags = gather::flags(epilogue_flags(self.problem) | if vectors { FLAG_VEC } else { 0 }, 1);
            let buffers = igemm::Buffers {
                src: read(columns),
                wgt: read(Role::W),
                dst: part(Role::Y),
                bias: read(Role::Bias),
                part: unused(Role::Y),
            };
            self.gemm(builder, g, buffers);
        }
    }

    fn backward_data(&self, builder: &mut Builder<'_>, columns: Region) {
        let p = self.p;
        for (first, images) in self.passes() {
            let mut g = self.gather(images);
            (g.rows, g.kc) = (self.group_rows(), p.kg);
            (g.am, g.ak) = (1, self.group_rows());
            g.src = self.y_planes();
            g.dst = self.columns();
            g.flags = gather::flags(FLAG_PARTIAL, 1);
            g.src0 = first * p.y.n.0;
            let buffers = igemm::Buffers {
                src: read(Role::Y),
                wgt: read(Role::W),
                dst: unused(Role::X),
                bias: unused(Role::Bias),
                part: write(columns),
            };
            self.gemm(builder, g, buffers);
            self.col2im(builder, columns, first, images);
        }
    }

    fn col2im(&self, builder: &mut Builder<'_>, columns: Region, first: u32, images: u32) {
        let p = self.p;
        let variant = single_variant("col2im", self.problem.spec().dtype);
        let params = col2im::Params {
            flags: epilogue_flags(self.problem),
            pixels: p.pixels(),
            ow: p.ow,
            oh: p.oh,
            cdiv: self.cdiv,
            tdiv: self.tdiv,
            taps: [p.r, p.s].into(),
            x: p.x,
            h: p.h,
            w: p.w,
            str: p.stride.into(),
            org: Pair(p.pad.map(|v| -v)),
            dil: Pair(p.dilation),
            x_first: first * p.x.n.0,
            cn: self.image_elements(),
            channel0: 0,
        };
        builder.launch::<col2im::Kernel>(NewLaunch {
            variant,
            grid: [(p.h * p.w).div_ceil(variant.threads), p.groups * p.cg, images],
            params,
            buffers: col2im::Buffers { col: read(columns), dst: part(Role::X), bias: read(Role::Bias) },
            flops: u64::from(images) * u64::from(self.image_elements()),
            bytes: self.image_bytes * u64::from(images),
            model: Model::Stream { bytes: 4 * self.image_bytes * u64::from(images) },
        });
    }

    fn backward_weights(&self, builder: &mut Builder<'_>, columns: Region) {
        let p = self.p;
        let v = self.variant;
        let stride = partial_stride(self.problem.w_elements());
        let sums = builder.reserve(4 * u64::from(stride));
        let [bm, bn, bk] = ["BM", "BN", "BK"].map(|d| v.define(d) as u32);
        for (first, images) in self.passes() {
            self.im2col(builder, columns, first, images);
            let slices = (images * p.pixels()).div_ceil(bk);
            let params = Weights {
                kc: self.group_rows(),
                taps: Pair([1, 1]),
                imgs: images,
                oh: 1,
                ow: p.pixels(),
                y: self.y_planes(),
                x: self.columns(),
                h: 1,
                w: p.pixels(),
                str: Pair([1, 1]),
                org: Pair([0, 0]),
                dil: Pair([0, 0]),
                f: Strides::new(self.group_rows(), 1, 0, 0),
                slices,
                chunk: chunk(slices, bk, true),
                partial: stride,
                flags: FLAG_PARTIAL | if first > 0 { wrw::FLAG_ADD } else { 0 },
                y_first: first * p.y.n.0,
                ..super::wrw::params(p)
            };
            builder.launch::<wrw::Kernel>(NewLaunch {
                variant: v,
                grid: [self.group_rows().div_ceil(bn), p.kg.div_ceil(bm), p.groups],
                params,
                buffers: wrw::Buffers {
                    dy: read(Role::Y),
                    src: read(columns),
                    dst: unused(Role::W),
                    part: write(sums),
                },
                flops: self.problem.flops() / u64::from(p.n) * u64::from(images),
                bytes: self.image_bytes * u64::from(images),
                model: Model::Tiles { depth: (images * p.pixels()).into() },
            });
        }
        builder.reduce(sums, (1, stride, 1), Role::W, p);
    }
}
