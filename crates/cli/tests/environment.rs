//! `env`, `apply` and `undo` over the real binary, in a home of their own.
#![cfg(unix)]

mod common;

use common::{nowhere, refused, stderr, stdout};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// A card whose PyTorch has its code.
const NATIVE: [&str; 4] = ["--card", "gfx1010", "--code-objects", "gfx1010,gfx1030"];
const SPOOF: [&str; 6] = ["--card", "gfx1010", "--code-objects", "gfx1030", "--rocm", "5.7"];

/// A home with a quote and a newline in its name.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(home.path()).unwrap();
        home
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("it's my\nhome")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn wave32(&self, args: &[&str]) -> Command {
        let mut command = common::wave32();
        let cleared = ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "ZDOTDIR", "VIRTUAL_ENV", "CONDA_PREFIX"];
        cleared.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.args(args).env("HOME", self.path()).env("SHELL", "/bin/bash").stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.wave32(args).output().unwrap()
    }

    #[track_caller]
    fn well(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}{}", stdout(&output), stderr(&output));
        stdout(&output)
    }

    /// Everything in the home but the store.
    fn tree(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        fn walk(folder: &Path, found: &mut BTreeMap<PathBuf, (u32, Vec<u8>)>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let meta = path.symlink_metadata().unwrap();
                if path.ends_with(".local") {
                    continue;
                } else if meta.is_dir() {
                    walk(&path, found);
                }
                let contents = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
                found.insert(path, (meta.mode(), contents));
            }
        }
        let mut found = BTreeMap::new();
        walk(&self.path(), &mut found);
        found
    }
}

fn with<'a>(words: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [words, more].concat()
}

#[test]
fn env_speaks_the_shell_and_gives_reasons() {
    let home = Home::new();
    let text = home.well(&with(&["env", "--shell", "bash"], &NATIVE));
    assert!(text.starts_with("# rocm: ") && text.contains("\nunset HSA_OVERRIDE_GFX_VERSION\n"), "{text}");
    assert!(text.contains("\nexport MIOPEN_FIND_MODE='FAST'\n"), "{text}");
    let fish = home.well(&with(&["env", "--shell", "fish"], &NATIVE));
    assert!(fish.contains("set -eg HSA_OVERRIDE_GFX_VERSION\n"), "{fish}");
    let json: Value = serde_json::from_str(&home.well(&with(&["env", "--json"], &NATIVE))).unwrap();
    assert_eq!(json["route"], "rocm");
    assert_eq!(json["settings"][0]["name"], "HSA_OVERRIDE_GFX_VERSION");
    assert_eq!(json["settings"][0]["action"], "unset");
    // What it prints works in a real shell.
    let script = home.file("script");
    std::fs::write(
        &script,
        format!("{text}\necho \"${{HSA_OVERRIDE_GFX_VERSION-gone}} $MIOPEN_FIND_MODE\"\n"),
    )
    .unwrap();
    let shell = Command::new("sh").arg(&script).env("HSA_OVERRIDE_GFX_VERSION", "10.3.0").output().unwrap();
    assert_eq!(stdout(&shell), "gone FAST\n");
}

#[test]
fn routes_and_refusals() {
    let home = Home::new();
    refused(&home.run(&with(&["env", "--route", "rocm"], &SPOOF)), 3, "no code");
    let text = stderr(&home.run(&with(&["env", "--route", "rocm"], &SPOOF)));
    assert!(text.contains("--route vulkan") && text.contains("--allow-spoof"), "{text}");
    let output = home.run(&with(&["env", "--route", "rocm", "--allow-spoof"], &SPOOF));
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("export HSA_OVERRIDE_GFX_VERSION='10.3.0'"));
    assert!(stderr(&output).contains("warning: ") && stderr(&output).contains("reboot"));
    // Without being asked for a route that does not work, it takes one that does.
    assert!(home.well(&with(&["env", "--allow-spoof"], &SPOOF)).starts_with("# vulkan: "));
    assert!(home.well(&["env", "--route", "cpu"]).contains("export HIP_VISIBLE_DEVICES='-1'"));
    let empty = tempfile::tempdir().unwrap();
    let root = empty.path().to_str().unwrap();
    let no_conda = format!("conda={}", nowhere(""));
    for (args, code) in [
        (&["env", "--route", "metal"][..], 2),
        (&["env", "--card", "RX5700"], 2),
        (&["env", "--card", "gfx1010;rm"], 2),
        (&["env", "--rocm", "new"], 2),
        (&["env", "--shell", "nu"], 2),
        (&["env", "--root", &nowhere("")], 2),
        (&["env", "--route", "rocm", "--root", "/proc/self/fd"], 3),
        (&["apply", "--route", "cpu", "--to", "nowhere"], 2),
        (&["apply", "--route", "cpu", "--to", "bash=/x"], 2),
        (&["apply", "--route", "cpu", "--to", "venv"], 2),
        (&["apply", "--route", "cpu", "--to", &no_conda, "--yes"], 1),
        (&["env", "--root", root], 3),
        (&["apply", "--root", root, "--yes"], 3),
        (&["undo", "99", "--yes"], 1),
        (&["undo", "x"], 2),
    ] {
        refused(&home.run(args), code, &args.join(" "));
    }
    let lost = home.wave32(&["apply", "--route", "cpu", "--yes"]).env_remove("HOME").output().unwrap();
    refused(&lost, 2, "no home");
    let odd = home.wave32(&["apply", "--route", "cpu", "--yes"]).env("SHELL", "/bin/nu").output().unwrap();
    refused(&odd, 2, "odd shell");
}

