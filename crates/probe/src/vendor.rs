//! MIOpen and HIP as safe Rust: a device, memory with guard bands, a problem posed, its solvers run.

use crate::ffi::{Address, Libraries, Pass, Perf, Pointer, Solution, Status, text};
use crate::protocol::{Finding, Identity, Offer, Verdict};
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::ptr::null_mut;
use wave32_problem::{ConvProblem, DType, Direction, Layout};
use wave32_verify::bands::{GUARD, fill_guard, guard_damage};

/// `miopenStatusAllocFailed`.
const ALLOC_FAILED: Status = 4;
/// `hipErrorOutOfMemory`.
const HIP_OUT_OF_MEMORY: Status = 2;
/// `hipMemcpyHostToDevice` and `hipMemcpyDeviceToHost`.
const TO_DEVICE: c_int = 1;
const TO_HOST: c_int = 2;
/// Algorithms that Find is asked for; there are six.
const FOUND: usize = 16;
/// Bytes offered for a `hipDeviceProp_t`: no release's is 2 KB.
const PROPERTIES: usize = 8192;

/// MIOpen on one device.
pub struct Vendor {
    libraries: Libraries,
    handle: Pointer,
    identity: Identity,
}

/// What a run left behind.
pub struct Ran {
    /// The result's bytes.
    pub out: Vec<u8>,
    /// Milliseconds on the device.
    pub ms: f64,
}

impl Vendor {
    /// Loads the library and opens the device.
    ///
    /// # Errors
    /// One line.
    pub fn open(path: &Path, device: i32) -> Result<Self, String> {
        let libraries = Libraries::load(path)?;
        let hip = &libraries.hip;
        let mut count = 0;
        // SAFETY: writes one int.
        let status = unsafe { (hip.get_device_count)(&mut count) };
        if status != 0 || count == 0 {
            return Err(format!("the HIP runtime sees no device ({})", hip_says(&libraries, status)));
        }
        if device >= count {
            return Err(format!("there is no HIP device {device}: there are {count}"));
        }
        // SAFETY: scalars only; `device` is below the count.
        hip_ok(&libraries, "hipSetDevice", unsafe { (hip.set_device)(device) }).map_err(|f| f.detail)?;
        let identity = identity(&libraries, path, device)?;
        let mut handle = null_mut();
        // SAFETY: writes one pointer.
        let status = unsafe { (libraries.common.create)(&mut handle) };
        if status != 0 {
            return Err(format!("MIOpen does not start: {}", miopen_says(&libraries, status)));
        }
        Ok(Self { libraries, handle, identity })
    }

    /// What card, driver and MIOpen these are.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    fn pass(&self, direction: Direction) -> &Pass {
        match direction {
            Direction::Forward => &self.libraries.forward,
            Direction::BackwardData => &self.libraries.backward_data,
            Direction::BackwardWeights => &self.libraries.backward_weights,
        }
    }

    fn hip(&self, what: &str, status: Status) -> Result<(), Finding> {
        hip_ok(&self.libraries, what, status)
    }

    fn miopen(&self, what: &str, status: Status) -> Result<(), Finding> {
        let verdict = match status {
            0 => return Ok(()),
            ALLOC_FAILED => Verdict::OutOfMemory,
            _ => Verdict::Refuses,
        };
        let said = miopen_says(&self.libraries, status);
        Err(Finding::of(verdict, format!("{what}: {said}")))
    }
}

fn miopen_says(libraries: &Libraries, status: Status) -> String {
    // SAFETY: MIOpen returns a static string for any number.
    let said = unsafe { text((libraries.common.error_string)(status)) };
    format!("{said} (status {status})")
}

fn hip_says(libraries: &Libraries, status: Status) -> String {
    // SAFETY: HIP returns a static string for any number.
    let said = unsafe { text((libraries.hip.error_string)(status)) };
    format!("{said}, error {status}")
}

