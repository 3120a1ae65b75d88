//! The model that memory instructions are held against: lanes one after the other, memory byte by byte.

use crate::common::{Bench, random_wave};
use rand::{Rng, rngs::StdRng};
use wave32_exec::{Solo, Stop};

/// Bytes of memory, and of scratch a lane.
pub const MEMORY: usize = 8192;
pub const SCRATCH: usize = 256;
/// Bytes of LDS.
pub const LDS: usize = 8192;

/// A wave, its LDS and scratch, and one allocation.
#[derive(Clone)]
pub struct Machine {
    pub lanes: usize,
    pub exec: u64,
    pub sgpr: [u32; 128],
    /// By register, then lane.
    pub vgpr: Vec<Vec<u32>>,
    pub mode: u32,
    pub lds: Vec<u8>,
    /// By lane.
    pub scratch: Vec<Vec<u8>>,
    pub base: u64,
    pub memory: Vec<u8>,
}

/// What runs the code: memory and an executor.
pub struct Card {
    pub bench: Bench,
    pub base: u64,
}

impl Card {
    pub fn new() -> Self {
        let mut bench = Bench::new();
        let base = bench.memory.alloc(MEMORY as u64);
        Self { bench, base }
    }

    /// A machine with random everything.
    pub fn machine(&self, rng: &mut StdRng, wave64: bool) -> Machine {
        let mut solo = random_wave(rng, wave64);
        solo.lds.words.truncate(LDS / 4);
        // The executor has shorter ways where all lanes are on.
        if rng.random() {
            (solo.wave.sgpr[126], solo.wave.sgpr[127]) = (u32::MAX, if wave64 { u32::MAX } else { 0 });
        }
        self.bench.memory.store(self.base, &(0..MEMORY).map(|_| rng.random()).collect::<Vec<u8>>());
        self.read(&solo)
    }

    fn read(&self, solo: &Solo) -> Machine {
        let wave = &solo.wave;
        let lanes = if wave.wave64 { 64 } else { 32 };
        let lane = |r: usize, l: usize| wave.vgpr[l / 32 * wave.vgprs + r][l % 32];
        let byte = |l: usize, b: usize| (solo.scratch[b / 4 * lanes + l] >> (b % 4 * 8)) as u8;
        Machine {
            lanes,
            exec: u64::from(wave.sgpr[126]) | if wave.wave64 { u64::from(wave.sgpr[127]) << 32 } else { 0 },
            sgpr: wave.sgpr,
            vgpr: (0..wave.vgprs).map(|r| (0..lanes).map(|l| lane(r, l)).collect()).collect(),
            mode: wave.mode,
            lds: solo.lds.words.iter().flat_map(|w| w.to_le_bytes()).collect(),
            scratch: (0..lanes).map(|l| (0..SCRATCH).map(|b| byte(l, b)).collect()).collect(),
            base: self.base,
            memory: self.bench.memory.load(self.base, MEMORY),
        }
    }

