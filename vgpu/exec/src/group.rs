//! A workgroup: its waves in turn, from barrier to barrier.

use crate::bind::Handler;
use crate::control::{self, End};
use crate::dispatch::GroupTrace;
use crate::launch::Launch;
use crate::program::{Block, Code, Step};
use crate::strict::WaveCheck;
use crate::{
    Args, Env, Fault, FaultKind, Finding, Lds, Location, Memory, Options, Regions, Report, Signals, Solo,
    Stop, Wave,
};
use wave32_isa::Opcode;

/// Instructions of a wave before the next one of its workgroup has its turn.
const WAVE_TURN: i64 = 20_000;
/// Instructions of a workgroup before another may start beside it.
const GROUP_TURN: i64 = 200_000;

/// Why a wave stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Sleeping,
    AtBarrier,
    Ended,
}

/// A wave in its workgroup.
struct Member {
    wave: Wave,
    state: State,
    /// The block to enter next; `None`: the program's first.
    block: Option<u32>,
    /// The last barrier that it came to.
    barrier: At,
    scratch: Vec<u32>,
    check: Option<WaveCheck>,
}

/// A workgroup that is being run.
pub(crate) struct Group {
    id: [u32; 3],
    members: Vec<Member>,
    lds: Lds,
    trace: Option<Box<dyn GroupTrace>>,
}

impl Group {
    /// A wave alone; every register counts as initialised.
    pub(crate) fn solo(solo: &mut Solo, strict: bool) -> Self {
        let wave = std::mem::replace(&mut solo.wave, Wave::new(0, false));
        let check = strict.then(|| WaveCheck::new(&wave, 128, wave.vgprs, false));
        let scratch = std::mem::take(&mut solo.scratch);
        let member = Member { wave, state: State::Ready, block: None, barrier: (0, 0), scratch, check };
        Self { id: [0; 3], members: vec![member], lds: std::mem::take(&mut solo.lds), trace: None }
    }

    /// Gives everything back.
    pub(crate) fn into_solo(self, solo: &mut Solo) {
        solo.lds = self.lds;
        for member in self.members {
            solo.wave = member.wave;
            solo.scratch = member.scratch;
        }
    }
}

/// How far a workgroup got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// Its turn is over.
    Running,
    /// All it does is wait.
    Waiting,
}

/// What a thread runs workgroups with.
pub(crate) struct Runner<'a, M> {
    launch: &'a Launch<'a>,
    memory: &'a M,
    signals: &'a dyn Signals,
    options: &'a Options,
    code: Code<'a, M>,
    regions: Regions,
    report: Report,
    /// Executed operations, by number.
    covered: Vec<bool>,
    /// Waves of ended workgroups, to be used again.
    spare: Vec<Member>,
    touched: Vec<(u32, u64, u32)>,
}

/// Where in a block something happened.
type At = (u32, u16);

