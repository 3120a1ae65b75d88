//! The drop-in from outside: what it exports and needs, against what its clients import.

mod card;

use card::library;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn tool(name: &str, args: &[&str]) -> String {
    let ended =
        Command::new(name).args(args).arg(library()).output().unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(ended.status.success(), "{name}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}

/// `name@@version` of all it defines.
fn defined() -> BTreeSet<String> {
    tool("nm", &["-D", "--defined-only"])
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(str::to_owned)
        .collect()
}

#[test]
fn exports_only_miopen_in_one_version() {
    let defined = defined();
    let other: Vec<_> = defined
        .iter()
        .filter(|name| {
            !(name.starts_with("miopen") && name.ends_with("@@MIOPEN_HIP_1")) && *name != "MIOPEN_HIP_1"
        })
        .collect();
    assert!(other.is_empty() && defined.len() > 50, "{other:?}, {} in all", defined.len());
}

#[test]
fn is_called_as_the_vendors_and_needs_nothing_of_the_vendor() {
    let dynamic = tool("readelf", &["-dW"]);
    let values = |key: &str| -> Vec<String> {
        let key = format!("({key})");
        let lines = dynamic.lines().filter(|line| line.contains(&key));
        lines.filter_map(|line| line.split(['[', ']']).nth(1)).map(str::to_owned).collect()
    };
    assert_eq!(values("SONAME"), ["libMIOpen.so.1"]);
    let libc =
        ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"];
    let needed = values("NEEDED");
    assert!(needed.iter().all(|name| libc.contains(&name.as_str())), "{needed:?}");
    assert!(values("RUNPATH").is_empty() && values("RPATH").is_empty());
    assert!(!dynamic.contains("TEXTREL"), "its code would have to be changed when it is loaded");
    assert!(!dynamic.contains("STATIC_TLS"), "dlopen into a running program would depend on luck");
}

/// One name a line, from real binaries or sources; `#` begins a comment.
#[test]
fn has_every_function_that_its_clients_import() {
    let defined = defined();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    let lists: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(lists.len() >= 3, "PyTorch, onnxruntime-rocm and tensorflow-rocm are meant: {lists:?}");
    for list in lists {
        let text = std::fs::read_to_string(&list).unwrap();
        let names: Vec<&str> = text
            .lines()
            .map(|line| line.split('#').next().unwrap().trim())
            .filter(|n| !n.is_empty())
            .collect();
        let missing: Vec<_> =
            names.iter().filter(|name| !defined.contains(&format!("{name}@@MIOPEN_HIP_1"))).collect();
        assert!(names.len() > 30 && missing.is_empty(), "{}: {missing:?} of {}", list.display(), names.len());
    }
}
