//! Part after part, each in a guarded child or with a deadline; what fails is a row, and the rest goes on.

use super::parts;
use super::redacted;
use super::sampler::Sampler;
use crate::devices::{Found, look};
use crate::ending::NoThread;
use crate::progress::Progress;
use crate::unix::doctor::examine;
use crate::verify::chosen;
use anyhow::Result;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wave32_doctor::scan::{self, Options};
use wave32_doctor::system::System;
use wave32_doctor::verdict::Diagnosis;
use wave32_host::own;
use wave32_report::redact::Redaction;
use wave32_report::sample::{Clock, weights};
use wave32_report::schema::{Absent, Class, Device, KernelLog, Machine, Part, SCHEMA, Sensors, State};
use wave32_report::{Report, kernel_log};
use wave32_verify::backend::cpu_device;
use wave32_verify::protocol::{self, Ready};

/// Time for the doctor, whose own limits sum up to a few seconds.
const DOCTOR: Duration = Duration::from_secs(20);
/// Time for the kernel's log.
const LOG: Duration = Duration::from_secs(5);

/// What is asked for.
pub struct Request<'a> {
    pub devices: &'a [String],
    pub quick: bool,
    pub limit: Duration,
    pub root: &'a Path,
}

/// Everything, without what must not be told.
///
/// # Errors
/// A device that was named is not here; the system gives no threads.
pub fn gather(request: &Request<'_>, stop: &Arc<AtomicBool>) -> Result<Report> {
    let clock = Clock::start(request.limit);
    let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    // Names are found out first: without them nothing may be told.
    let system = System::at(request.root)?;
    let environment = System::live().process.env;
    let redaction = Redaction::of(&system, &[&system.process.env, &environment]);
    let is_virtual = environment.contains_key("WAVE32_VGPU_CARD");
    let mut work = Work { clock, stop: Arc::clone(stop), parts: Vec::new() };
    let sampler = Sampler::start(request.root);

    let found = work.devices(request.devices)?;
    let doctor = work.doctor(request.root);
    let before = work.log(request.root, "kernel log, before");

    let targets = targets(request.devices, found.as_ref(), is_virtual)?;
    let has_card = targets.iter().any(|t| matches!(t.device.class, Class::Card | Class::VirtualCard));
    let weight = |t: &Target| {
        let (verify, bench) = weights(t.device.class, has_card);
        (verify, if t.is_driver { bench } else { 0 })
    };
    let mut all: u32 = targets.iter().map(|t| weight(t).0 + weight(t).1).sum();
    let (mut checks, mut benches) = (Vec::new(), Vec::new());
    for target in &targets {
        let (verify, bench) = weight(target);
        let name = format!("verify {}", target.device.id);
        if work.may_begin(&name) {
            sampler.iter().for_each(|s| s.phase(&name));
            let time = work.clock.share(verify, all);
            let Target { opened, device, .. } = target;
            let (part, check) = parts::verify(opened, &device.id, device.class, request.quick, time, stop)?;
            work.parts.push(part);
            checks.push(check);
        }
        all -= verify;
        let name = format!("bench {}", target.device.id);
        if bench == 0 {
            let why = match target.device.class {
                Class::VirtualCard => "the times of a virtual card are not a card's",
                _ => "a card is here, or its times are those of another route",
            };
            work.part(&name, State::Skipped, Instant::now(), Some(why.into()));
        } else if work.may_begin(&name) {
            sampler.iter().for_each(|s| s.phase(&name));
            let time = work.clock.share(bench, all);
            let (part, bench) = parts::bench(&target.device, request.quick, time, stop)?;
            work.parts.push(part);
            benches.extend(bench);
        }
        all -= bench;
    }
    let after = work.log(request.root, "kernel log, after");
    let log = match (before, after) {
        (_, Err(why)) => KernelLog { note: Some(why), ..KernelLog::default() },
        (before, Ok((source, now))) => {
            // What was not read before is not known to be new.
            let before = before.map_or_else(|_| now.clone(), |(_, text)| text);
            kernel_log::kept(&source, &before, &now)
        }
    };
    let sensors = sampler.map_or_else(Sensors::default, Sampler::finish);
    let report = Report {
        schema: SCHEMA,
        wave32: crate::pages::version().into(),
        unix_time,
        seconds: work.clock.elapsed().as_secs_f64(),
        limit_s: work.clock.limit().as_secs_f64(),
        interrupted: stop.load(Ordering::SeqCst),
        machine: machine(doctor.as_ref(), is_virtual),
        parts: work.parts,
        absent: absent(found.as_ref()),
        devices: devices(found.as_ref(), &targets, is_virtual),
        checks,
        benches,
        sensors,
        kernel_log: log,
        doctor: doctor.map_or(Ok(serde_json::Value::Null), serde_json::to_value)?,
    };
    redacted(&report, &redaction)
}

