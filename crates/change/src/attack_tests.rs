//! What somebody contrives who owns the home, the tree under `--root`, or a folder that the journal shares.

use super::tests::{SOON, STORE, folder, home, store, tree, try_plan};
use super::*;
use crate::calls::faults::FaultPlan as Faults;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// Somebody who is not root.
const SOMEBODY: u32 = 65534;

/// Attacks on another user need one, and only root may be two.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can act as two users");
    }
    root
}

/// What must not be touched: names, inodes, permissions, owners, contents.
type Outside = Vec<(PathBuf, u64, u32, u32, Vec<u8>)>;

fn outside() -> (tempfile::TempDir, impl Fn() -> Outside) {
    let folder = folder();
    let path = folder.path().to_path_buf();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::create_dir(path.join("dots")).unwrap();
    for name in ["secret", "dots/profile"] {
        std::fs::write(path.join(name), "root:x:0:0\n").unwrap();
        std::fs::set_permissions(path.join(name), PermissionsExt::from_mode(0o600)).unwrap();
    }
    let look = move || {
        let mut found = Outside::new();
        let mut folders = vec![path.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let meta = path.symlink_metadata().unwrap();
                let contents = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
                if meta.is_dir() {
                    folders.push(path.clone());
                }
                found.push((path, meta.ino(), meta.mode(), meta.uid(), contents));
            }
        }
        found.sort();
        found
    };
    (folder, look)
}

/// Puts a link in the place of what is there, which keeps another name.
fn exchange(path: &Path, target: &Path) {
    if path.symlink_metadata().is_ok() {
        let _ = std::fs::rename(path, path.with_extension("aside"));
    }
    let _ = symlink(target, path);
}

/// The names of ours in the home.
fn names_of_ours(home: &Path) -> Vec<PathBuf> {
    let folders = ["", "dots", "new/deep", "nowhere", "it's \"a\nfolder"].map(|folder| home.join(folder));
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    entries
        .map(|e| e.path())
        .filter(|p| p.file_name().unwrap().as_encoded_bytes().starts_with(b".wave32-"))
        .collect()
}

type Attack = fn(&Path, &Path);

/// The home's owner exchanges something between any two calls; 2d of the review is the first of these.
const ATTACKS: &[(&str, Attack)] = &[
    ("new files", |home, out| {
        names_of_ours(home).iter().for_each(|path| exchange(path, &out.join("secret")))
    }),
    ("a folder", |home, out| exchange(&home.join("dots"), &out.join("dots"))),
    ("files", |home, out| {
        ["plain", "dots/profile", "vendor.so.1"]
            .iter()
            .for_each(|name| exchange(&home.join(name), &out.join("secret")));
    }),
    ("the journal", |home, out| exchange(&home.join("state/wave32"), &out.join("dots"))),
    ("the lock and what is pending", |home, out| {
        exchange(&home.join("state/wave32/lock"), &out.join("secret"));
        exchange(&home.join("state/wave32/1.pending"), &out.join("dots"));
        exchange(&home.join("state/wave32/1.new"), &out.join("dots"));
        exchange(&home.join("state/wave32/parked"), &out.join("dots"));
    }),
];

#[test]
fn whatever_is_exchanged_between_two_calls_nothing_outside_is_touched() {
    let (out, look) = outside();
    let untouched = look();
    for (name, attack) in ATTACKS {
        let (mut at, mut meant) = (0, true);
        while meant {
            let home = home();
            let store = store(home.path());
            let (theirs, target) = (home.path().to_path_buf(), out.path().to_path_buf());
            let calls = Faults::interfere(at, move || attack(&theirs, &target));
            let done = store.lock(SOON, false).and_then(|session| {
                let id = session.apply(&try_plan(&store)?)?.unwrap_or_default();
                session.apply(&session.plan_undo(id)?)
            });
            meant = calls.done() > at;
            drop(calls);
            // What is left is taken up by the next one, which may refuse it.
            let next = store.lock(SOON, true).map(drop);
            assert_eq!(look(), untouched, "{name} at call {at}: {done:?}, {next:?}");
            at += 7;
        }
        assert!(at > 200, "{name}: {at}");
    }
}

