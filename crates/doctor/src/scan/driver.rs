//! The amdgpu kernel module and KFD.

use super::module;
use crate::facts::{Driver, Kfd, KfdNode};
use crate::system::System;
use crate::targets;
use std::collections::BTreeMap;

const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";
const MODULE: &str = "/sys/module/amdgpu";
/// Parameters that bear on compute, with their defaults, which are not worth a line.
const PARAMETERS: &[(&str, &[&str])] = &[
    ("cwsr_enable", &["1"]),
    ("gpu_recovery", &["-1"]),
    ("halt_if_hws_hang", &["0"]),
    ("hws_max_conc_proc", &["-1"]),
    ("lockup_timeout", &[""]),
    ("mes", &["0", "-1"]),
    ("noretry", &["-1"]),
    ("num_kcq", &["-1"]),
    ("ppfeaturemask", &["0xfff7bfff", "0xfff7ffff", "4294426623"]),
    ("queue_preemption_timeout_ms", &["9000"]),
    ("runpm", &["-1"]),
    ("sched_policy", &["0"]),
    ("vm_update_mode", &["-1"]),
];
/// Bits of a link's flags (linux `include/uapi/linux/kfd_sysfs.h`).
const NO_ATOMICS: u64 = 1 << 2 | 1 << 3;

/// Reads `name value` lines.
fn properties(system: &System, path: &str) -> BTreeMap<String, u64> {
    let text = system.text(path).unwrap_or_default();
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_string(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

pub(super) fn kfd(system: &System) -> Kfd {
    let mut nodes = Vec::new();
    let names = system.names(NODES);
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    for node in numbers {
        let name = node;
        let found = properties(system, &format!("{NODES}/{name}/properties"));
        let field = |name: &str| found.get(name).copied().unwrap_or(0);
        // Processors have neither.
        if field("simd_count") == 0 && field("gfx_target_version") == 0 {
            continue;
        }
        let (location, domain) = (field("location_id"), field("domain"));
        let links = format!("{NODES}/{name}/io_links");
        let flags = system.names(&links).into_iter().find_map(|link| {
            let link = properties(system, &format!("{links}/{link}/properties"));
            // Type 2 is PCI Express.
            (link.get("type") == Some(&2)).then(|| link.get("flags").copied())?
        });
        nodes.push(KfdNode {
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
        });
    }
    Kfd { present: system.is_dir(NODES), nodes }
}

pub(super) fn driver(system: &System, kernel: Option<&str>, gaps: &mut Vec<String>) -> Driver {
    let at = |name: &str| system.attribute(&format!("{MODULE}/{name}"));
    let parameters = PARAMETERS.iter().filter_map(|(name, defaults)| {
        let value = at(&format!("parameters/{name}"))?;
        (!defaults.contains(&value.as_str())).then(|| (name.to_string(), value))
    });
    let mut dkms = Vec::new();
    for version in system.names("/var/lib/dkms/amdgpu") {
        // `kernel-...` are links for each kernel that it was built for.
        if !version.starts_with("kernel-") && system.is_dir(&format!("/var/lib/dkms/amdgpu/{version}")) {
            dkms.push(version);
        }
    }
    // It is only compared with what is loaded.
    let srcversion = at("srcversion");
    let file = kernel.filter(|_| srcversion.is_some()).and_then(|release| module_file(system, release));
    let file_srcversion = file.and_then(|path| match module::srcversion(system, &path) {
        Ok(found) => found,
        Err(why) => {
            gaps.push(format!("{path} was not compared with the loaded module: {why}"));
            None
        }
    });
    Driver {
        loaded: system.is_dir(MODULE),
        version: at("version"),
        srcversion,
        file_srcversion,
        taint: at("taint"),
        dkms,
        parameters: parameters.collect(),
    }
}

/// The file that `modprobe amdgpu` would load, by depmod's table or at its usual places.
fn module_file(system: &System, release: &str) -> Option<String> {
    let folder = format!("/lib/modules/{release}");
    let index = system.text(&format!("{folder}/modules.dep"));
    let listed = index
        .as_deref()
        .and_then(|text| text.lines().find_map(|l| l.split(':').next().filter(|p| p.contains("/amdgpu.ko"))));
    let usual = ["updates/dkms", "kernel/drivers/gpu/drm/amd/amdgpu"].iter();
    let usual = usual.flat_map(|place| module::ENDINGS.iter().map(move |e| format!("{place}/amdgpu.ko{e}")));
    let mut paths = listed.map(String::from).into_iter().chain(usual).map(|p| format!("{folder}/{p}"));
    paths.find(|path| system.is_file(path))
}
