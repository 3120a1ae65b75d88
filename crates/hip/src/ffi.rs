//! The C functions of libamdhip64 that are used, found by name in a library that is loaded at run time.
//!
//! Names, argument order and numbers are those of `hip_runtime_api.h`; they are the same from ROCm 5.2 to 7. Nothing
//! here depends on the layout of `hipDeviceProp_t`, which did change.

use libloading::Library;
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use wave32_device::DeviceError;

/// `hipError_t`.
pub(crate) type Status = c_int;
/// A stream, event, module, function or device address.
pub(crate) type Pointer = *mut c_void;

/// `hipError_t` values that are told apart.
pub(crate) mod status {
    use super::Status;
    pub(crate) const OUT_OF_MEMORY: Status = 2;
    pub(crate) const NOT_INITIALIZED: Status = 3;
    pub(crate) const DEINITIALIZED: Status = 4;
    pub(crate) const INSUFFICIENT_DRIVER: Status = 35;
    pub(crate) const NO_DEVICE: Status = 100;
    pub(crate) const INVALID_DEVICE: Status = 101;
    pub(crate) const INVALID_IMAGE: Status = 200;
    pub(crate) const NO_BINARY_FOR_GPU: Status = 209;
    pub(crate) const NOT_FOUND: Status = 500;
    pub(crate) const NOT_READY: Status = 600;
    /// Faults on the device, after which no call succeeds: illegal address, launch timeout, assertion, launch failure.
    pub(crate) const FAULTS: [Status; 4] = [700, 702, 710, 719];
}

/// `hipDeviceAttribute_t`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Attribute {
    ClockRate = 5,
    Integrated = 16,
    MaxGridDimX = 29,
    MaxGridDimY = 30,
    MaxGridDimZ = 31,
    MaxThreadsPerBlock = 56,
    MemoryBusWidth = 59,
    MemoryClockRate = 60,
    MultiprocessorCount = 63,
    MaxSharedMemoryPerBlock = 74,
    WarpSize = 87,
}

/// `hipStreamNonBlocking`: such a stream does not wait for the null stream.
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// `hipHostMallocNonCoherent`: ordinary memory for copies. The default is fine-grained, which RDNA1 reaches past its
/// caches, and not at all by atomics where the slot has none.
pub(crate) const HOST_NON_COHERENT: c_uint = 0x8000_0000;
/// `hipMemcpyKind`.
pub(crate) const HOST_TO_DEVICE: c_int = 1;
pub(crate) const DEVICE_TO_HOST: c_int = 2;
pub(crate) const DEVICE_TO_DEVICE: c_int = 3;
/// `hipStreamCaptureModeRelaxed`: this thread may allocate while a stream is being captured into a graph.
pub(crate) const CAPTURE_RELAXED: c_int = 2;

/// `hipPointerAttribute_t`, the same size in every release.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct PointerAttributes {
    /// `hipMemoryType`: its numbers changed with ROCm 6.
    pub(crate) kind: c_int,
    pub(crate) device: c_int,
    pub(crate) device_pointer: Pointer,
    pub(crate) host_pointer: Pointer,
    pub(crate) managed: c_int,
    pub(crate) flags: c_uint,
}

/// Bytes offered for a `hipDeviceProp_t`: no release's is 2 KB.
const PROPERTIES: usize = 8192;
/// Its first member is the device's name, in this many bytes.
const PROPERTIES_NAME: usize = 256;

macro_rules! functions {
    ($($field:ident = $symbol:literal $(or $newer:literal)? => fn($($arg:ty),* $(,)?) -> $ret:ty;)*) => {
        /// The functions of a loaded library, for the rest of the process's life.
        pub(crate) struct Api {
            $(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> $ret,)*
            /// Where it was found.
            pub(crate) name: String,
        }

        impl Api {
            fn find(library: &Library, name: String) -> Result<Self, String> {
                Ok(Self { $($field: {
                    $(// SAFETY: the type is that of the function's declaration in the vendor's header.
                      let newer = unsafe { library.get($newer.as_bytes()) };)?
                    // SAFETY: as above.
                    let found = unsafe { library.get($symbol.as_bytes()) };
                    $(let found = newer.or(found);
                      let _: &str = $newer;)?
                    *found.map_err(|_| format!("it has no function {}", $symbol))?
                },)* name })
            }
        }
    };
}

