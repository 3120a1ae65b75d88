//! Calls that every plugin of hipDNN's has (`PluginApi.h`).
//!
//! `hipdnnPluginGetApiVersion` is left out, as it may be. Hosts of hipDNN 0.x then take 0.0.0, and
//! later ones, for which the plugin ABI is counted by itself, 1.0.0. Either would reject the other's number.
//! What later minor versions added (override shapes, scalars at run time, ragged tensors) is for graphs that we refuse.

use crate::entry::{Callback, Failure, Outcome, Status, call, last_error, log_from, log_to};
use std::ffi::{c_char, c_int};
use wave32_miopen::ffi::Out;

/// `HIPDNN_PLUGIN_TYPE_ENGINE`.
const ENGINE: c_int = 1;

static VERSION: &[u8] = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();

/// The plugin's name.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnPluginGetName(name: Out<*const c_char>) -> Status {
    call("hipdnnPluginGetName", || name.set("name", c"wave32".as_ptr()))
}

/// Its version.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnPluginGetVersion(version: Out<*const c_char>) -> Status {
    call("hipdnnPluginGetVersion", || version.set("version", VERSION.as_ptr().cast()))
}

/// That it has engines.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnPluginGetType(kind: Out<c_int>) -> Status {
    call("hipdnnPluginGetType", || kind.set("type", ENGINE))
}

/// Why the last call of the calling thread's that failed did.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnPluginGetLastErrorString(text: Out<*const c_char>) {
    text.set_if_wanted(last_error());
}

/// Sends lines for the host's log there.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnPluginSetLoggingCallback(callback: Option<Callback>) -> Status {
    call("hipdnnPluginSetLoggingCallback", || -> Outcome {
        log_to(callback.ok_or_else(|| Failure::bad("callback is null"))?);
        Ok(())
    })
}

/// Sends lines of this severity and above only.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnPluginSetLogLevel(level: c_int) -> Status {
    call("hipdnnPluginSetLogLevel", || log_from(level))
}
