//! Random encodings of every operation: decode and print agree with LLVM, and what LLVM refuses is refused.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wave32_isa::{DecodeError, Form, Inst, Opcode, Swizzle, Target, decode};

use crate::oracle;

/// Encodings of each operation in each of its formats, for each card and wave size; of each format with a random number of
/// operation. Ten times as many in a sweep.
const EACH: usize = 50;
/// See `EACH`.
const WILD: usize = 1000;

#[test]
fn random_encodings_are_as_llvm_says() {
    if !oracle::present() {
        return;
    }
    let seed = std::env::var("WAVE32_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random);
    println!("WAVE32_TEST_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut wrong = Vec::new();
    let mut met = BTreeMap::new();
    let (mut accepted, mut refused, mut lax) = (0, 0, 0);
    let cards = [
        (Target::Gfx1012, "gfx1012", false),
        (Target::Gfx1011, "gfx1011", true),
        (Target::Gfx1010, "gfx1010", false),
    ];
    for (target, cpu, wave64) in cards {
        let words = encodings(&mut rng, target, wave64);
        let ours: Vec<_> = words.iter().map(|words| decode(words, target, wave64)).collect();
        let bytes = |(words, inst): (&[u32; 3], &Result<Inst, _>)| {
            let size = inst.as_ref().map_or(12, |inst| usize::from(inst.len));
            words.iter().flat_map(|word| word.to_le_bytes()).take(size).collect()
        };
        let theirs =
            oracle::disassemble(&words.iter().zip(&ours).map(bytes).collect::<Vec<_>>(), cpu, wave64);
        for ((words, ours), theirs) in words.iter().zip(ours).zip(theirs) {
            match (&ours, &theirs) {
                (Ok(inst), Some(theirs)) if inst.text() == *theirs => {
                    accepted += 1;
                    *met.entry((inst.op, inst.form as u8, extension(inst))).or_insert(0) += 1;
                }
                (Err(_), None) => refused += 1,
                (Ok(inst), None) if has_idle_source(words, inst) => lax += 1,
                (Ok(inst), None) if reaches_vcc(inst) => lax += 1,
                (Ok(inst), Some(theirs)) if without_halves(inst) == *theirs => lax += 1,
                (Err(error), Some(theirs)) if known_laxness(error, theirs) => lax += 1,
                _ => {
                    let theirs = theirs.as_deref().unwrap_or("refused");
                    let ours = ours.map_or_else(|error| format!("refused: {error}"), |inst| inst.text());
                    wrong.push(format!("{cpu} {words:08x?}\n     LLVM {theirs}\n     ours {ours}"));
                }
            }
        }
    }
    let forms = met.len();
    println!("{accepted} random encodings agree with LLVM: {forms} operations by format, DPP and SDWA");
    println!("{refused} are refused by both, {lax} by one alone (known laxness)");
    assert!(
        wrong.is_empty(),
        "{} wrong, WAVE32_TEST_SEED={seed}\n{}",
        wrong.len(),
        wrong[..wrong.len().min(30)].join("\n")
    );
    let missed: Vec<_> = places().filter(|&(op, form)| !met.contains_key(&(op, form as u8, ""))).collect();
    assert!(missed.is_empty(), "no encoding accepted, WAVE32_TEST_SEED={seed}: {missed:?}");
}

fn extension(inst: &Inst) -> &'static str {
    match inst.swizzle {
        Swizzle::None => "",
        Swizzle::Dpp16 { .. } => "DPP16",
        Swizzle::Dpp8 { .. } => "DPP8",
        Swizzle::Sdwa { .. } => "SDWA",
    }
}

/// What LLVM's disassembler accepts though no gfx10.1 has it.
fn known_laxness(error: &DecodeError, theirs: &str) -> bool {
    match *error {
        // The interpolation of graphics, in VOP3.
        DecodeError::Graphics(_) => theirs.starts_with("v_interp"),
        // Registers that cannot be written, cannot hold lane masks, or are no VGPRs (`src_shared_base`, `src_scc`,
        // `null`), as such operands of vector instructions.
        DecodeError::Field { op, field: "SDST" | "VDST" | "SRC0" | "SRC1" | "SRC2", value } => {
            op.is_valu() && matches!(value, 125 | 235..=239 | 251..=253) && theirs.contains(", ")
        }
        // A literal as a buffer's offset: the formats have no room for one.
        DecodeError::Field { field: "SOFFSET", value: 255, .. } => true,
        // Halves of operations that have none.
        DecodeError::Field { field: "OP_SEL", .. } => !theirs.contains("op_sel"),
        // Neither address (0x7f), of a load from scratch into LDS: for RDNA2 and later.
        DecodeError::Field { op, field: "SADDR", value: 127 } => op.row().form == Form::Scratch,
        _ => false,
    }
}

/// Whether VCC is the end of a group of scalar registers, as Mesa's compiler takes it; LLVM's assembler has no such groups.
fn reaches_vcc(inst: &Inst) -> bool {
    inst.text().contains(":107]")
}

/// Whether a source that the operation has not is the constant 0, as Mesa's compiler writes it: hardware does not look
/// there, LLVM's disassembler wants 0.
fn has_idle_source(words: &[u32; 3], inst: &Inst) -> bool {
    let vop3 = words[0] >> 26 == 0x35 || words[0] >> 23 == 0x198;
    vop3 && (inst.op.row().src.len()..3).any(|i| words[1] >> (9 * i) & 0x1ff == 128)
}

/// Operations of which LLVM 19 does not know that they choose halves; Mesa's compiler does, and LLVM 22.
const HALVES: [Opcode; 8] = [
    Opcode::v_mul_lo_u16,
    Opcode::v_lshrrev_b16,
    Opcode::v_ashrrev_i16,
    Opcode::v_lshlrev_b16,
    Opcode::v_max_u16,
    Opcode::v_max_i16,
    Opcode::v_min_u16,
    Opcode::v_min_i16,
];

/// The text as LLVM 19 has it.
fn without_halves(inst: &Inst) -> String {
    let mut text = inst.text();
    let end = text.find(" op_sel:").filter(|_| HALVES.contains(&inst.op));
    text.truncate(end.unwrap_or(text.len()));
    text
}

/// A format: the bits that say so, and where the operation's number stands.
struct Place {
    form: Form,
    mask: u32,
    bits: u32,
    shift: u32,
    codes: u32,
}

const FORMATS: [Place; 17] = [
    Place { form: Form::Sop1, mask: 0xff80_0000, bits: 0xbe80_0000, shift: 8, codes: 0xff },
    Place { form: Form::Sopc, mask: 0xff80_0000, bits: 0xbf00_0000, shift: 16, codes: 0x7f },
    Place { form: Form::Sopp, mask: 0xff80_0000, bits: 0xbf80_0000, shift: 16, codes: 0x7f },
    Place { form: Form::Sopk, mask: 0xf000_0000, bits: 0xb000_0000, shift: 23, codes: 0x1f },
    Place { form: Form::Sop2, mask: 0xc000_0000, bits: 0x8000_0000, shift: 23, codes: 0x7f },
    Place { form: Form::Smem, mask: 0xfc00_0000, bits: 0xf400_0000, shift: 18, codes: 0xff },
    Place { form: Form::Vop1, mask: 0xfe00_0000, bits: 0x7e00_0000, shift: 9, codes: 0xff },
    Place { form: Form::Vopc, mask: 0xfe00_0000, bits: 0x7c00_0000, shift: 17, codes: 0xff },
    Place { form: Form::Vop2, mask: 0x8000_0000, bits: 0, shift: 25, codes: 0x3f },
    Place { form: Form::Vop3, mask: 0xfc00_0000, bits: 0xd400_0000, shift: 16, codes: 0x3ff },
    Place { form: Form::Vop3p, mask: 0xff80_0000, bits: 0xcc00_0000, shift: 16, codes: 0x7f },
    Place { form: Form::Ds, mask: 0xfc00_0000, bits: 0xd800_0000, shift: 18, codes: 0xff },
    Place { form: Form::Flat, mask: 0xfc00_c000, bits: 0xdc00_0000, shift: 18, codes: 0x7f },
    Place { form: Form::Scratch, mask: 0xfc00_c000, bits: 0xdc00_4000, shift: 18, codes: 0x7f },
    Place { form: Form::Global, mask: 0xfc00_c000, bits: 0xdc00_8000, shift: 18, codes: 0x7f },
    Place { form: Form::Mubuf, mask: 0xfc00_0000, bits: 0xe000_0000, shift: 18, codes: 0xff },
    // The fourth bit stands in the second dword.
    Place { form: Form::Mtbuf, mask: 0xfc00_0000, bits: 0xe800_0000, shift: 16, codes: 7 },
];

/// Every operation in every format it comes in.
fn places() -> impl Iterator<Item = (Opcode, Form)> {
    let short_only = |op: &Opcode| {
        let name = op.name();
        let constant = ["v_mad", "v_fma"].iter().any(|start| name.starts_with(start));
        constant
            || ["v_readfirstlane", "v_swap", "v_pk_fmac", "v_dot"].iter().any(|start| name.starts_with(start))
    };
    let promoted = move |op: &Opcode| match op.row().form {
        Form::Vopc => true,
        Form::Vop1 => !short_only(op),
        Form::Vop2 => !short_only(op) || op.name().starts_with("v_fmac"),
        _ => false,
    };
    let own = Opcode::ALL.iter().map(|&op| (op, op.row().form));
    own.chain(Opcode::ALL.iter().copied().filter(promoted).map(|op| (op, Form::Vop3)))
}

fn encodings(rng: &mut StdRng, target: Target, wave64: bool) -> Vec<[u32; 3]> {
    let factor = if oracle::sweep() { 10 } else { 1 };
    let mut all = Vec::new();
    for (op, form) in places() {
        let base = match (op.row().form, form) {
            (Form::Vop1, Form::Vop3) => 0x180,
            (Form::Vop2, Form::Vop3) => 0x100,
            _ => 0,
        };
        let code = u32::from(op.row().code) + base;
        all.extend((0..EACH * factor).map(|_| random(rng, form, code)));
        // At least one that we take for right and LLVM must too, so that each operation is met.
        let right = (0..10_000)
            .map(|_| random(rng, form, code))
            .find(|words| decode(words, target, wave64).is_ok_and(|inst| !has_idle_source(words, &inst)));
        all.extend(right);
    }
    for place in &FORMATS {
        for _ in 0..WILD * factor {
            let code = rng.random_range(0..=place.codes);
            all.push(random(rng, place.form, code));
        }
    }
    all
}

/// Words of the format; fields that many operations do not have, or that few values are good for, are often tame.
fn random(rng: &mut StdRng, form: Form, code: u32) -> [u32; 3] {
    let mut words: [u32; 3] = rng.random();
    let zeros = [0.0, 0.3, 0.9][rng.random_range(0..3)];
    for word in &mut words {
        for byte in 0..4 {
            if rng.random_bool(zeros) {
                *word &= !(0xff << (8 * byte));
            }
        }
    }
    if rng.random_bool(0.3) {
        // A literal that is an inline constant too, or nearly.
        words[if form == Form::Vop3 { 2 } else { 1 }] =
            [rng.random_range(0..80), 0x3f80_0000, 0x3c00][rng.random_range(0..3)];
    }
    let place = FORMATS.iter().find(|place| place.form == form).expect("all formats are there");
    words[0] = words[0] & !place.mask | place.bits;
    words[0] = words[0] & !(place.codes << place.shift) | (code & place.codes) << place.shift;
    match form {
        Form::Mtbuf => words[1] = words[1] & !(1 << 21) | (code >> 3 & 1) << 21,
        Form::Vop3 | Form::Vop3p if rng.random_bool(0.8) => {
            // Few modifiers, often two sources only.
            let few = rng.random::<u32>() & rng.random::<u32>() & rng.random::<u32>();
            let few = if rng.random_bool(0.5) { few } else { 0 };
            words[0] &= 0xffff_00ff | few;
            words[1] &= 0x07ff_ffff | few;
            if rng.random_bool(0.5) {
                words[1] &= 0xf803_ffff;
            }
        }
        // SADDR, SOFFSET: off.
        Form::Flat | Form::Global | Form::Scratch if rng.random_bool(0.5) => {
            words[1] = words[1] & !(0xff << 16) | 0x7d << 16;
        }
        Form::Smem if rng.random_bool(0.5) => words[1] = words[1] & !(0x7f << 25) | 0x7d << 25,
        Form::Vop1 | Form::Vop2 | Form::Vopc if rng.random_bool(0.4) => {
            // DPP8, SDWA, DPP16 and literals.
            words[0] = words[0] & !0x1ff | [233, 234, 249, 249, 249, 250, 250, 255][rng.random_range(0..8)];
            if rng.random_bool(0.5) {
                words[1] = words[1] & 0xf0f8_e0ff | 0x0600_0600;
            }
        }
        _ => {}
    }
    if matches!(form, Form::Mubuf | Form::Mtbuf | Form::Flat | Form::Global | Form::Scratch)
        && rng.random_bool(0.7)
    {
        // DLC, LDS and TFE are often not allowed.
        words[0] &= match form {
            Form::Mubuf => !(1 << 16 | 1 << 15),
            Form::Mtbuf => !(1 << 15),
            _ => !(1 << 12 | 1 << 13),
        };
        words[1] &= !(1 << 23);
    }
    if matches!(form, Form::Vop1 | Form::Vop2 | Form::Vopc) && words[0] & 0x1ff == 249 {
        // LLVM 19's printer crashes on SDWA selections that do not exist; VOPC has an SGPR in the first's place.
        let shifts: &[u32] = if form == Form::Vopc { &[16, 24] } else { &[8, 16, 24] };
        for shift in shifts {
            if words[1] >> shift & 7 == 7 {
                words[1] &= !(1 << shift);
            }
        }
        if form != Form::Vopc && words[1] >> 11 & 3 == 3 {
            words[1] &= !(1 << 11);
        }
    }
    words
}
