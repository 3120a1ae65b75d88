//! The kernel variants table, `kernels/variants.txt`: which texts are compiled with which defines.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;
use wave32_problem::DType;

/// One compiled kernel: a text, a storage type and its defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// `<text>_<tag>_<dtype>`, unique; the entry point's name in a code object.
    pub name: String,
    /// File stem in `kernels/`, e.g. `igemm` for `igemm.kern`.
    pub text: String,
    /// The configuration's short name within the text.
    pub tag: String,
    /// Storage type of the tensors.
    pub dtype: DType,
    /// Macro definitions the text is compiled with, without the dtype's.
    pub defines: BTreeMap<String, i64>,
    /// Threads of a workgroup (x only).
    pub threads: u32,
    /// Storage buffers the kernel binds.
    pub buffers: u32,
    /// 32-bit parameter words the kernel takes.
    pub params: u32,
}

impl Variant {
    /// Value of a define; a table without it is a bug that the table's test finds.
    pub fn define(&self, name: &str) -> i64 {
        *self.defines.get(name).unwrap_or_else(|| panic!("variants.txt: {} lacks {name}", self.name))
    }

    /// Is it built for that gfx target? Rows with `RDNA1=1` are for RDNA1 only: what convolutions do not need is
    /// compiled for the cards that wave32 is made for, and waits for its route on the others.
    pub fn is_for(&self, target: &str) -> bool {
        wave32_cards::targets::is_rdna1(target) || !self.defines.contains_key("RDNA1")
    }

    /// The value of the dialect's `DTYPE` macro: 0 f32, 1 f16, 2 bf16.
    pub fn dtype_code(&self) -> i64 {
        match self.dtype {
            DType::F32 => 0,
            DType::F16 => 1,
            DType::BF16 => 2,
        }
    }
}

/// The table as text, for build scripts.
pub const TABLE: &str = include_str!("../../../kernels/variants.txt");

static ALL: LazyLock<Vec<Variant>> =
    LazyLock::new(|| parse(TABLE).unwrap_or_else(|e| panic!("variants.txt: {e}")));
static BY_NAME: LazyLock<HashMap<&'static str, &'static Variant>> =
    LazyLock::new(|| ALL.iter().map(|v| (v.name.as_str(), v)).collect());

/// Every variant, in the table's order.
pub fn all() -> &'static [Variant] {
    &ALL
}

/// The variant of that name.
pub fn find(name: &str) -> Option<&'static Variant> {
    BY_NAME.get(name).copied()
}

/// The variants of one text and storage type, in the table's order.
pub fn of(text: &str, dtype: DType) -> impl Iterator<Item = &'static Variant> {
    ALL.iter().filter(move |v| v.text == text && v.dtype == dtype)
}

/// Reads lines `TEXT TAG DTYPES THREADS BUFFERS PARAMS [NAME=VALUE ...]`; `#` starts a comment.
///
/// # Errors
/// The line's number and what is wrong with it.
pub fn parse(table: &str) -> Result<Vec<Variant>, String> {
    let mut variants: Vec<Variant> = Vec::new();
    for (index, line) in table.lines().enumerate() {
        let bad = |what: &str| format!("line {}: {what}: {line}", index + 1);
        let line_text = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line_text.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let [text, tag, dtypes, threads, buffers, params, defines @ ..] = words.as_slice() else {
            return Err(bad("needs TEXT TAG DTYPES THREADS BUFFERS PARAMS"));
        };
        let number = |word: &str| word.parse::<u32>().map_err(|_| bad(&format!("{word} is no number")));
        let (threads, buffers, params) = (number(threads)?, number(buffers)?, number(params)?);
        let defines = defines
            .iter()
            .map(|word| {
                let (name, value) =
                    word.split_once('=').ok_or_else(|| bad(&format!("{word} is not NAME=VALUE")))?;
                let value = value.parse().map_err(|_| bad(&format!("{word}: value is no number")))?;
                Ok((name.to_string(), value))
            })
            .collect::<Result<BTreeMap<String, i64>, String>>()?;
        for dtype in dtypes.split(',') {
            let dtype =
                DType::ALL.into_iter().find(|d| d.name() == dtype).ok_or_else(|| bad("unknown dtype"))?;
            let name = format!("{text}_{tag}_{}", dtype.name());
            if variants.iter().any(|v| v.name == name) {
                return Err(bad(&format!("{name} is there twice")));
            }
            variants.push(Variant {
                name,
                text: (*text).to_string(),
                tag: (*tag).to_string(),
                dtype,
                defines: defines.clone(),
                threads,
                buffers,
                params,
            });
        }
    }
    Ok(variants)
}