/// An error of the runtime itself means a fault on the device, except where memory is short.
fn hip_ok(libraries: &Libraries, what: &str, status: Status) -> Result<(), Finding> {
    let verdict = match status {
        0 => return Ok(()),
        HIP_OUT_OF_MEMORY => Verdict::OutOfMemory,
        _ => Verdict::Crash,
    };
    Err(Finding::of(verdict, format!("{what}: {}", hip_says(libraries, status))))
}

fn identity(libraries: &Libraries, path: &Path, device: i32) -> Result<Identity, String> {
    let hip = &libraries.hip;
    let named = |get: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Status| {
        let mut name = [0u8; 256];
        // SAFETY: at most 255 characters are written; the last byte stays 0.
        let status = unsafe { get(name.as_mut_ptr().cast(), 255, device) };
        let end = CStr::from_bytes_until_nul(&name).map(|s| s.to_string_lossy().trim().to_string());
        if status == 0 { end.unwrap_or_default() } else { String::new() }
    };
    let mut properties = vec![0u64; PROPERTIES / 8];
    // SAFETY: the buffer is aligned and larger than the struct of any release.
    let status = unsafe { (hip.properties)(properties.as_mut_ptr().cast(), device) };
    let bytes: Vec<u8> = properties.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let target = target(&bytes).filter(|_| status == 0);
    let target = target.ok_or("the HIP runtime does not say which gfx target the device has")?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: writes three numbers.
    unsafe { (libraries.common.version)(&mut major, &mut minor, &mut patch) };
    let mut runtime = 0;
    // SAFETY: writes one int.
    unsafe { (hip.runtime_version)(&mut runtime) };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(Identity {
        card: named(hip.device_name),
        target,
        pci: named(hip.pci_bus_id),
        miopen: format!("{major}.{minor}.{patch}"),
        hip: format!("{}.{}.{}", runtime / 10_000_000, runtime / 100_000 % 100, runtime % 100_000),
        kernel: kernel.trim().to_string(),
        library: path.display().to_string(),
    })
}

/// `gcnArchName` out of a `hipDeviceProp_t` whose layout differs between releases: the one text in it that starts
/// with `gfx`.
fn target(properties: &[u8]) -> Option<String> {
    let start = properties.windows(3).position(|w| w == b"gfx")?;
    let word = |b: &u8| b.is_ascii_alphanumeric();
    let name: Vec<u8> = properties[start..].iter().copied().take_while(|b| word(b)).collect();
    String::from_utf8(name).ok()
}

/// A buffer on the device with guard bands around it. Freed when dropped.
pub struct Memory<'v> {
    vendor: &'v Vendor,
    base: Pointer,
    bytes: usize,
}

impl<'v> Memory<'v> {
    /// A buffer that holds `data`.
    ///
    /// # Errors
    /// Out of memory, or what else HIP says.
    pub fn new(vendor: &'v Vendor, data: &[u8]) -> Result<Self, Finding> {
        let lead = GUARD as usize;
        let mut image = vec![0; data.len() + 2 * lead];
        fill_guard(&mut image[..lead]);
        image[lead..lead + data.len()].copy_from_slice(data);
        fill_guard(&mut image[lead + data.len()..]);
        let mut base = null_mut();
        // SAFETY: writes one pointer.
        vendor.hip("hipMalloc", unsafe { (vendor.libraries.hip.malloc)(&mut base, image.len()) })?;
        let memory = Self { vendor, base, bytes: data.len() };
        // SAFETY: both sides have `image.len()` bytes.
        let status =
            unsafe { (vendor.libraries.hip.memcpy)(base, image.as_ptr().cast(), image.len(), TO_DEVICE) };
        vendor.hip("hipMemcpy", status)?;
        Ok(memory)
    }

    fn address(&self) -> Pointer {
        self.base.wrapping_byte_add(GUARD as usize)
    }

