//! Which route a program takes.

use std::path::Path;
use wave32_profile::{NoRoute, Route};

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
    /// What stands in ROCm's way to the first of `cards`, the kernel's list of its GPUs, under `root` (`/`).
    ///
    /// # Errors
    /// Why ROCm has no GPU here, in one line.
    pub fn rocm(root: &Path, cards: &[String]) -> Result<String, String> {
        match (root.join("dev/kfd").exists(), cards.first()) {
            (true, Some(card)) => Ok(card.clone()),
            (true, None) => Err("the kernel lists no GPU for ROCm".into()),
            (false, Some(_)) => {
                Err("there is no /dev/kfd here: a container needs --device=/dev/kfd --device=/dev/dri".into())
            }
            (false, None) => {
                Err("there is no /dev/kfd: the amdgpu driver is not loaded, or has no GPU for ROCm".into())
            }
        }
    }
}

/// A route and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteChoice {
    /// The route.
    pub route: Route,
    /// Its device, or the reason for it, in a few words.
    pub why: String,
}

/// The route asked for, or else the best: a GPU through Vulkan, whose promises are ours, then one through ROCm, then none.
///
/// # Errors
/// [`NoRoute`] where the one asked for has no device.
pub fn choose(asked: Option<Route>, machine: &Machine) -> Result<RouteChoice, NoRoute> {
    let choice = |route, why: &str| RouteChoice { route, why: why.into() };
    let no = |route: Route, why: &String| NoRoute {
        why: format!("route {} cannot be had: {why}", route.name()),
        next: "`wave32 run -- ...` takes the best route there is".into(),
    };
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
        assert_eq!(
            refused,
            Err("route rocm cannot be had: no r; `wave32 run -- ...` takes the best route there is".into())
        );
        assert!(choose(Some(Route::Cpu), &machine(false, false, false)).is_ok());
    }

    #[test]
    fn rocm_needs_a_card_and_its_door() {
        let root = tempfile::tempdir().unwrap();
        let card = ["gfx1010".to_string()];
        assert!(Machine::rocm(root.path(), &[]).unwrap_err().contains("no /dev/kfd: the amdgpu driver"));
        assert!(Machine::rocm(root.path(), &card).unwrap_err().contains("container"));
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/kfd"), "").unwrap();
        assert!(Machine::rocm(root.path(), &[]).unwrap_err().contains("lists no GPU"));
        assert_eq!(Machine::rocm(root.path(), &card), Ok("gfx1010".into()));
    }
}
