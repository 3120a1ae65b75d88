//! HIP's calls for memory that host and card share, and those that rely on its coherence.
//!
//! Flags are handed on as they are: HIP keeps them for `hipHostGetFlags` and `hipPointerGetAttributes`. Not here are calls
//! whose memory is coarse-grained already: `hipMalloc`, `hipMallocAsync`, `hipMallocFromPoolAsync`.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::AtomicBool;

use crate::hsa;
use crate::policy::{self, Mode};
use crate::real::real;

/// Values of hipError_t.
const NOT_SUPPORTED: c_int = 801;
const NO_SUCH_SYMBOL: c_int = 302;

/// What a program asks for.
enum Wish {
    /// Memory, coherent only because HIP's default is.
    Memory,
    /// Coherence, by a flag.
    Coherence,
    /// What is none of ours: registers of a device, memory of signals, hints of another kind.
    Other,
}

/// By flags of `hipHostMalloc`: Coherent, and Uncached of HIP 7.
fn host(flags: c_uint) -> Wish {
    if flags & (0x4000_0000 | 0x1000_0000) != 0 { Wish::Coherence } else { Wish::Memory }
}

/// By flags of `hipHostRegister`: Uncached of HIP 7, IoMemory.
fn register(flags: c_uint) -> Wish {
    match flags {
        _ if flags & 0x8000_0000 != 0 => Wish::Coherence,
        _ if flags & 0x4 != 0 => Wish::Other,
        _ => Wish::Memory,
    }
}

/// By flags of `hipExtMallocWithFlags`: all but SignalMemory, whose 8 bytes HSA owns and only the packet processor waits on.
fn device(flags: c_uint) -> Wish {
    if flags == 0x2 { Wish::Other } else { Wish::Memory }
}

/// Of `hipMemAdvise`: UnsetCoarseGrain.
fn advice(advice: c_int) -> Wish {
    if advice == 101 { Wish::Coherence } else { Wish::Other }
}

fn ask(call: &'static str, wish: Wish, said: &AtomicBool, real: impl FnOnce() -> c_int) -> c_int {
    let mode = policy::mode();
    match wish {
        _ if mode == Mode::Leave => return real(),
        Wish::Other => return real(),
        Wish::Coherence if mode != Mode::All => {
            policy::refuse(said, &format!("{call} with coherence"), "Ask for non-coherent memory");
            return NOT_SUPPORTED;
        }
        Wish::Coherence | Wish::Memory => {}
    }
    // At its first call HIP allocates for itself too: let it do so before.
    let flags = 0;
    real!(HIP, hipInit(flags: c_uint) -> c_int, NO_SUCH_SYMBOL);
    policy::during(call, real)
}

macro_rules! asks {
    ($($name:ident($($arg:ident: $ty:ty),*) $wish:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of HIP.")]
        ///
        /// # Safety
        /// As of HIP.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            static SAID: AtomicBool = AtomicBool::new(false);
            ask(stringify!($name), $wish, &SAID, || real!(HIP, $name($($arg: $ty),*) -> c_int, NO_SUCH_SYMBOL))
        }
    )*};
}

asks! {
    hipHostMalloc(at: *mut *mut c_void, bytes: usize, flags: c_uint) host(flags);
    hipExtHostAlloc(at: *mut *mut c_void, bytes: usize, flags: c_uint) host(flags);
    hipHostAlloc(at: *mut *mut c_void, bytes: usize, flags: c_uint) host(flags);
    hipMallocHost(at: *mut *mut c_void, bytes: usize) Wish::Memory;
    hipMemAllocHost(at: *mut *mut c_void, bytes: usize) Wish::Memory;
    hipHostRegister(at: *mut c_void, bytes: usize, flags: c_uint) register(flags);
    hipMallocManaged(at: *mut *mut c_void, bytes: usize, flags: c_uint) Wish::Memory;
    hipExtMallocWithFlags(at: *mut *mut c_void, bytes: usize, flags: c_uint) device(flags);
    hipMemAdvise(at: *const c_void, bytes: usize, what: c_int, card: c_int) advice(what);
}

/// A kernel of HIP's that waits for a value would not see the host write it.
macro_rules! waits {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of HIP.")]
        ///
        /// # Safety
        /// As of HIP.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(stream: *mut c_void, at: *mut c_void, $($arg: $ty),*) -> c_int {
            static SAID: AtomicBool = AtomicBool::new(false);
            if policy::mode() != Mode::Leave && hsa::is_coarse_host_memory(at) {
                let what = concat!(stringify!($name), " on coarse-grained host memory");
                policy::refuse(&SAID, what, "Wait on memory of hipMallocSignalMemory");
                return NOT_SUPPORTED;
            }
            real!(HIP, $name(stream: *mut c_void, at: *mut c_void, $($arg: $ty),*) -> c_int, NO_SUCH_SYMBOL)
        }
    )*};
}

waits! {
    hipStreamWaitValue32(value: u32, flags: c_uint, mask: u32);
    hipStreamWaitValue64(value: u64, flags: c_uint, mask: u64);
}
