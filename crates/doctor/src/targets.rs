//! Which gfx target a card has, and which targets' code it can run.
//!
//! Three witnesses, best first: the graphics core's version from the card's own discovery table (sysfs
//! `ip_discovery`), the PCI id, and what KFD reports. The environment cannot change any of them.

/// PCI device ids of AMD (vendor 0x1002) by target. Up to gfx1036 as the kernel's `pciidlist` binds them (the
/// Raphael and later ids it binds by discovery); later ones, which it never lists, as AMD's own device table does.
///
/// Sources: linux `drivers/gpu/drm/amd/amdgpu/amdgpu_drv.c`; ROCR-Runtime `libhsakmt/src/topology.c`;
/// GPUOpen-Tools/device_info `DeviceInfo.cpp`.
const PCI: &[(&str, &[u16])] = &[
    ("gfx1010", &[0x7310, 0x7312, 0x7318, 0x7319, 0x731a, 0x731b, 0x731e, 0x731f]),
    ("gfx1011", &[0x7360, 0x7362]),
    ("gfx1012", &[0x7340, 0x7341, 0x7347, 0x734f]),
    ("gfx1013", &[0x13f9, 0x13fa, 0x13fb, 0x13fc, 0x13fe, 0x143f]),
    (
        "gfx1030",
        &[
            0x73a0, 0x73a1, 0x73a2, 0x73a3, 0x73a5, 0x73a8, 0x73a9, 0x73ab, 0x73ac, 0x73ad, 0x73ae, 0x73af,
            0x73bf,
        ],
    ),
    ("gfx1031", &[0x73c0, 0x73c1, 0x73c3, 0x73da, 0x73db, 0x73dc, 0x73dd, 0x73de, 0x73df]),
    (
        "gfx1032",
        &[0x73e0, 0x73e1, 0x73e2, 0x73e3, 0x73e8, 0x73e9, 0x73ea, 0x73eb, 0x73ec, 0x73ed, 0x73ef, 0x73ff],
    ),
    ("gfx1033", &[0x163f]),
    ("gfx1034", &[0x7420, 0x7421, 0x7422, 0x7423, 0x7424, 0x743f]),
    ("gfx1035", &[0x164d, 0x1681]),
    ("gfx1036", &[0x13c0, 0x1506, 0x164e]),
    ("gfx1100", &[0x7448, 0x7449, 0x744a, 0x744b, 0x744c, 0x745e]),
    ("gfx1101", &[0x73c4, 0x73c5, 0x73c8, 0x7460, 0x7461, 0x7470, 0x7478, 0x747e]),
    ("gfx1102", &[0x73f0, 0x7480, 0x7481, 0x7483, 0x7487, 0x7489, 0x748b, 0x7499]),
    ("gfx1103", &[0x15bf, 0x15c8, 0x1900, 0x1901]),
    ("gfx1150", &[0x150e]),
    ("gfx1151", &[0x1586]),
    ("gfx1152", &[0x1114]),
    ("gfx1153", &[0x1902]),
    ("gfx1200", &[0x7590]),
    ("gfx1201", &[0x7550, 0x7551]),
];

/// Version of the graphics core (GC) by target; not the same numbers (11.0.3 is gfx1101).
///
/// Source: linux `drivers/gpu/drm/amd/amdkfd/kfd_device.c`, `kgd2kfd_probe`.
const GRAPHICS_CORE: &[((u32, u32, u32), &str)] = &[
    ((10, 1, 10), "gfx1010"),
    ((10, 1, 2), "gfx1011"),
    ((10, 1, 1), "gfx1012"),
    ((10, 1, 3), "gfx1013"),
    ((10, 1, 4), "gfx1013"),
    ((10, 3, 0), "gfx1030"),
    ((10, 3, 2), "gfx1031"),
    ((10, 3, 4), "gfx1032"),
    ((10, 3, 1), "gfx1033"),
    ((10, 3, 5), "gfx1034"),
    ((10, 3, 3), "gfx1035"),
    ((10, 3, 6), "gfx1036"),
    ((10, 3, 7), "gfx1036"),
    ((11, 0, 0), "gfx1100"),
    ((11, 0, 3), "gfx1101"),
    ((11, 0, 2), "gfx1102"),
    ((11, 0, 1), "gfx1103"),
    ((11, 0, 4), "gfx1103"),
    ((11, 5, 0), "gfx1150"),
    ((11, 5, 1), "gfx1151"),
    ((11, 5, 2), "gfx1152"),
    ((11, 5, 3), "gfx1153"),
    ((12, 0, 0), "gfx1200"),
    ((12, 0, 1), "gfx1201"),
];

/// Targets that share an instruction set, by LLVM's generic name for them: code for the generic target runs on
/// each; code for one of them may not run on another.
///
/// Source: LLVM `AMDGPUUsage`, "Generic processor code object".
const FAMILIES: &[(&str, &[&str])] = &[
    ("gfx10-1-generic", &["gfx1010", "gfx1011", "gfx1012", "gfx1013"]),
    ("gfx10-3-generic", &["gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"]),
    (
        "gfx11-generic",
        &["gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"],
    ),
    ("gfx12-generic", &["gfx1200", "gfx1201"]),
];

