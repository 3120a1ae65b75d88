//! HIP and HSA programs on the virtual card, with the library and without. The strict card stops kernels at fine-grained
//! memory and says that it has no PCIe atomics; the other one says that it has them.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod stage;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stage::{Ended, c, ended, hip, launcher, library, timed};

/// The strict card, and what its kernels are stopped with.
const STRICT: &[&str] = &["--strict"];
const STOPPED: &str = "is fine-grained memory, which the card cannot reach without PCIe atomics";

/// A program on a card, with the library or without.
struct Card<'a> {
    launcher: &'a Path,
    options: &'static [&'static str],
    preload: bool,
    variables: &'a [(&'a str, &'a str)],
}

impl Card<'_> {
    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = timed(self.launcher);
        command.arg("run").args(self.options).arg("--").arg(program).args(arguments);
        if self.preload {
            command.env("LD_PRELOAD", library());
        }
        command.envs(self.variables.iter().copied());
        command
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> Ended {
        ended(&mut self.command(program, arguments))
    }
}

fn with<'a>(launcher: &'a Path, options: &'static [&'static str]) -> Card<'a> {
    Card { launcher, options, preload: true, variables: &[] }
}

fn without<'a>(launcher: &'a Path, options: &'static [&'static str]) -> Card<'a> {
    Card { preload: false, ..with(launcher, options) }
}

fn stage() -> Option<(PathBuf, tempfile::TempDir)> {
    Some((launcher()?, tempfile::tempdir().unwrap()))
}

#[test]
fn each_kind_of_memory_works_on_the_strict_card() {
    let Some((launcher, folder)) = stage() else { return };
    let program = hip(folder.path(), "kinds");
    // Whether HIP 5.2.3 makes it fine-grained.
    for (kind, fine) in [
        ("default", true),
        ("mapped", true),
        ("combined", true),
        ("numa", true),
        ("mem-alloc-host", true),
        ("registered", true),
        ("portable", false),
        ("noncoherent", false),
        ("malloc-host", false),
        ("managed", false),
    ] {
        let bare = without(&launcher, STRICT).run(&program, &[kind]);
        assert_eq!(bare.err.contains(STOPPED), fine, "{kind}, without: {bare:?}");
        assert_eq!(bare.passed(), !fine, "{kind}, without: {bare:?}");
        let helped = with(&launcher, STRICT).run(&program, &[kind]);
        assert!(helped.passed() && helped.err.is_empty(), "{kind}: {helped:?}");
    }
    let off = Card { variables: &[("WAVE32_COARSE", "off")], ..with(&launcher, STRICT) };
    let off = off.run(&program, &["default"]);
    assert!(off.err.contains(STOPPED), "switched off: {off:?}");
    let wrong = Card { variables: &[("WAVE32_COARSE", "yes")], ..with(&launcher, STRICT) };
    let wrong = wrong.run(&program, &["default"]);
    assert!(wrong.passed() && wrong.err.contains("WAVE32_COARSE is 'yes'"), "{wrong:?}");
    let logged = Card { variables: &[("WAVE32_LOG", "1")], ..with(&launcher, STRICT) };
    let logged = logged.run(&program, &["mapped"]);
    assert!(logged.passed() && logged.err.starts_with("wave32: hipHostMalloc: "), "{logged:?}");
}

#[test]
fn what_needs_coherence_by_name_is_refused_unless_allowed() {
    let Some((launcher, folder)) = stage() else { return };
    let program = hip(folder.path(), "refusals");
    let refused = with(&launcher, STRICT).run(&program, &["refused"]);
    assert!(refused.passed(), "{refused:?}");
    for call in ["hipHostMalloc", "hipMemAdvise", "hipStreamWaitValue32", "hipStreamWaitValue64"] {
        let lines = refused.err.lines().filter(|line| line.starts_with(&format!("wave32: {call} "))).count();
        assert_eq!(lines, 1, "{call}: {refused:?}");
    }
    let allowed = Card { variables: &[("WAVE32_COARSE", "all")], ..with(&launcher, STRICT) };
    let allowed = allowed.run(&program, &["allowed"]);
    assert!(allowed.passed(), "{allowed:?}");
}

