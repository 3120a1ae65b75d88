//! `torch.autocast("wave")` of the operators that networks call most, without Python; the others, and these where torch
//! has moved what they need, are in `wave32/_autocast.py`.
//!
//! Each kernel casts its operands and calls the operator again, with autocast excluded. Libtorch's C++ functions are
//! called directly: what they throw reaches the caller as what it is. So nothing here may catch, as
//! [`crate::dispatch::register::enter`] does.

use crate::abi::calls::{Handle, Maybe, MaybeTensor, Numbers, PRIVATE_USE_1, Slice, api};
use crate::abi::error::Error;
use crate::abi::unboxed::Candidate;
use crate::dispatch::register::{Registration, register};
use crate::kernel;
use crate::runtime::graph;
use crate::tensors::copies::Keeping;
use crate::tensors::dtype;
use crate::tensors::tensor::Tensor;
use std::sync::OnceLock;
use wave32_torch_logic::ScalarType;

/// The number of the dispatch key `AutocastPrivateUse1` in this torch.
static KEY: OnceLock<u16> = OnceLock::new();

/// The kernels that are registered for it.
static OPS: OnceLock<Vec<Registration>> = OnceLock::new();

/// A function of the table, which [`install`] found.
macro_rules! found {
    ($symbol:ident) => {
        api().$symbol.expect("only operators that were found are registered")
    };
}

/// One call: autocast is excluded on this thread while it lives.
struct Call {
    key: u16,
    was_excluded: bool,
}

impl Drop for Call {
    fn drop(&mut self) {
        // SAFETY: sets a thread's own state.
        unsafe { found!(exclude)(self.key, self.was_excluded) };
    }
}

/// An operand, cast where it had another type.
struct Operand<'a> {
    given: &'a Tensor,
    cast: Option<Tensor>,
}

impl Operand<'_> {
    fn get(&self) -> &Tensor {
        self.cast.as_ref().unwrap_or(self.given)
    }

    fn handle(&self) -> Handle {
        self.get().handle()
    }
}

fn maybe(operand: Option<&Operand<'_>>) -> MaybeTensor {
    operand.map(|operand| operand.get().implementation()).into()
}

impl Call {
    fn new() -> Self {
        let key = *KEY.get().expect("set before the kernels are registered");
        // SAFETY: reads and sets a thread's own state.
        unsafe {
            let was_excluded = found!(is_excluded)(key);
            found!(exclude)(key, true);
            Self { key, was_excluded }
        }
    }

    /// The type of `torch.autocast("wave", dtype=...)`.
    fn lower(&self) -> Result<ScalarType, Error> {
        // SAFETY: reads a thread's own state.
        dtype::of_code(i32::from(unsafe { found!(autocast_dtype)(PRIVATE_USE_1) }))
    }

    /// Casts tensors of floating-point numbers on this device but f64, as torch does for its own devices: the casts of
    /// parameters are kept until autocast ends.
    fn cast<'a>(&self, given: &'a Tensor, to: ScalarType) -> Result<Operand<'a>, Error> {
        if given.dtype().ok() == Some(to) {
            return Ok(Operand { given, cast: None });
        }
        let cast = match without_gradients(given, to)? {
            Some(cast) => cast,
            None => result(|out| {
                let code = dtype::code(to) as i8;
                // SAFETY: handles are `at::Tensor*`, the result's to one that owns nothing yet, where the callee constructs.
                unsafe { found!(cached_cast)(out, code, given.handle(), PRIVATE_USE_1) }
            })?,
        };
        Ok(Operand { given, cast: Some(cast) })
    }

    fn cast_optional<'a>(
        &self,
        given: Option<&'a Tensor>,
        to: ScalarType,
    ) -> Result<Option<Operand<'a>>, Error> {
        given.map(|given| self.cast(given, to)).transpose()
    }

    /// As [`Call::cast`], of a weight or bias: the device keeps its cast until something writes to it, also after autocast
    /// ends.
    fn cast_weight<'a>(&self, given: &'a Tensor, to: ScalarType) -> Result<Operand<'a>, Error> {
        let _keeping = Keeping::begin(given);
        self.cast(given, to)
    }
}