    fn write(&self, machine: &Machine) -> Solo {
        let mut wave = wave32_exec::Wave::new(machine.vgpr.len(), machine.lanes == 64);
        wave.sgpr = machine.sgpr;
        wave.mode = machine.mode;
        for (r, lanes) in machine.vgpr.iter().enumerate() {
            for (l, &value) in lanes.iter().enumerate() {
                wave.vgpr[l / 32 * machine.vgpr.len() + r][l % 32] = value;
            }
        }
        let mut lds = wave32_exec::Lds::new(machine.lds.len() as u32);
        for (word, bytes) in lds.words.iter_mut().zip(machine.lds.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().unwrap());
        }
        let mut scratch = vec![0; SCRATCH / 4 * machine.lanes];
        for (l, bytes) in machine.scratch.iter().enumerate() {
            for (d, bytes) in bytes.chunks_exact(4).enumerate() {
                scratch[d * machine.lanes + l] = u32::from_le_bytes(bytes.try_into().unwrap());
            }
        }
        self.bench.memory.store(self.base, &machine.memory);
        Solo { wave, lds, scratch }
    }

    /// Runs `code` on a machine's state.
    pub fn run(&self, before: &Machine, code: &[u32]) -> Result<Machine, Stop> {
        let mut solo = self.write(before);
        self.bench.run(code, &mut solo)?;
        Ok(self.read(&solo))
    }

    /// Runs `code` and compares everything with what `model` makes of the same state.
    pub fn check(&self, text: &str, before: &Machine, code: &[u32], model: impl FnOnce(&mut Machine)) {
        let mut want = before.clone();
        model(&mut want);
        let got = self.run(before, code).unwrap_or_else(|stop| panic!("{text}: {stop:?}"));
        let place = format!("{text}, {} lanes, EXEC {:#x}", before.lanes, before.exec);
        for (r, (got, want)) in got.vgpr.iter().zip(&want.vgpr).enumerate() {
            for (l, (got, want)) in got.iter().zip(want).enumerate() {
                assert_eq!(got, want, "{place}: v{r} lane {l}: got {got:#x}, want {want:#x}");
            }
        }
        same(&place, "LDS byte", &got.lds, &want.lds);
        same(&place, "memory byte", &got.memory, &want.memory);
        for (l, (got, want)) in got.scratch.iter().zip(&want.scratch).enumerate() {
            same(&format!("{place}, scratch of lane {l}"), "byte", got, want);
        }
        assert_eq!(got.sgpr[..128], want.sgpr[..128], "{place}: scalar registers");
    }
}

fn same(place: &str, what: &str, got: &[u8], want: &[u8]) {
    let first = got.iter().zip(want).position(|(got, want)| got != want);
    assert!(first.is_none(), "{place}: {what} {first:?} differs");
    assert_eq!(got.len(), want.len());
}

impl Machine {
    /// Lanes that are on, in order.
    pub fn active(&self) -> Vec<usize> {
        (0..self.lanes).filter(|l| self.exec >> l & 1 == 1).collect()
    }

    pub fn pair(&self, r: usize, lane: usize) -> u64 {
        u64::from(self.vgpr[r][lane]) | u64::from(self.vgpr[r + 1][lane]) << 32
    }

    /// Puts a 64-bit value into a lane's pair of registers.
    pub fn set_pair(&mut self, r: usize, lane: usize, value: u64) {
        self.vgpr[r][lane] = value as u32;
        self.vgpr[r + 1][lane] = (value >> 32) as u32;
    }
}

/// Where bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// At an address.
    Memory,
    /// At an address in LDS.
    Lds,
    /// At an offset of the lane's.
    Scratch,
}

impl Machine {
    fn byte(&mut self, space: Space, lane: usize, at: u64) -> Option<&mut u8> {
        match space {
            Space::Memory => self.memory.get_mut(at.wrapping_sub(self.base) as usize),
            Space::Lds => self.lds.get_mut(at as usize),
            Space::Scratch => self.scratch[lane].get_mut(at as usize),
        }
    }

    /// Little-endian bytes; 0 where there is nothing.
    pub fn load(&mut self, space: Space, lane: usize, at: u64, bytes: usize) -> u64 {
        (0..bytes)
            .fold(0, |v, i| v | u64::from(self.byte(space, lane, at + i as u64).map_or(0, |b| *b)) << (8 * i))
    }

    pub fn store(&mut self, space: Space, lane: usize, at: u64, bytes: usize, value: u64) {
        for i in 0..bytes {
            if let Some(byte) = self.byte(space, lane, at + i as u64) {
                *byte = (value >> (8 * i)) as u8;
            }
        }
    }
}

/// How lanes' addresses lie to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Each behind the one before.
    Neighbours,
    /// All the same.
    Same,
    /// As tiled kernels have it: eights at one place, or each lane behind the one before; eights may meet.
    Tiled,
    /// Near each other, or far: multiples of the size, none twice.
    Near,
    Far,
    /// Anywhere, not aligned: loads only.
    Anywhere,
}

