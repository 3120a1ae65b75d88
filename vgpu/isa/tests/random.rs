//! Random encodings: decode and print agree with LLVM's disassembler, and what LLVM refuses is refused.

mod llvm;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wave32_isa::{DecodeError, Form, Op, Target, decode};

/// How many encodings of each format, wave size and target.
const COUNT: usize = 4000;

#[test]
fn random_encodings_are_as_llvm_says() {
    if !llvm::present() {
        return;
    }
    let seed: u64 =
        std::env::var("WAVE32_SEED").ok().map_or_else(rand::random, |seed| seed.parse().expect("a number"));
    let only = std::env::var("ONLY").ok();
    let count: usize = std::env::var("COUNT").ok().map_or(COUNT, |n| n.parse().unwrap());
    let shown: usize = std::env::var("SHOWN").ok().map_or(40, |n| n.parse().unwrap());
    let mut rng = StdRng::seed_from_u64(seed);
    let mut wrong = Vec::new();
    let (mut accepted, mut all) = (0, 0);
    for form in FORMS {
        if only.as_ref().is_some_and(|only| !format!("{form:?}").eq_ignore_ascii_case(only)) {
            continue;
        }
        for (target, cpu, wave64) in [
            (Target::Gfx1010, "gfx1010", false),
            (Target::Gfx1010, "gfx1010", true),
            (Target::Gfx1012, "gfx1012", false),
        ] {
            let words: Vec<[u32; 3]> = (0..count).map(|_| random(&mut rng, form)).collect();
            let ours: Vec<_> = words.iter().map(|words| decode(words, target, wave64)).collect();
            let encodings: Vec<Vec<u8>> = words
                .iter()
                .zip(&ours)
                .map(|(words, inst)| {
                    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                    bytes[..inst.as_ref().map_or(12, |inst| usize::from(inst.len))].to_vec()
                })
                .collect();
            let theirs = llvm::disassemble(&encodings, cpu, wave64);
            for ((words, ours), theirs) in words.iter().zip(&ours).zip(theirs) {
                all += 1;
                if let (Err(error), Some(theirs)) = (ours, &theirs)
                    && known_laxness(error, theirs)
                {
                    continue;
                }
                let ours = ours.as_ref().map(|inst| inst.text());
                accepted += usize::from(ours.is_ok());
                if ours.as_ref().ok() != theirs.as_ref() {
                    let theirs = theirs.as_deref().unwrap_or("refused");
                    let ours = ours.unwrap_or_else(|error| format!("refused: {error}"));
                    wrong.push(format!("{cpu} {:08x?}\n     LLVM {theirs}\n     ours {ours}", words));
                }
            }
        }
    }
    println!("{accepted} of {all} encodings were instructions, seed {seed}");
    assert!(
        wrong.is_empty(),
        "{} wrong, WAVE32_SEED={seed}\n{}",
        wrong.len(),
        wrong[..wrong.len().min(shown)].join("\n")
    );
}

/// What LLVM's disassembler accepts though no gfx10.1 has it.
fn known_laxness(error: &DecodeError, theirs: &str) -> bool {
    match *error {
        // The interpolation of graphics, in VOP3.
        DecodeError::Graphics(_) => true,
        // Registers that cannot be written, cannot hold lane masks, or are no VGPRs (`src_shared_base`, `src_scc`,
        // `null`), as such operands of vector instructions.
        DecodeError::Field { op, field: "SDST" | "VDST" | "SRC0" | "SRC1" | "SRC2", value } => {
            op.is_valu() && matches!(value, 125 | 235..=239 | 251..=253) && theirs.contains(", ")
        }
        // A literal as a buffer's offset: the formats have no room for one.
        DecodeError::Field { field: "SOFFSET", value: 255, .. } => true,
        // Neither address (0x7f), of a load from scratch into LDS: for RDNA2 and later.
        DecodeError::Field { op, field: "SADDR", value: 127 } => op.row().form == Form::Scratch,
        _ => false,
    }
}

const FORMS: [Form; 17] = [
    Form::Sop1,
    Form::Sop2,
    Form::Sopk,
    Form::Sopc,
    Form::Sopp,
    Form::Smem,
    Form::Vop1,
    Form::Vop2,
    Form::Vopc,
    Form::Vop3,
    Form::Vop3p,
    Form::Ds,
    Form::Flat,
    Form::Global,
    Form::Scratch,
    Form::Mubuf,
    Form::Mtbuf,
];

