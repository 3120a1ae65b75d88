//! One suite for every [`Queue`]: what the trait's contract promises, tried out by way of a [`Runner`] and as it is
//! ([`queue()`]).
//!
//! A device crate's tests call [`run`] on a runner and [`deadline`] on one that they can spare.
//! The suite needs two small kernels from the queue ([`Fixture`]) and takes any real plans as [`Case`]s.
//! Inputs are random from a seed that every failure names; outputs are poisoned before each run.

use crate::{BufferId, DeviceError, Operands, PlanDevice, Queue, Runner};
use std::time::{Duration, Instant};
use wave32_solve::{Launch, Plan, Role};

mod bench;
mod queue;

pub use queue::{queue, step};

use bench::{Bench, Random, ensure, expect_misuse, fixture_plan, same, spin, text, to_bytes};

/// Threads of a workgroup of the fixture kernels.
pub const FIXTURE_THREADS: u32 = 64;

/// Time no correct device needs for one small check.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most rounds of nine runs in which two amounts of work are compared by their time.
const ROUNDS_OF_TIMES: u32 = 50;

/// Names of two kernels that the device under test knows, both with [`FIXTURE_THREADS`] threads and
/// `i = (first_group + group.x) * 64 + thread`.
#[derive(Debug, Clone, Copy)]
pub struct Fixture {
    /// Buffers `src`, `dst`; params `first_group, count, mul, add`; for `i < count` it does
    /// `dst[i] = src[i] * mul + add` on wrapping 32-bit words.
    pub step: &'static str,
    /// Buffer `dst`; params `first_group, count, rounds`; runs `rounds` dependent steps of integer
    /// arithmetic in every thread and for `i < count` stores the result in `dst[i]`.
    pub spin: &'static str,
}

/// A plan with inputs and the exact bytes that it must make of them.
#[derive(Debug, Clone)]
pub struct Case {
    /// What to run.
    pub plan: Plan,
    /// Content of each operand that the plan reads.
    pub inputs: Vec<(Role, Vec<u8>)>,
    /// The operand it writes.
    pub output: Role,
    /// What must be in it afterwards.
    pub expected: Vec<u8>,
}

/// Runs every check but the deadline's; the names of those that passed, in order.
///
/// # Errors
/// The first check that failed, with what was found and the seed.
pub fn run<Q: Queue>(
    device: &mut Runner<Q>,
    fixture: &Fixture,
    cases: &[Case],
    seed: u64,
) -> Result<Vec<&'static str>, String> {
    let checks: [(&'static str, Check<Q>); 11] = [
        ("round trips", round_trips),
        ("buffers are apart", buffers_are_apart),
        ("freed buffers are gone", freed_buffers_are_gone),
        ("ranges are checked", ranges_are_checked),
        ("absurd sizes are out of memory", absurd_sizes),
        ("plans are checked", plans_are_checked),
        ("kernels compute", kernels_compute),
        ("dependent launches are ordered", dependent_launches),
        ("cuts change nothing", cuts_change_nothing),
        ("runs repeat bit for bit", runs_repeat),
        ("timing is sane", timing_is_sane),
    ];
    let mut passed = Vec::new();
    for (name, check) in checks {
        let mut bench = Bench { device, fixture, random: Random(seed), made: Vec::new() };
        let result = check(&mut bench);
        bench.free_all();
        result.map_err(|what| format!("{name}: {what} (seed {seed})"))?;
        passed.push(name);
    }
    for case in cases {
        let mut bench = Bench { device, fixture, random: Random(seed), made: Vec::new() };
        let result = bench.case(case);
        bench.free_all();
        let plan = &case.plan;
        result.map_err(|what| {
            format!("{} {} {}: {what} (seed {seed})", plan.problem, plan.solver, plan.config)
        })?;
        passed.push("case");
    }
    Ok(passed)
}

