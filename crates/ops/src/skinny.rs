//! Matrix products with a small side (`kernels/skinny.kern`): bound by reading or writing the one large operand once,
//! where tiles of 64 x 64 would be mostly padding.

use crate::scratch::scratch;
use crate::{Call, DType, Elementwise, Op, OpError, Queue, Reduce, View, copy, reduce};
use wave32_solve::DeviceCaps;

/// Most rows of the small side.
const MOST: u64 = 16;
/// Workgroups that keep a compute unit's loads in flight.
const GROUPS_PER_CU: u64 = 4;
/// Sums of partial results may cost that share of reading the large operand.
const PARTS_SHARE: u64 = 8;
/// Rows and columns of the tiles that the GEMM would use.
const TILE: u64 = 64;

/// What is made of a product of matrices: `alpha * product + beta * added`.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    /// Of the product's sizes and type (broadcast: strides of 0).
    pub added: View,
    /// With 0 what is added is not even looked at: it may be NaN.
    pub beta: f64,
    /// Factor of the product.
    pub alpha: f64,
}

impl Sum {
    /// Makes it of a product that stands in `out`.
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

/// How the large operand is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Neighbouring lanes along the sum.
    Rows,
    /// Neighbouring lanes along the results.
    Columns,
    /// A sum so short that writing the results is all the work.
    Outer,
}

impl Form {
    /// Results along `many` of a workgroup, and what the sum's length is padded to.
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

/// `out[g][s][l]` = sum over k of `few[g][s][k] * many[g][l][k]`, and what is made of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Skinny {
    form: Form,
    few: View,
    many: View,
    out: View,
    sum: Option<Sum>,
}

impl Skinny {
    /// The product `out = a * b` of batches of matrices (with `sum` made of it), where this way is the faster one by the floors of both; `None`
    /// where it is not.
    pub fn choose(caps: &DeviceCaps, a: &View, b: &View, out: &View, sum: Option<&Sum>) -> Option<Self> {
        let [m, k, n] = [a.sizes()[1], a.sizes()[2], b.sizes()[2]];
        if a.dtype.size() < 4 && !caps.storage_16bit {
            return None;
        }
        let (few, many) = (*a, b.transposed());
        let as_it_is = Self { form: Form::Outer, few, many, out: *out, sum: sum.copied() };
        let turned = Self { few: many, many: few, ..as_it_is }.with(|v| *v, |v| *v, View::transposed);
        let is_turned = m.min(n) <= MOST && m > n;
        let product = if is_turned { turned } else { as_it_is.with(|v| *v, |v| *v, |v| *v) };
        let Self { many, out, .. } = product;
        let (along_l, along_k) = (many.strides()[1], many.strides()[2]);
        let form = if m.min(n) > MOST {
            Form::Outer
        } else if along_k == 1 || (along_l > 1 && along_k != 0) {
            Form::Rows
        } else {
            Form::Columns
        };
        if form == Form::Outer && (k > MOST || sum.is_some() || out.strides()[2] != 1) {
            return None;
        }
        let product = Self { form, ..product };
        (product.fits(caps) && product.is_faster(caps)).then_some(product)
    }

    fn sizes(&self) -> [u64; 4] {
        [self.few.sizes()[0], self.few.sizes()[1], self.many.sizes()[1], self.few.sizes()[2]]
    }

    /// Can it be launched, in pieces if need be?
    fn fits(&self, caps: &DeviceCaps) -> bool {
        let one = self.of_batch(0);
        let [g, s, l, k] = self.sizes();
        let (width, step) = self.form.tile();
        let piece = match self.form {
            Form::Rows => one.many.narrow(1, 0, width.min(l)),
            Form::Columns => one.many.narrow(2, 0, step.min(k)),
            Form::Outer => one.out.narrow(1, 0, width.min(s)),
        };
        let whole = if self.form == Form::Outer { one.many } else { one.out };
        let whole =
            one.sum.map_or(whole, |sum| if sum.added.extent() > whole.extent() { sum.added } else { whole });
        let most = u64::from(u16::MAX);
        g <= most && s.div_ceil(width) <= most && [one.few, whole, piece].iter().all(|view| view.fits(caps))
    }