/// Targets of graphics inside a processor.
///
/// Source: LLVM `AMDGPUUsage`, "Processors" (APU).
const INTEGRATED: &[&str] = &[
    "gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1103", "gfx1150",
    "gfx1151", "gfx1152", "gfx1153",
];

/// The target of an AMD device by its PCI id.
pub fn by_pci(device: u16) -> Option<&'static str> {
    PCI.iter().find(|(_, ids)| ids.contains(&device)).map(|(target, _)| *target)
}

/// The target of a graphics core of that version.
pub fn by_graphics_core(version: (u32, u32, u32)) -> Option<&'static str> {
    GRAPHICS_CORE.iter().find(|(core, _)| *core == version).map(|(_, target)| *target)
}

/// Reads KFD's `gfx_target_version`, e.g. 100100 for gfx1010. None for a CPU (0).
pub fn by_kfd(version: u64) -> Option<String> {
    let (major, minor, step) = (version / 10000, version / 100 % 100, version % 100);
    (major > 0).then(|| format!("gfx{major}{minor:x}{step:x}"))
}

/// The target that `HSA_OVERRIDE_GFX_VERSION` claims, e.g. gfx1030 for `10.3.0`.
pub fn by_override(value: &str) -> Option<String> {
    let mut parts = value.trim().splitn(3, '.').map(|p| p.parse::<u32>().ok());
    match (parts.next()?, parts.next()?, parts.next()?) {
        (Some(major @ 1..=63), Some(minor @ 0..=255), Some(step @ 0..=255)) => {
            Some(format!("gfx{major}{minor:x}{step:x}"))
        }
        _ => None,
    }
}

/// LLVM's generic name of the target's family; the target itself where it has none.
pub fn family(target: &str) -> &str {
    FAMILIES.iter().find(|(_, members)| members.contains(&target)).map_or(target, |(name, _)| name)
}

/// True for graphics inside a processor.
pub fn is_integrated(target: &str) -> bool {
    INTEGRATED.contains(&target)
}

/// True for RDNA1, the cards this project is made for.
pub fn is_rdna1(target: &str) -> bool {
    family(target) == "gfx10-1-generic"
}

/// True if code for one of `has` runs on a card of target `card` as it is.
pub fn runs_on<S: AsRef<str>>(has: &[S], card: &str) -> bool {
    has.iter().any(|target| target.as_ref() == card || target.as_ref() == family(card))
}

/// The target at the start of a text such as `gfx90a68.db` or `gfx1030_36.fdb`, features (`:xnack-`) left out.
/// Hexadecimal compute unit counts follow without a gap, so the known names decide where the target ends.
pub fn leading(text: &str) -> Option<&str> {
    let digits = text.strip_prefix("gfx")?;
    if let Some((name, _)) = FAMILIES.iter().find(|(name, _)| text.starts_with(name)) {
        return Some(name);
    }
    let end = digits.bytes().take_while(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f')).count();
    let length = match (digits.as_bytes().first()?, end) {
        (b'1', 4..) => 4,
        (b'6'..=b'9', 3..) => 3,
        _ => return None,
    };
    Some(&text[..3 + length])
}

/// Every target named in a text, each once, in order.
pub fn all_in(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = text.match_indices("gfx").filter_map(|(at, _)| leading(&text[at..])).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_witnesses_agree_on_names() {
        assert_eq!(by_pci(0x731f), Some("gfx1010"));
        assert_eq!(by_pci(0x7340), Some("gfx1012"), "Navi 14, not a 5700 XT");
        assert_eq!(by_pci(0x73ff), Some("gfx1032"));
        assert_eq!(by_graphics_core((11, 0, 3)), Some("gfx1101"));
        assert_eq!(by_kfd(100_100).as_deref(), Some("gfx1010"));
        assert_eq!(by_kfd(90_010).as_deref(), Some("gfx90a"));
        assert_eq!(by_kfd(0), None);
        assert_eq!(by_override("10.3.0").as_deref(), Some("gfx1030"));
        assert_eq!(by_override("9.0.10").as_deref(), Some("gfx90a"));
        for bad in ["", "10.3", "10.3.0x", "gfx1030", "0.0.0", "10.300.0"] {
            assert_eq!(by_override(bad), None, "{bad}");
        }
    }

    #[test]
    fn no_id_has_two_targets() {
        let mut ids: Vec<u16> = PCI.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }

    #[test]
    fn targets_are_read_from_names() {
        assert_eq!(leading("gfx90a68.HIP.fdb.txt"), Some("gfx90a"));
        assert_eq!(leading("gfx90878.db"), Some("gfx908"));
        assert_eq!(leading("gfx1030_36.db.txt"), Some("gfx1030"));
        assert_eq!(leading("gfx10-1-generic"), Some("gfx10-1-generic"));
        assert_eq!(leading("gfx10"), None);
        assert_eq!(all_in("Kernels.so-000-gfx1010.hsaco gfx1030 gfx1010"), ["gfx1010", "gfx1030"]);
        assert!(runs_on(&["gfx10-1-generic"], "gfx1012") && !runs_on(&["gfx1030"], "gfx1010"));
    }
}
