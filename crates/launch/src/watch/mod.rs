//! Is a program stuck in MIOpen, or waiting for the GPU after it?
//!
//! It is where a process that has loaded MIOpen stays in the same call into it, or into HIP, frame by frame, for as long as
//! the user allows, while no counter of the GPU grows and MIOpen names no other problem. CPU time is no sign of life:
//! waiting for the GPU often spins. A compiler on the stack, or as a child, is: compiling takes minutes and ends.

mod diagnosis;
pub mod process;
mod progress;
mod stack;
mod symbols;

pub use diagnosis::Diagnosis;
pub use stack::HOLDING;

use super::log_filter::LastCommand;
use process::{Process, Region, regions, tree};
use progress::{Counters, counters};
use stack::{Frame, frames, state};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The library.
const MIOPEN: &str = "libMIOpen.so";

/// It, and what it waits in. Kernels run on after MIOpen returned, so a hang of theirs shows in the next wait.
const GPU: [&str; 3] = [MIOPEN, "libamdhip64.so", "libhsa-runtime64.so"];

/// Threads that only these and the GPU's libraries are on the stack of are the libraries' own, which wait by trade.
const SYSTEM: [&str; 6] = ["libc.so", "libpthread.so", "ld-linux", "libstdc++.so", "libm.so", "[vdso]"];

/// Files whose presence on a stack means that kernels are being compiled.
const COMPILERS: [&str; 4] = ["libamd_comgr.so", "libLLVM", "libhiprtc.so", "libclang"];

/// Programs that MIOpen starts to compile kernels.
const COMPILER_PROGRAMS: [&str; 4] = ["clang", "clang++", "hipcc", "lld"];

/// What a look found.
#[derive(Debug)]
pub enum Look {
    /// Nothing to worry about yet.
    Fine,
    /// A process has been stuck for as long as allowed.
    Stuck(Box<Diagnosis>),
    /// The system does not let stacks be read, so nothing can be said.
    Blind(String),
}

/// The calls that a thread is in, innermost first.
///
/// The innermost function may call others and come back, as a loop that asks for the time does: it is among the calls then,
/// and is not while it runs itself. So the same calls with one more at the inner end, always the same one, are no other place.
#[derive(Debug, Clone)]
struct Calls {
    /// The most that were seen.
    most: Vec<Frame>,
    /// Both were seen: with the innermost one and without.
    both: bool,
}

impl Calls {
    fn new(most: Vec<Frame>) -> Self {
        Self { most, both: false }
    }

    /// Takes another look; false where it shows another place.
    fn takes(&mut self, seen: &[Frame]) -> bool {
        let without =
            |calls: &[Frame], others: &[Frame]| calls.split_first().is_some_and(|(_, rest)| rest == others);
        if self.most == seen {
            return true;
        }
        if without(&self.most, seen) {
            self.both = true;
            return true;
        }
        if !self.both && without(seen, &self.most) {
            *self = Self { most: seen.to_vec(), both: true };
            return true;
        }
        false
    }
}

/// Where a process was in MIOpen, and since when.
#[derive(Debug, Clone)]
struct StuckCall {
    tid: i32,
    calls: Calls,
    counters: Counters,
    command: Option<Instant>,
    since: Instant,
    cpu: u64,
}

/// Looks at a program again and again.
#[derive(Debug)]
pub struct Watch {
    root: i32,
    allowed: Duration,
    last: LastCommand,
    places: BTreeMap<Process, StuckCall>,
}

impl Watch {
    /// Of the program `root` and what it starts; `allowed` is how long a call may last.
    pub(super) fn new(root: i32, allowed: Duration, last: LastCommand) -> Self {
        Self { root, allowed, last, places: BTreeMap::new() }
    }

    /// How often to look.
    pub fn interval(&self) -> Duration {
        (self.allowed / 10).clamp(Duration::from_millis(50), Duration::from_secs(1))
    }

    /// Looks once.
    pub fn look(&mut self) -> Look {
        let all = tree(self.root);
        let compiles = all.iter().any(|process| {
            let name = process::Stat::read(&process::folder(process.pid)).map(|stat| stat.name);
            name.is_some_and(|name| COMPILER_PROGRAMS.iter().any(|program| name.starts_with(program)))
        });
        self.places.retain(|process, _| all.contains(process));
        for process in all {
            match self.look_at(process, compiles) {
                Ok(None) => {}
                Ok(Some(diagnosis)) => return Look::Stuck(diagnosis),
                // Gone between two reads, or not to be read.
                Err(error) if process.is_alive() => {
                    return Look::Blind(format!(
                        "the stack of process {} cannot be read: {error}",
                        process.pid
                    ));
                }
                Err(_) => {}
            }
        }
        Look::Fine
    }

