//! [`wave32_device::Queue`] over Vulkan 1.2 and newer: RADV, AMD's own drivers, NVIDIA, Intel, lavapipe.
//!
//! [`list`] says what is here, [`open`] opens one. libvulkan is loaded then, not linked, and nothing
//! happens before: a machine without Vulkan gets [`DeviceError::Unavailable`] with advice.
//!
//! This crate is a shell around the driver and holds unsafe code. The caller of a [`VulkanQueue`] is trusted
//! with nothing that could make a driver misbehave: handles, ranges, alignments, grids and kernels'
//! requirements are checked here, on every call. Kernels themselves are trusted ([`KernelSource`]).
//!
//! One queue, one thread at a time (`&mut self`). Every wait has a deadline.
//! After [`DeviceError::Timeout`] or [`DeviceError::Lost`] every later call fails; drop the device and
//! open it anew. Open devices after forking, not before.

mod adapter;
mod cache;
#[cfg(all(test, target_os = "linux"))]
mod cache_faults;
mod caps;
mod commands;
mod copies;
mod dot;
mod error;
mod gpu;
mod instance;
mod kernels;
mod memory;
mod pipelines;
mod queue;
mod submits;

pub use copies::{Copies, Direction, PIECE, Region};
pub use instance::validation_available;
pub use kernels::{Kernel, KernelSource, Shipped};
pub use queue::{Counts, GraphId, HeapStats, Profiled, VulkanQueue};
pub use wave32_device::Listed;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wave32_device::DeviceError;

/// How to open a device. The default suits every use but tests.
#[derive(Clone)]
pub struct Options {
    /// Folder of the pipeline cache; `None` is `$XDG_CACHE_HOME/wave32` or `~/.cache/wave32`.
    pub cache_dir: Option<PathBuf>,
    /// Load the Khronos validation layer and collect what it says
    /// ([`VulkanQueue::validation_messages`]). Slow.
    pub validation: bool,
    /// Let the driver bound every buffer access, where it can: for debugging kernels.
    pub robust: bool,
    /// Most bytes that all buffers together may have.
    pub memory_cap: Option<u64>,
    /// GPU time that one submit should stay under, instead of [`wave32_device::Budget::TARGET`].
    pub submit_target: Option<Duration>,
    /// Where kernels come from: [`Shipped`].
    pub kernels: Arc<dyn KernelSource>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_dir: None,
            validation: false,
            robust: false,
            memory_cap: None,
            submit_target: None,
            kernels: Arc::new(Shipped),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("cache_dir", &self.cache_dir)
            .field("validation", &self.validation)
            .field("robust", &self.robust)
            .field("memory_cap", &self.memory_cap)
            .field("submit_target", &self.submit_target)
            .finish_non_exhaustive()
    }
}

/// Every device that Vulkan drivers offer here, usable or not, in the loader's order.
///
/// # Errors
/// `Unavailable` where there is no loader or no driver; `Driver`.
pub fn list() -> Result<Vec<Listed>, DeviceError> {
    let instance = instance::Instance::new(false)?;
    let listed = adapter::all(&instance)?.into_iter().enumerate().map(|(index, adapter)| Listed {
        index,
        info: adapter.info,
        caps: adapter.caps,
        unusable: adapter.family.err(),
    });
    Ok(listed.collect())
}

/// Opens the device with that index of [`list`], or the best: discrete before integrated before virtual
/// before CPU, then the one with most memory.
///
/// # Errors
/// `NotFound` for an index that no device has; `Unavailable` where Vulkan or the device cannot be used;
/// `Driver`.
pub fn open(selector: Option<usize>, options: Options) -> Result<VulkanQueue, DeviceError> {
    let (instance, mut adapter) = choose(selector, &options)?;
    adapter.caps.tuned = wave32_device::tuned::load(&adapter.info);
    VulkanQueue::new(instance, adapter, options)
}

fn choose(
    selector: Option<usize>,
    options: &Options,
) -> Result<(instance::Instance, adapter::Adapter), DeviceError> {
    let instance = instance::Instance::new(options.validation)?;
    let mut adapters = adapter::all(&instance)?;
    let index = match selector {
        Some(index) if index < adapters.len() => index,
        Some(index) => return Err(DeviceError::NotFound(format!("vulkan:{index}"))),
        None => {
            let usable = (0..adapters.len()).filter(|&index| adapters[index].family.is_ok());
            // The first of equals, so that the choice does not depend on how ties are broken.
            usable.rev().max_by_key(|&index| adapter::rank(&adapters[index].info)).ok_or_else(|| {
                let why = adapters
                    .iter()
                    .filter_map(|a| Some(format!("{}: {}", a.info.name, a.family.as_ref().err()?)));
                let why: Vec<String> = why.collect();
                DeviceError::Unavailable(match why.is_empty() {
                    true => {
                        "no Vulkan device is here; install a driver (Mesa's `mesa-vulkan-drivers`)".into()
                    }
                    false => format!("no Vulkan device can be used: {}", why.join("; ")),
                })
            })?
        }
    };
    Ok((instance, adapters.swap_remove(index)))
}
