//! What `doctor --fix` changes on recorded machines, and that it can be taken back.
#![cfg(unix)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;
use wave32_change::{Root, Store};
use wave32_doctor::finding::Finding;
use wave32_doctor::repair::{Owner, plan};
use wave32_doctor::scan::{Options, scan};
use wave32_doctor::system::System;
use wave32_doctor::verdict::Diagnosis;

fn tree(name: &str) -> tempfile::TempDir {
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees").join(name).join("tree.txt");
    let root = tempfile::tempdir().unwrap();
    common::build(root.path(), &fs::read_to_string(text).unwrap());
    root
}

fn findings(root: &Path) -> Vec<Finding> {
    let system = System::at(root).unwrap();
    Diagnosis::of(scan(&system, &Options { thorough: true, ..Options::default() })).findings
}

/// Every file and link, with its contents.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let name = path.to_string_lossy().into_owned();
        if meta.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if meta.is_symlink() {
            found.insert(name, fs::read_link(&path).unwrap().to_string_lossy().into_owned().into_bytes());
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

/// Where changes are remembered, inside the root.
const JOURNAL: &str = "/var/lib/wave32/changes";

/// Names of what differs, the journal aside.
fn changed<'a>(before: &'a BTreeMap<String, Vec<u8>>, after: &'a BTreeMap<String, Vec<u8>>) -> Vec<&'a str> {
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let differs = |name: &&String| !name.contains(JOURNAL) && before.get(*name) != after.get(*name);
    names.filter(differs).map(String::as_str).collect()
}

#[test]
fn what_is_fixed_is_no_longer_found_and_comes_back() {
    for (name, owner) in [
        ("rocm52-torch113", Owner::User("/home/ada")),
        ("rocm57-spoofed", Owner::System),
        ("rocm57-spoofed", Owner::User("/home/ada")),
        ("rocm6-patched", Owner::System),
        ("rocm6-patched", Owner::User("/home/ada")),
        ("settings-everywhere", Owner::User("/home/ada")),
        ("settings-everywhere", Owner::System),
        ("two-families", Owner::System),
    ] {
        let folder = tree(name);
        let before = contents(folder.path());
        let wrong = findings(folder.path());
        let root = Root::new(folder.path()).unwrap();
        let store = Store::new(root, JOURNAL);
        let session = store.lock(Duration::from_secs(10), false).unwrap();
        let repairs = plan(store.root(), &wrong, owner, false).unwrap();
        let id = session.apply(&repairs.plan).unwrap();
        assert_eq!(id.is_none(), repairs.plan.is_empty(), "{name}");
        let after = findings(folder.path());
        assert!(after.len() <= wrong.len(), "{name}");
        let again = plan(store.root(), &after, owner, false).unwrap();
        assert!(
            again.plan.is_empty(),
            "{name} {owner:?}: a second time changes nothing\n{}",
            again.plan.diff()
        );
        if let Some(id) = id {
            assert!(!changed(&before, &contents(folder.path())).is_empty(), "{name}");
            let undo = session.plan_undo(id).unwrap();
            session.apply(&undo).unwrap();
        }
        assert_eq!(changed(&before, &contents(folder.path())), Vec::<&str>::new(), "{name} {owner:?}");
    }
}

const RELEASE: &str = "6.8.0-85-generic";

/// A machine whose amdgpu module is not as it should be, with stand-ins of its programs, and what they did.
struct Patched {
    root: tempfile::TempDir,
}

impl Patched {
    fn new(os: &str, tree: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let tree = format!(
            "file /etc/os-release\n| ID={os}\none /proc/sys/kernel/osrelease {RELEASE}\n\
             one /sys/module/amdgpu/taint OE\n{tree}"
        );
        common::build(root.path(), &tree);
        let here = root.path().display();
        for name in ["depmod", "dkms", "dnf", "update-initramfs", "dracut", "mkinitcpio", "pacman", "zypper"]
        {
            common::program(&root.path().join("bin"), name, &format!("echo {name} \"$@\" >> {here}/ran"));
        }
        Self { root }
    }

    fn program(self, name: &str, script: &str) -> Self {
        let script = script.replace("ROOT", &self.root.path().display().to_string());
        common::program(&self.root.path().join("bin"), name, &script);
        self
    }

    fn system(&self) -> System {
        let env = [("PATH".to_string(), self.root.path().join("bin").display().to_string())].into();
        let process = wave32_doctor::system::Process { env, ..Default::default() };
        System::new(self.root.path().to_path_buf(), process, true)
    }

    fn findings(&self) -> Vec<Finding> {
        let found = scan(&self.system(), &Options { thorough: true, ..Options::default() });
        let found = Diagnosis::of(found).findings;
        found.into_iter().filter(|f| matches!(f.rule, "kernel-module" | "driver-sources")).collect()
    }

    fn has(&self, path: &str) -> bool {
        self.root.path().join(path.trim_start_matches('/')).exists()
    }

    fn ran(&self) -> Vec<String> {
        let text = fs::read_to_string(self.root.path().join("ran")).unwrap_or_default();
        text.lines().map(String::from).collect()
    }
}

const OVER: &str = "/lib/modules/6.8.0-85-generic/updates/amdgpu.ko";
const OWN: &str = "/lib/modules/6.8.0-85-generic/kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko";

fn dep(path: &str) -> String {
    let short = path.strip_prefix(&format!("/lib/modules/{RELEASE}/")).unwrap();
    format!("one /lib/modules/{RELEASE}/modules.dep {short}: x\none {path} patched\n")
}

/// Whatever the way in which a module was patched: found, shown, moved away, the commands run, no longer found, and back.
#[test]
fn patched_kernel_modules_are_undone_and_the_change_is_recorded() {
    let dpkg = format!("one {OWN} own\none /var/lib/dpkg/info/linux-modules-{RELEASE}.list {OWN}\n");
    let sums = |sum: &str| {
        let (dpkg, path) = ("/var/lib/dpkg/info", OWN.trim_start_matches('/'));
        format!(
            "one {dpkg}/linux-modules-{RELEASE}.md5sums {sum}  {path}\none {dpkg}/linux-modules-{RELEASE}.list {OWN}\n"
        )
    };
    let depmod = format!("depmod -a {RELEASE}");
    let (initramfs, dracut) =
        (format!("update-initramfs -u -k {RELEASE}"), format!("dracut --force --kver {RELEASE}"));
    // A stand-in of the package manager that installs the right file.
    let install = format!("echo ${{0##*/}} \"$@\" >> ROOT/ran; echo own > ROOT{OWN}");
    let arch = format!(
        "one {OWN} own\nfile /var/lib/pacman/local/linux-6.8.0.arch1-1/files\n| %FILES%\n| {}\n",
        &OWN[1..].replace("lib/", "usr/lib/")
    );
    let cases: Vec<(&str, Patched, Option<&str>, Vec<String>)> = vec![
        (
            "a file over the kernel's, on Ubuntu",
            Patched::new("ubuntu", &(dpkg.clone() + &dep(OVER))),
            Some(OVER),
            vec![depmod.clone(), initramfs.clone()],
        ),
        (
            "the same on Arch",
            Patched::new("arch", &(arch + &dep(OVER))),
            Some(OVER),
            vec![depmod.clone(), "mkinitcpio -P".into()],
        ),
        (
            "the same on Fedora",
            Patched::new("fedora", &(format!("one {OWN} own\none /usr/lib/sysimage/rpm/rpmdb.sqlite x\n") + &dep(OVER)))
                .program("rpm", "case $4 in */kernel/*) echo kernel-modules-core;; *) echo \"file $4 is not owned by any package\"; exit 1;; esac"),
            Some(OVER),
            vec![depmod.clone(), dracut],
        ),
        (
            "the package's file overwritten",
            // The sum of `own`.
            Patched::new("debian", &(sums("fc9aa3dc9bb4699c577b3a9db0e441a1") + &dep(OWN))).program("apt-get", &install),
            Some(OWN),
            vec![
                format!("apt-get install --reinstall --yes linux-modules-{RELEASE}"),
                depmod.clone(),
                initramfs.clone(),
            ],
        ),
        (
            "a DKMS tree of nobody's",
            Patched::new(
                "ubuntu",
                &(dpkg + "one /var/lib/dkms/amdgpu/6.8-rdna1/source x\none /usr/src/amdgpu-6.8-rdna1/dkms.conf x\n"
                    + &dep("/lib/modules/6.8.0-85-generic/updates/dkms/amdgpu.ko")),
            )
            .program(
                "dkms",
                "echo dkms \"$@\" >> ROOT/ran; /bin/rm -r ROOT/var/lib/dkms/amdgpu/6.8-rdna1 \
                 ROOT/lib/modules/6.8.0-85-generic/updates/dkms; echo kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko: \
                 > ROOT/lib/modules/6.8.0-85-generic/modules.dep",
            ),
            None,
            vec!["dkms remove amdgpu/6.8-rdna1 --all".into(), depmod, initramfs],
        ),
    ];
    for (name, machine, moved, commands) in cases {
        // As depmod would: the table names what is there.
        let machine = machine.program(
            "depmod",
            &format!("echo depmod \"$@\" >> ROOT/ran; echo kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko: > ROOT/lib/modules/{RELEASE}/modules.dep; : > ROOT/sys/module/amdgpu/taint"),
        );
        let before = contents(machine.root.path());
        let wrong = machine.findings();
        assert_eq!(wrong.len(), 1, "{name}: {wrong:?}");
        let store = Store::new(Root::new(machine.root.path()).unwrap(), JOURNAL);
        // A user cannot, and of a recorded tree it is told only.
        for (owner, live) in [(Owner::User("/home/ada"), true), (Owner::System, false)] {
            let told = plan(store.root(), &wrong, owner, live).unwrap();
            assert!(told.plan.is_empty() && told.by_hand[0].contains("doctor --fix --system"), "{name}");
        }
        let session = store.lock(Duration::from_secs(10), true).unwrap();
        let repairs = plan(store.root(), &wrong, Owner::System, true).unwrap();
        assert_eq!(repairs.plan.then(), commands, "{name}");
        for line in commands.iter().chain(&moved.map(|path| format!("move {path} "))) {
            assert!(repairs.plan.diff().contains(line.as_str()), "{name}: {}", repairs.plan.diff());
        }
        let id = session.apply(&repairs.plan).unwrap().unwrap();
        assert!(moved.is_none_or(|path| !machine.has(path)), "{name}");
        assert_eq!(machine.ran(), Vec::<String>::new(), "{name}: whoever carries it out runs the commands");
        for command in repairs.plan.then() {
            wave32_doctor::restore::run(&machine.system(), command).unwrap();
        }
        assert_eq!(machine.ran(), commands, "{name}");
        assert_eq!(machine.findings(), vec![], "{name}");
        // It is written down, and what was moved comes back; the package's file is kept beside it.
        let made = store.history().unwrap();
        assert_eq!((made[0].id, made[0].then.as_slice()), (id, commands.as_slice()), "{name}");
        session.apply(&session.plan_undo(id).unwrap()).unwrap();
        let Some(path) = moved else { continue };
        let at = machine.root.path().join(&path[1..]).display().to_string();
        assert_eq!(fs::read(&at).unwrap(), before[&at], "{name}");
    }
}

/// The only module of a kernel that was built by hand is no package's, and right.
#[test]
fn a_kernel_of_the_users_own_is_left_alone() {
    let tree = format!("one /var/lib/dpkg/info/linux-modules-other.list x\n{}", dep(OWN));
    let machine = Patched::new("ubuntu", &tree);
    fs::write(machine.root.path().join("sys/module/amdgpu/taint"), "\n").unwrap();
    assert_eq!(machine.findings(), vec![]);
}

/// Where a command fails, nothing is lost: the files can be put back at once.
#[test]
fn a_package_manager_that_fails_loses_nothing() {
    let machine = Patched::new(
        "ubuntu",
        &(format!("one {OWN} own\none /var/lib/dpkg/info/linux.list {OWN}\n") + &dep(OVER)),
    );
    let machine = machine.program("depmod", "exit 1");
    let before = contents(machine.root.path());
    let store = Store::new(Root::new(machine.root.path()).unwrap(), JOURNAL);
    let session = store.lock(Duration::from_secs(10), false).unwrap();
    let repairs = plan(store.root(), &machine.findings(), Owner::System, true).unwrap();
    let id = session.apply(&repairs.plan).unwrap().unwrap();
    let error = wave32_doctor::restore::run(&machine.system(), &repairs.plan.then()[0]).unwrap_err();
    assert!(error.to_string().contains("depmod"), "{error}");
    session.apply(&session.plan_undo(id).unwrap()).unwrap();
    assert_eq!(changed(&before, &contents(machine.root.path())), Vec::<&str>::new());
}

#[test]
fn only_the_owners_files_are_changed() {
    let folder = tree("rocm52-torch113");
    let root = Root::new(folder.path()).unwrap();
    let wrong = findings(folder.path());
    let user = plan(&root, &wrong, Owner::User("/home/ada"), false).unwrap();
    assert!(!user.plan.diff().contains("/etc/"), "{}", user.plan.diff());
    assert!(user.by_hand.iter().any(|line| line.contains("/etc/profile.d/rocm-rdna1-52.sh")));
    let system = plan(&root, &wrong, Owner::System, false).unwrap();
    let diff = system.plan.diff();
    assert!(diff.contains("/etc/profile.d/rocm-rdna1-52.sh") && !diff.contains("/home/ada"), "{diff}");
    assert!(diff.contains(": # taken out by wave32: export HSA_OVERRIDE_GFX_VERSION=10.3.0"), "{diff}");
}

#[test]
fn a_line_that_does_more_is_left_to_the_user() {
    let folder = tree("rocm52-torch113");
    let profile = folder.path().join("etc/profile.d/rocm-rdna1-52.sh");
    fs::write(&profile, "export HSA_OVERRIDE_GFX_VERSION=10.3.0 EDITOR=vi\n").unwrap();
    let repairs =
        plan(&Root::new(folder.path()).unwrap(), &findings(folder.path()), Owner::System, false).unwrap();
    assert!(!repairs.plan.diff().contains("EDITOR"), "{}", repairs.plan.diff());
    assert!(repairs.by_hand.iter().any(|line| line.contains("does more")), "{:?}", repairs.by_hand);
}
