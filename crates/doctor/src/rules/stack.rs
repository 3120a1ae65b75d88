//! ROCm and PyTorch, and whether they have code for the card.

use crate::facts::{Facts, Library, Rocm, Torch, major};
use crate::finding::{Fix, Found, Rule, Severity};
use crate::native;
use wave32_cards::targets;
use wave32_host::torch;
use wave32_profile::Route;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "torch-without-target",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "This PyTorch has no kernels for the card: it fails with \"invalid device function\" or \"no kernel image\", \
                  or needs a spoof. A PyTorch with the card's own code objects needs neither.",
        source: "https://github.com/pytorch/pytorch/issues/106728",
        check: |facts| torches_without(facts, false),
    },
    Rule {
        id: "rocblas-without-target",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "rocBLAS has no kernels for the card: matrix products, and MIOpen's GEMM solvers with them, abort with \
                  \"Cannot read TensileLibrary.dat\".",
        source: "https://github.com/ROCm/Tensile/pull/1897",
        check: |facts| rocblas_without(facts, false),
    },
    Rule {
        id: "torch-spoofed",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "This PyTorch has no kernels for the card, and is made to run another target's: see the spoof above. Without \
                  the spoof it does not start on this card, so it needs a PyTorch with the card's own code objects.",
        source: "https://github.com/pytorch/pytorch/issues/106728",
        check: |facts| torches_without(facts, true),
    },
    Rule {
        id: "rocblas-spoofed",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "rocBLAS has no kernels for the card, and is made to run another target's by the spoof.",
        source: "https://github.com/ROCm/Tensile/pull/1897",
        check: |facts| rocblas_without(facts, true),
    },
    Rule {
        id: "torch-rocm-mismatch",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "PyTorch was built for another major version of ROCm than the one it would load: symbols are missing, \
                  or structures have other layouts.",
        source: "https://rocm.docs.amd.com/en/latest/compatibility/compatibility-matrix.html",
        check: mismatch,
    },
    Rule {
        id: "mixed-rocm",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "A PyTorch wheel brings its own ROCm. LD_LIBRARY_PATH can put another one's libraries before it, and \
                  two versions in one process were never tested together.",
        source: "https://man7.org/linux/man-pages/man8/ld.so.8.html",
        check: mixed,
    },
    Rule {
        id: "no-torch",
        severity: Severity::Absent,
        routes: &[Route::Rocm],
        meaning: "No PyTorch is in reach: active environments, --python, the user's and the system's packages were read. One in \
                  another environment is found with `wave32 doctor --python ENVIRONMENT`.",
        source: "https://pytorch.org/get-started/locally/",
        check: no_torch,
    },
    Rule {
        id: "torch-not-rocm",
        severity: Severity::Absent,
        routes: &[Route::Rocm],
        meaning: "No PyTorch in reach was built for ROCm. The device `wave` on Vulkan needs no such build.",
        source: "https://pytorch.org/get-started/locally/",
        check: torch_not_rocm,
    },
    Rule {
        id: "torch-too-old-for-wave",
        severity: Severity::Note,
        routes: &[Route::Vulkan],
        meaning: "PyTorch's device `wave` is made for other versions of torch; the engine and its command need no PyTorch.",
        source: "docs/torch.md",
        check: too_old_for_wave,
    },
    Rule {
        id: "rdna1-miopen",
        severity: Severity::Note,
        routes: &[Route::Rocm],
        meaning: "MIOpen ships no tuning database for RDNA1, so it compiles and times solvers at each new shape, and in \
                  fp16 only GEMM and naive ones exist. Nobody tests these cards; which solvers are safe is found by trying.",
        source: "https://github.com/ROCm/rocm-libraries/tree/develop/projects/miopen/src/kernels",
        check: rdna1,
    },
    Rule {
        id: "integrated-gpu",
        severity: Severity::Note,
        routes: &[Route::Rocm],
        meaning: "The processor's own graphics are a ROCm device too. A PyTorch without code for them fails when a program \
                  picks that device, and some fail at the start.",
        source: "https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html",
        check: integrated,
    },
    Rule {
        id: "several-rocm",
        severity: Severity::Note,
        routes: &[Route::Rocm],
        meaning: "Several ROCm installations are side by side; each program loads the one it was linked or wheeled with.",
        source: "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/install/rocm-runfile-installer.html",
        check: several,
    },
];

fn rocm_torches(facts: &Facts) -> impl Iterator<Item = &Torch> {
    facts.torches.iter().filter(|t| t.hip.is_some())
}

fn list(targets: &[String]) -> String {
    if targets.is_empty() { "none".into() } else { targets.join(", ") }
}

