//! `wave32 explain --model`.

use std::process::Command;

const LINE: &str = "MIOpenDriver conv -n 1 -c 16 -H 16 -W 16 -k 16 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1";

#[test]
fn a_plan_is_modelled_or_it_says_what_the_build_lacks() {
    let run = |extra: &[&str]| {
        let args = ["explain", LINE, "--model", "--card", "rx5600xt"];
        Command::new(env!("CARGO_BIN_EXE_wave32")).args(args).args(extra).output().expect("wave32 runs")
    };
    let output = run(&["--json"]);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("WAVE32_GFX_TARGETS"), "{errors}");
        return;
    }
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let modelled = &value[0]["modelled"];
    let seconds = modelled["seconds"].as_f64().expect("a time");
    // More than its launches cost by themselves, less than a thousand times the quick model's.
    let between = modelled["between"].as_f64().expect("a time");
    assert!(seconds > between && seconds < 0.05, "{modelled}");
    assert!(!modelled["launches"].as_array().expect("launches").is_empty());
    let text = String::from_utf8(run(&[]).stdout).expect("text");
    assert!(text.contains("nothing was measured") && text.contains("bound by"), "{text}");
}
