//! What every [`Queue`] promises, tried out.

use super::bench::{Random, ensure, same, text, to_bytes};
use super::{FIXTURE_THREADS, Fixture};
use crate::{Arg, Queue, Work};
use wave32_solve::Access;

/// Words of each block of the random program.
const WORDS: u64 = 5000;
/// Blocks that it works on.
const BLOCKS: u64 = 6;

/// Random launches, fills, copies, transfers, and blocks given back in mid-work, against the same on the host; then a
/// transfer of `large` bytes and many small ones into it.
///
/// # Errors
/// A line for people: the first difference, and the seed that repeats it.
pub fn queue(
    queue: &mut dyn Queue,
    fixture: &Fixture,
    seed: u64,
    steps: usize,
    large: usize,
) -> Result<(), String> {
    let mut random = Random(seed);
    let named = |what: String| format!("{what} (seed {seed})");
    program(queue, fixture, &mut random, steps).map_err(named)?;
    transfers(queue, &mut random, large).map_err(named)
}

/// `to[i] = from[i] * mul + add` for `words` words.
///
/// # Errors
/// The error of the queue's call that failed.
pub fn step(
    queue: &mut dyn Queue,
    fixture: &Fixture,
    (from, to): (u64, u64),
    words: u32,
    mul: u32,
    add: u32,
) -> Result<(), crate::DeviceError> {
    let bytes = 4 * u64::from(words);
    let args = [
        Arg { address: from, bytes, access: Access::Read },
        Arg { address: to, bytes, access: Access::Write },
    ];
    let work = Work { flops: 0, bytes: 2 * bytes };
    queue.launch(fixture.step, [words.div_ceil(FIXTURE_THREADS), 1, 1], &[0, words, mul, add], &args, work)
}

fn program(
    queue: &mut dyn Queue,
    fixture: &Fixture,
    random: &mut Random,
    steps: usize,
) -> Result<(), String> {
    let mut model: Vec<Vec<u32>> = (0..BLOCKS).map(|_| random.words(WORDS as usize)).collect();
    let mut blocks = Vec::new();
    for content in &model {
        blocks.push(queue.alloc(4 * WORDS).map_err(text)?);
        queue.upload(blocks[blocks.len() - 1], &to_bytes(content)).map_err(text)?;
    }
    for number in 0..steps {
        let (from, to) = (random.below(BLOCKS) as usize, random.below(BLOCKS) as usize);
        let length = 1 + random.below(WORDS - 128);
        let at = 128 * random.below((WORDS - length) / 128 + 1);
        let range = at as usize..(at + length) as usize;
        let (a, b, bytes) = (blocks[from] + 4 * at, blocks[to] + 4 * at, 4 * length);
        match random.below(10) {
            0..5 => {
                let (mul, add) = (random.next() as u32, random.next() as u32);
                step(queue, fixture, (a, b), length as u32, mul, add).map_err(text)?;
                let made = model[from][range.clone()].iter().map(|v| v.wrapping_mul(mul).wrapping_add(add));
                let made: Vec<u32> = made.collect();
                model[to][range].copy_from_slice(&made);
            }
            5 => {
                let word = random.next() as u32;
                queue.fill(b, bytes, word).map_err(text)?;
                model[to][range].fill(word);
            }
            6 if from != to => {
                queue.copy(a, b, bytes).map_err(text)?;
                let source = model[from][range.clone()].to_vec();
                model[to][range].copy_from_slice(&source);
            }
            7 => {
                let content = random.words(length as usize);
                queue.upload(b, &to_bytes(&content)).map_err(text)?;
                model[to][range].copy_from_slice(&content);
            }
            8 => {
                let mut found = vec![0xdb; bytes as usize];
                queue.download(a, &mut found).map_err(text)?;
                same(&found, &to_bytes(&model[from][range]), &format!("step {number}"))?;
            }
            _ => {
                // Given back and taken again while work on it is in flight.
                queue.free(blocks[to]);
                blocks[to] = queue.alloc(4 * WORDS).map_err(text)?;
                queue.fill(blocks[to], 4 * WORDS, 7).map_err(text)?;
                model[to].fill(7);
            }
        }
    }
    for (block, content) in blocks.iter().zip(&model) {
        let mut found = vec![0xdb; 4 * WORDS as usize];
        queue.download(*block, &mut found).map_err(text)?;
        same(&found, &to_bytes(content), "at the end")?;
        queue.free(*block);
    }
    Ok(())
}

fn transfers(queue: &mut dyn Queue, random: &mut Random, large: usize) -> Result<(), String> {
    let mut model = random.bytes(large);
    let block = queue.alloc(large as u64).map_err(text)?;
    ensure(block.is_multiple_of(512), || format!("a block at {block:#x}"))?;
    let check = |queue: &mut dyn Queue, model: &[u8]| {
        let mut found = vec![0xdb; large];
        queue.download(block, &mut found).map_err(text)?;
        same(&found, model, "a large transfer")
    };
    queue.upload(block, &model).map_err(text)?;
    check(queue, &model)?;
    for _ in 0..300 {
        let length = random.below((large as u64 / 2).min(200_000)) as usize;
        let at = random.below((large - length) as u64) as usize;
        let piece = random.bytes(length);
        queue.upload(block + at as u64, &piece).map_err(text)?;
        model[at..at + length].copy_from_slice(&piece);
    }
    check(queue, &model)?;
    queue.free(block);
    Ok(())
}
