//! A guarded child process: started, asked, watched by clock and memory, never waited for for ever.
//!
//! What parent and child say to each other is the caller's: requests are any JSON, answers any [`Answer`].

use crate::process::protocol::{Failure, MARK, Verdict};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wave32_host::system;

pub use wave32_host::system::{available_bytes, resident_bytes};

/// How often memory, clock and the stop flag are looked at while a child works.
const TICK: Duration = Duration::from_millis(50);

/// How long a killed child may take to disappear before it is left to the system.
const REAP: Duration = Duration::from_secs(5);

/// How long a child whose standard input ended may take to close its device.
pub(crate) const LEAVE: Duration = Duration::from_secs(2);

/// Bytes of a line of a child's that are kept: its answers are far shorter, and a driver that prints without end
/// must not take the parent's memory.
const LINE: usize = 1 << 20;

/// Answers that may wait to be read; a child that says more waits itself.
const WAITING: usize = 256;

/// What Rust says where an allocation failed.
const STARVED: &str = "memory allocation of";

/// What to do where the system gives no process or thread.
pub const MORE: &str = "this user may have no more processes or memory: raise `ulimit -u` and `ulimit -v`, or end other programs";

/// Bytes of a child's standard error that are kept for a crash's detail.
const NOISE: usize = 4096;

/// The command that becomes a child (it must serve [`requests`]).
#[derive(Debug, Clone)]
pub struct Launcher {
    /// The program; usually this one.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables of its environment that differ from ours; `None` removes one.
    pub env: Vec<(String, Option<OsString>)>,
}

/// What a child answers.
pub trait Answer: DeserializeOwned + Send + 'static {
    /// The stage that this tells of, or the answer itself, which ends the question.
    ///
    /// # Errors
    /// The answer itself, where it is no stage.
    fn into_stage(self) -> Result<String, Self>;
}

/// What a child may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time for one problem, references included.
    pub deadline: Duration,
    /// Time to open the device: drivers may compile or fetch things then.
    pub startup: Duration,
    /// Bytes of resident memory.
    pub memory_cap: u64,
}

/// A child that could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The program, or a thread that listens to it, could not be started at all.
    #[error("cannot start the guarded child: {0}; {MORE}")]
    Spawn(String),
    /// It runs but says no.
    #[error("{0}")]
    NotOpen(String),
    /// It died or hung before it answered.
    #[error("{0}")]
    Broken(String),
    /// The user stopped the run.
    #[error("interrupted")]
    Interrupted,
}

/// How a question ended without an answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// The deadline passed.
    Deadline,
    /// The child ended: how, and what that means.
    Died(String, Verdict),
    /// It held this many bytes, more than it may.
    Memory(u64),
    /// The user stopped the run.
    Interrupted,
}

/// A running child. Killed when dropped.
#[derive(Debug)]
pub struct Guarded<R> {
    child: Child,
    stdin: Option<ChildStdin>,
    replies: Receiver<R>,
    noise: Arc<Mutex<String>>,
    /// What it does now, as it told last.
    pub stage: String,
    /// It answered the last question and waits for another.
    idle: bool,
}

impl NoAnswer {
    /// What it says about the thing under test, which was in `stage`; `None` when the user stopped the run.
    pub fn failure(self, stage: &str, deadline: Duration, cap: u64) -> Option<Failure> {
        Some(match self {
            Self::Deadline => Failure::new(
                Verdict::Hang,
                format!("no answer within {deadline:.0?}, during {stage}; the child was killed"),
            ),
            Self::Died(how, verdict) => Failure::new(verdict, format!("the child {how}, during {stage}")),
            Self::Memory(bytes) => {
                let (used, cap) = (bytes >> 20, cap >> 20);
                let text =
                    format!("the child held {used} MB of the {cap} MB it may, during {stage}; it was killed");
                Failure::new(Verdict::OutOfMemory, text)
            }
            Self::Interrupted => return None,
        })
    }

    /// What it says about a child that was still to open its device.
    pub fn start_error(self, stage: &str, startup: Duration) -> StartError {
        StartError::Broken(match self {
            Self::Deadline => format!("{stage} did not end within {startup:?}: the driver hangs"),
            Self::Died(how, _) => format!("{stage} failed: the child {how}"),
            Self::Memory(bytes) => format!("{stage} took {} MB and reached the memory cap", bytes >> 20),
            Self::Interrupted => return StartError::Interrupted,
        })
    }
}

