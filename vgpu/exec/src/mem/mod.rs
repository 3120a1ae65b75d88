//! Vector memory and LDS (RDNA ISA chapters 8 to 11). A handler works on one half of 32 lanes.
//!
//! An instruction is a [`Shape`] (what a lane moves) over a [`Segment`] (where addresses lead).

pub(crate) mod atomic;
mod buffer;
mod ds;
mod exchange;
mod flat;
mod format;
mod global;
mod local;
mod quick;
mod scratch;
mod shape;

use crate::args::{Args, Src, register};
use crate::env::{Env, Fault, MemoryFn};
use crate::lanes::ZEROS;
use crate::{Memory, Row, Wave};
use atomic::Rmw;
use global::Lanes;
use shape::{B16High, B16Low, Dwords, I8, I8High, I8Low, I16, Shape, U8, U8High, U8Low, U16};
use wave32_isa::{Access, Form, Inst};

/// Up to four registers of 32 lanes.
pub(crate) type Data = [[u32; 32]; 4];

/// Places of a memory instruction's operands in [`Args::src`].
const ADDR: usize = 0;
/// What is stored, or an atomic's operand.
const DATA: usize = 1;
/// A scalar base address, or a buffer's description.
const BASE: usize = 2;
/// A buffer's scalar offset, or DS's second operand.
const EXTRA: usize = 3;

/// The handler of a vector memory or LDS instruction.
pub(crate) fn bind<M: Memory>(inst: &Inst) -> Option<(MemoryFn<M>, Args)> {
    if inst.mem.tfe || inst.mem.gds {
        return None;
    }
    let mut args = Args { src: [Src::None; 4], ..Args::new(inst) };
    let handler = match inst.form {
        Form::Ds => ds::bind(inst, &mut args),
        Form::Flat => flat::bind::<M, flat::Flat>(inst, &mut args),
        Form::Global => flat::bind::<M, flat::Global>(inst, &mut args),
        Form::Scratch => flat::bind::<M, flat::Scratch>(inst, &mut args),
        Form::Mubuf | Form::Mtbuf => buffer::bind(inst, &mut args),
        _ => None,
    };
    handler.map(|handler| (handler, args))
}

/// What addresses mean.
pub(crate) trait Segment<M: Memory> {
    /// Loads `BYTES` of each lane that EXEC has on; the others' `out` is anything.
    fn load<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        out: &mut Data,
    ) -> Result<(), Box<Fault>>;

    /// Stores `BYTES` of each lane that EXEC has on.
    fn store<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        data: &Data,
    ) -> Result<(), Box<Fault>>;

    /// Loads `N` dwords of each lane into registers, if it can be done the short way (see `quick`); whether it was.
    #[inline(always)]
    fn load_rows<const N: usize>(_wave: &mut Wave, _env: &mut Env<M>, _args: &Args) -> bool {
        false
    }

    /// See [`Segment::load_rows`].
    #[inline(always)]
    fn store_rows<const N: usize>(_wave: &mut Wave, _env: &mut Env<M>, _args: &Args) -> bool {
        false
    }

    /// Replaces 32 or 64 bits of each lane that EXEC has on by `f(lane, old)`; `out` gets the old ones.
    fn atomic(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        wide: bool,
        out: &mut Data,
        f: impl Fn(usize, u64) -> u64,
    ) -> Result<(), Box<Fault>>;
}

