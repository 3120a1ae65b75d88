//! The C library's functions that this library stands before.
//!
//! Paths of the card lead to it or to its files; everything else goes to the real function, unchanged. Those that take
//! variable arguments are declared with the ones they can have: x86-64 passes both alike.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::device::{self, Device};
use crate::errno::Errno;
use crate::memory::map_raw;
use crate::request::Argument;
use crate::sysfs::{CardPath, place};
use crate::topology::RENDER_MINOR;
use crate::user;
use crate::{drm, kfd};

/// Calls the function of this name in the libraries behind this one: `real!(name(arg: Type) -> Type, lost)`, where `lost`
/// is the result if there is none.
macro_rules! real {
    ($name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty, $lost:expr) => {{
        static NEXT: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        let at = crate::preload::behind(&NEXT, concat!(stringify!($name), "\0"));
        if at.is_null() {
            $lost
        } else {
            // SAFETY: the symbol of this name has this type, and the caller's promises are handed on.
            unsafe {
                let real = std::mem::transmute::<
                    *mut std::ffi::c_void,
                    unsafe extern "C" fn($($ty),*) -> $ret,
                >(at);
                real($($arg),*)
            }
        }
    }};
}

/// Looks a symbol up behind this library, once.
pub fn behind(cache: &AtomicPtr<c_void>, name: &str) -> *mut c_void {
    let known = cache.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the macro ends the name with a NUL.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    cache.store(found, Ordering::Release);
    found
}

fn fail(errno: Errno) -> c_int {
    // SAFETY: the calling thread's errno.
    unsafe { *libc::__errno_location() = errno.0 };
    -1
}

fn missing() -> c_int {
    fail(Errno(libc::ENOSYS))
}

/// Where `path` leads, if it is one of the card's. It may be null or wild.
fn of_card(path: *const c_char) -> Option<CardPath> {
    // What cannot be read is the real function's to refuse.
    place(user::path(path, &mut [0; user::LONGEST_PATH])?)
}

/// Device nodes are looked at as this one.
const NODE: &CStr = c"/dev/null";

/// The path that is meant by `path` where the card itself is not opened.
macro_rules! meant {
    ($path:ident, $place:ident) => {
        let $place = of_card($path);
        let $path = match &$place {
            None => $path,
            Some(CardPath::Card) => NODE.as_ptr(),
            Some(CardPath::File(file)) => file.as_ptr(),
        };
    };
}

macro_rules! opens {
    ($($name:ident($($dir:ident)?);)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// As of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($dir: c_int,)? path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
            let place = of_card(path);
            let path = match &place {
                None => path,
                Some(CardPath::Card) => return device::open(flags).unwrap_or_else(fail),
                Some(CardPath::File(file)) => file.as_ptr(),
            };
            real!($name($($dir: c_int,)? path: *const c_char, flags: c_int, mode: c_uint) -> c_int, missing())
        }
    )*};
}

opens! {
    open();
    open64();
    openat(dir);
    openat64(dir);
}

/// Functions of a path, looked at but not opened as the card: arguments before it, and after it.
macro_rules! looks {
    ($($name:ident($($before:ident: $bty:ty)?; $($after:ident: $aty:ty),*) -> $ret:ty, $lost:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// As of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($before: $bty,)? path: *const c_char, $($after: $aty),*) -> $ret {
            meant!(path, place);
            real!($name($($before: $bty,)? path: *const c_char, $($after: $aty),*) -> $ret, $lost)
        }
    )*};
}

fn no_pointer() -> *mut c_void {
    missing();
    std::ptr::null_mut()
}

looks! {
    __open_2(; flags: c_int) -> c_int, missing();
    __open64_2(; flags: c_int) -> c_int, missing();
    fopen(; mode: *const c_char) -> *mut c_void, no_pointer();
    fopen64(; mode: *const c_char) -> *mut c_void, no_pointer();
    opendir(;) -> *mut c_void, no_pointer();
    access(; mode: c_int) -> c_int, missing();
    faccessat(dir: c_int; mode: c_int, flags: c_int) -> c_int, missing();
    statx(dir: c_int; flags: c_int, mask: c_uint, out: *mut c_void) -> c_int, missing();
    readlink(; out: *mut c_char, bytes: usize) -> isize, missing() as isize;
    readlinkat(dir: c_int; out: *mut c_char, bytes: usize) -> isize, missing() as isize;
    getxattr(; name: *const c_char, out: *mut c_void, bytes: usize) -> isize, missing() as isize;
    lgetxattr(; name: *const c_char, out: *mut c_void, bytes: usize) -> isize, missing() as isize;
    listxattr(; out: *mut c_char, bytes: usize) -> isize, missing() as isize;
    llistxattr(; out: *mut c_char, bytes: usize) -> isize, missing() as isize;
    realpath(; out: *mut c_char) -> *mut c_void, no_pointer();
    __realpath_chk(; out: *mut c_char, bytes: usize) -> *mut c_void, no_pointer();
    scandir(; list: *mut c_void, filter: *mut c_void, order: *mut c_void) -> c_int, missing();
    scandir64(; list: *mut c_void, filter: *mut c_void, order: *mut c_void) -> c_int, missing();
}

