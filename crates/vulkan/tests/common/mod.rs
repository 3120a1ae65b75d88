//! What the device tests share: fixture kernels, and a device or the reason why there is none.
#![allow(dead_code, reason = "each test file uses its part")]

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wave32_device::conformance::{FIXTURE_THREADS, Fixture};
use wave32_device::{DeviceError, Runner};
use wave32_vulkan::{Kernel, Options, VulkanQueue};

pub const FIXTURE: Fixture = Fixture { step: "step", spin: "spin" };

/// The fixtures' SPIR-V with their metadata.
pub fn kernel(name: &str) -> Option<Kernel> {
    if name == "needs_int64_atomics" {
        return Some(needs_int64_atomics());
    }
    let (spirv, buffers, params): (&'static [u8], u32, u32) = match name {
        "step" => (include_bytes!("../fixtures/step.spv"), 2, 4),
        "spin" => (include_bytes!("../fixtures/spin.spv"), 1, 3),
        "truncated" => (&include_bytes!("../fixtures/step.spv")[..10], 2, 4),
        _ => return None,
    };
    Some(Kernel { spirv: Cow::Borrowed(spirv), threads: FIXTURE_THREADS, buffers, params })
}

/// A kernel with a capability that the device is never asked to enable.
fn needs_int64_atomics() -> Kernel {
    let mut spirv = include_bytes!("../fixtures/needs_f64.spv").to_vec();
    // OpCapability Float64 becomes OpCapability Int64Atomics.
    let f64_capability = [0x11, 0, 2, 0, 10, 0, 0, 0];
    let at = spirv.windows(8).position(|window| window == f64_capability).unwrap();
    spirv[at + 4] = 12;
    Kernel { spirv: Cow::Owned(spirv), threads: FIXTURE_THREADS, buffers: 1, params: 1 }
}

static VALIDATED: Mutex<()> = Mutex::new(());

thread_local! {
    /// Held until the test's thread ends.
    static TURN: MutexGuard<'static, ()> = VALIDATED.lock().unwrap_or_else(PoisonError::into_inner);
}

/// Options with the fixture kernels, a cache in `dir`, and the validation layer where it is installed. Tests that
/// call this run one after the other: the validation layer (1.3.239) crashes where one thread opens or closes a
/// device while another uses its own.
pub fn options(dir: &std::path::Path) -> Options {
    TURN.with(|_| ());
    Options {
        cache_dir: Some(dir.to_path_buf()),
        validation: wave32_vulkan::validation_available(),
        kernels: Arc::new(kernel),
        ..Options::default()
    }
}

/// A runner on the best device, or `None` with the reason printed where this machine has no Vulkan. Where
/// `WAVE32_REQUIRE_VULKAN` is set (CI), its absence is a failure.
pub fn open(options: Options) -> Option<Runner<VulkanQueue>> {
    open_queue(options).map(Runner::new)
}

/// As [`open`], the queue alone.
pub fn open_queue(options: Options) -> Option<VulkanQueue> {
    match wave32_vulkan::open(None, options) {
        Ok(device) => Some(device),
        Err(DeviceError::Unavailable(why)) if std::env::var_os("WAVE32_REQUIRE_VULKAN").is_none() => {
            eprintln!("skipped: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The validation layer had nothing to say.
pub fn assert_clean(queue: &VulkanQueue) {
    let messages = queue.validation_messages();
    assert!(messages.is_empty(), "{} validation messages: {messages:#?}", messages.len());
}

/// A fresh seed, printed for whoever has to repeat a failure.
pub fn seed() -> u64 {
    let seed = rand::random();
    eprintln!("seed {seed}");
    seed
}
