//! Makes rows of the golden table from kernel sources, with both compilers.

use crate::clang::Clang;
use crate::table::Row;
use crate::{CompileError, Target, aco, elf, glsl, isa, parallel, source};
use std::path::Path;
use wave32_params::variants::Variant;

/// The rows of `variants` that clang makes for `targets`, each compiled and linked on its own.
///
/// # Errors
/// The first source that does not compile, or output that cannot be read back.
pub fn llvm(
    root: &Path,
    clang: &Clang,
    scratch: &Path,
    variants: &[&Variant],
    targets: &[&str],
) -> Result<Vec<Row>, CompileError> {
    let jobs: Vec<(&Variant, &str)> =
        variants.iter().flat_map(|&v| targets.iter().map(move |&t| (v, t))).collect();
    let row = |&(variant, target): &(&Variant, &str)| {
        let source = source::source(root, variant, Target::Hip)?;
        let object = clang.relocatable(&source, target, scratch)?;
        let linked = object.with_extension("elf");
        clang.link(std::slice::from_ref(&object), &linked)?;
        let rows = code_object(clang, &linked, target, &[variant]);
        for finished in [object, linked] {
            // Best effort: the scratch folder is temporary.
            let _ = std::fs::remove_file(finished);
        }
        rows
    };
    let rows: Result<Vec<Vec<Row>>, CompileError> = parallel::map(&jobs, row).into_iter().collect();
    Ok(rows?.concat())
}

/// The rows of `variants` in the code object at `path`.
///
/// # Errors
/// [`CompileError::ReadBack`] where one of them is missing or the object cannot be read.
pub fn code_object(
    clang: &Clang,
    path: &Path,
    target: &str,
    variants: &[&Variant],
) -> Result<Vec<Row>, CompileError> {
    let bytes = std::fs::read(path).map_err(|source| CompileError::Read {
        at: target.to_string(),
        path: path.display().to_string(),
        source,
    })?;
    let metadata = elf::metadata(&bytes)?;
    let disassembly = clang.disassemble(path)?;
    let isa = isa::kernels(&disassembly);
    let row = |&variant: &&Variant| {
        let missing = |what: &str| CompileError::ReadBack {
            what: format!("{} for {target}", variant.name),
            reason: format!("its code object has no {what} of that name; does the text use KERNEL_NAME?"),
        };
        let figures = metadata.get(&variant.name).ok_or_else(|| missing("kernel"))?;
        let isa = isa.get(variant.name.as_str()).ok_or_else(|| missing("code"))?;
        Ok(Row::llvm(variant, target, figures, isa))
    };
    variants.iter().map(row).collect()
}

/// The rows of `variants` that RADV's compiler makes for one family, and the driver's version.
///
/// # Errors
/// The first source that does not compile, or [`CompileError::Tool`] without RADV.
pub fn radv(root: &Path, variants: &[&Variant], family: &str) -> Result<(Vec<Row>, String), CompileError> {
    let inputs = parallel::map(variants, |variant| spirv(root, variant));
    let inputs = inputs.into_iter().collect::<Result<Vec<_>, CompileError>>()?;
    radv_spirv(variants, &inputs, family)
}

/// A variant's SPIR-V, made from its source now.
///
/// # Errors
/// What is wrong with the source.
pub fn spirv(root: &Path, variant: &Variant) -> Result<aco::Input, CompileError> {
    let words = glsl::spirv(&source::source(root, variant, Target::Glsl)?)?;
    Ok(aco_input(variant, words.iter().flat_map(|w| w.to_le_bytes()).collect()))
}

/// As [`radv`], from SPIR-V that is there already: `inputs[i]` is `variants[i]`'s.
///
/// # Errors
/// As [`radv`].
pub fn radv_spirv(
    variants: &[&Variant],
    inputs: &[aco::Input],
    family: &str,
) -> Result<(Vec<Row>, String), CompileError> {
    let compiled = aco::compile(family, inputs, &aco::Asked::default())?;
    let row = |v: &&Variant| Row::aco(v, family, &compiled.kernels[&v.name]);
    Ok((variants.iter().map(row).collect::<Result<_, _>>()?, compiled.driver))
}

/// What RADV needs to know of a variant.
pub fn aco_input(variant: &Variant, spirv: Vec<u8>) -> aco::Input {
    let Variant { buffers, params, .. } = *variant;
    let needs = match variant {
        v if v.is_matrix() => aco::Needs::Matrix,
        v if v.is_dot() => aco::Needs::Dot,
        _ => aco::Needs::Nothing,
    };
    aco::Input { name: variant.name.clone(), spirv, buffers, params, needs }
}
