//! Batch norm of any layout: `wave32-ops`' own kernels where they fit, otherwise reductions and elementwise steps.
//!
//! As in MIOpen, what is saved of a batch is its mean and 1 / sqrt(variance + epsilon) with the variance over n, and what
//! runs is updated with the variance over n - 1.

use crate::abi::entry::{Failure, Outcome};
use crate::abi::ffi::{Data, DataType};
use crate::layers::steps::{Steps, wide};
use crate::layers::tensor::Tensor;
use std::ffi::c_int;
use wave32_ops::{BatchNorm, ElementType, Op, OpError, Reduce, View, reduce, variance};

/// `miopenBatchNormMode_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchNormMode {
    /// Statistics of each element of an image.
    PerActivation,
    /// Statistics of each channel.
    Spatial,
}

impl BatchNormMode {
    /// From the caller's number.
    ///
    /// # Errors
    /// Bad parameter where `mode` is not a value of the C enum.
    pub fn from_c(mode: c_int) -> Outcome<Self> {
        match mode {
            0 => Ok(Self::PerActivation),
            1 => Ok(Self::Spatial),
            _ => Err(Failure::bad(format!("{mode} is no batch norm mode"))),
        }
    }

    /// The dimensions that statistics go over.
    fn over(self, rank: usize) -> Vec<usize> {
        match self {
            Self::PerActivation => vec![0],
            Self::Spatial => (0..rank).filter(|&dim| dim != 1).collect(),
        }
    }

    /// Sizes of statistics and parameters for an `x` of these sizes.
    fn kept(self, sizes: &[u64]) -> Vec<u64> {
        let over = self.over(sizes.len());
        sizes.iter().enumerate().map(|(dim, &size)| if over.contains(&dim) { 1 } else { size }).collect()
    }

    /// Statistics or parameters for an `x` of these sizes, where no descriptor tells: f32, in order.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn parameters(self, sizes: &[u64]) -> Outcome<Tensor> {
        let kept: Vec<i64> = self.kept(sizes).iter().map(|&size| size as i64).collect();
        Tensor::in_order(DataType::Float, &kept)
    }
}

/// A layer: its tensor's sizes say how many parameters there are.
#[derive(Debug, Clone)]
pub struct Layer {
    mode: BatchNormMode,
    kept: Vec<u64>,
    count: f64,
    /// Added to the variance.
    pub epsilon: f64,
}

impl Layer {
    /// Of a tensor with these sizes.
    ///
    /// # Errors
    /// Bad parameter: fewer than two dimensions, or an epsilon below 0.
    pub fn new(mode: BatchNormMode, sizes: &[u64], epsilon: f64) -> Outcome<Self> {
        if sizes.len() < 2 || epsilon.is_nan() || epsilon < 0.0 {
            let text = format!("batch norm of sizes {sizes:?} with epsilon {epsilon}");
            return Err(Failure::bad(text));
        }
        let kept = mode.kept(sizes);
        let elements = |sizes: &[u64]| sizes.iter().product::<u64>() as f64;
        Ok(Self { mode, count: elements(sizes) / elements(&kept), kept, epsilon })
    }

    /// Parameters or statistics at that address: their descriptor has as many elements as the layer has channels
    /// (activations), in order.
    ///
    /// # Errors
    /// Bad parameter: null; another size, gaps, no floats.
    pub fn parameters(&self, name: &str, tensor: &Tensor, data: Data) -> Outcome<View> {
        let view = tensor.view(name, data)?;
        let count: u64 = self.kept.iter().product();
        if view.elements() != count || !view.is_contiguous() || !view.dtype.is_float() {
            let (sizes, kept) = (view.sizes(), &self.kept);
            let text =
                format!("{name} has sizes {sizes:?}; {kept:?} in order, of a floating type, are meant");
            return Err(Failure::bad(text));
        }
        Ok(View::contiguous(view.address, view.dtype, &self.kept)?)
    }

    /// As [`Layer::parameters`], where null says that there are none.
    ///
    /// # Errors
    /// As [`Layer::parameters`].
    pub fn optional(&self, name: &str, tensor: &Tensor, data: Data) -> Outcome<Option<View>> {
        if data == 0 { Ok(None) } else { self.parameters(name, tensor, data).map(Some) }
    }

    /// True where the kernels made for it can do it.
    fn is_plain(&self, steps: &Steps, tensors: &[&View], parameters: &[&View]) -> bool {
        let dtype = tensors[0].dtype;
        self.mode == BatchNormMode::Spatial
            && matches!(dtype, ElementType::F32 | ElementType::F16 | ElementType::BF16)
            && tensors.iter().all(|view| view.dtype == dtype && view.is_contiguous())
            && parameters.iter().all(|view| view.dtype == ElementType::F32)
            && self.kept[1] <= u64::from(steps.queue.caps().max_groups[1])
    }

    fn channels(&self, view: &View) -> Result<View, OpError> {
        View::contiguous(view.address, view.dtype, &[self.kept[1]])
    }

