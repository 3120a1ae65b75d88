//! Explicit im2col + GEMM: the column matrix goes through memory. The fallback that the first users of these
//! cards fell back on; here bounded, a few images at a time.

use super::build::{
    Buffer, Builder, NewLaunch, Region, epilogue_flags, part, partial_stride, pass, read, unused, write,
};
use super::gather::{FLAG_PARTIAL, FLAG_VEC, Gather};
use super::tensors::{Shape, Strides, fits, halves};
use super::wrw::Words;
use crate::model::{TileWork, chunk, launch_seconds, stream_seconds, tile_seconds};
use crate::variants::{self, Variant};
use crate::{Candidate, DeviceCaps, Policy, Refusal, Role, Solver};
use wave32_problem::{ConvProblem, DType, Direction, Layout};

/// Column bytes it asks for where no cap says less.
const DEFAULT_COLUMNS: u64 = 256 << 20;

/// im2col, GEMM, and for backward-data col2im.
pub struct Im2colGemm;

impl Solver for Im2colGemm {
    fn name(&self) -> &'static str {
        "im2col_gemm"
    }

    fn applicable(&self, problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        fits(problem, caps)?;
        let s = problem.spec();
        if s.layout == Layout::Nhwc && s.groups > 1 {
            return Err(Refusal::new("nhwc-groups", "groups are interleaved in NHWC columns"));
        }
        Ok(())
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Candidate, Refusal> {
        let p = Shape::of(problem);
        let work = Work::new(&p, problem, caps, policy)?;
        let mut builder = Builder::new(problem, caps);
        let columns = builder.reserve(work.image_bytes * u64::from(work.images));
        match problem.spec().direction {
            Direction::Forward => work.forward(&mut builder, columns),
            Direction::BackwardData => work.backward_data(&mut builder, columns),
            Direction::BackwardWeights => work.backward_weights(&mut builder, columns),
        }
        let config = format!("{}x{}", work.variant.tag, work.images);
        let cost = work.seconds();
        let plan = builder.finish(self.name(), config, policy.workspace_cap)?;
        Ok(Candidate { plan, cost })
    }
}

