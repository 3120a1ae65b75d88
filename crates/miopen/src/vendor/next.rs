//! The MIOpen behind this one: the vendor's, which answers what we do not take.
//!
//! **Which calls are ours** is settled once for each exported function, at its first call ([`wave32_resolve`]): what exports a
//! name is a jump through a slot (`scripts/slots.sh`), which then leads to our function or to the vendor's for good. So
//! what goes through costs a jump, keeps its arguments as they are, and needs no declaration of ours. Ours are the
//! convolutions, fusion plans, the problems of Find 2.0 and batch norm's training ([`is_taken`]), the creation and end
//! of the objects that they work with, and whatever the vendor's library lacks.
//!
//! **Which objects are ours**: none, where there is a MIOpen behind. What the program holds as its handle, tensor or
//! convolution descriptor is the vendor's own object; we keep a record under its address. A call that goes through gets
//! what its library made, be it batch norm on a descriptor that a convolution has used, a call that fills a descriptor
//! in (`miopenDeriveBNTensorDescriptor`), or one of a later release that we never heard of. The other way, objects of
//! ours that are translated on the way, would need every argument of every call, arrays of descriptors included, and
//! would crash on the first unknown one. The vendor's descriptors are therefore also what is true: a convolution reads
//! its tensors by the vendor's own `miopenGetTensorDescriptor`, since calls that we never see may have changed them.
//! Convolution descriptors are only written by calls that we take, so our record of them is true. The stream of a handle is
//! set on both sides.
//!
//! **Where it is**: the library may be in this process already (a wheel's, under a name of its own), whether by `dlopen`
//! with `RTLD_LOCAL` or not, so `RTLD_NEXT` would not find it: the loaded objects are looked through. Else it is the one
//! that `wave32 miopen install` has kept beside us, or the one beside the HIP runtime in this process: where a program
//! needs `libMIOpen.so.1` and ours is preloaded under that very name, the loader takes no second one.
//! `WAVE32_ROUTE=ours` looks for none, `vendor` hands everything to it, `probe` lets [`crate::conv::proven`] choose.

use crate::abi::entry::{Failure, Outcome, say_once};
use crate::abi::ffi::{Data, Id, Status, status};
use crate::abi::log;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use wave32_host::own;
use wave32_problem::Direction;

/// Who answers, as `WAVE32_ROUTE` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// Convolutions are ours, the rest is the vendor's where there is one.
    Convolutions,
    /// Everything is ours; no other MIOpen is looked for.
    Ours,
    /// Everything is the vendor's, where there is one.
    Vendor,
    /// As without it, but a convolution goes to a solver of the vendor's that [`crate::conv::proven`] knows for faster.
    Probe,
}

fn route() -> Route {
    static ROUTE: OnceLock<Route> = OnceLock::new();
    *ROUTE.get_or_init(|| match std::env::var("WAVE32_ROUTE").as_deref() {
        Ok("ours") => Route::Ours,
        Ok("vendor") => Route::Vendor,
        Ok("probe") => Route::Probe,
        Err(_) | Ok("") => Route::Convolutions,
        Ok(other) => {
            say_once(&format!(
                "wave32: WAVE32_ROUTE={other} is none of `ours`, `vendor`, `probe`: no effect"
            ));
            Route::Convolutions
        }
    })
}

/// May solvers of the vendor's be taken that the probe has proven?
pub fn takes_proven() -> bool {
    route() == Route::Probe
}

/// What is written to the vendor's convolution descriptor `id`; the arrays have an element per spatial dimension.
#[derive(Debug)]
pub struct Written<'a> {
    /// The descriptor.
    pub id: Id,
    /// Zero padding on both sides.
    pub pads: &'a [i64],
    /// Strides.
    pub strides: &'a [i64],
    /// Dilations.
    pub dilations: &'a [i64],
    /// Groups.
    pub groups: i64,
}

/// The vendor's library, opened; never closed.
#[derive(Debug)]
pub struct Next {
    library: usize,
    path: PathBuf,
}

/// The vendor's MIOpen, if there is one behind us.
pub fn next() -> Option<&'static Next> {
    static NEXT: OnceLock<Option<Next>> = OnceLock::new();
    NEXT.get_or_init(|| if route() == Route::Ours { None } else { search() }).as_ref()
}

