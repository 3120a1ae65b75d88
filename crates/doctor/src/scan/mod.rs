//! Reads a machine into [`Facts`].

mod driver;
mod environment;
mod gpus;
mod host;
mod leftovers;
mod packages;
mod rocm;
mod torch;
mod vulkan;

use crate::facts::Facts;
use crate::system::System;
use std::time::Duration;

pub use driver::kernel_log;

/// Read of large files, and time for it: libraries of gigabytes cost megabytes, since only headers are read.
const LARGE_BYTES: u64 = 512 << 20;
const LARGE_TIME: Duration = Duration::from_millis(1200);

/// What to look at beyond the usual.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Python interpreters whose packages to read.
    pub python: Vec<String>,
    /// Sum up and read everything, however long it takes.
    pub thorough: bool,
}

/// The true target of the card at a PCI address (`0000:03:00.0`), and which witness says so; see [`targets`].
///
/// [`targets`]: crate::targets
pub fn target_at(system: &System, address: &str) -> Option<(String, &'static str)> {
    let kfd = driver::kfd(system);
    let on_bus = gpus::gpus(system, &kfd).into_iter().find(|gpu| gpu.address == address);
    let on_bus = on_bus.and_then(|gpu| Some((gpu.target?, gpu.target_from?)));
    // A container may show KFD's nodes and hide the bus.
    let node = kfd.nodes.into_iter().find(|node| node.address == address);
    on_bus.or_else(|| Some((node?.target?, "kfd")))
}

fn start(system: &System, options: &Options) -> Facts {
    if options.thorough {
        system.limit(u64::MAX, Duration::from_secs(600));
    } else {
        system.limit(LARGE_BYTES, LARGE_TIME);
    }
    Facts { live: system.live, ..Facts::default() }
}

fn read_cards(system: &System, facts: &mut Facts) {
    facts.kfd = driver::kfd(system);
    facts.pci_listed = system.is_dir(gpus::PCI);
    facts.gpus = gpus::gpus(system, &facts.kfd);
}

fn read_software(system: &System, options: &Options, facts: &mut Facts) {
    facts.torches = torch::torches(system, &options.python);
    facts.rocm = rocm::installs(system, &facts.torches);
}

/// Reads the cards, PyTorches and ROCm installations alone: what an environment depends on.
pub fn stack(system: &System) -> Facts {
    let options = Options::default();
    let mut facts = start(system, &options);
    read_cards(system, &mut facts);
    read_software(system, &options, &mut facts);
    facts
}

/// Reads everything but what drivers have to be asked for.
pub fn scan(system: &System, options: &Options) -> Facts {
    let mut facts = start(system, options);
    facts.host = host::host(system);
    facts.user = host::user(system);
    read_cards(system, &mut facts);
    facts.driver = driver::driver(system, facts.host.kernel.as_deref());
    facts.devices = host::devices(system);
    facts.log = driver::log(system);
    read_software(system, options, &mut facts);
    facts.vulkan = vulkan::vulkan(system);
    facts.variables = environment::variables(system);
    environment::check_names(system, &facts.rocm, &mut facts.variables);
    packages::check(system, &mut facts.rocm, &mut facts.gaps, options.thorough);
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
    if facts.log.source.is_none() {
        facts.gaps.push("the kernel's log is not readable; `sudo wave32 doctor` reads it".into());
    }
    facts
}
