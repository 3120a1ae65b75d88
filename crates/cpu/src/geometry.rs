//! Which input pixels meet which filter taps: forward and backward-data as one gather.
//!
//! Backward-data of stride s falls apart into s*s phases: the pixels of dx whose row and column leave
//! the same remainders meet the same subset of taps, each at a constant distance, so a phase is a
//! stride-1 gather from dy. A forward pass is one phase whose input steps by the stride.

use wave32_problem::{ConvProblem, Direction, Layout};

/// Sizes and element strides of one image tensor.
#[derive(Debug, Clone, Copy)]
pub struct Image {
    pub h: usize,
    pub w: usize,
    /// Strides: image, channel, row, column.
    pub stride: [usize; 4],
}

impl Image {
    fn new(layout: Layout, [c, h, w]: [i64; 3]) -> Self {
        let (c, h, w) = (c as usize, h as usize, w as usize);
        let stride = match layout {
            Layout::Nchw => [c * h * w, h * w, w, 1],
            Layout::Nhwc => [h * w * c, 1, w * c, c],
        };
        Self { h, w, stride }
    }
}

/// Element strides of the filters, in the pass's own terms.
#[derive(Debug, Clone, Copy)]
pub struct Filter {
    pub group: usize,
    /// Output channel of the pass (backward-data: a channel of x).
    pub out: usize,
    /// Input channel of the pass.
    pub input: usize,
    pub tap: usize,
}

/// One filter tap: the input pixel is `pixel * step + offset`.
#[derive(Debug, Clone, Copy)]
pub struct Tap {
    pub offset: [isize; 2],
    /// r * S + s.
    pub index: usize,
}

/// Output pixels that meet the same taps.
#[derive(Debug, Clone)]
pub struct Phase {
    /// First output row and column.
    pub first: [usize; 2],
    /// Distance between output rows and columns.
    pub every: [usize; 2],
    /// Rows and columns of the phase.
    pub count: [usize; 2],
    /// Distance between the input pixels of neighbours.
    pub step: [usize; 2],
    pub taps: Vec<Tap>,
}

impl Phase {
    pub fn pixels(&self) -> usize {
        self.count[0] * self.count[1]
    }
}

/// Forward or backward-data (or, for backward-weights, the forward pass whose filters are wanted).
#[derive(Debug, Clone)]
pub struct Pass {
    pub n: usize,
    pub groups: usize,
    /// Input channels of a group.
    pub ic: usize,
    /// Output channels of a group.
    pub oc: usize,
    pub input: Image,
    pub output: Image,
    pub filter: Filter,
    pub phases: Vec<Phase>,
}

impl Pass {
    /// `p` is plain (not transposed).
    pub fn new(p: &ConvProblem) -> Self {
        let s = p.spec();
        let (cg, kg, taps) = (s.c / s.groups, s.k / s.groups, s.r * s.s);
        let x = Image::new(s.layout, [s.c, s.h, s.w]);
        let y = Image::new(s.layout, [s.k, p.out_h(), p.out_w()]);
        let (k_stride, c_stride, tap) = match s.layout {
            Layout::Nchw => (cg * taps, taps, 1),
            Layout::Nhwc => (taps * cg, 1, cg),
        };
        let group = (kg * cg * taps) as usize;
        let (k_stride, c_stride, tap) = (k_stride as usize, c_stride as usize, tap as usize);
        let (n, groups) = (s.n as usize, s.groups as usize);
        if s.direction == Direction::BackwardData {
            let rows = axis_phases(s.stride[0], s.pad[0], s.dilation[0], s.r, s.h);
            let columns = axis_phases(s.stride[1], s.pad[1], s.dilation[1], s.s, s.w);
            let phases =
                rows.iter().flat_map(|row| columns.iter().map(move |column| cross(row, column, s.s)));
            return Self {
                n,
                groups,
                ic: kg as usize,
                oc: cg as usize,
                input: y,
                output: x,
                filter: Filter { group, out: c_stride, input: k_stride, tap },
                phases: phases.collect(),
            };
        }
        let axis = |a: usize, filter: i64, count: i64| AxisPhase {
            first: 0,
            every: 1,
            count: count as usize,
            step: s.stride[a] as usize,
            taps: (0..filter).map(|t| (t, (t * s.dilation[a] - s.pad[a]) as isize)).collect(),
        };
        let phase = cross(&axis(0, s.r, p.out_h()), &axis(1, s.s, p.out_w()), s.s);
        Self {
            n,
            groups,
            ic: cg as usize,
            oc: kg as usize,
            input: x,
            output: y,
            filter: Filter { group, out: k_stride, input: c_stride, tap },
            phases: vec![phase],
        }
    }
}

struct AxisPhase {
    first: usize,
    every: usize,
    count: usize,
    step: usize,
    taps: Vec<(i64, isize)>,
}

/// The phases of one axis of backward-data: x position `first + every*u` reads y position `u + offset`.
fn axis_phases(stride: i64, pad: i64, dilation: i64, filter: i64, size: i64) -> Vec<AxisPhase> {
    let phase = |first: i64| {
        let reach = |tap: i64| first + pad - tap * dilation;
        let taps = (0..filter).filter(|&t| reach(t) % stride == 0);
        AxisPhase {
            first: first as usize,
            every: stride as usize,
            count: ((size - first - 1) / stride + 1) as usize,
            step: 1,
            taps: taps.map(|t| (t, (reach(t) / stride) as isize)).collect(),
        }
    };
    (0..stride.min(size)).map(phase).collect()
}

fn cross(row: &AxisPhase, column: &AxisPhase, filter_w: i64) -> Phase {
    let taps = row.taps.iter().flat_map(|&(r, oh)| {
        column.taps.iter().map(move |&(s, ow)| Tap { offset: [oh, ow], index: (r * filter_w + s) as usize })
    });
    Phase {
        first: [row.first, column.first],
        every: [row.every, column.every],
        count: [row.count, column.count],
        step: [row.step, column.step],
        taps: taps.collect(),
    }
}
