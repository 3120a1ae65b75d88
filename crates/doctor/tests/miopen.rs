//! Which MIOpen would be loaded, on recorded machines and made-up ones.
#![cfg(unix)]

mod common;

use std::path::Path;
use wave32_doctor::miopen::miopens;
use wave32_doctor::scan::{Options, scan};
use wave32_doctor::system::System;
use wave32_doctor::verdict::Diagnosis;

/// Files and reasons, best first, with these variables set.
fn found(tree: &str, env: &[(&str, &str)]) -> Vec<(String, String)> {
    let root = tempfile::tempdir().unwrap();
    common::build(root.path(), tree);
    let mut system = System::at(root.path()).unwrap();
    system.process.env.extend(env.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    let facts = scan(&system, &Options { thorough: true, ..Options::default() });
    miopens(&system, &facts).into_iter().map(|m| (m.path, m.why)).collect()
}

fn recorded(name: &str) -> String {
    let trees = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees");
    std::fs::read_to_string(trees.join(name).join("tree.txt")).unwrap()
}

fn paths(found: &[(String, String)]) -> Vec<&str> {
    found.iter().map(|(path, _)| path.as_str()).collect()
}

const SIDE_BY_SIDE: &str = "\
library /opt/rocm-9.2.0/lib/libMIOpen.so.1.0
link /opt/rocm-9.2.0/lib/libMIOpen.so.1 libMIOpen.so.1.0
one /opt/rocm-9.2.0/.info/version 9.2.0
library /opt/rocm-10.0.1/lib/libMIOpen.so.1
one /opt/rocm-10.0.1/.info/version 10.0.1
library /opt/rocm-5.7.1/lib/libMIOpen.so.1
one /opt/rocm-5.7.1/.info/version 5.7.1
link /opt/rocm /opt/rocm-5.7.1
library /usr/lib/x86_64-linux-gnu/libMIOpen.so.1
library /home/ada/patched/lib/libMIOpen.so.1
";

#[test]
fn what_the_variables_name_then_the_usual_one_then_the_newest() {
    let [old, newer, newest] =
        ["5.7.1/lib/libMIOpen.so.1", "9.2.0/lib/libMIOpen.so.1.0", "10.0.1/lib/libMIOpen.so.1"]
            .map(|rest| format!("/opt/rocm-{rest}"));
    let (distribution, patched) =
        ("/usr/lib/x86_64-linux-gnu/libMIOpen.so.1", "/home/ada/patched/lib/libMIOpen.so.1");
    let plain = found(SIDE_BY_SIDE, &[]);
    assert_eq!(paths(&plain), [&old, &newest, &newer, distribution]);
    assert_eq!(plain[0].1, "ROCm 5.7.1 in /opt/rocm-5.7.1");
    let named = found(
        SIDE_BY_SIDE,
        &[("LD_LIBRARY_PATH", ":/none:/home/ada/patched/lib"), ("ROCM_PATH", "/opt/rocm-9.2.0")],
    );
    assert_eq!(paths(&named), [patched, &newer, &old, &newest, distribution]);
    assert_eq!(named[0].1, "LD_LIBRARY_PATH names /home/ada/patched/lib");
    assert_eq!(named[1].1, "ROCM_PATH is /opt/rocm-9.2.0");
}

#[test]
fn what_the_active_pytorch_loads_comes_before_what_is_installed() {
    let site = "/home/ada/torch-rocm/lib/python3.12/site-packages";
    let wheel = found(&recorded("therock-venv"), &[]);
    assert_eq!(paths(&wheel), [format!("{site}/_rocm_sdk_libraries/lib/libMIOpen.so.1")]);
    assert!(wheel[0].1.contains("PyTorch 2.11.0") && wheel[0].1.contains("virtual environment"), "{wheel:?}");

    let bundled = "\
file /home/ada/venv/lib/python3.10/site-packages/torch/version.py
| __version__ = '2.2.2+rocm5.7'
| hip = '5.7.31921'
library /home/ada/venv/lib/python3.10/site-packages/torch/lib/libMIOpen.so
library /home/ada/venv/lib/python3.10/site-packages/torch/lib/libamdhip64.so
";
    let tree = format!("{SIDE_BY_SIDE}{bundled}");
    let own = "/home/ada/venv/lib/python3.10/site-packages/torch/lib/libMIOpen.so";
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        let active = found(&tree, &[(variable, "/home/ada/venv")]);
        assert_eq!(paths(&active)[..2], [own, "/opt/rocm-5.7.1/lib/libMIOpen.so.1"], "{variable}");
    }
    assert!(!paths(&found(&tree, &[])).contains(&own), "that environment is not active");
}