impl<R: Answer> Guarded<R> {
    /// Starts a child that has not opened anything yet.
    ///
    /// # Errors
    /// [`StartError::Spawn`] where the process cannot be started.
    pub fn spawn(launcher: &Launcher) -> Result<Self, StartError> {
        let mut command = Command::new(&launcher.program);
        command.args(&launcher.args);
        for (name, value) in &launcher.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        system::set_apart(&mut command);
        let mut child = command.spawn().map_err(|e| StartError::Spawn(e.to_string()))?;
        let (sender, replies) = mpsc::sync_channel(WAITING);
        let noise = Arc::new(Mutex::new(String::new()));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // Dropped, and so ended, where a thread is refused.
        let mut guarded = Self { child, stdin, replies, noise, stage: String::new(), idle: false };
        let refused = |error: std::io::Error| StartError::Spawn(format!("no thread for it: {error}"));
        if let Some(stdout) = stdout {
            let listen = move || {
                lines(BufReader::new(stdout), LINE, |line| {
                    let line = String::from_utf8_lossy(line);
                    let reply = line.strip_prefix(MARK).and_then(|text| serde_json::from_str(text).ok());
                    reply.is_none_or(|reply| sender.send(reply).is_ok())
                });
            };
            std::thread::Builder::new().spawn(listen).map_err(refused)?;
        }
        if let Some(stderr) = stderr {
            let noise = Arc::clone(&guarded.noise);
            std::thread::Builder::new().spawn(move || collect(stderr, &noise)).map_err(refused)?;
        }
        guarded.idle = true;
        Ok(guarded)
    }

    /// Sends a request and waits for the answer that ends it.
    ///
    /// # Errors
    /// [`NoAnswer`]; the child must then be dropped.
    pub fn ask(
        &mut self,
        request: &impl Serialize,
        deadline: Duration,
        cap: u64,
        stop: &AtomicBool,
    ) -> Result<R, NoAnswer> {
        self.idle = false;
        let end = Instant::now() + deadline;
        let text =
            serde_json::to_string(request).map_err(|e| NoAnswer::Died(e.to_string(), Verdict::Error))?;
        // A write can only fail on a child that died; how it died is found below.
        let sent = self.stdin.as_mut().map(|pipe| writeln!(pipe, "{text}").and_then(|()| pipe.flush()));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.autopsy());
        }
        let mut looked = Instant::now();
        loop {
            let now = Instant::now();
            if now >= end {
                return Err(NoAnswer::Deadline);
            }
            match self.replies.recv_timeout(TICK.min(end - now)) {
                Ok(reply) => match reply.into_stage() {
                    Ok(stage) => self.stage = stage,
                    Err(answer) => {
                        self.idle = true;
                        return Ok(answer);
                    }
                },
                Err(RecvTimeoutError::Disconnected) => return Err(self.autopsy()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if looked.elapsed() < TICK {
                continue;
            }
            looked = Instant::now();
            if stop.load(Ordering::Relaxed) {
                return Err(NoAnswer::Interrupted);
            }
            if let Some(bytes) = resident_bytes(self.child.id()).filter(|&bytes| bytes > cap) {
                return Err(NoAnswer::Memory(bytes));
            }
        }
    }

    /// How a child that stopped talking ended.
    fn autopsy(&mut self) -> NoAnswer {
        let status = self.reap(Duration::from_secs(2));
        // The reader of standard error may still be at the last line.
        std::thread::sleep(Duration::from_millis(20));
        let noise = self.noise.lock().map(|text| text.clone()).unwrap_or_default();
        // What an allocation that failed says stands above notes on the missing backtrace.
        let starving = noise.lines().find(|line| line.contains(STARVED));
        let last = starving.or(noise.lines().rev().find(|line| !line.trim().is_empty())).unwrap_or_default();
        let last = last.trim().to_string();
        let how = match status {
            None => "closed its output but still runs".to_string(),
            Some(status) => system::describe(status),
        };
        let said = if last.is_empty() { how } else { format!("{how} (its last words: {last})") };
        let starved = noise.contains(STARVED) || status.is_some_and(system::was_killed);
        NoAnswer::Died(said, if starved { Verdict::OutOfMemory } else { Verdict::Crash })
    }
}

