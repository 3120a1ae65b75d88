//! What a card's driver does when things go wrong, planted on the virtual card: `scripts/kernels_on_vgpu.sh` runs these
//! with a deadline of a second for each shader. Anywhere else they would hang a card, and are skipped.

mod common;

use common::{FIXTURE, open_queue, options};
use std::time::{Duration, Instant};
use wave32_device::{Arg, DeviceError, Queue, Work, conformance};
use wave32_solve::Access;
use wave32_vulkan::{Options, VulkanQueue};

fn on_the_card() -> bool {
    let there = std::env::var_os("WAVE32_VGPU_CARD").is_some();
    if !there {
        eprintln!("skipped: not on the virtual card");
    }
    there
}

fn assert_works(queue: &mut VulkanQueue) {
    let [from, to] = [0; 2].map(|_| queue.alloc(4096).unwrap());
    queue.upload(from, &[1; 4096]).unwrap();
    conformance::step(queue, &FIXTURE, (from, to), 1024, 3, 5).unwrap();
    let mut out = [0; 4];
    queue.download(to, &mut out).unwrap();
    assert_eq!(u32::from_le_bytes(out), 0x0101_0101 * 3 + 5);
    [from, to].into_iter().for_each(|address| queue.free(address));
}

#[test]
fn a_shader_that_does_not_end_loses_its_device_and_no_other() {
    if !on_the_card() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut other = open_queue(options(dir.path())).unwrap();
    let mut queue = open_queue(options(dir.path())).unwrap();
    let block = queue.alloc(256).unwrap();
    let args = [Arg { address: block, bytes: 256, access: Access::Write }];
    let started = Instant::now();
    queue.launch("spin", [1, 1, 1], &[0, 64, u32::MAX], &args, Work::default()).unwrap();
    let synchronized = queue.synchronize();
    // As on a card: its fence is done, and what comes next is told.
    let next = queue.fill(block, 256, 1).and_then(|()| queue.synchronize());
    let told = [&synchronized, &next].map(|result| matches!(result, Err(DeviceError::Lost(_))));
    assert!(told.contains(&true), "{synchronized:?}, then {next:?}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    drop(queue);
    assert_works(&mut other);
    assert_works(&mut open_queue(options(dir.path())).unwrap());
}

#[test]
fn memory_beyond_the_cards_is_refused_and_comes_back() {
    if !on_the_card() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut queue = open_queue(Options { memory_cap: Some(1 << 40), ..options(dir.path()) }).unwrap();
    let mut blocks = Vec::new();
    let refused = loop {
        match queue.alloc(512 << 20) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
        assert!(blocks.len() < 64, "32 GiB on a card of 6");
    };
    assert!(matches!(refused, DeviceError::OutOfMemory { .. }), "{refused:?}");
    assert!(blocks.len() >= 8, "{} blocks", blocks.len());
    blocks.into_iter().for_each(|block| queue.free(block));
    queue.empty_cache().unwrap();
    let block = queue.alloc(2 << 30).unwrap();
    queue.free(block);
    assert_works(&mut queue);
}
