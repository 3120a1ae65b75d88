//! `wave32 devices`: what could run convolutions here.

use crate::ending::NoDevice;
use crate::output::print;
use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use wave32_verify::backend::cpu_device;
use wave32_verify::protocol::{Device, Ready};
use wave32_verify::supervisor::{Launcher, Limits, StartError, Worker};

/// Time for drivers to load and say what they have.
const STARTUP: Duration = Duration::from_secs(30);

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
    /// The CPU.
    pub cpu: Device,
}

/// This program as a guarded child.
///
/// # Errors
/// Where the system does not say which program this is.
pub fn launcher() -> Result<Launcher> {
    let program = std::env::current_exe().context("cannot find this program to start the guarded child")?;
    Ok(Launcher { program, args: vec!["__verify-child".into()], env: Vec::new() })
}

/// Looks for devices in a child: a driver that crashes or hangs while it is loaded takes only that.
///
/// # Errors
/// When the user stops it, or no child can be started.
pub fn look(stop: &AtomicBool) -> Result<Found> {
    look_within(stop, STARTUP)
}

/// Looks for devices, and gives up after a time.
///
/// # Errors
/// See [`look`].
pub fn look_within(stop: &AtomicBool, time: Duration) -> Result<Found> {
    let limits = Limits { deadline: time, startup: time, memory_cap: u64::MAX };
    let (vulkan, no_vulkan) = match Worker::list(&launcher()?, &limits, stop) {
        Ok(list) if list.is_empty() => (list, Some("no Vulkan device".into())),
        Ok(list) => (list, None),
        Err(StartError::Interrupted) => bail!("interrupted"),
        Err(StartError::Spawn(text)) => bail!("cannot start the guarded child: {text}"),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    Ok(Found { vulkan, no_vulkan, cpu: cpu_device() })
}

impl Found {
    /// The devices that can be used, GPUs first.
    pub fn usable(&self) -> Vec<Device> {
        let vulkan = self.vulkan.iter().map(|r| r.device.clone()).filter(|d| d.unusable.is_none());
        vulkan.chain([self.cpu.clone()]).collect()
    }

    /// The Vulkan device of that name; `vulkan` is the best.
    ///
    /// # Errors
    /// [`NoDevice`] saying what there is.
    pub fn vulkan(&self, name: &str) -> Result<&Ready> {
        let usable = || self.vulkan.iter().filter(|r| r.device.unusable.is_none());
        let found = if name == "vulkan" {
            let rank = |r: &&Ready| {
                let kind = ["discrete", "integrated", "virtual", "other", "cpu"]
                    .iter()
                    .position(|k| *k == r.device.kind);
                (kind.unwrap_or(9), u64::MAX - r.device.memory_bytes)
            };
            usable().min_by_key(rank)
        } else {
            self.vulkan.iter().find(|r| r.device.id == name)
        };
        match found {
            Some(Ready { device: Device { unusable: Some(why), .. }, .. }) => {
                bail!(NoDevice(format!("{name} cannot be used: {why}")))
            }
            Some(ready) => Ok(ready),
            None => {
                let here: Vec<&str> = usable().map(|r| r.device.id.as_str()).collect();
                let here = match (here.is_empty(), &self.no_vulkan) {
                    (false, _) => format!("here are {}", here.join(", ")),
                    (true, Some(why)) => why.clone(),
                    (true, None) => "there is no usable Vulkan device".into(),
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
    let text = if args.json { json(&found)? } else { table(&found) };
    print(&text);
    Ok(ExitCode::SUCCESS)
}

fn json(found: &Found) -> Result<String> {
    let value = serde_json::json!({ "vulkan": found.vulkan, "no_vulkan": found.no_vulkan, "cpu": found.cpu });
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

fn table(found: &Found) -> String {
    let mut out = String::from("route vulkan\n");
    for Ready { device, caps } in &found.vulkan {
        let memory = device.memory_bytes as f64 / f64::from(1 << 30);
        out += &format!("  {:<9} {}\n", device.id, device.name);
        out += &format!("            {}, {}, {memory:.1} GiB\n", device.kind, device.driver);
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
    if let Some(why) = &found.no_vulkan {
        out += &format!("  none: {why}\n");
    }
    out += &format!("route cpu\n  {:<9} {}\n            {}\n", "cpu", found.cpu.name, found.cpu.driver);
    out
}
