//! Pooling: what a descriptor says, and its work on a queue.

use crate::abi::entry::{Failure, Outcome};
use crate::abi::slot::DescriptorValue;
use crate::layers::steps::Steps;
use std::ffi::c_int;
use wave32_ops::pool::{Divisor, Windows, avg_pool2d, avg_pool2d_backward, max_pool2d, max_pool2d_backward};
use wave32_ops::{ElementType, Op, OpError, View, copy};

/// `miopenPoolingMode_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PoolingMode {
    /// Maximum.
    #[default]
    Max = 0,
    /// Average over the pixels that are there.
    Average = 1,
    /// Average over the whole window.
    AverageInclusive = 2,
}

/// What a pooling descriptor describes; each dimension in the order D, H, W.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pooling {
    /// What becomes of a window.
    pub mode: PoolingMode,
    /// Sizes of a window; empty until they are set.
    pub window: Vec<u64>,
    /// Pixels that the first window lies outside.
    pub padding: Vec<u64>,
    /// Steps from window to window.
    pub stride: Vec<u64>,
    /// `miopenIndexType_t`: 2 to the power of this is the bytes of a place in the workspace.
    pub index_type: c_int,
    /// `miopenPoolingWorkspaceIndexMode_t`: places within windows (0) or images (1).
    pub index_mode: c_int,
}

impl DescriptorValue for Pooling {
    const KIND: &'static str = "pooling descriptor";
}

/// Sizes as far as places are concerned.
#[derive(Debug, Clone, Copy)]
struct Places {
    /// Pixels of an image's rows, and its rows.
    width: u64,
    height: u64,
    /// Columns and rows of windows.
    outs: [u64; 2],
    window_width: u64,
    stride: [i64; 2],
    padding: [i64; 2],
    within_window: bool,
}

impl Pooling {
    /// Sets the windows.
    ///
    /// # Errors
    /// Bad parameter: no such mode; not two or three dimensions; windows or strides below 1, padding below 0.
    pub fn set(&mut self, mode: c_int, window: &[c_int], padding: &[c_int], stride: &[c_int]) -> Outcome {
        let mode = match mode {
            0 => PoolingMode::Max,
            1 => PoolingMode::Average,
            2 => PoolingMode::AverageInclusive,
            _ => return Err(Failure::bad(format!("{mode} is no pooling mode"))),
        };
        let least = |values: &[c_int], least: c_int| values.iter().all(|&value| value >= least);
        if !(2..=3).contains(&window.len()) || !least(window, 1) || !least(stride, 1) || !least(padding, 0) {
            let text = format!("windows {window:?}, padding {padding:?}, strides {stride:?}");
            return Err(Failure::bad(text));
        }
        let wide = |values: &[c_int]| values.iter().map(|&value| value as u64).collect();
        (self.mode, self.window, self.padding, self.stride) =
            (mode, wide(window), wide(padding), wide(stride));
        Ok(())
    }

    /// Sizes of the result for an input of these sizes (N, C, ...).
    ///
    /// # Errors
    /// Bad parameter: another number of dimensions than the windows have.
    pub fn outputs(&self, sizes: &[u64]) -> Outcome<Vec<u64>> {
        if self.window.is_empty() || sizes.len() != self.window.len() + 2 {
            let text = format!("windows of {} dimensions on sizes {sizes:?}", self.window.len());
            return Err(Failure::bad(text));
        }
        let along = |at: usize| {
            let room = (sizes[at + 2] + 2 * self.padding[at]).saturating_sub(self.window[at]);
            room / self.stride[at] + 1
        };
        Ok(sizes[..2].iter().copied().chain((0..self.window.len()).map(along)).collect())
    }

    /// Bytes of the workspace for a result of so many elements.
    pub fn workspace(&self, elements: u64) -> u64 {
        if self.mode == PoolingMode::Max { elements << self.index_type } else { 0 }
    }

    /// The type of places in the workspace: of that many bits, whatever its sign.
    fn stored(&self) -> ElementType {
        [ElementType::U8, ElementType::I16, ElementType::I32, ElementType::I64][self.index_type as usize & 3]
    }

