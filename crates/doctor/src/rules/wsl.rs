//! Windows's subsystem for Linux: no amdgpu, no /dev/kfd; everything goes through /dev/dxg to Windows's driver.

use super::manager::{Manager, manager};
use crate::facts::{Facts, Wsl};
use crate::finding::{Fix, Found, Rule, Severity};
use wave32_profile::Route;

const ROCDXG: &str = "https://github.com/ROCm/librocdxg";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "wsl-no-gpu",
        severity: Severity::Absent,
        routes: &[Route::Rocm, Route::Vulkan],
        meaning: "WSL 2 lends Linux the GPUs of Windows through /dev/dxg and Windows's libraries in /usr/lib/wsl/lib. Here one \
                  of them is missing: it is WSL 1, Windows's GPU driver is too old, or a container was not given them.",
        source: "https://learn.microsoft.com/en-us/windows/wsl/tutorials/gpu-compute",
        check: no_gpu,
    },
    Rule {
        id: "wsl-rocm",
        severity: Severity::Absent,
        routes: &[Route::Rocm],
        meaning: "Under WSL, ROCm 7.1 and newer reach the GPU through librocdxg, which is a package of its own. AMD lists RX \
                  7800 XT, 7900, 9060 and 9070, their PRO kin and some Ryzen AI for it, and no RDNA1 or RDNA2 card.",
        source: ROCDXG,
        check: no_rocm,
    },
    Rule {
        id: "wsl-dxg-detection",
        severity: Severity::Note,
        routes: &[Route::Rocm],
        meaning: "Before ROCm 7.13 the runtime loads librocdxg only if HSA_ENABLE_DXG_DETECTION is 1; without it, it finds no \
                  GPU.",
        source: ROCDXG,
        check: detection,
    },
    Rule {
        id: "wsl-no-vulkan",
        severity: Severity::Absent,
        routes: &[Route::Vulkan],
        meaning: "Under WSL no driver of the card's own can be loaded. Mesa's dozen (dzn) makes Vulkan out of Windows's Direct3D \
                  12; many distributions build Mesa without it.",
        source: "https://gitlab.freedesktop.org/mesa/mesa/-/tree/main/src/microsoft/vulkan",
        check: no_vulkan,
    },
    Rule {
        id: "wsl-dozen",
        severity: Severity::Note,
        routes: &[Route::Vulkan],
        meaning: "Mesa's dozen translates Vulkan to Windows's Direct3D 12, and calls itself not conformant, for testing only. It \
                  offers what wave32 asks for; nobody has tried that yet.",
        source: "https://gitlab.freedesktop.org/mesa/mesa/-/tree/main/src/microsoft/vulkan",
        check: dozen,
    },
];

/// WSL with a GPU lent to it.
fn lent(facts: &Facts) -> Option<&Wsl> {
    facts.host.wsl.as_ref().filter(|wsl| wsl.dxg && wsl.libraries)
}

fn has_dozen(facts: &Facts) -> bool {
    let is_dozen = |library: &String| library.contains("vulkan_dzn");
    facts.vulkan.manifests.iter().any(|m| m.problem.is_none() && m.library.as_ref().is_some_and(is_dozen))
}

fn no_gpu(facts: &Facts) -> Vec<Found> {
    let Some(wsl) = facts.host.wsl.as_ref().filter(|wsl| !wsl.dxg || !wsl.libraries) else {
        return Vec::new();
    };
    let mut evidence = vec![format!("/proc/version: {}", wsl.kernel)];
    evidence.extend((!wsl.dxg).then(|| "there is no /dev/dxg".to_string()));
    evidence.extend((!wsl.libraries).then(|| "/usr/lib/wsl/lib has no libdxcore.so".to_string()));
    let fix = match &facts.host.container {
        Some(_) => Fix::run(
            "start the container with WSL's device and libraries",
            &[
                "docker run --device=/dev/dxg -v /usr/lib/wsl:/usr/lib/wsl -e LD_LIBRARY_PATH=/usr/lib/wsl/lib ...",
            ],
        ),
        None => Fix::run(
            "in Windows: install the newest driver of the card's maker, then, in PowerShell (the second is for WSL 1 only)",
            &["wsl --update", "wsl --set-version <distribution> 2", "wsl --shutdown"],
        ),
    };
    vec![Found { what: "Windows lends this system no GPU".into(), evidence, fix }]
}

fn no_rocm(facts: &Facts) -> Vec<Found> {
    let Some(wsl) = lent(facts).filter(|wsl| wsl.rocm.is_none()) else { return Vec::new() };
    vec![Found {
        what: "ROCm has nothing here to reach Windows's GPU with".into(),
        evidence: vec![format!("/proc/version: {}", wsl.kernel), "no librocdxg.so beside any ROCm".into()],
        fix: Fix::text(
            "with a card that AMD lists: install ROCm 7.1 or newer and librocdxg as its README says. With any other boot Linux \
             itself (a second disk or a USB stick will do): ROCm and Mesa's RADV drive it there, and this command says how it stands",
        ),
    }]
}

fn detection(facts: &Facts) -> Vec<Found> {
    let Some(library) = lent(facts).and_then(|wsl| wsl.rocm.as_ref()) else { return Vec::new() };
    let set =
        facts.variables.iter().any(|v| v.name == "HSA_ENABLE_DXG_DETECTION" && v.now.as_deref() == Some("1"));
    if set || !library.contains("librocdxg") {
        return Vec::new();
    }
    vec![Found {
        what: "HSA_ENABLE_DXG_DETECTION is not 1 here".into(),
        evidence: vec![library.clone()],
        fix: Fix::run("set it, and see whether the card is listed", &["HSA_ENABLE_DXG_DETECTION=1 rocminfo"]),
    }]
}

fn no_vulkan(facts: &Facts) -> Vec<Found> {
    let Some(wsl) = lent(facts) else { return Vec::new() };
    let listed = facts.vulkan.devices.iter().flatten().any(|d| !d.is_software());
    if has_dozen(facts) || listed {
        return Vec::new();
    }
    let fix = match manager(facts) {
        Some(manager @ Manager::Pacman) => {
            let command = manager.install("vulkan-icd-loader vulkan-dzn");
            Fix::run("install dozen and the loader", &[&command])
        }
        _ if facts.host.like.iter().any(|l| l == "ubuntu") => Fix::text(
            "Ubuntu builds Mesa without dozen; the archive ppa:kisak/kisak-mesa has it. Or boot Linux itself, where Mesa's RADV \
             drives the card",
        ),
        _ => Fix::text(
            "install a Mesa that has dozen (`ls /usr/share/vulkan/icd.d` then shows dzn_icd); or boot Linux itself, where Mesa's \
             RADV drives the card",
        ),
    };
    vec![Found {
        what: "no Vulkan driver here reaches Windows's GPU".into(),
        evidence: vec![format!("/proc/version: {}", wsl.kernel), "no manifest of libvulkan_dzn.so".into()],
        fix,
    }]
}

fn dozen(facts: &Facts) -> Vec<Found> {
    if lent(facts).is_none() || !has_dozen(facts) {
        return Vec::new();
    }
    let devices = facts.vulkan.devices.iter().flatten().filter(|d| !d.is_software());
    vec![Found {
        what: "Vulkan goes through Windows's Direct3D 12".into(),
        evidence: devices.map(|d| format!("{} ({})", d.name, d.driver)).collect(),
        fix: Fix::text(
            "`wave32 verify` proves each kernel on it, in guarded processes; believe that before anything else",
        ),
    }]
}
