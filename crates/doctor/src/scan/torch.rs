//! PyTorch installations, read from their files: no interpreter is started.

use super::rocm::LIBRARY_FOLDERS;
use crate::code_objects;
use crate::facts::Torch;
use crate::system::System;
use std::collections::BTreeSet;
use wave32_cards::targets;

pub(super) fn torches(system: &System, python: &[String]) -> Vec<Torch> {
    let mut found: Vec<Torch> = Vec::new();
    for (reach, site) in sites(system, python) {
        let path = format!("{site}/torch");
        let known = |t: &Torch| system.resolve(&t.path) == system.resolve(&path);
        if !found.iter().any(known) {
            found.extend(torch(system, reach, &site));
        }
    }
    found
}

/// Folders of Python packages, what is active first.
fn sites(system: &System, python: &[String]) -> Vec<(&'static str, String)> {
    let mut prefixes: Vec<(&'static str, String)> = Vec::new();
    for name in python {
        let path = if name.contains('/') { Some(name.clone()) } else { in_path(system, name) };
        prefixes.extend(path.map(|p| ("--python", prefix(system, &p))));
    }
    prefixes.extend(system.env("VIRTUAL_ENV").map(|p| ("virtual environment", p.to_string())));
    prefixes.extend(system.env("CONDA_PREFIX").map(|p| ("conda", p.to_string())));
    prefixes.extend(in_path(system, "python3").map(|p| ("python3 in PATH", prefix(system, &p))));
    prefixes.extend(system.home().map(|home| ("user", format!("{home}/.local"))));
    prefixes.extend([("system", "/usr/local".to_string()), ("system", "/usr".to_string())]);
    let mut sites = Vec::new();
    for (reach, prefix) in prefixes {
        for lib in ["lib", "lib64"] {
            let folders = system.names(&format!("{prefix}/{lib}"));
            for folder in folders.iter().filter(|n| n.starts_with("python3")) {
                for packages in ["site-packages", "dist-packages"] {
                    sites.push((reach, format!("{prefix}/{lib}/{folder}/{packages}")));
                }
            }
        }
    }
    sites
}

/// The prefix of an interpreter: a virtual environment's is that of the link, not of what it points to.
fn prefix(system: &System, interpreter: &str) -> String {
    if system.is_dir(interpreter) {
        return interpreter.trim_end_matches('/').to_string();
    }
    let prefix = interpreter.rsplit_once("/bin/").map_or("/usr", |(prefix, _)| prefix);
    if prefix.is_empty() { "/usr".into() } else { prefix.to_string() }
}

fn in_path(system: &System, name: &str) -> Option<String> {
    let folders = system.env("PATH")?.split(':').filter(|f| f.starts_with('/'));
    folders.map(|f| format!("{f}/{name}")).find(|path| system.is_file(path))
}

fn torch(system: &System, reach: &'static str, site: &str) -> Option<Torch> {
    let path = format!("{site}/torch");
    let text = system.text(&format!("{path}/version.py"))?;
    // `hip: Optional[str] = '5.7.31921'`, or `None`.
    let value = |name: &str| {
        let line = text
            .lines()
            .find(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', ':', '='])))?;
        let value = line.split_once('=')?.1.trim().trim_matches(['\'', '"']);
        (value != "None" && !value.is_empty()).then(|| value.to_string())
    };
    let hip = value("hip");
    let mut targets = BTreeSet::new();
    let mut complete = true;
    if hip.is_some() {
        let folders =
            std::iter::once(format!("{path}/lib")).chain(LIBRARY_FOLDERS.iter().map(|f| f.to_string()));
        let code = folders
            .flat_map(|folder| libraries(system, &folder))
            .find_map(|file| code_objects::read(system, &file));
        if let Some(code) = code {
            targets = code.targets;
            complete = code.complete;
            if code.packed_elsewhere {
                targets.extend(device_packages(system, site));
            }
        }
    }
    let python = site.split('/').find_map(|part| part.strip_prefix("python").filter(|v| v.contains('.')));
    Some(Torch {
        version: value("__version__")?,
        cuda: value("cuda"),
        hip,
        reach,
        python: python.map(String::from),
        targets: targets.into_iter().collect(),
        complete,
        path,
    })
}

/// `libtorch_hip.so`, or with a version behind it in distributions.
fn libraries(system: &System, folder: &str) -> Vec<String> {
    let names = system.names(folder).into_iter().filter(|n| n.starts_with("libtorch_hip.so"));
    names.map(|name| format!("{folder}/{name}")).collect()
}

/// Targets of the wheels that carry a split PyTorch's kernels.
fn device_packages(system: &System, site: &str) -> BTreeSet<String> {
    let names = system.names(site);
    let listed = names.iter().filter_map(|n| targets::leading(n.strip_prefix("amd_torch_device_")?));
    listed.map(String::from).collect()
}
