//! Elementwise operators: type promotion, broadcasting and results, around [`wave32_ops::Elementwise`].

use crate::abi::calls::{BUILD_VERSION, Word, api, check};
use crate::abi::conversions::default_float;
use crate::abi::error::Error;
use crate::dispatch::result::elsewhere;
use crate::runtime::bridge::{run, view};
use crate::tensors::copies;
use crate::tensors::dtype;
use crate::tensors::layout;
use crate::tensors::memory_ops::resize_output_to;
use crate::tensors::tensor::Tensor;
use smallvec::SmallVec;
use wave32_ops::{Elementwise, Number, Op, Operand, View};
use wave32_torch_logic::number::fitted;
pub use wave32_torch_logic::promotion::Rule;
use wave32_torch_logic::promotion::{self, Member, castable, wraps};
use wave32_torch_logic::{Dims, Scalar, ScalarType, sizes, strides};

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
            return Err(elsewhere(out));
        }
        let promoted = self.promoted(inputs)?;
        castable(self.result(promoted), out.dtype()?)?;
        let sizes = broadcast(inputs)?;
        if out.sizes()[..] != sizes[..] {
            if inputs.iter().any(|input| matches!(input, Input::Of(x) if x.is_same(out))) {
                return Err(misfit(out, &sizes));
            }
            resize_output_to(out, &sizes, &self.strides(inputs, &sizes))?;
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
        let operands: SmallVec<[strides::Operand; 3]> = inputs
            .iter()
            .filter_map(|input| match input {
                Input::Of(tensor) => Some((tensor.sizes(), tensor.strides())),
                Input::Value(_) => number.then(strides::Operand::default),
            })
            .collect();
        strides::elementwise(sizes, &operands)
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
        self.rule.result(promoted, default_float)
    }

    fn launch(&self, promoted: ScalarType, inputs: &[Input], out: &Tensor) -> Result<(), Error> {
        if out.numel() == 0 {
            return Ok(());
        }
        let compute = if self.rule == Rule::Truth { promoted } else { self.result(promoted) };
        let to = view(out)?;
        if !self.rule.stores(promoted, self.result(promoted), out.dtype()?) {
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
/// `Invalid` for other tensors; `NoKernel` for exotic types.
pub fn host_number(tensor: &Tensor) -> Result<Number, Error> {
    if tensor.dim() != 0 || !tensor.is_cpu() {
        return Err(elsewhere(tensor));
    }
    let dtype = tensor.dtype()?;
    if wave32_ops::ElementType::try_from(dtype).is_err() {
        return Err(Error::NoKernel(format!("a number of type {}", dtype.name())));
    }
    Ok(tensor.read_host(|bytes| Ok(Scalar::read(dtype, bytes)?))?.number()?)
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
        [a, b] => match promotion::promoted_pair(member(a)?, member(b)?) {
            Some(dtype) => Ok(dtype),
            None => result_type(a, b),
        },
        _ => {
            let members = tensors.iter().map(|x| member(x)).collect::<Result<SmallVec<[Member; 4]>, _>>()?;
            let dtype = promotion::promoted_list(members, promote_types)?;
            dtype.ok_or_else(|| Error::Invalid("no tensors".into()))
        }
    }
}

fn member(tensor: &Tensor) -> Result<Member, Error> {
    Ok(Member { dtype: tensor.dtype()?, is_single: tensor.dim() == 0 })
}

/// What both are converted to.
///
/// # Errors
/// `Torch` where a call into libtorch fails.
pub fn promote_types(a: ScalarType, b: ScalarType) -> Result<ScalarType, Error> {
    if let Some(dtype) = promotion::promote_types(a, b) {
        return Ok(dtype);
    }
    let mut stack = [dtype::code(a) as Word, dtype::code(b) as Word];
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
    dtype::of_code(stack[0] as i32)
}

/// torch's answer, which knows Python's numbers among the tensors.
fn result_type(a: &Tensor, b: &Tensor) -> Result<ScalarType, Error> {
    let types = [a.dtype()?, b.dtype()?];
    // From torch 2.15 on in a type that its C ABI cannot name.
    if types.contains(&ScalarType::BF16) && types.iter().any(|dtype| dtype.is_complex()) {
        return Err(Error::NoKernel("bf16 beside complex numbers".into()));
    }
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
    dtype::of_code(stack[0] as i32)
}

/// The sizes that the operands broadcast to.
///
/// # Errors
/// `Invalid` where the sizes do not broadcast.
pub fn broadcast(inputs: &[Input]) -> Result<Dims, Error> {
    let tensors = inputs.iter().filter_map(|input| match input {
        Input::Of(tensor) => Some(tensor.sizes()),
        Input::Value(_) => None,
    });
    Ok(sizes::broadcast(tensors)?)
}
