//! [`Kept`]: prepared filters and casts, kept until the memory that they were made of changes.
//!
//! A queue knows of every write to its memory: nothing else can write there. So it is the queue that says when what was made
//! of a range is out of date ([`Kept::written`]), whoever wrote it and through whichever tensor. A framework's own
//! counters miss writes (`tensor.data` of PyTorch), and are not asked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use wave32_problem::DType;
use wave32_solve::Plan;
use wave32_solve::hazards::Range;

/// Ranges that are noted at most; past that, all that were only seen are forgotten.
const MAX_NOTED: usize = 4096;

/// What is made of the numbers at a range.
#[derive(Debug, Clone)]
pub enum Made {
    /// What this plan's first launches prepare of filters. Holds the plan alive, so that no other plan has its address.
    Filters(Arc<Plan>),
    /// The same numbers, in the same order, as another type.
    Cast {
        /// The type of the numbers.
        from: DType,
        /// The other type.
        to: DType,
    },
}

impl Made {
    /// The usual case, the very same plan, needs no comparison.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Filters(a), Self::Filters(b)) => Arc::ptr_eq(a, b) || a.prepares_as(b),
            (Self::Cast { from, to }, Self::Cast { from: other_from, to: other_to }) => {
                from == other_from && to == other_to
            }
            _ => false,
        }
    }

    /// Bytes of what is made of that range; none where nothing is.
    fn bytes(&self, source: Range) -> Option<u64> {
        match self {
            Self::Filters(plan) => plan.prepared.map(|prepared| prepared.bytes),
            Self::Cast { from, to } => Some((source.1 - source.0) / from.size() * to.size()),
        }
    }
}

/// What is known of the numbers at a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Nothing: they were not there before, or have changed since. They are noted now.
    New,
    /// They were there before, unchanged, and there is room: what is made of them is worth keeping.
    Again,
    /// What was made of them lies at this address.
    At(u64),
    /// They were there before, but there is no room.
    NoRoom,
}

/// What was made in one way, or only seen.
#[derive(Debug)]
struct Entry {
    made: Made,
    /// Where it lies.
    block: Option<Block>,
    /// When it was last asked for.
    used: u64,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    address: u64,
    bytes: u64,
}

/// What one queue keeps, by the range that it was made of.
#[derive(Debug, Default)]
pub struct Kept {
    /// By first byte and length.
    entries: BTreeMap<(u64, u64), Vec<Entry>>,
    /// First byte and end of ranges that do not overlap and hold all of those: most writes touch none.
    covered: BTreeMap<u64, u64>,
    /// Most bytes to keep.
    limit: u64,
    /// The same before memory ran out.
    first_limit: u64,
    bytes: u64,
    /// Blocks that are kept no longer, for the queue to free.
    dropped: Vec<u64>,
    /// How many others own a block beside this.
    lent: HashMap<u64, u32>,
    /// Counts the questions.
    clock: u64,
}

impl Kept {
    /// Nothing kept yet, and never more than `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, first_limit: limit, ..Self::default() }
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is known of what is made so of the numbers at `source`.
    pub fn ask(&mut self, source: Range, made: &Made) -> Known {
        let Some(bytes) = made.bytes(source) else { return Known::New };
        self.clock += 1;
        let key = (source.0, source.1 - source.0);
        let found = self.entries.get_mut(&key).and_then(|all| all.iter_mut().find(|e| e.made.is_same(made)));
        if let Some(entry) = found {
            entry.used = self.clock;
            return match entry.block.map(|block| block.address) {
                Some(address) => Known::At(address),
                None if self.make_room(bytes) => Known::Again,
                None => Known::NoRoom,
            };
        }
        if self.entries.len() >= MAX_NOTED {
            self.forget(|entry| entry.block.is_none());
        }
        self.cover(source);
        let entry = Entry { made: made.clone(), block: None, used: self.clock };
        self.entries.entry(key).or_default().push(entry);
        Known::New
    }