functions! {
    device_count = "hipGetDeviceCount" => fn(*mut c_int) -> Status;
    get_device = "hipGetDevice" => fn(*mut c_int) -> Status;
    set_device = "hipSetDevice" => fn(c_int) -> Status;
    device_name = "hipDeviceGetName" => fn(*mut c_char, c_int, c_int) -> Status;
    total_memory = "hipDeviceTotalMem" => fn(*mut usize, c_int) -> Status;
    attribute = "hipDeviceGetAttribute" => fn(*mut c_int, c_int, c_int) -> Status;
    pci_bus_id = "hipDeviceGetPCIBusId" => fn(*mut c_char, c_int, c_int) -> Status;
    // ROCm 6 gave the call with today's struct a name of its own.
    properties = "hipGetDeviceProperties" or "hipGetDevicePropertiesR0600" => fn(Pointer, c_int) -> Status;
    runtime_version = "hipRuntimeGetVersion" => fn(*mut c_int) -> Status;
    malloc = "hipMalloc" => fn(*mut Pointer, usize) -> Status;
    free = "hipFree" => fn(Pointer) -> Status;
    host_malloc = "hipHostMalloc" => fn(*mut Pointer, usize, c_uint) -> Status;
    host_free = "hipHostFree" => fn(Pointer) -> Status;
    memcpy_async = "hipMemcpyAsync" => fn(Pointer, *const c_void, usize, c_int, Pointer) -> Status;
    memset_words_async = "hipMemsetD32Async" => fn(Pointer, c_int, usize, Pointer) -> Status;
    stream_create = "hipStreamCreateWithFlags" => fn(*mut Pointer, c_uint) -> Status;
    stream_destroy = "hipStreamDestroy" => fn(Pointer) -> Status;
    stream_wait = "hipStreamWaitEvent" => fn(Pointer, Pointer, c_uint) -> Status;
    stream_capturing = "hipStreamIsCapturing" => fn(Pointer, *mut c_int) -> Status;
    capture_mode = "hipThreadExchangeStreamCaptureMode" => fn(*mut c_int) -> Status;
    address_range = "hipMemGetAddressRange" => fn(*mut Pointer, *mut usize, Pointer) -> Status;
    pointer_attributes = "hipPointerGetAttributes" => fn(*mut PointerAttributes, *const c_void) -> Status;
    event_create = "hipEventCreate" => fn(*mut Pointer) -> Status;
    event_destroy = "hipEventDestroy" => fn(Pointer) -> Status;
    event_record = "hipEventRecord" => fn(Pointer, Pointer) -> Status;
    event_query = "hipEventQuery" => fn(Pointer) -> Status;
    event_elapsed = "hipEventElapsedTime" => fn(*mut f32, Pointer, Pointer) -> Status;
    module_load = "hipModuleLoadData" => fn(*mut Pointer, *const c_void) -> Status;
    module_unload = "hipModuleUnload" => fn(Pointer) -> Status;
    module_function = "hipModuleGetFunction" => fn(*mut Pointer, Pointer, *const c_char) -> Status;
    launch = "hipModuleLaunchKernel"
        => fn(Pointer, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Pointer, *mut Pointer, *mut Pointer)
            -> Status;
    last_error = "hipGetLastError" => fn() -> Status;
    error_name = "hipGetErrorName" => fn(Status) -> *const c_char;
    error_string = "hipGetErrorString" => fn(Status) -> *const c_char;
}

/// The runtime's names: ROCm 7, 6, 5.
#[cfg(not(windows))]
const NAMES: [&str; 3] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"];
#[cfg(windows)]
const NAMES: [&str; 3] = ["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"];

/// Where AMD's packages put it, which is not in every loader's path.
const FOLDER: &str = "/opt/rocm/lib";

