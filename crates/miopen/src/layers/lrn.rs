//! Local response normalization, across channels and within them.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Data, Id, In, Out, Status};
use crate::abi::handle::Handle;
use crate::abi::slot::{self, DescriptorValue};
use crate::layers::steps::{Steps, alike};
use crate::layers::tensor::tensor_of;
use std::ffi::{c_int, c_uint};
use wave32_ops::pool::{Divisor, Windows, avg_pool2d};
use wave32_ops::{ElementType, Op, OpError, View};

/// What an LRN descriptor describes: `y = x * (k + alpha / n^d * sum of squares)^-beta`, the sum over n channels (d = 1)
/// or n x n pixels (d = 2).
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lrn {
    across: bool,
    n: u64,
    alpha: f64,
    beta: f64,
    k: f64,
}

impl DescriptorValue for Lrn {
    const KIND: &'static str = "LRN descriptor";
}

impl Lrn {
    fn share(&self) -> f64 {
        self.alpha / if self.across { self.n as f64 } else { (self.n * self.n) as f64 }
    }

    /// Sums over the windows around each element of a contiguous f32 tensor, N, C, H, W; `before` of a window lie
    /// before the element.
    fn sums(&self, steps: &mut Steps, of: &View, before: u64, out: &View) -> Result<(), OpError> {
        let ((kernel, padding), order) = match self.across {
            true => (([self.n, 1], [before, 0]), [0, 2, 1, 3]),
            false => (([self.n; 2], [before; 2]), [0, 1, 2, 3]),
        };
        let windows = Windows::Sliding { kernel, stride: [1, 1], padding, dilation: [1, 1] };
        let in_order = |view: &View| {
            let (sizes, strides) = (order.map(|dim| view.sizes()[dim]), order.map(|dim| view.strides()[dim]));
            View::new(view.address, view.dtype, &sizes, &strides)
        };
        // A sum is an average that is divided by 1.
        avg_pool2d(steps.queue, windows, Divisor::Fixed(1), &in_order(of)?, &in_order(out)?)
    }

    /// `scale` (f32, contiguous) is kept for the backward pass.
    fn forward(&self, steps: &mut Steps, x: &View, scale: &View, y: &View) -> Result<(), OpError> {
        let squares = steps.make(ElementType::F32, x.sizes())?;
        steps.run(Op::Mul, &[x.into(), x.into()], [0.0; 2], &squares)?;
        self.sums(steps, &squares, (self.n - 1) / 2, scale)?;
        steps.run(Op::AddScaled, &[self.k.into(), scale.into()], [self.share(), 0.0], scale)?;
        steps.run(Op::Pow, &[scale.into(), (-self.beta).into()], [0.0; 2], &squares)?;
        steps.run(Op::Mul, &[x.into(), (&squares).into()], [0.0; 2], y)
    }

    /// `dx = dy scale^-beta - 2 alpha beta / n^d * x * sums of y dy / scale`, the windows turned round.
    fn backward(
        &self,
        steps: &mut Steps,
        [x, y, dy]: [&View; 3],
        scale: &View,
        dx: &View,
    ) -> Result<(), OpError> {
        let [ratio, sums] =
            [steps.make(ElementType::F32, x.sizes())?, steps.make(ElementType::F32, x.sizes())?];
        steps.run(Op::Mul, &[y.into(), dy.into()], [0.0; 2], &ratio)?;
        steps.run(Op::Div, &[(&ratio).into(), scale.into()], [0.0; 2], &ratio)?;
        self.sums(steps, &ratio, self.n / 2, &sums)?;
        steps.run(Op::Pow, &[scale.into(), (-self.beta).into()], [0.0; 2], &ratio)?;
        steps.run(Op::Mul, &[(&ratio).into(), dy.into()], [0.0; 2], &ratio)?;
        let by = -2.0 * self.beta * self.share();
        steps.run(Op::Addcmul, &[(&ratio).into(), x.into(), (&sums).into()], [by, 0.0], dx)
    }
}

fn check(views: &[(&str, &View)]) -> Outcome {
    alike(views)?;
    match views.first() {
        Some((_, view)) if view.rank() != 4 => Err(Failure::bad("LRN is of N, C, H, W")),
        Some((_, view)) if view.dtype == ElementType::F64 => Err(Failure::absent("LRN of doubles")),
        _ => Ok(()),
    }
}

/// Creates an empty descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateLRNDescriptor(descriptor: Out<Id>) -> Status {
    call("miopenCreateLRNDescriptor", || slot::create::<Lrn>(&descriptor, None))
}

