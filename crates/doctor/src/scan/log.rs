//! What the kernel said of the GPU since it was booted: from its own buffer, a file, or the journal.

use crate::facts::{Event, Log};
use crate::system::System;
use std::io::{Read, Seek, SeekFrom};
use std::time::Duration;

/// The end of a log that is read.
const LOG_BYTES: u64 = 4 << 20;
/// Time for journalctl, which takes some 50 ms: the look at a machine is to stay below 2 s.
const JOURNAL_TIME: Duration = Duration::from_millis(500);
/// Its latest lines, which are 100 bytes long or so.
const JOURNAL: &[&str] = &["-k", "-b", "-o", "short-monotonic", "--no-pager", "--quiet", "--lines=20000"];
/// The first line of every boot.
const BOOT: &str = "Linux version ";

/// Kinds of lines, by words that all have to be there (linux `drivers/gpu/drm/amd`).
const KINDS: &[(&str, &[&[&str]])] = &[
    (
        "preemption",
        &[
            &["preemption", "fail"],
            &["preemption", "time out"],
            &["unmapping queues failed"],
            &["cp might be in an unrecoverable state"],
            &["Failed to evict process queues"],
        ],
    ),
    ("ring-timeout", &[&["ring ", " timeout"]]),
    ("reset", &[&["GPU reset"]]),
    ("atomics", &[&["PCI rejects atomics"]]),
    ("page-fault", &[&["hub] page fault"], &["hub] retry page fault"]]),
    ("firmware", &[&["firmware: failed to load amdgpu/"], &["Direct firmware load for amdgpu/", "failed"]]),
];

pub(super) fn log(system: &System, gaps: &mut Vec<String>) -> Log {
    match text(system) {
        Ok((source, text)) => kernel_log(&source, &text),
        Err(why) => {
            gaps.push(why);
            Log::default()
        }
    }
}

/// The kernel's log since it was booted: where it was read, and its lines.
///
/// # Errors
/// Why it cannot be read, and what to do, in a line.
pub fn text(system: &System) -> Result<(String, String), String> {
    if system.live
        && let Some(text) = messages(system)
    {
        return Ok(("/dev/kmsg".into(), text));
    }
    let files = ["/var/log/kern.log", "/var/log/dmesg", "/var/log/kern.log.1"];
    let found = files.iter().find_map(|path| Some((*path, tail(system, path)?)));
    if let Some((path, text)) = found {
        // Files go on over many boots.
        let start = text.rfind(BOOT).unwrap_or(0);
        return Ok((path.into(), text[start..].into()));
    }
    if !system.live {
        return Err("the tree has no kernel log in /var/log/kern.log or /var/log/dmesg; a journal is read on the running machine only".into());
    }
    journal(system).map(|text| ("journalctl -k -b".into(), text)).map_err(|why| {
        let hint = match system.process.uid {
            Some(0) => "outside the container `journalctl -k -b | grep amdgpu` shows what matters",
            _ => "`sudo journalctl -k -b | grep amdgpu` shows what matters",
        };
        format!("the kernel's log: /dev/kmsg and /var/log/kern.log cannot be read, {why}; {hint}")
    })
}

/// The journal of this boot, or why it says nothing.
fn journal(system: &System) -> Result<String, String> {
    let answer = system.ask("journalctl", JOURNAL, JOURNAL_TIME, LOG_BYTES).map_err(|why| why.to_string())?;
    // Without the right to read the system's journal it succeeds too, with nothing of the kernel's.
    if answer.text.contains(" kernel: ") {
        Ok(answer.text)
    } else {
        Err("journalctl shows nothing of it".into())
    }
}

/// Sorts the lines of a kernel log.
fn kernel_log(source: &str, text: &str) -> Log {
    let mut events: Vec<Event> = Vec::new();
    let lines = text.lines().filter(|l| l.contains("amdgpu") || l.contains("kfd") || l.contains("amdkfd"));
    for line in lines {
        let has = |words: &&[&str]| words.iter().all(|w| line.contains(w));
        let Some((kind, _)) = KINDS.iter().find(|(_, patterns)| patterns.iter().any(has)) else { continue };
        match events.iter_mut().find(|e| e.kind == *kind) {
            Some(event) => (event.count, event.line) = (event.count + 1, line.trim().to_string()),
            None => events.push(Event { kind, count: 1, line: line.trim().to_string() }),
        }
    }
    Log { source: Some(source.to_string()), events }
}

/// The kernel's own buffer, where the user may read it. Every read is one record, and none waits.
fn messages(system: &System) -> Option<String> {
    let mut file = system.open_device("/dev/kmsg")?;
    let (mut text, mut record) = (String::new(), vec![0; 8 << 10]);
    while text.len() < LOG_BYTES as usize {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(length) => {
                let line = String::from_utf8_lossy(&record[..length]).into_owned();
                // `priority,number,time,flags;message`, then properties.
                text += line.split_once(';').map_or("", |(_, m)| m).lines().next().unwrap_or_default();
                text.push('\n');
            }
            // The oldest records were overwritten meanwhile.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
            Err(_) => break,
        }
    }
    Some(text)
}

fn tail(system: &System, path: &str) -> Option<String> {
    let mut file = system.open(path)?;
    let size = system.size(path)?;
    file.seek(SeekFrom::Start(size.saturating_sub(LOG_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
