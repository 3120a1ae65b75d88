//! Putting launches together: bindings, workspace regions, the passes around a GEMM.

use super::gather::{Box4, FLAG_BIAS, Gather, Gathering};
use super::tensors::ConvShape;
use crate::{
    Access, Binding, DeviceCaps, HasRoles, Launch, Model, Plan, Policy, Prepared, Refusal, Role, Solvable,
    cost,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use wave32_params::variants::{self, Variant};
use wave32_params::{Buffers, Kernel, Name, Params, activation, ew, ew_ops, reduce};
use wave32_problem::{Activation, ConvProblem, DType, MatmulProblem, Problem};

/// From so many partial results on, of so few outputs, several threads share an output.
const MANY_PARTS: u32 = 16;
const MANY_OUTPUTS: u32 = 1 << 20;

/// Launches of a product's plan at most.
pub const MAX_LAUNCHES: u64 = 4096;

/// Grows a plan launch by launch.
pub struct Builder<'a, P = ConvProblem> {
    problem: &'a P,
    dtype: DType,
    caps: &'a DeviceCaps,
    launches: Vec<Launch>,
    workspace: u64,
    prepared: Option<Prepared>,
}

/// A range of the workspace.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    pub offset: u64,
    pub size: u64,
}

impl<'a, P: HasRoles + Solvable> Builder<'a, P> {
    pub fn new(problem: &'a P, caps: &'a DeviceCaps) -> Self {
        let dtype = problem.problem().dtype();
        Self { problem, dtype, caps, launches: Vec::new(), workspace: 0, prepared: None }
    }

