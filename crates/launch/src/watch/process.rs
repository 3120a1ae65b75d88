//! Processes as /proc tells of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A process that is the same one as long as its start is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// When it started, in ticks since boot.
    pub start: u64,
}

/// A line of /proc/PID/task/TID/stat or /proc/PID/stat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The program's or thread's name.
    pub name: String,
    /// `R`, `S`, `D`, `T`, `Z` ...
    pub state: char,
    /// Parent.
    pub parent: i32,
    /// Ticks of CPU time, its own.
    pub cpu: u64,
    /// Ticks since boot at its start.
    pub start: u64,
}

impl Stat {
    /// Reads one; none where the process is gone.
    pub fn read(folder: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(folder.join("stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name may hold anything, brackets too.
        let (open, close) = (text.find('(')?, text.rfind(')')?);
        let fields: Vec<&str> = text[close + 1..].split_whitespace().collect();
        let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
        Some(Self {
            name: text[open + 1..close].to_string(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            cpu: number(11)? + number(12)?,
            start: number(19)?,
        })
    }
}

impl Process {
    /// The process that has this id now.
    pub fn now(pid: i32) -> Option<Self> {
        Stat::read(&folder(pid)).map(|stat| Self { pid, start: stat.start })
    }

    /// Still there, and no zombie.
    pub fn is_alive(&self) -> bool {
        Stat::read(&folder(self.pid)).is_some_and(|stat| stat.start == self.start && stat.state != 'Z')
    }

    /// Its threads.
    pub fn threads(&self) -> Vec<i32> {
        let Ok(entries) = std::fs::read_dir(folder(self.pid).join("task")) else { return Vec::new() };
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }
}

/// /proc/PID.
pub fn folder(pid: i32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// /proc/PID/task/TID.
pub fn thread_folder(pid: i32, tid: i32) -> PathBuf {
    folder(pid).join("task").join(tid.to_string())
}

/// `root` and everything that descends from it, parents before children.
pub fn tree(root: i32) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if let Some(stat) = Stat::read(&entry.path()) {
            children.entry(stat.parent).or_default().push(Process { pid, start: stat.start });
        }
    }
    let mut found: Vec<Process> = Process::now(root).into_iter().collect();
    let mut next = 0;
    while next < found.len() {
        found.extend(children.remove(&found[next].pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// A piece of a process' memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// It holds code.
    pub executable: bool,
    /// Where it lies in its file.
    pub offset: u64,
    /// Its file, or a name such as `[stack]`; empty where it has none.
    pub path: String,
}

impl Region {
    /// The file's name without its folder.
    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ').map(str::trim);
        let (start, end) = fields.next()?.split_once('-')?;
        let permissions = fields.next()?;
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end, offset) = (hexadecimal(start)?, hexadecimal(end)?, hexadecimal(fields.next()?)?);
        let path = fields.nth(2).unwrap_or_default().to_string();
        Some(Self { start, end, executable: permissions.contains('x'), offset, path })
    }
}

/// A process' memory, by address. Empty where it may not be read.
pub fn regions(pid: i32) -> Vec<Region> {
    let text = std::fs::read(folder(pid).join("maps")).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(Region::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_and_maps_are_read_whatever_names_hold() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = Stat::parse(&format!("77 (a) b (c) R {}\n", fields.join(" "))).unwrap();
        let expected = Stat { name: "a) b (c".into(), state: 'R', parent: 4, cpu: 14 + 15, start: 22 };
        assert_eq!(stat, expected);
        let line = "7f00-7f10 r-xp 00001000 08:01 42                 /opt/my libs/libMIOpen.so.1";
        let region = Region::parse(line).unwrap();
        assert_eq!(
            (region.start, region.end, region.offset, region.executable),
            (0x7f00, 0x7f10, 0x1000, true)
        );
        assert_eq!(region.file_name(), "libMIOpen.so.1");
        assert_eq!(Region::parse("1-2 rw-p 0 0:0 0").unwrap().path, "");
    }

    #[test]
    fn this_process_is_found() {
        let me = std::process::id() as i32;
        let mut child = std::process::Command::new("sleep").arg("5").spawn().unwrap();
        let found: Vec<i32> = tree(me).iter().map(|process| process.pid).collect();
        assert!(found.first() == Some(&me) && found.contains(&(child.id() as i32)), "{found:?}");
        let process = Process::now(child.id() as i32).unwrap();
        assert!(process.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
        assert!(regions(me).iter().any(|region| region.executable));
    }
}
