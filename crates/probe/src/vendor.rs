//! MIOpen on one device, as safe Rust.

use crate::ffi::{Libraries, Pass, Pointer, Status, text};
use crate::protocol::{Finding, Identity, SolverVerdict};
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::ptr::null_mut;
use wave32_problem::Direction;

/// `miopenStatusAllocFailed`.
const ALLOC_FAILED: Status = 4;
/// `hipErrorOutOfMemory`.
const HIP_OUT_OF_MEMORY: Status = 2;
/// Bytes offered for a `hipDeviceProp_t`: no release's is 2 KB.
const PROPERTIES: usize = 8192;

/// MIOpen on one device.
pub struct Vendor {
    pub(crate) libraries: Libraries,
    pub(crate) handle: Pointer,
    identity: Identity,
}

impl Vendor {
    /// Loads the library and opens the device.
    ///
    /// # Errors
    /// One line for people: the library does not open or lacks a function, or HIP sees no such device.
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

    pub(crate) fn pass(&self, direction: Direction) -> &Pass {
        match direction {
            Direction::Forward => &self.libraries.forward,
            Direction::BackwardData => &self.libraries.backward_data,
            Direction::BackwardWeights => &self.libraries.backward_weights,
        }
    }

    pub(crate) fn hip(&self, what: &str, status: Status) -> Result<(), Finding> {
        hip_ok(&self.libraries, what, status)
    }

    pub(crate) fn miopen(&self, what: &str, status: Status) -> Result<(), Finding> {
        let verdict = match status {
            0 => return Ok(()),
            ALLOC_FAILED => SolverVerdict::OutOfMemory,
            _ => SolverVerdict::Refuses,
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
        HIP_OUT_OF_MEMORY => SolverVerdict::OutOfMemory,
        _ => SolverVerdict::Crash,
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

/// The card's target by its properties, without features (`:xnack-`).
fn target(properties: &[u8]) -> Option<String> {
    let name = wave32_hip::arch(properties)?;
    Some(name.split(':').next().unwrap_or_default().to_string())
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
