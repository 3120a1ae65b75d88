//! Calls that every plugin of hipDNN's has (`PluginApi.h`).

use crate::entry::{Callback, Failure, Outcome, Status, call, last_error, log_from, log_to};
use std::ffi::{CStr, c_char, c_int};
use wave32_miopen::ffi::Out;

/// `HIPDNN_PLUGIN_TYPE_ENGINE`.
const ENGINE: c_int = 1;

/// The plugin ABI that is implemented. What later minor versions added (override shapes, scalars at run time, ragged
/// tensors) is for graphs that we refuse; hosts give such graphs only to plugins that say that they know it.
const API_VERSION: &CStr = c"1.0.0";

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

/// The version of hipDNN's plugin ABI.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnPluginGetApiVersion(version: Out<*const c_char>) -> Status {
    call("hipdnnPluginGetApiVersion", || version.set("version", API_VERSION.as_ptr()))
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
