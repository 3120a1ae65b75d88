//! The table of MIOpen's calls against what its clients import and what we implement, and the page made from it.

#[path = "../abi.rs"]
mod abi;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

const CLIENTS: [(&str, &str); 5] = [
    ("PyTorch", include_str!("../clients/pytorch.txt")),
    ("ONNX Runtime", include_str!("../clients/onnxruntime.txt")),
    ("TensorFlow", include_str!("../clients/tensorflow.txt")),
    ("MIGraphX", include_str!("../clients/migraphx.txt")),
    ("JAX", include_str!("../clients/jax.txt")),
];

fn table() -> Vec<abi::Call> {
    abi::table(include_str!("../abi.txt"))
}

fn implemented() -> BTreeSet<String> {
    abi::implemented(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

fn imports(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

#[test]
fn each_call_has_one_row() {
    let table = table();
    let names: BTreeSet<_> = table.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names.len(), table.len(), "a call has two rows");
    for call in &table {
        let kinds = call.parameters.strip_prefix("p=").unwrap_or(&call.parameters);
        assert!(kinds.chars().all(|kind| "pilbfd".contains(kind)), "{}: {}", call.name, call.parameters);
        assert!(call.since.starts_with(|c: char| c.is_ascii_digit()), "{}: since {}", call.name, call.since);
    }
    let unknown: Vec<_> = implemented().into_iter().filter(|name| !names.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "implemented, and not in abi.txt: {unknown:?}");
}

#[test]
fn nothing_that_clients_import_is_missing() {
    let names: BTreeSet<_> = table().into_iter().map(|call| call.name).collect();
    for (client, text) in CLIENTS {
        assert!(imports(text).count() > 50, "{client}");
        let missing: Vec<_> = imports(text).filter(|name| !names.contains(*name)).collect();
        assert!(missing.is_empty(), "{client} imports what abi.txt has not: {missing:?}");
    }
}

#[test]
fn clients_are_refused_recurrent_nets_and_ctc_loss_alone() {
    let implemented = implemented();
    let absent: BTreeMap<String, String> = table()
        .into_iter()
        .filter(|call| !implemented.contains(&call.name) && !["rnn", "ctc"].contains(&call.group.as_str()))
        .map(|call| (call.name, call.group))
        .collect();
    for (client, text) in CLIENTS {
        let refused: Vec<_> = imports(text).filter(|name| absent.contains_key(*name)).collect();
        assert!(refused.is_empty(), "{client} imports what is refused: {refused:?}");
    }
}

/// `docs/miopen_abi.md`.
fn page() -> String {
    let (table, implemented) = (table(), implemented());
    let mut groups: BTreeMap<&str, Vec<&abi::Call>> = BTreeMap::new();
    table.iter().for_each(|call| groups.entry(&call.group).or_default().push(call));
    let done = table.iter().filter(|call| implemented.contains(&call.name)).count();
    let mut page = format!(
        "# MIOpen's calls\n\n\
         Made from `crates/miopen/abi.txt` and the sources by `WAVE32_BLESS=1 cargo test -p wave32-miopen --test abi`.\n\n\
         Every call of MIOpen's public headers, ROCm 5.2 to 7, is exported: {} in all, {done} of them implemented. The others \
         return\n`miopenStatusNotImplemented` and say their name on stderr, once; with a real MIOpen \
         behind,\nwhat is \"passed on\" goes there, implemented or not, and what is \"ours\" stays (`src/next.rs` says why).\n\n\
         | group | implemented | refused |\n|---|---|---|\n",
        table.len()
    );
    for (group, calls) in &groups {
        let ours = calls.iter().filter(|call| implemented.contains(&call.name)).count();
        let _ = writeln!(page, "| {group} | {ours} | {} |", calls.len() - ours);
    }
    page += "\n## What clients import that is refused\n\n";
    for (client, text) in CLIENTS {
        let refused: Vec<_> = imports(text).filter(|name| !implemented.contains(*name)).collect();
        let count = imports(text).count();
        let _ = writeln!(
            page,
            "- {client}, {count} calls: {}",
            match refused.len() {
                0 => "none".into(),
                n => format!("{n}: {}", refused.join(", ")),
            }
        );
    }
    for (group, calls) in &groups {
        let _ =
            write!(page, "\n## {group}\n\n| call | since | | with a MIOpen behind |\n|---|---|---|---|\n");
        for call in calls {
            let what = if implemented.contains(&call.name) { "implemented" } else { "refused" };
            let behind = if wave32_miopen::next::is_taken(&call.name) { "ours" } else { "passed on" };
            let _ = writeln!(page, "| {} | {} | {what} | {behind} |", call.name, call.since);
        }
    }
    page
}

#[test]
fn the_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/miopen_abi.md");
    let page = page();
    if std::env::var_os("WAVE32_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/miopen_abi.md is not what the table and the sources say: WAVE32_BLESS=1 writes it"
    );
}
