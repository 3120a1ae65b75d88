//! What earlier attempts left behind: replaced libraries, shims, linked databases, caches, our own halves.

use super::packages;
use super::rocm::{LIBRARIES, database_folders};
use crate::code_objects;
use crate::facts::{Facts, Leftover, LeftoverKind, Library, Preloaded, Rocm};
use crate::system::System;
use std::collections::BTreeSet;
use wave32_cards::targets;
use wave32_host::own;

/// Functions that a shim in front of HIP or ROCr defines.
const INTERPOSED: &[&str] = &[
    "hipExtMallocWithFlags",
    "hipHostMalloc",
    "hipMalloc",
    "hipMallocAsync",
    "hipMallocManaged",
    "hipMemcpy",
    "hsa_amd_memory_pool_allocate",
    "hsa_memory_allocate",
    "hsaKmtAllocMemory",
];
const BACKUP_ENDINGS: &[&str] = &[".backup", ".bak", ".old", ".orig", ".original", ".save"];

pub(super) fn leftovers(system: &System, facts: &Facts) -> Vec<Leftover> {
    let mut found = Vec::new();
    let mut add = |kind, path: &str, evidence: String| {
        if !found.iter().any(|l: &Leftover| l.kind == kind && l.path == path) {
            found.push(Leftover { kind, path: path.to_string(), evidence });
        }
    };
    half_applied(system, &mut add);
    for rocm in &facts.rocm {
        for library in &rocm.libraries {
            replaced(system, rocm, library, &mut add);
        }
        side_install(rocm, &mut add);
        linked_databases(system, rocm, &mut add);
    }
    preloads(system, facts, &mut add);
    kernel_module(facts, &mut add);
    caches(system, facts, &mut add);
    found
}

type Add<'a> = dyn FnMut(LeftoverKind, &str, String) + 'a;

/// A change of ours whose folder in the journal still says `pending`.
fn half_applied(system: &System, add: &mut Add) {
    let own = system.env("XDG_STATE_HOME").map(String::from);
    let own = own.or_else(|| Some(format!("{}/.local/state", system.home()?)));
    let stores = own.map(|state| format!("{state}/wave32/changes")).into_iter();
    for store in stores.chain(["/var/lib/wave32/changes".to_string()]) {
        for name in system.names(&store).iter().filter(|n| n.ends_with(".pending")) {
            let path = format!("{store}/{name}");
            let manifest = system.text(&format!("{path}/manifest.json")).unwrap_or_default();
            let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap_or_default();
            let title = manifest["title"].as_str().unwrap_or("a change");
            add(
                LeftoverKind::HalfApplied,
                &path,
                format!("\"{title}\" was begun and neither finished nor taken back"),
            );
        }
    }
}

fn replaced(system: &System, rocm: &Rocm, library: &Library, add: &mut Add) {
    if library.intact == Some(false) && library.ours.is_none() {
        let package = library.package.as_deref().unwrap_or("its package");
        add(
            LeftoverKind::PatchedLibrary,
            &library.path,
            format!("it is not the file that package {package} has"),
        );
    }
    let Some((folder, _)) = library.path.rsplit_once('/') else { return };
    for name in system.names(folder) {
        let Some((kind, _)) = LIBRARIES.iter().find(|(_, file)| name.starts_with(file)) else { continue };
        if BACKUP_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            let path = format!("{folder}/{name}");
            let evidence = rocm.library(kind).and_then(|used| backup(system, &path, used));
            let untold = "nothing tells whether it or the library in use is the package's";
            add(LeftoverKind::Backup, &path, evidence.unwrap_or_else(|| untold.into()));
        }
    }
}

