//! Whether ROCm's libraries are as their packages have them: Debian's by dpkg's own sums, others by `rpm`.

use super::rocm::LIBRARIES;
use super::{QUICK, is_compute_source, rpm};
use crate::facts::{Missing, Rocm};
use crate::system::System;
use md5::{Digest, Md5};
use std::io::Read;

pub(super) const INFO: &str = "/var/lib/dpkg/info";
/// Beginnings of the names of packages that have such libraries, AMD's and Debian's.
const PACKAGES: &[&str] = &[
    "hip-runtime-amd",
    "hsa-rocr",
    "libamdhip64",
    "libhsa-runtime64",
    "libmiopen",
    "librocblas",
    "miopen-hip",
    "rocblas",
];

/// A file as its package has it.
struct Listed {
    package: String,
    path: String,
    sum: String,
}

/// Compares libraries with their packages; returns those that packages have and the machine has not.
pub(super) fn check(
    system: &System,
    rocm: &mut [Rocm],
    gaps: &mut Vec<String>,
    thorough: bool,
) -> Vec<Missing> {
    let listed = listed(system);
    if listed.is_empty() {
        return rpm::check(system, rocm, gaps, thorough);
    }
    for library in rocm.iter_mut().flat_map(|r| &mut r.libraries) {
        // A file that was replaced by a link to another is listed under its own name.
        let own = listed.iter().find(|l| l.path == library.path);
        let linked = || {
            listed.iter().find(|l| {
                system.link(&l.path).is_some() && system.resolve(&l.path).as_deref() == Some(&library.path)
            })
        };
        match (own, own.is_none().then(linked).flatten()) {
            (Some(entry), _) => {
                library.package = Some(entry.package.clone());
                let size = system.size(&entry.path).unwrap_or(0);
                if size > QUICK && !thorough {
                    let megabytes = size >> 20;
                    gaps.push(format!(
                        "{}: {megabytes} MiB not compared with package {}; --thorough takes the time",
                        entry.path, entry.package
                    ));
                } else if system.grant(size) {
                    library.intact = sum(system, &entry.path).map(|found| found == entry.sum);
                }
            }
            (None, Some(entry)) => {
                library.package = Some(entry.package.clone());
                library.intact = Some(false);
            }
            (None, None) => {}
        }
    }
    let gone = listed.into_iter().filter(|l| !system.exists(&l.path));
    gone.map(|l| Missing { path: l.path, package: l.package }).collect()
}

fn listed(system: &System) -> Vec<Listed> {
    let mut found = Vec::new();
    for name in system.names(INFO) {
        let Some(package) = name.strip_suffix(".md5sums") else { continue };
        if !PACKAGES.iter().any(|p| package.starts_with(p)) {
            continue;
        }
        for line in system.text(&format!("{INFO}/{name}")).unwrap_or_default().lines() {
            let Some((sum, path)) = line.split_once("  ") else { continue };
            let file = path.rsplit('/').next().unwrap_or_default();
            if LIBRARIES.iter().any(|(_, library)| file.starts_with(library)) {
                let package = package.split(':').next().unwrap_or_default().to_string();
                found.push(Listed { package, path: format!("/{path}"), sum: sum.to_string() });
            }
        }
    }
    found
}

/// The package that has this library by dpkg's lists, and the sum that it came with.
pub(super) fn known_sum(system: &System, path: &str) -> Option<(String, String)> {
    let entry = listed(system).into_iter().find(|entry| entry.path == path)?;
    Some((entry.package, entry.sum))
}

/// Files of the compute driver's sources that are not as the package amdgpu-dkms has them: what a module is
/// patched in. Its other thousands of files are left alone.
pub(super) fn changed_sources(system: &System, gaps: &mut Vec<String>, thorough: bool) -> Vec<String> {
    let Some(sums) = system.text(&format!("{INFO}/amdgpu-dkms.md5sums")) else {
        return rpm::changed_sources(system, gaps, thorough);
    };
    let lines = sums.lines().filter_map(|line| line.split_once("  "));
    let compute = lines.filter(|(_, path)| is_compute_source(path));
    let changed = compute.filter(|(known, path)| {
        let path = format!("/{path}");
        let size = system.size(&path).unwrap_or(0);
        system.grant(size) && sum(system, &path).is_some_and(|found| found != **known)
    });
    changed.map(|(_, path)| format!("/{path}")).collect()
}

pub(super) fn sum(system: &System, path: &str) -> Option<String> {
    let mut file = system.open(path)?;
    let mut digest = Md5::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => break,
            n => digest.update(&buffer[..n]),
        }
    }
    Some(digest.finalize().iter().map(|b| format!("{b:02x}")).collect())
}