    /// By the floors of arithmetic, padding included, and of memory.
    fn is_faster(&self, caps: &DeviceCaps) -> bool {
        let [g, s, l, k] = self.sizes();
        let size = self.few.dtype.size();
        let bytes = g * (s * k + l * k + s * l) * size;
        let floor = |terms: u64, bytes| {
            let (arithmetic, memory) = caps.floors(2 * g * terms, bytes);
            arithmetic.max(memory)
        };
        let (width, step) = self.form.tile();
        let padded = match self.form {
            Form::Outer => s * l.next_multiple_of(width) * self.small(),
            _ => self.small() * l.next_multiple_of(width) * k.next_multiple_of(step),
        };
        // The GEMM packs the operand with rows of results, which is written and read once more.
        let tiled = s.next_multiple_of(TILE) * l.next_multiple_of(TILE) * k.next_multiple_of(8);
        floor(padded, bytes) <= floor(tiled, bytes + 2 * g * s * k * size)
    }

    /// The kernel's S.
    fn small(&self) -> u64 {
        let [_, s, _, k] = self.sizes();
        if (if self.form == Form::Outer { k } else { s }) <= 4 { 4 } else { MOST }
    }

    fn of_batch(&self, g: u64) -> Self {
        self.with(|view| view.narrow(0, g, 1), |view| view.narrow(0, g, 1), |view| view.narrow(0, g, 1))
    }

    fn with(
        &self,
        few: impl Fn(&View) -> View,
        many: impl Fn(&View) -> View,
        out: impl Fn(&View) -> View,
    ) -> Self {
        let sum = self.sum.map(|sum| Sum { added: out(&sum.added).without_idle_strides(), ..sum });
        let [few, many, out] =
            [few(&self.few), many(&self.many), out(&self.out)].map(|view| view.without_idle_strides());
        Self { form: self.form, few, many, out, sum }
    }