    /// What it holds now.
    ///
    /// # Errors
    /// `Wrong` where a guard band was written, or what HIP says.
    pub fn read(&self, what: &str) -> Result<Vec<u8>, Finding> {
        let lead = GUARD as usize;
        let mut image = vec![0u8; self.bytes + 2 * lead];
        let hip = &self.vendor.libraries.hip;
        // SAFETY: both sides have `image.len()` bytes.
        let status = unsafe { (hip.memcpy)(image.as_mut_ptr().cast(), self.base, image.len(), TO_HOST) };
        self.vendor.hip("hipMemcpy", status)?;
        let (before, after) = (&image[..lead], &image[lead + self.bytes..]);
        let damage = guard_damage(before, what, "before").or_else(|| guard_damage(after, what, "after"));
        if let Some(text) = damage {
            return Err(Finding::of(Verdict::Wrong, text));
        }
        image.truncate(lead + self.bytes);
        image.drain(..lead);
        Ok(image)
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: `base` came from hipMalloc and is freed once.
        unsafe { (self.vendor.libraries.hip.free)(self.base) };
    }
}

/// How a problem is to be run.
#[derive(Debug, Clone, Copy)]
pub enum Run {
    /// A solver by immediate mode.
    Solver {
        /// Its number.
        id: u64,
        /// Its algorithm.
        algorithm: i32,
        /// Bytes of workspace.
        workspace: u64,
    },
    /// The algorithm that Find chose, in this many bytes of workspace.
    Algorithm(i32, u64),
}

impl Run {
    /// Bytes of workspace.
    pub fn workspace(self) -> u64 {
        match self {
            Self::Solver { workspace: bytes, .. } | Self::Algorithm(_, bytes) => bytes,
        }
    }
}

/// A problem in MIOpen's descriptors.
pub struct Posed<'v> {
    vendor: &'v Vendor,
    direction: Direction,
    /// Of the first and second operand in the CPU crate's order, and of the result.
    tensors: [Pointer; 3],
    convolution: Pointer,
}

impl Drop for Posed<'_> {
    fn drop(&mut self) {
        let common = &self.vendor.libraries.common;
        for tensor in self.tensors.into_iter().filter(|t| !t.is_null()) {
            // SAFETY: made by `create_tensor`, destroyed once.
            unsafe { (common.destroy_tensor)(tensor) };
        }
        if !self.convolution.is_null() {
            // SAFETY: made by `create_convolution`, destroyed once.
            unsafe { (common.destroy_convolution)(self.convolution) };
        }
    }
}

/// A size as MIOpen takes it.
fn int(value: i64) -> Result<c_int, Finding> {
    c_int::try_from(value)
        .map_err(|_| Finding::of(Verdict::Refuses, format!("MIOpen's sizes are 32-bit: {value}")))
}

