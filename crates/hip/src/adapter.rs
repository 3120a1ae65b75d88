//! One card as the runtime shows it: what it is, what it truly is, what it can do, and whether our kernels run on it.

use crate::Options;
use crate::ffi::{Api, Attribute};
use crate::gpu::driver;
use std::ffi::c_int;
use wave32_cards::sysfs::{self, Files as _, ThisMachine};
use wave32_cards::{Board, Seen, targets};
use wave32_device::{DeviceError, DeviceInfo, DeviceKind};
use wave32_solve::{DeviceCaps, usual_boards};

/// Everything that is asked of a card, once.
#[derive(Debug, Clone)]
pub(crate) struct Adapter {
    pub(crate) index: c_int,
    pub(crate) info: DeviceInfo,
    pub(crate) caps: DeviceCaps,
    /// The target whose code the runtime loads.
    pub(crate) target: String,
    /// Why it cannot be used, if so.
    pub(crate) unusable: Option<String>,
}

/// Every card that the runtime offers, in its order.
pub(crate) fn all(api: &Api, options: &Options) -> Result<Vec<Adapter>, DeviceError> {
    let mut count = 0;
    // SAFETY: writes one int.
    driver(api, "hipGetDeviceCount", unsafe { (api.device_count)(&mut count) })?;
    let nodes = sysfs::kfd(&ThisMachine);
    (0..count).map(|index| describe(api, &nodes, index, options)).collect()
}

fn describe(
    api: &Api,
    nodes: &[sysfs::KfdNode],
    index: c_int,
    options: &Options,
) -> Result<Adapter, DeviceError> {
    let mut memory = 0usize;
    // SAFETY: writes one size.
    driver(api, "hipDeviceTotalMem", unsafe { (api.total_memory)(&mut memory, index) })?;
    let arch = api.arch_of(index).unwrap_or_default();
    let reported = arch.split(':').next().unwrap_or_default().to_string();
    let address = api.text_of(api.pci_bus_id, index).to_lowercase();
    let truth = sysfs::target_at(&ThisMachine, nodes, &address);
    let spoofed = spoof(&reported, truth.as_ref().map(|(target, from)| (target.as_str(), *from)), |name| {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    });
    let ask = |attribute| api.attribute_of(attribute, index);
    let virtual_card = std::env::var_os("WAVE32_VGPU_CARD").is_some();
    let info = DeviceInfo {
        id: format!("hip:{index}"),
        name: Some(api.text_of(api.device_name, index)).filter(|n| !n.is_empty()).unwrap_or(reported.clone()),
        driver: format!(
            "HIP {} ({}), {arch}{}",
            api.version(),
            api.name,
            if virtual_card { ", a virtual card: executed by the CPU" } else { "" }
        ),
        kind: match ask(Attribute::Integrated) {
            _ if virtual_card => DeviceKind::Cpu,
            Some(1) => DeviceKind::Integrated,
            _ => DeviceKind::Discrete,
        },
        memory_bytes: memory as u64,
    };
    let board = board(nodes, &address, &info, ask);
    let wave_size = ask(Attribute::WarpSize).unwrap_or(0);
    let unusable = match spoofed {
        Some(why) if !options.allow_spoof => Some(why),
        _ if reported.is_empty() => Some("the HIP runtime does not say which gfx target it has".into()),
        _ if wave_size != 32 => Some(format!("its waves have {wave_size} lanes, the kernels are for 32")),
        _ => options.kernels.codes(&reported).err(),
    };
    Ok(Adapter { index, info, caps: caps(&reported, board, memory as u64, ask), target: reported, unusable })
}

/// The embedded code for a target: its own, or that of its family's generic target.
///
/// # Errors
/// Why there is no card, and the next step.
pub(crate) fn codes(target: &str) -> Result<Vec<&'static [u8]>, String> {
    let own = wave32_kernels::code_objects(target);
    own.or_else(|missing| wave32_kernels::code_objects(targets::family(target)).map_err(|_| missing)).map_err(
        |missing| {
            format!(
                "{missing} (nor for the generic target {}); use `--device vulkan`, or rebuild wave32 with code for it",
                targets::family(target)
            )
        },
    )
}

