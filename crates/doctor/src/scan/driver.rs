//! The amdgpu kernel module, KFD and the kernel's log.

use crate::facts::{Driver, Event, Kfd, KfdNode, Log};
use crate::system::System;
use crate::targets;
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection as _, ReadCache};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};

const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";
const MODULE: &str = "/sys/module/amdgpu";
/// Parameters that bear on compute, with their defaults, which are not worth a line.
const PARAMETERS: &[(&str, &[&str])] = &[
    ("cwsr_enable", &["1"]),
    ("gpu_recovery", &["-1"]),
    ("halt_if_hws_hang", &["0"]),
    ("hws_max_conc_proc", &["-1"]),
    ("lockup_timeout", &[""]),
    ("mes", &["0", "-1"]),
    ("noretry", &["-1"]),
    ("num_kcq", &["-1"]),
    ("ppfeaturemask", &["0xfff7bfff", "0xfff7ffff", "4294426623"]),
    ("queue_preemption_timeout_ms", &["9000"]),
    ("runpm", &["-1"]),
    ("sched_policy", &["0"]),
    ("vm_update_mode", &["-1"]),
];
/// Bits of a link's flags (linux `include/uapi/linux/kfd_sysfs.h`).
const NO_ATOMICS: u64 = 1 << 2 | 1 << 3;
/// The end of a log that is read.
const LOG_BYTES: u64 = 4 << 20;

