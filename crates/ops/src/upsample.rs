//! Resampling of planes to another size: nearest and bilinear, forward and backward.

use crate::call::{Call, by_float, fit, read, write};
use crate::pool::strides4;
use crate::{ElementType, OpError, Queue, View};
use wave32_params::Divisors;
use wave32_params::upsample::{self as kernel, ALIGN, BACKWARD, BILINEAR, CHANNELS_LAST, EXACT, SIGNAL};

const THREADS: u64 = 256;

/// How a pixel of the output is made of the input's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resample {
    /// The pixel under its upper left corner.
    Nearest,
    /// The pixel under its centre.
    NearestExact,
    /// The four pixels around it.
    Bilinear {
        /// True where the centres of the outermost pixels lie on each other, else their edges do.
        align_corners: bool,
    },
}

/// Resamples `input` (N, C, H, W) to the size of `output`. `factors` are the user's scale factors of height
/// and width; where there is none, the sizes' quotient.
///
/// # Errors
/// `bad-shape`, `bad-type`, `too-many-elements`, `range-too-large`; [`OpError::Device`] where the device fails.
pub fn upsample2d(
    queue: &mut dyn Queue,
    how: Resample,
    factors: [Option<f64>; 2],
    input: &View,
    output: &View,
) -> Result<(), OpError> {
    launch(queue, how, factors, input, output, Pass::Image)
}

/// [`upsample2d`] of a signal, as images of height 1: nothing comes from a second row, and a nearest pixel is found by
/// the factor even where the signal keeps its size, as PyTorch's CPU has it.
///
/// # Errors
/// As [`upsample2d`].
pub fn upsample1d(
    queue: &mut dyn Queue,
    how: Resample,
    factor: Option<f64>,
    input: &View,
    output: &View,
) -> Result<(), OpError> {
    launch(queue, how, [None, factor], input, output, Pass::Signal)
}

/// The gradient of [`upsample2d`].
///
/// # Errors
/// As [`upsample2d`].
pub fn upsample2d_backward(
    queue: &mut dyn Queue,
    how: Resample,
    factors: [Option<f64>; 2],
    grad_output: &View,
    grad_input: &View,
) -> Result<(), OpError> {
    launch(queue, how, factors, grad_input, grad_output, Pass::Backward)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Image,
    Signal,
    Backward,
}

fn launch(
    queue: &mut dyn Queue,
    how: Resample,
    factors: [Option<f64>; 2],
    input: &View,
    output: &View,
    pass: Pass,
) -> Result<(), OpError> {
    let (&[n, c, in_h, in_w], &[out_n, out_c, out_h, out_w]) = (input.sizes(), output.sizes()) else {
        return Err(OpError::refused("bad-shape", format!("{:?}", input.sizes())));
    };
    if [n, c] != [out_n, out_c] || input.dtype != output.dtype {
        return Err(OpError::refused("bad-shape", format!("{input:?} and {output:?}")));
    }
    let backward = pass == Pass::Backward;
    let name = match (input.dtype, backward) {
        (ElementType::F64, _) => Some(kernel::D),
        (dtype, false) => by_float(kernel::T0, dtype),
        (dtype, true) => by_float(kernel::T1, dtype),
    };
    let name = name.ok_or_else(|| OpError::refused("bad-type", format!("{:?}", input.dtype)))?;
    // Beyond that, positions in f32 are off by whole pixels.
    if [in_h, in_w, out_h, out_w].iter().any(|&size| size > 1 << 20) {
        return Err(OpError::refused("too-many-elements", format!("{in_h}x{in_w} to {out_h}x{out_w}")));
    }
    let (from, to) = if backward { (output, input) } else { (input, output) };
    if to.elements() == 0 {
        return Ok(());
    }
    if from.elements() == 0 {
        return Err(OpError::refused("bad-shape", "resampling of nothing"));
    }
    let mut mode = match how {
        Resample::Nearest => 0,
        Resample::NearestExact => EXACT,
        Resample::Bilinear { align_corners: false } => BILINEAR,
        Resample::Bilinear { align_corners: true } => BILINEAR | ALIGN,
    };
    if backward {
        mode |= BACKWARD;
    }
    if pass == Pass::Signal {
        mode |= SIGNAL;
    }
    // Neighbouring threads on neighbouring addresses.
    if to.strides()[1] < to.strides()[3] {
        mode |= CHANNELS_LAST;
    }
    let by_factor = pass == Pass::Signal && how == Resample::Nearest;
    let scales = [how.scale(in_h, out_h, factors[0], false), how.scale(in_w, out_w, factors[1], by_factor)];
    let [(scale_h, scale_h_wide), (scale_w, scale_w_wide)] = scales;
    let count = to.elements();
    let per_item = 16 * if backward { (out_h / in_h + 4) * (out_w / in_w + 4) } else { 2 };
    let [rows, columns] = if backward { [in_h, in_w] } else { [out_h, out_w] };
    let bytes = (from.elements() + count) * input.dtype.size();
    let (src, dst) = (read(queue, from)?, write(queue, to)?);
    let (a, b) = if backward { (dst, src) } else { (src, dst) };
    Call {
        kernel: name,
        params: kernel::Params {
            mode,
            count: fit(count)?,
            channels: fit(c)?,
            out_h: fit(out_h)?,
            out_w: fit(out_w)?,
            in_h: fit(in_h)?,
            in_w: fit(in_w)?,
            a_at: fit(a.at())?,
            b_at: fit(b.at())?,
            scale_h,
            scale_w,
            scale_h_wide: scale_h_wide.to_bits(),
            scale_w_wide: scale_w_wide.to_bits(),
            a: strides4(input)?,
            b: strides4(output)?,
            by: Divisors::new([c, columns, rows]),
        },
        buffers: kernel::Buffers { src, dst },
        flops: count * per_item,
        bytes,
    }
    .launch_items(queue, count, THREADS)
}

impl Resample {
    /// Pixels of the input to one of the output, in PyTorch's f32 and f64 arithmetic.
    fn scale(self, size: u64, outs: u64, factor: Option<f64>, always_by_factor: bool) -> (f32, f64) {
        let by_factor = factor.filter(|&factor| factor > 0.0).map(|factor| 1.0 / factor);
        let plain = || match by_factor {
            Some(scale) => (scale as f32, scale),
            None => (size as f32 / outs as f32, size as f64 / outs as f64),
        };
        match self {
            Self::Nearest if always_by_factor => plain(),
            Self::Nearest | Self::Bilinear { .. } if outs == size => (1.0, 1.0),
            Self::Nearest if outs == 2 * size => (0.5, 0.5),
            Self::Nearest | Self::NearestExact | Self::Bilinear { align_corners: false } => plain(),
            Self::Bilinear { align_corners: true } if outs > 1 => {
                ((size - 1) as f32 / (outs - 1) as f32, (size - 1) as f64 / (outs - 1) as f64)
            }
            Self::Bilinear { align_corners: true } => (0.0, 0.0),
        }
    }
}