/// Destroys it.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroyLRNDescriptor(descriptor: Id) -> Status {
    call("miopenDestroyLRNDescriptor", || slot::destroy::<Lrn>(descriptor))
}

/// Sets it: within channels (0) or across (1), n, and the three numbers.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetLRNDescriptor(
    descriptor: Id,
    mode: c_int,
    n: c_uint,
    alpha: f64,
    beta: f64,
    k: f64,
) -> Status {
    call("miopenSetLRNDescriptor", || match mode {
        0 | 1 if n > 0 => slot::set(descriptor, Lrn { across: mode == 1, n: n.into(), alpha, beta, k }),
        _ => Err(Failure::bad(format!("LRN mode {mode} over {n}"))),
    })
}

/// What it was set to; each may be null.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetLRNDescriptor(
    descriptor: Id,
    mode: Out<c_int>,
    n: Out<c_uint>,
    alpha: Out<f64>,
    beta: Out<f64>,
    k: Out<f64>,
) -> Status {
    call("miopenGetLRNDescriptor", || {
        let found = slot::get::<Lrn>(descriptor)?;
        mode.set_if_wanted(c_int::from(found.across));
        n.set_if_wanted(c_uint::try_from(found.n).unwrap_or(c_uint::MAX));
        alpha.set_if_wanted(found.alpha);
        beta.set_if_wanted(found.beta);
        k.set_if_wanted(found.k);
        Ok(())
    })
}

/// Bytes for what the backward pass needs: an f32 an element.
#[unsafe(no_mangle)]
pub extern "C" fn miopenLRNGetWorkSpaceSize(y_desc: Id, bytes: Out<usize>) -> Status {
    call("miopenLRNGetWorkSpaceSize", || {
        bytes.set("workSpaceSize", tensor_of(y_desc, "yDesc")?.elements() as usize * size_of::<f32>())
    })
}

/// Normalizes. As in MIOpen, alpha and beta do nothing; the workspace is only written with `do_backward`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenLRNForward(
    handle: Id,
    descriptor: Id,
    _alpha: In<f32>,
    x_desc: Id,
    x: Data,
    _beta: In<f32>,
    y_desc: Id,
    y: Data,
    do_backward: u8,
    workspace: Data,
) -> Status {
    call("miopenLRNForward", || {
        let (handle, lrn) = (Handle::of(handle)?, slot::get::<Lrn>(descriptor)?);
        let x = tensor_of(x_desc, "xDesc")?.view("x", x)?;
        let y = tensor_of(y_desc, "yDesc")?.view("y", y)?;
        check(&[("x", &x), ("y", &y)])?;
        if do_backward != 0 && workspace == 0 {
            return Err(Failure::bad("the workspace is null"));
        }
        handle.run(|engine| {
            let steps = &mut Steps::new(&mut engine.queue);
            let scale = match do_backward {
                0 => steps.make(ElementType::F32, x.sizes())?,
                _ => View::contiguous(workspace as u64, ElementType::F32, x.sizes())?,
            };
            Ok(lrn.forward(steps, &x, &scale, &y)?)
        })
    })
}

/// The gradient, from what [`miopenLRNForward`] left in the workspace.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenLRNBackward(
    handle: Id,
    descriptor: Id,
    _alpha: In<f32>,
    y_desc: Id,
    y: Data,
    dy_desc: Id,
    dy: Data,
    x_desc: Id,
    x: Data,
    _beta: In<f32>,
    dx_desc: Id,
    dx: Data,
    workspace: Data,
) -> Status {
    call("miopenLRNBackward", || {
        let (handle, lrn) = (Handle::of(handle)?, slot::get::<Lrn>(descriptor)?);
        let y = tensor_of(y_desc, "yDesc")?.view("y", y)?;
        let dy = tensor_of(dy_desc, "dyDesc")?.view("dy", dy)?;
        let x = tensor_of(x_desc, "xDesc")?.view("x", x)?;
        let dx = tensor_of(dx_desc, "dxDesc")?.view("dx", dx)?;
        check(&[("x", &x), ("y", &y), ("dy", &dy), ("dx", &dx)])?;
        if workspace == 0 {
            return Err(Failure::bad("the workspace is null"));
        }
        let scale = View::contiguous(workspace as u64, ElementType::F32, x.sizes())?;
        handle
            .run(|engine| Ok(lrn.backward(&mut Steps::new(&mut engine.queue), [&x, &y, &dy], &scale, &dx)?))
    })
}