impl<'a, M: Memory> Runner<'a, M> {
    pub(crate) fn new(
        launch: &'a Launch<'a>,
        memory: &'a M,
        signals: &'a dyn Signals,
        options: &'a Options,
        code: Code<'a, M>,
    ) -> Self {
        Self {
            launch,
            memory,
            signals,
            options,
            code,
            regions: Regions::default(),
            report: Report::default(),
            covered: vec![false; if options.coverage { Opcode::ALL.len() } else { 0 }],
            spare: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// A workgroup about to start.
    pub(crate) fn start(&mut self, id: [u32; 3]) -> Group {
        let launch = self.launch;
        let members = (0..launch.waves(id))
            .map(|number| {
                let mut member = self.spare.pop().unwrap_or_else(|| Member {
                    wave: Wave::new(0, launch.wave64),
                    state: State::Ready,
                    block: None,
                    barrier: (0, 0),
                    scratch: vec![0; launch.scratch],
                    check: None,
                });
                launch.start(&mut member.wave, id, number);
                (member.state, member.block) = (State::Ready, None);
                let ids = launch.dispatch.descriptor.work_item_ids();
                let check = || WaveCheck::new(&member.wave, launch.sgprs(), ids, launch.cu_mode());
                member.check = self.options.strict.then(check);
                member
            })
            .collect();
        self.report.workgroups += 1;
        self.report.waves += u64::from(launch.waves(id));
        let trace = self.options.trace.as_ref().and_then(|t| t.workgroup(id));
        Group { id, members, lds: launch.lds(self.options.strict), trace }
    }

    /// Keeps an ended workgroup's waves for the next.
    pub(crate) fn reuse(&mut self, group: Group) {
        self.spare.extend(group.members);
    }

    /// What was run and met.
    pub(crate) fn finish(mut self) -> Report {
        let covered = self.covered.iter().zip(Opcode::ALL).filter(|(covered, _)| **covered);
        self.report.coverage = covered.map(|(_, op)| *op).collect();
        self.report
    }

    /// Runs a workgroup for a turn.
    pub(crate) fn run(&mut self, group: &mut Group) -> Result<Progress, Stop> {
        let mut left = GROUP_TURN;
        loop {
            for number in 0..group.members.len() {
                let member = &mut group.members[number];
                if member.state == State::Ready || member.state == State::Sleeping {
                    member.state = State::Ready;
                    let mut turn = WAVE_TURN;
                    let mut found = Vec::new();
                    let done = self.turn(group, number, &mut turn, &mut found);
                    for (at, fault) in found {
                        let stop = self.stop(group, number, at, *fault);
                        self.report.keep(stop);
                    }
                    done?;
                    left -= WAVE_TURN - turn;
                }
            }
            let all = |states: &[State]| group.members.iter().all(|m| states.contains(&m.state));
            if all(&[State::Ended]) {
                if let Some(trace) = &mut group.trace {
                    trace.met();
                }
                return Ok(Progress::Done);
            }
            // A wave that has ended is no longer waited for (RDNA ISA 12.5, S_BARRIER).
            if all(&[State::Ended, State::AtBarrier]) {
                self.meet(group)?;
            } else if all(&[State::Ended, State::AtBarrier, State::Sleeping]) {
                return Ok(Progress::Waiting);
            }
            if left <= 0 {
                return Ok(Progress::Running);
            }
        }
    }

    /// The waves that have not ended have all come to a barrier.
    fn meet(&mut self, group: &mut Group) -> Result<(), Stop> {
        if self.options.strict
            && let Err(stop) = self.same_barrier(group)
        {
            if !self.options.keep_going {
                return Err(stop);
            }
            self.report.keep(stop);
        }
        group.lds.barrier();
        for member in group.members.iter_mut().filter(|m| m.state == State::AtBarrier) {
            member.state = State::Ready;
        }
        if let Some(trace) = &mut group.trace {
            trace.met();
        }
        Ok(())
    }

    /// The card does not mind which barriers waves come to; whoever wrote the program meant them to come to one. That
    /// lanes of a wave are off there says nothing: compilers leave EXEC narrowed at barriers that all lanes come to.
    fn same_barrier(&self, group: &Group) -> Result<(), Stop> {
        let mut waiting = group.members.iter().enumerate().filter(|(_, m)| m.state == State::AtBarrier);
        let Some((other, first)) = waiting.next() else { return Ok(()) };
        let offset = |at| self.pc(at).wrapping_sub(self.launch.entry);
        let other_offset = offset(first.barrier);
        match waiting.find(|(_, member)| offset(member.barrier) != other_offset) {
            Some((number, member)) => {
                let place = self.place(group, number, member.barrier, None);
                let finding = Finding::BarrierDivergence { other_wave: other as u32, other_offset };
                Err(Stop::Strict { place, finding })
            }
            None => Ok(()),
        }
    }

    /// Runs a wave until it waits, ends, or has had its turn. With [`Options::keep_going`] `found` has the findings.
    fn turn(
        &mut self,
        group: &mut Group,
        number: usize,
        turn: &mut i64,
        found: &mut Vec<(At, Box<Fault>)>,
    ) -> Result<(), Stop> {
        let tracing = group.trace.is_some();
        let watched = self.options.strict || self.options.count || self.options.coverage || tracing;
        let member = &mut group.members[number];
        let mut id = match member.block {
            Some(id) => id,
            None => self.code.enter(&mut self.regions, self.launch.entry),
        };
        let mut env = Env {
            memory: self.memory,
            regions: &mut self.regions,
            lds: &mut group.lds,
            scratch: &mut member.scratch,
            signals: self.signals,
            wave: number as u32,
            strict: self.options.strict,
            robust: self.options.robust,
            dispatch: self.launch.dispatch,
            touched: if tracing { Some(&mut self.touched) } else { None },
        };
        let wave = &mut member.wave;
        loop {
            let block = self.code.get(id);
            let length = block.insts.len();
            let outcome = if block.vgprs > wave.vgprs {
                let reason = format!("names v{} of a wave with {} VGPRs", block.vgprs - 1, wave.vgprs);
                Err((0, Fault::illegal(reason)))
            } else if watched {
                let mut watch = Watch {
                    check: member.check.as_mut(),
                    report: self.options.count.then_some(&mut self.report),
                    covered: &mut self.covered,
                    trace: group.trace.as_deref_mut(),
                    number: number as u32,
                    block: id,
                    found: self.options.keep_going.then_some(&mut *found),
                };
                watch.run(block, wave, &mut env)
            } else if wave.wave64 {
                run_plain::<M, true>(&block.plain, wave, &mut env)
            } else {
                run_plain::<M, false>(&block.plain, wave, &mut env)
            };
            if let Err((index, fault)) = outcome {
                return Err(self.stop(group, number, (id, index), *fault));
            }
            self.report.instructions += length as u64;
            *turn -= length as i64;
            let (end, next, last) = (block.end, block.next(), length.saturating_sub(1) as u16);
            let mut pause = None;
            id = match end {
                End::Next => self.code.follow(env.regions, id, false, next),
                End::Branch { when, to } => {
                    let taken = when.holds(wave);
                    self.code.follow(env.regions, id, taken, if taken { to } else { next })
                }
                End::Jump { save, to } => {
                    let to = control::jump(wave, save, to, next);
                    self.code.enter(env.regions, to)
                }
                End::Subvector { begin, register, to } => {
                    let taken = control::subvector(wave, begin, register);
                    self.code.follow(env.regions, id, taken, if taken { to } else { next })
                }
                End::Barrier => {
                    pause = Some(State::AtBarrier);
                    member.barrier = (id, last);
                    self.code.follow(env.regions, id, false, next)
                }
                End::Sleep => {
                    pause = Some(State::Sleeping);
                    self.code.follow(env.regions, id, false, next)
                }
                End::Message(1) => {
                    self.signals.interrupt(wave.sgpr[crate::wave::M0]);
                    self.code.follow(env.regions, id, false, next)
                }
                End::Message(message) => {
                    let fault = Fault::illegal(format!("message {message:#x} is not known"));
                    return Err(self.stop(group, number, (id, last), *fault));
                }
                End::Invalidate => {
                    self.code.forget();
                    // Their places are no more.
                    found.clear();
                    self.code.enter(env.regions, next)
                }
                // A breakpoint with no debugger there.
                End::Trap(3) => self.code.follow(env.regions, id, false, next),
                End::Trap(trap) => {
                    let place = self.place(group, number, (id, last), None);
                    return Err(Stop::Trap { place, id: trap });
                }
                End::Program => {
                    pause = Some(State::Ended);
                    id
                }
                End::NoCode => {
                    let place = self.place(group, number, (id, length as u16), None);
                    return Err(Stop::MemoryFault { place, address: next, bytes: 4, write: false });
                }
                End::Illegal => {
                    let reason = self.code.get(id).reason.clone();
                    let place = self.place(group, number, (id, length as u16), None);
                    return Err(Stop::IllegalInstruction { place, reason });
                }
            };
            if pause.is_some() || *turn <= 0 {
                member.block = Some(id);
                member.state = pause.unwrap_or(State::Ready);
                return Ok(());
            }
        }
    }

    fn stop(&self, group: &Group, number: usize, at: At, fault: Fault) -> Stop {
        let place = self.place(group, number, at, fault.lane);
        match fault.kind {
            FaultKind::Memory { address, bytes, write } => Stop::MemoryFault { place, address, bytes, write },
            FaultKind::Strict(finding) => Stop::Strict { place, finding },
            FaultKind::Illegal(reason) => Stop::IllegalInstruction { place, reason },
        }
    }

    /// An instruction's address; of what is not there, the one behind the block.
    fn pc(&self, (id, index): At) -> u64 {
        let block = self.code.get(id);
        let inst = block.insts.get(usize::from(index));
        inst.map_or(block.next(), |(_, offset)| block.pc.wrapping_add(u64::from(*offset)))
    }

    fn place(&self, group: &Group, number: usize, (id, index): At, lane: Option<u32>) -> Location {
        let inst = self.code.get(id).insts.get(usize::from(index));
        let dispatch = self.launch.dispatch;
        let kernel = if dispatch.name.is_empty() {
            format!("kernel at {:#x}", dispatch.kernel_object)
        } else {
            dispatch.name.clone()
        };
        Location {
            kernel,
            offset: self.pc((id, index)).wrapping_sub(self.launch.entry),
            instruction: inst.map_or(String::new(), |(inst, _)| inst.text()),
            workgroup: group.id,
            wave: number as u32,
            lane,
        }
    }

    /// The deadline has passed: where the workgroup stands.
    pub(crate) fn late(&self, group: &Group) -> Stop {
        let number = group.members.iter().position(|m| m.state != State::Ended).unwrap_or(0);
        let place = match group.members.get(number).and_then(|m| m.block) {
            Some(id) => self.place(group, number, (id, 0), None),
            None => Location {
                kernel: self.launch.dispatch.name.clone(),
                workgroup: group.id,
                ..Location::default()
            },
        };
        Stop::Deadline { place }
    }
}

/// Runs straight code that nobody watches.
fn run_plain<M: Memory, const WIDE: bool>(
    steps: &[Step<M>],
    wave: &mut Wave,
    env: &mut Env<'_, M>,
) -> Result<(), (u16, Box<Fault>)> {
    for step in steps {
        execute::<M, WIDE>(step.handler, wave, env, &step.args).map_err(|fault| (step.index, fault))?;
    }
    Ok(())
}

#[inline(always)]
fn execute<M: Memory, const WIDE: bool>(
    handler: Handler<M>,
    wave: &mut Wave,
    env: &mut Env<'_, M>,
    args: &Args,
) -> Result<(), Box<Fault>> {
    match handler {
        Handler::Vector(f) => {
            f(wave, args);
            if WIDE {
                wave.half = 1;
                f(wave, args);
                wave.half = 0;
            }
            Ok(())
        }
        Handler::Scalar(f) => {
            f(wave, args);
            Ok(())
        }
        Handler::VectorMemory(f) => {
            let mut done = f(wave, env, args);
            if WIDE && done.is_ok() {
                wave.half = 1;
                done = f(wave, env, args);
                wave.half = 0;
            }
            done
        }
        Handler::ScalarMemory(f) => f(wave, env, args),
        Handler::Hint | Handler::Control => Ok(()),
        Handler::Missing => Err(Fault::illegal("this instruction is not implemented")),
    }
}

/// Who looks at each instruction.
struct Watch<'a> {
    check: Option<&'a mut WaveCheck>,
    report: Option<&'a mut Report>,
    covered: &'a mut [bool],
    trace: Option<&'a mut (dyn GroupTrace + 'static)>,
    number: u32,
    block: u32,
    /// Where findings go that do not stop the kernel.
    found: Option<&'a mut Vec<(At, Box<Fault>)>>,
}

