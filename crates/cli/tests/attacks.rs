//! `apply`, `undo` and `miopen` where somebody else owns the home, the tree under `--root`, or a folder on the way: what
//! they contrive reaches no further than they do. Two users are needed, so these run as root.
#![cfg(target_os = "linux")]

mod common;

use common::{refused, stderr, stdout, wave32};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Somebody who is not root.
const SOMEBODY: u32 = 65534;
const APPLY: [&str; 8] = ["apply", "--card", "gfx1010", "--route", "vulkan", "--to", "bash", "-y"];

/// A home of somebody's, and a file of root's.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    /// Nothing, told so, where this is not root.
    fn new() -> Option<Self> {
        if Path::new("/proc/self").metadata().unwrap().uid() != 0 {
            eprintln!("skipped: only root can act as two users");
            return None;
        }
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::set_permissions(bench.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["home/u", "root"] {
            std::fs::create_dir_all(bench.at(name)).unwrap();
        }
        for name in [".local", ".local/state", ".local/state/wave32", ".local/state/wave32/changes"] {
            std::fs::create_dir(bench.home().join(name)).unwrap();
            bench.give(&bench.home().join(name));
        }
        bench.give(&bench.home());
        std::fs::write(bench.home().join(".bashrc"), "one\n").unwrap();
        bench.give(&bench.home().join(".bashrc"));
        std::fs::write(bench.secret(), "root:x:0:0\n").unwrap();
        std::fs::set_permissions(bench.secret(), PermissionsExt::from_mode(0o600)).unwrap();
        Some(bench)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn home(&self) -> PathBuf {
        self.at("home/u")
    }

    fn changes(&self) -> PathBuf {
        self.home().join(".local/state/wave32/changes")
    }

    fn secret(&self) -> PathBuf {
        self.at("root/secret")
    }

    fn give(&self, path: &Path) {
        lchown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }

    /// Root, which kept the user's home.
    fn command(&self, home: &Path, args: &[&str]) -> Command {
        let mut command = wave32();
        for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "ZDOTDIR", "VIRTUAL_ENV", "CONDA_PREFIX"] {
            command.env_remove(name);
        }
        command.args(args).env("HOME", home).env("SHELL", "/bin/bash").stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(&self.home(), args).output().unwrap()
    }

    /// Taking this bench's folder for `/`.
    fn run_under_root(&self, args: &[&str]) -> Output {
        let mut command = self.command(Path::new("/home/u"), args);
        command.arg("--root").arg(self.folder.path()).output().unwrap()
    }

    #[track_caller]
    fn untouched(&self) {
        let meta = self.secret().symlink_metadata().unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o600, 0, 0));
        assert_eq!(std::fs::read(self.secret()).unwrap(), b"root:x:0:0\n");
        let names: Vec<_> =
            std::fs::read_dir(self.at("root")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["secret"]);
    }
}

#[test]
fn a_lock_that_is_a_link_leads_nowhere() {
    for under_root in [false, true] {
        let Some(bench) = Bench::new() else { return };
        let run = |args: &[&str]| if under_root { bench.run_under_root(args) } else { bench.run(args) };
        let lock = bench.changes().join("lock");
        for target in [bench.secret(), PathBuf::from("../../../../../../root/secret"), "/root/secret".into()]
        {
            symlink(&target, &lock).unwrap();
            bench.give(&lock);
            for args in [&APPLY[..], &["undo", "-y"]] {
                let output = run(args);
                if args[0] == "apply" {
                    refused(&output, 1, &target.display().to_string());
                    assert!(stderr(&output).contains("symbolic link"), "{}", stderr(&output));
                }
                bench.untouched();
                assert_eq!(std::fs::read(bench.home().join(".bashrc")).unwrap(), b"one\n");
            }
            std::fs::remove_file(&lock).unwrap();
        }
        assert_eq!(run(&APPLY).status.code(), Some(0), "{}", stderr(&run(&APPLY)));
        assert_eq!(bench.home().join(".bashrc").metadata().unwrap().uid(), SOMEBODY);
        assert_eq!(lock.metadata().unwrap().uid(), SOMEBODY);
        assert_eq!(run(&["undo", "-y"]).status.code(), Some(0));
        assert_eq!(std::fs::read(bench.home().join(".bashrc")).unwrap(), b"one\n");
        bench.untouched();
    }
}