/// Why the runtime is not to be believed about a card's target, if so.
///
/// Code for another target than the card's own hangs it or worse, and only a variable makes the runtime load such
/// code. One that says what is true anyway does no harm.
fn spoof(
    reported: &str,
    truth: Option<(&str, &str)>,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    const NAME: &str = "HSA_OVERRIDE_GFX_VERSION";
    const NEXT: &str = "unset it, or take `--device vulkan`; WAVE32_ALLOW_SPOOF=1 goes on all the same";
    let set = variable(NAME)
        .map_or("a variable such as HSA_OVERRIDE_GFX_VERSION".into(), |value| format!("{NAME}={value}"));
    match truth {
        Some((truth, _)) if truth == reported => None,
        Some((truth, from)) => Some(format!(
            "{set} makes the runtime take it for {reported}, but it is a {truth} (says {from}): code for another card \
             hangs it; {NEXT}"
        )),
        None => variable(NAME)
            .map(|_| format!("{set} is set, and what the card really is cannot be told here; {NEXT}")),
    }
}

/// The board at a PCI address, where it is known.
fn board(
    nodes: &[sysfs::KfdNode],
    address: &str,
    info: &DeviceInfo,
    ask: impl Fn(Attribute) -> Option<u32>,
) -> Option<&'static Board> {
    let at = |name: &str| format!("{}/{address}/{name}", sysfs::PCI);
    let listed = nodes.iter().find(|node| node.address == address).map(|node| node.device);
    wave32_cards::find(&Seen {
        device: ThisMachine.hex(&at("device")).or(listed)?,
        revision: ThisMachine.hex(&at("revision")),
        name: &info.name,
        // RDNA's runtime counts work group processors, which are two each.
        compute_units: ask(Attribute::MultiprocessorCount).filter(|&n| n > 0).map(|n| n * 2),
        memory_bytes: Some(info.memory_bytes),
        memory_mhz: ask(Attribute::MemoryClockRate).filter(|&khz| khz > 0).map(|khz| khz / 1000),
    })
}

/// Limits as the runtime tells them. Rates are the board's where it is known, so that the plans are those that `explain`
/// shows for it; else they come from the runtime's clocks, and the rest is as for RDNA1.
///
/// - Compute units: RDNA's runtime counts work group processors, which are two each.
/// - Bandwidth: GDDR6 moves 16 bits a pin and memory clock as amdgpu counts them; where that gives nothing
///   plausible, 10 GB/s a compute unit.
fn caps(
    target: &str,
    board: Option<&Board>,
    memory_bytes: u64,
    ask: impl Fn(Attribute) -> Option<u32>,
) -> DeviceCaps {
    let usual = usual_boards();
    let like = usual.iter().find(|board| board.target().name == target).unwrap_or(&usual[0]);
    let model = DeviceCaps::of(board.unwrap_or(like));
    let rates =
        if board.is_some() { model.clone() } else { DeviceCaps { memory_bytes, ..told(&model, &ask) } };
    let limit = |attribute, most: u32| ask(attribute).filter(|&n| n > 0).map_or(most, |n| n.min(most));
    DeviceCaps {
        lds_per_group: limit(Attribute::MaxSharedMemoryPerBlock, model.lds_per_group),
        max_group_threads: limit(Attribute::MaxThreadsPerBlock, model.max_group_threads),
        max_groups: [
            // A dispatch packet counts work items, in 32 bits a dimension.
            limit(Attribute::MaxGridDimX, u32::MAX / model.max_group_threads),
            limit(Attribute::MaxGridDimY, model.max_groups[1]),
            limit(Attribute::MaxGridDimZ, model.max_groups[2]),
        ],
        ..rates
    }
    .by_hip(target)
}