/// Words of the format: mostly an operation of the table, fields zero more often than chance has it.
fn random(rng: &mut StdRng, form: Form) -> [u32; 3] {
    let mut words: [u32; 3] = rng.random();
    for word in &mut words {
        for byte in 0..4 {
            if rng.random_bool(0.3) {
                *word &= !(0xff << (8 * byte));
            }
        }
    }
    if rng.random_bool(0.3) {
        words[2] = rng.random_range(0..80);
    }
    let (mask, bits, shift, code_mask) = match form {
        Form::Sop1 => (0xff80_0000, 0xbe80_0000, 8, 0xff),
        Form::Sopc => (0xff80_0000, 0xbf00_0000, 16, 0x7f),
        Form::Sopp => (0xff80_0000, 0xbf80_0000, 16, 0x7f),
        Form::Sopk => (0xf000_0000, 0xb000_0000, 23, 0x1f),
        Form::Sop2 => (0xc000_0000, 0x8000_0000, 23, 0x7f),
        Form::Smem => (0xfc00_0000, 0xf400_0000, 18, 0xff),
        Form::Vop1 => (0xfe00_0000, 0x7e00_0000, 9, 0xff),
        Form::Vopc => (0xfe00_0000, 0x7c00_0000, 17, 0xff),
        Form::Vop2 => (0x8000_0000, 0, 25, 0x3f),
        Form::Vop3 => (0xfc00_0000, 0xd400_0000, 16, 0x3ff),
        Form::Vop3p => (0xff80_0000, 0xcc00_0000, 16, 0x7f),
        Form::Ds => (0xfc00_0000, 0xd800_0000, 18, 0xff),
        Form::Flat => (0xfc00_c000, 0xdc00_0000, 18, 0x7f),
        Form::Scratch => (0xfc00_c000, 0xdc00_4000, 18, 0x7f),
        Form::Global => (0xfc00_c000, 0xdc00_8000, 18, 0x7f),
        Form::Mubuf => (0xfc00_0000, 0xe000_0000, 18, 0xff),
        Form::Mtbuf => (0xfc00_0000, 0xe800_0000, 16, 7),
    };
    words[0] = words[0] & !mask | bits;
    if rng.random_bool(0.95) {
        // VOP3 has the short forms' operations too.
        let fits = |op: &Op| match (op.row().form, form) {
            (Form::Vop1 | Form::Vop2 | Form::Vopc, Form::Vop3) => true,
            (row, form) => row == form,
        };
        let known: Vec<Op> = Op::ALL.iter().copied().filter(fits).collect();
        let row = known[rng.random_range(0..known.len())].row();
        let base = match (row.form, form) {
            (Form::Vop1, Form::Vop3) => 0x180,
            (Form::Vop2, Form::Vop3) => 0x100,
            _ => 0,
        };
        let code = u32::from(row.code) + base;
        words[0] = words[0] & !(code_mask << shift) | (code & code_mask) << shift;
        if form == Form::Mtbuf {
            words[1] = words[1] & !(1 << 21) | (code >> 3) << 21;
        }
    }
    if matches!(form, Form::Vop3 | Form::Vop3p) && rng.random_bool(0.8) {
        // Modifiers are often not allowed.
        let few = if rng.random_bool(0.5) {
            rng.random::<u32>() & rng.random::<u32>() & rng.random::<u32>()
        } else {
            0
        };
        words[0] &= 0xffff_00ff | few;
        words[1] &= 0x07ff_ffff | few;
        if rng.random_bool(0.5) {
            words[1] &= 0xf803_ffff; // no third source
        }
    }
    match form {
        Form::Flat | Form::Global | Form::Scratch if rng.random_bool(0.5) => {
            words[1] = words[1] & !(0x7f << 16) | 0x7d << 16;
        }
        Form::Smem if rng.random_bool(0.5) => words[1] = words[1] & !(0x7f << 25) | 0x7d << 25,
        Form::Vop1 | Form::Vop2 | Form::Vopc if rng.random_bool(0.4) => {
            // DPP8, SDWA, DPP16 and literals.
            words[0] = words[0] & !0x1ff | [233, 234, 249, 249, 249, 250, 250, 255][rng.random_range(0..8)];
            if rng.random_bool(0.5) {
                words[1] = words[1] & 0xf0f8_e0ff | 0x0600_0600;
            }
        }
        Form::Mubuf | Form::Mtbuf | Form::Flat | Form::Global | Form::Scratch if rng.random_bool(0.7) => {
            // DLC, LDS, TFE and bit 55 are often not allowed.
            words[0] &= match form {
                Form::Mubuf => !(1 << 16 | 1 << 15),
                Form::Mtbuf => !(1 << 15),
                _ => !(1 << 12 | 1 << 13),
            };
            words[1] &= !(1 << 23);
        }
        _ => {}
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
