//! Configurations of [`super::winograd::Winograd`] that make 2x2 results a tile in one launch (`kernels/winograd_fused.kern`): the
//! workspace holds the transformed filters alone. It is made for devices whose scalar loads feed multiply-adds.

use super::build::{Builder, Cheapest, NewLaunch, epilogue_flags, part, read};
use super::tensors::has_rows_of;
use super::winograd::{Work, transform_filters};
use crate::model::LONGEST_CHAIN;
use crate::{DeviceCaps, Model, Policy, Role};
use wave32_params::variants::{self, Variant};
use wave32_params::winograd_fused::FLAG_PAIRS;
use wave32_params::{Pair, winograd_filter, winograd_fused};
use wave32_problem::Direction;

/// Results of a tile along each side.
const TILE: u32 = 2;
/// Points of a tile.
const POINTS: u32 = 16;
/// A source up to so many bytes is read from memory once: it stays in the cache of usual cards, 4 MB on RDNA1.
const CACHED: u64 = 2 << 20;
/// How many times as long it takes where lanes load the filters, each for itself: by what an H100 does of the rate of the tile
/// (`docs/logs/winograd_fused_h100.txt`).
const BY_LANES: f64 = 2.4;

/// Offers a plan of each variant.
pub fn offer(
    solver: &'static str,
    best: &mut Cheapest<'_>,
    work: &Work<'_>,
    caps: &DeviceCaps,
    policy: &Policy,
) {
    for variant in variants::of("winograd_fused", work.problem.spec().dtype).filter(|v| takes(v, work, caps))
    {
        let config = format!("f2/{}", variant.tag);
        if policy.config.as_ref().is_none_or(|name| *name == config) {
            let mut builder = Builder::new(work.problem, caps);
            emit(&mut builder, variant, work);
            best.offer(builder.finish(solver, config, policy.workspace_cap));
        }
    }
}

/// A wavefront has one point, so that it may not be wider; one chain sums the channels.
fn takes(variant: &Variant, work: &Work<'_>, caps: &DeviceCaps) -> bool {
    let depth = match work.problem.spec().direction {
        Direction::Forward => work.shape.cg,
        Direction::BackwardData => work.shape.kg,
        Direction::BackwardWeights => return false,
    };
    let has_lanes = caps.wave_size <= 32 && caps.max_group_threads >= variant.threads;
    has_lanes && depth.is_multiple_of(variant.define("BK") as u32) && depth <= LONGEST_CHAIN
}

fn emit(builder: &mut Builder<'_>, variant: &'static Variant, work: &Work<'_>) {
    let (source, result, filter) = match work.problem.spec().direction {
        Direction::Forward => work.forward(),
        _ => work.backward_data(),
    };
    let [lanes, rows] = [variant.define("BN") as u32, variant.define("BM") as u32 / POINTS];
    let (n, depth) = (work.shape.n, source.channels);
    let [down, across] = result.size.map(|size| size.div_ceil(TILE));
    let m4 = filter.rows.next_multiple_of(rows);
    let filter = winograd_filter::Params { m4, plane: depth * m4, ..filter };
    let planes = builder.reserve(4 * u64::from(POINTS) * u64::from(filter.plane));
    transform_filters(builder, "f2", filter, planes);
    let tiles = n * down * across;
    let grid = [tiles.div_ceil(lanes), filter.rows.div_ceil(rows), 1];
    let pixels = u64::from(n) * u64::from(source.size[0]) * u64::from(source.size[1]);
    let source_bytes = pixels * u64::from(depth) * builder.dtype().size();
    let again = if source_bytes > CACHED { u64::from(grid[1] - 1) * source_bytes } else { 0 };
    let slower = if builder.caps().scalar_loads { 1.0 } else { BY_LANES };
    let pairs = has_rows_of(2, &result.strides, [result.size[1]]);
    builder.launch::<winograd_fused::Kernel>(NewLaunch {
        variant,
        grid,
        params: winograd_fused::Params {
            flags: epilogue_flags(work.problem) | if pairs { FLAG_PAIRS } else { 0 },
            rows: filter.rows,
            tiles,
            across,
            per_image: down * across,
            depth,
            m4,
            plane: filter.plane,
            src: source.strides,
            h: source.size[0],
            w: source.size[1],
            org: Pair(source.org),
            dst: result.strides,
            dh: result.size[0],
            dw: result.size[1],
        },
        buffers: winograd_fused::Buffers {
            src: read(source.role),
            wgt: read(planes),
            dst: part(result.role),
            bias: read(Role::Bias),
        },
        flops: 2 * u64::from(POINTS) * u64::from(tiles) * u64::from(filter.rows) * u64::from(depth),
        bytes: work.problem.bytes() + planes.size + again,
        model: Model::Tiles { depth: (f64::from(depth) * slower) as u64 },
    });
}
