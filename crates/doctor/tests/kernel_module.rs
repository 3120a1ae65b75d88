//! `srcversion` of module files as distributions have them: plain, and packed as the kernel's own build packs them
//! (linux `scripts/Makefile.modinst`).
#![cfg(unix)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;
use wave32_doctor::facts::{Facts, LeftoverKind};
use wave32_doctor::scan::{Options, scan};
use wave32_doctor::system::System;

const RELEASE: &str = "6.8.0-85-generic";
const SRCVERSION: &str = "0123456789ABCDEF0123456";
/// The kernel's commands, and what they end the name in.
const PACKERS: &[(&str, &[&str])] = &[
    (".gz", &["gzip", "-n", "-f"]),
    (".xz", &["xz", "--check=crc32", "--lzma2=dict=1MiB", "-f"]),
    (".zst", &["zstd", "-q", "--rm", "-f"]),
    // As people pack by hand.
    (".xz", &["xz", "-9e", "--x86", "--lzma2=preset=9e", "-f"]),
    (".xz", &["xz", "--check=sha256", "--block-size=1MiB", "-f"]),
    (".zst", &["zstd", "-q", "-19", "--long=27", "--rm", "-f"]),
];

fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 1;
    move || {
        // xorshift64* (Vigna 2016).
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    now.as_nanos() as u64
}

fn run(command: &mut Command) {
    let done = command.stdin(Stdio::null()).status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(done.success(), "{command:?}");
}

