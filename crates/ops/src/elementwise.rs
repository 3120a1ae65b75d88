//! Elementwise operations. One kernel source has all of them; a parameter selects the operation at run time.

use crate::call::{Bound, Call, by_float, fit, fit_all, fit_inner, read, write};
use crate::op::Op;
use crate::{Common, ElementType, Kind, OpError, Queue, View};
use wave32_params::ew_fast::{FULL, REPEAT, ROWS, SAME};
use wave32_params::{Name, ew, ew_fast};

const PER_GROUP: u64 = 256 * 4;
use wave32_params::ew::T_VALUE as VALUE_TYPE;

/// Kernels by family; vectorized ones by element type too.
const FAST: [[Name<ew_fast::Kernel>; 3]; 8] =
    [ew_fast::V0, ew_fast::V1, ew_fast::V2, ew_fast::V3, ew_fast::V4, ew_fast::V5, ew_fast::V6, ew_fast::V7];
const STRIDED_FLOAT: [Name<ew::Kernel>; 8] = [ew::F0, ew::F1, ew::F2, ew::F3, ew::F4, ew::F5, ew::F6, ew::F7];
const STRIDED_INT: [Name<ew::Kernel>; 3] = [ew::I0, ew::I1, ew::I2];
const STRIDED_DOUBLE: [Name<ew::Kernel>; 8] =
    [ew::D0, ew::D1, ew::D2, ew::D3, ew::D4, ew::D5, ew::D6, ew::D7];

/// A number of the framework's: exact whatever the element type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A whole number or truth value.
    Int(i64),
    /// Anything else.
    Float(f64),
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl Number {
    /// As a float.
    pub fn float(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// As a whole number, truncated.
    pub fn int(self) -> i64 {
        match self {
            Self::Int(value) => value,
            Self::Float(value) => value as i64,
        }
    }

    /// The 64 bits in which kernels of `kind` take it: float and remainder, or the number itself.
    pub(crate) fn bits(self, kind: Kind) -> u64 {
        match kind {
            Kind::Float => {
                let value = self.float();
                let near = value as f32;
                let rest = if near.is_finite() { (value - f64::from(near)) as f32 } else { 0.0 };
                u64::from(near.to_bits()) | u64::from(rest.to_bits()) << 32
            }
            Kind::Int => self.int() as u64,
            Kind::Double => self.float().to_bits(),
        }
    }
}

/// What an elementwise operation reads.
#[derive(Debug, Clone, Copy)]
pub enum Operand<'a> {
    /// A tensor, broadcast to the result's sizes.
    Of(&'a View),
    /// The same number everywhere.
    Value(Number),
}

impl<'a> From<&'a View> for Operand<'a> {
    fn from(view: &'a View) -> Self {
        Self::Of(view)
    }
}

impl From<f64> for Operand<'_> {
    fn from(value: f64) -> Self {
        Self::Value(Number::Float(value))
    }
}

impl From<i64> for Operand<'_> {
    fn from(value: i64) -> Self {
        Self::Value(Number::Int(value))
    }
}

/// An elementwise operation, its type of computation and its parameters.
#[derive(Debug, Clone, Copy)]
pub struct Elementwise {
    /// Which.
    pub op: Op,
    /// The element type in which it computes (f16 and bf16: in f32): the promoted type of the operands.
    pub compute: ElementType,
    /// The parameters that [`Op`] calls s and t.
    pub parameters: [Number; 2],
}

impl Elementwise {
    /// An operation without parameters.
    pub fn new(op: Op, compute: ElementType) -> Self {
        Self { op, compute, parameters: [Number::Int(0); 2] }
    }

    /// With parameters.
    pub fn with(op: Op, compute: ElementType, s: f64, t: f64) -> Self {
        Self { op, compute, parameters: [Number::Float(s), Number::Float(t)] }
    }

