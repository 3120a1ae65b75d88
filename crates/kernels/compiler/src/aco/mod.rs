//! What RADV's compiler (ACO) makes of SPIR-V for a card that is not here.
//!
//! RADV has a null device: `RADV_FORCE_FAMILY=navi10` makes it compile as for that card, without one.
//! The variable is read once by the driver and a driver may crash, so each family is asked in a child
//! process: this very program, which must call [`serve_if_child`] first thing in `main`.

mod driver;

use crate::CompileError;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use wave32_cards::{Board, targets};

/// RADV's names of the chips read back, those of RDNA1 that this build makes code for: `navi10`, ...
#[must_use]
pub fn families() -> Vec<String> {
    let rdna1 = targets::TARGETS.iter().filter(|target| target.family == targets::Family::Gfx10_1);
    let chips = rdna1.filter(|target| target.code_of.is_some()).filter_map(|target| target.chip);
    chips.map(|chip| chip.driver_name()).collect()
}

/// Longest that one family may take for compiling everything once; it takes half a minute.
const DEADLINE: Duration = Duration::from_secs(300);

/// The folder in which parent and child exchange files.
const CHILD: &str = "WAVE32_ACO_CHILD";

/// A folder with an unpacked Debian system (`scripts/debian_unpack.sh`) whose RADV is asked instead of this system's.
const ROOT: &str = "WAVE32_RADV_ROOT";

/// What an error says where RADV does not know a family.
pub const UNKNOWN: &str = "Unknown family";

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
    /// What not all devices have.
    pub needs: Needs,
}

/// Instructions that a kernel needs and not all devices have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// None.
    Nothing,
    /// Matrix instructions (`VK_KHR_cooperative_matrix`).
    Matrix,
    /// Dot products (`VK_VALVE_shader_mixed_float_dot_product`).
    Dot,
}

impl Needs {
    /// As the child's list says it.
    fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Matrix => driver::MATRIX,
            Self::Dot => driver::DOT,
        }
    }
}

/// What the driver says of one kernel.
#[derive(Debug, Clone, Default)]
pub struct Compiled {
    /// The driver's own statistics by its own names: `VGPRs`, `Spilled VGPRs`, ...
    pub statistics: BTreeMap<String, u64>,
    /// The final ISA as text.
    pub isa: String,
    /// Lanes of a wave, as the driver says it compiled.
    pub subgroup_size: u32,
    /// Processor time of `vkCreateComputePipelines` without a cache; none where no time was asked for.
    pub time: Option<Duration>,
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

/// What is asked besides the code.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// How often each kernel is compiled to tell how long the quickest time took; 0 tells no time.
    pub times: u32,
    /// `wave32-vgpu`, on whose virtual card RADV then runs: RADV of Mesa 26 has no null device.
    pub launcher: Option<PathBuf>,
}

/// The words that start a child which loads RADV as `family`, and RADV's ICD file.
///
/// Programs of an unpacked system need its C library: its dynamic loader starts them. Its ICD file may name the place
/// where RADV would be installed, so one is written into `folder` that names the file.
fn start(
    folder: &Path,
    family: &str,
    launcher: Option<&Path>,
) -> Result<(Vec<OsString>, PathBuf), CompileError> {
    let program =
        std::env::current_exe().map_err(|e| CompileError::Tool(format!("this program's path: {e}")))?;
    let mut words: Vec<OsString> = Vec::new();
    if let Some(launcher) = launcher {
        let board = wave32_cards::rdna1().find(|board| chip_of(board).as_deref() == Some(family));
        let board =
            board.ok_or_else(|| CompileError::Tool(format!("{UNKNOWN}: no virtual card is {family}")))?;
        words.extend([launcher.into(), "run".into(), "--card".into(), board.id().into(), "--".into()]);
    }
    let Some(root) = std::env::var_os(ROOT).filter(|v| !v.is_empty()) else {
        words.push(program.into());
        return Ok((words, icd_file()?));
    };
    let libraries = std::path::absolute(Path::new(&root).join("usr/lib/x86_64-linux-gnu"));
    let libraries = libraries.map_err(|e| CompileError::Tool(format!("{ROOT}: {e}")))?;
    let (loader, radv) = (libraries.join("ld-linux-x86-64.so.2"), libraries.join("libvulkan_radeon.so"));
    if let Some(missing) = [&loader, &radv].into_iter().find(|path| !path.exists()) {
        let path = missing.display();
        return Err(CompileError::Tool(format!(
            "{path} is not there: scripts/debian_unpack.sh unpacks mesa-vulkan-drivers and libvulkan1 for {ROOT}"
        )));
    }
    let icd = folder.join("icd.json");
    let text = format!(
        r#"{{"file_format_version": "1.0.1", "ICD": {{"library_path": {:?}, "api_version": "1.3.0"}}}}"#,
        radv.display().to_string()
    );
    std::fs::write(&icd, text).map_err(|e| CompileError::Tool(format!("{}: {e}", icd.display())))?;
    let mut path = libraries.into_os_string();
    // The virtual card's library is loaded by its name.
    if let Some(beside) = launcher.and_then(Path::parent) {
        path.push(":");
        path.push(beside.join("lib"));
    }
    words.extend([loader.into(), "--library-path".into(), path, program.into()]);
    Ok((words, icd))
}

