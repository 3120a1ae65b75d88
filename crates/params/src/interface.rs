//! What a kernel source takes: read from its `PARAMS` and its `KERNEL` line.
//!
//! Both stand once in a source (`PARAMS` perhaps in a header that it includes), outside of `#if`: all variants of a source
//! take the same. Groups of parameters are macros of `kernels/dialect.h`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Words of parameters that every device takes: Vulkan promises 128 bytes of push constants.
pub const MAX_PARAMS: usize = 32;

/// The type of a field of `Params`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `uint`.
    Uint,
    /// `int`.
    Int,
    /// `float`.
    Float,
    /// `LONG2(x)`: 64 bits, `x_low` and `x_high`.
    Long,
    /// `PAIR(x)`: two signed halves, y low, x high.
    Pair,
    /// `SIZES3(x)`: `x1` to `x3`, sizes of dimensions 1 to 3.
    Sizes3,
    /// `STRIDES4(x)`: `x0` to `x3`.
    Strides4,
    /// `SIX(x)`: `x0` to `x5`, one of each of six tensors.
    Six,
    /// `STRIDES_NCHW(x_)`: `x_n`, `x_c`, `x_h`, `x_w`.
    StridesNchw,
    /// `DIVISORS3(x)`: `x_1` to `x_3` and `x_shifts`, for `quotient` of `kernels/divide.h`.
    Divisors3,
}

impl Kind {
    /// 32-bit words it takes.
    pub fn words(self) -> usize {
        match self {
            Self::Uint | Self::Int | Self::Float | Self::Pair => 1,
            Self::Long => 2,
            Self::Sizes3 => 3,
            Self::Six => 6,
            Self::Strides4 | Self::StridesNchw | Self::Divisors3 => 4,
        }
    }

    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "uint" => Self::Uint,
            "int" => Self::Int,
            "float" => Self::Float,
            "LONG2" => Self::Long,
            "PAIR" => Self::Pair,
            "SIZES3" => Self::Sizes3,
            "STRIDES4" => Self::Strides4,
            "SIX" => Self::Six,
            "STRIDES_NCHW" => Self::StridesNchw,
            "DIVISORS3" => Self::Divisors3,
            _ => return None,
        })
    }
}

/// A field of `Params`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// As in the kernel; of a group without the `_` at its end.
    pub name: String,
    /// What it is in Rust.
    pub kind: Kind,
}

/// What one file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// Without `x0`; empty where the file has no `PARAMS`.
    pub params: Vec<Field>,
    /// Names of the buffers in the order of their bindings; empty where the file has no kernel.
    pub buffers: Vec<String>,
    /// `#define NAME 12u`.
    pub constants: Vec<(String, u32)>,
    includes: Vec<String>,
}

/// The parameters and buffers of a kernel source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The file's name without `.kern`.
    pub stem: String,
    /// The file that has its `PARAMS`: itself or a header.
    pub params_in: String,
    /// Without `x0`.
    pub params: Vec<Field>,
    /// In the order of their bindings.
    pub buffers: Vec<String>,
}

impl Interface {
    /// Of `stem`, among the files of its folder.
    ///
    /// # Errors
    /// What the source lacks.
    pub fn of(stem: &str, files: &BTreeMap<String, Source>) -> Result<Self, String> {
        let source = files.get(stem).filter(|_| !stem.ends_with(".h"));
        let source = source.ok_or_else(|| format!("kernels/{stem}.kern is not there"))?;
        let with_params = std::iter::once(stem).chain(source.includes.iter().map(String::as_str));
        let found: Vec<&str> =
            with_params.filter(|name| files.get(*name).is_some_and(|f| !f.params.is_empty())).collect();
        let [params_in] = found.as_slice() else {
            return Err(format!("kernels/{stem}.kern: PARAMS must be there once, is in {found:?}"));
        };
        if source.buffers.is_empty() {
            return Err(format!("kernels/{stem}.kern has no KERNEL line with buffers"));
        }
        let interface = Self {
            stem: stem.to_string(),
            params_in: (*params_in).to_string(),
            params: files[*params_in].params.clone(),
            buffers: source.buffers.clone(),
        };
        if interface.words() > MAX_PARAMS {
            return Err(format!("kernels/{stem}.kern takes {} words of parameters", interface.words()));
        }
        Ok(interface)
    }

    /// 32-bit words of parameters, `x0` among them.
    pub fn words(&self) -> usize {
        1 + self.params.iter().map(|f| f.kind.words()).sum::<usize>()
    }
}

