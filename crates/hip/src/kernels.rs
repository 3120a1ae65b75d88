//! Where code objects come from, and the functions in them.

use crate::adapter;
use crate::ffi::{Pointer, status};
use crate::gpu::Gpu;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CString, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use wave32_device::{DeviceError, MAX_ARGS};

/// A kernel of a code object: a function of its name that takes `buffers` pointers, then `params` 32-bit words by
/// value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Threads of a workgroup (x only).
    pub threads: u32,
    /// Buffers it binds, 8 at most.
    pub buffers: u32,
    /// 32-bit words it takes; the first is the first workgroup's x index.
    pub params: u32,
}

/// Finds code objects, and kernels by the variant name that plans carry.
pub trait KernelSource: Send + Sync {
    /// The code objects (ELF) for a gfx target: a kernel is taken from the first that has it.
    ///
    /// # Errors
    /// Why there is no code for the target, in one line.
    fn codes(&self, target: &str) -> Result<Vec<Cow<'static, [u8]>>, String>;

    /// The kernel of that name, if one of the objects for `target` has it.
    fn kernel(&self, target: &str, name: &str) -> Option<Kernel>;
}

/// The kernels that come with wave32.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shipped;

impl KernelSource for Shipped {
    fn codes(&self, target: &str) -> Result<Vec<Cow<'static, [u8]>>, String> {
        adapter::codes(target).map(|codes| codes.into_iter().map(Cow::Borrowed).collect())
    }

    fn kernel(&self, target: &str, name: &str) -> Option<Kernel> {
        let variant =
            wave32_params::variants::find(name).filter(|variant| variant.code_of(target).is_some())?;
        Some(Kernel { threads: variant.threads, buffers: variant.buffers, params: variant.params })
    }
}

/// A function that the runtime has loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function {
    raw: Pointer,
    pub(crate) kernel: Kernel,
}

/// A code object on one card.
struct Loaded {
    raw: Pointer,
    /// The card, the runtime's code, and where the code object is: what tells it from others.
    key: [usize; 3],
    /// The runtime may refer to it as long as the module is loaded.
    code: Cow<'static, [u8]>,
}

// SAFETY: the handle may be used from any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Loaded {}

/// What this process has loaded of objects that live for ever: all queues on a card share one, as loading takes the
/// runtime tens of milliseconds.
static SHARED: Mutex<Vec<Weak<Loaded>>> = Mutex::new(Vec::new());

/// The code objects of one card, each loaded when its first kernel is asked for.
pub(crate) struct Modules {
    source: Arc<dyn KernelSource>,
    codes: Vec<Cow<'static, [u8]>>,
    /// The first ones of `codes`.
    loaded: Vec<Arc<Loaded>>,
    functions: HashMap<String, Function>,
}

impl Modules {
    pub(crate) fn new(source: Arc<dyn KernelSource>) -> Self {
        Self { source, codes: Vec::new(), loaded: Vec::new(), functions: HashMap::new() }
    }

    /// The kernel of that name.
    pub(crate) fn get(&mut self, gpu: &mut Gpu, name: &str) -> Result<Function, DeviceError> {
        if let Some(function) = self.functions.get(name) {
            return Ok(*function);
        }
        let target = gpu.adapter.target.clone();
        let unknown = |why: &str| DeviceError::Unsupported(format!("kernel `{name}` {why} for {target}"));
        let kernel = self.source.kernel(&target, name).ok_or_else(|| unknown("does not exist"))?;
        if kernel.buffers as usize > MAX_ARGS || kernel.threads > gpu.adapter.caps.max_group_threads {
            return Err(unknown("takes more buffers or threads than can be passed"));
        }
        let symbol = CString::new(name).map_err(|_| unknown("does not exist"))?;
        if self.codes.is_empty() {
            self.codes = self.source.codes(&target).map_err(DeviceError::Unsupported)?;
        }
        for at in 0..self.codes.len() {
            let module = self.load(gpu, at)?;
            let mut raw = null_mut();
            // SAFETY: writes one handle; the module is loaded and the name ends with a zero byte.
            let answer = unsafe { (gpu.api.module_function)(&mut raw, module, symbol.as_ptr()) };
            if answer == status::NOT_FOUND {
                continue;
            }
            gpu.check("hipModuleGetFunction", answer)?;
            let function = Function { raw, kernel };
            self.functions.insert(name.to_string(), function);
            return Ok(function);
        }
        Err(unknown("is in no code object"))
    }

