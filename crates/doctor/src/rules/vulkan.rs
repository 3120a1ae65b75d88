//! Vulkan: loader, drivers, devices.

use super::manager::{Manager, manager};
use crate::facts::{Facts, VulkanDevice};
use crate::finding::{Fix, Found, Rule, Severity};
use wave32_profile::Route;

const LOADER: &str = "https://github.com/KhronosGroup/Vulkan-Loader/blob/main/docs/LoaderDriverInterface.md";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "vulkan-loader-broken",
        severity: Severity::Broken,
        routes: &[Route::Vulkan],
        meaning: "The loader's library is a link to nowhere, so no program finds Vulkan.",
        source: LOADER,
        check: loader_broken,
    },
    Rule {
        id: "vulkan-no-loader",
        severity: Severity::Absent,
        routes: &[Route::Vulkan],
        meaning: "Programs reach Vulkan drivers through libvulkan.so.1, which is in no library folder.",
        source: LOADER,
        check: no_loader,
    },
    Rule {
        id: "vulkan-manifest",
        severity: Severity::Broken,
        routes: &[Route::Vulkan],
        meaning: "The loader reads this driver's manifest, cannot use it, and has no other driver for the card.",
        source: LOADER,
        check: |facts| if has_driver(facts) { Vec::new() } else { manifest(facts) },
    },
    Rule {
        id: "vulkan-stale-manifest",
        severity: Severity::Note,
        routes: &[Route::Vulkan],
        meaning: "A driver's manifest that the loader reads cannot be used; another driver serves.",
        source: LOADER,
        check: |facts| if has_driver(facts) { manifest(facts) } else { Vec::new() },
    },
    Rule {
        id: "vulkan-failure",
        severity: Severity::Broken,
        routes: &[Route::Vulkan],
        meaning: "The loader and its drivers were asked for devices in a process of their own, and that failed.",
        source: LOADER,
        check: failure,
    },
    Rule {
        id: "vulkan-no-driver",
        severity: Severity::Absent,
        routes: &[Route::Vulkan],
        meaning: "The loader has no driver to load. RADV, Mesa's driver for Radeon cards, is in the package below.",
        source: "https://docs.mesa3d.org/drivers/radv.html",
        check: no_driver,
    },
    Rule {
        id: "vulkan-card-missing",
        severity: Severity::Broken,
        routes: &[Route::Vulkan],
        meaning: "The card is there and its driver is loaded, and Vulkan does not list it: RADV is not installed, not \
                  among the forced drivers, or may not open the render node.",
        source: "https://docs.mesa3d.org/drivers/radv.html",
        check: card_missing,
    },
    Rule {
        id: "vulkan-unusable",
        severity: Severity::Note,
        routes: &[Route::Vulkan],
        meaning: "A Vulkan device lacks something that the kernels need.",
        source: "docs/ARCHITECTURE.md",
        check: unusable,
    },
    Rule {
        id: "vulkan-software",
        severity: Severity::Note,
        routes: &[Route::Vulkan],
        meaning: "Mesa's software driver computes on the CPU. It runs everything, slower than the route cpu does.",
        source: "https://docs.mesa3d.org/drivers/llvmpipe.html",
        check: software,
    },
];

fn packages(manager: Manager) -> &'static str {
    match manager {
        Manager::Apt => "libvulkan1 mesa-vulkan-drivers",
        Manager::Dnf => "vulkan-loader mesa-vulkan-drivers",
        Manager::Zypper => "libvulkan1 libvulkan_radeon",
        Manager::Pacman => "vulkan-icd-loader vulkan-radeon",
    }
}

fn install(facts: &Facts) -> Fix {
    match manager(facts) {
        Some(manager) => {
            Fix::run("install the loader and Mesa's drivers", &[&manager.install(packages(manager))])
        }
        None => Fix::text("install your distribution's Vulkan loader and Mesa's Vulkan drivers"),
    }
}

fn loader_broken(facts: &Facts) -> Vec<Found> {
    let dangling = facts.vulkan.dangling_loader.iter();
    let found = dangling.map(|path| Found {
        what: format!("{path} is a link to nothing"),
        evidence: Vec::new(),
        fix: match manager(facts) {
            Some(manager) => Fix::run("install the loader again", &[&manager.reinstall(packages(manager))]),
            None => Fix::text("install your distribution's Vulkan loader again"),
        },
    });
    found.collect()
}

