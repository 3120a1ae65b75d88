//! One card as this process uses it: its stream, events, waits with a deadline, and when it is lost.

use crate::ffi::{Api, Pointer, STREAM_NON_BLOCKING, Status, status};
use crate::{Adapter, RawStream};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wave32_device::{Deadline, DeviceError};

/// How long dropping a device waits for work in flight before it leaks the device instead.
const DROP_DEADLINE: Duration = Duration::from_secs(5);

/// A wait asks again and again: without a pause for this long, then with pauses that double.
const EAGER: Duration = Duration::from_micros(50);
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// An event of one [`Gpu`], which keeps it for use again once it is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event(pub(crate) Pointer);

/// An open card. Whatever was made from it must be gone, or leaked with it, when it goes.
pub(crate) struct Gpu {
    pub(crate) api: Arc<Api>,
    pub(crate) adapter: Adapter,
    /// Where work goes.
    pub(crate) stream: Pointer,
    /// The stream that was made here, if one was.
    owned: Option<Pointer>,
    /// The stream is being captured into a graph: nothing on it can be waited for.
    pub(crate) capturing: bool,
    /// As the runtime tells it: major * 10^7 + minor * 10^5 + patch.
    pub(crate) version: c_int,
    events: Vec<Event>,
    /// Why no call is possible any more.
    given_up: Option<String>,
    /// The process that opened it: the runtime does not survive a fork.
    process: u32,
}

/// Makes a card the calling thread's current one, and the one before it current again when dropped.
pub(crate) struct Current {
    set: unsafe extern "C" fn(c_int) -> Status,
    before: Option<c_int>,
}

impl Current {
    fn new(api: &Api, index: c_int) -> Result<Self, DeviceError> {
        let mut before = index;
        // SAFETY: writes one int.
        driver(api, "hipGetDevice", unsafe { (api.get_device)(&mut before) })?;
        if before == index {
            return Ok(Self { set: api.set_device, before: None });
        }
        // SAFETY: scalars only.
        driver(api, "hipSetDevice", unsafe { (api.set_device)(index) })?;
        Ok(Self { set: api.set_device, before: Some(before) })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // It was current before, so this cannot fail; there would be nobody to tell.
            // SAFETY: scalars only.
            let _ = unsafe { (self.set)(before) };
        }
    }
}

/// The typed error of a failed call.
pub(crate) fn driver(api: &Api, call: &'static str, code: Status) -> Result<(), DeviceError> {
    Err(match code {
        0 => return Ok(()),
        status::OUT_OF_MEMORY => DeviceError::OutOfMemory { requested: 0, in_use: 0 },
        status::NO_DEVICE | status::NOT_INITIALIZED | status::INSUFFICIENT_DRIVER => {
            DeviceError::Unavailable(format!(
                "the HIP runtime sees no device: {}; `wave32 doctor` tells why, or use `--device vulkan`",
                api.says(code)
            ))
        }
        status::INVALID_DEVICE => DeviceError::NotFound("hip".into()),
        status::DEINITIALIZED => DeviceError::Lost(format!("{call}: {}", api.says(code))),
        code if status::FAULTS.contains(&code) => DeviceError::Lost(format!("{call}: {}", api.says(code))),
        code => DeviceError::Driver { call, code: api.says(code) },
    })
}

impl Gpu {
    /// Opens the card, on the caller's stream or one of its own.
    pub(crate) fn new(
        api: Arc<Api>,
        adapter: Adapter,
        stream: Option<RawStream>,
    ) -> Result<Self, DeviceError> {
        let current = Current::new(&api, adapter.index)?;
        let (stream, owned) = match stream {
            Some(given) => (given.0, None),
            None => {
                let mut made = null_mut();
                // SAFETY: writes one handle.
                let answer = unsafe { (api.stream_create)(&mut made, STREAM_NON_BLOCKING) };
                driver(&api, "hipStreamCreateWithFlags", answer)?;
                (made, Some(made))
            }
        };
        drop(current);
        let (process, version) = (std::process::id(), api.version_number());
        Ok(Self {
            api,
            adapter,
            stream,
            owned,
            capturing: false,
            version,
            events: Vec::new(),
            given_up: None,
            process,
        })
    }

    /// Refuses calls on a card that was given up, or that another process opened; makes it current.
    pub(crate) fn enter(&mut self) -> Result<Current, DeviceError> {
        if self.forked() {
            return Err(DeviceError::Misuse(
                "the HIP device was opened before a fork; open one in each process, after forking".into(),
            ));
        }
        if let Some(why) = &self.given_up {
            return Err(DeviceError::Lost(format!("{why} (the device was given up then; open it anew)")));
        }
        Current::new(&self.api, self.adapter.index).inspect_err(|error| self.note(error))
    }

