//! SOPK's and SOPP's 16 bits by name: counters, hardware registers, messages.

use std::fmt;

use crate::Slot;

/// Writes `imm` as its slot wants it.
pub(super) fn simm(f: &mut fmt::Formatter<'_>, slot: Slot, imm: u16) -> fmt::Result {
    match slot {
        Slot::Simm if imm > 64 => write!(f, "{imm:#x}"),
        Slot::Hex => write!(f, "{imm:#x}"),
        Slot::Hwreg => hwreg(f, imm),
        Slot::Waitcnt => waitcnt(f, imm),
        Slot::Msg => message(f, imm),
        Slot::Depctr => depctr(f, imm),
        Slot::Version => version(f, imm),
        _ => write!(f, "{imm}"),
    }
}

/// Of `s_waitcnt`: VMCNT in bits 3:0 and 15:14, EXPCNT in 6:4, LGKMCNT in 13:8 (RDNA ISA 4.4).
fn waitcnt(f: &mut fmt::Formatter<'_>, imm: u16) -> fmt::Result {
    let counters = [
        ("vmcnt", imm & 15 | imm >> 10 & 0x30, 63),
        ("expcnt", imm >> 4 & 7, 7),
        ("lgkmcnt", imm >> 8 & 63, 63),
    ];
    let all = counters.iter().all(|&(_, value, idle)| value == idle);
    let mut space = "";
    for (name, value, idle) in counters {
        if all || value != idle {
            write!(f, "{space}{name}({value})")?;
            space = " ";
        }
    }
    Ok(())
}

/// ID in bits 5:0, first bit in 10:6, bits less one in 15:11.
fn hwreg(f: &mut fmt::Formatter<'_>, imm: u16) -> fmt::Result {
    let (offset, size) = (imm >> 6 & 31, (imm >> 11) + 1);
    f.write_str("hwreg(")?;
    let name = match imm & 63 {
        1 => "MODE",
        2 => "STATUS",
        3 => "TRAPSTS",
        5 => "GPR_ALLOC",
        6 => "LDS_ALLOC",
        7 => "IB_STS",
        15 => "SH_MEM_BASES",
        16 => "TBA_LO",
        17 => "TBA_HI",
        18 => "TMA_LO",
        19 => "TMA_HI",
        20 => "FLAT_SCR_LO",
        21 => "FLAT_SCR_HI",
        22 => "XNACK_MASK",
        23 => "HW_ID1",
        24 => "HW_ID2",
        25 => "POPS_PACKER",
        _ => "",
    };
    if name.is_empty() {
        write!(f, "{}", imm & 63)?;
    } else {
        write!(f, "HW_REG_{name}")?;
    }
    if offset != 0 || size != 32 {
        write!(f, ", {offset}, {size}")?;
    }
    f.write_str(")")
}

/// Message in bits 3:0, operation in 6:4, stream in 9:8.
fn message(f: &mut fmt::Formatter<'_>, imm: u16) -> fmt::Result {
    let (id, op, stream) = (imm & 15, imm >> 4 & 7, imm >> 8 & 3);
    let geometry = match (id, op, stream) {
        (3, 0, 0) => Some("NOP"),
        (2 | 3, 1, _) => Some("CUT"),
        (2 | 3, 2, _) => Some("EMIT"),
        (2 | 3, 3, _) => Some("EMIT_CUT"),
        _ => None,
    };
    let system = match (id, op, stream) {
        (15, 1, 0) => Some("ECC_ERR_INTERRUPT"),
        (15, 2, 0) => Some("REG_RD"),
        (15, 4, 0) => Some("TTRACE_PC"),
        _ => None,
    };
    let plain = match (id, op, stream) {
        (1, 0, 0) => Some("INTERRUPT"),
        (4, 0, 0) => Some("SAVEWAVE"),
        (5, 0, 0) => Some("STALL_WAVE_GEN"),
        (6, 0, 0) => Some("HALT_WAVES"),
        (7, 0, 0) => Some("ORDERED_PS_DONE"),
        (8, 0, 0) => Some("EARLY_PRIM_DEALLOC"),
        (9, 0, 0) => Some("GS_ALLOC_REQ"),
        (10, 0, 0) => Some("GET_DOORBELL"),
        (11, 0, 0) => Some("GET_DDID"),
        _ => None,
    };
    if let Some(name) = plain {
        write!(f, "sendmsg(MSG_{name})")
    } else if let Some(name) = system {
        write!(f, "sendmsg(MSG_SYSMSG, SYSMSG_OP_{name})")
    } else if let Some(name) = geometry {
        let done = if id == 3 { "_DONE" } else { "" };
        write!(f, "sendmsg(MSG_GS{done}, GS_OP_{name}")?;
        if op == 0 { f.write_str(")") } else { write!(f, ", {stream})") }
    } else if id | op << 4 | stream << 8 == imm {
        write!(f, "sendmsg({id}, {op}, {stream})")
    } else {
        write!(f, "{imm}")
    }
}

