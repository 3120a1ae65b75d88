//! Products of matrices with a small side (`kernels/skinny.kern`). Reading or writing the one large operand limits their
//! time; tiles of 64 x 64 would be mostly padding. Any strides; matrices
//! that a launch cannot bind are cut.

use super::build::{
    BufferSource, Builder, Cheapest, MAX_LAUNCHES, NewLaunch, Region, activation_flags, part, partial_stride,
    read, unused, variant,
};
use super::gemm::Gemm;
use super::tensors::check_storage;
use crate::{DeviceCaps, Model, Plan, Policy, Refusal, Role, Solver};
use wave32_params::{Name, skinny};
use wave32_problem::{DType, MatmulProblem, Matrices};

/// The largest size of the small side that a launch takes.
const MAX_SMALL: u64 = 16;
/// Rows of the small side beyond which the operands are read too often, if there is another way.
const MAX_ROWS: u64 = 64;
/// In how many parts the sum may be split.
const SPLITS: [u64; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// Shortest part of a sum.
const SHORTEST: u64 = 256;

/// One operand is read once, in its own order.
pub struct Skinny;

impl Solver<MatmulProblem> for Skinny {
    fn name(&self) -> &'static str {
        "skinny"
    }

    fn applicable(&self, problem: &MatmulProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        check_storage(problem.spec().dtype, caps)?;
        let elements = [problem.a_elements(), problem.b_elements(), problem.output_elements()];
        if elements.iter().any(|&elements| elements > u64::from(u32::MAX) << 8) {
            return Err(Refusal::new("tensor-too-large", format!("operands of {elements:?} elements")));
        }
        Ok(())
    }

    fn plan(&self, problem: &MatmulProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal> {
        let mut best = Cheapest::new(caps);
        for product in Product::ways(problem, caps) {
            let splits = |splits: &u64| product.form != Form::Outer && product.depth() / splits >= SHORTEST;
            for splits in SPLITS.into_iter().filter(|number| *number == 1 || splits(number)) {
                let config = format!("{}/{splits}", product.tag());
                if policy.config.as_ref().is_none_or(|name| *name == config) {
                    best.offer(product.plan(self.name(), config, splits, problem, caps, policy));
                }
            }
        }
        best.plan()
    }
}

/// A batch of matrices: where they lie, and how.
#[derive(Debug, Clone, Copy)]
pub struct Tensor {
    pub source: BufferSource,
    /// Elements in front of the first.
    pub first: u64,
    /// Batch, rows, columns.
    pub sizes: [u64; 3],
    pub strides: [u64; 3],
}

impl Tensor {
    fn of(role: Role, matrices: &Matrices, sizes: [u64; 3]) -> Self {
        let strides = matrices.strides.map(|stride| stride as u64);
        Self { source: role.into(), first: matrices.first as u64, sizes, strides }
    }

    /// a and b.
    pub fn operands(problem: &MatmulProblem) -> [Self; 2] {
        let s = problem.spec();
        [Self::of(Role::X, &s.a, problem.a_sizes()), Self::of(Role::W, &s.b, problem.b_sizes())]
    }

    /// What is added; the result where nothing is.
    pub fn added(problem: &MatmulProblem) -> Self {
        match problem.spec().added {
            Some(added) => Self::of(Role::Bias, &added.matrices, problem.out_sizes()),
            None => Self::result(problem),
        }
    }

    pub fn result(problem: &MatmulProblem) -> Self {
        let sizes @ [_, rows, columns] = problem.out_sizes();
        Self { source: Role::Y.into(), first: 0, sizes, strides: [rows * columns, columns, 1] }
    }

    fn transposed(self) -> Self {
        let ([g, r, c], [sg, sr, sc]) = (self.sizes, self.strides);
        Self { sizes: [g, c, r], strides: [sg, sc, sr], ..self }
    }

    /// `count` indices of a dimension, from `at` on.
    pub fn narrow(mut self, dim: usize, at: u64, count: u64) -> Self {
        self.first += at * self.strides[dim];
        self.sizes[dim] = count;
        self
    }

    fn extent(&self) -> u64 {
        1 + self.sizes.iter().zip(self.strides).map(|(size, stride)| (size - 1) * stride).sum::<u64>()
    }

    /// True where a launch can bind all that it touches.
    pub fn fits(&self, caps: &DeviceCaps, size: u64) -> bool {
        let slack = caps.offset_alignment.max(16);
        self.extent().saturating_mul(size).saturating_add(slack) <= caps.max_range && self.extent() < 1 << 31
    }

    /// All that it touches, from an aligned byte on, and the first element in there.
    ///
    /// # Errors
    /// `tensor-too-large`.
    pub fn bind(&self, caps: &DeviceCaps, dtype: DType) -> Result<(BufferSource, u32), Refusal> {
        self.bind_elements(caps, dtype.size())
    }

    fn bind_elements(&self, caps: &DeviceCaps, size: u64) -> Result<(BufferSource, u32), Refusal> {
        if !self.fits(caps, size) {
            let detail = format!("{} elements of {size} bytes", self.extent());
            return Err(Refusal::new("tensor-too-large", detail));
        }
        let start = self.first * size / caps.offset_alignment.max(16) * caps.offset_alignment.max(16);
        let range = Region { offset: start, size: (self.first + self.extent()) * size - start };
        let source = match self.source {
            BufferSource::Tensor(role) => BufferSource::Range(role, range),
            BufferSource::Range(role, r) => {
                BufferSource::Range(role, Region { offset: r.offset + start, ..range })
            }
            BufferSource::Region(r) => Region { offset: r.offset + start, ..range }.into(),
        };
        Ok((source, ((self.first * size - start) / size) as u32))
    }
}

/// The order in which lanes read the large operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Neighbouring lanes read neighbours along the sum (k).
    Rows,
    /// Neighbouring lanes read neighbours along the results (l).
    Columns,
    /// The sum is so short that writing the results takes all the time.
    Outer,
}

