//! The queue under test.

use rand::rngs::StdRng;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use wave32_device::{Arg, DeviceError, Queue, Work};
use wave32_kernelc::glsl;
use wave32_ops::ElementType;
use wave32_solve::DeviceCaps;
use wave32_testing::Part;
use wave32_vulkan::{Kernel, KernelSource, Shipped};

/// What a queue around another passes on: everything but its capabilities and launches.
macro_rules! rest_of_queue {
    ($inner:ident) => {
        fn info(&self) -> &wave32_device::DeviceInfo {
            self.$inner.info()
        }
        fn check(&mut self) -> Result<(), DeviceError> {
            self.$inner.check()
        }
        fn alloc(&mut self, bytes: u64) -> Result<u64, DeviceError> {
            self.$inner.alloc(bytes)
        }
        fn free(&mut self, address: u64) {
            self.$inner.free(address);
        }
        fn retire(&mut self, address: u64) {
            self.$inner.retire(address);
        }
        fn span(&self, address: u64) -> Option<(u64, u64)> {
            self.$inner.span(address)
        }
        fn kept(&mut self) -> Option<&mut wave32_device::Kept> {
            self.$inner.kept()
        }
        fn prepare(&mut self, launch: &wave32_solve::Launch) -> Result<(), DeviceError> {
            self.$inner.prepare(launch)
        }
        fn fill(&mut self, address: u64, bytes: u64, word: u32) -> Result<(), DeviceError> {
            self.$inner.fill(address, bytes, word)
        }
        fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
            self.$inner.copy(from, to, bytes)
        }
        fn upload(&mut self, address: u64, data: &[u8]) -> Result<(), DeviceError> {
            self.$inner.upload(address, data)
        }
        fn download(&mut self, address: u64, data: &mut [u8]) -> Result<(), DeviceError> {
            self.$inner.download(address, data)
        }
        fn synchronize(&mut self) -> Result<(), DeviceError> {
            self.$inner.synchronize()
        }
        fn wait_until(&mut self, deadline: Option<wave32_device::Deadline>) {
            self.$inner.wait_until(deadline);
        }
        fn barrier(&mut self) -> Result<(), DeviceError> {
            self.$inner.barrier()
        }
        fn stamp(&mut self) -> Result<wave32_device::Stamp, DeviceError> {
            self.$inner.stamp()
        }
        fn times(
            &mut self,
            stamps: &[wave32_device::Stamp],
        ) -> Result<Vec<std::time::Duration>, DeviceError> {
            self.$inner.times(stamps)
        }
        fn submits(&self) -> u64 {
            self.$inner.submits()
        }
    };
}
pub(crate) use rest_of_queue;

/// A queue of the best Vulkan device, or of the best HIP device where `WAVE32_TEST_DEVICE=hip`. The names of the kernels it
/// launched are added to the file `WAVE32_TEST_KERNELS`, if that is set.
pub struct TestQueue {
    queue: Box<dyn Queue>,
    caps: DeviceCaps,
    float64: bool,
    launched: BTreeSet<String>,
}

/// A queue, or none where no driver is (then the test is skipped, unless one is demanded).
pub fn stream() -> Option<TestQueue> {
    let hip = std::env::var_os("WAVE32_TEST_DEVICE").is_some_and(|device| device == "hip");
    match hip {
        true => {
            let opened = wave32_hip::open(None, wave32_hip::Options::default());
            opened_or_skipped(opened.map(|queue| TestQueue::new(Box::new(queue), true)), "WAVE32_REQUIRE_HIP")
        }
        false => vulkan(wave32_vulkan::Options::default()),
    }
}

/// A Vulkan queue whose kernels of matrix instructions are emulated, as a device with these would choose; none for HIP.
pub fn emulated_stream() -> Option<TestQueue> {
    if std::env::var_os("WAVE32_TEST_DEVICE").is_some_and(|device| device == "hip") {
        return None;
    }
    let kernels = |name: &str| {
        let kernel = Shipped.kernel(name)?;
        Some(match glsl::emulated(name) {
            Some(spirv) => Kernel { spirv: spirv.unwrap().into(), ..kernel },
            None => kernel,
        })
    };
    let mut stream =
        vulkan(wave32_vulkan::Options { kernels: Arc::new(kernels), ..wave32_vulkan::Options::default() })?;
    stream.caps.float16_matrix = true;
    stream.caps.float16_dot = true;
    Some(stream)
}

