//! The manual's descriptions of the scalar operations (RDNA ISA 12.1 to 12.4), in wide integers and bit by bit.

/// What an instruction does.
#[derive(Debug, Default)]
pub struct Effect {
    pub dst: Option<u64>,
    pub scc: Option<bool>,
    pub exec: Option<u64>,
}

/// What it sees: sources and the destination's old value as wide as it takes them.
pub struct Seen {
    pub a: u64,
    pub b: u64,
    pub old: u64,
    pub imm: i16,
    pub scc: bool,
    pub exec: u64,
}

fn dst(value: u64) -> Effect {
    Effect { dst: Some(value), ..Effect::default() }
}

fn with_scc(value: u64, scc: bool) -> Effect {
    Effect { dst: Some(value), scc: Some(scc), exec: None }
}

fn nonzero(value: u64) -> Effect {
    with_scc(value, value != 0)
}

fn only_scc(scc: bool) -> Effect {
    Effect { scc: Some(scc), ..Effect::default() }
}

/// The bits of a number, lowest first.
fn bits_of(value: u64, width: u32) -> Vec<bool> {
    (0..width).map(|i| value >> i & 1 == 1).collect()
}

fn number(bits: &[bool]) -> u64 {
    bits.iter().rev().fold(0, |n, &b| n << 1 | u64::from(b))
}

fn int(value: u64) -> i128 {
    i128::from(value as u32 as i32)
}

fn low(value: i128) -> u64 {
    u64::from(value as u32)
}

fn fits(value: i128) -> bool {
    (-(1 << 31)..1 << 31).contains(&value)
}

/// -1, or where the first bit of the kind is.
fn search(bits: impl Iterator<Item = bool>) -> u64 {
    bits.enumerate().find(|(_, b)| *b).map_or(0xffff_ffff, |(i, _)| i as u64)
}

/// Bits of a field of `width` from `offset`, with `sign` repeated where asked.
fn field(value: u64, size: u32, control: u64, signed: bool) -> u64 {
    let offset = control % u64::from(size);
    let width = (control >> 16 & 127) as usize;
    let mut bits = bits_of(value, size);
    let sign = bits[size as usize - 1];
    bits.rotate_left(offset as usize);
    for bit in &mut bits[size as usize - offset as usize..] {
        *bit = signed && sign;
    }
    if width < size as usize {
        let top = signed && width > 0 && bits[width - 1];
        bits[width..].fill(top);
    }
    number(&bits)
}

/// Boolean functions of two bits, the second argument EXEC for the `saveexec` family.
fn logic(name: &str, a: u64, b: u64, width: u32) -> Option<u64> {
    let f: fn(bool, bool) -> bool = match name {
        "and" => |a, b| a && b,
        "or" => |a, b| a || b,
        "xor" => |a, b| a != b,
        "andn1" => |a, b| !a && b,
        "andn2" => |a, b| a && !b,
        "orn1" => |a, b| !a || b,
        "orn2" => |a, b| a || !b,
        "nand" => |a, b| !(a && b),
        "nor" => |a, b| !a && !b,
        "xnor" => |a, b| a == b,
        _ => return None,
    };
    let pairs = bits_of(a, width).into_iter().zip(bits_of(b, width));
    Some(number(&pairs.map(|(a, b)| f(a, b)).collect::<Vec<_>>()))
}

fn compare(name: &str, a: i128, b: i128) -> Option<bool> {
    Some(match name {
        "eq" => a == b,
        "lg" => a != b,
        "gt" => a > b,
        "ge" => a >= b,
        "lt" => a < b,
        "le" => a <= b,
        _ => return None,
    })
}

