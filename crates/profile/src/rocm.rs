//! The route over ROCm: the card's own code and no override; the spoof by name only.

use super::{NoRoute, Profile, RocmVersion, Route, Setting, Situation};
use std::collections::BTreeSet;
use wave32_cards::targets::{self, Family};

const FIND_CONTROLS: &str = "https://github.com/ROCm/MIOpen/blob/2d1fd99/src/find_controls.cpp";
const FIND_MODES: &str = "https://rocm.docs.amd.com/projects/MIOpen/en/latest/how-to/find-and-immediate.html";
const KERNEL_LAUNCH: &str = "https://github.com/ROCm/MIOpen/blob/2d1fd99/src/hipoc/hipoc_kernel.cpp";
const SWITCHES: &str = "https://github.com/ROCm/MIOpen/blob/2d1fd99/src/conv/solver_finders.cpp";
const SWITCHES_5_2: &str = "https://github.com/ROCm/MIOpen/blob/rocm-5.2.0/src/ocl/convolutionocl.cpp";
const SWITCHES_5_7: &str = "https://github.com/ROCm/MIOpen/blob/rocm-5.7.0/src/conv/solver_finders.cpp";
const OVERRIDE: &str = "https://github.com/ROCm/ROCR-Runtime/blob/c7785a6/libhsakmt/src/topology.c";
const OVERRIDE_HARM: &str = "https://github.com/ROCm/ROCm/issues/2527";
const VISIBLE: &str = "https://github.com/ROCm/clr/blob/f9f995c/rocclr/device/rocm/rocdevice.cpp";
const ROCR_FLAGS: &str =
    "https://github.com/ROCm/ROCR-Runtime/blob/c7785a6/runtime/hsa-runtime/core/util/flag.h";
const SVM: &str = "https://github.com/ROCm/ROCR-Runtime/blob/c7785a6/libhsakmt/src/openclose.c";

/// MIOpen's switches by algorithm. Only `0` does anything.
const ALGORITHMS: [&str; 5] = [
    "MIOPEN_DEBUG_CONV_GEMM",
    "MIOPEN_DEBUG_CONV_IMPLICIT_GEMM",
    "MIOPEN_DEBUG_CONV_WINOGRAD",
    "MIOPEN_DEBUG_CONV_DIRECT",
    "MIOPEN_DEBUG_CONV_FFT",
];

/// The member of a card's family whose code the others are given when they are spoofed, and the override for it; none for
/// families of which nobody reported it.
fn pose(card: &str) -> Option<(&'static str, &'static str)> {
    match targets::by_name(card)?.family {
        Family::Gfx10_1 => Some(("gfx1010", "10.1.0")),
        Family::Gfx10_3 => Some(("gfx1030", "10.3.0")),
        Family::Gfx11 | Family::Gfx12 => None,
    }
}

/// Is there code for `card` among `objects` (which may name features: `gfx1010:xnack-`)?
pub(super) fn runs(card: &str, objects: &BTreeSet<String>) -> bool {
    let plain: Vec<&str> = objects.iter().filter_map(|object| object.split(':').next()).collect();
    targets::runs_on(&plain, card)
}

pub(super) fn profile(situation: &Situation, allow_spoof: bool) -> Result<Profile, NoRoute> {
    let Situation { cards, rocm, code_objects, .. } = situation;
    let Some(first) = cards.first() else {
        return Err(NoRoute {
            why: "ROCm sees no AMD card here".into(),
            next: "see `wave32 doctor`, name the card with --card gfx1010, or take --route vulkan".into(),
        });
    };
    let Some(objects) = code_objects else {
        let mut profile = native(cards, cards, *rocm);
        profile.warnings.push(format!(
            "which code objects your PyTorch has is not known: if {first} is not among \
             torch.cuda.get_arch_list(), this route will not work (`wave32 doctor` tells)"
        ));
        return Ok(profile);
    };
    let usable: Vec<String> = cards.iter().filter(|card| runs(card, objects)).cloned().collect();
    if !usable.is_empty() {
        return Ok(native(cards, &usable, *rocm));
    }
    let why = format!(
        "this PyTorch has no code for {} (it has: {})",
        cards.join(", "),
        objects.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    );
    if allow_spoof {
        return spoof(first, objects, (*rocm, situation.system), &why);
    }
    Err(NoRoute {
        why,
        next: "take --route vulkan, or a PyTorch with this card's own code (`wave32 doctor` names one); \
               --allow-spoof is the last resort"
            .into(),
    })
}

