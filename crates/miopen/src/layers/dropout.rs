//! Dropout. Its numbers come from a counter: the caller's states are kept in mind, never written.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Data, Id, Out, Status};
use crate::abi::handle::Handle;
use crate::abi::slot::{self, DescriptorValue};
use crate::layers::steps::{Steps, alike};
use crate::layers::tensor::tensor_of;
use std::ffi::{c_int, c_ulonglong};
use wave32_ops::random::{PhiloxState, counters, dropout};
use wave32_ops::{ElementType, Op, OpError, View};

/// What a dropout descriptor describes.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Dropout {
    /// Chance of an element to become 0.
    chance: f32,
    states: Data,
    seed: u64,
    /// The mask is the caller's.
    use_mask: bool,
    evolves: bool,
    generator: c_int,
    /// Numbers drawn so far.
    drawn: u64,
}

impl DescriptorValue for Dropout {
    const KIND: &'static str = "dropout descriptor";
}

impl Dropout {
    fn new(
        chance: f32,
        states: Data,
        seed: u64,
        use_mask: u8,
        evolves: u8,
        generator: c_int,
    ) -> Outcome<Self> {
        if !(0.0..=1.0).contains(&chance) || generator != 0 {
            return Err(Failure::bad(format!("dropout of {chance} from generator {generator}")));
        }
        let (use_mask, evolves) = (use_mask != 0, evolves != 0);
        Ok(Self { chance, states, seed, use_mask, evolves, generator, drawn: 0 })
    }

    /// `out = from * mask / (1 - chance)`.
    fn masked(&self, steps: &mut Steps, from: &View, mask: &View, out: &View) -> Result<(), OpError> {
        let keep = 1.0 - f64::from(self.chance);
        let scale = if keep > 0.0 { 1.0 / keep } else { 0.0 };
        // 0 + scale * from * mask
        let operands = [0.0.into(), from.into(), mask.into()];
        steps.run(Op::Addcmul, &operands, [scale, 0.0], out)
    }
}

/// Creates an empty descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateDropoutDescriptor(descriptor: Out<Id>) -> Status {
    call("miopenCreateDropoutDescriptor", || slot::create::<Dropout>(&descriptor, None))
}

/// Destroys it.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroyDropoutDescriptor(descriptor: Id) -> Status {
    call("miopenDestroyDropoutDescriptor", || slot::destroy::<Dropout>(descriptor))
}

/// Bytes of a mask: one an element.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDropoutGetReserveSpaceSize(x_desc: Id, bytes: Out<usize>) -> Status {
    call("miopenDropoutGetReserveSpaceSize", || {
        bytes.set("reserveSpaceSizeInBytes", tensor_of(x_desc, "xDesc")?.elements() as usize)
    })
}

/// Bytes of states: some, as callers may not expect none.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDropoutGetStatesSize(handle: Id, bytes: Out<usize>) -> Status {
    call("miopenDropoutGetStatesSize", || {
        Handle::of(handle)?;
        bytes.set("stateSizeInBytes", 64)
    })
}

/// What it was set to; each may be null.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenGetDropoutDescriptor(
    descriptor: Id,
    handle: Id,
    chance: Out<f32>,
    states: Out<Data>,
    seed: Out<c_ulonglong>,
    use_mask: Out<u8>,
    evolves: Out<u8>,
    generator: Out<c_int>,
) -> Status {
    call("miopenGetDropoutDescriptor", || {
        Handle::of(handle)?;
        let found = slot::get::<Dropout>(descriptor)?;
        chance.set_if_wanted(found.chance);
        states.set_if_wanted(found.states);
        seed.set_if_wanted(found.seed);
        use_mask.set_if_wanted(found.use_mask.into());
        evolves.set_if_wanted(found.evolves.into());
        generator.set_if_wanted(found.generator);
        Ok(())
    })
}