/// The manual's descriptions (RDNA ISA 12.1 to 12.4).
pub fn model(name: &str, s: &Seen) -> Option<Effect> {
    let name = name.strip_prefix("s_")?;
    let wide = name.ends_with("64");
    let width = if wide { 64 } else { 32 };
    let parts: Vec<&str> = name.split('_').collect();
    if let [verb, "saveexec", _] = parts[..] {
        let exec = logic(verb, s.a, s.exec, width)?;
        return Some(Effect { dst: Some(s.exec), scc: Some(exec != 0), exec: Some(exec) });
    }
    if let [verb, "wrexec", _] = parts[..] {
        let exec = logic(verb, s.a, s.exec, width)?;
        return Some(Effect { dst: Some(exec), scc: Some(exec != 0), exec: Some(exec) });
    }
    if let ["cmp", verb, ty] = parts[..] {
        let of = |v: u64| if ty == "i32" { int(v) } else { i128::from(v) };
        return compare(verb, of(s.a), of(s.b)).map(only_scc);
    }
    if let ["cmpk", verb, ty] = parts[..] {
        let (value, k) = if ty == "i32" {
            (int(s.a), i128::from(s.imm))
        } else {
            (i128::from(s.a), i128::from(s.imm as u16))
        };
        return compare(verb, value, k).map(only_scc);
    }
    if let [verb, _] = parts[..]
        && let Some(value) = logic(verb, s.a, s.b, width)
    {
        return Some(nonzero(value));
    }
    let (a, b) = (bits_of(s.a, width), s.b);
    let bits32 = bits_of(s.a, 32);
    let moved = |by: i64, fill: bool| {
        let bit =
            |i: i64| if (0..i64::from(width)).contains(&(i + by)) { a[(i + by) as usize] } else { fill };
        number(&(0..i64::from(width)).map(bit).collect::<Vec<_>>())
    };
    let by = (b % u64::from(width)) as i64;
    let unsigned = |v: u64| i128::from(v as u32);
    let carry = |sum: i128| with_scc(low(sum), sum >= 1 << 32);
    Some(match name {
        "add_u32" => carry(unsigned(s.a) + unsigned(s.b)),
        "addc_u32" => carry(unsigned(s.a) + unsigned(s.b) + i128::from(s.scc)),
        "sub_u32" => with_scc(low(unsigned(s.a) - unsigned(s.b)), s.b > s.a),
        "subb_u32" => {
            let difference = unsigned(s.a) - unsigned(s.b) - i128::from(s.scc);
            with_scc(low(difference), difference < 0)
        }
        "add_i32" => with_scc(low(int(s.a) + int(s.b)), !fits(int(s.a) + int(s.b))),
        "sub_i32" => with_scc(low(int(s.a) - int(s.b)), !fits(int(s.a) - int(s.b))),
        // SCC: the first one was chosen, and was not the second's equal.
        "min_i32" => with_scc(low(int(s.a).min(int(s.b))), int(s.a) < int(s.b)),
        "max_i32" => with_scc(low(int(s.a).max(int(s.b))), int(s.a) > int(s.b)),
        "min_u32" => with_scc(s.a.min(s.b), s.a < s.b),
        "max_u32" => with_scc(s.a.max(s.b), s.a > s.b),
        "cselect_b32" | "cselect_b64" => dst(if s.scc { s.a } else { s.b }),
        "lshl_b32" | "lshl_b64" => nonzero(moved(-by, false)),
        "lshr_b32" | "lshr_b64" => nonzero(moved(by, false)),
        "ashr_i32" | "ashr_i64" => nonzero(moved(by, a[width as usize - 1])),
        "bfm_b32" | "bfm_b64" => {
            let (count, from) = (s.a % u64::from(width), s.b % u64::from(width));
            dst(number(&(0..u64::from(width)).map(|i| i >= from && i < from + count).collect::<Vec<_>>()))
        }
        "mul_i32" => dst(low(int(s.a) * int(s.b))),
        "mul_hi_u32" => dst(low((unsigned(s.a) * unsigned(s.b)) >> 32)),
        "mul_hi_i32" => dst(low((int(s.a) * int(s.b)) >> 32)),
        "bfe_u32" => nonzero(field(s.a, 32, s.b, false)),
        "bfe_i32" => nonzero(field(s.a, 32, s.b, true)),
        "bfe_u64" => nonzero(field(s.a, 64, s.b, false)),
        "bfe_i64" => nonzero(field(s.a, 64, s.b, true)),
        "absdiff_i32" => {
            let difference = int(low(int(s.a) - int(s.b)));
            nonzero(low(if difference < 0 { -difference } else { difference }))
        }
        "lshl1_add_u32" => carry(unsigned(s.a) * 2 + unsigned(s.b)),
        "lshl2_add_u32" => carry(unsigned(s.a) * 4 + unsigned(s.b)),
        "lshl3_add_u32" => carry(unsigned(s.a) * 8 + unsigned(s.b)),
        "lshl4_add_u32" => carry(unsigned(s.a) * 16 + unsigned(s.b)),
        "pack_ll_b32_b16" => dst(s.a % 65536 + s.b % 65536 * 65536),
        "pack_lh_b32_b16" => dst(s.a % 65536 + s.b / 65536 * 65536),
        "pack_hh_b32_b16" => dst(s.a / 65536 + s.b / 65536 * 65536),
        "mov_b32" | "mov_b64" => dst(s.a),
        "cmov_b32" | "cmov_b64" => dst(if s.scc { s.a } else { s.old }),
        "not_b32" | "not_b64" => nonzero(number(&a.iter().map(|b| !b).collect::<Vec<_>>())),
        "wqm_b32" | "wqm_b64" => {
            let quad = |i: usize| a[i / 4 * 4..i / 4 * 4 + 4].contains(&true);
            nonzero(number(&(0..a.len()).map(quad).collect::<Vec<_>>()))
        }
        "quadmask_b32" | "quadmask_b64" => {
            nonzero(number(&a.chunks(4).map(|quad| quad.contains(&true)).collect::<Vec<_>>()))
        }
        "brev_b32" | "brev_b64" => dst(number(&a.iter().rev().copied().collect::<Vec<_>>())),
        "bcnt0_i32_b32" | "bcnt0_i32_b64" => nonzero(a.iter().filter(|b| !**b).count() as u64),
        "bcnt1_i32_b32" | "bcnt1_i32_b64" => nonzero(a.iter().filter(|b| **b).count() as u64),
        "ff0_i32_b32" | "ff0_i32_b64" => dst(search(a.iter().map(|b| !b))),
        "ff1_i32_b32" | "ff1_i32_b64" => dst(search(a.iter().copied())),
        "flbit_i32_b32" | "flbit_i32_b64" => dst(search(a.iter().rev().copied())),
        "flbit_i32" | "flbit_i32_i64" => {
            let sign = *a.last()?;
            dst(search(a.iter().rev().map(|&b| b != sign)))
        }
        "sext_i32_i8" => dst(field(s.a, 32, 8 << 16, true)),
        "sext_i32_i16" => dst(field(s.a, 32, 16 << 16, true)),
        "bitset0_b32" => dst(s.old & !(1 << (s.a % 32))),
        "bitset1_b32" => dst(s.old | 1 << (s.a % 32)),
        "bitset0_b64" => dst(s.old & !(1 << (s.a % 64))),
        "bitset1_b64" => dst(s.old | 1 << (s.a % 64)),
        "abs_i32" => nonzero(low(int(s.a).abs())),
        "bitreplicate_b64_b32" => dst(number(&bits32.iter().flat_map(|&b| [b, b]).collect::<Vec<_>>())),
        "bitcmp0_b32" | "bitcmp0_b64" => only_scc(!a[by as usize]),
        "bitcmp1_b32" | "bitcmp1_b64" => only_scc(a[by as usize]),
        "movk_i32" => dst(low(i128::from(s.imm))),
        "cmovk_i32" => dst(if s.scc { low(i128::from(s.imm)) } else { s.old }),
        "addk_i32" => with_scc(low(int(s.old) + i128::from(s.imm)), !fits(int(s.old) + i128::from(s.imm))),
        "mulk_i32" => dst(low(int(s.old) * i128::from(s.imm))),
        _ => return None,
    })
}
