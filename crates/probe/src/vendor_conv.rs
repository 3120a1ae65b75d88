//! A problem in MIOpen's descriptors, and its solvers run.

use crate::ffi::{Address, Pass, Perf, Pointer, Solution, Status};
use crate::memory::{Memory, Timer};
use crate::protocol::{Finding, SolverVerdict, VendorSolution};
use crate::vendor::Vendor;
use std::ffi::c_int;
use std::ptr::null_mut;
use wave32_problem::{ConvProblem, DType, Direction, Layout};

/// Algorithms that Find is asked for; there are six.
const FOUND: usize = 16;

/// What a run left behind.
pub struct Ran {
    /// The result's bytes.
    pub out: Vec<u8>,
    /// Milliseconds on the device.
    pub ms: f64,
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
pub struct VendorConv<'v> {
    vendor: &'v Vendor,
    direction: Direction,
    /// Of the first and second operand in the CPU crate's order, and of the result.
    tensors: [Pointer; 3],
    convolution: Pointer,
}

impl Drop for VendorConv<'_> {
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
        .map_err(|_| Finding::of(SolverVerdict::Refuses, format!("MIOpen's sizes are 32-bit: {value}")))
}

impl<'v> VendorConv<'v> {
    /// Poses a problem without bias, and without output padding where it is transposed.
    ///
    /// # Errors
    /// The finding of the MIOpen call that failed: the call and its status.
    pub fn new(vendor: &'v Vendor, p: &ConvProblem) -> Result<Self, Finding> {
        let s = p.spec();
        let common = &vendor.libraries.common;
        let mut vendor_conv =
            Self { vendor, direction: s.direction, tensors: [null_mut(); 3], convolution: null_mut() };
        let x = [s.n, s.c, s.h, s.w];
        let w = match s.transposed {
            true => [s.c, s.k / s.groups, s.r, s.s],
            false => [s.k, s.c / s.groups, s.r, s.s],
        };
        let y = [s.n, s.k, p.out_h(), p.out_w()];
        let dims = match s.direction {
            Direction::Forward => [x, w, y],
            Direction::BackwardData => [y, w, x],
            Direction::BackwardWeights => [x, y, w],
        };
        for (slot, dims) in vendor_conv.tensors.iter_mut().zip(dims) {
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
        let status = unsafe { (common.create_convolution)(&mut vendor_conv.convolution) };
        vendor.miopen("miopenCreateConvolutionDescriptor", status)?;
        let (c, [ph, pw], [u, v], [dh, dw]) = (vendor_conv.convolution, s.pad, s.stride, s.dilation);
        let (ph, pw, u, v, dh, dw) = (int(ph)?, int(pw)?, int(u)?, int(v)?, int(dh)?, int(dw)?);
        // SAFETY: a live descriptor and scalars; mode 0 is a plain convolution, 1 a transposed one.
        let status = unsafe { (common.init_convolution)(c, c_int::from(s.transposed), ph, pw, u, v, dh, dw) };
        vendor.miopen("miopenInitConvolutionDescriptor", status)?;
        // SAFETY: a live descriptor and a scalar.
        let status = unsafe { (common.set_groups)(c, int(s.groups)?) };
        vendor.miopen("miopenSetConvolutionGroupCount", status)?;
        Ok(vendor_conv)
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
    /// The finding of the MIOpen call that failed: the call and its status.
    pub fn solutions(&self) -> Result<Vec<VendorSolution>, Finding> {
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
        let offer = |s: &Solution| VendorSolution {
            id: s.solution_id,
            algorithm: s.algorithm,
            workspace_bytes: s.workspace_size as u64,
        };
        Ok(list.iter().map(offer).collect())
    }

    /// Compiles a solver.
    ///
    /// # Errors
    /// The finding of the MIOpen call that failed: the call and its status.
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
    /// The finding of the MIOpen call that failed: the call and its status.
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
        let space = workspace.as_ref().map_or((null_mut(), 0), |w| (w.address(), bytes));
        self.find_at(operands.map(|m| m.address().cast_const()), out.address(), space)
    }

    /// As [`find`](Self::find), on addresses of buffers that have their tensors' bytes, and a workspace.
    pub(crate) fn find_at(
        &self,
        operands: [Address; 2],
        out: Pointer,
        (space, bytes): (Pointer, usize),
    ) -> Result<Vec<(i32, u64)>, Finding> {
        let vendor = self.vendor;
        let [d0, d1] = self.classic([self.tensors[0], self.tensors[1]]);
        let [a0, a1] = self.classic(operands);
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
                out,
                FOUND as c_int,
                &mut count,
                perf.as_mut_ptr(),
                space,
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
        let space = workspace.as_ref().map_or(null_mut(), Memory::address);
        let addresses = [held[0].address().cast_const(), held[1].address().cast_const()];
        let status = self.launch_at(how, addresses, out.address(), (space, bytes));
        vendor.miopen("running it", status)?;
        let ms = timer.stop()?;
        // SAFETY: no arguments.
        vendor.hip("waiting for it", unsafe { (hip.synchronize)() })?;
        for ((memory, given), name) in held.iter().zip(operands).zip(["first", "second"]) {
            if memory.read(&format!("the {name} operand"))? != given {
                return Err(Finding::of(SolverVerdict::Wrong, format!("the {name} operand was written")));
            }
        }
        if let Some(workspace) = &workspace {
            workspace.read("the workspace")?;
        }
        Ok(Ran { out: out.read("the result")?, ms })
    }

    /// Launches it on addresses of buffers that have their tensors' bytes, and a workspace.
    pub(crate) fn launch_at(
        &self,
        how: Run,
        addresses: [Address; 2],
        y: Pointer,
        (space, bytes): (Pointer, usize),
    ) -> Status {
        let handle = self.vendor.handle;
        let descriptors = [self.tensors[0], self.tensors[1]];
        let (convolution, result) = (self.convolution, self.tensors[2]);
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