#[test]
fn memory_of_the_card_and_of_streams_works() {
    let Some((launcher, folder)) = stage() else { return };
    let program = hip(folder.path(), "device_kinds");
    let fine = [("HSA_FORCE_FINE_GRAIN_PCIE", "1")];
    let bare = Card { variables: &fine, ..without(&launcher, STRICT) }.run(&program, &[]);
    assert!(bare.err.contains(STOPPED), "{bare:?}");
    for variables in [&fine[..], &[]] {
        let helped = Card { variables, ..with(&launcher, STRICT) }.run(&program, &[]);
        assert!(helped.passed() && helped.err.is_empty(), "{variables:?}: {helped:?}");
    }
}

#[test]
fn processes_and_threads_work_at_once() {
    let Some((launcher, folder)) = stage() else { return };
    let program = hip(folder.path(), "busy");
    let bare = without(&launcher, STRICT).run(&program, &[]);
    assert!(bare.err.contains(STOPPED), "{bare:?}");
    let helped = with(&launcher, STRICT).run(&program, &[]);
    assert!(helped.passed() && helped.err.is_empty(), "{helped:?}");
}

/// Kernel arguments, signals, copies, device `printf`, streams, events, `fork`: with the library at work and without strictness.
#[test]
fn the_runtime_itself_is_not_disturbed() {
    let Some((launcher, folder)) = stage() else { return };
    let all = Card { variables: &[("WAVE32_COARSE", "all")], ..with(&launcher, &[]) };
    for name in [
        "device_printf",
        "host_memory",
        "malloc_async",
        "streams_events",
        "copies",
        "threads",
        "fork",
        "graph",
    ] {
        let program = hip(folder.path(), name);
        for sdma in ["1", "0"] {
            let done = ended(all.command(&program, &[]).env("HSA_ENABLE_SDMA", sdma));
            // A child that has no card says so there.
            let quiet = done.err.is_empty() || name == "fork";
            assert!(done.passed() && quiet, "{name}, HSA_ENABLE_SDMA={sdma}: {done:?}");
        }
    }
}

/// Lines `NAME FLAGS`.
fn flags<'a>(done: &'a Ended, name: &str) -> Vec<&'a str> {
    assert!(done.passed() && done.err.is_empty(), "{done:?}");
    done.out.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).collect()
}

#[test]
fn pools_of_hsa_give_coarse_grained_memory_but_for_arguments() {
    let Some((launcher, folder)) = stage() else { return };
    let program = c(folder.path(), "pools", "pools", &[], &["-lhsa-runtime64"]);
    // Flags of the pool: 1 arguments, 2 fine-grained, 4 coarse-grained; what its memory has.
    for (card, fine) in
        [(with(&launcher, STRICT), "4"), (with(&launcher, &[]), "2"), (without(&launcher, STRICT), "2")]
    {
        let done = card.run(&program, &[]);
        for kind in ["pool", "region"] {
            assert_eq!(flags(&done, &format!("host-{kind}-2")), [fine; 2], "{done:?}");
            assert_eq!(flags(&done, &format!("host-{kind}-3")), ["3"; 2], "{done:?}");
            assert_eq!(flags(&done, &format!("host-{kind}-4")), ["4"; 2], "{done:?}");
        }
        assert_eq!(flags(&done, "card-pool-4"), ["4"; 2], "{done:?}");
    }
}

/// `dlvsym` and a library's own handle lead past a preloaded library that has no versions: the dynamic linker's rule.
#[test]
fn callers_find_it_as_the_dynamic_linker_promises() {
    let Some((launcher, folder)) = stage() else { return };
    let libraries = ["-lamdhip64", "-lhsa-runtime64"];
    let plugin = c(folder.path(), "plugin", "plugin.so", &["-shared", "-Wno-unused-result"], &libraries);
    let program = c(folder.path(), "lookup", "lookup", &[], &["-ldl"]);
    let arguments = [plugin.to_str().unwrap()];
    let helped = with(&launcher, STRICT).run(&program, &arguments);
    // hipErrorSharedObjectSymbolNotFound; coarse-grained.
    assert_eq!((flags(&helped, "early"), flags(&helped, "plugin")), (vec!["302"], vec!["4"]), "{helped:?}");
    assert_eq!(flags(&helped, "dlsym"), ["libwave32_preload.so"]);
    for past in ["dlvsym", "handle"] {
        assert_eq!(flags(&helped, past), ["libamdhip64.so.5"]);
    }
    let untouched = with(&launcher, &[]).run(&program, &arguments);
    assert_eq!(flags(&untouched, "plugin"), ["2"], "a card with PCIe atomics keeps fine-grained memory");
}

