//! Random numbers: counter-based, so that a result depends on seed, offset and index alone.

use crate::call::{Call, fit, fit_all, fit_inner, read, write};
use crate::{Common, ElementType, Number, OpError, Queue, View};
use wave32_params::random as kernel;

/// Seed and first counter of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhiloxState {
    /// Key of the sequence.
    pub seed: u64,
    /// The first counter; the call uses [`counters`] of them.
    pub offset: u64,
}

/// Counters that any call with so many elements uses at most.
pub fn counters(elements: u64) -> u64 {
    elements.div_ceil(2)
}

/// Gives a launch of [`random`] or [`dropout`] another place in the sequence: its counters are behind `offset` as they were
/// behind 0. `params` are the launch's words.
pub fn renumber(params: &mut [u32], state: PhiloxState) {
    let Some([key_low, key_high, low, high]) = params.get_mut(KEY..KEY + 4) else { return };
    let counter = state.offset.wrapping_add(u64::from(*high) << 32 | u64::from(*low));
    (*key_low, *key_high) = (state.seed as u32, (state.seed >> 32) as u32);
    (*low, *high) = (counter as u32, (counter >> 32) as u32);
}

/// The place of the key among a launch's words; the counter follows.
const KEY: usize = 8;

/// What to draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Draw<'a> {
    /// Evenly in `low..high`.
    Uniform {
        /// Least.
        low: f64,
        /// Bound, never reached.
        high: f64,
    },
    /// Normally distributed.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        deviation: f64,
    },
    /// 1 with this probability, else 0.
    Bernoulli(f64),
    /// 1 with the probability at the same place of a tensor that broadcasts to the result.
    BernoulliOf(&'a View),
    /// Whole numbers `base..base + range`; a range of 0 stands for 2^64.
    Integers {
        /// Least.
        base: i64,
        /// How many.
        range: u64,
    },
    /// Exponentially distributed.
    Exponential {
        /// Rate.
        rate: f64,
    },
    /// 32 random bits, in an I32 tensor.
    Bits,
}

/// Fills `out`, of any strides.
///
/// # Errors
/// `no-such-type` for F64, which kernels have no bits for; `too-many-elements`, `range-too-large`;
/// [`OpError::Device`] where the device fails.
pub fn random(queue: &mut dyn Queue, stream: PhiloxState, draw: Draw, out: &View) -> Result<(), OpError> {
    let zero = Number::Int(0);
    let (mode, s, t, input, range, base) = match draw {
        Draw::Uniform { low, high } => (kernel::DRAW_UNIFORM, low, high, None, 0, zero),
        Draw::Normal { mean, deviation } => (kernel::DRAW_NORMAL, mean, deviation, None, 0, zero),
        Draw::Bernoulli(chance) => (kernel::DRAW_BERNOULLI, chance, 0.0, None, 0, zero),
        Draw::BernoulliOf(chance) => {
            (kernel::DRAW_BERNOULLI_OF, 0.0, 0.0, Some(chance.broadcast(out.sizes())?), 0, zero)
        }
        Draw::Integers { base, range } => (kernel::DRAW_INTEGERS, 0.0, 0.0, None, range, Number::Int(base)),
        Draw::Exponential { rate } => (kernel::DRAW_EXPONENTIAL, rate, 0.0, None, 0, zero),
        Draw::Bits => (kernel::DRAW_BITS, 0.0, 0.0, None, 0, zero),
    };
    Launch { mode, s, t, range, base: base.int() as u64 }.run(queue, stream, input.as_ref(), out, None)
}

