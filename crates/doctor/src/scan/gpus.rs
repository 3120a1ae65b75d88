//! GPUs on the PCI bus, and their true targets.

use crate::facts::{Gpu, Kfd};
use crate::system::System;
use wave32_cards::Seen;
use wave32_cards::sysfs::{AMD, Files as _, PCI, target_at};

pub(super) fn gpus(system: &System, kfd: &Kfd) -> Vec<Gpu> {
    let ids = system.text("/usr/share/libdrm/amdgpu.ids").unwrap_or_default();
    system.names(PCI).into_iter().filter_map(|address| gpu(system, kfd, &ids, address)).collect()
}

fn gpu(system: &System, kfd: &Kfd, ids: &str, address: String) -> Option<Gpu> {
    let at = |name: &str| format!("{PCI}/{address}/{name}");
    let class: u32 = system.hex(&at("class"))?;
    // Display controllers, and processing accelerators.
    if class >> 16 != 0x03 && class >> 8 != 0x1200 {
        return None;
    }
    let (vendor, device): (u16, u16) = (system.hex(&at("vendor"))?, system.hex(&at("device"))?);
    let revision: u8 = system.hex(&at("revision")).unwrap_or(0);
    let render = system.names(&at("drm")).into_iter().find(|name| name.starts_with("renderD"));
    let (target, target_from) = target_at(system, &kfd.nodes, &address).unzip();
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

fn name(ids: &str, vendor: u16, device: u16, revision: u8) -> String {
    let maker = match vendor {
        AMD => "AMD",
        0x10de => "NVIDIA",
        0x8086 => "Intel",
        // WSL's place for a card that Windows has.
        0x1414 => "Microsoft's virtual",
        _ => "unknown maker's",
    };
    let wanted = (format!("{device:04X}"), format!("{revision:02X}"));
    let listed = ids.lines().filter(|_| vendor == AMD).find_map(|line| {
        let mut fields = line.splitn(3, ',').map(str::trim);
        (fields.next()? == wanted.0 && fields.next()? == wanted.1).then(|| fields.next())?
    });
    if let Some(name) = listed {
        return name.to_string();
    }
    let seen = Seen { device, revision: Some(revision), ..Seen::default() };
    match wave32_cards::find(&seen).filter(|board| vendor == AMD && board.revisions.contains(&revision)) {
        Some(board) => board.full_name(),
        None => format!("{maker} GPU {vendor:04x}:{device:04x}"),
    }
}
