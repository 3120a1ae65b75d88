//! Elementwise operators: type promotion, broadcasting and results, around [`wave32_ops::Elementwise`].

use crate::abi::calls::{BUILD_VERSION, Word, api, check};
use crate::abi::error::Error;
use crate::dispatch::scalar::default_float;
use crate::runtime::bridge::{run, view};
use crate::tensors::copies;
use crate::tensors::dtype::ScalarType;
use crate::tensors::layout;
use crate::tensors::memory_ops::{resize_to, warn_of_resize};
use crate::tensors::tensor::{Dims, Tensor};
use smallvec::SmallVec;
use wave32_ops::{Elementwise, Number, Op, Operand, View};

/// What an operator reads.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// A tensor; of the CPU if it has no dimensions.
    Of(&'a Tensor),
    /// A number, which takes no part in promotion.
    Value(Number),
}

impl<'a> From<&'a Tensor> for Input<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Of(tensor)
    }
}

/// The result's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The promoted type of the operands.
    Same,
    /// That, or float where it is a whole number's.
    Float,
    /// Truth values.
    Truth,
    /// This type, in which it is computed too.
    As(ScalarType),
}

/// An elementwise operator about to run.
#[derive(Debug, Clone, Copy)]
pub struct Pointwise {
    op: Op,
    rule: Rule,
    s: Number,
    t: Number,
    compute: Option<ScalarType>,
}

impl Pointwise {
    /// Without parameters.
    pub fn new(op: Op, rule: Rule) -> Self {
        Self::with(op, rule, 0.0, 0.0)
    }

    /// With parameters.
    pub fn with(op: Op, rule: Rule, s: impl Into<Number>, t: impl Into<Number>) -> Self {
        Self { op, rule, s: s.into(), t: t.into(), compute: None }
    }

    /// Operands promote to this type, whatever their tensors' are: numbers among them take part.
    pub fn promoting_to(self, compute: Option<ScalarType>) -> Self {
        Self { compute, ..self }
    }

    /// Its result, a new tensor.
    ///
    /// # Errors
    /// `Invalid` where operands do not broadcast; `NoKernel`; the stream's.
    pub fn make(&self, inputs: &[Input]) -> Result<Tensor, Error> {
        let promoted = self.promoted(inputs)?;
        let sizes = broadcast(inputs)?;
        let out = Tensor::empty_strided(&sizes, &self.strides(inputs, &sizes), self.result(promoted))?;
        self.launch(promoted, inputs, &out)?;
        Ok(out)
    }

    /// Into `out`, which gets the result's sizes; another handle to it.
    ///
    /// # Errors
    /// As [`Pointwise::make`]; `Invalid` where the result's type does not fit.
    pub fn write(&self, inputs: &[Input], out: &Tensor) -> Result<Tensor, Error> {
        if !out.is_wave() {
            return Err(elsewhere());
        }
        let promoted = self.promoted(inputs)?;
        castable(self.result(promoted), out.dtype()?)?;
        let sizes = broadcast(inputs)?;
        if out.sizes()[..] != sizes[..] {
            if inputs.iter().any(|input| matches!(input, Input::Of(x) if x.is_same(out))) {
                return Err(misfit(out, &sizes));
            }
            warn_of_resize(out, &sizes);
            resize_to(out, &sizes, &self.strides(inputs, &sizes))?;
        }
        self.check_overlaps(inputs, out)?;
        self.launch(promoted, inputs, out)?;
        out.share()
    }

    /// Into the first input.
    ///
    /// # Errors
    /// As [`Pointwise::write`]; `Invalid` where the result is larger than that input.
    pub fn in_place(&self, x: &Tensor, others: &[Input]) -> Result<Tensor, Error> {
        let inputs: SmallVec<[Input; 3]> = std::iter::once(x.into()).chain(others.iter().copied()).collect();
        let promoted = self.promoted(&inputs)?;
        castable(self.result(promoted), x.dtype()?)?;
        let sizes = broadcast(&inputs)?;
        if x.sizes()[..] != sizes[..] {
            return Err(misfit(x, &sizes));
        }
        self.check_overlaps(&inputs, x)?;
        self.launch(promoted, &inputs, x)?;
        x.share()
    }