/// What to do where there is no runtime.
const ADVICE: &str = if cfg!(windows) {
    "use `--device vulkan`"
} else {
    "install ROCm's HIP runtime (Debian and Ubuntu: `libamdhip64-5` or newer), name the library with \
     WAVE32_HIP_LIBRARY, or use `--device vulkan`"
};

/// The process that loaded a runtime first.
static STARTED: OnceLock<u32> = OnceLock::new();

/// True in a fork of a process that had a runtime: none survives that.
pub(crate) fn forked() -> bool {
    STARTED.get().is_some_and(|process| *process != std::process::id())
}

impl Api {
    /// Loads the library that is asked for, by a parameter or `WAVE32_HIP_LIBRARY`; else the one that the process has
    /// already; else the newest that is found.
    ///
    /// # Errors
    /// `Unavailable` where there is no HIP runtime; it says what to install.
    pub(crate) fn load(named: Option<&Path>) -> Result<Arc<Self>, DeviceError> {
        if forked() {
            return Err(DeviceError::Unavailable(
                "this process is a fork of one that used HIP before; start processes by spawning, or use HIP only \
                 after forking"
                    .into(),
            ));
        }
        let variable = std::env::var_os("WAVE32_HIP_LIBRARY").filter(|value| !value.is_empty());
        let (library, name) = match named.map(Path::as_os_str).or(variable.as_deref()) {
            Some(name) => {
                let shown = name.to_string_lossy().into_owned();
                let library = open(name)
                    .map_err(|e| DeviceError::Unavailable(format!("cannot load {shown}: {e}; {ADVICE}")))?;
                (library, shown)
            }
            None => search()?,
        };
        let _ = STARTED.set(std::process::id());
        let api = Self::find(&library, name.clone())
            .map_err(|e| DeviceError::Unavailable(format!("{name} is no HIP runtime: {e}; {ADVICE}")))?;
        // Unloading runs the runtime's exit handlers, which may wait for a lost GPU.
        std::mem::forget(library);
        Ok(Arc::new(api))
    }

    /// What the runtime calls an error.
    pub(crate) fn says(&self, status: Status) -> String {
        // SAFETY: (both) HIP returns a static string for any number.
        let (name, said) = unsafe { (text((self.error_name)(status)), text((self.error_string)(status))) };
        match (name.is_empty(), said.is_empty() || said == name) {
            (true, true) => format!("error {status}"),
            (_, true) => format!("{name} ({status})"),
            _ => format!("{name} ({status}): {said}"),
        }
    }

    /// A text that a call writes about a device; empty where it fails.
    pub(crate) fn text_of(
        &self,
        call: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Status,
        device: c_int,
    ) -> String {
        let mut bytes = [0u8; 256];
        // SAFETY: at most 255 characters are written; the last byte stays 0.
        let status = unsafe { call(bytes.as_mut_ptr().cast(), 255, device) };
        let end = CStr::from_bytes_until_nul(&bytes).map(|s| s.to_string_lossy().trim().to_string());
        if status == 0 { end.unwrap_or_default() } else { String::new() }
    }

    /// An attribute; none where the runtime does not know it.
    pub(crate) fn attribute_of(&self, attribute: Attribute, device: c_int) -> Option<u32> {
        let mut value = 0;
        // SAFETY: writes one int.
        let status = unsafe { (self.attribute)(&mut value, attribute as c_int, device) };
        (status == 0).then(|| u32::try_from(value).ok()).flatten()
    }

    /// `gcnArchName`, e.g. `gfx1010:xnack-`.
    pub(crate) fn arch_of(&self, device: c_int) -> Option<String> {
        let mut properties = [0u64; PROPERTIES / 8];
        // SAFETY: the buffer is aligned and larger than the struct of any release.
        let status = unsafe { (self.properties)(properties.as_mut_ptr().cast(), device) };
        let bytes: Vec<u8> = properties.iter().flat_map(|word| word.to_ne_bytes()).collect();
        (status == 0).then(|| arch(&bytes)).flatten()
    }

