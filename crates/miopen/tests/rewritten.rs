//! Solvers of the vendor's that work on a rewritten problem only: `WAVE32_ROUTE=probe` gives them that, and the result is
//! that of the problem. The vendor is a stand-in that computes and that aborts where it is given the problem itself. PyTorch's
//! calls are replayed on the strict virtual card (`torch_replay.c`), and each result is held against a loop in f64.

mod card;

use card::{DEADLINE, Run, launcher, library, program, run};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use wave32_problem::{ConvProblem, ConvSpec, Direction, Layout};

/// Ours as it is installed, the stand-in beside it under the name that is kept, and the probe's tables.
struct Installed {
    folder: tempfile::TempDir,
    identity: Value,
}

fn installed(launcher: &Path) -> Installed {
    let folder = tempfile::tempdir().unwrap();
    let ours = folder.path().join("libMIOpen.so.1");
    std::fs::copy(library(), &ours).unwrap();
    let vendor = wave32_host::own::kept_name(&ours);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/vendor_picky.c");
    let mut compile = Command::new("cc");
    compile
        .args(["-std=gnu17", "-O2", "-fPIC", "-shared", "-w", "-o"])
        .arg(&vendor)
        .arg(source)
        .args(card::hip());
    let ended = run(compile);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let told = Run::of(launcher, &program("identity"), &[], &[], DEADLINE).ended;
    let lines: Vec<&str> = told.stdout.lines().collect();
    let [card, pci, hip] = lines.as_slice() else { panic!("{told:?}") };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let identity = json!({
        "card": card, "target": "gfx1010", "pci": pci, "miopen": "2.20.7", "hip": hip, "kernel": kernel.trim(),
        "library": vendor.canonicalize().unwrap(),
    });
    Installed { folder, identity }
}

