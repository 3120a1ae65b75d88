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

/// What tells boards of one PCI id apart: revision and clock of the memory in MHz, of the card at a PCI address.
///
/// The clock is the highest of those in `pp_dpm_mclk` (linux `Documentation/gpu/amdgpu/thermal.rst`), a line each:
/// `3: 875Mhz *`. None where a container hides the bus.
pub fn revision_and_memory(files: &impl Files, address: &str) -> (Option<u8>, Option<u32>) {
    let at = |name: &str| format!("{PCI}/{address}/{name}");
    let levels = files.text(&at("pp_dpm_mclk")).unwrap_or_default();
    let clock = |line: &str| {
        let (_, clock) = line.split_once(':')?;
        clock.trim().to_lowercase().split_once("mhz")?.0.parse::<u32>().ok()
    };
    (files.hex(&at("revision")), levels.lines().filter_map(clock).max())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Files for BTreeMap<String, String> {
        fn text(&self, path: &str) -> Option<String> {
            self.get(path).cloned()
        }

        fn names(&self, _folder: &str) -> Vec<String> {
            Vec::new()
        }
    }

    #[test]
    fn revision_and_memory_are_read_where_they_are() {
        let address = "0000:03:00.0";
        let file = |name: &str, text: &str| (format!("{PCI}/{address}/{name}"), text.to_string());
        let levels = "0: 100Mhz \n1: 500Mhz \n2: 625Mhz \n3: 875Mhz *\n";
        let files = BTreeMap::from([file("revision", "0xca\n"), file("pp_dpm_mclk", levels)]);
        assert_eq!(revision_and_memory(&files, address), (Some(0xca), Some(875)));
        assert_eq!(revision_and_memory(&files, "0000:04:00.0"), (None, None));
        let odd = BTreeMap::from([file("revision", "none"), file("pp_dpm_mclk", "3: fast\n:\n\u{fffd}")]);
        assert_eq!(revision_and_memory(&odd, address), (None, None));
    }
}
