//! Every instruction of every shipped kernel, as LLVM has it.

use crate::{code, oracle};

#[test]
fn shipped_kernels_are_as_llvm_says() {
    if !oracle::present() {
        return;
    }
    let mut codes = Vec::new();
    for target in ["gfx1010", "gfx1011", "gfx1012"] {
        match wave32_kernels::code_objects(target) {
            Ok(elfs) => codes.extend(elfs.into_iter().flat_map(|elf| code::functions(target, elf))),
            Err(missing) => {
                assert!(std::env::var_os("WAVE32_REQUIRE_COMPILERS").is_none(), "{missing}");
                eprintln!("skipped: {missing}");
            }
        }
    }
    if codes.is_empty() {
        return;
    }
    let met = code::compare(&codes);
    met.print(&format!("{} shipped kernels", codes.len()));
    println!("  {}", met.ops.iter().map(|op| op.name()).collect::<Vec<_>>().join(" "));
    assert!(met.instructions > 1000, "the code objects are not empty");
}
