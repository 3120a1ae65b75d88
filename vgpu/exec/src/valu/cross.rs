//! Operations that look beyond their own lane, or choose registers at run time (RDNA ISA 12.8, 12.11).

use super::int::{msad, v_mov_b32};
use crate::env::VectorFn;
use crate::lanes::{Kind, Kinds, blend, by_lane, general};
use crate::wave::{EXEC, M0};
use crate::{Args, Row, Src, Wave};
use wave32_isa::Opcode;

/// The handler of such an operation; only moves come swizzled.
pub(super) fn bind(op: Opcode) -> Option<VectorFn> {
    Some(match op {
        Opcode::v_nop | Opcode::v_clrexcp | Opcode::v_pipeflush => nothing,
        Opcode::v_readfirstlane_b32 => readfirstlane,
        Opcode::v_readlane_b32 => readlane,
        Opcode::v_writelane_b32 => writelane,
        Opcode::v_permlane16_b32 => permlane::<0>,
        Opcode::v_permlanex16_b32 => permlane::<16>,
        Opcode::v_mbcnt_lo_u32_b32 => mbcnt::<0>,
        Opcode::v_mbcnt_hi_u32_b32 => mbcnt::<1>,
        Opcode::v_swap_b32 => swap,
        Opcode::v_swaprel_b32 => swaprel,
        Opcode::v_movreld_b32 => movrel::<false, true>,
        Opcode::v_movrels_b32 => movrel::<true, false>,
        Opcode::v_movrelsd_b32 => movrel::<true, true>,
        Opcode::v_movrelsd_2_b32 => movrelsd_2,
        Opcode::v_mqsad_u32_u8 => mqsad_u32,
        _ => return None,
    })
}

fn nothing(_: &mut Wave, _: &Args) {}

/// A VGPR of any lane of the wave.
fn lane_of(wave: &Wave, src: Src, lane: usize) -> u32 {
    match src {
        Src::Vgpr(r) => wave.vgpr[lane / 32 * wave.vgprs + usize::from(r)][lane % 32],
        src => wave.uniform(src),
    }
}

fn lane_number(wave: &Wave, src: Src) -> usize {
    wave.uniform(src) as usize & if wave.wave64 { 63 } else { 31 }
}

/// The first lane that is on, else lane 0, of the whole wave: once, for both halves.
fn readfirstlane(wave: &mut Wave, args: &Args) {
    if wave.half == 0 {
        let exec = wave.wide_mask(EXEC);
        let lane = if exec == 0 { 0 } else { exec.trailing_zeros() as usize };
        wave.set_scalar(args.dst, lane_of(wave, args.src[0], lane));
    }
}

/// Of any lane, on or off.
fn readlane(wave: &mut Wave, args: &Args) {
    if wave.half == 0 {
        let lane = lane_number(wave, args.src[1]);
        wave.set_scalar(args.dst, lane_of(wave, args.src[0], lane));
    }
}

/// To any lane, on or off.
fn writelane(wave: &mut Wave, args: &Args) {
    let lane = lane_number(wave, args.src[1]);
    if lane / 32 == wave.half {
        let value = wave.uniform(args.src[0]);
        wave.row_mut(usize::from(args.dst))[lane % 32] = value;
    }
}

/// Any lane of the same 16, or of the other (`OTHER` 16). `op_sel` bit 0 reads lanes that are off; without it bit 1
/// makes zeros of them, and else nothing is written.
fn permlane<const OTHER: usize>(wave: &mut Wave, args: &Args) {
    let exec = wave.exec();
    let select = u64::from(wave.uniform(args.src[1])) | u64::from(wave.uniform(args.src[2])) << 32;
    let source = row_of(wave, args.src[0]);
    let (inactive, bound) = (args.mods.op_sel & 1 != 0, args.mods.op_sel & 2 != 0);
    let mut out = *wave.row(usize::from(args.dst));
    for (lane, x) in out.iter_mut().enumerate() {
        let from = (lane & 16 ^ OTHER) | (select >> (4 * (lane & 15)) & 15) as usize;
        if inactive || exec >> from & 1 != 0 {
            *x = source[from];
        } else if bound {
            *x = 0;
        }
    }
    blend(wave.row_mut(usize::from(args.dst)), &out, exec);
}

fn row_of(wave: &Wave, src: Src) -> Row {
    match src {
        Src::Vgpr(r) => *wave.row(usize::from(r)),
        src => [wave.uniform(src); 32],
    }
}

