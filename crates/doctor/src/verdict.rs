//! Which routes work here, and why not.

use crate::facts::{Facts, Torch};
use crate::finding::{Finding, Fix, Severity};
use crate::native;
use crate::rules::findings;
use crate::rules::own::convolves;
use crate::rules::stack::fits_wave;
use serde::Serialize;
use wave32_cards::targets;
use wave32_host::torch;
use wave32_profile::Route;

/// How a route stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing speaks against it.
    Ready,
    /// It may work, and may hang, fault or compute wrongly.
    Risky,
    /// A part of it is not there.
    Absent,
    /// The parts are there, and it cannot work.
    Broken,
}

impl State {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Risky => "risky",
            Self::Absent => "not here",
            Self::Broken => "broken",
        }
    }
}

/// A route's verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouteVerdict {
    /// The route.
    pub route: Route,
    /// How it stands.
    pub state: State,
    /// The worst reason, in a line.
    pub because: String,
    /// The rules that bear on it, worst first.
    pub rules: Vec<&'static str>,
    /// The next step.
    pub next: String,
}

/// Everything that the doctor says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Of this format; 1.
    pub format: u32,
    /// By route.
    pub verdicts: Vec<RouteVerdict>,
    /// The route to take.
    pub best: Route,
    /// What was found, worst first.
    pub findings: Vec<Finding>,
    /// Ways to a PyTorch with the cards' own code objects.
    pub native_pytorch: Vec<native::Way>,
    /// What the rules went by.
    pub facts: Facts,
}

impl Diagnosis {
    /// Applies the rules.
    pub fn of(facts: Facts) -> Self {
        let findings = findings(&facts);
        let verdicts: Vec<RouteVerdict> =
            Route::ALL.iter().map(|route| verdict(&facts, &findings, *route)).collect();
        let best = best(&facts, &verdicts);
        let native_pytorch = native::ways(&facts);
        Self { format: 1, verdicts, best, findings, native_pytorch, facts }
    }

    /// True if nothing has to be put right.
    pub fn is_well(&self) -> bool {
        !self.findings.iter().any(|f| f.severity.is_wrong())
    }
}

fn verdict(facts: &Facts, findings: &[Finding], route: Route) -> RouteVerdict {
    let mine: Vec<&Finding> = findings.iter().filter(|f| f.routes.contains(&route)).collect();
    let of = |severity| mine.iter().copied().find(|f| f.severity == severity);
    // Without a card nothing else counts.
    let no_card = mine.iter().copied().find(|f| matches!(f.rule, "no-gpu" | "no-amd-gpu" | "wsl-no-gpu"));
    let (state, reason) = if let Some(finding) = no_card.or_else(|| of(Severity::Broken)) {
        (if no_card.is_some() { State::Absent } else { State::Broken }, Some(finding))
    } else if let Some(finding) = of(Severity::Absent) {
        (State::Absent, Some(finding))
    } else if let Some(finding) = of(Severity::Harmful) {
        (State::Risky, Some(finding))
    } else {
        (State::Ready, None)
    };
    if let (State::Ready, Route::Rocm, None, Some(torch)) = (state, route, native_torch(facts), unread(facts))
    {
        // What was not read is neither there nor missing.
        let because = format!("{} was not read to its end", torch.path);
        let next = "`wave32 doctor --thorough`".into();
        return RouteVerdict { route, state: State::Risky, because, rules: rules(&mine), next };
    }
    if let (State::Ready, Route::Rocm, Some(_)) = (state, route, &facts.host.wsl) {
        let because = "which card Windows lends is not told here, and ROCm supports few under WSL".into();
        let next = "`HSA_ENABLE_DXG_DETECTION=1 rocminfo` lists the card if ROCm supports it".into();
        return RouteVerdict { route, state: State::Risky, because, rules: rules(&mine), next };
    }
    let because = reason.map_or_else(|| good(facts, route), |f| f.what.clone());
    let next = reason.map_or_else(|| start(facts, route), |f| step(&f.fix));
    RouteVerdict { route, state, because, rules: rules(&mine), next }
}

