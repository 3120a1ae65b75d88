//! DS: LDS by vector addresses (RDNA ISA 10.3). The global data share is graphics'.

use super::global::Lanes;
use super::{
    ADDR, DATA, Data, EXTRA, Segment, atomic_handler, load_handler, local, operands, put, store_handler,
};
use super::{Dwords, Rmw, destination, exchange, operand, quick, vector};
use crate::args::Args;
use crate::env::{Env, Fault, MemoryFn};
use crate::wave::{EXEC, M0};
use crate::{Memory, Src, Wave};
use wave32_isa::{Inst, Opcode};

/// Chooses the handler and sorts the operands: `[vdst,] [addr,] [data0,] [data1]`.
pub(super) fn bind<M: Memory>(inst: &Inst, args: &mut Args) -> Option<MemoryFn<M>> {
    let mut operands = operands(inst);
    let returns = destination(inst);
    if let Some(dst) = returns {
        args.dst = dst;
        operands.next();
    }
    let name = inst.op.name().strip_prefix("ds_")?;
    if !matches!(
        inst.op,
        Opcode::ds_append | Opcode::ds_consume | Opcode::ds_read_addtid_b32 | Opcode::ds_write_addtid_b32
    ) {
        args.src[ADDR] = operands.next().unwrap_or(args.src[ADDR]);
    }
    args.src[DATA] = operands.next().unwrap_or(args.src[DATA]);
    args.src[EXTRA] = operands.next().unwrap_or(args.src[EXTRA]);
    // One offset of 16 bits, but of those that have two.
    if !inst.op.has_two_offsets() {
        args.mem.offset = (args.mem.offset | i32::from(args.mem.offset1) << 8) & 0xffff;
    }
    match inst.op {
        Opcode::ds_nop => return Some(|_, _, _| Ok(())),
        Opcode::ds_swizzle_b32 => return Some(exchange::swizzle::<M>),
        Opcode::ds_permute_b32 => return Some(exchange::permute::<M>),
        Opcode::ds_bpermute_b32 => return Some(exchange::bpermute::<M>),
        Opcode::ds_append => return Some(append::<M, true>),
        Opcode::ds_consume => return Some(append::<M, false>),
        Opcode::ds_read_addtid_b32 => return load_handler::<M, ByLane>("b32", false),
        Opcode::ds_write_addtid_b32 => return store_handler::<M, ByLane>("b32"),
        Opcode::ds_read2_b32 => return Some(read2::<M, 1, 4, 4>),
        Opcode::ds_read2st64_b32 => return Some(read2::<M, 1, 4, 256>),
        Opcode::ds_read2_b64 => return Some(read2::<M, 2, 8, 8>),
        Opcode::ds_read2st64_b64 => return Some(read2::<M, 2, 8, 512>),
        Opcode::ds_write2_b32 => return Some(write2::<M, 1, 4, 4>),
        Opcode::ds_write2st64_b32 => return Some(write2::<M, 1, 4, 256>),
        Opcode::ds_write2_b64 => return Some(write2::<M, 2, 8, 8>),
        Opcode::ds_write2st64_b64 => return Some(write2::<M, 2, 8, 512>),
        Opcode::ds_wrxchg2_rtn_b32 => return Some(exchange2::<M, false, 4>),
        Opcode::ds_wrxchg2st64_rtn_b32 => return Some(exchange2::<M, false, 256>),
        Opcode::ds_wrxchg2_rtn_b64 => return Some(exchange2::<M, true, 8>),
        Opcode::ds_wrxchg2st64_rtn_b64 => return Some(exchange2::<M, true, 512>),
        _ => {}
    }
    if name.contains("_src2_") {
        let (rmw, wide) = Rmw::of(inst.op)?;
        args.imm = rmw as u16;
        return Some(if wide { from_lds::<M, true> } else { from_lds::<M, false> });
    }
    if let Some(kind) = name.strip_prefix("read_") {
        return load_handler::<M, Local>(kind, false);
    }
    if let Some(kind) = name.strip_prefix("write_") {
        return store_handler::<M, Local>(kind);
    }
    atomic_handler::<M, Local>(inst, args, returns.is_some())
}

/// LDS at a vector address and the instruction's offset.
struct Local;
/// LDS at M0, the instruction's offset, and a dword for each lane.
struct ByLane;

/// The lanes' addresses, `offset` bytes on.
#[inline]
fn addresses(wave: &Wave, args: &Args, offset: u32) -> [u64; 32] {
    let mut all = [0; 32];
    for (to, a) in all.iter_mut().zip(vector(wave, args.src[ADDR], 0)) {
        *to = u64::from(a.wrapping_add(offset));
    }
    all
}