    /// Checks windows against tensors.
    ///
    /// # Errors
    /// Bad parameter: dimensions, batch or channels differ. Not implemented: windows over several images in depth,
    /// windows that hold no pixel.
    pub fn check(&self, x: &View, y: &View) -> Outcome {
        self.outputs(x.sizes())?;
        if y.sizes().len() != x.sizes().len() || y.sizes()[..2] != x.sizes()[..2] || x.dtype != y.dtype {
            let text = format!("x is {:?} {:?}, y {:?} {:?}", x.dtype, x.sizes(), y.dtype, y.sizes());
            return Err(Failure::bad(text));
        }
        if self.window.len() == 3 && (self.window[0], self.stride[0], self.padding[0]) != (1, 1, 0) {
            let text = format!("windows {:?}: pooling in three dimensions", self.window);
            return Err(Failure::absent(text));
        }
        for at in 0..self.window.len() {
            let (size, outs) = (x.sizes()[at + 2], y.sizes()[at + 2]);
            let last = (outs - 1) * self.stride[at];
            if self.padding[at] >= self.window[at] || last >= size + self.padding[at] {
                let text = format!("windows of {} padded by {}", self.window[at], self.padding[at]);
                return Err(Failure::absent(format!(
                    "{text}, {outs} of them, on {size} pixels: some are empty"
                )));
            }
        }
        Ok(())
    }

    /// That places fit into the workspace's type.
    ///
    /// # Errors
    /// Bad parameter: they do not, or the workspace is null or too small.
    pub fn check_places(&self, x: &View, y: &View, workspace: u64, bytes: Option<u64>) -> Outcome {
        if self.mode != PoolingMode::Max {
            return Ok(());
        }
        let count: u64 =
            if self.index_mode == 0 { self.window.iter().product() } else { x.sizes()[2..].iter().product() };
        let (bits, needed) = (8u64 << self.index_type, self.workspace(y.elements()));
        if bits < 64 && count > 1 << bits {
            let text = format!("{count} places in {bits} bits: call miopenSetPoolingIndexType");
            return Err(Failure::bad(text));
        }
        match bytes {
            _ if workspace == 0 => Err(Failure::bad("the workspace is null")),
            Some(bytes) if bytes < needed => {
                Err(Failure::bad(format!("the workspace has {bytes} bytes, {needed} are needed")))
            }
            _ => Ok(()),
        }
    }

    fn windows(&self) -> Windows {
        let two = |values: &[u64]| [values[values.len() - 2], values[values.len() - 1]];
        let (kernel, stride, padding) = (two(&self.window), two(&self.stride), two(&self.padding));
        Windows::Sliding { kernel, stride, padding, dilation: [1, 1] }
    }

    fn divisor(&self) -> Divisor {
        match self.mode {
            PoolingMode::AverageInclusive => Divisor::Fixed(self.window.iter().product::<u64>() as i32),
            _ => Divisor::WithoutPadding,
        }
    }

    fn places(&self, x: &View, y: &View) -> Places {
        let size = |view: &View, back: usize| view.sizes()[view.rank() - back];
        let two = |values: &[u64]| [2, 1].map(|back| values[values.len() - back] as i64);
        Places {
            width: size(x, 1),
            height: size(x, 2),
            outs: [size(y, 2), size(y, 1)],
            window_width: self.window[self.window.len() - 1],
            stride: two(&self.stride),
            padding: two(&self.padding),
            within_window: self.index_mode == 0,
        }
    }

    /// Pools; `workspace` (null for none) gets the places of maxima.
    ///
    /// # Errors
    /// [`OpError`]: an operation refuses the operands by name, or the device fails.
    pub fn forward(&self, steps: &mut Steps, x: &View, y: &View, workspace: u64) -> Result<(), OpError> {
        let keeps = workspace != 0 && self.mode == PoolingMode::Max;
        let stored = if keeps { Some(View::contiguous(workspace, self.stored(), y.sizes())?) } else { None };
        let places = self.places(x, y);
        for_each_volume(x, y, stored.as_ref(), |x, y, stored| {
            if self.mode != PoolingMode::Max {
                return avg_pool2d(steps.queue, self.windows(), self.divisor(), x, y);
            }
            let found = steps.make(ElementType::I64, y.sizes())?;
            max_pool2d(steps.queue, self.windows(), x, y, &found)?;
            match stored {
                Some(stored) => places.encode(steps, &found, stored, self.window.len() == 3),
                None => Ok(()),
            }
        })
    }

