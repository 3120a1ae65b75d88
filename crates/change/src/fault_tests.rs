//! Faults between any two operations; what is left is what was there before or after, to the byte.

#[path = "../../host/tests/common/mod.rs"]
mod common;

use super::tests::{SOON, Tree, folder, home, plan, store, tree, try_plan};
use super::*;
use crate::calls::faults::{Fault, FaultPlan as Faults};
use crate::drop_in;
use proptest::prelude::*;
use rustix::io::Errno;
use std::os::unix::fs::symlink;
use std::path::Path;

/// What a disk, its rights and a table of open files may say; a signal in between is none of the caller's business.
const ERRORS: [Errno; 7] =
    [Errno::IO, Errno::ACCESS, Errno::NOSPC, Errno::ROFS, Errno::MFILE, Errno::PERM, Errno::INTR];

type Make<'m> = &'m dyn Fn(&Session<'_>) -> Result<ChangePlan, ChangeError>;

/// Applies the plan of `make` with a fault, recovers, and tells what is left: before (false) or after (true).
fn survives(root: &Path, after: &Tree, at: usize, fault: Fault, make: Make<'_>) -> bool {
    let before = tree(root);
    let store = store(root);
    let faults = Faults::new(fault, at);
    let result = store.lock(SOON, false).and_then(|session| session.apply(&make(&session)?));
    drop(faults);
    if let (Err(e), Fault::Fails(_) | Fault::Full(_)) = (&result, fault) {
        // The process lived: it has cleaned up itself, unless the disk was full for that as well.
        let stuck = matches!(e, ChangeError::Stuck { .. });
        assert!(!stuck || matches!(fault, Fault::Full(_)), "{fault:?} at {at}: {e}");
        if !stuck {
            assert_eq!(tree(root), before, "{fault:?} at {at}: {e}");
        }
    }
    store.lock(SOON, false).unwrap();
    assert!(store.interrupted().unwrap().is_none());
    let now = tree(root);
    if result.is_ok() || now != before {
        assert_eq!(&now, after, "{fault:?} at {at}: neither before nor after, result {result:?}");
    }
    now == *after
}

/// The calls that apply and undo make, and the tree after each.
struct Counted {
    sample: tempfile::TempDir,
    before: Tree,
    after: Tree,
    applying: usize,
    undoing: usize,
}

fn counted() -> Counted {
    let sample = home();
    let root = sample.path();
    let before = tree(root);
    let store = store(root);
    let faults = Faults::new(Fault::None, 0);
    let id = store.lock(SOON, false).unwrap().apply(&plan(&store)).unwrap().unwrap();
    let (after, applying) = (tree(root), faults.done());
    assert_ne!(before, after);
    let session = store.lock(SOON, false).unwrap();
    session.apply(&session.plan_undo(id).unwrap()).unwrap().unwrap();
    let undoing = faults.done() - applying;
    drop(session);
    assert_eq!(tree(root), before);
    assert!(applying > 200 && undoing > 200, "{applying} {undoing}");
    Counted { sample, before, after, applying, undoing }
}

fn every_call(applying: bool, faults: impl Fn(usize) -> Option<Fault>) {
    let counted = counted();
    let root = counted.sample.path();
    let (mut kept, mut changed) = (0, 0);
    for at in 0..if applying { counted.applying } else { counted.undoing } {
        let Some(fault) = faults(at) else { continue };
        let home = home();
        // The names differ by the folder only.
        let left = if applying {
            let after = moved(&counted.after, root, home.path());
            survives(home.path(), &after, at, fault, &|session| try_plan(session.store()))
        } else {
            let store = store(home.path());
            let id = store.lock(SOON, false).unwrap().apply(&plan(&store)).unwrap().unwrap();
            let before = moved(&counted.before, root, home.path());
            survives(home.path(), &before, at, fault, &|session| session.plan_undo(id))
        };
        *(if left { &mut changed } else { &mut kept }) += 1;
    }
    assert!(kept > 0 && changed > 0, "{kept} {changed}");
}

#[test]
fn apply_dies_at_every_call() {
    every_call(true, |_| Some(Fault::Dies));
}

#[test]
fn undo_dies_at_every_call() {
    every_call(false, |_| Some(Fault::Dies));
}

/// Each call fails with one of the errors, another one at each run.
fn an_error() -> impl Fn(usize) -> Option<Fault> {
    let salt = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_micros();
    move |at| Some(Fault::Fails(ERRORS[(at + salt as usize) % ERRORS.len()]))
}

#[test]
fn every_call_of_apply_fails() {
    every_call(true, an_error());
}

#[test]
fn every_call_of_undo_fails() {
    every_call(false, an_error());
}

#[test]
fn the_disk_is_full_from_any_call_on() {
    for applying in [true, false] {
        for errno in [Errno::NOSPC, Errno::FBIG, Errno::DQUOT] {
            every_call(applying, |at| {
                (at % 6 == errno.raw_os_error() as usize % 6).then_some(Fault::Full(errno))
            });
        }
    }
}

/// Plans as `miopen install` and `uninstall` do.
fn library_plan(session: &Session<'_>, install: bool) -> Result<ChangePlan, ChangeError> {
    let (store, folder) = (session.store(), Path::new("/lib"));
    let mut draft = Draft::new(store.root(), "test");
    if install {
        let ours = common::ours("libMIOpen", "9.9.9", false);
        drop_in::install(&mut draft, store.root(), folder, &ours, false)?;
    } else {
        drop_in::uninstall(&mut draft, store.root(), folder, &store.put_away()?)?;
    }
    Ok(draft.finish())
}

/// A distribution's links, a wheel's name with a hash, and an older one of ours.
fn libraries() -> tempfile::TempDir {
    let home = folder();
    let lib = home.path().join("lib");
    std::fs::create_dir_all(&lib).unwrap();
    std::fs::create_dir(home.path().join("state")).unwrap();
    std::fs::write(lib.join("libMIOpen.so.1.0"), b"\x7fELF\0the vendor's").unwrap();
    std::fs::write(lib.join("libMIOpen-5b3f1c.so.1"), b"\x7fELF\0the wheel's").unwrap();
    symlink("libMIOpen.so.1.0", lib.join("libMIOpen.so.1")).unwrap();
    home
}

#[test]
fn every_call_of_install_and_uninstall_fails_or_is_the_last() {
    let sample = libraries();
    let calls = [true, false].map(|install| {
        let store = store(sample.path());
        let calls = Faults::new(Fault::None, 0);
        let session = store.lock(SOON, false).unwrap();
        session.apply(&library_plan(&session, install).unwrap()).unwrap().unwrap();
        (calls.done(), tree(sample.path()))
    });
    let error = an_error();
    for (install, (calls, after)) in [true, false].into_iter().zip(&calls) {
        assert!(*calls > 150, "{calls}");
        for at in 0..*calls {
            for fault in [Fault::Dies, error(at).unwrap(), Fault::Full(Errno::NOSPC)] {
                let home = libraries();
                if !install {
                    let store = store(home.path());
                    let session = store.lock(SOON, false).unwrap();
                    session.apply(&library_plan(&session, true).unwrap()).unwrap().unwrap();
                }
                let after = moved(after, sample.path(), home.path());
                survives(home.path(), &after, at, fault, &|session| library_plan(session, install));
            }
        }
    }
}

fn moved(tree: &Tree, from: &Path, to: &Path) -> Tree {
    tree.iter().map(|(path, file)| (to.join(path.strip_prefix(from).unwrap()), file.clone())).collect()
}

#[test]
fn dying_while_recovering_from_dying() {
    let applying = counted().applying;
    for first in (0..8).map(|part| applying - 5 - part * applying / 16) {
        for second in (0..).step_by(7) {
            let home = home();
            let before = tree(home.path());
            let store = store(home.path());
            let dies = Faults::new(Fault::Dies, first);
            store.lock(SOON, false).and_then(|session| session.apply(&try_plan(&store)?)).unwrap_err();
            drop(dies);
            let dies = Faults::new(Fault::Dies, second);
            let whole = store.lock(SOON, false).is_ok();
            drop(dies);
            store.lock(SOON, false).unwrap();
            assert_eq!(tree(home.path()), before, "{first} {second}");
            if whole {
                break;
            }
        }
    }
}

#[test]
fn edits_between_crash_and_recovery_are_kept() {
    let applying = counted().applying;
    for at in (0..applying).step_by(5) {
        let home = home();
        std::fs::write(home.path().join("dots/profile"), "1\n2\n3\n4\n5\n6\n").unwrap();
        let store = store(home.path());
        let dies = Faults::new(Fault::Dies, at);
        let result = store.lock(SOON, false).and_then(|session| session.apply(&try_plan(&store)?));
        drop(dies);
        if result.is_ok() {
            break;
        }
        let profile = home.path().join("dots/profile");
        let now = std::fs::read_to_string(&profile).unwrap();
        std::fs::write(&profile, format!("hello\n{now}")).unwrap();
        store.lock(SOON, false).unwrap();
        let expected = match now.contains("added") {
            // The change was whole, and only its last flush was missing.
            true if !tree(home.path()).contains_key(&home.path().join("old cache")) => {
                format!("hello\n{now}")
            }
            _ => "hello\n1\n2\n3\n4\n5\n6\n".into(),
        };
        assert_eq!(std::fs::read_to_string(&profile).unwrap(), expected, "at {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Random files, random edits and removals, a fault anywhere in apply, then one anywhere in undo.
    #[test]
    fn before_or_after(
        files in proptest::collection::btree_map("[a-c '\"\n]{1,3}(/[a-c]{1,2})?", "([a-d]{0,2}\n){0,6}", 0..6),
        edits in proptest::collection::btree_map("[a-c '\"\n]{1,3}(/[a-c]{1,2})?", "([a-d]{0,2}\n){0,6}", 1..5),
        removed in "[a-c]{1,3}",
        (at, undo_at) in (0usize..300, 0usize..300),
        fault in prop_oneof![
            Just(Fault::Dies),
            proptest::sample::select(ERRORS.to_vec()).prop_map(Fault::Fails),
            proptest::sample::select(vec![Errno::NOSPC, Errno::DQUOT]).prop_map(Fault::Full),
        ],
    ) {
        let home = folder();
        std::fs::create_dir(home.path().join("state")).unwrap();
        for (name, contents) in &files {
            let path = home.path().join(name);
            let _ = std::fs::create_dir_all(path.parent().unwrap());
            let _ = std::fs::write(path, contents);
        }
        let make = |session: &Session<'_>| {
            let mut draft = Draft::new(session.store().root(), "random");
            for (name, contents) in &edits {
                // Some meet a folder where a file should be, and are refused.
                match draft.edit(&Path::new("/").join(name), 0o644, |_| Ok(contents.clone().into_bytes())) {
                    Ok(()) | Err(ChangeError::Refused { .. }) => {}
                    Err(e) => return Err(e),
                }
            }
            // What is edited is not removed as well.
            if !edits.keys().any(|name| name.split('/').next() == Some(&removed)) {
                draft.remove(&Path::new("/").join(&removed))?;
            }
            Ok(draft.finish())
        };
        let before = tree(home.path());
        let sure = store(home.path());
        let session = sure.lock(SOON, false).unwrap();
        let Some(id) = session.apply(&make(&session).unwrap()).unwrap() else { return Ok(()) };
        let after = tree(home.path());
        session.apply(&session.plan_undo(id).unwrap()).unwrap();
        prop_assert_eq!(&tree(home.path()), &before);
        drop(session);
        if !survives(home.path(), &after, at, fault, &make) {
            let session = sure.lock(SOON, false).unwrap();
            session.apply(&make(&session).unwrap()).unwrap().unwrap();
        }
        let id = sure.history().unwrap().last().unwrap().id;
        survives(home.path(), &before, undo_at, fault, &|session| session.plan_undo(id));
    }
}
