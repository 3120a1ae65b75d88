//! Copies beside the queue: right bytes in both directions and from other threads, ordered with kernels, nothing for the
//! validation layer to say.

mod common;

use common::{FIXTURE, assert_clean, open_queue as open, options};
use rand::RngCore;
use std::time::Duration;
use wave32_device::{Deadline, DeviceError, Queue, conformance};
use wave32_vulkan::{Copies, Direction, PIECE, Region, VulkanQueue};

const WORDS: u32 = 4096;
const BYTES: u64 = WORDS as u64 * 4;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn read(copies: &Copies, region: &Region) -> Vec<u8> {
    let mut all = Vec::new();
    let take = |piece: &[u8]| {
        assert!(piece.len() <= PIECE);
        all.extend_from_slice(piece);
        Ok::<_, DeviceError>(())
    };
    copies.read(region, soon(), take).unwrap();
    all
}

/// Writes a region; work that is launched after this sees it.
fn write(queue: &mut VulkanQueue, copies: &Copies, region: &Region, mark: u64, data: &[u8]) {
    let mut given = 0;
    let give = |piece: &mut [u8]| {
        piece.copy_from_slice(&data[given..given + piece.len()]);
        given += piece.len();
        Ok::<_, DeviceError>(())
    };
    copies.write(region, soon(), give).unwrap();
    both(copies, mark);
    queue.wait_for_mark(copies, mark).unwrap();
}

fn both(copies: &Copies, mark: u64) {
    copies.mark(Direction::Down, mark).unwrap();
    copies.mark(Direction::Up, mark).unwrap();
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn bytes_arrive_in_both_directions() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(options(dir.path())) else { return };
    let copies = queue.copies().unwrap();
    // Less than a piece, whole ones, more than are on their way at once, an odd rest.
    for (mark, bytes) in (1..).zip([4, PIECE, 2 * PIECE, 19 * PIECE + 12]) {
        let mut data = vec![0u8; bytes];
        rand::rng().fill_bytes(&mut data);
        let address = queue.alloc(bytes as u64 + 512).unwrap();
        queue.fill(address, bytes as u64 + 512, 0xaaaa_aaaa).unwrap();
        let region = queue.locate(&copies, address + 256, bytes as u64).unwrap();
        write(&mut queue, &copies, &region, mark, &data);
        let mut found = vec![0u8; bytes + 512];
        queue.download(address, &mut found).unwrap();
        let (before, rest) = found.split_at(256);
        let (middle, behind) = rest.split_at(bytes);
        assert!(middle == data, "{bytes} bytes up");
        assert!(before.iter().chain(behind).all(|&byte| byte == 0xaa), "{bytes} bytes: beside the region");
        let region = queue.locate(&copies, address + 256, bytes as u64).unwrap();
        assert!(read(&copies, &region) == data, "{bytes} bytes down");
        queue.free(address);
    }
    assert_clean(&queue);
}

#[test]
fn copies_are_ordered_with_kernels() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(options(dir.path())) else { return };
    let copies = queue.copies().unwrap();
    let blocks = [(); 3].map(|()| queue.alloc(BYTES).unwrap());
    let mut expected = vec![1u32; WORDS as usize];
    queue.fill(blocks[0], BYTES, 1).unwrap();
    for round in 0..20 {
        conformance::step(&mut queue, &FIXTURE, (blocks[0], blocks[1]), WORDS, 3, round).unwrap();
        // Down as the kernel left it, in another thread; up again to a third place, with one added.
        let from = queue.locate(&copies, blocks[1], BYTES).unwrap();
        let to = queue.locate(&copies, blocks[2], BYTES).unwrap();
        let mark = u64::from(round) + 1;
        let elsewhere = || {
            let more: Vec<u8> =
                words(&read(&copies, &from)).iter().flat_map(|word| (word + 1).to_le_bytes()).collect();
            let give = |piece: &mut [u8]| {
                piece.copy_from_slice(&more);
                Ok::<_, DeviceError>(())
            };
            copies.write(&to, soon(), give).unwrap();
            both(&copies, mark);
        };
        std::thread::scope(|scope| {
            // What is launched may wait for what comes later.
            scope.spawn(elsewhere);
            queue.wait_for_mark(&copies, mark).unwrap();
            queue.copy(blocks[2], blocks[0], BYTES).unwrap();
            queue.flush().unwrap();
        });
        // What the fixture computes is its own affair: the other way is through the queue alone.
        let mut found = vec![0; BYTES as usize];
        queue.download(blocks[1], &mut found).unwrap();
        expected = words(&found).iter().map(|word| word + 1).collect();
        queue.download(blocks[0], &mut found).unwrap();
        assert_eq!(words(&found), expected, "round {round}");
    }
    assert!(expected.iter().any(|&word| word != 1));
    assert_clean(&queue);
}