/// The card's own code: mostly what must not be set.
fn native(cards: &[String], usable: &[String], rocm: Option<RocmVersion>) -> Profile {
    let mut settings = vec![Setting::unset(
        "HSA_OVERRIDE_GFX_VERSION",
        "makes ROCm load another card's code: hangs and memory aperture violations",
        OVERRIDE_HARM,
    )];
    settings.extend(harmful());
    let why = "takes away algorithms, and on RDNA1 Winograd and GEMM are all there are";
    settings.extend(ALGORITHMS.map(|name| Setting::unset(name, why, SWITCHES)));
    if usable.iter().any(|card| targets::is_rdna1(card)) {
        let why = "MIOpen ships no find database for RDNA1: any other mode compiles and times every solver at the \
                   first use of each shape (minutes, and where hangs were seen); FAST takes MIOpen's own estimate";
        settings.push(Setting::set("MIOPEN_FIND_MODE", "FAST", why, FIND_MODES));
    }
    if usable.len() < cards.len() {
        let numbers = (0..cards.len()).filter(|&i| usable.contains(&cards[i])).map(|i| i.to_string());
        let why =
            format!("only these of {} have code in this PyTorch; it fails on the others", cards.join(", "));
        let value = numbers.collect::<Vec<_>>().join(",");
        settings.push(Setting::set("HIP_VISIBLE_DEVICES", &value, why, VISIBLE));
    }
    let version = rocm.map_or(String::new(), |version| format!(" {version}"));
    let title = format!("ROCm{version} with {}'s own code, no override", usable.join(" and "));
    Profile { route: Route::Rocm, title, settings, warnings: vec![] }
}

/// What harms on every card.
fn harmful() -> [Setting; 3] {
    [
        Setting::unset("MIOPEN_DEVICE_ARCH", "makes every kernel launch throw", KERNEL_LAUNCH),
        Setting::unset(
            "MIOPEN_FIND_ENFORCE",
            "its values search exhaustively (3: minutes to hours a shape) and switch the find mode off",
            FIND_CONTROLS,
        ),
        Setting::unset(
            "MIOPEN_DEBUG_FIND_ONLY_SOLVER",
            "leaves every shape that this one solver cannot do without any",
            FIND_CONTROLS,
        ),
    ]
}

