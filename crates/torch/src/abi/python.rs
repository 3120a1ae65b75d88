//! The module `wave32._native`.

use crate::abi::calls;
use crate::abi::conversions::ToPython;
use crate::abi::error::Error;
use crate::abi::guard;
use crate::abi::hooks;
use crate::abi::unboxed;
use crate::dispatch::autocast;
use crate::dispatch::fallback;
use crate::dispatch::index_errors;
use crate::dispatch::register;
use crate::dispatch::scalar;
use crate::dispatch::tables;
use crate::ops::conv;
use crate::runtime::bridge;
use crate::runtime::graph;
use crate::runtime::rng;
use crate::runtime::state;
use crate::tensors::storage;
use crate::tensors::{copies, layout, memory_ops};
use pyo3::exceptions::{PyIndexError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyString};
use std::collections::HashMap;
use wave32_host::torch::{NEWEST, OLDEST, Version};
use wave32_solve::Fp16Accumulation;
use wave32_torch_logic::settings;

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            Error::NoKernel(_) | Error::Refused(_) => PyNotImplementedError::new_err(error.to_string()),
            Error::Index(_) => PyIndexError::new_err(error.to_string()),
            Error::OutOfMemory(text) => raised("OutOfMemoryError", text),
            Error::Python(raised) => raised.into_inner(),
            Error::Type(_) => PyTypeError::new_err(error.to_string()),
            Error::Value(_) => PyValueError::new_err(error.to_string()),
            Error::Gone(_) => raised("AcceleratorError", error.to_string()),
            _ => PyRuntimeError::new_err(error.to_string()),
        }
    }
}

/// An exception of torch.
fn raised(kind: &str, text: String) -> PyErr {
    crate::abi::gil::attach(|py| {
        let made = py.import("torch").and_then(|torch| torch.getattr(kind)?.call1((text,)));
        made.map_or_else(|failure| failure, PyErr::from_value)
    })
}

/// The device's kernels, for torch.
#[pymodule]
mod _native {
    #[allow(clippy::wildcard_imports)]
    use super::*;
    use wave32_device::Queue;

    /// Registers every kernel. Once, after torch was imported and its backend renamed.
    #[pyfunction]
    fn register_kernels() -> Result<(), Error> {
        calls::load()?;
        state::watch_forks();
        register::define(memory_ops::FREE_SCHEMAS)?;
        register::register("wave", "CompositeExplicitAutograd", memory_ops::FREE)?;
        for (schemas, kernels) in tables::OWN {
            register::define(schemas)?;
            register::register("wave", "PrivateUse1", kernels)?;
        }
        tables::aten().try_for_each(|kernels| register::register("aten", "PrivateUse1", kernels))
    }

    /// The oldest and the newest version of torch that the device is made for.
    #[pyfunction]
    fn torch_versions() -> (Version, Version) {
        (OLDEST, NEWEST)
    }

