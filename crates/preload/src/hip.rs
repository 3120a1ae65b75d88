//! HIP's calls for memory that host and card share, and those that rely on its coherence.
//!
//! Flags are handed on as they are: HIP keeps them for `hipHostGetFlags` and `hipPointerGetAttributes`. Not here are calls
//! whose memory is coarse-grained already: `hipMalloc`, `hipMallocAsync`, `hipMallocFromPoolAsync`.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::AtomicBool;

use crate::hsa;
use crate::policy::{self, CoarseMode};
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
    /// What is none of ours: registers of a device, hints of another kind, what HIP refuses.
    Other,
}

/// By flags of `hipHostMalloc`: Coherent, NonCoherent (both at once make no sense), and Uncached of HIP 7.
fn host(flags: c_uint) -> Wish {
    match flags & 0xc000_0000 {
        0xc000_0000 => Wish::Other,
        0x4000_0000 => Wish::Coherence,
        _ if flags & 0x1000_0000 != 0 => Wish::Coherence,
        _ => Wish::Memory,
    }
}

/// By flags of `hipHostRegister`: Uncached of HIP 7, IoMemory.
fn register(flags: c_uint) -> Wish {
    match flags {
        _ if flags & 0x8000_0000 != 0 => Wish::Coherence,
        _ if flags & 0x4 != 0 => Wish::Other,
        _ => Wish::Memory,
    }
}

/// Of `hipMemAdvise`: UnsetCoarseGrain.
fn advice(advice: c_int) -> Wish {
    if advice == 101 { Wish::Coherence } else { Wish::Other }
}

const COHERENCE: &str = "without PCIe atomics this card cannot share memory with the host while a kernel runs. Ask for \
                         non-coherent memory, or set WAVE32_COARSE=all to get memory that both see after synchronizing";
const WAIT: &str = "no kernel would see the host write there, and the wait would not end. Wait on memory of \
                    hipMallocSignalMemory, or set WAVE32_COARSE=off to have coherent memory";

fn ask(call: &'static str, wish: Wish, said: &AtomicBool, real: impl FnOnce() -> c_int) -> c_int {
    let mode = policy::mode();
    match wish {
        _ if mode == CoarseMode::Leave => return real(),
        Wish::Other => return real(),
        Wish::Coherence if mode != CoarseMode::All => {
            policy::refuse(said, &format!("{call} with coherence"), COHERENCE);
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
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
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
    hipMemCreate(at: *mut *mut c_void, bytes: usize, of: *const c_void, flags: c_ulonglong) Wish::Memory;
    hipMemAdvise(at: *const c_void, bytes: usize, what: c_int, card: c_int) advice(what);
}

/// `hipExtMallocWithFlags` of HIP. Fine-grained and uncached memory of the card becomes the usual kind: HIP refuses the
/// first or gives it by its version. Signals stay: HSA owns their 8 bytes, and only the packet processor waits on them.
///
/// # Safety
/// As of HIP.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn hipExtMallocWithFlags(
    at: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> c_int {
    const FINE: c_uint = 0x1;
    const UNCACHED: c_uint = 0x3;
    let changed = matches!(flags, FINE | UNCACHED) && policy::mode() != CoarseMode::Leave;
    if changed {
        policy::log(|| {
            format!(
                "hipExtMallocWithFlags: {bytes} bytes of the card, coarse-grained instead of flags {flags}"
            )
        });
    }
    let flags = if changed { 0 } else { flags };
    real!(
        HIP,
        hipExtMallocWithFlags(at: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int,
        NO_SUCH_SYMBOL
    )
}

/// A kernel of HIP's that waits for a value would not see the host write it.
macro_rules! waits {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of HIP.")]
        ///
        /// # Safety
        /// As of HIP.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(stream: *mut c_void, at: *mut c_void, $($arg: $ty),*) -> c_int {
            static SAID: AtomicBool = AtomicBool::new(false);
            if policy::mode() != CoarseMode::Leave && hsa::is_coarse_host_memory(at) {
                let what = concat!(stringify!($name), " on coarse-grained host memory");
                policy::refuse(&SAID, what, WAIT);
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
