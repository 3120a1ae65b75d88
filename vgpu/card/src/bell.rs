//! Tells queues that their doorbells were rung, at no cost while nobody rings.
//!
//! A doorbell is a word that the program writes, with no call. While rings are recent, a thread looks at all doorbells
//! every 50 us. After a quiet millisecond it write-protects the program's mapping of them (userfaultfd) and sleeps until
//! the kernel reports the next write. Where the system has no userfaultfd it goes on looking, every millisecond, which
//! costs less than 1 % of a processor.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::memory::{DOORBELL_BYTES, DOORBELL_OFFSET};

const SHORT: Duration = Duration::from_micros(50);
const QUIET: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub struct Bell {
    started: AtomicBool,
    /// Where the program mapped the doorbells; 0 until then.
    mapping: AtomicU64,
    /// How often it did.
    times: AtomicU64,
    /// An eventfd that wakes the thread when it did so again.
    wake: RawFd,
}

impl Default for Bell {
    fn default() -> Self {
        // SAFETY: makes a descriptor; where there is none, a failing poll makes the thread look instead of sleep.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        Self { started: AtomicBool::new(false), mapping: AtomicU64::new(0), times: AtomicU64::new(0), wake }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { libc::close(self.wake) };
    }
}

impl Bell {
    /// The program has mapped the doorbells there.
    pub fn mapped(&self, address: u64) {
        self.mapping.store(address, Ordering::Release);
        self.times.fetch_add(1, Ordering::Release);
        // SAFETY: eight bytes, as an eventfd takes.
        unsafe { libc::write(self.wake, (&raw const ONE).cast(), 8) };
    }

    /// Starts looking, if it has not begun yet.
    pub fn start(&self, device: &'static Device) {
        if !self.started.swap(true, Ordering::AcqRel) {
            let _ = std::thread::Builder::new().name("vgpu-doorbell".into()).spawn(move || watch(device));
        }
    }
}

static ONE: u64 = 1;

fn watch(device: &'static Device) -> ! {
    let bell = &device.bell;
    let mut trap: (u64, Option<Trap>) = (0, None);
    let mut last_ring = Instant::now();
    loop {
        if look(device) {
            last_ring = Instant::now();
        }
        if last_ring.elapsed() < QUIET {
            std::thread::sleep(SHORT);
            continue;
        }
        let times = bell.times.load(Ordering::Acquire);
        if trap.0 != times {
            trap = (times, Trap::new(device, bell.mapping.load(Ordering::Acquire)));
        }
        match &trap.1 {
            Some(trap) if trap.arm(true) => {
                // What was rung before the trap stood is seen now, later rings run into it.
                if !look(device) {
                    trap.wait(bell.wake);
                }
                trap.arm(false);
                last_ring = Instant::now();
            }
            _ => std::thread::sleep(QUIET),
        }
    }
}

/// Wakes the queues whose doorbells changed; whether there were any.
fn look(device: &Device) -> bool {
    let mut rung = false;
    for queue in device.queues().values() {
        rung |= queue.look_at_doorbell(device.vm.doorbell(queue.slot));
    }
    rung
}

/// A write-protected mapping (`linux/userfaultfd.h`).
#[derive(Debug)]
struct Trap {
    fd: RawFd,
    range: [u64; 2],
}

const USER_MODE_ONLY: libc::c_int = 1;
const API: u64 = 0xaa;
const FEATURES: u64 = 1 << 12 | 1; // WP_HUGETLBFS_SHMEM, PAGEFAULT_FLAG_WP
const MODE_WP: u64 = 1 << 1;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;

impl Trap {
    fn new(device: &Device, address: u64) -> Option<Self> {
        // A trap at anything else of the program's would stop whoever writes there.
        if !device.is_mapped_at(address, DOORBELL_BYTES, DOORBELL_OFFSET) {
            return None;
        }
        // SAFETY: makes a descriptor.
        let fd = unsafe {
            libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY)
        } as RawFd;
        if fd < 0 {
            return None;
        }
        let trap = Self { fd, range: [address, DOORBELL_BYTES] };
        let mut api = [API, FEATURES, 0];
        let mut register = [address, DOORBELL_BYTES, MODE_WP, 0];
        // SAFETY: the arrays have the sizes that the requests encode. The mapping is the program's own of our file.
        let ready = unsafe {
            libc::madvise(address as *mut libc::c_void, DOORBELL_BYTES as usize, libc::MADV_DONTFORK);
            libc::ioctl(fd, UFFDIO_API, api.as_mut_ptr()) == 0
                && libc::ioctl(fd, UFFDIO_REGISTER, register.as_mut_ptr()) == 0
        };
        ready.then_some(trap)
    }

    /// Sets or lifts the protection; lifting wakes who ran into it. False where the mapping is gone.
    fn arm(&self, on: bool) -> bool {
        let mut request = [self.range[0], self.range[1], u64::from(on)];
        // SAFETY: the array has the size that the request encodes.
        unsafe { libc::ioctl(self.fd, UFFDIO_WRITEPROTECT, request.as_mut_ptr()) == 0 }
    }

    /// Sleeps until somebody writes, or `wake` is.
    fn wait(&self, wake: RawFd) {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polls = [entry(self.fd), entry(wake)];
        let mut message = [0u8; 32];
        // SAFETY: two entries; a fault's message is 32 bytes, an eventfd's 8. Neither read blocks.
        unsafe {
            libc::poll(polls.as_mut_ptr(), 2, -1);
            libc::read(self.fd, message.as_mut_ptr().cast(), message.len());
            libc::read(wake, message.as_mut_ptr().cast(), 8);
        }
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        // SAFETY: our own descriptor; closing lifts the protection.
        unsafe { libc::close(self.fd) };
    }
}
