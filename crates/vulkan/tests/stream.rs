//! The asynchronous stream: order, cuts, copies, memory, errors.

mod common;

use common::{options, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::{Duration, Instant};
use wave32_device::{Arg, DeviceError, Queue, Work};
use wave32_vulkan::{Options, Stream};

fn open(options: Options) -> Option<Stream> {
    match wave32_vulkan::open_stream(None, options) {
        Ok(stream) => Some(stream),
        Err(DeviceError::Unavailable(why)) if std::env::var_os("WAVE32_REQUIRE_VULKAN").is_none() => {
            eprintln!("skipped: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn assert_clean(stream: &Stream) {
    let messages = stream.validation_messages();
    assert!(messages.is_empty(), "{} validation messages: {messages:#?}", messages.len());
}

fn arg(address: u64, words: usize, writes: bool) -> Arg {
    Arg { address, bytes: 4 * words as u64, writes }
}

/// `to[i] = from[i] * mul + add` for `words` words.
fn step(stream: &mut Stream, from: u64, to: u64, words: usize, mul: u32, add: u32) {
    let groups = (words as u32).div_ceil(64);
    let args = [arg(from, words, false), arg(to, words, true)];
    let work = Work { flops: 0, bytes: 8 * words as u64 };
    Queue::launch(stream, "step", [groups, 1, 1], &[0, words as u32, mul, add], &args, work).unwrap();
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Random launches, fills, copies and transfers on a few blocks against the same on the host.
fn random_program(mut stream: Stream, seed: u64, steps: usize) {
    const WORDS: usize = 5000;
    let mut random = StdRng::seed_from_u64(seed);
    let mut model: Vec<Vec<u32>> = (0..6).map(|_| (0..WORDS).map(|_| random.random()).collect()).collect();
    let mut blocks: Vec<u64> = model.iter().map(|_| stream.alloc(4 * WORDS as u64).unwrap()).collect();
    for (block, content) in blocks.iter().zip(&model) {
        stream.upload(*block, &bytes(content)).unwrap();
    }
    for number in 0..steps {
        let (from, to) = (random.random_range(0..6), random.random_range(0..6));
        let length = random.random_range(1..=WORDS - 128);
        let at = 128 * random.random_range(0..=(WORDS - length) / 128);
        let (start, end) = (at, at + length);
        let (a, b) = (blocks[from] + 4 * at as u64, blocks[to] + 4 * at as u64);
        match random.random_range(0..10) {
            0..5 => {
                let (mul, add) = (random.random(), random.random());
                step(&mut stream, a, b, length, mul, add);
                let made: Vec<u32> =
                    model[from][start..end].iter().map(|v| v.wrapping_mul(mul).wrapping_add(add)).collect();
                model[to][start..end].copy_from_slice(&made);
            }
            5 => {
                let word = random.random();
                stream.fill(b, 4 * length as u64, word).unwrap();
                model[to][start..end].fill(word);
            }
            6 if from != to => {
                stream.copy(a, b, 4 * length as u64).unwrap();
                let source = model[from][start..end].to_vec();
                model[to][start..end].copy_from_slice(&source);
            }
            7 => {
                let content: Vec<u32> = (0..length).map(|_| random.random()).collect();
                stream.upload(b, &bytes(&content)).unwrap();
                model[to][start..end].copy_from_slice(&content);
            }
            8 => {
                let mut found = vec![0xdb; 4 * length];
                stream.download(a, &mut found).unwrap();
                assert!(words(&found) == model[from][start..end], "step {number}, seed {seed}");
            }
            _ => {
                // Given back and taken again while work on it is in flight.
                stream.free(blocks[to]);
                blocks[to] = stream.alloc(4 * WORDS as u64).unwrap();
                stream.fill(blocks[to], 4 * WORDS as u64, 7).unwrap();
                model[to].fill(7);
            }
        }
    }
    for (block, content) in blocks.iter().zip(&model) {
        let mut found = vec![0xdb; 4 * WORDS];
        stream.download(*block, &mut found).unwrap();
        assert!(&words(&found) == content, "at the end, seed {seed}");
        stream.free(*block);
    }
    assert_eq!(stream.heap_stats().allocated, 0);
    stream.empty_cache().unwrap();
    assert_eq!(stream.heap_stats().reserved, 0);
    assert_clean(&stream);
}

#[test]
fn work_runs_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let Some(stream) = open(options(dir.path())) else { return };
    random_program(stream, seed(), 1500);
}

#[test]
fn work_runs_in_order_in_tiny_submits() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = Options { submit_target: Some(Duration::from_micros(1)), ..options(dir.path()) };
    let Some(stream) = open(tiny) else { return };
    random_program(stream, seed(), 300);
}

#[test]
fn large_transfers_go_round_the_rings() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut stream) = open(options(dir.path())) else { return };
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let mut data = vec![0u8; (90 << 20) + 13];
    random.fill(&mut data[..]);
    let block = stream.alloc(data.len() as u64).unwrap();
    stream.upload(block, &data).unwrap();
    let mut found = vec![0; data.len()];
    stream.download(block, &mut found).unwrap();
    assert!(found == data, "seed {seed}");
    for _ in 0..300 {
        let length = random.random_range(0..200_000);
        let at = random.random_range(0..data.len() - length);
        random.fill(&mut data[at..at + length]);
        stream.upload(block + at as u64, &data[at..at + length]).unwrap();
    }
    stream.download(block, &mut found).unwrap();
    assert!(found == data, "seed {seed}");
    assert_clean(&stream);
}

#[test]
fn memory_runs_out_with_an_error_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut stream) = open(Options { memory_cap: Some(64 << 20), ..options(dir.path()) }) else {
        return;
    };
    let first = stream.alloc(30 << 20).unwrap();
    stream.free(first);
    // Only fits once the cached segment has been given back.
    let second = stream.alloc(50 << 20).unwrap();
    match stream.alloc(30 << 20) {
        Err(DeviceError::OutOfMemory { requested, in_use }) => {
            assert_eq!((requested, in_use), (30 << 20, 50 << 20));
        }
        other => panic!("{other:?}"),
    }
    let small = stream.alloc(1000).unwrap();
    stream.fill(small, 1000, 1).unwrap();
    stream.free(second);
    stream.free(small);
    stream.alloc(60 << 20).unwrap();
    assert!(matches!(stream.alloc(u64::MAX), Err(DeviceError::OutOfMemory { .. })));
}

