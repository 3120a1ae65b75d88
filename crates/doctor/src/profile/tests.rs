//! Profiles by situation, and what real shells make of them.

use super::*;
use crate::change::{Draft, Root, Store};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn situation(cards: &[&str], rocm: Option<&str>, objects: Option<&[&str]>) -> Situation {
    Situation {
        cards: cards.iter().map(ToString::to_string).collect(),
        rocm: rocm.map(|text| text.parse().unwrap()),
        code_objects: objects.map(|list| list.iter().map(ToString::to_string).collect()),
        vulkan_device: None,
    }
}

fn value<'p>(profile: &'p Profile, name: &str) -> Option<&'p Action> {
    profile.settings.iter().find(|setting| setting.name == name).map(|setting| &setting.action)
}

fn set(text: &str) -> Action {
    Action::Set(text.into())
}

#[test]
fn native_code_means_no_override() {
    for (card, objects) in [
        ("gfx1010", &["gfx1010:xnack-", "gfx1030"][..]),
        ("gfx1012", &["gfx10-1-generic"]),
        ("gfx1032", &["gfx10-3-generic", "gfx900"]),
    ] {
        let here = situation(&[card], Some("6.4.1"), Some(objects));
        assert_eq!(best_route(&here), Some(Route::Rocm));
        // Permission to spoof changes nothing where it is not needed.
        for allow in [false, true] {
            let profile = profile(&here, Route::Rocm, allow).unwrap();
            assert_eq!(value(&profile, "HSA_OVERRIDE_GFX_VERSION"), Some(&Action::Unset));
            assert_eq!(value(&profile, "MIOPEN_FIND_ENFORCE"), Some(&Action::Unset));
            assert_eq!(value(&profile, "MIOPEN_DEBUG_CONV_GEMM"), Some(&Action::Unset));
            let fast = card.starts_with("gfx101").then(|| set("FAST"));
            assert_eq!(value(&profile, "MIOPEN_FIND_MODE"), fast.as_ref());
            assert_eq!(value(&profile, "HIP_VISIBLE_DEVICES"), None);
            assert!(profile.settings.iter().all(|s| s.source.starts_with("https://") && !s.why.is_empty()));
        }
    }
}

#[test]
fn two_cards_of_which_one_has_code() {
    let here = situation(&["gfx1036", "gfx1010"], None, Some(&["gfx1010"]));
    let profile = profile(&here, Route::Rocm, false).unwrap();
    assert_eq!(value(&profile, "HIP_VISIBLE_DEVICES"), Some(&set("1")));
}

#[test]
fn the_spoof_needs_its_name_and_a_version_it_was_seen_with() {
    let spoofed = |rocm, allow| {
        profile(&situation(&["gfx1010"], rocm, Some(&["gfx900", "gfx1030"])), Route::Rocm, allow)
    };
    for rocm in [None, Some("5.2"), Some("5.7"), Some("6.2")] {
        let refused = spoofed(rocm, false).unwrap_err().to_string();
        assert!(refused.contains("--route vulkan") && refused.contains("gfx1030"), "{refused}");
    }
    assert!(spoofed(None, true).unwrap_err().next.contains("--rocm"));
    for rocm in ["4.5", "5.4.3", "6.0", "7.1"] {
        assert!(spoofed(Some(rocm), true).unwrap_err().why.contains(&rocm[..3]));
    }
    let old = spoofed(Some("5.2.3"), true).unwrap();
    assert_eq!(value(&old, "HSA_OVERRIDE_GFX_VERSION"), Some(&set("10.3.0")));
    assert_eq!(value(&old, "MIOPEN_DEBUG_CONV_IMPLICIT_GEMM"), Some(&set("1")));
    assert_eq!(value(&old, "MIOPEN_DEBUG_CONV_GEMM"), Some(&set("0")));
    assert!(old.warnings[0].contains("reboot"));
    let new = spoofed(Some("5.7.1"), true).unwrap();
    for (switch, on) in
        [("GEMM", "1"), ("IMPLICIT_GEMM", "0"), ("WINOGRAD", "0"), ("DIRECT", "0"), ("FFT", "0")]
    {
        assert_eq!(value(&new, &format!("MIOPEN_DEBUG_CONV_{switch}")), Some(&set(on)));
    }
    // Names that no library reads are not passed on.
    for name in ["HIP_FORCE_COARSE_GRAIN", "PYTORCH_ROCM_ARCH", "MIOPEN_WORKSPACE_LIMIT_MB"] {
        assert_eq!(value(&new, name), None);
    }
    let family = situation(&["gfx1012"], Some("6.3"), Some(&["gfx1010"]));
    assert!(profile(&family, Route::Rocm, false).is_err());
    let family = profile(&family, Route::Rocm, true).unwrap();
    assert_eq!(value(&family, "HSA_OVERRIDE_GFX_VERSION"), Some(&set("10.1.0")));
}