#[test]
fn apply_asks_writes_and_undo_restores_every_byte() {
    let home = Home::new();
    std::fs::create_dir(home.file("dots")).unwrap();
    std::fs::write(home.file("dots/bashrc"), "alias x=y\nexport HSA_OVERRIDE_GFX_VERSION=10.3.0").unwrap();
    std::fs::set_permissions(home.file("dots/bashrc"), PermissionsExt::from_mode(0o640)).unwrap();
    symlink("dots/bashrc", home.file(".bashrc")).unwrap();
    let before = home.tree();
    let apply = with(&["apply"], &NATIVE);
    let output = home.run(&apply);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("+unset HSA_OVERRIDE_GFX_VERSION\n"),
        "the diff is shown: {}",
        stdout(&output)
    );
    assert!(stderr(&output).contains("--yes"), "{}", stderr(&output));
    assert_eq!(home.tree(), before);

    let yes = with(&apply, &["--yes"]);
    assert!(home.well(&yes).contains("`wave32 undo`"));
    let after = home.tree();
    assert!(home.file(".bashrc").is_symlink());
    assert!(home.well(&yes).contains("nothing to do"));
    assert_eq!(home.tree(), after);
    let shell = Command::new("bash")
        .args(["-i", "-c", "echo ${HSA_OVERRIDE_GFX_VERSION-gone}"])
        .env("HOME", home.path())
        .output()
        .unwrap();
    assert_eq!(stdout(&shell).trim(), "gone");

    let json: Value = serde_json::from_str(&home.well(&["undo", "--list", "--json"])).unwrap();
    assert_eq!(json[0]["undone"], false);
    refused(&home.run(&["undo", "--json"]), 2, "nobody to ask");
    home.well(&["undo", "--yes"]);
    assert_eq!(home.tree(), before);
    assert!(home.well(&["undo", "--yes"]).contains("nothing to undo"));
    assert!(home.well(&["undo", "1", "--yes"]).contains("nothing to do"));
    assert_eq!(home.tree(), before);
    assert!(home.well(&["undo", "--list"]).contains("(undone)"));
}