/// What lacks a card's code, and whether a spoof makes it load another target's instead.
fn without(facts: &Facts, has: &[String], spoofed: bool) -> Vec<(String, String)> {
    let lacks = facts.cards().into_iter().filter(|card| !targets::runs_on(has, card));
    let claimed = super::spoof::claimed(facts);
    let by = claimed.iter().find(|claimed| targets::runs_on(has, claimed));
    let words = |card: &str| match by {
        Some(other) => format!("has no code for {card}; the spoof makes it run {other}'s"),
        None => format!("has no code for {card}"),
    };
    lacks.filter(|_| by.is_some() == spoofed).map(|card| (card.to_string(), words(card))).collect()
}

/// True for a PyTorch that has code for every card here.
fn is_native(facts: &Facts, torch: &Torch) -> bool {
    facts.cards().iter().all(|card| targets::runs_on(&torch.targets, card))
}

/// PyTorches that a program would find before a native one, in the order in which they are found.
fn before_native(facts: &Facts) -> impl Iterator<Item = &Torch> {
    rocm_torches(facts).take_while(|t| !is_native(facts, t))
}

fn torches_without(facts: &Facts, spoofed: bool) -> Vec<Found> {
    let mut found = Vec::new();
    for torch in before_native(facts).filter(|t| t.complete) {
        for (card, lacks) in without(facts, &torch.targets, spoofed) {
            found.push(Found {
                what: format!("PyTorch {} {lacks}", torch.version),
                evidence: vec![format!("{} has code for: {}", torch.path, list(&torch.targets))],
                fix: native::fix(facts, &card),
            });
        }
    }
    found
}

/// The rocBLAS that programs would load: those of the ROCm's that PyTorches load, or every one without a PyTorch.
fn rocblas(facts: &Facts) -> Vec<(&Rocm, &Library)> {
    let mut used: Vec<&Rocm> = Vec::new();
    let native = rocm_torches(facts).find(|t| is_native(facts, t));
    for rocm in before_native(facts).chain(native).filter_map(|torch| facts.loads(torch)) {
        if !used.iter().any(|r| r.path == rocm.path) {
            used.push(rocm);
        }
    }
    if rocm_torches(facts).next().is_none() {
        used = facts.rocm.iter().collect();
    }
    used.into_iter().filter_map(|rocm| Some((rocm, rocm.library("rocblas")?))).collect()
}

fn rocblas_without(facts: &Facts, spoofed: bool) -> Vec<Found> {
    let mut found = Vec::new();
    for (rocm, library) in rocblas(facts).into_iter().filter(|(_, l)| l.complete) {
        for (card, lacks) in without(facts, &library.targets, spoofed) {
            found.push(Found {
                what: format!("rocBLAS of {} {lacks}", rocm.path),
                evidence: vec![format!("{} and its kernels have: {}", library.path, list(&library.targets))],
                fix: native::fix(facts, &card),
            });
        }
    }
    found
}

fn mismatch(facts: &Facts) -> Vec<Found> {
    let mut found = Vec::new();
    for torch in rocm_torches(facts) {
        let wanted = torch.hip.as_deref().and_then(major);
        let Some(rocm) = facts.loads(torch) else { continue };
        if let (Some(wanted), Some(there)) = (wanted, rocm.major())
            && wanted != there
            // TheRock counts ROCm 7.x up to 10 on, HIP stays at 7.
            && rocm.kind != "wheel"
        {
            found.push(Found {
                what: format!("PyTorch {} is for ROCm {wanted}, and would load ROCm {there}", torch.version),
                evidence: vec![torch.path.clone(), rocm.path.clone()],
                fix: Fix::text(format!(
                    "install a PyTorch for ROCm {there}, or one whose wheel brings its own ROCm"
                )),
            });
        }
    }
    found
}

fn mixed(facts: &Facts) -> Vec<Found> {
    let Some(variable) = facts.variables.iter().find(|v| v.name == "LD_LIBRARY_PATH") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for torch in rocm_torches(facts) {
        let Some(own) = facts.loads(torch).filter(|r| r.kind == "torch") else { continue };
        let other = facts.rocm.iter().filter(|r| r.kind == "opt").find(|r| {
            let folders = variable.settings().flat_map(|(value, _)| value.split(':'));
            let mut folders = folders.map(|f| f.trim_end_matches('/'));
            let usual = ["/opt/rocm/lib", "/opt/rocm/lib64"];
            let is_other = |f: &str| f.starts_with(&format!("{}/", r.path)) || usual.contains(&f);
            r.version != own.version && folders.any(is_other)
        });
        if let Some(other) = other {
            let what = format!(
                "LD_LIBRARY_PATH puts {} before the ROCm inside PyTorch {}",
                other.path, torch.version
            );
            let mut mixed = super::variable::unset(variable, what);
            let of_rocm = |folder: &str| {
                folder.is_empty() || folder.starts_with("/opt/rocm") || folder.starts_with('$')
            };
            if !variable.settings().all(|(value, _)| value.split(':').all(of_rocm)) {
                // What else it names may be needed.
                mixed.fix =
                    Fix::text("take the folders of ROCm out of LD_LIBRARY_PATH, and leave the others in it");
            }
            found.push(mixed);
        }
    }
    found
}

