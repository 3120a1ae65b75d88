//! `wave32 doctor`: what is on this machine, what is wrong, what to do.

use crate::devices::look_for_vulkan;
use crate::ending::NoThread;
use crate::output::{print, show};
use crate::unix::apply::store;
use crate::unix::consent::{Consent, Outcome};
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use wave32_change::{Root, Store};
use wave32_doctor::facts::{Facts, VulkanDevice};
use wave32_doctor::repair::{self, Owner};
use wave32_doctor::report;
use wave32_doctor::restore;
use wave32_doctor::scan::{self, Options};
use wave32_doctor::system::System;
use wave32_doctor::verdict::Diagnosis;
use wave32_host::own;

/// Time for Vulkan drivers to load and say what they have; the doctor does not wait for a hanging one.
const STARTUP: Duration = Duration::from_secs(5);

/// Says which routes work here, what is wrong, worst first, and what to do about each. Changes nothing without --fix.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The root of another machine: a mounted disk, a container's files, a recorded tree
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// A Python interpreter, or the folder of its environment, whose PyTorch to look at too
    #[arg(long, value_name = "PYTHON")]
    python: Vec<String>,
    /// Read and sum up large libraries to their end, however long it takes
    #[arg(long)]
    thorough: bool,
    /// Put right what can be put right by changing your files: shows the diff, asks, can be undone
    #[arg(long)]
    fix: bool,
    /// With --fix: the system's files instead of yours (needs root)
    #[arg(long, requires = "fix")]
    system: bool,
    #[command(flatten)]
    consent: Consent,
}

/// Runs `wave32 doctor`.
///
/// # Errors
/// `--root` is not a directory.
pub fn main(args: &Args) -> Result<ExitCode> {
    let system = System::at(&args.root)?;
    let options = Options { python: args.python.clone(), thorough: args.thorough };
    let facts = examine(&system, &options);
    let diagnosis = Diagnosis::of(facts);
    if args.fix {
        return fix(args, &diagnosis);
    }
    if args.consent.json() {
        print(&(serde_json::to_string_pretty(&diagnosis)? + "\n"))?;
    } else {
        show(&report::text(&diagnosis))?;
    }
    Ok(if diagnosis.is_well() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Carries out what the doctor can do, and says what is left to do by hand.
fn fix(args: &Args, diagnosis: &Diagnosis) -> Result<ExitCode> {
    let root = Root::new(&args.root)
        .with_context(|| format!("--root {} is no folder that can be read", args.root.display()))?;
    let home = std::env::var("HOME").context("$HOME names no folder; set it to yours")?;
    let owner = if args.system { Owner::System } else { Owner::User(&home) };
    let store = store(root, args.system)?;
    let (by_hand, then) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let outcome = args.consent.carry_out(&store, false, |session| {
        let repairs = repair::plan(session.store().root(), &diagnosis.findings, owner, diagnosis.facts.live)?;
        by_hand.replace(repairs.by_hand);
        then.replace(repairs.plan.then().to_vec());
        Ok(repairs.plan)
    })?;
    match outcome {
        Outcome::Nothing => args.consent.say("nothing here that can be put right by changing these files")?,
        Outcome::Declined => args.consent.say("nothing was changed")?,
        Outcome::Done(id) => {
            follow(args, &store, id, &then.into_inner())?;
            args.consent.say(&format!(
                "done (change {id}): it holds for shells started from now on; `wave32 undo` takes it back"
            ))?;
        }
    }
    let by_hand = by_hand.into_inner();
    if !by_hand.is_empty() {
        args.consent.say("left to you:")?;
    }
    for line in &by_hand {
        args.consent.say(&format!("  {line}"))?;
    }
    Ok(outcome.code())
}

/// Runs the commands of a change; where one fails, the change's files are put back.
fn follow(args: &Args, store: &Store, id: u64, commands: &[String]) -> Result<()> {
    let system = System::live();
    for command in commands {
        args.consent.say(&format!("running: {command}"))?;
        let Err(error) = restore::run(&system, command) else { continue };
        let session = args.consent.lock(store, false)?;
        session.apply(&session.plan_undo(id)?)?;
        return Err(error).with_context(|| {
            format!("the files of change {id} are back where they were; commands before this one have run")
        });
    }
    Ok(())
}

/// Reads the machine; on the running one the Vulkan drivers are asked meanwhile, in a guarded child.
pub fn examine(system: &System, options: &Options) -> Facts {
    if !system.live {
        return scan::scan(system, options);
    }
    let asked = std::thread::Builder::new().spawn(|| look_for_vulkan(&AtomicBool::new(false), STARTUP));
    let mut facts = scan::scan(system, options);
    let asked = match asked {
        Ok(asked) => asked.join(),
        Err(error) => Ok(Err(NoThread(error).into())),
    };
    match asked {
        Ok(Ok(found)) => {
            let devices = found.vulkan.into_iter().map(|ready| VulkanDevice {
                name: ready.device.name,
                kind: ready.device.kind.to_string(),
                driver: ready.device.driver,
                unusable: ready.device.unusable,
            });
            facts.vulkan.devices = Some(devices.collect());
            facts.vulkan.failure = found.no_vulkan.filter(|why| why != "no Vulkan device");
        }
        Ok(Err(error)) => facts.vulkan.failure = Some(format!("{error:#}")),
        Err(_) => facts.vulkan.failure = Some("the thread that asks for devices failed".into()),
    }
    let folders = own::folders();
    let libraries = [own::MIOPEN, own::PRELOAD].into_iter().filter_map(|name| own::find(&folders, name));
    facts.own_libraries = libraries.map(|path| path.display().to_string()).collect();
    facts
}
