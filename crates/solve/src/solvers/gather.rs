//! The parameters of `kernels/gather.h`: forward, and backward-data as one gathering convolution per stride phase.
//!
//! Backward-data gathers: `dx[i]` takes `dy[o]` through tap r where o*stride - pad + r*dilation = i. For i of one
//! residue class (phase) modulo the stride, the taps that hit whole o are an arithmetic progression, and o
//! moves by one when i moves by the stride: a stride-1 convolution over dy with a fixed sub-filter.

use super::tensors::ConvShape;
use crate::Refusal;
use wave32_params::{Along, Pair, Strides};
use wave32_problem::Direction;

pub use wave32_params::gather::{FLAG_BIAS, FLAG_PARTIAL, FLAG_VEC, Params as Gather};

/// `flags` of [`Gather`]: the bits, and in how many parts the reduction is split.
pub fn flags(bits: u32, splits: u32) -> u32 {
    bits | splits << 16
}

/// What solvers ask of a gathering convolution.
pub trait Gathering {
    /// Length of the reduction.
    fn depth(&self) -> u32;
    /// Runs of four columns are four neighbouring, aligned elements of dst.
    fn stores_vectors(&self) -> bool;
    /// Source pixels are the columns themselves, in aligned runs of four.
    fn loads_vectors(&self) -> bool;
}

impl Gathering for Gather {
    fn depth(&self) -> u32 {
        let [t, u] = self.taps.counts();
        self.kc * t * u
    }

    fn stores_vectors(&self) -> bool {
        let d = &self.dst;
        let plane = d.h.0 == self.jw && self.pixels.is_multiple_of(4);
        let rows = self.jw.is_multiple_of(4) && d.h.0.is_multiple_of(4);
        d.w.0 == 1 && (plane || rows) && [d.n.0, d.c.0, self.o0].iter().all(|v| v.is_multiple_of(4))
    }

    fn loads_vectors(&self) -> bool {
        let s = &self.src;
        self.taps.0 == [1, 1]
            && self.str.0 == [1, 1]
            && self.org.0 == [0, 0]
            && s.w.0 == 1
            && s.h.0 == self.jw
            && self.w == self.jw
            && self.h * self.w == self.pixels
            && [self.pixels, s.n.0, s.c.0, self.src0].iter().all(|v| v.is_multiple_of(4))
    }
}

/// The gathering convolutions of forward, and of backward-data where they are at most so many; none for backward-weights.
pub fn of_pass(p: &ConvShape, direction: Direction, max_phases: u64) -> Result<Vec<Gather>, Refusal> {
    match direction {
        Direction::Forward => Ok(vec![forward(p)]),
        Direction::BackwardData => check_phases(p, max_phases).map(|()| backward_data(p)),
        Direction::BackwardWeights => Ok(Vec::new()),
    }
}

/// Refuses backward-data of more phases: the product of the strides, as far as the image has such rows and columns.
pub fn check_phases(p: &ConvShape, max_phases: u64) -> Result<(), Refusal> {
    let phases = u64::from(p.stride[0].min(p.h)) * u64::from(p.stride[1].min(p.w));
    if phases > max_phases {
        let detail = format!("{phases} stride phases, takes {max_phases}");
        return Err(Refusal::new("too-many-phases", detail));
    }
    Ok(())
}

/// The forward pass.
pub fn forward(p: &ConvShape) -> Gather {
    Gather {
        flags: 0,
        rows: p.kg,
        cols: p.n * p.pixels(),
        pixels: p.pixels(),
        jw: p.ow,
        kc: p.cg,
        taps: [p.r, p.s].into(),
        src: p.x,
        h: p.h,
        w: p.w,
        str: p.stride.into(),
        org: Pair(p.pad.map(|v| -v)),
        dil: Pair(p.dilation),
        am: p.f.n.0,
        ak: p.f.c.0,
        at: p.f.h.0,
        au: p.f.w.0,
        a0: 0,
        ag: p.kg * p.f.n.0,
        dst: p.y,
        o0: 0,
        src0: 0,
        slices: 0,
        chunk: 0,
        partial: 0,
    }
}

/// One axis of one phase of backward-data.
struct Phase {
    /// Positions of dx in this phase.
    count: u32,
    /// First tap and distance between taps.
    tap0: u32,
    tap_step: u32,
    taps: u32,
    /// Position in dy that the first tap of position 0 meets, and how far a tap moves it.
    org: i32,
    dil: i32,
}

