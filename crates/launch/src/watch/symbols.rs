//! Names of addresses, from the symbol tables of the files they lie in.

use super::process::{Region, folder};
use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol};
use std::collections::BTreeMap;
use std::fs::File;

/// A file's functions: how offsets in it become addresses, and names by address.
#[derive(Default)]
struct Table {
    /// Offset in the file, length, address.
    segments: Vec<(u64, u64, u64)>,
    names: BTreeMap<u64, String>,
}

impl Table {
    fn read(path: &std::path::Path) -> Option<Self> {
        // Libraries of gigabytes are read only where their tables are.
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let segment = |s: object::Segment<'_, '_, &ReadCache<File>>| {
            let (offset, length) = s.file_range();
            (offset, length, s.address())
        };
        let functions = file.dynamic_symbols().chain(file.symbols());
        let functions = functions.filter(|symbol| symbol.is_definition() && symbol.address() != 0);
        let names = functions
            .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?.to_string())))
            .collect();
        Some(Self { segments: file.segments().map(segment).collect(), names })
    }

    fn name(&self, offset: u64) -> Option<String> {
        let (start, _, address) = self.segments.iter().find(|(o, l, _)| (*o..o + l).contains(&offset))?;
        let address = offset - start + address;
        let (begin, name) = self.names.range(..=address).next_back()?;
        Some(format!("{name}+{:#x}", address - begin))
    }
}

/// Reads each file once.
#[derive(Default)]
pub struct Symbols(BTreeMap<String, Table>);

impl Symbols {
    /// `libMIOpen.so.1: miopenConvolutionForward+0x1a`.
    pub fn describe(&mut self, pid: i32, address: u64, regions: &[Region]) -> String {
        let Some(region) = regions.iter().find(|region| (region.start..region.end).contains(&address)) else {
            return format!("{address:#x}");
        };
        let offset = address - region.start + region.offset;
        let table = self.0.entry(region.path.clone()).or_insert_with(|| {
            // As the process sees it: it may live in a container.
            let path = folder(pid).join("root").join(region.path.trim_start_matches('/'));
            Table::read(&path).unwrap_or_default()
        });
        let name = table.name(offset).unwrap_or_else(|| format!("{offset:#x}"));
        format!("{}: {name}", region.file_name())
    }
}