/// The handler of a load of the kind that the mnemonic ends in.
fn load_handler<M: Memory, G: Segment<M>>(kind: &str, to_lds: bool) -> Option<MemoryFn<M>> {
    Some(match (kind, to_lds) {
        ("ubyte" | "u8", false) => load::<M, G, U8, 1>,
        ("sbyte" | "i8", false) => load::<M, G, I8, 1>,
        ("ushort" | "u16", false) => load::<M, G, U16, 2>,
        ("sshort" | "i16", false) => load::<M, G, I16, 2>,
        ("ubyte_d16" | "u8_d16", false) => load::<M, G, U8Low, 1>,
        ("ubyte_d16_hi" | "u8_d16_hi", false) => load::<M, G, U8High, 1>,
        ("sbyte_d16" | "i8_d16", false) => load::<M, G, I8Low, 1>,
        ("sbyte_d16_hi" | "i8_d16_hi", false) => load::<M, G, I8High, 1>,
        ("short_d16" | "u16_d16", false) => load::<M, G, B16Low, 2>,
        ("short_d16_hi" | "u16_d16_hi", false) => load::<M, G, B16High, 2>,
        ("dword" | "b32", false) => load_whole::<M, G, 1, 4>,
        ("dwordx2" | "b64", false) => load_whole::<M, G, 2, 8>,
        ("dwordx3" | "b96", false) => load_whole::<M, G, 3, 12>,
        ("dwordx4" | "b128", false) => load_whole::<M, G, 4, 16>,
        ("ubyte", true) => load_to_lds::<M, G, U8, 1>,
        ("sbyte", true) => load_to_lds::<M, G, I8, 1>,
        ("ushort", true) => load_to_lds::<M, G, U16, 2>,
        ("sshort", true) => load_to_lds::<M, G, I16, 2>,
        ("dword", true) => load_to_lds::<M, G, Dwords, 4>,
        _ => return None,
    })
}

/// The handler of a store of the kind that the mnemonic ends in.
fn store_handler<M: Memory, G: Segment<M>>(kind: &str) -> Option<MemoryFn<M>> {
    Some(match kind {
        "byte" | "b8" => store::<M, G, U8, 1>,
        "byte_d16_hi" | "b8_d16_hi" => store::<M, G, U8High, 1>,
        "short" | "b16" => store::<M, G, U16, 2>,
        "short_d16_hi" | "b16_d16_hi" => store::<M, G, B16High, 2>,
        "dword" | "b32" => store_whole::<M, G, 1, 4>,
        "dwordx2" | "b64" => store_whole::<M, G, 2, 8>,
        "dwordx3" | "b96" => store_whole::<M, G, 3, 12>,
        "dwordx4" | "b128" => store_whole::<M, G, 4, 16>,
        _ => return None,
    })
}

/// Whole dwords: the short way, where the segment has one.
fn load_whole<M: Memory, G: Segment<M>, const N: usize, const BYTES: usize>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    if G::load_rows::<N>(wave, env, args) { Ok(()) } else { load::<M, G, Dwords, BYTES>(wave, env, args) }
}

/// See [`load_whole`].
fn store_whole<M: Memory, G: Segment<M>, const N: usize, const BYTES: usize>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    if G::store_rows::<N>(wave, env, args) { Ok(()) } else { store::<M, G, Dwords, BYTES>(wave, env, args) }
}

#[inline(never)]
fn load<M: Memory, G: Segment<M>, S: Shape, const BYTES: usize>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    let mut out = [[0; 32]; 4];
    G::load::<BYTES>(wave, env, args, &mut out)?;
    for (k, row) in out.iter().enumerate().take(BYTES.div_ceil(4)) {
        put::<S>(wave, usize::from(args.dst) + k, row);
    }
    Ok(())
}

/// Each lane's value goes to LDS instead of a register: at M0, the instruction's offset, and a dword for each lane.
fn load_to_lds<M: Memory, G: Segment<M>, S: Shape, const BYTES: usize>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    let mut out = [[0; 32]; 4];
    G::load::<BYTES>(wave, env, args, &mut out)?;
    for value in &mut out[0] {
        *value = S::load(*value, 0);
    }
    let base = (wave.sgpr[crate::wave::M0] & 0xffff).wrapping_add(args.mem.offset as u32);
    let addr = std::array::from_fn(|l| u64::from(base.wrapping_add((32 * wave.half + l) as u32 * 4)));
    local::store::<M, 4>(env, Lanes::active(wave, &addr), 0, &out)
}

#[inline(never)]
fn store<M: Memory, G: Segment<M>, S: Shape, const BYTES: usize>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    let data = operand::<S>(wave, args.src[DATA], BYTES.div_ceil(4));
    G::store::<BYTES>(wave, env, args, &data)
}

