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

    /// The same for a program to run: it asks nothing.
    pub(super) fn reinstall_unasked(self, packages: &str) -> String {
        match self {
            Self::Apt => format!("apt-get install --reinstall --yes {packages}"),
            Self::Dnf => format!("dnf --assumeyes reinstall {packages}"),
            Self::Zypper => format!("zypper --non-interactive install --force {packages}"),
            Self::Pacman => format!("pacman -S --noconfirm {packages}"),
        }
    }

    /// Makes the image anew that the kernel of this release boots from.
    pub(super) fn boot_image(self, kernel: &str) -> String {
        match self {
            Self::Apt => format!("update-initramfs -u -k {kernel}"),
            Self::Dnf | Self::Zypper => format!("dracut --force --kver {kernel}"),
            Self::Pacman => "mkinitcpio -P".into(),
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
