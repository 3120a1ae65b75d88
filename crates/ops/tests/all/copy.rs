//! Copies among every pair of types, strided and not.

use crate::common;

use common::{close, get, put, put_plain, random, room, rounded, stream, values};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use wave32_ops::{ElementType, Queue, View, copy};

#[test]
fn every_pair_of_types_converts() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let (sizes, from_strides, to_strides) = ([3, 5, 7, 2, 2], [211, 14, 2, 71, 1], [140, 28, 4, 2, 1]);
    for from in ElementType::ALL {
        for to in ElementType::ALL {
            let data = values(&mut random, from, 420, 90.0);
            let source = put(&mut stream, from, &sizes, &from_strides, &data);
            let target = put(&mut stream, to, &sizes, &to_strides, &[]);
            copy(&mut stream, &source, &target).unwrap();
            // An unsigned type has no negative values to agree on between a float and a wrapped integer.
            let expected: Vec<f64> = data.iter().map(|&v| rounded(to, v)).collect();
            close(&get(&mut stream, &target), &expected, 0.0, &format!("{from:?} to {to:?}, seed {seed}"));
        }
    }
}

#[test]
fn sizes_must_match_and_empty_copies_do_nothing() {
    let Some(mut stream) = stream() else { return };
    let a = put(&mut stream, ElementType::F32, &[2, 3], &[3, 1], &[1.0; 6]);
    let b = put(&mut stream, ElementType::F32, &[3, 2], &[2, 1], &[2.0; 6]);
    assert!(copy(&mut stream, &a, &b).unwrap_err().to_string().starts_with("different-sizes"));
    let empty = put(&mut stream, ElementType::F32, &[0, 2], &[2, 1], &[]);
    copy(&mut stream, &empty, &empty).unwrap();
}

#[test]
fn copies_move_every_byte_and_no_other() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    const LARGE: u64 = 1 << 20;
    let mut cases: Vec<(u64, u64, u64)> =
        vec![(LARGE, 0, 16), (LARGE + 48, 0, 16), (LARGE + 12, 16, 0), (LARGE, 4, 16), (LARGE + 7, 32, 16)];
    // Bytes, and where they are read and written: of every alignment.
    cases.extend((0..60).map(|_| {
        let unit = 1 << random.random_range(0..6);
        let place = |random: &mut StdRng| unit * random.random_range(0..40);
        (unit * random.random_range(1..300), place(&mut random), place(&mut random))
    }));
    for (bytes, from, to) in cases {
        let data: Vec<u8> = (0..bytes).map(|_| random.random()).collect();
        let (source, target) = (stream.alloc(bytes + 4096).unwrap(), stream.alloc(bytes + 4096).unwrap());
        Queue::upload(&mut stream, source + from, &data).unwrap();
        Queue::upload(&mut stream, target, &vec![0xdb; bytes as usize + 4096]).unwrap();
        wave32_ops::copy_bytes(&mut stream, source + from, target + to, bytes).unwrap();
        let mut found = vec![0; bytes as usize + 4096];
        Queue::download(&mut stream, target, &mut found).unwrap();
        let what = format!("{bytes} bytes from {from} to {to}, seed {seed}");
        assert!(found[to as usize..][..data.len()] == data, "{what}");
        let around = found[..to as usize].iter().chain(&found[to as usize + data.len()..]);
        assert!(around.copied().all(|byte| byte == 0xdb), "around {what}");
        Queue::free(&mut stream, source);
        Queue::free(&mut stream, target);
    }
    let block = stream.alloc(4096).unwrap();
    assert!(wave32_ops::copy_bytes(&mut stream, block, block + 64, 128).is_err(), "onto itself");
    wave32_ops::copy_bytes(&mut stream, block, block + 64, 0).unwrap();
}