    /// Keeps the block at `address`, which holds what was made so of the numbers at `source`. It was asked for just before.
    pub fn keep(&mut self, source: Range, made: &Made, address: u64) {
        let bytes = made.bytes(source).unwrap_or(0);
        let noted = self.entries.get_mut(&(source.0, source.1 - source.0));
        match noted.and_then(|all| all.iter_mut().find(|e| e.made.is_same(made) && e.block.is_none())) {
            Some(entry) => {
                entry.block = Some(Block { address, bytes });
                self.bytes += bytes;
            }
            // They changed in between.
            None => self.dropped.push(address),
        }
    }

    /// The block at `address` has one more owner, who frees it as any other. It goes when all have.
    pub fn lend(&mut self, address: u64) {
        *self.lent.entry(address).or_default() += 1;
    }

    /// One owner of the block at `address` frees it: true where others own it still, false where it goes now.
    pub fn free_shared(&mut self, address: u64) -> bool {
        let Some(others) = self.lent.get_mut(&address) else { return false };
        *others -= 1;
        if *others == 0 {
            self.lent.remove(&address);
        }
        true
    }

    /// Something writes there: what was made of it is out of date.
    pub fn written(&mut self, (start, end): Range) {
        let mut untouched = Vec::new();
        while let Some((first, last)) = self.uncover((start, end)) {
            let inside: Vec<_> = self.entries.range((first, 0)..(last, 0)).map(|(&key, _)| key).collect();
            for key in inside {
                let range = (key.0, key.0 + key.1);
                if range.0 >= end || range.1 <= start {
                    untouched.push(range);
                    continue;
                }
                for entry in self.entries.remove(&key).into_iter().flatten() {
                    self.drop_block(&entry);
                }
            }
        }
        untouched.into_iter().for_each(|range| self.cover(range));
    }

    /// From now on keeps half of that at most: so much was kept as memory ran out, and had to make way.
    pub fn keep_less_than(&mut self, bytes: u64) {
        self.limit = bytes / 2;
    }

    /// Keeps nothing, and from now on as much as at first: memory was given back.
    pub fn start_over(&mut self) {
        self.limit = self.first_limit;
        self.clear();
    }

    /// Keeps nothing of what there is.
    pub fn clear(&mut self) {
        self.forget(|_| true);
    }

    /// A block that is kept no longer.
    pub fn next_dropped(&mut self) -> Option<u64> {
        self.dropped.pop()
    }

    /// Is there room for so many bytes? Whatever was not used for two rounds of questions makes way.
    fn make_room(&mut self, bytes: u64) -> bool {
        if self.bytes + bytes > self.limit && bytes <= self.limit {
            let round = self.entries.values().map(Vec::len).sum::<usize>() as u64;
            let since = self.clock.saturating_sub(2 * round);
            self.forget(|entry| entry.used < since);
        }
        self.bytes + bytes <= self.limit
    }

    /// Removes a range that is covered and overlaps this one.
    fn uncover(&mut self, (start, end): Range) -> Option<Range> {
        let (&first, &last) = self.covered.range(..end).next_back().filter(|(_, last)| **last > start)?;
        self.covered.remove(&first);
        Some((first, last))
    }

    /// Adds a range to those that are covered, as one with what it overlaps.
    fn cover(&mut self, (mut start, mut end): Range) {
        while let Some((first, last)) = self.uncover((start, end)) {
            (start, end) = (start.min(first), end.max(last));
        }
        self.covered.insert(start, end);
    }

    fn forget(&mut self, which: impl Fn(&Entry) -> bool) {
        let mut gone = Vec::new();
        self.entries.retain(|_, all| {
            gone.extend(all.extract_if(.., |entry| which(entry)));
            !all.is_empty()
        });
        gone.iter().for_each(|entry| self.drop_block(entry));
        self.covered.clear();
        let left: Vec<_> = self.entries.keys().map(|&(first, length)| (first, first + length)).collect();
        left.into_iter().for_each(|range| self.cover(range));
    }

