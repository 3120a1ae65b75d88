//! The launches of a reduction: one, or one for parts of the reduced elements and one that joins them.

use crate::call::{Call, fit, fit_all, fit_inner, flag, read, write};
use crate::lanes::Lanes;
use crate::{Common, ElementType, Kind, OpError, Queue, View, copy};
use wave32_params::group::{LANES_DEEP, LANES_WIDE};
use wave32_params::reduction::SUM;
use wave32_params::{Name, reduction};

/// Elements that a lane reads at once where they lie together.
const LOT: u64 = 4;
/// Of `Ops::whole`: all but what becomes of the result.
const OF_ELEMENTS: u32 = 255;

/// A mode of `kernels/reduction.kern`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    kernel: Name<reduction::Kernel>,
    partial: ElementType,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Plain,
    Extreme,
    Moments,
}

impl Family {
    fn new(kind: Kind, mode: Mode, kernels: [Name<reduction::Kernel>; 3]) -> Self {
        let (kernel, partial) = match kind {
            Kind::Float => (kernels[0], ElementType::F32),
            Kind::Int => (kernels[1], ElementType::I64),
            Kind::Double => (kernels[2], ElementType::F64),
        };
        Self { kernel, partial, mode }
    }

    pub fn plain(kind: Kind) -> Self {
        Self::new(kind, Mode::Plain, [reduction::F, reduction::I, reduction::D])
    }

    /// True where floats may be read by four.
    fn takes_lots(&self) -> bool {
        self.mode != Mode::Extreme && self.partial == ElementType::F32
    }

    /// Sums of floats whose results lie together, by four.
    fn columns() -> Self {
        Self { kernel: reduction::COLS, ..Self::plain(Kind::Float) }
    }

    /// Of floats: with elements to any power.
    pub fn power() -> Self {
        Self { kernel: reduction::POW, ..Self::plain(Kind::Float) }
    }

    pub fn extreme(kind: Kind) -> Self {
        Self::new(kind, Mode::Extreme, [reduction::ARGF, reduction::ARGI, reduction::ARGD])
    }

    /// Of floats.
    pub fn moments(kind: Kind) -> Self {
        Self::new(kind, Mode::Moments, [reduction::VARF, reduction::VARF, reduction::VARD])
    }
}

/// The kernel's `op` where one launch does it all, for parts, and for what joins them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ops {
    pub whole: u32,
    pub part: u32,
    pub last: u32,
}

/// What to reduce: kept and reduced dimensions, each merged.
#[derive(Debug)]
pub(crate) struct Job {
    input: View,
    dims: Vec<usize>,
    kept: Common,
    reduced: Common,
    /// Results.
    pub outs: u64,
    /// Reduced elements of each.
    pub count: u64,
    /// The kernel's scalar.
    pub scalar: f32,
}

/// One side of a launch: a buffer, where it begins, and its strides over the kept dimensions.
struct Side<'a> {
    views: [&'a View; 2],
    offset: u64,
    strides: [u64; 4],
}

struct Pass<'a> {
    op: u32,
    lanes: Lanes,
    kept: [u64; 4],
    count: u64,
    from: Side<'a>,
    to: Side<'a>,
    sizes: [u64; 4],
    strides: [u64; 4],
    plane: u64,
    deep: bool,
    lots: Lots,
}

/// What a lane reads four of at once, which lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lots {
    None,
    /// Reduced elements.
    Reduced,
    /// Those of four results.
    Kept,
}

/// How threads share the elements.
#[derive(Debug, Clone, Copy)]
struct Layout {
    lanes: Lanes,
    lots: Lots,
    /// The family that reads so.
    family: Family,
}

