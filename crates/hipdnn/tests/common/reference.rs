//! Random convolutions, their graphs as PyTorch and MIOpen's users build them, and their results in f64 by plain loops.

use super::write::{
    ADD, BACKWARD_DATA, BACKWARD_WEIGHTS, BFLOAT16, Convolution, FLOAT, FORWARD, Graph, HALF, Node,
    Pointwise, RELU, Tensor,
};
use half::{bf16, f16};
use rand::Rng;
use rand::rngs::StdRng;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    F32,
    F16,
    BF16,
}

pub const TYPES: [Type; 3] = [Type::F32, Type::F16, Type::BF16];

impl Type {
    pub fn number(self) -> i8 {
        [FLOAT, HALF, BFLOAT16][self as usize]
    }

    pub fn size(self) -> usize {
        if self == Self::F32 { 4 } else { 2 }
    }

    /// Half the distance between neighbours, relative.
    pub fn unit(self) -> f64 {
        [24, 11, 8].map(|bits| 0.5f64.powi(bits))[self as usize]
    }

    pub fn bytes(self, value: f64) -> Vec<u8> {
        match self {
            Self::F32 => (value as f32).to_le_bytes().to_vec(),
            Self::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
            Self::BF16 => bf16::from_f64(value).to_le_bytes().to_vec(),
        }
    }

    pub fn value(self, bytes: &[u8]) -> f64 {
        match self {
            Self::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
            Self::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
            Self::BF16 => bf16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Forward,
    Data,
    Weights,
}

pub const PASSES: [Pass; 3] = [Pass::Forward, Pass::Data, Pass::Weights];

/// How tensors lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lies {
    Nchw,
    Nhwc,
    /// As rows of something larger.
    Strided,
}

/// What is behind a convolution.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Behind {
    pub bias: bool,
    /// `PointwiseMode`, and its numbers by field.
    pub activation: Option<(i8, Vec<(u16, f32)>)>,
}

/// A convolution with its tensors' sizes.
#[derive(Debug, Clone)]
pub struct Case {
    pub pass: Pass,
    pub dtype: Type,
    pub lies: Lies,
    pub x: [usize; 4],
    pub w: [usize; 4],
    pub y: [usize; 4],
    pub groups: usize,
    pub stride: [usize; 2],
    pub pad: [usize; 2],
    pub dilation: [usize; 2],
    pub behind: Behind,
    /// 4 as all of this is; the graph's tensors may be lines of 3, or volumes of one layer, of 5.
    pub rank: usize,
}

pub const X: i64 = 11;
pub const W: i64 = 12;
pub const Y: i64 = 13;
pub const BIAS: i64 = 14;
const BETWEEN: [i64; 2] = [21, 22];

impl Case {
    pub fn random(random: &mut StdRng, pass: Pass, dtype: Type, lies: Lies) -> Self {
        let size = |random: &mut StdRng, from: usize, to: usize| random.random_range(from..=to);
        let groups = size(random, 1, 3);
        let mut pairs = || {
            std::array::from_fn::<[usize; 4], 2, _>(|_| {
                [size(random, 1, 3), size(random, 0, 2), size(random, 1, 2), size(random, 1, 2)]
            })
        };
        let per = pairs();
        let mut image = [0; 2];
        let mut out = [0; 2];
        for (dim, [filter, pad, stride, dilation]) in per.into_iter().enumerate() {
            let span = (filter - 1) * dilation + 1;
            image[dim] = size(random, span.saturating_sub(2 * pad).max(1), 9);
            out[dim] = (image[dim] + 2 * pad - span) / stride + 1;
        }
        let (n, c, k) = (size(random, 1, 3), size(random, 1, 5), size(random, 1, 5));
        let each = |at: usize| per.map(|four| four[at]);
        Self {
            pass,
            dtype,
            lies,
            x: [n, c * groups, image[0], image[1]],
            w: [k * groups, c, per[0][0], per[1][0]],
            y: [n, k * groups, out[0], out[1]],
            groups,
            pad: each(1),
            stride: each(2),
            dilation: each(3),
            behind: Behind::default(),
            rank: 4,
        }
    }

