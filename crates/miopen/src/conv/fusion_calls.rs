//! The calls for fusion plans.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Data, Id, In, Out, Status, algorithm};
use crate::abi::handle::Handle;
use crate::abi::objects;
use crate::abi::slot::{self, DescriptorValue, Slot};
use crate::conv::bound_conv::{BoundConv, flat};
use crate::conv::conv_call::{given, launch, ours};
use crate::conv::convolution::convolution;
use crate::conv::fusion::{Argument, Arguments, FusionPlan, Named, Operation, bias, forget};
use crate::layers::activation::activation;
use crate::layers::batch_norm::BatchNormMode;
use crate::layers::steps::{Blend, one_size};
use crate::layers::tensor::tensor_of;
use std::ffi::c_int;
use wave32_ops::PostOp;
use wave32_problem::Direction;

/// Creates a plan for tensors like this; the direction makes no difference.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateFusionPlan(plan: Out<Id>, _direction: c_int, input: Id) -> Status {
    call("miopenCreateFusionPlan", || {
        let input = tensor_of(input, "inputDesc")?;
        slot::create(&plan, Some(FusionPlan { input, operations: Vec::new() }))
    })
}

/// Destroys a plan and its operators.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroyFusionPlan(plan: Id) -> Status {
    call("miopenDestroyFusionPlan", || {
        forget(&slot::get::<FusionPlan>(plan)?);
        slot::destroy::<FusionPlan>(plan)
    })
}

/// Says whether the plan can run; nothing is compiled.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCompileFusionPlan(handle: Id, plan: Id) -> Status {
    call("miopenCompileFusionPlan", || slot::get::<FusionPlan>(plan)?.compile(&*Handle::of(handle)?))
}

/// The operator at that place.
#[unsafe(no_mangle)]
pub extern "C" fn miopenFusionPlanGetOp(plan: Id, at: c_int, operator: Out<Id>) -> Status {
    call("miopenFusionPlanGetOp", || {
        let plan = slot::get::<FusionPlan>(plan)?;
        let found = usize::try_from(at).ok().and_then(|at| plan.operations.get(at));
        let found = found.ok_or_else(|| Failure::bad(format!("the plan has no operator {at}")))?;
        operator.set("op", found.0)
    })
}

/// 0: a plan needs no workspace.
#[unsafe(no_mangle)]
pub extern "C" fn miopenFusionPlanGetWorkSpaceSize(
    handle: Id,
    plan: Id,
    bytes: Out<usize>,
    _algorithm: c_int,
) -> Status {
    call("miopenFusionPlanGetWorkSpaceSize", || {
        Handle::of(handle)?;
        slot::get::<FusionPlan>(plan)?;
        bytes.set("workSpaceSize", 0)
    })
}

/// The one algorithm that a caller may choose: ours, whichever that is.
#[unsafe(no_mangle)]
pub extern "C" fn miopenFusionPlanConvolutionGetAlgo(
    plan: Id,
    requested: c_int,
    returned: Out<c_int>,
    algorithms: Out<c_int>,
) -> Status {
    call("miopenFusionPlanConvolutionGetAlgo", || {
        slot::get::<FusionPlan>(plan)?;
        let count = requested.clamp(0, 1);
        algorithms.set_all("returnedAlgos", &[algorithm::IMPLICIT_GEMM][..count as usize])?;
        returned.set("returnedAlgoCount", count)
    })
}

/// Accepted: see [`miopenFusionPlanConvolutionGetAlgo`].
#[unsafe(no_mangle)]
pub extern "C" fn miopenFusionPlanConvolutionSetAlgo(plan: Id, _algorithm: c_int) -> Status {
    call("miopenFusionPlanConvolutionSetAlgo", || slot::get::<FusionPlan>(plan).map(drop))
}

fn append(plan: Id, operator: &Out<Id>, operation: Operation) -> Outcome {
    operator.check("op")?;
    let id = slot::change(plan, |plan: &mut FusionPlan| {
        let id = slot::insert(Some(Named));
        plan.operations.push((id, operation));
        Ok(id)
    })?;
    operator.set("op", id)
}

/// Appends a convolution.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateOpConvForward(plan: Id, operator: Out<Id>, conv: Id, w: Id) -> Status {
    call("miopenCreateOpConvForward", || {
        let both = Box::new((convolution(conv)?, tensor_of(w, "wDesc")?));
        append(plan, &operator, Operation::Convolution(both))
    })
}

/// Appends an activation.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateOpActivationForward(plan: Id, operator: Out<Id>, mode: c_int) -> Status {
    call("miopenCreateOpActivationForward", || {
        activation(mode, [0.0; 3])?;
        append(plan, &operator, Operation::Activation(mode))
    })
}