#[test]
fn the_active_environment_is_the_place() {
    let home = Home::new();
    let venv = home.file("my venv");
    std::fs::create_dir_all(venv.join("bin")).unwrap();
    std::fs::write(venv.join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
    std::fs::write(venv.join("bin/activate"), "deactivate () {\n    :\n}\n").unwrap();
    let before = home.tree();
    let args = ["apply", "--route", "vulkan", "--vulkan-device", "1", "--yes"];
    let output = home.wave32(&args).env("VIRTUAL_ENV", &venv).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let script = home.file("script");
    std::fs::write(
        &script,
        ". \"$1\"\necho \"$WAVE32_VISIBLE_DEVICES\"\ndeactivate\necho \"${WAVE32_VISIBLE_DEVICES-gone}\"\n",
    )
    .unwrap();
    let shell = Command::new("sh").args([&script, &venv.join("bin/activate")]).output().unwrap();
    assert_eq!(stdout(&shell), "1\ngone\n", "{}", stderr(&shell));
    std::fs::remove_file(script).unwrap();
    home.well(&["undo", "--yes"]);
    assert_eq!(home.tree(), before);
    // One that is not what it says is refused.
    std::fs::write(venv.join("bin/activate"), "export PATH\n").unwrap();
    let output = home.wave32(&args).env("VIRTUAL_ENV", &venv).output().unwrap();
    refused(&output, 1, "no deactivate");
}

#[test]
fn several_changes_and_the_users_lines() {
    let home = Home::new();
    std::fs::write(home.file(".zshrc"), "one\n").unwrap();
    let before = home.tree();
    let places = ["--to", "zsh,fish,systemd,csh,posix", "--yes"];
    home.well(&with(&with(&["apply"], &NATIVE), &places));
    home.well(&with(&["apply", "--route", "cpu"], &places));
    assert!(home.well(&["undo", "--yes"]).contains("remain: 1"));
    let zshrc = std::fs::read_to_string(home.file(".zshrc")).unwrap();
    assert!(zshrc.contains("FAST"));
    std::fs::write(home.file(".zshrc"), format!("first\n{zshrc}last\n")).unwrap();
    home.well(&["undo", "--all", "--yes"]);
    assert_eq!(std::fs::read_to_string(home.file(".zshrc")).unwrap(), "first\none\nlast\n");
    std::fs::write(home.file(".zshrc"), "one\n").unwrap();
    assert_eq!(home.tree(), before, "folders that were made are gone as well");
    // An edit within our own lines.
    home.well(&["apply", "--route", "cpu", "--to", "fish", "--yes"]);
    let ours = home.file(".config/fish/conf.d/wave32.fish");
    let edited = std::fs::read_to_string(&ours).unwrap().replace("-1", "0");
    std::fs::write(&ours, &edited).unwrap();
    let output = home.run(&["undo", "--yes"]);
    refused(&output, 1, "conflict");
    assert!(stderr(&output).contains("undo --force"), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(&ours).unwrap(), edited);
    home.well(&["undo", "--yes", "--force"]);
    assert!(!ours.exists());
    assert_eq!(std::fs::read_to_string(ours.with_extension("fish.yours-1")).unwrap(), edited);
}

#[test]
fn under_a_root_nothing_else_is_touched() {
    let home = Home::new();
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("home/u")).unwrap();
    symlink("/home/u/real", root.path().join("home/u/.profile")).unwrap();
    let dir = root.path().to_str().unwrap();
    let args = ["apply", "--root", dir, "--route", "cpu", "--to", "posix", "--yes"];
    let output = home.wave32(&args).env("HOME", "/home/u").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(std::fs::read_to_string(root.path().join("home/u/real")).unwrap().contains("export"));
    assert!(!Path::new("/home/u").exists() || !Path::new("/home/u/real").exists());
    home.well(&["apply", "--root", dir, "--route", "cpu", "--system", "--yes"]);
    assert!(root.path().join("etc/profile.d/wave32.sh").exists());
    home.well(&["undo", "--root", dir, "--system", "--yes"]);
    assert!(!root.path().join("etc").exists());
    assert!(home.tree().is_empty());
}

#[test]
fn folders_and_files_that_may_not_be_written() {
    let home = Home::new();
    let other = nobody();
    let give = |path: &Path| {
        if let Some(uid) = other {
            std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
        }
    };
    std::fs::set_permissions(home.0.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(home.file(".profile"), "x\n").unwrap();
    for path in [home.path(), home.file(".profile")] {
        give(&path);
    }
    let run = |args: &[&str]| {
        let mut command = home.wave32(args);
        if let Some(uid) = other {
            command.uid(uid).gid(uid);
        }
        command.output().unwrap()
    };
    let apply = ["apply", "--route", "cpu", "--to", "posix", "--yes"];
    let first = run(&apply);
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    let after = home.tree();
    // The store may be written, the home may not.
    std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o555)).unwrap();
    let undo = run(&["undo", "--yes"]);
    refused(&undo, 1, "read-only home");
    assert!(stderr(&undo).contains("nothing was changed"), "{}", stderr(&undo));
    std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(home.tree(), after);
    assert_eq!(run(&["undo", "--yes"]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(home.file(".profile")).unwrap(), "x\n");
    assert_eq!(home.file(".profile").metadata().unwrap().uid(), home.path().metadata().unwrap().uid());
    // A store that cannot be made.
    std::fs::set_permissions(home.file(".local/state"), PermissionsExt::from_mode(0o555)).unwrap();
    std::fs::rename(home.file(".local/state/wave32"), home.file("elsewhere")).unwrap_or_default();
    if other.is_some() {
        refused(&run(&apply), 1, "read-only store");
        // Nor by root in that user's home, who has their rights; what root does there is theirs, journal and all.
        refused(&home.run(&apply), 1, "read-only store, by root");
        std::fs::set_permissions(home.file(".local/state"), PermissionsExt::from_mode(0o755)).unwrap();
        home.well(&apply);
        assert_eq!(home.file(".profile").metadata().unwrap().uid(), 65534);
        assert_eq!(run(&["undo", "--yes"]).status.code(), Some(0));
    }
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_nothing_changes() {
    let home = Home::new();
    std::fs::write(home.file(".bashrc"), "x\n".repeat(20_000)).unwrap();
    let before = home.tree();
    let apply = ["apply", "--route", "cpu", "--to", "bash", "--yes"];
    let limited = |args: &[&str], blocks: u32| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -f {blocks}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_wave32")]);
        shell.args(args).env("HOME", home.path()).env("SHELL", "/bin/bash").env_remove("XDG_STATE_HOME");
        shell.stdin(Stdio::null()).output().unwrap()
    };
    for blocks in [0, 1, 8, 40] {
        let output = limited(&apply, blocks);
        refused(&output, 1, &format!("{blocks} blocks"));
        assert!(stderr(&output).contains("ulimit -f"), "{}", stderr(&output));
        assert_eq!(home.tree(), before, "{blocks} blocks");
    }
    home.well(&apply);
    let after = home.tree();
    assert_eq!(limited(&["undo", "--yes"], 8).status.code(), Some(1));
    assert_eq!(home.tree(), after);
    home.well(&["undo", "--yes"]);
    assert_eq!(home.tree(), before);
}

