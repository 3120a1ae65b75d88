//! What a scan found, as plain data. Paths are as seen inside the root.

use serde::Serialize;
use std::collections::BTreeMap;
use wave32_cards::sysfs::{AMD, KfdNode};
use wave32_cards::targets;

/// Everything known of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// True for the running machine, false for a recorded tree.
    pub live: bool,
    /// System, kernel, memory.
    pub host: Host,
    /// Whether the PCI bus is listed at all: a mounted disk has no /sys.
    pub pci_listed: bool,
    /// GPUs by PCI address.
    pub gpus: Vec<Gpu>,
    /// The compute driver's view.
    pub kfd: Kfd,
    /// The kernel module.
    pub driver: Driver,
    /// `/dev/kfd`, render nodes, and WSL's `/dev/dxg`.
    pub devices: Vec<Device>,
    /// Whose permissions count.
    pub user: User,
    /// What the kernel said of the GPU.
    pub log: Log,
    /// ROCm installations, side by side.
    pub rocm: Vec<Rocm>,
    /// Libraries that ROCm's packages have and this machine has not.
    pub missing: Vec<Missing>,
    /// PyTorch installations.
    pub torches: Vec<Torch>,
    /// Vulkan loader and drivers.
    pub vulkan: Vulkan,
    /// Variables that such software reads, set now or by files.
    pub variables: Vec<Variable>,
    /// wave32's own libraries that every program loads, by LD_PRELOAD or `/etc/ld.so.preload`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preloaded: Vec<Preloaded>,
    /// wave32's own libraries for ROCm that lie beside the command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own_libraries: Vec<String>,
    /// What earlier attempts left behind.
    pub leftovers: Vec<Leftover>,
    /// What could not be read, and why.
    pub gaps: Vec<String>,
}

impl Facts {
    /// Targets of the AMD cards here, each once and in their order. Graphics inside the processor count only where there is
    /// nothing else: nobody buys a card to compute beside it.
    pub fn cards(&self) -> Vec<&str> {
        let mut cards: Vec<&str> = self.gpus.iter().filter_map(|g| g.target.as_deref()).collect();
        if cards.iter().any(|card| !targets::is_integrated(card)) {
            cards.retain(|card| !targets::is_integrated(card));
        }
        let mut seen = Vec::new();
        cards.retain(|card| {
            !seen.contains(card) && {
                seen.push(*card);
                true
            }
        });
        cards
    }

    /// Where a PyTorch finds HIP: in its own wheel, in TheRock's wheels beside it, or in the system.
    pub(crate) fn loads(&self, torch: &Torch) -> Option<&Rocm> {
        let site = torch.path.rsplit_once('/').map_or("", |(site, _)| site);
        let own = self.rocm.iter().find(|r| match r.kind {
            "torch" => r.path == torch.path && r.library("hip").is_some(),
            "wheel" => r.path.starts_with(site) && torch.version.contains("rocm"),
            _ => false,
        });
        let system = |kind| self.rocm.iter().find(move |r| r.kind == kind && r.library("hip").is_some());
        own.or_else(|| system("opt")).or_else(|| system("distribution"))
    }
}

/// System, kernel, memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Host {
    /// `PRETTY_NAME` of os-release.
    pub system: Option<String>,
    /// `ID` and `ID_LIKE` of os-release.
    pub like: Vec<String>,
    /// `VERSION_ID` of os-release.
    pub version: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// What says that this is a container.
    pub container: Option<String>,
    /// Windows's subsystem for Linux, if this is it.
    pub wsl: Option<Wsl>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Free bytes where a build would go.
    pub free_bytes: Option<u64>,
}

/// What Windows's subsystem for Linux lends of the GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Wsl {
    /// What says that this is WSL: the kernel's name for itself.
    pub kernel: String,
    /// Whether `/dev/dxg` is there, through which everything reaches Windows's GPUs.
    pub dxg: bool,
    /// Whether Windows's libraries for it are in `/usr/lib/wsl/lib`.
    pub libraries: bool,
    /// What ROCm would reach it with: the library librocdxg, or the package of older versions.
    pub rocm: Option<String>,
}