    /// The object at that place of `codes`; those before it are loaded.
    fn load(&mut self, gpu: &mut Gpu, at: usize) -> Result<Pointer, DeviceError> {
        if let Some(loaded) = self.loaded.get(at) {
            return Ok(loaded.raw);
        }
        let target = &gpu.adapter.target;
        let code = self.codes[at].clone();
        let key = [gpu.adapter.index as usize, gpu.api.module_load as usize, code.as_ptr() as usize];
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|other| other.strong_count() > 0);
        let found = shared.iter().filter_map(Weak::upgrade).find(|other| other.key == key);
        let loaded = match found {
            Some(found) => found,
            None => {
                let mut raw = null_mut();
                // SAFETY: writes one handle; the image is a whole ELF file, whose header says how long it is, and is kept.
                let answer = unsafe { (gpu.api.module_load)(&mut raw, code.as_ptr().cast()) };
                if matches!(answer, status::NO_BINARY_FOR_GPU | status::INVALID_IMAGE) {
                    let said = gpu.api.says(answer);
                    return Err(DeviceError::Unsupported(format!(
                        "the runtime does not load code for {target}: {said}"
                    )));
                }
                gpu.check("hipModuleLoadData", answer)?;
                let made = Arc::new(Loaded { raw, key, code });
                if let Cow::Borrowed(_) = made.code {
                    shared.push(Arc::downgrade(&made));
                }
                made
            }
        };
        let raw = loaded.raw;
        self.loaded.push(loaded);
        Ok(raw)
    }

    /// Unloads the code, unless another queue has it too; nothing may be in flight.
    pub(crate) fn unload(&mut self, gpu: &mut Gpu) {
        self.functions.clear();
        // Locked, so that nobody comes to share it while it goes.
        let _shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        for loaded in self.loaded.drain(..).filter_map(Arc::into_inner) {
            // SAFETY: loaded by `load`, and no function of it is used any more.
            let answer = unsafe { (gpu.api.module_unload)(loaded.raw) };
            if let Err(error) = gpu.check("hipModuleUnload", answer) {
                log::warn!("unloading code: {error}");
            }
        }
    }
}

impl Gpu {
    /// Puts one launch on the stream. Counts of params and buffers are the kernel's, checked by the caller, as is that
    /// each address is one of memory that is long enough for what the kernel does.
    pub(crate) fn launch(
        &mut self,
        function: &Function,
        grid: [u32; 3],
        params: &[u32],
        addresses: &[u64],
    ) -> Result<(), DeviceError> {
        debug_assert!(params.len() == function.kernel.params as usize);
        debug_assert!(addresses.len() == function.kernel.buffers as usize);
        let mut arguments = [null_mut(); MAX_ARGS + 1];
        for (argument, address) in arguments.iter_mut().zip(addresses) {
            *argument = std::ptr::from_ref(address).cast_mut().cast::<c_void>();
        }
        arguments[addresses.len()] = params.as_ptr().cast_mut().cast();
        let [x, y, z] = grid.map(|n| n as c_uint);
        // SAFETY: the function is loaded and takes as many pointers and words as were counted; each argument points to
        // one of them, and is only read, within the call.
        let answer = unsafe {
            (self.api.launch)(
                function.raw,
                x,
                y,
                z,
                function.kernel.threads,
                1,
                1,
                0,
                self.stream,
                arguments.as_mut_ptr(),
                null_mut(),
            )
        };
        self.check("hipModuleLaunchKernel", answer)
    }
}