    /// The runtime's version as it tells it: major * 10^7 + minor * 10^5 + patch; 0 where it does not.
    pub(crate) fn version_number(&self) -> c_int {
        let mut version = 0;
        // SAFETY: writes one int.
        let status = unsafe { (self.runtime_version)(&mut version) };
        if status == 0 { version } else { 0 }
    }

    /// The runtime's version, e.g. 5.2.21153.
    pub(crate) fn version(&self) -> String {
        match self.version_number() {
            0 => "of unknown version".into(),
            version => {
                format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
            }
        }
    }
}

/// `gcnArchName` out of a `hipDeviceProp_t` whose layout differs between releases: the one text in it, after the
/// device's name, that starts with `gfx`.
pub fn arch(properties: &[u8]) -> Option<String> {
    let rest = properties.get(PROPERTIES_NAME..)?;
    let start = rest.windows(3).position(|w| w == b"gfx")?;
    let name: Vec<u8> = rest[start..].iter().copied().take_while(u8::is_ascii_graphic).collect();
    String::from_utf8(name).ok()
}

fn open(name: &OsStr) -> Result<Library, libloading::Error> {
    // SAFETY: loading runs the vendor's initialisers, which is what the caller asked for.
    unsafe { Library::new(name) }
}

/// A runtime that is in the process already, with its name: two of them in one would fight over the card.
#[cfg(unix)]
fn resident() -> Option<(Library, String)> {
    use libloading::os::unix::{Library as Unix, RTLD_NOW};
    // `RTLD_NOLOAD` of Linux and the BSDs' `dlfcn.h`.
    const RTLD_NOLOAD: c_int = if cfg!(target_os = "linux") { 4 } else { 0x2000 };
    NAMES.map(String::from).into_iter().chain(std::iter::once_with(mapped).flatten()).find_map(|name| {
        // SAFETY: nothing is loaded, so no initialiser runs.
        let found = unsafe { Unix::open(Some(&name), RTLD_NOW | RTLD_NOLOAD) }.ok()?;
        Some((Library::from(found), name))
    })
}

/// Files of this process that are a runtime under another name, as Python wheels carry it (libamdhip64-1a2b3c4d.so).
#[cfg(unix)]
fn mapped() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let is_runtime =
        |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with("libamdhip64"));
    let mut found: Vec<String> = paths.filter(is_runtime).map(String::from).collect();
    found.dedup();
    found
}

#[cfg(not(unix))]
fn resident() -> Option<(Library, String)> {
    None
}

fn search() -> Result<(Library, String), DeviceError> {
    if let Some(found) = resident() {
        return Ok(found);
    }
    let in_folder = NAMES.map(|name| format!("{FOLDER}/{name}"));
    let places = NAMES.iter().map(|name| (*name).to_string()).chain(in_folder);
    let mut reasons = Vec::new();
    for place in places {
        match open(OsStr::new(&place)) {
            Ok(library) => return Ok((library, place)),
            // A library that is there and does not load tells more than one that is not.
            Err(error) => reasons.push(error.to_string()),
        }
    }
    let broken = reasons.into_iter().find(|reason| !reason.contains("No such file"));
    let broken = broken.map_or(String::new(), |reason| format!(" ({reason})"));
    Err(DeviceError::Unavailable(format!("no HIP runtime, libamdhip64, was found{broken}; {ADVICE}")))
}

/// The text behind a pointer that the library gave us; empty for none.
///
/// # Safety
/// `text` is null or a string that ends with a zero byte and lives as long as the library.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::arch;

    #[test]
    fn the_target_is_found_wherever_the_struct_holds_it() {
        // The name mentions another target: it is not the one.
        let mut bytes = b"AMD Radeon RX 5600 XT (gfx1030)".to_vec();
        for offset in [396, 1160] {
            bytes.resize(offset, 0);
            bytes.extend(b"gfx1010:xnack-");
            bytes.resize(2000, 0);
            assert_eq!(arch(&bytes).as_deref(), Some("gfx1010:xnack-"));
            bytes.truncate(300);
        }
        assert_eq!(arch(&[0; 64]), None);
        assert_eq!(arch(&[0; 1024]), None);
    }
}
