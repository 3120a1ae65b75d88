//! Environment variables of MIOpen, HIP and ROCr.

use crate::facts::{Facts, Gpu, Variable};
use crate::finding::{FileLine, Fix, Found, Rule, Severity};
use wave32_cards::targets;
use wave32_profile::Route;

const CONTROLS: &str = "https://github.com/ROCm/MIOpen/blob/develop/src/find_controls.cpp";
const DEBUGGING: &str = "https://rocm.docs.amd.com/projects/MIOpen/en/latest/how-to/debug-log.html";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "miopen-device-arch",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "It is for compiling kernels without a card: with it set, MIOpen finds no solution and every launch \
                  throws. It does not change the card's target.",
        source: "https://github.com/ROCm/MIOpen/blob/develop/src/hipoc/hipoc_kernel.cpp",
        check: |facts| set(facts, "MIOPEN_DEVICE_ARCH", |_| true, "makes MIOpen refuse every launch"),
    },
    Rule {
        id: "miopen-find-value",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "MIOpen takes what is no known word for a number (std::stoul), which throws in the first convolution.",
        source: CONTROLS,
        check: find_value,
    },
    Rule {
        id: "miopen-no-algorithm",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "With every family of solvers switched off MIOpen has no way to compute a convolution.",
        source: DEBUGGING,
        check: no_algorithm,
    },
    Rule {
        id: "gpu-hidden",
        severity: Severity::Broken,
        routes: &[Route::Rocm],
        meaning: "An empty list of visible devices, or -1, hides every GPU from HIP.",
        source: "https://rocm.docs.amd.com/projects/HIP/en/latest/reference/env_variables.html",
        check: hidden,
    },
    Rule {
        id: "miopen-only-solver",
        severity: Severity::Harmful,
        routes: &[Route::Rocm],
        meaning: "MIOpen's find then knows this one solver (older versions: and GEMM and FFT). A shape or a pass that it cannot \
                  do fails, and so does every find if no solver has that name: a solver of the forward pass breaks training.",
        source: DEBUGGING,
        check: |facts| {
            let some = |v: &str| !v.is_empty();
            set(
                facts,
                "MIOPEN_DEBUG_FIND_ONLY_SOLVER",
                some,
                "leaves MIOpen one solver for every shape and pass",
            )
        },
    },
    Rule {
        id: "miopen-search",
        severity: Severity::Costly,
        routes: &[Route::Rocm],
        meaning: "It forces an exhaustive search over every tunable solver for every new shape: minutes to hours, and \
                  each candidate is one more chance for a solver to hang.",
        source: CONTROLS,
        check: search,
    },
    Rule {
        id: "miopen-full-find",
        severity: Severity::Costly,
        routes: &[Route::Rocm],
        meaning: "Mode 1 (NORMAL) is the full find: every applicable solver is compiled and timed for each new shape. \
                  2 (FAST) takes what the database says, 3 (HYBRID) and 5 (DYNAMIC_HYBRID, the default) look there first.",
        source: CONTROLS,
        check: full_find,
    },
    Rule {
        id: "miopen-solvers-off",
        severity: Severity::Costly,
        routes: &[Route::Rocm],
        meaning: "Families of solvers are switched off, for good or ill: on RDNA1 itself only Winograd, direct and GEMM \
                  exist (HIP implicit GEMM is for gfx103x and the spoof), so little is left.",
        source: DEBUGGING,
        check: solvers_off,
    },
    Rule {
        id: "miopen-cache-off",
        severity: Severity::Costly,
        routes: &[Route::Rocm],
        meaning: "Without its cache MIOpen compiles the same kernels again in every process.",
        source: "https://rocm.docs.amd.com/projects/MIOpen/en/latest/conceptual/cache.html",
        check: |facts| set(facts, "MIOPEN_DISABLE_CACHE", is_on, "turns MIOpen's kernel cache off"),
    },
    Rule {
        id: "miopen-logging",
        severity: Severity::Costly,
        routes: &[Route::Rocm],
        meaning: "MIOpen then writes lines on standard error for each call, and at level 5 (Info) and above for each solver \
                  that it considers. It is for a report of a fault, not for a training run.",
        source: DEBUGGING,
        check: |facts| {
            let calls = set(facts, "MIOPEN_ENABLE_LOGGING", is_on, "writes a line for each call");
            let loud = |v: &str| v.trim().parse().is_ok_and(|level: u32| (5..=7).contains(&level));
            [calls, set(facts, "MIOPEN_LOG_LEVEL", loud, "writes lines for each solver that is considered")]
                .concat()
        },
    },
    Rule {
        id: "sdma-off",
        severity: Severity::Costly,
        routes: &[Route::Rocm],
        meaning: "Copies between CPU and GPU then run on the compute units instead of beside them. It is a workaround \
                  for copies that hang on some boards, and does nothing for hanging kernels.",
        source: "https://github.com/ROCm/ROCR-Runtime/blob/amd-staging/runtime/hsa-runtime/core/util/flag.h",
        check: |facts| set(facts, "HSA_ENABLE_SDMA", |v| v == "0", "takes the copy engines out of use"),
    },
    Rule {
        id: "miopen-unknown-variable",
        severity: Severity::Idle,
        routes: &[Route::Rocm],
        meaning: "No MIOpen on this machine looks this name up, so it changes nothing.",
        source: "https://github.com/ROCm/MIOpen (every MIOPEN_DECLARE_ENV_VAR)",
        check: unknown_miopen,
    },
    Rule {
        id: "hip-unknown-variable",
        severity: Severity::Idle,
        routes: &[Route::Rocm],
        meaning: "Neither HIP nor ROCr has such a variable. Device memory from hipMalloc is coarse-grained anyway.",
        source: "https://rocm.docs.amd.com/projects/HIP/en/latest/reference/env_variables.html",
        check: |facts| set(facts, "HIP_FORCE_COARSE_GRAIN", |_| true, "is read by nothing"),
    },
    Rule {
        id: "hsa-use-svm",
        severity: Severity::Idle,
        routes: &[Route::Rocm],
        meaning: "ROCr does read it: 0 switches the managed-memory (SVM) interface off. PyTorch's memory and MIOpen's \
                  kernels do not use that, so it neither causes nor cures a hang.",
        source: "https://github.com/ROCm/ROCR-Runtime/blob/amd-staging/libhsakmt/src/openclose.c",
        check: |facts| set(facts, "HSA_USE_SVM", |v| v == "0", "does not bear on convolutions"),
    },
    Rule {
        id: "hsa-xnack",
        severity: Severity::Idle,
        routes: &[Route::Rocm],
        meaning: "It asks for memory that the GPU pages in on demand. Linux never grants that on RDNA cards (GC 10.1.1 and \
                  newer), so neither 0 nor 1 changes anything here.",
        source: "https://github.com/torvalds/linux/blob/master/drivers/gpu/drm/amd/amdkfd/kfd_process.c",
        check: xnack,
    },
    Rule {
        id: "miopen-default-folder",
        severity: Severity::Idle,
        routes: &[Route::Rocm],
        meaning: "MIOpen keeps what it found for each shape in this folder without being told.",
        source: "https://rocm.docs.amd.com/projects/MIOpen/en/latest/conceptual/cache.html",
        check: |facts| {
            let own = |v: &str| v.trim_end_matches('/').ends_with("/.config/miopen");
            set(facts, "MIOPEN_USER_DB_PATH", own, "names the folder that MIOpen takes anyway")
        },
    },
    Rule {
        id: "miopen-quiet",
        severity: Severity::Note,
        routes: &[Route::Rocm],
        meaning: "The default level shows warnings (4). Below it MIOpen does not say that a workspace was too small, that a \
                  database is missing, or that it compiles.",
        source: DEBUGGING,
        check: |facts| {
            let quiet = |v: &str| v.trim().parse().is_ok_and(|level: u32| (1..=3).contains(&level));
            set(facts, "MIOPEN_LOG_LEVEL", quiet, "hides MIOpen's warnings")
        },
    },
    Rule {
        id: "pytorch-build-variable",
        severity: Severity::Idle,
        routes: &[Route::Rocm],
        meaning: "Only a build of PyTorch from source reads it. A PyTorch that is installed is for ROCm or is not.",
        source: "https://github.com/pytorch/pytorch/blob/main/setup.py",
        check: |facts| {
            let names = ["USE_ROCM", "USE_MIOPEN"];
            names
                .iter()
                .flat_map(|name| set(facts, name, |_| true, "is read by builds of PyTorch only"))
                .collect()
        },
    },
    Rule {
        id: "pytorch-rocm-arch",
        severity: Severity::Idle,
        routes: &[Route::Rocm],
        meaning: "It only tells a build of PyTorch, or of an extension, which targets to compile for. It changes nothing \
                  in a PyTorch that is installed, and extensions built now would not run on this card.",
        source: "https://github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py",
        check: build_targets,
    },
];

