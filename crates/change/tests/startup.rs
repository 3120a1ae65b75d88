//! Start-up files that are changed, and what real shells make of them.

#[path = "../../profile/tests/common/mod.rs"]
mod common;

use common::{NASTY, environment, parsed, settings, shell, shells};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use wave32_change::startup::{Homes, StartupFile, add};
use wave32_change::{ChangeError, Draft, Root, Store};
use wave32_profile::{Dialect, Setting};

/// Applies one place to a home, tells what the diff was, and returns the store for undoing.
fn persisted(root: &Path, place: &StartupFile, settings: &[Setting]) -> Result<Option<u64>, ChangeError> {
    let store = Store::new(Root::new(root).unwrap(), "/home/.local/state/wave32");
    let session = store.lock(Duration::from_secs(5), false)?;
    let mut draft = Draft::new(store.root(), "test");
    add(&mut draft, store.root(), place, &homes(), settings)?;
    session.apply(&draft.finish())
}

fn homes() -> Homes {
    Homes { home: "/home".into(), config: "/home/.config".into(), zdot: "/home".into() }
}

#[test]
fn start_up_files_are_read_by_their_shells() {
    let settings = settings();
    for (name, place, args) in [
        ("bash", StartupFile::Bash, &["-i", "-c", "env -0"][..]),
        ("bash", StartupFile::Bash, &["-l", "-c", "env -0"]),
        ("dash", StartupFile::Posix, &["-l", "-c", "env -0"]),
        ("zsh", StartupFile::Zsh, &["-c", "env -0"]),
        ("zsh", StartupFile::Zsh, &["-i", "-c", "env -0"]),
        ("fish", StartupFile::Fish, &["-c", "env -0"]),
        ("tcsh", StartupFile::Csh, &["-c", "env -0"]),
    ] {
        if shell(name).is_none() {
            continue;
        }
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        std::fs::create_dir_all(&home).unwrap();
        for rc in [".bashrc", ".zshrc"] {
            std::fs::write(home.join(rc), "export NASTY_0=earlier # no newline").unwrap();
        }
        // Twice, with other settings the first time.
        persisted(root.path(), &place, &settings[..3]).unwrap().unwrap();
        persisted(root.path(), &place, &settings).unwrap().unwrap();
        assert_eq!(persisted(root.path(), &place, &settings).unwrap(), None, "twice changes nothing");
        let output = Command::new(name)
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", &home)
            .env("GONE", "there")
            .output()
            .unwrap();
        let found = parsed(&output.stdout);
        for (i, expected) in NASTY.iter().enumerate() {
            assert_eq!(
                found.get(&format!("NASTY_{i}")).map(String::as_str),
                Some(*expected),
                "{name} {args:?} {output:?}"
            );
        }
        assert!(!found.contains_key("GONE"), "{name}");
    }
}

#[test]
fn a_virtual_environment_brings_and_takes_the_settings() {
    let root = tempfile::tempdir().unwrap();
    // The path is in the scripts, so it is tried with what breaks quoting.
    let folder = root.path().join("my venv's");
    let made = Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&folder).output();
    if !made.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: python3 cannot make a virtual environment");
    }
    let before: Vec<_> = ["activate", "activate.fish", "activate.csh"]
        .map(|name| std::fs::read(folder.join("bin").join(name)).unwrap())
        .to_vec();
    let place = StartupFile::Venv("/my venv's".into());
    persisted(root.path(), &place, &settings()[..2]).unwrap().unwrap();
    persisted(root.path(), &place, &settings()).unwrap().unwrap();
    assert_eq!(persisted(root.path(), &place, &settings()).unwrap(), None);
    for (name, script, source) in [
        ("bash", "activate", "."),
        ("zsh", "activate", "."),
        ("fish", "activate.fish", "source"),
        ("tcsh", "activate.csh", "source"),
    ] {
        let dialect = shells().find(|(shell, _)| *shell == name).unwrap().1;
        let path = dialect.quoted(folder.join("bin").join(script).to_str().unwrap());
        for (end, active) in
            [("", true), ("\ndeactivate", false), (&format!("\n{source} {path}\ndeactivate")[..], false)]
        {
            let Some(mut command) = shell(name) else { continue };
            command.env("GONE", "was here").env("VIRTUAL_ENV_DISABLE_PROMPT", "1");
            let prompt = if name == "tcsh" { "set prompt = x\n" } else { "" };
            let found = environment(command, &format!("{prompt}{source} {path}{end}"));
            assert_eq!(
                found.get("GONE").map(String::as_str),
                (!active).then_some("was here"),
                "{name} {end:?}"
            );
            for (i, value) in NASTY.iter().enumerate() {
                let expected = active.then_some(*value);
                assert_eq!(found.get(&format!("NASTY_{i}")).map(String::as_str), expected, "{name} {end:?}");
            }
        }
    }
    let store = Store::new(Root::new(root.path()).unwrap(), "/home/.local/state/wave32");
    let session = store.lock(Duration::from_secs(5), false).unwrap();
    for id in [2, 1] {
        session.apply(&session.plan_undo(id).unwrap()).unwrap().unwrap();
    }
    for (name, old) in ["activate", "activate.fish", "activate.csh"].iter().zip(before) {
        assert_eq!(std::fs::read(folder.join("bin").join(name)).unwrap(), old);
    }
    assert!(!folder.join("bin/wave32-restore.csh").exists());
}