fn rules(findings: &[&Finding]) -> Vec<&'static str> {
    findings.iter().map(|f| f.rule).collect()
}

/// Why a route is ready.
fn good(facts: &Facts, route: Route) -> String {
    match route {
        Route::Rocm => match native_torch(facts) {
            Some(torch) => match convolves(facts, torch) {
                Some(own) => format!(
                    "PyTorch {} has this card's own code, and its convolutions are wave32's ({})",
                    torch.version, own.version
                ),
                None => format!("PyTorch {} has this card's own code", torch.version),
            },
            None => "nothing speaks against it".into(),
        },
        Route::Vulkan => {
            let devices = facts.vulkan.devices.iter().flatten();
            let card = devices.filter(|d| d.unusable.is_none()).find(|d| !d.is_software());
            match (card, facts.gpus.first()) {
                (Some(device), _) => format!("{} ({})", device.name, device.driver),
                (None, Some(gpu)) => format!("{}; its drivers were not asked", gpu.name),
                (None, None) => "nothing speaks against it".into(),
            }
        }
        Route::Cpu => "always works".into(),
    }
}

fn native_torch(facts: &Facts) -> Option<&Torch> {
    let cards = facts.cards();
    facts
        .torches
        .iter()
        .find(|t| t.hip.is_some() && cards.iter().any(|card| targets::runs_on(&t.targets, card)))
}

/// A PyTorch for ROCm whose code objects are not all known.
fn unread(facts: &Facts) -> Option<&Torch> {
    facts.torches.iter().find(|t| t.hip.is_some() && !t.complete)
}

/// The first command on a route that is ready.
fn start(facts: &Facts, route: Route) -> String {
    match route {
        Route::Rocm if native_torch(facts).is_some_and(|torch| convolves(facts, torch).is_some()) => {
            "`wave32 verify --device hip` proves its kernels".into()
        }
        Route::Rocm => "`wave32 run --route rocm -- CMD` starts a program on wave32's convolutions; `wave32 probe` finds \
                        which of MIOpen's own are safe here"
            .into(),
        Route::Vulkan if !facts.torches.iter().any(fits_wave) => format!(
            "`wave32 verify` proves it; then, in wave32's folder and an environment with PyTorch {}, `pip install .`",
            torch::range()
        ),
        Route::Vulkan => {
            "`wave32 verify` proves it; then `pip install .` in wave32's folder, and device \"wave\" in PyTorch".into()
        }
        Route::Cpu => "`wave32 verify --device cpu` proves it".into(),
    }
}

/// A fix in a line.
pub fn step(fix: &Fix) -> String {
    match fix {
        Fix::UnsetVariable { name, places, .. } => match places.first() {
            Some(place) => format!("take {name} out of {}:{}", place.file, place.line),
            None => format!("unset {name}"),
        },
        Fix::RemoveLeftover { path } => format!("remove {path}"),
        Fix::Restore { text, .. } => format!("{text} (`sudo wave32 doctor --fix --system` does it)"),
        Fix::Run { commands, .. } if commands.len() == 1 => format!("`{}`", commands[0]),
        Fix::Run { text, .. } | Fix::Text { text } => text.clone(),
    }
}

fn best(facts: &Facts, verdicts: &[RouteVerdict]) -> Route {
    let ready = |route: Route| verdicts.iter().any(|v| v.route == route && v.state == State::Ready);
    let rdna1 = facts.gpus.iter().filter_map(|g| g.target.as_deref()).any(targets::is_rdna1);
    // MIOpen is unproven on RDNA1; on other cards a native PyTorch with ROCm has the most operations.
    let order = if rdna1 { [Route::Vulkan, Route::Rocm] } else { [Route::Rocm, Route::Vulkan] };
    order.into_iter().find(|route| ready(*route)).unwrap_or(Route::Cpu)
}
