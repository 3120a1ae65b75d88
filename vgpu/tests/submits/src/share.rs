//! Two processes that compute in the same buffers, each on its own virtual card.
//!
//! The first fills two buffers with random words, has a shader turn them, and gives the second the buffers, a timeline, a
//! binary semaphore and a fence as descriptors: by inheritance, or over a socket. The second waits for the timeline, turns
//! the words once more and signals all three. The first waits for each of them and compares every word.

use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use ash::vk;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::net as socket;

use crate::gpu::Gpu;

mod objects;

use objects::{Buffers, Signals};

/// A process may take so long to come, to compute, to signal.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// Two buffers, three things to wait for.
const DESCRIPTORS: usize = 5;

#[derive(clap::Args)]
pub struct Share {
    /// `wave32-vgpu`
    #[arg(long)]
    launcher: PathBuf,
    /// RADV's ICD file
    #[arg(long)]
    radv: PathBuf,
    /// Of the values [default: of the clock]
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(clap::Args)]
pub struct Sharer {
    #[arg(long)]
    seed: u64,
    /// Where the first listens
    #[arg(long)]
    socket: PathBuf,
    /// The first: it starts the second itself, which inherits the descriptors
    #[arg(long)]
    inherit: bool,
    /// The first ends before the second begins
    #[arg(long)]
    leave: bool,
    /// The second
    #[arg(long)]
    second: bool,
    /// Inherited descriptors
    #[arg(long, value_delimiter = ',')]
    descriptors: Vec<RawFd>,
}

/// What both know.
pub struct Values {
    pub words: Vec<u32>,
    /// By buffer and turn: what is pushed to the shader.
    pub turns: [[[u32; 2]; 2]; 2],
}

impl Values {
    fn of(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let count = rng.random_range(1..300_000);
        Self { words: (0..count).map(|_| rng.random()).collect(), turns: rng.random() }
    }

    /// The words of a buffer after so many turns.
    pub fn after(&self, buffer: usize, turns: usize) -> Vec<u32> {
        let turn = |i: u32, word: u32, [a, b]: [u32; 2]| word.rotate_left(1 + b % 31) ^ a.wrapping_add(i);
        let all = |(i, word): (u32, &u32)| {
            self.turns[buffer][..turns].iter().fold(*word, |word, by| turn(i, word, *by))
        };
        (0..).zip(&self.words).map(all).collect()
    }
}

/// Runs each kind of sharing, and looks whether the cards have anything left.
pub fn run(share: &Share) -> Result<()> {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    let seed = share.seed.unwrap_or_else(clock);
    let folder = tempfile::tempdir()?;
    for (i, (name, options)) in
        [("inherited", &["--inherit"][..]), ("sent", &[]), ("left behind", &["--leave"])]
            .into_iter()
            .enumerate()
    {
        let started = Instant::now();
        one(share, seed + i as u64, folder.path(), options).with_context(|| {
            format!("{name}; again: wave32-submits share --seed {seed}, or `sharer {options:?}`")
        })?;
        println!("{name}: every word is right, {:.1} s", started.elapsed().as_secs_f64());
    }
    Ok(())
}

fn one(share: &Share, seed: u64, folder: &Path, options: &[&str]) -> Result<()> {
    let path = folder.join(format!("socket-{seed}"));
    let reports = ["first", "second"].map(|name| folder.join(format!("{name}-{seed}.json")));
    let start = |report: &Path, options: &[&str]| {
        let mut card = Command::new(&share.launcher);
        card.env("VK_DRIVER_FILES", &share.radv).env("VK_ICD_FILENAMES", &share.radv).stdin(Stdio::null());
        card.args(["run", "--strict", "--check", "--deadline", "60", "--report"]).arg(report).arg("--");
        card.arg(std::env::current_exe()?)
            .args(["sharer", "--seed", &seed.to_string(), "--socket"])
            .arg(&path);
        anyhow::Ok(card.args(options).spawn()?)
    };
    let mut started = vec![start(&reports[0], options)?];
    if !options.contains(&"--inherit") {
        started.push(start(&reports[1], &[options, &["--second"]].concat())?);
    }
    for mut process in started {
        let status = process.wait()?;
        ensure!(status.success(), "{status}");
    }
    let mut looked_at = 0;
    for file in std::fs::read_dir(folder)? {
        let file = file?.path();
        if file.to_string_lossy().contains(&format!("-{seed}.json")) {
            let report = std::fs::read_to_string(&file)?;
            for part in ["\"findings\": []", "\"left\": {}"] {
                ensure!(report.contains(part), "{}: no {part}: {report}", file.display());
            }
            looked_at += 1;
        }
    }
    ensure!(looked_at == 2, "{looked_at} reports");
    Ok(())
}

/// One of the processes.
pub fn sharer(sharer: &Sharer) -> Result<()> {
    let values = Values::of(sharer.seed);
    let gpu = Gpu::open()?;
    ensure!(gpu.name.contains("RADV"), "{}", gpu.name);
    if sharer.second {
        second(sharer, &gpu, &values).context("the second")
    } else {
        first(sharer, &gpu, &values)
    }
}

