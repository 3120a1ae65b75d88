//! What the hottest loop of a kernel consists of, from its disassembly.
//!
//! Reads llvm-objdump's text (branch targets as `<kernel+0x1c4>`, addresses in the comment) and the
//! text of RADV's compiler (branch targets as labels `BB4`).
//!
//! What is counted: every instruction line is one instruction, `s_nop`, `s_waitcnt`, `s_clause` and
//! the loop's own branches among them ("then repeated 3 times" is three more). A loop is what
//! control flow leads round, wherever it was laid out. A loop's own instructions are those not in a loop
//! inside it. The hottest loop is the one with the most own multiply-adds, each level of nesting taken
//! to run `TURNS` times as often as the one around it; of loops with (nearly, within a tenth) as many,
//! the one with the fewest instructions: a peeled last turn, which layout puts into an outer loop, has as
//! many multiply-adds as the loop it was peeled from. Counting is static: an instruction that is jumped
//! over in the loop counts as if it ran.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How often a loop is taken to run where nothing is known: decides only which loop is the hottest.
const TURNS: u32 = 8;

/// The hottest loop's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoopStats {
    /// Multiply-add instructions.
    pub fma: u32,
    /// All instructions.
    pub instructions: u32,
}

impl LoopStats {
    /// Multiply-adds among all instructions, 0 to 1; 0 for a kernel without a loop.
    pub fn share(&self) -> f64 {
        if self.instructions == 0 { 0.0 } else { f64::from(self.fma) / f64::from(self.instructions) }
    }
}

/// Does one instruction of this name do a multiply-add on f32 (or packed f16) data?
///
/// A dual-issue line of gfx11 and later (`v_dual_fmac_f32 ... :: v_dual_fmac_f32 ...`) is one
/// instruction and counts once.
pub fn is_fma(mnemonic: &str) -> bool {
    let name = mnemonic.strip_prefix("v_dual_").or_else(|| mnemonic.strip_prefix("v_"));
    let Some(name) = name else { return false };
    let f32_data = ["fma_", "fmac_", "fmaak_", "fmamk_", "mac_", "mad_", "madak_", "madmk_", "mad_legacy_"]
        .iter()
        .any(|p| name.strip_prefix(p).is_some_and(|rest| rest.starts_with("f32")));
    f32_data
        || name.starts_with("fma_mix")
        || name.starts_with("pk_fma_f16")
        || name.starts_with("dot2_f32_f16")
        || name.starts_with("dot2c_f32_f16")
        || name.starts_with("dot2acc_f32_f16")
        || name.starts_with("pk_fmac_f16")
}

#[derive(Debug, Clone, Copy)]
struct Instruction<'a> {
    mnemonic: &'a str,
    /// What a branch names: a label, or `<symbol+offset>`.
    branch: Option<&'a str>,
    /// llvm-objdump only.
    address: Option<u64>,
}

/// Splits `text` into kernels by their symbol lines; text without any is one kernel named "".
pub fn kernels(text: &str) -> BTreeMap<&str, &str> {
    let mut found = BTreeMap::new();
    let (mut name, mut start, mut offset) = ("", 0, 0);
    for line in text.split_inclusive('\n') {
        if let Some((_, symbol)) = symbol_line(line) {
            found.insert(name, &text[start..offset]);
            (name, start) = (symbol, offset);
        }
        offset += line.len();
    }
    found.insert(name, &text[start..]);
    if found.len() > 1 {
        found.remove(""); // the file header before the first symbol
    }
    found
}

/// `0000000000001600 <conv_igemm>:`
fn symbol_line(line: &str) -> Option<(u64, &str)> {
    let (address, symbol) = line.trim_end().strip_suffix(">:")?.split_once(" <")?;
    Some((u64::from_str_radix(address, 16).ok()?, symbol))
}

