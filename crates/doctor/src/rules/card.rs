//! Cards, kernel driver, device nodes.

use crate::facts::{Facts, Gpu};
use crate::finding::{Fix, Found, Rule, Severity};
use wave32_profile::Route;

const KFD_DEVICE: &str =
    "https://github.com/torvalds/linux/blob/master/drivers/gpu/drm/amd/amdkfd/kfd_device.c";
const PREREQUISITES: &str =
    "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/install/prerequisites.html";
const DOCKER: &str = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "no-gpu",
        severity: Severity::Absent,
        routes: &[Route::Rocm, Route::Vulkan],
        meaning: "No GPU was found on the PCI bus, so networks run on the CPU here.",
        source: "https://docs.kernel.org/PCI/sysfs-pci.html",
        check: no_gpu,
    },
    Rule {
        id: "no-amd-gpu",
        severity: Severity::Absent,
        routes: &[Route::Rocm],
        meaning: "ROCm drives AMD's GPUs only.",
        source: PREREQUISITES,
        check: no_amd_gpu,
    },
    Rule {
        id: "unknown-target",
        severity: Severity::Note,
        routes: &[Route::Rocm],
        meaning: "Neither the card's discovery table, nor its PCI id, nor KFD told a target that is known here: the \
                  card is older than RDNA1, newer than this program, or has no driver. Nothing is said of its code objects.",
        source: KFD_DEVICE,
        check: unknown_target,
    },
    Rule {
        id: "kernel-driver",
        severity: Severity::Broken,
        routes: &[Route::Rocm, Route::Vulkan],
        meaning: "ROCm and RADV both work through the amdgpu kernel driver, which is not bound to this card.",
        source: "https://docs.kernel.org/gpu/amdgpu/index.html",
        check: kernel_driver,
    },
    Rule {
        id: "container-without-kfd",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "ROCm reaches the card through /dev/kfd, and a container has only the devices it was given.",
        source: DOCKER,
        check: container_without_kfd,
    },
    Rule {
        id: "no-kfd",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "ROCm reaches the card through /dev/kfd, which amdgpu makes if the kernel has CONFIG_HSA_AMD.",
        source: KFD_DEVICE,
        check: no_kfd,
    },
    Rule {
        id: "container-without-render-node",
        severity: Severity::Broken,
        routes: &[Route::Rocm, Route::Vulkan],
        meaning: "Vulkan and ROCm open the card's render node, and a container has only the devices it was given.",
        source: DOCKER,
        check: container_without_render_node,
    },
    Rule {
        id: "kfd-permission",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "The user may not open /dev/kfd; ROCm then finds no GPU, often without a word.",
        source: PREREQUISITES,
        check: |facts| permission(facts, |path| path == "/dev/kfd"),
    },
    Rule {
        id: "render-permission",
        severity: Severity::Broken,
        routes: &[Route::Rocm, Route::Vulkan],
        meaning: "The user may not open the card's render node; Vulkan then falls back to the CPU or finds no device.",
        source: PREREQUISITES,
        check: |facts| permission(facts, |path| path != "/dev/kfd"),
    },
    Rule {
        id: "not-in-kfd",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "The compute driver is there and left this card out: usually for want of PCIe atomics (older slots, \
                  risers, some chipset lanes), or because the kernel is older than the card.",
        source: KFD_DEVICE,
        check: not_in_kfd,
    },
    Rule {
        id: "kfd-target",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "The kernel reports another target than the card has: only a patched kernel module does that, and \
                  code for another target hangs or faults.",
        source: KFD_DEVICE,
        check: kfd_target,
    },
    Rule {
        id: "no-pcie-atomics",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "The card's path to the CPU carries no PCIe atomics. Device memory works; atomics on host memory are \
                  silently wrong, and old firmware needs them.",
        source: "https://github.com/ROCm/clr/issues/285",
        check: no_atomics,
    },
];

fn amd(facts: &Facts) -> impl Iterator<Item = &Gpu> {
    facts.gpus.iter().filter(|g| g.is_amd())
}

