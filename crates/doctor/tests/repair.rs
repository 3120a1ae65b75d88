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
        let repairs = plan(store.root(), &wrong, owner).unwrap();
        let id = session.apply(&repairs.plan).unwrap();
        assert_eq!(id.is_none(), repairs.plan.is_empty(), "{name}");
        let after = findings(folder.path());
        assert!(after.len() <= wrong.len(), "{name}");
        let again = plan(store.root(), &after, owner).unwrap();
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

#[test]
fn only_the_owners_files_are_changed() {
    let folder = tree("rocm52-torch113");
    let root = Root::new(folder.path()).unwrap();
    let wrong = findings(folder.path());
    let user = plan(&root, &wrong, Owner::User("/home/ada")).unwrap();
    assert!(!user.plan.diff().contains("/etc/"), "{}", user.plan.diff());
    assert!(user.by_hand.iter().any(|line| line.contains("/etc/profile.d/rocm-rdna1-52.sh")));
    let system = plan(&root, &wrong, Owner::System).unwrap();
    let diff = system.plan.diff();
    assert!(diff.contains("/etc/profile.d/rocm-rdna1-52.sh") && !diff.contains("/home/ada"), "{diff}");
    assert!(diff.contains(": # taken out by wave32: export HSA_OVERRIDE_GFX_VERSION=10.3.0"), "{diff}");
}

#[test]
fn a_line_that_does_more_is_left_to_the_user() {
    let folder = tree("rocm52-torch113");
    let profile = folder.path().join("etc/profile.d/rocm-rdna1-52.sh");
    fs::write(&profile, "export HSA_OVERRIDE_GFX_VERSION=10.3.0 EDITOR=vi\n").unwrap();
    let repairs = plan(&Root::new(folder.path()).unwrap(), &findings(folder.path()), Owner::System).unwrap();
    assert!(!repairs.plan.diff().contains("EDITOR"), "{}", repairs.plan.diff());
    assert!(repairs.by_hand.iter().any(|line| line.contains("does more")), "{:?}", repairs.by_hand);
}
