//! Programs from seeds. Commands are drawn freely; what orders those that meet is then put before each.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::program::*;
use crate::shaders::Use;
use crate::track::{Access, Tracker, widened};

/// What shapes all programs.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Commands that work, at most: a program of fewer is the beginning of one of more.
    pub limit: usize,
    /// Without what the validation layers misunderstand: atomics of one kind at once, events in secondary command buffers.
    pub validated: bool,
}

pub(crate) struct Generator {
    pub(crate) rng: StdRng,
    pub(crate) program: Program,
    tracker: Tracker,
    left: usize,
    /// The last value of each queue's timeline.
    values: [u64; MAX_QUEUES],
    /// The last batch of each queue.
    last: [Option<usize>; MAX_QUEUES],
    /// The batch under way.
    submit: Submit,
    action: usize,
    commands: Vec<Command>,
    repeated: bool,
    /// Dispatches may start elsewhere than at 0, and none is indirect: in both drivers (Mesa 22.3) an indirect dispatch
    /// starts where the last direct one of the command buffer, or of the batch, was told to.
    pub(crate) from_anywhere: bool,
    validated: bool,
}

/// The program of a seed.
pub fn program(seed: u64, options: Options) -> Program {
    let mut rng = StdRng::seed_from_u64(seed);
    let queues = rng.random_range(1..=MAX_QUEUES);
    let mut places: Vec<usize> = (0..5).collect();
    let queues = (0..queues).map(|_| places.remove(rng.random_range(0..places.len()))).collect();
    let threads = rng.random_range(1..=3);
    let from_anywhere = rng.random_bool(0.3);
    let program = Program { seed, queues, threads, ..Program::default() };
    let mut generator = Generator {
        rng,
        program,
        tracker: Tracker { atomics_meet: !options.validated, ..Tracker::default() },
        left: options.limit,
        values: [0; MAX_QUEUES],
        last: [None; MAX_QUEUES],
        submit: Submit::default(),
        action: 0,
        commands: Vec::new(),
        repeated: false,
        from_anywhere,
        validated: options.validated,
    };
    generator.buffers();
    for _ in 0..generator.rng.random_range(2..=MAX_ACTIONS - 8) {
        if generator.left == 0 {
            break;
        }
        if generator.chance(20) { generator.host() } else { generator.batch() }
    }
    generator.order();
    generator.program
}

impl Generator {
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn buffers(&mut self) {
        let rng = &mut self.rng;
        let blocks = rng.random_range(1..=4);
        let places = [Place::Device, Place::Shared, Place::Host, Place::HostCached, Place::Device];
        self.program.blocks = (0..blocks).map(|_| places[rng.random_range(0..places.len())]).collect();
        for i in 0..rng.random_range(2..=6).max(blocks) {
            let block = if i < blocks { i } else { rng.random_range(0..blocks) };
            let bytes = (64u64 << rng.random_range(0..11)) + 4 * rng.random_range(0..64);
            let gap = if rng.random_bool(0.3) { rng.random_range(0..5000) } else { 0 };
            self.program.buffers.push(Buffer { block, gap, bytes });
        }
    }

    /// Makes the action under way wait until it has everything before that these accesses need.
    fn join(&mut self, queue: Option<usize>, with: &[Access]) -> Vec<usize> {
        let mut waits = Vec::new();
        while let Some(on) = self.tracker.missing(self.action, queue, with) {
            let on = self.not_before(on);
            self.tracker.before[self.action] |= self.tracker.done[on];
            waits.push(on);
        }
        waits
    }

    /// The action itself, or a later batch of its queue.
    fn not_before(&mut self, on: usize) -> usize {
        let Some(queue) = self.program.submit(on).map(|submit| submit.queue) else { return on };
        let later: Vec<usize> = (on..self.program.actions.len())
            .filter(|i| self.program.submit(*i).is_some_and(|submit| submit.queue == queue))
            .collect();
        if self.chance(70) { on } else { later[self.rng.random_range(0..later.len())] }
    }

    fn wait(&mut self, on: usize) {
        let binary = self.program.submit(on).is_some() && self.chance(35);
        self.submit.waits.push(Wait { on, binary });
    }

