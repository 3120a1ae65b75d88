//! Messages between the processes of one host, through rings of shared memory: what collectives of `torch.distributed` move
//! their tensors with.
//!
//! Every process (a *rank*) writes into a ring of its own, which all others read: [`Ring::publish`] puts the next piece of a
//! message there once every other rank has taken the piece that lay in its place, [`Ring::take`] gets the next piece of
//! another rank. All ranks must take all pieces of all others, in order.
//!
//! The memory is anonymous (`memfd`), so nothing is left behind however the processes end. Others open it by
//! `/proc/PID/fd/FD`, for which they must be of the same user and see the process: where that is not so, [`Ring::join`]
//! answers [`Error::NotHere`]. Every wait has a deadline, and ends early where the rank that is waited for has ended or
//! has said that it gave up ([`Ring::fail`]).
#![cfg(target_os = "linux")]

mod map;
mod process;

use map::Map;
use process::Process;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a piece at most.
pub const PIECE: usize = 1 << 20;
/// Pieces of a ring.
const PIECES: usize = 32;
/// Ranks at most.
pub const MAX_RANKS: usize = 64;
/// How long a wait spins before it sleeps.
const SPIN: Duration = Duration::from_micros(100);
/// How long it sleeps at a time.
const SLEEP: Duration = Duration::from_micros(50);
/// How often it looks whether the other process is still there.
const LOOK: Duration = Duration::from_millis(20);

/// Why a message did not come through.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ranks do not share memory: they are on several hosts, of several users or in several containers.
    #[error("the memory of rank {rank} cannot be opened here: {why}")]
    NotHere {
        /// Whose.
        rank: usize,
        /// What was wrong.
        why: String,
    },
    /// A rank did not do its part in time.
    #[error(
        "rank {rank} did not {what} within {seconds:.0} s: it hangs, is slower than the timeout of the process group allows, or \
         runs other collectives than this rank {own}"
    )]
    Timeout {
        /// Who was waited for.
        rank: usize,
        /// Who waited.
        own: usize,
        /// For what.
        what: &'static str,
        /// How long.
        seconds: f64,
    },
    /// A rank's process is gone.
    #[error(
        "the process of rank {rank} (pid {pid}) has ended; look at its own output for the cause, then start all ranks again"
    )]
    Ended {
        /// Whose.
        rank: usize,
        /// Its number.
        pid: u32,
    },
    /// A rank met an error of its own.
    #[error("rank {rank} gave up after an error of its own; look at its output for the cause")]
    Failed {
        /// Who.
        rank: usize,
    },
    /// A rank met a message that is not what it expected, and told so before this one could.
    #[error(
        "rank {rank} was sent a piece of another length than it expected: the ranks run different collectives"
    )]
    Differs {
        /// Who.
        rank: usize,
    },
    /// A message is not what this rank expects.
    #[error(
        "rank {rank} sent a piece of {found} bytes where {expected} were expected: the ranks run different collectives"
    )]
    Length {
        /// Who sent it.
        rank: usize,
        /// How long it is.
        found: usize,
        /// How long it should be.
        expected: usize,
    },
    /// The system refused memory or a file.
    #[error("shared memory of {bytes} bytes: {source}")]
    System {
        /// How much.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
}

/// What lies at the start of a ring's memory. Only counters: they are all that processes agree by.
#[repr(C)]
struct Header {
    token: AtomicU64,
    failed: AtomicU32,
    /// Bytes of the piece in each place.
    lengths: [AtomicU32; PIECES],
    /// The last operation that the owner has come to.
    reached: AtomicU64,
    /// Pieces that the owner has written.
    written: AtomicU64,
    /// Pieces of each rank that the owner has taken.
    taken: [AtomicU64; MAX_RANKS],
}

/// What `failed` says: an error of its own; pieces of another length.
const FAILED: u32 = 1;
const DIFFERS: u32 = 2;

/// Bytes before the pieces.
const DATA: usize = 4096;
const _: () = assert!(size_of::<Header>() <= DATA);
const BYTES: usize = DATA + PIECES * PIECE;

/// A rank's memory, as this process sees it.
struct Memory {
    map: Map,
    process: Process,
}