/// HIP and HSA that stand in for what the virtual card has not: one pool for all, shared virtual memory.
struct Fakes {
    folder: tempfile::TempDir,
    client: PathBuf,
}

impl Fakes {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let here = format!("-L{}", at.display());
        let hsa = "libhsa-runtime64.so.1";
        c(at, "fake_hsa", hsa, &["-shared", &format!("-Wl,-soname,{hsa}")], &[]);
        let below = [here.as_str(), "-l:libhsa-runtime64.so.1"];
        c(at, "fake_hip", "libamdhip64.so.6", &["-shared", "-Wl,-soname,libamdhip64.so.6"], &below);
        let client = c(at, "fake_client", "client", &[], &[&here, "-l:libamdhip64.so.6", below[1]]);
        Self { folder, client }
    }

    fn run(&self, preload: bool, coarse: &str, arguments: &[&str]) -> Ended {
        let mut command = timed(&self.client);
        command.args(arguments).env("LD_LIBRARY_PATH", self.folder.path()).env("WAVE32_COARSE", coarse);
        if preload {
            command.env("LD_PRELOAD", library());
        }
        let done = ended(&mut command);
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    }
}

#[test]
fn one_pool_for_all_and_shared_virtual_memory_are_understood() {
    let fakes = Fakes::new();
    let lines = |preload, coarse| fakes.run(preload, coarse, &[]).out;
    let bare = "host 0 0x10c own 0x100\nregister 0x100\nregister io 0x100\nregister uncached 256\nuncached 0 0x400\n\
                signal 0 0x400\ncreate 0 0x100\nmanaged 0 -1\nvariable -1\npreferred 0 -1\nunset 0 0\narguments 0x100\ncard 0x400\nlds 0x500\n\
                region 0x400\nvirtual 0 0x400\nattributes 0 0 of 0\n";
    assert_eq!(lines(false, "on"), bare);
    assert_eq!(lines(true, "off"), bare);
    let helped = "host 0 0x204 own 0x100\nregister 0x200\nregister io 0x100\nregister uncached 801\nuncached 0 0x300\n\
                  signal 0 0x400\ncreate 0 0x200\nmanaged 0 1\nvariable 1\npreferred 0 -1\nunset 801 -1\narguments 0x100\ncard 0x300\nlds 0x500\n\
                  region 0x300\nvirtual 0 0x300\nattributes 0 1 of 0\n";
    assert_eq!(lines(true, "on"), helped);
    let all = helped.replace("uncached 801", "uncached 512").replace("unset 801 -1", "unset 0 1");
    assert_eq!(lines(true, "all"), all);
}

#[test]
fn lists_that_make_no_sense_and_a_lost_stderr_end_nothing() {
    let fakes = Fakes::new();
    let said = "misaligned 0 1\nnone 0\nendless 4097\nwild and endless 4097\nregister uncached 801\n";
    assert_eq!(fakes.run(true, "on", &["misuse"]).out, said);
    // Nobody reads it; the disk is full; what comes is more than a pipe holds, and read.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for stderr in [Stdio::from(writer), Stdio::from(full), Stdio::piped()] {
        let mut command = Command::new(&fakes.client);
        command.arg("misuse").env("LD_LIBRARY_PATH", fakes.folder.path()).env("LD_PRELOAD", library());
        command.env("WAVE32_COARSE", "on").env("WAVE32_LOG", "1");
        let child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{:?}", output.status);
        assert!(output.status.success(), "{:?}", output.status);
    }
}

#[test]
fn a_card_that_needs_nothing_pays_next_to_nothing() {
    let fakes = Fakes::new();
    let cost = |preload| -> f64 { fakes.run(preload, "off", &["cost"]).out.trim().parse().unwrap() };
    let (bare, helped) = (cost(false), cost(true));
    println!("nanoseconds a call: {bare} without, {helped} with the library");
    assert!(helped - bare < 100.0, "{bare} ns without, {helped} ns with the library");
}
