//! What an ioctl answers with when it refuses.

/// An errno of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub libc::c_int);

/// What the handlers of ioctls return.
pub type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    pub const BAD_FILE: Self = Self(libc::EBADF);
    pub const FAULT: Self = Self(libc::EFAULT);
    pub const INVALID: Self = Self(libc::EINVAL);
    pub const NO_MEMORY: Self = Self(libc::ENOMEM);
    pub const NO_SPACE: Self = Self(libc::ENOSPC);
    pub const UNKNOWN: Self = Self(libc::ENOTTY);

    /// That of the C library's last failure.
    pub fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}