/// How many of the bits of lanes before this one are set, of the `WORD`-th 32 lanes.
fn mbcnt<const WORD: usize>(wave: &mut Wave, args: &Args) {
    let half = wave.half;
    by_lane(wave, args, Kinds { dst: Kind::B32, src: [Kind::B32, Kind::B32, Kind::None] }, |_, s, lane| {
        let before = match half.cmp(&WORD) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => (1 << lane) - 1,
            std::cmp::Ordering::Greater => u32::MAX,
        };
        u64::from((s[0] as u32 & before).count_ones()) + s[1]
    });
}

fn exchange(wave: &mut Wave, a: usize, b: usize) {
    let exec = wave.exec();
    let (x, y) = (*wave.row(a), *wave.row(b));
    blend(wave.row_mut(a), &y, exec);
    blend(wave.row_mut(b), &x, exec);
}

/// Both operands are written.
fn swap(wave: &mut Wave, args: &Args) {
    exchange(wave, usize::from(args.dst), usize::from(args.sdst));
}

/// A register `by` further on, if the wave has it.
fn beyond(wave: &Wave, register: u16, by: u32) -> Option<usize> {
    let r = usize::from(register).checked_add(by as usize)?;
    (r < wave.vgprs).then_some(r)
}

/// M0's two indices of `v_movrelsd_2` and `v_swaprel`: source, destination.
fn indices(wave: &Wave) -> (u32, u32) {
    (wave.sgpr[M0] & 0x3ff, wave.sgpr[M0] >> 16 & 0x3ff)
}

/// A move whose source, destination or both lie so many registers on. Out of range, a source is VGPR 0 and a destination
/// nothing.
fn relative(wave: &mut Wave, args: &Args, source: u32, destination: u32) {
    let mut moved = *args;
    if let Src::Vgpr(r) = args.src[0] {
        moved.src[0] = Src::Vgpr(beyond(wave, r, source).unwrap_or(0) as u16);
    }
    if let Some(dst) = beyond(wave, args.dst, destination) {
        moved.dst = dst as u16;
        general::<v_mov_b32>(wave, &moved);
    }
}

fn movrel<const SOURCE: bool, const DESTINATION: bool>(wave: &mut Wave, args: &Args) {
    let m0 = wave.sgpr[M0];
    relative(wave, args, if SOURCE { m0 } else { 0 }, if DESTINATION { m0 } else { 0 });
}

fn movrelsd_2(wave: &mut Wave, args: &Args) {
    let (source, destination) = indices(wave);
    relative(wave, args, source, destination);
}

fn swaprel(wave: &mut Wave, args: &Args) {
    let (source, destination) = indices(wave);
    if let (Some(a), Some(b)) = (beyond(wave, args.dst, destination), beyond(wave, args.sdst, source)) {
        exchange(wave, a, b);
    }
}

/// Four masked sums of absolute differences, windows of the first source a byte apart, each onto its own 32 bits.
fn mqsad_u32(wave: &mut Wave, args: &Args) {
    let exec = wave.exec();
    let wide = |r: u16| std::array::from_fn::<_, 4, _>(|i| *wave.row(usize::from(r) + i));
    let a: [Row; 2] = match args.src[0] {
        Src::Vgpr(r) => [*wave.row(usize::from(r)), *wave.row(usize::from(r) + 1)],
        Src::Sgpr(code) => {
            let x = wave.scalar64(code);
            [[x as u32; 32], [(x >> 32) as u32; 32]]
        }
        Src::Const(low, high) => [[low; 32], [high; 32]],
        Src::None => [[0; 32]; 2],
    };
    let b = row_of(wave, args.src[1]);
    let mut sums = match args.src[2] {
        Src::Vgpr(r) => wide(r),
        src => [row_of(wave, src); 4],
    };
    for (i, row) in sums.iter_mut().enumerate() {
        for (lane, sum) in row.iter_mut().enumerate() {
            let window = (u64::from(a[0][lane]) | u64::from(a[1][lane]) << 32) >> (8 * i) & 0xffff_ffff;
            let total = u64::from(*sum) + msad(window as i64, i64::from(b[lane])) as u64;
            *sum = if args.mods.clamp { total.min(u64::from(u32::MAX)) as u32 } else { total as u32 };
        }
    }
    for (i, row) in sums.iter().enumerate() {
        blend(wave.row_mut(usize::from(args.dst) + i), row, exec);
    }
}