#[test]
fn a_lock_that_leads_away_is_refused_and_its_target_left_alone() {
    let (out, look) = outside();
    let untouched = look();
    for case in ["link", "relative link", "hard link", "fifo", "folder", "dangling"] {
        let home = home();
        let changes = home.path().join(&STORE[1..]);
        std::fs::create_dir_all(&changes).unwrap();
        let lock = changes.join("lock");
        let secret = out.path().join("secret");
        match case {
            "link" => symlink(&secret, &lock).unwrap(),
            "relative link" => symlink(format!("../../../../../..{}", secret.display()), &lock).unwrap(),
            "hard link" => {
                std::fs::write(home.path().join("theirs"), "kept").unwrap();
                std::fs::hard_link(home.path().join("theirs"), &lock).unwrap();
            }
            "fifo" => rustix::fs::mknodat(
                rustix::fs::CWD,
                &lock,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
                0,
            )
            .unwrap(),
            "folder" => std::fs::create_dir(&lock).unwrap(),
            _ => symlink(out.path().join("made"), &lock).unwrap(),
        }
        let before = tree(home.path());
        let refused = store(home.path()).lock(SOON, false).err().unwrap();
        assert!(matches!(refused, ChangeError::Untrusted { .. }), "{case}: {refused}");
        let text = refused.to_string();
        assert!(text.contains(lock.to_str().unwrap()) && text.contains("`rm "), "{case}: {text}");
        assert_eq!(look(), untouched, "{case}");
        assert_eq!(tree(home.path()), before, "{case}");
        if case == "hard link" {
            assert_eq!(std::fs::read(home.path().join("theirs")).unwrap(), b"kept");
        }
    }
}

/// A whole change that was cut short, as an attacker would write it: it takes back what was never there.
fn plant(changes: &Path, path: &str, mode: u32, uid: u32) {
    let pending = changes.join("1.pending");
    std::fs::create_dir_all(&pending).unwrap();
    let meta = serde_json::json!({ "mode": mode, "uid": uid, "gid": uid });
    let step = serde_json::json!({ "do": "write", "path": path, "before": meta, "after": null });
    let manifest =
        serde_json::json!({ "format": 1, "title": "planted", "created": 0, "undoes": null, "steps": [step] });
    std::fs::write(pending.join("manifest.json"), manifest.to_string()).unwrap();
    std::fs::write(pending.join("0.before"), "#!/bin/sh\nid\n").unwrap();
}

#[test]
fn what_others_may_have_planted_is_refused() {
    // Given permissions, or given away.
    let mut cases =
        vec![("", Some(0o777)), ("", Some(0o770)), ("1.pending", Some(0o777)), ("..", Some(0o777))];
    cases.extend(["1.pending/manifest.json", "1.pending/0.before", "lock"].map(|name| (name, Some(0o666))));
    if is_root() {
        let names =
            ["", "1.pending", "1.pending/manifest.json", "1.pending/0.before", "lock", "parked", ".."];
        cases.extend(names.map(|name| (name, None)));
    }
    for (name, mode) in cases {
        let home = home();
        let changes = home.path().join(&STORE[1..]);
        std::fs::create_dir_all(changes.join("parked")).unwrap();
        std::fs::write(changes.join("lock"), "1").unwrap();
        plant(&changes, "/made", 0o4755, 0);
        let path = if name.is_empty() { changes.clone() } else { changes.join(name) };
        match mode {
            Some(mode) => std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap(),
            None => chown(path, Some(SOMEBODY), None).unwrap(),
        }
        let refused = store(home.path()).lock(SOON, false).err().unwrap();
        assert!(matches!(refused, ChangeError::Untrusted { .. }), "{name}: {refused}");
        let text = refused.to_string();
        assert!(text.contains("nothing was changed") && text.contains("ch"), "{name}: {text}");
        assert!(!home.path().join("made").exists(), "{name}");
        // It is the same for those who only look.
        assert!(
            name == "lock" || name == "parked" || name == "1.pending/0.before" || {
                store(home.path()).interrupted().is_err()
            }
        );
    }
}

#[test]
fn the_journal_is_private_whatever_the_umask() {
    let home = home();
    let changes = home.path().join(&STORE[1..]);
    std::fs::create_dir_all(&changes).unwrap();
    std::fs::set_permissions(&changes, PermissionsExt::from_mode(0o755)).unwrap();
    let store = store(home.path());
    store.lock(SOON, false).unwrap().apply(&try_plan(&store).unwrap()).unwrap();
    let mode = |name: &str| changes.join(name).metadata().unwrap().mode() & 0o7777;
    assert_eq!(["", "parked", "1"].map(mode), [0o700; 3]);
    assert_eq!(["lock", "1/manifest.json", "1/0.before"].map(mode), [0o600; 3]);
}

