//! An instruction as LLVM's disassembler writes it.

mod memory;
mod names;
mod operand;

use std::fmt;

use crate::op::{Slot, flag};
use crate::{Form, Inst, Opcode, SdwaSel, Swizzle, Ty};

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op.name())?;
        f.write_str(self.suffix())?;
        match self.form {
            Form::Smem => self.smem(f),
            Form::Ds => self.ds(f),
            Form::Flat | Form::Global | Form::Scratch => self.flat(f),
            Form::Mubuf | Form::Mtbuf => self.buffer(f),
            Form::Sop1 | Form::Sop2 | Form::Sopc | Form::Sopk | Form::Sopp => self.scalar(f),
            _ => self.vector(f),
        }
    }
}

impl Inst {
    /// As LLVM's disassembler writes it.
    pub fn text(&self) -> String {
        self.to_string()
    }

    /// Where a branch with a constant distance goes, from the instruction's own address.
    pub fn branch_target(&self, pc: u64) -> Option<u64> {
        let relative = self.op.row().src.contains(&Slot::Label);
        let distance = 4 * i64::from(self.imm as i16);
        relative.then(|| pc.wrapping_add(4).wrapping_add_signed(distance))
    }

    /// The encoding, where an operation has several.
    fn suffix(&self) -> &'static str {
        let row = self.op.row();
        match (self.swizzle, row.form, self.form) {
            (Swizzle::Sdwa { .. }, ..) => "_sdwa",
            (Swizzle::Dpp16 { .. } | Swizzle::Dpp8 { .. }, ..) => "_dpp",
            _ if self.op.has(flag::NO_VOP3) || row.src.is_empty() => "",
            (_, Form::Vop1 | Form::Vop2 | Form::Vopc, Form::Vop3) => "_e64",
            (_, Form::Vop1 | Form::Vop2 | Form::Vopc, _) => "_e32",
            _ => "",
        }
    }

    fn scalar(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = List::new(f);
        let row = self.op.row();
        let mut args = self.args().iter().filter(|arg| arg.printed);
        for slot in row.dst.iter().chain(row.src) {
            match slot {
                Slot::Value(..) | Slot::Literal => {
                    if let Some(arg) = args.next() {
                        list.item(|f| self.operand(f, arg))?;
                    }
                }
                Slot::EndImm if self.imm == 0 => {}
                slot => list.item(|f| names::simm(f, *slot, self.imm))?,
            }
        }
        Ok(())
    }

    fn vector(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.op.row();
        let mut list = List::new(f);
        // Sources count from the first that is no destination.
        let destinations = row.dst.len();
        for (i, arg) in self.args().iter().filter(|arg| arg.printed).enumerate() {
            list.item(|f| match i.checked_sub(destinations) {
                Some(source) if arg.ty != Ty::Mask => self.source(f, source, arg),
                _ => self.operand(f, arg),
            })?;
        }
        if matches!(self.form, Form::Vop3p) {
            self.packed_modifiers(f)?;
        } else if self.op.has(flag::OPSEL | flag::HALVES) {
            self.op_sel(f)?;
        }
        let mods = self.mods;
        if mods.clamp {
            f.write_str(" clamp")?;
        }
        f.write_str(["", " mul:2", " mul:4", " div:2"][usize::from(mods.omod)])?;
        match self.swizzle {
            Swizzle::None => Ok(()),
            Swizzle::Dpp16 { ctrl, row_mask, bank_mask, bound_ctrl, fetch_inactive } => {
                dpp_ctrl(f, ctrl)?;
                write!(f, " row_mask:{row_mask:#x} bank_mask:{bank_mask:#x}")?;
                f.write_str(if bound_ctrl { " bound_ctrl:1" } else { "" })?;
                f.write_str(if fetch_inactive { " fi:1" } else { "" })
            }
            Swizzle::Dpp8 { select: s, fetch_inactive } => {
                let fi = if fetch_inactive { " fi:1" } else { "" };
                let [a, b, c, d, e, g, h, i] = s;
                write!(f, " dpp8:[{a},{b},{c},{d},{e},{g},{h},{i}]{fi}")
            }
            Swizzle::Sdwa { dst, dst_unused, src, .. } => {
                if self.form != Form::Vopc {
                    let unused = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"][usize::from(dst_unused)];
                    write!(f, " dst_sel:{} dst_unused:{unused}", sel(dst))?;
                }
                write!(f, " src0_sel:{}", sel(src[0]))?;
                if self.form != Form::Vop1 {
                    write!(f, " src1_sel:{}", sel(src[1]))?;
                }
                Ok(())
            }
        }
    }

    /// VOP3: which halves, the destination's last; `v_permlane16` has two bits of its own there.
    fn op_sel(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.mods.op_sel;
        let bit = |i: usize| bits >> i & 1;
        if matches!(self.op, Opcode::v_permlane16_b32 | Opcode::v_permlanex16_b32) {
            return if bits & 3 == 0 { Ok(()) } else { write!(f, " op_sel:[{},{}]", bit(0), bit(1)) };
        }
        let sources = self.op.row().src.len();
        let shown = (0..sources).chain([3]);
        if shown.clone().all(|i| bit(i) == 0) {
            return Ok(());
        }
        bracketed(f, "op_sel", shown.map(|i| bit(i) != 0))
    }

    fn packed_modifiers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.op.row();
        let sources = row.src.len();
        let mods = self.mods;
        let mix = row.src.contains(&Slot::Mix);
        let mut show = |name: &str, bits: u8, default: bool| {
            let mut shown = (0..sources).map(|i| bits >> i & 1 != 0);
            if shown.clone().all(|bit| bit == default) { Ok(()) } else { bracketed(f, name, &mut shown) }
        };
        show("op_sel", mods.op_sel, false)?;
        show("op_sel_hi", mods.op_sel_hi, !mix)?;
        if !mix {
            show("neg_lo", mods.neg, false)?;
            show("neg_hi", mods.abs, false)?;
        }
        Ok(())
    }
}