fn no_loader(facts: &Facts) -> Vec<Found> {
    let vulkan = &facts.vulkan;
    let listed = vulkan.devices.as_ref().is_some_and(|d| !d.is_empty());
    if vulkan.loader.is_some() || vulkan.dangling_loader.is_some() || listed {
        return Vec::new();
    }
    vec![Found { what: "there is no Vulkan loader".into(), evidence: Vec::new(), fix: install(facts) }]
}

fn manifest(facts: &Facts) -> Vec<Found> {
    let forced = facts
        .variables
        .iter()
        .find(|v| v.now.is_some() && matches!(v.name.as_str(), "VK_DRIVER_FILES" | "VK_ICD_FILENAMES"));
    let broken = facts.vulkan.manifests.iter().filter_map(|m| Some((m, m.problem.as_ref()?)));
    let found = broken.map(|(manifest, problem)| {
        let what = format!("{}: {problem}", manifest.path);
        match forced {
            Some(variable) => super::variable::unset(variable, what),
            None => Found { what, evidence: Vec::new(), fix: install(facts) },
        }
    });
    found.collect()
}

fn failure(facts: &Facts) -> Vec<Found> {
    let found = facts.vulkan.failure.iter().filter(|_| facts.vulkan.loader.is_some()).map(|why| Found {
        what: "the Vulkan drivers could not be asked for devices".into(),
        evidence: vec![why.clone()],
        fix: Fix::text("`vulkaninfo --summary` shows more; `VK_LOADER_DEBUG=all` shows which driver it is"),
    });
    found.collect()
}

fn no_driver(facts: &Facts) -> Vec<Found> {
    if facts.vulkan.loader.is_none() || !facts.vulkan.manifests.is_empty() {
        return Vec::new();
    }
    vec![Found {
        what: "no Vulkan driver is installed".into(),
        evidence: vec!["no manifest in the loader's folders (vulkan/icd.d)".into()],
        fix: install(facts),
    }]
}

fn is_card(device: &VulkanDevice) -> bool {
    matches!(device.kind.as_str(), "discrete" | "integrated")
}

/// True if some driver serves what is here: RADV (or AMD's own) an AMD card, any driver else.
fn has_driver(facts: &Facts) -> bool {
    if let Some(devices) = &facts.vulkan.devices {
        return devices.iter().any(|d| d.unusable.is_none());
    }
    let amd = facts.gpus.iter().any(|g| g.is_amd());
    facts
        .vulkan
        .manifests
        .iter()
        .filter(|m| m.problem.is_none())
        .any(|m| !amd || m.library.as_deref().is_some_and(radv))
}

fn radv(library: &str) -> bool {
    library.contains("radeon") || library.contains("amdvlk")
}

fn card_missing(facts: &Facts) -> Vec<Found> {
    let Some(card) = facts.gpus.iter().find(|g| g.is_amd() && g.driver.as_deref() == Some("amdgpu")) else {
        return Vec::new();
    };
    let driven =
        facts.vulkan.manifests.iter().any(|m| m.problem.is_none() && m.library.as_deref().is_some_and(radv));
    let missing = match &facts.vulkan.devices {
        Some(devices) => !devices.iter().any(is_card),
        None => !facts.vulkan.manifests.is_empty() && !driven,
    };
    // Loader and manifests have rules of their own.
    let other = facts.vulkan.loader.is_none() || facts.vulkan.manifests.iter().any(|m| m.problem.is_some());
    if !missing || other || facts.vulkan.failure.is_some() {
        return Vec::new();
    }
    vec![Found {
        what: format!("Vulkan does not list the {}", card.name),
        evidence: facts.vulkan.manifests.iter().map(|m| m.path.clone()).collect(),
        fix: install(facts),
    }]
}

fn unusable(facts: &Facts) -> Vec<Found> {
    let devices = facts.vulkan.devices.iter().flatten();
    let found = devices.filter_map(|d| Some((d, d.unusable.as_ref()?))).map(|(device, why)| Found {
        what: format!("{} cannot be used", device.name),
        evidence: vec![why.clone()],
        fix: Fix::text("update the driver"),
    });
    found.collect()
}

fn software(facts: &Facts) -> Vec<Found> {
    let devices: Vec<&VulkanDevice> = facts.vulkan.devices.iter().flatten().collect();
    if devices.is_empty() || !devices.iter().all(|d| d.is_software()) {
        return Vec::new();
    }
    vec![Found {
        what: "Vulkan has a software driver only".into(),
        evidence: devices.iter().map(|d| format!("{} ({})", d.name, d.driver)).collect(),
        fix: Fix::text("nothing to repair; use the route cpu"),
    }]
}