impl Memory {
    fn header(&self) -> &Header {
        self.map.header()
    }
}

/// A ring that the others have not joined yet.
pub struct Start {
    memory: Memory,
    file: OwnedFd,
}

impl Start {
    /// Makes this process' memory.
    ///
    /// # Errors
    /// `System`.
    pub fn new() -> Result<Self, Error> {
        let made = || -> io::Result<_> {
            let file = memfd_create("wave32-peers", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            // Memory that is there: a full machine says so here, not by a signal in the middle of a message.
            fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64)?;
            // Nobody can take the memory away under a process that reads it.
            fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok((Map::new(&file, BYTES)?, Process::own()?, file))
        };
        let (map, process, file) = made().map_err(|source| Error::System { bytes: BYTES, source })?;
        let memory = Memory { map, process };
        let mut token = [0; 8];
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())
            .map_err(|source| Error::System { bytes: BYTES, source: source.into() })?;
        memory.header().token.store(u64::from_le_bytes(token), Ordering::Release);
        Ok(Self { memory, file })
    }

    /// What the other ranks open it by.
    pub fn address(&self) -> String {
        let token = self.memory.header().token.load(Ordering::Acquire);
        format!("{}:{}:{token}", self.memory.process, self.file.as_raw_fd())
    }

    /// Opens the memory of all ranks, whose addresses these are, this one's at `rank`. Every rank keeps its `Start` until
    /// all have joined.
    ///
    /// # Errors
    /// `NotHere` where one cannot be opened.
    pub fn join(&self, rank: usize, addresses: &[String]) -> Result<Ring, Error> {
        if addresses.len() > MAX_RANKS {
            let why = format!("{} ranks; shared memory is for {MAX_RANKS} at most", addresses.len());
            return Err(Error::NotHere { rank, why });
        }
        let ranks = addresses
            .iter()
            .enumerate()
            .map(|(rank, address)| open(address).map_err(|why| Error::NotHere { rank, why }));
        Ok(Ring { rank, ranks: ranks.collect::<Result<_, _>>()? })
    }
}

fn open(address: &str) -> Result<Memory, String> {
    let wrong = || format!("{address:?} is no address of shared memory");
    let mut parts = address.rsplitn(3, ':');
    let mut next = || parts.next().ok_or_else(wrong);
    let (token, fd, process) = (next()?, next()?, next()?);
    let (token, fd): (u64, u32) = (token.parse().map_err(|_| wrong())?, fd.parse().map_err(|_| wrong())?);
    let process: Process = process.parse().map_err(|()| wrong())?;
    if !process.is_alive() {
        return Err(format!("no process {} of that time runs here", process.pid()));
    }
    let path = format!("/proc/{}/fd/{fd}", process.pid());
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|e| format!("{path}: {e}"))?;
    let bytes = file.metadata().map_err(|e| format!("{path}: {e}"))?.len();
    if bytes != BYTES as u64 {
        return Err(format!("{path} has {bytes} bytes, {BYTES} were expected"));
    }
    let map = Map::new(&file, BYTES).map_err(|e| format!("{path}: {e}"))?;
    let memory = Memory { map, process };
    if memory.header().token.load(Ordering::Acquire) != token {
        return Err(format!("{path} is another file"));
    }
    Ok(memory)
}

/// The rings of all ranks.
///
/// One thread at a time publishes, and one takes.
pub struct Ring {
    rank: usize,
    ranks: Vec<Memory>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("rank", &self.rank).field("ranks", &self.ranks.len()).finish()
    }
}

impl Ring {
    /// This process' rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Publishes the next piece, of [`PIECE`] bytes at most.
    ///
    /// # Errors
    /// `Timeout`, `Ended` or `Failed` where another rank does not take what lies in its place.
    ///
    /// # Panics
    /// Where the piece is too long.
    pub fn publish(&self, data: &[u8], timeout: Duration) -> Result<(), Error> {
        assert!(data.len() <= PIECE, "a piece of {} bytes", data.len());
        let header = self.ranks[self.rank].header();
        let number = header.written.load(Ordering::Relaxed);
        let place = number as usize % PIECES;
        for (rank, memory) in self.others() {
            let taken = &memory.header().taken[self.rank];
            let is_free = || taken.load(Ordering::Acquire) + PIECES as u64 > number;
            self.wait(rank, "take a piece", timeout, is_free)?;
        }
        self.ranks[self.rank].map.write(DATA + place * PIECE, data);
        header.lengths[place].store(data.len() as u32, Ordering::Relaxed);
        header.written.store(number + 1, Ordering::Release);
        Ok(())
    }

