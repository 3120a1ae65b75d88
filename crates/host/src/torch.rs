//! The versions of PyTorch that the device `wave` is made for. Whoever needs them asks here; `tests/house.rs` holds the
//! documents and the Python package against it.

/// Major and minor number of a version of torch.
pub type Version = (u32, u32);

/// The oldest that has the C ABI which the device needs.
pub const OLDEST: Version = (2, 10);

/// The newest that the device was tried with.
pub const NEWEST: Version = (2, 15);

/// Whether the device is made for this version.
pub fn fits(version: Version) -> bool {
    (OLDEST..=NEWEST).contains(&version)
}

/// All of them in words.
pub fn range() -> String {
    format!("{}.{} to {}.{}", OLDEST.0, OLDEST.1, NEWEST.0, NEWEST.1)
}
