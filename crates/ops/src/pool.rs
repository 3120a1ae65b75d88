//! Pooling over two dimensions: maximum and average, sliding and adaptive windows, forward and backward.

use crate::call::{Call, by_float, fit, fit_all, flag, read, write};
use crate::{ElementType, OpError, Queue, View};
use wave32_params::pool::{self as kernel, ADAPTIVE, AVERAGE, BACKWARD, COUNT_PAD};
use wave32_params::pooling::CHANNELS_LAST;
use wave32_params::{Divisors, Pair, max_pool as maxima};

const THREADS: u64 = 256;

/// Where the windows lie. How many there are is the output's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Windows {
    /// Windows of one size at regular steps; `[height, width]` each.
    Sliding {
        /// Size of a window.
        kernel: [u64; 2],
        /// Step from one to the next.
        stride: [u64; 2],
        /// Pixels that the first one lies outside.
        padding: [u64; 2],
        /// Step within a window; 1 for averages.
        dilation: [u64; 2],
    },
    /// Windows that share the input out evenly.
    Adaptive,
}

/// What the sum over a sliding window is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divisor {
    /// Its pixels, padding included.
    WithPadding,
    /// Its pixels that are in the input.
    WithoutPadding,
    /// This number.
    Fixed(i32),
}

/// Maxima of the windows of `input` (N, C, H, W), and where they are: `indices` (int64, the sizes of
/// `output`) become positions in their planes. Of equal ones the first counts, of NaNs the last.
///
/// # Errors
/// `bad-shape`, `bad-type`, `window-too-large`, `too-many-elements`, `range-too-large`; [`OpError::Device`] where
/// the device fails.
pub fn max_pool2d(
    queue: &mut dyn Queue,
    windows: Windows,
    input: &View,
    output: &View,
    indices: &View,
) -> Result<(), OpError> {
    check_indices(output, indices)?;
    Sides { windows, mode: 0, divisor: 0, input, output }.launch(queue, Some(indices))
}

/// The gradient of [`max_pool2d`]: each pixel's sum over the windows whose maximum it was, in order.
///
/// # Errors
/// As [`max_pool2d`].
pub fn max_pool2d_backward(
    queue: &mut dyn Queue,
    windows: Windows,
    grad_output: &View,
    indices: &View,
    grad_input: &View,
) -> Result<(), OpError> {
    check_indices(grad_output, indices)?;
    let sides = Sides { windows, mode: BACKWARD, divisor: 0, input: grad_input, output: grad_output };
    sides.launch(queue, Some(indices))
}

/// Averages of the windows of `input` (N, C, H, W). Adaptive windows have no padding, so that `divisor` then
/// only matters where it is fixed.
///
/// # Errors
/// As [`max_pool2d`]; `bad-divisor`.
pub fn avg_pool2d(
    queue: &mut dyn Queue,
    windows: Windows,
    divisor: Divisor,
    input: &View,
    output: &View,
) -> Result<(), OpError> {
    let (mode, divisor) = average(windows, divisor)?;
    Sides { windows, mode, divisor, input, output }.launch(queue, None)
}

/// The gradient of [`avg_pool2d`].
///
/// # Errors
/// As [`avg_pool2d`].
pub fn avg_pool2d_backward(
    queue: &mut dyn Queue,
    windows: Windows,
    divisor: Divisor,
    grad_output: &View,
    grad_input: &View,
) -> Result<(), OpError> {
    let (mode, divisor) = average(windows, divisor)?;
    let sides = Sides { windows, mode: mode | BACKWARD, divisor, input: grad_input, output: grad_output };
    sides.launch(queue, None)
}

fn average(windows: Windows, divisor: Divisor) -> Result<(u32, u32), OpError> {
    if let Windows::Sliding { dilation, .. } = windows
        && dilation != [1, 1]
    {
        return Err(OpError::refused(
            "bad-shape",
            format!("an average over windows of dilation {dilation:?}"),
        ));
    }
    match (windows, divisor) {
        (_, Divisor::Fixed(0)) => Err(OpError::refused("bad-divisor", "0")),
        (_, Divisor::Fixed(by)) => Ok((AVERAGE, by as u32)),
        (Windows::Sliding { .. }, Divisor::WithPadding) => Ok((AVERAGE | COUNT_PAD, 0)),
        _ => Ok((AVERAGE, 0)),
    }
}

fn check_indices(output: &View, indices: &View) -> Result<(), OpError> {
    if indices.dtype != ElementType::I64 || indices.sizes() != output.sizes() {
        let detail = format!("indices {:?} {:?} of {:?}", indices.dtype, indices.sizes(), output.sizes());
        return Err(OpError::refused("bad-type", detail));
    }
    Ok(())
}

struct Sides<'a> {
    windows: Windows,
    mode: u32,
    divisor: u32,
    input: &'a View,
    output: &'a View,
}

