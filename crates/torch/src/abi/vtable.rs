//! Virtual tables of torch's C++ objects: read, and copied with entries of ours in place of some.
//!
//! The Itanium C++ ABI, which every compiler on Linux follows, fixes that an object's first word is its table's address,
//! that offset and type information lie before it, and that entries are plain functions with the object as their first
//! argument. Which entry is which is up to torch, so callers find that out at run time before they replace one.
//!
//! Nothing says how long a table is. What follows one is data (the next table begins with an offset), so the words that
//! are addresses of code are at least the table, and all of them are in one segment of a loaded library.

use crate::abi::error::Error;
use std::ffi::{c_int, c_void};
use std::ops::Range;

/// Words that a table's address lies behind its start: offset to the object's top, type information.
const HEAD: usize = 2;
const WORD: usize = size_of::<usize>();

/// A C++ object with virtual functions.
pub type Object = *mut c_void;

/// The address of an object's table.
///
/// # Safety
/// `object` is a live C++ object with virtual functions.
pub unsafe fn address(object: Object) -> usize {
    // SAFETY: by the caller.
    unsafe { object.cast::<usize>().read() }
}

/// A table in a library that is never unloaded.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Its address, [`HEAD`] words behind its start.
    first: usize,
    /// Words from there on that may be read: all of its entries, and perhaps more.
    entries: usize,
}

impl Table {
    /// The table of an object.
    ///
    /// # Errors
    /// `Torch` where it is no table in a library.
    ///
    /// # Safety
    /// `object` is a live C++ object with virtual functions, of a library that is never unloaded.
    pub unsafe fn of(object: Object) -> Result<Self, Error> {
        // SAFETY: by the caller.
        let first = unsafe { address(object) };
        let segments = segments();
        let start = first.wrapping_sub(HEAD * WORD);
        let own = segments.iter().find(|segment| segment.is_readable && segment.bytes.contains(&start));
        let room = own.map_or(0, |segment| (segment.bytes.end - start) / WORD).saturating_sub(HEAD);
        let all = Self { first, entries: room };
        let is_code = |word: usize| segments.iter().any(|s| s.is_code && s.bytes.contains(&word));
        let entries = all.words().take_while(|&word| is_code(word)).count();
        if !first.is_multiple_of(WORD) || entries == 0 {
            return Err(Error::Torch(format!("{first:#x} is no table of functions in a library")));
        }
        Ok(Self { first, entries })
    }

    fn words(self) -> impl Iterator<Item = usize> {
        // SAFETY: `of` found so many words in a segment that is loaded for good.
        (0..self.entries)
            .map(move |index| unsafe { (self.first as *const usize).add(index).read_unaligned() })
    }

    /// The function at a place.
    ///
    /// # Errors
    /// `Torch` where the table ends before.
    pub fn entry(self, index: usize) -> Result<usize, Error> {
        self.words().nth(index).ok_or_else(|| self.too_short(index))
    }

    /// Where it names a function.
    pub fn find(self, function: usize) -> Option<usize> {
        self.words().position(|word| word == function)
    }

    /// Its address.
    pub fn address(self) -> usize {
        self.first
    }

    /// The address of a copy that is never freed, with some entries replaced by (place, function).
    ///
    /// # Errors
    /// `Torch` where the table ends before one of these places.
    pub fn copy(self, replaced: &[(usize, usize)]) -> Result<usize, Error> {
        // SAFETY: the head lies in the same segment.
        let head =
            (0..HEAD).map(|at| unsafe { (self.first as *const usize).sub(HEAD - at).read_unaligned() });
        let mut words: Box<[usize]> = head.chain(self.words()).collect();
        for &(index, function) in replaced {
            *words.get_mut(HEAD + index).ok_or_else(|| self.too_short(index))? = function;
        }
        Ok(Box::leak(words)[HEAD..].as_ptr() as usize)
    }

    fn too_short(self, index: usize) -> Error {
        Error::Torch(format!("a table of {} functions has none at {index}", self.entries))
    }
}

/// Gives an object another table.
///
/// # Safety
/// `object` is live, no other thread calls it, and `table` is the address of one for its class.
pub unsafe fn put(object: Object, table: usize) {
    // SAFETY: by the caller.
    unsafe { object.cast::<usize>().write(table) };
}

/// A piece of a library in memory.
struct Segment {
    bytes: Range<usize>,
    is_readable: bool,
    is_code: bool,
}

/// Those of every library that is loaded.
fn segments() -> Vec<Segment> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
        // SAFETY: one library's information, and what `dl_iterate_phdr` was given below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<Segment>>()) };
        for at in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: the library has so many headers.
            let header = unsafe { info.dlpi_phdr.add(at).read() };
            if header.p_type == libc::PT_LOAD {
                let start = (info.dlpi_addr + header.p_vaddr) as usize;
                found.push(Segment {
                    bytes: start..start + header.p_memsz as usize,
                    is_readable: header.p_flags & libc::PF_R != 0,
                    is_code: header.p_flags & libc::PF_X != 0,
                });
            }
        }
        0
    }
    let mut found = Vec::<Segment>::new();
    // SAFETY: `add` takes what it is given here, and the call returns before the vector is used again.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
    found
}
