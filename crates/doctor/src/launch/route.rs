//! Which route a program takes.

use std::path::Path;
use std::str::FromStr;

/// A way to run a network here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// PyTorch for ROCm, on MIOpen or what takes its place.
    Rocm,
    /// PyTorch's device `wave`.
    Vulkan,
    /// No GPU.
    Cpu,
}

impl Route {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rocm => "rocm",
            Self::Vulkan => "vulkan",
            Self::Cpu => "cpu",
        }
    }
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::Rocm, Self::Vulkan, Self::Cpu].into_iter().find(|route| route.name() == text);
        found.ok_or_else(|| "must be rocm, vulkan or cpu".into())
    }
}

/// What a choice depends on; each route's device, or why there is none.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The Vulkan device that would be used.
    pub vulkan: Result<String, String>,
    /// It is a GPU and no program that plays one.
    pub vulkan_is_gpu: bool,
    /// The GPU that ROCm would use.
    pub rocm: Result<String, String>,
}

impl Machine {
    /// What the kernel tells of GPUs for ROCm under `root` (`/`).
    pub fn rocm(root: &Path) -> Result<String, String> {
        let nodes = root.join("sys/class/kfd/kfd/topology/nodes");
        let targets = gpu_targets(&nodes);
        if !root.join("dev/kfd").exists() {
            return Err(match targets.first() {
                Some(_) => {
                    "there is no /dev/kfd here: a container needs --device=/dev/kfd --device=/dev/dri".into()
                }
                None => {
                    "there is no /dev/kfd: the amdgpu driver is not loaded, or has no GPU for ROCm".into()
                }
            });
        }
        let first = targets.first().map(|version| target_name(*version));
        first.ok_or_else(|| format!("the kernel lists no GPU for ROCm in {}", nodes.display()))
    }
}

/// The targets of all GPUs that KFD lists: `gfx_target_version`, 100100 for gfx1010; CPUs have 0.
pub(super) fn gpu_targets(nodes: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(nodes) else { return Vec::new() };
    let texts = entries.flatten().filter_map(|e| std::fs::read_to_string(e.path().join("properties")).ok());
    let version = |text: String| {
        let line =
            text.lines().find_map(|line| line.strip_prefix("gfx_target_version "))?.trim().parse().ok();
        line.filter(|&version: &u32| version > 0)
    };
    texts.filter_map(version).collect()
}

/// `gfx1010` for 100100: major, minor and stepping, the last two as hexadecimal digits.
pub(super) fn target_name(version: u32) -> String {
    format!("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100)
}

/// A route and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The route.
    pub route: Route,
    /// Its device, or the reason for it, in a few words.
    pub why: String,
}

/// A route that was asked for and cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("route {} cannot be had: {why}", route.name())]
pub struct NoRoute {
    /// The route.
    pub route: Route,
    /// Why, in one line.
    pub why: String,
}

/// The route asked for, or else the best: a GPU through Vulkan, whose promises are ours, then one through ROCm, then none.
///
/// # Errors
/// [`NoRoute`] where the one asked for has no device.
pub fn choose(asked: Option<Route>, machine: &Machine) -> Result<Choice, NoRoute> {
    let choice = |route, why: &str| Choice { route, why: why.into() };
    let no = |route, why: &String| NoRoute { route, why: why.clone() };
    match asked {
        Some(Route::Vulkan) => {
            machine.vulkan.as_ref().map(|d| choice(Route::Vulkan, d)).map_err(|w| no(Route::Vulkan, w))
        }
        Some(Route::Rocm) => {
            machine.rocm.as_ref().map(|d| choice(Route::Rocm, d)).map_err(|w| no(Route::Rocm, w))
        }
        Some(Route::Cpu) => Ok(choice(Route::Cpu, "asked for")),
        None => Ok(match (&machine.vulkan, &machine.rocm) {
            (Ok(device), _) if machine.vulkan_is_gpu => choice(Route::Vulkan, device),
            (_, Ok(device)) => choice(Route::Rocm, device),
            _ => choice(Route::Cpu, "no GPU found, `wave32 devices` tells why"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(vulkan: bool, is_gpu: bool, rocm: bool) -> Machine {
        let answer =
            |yes: bool, name: &str| if yes { Ok(name.to_string()) } else { Err(format!("no {name}")) };
        Machine { vulkan: answer(vulkan, "v"), vulkan_is_gpu: is_gpu, rocm: answer(rocm, "r") }
    }

    #[test]
    fn the_best_route_is_taken() {
        for (machine, expected) in [
            (machine(true, true, true), Route::Vulkan),
            (machine(true, false, true), Route::Rocm),
            (machine(false, false, true), Route::Rocm),
            (machine(true, false, false), Route::Cpu),
            (machine(false, false, false), Route::Cpu),
        ] {
            assert_eq!(choose(None, &machine).map(|c| c.route), Ok(expected), "{machine:?}");
        }
    }

    #[test]
    fn a_route_asked_for_is_taken_or_refused() {
        let software = machine(true, false, false);
        assert_eq!(choose(Some(Route::Vulkan), &software).map(|c| c.why), Ok("v".into()));
        let refused = choose(Some(Route::Rocm), &software).map_err(|e| e.to_string());
        assert_eq!(refused, Err("route rocm cannot be had: no r".into()));
        assert!(choose(Some(Route::Cpu), &machine(false, false, false)).is_ok());
    }

    #[test]
    fn kfd_targets_are_named() {
        let names: Vec<_> = [100_100, 100_102, 100_300, 90_010, 110_000].map(target_name).into();
        assert_eq!(names, ["gfx1010", "gfx1012", "gfx1030", "gfx90a", "gfx1100"]);
    }

    #[test]
    fn a_machine_is_read_under_its_root() {
        let root = tempfile::tempdir().unwrap();
        assert!(Machine::rocm(root.path()).unwrap_err().contains("no /dev/kfd"));
        for (node, version) in [("0", 0), ("1", 100_100)] {
            let folder = root.path().join("sys/class/kfd/kfd/topology/nodes").join(node);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(
                folder.join("properties"),
                format!("cpu_cores_count 0\ngfx_target_version {version}\n"),
            )
            .unwrap();
        }
        assert!(Machine::rocm(root.path()).unwrap_err().contains("container"));
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/kfd"), "").unwrap();
        assert_eq!(Machine::rocm(root.path()), Ok("gfx1010".into()));
    }
}