    /// Strides of a new result.
    fn strides(&self, inputs: &[Input], sizes: &[i64]) -> Dims {
        // A number beside a tensor counts as an operand without dimensions.
        let number = matches!(
            self.op,
            Op::Add
                | Op::Sub
                | Op::Mul
                | Op::Div
                | Op::AddScaled
                | Op::Eq
                | Op::Ne
                | Op::Lt
                | Op::Le
                | Op::Gt
                | Op::Ge
        );
        let operands: SmallVec<[layout::Operand; 3]> = inputs
            .iter()
            .filter_map(|input| match input {
                Input::Of(tensor) => Some((tensor.sizes(), tensor.strides())),
                Input::Value(_) => number.then(layout::Operand::default),
            })
            .collect();
        layout::strides(sizes, &operands)
    }

    /// Results that overlap themselves or a part of an operand, as PyTorch treats them.
    fn check_overlaps(&self, inputs: &[Input], out: &Tensor) -> Result<(), Error> {
        if matches!(self.op, Op::Threshold | Op::ThresholdBackward) {
            // Written twice is written once: PyTorch allows it.
            return match layout::overlaps_itself(out) {
                true => Err(Error::NoKernel("a result that overlaps itself".into())),
                false => Ok(()),
            };
        }
        layout::no_internal_overlap(out)?;
        inputs.iter().try_for_each(|input| match input {
            Input::Of(tensor) if tensor.is_wave() => layout::no_partial_overlap(out, tensor),
            _ => Ok(()),
        })
    }

    fn promoted(&self, inputs: &[Input]) -> Result<ScalarType, Error> {
        let dtype = self.compute.map_or_else(|| promoted(inputs), Ok)?;
        if dtype.is_complex() || is_for_others(self.op, dtype) {
            return Err(Error::NoKernel(format!("an operation on {}", dtype.name())));
        }
        Ok(dtype)
    }

    fn result(&self, promoted: ScalarType) -> ScalarType {
        match self.rule {
            Rule::Truth => ScalarType::Bool,
            Rule::As(dtype) => dtype,
            Rule::Float if !promoted.is_float() && !promoted.is_complex() => default_float(),
            _ => promoted,
        }
    }

    fn launch(&self, promoted: ScalarType, inputs: &[Input], out: &Tensor) -> Result<(), Error> {
        if out.numel() == 0 {
            return Ok(());
        }
        let compute = if self.rule == Rule::Truth { promoted } else { self.result(promoted) };
        let to = view(out)?;
        if !self.stores(promoted, out.dtype()?) {
            let made = out.empty_like(self.result(promoted))?;
            self.launch(promoted, inputs, &made)?;
            return copies::copy(&made, out);
        }
        let mut views: SmallVec<[Option<View>; 3]> = SmallVec::new();
        let mut values: SmallVec<[Number; 3]> = SmallVec::new();
        // Comparisons and rests take numbers as the common type holds them.
        let exact = self.rule == Rule::Truth || matches!(self.op, Op::Fmod | Op::Remainder);
        let rounds = exact && matches!(compute, ScalarType::F16 | ScalarType::BF16);
        // An operand that overlaps the result, with its elements in another order, is read from a copy.
        let mut copied: SmallVec<[Tensor; 1]> = SmallVec::new();
        for input in inputs {
            let mut number = Number::Int(0);
            views.push(match input {
                Input::Value(value) => {
                    number = fitted(*value, compute, rounds);
                    None
                }
                Input::Of(tensor) if !tensor.is_wave() => {
                    number = fitted(host_number(tensor)?, compute, rounds);
                    None
                }
                // PyTorch computes with what the common type holds: kernels of halves compute in f32 and would see more. So
                // would those of doubles, which whatever reads one takes, and of whole numbers, which all are 64 bits.
                Input::Of(tensor)
                    if tensor.dtype()? != compute
                        && (rounds
                            || tensor.dtype()? == ScalarType::F64
                            || wraps(tensor.dtype()?, compute)) =>
                {
                    let wide = !rounds
                        && self.computes_wide()
                        && matches!(compute, ScalarType::F16 | ScalarType::BF16);
                    copied.push(tensor.empty_like(if wide { ScalarType::F32 } else { compute })?);
                    let made = &copied[copied.len() - 1];
                    copies::copy(tensor, made)?;
                    Some(view(made)?)
                }
                Input::Of(tensor) => {
                    let from = view(tensor)?;
                    if disturbs(&from, &to) {
                        copied.push(copies::to_device(tensor)?);
                        Some(view(&copied[copied.len() - 1])?)
                    } else {
                        Some(from)
                    }
                }
            });
            values.push(number);
        }
        let operands: SmallVec<[Operand; 3]> = views
            .iter()
            .zip(&values)
            .map(|(view, value)| view.as_ref().map_or(Operand::Value(*value), Operand::Of))
            .collect();
        let parameters = [self.s, self.t];
        let elementwise = Elementwise { op: self.fitting(compute), compute: compute.try_into()?, parameters };
        run(|queue| elementwise.run(queue, &operands, &to))
    }

