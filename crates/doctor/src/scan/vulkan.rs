//! The Vulkan loader and the drivers' manifests, found as the loader finds them (Vulkan-Loader,
//! `docs/LoaderDriverInterface.md`).

use super::rocm::LIBRARY_FOLDERS;
use crate::facts::{Manifest, Vulkan};
use crate::system::System;

pub(super) fn vulkan(system: &System) -> Vulkan {
    let loaders = || LIBRARY_FOLDERS.iter().map(|folder| format!("{folder}/libvulkan.so.1"));
    let loader = loaders().find(|path| system.is_file(path));
    let dangling = loaders().find(|path| system.link(path).is_some() && !system.exists(path));
    Vulkan {
        dangling_loader: dangling.filter(|_| loader.is_none()),
        loader,
        manifests: manifests(system),
        devices: None,
        failure: None,
    }
}

fn manifests(system: &System) -> Vec<Manifest> {
    let forced = system.env("VK_DRIVER_FILES").or_else(|| system.env("VK_ICD_FILENAMES"));
    let paths: Vec<String> = match forced {
        Some(list) => list.split(':').filter(|p| !p.is_empty()).flat_map(|p| files(system, p)).collect(),
        None => folders(system).iter().flat_map(|folder| files(system, folder)).collect(),
    };
    let foreign = |path: &String| ["i686", "i386", "x86.json"].iter().any(|a| path.contains(a));
    paths.into_iter().filter(|path| !foreign(path)).map(|path| manifest(system, path)).collect()
}

fn folders(system: &System) -> Vec<String> {
    let home = system.home().unwrap_or("/root");
    let config = system.env("XDG_CONFIG_HOME").map_or(format!("{home}/.config"), String::from);
    let data = system.env("XDG_DATA_HOME").map_or(format!("{home}/.local/share"), String::from);
    let fixed = ["/etc/xdg", "/usr/local/etc", "/etc"].iter().map(|f| f.to_string());
    let shared = ["/usr/local/share", "/usr/share"].iter().map(|f| f.to_string());
    let all = std::iter::once(config).chain(fixed).chain([data]).chain(shared);
    all.map(|folder| format!("{folder}/vulkan/icd.d")).collect()
}

/// A folder's manifests, or the one file, which need not be there.
fn files(system: &System, path: &str) -> Vec<String> {
    if path.ends_with(".json") {
        return vec![path.to_string()];
    }
    let names = system.names(path).into_iter().filter(|n| n.ends_with(".json"));
    names.map(|n| format!("{path}/{n}")).collect()
}

fn manifest(system: &System, path: String) -> Manifest {
    let mut found = Manifest { path, ..Manifest::default() };
    let Some(text) = system.text(&found.path) else {
        found.problem = Some("the file is not there".into());
        return found;
    };
    let library = serde_json::from_str::<serde_json::Value>(&text).ok();
    let library = library.and_then(|v| Some(v.get("ICD")?.get("library_path")?.as_str()?.to_string()));
    let Some(library) = library else {
        found.problem = Some("it names no library".into());
        return found;
    };
    let there = if library.starts_with('/') {
        system.is_file(&library)
    } else if library.contains('/') {
        let folder = found.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        system.is_file(&format!("{folder}/{library}"))
    } else {
        let own = system.env("LD_LIBRARY_PATH").unwrap_or_default().split(':').filter(|f| f.starts_with('/'));
        own.chain(LIBRARY_FOLDERS.iter().copied()).any(|f| system.is_file(&format!("{f}/{library}")))
    };
    if !there {
        found.problem = Some(format!("{library} is not there"));
    }
    found.library = Some(library);
    found
}
