//! Scalar memory (RDNA ISA chapter 7, 12.6): loads and stores of dwords, clocks, caches.

use crate::env::{Env, Fault, MemoryFn};
use crate::mem::atomic::Rmw;
use crate::{Args, Memory, SCRATCH_BASE, Src, Wave};
use wave32_isa::{Inst, Opcode};

/// The handler of a scalar memory instruction.
pub(crate) fn bind<M: Memory>(inst: &Inst) -> Option<(MemoryFn<M>, Args)> {
    use Opcode::*;
    let handler: MemoryFn<M> = match inst.op {
        s_load_dword => load::<M, 1>,
        s_load_dwordx2 => load::<M, 2>,
        s_load_dwordx4 => load::<M, 4>,
        s_load_dwordx8 => load::<M, 8>,
        s_load_dwordx16 => load::<M, 16>,
        s_buffer_load_dword => load_buffer::<M, 1>,
        s_buffer_load_dwordx2 => load_buffer::<M, 2>,
        s_buffer_load_dwordx4 => load_buffer::<M, 4>,
        s_buffer_load_dwordx8 => load_buffer::<M, 8>,
        s_buffer_load_dwordx16 => load_buffer::<M, 16>,
        s_store_dword => store::<M, 1>,
        s_store_dwordx2 => store::<M, 2>,
        s_store_dwordx4 => store::<M, 4>,
        s_buffer_store_dword => store_buffer::<M, 1>,
        s_buffer_store_dwordx2 => store_buffer::<M, 2>,
        s_buffer_store_dwordx4 => store_buffer::<M, 4>,
        // 16 core clocks a tick of the 100 MHz counter: 1.6 GHz.
        s_memtime => |w, env, a| {
            w.set_scalar64(a.dst, env.signals.realtime().wrapping_mul(16));
            Ok(())
        },
        s_memrealtime => |w, env, a| {
            w.set_scalar64(a.dst, env.signals.realtime());
            Ok(())
        },
        s_get_waveid_in_workgroup => |w, _, a| {
            w.set_scalar(a.dst, w.hardware.wave);
            Ok(())
        },
        // There are no caches here to write back or to drop, no translation to ask for ahead.
        s_dcache_inv | s_dcache_wb | s_gl1_inv | s_dcache_discard | s_dcache_discard_x2 | s_atc_probe
        | s_atc_probe_buffer => |_, _, _| Ok(()),
        _ => return bind_atomic(inst),
    };
    Some((handler, Args::new(inst)))
}

/// An atomic's handler; which one it is stands in `imm`, as vector memory has it.
fn bind_atomic<M: Memory>(inst: &Inst) -> Option<(MemoryFn<M>, Args)> {
    let (rmw, wide) = Rmw::of(inst.op)?;
    let buffer = inst.op.name().starts_with("s_buffer");
    let handler: MemoryFn<M> = match (buffer, wide) {
        (false, false) => atomic::<M, false, false>,
        (false, true) => atomic::<M, false, true>,
        (true, false) => atomic::<M, true, false>,
        (true, true) => atomic::<M, true, true>,
    };
    let mut args = Args::new(inst);
    args.imm = rmw as u16;
    Some((handler, args))
}

/// Data, and behind it what a compare and swap compares with; GLC returns what was in memory.
fn atomic<M: Memory, const BUFFER: bool, const WIDE: bool>(
    w: &mut Wave,
    env: &mut Env<'_, M>,
    a: &Args,
) -> Result<(), Box<Fault>> {
    let rmw = Rmw::from_imm(a.imm);
    let size = if WIDE { 8 } else { 4 };
    let address = if BUFFER {
        let ((base, bytes), offset) = (buffer(w, a.src[1]), offset(w, a, a.src[2]) & !3);
        within(offset, size, bytes).then(|| base + offset)
    } else {
        Some(address(w, a, a.src[1], a.src[2]))
    };
    let data = source_register(a.src[0]) as u8;
    let operand = |i: u8| if WIDE { w.scalar64(data + 2 * i) } else { u64::from(w.scalar(data + i)) };
    let (new, compared) = (operand(0), if rmw.is_ternary() { operand(1) } else { 0 });
    // A compare and swap's first operand is what to compare with, everywhere else.
    let (x, y) = if rmw.is_ternary() { (compared, new) } else { (new, 0) };
    let old = match address {
        None => 0,
        Some(address) if address % size != 0 => {
            return Err(Fault::memory(None, address, size as u32, true));
        }
        Some(address) => {
            let region = env.regions.find(env.memory, address, size).filter(|r| !r.readonly);
            let region = region.ok_or_else(|| Fault::memory(None, address, size as u32, true))?;
            touch(env, address, size as usize);
            if WIDE {
                env.memory.update64(&region, address, |old| rmw.apply(true, false, old, x, y))
            } else {
                let apply = |old: u32| rmw.apply(false, false, u64::from(old), x, y) as u32;
                u64::from(env.memory.update32(&region, address, apply))
            }
        }
    };
    if a.mem.glc {
        put(w, a.dst, &[old as u32, (old >> 32) as u32][..size as usize / 4]);
    }
    Ok(())
}

/// Byte offset from the base: the constant and the SGPR.
fn offset(wave: &Wave, args: &Args, soffset: Src) -> u64 {
    let register = match soffset {
        Src::Sgpr(code) => u64::from(wave.scalar(code)),
        Src::Const(low, high) => u64::from(low) | u64::from(high) << 32,
        Src::Vgpr(_) | Src::None => 0,
    };
    register.wrapping_add_signed(i64::from(args.mem.offset))
}

