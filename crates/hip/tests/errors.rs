//! What goes wrong with runtimes and cards, on a stand-in runtime: typed errors, bounded waits, nothing torn down that
//! is still in use.

mod common;

use common::StandIn;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wave32_device::{Arg, DeviceError, Operands, PlanDevice, Queue, Runner, Work};
use wave32_hip::{Kernel, KernelSource, Options, RawStream};
use wave32_problem::{ConvProblem, ConvSpec};
use wave32_solve::{Access, Binding, Launch, Model, Plan, Role};

/// One `step` over 64 words.
fn plan(kernel: &str) -> Plan {
    let access = |role| if role == Role::Y { Access::Write } else { Access::Read };
    let binding = |role| Binding { role, offset: 0, size: 256, access: access(role) };
    let launch = Launch {
        kernel: kernel.into(),
        grid: [1, 1, 1],
        params: if kernel == "missing" { vec![0] } else { vec![0, 64, 3, 4] },
        bindings: if kernel == "missing" {
            vec![binding(Role::X)]
        } else {
            vec![binding(Role::X), binding(Role::Y)]
        },
        flops: 1,
        bytes: 1,
        model: Model::Stream { bytes: 0 },
    };
    let problem = ConvProblem::new(ConvSpec::default()).unwrap();
    Plan {
        problem: problem.into(),
        solver: "fixture",
        config: String::new(),
        tuned: false,
        workspace_bytes: 0,
        launches: vec![launch],
        prepared: None,
    }
}

const SOON: Duration = Duration::from_millis(60);

#[test]
fn a_library_that_is_missing_or_something_else_is_unavailable() {
    let open = |library: &str| {
        let options = Options { library: Some(PathBuf::from(library)), ..Options::default() };
        match wave32_hip::open(None, options) {
            Err(DeviceError::Unavailable(text)) => text,
            other => panic!("{library}: {other:?}"),
        }
    };
    let text = open("/nowhere/libamdhip64.so.6");
    assert!(text.contains("/nowhere") && text.contains("WAVE32_HIP_LIBRARY"), "{text}");
    assert!(open("libm.so.6").contains("no HIP runtime"), "{}", open("libm.so.6"));
}

#[test]
fn devices_are_counted_listed_and_chosen() {
    let runtime = StandIn::new();
    runtime.set("COUNT", 3);
    let listed = wave32_hip::list(&runtime.options()).unwrap();
    let ids: Vec<&str> = listed.iter().map(|l| l.info.id.as_str()).collect();
    assert_eq!(ids, ["hip:0", "hip:1", "hip:2"]);
    assert!(listed.iter().all(|l| l.unusable.is_none()), "{listed:?}");
    assert_eq!(listed[1].info.name, "Stand-in RX 5600 XT 1");
    assert!(listed[1].info.driver.contains("gfx1010:xnack-"), "{}", listed[1].info.driver);
    assert_eq!((listed[0].caps.compute_units, listed[0].caps.clock_mhz), (36, 1560));
    let best = Runner::new(wave32_hip::open(None, runtime.options()).unwrap());
    assert_eq!(best.info().id, "hip:2", "it has most memory");
    assert!(
        matches!(wave32_hip::open(Some(3), runtime.options()), Err(DeviceError::NotFound(id)) if id == "hip:3")
    );

    runtime.set("COUNT", 0);
    for result in
        [wave32_hip::list(&runtime.options()).map(drop), wave32_hip::open(None, runtime.options()).map(drop)]
    {
        assert!(
            matches!(&result, Err(DeviceError::Unavailable(text)) if text.contains("no device")),
            "{result:?}"
        );
    }
}

#[test]
fn unusable_devices_say_why() {
    let runtime = StandIn::new();
    runtime.set("WAVE", 64);
    let listed = wave32_hip::list(&runtime.options()).unwrap();
    assert!(listed[0].unusable.as_deref().is_some_and(|why| why.contains("64 lanes")), "{listed:?}");
    for selector in [None, Some(0)] {
        let result = wave32_hip::open(selector, runtime.options());
        assert!(
            matches!(&result, Err(DeviceError::Unavailable(text)) if text.contains("64 lanes")),
            "{result:?}"
        );
    }
}

