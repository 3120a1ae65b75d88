//! Whose rights a change is made with.
//!
//! Root in somebody's home, or under `--root` in the home of a user of that tree, would act on what that user put there:
//! links, journals, files exchanged at the right moment. So the thread takes the effective user and group of the home's
//! owner, and no further groups: whatever that user contrives then reaches no further than they do. The effective ids, and
//! not a child: the real and the saved user stay root, so that the user may not signal or trace the process, and all of
//! root's capabilities are put down with them, not only those over files.

#[cfg(target_os = "linux")]
use rustix::fs::Uid;
use std::io;
use std::marker::PhantomData;

/// Somebody's rights, of this thread, until it is dropped.
#[derive(Debug)]
pub(super) struct Rights {
    before: Option<(rustix::fs::Gid, Vec<rustix::fs::Gid>)>,
    /// They are one thread's.
    _thread: PhantomData<*const ()>,
}

impl Rights {
    /// Takes those of a user and a group, where this is root and they are not.
    #[cfg(target_os = "linux")]
    pub fn of(uid: u32, gid: u32) -> io::Result<Self> {
        use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
        let mut rights = Self { before: None, _thread: PhantomData };
        let (uid, gid) = (Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        if rustix::process::geteuid().is_root() && !uid.is_root() {
            rights.before = Some((rustix::process::getegid(), rustix::process::getgroups()?));
            set_thread_groups(&[gid])?;
            set_thread_res_gid(None, gid, None)?;
            set_thread_res_uid(None, uid, None)?;
        }
        Ok(rights)
    }

    /// Elsewhere root does without.
    #[cfg(not(target_os = "linux"))]
    pub fn of(uid: u32, _: u32) -> io::Result<Self> {
        if rustix::process::geteuid().is_root() && uid != 0 {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "run it as the user whose home it is"));
        }
        Ok(Self { before: None, _thread: PhantomData })
    }
}

impl Drop for Rights {
    #[cfg(target_os = "linux")]
    fn drop(&mut self) {
        use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
        let Some((gid, groups)) = self.before.take() else { return };
        let back = set_thread_res_uid(None, Uid::ROOT, None)
            .and_then(|()| set_thread_res_gid(None, gid, None))
            .and_then(|()| set_thread_groups(&groups));
        if let Err(error) = back {
            log::warn!("root's rights cannot be taken up again: {error}");
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn drop(&mut self) {}
}