/// The render node's number, as `stat` tells it.
const RENDER: libc::dev_t = libc::makedev(226, RENDER_MINOR);

/// Gives what was told of a node the render node's number.
fn number(place: Option<&CardPath>, answer: c_int, out: *mut libc::stat) -> c_int {
    if answer == 0 && matches!(place, Some(CardPath::Card)) {
        // SAFETY: the real function has written it.
        unsafe { (*out).st_rdev = RENDER };
    }
    answer
}

/// Functions that tell of a path.
macro_rules! tells {
    ($($name:ident($($before:ident)?; $($after:ident)?);)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// As of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($before: c_int,)? path: *const c_char, out: *mut libc::stat $(, $after: c_int)?) -> c_int {
            meant!(path, place);
            let answer = real!(
                $name($($before: c_int,)? path: *const c_char, out: *mut libc::stat $(, $after: c_int)?) -> c_int, missing()
            );
            number(place.as_ref(), answer, out)
        }
    )*};
}

tells! {
    stat(;);
    stat64(;);
    lstat(;);
    lstat64(;);
    fstatat(dir; flags);
    fstatat64(dir; flags);
    __xstat(version;);
    __xstat64(version;);
    __lxstat(version;);
    __lxstat64(version;);
}

/// Functions that tell of a descriptor.
macro_rules! tells_of_descriptors {
    ($($name:ident($($before:ident)?);)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        ///
        /// # Safety
        /// As of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($before: c_int,)? fd: c_int, out: *mut libc::stat) -> c_int {
            let answer = real!($name($($before: c_int,)? fd: c_int, out: *mut libc::stat) -> c_int, missing());
            if answer == 0 && Device::current().is_some_and(|device| device.owns(fd)) {
                // SAFETY: the real function has written it.
                unsafe {
                    (*out).st_mode = libc::S_IFCHR | 0o660;
                    (*out).st_rdev = RENDER;
                }
            }
            answer
        }
    )*};
}

tells_of_descriptors! {
    fstat();
    fstat64();
    __fxstat(version);
    __fxstat64(version);
}

/// Functions that map a file. Early in a process, and in allocators, they must do nothing else: no other library is asked.
macro_rules! maps {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the C library: a buffer of the card may lie in a file of its own.")]
        ///
        /// # Safety
        /// As of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            at: *mut c_void, bytes: usize, rights: c_int, kind: c_int, fd: c_int, offset: libc::off_t,
        ) -> *mut c_void {
            let (at, bytes, offset) = (at as u64, bytes as u64, offset as u64);
            let is_file = fd >= 0 && kind & libc::MAP_ANONYMOUS == 0;
            // SAFETY: the caller's promise, handed on.
            let mapped = unsafe {
                match Device::current().filter(|device| is_file && device.owns(fd)) {
                    Some(device) => device.vm.map_for_program(at, bytes, rights, kind, offset),
                    None => map_raw(at, bytes, rights, kind, fd, offset),
                }
            };
            mapped as *mut c_void
        }
    )*};
}

maps! { mmap mmap64 }

/// `ioctl` of the C library: answers KFD's and DRM's on the card's descriptors.
///
/// # Safety
/// As of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // Consoles have requests of KFD's type too; they are numbered without a size.
    let (kind, bytes) = ((request >> 8) as u8, (request >> 16 & 0x3fff) as usize);
    let handle = match kind {
        b'K' => kfd::ioctl,
        drm::TYPE => drm::ioctl,
        drm::sync_file::TYPE => {
            if let Some(device) = Device::current().filter(|device| device.drm.owns(fd)) {
                let at = Argument { at: argument as u64, bytes, answered: true };
                // SAFETY: where the answer goes is the program's to say.
                let answer =
                    unsafe { drm::sync_file::own_ioctl(&device.drm, fd, (request & 0xff) as u32, at) };
                return answer.map_or_else(fail, |()| 0);
            }
            return real!(ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int, missing());
        }
        drm::prime::TYPE if request == drm::prime::SYNC && drm::prime::is_buffer(fd) => {
            return drm::prime::sync(argument as u64).map_or_else(fail, |()| 0);
        }
        _ => return real!(ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int, missing()),
    };
    match Device::current() {
        Some(device) if bytes > 0 && device.owns(fd) => {
            let number = (request & 0xff) as u32;
            let answer = catch_unwind(AssertUnwindSafe(|| {
                // SAFETY: where the answer goes is the program's to say.
                unsafe { handle(device, number, argument as u64, bytes) }
            }));
            // A bug of ours, of which the panic's message tells: no reason to end the program.
            let answer = answer.unwrap_or(Err(Errno(libc::EIO)));
            if device.settings.trace {
                log!("ioctl {} {number:#04x}: {answer:?}", char::from(kind));
            }
            answer.map_or_else(fail, |()| 0)
        }
        // A card that a parent process opened: as from KFD.
        _ if bytes > 0 && device::is_inherited(fd) => fail(Errno::BAD_FILE),
        _ => real!(ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int, missing()),
    }
}