/// A device that is verified.
struct Target {
    /// As it is opened.
    opened: protocol::Device,
    /// As the report has it.
    device: Device,
    /// False for a drop-in, whose kernels another device of the report times.
    is_driver: bool,
}

/// The devices that were asked for, and MIOpen's drop-in where all were and there is one.
fn targets(names: &[String], found: Option<&Found>, is_virtual: bool) -> Result<Vec<Target>> {
    let mut opened = match found {
        None => vec![cpu_device()],
        Some(_) => chosen(names, found)?,
    };
    let hip = found.and_then(|found| found.hip.iter().find(|ready| ready.device.unusable.is_none()));
    if let (true, Some(hip), Some(library)) =
        (names.iter().any(|name| name == "all"), hip, own::find(&own::folders(), own::MIOPEN))
    {
        let driver = format!("wave32's libMIOpen over {}", hip.device.driver);
        opened.push(protocol::Device {
            id: format!("miopen:{}", library.display()),
            driver,
            ..hip.device.clone()
        });
    }
    let target = |opened: protocol::Device| {
        let is_driver = !opened.id.starts_with("miopen:");
        let mut named = opened.clone();
        if !is_driver {
            named.id = "miopen".into();
        }
        let caps = found.and_then(|found| caps_of(found, &opened.id));
        let device = Device::of(&Ready { device: named, caps }, is_virtual);
        Target { opened, device, is_driver }
    };
    Ok(opened.into_iter().map(target).collect())
}

fn caps_of(found: &Found, id: &str) -> Option<wave32_solve::DeviceCaps> {
    let ready = found.vulkan.iter().chain(&found.hip).find(|ready| ready.device.id == id)?;
    ready.caps.clone()
}

/// All that were found, those that cannot be used too.
fn devices(found: Option<&Found>, targets: &[Target], is_virtual: bool) -> Vec<Device> {
    let listed = found.into_iter().flat_map(|found| found.vulkan.iter().chain(&found.hip));
    let mut all: Vec<Device> = listed.map(|ready| Device::of(ready, is_virtual)).collect();
    for target in targets {
        if !all.iter().any(|known| known.id == target.device.id) {
            all.push(target.device.clone());
        }
    }
    all
}

fn absent(found: Option<&Found>) -> Vec<Absent> {
    let Some(found) = found else { return Vec::new() };
    let why = [("vulkan", &found.no_vulkan), ("rocm", &found.no_hip)];
    why.into_iter()
        .filter_map(|(route, why)| Some(Absent { route: route.into(), why: why.clone()? }))
        .collect()
}

fn machine(doctor: Option<&Diagnosis>, virtual_card: bool) -> Machine {
    let cpu = cpu_device();
    let host = doctor.map(|d| d.facts.host.clone()).unwrap_or_default();
    Machine {
        system: host.system,
        kernel: host.kernel,
        processor: cpu.name,
        memory_bytes: cpu.memory_bytes,
        wsl: host.wsl.is_some(),
        container: host.container.is_some(),
        virtual_card,
    }
}