#[test]
fn the_callers_current_device_stays_current() {
    let runtime = StandIn::new();
    runtime.set("COUNT", 2);
    let mut second = Runner::new(wave32_hip::open(Some(1), runtime.options()).unwrap());
    let buffer = second.alloc(64).unwrap();
    second.write(buffer, 0, &[1; 64]).unwrap();
    second.free(buffer);
    // SAFETY: the function's type in `hip.c`.
    let current = unsafe {
        let library = libloading::Library::new(&runtime.path).unwrap();
        let get = library.get::<unsafe extern "C" fn(*mut i32) -> i32>(b"hipGetDevice").unwrap();
        let mut device = -1;
        assert_eq!(get(&mut device), 0);
        device
    };
    assert_eq!(current, 0);
    assert!(runtime.calls("hipSetDevice") >= 6, "it was changed and restored");
}

#[test]
fn a_callers_stream_is_used_and_kept() {
    let runtime = StandIn::new();
    // SAFETY: the null stream always lives.
    let stream = unsafe { RawStream::new(std::ptr::null_mut()) };
    let mut device =
        Runner::new(wave32_hip::open(None, Options { stream: Some(stream), ..runtime.options() }).unwrap());
    let buffer = device.alloc(8).unwrap();
    device.write(buffer, 0, &[7; 8]).unwrap();
    drop(device);
    assert_eq!((runtime.calls("hipStreamCreateWithFlags"), runtime.calls("hipStreamDestroy")), (0, 0));
}

#[test]
fn failures_of_calls_are_typed() {
    // The call, its status, and what comes of a write and a run.
    type Right = fn(&DeviceError) -> bool;
    let cases: [(&str, i64, Right); 9] = [
        ("hipMalloc", 2, |e| matches!(e, DeviceError::OutOfMemory { requested: 256, .. })),
        ("hipMemcpyAsync", 1, |e| matches!(e, DeviceError::Driver { call: "hipMemcpyAsync", .. })),
        ("hipHostMalloc", 2, |e| matches!(e, DeviceError::OutOfMemory { .. })),
        ("hipModuleLoadData", 209, |e| matches!(e, DeviceError::Unsupported(t) if t.contains("gfx1010"))),
        ("hipModuleGetFunction", 500, |e| matches!(e, DeviceError::Unsupported(t) if t.contains("`step`"))),
        ("hipModuleLaunchKernel", 9, |e| matches!(e, DeviceError::Driver { .. })),
        ("hipModuleLaunchKernel", 719, |e| matches!(e, DeviceError::Lost(_))),
        ("hipEventQuery", 700, |e| matches!(e, DeviceError::Lost(_))),
        ("hipEventElapsedTime", 1, |e| matches!(e, DeviceError::Driver { .. })),
    ];
    for (call, status, right) in cases {
        let runtime = StandIn::new();
        let mut device = Runner::new(wave32_hip::open(None, runtime.options()).unwrap());
        runtime.set(call, status);
        let mut all = || -> Result<(), DeviceError> {
            let (x, y) = (device.alloc(256)?, device.alloc(256)?);
            device.write(x, 0, &[1; 256])?;
            let operands = Operands::new().with(Role::X, x, 0).with(Role::Y, y, 0);
            device.run(&plan("step"), &operands, SOON).map(drop)
        };
        let error = all().expect_err(call);
        assert!(right(&error), "{call} answering {status}: {error:?}");
        if matches!(error, DeviceError::Lost(_)) {
            assert!(matches!(device.alloc(4), Err(DeviceError::Lost(_))), "{call}: a lost device stays lost");
            drop(device);
            assert_eq!(runtime.calls("hipFree"), 0, "{call}: nothing is freed under a lost card");
        }
    }
}

#[test]
fn kernels_that_are_not_there_are_unsupported() {
    let runtime = StandIn::new();
    let mut device = Runner::new(wave32_hip::open(None, runtime.options()).unwrap());
    for name in ["no_such_kernel", "missing"] {
        let result = device.prepare(&plan(name));
        assert!(matches!(&result, Err(DeviceError::Unsupported(text)) if text.contains(name)), "{result:?}");
    }
}

