//! Real shells, and values that are hard to say in their words.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::process::Command;
use wave32_profile::{Dialect, Setting};

/// Values that trip every kind of quoting.
pub const NASTY: [&str; 12] = [
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
pub fn shell(name: &str) -> Option<Command> {
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
pub fn environment(mut shell: Command, script: &str) -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script with 'quotes'");
    std::fs::write(&file, format!("{script}\nenv -0\n")).unwrap();
    let output = shell.arg(&file).env("HOME", folder.path()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{script}\n{output:?}");
    parsed(&output.stdout)
}

/// What `env -0` printed.
pub fn parsed(bytes: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.into(), value.into())).collect()
}

/// Settings with those values, and one that takes a variable away.
pub fn settings() -> Vec<Setting> {
    let nasty = NASTY.iter().enumerate();
    let mut settings: Vec<_> = nasty
        .map(|(i, value)| Setting::set(&format!("NASTY_{i}"), value, "it's\n\"why\" `not`", ""))
        .collect();
    settings.push(Setting::unset("GONE", "for all", ""));
    settings
}

/// The shells, each with its dialect.
pub fn shells() -> impl Iterator<Item = (&'static str, Dialect)> {
    ["bash", "dash", "zsh", "fish", "tcsh"].into_iter().map(|name| {
        let dialect = if name == "fish" { Dialect::Fish } else { Dialect::of_shell(name).unwrap() };
        (name, dialect)
    })
}
