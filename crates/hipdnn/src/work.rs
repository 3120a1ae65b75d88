//! Handles, and execution contexts: a graph's plan, ready to run.

use crate::entry::{Failure, Outcome};
use crate::graph::Pattern;
use wave32_miopen::conv_call::{launch, ours};
use wave32_miopen::ffi::Data;
use wave32_miopen::handle::Handle;
use wave32_miopen::objects::Object;
use wave32_miopen::solutions::{Solution, Solutions};
use wave32_ops::ConvChain;

/// What `hipdnnEnginePluginCreate` makes.
#[derive(Debug)]
pub struct Plugin(pub Handle);

impl Object for Plugin {
    const KIND: &'static str = "hipDNN plugin handle";
}

/// What `hipdnnEnginePluginCreateExecutionContext` makes. It may run on every handle of its card.
#[derive(Debug)]
pub struct Context {
    pattern: Pattern,
    solutions: Solutions,
    solution: Solution,
    device: usize,
}

impl Object for Context {
    const KIND: &'static str = "hipDNN execution context";
}

/// `hipdnnPluginDeviceBuffer_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DeviceBuffer {
    /// The tensor's number in the graph.
    pub uid: i64,
    /// Where it is.
    pub data: Data,
}

/// The solutions of a graph's convolution, and the fastest. Uses neither stream nor memory.
///
/// # Errors
/// Not implemented, where no solver takes it; not initialized, where the card cannot be used.
pub fn choose(handle: &Handle, pattern: &Pattern) -> Outcome<(Solutions, Solution)> {
    let (_, solutions) = ours(handle, &pattern.bound, pattern.post_ops(0)?)?;
    let fastest = solutions.each_solver().first().map(|&solution| solution.clone());
    Ok((solutions, fastest.ok_or_else(|| Failure::absent("this convolution"))?))
}

impl Context {
    /// Chooses what runs, and loads its kernels.
    ///
    /// # Errors
    /// As [`choose`].
    pub fn new(handle: &Handle, pattern: Pattern) -> Outcome<Self> {
        let (solutions, solution) = choose(handle, &pattern)?;
        handle.prepare(&solution.plan)?;
        Ok(Self { pattern, solutions, solution, device: handle.device() })
    }

    /// Bytes of workspace.
    pub fn workspace(&self) -> u64 {
        self.solution.workspace()
    }

    /// Launches the plan on the handle's stream. Launches nothing where an argument is wrong.
    ///
    /// # Errors
    /// Bad parameter: a buffer that is not there, or no memory of the card; no workspace where one is needed; a handle of
    /// another card. The card's.
    pub fn run(&self, handle: &Handle, buffers: &[DeviceBuffer], workspace: Data) -> Outcome {
        if handle.device() != self.device {
            let text = format!("a context of card {} on a handle of card {}", self.device, handle.device());
            return Err(Failure::bad(text));
        }
        let at = |uid: i64| match buffers.iter().find(|buffer| buffer.uid == uid) {
            Some(DeviceBuffer { data: 0, .. }) => {
                Err(Failure::bad(format!("the buffer of tensor {uid} is null")))
            }
            Some(buffer) => Ok(buffer.data),
            None => Err(Failure::bad(format!("no buffer for tensor {uid}"))),
        };
        let Pattern { bound, uids, bias, .. } = &self.pattern;
        let views = bound.views([at(uids[0])?, at(uids[1])?, at(uids[2])?])?;
        let bias = bias.map_or(Ok(0), at)?;
        if self.workspace() > 0 && workspace == 0 {
            let text = format!("workspace is null, {} bytes are needed", self.workspace());
            return Err(Failure::bad(text));
        }
        let chain = ConvChain::new(bound.problem.clone(), self.pattern.post_ops(bias)?);
        handle.run(|engine| launch(engine, &chain, &self.solutions, &self.solution, &views, workspace))
    }
}