    /// Whether PyTorch takes a double beside halves as a float.
    fn computes_wide(&self) -> bool {
        matches!(self.op, Op::Add | Op::Sub | Op::AddScaled | Op::Mul | Op::Div | Op::DivTrunc | Op::DivFloor)
    }

    /// Whether the kernel's own cast to elements of type `to` is what the result's type, cast once more, would be.
    fn stores(&self, promoted: ScalarType, to: ScalarType) -> bool {
        let result = self.result(promoted);
        if result == to {
            return true;
        }
        match result {
            ScalarType::F64 => to.is_float(),
            ScalarType::F32 => matches!(to, ScalarType::F16 | ScalarType::BF16),
            ScalarType::I64 => {
                matches!(to, ScalarType::F32 | ScalarType::F16 | ScalarType::BF16) || category(to) == 1
            }
            // Doubles would be compared otherwise than what is promoted to.
            ScalarType::Bool => {
                self.rule == Rule::Truth && (to != ScalarType::F64 || promoted == ScalarType::F64)
            }
            _ => false,
        }
    }

    /// The same operation under the name that it has for the type.
    fn fitting(&self, compute: ScalarType) -> Op {
        match self.op {
            Op::Floor | Op::Ceil | Op::Round | Op::Trunc if !compute.is_float() => Op::Identity,
            Op::NanToNum if !compute.is_float() => Op::Identity,
            Op::Fmax if !compute.is_float() => Op::Maximum,
            Op::Fmin if !compute.is_float() => Op::Minimum,
            Op::BitwiseNot if compute == ScalarType::Bool => Op::LogicalNot,
            op => op,
        }
    }
}

/// What PyTorch's own kernels refuse, in the CPU's words: a function of floats would be rounded to nothing of use.
fn is_for_others(op: Op, dtype: ScalarType) -> bool {
    match op {
        Op::Silu
        | Op::Mish
        | Op::Gelu
        | Op::GeluTanh
        | Op::LogSigmoid
        | Op::Softplus
        | Op::LeakyRelu
        | Op::Elu
        | Op::Hardswish
        | Op::Hardsigmoid
        | Op::Hardshrink
        | Op::Prelu
        | Op::Glu
        | Op::Hypot
        | Op::Mse
        | Op::SmoothL1
        | Op::Huber
        | Op::Bce
        | Op::Logaddexp
        | Op::Logaddexp2 => !dtype.is_float(),
        Op::Abs
        | Op::Relu
        | Op::Floor
        | Op::Ceil
        | Op::Round
        | Op::Trunc
        | Op::Fmod
        | Op::Remainder
        | Op::DivFloor
        | Op::DivTrunc
        | Op::Threshold
        | Op::ShiftLeft
        | Op::ShiftRight
        | Op::Addcmul => dtype == ScalarType::Bool,
        _ => false,
    }
}

/// A result that is an operand too, which cannot get other sizes.
fn misfit(x: &Tensor, sizes: &[i64]) -> Error {
    let shape = x.sizes();
    Error::Invalid(format!("output with shape {shape:?} doesn't match the broadcast shape {sizes:?}"))
}

/// Operands or a result of another device.
pub fn elsewhere() -> Error {
    let text =
        "Expected all tensors to be on the same device, but found at least two devices, wave:0 and cpu!";
    Error::Invalid(text.into())
}

