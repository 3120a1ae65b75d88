//! `wave32 explain`: the choice of a solver, laid open.

pub mod aco;

use crate::devices::look;
use crate::output::{print, show};
use crate::tune::info;
use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use wave32_cards::{Board, NameError};
use wave32_device::tuned;
use wave32_model::{Effort, Model, ModelCard, PlanTime};
use wave32_problem::{Problem, parse_line};
use wave32_solve::{DeviceCaps, Plan, Policy, explain, usual_boards};

/// Shows the chain of refusals, the plan, bytes and FLOP, and the modelled time.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A MIOpenDriver line
    line: String,
    /// A device that is here (vulkan, vulkan:N, hip, hip:N) rather than the modelled cards
    #[arg(long, value_name = "DEVICE", conflicts_with = "card")]
    device: Option<String>,
    /// Only this modelled card, e.g. 'RX 5600 XT'
    #[arg(long, value_name = "NAME")]
    card: Option<String>,
    /// Only this solver
    #[arg(long, value_name = "NAME")]
    solver: Option<String>,
    /// Model the chosen plan's time on the cards from its code's instructions, LLVM's for the HIP route and ACO's for
    /// the Vulkan route (some seconds each)
    #[arg(long, conflicts_with = "device")]
    model: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Runs `wave32 explain`.
///
/// # Errors
/// A line that cannot be read, an unknown card, solver or device.
pub fn main(args: &Args) -> Result<ExitCode> {
    let problems = parse_line(&args.line)?;
    let mut policy = Policy::from_env()?;
    policy.only = args.solver.clone().or(policy.only);
    policy.check()?;
    let targets = targets(args.device.as_deref(), args.card.as_deref())?;
    let models = if args.model { models(&targets)? } else { Vec::new() };
    let mut texts = Vec::new();
    let mut values = Vec::new();
    for (number, problem) in problems.iter().enumerate() {
        for (index, target) in targets.iter().enumerate() {
            let Target { name, caps, .. } = target;
            let explanation = explain(problem, caps, &policy);
            let modelled = match (models.get(index), &explanation.chosen) {
                (Some(model), Some((plan, _))) => {
                    let llvms = caps.clone().by_hip(model.card().target);
                    let llvms = wave32_solve::plan(problem, &llvms, &policy)?;
                    Some(modelled(model, target, &args.line, number, [&llvms, plan])?)
                }
                _ => None,
            };
            let mut value = serde_json::json!({ "on": name, "explanation": explanation });
            if let Some(Modelled { llvm_plan, llvm, aco }) = &modelled {
                let aco = match aco {
                    Ok(time) => serde_json::to_value(time)?,
                    Err(why) => serde_json::json!({ "missing": why }),
                };
                value["modelled"] = serde_json::json!({ "llvm": llvm, "llvm_plan": llvm_plan, "aco": aco });
            }
            values.push(value);
            // On the first device all of it; on the next what differs most: the modelled time.
            let text = match (&explanation.chosen, index) {
                (Some((plan, cost)), 1..) => {
                    let (compute, memory) = caps.floors(problem.flops(), problem.bytes());
                    format!(
                        "on {name}: {} {}, modelled {:.1} us; floors: {:.1} us arithmetic, {:.1} us memory\n",
                        plan.solver,
                        plan.config,
                        cost * 1e6,
                        compute * 1e6,
                        memory * 1e6
                    )
                }
                _ => format!("on {name}\n{explanation}"),
            };
            texts.push(text);
            texts.extend(modelled.map(|Modelled { llvm_plan, llvm, aco }| match aco {
                Ok(aco) => format!("HIP route: {llvm_plan}\n{llvm}Vulkan route: the plan above\n{aco}  {}\n\n", wave32_model::STATED_ERROR),
                Err(why) => {
                    format!(
                        "HIP route: {llvm_plan}\n{llvm}ACO's code (Vulkan route): not modelled, {why}\n  {}\n\n",
                        wave32_model::STATED_ERROR
                    )
                }
            }));
        }
    }
    match args.json {
        true => print(&(serde_json::to_string_pretty(&values)? + "\n"))?,
        false => show(&texts.concat())?,
    }
    Ok(if problems.iter().all(|p| possible(p, &targets, &policy)) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// A plan's modelled time by each compiler.
struct Modelled {
    /// Solver and configuration that the HIP route takes; that of the Vulkan route is the explained one.
    llvm_plan: String,
    llvm: PlanTime,
    /// Or why there is none.
    aco: Result<PlanTime, String>,
}

fn modelled(
    model: &Model,
    target: &Target,
    line: &str,
    number: usize,
    [llvms, plan]: [&Plan; 2],
) -> Result<Modelled> {
    let llvm = model.plan(llvms, Effort::SAMPLE)?;
    let llvm_plan = format!("{} {}", llvms.solver, llvms.config);
    let board = target.board.context("a modelled card has a board")?;
    let aco = aco::model(board, model.card(), line, number, plan).map_err(|error| format!("{error:#}"));
    Ok(Modelled { llvm_plan, llvm, aco })
}

/// A model for each card.
///
/// # Errors
/// A card of another generation; this build has no code objects.
fn models(targets: &[Target]) -> Result<Vec<Model>> {
    let model = |target: &Target| match target.board.and_then(ModelCard::of) {
        Some(card) => Ok(Model::new(card)?),
        None => bail!("--model knows RDNA1's instructions only, and {} is another card", target.name),
    };
    targets.iter().map(model).collect()
}

fn possible(problem: &Problem, targets: &[Target], policy: &Policy) -> bool {
    targets.iter().all(|target| explain(problem, &target.caps, policy).chosen.is_some())
}

/// What a plan is explained for.
pub struct Target {
    /// In words.
    pub name: String,
    /// What it can.
    pub caps: DeviceCaps,
    /// The board, where it is a card that need not be here.
    board: Option<&'static Board>,
}

/// Where to explain for: the device asked for, the card asked for, or the usual cards.
///
/// # Errors
/// There is no such device or card, or several cards have that name.
pub fn targets(device: Option<&str>, card: Option<&str>) -> Result<Vec<Target>> {
    if let Some(name) = device {
        if name == "cpu" {
            bail!(
                "the CPU backend has one way only, im2col and GEMM; explain works for GPUs and modelled cards"
            );
        }
        let found = look(&AtomicBool::new(false))?;
        let ready = found.gpu(name)?;
        let Some(caps) = &ready.caps else { bail!("{name} does not say what it can") };
        let caps = DeviceCaps { tuned: tuned::load(&info(&ready.device)), ..caps.clone() };
        let name = format!("{} {}", ready.device.id, ready.device.name);
        return Ok(vec![Target { name, caps, board: None }]);
    }
    if card.is_some_and(|card| card.trim().is_empty()) {
        bail!("--card names no card: it is empty; leave it away, or give it a name such as 'RX 5600 XT'");
    }
    let boards = match card.map(wave32_cards::named).transpose() {
        Ok(board) => board.map_or_else(|| usual_boards().to_vec(), |board| vec![board]),
        Err(NameError::Unknown(names)) => {
            bail!("no card that is known here is called that; there are {}", names.join(", "))
        }
        Err(NameError::Ambiguous(names)) => {
            bail!("--card means several cards: {}; write the whole name", names.join(", "))
        }
    };
    let target = |board: &'static Board| Target {
        name: format!("{} (modelled)", board.name),
        caps: DeviceCaps::of(board),
        board: Some(board),
    };
    Ok(boards.into_iter().map(target).collect())
}
