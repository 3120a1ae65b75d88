//! A workgroup processor: four SIMDs that issue their waves' instructions in order, as a simulation by events.

use crate::constants as c;
use crate::hierarchy::{Hierarchy, Rates, Tensor, Traffic};
use crate::issue::{Issue, REGISTERS, Unit};
use crate::stream::{Did, GroupStream, ONE_HALF, Recorded, WaveStream};
use std::collections::VecDeque;

const SIMDS: usize = c::SIMDS as usize;
/// What a six-bit counter can count.
const MAX_OUTSTANDING: usize = 63;

/// What a WGP is given to do.
pub(crate) struct Work<'a> {
    pub(crate) recorded: &'a Recorded,
    pub(crate) wave64: bool,
    /// A workgroup keeps to one CU.
    pub(crate) cu_mode: bool,
    /// Workgroups that it runs, and how many of them at once.
    pub(crate) groups: usize,
    pub(crate) resident: usize,
    pub(crate) rates: Rates,
    pub(crate) tensors: &'a [Tensor],
    /// Sources in one bank of VGPRs cost clocks.
    pub(crate) bank_conflicts: bool,
}

/// Why a wave waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// For a register that an ALU writes, or behind a branch.
    Dependency,
    Vector,
    /// Loads from LDS and scalar memory.
    Local,
    Barrier,
    /// Another wave had the unit.
    Unit,
}

/// What came of it; times in clocks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ran {
    /// When each workgroup ended, in that order.
    pub(crate) ended: Vec<f64>,
    /// When all is done, stores too.
    pub(crate) end: f64,
    /// Clocks the busiest SIMD's VALU, and the busier LDS half, worked.
    pub(crate) valu: f64,
    pub(crate) trans: f64,
    pub(crate) lds: f64,
    pub(crate) traffic: Traffic,
    /// Wave clocks lost by [`Cause`], and issuing.
    pub(crate) lost: [f64; 5],
    pub(crate) issued: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    AtBarrier,
    Ended,
}

struct WaveRun<'a> {
    stream: &'a WaveStream,
    /// Which of the WGP's workgroups it belongs to.
    group: usize,
    simd: usize,
    state: State,
    /// The next event, and the next memory instruction.
    next: usize,
    did: usize,
    /// When the next instruction could be issued at the earliest.
    ready: f64,
    /// What executes it.
    unit: Unit,
    /// What `ready` waits for.
    cause: Cause,
    last: f64,
    registers: Box<[f64; REGISTERS]>,
    vm: VecDeque<f64>,
    vs: VecDeque<f64>,
    lgkm: VecDeque<f64>,
}

struct GroupRun {
    alive: usize,
    waiting: usize,
    half: usize,
    slot: usize,
    waves: std::ops::Range<usize>,
}

#[derive(Default)]
struct Simd {
    /// Waves by number, oldest first.
    waves: Vec<usize>,
    free: [f64; Unit::COUNT],
    valu: f64,
    trans: f64,
    /// What to issue next, and when.
    choice: Option<(f64, usize)>,
}

/// Runs `work` to its end.
pub(crate) fn run(work: &Work<'_>) -> Ran {
    let mut wgp = Wgp {
        work,
        simds: std::array::from_fn(|_| Simd::default()),
        waves: Vec::new(),
        groups: Vec::new(),
        memory: Hierarchy::new(work.rates, work.tensors),
        lds_free: [0.0; 2],
        lds_busy: [0.0; 2],
        ran: Ran::default(),
    };
    for slot in 0..work.resident.min(work.groups) {
        wgp.start(0.0, slot);
    }
    wgp.choose_all();
    while let Some((now, wave)) = wgp.next() {
        wgp.issue(now, wave);
    }
    let Wgp { simds, memory, lds_busy, mut ran, .. } = wgp;
    ran.valu = simds.iter().map(|s| s.valu).fold(0.0, f64::max);
    ran.trans = simds.iter().map(|s| s.trans).fold(0.0, f64::max);
    ran.lds = lds_busy[0].max(lds_busy[1]);
    ran.traffic = memory.traffic();
    ran.end = ran.ended.last().copied().unwrap_or(0.0).max(memory.stored);
    ran
}

struct Wgp<'a> {
    work: &'a Work<'a>,
    simds: [Simd; SIMDS],
    waves: Vec<WaveRun<'a>>,
    groups: Vec<GroupRun>,
    memory: Hierarchy<'a>,
    lds_free: [f64; 2],
    lds_busy: [f64; 2],
    ran: Ran,
}

