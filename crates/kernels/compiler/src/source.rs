//! The source protocol: makes the complete source of a variant (docs/kernels.md).

use crate::CompileError;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use wave32_params::variants::Variant;

/// The language that a kernel source is compiled as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// GLSL 4.50 compute shader, for SPIR-V.
    Glsl,
    /// HIP device code, for gfx code objects.
    Hip,
}

/// A variant's complete source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The variant's name.
    pub name: String,
    /// What the compiler reads. Its `#line` markers make messages name the kernel's own files.
    pub text: String,
    /// Every file that went into it, the kernel's own first.
    pub files: Vec<PathBuf>,
}

/// The complete source of `variant`, from the kernels folder `root`.
///
/// # Errors
/// [`CompileError::Read`] and [`CompileError::Include`], naming the line at fault.
pub fn source(root: &Path, variant: &Variant, target: Target) -> Result<Source, CompileError> {
    let mut text = preamble(variant, target);
    let mut reader = Reader { root, seen: BTreeSet::new(), files: Vec::new() };
    reader.append(&format!("{}.kern", variant.source), &variant.name, &mut text)?;
    Ok(Source { name: variant.name.clone(), text, files: reader.files })
}

/// The macros every kernel sees.
fn preamble(variant: &Variant, target: Target) -> String {
    let mut text = String::new();
    match target {
        // The extension only lets `#line` carry a file name.
        Target::Glsl => text.push_str(
            "#version 450\n#extension GL_GOOGLE_cpp_style_line_directive : require\n#define TARGET_GLSL 1\n",
        ),
        Target::Hip => text.push_str("#define TARGET_HIP 1\n"),
    }
    let mut define = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "#define {name} {value}").expect("a String takes every write");
    };
    define("KERNEL_NAME", &variant.name);
    define("DTYPE", &variant.dtype_code());
    define("THREADS", &variant.threads);
    for (name, value) in &variant.defines {
        define(name, value);
    }
    text
}

/// Resolves includes, each file at most once.
struct Reader<'a> {
    root: &'a Path,
    seen: BTreeSet<String>,
    files: Vec<PathBuf>,
}

impl Reader<'_> {
    fn append(&mut self, file: &str, at: &str, text: &mut String) -> Result<(), CompileError> {
        if !self.seen.insert(file.to_string()) {
            return Ok(());
        }
        let path = self.root.join(file);
        let content = std::fs::read_to_string(&path).map_err(|source| CompileError::Read {
            at: at.to_string(),
            path: path.display().to_string(),
            source,
        })?;
        self.files.push(path);
        text.push_str(&line_marker(1, file));
        for (index, line) in content.lines().enumerate() {
            let at = format!("{file}:{}", index + 1);
            match included(line) {
                Some(Some(inner)) => {
                    self.append(inner, &at, text)?;
                    text.push_str(&line_marker(index + 2, file));
                }
                Some(None) => return Err(CompileError::Include { at, line: line.to_string() }),
                None => {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
        Ok(())
    }
}

fn line_marker(line: usize, file: &str) -> String {
    format!("#line {line} \"{file}\"\n")
}

/// `None`: no include line; `Some(None)`: a malformed one; `Some(Some(file))`: includes `file`.
fn included(line: &str) -> Option<Option<&str>> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
    let quoted = rest.trim().strip_prefix('"').and_then(|r| r.split_once('"'));
    let file = quoted.filter(|(_, after)| after.is_empty() || after.trim_start().starts_with("//"));
    // A path could leave kernels/: plain names only.
    Some(file.map(|(name, _)| name).filter(|name| !name.is_empty() && !name.contains(['/', '\\'])))
}