/// Families of solvers by the variable that switches them (MIOpen `src/conv`).
const FAMILIES: &[&str] = &[
    "MIOPEN_DEBUG_CONV_DIRECT",
    "MIOPEN_DEBUG_CONV_FFT",
    "MIOPEN_DEBUG_CONV_GEMM",
    "MIOPEN_DEBUG_CONV_IMPLICIT_GEMM",
    "MIOPEN_DEBUG_CONV_WINOGRAD",
];
/// Names from guides on the web that no MIOpen release has read: absent from every `MIOPEN_DECLARE_ENV_VAR`.
const NEVER: &[&str] = &["MIOPEN_DISABLE_SOLVERS", "MIOPEN_WORKSPACE_LIMIT_MB"];

/// A finding whose cure is to unset a variable.
pub(super) fn unset(variable: &Variable, what: String) -> Found {
    let mut evidence = Vec::new();
    if let Some(value) = &variable.now {
        evidence.push(format!("set to {value:?} in this process"));
    }
    for origin in &variable.origins {
        evidence.push(format!("{}:{} sets it to {:?}", origin.file, origin.line, origin.value));
    }
    let places = variable.origins.iter().map(|o| FileLine {
        file: o.file.clone(),
        line: o.line,
        text: o.text.clone(),
        alone: o.alone,
    });
    let fix = Fix::UnsetVariable {
        name: variable.name.clone(),
        places: places.collect(),
        now: variable.now.is_some(),
    };
    Found { what, evidence, fix }
}

