//! What earlier attempts left behind.

use super::manager::{manager, reinstall};
use crate::facts::{Facts, Leftover, LeftoverKind, ModuleFile};
use crate::finding::{Fix, Found, Rule, Severity};
use wave32_profile::Route;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "half-applied",
        severity: Severity::Broken,
        routes: &[Route::Rocm, Route::Vulkan],
        meaning: "A change by wave32 was interrupted, so files may be in a state that nobody chose. All of them are in its \
                  journal as they were.",
        source: "docs/environment.md",
        check: |facts| {
            let mut found = found(facts, LeftoverKind::HalfApplied, "", |_, _| {
                Fix::run("take it back; what you edited since is kept", &["wave32 undo"])
            });
            for finding in &mut found {
                let path = std::mem::replace(&mut finding.what, "a change by wave32 was interrupted".into());
                finding.evidence.push(format!("its journal is {}", path.trim_end()));
            }
            found
        },
    },
    Rule {
        id: "patched-library",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "A runtime library was replaced by hand. Whatever it was patched for, it is not what the rest was tested \
                  with, and updates will not repair it.",
        source: "https://man7.org/linux/man-pages/man1/dpkg.1.html",
        check: |facts| {
            found(facts, LeftoverKind::PatchedLibrary, "was replaced", |facts, leftover| {
                let mut libraries = facts.rocm.iter().flat_map(|r| &r.libraries);
                let library = libraries.find(|l| l.path == leftover.path);
                reinstall(facts, library.and_then(|l| l.package.as_deref()).unwrap_or("that it is of"))
            })
        },
    },
    Rule {
        id: "missing-library",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "A package has this library installed, and the file is gone: programs that load it do not start, or load \
                  another version from elsewhere.",
        source: "https://man7.org/linux/man-pages/man8/rpm.8.html",
        check: |facts| {
            let missing = facts.missing.iter().map(|missing| Found {
                what: format!("{} is not there", missing.path),
                evidence: vec![format!("package {} has it", missing.package)],
                fix: reinstall(facts, &missing.package),
            });
            missing.collect()
        },
    },
    Rule {
        id: "preload-shim",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "A library is loaded into every program and replaces HIP's or ROCr's functions. The sketches on the web call \
                  themselves without end, or put device memory on the host, which is what they claim to cure.",
        source: "https://man7.org/linux/man-pages/man8/ld.so.8.html",
        check: preload,
    },
    Rule {
        id: "linked-database",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "MIOpen's database of another target stands under this card's name: it picks solvers and tunings that were \
                  measured on other hardware, some of which do not exist here.",
        source: "https://rocm.docs.amd.com/projects/MIOpen/en/latest/conceptual/perfdb.html",
        check: |facts| found(facts, LeftoverKind::LinkedDatabase, "stands under a wrong name", remove),
    },
    Rule {
        id: "kernel-module",
        severity: Severity::Harmful,
        routes: &[Route::Rocm, Route::Vulkan],
        meaning: "The amdgpu module in use, or the one that is loaded next, is neither the kernel's nor one that a package keeps \
                  up to date.",
        source: "https://docs.kernel.org/admin-guide/tainted-kernels.html",
        check: |facts| found(facts, LeftoverKind::KernelModule, "is not a package's module", module),
    },
    Rule {
        id: "driver-sources",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "The compute driver's sources were edited, and DKMS builds the module from them at every kernel update. A \
                  module that claims another memory model or target than the card has hangs it or faults.",
        source: "https://man7.org/linux/man-pages/man1/dpkg.1.html",
        check: |facts| {
            found(facts, LeftoverKind::DriverSources, "was edited", |facts, _| match manager(facts) {
                Some(manager) => Fix::Restore {
                    text: "install the package again, which builds the module anew; then reboot".into(),
                    files: facts.driver.changed_sources.clone(),
                    commands: vec![manager.reinstall_unasked("amdgpu-dkms")],
                },
                None => reinstall(facts, "amdgpu-dkms"),
            })
        },
    },
    Rule {
        id: "side-install",
        severity: Severity::Costly,
        routes: &[Route::Rocm],
        meaning: "A build of single ROCm libraries in a folder of its own. It is used where LD_LIBRARY_PATH names it, and \
                  mixes with the rest of another ROCm.",
        source: "https://rocm.docs.amd.com/projects/MIOpen/en/latest/install/build-source.html",
        check: |facts| found(facts, LeftoverKind::SideInstall, "is no whole ROCm", remove),
    },
    Rule {
        id: "stale-cache",
        severity: Severity::Costly,
        routes: &[Route::Rocm],
        meaning: "MIOpen's cache or user database is of another target or version: it costs disk, and under a spoof it is \
                  what brings the wrong kernels back.",
        source: "https://rocm.docs.amd.com/projects/MIOpen/en/latest/conceptual/cache.html",
        check: |facts| found(facts, LeftoverKind::StaleCache, "is stale", remove),
    },
    Rule {
        id: "library-backup",
        severity: Severity::Note,
        routes: &[Route::Rocm],
        meaning: "A copy beside a library is what a replacement by hand leaves. Either of the two may be the patched one: some \
                  guides copy the new library to the backup's name before they install it. Only the package's checksum tells.",
        source: "https://man7.org/linux/man-pages/man1/dpkg.1.html",
        check: |facts| found(facts, LeftoverKind::Backup, "was put aside", backup),
    },
];

