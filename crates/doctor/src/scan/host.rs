//! System, user, device nodes.

use crate::facts::{Device, Host, Rocm, User, Wsl};
use crate::system::System;
use wave32_cards::sysfs::Files as _;

pub(super) fn host(system: &System) -> Host {
    let release = system.text("/etc/os-release").or_else(|| system.text("/usr/lib/os-release"));
    let field = |name: &str| {
        let line = release.as_deref()?.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='))?;
        let value = line.trim().trim_matches(['"', '\'']);
        (!value.is_empty()).then(|| value.to_string())
    };
    let like = [field("ID"), field("ID_LIKE")].into_iter().flatten();
    let like = like.flat_map(|text| text.split_whitespace().map(String::from).collect::<Vec<_>>());
    let container =
        [("/.dockerenv", "/.dockerenv is there"), ("/run/.containerenv", "/run/.containerenv is there")];
    let container = container.iter().find(|(path, _)| system.exists(path)).map(|(_, why)| why.to_string());
    let memory = system.text("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
    });
    Host {
        system: field("PRETTY_NAME"),
        like: like.collect(),
        version: field("VERSION_ID"),
        kernel: system.attribute("/proc/sys/kernel/osrelease"),
        wsl: wsl(system),
        container: container.or_else(|| system.env("container").map(|v| format!("container={v} is set"))),
        memory_bytes: memory,
        free_bytes: system.process.free_bytes,
    }
}

/// Windows's subsystem for Linux, by what its kernel calls itself.
fn wsl(system: &System) -> Option<Wsl> {
    let version = system.attribute("/proc/version").filter(|v| v.to_lowercase().contains("microsoft"))?;
    // The first words: who built it, and with what, follows in brackets.
    let kernel = version.split(" (").next().unwrap_or_default().to_string();
    let libraries = system.is_file("/usr/lib/wsl/lib/libdxcore.so");
    Some(Wsl { kernel, dxg: system.node("/dev/dxg").is_some(), libraries, rocm: None })
}

/// What ROCm would reach Windows's GPU with: librocdxg beside it, or the runtime of versions before 7.1.
pub(super) fn rocm_for_wsl(system: &System, rocm: &[Rocm]) -> Option<String> {
    let folder = |r: &Rocm| Some(r.library("hsa")?.path.rsplit_once('/')?.0.to_string());
    let folders = rocm.iter().filter_map(folder).chain(["/opt/rocm/lib".to_string()]);
    let mut beside = folders.filter_map(|folder| {
        let name = system.names(&folder).into_iter().find(|n| n.starts_with("librocdxg.so"))?;
        Some(format!("{folder}/{name}"))
    });
    let package = "hsa-runtime-rocr4wsl-amdgpu";
    let older =
        || system.exists(&format!("/var/lib/dpkg/info/{package}.list")).then(|| format!("package {package}"));
    beside.next().or_else(older)
}

/// Lines of `/etc/group` or `/etc/passwd` as fields.
fn fields(system: &System, path: &str) -> Vec<Vec<String>> {
    let text = system.text(path).unwrap_or_default();
    text.lines().map(|line| line.split(':').map(String::from).collect()).collect()
}

fn group_name(groups: &[Vec<String>], gid: u32) -> String {
    let number = gid.to_string();
    let line = groups.iter().find(|f| f.get(2) == Some(&number));
    line.and_then(|f| f.first()).cloned().unwrap_or(number)
}

pub(super) fn user(system: &System) -> User {
    let groups = fields(system, "/etc/group");
    let name = system.process.uid.map(|uid| {
        let number = uid.to_string();
        let line = fields(system, "/etc/passwd").into_iter().find(|f| f.get(2) == Some(&number));
        line.and_then(|f| f.into_iter().next()).unwrap_or(number)
    });
    let now: Vec<String> = system.process.groups.iter().map(|gid| group_name(&groups, *gid)).collect();
    let member = |f: &&Vec<String>| {
        let members = f.get(3).map(String::as_str).unwrap_or_default();
        name.as_deref().is_some_and(|name| members.split(',').any(|m| m == name))
    };
    let listed = groups.iter().filter(member).filter_map(|f| f.first().cloned());
    let after_login = listed.filter(|g| !now.contains(g)).collect();
    User { name, groups: now, after_login }
}

/// The nodes that compute needs.
pub(super) fn devices(system: &System) -> Vec<Device> {
    let groups = fields(system, "/etc/group");
    let render = system.nodes("/dev/dri").into_iter().filter(|n| n.starts_with("renderD"));
    let fixed = ["/dev/kfd", "/dev/dxg"].map(String::from).into_iter();
    let paths = fixed.chain(render.map(|n| format!("/dev/dri/{n}")));
    let device = |path: String| {
        let node = system.node(&path)?;
        Some(Device {
            mode: format!("{:o}", node.mode),
            group: group_name(&groups, node.gid),
            usable: system.may_use(node),
            path,
        })
    };
    paths.filter_map(device).collect()
}