/// Reads `name value` lines.
fn properties(system: &System, path: &str) -> BTreeMap<String, u64> {
    let text = system.text(path).unwrap_or_default();
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_string(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

pub(super) fn kfd(system: &System) -> Kfd {
    let mut nodes = Vec::new();
    let names = system.names(NODES);
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    for node in numbers {
        let name = node;
        let found = properties(system, &format!("{NODES}/{name}/properties"));
        let field = |name: &str| found.get(name).copied().unwrap_or(0);
        // Processors have neither.
        if field("simd_count") == 0 && field("gfx_target_version") == 0 {
            continue;
        }
        let (location, domain) = (field("location_id"), field("domain"));
        let links = format!("{NODES}/{name}/io_links");
        let flags = system.names(&links).into_iter().find_map(|link| {
            let link = properties(system, &format!("{links}/{link}/properties"));
            // Type 2 is PCI Express.
            (link.get("type") == Some(&2)).then(|| link.get("flags").copied())?
        });
        nodes.push(KfdNode {
            node,
            device: u16::try_from(field("device_id")).unwrap_or(0),
            address: format!(
                "{domain:04x}:{:02x}:{:02x}.{:x}",
                location >> 8 & 0xff,
                location >> 3 & 0x1f,
                location & 7
            ),
            target: targets::by_kfd(field("gfx_target_version")),
            atomics: flags.map(|flags| flags & NO_ATOMICS == 0),
        });
    }
    Kfd { present: system.is_dir(NODES), nodes }
}

pub(super) fn driver(system: &System, kernel: Option<&str>) -> Driver {
    let at = |name: &str| system.attribute(&format!("{MODULE}/{name}"));
    let parameters = PARAMETERS.iter().filter_map(|(name, defaults)| {
        let value = at(&format!("parameters/{name}"))?;
        (!defaults.contains(&value.as_str())).then(|| (name.to_string(), value))
    });
    let mut dkms = Vec::new();
    for version in system.names("/var/lib/dkms/amdgpu") {
        // `kernel-...` are links for each kernel that it was built for.
        if !version.starts_with("kernel-") && system.is_dir(&format!("/var/lib/dkms/amdgpu/{version}")) {
            dkms.push(version);
        }
    }
    let file = kernel.and_then(|release| {
        let folder = format!("/lib/modules/{release}");
        let index = system.text(&format!("{folder}/modules.dep"));
        let listed = index.as_deref().and_then(|text| {
            text.lines().find_map(|l| l.split(':').next().filter(|p| p.contains("/amdgpu.ko")))
        });
        let usual = ["updates/dkms/amdgpu.ko", "kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko"];
        let paths = listed.into_iter().chain(usual).map(|p| format!("{folder}/{p}"));
        paths.into_iter().find_map(|path| file_srcversion(system, &path))
    });
    Driver {
        loaded: system.is_dir(MODULE),
        version: at("version"),
        srcversion: at("srcversion"),
        file_srcversion: file,
        taint: at("taint"),
        dkms,
        parameters: parameters.collect(),
    }
}

/// `srcversion` of a module file that is not compressed.
fn file_srcversion(system: &System, path: &str) -> Option<String> {
    let cache = ReadCache::new(system.open(path)?);
    let elf = ElfFile64::<LittleEndian, _>::parse(&cache).ok()?;
    let section = elf.section_by_name(".modinfo")?;
    let data = section.data().ok()?;
    let text = data.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(b"srcversion="))?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Kinds of lines, by words that all have to be there (linux `drivers/gpu/drm/amd`).
const KINDS: &[(&str, &[&[&str]])] = &[
    (
        "preemption",
        &[
            &["preemption", "fail"],
            &["preemption", "time out"],
            &["unmapping queues failed"],
            &["cp might be in an unrecoverable state"],
            &["Failed to evict process queues"],
        ],
    ),
    ("ring-timeout", &[&["ring ", " timeout"]]),
    ("reset", &[&["GPU reset"]]),
    ("atomics", &[&["PCI rejects atomics"]]),
    ("page-fault", &[&["hub] page fault"], &["hub] retry page fault"]]),
    ("firmware", &[&["firmware: failed to load amdgpu/"], &["Direct firmware load for amdgpu/", "failed"]]),
];

pub(super) fn log(system: &System) -> Log {
    if system.live
        && let Some(text) = messages()
    {
        return kernel_log("/dev/kmsg", &text);
    }
    let files = ["/var/log/kern.log", "/var/log/dmesg", "/var/log/kern.log.1"];
    let found = files.iter().find_map(|path| Some((*path, tail(system, path)?)));
    match found {
        Some((path, text)) => kernel_log(path, &text),
        None => Log::default(),
    }
}

/// Sorts the lines of a kernel log.
pub fn kernel_log(source: &str, text: &str) -> Log {
    let mut events: Vec<Event> = Vec::new();
    let lines = text.lines().filter(|l| l.contains("amdgpu") || l.contains("kfd") || l.contains("amdkfd"));
    for line in lines {
        let has = |words: &&[&str]| words.iter().all(|w| line.contains(w));
        let Some((kind, _)) = KINDS.iter().find(|(_, patterns)| patterns.iter().any(has)) else { continue };
        match events.iter_mut().find(|e| e.kind == *kind) {
            Some(event) => (event.count, event.line) = (event.count + 1, line.trim().to_string()),
            None => events.push(Event { kind, count: 1, line: line.trim().to_string() }),
        }
    }
    Log { source: Some(source.to_string()), events }
}

/// The kernel's own buffer, where the user may read it. Every read is one record, and none waits.
#[cfg(unix)]
fn messages() -> Option<String> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg").ok()?;
    let (mut text, mut record) = (String::new(), vec![0; 8 << 10]);
    while text.len() < LOG_BYTES as usize {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(length) => {
                let line = String::from_utf8_lossy(&record[..length]).into_owned();
                // `priority,number,time,flags;message`, then properties.
                text += line.split_once(';').map_or("", |(_, m)| m).lines().next().unwrap_or_default();
                text.push('\n');
            }
            // The oldest records were overwritten meanwhile.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
            Err(_) => break,
        }
    }
    Some(text)
}

#[cfg(not(unix))]
fn messages() -> Option<String> {
    None
}

fn tail(system: &System, path: &str) -> Option<String> {
    let mut file = system.open(path)?;
    let size = system.size(path)?;
    file.seek(SeekFrom::Start(size.saturating_sub(LOG_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
