//! gfx targets: how they are recognised, which code they run, what their chips have.
//!
//! Three witnesses tell a card's target, best first: the graphics core's version from the card's own discovery table
//! (sysfs `ip_discovery`), the PCI id, and what KFD reports. The environment cannot change any of them.
//!
//! Sources of the files in this folder:
//! - PCI ids, up to gfx1036: linux `drivers/gpu/drm/amd/amdgpu/amdgpu_drv.c` (`pciidlist`; the Raphael and later ids are
//!   bound by discovery); later ones: ROCR-Runtime `libhsakmt/src/topology.c`, GPUOpen-Tools/device_info `DeviceInfo.cpp`.
//! - Versions of the graphics core, which are not the target's numbers (11.0.3 is gfx1101): linux
//!   `drivers/gpu/drm/amd/amdkfd/kfd_device.c`, `kgd2kfd_probe`.
//! - Which targets share an instruction set and which are inside a processor: LLVM `AMDGPUUsage`, "Processors" and "Generic
//!   processor code object".
//! - PCI revisions: libdrm `amdgpu.ids`.

use crate::Board;

/// An instruction set that several targets share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// RDNA1.
    Gfx10_1,
    /// RDNA2.
    Gfx10_3,
    /// RDNA3 and RDNA3.5.
    Gfx11,
    /// RDNA4.
    Gfx12,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gfx10_1, Self::Gfx10_3, Self::Gfx11, Self::Gfx12];

    /// LLVM's generic target: code for it runs on each target of the family; code for one of them may not run on another.
    #[must_use]
    pub fn generic(self) -> &'static str {
        match self {
            Self::Gfx10_1 => "gfx10-1-generic",
            Self::Gfx10_3 => "gfx10-3-generic",
            Self::Gfx11 => "gfx11-generic",
            Self::Gfx12 => "gfx12-generic",
        }
    }
}

/// A gfx target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// LLVM's name.
    pub name: &'static str,
    /// Whose instruction set it has.
    pub family: Family,
    /// Versions of its graphics core: major, minor, stepping.
    pub graphics_cores: &'static [(u32, u32, u32)],
    /// PCI device ids of AMD (vendor 0x1002).
    pub pci: &'static [u16],
    /// Inside a processor, whose memory it shares.
    pub integrated: bool,
    /// Its number in a code object's flags, `EF_AMDGPU_MACH`.
    pub elf: u8,
    /// Whose code this build makes for it, under its own name; none where it makes none. Code of another target is taken
    /// where that runs on this one unchanged.
    pub code_of: Option<&'static str>,
    /// Vector registers that a SIMD has for each of 32 lanes.
    pub registers: u32,
    /// AMD's nightly wheels of PyTorch (TheRock, RELEASES.md of August 2026) have a `device-` extra for it.
    pub rocm_wheels: bool,
    /// AMD's name of the chip, and what is in it; none where nothing here needs it.
    pub chip: Option<Chip>,
    /// The boards that carry it.
    pub boards: &'static [Board],
}

/// A SIMD in wave32 mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Simd {
    /// Vector registers of a lane.
    pub registers: u32,
    /// Registers are given to a wave in multiples of this.
    pub granule: u32,
    /// Waves that it keeps resident at most.
    pub waves: u32,
}

impl Target {
    /// Its SIMDs ("RDNA 1.0 Instruction Set Architecture", AMD 2020, chapters 2 and 3, and those of RDNA2 to 4; LLVM,
    /// `AMDGPUBaseInfo.cpp`: `getVGPRAllocGranule`).
    #[must_use]
    pub fn simd(&self) -> Simd {
        let (granule, waves) = match (self.family, self.registers) {
            (Family::Gfx10_1, _) => (8, 20),
            (_, 1536) => (24, 16),
            _ => (16, 16),
        };
        Simd { registers: self.registers, granule, waves }
    }

    /// Whether it has matrix instructions of f16 (WMMA: "RDNA3 Instruction Set Architecture", AMD 2023, section 7.9).
    #[must_use]
    pub fn has_matrix(&self) -> bool {
        matches!(self.family, Family::Gfx11 | Family::Gfx12)
    }