/// Whether a whole type's elements are other numbers in a whole type that is computed in: one without dimensions counts
/// less than its type's size.
fn wraps(from: ScalarType, to: ScalarType) -> bool {
    let narrow = matches!(to, ScalarType::I32 | ScalarType::I16 | ScalarType::I8 | ScalarType::U8);
    narrow && category(from) == 1 && (from.bytes() > to.bytes() || from.bytes() == to.bytes() && from != to)
}

/// The number as an element of the type that is computed in: whole ones wrap. Floats are rounded only on wish: PyTorch's
/// arithmetic on halves takes them as they are.
pub fn fitted(value: Number, to: ScalarType, rounds: bool) -> Number {
    match to {
        ScalarType::I64 => Number::Int(value.int()),
        ScalarType::I32 => Number::Int(i64::from(value.int() as i32)),
        ScalarType::I16 => Number::Int(i64::from(value.int() as i16)),
        ScalarType::I8 => Number::Int(i64::from(value.int() as i8)),
        ScalarType::U8 => Number::Int(i64::from(value.int() as u8)),
        ScalarType::Bool => Number::Int(i64::from(value.float() != 0.0)),
        ScalarType::F16 if rounds => Number::Float(half::f16::from_f32(value.float() as f32).to_f64()),
        ScalarType::BF16 if rounds => Number::Float(half::bf16::from_f32(value.float() as f32).to_f64()),
        _ => value,
    }
}

/// True where writing `to` changes elements of `from` that are still to be read.
fn disturbs(from: &View, to: &View) -> bool {
    let end = |view: &View| view.address + view.extent() * view.dtype.size();
    let apart = from.address >= end(to) || to.address >= end(from);
    let same = from.address == to.address
        && from.strides() == to.strides()
        && from.sizes() == to.sizes()
        && from.dtype.size() == to.dtype.size();
    !(apart || same)
}

/// The element of a CPU tensor without dimensions.
///
/// # Errors
/// `Invalid` for other tensors of the CPU; `NoKernel` for exotic types.
pub fn host_number(tensor: &Tensor) -> Result<Number, Error> {
    if tensor.dim() != 0 {
        return Err(elsewhere());
    }
    let mut low = [0; 8];
    tensor.read_host(|bytes| {
        let length = bytes.len().min(8);
        low[..length].copy_from_slice(&bytes[..length]);
        Ok(())
    })?;
    let raw = u64::from_le_bytes(low);
    Ok(match tensor.dtype()? {
        ScalarType::F64 => Number::Float(f64::from_bits(raw)),
        ScalarType::F32 => Number::Float(f64::from(f32::from_bits(raw as u32))),
        ScalarType::F16 => Number::Float(half::f16::from_bits(raw as u16).to_f64()),
        ScalarType::BF16 => Number::Float(half::bf16::from_bits(raw as u16).to_f64()),
        ScalarType::I64 => Number::Int(raw as i64),
        ScalarType::I32 => Number::Int(i64::from(raw as i32)),
        ScalarType::I16 => Number::Int(i64::from(raw as i16)),
        ScalarType::I8 => Number::Int(i64::from(raw as i8)),
        ScalarType::U8 | ScalarType::Bool => Number::Int(raw as i64),
        other => return Err(Error::NoKernel(format!("a number of type {}", other.name()))),
    })
}

/// 0 truth value, 1 whole number, 2 float, 3 complex.
pub fn category(dtype: ScalarType) -> u32 {
    match dtype {
        ScalarType::Bool => 0,
        dtype if dtype.is_complex() => 3,
        dtype if dtype.is_float() => 2,
        _ => 1,
    }
}

/// The type that the tensors promote to; numbers take no part.
///
/// # Errors
/// `Torch` where a call into libtorch fails.
pub fn promoted(inputs: &[Input]) -> Result<ScalarType, Error> {
    let tensors: SmallVec<[&Tensor; 3]> = inputs
        .iter()
        .filter_map(|input| match input {
            Input::Of(tensor) => Some(*tensor),
            Input::Value(_) => None,
        })
        .collect();
    match tensors[..] {
        [] => Ok(default_float()),
        [one] => one.dtype(),
        [a, b] => promoted_pair(a, b),
        _ => promoted_list(&tensors),
    }
}

