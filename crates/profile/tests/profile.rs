//! Profiles by situation, and what real shells make of their words.

mod common;

use common::{NASTY, environment, settings, shell, shells};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use wave32_profile::{Action, Dialect, Profile, Route, Setting, Situation, best_route, profile};

fn situation(cards: &[&str], rocm: Option<&str>, objects: Option<&[&str]>) -> Situation {
    Situation {
        cards: cards.iter().map(ToString::to_string).collect(),
        rocm: rocm.map(|text| text.parse().unwrap()),
        system: None,
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
    assert!(new.warnings.iter().any(|line| line.contains("hang") && line.contains("--rocm 5.2")));
    // One owner's PyTorch brought ROCm 5.7 to a system with 5.2, and worked with the other set.
    let mixed = |rocm: &str, system: &str| {
        let mut here = situation(&["gfx1010"], Some(rocm), Some(&["gfx900", "gfx1030"]));
        here.system = Some(system.parse().unwrap());
        profile(&here, Route::Rocm, true)
    };
    let mix = mixed("5.7.31921", "5.2.0").unwrap();
    assert_eq!(
        mix.settings.iter().map(|s| &s.name).collect::<Vec<_>>(),
        old.settings.iter().map(|s| &s.name).collect::<Vec<_>>()
    );
    assert_eq!(value(&mix, "MIOPEN_DEBUG_CONV_IMPLICIT_GEMM"), Some(&set("1")));
    assert_eq!(value(&mix, "MIOPEN_DEBUG_CONV_GEMM"), Some(&set("0")));
    assert!(mix.warnings.iter().any(|line| line.contains("512x512")));
    assert_eq!(mixed("5.7", "5.7").unwrap(), new);
    assert_eq!(mixed("5.7", "6.2").unwrap(), new);
    assert!(mixed("6.2", "5.2").is_err(), "what counts is what PyTorch loads");
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
    assert_eq!(value(&vulkan, "WAVE32_VISIBLE_DEVICES"), Some(&set("2")));
    assert_eq!(value(&vulkan, "HIP_VISIBLE_DEVICES"), Some(&set("-1")));
    let unknown = profile(&here, Route::Rocm, false).unwrap();
    assert!(unknown.warnings[0].contains("get_arch_list"));
    assert!(profile(&situation(&[], None, None), Route::Rocm, true).is_err());
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

#[test]
fn dialects_by_shell() {
    for (path, dialect) in
        [("/usr/bin/zsh", Some(Dialect::Sh)), ("/bin/tcsh", Some(Dialect::Csh)), ("nu", None)]
    {
        let name = Path::new(path).file_name().and_then(OsStr::to_str).unwrap();
        assert_eq!(Dialect::of_shell(name), dialect);
    }
}