#[test]
fn wrong_use_is_an_error_and_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut stream) = open(options(dir.path())) else { return };
    let block = stream.alloc(1024).unwrap();
    let kernel = stream.kernel("step").unwrap();
    let args = [arg(block, 64, false), arg(block, 64, true)];
    let work = Work::default();
    for (grid, params, args) in [
        ([1, 1, 1], &[0, 64, 1][..], &args[..]),
        ([1, 1, 1], &[1, 64, 1, 1], &args),
        ([1, 1, 1], &[0, 64, 1, 1], &args[..1]),
        ([0, 1, 1], &[0, 64, 1, 1], &args),
        ([1, 1, 1], &[0, 64, 1, 1], &[arg(block, 64, false), arg(12, 64, true)]),
        ([1, 1, 1], &[0, 64, 1, 1], &[arg(block, 64, false), arg(block + 2, 64, true)]),
        ([1, 1, 1], &[0, 64, 1, 1], &[arg(block, 64, false), arg(block, 1 << 29, true)]),
    ] {
        let result = stream.launch(kernel, grid, params, args, work);
        assert!(matches!(result, Err(DeviceError::Misuse(_) | DeviceError::Unsupported(_))), "{result:?}");
    }
    assert!(stream.upload(block + (1 << 40), &[1]).is_err());
    assert!(stream.copy(block, block + 4, 8).is_err(), "overlaps");
    assert!(stream.fill(block + 1, 4, 0).is_err());
    assert!(matches!(stream.kernel("nonesuch"), Err(DeviceError::Unsupported(_))));
    stream.fill(block, 1024, 9).unwrap();
    let mut found = [0; 4];
    stream.download(block, &mut found).unwrap();
    assert_eq!(found, [9, 0, 0, 0]);
    assert_clean(&stream);
}

