//! What the kernel has said since it was booted.

use super::manager::{Manager, manager};
use crate::facts::Facts;
use crate::finding::{Fix, Found, Rule, Severity};
use wave32_profile::Route;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "queue-preemption",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "A compute kernel did not let itself be stopped: the card's compute queues are wedged, and ROCm programs \
                  wait for ever. Vulkan uses other queues, which the kernel can reset.",
        source: "https://github.com/ROCm/TheRock/issues/5793",
        check: |facts| {
            said(facts, "preemption", "the kernel could not stop a compute queue", |_| {
                Fix::text(
                    "reboot (a suspend is not enough), and use the route vulkan; unset any HSA_OVERRIDE_GFX_VERSION first",
                )
            })
        },
    },
    Rule {
        id: "firmware-missing",
        severity: Severity::Broken,
        routes: &[Route::Rocm, Route::Vulkan],
        meaning: "The card's firmware files are not installed; without them amdgpu does not start it.",
        source: "https://docs.kernel.org/gpu/amdgpu/index.html",
        check: |facts| {
            said(facts, "firmware", "the card's firmware could not be loaded", |facts| {
                let Some(manager) = manager(facts) else {
                    return Fix::text("install your distribution's linux-firmware, then reboot");
                };
                let first = |id: &str| facts.host.like.first().is_some_and(|l| l == id);
                let package = match manager {
                    Manager::Apt if first("debian") => "firmware-amd-graphics",
                    Manager::Dnf if first("fedora") => "amd-gpu-firmware",
                    Manager::Zypper => "kernel-firmware-amdgpu",
                    Manager::Pacman => "linux-firmware-amdgpu",
                    Manager::Apt | Manager::Dnf => "linux-firmware",
                };
                let text = match package {
                    "firmware-amd-graphics" => {
                        "install the firmware (from Debian's non-free-firmware), then reboot"
                    }
                    _ => "install the firmware, then reboot",
                };
                Fix::run(text, &[&manager.install(package)])
            })
        },
    },
    Rule {
        id: "ring-timeout",
        severity: Severity::Note,
        routes: &[Route::Vulkan],
        meaning: "A job on a graphics or compute ring ran longer than the kernel allows and was reset. One program was \
                  killed; the card is usable again if the reset worked.",
        source: "https://docs.kernel.org/gpu/amdgpu/module-parameters.html",
        check: |facts| {
            said(facts, "ring-timeout", "the kernel reset a job that took too long", |_| {
                Fix::text(
                    "nothing, if it was a game; if it was wave32, `wave32 verify` tells which problem does it",
                )
            })
        },
    },
    Rule {
        id: "gpu-reset",
        severity: Severity::Note,
        routes: &[Route::Rocm, Route::Vulkan],
        meaning: "The whole card was reset since boot: programs that ran on it lost their memory.",
        source: "https://docs.kernel.org/gpu/amdgpu/module-parameters.html",
        check: |facts| {
            said(facts, "reset", "the card was reset since boot", |_| {
                Fix::text("restart programs that still run on it")
            })
        },
    },
    Rule {
        id: "page-fault",
        severity: Severity::Note,
        routes: &[Route::Rocm],
        meaning: "A kernel touched memory that was not its own: a wrong kernel, typically code of another target.",
        source: "https://github.com/ROCm/MIOpen/issues/3540",
        check: |facts| {
            said(facts, "page-fault", "a GPU kernel touched memory that was not its own", |_| {
                Fix::text(
                    "unset any HSA_OVERRIDE_GFX_VERSION; `wave32 probe` tells which of MIOpen's solvers does it",
                )
            })
        },
    },
    Rule {
        id: "compute-parameters",
        severity: Severity::Note,
        routes: &[Route::Rocm],
        meaning: "amdgpu's parameters for compute are not the kernel's defaults.",
        source: "https://docs.kernel.org/gpu/amdgpu/module-parameters.html",
        check: parameters,
    },
];

fn said(facts: &Facts, kind: &str, what: &str, fix: fn(&Facts) -> Fix) -> Vec<Found> {
    let events = facts.log.events.iter().filter(|e| e.kind == kind);
    let found = events.map(|event| {
        let source = facts.log.source.as_deref().unwrap_or("the kernel's log");
        let times = if event.count == 1 { String::new() } else { format!(" ({} times)", event.count) };
        Found {
            what: format!("{what}{times}"),
            evidence: vec![format!("{source}: {}", event.line)],
            fix: fix(facts),
        }
    });
    found.collect()
}

fn parameters(facts: &Facts) -> Vec<Found> {
    if facts.driver.parameters.is_empty() {
        return Vec::new();
    }
    let set = facts.driver.parameters.iter().map(|(name, value)| format!("amdgpu.{name}={value}"));
    vec![Found {
        what: "amdgpu runs with parameters of its own".into(),
        evidence: set.collect(),
        fix: Fix::text(
            "if you do not know why, take them out of /etc/modprobe.d and the kernel's command line, then reboot",
        ),
    }]
}
