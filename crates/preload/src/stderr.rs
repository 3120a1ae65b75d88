//! Lines on stderr from a library in somebody else's process: whatever stderr is, the process goes on.
//!
//! The virtual card, libMIOpen and the PyTorch device have this file too.

use std::mem::MaybeUninit;
use std::ptr;

/// Writes `line` in one call, without a lock. Where nobody reads it, or nothing takes it, it is lost: no signal, no
/// panic, and the program's `errno` stays.
pub fn write(line: &str) {
    // SAFETY: the sets are filled before they are read, the line is as long as is said, and errno is the thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        let (mut ours, mut before, mut pending) =
            (MaybeUninit::uninit(), MaybeUninit::uninit(), MaybeUninit::zeroed());
        // A pipe without a reader and a file at its limit raise these, which end a process that does not expect them. They
        // go to the thread that writes: they wait here, and are taken back.
        libc::sigemptyset(ours.as_mut_ptr());
        libc::sigaddset(ours.as_mut_ptr(), libc::SIGPIPE);
        libc::sigaddset(ours.as_mut_ptr(), libc::SIGXFSZ);
        libc::sigpending(pending.as_mut_ptr());
        if libc::pthread_sigmask(libc::SIG_BLOCK, ours.as_ptr(), before.as_mut_ptr()) == 0 {
            let written = libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
            let raised = match *libc::__errno_location() {
                libc::EPIPE if written < 0 => Some(libc::SIGPIPE),
                libc::EFBIG if written < 0 => Some(libc::SIGXFSZ),
                _ => None,
            };
            // One that waited before is the program's.
            if let Some(signal) = raised
                && libc::sigismember(pending.as_ptr(), signal) != 1
            {
                libc::sigemptyset(ours.as_mut_ptr());
                libc::sigaddset(ours.as_mut_ptr(), signal);
                let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                while libc::sigtimedwait(ours.as_ptr(), ptr::null_mut(), &raw const at_once) < 0
                    && *libc::__errno_location() == libc::EINTR
                {}
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        }
        *libc::__errno_location() = errno;
    }
}

#[cfg(test)]
mod tests {
    use super::write;
    use std::os::fd::{AsRawFd, RawFd};

    /// How a child ends that does `body` with `stderr` as its stderr (-1: closed) and the signals' own effects: its exit
    /// status, or minus the signal.
    fn ends_with(stderr: RawFd, limit: Option<u64>, body: fn()) -> i32 {
        // SAFETY: between fork and _exit the child makes system calls only; `body` allocates nothing.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
            if child == 0 {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
                let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
                if let Some(bytes) = limit {
                    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
                    libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                }
                if stderr < 0 {
                    libc::close(libc::STDERR_FILENO);
                } else {
                    libc::dup2(stderr, libc::STDERR_FILENO);
                }
                *libc::__errno_location() = 77;
                body();
                libc::_exit(if *libc::__errno_location() == 77 { 0 } else { 1 });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
        }
    }

    fn plainly() {
        // SAFETY: two bytes.
        unsafe { libc::write(libc::STDERR_FILENO, c"x\n".as_ptr().cast(), 2) };
    }

    fn twice() {
        write("one\n");
        write("two\n");
    }

    fn keeps_the_programs_own_signal() {
        // SAFETY: calls on the child's own signals.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGPIPE);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::raise(libc::SIGPIPE);
            write("x\n");
            libc::sigpending(&raw mut set);
            if libc::sigismember(&raw const set, libc::SIGPIPE) != 1 {
                libc::_exit(2);
            }
        }
    }

    #[test]
    fn nothing_about_stderr_ends_the_process() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        // SAFETY: a file of memory.
        let file = unsafe { libc::memfd_create(c"limited".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(file >= 0);
        let pipe = writer.as_raw_fd();
        assert_eq!(ends_with(pipe, None, plainly), -libc::SIGPIPE, "a plain write does end it");
        assert_eq!(ends_with(file, Some(0), plainly), -libc::SIGXFSZ, "a plain write does end it");
        assert_eq!(ends_with(pipe, None, twice), 0);
        assert_eq!(ends_with(pipe, None, keeps_the_programs_own_signal), 0);
        assert_eq!(ends_with(file, Some(0), twice), 0);
        assert_eq!(ends_with(full.as_raw_fd(), None, twice), 0);
        assert_eq!(ends_with(-1, None, twice), 0);
        // SAFETY: opened above.
        unsafe { libc::close(file) };
    }

    #[test]
    fn a_line_arrives_whole() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        assert_eq!(ends_with(writer.as_raw_fd(), None, twice), 0);
        drop(writer);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "one\ntwo\n");
    }
}