fn label(gpu: &Gpu) -> String {
    format!("{} at {}", gpu.name, gpu.address)
}

fn no_gpu(facts: &Facts) -> Vec<Found> {
    // WSL has rules of its own.
    if !facts.gpus.is_empty() || facts.host.wsl.is_some() {
        return Vec::new();
    }
    if !facts.pci_listed {
        return vec![Found {
            what: "no GPU is known of".into(),
            evidence: vec!["there is no /sys/bus/pci/devices to read".into()],
            fix: Fix::text("run it where /sys is: on the machine itself, or in a container that has it"),
        }];
    }
    vec![Found {
        what: "there is no GPU".into(),
        evidence: vec!["/sys/bus/pci/devices lists no display controller".into()],
        fix: Fix::text("nothing to repair; the route cpu works"),
    }]
}

fn no_amd_gpu(facts: &Facts) -> Vec<Found> {
    if facts.gpus.is_empty() || facts.host.wsl.is_some() || amd(facts).next().is_some() {
        return Vec::new();
    }
    vec![Found {
        what: "no GPU here is AMD's".into(),
        evidence: facts.gpus.iter().map(label).collect(),
        fix: Fix::text("nothing to repair; use the route vulkan"),
    }]
}

fn unknown_target(facts: &Facts) -> Vec<Found> {
    let unknown = amd(facts).filter(|g| g.target.is_none());
    let found = unknown.map(|gpu| Found {
        what: format!("{}: its target is not known", label(gpu)),
        evidence: vec![format!("PCI {:04x}:{:04x}", gpu.vendor, gpu.device)],
        fix: Fix::text("`rocminfo` names the target, if ROCm is installed"),
    });
    found.collect()
}

fn kernel_driver(facts: &Facts) -> Vec<Found> {
    let bound = |gpu: &Gpu| gpu.driver.as_deref().is_some_and(|d| d == "amdgpu");
    let found = amd(facts).filter(|g| g.target.is_some() && !bound(g)).map(|gpu| {
        let driver = gpu.driver.as_deref().unwrap_or("no driver");
        let fix = match driver {
            "vfio-pci" => {
                Fix::text("the card is set aside for a virtual machine; use it there, or give it back")
            }
            _ => Fix::run(
                "load the driver and see what the kernel says",
                &["sudo modprobe amdgpu", "sudo dmesg | grep amdgpu"],
            ),
        };
        Found {
            what: format!("{} is bound to {driver}, not to amdgpu", label(gpu)),
            evidence: Vec::new(),
            fix,
        }
    });
    found.collect()
}

fn usable(facts: &Facts) -> bool {
    amd(facts).any(|g| g.driver.as_deref() == Some("amdgpu"))
}

fn has_kfd(facts: &Facts) -> bool {
    facts.devices.iter().any(|d| d.path == "/dev/kfd")
}

fn container_without_kfd(facts: &Facts) -> Vec<Found> {
    match &facts.host.container {
        Some(why) if usable(facts) && !has_kfd(facts) => vec![Found {
            what: "this container has no /dev/kfd".into(),
            evidence: vec![why.clone()],
            fix: Fix::run(
                "start the container with the card's devices and groups",
                &["docker run --device=/dev/kfd --device=/dev/dri --group-add video --group-add render ..."],
            ),
        }],
        _ => Vec::new(),
    }
}

fn no_kfd(facts: &Facts) -> Vec<Found> {
    if facts.host.container.is_some() || !usable(facts) || has_kfd(facts) {
        return Vec::new();
    }
    vec![Found {
        what: "there is no /dev/kfd".into(),
        evidence: vec![
            if facts.kfd.present { "KFD's topology is in /sys" } else { "/sys has no KFD topology" }.into(),
        ],
        fix: Fix::text(
            "boot a kernel with CONFIG_HSA_AMD (every large distribution's has it), and see `sudo dmesg | grep kfd`",
        ),
    }]
}