/// Away with what is nobody's, and the package's own file in the place of what was patched; then indexes and boot image.
fn module(facts: &Facts, _: &Leftover) -> Fix {
    let driver = &facts.driver;
    let (Some(manager), Some(kernel)) = (manager(facts), facts.host.kernel.as_deref()) else {
        return by_hand();
    };
    let indexes = [format!("depmod -a {kernel}"), manager.boot_image(kernel)];
    let restore = |text: &str, files: Vec<String>, first: Vec<String>| Fix::Restore {
        text: format!("{text}; then reboot"),
        files,
        commands: first.into_iter().chain(indexes.clone()).collect(),
    };
    if driver.dkms_packaged == Some(false) {
        let remove = driver.dkms.iter().map(|version| format!("dkms remove amdgpu/{version} --all"));
        return restore(
            "take the module out of DKMS, so that the kernel's own is loaded",
            vec![],
            remove.collect(),
        );
    }
    let built = |file: &&ModuleFile| file.is_of_dkms() && !driver.dkms.is_empty();
    match &driver.file {
        Some(file) if file.owned == Some(false) && file.over && !built(&file) => {
            restore("move the file away, so that the kernel's own is loaded", vec![file.path.clone()], vec![])
        }
        Some(ModuleFile { path, package: Some(package), intact: Some(false), .. }) => {
            let again = manager.reinstall_unasked(package);
            restore("install the package again", vec![path.clone()], vec![again])
        }
        // The file is right, and what is loaded came from the boot image or from before.
        Some(file) if file.owned == Some(true) || built(&file) => {
            restore("make the boot image from the installed module", vec![], vec![])
        }
        _ => by_hand(),
    }
}

fn by_hand() -> Fix {
    Fix::run(
        "remove the amdgpu.ko that was put into /lib/modules by hand (modinfo shows which is loaded), and make the boot image \
         anew",
        &["modinfo -n amdgpu", "sudo depmod -a", "sudo update-initramfs -u   # or: sudo dracut -f"],
    )
}

/// Never the copy back: the package's own file.
fn backup(facts: &Facts, leftover: &Leftover) -> Fix {
    let base = |path: &str| path.split_once(".so").map(|(base, _)| base.to_string());
    let library =
        facts.rocm.iter().flat_map(|r| &r.libraries).find(|l| base(&l.path) == base(&leftover.path));
    match (library.and_then(|l| l.package.as_deref()), manager(facts)) {
        (Some(package), Some(manager)) => Fix::run(
            "do not copy it back. The first command lists what differs from the package, the second one puts the package's \
             files back; then remove the copy",
            &[&manager.verify(package), &manager.reinstall(package)],
        ),
        _ => Fix::text(
            "do not copy it back. Compare the library in use with its package (dpkg -V, rpm -V or pacman -Qkk and the \
             package's name), install the package again if it differs, then remove the copy",
        ),
    }
}

fn remove(_: &Facts, leftover: &Leftover) -> Fix {
    Fix::RemoveLeftover { path: leftover.path.clone() }
}

fn found(facts: &Facts, kind: LeftoverKind, is: &str, fix: fn(&Facts, &Leftover) -> Fix) -> Vec<Found> {
    let found = facts.leftovers.iter().filter(|l| l.kind == kind).map(|leftover| Found {
        what: format!("{} {is}", leftover.path),
        evidence: vec![leftover.evidence.clone()],
        fix: fix(facts, leftover),
    });
    found.collect()
}

fn preload(facts: &Facts) -> Vec<Found> {
    let variable = facts.variables.iter().find(|v| v.name == "LD_PRELOAD");
    let mut found = found(facts, LeftoverKind::Preload, "is loaded into every program", remove);
    for (finding, leftover) in
        found.iter_mut().zip(facts.leftovers.iter().filter(|l| l.kind == LeftoverKind::Preload))
    {
        let sets =
            |v: &&crate::facts::Variable| v.settings().any(|(value, _)| value.contains(&leftover.path));
        let alone = |v: &crate::facts::Variable| v.settings().all(|(value, _)| value.trim() == leftover.path);
        match variable.filter(sets) {
            // What else it names may be needed.
            Some(variable) if !alone(variable) => {
                finding.fix = Fix::text(format!(
                    "take {} out of LD_PRELOAD, and leave the others in it",
                    leftover.path
                ));
            }
            Some(variable) => finding.fix = super::variable::unset(variable, String::new()).fix,
            None => finding.fix = Fix::text("take its line out of /etc/ld.so.preload"),
        }
    }
    found
}
