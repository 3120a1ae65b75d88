//! What systems have words of their own for: a child process, memory, the processor.

use std::process::{Command, ExitStatus};

/// Takes a child out of the terminal's group: Ctrl-C is the parent's to handle, and must not look like a crash.
pub fn set_apart(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    // CREATE_NEW_PROCESS_GROUP
    #[cfg(windows)]
    std::os::windows::process::CommandExt::creation_flags(command, 0x200);
}

/// How a process ended.
#[cfg(unix)]
pub fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(6) => "died of signal 6 (abort)".into(),
        Some(9) => "was killed (signal 9), by the system's out-of-memory killer most likely".into(),
        Some(11) => "died of signal 11 (segmentation fault)".into(),
        Some(signal) => format!("died of signal {signal}"),
        None => format!("ended with exit code {}", status.code().unwrap_or(-1)),
    }
}

/// How a process ended.
#[cfg(not(unix))]
pub fn describe(status: ExitStatus) -> String {
    match status.code().unwrap_or(-1).cast_unsigned() {
        0xc000_0005 => "died of exception 0xc0000005 (access violation)".into(),
        0xc000_0409 => "died of exception 0xc0000409 (abort)".into(),
        exception @ 0xc000_0000.. => format!("died of exception {exception:#x}"),
        code => format!("ended with exit code {code}"),
    }
}

/// True where somebody else killed the process; Windows does not tell.
#[cfg(unix)]
pub fn was_killed(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(9)
}

/// True where somebody else killed the process; Windows does not tell.
#[cfg(not(unix))]
pub fn was_killed(_: ExitStatus) -> bool {
    false
}

/// A file of Linux' /proc. Elsewhere there is none: Windows has no such folder, but Wine shows Linux' own, with other
/// processes' numbers.
fn proc(name: &str) -> Option<String> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    std::fs::read_to_string(format!("/proc/{name}")).ok()
}

/// What follows a key and a colon, in a line that begins with it.
fn value(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

fn bytes(text: &str, key: &str) -> Option<u64> {
    let kib: u64 = value(text, key)?.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Resident bytes of a process; `None` where the system does not tell.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    bytes(&proc(&format!("{pid}/status"))?, "VmRSS")
}

/// Bytes of memory that can be had now without swapping; `None` where the system does not tell.
pub fn available_bytes() -> Option<u64> {
    bytes(&proc("meminfo")?, "MemAvailable")
}

/// Bytes of memory that are built in; `None` where the system does not tell.
pub fn memory_bytes() -> Option<u64> {
    bytes(&proc("meminfo")?, "MemTotal")
}

/// The processor's name; `None` where the system does not tell.
pub fn processor() -> Option<String> {
    // Windows sets it.
    let told = || std::env::var("PROCESSOR_IDENTIFIER").ok().filter(|_| cfg!(windows));
    proc("cpuinfo").and_then(|text| value(&text, "model name")).or_else(told)
}