impl Sides<'_> {
    fn launch(&self, queue: &mut dyn Queue, indices: Option<&View>) -> Result<(), OpError> {
        let (input, output) = (self.input, self.output);
        let (&[n, c, in_h, in_w], &[out_n, out_c, out_h, out_w]) = (input.sizes(), output.sizes()) else {
            return Err(OpError::refused("bad-shape", format!("{:?}", input.sizes())));
        };
        if [n, c] != [out_n, out_c] || input.dtype != output.dtype {
            let detail = format!("{input:?} and {output:?}");
            return Err(OpError::refused("bad-shape", detail));
        }
        let backward = self.mode & BACKWARD != 0;
        let name = match input.dtype {
            ElementType::F64 => Some(kernel::D),
            dtype => by_float(kernel::T, dtype),
        };
        let name = name.ok_or_else(|| OpError::refused("bad-type", format!("{:?}", input.dtype)))?;
        let (from, to) = if backward { (output, input) } else { (input, output) };
        if to.elements() == 0 {
            return Ok(());
        }
        if from.elements() == 0 {
            return Err(OpError::refused("bad-shape", "pooling of nothing"));
        }
        let (windows, per_item) = self.windows.pack([in_h, in_w], [out_h, out_w], backward)?;
        let [window, stride, pad, dilation] = windows;
        // Neighbouring threads on neighbouring addresses.
        let mode = self.mode
            | flag(self.windows == Windows::Adaptive, ADAPTIVE)
            | flag(to.strides()[1] < to.strides()[3], CHANNELS_LAST);
        let elements = to.elements();
        let bytes = (from.elements() + elements) * input.dtype.size();
        let flops = 2 * elements * per_item;
        let (src, dst) = (read(queue, from)?, write(queue, to)?);
        let index = match indices {
            Some(indices) if backward => read(queue, indices)?,
            Some(indices) => write(queue, indices)?,
            None => src.unused(),
        };
        let (a, b) = if backward { (dst, src) } else { (src, dst) };
        let &[_, _, rows, columns] = to.sizes() else { unreachable!("both sides have four dimensions") };
        let names = if backward { maxima::BACKWARD } else { maxima::FORWARD };
        if let Some(indices) = indices
            && self.windows != Windows::Adaptive
            && let Some(name) = by_float(names, input.dtype)
        {
            // What a thread writes is one vector, of indices two.
            let is_whole = |view: &View| {
                view.begins_with_vector()
                    && view.strides()[3] == 1
                    && view.sizes()[3].is_multiple_of(4)
                    && view.strides()[..3].iter().all(|step| step.is_multiple_of(4))
            };
            let threads = columns.div_ceil(u64::from(maxima::PIXELS));
            let count = n * c * rows * threads;
            return Call {
                kernel: name,
                params: maxima::Params {
                    mode: mode | flag(is_whole(to) && (backward || is_whole(indices)), maxima::WIDE),
                    count: fit(count)?,
                    channels: fit(c)?,
                    out_h: fit(out_h)?,
                    out_w: fit(out_w)?,
                    in_h: fit(in_h)?,
                    in_w: fit(in_w)?,
                    a_at: fit(a.at())?,
                    b_at: fit(b.at())?,
                    x_at: fit(index.at())?,
                    kernel: window,
                    stride,
                    pad,
                    dilation,
                    a: strides4(input)?,
                    b: strides4(output)?,
                    i: strides4(indices)?,
                    by: Divisors::new([c, threads, rows]),
                },
                buffers: maxima::Buffers { src, dst, index },
                flops,
                bytes,
            }
            .launch_items(queue, count, THREADS);
        }
        Call {
            kernel: name,
            params: kernel::Params {
                mode,
                count: fit(elements)?,
                channels: fit(c)?,
                out_h: fit(out_h)?,
                out_w: fit(out_w)?,
                in_h: fit(in_h)?,
                in_w: fit(in_w)?,
                a_at: fit(a.at())?,
                b_at: fit(b.at())?,
                x_at: fit(index.at())?,
                kernel: window,
                stride,
                pad,
                dilation,
                divisor: self.divisor,
                a: strides4(input)?,
                b: strides4(output)?,
                i: indices.map_or(Ok([0; 4]), strides4)?,
                by: Divisors::new([c, columns, rows]),
            },
            buffers: kernel::Buffers { src, dst, index },
            flops,
            bytes,
        }
        .launch_items(queue, elements, THREADS)
    }
}

/// Strides of a (N, C, H, W) view.
pub(crate) fn strides4(view: &View) -> Result<[u32; 4], OpError> {
    let &[n, c, h, w] = view.strides() else {
        return Err(OpError::refused("bad-shape", format!("{:?}", view.sizes())));
    };
    fit_all([n, c, h, w])
}

impl Windows {
    /// Kernel, stride, padding and dilation, and the pixels (windows in the backward
    /// direction) that an item goes through.
    fn pack(self, size: [u64; 2], outs: [u64; 2], backward: bool) -> Result<([Pair; 4], u64), OpError> {
        let too_large = |detail: String| OpError::refused("window-too-large", detail);
        let Self::Sliding { kernel, stride, padding, dilation } = self else {
            // The kernel multiplies positions with sizes.
            if size.iter().zip(outs).any(|(&size, outs)| (size + 1) * (outs + 1) >= 1 << 31) {
                return Err(too_large(format!("{size:?} to {outs:?}")));
            }
            let (from, to) = if backward { (outs, size) } else { (size, outs) };
            let per_item = (0..2).map(|at| from[at] / to[at] + 2).product();
            return Ok(([Pair([1, 1]); 4], per_item));
        };
        let mut packed = [Pair([0, 0]); 4];
        for (at, [h, w]) in [kernel, stride, padding, dilation].into_iter().enumerate() {
            if h.max(w) > 0xffff || (at != 2 && h.min(w) == 0) {
                return Err(too_large(format!("{self:?}")));
            }
            packed[at] = Pair([h as i32, w as i32]);
        }
        let reaches_far = (0..2).any(|at| {
            let reach = (kernel[at] - 1) * dilation[at] + 1;
            // Where f32 still tells places apart.
            size[at] + padding[at] + reach + outs[at] * stride[at] >= 1 << 20
        });
        if reaches_far || size[0] * size[1] >= 1 << 31 {
            return Err(too_large(format!("{self:?} on {size:?}")));
        }
        let per_item = match backward {
            false => kernel[0] * kernel[1],
            true => {
                (0..2).map(|at| ((kernel[at] - 1) * dilation[at] / stride[at] + 1).min(outs[at])).product()
            }
        };
        Ok((packed, per_item))
    }
}
