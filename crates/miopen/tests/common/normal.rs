//! Batch norm's formulas in f64.

use super::{Card, FLOATS, Tensor, Type};

/// Which parameter an element belongs to.
pub fn owner(spatial: bool, sizes: [usize; 4], at: usize) -> usize {
    let image = sizes[1] * sizes[2] * sizes[3];
    if spatial { at / (sizes[2] * sizes[3]) % sizes[1] } else { at % image }
}

pub struct Layer {
    pub spatial: bool,
    pub sizes: [usize; 4],
    pub epsilon: f64,
    pub xs: Vec<f64>,
    pub scales: Vec<f64>,
    pub biases: Vec<f64>,
}

pub struct Statistics {
    pub mean: Vec<f64>,
    /// Over n.
    pub variance: Vec<f64>,
    pub count: f64,
}

impl Layer {
    pub fn kept(&self) -> [usize; 4] {
        let [_, c, h, w] = self.sizes;
        if self.spatial { [1, c, 1, 1] } else { [1, c, h, w] }
    }

    pub fn owner(&self, at: usize) -> usize {
        owner(self.spatial, self.sizes, at)
    }

    pub fn statistics(&self) -> Statistics {
        let count = self.kept().iter().product::<usize>();
        let n = self.xs.len() as f64 / count as f64;
        let (mut mean, mut variance) = (vec![0.0; count], vec![0.0; count]);
        self.xs.iter().enumerate().for_each(|(at, x)| mean[self.owner(at)] += x / n);
        for (at, x) in self.xs.iter().enumerate() {
            variance[self.owner(at)] += (x - mean[self.owner(at)]).powi(2) / n;
        }
        Statistics { mean, variance, count: n }
    }

    pub fn normal(&self, s: &Statistics, at: usize) -> f64 {
        let owner = self.owner(at);
        (self.xs[at] - s.mean[owner]) / (s.variance[owner] + self.epsilon).sqrt()
    }

    pub fn forward(&self, s: &Statistics) -> Vec<f64> {
        let y = |at| self.normal(s, at) * self.scales[self.owner(at)] + self.biases[self.owner(at)];
        (0..self.xs.len()).map(y).collect()
    }

    /// What x's gradient may be off by, relative to its largest: statistics are kept in f32, and the terms of it cancel,
    /// of two values nearly whole.
    pub fn gradient_tolerance(&self, dtype: Type, s: &Statistics, dys: &[f64]) -> f64 {
        let [dxs, dscale, dbias] = self.backward(s, dys);
        let terms = dys.iter().enumerate().map(|(at, dy)| {
            let owner = self.owner(at);
            let through = dy.abs()
                + dbias[owner].abs() / s.count
                + (self.normal(s, at) * dscale[owner]).abs() / s.count;
            self.scales[owner] * through / (s.variance[owner] + self.epsilon).sqrt()
        });
        let largest = dxs.iter().fold(1e-6_f64, |most, dx| most.max(dx.abs()));
        5.0 * dtype.tolerance().max(1e-5) * (terms.fold(0.0, f64::max) / largest).max(1.0)
    }

    /// Gradients of x, scale, bias.
    pub fn backward(&self, s: &Statistics, dys: &[f64]) -> [Vec<f64>; 3] {
        let count = self.scales.len();
        let (mut dscale, mut dbias) = (vec![0.0; count], vec![0.0; count]);
        for (at, dy) in dys.iter().enumerate() {
            dscale[self.owner(at)] += dy * self.normal(s, at);
            dbias[self.owner(at)] += dy;
        }
        let dx = |at: usize| {
            let owner = self.owner(at);
            let through = dys[at] - dbias[owner] / s.count - self.normal(s, at) * dscale[owner] / s.count;
            self.scales[owner] * through / (s.variance[owner] + self.epsilon).sqrt()
        };
        [(0..dys.len()).map(dx).collect(), dscale, dbias]
    }
}

pub struct Case {
    pub layer: Layer,
    pub what: String,
    pub x: Tensor,
    pub scale: Tensor,
    pub bias: Tensor,
    pub order: [usize; 4],
}

impl Case {
    pub fn new(card: &mut Card, dtype: Type, spatial: bool) -> Self {
        let sizes = [card.size(2, 4), card.size(1, 5), card.size(1, 6), card.size(2, 7)];
        let order = card.layout();
        // A mean far from 0.
        let (x, xs) = card.random(dtype, &sizes, &order, [2.0, 5.0]);
        let mut layer = Layer { spatial, sizes, epsilon: 1e-3, xs, scales: Vec::new(), biases: Vec::new() };
        let in_order = [0, 1, 2, 3];
        let (scale, scales) = card.random(Type::F32, &layer.kept(), &in_order, [0.5, 2.0]);
        let (bias, biases) = card.random(Type::F32, &layer.kept(), &in_order, [-1.0, 1.0]);
        (layer.scales, layer.biases) = (scales, biases);
        let what = format!("{dtype:?} {sizes:?} in order {order:?}, spatial {spatial}, seed {}", card.seed);
        Self { layer, what, x, scale, bias, order }
    }
}

pub fn cases() -> impl Iterator<Item = (Type, bool, usize)> {
    let types = FLOATS.into_iter().chain([Type::F64]);
    types.flat_map(|dtype| [(dtype, true, 0), (dtype, true, 1), (dtype, false, 2)])
}
