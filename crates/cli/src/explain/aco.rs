//! The code that Vulkan runs: Mesa's RADV compiles our shaders with ACO, on the virtual card, in a child.

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use wave32_cards::Board;
use wave32_device::{Operands, PlanDevice};
use wave32_model::{LaunchTime, ModelCard, PlanTime};
use wave32_problem::parse_line;
use wave32_solve::{Plan, Policy, Role, plan};
use wave32_verify::backend::Backend;

/// Time for one plan, its shaders' compilation included.
const LIMIT: Duration = Duration::from_secs(300);
const LAUNCHER: &str = "wave32-vgpu";

/// Runs the plan of one problem on the device that is here, and tells its launches.
#[derive(Debug, clap::Args)]
pub struct ChildArgs {
    line: String,
    /// Which problem of the line
    #[arg(long)]
    index: usize,
    #[arg(long)]
    solver: String,
}

/// What the child tells.
#[derive(Debug, Serialize, Deserialize)]
struct Ran {
    driver: String,
    config: String,
    launches: Vec<Launched>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Launched {
    kernel: String,
    grid: [u64; 3],
    seconds: f64,
}

/// The virtual card's report, as far as it is read here.
#[derive(Debug, Deserialize)]
struct Report {
    modelled: Modelled,
}

#[derive(Debug, Deserialize)]
struct Modelled {
    kernels: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    workgroups: [u64; 3],
    last: LaunchTime,
}

/// The child: runs the plan twice, as the first run teaches the queue how long launches take and may be cut.
///
/// # Errors
/// No device, no plan, or a launch that failed.
pub fn child(args: &ChildArgs) -> Result<ExitCode> {
    let problems = parse_line(&args.line)?;
    let problem = problems.get(args.index).context("the line has fewer problems")?;
    let policy = Policy { only: Some(args.solver.clone()), ..Policy::from_env()? };
    let Backend::Gpu(mut device) = Backend::open("vulkan")? else { bail!("no Vulkan device") };
    let driver = device.info().driver.clone();
    ensure!(driver.contains("radv"), "the Vulkan device is one of {driver}, not of RADV");
    let plan = plan(problem, device.caps(), &policy)?;
    let launches = run(device.as_mut(), &plan)?;
    let told = serde_json::to_string(&Ran { driver, config: plan.config, launches })?;
    crate::output::print(&format!("{told}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn run(device: &mut dyn PlanDevice, plan: &Plan) -> Result<Vec<Launched>> {
    let mut operands = Operands::new();
    for role in Role::ALL.into_iter().filter(|role| plan.role_bytes(*role) > 0) {
        operands = operands.with(role, device.alloc(plan.role_bytes(role))?, 0);
    }
    device.run(plan, &operands, LIMIT)?;
    let times = device.run(plan, &operands, LIMIT)?.launches;
    let told = |(launch, time): (&wave32_solve::Launch, Duration)| Launched {
        kernel: launch.kernel.clone(),
        grid: launch.grid.map(u64::from),
        seconds: time.as_secs_f64(),
    };
    Ok(plan.launches.iter().zip(times).map(told).collect())
}

/// The modelled time of the code that RADV makes for this plan on this card.
///
/// # Errors
/// No virtual card or no RADV here; the child failed, or chose another plan.
pub fn model(board: &Board, card: &ModelCard, line: &str, index: usize, plan: &Plan) -> Result<PlanTime> {
    let launcher = launcher()?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let [report, told, errors] = ["report", "told", "errors"].map(|name| folder.path().join(name));
    let mut command = Command::new(&launcher);
    command.args(["run", "--time", "--sample", "--card", &board.id(), "--report"]).arg(&report).arg("--");
    command.arg(std::env::current_exe().context("cannot find this program to start the child")?);
    command.args(["__explain-child", line, "--index", &index.to_string(), "--solver", plan.solver]);
    command.stdin(Stdio::null()).stdout(File::create(&told)?).stderr(File::create(&errors)?);
    if std::env::var_os("VK_DRIVER_FILES").is_none() {
        command.env("VK_DRIVER_FILES", manifest()?);
    }
    let mut child = command.spawn().with_context(|| format!("cannot start {}", launcher.display()))?;
    let until = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > until => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("the virtual card took longer than {} s", LIMIT.as_secs());
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    if !status.success() {
        let said = std::fs::read(&errors).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let line =
            said.lines().find(|line| line.contains("error")).or(said.lines().next()).unwrap_or_default();
        bail!("{}", wave32_host::text::readable(line).trim_start_matches("error: "));
    }
    let ran: Ran = read(&told)?;
    let report: Report = read(&report)?;
    ensure!(ran.config == plan.config, "the Vulkan route takes {} {} there", plan.solver, ran.config);
    let launches =
        ran.launches.iter().map(|launch| found(launch, &report.modelled.kernels)).collect::<Result<_>>()?;
    Ok(PlanTime::new(card, card.target, format!("ACO ({}, Vulkan route)", ran.driver), launches, plan))
}

/// The row of this launch: shaders have no names, so that of its grid whose time is nearest to the launch's.
fn found(launch: &Launched, rows: &[Row]) -> Result<LaunchTime> {
    let far = |row: &Row| {
        let middle = (row.last.time.low + row.last.time.high) / 2.0;
        (middle - launch.seconds).abs()
    };
    let same = rows.iter().filter(|row| row.workgroups == launch.grid);
    let row = same.min_by(|a, b| far(a).total_cmp(&far(b)));
    let row = row.with_context(|| format!("{} did not run in one piece", launch.kernel))?;
    Ok(LaunchTime { kernel: launch.kernel.clone(), ..row.last.clone() })
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let text = std::fs::read(path).context("the child told nothing")?;
    serde_json::from_slice(&text).context("what the child told cannot be read")
}

/// `$WAVE32_VGPU`, or the program beside this one, or that of PATH.
fn launcher() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("WAVE32_VGPU").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let mine = std::env::current_exe().ok();
    let beside = mine.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = beside.into_iter().chain(std::env::split_paths(&path));
    let found = folders.find_map(|folder| Some(folder.join(LAUNCHER)).filter(|file| file.is_file()));
    found.with_context(|| {
        format!("{LAUNCHER} is not beside wave32, on PATH or in WAVE32_VGPU (`make vgpu-host` builds it)")
    })
}

/// RADV's file for the Vulkan loader.
fn manifest() -> Result<PathBuf> {
    let names = [format!("radeon_icd.{}.json", std::env::consts::ARCH), "radeon_icd.json".to_string()];
    let folders =
        ["/etc", "/usr/local/share", "/usr/share"].map(|folder| Path::new(folder).join("vulkan/icd.d"));
    let mut files = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    files.find(|file| file.is_file()).context("Mesa's RADV is not installed (package mesa-vulkan-drivers)")
}