    /// Launches it.
    ///
    /// # Errors
    /// The device's.
    pub fn run(&self, queue: &mut dyn Queue) -> Result<(), OpError> {
        let [g, s, l, k] = self.sizes();
        let all = [&self.few, &self.many, &self.out];
        let large = if self.form == Form::Outer { &self.out } else { &self.many };
        if g > 1 && !all.iter().all(|view| view.fits(queue.caps())) {
            return (0..g).try_for_each(|at| self.of_batch(at).run(queue));
        }
        match self.form {
            Form::Rows if self.many.strides()[2] != 1 => {
                let dtype = self.many.dtype;
                scratch(queue, dtype, self.many.sizes(), |queue, plain| {
                    copy(queue, &self.many, plain)?;
                    Self { many: *plain, ..*self }.run(queue)
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

    /// The sums, of parts of k where one workgroup each would leave the device idle.
    fn sums(&self, queue: &mut dyn Queue) -> Result<(), OpError> {
        let [g, s, l, k] = self.sizes();
        let (width, step) = self.form.tile();
        let groups = g * l.div_ceil(width);
        let wanted = (u64::from(queue.caps().compute_units) * GROUPS_PER_CU).div_ceil(groups);
        let worth = k * self.many.dtype.size() / (2 * 4 * s * PARTS_SHARE);
        let splits = wanted.min(worth).min(k / 256).max(1);
        let mut chunk = k.div_ceil(splits).next_multiple_of(step).min(self.form.longest());
        // Rows of k that one launch can bind.
        let mut bound = k;
        if self.form == Form::Columns && !self.many.fits(queue.caps()) {
            let (_, most) = in_pieces(queue, k, &self.many, 2, step).next().unwrap_or_default();
            chunk = chunk.min(most);
            bound = most / chunk * chunk;
        }
        let splits = k.div_ceil(chunk);
        if splits == 1 {
            return self.launch(queue, chunk, 0, None);
        }
        scratch(queue, DType::F32, &[splits, g, s, l], |queue, parts| {
            for at in (0..k).step_by(bound as usize) {
                let count = bound.min(k - at);
                let part = self.with(|v| v.narrow(2, at, count), |v| v.narrow(2, at, count), |v| *v);
                part.launch(queue, chunk, at / chunk, Some(parts))?;
            }
            reduce(queue, Reduce::Sum, parts, &[0], &self.out)?;
            self.sum.map_or(Ok(()), |sum| sum.finish(queue, &self.out))
        })
    }

    /// May the kernel take four neighbours at once?
    fn is_wide(&self) -> bool {
        let (view, dim) = match self.form {
            Form::Rows => (&self.many, 2),
            Form::Columns => (&self.many, 1),
            Form::Outer => (&self.out, 2),
        };
        let (sizes, strides) = (view.sizes(), view.strides());
        let others_align = (0..3).all(|other| other == dim || strides[other].is_multiple_of(4));
        let is_dense = strides[dim] == 1 && sizes[dim].is_multiple_of(4);
        is_dense && others_align && view.address.is_multiple_of(4 * view.dtype.size())
    }

    /// One launch, of `out` or of the parts from number `first` on.
    fn launch(
        &self,
        queue: &mut dyn Queue,
        chunk: u64,
        first: u64,
        parts: Option<&View>,
    ) -> Result<(), OpError> {
        let [g, s, l, k] = self.sizes();
        let to = parts.unwrap_or(&self.out);
        let mut call = Call::new();
        let few_at = call.view(queue, &self.few, false)?;
        let many_at = call.view(queue, &self.many, false)?;
        call.view(queue, to, true)?;
        let to_at = u64::from(call.view(queue, to, true)?);
        let (splits, outs, at) = match parts {
            Some(parts) => (parts.strides()[0], &parts.strides()[1..], to_at + first * parts.strides()[0]),
            None => (0, self.out.strides(), to_at),
        };
        let swap = |strides: &[u64]| [strides[1], strides[2], strides[0]];
        call.numbers(&[s, l, k, chunk])?.numbers(&swap(self.few.strides()))?;
        call.numbers(&swap(self.many.strides()))?.numbers(&swap(outs))?;
        call.numbers(&[splits, few_at.into(), many_at.into(), at])?.word(parts.is_some().into());
        match &self.sum {
            Some(sum) if sum.beta != 0.0 => {
                let at = call.view(queue, &sum.added, false)?;
                call.numbers(&swap(sum.added.strides()))?.word(at);
            }
            _ => {
                call.view(queue, to, true)?;
                call.words([0; 4]);
            }
        }
        let [alpha, beta] = self.sum.map_or([1.0, 0.0], |sum| [sum.alpha, sum.beta]);
        call.float(alpha as f32).float(beta as f32);
        let size = self.many.dtype.size();
        call.work(2 * g * s * l * k, g * (s * k + l * k + s * l) * size);
        let (width, _) = self.form.tile();
        let down = if self.form == Form::Outer { s.div_ceil(width) } else { k.div_ceil(chunk) };
        call.launch(queue, self.kernel(), [l.div_ceil(width) as u32, down as u32, g as u32])
    }

    fn kernel(&self) -> &'static str {
        macro_rules! of_type {
            ($tag:literal) => {
                match self.few.dtype {
                    DType::F16 => concat!("skinny_", $tag, "_f16"),
                    DType::BF16 => concat!("skinny_", $tag, "_bf16"),
                    _ => concat!("skinny_", $tag, "_f32"),
                }
            };
        }
        match (self.form, self.is_wide(), self.small()) {
            (Form::Rows, true, 4) => of_type!("r4"),
            (Form::Rows, true, _) => of_type!("r16"),
            (Form::Rows, false, _) => of_type!("r16s"),
            (Form::Columns, true, 4) => of_type!("c4"),
            (Form::Columns, true, _) => of_type!("c16"),
            (Form::Columns, false, _) => of_type!("c16s"),
            (Form::Outer, true, 4) => of_type!("o4"),
            (Form::Outer, true, _) => of_type!("o16"),
            (Form::Outer, false, _) => of_type!("o16s"),
        }
    }
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