impl Form {
    /// Results along `large` of a workgroup, and what the sum's length is padded to.
    fn tile(self) -> (u64, u64) {
        match self {
            Self::Rows => (32, 256),
            Self::Columns => (128, 64),
            Self::Outer => (128, 4),
        }
    }

    /// Longest sum of a workgroup: 2048 terms of a thread, so that rounding errors stay small.
    fn longest(self) -> u64 {
        if self == Self::Rows { 32 * 2048 } else { 8 * 2048 }
    }
}

/// `out[g][s][l]` = sum over k of `small[g][s][k] * large[g][l][k]`, and what is made of it.
#[derive(Debug, Clone, Copy)]
struct Product {
    form: Form,
    small: Tensor,
    large: Tensor,
    out: Tensor,
    added: Option<Tensor>,
    /// Factors of the product and of what is added.
    factors: [f32; 2],
}

/// How a product's sum is split.
#[derive(Debug, Clone, Copy)]
struct Split {
    /// Terms of a workgroup's sum.
    chunk: u64,
    /// Terms of one launch.
    bound: u64,
    /// Partial results, floats from one to the next: where the sum is split.
    parts: Option<(Region, u64)>,
}

impl Product {
    /// Either side may be the small one, in every form that can read the other.
    fn ways(problem: &MatmulProblem, caps: &DeviceCaps) -> Vec<Self> {
        let s = problem.spec();
        let [small, b] = Tensor::operands(problem);
        let added = s.added.map(|_| Tensor::added(problem));
        let factors = [s.alpha.0 as f32, s.added.map_or(0.0, |added| added.beta.0 as f32)];
        let out = Tensor::result(problem);
        let large = b.transposed();
        let plain = Self { form: Form::Outer, small, large, out, added, factors };
        let turned = Self {
            small: large,
            large: small,
            out: out.transposed(),
            added: added.map(Tensor::transposed),
            ..plain
        };
        // One of these has to take what tiles do not.
        let is_needed = Gemm.applicable(problem, caps).is_err();
        let mut ways = Vec::new();
        let sides = if s.m <= s.n { [plain, turned] } else { [turned, plain] };
        for (at, product) in sides.into_iter().enumerate() {
            let rows = product.small.sizes[1];
            if rows <= MAX_ROWS || (at == 0 && is_needed) {
                if product.large.strides[2] == 1 || product.depth() == 1 {
                    ways.push(Self { form: Form::Rows, ..product });
                }
                ways.push(Self { form: Form::Columns, ..product });
            }
            if product.depth() <= MAX_SMALL && !problem.has_epilogue() && product.out.strides[2] == 1 {
                ways.push(product);
            }
        }
        ways
    }

