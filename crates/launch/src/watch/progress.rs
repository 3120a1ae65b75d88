//! Counters of the GPU that grow while a process' work goes on.

use super::process::folder;
use std::collections::BTreeMap;
use std::path::Path;

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// A process' counters: busy time of the engines, which amdgpu tells for each open file, and for ROCm's own queues, of
/// which it tells no busy time, transfers and memory held.
pub fn counters(pid: i32) -> Counters {
    let mut found = engines(&folder(pid).join("fdinfo"));
    found.extend(kfd(&Path::new("/sys/class/kfd/kfd/proc").join(pid.to_string())));
    found
}

/// `drm-engine-*` of amdgpu's files, each client once (a file may be open twice).
fn engines(fdinfo: &Path) -> Counters {
    let mut found = Counters::new();
    let Ok(entries) = std::fs::read_dir(fdinfo) else { return found };
    for entry in entries.flatten() {
        let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        if value("drm-driver").map(str::trim) != Some("amdgpu") {
            continue;
        }
        let client = value("drm-client-id").unwrap_or_default().trim();
        for line in text.lines().filter(|line| line.starts_with("drm-engine-")) {
            let Some((key, rest)) = line.split_once(':') else { continue };
            let busy = rest.trim().strip_suffix(" ns").and_then(|number| number.parse().ok());
            if let Some(busy) = busy {
                found.insert(format!("{client} {key}"), busy);
            }
        }
    }
    found
}

/// `sdma_GPUID` (microseconds) and `vram_GPUID` (bytes).
fn kfd(process: &Path) -> Counters {
    let Ok(entries) = std::fs::read_dir(process) else { return Counters::new() };
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let counts = name.starts_with("sdma_") || name.starts_with("vram_");
        let text = counts.then(|| std::fs::read_to_string(entry.path()).ok())??;
        Some((name, text.trim().parse().ok()?))
    };
    entries.flatten().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_as_the_kernel_writes_them() {
        let folder = tempfile::tempdir().unwrap();
        let amdgpu = "pos:\t0\nflags:\t02100002\nmnt_id:\t25\npasid:\t32771\ndrm-driver:\tamdgpu\n\
            drm-client-id:\t7\ndrm-memory-vram:\t4 KiB\ndrm-engine-gfx:\t12 ns\ndrm-engine-compute:\t345 ns\n\
            drm-engine-capacity-compute:\t4\n";
        for (name, text) in [("3", amdgpu), ("4", amdgpu), ("5", "pos:\t0\n"), ("6", "drm-driver:\ti915\n")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let expected = [("7 drm-engine-compute".to_string(), 345), ("7 drm-engine-gfx".to_string(), 12)];
        assert_eq!(engines(folder.path()), Counters::from(expected));
        for (name, text) in [("sdma_9", "55\n"), ("vram_9", "4096"), ("pasid", "32771"), ("sdma_x", "?")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(kfd(folder.path()), Counters::from([("sdma_9".into(), 55), ("vram_9".into(), 4096)]));
        assert!(counters(std::process::id() as i32).is_empty() || Path::new("/dev/kfd").exists());
    }
}