/// Calls a function of the vendor's by name; its absence or its status is the failure.
macro_rules! theirs {
    ($next:expr, $name:tt ($($arg:expr => $type:ty),*)) => {{
        $next.symbol($name).and_then(|address| {
            // SAFETY: the type is that of the function's declaration in the vendor's header, the same in all releases.
            let function: unsafe extern "C" fn($($type),*) -> Status = unsafe { std::mem::transmute(address) };
            // SAFETY: objects are the vendor's own (their ids were checked to be alive), pointers lead to locals.
            match unsafe { function($($arg),*) } {
                status::SUCCESS => Ok(()),
                failed => {
                    Err(Failure::new(failed, format!("the vendor's {} says {failed}", $name.to_string_lossy())))
                }
            }
        })
    }};
}

impl Next {
    fn find(&self, name: &CStr) -> Option<usize> {
        // SAFETY: an open library, and a string with an end.
        let found = unsafe { libc::dlsym(self.library as *mut c_void, name.as_ptr()) };
        (!found.is_null()).then_some(found as usize)
    }

    fn symbol(&self, name: &CStr) -> Outcome<*const c_void> {
        let found = self.find(name).map(|address| address as *const c_void);
        found.ok_or_else(|| Failure::absent(format!("the vendor's MIOpen has no {}", name.to_string_lossy())))
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// MIOpen's version.
    pub fn version(&self) -> Option<[usize; 3]> {
        let mut numbers = [0usize; 3];
        let [major, minor, patch] = &mut numbers;
        theirs!(self, c"miopenGetVersion"(major => *mut usize, minor => *mut usize, patch => *mut usize))
            .ok()?;
        Some(numbers)
    }

    /// HIP's version, where this is a HIP runtime.
    pub fn runtime_version(&self) -> Option<c_int> {
        let mut version: c_int = 0;
        theirs!(self, c"hipRuntimeGetVersion"(&mut version => *mut c_int)).ok()?;
        Some(version)
    }

    /// What a HIP runtime says of a device in words: `hipDeviceGetName`, `hipDeviceGetPCIBusId`.
    pub fn device_text(&self, call: &CStr, device: usize) -> Option<String> {
        let mut text = [0u8; 256];
        let (length, device) = (255 as c_int, c_int::try_from(device).ok()?);
        theirs!(self, call(text.as_mut_ptr() => *mut u8, length => c_int, device => c_int)).ok()?;
        Some(CStr::from_bytes_until_nul(&text).ok()?.to_string_lossy().trim().to_string())
    }

    /// Runs a solution of Immediate mode. Operands and result are in that mode's order: descriptor, address.
    ///
    /// # Errors
    /// The vendor's; the convolution descriptor is brought in step with ours first.
    pub fn immediate(
        &self,
        handle: Id,
        direction: Direction,
        operands: [(Id, Data); 3],
        convolution: &Written<'_>,
        workspace: (Data, u64),
        solution: u64,
    ) -> Outcome {
        let narrow = |values: &[i64]| values.iter().map(|&value| value as c_int).collect::<Vec<_>>();
        let (id, spatial) = (convolution.id, convolution.pads.len() as c_int);
        let (pads, strides, dilations) =
            (narrow(convolution.pads), narrow(convolution.strides), narrow(convolution.dilations));
        theirs!(self, c"miopenInitConvolutionNdDescriptor"(
            id => Id, spatial => c_int, pads.as_ptr() => *const c_int,
            strides.as_ptr() => *const c_int, dilations.as_ptr() => *const c_int, 0 => c_int
        ))?;
        theirs!(self, c"miopenSetConvolutionGroupCount"(id => Id, convolution.groups as c_int => c_int))?;
        let call = match direction {
            Direction::Forward => c"miopenConvolutionForwardImmediate",
            Direction::BackwardData => c"miopenConvolutionBackwardDataImmediate",
            Direction::BackwardWeights => c"miopenConvolutionBackwardWeightsImmediate",
        };
        let [(first, a), (second, b), (result, c)] = operands;
        theirs!(self, call(
            handle => Id, first => Id, a => Data, second => Id, b => Data, id => Id, result => Id, c => Data,
            workspace.0 => Data, workspace.1 as usize => usize, solution => u64
        ))
    }

    /// A handle of the vendor's, on a stream or on the default one.
    ///
    /// # Errors
    /// The status that AMD's MIOpen returned, where its call fails.
    pub fn create_handle(&self, stream: Option<*mut c_void>) -> Outcome<Id> {
        let mut id: Id = 0;
        match stream {
            Some(stream) => {
                theirs!(self, c"miopenCreateWithStream"(&mut id => *mut Id, stream => *mut c_void))?;
            }
            None => theirs!(self, c"miopenCreate"(&mut id => *mut Id))?,
        }
        Ok(id)
    }

    /// Ends one.
    ///
    /// # Errors
    /// The status that AMD's MIOpen returned, where its call fails.
    pub fn destroy_handle(&self, id: Id) -> Outcome {
        theirs!(self, c"miopenDestroy"(id => Id))
    }

    /// Puts the vendor's work on this stream.
    ///
    /// # Errors
    /// The status that AMD's MIOpen returned, where its call fails.
    #[allow(clippy::not_unsafe_ptr_arg_deref)] // an id of HIP's, which nobody reads through here
    pub fn set_stream(&self, id: Id, stream: *mut c_void) -> Outcome {
        theirs!(self, c"miopenSetStream"(id => Id, stream => *mut c_void))
    }

    /// Times the vendor's work.
    ///
    /// # Errors
    /// The status that AMD's MIOpen returned, where its call fails.
    pub fn enable_profiling(&self, id: Id, enable: u8) -> Outcome {
        theirs!(self, c"miopenEnableProfiling"(id => Id, enable => u8))
    }

    /// Milliseconds of the vendor's last call that was timed.
    ///
    /// # Errors
    /// The status that AMD's MIOpen returned, where its call fails.
    pub fn kernel_time(&self, id: Id) -> Outcome<f32> {
        let mut time = 0.0;
        theirs!(self, c"miopenGetKernelTime"(id => Id, &mut time => *mut f32))?;
        Ok(time)
    }

    /// An empty tensor descriptor.
    ///
    /// # Errors
    /// The status that AMD's MIOpen returned, where its call fails.
    pub fn create_tensor(&self) -> Outcome<Id> {
        let mut id: Id = 0;
        theirs!(self, c"miopenCreateTensorDescriptor"(&mut id => *mut Id))?;
        Ok(id)
    }

    /// Describes one.
    ///
    /// # Errors
    /// The status that AMD's MIOpen returned, where its call fails.
    pub fn set_tensor(&self, id: Id, dtype: c_int, sizes: &[i64], strides: &[i64]) -> Outcome {
        let narrow = |values: &[i64]| values.iter().map(|&value| value as c_int).collect::<Vec<_>>();
        let (rank, sizes, strides) = (sizes.len() as c_int, narrow(sizes), narrow(strides));
        theirs!(self, c"miopenSetTensorDescriptor"(
            id => Id, dtype => c_int, rank => c_int, sizes.as_ptr() => *const c_int, strides.as_ptr() => *const c_int
        ))
    }

    /// Ends one.
    ///
    /// # Errors
    /// The status that AMD's MIOpen returned, where its call fails.
    pub fn destroy_tensor(&self, id: Id) -> Outcome {
        theirs!(self, c"miopenDestroyTensorDescriptor"(id => Id))
    }

    /// Type (`miopenDataType_t`), sizes and strides of one.
    ///
    /// # Errors
    /// The status that AMD's MIOpen returned, where its call fails.
    pub fn describe(&self, id: Id) -> Outcome<(c_int, Vec<i64>, Vec<i64>)> {
        let mut rank: c_int = 0;
        theirs!(self, c"miopenGetTensorDescriptorSize"(id => Id, &mut rank => *mut c_int))?;
        let rank = usize::try_from(rank).unwrap_or(0);
        let mut dtype = 0;
        // Since ROCm 7 in 64 bits; before, strides past 2^31 could not be told.
        if self.find(c"miopenGetTensorDescriptorV2").is_some() {
            let (mut sizes, mut strides) = (vec![0usize; rank], vec![0usize; rank]);
            theirs!(self, c"miopenGetTensorDescriptorV2"(
                id => Id, &mut dtype => *mut c_int, sizes.as_mut_ptr() => *mut usize, strides.as_mut_ptr() => *mut usize
            ))?;
            let wide =
                |values: Vec<usize>| values.into_iter().map(|v| i64::try_from(v).unwrap_or(-1)).collect();
            return Ok((dtype, wide(sizes), wide(strides)));
        }
        let (mut sizes, mut strides) = (vec![0 as c_int; rank], vec![0 as c_int; rank]);
        theirs!(self, c"miopenGetTensorDescriptor"(
            id => Id, &mut dtype => *mut c_int, sizes.as_mut_ptr() => *mut c_int, strides.as_mut_ptr() => *mut c_int
        ))?;
        let wide = |values: Vec<c_int>| values.into_iter().map(i64::from).collect();
        Ok((dtype, wide(sizes), wide(strides)))
    }

    /// Bytes from its first element to its last, all parts of a vectorised layout's elements included.
    ///
    /// # Errors
    /// The status that AMD's MIOpen returned, where its call fails.
    pub fn bytes(&self, id: Id) -> Outcome<usize> {
        let mut bytes = 0;
        theirs!(self, c"miopenGetTensorNumBytes"(id => Id, &mut bytes => *mut usize))?;
        Ok(bytes)
    }

    /// A convolution descriptor.
    ///
    /// # Errors
    /// The status that AMD's MIOpen returned, where its call fails.
    pub fn create_convolution(&self) -> Outcome<Id> {
        let mut id: Id = 0;
        theirs!(self, c"miopenCreateConvolutionDescriptor"(&mut id => *mut Id))?;
        Ok(id)
    }

    /// Ends one.
    ///
    /// # Errors
    /// The status that AMD's MIOpen returned, where its call fails.
    pub fn destroy_convolution(&self, id: Id) -> Outcome {
        theirs!(self, c"miopenDestroyConvolutionDescriptor"(id => Id))
    }
}

/// Is this call ours where there is a MIOpen behind?
pub fn is_taken(name: &str) -> bool {
    const FAMILIES: [&str; 8] =
        ["Conv", "Fusion", "OpArgs", "OperatorArgs", "CreateOp", "Problem", "Solution", "FindOption"];
    const OBJECTS: [&str; 10] = [
        "miopenCreate",
        "miopenCreateWithStream",
        "miopenDestroy",
        "miopenSetStream",
        "miopenGetStream",
        "miopenEnableProfiling",
        "miopenGetKernelTime",
        "miopenCreateTensorDescriptor",
        "miopenDestroyTensorDescriptor",
        "miopenGetErrorString",
    ];
    // The vendor's does not compile for RDNA1: its assembly has `row_bcast`, which left with gfx10 (docs/miopen_real.md).
    const TRAINING: [&str; 2] =
        ["miopenBatchNormalizationForwardTraining", "miopenBatchNormalizationBackward"];
    FAMILIES.iter().any(|family| name.contains(family))
        || OBJECTS.contains(&name)
        || TRAINING.iter().any(|call| name.starts_with(call))
}

/// Where an exported name leads.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    target: AtomicUsize,
    ours: usize,
    name: *const c_char,
}

