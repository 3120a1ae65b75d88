//! Recorded machines as text, made into trees of real files.
//!
//! A `tree.txt` has one line a thing, since names of sysfs (`0000:03:00.0`) cannot be checked out everywhere:
//!
//!     file PATH              a file; its lines follow, each behind `| `
//!     one PATH TEXT          a file of one line
//!     link PATH TARGET       a symbolic link
//!     library PATH STRING... a shared library that holds these C strings
//!     defines PATH NAME...   a shared library that defines these functions
//!     fat PATH TARGET...     a shared library with a fat binary, as clang bundles it
//!     packed PATH            a shared library whose code is in archives beside it
//!     kpack PATH TARGET...   such an archive
//!     ours PATH NAME VERSION [cut]   a library of wave32's, or the beginning of one
//!     gpu ADDRESS DEVICE REVISION GIB CORE RENDER    its sysfs; CORE is a version or `-`
//!     kfd NODE ADDRESS DEVICE TARGET FLAGS           its node in KFD's topology
#![allow(dead_code, reason = "each test file uses its part")]

#[path = "../../../host/tests/common/mod.rs"]
mod own;

pub use own::ours;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes the tree that the text describes under a folder.
pub fn build(root: &Path, text: &str) {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["" | "#", ..] => {}
            ["file", path] => {
                let mut body = String::new();
                while let Some(content) = lines.next_if(|l| l.starts_with('|')) {
                    body += content[1..].strip_prefix(' ').unwrap_or_default();
                    body.push('\n');
                }
                write(root, path, body.as_bytes());
            }
            ["one", path, text @ ..] => write(root, path, format!("{}\n", text.join(" ")).as_bytes()),
            ["link", path, target] => link(root, path, target),
            ["library", path, strings @ ..] => write(root, path, &elf(&[rodata(strings)], &[])),
            ["defines", path, names @ ..] => write(root, path, &elf(&[], names)),
            ["fat", path, targets @ ..] => write(root, path, &elf(&[(".hip_fatbin", bundle(targets))], &[])),
            ["packed", path] => write(root, path, &elf(&[(".rocm_kpack_ref", vec![0x80])], &[])),
            ["ours", path, name, version, cut @ ..] => {
                write(root, path, &ours(name, version, !cut.is_empty()))
            }
            ["kpack", path, targets @ ..] => write(root, path, &kpack(targets)),
            ["gpu", address, device, revision, gib, core, render] => {
                gpu(root, address, device, revision, gib, core, render);
            }
            ["kfd", node, address, device, target, flags] => kfd(root, node, address, device, target, flags),
            _ => panic!("tree: {line}"),
        }
    }
}

