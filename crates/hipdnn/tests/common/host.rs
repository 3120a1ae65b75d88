//! The plugin's calls and HIP's, found by name in libraries that are opened as hipDNN's backend opens a plugin.

use super::library;
use super::reference::{BIAS, Case, Type, W, X, Y};
use super::write::engine_config;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use rand::Rng;
use rand::rngs::StdRng;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

pub type Id = usize;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ConstData {
    pub data: *const c_void,
    pub size: usize,
}

impl ConstData {
    pub fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr().cast(), size: bytes.len() }
    }
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DeviceBuffer {
    pub uid: i64,
    pub data: *mut c_void,
}

macro_rules! calls {
    ($name:ident { $($field:ident: $symbol:literal fn($($argument:ty),*) $(-> $result:ty)?;)* }) => {
        pub struct $name {
            $(pub $field: Symbol<unsafe extern "C" fn($($argument),*) $(-> $result)?>,)*
            _library: Library,
        }

        impl $name {
            fn of(library: Library) -> Self {
                Self {
                    // SAFETY: the functions of the public headers, with their types.
                    $($field: unsafe { library.get($symbol.as_bytes()) }.expect($symbol),)*
                    _library: library,
                }
            }
        }
    };
}

pub type Log = extern "C" fn(c_int, *const c_char);

calls! {
    Plugin {
        name: "hipdnnPluginGetName" fn(*mut *const c_char) -> c_int;
        version: "hipdnnPluginGetVersion" fn(*mut *const c_char) -> c_int;
        kind: "hipdnnPluginGetType" fn(*mut c_int) -> c_int;
        last_error: "hipdnnPluginGetLastErrorString" fn(*mut *const c_char);
        log_to: "hipdnnPluginSetLoggingCallback" fn(Option<Log>) -> c_int;
        log_level: "hipdnnPluginSetLogLevel" fn(c_int) -> c_int;
        all: "hipdnnEnginePluginGetAllEngineIds" fn(*mut i64, u32, *mut u32) -> c_int;
        engine_name: "hipdnnEnginePluginGetEngineName" fn(i64, *mut *const c_char) -> c_int;
        create: "hipdnnEnginePluginCreate" fn(*mut Id) -> c_int;
        destroy: "hipdnnEnginePluginDestroy" fn(Id) -> c_int;
        set_stream: "hipdnnEnginePluginSetStream" fn(Id, *mut c_void) -> c_int;
        applicable: "hipdnnEnginePluginGetApplicableEngineIds"
            fn(Id, *const ConstData, *mut i64, u32, *mut u32) -> c_int;
        details: "hipdnnEnginePluginGetEngineDetails" fn(Id, i64, *const ConstData, *mut ConstData) -> c_int;
        destroy_details: "hipdnnEnginePluginDestroyEngineDetails" fn(Id, *mut ConstData) -> c_int;
        workspace: "hipdnnEnginePluginGetWorkspaceSize"
            fn(Id, *const ConstData, *const ConstData, *mut usize) -> c_int;
        context: "hipdnnEnginePluginCreateExecutionContext"
            fn(Id, *const ConstData, *const ConstData, *mut Id) -> c_int;
        destroy_context: "hipdnnEnginePluginDestroyExecutionContext" fn(Id, Id) -> c_int;
        context_workspace: "hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext"
            fn(Id, Id, *mut usize) -> c_int;
        execute: "hipdnnEnginePluginExecuteOpGraph"
            fn(Id, Id, *mut c_void, *const DeviceBuffer, u32) -> c_int;
    }
}

calls! {
    Hip {
        malloc: "hipMalloc" fn(*mut *mut c_void, usize) -> c_int;
        free: "hipFree" fn(*mut c_void) -> c_int;
        copy: "hipMemcpy" fn(*mut c_void, *const c_void, usize, c_int) -> c_int;
        stream: "hipStreamCreateWithFlags" fn(*mut *mut c_void, u32) -> c_int;
        wait: "hipStreamSynchronize" fn(*mut c_void) -> c_int;
        end_stream: "hipStreamDestroy" fn(*mut c_void) -> c_int;
    }
}

pub struct Host {
    pub hip: Hip,
    pub plugin: Plugin,
    pub engine: i64,
    pub config: Vec<u8>,
}