/// Settles where a slot leads, at the first call through it; what it answers is jumped to.
#[unsafe(no_mangle)]
pub extern "C" fn wave32_resolve(slot: &Slot) -> usize {
    // SAFETY: the slots are made by `scripts/slots.sh`, each with a string.
    let name = unsafe { CStr::from_ptr(slot.name) };
    let theirs = || next()?.find(name);
    let text = name.to_string_lossy();
    let found = match route() {
        Route::Ours => None,
        Route::Vendor => theirs(),
        Route::Convolutions | Route::Probe if is_taken(&text) => None,
        Route::Convolutions | Route::Probe => theirs(),
    };
    log::line(|| format!("{text} is {}", if found.is_some() { "the vendor's" } else { "wave32's" }));
    let target = found.unwrap_or(slot.ours);
    slot.target.store(target, Ordering::Release);
    target
}

fn search() -> Option<Next> {
    let loaded = loaded();
    let is_miopen = |path: &&PathBuf| named(path).is_some_and(own::is_miopen);
    let (ours, theirs): (Vec<&PathBuf>, Vec<&PathBuf>) =
        loaded.iter().filter(is_miopen).partition(|path| own::at(path).is_some());
    let kept = ours.iter().filter_map(|path| Some(own::kept_name(&path.canonicalize().ok()?)));
    let runtime = loaded.iter().filter(|path| is_hip(path));
    let beside =
        runtime.flat_map(|path| ["libMIOpen.so.1", "libMIOpen.so"].map(|name| path.with_file_name(name)));
    let others = kept.chain(beside).filter(|path| path.is_file() && own::at(path).is_none());
    let path = theirs.into_iter().cloned().chain(others).next()?;
    // Its own calls of its own functions are not to come back to us.
    let Some(next) = open(path.clone(), libc::RTLD_DEEPBIND) else {
        say_once(&format!(
            "wave32: {} does not load: what is not a convolution is wave32's own",
            path.display()
        ));
        return None;
    };
    log::line(|| format!("the MIOpen behind is {}", path.display()));
    Some(next)
}

