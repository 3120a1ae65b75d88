//! Whose the amdgpu module's file is: a package's, DKMS's, or nobody's.

use super::module::ENDINGS;
use super::packages::{INFO, sum};
use crate::facts::ModuleFile;
use crate::system::System;
use std::time::Duration;

const DPKG: &str = "/var/lib/dpkg/info";
const PACMAN: &str = "/var/lib/pacman/local";
/// Beginnings of the names of packages that have kernel modules.
const PACKAGES: &[&str] = &["amdgpu-dkms", "kernel", "linux"];
/// For rpm's answer, which takes milliseconds.
const TIME: Duration = Duration::from_millis(700);

/// The file that `modprobe amdgpu` would load.
pub(super) fn module_file(system: &System, path: &str) -> ModuleFile {
    let over = kernels_own(path).is_some_and(|own| {
        own != path && ENDINGS.iter().any(|ending| system.is_file(&format!("{own}{ending}")))
    });
    let mut found = ModuleFile { path: path.to_string(), over, ..ModuleFile::default() };
    match owner(system, path) {
        Owner::Unknown => {}
        Owner::Nobody => found.owned = Some(false),
        Owner::Package(package) => {
            found.owned = Some(true);
            found.intact = intact(system, &package, path);
            found.package = Some(package);
        }
    }
    found
}

/// Where the kernel's own module of that release is, not packed.
fn kernels_own(path: &str) -> Option<String> {
    let release = path.split("/lib/modules/").nth(1)?.split('/').next()?;
    let own = format!("/lib/modules/{release}/kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko");
    (!path.contains("/kernel/")).then_some(own)
}

/// Is a package of this name installed? None where no package manager's records can be read.
pub(super) fn installed(system: &System, package: &str) -> Option<bool> {
    if system.is_dir(DPKG) {
        let lists = [".list", ".md5sums", ":amd64.list"];
        return Some(lists.iter().any(|list| system.is_file(&format!("{DPKG}/{package}{list}"))));
    }
    if system.is_dir(PACMAN) {
        return Some(system.names(PACMAN).iter().any(|name| pacman_name(name) == Some(package)));
    }
    let answer = system.ask("rpm", &["-q", "--qf", "%{NAME}\n", package], TIME, 4096).ok()?;
    Some(answer.text.lines().any(|line| line == package))
}

enum Owner {
    Package(String),
    Nobody,
    Unknown,
}

fn owner(system: &System, path: &str) -> Owner {
    let candidate = |name: &str| PACKAGES.iter().any(|known| name.starts_with(known));
    if system.is_dir(DPKG) {
        for name in system.names(DPKG) {
            let Some(package) = name.strip_suffix(".list").filter(|name| candidate(name)) else { continue };
            let list = system.text(&format!("{DPKG}/{name}")).unwrap_or_default();
            if list.lines().any(|line| same(line, path)) {
                return Owner::Package(package.split(':').next().unwrap_or_default().to_string());
            }
        }
        return Owner::Nobody;
    }
    if system.is_dir(PACMAN) {
        for name in system.names(PACMAN).iter().filter(|name| candidate(name)) {
            let list = system.text(&format!("{PACMAN}/{name}/files")).unwrap_or_default();
            if list.lines().any(|line| same(&format!("/{line}"), path)) {
                return pacman_name(name).map_or(Owner::Unknown, |name| Owner::Package(name.into()));
            }
        }
        return Owner::Nobody;
    }
    let Ok(answer) = system.ask("rpm", &["-qf", "--qf", "%{NAME}\n", path], TIME, 4096) else {
        return Owner::Unknown;
    };
    match answer.text.lines().next() {
        Some(name) if answer.success && !name.contains(' ') => Owner::Package(name.to_string()),
        Some(line) if line.ends_with("is not owned by any package") => Owner::Nobody,
        _ => Owner::Unknown,
    }
}

/// By dpkg's sums; others are not asked.
fn intact(system: &System, package: &str, path: &str) -> Option<bool> {
    let sums = system.text(&format!("{INFO}/{package}.md5sums"))?;
    let known = sums.lines().filter_map(|line| line.split_once("  "));
    let (known, _) = known.into_iter().find(|(_, listed)| same(&format!("/{listed}"), path))?;
    let readable = system.grant(system.size(path)?);
    readable.then(|| sum(system, path)).flatten().map(|found| found == known)
}

/// `/lib` is `/usr/lib` where both are one folder.
fn same(listed: &str, path: &str) -> bool {
    let short = |path: &str| path.strip_prefix("/usr").unwrap_or(path).to_string();
    short(listed) == short(path)
}

/// `linux` of `linux-6.9.1.arch1-1`.
fn pacman_name(folder: &str) -> Option<&str> {
    folder.rsplitn(3, '-').nth(2)
}
