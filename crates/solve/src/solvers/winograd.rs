//! Winograd F(4x4, 3x3) through memory: 3x3 filters with unit stride, a quarter of the multiplications. And F(2x2, 3x3) in one
//! launch ([`super::winograd_fused`]).
//!
//! Pixels and filters are transformed to 36 planes, a product of matrices each (`kernels/igemm.kern`), and the products
//! transformed back (`kernels/winograd.h` has the source). A few images at a time, so that the planes stay within the
//! workspace cap. Everything between is f32, whatever the storage type; where sums in f16 are allowed, the planes of pixels and
//! filters may be f16 (`f4/h...`).

use super::build::{
    Buffer, Builder, Cheapest, NewLaunch, Region, epilogue_flags, part, read, tagged_variant, unused, usable,
    write,
};
use super::gather::{self, FLAG_VEC, Gather};
use super::nt;
use super::tensors::{ConvShape, has_rows_of_vectors};
use super::winograd_fused;
use crate::model::{SPLITS, chunk};
use crate::{DeviceCaps, Model, Plan, Policy, Refusal, Role, Solver};
use wave32_params::variants::{self, Variant};
use wave32_params::winograd::{WINO_PIXEL_SHIFT, WINO_PLANES as PLANES, WINO_PRODUCT_SHIFT};
use wave32_params::{
    Along, Pair, Strides, igemm, winograd_data, winograd_filter, winograd_filter_half, winograd_output,
    winograd_weights,
};
use wave32_problem::{ConvProblem, DType, Direction};

/// Bytes of planes it asks for where a pass needs no more: larger ones gain nothing.
const DEFAULT_PLANES: u64 = 256 << 20;
/// Longest chain of additions of transformed products.
const LONGEST_SUM: u32 = 1024;
/// Planes of pixels in f16, and of products, are divided by two to these powers.
const PIXEL_SHIFT: i32 = WINO_PIXEL_SHIFT as i32;
const PRODUCT_SHIFT: i32 = WINO_PRODUCT_SHIFT as i32;
/// Outputs of a tile along each side.
const TILE: u32 = 4;
/// Channels of a workgroup that transforms.
const CHANNELS: u32 = 4;
/// The variants of igemm that multiply planes.
const POINTWISE: i64 = 2;

/// The solver.
pub struct Winograd;

impl Solver for Winograd {
    fn name(&self) -> &'static str {
        "winograd"
    }

    fn applicable(&self, problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        Work::new(problem, caps).map(drop)
    }

    fn plan(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal> {
        let work = Work::new(problem, caps)?;
        let mut best = Cheapest::new(caps);
        let s = problem.spec();
        let is_weights = s.direction == Direction::BackwardWeights;
        let source = if is_weights { "gemm" } else { "igemm" };
        let takes =
            |v: &&Variant| if is_weights { nt::takes(v, false) } else { v.define("MODE") == POINTWISE };
        // Gradients' products in f16 could vanish.
        let is_wide = s.direction != Direction::Forward;
        let of_halves =
            usable(source, problem, caps, policy).filter(|v| v.is_of_planes() && v.is_wide() == is_wide);
        for variant in variants::of(source, DType::F32).filter(takes).chain(of_halves) {
            for splits in SPLITS.into_iter().filter(|&s| s == 1 || is_weights) {
                let config = Config { variant, splits };
                if policy.config.as_ref().is_none_or(|name| *name == config.name()) {
                    best.offer(work.plan(self.name(), &config, caps, policy));
                }
            }
        }
        winograd_fused::offer(self.name(), &mut best, &work, caps, policy);
        best.plan()
    }
}

/// One way to multiply the planes.
struct Config {
    variant: &'static Variant,
    splits: u32,
}

impl Config {
    fn name(&self) -> String {
        format!("f4/{}/{}", self.variant.tag, self.splits)
    }

    fn define(&self, name: &str) -> u32 {
        self.variant.define(name) as u32
    }
}

