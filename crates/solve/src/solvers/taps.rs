//! Backward-weights whose filter and stride are known when the kernels are compiled: `kernels/taps_wrw.kern` for few channels a
//! group (configurations of [`super::direct::Direct`]), `kernels/patch_wrw.kern` for first layers (of [`super::few::Few`]).

use super::build::{Builder, Cheapest, NewLaunch, partial_stride, read, unused, write};
use super::tensors::{ConvShape, has_rows_of_vectors};
use super::wrw;
use crate::model::{LONGEST_CHAIN, at_rate};
use crate::{DeviceCaps, Policy, Role};
use wave32_params::variants::{self, Variant};
use wave32_params::weights::{self, FLAG_PARTIAL};
use wave32_params::{patch_wrw, taps_wrw};
use wave32_problem::ConvProblem;

/// The variants of `source` for this filter and stride.
pub fn variants(
    source: &'static str,
    problem: &ConvProblem,
    p: &ConvShape,
) -> impl Iterator<Item = &'static Variant> {
    let (filter, stride, plain) = ([p.r, p.s], p.stride, p.dilation == [1, 1]);
    let half = p.r as i32 / 2;
    let lines =
        has_rows_of_vectors(&p.x, [p.w]) && has_rows_of_vectors(&p.y, [p.ow]) && p.pad == [half, half];
    let (channels, filters) = (p.cg, p.kg);
    let known = move |v: &&'static Variant| {
        let [kt, s] = ["KT", "S"].map(|name| v.define(name) as u32);
        let takes = match source {
            "taps_wrw" => (v.define("LINES") == 0 || lines) && (v.define("KB") == 1 || filters > 1),
            _ => channels <= v.define("CS") as u32,
        };
        takes && plain && filter == [kt, kt] && stride == [s, s]
    };
    variants::of(source, problem.spec().dtype).filter(known)
}

/// Offers a plan of each variant.
pub fn offer(
    (solver, source): (&'static str, &'static str),
    best: &mut Cheapest<'_>,
    problem: &ConvProblem,
    caps: &DeviceCaps,
    policy: &Policy,
    p: &ConvShape,
) {
    for variant in variants(source, problem, p) {
        let work = Work::new(variant, p);
        let splits = work.splits(problem, caps, policy);
        let name = format!("{}/{splits}", variant.tag);
        // A variant's name alone leaves the number of parts open.
        let is_wanted = |wanted: &String| [&name, &variant.tag].contains(&wanted);
        if policy.config.as_ref().is_none_or(is_wanted) {
            let mut builder = Builder::new(problem, caps);
            emit(&mut builder, &work, splits, p, problem);
            best.offer(builder.finish(solver, name, policy.workspace_cap));
        }
    }
}

/// What one variant makes of a problem.
struct Work {
    variant: &'static Variant,
    /// Workgroups along y and z.
    grid: [u32; 2],
    /// Tiles or segments that the splits share, and how many a split needs to have work for its threads.
    units: u32,
    least: u32,
    /// Workgroups for each compute unit that were the fastest of 2, 4 and 8, measured on an H200.
    per_unit: u32,
    /// Multiply-adds of all workgroups, padding included.
    multiply_adds: f64,
    /// Fewest splits that keep f32 chains short.
    fewest: u32,
}

