//! Verifying and timing one device, in guarded children and within a time.

use crate::devices::launcher;
use crate::progress::Progress;
use crate::verify::{Watch, fresh_seed};
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wave32_report::compare::cost_model;
use wave32_report::sample::{benches, checks, hang_after, scaled_to};
use wave32_report::schema::{Bench, BenchRow, Check, Class, Device, Part, State};
use wave32_solve::Policy;
use wave32_verify::bench::{self, GuardedMeter, Settings};
use wave32_verify::campaign::{self, MaxFlops, Options};
use wave32_verify::protocol;
use wave32_verify::supervisor::{Limits, StartError, available_bytes};

/// Time for a driver to open a device.
const STARTUP: Duration = Duration::from_secs(30);

/// A time that ends by itself, and with the user's wish to stop.
struct Slot {
    over: Arc<AtomicBool>,
    done: Arc<AtomicBool>,
}

impl Slot {
    fn start(time: Duration, stop: &Arc<AtomicBool>) -> Result<Self> {
        let slot = Self { over: Arc::default(), done: Arc::default() };
        let (over, done, stop) = (Arc::clone(&slot.over), Arc::clone(&slot.done), Arc::clone(stop));
        let end = Instant::now() + time;
        let watch = move || {
            while !done.load(Ordering::SeqCst) && !over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
                if Instant::now() >= end || stop.load(Ordering::SeqCst) {
                    over.store(true, Ordering::SeqCst);
                }
            }
        };
        std::thread::Builder::new().spawn(watch).map_err(crate::ending::NoThread)?;
        Ok(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.done.store(true, Ordering::SeqCst);
    }
}

fn limits(class: Class, time: Duration) -> Limits {
    let cap = available_bytes().map_or(u64::MAX, |bytes| bytes / 5 * 4);
    Limits { deadline: hang_after(class, time), startup: STARTUP.min(time.mul_f64(0.6)), memory_cap: cap }
}

/// How a part ended that ran `left` problems too few.
fn ended(left: usize, of: usize, stop: &AtomicBool) -> (State, Option<String>) {
    match (left, stop.load(Ordering::SeqCst)) {
        (0, _) => (State::Done, None),
        (_, true) => (State::Stopped, Some(format!("{left} of {of} problems were not run"))),
        (_, false) => (State::Cut, Some(format!("{left} of {of} problems were not run for want of time"))),
    }
}

/// Verifies a sample of problems; `shown` is the name that the report has for the device.
pub fn verify(
    device: &protocol::Device,
    shown: &str,
    class: Class,
    quick: bool,
    time: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<(Part, Check)> {
    let (begin, slot) = (Instant::now(), Slot::start(time, stop)?);
    let (selection, items) = checks(quick)?;
    let options = Options {
        launcher: launcher()?,
        limits: limits(class, time),
        seed: fresh_seed(),
        repeat: 1,
        all_solvers: false,
        policy: Policy::from_env()?,
        max_flops: MaxFlops::Limit(scaled_to(class)),
        jobs: 1,
        shrink_time: Duration::ZERO,
        repro_flags: String::new(),
    };
    let mut watch = Watch::new(false);
    let report = campaign::run(&items, std::slice::from_ref(device), &options, &mut watch, &slot.over);
    watch.progress.bar.finish_and_clear();
    let check = Check::of(shown, &selection, &report);
    let (mut state, mut note) = ended(check.not_run, check.problems, stop);
    if let Some(first) =
        check.failures.iter().find(|f| f.verdict == protocol::Verdict::Hang).or(check.failures.first())
    {
        state = if first.verdict == protocol::Verdict::Hang { State::Hung } else { State::Failed };
        let rest = note.map_or("the other problems ran".into(), |note| note);
        let failed = check.counts()[1];
        note = Some(format!(
            "{failed} failed: {} at {}: {}; {rest}",
            first.verdict.name(),
            first.line,
            first.detail
        ));
    }
    let name = format!("verify {shown}");
    Ok((Part { name, state, seconds: begin.elapsed().as_secs_f64(), note }, check))
}

/// Times the suite `shapes`.
pub fn bench(
    device: &Device,
    quick: bool,
    time: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<(Part, Option<Bench>)> {
    let (begin, slot) = (Instant::now(), Slot::start(time, stop)?);
    let name = format!("bench {}", device.id);
    let part = |state, note| Part { name: name.clone(), state, seconds: begin.elapsed().as_secs_f64(), note };
    let selection = benches(device.class, quick)?;
    let (launcher, limits) = (launcher()?, limits(device.class, time));
    let settings = Settings { policy: Policy::from_env()?, deadline: limits.deadline, ..Settings::default() };
    let mut meter = match GuardedMeter::open(&launcher, &device.id, limits, &slot.over) {
        Ok(meter) => meter,
        Err(StartError::Interrupted) => {
            let (state, note) = ended(selection.cases.len(), selection.cases.len(), stop);
            return Ok((part(state, note), None));
        }
        Err(error) => return Ok((part(State::Failed, Some(error.to_string())), None)),
    };
    let progress = Progress::new(false, "{prefix:<10} {bar:30} {pos}/{len}  {eta} left  {wide_msg}");
    progress.bar.set_length(selection.cases.len() as u64);
    progress.bar.set_prefix(name.clone());
    if !progress.shown {
        progress.say(&format!("{name}: {} problems on {}", selection.cases.len(), device.name));
    }
    let report = bench::run(&mut meter, &selection, &settings, |_, done| {
        progress.bar.set_position(done as u64);
        progress.bar.set_message(selection.cases.get(done).map_or(String::new(), |c| c.label.clone()));
        !slot.over.load(Ordering::SeqCst)
    });
    progress.bar.finish_and_clear();
    let model = |line: &str| Some(cost_model(&line.parse().ok()?, device.caps.as_ref()?)?.1);
    let modelled = |row: bench::Row| BenchRow {
        model_ms: if device.is_modelled() { model(&row.line) } else { None },
        row,
    };
    let bench = Bench {
        device: device.id.clone(),
        clock: report.subject.clock,
        rates: report.subject.rates.filter(|_| device.is_modelled()),
        problems: selection.cases.len(),
        not_run: selection.cases.len() - report.rows.len(),
        too_large: report.too_large,
        rows: report.rows.into_iter().map(modelled).collect(),
    };
    let (mut state, mut note) = ended(bench.not_run, bench.problems, stop);
    // A problem that a card has no memory for is no failure of the card.
    let error = |row: &BenchRow| row.row.error.clone().filter(|text| bench::ended_a_child(text));
    if let Some((row, text)) = bench.rows.iter().find_map(|row| Some((row, error(row)?))) {
        state = if text.starts_with(protocol::Verdict::Hang.name()) { State::Hung } else { State::Failed };
        let rest = note.map_or("the other problems ran".into(), |note| note);
        note = Some(format!("{text}, at {} {}; {rest}", row.row.label, row.row.direction));
    }
    Ok((part(state, note), Some(bench)))
}