/// What one product of the planes is.
#[derive(Clone, Copy)]
struct Product {
    /// Rows and depth of the left operand, columns of the right one, as memory has them.
    rows: u32,
    depth: u32,
    columns: u32,
    /// Rows with their padding.
    padded_rows: u32,
    /// Operands in f16 have a row of scales behind so many rows of the left one.
    scaled: Option<u32>,
    /// Bytes of a result's element.
    result_size: u64,
}

impl Product {
    /// Elements of a plane of the left operand.
    fn left_plane(&self) -> u32 {
        (self.depth + self.scaled.map_or(0, |rows| self.depth / rows)) * self.padded_rows
    }

    /// Bytes of an operand's element.
    fn size(&self) -> u64 {
        if self.scaled.is_some() { 2 } else { 4 }
    }

    fn left_bytes(&self) -> u64 {
        self.size() * u64::from(PLANES) * u64::from(self.left_plane())
    }

    fn right_bytes(&self) -> u64 {
        self.size() * u64::from(PLANES) * u64::from(self.depth) * u64::from(self.columns)
    }

    fn result_bytes(&self) -> u64 {
        self.result_size * u64::from(PLANES) * u64::from(self.rows) * u64::from(self.columns)
    }
}

/// An image tensor as tiles.
#[derive(Clone, Copy)]
pub(super) struct Tiled {
    pub role: Role,
    pub channels: u32,
    pub strides: Strides,
    pub size: [u32; 2],
    /// Position of the first tile's first pixel.
    pub org: [i32; 2],
}

pub(super) struct Work<'a> {
    pub problem: &'a ConvProblem,
    pub shape: ConvShape,
    /// Tiles down and across an image of results.
    tiles: [u32; 2],
}

impl<'a> Work<'a> {
    fn new(problem: &'a ConvProblem, caps: &DeviceCaps) -> Result<Self, Refusal> {
        let s = problem.spec();
        if [s.r, s.s] != [3, 3] || s.stride != [1, 1] || s.dilation != [1, 1] {
            return Err(Refusal::new("not-3x3", "takes 3x3 filters without stride and dilation"));
        }
        if s.groups != 1 {
            return Err(Refusal::new("groups", format!("takes one group, not {}", s.groups)));
        }
        let shape = ConvShape::new(problem, caps)?;
        let results = match s.direction {
            Direction::BackwardData => [shape.h, shape.w],
            _ => [shape.oh, shape.ow],
        };
        let multiple = match s.direction {
            Direction::Forward => ("input channels", shape.cg, 8),
            Direction::BackwardData => ("output channels", shape.kg, 8),
            Direction::BackwardWeights => ("input channels", shape.cg, 4),
        };
        if !multiple.1.is_multiple_of(multiple.2) {
            let detail = format!("{} {}, takes multiples of {}", multiple.1, multiple.0, multiple.2);
            return Err(Refusal::new("odd-channels", detail));
        }
        Ok(Self { problem, shape, tiles: results.map(|v| v.div_ceil(TILE)) })
    }

    fn tiles_of(&self, images: u32) -> u32 {
        images * self.tiles[0] * self.tiles[1]
    }

    /// Images a pass: as many as keep `bytes` of them within the cap and within what a kernel addresses.
    fn images(&self, bytes: impl Fn(u32) -> u64, caps: &DeviceCaps, policy: &Policy) -> Result<u32, Refusal> {
        let cap = policy.workspace_cap.unwrap_or(u64::MAX).min(caps.max_range).min(4 << 30);
        let n = self.shape.n;
        let equal_passes = (1..=n).map(|passes| n.div_ceil(passes));
        let within = |most: u64| equal_passes.clone().find(|&images| bytes(images) <= most);
        within(cap.min(DEFAULT_PLANES)).or_else(|| within(cap)).ok_or_else(|| {
            let least = equal_passes.map(bytes).min().unwrap_or_default();
            Refusal::new("workspace-cap", format!("the planes need {least} bytes at least, of {cap}"))
        })
    }