/// The numbers that the three directions share.
struct Work<'a> {
    p: &'a Shape,
    problem: &'a ConvProblem,
    caps: &'a DeviceCaps,
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
        p: &'a Shape,
        problem: &'a ConvProblem,
        caps: &'a DeviceCaps,
        policy: &Policy,
    ) -> Result<Self, Refusal> {
        let spec = problem.spec();
        let backward_data = spec.direction == Direction::BackwardData;
        // Backward-data sums into its columns: they are f32 whatever the storage type.
        let size = if backward_data { 4 } else { spec.dtype.size() };
        let row_count = u64::from(p.groups) * u64::from(p.cg) * u64::from(p.taps());
        let image_bytes = row_count * u64::from(p.pixels()) * size;
        let sums = if spec.direction == Direction::BackwardWeights {
            4 * u64::from(partial_stride(problem.w_elements())) + 256
        } else {
            0
        };
        let cap = policy.workspace_cap.unwrap_or(DEFAULT_COLUMNS.max(image_bytes + sums)).min(caps.max_range);
        if image_bytes + sums > cap {
            let detail = format!("the columns of one image need {} bytes of {cap}", image_bytes + sums);
            return Err(Refusal::new("workspace-cap", detail));
        }
        if row_count * u64::from(p.pixels()) > 1 << 30 {
            let detail =
                format!("the column matrix of one image has {} elements", row_count * u64::from(p.pixels()));
            return Err(Refusal::new("tensor-too-large", detail));
        }
        let most = ((cap - sums) / image_bytes).min((1 << 30) / (image_bytes / size));
        let images = most.min(u64::from(p.n)).min(u64::from(caps.max_groups[2])) as u32;
        let text = if spec.direction == Direction::BackwardWeights { "wrw" } else { "igemm" };
        let variant = variants::of(text, spec.dtype)
            .filter(|v| v.define("MODE") == 0 && policy.config.as_ref().is_none_or(|c| c.starts_with(&v.tag)))
            .find(|v| p.kg.min(p.cg * p.taps()) >= v.define("BM") as u32 || v.tag == "g64x64")
            .ok_or_else(|| Refusal::new("no-config", "the configuration asked for does not fit"))?;
        let (cdiv, tdiv) = match spec.layout {
            Layout::Nchw => (p.taps(), 1),
            Layout::Nhwc => (1, p.cg),
        };
        Ok(Self { p, problem, caps, variant, rows: row_count as u32, image_bytes, images, cdiv, tdiv })
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

    /// Distance between neighbouring pixels of y.
    fn y_pixel(&self) -> u32 {
        self.p.y.w
    }

    fn seconds(&self) -> f64 {
        let v = self.variant;
        let passes = f64::from(self.p.n.div_ceil(self.images));
        let columns = self.image_bytes * u64::from(self.p.n);
        let [bm, bn, _] = ["BM", "BN", "BK"].map(|d| v.define(d) as u32);
        let images = u64::from(self.images);
        let (groups, depth) = match self.problem.spec().direction {
            Direction::Forward => (
                (images * u64::from(self.p.pixels())).div_ceil(bn.into()) * u64::from(self.p.kg.div_ceil(bm)),
                self.group_rows(),
            ),
            Direction::BackwardData => (
                (images * u64::from(self.p.pixels())).div_ceil(bn.into())
                    * u64::from(self.group_rows().div_ceil(bm)),
                self.p.kg,
            ),
            Direction::BackwardWeights => (
                u64::from(self.p.kg.div_ceil(bm)) * u64::from(self.group_rows().div_ceil(bn)),
                self.images * self.p.pixels(),
            ),
        };
        let work = TileWork {
            groups: groups * u64::from(self.p.groups),
            depth: depth.into(),
            efficiency: v.define("EFF") as f64 / 100.0,
            bytes: columns / self.p.n.div_ceil(self.images) as u64,
        };
        passes * (2.0 * launch_seconds(self.caps) + tile_seconds(v, &work, self.caps))
            + stream_seconds(4 * columns, self.caps)
    }

    fn im2col(&self, builder: &mut Builder<'_>, columns: Region, first: u32, images: u32) {
        let p = self.p;
        let variant = pass("im2col", self.problem.spec().dtype);
        let words = vec![
            0,
            p.pixels(),
            p.ow,
            self.rows,
            self.cdiv,
            self.tdiv,
            p.groups * p.cg,
            halves(p.r as i32, p.s as i32),
            p.x.n,
            p.x.c,
            p.x.h,
            p.x.w,
            p.h,
            p.w,
            halves(p.stride[0] as i32, p.stride[1] as i32),
            halves(-p.pad[0], -p.pad[1]),
            halves(p.dilation[0], p.dilation[1]),
            first * p.x.n,
            self.image_elements(),
        ];
        builder.launch(NewLaunch {
            variant,
            grid: [p.pixels().div_ceil(variant.threads), self.rows, images],
            words,
            buffers: &[read(Role::X), write(columns)],
            flops: 0,
            bytes: 2 * self.image_bytes * u64::from(images),
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
            taps: [1, 1],
            src: Strides { n: self.image_elements(), c: pixels, h: 0, w: 1 },
            h: 1,
            w: pixels,
            str: [1, 1],
            org: [0, 0],
            dil: [0, 0],
            am: columns,
            ak: 1,
            at: 0,
            au: 0,
            a0: 0,
            ag: p.kg * columns,
            dst: Strides { n: p.y.n, c: p.y.c, h: 0, w: self.y_pixel() },
            o0: 0,
            src0: 0,
            splits: 1,
            slices: 0,
            chunk: 0,
            partial: 0,
        }
    }

    fn gemm(&self, builder: &mut Builder<'_>, mut g: Gather, buffers: &[Buffer]) {
        let v = self.variant;
        let [bm, bn, bk] = ["BM", "BN", "BK"].map(|d| v.define(d) as u32);
        g.slices = g.depth().div_ceil(bk);
        g.chunk = chunk(g.slices, bk, self.problem.spec().dtype == DType::F32);
        builder.launch(NewLaunch {
            variant: v,
            grid: [g.cols.div_ceil(bn), g.rows.div_ceil(bm), self.p.groups],
            words: g.words(),
            buffers,
            flops: super::build::gather_flops(&g, self.p.groups),
            bytes: self.image_bytes * u64::from(g.cols / g.pixels),
        });
    }

    fn forward(&self, builder: &mut Builder<'_>, columns: Region) {
        for (first, images) in self.passes() {
            self.im2col(builder, columns, first, images);
            let mut g = self.gather(images);
            g.o0 = first * self.p.y.n;
            // jw is the whole plane, so rows of dst never matter.
            let vectors = g.dst.w == 1 && [g.pixels, g.dst.n, g.dst.c].iter().all(|v| v.is_multiple_of(4));
            g.flags = epilogue_flags(self.problem) | if vectors { FLAG_VEC } else { 0 };
            let buffers = [read(columns), read(Role::W), part(Role::Y), read(Role::Bias), unused(Role::Y)];
            self.gemm(builder, g, &buffers);
        }
    }

    fn backward_data(&self, builder: &mut Builder<'_>, columns: Region) {
        let p = self.p;
        for (first, images) in self.passes() {
            let mut g = self.gather(images);
            (g.rows, g.kc) = (self.group_rows(), p.kg);
            (g.am, g.ak) = (1, self.group_rows());
            g.src = Strides { n: p.y.n, c: p.y.c, h: 0, w: self.y_pixel() };
            g.dst = Strides { n: self.image_elements(), c: p.pixels(), h: 0, w: 1 };
            g.flags = FLAG_PARTIAL;
            g.src0 = first * p.y.n;
            let buffers = [read(Role::Y), read(Role::W), unused(Role::X), unused(Role::Bias), write(columns)];
            self.gemm(builder, g, &buffers);
            self.col2im(builder, columns, first, images);
        }
    }

    fn col2im(&self, builder: &mut Builder<'_>, columns: Region, first: u32, images: u32) {
        let p = self.p;
        let variant = pass("col2im", self.problem.spec().dtype);
        let words = vec![
            0,
            epilogue_flags(self.problem),
            p.pixels(),
            p.ow,
            p.oh,
            self.cdiv,
            self.tdiv,
            halves(p.r as i32, p.s as i32),
            p.x.n,
            p.x.c,
            p.x.h,
            p.x.w,
            p.h,
            p.w,
            halves(p.stride[0] as i32, p.stride[1] as i32),
            halves(-p.pad[0], -p.pad[1]),
            halves(p.dilation[0], p.dilation[1]),
            first * p.x.n,
            self.image_elements(),
            0,
        ];
        builder.launch(NewLaunch {
            variant,
            grid: [(p.h * p.w).div_ceil(variant.threads), p.groups * p.cg, images],
            words,
            buffers: &[read(columns), part(Role::X), read(Role::Bias)],
            flops: u64::from(images) * u64::from(self.image_elements()),
            bytes: self.image_bytes * u64::from(images),
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
            let mut words = Words::of(p);
            words.kc = self.group_rows();
            words.taps = [1, 1];
            words.imgs = images;
            (words.oh, words.ow) = (1, p.pixels());
            words.y = Strides { n: p.y.n, c: p.y.c, h: 0, w: self.y_pixel() };
            words.x = Strides { n: self.image_elements(), c: p.pixels(), h: 0, w: 1 };
            (words.h, words.w) = (1, p.pixels());
            (words.str, words.org, words.dil) = ([1, 1], [0, 0], [0, 0]);
            words.f = Strides { n: self.group_rows(), c: 1, h: 0, w: 0 };
            words.slices = (images * p.pixels()).div_ceil(bk);
            words.chunk = chunk(words.slices, bk, true);
            words.partial = stride;
            words.flags = FLAG_PARTIAL | if first > 0 { super::wrw::FLAG_ADD } else { 0 };
            words.y_first = first * p.y.n;
            builder.launch(NewLaunch {
                variant: v,
                grid: [self.group_rows().div_ceil(bn), p.kg.div_ceil(bm), p.groups],
                words: words.words(),
                buffers: &[read(Role::Y), read(columns), unused(Role::W), write(sums)],
                flops: self.problem.flops() / u64::from(p.n) * u64::from(images),
                bytes: self.image_bytes * u64::from(images),
            });
        }
        builder.reduce(sums, 1, stride, Role::W, p);
    }
}
