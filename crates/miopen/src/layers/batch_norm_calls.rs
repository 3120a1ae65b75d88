//! The calls for batch norm: three generations of them, with and without an activation behind.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Data, Id, In, Status};
use crate::abi::handle::Handle;
use crate::abi::slot;
use crate::layers::activation::Activation;
use crate::layers::batch_norm::{BatchNormMode, Keeps, Layer};
use crate::layers::steps::{Blend, Steps, alike};
use crate::layers::tensor::{self, Tensor, tensor_of};
use std::ffi::c_int;
use wave32_ops::View;

/// What is common to all calls, after `alpha` and `beta`.
struct Common {
    handle: Id,
    mode: c_int,
    x: (Id, Data),
    y: (Id, Data),
    epsilon: f64,
    activation: Option<Id>,
}

/// Its tensors and layer, looked up.
struct Found {
    x: View,
    y: View,
    layer: Layer,
    activation: Option<Activation>,
}

impl Common {
    fn find(&self) -> Outcome<Found> {
        let x = tensor_of(self.x.0, "xDesc")?.view("x", self.x.1)?;
        let y = tensor_of(self.y.0, "yDesc")?.view("y", self.y.1)?;
        alike(&[("x", &x), ("y", &y)])?;
        let layer = Layer::new(BatchNormMode::from_c(self.mode)?, x.sizes(), self.epsilon)?;
        let activation = self.activation.map(slot::get::<Activation>).transpose()?;
        Ok(Found { x, y, layer, activation })
    }
}

/// Descriptors of scale, bias, mean and variance: one for all, or four.
fn four(descs: [Id; 4]) -> Outcome<[Tensor; 4]> {
    let names = ["scaleDesc", "biasDesc", "meanDesc", "varianceDesc"];
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| tensor_of(descs[at], names[at]));
    Ok([a?, b?, c?, d?])
}

struct Training {
    scale: Data,
    bias: Data,
    factor: f64,
    previous: Option<[Data; 2]>,
    running: [Data; 2],
    saved: [Data; 2],
}

fn train(common: &Common, descs: [Id; 4], data: &Training) -> Outcome {
    let handle = Handle::of(common.handle)?;
    let Found { x, y, layer, activation } = common.find()?;
    let [scale_tensor, bias_tensor, mean, variance] = four(descs)?;
    let scale = layer.parameters("bnScale", &scale_tensor, data.scale)?;
    let bias = layer.parameters("bnBias", &bias_tensor, data.bias)?;
    let both = |name: &str, [a, b]: [Data; 2]| -> Outcome<Option<[View; 2]>> {
        Ok(layer.optional(name, &mean, a)?.zip(layer.optional(name, &variance, b)?).map(|(a, b)| [a, b]))
    };
    let keeps = Keeps {
        factor: data.factor,
        previous: data.previous.map_or(Ok(None), |previous| both("prevResultRunning*", previous))?,
        running: both("resultRunning*", data.running)?,
        mean: layer.optional("resultSaveMean", &mean, data.saved[0])?,
        inverse: layer.optional("resultSaveInvVariance", &variance, data.saved[1])?,
    };
    if data.previous.is_some() && keeps.running.is_some() && keeps.previous.is_none() {
        return Err(Failure::bad("a running mean and variance to write, and none to start from"));
    }
    handle.run(|engine| {
        let steps = &mut Steps::new(&mut engine.queue);
        layer.train(steps, &x, [&scale, &bias], &keeps, &y)?;
        Ok(activation.map_or(Ok(()), |activation| activation.forward(steps, &y, &y))?)
    })
}

/// Means and variances (`inverted`: 1 / sqrt(variance + epsilon)); where one is null, the batch's own.
fn infer(common: &Common, descs: [Id; 4], data: [Data; 4], inverted: bool) -> Outcome {
    let handle = Handle::of(common.handle)?;
    let Found { x, y, layer, activation } = common.find()?;
    let tensors = four(descs)?;
    let scale = layer.parameters("bnScale", &tensors[0], data[0])?;
    let bias = layer.parameters("bnBias", &tensors[1], data[1])?;
    let mean = layer.optional("estimatedMean", &tensors[2], data[2])?;
    let variance = layer.optional("estimatedVariance", &tensors[3], data[3])?;
    handle.run(|engine| {
        let steps = &mut Steps::new(&mut engine.queue);
        match (mean, variance) {
            (Some(mean), Some(inverse)) if inverted => {
                layer.apply(steps, &x, [&mean, &inverse, &scale, &bias], &y)?;
            }
            (Some(mean), Some(variance)) => layer.infer(steps, &x, [&mean, &variance, &scale, &bias], &y)?,
            _ => layer.train(steps, &x, [&scale, &bias], &Keeps::default(), &y)?,
        }
        Ok(activation.map_or(Ok(()), |activation| activation.forward(steps, &y, &y))?)
    })
}