    /// (first image, images) of each pass.
    fn passes(&self, images: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let n = self.shape.n;
        (0..n).step_by(images as usize).map(move |first| (first, images.min(n - first)))
    }

    fn plan(
        &self,
        solver: &'static str,
        config: &Config,
        caps: &DeviceCaps,
        policy: &Policy,
    ) -> Result<Plan, Refusal> {
        let mut builder = Builder::new(self.problem, caps);
        match self.problem.spec().direction {
            Direction::BackwardWeights => self.weights(&mut builder, config, policy)?,
            Direction::Forward => self.images_of(&mut builder, config, policy, self.forward())?,
            Direction::BackwardData => self.images_of(&mut builder, config, policy, self.backward_data())?,
        }
        builder.finish(solver, config.name(), policy.workspace_cap)
    }

    fn x(&self) -> Tiled {
        let s = &self.shape;
        Tiled { role: Role::X, channels: s.cg, strides: s.x, size: [s.h, s.w], org: s.pad.map(|p| -p) }
    }

    fn y(&self) -> Tiled {
        let s = &self.shape;
        Tiled { role: Role::Y, channels: s.kg, strides: s.y, size: [s.oh, s.ow], org: [0, 0] }
    }

    /// Source, result, and the filters as rows and depth.
    pub fn forward(&self) -> (Tiled, Tiled, winograd_filter::Params) {
        let s = &self.shape;
        let filter = winograd_filter::Params {
            rows: s.kg,
            m4: 0,
            kc: s.cg,
            am: s.f.n.0,
            ak: s.f.c.0,
            at: s.f.h.0,
            au: s.f.w.0,
            a0: 0,
            plane: 0,
        };
        (self.x(), self.y(), filter)
    }

    /// The same of backward-data: dx is the convolution of dy with the filters turned by half a circle.
    pub fn backward_data(&self) -> (Tiled, Tiled, winograd_filter::Params) {
        let s = &self.shape;
        let source = Tiled { org: s.pad.map(|p| p - 2), ..self.y() };
        let filter = winograd_filter::Params {
            rows: s.cg,
            m4: 0,
            kc: s.kg,
            am: s.f.c.0,
            ak: s.f.n.0,
            // Backwards from the last tap; indices wrap.
            at: s.f.h.0.wrapping_neg(),
            au: s.f.w.0.wrapping_neg(),
            a0: 2 * s.f.h.0 + 2 * s.f.w.0,
            plane: 0,
        };
        (source, Tiled { org: [0, 0], ..self.x() }, filter)
    }

    /// Forward and backward-data: `M[point][row][tile] = U[point][depth][row] V[point][depth][tile]`.
    fn images_of(
        &self,
        builder: &mut Builder<'_>,
        config: &Config,
        policy: &Policy,
        (source, result, filter): (Tiled, Tiled, winograd_filter::Params),
    ) -> Result<(), Refusal> {
        let caps = builder.caps();
        let (depth, bk, is_half) = (source.channels, config.define("BK"), config.variant.is_half());
        if !depth.is_multiple_of(bk) {
            return Err(Refusal::new("odd-channels", "not a multiple of the slice"));
        }
        let product = |images: u32| Product {
            rows: filter.rows,
            depth,
            columns: self.tiles_of(images).next_multiple_of(4),
            padded_rows: filter.rows.next_multiple_of(config.define("BM")),
            scaled: is_half.then_some(bk),
            result_size: if is_half && !config.variant.is_wide() { 2 } else { 4 },
        };
        let align = caps.region_alignment();
        let bytes = |images: u32| {
            let p = product(images);
            [p.left_bytes(), p.right_bytes(), p.result_bytes()]
                .map(|b| b.next_multiple_of(align))
                .iter()
                .sum()
        };
        let images = self.images(bytes, caps, policy)?;
        let most = product(images);
        let left = builder.reserve(most.left_bytes());
        // Gradients are small.
        let is_shifted = is_half && !config.variant.is_wide();
        let [shift, product_shift] = if is_shifted { [PIXEL_SHIFT, PRODUCT_SHIFT] } else { [0, 0] };
        let filter = winograd_filter::Params { m4: most.padded_rows, plane: most.left_plane(), ..filter };
        match is_half {
            true => halve_filters(builder, bk, filter, shift - product_shift, left),
            false => transform_filters(builder, "t256", filter, left),
        }
        let right = builder.reserve(most.right_bytes());
        let results = builder.reserve(most.result_bytes());
        for (first, images) in self.passes(images) {
            let product = product(images);
            let tag = if is_half { "htiles" } else { "tiles" };
            let planes = Planes { tag, channels: depth, tiles: product.columns, size: product.size(), shift };
            self.transform(builder, (source, first, images), planes, right);
            let buffers = [read(left), read(right), write(results)];
            multiply(builder, config, product, buffers);
            self.untransform(builder, (result, first, images), product, results);
        }
        Ok(())
    }

