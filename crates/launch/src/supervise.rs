//! A program as a child that is watched: signals and exit status pass through.
//!
//! The child stays in this process' group, so the terminal's signals and job control reach both and the shell sees one job.
//! What was sent to this process alone is passed on.

use super::environment::{Change, Variables};
use super::log_filter::{LastCommand, pass};
use super::start::command;
use super::watch::process::{Process, tree};
use super::watch::{HOLDING, Look, Watch};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;
use rustix::process::{WaitOptions, waitpid};
use signal_hook::consts::signal as s;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Exit code where the program was ended because it was stuck, as of `timeout`.
pub const HUNG: u8 = 124;

/// What is passed on, where the program does not get it anyway.
const PASSED: [i32; 13] = [
    s::SIGHUP,
    s::SIGINT,
    s::SIGQUIT,
    s::SIGTERM,
    s::SIGUSR1,
    s::SIGUSR2,
    s::SIGALRM,
    s::SIGCONT,
    s::SIGTSTP,
    s::SIGTTIN,
    s::SIGTTOU,
    s::SIGWINCH,
    s::SIGURG,
];

/// How long a stuck program may take to end when asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How long a look may take: longer, and the kernel itself is stuck with the process.
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// How a watched program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this exit code.
    Exited(u8),
    /// By this signal.
    Signaled(i32),
    /// It was stuck and has been ended.
    Hung,
}

enum Event {
    Signal(Origin),
    Looked(Look),
}

/// Runs the program until it ends, or has been stuck in MIOpen for `allowed`. `tell` gets what people should read.
///
/// # Errors
/// The system's error where the program cannot be started.
pub fn supervise(
    argv: &[OsString],
    changes: &[Change],
    before: &Variables,
    allowed: Duration,
    tell: &mut dyn FnMut(&str),
) -> io::Result<Ended> {
    let mut command = command(argv, changes, before)?;
    let (events, received) = channel();
    listen(events.clone())?;
    let (ours, theirs, terminal) = standard_error()?;
    command.stderr(Stdio::from(theirs));
    let mut child = command.spawn()?;
    // It holds the other end of the program's standard error.
    drop(command);
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let last = LastCommand::default();
    let keep = before.contains_key(std::ffi::OsStr::new("MIOPEN_ENABLE_LOGGING_CMD"));
    let reading = Arc::new(AtomicBool::new(false));
    let reader = Reader { file: File::from(ours.try_clone()?), reading: Arc::clone(&reading) };
    let filter = {
        let last = last.clone();
        std::thread::Builder::new().spawn(move || pass(reader, io::stderr(), keep, last))
    };
    let watch = Watch::new(pid.as_raw(), allowed, last);
    let looking = Arc::new(AtomicBool::new(true));
    let patience = allowed.max(LONGEST_LOOK);
    let looked = {
        let looking = Arc::clone(&looking);
        std::thread::Builder::new().spawn(move || look(watch, &events, &looking))
    };
    let filter = match (filter, looked) {
        (Ok(filter), Ok(_)) => filter,
        (Err(error), _) | (_, Err(error)) => {
            // Nobody would read what it says, or look after it.
            let _ = kill(pid, Signal::SIGKILL);
            let _ = child.wait();
            return Err(no_thread(&error));
        }
    };
    let child = rustix::process::Pid::from_child(&child);
    let mut state = Watched {
        pid,
        child: Some(child),
        terminal: terminal.then_some(ours),
        last_look: Instant::now(),
        patience,
    };
    let ended = state.wait(&received, &looking, tell);
    drain(&filter, &reading);
    Ok(ended)
}

/// Says that the program was not given up for its own sake.
fn no_thread(error: &io::Error) -> io::Error {
    let text = format!(
        "no thread to watch it: {error}; this user may have no more processes or memory: raise `ulimit -u` and `ulimit -v`"
    );
    io::Error::new(error.kind(), text)
}

/// Sends what arrives; leaves alone what this process was told to ignore, so that the program ignores it too.
fn listen(events: Sender<Event>) -> io::Result<()> {
    let ignored = ignored_signals();
    let wanted = PASSED.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0).chain([s::SIGCHLD]);
    let mut signals = SignalsInfo::<WithOrigin>::new(wanted)?;
    let listen = move || signals.forever().try_for_each(|origin| events.send(Event::Signal(origin)));
    std::thread::Builder::new().spawn(listen).map_err(|error| no_thread(&error))?;
    Ok(())
}

fn ignored_signals() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Our end and the program's end of its standard error: a terminal of the same size where ours is one, else a pipe.
fn standard_error() -> io::Result<(OwnedFd, OwnedFd, bool)> {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    use rustix::termios::{OptionalActions, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
    let terminal = rustix::stdio::stderr();
    if !isatty(terminal) {
        let (read, write) = io::pipe()?;
        return Ok((read.into(), write.into(), false));
    }
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    // The real terminal does what there is to do with the bytes.
    let mut raw = tcgetattr(&theirs)?;
    raw.make_raw();
    tcsetattr(&theirs, OptionalActions::Now, &raw)?;
    let _ = tcgetwinsize(terminal).and_then(|size| tcsetwinsize(&ours, size));
    Ok((ours, theirs, true))
}

/// Says whether it waits for bytes.
struct Reader {
    file: File,
    reading: Arc<AtomicBool>,
}

impl io::Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reading.store(true, Ordering::SeqCst);
        let count = self.file.read(buffer);
        self.reading.store(false, Ordering::SeqCst);
        count
    }
}

