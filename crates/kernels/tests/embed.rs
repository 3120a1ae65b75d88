//! What is embedded is what the variants table says.

use rand::seq::IndexedRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use wave32_cards::targets::{self, code_of};
use wave32_kernelc::clang::Clang;
use wave32_kernelc::{Target, elf, source};
use wave32_kernels::sibling;
use wave32_params::variants;

/// What a SPIR-V module declares of its interface.
#[derive(Default)]
struct Interface {
    bindings: BTreeSet<u32>,
    local_size: Option<[u32; 3]>,
    push_words: u32,
}

/// Reads the few instructions that matter ("SPIR-V Specification", section 3: opcodes and operands).
fn interface(words: &[u32]) -> Interface {
    let (mut found, mut members, mut pointees, mut push) =
        (Interface::default(), BTreeMap::new(), BTreeMap::new(), None);
    let mut at = 5;
    while at < words.len() {
        let (opcode, length) = (words[at] & 0xffff, (words[at] >> 16) as usize);
        let operands = &words[at + 1..at + length];
        match (opcode, operands) {
            (16, [_, 17, x, y, z]) => found.local_size = Some([*x, *y, *z]), // OpExecutionMode LocalSize
            (71, [_, 33, binding]) => {
                found.bindings.insert(*binding); // OpDecorate Binding
            }
            (30, [id, rest @ ..]) => {
                members.insert(*id, rest.len() as u32); // OpTypeStruct
            }
            (32, [id, 9, pointee]) => {
                pointees.insert(*id, *pointee); // OpTypePointer PushConstant
            }
            (59, [pointer, _, 9, ..]) => push = Some(*pointer), // OpVariable PushConstant
            _ => {}
        }
        at += length;
    }
    found.push_words = push.map_or(0, |pointer| members[&pointees[&pointer]]);
    found
}

#[test]
fn every_variant_has_spirv_with_the_tables_interface() {
    assert_eq!(wave32_kernels::modules().len(), variants::all().len());
    for variant in variants::all() {
        let bytes =
            wave32_kernels::spirv(&variant.name).unwrap_or_else(|| panic!("{} is missing", variant.name));
        assert_eq!(bytes.as_ptr() as usize % 4, 0, "{}", variant.name);
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        assert_eq!(words[..2], [0x0723_0203, 0x0001_0300], "{}: SPIR-V 1.3", variant.name);
        let found = interface(&words);
        assert_eq!(found.local_size, Some([variant.threads, 1, 1]), "{}: threads", variant.name);
        assert_eq!(found.bindings, (0..variant.buffers).collect(), "{}: buffers", variant.name);
        assert_eq!(found.push_words, variant.params, "{}: params", variant.name);
    }
    assert_eq!(wave32_kernels::spirv("no_such_kernel"), None);
}

#[test]
fn every_code_object_holds_every_variant() {
    if wave32_kernels::targets().is_empty() {
        let reason = wave32_kernels::code_objects("gfx1010").expect_err("no targets, no object");
        println!("not checked: {reason}");
        assert!(std::env::var_os("WAVE32_REQUIRE_COMPILERS").is_none(), "{reason}");
    }
    for target in wave32_kernels::targets() {
        let codes = wave32_kernels::code_objects(target).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(codes.len(), 1 + usize::from(["gfx1011", "gfx1012"].contains(target)), "{target}");
        let mut kernels = BTreeMap::new();
        for bytes in codes {
            assert_eq!((bytes[7], bytes[8]), (64, 2), "{target}: amdhsa ABI, code object v4");
            assert_eq!(targets::by_elf(u32::from(bytes[48])), Some(*target));
            kernels.extend(elf::metadata(bytes).unwrap_or_else(|e| panic!("{target}: {e}")));
        }
        let built: Vec<_> = variants::all().iter().filter(|v| v.code_of(target).is_some()).collect();
        assert_eq!(kernels.len(), built.len(), "{target}");
        for variant in built {
            let figures = &kernels[&variant.name];
            assert_eq!(
                (figures.wave_size, figures.max_threads),
                (32, variant.threads),
                "{target} {}",
                variant.name
            );
            assert_eq!(figures.buffers, variant.buffers, "{target} {}: buffers", variant.name);
            assert_eq!(figures.params, variant.params, "{target} {}: params", variant.name);
        }
    }
}

/// Code for gfx1011 and gfx1012 is gfx1010's under another name: what clang makes for them, byte for byte.
#[test]
fn siblings_are_what_clang_makes() {
    let clang = match Clang::find() {
        Ok(clang) => clang,
        Err(reason) => {
            println!("not checked: {reason}");
            assert!(std::env::var_os("WAVE32_REQUIRE_COMPILERS").is_none(), "{reason}");
            return;
        }
    };
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let made = |variant: &variants::Variant, target: &str| {
        let source = source::source(&kernels, variant, Target::Hip).expect("a text");
        let object = clang.relocatable(&source, target, scratch.path()).expect("compiles");
        let linked = scratch.path().join("linked.elf");
        clang.link(&[object], &linked).expect("links");
        std::fs::read(linked).expect("was written")
    };
    let built: Vec<_> = variants::all().iter().filter(|v| v.code_of("gfx1010").is_some()).collect();
    for variant in built.choose_multiple(&mut rand::rng(), 3) {
        let code = made(variant, "gfx1010");
        for sibling in ["gfx1011", "gfx1012"] {
            assert_eq!(code_of(sibling), "gfx1010");
            let mut renamed = code.clone();
            sibling::retarget(&mut renamed, "gfx1010", sibling).expect("renames");
            assert!(renamed == made(variant, sibling), "{} for {sibling}", variant.name);
            assert!(
                sibling::retarget(&mut renamed, "gfx1010", sibling).is_err(),
                "it is not gfx1010's any more"
            );
        }
    }
}

#[test]
fn a_missing_target_says_why() {
    let error = wave32_kernels::code_objects("gfx000").expect_err("there is no such target").to_string();
    assert!(
        error.contains("gfx000") && error.len() > "no kernels for gfx000 in this build: ".len(),
        "{error}"
    );
}