fn named<'a>(facts: &'a Facts, name: &str) -> Option<&'a Variable> {
    facts.variables.iter().find(|v| v.name == name)
}

/// The variable's first value that is as asked.
fn first(variable: &Variable, wanted: impl Fn(&str) -> bool) -> Option<&str> {
    variable.settings().map(|(value, _)| value).find(|value| wanted(value))
}

fn set(facts: &Facts, name: &str, wanted: impl Fn(&str) -> bool, does: &str) -> Vec<Found> {
    let Some(variable) = named(facts, name) else { return Vec::new() };
    let value = first(variable, wanted);
    value.map(|value| unset(variable, format!("{name}={value} {does}"))).into_iter().collect()
}

/// A value as MIOpen reads it: a word in any case, or a number as `stoul` finds it.
fn word(value: &str, words: &[&str]) -> Option<u64> {
    let value = value.trim_start();
    let named = words.iter().position(|w| w.eq_ignore_ascii_case(value));
    let digits: String = value.trim_start_matches('+').chars().take_while(char::is_ascii_digit).collect();
    named.map(|i| i as u64 + 1).or_else(|| digits.parse().ok())
}

const MODES: &[&str] = &["NORMAL", "FAST", "HYBRID", "", "DYNAMIC_HYBRID"];
const ENFORCE: &[&str] = &["NONE", "DB_UPDATE", "SEARCH", "SEARCH_DB_UPDATE", "DB_CLEAN"];