/// The cast where no gradient is asked for: torch's own way casts parameters with gradients even then, which takes
/// longer. A graph, for which the device keeps no casts, has one cast of a parameter that way.
fn without_gradients(given: &Tensor, to: ScalarType) -> Result<Option<Tensor>, Error> {
    let (Some(takes_gradients), Some(to_copy)) = (api().takes_gradients, api().dispatch_to_copy) else {
        return Ok(None);
    };
    let is_cast = matches!(given.dtype(), Ok(ScalarType::F32 | ScalarType::F16 | ScalarType::BF16));
    // SAFETY: reads a thread's own state.
    let torchs = !is_cast || !given.is_wave() || unsafe { takes_gradients() };
    if torchs || graph::is_capturing()? {
        return Ok(None);
    }
    let (dtype, none) = (Some(dtype::code(to) as i8).into(), Maybe::from(None));
    // SAFETY: as in `Call::cast`.
    let cast = result(|out| unsafe {
        to_copy(out, given.handle(), dtype, none, None.into(), None.into(), false, none)
    })?;
    Ok(Some(cast))
}

/// The result of a C++ function that constructs it where its first argument says.
fn result(call: impl FnOnce(Handle) -> Handle) -> Result<Tensor, Error> {
    let result = Tensor::undefined()?;
    call(result.handle());
    Ok(result)
}

// SAFETY (of every call of libtorch's functions below): they are of the operator's C++ signature, which the mangled name
// fixes. Handles are `at::Tensor*` and live. A `SymInt` is a word that is its number, passed by reference; a
// `SymIntArrayRef` an array of such. Whole numbers below -2^62 alone are no such words; no size, stride or padding is.

macro_rules! products {
    ($($name:ident),*) => {$(
        fn $name(a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
            let call = Call::new();
            let to = call.lower()?;
            let (a, b) = (call.cast(a, to)?, call.cast(b, to)?);
            // SAFETY: above.
            result(|out| unsafe { found!($name)(out, a.handle(), b.handle()) })
        }
    )*};
}
products!(matmul, mm, bmm, mv, prelu);

/// Of an operand, a weight and perhaps a bias.
fn weighted(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    op: impl FnOnce(Handle, Handle, Handle, *const MaybeTensor) -> Handle,
) -> Result<Tensor, Error> {
    let call = Call::new();
    let to = call.lower()?;
    let (x, weight) = (call.cast(x, to)?, call.cast_weight(weight, to)?);
    let bias = bias.map(|bias| call.cast_weight(bias, to)).transpose()?;
    let bias = maybe(bias.as_ref());
    result(|out| op(out, x.handle(), weight.handle(), &raw const bias))
}

fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
    // SAFETY: above.
    weighted(x, weight, bias, |out, x, weight, bias| unsafe { found!(linear)(out, x, weight, bias) })
}

macro_rules! convolutions {
    ($($name:ident($($middle:ident),*) $(, $last:ident)?;)*) => {$(
        #[allow(clippy::too_many_arguments, reason = "the operator's")]
        fn $name(
            x: &Tensor,
            weight: &Tensor,
            bias: Option<&Tensor>,
            $($middle: &[i64],)*
            groups: i64,
            $($last: &[i64],)?
        ) -> Result<Tensor, Error> {
            // SAFETY: above.
            weighted(x, weight, bias, |out, x, weight, bias| unsafe {
                let op = found!($name);
                op(out, x, weight, bias, $(Numbers::of($middle),)* &raw const groups $(, Numbers::of($last))?)
            })
        }
    )*};
}
convolutions! {
    conv1d(stride, padding, dilation);
    conv2d(stride, padding, dilation);
    conv3d(stride, padding, dilation);
    conv_transpose1d(stride, padding, output_padding), dilation;
    conv_transpose2d(stride, padding, output_padding), dilation;
}

#[allow(clippy::too_many_arguments, reason = "the operator's")]
fn attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    dropout: f64,
    causal: bool,
    scale: Option<f64>,
    groups: bool,
) -> Result<Tensor, Error> {
    let call = Call::new();
    let to = call.lower()?;
    let (query, key, value) = (call.cast(query, to)?, call.cast(key, to)?, call.cast(value, to)?);
    let mask = call.cast_optional(mask, to)?;
    let mask = maybe(mask.as_ref());
    let (query, key, value) = (query.handle(), key.handle(), value.handle());
    // SAFETY: above.
    result(|out| unsafe {
        let op = found!(attention);
        op(out, query, key, value, &raw const mask, dropout, causal, scale.into(), groups)
    })
}