impl Job {
    /// `outs` share sizes and strides. `in_order` keeps the reduced elements' order, which otherwise becomes
    /// that of memory.
    pub fn new(input: &View, dims: &[usize], outs: &[&View], in_order: bool) -> Result<Self, OpError> {
        let out = outs[0];
        let is_kept = |dim: &usize| !dims.contains(dim);
        let (rank, keeps_dims) = (input.rank(), out.rank() == input.rank());
        let mut kept: Vec<(u64, u64, u64)> = Vec::new();
        for (at, dim) in (0..rank).filter(is_kept).enumerate() {
            let stride = out.strides().get(if keeps_dims { dim } else { at });
            kept.push((input.sizes()[dim], input.strides()[dim], stride.copied().unwrap_or(0)));
        }
        let expected: Vec<u64> = if keeps_dims {
            (0..rank).map(|dim| if is_kept(&dim) { input.sizes()[dim] } else { 1 }).collect()
        } else {
            kept.iter().map(|dim| dim.0).collect()
        };
        if out.sizes() != expected || dims.iter().any(|&dim| dim >= rank) {
            let detail = format!("{:?} over {dims:?} into {:?}", input.sizes(), out.sizes());
            return Err(OpError::refused("different-sizes", detail));
        }
        if outs.iter().any(|other| (other.sizes(), other.strides()) != (out.sizes(), out.strides())) {
            return Err(OpError::refused("different-strides", "of the results"));
        }
        let mut reduced: Vec<(u64, u64)> = (0..rank)
            .filter(|dim| dims.contains(dim))
            .map(|dim| (input.sizes()[dim], input.strides()[dim]))
            .collect();
        // Innermost what lies closest.
        kept.sort_by_key(|dim| std::cmp::Reverse(dim.1));
        if !in_order {
            reduced.sort_by_key(|dim| std::cmp::Reverse(dim.1));
        }
        let side = |pick: fn(&(u64, u64, u64)) -> u64| {
            let (sizes, strides): (Vec<u64>, Vec<u64>) = kept.iter().map(|dim| (dim.0, pick(dim))).unzip();
            View::new(0, ElementType::F32, &sizes, &strides)
        };
        let kept = Common::new(&[&side(|dim| dim.1)?, &side(|dim| dim.2)?]);
        let (sizes, strides): (Vec<u64>, Vec<u64>) = reduced.into_iter().unzip();
        let reduced = Common::new(&[&View::new(0, ElementType::F32, &sizes, &strides)?]);
        let (outs, count) = (kept.elements(), reduced.elements());
        Ok(Self { input: *input, dims: dims.to_vec(), kept, reduced, outs, count, scalar: 0.0 })
    }

    /// Reduces into `outs`.
    pub fn run(
        &self,
        queue: &mut dyn Queue,
        family: Family,
        ops: Ops,
        outs: &[&View],
    ) -> Result<(), OpError> {
        if self.outs == 0 {
            return Ok(());
        }
        if self.reduced.sizes.len() > 4 {
            return self.run_plain(queue, family, ops, outs);
        }
        let views = [outs[0], outs[outs.len() - 1]];
        let layout = self.layout(family, ops);
        self.kept.outer(4, |offsets| {
            let to = Side { views, offset: offsets[1], strides: self.kept.strides4(1) };
            if layout.lanes.splits == 1 {
                return self.pass(ops.whole, layout, offsets[0], to).launch(
                    queue,
                    layout.family,
                    self.scalar,
                );
            }
            let scratch = Scratch::new(queue, family, layout.lanes.splits, self.inner())?;
            let part = Side {
                views: [&scratch.values, &scratch.places],
                offset: 0,
                strides: contiguous(self.kept.sizes4()),
            };
            let parts = Pass { plane: scratch.plane, ..self.pass(ops.part, layout, offsets[0], part) };
            let done = parts.launch(queue, layout.family, self.scalar).and_then(|()| {
                let pass = scratch.join(ops.last, self.kept.sizes4(), to);
                pass.launch(queue, family, self.scalar)
            });
            queue.retire(scratch.values.address);
            done
        })
    }