    /// `out[i] = op(operands[i]...)`; at most three operands, broadcast to the sizes of `out`. `out` may be an
    /// operand too, but not overlap one otherwise.
    ///
    /// # Errors
    /// `no-such-kind` where the op does not exist in the type of computation; `no-broadcast`,
    /// `too-many-elements`, `range-too-large`, the device's.
    pub fn run(&self, queue: &mut dyn Queue, operands: &[Operand], out: &View) -> Result<(), OpError> {
        debug_assert!(operands.len() <= 3);
        let doubles =
            operands.iter().any(|o| matches!(o, Operand::Of(view) if view.dtype == ElementType::F64));
        let kind = if doubles || out.dtype == ElementType::F64 {
            Kind::Double
        } else if self.op.reads_float() {
            Kind::of([self.compute, ElementType::F32])
        } else {
            Kind::of([self.compute])
        };
        if !self.op.exists_in(kind) {
            return Err(OpError::refused("no-such-kind", format!("{:?} of {kind:?}", self.op)));
        }
        if out.elements() == 0 {
            return Ok(());
        }
        let fits = |view: &View| view.fits(queue.caps());
        let all_fit = fits(out) && operands.iter().all(|o| !matches!(o, Operand::Of(view) if !fits(view)));
        if !all_fit && !matches!(self.op, Op::Arange | Op::Linspace) {
            return self.halves(queue, operands, out);
        }
        let Some(order) = out.order().filter(|_| !out.is_contiguous()) else {
            return self.in_order(queue, kind, operands, out);
        };
        // As the result lies in memory, so that dense tensors of any order of dimensions are contiguous.
        let mut views = [*out; 3];
        for (operand, view) in operands.iter().zip(&mut views) {
            if let Operand::Of(of) = operand {
                *view = of.broadcast(out.sizes())?.permuted(&order);
            }
        }
        let mut permuted = [Operand::Value(Number::Int(0)); 3];
        for ((permuted, operand), view) in permuted.iter_mut().zip(operands).zip(&views) {
            *permuted = if let Operand::Of(_) = operand { Operand::Of(view) } else { *operand };
        }
        self.in_order(queue, kind, &permuted[..operands.len()], &out.permuted(&order))
    }

    /// The dimensions of the result are in the order of its memory.
    fn in_order(
        &self,
        queue: &mut dyn Queue,
        kind: Kind,
        operands: &[Operand],
        out: &View,
    ) -> Result<(), OpError> {
        if self.fast(queue, kind, operands, out)? { Ok(()) } else { self.strided(queue, kind, operands, out) }
    }

    /// What is too large to bind, in two launches or more: cut where the largest operand is longest.
    fn halves(&self, queue: &mut dyn Queue, operands: &[Operand], out: &View) -> Result<(), OpError> {
        let mut wide = [Operand::Value(Number::Int(0)); 3];
        let mut full = [*out; 3];
        for (operand, full) in operands.iter().zip(&mut full) {
            if let Operand::Of(view) = operand {
                *full = view.broadcast(out.sizes())?;
            }
        }
        let bytes = |view: &View| view.extent() * view.dtype.size();
        let largest = full.iter().chain([out]).max_by_key(|view| bytes(view)).unwrap_or(out);
        let length = |&dim: &usize| (largest.sizes()[dim] - 1) * largest.strides()[dim];
        let dim = (0..out.rank()).max_by_key(length).filter(|&dim| out.sizes()[dim] > 1);
        let dim = dim.ok_or_else(|| OpError::refused("range-too-large", "one element"))?;
        let size = out.sizes()[dim];
        for (start, size) in [(0, size / 2), (size / 2, size - size / 2)] {
            let parts = full.map(|view| view.narrow(dim, start, size));
            for ((wide, operand), part) in wide.iter_mut().zip(operands).zip(&parts) {
                *wide = if let Operand::Of(_) = operand { Operand::Of(part) } else { *operand };
            }
            self.run(queue, &wide[..operands.len()], &out.narrow(dim, start, size))?;
            wide = [Operand::Value(Number::Int(0)); 3];
        }
        Ok(())
    }