    /// A batch's mean and 1 / sqrt(variance + epsilon), and the variance.
    fn statistics(&self, steps: &mut Steps, x: &View) -> Result<[View; 3], OpError> {
        let dtype = wide(x.dtype);
        let mean = steps.make(dtype, &self.kept)?;
        let plain = steps.make(dtype, &self.kept)?;
        let over = self.mode.over(x.rank());
        variance(steps.queue, x, &over, 0.0, false, Some(&plain), Some(&mean))?;
        let inverse = self.inverse(steps, dtype, &plain)?;
        Ok([mean, inverse, plain])
    }

    /// A batch's mean and 1 / sqrt(variance + epsilon), computed where they were not saved.
    fn saved_or_anew(
        &self,
        steps: &mut Steps,
        x: &View,
        saved: Option<[View; 2]>,
    ) -> Result<[View; 2], OpError> {
        match saved {
            Some(saved) => Ok(saved),
            None => self.statistics(steps, x).map(|[mean, inverse, _]| [mean, inverse]),
        }
    }

    /// 1 / sqrt(variance + epsilon).
    fn inverse(&self, steps: &mut Steps, dtype: ElementType, variance: &View) -> Result<View, OpError> {
        let made = steps.make(dtype, &self.kept)?;
        steps.run(Op::Add, &[variance.into(), self.epsilon.into()], [0.0; 2], &made)?;
        // Doubles have a root and a quotient, but no kernel for both.
        steps.run(Op::Sqrt, &[(&made).into()], [0.0; 2], &made)?;
        steps.run(Op::Div, &[1.0.into(), (&made).into()], [0.0; 2], &made)?;
        Ok(made)
    }

    /// `y = (x - mean) * inverse * scale + bias`.
    ///
    /// # Errors
    /// [`OpError`]: an operation refuses the operands by name, or the device fails.
    pub fn apply(
        &self,
        steps: &mut Steps,
        x: &View,
        [mean, inverse, scale, bias]: [&View; 4],
        y: &View,
    ) -> Result<(), OpError> {
        let slope = steps.make(wide(y.dtype), &self.kept)?;
        steps.run(Op::Mul, &[inverse.into(), scale.into()], [0.0; 2], &slope)?;
        // Not x * slope + (bias - mean * slope): that loses digits where the mean is far from 0.
        let centred = if y.dtype == wide(y.dtype) { *y } else { steps.make(wide(y.dtype), y.sizes())? };
        steps.run(Op::Sub, &[x.into(), mean.into()], [0.0; 2], &centred)?;
        steps.run(Op::Addcmul, &[bias.into(), (&centred).into(), (&slope).into()], [1.0, 0.0], y)
    }

    /// Normalizes with the batch's own statistics.
    ///
    /// # Errors
    /// [`OpError`]: an operation refuses the operands by name, or the device fails.
    pub fn train(
        &self,
        steps: &mut Steps,
        x: &View,
        [scale, bias]: [&View; 2],
        keeps: &Keeps,
        y: &View,
    ) -> Result<(), OpError> {
        for (from, to) in [(keeps.previous, keeps.running)].iter().filter_map(|(a, b)| a.zip(*b)) {
            steps.copy(&from[0], &to[0])?;
            steps.copy(&from[1], &to[1])?;
        }
        let running = keeps.running.as_ref().map_or(&[][..], |views| views);
        let parameters: Vec<&View> = [scale, bias].into_iter().chain(running).collect();
        if self.is_plain(steps, &[x, y], &parameters) {
            let save = steps.make(ElementType::F32, &[2, self.kept[1]])?;
            let all = parameters.iter().map(|view| self.channels(view)).collect::<Result<Vec<_>, _>>()?;
            let norm = BatchNorm {
                gamma: Some(&all[0]),
                beta: Some(&all[1]),
                running: if all.len() == 4 { Some((&all[2], &all[3])) } else { None },
                training: true,
                momentum: keeps.factor as f32,
                eps: self.epsilon as f32,
            };
            wave32_ops::batch_norm(steps.queue, x, &norm, y, Some(&save))?;
            for (at, to) in [keeps.mean, keeps.inverse].iter().enumerate() {
                if let Some(to) = to {
                    let from =
                        View::contiguous(save.select(0, at as u64).address, ElementType::F32, &self.kept)?;
                    steps.copy(&from, to)?;
                }
            }
            return Ok(());
        }
        let [mean, inverse, plain] = self.statistics(steps, x)?;
        for (from, to) in [(&mean, keeps.mean), (&inverse, keeps.inverse)] {
            if let Some(to) = to {
                steps.copy(from, &to)?;
            }
        }
        if let Some([running_mean, running_variance]) = &keeps.running {
            let unbiased = self.count / (self.count - 1.0).max(1.0);
            steps.run(Op::Mul, &[(&plain).into(), unbiased.into()], [0.0; 2], &plain)?;
            for (new, running) in [(&mean, running_mean), (&plain, running_variance)] {
                let mix = [running.into(), new.into(), keeps.factor.into()];
                steps.run(Op::Lerp, &mix, [0.0; 2], running)?;
            }
        }
        self.apply(steps, x, [&mean, &inverse, scale, bias], y)
    }