/// The parts that were done so far, and the time for more.
struct Work {
    clock: Clock,
    stop: Arc<AtomicBool>,
    parts: Vec<Part>,
}

impl Work {
    fn part(&mut self, name: &str, state: State, begin: Instant, note: Option<String>) {
        self.parts.push(Part { name: name.into(), state, seconds: begin.elapsed().as_secs_f64(), note });
    }

    /// Whether a part may begin; where not, the report says so.
    fn may_begin(&mut self, name: &str) -> bool {
        let (state, why) = match (self.stop.load(Ordering::SeqCst), self.clock.left().is_zero()) {
            (true, _) => (State::Stopped, "the user stopped it"),
            (_, true) => (State::Skipped, "no time was left"),
            _ => return true,
        };
        self.part(name, state, Instant::now(), Some(why.into()));
        false
    }

    /// The devices; none where only the processor was asked for, or where looking failed.
    fn devices(&mut self, names: &[String]) -> Result<Option<Found>> {
        if names.iter().all(|name| name == "cpu") {
            return Ok(None);
        }
        let (begin, stop) = (Instant::now(), Arc::clone(&self.stop));
        let bar = waiting("devices");
        let found = look(&stop);
        bar.bar.finish_and_clear();
        match found {
            Ok(found) => {
                let hangs = [&found.no_vulkan, &found.no_hip]
                    .into_iter()
                    .flatten()
                    .find(|why| why.contains("did not end within"));
                let state = if hangs.is_some() { State::Hung } else { State::Done };
                let note = hangs.cloned();
                self.part("devices", state, begin, note);
                Ok(Some(found))
            }
            Err(_) if stop.load(Ordering::SeqCst) => {
                self.part("devices", State::Stopped, begin, None);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn doctor(&mut self, root: &Path) -> Option<Diagnosis> {
        let root = root.to_path_buf();
        let diagnose = move || Ok(Diagnosis::of(examine(&System::at(&root)?, &Options::default())));
        self.aside("doctor", DOCTOR, diagnose).ok()
    }

    /// The kernel's log: where it was read, and its text, or why it was not.
    fn log(&mut self, root: &Path, name: &str) -> Result<(String, String), String> {
        let root = root.to_path_buf();
        let read = move || {
            let system = System::at(&root)?;
            scan::kernel_log(&system).map_err(anyhow::Error::msg)
        };
        self.aside(name, LOG, read)
    }

    /// Something that reads files, in a thread that is left behind where it does not come back.
    fn aside<T: Send + 'static>(
        &mut self,
        name: &str,
        time: Duration,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let begin = Instant::now();
        if self.stop.load(Ordering::SeqCst) {
            let why = "the user stopped it".to_string();
            self.part(name, State::Stopped, begin, Some(why.clone()));
            return Err(why);
        }
        let bar = waiting(name);
        let (sender, receiver) = mpsc::channel();
        let spawned = std::thread::Builder::new().spawn(move || sender.send(work()));
        let answer = match spawned {
            Ok(_) => receiver.recv_timeout(time),
            Err(error) => Ok(Err(NoThread(error).into())),
        };
        bar.bar.finish_and_clear();
        let (state, why) = match answer {
            Ok(Ok(value)) => {
                self.part(name, State::Done, begin, None);
                return Ok(value);
            }
            // A log that may not be read is no failure of the machine.
            Ok(Err(error)) => (State::Skipped, format!("{error:#}")),
            Err(RecvTimeoutError::Timeout) => {
                (State::Hung, format!("it did not end within {} s", time.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => (State::Failed, "it ended without an answer".into()),
        };
        self.part(name, state, begin, Some(why.clone()));
        Err(why)
    }
}

/// A bar that only moves.
fn waiting(name: &str) -> Progress {
    let progress = Progress::new(false, "{prefix:<10} {spinner} {elapsed}");
    progress.bar.set_prefix(name.to_string());
    progress.bar.enable_steady_tick(Duration::from_millis(100));
    progress
}
