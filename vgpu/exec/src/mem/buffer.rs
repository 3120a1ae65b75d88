//! MUBUF and MTBUF: buffers described by four SGPRs (RDNA ISA 8.1).

use super::format::Format;
use super::global::{self, Lanes};
use super::{
    ADDR, BASE, DATA, Data, EXTRA, Segment, Shape, atomic_handler, load_handler, scratch, store_handler,
};
use super::{B16High, B16Low, Dwords, operand, operands, put, scalar, vector};
use crate::args::{Args, Src};
use crate::env::{Env, Fault, MemoryFn};
use crate::{Finding, Memory, SCRATCH_BASE, Wave};
use wave32_isa::{Form, Inst, Opcode};

/// Memory behind a buffer's description.
struct Buffer;

/// Chooses the handler and sorts the operands: `[vdata,] vaddr, srsrc, soffset`.
pub(super) fn bind<M: Memory>(inst: &Inst, args: &mut Args) -> Option<MemoryFn<M>> {
    if matches!(inst.op, Opcode::buffer_gl0_inv | Opcode::buffer_gl1_inv) {
        return Some(|_, _, _| Ok(())); // memory here has no caches that lag
    }
    let mut all: Vec<Src> = operands(inst).collect();
    args.src[EXTRA] = all.pop()?;
    args.src[BASE] = all.pop()?;
    args.src[ADDR] = all.pop()?;
    args.src[DATA] = all.pop().unwrap_or(Src::None);
    if let Src::Vgpr(data) = args.src[DATA] {
        args.dst = data;
    }
    let (_, verb) = inst.op.name().split_once('_')?;
    let (verb, kind) = verb.split_once('_')?;
    if let Some(kind) = kind.strip_prefix("format_") {
        return typed_handler::<M>(inst.form == Form::Mtbuf, verb == "load", kind);
    }
    match verb {
        "load" => load_handler::<M, Buffer>(kind, inst.mem.lds),
        "store" => store_handler::<M, Buffer>(kind),
        "atomic" => atomic_handler::<M, Buffer>(inst, args, inst.mem.glc),
        _ => None,
    }
}

/// A buffer's description (RDNA ISA 8.1.8, "buffer resource descriptor").
struct Descriptor {
    base: u64,
    stride: u32,
    swizzled: bool,
    records: u32,
    /// What each component of a typed access comes from.
    select: [u32; 4],
    format: u8,
    /// Records that lie side by side in a swizzled buffer.
    index_stride: u32,
    add_lane: bool,
    /// Which range check: 0 structured, 1 structured by index, 2 none unless empty, 3 raw.
    check: u32,
}

impl Descriptor {
    fn new(wave: &Wave, src: Src) -> Self {
        let first = if let Src::Sgpr(code) = src { usize::from(code) } else { 0 };
        let word = |i| wave.sgpr[(first + i) & 127];
        let w3 = word(3);
        Self {
            base: u64::from(word(0)) | u64::from(word(1) & 0xffff) << 32,
            stride: word(1) >> 16 & 0x3fff,
            swizzled: word(1) >> 31 == 1,
            records: word(2),
            select: [w3 & 7, w3 >> 3 & 7, w3 >> 6 & 7, w3 >> 9 & 7],
            format: (w3 >> 12 & 0x7f) as u8,
            index_stride: 8 << (w3 >> 21 & 3),
            add_lane: w3 >> 23 & 1 == 1,
            check: w3 >> 28 & 3,
        }
    }

    /// Executor-owned scratch, private to the wave.
    fn is_scratch(&self) -> bool {
        self.base >> 40 == SCRATCH_BASE >> 40
    }
}

/// An instruction's lanes in a buffer: records and offsets, checked and turned into addresses piece by piece.
struct Access {
    buffer: Descriptor,
    index: [u32; 32],
    offset: [u32; 32],
    soffset: u32,
    half: usize,
    exec: u32,
}

impl Access {
    fn new(wave: &Wave, args: &Args) -> Self {
        let buffer = Descriptor::new(wave, args.src[BASE]);
        let mem = &args.mem;
        let mut index = if mem.idxen { *vector(wave, args.src[ADDR], 0) } else { [0; 32] };
        if buffer.add_lane {
            for (l, index) in index.iter_mut().enumerate() {
                *index = index.wrapping_add((32 * wave.half + l) as u32);
            }
        }
        let offset = if mem.offen { *vector(wave, args.src[ADDR], usize::from(mem.idxen)) } else { [0; 32] };
        let offset = offset.map(|o| o.wrapping_add(mem.offset as u32));
        let soffset = scalar(wave, args.src[EXTRA]);
        Self { buffer, index, offset, soffset, half: wave.half, exec: wave.exec() }
    }

