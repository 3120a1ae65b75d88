//! Sizes and strides of the three tensors.

use crate::{DeviceCaps, Refusal};
use wave32_params::Strides;
use wave32_problem::{ConvProblem, DType, Layout};

/// A tensor's strides.
fn strides(layout: Layout, channels: i64, height: i64, width: i64) -> Strides {
    let [c, h, w] = [channels, height, width].map(|v| v as u32);
    match layout {
        Layout::Nchw => Strides::new(c * h * w, h * w, w, 1),
        Layout::Nhwc => Strides::new(c * h * w, 1, w * c, c),
    }
}

/// Rows are dense and begin at multiples of four elements, and so do these lengths and places: four neighbours are a vector.
pub fn has_rows_of_vectors<const N: usize>(strides: &Strides, others: [u32; N]) -> bool {
    has_rows_of(4, strides, others)
}

/// The same of so many elements.
pub fn has_rows_of<const N: usize>(count: u32, strides: &Strides, others: [u32; N]) -> bool {
    let starts = [strides.n.0, strides.c.0, strides.h.0];
    strides.w.0 == 1 && starts.iter().chain(&others).all(|v| v.is_multiple_of(count))
}

/// A plain problem's sizes as kernels want them: 32-bit indices and 16-bit geometry.
#[derive(Debug, Clone, Copy)]
pub struct ConvShape {
    pub n: u32,
    pub groups: u32,
    /// Input channels of a group.
    pub cg: u32,
    /// Output channels of a group.
    pub kg: u32,
    pub h: u32,
    pub w: u32,
    pub oh: u32,
    pub ow: u32,
    pub r: u32,
    pub s: u32,
    pub stride: [u32; 2],
    pub pad: [i32; 2],
    pub dilation: [i32; 2],
    pub x: Strides,
    pub f: Strides,
    pub y: Strides,
}

impl ConvShape {
    /// Of a problem that every kernel could take.
    ///
    /// # Errors
    /// `tensor-too-large`, `geometry-too-wide`, `no-16bit-storage`.
    pub fn new(problem: &ConvProblem, caps: &DeviceCaps) -> Result<Self, Refusal> {
        check(problem, caps)?;
        let s = problem.spec();
        let layout = s.layout;
        // No dimension is larger than a tensor that has it, and these fit.
        Ok(Self {
            n: s.n as u32,
            groups: s.groups as u32,
            cg: (s.c / s.groups) as u32,
            kg: (s.k / s.groups) as u32,
            h: s.h as u32,
            w: s.w as u32,
            oh: problem.out_h() as u32,
            ow: problem.out_w() as u32,
            r: s.r as u32,
            s: s.s as u32,
            stride: s.stride.map(|v| v as u32),
            pad: s.pad.map(|v| v as i32),
            dilation: s.dilation.map(|v| v as i32),
            x: strides(layout, s.c, s.h, s.w),
            f: strides(layout, s.c / s.groups, s.r, s.s),
            y: strides(layout, s.k, problem.out_h(), problem.out_w()),
        })
    }

    pub fn taps(&self) -> u32 {
        self.r * self.s
    }

    /// Output pixels of an image.
    pub fn pixels(&self) -> u32 {
        self.oh * self.ow
    }
}

/// Bytes of a tensor that a kernel addresses.
fn limit(caps: &DeviceCaps) -> u64 {
    caps.max_range.min(u64::from(u32::MAX))
}

/// The first tensor that no kernel addresses, and its elements.
pub fn too_large(problem: &ConvProblem, caps: &DeviceCaps) -> Option<(&'static str, u64)> {
    let size = problem.spec().dtype.size();
    // Indices are 32-bit, and so are byte offsets of f32 intermediates of the same shape.
    let is_too_large = |elements: u64| elements.saturating_mul(size) > limit(caps) || elements > 1 << 30;
    [("x", problem.x_elements()), ("w", problem.w_elements()), ("y", problem.y_elements())]
        .into_iter()
        .find(|&(_, elements)| is_too_large(elements))
}

/// Kernels can read and write the type.
pub fn check_storage(dtype: DType, caps: &DeviceCaps) -> Result<(), Refusal> {
    if dtype.size() == 2 && !caps.storage_16bit {
        return Err(Refusal::new("no-16bit-storage", "the device has no 16-bit buffer access"));
    }
    Ok(())
}

fn check(problem: &ConvProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
    let s = problem.spec();
    let size = s.dtype.size();
    check_storage(s.dtype, caps)?;
    if let Some((name, elements)) = too_large(problem, caps) {
        let limit = limit(caps);
        let detail =
            format!("{name} has {elements} elements of {size} bytes; a kernel addresses {limit} bytes");
        return Err(Refusal::new("tensor-too-large", detail));
    }
    for (name, value, limit) in [
        ("r", s.r, 0xffff),
        ("s", s.s, 0xffff),
        ("stride_h", s.stride[0], 0xffff),
        ("stride_w", s.stride[1], 0xffff),
        ("pad_h", s.pad[0], 0x7fff),
        ("pad_w", s.pad[1], 0x7fff),
        ("dilation_h", s.dilation[0], 0x7fff),
        ("dilation_w", s.dilation[1], 0x7fff),
    ] {
        if value > limit {
            return Err(Refusal::new(
                "geometry-too-wide",
                format!("{name} = {value}, kernels take up to {limit}"),
            ));
        }
    }
    Ok(())
}