/// Takes a finding, where findings do not stop the kernel.
fn keep(found: &mut Option<&mut Vec<(At, Box<Fault>)>>, at: At, fault: Box<Fault>) -> Result<(), Box<Fault>> {
    match found {
        Some(found) if matches!(fault.kind, FaultKind::Strict(_)) => {
            if found.iter().all(|(other, _)| *other != at) {
                found.push((at, fault));
            }
            Ok(())
        }
        _ => Err(fault),
    }
}

impl Watch<'_> {
    fn run<M: Memory>(
        &mut self,
        block: &Block<M>,
        wave: &mut Wave,
        env: &mut Env<'_, M>,
    ) -> Result<(), (u16, Box<Fault>)> {
        let plans = if self.check.is_some() { block.plans() } else { &[] };
        for (i, (inst, offset)) in block.insts.iter().enumerate() {
            let index = i as u16;
            let mut watched = self.check.as_deref_mut().zip(plans.get(i));
            if let Some((check, plan)) = &mut watched
                && let Err(fault) = check.before(wave, inst, plan, env.lds)
            {
                keep(&mut self.found, (self.block, index), fault).map_err(|fault| (index, fault))?;
                check.forgive(inst);
            }
            if let Some(covered) = self.covered.get_mut(inst.op as usize) {
                *covered = true;
            }
            if let Some(report) = self.report.as_deref_mut() {
                let (class, vector) = block.classes[i];
                let lanes = if vector { wave.wide_mask(crate::wave::EXEC).count_ones() } else { 1 };
                report.counts.add(class, u64::from(lanes));
            }
            if let Some(step) = block.watched.get(i) {
                let run = |wave: &mut Wave, env: &mut Env<'_, M>| match wave.wave64 {
                    true => execute::<M, true>(step.handler, wave, env, &step.args),
                    false => execute::<M, false>(step.handler, wave, env, &step.args),
                };
                if let Err(fault) = run(wave, env) {
                    // Of an atomic some lanes are done.
                    let mut done = Err(fault);
                    if !inst.op.is_atomic() {
                        done = done.or_else(|fault| keep(&mut self.found, (self.block, index), fault));
                    }
                    done.map_err(|fault| (index, fault))?;
                    // Once more, as a card does it; what LDS holds is not known from now on.
                    env.lds.unwatch();
                    let strict = std::mem::replace(&mut env.strict, false);
                    let done = run(wave, env);
                    env.strict = strict;
                    done.map_err(|fault| (index, fault))?;
                }
            }
            if let Some((check, plan)) = watched {
                check.after(wave, plan, env.lds);
            }
            if let Some(trace) = self.trace.as_deref_mut() {
                let none = &mut Vec::new();
                let touched = env.touched.as_deref_mut().unwrap_or(none);
                let pc = block.pc.wrapping_add(u64::from(*offset));
                trace.issued(self.number, wave, pc, inst, touched);
                touched.clear();
            }
        }
        Ok(())
    }
}
