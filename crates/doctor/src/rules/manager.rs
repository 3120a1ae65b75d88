//! The commands of the distribution's package manager.

use crate::facts::Facts;
use crate::finding::Fix;

/// A package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manager {
    Apt,
    Dnf,
    Zypper,
    Pacman,
}

/// What this system uses, by os-release.
pub(super) fn manager(facts: &Facts) -> Option<Manager> {
    let is = |names: &[&str]| facts.host.like.iter().any(|l| names.contains(&l.as_str()));
    let managers: &[(&[&str], Manager)] = &[
        (&["debian", "ubuntu"], Manager::Apt),
        (&["fedora", "rhel", "centos"], Manager::Dnf),
        (&["suse", "opensuse", "sles"], Manager::Zypper),
        (&["arch"], Manager::Pacman),
    ];
    managers.iter().find(|(names, _)| is(names)).map(|(_, manager)| *manager)
}

impl Manager {
    pub(super) fn install(self, packages: &str) -> String {
        match self {
            Self::Apt => format!("sudo apt install {packages}"),
            Self::Dnf => format!("sudo dnf install {packages}"),
            Self::Zypper => format!("sudo zypper install {packages}"),
            Self::Pacman => format!("sudo pacman -S {packages}"),
        }
    }

    /// Compares the files of packages with the checksums that the packages came with.
    pub(super) fn verify(self, packages: &str) -> String {
        match self {
            Self::Apt => format!("dpkg -V {packages}"),
            Self::Dnf | Self::Zypper => format!("rpm -V {packages}"),
            Self::Pacman => format!("pacman -Qkk {packages}"),
        }
    }

    pub(super) fn reinstall(self, packages: &str) -> String {
        match self {
            Self::Apt => format!("sudo apt install --reinstall {packages}"),
            Self::Dnf => format!("sudo dnf reinstall {packages}"),
            Self::Zypper => format!("sudo zypper install --force {packages}"),
            Self::Pacman => format!("sudo pacman -S {packages}"),
        }
    }
}

/// Puts a package's own files back.
pub(super) fn reinstall(facts: &Facts, package: &str) -> Fix {
    match manager(facts) {
        Some(manager) => Fix::run("install the package again", &[&manager.reinstall(package)]),
        None => Fix::text(format!("install the package {package} again")),
    }
}
