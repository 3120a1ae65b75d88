//! Trees that somebody contrived: at each file that is looked at, something else than what belongs there. Nothing outside
//! the tree is opened, and each look ends soon.

#[path = "../tests/common/mod.rs"]
pub(crate) mod common;

use crate::scan::{Options, scan};
use crate::situation;
use crate::system::System;
use crate::verdict::Diagnosis;
use rustix::fs::{CWD, FileType, Mode, makedev};
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wave32_change::faults::{OldKernel, Record};
use wave32_change::startup::{self, Homes, StartupFile};
use wave32_change::{Draft, Root, Store};
use wave32_profile::{Route, Situation, profile};

/// What stands in a file's or folder's place.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    AbsoluteLink,
    RelativeLink,
    Loop,
    Fifo,
    Socket,
    Zero,
    LinkToZero,
    Sparse,
    LongLine,
    Deep,
    Noise,
    Unreadable,
}

const KINDS: [Kind; 12] = [
    Kind::AbsoluteLink,
    Kind::RelativeLink,
    Kind::Loop,
    Kind::Fifo,
    Kind::Socket,
    Kind::Zero,
    Kind::LinkToZero,
    Kind::Sparse,
    Kind::LongLine,
    Kind::Deep,
    Kind::Noise,
    Kind::Unreadable,
];

/// No look takes longer, on a busy machine either.
const SOON: Duration = Duration::from_secs(10);

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Puts it there; false where this user may not make such a thing.
fn put(kind: Kind, path: &Path, outside: &Path) -> bool {
    let mode = Mode::from_raw_mode(0o666);
    let make = |kind, device| rustix::fs::mknodat(CWD, path, kind, mode, device).is_ok();
    match kind {
        Kind::AbsoluteLink => symlink(outside, path).is_ok(),
        Kind::RelativeLink => {
            symlink(Path::new(&"../".repeat(30)).join(&outside.to_str().unwrap()[1..]), path).is_ok()
        }
        Kind::Loop => symlink(path.file_name().unwrap(), path).is_ok(),
        Kind::Fifo => make(FileType::Fifo, 0),
        Kind::Socket => make(FileType::Socket, 0),
        Kind::Zero => make(FileType::CharacterDevice, makedev(1, 5)),
        Kind::LinkToZero => symlink("/dev/zero", path).is_ok(),
        Kind::Sparse => std::fs::File::create(path).unwrap().set_len(20 << 30).is_ok(),
        Kind::LongLine => std::fs::write(path, "export HSA=".repeat(300_000)).is_ok(),
        Kind::Deep => std::fs::create_dir_all(path.join("d/".repeat(300))).is_ok(),
        Kind::Noise => {
            let mut state = Instant::now().elapsed().subsec_nanos() | 1;
            let noise = (0..65536).map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            });
            std::fs::write(path, noise.collect::<Vec<_>>()).is_ok()
        }
        Kind::Unreadable => {
            std::fs::write(path, "x").is_ok() && rustix::fs::chmod(path, Mode::empty()).is_ok()
        }
    }
}

/// A tree, something outside of it, and what a look at it is.
struct Bench {
    tree: tempfile::TempDir,
    outside: tempfile::TempDir,
    salt: usize,
}

