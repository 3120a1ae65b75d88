//! Handles: a card, a stream, and the queue that works there.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Id, Out, Status, status::INVALID_VALUE};
use crate::abi::objects::{self, Object};
use crate::conv::proven::Tables;
use crate::conv::solutions::Solutions;
use crate::vendor::next::{next, takes_proven};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wave32_device::Queue;
use wave32_hip::{HipQueue, Options, RawStream};
use wave32_ops::Planner;
use wave32_problem::ConvProblem;
use wave32_solve::{Plan, Policy};

/// A `hipStream_t` of the caller's.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct HipStream(*mut c_void);

// SAFETY: only handed to the runtime, which takes streams from any thread.
unsafe impl Send for HipStream {}

impl HipStream {
    /// The device's null stream.
    pub fn null() -> Self {
        Self(null_mut())
    }

    fn raw(self) -> RawStream {
        // SAFETY: a C caller gave it, and promises that it is a stream of the handle's device, alive while calls with
        // that handle are made.
        unsafe { RawStream::new(self.0) }
    }
}

/// `miopenAllocatorFunction`.
pub type Allocate = Option<extern "C" fn(context: *mut c_void, bytes: usize) -> *mut c_void>;
/// `miopenDeallocatorFunction`.
pub type Deallocate = Option<extern "C" fn(context: *mut c_void, memory: *mut c_void)>;

/// The queue, plans and solutions of one handle.
#[derive(Debug)]
pub struct Engine {
    /// Launches, in order, on the handle's stream.
    pub queue: HipQueue,
    planner: Planner,
    /// The vendor's proven solvers.
    proven: Option<Tables>,
}

#[derive(Debug)]
struct State {
    stream: HipStream,
    /// Opened when first needed.
    engine: Option<Engine>,
    profiling: bool,
    elapsed: Duration,
    /// `miopenTuningPolicy_t`. Kept to be read back: nothing is tuned.
    tuning: c_int,
}

/// What `miopenCreate` makes. Calls on one handle run one after the other, whichever threads they come from.
#[derive(Debug)]
pub struct Handle {
    /// The card's index at the HIP runtime.
    device: usize,
    state: Mutex<State>,
}

impl Object for Handle {
    const KIND: &'static str = "MIOpen handle";
}

impl Handle {
    /// One for the calling thread's current device.
    ///
    /// # Errors
    /// Not initialized, where there is no runtime or card.
    pub fn new(stream: HipStream) -> Outcome<Self> {
        let device = wave32_hip::current_device(&options())?;
        let state = State { stream, engine: None, profiling: false, elapsed: Duration::ZERO, tuning: 1 };
        Ok(Self { device, state: Mutex::new(state) })
    }

    /// The living handle of that number.
    ///
    /// # Errors
    /// Bad parameter where `id` is no handle, or a destroyed one.
    pub fn of(id: Id) -> Outcome<Arc<Self>> {
        objects::get(id, "handle")
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> Outcome<T>) -> Outcome<T> {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The card's index at the HIP runtime.
    pub fn device(&self) -> usize {
        self.device
    }

    /// Puts work on this stream from now on, behind what the handle launched before.
    pub fn set_stream(&self, stream: HipStream) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stream = stream;
    }

    /// The card's engine, opened where it is not yet; launches nothing.
    fn engine<'s>(&self, state: &'s mut State) -> Outcome<&'s mut Engine> {
        if state.engine.is_none() {
            let options = Options { stream: Some(state.stream.raw()), ..options() };
            let queue = wave32_hip::open(Some(self.device), options)?;
            let proven = takes_proven().then(|| Tables::load(self.device, &queue.info().driver));
            let policy =
                Policy::from_env().map_err(|error| Failure::new(INVALID_VALUE, error.to_string()))?;
            state.engine = Some(Engine { queue, planner: Planner::new(policy), proven });
        }
        state
            .engine
            .as_mut()
            .ok_or_else(|| Failure::new(crate::abi::ffi::status::INTERNAL_ERROR, "no engine"))
    }

    /// The solutions of a problem. Uses neither stream nor memory.
    ///
    /// # Errors
    /// Not initialized, where the card cannot be used; not implemented, with every solver's reason.
    pub fn solutions(&self, problem: &ConvProblem) -> Outcome<Solutions> {
        self.with(|state| {
            let Engine { queue, planner, proven } = self.engine(state)?;
            let proven = proven.as_ref().map_or(&[][..], |tables| tables.of(problem));
            Solutions::new(planner, queue.caps(), proven, problem)
        })
    }

    /// Loads the kernels of a plan.
    ///
    /// # Errors
    /// Not implemented where the card lacks what a kernel needs.
    pub fn prepare(&self, plan: &Plan) -> Outcome {
        self.with(|state| {
            let queue = &mut self.engine(state)?.queue;
            Ok(plan.launches.iter().try_for_each(|launch| queue.prepare(launch))?)
        })
    }

    /// Launches work on the handle's stream, and times it where profiling is on. The HIP runtime is asked anew about the
    /// caller's memory.
    ///
    /// # Errors
    /// The work's; not initialized, where the card cannot be used.
    pub fn run<T>(&self, work: impl FnOnce(&mut Engine) -> Outcome<T>) -> Outcome<T> {
        self.with(|state| {
            let (stream, profiling) = (state.stream.raw(), state.profiling);
            let engine = self.engine(state)?;
            engine.queue.set_stream(stream)?;
            if !profiling {
                return work(engine);
            }
            let start = engine.queue.stamp()?;
            let done = work(engine)?;
            let end = engine.queue.stamp()?;
            state.elapsed = engine.queue.times(&[start, end])?[1];
            Ok(done)
        })
    }
}

