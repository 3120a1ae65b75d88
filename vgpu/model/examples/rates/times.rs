//! Times of single launches by the instruction model, kept in a file from run to run.

use crate::Options;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use wave32_device::{Operands, PlanDevice};
use wave32_model::{Effort, Model, ModelCard};
use wave32_params::variants;
use wave32_problem::{Problem, ProblemSpec};
use wave32_solve::{Compiler, Launch, Plan, Role};
use wave32_verify::backend::Backend;

/// As much as the virtual card looks at.
const EFFORT: Effort = Effort { recorded: 400_000, simulated: 1_000_000 };
/// For one launch.
const LIMIT: Duration = Duration::from_secs(300);

/// A launch, with the problem whose tensors it binds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Asked {
    pub spec: ProblemSpec,
    pub workspace: u64,
    pub launch: Launch,
}

/// What the model says of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Told {
    /// The middle of its bracket.
    pub seconds: f64,
    /// Workgroups that a WGP holds at once, where that is known.
    pub resident: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    told: Told,
}

impl Asked {
    pub fn new(plan: &Plan, launch: &Launch) -> Self {
        Self { spec: plan.problem.spec(), workspace: plan.workspace_bytes, launch: launch.clone() }
    }

    fn plan(&self) -> Result<Plan, String> {
        let problem = Problem::try_from(self.spec.clone()).map_err(|e| e.to_string())?;
        // So small that the queue does not cut it.
        let launch = Launch { flops: 0, bytes: 0, ..self.launch.clone() };
        let config = self.launch.kernel.clone();
        Ok(Plan {
            problem,
            solver: "",
            config,
            tuned: false,
            workspace_bytes: self.workspace,
            launches: vec![launch],
            prepared: None,
        })
    }
}

/// Known times of one compiler's code on one card.
pub struct Times<'a> {
    options: &'a Options,
    compiler: Compiler,
    known: HashMap<String, Told>,
    /// Hashes of the sources, by name.
    sources: HashMap<String, u64>,
}

impl<'a> Times<'a> {
    pub fn new(options: &'a Options, compiler: Compiler) -> Result<Self, String> {
        let text = std::fs::read_to_string(&options.cache).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let known = lines.map(|line| (line.key, line.told)).collect();
        Ok(Self { options, compiler, known, sources: sources()? })
    }

    /// What a launch is known by: card, compiler, code, grid and parameters.
    fn key(&self, launch: &Launch) -> String {
        let mut hasher = DefaultHasher::new();
        let variant = variants::find(&launch.kernel);
        let source = variant.and_then(|variant| self.sources.get(&variant.source));
        (source, variant.map(|v| (&v.defines, v.threads)), &launch.params).hash(&mut hasher);
        let card = self.options.board.id();
        format!("{card} {:?} {} {:?} {:016x}", self.compiler, launch.kernel, launch.grid, hasher.finish())
    }

    pub fn get(&self, launch: &Launch) -> Option<Told> {
        self.known.get(&self.key(launch)).copied()
    }

