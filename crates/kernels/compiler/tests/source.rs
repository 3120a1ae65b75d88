//! The source protocol and the compilers, on the fixtures in tests/kernels/.

use std::path::{Path, PathBuf};
use wave32_kernelc::{CompileError, Target, glsl, source::source};
use wave32_params::variants::{self, Variant};

fn fixtures() -> (PathBuf, Vec<Variant>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels");
    let all = variants::read(&root).expect("the fixture's table and sources are right");
    (root, all)
}

/// A variant of a text that the test writes itself, in a folder of its own.
fn written(test: &str, files: &[(&str, &str)]) -> (PathBuf, Variant) {
    let root = std::env::temp_dir().join(format!("wave32-source-{}-{test}", std::process::id()));
    std::fs::create_dir_all(&root).expect("the temporary folder can be written");
    for (name, text) in files {
        std::fs::write(root.join(name), text).expect("the temporary folder can be written");
    }
    let (_, all) = fixtures();
    let variant = Variant { source: "k".to_string(), ..all[0].clone() };
    (root, variant)
}

#[test]
fn every_define_is_there_and_each_file_once() {
    let (root, all) = fixtures();
    let text = source(&root, &all[1], Target::Glsl).expect("the fixture's text").text;
    assert!(text.starts_with("#version 450\n"), "{text}");
    for line in ["TARGET_GLSL 1", "KERNEL_NAME dot_t64_f16", "DTYPE 1", "THREADS 64", "UNROLL 8"] {
        assert!(text.contains(&format!("#define {line}\n")), "{line}");
    }
    assert_eq!(text.matches("The least dialect").count(), 1);
    let hip = source(&root, &all[1], Target::Hip).expect("the fixture's text");
    assert!(hip.text.contains("#define TARGET_HIP 1\n") && !hip.text.contains("#version"));
    assert_eq!(hip.files, [root.join("dot.kern"), root.join("both.h")]);
}

#[test]
fn glslang_makes_spirv_1_3_of_every_fixture() {
    let (root, all) = fixtures();
    for variant in &all {
        let text = source(&root, variant, Target::Glsl).expect("the fixture's text");
        let words = glsl::spirv(&text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(words[..2], [0x0723_0203, 0x0001_0300], "{}", variant.name);
    }
}

#[test]
fn a_compile_error_names_the_file_and_line() {
    let files = [
        ("k.kern", "// one\n#include \"inner.h\"\nvoid main() {}\n"),
        ("inner.h", "\n\nint f() { return nowhere; }\n"),
    ];
    let (root, variant) = written("error", &files);
    let text = source(&root, &variant, Target::Glsl).expect("readable files");
    let error = glsl::spirv(&text).expect_err("`nowhere` is not declared").to_string();
    assert!(error.contains("inner.h:3") && error.contains("nowhere"), "{error}");
    let files = [("k.kern", "#include \"inner.h\"\n\nvoid main() { nowhere(); }\n"), ("inner.h", "\n\n\n")];
    let (root, variant) = written("error_after", &files);
    let text = source(&root, &variant, Target::Glsl).expect("readable files");
    let error = glsl::spirv(&text).expect_err("`nowhere` is not declared").to_string();
    assert!(error.contains("k.kern:3"), "{error}");
}

#[test]
fn includes_that_are_wrong_are_refused() {
    for line in [
        "#include <vector>",
        "#include \"../secret.h\"",
        "#include \"\"",
        "#include both.h",
        "#  include \"a\" b",
    ] {
        let (root, variant) = written("include", &[("k.kern", &format!("// x\n{line}\n"))]);
        match source(&root, &variant, Target::Hip) {
            Err(CompileError::Include { at, .. }) => assert_eq!(at, "k.kern:2"),
            other => panic!("{line}: {other:?}"),
        }
    }
    let (root, variant) = written("absent", &[("k.kern", "#include \"absent.h\"\n")]);
    let error = source(&root, &variant, Target::Hip).expect_err("the file is not there").to_string();
    assert!(error.contains("k.kern:1") && error.contains("absent.h"), "{error}");
}
