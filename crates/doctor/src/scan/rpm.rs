//! Whether ROCm's libraries are as their RPM packages have them: `rpm -qf` and `rpm -V`, asked on the machine itself.

use super::rocm::LIBRARIES;
use super::{QUICK, is_compute_source};
use crate::ask::{Answer, Silence};
use crate::facts::{Library, Missing, Rocm};
use crate::system::System;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Where RPM keeps its database: long since, in newer systems, in image-based ones.
const DATABASES: &[&str] = &["/var/lib/rpm", "/usr/lib/sysimage/rpm", "/usr/share/rpm"];
/// More than a package's list of files.
const OUTPUT: u64 = 16 << 20;
/// Time for all questions of a quick look, and of a thorough one, which reads gigabytes.
const QUICK_TIME: Duration = Duration::from_millis(700);
const THOROUGH_TIME: Duration = Duration::from_secs(300);
/// A package with the name before each of its files.
const NAMES: &str = "[%{=NAME} %{FILENAMES}\\n]";
const UNOWNED: &str = " is not owned by any package";

/// rpm, for as long as it may take.
struct Rpm<'s> {
    system: &'s System,
    until: Instant,
    digests: bool,
}

/// A file that is not as its package has it.
#[derive(Debug, PartialEq, Eq)]
struct Wrong {
    path: String,
    /// Not there at all; else of another size, content or target of a link.
    missing: bool,
}

/// Compares libraries with their packages; returns those that packages have and the machine has not.
pub(super) fn check(
    system: &System,
    rocm: &mut [Rocm],
    gaps: &mut Vec<String>,
    thorough: bool,
) -> Vec<Missing> {
    let of_packages = rocm.iter_mut().filter(|r| r.kind != "torch" && r.kind != "wheel");
    let mut libraries: Vec<&mut Library> = of_packages.flat_map(|r| &mut r.libraries).collect();
    if libraries.is_empty() || !is_used(system) {
        return Vec::new();
    }
    let rpm = Rpm::new(system, thorough, true);
    let owners = match rpm.owners(&libraries) {
        Ok(owners) => owners,
        Err(why) => {
            gaps.push(format!(
                "libraries were not compared with their RPM packages ({why}): `rpm -V hsa-rocr miopen-hip` on the machine \
                 itself tells whether they were changed"
            ));
            return Vec::new();
        }
    };
    let mut missing = Vec::new();
    for package in owners.values().collect::<BTreeSet<_>>() {
        let files: Vec<&String> =
            owners.iter().filter(|(_, p)| *p == package).map(|(path, _)| path).collect();
        let is_of = |path: &str| files.iter().any(|f| f.as_str() == path || leads(system, f, path));
        let large = libraries.iter().filter(|l| is_of(&l.path)).find_map(|library| {
            let size = system.size(&library.path).filter(|size| *size > QUICK && !thorough)?;
            Some((library.path.clone(), size >> 20))
        });
        let rpm = Rpm { digests: large.is_none(), ..rpm };
        let wrong = match rpm.verify(package) {
            Ok(wrong) => wrong,
            Err(why) => {
                let advice = if thorough { format!("`rpm -V {package}`") } else { "--thorough".into() };
                gaps.push(format!(
                    "{}: not compared with package {package} ({why}); {advice} takes the time",
                    files[0]
                ));
                continue;
            }
        };
        for library in libraries.iter_mut().filter(|l| is_of(&l.path)) {
            library.package = Some(package.clone());
            let changed = |w: &Wrong| w.path == library.path || leads(system, &w.path, &library.path);
            library.intact = match wrong.iter().any(changed) {
                true => Some(false),
                // A file that a packaged link leads to is not in the package.
                false => (large.is_none() && owners.contains_key(&library.path)).then_some(true),
            };
        }
        let gone = wrong.into_iter().filter(|w| w.missing && is_library(&w.path));
        missing.extend(gone.map(|w| Missing { path: w.path, package: package.clone() }));
        if let Some((path, megabytes)) = large {
            gaps.push(format!(
                "{path}: of {megabytes} MiB only the size was compared with package {package}; --thorough takes the time"
            ));
        }
    }
    missing
}

/// Sources of the compute driver that are not as the package amdgpu-dkms has them.
pub(super) fn changed_sources(system: &System, gaps: &mut Vec<String>, thorough: bool) -> Vec<String> {
    let there = system.names("/usr/src").iter().any(|n| n.starts_with("amdgpu-"));
    if !system.live || !there || !is_used(system) {
        return Vec::new();
    }
    match Rpm::new(system, thorough, thorough).verify("amdgpu-dkms") {
        Ok(wrong) => wrong.into_iter().map(|w| w.path).filter(|path| is_compute_source(path)).collect(),
        Err(why) => {
            gaps.push(format!("the driver's sources were not compared with package amdgpu-dkms ({why})"));
            Vec::new()
        }
    }
}

fn is_used(system: &System) -> bool {
    DATABASES.iter().any(|folder| system.is_dir(folder))
}

fn is_library(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    LIBRARIES.iter().any(|(_, library)| file.starts_with(library))
}

/// Whether a path is a link that ends at the file.
fn leads(system: &System, link: &str, file: &str) -> bool {
    system.link(link).is_some() && system.resolve(link).as_deref() == Some(file)
}

