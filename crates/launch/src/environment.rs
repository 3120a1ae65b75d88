//! What a route's environment differs in from the one there is.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use wave32_cards::targets;
use wave32_host::own;
use wave32_profile::{self as profile, Route, Situation};

/// Variables by name.
pub type Variables = BTreeMap<OsString, OsString>;

/// What happens to a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It gets this value.
    Set(OsString),
    /// It gets this in front of its value, with a colon between.
    Prepend(OsString),
    /// It is removed.
    Unset,
}

/// A change of one variable, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The variable.
    pub name: String,
    /// What happens to it.
    pub action: Action,
    /// Why, for people.
    pub reason: String,
}

impl Change {
    /// A change.
    pub fn new(name: &str, action: Action, reason: impl Into<String>) -> Self {
        Self { name: name.into(), action, reason: reason.into() }
    }

    /// The value after it; none where there is none.
    pub fn value(&self, before: Option<&OsStr>) -> Option<OsString> {
        match &self.action {
            Action::Set(value) => Some(value.clone()),
            Action::Unset => None,
            Action::Prepend(first) => {
                let mut value = first.clone();
                if let Some(rest) = before.filter(|rest| !rest.is_empty()) {
                    value.push(":");
                    value.push(rest);
                }
                Some(value)
            }
        }
    }
}

impl From<profile::Setting> for Change {
    fn from(setting: profile::Setting) -> Self {
        let action = match setting.action {
            profile::Action::Set(value) => Action::Set(value.into()),
            profile::Action::Unset => Action::Unset,
        };
        Self { name: setting.name, action, reason: setting.why }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, action, reason } = self;
        match action {
            Action::Unset => write!(f, "removed {name} ({reason})"),
            Action::Set(value) => write!(f, "set {name}={} ({reason})", value.to_string_lossy()),
            Action::Prepend(value) => write!(f, "put {} before {name} ({reason})", value.to_string_lossy()),
        }
    }
}

/// What the changes depend on.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// `/`, or a recorded tree.
    pub root: PathBuf,
    /// The environment there is.
    pub variables: Variables,
    /// Folders where parts of wave32 may lie: beside the program.
    pub folders: Vec<PathBuf>,
    /// ROCm's cards, its version, and what PyTorch has code for.
    pub situation: Situation,
    /// Vulkan's indices of the GPUs, for programs of one process a card.
    pub cards: Vec<String>,
    /// MIOpen shall tell which problems it is given.
    pub log_miopen: bool,
}

impl Surroundings {
    /// This process' own: `/`, its environment, and the folders beside its program.
    pub fn here(situation: Situation) -> Self {
        Self {
            root: "/".into(),
            variables: std::env::vars_os().collect(),
            folders: own::folders(),
            situation,
            cards: Vec::new(),
            log_miopen: false,
        }
    }

    fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }
}

/// The changes of a route, least first; names each variable once at most.
pub fn changes(route: Route, around: &Surroundings) -> Vec<Change> {
    let mut changes = match route {
        Route::Vulkan => vulkan(around),
        Route::Rocm => rocm(around),
        Route::Cpu => cpu(around),
    };
    if around.log_miopen {
        let reason = "so that a hang can be told with its shape";
        changes.push(Change::new("MIOPEN_ENABLE_LOGGING_CMD", Action::Set("1".into()), reason));
    }
    // What is as it should be is no change.
    changes.retain(|change| change.value(around.get(&change.name)).as_deref() != around.get(&change.name));
    changes
}

/// One line about what the user had set otherwise; none where nothing was.
pub fn corrections(changes: &[Change], before: &Variables) -> Option<String> {
    let corrected = changes
        .iter()
        .filter(|c| before.contains_key(OsStr::new(&c.name)) && !matches!(c.action, Action::Prepend(_)));
    let told: Vec<String> = corrected.map(Change::to_string).collect();
    if told.is_empty() { None } else { Some(told.join("; ")) }
}

/// Scripts that say `cuda` run on `wave`; the vendor's runtimes see no card, as torch serves one kind a process.
fn vulkan(around: &Surroundings) -> Vec<Change> {
    let mut changes = vec![
        Change::new("WAVE32_CUDA", Action::Set("wave".into()), "scripts' cuda is the device wave"),
        Change::new("HSA_OVERRIDE_GFX_VERSION", Action::Unset, "it is ROCm's, which this route does not use"),
    ];
    if around.get("TORCH_DEVICE_BACKEND_AUTOLOAD").is_some() {
        let reason = "torch must load the device by itself";
        changes.push(Change::new("TORCH_DEVICE_BACKEND_AUTOLOAD", Action::Set("1".into()), reason));
    }
    if around.cards.len() > 1 {
        let cards = around.cards.join(",");
        changes.push(Change::new(
            "WAVE32_CARDS",
            Action::Set(cards.into()),
            "torchrun's processes take one each",
        ));
    }
    changes.extend(hidden(Route::Vulkan, around));
    changes
}

