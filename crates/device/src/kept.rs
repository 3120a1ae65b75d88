//! [`Kept`]: prepared filters, kept until the memory that they were made of changes.
//!
//! A queue knows of every write to its memory: nothing else can write there. So it is the queue that says when what was made
//! of a range is out of date ([`Kept::written`]), whoever wrote it and through whichever tensor. A framework's own
//! counters miss writes (`tensor.data` of PyTorch), and are not asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use wave32_solve::Plan;
use wave32_solve::hazards::Range;

/// Filters that are noted at most; past that, all that were only seen are forgotten.
const MAX_NOTED: usize = 4096;

/// What is known of the filters at a range.
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

/// Filters prepared in one way, or only seen.
#[derive(Debug)]
struct Entry {
    /// Holds the plan alive, so that no other plan has its address.
    plan: Arc<Plan>,
    /// Address and bytes of what was made.
    made: Option<(u64, u64)>,
    /// When it was last asked for.
    used: u64,
}

/// Prepared filters of one queue, by the range that the filters lie in.
#[derive(Debug, Default)]
pub struct Kept {
    /// By first byte and length.
    entries: BTreeMap<(u64, u64), Vec<Entry>>,
    /// The longest range among them.
    longest: u64,
    /// Most bytes to keep.
    limit: u64,
    bytes: u64,
    /// Blocks that are kept no longer, for the queue to free.
    dropped: Vec<u64>,
    /// Counts the questions.
    clock: u64,
}

/// The usual case, the very same plan, needs no comparison.
fn makes_same(a: &Arc<Plan>, b: &Arc<Plan>) -> bool {
    Arc::ptr_eq(a, b) || a.prepares_as(b)
}

impl Kept {
    /// Nothing kept yet, and never more than `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is known of what the plan makes of the filters at `source`.
    pub fn ask(&mut self, source: Range, plan: &Arc<Plan>) -> Known {
        let Some(prepared) = plan.prepared else { return Known::New };
        self.clock += 1;
        let key = (source.0, source.1 - source.0);
        let found =
            self.entries.get_mut(&key).and_then(|all| all.iter_mut().find(|e| makes_same(&e.plan, plan)));
        if let Some(entry) = found {
            entry.used = self.clock;
            return match entry.made.map(|(address, _)| address) {
                Some(address) => Known::At(address),
                None if self.make_room(prepared.bytes) => Known::Again,
                None => Known::NoRoom,
            };
        }
        if self.entries.len() >= MAX_NOTED {
            self.forget(|entry| entry.made.is_none());
        }
        self.longest = self.longest.max(key.1);
        let entry = Entry { plan: plan.clone(), made: None, used: self.clock };
        self.entries.entry(key).or_default().push(entry);
        Known::New
    }

    /// Keeps the block at `address`, in which the plan's launches have prepared the filters at `source`. It was asked for
    /// just before.
    pub fn keep(&mut self, source: Range, plan: &Arc<Plan>, address: u64) {
        let bytes = plan.prepared.map_or(0, |prepared| prepared.bytes);
        let noted = self.entries.get_mut(&(source.0, source.1 - source.0));
        match noted.and_then(|all| all.iter_mut().find(|e| makes_same(&e.plan, plan) && e.made.is_none())) {
            Some(entry) => {
                entry.made = Some((address, bytes));
                self.bytes += bytes;
            }
            // They changed in between.
            None => self.dropped.push(address),
        }
    }

    /// Something writes there: what was made of it is out of date.
    pub fn written(&mut self, (start, end): Range) {
        if self.entries.is_empty() {
            return;
        }
        let from = (start.saturating_sub(self.longest), 0);
        while let Some((&key, _)) =
            self.entries.range(from..(end, 0)).find(|((first, length), _)| first + length > start)
        {
            for entry in self.entries.remove(&key).into_iter().flatten() {
                self.drop_block(&entry);
            }
        }
        if self.entries.is_empty() {
            self.longest = 0;
        }
    }

    /// Keeps nothing, and from now on half of what it was at most: memory ran out.
    pub fn make_way(&mut self) {
        if self.bytes > 0 {
            self.limit = self.bytes / 2;
        }
        self.clear();
    }

    /// Keeps nothing.
    pub fn clear(&mut self) {
        self.forget(|_| true);
    }

    /// Blocks that are kept no longer.
    pub fn dropped(&mut self) -> impl Iterator<Item = u64> {
        self.dropped.drain(..)
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

    fn forget(&mut self, which: impl Fn(&Entry) -> bool) {
        let mut gone = Vec::new();
        self.entries.retain(|_, all| {
            gone.extend(all.extract_if(.., |entry| which(entry)));
            !all.is_empty()
        });
        gone.iter().for_each(|entry| self.drop_block(entry));
    }

    fn drop_block(&mut self, entry: &Entry) {
        if let Some((address, bytes)) = entry.made {
            self.bytes -= bytes;
            self.dropped.push(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Known::{Again, At, New, NoRoom};
    use wave32_problem::ConvProblem;
    use wave32_solve::{DeviceCaps, Policy, usual_boards};

    /// A plan that prepares filters; `wide` for another way of packing.
    fn plan(k: i64, batch: i64) -> Arc<Plan> {
        let line = format!("conv -n {batch} -c 64 -H 14 -W 14 -k {k} -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -F 1");
        let problem: ConvProblem = line.parse().unwrap();
        let policy = Policy { only: Some("igemm_packed".into()), ..Policy::default() };
        let plan = wave32_solve::plan(&problem, &DeviceCaps::of(usual_boards()[0]), &policy).unwrap();
        assert!(plan.prepared.is_some_and(|prepared| prepared.bytes > 0));
        Arc::new(plan)
    }

    fn blocks(kept: &mut Kept) -> Vec<u64> {
        kept.dropped().collect()
    }

    #[test]
    fn kept_from_the_second_time_on_until_a_byte_is_written() {
        let (mut kept, plan) = (Kept::new(1 << 30), plan(64, 1));
        let source = (1000, 2000);
        assert_eq!(kept.ask(source, &plan), New);
        assert_eq!(kept.ask(source, &plan), Again);
        kept.keep(source, &plan, 7);
        assert_eq!(kept.ask(source, &plan), At(7));
        assert!(kept.bytes() == plan.prepared.unwrap().bytes);
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
    fn the_limit_holds_and_what_is_idle_makes_way() {
        let plan = plan(64, 1);
        let each = plan.prepared.unwrap().bytes;
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
            kept.make_way();
            assert_eq!(blocks(&mut kept).len() as u64, at);
            if bytes == 0 {
                break;
            }
            assert!(kept.limit == bytes / 2 && kept.limit < before);
            rounds += 1;
        }
        assert!((3..=5).contains(&rounds), "{rounds}");
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
