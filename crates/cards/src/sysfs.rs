//! What the kernel's files tell of the cards of a machine: this one's, or a recorded one's.

use crate::targets;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Read;

/// Folders of PCI devices, by address.
pub const PCI: &str = "/sys/bus/pci/devices";
/// Nodes of KFD's topology, by number.
pub const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";
/// AMD's PCI vendor id.
pub const AMD: u16 = 0x1002;
/// Bits of a link's flags: no PCIe atomics of 32 and of 64 bits (linux `include/uapi/linux/kfd_sysfs.h`).
const NO_ATOMICS: u64 = 1 << 2 | 1 << 3;

/// A machine's small files.
pub trait Files {
    /// A file's text; none where there is no regular file.
    fn text(&self, path: &str) -> Option<String>;

    /// The names in a folder, sorted; none in one that is not there.
    fn names(&self, folder: &str) -> Vec<String>;

    /// A file of one line, as sysfs has them; none where it is empty.
    fn attribute(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let line = text.trim();
        (!line.is_empty()).then(|| line.to_string())
    }

    /// A file of one hexadecimal number, with or without `0x`.
    fn hex<T: TryFrom<u64>>(&self, path: &str) -> Option<T>
    where
        Self: Sized,
    {
        let text = self.attribute(path)?;
        u64::from_str_radix(text.trim_start_matches("0x"), 16).ok().and_then(|n| T::try_from(n).ok())
    }
}

/// The files of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThisMachine;

impl Files for ThisMachine {
    fn text(&self, path: &str) -> Option<String> {
        // A FIFO would wait for its writer.
        std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        let mut bytes = Vec::new();
        std::fs::File::open(path).ok()?.take(1 << 20).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

/// A GPU in KFD's topology.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KfdNode {
    /// Number of the node.
    pub node: u32,
    /// PCI device.
    pub device: u16,
    /// PCI address.
    pub address: String,
    /// Reported target.
    pub target: Option<String>,
    /// Whether its link to the CPU carries atomics of 32 and 64 bits; none where no link is listed.
    pub atomics: Option<bool>,
}

/// Reads `name value` lines.
fn properties(files: &impl Files, path: &str) -> BTreeMap<String, u64> {
    let text = files.text(path).unwrap_or_default();
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_string(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// The GPUs of KFD's topology; none where the kernel has no topology.
pub fn kfd(files: &impl Files) -> Vec<KfdNode> {
    let names = files.names(NODES);
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.into_iter().filter_map(|node| kfd_node(files, node)).collect()
}

fn kfd_node(files: &impl Files, node: u32) -> Option<KfdNode> {
    let found = properties(files, &format!("{NODES}/{node}/properties"));
    let field = |name: &str| found.get(name).copied().unwrap_or(0);
    // Processors have neither.
    if field("simd_count") == 0 && field("gfx_target_version") == 0 {
        return None;
    }
    let (location, domain) = (field("location_id"), field("domain"));
    let links = format!("{NODES}/{node}/io_links");
    let flags = files.names(&links).into_iter().find_map(|link| {
        let link = properties(files, &format!("{links}/{link}/properties"));
        // Type 2 is PCI Express.
        (link.get("type") == Some(&2)).then(|| link.get("flags").copied())?
    });
    Some(KfdNode {
        node,
        device: u16::try_from(field("device_id")).unwrap_or(0),
        address: format!(
            "{domain:04x}:{:02x}:{:02x}.{:x}",
            location >> 8 & 0xff,
            location >> 3 & 0x1f,
            location & 7
        ),
        target: targets::by_kfd(field("gfx_target_version")),
        atomics: flags.map(|flags| flags & NO_ATOMICS == 0),
    })
}

/// The true target of the card at a PCI address (`0000:03:00.0`), and which witness says so; see [`targets`].
///
/// Reads nothing of other cards on the bus: it is part of opening one.
pub fn target_at(files: &impl Files, nodes: &[KfdNode], address: &str) -> Option<(String, &'static str)> {
    let at = |name: &str| format!("{PCI}/{address}/{name}");
    let node = nodes.iter().find(|node| node.address == address);
    let by_kfd = || Some((node?.target.clone()?, "kfd"));
    let (Some(vendor), Some(device)) = (files.hex::<u16>(&at("vendor")), files.hex(&at("device"))) else {
        // A container may show KFD's nodes and hide the bus.
        return by_kfd();
    };
    if vendor != AMD {
        return None;
    }
    // Hardware id 11 is the graphics core; newer kernels link its name, `GC`, to it.
    let core = |name: &str, field: &str| {
        files.attribute(&at(&format!("ip_discovery/die/0/{name}/0/{field}")))?.parse::<u32>().ok()
    };
    let version = ["GC", "11"]
        .iter()
        .find_map(|hw| Some((core(hw, "major")?, core(hw, "minor")?, core(hw, "revision")?)));
    let found =
        version.and_then(targets::by_graphics_core).map(|target| (target.to_string(), "ip_discovery"));
    found.or_else(|| targets::by_pci(device).map(|target| (target.to_string(), "pci"))).or_else(by_kfd)
}
