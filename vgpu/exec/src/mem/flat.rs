//! FLAT, GLOBAL and SCRATCH (RDNA ISA chapter 9).

use super::global::{self, Lanes};
use super::{
    ADDR, BASE, DATA, Data, Segment, atomic_handler, load_handler, local, quick, scratch, store_handler,
};
use super::{destination, operands, vector};
use crate::args::{Args, Src};
use crate::env::{Env, Fault, MemoryFn};
use crate::{Memory, PRIVATE_BASE, SHARED_BASE, Wave};
use wave32_isa::Inst;

/// Addresses of 64 bits that may lead to memory, LDS or scratch.
pub(super) struct Flat;
/// Addresses of memory: 64 bits, or a scalar base and 32 bits.
pub(super) struct Global;
/// Offsets in a lane's scratch: vector or scalar.
pub(super) struct Scratch;

/// Chooses the handler and sorts the operands: `[vdst,] vaddr, [vdata,] [saddr]`.
pub(super) fn bind<M: Memory, G: Segment<M>>(inst: &Inst, args: &mut Args) -> Option<MemoryFn<M>> {
    let mut operands = operands(inst);
    if let Some(dst) = destination(inst) {
        args.dst = dst;
        operands.next();
    }
    args.src[ADDR] = operands.next()?;
    let (_, verb) = inst.op.name().split_once('_')?;
    let (verb, kind) = verb.split_once('_')?;
    if verb != "load" {
        args.src[DATA] = operands.next()?;
    }
    args.src[BASE] = match operands.next() {
        Some(Src::Sgpr(125)) | None => Src::None,
        Some(saddr) => saddr,
    };
    match verb {
        "load" => load_handler::<M, G>(kind, inst.mem.lds),
        "store" => store_handler::<M, G>(kind),
        "atomic" => atomic_handler::<M, G>(inst, args, inst.mem.glc),
        _ => None,
    }
}

/// The lanes' addresses of 64 bits. FLAT's offset counts only where `offset` says so.
#[inline]
fn addresses(wave: &Wave, args: &Args, offset: i32) -> [u64; 32] {
    let offset = i64::from(offset) as u64;
    let low = vector(wave, args.src[ADDR], 0);
    let mut all = [0; 32];
    if let Src::Sgpr(base) = args.src[BASE] {
        let base = wave.scalar64(base).wrapping_add(offset);
        for (to, &low) in all.iter_mut().zip(low) {
            *to = base.wrapping_add(u64::from(low));
        }
        return all;
    }
    let high = vector(wave, args.src[ADDR], 1);
    for l in 0..32 {
        all[l] = (u64::from(low[l]) | u64::from(high[l]) << 32).wrapping_add(offset);
    }
    all
}

impl<M: Memory> Segment<M> for Global {
    #[inline(always)]
    fn load_rows<const N: usize>(wave: &mut Wave, env: &mut Env<M>, args: &Args) -> bool {
        quick::from_memory::<M, N>(wave, env, args)
    }

    #[inline(always)]
    fn store_rows<const N: usize>(wave: &mut Wave, env: &mut Env<M>, args: &Args) -> bool {
        quick::to_memory::<M, N>(wave, env, args)
    }

    #[inline]
    fn load<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        out: &mut Data,
    ) -> Result<(), Box<Fault>> {
        let addr = addresses(wave, args, args.mem.offset);
        global::load::<M, BYTES>(env, Lanes::active(wave, &addr), out)
    }

    #[inline]
    fn store<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        data: &Data,
    ) -> Result<(), Box<Fault>> {
        let addr = addresses(wave, args, args.mem.offset);
        global::store::<M, BYTES>(env, Lanes::active(wave, &addr), data)
    }

    fn atomic(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        wide: bool,
        out: &mut Data,
        f: impl Fn(usize, u64) -> u64,
    ) -> Result<(), Box<Fault>> {
        let addr = addresses(wave, args, args.mem.offset);
        global::atomic(env, Lanes::active(wave, &addr), wide, out, f)
    }
}

/// The offsets of a SCRATCH instruction's lanes: 32 bits that wrap.
fn offsets(wave: &Wave, args: &Args) -> [u64; 32] {
    let offset = args.mem.offset as u32;
    if let Src::Sgpr(saddr) = args.src[BASE] {
        return [u64::from(wave.scalar(saddr).wrapping_add(offset)); 32];
    }
    vector(wave, args.src[ADDR], 0).map(|v| u64::from(v.wrapping_add(offset)))
}