#[test]
fn manifests_are_held_to_the_root() {
    let (out, look) = outside();
    let untouched = look();
    let secret = out.path().join("secret");
    let up = format!("/../../../../../..{}", secret.display());
    let relative = secret.strip_prefix("/").unwrap().to_str().unwrap().to_string();
    for path in [up.as_str(), &relative, "/", "", "/dots/../../x", ".", "/x\0y", "dots/profile"] {
        let home = home();
        plant(&home.path().join(&STORE[1..]), path, 0o755, 0);
        let before = tree(home.path());
        let refused = store(home.path()).lock(SOON, true).err().unwrap();
        assert!(matches!(refused, ChangeError::Journal { .. }), "{path:?}: {refused}");
        assert_eq!(tree(home.path()), before, "{path:?}");
        assert_eq!(look(), untouched);
    }
    // A path without dots, through a link that leads out of the tree.
    for target in [out.path().to_path_buf(), format!("../../../../..{}", out.path().display()).into()] {
        let home = home();
        symlink(&target, home.path().join("way")).unwrap();
        plant(&home.path().join(&STORE[1..]), "/way/secret", 0o755, 0);
        store(home.path()).lock(SOON, true).err().unwrap();
        assert_eq!(look(), untouched);
    }
    for step in [
        r#"{"do":"move","from":"/plain","to":"/vendor.so.1"}"#,
        r#"{"do":"write","path":"/plain","before":null,"after":null}"#,
        r#"{"do":"make_folder","path":"/dots","meta":{"mode":65535,"uid":0,"gid":0}}"#,
    ] {
        let home = home();
        let pending = home.path().join(&STORE[1..]).join("1.pending");
        std::fs::create_dir_all(&pending).unwrap();
        let text = format!(r#"{{"format":1,"title":"","created":0,"undoes":null,"steps":[{step}]}}"#);
        std::fs::write(pending.join("manifest.json"), text).unwrap();
        let before = tree(home.path());
        let refused = store(home.path()).lock(SOON, true).err().unwrap();
        assert!(matches!(refused, ChangeError::Journal { .. }), "{step}: {refused}");
        assert_eq!(tree(home.path()), before, "{step}");
    }
}

#[test]
fn there_is_no_number_after_the_last() {
    let home = home();
    let last = home.path().join(&STORE[1..]).join(u64::MAX.to_string());
    std::fs::create_dir_all(&last).unwrap();
    let before = tree(home.path());
    let store = store(home.path());
    let session = store.lock(SOON, false).unwrap();
    let refused = session.apply(&try_plan(&store).unwrap()).unwrap_err();
    assert!(refused.to_string().contains(last.to_str().unwrap()), "{refused}");
    assert_eq!(tree(home.path()), before);
}

/// A home of somebody's, in which root works.
fn theirs() -> tempfile::TempDir {
    let root = folder();
    let home = root.path().join("home/u");
    std::fs::create_dir_all(home.join(".local/state")).unwrap();
    std::fs::write(home.join(".bashrc"), "one\n").unwrap();
    for path in [&home, &home.join(".local"), &home.join(".local/state"), &home.join(".bashrc")] {
        chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }
    root
}

fn their_store(root: &Path) -> Store {
    Store::new(Root::new(root).unwrap(), "/home/u/.local/state/wave32/changes").of("/home/u")
}

fn edit(store: &Store, path: &str) -> Result<ChangePlan, ChangeError> {
    let mut draft = Draft::new(store.root(), "test");
    draft.edit(Path::new(path), 0o644, |old| Ok([old.unwrap_or_default(), b"ours\n"].concat()))?;
    Ok(draft.finish())
}

#[test]
fn root_in_somebodys_home_has_their_rights_and_no_more() {
    if !is_root() {
        return;
    }
    let groups = rustix::process::getgroups().unwrap();
    let (out, look) = outside();
    let untouched = look();
    let root = theirs();
    let home = root.path().join("home/u");
    // Root's own: to be read by all, written by none.
    std::fs::write(root.path().join("roots"), "root's\n").unwrap();
    std::fs::write(home.join("roots"), "root's\n").unwrap();
    std::fs::set_permissions(home.join("roots"), PermissionsExt::from_mode(0o600)).unwrap();
    symlink("/roots", home.join(".profile")).unwrap();
    symlink(out.path(), home.join("out")).unwrap();
    let store = their_store(root.path());
    for path in ["/home/u/.profile", "/roots", "/home/u/roots", "/etc/new", "/home/u/out/secret"] {
        let session = store.lock(SOON, false).unwrap();
        let refused = edit(&store, path).and_then(|plan| session.apply(&plan)).unwrap_err();
        assert!(matches!(refused, ChangeError::Io { .. }), "{path}: {refused}");
    }
    assert_eq!(std::fs::read(root.path().join("roots")).unwrap(), b"root's\n");
    assert!(!root.path().join("etc").exists());
    assert_eq!(look(), untouched);

    let session = store.lock(SOON, false).unwrap();
    let id = session.apply(&edit(&store, "/home/u/.bashrc").unwrap()).unwrap().unwrap();
    assert_eq!(rustix::process::geteuid().as_raw(), SOMEBODY);
    drop(session);
    assert!(rustix::process::geteuid().is_root() && rustix::process::getegid().is_root());
    assert_eq!(rustix::process::getgroups().unwrap(), groups);
    let changes = home.join(".local/state/wave32/changes");
    for path in [home.join(".bashrc"), changes.clone(), changes.join("lock"), changes.join("1/manifest.json")]
    {
        let meta = path.metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid()), (SOMEBODY, SOMEBODY), "{}", path.display());
    }
    let session = store.lock(SOON, false).unwrap();
    session.apply(&session.plan_undo(id).unwrap()).unwrap().unwrap();
    assert_eq!(std::fs::read(home.join(".bashrc")).unwrap(), b"one\n");
}

