//! A libMIOpen as a device of `wave32 verify`: problems go through its C ABI, and the plan that comes with them is only
//! asked for its problem and its workspace.

use crate::ffi::{Address, Pointer};
use crate::protocol::{Finding, SolverVerdict};
use crate::vendor::Vendor;
use crate::vendor_conv::{Run, VendorConv};
use std::path::Path;
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use wave32_device::{BufferId, DeviceError, DeviceInfo, Operands, PlanDevice, Queue, Runner, Times, Timing};
use wave32_hip::HipQueue;
use wave32_problem::Direction;
use wave32_solve::{DeviceCaps, Plan, Role};

/// A libMIOpen on HIP's best card, whose memory this is.
struct Miopen {
    hip: Runner<HipQueue>,
    vendor: Vendor,
    info: DeviceInfo,
}

/// Opens `miopen:PATH`; `None` for any other name.
pub fn open(id: &str) -> Option<Result<Box<dyn PlanDevice>, DeviceError>> {
    let path = Path::new(id.strip_prefix("miopen:")?);
    let opened = || {
        let options = wave32_hip::Options { separate_blocks: true, ..wave32_hip::Options::default() };
        let hip = Runner::new(wave32_hip::open(None, options)?);
        let index = hip.info().id.rsplit(':').next().and_then(|index| index.parse().ok()).unwrap_or(0);
        let vendor = Vendor::open(path, index).map_err(DeviceError::Unavailable)?;
        let driver = format!("MIOpen {} over {}", vendor.identity().miopen, hip.info().driver);
        let info = DeviceInfo { id: id.into(), driver, ..hip.info().clone() };
        Ok(Box::new(Miopen { hip, vendor, info }) as Box<dyn PlanDevice>)
    };
    Some(opened())
}

fn error(finding: Finding) -> DeviceError {
    match finding.verdict {
        SolverVerdict::OutOfMemory => DeviceError::OutOfMemory { requested: 0, in_use: 0 },
        SolverVerdict::Refuses => DeviceError::Unsupported(finding.detail),
        _ => DeviceError::Lost(finding.detail),
    }
}

impl Miopen {
    fn pointer(&self, operands: &Operands, role: Role) -> Result<Pointer, DeviceError> {
        let text = || DeviceError::Misuse(format!("no buffer for {role:?}"));
        let (buffer, offset) = operands.get(role).ok_or_else(text)?;
        Ok((self.hip.address(buffer)? + offset) as Pointer)
    }

    fn convolve(&self, plan: &Plan, operands: &Operands) -> Result<(), DeviceError> {
        let Some(problem) = plan.problem.conv() else {
            return Err(DeviceError::Unsupported("only convolutions are posed to MIOpen".into()));
        };
        let spec = problem.spec();
        if !spec.epilogue.is_none() || spec.output_pad != [0, 0] {
            let text = "bias and output padding are not posed to MIOpen";
            return Err(DeviceError::Unsupported(text.into()));
        }
        let vendor_conv = VendorConv::new(&self.vendor, problem).map_err(error)?;
        let roles = match spec.direction {
            Direction::Forward => [Role::X, Role::W, Role::Y],
            Direction::BackwardData => [Role::Y, Role::W, Role::X],
            Direction::BackwardWeights => [Role::X, Role::Y, Role::W],
        };
        let [a, b, out] = roles.map(|role| self.pointer(operands, role));
        let (addresses, out): ([Address; 2], Pointer) = ([a?.cast_const(), b?.cast_const()], out?);
        let space = match plan.workspace_bytes {
            0 => (null_mut(), 0),
            bytes => (self.pointer(operands, Role::Workspace)?, bytes as usize),
        };
        let found = vendor_conv.find_at(addresses, out, space).map_err(error)?;
        let fits = found.iter().find(|(_, bytes)| *bytes <= space.1 as u64);
        let &(algorithm, bytes) = fits.ok_or_else(|| {
            DeviceError::Unsupported(format!("Find has nothing for {} bytes of workspace", space.1))
        })?;
        let status = vendor_conv.launch_at(Run::Algorithm(algorithm, bytes), addresses, out, space);
        self.vendor.miopen("running it", status).map_err(error)?;
        // SAFETY: no arguments. It has no deadline: the process that asked for this has one.
        let status = unsafe { (self.vendor.libraries.hip.synchronize)() };
        self.vendor.hip("waiting for it", status).map_err(error)
    }
}

impl PlanDevice for Miopen {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn caps(&self) -> &DeviceCaps {
        self.hip.caps()
    }

    fn alloc(&mut self, bytes: u64) -> Result<BufferId, DeviceError> {
        self.hip.alloc(bytes)
    }

    fn free(&mut self, buffer: BufferId) {
        self.hip.free(buffer);
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.hip.write(buffer, offset, data)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, data: &mut [u8]) -> Result<(), DeviceError> {
        self.hip.read(buffer, offset, data)
    }

    fn run(&mut self, plan: &Plan, operands: &Operands, _: Duration) -> Result<Timing, DeviceError> {
        // Copies to the operands are on a stream that MIOpen's does not wait for.
        self.hip.queue_mut().synchronize()?;
        let start = Instant::now();
        self.convolve(plan, operands)?;
        Ok(Timing { total: start.elapsed(), ..Timing::default() })
    }

    fn time(&mut self, _: &Plan, _: &[Operands], _: u32, _: Duration) -> Result<Times, DeviceError> {
        Err(DeviceError::Unsupported("a libMIOpen is verified, not timed".into()))
    }
}