    /// Tiles of `images` images from `first` on, to planes.
    fn transform(
        &self,
        builder: &mut Builder<'_>,
        (from, first, images): (Tiled, u32, u32),
        to: Planes,
        region: Region,
    ) {
        let variant = tagged_variant("winograd_data", to.tag, builder.dtype());
        let numbers = u64::from(PLANES) * u64::from(to.channels) * u64::from(to.tiles);
        let bytes = to.size * numbers;
        builder.launch::<winograd_data::Kernel>(NewLaunch {
            variant,
            grid: [to.tiles.div_ceil(variant.threads / CHANNELS), to.channels.div_ceil(CHANNELS), 1],
            params: winograd_data::Params {
                channels: to.channels,
                tiles: self.tiles_of(images),
                all_tiles: to.tiles,
                across: self.tiles[1],
                per_image: self.tiles[0] * self.tiles[1],
                src: from.strides,
                h: from.size[0],
                w: from.size[1],
                org: Pair(from.org),
                src0: first * from.strides.n.0,
                plane: to.channels * to.tiles,
                shift: to.shift,
            },
            buffers: winograd_data::Buffers { src: read(from.role), planes: write(region) },
            flops: 0,
            bytes,
            model: Model::Stream { bytes: bytes + 4 * numbers * builder.dtype().size() / 9 },
        });
    }

    /// Planes of products to tiles of `images` images from `first` on.
    fn untransform(
        &self,
        builder: &mut Builder<'_>,
        (to, first, images): (Tiled, u32, u32),
        product: Product,
        region: Region,
    ) {
        let columns = product.columns;
        let tag = if product.result_size == 2 { "h256" } else { "t256" };
        let variant = tagged_variant("winograd_output", tag, builder.dtype());
        let dst0 = first * to.strides.n.0;
        let vectors = has_rows_of_vectors(&to.strides, [to.size[1], dst0]);
        let numbers = u64::from(PLANES) * u64::from(to.channels) * u64::from(columns);
        let bytes = product.result_size * numbers;
        builder.launch::<winograd_output::Kernel>(NewLaunch {
            variant,
            grid: [columns.div_ceil(variant.threads / CHANNELS), to.channels.div_ceil(CHANNELS), 1],
            params: winograd_output::Params {
                flags: epilogue_flags(self.problem) | if vectors { FLAG_VEC } else { 0 },
                channels: to.channels,
                tiles: self.tiles_of(images),
                across: self.tiles[1],
                per_image: self.tiles[0] * self.tiles[1],
                dst: to.strides,
                h: to.size[0],
                w: to.size[1],
                dst0,
                plane: to.channels * columns,
                by_channel: columns,
            },
            // Each pass writes images of its own.
            buffers: winograd_output::Buffers {
                planes: read(region),
                dst: part(to.role),
                bias: read(Role::Bias),
            },
            flops: 0,
            bytes,
            model: Model::Stream { bytes: bytes + 4 * numbers * builder.dtype().size() / 9 },
        });
    }

