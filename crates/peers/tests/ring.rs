//! Rings between threads that stand for ranks, and between processes.
#![cfg(target_os = "linux")]

use rand::{Rng, RngCore, SeedableRng, rngs::StdRng};
use std::time::{Duration, Instant};
use wave32_peers::{Error, PIECE, Ring, Start};

const SOON: Duration = Duration::from_secs(20);

fn rings(ranks: usize) -> Vec<Ring> {
    let starts: Vec<Start> = (0..ranks).map(|_| Start::new().unwrap()).collect();
    let addresses: Vec<String> = starts.iter().map(Start::address).collect();
    starts.iter().enumerate().map(|(rank, start)| start.join(rank, &addresses).unwrap()).collect()
}

/// The piece of that number that a rank sends, made from the seed: sender and receiver compute the same bytes.
fn piece(seed: u64, rank: usize, number: usize) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed ^ ((rank as u64) << 40) ^ number as u64);
    let length = match random.random_range(0..4) {
        0 => PIECE,
        _ => random.random_range(0..100_000),
    };
    let mut bytes = vec![0; length];
    random.fill_bytes(&mut bytes);
    bytes
}

#[test]
fn every_rank_gets_every_piece() {
    let seed: u64 = rand::random();
    for ranks in [1, 2, 3, 5] {
        let rings = rings(ranks);
        // More than a ring holds.
        let pieces = 100;
        std::thread::scope(|scope| {
            for ring in &rings {
                scope.spawn(move || {
                    (0..pieces).for_each(|n| ring.publish(&piece(seed, ring.rank(), n), SOON).unwrap());
                });
                scope.spawn(move || {
                    for number in 0..pieces {
                        for from in (0..ranks).filter(|&from| from != ring.rank()) {
                            let wanted = piece(seed, from, number);
                            if (number + from) % 5 == 0 {
                                ring.skip(from, wanted.len(), SOON).unwrap();
                                continue;
                            }
                            let mut found = vec![0xaa; wanted.len()];
                            ring.take(from, &mut found, SOON).unwrap();
                            assert!(found == wanted, "seed {seed}: piece {number} of rank {from}");
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn what_does_not_come_is_told() {
    let rings = rings(2);
    let short = Duration::from_millis(50);
    let start = Instant::now();
    let error = rings[0].take(1, &mut [0; 4], short).unwrap_err();
    assert!(matches!(error, Error::Timeout { rank: 1, .. }), "{error}");
    assert!(start.elapsed() < SOON);
    rings[0].reach(3);
    rings[1].all_reach(3, SOON).unwrap();
    let error = rings[1].all_reach(4, short).unwrap_err();
    assert!(matches!(error, Error::Timeout { rank: 0, .. }), "{error}");
    rings[1].publish(&[1, 2, 3], SOON).unwrap();
    let error = rings[0].take(1, &mut [0; 4], SOON).unwrap_err();
    assert!(matches!(error, Error::Length { found: 3, expected: 4, .. }), "{error}");
    // Nobody takes: after a whole ring there is no place.
    let full = (0..100).find_map(|_| rings[0].publish(&[0; 8], short).err()).unwrap();
    assert!(matches!(full, Error::Timeout { rank: 1, .. }), "{full}");
    // The other is told of the piece that did not fit, also where it failed for another reason since.
    rings[0].fail();
    let error = rings[1].all_reach(4, SOON).unwrap_err();
    assert!(matches!(error, Error::Differs { rank: 0 }), "{error}");
    rings[1].fail();
    let mut found = [0; 3];
    rings[0].take(1, &mut found, SOON).unwrap();
    assert_eq!(found, [1, 2, 3], "what came before the failure counts");
    let error = rings[0].take(1, &mut [0; 4], SOON).unwrap_err();
    assert!(matches!(error, Error::Failed { rank: 1 }), "{error}");
}

#[test]
fn wrong_addresses_are_refused() {
    let start = Start::new().unwrap();
    let good = start.address();
    let parts: Vec<&str> = good.split(':').collect();
    let with = |at: usize, text: &str| {
        let mut parts = parts.clone();
        parts[at] = text;
        parts.join(":")
    };
    let other = std::fs::File::open("/dev/null").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&other).to_string();
    for wrong in [
        String::new(),
        "1:2".into(),
        "a:b:c:d".into(),
        with(1, "1"),
        with(2, "99999"),
        with(2, &fd),
        with(3, "1"),
        with(0, "4194305"),
    ] {
        let answer = start.join(0, &[good.clone(), wrong.clone()]);
        assert!(matches!(answer, Err(Error::NotHere { rank: 1, .. })), "{wrong}: {answer:?}");
    }
    assert!(matches!(start.join(0, &vec![good; 65]), Err(Error::NotHere { .. })));
}
