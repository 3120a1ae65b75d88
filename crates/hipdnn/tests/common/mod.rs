//! A host of our own: it does with the plugin what hipDNN's backend does, on the virtual card, with graphs that it writes.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod host;
pub mod reference;
#[path = "../../../miopen/tests/card/run.rs"]
pub mod run;
pub mod write;

use run::{DEADLINE, Run, launcher, linked};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Says that this process is on the card.
const ON_CARD: &str = "WAVE32_HIPDNN_TEST_ON_CARD";

/// The plugin: `WAVE32_HIPDNN_LIB`, or linked from this build's archive.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(library) = std::env::var_os("WAVE32_HIPDNN_LIB") {
            return library.into();
        }
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libwave32_hipdnn_plugin.so");
        linked("wave32_hipdnn", library, |library, archive| {
            let here = Path::new(env!("CARGO_MANIFEST_DIR"));
            let mut link = Command::new(here.join("../../scripts/link.sh"));
            let status = link.arg(library).arg(here.join("exports.map")).arg(archive).status();
            assert!(status.unwrap().success(), "scripts/link.sh failed");
        })
    })
}

/// Runs the body of the test of that name on the strict card, which is to find nothing: the test calls itself there.
pub fn on_card(test: &str, body: impl FnOnce()) {
    on_card_with(test, &[], body);
}

/// The same with variables.
pub fn on_card_with(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(ON_CARD).is_some() {
        return body();
    }
    let Some(launcher) = launcher() else { return };
    let mut all = vec![(ON_CARD, "1".as_ref()), ("WAVE32_HIPDNN_LIB", library().as_os_str())];
    all.extend(variables.iter().map(|&(name, value)| (name, value.as_ref())));
    let args = [test, "--exact", "--nocapture", "--test-threads=1"];
    let run = Run::of(&launcher, &std::env::current_exe().unwrap(), &args, &all, DEADLINE);
    let ended = &run.ended;
    let passed = ended.code == Some(0) && ended.stdout.contains("test result: ok. 1 passed");
    assert!(passed, "{:?}: {}\n{}", (ended.code, ended.signal), ended.stdout, ended.stderr);
    run.unharmed();
}

/// `WAVE32_TEST_SEED`, or a fresh one.
pub fn seed() -> u64 {
    let given = std::env::var("WAVE32_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(rand::random);
    println!("WAVE32_TEST_SEED={seed}");
    seed
}
