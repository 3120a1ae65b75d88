//! The asynchronous queue: order, cuts, copies, memory, errors.

mod common;

use common::{FIXTURE, assert_clean, open_queue as open, options, seed};
use std::time::{Duration, Instant};
use wave32_device::{Arg, DeviceError, DeviceKind, Queue, Work, conformance};
use wave32_solve::{Access, Role};
use wave32_vulkan::{Options, VulkanQueue};

fn arg(address: u64, words: u64, writes: bool) -> Arg {
    Arg { address, bytes: 4 * words, access: if writes { Access::Write } else { Access::Read } }
}

/// The suite that every queue passes, which leaves nothing behind.
fn assert_conforms(mut queue: VulkanQueue, steps: usize, large: usize) {
    conformance::queue(&mut queue, &FIXTURE, seed(), steps, large).unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(queue.heap_stats().allocated, 0);
    queue.empty_cache().unwrap();
    assert_eq!(queue.heap_stats().reserved, 0);
    assert_clean(&queue);
}

fn step(queue: &mut VulkanQueue, from: u64, to: u64, words: u32, mul: u32, add: u32) {
    conformance::step(queue, &FIXTURE, (from, to), words, mul, add).unwrap();
}

#[test]
fn work_runs_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let Some(queue) = open(options(dir.path())) else { return };
    assert_conforms(queue, 1500, (90 << 20) + 13);
}

#[test]
fn work_runs_in_order_in_tiny_submits() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = Options { submit_target: Some(Duration::from_micros(1)), ..options(dir.path()) };
    let Some(queue) = open(tiny) else { return };
    assert_conforms(queue, 300, 1 << 20);
}

#[test]
fn memory_runs_out_with_an_error_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(Options { memory_cap: Some(64 << 20), ..options(dir.path()) }) else {
        return;
    };
    let first = queue.alloc(30 << 20).unwrap();
    queue.free(first);
    // Only fits once the cached segment has been given back.
    let second = queue.alloc(50 << 20).unwrap();
    match queue.alloc(30 << 20) {
        Err(DeviceError::OutOfMemory { requested, in_use }) => {
            assert_eq!((requested, in_use), (30 << 20, 50 << 20));
        }
        other => panic!("{other:?}"),
    }
    let small = queue.alloc(1000).unwrap();
    queue.fill(small, 1000, 1).unwrap();
    queue.free(second);
    queue.free(small);
    queue.alloc(60 << 20).unwrap();
    assert!(matches!(queue.alloc(u64::MAX), Err(DeviceError::OutOfMemory { .. })));
}

#[test]
fn wrong_use_is_an_error_and_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(options(dir.path())) else { return };
    let block = queue.alloc(1024).unwrap();
    let args = [arg(block, 64, false), arg(block, 64, true)];
    let work = Work::default();
    for (grid, params, args) in [
        ([1, 1, 1], &[0, 64, 1][..], &args[..]),
        ([1, 1, 1], &[u32::MAX, 64, 1, 1], &args),
        ([1, 1, 1], &[0, 64, 1, 1], &args[..1]),
        ([0, 1, 1], &[0, 64, 1, 1], &args),
        ([1, 1, 1], &[0, 64, 1, 1], &[arg(block, 64, false), arg(12, 64, true)]),
        ([1, 1, 1], &[0, 64, 1, 1], &[arg(block, 64, false), arg(block + 2, 64, true)]),
        ([1, 1, 1], &[0, 64, 1, 1], &[arg(block, 64, false), arg(block, 1 << 29, true)]),
    ] {
        let result = queue.launch("step", grid, params, args, work);
        assert!(matches!(result, Err(DeviceError::Misuse(_) | DeviceError::Unsupported(_))), "{result:?}");
    }
    assert!(queue.upload(block + (1 << 40), &[1]).is_err());
    assert!(queue.copy(block, block + 4, 8).is_err(), "overlaps");
    assert!(queue.fill(block + 1, 4, 0).is_err());
    let nonesuch = queue.launch("nonesuch", [1, 1, 1], &[0, 64, 1, 1], &args, work);
    assert!(matches!(nonesuch, Err(DeviceError::Unsupported(_))), "{nonesuch:?}");
    queue.fill(block, 1024, 9).unwrap();
    let mut found = [0; 4];
    queue.download(block, &mut found).unwrap();
    assert_eq!(found, [9, 0, 0, 0]);
    assert_clean(&queue);
}

#[test]
fn a_deadline_that_passes_gives_the_device_up() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(options(dir.path())) else { return };
    let block = queue.alloc(256).unwrap();
    // See the conformance test of the deadline: about a second.
    let (groups, rounds) = match queue.info().kind {
        DeviceKind::Cpu => (120 * queue.caps().compute_units, 60_000),
        // The virtual card would be busy with it long after this test.
        _ if std::env::var_os("WAVE32_VGPU_CARD").is_some() => (1, 1_000_000),
        _ => (1, 50_000_000),
    };
    let args = [arg(block, 64, true)];
    queue.launch("spin", [groups, 1, 1], &[0, 64, rounds], &args, Work::default()).unwrap();
    queue.set_deadline(Duration::from_millis(50));
    let start = Instant::now();
    let result = queue.synchronize();
    assert!(matches!(result, Err(DeviceError::Timeout { .. })), "{result:?}");
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert!(matches!(queue.download(block, &mut [0; 4]), Err(DeviceError::Lost(_))));
}

