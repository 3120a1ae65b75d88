//! Find 2.0: problems, options, and solutions that can be kept and run. Problems are convolutions; others are refused.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Data, DataType, Id, In, Out, Status, status};
use crate::abi::handle::Handle;
use crate::abi::slot::{self, DescriptorValue};
use crate::conv::bound_conv::BoundConv;
use crate::conv::conv_call::{given, launch, ours};
use crate::conv::convolution::{Convolution, MAX_SPATIAL, convolution};
use crate::conv::solutions::{Solution, algorithm_of};
use crate::layers::tensor::{Tensor, tensor_of};
use std::ffi::{c_int, c_uint};
use wave32_problem::Direction;

/// x, w, y by their `miopenTensorArgumentId_t`, which counts from 1.
type Tensors = [Option<Tensor>; 3];

/// What a problem poses.
#[derive(Debug, Clone)]
struct Problem {
    convolution: Convolution,
    direction: Direction,
    tensors: Tensors,
}

impl DescriptorValue for Problem {
    const KIND: &'static str = "problem";
}

/// How to find.
#[derive(Debug, Clone, Copy)]
struct Options {
    by_workspace: bool,
    workspace_limit: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { by_workspace: false, workspace_limit: u64::MAX }
    }
}

impl DescriptorValue for Options {
    const KIND: &'static str = "find options object";
}

/// A solver for a problem.
#[derive(Debug, Clone)]
struct SavedSolution {
    convolution: Convolution,
    direction: Direction,
    tensors: [Tensor; 3],
    solver: u64,
    workspace: u64,
    milliseconds: f32,
}

impl DescriptorValue for SavedSolution {
    const KIND: &'static str = "solution";
}

/// `miopenTensorArgument_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    id: c_uint,
    /// Where a descriptor is that replaces the problem's; may be null.
    descriptor: In<Id>,
    buffer: Data,
}

/// Which of x, w, y an argument is.
fn role(id: c_uint) -> Outcome<usize> {
    match id {
        1..=3 => Ok(id as usize - 1),
        _ => Err(Failure::bad(format!("tensor argument {id} is none of a convolution's (1 x, 2 w, 3 y)"))),
    }
}

fn direction(value: c_int) -> Outcome<Direction> {
    match value {
        0 => Ok(Direction::Forward),
        1 => Ok(Direction::BackwardData),
        2 => Ok(Direction::BackwardWeights),
        _ => Err(Failure::bad(format!("{value} is no direction of a convolution"))),
    }
}

impl Problem {
    fn tensors(&self) -> Outcome<[Tensor; 3]> {
        let set = |at: usize, name: &str| {
            self.tensors[at].ok_or_else(|| Failure::bad(format!("the problem's {name} was never set")))
        };
        Ok([set(0, "x")?, set(1, "w")?, set(2, "y")?])
    }
}

/// "w32sol" and the version of what follows.
const MAGIC: u64 = 0x0001_6c6f_7332_3377;

impl SavedSolution {
    fn numbers(&self) -> Vec<u64> {
        let c = &self.convolution;
        let direction = match self.direction {
            Direction::Forward => 0,
            Direction::BackwardData => 1,
            Direction::BackwardWeights => 2,
        };
        let mut all =
            vec![MAGIC, direction, self.solver, self.workspace, u64::from(self.milliseconds.to_bits())];
        all.extend([c.spatial as u64, u64::from(c.transposed), c.groups as u64]);
        let arrays = [&c.pads, &c.strides, &c.dilations, &c.output_pads];
        all.extend(arrays.into_iter().flatten().map(|&value| value as u64));
        for tensor in &self.tensors {
            all.extend([tensor.dtype as u64, tensor.sizes().len() as u64]);
            all.extend(tensor.sizes().iter().chain(tensor.strides()));
        }
        all
    }

    fn from_numbers(numbers: &[u64]) -> Outcome<Self> {
        let bad = || Failure::new(status::INVALID_VALUE, "no solution that this library has saved");
        let mut rest = numbers.iter().copied();
        let mut next = || rest.next().ok_or_else(bad);
        if next()? != MAGIC {
            return Err(bad());
        }
        let direction = direction(next()? as c_int)?;
        let (solver, workspace) = (next()?, next()?);
        let milliseconds = f32::from_bits(next()? as u32);
        let mut convolution = Convolution::default();
        convolution.spatial = next()? as usize;
        if !(1..=MAX_SPATIAL).contains(&convolution.spatial) {
            return Err(bad());
        }
        (convolution.transposed, convolution.groups) = (next()? != 0, next()? as i64);
        let c = &mut convolution;
        for array in [&mut c.pads, &mut c.strides, &mut c.dilations, &mut c.output_pads] {
            for value in array {
                *value = next()? as i64;
            }
        }
        let mut tensor = || {
            let dtype = DataType::from_c(next()? as c_int)?;
            let rank = next()? as usize;
            if rank > wave32_ops::MAX_DIMS {
                return Err(bad());
            }
            let mut values =
                || (0..rank).map(|_| next().map(|value| value as i64)).collect::<Outcome<Vec<_>>>();
            Tensor::new(dtype, &values()?, &values()?)
        };
        let tensors = [tensor()?, tensor()?, tensor()?];
        Ok(Self { convolution, direction, tensors, solver, workspace, milliseconds })
    }

