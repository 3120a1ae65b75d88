//! HIP devices through the real binary, on a runtime that stands in for AMD's.
#![cfg(unix)]

mod common;

use common::{LINE, build_hip, folder, refused, stderr, stdout, wave32};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The command with the stand-in for a runtime.
fn with_hip(folder: &Path, args: &[&str]) -> Command {
    let library = folder.join("libamdhip64.so.6");
    if !library.exists() {
        build_hip(&library);
    }
    let mut command = wave32();
    command.args(args).env("WAVE32_HIP_LIBRARY", library).env_remove("WAVE32_ALLOW_SPOOF");
    command.env_remove("HSA_OVERRIDE_GFX_VERSION");
    command
}

/// The listed HIP devices, and why there are none.
fn listed(command: &mut Command) -> (Vec<Value>, String) {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let none = found["no_hip"].as_str().unwrap_or_default().to_string();
    (found["hip"].as_array().unwrap().clone(), none)
}

#[test]
fn devices_are_listed_by_route() {
    let folder = folder("hip-devices");
    let mut command = with_hip(&folder, &["devices"]);
    let output = command.env("STANDIN_COUNT", "2").output().unwrap();
    let text = stdout(&output);
    let rocm =
        text.split("route rocm").nth(1).unwrap_or_default().split("route cpu").next().unwrap_or_default();
    for word in ["hip:0", "hip:1", "Stand-in RX 5600 XT 1", "gfx1010:xnack-", "HIP 5.2.21153"] {
        assert!(rocm.contains(word), "{word} is not in: {text}");
    }
    // A runtime that crashes, or that is none, costs its own devices only.
    let (devices, none) = listed(with_hip(&folder, &["devices", "--json"]).env("STANDIN_ABORT", "1"));
    assert!(devices.is_empty() && none.contains("died of signal 6"), "{none}");
    let (devices, none) = listed(with_hip(&folder, &["devices", "--json"]).env("STANDIN_COUNT", "0"));
    assert!(devices.is_empty() && none.contains("sees no device"), "{none}");
    let (devices, none) = listed(wave32().args(["devices", "--json"]));
    assert!(devices.is_empty() && none.contains("WAVE32_HIP_LIBRARY"), "{none}");
}

#[test]
fn a_spoofed_target_is_refused() {
    let folder = folder("hip-spoof");
    let spoofed = |args: &[&str]| {
        let mut command = with_hip(&folder, args);
        command.env("HSA_OVERRIDE_GFX_VERSION", "10.3.0").env("STANDIN_ARCH", "gfx1030");
        command
    };
    let (devices, _) = listed(&mut spoofed(&["devices", "--json"]));
    let why = devices[0]["device"]["unusable"].as_str().unwrap_or_default();
    assert!(
        why.contains("HSA_OVERRIDE_GFX_VERSION=10.3.0") && why.contains("WAVE32_ALLOW_SPOOF"),
        "{devices:?}"
    );
    for device in ["hip", "hip:0"] {
        let output = spoofed(&["verify", LINE, "--device", device]).output().unwrap();
        refused(&output, 3, device);
        assert!(stderr(&output).contains("HSA_OVERRIDE_GFX_VERSION"), "{}", stderr(&output));
        refused(&spoofed(&["bench", LINE, "--device", device]).output().unwrap(), 3, device);
    }
    let (devices, _) = listed(spoofed(&["devices", "--json"]).env("WAVE32_ALLOW_SPOOF", "1"));
    let why = devices[0]["device"]["unusable"].as_str().unwrap_or_default();
    assert!(!why.contains("HSA_OVERRIDE"), "{why}");
}

#[test]
fn devices_that_are_not_there_are_refused() {
    let folder = folder("hip-none");
    for (device, count) in [("hip:1", "1"), ("hip", "0"), ("hip:x", "1"), ("hip:", "1")] {
        for command in ["verify", "bench"] {
            let mut command = with_hip(&folder, &[command, LINE, "--device", device]);
            refused(&command.env("STANDIN_COUNT", count).output().unwrap(), 3, device);
        }
    }
}
