//! One process's card: made when the process first opens it, gone with the process.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::bell::Bell;
use crate::drm::Drm;
use crate::errno::{Errno, Result};
use crate::events::Events;
use crate::execute::Executor;
use crate::memory::Vm;
use crate::progress::Progress;
use crate::queue::Queue;
use crate::settings::Settings;
use crate::{sysfs, topology};

/// See the module.
pub struct Device {
    pid: u32,
    file: RawFd,
    /// Device and inode of the file: by these descriptors of it are known, duplicates and inherited ones too.
    identity: (u64, u64),
    /// What was asked for.
    pub settings: Settings,
    /// Memory.
    pub vm: Vm,
    /// Events.
    pub events: Events,
    /// Queues by id.
    pub queues: Mutex<BTreeMap<u32, Arc<Queue>>>,
    /// Tells queues that their doorbells were rung.
    pub bell: Bell,
    /// Tells queues that wait for one another.
    pub progress: Progress,
    /// Runs kernels.
    pub executor: Executor,
    /// The render node's part.
    pub drm: Drm,
}

static DEVICE: AtomicPtr<Device> = AtomicPtr::new(std::ptr::null_mut());

impl Device {
    /// The card of this process, if it opened one. A child made by `fork` has none, whatever it inherited.
    pub fn current() -> Option<&'static Self> {
        // SAFETY: what is stored there is never freed.
        let device = unsafe { DEVICE.load(Ordering::Acquire).as_ref() }?;
        (device.pid == std::process::id()).then_some(device)
    }

    /// The card, made if need be; a reason why there is none.
    fn open() -> std::result::Result<&'static Self, String> {
        if let Some(device) = Self::current() {
            return Ok(device);
        }
        let before = DEVICE.load(Ordering::Acquire);
        let new = Box::into_raw(Box::new(Self::new()?));
        // No lock: another thread of a parent process may have held it when this one was forked.
        match DEVICE.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {}
            Err(_) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
            }
        }
        Self::current().ok_or_else(|| "another thread forked meanwhile".to_owned())
    }

    fn new() -> std::result::Result<Self, String> {
        let settings = Settings::from_environment()?;
        let failed = |what: &str| format!("{what}: {}", std::io::Error::last_os_error());
        let name = CString::new("wave32-vgpu").unwrap_or_default();
        // SAFETY: the name is a C string.
        let file = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if file < 0 {
            return Err(failed("no memory file"));
        }
        let identity =
            identity(file).ok_or_else(|| failed("the memory file cannot be asked for its inode"))?;
        let vm = Vm::new(file, topology::vram_bytes(settings.card), sysfs::host_bytes())
            .map_err(|_| failed("no address space for the card"))?;
        let executor = Executor::new(&settings);
        Ok(Self {
            pid: std::process::id(),
            file,
            identity,
            settings,
            vm,
            events: Events::default(),
            queues: Mutex::default(),
            bell: Bell::default(),
            progress: Progress::default(),
            executor,
            drm: Drm::default(),
        })
    }

    /// Whether all of `bytes` at `address` are a mapping of the card's file from `offset` on.
    pub fn is_mapped_at(&self, address: u64, bytes: u64, offset: u64) -> bool {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let covers = |line: &str| {
            // Addresses, rights, offset, device, inode.
            let mut fields = line.split_ascii_whitespace();
            let (from, to) = fields.next()?.split_once('-')?;
            let (from, to, offset_there) = (hex(from)?, hex(to)?, hex(fields.nth(1)?)?);
            let inode: u64 = fields.nth(1)?.parse().ok()?;
            let begins = from <= address && address.checked_add(bytes)? <= to;
            Some(begins && inode == self.identity.1 && offset_there + (address - from) == offset)
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        maps.lines().any(|line| covers(line) == Some(true))
    }

    /// Whether `fd` is open on this card.
    pub fn owns(&self, fd: RawFd) -> bool {
        identity(fd) == Some(self.identity)
    }

    /// The card's clock: 100 MHz since the machine was started. With `SAMPLE` it goes on by modelled times only.
    pub fn ticks(&self) -> u64 {
        self.nanoseconds(libc::CLOCK_BOOTTIME) / 10
    }

    /// A clock of the system's, as the card tells it beside its own: both stand still together.
    pub fn nanoseconds(&self, clock: libc::clockid_t) -> u64 {
        match self.executor.modelled_nanoseconds() {
            Some(gone) => gone,
            None => nanoseconds(clock),
        }
    }

    /// The queues, locked.
    pub fn queues(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: our own descriptor, and nothing uses it any more.
        unsafe { libc::close(self.file) };
    }
}

/// Device and inode of what is open there.
pub fn identity(fd: RawFd) -> Option<(u64, u64)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for the answer, and it is read only if it was written. The C library's function is this
    // library's own (`preload`), which asks here.
    let stat = unsafe {
        if libc::syscall(libc::SYS_fstat, fd, stat.as_mut_ptr()) != 0 {
            return None;
        }
        stat.assume_init()
    };
    Some((stat.st_dev, stat.st_ino))
}

/// Whether `fd` is open on the card of any process of ours: it is a memory file of that name.
pub fn is_inherited(fd: RawFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{fd}"))
        .is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:wave32-vgpu"))
}

/// A new descriptor of the card, for `/dev/kfd` and the render node alike.
pub fn open(flags: libc::c_int) -> Result<RawFd> {
    let device = Device::open().map_err(|reason| {
        log!("no virtual card: {reason}");
        Errno(libc::ENODEV)
    })?;
    let command = if flags & libc::O_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    // SAFETY: duplicates a descriptor.
    let fd = unsafe { libc::fcntl(device.file, command, 3) };
    if fd < 0 { Err(Errno::last()) } else { Ok(fd) }
}

/// A clock of the system's.
pub fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into `time`.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64
}
