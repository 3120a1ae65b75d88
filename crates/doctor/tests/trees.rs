//! Recorded machines and what the doctor says of them, word for word.
//!
//! Each folder of `trees` has a README on its origin, the machine (`tree.txt`, see `common`), and the report as text
//! and as JSON. `WAVE32_BLESS=1` writes the reports instead.
#![cfg(unix)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use wave32_cards::sysfs::{Files as _, KfdNode};
use wave32_doctor::facts::{Device, Facts, Gpu, Kfd, Torch, Variable};
use wave32_doctor::finding::Severity;
use wave32_doctor::report;
use wave32_doctor::rules;
use wave32_doctor::scan::{Options, scan};
use wave32_doctor::system::System;
use wave32_doctor::verdict::{Diagnosis, State};
use wave32_profile::Route;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees")
}

fn diagnose(name: &str) -> Diagnosis {
    let root = tempfile::tempdir().unwrap();
    common::build(root.path(), &fs::read_to_string(folder().join(name).join("tree.txt")).unwrap());
    let system = System::at(root.path()).unwrap();
    // Without limits of time: a busy machine gives the same report.
    Diagnosis::of(scan(&system, &Options { thorough: true, ..Options::default() }))
}

fn names() -> Vec<String> {
    let entries = fs::read_dir(folder()).unwrap().map(|e| e.unwrap());
    let mut names: Vec<String> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn reports_are_as_recorded() {
    let names = names();
    assert!(names.len() >= 12, "{names:?}");
    let bless = std::env::var_os("WAVE32_BLESS").is_some();
    let mut wrong = Vec::new();
    for name in names {
        let folder = folder().join(&name);
        assert!(folder.join("README.md").is_file(), "{name}: a README says where it is from");
        let diagnosis = diagnose(&name);
        let json = serde_json::to_string_pretty(&diagnosis).unwrap() + "\n";
        for (file, now) in [("report.txt", report::text(&diagnosis)), ("report.json", json)] {
            let path = folder.join(file);
            if bless {
                fs::write(&path, &now).unwrap();
            } else if fs::read_to_string(&path).unwrap_or_default() != now {
                wrong.push(format!("{}; it is now:\n{now}", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nif the change is meant: WAVE32_BLESS=1 cargo test -p wave32-doctor",
        wrong.join("\n")
    );
}

/// What matters of each machine, so that a blessing cannot lose it: name, states of rocm and vulkan, best route, rules that fire, whether nothing is wrong.
type Expected = (&'static str, [State; 2], Route, &'static [&'static str], bool);

#[test]
fn verdicts_are_what_a_friend_would_say() {
    let table: &[Expected] = &[
        (
            "backup-trap",
            [State::Broken, State::Ready],
            Route::Vulkan,
            &["library-backup", "patched-library", "no-torch"],
            false,
        ),
        ("clean-native-debian", [State::Ready, State::Ready], Route::Vulkan, &["rdna1-miopen"], true),
        (
            "container-without-kfd",
            [State::Broken, State::Broken],
            Route::Cpu,
            &["container-without-kfd"],
            false,
        ),
        ("half-applied", [State::Broken, State::Broken], Route::Cpu, &["half-applied"], false),
        ("no-atomics", [State::Broken, State::Ready], Route::Vulkan, &["not-in-kfd"], false),
        ("no-gpu", [State::Absent, State::Absent], Route::Cpu, &["no-gpu"], true),
        (
            "rocm52-torch113",
            [State::Risky, State::Ready],
            Route::Vulkan,
            &["torch-spoofed", "rocblas-spoofed", "spoof-across-families", "miopen-solvers-off"],
            false,
        ),
        (
            "rocm52-torch222",
            [State::Risky, State::Ready],
            Route::Vulkan,
            &["torch-spoofed", "rocblas-spoofed", "spoof-across-families", "miopen-solvers-off"],
            false,
        ),
        (
            "rocm57-spoofed",
            [State::Risky, State::Ready],
            Route::Vulkan,
            &[
                "spoof-across-families",
                "hip-unknown-variable",
                "miopen-full-find",
                "hsa-use-svm",
                "hsa-xnack",
                "miopen-quiet",
                "stale-cache",
            ],
            false,
        ),
        (
            "rocm6-patched",
            [State::Broken, State::Risky],
            Route::Cpu,
            &[
                "linked-database",
                "patched-library",
                "preload-shim",
                "kernel-module",
                "miopen-unknown-variable",
                "miopen-search",
                "miopen-device-arch",
                "side-install",
                "library-backup",
                "queue-preemption",
            ],
            false,
        ),
        ("rx5500xt", [State::Broken, State::Ready], Route::Vulkan, &["no-torch", "kfd-permission"], false),
        ("rx6600", [State::Ready, State::Ready], Route::Rocm, &["spoof-within-family"], true),
        (
            "settings-everywhere",
            [State::Broken, State::Ready],
            Route::Vulkan,
            &[
                "no-pcie-atomics",
                "driver-sources",
                "miopen-find-value",
                "miopen-search",
                "miopen-cache-off",
                "sdma-off",
                "spoof-within-family",
                "compute-parameters",
            ],
            false,
        ),
        ("therock-venv", [State::Ready, State::Ready], Route::Vulkan, &["rdna1-miopen"], true),
        (
            "two-families",
            [State::Risky, State::Ready],
            Route::Vulkan,
            &["spoof-across-families", "torch-spoofed"],
            false,
        ),
        ("wsl2", [State::Absent, State::Absent], Route::Cpu, &["wsl-rocm", "wsl-no-vulkan"], true),
        ("broken-vulkan", [State::Absent, State::Broken], Route::Cpu, &["vulkan-loader-broken"], false),
    ];
    for (name, states, best, rules, well) in table {
        let diagnosis = diagnose(name);
        let report = report::text(&diagnosis);
        let found: Vec<&str> = diagnosis.findings.iter().map(|f| f.rule).collect();
        for rule in *rules {
            assert!(found.contains(rule), "{name} lacks {rule}\n{report}");
        }
        let now = [diagnosis.verdicts[0].state, diagnosis.verdicts[1].state];
        assert_eq!(now, *states, "{name}\n{report}");
        assert_eq!(diagnosis.best, *best, "{name}\n{report}");
        assert_eq!(diagnosis.is_well(), *well, "{name}\n{report}");
        assert_eq!(diagnosis.verdicts[2].state, State::Ready, "the CPU always works");
    }
}

#[test]
fn rules_have_names_sources_and_routes() {
    let mut ids: Vec<&str> = rules::table().map(|r| r.id).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "a name twice");
    for rule in rules::table() {
        assert!(rule.source.starts_with("https://") || rule.source.starts_with("docs/"), "{}", rule.id);
        assert!(!rule.routes.is_empty() && rule.meaning.ends_with(['.', ')']), "{}", rule.id);
        assert!(!rule.routes.contains(&Route::Cpu), "{}: nothing here keeps the CPU from working", rule.id);
    }
}

/// Facts with these variables on a gfx1010, and the rules that fire.
fn fired(variables: &[(&str, &str)]) -> Vec<&'static str> {
    let gpu =
        Gpu { vendor: 0x1002, target: Some("gfx1010".into()), target_from: Some("pci"), ..Gpu::default() };
    let variable = |(name, value): &(&str, &str)| Variable {
        name: name.to_string(),
        now: Some(value.to_string()),
        ..Variable::default()
    };
    let facts =
        Facts { gpus: vec![gpu], variables: variables.iter().map(variable).collect(), ..Facts::default() };
    rules::findings(&facts).iter().map(|f| f.rule).collect()
}

#[test]
fn values_mean_what_the_sources_say() {
    let table: &[(&str, &str, Option<&str>)] = &[
        ("HSA_OVERRIDE_GFX_VERSION", "10.3.0", Some("spoof-across-families")),
        ("HSA_OVERRIDE_GFX_VERSION_1", "10.3.0", Some("spoof-across-families")),
        ("HSA_OVERRIDE_GFX_VERSION", "9.0.0", Some("spoof-across-families")),
        ("HSA_OVERRIDE_GFX_VERSION", "10.1.2", Some("spoof-within-family")),
        ("HSA_OVERRIDE_GFX_VERSION", "10.1.0", None),
        ("HSA_OVERRIDE_GFX_VERSION", "gfx1030", Some("spoof-malformed")),
        ("MIOPEN_FIND_MODE", "1", Some("miopen-full-find")),
        ("MIOPEN_FIND_MODE", "normal", Some("miopen-full-find")),
        ("MIOPEN_FIND_MODE", "2", None),
        ("MIOPEN_FIND_MODE", "DYNAMIC_HYBRID", None),
        ("MIOPEN_FIND_MODE", "IMMEDIATE", Some("miopen-find-value")),
        ("MIOPEN_FIND_ENFORCE", "3", Some("miopen-search")),
        ("MIOPEN_FIND_ENFORCE", "search", Some("miopen-search")),
        ("MIOPEN_FIND_ENFORCE", "SEARCH_DB_UPDATE", Some("miopen-search")),
        ("MIOPEN_FIND_ENFORCE", "NONE", None),
        ("MIOPEN_FIND_ENFORCE", "1", None),
        ("MIOPEN_FIND_ENFORCE", "ALWAYS", Some("miopen-find-value")),
        ("MIOPEN_DEVICE_ARCH", "gfx1030", Some("miopen-device-arch")),
        ("MIOPEN_DISABLE_CACHE", "0", None),
        ("MIOPEN_DISABLE_CACHE", "1", Some("miopen-cache-off")),
        ("MIOPEN_DEBUG_CONV_WINOGRAD", "0", Some("miopen-solvers-off")),
        ("MIOPEN_DEBUG_CONV_GEMM", "1", None),
        ("MIOPEN_WORKSPACE_LIMIT_MB", "4096", Some("miopen-unknown-variable")),
        ("MIOPEN_DISABLE_SOLVERS", "x", Some("miopen-unknown-variable")),
        ("HIP_FORCE_COARSE_GRAIN", "1", Some("hip-unknown-variable")),
        ("HIP_VISIBLE_DEVICES", "0", None),
        ("HIP_VISIBLE_DEVICES", "-1", Some("gpu-hidden")),
        ("CUDA_VISIBLE_DEVICES", "", Some("gpu-hidden")),
        ("PYTORCH_ROCM_ARCH", "gfx1030;gfx1100", Some("pytorch-rocm-arch")),
        ("PYTORCH_ROCM_ARCH", "gfx1010;gfx1030", None),
        ("MIOPEN_DEBUG_FIND_ONLY_SOLVER", "ConvDirectNaiveConvFwd", Some("miopen-only-solver")),
        ("MIOPEN_DEBUG_FIND_ONLY_SOLVER", "", None),
        ("MIOPEN_ENABLE_LOGGING", "1", Some("miopen-logging")),
        ("MIOPEN_ENABLE_LOGGING", "0", None),
        ("MIOPEN_LOG_LEVEL", "6", Some("miopen-logging")),
        ("MIOPEN_LOG_LEVEL", "3", Some("miopen-quiet")),
        ("MIOPEN_LOG_LEVEL", "4", None),
        ("MIOPEN_LOG_LEVEL", "0", None),
        ("HSA_XNACK", "0", Some("hsa-xnack")),
        ("HSA_XNACK", "1", Some("hsa-xnack")),
        ("MIOPEN_USER_DB_PATH", "/home/ada/.config/miopen", Some("miopen-default-folder")),
        ("MIOPEN_USER_DB_PATH", "~/.config/miopen/", Some("miopen-default-folder")),
        ("MIOPEN_USER_DB_PATH", "/scratch/miopen", None),
        ("USE_ROCM", "1", Some("pytorch-build-variable")),
        ("USE_MIOPEN", "1", Some("pytorch-build-variable")),
        ("HSA_ENABLE_SDMA", "0", Some("sdma-off")),
        ("HSA_USE_SVM", "0", Some("hsa-use-svm")),
    ];
    let base = fired(&[]);
    for (name, value, rule) in table {
        let new: Vec<&str> = fired(&[(name, value)]).into_iter().filter(|r| !base.contains(r)).collect();
        assert_eq!(new, rule.iter().copied().collect::<Vec<_>>(), "{name}={value}");
    }
    let all =
        ["DIRECT", "FFT", "GEMM", "IMPLICIT_GEMM", "WINOGRAD"].map(|f| format!("MIOPEN_DEBUG_CONV_{f}"));
    let all: Vec<(&str, &str)> = all.iter().map(|name| (name.as_str(), "0")).collect();
    assert!(fired(&all).contains(&"miopen-no-algorithm"));
    // Of a card that is not RDNA nothing is said.
    let old = Gpu { vendor: 0x1002, target: Some("gfx90a".into()), ..Gpu::default() };
    let xnack = Variable { name: "HSA_XNACK".into(), now: Some("1".into()), ..Variable::default() };
    let facts = Facts { gpus: vec![old], variables: vec![xnack], ..Facts::default() };
    assert!(rules::findings(&facts).iter().all(|f| f.rule != "hsa-xnack"));
}

/// A processor's own graphics beside a card: the card's route stands by the card.
#[test]
fn integrated_graphics_do_not_break_a_cards_route() {
    let gpu = |target: &str, address: &str| Gpu {
        vendor: 0x1002,
        target: Some(target.into()),
        driver: Some("amdgpu".into()),
        address: address.into(),
        ..Gpu::default()
    };
    let node = |address: &str| KfdNode { address: address.into(), ..KfdNode::default() };
    let torch = Torch {
        hip: Some("7.0".into()),
        version: "2.10".into(),
        complete: true,
        targets: vec!["gfx1010".into()],
        ..Torch::default()
    };
    let device = |path: &str| Device {
        path: path.into(),
        mode: "666".into(),
        group: "render".into(),
        usable: Some(true),
    };
    let facts = Facts {
        pci_listed: true,
        gpus: vec![gpu("gfx1010", "0000:03:00.0"), gpu("gfx1036", "0000:0c:00.0")],
        kfd: Kfd { present: true, nodes: vec![node("0000:03:00.0"), node("0000:0c:00.0")] },
        devices: vec![device("/dev/kfd")],
        torches: vec![torch],
        ..Facts::default()
    };
    let both = Diagnosis::of(facts.clone());
    assert_eq!(both.verdicts[0].state, State::Ready, "{}", report::text(&both));
    assert!(both.findings.iter().any(|f| f.rule == "integrated-gpu"));
    assert!(both.native_pytorch.iter().all(|way| way.target == "gfx1010"));
    // Alone it counts.
    let alone = Facts { gpus: vec![gpu("gfx1036", "0000:0c:00.0")], ..facts };
    assert_eq!(Diagnosis::of(alone).verdicts[0].state, State::Broken);
}

#[test]
fn variables_with_other_entries_are_not_taken_out_whole() {
    use wave32_doctor::finding::Fix;
    let fix = |libraries: &str| {
        let root = tempfile::tempdir().unwrap();
        let tree = fs::read_to_string(folder().join("rocm6-patched/tree.txt")).unwrap();
        let set = "/opt/rocm-miopen-rdna1/lib:/opt/rocm/lib";
        assert!(tree.contains(set));
        common::build(root.path(), &tree.replace(set, libraries));
        let found = Diagnosis::of(scan(&System::at(root.path()).unwrap(), &Options::default())).findings;
        found.into_iter().find(|f| f.rule == "mixed-rocm").expect("mixed-rocm").fix
    };
    assert!(matches!(fix("/opt/rocm-6.2.4/lib"), Fix::UnsetVariable { .. }));
    assert!(matches!(fix("/opt/rocm/lib:/opt/tensorrt/lib"), Fix::Text { .. }));
}

#[test]
fn what_was_not_read_is_not_called_ready() {
    let gpu = Gpu {
        vendor: 0x1002,
        target: Some("gfx1010".into()),
        driver: Some("amdgpu".into()),
        ..Gpu::default()
    };
    let torch =
        |complete| Torch { hip: Some("6.2".into()), version: "2.10".into(), complete, ..Torch::default() };
    let rocm = |torch| {
        let device = Device {
            path: "/dev/kfd".into(),
            mode: "660".into(),
            group: "render".into(),
            usable: Some(true),
        };
        let facts = Facts {
            pci_listed: true,
            gpus: vec![gpu.clone()],
            devices: vec![device],
            torches: vec![torch],
            ..Facts::default()
        };
        Diagnosis::of(facts).verdicts[0].clone()
    };
    assert_eq!(rocm(torch(true)).state, State::Broken);
    let unread = rocm(torch(false));
    assert_eq!(unread.state, State::Risky);
    assert!(unread.next.contains("--thorough"));
}

/// docs/doctor.md has every rule, in the table's words.
#[test]
fn the_documentation_lists_every_rule() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let text = fs::read_to_string(&path).unwrap();
    let (head, _) = text.split_once("| rule |").expect("the table of rules");
    let mut want = format!("{head}| rule | severity | routes | meaning | source |\n|---|---|---|---|---|\n");
    for rule in rules::table() {
        let routes: Vec<&str> = rule.routes.iter().map(|r| r.name()).collect();
        let (severity, routes) = (rule.severity.name(), routes.join(", "));
        want += &format!("| `{}` | {severity} | {routes} | {} | {} |\n", rule.id, rule.meaning, rule.source);
    }
    if std::env::var_os("WAVE32_BLESS").is_some() {
        fs::write(&path, &want).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), want, "WAVE32_BLESS=1 writes it");
}

/// What Windows's subsystem for Linux lends decides which routes are there, and what is advised.
#[test]
fn a_backup_may_be_the_replacement() {
    let diagnosis = diagnose("backup-trap");
    let of = |name: &str| {
        let found =
            |f: &&wave32_doctor::finding::Finding| f.rule == "library-backup" && f.what.contains(name);
        diagnosis.findings.iter().find(found).unwrap_or_else(|| panic!("{name}"))
    };
    for (name, evidence) in [
        ("libhsa-runtime64.so.1.backup", "the original is in neither"),
        ("libMIOpen.so.1.0.60204.orig", "it is the file that package miopen-hip has"),
        ("librocblas.so.4.2.60204.old", "it is neither"),
        ("libamdhip64.so.6.bak", "nothing tells"),
    ] {
        assert!(of(name).evidence[0].contains(evidence), "{name}: {:?}", of(name).evidence);
    }
    let fix = serde_json::to_string(&of("libhsa").fix).unwrap();
    assert!(fix.contains("dpkg -V hsa-rocr") && fix.contains("--reinstall hsa-rocr"), "{fix}");
}

#[test]
fn wsl_in_its_kinds() {
    let tree = fs::read_to_string(folder().join("wsl2/tree.txt")).unwrap();
    let look = |tree: &str| {
        let root = tempfile::tempdir().unwrap();
        common::build(root.path(), tree);
        Diagnosis::of(scan(&System::at(root.path()).unwrap(), &Options::default()))
    };
    let states = |d: &Diagnosis| [d.verdicts[0].state, d.verdicts[1].state];
    let has = |d: &Diagnosis, rule: &str| d.findings.iter().any(|f| f.rule == rule);

    let both = "library /opt/rocm-6.2.4/lib/librocdxg.so.1\nlibrary /usr/lib/x86_64-linux-gnu/libvulkan_dzn.so\n\
        one /usr/share/vulkan/icd.d/dzn_icd.x86_64.json {\"ICD\": {\"library_path\": \"libvulkan_dzn.so\"}}\n";
    let lent = look(&format!("{tree}{both}"));
    assert_eq!(states(&lent), [State::Risky, State::Ready], "{}", report::text(&lent));
    assert!(has(&lent, "wsl-dxg-detection") && has(&lent, "wsl-dozen") && !has(&lent, "wsl-rocm"));
    assert_eq!(lent.best, Route::Vulkan);
    let told = tree.replace("\"HOME\"", "\"HSA_ENABLE_DXG_DETECTION\": \"1\", \"HOME\"");
    assert!(!has(&look(&format!("{told}{both}")), "wsl-dxg-detection"));

    let first = look(&tree.replace("/dev/dxg", "/dev/null"));
    assert_eq!(states(&first), [State::Absent, State::Absent]);
    assert!(has(&first, "wsl-no-gpu") && !has(&first, "wsl-rocm") && !has(&first, "no-amd-gpu"));
    assert!(first.verdicts[0].next.contains("PowerShell"), "{}", first.verdicts[0].next);
    let container = look(&format!("{}file /.dockerenv\n", tree.replace("libdxcore.so", "else.so")));
    assert!(container.verdicts[1].next.contains("--device=/dev/dxg"), "{}", container.verdicts[1].next);

    let arch = look(&tree.replace("ID=ubuntu", "ID=arch").replace("ID_LIKE=debian", "X=y"));
    assert_eq!(arch.verdicts[1].next, "`sudo pacman -S vulkan-icd-loader vulkan-dzn`");
    // A kernel of anybody else is not WSL.
    assert!(look(&tree.replace("-microsoft-", "-else-")).facts.host.wsl.is_none());
}

#[test]
fn an_empty_tree_is_told_plainly() {
    let root = tempfile::tempdir().unwrap();
    let diagnosis = Diagnosis::of(scan(&System::at(root.path()).unwrap(), &Options::default()));
    assert!(diagnosis.is_well() && diagnosis.best == Route::Cpu);
    assert!(diagnosis.findings.iter().all(|f| f.severity >= Severity::Absent));
    assert!(report::text(&diagnosis).contains("no GPU"));
}

#[test]
fn links_stay_inside_the_root_and_loops_end() {
    let root = tempfile::tempdir().unwrap();
    common::build(
        root.path(),
        "one /etc/hostname inside\nlink /a /b\nlink /b /a\nlink /up ../../../../../../etc/hostname\nlink /abs /etc/hostname\n",
    );
    let system = System::at(root.path()).unwrap();
    assert_eq!(system.attribute("/up").as_deref(), Some("inside"));
    assert_eq!(system.attribute("/abs").as_deref(), Some("inside"));
    assert_eq!(system.resolve("/a"), None);
    assert!(!system.exists("/etc/passwd"), "the real one is not seen");
}

#[test]
fn a_tree_without_sense_is_refused() {
    let root = tempfile::tempdir().unwrap();
    assert!(System::at(&root.path().join("none")).is_err());
    fs::write(root.path().join("wave32-machine.json"), "{\"envv\": 1}").unwrap();
    assert!(System::at(root.path()).unwrap_err().to_string().contains("wave32-machine.json"));
}
