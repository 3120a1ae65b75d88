//! Wrong use through the C ABI on the strict card: each call has the right status and a message, and nothing is harmed.

mod common;

use common::host::{ConstData, DeviceBuffer, Host, Id, Log, Operands};
use common::reference::{Behind, Case, Lies, PASSES, Pass, TYPES, Type};
use common::{on_card, on_card_with, seed};
use libloading::Library;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const BAD_PARAM: c_int = 1;
const INVALID_VALUE: c_int = 2;
const NOT_APPLICABLE: c_int = 5;

fn start() -> (StdRng, Host) {
    (StdRng::seed_from_u64(seed()), Host::open())
}

impl Host {
    /// That a call failed this way, and said so in these words.
    fn fails(&self, found: c_int, status: c_int, words: &str) {
        let said = self.error();
        assert!(found == status && said.contains(words), "{found}, not {status}: {said}, not {words}");
        assert!(said.starts_with("wave32: hipdnn"), "{said}");
    }
}

#[test]
fn null_foreign_and_destroyed_arguments() {
    on_card("null_foreign_and_destroyed_arguments", || {
        let (mut random, host) = start();
        let p = &host.plugin;
        let case = Case::random(&mut random, Pass::Forward, Type::F32, Lies::Nchw);
        let bytes = case.graph().bytes();
        let (graph, config) = (ConstData::of(&bytes), ConstData::of(&host.config));
        let none = ConstData { data: null(), size: 8 };
        let handle = host.handle(null_mut());
        let gone = host.handle(null_mut());
        let (mut id, mut count, mut engine, mut size) = (0, 0, 0, 0);
        let mut details = ConstData { data: null(), size: 0 };
        // SAFETY: the calls look at no argument that is wrong here, and write to what is right.
        unsafe {
            host.ok((p.destroy)(gone), "destroy");
            for wrong in [0, gone, handle + 1, 0x1234_5678] {
                host.fails((p.destroy)(wrong), BAD_PARAM, "handle");
                host.fails((p.set_stream)(wrong, null_mut()), BAD_PARAM, "handle");
                host.fails((p.applicable)(wrong, &graph, &mut engine, 1, &mut count), BAD_PARAM, "handle");
                host.fails((p.details)(wrong, host.engine, &graph, &mut details), BAD_PARAM, "handle");
                host.fails((p.destroy_details)(wrong, &mut details), BAD_PARAM, "handle");
                host.fails((p.workspace)(wrong, &config, &graph, &mut size), BAD_PARAM, "handle");
                host.fails((p.context)(wrong, &config, &graph, &mut id), BAD_PARAM, "handle");
                host.fails((p.destroy_context)(wrong, 0), BAD_PARAM, "handle");
                host.fails((p.context_workspace)(wrong, 0, &mut size), BAD_PARAM, "handle");
                host.fails((p.execute)(wrong, 0, null_mut(), null(), 0), BAD_PARAM, "handle");
            }
            host.fails((p.name)(null_mut()), BAD_PARAM, "name is null");
            host.fails((p.version)(null_mut()), BAD_PARAM, "version is null");
            host.fails((p.kind)(null_mut()), BAD_PARAM, "type is null");
            (p.last_error)(null_mut());
            host.fails((p.log_to)(None), BAD_PARAM, "callback is null");
            host.fails((p.log_level)(5), INVALID_VALUE, "severity");
            host.fails((p.log_level)(-1), INVALID_VALUE, "severity");
            host.fails((p.all)(null_mut(), 1, &mut count), BAD_PARAM, "engine_ids is null");
            host.fails((p.all)(&mut engine, 1, null_mut()), BAD_PARAM, "num_engines is null");
            host.fails((p.engine_name)(host.engine, null_mut()), BAD_PARAM, "name is null");
            let mut name = null();
            host.fails((p.engine_name)(1, &mut name), NOT_APPLICABLE, "engine 1");
            host.fails((p.create)(null_mut()), BAD_PARAM, "handle is null");
            host.fails(
                (p.applicable)(handle, null(), &mut engine, 1, &mut count),
                BAD_PARAM,
                "op_graph is null",
            );
            host.fails((p.applicable)(handle, &none, &mut engine, 1, &mut count), BAD_PARAM, "ptr is null");
            host.fails((p.applicable)(handle, &graph, null_mut(), 1, &mut count), BAD_PARAM, "engine_ids");
            host.fails((p.applicable)(handle, &graph, &mut engine, 1, null_mut()), BAD_PARAM, "num_engines");
            // No list is wanted where there is no room for one.
            host.ok((p.applicable)(handle, &graph, null_mut(), 0, &mut count), "count");
            assert_eq!(count, 1);
            host.fails((p.details)(handle, 7, &graph, &mut details), INVALID_VALUE, "engine 7");
            host.fails((p.details)(handle, host.engine, &graph, null_mut()), BAD_PARAM, "engine_details");
            host.fails((p.destroy_details)(handle, null_mut()), BAD_PARAM, "engine_details");
            host.fails((p.destroy_details)(handle, &mut details), BAD_PARAM, "engine_details");
            let mut foreign = ConstData::of(&bytes);
            host.fails((p.destroy_details)(handle, &mut foreign), BAD_PARAM, "none of wave32's");
            host.ok((p.details)(handle, host.engine, &graph, &mut details), "details");
            let mut again = details;
            host.ok((p.destroy_details)(handle, &mut details), "details' end");
            host.fails((p.destroy_details)(handle, &mut again), BAD_PARAM, "were destroyed");
            host.fails(
                (p.workspace)(handle, &none, &graph, &mut size),
                BAD_PARAM,
                "engine_config->ptr is null",
            );
            host.fails(
                (p.workspace)(handle, &config, &graph, null_mut()),
                BAD_PARAM,
                "workspace_size is null",
            );
            let short = ConstData { size: 5, ..config };
            host.fails((p.workspace)(handle, &short, &graph, &mut size), BAD_PARAM, "engine_config is no");
            let other = common::write::engine_config(8);
            host.fails(
                (p.context)(handle, &ConstData::of(&other), &graph, &mut id),
                INVALID_VALUE,
                "engine 8",
            );
            host.fails(
                (p.context)(handle, &config, &graph, null_mut()),
                BAD_PARAM,
                "execution_context is null",
            );
            let mut refused = case.graph();
            refused.convolution().mode = 1;
            let refused = refused.bytes();
            let refused = ConstData::of(&refused);
            host.fails((p.context)(handle, &config, &refused, &mut id), NOT_APPLICABLE, "convolution mode 1");
            host.fails((p.details)(handle, host.engine, &refused, &mut details), NOT_APPLICABLE, "mode 1");
            let vast = ConstData { size: 1 << 40, ..graph };
            host.fails((p.context)(handle, &config, &vast, &mut id), NOT_APPLICABLE, "bytes");
            for wrong in [0, handle, handle + 8] {
                host.fails((p.destroy_context)(handle, wrong), BAD_PARAM, "execution_context");
                host.fails((p.context_workspace)(handle, wrong, &mut size), BAD_PARAM, "execution_context");
                host.fails((p.execute)(handle, wrong, null_mut(), null(), 0), BAD_PARAM, "execution_context");
            }
            let (context, _) = host.context(handle, &bytes);
            host.fails((p.destroy)(context), BAD_PARAM, "is a hipDNN execution context");
            host.ok((p.destroy_context)(handle, context), "context's end");
            host.fails((p.destroy_context)(handle, context), BAD_PARAM, "was destroyed");
        }
        // After all that it works. (The strict card wants to see a kernel, too.)
        host.run(handle, null_mut(), &case, &mut random);
    });
}