/// A GPU on the PCI bus.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// PCI address.
    pub address: String,
    /// PCI vendor.
    pub vendor: u16,
    /// PCI device.
    pub device: u16,
    /// PCI revision.
    pub revision: u8,
    /// Marketing name, from libdrm's table on that machine or a short one of ours.
    pub name: String,
    /// True target, for AMD cards that are known.
    pub target: Option<String>,
    /// What told the target: `ip_discovery`, `pci` or `kfd`.
    pub target_from: Option<&'static str>,
    /// Kernel driver bound to it.
    pub driver: Option<String>,
    /// Bytes of its memory.
    pub vram_bytes: Option<u64>,
    /// Version of the compute microcode.
    pub firmware: Option<String>,
    /// Its render node.
    pub render_node: Option<String>,
}

impl Gpu {
    /// True for AMD.
    pub fn is_amd(&self) -> bool {
        self.vendor == AMD
    }
}

/// The compute driver's view.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Kfd {
    /// True if the kernel has its topology.
    pub present: bool,
    /// GPUs in it.
    pub nodes: Vec<KfdNode>,
}

/// The amdgpu kernel module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Driver {
    /// True if it is loaded or built in.
    pub loaded: bool,
    /// Version of a module that is not the kernel's own.
    pub version: Option<String>,
    /// Of the loaded module.
    pub srcversion: Option<String>,
    /// Of the module file that would be loaded, where it can be read.
    pub file_srcversion: Option<String>,
    /// The kernel's taint letters for the module: O is out of tree, E unsigned.
    pub taint: Option<String>,
    /// The file of the module that would be loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<ModuleFile>,
    /// DKMS trees of amdgpu.
    pub dkms: Vec<String>,
    /// Whether they are those of the package amdgpu-dkms; none if there are none, or no package manager's records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dkms_packaged: Option<bool>,
    /// Files of the compute driver's sources that are not as their package has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_sources: Vec<String>,
    /// Parameters that bear on compute.
    pub parameters: BTreeMap<String, String>,
}

/// A file of a kernel module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ModuleFile {
    /// Its path.
    pub path: String,
    /// Whether a package has it; none where that could not be asked.
    pub owned: Option<bool>,
    /// Which.
    pub package: Option<String>,
    /// Whether it is as the package has it; none if nobody could tell.
    pub intact: Option<bool>,
    /// It is loaded in the place of the kernel's own file, which is there too.
    pub over: bool,
}

impl ModuleFile {
    /// DKMS put it there (Debian's `updates/dkms`, others' `extra`, always with a tree of DKMS's).
    pub fn is_of_dkms(&self) -> bool {
        ["/updates/", "/extra/"].iter().any(|place| self.path.contains(place))
    }
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Path.
    pub path: String,
    /// Permissions, octal.
    pub mode: String,
    /// Name or number of its group.
    pub group: String,
    /// Whether the user may read and write it.
    pub usable: Option<bool>,
}

/// Whose permissions count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct User {
    /// Name or number.
    pub name: Option<String>,
    /// Names or numbers of groups of this process.
    pub groups: Vec<String>,
    /// Groups that the user is a member of by `/etc/group`, this process not: a new login is needed.
    pub after_login: Vec<String>,
}

/// What the kernel said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Log {
    /// Where it was read; none if nowhere.
    pub source: Option<String>,
    /// Lines that matter, the latest of each kind.
    pub events: Vec<Event>,
}

/// A kind of line in the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// `preemption`, `ring-timeout`, `reset`, `atomics`, `page-fault` or `firmware`.
    pub kind: &'static str,
    /// How often.
    pub count: usize,
    /// The latest such line.
    pub line: String,
}

/// A ROCm installation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Rocm {
    /// Its folder.
    pub path: String,
    /// `opt`, `distribution`, `wheel` or `torch` (inside a PyTorch wheel).
    pub kind: &'static str,
    /// Version, e.g. 5.7.1.
    pub version: Option<String>,
    /// Libraries that matter.
    pub libraries: Vec<Library>,
}

impl Rocm {
    /// The library of that short name (`miopen`, `rocblas`, `hip`, `hsa`).
    pub fn library(&self, name: &str) -> Option<&Library> {
        self.libraries.iter().find(|l| l.name == name)
    }

    /// The MIOpen that is the vendor's, not wave32's in its place.
    pub fn vendors_miopen(&self) -> Option<&Library> {
        self.library("miopen").filter(|library| library.ours.is_none())
    }

    /// Major version.
    pub fn major(&self) -> Option<u32> {
        major(self.version.as_deref()?)
    }
}

