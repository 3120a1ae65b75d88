//! Random inputs of the tests.

use crate::Dims;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Prints the seed where a test fails.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

/// Calls `check` many times with random numbers of a fresh seed.
pub fn seeded(mut check: impl FnMut(&mut StdRng)) {
    let told = Told(rand::random());
    let mut random = StdRng::seed_from_u64(told.0);
    (0..2000).for_each(|_| check(&mut random));
}

/// Sizes of a tensor of up to `rank` dimensions, often 1 and at times 0.
pub fn sizes(random: &mut StdRng, rank: usize) -> Dims {
    let rank = random.random_range(0..=rank);
    let least = i64::from(random.random_range(0..8) > 0);
    (0..rank).map(|_| random.random_range(least..5)).collect()
}

/// Strides of sizes: of a permuted tensor, perhaps with gaps or expanded dimensions.
pub fn strides(random: &mut StdRng, sizes: &[i64]) -> Dims {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.random_range(0..=at));
    }
    let (gaps, expands) = (random.random_bool(0.3), random.random_bool(0.3));
    let mut strides = Dims::from_elem(0, sizes.len());
    let mut next = 1;
    for dim in order {
        if expands && random.random_bool(0.3) {
            continue;
        }
        strides[dim] = next;
        next *= sizes[dim].max(1) + if gaps { random.random_range(0..2) } else { 0 };
    }
    strides
}

/// Every index of a tensor of these sizes, in the usual order.
pub fn indices(sizes: &[i64]) -> Vec<Vec<i64>> {
    sizes.iter().fold(vec![Vec::new()], |all, &size| {
        let longer = |index: Vec<i64>| (0..size).map(move |at| [&index[..], &[at]].concat());
        all.into_iter().flat_map(longer).collect()
    })
}

/// The place of an element in memory.
pub fn place(index: &[i64], strides: &[i64]) -> i64 {
    index.iter().zip(strides).map(|(at, stride)| at * stride).sum()
}