    /// Addresses of the byte `at` in each lane's element, and which of the active lanes are in range there.
    #[inline]
    fn place(&self, at: u32) -> ([u64; 32], u32) {
        let b = &self.buffer;
        let (mut addr, mut inside) = ([0; 32], 0);
        for (l, addr) in addr.iter_mut().enumerate() {
            let index = self.index[l];
            let offset = self.offset[l].wrapping_add(at);
            let linear = if b.swizzled {
                let row = (index / b.index_stride).wrapping_mul(b.stride).wrapping_add(offset & !3);
                row.wrapping_mul(b.index_stride)
                    .wrapping_add(index % b.index_stride * 4)
                    .wrapping_add(offset & 3)
            } else {
                index.wrapping_mul(b.stride).wrapping_add(offset)
            };
            let fits = match b.check {
                0 => index < b.records && offset < b.stride,
                1 => index < b.records,
                2 => b.records != 0,
                _ => linear < b.records,
            };
            inside |= u32::from(fits) << l;
            *addr = b.base.wrapping_add(u64::from(self.soffset)).wrapping_add(u64::from(linear));
        }
        (addr, inside & self.exec)
    }

    /// How an access of `bytes` is done: in pieces of so many bytes. A swizzled buffer keeps only dwords together, and
    /// where some dwords are out of range each is on its own.
    fn piece(&self, bytes: usize) -> usize {
        let crosses = |l: usize| self.exec >> l & 1 == 1 && (self.offset[l] & 3) as usize + bytes.min(4) > 4;
        if self.buffer.swizzled && (0..32).any(crosses) {
            1
        } else if bytes > 4 && (self.buffer.swizzled || self.place(0).1 != self.place(bytes as u32 - 4).1) {
            4
        } else {
            bytes
        }
    }

    /// The strict card's opinion of lanes out of range.
    fn range<M>(&self, env: &Env<M>, addr: &[u64; 32], inside: u32, bytes: usize) -> Result<(), Box<Fault>> {
        let outside = self.exec & !inside;
        if !env.strict || env.robust || outside == 0 {
            return Ok(());
        }
        let l = outside.trailing_zeros() as usize;
        let finding = Finding::BufferOutOfRange { address: addr[l], bytes: bytes as u32 };
        Err(Fault::strict(Some((32 * self.half + l) as u32), finding))
    }

    /// Loads pieces of `BYTES`; lanes out of range get zero.
    fn load_piece<M: Memory, const BYTES: usize>(
        &self,
        env: &mut Env<M>,
        at: usize,
        out: &mut Data,
    ) -> Result<(), Box<Fault>> {
        let (addr, inside) = self.place(at as u32);
        self.range(env, &addr, inside, BYTES)?;
        let lanes = Lanes { half: self.half, mask: inside, addr: &addr };
        if inside == 0 {
            *out = [[0; 32]; 4];
        } else if self.buffer.is_scratch() {
            scratch::load_at::<M, BYTES>(env, lanes, out)?;
        } else {
            global::load::<M, BYTES>(env, lanes, out)?;
        }
        if inside != self.exec {
            for row in out.iter_mut() {
                for (l, value) in row.iter_mut().enumerate() {
                    *value = if inside >> l & 1 == 1 { *value } else { 0 };
                }
            }
        }
        Ok(())
    }

    fn load<M: Memory, const BYTES: usize>(
        &self,
        env: &mut Env<M>,
        out: &mut Data,
    ) -> Result<(), Box<Fault>> {
        let piece = self.piece(BYTES);
        if piece == BYTES && !(self.buffer.is_scratch() && BYTES > 4) {
            return self.load_piece::<M, BYTES>(env, 0, out);
        }
        let mut part = [[0; 32]; 4];
        for at in (0..BYTES).step_by(piece.min(4)) {
            if piece == 1 {
                self.load_piece::<M, 1>(env, at, &mut part)?;
            } else {
                self.load_piece::<M, 4>(env, at, &mut part)?;
            }
            for (value, part) in out[at / 4].iter_mut().zip(part[0]) {
                *value = if at % 4 == 0 { part } else { *value | part << (at % 4 * 8) };
            }
        }
        Ok(())
    }

