//! `torch.autocast("wave")` of the operators that networks call most, without Python; the others, and these where torch
//! has moved what they need, are in `wave32/_autocast.py`.
//!
//! Each kernel casts its operands and calls the operator again, with autocast excluded. Libtorch's C++ functions are
//! called directly: what they throw reaches the caller as what it is. So nothing here may catch, as
//! [`crate::dispatch::register::enter`] does.

use crate::abi::calls::{Handle, MaybeTensor, Numbers, PRIVATE_USE_1, api};
use crate::abi::error::Error;
use crate::abi::unboxed::Candidate;
use crate::dispatch::register::{Registration, register};
use crate::kernel;
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
    fn handle(&self) -> Handle {
        self.cast.as_ref().unwrap_or(self.given).handle()
    }
}

fn maybe(operand: Option<&Operand<'_>>) -> MaybeTensor {
    // SAFETY: a handle is an `at::Tensor*`, and that is one pointer, to the tensor's implementation.
    operand.map(|operand| unsafe { *operand.handle().cast::<usize>() }).into()
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
        let cast = Tensor::undefined()?;
        let code = dtype::code(to) as i8;
        // SAFETY: handles are `at::Tensor*`, the result's to one that owns nothing yet, where the callee constructs.
        unsafe { found!(cached_cast)(cast.handle(), code, given.handle(), PRIVATE_USE_1) };
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
        let _keeping = Keeping::begin();
        self.cast(given, to)
    }
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
products!(matmul, mm, bmm, mv);

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

macro_rules! softmaxes {
    ($($name:ident),*) => {$(
        fn $name(x: &Tensor, dim: i64, dtype: Option<ScalarType>) -> Result<Tensor, Error> {
            let _call = Call::new();
            let is_half = matches!(x.dtype(), Ok(ScalarType::F16 | ScalarType::BF16)) && x.is_wave();
            let dtype = dtype.or(is_half.then_some(ScalarType::F32));
            let dtype = dtype.map(|dtype| dtype::code(dtype) as i8).into();
            // SAFETY: above.
            result(|out| unsafe { found!($name)(out, x.handle(), dim, dtype) })
        }
    )*};
}
softmaxes!(softmax, log_softmax);

/// Those kernels of a table whose function this torch has.
macro_rules! of_this_torch {
    ($($name:literal => $kernel:ident,)*) => {
        [$(api().$kernel.is_some().then(|| kernel!($name, $kernel, uncaught))),*].into_iter().flatten().collect()
    };
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