fn named(path: &Path) -> Option<&str> {
    path.file_name().and_then(OsStr::to_str)
}

fn is_hip(path: &Path) -> bool {
    named(path).is_some_and(|name| name.starts_with("libamdhip64"))
}

/// The HIP runtime in this process.
pub fn runtime() -> Option<Next> {
    open(loaded().into_iter().find(|path| is_hip(path))?, libc::RTLD_NOLOAD)
}

fn open(path: PathBuf, flags: c_int) -> Option<Next> {
    let text = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: a vendor's library, whose initialisers run as they would without us.
    let library = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL | flags) };
    (!library.is_null()).then_some(Next { library: library as usize, path })
}

/// Files of the libraries in this process.
fn loaded() -> Vec<PathBuf> {
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the loader gives a valid record with a string or null, and our own vector back.
        let (name, paths) = unsafe { ((*info).dlpi_name, &mut *data.cast::<Vec<PathBuf>>()) };
        if !name.is_null() {
            // SAFETY: the loader's names have an end.
            let name = unsafe { CStr::from_ptr(name) };
            paths.push(PathBuf::from(OsStr::from_bytes(name.to_bytes())));
        }
        0
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    // SAFETY: the function is called during this call alone, with the vector.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut paths).cast()) };
    paths
}

#[cfg(test)]
mod tests {
    use super::is_taken;

