//! What documents say of the workspace, against the workspace.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use wave32_host::torch;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// All files below `folder` whose names end in `extension`.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

/// What a member depends on, by the last part of its path, and whether unsafe code may be in it.
#[derive(Debug, PartialEq)]
struct Member {
    needs: BTreeSet<String>,
    may_be_unsafe: bool,
}

fn last(path: &str) -> String {
    path.rsplit('/').next().unwrap().to_owned()
}

/// The members as cargo has them; what only tests need is left out.
fn members() -> BTreeMap<String, Member> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let needs = package["dependencies"].as_array().unwrap().iter();
        let needs =
            needs.filter(|d| d["kind"] != "dev").filter_map(|d| d["path"].as_str()).map(last).collect();
        let entry =
            ["src/lib.rs", "src/main.rs"].map(|name| folder.join(name)).into_iter().find(|f| f.exists());
        let may_be_unsafe = !fs::read_to_string(entry.unwrap()).unwrap().contains("#![forbid(unsafe_code)]");
        let path = folder.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        found.insert(path, Member { needs, may_be_unsafe });
    }
    found
}

/// The rows of docs/ARCHITECTURE.md that name a member each.
fn rows() -> BTreeMap<String, Member> {
    let text = read("docs/ARCHITECTURE.md");
    let mut found = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let [_, place, what, needs, _] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("not three columns: {row}");
        };
        if needs.is_empty() {
            continue;
        }
        let needs = if needs == "nothing of ours" { "" } else { needs };
        let needs = needs.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let member = Member { needs, may_be_unsafe: what.ends_with("unsafe code") };
        let before = found.insert(place.trim_matches('`').to_owned(), member);
        assert!(before.is_none(), "two rows for {place}");
    }
    found
}

#[test]
fn the_architecture_s_table_is_the_workspace() {
    let (members, rows) = (members(), rows());
    let names = |table: &BTreeMap<String, Member>| table.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&rows), names(&members), "rows (left) and members (right)");
    for (name, member) in &members {
        assert_eq!(&rows[name], member, "{name}: its row (left) and what cargo and its lib.rs say (right)");
    }
}

#[test]
fn the_readme_asks_for_the_rust_that_cargo_toml_promises() {
    let manifest = read("Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let wanted = format!("Rust {}+", version.unwrap().trim_matches('"'));
    assert!(read("README.md").contains(&wanted), "README.md: not {wanted}");
}

/// The text with every run of white space a blank.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What follows `torch ` where that is a version, and the rest of the sentence.
fn versions(text: &str) -> Vec<&str> {
    let after = text.match_indices("torch ").map(|(at, word)| &text[at + word.len()..]);
    after.filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())).collect()
}

#[test]
fn documents_say_the_versions_of_torch_that_the_device_is_made_for() {
    let (range, oldest) = (torch::range(), format!("{}.{}", torch::OLDEST.0, torch::OLDEST.1));
    let mut documents = vec![root().join("README.md")];
    files(&root().join("docs"), "md", &mut documents);
    let mut said = BTreeMap::new();
    for path in documents {
        let text = flat(&fs::read_to_string(&path).unwrap());
        for rest in versions(&text) {
            let words: Vec<&str> = rest.splitn(4, ' ').collect();
            let expected = match words[..] {
                [_, "to", ..] => &range,
                [_, "and" | "or", more, ..] if more.starts_with("newer") => &oldest,
                _ => continue,
            };
            assert!(
                rest.starts_with(expected.as_str()),
                "{}: torch {rest:.40}: not {expected}",
                path.display()
            );
            *said.entry(path.file_name().unwrap().to_owned()).or_insert(0) += 1;
        }
    }
    for name in ["README.md", "torch.md"] {
        assert!(said.contains_key(name.as_ref() as &std::ffi::OsStr), "{name} says no range: {said:?}");
    }
    assert!(
        read("pyproject.toml").contains(&format!("\"torch>={oldest}\"")),
        "pyproject.toml: not torch>={oldest}"
    );
}

#[test]
fn programs_ask_for_the_versions_of_torch() {
    let (newest, mut programs) = (torch::NEWEST, Vec::new());
    let range = [
        torch::range(),
        format!("<= ({}, {})", newest.0, newest.1),
        format!("> ({}, {})", newest.0, newest.1),
    ];
    for folder in [
        "crates/doctor/src",
        "crates/change/src",
        "crates/launch/src",
        "crates/profile/src",
        "crates/torch/src",
        "crates/cli/src",
    ] {
        files(&root().join(folder), "rs", &mut programs);
    }
    files(&root().join("python"), "py", &mut programs);
    assert!(programs.len() > 100, "{programs:?}");
    for path in programs {
        let text = flat(&fs::read_to_string(&path).unwrap());
        for words in &range {
            assert!(!text.contains(words), "{}: `{words}` is for wave32_host::torch to say", path.display());
        }
    }
}
