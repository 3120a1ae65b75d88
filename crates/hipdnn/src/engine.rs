//! Calls of engine plugins (`EnginePluginApi.h`).

use crate::entry::{Failure, Outcome, Status, call, inform};
use crate::graph::Pattern;
use crate::schema;
use crate::work::{Context, DeviceBuffer, Plugin, choose};
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use wave32_miopen::ffi::{Data, Id, In, Out, status as miopen};
use wave32_miopen::handle::{Handle, HipStream};
use wave32_miopen::objects;

/// The engine's name. Its number is the name's hash: both are for ever.
const NAME: &CStr = c"WAVE32_CONV";

/// The engine's number: FNV-1a in 64 bits of its name, as hipDNN hashes names.
pub const ENGINE: i64 = {
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < NAME.to_bytes().len() {
        hash = (hash ^ NAME.to_bytes()[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash as i64
};

/// A graph of more bytes is refused.
const MAX_BYTES: usize = 1 << 22;
/// A call with more buffers is refused, and the list is not read to its end.
const MAX_BUFFERS: u32 = 1 << 12;

/// `hipdnnPluginConstData_t` of the caller's.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ConstData {
    data: In<u8>,
    size: usize,
}

/// The caller's serialized FlatBuffer, copied so that its scalars are aligned.
struct Buffer {
    words: Vec<u64>,
    size: usize,
}

impl Buffer {
    fn read(name: &str, from: &In<ConstData>) -> Outcome<Self> {
        let ConstData { data, size } = from.get(name)?;
        if size > MAX_BYTES {
            return Err(Failure::absent(format!("{name} of {size} bytes")));
        }
        let bytes = data.get_all(&format!("{name}->ptr"), size)?;
        let whole = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        Ok(Self { words: whole.collect(), size })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `read` made at least as many bytes, and every byte is a u8.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.size) }
    }
}

fn plugin(handle: Id) -> Outcome<Arc<Plugin>> {
    objects::get(handle, "handle")
}

/// The graph, which the caller was told is ours.
fn pattern(graph: &In<ConstData>) -> Outcome<Pattern> {
    let buffer = Buffer::read("op_graph", graph)?;
    let refused = |why| Failure::new(miopen::UNSUPPORTED_OP, format!("this graph is not for wave32: {why}"));
    Pattern::read(buffer.bytes()).map_err(refused)
}

fn check_engine(engine: i64) -> Outcome {
    if engine == ENGINE {
        return Ok(());
    }
    Err(Failure::new(miopen::INVALID_VALUE, format!("engine {engine} is not wave32's, which is {ENGINE}")))
}

fn check_config(config: &In<ConstData>) -> Outcome {
    let buffer = Buffer::read("engine_config", config)?;
    let config = schema::engine_config(buffer.bytes())
        .map_err(|error| Failure::bad(format!("engine_config is no FlatBuffer of that schema: {error}")))?;
    check_engine(config.engine())
}

/// One engine into a list of at most `most`.
fn list(ids: &Out<i64>, most: u32) -> Outcome {
    if most > 0 { ids.set("engine_ids", ENGINE) } else { Ok(()) }
}

/// The engines' numbers: one.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginGetAllEngineIds(ids: Out<i64>, most: u32, count: Out<u32>) -> Status {
    call("hipdnnEnginePluginGetAllEngineIds", || {
        count.check("num_engines")?;
        list(&ids, most)?;
        count.set("num_engines", 1)
    })
}

/// An engine's name.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginGetEngineName(engine: i64, name: Out<*const c_char>) -> Status {
    call("hipdnnEnginePluginGetEngineName", || {
        name.check("name")?;
        if engine != ENGINE {
            return Err(Failure::absent(format!("engine {engine}")));
        }
        name.set("name", NAME.as_ptr())
    })
}

/// Creates a handle on the current device's null stream.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginCreate(handle: Out<Id>) -> Status {
    call("hipdnnEnginePluginCreate", || {
        handle.check("handle")?;
        handle.set("handle", objects::insert(Plugin(Handle::new(HipStream::null())?)))
    })
}

/// Destroys a handle. Its work in flight ends first, in five seconds at most.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginDestroy(handle: Id) -> Status {
    call("hipdnnEnginePluginDestroy", || objects::remove::<Plugin>(handle, "handle").map(drop))
}

/// Puts work on this stream from now on, behind what the handle launched before.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginSetStream(handle: Id, stream: HipStream) -> Status {
    call("hipdnnEnginePluginSetStream", || {
        plugin(handle)?.0.set_stream(stream);
        Ok(())
    })
}

