//! The amdgpu kernel module and KFD.

use super::{module, modules};
use crate::facts::{Driver, Kfd};
use crate::system::System;
use wave32_cards::sysfs::{self, Files as _};

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

pub(super) fn kfd(system: &System) -> Kfd {
    Kfd { present: system.is_dir(sysfs::NODES), nodes: sysfs::kfd(system) }
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
    let file = kernel.and_then(|release| module_file(system, release));
    let compared = file.as_deref().filter(|_| srcversion.is_some());
    let file_srcversion = compared.and_then(|path| match module::srcversion(system, path) {
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
        file: file.map(|path| modules::module_file(system, &path)),
        dkms_packaged: (!dkms.is_empty()).then(|| modules::installed(system, "amdgpu-dkms")).flatten(),
        dkms,
        changed_sources: Vec::new(),
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
