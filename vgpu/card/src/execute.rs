//! Runs kernels on [`wave32_exec`], and tells what stopped them.

use wave32_exec::{DESCRIPTOR_BYTES, Descriptor, Location, Options, Signals, Stop};
use wave32_isa::Target;
use wave32_model::ModelCard;

use crate::aql::{Dispatch, error};
use crate::device::Device;
use crate::memory::Vm;
use crate::names::Names;
use crate::queue::Failure;
use crate::report::{Finding, Report};
use crate::settings::Settings;
use crate::times::Times;

/// Waves of a compute unit: two SIMDs of 20.
const WAVES_PER_CU: u32 = 40;

/// See the module.
pub struct Executor {
    inner: wave32_exec::Executor<Vm>,
    options: Options,
    names: Names,
    report: Report,
    times: Option<Times>,
}

impl Signals for Device {
    fn interrupt(&self, m0: u32) {
        // An event that is gone has no waiters.
        let _ = self.events.set(m0 & 0x00ff_ffff);
        self.progress.advance();
    }

    fn realtime(&self) -> u64 {
        self.ticks()
    }
}

impl Executor {
    /// As asked for.
    pub fn new(settings: &Settings) -> Self {
        let target = Target::named(settings.card.target.name).unwrap_or_default();
        let report = Report::new(settings);
        let options = Options {
            deadline: settings.deadline,
            strict: settings.strict,
            robust: settings.robust,
            keep_going: settings.keep_going,
            count: report.wanted(),
            coverage: report.wanted(),
            resident_waves: settings.card.board.compute_units * WAVES_PER_CU,
            ..Options::default()
        };
        Self {
            inner: wave32_exec::Executor::new(target, settings.threads),
            options,
            names: Names::default(),
            report,
            times: settings
                .time
                .then(|| ModelCard::of(settings.card.board))
                .flatten()
                .map(|card| Times::new(card, settings.sample)),
        }
    }

    /// Runs a kernel to its end.
    pub fn run(&self, device: &'static Device, packet: &Dispatch) -> Result<(), Failure> {
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        device.vm.get(packet.kernel_object, &mut descriptor).ok_or(Failure::absent(packet.kernel_object))?;
        let name = self.names.of(&device.vm, packet.kernel_object);
        let outcome = Descriptor::parse(&descriptor).and_then(|descriptor| {
            // ROCr's shaders wait for flat loads with one of their two counters, knowing that they do not meet LDS.
            let rocr = is_of_rocr(&name, &descriptor);
            let strict = self.options.strict && !rocr;
            let options = Options { strict, ..self.options.clone() };
            let dispatch = wave32_exec::Dispatch {
                name: name.clone(),
                descriptor,
                kernel_object: packet.kernel_object,
                grid: packet.grid,
                workgroup: packet.workgroup,
                group_segment: packet.group_bytes,
                private_segment: packet.private_bytes,
                kernarg: packet.kernarg,
                packet: packet.packet,
                queue: packet.queue,
                id: packet.dispatch_id,
                trusted_copies: rocr || name.starts_with("__amd_rocclr_"),
                ..wave32_exec::Dispatch::default()
            };
            self.launch(device, &dispatch, &options)
        });
        self.ended(name, outcome)
    }

    /// Runs a shader, launched from registers, to its end.
    pub fn run_shader(
        &self,
        device: &'static Device,
        dispatch: &wave32_exec::Dispatch,
    ) -> Result<(), Failure> {
        let outcome = self.launch(device, dispatch, &self.options);
        self.ended(dispatch.name.clone(), outcome)
    }

    fn launch(
        &self,
        device: &'static Device,
        dispatch: &wave32_exec::Dispatch,
        options: &Options,
    ) -> Result<wave32_exec::Report, Stop> {
        match &self.times {
            Some(times) => times.run(&self.inner, device, dispatch, options),
            None => self.inner.run(&device.vm, dispatch, options, device),
        }
    }

    /// Where only samples run: of all launches so far, in nanoseconds.
    pub fn modelled_nanoseconds(&self) -> Option<u64> {
        self.times.as_ref().and_then(Times::nanoseconds)
    }

    fn ended(&self, name: String, outcome: Result<wave32_exec::Report, Stop>) -> Result<(), Failure> {
        match outcome {
            Ok(ran) => {
                for stop in &ran.findings {
                    self.stopped(stop);
                }
                if self.report.wanted() {
                    let name = if name.is_empty() { "(without a name)".to_owned() } else { name };
                    self.report.ran(name, &ran);
                }
                Ok(())
            }
            Err(stop) => Err(self.stopped(&stop)),
        }
    }

    fn stopped(&self, stop: &Stop) -> Failure {
        let (kind, place, failure) = describe(stop);
        let message = stop.to_string();
        log!("{message}");
        let kernel = place.map_or(String::new(), |place| place.kernel.clone());
        self.report.stopped(Finding { kernel, kind, message });
        failure
    }

    /// Code may have changed.
    pub fn forget_code(&self) {
        self.inner.invalidate();
    }

    /// The process is about to end, or may be.
    pub fn write_report(&self, device: &Device) {
        if self.report.is_read() {
            self.report.write(self.times.as_ref().map(Times::totals).as_ref(), &device.drm.left());
        }
    }
}

/// Whether a kernel is one of ROCr's copies and fills: they come without a code object, so without a name, and lie right
/// behind a header of the old form.
fn is_of_rocr(name: &str, descriptor: &Descriptor) -> bool {
    const OLD_HEADER_BYTES: i64 = 256;
    name.is_empty() && descriptor.entry == OLD_HEADER_BYTES
}

/// Kind, where, and what the runtime is told.
fn describe(stop: &Stop) -> (&'static str, Option<&Location>, Failure) {
    match stop {
        Stop::IllegalInstruction { place, .. } => {
            ("illegal_instruction", Some(place), Failure::Queue(error::ILLEGAL_INSTRUCTION))
        }
        Stop::MemoryFault { place, address, .. } => ("memory_fault", Some(place), Failure::absent(*address)),
        Stop::Strict { place, .. } => ("strict", Some(place), Failure::Queue(error::TRAP)),
        Stop::Trap { place, .. } => ("trap", Some(place), Failure::Queue(error::TRAP)),
        Stop::Deadline { place } => ("deadline", Some(place), Failure::Queue(error::TRAP)),
        Stop::Dispatch { .. } => ("dispatch", None, Failure::Queue(error::CODE)),
    }
}

/// Runs when the process ends in an orderly way.
extern "C" fn at_exit() {
    if let Some(device) = Device::current() {
        device.executor.write_report(device);
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
