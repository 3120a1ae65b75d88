//! The C functions of libMIOpen and of the HIP runtime that it is linked to, found by name in a loaded library.
//!
//! Types and argument order are those of `miopen.h` (MIOpen 2.16 of ROCm 5.2 to 3.5 of ROCm 7: the functions here
//! did not change) and `hip_runtime_api.h`. Of the HIP runtime only what takes scalars and pointers is used: the
//! layout of `hipDeviceProp_t` did change.

use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

/// `miopenStatus_t` or `hipError_t`; 0 is success in both.
pub type Status = c_int;
/// `miopenHandle_t`, a descriptor, an event, a device address.
pub type Pointer = *mut c_void;
/// A device address that is read.
pub type Address = *const c_void;

/// `miopenConvSolution_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Solution {
    /// Milliseconds, measured or estimated.
    pub time: f32,
    /// Workspace bytes.
    pub workspace_size: usize,
    /// The solver.
    pub solution_id: u64,
    /// `miopenConvAlgorithm_t`.
    pub algorithm: c_int,
}

/// `miopenConvAlgoPerf_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Perf {
    /// The pass's algorithm enumeration; their common numbers agree.
    pub algorithm: c_int,
    /// Milliseconds.
    pub time: f32,
    /// Workspace bytes.
    pub memory: usize,
}

/// A struct of functions, each loaded by the name that is given for it.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident ($prefix:ident) { $($field:ident = $symbol:expr => fn($($arg:ty),* $(,)?) -> $ret:ty;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name { $(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> $ret,)* }
        impl $name {
            fn load(library: &Library, $prefix: &str) -> Result<Self, String> {
                Ok(Self { $($field: {
                    let name = $symbol;
                    // SAFETY: the type is that of the function's declaration in the vendor's header.
                    let found = unsafe { library.get(name.as_bytes()) };
                    *found.map_err(|_| format!("it has no function {name}"))?
                },)* })
            }
        }
    };
}

functions! {
    /// HIP's memory, device and event functions.
    Hip(properties) {
        get_device_count = "hipGetDeviceCount" => fn(*mut c_int) -> Status;
        set_device = "hipSetDevice" => fn(c_int) -> Status;
        device_name = "hipDeviceGetName" => fn(*mut c_char, c_int, c_int) -> Status;
        pci_bus_id = "hipDeviceGetPCIBusId" => fn(*mut c_char, c_int, c_int) -> Status;
        properties = properties => fn(Pointer, c_int) -> Status;
        runtime_version = "hipRuntimeGetVersion" => fn(*mut c_int) -> Status;
        malloc = "hipMalloc" => fn(*mut Pointer, usize) -> Status;
        free = "hipFree" => fn(Pointer) -> Status;
        memcpy = "hipMemcpy" => fn(Pointer, Address, usize, c_int) -> Status;
        synchronize = "hipDeviceSynchronize" => fn() -> Status;
        event_create = "hipEventCreate" => fn(*mut Pointer) -> Status;
        event_destroy = "hipEventDestroy" => fn(Pointer) -> Status;
        event_record = "hipEventRecord" => fn(Pointer, Pointer) -> Status;
        event_synchronize = "hipEventSynchronize" => fn(Pointer) -> Status;
        event_elapsed = "hipEventElapsedTime" => fn(*mut f32, Pointer, Pointer) -> Status;
        error_string = "hipGetErrorString" => fn(Status) -> *const c_char;
    }
}

functions! {
    /// What all three passes share.
    Common(_prefix) {
        version = "miopenGetVersion" => fn(*mut usize, *mut usize, *mut usize) -> Status;
        create = "miopenCreate" => fn(*mut Pointer) -> Status;
        destroy = "miopenDestroy" => fn(Pointer) -> Status;
        error_string = "miopenGetErrorString" => fn(Status) -> *const c_char;
        create_tensor = "miopenCreateTensorDescriptor" => fn(*mut Pointer) -> Status;
        destroy_tensor = "miopenDestroyTensorDescriptor" => fn(Pointer) -> Status;
        set_tensor = "miopenSet4dTensorDescriptorEx"
            => fn(Pointer, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int) -> Status;
        create_convolution = "miopenCreateConvolutionDescriptor" => fn(*mut Pointer) -> Status;
        destroy_convolution = "miopenDestroyConvolutionDescriptor" => fn(Pointer) -> Status;
        init_convolution = "miopenInitConvolutionDescriptor"
            => fn(Pointer, c_int, c_int, c_int, c_int, c_int, c_int, c_int) -> Status;
        set_groups = "miopenSetConvolutionGroupCount" => fn(Pointer, c_int) -> Status;
    }
}