    /// Whether it has dot products of two f16 with a sum in f32 (V_DOT2_F32_F16: LLVM's features `dot10-insts`; "RDNA 2 Instruction Set
    /// Architecture", AMD 2020, section 12.8).
    #[must_use]
    pub fn has_dot(&self) -> bool {
        !matches!(self.name, "gfx1010" | "gfx1013")
    }

    /// Its version as KFD writes it, e.g. 100100 for gfx1010; [`by_kfd`] reads it.
    #[must_use]
    pub fn kfd(&self) -> u32 {
        let number = u32::from_str_radix(self.name.trim_start_matches("gfx"), 16).unwrap_or(0);
        // gfx1012: the last two digits are hexadecimal, those before them decimal.
        let major = (number >> 12) * 10 + (number >> 8 & 0xf);
        major * 10_000 + (number >> 4 & 0xf) * 100 + (number & 0xf)
    }
}

/// What a chip has, whether or not a board uses all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chip {
    /// AMD's name.
    pub name: &'static str,
    /// Shader engines.
    pub shader_engines: u32,
    /// Shader arrays of an engine, each with an L1.
    pub arrays_per_engine: u32,
    /// KiB of L2 on the widest board.
    pub l2_kib: u32,
}

impl Chip {
    /// Its name as the kernel's and Mesa's drivers write it: `navi10`.
    #[must_use]
    pub fn driver_name(&self) -> String {
        self.name.replace(' ', "").to_lowercase()
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(mod $name;)*
        /// Every target of RDNA, oldest first.
        pub const TARGETS: &[&Target] = &[$(&$name::TARGET),*];
    };
}

targets! {
    gfx1010 gfx1011 gfx1012 gfx1013
    gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036
    gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153
    gfx1200 gfx1201
}

/// Targets older than RDNA that are inside a processor.
const OLDER_INTEGRATED: &[&str] = &["gfx902", "gfx909", "gfx90c"];

/// Code objects' numbers of targets that are not RDNA's, and of the generic ones (LLVM `AMDGPUUsage`, `EF_AMDGPU_MACH`).
const OTHER_ELF: &[(u8, &str)] = &[
    (0x2c, "gfx900"),
    (0x2f, "gfx906"),
    (0x30, "gfx908"),
    (0x32, "gfx90c"),
    (0x3f, "gfx90a"),
    (0x4c, "gfx942"),
    (0x4f, "gfx950"),
    (0x52, "gfx10-1-generic"),
    (0x53, "gfx10-3-generic"),
    (0x54, "gfx11-generic"),
    (0x59, "gfx12-generic"),
];

/// The target whose code is `target`'s as well: gfx1011 and gfx1012 run all that gfx1010 does, and differ by dot products
/// of small integers and halves only ("User Guide for AMDGPU Backend", LLVM: `gfx10-1-generic`); kernels with those have code of their
/// own ([`dot_code_of`]).
pub fn code_of(target: &str) -> &str {
    by_name(target).and_then(|target| target.code_of).unwrap_or(target)
}

/// The target whose code is `target`'s for kernels with dot products ([`Target::has_dot`]); none for a target without them, or without
/// code. It is [`code_of`] but for gfx1011 and gfx1012, which share more than gfx1010 can run.
#[must_use]
pub fn dot_code_of(target: &str) -> Option<&'static str> {
    let shared = by_name(target).filter(|target| target.has_dot())?.code_of?;
    TARGETS.iter().find(|other| other.code_of == Some(shared) && other.has_dot()).map(|other| other.name)
}

/// The target with that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}

/// The target of an AMD device by its PCI id.
#[must_use]
pub fn by_pci(device: u16) -> Option<&'static str> {
    TARGETS.iter().find(|target| target.pci.contains(&device)).map(|target| target.name)
}

/// The target of a graphics core of that version.
#[must_use]
pub fn by_graphics_core(version: (u32, u32, u32)) -> Option<&'static str> {
    TARGETS.iter().find(|target| target.graphics_cores.contains(&version)).map(|target| target.name)
}