#[test]
fn conda_scripts_come_in_pairs() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("env/conda-meta")).unwrap();
    persisted(root.path(), &StartupFile::Conda("/env".into()), &settings()).unwrap().unwrap();
    for (name, dialect) in shells() {
        let Some(mut command) = shell(name) else { continue };
        let file = |when: &str| {
            let path = root.path().join(format!("env/etc/conda/{when}.d/wave32.{}", dialect.name()));
            std::fs::read_to_string(path).unwrap()
        };
        command.env("GONE", "was here");
        let active = environment(command, &file("activate"));
        assert!(active.contains_key("NASTY_0") && !active.contains_key("GONE"), "{name}");
        // conda deactivates in shells started from the active one as well.
        let Some(mut command) = shell(name) else { continue };
        command.envs(active);
        let found = environment(command, &file("deactivate"));
        assert_eq!(found["GONE"], "was here", "{name}");
        assert!(!found.keys().any(|key| key.starts_with("NASTY")), "{name}");
    }
}

#[test]
fn places_that_are_not_what_they_should_be_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("home");
    std::fs::create_dir_all(&home).unwrap();
    let refused = |place: StartupFile| persisted(root.path(), &place, &settings()).unwrap_err().to_string();
    assert!(refused(StartupFile::Conda("/env".into())).contains("--to conda=FOLDER"));
    assert!(refused(StartupFile::Venv("/env".into())).contains("--to venv=FOLDER"));
    std::fs::write(home.join(".profile"), "# >>> wave32 >>>\nedited\n").unwrap();
    assert!(refused(StartupFile::Posix).contains("do not pair up"));
    std::fs::remove_file(home.join(".profile")).unwrap();
    symlink(".profile", home.join(".profile")).unwrap();
    assert!(refused(StartupFile::Posix).contains("circle"));
}

#[test]
fn a_line_taken_out_leaves_the_rest_working() {
    let (root, text) = (
        tempfile::tempdir().unwrap(),
        "if true; then\n  export GONE='1'  # old\nfi\nexport KEPT=1 \\\n  MORE=2",
    );
    std::fs::write(root.path().join("profile"), text).unwrap();
    let store = Store::new(Root::new(root.path()).unwrap(), "/store");
    let session = store.lock(Duration::from_secs(5), false).unwrap();
    let path = Path::new("/profile");
    let mut draft = Draft::new(store.root(), "test");
    for (number, line) in [(4, r"export KEPT=1 \"), (5, "  MORE=2"), (1, "fi"), (0, "fi"), (9, "fi")] {
        draft.replace_line(path, number, line, ":").unwrap_err();
    }
    let old = "  export GONE='1'  # old";
    draft.replace_line(path, 2, old, &Dialect::Sh.disabled(old)).unwrap();
    let id = session.apply(&draft.finish()).unwrap().unwrap();
    let now = std::fs::read_to_string(root.path().join("profile")).unwrap();
    for name in ["bash", "dash", "zsh"] {
        let Some(command) = shell(name) else { continue };
        let found = environment(command, &now);
        assert!(!found.contains_key("GONE") && found["KEPT"] == "1" && found["MORE"] == "2", "{name}: {now}");
    }
    session.apply(&session.plan_undo(id).unwrap()).unwrap();
    assert_eq!(std::fs::read_to_string(root.path().join("profile")).unwrap(), text);
}