fn width(wave: &Wave) -> u64 {
    if wave.wave64 { 64 } else { 32 }
}

impl<M: Memory> Segment<M> for Scratch {
    #[inline]
    fn load<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        out: &mut Data,
    ) -> Result<(), Box<Fault>> {
        let addr = offsets(wave, args);
        let lanes = Lanes::active(wave, &addr);
        scratch::load::<M, BYTES>(env, lanes, width(wave), out)
    }

    #[inline]
    fn store<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        data: &Data,
    ) -> Result<(), Box<Fault>> {
        let addr = offsets(wave, args);
        let lanes = Lanes::active(wave, &addr);
        scratch::store::<M, BYTES>(env, lanes, width(wave), data)
    }

    fn atomic(
        _wave: &Wave,
        _env: &mut Env<M>,
        _args: &Args,
        _wide: bool,
        _out: &mut Data,
        _f: impl Fn(usize, u64) -> u64,
    ) -> Result<(), Box<Fault>> {
        Err(Fault::illegal("there are no scratch atomics"))
    }
}

/// Where a FLAT instruction's lanes go: memory, LDS and scratch, a mask each; addresses in LDS and scratch from 0.
struct Split {
    global: u32,
    local: u32,
    private: u32,
    addr: [u64; 32],
}

impl Split {
    #[inline]
    fn new(wave: &Wave, args: &Args) -> Self {
        // On gfx10.1 memory does not see FLAT's offset (LLVM's `flat-segment-offset-bug`); LDS and scratch do.
        let mut addr = addresses(wave, args, 0);
        let (mut local, mut private) = (0, 0);
        for (l, a) in addr.iter().enumerate() {
            local |= u32::from(*a >> 32 == SHARED_BASE >> 32) << l;
            private |= u32::from(*a >> 32 == PRIVATE_BASE >> 32) << l;
        }
        if local | private != 0 {
            for (l, a) in addr.iter_mut().enumerate() {
                if (local | private) >> l & 1 == 1 {
                    *a = u64::from((*a as u32).wrapping_add(args.mem.offset as u32));
                }
            }
        }
        let exec = wave.exec();
        Self { global: exec & !local & !private, local: exec & local, private: exec & private, addr }
    }

    fn lanes(&self, wave: &Wave, mask: u32) -> Lanes<'_> {
        Lanes { half: wave.half, mask, addr: &self.addr }
    }
}

/// Takes over the lanes of `mask`.
fn merge(out: &mut Data, part: &Data, mask: u32) {
    for (row, from) in out.iter_mut().zip(part) {
        for (l, value) in row.iter_mut().enumerate() {
            *value = if mask >> l & 1 == 1 { from[l] } else { *value };
        }
    }
}

impl<M: Memory> Segment<M> for Flat {
    #[inline]
    fn load<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        out: &mut Data,
    ) -> Result<(), Box<Fault>> {
        let split = Split::new(wave, args);
        global::load::<M, BYTES>(env, split.lanes(wave, split.global), out)?;
        if split.local != 0 {
            let mut part = [[0; 32]; 4];
            local::load::<M, BYTES>(env, split.lanes(wave, split.local), 0, &mut part)?;
            merge(out, &part, split.local);
        }
        if split.private != 0 {
            let mut part = [[0; 32]; 4];
            scratch::load::<M, BYTES>(env, split.lanes(wave, split.private), width(wave), &mut part)?;
            merge(out, &part, split.private);
        }
        Ok(())
    }

    #[inline]
    fn store<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        data: &Data,
    ) -> Result<(), Box<Fault>> {
        let split = Split::new(wave, args);
        global::store::<M, BYTES>(env, split.lanes(wave, split.global), data)?;
        local::store::<M, BYTES>(env, split.lanes(wave, split.local), 0, data)?;
        scratch::store::<M, BYTES>(env, split.lanes(wave, split.private), width(wave), data)
    }

    fn atomic(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        wide: bool,
        out: &mut Data,
        f: impl Fn(usize, u64) -> u64,
    ) -> Result<(), Box<Fault>> {
        let split = Split::new(wave, args);
        global::atomic(env, split.lanes(wave, split.global), wide, out, &f)?;
        local::atomic(env, split.lanes(wave, split.local), wide, out, &f)?;
        let lanes = split.lanes(wave, split.private);
        if lanes.mask == 0 {
            return Ok(());
        }
        scratch::atomic(env, lanes, width(wave), wide, out, &f)
    }
}
