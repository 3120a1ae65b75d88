//! What a change makes, what its undo leaves of others' edits, and the sample home of all tests of changes.

use super::*;
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) type Tree = BTreeMap<PathBuf, (u32, u32, Vec<u8>)>;

/// Everything under `root` but the store: type and permissions, owner, contents.
pub(super) fn tree(root: &Path) -> Tree {
    fn walk(folder: &Path, found: &mut Tree) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("state/wave32") {
                continue;
            }
            let meta = path.symlink_metadata().unwrap();
            let contents = if meta.is_symlink() {
                path.read_link().unwrap().into_os_string().into_encoded_bytes()
            } else if meta.is_dir() {
                walk(&path, found);
                Vec::new()
            } else {
                std::fs::read(&path).unwrap()
            };
            let mode = std::os::unix::fs::MetadataExt::mode(&meta);
            found.insert(path, (mode, std::os::unix::fs::MetadataExt::uid(&meta), contents));
        }
    }
    let mut found = Tree::new();
    walk(root, &mut found);
    found
}

pub(super) const STORE: &str = "/state/wave32";
pub(super) const SOON: Duration = Duration::from_secs(5);

pub(super) fn store(root: &Path) -> Store {
    Store::new(Root::new(root).unwrap(), STORE).of("/")
}

