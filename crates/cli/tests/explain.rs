//! `wave32 explain`: its cards, and `--model`.

use std::path::{Path, PathBuf};
use std::process::Command;
use wave32_solve::{DeviceCaps, Policy};

const LINE: &str = "MIOpenDriver conv -n 1 -c 16 -H 16 -W 16 -k 16 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1";

#[test]
fn a_plan_is_modelled_or_it_says_what_the_build_lacks() {
    let run = |extra: &[&str]| {
        let args = ["explain", LINE, "--model", "--card", "rx5600xt"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_wave32"));
        command.args(args).args(extra).env("WAVE32_VGPU", "/no/launcher").output().expect("wave32 runs")
    };
    let output = run(&["--json"]);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("WAVE32_GFX_TARGETS"), "{errors}");
        return;
    }
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let modelled = &value[0]["modelled"]["llvm"];
    let missing = value[0]["modelled"]["aco"]["missing"].as_str();
    assert_eq!(missing.map(|why| why.contains("cannot start /no/launcher")), Some(true), "{value}");
    let [low, high] = ["low", "high"].map(|end| modelled["time_ms"][end].as_f64().expect("a time"));
    // More than its launches cost by themselves, less than a thousand times the quick model's.
    let between = modelled["between_us"].as_f64().expect("a time") * 1e-3;
    assert!(low > between && high > low && high < 50.0, "{modelled}");
    assert!(!modelled["launches"].as_array().expect("launches").is_empty());
    let text = String::from_utf8(run(&[]).stdout).expect("text");
    assert!(text.contains("nothing was measured") && text.contains("bound by"), "{text}");
    assert!(text.contains("ACO's code (Vulkan route): not modelled, cannot start"), "{text}");
}

#[test]
fn code_of_both_compilers_is_modelled() {
    let Some(launcher) = launcher() else {
        assert!(std::env::var_os("WAVE32_REQUIRE_VGPU").is_none(), "no virtual card (`make vgpu`)");
        eprintln!("skipped: no virtual card (`make vgpu`)");
        return;
    };
    // All three passes, each with a plan that is named: a route would choose one of its own.
    for (pass, config) in [("-F 1", "g64x64/9"), ("-F 2", "g64x64/9"), ("-F 4", "g64x32/8")] {
        let line = LINE.replace("-F 1", pass);
        let mut command = Command::new(env!("CARGO_BIN_EXE_wave32"));
        command.env("WAVE32_VGPU", &launcher).env("WAVE32_CONFIG", config);
        command.args(["explain", &line, "--model", "--card", "rx5700xt", "--solver", "igemm", "--json"]);
        let output = command.output().expect("wave32 runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let [pass] = value.as_array().expect("a list").as_slice() else { panic!("{value:#}") };
        let [llvm, aco] = ["llvm", "aco"].map(|compiler| &pass["modelled"][compiler]);
        let kernels = |time: &serde_json::Value| {
            let launches = time["launches"].as_array().unwrap_or_else(|| panic!("{pass:#}"));
            launches
                .iter()
                .map(|launch| (launch["kernel"].clone(), launch["groups"].clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(kernels(llvm), kernels(aco));
        assert!(aco["compiler"].as_str().is_some_and(|name| name.contains("radv")), "{aco}");
        for end in ["low", "high"] {
            let [llvm, aco] = [llvm, aco].map(|time| time["time_ms"][end].as_f64().expect("a time"));
            assert!((0.3..6.0).contains(&(aco / llvm)), "{end}: {pass:#}");
        }
    }
}

fn explained(mut command: Command, args: &[&str]) -> Result<serde_json::Value, String> {
    let output = command.args(["explain", LINE, "--json"]).args(args).output().expect("it runs");
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).expect("JSON")),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[test]
fn a_name_is_one_card_or_an_error_that_lists_the_cards() {
    let on = |card: &str| {
        let value = explained(Command::new(env!("CARGO_BIN_EXE_wave32")), &["--card", card])?;
        assert_eq!(value.as_array().map(Vec::len), Some(1), "{card}");
        Ok::<_, String>(value[0]["on"].as_str().expect("a name").to_owned())
    };
    assert_eq!(on("RX 5700").as_deref(), Ok("RX 5700 (modelled)"), "not the XT");
    assert_eq!(on("rx5600xt").as_deref(), Ok("RX 5600 XT (modelled)"));
    let several = on("5500").expect_err("several cards have it in their names");
    for name in ["RX 5500 XT", "RX 5500M", "Pro W5500"] {
        assert!(several.contains(name), "{several}");
    }
    let unknown = on("RX 480").expect_err("no card of RDNA");
    assert!(unknown.contains("RX 5600 XT") && unknown.contains("RX 9070 XT"), "{unknown}");
}

/// The launcher of the virtual card whose library `WAVE32_VGPU_LIB` names, where HIP is installed.
fn launcher() -> Option<PathBuf> {
    let library = PathBuf::from(std::env::var_os("WAVE32_VGPU_LIB")?);
    let hip = Command::new("cc").arg("-print-file-name=libamdhip64.so").output().ok()?;
    let hip = String::from_utf8(hip.stdout).ok()?;
    Path::new(hip.trim()).is_absolute().then_some(())?;
    library.parent()?.parent().map(|folder| folder.join("wave32-vgpu")).filter(|path| path.is_file())
}

#[test]
fn the_plan_that_is_explained_for_a_card_is_the_one_that_it_runs() {
    let Some(launcher) = launcher() else {
        assert!(
            std::env::var_os("WAVE32_REQUIRE_VGPU").is_none(),
            "no virtual card (`make vgpu`), or no HIP"
        );
        eprintln!("skipped: no virtual card (`make vgpu`), or no HIP");
        return;
    };
    let problem = &wave32_problem::parse_line(LINE).expect("a line")[0];
    for card in ["rx5600xt", "rx5600xt14gbps", "rx5700", "rx5700xt", "rx5500xt4gb", "prov520"] {
        let on_virtual_card = |device: &str| {
            let mut command = Command::new(&launcher);
            command.args(["run", "--card", card, "--", env!("CARGO_BIN_EXE_wave32")]);
            command.env_remove("VK_DRIVER_FILES").env_remove("VK_ICD_FILENAMES");
            explained(command, &["--device", device])
        };
        let explanation = |value: Result<serde_json::Value, String>| {
            let mut value = value.unwrap_or_else(|error| panic!("{card}: {error}"))[0]["explanation"].take();
            // RADV told 65535 before Mesa 23, then 4294967295; a dispatch of HIP counts work items: 4194303 groups of 1024.
            value["caps"]["max_groups"][0].take();
            value
        };
        // Capabilities, solver, config, refusals and the modelled time.
        let named = explained(Command::new(env!("CARGO_BIN_EXE_wave32")), &["--card", card]);
        assert_eq!(explanation(on_virtual_card("vulkan")), explanation(named), "{card}");

        // HIP runs LLVM's code.
        let board = wave32_cards::by_id(card).expect("a card");
        let caps = DeviceCaps::of(board).by_hip(board.target().name);
        let llvms = wave32_solve::explain(problem, &caps, &Policy::default());
        // Through text, as the command's.
        let text = serde_json::to_string(&[serde_json::json!({ "explanation": llvms })]).expect("JSON");
        let llvms = Ok(serde_json::from_str(&text).expect("JSON"));
        assert_eq!(explanation(on_virtual_card("hip:0")), explanation(llvms), "{card}");
    }
}