impl Installed {
    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The probe's table: problem, solver, rewriting.
    fn table(&self, rows: &[(ConvProblem, u64, Value)]) {
        let row = |(problem, id, rewrite): &(ConvProblem, u64, Value)| {
            json!({
                "problem": problem.to_string(), "solver": "Picky", "id": id, "rewrite": rewrite, "verdict": "works",
                "worst": "works", "detail": "", "ms": 1e-6, "error": null, "bound": null, "deterministic": true,
                "algorithm": 3, "workspace_bytes": 1000, "pieces": 1, "when": 1,
            })
        };
        let table = json!({
            "format": 1, "identity": self.identity, "rows": rows.iter().map(row).collect::<Vec<_>>(),
        });
        let folder = self.state().join("wave32/probe/tables");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("any.json"), table.to_string()).unwrap();
    }

    /// The vendor's calls when these layers are replayed; every result was right.
    fn replay(
        &self,
        launcher: &Path,
        layers: &str,
        options: &str,
        more: &[(&'static str, &OsStr)],
    ) -> Vec<String> {
        let list = self.folder.path().join("layers.txt");
        std::fs::write(&list, layers).unwrap();
        let mut args = vec![list.to_str().unwrap()];
        args.extend(options.split_whitespace());
        let (folder, state) = (self.folder.path().as_os_str(), self.state());
        let variables = [
            ("LD_LIBRARY_PATH", folder),
            ("XDG_STATE_HOME", state.as_os_str()),
            ("WAVE32_ROUTE", OsStr::new("probe")),
            ("WAVE32_LOG", OsStr::new("1")),
        ];
        let variables = [&variables, more].concat();
        let replayed = Run::of(launcher, &program("torch_replay"), &args, &variables, DEADLINE);
        replayed.clean();
        let lines = replayed.ended.stdout.lines().filter(|line| line.starts_with("vendor: "));
        let mut lines: Vec<String> = lines.map(String::from).collect();
        lines.dedup();
        assert!(!lines.is_empty(), "{}", replayed.ended.stderr);
        lines
    }
}

const ONE: &str = "conv 2 128 8 16 64 5 5 2 2 1 1 1 1 1\n";
const PAIR: &str = "conv 2 256 8 16 128 5 5 2 2 1 1 1 1 2\n";

fn problem(direction: Direction, layout: Layout, groups: i64) -> ConvProblem {
    let (c, k) = (128 * groups, 64 * groups);
    let base = ConvSpec { direction, layout, n: 2, c, h: 8, w: 16, k, r: 5, s: 5, ..ConvSpec::default() };
    ConvProblem::new(ConvSpec { pad: [2, 2], groups, ..base }).unwrap()
}

fn pad(groups: i64) -> Value {
    json!({"kind": "pad-channels", "c": 129 * groups, "k": 65 * groups})
}

#[test]
fn a_rewritten_problem_has_the_problems_result() {
    let Some(launcher) = launcher() else { return };
    let machine = installed(&launcher);
    let batch = json!({"kind": "batch", "n": 1});
    let [forward, data, weights] = Direction::ALL;
    for (layout, option) in [
        (Layout::Nchw, "--torch 2.2 --once"),
        (Layout::Nhwc, "--torch 2.9 --immediate --channels-last --once"),
    ] {
        machine.table(&[
            (problem(forward, layout, 1), 1, json!([pad(1)])),
            (problem(data, layout, 1), 2, json!([batch])),
            (problem(weights, layout, 1), 1, json!([pad(1)])),
            (problem(forward, layout, 2), 3, json!([pad(2), batch])),
            (problem(data, layout, 2), 1, json!([pad(2)])),
        ]);
        let calls = machine.replay(&launcher, &format!("{ONE}{PAIR}"), option, &[]);
        assert_eq!(
            calls,
            [
                "vendor: Forward by 1: 2 images of 8x16, 129 to 65 channels",
                "vendor: Forward by 3: 1 images of 8x16, 258 to 130 channels",
                "vendor: BackwardData by 1: 2 images of 8x16, 258 to 130 channels",
                "vendor: BackwardData by 2: 1 images of 8x16, 128 to 64 channels",
                "vendor: BackwardWeights by 1: 2 images of 8x16, 129 to 65 channels",
            ],
            "{option}"
        );
    }
}

/// An image wider than a tile: two tiles of 32 columns, 28 results of each. Weights' gradients are sums of pieces.
#[test]
fn tiles_make_the_image() {
    let Some(launcher) = launcher() else { return };
    let machine = installed(&launcher);
    let (batch, tiles) = (json!({"kind": "batch", "n": 1}), json!({"kind": "tiles", "h": 32, "w": 32}));
    let pad = json!({"kind": "pad-channels", "c": 33, "k": 33});
    for (layout, option, rows, expected) in [
        (
            Layout::Nchw,
            "--torch 2.2 --once",
            [(4, json!([tiles])), (5, json!([pad, tiles])), (6, json!([tiles, batch]))],
            [
                "vendor: Forward by 4: 2 images of 20x32, 32 to 32 channels",
                "vendor: BackwardData by 5: 2 images of 24x32, 33 to 33 channels",
                "vendor: BackwardWeights by 6: 1 images of 20x32, 32 to 32 channels",
            ],
        ),
        (
            Layout::Nhwc,
            "--torch 2.9 --immediate --channels-last --once",
            [(7, json!([pad, tiles, batch])), (4, json!([tiles])), (2, json!([batch]))],
            [
                "vendor: Forward by 7: 1 images of 20x32, 33 to 33 channels",
                "vendor: BackwardData by 4: 2 images of 24x32, 32 to 32 channels",
                "vendor: BackwardWeights by 2: 1 images of 16x40, 32 to 32 channels",
            ],
        ),
    ] {
        let problem = |direction| {
            let spec = problem(direction, layout, 1).spec().clone();
            ConvProblem::new(ConvSpec { c: 32, k: 32, h: 16, w: 40, ..spec }).unwrap()
        };
        let rows = Direction::ALL.into_iter().zip(rows);
        machine.table(
            &rows.map(|(direction, (id, rewrite))| (problem(direction), id, rewrite)).collect::<Vec<_>>(),
        );
        // Against a solver of ours that is slow: its best would beat the vendor's pieces on tensors so small, and the virtual card
        // takes a minute for larger ones.
        let slow = [("WAVE32_SOLVER", OsStr::new("im2col_gemm"))];
        let calls = machine.replay(&launcher, "conv 2 32 16 40 32 5 5 2 2 1 1 1 1 1\n", option, &slow);
        assert_eq!(calls, expected, "{option}");
    }
}

/// No row makes the vendor compute the problem as it is where its rewrite is not understood or does not fit.
#[test]
fn what_is_not_done_is_computed_by_ours() {
    let Some(launcher) = launcher() else { return };
    let machine = installed(&launcher);
    let forward = |id, rewrite| (problem(Direction::Forward, Layout::Nchw, 1), id, rewrite);
    let tiles = json!({"kind": "tiles", "h": 32, "w": 32});
    // The one that can be done is there to show that the table is read; 9 aborts.
    machine.table(&[
        forward(9, json!([tiles, pad(1)])),
        forward(9, json!([{"kind": "tiles", "h": 4, "w": 4}])),
        forward(9, json!([{"kind": "pad-channels", "c": 100, "k": 65}])),
        (problem(Direction::BackwardData, Layout::Nchw, 1), 1, json!([pad(1)])),
    ]);
    let calls = machine.replay(&launcher, ONE, "--torch 2.2 --once", &[]);
    assert_eq!(calls, ["vendor: BackwardData by 1: 2 images of 8x16, 129 to 65 channels"]);
}