/// `BB4:`, but not `Disassembly of section .text:`
fn label_line(line: &str) -> Option<&str> {
    let label = line.split(';').next()?.trim().strip_suffix(':')?;
    (!label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.'))
        .then_some(label)
}

fn instruction_line(line: &str) -> Option<Instruction<'_>> {
    let (code, address) = match line.split_once("//") {
        Some((code, comment)) => (code, u64::from_str_radix(comment.trim().split(':').next()?, 16).ok()),
        None => (line.split(';').next()?, None),
    };
    let mut words = code.split_whitespace();
    let mnemonic = words.next()?;
    if !["v_", "s_", "ds_", "buffer_", "global_", "flat_", "scratch_", "image_", "exp"]
        .iter()
        .any(|p| mnemonic.starts_with(p))
    {
        return None;
    }
    let is_branch = mnemonic.starts_with("s_cbranch") || mnemonic == "s_branch";
    let target = if is_branch {
        // Where llvm-objdump knows the target it is in the comment, else it is the operand.
        line.rsplit_once('<').map(|(_, t)| t.trim_end().trim_end_matches('>')).or_else(|| words.next())
    } else {
        None
    };
    Some(Instruction { mnemonic, branch: target, address })
}

/// RADV's `(then repeated 3 times)`.
fn repeated(line: &str) -> Option<usize> {
    line.trim().strip_prefix("(then repeated ")?.strip_suffix(" times)")?.parse().ok()
}

/// Which instruction each branch leads to.
fn targets(code: &Code<'_>) -> Vec<Option<usize>> {
    let Code { instructions, labels, symbol } = code;
    let index_of = |target: &str| -> Option<usize> {
        if let Some(&index) = labels.get(target) {
            return Some(index);
        }
        let (start, name) = (*symbol)?;
        let offset = match target.strip_prefix(name)? {
            "" => 0,
            rest => u64::from_str_radix(rest.strip_prefix("+0x")?, 16).ok()?,
        };
        instructions.iter().position(|i| i.address == Some(start + offset))
    };
    instructions.iter().map(|i| i.branch.and_then(index_of)).collect()
}

/// Instructions in runs that have one way in and one way out, and where each run goes on.
struct Blocks {
    /// First instructions, ascending, and behind them the number of all.
    starts: Vec<usize>,
    next: Vec<Vec<usize>>,
    /// What leads to each.
    previous: Vec<Vec<usize>>,
}

/// Blocks that are run again and again.
type Loop = BTreeSet<usize>;

impl Blocks {
    fn of(code: &Code<'_>) -> Self {
        let (instructions, targets) = (&code.instructions, targets(code));
        let ends = |i: &Instruction| i.mnemonic.starts_with("s_endpgm");
        let mut starts: BTreeSet<usize> = targets.iter().flatten().copied().collect();
        let stops = instructions.iter().enumerate().filter(|(_, i)| i.branch.is_some() || ends(i));
        starts.extend(stops.map(|(index, _)| index + 1));
        starts.extend([0, instructions.len()]);
        let starts: Vec<usize> = starts.into_iter().collect();
        let next = starts.windows(2).enumerate().map(|(block, range)| {
            let last = &instructions[range[1] - 1];
            let falls = last.mnemonic != "s_branch" && !ends(last);
            let behind = (falls && block + 2 < starts.len()).then_some(block + 1);
            let target = targets[range[1] - 1].and_then(|index| starts.binary_search(&index).ok());
            behind.into_iter().chain(target.filter(|&block| block + 1 < starts.len())).collect()
        });
        let next: Vec<Vec<usize>> = next.collect();
        let mut previous = vec![Vec::new(); next.len()];
        for (block, to) in next.iter().enumerate() {
            to.iter().for_each(|&to| previous[to].push(block));
        }
        Self { starts, next, previous }
    }

