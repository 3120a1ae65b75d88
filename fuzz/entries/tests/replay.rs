//! The fuzzers' corpora, and random changes of them, without a fuzzer: what was found once stays found.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::time::{Duration, Instant};
use wave32_fuzz_entries::ENTRIES;

/// A target's files, in the order of their names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

/// A few bytes changed, taken out, doubled, or cut off.
fn change(rng: &mut StdRng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..6) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.random_range(0..bytes.len());
        let end = (at + rng.random_range(1..9)).min(bytes.len());
        match rng.random_range(0..7) {
            0 => bytes[at] = rng.random(),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
            2 => bytes[at] ^= 1 << rng.random_range(0..8),
            3 => drop(bytes.drain(at..end)),
            4 => bytes.splice(at..at, bytes[at..end].to_vec()).for_each(drop),
            5 => bytes[at..end].fill([0, 0xff][rng.random_range(0..2)]),
            _ => bytes.truncate(at),
        }
    }
}

#[test]
fn every_corpus_and_what_is_near_it_comes_back() {
    let seed: u64 = std::env::var("WAVE32_SEED").map_or_else(|_| rand::random(), |s| s.parse().unwrap());
    println!("WAVE32_SEED={seed}");
    for (target, entry) in ENTRIES {
        let files = corpus(target);
        for (name, bytes) in &files {
            assert!(std::panic::catch_unwind(|| entry(bytes)).is_ok(), "{target}: {name}");
        }
        let mut rng = StdRng::seed_from_u64(seed);
        let started = Instant::now();
        for n in 0.. {
            if n >= 100 && started.elapsed() > Duration::from_millis(500) {
                break;
            }
            let (name, mut bytes) = files[rng.random_range(0..files.len())].clone();
            change(&mut rng, &mut bytes);
            let ended = std::panic::catch_unwind(|| entry(&bytes));
            assert!(ended.is_ok(), "{target}, case {n} of seed {seed}, from {name}: {bytes:02x?}");
        }
    }
}