/// Waits until everything that the program wrote is passed on. What it left running may hold its standard error open for
/// ever, so nothing more to read counts as the end.
fn drain(filter: &std::thread::JoinHandle<()>, reading: &AtomicBool) {
    let mut quiet = 0;
    while !filter.is_finished() && quiet < 10 {
        quiet = if reading.load(Ordering::SeqCst) { quiet + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Looks until nobody listens. `looking` is false while a look is under way, which may last for ever where the kernel is stuck.
fn look(mut watch: Watch, events: &Sender<Event>, looking: &AtomicBool) {
    loop {
        std::thread::sleep(watch.interval());
        looking.store(false, Ordering::SeqCst);
        let found = watch.look();
        looking.store(true, Ordering::SeqCst);
        let ends = !matches!(found, Look::Fine);
        if events.send(Event::Looked(found)).is_err() || ends {
            return;
        }
    }
}

struct Watched {
    pid: Pid,
    /// The same, for the calls that know every signal.
    child: Option<rustix::process::Pid>,
    terminal: Option<OwnedFd>,
    last_look: Instant,
    patience: Duration,
}

impl Watched {
    fn wait(&mut self, events: &Receiver<Event>, looking: &AtomicBool, tell: &mut dyn FnMut(&str)) -> Ended {
        let mut blind = false;
        loop {
            if let Some(ended) = self.poll() {
                return ended;
            }
            match events.recv_timeout(Duration::from_millis(500)) {
                Ok(Event::Signal(origin)) => self.signal(&origin),
                Ok(Event::Looked(Look::Fine)) => self.last_look = Instant::now(),
                Ok(Event::Looked(Look::Blind(why))) => {
                    blind = true;
                    tell(&format!(
                        "wave32 run: --hang-timeout has no effect: {why} (in a container, allow SYS_PTRACE)\n"
                    ));
                }
                Ok(Event::Looked(Look::Stuck(diagnosis))) => {
                    tell(&diagnosis.to_string());
                    return self.end(&[diagnosis.process], tell);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if !blind && !looking.load(Ordering::SeqCst) && self.last_look.elapsed() > self.patience {
                tell(
                    "wave32 run: STUCK: the kernel does not answer about this program: the GPU's driver is stuck\n",
                );
                return self.end(&[], tell);
            }
        }
    }

    /// What became of the program; stops this process where the program was stopped.
    fn poll(&self) -> Option<Ended> {
        let Ok(_held) = HOLDING.try_lock() else { return None };
        loop {
            let status = match waitpid(self.child, WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((_, status))) => status,
                Ok(None) => return None,
                Err(rustix::io::Errno::INTR) => continue,
                // Cannot be: nobody else waits for it.
                Err(_) => return Some(Ended::Exited(1)),
            };
            if let Some(code) = status.exit_status() {
                return Some(Ended::Exited(code as u8));
            }
            // By its number: real-time signals have no name.
            if let Some(signal) = status.terminating_signal() {
                return Some(Ended::Signaled(signal));
            }
            if status.stopped() {
                // The shell shall see the job as stopped, and continues both.
                let _ = raise(Signal::SIGSTOP);
            }
        }
    }

    fn signal(&self, origin: &Origin) {
        if origin.signal == s::SIGWINCH
            && let Some(terminal) = &self.terminal
        {
            let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
            let _ = size.and_then(|size| rustix::termios::tcsetwinsize(terminal, size));
        }
        // The terminal's go to the whole group, the program's own are not for it.
        let sender = origin.process.as_ref().map(|process| process.pid);
        if origin.signal == s::SIGCHLD || origin.cause == Cause::Kernel || sender == Some(self.pid.as_raw()) {
            return;
        }
        if let Ok(signal) = Signal::try_from(origin.signal) {
            let _ = kill(self.pid, signal);
        }
    }

    /// Ends the program and what it started: asks, then insists, then leaves what the kernel holds.
    fn end(&self, stuck: &[Process], tell: &mut dyn FnMut(&str)) -> Ended {
        let all = tree(self.pid.as_raw());
        let send = |processes: &[Process], signal| {
            // In a fork of ours an id may be somebody else's by now.
            processes.iter().filter(|process| process.is_alive()).for_each(|process| {
                let _ = kill(Pid::from_raw(process.pid), signal);
            });
        };
        let first: Vec<Process> = all.iter().take(1).chain(stuck).copied().collect();
        send(&first, Signal::SIGTERM);
        send(&first, Signal::SIGCONT);
        let left = |since: Instant| {
            while since.elapsed() < GRACE {
                if self.poll().is_some() | !all.iter().any(Process::is_alive) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        left(Instant::now());
        send(&all, Signal::SIGKILL);
        left(Instant::now());
        if let Some(held) = all.iter().find(|process| process.is_alive()) {
            let pid = held.pid;
            tell(&format!(
                "wave32 run: process {pid} cannot be ended: the kernel holds it. Only a reboot frees the card\n"
            ));
        }
        Ended::Hung
    }
}

/// Ends this process by a signal, as the program ended, without a second core dump. Comes back where that cannot be.
pub fn die_by(signal: i32) {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    // Any other, real-time ones among them, ends a process that never asked for it.
    let _ = signal_hook::low_level::raise(signal);
}