#[test]
fn a_deadline_that_passes_gives_the_device_up() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut stream) = open(options(dir.path())) else { return };
    let block = stream.alloc(256).unwrap();
    // See the conformance test of the deadline: about a second.
    let (groups, rounds) = if stream.info().kind == "cpu" {
        (120 * stream.caps().compute_units, 60_000)
    } else {
        (1, 50_000_000)
    };
    let args = [arg(block, 64, true)];
    Queue::launch(&mut stream, "spin", [groups, 1, 1], &[0, 64, rounds], &args, Work::default()).unwrap();
    stream.set_deadline(Duration::from_millis(50));
    let start = Instant::now();
    let result = stream.synchronize();
    assert!(matches!(result, Err(DeviceError::Timeout { .. })), "{result:?}");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(matches!(stream.download(block, &mut [0; 4]), Err(DeviceError::Lost(_))));
}

#[test]
fn a_lost_device_refuses_everything_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for submits in [0, 2] {
        let Some(mut stream) = open(options(dir.path())) else { return };
        let block = stream.alloc(1 << 20).unwrap();
        stream.lose_after(submits);
        let start = Instant::now();
        let mut launch = || {
            stream.fill(block, 1 << 20, 3)?;
            stream.download(block, &mut [0; 4])
        };
        let first = (0..=submits).find_map(|_| launch().err());
        assert!(matches!(first, Some(DeviceError::Lost(_))), "{first:?}");
        assert!(matches!(stream.fill(block, 4, 0), Err(DeviceError::Lost(_))));
        assert!(matches!(stream.upload(block, &[0; 4]), Err(DeviceError::Lost(_))));
        assert!(matches!(stream.synchronize(), Err(DeviceError::Lost(_))));
        assert!(matches!(stream.empty_cache(), Err(DeviceError::Lost(_))));
        assert!(matches!(stream.alloc(1 << 30), Err(DeviceError::Lost(_))), "a new segment");
        stream.free(block);
        assert_clean(&stream);
        drop(stream);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}

#[test]
fn steady_work_makes_nothing_that_stays() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut stream) = open(options(dir.path())) else { return };
    let iteration = |stream: &mut Stream, size: u64| {
        let blocks: Vec<u64> = (1..40).map(|n| stream.alloc(n * size).unwrap()).collect();
        for &block in &blocks {
            stream.upload(block, &[7; 64]).unwrap();
            step(stream, block, block, 16, 3, 1);
        }
        blocks.into_iter().for_each(|block| stream.free(block));
        stream.submits()
    };
    // No call here waits for the device but those that run out of command buffers.
    let mut counts = Vec::new();
    for round in 0..120 {
        iteration(&mut stream, 4096);
        counts.push(stream.counts());
        assert!(counts[round].uploads <= 8, "{:?}", counts[round]);
    }
    let (early, late) = (counts[40], counts[119]);
    assert_eq!(
        (early.segments, early.blocks, early.command_buffers, early.kernels),
        (late.segments, late.blocks, late.command_buffers, late.kernels)
    );
    assert_eq!(late.timed, 0);
    stream.synchronize().unwrap();
    assert_eq!(stream.heap_stats().allocated, 0);
    assert_clean(&stream);
}

#[test]
fn launches_are_timed_while_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut stream) = open(options(dir.path())) else { return };
    let block = stream.alloc(4 << 20).unwrap();
    step(&mut stream, block, block, 100, 1, 1);
    assert!(stream.profile(true).unwrap().is_empty());
    for _ in 0..600 {
        step(&mut stream, block, block, 1 << 18, 3, 1);
    }
    let timed = stream.profile(false).unwrap();
    assert!(timed.len() >= 600, "{} (a wide launch may be cut)", timed.len());
    assert!(timed.iter().all(|launch| launch.kernel == "step" && launch.length > Duration::ZERO));
    assert!(timed.is_sorted_by_key(|launch| launch.start));
    step(&mut stream, block, block, 100, 1, 1);
    assert!(stream.profile(false).unwrap().is_empty());
}