    fn flops(&self, count: u64) -> u64 {
        count * if (self.op as u32) < Op::Exp as u32 { 2 } else { 30 }
    }

    /// The vectorized kernel, where it can.
    fn fast(
        &self,
        queue: &mut dyn Queue,
        kind: Kind,
        operands: &[Operand],
        out: &View,
    ) -> Result<bool, OpError> {
        let (names, vectors) = if self.op.is_hot() {
            (ew_fast::HOT, u64::from(ew_fast::HOT_VECTORS))
        } else if self.op.is_frequent() {
            (ew_fast::ACT, 1)
        } else {
            (FAST[self.op.family()], 1)
        };
        let Some(kernel) = by_float(names, out.dtype) else { return Ok(false) };
        let indexes = matches!(self.op, Op::Arange | Op::Linspace);
        if kind != Kind::Float || indexes || !out.is_contiguous() || !out.begins_with_vector() {
            return Ok(false);
        }
        let count = out.elements();
        let mut modes = 0;
        let mut repeats = [[1u32; 2]; 3];
        for (at, operand) in operands.iter().enumerate() {
            let mode = match operand {
                Operand::Value(value) => {
                    repeats[at][0] = value.bits(kind) as u32;
                    SAME
                }
                Operand::Of(view) if view.dtype != out.dtype => return Ok(false),
                Operand::Of(view) if view.sizes() == out.sizes() && view.is_contiguous() => {
                    if !view.begins_with_vector() {
                        return Ok(false);
                    }
                    FULL
                }
                Operand::Of(view) => {
                    let (words, mode) = if let Some(words) = repeated(view, out)? {
                        (words, REPEAT)
                    } else if let Some(words) = rows(view, out)? {
                        (words, ROWS)
                    } else {
                        return Ok(false);
                    };
                    repeats[at] = words;
                    mode
                }
            };
            modes |= mode << (2 * at);
        }
        let dst = write(queue, out)?;
        let mut bound = [dst.unused(); 3];
        let mut bytes = out.dtype.size();
        for (at, bound) in bound.iter_mut().enumerate() {
            match operands.get(at) {
                Some(Operand::Of(view)) => {
                    *bound = read(queue, view)?;
                    bytes += view.dtype.size();
                }
                Some(_) => {}
                None => modes |= SAME << (2 * at),
            }
        }
        let [a, b, c] = bound;
        let [a_at, b_at, c_at] = fit_all(bound.map(Bound::at))?;
        let [[a_div, a_mod], [b_div, b_mod], [c_div, c_mod]] = repeats;
        let [s, t] = self.parameters.map(|p| f32::from_bits(p.bits(kind) as u32));
        let params = ew_fast::Params {
            count: fit(count)?,
            op: self.op as u32,
            modes,
            o_at: fit(dst.at())?,
            a_at,
            b_at,
            c_at,
            a_div,
            a_mod,
            b_div,
            b_mod,
            c_div,
            c_mod,
            s,
            t,
        };
        let buffers = ew_fast::Buffers { dst, a, b, c };
        Call { kernel, params, buffers, flops: self.flops(count), bytes: count * bytes }.launch_items(
            queue,
            count,
            PER_GROUP * vectors,
        )?;
        Ok(true)
    }

