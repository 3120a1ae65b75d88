//! Copies beside the queue: right bytes in both directions and from other threads, ordered with kernels, nothing for the
//! validation layer to say.

mod common;

use common::{FIXTURE, assert_clean, open_queue as open, options};
use rand::RngCore;
use std::time::Duration;
use wave32_device::{Deadline, DeviceError, Queue, conformance};
use wave32_vulkan::{Copies, PIECE, Region};

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

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn bytes_arrive_in_both_directions() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut queue) = open(options(dir.path())) else { return };
    let copies = queue.copies().unwrap();
    // Less than a piece, whole ones, more than are on their way at once, an odd rest.
    for bytes in [4, PIECE, 2 * PIECE, 9 * PIECE + 12] {
        let mut data = vec![0u8; bytes];
        rand::rng().fill_bytes(&mut data);
        let address = queue.alloc(bytes as u64 + 512).unwrap();
        queue.fill(address, bytes as u64 + 512, 0xaaaa_aaaa).unwrap();
        let region = queue.locate(address + 256, bytes as u64).unwrap();
        let mut given = 0;
        let copied = copies
            .write(&region, soon(), |piece| {
                piece.copy_from_slice(&data[given..given + piece.len()]);
                given += piece.len();
                Ok::<_, DeviceError>(())
            })
            .unwrap();
        queue.wait_for_copy(copied).unwrap();
        let mut found = vec![0u8; bytes + 512];
        queue.download(address, &mut found).unwrap();
        let (before, rest) = found.split_at(256);
        let (middle, behind) = rest.split_at(bytes);
        assert!(middle == data, "{bytes} bytes up");
        assert!(before.iter().chain(behind).all(|&byte| byte == 0xaa), "{bytes} bytes: beside the region");
        let region = queue.locate(address + 256, bytes as u64).unwrap();
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
        let from = queue.locate(blocks[1], BYTES).unwrap();
        let to = queue.locate(blocks[2], BYTES).unwrap();
        let copied = std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                let more: Vec<u8> =
                    words(&read(&copies, &from)).iter().flat_map(|word| (word + 1).to_le_bytes()).collect();
                copies.write(&to, soon(), |piece| {
                    piece.copy_from_slice(&more);
                    Ok::<_, DeviceError>(())
                })
            });
            elsewhere.join().unwrap().unwrap()
        });
        queue.wait_for_copy(copied).unwrap();
        queue.copy(blocks[2], blocks[0], BYTES).unwrap();
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
    let region = queue.locate(address, bytes).unwrap();
    let refuse = || DeviceError::Misuse("enough".into());
    assert!(matches!(copies.read(&region, soon(), |_| Err(refuse())), Err(DeviceError::Misuse(_))));
    assert!(matches!(copies.write(&region, soon(), |_| Err(refuse())), Err(DeviceError::Misuse(_))));
    assert!(words(&read(&copies, &region)).iter().all(|&word| word == 5));
    assert!(matches!(queue.locate(address + bytes, 4), Err(DeviceError::Misuse(_))));
    queue.begin_capture().unwrap();
    assert!(matches!(queue.locate(address, 4), Err(DeviceError::Misuse(_))));
    queue.end_capture().unwrap();
    assert_clean(&queue);
    drop(queue);
    let late = copies.read(&region, soon(), |_| Ok::<_, DeviceError>(()));
    assert!(matches!(late, Err(DeviceError::Misuse(_))), "{late:?}");
}

#[test]
fn a_copy_of_another_device_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let opened = (open(options(dir.path())), open(options(dir.path())));
    let (Some(mut queue), Some(mut other)) = opened else { return };
    let address = queue.alloc(BYTES).unwrap();
    let region = queue.locate(address, BYTES).unwrap();
    let copied = queue.copies().unwrap().write(&region, soon(), |_| Ok::<_, DeviceError>(())).unwrap();
    assert!(matches!(other.wait_for_copy(copied), Err(DeviceError::Misuse(_))));
    let copies = other.copies().unwrap();
    assert!(matches!(
        copies.read(&region, soon(), |_| Ok::<_, DeviceError>(())),
        Err(DeviceError::Misuse(_))
    ));
    queue.wait_for_copy(copied).unwrap();
    assert_clean(&queue);
}