impl Host {
    /// Opens both, as a backend opens a plugin, and asks what it asks.
    pub fn open() -> Self {
        let names = ["libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7"];
        // SAFETY: AMD's runtime, and the plugin under test.
        let (hip, plugin) = unsafe {
            let open = |name: &str| Library::open(Some(name), RTLD_NOW | RTLD_LOCAL);
            let hip = names.iter().find_map(|name| open(name).ok()).expect("libamdhip64");
            (Hip::of(hip), Plugin::of(Library::open(Some(library()), RTLD_NOW | RTLD_LOCAL).unwrap()))
        };
        let (mut kind, mut count, mut engine) = (0, 0, 0);
        let text = |call: &dyn Fn(*mut *const c_char) -> c_int| {
            let mut text = null();
            assert_eq!(call(&mut text), 0);
            // SAFETY: a text of the plugin's, for as long as it is loaded.
            unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_string()
        };
        // SAFETY: as the headers have it.
        unsafe {
            assert_eq!((plugin.kind)(&mut kind), 0);
            assert_eq!((plugin.all)(null_mut(), 0, &mut count), 0);
            assert_eq!((kind, count), (1, 1));
            assert_eq!((plugin.all)(&mut engine, 1, &mut count), 0);
            assert_eq!(text(&|to| (plugin.name)(to)), "wave32");
            assert_eq!(text(&|to| (plugin.version)(to)), env!("CARGO_PKG_VERSION"));
            // The host drops an engine whose number is not its name's hash.
            let name = text(&|to| (plugin.engine_name)(engine, to));
            let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
            assert_eq!(name.bytes().fold(14_695_981_039_346_656_037, fnv) as i64, engine);
        }
        Self { hip, plugin, engine, config: engine_config(engine) }
    }

    pub fn error(&self) -> String {
        let mut text = null();
        // SAFETY: the plugin's text for this thread, read at once.
        unsafe {
            (self.plugin.last_error)(&mut text);
            CStr::from_ptr(text).to_str().unwrap().to_string()
        }
    }

    pub fn ok(&self, status: c_int, what: &str) {
        assert_eq!(status, 0, "{what}: {}", self.error());
    }

    pub fn handle(&self, stream: *mut c_void) -> Id {
        let mut handle = 0;
        // SAFETY: as the headers have it.
        unsafe {
            self.ok((self.plugin.create)(&mut handle), "create");
            self.ok((self.plugin.set_stream)(handle, stream), "set stream");
        }
        handle
    }

    pub fn stream(&self) -> *mut c_void {
        let mut stream = null_mut();
        // SAFETY: as the headers have it; 1 is a stream that does not wait for the null stream.
        assert_eq!(unsafe { (self.hip.stream)(&mut stream, 1) }, 0);
        stream
    }

    pub fn wait(&self, stream: *mut c_void) {
        // SAFETY: a stream of this test's.
        assert_eq!(unsafe { (self.hip.wait)(stream) }, 0);
    }

    pub fn put(&self, bytes: &[u8]) -> *mut c_void {
        let mut data = null_mut();
        // SAFETY: as the headers have it.
        unsafe {
            assert_eq!((self.hip.malloc)(&mut data, bytes.len().max(1)), 0);
            assert_eq!((self.hip.copy)(data, bytes.as_ptr().cast(), bytes.len(), 1), 0);
        }
        data
    }

    pub fn read(&self, data: *mut c_void, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        // SAFETY: as many bytes as `put` made room for.
        assert_eq!(unsafe { (self.hip.copy)(bytes.as_mut_ptr().cast(), data, size, 2) }, 0);
        bytes
    }

    pub fn free(&self, data: *mut c_void) {
        // SAFETY: of `put`, once.
        assert_eq!(unsafe { (self.hip.free)(data) }, 0);
    }

    /// How many engines take a graph.
    pub fn count(&self, handle: Id, graph: &[u8]) -> u32 {
        let (mut engine, mut count) = (0, u32::MAX);
        // SAFETY: as the headers have it.
        let status =
            unsafe { (self.plugin.applicable)(handle, &ConstData::of(graph), &mut engine, 1, &mut count) };
        self.ok(status, "applicable");
        assert!(count == 0 || (count == 1 && engine == self.engine), "{count} engines, {engine}");
        count
    }

    pub fn context(&self, handle: Id, graph: &[u8]) -> (Id, usize) {
        let (mut context, mut first, mut second) = (0, usize::MAX, usize::MAX);
        let (config, graph) = (ConstData::of(&self.config), ConstData::of(graph));
        // SAFETY: as the headers have it.
        unsafe {
            self.ok((self.plugin.workspace)(handle, &config, &graph, &mut first), "workspace");
            self.ok((self.plugin.context)(handle, &config, &graph, &mut context), "context");
            self.ok((self.plugin.context_workspace)(handle, context, &mut second), "context's workspace");
        }
        assert_eq!(first, second);
        (context, first)
    }