#[test]
fn a_lost_device_refuses_everything_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for submits in [0, 2] {
        let Some(mut queue) = open(options(dir.path())) else { return };
        let block = queue.alloc(1 << 20).unwrap();
        queue.lose_after(submits);
        let start = Instant::now();
        let mut launch = || {
            queue.fill(block, 1 << 20, 3)?;
            queue.download(block, &mut [0; 4])
        };
        let first = (0..=submits).find_map(|_| launch().err());
        assert!(matches!(first, Some(DeviceError::Lost(_))), "{first:?}");
        assert!(matches!(queue.fill(block, 4, 0), Err(DeviceError::Lost(_))));
        assert!(matches!(queue.upload(block, &[0; 4]), Err(DeviceError::Lost(_))));
        assert!(matches!(queue.synchronize(), Err(DeviceError::Lost(_))));
        assert!(matches!(queue.empty_cache(), Err(DeviceError::Lost(_))));
        assert!(matches!(queue.alloc(1 << 30), Err(DeviceError::Lost(_))), "a new segment");
        queue.free(block);
        assert_clean(&queue);
        drop(queue);
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }
}

#[test]
fn steady_work_makes_nothing_that_stays() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(options(dir.path())) else { return };
    let iteration = |queue: &mut VulkanQueue, size: u64| {
        let blocks: Vec<u64> = (1..40).map(|n| queue.alloc(n * size).unwrap()).collect();
        for &block in &blocks {
            queue.upload(block, &[7; 64]).unwrap();
            step(queue, block, block, 16, 3, 1);
        }
        blocks.into_iter().for_each(|block| queue.free(block));
        queue.submits()
    };
    // No call here waits for the device but those that run out of command buffers.
    let mut counts = Vec::new();
    for round in 0..120 {
        iteration(&mut queue, 4096);
        counts.push(queue.counts());
        assert!(counts[round].uploads <= 8, "{:?}", counts[round]);
    }
    let (early, late) = (counts[40], counts[119]);
    assert_eq!(
        (early.segments, early.blocks, early.command_buffers, early.kernels),
        (late.segments, late.blocks, late.command_buffers, late.kernels)
    );
    assert_eq!(late.timed, 0);
    queue.synchronize().unwrap();
    assert_eq!(queue.heap_stats().allocated, 0);
    assert_clean(&queue);
}

#[test]
fn launches_are_timed_while_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(options(dir.path())) else { return };
    let block = queue.alloc(4 << 20).unwrap();
    step(&mut queue, block, block, 100, 1, 1);
    assert!(queue.profile(true).unwrap().is_empty());
    for _ in 0..600 {
        step(&mut queue, block, block, 1 << 18, 3, 1);
    }
    let timed = queue.profile(false).unwrap();
    assert_eq!(timed.len(), 600);
    assert!(timed.iter().all(|launch| launch.kernel == "step" && launch.length > Duration::ZERO));
    assert!(timed.is_sorted_by_key(|launch| launch.start));
    step(&mut queue, block, block, 100, 1, 1);
    assert!(queue.profile(false).unwrap().is_empty());
}

/// However many submits a launch was cut into: it was launched once.
#[test]
fn a_launch_that_was_cut_is_timed_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = Options { submit_target: Some(Duration::from_micros(1)), ..options(dir.path()) };
    let Some(mut queue) = open(tiny) else { return };
    let block = queue.alloc(4 << 20).unwrap();
    queue.profile(true).unwrap();
    let before = queue.submits();
    for _ in 0..3 {
        step(&mut queue, block, block, 10_000, 3, 1);
    }
    let timed = queue.profile(false).unwrap();
    assert!(queue.submits() - before > 6, "{} submits", queue.submits() - before);
    assert_eq!(timed.len(), 3);
    assert!(timed.windows(2).all(|two| two[0].start + two[0].length <= two[1].start), "{timed:?}");
}

/// The phases of a strided gradient write pixels of their own: one barrier between packing and them, none among them.
#[test]
fn launches_of_a_plan_wait_only_where_they_must() {
    let dir = tempfile::tempdir().unwrap();
    // A busy processor's launches are long, and would go in submits of their own.
    let whole = Some(Duration::from_secs(3600));
    let shipped =
        Options { kernels: Options::default().kernels, submit_target: whole, ..options(dir.path()) };
    let Some(mut queue) = open(shipped) else { return };
    let line = "MIOpenDriver conv -n 2 -c 16 -H 20 -W 20 -k 32 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -F 2";
    let problem = wave32_problem::parse_line(line).unwrap().swap_remove(0);
    let mut seen = 0;
    for plan in wave32_solve::plans(&problem, queue.caps(), &wave32_solve::Policy::default()) {
        let waits = plan.waits().into_iter().filter(|&waits| waits).count() as u64;
        let addresses = Role::ALL.map(|role| queue.alloc(plan.role_bytes(role).max(1)).unwrap());
        queue.synchronize().unwrap();
        let before = queue.counts().barriers;
        wave32_device::execute(&mut queue, &plan, &addresses).unwrap();
        queue.synchronize().unwrap();
        assert_eq!(queue.counts().barriers - before, waits, "{} {}", plan.solver, plan.config);
        let phases = plan.launches.iter().filter(|launch| launch.kernel.starts_with("igemm_p")).count();
        if phases == 4 {
            let split = plan.launches.iter().any(|launch| launch.kernel.starts_with("reduce"));
            assert_eq!(waits, 1 + u64::from(split), "{} {}", plan.solver, plan.config);
            seen += 1;
        }
        addresses.into_iter().for_each(|address| queue.free(address));
    }
    assert!(seen > 0, "no plan in phases");
    assert_clean(&queue);
}