/// Reads every `*.kern` (by its stem) and `*.h` (by its name) of a folder.
///
/// # Errors
/// A file that cannot be read or does not keep to the form, and its line.
pub fn read_folder(folder: &Path) -> Result<BTreeMap<String, Source>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(key) = name.strip_suffix(".kern").or_else(|| name.ends_with(".h").then_some(&*name)) else {
            continue;
        };
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let source = parse(&text).map_err(|e| format!("kernels/{name}: {e}"))?;
        files.insert(key.to_string(), source);
    }
    Ok(files)
}

/// Reads one file.
fn parse(text: &str) -> Result<Source, String> {
    let text = without_comments(text).replace("\\\n", " ");
    let mut source = Source::default();
    let mut depth = 0;
    let mut rest = text.as_str();
    while let Some((line, after)) = rest.split_once('\n') {
        let directive = line.trim_start().strip_prefix('#').map(str::trim);
        match directive.and_then(|d| d.split_whitespace().next()) {
            Some("if" | "ifdef" | "ifndef") => depth += 1,
            Some("endif") => depth -= 1,
            Some("include") => {
                let file = line.split('"').nth(1).unwrap_or_default().to_string();
                if !source.includes.contains(&file) {
                    source.includes.push(file);
                }
            }
            Some("define") => {
                let body = directive.and_then(|d| d.strip_prefix("define")).unwrap_or_default().trim();
                let (name, value) = body.split_once(char::is_whitespace).unwrap_or((body, ""));
                if name == "PARAMS" {
                    once(depth, source.params.is_empty(), "PARAMS")?;
                    source.params = fields(value)?;
                } else if let Some(number) = value.trim().strip_suffix('u').and_then(|v| v.parse().ok()) {
                    // Of all variants only: some have a constant to themselves.
                    if depth == 0 {
                        source.constants.push((name.to_string(), number));
                    }
                }
            }
            _ if line.starts_with("KERNEL") && directive.is_none() => {
                once(depth, source.buffers.is_empty(), "the KERNEL line")?;
                let until = rest.find('{').ok_or("a kernel without a body")?;
                source.buffers = buffers(&rest[..until])?;
            }
            _ => {}
        }
        rest = after;
    }
    Ok(source)
}

fn once(depth: i32, first: bool, what: &str) -> Result<(), String> {
    match (depth, first) {
        (0, true) => Ok(()),
        (0, false) => Err(format!("{what} is there twice")),
        _ => Err(format!("{what} stands within #if")),
    }
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("/*").into_iter().chain(rest.find("//")).min() {
        out += &rest[..at];
        let end = if rest[at..].starts_with("/*") {
            rest[at..].find("*/").map(|end| at + end + 2)
        } else {
            rest[at..].find('\n').map(|end| at + end)
        };
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    out + rest
}

/// `uint x0, a; GROUP(b) float c;`
fn fields(body: &str) -> Result<Vec<Field>, String> {
    let mut fields = Vec::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let kind = Kind::of(&rest[..end]).ok_or_else(|| format!("PARAMS: `{rest}` starts with no type"))?;
        let group = rest[end..].starts_with('(');
        let stop = rest.find(if group { ')' } else { ';' });
        let stop = stop.ok_or_else(|| format!("PARAMS: `{rest}` does not end"))?;
        for name in rest[end..stop].trim_start_matches('(').split(',') {
            let name = name.trim().trim_end_matches('_').to_string();
            if fields.iter().any(|f: &Field| f.name == name) || name.is_empty() {
                return Err(format!("PARAMS: `{name}` is there twice or empty"));
            }
            fields.push(Field { name, kind });
        }
        rest = rest[stop + 1..].trim_start();
    }
    if fields.first().is_none_or(|f| f.name != "x0" || f.kind != Kind::Uint) {
        return Err("PARAMS must begin with `uint x0`".to_string());
    }
    fields.remove(0);
    if fields.is_empty() { Err("PARAMS has nothing but x0".to_string()) } else { Ok(fields) }
}

/// The names of `IN(0, ELEM, src), OUT4(1, ELEM, ELEM4, dst), ANY(2, index)`.
fn buffers(line: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for part in line.split(')').filter(|part| part.contains('(')) {
        let (_, arguments) = part.rsplit_once('(').unwrap_or_default();
        let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
        let (Some(binding), Some(name)) = (arguments.first(), arguments.last()) else { continue };
        if binding.parse() != Ok(names.len()) {
            return Err(format!("buffer {name} has binding {binding}, is number {}", names.len()));
        }
        names.push((*name).to_string());
    }
    Ok(names)
}
