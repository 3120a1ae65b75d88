//! Each call in turn that the pipeline cache makes on its file fails: no error comes of it, and what is there is whole.

use crate::cache::{DiskCache, Identity};
use std::path::{Path, PathBuf};
use std::process::Command;

/// EIO, EACCES, ENOSPC, EROFS, EMFILE, EFBIG: what a disk, its rights and its limits say.
const ERRORS: [i32; 6] = [5, 13, 28, 30, 24, 27];

fn cache(folder: &Path) -> DiskCache {
    DiskCache::new(&folder.join("wave32"), &Identity::example())
}

fn pipelines(word: &str) -> Vec<u8> {
    word.repeat(10_000).into_bytes()
}

/// Run by the test below in a process of its own.
#[test]
#[ignore = "a part of the test below"]
fn child() {
    let cache = cache(&PathBuf::from(std::env::var_os("FAULT_FOLDER").unwrap()));
    let loaded = cache.load();
    assert!(loaded.is_none() || loaded == Some(pipelines("old")), "never a part");
    cache.save(&pipelines("new"));
    std::process::exit(0);
}

#[test]
fn every_call_of_the_cache_fails_in_turn() {
    let tools = tempfile::tempdir().unwrap();
    let (shim, count) = (tools.path().join("faults.so"), tools.path().join("count"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../probe/tests/standin/faults.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-D_GNU_SOURCE", "-O1", "-o"]).args([&shim, &source]).arg("-ldl");
    assert!(cc.status().expect("a C compiler, `cc`, is needed for this test").success());
    for old in [false, true] {
        let mut unsaved = 0;
        for at in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let cache = cache(folder.path());
            if old {
                cache.save(&pipelines("old"));
            }
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "cache_faults::child", "--ignored", "--nocapture"]);
            child.env("LD_PRELOAD", &shim).env("FAULT_FOLDER", folder.path()).env("FAULT_COUNT", &count);
            let errno = ERRORS[at % ERRORS.len()];
            child.env("FAULT_AT", at.to_string()).env("FAULT_ERRNO", errno.to_string());
            let output = child.output().unwrap();
            let made: usize = std::fs::read_to_string(&count).unwrap().parse().unwrap();
            let what = format!("call {at} of {made}, errno {errno}, old file {old}: {output:?}");
            assert!(output.status.success(), "{what}");
            let now = cache.load();
            let before = old.then(|| pipelines("old"));
            assert!(now == before || now == Some(pipelines("new")), "{what}");
            unsaved += usize::from(now == before);
            let left = std::fs::read_dir(folder.path().join("wave32")).map_or(0, Iterator::count);
            assert!(left <= 1, "{what}: {left} files are left");
            cache.save(&pipelines("next"));
            assert_eq!(cache.load(), Some(pipelines("next")), "{what}");
            if made <= at {
                break;
            }
        }
        assert!(unsaved >= 4, "{unsaved}");
    }
}