    fn run(&self, handle: &Handle, arguments: &[Argument], workspace: Data, bytes: usize) -> Outcome {
        let (mut tensors, mut data) = (self.tensors, [0; 3]);
        for argument in arguments {
            let at = role(argument.id)?;
            data[at] = argument.buffer;
            if !argument.descriptor.is_null() {
                tensors[at] = tensor_of(argument.descriptor.get("descriptor")?, "descriptor")?;
            }
        }
        let [x, w, y] = &tensors;
        let bound = BoundConv::new(self.direction, &self.convolution, x, w, y)?;
        let views = bound.views(data)?;
        let (chain, all) = ours(handle, &bound, Vec::new())?;
        let solution = all.by_solution(self.solver, given(workspace, bytes))?;
        handle.run(|engine| launch(engine, &chain, &all, solution, &views, workspace))
    }
}

/// Poses a convolution.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateConvProblem(problem: Out<Id>, conv: Id, way: c_int) -> Status {
    call("miopenCreateConvProblem", || {
        let (convolution, direction) = (convolution(conv)?, direction(way)?);
        slot::create(&problem, Some(Problem { convolution, direction, tensors: [None; 3] }))
    })
}

/// Destroys a problem.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroyProblem(problem: Id) -> Status {
    call("miopenDestroyProblem", || slot::destroy::<Problem>(problem))
}

/// Says what x, w or y is like.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetProblemTensorDescriptor(problem: Id, id: c_uint, descriptor: Id) -> Status {
    call("miopenSetProblemTensorDescriptor", || {
        let tensor = tensor_of(descriptor, "descriptor")?;
        slot::change(problem, |problem: &mut Problem| {
            problem.tensors[role(id)?] = Some(tensor);
            Ok(())
        })
    })
}

/// Creates options: the fastest first, any workspace.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateFindOptions(options: Out<Id>) -> Status {
    call("miopenCreateFindOptions", || slot::create(&options, Some(Options::default())))
}

/// Destroys options.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroyFindOptions(options: Id) -> Status {
    call("miopenDestroyFindOptions", || slot::destroy::<Options>(options))
}

/// Accepted: nothing is tuned.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetFindOptionTuning(options: Id, _value: c_int) -> Status {
    call("miopenSetFindOptionTuning", || slot::get::<Options>(options).map(drop))
}

/// Orders by time (0) or workspace (1).
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetFindOptionResultsOrder(options: Id, order: c_int) -> Status {
    call("miopenSetFindOptionResultsOrder", || {
        slot::change(options, |options: &mut Options| match order {
            0 | 1 => {
                options.by_workspace = order == 1;
                Ok(())
            }
            _ => Err(Failure::bad(format!("{order} is no order of results"))),
        })
    })
}

/// Leaves out what needs more.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetFindOptionWorkspaceLimit(options: Id, bytes: usize) -> Status {
    call("miopenSetFindOptionWorkspaceLimit", || {
        slot::change(options, |options: &mut Options| {
            options.workspace_limit = bytes as u64;
            Ok(())
        })
    })
}

/// Accepted: finding runs nothing, so it needs no memory.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetFindOptionPreallocatedWorkspace(
    options: Id,
    _buffer: Data,
    _bytes: usize,
) -> Status {
    call("miopenSetFindOptionPreallocatedWorkspace", || slot::get::<Options>(options).map(drop))
}

/// Accepted: as [`miopenSetFindOptionPreallocatedWorkspace`].
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetFindOptionPreallocatedTensor(options: Id, id: c_uint, _buffer: Data) -> Status {
    call("miopenSetFindOptionPreallocatedTensor", || {
        role(id)?;
        slot::get::<Options>(options).map(drop)
    })
}

/// Accepted: kernels are in this library.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetFindOptionAttachBinaries(options: Id, _attach: c_uint) -> Status {
    call("miopenSetFindOptionAttachBinaries", || slot::get::<Options>(options).map(drop))
}

