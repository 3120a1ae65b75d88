//! `srcversion` of a kernel module's file, packed or not: `.ko`, `.ko.gz`, `.ko.xz`, `.ko.zst` (linux
//! `scripts/Makefile.modinst`).

use crate::system::System;
use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection as _, ReadCache, ReadRef};
use std::fs::File;
use std::io::Read;

/// Unpacked, amdgpu is 20 to 40 MiB in distributions; with debugging information several times that.
const UNPACKED: usize = 256 << 20;
/// Unpacked between two looks at the clock.
const STEP: u64 = 1 << 20;
/// KiB that xz may take for its dictionary: the kernel packs with 1 to 2 MiB, `xz -9` with 64.
const XZ_MEMORY: u32 = 128 << 10;
/// Logarithm of the window that zstd may ask for: `zstd -19` has 23, `--ultra` 27.
const ZSTD_WINDOW: u32 = 27;
/// What packed modules end in, by kind.
pub(super) const ENDINGS: &[&str] = &["", ".zst", ".xz", ".gz"];

/// The module's `srcversion`, if it has one: kernels without CONFIG_MODULE_SRCVERSION_ALL leave it out.
///
/// # Errors
/// Why the file could not be read to its end.
pub(super) fn srcversion(system: &System, path: &str) -> Result<Option<String>, String> {
    let file = system.open(path).ok_or("it cannot be opened")?;
    let ending = path.rsplit('.').next().unwrap_or_default();
    let unreadable = |error: std::io::Error| format!("it is damaged: {error}");
    let image = match ending {
        "gz" => unpacked(system, &mut MultiGzDecoder::new(file))?,
        "xz" => unpacked(system, &mut XzReader::new_mem_limit(file, true, XZ_MEMORY))?,
        "zst" => {
            let mut reader = zstd::stream::read::Decoder::<'static, _>::new(file).map_err(unreadable)?;
            reader.window_log_max(ZSTD_WINDOW).map_err(unreadable)?;
            unpacked(system, &mut reader)?
        }
        _ => return in_image(&ReadCache::<File>::new(file)),
    };
    in_image(image.as_slice())
}

/// The whole file: the table that tells where `.modinfo` is stands at its end.
fn unpacked(system: &System, reader: &mut dyn Read) -> Result<Vec<u8>, String> {
    let mut image = Vec::new();
    loop {
        if !system.grant(STEP) {
            return Err("unpacking it takes longer; --thorough takes the time".into());
        }
        match reader.take(STEP).read_to_end(&mut image) {
            Ok(0) => return Ok(image),
            Ok(_) if image.len() <= UNPACKED => {}
            Ok(_) => return Err(format!("it unpacks to more than {} MiB", UNPACKED >> 20)),
            Err(error) => return Err(format!("it is damaged: {error}")),
        }
    }
}

fn in_image<'d, R: ReadRef<'d>>(image: R) -> Result<Option<String>, String> {
    let elf = ElfFile64::<LittleEndian, R>::parse(image).map_err(|_| "it is no module")?;
    let Some(section) = elf.section_by_name(".modinfo") else { return Ok(None) };
    let data = section.data().map_err(|_| "its .modinfo cannot be read")?;
    let text = data.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(b"srcversion="));
    Ok(text.map(|text| String::from_utf8_lossy(text).into_owned()))
}