    /// Every loop, and in it every loop: what is strongly connected; then the same without the block that it is entered by
    /// (Steensgaard, "Sequentializing Program Dependence Graphs for Irreducible Programs", 1993).
    fn loops(&self) -> Vec<Loop> {
        let mut found = Vec::new();
        let mut open: Vec<Loop> = vec![(0..self.next.len()).collect()];
        while let Some(among) = open.pop() {
            for one in self.strongly_connected(among) {
                let is_entry = |&&block: &&usize| self.previous[block].iter().any(|from| !one.contains(from));
                let entry = one.iter().find(is_entry).or(one.first()).copied();
                open.push(one.iter().copied().filter(|&block| Some(block) != entry).collect());
                found.push(one);
            }
        }
        found
    }

    /// The largest parts of `left` that lead from each block to each, without leaving it.
    fn strongly_connected(&self, mut left: Loop) -> Vec<Loop> {
        let reached = |start: usize, edges: &[Vec<usize>], left: &Loop| {
            let (mut seen, mut open) = (Loop::new(), vec![start]);
            while let Some(block) = open.pop() {
                open.extend(edges[block].iter().filter(|&&to| left.contains(&to) && seen.insert(to)));
            }
            seen
        };
        let mut found = Vec::new();
        while let Some(block) = left.first().copied() {
            let both = &reached(block, &self.next, &left) & &reached(block, &self.previous, &left);
            left.remove(&block);
            if both.contains(&block) {
                left = &left - &both;
                found.push(both);
            }
        }
        found
    }
}

/// A disassembly's instructions, where its labels point, and its symbol.
struct Code<'a> {
    instructions: Vec<Instruction<'a>>,
    labels: HashMap<&'a str, usize>,
    symbol: Option<(u64, &'a str)>,
}

fn parse(isa: &str) -> Code<'_> {
    let (mut instructions, mut labels, mut symbol) = (Vec::new(), HashMap::new(), None);
    for line in isa.lines() {
        if let Some(found) = symbol_line(line) {
            symbol = Some(found);
        } else if let Some(label) = label_line(line) {
            labels.insert(label, instructions.len());
        } else if let Some(instruction) = instruction_line(line) {
            instructions.push(instruction);
        } else if let (Some(times), Some(&last)) = (repeated(line), instructions.last()) {
            instructions.extend(std::iter::repeat_n(last, times));
        }
    }
    Code { instructions, labels, symbol }
}

/// The hottest loop of one kernel's disassembly; all zero where it has no loop with a multiply-add.
pub fn hottest_loop(isa: &str) -> LoopStats {
    let code = parse(isa);
    let blocks = Blocks::of(&code);
    let loops = blocks.loops();
    let is_inside = |inner: &Loop, outer: &Loop| inner.len() < outer.len() && inner.is_subset(outer);
    let own = |one: &Loop| {
        let mut stats = LoopStats::default();
        for &block in one {
            if !loops.iter().any(|inner| inner.contains(&block) && is_inside(inner, one)) {
                let range = blocks.starts[block]..blocks.starts[block + 1];
                stats.instructions += range.len() as u32;
                stats.fma += code.instructions[range].iter().filter(|i| is_fma(i.mnemonic)).count() as u32;
            }
        }
        stats
    };
    let heat = |one: &Loop, fma: u32| {
        let around = loops.iter().filter(|outer| is_inside(one, outer)).count();
        u64::from(fma).saturating_mul(u64::from(TURNS).saturating_pow(around as u32))
    };
    let all: Vec<_> = loops.iter().map(|one| (own(one), one)).collect();
    let hottest =
        all.iter().max_by_key(|(stats, one)| heat(one, stats.fma)).map_or(0, |(stats, _)| stats.fma);
    let near = all.iter().map(|(stats, _)| *stats).filter(|s| s.fma > 0 && s.fma * 10 >= hottest * 9);
    near.min_by_key(|stats| stats.instructions).unwrap_or_default()
}

/// Instructions of one kernel's disassembly.
pub fn instruction_count(isa: &str) -> u32 {
    parse(isa).instructions.len() as u32
}