#[test]
fn none_where_there_is_no_rocm() {
    assert!(found(&recorded("no-gpu"), &[]).is_empty());
}

/// A wheel's MIOpen replaced by ours, or by the beginning of it.
fn replaced(words: &str) -> String {
    format!(
        "\
ours /opt/rocm-5.7.1/lib/libMIOpen.so.1.0 libMIOpen 0.1.0{words}
library /opt/rocm-5.7.1/lib/.wave32-kept-libMIOpen.so.1.0
link /opt/rocm-5.7.1/lib/libMIOpen.so.1 libMIOpen.so.1.0
one /opt/rocm-5.7.1/.info/version 5.7.1
ours /opt/rocm-6.0.0/lib/libMIOpen.so.1 libMIOpen 0.1.0
one /opt/rocm-6.0.0/.info/version 6.0.0
ours /usr/lib/wave32/libMIOpen.so.1 libMIOpen 0.1.0
defines /home/ada/shim.so hipMalloc
"
    )
}

#[test]
fn ours_is_known_and_the_vendors_is_the_one_that_was_kept() {
    let kept = "/opt/rocm-5.7.1/lib/.wave32-kept-libMIOpen.so.1.0";
    assert_eq!(paths(&found(&replaced(""), &[])), [kept], "the other one has none to go by");
    for (words, rules) in
        [("", vec!["wave32-miopen", "wave32-miopen"]), (" cut", vec!["wave32-damaged", "wave32-miopen"])]
    {
        let root = tempfile::tempdir().unwrap();
        common::build(root.path(), &replaced(words));
        let facts =
            scan(&System::at(root.path()).unwrap(), &Options { thorough: true, ..Options::default() });
        let diagnosis = Diagnosis::of(facts);
        let told = diagnosis.findings.iter().map(|f| f.rule).filter(|rule| rule.starts_with("wave32"));
        assert_eq!(told.collect::<Vec<_>>(), rules, "{words}");
        let versions = diagnosis.facts.rocm.iter().filter_map(|r| r.library("miopen")?.version.clone());
        assert!(versions.into_iter().all(|v| v == "0.1.0"));
    }
}

#[test]
fn what_is_preloaded_of_ours_is_no_shim() {
    let root = tempfile::tempdir().unwrap();
    common::build(root.path(), &replaced(""));
    let mut system = System::at(root.path()).unwrap();
    let list = "/usr/lib/wave32/libMIOpen.so.1:/home/ada/shim.so";
    system.process.env.insert("LD_PRELOAD".into(), list.into());
    let facts = scan(&system, &Options { thorough: true, ..Options::default() });
    assert_eq!(facts.preloaded.len(), 1);
    assert_eq!(facts.preloaded[0].path, "/usr/lib/wave32/libMIOpen.so.1");
    let diagnosis = Diagnosis::of(facts);
    let shims: Vec<&str> =
        diagnosis.findings.iter().filter(|f| f.rule == "preload-shim").map(|f| f.what.as_str()).collect();
    assert_eq!(shims, ["/home/ada/shim.so is loaded into every program"]);
}
