//! Where a thread of another process is: its registers from /proc, its stack read and searched for return addresses.
//!
//! No frame pointers or unwind tables are needed: a word on the stack that points behind a call instruction in code is taken
//! for a return address. Such a word may be left over from an earlier call, so a list may show a frame too many.

use super::process::{Region, Stat, thread_folder};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Bytes of stack that are searched.
const DEPTH: u64 = 256 << 10;

/// How long a running thread may take to hold still.
const HOLD: Duration = Duration::from_millis(100);

/// Taken while a thread is held: whoever waits for the same process as its parent would take the news away.
pub static HOLDING: Mutex<()> = Mutex::new(());

/// An address in code, and where on the stack it stood (0 for the place where the thread is).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The slot.
    pub slot: u64,
    /// The address.
    pub address: u64,
}

/// A thread's frames, innermost first.
///
/// # Errors
/// The system's error where it does not allow to read the process.
pub fn frames(pid: i32, tid: i32, regions: &[Region]) -> std::io::Result<Vec<Frame>> {
    match registers(pid, tid)? {
        Some((sp, pc)) => search(pid, sp, pc, regions),
        None => held(tid, || match registers(pid, tid)? {
            Some((sp, pc)) => search(pid, sp, pc, regions),
            None => Ok(Vec::new()),
        }),
    }
}

/// Stack pointer and place; none for a thread that runs now.
fn registers(pid: i32, tid: i32) -> std::io::Result<Option<(u64, u64)>> {
    let text = std::fs::read_to_string(thread_folder(pid, tid).join("syscall"))?;
    let mut fields = text.split_whitespace().rev();
    let mut number = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let pc = number();
    Ok(number().zip(pc))
}

/// Does `read` while a running thread is held. It goes on afterwards, as if nothing had been.
fn held(tid: i32, read: impl FnOnce() -> std::io::Result<Vec<Frame>> + Send) -> std::io::Result<Vec<Frame>> {
    let guard = HOLDING.lock();
    // The kernel lets go of everything that a thread traces when that thread ends: nothing stays held, whatever fails.
    let result = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let thread = Pid::from_raw(tid);
            ptrace::seize(thread, ptrace::Options::empty())?;
            ptrace::interrupt(thread)?;
            let since = Instant::now();
            loop {
                let pending = match waitpid(thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG))? {
                    WaitStatus::PtraceEvent(..) => None,
                    WaitStatus::Stopped(_, signal) => Some(signal),
                    WaitStatus::StillAlive if since.elapsed() < HOLD => {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    _ => return Ok(Vec::new()),
                };
                let frames = read();
                ptrace::detach(thread, pending)?;
                return frames;
            }
        });
        work.join()
    });
    drop(guard);
    result.unwrap_or_else(|_| Ok(Vec::new()))
}

/// Reads the stack from `sp` up and keeps what looks like return addresses.
fn search(pid: i32, sp: u64, pc: u64, regions: &[Region]) -> std::io::Result<Vec<Frame>> {
    let mut found = vec![Frame { slot: 0, address: pc }];
    let Some(stack) = regions.iter().find(|region| (region.start..region.end).contains(&sp)) else {
        return Ok(found);
    };
    let memory = File::open(super::process::folder(pid).join("mem"))?;
    let mut bytes = vec![0; (stack.end - sp).min(DEPTH) as usize];
    let count = memory.read_at(&mut bytes, sp)?;
    for (index, word) in bytes[..count].chunks_exact(8).enumerate() {
        let address = u64::from_le_bytes(word.try_into().unwrap_or_default());
        let Some(code) = regions.iter().find(|r| r.executable && (r.start..r.end).contains(&address)) else {
            continue;
        };
        let mut before = [0; 7];
        let readable = address - code.start >= 7 && memory.read_exact_at(&mut before, address - 7).is_ok();
        if readable && follows_call(&before) {
            found.push(Frame { slot: sp + 8 * index as u64, address });
        }
    }
    Ok(found)
}

/// The bytes before an address end in a call: `E8 rel32`, or `FF /2` in one of its lengths.
#[cfg(target_arch = "x86_64")]
fn follows_call(before: &[u8; 7]) -> bool {
    let indirect = |length: usize| {
        let (opcode, mode) = (before[7 - length], before[8 - length]);
        let (kind, register) = (mode >> 6, mode & 7);
        let displacement = match kind {
            0 if register == 5 => 4,
            0 | 3 => 0,
            1 => 1,
            _ => 4,
        };
        let index = usize::from(kind != 3 && register == 4);
        opcode == 0xff && mode >> 3 & 7 == 2 && length == 2 + index + displacement
    };
    before[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
}

/// Elsewhere every address in code counts.
#[cfg(not(target_arch = "x86_64"))]
fn follows_call(_: &[u8; 7]) -> bool {
    true
}

/// What a thread waits for in the kernel: its stack there (for root only), else the one function that /proc names.
pub fn in_kernel(pid: i32, tid: i32) -> Vec<String> {
    let folder = thread_folder(pid, tid);
    let text = std::fs::read_to_string(folder.join("stack")).unwrap_or_default();
    let stack: Vec<String> =
        text.lines().filter_map(|line| line.split_once(' ')).map(|(_, name)| name.into()).collect();
    if !stack.is_empty() {
        return stack;
    }
    let name = std::fs::read_to_string(folder.join("wchan")).unwrap_or_default();
    if matches!(name.trim(), "" | "0") { Vec::new() } else { vec![name.trim().to_string()] }
}

/// A thread's state and CPU time; none where it is gone.
pub fn state(pid: i32, tid: i32) -> Option<Stat> {
    Stat::read(&thread_folder(pid, tid))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::watch::process::regions;

    #[test]
    fn calls_are_recognised() {
        for (bytes, expected) in [
            ([0, 0, 0xe8, 1, 2, 3, 4], true),
            ([0, 0, 0, 0, 0, 0xff, 0xd0], true),    // call rax
            ([0, 0xff, 0x15, 1, 2, 3, 4], true),    // call [rip + n]
            ([0, 0, 0, 0, 0xff, 0x50, 0x10], true), // call [rax + 16]
            ([0xff, 0x94, 0x24, 8, 0, 0, 0], true), // call [rsp + 8]
            ([0, 0, 0, 0xff, 0x54, 0x24, 8], true), // call [rsp + 8], short
            ([0, 0, 0, 0, 0, 0xff, 0xe0], false),   // jmp rax
            ([0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90], false),
        ] {
            assert_eq!(follows_call(&bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn a_waiting_and_a_running_program_show_their_frames() {
        for script in ["read x", "while :; do :; done"] {
            let mut child = std::process::Command::new("sh")
                .args(["-c", script])
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let pid = child.id() as i32;
            std::thread::sleep(Duration::from_millis(200));
            let found = frames(pid, pid, &regions(pid)).unwrap();
            assert!(found.len() > 3, "{script}: {found:?}");
            // It was let go again.
            let alive = state(pid, pid).map(|stat| stat.state);
            assert!(matches!(alive, Some('S' | 'R')), "{script}: {alive:?}");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