    /// Batch, rows of `small`, rows of `large`.
    fn sizes(&self) -> [u64; 3] {
        [self.small.sizes[0], self.small.sizes[1], self.large.sizes[1]]
    }

    /// Terms of a sum.
    fn depth(&self) -> u64 {
        self.small.sizes[2]
    }

    fn plan(
        &self,
        solver: &'static str,
        config: String,
        splits: u64,
        problem: &MatmulProblem,
        caps: &DeviceCaps,
        policy: &Policy,
    ) -> Result<Plan, Refusal> {
        let mut builder = Builder::new(problem, caps);
        self.emit(&mut builder, problem, splits, policy)?;
        builder.finish(solver, config, policy.workspace_cap)
    }

    /// Every launch.
    fn emit(
        &self,
        builder: &mut Builder<'_, MatmulProblem>,
        problem: &MatmulProblem,
        splits: u64,
        policy: &Policy,
    ) -> Result<(), Refusal> {
        let (caps, size, depth) = (builder.caps(), builder.dtype().size(), self.depth());
        let (_, step) = self.form.tile();
        let mut split = Split { chunk: depth, bound: depth, parts: None };
        if self.form != Form::Outer {
            // Where there is no room for partial results, a long sum is better than none.
            let longest = if policy.workspace_cap == Some(0) { u64::MAX } else { self.form.longest() };
            split.chunk = depth.div_ceil(splits).next_multiple_of(step).min(longest);
            if self.form == Form::Columns {
                // Rows of k that one launch can bind.
                let fits = |count: u64| self.large.narrow(2, 0, count.min(depth)).fits(caps, size);
                let most = most_that(depth.div_ceil(step), |steps| fits(steps * step)) * step;
                if most == 0 {
                    let detail = format!("{step} terms of every sum are more than a launch binds");
                    return Err(Refusal::new("tensor-too-large", detail));
                }
                split.chunk = split.chunk.min(most);
                split.bound = if most >= depth { depth } else { most / split.chunk * split.chunk };
            }
            let parts = depth.div_ceil(split.chunk);
            if parts > 1 {
                let stride = u64::from(partial_stride(problem.output_elements()));
                split.parts = Some((builder.reserve(4 * parts * stride), stride));
            }
        }
        let [g, ..] = self.sizes();
        let whole = [&self.small, &self.large, &self.out].iter().all(|tensor| tensor.fits(caps, size));
        if g > 1 && !whole {
            for at in 0..g {
                self.one_of_batch(at).pieces(builder, &split)?;
            }
        } else {
            self.pieces(builder, &split)?;
        }
        if let Some((part, stride)) = split.parts {
            let (total, splits) = (problem.output_elements() as u32, depth.div_ceil(split.chunk) as u32);
            builder.sum_results(part, (total, splits, stride as u32), 1);
        }
        Ok(())
    }

    fn one_of_batch(&self, at: u64) -> Self {
        let one = |tensor: Tensor| tensor.narrow(0, at, 1);
        Self {
            small: one(self.small),
            large: one(self.large),
            out: one(self.out),
            added: self.added.map(one),
            ..*self
        }
    }

    /// Rows of the small side from `at` on.
    fn small_rows(&self, at: u64, count: u64) -> Self {
        let rows = |tensor: Tensor| tensor.narrow(1, at, count);
        Self { small: rows(self.small), out: rows(self.out), added: self.added.map(rows), ..*self }
    }

    /// Rows of the large side from `at` on.
    fn large_rows(&self, at: u64, count: u64) -> Self {
        let columns = |tensor: Tensor| tensor.narrow(2, at, count);
        let large = self.large.narrow(1, at, count);
        Self { large, out: columns(self.out), added: self.added.map(columns), ..*self }
    }