#[test]
fn wrong_buffers_launch_nothing() {
    on_card("wrong_buffers_launch_nothing", || {
        let (mut random, host) = start();
        let handle = host.handle(null_mut());
        let execute = |context, workspace, buffers: &[DeviceBuffer]| {
            // SAFETY: as many buffers as are told.
            unsafe {
                (host.plugin.execute)(handle, context, workspace, buffers.as_ptr(), buffers.len() as u32)
            }
        };
        for round in 0..6 {
            let case = Case::random(&mut random, PASSES[round % 3], TYPES[round % 2], Lies::Nchw);
            let bias = case.pass == Pass::Forward;
            let case = Case { behind: Behind { bias, activation: None }, ..case };
            let (context, bytes) = host.context(handle, &case.graph().bytes());
            let operands = Operands::new(&host, &case, &mut random);
            let workspace = host.put(&vec![0; bytes.max(1)]);
            let whole = operands.buffers();
            for at in 0..whole.len() {
                let (mut missing, mut empty, mut foreign) = (whole.clone(), whole.clone(), whole.clone());
                let uid = missing.remove(at).uid;
                if uid == 99 || (!bias && uid == common::reference::BIAS) {
                    continue;
                }
                empty[at].data = null_mut();
                foreign[at].data = 0x7000_0000_0000_usize as *mut c_void;
                host.fails(
                    execute(context, workspace, &missing),
                    BAD_PARAM,
                    &format!("no buffer for tensor {uid}"),
                );
                host.fails(execute(context, workspace, &empty), BAD_PARAM, &format!("tensor {uid} is null"));
                host.fails(execute(context, workspace, &foreign), BAD_PARAM, "");
            }
            host.fails(execute(context, workspace, &[]), BAD_PARAM, "no buffer");
            // SAFETY: a list of so many is not read.
            let endless =
                unsafe { (host.plugin.execute)(handle, context, workspace, whole.as_ptr(), u32::MAX) };
            host.fails(endless, BAD_PARAM, "more than any graph");
            host.wait(null_mut());
            assert!(operands.is_untouched(&host, &case), "{case:?}");
            host.ok(execute(context, workspace, &whole), "execute");
            host.wait(null_mut());
            operands.check(&host, &case);
            operands.free(&host);
            host.free(workspace);
            // SAFETY: of this round.
            host.ok(unsafe { (host.plugin.destroy_context)(handle, context) }, "context's end");
        }
    });
}

