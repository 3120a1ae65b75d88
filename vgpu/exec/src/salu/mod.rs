//! Scalar ALU (RDNA ISA chapter 5 and 12.1 to 12.4), but branches: [`crate::control`].

mod exec;
mod sop1;
mod sop2;
mod sopk;

use crate::env::ScalarFn;
use crate::{Args, Src, Wave};
use wave32_isa::{Form, Inst};

/// The handler of a scalar ALU instruction.
pub(crate) fn bind(inst: &Inst) -> Option<(ScalarFn, Args)> {
    let handler = match inst.form {
        Form::Sop1 => sop1::handler(inst.op).or_else(|| exec::handler(inst.op)),
        Form::Sop2 => sop2::handler(inst.op),
        Form::Sopc => sop2::compare(inst.op),
        Form::Sopk => sopk::handler(inst.op, inst.imm),
        Form::Sopp => sopk::mode(inst.op),
        _ => None,
    }?;
    Some((handler, Args::new(inst)))
}

fn source32(wave: &Wave, src: Src) -> u32 {
    match src {
        Src::Sgpr(code) => wave.scalar(code),
        Src::Const(bits, _) => bits,
        Src::Vgpr(_) | Src::None => 0,
    }
}

fn source64(wave: &Wave, src: Src) -> u64 {
    match src {
        Src::Sgpr(code) => wave.scalar64(code),
        Src::Const(low, high) => u64::from(low) | u64::from(high) << 32,
        Src::Vgpr(_) | Src::None => 0,
    }
}

/// First source, 32 bits.
fn a32(wave: &Wave, args: &Args) -> u32 {
    source32(wave, args.src[0])
}

/// Second source, 32 bits.
fn b32(wave: &Wave, args: &Args) -> u32 {
    source32(wave, args.src[1])
}

/// First source, 64 bits.
fn a64(wave: &Wave, args: &Args) -> u64 {
    source64(wave, args.src[0])
}

/// Second source, 64 bits.
fn b64(wave: &Wave, args: &Args) -> u64 {
    source64(wave, args.src[1])
}

fn put32(wave: &mut Wave, args: &Args, value: u32) {
    wave.set_scalar(args.dst, value);
}

fn put64(wave: &mut Wave, args: &Args, value: u64) {
    wave.set_scalar64(args.dst, value);
}

/// Writes and sets SCC to "not zero".
fn put32_scc(wave: &mut Wave, args: &Args, value: u32) {
    put32(wave, args, value);
    wave.scc = value != 0;
}

/// See [`put32_scc`].
fn put64_scc(wave: &mut Wave, args: &Args, value: u64) {
    put64(wave, args, value);
    wave.scc = value != 0;
}