fn container_without_render_node(facts: &Facts) -> Vec<Found> {
    let none = !facts.devices.iter().any(|d| d.path.starts_with("/dev/dri/"));
    match &facts.host.container {
        Some(why) if usable(facts) && none => vec![Found {
            what: "this container has no render node in /dev/dri".into(),
            evidence: vec![why.clone()],
            fix: Fix::run(
                "start the container with the card's devices",
                &["docker run --device=/dev/kfd --device=/dev/dri --group-add video --group-add render ..."],
            ),
        }],
        _ => Vec::new(),
    }
}

fn permission(facts: &Facts, which: fn(&str) -> bool) -> Vec<Found> {
    let denied = facts.devices.iter().filter(|d| which(&d.path) && d.usable == Some(false));
    let ours = |path: &str| path == "/dev/kfd" || amd(facts).any(|g| g.render_node.as_deref() == Some(path));
    let found = denied.filter(|d| ours(&d.path)).map(|device| {
        let user = facts.user.name.as_deref().unwrap_or("you");
        let group = &device.group;
        let fix = if facts.host.container.is_some() {
            let command = format!("docker run --device={} --group-add {group} ...", device.path);
            Fix::run("start the container with the device's group", &[&command])
        } else if facts.user.after_login.contains(group) {
            Fix::text(format!("{user} is in the group {group} since the last login: log out and in again"))
        } else if device.mode.ends_with("60") {
            let command = format!("sudo usermod -aG {group} {user}");
            Fix::run("join the group, then log out and in again", &[&command])
        } else {
            Fix::text(format!(
                "the group {group} may not write it either: reinstall the udev rules of your distribution"
            ))
        };
        Found {
            what: format!("{user} may not open {}", device.path),
            evidence: vec![
                format!("{} has mode {} and group {group}", device.path, device.mode),
                format!("{user} is in {}", facts.user.groups.join(", ")),
            ],
            fix,
        }
    });
    found.collect()
}

fn not_in_kfd(facts: &Facts) -> Vec<Found> {
    if !facts.kfd.present {
        return Vec::new();
    }
    let listed = |gpu: &Gpu| facts.kfd.nodes.iter().any(|n| n.address == gpu.address);
    let left_out =
        amd(facts).filter(|g| g.target.is_some() && g.driver.as_deref() == Some("amdgpu") && !listed(g));
    let found = left_out.map(|gpu| {
        let said = facts.log.events.iter().find(|e| e.kind == "atomics").map(|e| format!("kernel: {}", e.line));
        Found {
            what: format!("{} is not in KFD's topology", label(gpu)),
            evidence: said.into_iter().collect(),
            fix: Fix::text("put the card into a slot that is wired to the CPU, without a riser; then see `sudo dmesg | grep kfd`"),
        }
    });
    found.collect()
}

fn kfd_target(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    for gpu in amd(facts).filter(|g| g.target_from != Some("kfd")) {
        let node = facts.kfd.nodes.iter().find(|n| n.address == gpu.address);
        if let (Some(is), Some(said)) = (&gpu.target, node.and_then(|n| n.target.as_ref()))
            && is != said
        {
            found.push(Found {
                what: format!("{} is {is}, and the kernel calls it {said}", label(gpu)),
                evidence: vec![format!("/sys/class/kfd/kfd/topology/nodes/{}", node.map_or(0, |n| n.node))],
                fix: Fix::text("boot your distribution's own kernel and its own amdgpu module"),
            });
        }
    }
    found
}

fn no_atomics(facts: &Facts) -> Vec<Found> {
    let without = facts.kfd.nodes.iter().filter(|n| n.atomics == Some(false));
    let found = without.map(|node| Found {
        what: format!("no PCIe atomics between the CPU and the card at {}", node.address),
        evidence: vec![format!("/sys/class/kfd/kfd/topology/nodes/{}/io_links says so", node.node)],
        fix: Fix::text("put the card into a slot that is wired to the CPU, without a riser; or use the route vulkan, which needs none"),
    });
    found.collect()
}
