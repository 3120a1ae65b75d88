//! What programs write for the card, as fuzzers write it: ioctls, packets of both kinds of queues, code.
//!
//! The targets are in `fuzz/`; the tests here run what was found before, and random bytes.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::device::{self, Device};
use crate::errno::Errno;
use crate::memory::flags;
use crate::queue::{Description, Kind, Queue};
use crate::topology::GPU_ID;
use crate::user::PAGE;
use crate::{aql, drm, kfd, sdma};

/// Bytes that are used up; zeros behind them.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (now, later) = self.0.split_at(self.0.len().min(N));
        self.0 = later;
        let mut out = [0; N];
        out[..now.len()].copy_from_slice(now);
        out
    }

    fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }
}

/// The card of this process, whose kernels may take a moment: many never end.
fn card() -> &'static Device {
    if let Some(device) = Device::current() {
        return device;
    }
    for (name, value) in [("DEADLINE", "0.05"), ("THREADS", "1")] {
        // SAFETY: before the card is there; tests of other threads do not look at these.
        unsafe { std::env::set_var(format!("WAVE32_VGPU_{name}"), value) };
    }
    let fd = device::open(libc::O_CLOEXEC).expect("a card");
    // SAFETY: opened just now.
    unsafe { libc::close(fd) };
    Device::current().expect("it was opened")
}

/// Where the card sees what a case puts there.
const RING: u64 = 1 << 41;
const DATA: u64 = RING + (1 << 20);
const READ_ONLY: u64 = DATA + PAGE;

/// A case's buffers, freed behind it.
struct Stage {
    device: &'static Device,
    handles: Vec<u64>,
}

