//! Reads a machine into [`Facts`].

mod driver;
mod environment;
mod gpus;
mod host;
mod leftovers;
mod log;
mod module;
mod modules;
mod packages;
mod rocm;
mod rpm;
mod torch;
mod vulkan;

use crate::facts::Facts;
use crate::system::System;
use std::time::Duration;

pub use log::text as kernel_log;
pub(crate) use rocm::miopen_in;

/// Read of large files, and time for it: libraries of gigabytes cost megabytes, since only headers are read.
const LARGE_BYTES: u64 = 512 << 20;
const LARGE_TIME: Duration = Duration::from_millis(1200);
/// Larger files are compared with their package only where the user takes the time.
const QUICK: u64 = 64 << 20;

/// What to look at beyond the usual.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Python interpreters whose packages to read.
    pub python: Vec<String>,
    /// Sum up and read everything, however long it takes.
    pub thorough: bool,
}

/// Reads everything but what drivers have to be asked for. On a live machine its package manager and its journal are asked.
pub fn scan(system: &System, options: &Options) -> Facts {
    let mut facts = stack(system, options);
    facts.user = host::user(system);
    facts.driver = driver::driver(system, facts.host.kernel.as_deref(), &mut facts.gaps);
    facts.devices = host::devices(system);
    facts.log = log::log(system, &mut facts.gaps);
    if let Some(wsl) = &mut facts.host.wsl {
        wsl.rocm = host::rocm_for_wsl(system, &facts.rocm);
    }
    facts.vulkan = vulkan::vulkan(system);
    facts.variables = environment::variables(system);
    environment::check_names(system, &facts.rocm, &mut facts.variables);
    facts.missing = packages::check(system, &mut facts.rocm, &mut facts.gaps, options.thorough);
    facts.driver.changed_sources = packages::changed_sources(system, &mut facts.gaps, options.thorough);
    facts.preloaded = leftovers::preloaded(system, &facts);
    facts.leftovers = leftovers::leftovers(system, &facts);
    for library in facts.rocm.iter().flat_map(|r| &r.libraries).filter(|l| !l.complete) {
        facts.gaps.push(format!("{}: not read to its end; --thorough takes the time", library.path));
    }
    for torch in facts.torches.iter().filter(|t| !t.complete) {
        facts.gaps.push(format!("{}: not read to its end; --thorough takes the time", torch.path));
    }
    if !options.python.is_empty() && !facts.torches.iter().any(|t| t.reach == "--python") {
        facts.gaps.push(format!("--python {}: no PyTorch there", options.python.join(", ")));
    }
    facts
}

/// Reads cards, ROCm and PyTorch alone: what an environment or a build is made for.
pub fn stack(system: &System, options: &Options) -> Facts {
    if options.thorough {
        system.limit(u64::MAX, Duration::from_secs(600));
    } else {
        system.limit(LARGE_BYTES, LARGE_TIME);
    }
    let mut facts = Facts { live: system.live, ..Facts::default() };
    facts.host = host::host(system);
    facts.kfd = driver::kfd(system);
    facts.pci_listed = system.is_dir(wave32_cards::sysfs::PCI);
    facts.gpus = gpus::gpus(system, &facts.kfd);
    facts.torches = torch::torches(system, &options.python);
    facts.rocm = rocm::installs(system, &facts.torches);
    facts
}

/// A file of the compute driver's sources.
fn is_compute_source(path: &str) -> bool {
    path.contains("/amdkfd/") || path.contains("/amdgpu_amdkfd")
}
