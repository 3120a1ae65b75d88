//! The f64 reference: each output element straight from the definition of its pass.
//!
//! Nothing here is shared with the backend: no im2col, no blocking, no rewriting of a transposed
//! problem into a plain one. Slow on purpose, threaded over output elements.

use crate::Inputs;
use rayon::prelude::*;
use wave32_problem::{ConvProblem, Direction, Layout, MatmulProblem, Matrices, Problem};

/// A storage type of the operands; every value of it is exact in f64.
pub trait Value: Copy + Into<f64> + Sync {}

impl<T: Copy + Into<f64> + Sync> Value for T {}

/// All outputs of a problem.
///
/// # Panics
/// As [`conv`].
pub fn all<T: Value>(p: &Problem, i: &Inputs<T>) -> Vec<f64> {
    let count = p.output_elements() as usize;
    (0..count).into_par_iter().map(|index| at(p, i, index as u64)).collect()
}

/// One output element of a problem, by its flat index.
///
/// # Panics
/// As [`conv`].
pub fn at<T: Value>(p: &Problem, i: &Inputs<T>, index: u64) -> f64 {
    match p {
        Problem::Conv(p) => conv_at(p, i, index),
        Problem::Matmul(p) => matmul_at(p, i, index),
    }
}

/// One element of a product of matrices, by its flat index.
fn matmul_at<T: Value>(p: &MatmulProblem, i: &Inputs<T>, index: u64) -> f64 {
    let (s, index) = (p.spec(), index as i64);
    let (g, row, column) = (index / s.n / s.m, index / s.n % s.m, index % s.n);
    let place = |m: &Matrices, row: i64, column: i64| {
        (m.first + g * m.strides[0] + row * m.strides[1] + column * m.strides[2]) as usize
    };
    let term = |k| i.a[place(&s.a, row, k)].into() * i.b[place(&s.b, k, column)].into();
    let sum: f64 = (0..s.k).map(term).sum();
    let added = s
        .added
        .zip(i.bias)
        .map_or(0.0, |(added, values)| added.beta.0 * values[place(&added.matrices, row, column)].into());
    s.activation.apply(s.alpha.0 * sum + added)
}

/// All outputs of the pass, in the output tensor's layout.
///
/// # Panics
/// Where an operand's length is not the problem's, as slice indexing does.
pub fn conv<T: Value>(p: &ConvProblem, i: &Inputs<T>) -> Vec<f64> {
    let count = p.output_elements() as usize;
    (0..count).into_par_iter().map(|index| conv_at(p, i, index as u64)).collect()
}

/// One output element, by its flat index in the output tensor's layout.
///
/// # Panics
/// As [`conv`].
pub fn conv_at<T: Value>(p: &ConvProblem, i: &Inputs<T>, index: u64) -> f64 {
    let s = p.spec();
    let t = Tensors::new(p);
    match s.direction {
        Direction::Forward | Direction::BackwardData => {
            // Both write an image; they differ in which one.
            let forward = s.direction == Direction::Forward;
            let output = if forward { &t.y } else { &t.x };
            let at = output.coordinates(index as i64);
            let value = match (forward, s.transposed) {
                (true, false) => forward_at(&t, i, at),
                (false, false) => backward_data_at(&t, i, at),
                (true, true) => transposed_forward_at(&t, i, at),
                (false, true) => transposed_backward_data_at(&t, i, at),
            };
            epilogue(p, i, value, at[1])
        }
        Direction::BackwardWeights => {
            let at = t.w.coordinates(index as i64);
            if s.transposed {
                transposed_backward_weights_at(&t, i, at)
            } else {
                backward_weights_at(&t, i, at)
            }
        }
    }
}

/// A 4-D tensor's sizes (outer, channel, row, column) and its layout.
struct Shape {
    size: [i64; 4],
    layout: Layout,
}

impl Shape {
    fn index(&self, [n, c, h, w]: [i64; 4]) -> usize {
        let [_, cs, hs, ws] = self.size;
        (match self.layout {
            Layout::Nchw => ((n * cs + c) * hs + h) * ws + w,
            Layout::Nhwc => ((n * hs + h) * ws + w) * cs + c,
        }) as usize
    }

    fn coordinates(&self, index: i64) -> [i64; 4] {
        let [_, cs, hs, ws] = self.size;
        match self.layout {
            Layout::Nchw => [index / (cs * hs * ws), index / (hs * ws) % cs, index / ws % hs, index % ws],
            Layout::Nhwc => [index / (hs * ws * cs), index % cs, index / (ws * cs) % hs, index / cs % ws],
        }
    }
}

struct Tensors<'a> {
    s: &'a wave32_problem::ConvSpec,
    x: Shape,
    w: Shape,
    y: Shape,
    /// Channels of one group.
    cg: i64,
    kg: i64,
}

impl<'a> Tensors<'a> {
    fn new(p: &'a ConvProblem) -> Self {
        let s = p.spec();
        let (cg, kg) = (s.c / s.groups, s.k / s.groups);
        let shape = |size| Shape { size, layout: s.layout };
        let filter = if s.transposed { [s.c, kg, s.r, s.s] } else { [s.k, cg, s.r, s.s] };
        Self {
            s,
            x: shape([s.n, s.c, s.h, s.w]),
            w: shape(filter),
            y: shape([s.n, s.k, p.out_h(), p.out_w()]),
            cg,
            kg,
        }
    }

