//! SCC, VCC, EXEC and M0 that scalar instructions use without saying so, held against LLVM's own description: its parser of
//! machine code refuses an instruction that lacks one of its implicit operands.

use std::io::Write;
use std::process::{Command, Stdio};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wave32_isa::{Access, Form, Opcode, Operand, Target, decode};

use crate::oracle;

/// LLVM 19 has no SCC here; the manual has ("SCC = 1 if result is non-zero").
const MANUAL_SAYS_SCC: [Opcode; 2] = [Opcode::s_quadmask_b32, Opcode::s_quadmask_b64];
/// LLVM has them read EXEC, which keeps its scheduler from moving them.
const LLVM_SAYS_EXEC: [Opcode; 2] = [Opcode::s_sendmsg, Opcode::s_sendmsghalt];

#[test]
fn implicit_operands_are_as_llvm_says() {
    if !oracle::present() {
        return;
    }
    let scalar =
        |op: &Opcode| matches!(op.row().form, Form::Sop1 | Form::Sop2 | Form::Sopc | Form::Sopk | Form::Sopp);
    let seed = std::env::var("WAVE32_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(rand::random);
    println!("WAVE32_TEST_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    // A process each: a sample, unless the whole sweep is asked for.
    let share = if oracle::sweep() { 1.0 } else { 0.15 };
    let mut all = Vec::new();
    for op in Opcode::ALL.iter().copied().filter(scalar) {
        let mut ours = implicit(op);
        if MANUAL_SAYS_SCC.contains(&op) {
            assert_eq!(ours, ["implicit-def $scc"]);
            ours.clear();
        }
        if LLVM_SAYS_EXEC.contains(&op) {
            ours.push("implicit $exec".to_owned());
        }
        // None too many: without any one of them LLVM misses it.
        for (i, operand) in ours.iter().enumerate() {
            if !rng.random_bool(share) {
                continue;
            }
            let rest = ours
                .iter()
                .enumerate()
                .filter(|&(j, _)| j != i)
                .map(|(_, operand)| operand.clone())
                .collect();
            let error = parse(&[(op, rest)]).expect_err("an operand is missing");
            let missing = format!("missing implicit register operand '{operand}'");
            assert!(error.contains(&missing), "{}: LLVM does not have {operand}: {error}", op.name());
        }
        all.push((op, ours));
    }
    // None too few.
    parse(&all).unwrap_or_else(|error| panic!("{error}"));
    println!("{} scalar operations use SCC, VCC, EXEC and M0 as LLVM says", all.len());
}

/// Our implicit operands in LLVM's words.
fn implicit(op: Opcode) -> Vec<String> {
    let row = op.row();
    let code = u32::from(row.code);
    let word = match row.form {
        Form::Sop1 => 0xbe80_0000 | code << 8,
        Form::Sop2 => 0x8000_0000 | code << 23,
        Form::Sopc => 0xbf00_0000 | code << 16,
        Form::Sopk => 0xb000_0000 | code << 23,
        _ => 0xbf80_0000 | code << 16,
    };
    let inst = decode(&[word, 0], Target::Gfx1010, false).unwrap_or_else(|error| panic!("{error}"));
    let (reads, writes) = op.scc();
    let mut used = vec![("$scc", reads, writes)];
    for arg in inst.args().iter().filter(|arg| !arg.printed) {
        let name = match arg.operand {
            Operand::VCC => "$vcc",
            Operand::EXEC => "$exec",
            Operand::M0 => "$m0",
            other => panic!("{}: {other:?}", op.name()),
        };
        used.push((name, arg.access != Access::W, arg.access != Access::R));
    }
    let read = used.iter().filter(|(_, reads, _)| *reads).map(|(name, ..)| format!("implicit {name}"));
    let written = used.iter().filter(|(.., writes)| *writes).map(|(name, ..)| format!("implicit-def {name}"));
    read.chain(written).collect()
}

/// Has LLVM parse the operations with just these of the four registers.
fn parse(operations: &[(Opcode, Vec<String>)]) -> Result<(), String> {
    let mut text = String::from("---\nname: f\nbody: |\n  bb.0:\n");
    for (op, operands) in operations {
        // MODE is none of the four.
        let mode = ["implicit $mode".to_owned(), "implicit-def $mode".to_owned()];
        let operands: Vec<_> = operands.iter().chain(&mode).cloned().collect();
        text += &format!("    {} {}\n", op.name().to_uppercase(), operands.join(", "));
    }
    text += "...\n";
    let mut llc = Command::new("llc-19")
        .args(["-mtriple=amdgcn", "-mcpu=gfx1010", "-mattr=+wavefrontsize32,-wavefrontsize64", "-x", "mir"])
        .args(["-run-pass=none", "-o", "/dev/null", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("llc-19: {error}"))?;
    llc.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("llc-19 reads");
    let output = llc.wait_with_output().expect("llc-19 ends");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    // Explicit operands are left out, which LLVM's parser lets pass; what looks at the function after it may crash.
    if errors.contains("error:") { Err(errors) } else { Ok(()) }
}