/// A journal that its owner wrote by hand does to root's files what its owner could do.
#[test]
fn a_planted_change_of_the_owners_is_done_with_their_rights() {
    if !is_root() {
        return;
    }
    let root = theirs();
    std::fs::create_dir(root.path().join("bin")).unwrap();
    let changes = root.path().join("home/u/.local/state/wave32/changes");
    plant(&changes, "/bin/rootshell", 0o4755, 0);
    let give = |path: &Path| chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    for path in ["", "../../wave32", "1.pending", "1.pending/manifest.json", "1.pending/0.before"] {
        give(&changes.join(path));
    }
    let refused = their_store(root.path()).lock(SOON, true).err().unwrap();
    assert!(matches!(refused, ChangeError::Io { .. } | ChangeError::Conflict { .. }), "{refused}");
    assert!(!root.path().join("bin/rootshell").exists());
}

/// Where /home is a link, and where somebody's link leads to what is root's.
#[test]
fn a_home_behind_a_link_is_its_owners() {
    if !is_root() {
        return;
    }
    let root = theirs();
    std::fs::create_dir_all(root.path().join("var")).unwrap();
    std::fs::rename(root.path().join("home"), root.path().join("var/home")).unwrap();
    symlink("var/home", root.path().join("home")).unwrap();
    let session = their_store(root.path());
    let session = session.lock(SOON, false).unwrap();
    assert_eq!(rustix::process::geteuid().as_raw(), SOMEBODY);
    drop(session);
    std::fs::create_dir(root.path().join("root")).unwrap();
    let link = root.path().join("var/home/u/link");
    symlink("/root", &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let store = Store::new(Root::new(root.path()).unwrap(), "/home/u/link/changes").of("/home/u/link");
    let refused = store.lock(SOON, false).err().unwrap();
    assert!(matches!(refused, ChangeError::Io { .. }), "{refused}");
    assert!(std::fs::read_dir(root.path().join("root")).unwrap().next().is_none());
}

/// Root, as itself, is led by nobody's links to what is not theirs.
#[test]
fn root_follows_a_users_links_to_their_own_files_only() {
    if !is_root() {
        return;
    }
    let root = theirs();
    let venv = root.path().join("home/u/venv");
    std::fs::create_dir(&venv).unwrap();
    std::fs::write(root.path().join("roots"), "root's\n").unwrap();
    for (name, target) in [("activate", "/roots"), ("mine", "../.bashrc")] {
        symlink(target, venv.join(name)).unwrap();
        std::os::unix::fs::lchown(venv.join(name), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }
    let store = store(root.path());
    let refused = edit(&store, "/home/u/venv/activate").unwrap_err();
    assert!(matches!(refused, ChangeError::Refused { .. }), "{refused}");
    edit(&store, "/home/u/venv/mine").unwrap();
}