/// ` name:[1,0,1]`
fn bracketed(f: &mut fmt::Formatter<'_>, name: &str, bits: impl Iterator<Item = bool>) -> fmt::Result {
    let bits: Vec<&str> = bits.map(|bit| if bit { "1" } else { "0" }).collect();
    write!(f, " {name}:[{}]", bits.join(","))
}

fn sel(sel: SdwaSel) -> &'static str {
    match sel {
        SdwaSel::Byte0 => "BYTE_0",
        SdwaSel::Byte1 => "BYTE_1",
        SdwaSel::Byte2 => "BYTE_2",
        SdwaSel::Byte3 => "BYTE_3",
        SdwaSel::Word0 => "WORD_0",
        SdwaSel::Word1 => "WORD_1",
        SdwaSel::Dword => "DWORD",
    }
}

/// RDNA ISA 13.3.9, DPP_CTRL.
fn dpp_ctrl(f: &mut fmt::Formatter<'_>, ctrl: u16) -> fmt::Result {
    let n = ctrl & 15;
    match ctrl {
        0..0x100 => {
            write!(f, " quad_perm:[{},{},{},{}]", ctrl & 3, ctrl >> 2 & 3, ctrl >> 4 & 3, ctrl >> 6 & 3)
        }
        0x100..0x110 => write!(f, " row_shl:{n}"),
        0x110..0x120 => write!(f, " row_shr:{n}"),
        0x120..0x130 => write!(f, " row_ror:{n}"),
        0x140 => f.write_str(" row_mirror"),
        0x141 => f.write_str(" row_half_mirror"),
        0x150..0x160 => write!(f, " row_share:{n}"),
        _ => write!(f, " row_xmask:{n}"),
    }
}

/// Operands, comma between.
struct List<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    first: bool,
}

impl<'a, 'b> List<'a, 'b> {
    fn new(f: &'a mut fmt::Formatter<'b>) -> Self {
        Self { f, first: true }
    }

    fn item(&mut self, write: impl FnOnce(&mut fmt::Formatter<'b>) -> fmt::Result) -> fmt::Result {
        self.f.write_str(if self.first { " " } else { ", " })?;
        self.first = false;
        write(self.f)
    }
}