impl Bench {
    fn new(tree: tempfile::TempDir) -> Self {
        let outside = folder();
        for name in ["file", "a.so", "manifest.json"] {
            std::fs::write(outside.path().join(name), "export CANARY=1\n").unwrap();
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Self { tree, outside, salt: now.subsec_micros() as usize }
    }

    /// Looks, and tells what was opened; none of it is outside.
    fn look(&self, what: &str, run: &dyn Fn(&Path) -> String) -> BTreeSet<PathBuf> {
        let begin = Instant::now();
        let record = Record::begin();
        let told = run(self.tree.path());
        let opened = record.opened();
        drop(record);
        assert!(begin.elapsed() < SOON, "{what}: {:?}", begin.elapsed());
        assert!(!told.contains("CANARY"), "{what}: {told}");
        let real = self.tree.path().canonicalize().unwrap();
        for path in &opened {
            assert!(path.starts_with(&real), "{what}: opened {}", path.display());
        }
        let left: Vec<_> = std::fs::read_dir(self.outside.path()).unwrap().collect();
        assert_eq!(left.len(), 3, "{what}");
        for entry in left {
            assert_eq!(std::fs::read(entry.unwrap().path()).unwrap(), b"export CANARY=1\n", "{what}");
        }
        opened.into_iter().filter(|path| *path != real).collect()
    }

    /// Puts something else in the place of each file and folder that a look opens, one at a time.
    fn attack(&self, run: &dyn Fn(&Path) -> String) -> usize {
        let usual = self.look("as it is", run);
        for (index, path) in usual.iter().enumerate() {
            // Some are made by the look itself, and gone.
            if path.symlink_metadata().is_err() {
                continue;
            }
            let aside = self.outside.path().with_extension("aside");
            std::fs::rename(path, &aside).unwrap();
            for kind in
                [KINDS[(index + self.salt) % KINDS.len()], KINDS[(index + self.salt + 5) % KINDS.len()]]
            {
                let target = match aside.is_dir() {
                    true => self.outside.path().to_path_buf(),
                    false => self.outside.path().join("file"),
                };
                if put(kind, path, &target) {
                    self.look(&format!("{kind:?} at {}", path.display()), run);
                }
                let _ = std::fs::remove_file(path);
                let _ = std::fs::remove_dir_all(path);
            }
            std::fs::rename(&aside, path).unwrap();
        }
        usual.len()
    }
}

fn recorded(name: &str) -> tempfile::TempDir {
    let trees = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees");
    let text = std::fs::read_to_string(trees.join(name).join("tree.txt")).unwrap();
    let tree = folder();
    common::build(tree.path(), &text);
    tree
}

fn examine(root: &Path) -> String {
    match System::at(root) {
        Ok(system) => {
            let situation = situation::of(&system);
            let facts = scan(&system, &Options::default());
            format!("{situation:?}{}", serde_json::to_string(&Diagnosis::of(facts)).unwrap())
        }
        Err(e) => e.to_string(),
    }
}

#[test]
fn something_else_at_every_file_of_a_scan() {
    let mut tried = 0;
    for name in ["rocm57-spoofed", "half-applied", "therock-venv", "broken-vulkan", "wsl2"] {
        tried += Bench::new(recorded(name)).attack(&examine);
    }
    assert!(tried > 200, "{tried}");
}

#[test]
fn an_old_kernel_keeps_the_scan_inside_too() {
    let _old = OldKernel::begin();
    assert!(Bench::new(recorded("settings-everywhere")).attack(&examine) > 50);
}

/// A home as `apply` meets it, with a change already made in it.
fn home() -> tempfile::TempDir {
    let tree = folder();
    let home = tree.path().join("home/u");
    std::fs::create_dir_all(home.join(".local/state")).unwrap();
    std::fs::create_dir_all(home.join("venv/bin")).unwrap();
    std::fs::create_dir_all(home.join(".config/fish/conf.d")).unwrap();
    for (name, text) in [
        (".bashrc", "one\n"),
        (".profile", "one\n"),
        ("venv/pyvenv.cfg", "home = /usr/bin\n"),
        ("venv/bin/activate", "deactivate () {\n    :\n}\n"),
    ] {
        std::fs::write(home.join(name), text).unwrap();
    }
    tree
}

/// Applies, undoes, and tells what was said.
fn change(root: &Path) -> String {
    let wait = Duration::from_millis(50);
    let homes = Homes { home: "/home/u".into(), config: "/home/u/.config".into(), zdot: "/home/u".into() };
    let run = || -> Result<String, Box<dyn std::error::Error>> {
        let store = Store::new(Root::new(root)?, "/home/u/.local/state/wave32/changes").of("/home/u");
        let settings = profile(&Situation::default(), Route::Cpu, false)?.settings;
        let session = store.lock(wait, true)?;
        let mut draft = Draft::new(store.root(), "test");
        for place in [StartupFile::Bash, StartupFile::Fish, StartupFile::Venv("/home/u/venv".into())] {
            startup::add(&mut draft, store.root(), &place, &homes, &settings)?;
        }
        let plan = draft.finish();
        let id = session.apply(&plan)?.unwrap_or(1);
        let undo = session.plan_undo(id)?;
        session.apply(&undo)?;
        Ok(plan.diff() + &undo.diff() + &format!("{:?}{:?}", store.history()?, store.put_away()?))
    };
    // What is to be tried is a first change, and one after others.
    run().unwrap_or_else(|e| e.to_string()) + &run().unwrap_or_else(|e| e.to_string())
}

#[test]
fn something_else_at_every_file_of_apply_and_undo() {
    let bench = Bench::new(home());
    assert!(change(bench.tree.path()).contains("activate"));
    assert!(bench.attack(&change) > 30);
}

#[test]
fn an_old_kernel_keeps_apply_and_undo_inside_too() {
    let _old = OldKernel::begin();
    let bench = Bench::new(home());
    assert!(bench.attack(&change) > 30);
}