/// The number before the first point.
pub fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

/// A library of ROCm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Library {
    /// `hip`, `hsa`, `miopen` or `rocblas`.
    pub name: &'static str,
    /// Path, links followed.
    pub path: String,
    /// Version, where its name or its CMake file tells.
    pub version: Option<String>,
    /// Targets it has code or, for MIOpen, tuning databases for.
    pub targets: Vec<String>,
    /// False where reading stopped early.
    pub complete: bool,
    /// The package it belongs to.
    pub package: Option<String>,
    /// Whether it is as its package has it; none if there is no package or the file was not summed up.
    pub intact: Option<bool>,
    /// wave32's own, in the vendor's place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours: Option<wave32_host::own::Own>,
}

/// A library of wave32's that is preloaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preloaded {
    /// Its path.
    pub path: String,
    /// What names it.
    pub place: String,
    /// Which it is.
    pub own: wave32_host::own::Own,
}

/// A file that was installed and is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Its path.
    pub path: String,
    /// The package that has it.
    pub package: String,
}

/// A PyTorch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Torch {
    /// The folder `torch`.
    pub path: String,
    /// What leads there: `virtual environment`, `conda`, `--python`, `system`, `user`.
    pub reach: &'static str,
    /// Python's version, from the folder's name.
    pub python: Option<String>,
    /// Version.
    pub version: String,
    /// HIP version it was built for.
    pub hip: Option<String>,
    /// CUDA version it was built for.
    pub cuda: Option<String>,
    /// Targets it has kernels for.
    pub targets: Vec<String>,
    /// False where reading stopped early.
    pub complete: bool,
}

/// Vulkan loader and drivers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Vulkan {
    /// The loader's library.
    pub loader: Option<String>,
    /// A loader that is a link to nowhere.
    pub dangling_loader: Option<String>,
    /// Driver manifests the loader would read.
    pub manifests: Vec<Manifest>,
    /// Devices as the loader lists them; none where it was not asked (a recorded tree).
    pub devices: Option<Vec<VulkanDevice>>,
    /// Why asking failed.
    pub failure: Option<String>,
}

/// A driver's manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Manifest {
    /// The JSON file.
    pub path: String,
    /// The library it names.
    pub library: Option<String>,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// A device of the loader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VulkanDevice {
    /// Name.
    pub name: String,
    /// `discrete`, `integrated`, `virtual`, `cpu` or `other`.
    pub kind: String,
    /// Driver.
    pub driver: String,
    /// Why it cannot be used.
    pub unusable: Option<String>,
}

impl VulkanDevice {
    /// True for drivers that compute on the CPU.
    pub fn is_software(&self) -> bool {
        self.kind == "cpu"
    }
}

/// An environment variable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// Value in this process.
    pub now: Option<String>,
    /// Files that set it, read as text.
    pub origins: Vec<Origin>,
    /// Whether the MIOpen found looks this name up; none for other names, or without a MIOpen.
    pub known: Option<bool>,
}

impl Variable {
    /// Its values, the present one first, each with where it is from.
    pub fn settings(&self) -> impl Iterator<Item = (&str, Option<&Origin>)> {
        let now = self.now.as_deref().map(|value| (value, None));
        now.into_iter().chain(self.origins.iter().map(|o| (o.value.as_str(), Some(o))))
    }
}

/// A line that sets a variable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// The value as written.
    pub value: String,
    /// The whole line.
    pub text: String,
    /// Whether the line does nothing else.
    pub alone: bool,
}

/// Something an earlier attempt left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Kind.
    pub kind: LeftoverKind,
    /// The file or folder.
    pub path: String,
    /// What gives it away.
    pub evidence: String,
}

/// Kinds of leftovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftoverKind {
    /// A ROCm library that is not its package's.
    PatchedLibrary,
    /// A copy put beside a library before it was replaced.
    Backup,
    /// A build of one ROCm library in a folder of its own.
    SideInstall,
    /// A library that is loaded into every program and defines HIP's functions.
    Preload,
    /// A MIOpen database of one target under another's name.
    LinkedDatabase,
    /// A MIOpen cache for a target or version that is not here.
    StaleCache,
    /// An amdgpu module that is not the kernel's.
    KernelModule,
    /// Sources of the compute driver that are not their package's.
    DriverSources,
    /// A change of ours that was interrupted.
    HalfApplied,
}
