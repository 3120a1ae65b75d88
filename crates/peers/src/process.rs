//! Which process it is, and whether it still runs.

use std::fmt;
use std::fs;
use std::io;
use std::str::FromStr;

/// A process of this machine, by its number and the time of its start: numbers are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pid: u32,
    started: u64,
}

impl Process {
    /// This one.
    pub(crate) fn own() -> io::Result<Self> {
        let pid = std::process::id();
        let (_, started) = stat(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { pid, started })
    }

    /// Its number.
    pub(crate) fn pid(self) -> u32 {
        self.pid
    }

    /// True while it runs; one that ended and that its parent has not asked about runs no more.
    pub(crate) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|(state, started)| started == self.started && !matches!(state, 'Z' | 'X'))
    }
}

/// State and start of a process, from `/proc/PID/stat`.
fn stat(pid: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may have any letters: what follows is behind the last bracket.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // The start is field 22, the state is field 3.
    Some((state, fields.nth(18)?.parse().ok()?))
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pid, self.started)
    }
}

impl FromStr for Process {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (pid, started) = text.split_once(':').ok_or(())?;
        Ok(Self { pid: pid.parse().map_err(drop)?, started: started.parse().map_err(drop)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_alive_until_it_ends() {
        let own = Process::own().unwrap();
        assert!(own.is_alive());
        assert_eq!(own.to_string().parse(), Ok(own));
        assert!(!Process { started: own.started + 1, ..own }.is_alive(), "another of that number");
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let (_, started) = stat(child.id()).unwrap();
        let process = Process { pid: child.id(), started };
        assert!(process.is_alive());
        child.kill().unwrap();
        // Not asked about yet: it is a zombie for a moment.
        while process.is_alive() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!process.is_alive());
    }
}