/// A deadline that passes is kept, gives the device up, and the device still goes away in bounded time.
/// `groups` workgroups of `rounds` are enough for the spin kernel to run for about a second here; returns how
/// long the late run and the drop took.
///
/// # Errors
/// A line for people: what happened instead.
pub fn deadline<Q: Queue>(
    mut device: Runner<Q>,
    fixture: &Fixture,
    (groups, rounds): (u32, u32),
) -> Result<(Duration, Duration), String> {
    let bytes = 4 * u64::from(FIXTURE_THREADS);
    let target = device.alloc(bytes).map_err(|e| e.to_string())?;
    let operands = Operands::new().with(Role::Y, target, 0);
    // Said to be no work, so that it is one submit: the deadline has to pass while the GPU is busy.
    let plan = fixture_plan(vec![Launch { grid: [groups, 1, 1], flops: 0, ..spin(fixture, rounds) }]);
    device.prepare(&plan).map_err(|e| e.to_string())?;
    let limit = Duration::from_millis(50);
    let start = Instant::now();
    let result = device.run(&plan, &operands, limit);
    let late = start.elapsed();
    match result {
        Err(DeviceError::Timeout { deadline, .. }) if deadline == limit => {}
        other => return Err(format!("expected a timeout after {limit:?}, got {other:?} after {late:?}")),
    }
    if late > limit + Duration::from_secs(2) {
        return Err(format!("the deadline of {limit:?} was answered after {late:?}"));
    }
    let mut byte = [0];
    for (call, result) in [
        ("alloc", device.alloc(4).map(drop)),
        ("read", device.read(target, 0, &mut byte)),
        ("write", device.write(target, 0, &byte)),
        ("prepare", device.prepare(&plan)),
        ("run", device.run(&plan, &operands, PATIENCE).map(drop)),
        ("time", device.time(&plan, &[operands], 1, PATIENCE).map(drop)),
    ] {
        if !matches!(result, Err(DeviceError::Lost(_) | DeviceError::Timeout { .. })) {
            return Err(format!("{call} on a device that was given up answered {result:?}"));
        }
    }
    device.free(target);
    let start = Instant::now();
    drop(device);
    let dropped = start.elapsed();
    if dropped > Duration::from_secs(30) {
        return Err(format!("dropping the device took {dropped:?}"));
    }
    Ok((late, dropped))
}

