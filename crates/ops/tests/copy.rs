//! Copies among every pair of types, strided and not.

mod common;

use common::{close, get, put, random, rounded, stream, values};
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
fn large_copies_move_every_bit() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    // Whole vectors, and not; each from a start that is a vector's and one that is not.
    for (elements, skip) in [(1u64 << 18, 0), ((1 << 18) + 12, 0), ((1 << 18) + 3, 0), (1 << 18, 1)] {
        let bits: Vec<u8> = (0..4 * elements).map(|_| random.random()).collect();
        let source = stream.alloc(4 * elements + 16).unwrap() + 4 * skip;
        let target = stream.alloc(4 * elements + 32).unwrap() + 16;
        Queue::upload(&mut stream, source, &bits).unwrap();
        Queue::upload(&mut stream, target - 16, &vec![0xdb; 4 * elements as usize + 32]).unwrap();
        let view = |address| View::contiguous(address, ElementType::F32, &[elements]).unwrap();
        copy(&mut stream, &view(source), &view(target)).unwrap();
        let mut found = vec![0; 4 * elements as usize + 32];
        Queue::download(&mut stream, target - 16, &mut found).unwrap();
        assert!(found[16..][..bits.len()] == bits, "{elements} elements, seed {seed}");
        assert!(
            found[..16].iter().chain(&found[16 + bits.len()..]).all(|&b| b == 0xdb),
            "{elements}: past the end"
        );
    }
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