fn has_card(facts: &Facts) -> bool {
    facts.gpus.iter().any(|g| g.is_amd())
}

fn no_torch(facts: &Facts) -> Vec<Found> {
    let Some(card) = facts.cards().first().copied().filter(|_| facts.torches.is_empty()) else {
        return Vec::new();
    };
    vec![Found {
        what: "there is no PyTorch in reach".into(),
        evidence: Vec::new(),
        fix: native::fix(facts, card),
    }]
}

fn torch_not_rocm(facts: &Facts) -> Vec<Found> {
    if facts.torches.is_empty() || !has_card(facts) || rocm_torches(facts).next().is_some() {
        return Vec::new();
    }
    let kind = |t: &Torch| t.cuda.as_ref().map_or("the CPU".into(), |c| format!("CUDA {c}"));
    let card = facts.cards().first().copied();
    vec![Found {
        what: "no PyTorch in reach is built for ROCm".into(),
        evidence: facts
            .torches
            .iter()
            .map(|t| format!("{} is {} for {}", t.path, t.version, kind(t)))
            .collect(),
        fix: card.map_or(Fix::text("use the route vulkan"), |card| native::fix(facts, card)),
    }]
}

/// Whether the device `wave` is made for this PyTorch.
pub(crate) fn fits_wave(torch: &Torch) -> bool {
    let mut parts = torch.version.split(['.', '+']).map(|part| part.parse::<u32>().ok());
    let number = parts.next().flatten().zip(parts.next().flatten());
    number.is_none_or(torch::fits)
}

fn too_old_for_wave(facts: &Facts) -> Vec<Found> {
    if facts.torches.is_empty() || facts.torches.iter().any(fits_wave) {
        return Vec::new();
    }
    vec![Found {
        what: format!(
            "no PyTorch in reach can have the device `wave`, which is made for torch {}",
            torch::range()
        ),
        evidence: facts.torches.iter().map(|t| format!("{} is {}", t.path, t.version)).collect(),
        fix: Fix::run(
            "in an environment of its own, from wave32's folder",
            &[
                "python3 -m venv wave",
                "wave/bin/pip install uv",
                "wave/bin/uv pip install --python wave torch --torch-backend=cpu",
                "wave/bin/pip install .",
            ],
        ),
    }]
}

fn rdna1(facts: &Facts) -> Vec<Found> {
    let card = facts.cards().into_iter().find(|card| targets::is_rdna1(card));
    let ready = rocm_torches(facts).find(|t| card.is_some_and(|card| targets::runs_on(&t.targets, card)));
    let (Some(card), Some(torch)) = (card, ready) else { return Vec::new() };
    if super::own::convolves(facts, torch).is_some() {
        return Vec::new();
    }
    let databases = facts
        .rocm
        .iter()
        .filter_map(|r| r.library("miopen"))
        .map(|l| format!("{}: databases for {}", l.path, list(&l.targets)));
    vec![Found {
        what: format!(
            "PyTorch {} runs natively on {card}; MIOpen's solvers are unproven there",
            torch.version
        ),
        evidence: databases.collect(),
        fix: Fix::text(
            "`wave32 run --route rocm -- CMD` puts wave32's convolutions in their place; `wave32 probe` tries MIOpen's \
             solvers one by one, each in a guarded process",
        ),
    }]
}

fn integrated(facts: &Facts) -> Vec<Found> {
    let cards = facts.cards();
    let beside = facts.gpus.iter().filter(|g| g.target.as_deref().is_some_and(|t| !cards.contains(&t)));
    let listed = beside.filter(|g| facts.kfd.nodes.iter().any(|n| n.address == g.address));
    let found = listed.filter_map(|gpu| {
        let target = gpu.target.as_deref()?;
        let torch = rocm_torches(facts).find(|t| t.complete && !targets::runs_on(&t.targets, target))?;
        Some(Found {
            what: format!("PyTorch {} has no code for the processor's own graphics ({target})", torch.version),
            evidence: vec![format!("{} at {} is in KFD's topology", gpu.name, gpu.address)],
            fix: Fix::text("`wave32 env` sets HIP_VISIBLE_DEVICES so that only the card is seen; `wave32 apply` keeps it"),
        })
    });
    found.collect()
}

fn several(facts: &Facts) -> Vec<Found> {
    let whole: Vec<&Rocm> = facts
        .rocm
        .iter()
        .filter(|r| matches!(r.kind, "opt" | "distribution") && r.library("hip").is_some())
        .collect();
    if whole.len() < 2 {
        return Vec::new();
    }
    let version =
        |r: &&Rocm| format!("{}: ROCm {}", r.path, r.version.as_deref().unwrap_or("of unknown version"));
    vec![Found {
        what: format!("{} ROCm installations are side by side", whole.len()),
        evidence: whole.iter().map(version).collect(),
        fix: Fix::text("nothing to repair; remove the ones that nothing uses"),
    }]
}