/// In f32, of an operand and perhaps a weight and a bias.
fn norm(
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    op: impl FnOnce(Handle, Handle, *const MaybeTensor, *const MaybeTensor) -> Handle,
) -> Result<Tensor, Error> {
    let (call, to) = (Call::new(), ScalarType::F32);
    let (x, weight, bias) =
        (call.cast(x, to)?, call.cast_optional(weight, to)?, call.cast_optional(bias, to)?);
    let (weight, bias) = (maybe(weight.as_ref()), maybe(bias.as_ref()));
    result(|out| op(out, x.handle(), &raw const weight, &raw const bias))
}

fn layer_norm(
    x: &Tensor,
    shape: &[i64],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
    cudnn: bool,
) -> Result<Tensor, Error> {
    // SAFETY: above.
    norm(x, weight, bias, |out, x, weight, bias| unsafe {
        found!(layer_norm)(out, x, Numbers::of(shape), weight, bias, eps, cudnn)
    })
}

fn group_norm(
    x: &Tensor,
    groups: i64,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
    cudnn: bool,
) -> Result<Tensor, Error> {
    // SAFETY: above.
    norm(x, weight, bias, |out, x, weight, bias| unsafe {
        found!(group_norm)(out, x, groups, weight, bias, eps, cudnn)
    })
}

macro_rules! unaries {
    ($($name:ident),*) => {$(
        fn $name(x: &Tensor) -> Result<Tensor, Error> {
            let call = Call::new();
            let x = call.cast(x, ScalarType::F32)?;
            // SAFETY: above.
            result(|out| unsafe { found!($name)(out, x.handle()) })
        }
    )*};
}
unaries!(exp, expm1, log, log10, log1p, log2, reciprocal, rsqrt);

macro_rules! losses {
    ($($name:ident),*) => {$(
        fn $name(x: &Tensor, target: &Tensor, reduction: i64) -> Result<Tensor, Error> {
            let (call, to) = (Call::new(), ScalarType::F32);
            let (x, target) = (call.cast(x, to)?, call.cast(target, to)?);
            // SAFETY: above.
            result(|out| unsafe { found!($name)(out, x.handle(), target.handle(), reduction) })
        }
    )*};
}
losses!(l1_loss, mse_loss);

fn upsample_nearest2d(
    x: &Tensor,
    size: &[i64],
    scale_h: Option<f64>,
    scale_w: Option<f64>,
) -> Result<Tensor, Error> {
    let call = Call::new();
    let x = call.cast(x, ScalarType::F32)?;
    let (size, h, w) = (Numbers::of(size), scale_h.into(), scale_w.into());
    // SAFETY: above.
    result(|out| unsafe { found!(upsample_nearest2d)(out, x.handle(), size, h, w) })
}

fn upsample_bilinear2d(
    x: &Tensor,
    size: &[i64],
    aligns_corners: bool,
    scale_h: Option<f64>,
    scale_w: Option<f64>,
) -> Result<Tensor, Error> {
    let call = Call::new();
    let x = call.cast(x, ScalarType::F32)?;
    let (size, h, w) = (Numbers::of(size), scale_h.into(), scale_w.into());
    // SAFETY: above.
    result(|out| unsafe { found!(upsample_bilinear2d)(out, x.handle(), size, aligns_corners, h, w) })
}

/// The type that an operator of that operand is asked for: f32 instead of a half, where the caller asked for none.
fn wide(x: &Tensor, dtype: Option<ScalarType>) -> Maybe<i8> {
    let is_half = matches!(x.dtype(), Ok(ScalarType::F16 | ScalarType::BF16)) && x.is_wave();
    dtype.or(is_half.then_some(ScalarType::F32)).map(|dtype| dtype::code(dtype) as i8).into()
}

macro_rules! with_dtype {
    ($($name:ident),*) => {$(
        fn $name(x: &Tensor, dim: i64, dtype: Option<ScalarType>) -> Result<Tensor, Error> {
            let _call = Call::new();
            // SAFETY: above.
            result(|out| unsafe { found!($name)(out, x.handle(), dim, wide(x, dtype)) })
        }
    )*};
}
with_dtype!(softmax, log_softmax, cumsum);