    /// On a copy of the input whose reduced dimensions merge.
    fn run_plain(
        &self,
        queue: &mut dyn Queue,
        family: Family,
        ops: Ops,
        outs: &[&View],
    ) -> Result<(), OpError> {
        let rank = self.input.rank();
        let is_reduced = |dim: &usize| self.dims.contains(dim);
        let kept = (0..rank).filter(|dim| !is_reduced(dim));
        let order: Vec<usize> = kept.chain((0..rank).filter(is_reduced)).collect();
        let (mut strides, mut stride) = (vec![0; rank], 1);
        for &dim in order.iter().rev() {
            (strides[dim], stride) = (stride, stride * self.input.sizes()[dim]);
        }
        let address = queue.alloc(self.input.elements() * self.input.dtype.size())?;
        let done = View::new(address, self.input.dtype, self.input.sizes(), &strides).and_then(|plain| {
            copy(queue, &self.input, &plain)?;
            let job = Self { scalar: self.scalar, ..Self::new(&plain, &self.dims, outs, true)? };
            job.run(queue, family, ops, outs)
        });
        queue.retire(address);
        done
    }

    fn layout(&self, family: Family, ops: Ops) -> Layout {
        let (mut outs, mut count, mut read_by) = (self.inner(), self.count, family);
        let lots = self.lots(family, ops);
        match lots {
            Lots::None => {}
            Lots::Reduced => count /= LOT,
            Lots::Kept => (outs, read_by) = (outs / LOT, Family::columns()),
        }
        Layout { lanes: Lanes::new(outs, count, self.is_along()), lots, family: read_by }
    }

    /// True where neighbouring lanes read neighbouring reduced elements.
    fn is_along(&self) -> bool {
        let stride = |common: &Common| common.strides[0].last().copied().unwrap_or(0);
        self.inner() == 1 || stride(&self.reduced) <= stride(&self.kept)
    }

    /// Which floats lie together in lots of four, if the kernel reads them so.
    fn lots(&self, family: Family, ops: Ops) -> Lots {
        let is_float = matches!(self.input.dtype, ElementType::F32 | ElementType::F16 | ElementType::BF16);
        if !(is_float
            && family.takes_lots()
            && self.reduced.sizes.len() <= 2
            && self.input.begins_with_vector())
        {
            return Lots::None;
        }
        let is_sum = family.mode == Mode::Plain && ops.whole & OF_ELEMENTS == SUM << 4;
        let (lots, of, other) = match self.is_along() {
            true => (Lots::Reduced, &self.reduced, &self.kept),
            false if is_sum => (Lots::Kept, &self.kept, &self.reduced),
            false => return Lots::None,
        };
        if has_lots(of) && steps_by_lots(other, other.sizes.len()) { lots } else { Lots::None }
    }

    /// Results of one launch.
    fn inner(&self) -> u64 {
        self.kept.sizes4().iter().product()
    }

    fn pass<'a>(&'a self, op: u32, layout: Layout, offset: u64, mut to: Side<'a>) -> Pass<'a> {
        let Layout { lanes, lots, .. } = layout;
        let mut from = Side { views: [&self.input; 2], offset, strides: self.kept.strides4(0) };
        let mut kept = self.kept.sizes4();
        let (mut count, mut sizes, mut strides) =
            (self.count, self.reduced.sizes4(), self.reduced.strides4(0));
        match lots {
            Lots::None => {}
            Lots::Reduced => (count, sizes[3], strides[3]) = (count / LOT, sizes[3] / LOT, LOT),
            Lots::Kept => {
                (kept[3], from.strides[3]) = (kept[3] / LOT, LOT);
                to.strides[3] *= LOT;
            }
        }
        Pass {
            op,
            lanes,
            kept,
            count,
            from,
            to,
            sizes,
            strides,
            lots,
            plane: 0,
            deep: self.reduced.sizes.len() > 2,
        }
    }
}