    fn drop_block(&mut self, entry: &Entry) {
        if let Some(Block { address, bytes }) = entry.block {
            self.bytes -= bytes;
            self.dropped.push(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Known::{Again, At, New, NoRoom};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use wave32_problem::ConvProblem;
    use wave32_solve::{DeviceCaps, Policy, usual_boards};

    /// A plan that prepares filters; `wide` for another way of packing.
    fn plan(k: i64, batch: i64) -> Made {
        let line = format!("conv -n {batch} -c 64 -H 14 -W 14 -k {k} -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -F 1");
        let problem: ConvProblem = line.parse().unwrap();
        let policy = Policy { only: Some("igemm_packed".into()), ..Policy::default() };
        let plan = wave32_solve::plan(&problem, &DeviceCaps::of(usual_boards()[0]), &policy).unwrap();
        assert!(plan.prepared.is_some_and(|prepared| prepared.bytes > 0));
        Made::Filters(Arc::new(plan))
    }

    fn blocks(kept: &mut Kept) -> Vec<u64> {
        std::iter::from_fn(|| kept.next_dropped()).collect()
    }

    #[test]
    fn kept_from_the_second_time_on_until_a_byte_is_written() {
        let (mut kept, plan) = (Kept::new(1 << 30), plan(64, 1));
        let source = (1000, 2000);
        assert_eq!(kept.ask(source, &plan), New);
        assert_eq!(kept.ask(source, &plan), Again);
        kept.keep(source, &plan, 7);
        assert_eq!(kept.ask(source, &plan), At(7));
        assert!(kept.bytes() == plan.bytes((0, 1)).unwrap());
        for beside in [(0, 1000), (2000, 3000), (999, 1000)] {
            kept.written(beside);
            assert_eq!(kept.ask(source, &plan), At(7), "{beside:?}");
        }
        for touches in [(1999, 2000), (1000, 1001), (0, 5000), (0, 1001), (1999, 2500)] {
            kept.written(touches);
            assert_eq!((blocks(&mut kept), kept.bytes()), (vec![7], 0), "{touches:?}");
            assert_eq!(kept.ask(source, &plan), New);
            assert_eq!(kept.ask(source, &plan), Again);
            kept.keep(source, &plan, 7);
        }
        kept.clear();
        assert_eq!((blocks(&mut kept), kept.bytes()), (vec![7], 0));
    }

    #[test]
    fn ranges_that_overlap_all_fall() {
        let (mut kept, plan) = (Kept::new(1 << 30), plan(64, 1));
        for (source, block) in [((0, 10_000), 1), ((5000, 6000), 2), ((5000, 9000), 3), ((9500, 9600), 4)] {
            kept.ask(source, &plan);
            kept.ask(source, &plan);
            kept.keep(source, &plan, block);
        }
        kept.written((8000, 8001));
        let mut gone = blocks(&mut kept);
        gone.sort_unstable();
        assert_eq!(gone, [1, 3]);
        assert_eq!((kept.ask((5000, 6000), &plan), kept.ask((9500, 9600), &plan)), (At(2), At(4)));
    }

    #[test]
    fn ways_to_prepare_are_told_apart_and_shared() {
        let mut kept = Kept::new(1 << 30);
        let (one, wider, other) = (plan(64, 1), plan(64, 1), plan(72, 1));
        let source = (0, 100);
        kept.ask(source, &one);
        assert_eq!(kept.ask(source, &other), New, "another way");
        assert_eq!(kept.ask(source, &wider), Again, "another plan that begins alike");
        kept.keep(source, &wider, 5);
        assert_eq!(kept.ask(source, &one), At(5));
        // What changed before it could be kept is given back.
        kept.written(source);
        let _ = blocks(&mut kept);
        kept.keep(source, &one, 9);
        assert_eq!((blocks(&mut kept), kept.bytes()), (vec![9], 0));
    }

    #[test]
    fn casts_are_told_apart_by_their_types() {
        use DType::{BF16, F16, F32};
        let (mut kept, source) = (Kept::new(1 << 30), (400, 800));
        let (half, brain) = (Made::Cast { from: F32, to: F16 }, Made::Cast { from: F32, to: BF16 });
        assert_eq!((kept.ask(source, &half), kept.ask(source, &plan(64, 1))), (New, New));
        assert_eq!(kept.ask(source, &half), Again);
        kept.keep(source, &half, 3);
        assert_eq!((kept.ask(source, &brain), kept.ask(source, &half), kept.bytes()), (New, At(3), 200));
        assert_eq!(kept.ask((400, 600), &half), New, "a part of it");
    }

    #[test]
    fn a_write_drops_what_overlaps_it_and_nothing_else() {
        let seed = rand::random();
        let mut random = StdRng::seed_from_u64(seed);
        let (mut kept, mut model) = (Kept::new(1 << 30), HashMap::new());
        let made = Made::Cast { from: DType::F32, to: DType::F16 };
        let mut hits = 0;
        for step in 0..20_000 {
            let start = 8 * random.random_range(0..60);
            let range = (start, start + 8 * random.random_range(1..if step % 50 == 0 { 40 } else { 4 }));
            if random.random_bool(0.1) {
                kept.written(range);
                model.retain(|other: &Range, _| other.1 <= range.0 || other.0 >= range.1);
                continue;
            }
            let known = kept.ask(range, &made);
            let right = match model.get(&range) {
                None => New,
                Some(None) => Again,
                Some(Some(address)) => At(*address),
            };
            assert_eq!(known, right, "step {step}, seed {seed}");
            hits += u32::from(matches!(known, At(_)));
            model.entry(range).or_insert(None);
            if known == Again {
                kept.keep(range, &made, step);
                model.insert(range, Some(step));
            }
        }
        assert!(hits > 100, "{hits} hits, seed {seed}");
        let _ = blocks(&mut kept);
        let left = model.values().flatten().count();
        kept.clear();
        assert_eq!((kept.bytes(), kept.covered.len(), blocks(&mut kept).len()), (0, 0, left), "seed {seed}");
    }

    #[test]
    fn a_block_that_was_lent_goes_with_its_last_owner() {
        let mut kept = Kept::new(1 << 30);
        assert!(!kept.free_shared(5));
        kept.lend(5);
        kept.lend(5);
        kept.lend(6);
        assert!(kept.free_shared(5) && kept.free_shared(5) && !kept.free_shared(5));
        assert!(kept.free_shared(6) && !kept.free_shared(6));
    }

    #[test]
    fn the_limit_holds_and_what_is_idle_makes_way() {
        let plan = plan(64, 1);
        let each = plan.bytes((0, 1)).unwrap();
        let mut kept = Kept::new(2 * each + each / 2);
        let ask = |kept: &mut Kept, at: u64| kept.ask((at * 100, at * 100 + 100), &plan);
        for at in 0..2 {
            ask(&mut kept, at);
            assert_eq!(ask(&mut kept, at), Again);
            kept.keep((at * 100, at * 100 + 100), &plan, at);
        }
        ask(&mut kept, 2);
        assert_eq!((ask(&mut kept, 2), kept.bytes()), (NoRoom, 2 * each), "both are in use");
        // The second is not used any more.
        for _ in 0..20 {
            ask(&mut kept, 0);
        }
        assert_eq!(ask(&mut kept, 2), Again);
        assert_eq!((blocks(&mut kept), kept.bytes()), (vec![1], each));
        assert_eq!(ask(&mut kept, 0), At(0));
    }

    #[test]
    fn where_memory_runs_out_less_is_kept_each_time() {
        let plan = plan(64, 1);
        let mut kept = Kept::new(1 << 40);
        let mut rounds = 0;
        while kept.limit > 0 {
            let (mut at, before) = (0, kept.limit);
            while at < 8 && (0..2).map(|_| kept.ask((at, at + 1), &plan)).last() == Some(Again) {
                kept.keep((at, at + 1), &plan, at);
                at += 1;
            }
            let bytes = kept.bytes();
            kept.clear();
            assert_eq!(blocks(&mut kept).len() as u64, at);
            if bytes == 0 {
                break;
            }
            kept.keep_less_than(bytes);
            assert!(kept.limit == bytes / 2 && kept.limit < before);
            rounds += 1;
        }
        assert!((3..=5).contains(&rounds), "{rounds}");
        kept.start_over();
        assert_eq!((kept.limit, kept.bytes()), (1 << 40, 0));
    }

    #[test]
    fn notes_are_bounded() {
        let (mut kept, plan) = (Kept::new(1 << 30), plan(64, 1));
        for at in 0..3 * MAX_NOTED as u64 {
            kept.ask((at * 10, at * 10 + 10), &plan);
        }
        assert!(kept.entries.len() <= MAX_NOTED);
    }
}