/// Lines that name the lanes' masks as 64 bits: `exec` anywhere, `vcc` in a vector instruction. Code for waves of 32 lanes has
/// `exec_lo` and `vcc_lo`; its scalar instructions may keep any two numbers in `vcc`, as in other scalar registers.
pub fn wave64_lines(isa: &str) -> u32 {
    let code = isa.lines().filter(|line| instruction_line(line).is_some());
    let wide = |line: &str| {
        let mut words =
            line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| !w.is_empty());
        let vector = words.next().is_some_and(|name| name.starts_with("v_"));
        words.any(|word| word == "exec" || (vector && word == "vcc"))
    };
    code.filter(|line| wide(line.split([';', '/']).next().unwrap_or_default())).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_tell_waves_of_64_lanes() {
        let wave32 = "BB0:\n\ts_and_b32 exec_lo, exec_lo, vcc_lo ; 00 exec\n\ts_cbranch_execz BB1\n\
                      \ts_load_dwordx2 vcc, s[2:3], 0x8\n";
        let wave64 = "\ts_and_b64 exec, exec, vcc\n\tv_cmp_gt_u32_e32 vcc, s0, v1\n\ts_endpgm\n";
        assert_eq!((wave64_lines(wave32), wave64_lines(wave64)), (0, 2));
    }

    #[test]
    fn counts_the_inner_loop_of_objdump_text() {
        let isa = "\
0000000000001600 <k_a>:
\tv_fma_f32 v0, v1, v2, v3                       // 000000001600: D54B0000
\ts_mov_b32 s0, 0                                // 000000001608: BE800380
\tds_read_b128 v[0:3], v4                        // 00000000160C: D9FC0000
\ts_waitcnt lgkmcnt(0)                           // 000000001614: BF8CC07F
\tv_fmac_f32_e32 v0, v1, v2                      // 000000001618: 56000501
\tv_fma_mix_f32 v0, v1, v2, v0                   // 00000000161C: CC200000
\tv_add_f32_e32 v0, v1, v2                       // 000000001624: 06000501
\ts_cbranch_scc1 65530                           // 000000001628: BF85FFFA <k_a+0x14>
\ts_cbranch_scc0 65500                           // 00000000162C: BF84FFF5 <k_a+0x8>
\ts_endpgm                                       // 000000001630: BF810000
";
        assert_eq!(hottest_loop(isa), LoopStats { fma: 2, instructions: 5 });
        assert_eq!(instruction_count(isa), 10);
    }

    #[test]
    fn counts_labels_of_the_aco_text() {
        let isa = "\
BB0:
\ts_mov_b32 s0, 0                       ; be800380
BB1:
\tv_fmac_f32_e32 v0, v1, v2             ; 56000501
\tv_pk_fma_f16 v0, v1, v2, v0           ; cc0e4000
\ts_cbranch_scc0 BB3                    ; bf840002
BB2:
\ts_branch BB1                          ; bf82fffb
BB3:
\ts_endpgm                              ; bf810000
";
        assert_eq!(hottest_loop(isa), LoopStats { fma: 2, instructions: 4 });
    }

    #[test]
    fn weighs_multiply_adds_by_depth() {
        // `outer` of them in the outer loop, two in the loop inside it, one after both.
        let isa = |outer: usize| {
            format!(
                "BB0:\n{}BB1:\n\tv_mad_f32 v0, v1, v2, v3\n\tv_mad_f32 v0, v1, v2, v3\n\ts_cbranch_vccnz BB1\n\
                 \ts_nop 0\n\ts_cbranch_scc1 BB0\n\tv_fma_f32 v0, v1, v2, v3\n",
                "\tv_fma_f32 v0, v1, v2, v3\n".repeat(outer)
            )
        };
        // An epilogue or a peeled last turn around the hot loop is not the hot loop ...
        assert_eq!(hottest_loop(&isa(15)), LoopStats { fma: 2, instructions: 3 });
        // ... and a stray multiply-add inside does not make a small loop hot.
        assert_eq!(hottest_loop(&isa(17)), LoopStats { fma: 17, instructions: 19 });
    }

    #[test]
    fn a_peeled_turn_in_an_outer_loop_is_not_the_hottest() {
        let isa = "\
BB0:
  s_nop 0
BB1:
  v_fmac_f32 v0, v1, v2
  v_fmac_f32 v0, v1, v2
  s_cbranch_scc1 BB1
BB2:
  v_fmac_f32 v0, v1, v2
  v_fmac_f32 v0, v1, v2
  v_mov_b32 v0, 0
  v_mov_b32 v0, 0
  s_cbranch_scc1 BB2
  s_cbranch_scc0 BB0
";
        assert_eq!(hottest_loop(isa), LoopStats { fma: 2, instructions: 3 });
    }

    #[test]
    fn counts_repeated_lines() {
        let isa = "BB0:\n\tv_fma_f32 v0, v1, v2, v3\n\ts_nop 0\n\t(then repeated 3 times)\n\ts_branch BB0\n";
        assert_eq!(hottest_loop(isa), LoopStats { fma: 1, instructions: 6 });
        assert_eq!(instruction_count(isa), 6);
    }

    #[test]
    fn forward_branches_and_loops_without_arithmetic_are_no_hot_loop() {
        let isa = "BB0:\n\ts_cbranch_scc1 BB1\n\tv_fma_f32 v0, v1, v2, v3\nBB1:\n\ts_nop 0\n\ts_branch BB1\n";
        assert_eq!(hottest_loop(isa), LoopStats::default());
        assert_eq!(hottest_loop("").share(), 0.0);
    }

    #[test]
    fn code_laid_out_at_the_end_is_in_its_loop() {
        // BB3 belongs between BB1 and BB2, which are inside the loop of BB0.
        let isa = "BB0:\n\tv_fma_f32 v0, v1, v2, v3\n\ts_cbranch_execnz BB3\nBB2:\n\tv_mul_f32 v0, v1, v2\n\ts_cbranch_scc1 BB0\n\t\
                   s_endpgm\nBB3:\n\tv_fma_f32 v0, v1, v2, v3\n\ts_branch BB2\n";
        assert_eq!(hottest_loop(isa), LoopStats { fma: 2, instructions: 6 });
    }

    #[test]
    fn knows_multiply_adds() {
        for name in
            ["v_fma_f32", "v_fmac_f32_e32", "v_fmac_f32_e64", "v_mad_f32", "v_mac_f32_e32", "v_fmaak_f32"]
        {
            assert!(is_fma(name), "{name}");
        }
        for name in [
            "v_fma_mix_f32",
            "v_fma_mixlo_f16",
            "v_pk_fma_f16",
            "v_dual_fmac_f32",
            "v_dual_dot2acc_f32_f16",
            "v_dot2_f32_f16",
            "v_mad_mix_f32",
        ] {
            assert_eq!(is_fma(name), name != "v_mad_mix_f32", "{name}");
        }
        for name in
            ["v_mul_f32_e32", "v_mad_u32_u24", "v_mad_u64_u32", "s_fma_f32", "v_fma_f64", "v_mad_i32_i24"]
        {
            assert!(!is_fma(name), "{name}");
        }
    }

    #[test]
    fn splits_objdump_text_into_kernels() {
        let text = "\nk.so:\tfile format elf64-amdgpu\n\n0000000000000100 <a>:\n\ts_nop 0 // 000000000100: BF\n\n\
                    0000000000000200 <b>:\n\ts_nop 0 // 000000000200: BF\n\ts_nop 0 // 000000000204: BF\n";
        let found = kernels(text);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((instruction_count(found["a"]), instruction_count(found["b"])), (1, 2));
    }
}