pub const SPREADS: [Spread; 6] =
    [Spread::Neighbours, Spread::Same, Spread::Tiled, Spread::Near, Spread::Far, Spread::Anywhere];

impl Spread {
    /// An offset below `room` for each of `lanes` lanes, with `bytes` behind it.
    pub fn offsets(self, rng: &mut StdRng, lanes: usize, bytes: usize, room: usize) -> Vec<u64> {
        let size = bytes.next_power_of_two();
        let slots = room / size;
        let shuffled = |rng: &mut StdRng, slots: usize| {
            let mut all: Vec<usize> = (0..slots).collect();
            for i in 0..lanes.min(slots) {
                all.swap(i, rng.random_range(i..slots));
            }
            (0..lanes).map(|l| (all[l % slots] * size) as u64).collect()
        };
        match self {
            Self::Neighbours => {
                let start = rng.random_range(0..=(room - lanes * bytes) / size) * size;
                (0..lanes).map(|l| (start + l * bytes) as u64).collect()
            }
            Self::Same => vec![(rng.random_range(0..slots) * size) as u64; lanes],
            Self::Tiled => {
                let step = [0, bytes][rng.random_range(0..2)];
                let places = [0; 3].map(|_| rng.random_range(0..=(room - 8 * bytes) / size) * size);
                let eights: Vec<usize> =
                    (0..lanes.div_ceil(8)).map(|_| places[rng.random_range(0..3)]).collect();
                (0..lanes).map(|l| (eights[l / 8] + l % 8 * step) as u64).collect()
            }
            Self::Near => shuffled(rng, slots.min(lanes + 3)),
            Self::Far => shuffled(rng, slots),
            Self::Anywhere => (0..lanes).map(|_| rng.random_range(0..=(room - bytes) as u64)).collect(),
        }
    }
}

