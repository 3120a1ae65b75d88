//! Putting launches together: bindings, workspace regions, the passes around a GEMM.

use super::gather::{FLAG_BIAS, FLAG_RELU, Gather};
use super::tensors::Shape;
use crate::variants::{self, Variant};
use crate::{Access, Binding, DeviceCaps, Launch, Plan, Refusal, Role};
use wave32_problem::{Activation, ConvProblem, DType};

/// `reduce.kern` puts its results into another order.
const FLAG_PERMUTE: u32 = 32;

/// Grows a plan launch by launch.
pub struct Builder<'a> {
    problem: &'a ConvProblem,
    caps: &'a DeviceCaps,
    launches: Vec<Launch>,
    workspace: u64,
}

/// A range of the workspace.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    pub offset: u64,
    pub size: u64,
}

impl<'a> Builder<'a> {
    pub fn new(problem: &'a ConvProblem, caps: &'a DeviceCaps) -> Self {
        Self { problem, caps, launches: Vec::new(), workspace: 0 }
    }

    /// Reserves `bytes` of workspace, aligned for every device's bindings.
    pub fn reserve(&mut self, bytes: u64) -> Region {
        let offset = self.workspace.next_multiple_of(self.caps.offset_alignment.max(256));
        self.workspace = offset + bytes;
        Region { offset, size: bytes }
    }

    fn bind(&self, tensor: Role, access: Access) -> Binding {
        let size = self.problem.spec().dtype.size();
        let elements = match tensor {
            Role::X => self.problem.x_elements(),
            Role::W => self.problem.w_elements(),
            Role::Y => self.problem.y_elements(),
            // A problem without bias binds its filters there; the kernel does not look.
            Role::Bias if !self.problem.spec().epilogue.bias => return self.bind(Role::W, Access::Unused),
            Role::Bias => self.problem.bias_elements(),
            Role::Workspace => unreachable!("workspace is bound by region"),
        };
        Binding { role: tensor, offset: 0, size: elements * size, access }
    }

    /// Adds a launch. `buffers` in the kernel's order.
    pub fn launch(&mut self, launch: NewLaunch<'_>) {
        let bindings = launch.buffers.iter().map(|&Buffer { place, access }| match place {
            Place::Tensor(role) => self.bind(role, access),
            Place::Region(r) => Binding { role: Role::Workspace, offset: r.offset, size: r.size, access },
        });
        self.launches.push(Launch {
            kernel: launch.variant.name.clone(),
            grid: launch.grid,
            params: launch.words,
            bindings: bindings.collect(),
            flops: launch.flops,
            bytes: launch.bytes,
        });
    }

    /// The second pass of a split: sums `splits` partial results of `role`'s tensor.
    pub fn reduce(&mut self, part: Region, splits: u32, stride: u32, role: Role, shape: &Shape) {
        let (strides, channels) = match role {
            Role::X => (shape.x, shape.groups * shape.cg),
            _ => (shape.y, shape.groups * shape.kg),
        };
        let order = [1, 1, 0, 0, 0];
        self.reduce_in(
            part,
            splits,
            stride,
            role,
            epilogue_flags(self.problem),
            [strides.c, channels],
            order,
        );
    }

    /// The same for partial filters that lie as [tap][filter][channel].
    pub fn reduce_weights(&mut self, part: Region, splits: u32, stride: u32, shape: &Shape) {
        // Taps are contiguous rows of s: a tap's distance is that of neighbouring columns.
        let order = [shape.cg, shape.groups * shape.kg, shape.f.c, shape.f.n, shape.f.w];
        self.reduce_in(part, splits, stride, Role::W, FLAG_PERMUTE, [1, 1], order);
    }

    #[expect(clippy::too_many_arguments, reason = "the kernel's words, named by the two callers above")]
    fn reduce_in(
        &mut self,
        part: Region,
        splits: u32,
        stride: u32,
        role: Role,
        flags: u32,
        bias: [u32; 2],
        order: [u32; 5],
    ) {
        let total = match role {
            Role::X => self.problem.x_elements(),
            Role::Y => self.problem.y_elements(),
            _ => self.problem.w_elements(),
        } as u32;
        let variant = pass("reduce", self.problem.spec().dtype);
        let mut words = vec![0, flags, total, splits, stride];
        words.extend(bias);
        words.extend(order);
        self.launch(NewLaunch {
            variant,
            grid: [total.div_ceil(4 * variant.threads), 1, 1],
            words,
            buffers: &[read(part), write(role), read(Role::Bias)],
            flops: u64::from(splits) * u64::from(total),
            bytes: u64::from(total) * (4 * u64::from(splits) + self.problem.spec().dtype.size()),
        });
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
            problem: self.problem.clone(),
            solver,
            config,
            workspace_bytes: self.workspace,
            launches: self.launches,
        })
    }
}

/// A tensor or a range of the workspace.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    Tensor(Role),
    Region(Region),
}

impl From<Role> for Place {
    fn from(role: Role) -> Self {
        Self::Tensor(role)
    }
}

impl From<Region> for Place {
    fn from(region: Region) -> Self {
        Self::Region(region)
    }
}

/// What a launch binds, and what it does with it.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    pub place: Place,
    pub access: Access,
}

pub fn read(place: impl Into<Place>) -> Buffer {
    Buffer { place: place.into(), access: Access::Read }
}

pub fn write(place: impl Into<Place>) -> Buffer {
    Buffer { place: place.into(), access: Access::Write }
}

/// Written, in elements that no other launch of the plan touches.
pub fn part(place: impl Into<Place>) -> Buffer {
    Buffer { place: place.into(), access: Access::Part(0) }
}

/// Bound for the kernel's sake alone.
pub fn unused(place: impl Into<Place>) -> Buffer {
    Buffer { place: place.into(), access: Access::Unused }
}

/// Arguments of [`Builder::launch`].
pub struct NewLaunch<'a> {
    pub variant: &'static Variant,
    pub grid: [u32; 3],
    pub words: Vec<u32>,
    pub buffers: &'a [Buffer],
    pub flops: u64,
    pub bytes: u64,
}

/// The only variant of a one-variant text.
pub fn pass(text: &str, dtype: DType) -> &'static Variant {
    let found = variants::of(text, dtype).next();
    found.unwrap_or_else(|| unreachable!("the variants table has {text} in every dtype (tested)"))
}

/// Epilogue of the problem as kernel flags.
pub fn epilogue_flags(problem: &ConvProblem) -> u32 {
    let e = problem.spec().epilogue;
    let relu = e.activation == Activation::Relu;
    (u32::from(e.bias) * FLAG_BIAS) | (u32::from(relu) * FLAG_RELU)
}

/// FLOP of a gathering convolution.
pub fn gather_flops(g: &Gather, groups: u32) -> u64 {
    2 * u64::from(g.rows) * u64::from(g.cols) * u64::from(g.depth()) * u64::from(groups)
}

/// A partial result's distance from the next, in floats: a multiple of four for vector reads.
pub fn partial_stride(elements: u64) -> u32 {
    elements.next_multiple_of(4) as u32
}
