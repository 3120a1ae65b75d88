//! [`Plan`]: what to launch, as data. The same plan runs on every GPU device.

use crate::hazards::{Access, Hazards};
use serde::{Deserialize, Serialize};
use wave32_params::variants::Variant;
use wave32_params::{Kernel, direct, igemm, reduce, variants, winograd_output};
use wave32_problem::{ConvProblem, Direction, MatmulProblem, Problem};

/// Kernels that add what lies where they store if this is among their flags, word 1 of their parameters.
const SUMMING: [&str; 4] = [
    <igemm::Kernel as Kernel>::SOURCE,
    <direct::Kernel as Kernel>::SOURCE,
    <reduce::Kernel as Kernel>::SOURCE,
    <winograd_output::Kernel as Kernel>::SOURCE,
];
const FLAG_SUM: u32 = igemm::FLAG_SUM;
const _: () = assert!(direct::FLAG_SUM == FLAG_SUM && reduce::FLAG_SUM == FLAG_SUM);
const _: () = assert!(winograd_output::FLAG_SUM == FLAG_SUM);

/// Does a launch write the result of a forward pass there?
fn stores_y(binding: &Binding) -> bool {
    binding.role == Role::Y && binding.access.writes()
}

/// Bytes of a part of a channel's moments.
const STATISTICS_BYTES: u64 = 16;

/// Is it a tile of `igemm` whose operands' LDS has room for the moments? As the kernel's `STATISTICS` says.
fn keeps_moments(variant: &Variant) -> bool {
    let is_packed = || variant.define("MODE") != 0 && !variant.is_wide() && !variant.is_matrix();
    let columns = || variant.define("BN") / variant.define("TN") * if variant.keeps_f16() { 2 } else { 1 };
    variant.source == igemm::Kernel::SOURCE && is_packed() && variant.define("BK") >= columns()
}

/// Which tensor of the problem (in the caller's own terms) a launch binds: of a convolution x, w, y and a bias; of a product
/// of matrices a, b, the result and what is added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Role {
    /// x or dx; a.
    X,
    /// w or dw; b.
    W,
    /// y or dy; the result of a product.
    Y,
    /// Bias of a forward pass; what is added to a product.
    Bias,
    /// Scratch memory, [`Plan::workspace_bytes`] long; its content before and after means nothing.
    Workspace,
    /// Moments of the result's channels: [`Plan::with_statistics`].
    Statistics,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 6] = [Self::X, Self::W, Self::Y, Self::Bias, Self::Workspace, Self::Statistics];
}

/// A buffer range bound to one kernel argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Binding {
    /// Which tensor.
    pub role: Role,
    /// First byte of the range; a multiple of the device's offset alignment.
    pub offset: u64,
    /// Bytes of the range; at most the device's `max_range`.
    pub size: u64,
    /// What the launch does with it.
    pub access: Access,
}

/// One kernel launch.
///
/// Kernel contract: `bindings[i]` is storage buffer `i` (Vulkan set 0 binding `i`, HIP pointer
/// argument `i`); `params` are 32-bit words in order (Vulkan push constants, HIP by value after the
/// pointers). `params[0]` is always the first workgroup's x index, so that a device may cut a
/// launch along x into several (see [`Launch::cut`]); the planner sets it to 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// Kernel variant, by its name in the variants table.
    pub kernel: String,
    /// Workgroups along x, y, z.
    pub grid: [u32; 3],
    /// Scalar arguments.
    pub params: Vec<u32>,
    /// Buffer arguments.
    pub bindings: Vec<Binding>,
    /// FLOP of this launch, tile padding left out: for time budgets and reports.
    pub flops: u64,
    /// Bytes it has to move through memory at least.
    pub bytes: u64,
    /// What the cost model takes it for.
    pub model: Model,
}

/// What the cost model takes a launch for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Model {
    /// Each workgroup makes a tile of results, in so many reduction steps.
    Tiles {
        /// Steps, the tile's own depth included.
        depth: u64,
    },
    /// Threads that each make their results alone.
    Scalar {
        /// Multiply-adds, weighted by what comes with each.
        multiply_adds: u64,
        /// What comes with each result instead, as multiply-adds. The table of rates does not ask: its rates were found with it.
        #[serde(default)]
        beside: u64,
    },
    /// Workgroups that read the large operand once and keep their sums in registers.
    Rows {
        /// Multiply-adds, padding of the tiles counted.
        multiply_adds: u64,
    },
    /// A pass over memory.
    Stream {
        /// Bytes, weighted by how they are accessed.
        bytes: u64,
    },
}

impl Model {
    /// The same of a scalar kernel with `work` beside its multiply-adds.
    pub fn beside(self, work: f64) -> Self {
        match self {
            Self::Scalar { multiply_adds, .. } => Self::Scalar { multiply_adds, beside: work as u64 },
            other => other,
        }
    }
}

impl Launch {
    /// The part of this launch that starts at workgroup `x` and is `count` workgroups wide.
    pub fn cut(&self, x: u32, count: u32) -> Self {
        let mut part = self.clone();
        part.params[0] = self.params[0] + x;
        part.grid[0] = count;
        let share = |total: u64| (total as f64 * f64::from(count) / f64::from(self.grid[0])) as u64;
        (part.flops, part.bytes) = (share(self.flops), share(self.bytes));
        part
    }
}

/// What a plan makes of the filters before it uses them: packed or transformed ones.
///
/// Its launches come first in the plan. They read the filters and nothing else, and write the first bytes of the workspace,
/// which no later launch writes. So who knows that the filters are as they were may keep those bytes, and skip the launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Prepared {
    /// So many launches.
    pub launches: usize,
    /// So many bytes of the workspace, a multiple of 256; what comes later begins behind them.
    pub bytes: u64,
}