/// Another card's code, asked for by name.
fn spoof(
    card: &str,
    objects: &BTreeSet<String>,
    (rocm, system): (Option<RocmVersion>, Option<RocmVersion>),
    why: &str,
) -> Result<Profile, NoRoute> {
    let has = |target: &str| runs(target, objects);
    if let Some((target, value)) = pose(card).filter(|(target, _)| has(target)) {
        let generic = targets::family(card);
        let mut settings = harmful().to_vec();
        let why = format!("{card} runs {target}'s code: both are {generic}");
        settings.push(Setting::set("HSA_OVERRIDE_GFX_VERSION", value, why, OVERRIDE));
        let warnings =
            vec![format!("{card} poses as {target}, within its own family; AMD supports this nowhere")];
        let title = format!("ROCm with {card} posing as {target}");
        return Ok(Profile { route: Route::Rocm, title, settings, warnings });
    }
    let next = "take --route vulkan, or a PyTorch with this card's own code (`wave32 doctor` names one)";
    let refused = |why: String| Err(NoRoute { why, next: next.into() });
    if !targets::is_rdna1(card) || !has("gfx1030") {
        return refused(format!("{why}, and no card is known whose code {card} could be given instead"));
    }
    let (switches, limits) = match (rocm, system) {
        (Some(V5_2), _) => (switches_5_2(SWITCHES_5_2), LIMITS_5_2),
        (Some(V5_7), Some(V5_2)) => (switches_5_2(SWITCHES_5_7), LIMITS_5_7_ON_5_2),
        (Some(V5_7), _) => (switches_5_7(), LIMITS_5_7),
        (Some(version), _) => {
            return refused(format!(
                "{card} posing as gfx1030 was seen to work with ROCm 5.2 and 5.7 only (from 6.0 on it hangs or \
                 crashes), and this is {version}"
            ));
        }
        (None, _) => {
            let why =
                format!("how {card} can pose as gfx1030 depends on the version of ROCm, which is not known");
            return Err(NoRoute { why, next: "say it: --rocm 5.7".into() });
        }
    };
    let mut settings = harmful().to_vec();
    let why = "poses as gfx1030 (RDNA2), whose code this PyTorch has; the last resort";
    settings.push(Setting::set("HSA_OVERRIDE_GFX_VERSION", "10.3.0", why, OVERRIDE));
    settings.extend(switches);
    let risks = "the card is given instructions it may not have: hangs that need a reboot, memory aperture \
                 violations, wrong results without an error (f16 above all) were reported; keep your work saved";
    let warnings = vec![risks.into(), limits.into(), format!("sources: {OVERRIDE_HARM}")];
    let title = format!("ROCm with {card} posing as gfx1030: the last resort");
    Ok(Profile { route: Route::Rocm, title, settings, warnings })
}

const V5_2: RocmVersion = RocmVersion { major: 5, minor: 2 };
const V5_7: RocmVersion = RocmVersion { major: 5, minor: 7 };

const LIMITS_5_2: &str =
    "with these switches one owner of an RX 5600 XT saw sizes from 32x32 to 512x512 work";
const LIMITS_5_7: &str = "with these switches one owner of an RX 5600 XT saw inputs up to 32x32 work, and these hang: \
                          16->32 channels above 32x32, 32->64 above 48x48, 64->128 above 64x64; on a system with ROCm 5.2 \
                          other switches worked with this PyTorch (--rocm 5.2 prints them)";
const LIMITS_5_7_ON_5_2: &str = "this PyTorch brings ROCm 5.7, and the system has 5.2: on this mix one owner of an RX 5600 XT \
                                 saw GEMM hang above 42x42, and with these switches sizes from 32x32 to 512x512 work";

/// The set under which one RX 5600 XT worked on a system with ROCm 5.2.
fn switches_5_2(source: &'static str) -> Vec<Setting> {
    vec![
        Setting::set(ALGORITHMS[0], "0", "GEMM hung above 42x42 under the spoof", source),
        Setting::set(ALGORITHMS[1], "1", "implicit GEMM did not (1 is what it is anyhow)", source),
    ]
}

/// The set under which one RX 5600 XT worked on ROCm 5.7, for small inputs.
fn switches_5_7() -> Vec<Setting> {
    let mut settings = vec![Setting::set(
        ALGORITHMS[0],
        "1",
        "the one algorithm that worked (1 is what it is anyhow)",
        SWITCHES_5_7,
    )];
    let off = "hung or failed under the spoof";
    settings.extend(ALGORITHMS[1..].iter().map(|name| Setting::set(name, "0", off, SWITCHES_5_7)));
    settings.push(Setting::set(
        "MIOPEN_FIND_MODE",
        "NORMAL",
        "times what is left, rather than trust gfx1030's database",
        FIND_CONTROLS,
    ));
    settings.push(Setting::set(
        "HSA_ENABLE_SDMA",
        "0",
        "copies by shader; part of the set that worked",
        ROCR_FLAGS,
    ));
    settings.push(Setting::set(
        "HSA_USE_SVM",
        "0",
        "no shared virtual memory; part of the set that worked",
        SVM,
    ));
    settings
}