fn promoted_pair(a: &Tensor, b: &Tensor) -> Result<ScalarType, Error> {
    let (of_a, of_b) = (a.dtype()?, b.dtype()?);
    let same = of_a == of_b && (a.dim() > 0 || b.dim() > 0);
    if same || (a.dim() > 0 && b.dim() == 0 && category(of_b) <= category(of_a)) {
        Ok(of_a)
    } else if a.dim() == 0 && b.dim() > 0 && category(of_a) <= category(of_b) {
        Ok(of_b)
    } else {
        result_type(a, b)
    }
}

/// By the rule that torch has for more than two, which knows no Python's numbers among them: tensors without dimensions
/// count only where they are of a higher category.
fn promoted_list(tensors: &[&Tensor]) -> Result<ScalarType, Error> {
    let (mut full, mut single) = (None, None);
    for tensor in tensors {
        let slot = if tensor.dim() > 0 { &mut full } else { &mut single };
        let dtype = tensor.dtype()?;
        *slot = Some(slot.map_or(Ok(dtype), |so_far| promote_types(so_far, dtype))?);
    }
    match (full, single) {
        (Some(full), Some(single)) if category(single) <= category(full) => Ok(full),
        // Of the floats' precision.
        (Some(full), Some(_)) if full.is_float() => promote_types(full, ScalarType::C32),
        (Some(full), Some(single)) => promote_types(full, single),
        (one, other) => one.or(other).ok_or_else(|| Error::Invalid("no tensors".into())),
    }
}

/// What both are converted to.
///
/// # Errors
/// `Torch` where a call into libtorch fails.
pub fn promote_types(a: ScalarType, b: ScalarType) -> Result<ScalarType, Error> {
    if a == b {
        return Ok(a);
    }
    let mut stack = [a.code() as Word, b.code() as Word];
    // SAFETY: the operator takes two types' codes and answers one.
    let status = unsafe {
        (api().torch_call_dispatcher)(
            c"aten::promote_types".as_ptr(),
            c"".as_ptr(),
            stack.as_mut_ptr(),
            BUILD_VERSION,
        )
    };
    check(status, "promote_types")?;
    ScalarType::from_code(stack[0] as i32)
}

/// torch's answer, which knows Python's numbers among the tensors.
fn result_type(a: &Tensor, b: &Tensor) -> Result<ScalarType, Error> {
    let mut stack = [a.share()?.into_word(), b.share()?.into_word()];
    // SAFETY: the operator takes two tensors, which it owns, and answers a type's code.
    let status = unsafe {
        (api().torch_call_dispatcher)(
            c"aten::result_type".as_ptr(),
            c"Tensor".as_ptr(),
            stack.as_mut_ptr(),
            BUILD_VERSION,
        )
    };
    check(status, "result_type")?;
    ScalarType::from_code(stack[0] as i32)
}

/// Whether a result of type `from` may be written to a tensor of type `to`.
///
/// # Errors
/// `Invalid` where it is not.
pub fn castable(from: ScalarType, to: ScalarType) -> Result<(), Error> {
    let (have, room) = (category(from), category(to));
    if have <= room || have == 1 && room == 1 {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "result type {} can't be cast to the desired output type {}",
        from.scalar_name(),
        to.scalar_name()
    )))
}

/// The sizes that the operands broadcast to.
///
/// # Errors
/// `Invalid` where the sizes do not broadcast.
pub fn broadcast(inputs: &[Input]) -> Result<Dims, Error> {
    let mut sizes = Dims::new();
    for input in inputs {
        let Input::Of(tensor) = input else { continue };
        let other = tensor.sizes();
        if sizes == other {
            continue;
        }
        while sizes.len() < other.len() {
            sizes.insert(0, 1);
        }
        let front = sizes.len() - other.len();
        // From the last on, so that of several that do not fit PyTorch's is told.
        for (at, &size) in other.iter().enumerate().rev() {
            let to = &mut sizes[front + at];
            if *to == 1 {
                *to = size;
            } else if size != 1 && size != *to {
                return Err(Error::Invalid(format!(
                    "The size of tensor a ({}) must match the size of tensor b ({size}) at non-singleton dimension {}",
                    *to,
                    front + at
                )));
            }
        }
    }
    Ok(sizes)
}
