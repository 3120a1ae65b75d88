//! `wave32 miopen`: a wheel's, a distribution's and a bare folder, before, between and after; crashes; wrong folders.
#![cfg(target_os = "linux")]

mod common;

use common::{build, folder, nowhere, refused, stderr, stdout, wave32};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with our library, an older one, and a state of its own.
struct Bench {
    folder: PathBuf,
}

impl Bench {
    fn new(name: &str) -> Self {
        let folder = folder(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/ours.c");
        for (file, which) in
            [("new", "libMIOpen 9.9.2"), ("old", "libMIOpen 9.9.1"), ("guard", "libwave32_preload 9.9.2")]
        {
            build(&[&format!("-DWHICH=\"{which}\"")], &folder.join(file), &source);
        }
        std::fs::create_dir(folder.join("lib")).unwrap();
        Self { folder }
    }

    fn lib(&self) -> PathBuf {
        self.folder.join("lib")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = wave32();
        command.arg("miopen").args(arguments).arg("--into").arg(self.lib());
        command.env("HOME", &self.folder).env_remove("XDG_STATE_HOME");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn install(&self, library: &str) -> Output {
        let library = self.folder.join(library);
        self.run(&["install", "--yes", "--library", library.to_str().unwrap()])
    }

    fn is(&self, name: &str, library: &str) -> bool {
        std::fs::read(self.lib().join(name)).unwrap() == std::fs::read(self.folder.join(library)).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

type Tree = BTreeMap<PathBuf, (u32, u64, Vec<u8>)>;

/// Names, permissions, inodes and contents: it is to be the very file that comes back.
fn tree(folder: &Path) -> Tree {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let file = |path: PathBuf| {
        let meta = path.symlink_metadata().unwrap();
        let contents = match path.read_link() {
            Ok(target) => target.into_os_string().into_encoded_bytes(),
            Err(_) => std::fs::read(&path).unwrap(),
        };
        (path, (meta.mode(), meta.ino(), contents))
    };
    entries.map(file).collect()
}

/// A vendor's library with a content of its own.
fn vendors(path: &Path, salt: &str) {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    std::fs::write(path, format!("\x7fELF\0vendor {salt} {seed}\0\n").repeat(1000)).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_distributions_links_stay_and_the_file_comes_back() {
    let bench = Bench::new("miopen-links");
    vendors(&bench.lib().join("libMIOpen.so.1.0.50200"), "5.2");
    symlink("libMIOpen.so.1.0.50200", bench.lib().join("libMIOpen.so.1")).unwrap();
    symlink("libMIOpen.so.1", bench.lib().join("libMIOpen.so")).unwrap();
    std::fs::write(bench.lib().join("libamdhip64.so.5"), "\x7fELF").unwrap();
    let before = tree(&bench.lib());

    let told = bench.run(&["status"]);
    assert!(stdout(&told).contains("libMIOpen.so.1.0.50200: the vendor's\n"), "{}", stdout(&told));
    let library = bench.folder.join("new");
    let shown = bench.run(&["install", "--dry-run", "--library", library.to_str().unwrap()]);
    assert!(stdout(&shown).contains(".wave32-kept-libMIOpen.so.1.0.50200"), "{}", stdout(&shown));
    assert_eq!(tree(&bench.lib()), before, "only shown");
    refused(&bench.run(&["install", "--library", library.to_str().unwrap()]), 2, "nobody to ask");
    assert_eq!(tree(&bench.lib()), before, "nobody was asked");

    let done = bench.install("new");
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert!(bench.is("libMIOpen.so", "new") && bench.is("libMIOpen.so.1.0.50200", "new"));
    assert!(bench.lib().join("libMIOpen.so.1").is_symlink());
    assert!(stdout(&bench.install("new")).contains("nothing to do"));
    let told = stdout(&bench.run(&["status"]));
    assert!(told.contains("wave32's 9.9.2; the vendor's is kept as "), "{told}");
    // Another version of ours, and all out at once.
    assert_eq!(bench.install("old").status.code(), Some(0));
    assert!(bench.is("libMIOpen.so.1", "old"));
    let done = bench.run(&["uninstall", "--yes"]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert_eq!(tree(&bench.lib()), before);
    refused(&bench.run(&["uninstall", "--yes"]), 1, "not ours to remove");
    assert_eq!(tree(&bench.lib()), before);
}

#[test]
fn a_wheels_names_with_and_without_a_hash() {
    let bench = Bench::new("miopen-wheel");
    for name in ["libMIOpen.so", "libMIOpen-5b3f1c2a.so.1.0.60200"] {
        vendors(&bench.lib().join(name), name);
    }
    // As conda and uv install: another name of the same file, which must not change.
    std::fs::hard_link(bench.lib().join("libMIOpen.so"), bench.folder.join("cache")).unwrap();
    let (before, cached) = (tree(&bench.lib()), std::fs::read(bench.folder.join("cache")).unwrap());
    assert_eq!(bench.install("new").status.code(), Some(0));
    assert!(bench.is("libMIOpen.so", "new") && bench.is("libMIOpen-5b3f1c2a.so.1.0.60200", "new"));
    assert_eq!(std::fs::read(bench.folder.join("cache")).unwrap(), cached);
    // What `wave32 undo` would take back is the same change.
    assert_eq!(bench.run(&["uninstall", "--yes", "--json"]).status.code(), Some(0));
    assert_eq!(tree(&bench.lib()), before);
}

#[test]
fn alone_only_where_told() {
    let bench = Bench::new("miopen-alone");
    symlink("nowhere", bench.lib().join("libMIOpen.so")).unwrap();
    let before = tree(&bench.lib());
    refused(&bench.install("new"), 1, "no MIOpen");
    refused(&bench.run(&["uninstall", "--yes"]), 1, "no MIOpen");
    let library = bench.folder.join("new");
    let done = bench.run(&["install", "--yes", "--alone", "--library", library.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    assert!(bench.is("libMIOpen.so.1", "new"));
    assert_eq!(bench.run(&["uninstall", "--yes"]).status.code(), Some(0));
    assert_eq!(tree(&bench.lib()), before);
}

#[test]
fn wrong_folders_and_files_are_refused_and_nothing_changes() {
    let bench = Bench::new("miopen-wrong");
    let outside = bench.folder.join("libMIOpen.so.1.0.1");
    vendors(&outside, "outside");
    symlink(&outside, bench.lib().join("libMIOpen.so.1")).unwrap();
    let before = tree(&bench.lib());
    let text = stderr(&bench.install("new"));
    assert!(text.contains(&format!("--into {}", bench.folder.display())), "{text}");
    refused(&bench.install("guard"), 2, "another library of ours");
    refused(&bench.install("cache"), 2, "no such file");
    std::fs::write(bench.folder.join("half"), &std::fs::read(bench.folder.join("new")).unwrap()[..5000])
        .unwrap();
    let half = bench.install("half");
    refused(&half, 2, "damaged");
    assert!(stderr(&half).contains("damaged"), "{}", stderr(&half));
    assert_eq!(tree(&bench.lib()), before);
    std::fs::remove_file(bench.lib().join("libMIOpen.so.1")).unwrap();
    std::fs::write(bench.lib().join("libMIOpen.so"), "INPUT(libMIOpen.so.1)").unwrap();
    refused(&bench.install("new"), 1, "a linker's script");
    let missing = wave32().args(["miopen", "install", "--into", &nowhere("")]).output().unwrap();
    refused(&missing, 2, "no folder");
}

#[test]
fn an_update_of_the_package_is_not_taken_for_ours() {
    let bench = Bench::new("miopen-update");
    vendors(&bench.lib().join("libMIOpen.so"), "old");
    assert_eq!(bench.install("new").status.code(), Some(0));
    let file = bench.lib().join("libMIOpen.so");
    std::fs::remove_file(&file).unwrap();
    // Its file is gone: what was kept comes back.
    assert!(stdout(&bench.run(&["status"])).contains("gone, though the vendor's was kept"));
    vendors(&file, "new");
    let updated = std::fs::read(&file).unwrap();
    let refusal = bench.run(&["uninstall", "--yes"]);
    refused(&refusal, 1, "the vendor's");
    assert!(stderr(&refusal).contains("may be deleted"), "{}", stderr(&refusal));
    assert_eq!(bench.install("new").status.code(), Some(0));
    assert_eq!(bench.run(&["uninstall", "--yes"]).status.code(), Some(0));
    assert_eq!(std::fs::read(&file).unwrap(), updated);
}

#[test]
fn a_vendors_file_that_was_kept_and_is_gone_is_told() {
    let bench = Bench::new("miopen-lost");
    for (name, link) in [("libMIOpen.so.1.0.50200", Some("libMIOpen.so.1")), ("libMIOpen.so.1", None)] {
        let file = bench.lib().join(name);
        vendors(&file, "lost");
        if let Some(link) = link {
            symlink(name, bench.lib().join(link)).unwrap();
        }
        let theirs = std::fs::read(&file).unwrap();
        assert_eq!(bench.install("new").status.code(), Some(0));
        let kept = bench.lib().join(format!(".wave32-kept-{name}"));
        std::fs::remove_file(&kept).unwrap();
        let installed = tree(&bench.lib());
        let refusal = bench.run(&["uninstall", "--yes"]);
        refused(&refusal, 1, name);
        let text = stderr(&refusal);
        assert!(
            text.contains(kept.to_str().unwrap()) && text.contains("install its package again"),
            "{text}"
        );
        assert_eq!(tree(&bench.lib()), installed, "a MIOpen is left");
        // The package is installed again.
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &theirs).unwrap();
        assert_eq!(bench.install("new").status.code(), Some(0));
        assert_eq!(bench.run(&["uninstall", "--yes"]).status.code(), Some(0));
        assert_eq!(std::fs::read(&file).unwrap(), theirs);
        for entry in std::fs::read_dir(bench.lib()).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
}

#[test]
fn killed_at_any_time_it_is_before_or_after() {
    let bench = Bench::new("miopen-killed");
    let file = bench.lib().join("libMIOpen.so");
    vendors(&file, "killed");
    let before = tree(&bench.lib());
    let ours = std::fs::read(bench.folder.join("new")).unwrap();
    let library = bench.folder.join("new");
    for delay in 0..12 {
        let mut command = bench.command(&["install", "--yes", "--library", library.to_str().unwrap()]);
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(delay * 3));
        child.kill().unwrap();
        child.wait().unwrap();
        // There is a whole library at any time: theirs or ours.
        let now = std::fs::read(&file).unwrap();
        assert!(now == ours || now == before[&file].2, "after {delay}: {} bytes", now.len());
        let done = bench.run(&["install", "--yes", "--library", library.to_str().unwrap()]);
        assert_eq!(done.status.code(), Some(0), "after {delay}: {}", stderr(&done));
        assert_eq!(bench.run(&["uninstall", "--yes"]).status.code(), Some(0));
        assert_eq!(tree(&bench.lib()), before, "after {delay}");
    }
}

#[test]
fn two_at_once_and_a_full_disk() {
    let bench = Bench::new("miopen-two");
    vendors(&bench.lib().join("libMIOpen.so"), "two");
    let before = tree(&bench.lib());
    let library = bench.folder.join("new");
    let arguments = ["install", "--yes", "--library", library.to_str().unwrap()];
    // No file may be longer than 4 KiB: the first write of the library fails, as on a full disk. Nobody ignores the signal.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 8; exec \"$@\"", "sh"]);
    let command = bench.command(&arguments);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let done = limited.output().unwrap();
    refused(&done, 1, "no room");
    assert!(stderr(&done).contains("ulimit -f"), "{}", stderr(&done));
    assert_eq!(tree(&bench.lib()), before);
    let children: Vec<_> = (0..4)
        .map(|_| bench.command(&arguments).stdout(std::process::Stdio::piped()).spawn().unwrap())
        .collect();
    for child in children {
        let done = child.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
    }
    assert!(bench.is("libMIOpen.so", "new"));
    assert_eq!(bench.run(&["uninstall", "--yes"]).status.code(), Some(0));
    assert_eq!(tree(&bench.lib()), before);
}

#[test]
fn the_probe_is_of_the_vendors_never_of_ours() {
    let bench = Bench::new("miopen-probe");
    let probe = |library: &Path| {
        let mut command = wave32();
        command.arg("probe").arg("--library").arg(library).env("HOME", &bench.folder).output().unwrap()
    };
    refused(&probe(&bench.folder.join("new")), 2, "ours, built");
    let file = bench.lib().join("libMIOpen.so");
    vendors(&file, "probe");
    assert_eq!(bench.install("new").status.code(), Some(0));
    let installed = probe(&file);
    refused(&installed, 2, "ours, installed");
    assert!(stderr(&installed).contains(".wave32-kept-libMIOpen.so"), "{}", stderr(&installed));
}