#[test]
fn fills_write_whole_words_and_no_other() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let large = (1 << 20, 0);
    let few = (0..30).map(|_| (4 * random.random_range(1..2000), 4 * random.random_range(0..64)));
    let cases: Vec<(u64, u64)> = few.chain([large, (4, 0)]).collect();
    for (bytes, at) in cases {
        let word: u32 = random.random();
        let target = stream.alloc(bytes + 512).unwrap();
        Queue::upload(&mut stream, target, &vec![0xdb; bytes as usize + 512]).unwrap();
        wave32_ops::fill_words(&mut stream, target + at, bytes, word).unwrap();
        let mut found = vec![0; bytes as usize + 512];
        Queue::download(&mut stream, target, &mut found).unwrap();
        let (inside, end) = (at as usize..(at + bytes) as usize, (at + bytes) as usize);
        let what = format!("{bytes} bytes of {word:#x} at {at}, seed {seed}");
        assert!(found[inside].chunks_exact(4).all(|four| four == word.to_le_bytes()), "{what}");
        assert!(found[..at as usize].iter().chain(&found[end..]).all(|&byte| byte == 0xdb), "around {what}");
    }
    let block = stream.alloc(4096).unwrap();
    assert!(wave32_ops::fill_words(&mut stream, block + 1, 4, 0).is_err(), "no whole words");
}

/// Strides of these sizes, the dimensions in a random order in memory, with room behind each that keeps whole vectors or does not.
fn layout(random: &mut StdRng, sizes: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.shuffle(random);
    let (mut strides, mut stride) = (vec![0; sizes.len()], 1);
    for dim in order {
        strides[dim] = stride;
        stride *= sizes[dim];
        stride += [0, 0, 16, 3][random.random_range(0..4)];
    }
    strides
}

#[test]
fn layouts_of_every_kind() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    for turn in 0..240 {
        let dtype = ElementType::ALL[turn % ElementType::ALL.len()];
        let rank = random.random_range(1..5);
        // Shorter and longer than a transposed tile, whole vectors and not.
        let sizes: Vec<u64> = (0..rank).map(|_| [1, 3, 8, 16, 33, 48][random.random_range(0..6)]).collect();
        if sizes.iter().product::<u64>() > 1 << 15 {
            continue;
        }
        let (from, to) = (layout(&mut random, &sizes), layout(&mut random, &sizes));
        let data = values(&mut random, dtype, sizes.iter().product(), 90.0);
        let source = put(&mut stream, dtype, &sizes, &from, &data);
        let target = put(&mut stream, dtype, &sizes, &to, &[]);
        let bytes = target.extent() * dtype.size();
        let mut before = vec![0; bytes as usize];
        Queue::download(&mut stream, target.address, &mut before).unwrap();
        copy(&mut stream, &source, &target).unwrap();
        let what = format!("{dtype:?} {sizes:?} of {from:?} to {to:?}, seed {seed}");
        close(&get(&mut stream, &target), &data, 0.0, &what);
        // What lies between the elements stays: put back what was there, and all is as before.
        let poison = View::contiguous(0, dtype, &sizes).unwrap();
        let old = put(&mut stream, dtype, &sizes, poison.strides(), &[]);
        copy(&mut stream, &old, &target).unwrap();
        let mut after = vec![0; bytes as usize];
        Queue::download(&mut stream, target.address, &mut after).unwrap();
        assert!(before == after, "between the elements: {what}");
    }
}

/// By vectors where both are dense and begin at a whole one; what is left of the last, and what begins elsewhere, one by one.
#[test]
fn dense_casts_round_once() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let special = [
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        65504.0,
        65519.9,
        65520.0,
        2.9e-8,
        3.1e-8,
        -6e-8,
    ];
    for narrow in [ElementType::F16, ElementType::BF16] {
        for (from, to) in [(ElementType::F32, narrow), (narrow, ElementType::F32)] {
            for count in [3, 4096, 4099u64] {
                let any =
                    |_| f64::from(random.random_range(-9.0..9f32) * random.random_range(-14.0..14f32).exp2());
                let drawn: Vec<f64> = special.into_iter().chain((0..count + 2).map(any)).collect();
                let values: Vec<f64> = drawn.iter().rev().map(|&v| rounded(from, v)).collect();
                let all = put_plain(&mut stream, from, &[values.len() as u64], &values);
                for first in [0, 1] {
                    let part = all.narrow(0, first, values.len() as u64 - 1);
                    let out = room(&mut stream, to, part.sizes());
                    copy(&mut stream, &part, &out).unwrap();
                    for (found, &value) in get(&mut stream, &out).iter().zip(&values[first as usize..]) {
                        let wanted = rounded(to, value);
                        let same = *found == wanted || (found.is_nan() && wanted.is_nan());
                        assert!(same, "seed {seed}: {value} of {from:?} as {to:?} is {found}, not {wanted}");
                    }
                }
            }
        }
    }
}
