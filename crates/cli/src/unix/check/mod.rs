//! `wave32 check`: will this network run here, on which route, layer by layer?

mod rocm;
mod text;

use crate::explain::{Target, targets};
use crate::output::{print, show};
use crate::unix::vendor::Vendor;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use wave32_check::infer::Given;
use wave32_check::layers::{Layer, layers};
use wave32_check::notes::{self, NoteVerdict, SYSTEMS};
use wave32_check::onnx;
use wave32_host::file;
use wave32_probe::standing::Standing;
use wave32_problem::{ConvProblem, ConvSpec, Direction, Epilogue, Problem};
use wave32_solve::{DeviceCaps, Policy, explain};
use wave32_verify::suites;

/// Lists a network's convolutions: on which route each runs, by which solver, in what modelled time, and what a
/// card's owner saw plain MIOpen do with its shape. With --device rocm: which of MIOpen's solvers `wave32 probe` found to
/// work for it on this machine, and which not.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// An ONNX file, a file of MIOpenDriver lines, a line, or a suite (nets:resnet50)
    model: String,
    /// The modelled card
    #[arg(long, value_name = "NAME", default_value = "RX 5600 XT", conflicts_with = "device")]
    card: String,
    /// A device that is here (vulkan, vulkan:N, hip, hip:N, rocm, rocm:N) rather than a modelled card
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Images at a time [default: the file's, 1 where that is open]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    batch: Option<i64>,
    /// Size of the input images, e.g. 224 or 480x640 (height x width) [default: the file's]
    #[arg(long, value_name = "HxW", value_parser = size)]
    size: Option<[i64; 2]>,
    /// The two backward passes as well
    #[arg(long)]
    train: bool,
    /// Whose notes on MIOpen: rocm-5.7, rocm-5.2-gemm or rocm-5.2-implicit-gemm
    #[arg(long, value_name = "SYSTEM", default_value = SYSTEMS[0].name, value_parser = system)]
    notes: String,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "With --device rocm")]
    vendor: Vendor,
}

fn size(text: &str) -> Result<[i64; 2], String> {
    let number = |word: &str| word.parse::<i64>().ok().filter(|&v| v > 0);
    let (h, w) = text.split_once('x').unwrap_or((text, text));
    match (number(h), number(w)) {
        (Some(h), Some(w)) => Ok([h, w]),
        _ => Err("must be a size such as 224 or 480x640".into()),
    }
}

fn system(text: &str) -> Result<String, String> {
    let known: Vec<&str> = SYSTEMS.iter().map(|s| s.name).collect();
    if known.contains(&text) { Ok(text.into()) } else { Err(format!("must be one of {}", known.join(", "))) }
}

/// One convolution, with all layers that share it.
#[derive(Debug, Serialize)]
struct Row {
    names: Vec<String>,
    /// Layers; names may be fewer, for lists do not name each.
    layers: u32,
    line: Option<String>,
    shape: String,
    pass: &'static str,
    route: Option<&'static str>,
    solver: Option<String>,
    /// Of one layer.
    modelled_s: Option<f64>,
    gflop: f64,
    notes: NoteVerdict,
    source: &'static str,
    /// With --device rocm: what the probe found; none where it never tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    rocm: Option<Standing>,
    /// Why nothing is known of it, or a remark.
    remark: String,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    on: String,
    notes: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rocm: Option<rocm::Source>,
    rows: Vec<Row>,
}

/// A layer of any kind of model: as often as it comes.
struct Wanted {
    layer: Layer,
    count: u32,
    passes: Vec<Direction>,
}