    /// What the plan solves.
    pub fn problem(&self) -> &'a P {
        self.problem
    }

    /// What the plan is for.
    pub fn caps(&self) -> &'a DeviceCaps {
        self.caps
    }

    /// Storage type of the problem.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes of workspace reserved so far.
    pub fn workspace(&self) -> u64 {
        self.workspace
    }

    /// Reserves `bytes` of workspace, aligned for every device's bindings.
    pub fn reserve(&mut self, bytes: u64) -> Region {
        let offset = self.workspace.next_multiple_of(self.caps.region_alignment());
        self.workspace = offset + bytes;
        Region { offset, size: bytes }
    }

    fn bind(&self, tensor: Role, access: Access) -> Binding {
        match self.problem.role_elements(tensor) {
            // A problem without bias binds another tensor there; the kernel does not look.
            0 => self.bind(Role::W, Access::Unused),
            elements => {
                let size = elements * self.dtype.size();
                Binding { role: tensor, offset: 0, size, access }
            }
        }
    }

    /// Adds a launch of one of the kernel source's variants.
    pub fn launch<K: Kernel>(&mut self, launch: NewLaunch<K>) {
        debug_assert_eq!(launch.variant.source, K::SOURCE);
        let buffers = launch.buffers.array();
        let bindings = buffers.as_ref().iter().map(|&Buffer { place, access }| match place {
            BufferSource::Tensor(role) => self.bind(role, access),
            BufferSource::Range(role, r) => Binding { role, offset: r.offset, size: r.size, access },
            BufferSource::Region(r) => {
                Binding { role: Role::Workspace, offset: r.offset, size: r.size, access }
            }
        });
        self.launches.push(Launch {
            kernel: launch.variant.name.clone(),
            grid: launch.grid,
            params: launch.params.words().as_ref().to_vec(),
            bindings: bindings.collect(),
            flops: launch.flops,
            bytes: launch.bytes,
            model: launch.model,
        });
    }

    /// All launches so far prepare the filters, in all that was reserved so far.
    pub fn filters_are_prepared(&mut self) {
        let bytes = self.workspace.next_multiple_of(self.caps.region_alignment());
        self.prepared = Some(Prepared { launches: self.launches.len(), bytes });
    }

    /// The first launches prepare the filters, as in a plan that was appended first. Nothing was reserved before it.
    pub fn prepared_first(&mut self, prepared: Prepared) {
        self.prepared = Some(prepared);
    }

    /// A second pass over partial results: sums `params.splits` of them. `weight`: what a byte of them costs.
    pub fn sum_parts(&mut self, part: Region, dst: Role, bias: Buffer, weight: u64, params: reduce::Params) {
        let dtype = self.dtype;
        // Few outputs do not fill a device with a thread each.
        let parts = if params.splits >= MANY_PARTS && params.total < MANY_OUTPUTS { 16 } else { 1 };
        let variant = variants::of("reduce", dtype).find(|v| v.define("PARTS") == i64::from(parts));
        let variant = variant.unwrap_or_else(|| unreachable!("the variants table has it (tested)"));
        let (total, splits) = (u64::from(params.total), u64::from(params.splits));
        self.launch::<reduce::Kernel>(NewLaunch {
            variant,
            grid: [params.total.div_ceil(4 * variant.threads / parts), 1, 1],
            params,
            buffers: reduce::Buffers { part: read(part), dst: write(dst), bias },
            flops: splits * total,
            bytes: total * (4 * splits + dtype.size()),
            model: Model::Stream { bytes: total * (4 * splits * weight + dtype.size()) },
        });
    }

    /// Writes zeros to a box of a tensor that no other launch touches.
    pub fn zero(&mut self, role: Role, to: &Box4) {
        let variant = variant(ew::F0);
        let count: u32 = to.sizes.iter().product();
        let [_, size @ ..] = to.sizes;
        let value = ew::T_VALUE;
        let bytes = u64::from(count) * self.dtype.size();
        self.launch::<ew::Kernel>(NewLaunch {
            variant,
            grid: [count.div_ceil(4 * variant.threads), 1, 1],
            params: ew::Params {
                count,
                op: ew_ops::OP_IDENTITY,
                types: self.dtype as u32 | value << 8 | value << 16 | value << 24,
                o_at: to.first,
                a_at: 0,
                b_at: 0,
                c_at: 0,
                size,
                o: to.strides,
                a: [0; 4],
                b: [0; 4],
                c: [0; 4],
                sw: 0,
                tw: 0,
            },
            buffers: ew::Buffers { dst: part(role), a: unused(role), b: unused(role), c: unused(role) },
            flops: 0,
            bytes,
            // Elements that do not lie side by side are written a sector each.
            model: Model::Stream { bytes: bytes * u64::from(to.strides[3].min(2)) },
        });
    }

    /// The launches of another plan, on a workspace that is reserved from that byte on: `place` says where the tensor of each role
    /// lies here.
    pub fn append_on(&mut self, plan: Plan, workspace: u64, place: impl Fn(Role) -> BufferSource) {
        for mut launch in plan.launches {
            for binding in &mut launch.bindings {
                let (role, start) = match place(binding.role) {
                    _ if binding.role == Role::Workspace => (Role::Workspace, workspace),
                    BufferSource::Tensor(role) => (role, 0),
                    BufferSource::Range(role, range) => (role, range.offset),
                    BufferSource::Region(region) => (Role::Workspace, region.offset),
                };
                (binding.role, binding.offset) = (role, start + binding.offset);
            }
            self.launches.push(launch);
        }
    }

    /// The plan, unless it breaks a limit.
    pub fn finish(self, solver: &'static str, config: String, cap: Option<u64>) -> Result<Plan, Refusal> {
        if let Some(cap) = cap.filter(|&cap| self.workspace > cap) {
            let detail = format!("needs {} bytes, the cap is {cap}", self.workspace);
            return Err(Refusal::new("workspace-cap", detail));
        }
        for launch in &self.launches {
            let [_, y, z] = launch.grid;
            let [_, most_y, most_z] = self.caps.max_groups;
            if y > most_y || z > most_z {
                let detail = format!(
                    "{} needs a grid of {y} x {z}, the device has {most_y} x {most_z}",
                    launch.kernel
                );
                return Err(Refusal::new("grid-too-large", detail));
            }
            if let Some(b) = launch.bindings.iter().find(|b| b.size > self.caps.max_range) {
                let detail = format!("binds {} bytes, the device addresses {}", b.size, self.caps.max_range);
                return Err(Refusal::new("workspace-too-large", detail));
            }
        }
        Ok(Plan {
            problem: self.problem.problem(),
            solver,
            config,
            tuned: false,
            workspace_bytes: self.workspace,
            launches: self.launches,
            prepared: self.prepared,
        })
    }
}