    fn host(&mut self) {
        self.action = self.program.actions.len();
        self.tracker.before.push(0);
        let mut host = Host { value: self.rng.random_range(1..1000), ..Host::default() };
        let mut waits = Vec::new();
        if self.action > 0 && self.chance(40) {
            waits.push(self.rng.random_range(0..self.action));
            self.tracker.before[self.action] |= self.tracker.done[waits[0]];
        }
        let seen = |buffer: &Buffer| self.program.blocks[buffer.block] != Place::Device;
        let seen: Vec<usize> =
            (0..self.program.buffers.len()).filter(|i| seen(&self.program.buffers[*i])).collect();
        if !seen.is_empty() {
            let range = {
                let buffer = seen[self.rng.random_range(0..seen.len())];
                self.window(buffer, 4, 4)
            };
            let access = Access { range, what: Use::Write, stage: HOST };
            waits.extend(self.join(None, &[access]));
            for action in self.tracker.of_queues(&[access]) {
                if let What::Submit(submit) = &mut self.program.actions[action].what {
                    submit.to_host = true;
                }
            }
            self.tracker.add(access, self.action, None, (0, 0));
            host.touch = Some((range, self.rng.random::<u32>() | 1, self.rng.random()));
            self.left -= 1;
        }
        for on in waits {
            let (fence, poll) = (self.chance(40), self.chance(30));
            host.waits.push(HostWait { on, fence, poll });
        }
        self.tracker.done.push(self.tracker.before[self.action] | 1 << self.action);
        let thread = self.rng.random_range(0..self.program.threads);
        self.program.actions.push(Action { thread, what: What::Host(host) });
    }

    fn batch(&mut self) {
        self.action = self.program.actions.len();
        let queue = self.rng.random_range(0..self.program.queues.len());
        self.tracker.before.push(self.last[queue].map_or(0, |last| self.tracker.before[last]));
        self.submit = Submit { queue, ..Submit::default() };
        if self.action > 0 && self.chance(20) {
            let on = self.rng.random_range(0..self.action);
            self.tracker.before[self.action] |= self.tracker.done[on];
            self.wait(on);
        }
        for _ in 0..[0, 1, 1, 1, 2, 2, 3][self.rng.random_range(0..7)] {
            self.command_buffer();
        }
        let most = 1u64 << self.rng.random_range(0..34);
        self.values[queue] += self.rng.random_range(1..=most);
        let value = self.values[queue];
        let (fence, two, join) = (self.chance(40), self.chance(50), self.chance(30));
        let submit = std::mem::take(&mut self.submit);
        let submit = Submit { value, fence, two, join, ..submit };
        let before = self.tracker.before[self.action];
        let earlier = self.last[queue].map_or(0, |last| self.tracker.done[last]);
        self.tracker.done.push(before | earlier | 1 << self.action);
        self.last[queue] = Some(self.action);
        let thread = self.rng.random_range(0..self.program.threads);
        self.program.actions.push(Action { thread, what: What::Submit(submit) });
    }

    fn command_buffer(&mut self) {
        self.commands.clear();
        self.repeated = self.chance(12);
        if self.repeated {
            self.put_barrier(QUEUE, QUEUE, Vec::new());
        }
        for _ in 0..self.rng.random_range(1..=6) {
            if self.left == 0 {
                break;
            }
            self.work();
        }
        let mut commands = std::mem::take(&mut self.commands);
        if self.chance(25) && !commands.is_empty() {
            let from = self.rng.random_range(0..commands.len());
            let to = self.rng.random_range(from..=commands.len());
            let events =
                |command: &Command| matches!(command, Command::SetEvent { .. } | Command::WaitEvent { .. });
            if !(self.validated && commands[from..to].iter().any(events)) {
                let inner: Vec<Command> = commands.drain(from..to).collect();
                commands.insert(from, Command::Secondary(inner));
            }
        }
        let times = if self.repeated { 2 } else { 1 };
        self.submit.buffers.push(CommandBuffer { commands, times });
    }

    fn put_barrier(&mut self, from: u8, to: u8, ranges: Vec<Range>) {
        self.tracker.barrier(self.action, self.submit.queue, from, to, &ranges);
        let two = self.chance(50);
        self.commands.push(Command::Barrier(Barrier { two, from, to, ranges }));
    }

    /// Puts a command behind what it needs.
    pub(crate) fn put(&mut self, command: Command, accesses: &[Access]) {
        self.left = self.left.saturating_sub(1);
        let queue = self.submit.queue;
        for on in self.join(Some(queue), accesses) {
            self.wait(on);
        }
        let hazards = self.tracker.hazards(self.action, queue, accesses);
        if !hazards.is_empty() {
            self.order_hazards(&hazards, accesses);
        } else if self.chance(4) {
            self.put_barrier(QUEUE, QUEUE, Vec::new());
        }
        self.commands.push(command);
        let place = (self.submit.buffers.len(), self.commands.len() - 1);
        for access in accesses {
            self.tracker.add(*access, self.action, Some(queue), place);
        }
    }

