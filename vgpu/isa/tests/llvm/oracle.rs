//! LLVM's disassembler as the oracle.

use std::io::Write;
use std::process::{Command, Stdio};

/// Whether `llvm-mc-19` is there; without it tests say so and end, unless compilers are required.
pub fn present() -> bool {
    let found = Command::new("llvm-mc-19").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        assert!(
            std::env::var_os("WAVE32_REQUIRE_COMPILERS").is_none(),
            "llvm-mc-19 is required and not there"
        );
        eprintln!("skipped: no llvm-mc-19 here");
    }
    found
}

/// Whether `WAVE32_SWEEP` asks for all rather than a sample, for minutes rather than seconds.
pub fn sweep() -> bool {
    std::env::var_os("WAVE32_SWEEP").is_some()
}

/// What LLVM makes of each encoding: nothing if it begins no instruction; several texts in one if it is longer than the
/// first. Operands that LLVM prints with the remark that they are invalid, zeros (`v_illegal`), and what LLVM's printer
/// crashes on count as refused.
pub fn disassemble(encodings: &[Vec<u8>], cpu: &str, wave64: bool) -> Vec<Option<String>> {
    match try_disassemble(encodings, cpu, wave64) {
        Some(texts) => texts,
        None if encodings.len() == 1 => {
            eprintln!("llvm-mc-19 crashed on {:02x?}", encodings[0]);
            vec![None]
        }
        None => {
            let (first, rest) = encodings.split_at(encodings.len() / 2);
            [disassemble(first, cpu, wave64), disassemble(rest, cpu, wave64)].concat()
        }
    }
}

/// None if LLVM crashed.
fn try_disassemble(encodings: &[Vec<u8>], cpu: &str, wave64: bool) -> Option<Vec<Option<String>>> {
    // Before each, a marker with its number: `s_mov_b32 ttmp15, LITERAL`. Brackets keep LLVM from resynchronising.
    let mut input = String::new();
    let bytes = |input: &mut String, bytes: &[u8]| {
        let list: Vec<String> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
        *input += &format!("[{}]\n", list.join(","));
    };
    for (i, encoding) in encodings.iter().enumerate() {
        let marker = [0xbefb_03ff_u32.to_le_bytes(), (0x5000_0000 + i as u32).to_le_bytes()].concat();
        bytes(&mut input, &marker);
        bytes(&mut input, encoding);
    }
    let features =
        if wave64 { "-wavefrontsize32,+wavefrontsize64" } else { "+wavefrontsize32,-wavefrontsize64" };
    let mut child = Command::new("llvm-mc-19")
        .args(["--disassemble", "--triple=amdgcn", &format!("--mcpu={cpu}"), &format!("-mattr={features}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("llvm-mc-19 starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("llvm-mc-19 ends");
    let written = writer.join().expect("no panic");
    output.status.code()?;
    written.expect("llvm-mc-19 reads its input");

    let mut found: Vec<Vec<String>> = vec![Vec::new(); encodings.len()];
    let mut at = 0;
    for line in String::from_utf8_lossy(&output.stdout).lines().map(str::trim) {
        if let Some(number) = line.strip_prefix("s_mov_b32 ttmp15, 0x5") {
            at = usize::from_str_radix(number, 16).expect("a number");
        } else if !line.is_empty() && !line.starts_with('.') {
            found[at].push(line.to_owned());
        }
    }
    let refused = |text: &String| text.contains("/*") || text == "v_illegal";
    let joined =
        |texts: Vec<String>| if texts.first().is_none_or(refused) { None } else { Some(texts.join("; ")) };
    Some(found.into_iter().map(joined).collect())
}
