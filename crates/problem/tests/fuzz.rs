//! A bounded fuzz of the line parser: mutated bytes of real lines must never panic, what is accepted must
//! survive a round trip, and what is refused must say so in one line. A failure prints the line.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::panic::catch_unwind;
use std::time::{SystemTime, UNIX_EPOCH};
use wave32_problem::{Problem, parse_line, parse_lines};

const CORPUS: &[&str] = &[
    "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 16 -H 48 -W 48 -k 32 -y 3 -x 3 -p 1 \
     -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1",
    "MIOpenDriver convfp16 -n 64 -c 3 -H 224 -W 224 -k 64 -y 7 -x 7 -p 3 -q 3 -u 2 -v 2 -l 1 -j 1 --in_layout NHWC \
     --fil_layout NHWC --out_layout NHWC -m conv -g 1 -F 6 -t 1",
    "MIOpen(HIP): Command [LogCmdConvolution] MIOpenDriver.exe convbfp16 -n 2 -c 32 -H 8 -W 8 -k 16 -y 3 -x 3 -p 1 \
     -q 1 -u 2 -v 2 -l 1 -j 1 -m trans -g 2 -F 0 -t 1 -Y 1 -X 1",
    "conv --batchsize=1 --in_channels=4 --in_h=8 --in_w=8 --out_channels=4 --fil_h=3 --fil_w=3 --group_count=4 -b 1 \
     --activ relu # note",
    "MIOpenDriver gemm -b 1 -m 64 -k 48 -n 32 -u 0 -v 1 -A 1 -B 0 -t 1",
    "./MIOpenDriver gemmfp16 --batch_count=2 -m 7 -k 5 -n 9 -u 1 -B 0.5 --b_strides 90,1,5 --b_first 3 --added_strides 0,0,1",
    "\u{1b}[32m'./bin/MIOpenDriver' conv -n 1 -c 4 -H 9 -W 9 -k 4 -y 3 -x 3 -z same -S ConvDirect -_ 2\u{1b}[0m",
];

const PIECES: &[&str] = &[
    "9223372036854775807",
    "-9223372036854775808",
    "4611686018427387904",
    "3037000500",
    "-1",
    "0",
    " 0 ",
    "=",
    " -",
    "--",
    "\"",
    "'",
    "#",
    "\u{1b}[",
    "\u{1b}]",
    "MIOpenDriver",
    "[LogCmd",
    " -m trans",
    " -z same",
    " -g ",
    "\u{2013}",
    "\u{0}",
    "\t",
    "NHWC",
    " --activ=relu",
    " -F 8",
    " -u ",
    " -v 1",
    " -A -1e300",
    " -B nan",
    " --a_strides 1,2,3",
    "gemmbfp16",
    " -y ",
    " -x ",
];

fn mutate(rng: &mut SmallRng) -> String {
    let mut bytes = CORPUS.choose(rng).expect("not empty").as_bytes().to_vec();
    for _ in 0..rng.random_range(1..6) {
        let at = rng.random_range(0..=bytes.len());
        let end = rng.random_range(at..=bytes.len().min(at + 12));
        match rng.random_range(0..7) {
            0 if at < bytes.len() => bytes[at] = rng.random(),
            1 => bytes.insert(at, rng.random()),
            2 => drop(bytes.drain(at..end)),
            3 => bytes.truncate(at),
            4 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            5 => {
                let piece = PIECES.choose(rng).expect("not empty").bytes();
                bytes.splice(at..end, piece);
            }
            // A digit for a digit keeps lines legal often enough to reach what lies behind the parser.
            _ => {
                if let Some(digit) = bytes[at..].iter_mut().find(|byte| byte.is_ascii_digit()) {
                    *digit = b'0' + rng.random_range(0..10);
                }
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Problems accepted.
fn check(line: &str) -> usize {
    assert_eq!(parse_lines(line).is_ok(), parse_lines(&format!("{line}\n\n")).is_ok());
    let problems = match parse_line(line) {
        Ok(problems) => problems,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && text.len() < 1000 && !text.contains(char::is_control), "{text:?}");
            return 0;
        }
    };
    assert!((1..=3).contains(&problems.len()));
    for problem in &problems {
        let printed = problem.to_string();
        assert_eq!(printed.parse::<Problem>().as_ref(), Ok(problem), "{printed}");
        assert!(problem.bytes() > 0 && problem.flops() > 0 && problem.reduction_len() > 0);
        if let Some(conv) = problem.conv() {
            assert_eq!(conv.to_plain().flops(), problem.flops());
        }
    }
    problems.len()
}

fn fuzz(seed: u64, rounds: u32) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut accepted, mut refused) = (0u32, 0u32);
    for round in 0..rounds {
        let line = mutate(&mut rng);
        match catch_unwind(|| check(&line)) {
            Ok(0) => refused += 1,
            Ok(_) => accepted += 1,
            Err(_) => panic!("seed {seed}, round {round}: {line:?}"),
        }
    }
    // A fuzz that only ever sees one side of the parser proves little.
    assert!(
        accepted > rounds / 20 && refused > rounds / 20,
        "seed {seed}: {accepted} accepted, {refused} refused"
    );
}

#[test]
fn corpus_itself_is_accepted() {
    for line in CORPUS {
        assert!(check(line) > 0, "{line}: {:?}", parse_line(line));
    }
}

#[test]
fn mutated_lines_with_a_fixed_seed() {
    fuzz(0x5eed, 100_000);
}

#[test]
fn mutated_lines_with_the_times_seed() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    fuzz(now.as_nanos() as u64, 100_000);
}
