//! wave32's own libraries in ROCm's place.

use crate::facts::{Facts, Torch};
use crate::finding::{Fix, Found, Rule, Severity};
use std::path::Path;
use wave32_host::own::{Own, kept_name};
use wave32_profile::Route;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "wave32-damaged",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "A library of wave32's is cut off: programs that load it do not start, or crash.",
        source: "docs/run.md",
        check: |facts| {
            let damaged = ours(facts).into_iter().filter(|(_, own, _)| !own.whole);
            let found = damaged.map(|(path, own, place)| Found {
                what: format!("{path} ends before its end"),
                evidence: vec![format!("it says that it is wave32's {} {}", own.name, own.version)],
                fix: match place {
                    OwnLibrary::Folder(folder) => Fix::Run {
                        text: "take it out and put it in again".into(),
                        commands: vec![
                            format!("wave32 miopen uninstall --into {folder}"),
                            format!("wave32 miopen install --into {folder}"),
                        ],
                    },
                    OwnLibrary::Preload(place) => {
                        Fix::text(format!("build or install wave32 anew, or take it out of {place}"))
                    }
                },
            });
            found.collect()
        },
    },
    Rule {
        id: "wave32-miopen",
        severity: Severity::Note,
        routes: &[Route::Rocm],
        meaning: "wave32's libMIOpen computes the convolutions of the programs that load it, with kernels made ahead of \
                  time: nothing is searched or compiled.",
        source: "docs/run.md",
        check: |facts| {
            let whole = ours(facts).into_iter().filter(|(_, own, _)| own.whole && own.name == "libMIOpen");
            let found = whole.map(|(path, own, place)| match place {
                OwnLibrary::Folder(folder) => Found {
                    what: format!("wave32's libMIOpen {} has MIOpen's place in {folder}", own.version),
                    evidence: vec![format!(
                        "{path}; the vendor's would be {}",
                        kept_name(Path::new(path)).display()
                    )],
                    fix: Fix::text(format!("`wave32 miopen uninstall --into {folder}` takes it out again")),
                },
                OwnLibrary::Preload(place) => Found {
                    what: format!("wave32's libMIOpen {} is loaded before every other", own.version),
                    evidence: vec![format!("{place} names {path}")],
                    fix: Fix::text("nothing to do"),
                },
            });
            found.collect()
        },
    },
];

/// Where a library of ours stands.
enum OwnLibrary<'f> {
    /// In a folder of ROCm's libraries.
    Folder(&'f str),
    /// In what names it for every program.
    Preload(&'f str),
}

fn ours(facts: &Facts) -> Vec<(&str, &Own, OwnLibrary<'_>)> {
    let installed = facts.rocm.iter().flat_map(|rocm| &rocm.libraries).filter_map(|library| {
        let folder = library.path.rsplit_once('/').map_or("/", |(folder, _)| folder);
        Some((library.path.as_str(), library.ours.as_ref()?, OwnLibrary::Folder(folder)))
    });
    let preloaded = facts.preloaded.iter().map(|p| (p.path.as_str(), &p.own, OwnLibrary::Preload(&p.place)));
    installed.chain(preloaded).collect()
}

/// wave32's libMIOpen, where this PyTorch takes its convolutions from it.
pub(crate) fn convolves<'f>(facts: &'f Facts, torch: &Torch) -> Option<&'f Own> {
    let preloaded = facts.preloaded.iter().map(|p| &p.own);
    let loaded = facts.loads(torch).and_then(|rocm| rocm.library("miopen")?.ours.as_ref());
    preloaded.chain(loaded).find(|own| own.whole && own.name == "libMIOpen")
}