    fn store_piece<M: Memory, const BYTES: usize>(
        &self,
        env: &mut Env<M>,
        at: usize,
        data: &Data,
    ) -> Result<(), Box<Fault>> {
        let (addr, inside) = self.place(at as u32);
        self.range(env, &addr, inside, BYTES)?;
        let lanes = Lanes { half: self.half, mask: inside, addr: &addr };
        if inside == 0 {
            Ok(())
        } else if self.buffer.is_scratch() {
            scratch::store_at::<M, BYTES>(env, lanes, data)
        } else {
            global::store::<M, BYTES>(env, lanes, data)
        }
    }

    fn store<M: Memory, const BYTES: usize>(&self, env: &mut Env<M>, data: &Data) -> Result<(), Box<Fault>> {
        let piece = self.piece(BYTES);
        if piece == BYTES && !(self.buffer.is_scratch() && BYTES > 4) {
            return self.store_piece::<M, BYTES>(env, 0, data);
        }
        for at in (0..BYTES).step_by(piece.min(4)) {
            let mut part = [[0; 32]; 4];
            part[0] = data[at / 4].map(|value| value >> (at % 4 * 8));
            if piece == 1 {
                self.store_piece::<M, 1>(env, at, &part)?;
            } else {
                self.store_piece::<M, 4>(env, at, &part)?;
            }
        }
        Ok(())
    }
}

impl<M: Memory> Segment<M> for Buffer {
    #[inline]
    fn load<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        out: &mut Data,
    ) -> Result<(), Box<Fault>> {
        Access::new(wave, args).load::<M, BYTES>(env, out)
    }

    #[inline]
    fn store<const BYTES: usize>(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        data: &Data,
    ) -> Result<(), Box<Fault>> {
        Access::new(wave, args).store::<M, BYTES>(env, data)
    }

    fn atomic(
        wave: &Wave,
        env: &mut Env<M>,
        args: &Args,
        wide: bool,
        out: &mut Data,
        f: impl Fn(usize, u64) -> u64,
    ) -> Result<(), Box<Fault>> {
        let access = Access::new(wave, args);
        if access.buffer.is_scratch() {
            return Err(Fault::illegal("there are no scratch atomics"));
        }
        let (addr, mut inside) = access.place(0);
        if wide {
            inside &= access.place(4).1;
        }
        access.range(env, &addr, inside, if wide { 8 } else { 4 })?;
        global::atomic(env, Lanes { half: wave.half, mask: inside, addr: &addr }, wide, out, f)
    }
}

/// The handler of a typed access; `kind` is what follows `format_`.
fn typed_handler<M: Memory>(of_instruction: bool, load: bool, kind: &str) -> Option<MemoryFn<M>> {
    let d16 = kind.starts_with("d16");
    let high = kind.starts_with("d16_hi");
    let components = kind.rsplit('_').next()?.len();
    macro_rules! choose {
        ($($n:literal)*) => {
            match (components, of_instruction, load) {
                $(($n, true, true) if !d16 => Some(typed_load::<M, true, Dwords, $n>),
                ($n, false, true) if !d16 => Some(typed_load::<M, false, Dwords, $n>),
                ($n, true, false) if !d16 => Some(typed_store::<M, true, Dwords, $n>),
                ($n, false, false) if !d16 => Some(typed_store::<M, false, Dwords, $n>),
                ($n, true, true) => Some(typed_load::<M, true, B16Low, $n>),
                ($n, false, true) if !high => Some(typed_load::<M, false, B16Low, $n>),
                ($n, true, false) => Some(typed_store::<M, true, B16Low, $n>),
                ($n, false, false) if !high => Some(typed_store::<M, false, B16Low, $n>),
                ($n, false, true) => Some(typed_load::<M, false, B16High, $n>),
                ($n, false, false) => Some(typed_store::<M, false, B16High, $n>),)*
                _ => None,
            }
        };
    }
    choose!(1 2 3 4)
}

/// The format of an access, of the instruction's or the buffer's, and where its components come from.
fn format(args: &Args, access: &Access, of_instruction: bool) -> Result<(Format, [u32; 4]), Box<Fault>> {
    let (number, select) = if of_instruction {
        (args.mem.format, [4, 5, 6, 7])
    } else {
        (access.buffer.format, access.buffer.select)
    };
    let format = Format::new(number);
    format.map(|f| (f, select)).ok_or_else(|| Fault::illegal(format!("buffer format {number} is reserved")))
}

