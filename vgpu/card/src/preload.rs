//! The C library's functions that this library stands before.
//!
//! Paths of the card lead to it or to its files; everything else goes to the real function, unchanged. Those that take
//! variable arguments are declared with the ones they can have: x86-64 passes both alike.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::device::{self, Device};
use crate::errno::Errno;
use crate::kfd;
use crate::sysfs::{CardPath, place};
use crate::user;

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
pub(crate) use real;

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
    stat(; out: *mut c_void) -> c_int, missing();
    stat64(; out: *mut c_void) -> c_int, missing();
    lstat(; out: *mut c_void) -> c_int, missing();
    lstat64(; out: *mut c_void) -> c_int, missing();
    fstatat(dir: c_int; out: *mut c_void, flags: c_int) -> c_int, missing();
    fstatat64(dir: c_int; out: *mut c_void, flags: c_int) -> c_int, missing();
    __xstat(version: c_int; out: *mut c_void) -> c_int, missing();
    __xstat64(version: c_int; out: *mut c_void) -> c_int, missing();
    __lxstat(version: c_int; out: *mut c_void) -> c_int, missing();
    __lxstat64(version: c_int; out: *mut c_void) -> c_int, missing();
    statx(dir: c_int; flags: c_int, mask: c_uint, out: *mut c_void) -> c_int, missing();
    readlink(; out: *mut c_char, bytes: usize) -> isize, missing() as isize;
    readlinkat(dir: c_int; out: *mut c_char, bytes: usize) -> isize, missing() as isize;
    getxattr(; name: *const c_char, out: *mut c_void, bytes: usize) -> isize, missing() as isize;
    lgetxattr(; name: *const c_char, out: *mut c_void, bytes: usize) -> isize, missing() as isize;
    listxattr(; out: *mut c_char, bytes: usize) -> isize, missing() as isize;
    llistxattr(; out: *mut c_char, bytes: usize) -> isize, missing() as isize;
    realpath(; out: *mut c_char) -> *mut c_void, no_pointer();
}

/// Type of KFD's requests.
const KFD: c_ulong = b'K' as c_ulong;

/// `ioctl` of the C library: answers KFD's on the card's descriptors.
///
/// # Safety
/// As of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // Consoles have requests of this type too; they are numbered without a size.
    let (kind, bytes) = (request >> 8 & 0xff, (request >> 16 & 0x3fff) as usize);
    if kind == KFD && bytes > 0 {
        match Device::current() {
            Some(device) if device.owns(fd) => {
                let number = (request & 0xff) as u32;
                let answer = catch_unwind(AssertUnwindSafe(|| {
                    // SAFETY: where the answer goes is the program's to say.
                    unsafe { kfd::ioctl(device, number, argument as u64, bytes) }
                }));
                // A bug of ours, of which the panic's message tells: no reason to end the program.
                let answer = answer.unwrap_or(Err(Errno(libc::EIO)));
                if device.settings.trace {
                    log!("ioctl {number:#04x}: {answer:?}");
                }
                return answer.map_or_else(fail, |()| 0);
            }
            // A card that a parent process opened: as from KFD.
            _ if device::is_inherited(fd) => return fail(Errno::BAD_FILE),
            _ => {}
        }
    }
    real!(ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int, missing())
}