    /// Images of one row, in lines.
    pub fn line(self) -> Self {
        let row = |[n, c, _, w]: [usize; 4]| [n, c, 1, w];
        let [(_, stride), (_, pad), (_, dilation)] =
            [self.stride, self.pad, self.dilation].map(|[h, w]| (h, w));
        let (x, w, y) = (row(self.x), row(self.w), row(self.y));
        Self { x, w, y, stride: [1, stride], pad: [0, pad], dilation: [1, dilation], rank: 3, ..self }
    }

    pub fn strides(&self, size: [usize; 4]) -> [usize; 4] {
        let [_, c, h, w] = size;
        match self.lies {
            Lies::Nchw => [c * h * w, h * w, w, 1],
            Lies::Nhwc => [h * w * c, 1, w * c, c],
            Lies::Strided => [(c + 1) * h * (w + 2), h * (w + 2), w + 2, 1],
        }
    }

    /// x, w, y; the result among them; the result's sizes.
    pub fn result(&self) -> (usize, [usize; 4]) {
        match self.pass {
            Pass::Forward => (2, self.y),
            Pass::Data => (0, self.x),
            Pass::Weights => (1, self.w),
        }
    }

    pub fn sizes(&self) -> [[usize; 4]; 3] {
        [self.x, self.w, self.y]
    }

    /// The graph, with a virtual tensor between each two nodes.
    pub fn graph(&self) -> Graph {
        let long = |values: &[usize], layer: usize| {
            let mut values: Vec<i64> = values.iter().map(|&value| value as i64).collect();
            // Where height is.
            let at = values.len() - 2;
            match self.rank {
                3 => drop(values.remove(at)),
                5 => values.insert(at, layer as i64),
                _ => {}
            }
            values
        };
        let tensor = |uid: i64, size: [usize; 4], is_virtual: bool| Tensor {
            uid,
            data_type: if is_virtual { FLOAT } else { self.dtype.number() },
            dims: long(&size, 1),
            strides: long(&self.strides(size), 1),
            is_virtual,
            extra: None,
        };
        let all = [X, W, Y];
        let (result, size) = self.result();
        let mut tensors: Vec<Tensor> = (0..3).map(|at| tensor(all[at], self.sizes()[at], false)).collect();
        let behind = usize::from(self.behind.bias) + usize::from(self.behind.activation.is_some());
        let mut made: Vec<i64> = BETWEEN[..behind].to_vec();
        tensors.extend(made.iter().map(|&uid| tensor(uid, size, true)));
        made.push(all[result]);
        let first = made[0];
        let (kind, order) = match self.pass {
            Pass::Forward => (FORWARD, [X, W, first]),
            Pass::Data => (BACKWARD_DATA, [Y, W, first]),
            Pass::Weights => (BACKWARD_WEIGHTS, [X, Y, first]),
        };
        let mut nodes = vec![Node::Convolution(Convolution {
            kind,
            tensors: order,
            before: long(&self.pad, 0),
            after: long(&self.pad, 0),
            strides: long(&self.stride, 1),
            dilations: long(&self.dilation, 1),
            mode: 2,
            compute: FLOAT,
            extra: None,
        })];
        let mut at = 0;
        if self.behind.bias {
            let channels = size[1] as i64;
            tensors.push(Tensor {
                uid: BIAS,
                data_type: self.dtype.number(),
                dims: [&[1, channels][..], &[1, 1, 1][..self.rank - 2]].concat(),
                strides: [&[channels][..], &[1; 4][..self.rank - 1]].concat(),
                ..Tensor::default()
            });
            // Either order; PyTorch has the image first, and computes in its type.
            let mut inputs = [Some(made[0]), Some(BIAS), None];
            if size[0] % 2 == 0 {
                inputs.swap(0, 1);
            }
            let compute = self.dtype.number();
            nodes.push(Node::Pointwise(Pointwise {
                mode: ADD,
                inputs,
                output: made[1],
                compute,
                numbers: vec![],
            }));
            at = 1;
        }
        if let Some((mode, numbers)) = &self.behind.activation {
            let (inputs, output) = ([Some(made[at]), None, None], made[at + 1]);
            let numbers = numbers.clone();
            nodes.push(Node::Pointwise(Pointwise { mode: *mode, inputs, output, compute: FLOAT, numbers }));
        }
        Graph {
            io: self.dtype.number(),
            intermediate: FLOAT,
            compute: FLOAT,
            tensors,
            nodes,
            ..Graph::default()
        }
    }

