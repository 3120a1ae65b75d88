//! Ours before a real MIOpen: a stand-in that knows its objects and says what it was asked, under every way to load it.
//! Needs no card: nothing is launched.

mod card;

use card::{Ended, library, run};
use std::path::{Path, PathBuf};
use std::process::Command;

fn compile(args: &[&str], source: &str, to: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu17", "-O1", "-fPIC", "-pthread", "-o"]).arg(to).arg(source).args(args);
    let ended = run(compile);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// A vendor's folder: HIP, MIOpen under this name, a client that needs it, and a host that loads the client.
struct Stack {
    folder: tempfile::TempDir,
    client: PathBuf,
}

fn stack(miopen: &str) -> Stack {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let map = at("exports.map");
    std::fs::write(&map, "MIOPEN_HIP_1 { global: miopen*; local: *; };").unwrap();
    let (version, soname) =
        (format!("-Wl,--version-script={}", map.display()), format!("-Wl,-soname,{miopen}"));
    compile(&["-shared"], "../hip/tests/standin/hip.c", &at("libamdhip64.so"));
    compile(&["-shared", &version, &soname], "tests/c/vendor.c", &at(miopen));
    let client = at("libclient.so");
    let (search, needed) = (format!("-L{}", folder.path().display()), format!("-l:{miopen}"));
    let link = ["-shared", &search, "-Wl,--no-as-needed", &needed, "-lamdhip64", "-Wl,-rpath,$ORIGIN"];
    compile(&link, "tests/c/through.c", &client);
    compile(&["-ldl"], "tests/c/host.c", &at("host"));
    Stack { folder, client }
}

impl Stack {
    fn run(&self, route: &str) -> Ended {
        let mut command = Command::new(self.folder.path().join("host"));
        command
            .arg(&self.client)
            .env("LD_PRELOAD", library())
            .env("WAVE32_ROUTE", route)
            .env("WAVE32_LOG", "1");
        command.env("XDG_STATE_HOME", self.folder.path().join("state"));
        command.env("WAVE32_HIP_LIBRARY", self.folder.path().join("libamdhip64.so"));
        run(command)
    }
}

/// `libMIOpen.so.1` is the name that ours has too, so the loader takes no second one; a wheel's names are others.
const NAMES: [&str; 3] = ["libMIOpen.so.1", "libMIOpen.so", "libMIOpen-5b3f1c2a.so.1.0"];

#[test]
fn convolutions_are_ours_and_the_rest_is_the_vendors() {
    for name in NAMES {
        let ended = stack(name).run("");
        let (text, log) = (&ended.stdout, &ended.stderr);
        assert!(text.ends_with("passed\n"), "{name}: {text}\n{log}");
        for theirs in ["CONVOLUTION", "TRAINING", "foreign object"] {
            assert!(!text.contains(theirs), "{name}: {text}");
        }
        for line in [
            "version 2.20.7",
            "output 2 32 48 48",
            "workspace of wave32",
            "vendor: miopenSet4dTensorDescriptor",
            "foreign handle: status 3",
            "foreign tensor: status 3",
            "destroyed tensor: status 3",
            "vendor: miopenDestroy",
            "end again: status 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{name}: {line}: {text}\n{log}");
        }
        // Objects end on both sides, once.
        assert_eq!(text.matches("vendor: miopenDestroyTensorDescriptor").count(), 3, "{text}");
        assert!(log.contains("miopenSet4dTensorDescriptor is the vendor's"), "{log}");
        assert!(log.contains("miopenConvolutionForwardGetWorkSpaceSize is wave32's"), "{log}");
        // Past ours, with objects that came through ours; what it changed is seen.
        if name != NAMES[0] {
            for line in [
                "vendor: normalized, mode 1, arguments 204, epsilon 1e-05",
                "vendor: miopenFutureShrink",
                "output 2 32 6 48",
                "vectorised: status 6",
            ] {
                assert!(text.lines().any(|found| found == line), "{name}: {line}: {text}\n{log}");
            }
        }
    }
}