#[test]
fn other_routes() {
    assert_eq!(best_route(&situation(&[], None, None)), None);
    assert_eq!(best_route(&situation(&["gfx1010"], None, None)), Some(Route::Vulkan));
    assert_eq!(best_route(&situation(&["gfx1010"], None, Some(&["gfx1030"]))), Some(Route::Vulkan));
    let mut here = situation(&["gfx1010"], None, None);
    here.vulkan_device = Some(2);
    let vulkan = profile(&here, Route::Vulkan, false).unwrap();
    assert_eq!(value(&vulkan, "WAVE_VISIBLE_DEVICES"), Some(&set("2")));
    assert_eq!(value(&vulkan, "HIP_VISIBLE_DEVICES"), Some(&set("-1")));
    let unknown = profile(&here, Route::Rocm, false).unwrap();
    assert!(unknown.warnings[0].contains("get_arch_list"));
    assert!(profile(&situation(&[], None, None), Route::Rocm, true).is_err());
}

/// Values that trip every kind of quoting.
const NASTY: [&str; 12] = [
    "plain",
    "a b\tc",
    "it's \"quoted\"",
    "two\nlines\n\nand more",
    "$HOME ${HOME} $(id) `id`",
    r"back\slash \n \\ \",
    "!! !x a!b",
    "* ? ~ [a] {b,c}",
    "# no comment ; & | < > ( )",
    "-n",
    "grüße ☃",
    "%s\\x41",
];

/// The shell, or a note that it is not here (an error where `WAVE32_REQUIRE_SHELLS` is set).
fn shell(name: &str) -> Option<Command> {
    let found =
        Command::new(name).arg("-c").arg("exit 0").output().is_ok_and(|output| output.status.success());
    if !found {
        assert!(std::env::var_os("WAVE32_REQUIRE_SHELLS").is_none(), "{name} is not installed");
        eprintln!("skipped: {name} is not installed");
        return None;
    }
    let mut command = Command::new(name);
    // Nobody's own start-up files.
    let quiet: &[&str] = match name {
        "zsh" | "tcsh" => &["-f"],
        "fish" => &["--no-config"],
        _ => &[],
    };
    command.args(quiet).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    Some(command)
}

/// What the shell's environment is after it has read `script`.
fn environment(mut shell: Command, script: &str) -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script with 'quotes'");
    std::fs::write(&file, format!("{script}\nenv -0\n")).unwrap();
    let output = shell.arg(&file).env("HOME", folder.path()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{script}\n{output:?}");
    parsed(&output.stdout)
}

fn parsed(bytes: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.into(), value.into())).collect()
}

fn settings() -> Vec<Setting> {
    let nasty = NASTY.iter().enumerate();
    let mut settings: Vec<_> = nasty
        .map(|(i, value)| Setting::set(&format!("NASTY_{i}"), value, "it's\n\"why\" `not`", ""))
        .collect();
    settings.push(Setting::unset("GONE", "for all", ""));
    settings
}

fn shells() -> impl Iterator<Item = (&'static str, Dialect)> {
    ["bash", "dash", "zsh", "fish", "tcsh"].into_iter().map(|name| {
        let dialect = if name == "fish" { Dialect::Fish } else { Dialect::of_shell(name).unwrap() };
        (name, dialect)
    })
}