impl Pass<'_> {
    fn launch(&self, queue: &mut dyn Queue, family: Family, scalar: f32) -> Result<(), OpError> {
        // Something must be bound where there is nothing to read.
        let input = if self.count == 0 { self.to.views[0] } else { self.from.views[0] };
        let [first, second] = self.to.views;
        let dst = write(queue, first)?;
        let dst2 = if family.mode == Mode::Plain { dst.unused() } else { write(queue, second)? };
        let (src_places, plane) = if family.mode == Mode::Extreme {
            let places = read(queue, self.from.views[1])?;
            (places, places.at())
        } else {
            (dst.unused(), self.plane)
        };
        let buffers = reduction::Buffers { src: read(queue, input)?, dst, dst2, src_places };
        let outs: u64 = self.kept.iter().product();
        let elements = self.count * if self.lots == Lots::None { 1 } else { LOT };
        let groups = u32::try_from(self.lanes.groups).ok().filter(|_| outs < 1 << 31 && self.count < 1 << 31);
        let groups = groups
            .ok_or_else(|| OpError::refused("too-many-elements", format!("{outs} x {}", self.count)))?;
        Call {
            kernel: family.kernel,
            params: reduction::Params {
                outs: fit(outs)?,
                count: fit(self.count)?,
                op: self.op,
                in_type: input.dtype.code(),
                out_type: first.dtype.code(),
                out2_type: second.dtype.code(),
                in_at: fit(buffers.src.at() + self.from.offset)?,
                out_at: fit(dst.at() + self.to.offset)?,
                out2_at: fit(dst2.at() + self.to.offset)?,
                k: fit_inner(self.kept)?,
                a: fit_all(self.from.strides)?,
                o: fit_all(self.to.strides)?,
                r: fit_inner(self.sizes.map(|size| size.max(1)))?,
                b: fit_all(self.strides)?,
                lanes: self.lanes.word
                    | flag(self.deep, LANES_DEEP)
                    | flag(self.lots == Lots::Reduced, LANES_WIDE),
                chunk: fit(self.lanes.chunk)?,
                scalar,
                plane: fit(plane)?,
            },
            buffers,
            flops: outs * elements * 4,
            bytes: outs * elements * input.dtype.size(),
        }
        .launch(queue, [groups, self.lanes.splits as u32, 1])
    }
}

/// Room for the results of parts: planes of `[parts][results]`.
struct Scratch {
    values: View,
    places: View,
    outs: u64,
    splits: u64,
    plane: u64,
}

impl Scratch {
    fn new(queue: &mut dyn Queue, family: Family, splits: u64, outs: u64) -> Result<Self, OpError> {
        let planes = if family.mode == Mode::Moments { 4 } else { 1 };
        let (size, plane) = (family.partial.size(), splits * outs);
        let values = (planes * plane * size).next_multiple_of(16);
        let address = queue.alloc(values + if family.mode == Mode::Extreme { plane * 4 } else { 0 })?;
        let values_view = View::new(address, family.partial, &[planes, splits, outs], &[plane, outs, 1])?;
        let mut places = values_view;
        if family.mode == Mode::Extreme {
            places = View::contiguous(address + values, ElementType::I32, &[splits, outs])?;
        }
        Ok(Self { values: values_view, places, outs, splits, plane })
    }

    /// The launch that joins the parts.
    fn join<'a>(&'a self, op: u32, kept: [u64; 4], to: Side<'a>) -> Pass<'a> {
        Pass {
            op,
            lanes: Lanes::whole(self.outs, self.splits, false),
            kept,
            count: self.splits,
            from: Side { views: [&self.values, &self.places], offset: 0, strides: contiguous(kept) },
            to,
            sizes: [1, 1, 1, self.splits],
            strides: [0, 0, 0, self.outs],
            plane: self.plane,
            deep: false,
            lots: Lots::None,
        }
    }
}

/// True where the innermost dimension is of lots of four that lie together.
fn has_lots(of: &Common) -> bool {
    let inner = of.sizes.len().saturating_sub(1);
    of.strides[0].last() == Some(&1)
        && of.sizes.last().is_some_and(|size| size.is_multiple_of(LOT))
        && steps_by_lots(of, inner)
}

/// True where every step along the first `dims` dimensions leads from lot to lot.
fn steps_by_lots(of: &Common, dims: usize) -> bool {
    of.strides[0]
        .iter()
        .zip(&of.sizes)
        .take(dims)
        .all(|(stride, &size)| size == 1 || stride.is_multiple_of(LOT))
}

fn contiguous(sizes: [u64; 4]) -> [u64; 4] {
    [sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1]
}
