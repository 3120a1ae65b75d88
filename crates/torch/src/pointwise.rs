//! Elementwise operators: type promotion, broadcasting and results, around [`wave32_ops::Elementwise`].

use crate::abi::{BUILD_VERSION, api, check};
use crate::bridge::{run, view};
use crate::copies;
use crate::dtype::DType;
use crate::error::Error;
use crate::layout;
use crate::memory_ops::resize_to;
use crate::tensor::{Dims, Tensor};
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
    As(DType),
}

/// An elementwise operator about to run.
#[derive(Debug, Clone, Copy)]
pub struct Pointwise {
    op: Op,
    rule: Rule,
    s: Number,
    t: Number,
    compute: Option<DType>,
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
    pub fn promoting_to(self, compute: Option<DType>) -> Self {
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
        let promoted = self.promoted(inputs)?;
        castable(self.result(promoted), out.dtype()?)?;
        let sizes = broadcast(inputs)?;
        if out.sizes() != &sizes[..] {
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
        if x.sizes() != &sizes[..] {
            return Err(Error::Invalid(format!(
                "output with shape {:?} doesn't match the broadcast shape {:?}",
                x.sizes(),
                &sizes[..]
            )));
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
                Input::Value(_) => number.then_some((&[][..], &[][..])),
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

    fn promoted(&self, inputs: &[Input]) -> Result<DType, Error> {
        let dtype = self.compute.map_or_else(|| promoted(inputs), Ok)?;
        if dtype.is_complex() {
            return Err(Error::NoKernel(format!("an operation on {}", dtype.name())));
        }
        Ok(dtype)
    }

    fn result(&self, promoted: DType) -> DType {
        match self.rule {
            Rule::Truth => DType::Bool,
            Rule::As(dtype) => dtype,
            Rule::Float if !promoted.is_float() && !promoted.is_complex() => DType::F32,
            _ => promoted,
        }
    }

    fn launch(&self, promoted: DType, inputs: &[Input], out: &Tensor) -> Result<(), Error> {
        if out.numel() == 0 {
            return Ok(());
        }
        let compute = if self.rule == Rule::Truth { promoted } else { self.result(promoted) };
        let to = view(out)?;
        let mut views: SmallVec<[Option<View>; 3]> = SmallVec::new();
        let mut values: SmallVec<[Number; 3]> = SmallVec::new();
        let rounds = self.rule == Rule::Truth && matches!(compute, DType::F16 | DType::BF16);
        // What overlaps the result in another order of elements is read from a copy.
        let mut copied: SmallVec<[Tensor; 1]> = SmallVec::new();
        for input in inputs {
            let mut number = Number::Int(0);
            views.push(match input {
                Input::Value(value) => {
                    number = *value;
                    None
                }
                Input::Of(tensor) if !tensor.is_wave() => {
                    number = host_number(tensor)?;
                    None
                }
                // PyTorch compares what the common type holds: kernels of halves compute in f32 and would see more.
                Input::Of(tensor) if rounds && tensor.dtype()? != compute => {
                    copied.push(tensor.empty_like(compute)?);
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

    /// The same operation under the name that it has for the type.
    fn fitting(&self, compute: DType) -> Op {
        match self.op {
            Op::Floor | Op::Ceil | Op::Round | Op::Trunc if !compute.is_float() => Op::Identity,
            Op::NanToNum if !compute.is_float() => Op::Identity,
            Op::Fmax if !compute.is_float() => Op::Maximum,
            Op::Fmin if !compute.is_float() => Op::Minimum,
            Op::BitwiseNot if compute == DType::Bool => Op::LogicalNot,
            op => op,
        }
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
        return Err(Error::Invalid(
            "Expected all tensors to be on the same device, but found at least two devices, wave:0 and cpu!"
                .into(),
        ));
    }
    let bytes = tensor.host_bytes()?;
    let mut low = [0; 8];
    low[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let raw = u64::from_le_bytes(low);
    Ok(match tensor.dtype()? {
        DType::F64 => Number::Float(f64::from_bits(raw)),
        DType::F32 => Number::Float(f64::from(f32::from_bits(raw as u32))),
        DType::F16 => Number::Float(half::f16::from_bits(raw as u16).to_f64()),
        DType::BF16 => Number::Float(half::bf16::from_bits(raw as u16).to_f64()),
        DType::I64 => Number::Int(raw as i64),
        DType::I32 => Number::Int(i64::from(raw as i32)),
        DType::I16 => Number::Int(i64::from(raw as i16)),
        DType::I8 => Number::Int(i64::from(raw as i8)),
        DType::U8 | DType::Bool => Number::Int(raw as i64),
        other => return Err(Error::NoKernel(format!("a number of type {}", other.name()))),
    })
}

/// 0 truth value, 1 whole number, 2 float, 3 complex.
pub fn category(dtype: DType) -> u32 {
    match dtype {
        DType::Bool => 0,
        dtype if dtype.is_complex() => 3,
        dtype if dtype.is_float() => 2,
        _ => 1,
    }
}

/// The type that the tensors promote to; numbers take no part.
///
/// # Errors
/// `Torch`.
pub fn promoted(inputs: &[Input]) -> Result<DType, Error> {
    let mut tensors = inputs.iter().filter_map(|input| match input {
        Input::Of(tensor) => Some(*tensor),
        Input::Value(_) => None,
    });
    let Some(first) = tensors.next() else { return Ok(DType::F32) };
    let mut so_far = (first, first.dtype()?);
    for next in tensors {
        let dtype = next.dtype()?;
        if dtype == so_far.1 {
            // One with dimensions is the better witness.
            so_far = if so_far.0.dim() > 0 { so_far } else { (next, dtype) };
        } else if so_far.0.dim() > 0 && next.dim() == 0 && category(dtype) <= category(so_far.1) {
        } else if so_far.0.dim() == 0 && next.dim() > 0 && category(so_far.1) <= category(dtype) {
            so_far = (next, dtype);
        } else {
            let witness = if so_far.0.dim() >= next.dim() { so_far.0 } else { next };
            so_far = (witness, result_type(so_far.0, next)?);
        }
    }
    Ok(so_far.1)
}

/// torch's answer, which knows Python's numbers among the tensors.
fn result_type(a: &Tensor, b: &Tensor) -> Result<DType, Error> {
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
    DType::from_code(stack[0] as i32)
}

/// Whether a result of type `from` may be written to a tensor of type `to`.
///
/// # Errors
/// `Invalid` where not.
pub fn castable(from: DType, to: DType) -> Result<(), Error> {
    let (have, room) = (category(from), category(to));
    if have <= room || have == 1 && room == 1 {
        return Ok(());
    }
    let name = |dtype| match dtype {
        DType::F32 => "Float",
        DType::F64 => "Double",
        DType::F16 => "Half",
        DType::BF16 => "BFloat16",
        DType::I64 => "Long",
        DType::I32 => "Int",
        DType::I16 => "Short",
        DType::I8 => "Char",
        DType::U8 => "Byte",
        DType::Bool => "Bool",
        other => other.name(),
    };
    Err(Error::Invalid(format!(
        "result type {} can't be cast to the desired output type {}",
        name(from),
        name(to)
    )))
}

/// The sizes that the operands broadcast to.
///
/// # Errors
/// `Invalid` where they do not.
pub fn broadcast(inputs: &[Input]) -> Result<Dims, Error> {
    let mut sizes = Dims::new();
    for input in inputs {
        let Input::Of(tensor) = input else { continue };
        let other = tensor.sizes();
        if sizes[..] == *other {
            continue;
        }
        while sizes.len() < other.len() {
            sizes.insert(0, 1);
        }
        let front = sizes.len() - other.len();
        for (at, &size) in other.iter().enumerate() {
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
