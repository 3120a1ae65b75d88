//! The child's side: one device, problems from standard input, answers on standard output.

use crate::backend::Backend;
use crate::check::check;
use crate::guard::{requests, say};
use crate::plant::Plants;
use crate::protocol::{Device, Ready, Reply, Request};

/// Serves until standard input ends. Never returns an error: a parent that is gone ends the process.
pub fn serve() {
    let plants = Plants::from_env();
    let mut backend: Option<Backend> = None;
    for line in requests() {
        match serde_json::from_str(&line) {
            Ok(Request::List) => say(&Reply::Listed(list())),
            Ok(Request::Open(id)) => match Backend::open(&id) {
                Ok(opened) => {
                    say(&Reply::Ready(Box::new(opened.ready())));
                    backend = Some(opened);
                }
                Err(text) => say(&Reply::NotOpen(text)),
            },
            Ok(Request::Check(job)) => {
                let Some(backend) = backend.as_mut() else {
                    say(&Reply::NotOpen("no device was opened".into()));
                    continue;
                };
                let outcome = check(backend, &job, &plants, &mut |stage| say(&Reply::Stage(stage.into())));
                say(&Reply::Done(outcome));
            }
            Err(error) => say(&Reply::NotOpen(format!("request not understood: {error}"))),
        }
    }
    // The device writes its pipeline cache now; where the driver hangs, the requests' thread ends this process.
    drop(backend);
    std::process::exit(0);
}

fn list() -> Result<Vec<Ready>, String> {
    let listed = wave32_vulkan::list().map_err(|error| error.to_string())?;
    Ok(listed
        .iter()
        .map(|found| Ready {
            device: Device { unusable: found.unusable.clone(), ..Device::from(&found.info) },
            caps: Some(found.caps.clone()),
        })
        .collect())
}