    /// The result in f64, and how far from it each element may be. `x`, `w` and `y` are in order; the result's is not read.
    pub fn expected(&self, [x, w, y]: [&[f64]; 3], bias: &[f64]) -> Vec<(f64, f64)> {
        let (result, size) = self.result();
        let mut sums = vec![(0.0f64, 0.0f64); size.iter().product()];
        let at = |size: [usize; 4], [a, b, c, d]: [usize; 4]| ((a * size[1] + b) * size[2] + c) * size[3] + d;
        let [n, k, oh, ow] = self.y;
        let [_, c, r, s] = self.w;
        for n in 0..n {
            for k in 0..k {
                let group = k / (self.w[0] / self.groups);
                for (p, q) in (0..oh).flat_map(|p| (0..ow).map(move |q| (p, q))) {
                    for c in 0..c {
                        for (r, s) in (0..r).flat_map(|r| (0..s).map(move |s| (r, s))) {
                            let h = (p * self.stride[0] + r * self.dilation[0]).wrapping_sub(self.pad[0]);
                            let v = (q * self.stride[1] + s * self.dilation[1]).wrapping_sub(self.pad[1]);
                            if h >= self.x[2] || v >= self.x[3] {
                                continue;
                            }
                            let places = [
                                at(self.x, [n, group * self.w[1] + c, h, v]),
                                at(self.w, [k, c, r, s]),
                                at(self.y, [n, k, p, q]),
                            ];
                            let term = match result {
                                0 => w[places[1]] * y[places[2]],
                                1 => x[places[0]] * y[places[2]],
                                _ => x[places[0]] * w[places[1]],
                            };
                            let sum = &mut sums[places[result]];
                            (sum.0, sum.1) = (sum.0 + term, sum.1 + term.abs());
                        }
                    }
                }
            }
        }
        let channel = |index: usize| index / (size[2] * size[3]) % size[1];
        let unit = self.dtype.unit();
        // Sums in f32 err by a rounding a term; a result is rounded once, and once more where a kernel of its own goes on.
        let finish = |(index, (sum, magnitude)): (usize, (f64, f64))| {
            let before = sum + if self.behind.bias { bias[channel(index)] } else { 0.0 };
            let (value, twice) = match &self.behind.activation {
                None => (before, self.behind.bias && self.pass != Pass::Forward),
                Some((mode, numbers)) => (activated(*mode, numbers, before), true),
            };
            let relu = matches!(&self.behind.activation, Some((RELU, numbers)) if numbers.is_empty());
            let again = if twice && !relu { before.abs().max(sum.abs()) } else { 0.0 };
            let slack = (magnitude + before.abs()) * 2e-6 + unit * (value.abs() + again) * 1.02 + 1e-7;
            (value, slack)
        };
        sums.into_iter().enumerate().map(finish).collect()
    }
}

fn activated(mode: i8, numbers: &[(u16, f32)], x: f64) -> f64 {
    let number = |field: u16| numbers.iter().find(|(at, _)| *at == field).map(|&(_, value)| f64::from(value));
    match mode {
        1 => x.abs(),
        14 => {
            if x > 0.0 {
                x
            } else {
                number(10).unwrap_or(1.0) * x.exp_m1()
            }
        }
        37 => 1.0 / (1.0 + (-x).exp()),
        47 => x.tanh(),
        RELU => {
            let (lower, upper) = (number(1).unwrap_or(0.0), number(2).unwrap_or(f64::INFINITY));
            if x <= lower { lower + number(3).unwrap_or(0.0) * (x - lower) } else { x.min(upper) }
        }
        other => panic!("{other}"),
    }
}