impl<'a> Wgp<'a> {
    /// The earliest instruction of all SIMDs.
    fn next(&self) -> Option<(f64, usize)> {
        let choices = self.simds.iter().filter_map(|s| s.choice);
        choices.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    fn start(&mut self, now: f64, slot: usize) {
        let number = self.groups.len();
        let recorded: &'a Recorded = self.work.recorded;
        let stream: &'a GroupStream = &recorded.groups[number % recorded.groups.len()];
        let half = slot % 2;
        let alive = stream.waves.len();
        let waves = self.waves.len()..self.waves.len() + alive;
        self.groups.push(GroupRun { alive, waiting: 0, half, slot, waves });
        for stream in &stream.waves {
            let allowed = if self.work.cu_mode { half * 2..half * 2 + 2 } else { 0..SIMDS };
            let simd = allowed.min_by_key(|&s| self.simds[s].waves.len()).unwrap_or(0);
            let wave = WaveRun {
                stream,
                group: number,
                simd,
                state: State::Running,
                next: 0,
                did: 0,
                ready: now,
                unit: Unit::None,
                cause: Cause::Dependency,
                last: now - 1.0,
                registers: Box::new([0.0; REGISTERS]),
                vm: VecDeque::new(),
                vs: VecDeque::new(),
                lgkm: VecDeque::new(),
            };
            self.simds[simd].waves.push(self.waves.len());
            self.waves.push(wave);
            let added = self.waves.len() - 1;
            self.waves[added].look_ahead(recorded, now);
        }
    }

    fn choose_all(&mut self) {
        (0..SIMDS).for_each(|simd| self.choose(simd));
    }

    /// Each clock a SIMD issues to every unit, from different waves; who has been ready longest goes first, then the oldest.
    fn choose(&mut self, simd: usize) {
        let unit = &mut self.simds[simd];
        let mut choice: Option<(f64, f64, usize)> = None;
        for &number in &unit.waves {
            let wave = &self.waves[number];
            if wave.state != State::Running {
                continue;
            }
            let at = wave.ready.max(unit.free[wave.unit as usize]);
            if choice.is_none_or(|(best, ready, _)| at < best || at == best && wave.ready < ready) {
                choice = Some((at, wave.ready, number));
            }
        }
        unit.choice = choice.map(|(at, _, number)| (at, number));
    }

    fn issue(&mut self, now: f64, number: usize) {
        let recorded: &'a Recorded = self.work.recorded;
        let wave = &mut self.waves[number];
        let simd = wave.simd;
        self.ran.lost[Cause::Unit as usize] += now - wave.ready;
        self.ran.lost[wave.cause as usize] += (wave.ready - wave.last - 1.0).max(0.0);
        self.ran.issued += 1.0;
        wave.last = now;
        let event = wave.stream.events[wave.next];
        let issue = wave.issue(recorded);
        let halves = if self.work.wave64 && event & ONE_HALF == 0 { 2.0 } else { 1.0 };
        let mut earliest = now + 1.0;
        let conflicts = if self.work.bank_conflicts { issue.conflicts } else { 0 };
        let kept = f64::from(issue.clocks + conflicts) * halves;
        let unit = &mut self.simds[simd];
        unit.free[issue.unit as usize] = if issue.unit == Unit::None { 0.0 } else { now + kept };
        match issue.unit {
            Unit::Valu => unit.valu += kept,
            Unit::Trans => {
                unit.trans += kept;
                // It is issued in the VALU's turn.
                unit.valu += 1.0;
                unit.free[Unit::Valu as usize] = unit.free[Unit::Valu as usize].max(now + 1.0);
            }
            Unit::Branch => earliest = now + wave.behind_branch(issue),
            _ => {}
        }
        let latency =
            f64::from(issue.latency + conflicts) + f64::from(issue.clocks + conflicts) * (halves - 1.0);
        for &register in &issue.writes {
            wave.registers[usize::from(register)] = now + latency;
        }
        if issue.vmcnt || issue.vscnt || issue.lgkmcnt {
            self.memory(now, number, issue);
        }
        let wave = &mut self.waves[number];
        wave.next += 1;
        if wave.next == wave.stream.events.len() {
            self.end(now + 1.0, number);
        } else {
            wave.look_ahead(recorded, earliest);
            if issue.barrier {
                self.barrier(now, number);
            } else {
                self.choose(simd);
            }
        }
    }

    fn memory(&mut self, now: f64, number: usize, issue: &Issue) {
        let wave = &mut self.waves[number];
        let Some(&did) = wave.stream.did.get(wave.did) else { return };
        wave.did += 1;
        let done = match did {
            Did::Lds(clocks) => {
                let half = self.groups[wave.group].half;
                let start = now.max(self.lds_free[half]);
                self.lds_free[half] = start + f64::from(clocks);
                self.lds_busy[half] += f64::from(clocks);
                start + f64::from(clocks - 1) + c::LDS_LATENCY as f64
            }
            Did::Lines { from, to, bytes } => {
                let lines = &wave.stream.lines[from as usize..to as usize];
                let copy = wave.group as u64;
                if issue.unit == Unit::Smem {
                    self.memory.scalar(now, lines, copy)
                } else {
                    self.memory.vector(wave.simd / 2, now, lines, bytes, issue.vscnt, copy)
                }
            }
        };
        // Each counter goes down in order; scalar loads come as they like, and are waited for all together.
        for (counted, queue) in
            [(issue.vmcnt, &mut wave.vm), (issue.vscnt, &mut wave.vs), (issue.lgkmcnt, &mut wave.lgkm)]
        {
            if counted {
                let before = queue.back().copied().unwrap_or(0.0);
                queue.push_back(done.max(before));
            }
        }
    }

    /// The wave has come to the barrier it just issued.
    fn barrier(&mut self, now: f64, number: usize) {
        let group = self.waves[number].group;
        self.waves[number].state = State::AtBarrier;
        self.groups[group].waiting += 1;
        let simd = self.waves[number].simd;
        if !self.meet(now, group) {
            self.choose(simd);
        }
    }

    /// Lets the workgroup's waves go on if all that are left have come to the barrier.
    fn meet(&mut self, now: f64, group: usize) -> bool {
        let run = &mut self.groups[group];
        if run.waiting == 0 || run.waiting < run.alive {
            return false;
        }
        run.waiting = 0;
        for wave in self.waves[run.waves.clone()].iter_mut().filter(|w| w.state == State::AtBarrier) {
            wave.state = State::Running;
            if wave.ready < now + 1.0 {
                (wave.ready, wave.cause) = (now + 1.0, Cause::Barrier);
            }
        }
        self.choose_all();
        true
    }

    fn end(&mut self, now: f64, number: usize) {
        let (simd, group) = (self.waves[number].simd, self.waves[number].group);
        self.waves[number].state = State::Ended;
        self.simds[simd].waves.retain(|w| *w != number);
        self.groups[group].alive -= 1;
        if self.groups[group].alive == 0 {
            self.ran.ended.push(now);
            if self.groups.len() < self.work.groups {
                let slot = self.groups[group].slot;
                self.start(now, slot);
            }
        } else {
            self.meet(now, group);
        }
        self.choose_all();
    }
}

impl WaveRun<'_> {
    fn issue<'r>(&self, recorded: &'r Recorded) -> &'r Issue {
        let place = self.stream.events[self.next] & !ONE_HALF;
        recorded.code[place as usize].as_ref().expect("each event's instruction was recorded")
    }

    /// Clocks until the instruction behind a branch can be issued.
    fn behind_branch(&self, issue: &Issue) -> f64 {
        let here = self.stream.events[self.next] & !ONE_HALF;
        let next = self.stream.events.get(self.next + 1).map(|e| e & !ONE_HALF);
        let straight = next.is_none_or(|next| next == here + u32::from(issue.dwords));
        (if straight { c::NOT_TAKEN_CLOCKS } else { c::TAKEN_CLOCKS }) as f64
    }

    /// Works out when the next instruction can be issued, `earliest` apart: its registers, what it waits for.
    fn look_ahead(&mut self, recorded: &Recorded, earliest: f64) {
        let issue = self.issue(recorded);
        (self.ready, self.cause, self.unit) = (earliest, Cause::Dependency, issue.unit);
        for &register in &issue.reads {
            self.ready = self.ready.max(self.registers[usize::from(register)]);
        }
        let (mut vm, mut lgkm, mut vs) = (MAX_OUTSTANDING, MAX_OUTSTANDING, MAX_OUTSTANDING);
        match issue.wait {
            Some(wait) => {
                (vm, lgkm, vs) = (usize::from(wait.vm), usize::from(wait.lgkm), usize::from(wait.vs));
            }
            None if issue.vmcnt || issue.vscnt || issue.lgkmcnt => {}
            None => return,
        }
        for (queue, left, cause) in [
            (&mut self.vm, vm, Cause::Vector),
            (&mut self.vs, vs, Cause::Vector),
            (&mut self.lgkm, lgkm, Cause::Local),
        ] {
            while queue.len() > left {
                let done = queue.pop_front().unwrap_or(0.0);
                if done > self.ready {
                    (self.ready, self.cause) = (done, cause);
                }
            }
        }
    }
}