    fn forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Remembers a lost card.
    fn note(&mut self, error: &DeviceError) {
        if let DeviceError::Lost(why) = error {
            self.given_up = Some(why.clone());
        }
    }

    /// The typed error of a failed call; a lost card is remembered.
    pub(crate) fn check(&mut self, call: &'static str, code: Status) -> Result<(), DeviceError> {
        driver(&self.api, call, code).inspect_err(|error| self.note(error))
    }

    /// An event after everything that was put on the stream so far.
    pub(crate) fn record(&mut self) -> Result<Event, DeviceError> {
        self.record_on(self.stream)
    }

    /// The stream that work goes to.
    pub(crate) fn stream(&self) -> RawStream {
        RawStream(self.stream)
    }

    /// As [`Gpu::record`], of another stream.
    pub(crate) fn record_on(&mut self, stream: Pointer) -> Result<Event, DeviceError> {
        let event = match self.events.pop() {
            Some(event) => event,
            None => {
                let mut made = null_mut();
                // SAFETY: writes one handle.
                let answer = unsafe { (self.api.event_create)(&mut made) };
                self.check("hipEventCreate", answer)?;
                Event(made)
            }
        };
        // SAFETY: event and stream are this card's and alive.
        let answer = unsafe { (self.api.event_record)(event.0, stream) };
        self.check("hipEventRecord", answer).map(|()| event)
    }

    /// Takes an event back, whose time has come or does not matter.
    pub(crate) fn recycle(&mut self, event: Event) {
        self.events.push(event);
    }

    /// True where the event's time has come.
    pub(crate) fn reached(&mut self, event: Event) -> Result<bool, DeviceError> {
        // SAFETY: the event is this card's.
        match unsafe { (self.api.event_query)(event.0) } {
            status::NOT_READY => {
                // No error, but the runtime keeps it as this thread's last: a caller's next check would find it.
                // SAFETY: no arguments.
                unsafe { (self.api.last_error)() };
                Ok(false)
            }
            answer => self.check("hipEventQuery", answer).map(|()| true),
        }
    }

    /// Waits for an event. A deadline that passes gives the card up: what is in flight can neither be stopped nor
    /// trusted. (The runtime's own waits have no deadline, so it is asked instead.)
    pub(crate) fn wait(&mut self, event: Event, what: &str, deadline: Deadline) -> Result<(), DeviceError> {
        let (start, mut pause) = (Instant::now(), FIRST_PAUSE);
        while !self.reached(event)? {
            let left = deadline.left();
            if left.is_zero() {
                let deadline = deadline.length();
                self.given_up = Some(format!("{what}, which took longer than {deadline:?}"));
                return Err(DeviceError::Timeout { what: what.into(), deadline });
            }
            if start.elapsed() < EAGER {
                std::thread::yield_now();
            } else {
                std::thread::sleep(pause.min(left));
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        Ok(())
    }

    /// Waits for everything on the stream.
    pub(crate) fn finish(&mut self, what: &str, deadline: Deadline) -> Result<(), DeviceError> {
        let event = self.record()?;
        self.wait(event, what, deadline)?;
        self.recycle(event);
        Ok(())
    }

    /// The time between two events that have come.
    pub(crate) fn elapsed(&mut self, start: Event, end: Event) -> Result<Duration, DeviceError> {
        let mut milliseconds = 0f32;
        // SAFETY: writes one float; both events are this card's and were recorded.
        let answer = unsafe { (self.api.event_elapsed)(&mut milliseconds, start.0, end.0) };
        self.check("hipEventElapsedTime", answer)?;
        // A negative time, as clocks that are read twice can give, is none.
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) * 1e-3).unwrap_or_default())
    }

    /// True once nothing is in flight, so that everything may be freed. Waits, but not for ever; false for a card that
    /// was given up, where freeing would wait, and in a forked child.
    pub(crate) fn quiet(&mut self) -> bool {
        match self.enter() {
            Ok(_current) => {
                let stream = self.stream();
                self.turn_to(stream, None).is_ok()
                    && !self.capturing
                    && self.finish("the last work", Deadline::after(DROP_DEADLINE)).is_ok()
            }
            Err(_) => false,
        }
    }

    /// Gives events and stream back; nothing may be in flight.
    pub(crate) fn close(&mut self) {
        let Ok(_current) = self.enter() else { return };
        for event in self.events.drain(..) {
            // SAFETY: the event is this card's, and nothing refers to it any more.
            unsafe { (self.api.event_destroy)(event.0) };
        }
        if let Some(stream) = self.owned {
            // SAFETY: the stream was made here and is idle.
            unsafe { (self.api.stream_destroy)(stream) };
        }
    }
}