fn at(root: &Path, path: &str) -> PathBuf {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

fn write(root: &Path, path: &str, bytes: &[u8]) {
    fs::write(at(root, path), bytes).unwrap();
}

fn link(root: &Path, path: &str, target: &str) {
    std::os::unix::fs::symlink(target, at(root, path)).unwrap();
}

fn gpu(root: &Path, address: &str, device: &str, revision: &str, gib: &str, core: &str, render: &str) {
    let base = format!("/sys/bus/pci/devices/{address}");
    let one = |name: &str, text: &str| write(root, &format!("{base}/{name}"), format!("{text}\n").as_bytes());
    one("class", "0x030000");
    one("vendor", "0x1002");
    one("device", device);
    one("revision", revision);
    one("mem_info_vram_total", &(gib.parse::<u64>().unwrap() << 30).to_string());
    one(&format!("drm/{render}/dev"), "226:128");
    link(root, &format!("{base}/driver"), "../../../../bus/pci/drivers/amdgpu");
    let parts: Vec<&str> = core.split('.').collect();
    if let [major, minor, step] = parts.as_slice() {
        for (name, text) in [("major", major), ("minor", minor), ("revision", step)] {
            one(&format!("ip_discovery/die/0/GC/0/{name}"), text);
        }
    }
}

fn kfd(root: &Path, node: &str, address: &str, device: &str, target: &str, flags: &str) {
    let base = format!("/sys/class/kfd/kfd/topology/nodes/{node}");
    let hex = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let bus = hex(&address[5..7]) << 8 | hex(&address[8..10]) << 3;
    let properties = format!(
        "simd_count 80\nvendor_id 4098\ndevice_id {}\nlocation_id {bus}\ndomain 0\ngfx_target_version {target}\n",
        hex(device)
    );
    write(root, &format!("{base}/properties"), properties.as_bytes());
    let link = format!("type 2\nnode_from {node}\nnode_to 0\nflags {flags}\n");
    write(root, &format!("{base}/io_links/0/properties"), link.as_bytes());
}

/// Puts a program into a folder: a script for sh.
///
/// A child writes it. The kernel runs no file that some process holds open for writing (ETXTBSY), and a child that
/// another thread starts holds for a moment whatever this process has open.
pub fn program(folder: &Path, name: &str, script: &str) {
    fs::create_dir_all(folder).unwrap();
    let text = tempfile::NamedTempFile::new().unwrap();
    fs::write(text.path(), format!("#!/bin/sh\n{script}\n")).unwrap();
    let install = Command::new("install").arg("-m755").args([text.path(), &folder.join(name)]).status();
    assert!(install.unwrap().success());
}

fn rodata(strings: &[&str]) -> (&'static str, Vec<u8>) {
    (".rodata", strings.iter().flat_map(|s| format!("{s}\0").into_bytes()).collect())
}

/// A bundle of empty code objects.
pub fn bundle(targets: &[&str]) -> Vec<u8> {
    let empty: Vec<(&str, Vec<u8>)> = targets.iter().map(|t| (*t, Vec::new())).collect();
    bundle_of(&empty)
}

/// A bundle ("Clang Offload Bundler": magic, count; offset, size, length, name of each; then the contents).
pub fn bundle_of(objects: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut out = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    out.extend((objects.len() as u64 + 1).to_le_bytes());
    let (mut at, mut bodies) = (4096u64, Vec::new());
    let host = [("host-x86_64-unknown-linux--".to_string(), &Vec::new())];
    let devices = objects.iter().map(|(t, body)| (format!("hipv4-amdgcn-amd-amdhsa--{t}"), body));
    for (name, body) in host.into_iter().chain(devices) {
        for field in [at, body.len() as u64, name.len() as u64] {
            out.extend(field.to_le_bytes());
        }
        out.extend(name.bytes());
        bodies.extend(body);
        bodies.resize(bodies.len().next_multiple_of(4096), 0);
        at = 4096 + bodies.len() as u64;
    }
    out.resize(4096, 0);
    out.extend(bodies);
    out
}

fn kpack(targets: &[&str]) -> Vec<u8> {
    let mut out = b"KPAK".to_vec();
    out.extend(1u32.to_le_bytes());
    out.extend(16u64.to_le_bytes());
    out.extend(b"\xaagfx_arches\x91");
    for target in targets {
        out.push(0xa0 | target.len() as u8);
        out.extend(target.bytes());
    }
    out
}

/// A 64-bit ELF shared object with these sections and dynamic functions ("System V ABI", chapter 4).
fn elf(sections: &[(&str, Vec<u8>)], functions: &[&str]) -> Vec<u8> {
    let (mut strings, mut symbols) = (vec![0], vec![0; 24]);
    for name in functions {
        let index = strings.len() as u32;
        strings.extend(name.bytes().chain([0]));
        symbols.extend(index.to_le_bytes());
        symbols.extend([0x12, 0, 1, 0]); // a global function of section 1
        symbols.extend(0x1000u64.to_le_bytes());
        symbols.extend(16u64.to_le_bytes());
    }
    let count = sections.len() as u32;
    // Name, type, contents, linked section, size of an entry.
    let mut all: Vec<(&str, u32, Vec<u8>, u32, u64)> = vec![("", 0, Vec::new(), 0, 0)];
    all.extend(sections.iter().map(|(name, body)| (*name, 1, body.clone(), 0, 0)));
    all.push((".dynsym", 11, symbols, count + 2, 24));
    all.push((".dynstr", 3, strings, 0, 0));
    let mut names = Vec::new();
    let mut headers = Vec::new();
    let mut body = vec![0; 64];
    all.push((".shstrtab", 3, Vec::new(), 0, 0));
    let last = all.len() - 1;
    for (index, (name, kind, contents, linked, entry)) in all.iter().enumerate() {
        let name_at = names.len() as u32;
        names.extend(name.bytes().chain([0]));
        let contents = if index == last { &names } else { contents };
        body.resize(body.len().next_multiple_of(4096), 0);
        headers.extend(name_at.to_le_bytes());
        headers.extend(kind.to_le_bytes());
        for field in [2, 0, body.len() as u64, contents.len() as u64] {
            headers.extend(field.to_le_bytes());
        }
        headers.extend(linked.to_le_bytes());
        headers.extend(1u32.to_le_bytes());
        headers.extend(8u64.to_le_bytes());
        headers.extend(entry.to_le_bytes());
        body.extend(contents);
    }
    if headers.len() > 64 {
        headers[..64].fill(0);
    }
    body.resize(body.len().next_multiple_of(8), 0);
    let table = body.len() as u64;
    body.extend(headers);
    let mut start = b"\x7fELF\x02\x01\x01".to_vec();
    start.resize(16, 0);
    start.extend(3u16.to_le_bytes()); // shared object
    start.extend(62u16.to_le_bytes()); // x86-64
    start.extend(1u32.to_le_bytes());
    start.extend([0; 16]);
    start.extend(table.to_le_bytes());
    start.extend([0; 4]);
    for field in [64u16, 56, 0, 64, all.len() as u16, last as u16] {
        start.extend(field.to_le_bytes());
    }
    body[..64].copy_from_slice(&start);
    body
}
