//! Fusion plans: a chain of operations on one tensor, run one after the other in place of the result. A bias and a ReLU
//! behind a convolution are its kernels' work.

use crate::abi::entry::{Failure, Outcome};
use crate::abi::ffi::{Data, Id, status};
use crate::abi::handle::Handle;
use crate::abi::objects;
use crate::abi::slot::DescriptorValue;
use crate::conv::bound_conv::BoundConv;
use crate::conv::conv_call::{launch, ours};
use crate::conv::convolution::Convolution;
use crate::layers::activation::{Activation, activation};
use crate::layers::batch_norm::{BatchNormMode, Keeps, Layer};
use crate::layers::steps::{Steps, one_float_type, wide};
use crate::layers::tensor::Tensor;
use std::collections::HashMap;
use std::ffi::c_int;
use wave32_ops::{OpError, PostOp, View};
use wave32_problem::Direction;

/// An operation of a plan.
#[derive(Debug, Clone)]
pub enum Operation {
    /// A convolution with filters like these.
    Convolution(Box<(Convolution, Tensor)>),
    /// A bias a channel.
    Bias(Tensor),
    /// Forward, of that `miopenActivationMode_t`.
    Activation(c_int),
    /// Its gradient.
    ActivationBackward(c_int),
    /// With running statistics; the descriptor of its parameters.
    Inference(BatchNormMode, Tensor),
    /// With the batch's statistics.
    Training(BatchNormMode),
    /// Its gradient.
    TrainingBackward(BatchNormMode),
}

/// What an operation is given when a plan runs.
#[derive(Debug, Clone, Copy)]
pub enum Argument {
    /// Filters.
    Convolution(Data),
    /// The bias.
    Bias(Data),
    /// The three numbers.
    Activation([f64; 3]),
    /// Scale, bias, mean, variance; epsilon.
    Inference([Data; 4], f64),
    /// Scale, bias, saved mean and inverse variance, running mean and variance; share of the batch; epsilon.
    Training([Data; 6], f64, f64),
    /// x, scale, bias, the gradients of the two, saved mean and inverse variance.
    TrainingBackward([Data; 7]),
}

/// What is behind an operation's descriptor: it is only a name.
#[derive(Debug, Clone)]
pub struct Named;

impl DescriptorValue for Named {
    const KIND: &'static str = "fusion operator";
}

/// A fusion plan.
#[derive(Debug, Clone)]
pub struct FusionPlan {
    /// What it works on.
    pub input: Tensor,
    /// Its operations and their names.
    pub operations: Vec<(Id, Operation)>,
}

impl DescriptorValue for FusionPlan {
    const KIND: &'static str = "fusion plan";
}

/// Arguments of operations.
#[derive(Debug, Clone, Default)]
pub struct Arguments(pub HashMap<Id, Argument>);

impl DescriptorValue for Arguments {
    const KIND: &'static str = "fusion arguments object";
}

impl FusionPlan {
    /// The result's sizes.
    fn output(&self) -> Outcome<Vec<i64>> {
        match self.operations.first() {
            Some((_, Operation::Convolution(both))) => both.0.output(&self.input, &both.1),
            _ => Ok(self.input.sizes().iter().map(|&size| size as i64).collect()),
        }
    }

    /// That the chain can run: a convolution only first; a gradient of batch norm first, perhaps with one of an
    /// activation behind; forward operations otherwise.
    ///
    /// # Errors
    /// Unsupported operation where the plan cannot run.
    pub fn compile(&self, handle: &Handle) -> Outcome {
        use Operation::{ActivationBackward, Convolution, TrainingBackward};
        let ops: Vec<&Operation> = self.operations.iter().map(|(_, operation)| operation).collect();
        let refused = |why: &str| Err(Failure::new(status::UNSUPPORTED_OP, format!("a fusion plan {why}")));
        match ops.as_slice() {
            [] => return refused("of nothing"),
            [TrainingBackward(_)] | [TrainingBackward(_), ActivationBackward(_)] => return Ok(()),
            _ => {}
        }
        if ops.iter().any(|op| matches!(op, TrainingBackward(_) | ActivationBackward(_))) {
            return refused("with a gradient other than batch norm's, and its activation's behind it");
        }
        if ops.iter().skip(1).any(|op| matches!(op, Convolution(_))) {
            return refused("with a convolution that is not its first operation");
        }
        if let Some(Convolution(both)) = ops.first() {
            let sizes = self.output()?;
            let y = Tensor::in_order(self.input.dtype, &sizes)?;
            ours(
                handle,
                &BoundConv::new(Direction::Forward, &both.0, &self.input, &both.1, &y)?,
                Vec::new(),
            )?;
        }
        Ok(())
    }

