//! Which cards need coarse-grained memory, by what the kernel publishes; no device is opened.

use std::path::Path;

/// Where KFD describes processors and cards.
pub const NODES: &str = "/sys/devices/virtual/kfd/kfd/topology/nodes";

/// Bits of a link's flags: no PCIe atomics of 32, of 64 bits (linux `include/uapi/linux/kfd_sysfs.h`).
const NO_ATOMICS: u64 = 1 << 2 | 1 << 3;
/// A link's type.
const PCI_EXPRESS: u64 = 2;
/// gfx1010 to gfx1013, as KFD writes targets: major * 10000 + minor * 100 + step.
const RDNA1: std::ops::Range<u64> = 10_01_00..10_02_00;

/// Whether any card is an RDNA1 whose link to the processor lacks atomics. What cannot be read says no.
pub fn needs_coarse(nodes: &Path) -> bool {
    folders(nodes).any(|node| {
        property(&node, "gfx_target_version").is_some_and(|target| RDNA1.contains(&target))
            && folders(&node.join("io_links")).any(|link| {
                property(&link, "type") == Some(PCI_EXPRESS)
                    && property(&link, "flags").is_some_and(|flags| flags & NO_ATOMICS != 0)
            })
    })
}

fn folders(parent: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    std::fs::read_dir(parent).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

/// Of the lines `name value` of a node's or link's properties.
fn property(folder: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join("properties")).ok()?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.find(|(found, _)| *found == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor, and a card of this target with one link of this type and flags.
    fn topology(target: u64, kind: u64, flags: u64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: String| {
            let path = folder.path().join(path).join("properties");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("0", "cpu_cores_count 8\nsimd_count 0\n".to_owned());
        write("0/io_links/0", "type 2\nflags 12\n".to_owned());
        write("1", format!("simd_count 72\ngfx_target_version {target}\nvendor_id 4098\n"));
        write("1/io_links/0", format!("type {kind}\nnode_to 0\nflags {flags}\n"));
        folder
    }

    #[test]
    fn only_rdna1_without_pcie_atomics_needs_it() {
        // Target, type of link, flags (2: non-coherent, which every PCIe link is).
        for (target, kind, flags, wanted) in [
            (100100, 2, 12, true),
            (100102, 2, 15, true),
            (100103, 2, 4, true),
            (100101, 2, 8, true),
            (100100, 2, 0, false),
            (100100, 2, 3, false),
            (100300, 2, 12, false),
            (90010, 2, 12, false),
            (110000, 2, 12, false),
            (100100, 11, 12, false),
        ] {
            let folder = topology(target, kind, flags);
            assert_eq!(needs_coarse(folder.path()), wanted, "{target} {kind} {flags}");
        }
    }

    #[test]
    fn no_card_and_unreadable_files_need_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!needs_coarse(folder.path()));
        assert!(!needs_coarse(&folder.path().join("missing")));
        let node = folder.path().join("1");
        std::fs::create_dir(&node).unwrap();
        std::fs::write(node.join("properties"), "gfx_target_version\ngfx_target_version x\n\n \n").unwrap();
        assert!(!needs_coarse(folder.path()));
    }
}
