//! [`wave32_device::Queue`] over AMD's HIP runtime, ROCm 5.2 to 7.
//!
//! [`list`] says what is here, [`open`] opens one. libamdhip64 is loaded then, not linked, and nothing
//! happens before: a machine without it gets [`DeviceError::Unavailable`] with advice. It stays loaded for the rest of
//! the process's life. Programs that must survive a driver that hangs or crashes while it is loaded call these in a
//! child process, as `wave32 verify` does.
//!
//! Kernels are the code objects of `wave32-kernels` for the card's own gfx target, found by what KFD and the PCI bus
//! say of it. A runtime that is told to take the card for another (HSA_OVERRIDE_GFX_VERSION) is refused, unless
//! WAVE32_ALLOW_SPOOF=1: then the code is that of the target the runtime claims, since it loads no other.
//!
//! This crate is a shell around the driver and holds unsafe code. The caller of a [`HipQueue`] is trusted with nothing
//! that could make a driver misbehave: handles, ranges, alignments and grids are checked here, on every call. Kernels
//! themselves are trusted ([`KernelSource`]).
//!
//! One stream, one thread at a time (`&mut self`). Every wait has a deadline: the runtime's own waits have none, so
//! events are asked instead. After [`DeviceError::Timeout`] or [`DeviceError::Lost`] every later call fails; what such
//! a device holds is leaked, and the process should end. Open devices after forking, not before. The calling
//! thread's current HIP device is the same after each call as before.

mod adapter;
mod caller;
mod ffi;
mod gpu;
mod kernels;
mod memory;
mod queue;
mod staging;

pub use ffi::arch;
pub use kernels::{Kernel, KernelSource, Shipped};
pub use queue::HipQueue;
pub use wave32_device::Listed;

use adapter::Adapter;
use ffi::Api;
use gpu::Gpu;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wave32_device::{Budget, DeviceError};

/// A `hipStream_t` of the caller's.
#[derive(Debug, Clone, Copy)]
pub struct RawStream(ffi::Pointer);

impl RawStream {
    /// # Safety
    /// `stream` is a stream of the device that is opened with it (null is the null stream), made by the same runtime,
    /// and lives until nothing is put on it any more.
    pub unsafe fn new(stream: *mut c_void) -> Self {
        Self(stream)
    }
}

/// How to open a device. The default suits every use but tests and drop-ins.
#[derive(Clone)]
pub struct Options {
    /// The runtime's file; `None` is `WAVE32_HIP_LIBRARY`, else the one that the process has loaded, else the newest.
    pub library: Option<PathBuf>,
    /// Launch on this stream rather than on one of our own.
    pub stream: Option<RawStream>,
    /// Go on where the runtime takes the card for another; `WAVE32_ALLOW_SPOOF=1` does the same.
    pub allow_spoof: bool,
    /// A queue takes memory of the caller's as well, which is looked up at the runtime.
    pub foreign_memory: bool,
    /// Each block is an allocation of its own, not a part of a larger one: for a card, or a tool, that finds accesses
    /// beyond allocations. Slow.
    pub separate_blocks: bool,
    /// Most bytes that all buffers together may have.
    pub memory_cap: Option<u64>,
    /// Device time that launches in one go should stay under, instead of [`wave32_device::Budget::TARGET`].
    pub submit_target: Option<Duration>,
    /// Where kernels come from: [`Shipped`].
    pub kernels: Arc<dyn KernelSource>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            library: None,
            stream: None,
            allow_spoof: std::env::var_os("WAVE32_ALLOW_SPOOF").is_some_and(|value| value == "1"),
            foreign_memory: false,
            separate_blocks: false,
            memory_cap: None,
            submit_target: None,
            kernels: Arc::new(Shipped),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("library", &self.library)
            .field("stream", &self.stream)
            .field("allow_spoof", &self.allow_spoof)
            .field("foreign_memory", &self.foreign_memory)
            .field("separate_blocks", &self.separate_blocks)
            .field("memory_cap", &self.memory_cap)
            .field("submit_target", &self.submit_target)
            .finish_non_exhaustive()
    }
}

/// Every device that the HIP runtime offers here, usable or not, in its order.
///
/// # Errors
/// `Unavailable` where there is no runtime, or it sees no device; `Driver`.
pub fn list(options: &Options) -> Result<Vec<Listed>, DeviceError> {
    let api = Api::load(options.library.as_deref())?;
    let listed = adapter::all(&api, options)?.into_iter().enumerate().map(|(index, adapter)| Listed {
        index,
        info: adapter.info,
        caps: adapter.caps,
        unusable: adapter.unusable,
    });
    Ok(listed.collect())
}

/// Opens the device with that index of [`list`], or the best: discrete before integrated, then the one with most memory.
///
/// # Errors
/// `NotFound` for an index that no device has; `Unavailable` where HIP or the device cannot be used; `Driver`.
pub fn open(selector: Option<usize>, options: Options) -> Result<HipQueue, DeviceError> {
    let api = Api::load(options.library.as_deref())?;
    let mut adapter = choose(&api, selector, &options)?;
    adapter.caps.tuned = wave32_device::tuned::load(&adapter.info);
    let mut budget = Budget::new(&adapter.caps);
    if let Some(target) = options.submit_target {
        budget = budget.with_target(target);
    }
    let gpu = Gpu::new(api, adapter, options.stream)?;
    Ok(HipQueue::new(gpu, budget, options))
}

/// The calling thread's current device, an index of [`list`].
///
/// # Errors
/// As [`list`].
pub fn current_device(options: &Options) -> Result<usize, DeviceError> {
    let api = Api::load(options.library.as_deref())?;
    let mut index = 0;
    // SAFETY: writes one int.
    gpu::driver(&api, "hipGetDevice", unsafe { (api.get_device)(&mut index) })?;
    usize::try_from(index).map_err(|_| DeviceError::NotFound(format!("hip:{index}")))
}

fn choose(api: &Api, selector: Option<usize>, options: &Options) -> Result<Adapter, DeviceError> {
    let mut adapters = adapter::all(api, options)?;
    let index = match selector {
        Some(index) if index < adapters.len() => index,
        Some(index) => return Err(DeviceError::NotFound(format!("hip:{index}"))),
        None => {
            let usable = (0..adapters.len()).filter(|&index| adapters[index].unusable.is_none());
            // The first of equals, so that the choice does not depend on how ties are broken.
            let best = usable.rev().max_by_key(|&index| adapter::rank(&adapters[index].info));
            best.ok_or_else(|| {
                let why =
                    adapters.iter().filter_map(|a| Some(format!("{}: {}", a.info.id, a.unusable.as_ref()?)));
                let why: Vec<String> = why.collect();
                DeviceError::Unavailable(match why.is_empty() {
                    true => "the HIP runtime sees no device; `wave32 doctor` tells why".into(),
                    false => format!("no HIP device can be used: {}", why.join("; ")),
                })
            })?
        }
    };
    let adapter = adapters.swap_remove(index);
    match &adapter.unusable {
        Some(why) => Err(DeviceError::Unavailable(format!("{} cannot be used: {why}", adapter.info.id))),
        None => Ok(adapter),
    }
}