fn vulkan(options: wave32_vulkan::Options) -> Option<TestQueue> {
    let opened = wave32_vulkan::open(None, options).map(|queue| {
        let float64 = queue.has_float64();
        TestQueue::new(Box::new(queue), float64)
    });
    opened_or_skipped(opened, "WAVE32_REQUIRE_VULKAN")
}

fn opened_or_skipped(opened: Result<TestQueue, DeviceError>, demanded: &str) -> Option<TestQueue> {
    match opened {
        Ok(stream) => Some(stream),
        Err(error) if std::env::var_os(demanded).is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

impl TestQueue {
    fn new(queue: Box<dyn Queue>, float64: bool) -> Self {
        let caps = queue.caps().clone();
        Self { queue, caps, float64, launched: BTreeSet::new() }
    }

    /// Whether kernels may use 64-bit floats.
    pub fn has_float64(&self) -> bool {
        self.float64
    }

    /// Whether it launched that kernel.
    pub fn has_launched(&self, kernel: &str) -> bool {
        self.launched.contains(kernel)
    }

    /// How much of a test runs.
    pub fn part(&self) -> Part {
        Part::of(self.queue.info().kind)
    }

    /// The types that a test of kernels runs with: where a part is enough, f32 and one of the others.
    pub fn float_types(&self, random: &mut StdRng) -> Vec<ElementType> {
        let others = self.part().pick([ElementType::F16, ElementType::BF16], 1, random);
        [vec![ElementType::F32], others].concat()
    }

    pub fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    /// What operations choose by from now on; the device stays as it is.
    pub fn set_caps(&mut self, caps: DeviceCaps) {
        self.caps = caps;
    }

    pub fn alloc(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        self.queue.alloc(bytes)
    }

    pub fn free(&mut self, address: u64) {
        self.queue.free(address);
    }
}

impl Queue for TestQueue {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn launch(
        &mut self,
        kernel: &str,
        grid: [u32; 3],
        params: &[u32],
        args: &[Arg],
        work: Work,
    ) -> Result<(), DeviceError> {
        if !self.launched.contains(kernel) {
            self.launched.insert(kernel.to_string());
        }
        self.queue.launch(kernel, grid, params, args, work)
    }

    crate::common::stream::rest_of_queue!(queue);
}

impl Drop for TestQueue {
    fn drop(&mut self) {
        // What a failed test launched is not known to be right.
        let Some(file) = std::env::var_os("WAVE32_TEST_KERNELS").filter(|_| !std::thread::panicking()) else {
            return;
        };
        let mut file =
            std::fs::File::options().append(true).create(true).open(file).expect("WAVE32_TEST_KERNELS");
        let lines: String = self.launched.iter().map(|name| format!("{name}\n")).collect();
        // One write: tests run in threads, and in programs side by side.
        file.write_all(lines.as_bytes()).expect("WAVE32_TEST_KERNELS");
    }
}

/// A device that binds less at once.
pub struct Narrow {
    pub stream: TestQueue,
    pub caps: DeviceCaps,
}

impl Narrow {
    /// `most` bytes at most.
    pub fn new(stream: TestQueue, most: u64) -> Self {
        let caps = DeviceCaps { max_range: most, ..stream.caps().clone() };
        Self { stream, caps }
    }
}

impl Queue for Narrow {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn launch(
        &mut self,
        kernel: &str,
        grid: [u32; 3],
        params: &[u32],
        args: &[Arg],
        work: Work,
    ) -> Result<(), DeviceError> {
        assert!(args.iter().all(|arg| arg.bytes <= self.caps.max_range), "{kernel} binds {args:?}");
        Queue::launch(&mut self.stream, kernel, grid, params, args, work)
    }

    crate::common::stream::rest_of_queue!(stream);
}