impl<'v> Posed<'v> {
    /// Poses a plain problem (not transposed, no bias).
    ///
    /// # Errors
    /// What MIOpen says.
    pub fn new(vendor: &'v Vendor, p: &ConvProblem) -> Result<Self, Finding> {
        let s = p.spec();
        let common = &vendor.libraries.common;
        let mut posed =
            Self { vendor, direction: s.direction, tensors: [null_mut(); 3], convolution: null_mut() };
        let x = [s.n, s.c, s.h, s.w];
        let w = [s.k, s.c / s.groups, s.r, s.s];
        let y = [s.n, s.k, p.out_h(), p.out_w()];
        let dims = match s.direction {
            Direction::Forward => [x, w, y],
            Direction::BackwardData => [y, w, x],
            Direction::BackwardWeights => [x, y, w],
        };
        for (slot, dims) in posed.tensors.iter_mut().zip(dims) {
            // SAFETY: writes one pointer.
            vendor.miopen("miopenCreateTensorDescriptor", unsafe { (common.create_tensor)(slot) })?;
            let [n, c, h, w] = [int(dims[0])?, int(dims[1])?, int(dims[2])?, int(dims[3])?];
            let [_, dc, dh, dw] = dims;
            let strides = match s.layout {
                Layout::Nchw => [dc * dh * dw, dh * dw, dw, 1],
                Layout::Nhwc => [dh * dw * dc, 1, dw * dc, dc],
            };
            let [sn, sc, sh, sw] = [int(strides[0])?, int(strides[1])?, int(strides[2])?, int(strides[3])?];
            let dtype = match s.dtype {
                DType::F16 => 0,
                DType::F32 => 1,
                DType::BF16 => 5,
            };
            // SAFETY: a live descriptor and scalars.
            let status = unsafe { (common.set_tensor)(*slot, dtype, n, c, h, w, sn, sc, sh, sw) };
            vendor.miopen("miopenSet4dTensorDescriptorEx", status)?;
        }
        // SAFETY: writes one pointer.
        let status = unsafe { (common.create_convolution)(&mut posed.convolution) };
        vendor.miopen("miopenCreateConvolutionDescriptor", status)?;
        let (c, [ph, pw], [u, v], [dh, dw]) = (posed.convolution, s.pad, s.stride, s.dilation);
        let (ph, pw, u, v, dh, dw) = (int(ph)?, int(pw)?, int(u)?, int(v)?, int(dh)?, int(dw)?);
        // SAFETY: a live descriptor and scalars; mode 0 is a plain convolution.
        let status = unsafe { (common.init_convolution)(c, 0, ph, pw, u, v, dh, dw) };
        vendor.miopen("miopenInitConvolutionDescriptor", status)?;
        // SAFETY: a live descriptor and a scalar.
        let status = unsafe { (common.set_groups)(c, int(s.groups)?) };
        vendor.miopen("miopenSetConvolutionGroupCount", status)?;
        Ok(posed)
    }

    fn pass(&self) -> &Pass {
        self.vendor.pass(self.direction)
    }

    /// Of two things in the CPU crate's order (x w, dy w, x dy): in the order of immediate mode (w x, dy w, dy x).
    fn ordered<T>(&self, [a, b]: [T; 2]) -> [T; 2] {
        match self.direction {
            Direction::BackwardData => [a, b],
            Direction::Forward | Direction::BackwardWeights => [b, a],
        }
    }

    /// In the order of Find and of the classic calls: as [`ordered`](Self::ordered), but x before w.
    fn classic<T>(&self, [a, b]: [T; 2]) -> [T; 2] {
        match self.direction {
            Direction::BackwardWeights => [b, a],
            Direction::Forward | Direction::BackwardData => [a, b],
        }
    }

    /// The solvers that MIOpen offers for the problem.
    ///
    /// # Errors
    /// What MIOpen says.
    pub fn offers(&self) -> Result<Vec<Offer>, Finding> {
        let ([d0, d1], [_, _, out]) = (self.ordered([self.tensors[0], self.tensors[1]]), self.tensors);
        let (handle, mut count) = (self.vendor.handle, 0);
        // SAFETY: live handle and descriptors; writes one number.
        let status = unsafe { (self.pass().count)(handle, d0, d1, self.convolution, out, &mut count) };
        self.vendor.miopen("asking for the number of solutions", status)?;
        let mut list = vec![Solution::default(); count];
        let mut filled = 0;
        // SAFETY: as above; `list` has room for `count` solutions.
        let status = unsafe {
            (self.pass().solutions)(
                handle,
                d0,
                d1,
                self.convolution,
                out,
                count,
                &mut filled,
                list.as_mut_ptr(),
            )
        };
        self.vendor.miopen("asking for the solutions", status)?;
        list.truncate(filled);
        let offer = |s: &Solution| Offer {
            id: s.solution_id,
            algorithm: s.algorithm,
            workspace_bytes: s.workspace_size as u64,
        };
        Ok(list.iter().map(offer).collect())
    }