impl Stage {
    fn new(buffers: &[(u64, u64, u32)]) -> Self {
        let mut stage = Self { device: card(), handles: Vec::new() };
        for &(address, bytes, flags) in buffers {
            let (handle, _) = stage.device.vm.allocate(address, bytes, 0, flags).expect("memory");
            stage.handles.push(handle);
            stage.device.vm.map_for_card(handle).expect("its own addresses");
        }
        stage
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let _in_use = self.device.vm.in_use();
        for (i, word) in bytes.chunks(4).enumerate() {
            let mut whole = [0; 4];
            whole[..word.len()].copy_from_slice(word);
            let place = self.device.vm.word32(at + 4 * i as u64).expect("inside the buffer");
            place.store(u32::from_le_bytes(whole), Ordering::Relaxed);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for handle in self.handles.drain(..) {
            let _ = self.device.vm.free(handle);
        }
    }
}

/// Executes a ring that holds these bytes, up to the first packet that cannot be; waits do not wait.
fn ring(kind: Kind, packets: &[u8], data: &[u8]) {
    const BYTES: u64 = 1024;
    let host = flags::WRITABLE | flags::COHERENT;
    let stage = Stage::new(&[
        (RING, 2 * PAGE, host),
        (DATA, PAGE, flags::WRITABLE | flags::VRAM),
        (READ_ONLY, PAGE, 0),
    ]);
    stage.put(RING, &packets[..packets.len().min(BYTES as usize)]);
    stage.put(DATA, &data[..data.len().min(PAGE as usize)]);
    // As in `amd_queue_t`, whose error signal may be told too.
    let (write_index, read_index) = (RING + PAGE + 56, RING + PAGE + 128);
    let description = Description { kind, ring: RING, bytes: BYTES, read_index, write_index };
    let (queue, ended) = (Queue::idle(0, description), Queue::idle(0, description));
    ended.end();
    let unit = if kind == Kind::Aql { 64 } else { 1 };
    stage.put(write_index, &(packets.len() as u64).min(BYTES).div_ceil(unit).to_le_bytes());
    let _in_use = stage.device.vm.in_use();
    for _ in 0..BYTES {
        let step = match kind {
            Kind::Aql => aql::step(stage.device, &ended),
            Kind::Sdma => {
                let vm = &stage.device.vm;
                let read = vm.word64(read_index).map_or(0, |word| word.load(Ordering::Relaxed));
                let next = |i: u64| {
                    let at = RING + (read.wrapping_add(4 * i) % BYTES) / 4 * 4;
                    vm.word32(at).map_or(0, |word| word.load(Ordering::Relaxed))
                };
                // Rows of a rectangle, if it is one: there is no time for so many.
                let rows = u64::from((next(11) >> 16 & 0x3fff) + 1) * u64::from((next(12) & 0x7ff) + 1);
                let is_long = next(0) & 0xffff == sdma::RECT && rows > 1 << 14;
                let waits = next(0) & 0xff == sdma::POLL_REGMEM;
                sdma::step(stage.device, if waits || is_long { &ended } else { &queue })
            }
        };
        match step {
            Ok(true) => {}
            Ok(false) => break,
            Err(failure) => {
                queue.report(stage.device, failure);
                break;
            }
        }
    }
}

/// Packets of the copy engine; the first half of the bytes is the data that they may reach.
pub fn sdma_packets(bytes: &[u8]) {
    let (data, packets) = bytes.split_at(bytes.len() / 2);
    ring(Kind::Sdma, packets, data);
}

/// AQL packets: up to 4, and behind them what they may reach, kernels for example.
pub fn aql_packets(bytes: &[u8]) {
    let (packets, data) = bytes.split_at(bytes.len().min(256));
    ring(Kind::Aql, packets, data);
}

/// Ioctls one after the other: a number, then eight-byte fields of which a byte each says what they are.
pub fn ioctls(bytes: &[u8]) {
    let device = card();
    let mut bytes = Bytes(bytes);
    let mut memory = Memory::new();
    for _ in 0..32 {
        if bytes.0.is_empty() {
            break;
        }
        let number = u32::from(bytes.byte()) % 0x28;
        let (size, mut fields) = memory.fields(&mut bytes);
        // No time to wait: the word that says how long is the fifth.
        if let (0x0c, Some(times)) = (number, fields.get_mut(2)) {
            *times &= 0xffff_ffff_0000_0000;
        }
        let at = memory.arguments(&fields);
        // SAFETY: what is written goes to `memory`, or to where nothing is.
        let answer: Result<(), Errno> = unsafe { kfd::ioctl(device, number, at, size) };
        memory.remember(number, &answer);
    }
    let queues: Vec<u32> = device.queues().keys().copied().collect();
    for id in queues {
        let queue = device.queues().remove(&id);
        queue.expect("nobody else takes it").destroy();
    }
    for handle in std::mem::take(&mut memory.handles) {
        let _ = device.vm.free(handle);
    }
    for id in 1..crate::events::LIMIT {
        let _ = device.events.destroy(id);
    }
}

/// Command buffers: the first byte is the ring, the first half of the rest the data that packets may reach.
pub fn command_buffers(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let graphics = bytes.byte() % 2 == 1;
    let (data, packets) = bytes.0.split_at(bytes.0.len() / 2);
    let packets = &packets[..packets.len().min(PAGE as usize) / 4 * 4];
    let stage = Stage::new(&[
        (RING, 2 * PAGE, flags::WRITABLE | flags::COHERENT),
        (DATA, PAGE, flags::WRITABLE | flags::VRAM),
        (READ_ONLY, PAGE, 0),
    ]);
    stage.put(RING, packets);
    stage.put(DATA, &data[..data.len().min(PAGE as usize)]);
    let _in_use = stage.device.vm.in_use();
    drm::command_buffer(stage.device, graphics, RING, packets.len() as u32 / 4);
}

/// Requests of the render node one after the other, as [`ioctls`].
pub fn render_ioctls(bytes: &[u8]) {
    // As descriptors, out and in, of buffers and of syncobjs; behind the others, whose bytes mean what they meant.
    const SHARING: [u8; 4] = [0x2d, 0x2e, 0xc1, 0xc2];
    // Those there are, and one that there is not.
    const NUMBERS: [u8; 28] = [
        0x00, 0x09, 0x0c, 0x40, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x48, 0x49, 0x50, 0x51,
        0x52, 0xbf, 0xc0, 0xc3, 0xc4, 0xc5, 0xca, 0xcb, 0xcc, 0xcd, 0x7f,
    ];
    let device = card();
    let mut bytes = Bytes(bytes);
    let mut memory = Memory::new();
    for _ in 0..32 {
        if bytes.0.is_empty() {
            break;
        }
        let byte = bytes.byte();
        let sharing = byte.checked_sub(252).map(|i| SHARING[usize::from(i)]);
        let number = u32::from(sharing.unwrap_or(NUMBERS[usize::from(byte) % NUMBERS.len()]));
        let (size, mut fields) = memory.fields(&mut bytes);
        // No time to wait: the field that says until when.
        let until = match number {
            0x47 | 0x49 | 0xc3 => 1,
            0xcc => 4,
            _ => 2,
        };
        if let (0x47 | 0x49 | 0x52 | 0xc3 | 0xca | 0xcc, Some(time)) = (number, fields.get_mut(until)) {
            *time = 0;
        }
        let at = memory.arguments(&fields);
        // Room for a descriptor: somebody has to close it.
        let size = if sharing.is_some() { size.max(16) } else { size };
        // SAFETY: what is written goes to `memory`, or to where nothing is.
        let answer = unsafe { drm::ioctl(device, number, at, size) };
        memory.remember_of_drm(number, &answer);
    }
    device.drm.clear(device);
}

/// What the pointers of a case's ioctls may point to.
struct Memory {
    /// Two pages, of which the second may not be written.
    pages: *mut u8,
    handles: Vec<u64>,
    /// That were given out.
    descriptors: Vec<OwnedFd>,
}

const ARGUMENTS: usize = 2048;

impl Memory {
    fn new() -> Self {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, and the rights of its second page.
        let pages = unsafe {
            let pages = libc::mmap(std::ptr::null_mut(), 2 * PAGE as usize, rights, kind, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            libc::mprotect(pages.byte_add(PAGE as usize), PAGE as usize, libc::PROT_READ);
            pages
        };
        Self { pages: pages.cast(), handles: Vec::new(), descriptors: Vec::new() }
    }

    /// A request's size and its fields.
    fn fields(&self, bytes: &mut Bytes) -> (usize, Vec<u64>) {
        let size = usize::from(bytes.byte()) % 128;
        (size, (0..size.div_ceil(8)).map(|_| self.field(bytes)).collect())
    }

    fn field(&self, bytes: &mut Bytes) -> u64 {
        let what = bytes.byte();
        let small = |bytes: &mut Bytes| u64::from(u16::from_le_bytes(bytes.take()));
        let pages = self.pages as u64;
        match what % 16 {
            0 => 0,
            1 => small(bytes),
            2 => small(bytes) << 32,
            // Two words: a small one, and one that ioctls know.
            3 => small(bytes) << 32 | u64::from(GPU_ID),
            4 => u64::from(GPU_ID) << 32 | small(bytes),
            5 => pages + small(bytes) % PAGE,
            6 => pages,
            7 => pages + PAGE,
            8 => pages + 2 * PAGE,
            9 => RING + small(bytes) * PAGE,
            10 => small(bytes) * PAGE,
            11 => self.handles.last().copied().unwrap_or(0),
            12 => u64::MAX - small(bytes),
            13 => (1 << 47) - small(bytes) % 16 * PAGE,
            // Flags above, a card below.
            14 => u64::from(GPU_ID) | u64::from(u32::from_le_bytes(bytes.take())) << 32,
            // Nowhere that a program could have memory.
            _ => u64::from_le_bytes(bytes.take()) | 1 << 63,
        }
    }

    /// Writes arguments down; where they lie.
    fn arguments(&mut self, fields: &[u64]) -> u64 {
        for (i, field) in fields.iter().enumerate() {
            // SAFETY: 16 fields at most, on the first page, which nothing refers to.
            unsafe { self.pages.add(ARGUMENTS + 8 * i).cast::<u64>().write_unaligned(*field) };
        }
        self.pages as u64 + ARGUMENTS as u64
    }

    fn remember(&mut self, number: u32, answer: &Result<(), Errno>) {
        if (number, answer) == (0x16, &Ok(())) {
            // SAFETY: as above; the handle is the third field.
            self.handles.push(unsafe { self.pages.add(ARGUMENTS + 16).cast::<u64>().read_unaligned() });
        }
    }
}

impl Memory {
    fn remember_of_drm(&mut self, number: u32, answer: &Result<(), Errno>) {
        // SAFETY: as in `remember`.
        let word = |at: usize| unsafe { self.pages.add(ARGUMENTS + at).cast::<u32>().read_unaligned() };
        match number {
            // Handles.
            0x40 | 0xbf if answer.is_ok() => self.handles.push(word(0).into()),
            0x2d | 0xc1 if answer.is_ok() => {
                self.handles.push(word(8).into());
                // SAFETY: it was given just now.
                self.descriptors.push(unsafe { OwnedFd::from_raw_fd(word(8) as i32) });
            }
            _ => {}
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped above; buffers of it were freed.
        unsafe { libc::munmap(self.pages.cast(), 2 * PAGE as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::sync::{Mutex, PoisonError};
    use std::time::{Duration, Instant};

    /// One case at a time: they share the card.
    static CARD: Mutex<()> = Mutex::new(());

    /// What fuzzers found worth keeping, then random cases for a second, at least 200.
    fn all(target: &str, case: fn(&[u8]), random: impl Fn(&mut StdRng) -> Vec<u8>) {
        let _card = CARD.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let mut files: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{} is empty", folder.display());
        for file in files {
            eprintln!("{}", file.display());
            case(&std::fs::read(file).unwrap());
        }
        let seed: u64 = std::env::var("WAVE32_SEED").map_or_else(|_| rand::random(), |s| s.parse().unwrap());
        println!("WAVE32_SEED={seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let started = Instant::now();
        for n in 0.. {
            if n >= 200 && started.elapsed() > Duration::from_secs(1) {
                break;
            }
            let bytes = random(&mut rng);
            let outcome = std::panic::catch_unwind(|| case(&bytes));
            assert!(outcome.is_ok(), "case {n} of seed {seed}: {bytes:02x?}");
        }
    }

    /// A field of an address of the stage, or of any bits.
    fn address(rng: &mut StdRng) -> u64 {
        match rng.random_range(0..8) {
            0 => rng.random(),
            1 => u64::MAX - rng.random_range(0..64),
            2 => READ_ONLY + rng.random_range(0..PAGE + 8),
            3 => RING + rng.random_range(0..2 * PAGE + 8),
            _ => DATA + (rng.random_range(0..PAGE) & !7),
        }
    }

    #[test]
    fn no_packet_of_the_copy_engine_breaks_the_card() {
        all("sdma", sdma_packets, |rng| {
            let mut words: Vec<u32> = (0..32).map(|_| rng.random()).collect();
            for _ in 0..4 {
                let mut packet: Vec<u32> = (0..rng.random_range(2..14)).map(|_| rng.random()).collect();
                packet[0] = [0, 1, 0x401, 2, 5, 6, 8, 10, 11, 13, 17, 99][rng.random_range(0..12)]
                    | [0, 47 << 25, 2 << 30, 1 << 31, 3 << 29][rng.random_range(0..5)];
                for at in 1..packet.len() - 1 {
                    if rng.random_range(0..3) == 0 {
                        let address = address(rng);
                        (packet[at], packet[at + 1]) = (address as u32, (address >> 32) as u32);
                    } else if rng.random() {
                        packet[at] &= 0xff;
                    }
                }
                words.extend(packet);
            }
            let half: Vec<u32> = (0..words.len() - 32).map(|_| rng.random()).collect();
            half.iter().chain(&words[32..]).flat_map(|word| word.to_le_bytes()).collect()
        });
    }

    /// The top bytes of instructions' first words: VOP1, VOP2, VOP3, scalar forms, and those of memory.
    const FORMS: [u8; 14] =
        [0x7e, 0x04, 0x38, 0xd4, 0xd6, 0xcc, 0x80, 0xb0, 0xbe, 0xbf, 0xf4, 0xd8, 0xdc, 0xe0];

    #[test]
    fn no_aql_packet_breaks_the_card() {
        all("aql", aql_packets, |rng| {
            let mut bytes: Vec<u8> = (0..256 + 2048).map(|_| rng.random()).collect();
            for packet in 0..4 {
                let at = 64 * packet;
                bytes[at] = [0, 2, 2, 2, 3, 5, 1, 77][rng.random_range(0..8)];
                bytes[at + 2] = rng.random_range(0..4);
                for field in (8..64).step_by(8) {
                    if rng.random() {
                        bytes[at + field..at + field + 8].copy_from_slice(&address(rng).to_le_bytes());
                    }
                }
                if rng.random() {
                    // A dispatch that has a chance to run: a small workgroup, code behind a descriptor.
                    (bytes[at], bytes[at + 2]) = (2, 1);
                    bytes[at + 4..at + 6].copy_from_slice(&[rng.random_range(1..70), 0]);
                    bytes[at + 12..at + 32].fill(0);
                    bytes[at + 12] = rng.random_range(1..99);
                    bytes[at + 24] = rng.random_range(0..99);
                    bytes[at + 32..at + 40].copy_from_slice(&DATA.to_le_bytes());
                    bytes[256 + 16..256 + 24].copy_from_slice(&64_u64.to_le_bytes());
                }
            }
            for word in bytes[256 + 64..].chunks_mut(8) {
                word[3] = FORMS[rng.random_range(0..FORMS.len())] | word[3] & 3;
                // Operands that there are.
                word[2] &= [0xff, 0x7f, 0x0f][rng.random_range(0..3)];
            }
            bytes
        });
    }

    #[test]
    fn no_command_buffer_breaks_the_card() {
        const OPCODES: [u32; 24] = [
            0x10, 0x11, 0x15, 0x15, 0x16, 0x28, 0x2d, 0x37, 0x37, 0x3c, 0x3f, 0x40, 0x40, 0x42, 0x46, 0x49,
            0x49, 0x50, 0x50, 0x58, 0x76, 0x76, 0x76, 0x99,
        ];
        all("pm4", command_buffers, |rng| {
            let mut words = Vec::new();
            for _ in 0..rng.random_range(1..12) {
                let opcode = OPCODES[rng.random_range(0..OPCODES.len())];
                let mut body: Vec<u32> = (0..rng.random_range(1..9)).map(|_| rng.random()).collect();
                for at in 0..body.len() {
                    match rng.random_range(0..4) {
                        0 if at + 1 < body.len() => {
                            let address = address(rng);
                            (body[at], body[at + 1]) = (address as u32, (address >> 32) as u32);
                        }
                        1 => body[at] &= 0xff,
                        _ => {}
                    }
                }
                if matches!(opcode, 0x76 | 0x9b) {
                    // Where a program and its groups stand.
                    body[0] = [0x207, 0x20c, 0x212, 0x218, 0x240][rng.random_range(0..5)];
                }
                if opcode == 0x3c {
                    // A wait for nothing: there is no time for others.
                    body[0] &= !7;
                }
                words.push(3 << 30 | (body.len() as u32 - 1) << 16 | opcode << 8);
                words.extend(body);
            }
            let half: Vec<u32> = words.iter().map(|_| rng.random()).collect();
            let bytes = half.iter().chain(&words).flat_map(|word| word.to_le_bytes());
            std::iter::once(rng.random()).chain(bytes).collect()
        });
    }

    #[test]
    fn no_request_of_the_render_node_breaks_the_card() {
        // A buffer and a syncobj, out and in.
        const SHARED: &[u8] = include_bytes!("../../../fuzz/corpus/drm/shared");
        all("drm", render_ioctls, |rng| {
            let begin = if rng.random_range(0..4) == 0 { SHARED } else { &[] };
            let rest: Vec<u8> = (0..rng.random_range(1..400)).map(|_| rng.random()).collect();
            [begin, &rest].concat()
        });
    }

    #[test]
    fn no_ioctl_breaks_the_card() {
        all("kfd", ioctls, |rng| (0..rng.random_range(1..400)).map(|_| rng.random()).collect());
    }
}