fn find_value(facts: &Facts) -> Vec<Found> {
    let bad = |name: &str, words: &'static [&'static str]| {
        let unread = |v: &str| !v.is_empty() && word(v, words).is_none();
        set(facts, name, unread, "is no word and no number that MIOpen knows, and makes it throw")
    };
    [bad("MIOPEN_FIND_MODE", MODES), bad("MIOPEN_FIND_ENFORCE", ENFORCE)].concat()
}

fn search(facts: &Facts) -> Vec<Found> {
    let searches = |v: &str| matches!(word(v, ENFORCE), Some(3 | 4));
    set(facts, "MIOPEN_FIND_ENFORCE", searches, "searches exhaustively for every new shape")
}

fn full_find(facts: &Facts) -> Vec<Found> {
    set(facts, "MIOPEN_FIND_MODE", |v| word(v, MODES) == Some(1), "times every solver for every new shape")
}

fn is_on(value: &str) -> bool {
    matches!(value.to_lowercase().as_str(), "1" | "yes" | "on" | "true" | "enable" | "enabled")
}

fn is_off(value: &str) -> bool {
    matches!(value.to_lowercase().as_str(), "0" | "no" | "off" | "false" | "disable" | "disabled")
}

fn off(facts: &Facts) -> Vec<&Variable> {
    let off = facts.variables.iter().filter(|v| FAMILIES.contains(&v.name.as_str()));
    off.filter(|v| first(v, is_off).is_some()).collect()
}

fn no_algorithm(facts: &Facts) -> Vec<Found> {
    let off = off(facts);
    match off.as_slice() {
        [first, .., _] if off.len() == FAMILIES.len() => {
            vec![unset(first, "every family of MIOpen's solvers is switched off".into())]
        }
        _ => Vec::new(),
    }
}

fn solvers_off(facts: &Facts) -> Vec<Found> {
    let off = off(facts);
    if off.len() == FAMILIES.len() {
        return Vec::new();
    }
    off.into_iter().map(|v| unset(v, format!("{}=0 switches a family of solvers off", v.name))).collect()
}

fn hidden(facts: &Facts) -> Vec<Found> {
    let names = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];
    let hides = |v: &str| v.trim().is_empty() || v.trim() == "-1";
    if !facts.gpus.iter().any(|g| g.is_amd()) {
        return Vec::new();
    }
    names.iter().flat_map(|name| set(facts, name, hides, "hides every GPU")).collect()
}

fn unknown_miopen(facts: &Facts) -> Vec<Found> {
    let unread =
        |v: &&Variable| v.known == Some(false) || (v.known.is_none() && NEVER.contains(&v.name.as_str()));
    let found = facts.variables.iter().filter(unread).map(|variable| {
        let mut found = unset(variable, format!("{} does nothing", variable.name));
        if variable.known == Some(false) {
            let read = facts.rocm.iter().filter_map(|r| r.vendors_miopen());
            found.evidence.extend(read.map(|l| format!("{} does not hold the name", l.path)));
        }
        found
    });
    found.collect()
}

/// Does nothing if every card here is RDNA; targets of other cards are in no table.
fn xnack(facts: &Facts) -> Vec<Found> {
    let mut cards = facts.gpus.iter().filter(|gpu| gpu.is_amd()).peekable();
    let rdna = |gpu: &Gpu| gpu.target.as_deref().and_then(targets::by_name).is_some();
    match cards.peek().is_some() && cards.all(rdna) {
        true => set(facts, "HSA_XNACK", |_| true, "does nothing on RDNA cards"),
        false => Vec::new(),
    }
}

fn build_targets(facts: &Facts) -> Vec<Found> {
    let cards: Vec<&str> = facts.gpus.iter().filter_map(|g| g.target.as_deref()).collect();
    let other = |v: &str| {
        let named = targets::all_in(v);
        !cards.is_empty() && !named.is_empty() && !cards.iter().any(|card| named.contains(card))
    };
    set(facts, "PYTORCH_ROCM_ARCH", other, "names no target of a card here")
}