/// `out = input * mask / keep`, where each element of `mask` is true with probability `keep`; a `keep` of 0 gives
/// zeros. All have the same sizes, `out` and `mask` (a Bool) the same strides too.
///
/// # Errors
/// `different-strides`; as [`random`].
pub fn dropout(
    queue: &mut dyn Queue,
    stream: PhiloxState,
    input: &View,
    keep: f64,
    out: &View,
    mask: &View,
) -> Result<(), OpError> {
    if out.strides() != mask.strides() || input.sizes() != out.sizes() || mask.sizes() != out.sizes() {
        let detail = format!("{:?} and {:?}", out.strides(), mask.strides());
        return Err(OpError::refused("different-strides", detail));
    }
    let scale = if keep > 0.0 { 1.0 / keep } else { 0.0 };
    let launch = Launch { mode: kernel::DRAW_DROPOUT, s: keep, t: scale, range: 0, base: 0 };
    launch.run(queue, stream, Some(input), out, Some(mask))
}

struct Launch {
    mode: u32,
    s: f64,
    t: f64,
    range: u64,
    base: u64,
}

impl Launch {
    fn run(
        &self,
        queue: &mut dyn Queue,
        stream: PhiloxState,
        input: Option<&View>,
        out: &View,
        mask: Option<&View>,
    ) -> Result<(), OpError> {
        if out.dtype == ElementType::F64 || input.is_some_and(|input| input.dtype == ElementType::F64) {
            return Err(OpError::refused("no-such-type", "random numbers of F64"));
        }
        if out.elements() == 0 {
            return Ok(());
        }
        let read_from = input.unwrap_or(out);
        let common = Common::new(&[out, read_from]);
        let sizes = common.sizes4();
        let count: u64 = sizes.iter().product();
        let per_counter =
            if self.mode == kernel::DRAW_INTEGERS && (self.range > u64::from(u32::MAX) || self.range == 0) {
                2
            } else {
                4
            };
        let mut offset = stream.offset;
        common.outer(4, |offsets| {
            let a = read(queue, input.unwrap_or(out))?;
            let buffers = kernel::Buffers {
                dst: write(queue, out)?,
                a: if input.is_some() { a } else { a.unused() },
                mask: mask.map_or(Ok(a.unused()), |mask| write(queue, mask))?,
            };
            let mask_at = buffers.mask.at() + if mask.is_some() { offsets[0] } else { 0 };
            let params = kernel::Params {
                count: fit(count)?,
                mode: self.mode,
                o_type: out.dtype.code(),
                a_type: read_from.dtype.code(),
                o_at: fit(buffers.dst.at() + offsets[0])?,
                a_at: fit(a.at() + offsets[1])?,
                m_at: fit(mask_at)?,
                key: stream.seed,
                counter: offset,
                size: fit_inner(sizes)?,
                o: fit_all(common.strides4(0))?,
                a: fit_all(common.strides4(1))?,
                range: self.range,
                base: self.base,
                bits: match out.dtype {
                    ElementType::F16 if self.mode == kernel::DRAW_UNIFORM => 11,
                    ElementType::BF16 if self.mode == kernel::DRAW_UNIFORM => 8,
                    _ => 24,
                },
                s: self.s as f32,
                t: self.t as f32,
            };
            offset = offset.wrapping_add(count.div_ceil(per_counter));
            let bytes = count * (out.dtype.size() + read_from.dtype.size());
            Call { kernel: kernel::T, params, buffers, flops: 60 * count, bytes }.launch_items(
                queue,
                count,
                256 * per_counter,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave32_params::Params as _;

    #[test]
    fn a_launch_is_renumbered() {
        let params = kernel::Params {
            count: 1,
            mode: 2,
            o_type: 3,
            a_type: 4,
            o_at: 5,
            a_at: 6,
            m_at: 7,
            key: 0,
            counter: 0xffff_ffff,
            size: [0; 3],
            o: [0; 4],
            a: [0; 4],
            range: 0,
            base: 0,
            bits: 0,
            s: 0.0,
            t: 0.0,
        };
        let mut words: Vec<u32> = params.words().as_ref().to_vec();
        renumber(&mut words, PhiloxState { seed: 0x1_0000_0002, offset: 0x5_0000_0002 });
        let expected = kernel::Params { key: 0x1_0000_0002, counter: 0x6_0000_0001, ..params };
        assert_eq!(words, expected.words().as_ref());
    }
}