impl Builder<'_, MatmulProblem> {
    /// As [`Builder::sum_parts`] for a whole result that lies as its parts do, with the problem's activation.
    pub fn sum_results(&mut self, part: Region, (total, splits, stride): (u32, u32, u32), weight: u64) {
        let params = reduce::Params {
            flags: activation_flags(self.problem.spec().activation),
            total,
            splits,
            stride,
            bias_div: 1,
            bias_mod: 1,
            inner: 1,
            middle: 1,
            si: 0,
            sm: 0,
            so: 0,
        };
        self.sum_parts(part, Role::Y, unused(Role::Y), weight, params);
    }
}

impl Builder<'_> {
    /// The second pass of a split: sums `splits` partial results of `role`'s tensor. `weight`: what a byte of them costs.
    pub fn reduce(
        &mut self,
        part: Region,
        (splits, stride, weight): (u32, u32, u64),
        role: Role,
        shape: &ConvShape,
    ) {
        let (channel, channels) = match role {
            Role::X => (shape.x.c, shape.groups * shape.cg),
            _ => (shape.y.c, shape.groups * shape.kg),
        };
        self.sum_parts(
            part,
            role,
            read(Role::Bias),
            weight,
            reduce::Params {
                flags: epilogue_flags(self.problem),
                total: self.problem.role_elements(role) as u32,
                splits,
                stride,
                bias_div: channel.0,
                bias_mod: channels,
                inner: 1,
                middle: 1,
                si: 0,
                sm: 0,
                so: 0,
            },
        );
    }

    /// The same for partial filters that lie as `[tap][filter][channel]`.
    pub fn reduce_weights(
        &mut self,
        part: Region,
        (splits, stride, weight): (u32, u32, u64),
        shape: &ConvShape,
    ) {
        self.sum_parts(
            part,
            Role::W,
            unused(Role::Bias),
            weight,
            reduce::Params {
                flags: reduce::FLAG_PERMUTE,
                total: self.problem.w_elements() as u32,
                splits,
                stride,
                bias_div: 1,
                bias_mod: 1,
                inner: shape.cg,
                middle: shape.groups * shape.kg,
                si: shape.f.c.0,
                sm: shape.f.n.0,
                // Taps are contiguous rows of s: a tap's distance is that of neighbouring columns.
                so: shape.f.w.0,
            },
        );
    }
}

thread_local! {
    /// The configurations that solvers of this thread offer, while somebody asks.
    static OFFERED: RefCell<Option<BTreeSet<String>>> = const { RefCell::new(None) };
}

/// The configurations that solvers offer to [`Cheapest`] during `work`.
pub fn offered(work: impl FnOnce()) -> BTreeSet<String> {
    OFFERED.set(Some(BTreeSet::new()));
    work();
    OFFERED.take().unwrap_or_default()
}

/// The cheapest of the plans that a solver makes of its configurations.
pub struct Cheapest<'a> {
    caps: &'a DeviceCaps,
    best: Option<(Plan, f64)>,
    refusal: Refusal,
}

impl<'a> Cheapest<'a> {
    pub fn new(caps: &'a DeviceCaps) -> Self {
        let refusal = Refusal::new("no-config", "no tile configuration fits this problem");
        Self { caps, best: None, refusal }
    }

    /// Another configuration's plan; of equal ones the first stays.
    pub fn offer(&mut self, plan: Result<Plan, Refusal>) {
        match plan {
            Ok(plan) => {
                OFFERED
                    .with_borrow_mut(|offered| offered.as_mut().map(|all| all.insert(plan.config.clone())));
                let cost = cost(&plan, self.caps);
                if self.best.as_ref().is_none_or(|(_, least)| cost < *least) {
                    self.best = Some((plan, cost));
                }
            }
            Err(refusal) => self.refusal = refusal,
        }
    }

    /// The best; where none fits, the reason that the last one gave.
    pub fn plan(self) -> Result<Plan, Refusal> {
        self.best.map(|(plan, _)| plan).ok_or(self.refusal)
    }
}

/// A tensor or a range of the workspace.
#[derive(Debug, Clone, Copy)]
pub enum BufferSource {
    Tensor(Role),
    /// Bytes of a tensor.
    Range(Role, Region),
    Region(Region),
}

impl From<Role> for BufferSource {
    fn from(role: Role) -> Self {
        Self::Tensor(role)
    }
}

impl From<Region> for BufferSource {
    fn from(region: Region) -> Self {
        Self::Region(region)
    }
}

/// What a launch binds, and what it does with it.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    pub place: BufferSource,
    pub access: Access,
}

