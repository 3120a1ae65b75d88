//! Buffers as descriptors (`PRIME_*`), for other processes and for other users of this one.
//!
//! The descriptor is the buffer's memory file, so that it can be mapped and asked for its size like a dma-buf, and lives as
//! long as anybody has it. The file's name says what `GEM_OP` tells of the buffer.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

use super::fence::Changes;
use super::gem::{Create, GTT, Gem, Gems, VRAM};
use crate::device::identity;
use crate::errno::{Errno, Result};
use crate::memory::{Vm, memory_file_named, reopen};
use crate::request::{Argument, args, call};
use crate::user::{self, PAGE};

args! {
    /// Out of HANDLE_TO_FD, into FD_TO_HANDLE: the descriptor.
    Prime { handle: u32, flags: u32, fd: i32 }
}

/// The type of a descriptor's own requests.
pub const TYPE: u8 = b'b';
/// The processor begins or ends to access it: nothing is to be done.
pub const SYNC: u64 = 0x4008_6200;

const CLOSE_ON_EXEC: u32 = libc::O_CLOEXEC as u32;
const READ_WRITE: u32 = libc::O_RDWR as u32;
const PREFIX: &str = "wave32-buffer:";

/// Its file's name: without spaces, as lists of mappings show it.
fn name(create: &Create, vram: bool) -> String {
    let Create { alignment, domains, flags, .. } = create;
    format!("{PREFIX}{domains:x}:{flags:x}:{alignment:x}:{}", u8::from(vram))
}

/// What a buffer's descriptor says of it: how it was created, and whether it lies in the card's own memory.
fn described(fd: RawFd) -> Option<(Create, bool)> {
    let (name, bytes) = memory_file_named(fd, PREFIX)?;
    let fields: Vec<u64> = name
        .split(':')
        .map(|field| u64::from_str_radix(field, 16))
        .collect::<std::result::Result<_, _>>()
        .ok()?;
    let [domains, flags, alignment, vram] = fields[..] else { return None };
    let is_sound = bytes > 0 && bytes.is_multiple_of(PAGE) && domains & !(GTT | VRAM) == 0;
    is_sound.then_some((Create { bytes, alignment, domains, flags }, vram != 0))
}

/// Whether it is a buffer's, of any process.
pub fn is_buffer(fd: RawFd) -> bool {
    described(fd).is_some()
}

/// Does `SYNC`.
pub fn sync(argument: u64) -> Result<()> {
    // Read, write or both; the end of it.
    match user::read::<u64>(argument, 1)?[0] {
        1..=3 | 5..=7 => Ok(()),
        _ => Err(Errno::INVALID),
    }
}

impl Gems {
    /// Its file, which all descriptors of it lead to.
    fn file(&'static self, changes: &Changes, handle: u32) -> Result<OwnedFd> {
        let gem = self.get(handle)?;
        let backing = gem.shareable().ok_or(Errno(libc::EPERM))?;
        let place = |file: &OwnedFd| identity(file.as_raw_fd()).ok_or(Errno::BAD_FILE);
        if let Some(file) = gem.vm.file_of(backing) {
            return file;
        }
        let _still = self.still(changes, &gem);
        let file = gem.vm.give_file(backing, &name(&gem.create, backing.vram))?;
        self.table().files.insert(place(&file)?, Arc::downgrade(&gem));
        Ok(file)
    }

    fn export(&'static self, changes: &Changes, a: &mut Prime) -> Result<()> {
        if a.flags & !(CLOSE_ON_EXEC | READ_WRITE) != 0 {
            return Err(Errno::INVALID);
        }
        let mut file = self.file(changes, a.handle)?;
        if a.flags & READ_WRITE == 0 {
            file = reopen(file.as_raw_fd(), false)?;
        }
        if a.flags & CLOSE_ON_EXEC == 0 {
            // SAFETY: no memory is involved.
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        }
        a.fd = file.into_raw_fd();
        Ok(())
    }

    /// The handle of the same buffer if the process has it, else a new one.
    fn import(&self, vm: &'static Vm, a: &mut Prime) -> Result<()> {
        let place = identity(a.fd).ok_or(Errno::BAD_FILE)?;
        let (create, vram) = described(a.fd).ok_or(Errno::INVALID)?;
        let mut table = self.table();
        let known = table.files.get(&place).and_then(Weak::upgrade);
        let gem = match known {
            Some(gem) => gem,
            None => {
                // Of its own, as locks and positions are; and to be written, whatever rights the other has.
                let backing = vm.take_file(reopen(a.fd, true)?, create.bytes, vram)?;
                let gem = Arc::new(Gem::new(vm, backing, create, table.last_job));
                table.files.retain(|_, gem| gem.strong_count() > 0);
                table.files.insert(place, Arc::downgrade(&gem));
                gem
            }
        };
        a.handle = table.handle_of(gem);
        Ok(())
    }