/// A relocatable object as a compiler makes it, megabytes of it, signed at its end as distributions do.
fn module(folder: &Path, seed: u64) -> PathBuf {
    let mut next = numbers(seed);
    let random: Vec<u8> = (0..100_000).flat_map(|_| next().to_le_bytes()).collect();
    std::fs::write(folder.join("firmware.bin"), random).unwrap();
    let source = format!(
        ".section .modinfo,\"a\"\n.asciz \"license=GPL and additional rights\"\n.asciz \"srcversion={SRCVERSION}\"\n\
         .asciz \"name=amdgpu\"\n.data\n.incbin \"firmware.bin\"\n.fill 3000000, 1, 0x5a\n"
    );
    std::fs::write(folder.join("amdgpu.s"), source).unwrap();
    run(Command::new("cc").current_dir(folder).args(["-c", "amdgpu.s", "-o", "amdgpu.ko"]));
    let path = folder.join("amdgpu.ko");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend((0..100).flat_map(|_| next().to_le_bytes()));
    bytes.extend(b"~Module signature appended~\n");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A machine that has loaded such a module, with the file at its place.
fn machine(file: &Path, loaded: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    let place = format!("kernel/drivers/gpu/drm/amd/amdgpu/{name}");
    common::build(
        root.path(),
        &format!(
            "one /proc/sys/kernel/osrelease {RELEASE}\none /sys/module/amdgpu/srcversion {loaded}\n\
             one /lib/modules/{RELEASE}/modules.dep {place}: kernel/drivers/gpu/drm/ttm/{}\n\
             one /lib/modules/{RELEASE}/{place} x\n",
            name.replace("amdgpu", "ttm")
        ),
    );
    std::fs::copy(file, root.path().join(format!("lib/modules/{RELEASE}/{place}"))).unwrap();
    root
}

fn facts(file: &Path, loaded: &str) -> Facts {
    let root = machine(file, loaded);
    scan(&System::at(root.path()).unwrap(), &Options { thorough: true, ..Options::default() })
}

fn foreign(facts: &Facts) -> bool {
    facts.leftovers.iter().any(|l| l.kind == LeftoverKind::KernelModule)
}

#[test]
fn every_packing_is_read() {
    let seed = seed();
    let folder = tempfile::tempdir().unwrap();
    let plain = module(folder.path(), seed);
    let mut files = vec![plain.clone()];
    for (number, (ending, command)) in PACKERS.iter().enumerate() {
        let folder = folder.path().join(number.to_string());
        std::fs::create_dir(&folder).unwrap();
        std::fs::copy(&plain, folder.join("amdgpu.ko")).unwrap();
        run(Command::new(command[0]).args(&command[1..]).arg(folder.join("amdgpu.ko")));
        files.push(folder.join(format!("amdgpu.ko{ending}")));
    }
    for file in files {
        let same = facts(&file, SRCVERSION);
        assert_eq!(
            same.driver.file_srcversion.as_deref(),
            Some(SRCVERSION),
            "{} seed {seed}",
            file.display()
        );
        assert!(!foreign(&same) && !same.gaps.iter().any(|g| g.contains("amdgpu.ko")), "{:?}", same.gaps);
        assert!(foreign(&facts(&file, "FEDCBA9876543210FEDCBA9")), "{}", file.display());
    }
}

/// kmod's own word on the same files, where it is installed with that packing.
#[test]
fn modinfo_agrees() {
    let folder = tempfile::tempdir().unwrap();
    let plain = module(folder.path(), seed());
    let mut agreed = 0;
    for (ending, command) in PACKERS.iter().take(3) {
        std::fs::copy(&plain, folder.path().join("m.ko")).unwrap();
        run(Command::new(command[0]).args(&command[1..]).arg(folder.path().join("m.ko")));
        let file = folder.path().join(format!("m.ko{ending}"));
        let asked = Command::new("/sbin/modinfo").args(["-F", "srcversion"]).arg(&file).output();
        let Some(asked) = asked.ok().filter(|o| o.status.success()) else { continue };
        let named = folder.path().join(format!("amdgpu.ko{ending}"));
        std::fs::rename(&file, &named).unwrap();
        let ours = facts(&named, SRCVERSION).driver.file_srcversion;
        assert_eq!(ours.unwrap_or_default(), String::from_utf8_lossy(&asked.stdout).trim(), "{ending}");
        agreed += 1;
    }
    println!("modinfo read {agreed} of 3 packings");
}

#[test]
fn damaged_files_are_told_and_nothing_panics() {
    let seed = seed();
    let mut next = numbers(seed);
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("plain")).unwrap();
    let plain = module(&folder.path().join("plain"), seed);
    for (ending, command) in PACKERS.iter().take(3) {
        std::fs::copy(&plain, folder.path().join("amdgpu.ko")).unwrap();
        run(Command::new(command[0]).args(&command[1..]).arg(folder.path().join("amdgpu.ko")));
        let whole = std::fs::read(folder.path().join(format!("amdgpu.ko{ending}"))).unwrap();
        let file = folder.path().join(format!("damaged/amdgpu.ko{ending}"));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        for round in 0..16 {
            let mut bytes = whole.clone();
            let at = (next() % bytes.len() as u64) as usize;
            match round % 4 {
                0 => bytes.truncate(at),
                // Headers are where sizes are.
                1 => bytes[at % 64] ^= 1 << (next() % 8),
                2 => bytes[at] ^= 1 << (next() % 8),
                _ => bytes[at..].iter_mut().take(1000).for_each(|b| *b = next() as u8),
            }
            std::fs::write(&file, &bytes).unwrap();
            let found = facts(&file, SRCVERSION);
            let told = found.gaps.iter().any(|g| g.contains("amdgpu.ko"));
            let read = found.driver.file_srcversion.is_some();
            assert!(told || read || round % 4 != 0, "{ending} cut at {at}, seed {seed}: {:?}", found.gaps);
            assert!(!(told && read), "{ending} round {round} seed {seed}");
        }
    }
}

#[test]
fn a_bomb_is_not_unpacked() {
    // 1 GiB of zeros in a few KiB of zst.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("amdgpu.ko.zst");
    let mut encoder = zstd::stream::write::Encoder::new(std::fs::File::create(&file).unwrap(), 1).unwrap();
    let zeros = vec![0; 16 << 20];
    for _ in 0..64 {
        std::io::Write::write_all(&mut encoder, &zeros).unwrap();
    }
    encoder.finish().unwrap();
    let found = facts(&file, SRCVERSION);
    assert!(found.gaps.iter().any(|g| g.contains("unpacks to more than")), "{:?}", found.gaps);
    assert_eq!(found.driver.file_srcversion, None);
}