/// An atomic; `imm` says which. Memory's compare-and-swap has the new value before the one compared with, DS behind.
fn atomic<M: Memory, G: Segment<M>, const WIDE: bool, const RETURNS: bool>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    let rmw = Rmw::from_imm(args.imm);
    let dwords = 1 + usize::from(WIDE);
    let pair =
        rmw.is_ternary() && args.src[EXTRA] == Src::None || args.src[BASE] != Src::None && rmw.is_ternary();
    let first = operand::<Dwords>(wave, args.src[DATA], if pair { 2 * dwords } else { dwords });
    let second = if pair { [[0; 32]; 4] } else { operand::<Dwords>(wave, args.src[EXTRA], dwords) };
    let flush = wave.mode >> 4 & 3 == 0;
    let value = |data: &Data, k: usize, l: usize| {
        u64::from(data[k][l]) | if WIDE { u64::from(data[k + 1][l]) << 32 } else { 0 }
    };
    let mut out = [[0; 32]; 4];
    G::atomic(wave, env, args, WIDE, &mut out, |l, old| {
        let (a, b) = if pair {
            (value(&first, dwords, l), value(&first, 0, l))
        } else {
            (value(&first, 0, l), value(&second, 0, l))
        };
        rmw.apply(WIDE, flush, old, a, b)
    })?;
    if RETURNS {
        for (k, row) in out.iter().enumerate().take(dwords) {
            put::<Dwords>(wave, usize::from(args.dst) + k, row);
        }
    }
    Ok(())
}

/// The handler of an atomic, and `imm` set to which.
fn atomic_handler<M: Memory, G: Segment<M>>(
    inst: &Inst,
    args: &mut Args,
    returns: bool,
) -> Option<MemoryFn<M>> {
    let (rmw, wide) = Rmw::of(inst.op)?;
    args.imm = rmw as u16;
    Some(match (wide, returns) {
        (false, false) => atomic::<M, G, false, false>,
        (false, true) => atomic::<M, G, false, true>,
        (true, false) => atomic::<M, G, true, false>,
        (true, true) => atomic::<M, G, true, true>,
    })
}

/// Writes a row's lanes that EXEC has on.
#[inline]
fn put<S: Shape>(wave: &mut Wave, register: usize, row: &[u32; 32]) {
    let exec = wave.exec();
    if exec == u32::MAX {
        wave.row_mut(register).iter_mut().zip(row).for_each(|(old, &raw)| *old = S::load(raw, *old));
        return;
    }
    for (l, (old, &raw)) in wave.row_mut(register).iter_mut().zip(row).enumerate() {
        *old = if exec >> l & 1 == 1 { S::load(raw, *old) } else { *old };
    }
}

/// A vector operand's registers as stored.
#[inline]
fn operand<S: Shape>(wave: &Wave, src: Src, dwords: usize) -> Data {
    let mut data = [[0; 32]; 4];
    if let Src::Vgpr(first) = src {
        for (k, row) in data.iter_mut().enumerate().take(dwords) {
            for (to, &from) in row.iter_mut().zip(wave.row(usize::from(first) + k)) {
                *to = S::store(from);
            }
        }
    }
    data
}

/// A vector operand's `k`-th register; zeros where there is none.
#[inline(always)]
fn vector(wave: &Wave, src: Src, k: usize) -> &Row {
    match src {
        Src::Vgpr(first) => wave.row(usize::from(first) + k),
        _ => &ZEROS,
    }
}

/// A scalar operand's value.
fn scalar(wave: &Wave, src: Src) -> u32 {
    match src {
        Src::Sgpr(code) => wave.scalar(code),
        Src::Const(low, _) => low,
        _ => 0,
    }
}

/// The operands named in the text, in its order.
fn operands(inst: &Inst) -> impl Iterator<Item = Src> {
    inst.args().iter().filter(|arg| arg.printed).map(|arg| crate::args::source(inst, arg))
}

/// The first operand, where it is a vector register that the instruction writes.
fn destination(inst: &Inst) -> Option<u16> {
    let first = inst.args().first().filter(|arg| arg.printed && arg.access != Access::R)?;
    first.operand.as_vgpr().map(|_| register(first.operand))
}

impl<M> Env<'_, M> {
    /// Notes the lanes' accesses for the time model.
    fn touch(&mut self, lanes: Lanes, bytes: u32) {
        if let Some(touched) = self.touched.as_deref_mut() {
            touched.extend(lanes.each().map(|l| ((32 * lanes.half + l) as u32, lanes.addr[l], bytes)));
        }
    }
}