    /// Lets the plugin do the case as a backend does, and compares.
    pub fn run(&self, handle: Id, stream: *mut c_void, case: &Case, random: &mut StdRng) {
        let graph = case.graph().bytes();
        assert_eq!(self.count(handle, &graph), 1, "{case:?}");
        let mut details = ConstData { data: null(), size: 0 };
        // SAFETY: as the headers have it.
        unsafe {
            let graph = ConstData::of(&graph);
            self.ok((self.plugin.details)(handle, self.engine, &graph, &mut details), "details");
            assert!(!details.data.is_null() && details.size >= 8);
            self.ok((self.plugin.destroy_details)(handle, &mut details), "details' end");
            assert!(details.data.is_null() && details.size == 0);
        }
        let (context, bytes) = self.context(handle, &graph);
        // Rewritten: a context needs neither graph nor configuration.
        drop(graph);
        let operands = Operands::new(self, case, random);
        let workspace = if bytes > 0 { self.put(&vec![0xff; bytes]) } else { null_mut() };
        let buffers = operands.buffers();
        // SAFETY: as the headers have it.
        unsafe {
            let count = buffers.len() as u32;
            let status = (self.plugin.execute)(handle, context, workspace, buffers.as_ptr(), count);
            self.ok(status, "execute");
            self.ok((self.plugin.destroy_context)(handle, context), "context's end");
        }
        self.wait(stream);
        operands.check(self, case);
        if !workspace.is_null() {
            self.free(workspace);
        }
        operands.free(self);
    }
}

/// A case's tensors on the card; the result is poisoned.
pub struct Operands {
    values: [Vec<f64>; 3],
    bias: Vec<f64>,
    data: [*mut c_void; 4],
}

const POISON: u8 = 0xff;

/// Places of a tensor's elements, in order.
fn places(case: &Case, size: [usize; 4]) -> Vec<usize> {
    let strides = case.strides(size);
    let mut places = Vec::new();
    for index in 0..size.iter().product() {
        let mut rest = index;
        let mut place = 0;
        for dim in (0..4).rev() {
            place += rest % size[dim] * strides[dim];
            rest /= size[dim];
        }
        places.push(place);
    }
    places
}

fn spanned(case: &Case, size: [usize; 4]) -> usize {
    (places(case, size).into_iter().max().unwrap() + 1) * case.dtype.size()
}

fn rounded(dtype: Type, random: &mut StdRng, count: usize) -> Vec<f64> {
    (0..count).map(|_| dtype.value(&dtype.bytes(random.random_range(-1.0..1.0)))).collect()
}

impl Operands {
    pub fn new(host: &Host, case: &Case, random: &mut StdRng) -> Self {
        let dtype = case.dtype;
        let (result, made) = case.result();
        let values = case.sizes().map(|size| rounded(dtype, random, size.iter().product()));
        let mut data = [null_mut(); 4];
        for (at, size) in case.sizes().into_iter().enumerate() {
            let mut bytes = vec![POISON; spanned(case, size)];
            if at != result {
                for (place, &value) in places(case, size).into_iter().zip(&values[at]) {
                    bytes[place * dtype.size()..][..dtype.size()].copy_from_slice(&dtype.bytes(value));
                }
            }
            data[at] = host.put(&bytes);
        }
        let bias = rounded(dtype, random, if case.behind.bias { made[1] } else { 0 });
        data[3] = host.put(&bias.iter().flat_map(|&value| dtype.bytes(value)).collect::<Vec<_>>());
        Self { values, bias, data }
    }

    /// As a variant pack, in an order of no meaning, with one that nobody asked for.
    pub fn buffers(&self) -> Vec<DeviceBuffer> {
        [(99, 0), (BIAS, 3), (Y, 2), (X, 0), (W, 1)]
            .map(|(uid, at)| DeviceBuffer { uid, data: self.data[at] })
            .to_vec()
    }

    pub fn check(&self, host: &Host, case: &Case) {
        let (result, size) = case.result();
        let [x, w, y] = &self.values;
        let bytes = host.read(self.data[result], spanned(case, size));
        let unit = case.dtype.size();
        let mut is_element = vec![false; bytes.len()];
        let expected = case.expected([x, w, y], &self.bias);
        for (index, (place, (wanted, slack))) in places(case, size).into_iter().zip(expected).enumerate() {
            let found = case.dtype.value(&bytes[place * unit..][..unit]);
            assert!(
                (found - wanted).abs() <= slack,
                "element {index} is {found}, not {wanted} +- {slack}: {case:?}"
            );
            is_element[place * unit..][..unit].fill(true);
        }
        let between = bytes.iter().zip(is_element).filter(|(_, is_element)| !is_element);
        assert!(
            between.map(|(byte, _)| *byte).all(|byte| byte == POISON),
            "wrote between elements: {case:?}"
        );
    }

    pub fn is_untouched(&self, host: &Host, case: &Case) -> bool {
        let (result, size) = case.result();
        host.read(self.data[result], spanned(case, size)).iter().all(|&byte| byte == POISON)
    }

    pub fn free(self, host: &Host) {
        self.data.into_iter().for_each(|data| host.free(data));
    }
}
