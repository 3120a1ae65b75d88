//! What the tests of several crates share.
#![forbid(unsafe_code)]

use rand::Rng;
use rand::seq::index;
use wave32_device::DeviceKind;

/// How much of a test runs: all of its cases or, where the processor stands in for a GPU, a few, others each time. There nearly all
/// of a test's time is the driver's compiler's: up to a dozen seconds a kernel. Cards run all, the virtual card too, whose runs ask
/// which kernels were right (`WAVE32_TEST_KERNELS`), and everyone with `WAVE32_TEST_ALL=1`.
#[derive(Clone, Copy)]
pub struct Part {
    is_whole: bool,
}

impl Part {
    /// What runs on a device of that kind.
    pub fn of(kind: DeviceKind) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Self {
            is_whole: kind != DeviceKind::Cpu || is_set("WAVE32_TEST_KERNELS") || is_set("WAVE32_TEST_ALL"),
        }
    }

    /// Whether all cases run.
    pub fn is_whole(self) -> bool {
        self.is_whole
    }

    /// `count` of the cases, by chance, in their order; all of them where everything runs.
    pub fn pick<T>(self, cases: impl IntoIterator<Item = T>, count: usize, random: &mut impl Rng) -> Vec<T> {
        let cases: Vec<T> = cases.into_iter().collect();
        if self.is_whole || count >= cases.len() {
            return cases;
        }
        let mut is_taken = vec![false; cases.len()];
        index::sample(random, cases.len(), count).iter().for_each(|at| is_taken[at] = true);
        cases.into_iter().zip(is_taken).filter_map(|(case, is_taken)| is_taken.then_some(case)).collect()
    }

    /// One case of `of`, by chance, at least one of all; all of them where everything runs.
    pub fn pick_one_of<T>(
        self,
        of: usize,
        cases: impl IntoIterator<Item = T>,
        random: &mut impl Rng,
    ) -> Vec<T> {
        let cases: Vec<T> = cases.into_iter().collect();
        let count = cases.len().div_ceil(of);
        self.pick(cases, count, random)
    }
}