    /// Backward-weights: `S[point][row][channel] = D[point][row][tile] V[point][channel][tile]`, over all tiles.
    fn weights(&self, builder: &mut Builder<'_>, config: &Config, policy: &Policy) -> Result<(), Refusal> {
        let (caps, s) = (builder.caps(), &self.shape);
        let tiles = |images: u32| self.tiles_of(images).next_multiple_of(4);
        if config.splits > 1 && config.splits * 2 > tiles(s.n).div_ceil(config.define("BK")) {
            return Err(Refusal::new("no-config", "more splits than slices"));
        }
        let align = caps.region_alignment();
        let plane = s.kg * s.cg;
        let is_half = config.variant.is_half();
        let size = if is_half { 2 } else { 4 };
        let sides = |images: u32| {
            [s.kg, s.cg].map(|c| size * u64::from(PLANES) * u64::from(c) * u64::from(tiles(images)))
        };
        let result_bytes = 4 * u64::from(PLANES) * u64::from(plane) * u64::from(config.splits);
        let bytes = |images: u32| {
            let planes = sides(images).map(|b| b.next_multiple_of(align));
            planes.iter().sum::<u64>() + u64::from(s.n.div_ceil(images)) * result_bytes
        };
        let images = self.images(bytes, caps, policy)?;
        let [left, right] = sides(images).map(|bytes| builder.reserve(bytes));
        let passes = s.n.div_ceil(images);
        let sums = builder.reserve(u64::from(passes) * result_bytes);
        for (at, (first, images)) in (0u64..).zip(self.passes(images)) {
            let depth = tiles(images);
            let planes = |tag, channels, shift| Planes { tag, channels, tiles: depth, size, shift };
            // In f16, the shifts make up for each other in the sums.
            let (gradients, pixels) = match is_half {
                true => (planes("hgradients", s.kg, -PIXEL_SHIFT), planes("htiles", s.cg, PIXEL_SHIFT)),
                false => (planes("gradients", s.kg, 0), planes("tiles", s.cg, 0)),
            };
            self.transform(builder, (self.y(), first, images), gradients, left);
            self.transform(builder, (self.x(), first, images), pixels, right);
            let product = nt::Product {
                groups: PLANES,
                rows: s.kg,
                cols: s.cg,
                depth,
                apart: [depth; 2],
                images: None,
                longest: (!is_half).then_some(LONGEST_SUM),
            };
            let result = Region { offset: sums.offset + at * result_bytes, size: result_bytes };
            let (whole, parts) = match config.splits {
                1 if !is_half => (write(result), unused(result)),
                _ => (unused(result), write(result)),
            };
            let buffers = [read(left), read(right), whole, parts];
            product.launch(builder, config.variant, (config.splits, PLANES * plane), buffers, (size, 4));
        }
        let parts = passes * config.splits;
        let tag = if is_half { "h256" } else { "t256" };
        let variant = tagged_variant("winograd_weights", tag, builder.dtype());
        builder.launch::<winograd_weights::Kernel>(NewLaunch {
            variant,
            grid: [plane.div_ceil(variant.threads), 1, 1],
            params: winograd_weights::Params {
                rows: s.kg,
                kc: s.cg,
                splits: parts,
                part: PLANES * plane,
                plane,
                dst: s.f,
            },
            buffers: winograd_weights::Buffers { planes: read(sums), dst: write(Role::W) },
            flops: 0,
            bytes: sums.size,
            model: Model::Stream { bytes: sums.size },
        });
        Ok(())
    }
}

