//! Walks the problems: every solver that MIOpen offers, MIOpen's own choice, then ways around what failed.

use crate::known::{Key, Known, KnownError, Row, Store};
use crate::lane::Lane;
use crate::protocol::{Attempt, Finding, Identity, SolverVerdict, Way};
use crate::quarantine::Quarantine;
use crate::rewrite;
use crate::solvers;
use crate::superseded::{QUARANTINE, Superseded, TABLES, superseded};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use wave32_problem::{ConvProblem, ConvSpec, Epilogue, Rewrite};
use wave32_verify::guard::StartError;

pub use crate::lane::{Children, Stop};

/// The solver's name in rows of MIOpen's own choice.
pub const FIND: &str = "find";

/// Shapes in a row that no rewriting could help with, after which a solver gets no more of them: each may cost a
/// whole deadline.
const HOPELESS: u32 = 3;

/// How a campaign is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The guarded children.
    pub children: Children,
    /// The folder of tables and quarantine.
    pub state: PathBuf,
    /// Seed of the operands.
    pub seed: u64,
    /// Ask for every solver by name, not only where Find fails.
    pub all_solvers: bool,
    /// Try ways around what fails.
    pub rewrites: bool,
    /// Try again what the table knows.
    pub again: bool,
}

/// One problem to probe.
#[derive(Debug, Clone, Serialize)]
pub struct ProbeShape {
    /// Its name for people.
    pub label: String,
    /// The plain problem.
    #[serde(skip)]
    pub problem: ConvProblem,
    /// Its line.
    pub line: String,
}

impl ProbeShape {
    /// The problem as MIOpen is asked for it: plain, one pass, without bias and activation.
    pub fn new(label: &str, problem: &ConvProblem) -> Option<Self> {
        let bare = ConvSpec { epilogue: Epilogue::default(), ..problem.spec().clone() };
        let problem = ConvProblem::new(bare).ok()?.to_plain();
        Some(Self { label: label.into(), line: problem.to_string(), problem })
    }
}

/// Something tried, now or by an earlier probe.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tried {
    /// What came of it.
    #[serde(flatten)]
    pub row: Row,
    /// It was not tried again.
    pub remembered: bool,
}

/// What a campaign brought.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What it holds for.
    pub identity: Identity,
    /// The table's file.
    pub table: PathBuf,
    /// The problems, in order.
    pub shapes: Vec<ProbeShape>,
    /// All that is known of them.
    pub tried: Vec<Tried>,
    /// What is kept of MIOpens that are not here any more.
    pub superseded: Vec<Superseded>,
    /// Why the rest was not tried.
    pub stopped: Option<String>,
    /// The user stopped it.
    pub interrupted: bool,
    /// Seconds it took.
    pub elapsed_s: f64,
    /// Seed of the operands.
    pub seed: u64,
}

impl Report {
    /// True where all was tried and nothing failed.
    pub fn is_clean(&self) -> bool {
        self.stopped.is_none() && !self.tried.iter().any(|t| t.row.finding.verdict.is_failure())
    }
}