struct Backward {
    dx: (Id, Data),
    scale: Data,
    bias: Data,
    dscale: Data,
    dbias: Data,
    saved: [Data; 2],
}

/// `common.y` is dy here.
fn backward(common: &Common, descs: [Id; 4], data: &Backward) -> Outcome {
    let handle = Handle::of(common.handle)?;
    let Found { x, y: dy, layer, activation } = common.find()?;
    let dx = tensor_of(data.dx.0, "dxDesc")?.view("dx", data.dx.1)?;
    alike(&[("x", &x), ("dx", &dx)])?;
    let [scale_tensor, bias_tensor, mean, variance] = four(descs)?;
    let scale = layer.parameters("bnScale", &scale_tensor, data.scale)?;
    let dscale = layer.parameters("resultBnScaleDiff", &scale_tensor, data.dscale)?;
    let dbias = layer.parameters("resultBnBiasDiff", &bias_tensor, data.dbias)?;
    let saved_mean = layer.optional("savedMean", &mean, data.saved[0])?;
    let saved_inverse = layer.optional("savedInvVariance", &variance, data.saved[1])?;
    let saved = saved_mean.zip(saved_inverse).map(|(mean, inverse)| [mean, inverse]);
    let bias = match activation {
        Some(_) => Some(layer.parameters("bnBias", &bias_tensor, data.bias)?),
        None => None,
    };
    handle.run(|engine| {
        let steps = &mut Steps::new(&mut engine.queue);
        let mut dy = dy;
        if let Some((activation, bias)) = activation.zip(bias) {
            dy = layer.before(steps, activation, [&x, &dy], [&scale, &bias], saved)?;
        }
        Ok(layer.backward(steps, [&x, &dy], &scale, saved, [&dx, &dscale, &dbias])?)
    })
}

/// Sizes of scale, bias and statistics for an input of `x_desc`; of f32, whatever that is.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDeriveBNTensorDescriptor(derived: Id, x_desc: Id, mode: c_int) -> Status {
    call("miopenDeriveBNTensorDescriptor", || {
        let x = tensor_of(x_desc, "xDesc")?;
        tensor::describe(derived, BatchNormMode::from_c(mode)?.parameters(x.sizes())?)
    })
}

macro_rules! forward_training {
    ($name:ident, [$($desc:ident),*] => $descs:expr, [$($previous:ident),*] => $was:expr, [$($activation:ident),*] => $after:expr) => {
        /// Training: y, and what is wanted of the running and the batch's statistics; alpha is 1 and beta 0.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the ABI's")]
        pub extern "C" fn $name(
            handle: Id, mode: c_int, alpha: In<f32>, beta: In<f32>, x_desc: Id, x: Data, y_desc: Id, y: Data, $($desc: Id,)*
            scale: Data, bias: Data, factor: f64, $($previous: Data,)* running_mean: Data, running_variance: Data,
            epsilon: f64, saved_mean: Data, saved_inverse: Data, $($activation: Id,)*
        ) -> Status {
            call(stringify!($name), || {
                Blend::plain(&alpha, &beta)?;
                let (x, y) = ((x_desc, x), (y_desc, y));
                let common = Common { handle, mode, x, y, epsilon, activation: $after };
                let running = [running_mean, running_variance];
                let saved = [saved_mean, saved_inverse];
                train(&common, $descs, &Training { scale, bias, factor, previous: $was, running, saved })
            })
        }
    };
}

