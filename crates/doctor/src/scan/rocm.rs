//! ROCm installations and what their libraries have code for.

use crate::code_objects;
use crate::facts::{Library, Rocm, Torch};
use crate::system::System;
use std::collections::BTreeSet;
use wave32_cards::sysfs::Files as _;
use wave32_cards::targets;
use wave32_host::own;

/// Library folders of distributions, which Vulkan's libraries are in as well.
pub(super) const LIBRARY_FOLDERS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/local/lib",
];
/// Short name and file name of what matters.
pub(super) const LIBRARIES: &[(&str, &str)] = &[
    ("hip", "libamdhip64.so"),
    ("hsa", "libhsa-runtime64.so"),
    ("miopen", "libMIOpen.so"),
    ("rocblas", "librocblas.so"),
];

pub(super) fn installs(system: &System, torches: &[Torch]) -> Vec<Rocm> {
    let mut found: Vec<Rocm> = Vec::new();
    for name in system.names("/opt").into_iter().filter(|n| n.starts_with("rocm")) {
        let path = system.resolve(&format!("/opt/{name}")).unwrap_or_default();
        if found.iter().all(|r| r.path != path) {
            found.extend(install(system, &path, "opt", &[format!("{path}/lib"), format!("{path}/lib64")]));
        }
    }
    for folder in LIBRARY_FOLDERS {
        let path = system.resolve(folder).unwrap_or_default();
        if found.iter().all(|r| r.path != path) {
            let kind = if folder.starts_with("/usr/local") { "opt" } else { "distribution" };
            found.extend(install(system, &path, kind, std::slice::from_ref(&path)));
        }
    }
    let mut sites = BTreeSet::new();
    for torch in torches {
        let Some((site, _)) = torch.path.rsplit_once('/') else { continue };
        if sites.insert(site) {
            found.extend(wheel(system, site));
        }
        let mut bundled = install(system, &torch.path, "torch", &[format!("{}/lib", torch.path)]);
        if let Some(rocm) = &mut bundled {
            rocm.version = torch.hip.as_deref().map(|v| numbers(v, 3));
        }
        found.extend(bundled);
    }
    found
}

/// The first so many numbers of a version.
fn numbers(version: &str, count: usize) -> String {
    let part = |p: &str| p.bytes().take_while(u8::is_ascii_digit).map(char::from).collect::<String>();
    let parts: Vec<String> = version.split('.').take(count).map(part).take_while(|p| !p.is_empty()).collect();
    parts.join(".")
}

/// TheRock's wheels: the runtime in one package, the libraries in another, targets in further ones.
fn wheel(system: &System, site: &str) -> Option<Rocm> {
    let names = system.names(site);
    let packages = names.iter().filter(|n| n.starts_with("_rocm_sdk_") && *n != "_rocm_sdk_devel");
    let folders: Vec<String> = packages.map(|n| format!("{site}/{n}/lib")).collect();
    let mut rocm = install(system, &format!("{site}/_rocm_sdk_core"), "wheel", &folders)?;
    rocm.version = names
        .iter()
        .find_map(|n| Some(n.strip_prefix("rocm_sdk_core-")?.strip_suffix(".dist-info")?.to_string()));
    let devices = names.iter().filter_map(|n| targets::leading(n.strip_prefix("rocm_sdk_device_")?));
    let devices: Vec<String> = devices.map(String::from).collect();
    for library in rocm.libraries.iter_mut().filter(|l| matches!(l.name, "rocblas" | "miopen")) {
        library.targets.extend(devices.iter().cloned());
        library.targets.sort();
        library.targets.dedup();
    }
    Some(rocm)
}

fn install(system: &System, path: &str, kind: &'static str, folders: &[String]) -> Option<Rocm> {
    let find = |(name, file): &(&'static str, &str)| {
        folders.iter().find_map(|folder| library(system, path, folder, name, file))
    };
    let libraries: Vec<Library> = LIBRARIES.iter().filter_map(find).collect();
    if libraries.is_empty() {
        return None;
    }
    let mut files = [".info/version", ".info/version-dev"].iter();
    let told = files.find_map(|f| system.attribute(&format!("{path}/{f}")));
    let of = |name: &str| libraries.iter().find(|l| l.name == name)?.version.clone();
    let version = told.map(|v| numbers(&v, 3)).or_else(|| of("hip").map(|v| numbers(&v, 2)));
    Some(Rocm { path: path.to_string(), kind, version, libraries })
}