/// Typed loads: `N` components converted, 32 bits each, or 16 bits and two in a register.
fn typed_load<M: Memory, const OF_INSTRUCTION: bool, S: D16, const N: usize>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    let access = Access::new(wave, args);
    let (format, select) = format(args, &access, OF_INSTRUCTION)?;
    let mut raw = [[0; 32]; 4];
    match format.bytes() {
        1 => access.load::<M, 1>(env, &mut raw)?,
        2 => access.load::<M, 2>(env, &mut raw)?,
        4 => access.load::<M, 4>(env, &mut raw)?,
        8 => access.load::<M, 8>(env, &mut raw)?,
        12 => access.load::<M, 12>(env, &mut raw)?,
        _ => access.load::<M, 16>(env, &mut raw)?,
    }
    let inside = access.place(0).1;
    let mut out = [[0; 32]; 4];
    for l in 0..32 {
        let colour = format.decode([raw[0][l], raw[1][l], raw[2][l], raw[3][l]]);
        for (k, row) in out.iter_mut().enumerate().take(N) {
            let value = match select[k] {
                0 => 0,
                1 => format.one(),
                chosen @ 4..=7 if inside >> l & 1 == 1 => colour[chosen as usize - 4],
                _ => 0,
            };
            row[l] = if S::NARROW { format.narrow(value) } else { value };
        }
    }
    S::put(wave, usize::from(args.dst), &out, N);
    Ok(())
}

/// Typed stores: see [`typed_load`].
fn typed_store<M: Memory, const OF_INSTRUCTION: bool, S: D16, const N: usize>(
    wave: &mut Wave,
    env: &mut Env<M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    let access = Access::new(wave, args);
    let (format, select) = format(args, &access, OF_INSTRUCTION)?;
    if format.components() > N {
        return Err(Fault::illegal(format!(
            "a store of {N} components to a format of {}",
            format.components()
        )));
    }
    let data = S::get(wave, args.src[DATA], N);
    let mut raw = [[0; 32]; 4];
    for l in 0..32 {
        let mut colour = [0; 4];
        for k in 0..N {
            let value = if S::NARROW { format.widen(data[k][l]) } else { data[k][l] };
            if let chosen @ 4..=7 = select[k] {
                colour[chosen as usize - 4] = value;
            }
        }
        for (row, dword) in raw.iter_mut().zip(format.encode(colour)) {
            row[l] = dword;
        }
    }
    match format.bytes() {
        1 => access.store::<M, 1>(env, &raw),
        2 => access.store::<M, 2>(env, &raw),
        4 => access.store::<M, 4>(env, &raw),
        8 => access.store::<M, 8>(env, &raw),
        12 => access.store::<M, 12>(env, &raw),
        _ => access.store::<M, 16>(env, &raw),
    }
}

/// How converted components lie in registers.
trait D16: Shape {
    /// 16 bits each.
    const NARROW: bool;

    /// Writes components.
    fn put(wave: &mut Wave, dst: usize, out: &Data, n: usize);

    /// Reads components.
    fn get(wave: &Wave, src: Src, n: usize) -> Data;
}

impl D16 for Dwords {
    const NARROW: bool = false;

    fn put(wave: &mut Wave, dst: usize, out: &Data, n: usize) {
        for (k, row) in out.iter().enumerate().take(n) {
            put::<Dwords>(wave, dst + k, row);
        }
    }

    fn get(wave: &Wave, src: Src, n: usize) -> Data {
        operand::<Dwords>(wave, src, n)
    }
}

impl D16 for B16Low {
    const NARROW: bool = true;

    fn put(wave: &mut Wave, dst: usize, out: &Data, n: usize) {
        for k in (0..n).step_by(2) {
            put::<B16Low>(wave, dst + k / 2, &out[k]);
            if k + 1 < n {
                put::<B16High>(wave, dst + k / 2, &out[k + 1]);
            }
        }
    }

    fn get(wave: &Wave, src: Src, n: usize) -> Data {
        let packed = operand::<Dwords>(wave, src, n.div_ceil(2));
        std::array::from_fn(|k| packed[k / 2].map(|v| v >> (k % 2 * 16) & 0xffff))
    }
}

impl D16 for B16High {
    const NARROW: bool = true;

    fn put(wave: &mut Wave, dst: usize, out: &Data, _n: usize) {
        put::<B16High>(wave, dst, &out[0]);
    }

    fn get(wave: &Wave, src: Src, _n: usize) -> Data {
        operand::<B16High>(wave, src, 1)
    }
}