/// The target, or the family's generic one, that a code object's flags name.
#[must_use]
pub fn by_elf(flags: u32) -> Option<&'static str> {
    let own = TARGETS.iter().map(|target| (target.elf, target.name));
    let mut known = own.chain(OTHER_ELF.iter().copied());
    known.find(|(elf, _)| u32::from(*elf) == flags & 0xff).map(|(_, name)| name)
}

/// Reads KFD's `gfx_target_version`, e.g. 100100 for gfx1010. None for a CPU (0).
#[must_use]
pub fn by_kfd(version: u64) -> Option<String> {
    let (major, minor, step) = (version / 10000, version / 100 % 100, version % 100);
    (major > 0).then(|| format!("gfx{major}{minor:x}{step:x}"))
}

/// The target that `HSA_OVERRIDE_GFX_VERSION` claims, e.g. gfx1030 for `10.3.0`.
#[must_use]
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
#[must_use]
pub fn family(target: &str) -> &str {
    by_name(target).map_or(target, |target| target.family.generic())
}

/// True for graphics inside a processor.
#[must_use]
pub fn is_integrated(target: &str) -> bool {
    OLDER_INTEGRATED.contains(&target) || by_name(target).is_some_and(|target| target.integrated)
}

/// True for RDNA1, the cards this project is made for.
#[must_use]
pub fn is_rdna1(target: &str) -> bool {
    by_name(target).is_some_and(|target| target.family == Family::Gfx10_1)
}

/// True if code for one of `has` runs on a card of target `card` as it is.
#[must_use]
pub fn runs_on<S: AsRef<str>>(has: &[S], card: &str) -> bool {
    has.iter().any(|target| target.as_ref() == card || target.as_ref() == family(card))
}

/// The target at the start of a text such as `gfx90a68.db` or `gfx1030_36.fdb`, features (`:xnack-`) left out.
/// Hexadecimal compute unit counts follow without a gap, so the known names decide where the target ends.
#[must_use]
pub fn leading(text: &str) -> Option<&str> {
    let digits = text.strip_prefix("gfx")?;
    if let Some(family) = Family::ALL.iter().find(|family| text.starts_with(family.generic())) {
        return Some(family.generic());
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
#[must_use]
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
    fn nothing_has_two_targets() {
        let mut ids: Vec<u16> = TARGETS.iter().flat_map(|target| target.pci).copied().collect();
        let mut cores: Vec<_> = TARGETS.iter().flat_map(|target| target.graphics_cores).collect();
        let all = (ids.len(), cores.len());
        ids.sort_unstable();
        ids.dedup();
        cores.sort_unstable();
        cores.dedup();
        assert_eq!((ids.len(), cores.len()), all);
        let elf: std::collections::BTreeSet<u8> =
            TARGETS.iter().map(|target| target.elf).chain(OTHER_ELF.iter().map(|(elf, _)| *elf)).collect();
        assert_eq!(elf.len(), TARGETS.len() + OTHER_ELF.len());
        assert!(TARGETS.is_sorted_by_key(|target| target.name));
    }

    #[test]
    fn a_target_is_found_by_what_it_says_of_itself() {
        for target in TARGETS {
            assert_eq!(by_kfd(target.kfd().into()).as_deref(), Some(target.name));
            assert_eq!(by_elf(u32::from(target.elf) | 0x500), Some(target.name));
            let dot = dot_code_of(target.name);
            assert_eq!(dot.is_some(), target.has_dot() && target.code_of.is_some(), "{}", target.name);
            assert!(dot.is_none_or(|dot| by_name(dot).is_some_and(Target::has_dot)));
            let code = target.code_of.map(|name| by_name(name).expect(name));
            assert!(code.is_none_or(|code| code.code_of == Some(code.name) && code.family == target.family));
        }
        let dots = ["gfx1010", "gfx1011", "gfx1012", "gfx1030"].map(dot_code_of);
        assert_eq!(dots, [None, Some("gfx1011"), Some("gfx1011"), Some("gfx1030")]);
        assert_eq!(by_name("gfx1012").map(Target::kfd), Some(100_102));
        assert_eq!((by_elf(0x52), by_elf(0)), (Some("gfx10-1-generic"), None));
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
        assert!(is_integrated("gfx90c") && is_integrated("gfx1103") && !is_integrated("gfx1010"));
    }
}