/// Root may write everywhere: such tests then run as nobody.
fn nobody() -> Option<u32> {
    let own = Path::new("/proc/self").metadata().map_or(0, |meta| meta.uid());
    (own == 0).then_some(65534)
}

#[test]
fn killed_at_any_moment_it_is_before_or_after() {
    let home = Home::new();
    std::fs::write(home.file(".zshrc"), "one\n".repeat(1000)).unwrap();
    let before = home.tree();
    let apply = ["apply", "--route", "cpu", "--to", "zsh,fish,systemd,csh,posix", "--yes"];
    let begin = Instant::now();
    home.well(&apply);
    let takes = begin.elapsed();
    let after = home.tree();
    home.well(&["undo", "--yes"]);
    let no_conda = format!("conda={}", nowhere(""));
    for round in 0..40 {
        for (args, from, to) in [(&apply[..], &before, &after), (&["undo", "--yes"], &after, &before)] {
            let mut child = home.wave32(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(takes * round / 40);
            child.kill().unwrap();
            child.wait().unwrap();
            // A command that changes nothing here, but recovers.
            home.run(&["apply", "--route", "cpu", "--to", &no_conda, "--yes"]);
            let now = home.tree();
            assert!(now == *from || now == *to, "round {round}");
            if now == *from {
                home.well(args);
                assert_eq!(home.tree(), *to, "round {round}");
            }
        }
    }
}

#[test]
fn many_at_once_do_not_interleave() {
    let home = Home::new();
    let start = |i: usize| {
        let route = ["cpu", "vulkan"][i % 2];
        let args = ["apply", "--route", route, "--to", "zsh,fish,posix", "--yes", "--wait", "60"];
        home.wave32(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..8).map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let text = |name: &str| std::fs::read_to_string(home.file(name)).unwrap();
    let reason = |text: &str| text.contains("serves") || text.contains("one a process");
    let kinds =
        [".zshenv", ".zshrc", ".profile", ".config/fish/conf.d/wave32.fish"].map(|name| reason(&text(name)));
    assert!(kinds.iter().all(|kind| *kind == kinds[0]), "one whole change on top of another: {kinds:?}");
    home.well(&["undo", "--all", "--yes"]);
    assert!(home.tree().is_empty(), "{:?}", home.tree().keys());
}

#[test]
fn a_terminal_is_asked() {
    // `script` gives the command a terminal; the answer comes through it.
    let script = Command::new("script").arg("--version").output();
    if !script.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: script is not installed");
    }
    let home = Home::new();
    for (answer, code, written) in [("n\n", 1, false), ("\n", 1, false), ("y\n", 0, true)] {
        let mut child = Command::new("script")
            .args(["-qec", "\"$BINARY\" apply --route cpu --to posix", "/dev/null"])
            .env("BINARY", env!("CARGO_BIN_EXE_wave32"))
            .env("SHELL", "/bin/sh")
            .env("HOME", home.path())
            .env_remove("VIRTUAL_ENV")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{answer:?} {}", stdout(&output));
        assert!(stdout(&output).contains("[y/N]"));
        assert_eq!(home.file(".profile").exists(), written);
    }
}