/// Address of a plain access; its two low bits count for nothing.
fn address(wave: &Wave, args: &Args, base: Src, soffset: Src) -> u64 {
    let base = if let Src::Sgpr(code) = base { wave.scalar64(code) } else { 0 };
    base.wrapping_add(offset(wave, args, soffset)) & !3
}

/// Base and bytes of the buffer that four SGPRs describe (RDNA ISA 8.1.8).
fn buffer(wave: &Wave, descriptor: Src) -> (u64, u64) {
    let Src::Sgpr(code) = descriptor else { return (0, 0) };
    let (low, high) = (wave.scalar64(code), wave.scalar(code + 2));
    let stride = low >> 48 & 0x3fff;
    (low & 0xffff_ffff_fffc, u64::from(high) * stride.max(1))
}

fn source_register(src: Src) -> usize {
    if let Src::Sgpr(code) = src { usize::from(code) } else { 125 }
}

/// The data of a store. Code may name registers of which the last are none: they read as 0.
fn registers<const N: usize>(w: &Wave, a: &Args) -> [u32; N] {
    let first = source_register(a.src[0]);
    std::array::from_fn(|i| w.sgpr.get(first + i).copied().unwrap_or(0))
}

fn load<M: Memory, const N: usize>(w: &mut Wave, env: &mut Env<'_, M>, a: &Args) -> Result<(), Box<Fault>> {
    let words = read::<M, N>(env, address(w, a, a.src[0], a.src[1]))?;
    put(w, a.dst, &words);
    Ok(())
}

/// Dwords past the buffer's end read 0.
fn load_buffer<M: Memory, const N: usize>(
    w: &mut Wave,
    env: &mut Env<'_, M>,
    a: &Args,
) -> Result<(), Box<Fault>> {
    let ((base, bytes), offset) = (buffer(w, a.src[0]), offset(w, a, a.src[1]) & !3);
    let mut words = [0; N];
    if within(offset, 4 * N as u64, bytes) {
        words = read::<M, N>(env, base + offset)?;
    } else {
        for (i, word) in words.iter_mut().enumerate() {
            let at = offset.wrapping_add(4 * i as u64);
            if within(at, 4, bytes) {
                [*word] = read::<M, 1>(env, base + at)?;
            }
        }
    }
    put(w, a.dst, &words);
    Ok(())
}

fn within(offset: u64, count: u64, bytes: u64) -> bool {
    offset.checked_add(count).is_some_and(|end| end <= bytes)
}

fn put(w: &mut Wave, dst: u16, words: &[u32]) {
    if dst == 125 {
        return;
    }
    for (code, &word) in (dst..).zip(words) {
        w.set_scalar(code, word);
    }
}

fn store<M: Memory, const N: usize>(w: &mut Wave, env: &mut Env<'_, M>, a: &Args) -> Result<(), Box<Fault>> {
    let address = address(w, a, a.src[1], a.src[2]);
    write(env, address, &registers::<N>(w, a))
}

/// Dwords past the buffer's end are dropped.
fn store_buffer<M: Memory, const N: usize>(
    w: &mut Wave,
    env: &mut Env<'_, M>,
    a: &Args,
) -> Result<(), Box<Fault>> {
    let ((base, bytes), offset) = (buffer(w, a.src[1]), offset(w, a, a.src[2]) & !3);
    for (i, word) in registers::<N>(w, a).into_iter().enumerate() {
        let at = offset.wrapping_add(4 * i as u64);
        if within(at, 4, bytes) {
            write(env, base + at, &[word])?;
        }
    }
    Ok(())
}

fn read<M: Memory, const N: usize>(env: &mut Env<'_, M>, address: u64) -> Result<[u32; N], Box<Fault>> {
    let mut words = [0; N];
    if let Some(at) = in_scratch(env, address, N) {
        words.copy_from_slice(&env.scratch[at..at + N]);
        return Ok(words);
    }
    let count = 4 * N;
    let region = env.regions.find(env.memory, address, count as u64);
    let region = region.ok_or_else(|| Fault::memory(None, address, count as u32, false))?;
    touch(env, address, count);
    let mut bytes = [0; 64];
    env.memory.read(&region, address, &mut bytes[..count]);
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
    }
    Ok(words)
}

fn write<M: Memory>(env: &mut Env<'_, M>, address: u64, words: &[u32]) -> Result<(), Box<Fault>> {
    if let Some(at) = in_scratch(env, address, words.len()) {
        env.scratch[at..at + words.len()].copy_from_slice(words);
        return Ok(());
    }
    let count = 4 * words.len();
    let region = env.regions.find(env.memory, address, count as u64).filter(|r| !r.readonly);
    let region = region.ok_or_else(|| Fault::memory(None, address, count as u32, true))?;
    touch(env, address, count);
    let mut bytes = [0; 16];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    env.memory.write(&region, address, &bytes[..count]);
    Ok(())
}

/// The first dword of an access to the wave's scratch by its address.
fn in_scratch<M>(env: &Env<'_, M>, address: u64, dwords: usize) -> Option<usize> {
    let at = address.checked_sub(SCRATCH_BASE)? / 4;
    let at = usize::try_from(at).ok()?;
    (at.checked_add(dwords)? <= env.scratch.len()).then_some(at)
}

fn touch<M>(env: &mut Env<'_, M>, address: u64, bytes: usize) {
    if let Some(touched) = &mut env.touched {
        touched.push((0, address, bytes as u32));
    }
}