    fn argument(&self, at: usize, arguments: &Arguments) -> Outcome<Argument> {
        let found = arguments.0.get(&self.operations[at].0).copied();
        found.ok_or_else(|| Failure::bad(format!("operation {at} of the fusion plan was given no arguments")))
    }

    /// Runs it.
    ///
    /// # Errors
    /// Bad parameter: tensors or arguments that do not fit; as [`FusionPlan::compile`].
    pub fn execute(
        &self,
        handle: &Handle,
        (input, input_data): (&Tensor, Data),
        (output, output_data): (&Tensor, Data),
        arguments: &Arguments,
    ) -> Outcome {
        self.compile(handle)?;
        let (x, y) = (input.view("input", input_data)?, output.view("output", output_data)?);
        one_float_type(&[("input", &x), ("output", &y)])?;
        let wanted = Self { input: *input, ..self.clone() }.output()?;
        if !y.sizes().iter().map(|&size| size as i64).eq(wanted.iter().copied()) {
            return Err(Failure::bad(format!("the output has sizes {:?}; {wanted:?} are made", y.sizes())));
        }
        let mut given = Vec::new();
        for at in 0..self.operations.len() {
            given.push(self.argument(at, arguments)?);
        }
        if let (Operation::TrainingBackward(mode), Argument::TrainingBackward(data)) =
            (&self.operations[0].1, given[0])
        {
            let behind = match (self.operations.get(1), given.get(1)) {
                (Some((_, Operation::ActivationBackward(mode))), Some(Argument::Activation(numbers))) => {
                    Some(activation(*mode, *numbers)?)
                }
                _ => None,
            };
            return backward(handle, *mode, &x, &y, data, behind);
        }
        let convolved = match (&self.operations[0].1, given[0]) {
            (Operation::Convolution(both), Argument::Convolution(w)) => Some((both, w)),
            _ => None,
        };
        let rest = self.operations.iter().zip(&given).skip(usize::from(convolved.is_some()));
        let steps: Vec<Step> = rest
            .map(|((_, operation), argument)| Step::new(operation, argument, &y))
            .collect::<Outcome<_>>()?;
        let post_ops: Vec<PostOp> = steps.iter().map_while(Step::post_op).collect();
        let (mut from, mut done) = (x, 0);
        let first = match convolved {
            Some((both, w)) => {
                (from, done) = (y, post_ops.len());
                let bound = BoundConv::new(Direction::Forward, &both.0, input, &both.1, output)?;
                let views = bound.views([input_data, w, output_data])?;
                Some((views, ours(handle, &bound, post_ops)?))
            }
            None => None,
        };
        handle.run(|engine| {
            if let Some((views, (chain, solutions))) = &first {
                launch(engine, chain, solutions, solutions.own()?, views, 0)?;
            }
            let work = &mut Steps::new(&mut engine.queue);
            for step in &steps[done..] {
                step.run(work, &from, &y)?;
                from = y;
            }
            Ok(())
        })
    }
}

/// A forward operation with its operands looked up. (A few live for one call.)
#[allow(clippy::large_enum_variant)]
enum Step {
    Post(PostOp),
    Inference(Box<(Layer, [View; 4])>),
    Training(Box<(Layer, [View; 2], Keeps)>),
}

impl Step {
    fn new(operation: &Operation, argument: &Argument, y: &View) -> Outcome<Self> {
        match (operation, *argument) {
            (Operation::Bias(tensor), Argument::Bias(data)) => Ok(Self::Post(bias(tensor, data, y)?)),
            (Operation::Activation(mode), Argument::Activation(numbers)) => {
                Ok(Self::Post(PostOp::Activation(activation(*mode, numbers)?)))
            }
            (Operation::Inference(mode, tensor), Argument::Inference(data, epsilon)) => {
                let layer = Layer::new(*mode, y.sizes(), epsilon)?;
                let view = |name: &str, data| layer.parameters(name, tensor, data);
                let [scale, bias, mean, variance] = data;
                let mean = view("estimatedMean", mean)?;
                let variance = view("estimatedVariance", variance)?;
                let all = [mean, variance, view("bnScale", scale)?, view("bnBias", bias)?];
                Ok(Self::Inference(Box::new((layer, all))))
            }
            (Operation::Training(mode), Argument::Training(data, factor, epsilon)) => {
                let layer = Layer::new(*mode, y.sizes(), epsilon)?;
                let tensor = mode.parameters(y.sizes())?;
                let optional = |name: &str, data| layer.optional(name, &tensor, data);
                let [scale, bias, mean, inverse, running_mean, running_variance] = data;
                let running = optional("runningMean", running_mean)?
                    .zip(optional("runningVariance", running_variance)?)
                    .map(|(mean, variance)| [mean, variance]);
                let (mean, inverse) = (optional("savedMean", mean)?, optional("savedInvVariance", inverse)?);
                let scale = layer.parameters("bnScale", &tensor, scale)?;
                let bias = layer.parameters("bnBias", &tensor, bias)?;
                let keeps = Keeps { factor, previous: None, running, mean, inverse };
                Ok(Self::Training(Box::new((layer, [scale, bias], keeps))))
            }
            _ => Err(Failure::bad("arguments of another operation's kind")),
        }
    }