/// Why there is no report at all.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// MIOpen or a HIP device is not here, or does not open.
    #[error("{0}")]
    NotHere(#[from] StartError),
    /// The table.
    #[error(transparent)]
    Known(#[from] KnownError),
    /// The folder of all that is kept.
    #[error("cannot make {path}: {source}; name another with --state")]
    State {
        /// The folder.
        path: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The quarantine.
    #[error("cannot record what is being tried in {path}, and without that nothing is tried: {source}")]
    Quarantine {
        /// The folder.
        path: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// Hears how a campaign goes on.
pub trait Observer {
    /// The card and MIOpen that are probed.
    fn opened(&mut self, identity: &Identity, shapes: usize);
    /// An attempt begins.
    fn attempt(&mut self, shape: &ProbeShape, key: &Key);
    /// Something was tried or remembered.
    fn tried(&mut self, shape: &ProbeShape, tried: &Tried);
    /// A shape is done, as far as its own solvers go.
    fn shape(&mut self);
}

/// Probes the shapes. Ends early when `stop` is set or the device is lost, with what was found till then.
///
/// # Errors
/// [`ProbeError`] where nothing could be probed, or nothing recorded.
pub fn run(
    shapes: Vec<ProbeShape>,
    options: &Options,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Report, ProbeError> {
    let begin = Instant::now();
    // MIOpen's own records of this run: apart from the user's, which we neither trust nor change. What it compiles
    // is kept for the next probe.
    let private = options.state.join(format!("run-{}", std::process::id()));
    let cache = options.state.join("miopen-cache");
    let made = std::fs::create_dir_all(&private).and_then(|()| std::fs::create_dir_all(&cache));
    made.map_err(|source| ProbeError::State { path: options.state.display().to_string(), source })?;
    let _removed = Removed(private.clone());
    let mut children = options.children.clone();
    children.launcher.env.extend([
        ("MIOPEN_USER_DB_PATH".to_string(), Some(private.into_os_string())),
        ("MIOPEN_CUSTOM_CACHE_DIR".to_string(), Some(cache.into_os_string())),
        ("MIOPEN_DEBUG_DISABLE_FIND_DB".to_string(), None),
    ]);
    let mut lane = Lane::new(&children, stop);
    let identity = lane.open()?;
    observer.opened(&identity, shapes.len());
    let store = Store::new(&options.state.join(TABLES), &identity);
    let folder = options.state.join(QUARANTINE);
    let failed = |source| ProbeError::Quarantine { path: folder.display().to_string(), source };
    let quarantine = Quarantine::open(&folder).map_err(failed)?;
    let mut known = store.read()?;
    for (record, file) in quarantine.left_behind().map_err(failed)? {
        if !record.identity.holds_for(&identity) {
            continue;
        }
        let text = "the probe or the machine went down while this ran; --again tries it once more";
        let id = solvers::all().find(|s| s.name == record.key.solver).map(|s| s.id);
        let finding = Finding::of(SolverVerdict::Down, text);
        known = store.merge(&[Row {
            key: record.key,
            id,
            worst: SolverVerdict::Down,
            finding,
            when: record.when,
        }])?;
        file.clear().map_err(failed)?;
    }
    let mut campaign = Campaign {
        options,
        observer,
        lane,
        store,
        quarantine,
        known,
        identity,
        tried: Vec::new(),
        fresh: HashSet::new(),
    };
    let ended = campaign.all(&shapes);
    let (interrupted, stopped) = match ended {
        Ok(()) => (false, None),
        Err(End::Stop(Stop::Interrupted)) => (true, Some("interrupted".to_string())),
        Err(End::Stop(Stop::GivenUp(text))) => {
            (false, Some(format!("the device does not open any more: {text}")))
        }
        Err(End::Error(error)) => return Err(error),
    };
    let Campaign { store, tried, identity, .. } = campaign;
    Ok(Report {
        superseded: superseded(&options.state, std::slice::from_ref(&identity)),
        identity,
        table: store.path().to_path_buf(),
        shapes,
        tried,
        stopped,
        interrupted,
        elapsed_s: begin.elapsed().as_secs_f64(),
        seed: options.seed,
    })
}

/// Opens MIOpen, as a probe would, and says what it and the card are.
///
/// # Errors
/// The library does not exist, or does not open.
pub fn identify(children: &Children, stop: &AtomicBool) -> Result<Identity, StartError> {
    Lane::new(children, stop).open()
}

/// A folder that goes when this does.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Why a walk ended early.
enum End {
    Stop(Stop),
    Error(ProbeError),
}

impl From<Stop> for End {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<KnownError> for End {
    fn from(error: KnownError) -> Self {
        Self::Error(error.into())
    }
}

struct Campaign<'a> {
    options: &'a Options,
    observer: &'a mut dyn Observer,
    lane: Lane<'a>,
    store: Store,
    quarantine: Quarantine,
    known: Known,
    identity: Identity,
    tried: Vec<Tried>,
    /// Tried in this run: `--again` does not mean twice.
    fresh: HashSet<Key>,
}

/// A solver and how it is reached.
#[derive(Clone)]
struct Target {
    name: String,
    id: Option<u64>,
    way: Way,
}

impl Campaign<'_> {
    fn all(&mut self, shapes: &[ProbeShape]) -> Result<(), End> {
        let mut failed = Vec::new();
        for (index, shape) in shapes.iter().enumerate() {
            for (target, verdict) in self.solvers(shape)? {
                failed.push((index, target, verdict));
            }
            self.observer.shape();
        }
        if !self.options.rewrites {
            return Ok(());
        }
        let mut hopeless: HashMap<String, u32> = HashMap::new();
        for (index, target, verdict) in failed {
            // What is wrong everywhere may well come out right once in another shape: that proves nothing.
            if verdict == SolverVerdict::Wrong && !self.works_somewhere(&target.name) {
                continue;
            }
            let count = hopeless.entry(target.name.clone()).or_default();
            if *count < HOPELESS {
                *count = if self.around(&shapes[index], &target)? { 0 } else { *count + 1 };
            }
        }
        Ok(())
    }

    /// Every solver on a shape as it is; those that failed, and how.
    fn solvers(&mut self, shape: &ProbeShape) -> Result<Vec<(Target, SolverVerdict)>, End> {
        let mut failed = Vec::new();
        let mut seen: HashSet<String> = HashSet::new();
        self.offered(shape, &mut seen, &mut failed)?;
        let find = Target { name: FIND.into(), id: None, way: Way::Find };
        let verdict = self.attempt(shape, &find, &[])?;
        if verdict.is_failure() {
            failed.push((find, verdict));
        } else if verdict == SolverVerdict::Works {
            // Find leaves what it measured in the children's own find-db: now MIOpen offers all that apply.
            self.offered(shape, &mut seen, &mut failed)?;
        }
        if !verdict.is_failure() && !self.options.all_solvers {
            return Ok(failed);
        }
        let direction = shape.problem.spec().direction;
        for solver in solvers::worth_asking(direction, &self.identity.target) {
            if seen.insert(solver.name.to_string()) {
                let way = Way::FindOnly(solver.name.to_string());
                let target = Target { name: solver.name.into(), id: Some(solver.id), way };
                let verdict = self.attempt(shape, &target, &[])?;
                if verdict.is_failure() {
                    failed.push((target, verdict));
                }
            }
        }
        Ok(failed)
    }

    /// The solvers that MIOpen offers now and that were not tried yet.
    fn offered(
        &mut self,
        shape: &ProbeShape,
        seen: &mut HashSet<String>,
        failed: &mut Vec<(Target, SolverVerdict)>,
    ) -> Result<(), End> {
        // A refusal to list is no news: Find will say it again, of the same shape.
        for offer in self.lane.solutions(&shape.problem)?.unwrap_or_default() {
            let target =
                Target { name: solvers::name(offer.id), id: Some(offer.id), way: Way::Immediate(offer.id) };
            if seen.insert(target.name.clone()) {
                let verdict = self.attempt(shape, &target, &[])?;
                if verdict.is_failure() {
                    failed.push((target, verdict));
                }
            }
        }
        Ok(())
    }

    /// True where a solver gave a right result for any shape as it is.
    fn works_somewhere(&self, solver: &str) -> bool {
        let works = |row: &Row| row.key.solver == solver && row.key.rewrite.is_empty() && row.is_safe();
        self.known.rows.iter().any(works)
    }

    /// The first rewriting that makes the solver safe for the shape, if any; true where there is one.
    fn around(&mut self, shape: &ProbeShape, target: &Target) -> Result<bool, End> {
        for rewrite in rewrite::candidates(&shape.problem) {
            if self.attempt(shape, target, &rewrite)? == SolverVerdict::Works {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn attempt(
        &mut self,
        shape: &ProbeShape,
        target: &Target,
        rewrite: &[Rewrite],
    ) -> Result<SolverVerdict, End> {
        let key = Key { problem: shape.line.clone(), solver: target.name.clone(), rewrite: rewrite.to_vec() };
        let again = self.options.again && !self.fresh.contains(&key);
        if let Some(row) = self.known.get(&key).filter(|_| !again) {
            let tried = Tried { row: row.clone(), remembered: true };
            let verdict = tried.row.finding.verdict;
            if self.tried.iter().all(|t| t.row.key != key) {
                self.observer.tried(shape, &tried);
                self.tried.push(tried);
            }
            return Ok(verdict);
        }
        self.observer.attempt(shape, &key);
        let job = Attempt {
            spec: shape.problem.spec().clone(),
            rewrite: rewrite.to_vec(),
            way: target.way.clone(),
            seed: self.options.seed,
            memory_cap: self.options.children.limits.memory_cap,
        };
        let when = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let failed = |source| {
            End::Error(ProbeError::Quarantine { path: self.options.state.display().to_string(), source })
        };
        let in_flight = self.quarantine.enter(&self.identity, &key, when).map_err(failed)?;
        let finding = self.lane.attempt(&job);
        let row = finding.map(|finding| Row {
            key: key.clone(),
            id: target.id,
            worst: finding.verdict,
            finding,
            when,
        });
        if let Ok(row) = &row {
            // The result is on the disk before the record of the attempt goes.
            self.known = self.store.merge(std::slice::from_ref(row))?;
        }
        in_flight.clear().map_err(failed)?;
        let mut row = row?;
        if let Some(merged) = self.known.get(&key) {
            row.worst = merged.worst;
        }
        let verdict = row.finding.verdict;
        let tried = Tried { row, remembered: false };
        self.observer.tried(shape, &tried);
        self.tried.push(tried);
        self.fresh.insert(key);
        Ok(verdict)
    }
}
