//! Which environment variables a card, a stack and a route need, each with its reason and source, and how shells say
//! them. Nothing here reads or changes a machine.
#![forbid(unsafe_code)]

mod rocm;
mod shell;

pub use shell::Dialect;

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// How convolutions get to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// PyTorch for ROCm, with MIOpen.
    Rocm,
    /// PyTorch's device `wave`.
    Vulkan,
    /// The CPU.
    Cpu,
}

impl Route {
    /// Every route, the best first.
    pub const ALL: [Self; 3] = [Self::Rocm, Self::Vulkan, Self::Cpu];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rocm => "rocm",
            Self::Vulkan => "vulkan",
            Self::Cpu => "cpu",
        }
    }
}

/// A version of ROCm, as far as profiles depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RocmVersion {
    /// 5 of 5.7.1.
    pub major: u32,
    /// 7 of 5.7.1.
    pub minor: u32,
}

impl std::str::FromStr for RocmVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = text.trim().splitn(3, ['.', '-']).map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Self { major, minor }),
            _ => Err(format!("`{text}` is no ROCm version; write it like 5.7 or 6.2.4")),
        }
    }
}

impl fmt::Display for RocmVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What profiles depend on. Whoever knows the machine fills it in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Situation {
    /// The gfx target of each AMD GPU, in the order in which the ROCm runtime numbers them.
    pub cards: Vec<String>,
    /// Of the MIOpen that PyTorch loads.
    pub rocm: Option<RocmVersion>,
    /// Of the system's one ROCm: a wheel of PyTorch may bring another one.
    pub system: Option<RocmVersion>,
    /// The gfx targets that PyTorch and its libraries have code objects for; nothing if nobody looked.
    pub code_objects: Option<BTreeSet<String>>,
    /// The card's number among the Vulkan devices, if it is not the one taken anyhow.
    pub vulkan_device: Option<u32>,
}

/// What is to be done with a variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It must have this value.
    Set(String),
    /// It must not be there; empty is not enough.
    Unset,
}

/// One variable of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub action: Action,
    /// Why.
    pub why: String,
    /// Where that can be read.
    pub source: String,
}

impl Setting {
    /// It must have this value.
    #[must_use]
    pub fn set(name: &str, value: &str, why: impl Into<String>, source: &str) -> Self {
        let action = Action::Set(value.into());
        Self { name: name.into(), action, why: why.into(), source: source.into() }
    }

    /// It must not be there.
    #[must_use]
    pub fn unset(name: &str, why: impl Into<String>, source: &str) -> Self {
        Self { name: name.into(), action: Action::Unset, why: why.into(), source: source.into() }
    }
}

/// The environment of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// The route.
    pub route: Route,
    /// What it is, in a few words.
    pub title: String,
    /// The variables, in the order in which they should be read.
    pub settings: Vec<Setting>,
    /// What the user must know.
    pub warnings: Vec<String>,
}

/// Why a route has no environment here, and what to do instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {next}")]
pub struct NoRoute {
    /// Why not.
    pub why: String,
    /// What else.
    pub next: String,
}

/// The route to take if none is asked for: ROCm only where it is known to have this card's own code. Nothing is
/// chosen for a machine without an AMD card: other GPUs must not be hidden unasked.
#[must_use]
pub fn best_route(situation: &Situation) -> Option<Route> {
    let native = |objects| situation.cards.iter().any(|card| rocm::runs(card, objects));
    match &situation.code_objects {
        _ if situation.cards.is_empty() => None,
        Some(objects) if native(objects) => Some(Route::Rocm),
        _ => Some(Route::Vulkan),
    }
}

/// The environment for `route`.
///
/// # Errors
/// [`NoRoute`] where the route does not work on this machine; it says why.
pub fn profile(situation: &Situation, route: Route, allow_spoof: bool) -> Result<Profile, NoRoute> {
    match route {
        Route::Rocm => rocm::profile(situation, allow_spoof),
        Route::Vulkan => {
            let mut settings = hidden_from_torch(
                "so that PyTorch starts no GPU of its own beside `wave`: it serves one a process",
            );
            if let Some(index) = situation.vulkan_device {
                let why = "the Vulkan device to use, as `wave32 devices` numbers them";
                settings.push(Setting::set(
                    "WAVE32_VISIBLE_DEVICES",
                    &index.to_string(),
                    why,
                    "docs/torch.md",
                ));
            }
            Ok(Profile {
                route,
                title: "PyTorch's device `wave` over Vulkan".into(),
                settings,
                warnings: vec![],
            })
        }
        Route::Cpu => {
            let settings = hidden_from_torch("so that PyTorch sees no GPU, even where a script asks for one");
            Ok(Profile { route, title: "the CPU alone".into(), settings, warnings: vec![] })
        }
    }
}

/// The variables by which builds of PyTorch for ROCm and CUDA pick their GPUs.
fn hidden_from_torch(why: &str) -> Vec<Setting> {
    // -1, not empty: HIP takes an empty list for no list.
    let source = "https://github.com/ROCm/clr/blob/f9f995c/rocclr/device/rocm/rocdevice.cpp";
    let cuda = "https://github.com/pytorch/pytorch/blob/main/torch/cuda/__init__.py";
    let names = [("HIP_VISIBLE_DEVICES", source), ("CUDA_VISIBLE_DEVICES", cuda)];
    names.into_iter().map(|(name, source)| Setting::set(name, "-1", why, source)).collect()
}