impl Work {
    fn new(variant: &'static Variant, p: &ConvShape) -> Self {
        let [kb, threads] = [variant.define("KB") as u32, variant.threads];
        let rows = |ny: u32| p.n * p.oh.div_ceil(ny);
        let pixels = f64::from(p.ow.next_multiple_of(4)) * f64::from(p.taps()) * f64::from(p.cg * p.groups);
        if variant.source == "taps_wrw" {
            let ny = variant.define("NY") as u32;
            let units = rows(ny) * p.ow.div_ceil(4);
            Self {
                variant,
                grid: [p.kg.div_ceil(kb) * p.cg, p.groups],
                units,
                least: if kb == 1 { 3 * threads } else { 2 * threads },
                per_unit: if kb == 1 { 8 } else { 4 },
                multiply_adds: pixels * f64::from(rows(ny) * ny) * f64::from(p.kg.next_multiple_of(kb)),
                fewest: (units.div_ceil(threads) * ny * 4).div_ceil(LONGEST_CHAIN),
            }
        } else {
            let [km, seg] = ["KM", "SEG"].map(|name| variant.define(name) as u32);
            let shares = (threads / (p.cg * p.r * (km / kb))).max(1);
            let idle = f64::from(threads) / f64::from(shares * p.cg * p.r * (km / kb));
            let units = rows(1) * p.ow.div_ceil(seg);
            Self {
                variant,
                grid: [p.kg.div_ceil(km), p.groups],
                units,
                least: 2,
                per_unit: 2,
                multiply_adds: pixels * f64::from(rows(1)) * f64::from(p.kg.next_multiple_of(km)) * idle,
                fewest: (units.div_ceil(shares) * seg).div_ceil(LONGEST_CHAIN),
            }
        }
    }

    /// In how many parts.
    fn splits(&self, problem: &ConvProblem, caps: &DeviceCaps, policy: &Policy) -> u32 {
        let groups = self.per_unit * caps.compute_units;
        let [y, z] = self.grid;
        let most = self.units.div_ceil(self.least).max(1);
        let mut splits = groups.div_ceil(y * z).clamp(1, most).max(self.fewest);
        let bytes = policy.workspace_cap.unwrap_or(u64::MAX).min(caps.max_range);
        let stride = u64::from(partial_stride(problem.w_elements()));
        while splits > 1 && 4 * u64::from(splits) * stride > bytes {
            splits /= 2;
        }
        // No empty last part.
        self.units.div_ceil(self.units.div_ceil(splits))
    }
}

fn emit(builder: &mut Builder<'_>, work: &Work, splits: u32, p: &ConvShape, problem: &ConvProblem) {
    let variant = work.variant;
    let stride = partial_stride(problem.w_elements());
    let partial = 4 * u64::from(splits) * u64::from(stride);
    let partials = (splits > 1).then(|| builder.reserve(partial));
    let (dw, sums) = match partials {
        Some(region) => (unused(Role::W), write(region)),
        None => (write(Role::W), unused(Role::W)),
    };
    // Beyond the last window's end the source does not count, whatever stands there.
    let end = |size: u32, out: u32, i: usize, taps: u32| {
        size.min(((out - 1) * p.stride[i] + taps).saturating_sub(p.pad[i] as u32))
    };
    let params = weights::Params {
        flags: if partials.is_some() { FLAG_PARTIAL } else { 0 },
        splits,
        slices: work.units.div_ceil(splits),
        partial: stride,
        h: end(p.h, p.oh, 0, p.r),
        w: end(p.w, p.ow, 1, p.s),
        ..wrw::params(p)
    };
    let uneven = f64::from(splits * work.units.div_ceil(splits)) / f64::from(work.units.max(1));
    let model = at_rate(variant, work.multiply_adds * uneven);
    let [y, z] = work.grid;
    let (grid, flops) = ([splits, y, z], problem.flops());
    let bytes = problem.bytes() + partials.map_or(0, |_| partial);
    if variant.source == "taps_wrw" {
        let params = weights::Params { blocks: p.kg.div_ceil(variant.define("KB") as u32), ..params };
        let buffers = taps_wrw::Buffers { dy: read(Role::Y), src: read(Role::X), dst: dw, part: sums };
        builder.launch::<taps_wrw::Kernel>(NewLaunch { variant, grid, params, buffers, flops, bytes, model });
    } else {
        let lines = has_rows_of_vectors(&p.y, [p.ow]);
        let flags = params.flags | if lines { patch_wrw::FLAG_LINES } else { 0 };
        let params = weights::Params { flags, ..params };
        let buffers = patch_wrw::Buffers { dy: read(Role::Y), src: read(Role::X), dst: dw, part: sums };
        builder.launch::<patch_wrw::Kernel>(NewLaunch {
            variant,
            grid,
            params,
            buffers,
            flops,
            bytes,
            model,
        });
    }
    if let Some(partials) = partials {
        builder.reduce(partials, (splits, stride, 1), Role::W, p);
    }
}