impl<'s> Rpm<'s> {
    fn new(system: &'s System, thorough: bool, digests: bool) -> Self {
        let time = if thorough { THOROUGH_TIME } else { QUICK_TIME };
        Self { system, until: Instant::now() + time, digests }
    }

    fn ask(&self, args: &[&str]) -> Result<Answer, Silence> {
        let left = self.until.saturating_duration_since(Instant::now());
        let answer = self.system.ask("rpm", args, left, OUTPUT)?;
        if answer.whole { Ok(answer) } else { Err(failed("it says too much")) }
    }

    /// Packages by the files of theirs that a library was loaded from, or through.
    fn owners(&self, libraries: &[&mut Library]) -> Result<BTreeMap<String, String>, Silence> {
        let mut paths: BTreeSet<String> = libraries.iter().map(|l| l.path.clone()).collect();
        let mut owners = self.owners_of(&paths)?;
        paths.retain(|path| !owners.contains_key(path));
        // A file that was replaced by a link to another has its package under its own name.
        let folders = libraries.iter().filter(|l| paths.contains(&l.path)).flat_map(|l| {
            LIBRARIES.iter().filter(|(name, _)| *name == l.name).map(|(_, file)| (l.path.clone(), *file))
        });
        let links = folders.flat_map(|(path, file)| links_to(self.system, &path, file)).collect();
        owners.extend(self.owners_of(&links)?);
        Ok(owners)
    }

    fn owners_of(&self, paths: &BTreeSet<String>) -> Result<BTreeMap<String, String>, Silence> {
        if paths.is_empty() {
            return Ok(BTreeMap::new());
        }
        let args: Vec<&str> =
            ["-qf", "--qf", NAMES].into_iter().chain(paths.iter().map(String::as_str)).collect();
        let answer = self.ask(&args)?;
        let named = answer.text.lines().filter_map(|line| line.split_once(' '));
        let ours = named.filter(|(_, file)| paths.contains(*file));
        let owners: BTreeMap<String, String> =
            ours.map(|(n, file)| (file.to_string(), n.to_string())).collect();
        if owners.is_empty() && !answer.success && !answer.text.contains(UNOWNED) {
            return Err(failed("it names no package, and fails"));
        }
        Ok(owners)
    }

    /// What is wrong in a package. Its dependencies are not looked at, and its scripts not run.
    fn verify(&self, package: &str) -> Result<Vec<Wrong>, Silence> {
        let quick = (!self.digests).then_some("--nofiledigest");
        let args: Vec<&str> =
            ["-V", "--nodeps", "--noscripts"].into_iter().chain(quick).chain([package]).collect();
        let answer = self.ask(&args)?;
        let lines: Vec<(bool, Option<Wrong>)> = answer.text.lines().map(verdict).collect();
        if !answer.success && !lines.iter().any(|(of_file, _)| *of_file) {
            return Err(failed(answer.text.lines().next().unwrap_or("it fails and does not say why")));
        }
        Ok(lines.into_iter().filter_map(|(_, wrong)| wrong).collect())
    }
}

fn failed(why: &str) -> Silence {
    Silence::Failed("rpm".into(), why.into())
}

/// Links in the library folders of packages that end at this file.
fn links_to(system: &System, path: &str, file: &str) -> Vec<String> {
    let own = path.rsplit_once('/').map_or("", |(folder, _)| folder).to_string();
    let installs = system.names("/opt").into_iter().filter(|n| n.starts_with("rocm"));
    let opt = installs.flat_map(|n| ["lib", "lib64"].map(|lib| format!("/opt/{n}/{lib}")));
    let folders = opt.chain(super::rocm::LIBRARY_FOLDERS.iter().map(|f| f.to_string())).chain([own]);
    let folders: BTreeSet<String> = folders.filter_map(|f| system.resolve(&f)).collect();
    let names = folders.iter().flat_map(|folder| {
        let names = system.names(folder).into_iter().filter(|n| n.starts_with(file));
        names.map(move |n| format!("{folder}/{n}"))
    });
    names.filter(|link| leads(system, link, path)).collect()
}

/// A line of `rpm -V`: whether it is of a file, and what is wrong with the file. Letters say which properties differ: S size,
/// 5 digest, L target of a link; a dot is a test that was passed and `?` one that could not be made (rpm(8), "Verify
/// options"). Configuration files are for editing, and ghosts need not exist.
fn verdict(line: &str) -> (bool, Option<Wrong>) {
    let Some(at) = line.find('/') else { return (false, None) };
    let (head, path) = line.split_at(at);
    let mut words = head.split_whitespace();
    let tests = words.next().unwrap_or_default();
    let known = |test: char| "SM5DLUGTPC.?".contains(test);
    let missing = tests == "missing";
    if !missing && (tests.len() < 8 || !tests.chars().all(known)) {
        return (false, None);
    }
    let meant_to_change = matches!(words.next(), Some("c" | "g"));
    // Whoever may not look into a folder gets `missing ... (Permission denied)`.
    let unseen = missing && path.ends_with(')') && path.contains(" (");
    let differs = missing || tests.contains(['S', '5', 'L']);
    let wrong = differs && !meant_to_change && !unseen;
    (true, wrong.then(|| Wrong { path: path.to_string(), missing }))
}
