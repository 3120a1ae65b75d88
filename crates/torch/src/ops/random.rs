//! Random fills and dropout, from the device's own generator ([`crate::runtime::rng`]).

use crate::abi::error::Error;
use crate::abi::stack::Generator;
use crate::dispatch::register::Registration;
use crate::ops::pointwise::{Pointwise, Rule};
use crate::runtime::bridge::{run, view};
use crate::runtime::{graph, rng, state};
use crate::tensors::tensor::Tensor;
use wave32_ops::random::{Draw, PhiloxState, counters, dropout, random};
use wave32_ops::{Op, OpError, Queue, View};
use wave32_torch_logic::ScalarType;
use wave32_torch_logic::number::{range_between, range_of};

/// Kernels of `aten`.
pub const OPS: &[Registration] = crate::ops! {
    "uniform_" => uniform,
    "normal_" => normal,
    "exponential_" => exponential,
    "bernoulli_.float" => bernoulli,
    "bernoulli_.Tensor" => bernoulli_of,
    "bernoulli.out" => bernoulli_out,
    "random_" => |x: &Tensor, generator: Option<&Generator>| integers(x, 0, range_of(x.dtype()?)?, generator),
    "random_.to" => |x: &Tensor, to: i64, generator: Option<&Generator>| from_to(x, 0, Some(to), generator),
    "random_.from" => from_to,
    "native_dropout" => native_dropout,
    "native_dropout_backward" => native_dropout_backward,
};

/// Numbers of the device's own generator; of a captured operator, those of a place in its graph ([`graph`]).
fn take(elements: i64) -> Result<PhiloxState, Error> {
    let counters = counters(elements.max(0) as u64);
    if graph::is_capturing()? {
        return Ok(PhiloxState { seed: 0, offset: graph::reserve(counters) });
    }
    let (seed, offset) = rng::reserve(counters);
    Ok(PhiloxState { seed, offset })
}

/// Runs an operation whose random numbers are others at each replay.
fn run_random(work: impl FnOnce(&mut dyn Queue) -> Result<(), OpError>) -> Result<(), Error> {
    state::perform(|queue| {
        queue.capture_live(true);
        let done = work(queue);
        queue.capture_live(false);
        done
    })
}

fn draw(x: &Tensor, draw: Draw, generator: Option<&Generator>) -> Result<Tensor, Error> {
    crate::tensors::layout::no_internal_overlap(x)?;
    let to = view(x)?;
    // A generator gives the seed of a sequence for this call.
    let numbers = match generator {
        Some(generator) => {
            graph::refuse("a generator of the caller's", "Leave `generator` out, or draw before the replay")?;
            PhiloxState { seed: generator.draw()?, offset: 0 }
        }
        None => take(x.numel())?,
    };
    run_random(|queue| random(queue, numbers, draw, &to))?;
    x.share()
}

/// Fills an I32 view with random bits: others at each call and at each replay.
///
/// # Errors
/// As the device's.
pub fn bits(to: &View) -> Result<(), Error> {
    let numbers = take(to.elements() as i64)?;
    run_random(|queue| random(queue, numbers, Draw::Bits, to))
}

/// That it has numbers with fractions.
fn floats(x: &Tensor, name: &str) -> Result<(), Error> {
    if x.dtype()?.is_float() || x.dtype()?.is_complex() {
        return Ok(());
    }
    Err(Error::Invalid(format!("\"{name}\" not implemented for '{}'", x.dtype()?.name())))
}

/// As [`floats`]; where nothing is drawn, any type will do.
fn floats_if_any(x: &Tensor, name: &str) -> Result<(), Error> {
    if x.numel() == 0 { Ok(()) } else { floats(x, name) }
}

