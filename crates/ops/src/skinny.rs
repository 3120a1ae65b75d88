//! Matrix products with a small side (`kernels/skinny.kern`). Reading or writing the one large operand limits their
//! time. Tiles of 64 x 64 would be mostly padding.

use crate::call::{Call, by_float, fit, fit_all, read, write};
use crate::scratch::scratch;
use crate::{ElementType, Elementwise, Op, OpError, Queue, Reduce, View, copy, reduce};
use wave32_params::{Name, skinny};
use wave32_solve::DeviceCaps;

/// The largest size of the small side.
const MAX_SMALL: u64 = 16;
/// Workgroups per compute unit that keep enough loads in flight.
const GROUPS_PER_CU: u64 = 4;
/// Adding partial results may cost 1/8 of the time to read the large operand.
const PARTS_SHARE: u64 = 8;
/// Rows and columns of the tiles that the GEMM would use.
const TILE: u64 = 64;

/// The epilogue of a matrix product: `alpha * product + beta * added`.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    /// A view of the product's sizes and type (broadcast dimensions have stride 0).
    pub added: View,
    /// Factor of `added`. With 0, `added` is not read and may hold NaN.
    pub beta: f64,
    /// Factor of the product.
    pub alpha: f64,
}

impl Sum {
    /// Applies it to a product that is in `out`.
    pub(crate) fn finish(&self, queue: &mut dyn Queue, out: &View) -> Result<(), OpError> {
        if self.alpha != 1.0 {
            let operands = [out.into(), self.alpha.into()];
            Elementwise::new(Op::Mul, out.dtype).run(queue, &operands, out)?;
        }
        if self.beta != 0.0 {
            let operands = [out.into(), (&self.added).into()];
            Elementwise::with(Op::AddScaled, out.dtype, self.beta, 0.0).run(queue, &operands, out)?;
        }
        Ok(())
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
pub(crate) struct Skinny {
    form: Form,
    small: View,
    large: View,
    out: View,
    sum: Option<Sum>,
}

impl Skinny {
    /// The product `out = a * b` of batches of matrices, with the epilogue `sum`. `None` where the GEMM has the
    /// smaller lower bound, or where these kernels cannot compute it.
    pub fn choose(caps: &DeviceCaps, a: &View, b: &View, out: &View, sum: Option<&Sum>) -> Option<Self> {
        let [m, k, n] = [a.sizes()[1], a.sizes()[2], b.sizes()[2]];
        if a.dtype.size() < 4 && !caps.storage_16bit {
            return None;
        }
        let (small, large) = (*a, b.transposed());
        let unswapped = Self { form: Form::Outer, small, large, out: *out, sum: sum.copied() };
        let swapped = Self { small: large, large: small, ..unswapped }.with(|v| *v, |v| *v, View::transposed);
        let is_swapped = m.min(n) <= MAX_SMALL && m > n;
        let product = if is_swapped { swapped } else { unswapped.with(|v| *v, |v| *v, |v| *v) };
        let Self { large, out, .. } = product;
        let (along_l, along_k) = (large.strides()[1], large.strides()[2]);
        let form = if m.min(n) > MAX_SMALL {
            Form::Outer
        } else if along_k == 1 || (along_l > 1 && along_k != 0) {
            Form::Rows
        } else {
            Form::Columns
        };
        if form == Form::Outer && (k > MAX_SMALL || sum.is_some() || out.strides()[2] != 1) {
            return None;
        }
        let product = Self { form, ..product };
        (product.fits(caps) && product.is_faster(caps)).then_some(product)
    }

    fn sizes(&self) -> [u64; 4] {
        [self.small.sizes()[0], self.small.sizes()[1], self.large.sizes()[1], self.small.sizes()[2]]
    }

    /// Whether it can be launched, in pieces if necessary.
    fn fits(&self, caps: &DeviceCaps) -> bool {
        let one = self.of_batch(0);
        let [g, s, l, k] = self.sizes();
        let (width, step) = self.form.tile();
        let piece = match self.form {
            Form::Rows => one.large.narrow(1, 0, width.min(l)),
            Form::Columns => one.large.narrow(2, 0, step.min(k)),
            Form::Outer => one.out.narrow(1, 0, width.min(s)),
        };
        let whole = if self.form == Form::Outer { one.large } else { one.out };
        let whole =
            one.sum.map_or(whole, |sum| if sum.added.extent() > whole.extent() { sum.added } else { whole });
        let most = u64::from(u16::MAX);
        g <= most && s.div_ceil(width) <= most && [one.small, whole, piece].iter().all(|view| view.fits(caps))
    }

    /// Compares the lower bounds of arithmetic (with padding) and memory with those of the GEMM.
    fn is_faster(&self, caps: &DeviceCaps) -> bool {
        let [g, s, l, k] = self.sizes();
        let size = self.small.dtype.size();
        let bytes = g * (s * k + l * k + s * l) * size;
        let floor = |terms: u64, bytes| {
            let (arithmetic, memory) = caps.floors(2 * g * terms, bytes);
            arithmetic.max(memory)
        };
        let (width, step) = self.form.tile();
        let padded = match self.form {
            Form::Outer => s * l.next_multiple_of(width) * self.depth_of_tile(),
            _ => self.depth_of_tile() * l.next_multiple_of(width) * k.next_multiple_of(step),
        };
        // The GEMM packs the operand with rows of results, which is written and read once more.
        let tiled = s.next_multiple_of(TILE) * l.next_multiple_of(TILE) * k.next_multiple_of(8);
        floor(padded, bytes) <= floor(tiled, bytes + 2 * g * s * k * size)
    }

    /// The kernel's S.
    fn depth_of_tile(&self) -> u64 {
        let [_, s, _, k] = self.sizes();
        if (if self.form == Form::Outer { k } else { s }) <= 4 { 4 } else { MAX_SMALL }
    }

    fn of_batch(&self, g: u64) -> Self {
        self.with(|view| view.narrow(0, g, 1), |view| view.narrow(0, g, 1), |view| view.narrow(0, g, 1))
    }

    fn with(
        &self,
        small: impl Fn(&View) -> View,
        large: impl Fn(&View) -> View,
        out: impl Fn(&View) -> View,
    ) -> Self {
        let sum = self.sum.map(|sum| Sum { added: out(&sum.added).without_idle_strides(), ..sum });
        let [small, large, out] =
            [small(&self.small), large(&self.large), out(&self.out)].map(|view| view.without_idle_strides());
        Self { form: self.form, small, large, out, sum }
    }

    /// Launches it.
    ///
    /// # Errors
    /// [`OpError::Device`] where the device fails.
    pub fn run(&self, queue: &mut dyn Queue) -> Result<(), OpError> {
        let [g, s, l, k] = self.sizes();
        let all = [&self.small, &self.large, &self.out];
        let large = if self.form == Form::Outer { &self.out } else { &self.large };
        if g > 1 && !all.iter().all(|view| view.fits(queue.caps())) {
            return (0..g).try_for_each(|at| self.of_batch(at).run(queue));
        }
        match self.form {
            Form::Rows if self.large.strides()[2] != 1 => {
                let dtype = self.large.dtype;
                scratch(queue, dtype, self.large.sizes(), |queue, plain| {
                    copy(queue, &self.large, plain)?;
                    Self { large: *plain, ..*self }.run(queue)
                })
            }
            Form::Rows if !large.fits(queue.caps()) => {
                in_pieces(queue, l, large, 1, 32).try_for_each(|(at, count)| {
                    let part = self.with(|v| *v, |v| v.narrow(1, at, count), |v| v.narrow(2, at, count));
                    part.sums(queue)
                })
            }
            Form::Outer if !large.fits(queue.caps()) => {
                in_pieces(queue, s, large, 1, 1).try_for_each(|(at, count)| {
                    let part = self.with(|v| v.narrow(1, at, count), |v| *v, |v| v.narrow(1, at, count));
                    part.launch(queue, k, 0, None)
                })
            }
            Form::Outer => self.launch(queue, k, 0, None),
            _ => self.sums(queue),
        }
    }

    /// Computes the sums. Splits k where one workgroup per sum would leave the device idle.
    fn sums(&self, queue: &mut dyn Queue) -> Result<(), OpError> {
        let [g, s, l, k] = self.sizes();
        let (width, step) = self.form.tile();
        let groups = g * l.div_ceil(width);
        let wanted = (u64::from(queue.caps().compute_units) * GROUPS_PER_CU).div_ceil(groups);
        let worth = k * self.large.dtype.size() / (2 * 4 * s * PARTS_SHARE);
        let splits = wanted.min(worth).min(k / 256).max(1);
        let mut chunk = k.div_ceil(splits).next_multiple_of(step).min(self.form.longest());
        // Rows of k that one launch can bind.
        let mut bound = k;
        if self.form == Form::Columns && !self.large.fits(queue.caps()) {
            let (_, most) = in_pieces(queue, k, &self.large, 2, step).next().unwrap_or_default();
            chunk = chunk.min(most);
            bound = most / chunk * chunk;
        }
        let splits = k.div_ceil(chunk);
        if splits == 1 {
            return self.launch(queue, chunk, 0, None);
        }
        scratch(queue, ElementType::F32, &[splits, g, s, l], |queue, parts| {
            for at in (0..k).step_by(bound as usize) {
                let count = bound.min(k - at);
                let part = self.with(|v| v.narrow(2, at, count), |v| v.narrow(2, at, count), |v| *v);
                part.launch(queue, chunk, at / chunk, Some(parts))?;
            }
            reduce(queue, Reduce::Sum, parts, &[0], &self.out)?;
            self.sum.map_or(Ok(()), |sum| sum.finish(queue, &self.out))
        })
    }

    /// Whether the kernel can read four neighbours at once.
    fn is_wide(&self) -> bool {
        let (view, dim) = match self.form {
            Form::Rows => (&self.large, 2),
            Form::Columns => (&self.large, 1),
            Form::Outer => (&self.out, 2),
        };
        let (sizes, strides) = (view.sizes(), view.strides());
        let others_align = (0..3).all(|other| other == dim || strides[other].is_multiple_of(4));
        let is_dense = strides[dim] == 1 && sizes[dim].is_multiple_of(4);
        is_dense && others_align && view.address.is_multiple_of(4 * view.dtype.size())
    }

    /// One launch, which writes `out`, or the partial results from number `first` on.
    fn launch(
        &self,
        queue: &mut dyn Queue,
        chunk: u64,
        first: u64,
        parts: Option<&View>,
    ) -> Result<(), OpError> {
        let [g, s, l, k] = self.sizes();
        let to = parts.unwrap_or(&self.out);
        let bound = write(queue, to)?;
        let (splits, outs) = match parts {
            Some(parts) => (parts.strides()[0], &parts.strides()[1..]),
            None => (0, self.out.strides()),
        };
        let sum = self.sum.as_ref().filter(|sum| sum.beta != 0.0);
        let added = sum.map_or(Ok(bound.unused()), |sum| read(queue, &sum.added))?;
        let buffers = skinny::Buffers {
            small: read(queue, &self.small)?,
            wide: read(queue, &self.large)?,
            dst: if parts.is_some() { bound.unused() } else { bound },
            parts: if parts.is_some() { bound } else { bound.unused() },
            added,
        };
        // The kernel's order: rows of the side, the sum, batches.
        let [small_g, small_s, small_k] = strides(&self.small)?;
        let [large_g, large_l, large_k] = strides(&self.large)?;
        let [out_g, out_s, out_l] = fit_all([outs[0], outs[1], outs[2]])?;
        let [add_g, add_s, add_l] = sum.map_or(Ok([0; 3]), |sum| strides(&sum.added))?;
        let [alpha, beta] = self.sum.map_or([1.0, 0.0], |sum| [sum.alpha, sum.beta]);
        let size = self.large.dtype.size();
        let (width, _) = self.form.tile();
        let down = if self.form == Form::Outer { s.div_ceil(width) } else { k.div_ceil(chunk) };
        Call {
            kernel: self.kernel()?,
            params: skinny::Params {
                small: fit(s)?,
                large: fit(l)?,
                depth: fit(k)?,
                chunk: fit(chunk)?,
                small_s,
                small_k,
                small_g,
                large_l,
                large_k,
                large_g,
                out_s,
                out_l,
                out_g,
                out_split: fit(splits)?,
                small_at: fit(buffers.small.at())?,
                large_at: fit(buffers.wide.at())?,
                out_at: fit(bound.at() + first * splits)?,
                partial: parts.is_some().into(),
                add_s,
                add_l,
                add_g,
                add_at: fit(added.at())?,
                alpha: alpha as f32,
                beta: beta as f32,
            },
            buffers,
            flops: 2 * g * s * l * k,
            bytes: g * (s * k + l * k + s * l) * size,
        }
        .launch(queue, [l.div_ceil(width) as u32, down as u32, g as u32])
    }

    fn kernel(&self) -> Result<Name<skinny::Kernel>, OpError> {
        let names = match (self.form, self.is_wide(), self.depth_of_tile()) {
            (Form::Rows, true, 4) => skinny::R4,
            (Form::Rows, true, _) => skinny::R16,
            (Form::Rows, false, _) => skinny::R16S,
            (Form::Columns, true, 4) => skinny::C4,
            (Form::Columns, true, _) => skinny::C16,
            (Form::Columns, false, _) => skinny::C16S,
            (Form::Outer, true, 4) => skinny::O4,
            (Form::Outer, true, _) => skinny::O16,
            (Form::Outer, false, _) => skinny::O16S,
        };
        let dtype = self.small.dtype;
        by_float(names, dtype).ok_or_else(|| OpError::refused("element-type", format!("{dtype:?}")))
    }
}

/// Of batches, rows, columns.
fn strides(view: &View) -> Result<[u32; 3], OpError> {
    let strides = view.strides();
    fit_all([strides[0], strides[1], strides[2]])
}

/// Runs of at most as many indices of dimension `dim` of a view (of `all`) as the device binds: starts and lengths, the
/// lengths multiples of `step` but for the last.
fn in_pieces(
    queue: &dyn Queue,
    all: u64,
    view: &View,
    dim: usize,
    step: u64,
) -> impl Iterator<Item = (u64, u64)> + use<> {
    let caps = queue.caps();
    let (mut low, mut high) = (1, all.div_ceil(step));
    // The most steps that fit; one does, or `fits` had said so.
    while low < high {
        let middle = (low + high).div_ceil(2);
        if view.narrow(dim, 0, (middle * step).min(all)).fits(caps) {
            low = middle
        } else {
            high = middle - 1
        }
    }
    let piece = low * step;
    (0..all.div_ceil(piece)).map(move |n| (n * piece, piece.min(all - n * piece)))
}