/// No GPU at all.
fn cpu(around: &Surroundings) -> Vec<Change> {
    let mut changes = vec![
        Change::new("WAVE32_CUDA", Action::Unset, "this route uses no GPU"),
        Change::new("TORCH_DEVICE_BACKEND_AUTOLOAD", Action::Set("0".into()), "this route uses no GPU"),
    ];
    changes.extend(hidden(Route::Cpu, around));
    changes
}

/// The profile's variables that keep torch's own CUDA or ROCm from taking a card, where there is one for them.
fn hidden(route: Route, around: &Surroundings) -> Vec<Change> {
    let (rocm, cuda) = (around.has("dev/kfd"), around.has("dev/nvidiactl"));
    let mut changes = of_profile(route, around);
    changes.retain(|change| if change.name == "HIP_VISIBLE_DEVICES" { rocm } else { rocm || cuda });
    changes
}

/// What [`profile`] says of a route. It refuses none that has a device, as long as nobody looked into PyTorch.
fn of_profile(route: Route, around: &Surroundings) -> Vec<Change> {
    match profile::profile(&around.situation, route, false) {
        Ok(profile) => {
            profile.warnings.iter().for_each(|warning| log::info!("{warning}"));
            profile.settings.into_iter().map(Change::from).collect()
        }
        Err(refusal) => {
            log::warn!("{refusal}");
            Vec::new()
        }
    }
}

/// The card under its own name; our drop-in and preload where they are installed.
fn rocm(around: &Surroundings) -> Vec<Change> {
    let mut changes =
        vec![Change::new("WAVE32_CUDA", Action::Unset, "scripts' cuda is ROCm's on this route")];
    changes.extend(of_profile(Route::Rocm, around));
    // Within the card's family an override may be all that makes this PyTorch run: nobody looked into it.
    if around.situation.code_objects.is_none() && !is_other_family(around) {
        changes.retain(|change| change.name != "HSA_OVERRIDE_GFX_VERSION");
    }
    changes.extend(preload(around).0);
    changes
}