    /// The gradient; `workspace` is what [`Pooling::forward`] left.
    ///
    /// # Errors
    /// [`OpError`]: an operation refuses the operands by name, or the device fails.
    pub fn backward(&self, steps: &mut Steps, dx: &View, dy: &View, workspace: u64) -> Result<(), OpError> {
        let is_max = self.mode == PoolingMode::Max;
        let stored =
            if is_max { Some(View::contiguous(workspace, self.stored(), dy.sizes())?) } else { None };
        let places = self.places(dx, dy);
        for_each_volume(dx, dy, stored.as_ref(), |dx, dy, stored| match stored {
            Some(stored) => {
                let found = steps.make(ElementType::I64, dy.sizes())?;
                places.decode(steps, stored, &found)?;
                max_pool2d_backward(steps.queue, self.windows(), dy, &found, dx)
            }
            None => avg_pool2d_backward(steps.queue, self.windows(), self.divisor(), dy, dx),
        })
    }
}

/// Runs `each` on N, C, H, W, or for N, C, D, H, W on each image's C, D, H, W.
fn for_each_volume(
    x: &View,
    y: &View,
    stored: Option<&View>,
    mut each: impl FnMut(&View, &View, Option<&View>) -> Result<(), OpError>,
) -> Result<(), OpError> {
    if x.rank() == 4 {
        return each(x, y, stored);
    }
    (0..x.sizes()[0]).try_for_each(|at| {
        let stored = stored.map(|stored| stored.select(0, at));
        each(&x.select(0, at), &y.select(0, at), stored.as_ref())
    })
}

impl Places {
    /// `[rows, columns]` where windows begin, times `by`, as tensors that broadcast to the result.
    fn begins(&self, steps: &mut Steps, by: [i64; 2]) -> Result<[View; 2], OpError> {
        let mut along =
            |at: usize| steps.range(-self.padding[at] * by[at], self.stride[at] * by[at], self.outs[at]);
        let (rows, columns) = (along(0)?, along(1)?);
        Ok([View::contiguous(rows.address, ElementType::I64, &[self.outs[0], 1])?, columns])
    }

    /// From positions in planes to what the workspace holds.
    fn encode(&self, steps: &mut Steps, found: &View, stored: &View, deep: bool) -> Result<(), OpError> {
        let width = (self.width as i64).into();
        if self.within_window {
            let columns = steps.make(ElementType::I64, found.sizes())?;
            steps.count(Op::Remainder, &[found.into(), width], &columns)?;
            steps.count(Op::DivFloor, &[found.into(), width], found)?;
            steps.count(Op::Mul, &[found.into(), (self.window_width as i64).into()], found)?;
            steps.count(Op::Add, &[found.into(), (&columns).into()], found)?;
            for begin in &self.begins(steps, [self.window_width as i64, 1])? {
                steps.count(Op::Sub, &[found.into(), begin.into()], found)?;
            }
        } else if deep {
            let depth = found.sizes()[1];
            let planes = steps.range(0, (self.width * self.height) as i64, depth)?;
            let planes = View::contiguous(planes.address, ElementType::I64, &[depth, 1, 1])?;
            steps.count(Op::Add, &[found.into(), (&planes).into()], found)?;
        }
        copy(steps.queue, found, stored)
    }

    /// The way back.
    fn decode(&self, steps: &mut Steps, stored: &View, found: &View) -> Result<(), OpError> {
        copy(steps.queue, stored, found)?;
        if matches!(stored.dtype, ElementType::I16 | ElementType::I32) {
            // They were written without a sign.
            let all = 1i64 << (8 * stored.dtype.size());
            steps.count(Op::Remainder, &[found.into(), all.into()], found)?;
        }
        if !self.within_window {
            let plane = (self.width * self.height) as i64;
            return steps.count(Op::Remainder, &[found.into(), plane.into()], found);
        }
        let by = (self.window_width as i64).into();
        let columns = steps.make(ElementType::I64, found.sizes())?;
        steps.count(Op::Remainder, &[found.into(), by], &columns)?;
        steps.count(Op::DivFloor, &[found.into(), by], found)?;
        let [row_begins, column_begins] = &self.begins(steps, [1, 1])?;
        steps.count(Op::Add, &[found.into(), row_begins.into()], found)?;
        steps.count(Op::Mul, &[found.into(), (self.width as i64).into()], found)?;
        steps.count(Op::Add, &[found.into(), (&columns).into()], found)?;
        steps.count(Op::Add, &[found.into(), column_begins.into()], found)
    }
}