/// Appends the gradient of an activation.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateOpActivationBackward(plan: Id, operator: Out<Id>, mode: c_int) -> Status {
    call("miopenCreateOpActivationBackward", || {
        activation(mode, [0.0; 3])?;
        append(plan, &operator, Operation::ActivationBackward(mode))
    })
}

/// Appends a bias.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateOpBiasForward(plan: Id, operator: Out<Id>, bias: Id) -> Status {
    call("miopenCreateOpBiasForward", || append(plan, &operator, Operation::Bias(tensor_of(bias, "bDesc")?)))
}

/// Appends batch norm with running statistics.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateOpBatchNormInference(
    plan: Id,
    operator: Out<Id>,
    mode: c_int,
    parameters: Id,
) -> Status {
    call("miopenCreateOpBatchNormInference", || {
        let parameters = tensor_of(parameters, "bnScaleBiasMeanVarDesc")?;
        append(plan, &operator, Operation::Inference(BatchNormMode::from_c(mode)?, parameters))
    })
}

/// Appends batch norm with the batch's statistics.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateOpBatchNormForward(
    plan: Id,
    operator: Out<Id>,
    mode: c_int,
    _running: u8,
) -> Status {
    call("miopenCreateOpBatchNormForward", || {
        append(plan, &operator, Operation::Training(BatchNormMode::from_c(mode)?))
    })
}

/// Appends the gradient of batch norm.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateOpBatchNormBackward(plan: Id, operator: Out<Id>, mode: c_int) -> Status {
    call("miopenCreateOpBatchNormBackward", || {
        append(plan, &operator, Operation::TrainingBackward(BatchNormMode::from_c(mode)?))
    })
}

/// Creates an object for arguments.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateOperatorArgs(arguments: Out<Id>) -> Status {
    call("miopenCreateOperatorArgs", || slot::create(&arguments, Some(Arguments::default())))
}

/// Destroys it.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroyOperatorArgs(arguments: Id) -> Status {
    call("miopenDestroyOperatorArgs", || slot::destroy::<Arguments>(arguments))
}

fn give(arguments: Id, operator: Id, factors: [&In<f32>; 2], argument: Argument) -> Outcome {
    Blend::plain(factors[0], factors[1])?;
    objects::get::<Slot<Named>>(operator, Named::KIND)?;
    slot::change(arguments, |arguments: &mut Arguments| {
        arguments.0.insert(operator, argument);
        Ok(())
    })
}

/// The filters; alpha is 1 and beta 0, here and below.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetOpArgsConvForward(
    arguments: Id,
    operator: Id,
    alpha: In<f32>,
    beta: In<f32>,
    w: Data,
) -> Status {
    call("miopenSetOpArgsConvForward", || {
        give(arguments, operator, [&alpha, &beta], Argument::Convolution(w))
    })
}

/// The activation's numbers.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetOpArgsActivForward(
    arguments: Id,
    operator: Id,
    alpha: In<f32>,
    beta: In<f32>,
    a: f64,
    b: f64,
    c: f64,
) -> Status {
    call("miopenSetOpArgsActivForward", || {
        give(arguments, operator, [&alpha, &beta], Argument::Activation([a, b, c]))
    })
}

/// The activation's numbers. Its result y is computed again from what is in front of it.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenSetOpArgsActivBackward(
    arguments: Id,
    operator: Id,
    alpha: In<f32>,
    beta: In<f32>,
    _y: Data,
    _reserved: Data,
    a: f64,
    b: f64,
    c: f64,
) -> Status {
    call("miopenSetOpArgsActivBackward", || {
        give(arguments, operator, [&alpha, &beta], Argument::Activation([a, b, c]))
    })
}

/// The bias.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetOpArgsBiasForward(
    arguments: Id,
    operator: Id,
    alpha: In<f32>,
    beta: In<f32>,
    bias: Data,
) -> Status {
    call("miopenSetOpArgsBiasForward", || give(arguments, operator, [&alpha, &beta], Argument::Bias(bias)))
}

/// Parameters and running statistics.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenSetOpArgsBatchNormInference(
    arguments: Id,
    operator: Id,
    alpha: In<f32>,
    beta: In<f32>,
    scale: Data,
    bias: Data,
    mean: Data,
    variance: Data,
    epsilon: f64,
) -> Status {
    call("miopenSetOpArgsBatchNormInference", || {
        let argument = Argument::Inference([scale, bias, mean, variance], epsilon);
        give(arguments, operator, [&alpha, &beta], argument)
    })
}