    fn post_op(&self) -> Option<PostOp> {
        if let Self::Post(post_op) = self { Some(*post_op) } else { None }
    }

    fn run(&self, steps: &mut Steps, x: &View, y: &View) -> Result<(), OpError> {
        match self {
            Self::Post(post_op) => post_op.run(steps, x, y),
            Self::Inference(all) => {
                let (layer, [mean, variance, scale, bias]) = &**all;
                layer.infer(steps, x, [mean, variance, scale, bias], y)
            }
            Self::Training(all) => {
                let (layer, [scale, bias], keeps) = &**all;
                layer.train(steps, x, [scale, bias], keeps, y)
            }
        }
    }
}

/// A bias, one element for each channel of y.
///
/// # Errors
/// Bad parameter: null, of another size, or no floats.
pub fn bias(tensor: &Tensor, data: Data, y: &View) -> Outcome<PostOp> {
    let view = tensor.view("bias", data)?;
    let channels = y.sizes().get(1).copied().unwrap_or(0);
    if view.elements() != channels || !view.is_contiguous() || !view.dtype.is_float() {
        return Err(Failure::bad(format!("a bias of sizes {:?} for {channels} channels", view.sizes())));
    }
    Ok(PostOp::Bias(View::contiguous(view.address, view.dtype, &[channels])?))
}

fn backward(
    handle: &Handle,
    mode: BatchNormMode,
    dy: &View,
    dx: &View,
    data: [Data; 7],
    behind: Option<Activation>,
) -> Outcome {
    let layer = Layer::new(mode, dx.sizes(), 0.0)?;
    let tensor = mode.parameters(dx.sizes())?;
    let view = |name: &str, data| layer.parameters(name, &tensor, data);
    let [x, scale, bias, dscale, dbias, mean, inverse] = data;
    if x == 0 {
        return Err(Failure::bad("x is null"));
    }
    let x = View::new(x as u64, dx.dtype, dx.sizes(), dx.strides())?;
    let (scale, dscale) = (view("bnScale", scale)?, view("resultBnScaleDiff", dscale)?);
    let dbias = view("resultBnBiasDiff", dbias)?;
    let saved = [view("savedMean", mean)?, view("savedInvVariance", inverse)?];
    let bias = match behind {
        Some(_) => Some(view("bnBias", bias)?),
        None => None,
    };
    handle.run(|engine| {
        let steps = &mut Steps::new(&mut engine.queue);
        let dy = match behind.zip(bias) {
            Some((activation, bias)) => {
                layer.before(steps, activation, [&x, dy], [&scale, &bias], Some(saved))?
            }
            None => *dy,
        };
        Ok(layer.backward(steps, [&x, &dy], &scale, Some(saved), [dx, &dscale, &dbias])?)
    })
}

impl Layer {
    /// The gradient in front of an activation that follows the layer.
    ///
    /// # Errors
    /// [`OpError`]: an operation refuses the operands by name, or the device fails.
    pub fn before(
        &self,
        steps: &mut Steps,
        activation: Activation,
        [x, dy]: [&View; 2],
        parameters: [&View; 2],
        saved: Option<[View; 2]>,
    ) -> Result<View, OpError> {
        let before = self.again(steps, x, parameters, saved)?;
        let behind = steps.make(before.dtype, before.sizes())?;
        activation.forward(steps, &before, &behind)?;
        let through = steps.make(wide(dy.dtype), dy.sizes())?;
        activation.backward(steps, dy, &before, &behind, &through)?;
        Ok(through)
    }
}

/// Forgets the names of a plan's operations.
pub fn forget(plan: &FusionPlan) {
    for (id, _) in &plan.operations {
        // They were the plan's; who destroyed one before has nothing left to destroy.
        let _ = objects::remove::<crate::abi::slot::Slot<Named>>(*id, Named::KIND);
    }
}