#[test]
fn what_fails_in_between_leaves_everything_usable() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(options(dir.path())) else { return };
    let copies = queue.copies().unwrap();
    let bytes = 3 * PIECE as u64;
    let address = queue.alloc(bytes).unwrap();
    queue.fill(address, bytes, 5).unwrap();
    let region = queue.locate(&copies, address, bytes).unwrap();
    let refuse = || DeviceError::Misuse("enough".into());
    assert!(matches!(copies.read(&region, soon(), |_| Err(refuse())), Err(DeviceError::Misuse(_))));
    assert!(matches!(copies.write(&region, soon(), |_| Err(refuse())), Err(DeviceError::Misuse(_))));
    assert!(words(&read(&copies, &region)).iter().all(|&word| word == 5));
    assert!(matches!(queue.locate(&copies, address + (1 << 40), 4), Err(DeviceError::Misuse(_))));
    queue.begin_capture().unwrap();
    assert!(matches!(queue.locate(&copies, address, 4), Err(DeviceError::Misuse(_))));
    queue.end_capture().unwrap();
    // Whoever gives up lets go what waits.
    copies.mark(Direction::Down, 3).unwrap();
    assert!(matches!(copies.mark(Direction::Down, 3), Err(DeviceError::Misuse(_))));
    queue.wait_for_mark(&copies, 7).unwrap();
    queue.fill(address, bytes, 6).unwrap();
    queue.flush().unwrap();
    copies.give_up(7, soon()).unwrap();
    queue.wait_for_mark(&copies, 7).unwrap();
    queue.synchronize().unwrap();
    assert_clean(&queue);
    drop(queue);
    let late = copies.read(&region, soon(), |_| Ok::<_, DeviceError>(()));
    assert!(matches!(late, Err(DeviceError::Misuse(_))), "{late:?}");
    assert!(matches!(copies.mark(Direction::Up, 8), Err(DeviceError::Misuse(_))));
}

#[test]
fn copies_of_another_device_are_refused_and_old_ones_go() {
    let dir = tempfile::tempdir().unwrap();
    let opened = (open(options(dir.path())), open(options(dir.path())));
    let (Some(mut queue), Some(mut other)) = opened else { return };
    let address = queue.alloc(BYTES).unwrap();
    let (copies, others) = (queue.copies().unwrap(), other.copies().unwrap());
    let region = queue.locate(&copies, address, BYTES).unwrap();
    assert!(matches!(other.wait_for_mark(&copies, 1), Err(DeviceError::Misuse(_))));
    assert!(matches!(other.locate(&copies, address, BYTES), Err(DeviceError::Misuse(_))));
    assert!(matches!(
        others.read(&region, soon(), |_| Ok::<_, DeviceError>(())),
        Err(DeviceError::Misuse(_))
    ));
    queue.fill(address, BYTES, 3).unwrap();
    let region = queue.locate(&copies, address, BYTES).unwrap();
    write(&mut queue, &copies, &region, 1, &[7; BYTES as usize]);
    drop(copies);
    // Makes others, and closes those.
    let copies = queue.copies().unwrap();
    let region = queue.locate(&copies, address, BYTES).unwrap();
    assert_eq!(read(&copies, &region), [7; BYTES as usize]);
    assert_clean(&queue);
    assert_clean(&other);
}