/// A load: the mnemonic's end, bytes, and the register made from a value and the old one (of whole dwords: the value).
pub type Load = (&'static str, usize, fn(u32, u32) -> u32);

/// Loads as FLAT, GLOBAL, SCRATCH and MUBUF name them.
pub const LOADS: [Load; 14] = [
    ("ubyte", 1, |v, _| v),
    ("sbyte", 1, |v, _| if v < 128 { v } else { v | 0xffff_ff00 }),
    ("ushort", 2, |v, _| v),
    ("sshort", 2, |v, _| if v < 0x8000 { v } else { v | 0xffff_0000 }),
    ("dword", 4, |v, _| v),
    ("dwordx2", 8, |v, _| v),
    ("dwordx3", 12, |v, _| v),
    ("dwordx4", 16, |v, _| v),
    ("ubyte_d16", 1, |v, old| old / 65536 * 65536 + v),
    ("ubyte_d16_hi", 1, |v, old| old % 65536 + v * 65536),
    ("sbyte_d16", 1, |v, old| old / 65536 * 65536 + (v ^ 0x80).wrapping_sub(0x80) % 65536),
    ("sbyte_d16_hi", 1, |v, old| old % 65536 + ((v ^ 0x80).wrapping_sub(0x80) % 65536) * 65536),
    ("short_d16", 2, |v, old| old / 65536 * 65536 + v),
    ("short_d16_hi", 2, |v, old| old % 65536 + v * 65536),
];

/// A store: the mnemonic's end, bytes, and what it takes of a register.
pub type Store = (&'static str, usize, fn(u32) -> u32);

/// See [`LOADS`].
pub const STORES: [Store; 8] = [
    ("byte", 1, |v| v % 256),
    ("short", 2, |v| v % 65536),
    ("dword", 4, |v| v),
    ("dwordx2", 8, |v| v),
    ("dwordx3", 12, |v| v),
    ("dwordx4", 16, |v| v),
    ("byte_d16_hi", 1, |v| v / 65536 % 256),
    ("short_d16_hi", 2, |v| v / 65536),
];

/// What a load leaves in registers from `dst` on.
pub fn model_load(m: &mut Machine, load: Load, dst: usize, place: impl Fn(usize) -> (Space, u64)) {
    let before = m.clone();
    for l in before.active() {
        let (space, at) = place(l);
        for k in 0..load.1.div_ceil(4) {
            let value = m.load(space, l, at + 4 * k as u64, load.1.min(4)) as u32;
            m.vgpr[dst + k][l] = load.2(value, before.vgpr[dst + k][l]);
        }
    }
}

/// What a store from registers from `src` on leaves.
pub fn model_store(m: &mut Machine, store: Store, src: usize, place: impl Fn(usize) -> (Space, u64)) {
    for l in m.active() {
        let (space, at) = place(l);
        for k in 0..store.1.div_ceil(4) {
            let value = store.2(m.vgpr[src + k][l]);
            m.store(space, l, at + 4 * k as u64, store.1.min(4), u64::from(value));
        }
    }
}

/// The new value of (bits, old, operand, second operand).
pub type Change = fn(u32, u64, u64, u64) -> u64;

/// An atomic: the mnemonic's end, and what it does.
pub type Atomic = (&'static str, Change);

fn sext(bits: u32, v: u64) -> i128 {
    if bits == 64 { i128::from(v as i64) } else { i128::from(v as u32 as i32) }
}

fn real(bits: u32, v: u64) -> f64 {
    if bits == 64 { f64::from_bits(v) } else { f32::from_bits(v as u32) as f64 }
}

/// As memory's atomics are named; the second operand is compared with. `_x2` is put behind for 64 bits.
pub const ATOMICS: [Atomic; 16] = [
    ("swap", |_, _, a, _| a),
    ("cmpswap", |_, old, a, b| if old == b { a } else { old }),
    ("add", |n, old, a, _| ((u128::from(old) + u128::from(a)) % (1 << n)) as u64),
    ("sub", |n, old, a, _| ((u128::from(old) + (1 << n) - u128::from(a)) % (1 << n)) as u64),
    ("smin", |n, old, a, _| if sext(n, a) <= sext(n, old) { a } else { old }),
    ("umin", |_, old, a, _| if a <= old { a } else { old }),
    ("smax", |n, old, a, _| if sext(n, a) >= sext(n, old) { a } else { old }),
    ("umax", |_, old, a, _| if a >= old { a } else { old }),
    ("and", |n, old, a, _| (0..n).map(|i| ((old >> i & 1) * (a >> i & 1)) << i).sum()),
    ("or", |n, old, a, _| (0..n).map(|i| ((old >> i & 1) + (a >> i & 1)).min(1) << i).sum()),
    ("xor", |n, old, a, _| (0..n).map(|i| (((old >> i & 1) + (a >> i & 1)) % 2) << i).sum()),
    ("inc", |_, old, a, _| if old >= a { 0 } else { old + 1 }),
    ("dec", |_, old, a, _| if old == 0 || old > a { a } else { old - 1 }),
    ("fcmpswap", |n, old, a, b| if real(n, old) == real(n, b) { a } else { old }),
    ("fmin", |n, old, a, _| if real(n, a) < real(n, old) { a } else { old }),
    ("fmax", |n, old, a, _| if real(n, a) > real(n, old) { a } else { old }),
];

/// Applies an atomic to each lane in turn; `operands` are a lane's; `dst`: where the old value goes, if anywhere.
pub fn model_atomic(
    m: &mut Machine,
    bits: u32,
    f: Change,
    dst: Option<usize>,
    place: impl Fn(usize) -> (Space, u64),
    operands: impl Fn(&Machine, usize) -> (u64, u64),
) {
    let before = m.clone();
    let bytes = bits as usize / 8;
    for l in before.active() {
        let (space, at) = place(l);
        let old = m.load(space, l, at, bytes);
        let (a, b) = operands(&before, l);
        m.store(space, l, at, bytes, f(bits, old, a, b));
        if let Some(dst) = dst {
            m.vgpr[dst][l] = old as u32;
            if bits == 64 {
                m.vgpr[dst + 1][l] = (old >> 32) as u32;
            }
        }
    }
}