/// Whose contents a copy beside a library has, where that can be told.
fn backup(system: &System, path: &str, used: &Library) -> Option<String> {
    let size = system.size(path)?;
    let known = packages::known_sum(system, &used.path);
    let same_size = system.size(&used.path) == Some(size);
    if (known.is_none() && !same_size) || !system.grant(size) {
        return None;
    }
    let sum = packages::sum(system, path)?;
    let name = used.path.rsplit('/').next().unwrap_or_default();
    if let Some((package, packaged)) = &known
        && *packaged == sum
    {
        return Some(format!("it is the file that package {package} has"));
    }
    let is_used = same_size && system.grant(size) && packages::sum(system, &used.path)? == sum;
    Some(match (is_used, known) {
        (true, Some((package, _))) => format!(
            "it has the contents of {name}, which is in use, and that is not the file that package {package} has: the \
             original is in neither"
        ),
        (true, None) => format!("it has the contents of {name}, which is in use: it saves nothing"),
        (false, Some((package, _))) => {
            format!("it is neither {name}, which is in use, nor the file that package {package} has")
        }
        (false, None) => return None,
    })
}

/// A folder such as /opt/rocm-miopen-rdna1: packages make /opt/rocm and /opt/rocm-5.7.1.
fn side_install(rocm: &Rocm, add: &mut Add) {
    let name = rocm.path.rsplit('/').next().unwrap_or_default();
    let version = name.strip_prefix("rocm").map(|rest| rest.trim_start_matches('-'));
    let usual = version.is_some_and(|v| v.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    if rocm.kind == "opt" && !usual {
        let names: Vec<&str> = rocm.libraries.iter().map(|l| l.name).collect();
        add(
            LeftoverKind::SideInstall,
            &rocm.path,
            format!("it holds {} and no whole ROCm", names.join(", ")),
        );
    }
}

fn linked_databases(system: &System, rocm: &Rocm, add: &mut Add) {
    let Some(library) = rocm.library("miopen") else { return };
    let folder = library.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    for folder in database_folders(&rocm.path, folder) {
        let Some(folder) = system.resolve(&folder) else { continue };
        for name in system.names(&folder) {
            let path = format!("{folder}/{name}");
            let Some(target) = system.link(&path) else { continue };
            let other = target.rsplit('/').next().unwrap_or_default();
            let (is, of) = (targets::leading(&name), targets::leading(other));
            if let (Some(is), Some(of)) = (is, of)
                && is != of
            {
                add(LeftoverKind::LinkedDatabase, &path, format!("{of}'s database under {is}'s name"));
            }
        }
    }
}

/// What is loaded into every program: each path and what names it.
fn preload_lists(system: &System, facts: &Facts) -> Vec<(String, String)> {
    let variable = facts.variables.iter().find(|v| v.name == "LD_PRELOAD");
    let settings = variable.into_iter().flat_map(|v| v.settings());
    let mut lists: Vec<(String, String)> = settings
        .map(|(value, origin)| {
            let place =
                origin.map_or("LD_PRELOAD of this process".into(), |o| format!("{}:{}", o.file, o.line));
            (value.to_string(), place)
        })
        .collect();
    lists.extend(system.text("/etc/ld.so.preload").map(|text| (text, "/etc/ld.so.preload".into())));
    let paths = lists.into_iter().flat_map(|(list, place)| {
        let paths = list.split([':', ' ', '\n', '\t']).filter(|path| path.contains('/'));
        paths.map(|path| (path.to_string(), place.clone())).collect::<Vec<_>>()
    });
    paths.collect()
}

/// wave32's own libraries among them.
pub(super) fn preloaded(system: &System, facts: &Facts) -> Vec<Preloaded> {
    let lists = preload_lists(system, facts).into_iter();
    let own = |path: &str| system.open(path).and_then(own::of);
    lists.filter_map(|(path, place)| Some(Preloaded { own: own(&path)?, path, place })).collect()
}

fn preloads(system: &System, facts: &Facts, add: &mut Add) {
    for (path, place) in &preload_lists(system, facts) {
        if facts.preloaded.iter().all(|ours| ours.path != *path) {
            let found = code_objects::defines(system, path, INTERPOSED);
            let runtime = LIBRARIES
                .iter()
                .any(|(_, file)| path.rsplit('/').next().is_some_and(|n| n.starts_with(file)));
            if !found.is_empty() && !runtime {
                add(
                    LeftoverKind::Preload,
                    path,
                    format!("{place} loads it into every program; it replaces {}", found.join(", ")),
                );
            } else if !system.exists(path) && path.starts_with('/') {
                add(LeftoverKind::Preload, path, format!("{place} names it, and it is not there"));
            }
        }
    }
}

fn kernel_module(facts: &Facts, add: &mut Add) {
    let driver = &facts.driver;
    if let [first, rest @ ..] = driver.changed_sources.as_slice() {
        let others = if rest.is_empty() { String::new() } else { format!(", like {} others,", rest.len()) };
        add(
            LeftoverKind::DriverSources,
            first,
            format!("it{others} is not the file that package amdgpu-dkms has"),
        );
    }
    if let (Some(false), Some(version)) = (driver.dkms_packaged, driver.dkms.first()) {
        let evidence =
            "DKMS builds a module from it at every kernel update, and no package has it".to_string();
        return add(LeftoverKind::KernelModule, &format!("/usr/src/amdgpu-{version}"), evidence);
    }
    if let Some(file) = &driver.file {
        let built = file.is_of_dkms() && !driver.dkms.is_empty();
        // A kernel that was built by hand has modules of no package, and nothing under them.
        if file.owned == Some(false) && file.over && !built {
            let evidence = "`modprobe amdgpu` loads it, and no package has it".to_string();
            return add(LeftoverKind::KernelModule, &file.path, evidence);
        }
        if file.intact == Some(false) {
            let package = file.package.as_deref().unwrap_or("its package");
            let evidence = format!("it is not the file that package {package} has");
            return add(LeftoverKind::KernelModule, &file.path, evidence);
        }
    }
    let out_of_tree = driver.taint.as_deref().is_some_and(|t| t.contains('O'));
    if let (Some(loaded), Some(file)) = (&driver.srcversion, &driver.file_srcversion)
        && loaded != file
    {
        let evidence = format!("the loaded module's srcversion is {loaded}, the installed file's {file}");
        add(LeftoverKind::KernelModule, "/sys/module/amdgpu", evidence);
    } else if out_of_tree && driver.dkms.is_empty() {
        let evidence =
            "the loaded amdgpu is not the kernel's own (taint O) and no DKMS tree is there that made it";
        add(LeftoverKind::KernelModule, "/sys/module/amdgpu", evidence.into());
    }
}

/// MIOpen's caches of compiled kernels and found solutions.
fn caches(system: &System, facts: &Facts, add: &mut Add) {
    let Some(home) = system.home() else { return };
    let cards: BTreeSet<&str> = facts.gpus.iter().filter_map(|g| g.target.as_deref()).collect();
    let versions: Vec<&str> = facts
        .rocm
        .iter()
        .filter_map(|r| r.vendors_miopen()?.version.as_deref())
        .filter(|v| v.matches('.').count() == 2)
        .collect();
    let foreign = |name: &str| {
        let target = targets::leading(name)?;
        (!cards.is_empty() && !cards.contains(target)).then(|| target.to_string())
    };
    let cache = format!("{home}/.cache/miopen");
    for version in system.names(&cache) {
        let folder = format!("{cache}/{version}");
        let files = system.names(&folder);
        let here = versions.iter().any(|v| version == *v || version.starts_with(&format!("{v}.")));
        if !versions.is_empty() && !here && system.is_dir(&folder) {
            let here = versions.join(", ");
            add(
                LeftoverKind::StaleCache,
                &folder,
                format!("it is of a MIOpen that is not here (here: {here})"),
            );
        } else if let Some((name, target)) = files.iter().find_map(|n| Some((n, foreign(n)?))) {
            add(LeftoverKind::StaleCache, &folder, format!("{name} holds kernels compiled for {target}"));
        }
    }
    let own = system.env("MIOPEN_USER_DB_PATH").map_or(format!("{home}/.config/miopen"), String::from);
    for name in system.names(&own) {
        if let Some(target) = foreign(&name) {
            let path = format!("{own}/{name}");
            add(
                LeftoverKind::StaleCache,
                &path,
                format!("found solutions for {target}, which no card here is"),
            );
        }
    }
}
