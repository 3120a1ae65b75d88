//! Modelled times of what a program launches: a sample of each launch's workgroups is recorded while it runs, and
//! [`wave32_model`] works out how long the launch takes on the card.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use wave32_exec::{Dispatch, Trace};
use wave32_model::{Effort, KernelTotal, LaunchTime, ModelCard, Totals, Watch};

use crate::memory::Vm;

/// A tenth of a second or so for each launch.
const EFFORT: Effort = Effort { recorded: 400_000, simulated: 1_000_000 };
/// Launches of one kernel and grid that are modelled by themselves; further ones, with other arguments, count as the last.
const EACH: usize = 4;
/// Bytes of code by which a kernel is known.
const CODE_BYTES: u64 = 4096;

/// A kernel's launches of one grid.
type Shape = (u64, [u32; 3], [u16; 3], u32);
/// What is modelled, by the arguments' hash.
type Known = Vec<(u64, Result<LaunchTime, String>)>;

/// Collects.
pub struct Times {
    card: ModelCard,
    table: Mutex<Table>,
}

struct Table {
    known: HashMap<Shape, Known>,
    totals: Totals,
}

/// A launch about to run.
pub struct Begun {
    shape: Shape,
    arguments: u64,
    watch: Option<Watch>,
}

impl Begun {
    /// For the executor's options.
    pub fn trace(&self) -> Option<Arc<dyn Trace>> {
        self.watch.as_ref().map(Watch::trace)
    }
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
    /// For a card.
    pub fn new(card: ModelCard) -> Self {
        let table = Table { known: HashMap::new(), totals: Totals::new(&card) };
        Self { card, table: Mutex::new(table) }
    }

    /// To be called before a launch.
    pub fn begin(&self, vm: &Vm, dispatch: &Dispatch) -> Begun {
        let shape = (code(vm, dispatch), dispatch.grid, dispatch.workgroup, dispatch.group_segment);
        let arguments = arguments(vm, dispatch);
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let known = table.known.get(&shape);
        let enough = known.is_some_and(|all| all.len() >= EACH || all.iter().any(|one| one.0 == arguments));
        let watch = if enough { None } else { Watch::new(dispatch, EFFORT).ok() };
        Begun { shape, arguments, watch }
    }

    /// To be called when the launch has ended.
    pub fn ended(&self, vm: &Vm, dispatch: &Dispatch, begun: Begun) {
        let new = begun.watch.map(|watch| {
            let time = watch.time(dispatch, &vm.buffers(), &self.card, EFFORT);
            (begun.arguments, time.map_err(|error| error.to_string()))
        });
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Table { known, totals } = &mut *table;
        let known = known.entry(begun.shape).or_default();
        known.extend(new);
        let same = known.iter().find(|one| one.0 == begun.arguments).or(known.last());
        match same.map(|(_, time)| time) {
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

    /// All so far.
    pub fn totals(&self) -> Totals {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).totals.clone()
    }
}
