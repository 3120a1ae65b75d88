//! `wave32 devices`: what could run convolutions here.

use crate::ending::{NoDevice, NoThread};
use crate::output::{print, show};
use anyhow::{Context, Result, anyhow, bail};
use std::cmp::Reverse;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use wave32_host::text::one_line;
use wave32_verify::backend::cpu_device;
use wave32_verify::protocol::{Device, Driver, Ready};
use wave32_verify::supervisor::{Launcher, Limits, StartError, Worker};

/// Time for drivers to load and say what they have.
pub const STARTUP: Duration = Duration::from_secs(30);

/// Lists what could run convolutions here.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// What a look around found.
pub struct Found {
    /// Vulkan devices, in the loader's order.
    pub vulkan: Vec<Ready>,
    /// Why there is none, in one line.
    pub no_vulkan: Option<String>,
    /// HIP devices, in the runtime's order.
    pub hip: Vec<Ready>,
    /// Why there is none, in one line.
    pub no_hip: Option<String>,
    /// The CPU.
    pub cpu: Device,
}

/// This program as a guarded child.
///
/// # Errors
/// The system does not tell the path of this program.
pub fn launcher() -> Result<Launcher> {
    let program = std::env::current_exe().context("cannot find this program to start the guarded child")?;
    Ok(Launcher { program, args: vec!["__verify-child".into()], env: Vec::new() })
}

/// Looks for devices, in a child for each driver: one that crashes or hangs while it is loaded takes only that.
///
/// # Errors
/// The user stopped it, or no child could be started.
pub fn look(stop: &AtomicBool) -> Result<Found> {
    std::thread::scope(|scope| {
        let hip = std::thread::Builder::new().spawn_scoped(scope, || list(Driver::Hip, stop, STARTUP));
        let hip = hip.map_err(NoThread)?;
        let found = look_for_vulkan(stop, STARTUP);
        let hip = hip.join().map_err(|_| anyhow!("the thread that asks for HIP devices failed"))?;
        let (hip, no_hip) = hip?;
        Ok(Found { hip, no_hip, ..found? })
    })
}

/// Looks for Vulkan devices only, and gives up after a time.
///
/// # Errors
/// See [`look`].
pub fn look_for_vulkan(stop: &AtomicBool, time: Duration) -> Result<Found> {
    let (vulkan, no_vulkan) = list(Driver::Vulkan, stop, time)?;
    Ok(Found { vulkan, no_vulkan, hip: Vec::new(), no_hip: Some("not looked for".into()), cpu: cpu_device() })
}

/// The devices of a driver, or why there are none.
fn list(driver: Driver, stop: &AtomicBool, time: Duration) -> Result<(Vec<Ready>, Option<String>)> {
    let limits = Limits { deadline: time, startup: time, memory_cap: u64::MAX };
    match Worker::list(&launcher()?, driver, &limits, stop) {
        Ok(list) if list.is_empty() => Ok((list, Some(format!("no {} device", driver.name())))),
        Ok(list) => Ok((list, None)),
        Err(StartError::Interrupted) => bail!("interrupted"),
        Err(error @ StartError::Spawn(_)) => Err(error.into()),
        Err(error) => Ok((Vec::new(), Some(error.to_string()))),
    }
}

impl Found {
    /// The devices that can be used, GPUs first.
    pub fn usable(&self) -> Vec<Device> {
        let gpus = self.vulkan.iter().chain(&self.hip).map(|r| r.device.clone());
        gpus.filter(|d| d.unusable.is_none()).chain([self.cpu.clone()]).collect()
    }

    /// The GPU of that name; `vulkan` and `hip` are the best of their driver's.
    ///
    /// # Errors
    /// [`NoDevice`] where there is no such device; it lists those that are there.
    pub fn gpu(&self, name: &str) -> Result<&Ready> {
        let (all, none, driver) = match name.split(':').next() {
            Some("hip") => (&self.hip, &self.no_hip, "HIP"),
            _ => (&self.vulkan, &self.no_vulkan, "Vulkan"),
        };
        let usable = || all.iter().filter(|r| r.device.unusable.is_none());
        let found = if name == "vulkan" || name == "hip" {
            let rank = |r: &&Ready| (r.device.kind, Reverse(r.device.memory_bytes));
            // With none that can be used, the first one's reason is told.
            usable().min_by_key(rank).or(all.first())
        } else {
            all.iter().find(|r| r.device.id == name)
        };
        match found {
            Some(Ready { device: Device { id, unusable: Some(why), .. }, .. }) => {
                bail!(NoDevice(format!("{id} cannot be used: {why}")))
            }
            Some(ready) => Ok(ready),
            None => {
                let here: Vec<&str> = usable().map(|r| r.device.id.as_str()).collect();
                let here = match (here.is_empty(), none) {
                    (false, _) => format!("here are {}", here.join(", ")),
                    (true, Some(why)) => why.clone(),
                    (true, None) => format!("there is no usable {driver} device"),
                };
                bail!(NoDevice(format!(
                    "no device `{name}`: {here}; `wave32 devices` tells more, `--device cpu` always works"
                )))
            }
        }
    }
}

/// Runs `wave32 devices`.
///
/// # Errors
/// See [`look`].
pub fn main(args: &Args) -> Result<ExitCode> {
    let found = look(&AtomicBool::new(false))?;
    match args.json {
        true => print(&json(&found)?)?,
        false => show(&table(&found))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn json(found: &Found) -> Result<String> {
    let Found { vulkan, no_vulkan, hip, no_hip, cpu } = found;
    let value = serde_json::json!({
        "vulkan": vulkan, "no_vulkan": no_vulkan, "hip": hip, "no_hip": no_hip, "cpu": cpu
    });
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

fn table(found: &Found) -> String {
    let mut out = route("vulkan", &found.vulkan, found.no_vulkan.as_deref());
    out += &route("rocm", &found.hip, found.no_hip.as_deref());
    out += &format!("route cpu\n  {:<9} {}\n            {}\n", "cpu", found.cpu.name, found.cpu.driver);
    out
}

fn route(name: &str, devices: &[Ready], none: Option<&str>) -> String {
    let mut out = format!("route {name}\n");
    for Ready { device, caps } in devices {
        let memory = device.memory_bytes as f64 / f64::from(1 << 30);
        let (named, driver) = (one_line(&device.name), one_line(&device.driver));
        out += &format!("  {:<9} {named}\n", device.id);
        out += &format!("            {}, {driver}, {memory:.1} GiB\n", device.kind);
        if let Some(why) = &device.unusable {
            out += &format!("            cannot be used: {why}\n");
        } else if let Some(c) = caps {
            let half = if c.storage_16bit { "f32, f16 and bf16" } else { "f32 only" };
            out += &format!(
                "            {} compute units, waves of {}, {} KiB shared memory, {half}\n",
                c.compute_units,
                c.wave_size,
                c.lds_per_group >> 10
            );
        }
    }
    if let Some(why) = none {
        out += &format!("  none: {why}\n");
    }
    out
}
