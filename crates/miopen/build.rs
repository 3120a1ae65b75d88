//! Writes a refusal for each call of MIOpen's that nothing in `src/` implements, so that no symbol is ever missing.

#[allow(dead_code, reason = "the tests use the rest")]
mod abi;

use std::fmt::Write;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=abi.txt");
    println!("cargo::rerun-if-changed=abi.rs");
    println!("cargo::rerun-if-changed=src");
    let table = std::fs::read_to_string("abi.txt").expect("abi.txt");
    let implemented = abi::implemented(Path::new("src"));
    let mut text = String::new();
    for call in abi::table(&table).iter().filter(|call| !implemented.contains(&call.name)) {
        let name = &call.name;
        // Arguments are not looked at: with C's calling conventions a function may take fewer than it is given.
        let _ = write!(
            text,
            "/// Refused.\n#[unsafe(no_mangle)]\npub extern \"C\" fn {name}() -> Status {{\n    refuse(\"{name}\")\n}}\n"
        );
    }
    let out = std::env::var_os("OUT_DIR").expect("OUT_DIR");
    std::fs::write(Path::new(&out).join("refused.rs"), text).expect("refused.rs");
}
