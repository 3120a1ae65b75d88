//! Which MIOpens are here, and which of them programs load.

use crate::facts::{Facts, Library, Rocm, Torch};
use crate::scan;
use crate::system::System;
use serde::Serialize;
use std::cmp::Reverse;
use std::path::Path;

/// A libMIOpen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Miopen {
    /// Its file, links followed.
    pub path: String,
    /// What brings it into a program, or where it lies.
    pub why: String,
}

/// The vendor's MIOpens here, none of ours, each once, best first: what `LD_LIBRARY_PATH` puts before all others, what the PyTorches in reach
/// load, what `ROCM_PATH` names, then `/opt/rocm`, its neighbours from the newest on, the distribution's, and what is left
/// in wheels.
pub fn miopens(system: &System, facts: &Facts) -> Vec<Miopen> {
    let mut found: Vec<Miopen> = Vec::new();
    let mut add = |library: Option<&Library>, why: String| {
        let Some(library) = library else { return };
        let path = match library.ours {
            None => library.path.clone(),
            // Where ours has its place, the vendor's is kept beside it, or there is none.
            Some(_) => match wave32_host::own::kept_name(Path::new(&library.path)).to_str() {
                Some(kept) if system.is_file(kept) => kept.to_string(),
                _ => return,
            },
        };
        if found.iter().all(|m| m.path != path) {
            found.push(Miopen { path, why });
        }
    };
    let folders = system.env("LD_LIBRARY_PATH").unwrap_or_default().split(':').filter(|f| f.starts_with('/'));
    for folder in folders {
        add(scan::miopen_in(system, folder).as_ref(), format!("LD_LIBRARY_PATH names {folder}"));
    }
    for torch in facts.torches.iter().filter(|torch| torch.hip.is_some()) {
        let library = facts.loads(torch).and_then(|rocm| rocm.library("miopen"));
        let Torch { version, reach, path, .. } = torch;
        add(library, format!("PyTorch {version} ({reach}, {path}) loads it"));
    }
    if let Some(root) = system.env("ROCM_PATH").filter(|root| root.starts_with('/')) {
        add(scan::miopen_in(system, &format!("{root}/lib")).as_ref(), format!("ROCM_PATH is {root}"));
    }
    let usual = system.resolve("/opt/rocm");
    let rank = |rocm: &&Rocm| {
        let kinds = ["opt", "distribution", "torch", "wheel"];
        let version = rocm.version.as_deref().unwrap_or_default().split('.');
        let version: Vec<u32> = version.map_while(|part| part.parse().ok()).collect();
        let kind = kinds.iter().position(|kind| *kind == rocm.kind);
        (Some(&rocm.path) != usual.as_ref(), kind.unwrap_or(kinds.len()), Reverse(version))
    };
    let mut installed: Vec<&Rocm> = facts.rocm.iter().collect();
    installed.sort_by_key(rank);
    for rocm in installed {
        let version = rocm.version.as_deref().unwrap_or("of unknown version");
        add(rocm.library("miopen"), format!("ROCm {version} in {}", rocm.path));
    }
    found
}
