//! Handles, and execution contexts: a graph's plan, ready to run.

use crate::entry::{Failure, Outcome};
use crate::graph::Wanted;
use wave32_miopen::ffi::Data;
use wave32_miopen::handle::Handle;
use wave32_miopen::objects::Object;
use wave32_miopen::offers::{Choice, Offer};
use wave32_miopen::pass::{launch, ours};
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
    wanted: Wanted,
    choice: Choice,
    offer: Offer,
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
pub fn choose(handle: &Handle, wanted: &Wanted) -> Outcome<(Choice, Offer)> {
    let (_, choice) = ours(handle, &wanted.posed, wanted.post_ops(0)?)?;
    let fastest = choice.solutions().first().map(|&offer| offer.clone());
    Ok((choice, fastest.ok_or_else(|| Failure::absent("this convolution"))?))
}

impl Context {
    /// Chooses what runs, and loads its kernels.
    ///
    /// # Errors
    /// As [`choose`].
    pub fn new(handle: &Handle, wanted: Wanted) -> Outcome<Self> {
        let (choice, offer) = choose(handle, &wanted)?;
        handle.prepare(&offer.plan)?;
        Ok(Self { wanted, choice, offer, device: handle.device() })
    }

    /// Bytes of workspace.
    pub fn workspace(&self) -> u64 {
        self.offer.workspace()
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
        let Wanted { posed, uids, bias, .. } = &self.wanted;
        let views = posed.views([at(uids[0])?, at(uids[1])?, at(uids[2])?])?;
        let bias = bias.map_or(Ok(0), at)?;
        if self.workspace() > 0 && workspace == 0 {
            let text = format!("workspace is null, {} bytes are needed", self.workspace());
            return Err(Failure::bad(text));
        }
        let chain = ConvChain::new(posed.problem.clone(), self.wanted.post_ops(bias)?);
        handle.run(|engine| launch(engine, &chain, &self.choice, &self.offer, &views, workspace))
    }
}
