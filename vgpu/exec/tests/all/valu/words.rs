//! Random encodings of an operation, in each of its forms.

use rand::Rng;
use rand::rngs::StdRng;
use wave32_isa::{Form, Opcode};

/// How an operation may be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    Short,
    Long,
    Sdwa,
    Dpp16,
    Dpp8,
}

pub const ENCODINGS: [Encoding; 5] =
    [Encoding::Short, Encoding::Long, Encoding::Sdwa, Encoding::Dpp16, Encoding::Dpp8];

/// VGPRs that a wave has, and the SGPRs used.
pub const VGPRS: u32 = 24;
const SGPRS: u32 = 10;

/// A VGPR with room for four.
fn vgpr(rng: &mut StdRng) -> u32 {
    rng.random_range(0..VGPRS - 4)
}

fn sgpr(rng: &mut StdRng) -> u32 {
    match rng.random_range(0..10) {
        0 => 106,
        1 => 126,
        2 => 125,
        _ => rng.random_range(0..SGPRS),
    }
}

/// A nine-bit source.
fn source(rng: &mut StdRng) -> u32 {
    match rng.random_range(0..10) {
        0..6 => 256 + vgpr(rng),
        6 | 7 => sgpr(rng),
        8 => *[rng.random_range(128..=208), rng.random_range(240..=248)].get(rng.random_range(0..2)).unwrap(),
        _ => 255,
    }
}

/// Mostly nothing.
fn rare(rng: &mut StdRng, bits: u32) -> u32 {
    if rng.random_bool(0.5) { 0 } else { rng.random_range(0..1 << bits) }
}

/// Words that may be an encoding of `op`; the decoder says.
pub fn words(op: Opcode, encoding: Encoding, rng: &mut StdRng) -> Vec<u32> {
    let row = op.row();
    let code = u32::from(row.code);
    let literal = literal(rng);
    let src0 = match encoding {
        Encoding::Short | Encoding::Long => source(rng),
        Encoding::Sdwa => 249,
        Encoding::Dpp16 => 250,
        Encoding::Dpp8 => 233 + rng.random_range(0..2),
    };
    let second = match encoding {
        Encoding::Sdwa => {
            let scalar = rng.random_bool(0.2);
            let src = if scalar { sgpr(rng) | 1 << 23 } else { vgpr(rng) };
            let sel = |rng: &mut StdRng| if rng.random_bool(0.3) { 6 } else { rng.random_range(0..7u32) };
            let dst = if row.form == Form::Vopc {
                if rng.random_bool(0.5) { 0 } else { 0x80 | rng.random_range(0..SGPRS & !1) }
            } else {
                sel(rng) | rng.random_range(0..3) << 3 | rare(rng, 3) << 5
            };
            let a = sel(rng) | rng.random_range(0..8) << 3;
            let b = sel(rng) | rng.random_range(0..8) << 3;
            src | dst << 8 | a << 16 | b << 24
        }
        Encoding::Dpp16 => {
            let n = rng.random_range(1..16);
            let ctrl = match rng.random_range(0..8) {
                0 => rng.random_range(0..256),
                1 => 0x100 + n,
                2 => 0x110 + n,
                3 => 0x120 + n,
                4 => 0x140,
                5 => 0x141,
                6 => 0x150 + n,
                _ => 0x160 + n,
            };
            let masks = if rng.random_bool(0.5) { 0xff } else { rng.random_range(0..256) };
            vgpr(rng) | ctrl << 8 | rng.random_range(0..4) << 18 | rare(rng, 4) << 20 | masks << 24
        }
        Encoding::Dpp8 => vgpr(rng) | rng.random_range(0..1 << 24) << 8,
        _ => literal,
    };
    let short = |word: u32| vec![word | src0, second, literal];
    let (dst, src1) = (vgpr(rng), vgpr(rng));
    match (row.form, encoding) {
        (Form::Vop2, e) if e != Encoding::Long => short(code << 25 | dst << 17 | src1 << 9),
        (Form::Vop1, e) if e != Encoding::Long => {
            let dst = if op.name().contains("readfirstlane") { dst.min(SGPRS) } else { dst };
            short(0x3f << 25 | dst << 17 | code << 9)
        }
        (Form::Vopc, e) if e != Encoding::Long => short(0x3e << 25 | code << 17 | src1 << 9),
        (Form::Vop3p, Encoding::Short) => {
            let hi = if rng.random_bool(0.5) { 7 } else { rng.random_range(0..8) };
            let first = 0x33 << 26
                | code << 16
                | rare(rng, 1) << 15
                | (hi >> 2) << 14
                | rare(rng, 3) << 11
                | rare(rng, 3) << 8
                | dst;
            let sources = (0..row.src.len()).fold(0, |word, i| word | source(rng) << (9 * i));
            vec![first, rare(rng, 3) << 29 | (hi & 3) << 27 | sources, literal]
        }
        (form @ (Form::Vop1 | Form::Vop2 | Form::Vopc), Encoding::Long)
        | (form @ Form::Vop3, Encoding::Short) => {
            let base = match form {
                Form::Vop1 => 0x180,
                Form::Vop2 => 0x100,
                _ => 0,
            };
            let carries = row.dst.len() == 2;
            let lane_out = op.name().contains("readlane");
            let dst = if form == Form::Vopc || lane_out { rng.random_range(0..SGPRS) & !1 } else { dst };
            let modifiers = if carries {
                (rng.random_range(0..SGPRS) & !1) << 8
            } else {
                rare(rng, 4) << 11 | rare(rng, 3) << 8
            };
            let first = 0x35 << 26 | (base + code) << 16 | rare(rng, 1) << 15 | modifiers | dst;
            let src = row.src.len();
            let sources = (0..3).fold(0, |word, i| {
                // A mask is a pair of SGPRs.
                let is_mask = row.src.get(i) == Some(&wave32_isa::Slot::Value(wave32_isa::Ty::Mask, 1));
                let code = match () {
                    () if i >= src => 0,
                    () if is_mask => *[106, 0, 2, 4, 6].get(rng.random_range(0..5)).unwrap(),
                    () => source(rng),
                };
                word | code << (9 * i)
            });
            vec![first, rare(rng, 3) << 29 | rare(rng, 2) << 27 | sources, literal]
        }
        _ => vec![],
    }
}

fn literal(rng: &mut StdRng) -> u32 {
    match rng.random_range(0..4) {
        0 => rng.random_range(0..64),
        1 => rng.random_range(-4.0f32..4.0).to_bits(),
        _ => rng.random(),
    }
}
