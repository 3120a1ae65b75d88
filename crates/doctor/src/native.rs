//! The exact way to a PyTorch with a card's own code objects.

use crate::facts::{Facts, Torch};
use crate::finding::Fix;
use serde::Serialize;
use wave32_cards::targets;

/// TheRock's index of releases.
const STABLE: &str = "https://stable.repo.amd.com/rocm/whl-next/";
/// Targets that are known to have packages there (ComfyUI's installation guide, AMD's index pages; for gfx1010 its owner's
/// report below). For others the nightly index is named, whose extras RELEASES.md lists.
const RELEASED: &[&str] =
    &["gfx1010", "gfx1031", "gfx1032", "gfx1100", "gfx1101", "gfx1102", "gfx1151", "gfx1200", "gfx1201"];
/// An RX 5600M with torch 2.12.0+rocm10.1.0 of that index, October 2026.
const REPORT: &str =
    "https://github.com/Comfy-Org/comfy-kitchen/blob/9c485ba/comfy_kitchen/backends/rdna1/README.md";
/// TheRock's index of every night's builds for every target, and where it is described.
const NIGHTLY: &str = "https://rocm.nightlies.amd.com/whl-multi-arch/";
const RELEASES: &str = "https://github.com/ROCm/TheRock/blob/main/RELEASES.md";
/// Targets older than RDNA with a `device-` extra there (RELEASES.md, August 2026).
const OLDER: &[&str] = &["gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"];

/// A way to a native PyTorch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Way {
    /// The card's target.
    pub target: String,
    /// What it is.
    pub name: &'static str,
    /// What is known of it, and what is not.
    pub note: String,
    /// Commands, in order; none where it is there already.
    pub commands: Vec<String>,
    /// Where that is known from.
    pub source: &'static str,
}

/// The ways for every card here, the surest first.
pub fn ways(facts: &Facts) -> Vec<Way> {
    let mut cards = facts.cards();
    cards.sort_unstable();
    cards.into_iter().flat_map(|card| for_card(facts, card)).collect()
}

fn for_card(facts: &Facts, card: &str) -> Vec<Way> {
    let way = |name, note: String, commands: Vec<String>, source| Way {
        target: card.to_string(),
        name,
        note,
        commands,
        source,
    };
    let native = |t: &&Torch| t.hip.is_some() && targets::runs_on(&t.targets, card);
    if let Some(torch) = facts.torches.iter().find(native) {
        let note = format!("{} ({}) has code for {card}", torch.path, torch.version);
        return vec![way("installed", note, Vec::new(), "its own code objects")];
    }
    let mut ways = Vec::new();
    if OLDER.contains(&card) || targets::by_name(card).is_some_and(|target| target.rocm_wheels) {
        let released = RELEASED.contains(&card);
        let (index, kind) = if released { (STABLE, "released") } else { (NIGHTLY, "nightly") };
        let mut note = format!(
            "AMD's {kind} wheels, Python 3.11 to 3.14; they bring their own ROCm, so the ROCm of the system is not used. For \
             RDNA1 they are built and not tested on cards by AMD"
        );
        if card == "gfx1010" {
            note += &format!("; an owner of an RX 5600M ran torch 2.12.0+rocm10.1.0 of them ({REPORT})");
        }
        if released {
            note += &format!(". Newer builds: {NIGHTLY}");
        }
        let commands = vec![
            "python3 -m venv torch-rocm".to_string(),
            format!(
                "torch-rocm/bin/pip install --index-url {index} \"torch[device-{card}]\" \"torchvision[device-{card}]\""
            ),
            "wave32 doctor --python torch-rocm/bin/python".to_string(),
        ];
        ways.push(way("TheRock wheels", note, commands, RELEASES));
    }
    let ubuntu = facts.host.like.first().is_some_and(|id| id == "ubuntu");
    let release = facts.host.version.as_deref().and_then(|v| v.split('.').next()?.parse::<u32>().ok());
    if ubuntu && release.is_some_and(|r| r >= 26) {
        let note = format!(
            "Ubuntu's own package; whether it has {card} is seen after installing, by `wave32 doctor`"
        );
        let commands = vec!["sudo apt install python3-torch-rocm".to_string()];
        ways.push(way(
            "distribution package",
            note,
            commands,
            "https://packages.ubuntu.com/resolute/python3-torch-rocm",
        ));
    }
    if facts.host.like.iter().any(|l| l == "arch") {
        let note =
            format!("Arch's own package; whether it has {card} is seen after installing, by `wave32 doctor`");
        let commands = vec!["sudo pacman -S python-pytorch-rocm".to_string()];
        let source = "https://archlinux.org/packages/extra/x86_64/python-pytorch-rocm";
        ways.push(way("distribution package", note, commands, source));
    }
    let note = "from source, for this card alone; half an hour to hours".to_string();
    let commands = vec![format!("wave32 build-torch --plan --target {card}")];
    ways.push(way("build", note, commands, "https://github.com/pytorch/pytorch#from-source"));
    ways
}

/// The first way, as a fix.
pub fn fix(facts: &Facts, card: &str) -> Fix {
    let ways = for_card(facts, card);
    match ways.first() {
        Some(way) if way.commands.is_empty() => {
            Fix::Text { text: format!("use the PyTorch that has it: {}", way.note) }
        }
        Some(way) => Fix::Run { text: format!("{}: {}", way.name, way.note), commands: way.commands.clone() },
        None => Fix::Text { text: "build PyTorch for this card".into() },
    }
}