/// How this library opens cards.
fn options() -> Options {
    Options { foreign_memory: true, ..Options::default() }
}

/// Creates a handle on the current device's null stream.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreate(handle: Out<Id>) -> Status {
    call("miopenCreate", || create(&handle, HipStream::null()))
}

/// Creates a handle on a stream of the current device.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateWithStream(handle: Out<Id>, stream: HipStream) -> Status {
    call("miopenCreateWithStream", || create(&handle, stream))
}

fn create(out: &Out<Id>, stream: HipStream) -> Outcome {
    out.check("handle")?;
    let made = Handle::new(stream)?;
    let id = match next() {
        None => objects::insert(made),
        Some(next) => {
            let stream = (!stream.0.is_null()).then_some(stream.0);
            objects::insert_as(next.create_handle(stream)?, made)
        }
    };
    out.set("handle", id)
}

/// Destroys a handle. Its work in flight ends first, in five seconds at most.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroy(handle: Id) -> Status {
    call("miopenDestroy", || {
        objects::remove::<Handle>(handle, "handle").map(drop)?;
        next().map_or(Ok(()), |next| next.destroy_handle(handle))
    })
}

/// Puts work on this stream from now on, behind what the handle launched before.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetStream(handle: Id, stream: HipStream) -> Status {
    call("miopenSetStream", || {
        Handle::of(handle)?.with(|state| {
            next().map_or(Ok(()), |next| next.set_stream(handle, stream.0))?;
            state.stream = stream;
            Ok(())
        })
    })
}

/// The stream that work goes to.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetStream(handle: Id, stream: Out<HipStream>) -> Status {
    call("miopenGetStream", || stream.set("streamID", Handle::of(handle)?.with(|state| Ok(state.stream))?))
}

/// Not implemented for an allocator of the caller: memory besides the workspace comes from the HIP runtime. Null for both
/// functions asks for the runtime's allocator, so that call succeeds.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetAllocator(
    handle: Id,
    allocate: Allocate,
    deallocate: Deallocate,
    _context: *mut c_void,
) -> Status {
    call("miopenSetAllocator", || {
        Handle::of(handle)?;
        match (allocate, deallocate) {
            (None, None) => Ok(()),
            _ => Err(Failure::absent("an allocator of the caller's")),
        }
    })
}

/// Times each call from now on, which then waits for its work.
#[unsafe(no_mangle)]
pub extern "C" fn miopenEnableProfiling(handle: Id, enable: u8) -> Status {
    call("miopenEnableProfiling", || {
        Handle::of(handle)?.with(|state| {
            next().map_or(Ok(()), |next| next.enable_profiling(handle, enable))?;
            state.profiling = enable != 0;
            Ok(())
        })
    })
}

/// Milliseconds of the last call that was timed.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetKernelTime(handle: Id, time: Out<f32>) -> Status {
    call("miopenGetKernelTime", || {
        // Read once: what was timed since then may have been the vendor's.
        let elapsed = Handle::of(handle)?.with(|state| Ok(std::mem::take(&mut state.elapsed)))?;
        match next() {
            Some(next) if elapsed.is_zero() => time.set("time", next.kernel_time(handle)?),
            _ => time.set("time", elapsed.as_secs_f32() * 1e3),
        }
    })
}

/// Keeps the policy; nothing is tuned whatever it says.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetTuningPolicy(handle: Id, policy: c_int) -> Status {
    call("miopenSetTuningPolicy", || {
        Handle::of(handle)?.with(|state| match policy {
            1..=5 => {
                state.tuning = policy;
                Ok(())
            }
            _ => Err(Failure::bad(format!("{policy} is no tuning policy"))),
        })
    })
}

/// The policy that was set.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetTuningPolicy(handle: Id, policy: Out<c_int>) -> Status {
    call("miopenGetTuningPolicy", || policy.set("value", Handle::of(handle)?.with(|state| Ok(state.tuning))?))
}
