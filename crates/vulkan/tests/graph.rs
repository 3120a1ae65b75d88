//! Graphs: captured work runs at each replay, on memory that is nobody else's, and the validation layer has nothing to say.

mod common;

use common::{FIXTURE, assert_clean, open_queue as open, options};
use std::time::Duration;
use wave32_device::{DeviceError, Queue, conformance};
use wave32_vulkan::{GraphId, Options, VulkanQueue};

const WORDS: u32 = 4096;
const BYTES: u64 = WORDS as u64 * 4;

fn step(queue: &mut VulkanQueue, from: u64, to: u64, mul: u32, add: u32) {
    conformance::step(queue, &FIXTURE, (from, to), WORDS, mul, add).unwrap();
}

fn first_word(queue: &mut VulkanQueue, address: u64) -> u32 {
    let mut word = [0; 4];
    queue.download(address, &mut word).unwrap();
    u32::from_le_bytes(word)
}

/// What the fixture makes of 5 by multiplying and adding, on the queue itself.
fn expected(queue: &mut VulkanQueue, from: u32, steps: &[(u32, u32)]) -> u32 {
    let blocks = [queue.alloc(BYTES).unwrap(), queue.alloc(BYTES).unwrap()];
    queue.fill(blocks[0], BYTES, from).unwrap();
    for (at, &(mul, add)) in steps.iter().enumerate() {
        step(queue, blocks[at % 2], blocks[(at + 1) % 2], mul, add);
    }
    let word = first_word(queue, blocks[steps.len() % 2]);
    blocks.into_iter().for_each(|block| queue.free(block));
    word
}

fn replays(options: Options) {
    let Some(mut queue) = open(options) else { return };
    let input = queue.alloc(BYTES).unwrap();
    queue.fill(input, BYTES, 1).unwrap();
    queue.begin_capture().unwrap();
    assert!(queue.is_capturing());
    let between = queue.alloc(BYTES).unwrap();
    step(&mut queue, input, between, 3, 1);
    let output = queue.alloc(BYTES).unwrap();
    step(&mut queue, between, output, 5, 2);
    queue.free(between);
    // The block that was freed, again: by then it has been read.
    let again = queue.alloc(BYTES).unwrap();
    queue.copy(output, again, BYTES).unwrap();
    queue.fill(output, 4, 99).unwrap();
    queue.upload(output + 4, &[7, 0, 0, 0]).unwrap();
    // More than the first memory for such bytes holds.
    let long = queue.alloc(200 << 10).unwrap();
    queue.upload(long, &[9; 200 << 10]).unwrap();
    let graph = queue.end_capture().unwrap();
    for value in [1, 8, 123] {
        queue.fill(input, BYTES, value).unwrap();
        let wanted = expected(&mut queue, value, &[(3, 1), (5, 2)]);
        queue.fill(again, BYTES, 0).unwrap();
        queue.replay(graph, |_| ()).unwrap();
        assert_eq!(first_word(&mut queue, again), wanted);
        assert_eq!((first_word(&mut queue, output), first_word(&mut queue, output + 4)), (99, 7));
        assert_eq!(first_word(&mut queue, long + (200 << 10) - 4), 0x0909_0909);
    }
    // Freed while the graph is there: no one gets them before it goes.
    for block in [input, output, again, long] {
        queue.free(block);
    }
    let others: Vec<u64> = (0..8).map(|_| queue.alloc(BYTES).unwrap()).collect();
    for &other in &others {
        queue.fill(other, BYTES, 11).unwrap();
    }
    for _ in 0..5 {
        queue.replay(graph, |_| ()).unwrap();
    }
    assert!(others.iter().all(|&other| first_word(&mut queue, other) == 11));
    others.into_iter().for_each(|other| queue.free(other));
    queue.drop_graph(graph).unwrap();
    queue.drop_graph(graph).unwrap();
    assert!(matches!(queue.replay(graph, |_| ()), Err(DeviceError::Misuse(_))));
    queue.empty_cache().unwrap();
    let (stats, counts) = (queue.heap_stats(), queue.counts());
    assert_eq!((stats.allocated, stats.reserved, counts.segments, counts.blocks), (0, 0, 0, 0));
    assert_clean(&queue);
}