/// Parameters, and what is kept of the batch: f32 each.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenSetOpArgsBatchNormForward(
    arguments: Id,
    operator: Id,
    alpha: In<f32>,
    beta: In<f32>,
    scale: Data,
    bias: Data,
    saved_mean: Data,
    saved_inverse: Data,
    running_mean: Data,
    running_variance: Data,
    factor: f64,
    epsilon: f64,
) -> Status {
    call("miopenSetOpArgsBatchNormForward", || {
        let data = [scale, bias, saved_mean, saved_inverse, running_mean, running_variance];
        give(arguments, operator, [&alpha, &beta], Argument::Training(data, factor, epsilon))
    })
}

/// x, parameters, their gradients, and what was saved: f32 but for x.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenSetOpArgsBatchNormBackward(
    arguments: Id,
    operator: Id,
    alpha: In<f32>,
    beta: In<f32>,
    x: Data,
    scale: Data,
    bias: Data,
    dscale: Data,
    dbias: Data,
    saved_mean: Data,
    saved_inverse: Data,
) -> Status {
    call("miopenSetOpArgsBatchNormBackward", || {
        let data = [x, scale, bias, dscale, dbias, saved_mean, saved_inverse];
        give(arguments, operator, [&alpha, &beta], Argument::TrainingBackward(data))
    })
}

fn execute(handle: Id, plan: Id, input: (Id, Data), output: (Id, Data), arguments: Id) -> Outcome {
    let (handle, plan) = (Handle::of(handle)?, slot::get::<FusionPlan>(plan)?);
    let (from, to) = (tensor_of(input.0, "inputDesc")?, tensor_of(output.0, "outputDesc")?);
    plan.execute(&handle, (&from, input.1), (&to, output.1), &slot::get::<Arguments>(arguments)?)
}

/// Runs a plan.
#[unsafe(no_mangle)]
pub extern "C" fn miopenExecuteFusionPlan(
    handle: Id,
    plan: Id,
    input_desc: Id,
    input: Data,
    output_desc: Id,
    output: Data,
    arguments: Id,
) -> Status {
    call("miopenExecuteFusionPlan", || {
        execute(handle, plan, (input_desc, input), (output_desc, output), arguments)
    })
}

/// Runs a plan; it needs no workspace.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenExecuteFusionPlan_v2(
    handle: Id,
    plan: Id,
    input_desc: Id,
    input: Data,
    output_desc: Id,
    output: Data,
    arguments: Id,
    _workspace: Data,
    _bytes: usize,
) -> Status {
    call("miopenExecuteFusionPlan_v2", || {
        execute(handle, plan, (input_desc, input), (output_desc, output), arguments)
    })
}

/// `y = activation(alpha1 * convolution + alpha2 * z + bias)`; z and the bias may be null.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenConvolutionBiasActivationForward(
    handle: Id,
    alpha1: In<f32>,
    x_desc: Id,
    x: Data,
    w_desc: Id,
    w: Data,
    conv: Id,
    algorithm: c_int,
    workspace: Data,
    bytes: usize,
    alpha2: In<f32>,
    z_desc: Id,
    z: Data,
    bias_desc: Id,
    bias_data: Data,
    activation: Id,
    y_desc: Id,
    y: Data,
) -> Status {
    call("miopenConvolutionBiasActivationForward", || {
        let (handle, convolution) = (Handle::of(handle)?, convolution(conv)?);
        let (x_tensor, w_tensor) = (tensor_of(x_desc, "xDesc")?, tensor_of(w_desc, "wDesc")?);
        let y_tensor = tensor_of(y_desc, "yDesc")?;
        let bound = BoundConv::new(Direction::Forward, &convolution, &x_tensor, &w_tensor, &y_tensor)?;
        let views = bound.views([x, w, y])?;
        let alpha = alpha1.get("alpha1")?.into();
        let (mut beta, mut other) = (0.0, views[2]);
        if z != 0 {
            beta = if alpha2.is_null() { 0.0 } else { alpha2.get("alpha2")?.into() };
            other = flat(&tensor_of(z_desc, "zDesc")?, "z")?.view("z", z)?;
            one_size(&[("y", &views[2]), ("z", &other)])?;
        }
        if other.address == views[2].address && other != views[2] {
            return Err(Failure::bad("z lies where y does, and in another layout"));
        }
        let mut post_ops: Vec<PostOp> = PostOp::blend(alpha, beta, other).into_iter().collect();
        if bias_data != 0 {
            post_ops.push(bias(&tensor_of(bias_desc, "biasDesc")?, bias_data, &views[2])?);
        }
        post_ops.push(PostOp::Activation(slot::get(activation)?));
        let (chain, solutions) = ours(&handle, &bound, post_ops)?;
        let offer = solutions.by_algorithm(algorithm, given(workspace, bytes))?;
        handle.run(|engine| launch(engine, &chain, &solutions, offer, &views, workspace))
    })
}