/// A card's rates by the runtime's numbers, where its board is not known.
fn told(model: &DeviceCaps, ask: &impl Fn(Attribute) -> Option<u32>) -> DeviceCaps {
    let compute_units = match ask(Attribute::MultiprocessorCount).filter(|&n| n > 0) {
        Some(processors) => processors * 2,
        None => model.compute_units,
    };
    let bytes = f64::from(ask(Attribute::MemoryBusWidth).unwrap_or(0)) / 8.0;
    let bandwidth = f64::from(ask(Attribute::MemoryClockRate).unwrap_or(0)) * 1e3 * 16.0 * bytes / 1e9;
    DeviceCaps {
        compute_units,
        clock_mhz: ask(Attribute::ClockRate)
            .map(|khz| khz / 1000)
            .filter(|&mhz| mhz > 0)
            .unwrap_or(model.clock_mhz),
        bandwidth_gbs: match bandwidth {
            20.0..=4000.0 => bandwidth,
            _ => 10.0 * f64::from(compute_units),
        },
        ..model.clone()
    }
}

/// Rank for the automatic choice; larger is better.
pub(crate) fn rank(info: &DeviceInfo) -> (bool, u64) {
    (info.kind == DeviceKind::Discrete, info.memory_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spoofs_are_seen_and_truths_are_not() {
        let none = |_: &str| None;
        let says = |value: &'static str| {
            move |name: &str| (name == "HSA_OVERRIDE_GFX_VERSION").then(|| value.into())
        };
        assert_eq!(spoof("gfx1010", Some(("gfx1010", "kfd")), none), None);
        assert_eq!(spoof("gfx1010", None, none), None);
        assert_eq!(spoof("gfx1010", Some(("gfx1010", "kfd")), says("10.1.0")), None, "it says what is true");
        let text = spoof("gfx1030", Some(("gfx1010", "pci")), says("10.3.0")).unwrap();
        for word in ["HSA_OVERRIDE_GFX_VERSION=10.3.0", "gfx1030", "gfx1010", "pci", "WAVE32_ALLOW_SPOOF"] {
            assert!(text.contains(word), "{text}");
        }
        // By another variable, or a patched runtime.
        assert!(spoof("gfx1030", Some(("gfx1010", "pci")), none).is_some());
        assert!(spoof("gfx1030", None, says("10.3.0")).is_some_and(|text| text.contains("cannot be told")));
    }

    #[test]
    fn code_is_for_the_target_or_its_family() {
        for target in wave32_kernels::targets() {
            assert!(codes(target).is_ok(), "{target}");
        }
        let text = codes("gfx1013").unwrap_err();
        assert!(
            text.contains("gfx1013") && text.contains("gfx10-1-generic") && text.contains("vulkan"),
            "{text}"
        );
    }

    #[test]
    fn capabilities_are_plausible_even_where_the_runtime_says_nothing() {
        let rdna3 = wave32_cards::by_id("rx7900xtx");
        assert!(!caps("gfx1100", rdna3, 24 << 30, |_| None).float16_matrix, "its kernels are for Vulkan");
        let silent = caps("gfx1010", None, 8 << 30, |_| None);
        assert_eq!((silent.compute_units, silent.max_groups[0]), (36, u32::MAX / 1024));
        assert!((silent.bandwidth_gbs - 360.0).abs() < 1.0);
        // An RX 5700 XT as amdgpu reports it.
        let told = caps("gfx1010", None, 8 << 30, |attribute| match attribute {
            Attribute::MultiprocessorCount => Some(20),
            Attribute::ClockRate => Some(2_100_000),
            Attribute::MemoryClockRate => Some(875_000),
            Attribute::MemoryBusWidth => Some(256),
            Attribute::MaxGridDimX => Some(i32::MAX as u32),
            _ => None,
        });
        assert_eq!((told.compute_units, told.clock_mhz, told.max_groups[0]), (40, 2100, u32::MAX / 1024));
        assert!((told.bandwidth_gbs - 448.0).abs() < 1.0, "{}", told.bandwidth_gbs);
    }
}
