//! Models of operations that look beyond their lane, or choose registers at run time.

use wave32_exec::Wave;
use wave32_isa::{Access, Inst};

fn on(wave: &Wave, lane: usize) -> bool {
    wave.sgpr[126 + lane / 32] >> (lane % 32) & 1 != 0
}

fn vgpr(wave: &Wave, r: usize, lane: usize) -> u32 {
    wave.vgpr[lane / 32 * wave.vgprs + r][lane % 32]
}

fn set(wave: &mut Wave, r: usize, lane: usize, value: u32) {
    let vgprs = wave.vgprs;
    wave.vgpr[lane / 32 * vgprs + r][lane % 32] = value;
}

/// Executes the operation; false if it is none of these.
pub fn step(wave: &mut Wave, inst: &Inst, mov: &mut dyn FnMut(&mut Wave, &Inst)) -> bool {
    let before = wave.clone();
    let lanes = if wave.wave64 { 64 } else { 32 };
    let name = inst.op.name();
    // A source by its place in the text, destinations counted.
    let uniform = |i: usize| {
        let arg = &inst.args()[i];
        match (arg.operand.as_sgpr(), arg.operand.0) {
            (Some(r), _) => before.sgpr[r],
            (_, 255) => inst.literal,
            (_, code @ 128..=192) => u32::from(code) - 128,
            (_, code @ 193..=208) => 192u32.wrapping_sub(code.into()),
            (_, code @ 240..=247) => {
                [0.5f32, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0][usize::from(code) - 240].to_bits()
            }
            (_, 248) => 0x3e22_f983,
            (_, code) => panic!("operand {code}"),
        }
    };
    let register = |i: usize| inst.args()[i].operand.as_vgpr();
    let any = |i: usize, lane: usize| register(i).map_or_else(|| uniform(i), |r| vgpr(&before, r, lane));
    let m0 = before.sgpr[124];
    let beyond = |r: usize, by: u32| Some(r + by as usize).filter(|&r| r < before.vgprs);
    match name {
        "v_nop" | "v_clrexcp" | "v_pipeflush" => {}
        "v_readfirstlane_b32" => {
            let first = (0..lanes).find(|&l| on(&before, l)).unwrap_or(0);
            put_scalar(wave, inst, any(1, first));
        }
        "v_readlane_b32" => put_scalar(wave, inst, any(1, uniform(2) as usize % lanes)),
        "v_writelane_b32" => set(wave, register(0).unwrap(), uniform(2) as usize % lanes, uniform(1)),
        "v_permlane16_b32" | "v_permlanex16_b32" => {
            let select = u64::from(uniform(2)) | u64::from(uniform(3)) << 32;
            for lane in (0..lanes).filter(|&l| on(&before, l)) {
                let row = if name.contains('x') { (lane / 16) ^ 1 } else { lane / 16 };
                let from = 16 * row + (select >> (4 * (lane % 16))) as usize % 16;
                let value = match () {
                    () if on(&before, from) || inst.mods.op_sel & 1 != 0 => any(1, from),
                    () if inst.mods.op_sel & 2 != 0 => 0,
                    () => continue,
                };
                set(wave, register(0).unwrap(), lane, value);
            }
        }
        "v_swap_b32" | "v_swaprel_b32" => {
            let (a, b) = (register(0).unwrap(), register(1).unwrap());
            let (a, b) = match name {
                "v_swap_b32" => (Some(a), Some(b)),
                _ => (beyond(a, m0 >> 16 & 0x3ff), beyond(b, m0 & 0x3ff)),
            };
            if let (Some(a), Some(b)) = (a, b) {
                for lane in (0..lanes).filter(|&l| on(&before, l)) {
                    set(wave, a, lane, vgpr(&before, b, lane));
                    set(wave, b, lane, vgpr(&before, a, lane));
                }
            }
        }
        "v_movreld_b32" | "v_movrels_b32" | "v_movrelsd_b32" | "v_movrelsd_2_b32" => {
            let (src, dst) = match name {
                "v_movreld_b32" => (0, m0),
                "v_movrels_b32" => (m0, 0),
                "v_movrelsd_b32" => (m0, m0),
                _ => (m0 & 0x3ff, m0 >> 16 & 0x3ff),
            };
            let mut moved = *inst;
            if let Some(r) = register(1) {
                moved.arg[1].operand = wave32_isa::Operand::vgpr(beyond(r, src).unwrap_or(0) as u8);
            }
            if let Some(r) = beyond(register(0).unwrap(), dst) {
                moved.arg[0].operand = wave32_isa::Operand::vgpr(r as u8);
                // M0 is no operand of a move.
                moved.args = 2;
                mov(wave, &moved);
            }
        }
        _ => return false,
    }
    true
}

fn put_scalar(wave: &mut Wave, inst: &Inst, value: u32) {
    let arg = inst.args()[0];
    assert_ne!(arg.access, Access::R);
    let r = arg.operand.as_sgpr().unwrap();
    if r != 125 {
        wave.sgpr[r] = value;
    }
}