    fn look_at(&mut self, process: Process, compiles: bool) -> std::io::Result<Option<Box<Diagnosis>>> {
        let regions = regions(process.pid);
        let uses = regions.iter().any(|region| region.file_name().starts_with(MIOPEN));
        let found = if uses && !compiles { in_call(process, &regions)? } else { None };
        let Some((tid, calls, all)) = found else {
            self.places.remove(&process);
            return Ok(None);
        };
        let cpu = state(process.pid, tid).map_or(0, |stat| stat.cpu);
        let (counters, command) = (counters(process.pid), self.last.get().map(|(_, at)| at));
        let known = self
            .places
            .get_mut(&process)
            .filter(|known| known.tid == tid && known.counters == counters && known.command == command);
        let Some(known) = known.and_then(|known| known.calls.takes(&calls).then_some(&*known)) else {
            let place =
                StuckCall { tid, calls: Calls::new(calls), counters, command, since: Instant::now(), cpu };
            self.places.insert(process, place);
            return Ok(None);
        };
        if known.since.elapsed() < self.allowed {
            return Ok(None);
        }
        let ticks = cpu.saturating_sub(known.cpu);
        let command = self.last.get().map(|(line, _)| line);
        Ok(Some(Box::new(Diagnosis::new(
            process,
            tid,
            &all,
            &regions,
            known.since.elapsed(),
            ticks,
            command,
        ))))
    }
}

/// The thread that is in a call of the GPU's libraries: its frames there, and all of them. None where no thread is, or
/// where one compiles.
#[allow(clippy::type_complexity)]
fn in_call(process: Process, regions: &[Region]) -> std::io::Result<Option<(i32, Vec<Frame>, Vec<Frame>)>> {
    let file = |frame: &Frame| {
        let region = regions.iter().find(|region| (region.start..region.end).contains(&frame.address));
        region.map_or("", Region::file_name)
    };
    let mut found = None;
    for tid in process.threads() {
        // A stopped program is somebody's debugging or job control.
        if state(process.pid, tid).is_none_or(|stat| matches!(stat.state, 'T' | 't' | 'Z' | 'X')) {
            continue;
        }
        let all = match frames(process.pid, tid, regions) {
            Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => continue,
            frames => frames?,
        };
        if all.iter().any(|frame| COMPILERS.iter().any(|name| file(frame).starts_with(name))) {
            return Ok(None);
        }
        let any = |names: &[&str], frame: &Frame| names.iter().any(|name| file(frame).starts_with(name));
        let Some(first) = all.iter().position(|frame| any(&GPU, frame)) else { continue };
        let has_caller = all[first..].iter().any(|frame| !any(&GPU, frame) && !any(&SYSTEM, frame));
        if has_caller && found.is_none() {
            // The place itself moves in a loop; the calls that led there do not.
            let calls = all.iter().filter(|frame| frame.slot != 0 && any(&GPU, frame)).copied().collect();
            found = Some((tid, calls, all));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_calls_and_comes_back_stays_in_its_place() {
        let frames = |slots: &[u64]| -> Vec<Frame> {
            slots.iter().map(|&slot| Frame { slot, address: slot * 100 }).collect()
        };
        let takes = |first: &[u64], then: &[(&[u64], bool)]| {
            let mut calls = Calls::new(frames(first));
            for (seen, same) in then {
                assert_eq!(calls.takes(&frames(seen)), *same, "{first:?}, then {seen:?}");
            }
        };
        takes(&[1, 2], &[(&[1, 2], true), (&[5, 1, 2], true), (&[1, 2], true), (&[5, 1, 2], true)]);
        takes(&[5, 1, 2], &[(&[1, 2], true), (&[5, 1, 2], true)]);
        // Not one that goes on with something else, nor step by step outwards.
        takes(&[1, 2], &[(&[5, 1, 2], true), (&[6, 1, 2], false)]);
        takes(&[5, 1, 2], &[(&[1, 2], true), (&[2], false), (&[6, 1, 2], false)]);
        takes(&[1, 2], &[(&[5, 1, 2], true), (&[6, 5, 1, 2], false)]);
        takes(&[1, 2], &[(&[1, 3], false), (&[6, 5, 1, 2], false), (&[], false)]);
        takes(&[], &[(&[], true), (&[1], true), (&[2], false)]);
    }
}