    /// Finds out what is not known yet, and keeps it.
    pub fn learn(&mut self, asked: &[Asked]) -> Result<(), String> {
        let mut new: Vec<(String, &Asked)> = Vec::new();
        for one in asked {
            let key = self.key(&one.launch);
            if !self.known.contains_key(&key) && new.iter().all(|(other, _)| *other != key) {
                new.push((key, one));
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        let begin = std::time::Instant::now();
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&self.options.cache);
        let file = file.as_mut().map_err(|e| format!("{}: {e}", self.options.cache.display()))?;
        let all: Vec<Asked> = new.iter().map(|(_, asked)| (*asked).clone()).collect();
        let known = &mut self.known;
        let mut keep = |index: usize, told: Told| {
            let key = new[index].0.clone();
            let line = serde_json::to_string(&Line { key: key.clone(), told }).map_err(|e| e.to_string())?;
            writeln!(file, "{line}").map_err(|e| e.to_string())?;
            known.insert(key, told);
            Ok(())
        };
        match self.compiler {
            Compiler::Aco => aco(self.options, &all, &mut keep)?,
            _ => llvm(self.options, &all, &mut keep)?,
        }
        eprintln!(
            "{:?}: {} launches simulated in {:.0} s",
            self.compiler,
            all.len(),
            begin.elapsed().as_secs_f64()
        );
        Ok(())
    }
}

type Keep<'a> = &'a mut dyn FnMut(usize, Told) -> Result<(), String>;

/// Every source's hash, with all headers: an edit of either makes other code.
fn sources() -> Result<HashMap<String, u64>, String> {
    let folder = Options::root().join("kernels");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.sort();
    let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let is = |path: &&PathBuf, ending: &str| path.extension().is_some_and(|e| e == ending);
    let headers: String = files.iter().filter(|path| is(path, "h")).map(text).collect();
    let named = files.iter().filter(|path| is(path, "kern")).filter_map(|path| {
        let mut hasher = DefaultHasher::new();
        (text(path), &headers).hash(&mut hasher);
        Some((path.file_stem()?.to_str()?.to_string(), hasher.finish()))
    });
    Ok(named.collect())
}

fn llvm(options: &Options, asked: &[Asked], keep: Keep<'_>) -> Result<(), String> {
    let card = ModelCard::of(options.board).ok_or("the model knows RDNA1's cards only")?;
    let model = Model::new(card).map_err(|e| e.to_string())?;
    for (index, one) in asked.iter().enumerate() {
        let time = model.plan(&one.plan()?, EFFORT).map_err(|e| format!("{}: {e}", one.launch.kernel))?;
        let launch = &time.launches[0];
        let seconds = (launch.time.low + launch.time.high) / 2.0;
        keep(index, Told { seconds, resident: Some(launch.resident) })?;
    }
    Ok(())
}

/// The virtual card's report, as far as it is read here.
#[derive(Deserialize)]
struct Report {
    modelled: Modelled,
}

#[derive(Deserialize)]
struct Modelled {
    kernels: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    workgroups: [u32; 3],
    last: Last,
}

#[derive(Deserialize)]
struct Last {
    resident: u64,
}

/// RADV compiles and runs them on the virtual card, in a child.
fn aco(options: &Options, asked: &[Asked], keep: Keep<'_>) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let [report, list] = ["report", "list"].map(|name| folder.path().join(name));
    let lines: Vec<String> = asked.iter().filter_map(|one| serde_json::to_string(one).ok()).collect();
    std::fs::write(&list, lines.join("\n")).map_err(|e| e.to_string())?;
    let mut command = Command::new(&options.launcher);
    command
        .args(["run", "--time", "--sample", "--card", &options.board.id(), "--report"])
        .arg(&report)
        .arg("--");
    command.arg(std::env::current_exe().map_err(|e| e.to_string())?).arg("__aco").arg(&list);
    command.env("XDG_CACHE_HOME", folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", options.launcher.display()))?;
    let mut seconds: Vec<f64> = Vec::new();
    // Shaders have no names: a grid that launches of one variant alone have tells how many workgroups fit.
    let unique = |index: usize| {
        let Launch { kernel, grid, .. } = &asked[index].launch;
        asked.iter().all(|other| other.launch.grid != *grid || other.launch.kernel == *kernel)
    };
    for line in std::io::BufReader::new(child.stdout.take().ok_or("no pipe")?).lines() {
        let line = line.map_err(|e| e.to_string())?;
        if let Some(text) = line.strip_prefix("seconds ") {
            let value: f64 = text.parse().map_err(|_| format!("the child said {line}"))?;
            seconds.push(value);
            if !unique(seconds.len() - 1) {
                keep(seconds.len() - 1, Told { seconds: value, resident: None })?;
            }
        }
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    if !status.success() || seconds.len() != asked.len() {
        return Err(format!(
            "the virtual card timed {} of {} launches ({status})",
            seconds.len(),
            asked.len()
        ));
    }
    let text = std::fs::read(&report).map_err(|e| e.to_string())?;
    let report: Report = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    for (index, &seconds) in seconds.iter().enumerate().filter(|(index, _)| unique(*index)) {
        let rows = report.modelled.kernels.iter();
        let mut rows = rows.filter(|row| row.workgroups == asked[index].launch.grid);
        keep(index, Told { seconds, resident: rows.next().map(|row| row.last.resident) })?;
    }
    Ok(())
}

/// The child: says how long each launch took by the device's clock, which counts modelled time.
pub fn aco_child(list: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(list).map_err(|e| e.to_string())?;
    let Backend::Gpu(mut device) = Backend::open("vulkan").map_err(|e| e.to_string())? else {
        return Err("no Vulkan device".into());
    };
    if !device.info().driver.contains("radv") {
        return Err(format!("the Vulkan device is one of {}, not of RADV", device.info().driver));
    }
    for line in text.lines() {
        let asked: Asked = serde_json::from_str(line).map_err(|e| e.to_string())?;
        let seconds =
            run(device.as_mut(), &asked.plan()?).map_err(|e| format!("{}: {e}", asked.launch.kernel))?;
        println!("seconds {seconds:e}");
    }
    Ok(())
}

fn run(device: &mut dyn PlanDevice, plan: &Plan) -> Result<f64, String> {
    let mut operands = Operands::new();
    let mut held = Vec::new();
    for role in Role::ALL.into_iter().filter(|role| plan.role_bytes(*role) > 0) {
        let buffer = device.alloc(plan.role_bytes(role)).map_err(|e| e.to_string())?;
        held.push(buffer);
        operands = operands.with(role, buffer, 0);
    }
    let timing = device.run(plan, &operands, LIMIT).map_err(|e| e.to_string());
    held.into_iter().for_each(|buffer| device.free(buffer));
    let timing = timing?;
    if timing.submits > 2 {
        return Err(format!("it ran in {} submits", timing.submits));
    }
    Ok(timing.launches[0].as_secs_f64())
}