/// How to compute one problem: printable, serialisable, free of any device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Plan {
    /// The problem as the caller gave it.
    pub problem: Problem,
    /// Name of the solver that made the plan.
    pub solver: &'static str,
    /// The solver's choice of variant and split, for people.
    pub config: String,
    /// Chosen since it was measured to be the best ([`crate::Tuned`]).
    pub tuned: bool,
    /// Scratch bytes the launches need.
    pub workspace_bytes: u64,
    /// In order.
    pub launches: Vec<Launch>,
    /// What of it prepares the filters.
    pub prepared: Option<Prepared>,
}

impl Plan {
    /// The same for `result + what lies in the result's place` (oneDNN's post-op sum), before a bias and an activation; none
    /// where a kernel cannot do that, or the pass is no forward one.
    #[must_use]
    pub fn summing(&self) -> Option<Self> {
        self.problem.conv().filter(|conv| conv.spec().direction == Direction::Forward)?;
        let mut plan = self.clone();
        for launch in plan.launches.iter_mut().filter(|launch| launch.bindings.iter().any(stores_y)) {
            variants::find(&launch.kernel).filter(|variant| SUMMING.contains(&variant.source.as_str()))?;
            launch.params[1] |= FLAG_SUM;
        }
        Some(plan)
    }

    /// The same of a forward pass, for a batch norm behind it: the kernel that stores the result also writes the moments of each
    /// channel in parts, \[channel\]\[part\] of four f32: a count, their mean, the sum of squares about it, 0. None where a
    /// kernel cannot do that.
    #[must_use]
    pub fn with_statistics(&self) -> Option<Self> {
        let conv = self.problem.conv().filter(|conv| conv.spec().direction == Direction::Forward)?;
        let mut plan = self.clone();
        let mut storing = plan.launches.iter_mut().filter(|launch| launch.bindings.iter().any(stores_y));
        let (launch, None) = (storing.next()?, storing.next()) else { return None };
        variants::find(&launch.kernel).filter(|variant| keeps_moments(variant))?;
        let access = launch.bindings.iter().find(|binding| stores_y(binding))?.access;
        let size = STATISTICS_BYTES * conv.spec().k as u64 * u64::from(launch.grid[0]);
        launch.params[1] |= igemm::FLAG_STATISTICS;
        *launch.bindings.last_mut()? = Binding { role: Role::Statistics, offset: 0, size, access };
        Some(plan)
    }

    /// In how many parts [`Plan::with_statistics`] writes each channel's moments.
    pub fn statistics_parts(&self) -> Option<u64> {
        let channels = self.problem.conv().map_or(0, |conv| conv.spec().k as u64);
        Some(self.role_bytes(Role::Statistics) / STATISTICS_BYTES / channels.max(1))
            .filter(|&parts| parts > 0)
    }

    /// The launches that prepare the filters.
    pub fn preparing(&self) -> &[Launch] {
        &self.launches[..self.prepared.map_or(0, |prepared| prepared.launches)]
    }

    /// True where both plans make the same of the filters, if anything.
    pub fn prepares_as(&self, other: &Self) -> bool {
        self.prepared == other.prepared && self.preparing() == other.preparing()
    }

    /// For each launch, whether it must wait for an earlier one; those that need not may run side by side.
    pub fn waits(&self) -> Vec<bool> {
        // Each role's bytes are apart from the others'.
        let start = |binding: &Binding| ((binding.role as u64) << 60) + binding.offset;
        let mut hazards = Hazards::default();
        let waits = |launch: &Launch| {
            let ranges = launch.bindings.iter().map(|b| ((start(b), start(b) + b.size), b.access));
            let waits = hazards.conflict(ranges.clone());
            if waits {
                hazards.clear();
            }
            hazards.note(ranges);
            waits
        };
        self.launches.iter().map(waits).collect()
    }

    /// Bytes of the buffer for `role`, 0 where the plan's problem has none.
    pub fn role_bytes(&self, role: Role) -> u64 {
        let elements = match (&self.problem, role) {
            (_, Role::Workspace) => return self.workspace_bytes,
            (_, Role::Statistics) => {
                let all = self.launches.iter().flat_map(|launch| &launch.bindings);
                return all.filter(|b| b.role == role).map(|b| b.offset + b.size).max().unwrap_or(0);
            }
            (Problem::Conv(p), role) => p.role_elements(role),
            (Problem::Matmul(p), role) => p.role_elements(role),
        };
        elements * self.problem.dtype().size()
    }
}

/// What there are plans for.
pub trait HasRoles {
    /// Elements of the tensor of that role; 0 where the problem has none.
    fn role_elements(&self, role: Role) -> u64;
}

impl HasRoles for ConvProblem {
    fn role_elements(&self, role: Role) -> u64 {
        match role {
            Role::X => self.x_elements(),
            Role::W => self.w_elements(),
            Role::Y => self.y_elements(),
            Role::Bias => self.bias_elements(),
            Role::Workspace | Role::Statistics => 0,
        }
    }
}

impl HasRoles for MatmulProblem {
    fn role_elements(&self, role: Role) -> u64 {
        match role {
            Role::X => self.a_elements(),
            Role::W => self.b_elements(),
            Role::Y => self.output_elements(),
            Role::Bias => self.added_elements(),
            Role::Workspace | Role::Statistics => 0,
        }
    }
}