/// With the one solver that always wants one. The strict card sees it where a plan leaves it.
#[test]
fn a_workspace_is_demanded_and_is_enough() {
    on_card_with("a_workspace_is_demanded_and_is_enough", &[("WAVE32_SOLVER", "im2col_gemm")], || {
        let (mut random, host) = start();
        let handle = host.handle(null_mut());
        let mut taken = 0;
        for round in 0..18 {
            let lies = if round % 2 == 0 { Lies::Nchw } else { Lies::Strided };
            let case = Case::random(&mut random, PASSES[round % 3], TYPES[round / 3 % 3], lies);
            let graph = case.graph().bytes();
            if host.count(handle, &graph) == 0 {
                continue;
            }
            taken += 1;
            let (context, bytes) = host.context(handle, &graph);
            assert!(bytes > 0, "{case:?}");
            let operands = Operands::new(&host, &case, &mut random);
            let buffers = operands.buffers();
            let execute = |workspace| {
                // SAFETY: as many buffers as are told.
                unsafe {
                    (host.plugin.execute)(handle, context, workspace, buffers.as_ptr(), buffers.len() as u32)
                }
            };
            host.fails(execute(null_mut()), BAD_PARAM, "workspace is null");
            host.wait(null_mut());
            assert!(operands.is_untouched(&host, &case), "{case:?}");
            let workspace = host.put(&vec![0xff; bytes]);
            host.ok(execute(workspace), "execute");
            host.wait(null_mut());
            operands.check(&host, &case);
            operands.free(&host);
            host.free(workspace);
        }
        assert!(taken >= 9, "{taken} of 18 graphs were taken");
    });
}

#[test]
fn broken_graphs_take_no_engine() {
    on_card("broken_graphs_take_no_engine", || {
        let (mut random, host) = start();
        let handle = host.handle(null_mut());
        let (mut taken, mut refused) = (0, 0);
        for round in 0..3000 {
            let case = Case::random(&mut random, PASSES[round % 3], TYPES[round / 3 % 3], Lies::Nhwc);
            let mut bytes = case.graph().bytes();
            match round % 3 {
                0 => bytes.truncate(random.random_range(1..bytes.len())),
                1 => bytes.iter_mut().for_each(|byte| *byte = random.random()),
                _ => {
                    let at = random.random_range(0..bytes.len());
                    bytes[at] ^= 1 << random.random_range(0..8);
                }
            }
            match host.count(handle, &bytes) {
                0 => refused += 1,
                _ => taken += 1,
            }
        }
        assert!(refused > 2000 && taken > 100, "{refused} refused, {taken} taken");
        let case = Case::random(&mut random, Pass::Weights, Type::BF16, Lies::Nchw);
        host.run(handle, null_mut(), &case, &mut random);
    });
}

static LINES: Mutex<Vec<(c_int, String)>> = Mutex::new(Vec::new());

extern "C" fn log(severity: c_int, message: *const c_char) {
    // SAFETY: the plugin's text.
    let text = unsafe { CStr::from_ptr(message) }.to_str().unwrap().to_string();
    LINES.lock().unwrap().push((severity, text));
}