    /// Does a request about descriptors of buffers; none where it is about something else.
    ///
    /// # Safety
    /// What the request answers is written where the program said: nothing of ours lies there.
    pub unsafe fn prime(
        &'static self,
        vm: &'static Vm,
        changes: &Changes,
        number: u32,
        at: Argument,
    ) -> Option<Result<()>> {
        // SAFETY: the caller's promise, handed on.
        Some(unsafe {
            match number {
                // Names for all who ask are not for render nodes.
                0x0a | 0x0b => Err(Errno(libc::EACCES)),
                0x2d => call(at, |a| self.export(changes, a)),
                0x2e => call(at, |a| self.import(vm, a)),
                _ => return None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::memory_file;
    use std::os::fd::FromRawFd;

    struct Card {
        gems: &'static Gems,
        vm: &'static Vm,
        changes: &'static Changes,
        file: RawFd,
    }

    /// A process's part of a card, as far as buffers go.
    fn card() -> Card {
        let file = memory_file_of_a_card();
        let vm = Box::leak(Box::new(Vm::new(file, 1 << 20, 1 << 20).unwrap()));
        Card { gems: Box::leak(Box::default()), vm, changes: Box::leak(Box::default()), file }
    }

    fn memory_file_of_a_card() -> RawFd {
        // SAFETY: makes a descriptor, which the test leaves open.
        unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) }
    }

    impl Card {
        fn request<A: user::Plain>(&self, number: u32, mut a: A) -> Result<A> {
            let at = Argument { at: &raw mut a as u64, bytes: size_of::<A>(), answered: true };
            // SAFETY: it is answered there.
            let prime = unsafe { self.gems.prime(self.vm, self.changes, number, at) };
            // SAFETY: as above.
            prime
                .or_else(|| unsafe { self.gems.ioctl(self.vm, self.changes, number, at) })
                .unwrap()
                .map(|()| a)
        }

        fn create(&self, flags: u64) -> u32 {
            self.request(0x40, Create { bytes: 3 * PAGE - 7, alignment: 0, domains: VRAM, flags })
                .unwrap()
                .bytes as u32
        }

        fn export(&self, handle: u32, flags: u32) -> Result<OwnedFd> {
            let answer = self.request(0x2d, Prime { handle, flags, fd: -1 })?;
            // SAFETY: it is new.
            Ok(unsafe { OwnedFd::from_raw_fd(answer.fd) })
        }

        fn import(&self, fd: RawFd) -> Result<u32> {
            self.request(0x2e, Prime { handle: 0, flags: 0, fd }).map(|answer| answer.handle)
        }

        fn close(&self, handle: u32) {
            self.request(0x09, super::super::gem::Close { handle, pad: 0 }).unwrap();
        }

        /// A word of the buffer, by the card's mapping.
        fn word(&self, handle: u32, at: u64) -> &std::sync::atomic::AtomicU32 {
            // SAFETY: inside the buffer, which the test keeps.
            unsafe { &*((self.gems.get(handle).unwrap().host + at) as *const _) }
        }
    }

    use std::sync::atomic::Ordering::Relaxed;
    const BOTH: u32 = CLOSE_ON_EXEC | READ_WRITE;

    #[test]
    fn both_cards_have_the_same_memory() {
        let (one, other) = (card(), card());
        let handle = one.create(1);
        one.word(handle, 8).store(7, Relaxed);
        // As the program maps it, at an offset of the render node, before and after.
        let offset = one.request(0x41, super::super::gem::Mmap { handle: handle.into() }).unwrap().handle;
        let map = |rights| {
            // SAFETY: a new mapping.
            let at = unsafe { one.vm.map_for_program(0, 3 * PAGE, rights, libc::MAP_SHARED, offset) };
            assert_ne!(at, -1);
            // SAFETY: it is there for good.
            move |at_byte: usize| unsafe {
                &*((at as usize + at_byte) as *const std::sync::atomic::AtomicU32)
            }
        };
        let before = map(libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(before(8).load(Relaxed), 7);
        let file = one.export(handle, BOTH).unwrap();
        let after = map(libc::PROT_READ);
        assert_eq!((before(8).load(Relaxed), after(8).load(Relaxed)), (7, 7));
        // SAFETY: maps nothing.
        assert_eq!(unsafe { one.vm.map_for_program(0, 4 * PAGE, 1, libc::MAP_SHARED, offset) }, -1);
        // SAFETY: no memory is involved.
        let bytes = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) };
        assert_eq!(bytes as u64, 3 * PAGE);
        let there = other.import(file.as_raw_fd()).unwrap();
        assert_eq!(other.vm.used(), [3 * PAGE, 0]);
        let mut told = Create { bytes: 0, alignment: 9, domains: 9, flags: 9 };
        let op = super::super::gem::Op { handle: there, op: 0, value: &raw mut told as u64 };
        other.request(0x50, op).unwrap();
        assert_eq!((told.bytes, told.domains, told.flags), (3 * PAGE, VRAM, 1));
        assert_eq!(other.word(there, 8).load(Relaxed), 7);
        other.word(there, 2 * PAGE).store(9, Relaxed);
        before(4).store(5, Relaxed);
        assert_eq!((after(2 * PAGE as usize).load(Relaxed), other.word(there, 4).load(Relaxed)), (9, 5));
        // It stays when the one that made it has closed it.
        one.close(handle);
        assert_eq!((one.gems.left(), one.vm.used()), ((0, 0), [0, 0]));
        drop(file);
        assert_eq!(other.word(there, 8).load(Relaxed), 7);
        other.close(there);
        assert_eq!((other.gems.left(), other.vm.used()), ((0, 0), [0, 0]));
        // SAFETY: unmaps nothing that the test reads.
        unsafe { libc::close(one.file) };
    }

    #[test]
    fn one_buffer_has_one_handle() {
        let card = card();
        let handle = card.create(0);
        let [first, second] = [(); 2].map(|()| card.export(handle, BOTH).unwrap());
        assert_eq!(identity(first.as_raw_fd()), identity(second.as_raw_fd()));
        assert_eq!(card.import(first.as_raw_fd()), Ok(handle));
        assert_eq!(card.vm.used(), [3 * PAGE, 0]);
        card.word(handle, 0).store(3, Relaxed);
        card.close(handle);
        assert_eq!(card.vm.used(), [0, 0]);
        // A new one where the old is closed; its memory was kept by the descriptor.
        let again = card.import(second.as_raw_fd()).unwrap();
        assert_eq!(card.word(again, 0).load(Relaxed), 3);
        assert_eq!(card.import(first.as_raw_fd()), Ok(again));
        card.close(again);
    }

    #[test]
    fn descriptors_have_the_rights_that_were_asked_for() {
        let card = card();
        let handle = card.create(0);
        for (flags, write) in [(0, false), (CLOSE_ON_EXEC, false), (READ_WRITE, true), (BOTH, true)] {
            let file = card.export(handle, flags).unwrap();
            // SAFETY: no memory is involved.
            let [status, own] =
                [libc::F_GETFL, libc::F_GETFD].map(|get| unsafe { libc::fcntl(file.as_raw_fd(), get) });
            assert_eq!(status & libc::O_ACCMODE == libc::O_RDWR, write, "{flags:#x}");
            assert_eq!(own & libc::FD_CLOEXEC != 0, flags & CLOSE_ON_EXEC != 0, "{flags:#x}");
            // SAFETY: as above; it cannot be cut short.
            assert_ne!(unsafe { libc::ftruncate(file.as_raw_fd(), 0) }, 0);
            assert_eq!(card.import(file.as_raw_fd()), Ok(handle));
        }
        card.close(handle);
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_by_the_kernel() {
        let card = card();
        let handle = card.create(0);
        let errno = |result: Result<OwnedFd>| result.map(drop).unwrap_err().0;
        assert_eq!(errno(card.export(handle, 1)), libc::EINVAL);
        assert_eq!(errno(card.export(handle + 1, BOTH)), libc::ENOENT);
        let own = card.create(1 << 6);
        assert_eq!(errno(card.export(own, BOTH)), libc::EPERM, "of this address space alone");
        card.close(own);
        assert_eq!(errno(card.export(own, BOTH)), libc::ENOENT);
        let null = std::fs::File::open("/dev/null").unwrap();
        let other = memory_file("another", PAGE).unwrap();
        let odd = memory_file("wave32-buffer:4:0:0:1", PAGE + 1).unwrap();
        for fd in [null.as_raw_fd(), other.as_raw_fd(), odd.as_raw_fd(), card.file] {
            assert_eq!(card.import(fd), Err(Errno::INVALID));
        }
        assert_eq!((card.import(-1), card.import(1 << 20)), (Err(Errno::BAD_FILE), Err(Errno::BAD_FILE)));
        let large = memory_file("wave32-buffer:4:0:0:1", 1 << 21).unwrap();
        assert_eq!(card.import(large.as_raw_fd()), Err(Errno::NO_MEMORY), "more than the card has");
        for number in [0x0a, 0x0b] {
            let named = card.request(number, Prime { handle, flags: 0, fd: 0 });
            assert_eq!(named.map(drop), Err(Errno(libc::EACCES)));
        }
        card.close(handle);
        assert_eq!((card.gems.left(), card.vm.used()), ((0, 0), [0, 0]));
    }

    #[test]
    fn a_buffer_moves_when_no_job_may_use_it() {
        let card = card();
        let old = card.create(0);
        let job = card.gems.begin(card.vm);
        assert!(job.start());
        // Later than the job: not its buffer.
        let new = card.create(0);
        drop(card.export(new, BOTH).unwrap());
        std::thread::scope(|scope| {
            let export = scope.spawn(|| card.export(old, BOTH).map(drop));
            while card.gems.table().moving.is_none() {
                std::thread::yield_now();
            }
            let next = card.gems.begin(card.vm);
            assert!(!next.start() && !export.is_finished());
            card.word(old, 0).store(1, Relaxed);
            drop(job);
            card.changes.announce();
            assert_eq!(export.join().unwrap(), Ok(()));
            assert!(next.start());
        });
        assert_eq!(card.word(old, 0).load(Relaxed), 1);
        [old, new].into_iter().for_each(|handle| card.close(handle));
    }
}