fn chip_of(board: &Board) -> Option<String> {
    Some(board.target().chip?.driver_name())
}

/// Compiles `inputs` as the card family `family` (see [`families`]) would; those that need instructions where the driver offers these.
///
/// # Errors
/// [`CompileError::Tool`] without RADV or where the child fails, with what it said; one that contains [`UNKNOWN`] where
/// this RADV does not know the family.
pub fn compile(family: &str, inputs: &[Input], asked: &Asked) -> Result<Family, CompileError> {
    let folder = Folder::new()?;
    let (words, icd) = start(&folder.0, family, asked.launcher.as_deref())?;
    let times = asked.times;
    let io = |path: &Path, e: std::io::Error| CompileError::Tool(format!("{}: {e}", path.display()));
    let mut list = String::new();
    for input in inputs {
        let needs = input.needs.word();
        list += &format!("{} {} {} {times} {needs}\n", input.name, input.buffers, input.params);
        let path = folder.0.join(format!("{}.spv", input.name));
        std::fs::write(&path, &input.spirv).map_err(|e| io(&path, e))?;
    }
    let path = folder.0.join("list");
    std::fs::write(&path, list).map_err(|e| io(&path, e))?;
    let log_path = folder.0.join("log");
    let log = std::fs::File::create(&log_path).map_err(|e| io(&log_path, e))?;
    let program = PathBuf::from(&words[0]);
    let mut command = Command::new(&program);
    if asked.launcher.is_none() {
        command.env("RADV_FORCE_FAMILY", family);
    }
    let mut child = command
        .args(&words[1..])
        .env(CHILD, &folder.0)
        .env("RADV_DEBUG", "nocache")
        .env("VK_ICD_FILENAMES", &icd)
        .env("VK_DRIVER_FILES", &icd)
        // This system's layers are made for its own C library.
        .env("VK_LOADER_LAYERS_DISABLE", "~implicit~")
        .env_remove("VK_INSTANCE_LAYERS")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|e| io(&program, e))?;
    let (started, deadline) = (Instant::now(), DEADLINE * (times + 1));
    let status = loop {
        match child.try_wait().map_err(|e| io(&program, e))? {
            Some(status) => break status,
            None if started.elapsed() > deadline => {
                // It may be gone by now; then there is nothing to end.
                let _ = child.kill();
                let _ = child.wait();
                return Err(CompileError::Tool(format!("RADV took more than {deadline:?} for {family}")));
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
        if input.needs != Needs::Nothing && !folder.join(format!("{}.found", input.name)).exists() {
            continue;
        }
        let numbers = |text: String| -> BTreeMap<String, u64> {
            let lines = text.lines().filter_map(|line| line.split_once('\t'));
            lines.filter_map(|(name, value)| Some((name.to_string(), value.parse().ok()?))).collect()
        };
        let found = numbers(read(&format!("{}.found", input.name))?);
        let compiled = Compiled {
            statistics: numbers(read(&format!("{}.stats", input.name))?),
            isa: read(&format!("{}.isa", input.name))?,
            subgroup_size: found.get(driver::SUBGROUP_SIZE).map_or(0, |&size| size as u32),
            time: found.get(driver::NANOSECONDS).map(|&time| Duration::from_nanos(time)),
        };
        kernels.insert(input.name.clone(), compiled);
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