#[test]
fn the_hosts_log_says_why_a_graph_is_not_taken() {
    on_card("the_hosts_log_says_why_a_graph_is_not_taken", || {
        let (mut random, host) = start();
        let handle = host.handle(null_mut());
        let case = Case::random(&mut random, Pass::Forward, Type::F32, Lies::Nchw);
        let mut graph = case.graph();
        graph.convolution().mode = 1;
        // SAFETY: a function of the right type, that lives for ever.
        host.ok(unsafe { (host.plugin.log_to)(Some(log)) }, "log");
        assert_eq!(host.count(handle, &graph.bytes()), 0);
        let lines = std::mem::take(&mut *LINES.lock().unwrap());
        assert!(
            matches!(&lines[..], [(0, text)] if text.contains("not applicable: convolution mode 1")),
            "{lines:?}"
        );
        // SAFETY: a plain number.
        host.ok(unsafe { (host.plugin.log_level)(1) }, "log level");
        assert_eq!(host.count(handle, &graph.bytes()), 0);
        host.run(handle, null_mut(), &case, &mut random);
        assert!(LINES.lock().unwrap().is_empty());
    });
}

#[test]
fn what_the_hosts_log_throws_comes_back_to_the_host() {
    on_card("what_the_hosts_log_throws_comes_back_to_the_host", || {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("throws.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/throws.cpp");
        let mut compiler = Command::new("c++");
        compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
        assert!(compiler.status().expect("a C++ compiler, `c++`, is needed for this test").success());
        type Applicable = unsafe extern "C" fn(Id, *const ConstData, *mut i64, u32, *mut u32) -> c_int;
        type Caught =
            unsafe extern "C" fn(Applicable, Id, *const ConstData, *mut i64, u32, *mut u32) -> c_int;
        // SAFETY: built above, from functions of these types.
        let throws = unsafe { Library::new(&library) }.unwrap();
        // SAFETY: as above.
        let (log, caught) = unsafe {
            (throws.get::<Log>(b"throwing_log").unwrap(), throws.get::<Caught>(b"caught").unwrap())
        };
        let (mut random, host) = start();
        let handle = host.handle(null_mut());
        let case = Case::random(&mut random, Pass::Forward, Type::F32, Lies::Nchw);
        let mut graph = case.graph();
        graph.convolution().mode = 1;
        let bytes = graph.bytes();
        let data = ConstData::of(&bytes);
        // SAFETY: a function of the right type; its library outlives the plugin's use of it.
        host.ok(unsafe { (host.plugin.log_to)(Some(*log)) }, "log");
        for _ in 0..3 {
            let (mut id, mut count) = (0, 7);
            // SAFETY: places for one engine, and a graph as long as is told.
            let status = unsafe { caught(*host.plugin.applicable, handle, &data, &mut id, 1, &mut count) };
            assert_eq!((status, count), (1007, 0));
        }
        host.run(handle, null_mut(), &case, &mut random);
    });
}

/// Handles, streams and contexts of their own, and one context that all run.
#[test]
fn eight_threads() {
    on_card("eight_threads", || {
        let (mut random, host) = start();
        let shared = Case::random(&mut random, Pass::Forward, Type::F32, Lies::Nchw);
        let main = host.handle(null_mut());
        let (context, bytes) = host.context(main, &shared.graph().bytes());
        let stop = AtomicBool::new(false);
        let seeds: Vec<u64> = (0..8).map(|_| random.random()).collect();
        std::thread::scope(|scope| {
            let (host, shared, stop) = (&host, &shared, &stop);
            let threads: Vec<_> = seeds
                .into_iter()
                .enumerate()
                .map(|(at, seed)| {
                    scope.spawn(move || {
                        let random = &mut StdRng::seed_from_u64(seed);
                        let stream = host.stream();
                        let handle = host.handle(stream);
                        for round in 0..4 {
                            let case =
                                Case::random(random, PASSES[(at + round) % 3], TYPES[at % 3], Lies::Nchw);
                            host.run(handle, stream, &case, random);
                            let operands = Operands::new(host, shared, random);
                            let workspace = host.put(&vec![0; bytes.max(1)]);
                            let buffers = operands.buffers();
                            let count = buffers.len() as u32;
                            // SAFETY: as many buffers as are told.
                            let status = unsafe {
                                (host.plugin.execute)(handle, context, workspace, buffers.as_ptr(), count)
                            };
                            host.ok(status, "the shared context");
                            host.wait(stream);
                            operands.check(host, shared);
                            operands.free(host);
                            host.free(workspace);
                        }
                        // SAFETY: of this thread.
                        host.ok(unsafe { (host.plugin.destroy)(handle) }, "destroy");
                    })
                })
                .collect();
            // Errors of one thread are not another's.
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: null is looked at.
                unsafe { (host.plugin.name)(null_mut()) };
                assert!(host.error().contains("hipdnnPluginGetName"));
                stop.store(threads.iter().all(|thread| thread.is_finished()), Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    });
}