/// Loads `N` dwords of each lane at `offset` the short way, if that is open; whether it was.
#[inline(always)]
fn load_quick<M, const N: usize>(wave: &mut Wave, env: &mut Env<M>, args: &Args, offset: u32) -> bool {
    let mut each = [0; 32];
    let Some(places) = quick::places::<M, N>(wave, env, args.src[ADDR], offset, &mut each) else {
        return false;
    };
    if env.lds.watched() && !places.admit_read::<M, N>(env, wave.exec()) {
        return false;
    }
    quick::load::<N>(&env.lds.words, places, wave, usize::from(args.dst));
    true
}

/// Stores `N` dwords of each lane from the operand `data` at `offset`; see [`load_quick`].
#[inline(always)]
fn store_quick<M, const N: usize>(
    wave: &Wave,
    env: &mut Env<M>,
    args: &Args,
    data: usize,
    offset: u32,
) -> bool {
    let Src::Vgpr(src) = args.src[data] else { return false };
    let mut each = [0; 32];
    let Some(places) = quick::places::<M, N>(wave, env, args.src[ADDR], offset, &mut each) else {
        return false;
    };
    let src = usize::from(src);
    if env.lds.watched()
        && (env.lds.moves_undefined()
            || !places.admit_write::<M, N>(env, wave.exec(), quick::registers(wave, src)))
    {
        return false;
    }
    quick::store::<N>(&mut env.lds.words, places, wave, src);
    true
}

impl<M: Memory> Segment<M> for Local {
    #[inline(always)]
    fn load_rows<const N: usize>(wave: &mut Wave, env: &mut Env<M>, args: &Args) -> bool {
        load_quick::<M, N>(wave, env, args, args.mem.offset as u32)
    }

    #[inline(always)]
    fn store_rows<const N: usize>(wave: &mut Wave, env: &mut Env<M>, args: &Args) -> bool {
        store_quick::<M, N>(wave, env, args, DATA, args.mem.offset as u32)
    }

    #[inline]
    fn load<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        out: &mut Data,
    ) -> Result<(), Box<Fault>> {
        let addr = addresses(wave, args, args.mem.offset as u32);
        local::load::<M, BYTES>(env, Lanes::active(wave, &addr), 0, out)
    }

    #[inline]
    fn store<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        data: &Data,
    ) -> Result<(), Box<Fault>> {
        let addr = addresses(wave, args, args.mem.offset as u32);
        local::store::<M, BYTES>(env, Lanes::active(wave, &addr), 0, data)
    }

    fn atomic(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        wide: bool,
        out: &mut Data,
        f: impl Fn(usize, u64) -> u64,
    ) -> Result<(), Box<Fault>> {
        let addr = addresses(wave, args, args.mem.offset as u32);
        local::atomic(env, Lanes::active(wave, &addr), wide, out, f)
    }
}

fn by_lane(wave: &Wave, args: &Args) -> [u64; 32] {
    let base = (wave.sgpr[M0] & 0xffff) + args.mem.offset as u32;
    std::array::from_fn(|l| u64::from(base) + (32 * wave.half + l) as u64 * 4)
}

impl<M: Memory> Segment<M> for ByLane {
    fn load<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        out: &mut Data,
    ) -> Result<(), Box<Fault>> {
        local::load::<M, BYTES>(env, Lanes::active(wave, &by_lane(wave, args)), 0, out)
    }

    fn store<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        data: &Data,
    ) -> Result<(), Box<Fault>> {
        local::store::<M, BYTES>(env, Lanes::active(wave, &by_lane(wave, args)), 0, data)
    }

    fn atomic(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        wide: bool,
        out: &mut Data,
        f: impl Fn(usize, u64) -> u64,
    ) -> Result<(), Box<Fault>> {
        local::atomic(env, Lanes::active(wave, &by_lane(wave, args)), wide, out, f)
    }
}

/// The two offsets in bytes; they count in `STEP`.
fn two_offsets<const STEP: u32>(args: &Args) -> [u32; 2] {
    [(args.mem.offset as u32 & 0xff) * STEP, u32::from(args.mem.offset1) * STEP]
}

fn read2<M: Memory, const N: usize, const BYTES: usize, const STEP: u32>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    let offsets = two_offsets::<STEP>(args);
    // Both before the first result may overwrite the address.
    let (mut first, mut second) = ([0; 32], [0; 32]);
    let places = |offset: u32, each| quick::places::<M, N>(wave, env, args.src[ADDR], offset, each);
    if let (Some(first), Some(second)) = (places(offsets[0], &mut first), places(offsets[1], &mut second))
        && (!env.lds.watched() || [first, second].into_iter().all(|p| p.admit_read::<M, N>(env, wave.exec())))
    {
        quick::load::<N>(&env.lds.words, first, wave, usize::from(args.dst));
        quick::load::<N>(&env.lds.words, second, wave, usize::from(args.dst) + N);
        return Ok(());
    }
    let mut out = [[[0; 32]; 4]; 2];
    for (i, (out, offset)) in out.iter_mut().zip(offsets).enumerate() {
        local::load::<M, BYTES>(env, Lanes::active(wave, &addresses(wave, args, offset)), i * N, out)?;
    }
    for (i, out) in out.iter().enumerate() {
        for (k, row) in out.iter().enumerate().take(N) {
            put::<Dwords>(wave, usize::from(args.dst) + i * N + k, row);
        }
    }
    Ok(())
}