/// `s_version`: a generation in bits 7:0, then flags.
fn version(f: &mut fmt::Formatter<'_>, imm: u16) -> fmt::Result {
    let name = match imm & 0x1fff {
        0 => "UC_VERSION_GFX7",
        4 => "UC_VERSION_GFX10",
        6 => "UC_VERSION_GFX11",
        9 => "UC_VERSION_GFX12",
        1..0x100 => &(imm & 0xff).to_string(),
        _ => return write!(f, "{imm:#x}"),
    };
    let flags = [("W64", 0x2000), ("W32", 0x4000), ("MDP", 0x8000)];
    let flags = flags.iter().filter(|(_, bit)| imm & bit != 0);
    f.write_str(&"(".repeat(flags.clone().count().saturating_sub(1)))?;
    f.write_str(name)?;
    for (i, (flag, _)) in flags.enumerate() {
        write!(f, "{}|UC_VERSION_{flag}_BIT", if i > 0 { ")" } else { "" })?;
    }
    Ok(())
}

/// Dependency counters; bits 7:5 mean nothing.
fn depctr(f: &mut fmt::Formatter<'_>, imm: u16) -> fmt::Result {
    if imm & 0xe0 != 0 {
        return write!(f, "{imm:#x}");
    }
    let counters = [
        ("sa_sdst", imm & 1, 1),
        ("va_vdst", imm >> 12, 15),
        ("va_sdst", imm >> 9 & 7, 7),
        ("va_ssrc", imm >> 8 & 1, 1),
        ("va_vcc", imm >> 1 & 1, 1),
        ("vm_vsrc", imm >> 2 & 7, 7),
    ];
    let all = counters.iter().all(|&(_, value, idle)| value == idle);
    let mut space = "";
    for (name, value, idle) in counters {
        if all || value != idle {
            write!(f, "{space}depctr_{name}({value})")?;
            space = " ";
        }
    }
    Ok(())
}

/// MTBUF's data formats by number (RDNA ISA 8.1.8); what is behind them has no name.
const BUFFER_FORMATS: [&str; 78] = [
    "INVALID",
    "8_UNORM",
    "8_SNORM",
    "8_USCALED",
    "8_SSCALED",
    "8_UINT",
    "8_SINT",
    "16_UNORM",
    "16_SNORM",
    "16_USCALED",
    "16_SSCALED",
    "16_UINT",
    "16_SINT",
    "16_FLOAT",
    "8_8_UNORM",
    "8_8_SNORM",
    "8_8_USCALED",
    "8_8_SSCALED",
    "8_8_UINT",
    "8_8_SINT",
    "32_UINT",
    "32_SINT",
    "32_FLOAT",
    "16_16_UNORM",
    "16_16_SNORM",
    "16_16_USCALED",
    "16_16_SSCALED",
    "16_16_UINT",
    "16_16_SINT",
    "16_16_FLOAT",
    "10_11_11_UNORM",
    "10_11_11_SNORM",
    "10_11_11_USCALED",
    "10_11_11_SSCALED",
    "10_11_11_UINT",
    "10_11_11_SINT",
    "10_11_11_FLOAT",
    "11_11_10_UNORM",
    "11_11_10_SNORM",
    "11_11_10_USCALED",
    "11_11_10_SSCALED",
    "11_11_10_UINT",
    "11_11_10_SINT",
    "11_11_10_FLOAT",
    "10_10_10_2_UNORM",
    "10_10_10_2_SNORM",
    "10_10_10_2_USCALED",
    "10_10_10_2_SSCALED",
    "10_10_10_2_UINT",
    "10_10_10_2_SINT",
    "2_10_10_10_UNORM",
    "2_10_10_10_SNORM",
    "2_10_10_10_USCALED",
    "2_10_10_10_SSCALED",
    "2_10_10_10_UINT",
    "2_10_10_10_SINT",
    "8_8_8_8_UNORM",
    "8_8_8_8_SNORM",
    "8_8_8_8_USCALED",
    "8_8_8_8_SSCALED",
    "8_8_8_8_UINT",
    "8_8_8_8_SINT",
    "32_32_UINT",
    "32_32_SINT",
    "32_32_FLOAT",
    "16_16_16_16_UNORM",
    "16_16_16_16_SNORM",
    "16_16_16_16_USCALED",
    "16_16_16_16_SSCALED",
    "16_16_16_16_UINT",
    "16_16_16_16_SINT",
    "16_16_16_16_FLOAT",
    "32_32_32_UINT",
    "32_32_32_SINT",
    "32_32_32_FLOAT",
    "32_32_32_32_UINT",
    "32_32_32_32_SINT",
    "32_32_32_32_FLOAT",
];

/// The default, `8_UNORM`, goes without saying.
pub(super) fn buffer_format(f: &mut fmt::Formatter<'_>, format: u8) -> fmt::Result {
    match BUFFER_FORMATS.get(usize::from(format)) {
        _ if format == 1 => Ok(()),
        Some(name) => write!(f, " format:[BUF_FMT_{name}]"),
        None => write!(f, " format:{format}"),
    }
}
