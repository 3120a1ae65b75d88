//! A queue on the caller's memory and streams, on a stand-in runtime.

mod common;

use common::StandIn;
use std::ffi::c_void;
use wave32_device::{Arg, DeviceError, Queue, Work};
use wave32_hip::{HipQueue, Options, RawStream};
use wave32_solve::Access;

fn stream(number: usize) -> RawStream {
    // SAFETY: the stand-in never looks at a stream.
    unsafe { RawStream::new(std::ptr::without_provenance_mut::<c_void>(number)) }
}

fn open(runtime: &StandIn) -> HipQueue {
    let options = Options { foreign_memory: true, stream: Some(stream(16)), ..runtime.options() };
    wave32_hip::open(None, options).unwrap()
}

/// One `step` from and to two blocks of 256 bytes.
fn step(queue: &mut HipQueue, from: u64, to: u64) -> Result<(), DeviceError> {
    let arg = |address, access| Arg { address, bytes: 256, access };
    queue.launch(
        "step",
        [1, 1, 1],
        &[0, 64, 3, 4],
        &[arg(from, Access::Read), arg(to, Access::Write)],
        Work::default(),
    )
}

fn misuse(outcome: Result<(), DeviceError>) -> String {
    match outcome {
        Err(DeviceError::Misuse(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_callers_memory_is_looked_up_once_and_again_after_a_stream_is_set() {
    let runtime = StandIn::new();
    let mut queue = open(&runtime);
    let memory = vec![0u64; 64];
    let (from, to) = (memory.as_ptr() as u64, memory.as_ptr() as u64 + 256);
    runtime.set("EXTENT", 512);
    for _ in 0..5 {
        step(&mut queue, from, to).unwrap();
    }
    assert_eq!(runtime.calls("hipPointerGetAttributes"), 1);
    queue.set_stream(stream(16)).unwrap();
    step(&mut queue, from, to).unwrap();
    assert_eq!(runtime.calls("hipPointerGetAttributes"), 2, "it may have been freed since");
    queue.synchronize().unwrap();
}

#[test]
fn what_is_no_memory_of_the_card_is_refused_before_anything_is_launched() {
    let runtime = StandIn::new();
    let mut queue = open(&runtime);
    let memory = [0u64; 64];
    let (from, to) = (memory.as_ptr() as u64, memory.as_ptr() as u64 + 256);
    assert!(misuse(step(&mut queue, 0, to)).contains("null"));
    runtime.set("EXTENT", 128);
    runtime.set("LIMIT", from as i64 + 128);
    assert!(misuse(step(&mut queue, from, to)).contains("beyond"));
    runtime.set("KIND", 0);
    assert!(misuse(step(&mut queue, from, to)).contains("host memory"));
    runtime.set("hipPointerGetAttributes", 1);
    assert!(misuse(step(&mut queue, from, to)).contains("hipMalloc"));
    assert_eq!(runtime.calls("hipModuleLaunchKernel"), 0);
    assert!(runtime.calls("hipGetLastError") > 0, "a failed look-up is not the caller's error");

    let options = Options { stream: Some(stream(16)), ..runtime.options() };
    let mut queue = wave32_hip::open(None, options).unwrap();
    assert!(misuse(step(&mut queue, from, to)).contains("no memory of this device"), "unless it is allowed");
}

#[test]
fn memory_that_is_mapped_piece_by_piece_is_one_range() {
    let runtime = StandIn::new();
    let mut queue = open(&runtime);
    let memory = [0u64; 64];
    runtime.set("EXTENT", 128);
    step(&mut queue, memory.as_ptr() as u64, memory.as_ptr() as u64 + 256).unwrap();
    queue.synchronize().unwrap();
}

#[test]
fn a_stream_follows_the_one_before_on_the_card() {
    let runtime = StandIn::new();
    let mut queue = open(&runtime);
    let (from, to) = (queue.alloc(256).unwrap(), queue.alloc(256).unwrap());
    queue.set_stream(stream(32)).unwrap();
    assert_eq!(runtime.calls("hipStreamWaitEvent"), 0, "nothing was launched");
    step(&mut queue, from, to).unwrap();
    queue.set_stream(stream(32)).unwrap();
    assert_eq!(runtime.calls("hipStreamWaitEvent"), 0, "the same one");
    queue.set_stream(stream(48)).unwrap();
    assert_eq!(runtime.calls("hipStreamWaitEvent"), 1);
    step(&mut queue, from, to).unwrap();
    runtime.set("hipEventRecord", 400);
    queue.set_stream(stream(64)).unwrap();
    assert_eq!(runtime.calls("hipStreamWaitEvent"), 1, "a stream that is gone is not waited for");
    runtime.set("hipEventRecord", 0);
}

#[test]
fn a_captured_stream_gets_launches_and_nothing_else() {
    let runtime = StandIn::new();
    runtime.set("CAPTURING", 1);
    let old = open(&runtime).set_stream(stream(32));
    assert!(
        matches!(old, Err(DeviceError::Unsupported(text)) if text.contains("5.6")),
        "5.2 does not capture"
    );
    runtime.set("CAPTURING", 0);
    runtime.set("VERSION", 50_631_061);
    let mut queue = open(&runtime);
    let (from, to) = (queue.alloc(256).unwrap(), queue.alloc(256).unwrap());
    step(&mut queue, from, to).unwrap();
    runtime.set("CAPTURING", 1);
    queue.set_stream(stream(32)).unwrap();
    let asked = ["hipEventRecord", "hipEventQuery", "hipStreamWaitEvent", "hipMemcpyAsync"];
    let before = asked.map(|name| runtime.calls(name));
    let scratch = queue.alloc(256).unwrap();
    for _ in 0..3000 {
        step(&mut queue, from, scratch).unwrap();
    }
    queue.free(scratch);
    let more = queue.alloc(256).unwrap();
    assert_ne!(more, scratch, "the graph may run at any time: its memory is not handed out again");
    step(&mut queue, scratch, more).unwrap();
    assert_eq!(asked.map(|name| runtime.calls(name)), before);
    for refused in [queue.synchronize(), queue.upload(from, &[1; 4]), queue.download(from, &mut [0; 4])] {
        assert!(misuse(refused).contains("captured"));
    }
    assert!(queue.stamp().is_err());
    runtime.set("CAPTURING", 0);
    queue.set_stream(stream(48)).unwrap();
    assert_eq!(runtime.calls("hipStreamWaitEvent"), 1, "behind what was launched before the capture");
    queue.synchronize().unwrap();
}

#[test]
fn queues_of_a_process_share_loaded_code() {
    let runtime = StandIn::new();
    let mut queues: Vec<HipQueue> = (0..3).map(|_| open(&runtime)).collect();
    for queue in &mut queues {
        let (from, to) = (queue.alloc(256).unwrap(), queue.alloc(256).unwrap());
        step(queue, from, to).unwrap();
    }
    assert_eq!(runtime.calls("hipModuleLoadData"), 1);
    queues.truncate(1);
    assert_eq!(runtime.calls("hipModuleUnload"), 0, "one still uses it");
    queues.clear();
    assert_eq!(runtime.calls("hipModuleUnload"), 1);
    drop(open(&runtime));
    let mut queue = open(&runtime);
    let (from, to) = (queue.alloc(256).unwrap(), queue.alloc(256).unwrap());
    step(&mut queue, from, to).unwrap();
    assert_eq!(runtime.calls("hipModuleLoadData"), 2);
}