/// `.local/state` leads out of the tree: the journal does not follow it there.
#[test]
fn a_root_is_closed_against_links() {
    for relative in [false, true] {
        let Some(bench) = Bench::new() else { return };
        let outside = tempfile::tempdir().unwrap();
        chown(outside.path(), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
        let target = match relative {
            false => outside.path().to_path_buf(),
            true => Path::new(&"../".repeat(20)).join(outside.path().strip_prefix("/").unwrap()),
        };
        let state = bench.home().join(".local/state");
        std::fs::remove_dir_all(&state).unwrap();
        symlink(&target, &state).unwrap();
        bench.give(&state);
        symlink(target.join("profile"), bench.home().join(".bash_profile")).unwrap();
        bench.give(&bench.home().join(".bash_profile"));
        let output = bench.run_under_root(&APPLY);
        refused(&output, 1, "what the link names is not in the tree, and root's place to make");
        assert!(std::fs::read_dir(outside.path()).unwrap().next().is_none());
        assert_eq!(std::fs::read(bench.home().join(".bashrc")).unwrap(), b"one\n");
        bench.untouched();
    }
}

/// The journal of a change that nobody made: undoing it would write what its author wants.
fn plant(changes: &Path, path: &Path, owner: u32) {
    let pending = changes.join("1.pending");
    std::fs::create_dir_all(&pending).unwrap();
    let meta = serde_json::json!({ "mode": 0o4755, "uid": 0, "gid": 0 });
    let step = serde_json::json!({ "do": "write", "path": path, "before": meta, "after": null });
    let manifest =
        serde_json::json!({ "format": 1, "title": "x", "created": 0, "undoes": null, "steps": [step] });
    std::fs::write(pending.join("manifest.json"), manifest.to_string()).unwrap();
    std::fs::write(pending.join("0.before"), "#!/bin/sh\nid\n").unwrap();
    for name in ["", "manifest.json", "0.before"] {
        lchown(pending.join(name), Some(owner), Some(owner)).unwrap();
    }
}

#[test]
fn a_planted_change_makes_no_file_of_roots() {
    let Some(bench) = Bench::new() else { return };
    let shell = bench.at("root/shell");
    plant(&bench.changes(), &shell, SOMEBODY);
    for args in [&APPLY[..], &["undo", "-y"], &["undo", "-y", "--force"], &["undo", "--all", "-y"]] {
        refused(&bench.run(args), 1, args[0]);
        bench.untouched();
    }
    std::fs::remove_dir_all(bench.changes().join("1.pending")).unwrap();
    // The same in the tree, with the tree's names, and with such as lead upwards.
    let up = Path::new("/").join("../".repeat(20)).join(shell.strip_prefix("/").unwrap());
    for path in [Path::new("/root/shell"), &up, Path::new("/home/u/../../root/shell")] {
        plant(&bench.changes(), path, SOMEBODY);
        for args in [&APPLY[..], &["undo", "-y", "--force"]] {
            refused(&bench.run_under_root(args), 1, &path.display().to_string());
            bench.untouched();
        }
        std::fs::remove_dir_all(bench.changes().join("1.pending")).unwrap();
    }
}

/// Any user of a shared folder could plant it: so a journal that was made open is refused, and none is made so.
#[test]
fn a_journal_that_others_may_write_to_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let shared = bench.at("shared");
    std::fs::create_dir(&shared).unwrap();
    let run = |args: &[&str]| {
        // The most open umask there is.
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 0; exec \"$@\"", "sh"]);
        let command = bench.command(&bench.at("root"), args);
        shell.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.env("XDG_STATE_HOME", &shared).output().unwrap()
    };
    let changes = shared.join("wave32/changes");
    let apply = ["apply", "--route", "cpu", "--to", "posix", "-y"];
    assert_eq!(run(&apply).status.code(), Some(0));
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
    assert_eq!([&changes, &changes.join("1"), &changes.join("parked")].map(|path| mode(path)), [0o700; 3]);
    assert_eq!([changes.join("lock"), changes.join("1/manifest.json")].map(|path| mode(&path)), [0o600; 2]);
    assert_eq!(mode(&shared.join("wave32")), 0o755);
    assert_eq!(run(&["undo", "-y"]).status.code(), Some(0));
    std::fs::remove_file(bench.at("root/.profile")).unwrap_or_default();
    bench.untouched();
    // As wave32 used to leave it.
    std::fs::set_permissions(&changes, PermissionsExt::from_mode(0o777)).unwrap();
    plant(&changes, &bench.at("root/shell"), SOMEBODY);
    for args in [&apply[..], &["undo", "-y"]] {
        let output = run(args);
        refused(&output, 1, "open to all");
        assert!(stderr(&output).contains("chmod -R go-w"), "{}", stderr(&output));
    }
    // Closed again, but with somebody else's change in it.
    std::fs::set_permissions(&changes, PermissionsExt::from_mode(0o700)).unwrap();
    let output = run(&apply);
    refused(&output, 1, "somebody else's");
    assert!(stderr(&output).contains("belongs to user 65534"), "{}", stderr(&output));
    bench.untouched();
}

