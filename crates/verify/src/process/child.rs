//! The child's side: one device, problems from standard input, answers on standard output.

use crate::bench::{Case, CpuMeter, GpuMeter, Meter, Settings};
use crate::process::guard::{MORE, requests, say};
use crate::process::protocol::{Device, Driver, Ready, Reply, Request, TimeJob};
use crate::proof::backend::{Backend, Opener};
use crate::proof::check::check;
use crate::proof::inject::{Fault, Faults};
use std::time::Duration;
use wave32_device::{DeviceError, DeviceInfo};
use wave32_problem::Problem;
use wave32_solve::DeviceCaps;

/// Serves until standard input ends; `others` is asked first where a device is to be opened. Never returns an error: a parent that is gone ends the process.
pub fn serve(others: Opener) {
    let faults = Faults::from_env();
    let mut backend: Option<Backend> = None;
    for line in requests() {
        match serde_json::from_str(&line) {
            Ok(Request::List(driver)) => say(&Reply::Listed(list(driver).map_err(|error| error.to_string()))),
            Ok(Request::Open(id)) => {
                if let Err(error) = threads() {
                    say(&Reply::NotOpen(error));
                    continue;
                }
                match others(&id).map_or_else(|| Backend::open(&id), |found| found.map(Backend::Gpu)) {
                    Ok(opened) => {
                        say(&Reply::Ready(Box::new(opened.ready())));
                        backend = Some(opened);
                    }
                    Err(error) => say(&Reply::NotOpen(error.to_string())),
                }
            }
            Ok(Request::Check(job)) => {
                let Some(backend) = backend.as_mut() else {
                    say(&Reply::NotOpen("no device was opened".into()));
                    continue;
                };
                let outcome = check(backend, &job, &faults, &mut |stage| say(&Reply::Stage(stage.into())));
                say(&Reply::Done(outcome));
            }
            Ok(Request::Time(job)) => {
                let Some(backend) = backend.as_mut() else {
                    say(&Reply::NotOpen("no device was opened".into()));
                    continue;
                };
                say(&Reply::Stage("timing it".into()));
                say(&time(backend, &job, &faults));
            }
            Err(error) => say(&Reply::NotOpen(format!("request not understood: {error}"))),
        }
    }
    // The device writes its pipeline cache now; where the driver hangs, the requests' thread ends this process.
    drop(backend);
    std::process::exit(0);
}

/// Times one problem.
fn time(backend: &mut Backend, job: &TimeJob, faults: &Faults) -> Reply {
    let problem = match Problem::try_from(job.spec.clone()) {
        Ok(problem) => problem,
        Err(error) => return Reply::NotOpen(error.to_string()),
    };
    // Faults can be planted for one configuration, where one alone is asked for.
    let words = [Some(problem.to_string()), job.policy.only.clone(), job.policy.config.clone()];
    let line = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
    faults.inject(&line);
    let case = Case { label: job.label.clone(), problem };
    let settings = Settings {
        policy: job.policy.clone(),
        repeats: job.repeats,
        seed: job.seed,
        deadline: Duration::try_from_secs_f64(job.run_deadline_s).unwrap_or_default(),
        ..Settings::default()
    };
    let mut rows = Vec::new();
    let measured = match backend {
        Backend::Cpu => CpuMeter::new(wave32_cpu::Options::default()).measure(&case, &settings, &mut rows),
        Backend::Gpu(device) => GpuMeter::new(device.as_mut()).measure(&case, &settings, &mut rows),
    };
    let mut gone = measured.err().map(|gone| gone.0);
    if faults.has(Fault::Lost, &line) {
        rows.clear();
        gone = Some(DeviceError::Lost("a planted fault".into()).to_string());
    }
    Reply::Timed { rows, gone }
}

/// The threads that compute references: asked for here, for where there are none the pool panics at its first use.
fn threads() -> Result<(), String> {
    match rayon::ThreadPoolBuilder::new().build_global() {
        // There is one already.
        Err(error) if std::error::Error::source(&error).is_some() => {
            Err(format!("cannot start threads: {error}; {MORE}"))
        }
        _ => Ok(()),
    }
}

fn list(driver: Driver) -> Result<Vec<Ready>, DeviceError> {
    let ready = |info: &DeviceInfo, caps: DeviceCaps, unusable: Option<String>| Ready {
        device: Device { unusable, ..Device::from(info) },
        caps: Some(caps),
    };
    Ok(match driver {
        Driver::Vulkan => wave32_vulkan::list()?
            .into_iter()
            .map(|found| ready(&found.info, found.caps, found.unusable))
            .collect(),
        Driver::Hip => {
            let listed = wave32_hip::list(&wave32_hip::Options::default())?;
            listed.into_iter().map(|found| ready(&found.info, found.caps, found.unusable)).collect()
        }
    })
}