pub fn read(place: impl Into<BufferSource>) -> Buffer {
    Buffer { place: place.into(), access: Access::Read }
}

pub fn write(place: impl Into<BufferSource>) -> Buffer {
    Buffer { place: place.into(), access: Access::Write }
}

/// Written, in elements that no other launch of the plan touches.
pub fn part(place: impl Into<BufferSource>) -> Buffer {
    Buffer { place: place.into(), access: Access::Part(0) }
}

/// Bound for the kernel's sake alone.
pub fn unused(place: impl Into<BufferSource>) -> Buffer {
    Buffer { place: place.into(), access: Access::Unused }
}

/// Arguments of [`Builder::launch`].
pub struct NewLaunch<K: Kernel> {
    pub variant: &'static Variant,
    pub grid: [u32; 3],
    pub params: K::Params,
    pub buffers: K::Buffers<Buffer>,
    pub flops: u64,
    pub bytes: u64,
    pub model: Model,
}

/// The variant of that name.
pub fn variant<K: Kernel>(name: Name<K>) -> &'static Variant {
    let found = variants::find(name.as_str());
    found.unwrap_or_else(|| unreachable!("the variants table has {name:?}: it was made from it"))
}

/// The only variant of a one-variant source.
pub fn single_variant(source: &str, dtype: DType) -> &'static Variant {
    let found = variants::of(source, dtype).next();
    found.unwrap_or_else(|| unreachable!("the variants table has {source} in every dtype (tested)"))
}

/// The variant of a source that has this tag.
pub fn tagged_variant(source: &str, tag: &str, dtype: DType) -> &'static Variant {
    let found = variants::of(source, dtype).find(|v| v.tag == tag);
    found.unwrap_or_else(|| unreachable!("the variants table has {source} {tag} in every dtype (tested)"))
}

/// What gradients are multiplied by in f16, and the sums divided by: they are small numbers. `kernels/wrw.kern` has the same.
pub const HALF_UP: f32 = 16.0;

/// The variants of a kernel that this device and this policy allow for the problem.
pub fn usable(
    source: &'static str,
    problem: &impl Solvable,
    caps: &DeviceCaps,
    policy: &Policy,
) -> impl Iterator<Item = &'static Variant> {
    let problem = problem.problem();
    let may_sum_in_f16 = match &problem {
        Problem::Conv(problem) => policy.fp16_accumulation.allows(problem.spec().direction.pass()),
        Problem::Matmul(problem) => policy.fp16_accumulation.allows_product(problem.spec().pass),
    };
    let half = caps.float16_math && may_sum_in_f16;
    let most = if caps.float16_matrix && !policy.no_matrix { caps.lds_per_group } else { 0 };
    let has_dot = caps.float16_dot && !policy.no_matrix;
    variants::of(source, problem.dtype())
        .filter(move |v| (half || !v.is_half()) && (!v.is_matrix() || v.matrix_lds() <= most))
        .filter(move |v| has_dot || !v.is_dot())
}

/// Epilogue of the problem as kernel flags.
pub fn epilogue_flags(problem: &ConvProblem) -> u32 {
    let e = problem.spec().epilogue;
    (u32::from(e.bias) * FLAG_BIAS) | activation_flags(e.activation)
}

/// The bits of `kernels/activation.h`.
pub fn activation_flags(activation: Activation) -> u32 {
    let code = match activation {
        Activation::None => 0,
        Activation::Relu => activation::ACTIVATION_RELU,
        Activation::Relu6 => activation::ACTIVATION_RELU6,
        Activation::Silu => activation::ACTIVATION_SILU,
        Activation::Hardswish => activation::ACTIVATION_HARDSWISH,
        Activation::Gelu => activation::ACTIVATION_GELU,
        Activation::LeakyRelu(slope) => activation::ACTIVATION_LEAKY + u32::from(slope),
    };
    code << activation::ACTIVATION_SHIFT
}

/// FLOP of a gathering convolution.
pub fn gather_flops(g: &Gather, groups: u32) -> u64 {
    2 * u64::from(g.rows) * u64::from(g.cols) * u64::from(g.depth()) * u64::from(groups)
}

/// A partial result's distance from the next, in floats: a multiple of four for vector reads.
pub fn partial_stride(elements: u64) -> u32 {
    elements.next_multiple_of(4) as u32
}