    /// Compiles a solver.
    ///
    /// # Errors
    /// What MIOpen says.
    pub fn compile(&self, id: u64) -> Result<(), Finding> {
        let [d0, d1] = self.ordered([self.tensors[0], self.tensors[1]]);
        // SAFETY: live handle and descriptors.
        let status = unsafe {
            (self.pass().compile)(self.vendor.handle, d0, d1, self.convolution, self.tensors[2], id)
        };
        self.vendor.miopen("compiling it", status)
    }

    /// Has Find measure; the algorithms best first, with their workspace.
    ///
    /// # Errors
    /// What MIOpen says.
    pub fn find(&self, operands: [&Memory<'_>; 2], out: &Memory<'_>) -> Result<Vec<(i32, u64)>, Finding> {
        let vendor = self.vendor;
        let [d0, d1] = self.ordered([self.tensors[0], self.tensors[1]]);
        let mut bytes = 0;
        // SAFETY: live handle and descriptors; writes one number.
        let status = unsafe {
            (self.pass().workspace)(vendor.handle, d0, d1, self.convolution, self.tensors[2], &mut bytes)
        };
        vendor.miopen("asking for the workspace's size", status)?;
        // Find's wish covers its hungriest solver; without it, those that need less are still found.
        let workspace = Memory::new(vendor, &vec![0xff; bytes]).ok().filter(|_| bytes > 0);
        let (address, bytes) = workspace.as_ref().map_or((null_mut(), 0), |w| (w.address(), bytes));
        let [d0, d1] = self.classic([self.tensors[0], self.tensors[1]]);
        let [a0, a1]: [Address; 2] = self.classic(operands).map(|m| m.address().cast_const());
        let (mut perf, mut count) = ([Perf::default(); FOUND], 0);
        // SAFETY: live handle and descriptors; each buffer has its tensor's bytes, `perf` room for FOUND.
        let status = unsafe {
            (self.pass().find)(
                vendor.handle,
                d0,
                a0,
                d1,
                a1,
                self.convolution,
                self.tensors[2],
                out.address(),
                FOUND as c_int,
                &mut count,
                perf.as_mut_ptr(),
                address,
                bytes,
                false,
            )
        };
        vendor.miopen("Find", status)?;
        // SAFETY: no arguments.
        vendor.hip("waiting for Find", unsafe { (vendor.libraries.hip.synchronize)() })?;
        let count = usize::try_from(count).unwrap_or(0).min(FOUND);
        Ok(perf[..count].iter().map(|p| (p.algorithm, p.memory as u64)).collect())
    }

    /// Runs the problem: result and workspace start as `poison`, guard bands and operands are checked after.
    ///
    /// # Errors
    /// What MIOpen or HIP says; `Wrong` where something was written that must not be.
    pub fn run(&self, how: Run, operands: [&[u8]; 2], out_bytes: usize, poison: u8) -> Result<Ran, Finding> {
        let vendor = self.vendor;
        let hip = &vendor.libraries.hip;
        let held = [Memory::new(vendor, operands[0])?, Memory::new(vendor, operands[1])?];
        let out = Memory::new(vendor, &vec![poison; out_bytes])?;
        let bytes = usize::try_from(how.workspace()).unwrap_or(usize::MAX / 2);
        let workspace = if bytes > 0 { Some(Memory::new(vendor, &vec![poison; bytes])?) } else { None };
        let timer = Timer::start(vendor)?;
        let status = self.launch(how, &held, &out, workspace.as_ref(), bytes);
        vendor.miopen("running it", status)?;
        let ms = timer.stop()?;
        // SAFETY: no arguments.
        vendor.hip("waiting for it", unsafe { (hip.synchronize)() })?;
        for ((memory, given), name) in held.iter().zip(operands).zip(["first", "second"]) {
            if memory.read(&format!("the {name} operand"))? != given {
                return Err(Finding::of(Verdict::Wrong, format!("the {name} operand was written")));
            }
        }
        if let Some(workspace) = &workspace {
            workspace.read("the workspace")?;
        }
        Ok(Ran { out: out.read("the result")?, ms })
    }

    fn launch(
        &self,
        how: Run,
        held: &[Memory<'_>; 2],
        out: &Memory<'_>,
        workspace: Option<&Memory<'_>>,
        bytes: usize,
    ) -> Status {
        let handle = self.vendor.handle;
        let space = workspace.map_or(null_mut(), Memory::address);
        let addresses: [Address; 2] = [held[0].address().cast_const(), held[1].address().cast_const()];
        let descriptors = [self.tensors[0], self.tensors[1]];
        let (convolution, result, y) = (self.convolution, self.tensors[2], out.address());
        match how {
            Run::Solver { id, .. } => {
                let ([d0, d1], [a0, a1]) = (self.ordered(descriptors), self.ordered(addresses));
                // SAFETY: live handle and descriptors; each buffer has its tensor's bytes.
                unsafe {
                    (self.pass().immediate)(handle, d0, a0, d1, a1, convolution, result, y, space, bytes, id)
                }
            }
            Run::Algorithm(algorithm, _) => {
                let ([d0, d1], [a0, a1]) = (self.classic(descriptors), self.classic(addresses));
                let (one, zero) = (1f32, 0f32);
                let (one, zero): (Address, Address) = ((&raw const one).cast(), (&raw const zero).cast());
                // SAFETY: as above; the factors are read during the call.
                unsafe {
                    (self.pass().run)(
                        handle,
                        one,
                        d0,
                        a0,
                        d1,
                        a1,
                        convolution,
                        algorithm,
                        zero,
                        result,
                        y,
                        space,
                        bytes,
                    )
                }
            }
        }
    }
}

/// Two events around a launch on the default stream, which is MIOpen's.
struct Timer<'v> {
    vendor: &'v Vendor,
    events: [Pointer; 2],
}

impl<'v> Timer<'v> {
    fn start(vendor: &'v Vendor) -> Result<Self, Finding> {
        let hip = &vendor.libraries.hip;
        let mut timer = Self { vendor, events: [null_mut(); 2] };
        for event in &mut timer.events {
            // SAFETY: writes one pointer.
            vendor.hip("hipEventCreate", unsafe { (hip.event_create)(event) })?;
        }
        // SAFETY: a live event; null is the default stream.
        vendor.hip("hipEventRecord", unsafe { (hip.event_record)(timer.events[0], null_mut()) })?;
        Ok(timer)
    }