#[test]
fn a_graph_runs_at_each_replay() {
    let dir = tempfile::tempdir().unwrap();
    replays(options(dir.path()));
}

#[test]
fn a_graph_of_tiny_submits_runs_at_each_replay() {
    let dir = tempfile::tempdir().unwrap();
    replays(Options { submit_target: Some(Duration::from_micros(1)), ..options(dir.path()) });
}

#[test]
fn what_needs_results_is_refused_during_a_capture() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(options(dir.path())) else { return };
    let block = queue.alloc(BYTES).unwrap();
    queue.fill(block, BYTES, 3).unwrap();
    assert!(queue.end_capture().is_err());
    queue.begin_capture().unwrap();
    queue.fill(block, BYTES, 4).unwrap();
    let refused = [
        queue.download(block, &mut [0; 4]),
        queue.synchronize(),
        queue.stamp().map(drop),
        queue.empty_cache(),
        queue.begin_capture(),
        queue.replay(GraphId(u64::MAX), |_| ()),
        queue.profile(true).map(drop),
    ];
    for answer in refused {
        assert!(matches!(answer, Err(DeviceError::Misuse(_))), "{answer:?}");
    }
    let graph = queue.end_capture().unwrap();
    assert_eq!(first_word(&mut queue, block), 3, "nothing ran");
    queue.replay(graph, |_| ()).unwrap();
    assert_eq!(first_word(&mut queue, block), 4);
    assert_clean(&queue);
}

/// A queue may go with graphs, and in the middle of a capture.
#[test]
fn a_queue_goes_with_its_graphs() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(options(dir.path())) else { return };
    let block = queue.alloc(BYTES).unwrap();
    queue.begin_capture().unwrap();
    queue.fill(block, BYTES, 4).unwrap();
    let graph = queue.end_capture().unwrap();
    queue.replay(graph, |_| ()).unwrap();
    queue.begin_capture().unwrap();
    let of_the_graph = queue.alloc(BYTES).unwrap();
    queue.copy(block, of_the_graph, BYTES).unwrap();
    assert_clean(&queue);
}

/// Memory that runs out during a capture is an error, and the capture may go on or end.
#[test]
fn memory_runs_out_in_a_capture() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(Options { memory_cap: Some(64 << 20), ..options(dir.path()) }) else {
        return;
    };
    let block = queue.alloc(30 << 20).unwrap();
    let cached = queue.alloc(20 << 20).unwrap();
    queue.free(cached);
    queue.begin_capture().unwrap();
    queue.fill(block, 64, 1).unwrap();
    assert!(matches!(queue.alloc(60 << 20), Err(DeviceError::OutOfMemory { .. })));
    // Only fits once what the heap caches has been given back.
    let own = queue.alloc(30 << 20).unwrap();
    queue.fill(own, 64, 2).unwrap();
    let graph = queue.end_capture().unwrap();
    queue.replay(graph, |_| ()).unwrap();
    assert_eq!((first_word(&mut queue, block), first_word(&mut queue, own)), (1, 2));
    assert_clean(&queue);
}

/// Launches whose parameters each replay renews, between others.
#[test]
fn live_launches_get_new_parameters() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(options(dir.path())) else { return };
    let blocks: Vec<u64> = (0..4).map(|_| queue.alloc(BYTES).unwrap()).collect();
    queue.fill(blocks[0], BYTES, 2).unwrap();
    queue.begin_capture().unwrap();
    step(&mut queue, blocks[0], blocks[1], 3, 1);
    queue.capture_live(true);
    step(&mut queue, blocks[1], blocks[2], 5, 0);
    queue.capture_live(false);
    step(&mut queue, blocks[2], blocks[3], 7, 4);
    let graph = queue.end_capture().unwrap();
    for mul in [5, 9, 11] {
        let wanted = expected(&mut queue, 2, &[(3, 1), (mul, 0), (7, 4)]);
        let mut renewed = 0;
        queue
            .replay(graph, |params| {
                renewed += 1;
                let at = params.iter().position(|&word| word == 5).unwrap();
                params[at] = mul;
            })
            .unwrap();
        assert_eq!((first_word(&mut queue, blocks[3]), renewed), (wanted, 1));
    }
    assert_clean(&queue);
}