functions! {
    /// One pass. Two operands and the convolution come before the result in all of them.
    Pass(pass) {
        count = format!("miopenConvolution{pass}GetSolutionCount")
            => fn(Pointer, Pointer, Pointer, Pointer, Pointer, *mut usize) -> Status;
        solutions = format!("miopenConvolution{pass}GetSolution")
            => fn(Pointer, Pointer, Pointer, Pointer, Pointer, usize, *mut usize, *mut Solution) -> Status;
        compile = format!("miopenConvolution{pass}CompileSolution")
            => fn(Pointer, Pointer, Pointer, Pointer, Pointer, u64) -> Status;
        immediate = format!("miopenConvolution{pass}Immediate")
            => fn(Pointer, Pointer, Address, Pointer, Address, Pointer, Pointer, Pointer, Pointer, usize, u64)
                -> Status;
        workspace = format!("miopenConvolution{pass}GetWorkSpaceSize")
            => fn(Pointer, Pointer, Pointer, Pointer, Pointer, *mut usize) -> Status;
        find = format!("miopenFindConvolution{pass}Algorithm")
            => fn(Pointer, Pointer, Address, Pointer, Address, Pointer, Pointer, Pointer, c_int, *mut c_int,
                *mut Perf, Pointer, usize, bool) -> Status;
        run = format!("miopenConvolution{pass}")
            => fn(Pointer, Address, Pointer, Address, Pointer, Address, Pointer, c_int, Address, Pointer, Pointer,
                Pointer, usize) -> Status;
    }
}

/// A loaded libMIOpen with the HIP runtime that it uses.
pub struct Libraries {
    pub(crate) hip: Hip,
    pub(crate) common: Common,
    pub(crate) forward: Pass,
    pub(crate) backward_data: Pass,
    pub(crate) backward_weights: Pass,
    // Unloading runs the runtime's exit handlers, which may wait for a lost GPU: never dropped.
    _loaded: std::mem::ManuallyDrop<Vec<Library>>,
}

/// Where the HIP runtime is looked for when libMIOpen does not bring it along; ROCm 7, 6, 5.
const HIP_NAMES: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

impl Libraries {
    /// Loads the library at `path` (or by that name, as the system's loader finds it).
    ///
    /// # Errors
    /// One line for people that names the missing function.
    pub fn load(path: &Path) -> Result<Self, String> {
        // SAFETY: loading runs the vendor's initialisers; this process is a guarded child made for that.
        let miopen = unsafe { Library::new(path) };
        let miopen = miopen.map_err(|e| format!("cannot load {}: {e}", path.display()))?;
        // A look-up in libMIOpen goes through the libraries it is linked to as well, and so finds the very runtime
        // that MIOpen uses, whichever version that is.
        let (hip, extra) = match Hip::load(&miopen, properties(&miopen)) {
            Ok(hip) => (hip, None),
            Err(_) => {
                // SAFETY: as above.
                let found = HIP_NAMES.iter().find_map(|name| unsafe { Library::new(name) }.ok());
                let library = found.ok_or("the HIP runtime, libamdhip64.so, is not found")?;
                (
                    Hip::load(&library, properties(&library)).map_err(|e| format!("libamdhip64: {e}"))?,
                    Some(library),
                )
            }
        };
        let of = |e: String| format!("{}: {e}", path.display());
        Ok(Self {
            hip,
            common: Common::load(&miopen, "").map_err(of)?,
            forward: Pass::load(&miopen, "Forward").map_err(of)?,
            backward_data: Pass::load(&miopen, "BackwardData").map_err(of)?,
            backward_weights: Pass::load(&miopen, "BackwardWeights").map_err(of)?,
            _loaded: std::mem::ManuallyDrop::new([Some(miopen), extra].into_iter().flatten().collect()),
        })
    }
}

/// The properties' function: ROCm 6 gave the one with today's struct a name of its own.
fn properties(library: &Library) -> &'static str {
    const TODAY: &str = "hipGetDevicePropertiesR0600";
    // SAFETY: only asked whether it is there.
    let here = unsafe { library.get::<Pointer>(TODAY.as_bytes()) }.is_ok();
    if here { TODAY } else { "hipGetDeviceProperties" }
}

/// The text behind a pointer that a library gave us; empty for none.
///
/// # Safety
/// `text` is null or a string that ends with a zero byte and lives as long as the library.
pub unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
