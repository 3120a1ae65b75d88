//! A workgroup's local data share.

/// LDS as dwords.
#[derive(Debug, Default)]
pub struct Lds {
    /// Its dwords; what the dispatch asked for, rounded up to a dword.
    pub words: Vec<u32>,
    /// Its size in bytes; beyond it reads give 0 and writes are dropped.
    pub bytes: u32,
}

impl Lds {
    /// LDS of a new workgroup. Contents are undefined by the ABI; zero here.
    pub fn new(bytes: u32) -> Self {
        Self { words: vec![0; bytes.div_ceil(4) as usize], bytes }
    }
}