#[test]
fn either_can_be_forced() {
    for name in NAMES {
        let vendor = stack(name).run("vendor");
        let text = &vendor.stdout;
        for theirs in ["workspace of the vendor", "output 777", "TRAINING"] {
            assert!(text.contains(theirs), "{name}: {text}");
        }
        let other = stack(name).run("nonsense");
        assert!(other.stderr.contains("WAVE32_ROUTE=nonsense"), "{}", other.stderr);
        assert!(other.stdout.contains("workspace of wave32"), "{}", other.stdout);
    }
    // Without a vendor's library in reach of the client, as it would be where none is installed.
    let alone = stack(NAMES[0]);
    std::fs::remove_file(alone.folder.path().join(NAMES[0])).unwrap();
    for route in ["ours", "", "vendor"] {
        let ended = alone.run(route);
        let text = &ended.stdout;
        assert!(
            text.contains("version 3.3.0") && text.contains("workspace of wave32"),
            "{text}\n{}",
            ended.stderr
        );
        assert!(!text.contains("vendor: "), "{text}");
    }
}

/// A table of the probe's for the stand-ins, with one row that is safe; `change` spoils one thing.
fn table(stack: &Stack, change: (&str, &str)) {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let library = stack.folder.path().canonicalize().unwrap().join("libMIOpen.so");
    let line = "MIOpenDriver conv -n 2 -c 16 -H 48 -W 48 -k 32 -y 3 -x 3 -p 1 -q 1 -F 1";
    let line = wave32_problem::parse_line(line).unwrap().remove(0).to_string();
    let table = serde_json::json!({
        "format": 1,
        "identity": {
            "card": "Stand-in RX 5600 XT", "target": "gfx1010", "pci": "FFFF:FF:1F.0", "miopen": "2.20.7",
            "hip": "5.2.21153", "kernel": kernel.trim(), "library": library,
        },
        "rows": [{
            "problem": line, "solver": "ConvBinWinogradRxS", "id": 15, "verdict": "works", "worst": "works", "detail": "",
            "ms": 1e-6, "error": null, "bound": null, "deterministic": true, "algorithm": 3, "workspace_bytes": 64,
            "pieces": 1, "when": 1,
        }],
    });
    let text = table.to_string();
    assert!(text.contains(change.0), "{text}");
    let folder = stack.folder.path().join("state/wave32/probe/tables");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("any.json"), text.replace(change.0, change.1)).unwrap();
}

#[test]
fn a_proven_solver_of_the_vendors_is_taken_where_the_probe_is_to_say() {
    let stack = stack("libMIOpen.so");
    table(&stack, ("", ""));
    let ended = stack.run("probe");
    let (text, log) = (&ended.stdout, &ended.stderr);
    if log.contains("no kernels for gfx1010 in this build") {
        eprintln!("skipped: built with WAVE32_GFX_TARGETS=none");
        return;
    }
    assert!(!text.contains("size: status"), "{text}\n{log}");
    for line in [
        "found algorithm 3, 64 bytes",
        "Find 2.0: wave32's alone",
        "vendor: solution 15 on 0x2000 0x1000 0x3000, pads 1 1, groups 1, workspace 0x9000 64, filters 32",
        "passed",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}\n{log}");
    }
    assert!(log.contains("-c 16 -H 48 -W 48 -k 32") && log.contains("vendor ConvBinWinogradRxS"), "{log}");
    assert!(!stack.run("").stdout.contains("solution 15"), "not asked for");
    for change in [
        ("2.20.7", "2.20.8"),
        ("FFFF:FF:1F.0", "FFFF:FF:1F.1"),
        ("gfx1010", "gfx1030"),
        ("5.2.21153", "5.2.21154"),
        ("\"worst\":\"works\"", "\"worst\":\"hang\""),
        ("\"format\":1", "\"format\":2"),
    ] {
        table(&stack, change);
        let ended = stack.run("probe");
        assert!(!ended.stdout.contains("solution 15"), "{change:?}: {}", ended.stdout);
        assert!(ended.stdout.ends_with("passed\n"), "{change:?}: {}\n{}", ended.stdout, ended.stderr);
    }
}

#[test]
fn the_note_tells_whose_it_is() {
    let own = wave32_host::own::at(library()).unwrap();
    assert_eq!(
        (own.name.as_str(), own.version.as_str(), own.whole),
        ("libMIOpen", env!("CARGO_PKG_VERSION"), true)
    );
}