macro_rules! set {
    ($name:ident) => {
        /// Sets it: its numbers start with the seed.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the ABI's")]
        pub extern "C" fn $name(
            descriptor: Id,
            handle: Id,
            chance: f32,
            states: Data,
            _bytes: usize,
            seed: c_ulonglong,
            use_mask: u8,
            evolves: u8,
            generator: c_int,
        ) -> Status {
            call(stringify!($name), || {
                Handle::of(handle)?;
                slot::set(descriptor, Dropout::new(chance, states, seed, use_mask, evolves, generator)?)
            })
        }
    };
}

set!(miopenSetDropoutDescriptor);
set!(miopenRestoreDropoutDescriptor);

/// The mask's bytes: the caller's, or memory for once.
fn mask(steps: &mut Steps, reserve: Data, sizes: &[u64]) -> Result<View, OpError> {
    match reserve {
        0 => steps.make(ElementType::Bool, sizes),
        _ => View::contiguous(reserve as u64, ElementType::Bool, sizes),
    }
}

fn check_reserve(reserve: Data, bytes: usize, elements: u64, needed: bool) -> Outcome {
    match reserve {
        0 if needed => Err(Failure::bad("the reserve space, which has the mask, is null")),
        0 => Ok(()),
        _ if (bytes as u64) < elements => {
            Err(Failure::bad(format!("a reserve space of {bytes} bytes for {elements} elements")))
        }
        _ => Ok(()),
    }
}

/// `y = x * mask / (1 - chance)`; the mask, drawn or the caller's, is in the reserve space.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenDropoutForward(
    handle: Id,
    descriptor: Id,
    _noise_shape: Id,
    x_desc: Id,
    x: Data,
    y_desc: Id,
    y: Data,
    reserve: Data,
    bytes: usize,
) -> Status {
    call("miopenDropoutForward", || {
        let handle = Handle::of(handle)?;
        let x = tensor_of(x_desc, "xDesc")?.view("x", x)?;
        let y = tensor_of(y_desc, "yDesc")?.view("y", y)?;
        alike(&[("x", &x), ("y", &y)])?;
        let found = slot::change(descriptor, |dropout: &mut Dropout| {
            let before = *dropout;
            dropout.drawn += counters(x.elements());
            Ok(before)
        })?;
        check_reserve(reserve, bytes, x.elements(), found.use_mask)?;
        handle.run(|engine| {
            let steps = &mut Steps::new(&mut engine.queue);
            let mask = mask(steps, reserve, x.sizes())?;
            if found.use_mask {
                return Ok(found.masked(steps, &x, &mask, &y)?);
            }
            let out = if y.is_contiguous() { y } else { steps.make(y.dtype, y.sizes())? };
            let numbers = PhiloxState { seed: found.seed, offset: found.drawn };
            dropout(steps.queue, numbers, &x, 1.0 - f64::from(found.chance), &out, &mask)?;
            Ok(steps.copy(&out, &y)?)
        })
    })
}

/// `dx = dy * mask / (1 - chance)`, with the mask of the forward pass.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenDropoutBackward(
    handle: Id,
    descriptor: Id,
    _noise_shape: Id,
    dy_desc: Id,
    dy: Data,
    dx_desc: Id,
    dx: Data,
    reserve: Data,
    bytes: usize,
) -> Status {
    call("miopenDropoutBackward", || {
        let (handle, found) = (Handle::of(handle)?, slot::get::<Dropout>(descriptor)?);
        let dy = tensor_of(dy_desc, "dyDesc")?.view("dy", dy)?;
        let dx = tensor_of(dx_desc, "dxDesc")?.view("dx", dx)?;
        alike(&[("dy", &dy), ("dx", &dx)])?;
        check_reserve(reserve, bytes, dy.elements(), true)?;
        handle.run(|engine| {
            let steps = &mut Steps::new(&mut engine.queue);
            let mask = mask(steps, reserve, dy.sizes())?;
            Ok(found.masked(steps, &dy, &mask, &dx)?)
        })
    })
}
