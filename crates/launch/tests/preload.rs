//! Which of wave32's libraries a program on the route rocm gets, and what is said of it.
#![cfg(target_os = "linux")]

#[path = "../../host/tests/common/mod.rs"]
mod common;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use wave32_launch::{Change, Surroundings, changes, convolutions};
use wave32_profile::{Route, Situation};

fn around(root: &Path, card: &str, variables: &[(&str, &str)]) -> Surroundings {
    let situation = Situation { cards: vec![card.into()], ..Situation::default() };
    Surroundings {
        root: root.into(),
        variables: variables.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        folders: vec![root.join("none"), root.join("lib")],
        situation,
        cards: Vec::new(),
        log_miopen: false,
    }
}

fn preload(around: &Surroundings) -> Option<OsString> {
    let all = changes(Route::Rocm, around);
    let change: &Change = all.iter().find(|change| change.name == "LD_PRELOAD")?;
    change.value(around.variables.get(std::ffi::OsStr::new("LD_PRELOAD")).map(OsString::as_os_str))
}

fn built(root: &Path) -> (PathBuf, PathBuf) {
    let (miopen, guard) = (root.join("lib/libMIOpen.so.1"), root.join("lib/libwave32_preload.so"));
    std::fs::create_dir_all(root.join("lib")).unwrap();
    std::fs::write(&miopen, common::ours("libMIOpen", "0.1.0", false)).unwrap();
    std::fs::write(&guard, common::ours("libwave32_preload", "0.1.0", false)).unwrap();
    (miopen, guard)
}

#[test]
fn both_on_rdna1_and_convolutions_alone_elsewhere() {
    let root = tempfile::tempdir().unwrap();
    let (miopen, guard) = built(root.path());
    let both = format!("{}:{}", guard.display(), miopen.display());
    assert_eq!(preload(&around(root.path(), "gfx1010", &[])), Some(both.clone().into()));
    assert_eq!(preload(&around(root.path(), "gfx1030", &[])), Some(miopen.clone().into()));
    // What was there stays, behind ours; what is there already is not put there twice.
    let kept = around(root.path(), "gfx1010", &[("LD_PRELOAD", "/a.so /b.so")]);
    assert_eq!(preload(&kept), Some(format!("{both}:/a.so /b.so").into()));
    let there = around(root.path(), "gfx1010", &[("LD_PRELOAD", &both)]);
    assert_eq!(preload(&there), None);
    assert!(convolutions(Route::Rocm, &there, &[]).unwrap().contains("wave32's convolutions"));
    assert_eq!(convolutions(Route::Rocm, &there, &["LD_PRELOAD".into()]), None);
    assert_eq!(convolutions(Route::Vulkan, &there, &[]), None);
}

#[test]
fn what_is_missing_damaged_or_not_ours_is_told() {
    let root = tempfile::tempdir().unwrap();
    let told = |root: &Path| {
        let around = around(root, "gfx1010", &[]);
        (preload(&around), convolutions(Route::Rocm, &around, &[]).unwrap())
    };
    let (change, line) = told(root.path());
    assert!(change.is_none() && line.contains("make rocm") && line.contains("the vendor's MIOpen"), "{line}");
    let (miopen, guard) = built(root.path());
    // The vendor's own, copied there; the beginning of ours.
    std::fs::write(&miopen, "\x7fELF").unwrap();
    assert_eq!(told(root.path()).0, Some(guard.clone().into()));
    std::fs::write(&guard, common::ours("libwave32_preload", "0.1.0", true)).unwrap();
    assert_eq!(told(root.path()).0, None);
    // A list that is split at spaces cannot name it.
    let spaced = root.path().join("with space");
    std::fs::create_dir(&spaced).unwrap();
    built(&spaced);
    let (change, line) = told(&spaced);
    assert!(change.is_none() && line.contains("space"), "{line}");
}
