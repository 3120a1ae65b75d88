//! GPUs on the PCI bus, and their true targets.

use crate::facts::{Gpu, Kfd};
use crate::system::System;
use crate::targets;

pub(super) const PCI: &str = "/sys/bus/pci/devices";
/// Names for RDNA1 where libdrm's table is not installed: `amdgpu.ids` of libdrm.
const NAMES: &[(u16, u8, &str)] = &[
    (0x731f, 0xc1, "AMD Radeon RX 5700 XT"),
    (0x731f, 0xc4, "AMD Radeon RX 5700"),
    (0x731f, 0xca, "AMD Radeon RX 5600 XT"),
    (0x7340, 0xc5, "AMD Radeon RX 5500 XT"),
    (0x7340, 0xc7, "AMD Radeon RX 5500"),
];

pub(super) fn gpus(system: &System, kfd: &Kfd) -> Vec<Gpu> {
    let ids = system.text("/usr/share/libdrm/amdgpu.ids").unwrap_or_default();
    system.names(PCI).into_iter().filter_map(|address| gpu(system, kfd, &ids, address)).collect()
}

/// The true target of the card at an address, and who says so. Reads nothing of other cards: it is part of opening one.
pub(super) fn target_at(system: &System, kfd: &Kfd, address: &str) -> Option<(String, &'static str)> {
    let at = |name: &str| format!("{PCI}/{address}/{name}");
    let (vendor, device) = (hex(system, &at("vendor"))?, hex(system, &at("device"))?);
    target(system, kfd, &at("ip_discovery"), vendor, device, address)
}

fn hex<T: TryFrom<u64>>(system: &System, path: &str) -> Option<T> {
    let text = system.attribute(path)?;
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok().and_then(|n| T::try_from(n).ok())
}

fn gpu(system: &System, kfd: &Kfd, ids: &str, address: String) -> Option<Gpu> {
    let at = |name: &str| format!("{PCI}/{address}/{name}");
    let class: u32 = hex(system, &at("class"))?;
    // Display controllers, and processing accelerators.
    if class >> 16 != 0x03 && class >> 8 != 0x1200 {
        return None;
    }
    let (vendor, device): (u16, u16) = (hex(system, &at("vendor"))?, hex(system, &at("device"))?);
    let revision: u8 = hex(system, &at("revision")).unwrap_or(0);
    let render = system.names(&at("drm")).into_iter().find(|name| name.starts_with("renderD"));
    let (target, target_from) = target(system, kfd, &at("ip_discovery"), vendor, device, &address).unzip();
    let driver = system.link(&at("driver"));
    let number = |path: String| system.attribute(&path)?.parse().ok();
    Some(Gpu {
        name: name(ids, vendor, device, revision),
        target,
        target_from,
        driver: driver.and_then(|link| Some(link.rsplit('/').next()?.to_string())),
        vram_bytes: number(at("mem_info_vram_total")),
        firmware: system.attribute(&at("fw_version/mec_fw_version")),
        render_node: render.map(|name| format!("/dev/dri/{name}")),
        address,
        vendor,
        device,
        revision,
    })
}

/// The best witness's word.
fn target(
    system: &System,
    kfd: &Kfd,
    discovery: &str,
    vendor: u16,
    device: u16,
    address: &str,
) -> Option<(String, &'static str)> {
    if vendor != 0x1002 {
        return None;
    }
    // Hardware id 11 is the graphics core; newer kernels link its name, `GC`, to it.
    let core = |name: &str, field: &str| {
        system.attribute(&format!("{discovery}/die/0/{name}/0/{field}"))?.parse::<u32>().ok()
    };
    let version = ["GC", "11"]
        .iter()
        .find_map(|hw| Some((core(hw, "major")?, core(hw, "minor")?, core(hw, "revision")?)));
    let node = kfd.nodes.iter().find(|node| node.address == address);
    let found = version.and_then(targets::by_graphics_core).map(|t| (t.to_string(), "ip_discovery"));
    let found = found.or_else(|| targets::by_pci(device).map(|t| (t.to_string(), "pci")));
    found.or_else(|| Some((node?.target.clone()?, "kfd")))
}

fn name(ids: &str, vendor: u16, device: u16, revision: u8) -> String {
    let maker = match vendor {
        0x1002 => "AMD",
        0x10de => "NVIDIA",
        0x8086 => "Intel",
        // WSL's place for a card that Windows has.
        0x1414 => "Microsoft's virtual",
        _ => "unknown maker's",
    };
    let wanted = (format!("{device:04X}"), format!("{revision:02X}"));
    let listed = ids.lines().filter(|_| vendor == 0x1002).find_map(|line| {
        let mut fields = line.splitn(3, ',').map(str::trim);
        (fields.next()? == wanted.0 && fields.next()? == wanted.1).then(|| fields.next())?
    });
    let ours = || NAMES.iter().find(|(d, r, _)| vendor == 0x1002 && (*d, *r) == (device, revision));
    match listed.or_else(|| ours().map(|(_, _, name)| *name)) {
        Some(name) => name.to_string(),
        None => format!("{maker} GPU {vendor:04x}:{device:04x}"),
    }
}