fn library(system: &System, root: &str, folder: &str, name: &'static str, file: &str) -> Option<Library> {
    let versioned = |n: &String| {
        n.strip_prefix(file).is_some_and(|rest| rest.bytes().all(|b| b == b'.' || b.is_ascii_digit()))
    };
    // `libMIOpen.so.1` is what programs load; the plain name is for linking.
    let mut names: Vec<String> = system.names(folder).into_iter().filter(versioned).collect();
    names.sort_by_key(|n| (n.matches('.').count() != 2, n.len()));
    let path = names.iter().find_map(|n| system.resolve(&format!("{folder}/{n}")))?;
    let suffix =
        path.rsplit('/').next().and_then(|n| n.strip_prefix(file)?.strip_prefix('.').map(String::from));
    let mut found = Library { name, path, complete: true, ..Library::default() };
    match name {
        "rocblas" => {
            let code = code_objects::read(system, &found.path);
            found.complete = code.as_ref().is_some_and(|c| c.complete);
            let mut all = code.map(|c| c.targets).unwrap_or_default();
            for library in kernel_folders(system, folder) {
                all.extend(system.names(&library).iter().flat_map(|n| targets::all_in(n)).map(String::from));
            }
            found.targets = all.into_iter().collect();
        }
        "miopen" => {
            found.ours = system.open(&found.path).and_then(own::of);
            if let Some(own) = &found.ours {
                // Databases and headers beside it are the vendor's.
                found.version = Some(own.version.clone());
                return Some(found);
            }
            let all = databases(system, root, folder).into_iter();
            let all: BTreeSet<String> = all.filter_map(|n| targets::leading(&n).map(String::from)).collect();
            found.targets = all.into_iter().collect();
            found.version = miopen_version(system, root, folder);
        }
        _ => {}
    }
    found.version = found.version.or(suffix);
    Some(found)
}

/// The MIOpen in a folder of libraries.
pub(crate) fn miopen_in(system: &System, folder: &str) -> Option<Library> {
    let root = folder.rsplit_once('/').map_or("", |(root, _)| root);
    LIBRARIES
        .iter()
        .filter(|(name, _)| *name == "miopen")
        .find_map(|(name, file)| library(system, root, folder, name, file))
}

/// Where rocBLAS keeps its kernels: beside the library, or in a folder with a version.
fn kernel_folders(system: &System, folder: &str) -> Vec<String> {
    let base = format!("{folder}/rocblas");
    let versions = system.names(&base).into_iter().map(|v| format!("{base}/{v}/library"));
    std::iter::once(format!("{base}/library")).chain(versions).filter(|f| system.is_dir(f)).collect()
}

/// MIOpen's database folders for a library.
pub(super) fn database_folders(root: &str, folder: &str) -> Vec<String> {
    let mut folders = vec![format!("{root}/share/miopen/db"), format!("{folder}/../share/miopen/db")];
    if root.starts_with("/usr") {
        folders = vec!["/usr/share/miopen/db".to_string()];
    }
    folders
}

/// Names of files in MIOpen's database folder.
fn databases(system: &System, root: &str, folder: &str) -> Vec<String> {
    let mut names: Vec<String> =
        database_folders(root, folder).iter().flat_map(|f| system.names(f)).collect();
    names.dedup();
    names
}

fn miopen_version(system: &System, root: &str, folder: &str) -> Option<String> {
    let cmake = system.text(&format!("{folder}/cmake/miopen/miopen-config-version.cmake"));
    let told = cmake.as_deref().and_then(|text| {
        let value = text.lines().find_map(|l| l.trim().strip_prefix("set(PACKAGE_VERSION "))?;
        Some(value.trim_matches([')', '"', ' ']).to_string())
    });
    let header = || {
        let text = system.text(&format!("{root}/include/miopen/version.h"))?;
        let part = |name: &str| {
            let line = text.lines().find(|l| l.contains(&format!("MIOPEN_VERSION_{name} ")))?;
            line.split_whitespace().last().map(String::from)
        };
        Some(format!("{}.{}.{}", part("MAJOR")?, part("MINOR")?, part("PATCH")?))
    };
    told.or_else(header)
}