fn first(sharer: &Sharer, gpu: &Gpu, values: &Values) -> Result<()> {
    let listener = UnixListener::bind(&sharer.socket)?;
    let buffers = Buffers::new(gpu, values.words.len())?;
    let signals = Signals::new(gpu)?;
    // The second buffer has been used, and is mapped, when it is exported; the first was not, and is written later.
    buffers.write(1, &values.words)?;
    buffers.turn(&[1], values, 0, &signals.submit())?;
    buffers.wait()?;
    let mut descriptors = buffers.export()?;
    buffers.read(1, &values.after(1, 1)).context("after its export")?;
    let again = Buffers::import(gpu, values.words.len(), buffers.export()?.into_iter())?;
    again.read(1, &values.after(1, 1)).context("by this process once more")?;
    drop(again);
    descriptors.extend(signals.export()?);
    // To be waited for over there while it runs here.
    buffers.write(0, &values.words)?;
    buffers.turn(&[0], values, 0, &signals.submit().reaches(1))?;
    if sharer.leave {
        buffers.wait()?;
    }
    let child = if sharer.inherit {
        let list: Vec<String> =
            descriptors.iter().map(|fd| inheritable(fd).map(|fd| fd.to_string())).collect::<Result<_>>()?;
        let mut child = Command::new(std::env::current_exe()?);
        child.args([
            "sharer",
            "--second",
            "--seed",
            &sharer.seed.to_string(),
            "--descriptors",
            &list.join(","),
        ]);
        Some(child.arg("--socket").arg(&sharer.socket).spawn()?)
    } else {
        let stream = listener.accept()?.0;
        send(&stream, &descriptors)?;
        // Open until this process ends: so the other hears of that.
        let _ = stream.into_raw_fd();
        None
    };
    drop(descriptors);
    if !sharer.leave {
        signals.wait(2)?;
        signals.wait_fence()?;
        buffers.read_after(&signals, 0, &values.after(0, 2))?;
        buffers.read(1, &values.after(1, 2))?;
        signals.reach(3)?;
    }
    if let Some(mut child) = child {
        let status = child.wait()?;
        ensure!(status.success(), "the second: {status}");
    }
    Ok(())
}

fn second(sharer: &Sharer, gpu: &Gpu, values: &Values) -> Result<()> {
    let mut stream = None;
    let descriptors = if sharer.descriptors.is_empty() {
        let connected = stream.insert(connect(&sharer.socket)?);
        receive(connected)?
    } else {
        // SAFETY: inherited for this, and nobody else's here.
        sharer.descriptors.iter().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }).collect()
    };
    ensure!(descriptors.len() == DESCRIPTORS, "{} descriptors", descriptors.len());
    if sharer.leave {
        let mut stream = stream.context("a socket")?;
        stream.set_read_timeout(Some(DEADLINE))?;
        ensure!(stream.read(&mut [0])? == 0, "the first has ended");
    }
    let mut descriptors = descriptors.into_iter();
    let buffers = Buffers::import(gpu, values.words.len(), descriptors.by_ref().take(2))?;
    let signals = Signals::import(gpu, descriptors)?;
    if sharer.leave {
        // All that it signals is signalled, whoever waits.
        signals.wait(1)?;
        for buffer in 0..2 {
            buffers.read(buffer, &values.after(buffer, 1))?;
        }
        return Ok(());
    }
    buffers.turn(&[0, 1], values, 1, &signals.submit().after(1).reaches(2).all())?;
    buffers.wait()?;
    for buffer in 0..2 {
        buffers.read(buffer, &values.after(buffer, 2))?;
    }
    signals.wait(3)
}

fn inheritable(fd: &OwnedFd) -> Result<RawFd> {
    use std::os::fd::AsRawFd;
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
    Ok(fd.as_raw_fd())
}

fn connect(path: &Path) -> Result<UnixStream> {
    let started = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(error) if started.elapsed() > DEADLINE => bail!("{}: {error}", path.display()),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn send(stream: &UnixStream, descriptors: &[OwnedFd]) -> Result<()> {
    use std::os::fd::AsFd;
    let list: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut message = socket::SendAncillaryBuffer::new(&mut room);
    ensure!(message.push(socket::SendAncillaryMessage::ScmRights(&list)), "too many");
    socket::sendmsg(stream, &[IoSlice::new(b"x")], &mut message, socket::SendFlags::empty())?;
    Ok(())
}

fn receive(stream: &UnixStream) -> Result<Vec<OwnedFd>> {
    stream.set_read_timeout(Some(DEADLINE))?;
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut message = socket::RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    socket::recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut byte)],
        &mut message,
        socket::RecvFlags::CMSG_CLOEXEC,
    )?;
    let of = |part| match part {
        socket::RecvAncillaryMessage::ScmRights(list) => Some(list),
        _ => None,
    };
    Ok(message.drain().filter_map(of).flatten().collect())
}

/// Semaphores and fences are all as `vk` has them.
pub fn timeout() -> u64 {
    DEADLINE.as_nanos() as u64
}

/// The first that differs.
pub fn compare(found: &[u32], expected: &[u32]) -> Result<()> {
    ensure!(found.len() == expected.len(), "{} words", found.len());
    let wrong = (0..found.len()).find(|i| found[*i] != expected[*i]);
    wrong.map_or(Ok(()), |i| bail!("word {i} of {}: {:#x}, not {:#x}", found.len(), found[i], expected[i]))
}

/// OPAQUE_FD.
pub const MEMORY: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