/// The engine, if it takes the graph. What it cannot read it does not take: another engine may.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn hipdnnEnginePluginGetApplicableEngineIds(
    handle: Id,
    graph: In<ConstData>,
    ids: Out<i64>,
    most: u32,
    count: Out<u32>,
) -> Status {
    let mut reason = None;
    let status = call("hipdnnEnginePluginGetApplicableEngineIds", || {
        let plugin = plugin(handle)?;
        count.check("num_engines")?;
        if most > 0 {
            ids.check("engine_ids")?;
        }
        let taken = match Buffer::read("op_graph", &graph) {
            Err(failure) if failure.status == miopen::BAD_PARM => return Err(failure),
            Err(failure) => Err(failure.message),
            Ok(buffer) => Pattern::read(buffer.bytes())
                .and_then(|pattern| choose(&plugin.0, &pattern).map_err(|failure| failure.message)),
        };
        match taken {
            Ok(_) => list(&ids, most)?,
            Err(why) => {
                reason = Some(why);
                return count.set("num_engines", 0);
            }
        }
        count.set("num_engines", 1)
    });
    // Outside of what catches panics, which ends the process at an exception of C++.
    if let Some(why) = reason {
        inform(&format!("not applicable: {why}"));
    }
    status
}

/// `hipdnnPluginConstData_t` that we fill: bytes of ours, by their address.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Details {
    address: usize,
    size: usize,
}

/// Serialized details that callers hold, by their address.
static DETAILS: LazyLock<Mutex<HashMap<usize, Box<[u8]>>>> = LazyLock::new(Mutex::default);

/// What there is to know of the engine: that it has no knobs.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginGetEngineDetails(
    handle: Id,
    engine: i64,
    graph: In<ConstData>,
    details: Out<Details>,
) -> Status {
    call("hipdnnEnginePluginGetEngineDetails", || {
        let plugin = plugin(handle)?;
        details.check("engine_details")?;
        check_engine(engine)?;
        choose(&plugin.0, &pattern(&graph)?)?;
        let bytes = schema::engine_details(engine);
        let told = Details { address: bytes.as_ptr() as usize, size: bytes.len() };
        DETAILS.lock().unwrap_or_else(PoisonError::into_inner).insert(told.address, bytes);
        details.set("engine_details", told)
    })
}

/// Frees details.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginDestroyEngineDetails(handle: Id, details: Out<Details>) -> Status {
    call("hipdnnEnginePluginDestroyEngineDetails", || {
        plugin(handle)?;
        let told = details.held("engine_details")?;
        let freed = DETAILS.lock().unwrap_or_else(PoisonError::into_inner).remove(&told.address);
        freed.ok_or_else(|| Failure::bad("engine_details hold none of wave32's, or were destroyed"))?;
        details.set("engine_details", Details { address: 0, size: 0 })
    })
}

/// Bytes of workspace for a graph.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginGetWorkspaceSize(
    handle: Id,
    config: In<ConstData>,
    graph: In<ConstData>,
    bytes: Out<usize>,
) -> Status {
    call("hipdnnEnginePluginGetWorkspaceSize", || {
        let plugin = plugin(handle)?;
        bytes.check("workspace_size")?;
        check_config(&config)?;
        let (_, solution) = choose(&plugin.0, &pattern(&graph)?)?;
        bytes.set("workspace_size", solution.workspace() as usize)
    })
}

/// Chooses what runs for a graph, and loads its kernels.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginCreateExecutionContext(
    handle: Id,
    config: In<ConstData>,
    graph: In<ConstData>,
    context: Out<Id>,
) -> Status {
    call("hipdnnEnginePluginCreateExecutionContext", || {
        let plugin = plugin(handle)?;
        context.check("execution_context")?;
        check_config(&config)?;
        let made = Context::new(&plugin.0, pattern(&graph)?)?;
        context.set("execution_context", objects::insert(made))
    })
}

/// Destroys a context. Work that was launched with it goes on.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginDestroyExecutionContext(handle: Id, context: Id) -> Status {
    call("hipdnnEnginePluginDestroyExecutionContext", || {
        plugin(handle)?;
        objects::remove::<Context>(context, "execution_context").map(drop)
    })
}

/// Bytes of workspace that the context's plan wants.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext(
    handle: Id,
    context: Id,
    bytes: Out<usize>,
) -> Status {
    call("hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext", || {
        plugin(handle)?;
        let context = objects::get::<Context>(context, "execution_context")?;
        bytes.set("workspace_size", context.workspace() as usize)
    })
}

/// Launches the context's plan on the handle's stream.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnEnginePluginExecuteOpGraph(
    handle: Id,
    context: Id,
    workspace: Data,
    buffers: In<DeviceBuffer>,
    count: u32,
) -> Status {
    call("hipdnnEnginePluginExecuteOpGraph", || {
        let plugin = plugin(handle)?;
        let context = objects::get::<Context>(context, "execution_context")?;
        if count > MAX_BUFFERS {
            return Err(Failure::bad(format!("{count} device_buffers, more than any graph of wave32's has")));
        }
        context.run(&plugin.0, &buffers.get_all("device_buffers", count as usize)?, workspace)
    })
}