fn uniform(x: &Tensor, low: f64, high: f64, generator: Option<&Generator>) -> Result<Tensor, Error> {
    floats(x, "uniform_")?;
    if low > high || low.is_nan() || high.is_nan() {
        return Err(Error::Invalid(format!(
            "uniform_ expects to return a [from, to) range, but found from={low} > to={high}"
        )));
    }
    draw(x, Draw::Uniform { low, high }, generator)
}

fn normal(x: &Tensor, mean: f64, deviation: f64, generator: Option<&Generator>) -> Result<Tensor, Error> {
    floats_if_any(x, "normal_")?;
    if deviation < 0.0 || deviation.is_nan() {
        return Err(Error::Invalid(format!("normal expects std >= 0.0, but found std {deviation}")));
    }
    draw(x, Draw::Normal { mean, deviation }, generator)
}

fn exponential(x: &Tensor, rate: f64, generator: Option<&Generator>) -> Result<Tensor, Error> {
    floats_if_any(x, "exponential_")?;
    if rate <= 0.0 || rate.is_nan() {
        return Err(Error::Invalid(format!("exponential_ expects lambda > 0.0, but found lambda={rate}")));
    }
    draw(x, Draw::Exponential { rate }, generator)
}

fn bernoulli(x: &Tensor, chance: f64, generator: Option<&Generator>) -> Result<Tensor, Error> {
    if !(0.0..=1.0).contains(&chance) {
        return Err(Error::Invalid(format!("bernoulli_ expects p to be in [0, 1], but got p={chance}")));
    }
    draw(x, Draw::Bernoulli(chance), generator)
}

fn bernoulli_of(x: &Tensor, chance: &Tensor, generator: Option<&Generator>) -> Result<Tensor, Error> {
    if !chance.dtype()?.is_float() {
        return Err(Error::NoKernel(format!("chances of {}", chance.dtype()?.name())));
    }
    let chance = view(chance)?;
    draw(x, Draw::BernoulliOf(&chance), generator)
}

fn bernoulli_out(chance: &Tensor, generator: Option<&Generator>, out: &Tensor) -> Result<Tensor, Error> {
    if out.sizes() != chance.sizes() {
        crate::tensors::memory_ops::resize_output(out, &chance.sizes())?;
    }
    bernoulli_of(out, chance, generator)
}

fn from_to(x: &Tensor, from: i64, to: Option<i64>, generator: Option<&Generator>) -> Result<Tensor, Error> {
    integers(x, from, range_between(x.dtype()?, from, to)?, generator)
}

fn integers(x: &Tensor, base: i64, range: u64, generator: Option<&Generator>) -> Result<Tensor, Error> {
    draw(x, Draw::Integers { base, range }, generator)
}

fn native_dropout(x: &Tensor, p: f64, train: Option<bool>) -> Result<(Tensor, Tensor), Error> {
    if !x.dtype()?.is_float() {
        return Err(Error::NoKernel(format!("dropout of {}", x.dtype()?.name())));
    }
    let out = x.empty_like(x.dtype()?)?;
    let mask = Tensor::empty_strided(&x.sizes(), &out.strides(), ScalarType::Bool)?;
    let (from, to, kept) = (view(x)?, view(&out)?, view(&mask)?);
    if train == Some(false) || p == 0.0 {
        run(|queue| {
            wave32_ops::copy(queue, &from, &to)?;
            wave32_ops::fill(queue, &kept, wave32_ops::Number::Int(1))
        })?;
    } else {
        let numbers = take(x.numel())?;
        run_random(|queue| dropout(queue, numbers, &from, 1.0 - p, &to, &kept))?;
    }
    Ok((out, mask))
}

fn native_dropout_backward(grad: &Tensor, mask: &Tensor, scale: f64) -> Result<Tensor, Error> {
    // 0 + scale * mask * grad.
    let inputs = [crate::ops::pointwise::Input::Value(0.0.into()), grad.into(), mask.into()];
    Pointwise::with(Op::Addcmul, Rule::Float, scale, 0.0).make(&inputs)
}
