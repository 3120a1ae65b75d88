//! What RADV's compiler (ACO) makes of SPIR-V for a card that is not here.
//!
//! RADV has a null device: `RADV_FORCE_FAMILY=navi10` makes it compile as for that card, without one.
//! The variable is read once by the driver and a driver may crash, so each family is asked in a child
//! process: this very program, which must call [`serve_if_child`] first thing in `main`.

mod driver;

use crate::CompileError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wave32_cards::targets;

/// RADV's names of the chips read back, those of RDNA1 that this build makes code for: `navi10`, ...
#[must_use]
pub fn families() -> Vec<String> {
    let rdna1 = targets::TARGETS.iter().filter(|target| target.family == targets::Family::Gfx10_1);
    let chips = rdna1.filter(|target| target.code_of.is_some()).filter_map(|target| target.chip);
    chips.map(|chip| chip.driver_name()).collect()
}

/// Longest that one family may take: 60 kernels take a few seconds.
const DEADLINE: Duration = Duration::from_secs(300);

/// The folder in which parent and child exchange files.
const CHILD: &str = "WAVE32_ACO_CHILD";

/// One kernel to compile.
#[derive(Debug, Clone)]
pub struct Input {
    /// The variant's name.
    pub name: String,
    /// Its SPIR-V.
    pub spirv: Vec<u8>,
    /// Storage buffers in set 0.
    pub buffers: u32,
    /// 32-bit words of push constants.
    pub params: u32,
}

/// What the driver says of one kernel.
#[derive(Debug, Clone, Default)]
pub struct Compiled {
    /// The driver's own statistics by its own names: `VGPRs`, `Spilled VGPRs`, ...
    pub statistics: BTreeMap<String, u64>,
    /// The final ISA as text.
    pub isa: String,
}

/// What one family's compiler made.
#[derive(Debug, Clone)]
pub struct Family {
    /// Driver and version: `radv Mesa 22.3.6`.
    pub driver: String,
    /// By kernel name.
    pub kernels: BTreeMap<String, Compiled>,
}

/// Mesa's ICD file for RADV: `$WAVE32_RADV_ICD`, else in the Vulkan loader's usual folders.
///
/// # Errors
/// [`CompileError::Tool`] saying what to install.
pub fn icd_file() -> Result<PathBuf, CompileError> {
    if let Some(forced) = std::env::var_os("WAVE32_RADV_ICD").filter(|v| !v.is_empty()) {
        return Ok(PathBuf::from(forced));
    }
    for folder in ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"] {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
        // i686 files may lie beside those of this architecture.
        let fits = |n: &String| {
            n == "radeon_icd.json" || *n == format!("radeon_icd.{}.json", std::env::consts::ARCH)
        };
        if let Some(name) = names.filter(fits).max() {
            return Ok(Path::new(folder).join(name));
        }
    }
    Err(CompileError::Tool(
        "RADV is not installed: install mesa-vulkan-drivers, or set WAVE32_RADV_ICD to its ICD file"
            .to_string(),
    ))
}

/// Compiles `inputs` as the card family `family` (see [`families`]) would.
///
/// # Errors
/// [`CompileError::Tool`] without RADV or where the child fails, with what it said.
pub fn compile(family: &str, inputs: &[Input]) -> Result<Family, CompileError> {
    let icd = icd_file()?;
    let folder = Folder::new()?;
    let io = |path: &Path, e: std::io::Error| CompileError::Tool(format!("{}: {e}", path.display()));
    let mut list = String::new();
    for input in inputs {
        list += &format!("{} {} {}\n", input.name, input.buffers, input.params);
        let path = folder.0.join(format!("{}.spv", input.name));
        std::fs::write(&path, &input.spirv).map_err(|e| io(&path, e))?;
    }
    let path = folder.0.join("list");
    std::fs::write(&path, list).map_err(|e| io(&path, e))?;
    let log_path = folder.0.join("log");
    let log = std::fs::File::create(&log_path).map_err(|e| io(&log_path, e))?;
    let program =
        std::env::current_exe().map_err(|e| CompileError::Tool(format!("this program's path: {e}")))?;
    let mut child = Command::new(&program)
        .env(CHILD, &folder.0)
        .env("RADV_FORCE_FAMILY", family)
        .env("RADV_DEBUG", "nocache")
        .env("VK_ICD_FILENAMES", &icd)
        .env("VK_DRIVER_FILES", &icd)
        .env_remove("VK_INSTANCE_LAYERS")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|e| io(&program, e))?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|e| io(&program, e))? {
            Some(status) => break status,
            None if started.elapsed() > DEADLINE => {
                // It may be gone by now; then there is nothing to end.
                let _ = child.kill();
                let _ = child.wait();
                return Err(CompileError::Tool(format!("RADV took more than {DEADLINE:?} for {family}")));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let log = std::fs::read_to_string(&log_path).unwrap_or_default();
    if !status.success() {
        return Err(CompileError::Tool(format!("RADV as {family}: {status}\n{}", log.trim())));
    }
    collect(&folder.0, inputs)
}

fn collect(folder: &Path, inputs: &[Input]) -> Result<Family, CompileError> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).map_err(|source| CompileError::Read {
            at: "RADV's answer".to_string(),
            path: path.display().to_string(),
            source,
        })
    };
    let mut kernels = BTreeMap::new();
    for input in inputs {
        let statistics = read(&format!("{}.stats", input.name))?;
        let statistics = statistics
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .filter_map(|(name, value)| Some((name.to_string(), value.parse().ok()?)))
            .collect();
        let isa = read(&format!("{}.isa", input.name))?;
        kernels.insert(input.name.clone(), Compiled { statistics, isa });
    }
    Ok(Family { driver: read("driver")?, kernels })
}

/// In the child that [`compile`] starts: does its work and ends the process. Elsewhere: nothing.
pub fn serve_if_child() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    match driver::serve(Path::new(&folder)) {
        Ok(()) => std::process::exit(0),
        Err(reason) => {
            eprintln!("{reason}");
            std::process::exit(1);
        }
    }
}

/// A folder of our own, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, CompileError> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("wave32-aco-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| CompileError::Tool(format!("{}: {e}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Best effort: it is in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