    /// Symbols outside torch's stable C ABI that are looked up; WAVE32_TEST_WITHOUT hides some.
    #[cfg(feature = "fault-injection")]
    #[pyfunction]
    fn optional_symbols() -> Vec<&'static str> {
        calls::Api::OPTIONAL.to_vec()
    }

    /// Copies to the CPU wait from now on, where the device's own conversion can see to that.
    #[pyfunction]
    fn wait_for_copies() -> bool {
        copies::wait_for_copies()
    }

    /// Names of kernels of `aten` that C++ may call by itself.
    #[pyfunction]
    fn kernels() -> Vec<&'static str> {
        tables::candidates().into_iter().map(|candidate| candidate.name).collect()
    }

    /// Has C++ call those by itself that these schemas, by name, are of; `key` is the number of the device's
    /// dispatch key, or that of its autocast. Their names; for a torch of known layout.
    #[pyfunction]
    fn unbox(key: u16, schemas: HashMap<String, String>) -> Result<Vec<&'static str>, Error> {
        unboxed::install(key, &autocast::candidates(key).unwrap_or_else(tables::candidates), &schemas)
    }

    /// Takes the Python guard's place; for a torch of known layout.
    #[pyfunction]
    fn settle_guard() -> Result<(), Error> {
        guard::settle()
    }

    /// Registers autocast of operators that networks call often; `key` is the number of its dispatch key. Their names.
    #[pyfunction]
    fn settle_autocast(key: u16) -> Result<Vec<&'static str>, Error> {
        autocast::install(key)
    }

    /// Has the hooks' entries tell which is called; see `hooks`.
    #[pyfunction]
    fn trace_hooks() -> Result<(), Error> {
        hooks::trace()
    }

    /// The number of the hooks' entry that was called last.
    #[pyfunction]
    fn last_hook() -> Option<usize> {
        hooks::last()
    }

    /// Takes the place of those entries whose number is known; which of them could be taken. The last of all calls.
    #[pyfunction]
    #[pyo3(signature = (generator=None, pinned=None, resize=None))]
    fn settle_hooks(
        generator: Option<usize>,
        pinned: Option<(usize, usize)>,
        resize: Option<usize>,
    ) -> Result<Vec<&'static str>, Error> {
        hooks::settle(&hooks::Places { generator, pinned, resize })
    }

    /// Lets tensors become others of another device in place (`x.data = y`); for a torch that asks (2.15).
    #[pyfunction]
    fn share_parameters() -> Result<(), Error> {
        register::register("aten", "PrivateUse1", storage::SHALLOW)
    }

    /// Names of the operators of aten that have a kernel here.
    #[pyfunction]
    fn native_operators() -> Vec<&'static str> {
        tables::ATEN.iter().flat_map(|kernels| kernels.iter().map(|op| op.name)).collect()
    }

    /// Names of the operators of aten that have a kernel with a `Scalar`.
    #[pyfunction]
    fn scalar_operators() -> Vec<&'static str> {
        tables::SCALAR.iter().copied().flatten().map(|op| op.name).collect()
    }

    /// The builtin for one of them, from the names and defaults of its schema's arguments.
    #[pyfunction]
    fn scalar_kernel<'py>(
        py: Python<'py>,
        name: &str,
        names: Vec<Py<PyString>>,
        defaults: Vec<Py<PyAny>>,
        fallback: Py<PyAny>,
    ) -> PyResult<Bound<'py, PyCFunction>> {
        let op = tables::SCALAR.iter().copied().flatten().find(|op| op.name == name);
        let op = op.ok_or_else(|| PyRuntimeError::new_err(format!("no kernel {name}")))?;
        scalar::builtin(py, op, names, defaults, fallback)
    }

    /// Counts a call that runs on the CPU; what to tell the user, if anything.
    #[pyfunction]
    fn count_fallback(name: &str, why: &str) -> Result<Option<String>, Error> {
        fallback::count(name, why)
    }

    /// Calls on the CPU so far, by operator.
    #[pyfunction]
    fn fallbacks() -> Vec<(String, u64)> {
        fallback::all()
    }

    /// Forgets them.
    #[pyfunction]
    fn reset_fallbacks() {
        fallback::reset();
    }

    /// How many devices a process may use: 1, or 0 where none can be.
    #[pyfunction]
    fn device_count(py: Python<'_>) -> usize {
        if state::is_open() {
            return 1;
        }
        py.detach(|| {
            usize::from(wave32_vulkan::list().is_ok_and(|all| all.iter().any(|d| d.unusable.is_none())))
        })
    }

    /// True once the device is open in this process.
    #[pyfunction]
    fn is_open() -> bool {
        state::is_open()
    }

    /// True in a fork of a process that had opened the device.
    #[pyfunction]
    fn is_forked() -> bool {
        state::is_forked()
    }

    /// Waits for work in flight.
    #[pyfunction]
    fn synchronize(py: Python<'_>) -> Result<(), Error> {
        if !state::is_open() && !state::is_forked() {
            return Ok(());
        }
        py.detach(|| {
            state::with(|queue| queue.synchronize())?;
            index_errors::check()
        })
    }

    /// Whether each operator waits for the device from now on, as with `WAVE32_LAUNCH_BLOCKING=1`; whether they did.
    #[pyfunction]
    fn block_launches(is_blocking: bool) -> bool {
        index_errors::block(is_blocking)
    }

    /// Bytes: allocated, most allocated, reserved, most reserved; then blocks, retries and refusals.
    #[pyfunction]
    fn heap() -> Result<[u64; 7], Error> {
        let s = state::heap()?;
        Ok([s.allocated, s.max_allocated, s.reserved, s.max_reserved, s.blocks, s.retries, s.refusals])
    }

    /// Bytes that the heap can still take from the driver.
    #[pyfunction]
    fn memory_left() -> Result<u64, Error> {
        state::memory_left()
    }

    /// Forgets the heap's past peaks.
    #[pyfunction]
    fn reset_peaks() -> Result<(), Error> {
        if !state::is_open() {
            return Ok(());
        }
        state::heap()?;
        state::with(|queue| {
            queue.reset_peaks();
            Ok(())
        })
    }

    /// Gives cached memory back to the driver.
    #[pyfunction]
    fn empty_cache(py: Python<'_>) -> Result<(), Error> {
        py.detach(state::empty_cache)
    }

    /// Most bytes that the device's heap may take; none for no cap.
    #[pyfunction]
    fn set_memory_cap(cap: Option<u64>) -> Result<(), Error> {
        state::set_memory_cap(cap)
    }

    /// Whether convolutions may be transformed (Winograd) from now on, where that is said; whether they could be.
    #[pyfunction]
    #[pyo3(signature = (is_allowed=None))]
    fn winograd(is_allowed: Option<bool>) -> bool {
        bridge::winograd(is_allowed)
    }

    /// Whether tensors keep `channels_last` from now on, where that is said; whether they did.
    #[pyfunction]
    #[pyo3(signature = (keep=None))]
    fn channels_last(keep: Option<bool>) -> bool {
        layout::channels_last(keep)
    }

    /// The next convolution on this thread computes its result's moments, for a batch norm behind it.
    #[pyfunction]
    fn request_statistics() {
        conv::request_statistics();
    }

    /// The moments that were requested, if they were computed.
    #[pyfunction]
    fn take_statistics(py: Python<'_>) -> Result<Option<Py<PyAny>>, Error> {
        conv::take_statistics().map(|tensor| ToPython::to_python(tensor, py)).transpose()
    }

    /// Problems for which `wave32 tune` measured the fastest configuration on this device.
    #[pyfunction]
    fn tuned(py: Python<'_>) -> Result<usize, Error> {
        py.detach(|| state::with(|queue| Ok(queue.caps().tuned.len())))
    }

    /// Which passes may sum in f16 from now on (`0`, `1`, `forward`), where that is said; which could.
    #[pyfunction]
    #[pyo3(signature = (which=None))]
    fn fp16_accumulation(which: Option<&str>) -> PyResult<&'static str> {
        let which = which.map(str::parse::<Fp16Accumulation>).transpose();
        let which = which.map_err(|error| PyValueError::new_err(format!("{error}")))?;
        Ok(bridge::fp16_accumulation(which).name())
    }

    /// `512M` as a number.
    #[pyfunction]
    fn parse_bytes(text: &str) -> Option<u64> {
        settings::parse_bytes(text)
    }

    /// Name, driver, kind, bytes of memory, compute units, subgroup width, whether f64 and 16-bit kernels run.
    #[pyfunction]
    #[allow(clippy::type_complexity)]
    fn properties(py: Python<'_>) -> Result<(String, String, String, u64, u32, u32, bool, bool), Error> {
        py.detach(|| {
            state::with(|queue| {
                let (info, caps) = (queue.info(), queue.caps());
                Ok((
                    info.name.clone(),
                    info.driver.clone(),
                    info.kind.to_string(),
                    info.memory_bytes,
                    caps.compute_units,
                    caps.wave_size,
                    queue.has_float64(),
                    caps.storage_16bit,
                ))
            })
        })
    }

    /// Counts of what the stream holds, by name; nothing before the device is open.
    #[pyfunction]
    fn counts() -> Result<Vec<(&'static str, usize)>, Error> {
        if !state::is_open() {
            return Ok(Vec::new());
        }
        let counts = state::with(|queue| Ok(queue.counts()))?;
        Ok(vec![
            ("segments", counts.segments),
            ("blocks", counts.blocks),
            ("command_buffers", counts.command_buffers),
            ("uploads", counts.uploads),
            ("kernels", counts.kernels),
            ("timed", counts.timed),
        ])
    }

    /// The device counts as lost after that many more submits.
    #[cfg(feature = "fault-injection")]
    #[pyfunction]
    fn lose_after(submits: u64) -> Result<(), Error> {
        state::with(|queue| {
            queue.lose_after(submits);
            Ok(())
        })
    }

    /// Starts the random numbers of `seed`.
    #[pyfunction]
    fn seed(seed: u64) {
        rng::seed(seed);
    }

    /// Seed and offset of the random numbers.
    #[pyfunction]
    fn rng_state() -> (u64, u64) {
        rng::state()
    }

    /// Continues where `rng_state` was taken.
    #[pyfunction]
    fn set_rng_state(seed: u64, offset: u64) {
        rng::set_state(seed, offset);
    }

    /// Starts or ends taking the times of launches; (kernel, start, length) in seconds.
    #[pyfunction]
    fn profile(py: Python<'_>, on: bool) -> Result<Vec<(String, f64, f64)>, Error> {
        let launches = py.detach(|| state::with(|queue| queue.profile(on)))?;
        let seconds = launches.into_iter().map(|l| (l.kernel, l.start.as_secs_f64(), l.length.as_secs_f64()));
        Ok(seconds.collect())
    }

    /// Most bytes of a tensor that a launch can bind.
    #[pyfunction]
    fn max_range() -> Result<u64, Error> {
        state::with(|queue| Ok(queue.caps().max_range))
    }

    /// Submits so far.
    #[pyfunction]
    fn submits() -> Result<u64, Error> {
        state::with(|queue| Ok(queue.submits()))
    }

    /// From now on work becomes part of a graph. Waits for work in flight.
    #[pyfunction]
    fn begin_capture(py: Python<'_>) -> Result<(), Error> {
        py.detach(graph::begin)
    }

    /// Ends the capture: what `replay` and `drop_graph` want.
    #[pyfunction]
    fn end_capture(py: Python<'_>) -> Result<(u64, bool, u64), Error> {
        py.detach(graph::end).map(|made| (made.id, made.may_tell, made.counters))
    }

    /// Whether a graph is being captured.
    #[pyfunction]
    fn is_capturing() -> Result<bool, Error> {
        graph::is_capturing()
    }

    /// Runs a graph.
    #[pyfunction]
    fn replay(py: Python<'_>, id: u64, may_tell: bool, counters: u64) -> Result<(), Error> {
        py.detach(|| graph::replay(graph::Captured { id, may_tell, counters }))
    }

    /// Waits for a graph's work and gives its memory back.
    #[pyfunction]
    fn drop_graph(py: Python<'_>, graph: u64) -> Result<(), Error> {
        py.detach(|| graph::drop(graph))
    }

    #[pymodule_export]
    use crate::runtime::peers::{Peers, Region};

    /// Gives the device up with all tensors on it; the next use opens it anew.
    #[pyfunction]
    fn reopen(py: Python<'_>) {
        py.detach(|| {
            // A fork touches nothing of the stream's, locks included.
            if !state::is_forked() {
                state::reopen();
                index_errors::forget();
            }
        });
    }

    /// Waits for work in flight and closes the device for good.
    #[pyfunction]
    fn close(py: Python<'_>) {
        py.detach(state::close);
    }
}
