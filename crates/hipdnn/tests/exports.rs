//! The plugin from outside: what it exports and needs.

mod common;

use common::library;
use std::collections::BTreeSet;
use std::process::Command;

fn tool(name: &str, args: &[&str]) -> String {
    let ended =
        Command::new(name).args(args).arg(library()).output().unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(ended.status.success(), "{name}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}

/// Each name of hipDNN's public `PluginApi.h` and `EnginePluginApi.h` without which a backend rejects a plugin.
const REQUIRED: [&str; 17] = [
    "hipdnnPluginGetName",
    "hipdnnPluginGetVersion",
    "hipdnnPluginGetType",
    "hipdnnPluginGetLastErrorString",
    "hipdnnPluginSetLoggingCallback",
    "hipdnnEnginePluginGetAllEngineIds",
    "hipdnnEnginePluginCreate",
    "hipdnnEnginePluginDestroy",
    "hipdnnEnginePluginSetStream",
    "hipdnnEnginePluginGetApplicableEngineIds",
    "hipdnnEnginePluginGetEngineDetails",
    "hipdnnEnginePluginDestroyEngineDetails",
    "hipdnnEnginePluginGetWorkspaceSize",
    "hipdnnEnginePluginCreateExecutionContext",
    "hipdnnEnginePluginDestroyExecutionContext",
    "hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext",
    "hipdnnEnginePluginExecuteOpGraph",
];
/// Not `hipdnnPluginGetApiVersion`: see `src/general.rs`.
const OPTIONAL: [&str; 2] = ["hipdnnPluginSetLogLevel", "hipdnnEnginePluginGetEngineName"];

#[test]
fn exports_the_interface_and_nothing_else() {
    let text = tool("nm", &["-D", "--defined-only"]);
    let found: BTreeSet<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(found, REQUIRED.into_iter().chain(OPTIONAL).collect());
}

#[test]
fn needs_the_c_library_only_and_loads_anywhere() {
    let dynamic = tool("readelf", &["-dW"]);
    let needed: Vec<&str> = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split(['[', ']']).nth(1))
        .collect();
    let libc =
        ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"];
    assert!(needed.iter().all(|name| libc.contains(name)), "{needed:?}");
    assert!(!dynamic.contains("TEXTREL"), "its code would have to be changed when it is loaded");
    assert!(!dynamic.contains("STATIC_TLS"), "dlopen into a running program would depend on luck");
    assert!(dynamic.contains("NODELETE"), "the runtime keeps pointers to our kernels' code");
}
