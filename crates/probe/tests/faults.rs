//! Each call in turn that the known-good table makes on its files fails: the table is as before or whole, and the next
//! probe goes on.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use wave32_probe::known::{Key, Row, Store};
use wave32_probe::protocol::{Finding, Identity, SolverVerdict};

/// EIO, EACCES, ENOSPC, EROFS, EMFILE, EFBIG: what a disk, its rights and its limits say.
const ERRORS: [i32; 6] = [5, 13, 28, 30, 24, 27];

fn store(folder: &Path) -> Store {
    let text = |word: &str| word.to_string();
    let identity = Identity {
        card: text("AMD Radeon RX 5600 XT"),
        target: text("gfx1010"),
        pci: text("0000:03:00.0"),
        miopen: text("2.20.0"),
        hip: text("5.7.0"),
        kernel: text("6.1"),
        library: text("libMIOpen.so.1"),
    };
    Store::new(&folder.join("tables"), &identity)
}

fn row(solver: &str) -> Row {
    let key = Key { problem: "MIOpenDriver conv -n 1".into(), solver: solver.into(), rewrite: Vec::new() };
    let finding = Finding::of(SolverVerdict::Works, "");
    Row { key, id: Some(91), worst: SolverVerdict::Works, finding, when: 1 }
}

fn solvers(store: &Store) -> BTreeSet<String> {
    store.read().unwrap().rows.into_iter().map(|row| row.key.solver).collect()
}

/// Run by the test below in a process of its own: 7 for a typed error.
#[test]
#[ignore = "a part of the test below"]
fn child() {
    let folder = PathBuf::from(std::env::var_os("FAULT_FOLDER").unwrap());
    let result = store(&folder).merge(&[row("new")]);
    std::process::exit(if result.is_ok() { 0 } else { 7 });
}

#[test]
fn every_call_of_the_table_fails_in_turn() {
    let tools = tempfile::tempdir().unwrap();
    let [shim, count, name] = ["faults.so", "count", "name"].map(|file| tools.path().join(file));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/faults.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-D_GNU_SOURCE", "-O1", "-o"]).args([&shim, &source]).arg("-ldl");
    assert!(cc.status().expect("a C compiler, `cc`, is needed for this test").success());
    for (old, calls) in [(false, 6), (true, 8)] {
        let (mut at, mut failed, mut named) = (0, 0, BTreeSet::new());
        loop {
            let folder = tempfile::tempdir().unwrap();
            let store = store(folder.path());
            if old {
                store.merge(&[row("old")]).unwrap();
            }
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "child", "--ignored", "--nocapture"]).env("LD_PRELOAD", &shim);
            child
                .env("FAULT_FOLDER", folder.path())
                .env("FAULT_COUNT", &count)
                .env("FAULT_NAME", &name)
                .env("FAULT_AT", at.to_string());
            let errno = ERRORS[at % ERRORS.len()];
            let output = child.env("FAULT_ERRNO", errno.to_string()).output().unwrap();
            let code = output.status.code();
            let made: usize = std::fs::read_to_string(&count).unwrap().parse().unwrap();
            let what = format!("call {at} of {made}, errno {errno}, old table {old}: {output:?}");
            assert!(matches!(code, Some(0 | 7)), "{what}");
            let had: BTreeSet<String> = old.then(|| "old".to_string()).into_iter().collect();
            let all: BTreeSet<String> = had.iter().cloned().chain(["new".to_string()]).collect();
            let now = solvers(&store);
            assert!(now == all || code == Some(7) && now == had, "{what}: {now:?}");
            failed += usize::from(code == Some(7));
            named.insert(std::fs::read_to_string(&name).unwrap());
            store.merge(&[row("new"), row("next")]).unwrap();
            assert_eq!(solvers(&store).len(), all.len() + 1, "{what}");
            if made <= at {
                assert_eq!(code, Some(0), "{what}");
                break;
            }
            at += 1;
        }
        assert!(named.contains("flock"), "{named:?}");
        assert!(failed >= calls, "{failed} of {at}");
    }
}
