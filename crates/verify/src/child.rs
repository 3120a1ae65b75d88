//! The child's side: one device, problems from standard input, answers on standard output.

use crate::backend::Backend;
use crate::check::check;
use crate::plant::Plants;
use crate::protocol::{Device, MARK, Ready, Reply, Request};
use std::io::{BufRead, Write};
use std::sync::mpsc;
use std::time::Duration;

/// How long a child whose standard input ended may take to close its device.
pub(crate) const LEAVE: Duration = Duration::from_secs(2);

/// Serves until standard input ends. Never returns an error: a parent that is gone ends the process.
pub fn serve() {
    let (sender, requests) = mpsc::channel();
    // Read in a thread of its own: when the parent dies while a driver hangs here, end of input is seen
    // and takes this process along.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
        drop(sender);
        // The serving thread leaves by itself when idle. Otherwise nothing can stop a driver's call
        // but the end of the process; exit handlers are skipped since they may wait for that call.
        std::thread::sleep(LEAVE);
        std::process::abort();
    });
    let plants = Plants::from_env();
    let mut backend: Option<Backend> = None;
    for line in requests {
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
    // The device writes its pipeline cache now; where the driver hangs, the thread above ends this process.
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

fn say(reply: &Reply) {
    let Ok(text) = serde_json::to_string(reply) else { return };
    let mut out = std::io::stdout().lock();
    // A parent that is gone cannot be told; end of input ends this process.
    let _ = writeln!(out, "{MARK}{text}").and_then(|()| out.flush());
}
