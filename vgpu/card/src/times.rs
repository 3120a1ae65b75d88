//! Modelled times of what a program launches: a sample of each launch's workgroups is recorded while it runs, and
//! [`wave32_model`] works out how long the launch takes on the card.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wave32_exec::{Dispatch, Executor, Options, Report, Stop};
use wave32_model::{
    Bracket, Effort, GroupWork, KernelTotal, LaunchError, LaunchTime, ModelCard, Totals, Watch, record,
};

use crate::device::Device;
use crate::memory::Vm;

/// A tenth of a second or so for each launch.
const EFFORT: Effort = Effort { recorded: 400_000, simulated: 1_000_000 };
/// Launches of one kernel and grid with other arguments that are recorded while all of the program runs; further ones count
/// as the last.
const EACH: usize = 4;
/// The same where samples are all that runs.
const EACH_SAMPLE: usize = 256;
/// Bytes of code by which a kernel is known.
const CODE_BYTES: u64 = 4096;

/// A kernel's launches of one grid.
type Shape = (u64, [u32; 3], [u16; 3], u32);

/// What was modelled.
struct Known {
    /// The arguments' hash.
    arguments: u64,
    work: Option<GroupWork>,
    time: Result<LaunchTime, String>,
}

/// Collects.
pub struct Times {
    card: ModelCard,
    sample: bool,
    table: Mutex<Table>,
}

struct Table {
    known: HashMap<Shape, Vec<Known>>,
    totals: Totals,
}

fn hash(bytes: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Its code, as far as it can be read: addresses are used again.
fn code(vm: &Vm, dispatch: &Dispatch) -> u64 {
    let entry = dispatch.entry();
    let mut bytes = vec![0; CODE_BYTES as usize];
    while vm.get(entry, &mut bytes).is_none() && bytes.len() > 4 {
        bytes.truncate(bytes.len() / 2);
    }
    hash(bytes)
}

fn arguments(vm: &Vm, dispatch: &Dispatch) -> u64 {
    if let Some(user) = &dispatch.user {
        return hash(user);
    }
    let mut bytes = vec![0; dispatch.descriptor.kernarg_bytes as usize];
    // What cannot be read stops the kernel, not us.
    let _ = vm.get(dispatch.kernarg, &mut bytes);
    hash(bytes)
}

impl Times {
    /// For a card. With `sample` only the recorded workgroups run, and none of a launch whose time is known.
    pub fn new(card: ModelCard, sample: bool) -> Self {
        let table = Table { known: HashMap::new(), totals: Totals::new(&card) };
        Self { card, sample, table: Mutex::new(table) }
    }

    /// Runs a launch, or a sample of it.
    pub fn run(
        &self,
        executor: &Executor<Vm>,
        device: &'static Device,
        dispatch: &Dispatch,
        options: &Options,
    ) -> Result<Report, Stop> {
        let shape = (code(&device.vm, dispatch), dispatch.grid, dispatch.workgroup, dispatch.group_segment);
        let arguments = arguments(&device.vm, dispatch);
        let new = self.is_new(&shape, arguments);
        // HIP's runtime loads code by kernels of its own: these run whole.
        let (report, sample) = if self.sample && !dispatch.trusted_copies {
            match new.then(|| record(executor, &device.vm, dispatch, options, device, EFFORT)).transpose() {
                Ok(ran) => ran.map_or_else(Default::default, |(sample, report)| (report, Some(Ok(sample)))),
                Err(LaunchError::Stop(stop)) => return Err(stop),
                Err(error) => (Report::default(), Some(Err(error))),
            }
        } else {
            let watch = if new { Watch::new(dispatch, EFFORT).ok() } else { None };
            let options = Options { trace: watch.as_ref().map(Watch::trace), ..options.clone() };
            let report = executor.run(&device.vm, dispatch, &options, device)?;
            (report, watch.map(Watch::finish))
        };
        let new = sample.map(|sample| match sample {
            Ok(sample) => {
                let work = sample.work();
                let time = self.known(&shape, &work).unwrap_or_else(|| {
                    let time = sample.time(dispatch, &device.vm.buffers(), &self.card, EFFORT);
                    time.map_err(|error| error.to_string())
                });
                Known { arguments, work: Some(work), time }
            }
            Err(error) => Known { arguments, work: None, time: Err(error.to_string()) },
        });
        self.count(dispatch, shape, arguments, new);
        Ok(report)
    }

    /// Whether a launch is to be modelled.
    fn is_new(&self, shape: &Shape, arguments: u64) -> bool {
        let each = if self.sample { EACH_SAMPLE } else { EACH };
        let table = self.table();
        let Some(known) = table.known.get(shape) else { return true };
        known.len() < each && known.iter().all(|one| one.arguments != arguments)
    }

    /// A launch has ended.
    fn count(&self, dispatch: &Dispatch, shape: Shape, arguments: u64, new: Option<Known>) {
        let mut table = self.table();
        let Table { known, totals } = &mut *table;
        let known = known.entry(shape).or_default();
        known.extend(new);
        let same = known.iter().find(|one| one.arguments == arguments).or(known.last());
        match same.map(|one| &one.time) {
            Some(Ok(time)) => totals.launched(KernelTotal {
                kernel: if dispatch.name.is_empty() {
                    "(without a name)".into()
                } else {
                    dispatch.name.clone()
                },
                workgroups: dispatch.workgroups(),
                launches: 1,
                time_ms: time.time,
                last: time.clone(),
            }),
            Some(Err(reason)) => *totals.left_out.entry(reason.clone()).or_default() += 1,
            // Nothing to do, and nothing was done.
            None => {}
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was modelled of a launch that did the same work.
    fn known(&self, shape: &Shape, work: &GroupWork) -> Option<Result<LaunchTime, String>> {
        let table = self.table();
        let mut known = table.known.get(shape)?.iter();
        let same = known.find(|one| one.work.is_some_and(|other| other.is_near(work)))?;
        Some(same.time.clone())
    }

    /// Where only samples run: all so far, each by the middle of its bracket.
    pub fn nanoseconds(&self) -> Option<u64> {
        let middle = |time: Bracket| (time.low + time.high) / 2.0 * 1e9;
        self.sample.then(|| middle(self.table().totals.time_ms) as u64)
    }

    /// All so far.
    pub fn totals(&self) -> Totals {
        self.table().totals.clone()
    }
}