impl<R> Guarded<R> {
    /// Waits for the child's end, `limit` at most.
    fn reap(&mut self, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(_) => return None,
            }
        }
        None
    }
}

impl<R> Drop for Guarded<R> {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // An idle child saves its pipeline cache and leaves; one inside a driver's call is killed. One that even
        // SIGKILL does not end (blocked in the kernel) is left behind rather than waited for.
        if self.idle && self.reap(LEAVE + Duration::from_millis(500)).is_some() {
            return;
        }
        let _ = self.child.kill();
        let _ = self.reap(REAP);
    }
}

/// Hands over each line of a stream until it ends or `take` has enough; of one above `most` bytes nothing.
fn lines(mut from: impl BufRead, most: usize, mut take: impl FnMut(&[u8]) -> bool) {
    let (mut line, mut skipping) = (Vec::new(), false);
    loop {
        let piece = match from.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let end = piece.iter().position(|&byte| byte == b'\n');
        let (part, used) = end.map_or((piece, piece.len()), |end| (&piece[..end], end + 1));
        skipping |= line.len() + part.len() > most;
        if skipping {
            line.clear();
        } else {
            line.extend_from_slice(part);
        }
        // The stream's end ends a line too.
        let over = used == 0;
        from.consume(used);
        if end.is_some() || over {
            let whole = !skipping && (end.is_some() || !line.is_empty());
            if whole && !take(&line) {
                return;
            }
            line.clear();
            skipping = false;
        }
        if over {
            return;
        }
    }
}

/// Keeps the end of what a child says on standard error.
fn collect(mut pipe: impl Read, noise: &Mutex<String>) {
    let mut bytes = [0; 1024];
    while let Ok(count) = pipe.read(&mut bytes) {
        if count == 0 {
            break;
        }
        let Ok(mut text) = noise.lock() else { break };
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        if text.len() > NOISE {
            let cut =
                (text.len() - NOISE..text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
            text.drain(..cut);
        }
    }
}

/// The child's side: the requests on standard input, one a line. The process ends when its parent does, whatever
/// a driver's call is doing then.
pub fn requests() -> Receiver<String> {
    let (sender, requests) = mpsc::channel();
    let listen = move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
        drop(sender);
        // The serving thread leaves by itself when idle. Otherwise nothing can stop a driver's call
        // but the end of the process; exit handlers are skipped since they may wait for that call.
        std::thread::sleep(LEAVE);
        std::process::abort();
    };
    // Read in a thread of its own: when the parent dies while a driver hangs here, end of input is seen
    // and takes this process along.
    if let Err(error) = std::thread::Builder::new().spawn(listen) {
        // The parent reads it as the last words.
        wave32_host::stream::tell(&format!("cannot start a thread: {error}; {MORE}"));
        std::process::exit(1);
    }
    requests
}

/// The child's side: answers the parent.
pub fn say(reply: &impl Serialize) {
    let Ok(text) = serde_json::to_string(reply) else { return };
    let mut out = std::io::stdout().lock();
    // A parent that is gone cannot be told; end of input ends this process.
    let _ = writeln!(out, "{MARK}{text}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_skipped_to_their_end() {
        let text = [&b"one\n"[..], &[b'x'; 5000], b"\n\ntwo\n", &[b'y'; 101], b"\n", &[b'z'; 100], b"\nlast"]
            .concat();
        for room in [1, 7, 100, 8192] {
            let mut found: Vec<usize> = Vec::new();
            lines(BufReader::with_capacity(room, text.as_slice()), 100, |line| {
                found.push(line.len());
                true
            });
            assert_eq!(found, [3, 0, 3, 100, 4], "{room}");
        }
        let mut count = 0;
        lines(text.as_slice(), 100, |_| {
            count += 1;
            false
        });
        assert_eq!(count, 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn endless_output_without_a_line_takes_no_memory() {
        // As a driver would that prints for ever; a GiB is enough to see it.
        let before = resident_bytes(std::process::id()).unwrap();
        lines(BufReader::new(std::io::repeat(b'x').take(1 << 30)), LINE, |_| panic!("no line is here"));
        let after = resident_bytes(std::process::id()).unwrap();
        assert!(after < before + (64 << 20), "{before} became {after}");
    }
}