fn sum(x: &Tensor, dtype: Option<ScalarType>) -> Result<Tensor, Error> {
    let _call = Call::new();
    // SAFETY: above.
    result(|out| unsafe { found!(sum)(out, x.handle(), wide(x, dtype)) })
}

fn sum_over(
    x: &Tensor,
    dims: Option<&[i64]>,
    keeps: bool,
    dtype: Option<ScalarType>,
) -> Result<Tensor, Error> {
    let _call = Call::new();
    let dims = dims.map(Numbers::of).into();
    // SAFETY: above.
    result(|out| unsafe { found!(sum_over)(out, x.handle(), dims, keeps, wide(x, dtype)) })
}

macro_rules! joins {
    ($($name:ident => $op:ident),*) => {$(
        /// In f32 where an operand is, else in the type of autocast.
        fn $name(parts: &[Tensor], dim: i64) -> Result<Tensor, Error> {
            let call = Call::new();
            let is = |part: &Tensor, dtype| part.dtype().ok() == Some(dtype) && part.is_wave();
            let is_wide = parts.iter().any(|part| is(part, ScalarType::F32));
            let to = if is_wide { ScalarType::F32 } else { call.lower()? };
            let parts = parts.iter().map(|part| call.cast(part, to)).collect::<Result<Vec<_>, _>>()?;
            let places: Vec<usize> = parts.iter().map(|part| part.get().implementation()).collect();
            // SAFETY: above; the operands outlive the call.
            result(|out| unsafe { found!($op)(out, Slice::of(&places), dim) })
        }
    )*};
}
joins!(cat => concat, stack => stack);

/// Those kernels of a table whose function this torch has.
macro_rules! of_this_torch {
    ($($name:literal => $kernel:ident $(by $function:ident)?,)*) => {
        [$(of_this_torch!(@$kernel $($function)?).then(|| kernel!($name, $kernel, uncaught))),*].into_iter().flatten().collect()
    };
    (@$kernel:ident) => { api().$kernel.is_some() };
    (@$kernel:ident $function:ident) => { api().$function.is_some() };
}

/// Registers what this torch has the functions for; `key` is the number of the dispatch key `AutocastPrivateUse1`.
/// Gives the operators' names.
///
/// # Errors
/// `Torch` where a call into libtorch fails.
pub fn install(key: u16) -> Result<Vec<&'static str>, Error> {
    let api = api();
    let is_whole = api.cached_cast.is_some() && api.autocast_dtype.is_some();
    if !is_whole || api.is_excluded.is_none() || api.exclude.is_none() {
        return Ok(Vec::new());
    }
    KEY.get_or_init(|| key);
    let ops: Vec<Registration> = of_this_torch! {
        "conv1d" => conv1d,
        "conv2d" => conv2d,
        "conv3d" => conv3d,
        "conv_transpose1d" => conv_transpose1d,
        "conv_transpose2d.input" => conv_transpose2d,
        "linear" => linear,
        "matmul" => matmul,
        "mm" => mm,
        "bmm" => bmm,
        "mv" => mv,
        "scaled_dot_product_attention" => attention,
        "layer_norm" => layer_norm,
        "group_norm" => group_norm,
        "softmax.int" => softmax,
        "log_softmax.int" => log_softmax,
        "cumsum" => cumsum,
        "sum" => sum,
        "sum.dim_IntList" => sum_over,
        "prelu" => prelu,
        "exp" => exp,
        "expm1" => expm1,
        "log" => log,
        "log10" => log10,
        "log1p" => log1p,
        "log2" => log2,
        "reciprocal" => reciprocal,
        "rsqrt" => rsqrt,
        "l1_loss" => l1_loss,
        "mse_loss" => mse_loss,
        "upsample_nearest2d" => upsample_nearest2d,
        "upsample_bilinear2d" => upsample_bilinear2d,
        "cat" => cat by concat,
        "stack" => stack,
    };
    register("aten", "AutocastPrivateUse1", &ops)?;
    let names = ops.iter().map(|op| op.name).collect();
    OPS.get_or_init(|| ops);
    Ok(names)
}

/// What [`install`] registered; of another key nothing.
pub fn candidates(key: u16) -> Option<Vec<Candidate>> {
    let ops = OPS.get().filter(|_| KEY.get() == Some(&key))?;
    Some(ops.iter().map(Registration::candidate).collect())
}