/// The home's owner exchanges the new file before it gets its permissions: a long one, which takes its time to write.
#[test]
fn what_is_exchanged_meanwhile_gets_no_permissions() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let Some(bench) = Bench::new() else { return };
    let profile = bench.home().join(".bashrc");
    std::fs::write(&profile, [vec![0; 16 << 20], b"\n".to_vec()].concat()).unwrap();
    std::fs::set_permissions(&profile, PermissionsExt::from_mode(0o777)).unwrap();
    bench.give(&profile);
    let (stop, exchanged) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let link = bench.home().join("link");
            while !stop.load(Ordering::Relaxed) {
                let names = std::fs::read_dir(bench.home()).unwrap().flatten().map(|e| e.path());
                for new in
                    names.filter(|p| p.file_name().unwrap().as_encoded_bytes().starts_with(b".wave32-"))
                {
                    let _ = symlink(bench.secret(), &link);
                    exchanged.fetch_add(usize::from(std::fs::rename(&link, new).is_ok()), Ordering::Relaxed);
                }
            }
        });
        for _ in 0..6 {
            bench.run(&APPLY);
            bench.run(&["undo", "-y", "--force"]);
            if exchanged.load(Ordering::Relaxed) >= 3 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    bench.untouched();
}

/// sudo may keep the user's home: a library folder of root's is changed by root all the same.
#[test]
fn roots_folders_are_roots_in_anybodys_home() {
    let Some(bench) = Bench::new() else { return };
    let lib = bench.at("lib");
    std::fs::create_dir(&lib).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/ours.c");
    common::build(&["-DWHICH=\"libMIOpen 9.9.2\""], &bench.at("new"), &source);
    std::fs::write(lib.join("libMIOpen.so.1"), b"\x7fELF vendor's").unwrap();
    let (into, library) = (lib.to_str().unwrap(), bench.at("new"));
    let dry = ["miopen", "install", "--dry-run", "--library", library.to_str().unwrap(), "--into", into];
    let output = bench.run(&dry);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("libMIOpen.so.1"), "{}", stdout(&output));
    // In a folder of the user's it is done as the user, who may not write into root's.
    let theirs = bench.home().join("lib");
    std::fs::create_dir(&theirs).unwrap();
    std::fs::write(theirs.join("libMIOpen.so.1"), b"\x7fELF vendor's").unwrap();
    bench.give(&theirs);
    bench.give(&theirs.join("libMIOpen.so.1"));
    let words = ["miopen", "install", "--yes", "--library", library.to_str().unwrap(), "--into"];
    let output = bench.run(&[&words[..], &[theirs.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(theirs.join("libMIOpen.so.1").metadata().unwrap().uid(), SOMEBODY);
    let output = bench.run(&["miopen", "uninstall", "--yes", "--into", theirs.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(std::fs::read(theirs.join("libMIOpen.so.1")).unwrap(), b"\x7fELF vendor's");
    // A link there to a library of root's is refused.
    std::fs::remove_file(theirs.join("libMIOpen.so.1")).unwrap();
    symlink(bench.secret(), theirs.join("libMIOpen.so.1")).unwrap();
    let output = bench.run(&[&words[..], &[theirs.to_str().unwrap()]].concat());
    refused(&output, 1, "a link out");
    bench.untouched();
}
