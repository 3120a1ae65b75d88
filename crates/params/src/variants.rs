//! The kernel variants table, `kernels/variants.txt`: which sources are compiled with which defines.

use crate::interface::{self, Interface};
use crate::rows;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::LazyLock;
use wave32_problem::DType;

/// One compiled kernel: a source, a storage type and its defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// `<source>_<tag>_<dtype>`, unique; the entry point's name in a code object.
    pub name: String,
    /// File stem in `kernels/`, e.g. `igemm` for `igemm.kern`.
    pub source: String,
    /// The configuration's short name within the source.
    pub tag: String,
    /// Storage type of the tensors.
    pub dtype: DType,
    /// Macro definitions the source is compiled with, without the dtype's.
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

    /// The target whose code object has it for that gfx target, if one has. Rows with `MATRIX=1` are for Vulkan alone, those with
    /// `DOT=1` also for targets with such instructions. Rows with `RDNA1=1` are for RDNA1 only: what convolutions do not need is
    /// compiled for the cards that wave32 is made for, and waits for its route on the others.
    pub fn code_of<'t>(&self, target: &'t str) -> Option<&'t str> {
        let is_for_cards = wave32_cards::targets::is_rdna1(target) || !self.defines.contains_key("RDNA1");
        match self.is_dot() {
            _ if !is_for_cards || self.is_matrix() => None,
            true => wave32_cards::targets::dot_code_of(target),
            false => Some(wave32_cards::targets::code_of(target)),
        }
    }

    /// Does it keep operands in f16? Others of an f16 tensor's kernels make f32 of what they load.
    pub fn keeps_f16(&self) -> bool {
        self.is_half() || self.is_matrix() || self.is_dot()
    }

    /// Is it for devices with instructions that not all have?
    pub fn needs_instructions(&self) -> bool {
        self.is_matrix() || self.is_dot()
    }

    /// Is it for devices with dot products of two f16, with a sum in f32 (`VK_VALVE_shader_mixed_float_dot_product`)?
    pub fn is_dot(&self) -> bool {
        self.defines.contains_key("DOT")
    }

    /// Is it for devices with matrix instructions of f16 (`VK_KHR_cooperative_matrix`)?
    pub fn is_matrix(&self) -> bool {
        self.defines.contains_key("MATRIX")
    }

    /// LDS bytes of a kernel of matrix instructions: of a tile two slices of both operands, whose lines end 16 bytes later, and 16x16
    /// sums of each wavefront; of attention 64 lines of rows, of weights and of sums. Of others 0.
    pub fn matrix_lds(&self) -> u32 {
        if let Some(&d) = self.defines.get("D") {
            let d = (d as u32).next_multiple_of(16);
            let all = |operands: u32| 64 * (2 * operands * (d + 8) + 2 * (64 + 8) + 4 * (d.max(64) + 8));
            // Of two operands also two numbers for each query.
            return self
                .defines
                .get("OPERANDS")
                .map_or(all(1), |&operands| all(operands as u32) + 2 * 4 * 64);
        }
        if !self.defines.contains_key("BM") {
            return 0;
        }
        let [bm, bn, bk] = ["BM", "BN", "BK"].map(|name| self.define(name) as u32);
        let slice = |side: u32| (side * (bk + 8)).max(bk * (side + 8));
        4 * (slice(bm) + slice(bn)) + self.threads / 32 * 1024
    }

    /// Does it sum in f16?
    pub fn is_half(&self) -> bool {
        self.defines.contains_key("HALF")
    }

    /// Does it multiply Winograd's planes? Its chains of sums in f16 are shorter.
    pub fn is_of_planes(&self) -> bool {
        self.defines.contains_key("CHAIN")
    }

    /// Are its results f32, whatever its type?
    pub fn is_wide(&self) -> bool {
        self.defines.contains_key("WIDE")
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

static ALL: LazyLock<Vec<Variant>> = LazyLock::new(|| {
    let counts: HashMap<&str, (u32, u32)> = crate::COUNTS.iter().map(|&(s, b, p)| (s, (b, p))).collect();
    let table = include_str!("../../../kernels/variants.txt");
    parse(table, |source| counts.get(source).copied().ok_or_else(|| "is not there".to_string()))
        .unwrap_or_else(|e| panic!("{e}"))
});
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

/// The variants of one source and storage type, in the table's order.
pub fn of(source: &str, dtype: DType) -> impl Iterator<Item = &'static Variant> {
    ALL.iter().filter(move |v| v.source == source && v.dtype == dtype)
}

/// The variants of another folder of kernel sources, or of this one as it is now.
///
/// # Errors
/// The file and line that is wrong.
pub fn read(folder: &Path) -> Result<Vec<Variant>, String> {
    let files = interface::read_folder(folder)?;
    let table = folder.join("variants.txt");
    let table = std::fs::read_to_string(&table).map_err(|e| format!("{}: {e}", table.display()))?;
    parse(&table, |source| {
        let interface = Interface::of(source, &files)?;
        Ok((interface.buffers.len() as u32, interface.words() as u32))
    })
}

/// `counts` gives buffers and parameter words of a source.
fn parse(table: &str, counts: impl Fn(&str) -> Result<(u32, u32), String>) -> Result<Vec<Variant>, String> {
    let mut variants: Vec<Variant> = Vec::new();
    for row in rows::rows(table)? {
        let bad = |what: &str| format!("variants.txt: {}: {what}", row.line);
        let source = &row.source;
        let (buffers, params) = counts(source).map_err(|e| bad(&e))?;
        for dtype in &row.dtypes {
            let dtype =
                DType::ALL.into_iter().find(|d| d.name() == dtype).ok_or_else(|| bad("unknown dtype"))?;
            let name = format!("{source}_{}_{}", row.tag, dtype.name());
            if variants.iter().any(|v| v.name == name) {
                return Err(bad(&format!("{name} is there twice")));
            }
            variants.push(Variant {
                name,
                source: source.clone(),
                tag: row.tag.clone(),
                dtype,
                defines: row.defines.clone(),
                threads: row.threads,
                buffers,
                params,
            });
        }
    }
    Ok(variants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_named() {
        let parse = |line| {
            parse(
                line,
                |source| if source == "igemm" { Ok((1, 2)) } else { Err("no such source".to_string()) },
            )
        };
        assert_eq!(parse("igemm a f32,f16 64 X=5").map(|all| all.len()), Ok(2));
        for bad in [
            "igemm a f32",
            "igemm a f99 64",
            "igemm b f32 x",
            "igemm b f32,f32 1",
            "igemm b f32 1 X",
            "no b f32 1",
        ] {
            assert!(parse(bad).is_err_and(|e| e.contains("line 1")), "{bad}");
        }
    }
}
