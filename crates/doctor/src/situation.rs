//! What profiles depend on, from what a scan found.

use crate::facts::{Facts, Rocm, Torch};
use crate::scan::{Options, stack};
use crate::system::System;
use wave32_profile::Situation;

/// The machine's.
pub fn of(system: &System) -> Situation {
    from_facts(&stack(system, &Options::default()))
}

/// The cards in the order in which ROCm numbers them, and the PyTorch that is found first.
fn from_facts(facts: &Facts) -> Situation {
    let truly = |node: &wave32_cards::sysfs::KfdNode| {
        let card = facts.gpus.iter().find(|gpu| gpu.address == node.address);
        card.and_then(|gpu| gpu.target.clone()).or_else(|| node.target.clone())
    };
    let mut cards: Vec<String> = facts.kfd.nodes.iter().filter_map(truly).collect();
    if cards.is_empty() {
        cards = facts.gpus.iter().filter_map(|gpu| gpu.target.clone()).collect();
    }
    let torch = facts.torches.iter().find(|torch| torch.hip.is_some());
    let rocm = match torch {
        Some(torch) => facts.loads(torch),
        None => facts.rocm.iter().find(|rocm| rocm.version.is_some()),
    };
    let version = |rocm: &Rocm| rocm.version.as_deref()?.parse().ok();
    let mut installed = facts.rocm.iter().filter(|rocm| matches!(rocm.kind, "opt" | "distribution"));
    let system = match (installed.next(), installed.next()) {
        (Some(one), None) => version(one),
        _ => None,
    };
    let objects = |torch: &Torch| torch.targets.iter().cloned().collect();
    Situation {
        cards,
        rocm: rocm.and_then(version),
        system,
        code_objects: torch.filter(|torch| torch.complete).map(objects),
        vulkan_device: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_and_version_under_a_root() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = folder.path().join("sys/class/kfd/kfd/topology/nodes");
        for (node, text) in [
            ("0", "cpu_cores_count 8\ngfx_target_version 0\n"),
            ("10", "gfx_target_version 100306\n"),
            ("2", "simd_count 72\ngfx_target_version 100100\n"),
        ] {
            std::fs::create_dir_all(nodes.join(node)).unwrap();
            std::fs::write(nodes.join(node).join("properties"), text).unwrap();
        }
        for (path, text) in [(".info/version", "5.7.1-98\n"), ("lib/libamdhip64.so.5", "")] {
            let path = folder.path().join("opt/rocm-5.7.1").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink("/opt/rocm-5.7.1", folder.path().join("opt/rocm")).unwrap();
        let seen = |root: &std::path::Path| of(&System::at(root).unwrap());
        let found = seen(folder.path());
        assert_eq!(found.cards, ["gfx1010", "gfx1036"]);
        assert_eq!(found.rocm.unwrap().to_string(), "5.7");
        assert_eq!(found.system, found.rocm);
        assert_eq!(found.code_objects, None, "there is no PyTorch");
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(seen(empty.path()), Situation::default());
    }
}