    fn order_hazards(&mut self, hazards: &[usize], accesses: &[Access]) {
        let queue = self.submit.queue;
        let records = hazards.iter().map(|i| self.tracker.record(*i));
        let (mut from, mut hulls, mut latest) = (0, Vec::<Range>::new(), (0, 0, 0));
        for record in records {
            from |= record.access.stage;
            latest = latest.max((record.action, record.buffer, record.at + 1));
            let range = record.access.range;
            match hulls.iter_mut().find(|hull| hull.buffer == range.buffer) {
                Some(hull) => {
                    let (at, end) = (hull.at.min(range.at), hull.end().max(range.end()));
                    *hull = Range { at, bytes: end - at, ..*hull };
                }
                None => hulls.push(range),
            }
        }
        let to = accesses.iter().fold(0, |all, access| all | access.stage);
        let (from, to) = (widened(from, self.chance(20)), widened(to, self.chance(20)));
        if self.chance(30) {
            hulls.clear();
        }
        if from & HOST != 0 || self.repeated || !self.chance(25) {
            return self.put_barrier(from, to, hulls);
        }
        let event = self.program.events;
        self.program.events += 1;
        let barrier = Barrier { two: self.chance(50), from, to, ranges: hulls };
        let set = Command::SetEvent { event, barrier: barrier.clone() };
        let here = (self.action, self.submit.buffers.len());
        let least = if (latest.0, latest.1) == here { latest.2 } else { 0 };
        let earlier =
            self.last[queue].filter(|last| least == 0 && latest.0 <= *last && self.rng.random_bool(0.5));
        let earlier = earlier.and_then(|last| match &mut self.program.actions[last].what {
            What::Submit(submit) => submit.buffers.last_mut().filter(|buffer| buffer.times == 1),
            What::Host(_) => None,
        });
        match earlier {
            // At the end of the batch before.
            Some(buffer) => buffer.commands.push(set),
            None => {
                let at = self.rng.random_range(least..=self.commands.len());
                self.commands.insert(at, set);
                self.tracker.shift(here.0, here.1, at);
            }
        }
        self.tracker.ordered(hazards, queue, to);
        self.commands.push(Command::WaitEvent { event, barrier });
    }

    /// An order of issue that may have batches before those that they wait for.
    fn order(&mut self) {
        let (count, done) = (self.program.actions.len(), self.program.done());
        let mut issue: Vec<usize> = (0..count).collect();
        for _ in 0..count {
            let from = self.rng.random_range(0..count);
            let to = self.rng.random_range(0..=from);
            let mut tried = issue.clone();
            let moved = tried.remove(from);
            tried.insert(to, moved);
            if is_possible(&self.program, &done, &tried) {
                issue = tried;
            }
        }
        self.program.issue = issue;
    }
}

/// Whether nobody waits for ever: each queue keeps its order; what a host, or a binary semaphore, needs is issued before.
fn is_possible(program: &Program, done: &[u64], issue: &[usize]) -> bool {
    let mut issued = 0u64;
    issue.iter().all(|&action| {
        let needs = match &program.actions[action].what {
            What::Host(_) => done[action],
            What::Submit(submit) if submit.waits.iter().any(|wait| wait.binary) => done[action],
            What::Submit(submit) => (0..action)
                .filter(|i| program.submit(*i).is_some_and(|other| other.queue == submit.queue))
                .fold(0, |all, i| all | 1 << i),
        };
        let possible = needs & !(1 << action) & !issued == 0;
        issued |= 1 << action;
        possible
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;

    #[test]
    fn programs_are_of_their_seed_and_stay_inside_their_buffers() {
        for seed in 0..300 {
            let make = |limit| program(seed, Options { limit, validated: false });
            let whole = make(usize::MAX);
            assert_eq!(format!("{whole:?}"), format!("{:?}", make(usize::MAX)));
            assert!(whole.actions.len() <= MAX_ACTIONS);
            assert!(is_possible(&whole, &whole.done(), &whole.issue), "{whole:#?}");
            // The model panics where a command leaves its buffer.
            [whole, make(3)].iter().for_each(|program| drop(model::run(program)));
        }
    }
}
