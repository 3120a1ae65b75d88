//! Find 1.0: workspace sizes, Find, and running what it found, for each pass.
//!
//! Find looks into the solver table: it runs nothing, takes microseconds, and neither reads nor writes a buffer. Times are
//! modelled. A call that runs an algorithm does exactly what Find answered for that much workspace; with less it does what
//! the rest allows, with none too.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Data, Id, In, Out, Perf, Status};
use crate::conv::conv_call::{ConvCall, Order, given, roles};
use std::ffi::c_int;
use wave32_problem::Direction;

fn answer(
    conv_call: &ConvCall,
    requested: c_int,
    workspace: u64,
    returned: &Out<c_int>,
    results: &Out<Perf>,
) -> Outcome {
    let most = usize::try_from(requested).ok().filter(|&most| most > 0);
    let most = most.ok_or_else(|| Failure::bad(format!("{requested} algorithms are requested")))?;
    returned.check("returnedAlgoCount")?;
    let perfs: Vec<Perf> = conv_call
        .solutions
        .algorithms(workspace)
        .into_iter()
        .take(most)
        .map(|solution| Perf {
            algorithm: solution.algorithm,
            time: solution.milliseconds,
            memory: solution.workspace() as usize,
        })
        .collect();
    results.set_all("perfResults", &perfs)?;
    returned.set("returnedAlgoCount", perfs.len() as c_int)
}

macro_rules! pass {
    ($direction:expr, $size:ident, $find:ident, $run:ident) => {
        /// Workspace that the fastest plan wants; any, none too, is enough to run.
        #[unsafe(no_mangle)]
        pub extern "C" fn $size(
            handle: Id,
            first: Id,
            second: Id,
            convolution: Id,
            result: Id,
            bytes: Out<usize>,
        ) -> Status {
            call(stringify!($size), || {
                let tensors = roles($direction, Order::Immediate, [first, second, result]);
                let conv_call = ConvCall::new(handle, $direction, tensors, convolution)?;
                bytes.set("workSpaceSize", conv_call.solutions.workspace() as usize)
            })
        }

        /// The algorithms that fit into the workspace, fastest first by the model.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the ABI's")]
        pub extern "C" fn $find(
            handle: Id,
            first: Id,
            first_data: Data,
            second: Id,
            second_data: Data,
            convolution: Id,
            result: Id,
            result_data: Data,
            requested: c_int,
            returned: Out<c_int>,
            results: Out<Perf>,
            workspace: Data,
            bytes: usize,
            _exhaustive: u8,
        ) -> Status {
            call(stringify!($find), || {
                let order = Order::Classic;
                let tensors = roles($direction, order, [first, second, result]);
                let conv_call = ConvCall::new(handle, $direction, tensors, convolution)?;
                conv_call.bound.views(roles($direction, order, [first_data, second_data, result_data]))?;
                answer(&conv_call, requested, given(workspace, bytes), &returned, &results)
            })
        }

        /// `result = alpha * convolution + beta * result`.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the ABI's")]
        pub extern "C" fn $run(
            handle: Id,
            alpha: In<f32>,
            first: Id,
            first_data: Data,
            second: Id,
            second_data: Data,
            convolution: Id,
            algorithm: c_int,
            beta: In<f32>,
            result: Id,
            result_data: Data,
            workspace: Data,
            bytes: usize,
        ) -> Status {
            call(stringify!($run), || {
                let order = Order::Classic;
                let tensors = roles($direction, order, [first, second, result]);
                let conv_call = ConvCall::new(handle, $direction, tensors, convolution)?;
                let factors = [alpha.get("alpha")?, beta.get("beta")?];
                let solution = conv_call.solutions.by_algorithm(algorithm, given(workspace, bytes))?;
                let data = roles($direction, order, [first_data, second_data, result_data]);
                conv_call.run(solution, data, factors, workspace)
            })
        }
    };
}

pass!(
    Direction::Forward,
    miopenConvolutionForwardGetWorkSpaceSize,
    miopenFindConvolutionForwardAlgorithm,
    miopenConvolutionForward
);
pass!(
    Direction::BackwardData,
    miopenConvolutionBackwardDataGetWorkSpaceSize,
    miopenFindConvolutionBackwardDataAlgorithm,
    miopenConvolutionBackwardData
);
pass!(
    Direction::BackwardWeights,
    miopenConvolutionBackwardWeightsGetWorkSpaceSize,
    miopenFindConvolutionBackwardWeightsAlgorithm,
    miopenConvolutionBackwardWeights
);
