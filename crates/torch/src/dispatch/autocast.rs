//! `torch.autocast("wave")` of the operators that networks call most, without Python; the others, and these where torch
//! has moved what they need, are in `wave32/_autocast.py`.
//!
//! Each kernel casts its operands and calls the operator again, with autocast excluded. Libtorch's C++ functions are
//! called directly: what they throw reaches the caller as what it is. So nothing here may catch, as
//! [`crate::dispatch::register::enter`] does.

use crate::abi::calls::{Handle, MaybeFloat, MaybeTensor, MaybeType, Numbers, PRIVATE_USE_1, api};
use crate::abi::error::Error;
use crate::dispatch::register::{enter_uncaught, register};
use crate::kernel;
use crate::tensors::dtype;
use crate::tensors::tensor::Tensor;
use std::sync::OnceLock;
use wave32_torch_logic::ScalarType;

/// Libtorch's functions for autocast, and the dispatch key's number in this torch.
struct Autocast {
    key: u16,
    cached_cast: unsafe extern "C-unwind" fn(Handle, i8, Handle, i8) -> Handle,
    dtype: unsafe extern "C" fn(i8) -> i8,
    is_excluded: unsafe extern "C" fn(u16) -> bool,
    exclude: unsafe extern "C" fn(u16, bool),
}

static AUTOCAST: OnceLock<Autocast> = OnceLock::new();

/// One call: autocast is excluded on this thread while it lives.
struct Call {
    autocast: &'static Autocast,
    was_excluded: bool,
}

impl Drop for Call {
    fn drop(&mut self) {
        // SAFETY: sets a thread's own state.
        unsafe { (self.autocast.exclude)(self.autocast.key, self.was_excluded) };
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
    let implementation = operand.map_or(0, |operand| unsafe { *operand.handle().cast::<usize>() });
    MaybeTensor { implementation, is_there: operand.is_some() }
}

impl Call {
    fn new() -> Self {
        let autocast = AUTOCAST.get().expect("set before the kernels are registered");
        // SAFETY: reads and sets a thread's own state.
        let was_excluded = unsafe {
            let was = (autocast.is_excluded)(autocast.key);
            (autocast.exclude)(autocast.key, true);
            was
        };
        Self { autocast, was_excluded }
    }

    /// The type of `torch.autocast("wave", dtype=...)`.
    fn lower(&self) -> Result<ScalarType, Error> {
        // SAFETY: reads a thread's own state.
        dtype::of_code(i32::from(unsafe { (self.autocast.dtype)(PRIVATE_USE_1) }))
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
        unsafe { (self.autocast.cached_cast)(cast.handle(), code, given.handle(), PRIVATE_USE_1) };
        Ok(Operand { given, cast: Some(cast) })
    }

    fn cast_optional<'a>(
        &self,
        given: Option<&'a Tensor>,
        to: ScalarType,
    ) -> Result<Option<Operand<'a>>, Error> {
        given.map(|given| self.cast(given, to)).transpose()
    }
}

/// The result of a C++ function that constructs it where its first argument says.
fn result(call: impl FnOnce(Handle) -> Handle) -> Result<Tensor, Error> {
    let result = Tensor::undefined()?;
    call(result.handle());
    Ok(result)
}

