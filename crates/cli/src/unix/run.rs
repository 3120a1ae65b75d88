//! `wave32 run`: an unmodified program on the best route.

use crate::devices::{Found, STARTUP, look_for_vulkan};
use crate::output::{mutter, show, tell};
use crate::unix::env::route;
use anyhow::Result;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use wave32_device::DeviceKind;
use wave32_doctor::situation;
use wave32_doctor::system::System;
use wave32_host::text::quoted;
use wave32_launch::{self as launch, Ended, Machine, RouteChoice, Surroundings};
use wave32_profile::Route;

/// Starts a program in a route's environment and changes nothing else. Exit codes: the program's own; 126 it cannot be run,
/// 127 there is none, 124 it was stuck and has been ended (--hang-timeout), 2 wrong use, 3 no such route.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// vulkan (scripts' cuda is the device wave), rocm or cpu [default: the best that is here]
    #[arg(long, value_name = "ROUTE", value_parser = route)]
    route: Option<Route>,
    /// Leave this variable as it is; may be given several times
    #[arg(long, value_name = "VARIABLE")]
    keep: Vec<String>,
    /// End the program, with a diagnosis, once it has been stuck in MIOpen for so long without progress on the GPU
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    hang_timeout: Option<Duration>,
    /// Say what would be started, with which changes, and start nothing
    #[arg(long)]
    dry_run: bool,
    /// The program and its arguments, as they are
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Reads a number of seconds from a tenth to a month.
fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|s| (0.1..=2_678_400.0).contains(s));
    number.map(Duration::from_secs_f64).ok_or_else(|| "must be a number of seconds, 0.1 at least".into())
}

/// Runs `wave32 run`. Comes back only where the program was watched or could not be started.
///
/// # Errors
/// The route that was asked for does not exist on this machine.
pub fn main(args: &Args) -> Result<ExitCode> {
    if args.command.first().is_some_and(|name| name.is_empty()) {
        tell("error: the program's name is empty: perhaps a variable is; name a program after `--`");
        return Ok(ExitCode::from(launch::NOT_FOUND));
    }
    let situation = situation::of(&System::at(Path::new("/"))?);
    let (RouteChoice { route, why }, cards) = choose(args.route, &situation.cards)?;
    let log_miopen = args.hang_timeout.is_some();
    let around = Surroundings { cards, log_miopen, ..Surroundings::here(situation) };
    let mut changes = launch::changes(route, &around);
    changes.retain(|change| !args.keep.contains(&change.name));
    let ours = launch::convolutions(route, &around, &args.keep);
    log::info!("route {}: {why}", route.name());
    changes.iter().for_each(|change| log::info!("{change}"));
    if args.dry_run {
        let lines = changes.iter().map(|change| format!("  {change}\n")).collect::<String>();
        let ours = ours.map_or(String::new(), |line| format!("  {line}\n"));
        show(&format!("route {}: {why}\n{lines}{ours}", route.name()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut told: Vec<String> = launch::corrections(&changes, &around.variables).into_iter().collect();
    told.extend(ours);
    if args.route.is_none() && route == Route::Cpu {
        told.insert(0, why);
    }
    if route == Route::Vulkan
        && let Some(program) = args.command.first()
    {
        told.extend(launch::python_lacks_wave32(program, &around.variables));
    }
    if !told.is_empty() {
        tell(&format!("wave32 run: route {}: {}", route.name(), told.join("; ")));
    }
    let error = match args.hang_timeout {
        None => launch::exec(&args.command, &changes, &around.variables),
        Some(allowed) => {
            match launch::supervise(&args.command, &changes, &around.variables, allowed, &mut mutter) {
                Ok(ended) => return Ok(exit_as(ended)),
                Err(error) => error,
            }
        }
    };
    let program = args.command.first().map(|name| quoted(&name.to_string_lossy())).unwrap_or_default();
    tell(&format!("error: cannot run {program}: {error}"));
    Ok(ExitCode::from(launch::failure(&error)))
}

/// Ends as the program ended.
fn exit_as(ended: Ended) -> ExitCode {
    match ended {
        Ended::Exited(code) => ExitCode::from(code),
        Ended::Hung => ExitCode::from(launch::HUNG),
        Ended::Signaled(signal) => {
            launch::die_by(signal);
            // Signals that only the kernel sends; what a shell says of them.
            ExitCode::from(128u8.saturating_add(signal as u8))
        }
    }
}

/// The route asked for, or the best, and Vulkan's indices of the GPUs. Drivers are loaded only where the answer depends on
/// them.
fn choose(asked: Option<Route>, rocm_cards: &[String]) -> Result<(RouteChoice, Vec<String>)> {
    let needs_vulkan = !matches!(asked, Some(Route::Rocm | Route::Cpu));
    let found = if needs_vulkan { Some(look_for_vulkan(&AtomicBool::new(false), STARTUP)?) } else { None };
    let (vulkan, vulkan_is_gpu) = found.as_ref().map_or((Err("not looked for".into()), false), vulkan);
    let machine = Machine { vulkan, vulkan_is_gpu, rocm: Machine::rocm(Path::new("/"), rocm_cards) };
    let choice = launch::choose(asked, &machine)?;
    Ok((choice, found.as_ref().map(cards).unwrap_or_default()))
}

/// The best Vulkan device, and whether it is a GPU.
fn vulkan(found: &Found) -> (Result<String, String>, bool) {
    match found.gpu("vulkan") {
        Ok(ready) => (Ok(ready.device.name.clone()), ready.device.kind != DeviceKind::Cpu),
        Err(error) => (Err(found.no_vulkan.clone().unwrap_or_else(|| error.to_string())), false),
    }
}

/// Indices of the GPUs among the Vulkan devices.
fn cards(found: &Found) -> Vec<String> {
    let usable = found.vulkan.iter().map(|ready| &ready.device);
    let usable = usable.filter(|device| device.unusable.is_none() && device.kind != DeviceKind::Cpu);
    usable.filter_map(|device| device.id.strip_prefix("vulkan:")).map(str::to_string).collect()
}