/// Our libraries before all others, and what is to be said of them.
fn preload(around: &Surroundings) -> (Option<Change>, String) {
    let rdna1 = around.situation.cards.iter().any(|card| targets::is_rdna1(card));
    // Only cards of this kind have no coherent host memory.
    let guard = rdna1.then_some((own::PRELOAD, "memory that this card can use"));
    let wanted: Vec<_> = guard.into_iter().chain([(own::MIOPEN, "wave32's convolutions")]).collect();
    let before = around.get("LD_PRELOAD").unwrap_or_default().to_string_lossy().into_owned();
    let (mut paths, mut reasons, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (name, reason) in wanted {
        let Some(path) = own::find(&around.folders, name) else {
            missing.push(name);
            continue;
        };
        let path = path.to_string_lossy().into_owned();
        // The list is split at these, and knows no quotes.
        if path.contains([':', ' ']) {
            missing.push(name);
            continue;
        }
        reasons.push(reason);
        if before.split([':', ' ']).all(|there| there != path) {
            paths.push(path);
        }
    }
    let mut told: Vec<String> = Vec::new();
    if !reasons.is_empty() {
        told.push(format!("{} (LD_PRELOAD)", reasons.join(" and ")));
    }
    if !missing.is_empty() {
        let folders: Vec<String> = around.folders.iter().map(|f| f.display().to_string()).collect();
        told.push(format!(
            "no {} in {} (`make rocm` builds it; a path with a space or colon cannot be preloaded){}",
            missing.join(" and no "),
            folders.join(", "),
            if missing.contains(&own::MIOPEN) { ": the vendor's MIOpen computes" } else { "" }
        ));
    }
    let list = OsString::from(paths.join(":"));
    let change = Change::new("LD_PRELOAD", Action::Prepend(list), reasons.join(" and "));
    ((!paths.is_empty()).then_some(change), told.join("; "))
}

/// One line on whose convolutions a program will use on this route; nothing where that is no question.
pub fn convolutions(route: Route, around: &Surroundings, keep: &[String]) -> Option<String> {
    let kept = keep.iter().any(|name| name == "LD_PRELOAD");
    (route == Route::Rocm && !kept).then(|| preload(around).1)
}

/// The override names another family than a card's: 10.3 is not gfx1010's.
fn is_other_family(around: &Surroundings) -> bool {
    let told = around.get("HSA_OVERRIDE_GFX_VERSION").and_then(OsStr::to_str).unwrap_or_default();
    let mut numbers = told.split('.').map(|part| part.trim().parse::<u32>());
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return false };
    let family = format!("gfx{major}{minor:x}");
    // The last digit of a target is its stepping.
    around.situation.cards.iter().any(|card| card.get(..card.len().saturating_sub(1)) != Some(&family))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn around(root: &Path, variables: &[(&str, &str)]) -> Surroundings {
        Surroundings {
            root: root.into(),
            variables: variables.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            folders: vec![root.join("lib")],
            situation: Situation::default(),
            cards: vec!["0".into()],
            log_miopen: false,
        }
    }

    /// A machine with these AMD cards.
    fn with_cards(root: &Path, cards: &[&str], variables: &[(&str, &str)]) -> Surroundings {
        std::fs::create_dir_all(root.join("dev")).unwrap();
        std::fs::write(root.join("dev/kfd"), "").unwrap();
        let cards = cards.iter().map(ToString::to_string).collect();
        let situation = Situation { cards, ..Situation::default() };
        Surroundings { situation, ..around(root, variables) }
    }

    fn names(changes: &[Change]) -> Vec<&str> {
        changes.iter().map(|change| change.name.as_str()).collect()
    }

    #[test]
    fn vulkan_without_a_vendor_card_changes_little() {
        let root = tempfile::tempdir().unwrap();
        let found = changes(Route::Vulkan, &around(root.path(), &[("HOME", "/h")]));
        assert_eq!(names(&found), ["WAVE32_CUDA"]);
        let two = Surroundings { cards: vec!["1".into(), "0".into()], ..around(root.path(), &[]) };
        let found = changes(Route::Vulkan, &two);
        assert_eq!(found[1].to_string(), "set WAVE32_CARDS=1,0 (torchrun's processes take one each)");
        assert_eq!(corrections(&found, &two.variables), None);
    }

    #[test]
    fn vulkan_tells_what_it_corrected() {
        let root = tempfile::tempdir().unwrap();
        let around = with_cards(
            root.path(),
            &["gfx1010"],
            &[("HSA_OVERRIDE_GFX_VERSION", "10.3.0"), ("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")],
        );
        let found = changes(Route::Vulkan, &around);
        assert_eq!(
            names(&found),
            [
                "WAVE32_CUDA",
                "HSA_OVERRIDE_GFX_VERSION",
                "TORCH_DEVICE_BACKEND_AUTOLOAD",
                "HIP_VISIBLE_DEVICES",
                "CUDA_VISIBLE_DEVICES"
            ]
        );
        let line = corrections(&found, &around.variables).unwrap();
        assert!(
            line.starts_with("removed HSA_OVERRIDE_GFX_VERSION (") && line.contains("AUTOLOAD=1"),
            "{line}"
        );
        assert!(!line.contains("WAVE32_CUDA") && !line.contains("HIP_VISIBLE"), "{line}");
    }

    #[test]
    fn rocm_keeps_an_override_within_the_family_only() {
        for (card, told, kept) in [
            ("gfx1010", "10.3.0", false),
            ("gfx1031", "10.3.0", true),
            ("gfx1010", "10.1.0", true),
            ("gfx1010", "?", true),
        ] {
            let root = tempfile::tempdir().unwrap();
            let around = with_cards(root.path(), &[card], &[("HSA_OVERRIDE_GFX_VERSION", told)]);
            let found = changes(Route::Rocm, &around);
            assert_eq!(!names(&found).contains(&"HSA_OVERRIDE_GFX_VERSION"), kept, "{card} {told}");
            // MIOpen has no database for RDNA1: its first look at a shape would be a search.
            assert_eq!(names(&found).contains(&"MIOPEN_FIND_MODE"), card == "gfx1010");
        }
        let root = tempfile::tempdir().unwrap();
        let found =
            changes(Route::Rocm, &with_cards(root.path(), &["gfx1010"], &[("MIOPEN_DEVICE_ARCH", "x")]));
        assert!(names(&found).contains(&"MIOPEN_DEVICE_ARCH"));
    }

    #[test]
    fn cpu_hides_the_cards() {
        let root = tempfile::tempdir().unwrap();
        let variables = [("WAVE32_CUDA", "wave"), ("HIP_VISIBLE_DEVICES", "-1")];
        let mut around = with_cards(root.path(), &["gfx1010"], &variables);
        around.log_miopen = true;
        let found = changes(Route::Cpu, &around);
        assert_eq!(
            names(&found),
            [
                "WAVE32_CUDA",
                "TORCH_DEVICE_BACKEND_AUTOLOAD",
                "CUDA_VISIBLE_DEVICES",
                "MIOPEN_ENABLE_LOGGING_CMD"
            ]
        );
    }
}