/// A function of the table, which [`install`] found.
macro_rules! found {
    ($symbol:ident) => {
        api().$symbol.expect("only operators that were found are registered")
    };
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

fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor, Error> {
    let call = Call::new();
    let to = call.lower()?;
    let (x, weight, bias) = (call.cast(x, to)?, call.cast(weight, to)?, call.cast_optional(bias, to)?);
    let bias = maybe(bias.as_ref());
    // SAFETY: above.
    result(|out| unsafe { found!(linear)(out, x.handle(), weight.handle(), &raw const bias) })
}

macro_rules! convolutions {
    ($($name:ident),*) => {$(
        #[allow(clippy::too_many_arguments, reason = "the operator's")]
        fn $name(
            x: &Tensor,
            weight: &Tensor,
            bias: Option<&Tensor>,
            stride: &[i64],
            padding: &[i64],
            dilation: &[i64],
            groups: i64,
        ) -> Result<Tensor, Error> {
            let call = Call::new();
            let to = call.lower()?;
            let (x, weight, bias) = (call.cast(x, to)?, call.cast(weight, to)?, call.cast_optional(bias, to)?);
            let (bias, [stride, padding, dilation]) =
                (maybe(bias.as_ref()), [stride, padding, dilation].map(Numbers::of));
            let (x, weight, groups) = (x.handle(), weight.handle(), &raw const groups);
            // SAFETY: above.
            result(|out| unsafe {
                found!($name)(out, x, weight, &raw const bias, stride, padding, dilation, groups)
            })
        }
    )*};
}
convolutions!(conv1d, conv2d, conv3d);

macro_rules! transposed_convolutions {
    ($($name:ident),*) => {$(
        #[allow(clippy::too_many_arguments, reason = "the operator's")]
        fn $name(
            x: &Tensor,
            weight: &Tensor,
            bias: Option<&Tensor>,
            stride: &[i64],
            padding: &[i64],
            output_padding: &[i64],
            groups: i64,
            dilation: &[i64],
        ) -> Result<Tensor, Error> {
            let call = Call::new();
            let to = call.lower()?;
            let (x, weight, bias) = (call.cast(x, to)?, call.cast(weight, to)?, call.cast_optional(bias, to)?);
            let (bias, [stride, padding, output_padding, dilation]) =
                (maybe(bias.as_ref()), [stride, padding, output_padding, dilation].map(Numbers::of));
            let (x, weight, groups) = (x.handle(), weight.handle(), &raw const groups);
            // SAFETY: above.
            result(|out| unsafe {
                let op = found!($name);
                op(out, x, weight, &raw const bias, stride, padding, output_padding, groups, dilation)
            })
        }
    )*};
}
transposed_convolutions!(conv_transpose1d, conv_transpose2d);

#[allow(clippy::too_many_arguments, reason = "the operator's")]
fn scaled_dot_product_attention(
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
    let (mask, scale) =
        (maybe(mask.as_ref()), MaybeFloat { number: scale.unwrap_or_default(), is_there: scale.is_some() });
    let (query, key, value) = (query.handle(), key.handle(), value.handle());
    // SAFETY: above.
    result(|out| unsafe {
        let op = found!(attention);
        op(out, query, key, value, &raw const mask, dropout, causal, scale, groups)
    })
}

fn layer_norm(
    x: &Tensor,
    shape: &[i64],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
    cudnn: bool,
) -> Result<Tensor, Error> {
    let (call, to) = (Call::new(), ScalarType::F32);
    let (x, weight, bias) =
        (call.cast(x, to)?, call.cast_optional(weight, to)?, call.cast_optional(bias, to)?);
    let (weight, bias) = (maybe(weight.as_ref()), maybe(bias.as_ref()));
    // SAFETY: above.
    result(|out| unsafe {
        let op = found!(layer_norm);
        op(out, x.handle(), Numbers::of(shape), &raw const weight, &raw const bias, eps, cudnn)
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
    let (call, to) = (Call::new(), ScalarType::F32);
    let (x, weight, bias) =
        (call.cast(x, to)?, call.cast_optional(weight, to)?, call.cast_optional(bias, to)?);
    let (weight, bias) = (maybe(weight.as_ref()), maybe(bias.as_ref()));
    // SAFETY: above.
    result(|out| unsafe {
        let op = found!(group_norm);
        op(out, x.handle(), groups, &raw const weight, &raw const bias, eps, cudnn)
    })
}

macro_rules! softmaxes {
    ($($name:ident),*) => {$(
        fn $name(x: &Tensor, dim: i64, dtype: Option<ScalarType>) -> Result<Tensor, Error> {
            let _call = Call::new();
            let is_half = matches!(x.dtype(), Ok(ScalarType::F16 | ScalarType::BF16)) && x.is_wave();
            let dtype = dtype.or(is_half.then_some(ScalarType::F32));
            let dtype = MaybeType { code: dtype.map_or(0, |dtype| dtype::code(dtype) as i8), is_there: dtype.is_some() };
            // SAFETY: above.
            result(|out| unsafe { found!($name)(out, x.handle(), dim, dtype) })
        }
    )*};
}
softmaxes!(softmax, log_softmax);

/// Registers what this torch has the functions for; `key` is the number of the dispatch key `AutocastPrivateUse1`.
/// Gives the operators' names.
///
/// # Errors
/// `Torch` where a call into libtorch fails.
pub fn install(key: u16) -> Result<Vec<&'static str>, Error> {
    let api = api();
    let (Some(cached_cast), Some(dtype), Some(is_excluded), Some(exclude)) =
        (api.cached_cast, api.autocast_dtype, api.is_excluded, api.exclude)
    else {
        return Ok(Vec::new());
    };
    AUTOCAST.get_or_init(|| Autocast { key, cached_cast, dtype, is_excluded, exclude });
    let mut names = Vec::new();
    for (is_found, op) in [
        (api.conv1d.is_some(), kernel!("conv1d", conv1d, enter_uncaught)),
        (api.conv2d.is_some(), kernel!("conv2d", conv2d, enter_uncaught)),
        (api.conv3d.is_some(), kernel!("conv3d", conv3d, enter_uncaught)),
        (api.conv_transpose1d.is_some(), kernel!("conv_transpose1d", conv_transpose1d, enter_uncaught)),
        (api.conv_transpose2d.is_some(), kernel!("conv_transpose2d.input", conv_transpose2d, enter_uncaught)),
        (api.linear.is_some(), kernel!("linear", linear, enter_uncaught)),
        (api.matmul.is_some(), kernel!("matmul", matmul, enter_uncaught)),
        (api.mm.is_some(), kernel!("mm", mm, enter_uncaught)),
        (api.bmm.is_some(), kernel!("bmm", bmm, enter_uncaught)),
        (api.mv.is_some(), kernel!("mv", mv, enter_uncaught)),
        (
            api.attention.is_some(),
            kernel!("scaled_dot_product_attention", scaled_dot_product_attention, enter_uncaught),
        ),
        (api.layer_norm.is_some(), kernel!("layer_norm", layer_norm, enter_uncaught)),
        (api.group_norm.is_some(), kernel!("group_norm", group_norm, enter_uncaught)),
        (api.softmax.is_some(), kernel!("softmax.int", softmax, enter_uncaught)),
        (api.log_softmax.is_some(), kernel!("log_softmax.int", log_softmax, enter_uncaught)),
    ] {
        if is_found {
            names.push(op.name);
            register("aten", "AutocastPrivateUse1", &[op])?;
        }
    }
    Ok(names)
}