fn write2<M: Memory, const N: usize, const BYTES: usize, const STEP: u32>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    for (i, (src, offset)) in [DATA, EXTRA].into_iter().zip(two_offsets::<STEP>(args)).enumerate() {
        if !store_quick::<M, N>(wave, env, args, src, offset) {
            let data = operand::<Dwords>(wave, args.src[src], N);
            let addr = addresses(wave, args, offset);
            local::store::<M, BYTES>(env, Lanes::active(wave, &addr), i * N, &data)?;
        }
    }
    Ok(())
}

/// `ds_wrxchg2`: two exchanges, the first address's before the second's.
fn exchange2<M: Memory, const WIDE: bool, const STEP: u32>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    let dwords = 1 + usize::from(WIDE);
    let mut out = [[[0; 32]; 4]; 2];
    for (i, offset) in two_offsets::<STEP>(args).into_iter().enumerate() {
        let data = operand::<Dwords>(wave, args.src[[DATA, EXTRA][i]], dwords);
        let addr = addresses(wave, args, offset);
        local::atomic(env, Lanes::active(wave, &addr), WIDE, &mut out[i], |l, _| {
            u64::from(data[0][l]) | if WIDE { u64::from(data[1][l]) << 32 } else { 0 }
        })?;
    }
    for (i, out) in out.iter().enumerate() {
        for (k, row) in out.iter().enumerate().take(dwords) {
            put::<Dwords>(wave, usize::from(args.dst) + i * dwords + k, row);
        }
    }
    Ok(())
}

/// The `src2` atomics, whose operand is in LDS too: at B, so many dwords from A as the offset or the address says.
fn from_lds<M: Memory, const WIDE: bool>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    let rmw = Rmw::from_imm(args.imm);
    let offset = args.mem.offset as u32;
    let align = if WIDE { !7 } else { !3 };
    let flush = wave.mode >> 4 & 3 == 0;
    for l in Lanes::active(wave, &[0; 32]).each() {
        let address = vector(wave, args.src[ADDR], 0)[l];
        let (a, dwords) = if offset & 0x8000 != 0 {
            (address & 0x1_ffff, (address as i32 >> 17) as i16)
        } else {
            (address, (offset << 1) as i16 >> 1)
        };
        let a = a & align;
        let b = a.wrapping_add_signed(i32::from(dwords) * 4) & align;
        let one = Lanes { half: wave.half, mask: 1 << l, addr: &[u64::from(b); 32] };
        let mut operand = [[0; 32]; 4];
        local::check_use(env, one, l, if WIDE { 8 } else { 4 })?;
        if WIDE {
            local::load::<M, 8>(env, one, 0, &mut operand)?;
        } else {
            local::load::<M, 4>(env, one, 0, &mut operand)?;
        }
        let value = u64::from(operand[0][l]) | u64::from(operand[1][l]) << 32;
        let one = Lanes { half: wave.half, mask: 1 << l, addr: &[u64::from(a); 32] };
        local::atomic(env, one, WIDE, &mut operand, |_, old| rmw.apply(WIDE, flush, old, value, 0))?;
    }
    Ok(())
}

/// `ds_append` and `ds_consume`: the wave's active lanes are counted up or down once, at M0 and the offset; all of them
/// get what was there.
fn append<M: Memory, const UP: bool>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    if wave.exec() == 0 {
        return Ok(());
    }
    let dst = usize::from(args.dst);
    let first = wave.sgpr[EXEC].trailing_zeros() as usize;
    if wave.half == 1 && first < 32 {
        let old = wave.vgpr[dst][first];
        put::<Dwords>(wave, dst, &[old; 32]);
        return Ok(());
    }
    let active = wave.wide_mask(EXEC).count_ones();
    let address = u64::from((wave.sgpr[M0] & 0xffff) + args.mem.offset as u32);
    let l = wave.exec().trailing_zeros() as usize;
    let mut out = [[0; 32]; 4];
    let one = Lanes { half: wave.half, mask: 1 << l, addr: &[address; 32] };
    local::atomic(env, one, false, &mut out, |_, old| {
        let old = old as u32;
        u64::from(if UP { old.wrapping_add(active) } else { old.wrapping_sub(active) })
    })?;
    put::<Dwords>(wave, dst, &[out[0][l]; 32]);
    Ok(())
}
