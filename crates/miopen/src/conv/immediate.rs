//! Immediate mode: solutions by number, for each pass. A solution is a solver's fastest plan; with less workspace than
//! that wants, the solver's fastest that fits.

use crate::abi::entry::call;
use crate::abi::ffi::{ConvSolution, Data, Id, Out, Status};
use crate::conv::conv_call::{ConvCall, Order, given, roles};
use wave32_problem::Direction;

macro_rules! pass {
    ($direction:expr, $count:ident, $list:ident, $size:ident, $compile:ident, $run:ident) => {
        /// How many solutions there are.
        #[unsafe(no_mangle)]
        pub extern "C" fn $count(
            handle: Id,
            first: Id,
            second: Id,
            convolution: Id,
            result: Id,
            count: Out<usize>,
        ) -> Status {
            call(stringify!($count), || {
                let tensors = roles($direction, Order::Immediate, [first, second, result]);
                let conv_call = ConvCall::new(handle, $direction, tensors, convolution)?;
                count.set("solutionCount", conv_call.solutions.each_solver().len())
            })
        }

        /// The solutions, `most` at most, fastest first by the model.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the ABI's")]
        pub extern "C" fn $list(
            handle: Id,
            first: Id,
            second: Id,
            convolution: Id,
            result: Id,
            most: usize,
            count: Out<usize>,
            solutions: Out<ConvSolution>,
        ) -> Status {
            call(stringify!($list), || {
                let tensors = roles($direction, Order::Immediate, [first, second, result]);
                let conv_call = ConvCall::new(handle, $direction, tensors, convolution)?;
                count.check("solutionCount")?;
                let found = conv_call.solutions.each_solver();
                let found: Vec<ConvSolution> = found
                    .into_iter()
                    .take(most)
                    .map(|found| ConvSolution {
                        time: found.milliseconds,
                        workspace_size: found.workspace() as usize,
                        solution_id: found.id,
                        algorithm: found.algorithm,
                    })
                    .collect();
                solutions.set_all("solutions", &found)?;
                count.set("solutionCount", found.len())
            })
        }

        /// Workspace that a solution wants.
        #[unsafe(no_mangle)]
        pub extern "C" fn $size(
            handle: Id,
            first: Id,
            second: Id,
            convolution: Id,
            result: Id,
            solution: u64,
            bytes: Out<usize>,
        ) -> Status {
            call(stringify!($size), || {
                let tensors = roles($direction, Order::Immediate, [first, second, result]);
                let conv_call = ConvCall::new(handle, $direction, tensors, convolution)?;
                bytes.set("workSpaceSize", conv_call.solutions.solution(solution)?.workspace() as usize)
            })
        }

        /// Loads the kernels of a solution, which are compiled already.
        #[unsafe(no_mangle)]
        pub extern "C" fn $compile(
            handle: Id,
            first: Id,
            second: Id,
            convolution: Id,
            result: Id,
            solution: u64,
        ) -> Status {
            call(stringify!($compile), || {
                let tensors = roles($direction, Order::Immediate, [first, second, result]);
                let conv_call = ConvCall::new(handle, $direction, tensors, convolution)?;
                conv_call.prepare(conv_call.solutions.solution(solution)?)
            })
        }

        /// Runs a solution.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the ABI's")]
        pub extern "C" fn $run(
            handle: Id,
            first: Id,
            first_data: Data,
            second: Id,
            second_data: Data,
            convolution: Id,
            result: Id,
            result_data: Data,
            workspace: Data,
            bytes: usize,
            solution: u64,
        ) -> Status {
            call(stringify!($run), || {
                let order = Order::Immediate;
                let tensors = roles($direction, order, [first, second, result]);
                let conv_call = ConvCall::new(handle, $direction, tensors, convolution)?;
                let found = conv_call.solutions.by_solution(solution, given(workspace, bytes))?;
                let data = roles($direction, order, [first_data, second_data, result_data]);
                conv_call.run(found, data, [1.0, 0.0], workspace)
            })
        }
    };
}

pass!(
    Direction::Forward,
    miopenConvolutionForwardGetSolutionCount,
    miopenConvolutionForwardGetSolution,
    miopenConvolutionForwardGetSolutionWorkspaceSize,
    miopenConvolutionForwardCompileSolution,
    miopenConvolutionForwardImmediate
);
pass!(
    Direction::BackwardData,
    miopenConvolutionBackwardDataGetSolutionCount,
    miopenConvolutionBackwardDataGetSolution,
    miopenConvolutionBackwardDataGetSolutionWorkspaceSize,
    miopenConvolutionBackwardDataCompileSolution,
    miopenConvolutionBackwardDataImmediate
);
pass!(
    Direction::BackwardWeights,
    miopenConvolutionBackwardWeightsGetSolutionCount,
    miopenConvolutionBackwardWeightsGetSolution,
    miopenConvolutionBackwardWeightsGetSolutionWorkspaceSize,
    miopenConvolutionBackwardWeightsCompileSolution,
    miopenConvolutionBackwardWeightsImmediate
);
