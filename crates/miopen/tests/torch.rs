//! PyTorch's calls of MIOpen, replayed call for call by `c/torch_replay.c` on the strict virtual card: find, benchmark,
//! deterministic and immediate mode of three generations of PyTorch, every number format and memory format that it uses.

mod card;

use card::{DEADLINE, launcher, library, list, on_card_within, program};
use std::time::Duration;

/// Each row of options on the list; all have to pass.
fn replay(layers: &str, rows: &[&str], deadline: Duration) {
    let Some(launcher) = launcher() else { return };
    let (program, layers) = (program("torch_replay"), list(layers));
    for row in rows {
        let mut args = vec![layers.to_str().unwrap()];
        args.extend(row.split_whitespace());
        eprintln!("{row}");
        on_card_within(&launcher, &program, &args, deadline).clean();
    }
}

#[test]
fn every_kind_of_convolution_as_each_generation_of_pytorch_asks_for_it() {
    replay(
        "kinds.txt",
        &[
            "--torch 1.12",
            "--torch 1.12 --deterministic --own-stream",
            "--torch 1.12 --bias",
            "--torch 2.2 --benchmark --deterministic",
            "--torch 2.9 --benchmark --channels-last",
            "--torch 2.9 --immediate --oom",
            "--torch 2.9 --oom --own-stream",
        ],
        DEADLINE,
    );
}

#[test]
fn every_kind_in_halves() {
    replay(
        "kinds.txt",
        &[
            "--torch 1.12 --dtype f16",
            "--torch 2.9 --dtype f16 --immediate --channels-last",
            "--torch 2.2 --dtype bf16 --deterministic",
            "--torch 2.9 --dtype bf16 --benchmark --channels-last --own-stream",
        ],
        DEADLINE,
    );
}

/// ComfyUI leaves MIOpen on for RDNA1 and RDNA2, and elsewhere with `COMFYUI_ENABLE_MIOPEN=1`.
#[test]
fn audio_models_in_halves_as_comfyui_runs_them() {
    replay(
        "audio.txt",
        &[
            "--torch 2.2 --dtype f16",
            "--torch 2.2 --dtype f16 --oom",
            "--torch 2.9 --dtype f16 --own-stream",
            "--torch 2.9 --dtype f16 --immediate --deterministic",
            "--torch 2.9 --dtype bf16 --benchmark",
        ],
        DEADLINE,
    );
}

/// With a quarter of its channels, an eighth in halves: whole, it takes the strict card many minutes (`make miopen-resnet`
/// has that).
#[test]
fn resnet_18_forward_and_backward() {
    replay(
        "resnet18.txt",
        &[
            "--torch 2.9 --divide 4 --once",
            "--torch 1.12 --deterministic --dtype f16 --divide 8 --once",
            "--torch 2.9 --benchmark --channels-last --dtype bf16 --divide 8 --once",
        ],
        DEADLINE,
    );
}

#[test]
#[ignore = "takes long: `make miopen-resnet`"]
fn resnet_18_whole() {
    replay("resnet18.txt", &["--torch 2.9 --once"], Duration::from_secs(4 * 3600));
}

#[test]
fn clients_link_to_the_soname_and_its_symbol_version() {
    let Some(_) = launcher() else { return };
    let nm = std::process::Command::new("nm")
        .args(["-D", "--undefined-only"])
        .arg(program("torch_replay"))
        .output();
    let text = String::from_utf8(nm.unwrap().stdout).unwrap();
    let imports: Vec<&str> = text.split_whitespace().filter(|word| word.starts_with("miopen")).collect();
    assert!(imports.len() > 40, "{imports:?}");
    assert!(
        imports.iter().all(|name| name.ends_with("@MIOPEN_HIP_1")),
        "{imports:?} of {}",
        library().display()
    );
}