    /// Cut where an operand is too long for one launch, or the small side too tall.
    fn pieces(&self, builder: &mut Builder<'_, MatmulProblem>, split: &Split) -> Result<(), Refusal> {
        let (caps, size) = (builder.caps(), builder.dtype().size());
        let [_, s, l] = self.sizes();
        // Results lie in `out`, or as floats in the partial results.
        let wide = if split.parts.is_some() { 4 } else { size };
        let (rows, columns) = match self.form {
            Form::Outer => (most_that(s, |rows| self.out.narrow(1, 0, rows).fits(caps, size)), l),
            Form::Columns => (MAX_SMALL.min(s), l),
            Form::Rows => {
                let fits = |count: u64| {
                    let piece = self.large_rows(0, count);
                    piece.large.fits(caps, size) && piece.out.fits(caps, wide)
                };
                (MAX_SMALL.min(s), most_that(l.div_ceil(32), |tiles| fits((tiles * 32).min(l))) * 32)
            }
        };
        let (rows, columns) = (rows.max(1), columns.max(1).min(l));
        let count = s.div_ceil(rows) * l.div_ceil(columns) * self.depth().div_ceil(split.bound.max(1));
        if count > MAX_LAUNCHES {
            return Err(Refusal::new("too-many-launches", format!("{count}, takes {MAX_LAUNCHES}")));
        }
        for at in (0..s).step_by(rows as usize) {
            let strip = self.small_rows(at, rows.min(s - at));
            for at in (0..l).step_by(columns as usize) {
                let piece = strip.large_rows(at, columns.min(l - at));
                for at in (0..self.depth()).step_by(split.bound.max(1) as usize) {
                    piece.terms(at, split.bound.min(self.depth() - at)).launch(
                        builder,
                        split,
                        at / split.chunk,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// The terms of the sum from `at` on. What is added is added to the first.
    fn terms(&self, at: u64, count: u64) -> Self {
        let terms = |tensor: Tensor| tensor.narrow(2, at, count);
        let added = self.added.filter(|_| at == 0);
        Self { small: terms(self.small), large: terms(self.large), added, ..*self }
    }

    /// Whether the kernel can read four neighbours at once.
    fn is_wide(&self) -> bool {
        let (tensor, dim) = match self.form {
            Form::Rows => (&self.large, 2),
            Form::Columns => (&self.large, 1),
            Form::Outer => (&self.out, 2),
        };
        let others_align = (0..3)
            .all(|other| other == dim || tensor.sizes[other] == 1 || tensor.strides[other].is_multiple_of(4));
        let is_dense = tensor.strides[dim] == 1 && tensor.sizes[dim].is_multiple_of(4);
        is_dense && others_align && tensor.first.is_multiple_of(4)
    }

    /// The kernel's S.
    fn small_tile(&self) -> u64 {
        let [_, s, _] = self.sizes();
        if (if self.form == Form::Outer { self.depth() } else { s }) <= 4 { 4 } else { MAX_SMALL }
    }

    fn names(&self) -> [Name<skinny::Kernel>; 3] {
        match (self.form, self.is_wide(), self.small_tile()) {
            (Form::Rows, true, 4) => skinny::R4,
            (Form::Rows, true, _) => skinny::R16,
            (Form::Rows, false, _) => skinny::R16S,
            (Form::Columns, true, 4) => skinny::C4,
            (Form::Columns, true, _) => skinny::C16,
            (Form::Columns, false, _) => skinny::C16S,
            (Form::Outer, true, 4) => skinny::O4,
            (Form::Outer, true, _) => skinny::O16,
            (Form::Outer, false, _) => skinny::O16S,
        }
    }

    /// The way's name: its form and which side is the small one.
    fn tag(&self) -> String {
        let form = match self.form {
            Form::Rows => "rows",
            Form::Columns => "columns",
            Form::Outer => "outer",
        };
        let side = if self.out.strides[2] == 1 { "a" } else { "b" };
        format!("{form}-{side}")
    }

    /// One launch, which writes `out`, or the partial results from number `first` on.
    fn launch(
        &self,
        builder: &mut Builder<'_, MatmulProblem>,
        split: &Split,
        first: u64,
    ) -> Result<(), Refusal> {
        let (caps, dtype) = (builder.caps(), builder.dtype());
        let ([g, s, l], k) = (self.sizes(), self.depth());
        let (small, small_at) = self.small.bind(caps, dtype)?;
        let (wide, large_at) = self.large.bind(caps, dtype)?;
        let (dst, parts, out_at, out_split) = match split.parts {
            None => {
                let (out, at) = self.out.bind(caps, dtype)?;
                (part(out), unused(Role::Y), at, 0)
            }
            Some((region, stride)) => {
                let out_at = first * stride + self.out.first;
                if region.size > caps.max_range || region.size / 4 >= 1 << 31 {
                    let detail = format!("{} bytes of partial results", region.size);
                    return Err(Refusal::new("workspace-too-large", detail));
                }
                (unused(Role::Y), part(region), out_at as u32, stride as u32)
            }
        };
        let added = self.added.map(|tensor| tensor.bind(caps, dtype)).transpose()?;
        let (width, step) = self.form.tile();
        let down = if self.form == Form::Outer { s.div_ceil(width) } else { k.div_ceil(split.chunk) };
        let deep = self.small_tile();
        let padded = match self.form {
            Form::Outer => s * l.next_multiple_of(width) * deep,
            _ => deep * l.next_multiple_of(width) * k.next_multiple_of(step),
        };
        // Each lane of the rows reads its own terms of the small side from LDS.
        let weighted = if self.form == Form::Rows && deep > 4 { 5 * padded / 2 } else { padded };
        let fit = |strides: [u64; 3]| strides.map(|stride| stride as u32);
        let [small_g, small_s, small_k] = fit(self.small.strides);
        let [large_g, large_l, large_k] = fit(self.large.strides);
        let [out_g, out_s, out_l] = fit(self.out.strides);
        let [add_g, add_s, add_l] = fit(self.added.map_or([0; 3], |added| added.strides));
        let [alpha, beta] = self.factors;
        let results = if split.parts.is_some() { 4 * down } else { dtype.size() };
        let bytes = g * ((s * k + l * k) * dtype.size() + s * l * results);
        // Neighbouring lanes that read what is not side by side read a sector each.
        let is_spread = self.form != Form::Rows && l > 1 && self.large.strides[1] > 1;
        let read_again = if self.form == Form::Outer { 4 * s.div_ceil(width) } else { 1 };
        let spread = if is_spread { 8 * read_again } else { 1 };
        builder.launch::<skinny::Kernel>(NewLaunch {
            variant: variant(self.names()[dtype as usize]),
            grid: [l.div_ceil(width) as u32, down as u32, g as u32],
            params: skinny::Params {
                small: s as u32,
                large: l as u32,
                depth: k as u32,
                chunk: split.chunk as u32,
                small_s,
                small_k,
                small_g,
                large_l,
                large_k,
                large_g,
                out_s,
                out_l,
                out_g,
                out_split,
                small_at,
                large_at,
                out_at,
                flags: activation_flags(builder.problem().spec().activation)
                    | if split.parts.is_some() { skinny::FLAG_PARTIAL } else { 0 },
                add_s,
                add_l,
                add_g,
                add_at: added.map_or(0, |(_, at)| at),
                alpha,
                beta: if added.is_some() { beta } else { 0.0 },
            },
            buffers: skinny::Buffers {
                small: read(small),
                wide: read(wide),
                dst,
                parts,
                added: added.map_or(unused(Role::Y), |(source, _)| read(source)),
            },
            flops: 2 * g * s * l * k,
            bytes: bytes + (spread - 1) * g * l * k * dtype.size(),
            model: Model::Rows { multiply_adds: g * weighted },
        });
        Ok(())
    }
}

/// The most of `1..=all` for which `fits` holds, where it holds up to some number; 0 where it holds for none.
fn most_that(all: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, all);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}