/// In memory where that is to be had: thousands of flushes to a disk take minutes.
pub(super) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A home with everything in it that a plan may meet: names with spaces, quotes and newlines, links, a folder of
/// leftovers, odd permissions.
pub(super) fn home() -> tempfile::TempDir {
    let home = folder();
    let at = |name: &str| home.path().join(name);
    for folder in ["dots", "old cache/deep", "state", "it's \"a\nfolder"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    for (name, contents, mode) in [
        ("dots/profile", "one\ntwo\nthree\n", 0o640),
        ("plain", "no newline at the end", 0o600),
        ("it's \"a\nfolder/f", "\u{1b}[31mred\n\0\n", 0o755),
        ("old cache/deep/kernels.db", "stale", 0o444),
        ("lib.so.1.0", "patched", 0o755),
        ("vendor.so.1", "\x7fELF\0vendor", 0o755),
        ("replaced.so.1", "\x7fELF\0ours", 0o644),
        (".wave32-kept-replaced.so.1", "\x7fELF\0vendor", 0o755),
    ] {
        std::fs::write(at(name), contents).unwrap();
        std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    symlink("/dots/profile", at("profile")).unwrap();
    symlink("lib.so.1.0", at("lib.so")).unwrap();
    symlink("nowhere/yet", at("dangling")).unwrap();
    home
}

/// Something of everything that a plan can hold.
pub(super) fn try_plan(store: &Store) -> Result<ChangePlan, ChangeError> {
    let mut draft = Draft::new(store.root(), "test");
    let add = |old: Option<&[u8]>| Ok([old.unwrap_or_default(), b"\nadded\n"].concat());
    draft.edit(Path::new("/profile"), 0o644, add)?;
    draft.edit(Path::new("/plain"), 0o644, |_| Ok(b"replaced\n".to_vec()))?;
    draft.edit(Path::new("/it's \"a\nfolder/f"), 0o644, add)?;
    draft.edit(Path::new("/new/deep/file.conf"), 0o600, add)?;
    draft.edit(Path::new("/new/deep/other.conf"), 0o644, add)?;
    draft.edit(Path::new("/dangling"), 0o644, add)?;
    draft.remove(Path::new("/old cache"))?;
    draft.remove(Path::new("/lib.so"))?;
    draft.remove(Path::new("/lib.so.1.0"))?;
    draft.remove(Path::new("/not there"))?;
    let kept = Path::new("/.wave32-kept-vendor.so.1");
    draft.replace(Path::new("/vendor.so.1"), kept, b"\x7fELF\0ours".to_vec())?;
    draft.put_back(Path::new("/.wave32-kept-replaced.so.1"), Path::new("/replaced.so.1"))?;
    Ok(draft.finish())
}

pub(super) fn plan(store: &Store) -> ChangePlan {
    try_plan(store).unwrap()
}

#[test]
fn twice_changes_nothing() {
    let home = home();
    let store = store(home.path());
    let session = store.lock(SOON, false).unwrap();
    let path = Path::new("/profile");
    let make = || {
        let mut draft = Draft::new(store.root(), "test");
        draft.edit(path, 0o644, |_| Ok(b"x\n".to_vec())).unwrap();
        draft.finish()
    };
    let id = session.apply(&make()).unwrap().unwrap();
    let after = tree(home.path());
    assert!(make().is_empty());
    assert_eq!(session.apply(&make()).unwrap(), None);
    assert_eq!(tree(home.path()), after);
    assert!(home.path().join("profile").is_symlink(), "the link stays, its target is edited");
    session.apply(&session.plan_undo(id).unwrap()).unwrap().unwrap();
    assert!(session.plan_undo(id).unwrap().is_empty());
    assert!(store.history().unwrap()[0].undone);
}

#[test]
fn the_users_lines_survive_undo() {
    let home = home();
    let store = store(home.path());
    let session = store.lock(SOON, false).unwrap();
    let profile = home.path().join("dots/profile");
    let old = "a\nb\nc\nd\ne\nf\n";
    std::fs::write(&profile, old).unwrap();
    let mut draft = Draft::new(store.root(), "test");
    let block = |old: Option<&[u8]>| Ok([old.unwrap_or_default(), b"# ours\nexport X=1\n# end\n"].concat());
    draft.edit(Path::new("/profile"), 0o644, block).unwrap();
    draft.edit(Path::new("/made/here"), 0o644, |_| Ok(b"ours\n".to_vec())).unwrap();
    let id = session.apply(&draft.finish()).unwrap().unwrap();
    let edited = format!("first\n{old}# ours\nexport X=1\n# end\nlast\n").replace("c\n", "C\n");
    std::fs::write(&profile, edited).unwrap();
    std::fs::set_permissions(&profile, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(home.path().join("made/theirs"), "x").unwrap();
    session.apply(&session.plan_undo(id).unwrap()).unwrap().unwrap();
    assert_eq!(std::fs::read_to_string(&profile).unwrap(), "first\na\nb\nC\nd\ne\nf\nlast\n");
    assert_eq!(profile.metadata().unwrap().permissions().mode() & 0o777, 0o600, "the user's own");
    assert!(home.path().join("made/theirs").exists() && !home.path().join("made/here").exists());
}

#[test]
fn lines_right_beside_ours_are_no_conflict() {
    let meta = Meta { mode: 0o644, uid: 0, gid: 0 };
    let file = |text: &str| Some((text.as_bytes().to_vec(), meta));
    let restored = |now: &str, before: &str, after: &str| {
        undo::restored(&file(now), &file(before), &file(after))
            .map(|c| String::from_utf8(c.unwrap().0).unwrap())
    };
    let (before, after) = ("a\nold\nm\nb", "a\nnew\nm\nb\n# ours\nX\n");
    let edited = "a\n1\nnew\n2\nm\nb\n# ours\nX\n3\n";
    assert_eq!(restored(edited, before, after).unwrap(), "a\n1\nold\n2\nm\nb\n3\n");
    let twice = "a\nnew\nm\nb\n# ours\nX\nb\n# ours\nX\n3";
    for (now, why) in [
        (twice, "which of them is ours?"),
        ("a\nnew\nm\nb\n# ours\nY\n", "our lines were edited"),
        ("a\nnew\nm\nb\n# ours\nX", "their end as well"),
        ("a\n3\nm\nb\n# ours\nX\n", "one of two was edited"),
    ] {
        assert_eq!(restored(now, before, after), None, "{why}");
    }
}

#[test]
fn a_conflict_is_refused_and_force_keeps_both() {
    let home = home();
    let store = store(home.path());
    let id = store.lock(SOON, false).unwrap().apply(&plan(&store)).unwrap().unwrap();
    std::fs::write(home.path().join("plain"), "mine\n").unwrap();
    std::fs::write(home.path().join("lib.so"), "a new library").unwrap();
    let edited = tree(home.path());
    let session = store.lock(SOON, false).unwrap();
    let refused = session.plan_undo(id).unwrap_err();
    assert!(refused.to_string().contains("undo --force"), "{refused}");
    assert_eq!(tree(home.path()), edited);
    drop(session);
    let session = store.lock(SOON, true).unwrap();
    session.apply(&session.plan_undo(id).unwrap()).unwrap().unwrap();
    let text = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
    assert_eq!(text("plain"), "no newline at the end");
    assert_eq!(text("plain.yours-1"), "mine\n");
    assert_eq!(text("lib.so"), "patched");
    assert_eq!(text("lib.so.yours-1"), "a new library");
}

#[test]
fn a_folder_that_the_user_removed_stays_removed() {
    let home = home();
    let store = store(home.path());
    let session = store.lock(SOON, false).unwrap();
    let mut draft = Draft::new(store.root(), "test");
    for path in ["/dots/profile", "/plain"] {
        draft.edit(Path::new(path), 0o644, |_| Ok(b"ours\n".to_vec())).unwrap();
    }
    let id = session.apply(&draft.finish()).unwrap().unwrap();
    std::fs::remove_dir_all(home.path().join("dots")).unwrap();
    session.apply(&session.plan_undo(id).unwrap()).unwrap().unwrap();
    assert_eq!(std::fs::read_to_string(home.path().join("plain")).unwrap(), "no newline at the end");
    assert!(!home.path().join("dots").exists());
    // All of it taken back by hand: that is undone as well.
    let id = session.apply(&plan_of(&store, "/plain")).unwrap().unwrap();
    std::fs::write(home.path().join("plain"), "no newline at the end").unwrap();
    session.apply(&session.plan_undo(id).unwrap()).unwrap().unwrap();
    assert!(store.history().unwrap().iter().all(|made| made.undone));
}

#[test]
fn what_is_not_ours_to_change_is_refused() {
    let home = home();
    let store = store(home.path());
    std::fs::hard_link(home.path().join("plain"), home.path().join("plain2")).unwrap();
    let mut draft = Draft::new(store.root(), "test");
    for path in ["/plain", "/dots", "/plain2/below"] {
        let refused = draft.edit(Path::new(path), 0o644, |_| Ok(b"x".to_vec())).unwrap_err();
        assert!(matches!(refused, ChangeError::Refused { .. }), "{path}: {refused}");
    }
    let made = plan_of(&store, "/dots/profile");
    std::fs::write(home.path().join("dots/profile"), "meanwhile").unwrap();
    let changed = store.lock(SOON, false).unwrap().apply(&made).unwrap_err();
    assert!(matches!(changed, ChangeError::Changed(_)), "{changed}");
}

fn plan_of(store: &Store, path: &str) -> ChangePlan {
    let mut draft = Draft::new(store.root(), "test");
    draft.edit(Path::new(path), 0o644, |_| Ok(b"x".to_vec())).unwrap();
    draft.finish()
}

#[test]
fn two_at_once_wait_for_each_other_but_not_for_ever() {
    let home = home();
    let (one, two) = (store(home.path()), store(home.path()));
    let held = one.lock(SOON, false).unwrap();
    let refused = two.lock(Duration::from_millis(100), false).err().unwrap();
    assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
    drop(held);
    two.lock(SOON, false).unwrap();
}

#[test]
fn the_diff_cannot_speak_to_the_terminal() {
    let home = home();
    let diff = plan(&store(home.path())).diff();
    assert!(!diff.contains('\u{1b}') && !diff.contains('\0'), "{diff}");
    for line in ["--- /dots/profile", "+++ /dots/profile", "+added", "--- /dev/null", "new folder /new/deep"]
    {
        assert!(diff.lines().any(|l| l == line), "{line}: {diff}");
    }
    assert!(diff.contains("move /old cache to ") && diff.contains("it's \"a\\nfolder/f"), "{diff}");
}

#[test]
fn a_journal_of_another_kind_is_left_alone() {
    let home = home();
    let store = store(home.path());
    let folder = home.path().join("state/wave32/1.pending");
    std::fs::create_dir_all(&folder).unwrap();
    for text in ["", "{}", r#"{"format":2,"title":"","created":0,"undoes":null,"steps":[]}"#] {
        std::fs::write(folder.join("manifest.json"), text).unwrap();
        let refused = store.lock(SOON, false).err().unwrap();
        assert!(matches!(refused, ChangeError::Journal { .. }), "{refused}");
        assert!(folder.exists());
    }
}
