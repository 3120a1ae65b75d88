//! Writes a module for every kernel source: its parameters and buffers as Rust structs, its constants, its variants' names.

#[path = "src/interface.rs"]
mod interface;
#[path = "src/rows.rs"]
mod rows;

use interface::{Field, Interface, Kind, Source};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    match generate() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("cargo::error={reason}");
            ExitCode::FAILURE
        }
    }
}

fn generate() -> Result<(), String> {
    let variable = |name: &str| env::var(name).map_err(|e| format!("{name}: {e}"));
    let kernels = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("../../kernels");
    println!("cargo::rerun-if-changed={}", kernels.display());
    println!("cargo::rerun-if-changed=build.rs");
    let sources = interface::read_folder(&kernels)?;
    let table = fs::read_to_string(kernels.join("variants.txt")).map_err(|e| format!("variants.txt: {e}"))?;
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for row in rows::rows(&table)? {
        constants_of_row(names.entry(row.source.clone()).or_default(), &row);
    }
    let mut text = String::new();
    for (stem, source) in &sources {
        module(&mut text, stem, source, &sources, names.get(stem).map_or("", String::as_str))?;
    }
    let counts: String = sources
        .keys()
        .filter_map(|stem| Interface::of(stem, &sources).ok())
        .map(|i| format!("({:?}, {}, {}),", i.stem, i.buffers.len(), i.words()))
        .collect();
    writeln!(text, "pub(crate) const COUNTS: &[(&str, u32, u32)] = &[{counts}];")
        .map_err(|e| e.to_string())?;
    writeln!(
        text,
        "/// A hash of all kernel sources and of their table.\npub const SOURCES: u64 = {:#x};",
        hash(&kernels)?
    )
    .map_err(|e| e.to_string())?;
    let out = Path::new(&variable("OUT_DIR")?).join("kernels.rs");
    fs::write(&out, text).map_err(|e| format!("{}: {e}", out.display()))
}

/// FNV-1a of every file's name and text.
fn hash(folder: &Path) -> Result<u64, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::read(&file).map_err(failed)?;
        for byte in name.bytes().chain([0]).chain(bytes).chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    Ok(hash)
}

/// The names of a row's variants, by element type where there are several.
fn constants_of_row(text: &mut String, row: &rows::Row) {
    let name = row.tag.to_uppercase();
    let one = |dtype: &str| format!("crate::Name::new(\"{}_{}_{dtype}\")", row.source, row.tag);
    *text += &match row.dtypes.as_slice() {
        [only] => format!("pub const {name}: crate::Name<Kernel> = {};\n", one(only)),
        // In the order of `wave32_ops::ElementType`, so that a type is an index.
        types
            if ["f32", "f16", "bf16"].starts_with(&types.iter().map(String::as_str).collect::<Vec<_>>()) =>
        {
            let names: String = types.iter().map(|dtype| one(dtype) + ", ").collect();
            format!("pub const {name}: [crate::Name<Kernel>; {}] = [{names}];\n", types.len())
        }
        _ => String::new(),
    };
}

fn module(
    text: &mut String,
    stem: &str,
    source: &Source,
    all: &BTreeMap<String, Source>,
    names: &str,
) -> Result<(), String> {
    let is_header = stem.ends_with(".h");
    let interface = if is_header { None } else { Some(Interface::of(stem, all)?) };
    let own_params = !source.params.is_empty();
    if is_header && !own_params && source.constants.is_empty() {
        return Ok(());
    }
    let kind = if is_header { "" } else { ".kern" };
    let put = |text: &mut String, line: String| {
        *text += &line;
        text.push('\n');
    };
    put(text, format!("/// Of `kernels/{stem}{kind}`."));
    put(text, format!("pub mod {} {{", stem.trim_end_matches(".h")));
    for (name, value) in &source.constants {
        put(text, format!("pub const {name}: u32 = {value};"));
    }
    if own_params {
        params(text, stem, &source.params);
    }
    if let Some(interface) = &interface {
        if !own_params {
            put(text, format!("pub use super::{}::*;", interface.params_in.trim_end_matches(".h")));
        }
        let list = |f: &dyn Fn(&str) -> String| interface.buffers.iter().map(|b| f(b)).collect::<String>();
        let count = interface.buffers.len();
        put(text, "#[derive(Debug, Clone, Copy)] pub struct Buffers<B> {".to_string());
        put(text, list(&|b| format!("pub {b}: B, ")) + "}");
        put(text, format!("impl<B> crate::Buffers<B> for Buffers<B> {{ type Array = [B; {count}];"));
        put(text, format!("fn array(self) -> [B; {count}] {{ [{}] }} }}", list(&|b| format!("self.{b}, "))));
        put(text, "#[derive(Debug, Clone, Copy, PartialEq, Eq)] pub struct Kernel;".to_string());
        put(text, "impl crate::Kernel for Kernel {".to_string());
        put(text, format!("const SOURCE: &'static str = {stem:?};"));
        put(text, "type Params = Params; type Buffers<B> = Buffers<B>; }".to_string());
        put(text, names.to_string());
    }
    put(text, "}".to_string());
    Ok(())
}

/// The struct of parameters, and the words that a kernel takes them as: `x0` first, which a launch sets.
fn params(text: &mut String, stem: &str, fields: &[Field]) {
    let (mut members, mut words) = (String::new(), String::from("0, "));
    for Field { name, kind } in fields {
        let part = |at: usize| format!("self.{name}[{at}], ");
        let (kind, word) = match kind {
            Kind::Uint => ("u32", format!("self.{name}, ")),
            Kind::Int => ("i32", format!("self.{name} as u32, ")),
            Kind::Float => ("f32", format!("self.{name}.to_bits(), ")),
            Kind::Long => ("u64", format!("self.{name} as u32, (self.{name} >> 32) as u32, ")),
            Kind::Pair => ("crate::Pair", format!("self.{name}.word(), ")),
            Kind::Sizes3 => ("[u32; 3]", (0..3).map(part).collect()),
            Kind::Strides4 => ("[u32; 4]", (0..4).map(part).collect()),
            Kind::Six => ("[u32; 6]", (0..6).map(part).collect()),
            Kind::StridesNchw => {
                ("crate::Strides", ["n", "c", "h", "w"].map(|a| format!("self.{name}.{a}.0, ")).concat())
            }
            Kind::Divisors3 => {
                ("crate::Divisors", (0..4).map(|at| format!("self.{name}.0[{at}], ")).collect())
            }
        };
        members += &format!("pub {name}: {kind}, ");
        words += &word;
    }
    let count = 1 + fields.iter().map(|f| f.kind.words()).sum::<usize>();
    *text += &format!(
        "/// Parameters of `kernels/{stem}`.\n#[derive(Debug, Clone, Copy, PartialEq)] pub struct Params {{ {members} }}\n\
         impl crate::Params for Params {{ type Words = [u32; {count}]; fn words(&self) -> [u32; {count}] {{ [{words}] }} }}\n"
    );
}