#[test]
fn every_shell_reads_every_value_as_it_is() {
    for (name, dialect) in shells() {
        let Some(mut command) = shell(name) else { continue };
        command.env("GONE", "there");
        let found = environment(command, &dialect.settings(&settings()));
        for (i, expected) in NASTY.iter().enumerate() {
            assert_eq!(found.get(&format!("NASTY_{i}")).map(String::as_str), Some(*expected), "{name}");
        }
        assert!(!found.contains_key("GONE"), "{name}");
    }
}

#[test]
fn systemd_reads_every_value_as_it_is() {
    let generator =
        Path::new("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator");
    if !generator.exists() {
        assert!(std::env::var_os("WAVE32_REQUIRE_SHELLS").is_none(), "systemd is not installed");
        return eprintln!("skipped: systemd is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("environment.d")).unwrap();
    let text = Dialect::Systemd.settings(&settings());
    std::fs::write(folder.path().join("environment.d/90-wave32.conf"), text).unwrap();
    let output = Command::new(generator)
        .env_clear()
        .env("HOME", folder.path())
        .env("XDG_CONFIG_HOME", folder.path())
        .output();
    let output = output.unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    // What it prints is quoted for a POSIX shell, with C's escapes for control characters.
    let printed = String::from_utf8(output.stdout).unwrap();
    for (i, expected) in NASTY.iter().enumerate() {
        let head = format!("NASTY_{i}=");
        let line = printed.lines().find_map(|line| line.strip_prefix(&head)).unwrap();
        let line = line.strip_prefix("$'").and_then(|l| l.strip_suffix('\'')).unwrap_or(line);
        let line = line.strip_prefix('"').and_then(|l| l.strip_suffix('"')).unwrap_or(line);
        let mut plain = String::new();
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match (c, if c == '\\' { chars.next() } else { None }) {
                ('\\', Some('n')) => plain.push('\n'),
                ('\\', Some('t')) => plain.push('\t'),
                ('\\', Some(other)) => plain.push(other),
                (c, _) => plain.push(c),
            }
        }
        assert_eq!(&plain, expected, "{printed}");
    }
}

#[test]
fn what_activation_sets_deactivation_takes_back() {
    let mut settings = settings();
    settings.push(Setting::unset("NEVER", "", ""));
    settings.push(Setting::set("HAD", "new value", "", ""));
    for (name, dialect) in shells() {
        let strict = if dialect == Dialect::Sh { "set -eu\n" } else { "" };
        for script in [
            format!("{strict}{}{}", dialect.activate(&settings), dialect.restore(&settings)),
            // Deactivated once more, and without having been activated.
            format!("{strict}{0}{1}{0}{0}", dialect.restore(&settings), dialect.activate(&settings)),
        ] {
            let Some(mut command) = shell(name) else { continue };
            command.env("GONE", "it's \"back\"!\nand more").env("HAD", "");
            let found = environment(command, &script);
            assert_eq!(found["GONE"], "it's \"back\"!\nand more", "{name}");
            assert_eq!(found["HAD"], "", "{name}");
            let ours = |key: &&String| key.starts_with("NASTY") || key.contains("WAVE32") || *key == "NEVER";
            assert_eq!(found.keys().filter(ours).collect::<Vec<_>>(), Vec::<&String>::new(), "{name}");
        }
    }
}

/// Applies one place to a home, tells what the diff was, and returns the store for undoing.
fn persisted(
    root: &Path,
    place: &StartupFile,
    settings: &[Setting],
) -> Result<Option<u64>, crate::change::ChangeError> {
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
fn dialects_by_shell() {
    for (path, dialect) in
        [("/usr/bin/zsh", Some(Dialect::Sh)), ("/bin/tcsh", Some(Dialect::Csh)), ("nu", None)]
    {
        let name = Path::new(path).file_name().and_then(OsStr::to_str).unwrap();
        assert_eq!(Dialect::of_shell(name), dialect);
    }
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