    /// Where tap `(r, s)` at pixel `(u, v)` of the small image lands in the large one, if inside it.
    ///
    /// Small and large are y and x of a plain convolution, x and y of a transposed one.
    fn tap(&self, large: &Shape, [u, v]: [i64; 2], [r, s]: [i64; 2]) -> Option<[i64; 2]> {
        let c = self.s;
        let h = u * c.stride[0] - c.pad[0] + r * c.dilation[0];
        let w = v * c.stride[1] - c.pad[1] + s * c.dilation[1];
        (h >= 0 && h < large.size[2] && w >= 0 && w < large.size[3]).then_some([h, w])
    }

    /// The inverse of `tap`: the pixel of the small image whose tap `(r, s)` lands on `(h, w)`.
    fn untap(&self, small: &Shape, [h, w]: [i64; 2], [r, s]: [i64; 2]) -> Option<[i64; 2]> {
        let c = self.s;
        let (u, v) = (h + c.pad[0] - r * c.dilation[0], w + c.pad[1] - s * c.dilation[1]);
        if u < 0 || v < 0 || u % c.stride[0] != 0 || v % c.stride[1] != 0 {
            return None;
        }
        let (u, v) = (u / c.stride[0], v / c.stride[1]);
        (u < small.size[2] && v < small.size[3]).then_some([u, v])
    }
}

fn forward_at<T: Value>(t: &Tensors, i: &Inputs<T>, [n, k, p, q]: [i64; 4]) -> f64 {
    let (mut sum, group) = (0.0, k / t.kg);
    for c in 0..t.cg {
        for r in 0..t.s.r {
            for s in 0..t.s.s {
                if let Some([h, w]) = t.tap(&t.x, [p, q], [r, s]) {
                    sum += i.a[t.x.index([n, group * t.cg + c, h, w])].into()
                        * i.b[t.w.index([k, c, r, s])].into();
                }
            }
        }
    }
    sum
}

fn backward_data_at<T: Value>(t: &Tensors, i: &Inputs<T>, [n, c, h, w]: [i64; 4]) -> f64 {
    let (mut sum, group) = (0.0, c / t.cg);
    for k in group * t.kg..(group + 1) * t.kg {
        for r in 0..t.s.r {
            for s in 0..t.s.s {
                if let Some([p, q]) = t.untap(&t.y, [h, w], [r, s]) {
                    sum += i.a[t.y.index([n, k, p, q])].into() * i.b[t.w.index([k, c % t.cg, r, s])].into();
                }
            }
        }
    }
    sum
}

fn backward_weights_at<T: Value>(t: &Tensors, i: &Inputs<T>, [k, c, r, s]: [i64; 4]) -> f64 {
    let (mut sum, channel) = (0.0, k / t.kg * t.cg + c);
    for n in 0..t.s.n {
        for p in 0..t.y.size[2] {
            for q in 0..t.y.size[3] {
                if let Some([h, w]) = t.tap(&t.x, [p, q], [r, s]) {
                    sum += i.a[t.x.index([n, channel, h, w])].into() * i.b[t.y.index([n, k, p, q])].into();
                }
            }
        }
    }
    sum
}

/// Each input pixel paints its filter onto the output; here, who painted this output pixel?
fn transposed_forward_at<T: Value>(t: &Tensors, i: &Inputs<T>, [n, k, oh, ow]: [i64; 4]) -> f64 {
    let (mut sum, group) = (0.0, k / t.kg);
    for c in group * t.cg..(group + 1) * t.cg {
        for r in 0..t.s.r {
            for s in 0..t.s.s {
                if let Some([h, w]) = t.untap(&t.x, [oh, ow], [r, s]) {
                    sum += i.a[t.x.index([n, c, h, w])].into() * i.b[t.w.index([c, k % t.kg, r, s])].into();
                }
            }
        }
    }
    sum
}

fn transposed_backward_data_at<T: Value>(t: &Tensors, i: &Inputs<T>, [n, c, h, w]: [i64; 4]) -> f64 {
    let (mut sum, group) = (0.0, c / t.cg);
    for k in 0..t.kg {
        for r in 0..t.s.r {
            for s in 0..t.s.s {
                if let Some([oh, ow]) = t.tap(&t.y, [h, w], [r, s]) {
                    sum += i.a[t.y.index([n, group * t.kg + k, oh, ow])].into()
                        * i.b[t.w.index([c, k, r, s])].into();
                }
            }
        }
    }
    sum
}

fn transposed_backward_weights_at<T: Value>(t: &Tensors, i: &Inputs<T>, [c, k, r, s]: [i64; 4]) -> f64 {
    let (mut sum, channel) = (0.0, c / t.cg * t.kg + k);
    for n in 0..t.s.n {
        for h in 0..t.s.h {
            for w in 0..t.s.w {
                if let Some([oh, ow]) = t.tap(&t.y, [h, w], [r, s]) {
                    sum += i.a[t.x.index([n, c, h, w])].into() * i.b[t.y.index([n, channel, oh, ow])].into();
                }
            }
        }
    }
    sum
}

fn epilogue<T: Value>(p: &ConvProblem, i: &Inputs<T>, value: f64, channel: i64) -> f64 {
    let value = value + i.bias.map_or(0.0, |bias| bias[channel as usize].into());
    p.spec().epilogue.activation.apply(value)
}
