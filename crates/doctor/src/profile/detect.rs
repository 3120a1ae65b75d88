//! The little that can be read from a few files. Whoever has looked at the whole machine knows better.

use super::Situation;
use crate::change::Root;
use std::io::Read;
use std::path::Path;

/// The AMD GPUs by the kernel's own list and ROCm's version file. Unreadable files count as absent ones.
#[must_use]
pub fn detect(root: &Root) -> Situation {
    let nodes = Path::new("/sys/class/kfd/kfd/topology/nodes");
    let entries = std::fs::read_dir(root.host(nodes)).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    let cards = numbers.into_iter().filter_map(|number| {
        let text = read(root, &nodes.join(number.to_string()).join("properties"))?;
        target(text.lines().find_map(|line| line.strip_prefix("gfx_target_version "))?.trim().parse().ok()?)
    });
    let rocm = read(root, Path::new("/opt/rocm/.info/version")).and_then(|text| text.parse().ok());
    Situation { cards: cards.collect(), rocm, ..Situation::default() }
}

/// `gfx1010` of the kernel's 100100; processors have 0.
fn target(version: u32) -> Option<String> {
    let (major, minor, stepping) = (version / 10000, version / 100 % 100, version % 100);
    (major > 0).then(|| format!("gfx{major}{minor}{stepping:x}"))
}

fn read(root: &Root, path: &Path) -> Option<String> {
    let file = std::fs::File::open(root.host(&root.resolve(path).ok()?)).ok()?;
    let mut text = String::new();
    file.take(1 << 16).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_as_llvm_names_them() {
        for (version, name) in
            [(100_100, "gfx1010"), (90_010, "gfx90a"), (110_501, "gfx1151"), (90_402, "gfx942")]
        {
            assert_eq!(target(version).unwrap(), name);
        }
        assert_eq!(target(0), None);
    }

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
        std::fs::create_dir_all(folder.path().join("opt/rocm-5.7.1/.info")).unwrap();
        std::fs::write(folder.path().join("opt/rocm-5.7.1/.info/version"), "5.7.1-98\n").unwrap();
        std::os::unix::fs::symlink("/opt/rocm-5.7.1", folder.path().join("opt/rocm")).unwrap();
        let found = detect(&Root::new(folder.path()).unwrap());
        assert_eq!(found.cards, ["gfx1010", "gfx1036"]);
        assert_eq!(found.rocm.unwrap().to_string(), "5.7");
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(detect(&Root::new(empty.path()).unwrap()), Situation::default());
    }
}