    /// Any strides and types.
    fn strided(
        &self,
        queue: &mut dyn Queue,
        kind: Kind,
        operands: &[Operand],
        out: &View,
    ) -> Result<(), OpError> {
        let family = self.op.family();
        let kernel = match kind {
            Kind::Float => STRIDED_FLOAT[family],
            Kind::Int => STRIDED_INT[family],
            Kind::Double => STRIDED_DOUBLE[family],
        };
        let mut views = [*out; 4];
        let mut values = [0u64; 4];
        let mut types = [out.dtype.code(), VALUE_TYPE, VALUE_TYPE, VALUE_TYPE];
        for (at, operand) in operands.iter().enumerate() {
            match operand {
                Operand::Value(value) => values[at + 1] = value.bits(kind),
                Operand::Of(view) => {
                    let full = view.broadcast(out.sizes())?;
                    (views[at + 1], types[at + 1]) = (full, view.dtype.code());
                }
            }
        }
        let common = Common::new(&views.each_ref()).with_small_outer(4);
        let sizes = common.sizes4();
        let count: u64 = sizes.iter().product();
        let bytes: u64 = views.iter().map(|view| view.dtype.size()).sum();
        let packed = types.iter().enumerate().fold(0, |word, (at, code)| word | code << (8 * at));
        common.outer(4, |offsets| {
            let buffers = ew::Buffers {
                dst: write(queue, &views[0])?,
                a: read(queue, &views[1])?,
                b: read(queue, &views[2])?,
                c: read(queue, &views[3])?,
            };
            let at = |bound: Bound, view: usize| fit(bound.at() + offsets[view]);
            // Strides, or a number's words.
            let operand = |view: usize| match types[view] {
                VALUE_TYPE => Ok([values[view] as u32, (values[view] >> 32) as u32, 0, 0]),
                _ => fit_all(common.strides4(view)),
            };
            let [sw, tw] = self.parameters.map(|p| p.bits(kind));
            let call = Call {
                kernel,
                params: ew::Params {
                    count: fit(count)?,
                    op: self.op as u32,
                    types: packed,
                    o_at: at(buffers.dst, 0)?,
                    a_at: at(buffers.a, 1)?,
                    b_at: at(buffers.b, 2)?,
                    c_at: at(buffers.c, 3)?,
                    size: fit_inner(sizes)?,
                    o: operand(0)?,
                    a: operand(1)?,
                    b: operand(2)?,
                    c: operand(3)?,
                    sw,
                    tw,
                },
                buffers,
                flops: self.flops(count),
                bytes: count * bytes,
            };
            call.launch_items(queue, count, if kind == Kind::Double { PER_GROUP / 4 } else { PER_GROUP })
        })
    }
}

/// `[div, mod]` where the broadcast view's element for the contiguous result's element i is `(i / div) % mod`.
fn repeated(view: &View, out: &View) -> Result<Option<[u32; 2]>, OpError> {
    let full = view.broadcast(out.sizes())?;
    let (mut div, mut modulus, mut stage) = (1u64, 1u64, 0);
    for (&size, &stride) in full.sizes().iter().zip(full.strides()).rev() {
        match (size, stride) {
            (1, _) => {}
            (size, 0) if stage == 0 => div *= size,
            (_, 0) => stage = 2,
            (size, stride) if stage < 2 && stride == modulus => (modulus, stage) = (modulus * size, 1),
            _ => return Ok(None),
        }
    }
    Ok(u32::try_from(div).ok().zip(u32::try_from(modulus).ok()).map(|(div, modulus)| [div, modulus]))
}

/// `[length, stride]` of the rows that the broadcast view has where the result is contiguous: rows of whole vectors, each dense,
/// equally far apart.
fn rows(view: &View, out: &View) -> Result<Option<[u32; 2]>, OpError> {
    let full = view.broadcast(out.sizes())?;
    let (mut length, mut apart) = (1, None);
    for (&size, &stride) in full.sizes().iter().zip(full.strides()).rev().filter(|&(&size, _)| size > 1) {
        match apart {
            None if stride == length => length *= size,
            None => apart = Some((stride, stride * size)),
            Some((first, next)) if stride == next => apart = Some((first, next * size)),
            Some(_) => return Ok(None),
        }
    }
    let Some((stride, _)) = apart.filter(|&(stride, _)| stride > 0) else { return Ok(None) };
    let are_whole = length.is_multiple_of(4) && stride.is_multiple_of(4) && view.begins_with_vector();
    let words = u32::try_from(length).ok().zip(u32::try_from(stride).ok()).filter(|_| are_whole);
    Ok(words.map(|(length, stride)| [length, stride]))
}