#[test]
fn a_card_that_hangs_costs_a_deadline_and_a_bounded_drop() {
    let runtime = StandIn::new();
    let mut device = Runner::new(wave32_hip::open(None, runtime.options()).unwrap());
    let (x, y) = (device.alloc(256).unwrap(), device.alloc(256).unwrap());
    let operands = Operands::new().with(Role::X, x, 0).with(Role::Y, y, 0);
    runtime.set("HANG", 1);
    let start = Instant::now();
    let result = device.run(&plan("step"), &operands, SOON);
    assert!(matches!(result, Err(DeviceError::Timeout { deadline, .. }) if deadline == SOON), "{result:?}");
    let queries = runtime.calls("hipEventQuery");
    assert!((10..100_000).contains(&queries), "{queries} queries: it pauses between them");
    assert!(matches!(device.read(x, 0, &mut [0; 4]), Err(DeviceError::Lost(_))));
    drop(device);
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert_eq!((runtime.calls("hipFree"), runtime.calls("hipStreamDestroy")), (0, 0));
}

#[test]
fn a_queue_that_hangs_answers_within_its_deadline() {
    let runtime = StandIn::new();
    let mut queue = wave32_hip::open(None, runtime.options()).unwrap();
    queue.set_deadline(SOON);
    let block = queue.alloc(256).unwrap();
    runtime.set("HANG", 1);
    let args = [
        Arg { address: block, bytes: 256, access: Access::Read },
        Arg { address: block, bytes: 256, access: Access::Write },
    ];
    let work = Work { flops: u64::MAX / 1024, bytes: 0 };
    let start = Instant::now();
    // Each is a batch of its own: the third waits for the first.
    let results: Vec<_> =
        (0..4).map(|_| queue.launch("step", [1, 1, 1], &[0, 64, 1, 1], &args, work)).collect();
    assert!(results[..2].iter().all(Result::is_ok), "{results:?}");
    assert!(matches!(results[2], Err(DeviceError::Timeout { .. })), "{results:?}");
    assert!(matches!(results[3], Err(DeviceError::Lost(_))), "{results:?}");
    assert!(matches!(queue.download(block, &mut [0; 4]), Err(DeviceError::Lost(_))));
    drop(queue);
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

/// Kernels for no target.
struct Without;

impl KernelSource for Without {
    fn codes(&self, _: &str) -> Result<Vec<Cow<'static, [u8]>>, String> {
        Err("no code here".into())
    }

    fn kernel(&self, _: &str, _: &str) -> Option<Kernel> {
        None
    }
}

#[test]
fn a_target_without_code_is_unusable() {
    let runtime = StandIn::new();
    let options = Options { kernels: Arc::new(Without), ..runtime.options() };
    let result = wave32_hip::open(None, options);
    assert!(
        matches!(&result, Err(DeviceError::Unavailable(text)) if text.contains("no code here")),
        "{result:?}"
    );
}

#[cfg(unix)]
#[test]
fn a_forked_child_is_told_to_start_anew() {
    let runtime = StandIn::new();
    let mut device = Runner::new(wave32_hip::open(None, runtime.options()).unwrap());
    let buffer = device.alloc(4).unwrap();
    let options = runtime.options();
    let (frees, mallocs) = (runtime.calls("hipFree"), runtime.calls("hipMalloc"));
    // SAFETY: the child calls nothing but this crate's guards and `_exit`; it takes no lock that another thread of the
    // parent could hold, except the allocator's, which the C library makes safe.
    let status = unsafe {
        match libc::fork() {
            0 => {
                let told = matches!(device.alloc(4), Err(DeviceError::Misuse(text)) if text.contains("fork"));
                device.free(buffer);
                drop(device); // must not hang, nor touch the parent's device
                let listed = wave32_hip::list(&options);
                let anew = matches!(listed, Err(DeviceError::Unavailable(text)) if text.contains("fork"));
                let quiet = runtime.calls("hipFree") == frees && runtime.calls("hipMalloc") == mallocs;
                libc::_exit(i32::from(!(told && anew && quiet)));
            }
            child => {
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                status
            }
        }
    };
    assert_eq!(status, 0, "the child's exit status");
    device.write(buffer, 0, &[1; 4]).unwrap();
}