/// The solvers for a problem, `most` at most. Nothing runs; times are modelled.
#[unsafe(no_mangle)]
pub extern "C" fn miopenFindSolutions(
    handle: Id,
    problem: Id,
    options: Id,
    solutions: Out<Id>,
    count: Out<usize>,
    most: usize,
) -> Status {
    call("miopenFindSolutions", || {
        let (handle, problem) = (Handle::of(handle)?, slot::get::<Problem>(problem)?);
        let options = if options == 0 { Options::default() } else { slot::get(options)? };
        solutions.check("solutions")?;
        let (convolution, direction) = (problem.convolution, problem.direction);
        let tensors @ [x, w, y] = problem.tensors()?;
        let (_, all) = ours(&handle, &BoundConv::new(direction, &convolution, &x, &w, &y)?, Vec::new())?;
        let mut ranked: Vec<&Solution> = all.within(options.workspace_limit);
        if options.by_workspace {
            ranked.sort_by_key(|solution| solution.workspace());
        }
        ranked.truncate(most);
        let made: Vec<Id> = ranked
            .iter()
            .map(|solution| {
                let (solver, workspace, milliseconds) =
                    (solution.id, solution.workspace(), solution.milliseconds);
                let found =
                    SavedSolution { convolution, direction, tensors, solver, workspace, milliseconds };
                slot::insert(Some(found))
            })
            .collect();
        solutions.set_all("solutions", &made)?;
        count.set_if_wanted(made.len());
        Ok(())
    })
}

/// Runs a solution; with less workspace than it names, the rest of its solver's plans that fit.
#[unsafe(no_mangle)]
pub extern "C" fn miopenRunSolution(
    handle: Id,
    solution: Id,
    count: usize,
    arguments: In<Argument>,
    workspace: Data,
    bytes: usize,
) -> Status {
    call("miopenRunSolution", || {
        let (handle, solution) = (Handle::of(handle)?, slot::get::<SavedSolution>(solution)?);
        if count > 16 {
            return Err(Failure::bad(format!("{count} tensors; a convolution has 3")));
        }
        solution.run(&handle, &arguments.get_all("tensors", count)?, workspace, bytes)
    })
}

/// Destroys a solution.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroySolution(solution: Id) -> Status {
    call("miopenDestroySolution", || slot::destroy::<SavedSolution>(solution))
}

/// Makes a solution of what [`miopenSaveSolution`] wrote.
#[unsafe(no_mangle)]
pub extern "C" fn miopenLoadSolution(solution: Out<Id>, data: In<u8>, bytes: usize) -> Status {
    call("miopenLoadSolution", || {
        let known = 8 * (8 + 4 * MAX_SPATIAL + 3 * (2 + 2 * wave32_ops::MAX_DIMS));
        let data = data.get_all("data", bytes.min(known))?;
        let numbers = data
            .chunks_exact(8)
            .map(|chunk| chunk.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte)));
        slot::create(&solution, Some(SavedSolution::from_numbers(&numbers.collect::<Vec<_>>())?))
    })
}

/// Writes as many bytes as [`miopenGetSolutionSize`] says.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSaveSolution(solution: Id, data: Out<u8>) -> Status {
    call("miopenSaveSolution", || {
        let numbers = slot::get::<SavedSolution>(solution)?.numbers();
        data.set_all("data", &numbers.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>())
    })
}

/// Bytes of a saved solution.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetSolutionSize(solution: Id, bytes: Out<usize>) -> Status {
    call("miopenGetSolutionSize", || {
        bytes.set("size", slot::get::<SavedSolution>(solution)?.numbers().len() * size_of::<u64>())
    })
}

/// Workspace bytes.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetSolutionWorkspaceSize(solution: Id, bytes: Out<usize>) -> Status {
    call("miopenGetSolutionWorkspaceSize", || {
        bytes.set("workspaceSize", slot::get::<SavedSolution>(solution)?.workspace as usize)
    })
}

/// Modelled milliseconds.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetSolutionTime(solution: Id, time: Out<f32>) -> Status {
    call("miopenGetSolutionTime", || time.set("time", slot::get::<SavedSolution>(solution)?.milliseconds))
}

/// The solver's number: that of Immediate mode.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetSolutionSolverId(solution: Id, solver: Out<u64>) -> Status {
    call("miopenGetSolutionSolverId", || solver.set("solverId", slot::get::<SavedSolution>(solution)?.solver))
}

/// The algorithm of a solver.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetSolverIdConvAlgorithm(solver: u64, algorithm: Out<c_int>) -> Status {
    call("miopenGetSolverIdConvAlgorithm", || algorithm.set("result", algorithm_of(solver)?))
}