type Check<Q> = fn(&mut Bench<'_, Q>) -> Result<(), String>;

fn round_trips<Q: Queue>(b: &mut Bench<'_, Q>) -> Result<(), String> {
    // The last sizes are past any staging chunk.
    for size in [1, 2, 3, 4, 5, 15, 63, 64, 65, 255, 4095, 4097, (1 << 20) + 3, (17 << 20) + 1] {
        let mut model = b.random.bytes(size);
        let id = b.with(&model)?;
        same(&b.read(id, size)?, &model, &format!("{size} bytes"))?;
        for _ in 0..4 {
            let offset = b.random.below(size as u64) as usize;
            let len = b.random.below((size - offset) as u64 + 1) as usize;
            let piece = b.random.bytes(len);
            b.device.write(id, offset as u64, &piece).map_err(text)?;
            model[offset..offset + len].copy_from_slice(&piece);
            same(&b.read(id, size)?, &model, &format!("{len} bytes at {offset} of {size}"))?;
            let mut part = vec![0xdb; len];
            b.device.read(id, offset as u64, &mut part).map_err(text)?;
            same(&part, &piece, &format!("reading {len} bytes at {offset} of {size}"))?;
        }
        b.free_all();
    }
    Ok(())
}

fn buffers_are_apart<Q: Queue>(b: &mut Bench<'_, Q>) -> Result<(), String> {
    let sizes = [1usize, 7, 256, 1000, 65536, 3, 100_001];
    let contents: Vec<Vec<u8>> = sizes.iter().map(|&size| b.random.bytes(size)).collect();
    let ids = contents.iter().map(|content| b.with(content)).collect::<Result<Vec<_>, _>>()?;
    // A hole in the middle, filled again, disturbs nobody.
    b.device.free(ids[3]);
    b.with(&[0xee; 1000])?;
    for (index, (id, content)) in ids.iter().zip(&contents).enumerate() {
        if index != 3 {
            same(&b.read(*id, content.len())?, content, &format!("buffer {index}"))?;
        }
    }
    Ok(())
}

fn freed_buffers_are_gone<Q: Queue>(b: &mut Bench<'_, Q>) -> Result<(), String> {
    let id = b.with(&[1; 64])?;
    b.device.free(id);
    b.device.free(id);
    b.device.free(BufferId(u64::MAX));
    let mut data = [0; 4];
    expect_misuse(b.device.read(id, 0, &mut data), "reading a freed buffer")?;
    expect_misuse(b.device.write(id, 0, &data), "writing a freed buffer")?;
    let plan = fixture_plan(vec![b.step((Role::X, Role::Y), 1, 1, 0)]);
    let other = b.with(&[1; 64])?;
    ensure(other != id, || "a freed buffer's handle came back".into())?;
    let operands = Operands::new().with(Role::X, id, 0).with(Role::Y, other, 0);
    expect_misuse(b.device.run(&plan, &operands, PATIENCE), "running on a freed buffer")
}

fn ranges_are_checked<Q: Queue>(b: &mut Bench<'_, Q>) -> Result<(), String> {
    let id = b.with(&[7; 100])?;
    for (offset, len) in [(0u64, 101usize), (100, 1), (101, 0), (u64::MAX, 1), (u64::MAX - 1, 4), (99, 2)] {
        let mut data = vec![0; len];
        expect_misuse(b.device.write(id, offset, &data), &format!("writing {len} bytes at {offset} of 100"))?;
        expect_misuse(
            b.device.read(id, offset, &mut data),
            &format!("reading {len} bytes at {offset} of 100"),
        )?;
    }
    b.device.write(id, 100, &[]).map_err(text)?;
    same(&b.read(id, 100)?, &[7; 100], "after refused writes")
}

fn absurd_sizes<Q: Queue>(b: &mut Bench<'_, Q>) -> Result<(), String> {
    for bytes in [u64::MAX, u64::MAX / 2, 1 << 60, 1 << 50] {
        let result = b.device.alloc(bytes);
        let right = matches!(result, Err(DeviceError::OutOfMemory { requested, .. }) if requested == bytes);
        ensure(right, || format!("{bytes} bytes: expected out of memory, got {result:?}"))?;
    }
    ensure(b.device.alloc(0).is_err(), || "a buffer of 0 bytes was made".into())?;
    let content = b.random.bytes(1000);
    let id = b.with(&content)?;
    same(&b.read(id, 1000)?, &content, "a buffer after refusals")
}

fn plans_are_checked<Q: Queue>(b: &mut Bench<'_, Q>) -> Result<(), String> {
    let (x, y) = (b.with(&[1; 4096])?, b.with(&[2; 4096])?);
    let operands = Operands::new().with(Role::X, x, 0).with(Role::Y, y, 0);
    let good = b.step((Role::X, Role::Y), 1024, 1, 0);
    let plan = |edit: &dyn Fn(&mut Launch)| {
        let mut launch = good.clone();
        edit(&mut launch);
        fixture_plan(vec![launch])
    };
    let unknown = plan(&|l| l.kernel = "no_such_kernel".into());
    for (call, result) in [
        ("prepare", b.device.prepare(&unknown)),
        ("run", b.device.run(&unknown, &operands, PATIENCE).map(drop)),
        ("time", b.device.time(&unknown, &[operands], 1, PATIENCE).map(drop)),
    ] {
        let right = matches!(&result, Err(DeviceError::Unsupported(text)) if text.contains("no_such_kernel"));
        ensure(right, || format!("{call} with an unknown kernel answered {result:?}"))?;
    }
    let alignment = b.device.caps().offset_alignment;
    let mut bad = vec![
        ("too few params", plan(&|l| l.params.truncate(3))),
        ("no params", plan(&|l| l.params.clear())),
        ("too many params", plan(&|l| l.params.push(0))),
        ("too few bindings", plan(&|l| l.bindings.truncate(1))),
        ("an empty grid", plan(&|l| l.grid[0] = 0)),
        ("an empty grid in z", plan(&|l| l.grid[2] = 0)),
        ("a first group that overflows", plan(&|l| l.params[0] = u32::MAX)),
        ("an operand that is not bound", plan(&|l| l.bindings[0].role = Role::Bias)),
        ("a range past the end", plan(&|l| l.bindings[1].size = 4097)),
        ("an offset past the end", plan(&|l| l.bindings[1].offset = alignment)),
        ("an offset that overflows", plan(&|l| l.bindings[1].offset = u64::MAX - alignment + 1)),
        ("an empty range", plan(&|l| l.bindings[0].size = 0)),
    ];
    if alignment > 1 {
        let crooked = plan(&|l| {
            l.bindings[0].offset = 1;
            l.bindings[0].size = 4;
        });
        bad.push(("an unaligned offset", crooked));
    }
    for (what, plan) in bad {
        expect_misuse(b.device.run(&plan, &operands, PATIENCE), what)?;
        expect_misuse(b.device.time(&plan, &[operands], 1, PATIENCE), what)?;
    }
    expect_misuse(b.device.time(&fixture_plan(vec![good]), &[], 1, PATIENCE), "timing without operands")?;
    same(&b.read(y, 4096)?, &[2; 4096], "after refused plans")?;
    let timing = b.device.run(&fixture_plan(vec![]), &operands, PATIENCE).map_err(text)?;
    ensure(timing.launches.is_empty(), || format!("an empty plan took {timing:?}"))
}

fn kernels_compute<Q: Queue>(b: &mut Bench<'_, Q>) -> Result<(), String> {
    for count in [1usize, 63, 64, 65, 1000, 100_003] {
        let source = b.random.words(count);
        let (mul, add) = (b.random.next() as u32, b.random.next() as u32);
        // Operands at an offset inside larger buffers.
        let shift = 4 * b.device.caps().offset_alignment as usize;
        let x = b.with(&[vec![0x11; shift], to_bytes(&source)].concat())?;
        let y = b.with(&vec![0xa5; 4 * count + 2 * shift])?;
        let operands = Operands::new().with(Role::X, x, shift as u64).with(Role::Y, y, shift as u64);
        let plan = fixture_plan(vec![b.step((Role::X, Role::Y), count as u32, mul, add)]);
        b.device.run(&plan, &operands, PATIENCE).map_err(text)?;
        let result: Vec<u32> = source.iter().map(|v| v.wrapping_mul(mul).wrapping_add(add)).collect();
        let expected = [vec![0xa5; shift], to_bytes(&result), vec![0xa5; shift]].concat();
        same(&b.read(y, expected.len())?, &expected, &format!("{count} words"))?;
    }
    Ok(())
}

/// A chain of `links` steps Y = f(X), W = f(Y), Y = f(W), ... with its host result.
fn chain<Q: Queue>(
    b: &mut Bench<'_, Q>,
    links: usize,
    count: usize,
) -> Result<(Vec<Launch>, Operands, BufferId, Vec<u8>), String> {
    let mut model = b.random.words(count);
    let (x, y, w) = (b.with(&to_bytes(&model))?, b.alloc(4 * count)?, b.alloc(4 * count)?);
    let operands = Operands::new().with(Role::X, x, 0).with(Role::Y, y, 0).with(Role::Workspace, w, 0);
    let (mut launches, mut source) = (Vec::new(), Role::X);
    for link in 0..links {
        let target = if link % 2 == 0 { Role::Y } else { Role::Workspace };
        let (mul, add) = (b.random.next() as u32 | 1, b.random.next() as u32);
        let launch = b.step((source, target), count as u32, mul, add);
        launches.push(launch);
        model.iter_mut().for_each(|v| *v = v.wrapping_mul(mul).wrapping_add(add));
        source = target;
    }
    Ok((launches, operands, if source == Role::Y { y } else { w }, to_bytes(&model)))
}

fn dependent_launches<Q: Queue>(b: &mut Bench<'_, Q>) -> Result<(), String> {
    for links in [2, 33] {
        let (launches, operands, result, expected) = chain(b, links, 200_000)?;
        let timing = b.device.run(&fixture_plan(launches), &operands, PATIENCE).map_err(text)?;
        ensure(timing.launches.len() == links, || {
            format!("{} times for {links} launches", timing.launches.len())
        })?;
        same(&b.read(result, expected.len())?, &expected, &format!("a chain of {links}"))?;
        b.free_all();
    }
    Ok(())
}

fn cuts_change_nothing<Q: Queue>(b: &mut Bench<'_, Q>) -> Result<(), String> {
    let (launches, operands, result, expected) = chain(b, 4, 100_000)?;
    for round in 0..4 {
        b.device.write(result, 0, &vec![0xa5; expected.len()]).map_err(text)?;
        let plan = fixture_plan(b.cut(&launches));
        b.device.run(&plan, &operands, PATIENCE).map_err(text)?;
        same(
            &b.read(result, expected.len())?,
            &expected,
            &format!("cut {round}, {} parts", plan.launches.len()),
        )?;
    }
    Ok(())
}

fn runs_repeat<Q: Queue>(b: &mut Bench<'_, Q>) -> Result<(), String> {
    let y = b.alloc(4 * FIXTURE_THREADS as usize)?;
    let operands = Operands::new().with(Role::Y, y, 0);
    let plan = fixture_plan(vec![spin(b.fixture, 1000)]);
    let mut first: Option<Vec<u8>> = None;
    for run in 0..5u8 {
        let poison = vec![run.wrapping_mul(77); 4 * FIXTURE_THREADS as usize];
        b.device.write(y, 0, &poison).map_err(text)?;
        b.device.run(&plan, &operands, PATIENCE).map_err(text)?;
        let found = b.read(y, poison.len())?;
        ensure(found != poison, || "the kernel wrote nothing".into())?;
        same(&found, first.get_or_insert(found.clone()), &format!("run {run}"))?;
    }
    Ok(())
}

fn timing_is_sane<Q: Queue>(b: &mut Bench<'_, Q>) -> Result<(), String> {
    let (launches, operands, result, expected) = chain(b, 3, 50_000)?;
    let plan = fixture_plan(launches);
    let start = Instant::now();
    let timing = b.device.run(&plan, &operands, PATIENCE).map_err(text)?;
    let wall = start.elapsed();
    // Two clocks: allow for a tenth and a millisecond between them.
    ensure(timing.total <= wall.mul_f64(1.1) + Duration::from_millis(1), || {
        format!("{timing:?} within {wall:?}")
    })?;
    ensure(timing.submits >= 1 && timing.launches.len() == 3, || format!("{timing:?}"))?;
    let longest = timing.launches.iter().max().copied().unwrap_or_default();
    ensure(longest <= timing.total, || format!("a launch is longer than the whole: {timing:?}"))?;
    for repeats in [0, 1, 7, 70] {
        let times = b.device.time(&plan, &[operands, operands], repeats, PATIENCE).map_err(text)?;
        let each = &times.each;
        ensure(each.len() == repeats as usize, || format!("{} times for {repeats} repeats", each.len()))?;
        ensure(each.iter().all(|time| !time.is_zero()), || "a run took no time at all".into())?;
        ensure(repeats == 0 || !times.mean.is_zero(), || format!("{times:?}"))?;
    }
    same(&b.read(result, expected.len())?, &expected, "the result after timed runs")?;
    ten_times_the_work_takes_longer(b)
}

/// Compares the shortest runs, as others may have waited for a processor. On a busy machine all runs of a round may
/// have waited; further rounds are then measured. A clock that is wrong is wrong in each round.
fn ten_times_the_work_takes_longer<Q: Queue>(b: &mut Bench<'_, Q>) -> Result<(), String> {
    let y = b.alloc(4 * FIXTURE_THREADS as usize)?;
    let operands = Operands::new().with(Role::Y, y, 0);
    // Mesa's software rasteriser ends loops after 65535 rounds.
    let plans = [6_000, 60_000].map(|rounds| fixture_plan(vec![spin(b.fixture, rounds)]));
    let mut shortest = [Duration::MAX; 2];
    for _ in 0..ROUNDS_OF_TIMES {
        for (plan, shortest) in plans.iter().zip(&mut shortest) {
            let times = b.device.time(plan, &[operands], 9, PATIENCE).map_err(text)?.each;
            *shortest = times.into_iter().fold(*shortest, Duration::min);
        }
        if shortest[1] > shortest[0] * 3 {
            return Ok(());
        }
    }
    Err(format!("6000 rounds took {:?}, 60000 took {:?}", shortest[0], shortest[1]))
}