    #[test]
    fn convolutions_are_ours_and_the_rest_goes_through() {
        for name in [
            "miopenFindConvolutionForwardAlgorithm",
            "miopenConvolutionBackwardBias",
            "miopenSetTransposeConvNdOutputPadding",
            "miopenCreateFusionPlan",
            "miopenSetOpArgsBiasForward",
            "miopenRunSolution",
            "miopenCreateWithStream",
            "miopenBatchNormalizationForwardTraining",
            "miopenBatchNormalizationBackward_V2",
        ] {
            assert!(is_taken(name), "{name}");
        }
        for name in [
            "miopenBatchNormalizationForwardInference",
            "miopenBatchNormBackwardActivation",
            "miopenSet4dTensorDescriptor",
            "miopenOpTensor",
            "miopenRNNForwardTraining",
            "miopenGetVersion",
            "miopenSetTensor",
        ] {
            assert!(!is_taken(name), "{name}");
        }
        // By the groups of the table: all that convolves, and nothing beside the objects it works with.
        for line in include_str!("../../abi.txt").lines().filter(|line| line.starts_with("miopen")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match (is_taken(words[0]), words[2]) {
                (taken, "convolution" | "fusion") => {
                    assert!(taken || words[0].contains("GetSolver"), "{line}")
                }
                (taken, _) => {
                    assert!(
                        !taken || ["find2", "handle", "tensor", "beta", "batch-norm"].contains(&words[2]),
                        "{line}"
                    )
                }
            }
        }
    }
}