fn phase(phase: u32, size: u32, filter: u32, stride: u32, pad: i32, dilation: i32) -> Phase {
    let (stride, start) = (i64::from(stride), i64::from(phase) + i64::from(pad));
    let dilation = i64::from(dilation);
    let step = stride / gcd(stride, dilation);
    let hits = |tap: &i64| (start - tap * dilation).rem_euclid(stride) == 0;
    // Within one period of taps every residue that can be met is met once.
    let first = (0..step.min(i64::from(filter))).find(hits);
    let count = (i64::from(size) - i64::from(phase) + stride - 1) / stride;
    let (tap0, taps) = match first {
        Some(tap) => (tap, (i64::from(filter) - tap + step - 1) / step),
        None => (0, 0),
    };
    Phase {
        count: count as u32,
        tap0: tap0 as u32,
        tap_step: step as u32,
        taps: taps as u32,
        org: (start - tap0 * dilation).div_euclid(stride) as i32,
        dil: -(step * dilation / stride) as i32,
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Backward-data, a convolution for each phase; together they write every element of dx once.
fn backward_data(p: &ConvShape) -> Vec<Gather> {
    let mut phases = Vec::new();
    for py in 0..p.stride[0].min(p.h) {
        let v = phase(py, p.h, p.r, p.stride[0], p.pad[0], p.dilation[0]);
        for px in 0..p.stride[1].min(p.w) {
            let u = phase(px, p.w, p.s, p.stride[1], p.pad[1], p.dilation[1]);
            let empty = v.taps == 0 || u.taps == 0;
            phases.push(Gather {
                flags: 0,
                rows: p.cg,
                cols: p.n * v.count * u.count,
                pixels: v.count * u.count,
                jw: u.count,
                kc: if empty { 0 } else { p.kg },
                taps: if empty { [1, 1] } else { [v.taps, u.taps] }.into(),
                src: p.y,
                h: p.oh,
                w: p.ow,
                str: Pair([1, 1]),
                org: Pair([v.org, u.org]),
                dil: Pair([v.dil, u.dil]),
                am: p.f.c.0,
                ak: p.f.n.0,
                at: v.tap_step * p.f.h.0,
                au: u.tap_step * p.f.w.0,
                a0: v.tap0 * p.f.h.0 + u.tap0 * p.f.w.0,
                ag: p.kg * p.f.n.0,
                dst: Strides { h: Along(p.stride[0] * p.x.h.0), w: Along(p.stride[1] * p.x.w.0), ..p.x },
                o0: py * p.x.h.0 + px * p.x.w.0,
                src0: 0,
                slices: 0,
                chunk: 0,
                partial: 0,
            });
        }
    }
    phases
}

/// A strided box of a tensor, largest strides first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Box4 {
    /// Its first element.
    pub first: u32,
    pub sizes: [u32; 4],
    pub strides: [u32; 4],
}

/// The elements of dx that no tap reaches, of the phases of [`backward_data`]: they are 0. Rows that are all of such are one
/// box.
pub fn unreached(p: &ConvShape, phases: &[Gather]) -> Vec<Box4> {
    let of = |g: &Gather, width: u32, step: u32| {
        let sizes = [p.n, p.groups * p.cg, g.pixels / g.jw, width];
        let strides = [g.dst.n.0, g.dst.c.0, g.dst.h.0, step];
        let mut order = [0, 1, 2, 3];
        order.sort_by_key(|&dim: &usize| std::cmp::Reverse(strides[dim]));
        Box4 { first: g.o0, sizes: order.map(|dim| sizes[dim]), strides: order.map(|dim| strides[dim]) }
    };
    let is_empty = |g: &&Gather| g.depth() == 0;
    let across = p.stride[1].min(p.w) as usize;
    let boxes = |row: &[Gather]| match row {
        [first, ..] if row.iter().all(|g| is_empty(&g)) => vec![of(first, p.w, p.x.w.0)],
        _ => row.iter().filter(is_empty).map(|g| of(g, g.jw, g.dst.w.0)).collect(),
    };
    phases.chunks(across).flat_map(boxes).collect()
}

/// Backward-data in one launch: at stride 1 dy gathered by the filter turned; at larger strides the filter is as it lies, and
/// the kernel knows the phases.
pub fn turned(p: &ConvShape) -> Gather {
    let g = forward(p);
    let pixels = p.h * p.w;
    let back = Gather {
        rows: p.cg,
        cols: p.n * pixels,
        pixels,
        jw: p.w,
        kc: p.kg,
        src: p.y,
        h: p.oh,
        w: p.ow,
        am: p.f.c.0,
        ak: p.f.n.0,
        dst: p.x,
        ..g
    };
    if p.stride != [1, 1] {
        return back;
    }
    let reach = |taps: u32, dilation: i32| (taps as i32 - 1) * dilation;
    Gather {
        org: Pair([p.pad[0] - reach(p.r, p.dilation[0]), p.pad[1] - reach(p.s, p.dilation[1])]),
        a0: (p.r - 1) * g.at + (p.s - 1) * g.au,
        at: g.at.wrapping_neg(),
        au: g.au.wrapping_neg(),
        ..back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave32_problem::{ConvProblem, ConvSpec, Direction, Layout};

    /// Backward-data on one axis straight from its definition: which (position of dy, tap) each dx takes.
    fn definition(p: &ConvShape) -> Vec<Vec<(i64, i64)>> {
        let mut takes = vec![Vec::new(); p.w as usize];
        for o in 0..i64::from(p.ow) {
            for tap in 0..i64::from(p.s) {
                let i = o * i64::from(p.stride[1]) - i64::from(p.pad[1]) + tap * i64::from(p.dilation[1]);
                if let Some(list) = usize::try_from(i).ok().and_then(|i| takes.get_mut(i)) {
                    list.push((o, tap));
                }
            }
        }
        takes.iter_mut().for_each(|list| list.sort_unstable());
        takes
    }

    /// The same from the parameters of the phases.
    fn phases(p: &ConvShape) -> Vec<Vec<(i64, i64)>> {
        let mut takes: Vec<Option<Vec<(i64, i64)>>> = vec![None; p.w as usize];
        for g in backward_data(p) {
            for j in 0..g.jw {
                let mut list = Vec::new();
                for u in 0..if g.kc == 0 { 0 } else { g.taps.counts()[1] } {
                    let o = i64::from(j) + i64::from(g.org.0[1]) + i64::from(u) * i64::from(g.dil.0[1]);
                    if (0..i64::from(g.w)).contains(&o) {
                        list.push((o, i64::from(g.a0 + u * g.au)));
                    }
                }
                list.sort_unstable();
                let at = &mut takes[(g.o0 + j * g.dst.w.0) as usize];
                assert!(at.is_none(), "two phases write one element");
                *at = Some(list);
            }
        }
        takes.into_iter().map(|list| list.expect("every element is written")).collect()
    }

    /// Phases with taps and boxes without share dx out between them.
    #[test]
    fn what_no_tap_reaches_is_in_one_box() {
        let caps = crate::DeviceCaps::of(crate::usual_boards()[0]);
        let (mut boxes, mut phases) = (0, 0);
        for layout in [Layout::Nchw, Layout::Nhwc] {
            for (size, stride) in
                [(1, [2, 2]), (1, [3, 2]), (2, [3, 3]), (1, [1, 2]), (1, [2, 1]), (3, [2, 2])]
            {
                for (h, w) in [(1, 1), (1, 7), (6, 2), (7, 9), (2, 1)] {
                    let spec = ConvSpec {
                        direction: Direction::BackwardData,
                        layout,
                        n: 2,
                        c: 6,
                        k: 4,
                        groups: 2,
                        h,
                        w,
                        r: size.min(h),
                        s: size.min(w),
                        stride,
                        ..ConvSpec::default()
                    };
                    let problem = ConvProblem::new(spec).unwrap();
                    let shape = ConvShape::new(&problem, &caps).unwrap();
                    let all = backward_data(&shape);
                    let found = unreached(&shape, &all);
                    let full = all.iter().filter(|g| g.depth() > 0).map(|g| Box4 {
                        first: g.o0,
                        sizes: [shape.n, 6, g.pixels / g.jw, g.jw],
                        strides: [g.dst.n.0, g.dst.c.0, g.dst.h.0, g.dst.w.0],
                    });
                    let mut written = vec![0; problem.x_elements() as usize];
                    for Box4 { first, sizes, strides } in found.iter().copied().chain(full) {
                        for i in 0..sizes.iter().product() {
                            let (mut at, mut rest) = (first, i);
                            for (size, stride) in sizes.iter().zip(strides).rev() {
                                (at, rest) = (at + rest % size * stride, rest / size);
                            }
                            written[at as usize] += 1;
                        }
                    }
                    assert!(written.iter().all(|&times| times == 1), "{problem}: {written:?}");
                    boxes += found.len();
                    phases += all.iter().filter(|g| g.depth() == 0).count();
                }
            }
        }
        assert!(0 < boxes && boxes < phases, "{boxes} boxes of {phases} phases");
    }

    #[test]
    fn phases_of_backward_data_are_its_definition() {
        let caps = crate::DeviceCaps::of(crate::usual_boards()[0]);
        let mut checked = 0;
        for w in 1..14 {
            for s in 1..6 {
                for stride in 1..6 {
                    for pad in 0..4 {
                        for dilation in 1..4 {
                            let spec = ConvSpec {
                                direction: Direction::BackwardData,
                                w,
                                s,
                                stride: [1, stride],
                                pad: [0, pad],
                                dilation: [1, dilation],
                                ..ConvSpec::default()
                            };
                            let Ok(problem) = ConvProblem::new(spec) else { continue };
                            let shape = ConvShape::new(&problem, &caps).unwrap();
                            assert_eq!(phases(&shape), definition(&shape), "{problem}");
                            checked += 1;
                        }
                    }
                }
            }
        }
        assert!(checked > 1000, "{checked} geometries");
    }
}
