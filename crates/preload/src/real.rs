//! The functions that this library stands before.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// How the file names of HIP's and of HSA's libraries begin, whatever version and folder.
pub const HIP: &str = "libamdhip64";
/// See [`HIP`].
pub const HSA: &str = "libhsa-runtime64";

/// A function of a library, looked up once.
pub struct Real {
    name: &'static str,
    library: &'static str,
    at: AtomicPtr<c_void>,
}

impl Real {
    /// `name` ends with a NUL; `library` is [`HIP`] or [`HSA`].
    pub const fn new(library: &'static str, name: &'static str) -> Self {
        Self { name, library, at: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Where it is; null if no library has it.
    pub fn at(&self) -> *mut c_void {
        let at = self.at.load(Ordering::Acquire);
        if at.is_null() { self.look_up() } else { at }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: the name ends with a NUL.
        let mut at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast()) };
        if at.is_null() {
            // Python loads its modules, and HIP with them, where RTLD_NEXT does not look.
            at = self.among_loaded();
        }
        self.at.store(at, Ordering::Release);
        at
    }

    fn among_loaded(&self) -> *mut c_void {
        let mut search = Search { prefix: self.library, path: None };
        // SAFETY: `found` takes a Search, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(found), (&raw mut search).cast()) };
        let Some(path) = search.path else { return ptr::null_mut() };
        // SAFETY: C strings. Nothing is loaded that is not, and the handle is kept: the library stays, and so do pointers
        // into it.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if library.is_null() { ptr::null_mut() } else { libc::dlsym(library, self.name.as_ptr().cast()) }
        }
    }
}

struct Search {
    prefix: &'static str,
    path: Option<CString>,
}

unsafe extern "C" fn found(object: *mut libc::dl_phdr_info, _bytes: usize, search: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr hands over an object, and the Search that was given to it. Some objects have no name.
    let (name, search) = unsafe {
        let name = (*object).dlpi_name;
        if name.is_null() {
            return 0;
        }
        (CStr::from_ptr(name), &mut *search.cast::<Search>())
    };
    let hit = file_name(name).starts_with(search.prefix.as_bytes());
    if hit {
        search.path = Some(name.to_owned());
    }
    c_int::from(hit)
}

fn file_name(path: &CStr) -> &[u8] {
    path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// AMD's own libraries, by how their file names begin: what they ask of HSA they need as they ask it.
const RUNTIMES: [&str; 5] = ["libamdhip64", "libamdocl64", "libhsa-", "librocprof", "libroctracer"];

/// Whether the code at this address is in one of AMD's own libraries.
pub fn is_runtime(code: *const c_void) -> bool {
    // SAFETY: plain data, filled by dladdr where it says so; the name is that of a loaded object.
    unsafe {
        let mut object: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(code, &raw mut object) != 0 && named_like_a_runtime(object.dli_fname)
    }
}

/// # Safety
/// A C string, or null.
unsafe fn named_like_a_runtime(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let name = file_name(unsafe { CStr::from_ptr(path) });
    RUNTIMES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// Calls the real function: `real!(HIP, name(arg: Type) -> Type, lost)`, where `lost` is the result if there is none. It may
/// throw, and so may all of ours that call it: an exception goes on to the program, as it would without us.
macro_rules! real {
    ($library:ident, $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty, $lost:expr) => {{
        static REAL: crate::real::Real =
            crate::real::Real::new(crate::real::$library, concat!(stringify!($name), "\0"));
        let at = REAL.at();
        if at.is_null() {
            $lost
        } else {
            // SAFETY: the function of this name has this type, and the caller's promises are handed on.
            unsafe {
                std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(at)($($arg),*)
            }
        }
    }};
}
pub(crate) use real;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amds_libraries_are_known_by_their_names() {
        let runtime = |path: &CStr| {
            // SAFETY: a C string.
            unsafe { named_like_a_runtime(path.as_ptr()) }
        };
        assert!(runtime(c"/opt/rocm-6.2.0/lib/libamdhip64.so.6"));
        assert!(runtime(c"libhsa-runtime64.so.1"));
        assert!(runtime(c"/x/libhsa-amd-aqlprofile64.so"));
        assert!(runtime(c"/x/libamdhip64-0a1b2c3d.so.6"), "as wheels rename it");
        assert!(!runtime(c"/opt/libamdhip64.d/libtorch_hip.so"));
        assert!(!runtime(c"/usr/bin/rocminfo"));
        // SAFETY: null is allowed.
        assert!(!unsafe { named_like_a_runtime(ptr::null()) });
        assert!(!is_runtime(is_runtime as *const c_void), "this program");
    }
}