    /// Takes the next piece of another rank, of which the length is known.
    ///
    /// # Errors
    /// `Length` where it has another; `Timeout`, `Ended`, `Failed` or `Differs` where it does not come.
    pub fn take(&self, from: usize, into: &mut [u8], timeout: Duration) -> Result<(), Error> {
        let bytes = into.len();
        self.next(from, bytes, timeout, |map, at| map.read(at, into))
    }

    /// As [`Ring::take`], for a piece that is of no use to this rank.
    ///
    /// # Errors
    /// As [`Ring::take`].
    pub fn skip(&self, from: usize, bytes: usize, timeout: Duration) -> Result<(), Error> {
        self.next(from, bytes, timeout, |_, _| ())
    }

    fn next(
        &self,
        from: usize,
        expected: usize,
        timeout: Duration,
        read: impl FnOnce(&Map, usize),
    ) -> Result<(), Error> {
        let taken = &self.ranks[self.rank].header().taken[from];
        let number = taken.load(Ordering::Relaxed);
        let place = number as usize % PIECES;
        let header = self.ranks[from].header();
        self.wait(from, "send a piece", timeout, || header.written.load(Ordering::Acquire) > number)?;
        let found = header.lengths[place].load(Ordering::Relaxed) as usize;
        if found != expected {
            self.fail_by(DIFFERS);
            return Err(Error::Length { rank: from, found, expected });
        }
        read(&self.ranks[from].map, DATA + place * PIECE);
        taken.store(number + 1, Ordering::Release);
        Ok(())
    }

    /// Tells the others that this rank has come to an operation; their numbers rise.
    pub fn reach(&self, operation: u64) {
        self.ranks[self.rank].header().reached.store(operation, Ordering::Release);
    }

    /// Waits until all ranks have come to an operation.
    ///
    /// # Errors
    /// `Timeout`, `Ended` or `Failed` where one does not.
    pub fn all_reach(&self, operation: u64, timeout: Duration) -> Result<(), Error> {
        self.others().try_for_each(|(rank, memory)| {
            let reached = &memory.header().reached;
            let is_there = || reached.load(Ordering::Acquire) >= operation;
            self.wait(rank, "come to an operation", timeout, is_there)
        })
    }

    /// Tells the others that this rank goes no further: what they wait for from it fails.
    pub fn fail(&self) {
        self.fail_by(FAILED);
    }

    /// The first reason stays.
    fn fail_by(&self, reason: u32) {
        let failed = &self.ranks[self.rank].header().failed;
        let _ = failed.compare_exchange(0, reason, Ordering::Release, Ordering::Relaxed);
    }

    fn others(&self) -> impl Iterator<Item = (usize, &Memory)> {
        self.ranks.iter().enumerate().filter(|(rank, _)| *rank != self.rank)
    }

    fn wait(
        &self,
        rank: usize,
        what: &'static str,
        timeout: Duration,
        is_done: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let start = Instant::now();
        let mut looked = start;
        let memory = &self.ranks[rank];
        while !is_done() {
            let now = Instant::now();
            if now - start < SPIN {
                std::thread::yield_now();
                continue;
            }
            if now - looked >= LOOK {
                looked = now;
                let reason = memory.header().failed.load(Ordering::Acquire);
                if reason != 0 && !is_done() {
                    let differs = reason == DIFFERS;
                    return Err(if differs { Error::Differs { rank } } else { Error::Failed { rank } });
                }
                // What it published before it ended counts.
                if !memory.process.is_alive() && !is_done() {
                    return Err(Error::Ended { rank, pid: memory.process.pid() });
                }
            }
            if now - start >= timeout {
                return Err(Error::Timeout { rank, own: self.rank, what, seconds: timeout.as_secs_f64() });
            }
            std::thread::sleep(SLEEP);
        }
        Ok(())
    }
}