    /// Normalizes with the mean and variance given.
    ///
    /// # Errors
    /// [`OpError`]: an operation refuses the operands by name, or the device fails.
    pub fn infer(
        &self,
        steps: &mut Steps,
        x: &View,
        [mean, variance, scale, bias]: [&View; 4],
        y: &View,
    ) -> Result<(), OpError> {
        if self.is_plain(steps, &[x, y], &[mean, variance, scale, bias]) {
            let of = |view| self.channels(view);
            let (mean, variance, gamma, beta) = (of(mean)?, of(variance)?, of(scale)?, of(bias)?);
            let norm = BatchNorm {
                gamma: Some(&gamma),
                beta: Some(&beta),
                running: Some((&mean, &variance)),
                training: false,
                momentum: 0.0,
                eps: self.epsilon as f32,
            };
            return wave32_ops::batch_norm(steps.queue, x, &norm, y, None);
        }
        let inverse = self.inverse(steps, wide(x.dtype), variance)?;
        self.apply(steps, x, [mean, &inverse, scale, bias], y)
    }

    /// Gradients of [`Layer::train`]: of x, scale and bias. `saved` is what it saved; without it the batch's statistics
    /// are computed again.
    ///
    /// # Errors
    /// [`OpError`]: an operation refuses the operands by name, or the device fails.
    pub fn backward(
        &self,
        steps: &mut Steps,
        [x, dy]: [&View; 2],
        scale: &View,
        saved: Option<[View; 2]>,
        [dx, dscale, dbias]: [&View; 3],
    ) -> Result<(), OpError> {
        let [mean, inverse] = self.saved_or_anew(steps, x, saved)?;
        if self.is_plain(steps, &[x, dy, dx], &[&mean, &inverse, scale]) {
            let grads = steps.make(ElementType::F32, &[2, self.kept[1]])?;
            let of = |view| self.channels(view);
            let (mean, inverse, gamma) = (of(&mean)?, of(&inverse)?, of(scale)?);
            let how = (true, self.epsilon as f32);
            let saved = (&mean, &inverse);
            wave32_ops::batch_norm_backward(
                steps.queue,
                x,
                dy,
                saved,
                Some(&gamma),
                how,
                None,
                Some(dx),
                &grads,
            )?;
            for (at, to) in [dscale, dbias].into_iter().enumerate() {
                let from =
                    View::contiguous(grads.select(0, at as u64).address, ElementType::F32, &self.kept)?;
                steps.copy(&from, to)?;
            }
            return Ok(());
        }
        let dtype = wide(x.dtype);
        let [normal, product] = [steps.make(dtype, x.sizes())?, steps.make(dtype, x.sizes())?];
        steps.run(Op::Sub, &[x.into(), (&mean).into()], [0.0; 2], &normal)?;
        steps.run(Op::Mul, &[(&normal).into(), (&inverse).into()], [0.0; 2], &normal)?;
        steps.run(Op::Mul, &[(&normal).into(), dy.into()], [0.0; 2], &product)?;
        let over = self.mode.over(x.rank());
        let [by_scale, by_bias] = [steps.make(dtype, &self.kept)?, steps.make(dtype, &self.kept)?];
        reduce(steps.queue, Reduce::Sum, &product, &over, &by_scale)?;
        reduce(steps.queue, Reduce::Sum, dy, &over, &by_bias)?;
        let share = [-1.0 / self.count, 0.0];
        steps.run(Op::Mul, &[(&normal).into(), (&by_scale).into()], [0.0; 2], &normal)?;
        steps.run(Op::AddScaled, &[dy.into(), (&normal).into()], share, &normal)?;
        steps.run(Op::AddScaled, &[(&normal).into(), (&by_bias).into()], share, &normal)?;
        steps.copy(&by_scale, dscale)?;
        steps.copy(&by_bias, dbias)?;
        let slope = steps.make(dtype, &self.kept)?;
        steps.run(Op::Mul, &[(&inverse).into(), scale.into()], [0.0; 2], &slope)?;
        steps.run(Op::Mul, &[(&normal).into(), (&slope).into()], [0.0; 2], dx)
    }

    /// What [`Layer::train`] made of x before an activation, from what was saved.
    ///
    /// # Errors
    /// [`OpError`]: an operation refuses the operands by name, or the device fails.
    pub fn again(
        &self,
        steps: &mut Steps,
        x: &View,
        [scale, bias]: [&View; 2],
        saved: Option<[View; 2]>,
    ) -> Result<View, OpError> {
        let [mean, inverse] = self.saved_or_anew(steps, x, saved)?;
        let made = steps.make(wide(x.dtype), x.sizes())?;
        self.apply(steps, x, [&mean, &inverse, scale, bias], &made)?;
        Ok(made)
    }
}

/// What training keeps of a batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keeps {
    /// Share of this batch in the running mean and variance.
    pub factor: f64,
    /// The running mean and variance to start from, where that is not what is updated.
    pub previous: Option<[View; 2]>,
    /// The running mean and variance, updated.
    pub running: Option<[View; 2]>,
    /// Gets the batch's mean.
    pub mean: Option<View>,
    /// Gets 1 / sqrt(variance + epsilon).
    pub inverse: Option<View>,
}