    fn stop(self) -> Result<f64, Finding> {
        let (hip, [start, end]) = (&self.vendor.libraries.hip, self.events);
        let mut ms = 0f32;
        // SAFETY: live events; null is the default stream.
        self.vendor.hip("hipEventRecord", unsafe { (hip.event_record)(end, null_mut()) })?;
        // SAFETY: a live event.
        self.vendor.hip("waiting for it", unsafe { (hip.event_synchronize)(end) })?;
        // SAFETY: live events that have happened; writes one number.
        self.vendor.hip("hipEventElapsedTime", unsafe { (hip.event_elapsed)(&mut ms, start, end) })?;
        Ok(f64::from(ms))
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        for event in self.events.into_iter().filter(|e| !e.is_null()) {
            // SAFETY: made by hipEventCreate, destroyed once.
            unsafe { (self.vendor.libraries.hip.event_destroy)(event) };
        }
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        // SAFETY: made by miopenCreate, destroyed once; nothing that borrows the vendor is left.
        unsafe { (self.libraries.common.destroy)(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn the_target_is_found_wherever_the_struct_holds_it() {
        let mut bytes = b"AMD Radeon RX 5600 XT".to_vec();
        bytes.resize(900, 0);
        bytes.extend(b"gfx1010:xnack-");
        bytes.resize(2000, 0);
        assert_eq!(target(&bytes).as_deref(), Some("gfx1010"));
        assert_eq!(target(&[0; 64]), None);
    }
}