forward_training!(miopenBatchNormalizationForwardTraining, [all] => [all; 4], [] => None, [] => None);
forward_training!(miopenBatchNormalizationForwardTraining_V2, [s, b, m, v] => [s, b, m, v], [] => None, [] => None);
forward_training!(miopenBatchNormalizationForwardTraining_V3, [s, b, m, v] => [s, b, m, v],
    [mean, variance] => Some([mean, variance]), [] => None);
forward_training!(miopenBatchNormForwardTrainingActivation, [s, b, m, v] => [s, b, m, v], [] => None,
    [activation] => Some(activation));
forward_training!(miopenBatchNormForwardTrainingActivation_V2, [s, b, m, v] => [s, b, m, v],
    [mean, variance] => Some([mean, variance]), [activation] => Some(activation));

macro_rules! forward_inference {
    ($name:ident, [$($desc:ident),*] => $descs:expr, $inverted:expr, [$($epsilon:ident),*] => $eps:expr,
     [$($activation:ident),*] => $after:expr) => {
        /// Inference with running statistics; where one is null, with the batch's own. alpha is 1 and beta 0.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the ABI's")]
        pub extern "C" fn $name(
            handle: Id, mode: c_int, alpha: In<f32>, beta: In<f32>, x_desc: Id, x: Data, y_desc: Id, y: Data, $($desc: Id,)*
            scale: Data, bias: Data, mean: Data, variance: Data, $($epsilon: f64,)* $($activation: Id,)*
        ) -> Status {
            call(stringify!($name), || {
                Blend::plain(&alpha, &beta)?;
                let (x, y) = ((x_desc, x), (y_desc, y));
                let common = Common { handle, mode, x, y, epsilon: $eps, activation: $after };
                infer(&common, $descs, [scale, bias, mean, variance], $inverted)
            })
        }
    };
}

/// Where inverse variances are given or computed, MIOpen's.
const EPSILON: f64 = 1e-5;

forward_inference!(miopenBatchNormalizationForwardInference, [all] => [all; 4], false, [e] => e, [] => None);
forward_inference!(miopenBatchNormalizationForwardInference_V2, [s, b, m, v] => [s, b, m, v], false, [e] => e, [] => None);
forward_inference!(miopenBatchNormalizationForwardInferenceInvVariance, [s, b, m, v] => [s, b, m, v], true,
    [] => EPSILON, [] => None);
forward_inference!(miopenBatchNormForwardInferenceActivation, [s, b, m, v] => [s, b, m, v], false, [e] => e,
    [activation] => Some(activation));
forward_inference!(miopenBatchNormForwardInferenceActivationInvVariance, [s, b, m, v] => [s, b, m, v], true,
    [] => EPSILON, [activation] => Some(activation));

macro_rules! backward {
    ($name:ident, [$($desc:ident),*] => $descs:expr, [$($bias:ident),*] => $offset:expr, [$($activation:ident),*] => $after:expr) => {
        /// Gradients of x, scale and bias; each alpha is 1 and each beta 0.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the ABI's")]
        pub extern "C" fn $name(
            handle: Id, mode: c_int, alpha: In<f32>, beta: In<f32>, alpha_param: In<f32>, beta_param: In<f32>, x_desc: Id,
            x: Data, dy_desc: Id, dy: Data, dx_desc: Id, dx: Data, $($desc: Id,)* scale: Data, $($bias: Data,)*
            dscale: Data, dbias: Data, epsilon: f64, saved_mean: Data, saved_inverse: Data, $($activation: Id,)*
        ) -> Status {
            call(stringify!($name), || {
                Blend::plain(&alpha, &beta)?;
                Blend::plain(&alpha_param, &beta_param)?;
                let (x, y, dx) = ((x_desc, x), (dy_desc, dy), (dx_desc, dx));
                let common = Common { handle, mode, x, y, epsilon, activation: $after };
                let saved = [saved_mean, saved_inverse];
                backward(&common, $descs, &Backward { dx, scale, bias: $offset, dscale, dbias, saved })
            })
        }
    };
}

backward!(miopenBatchNormalizationBackward, [all] => [all; 4], [] => 0, [] => None);
backward!(miopenBatchNormalizationBackward_V2, [s, b, m, v] => [s, b, m, v], [] => 0, [] => None);
backward!(miopenBatchNormBackwardActivation, [s, b, m, v] => [s, b, m, v], [bias] => bias, [activation] => Some(activation));