/// Filters to planes, by a variant of the kernel.
pub(super) fn transform_filters(
    builder: &mut Builder<'_>,
    tag: &str,
    filter: winograd_filter::Params,
    planes: Region,
) {
    let variant = tagged_variant("winograd_filter", tag, builder.dtype());
    builder.launch::<winograd_filter::Kernel>(NewLaunch {
        variant,
        grid: [filter.m4.div_ceil(32), filter.kc.div_ceil(variant.threads / 32), 1],
        params: filter,
        buffers: winograd_filter::Buffers { wgt: read(Role::W), packed: write(planes) },
        flops: 0,
        bytes: planes.size,
        model: Model::Stream { bytes: planes.size },
    });
    builder.filters_are_prepared();
}

/// Filters to planes in f16, each block of `bk` rows with a row of scales.
fn halve_filters(
    builder: &mut Builder<'_>,
    bk: u32,
    filter: winograd_filter::Params,
    shift: i32,
    planes: Region,
) {
    let winograd_filter::Params { rows, m4, kc, am, ak, at, au, a0, .. } = filter;
    builder.launch::<winograd_filter_half::Kernel>(NewLaunch {
        variant: tagged_variant("winograd_filter_half", &format!("k{bk}"), builder.dtype()),
        grid: [m4 / 32, kc / bk, 1],
        params: winograd_filter_half::Params { rows, m4, kc, am, ak, at, au, a0, shift },
        buffers: winograd_filter_half::Buffers { wgt: read(Role::W), packed: write(planes) },
        flops: 0,
        bytes: planes.size,
        model: Model::Stream { bytes: planes.size },
    });
    builder.filters_are_prepared();
}

/// Transformed tiles, `[point][channel][tile]`: of pixels, or of gradients of outputs for those of filters.
#[derive(Clone, Copy)]
struct Planes {
    /// The kernel's variant, and what its numbers are: their bytes, and the power of two that they are divided by.
    tag: &'static str,
    size: u64,
    shift: i32,
    channels: u32,
    tiles: u32,
}

/// The 36 products of forward and backward-data, each a group of a pointwise convolution over one image of one row.
fn multiply(
    builder: &mut Builder<'_>,
    config: &Config,
    product: Product,
    [left, right, result]: [Buffer; 3],
) {
    let [bm, bn, bk] = ["BM", "BN", "BK"].map(|d| config.define(d));
    let Product { rows, depth, columns, padded_rows, scaled, .. } = product;
    let slices = depth / bk;
    let chunk = match scaled {
        Some(_) => slices,
        // Transformed numbers are larger than what comes out: their sums are kept short.
        None => chunk(slices, bk, true).min((LONGEST_SUM / bk).max(1)),
    };
    let params = Gather {
        flags: gather::flags(FLAG_VEC, 1),
        rows,
        cols: columns,
        pixels: columns,
        jw: columns,
        kc: depth,
        taps: Pair([1, 1]),
        src: Strides { n: Along(0), c: Along(columns), h: Along(0), w: Along(1) },
        h: 1,
        w: columns,
        str: Pair([1, 1]),
        org: Pair([0, 0]),
        dil: Pair([0, 0]),
        am: padded_rows,
        ak: 0,
        at: 0,
        au: 0,
        a0: 0,
        ag: product.left_plane(),
        dst: Strides { n: Along(0), c: Along(columns), h: Along(0), w: Along(1) },
        o0: 0,
        src0: 0,
        slices,
        chunk,
        partial: 0,
    };
    let bytes = product.left_bytes() + product.right_bytes() + product.result_bytes();
    builder.launch::<igemm::Kernel>(NewLaunch {
        variant: config.variant,
        grid: [columns.div_ceil(bn), rows.div_ceil(bm), PLANES],
        params,
        buffers: igemm::Buffers {
            src: right,
            wgt: left,
            dst: result,
            bias: unused(Role::W),
            part: unused(result.place),
        },
        flops: 2 * u64::from(PLANES) * u64::from(rows) * u64::from(columns) * u64::from(depth),
        bytes,
        model: Model::Tiles { depth: u64::from(slices) * u64::from(bk) },
    });
}