/// Runs `wave32 check`.
///
/// # Errors
/// The model cannot be read, or there is no such card or device.
pub fn main(args: &Args) -> Result<ExitCode> {
    let layers = read(args)?;
    let on = on(args)?;
    let mut unprobed: Vec<String> = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    for wanted in layers {
        for &pass in &wanted.passes {
            let row = row(&wanted, pass, &args.notes, &on, &mut unprobed);
            let same = rows
                .iter_mut()
                .find(|r| r.line.is_some() && (&r.line, &r.remark) == (&row.line, &row.remark));
            match same {
                Some(old) => {
                    old.layers += row.layers;
                    old.names.extend(row.names);
                }
                None => rows.push(row),
            }
        }
    }
    if rows.is_empty() {
        bail!("{} holds no convolution", args.model);
    }
    let what = SYSTEMS.iter().find(|s| s.name == args.notes).map_or("", |s| s.what);
    let (on, rocm) = match on {
        On::Vulkan { name, .. } => (name, None),
        On::Rocm(probed) => (probed.identity().to_string(), Some(probed.source(&unprobed))),
    };
    let report = Report { model: args.model.clone(), on, notes: what, rocm, rows };
    match args.json {
        true => print(&(serde_json::to_string_pretty(&report)? + "\n"))?,
        false => show(&text::text(&report))?,
    }
    let all = report.rows.iter().all(|row| row.route.is_some());
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What a network is checked for.
enum On {
    Vulkan { name: String, caps: DeviceCaps, policy: Policy },
    Rocm(rocm::Probed),
}

fn on(args: &Args) -> Result<On> {
    let device = args.device.as_deref();
    if let Some(number) = device.and_then(|name| name.strip_prefix("rocm")) {
        let number = if number.is_empty() { Some("0") } else { number.strip_prefix(':') };
        let number = number.and_then(|n| n.parse().ok()).filter(|&n: &i32| n >= 0);
        return Ok(On::Rocm(rocm::Probed::open(&args.vendor, number.context("must be rocm or rocm:N")?)?));
    }
    if args.vendor.is_given() {
        bail!("--library and --state are for --device rocm");
    }
    let card = device.is_none().then_some(args.card.as_str());
    let target = targets(device, card)?.into_iter().next();
    let Target { name, caps, .. } = target.context("there is no card to model")?;
    Ok(On::Vulkan { name, caps, policy: Policy::from_env()? })
}

/// The layers of whatever the word names.
fn read(args: &Args) -> Result<Vec<Wanted>> {
    let path = Path::new(&args.model);
    let passes = if args.train { Direction::ALL.to_vec() } else { vec![Direction::Forward] };
    if path.is_file() && (path.extension().is_some_and(|e| e == "onnx") || !is_text(path)) {
        let given = Given { batch: args.batch, size: args.size };
        let found = layers(&onnx::read(path)?, &given);
        return Ok(found
            .into_iter()
            .map(|layer| Wanted { layer, count: 1, passes: passes.clone() })
            .collect());
    }
    if args.size.is_some() {
        bail!("--size is for ONNX files: lines say their size themselves");
    }
    let entries = suites::select(&args.model)?.into_iter().map(|entry| -> Result<Wanted> {
        let entry = match args.batch {
            Some(n) => entry.with_batch(n)?,
            None => entry,
        };
        let passes = if args.train { Direction::ALL.to_vec() } else { entry.directions };
        let problem = match entry.problem {
            Problem::Conv(problem) => Ok(problem),
            Problem::Matmul(_) => Err("a product of matrices: `wave32 verify` proves it".to_string()),
        };
        let layer = Layer { name: entry.label, problem, uneven: None };
        Ok(Wanted { layer, count: entry.layers, passes })
    });
    entries.collect()
}

/// True for what an editor would show: a list of lines, not protobuf. UTF-16 is a text too, which is told where it is read.
fn is_text(path: &Path) -> bool {
    let utf16 = |bytes: &[u8]| bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    let text = |bytes: &[u8]| utf16(bytes) || !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok();
    file::read(path, file::LINES).is_ok_and(|bytes| text(&bytes))
}

fn row(wanted: &Wanted, pass: Direction, system: &str, on: &On, unprobed: &mut Vec<String>) -> Row {
    let layer = &wanted.layer;
    let mut row = Row {
        names: vec![layer.name.clone()],
        layers: wanted.count,
        line: None,
        shape: String::new(),
        pass: pass.name(),
        route: None,
        solver: None,
        modelled_s: None,
        gflop: 0.0,
        notes: NoteVerdict::Unknown,
        source: "",
        rocm: None,
        remark: String::new(),
    };
    let problem = match layer.problem.clone().and_then(|p| turned(&p, pass)) {
        Ok(problem) => problem,
        Err(why) => {
            row.remark = why;
            return row;
        }
    };
    if let Some([t, l, b, r]) = layer.uneven {
        row.remark = format!("its padding is uneven ({t} {l} {b} {r}): the rest is counted to the image");
    }
    row.gflop = problem.flops() as f64 / 1e9;
    row.shape = suites::short(&problem);
    (row.notes, row.source) = notes::verdict(system, &problem);
    match on {
        On::Rocm(probed) => {
            let (standing, line) = probed.standing(&problem);
            unprobed.extend(line.filter(|line| !unprobed.contains(line)));
            if let Some(best) = standing.as_ref().and_then(|standing| standing.safe.first()) {
                row.route = Some("rocm");
                row.solver = Some(best.solver.clone());
            }
            row.rocm = standing;
        }
        On::Vulkan { caps, policy, .. } => match explain(&problem, caps, policy).chosen {
            Some((plan, seconds)) => {
                row.route = Some("vulkan");
                row.solver = Some(plan.solver.to_string());
                row.modelled_s = Some(seconds);
            }
            // It has no limits but memory.
            None => {
                row.route = Some("cpu");
                row.solver = Some("im2col".into());
            }
        },
    }
    row.line = Some(problem.to_string());
    row
}

fn turned(p: &ConvProblem, direction: Direction) -> Result<ConvProblem, String> {
    let epilogue = if direction == Direction::Forward { p.spec().epilogue } else { Epilogue::default() };
    ConvProblem::new(ConvSpec { direction, epilogue, ..p.spec().clone() }).map_err(|e| e.to_string())
}
