//! Convolutions whose tensors no kernel addresses at once, and which no plan cuts by batch: image by image, and an image in
//! bands of rows.
//!
//! A band is a convolution of its own: some rows of y, and the rows of x that those touch, the padding among them written
//! out. Rows of dx that two bands touch, and the weights' gradients, are added up in order.

use crate::steps::{Steps, wide};
use crate::{ConvChain, ConvOperands, Number, Op, OpError, Planner, Queue, View, copy, fill};
use wave32_problem::{ConvProblem, ConvSpec, Direction, Epilogue, Layout};
use wave32_solve::DeviceCaps;

/// A band takes so much less than what a kernel addresses: its operands may be copied.
const SHARE: u64 = 8;

/// A plain problem's operands.
#[derive(Clone, Copy)]
struct Tensors {
    x: View,
    w: View,
    y: View,
}

/// The rows of an image of y that a band computes, and what of x it touches.
struct Band {
    /// First row of y, and rows.
    y: (u64, u64),
    /// First row of x, which padding may lie before, and rows.
    x: (i64, u64),
}

impl Band {
    /// The band's rows of x that there are: first row, rows, and how many lie before.
    fn inside(&self, h: u64) -> (u64, u64, u64) {
        let (first, rows) = self.x;
        let start = first.clamp(0, h as i64);
        let end = (first + rows as i64).clamp(start, h as i64);
        (start as u64, (end - start) as u64, (start - first).clamp(0, rows as i64) as u64)
    }
}

/// Bands of as many rows as a share of what a kernel addresses has room for; none where one row has too little.
fn bands(problem: &ConvProblem, caps: &DeviceCaps) -> Option<Vec<Band>> {
    let s = problem.spec();
    let most = (caps.max_range / s.dtype.size()).min(1 << 30) / SHARE;
    let (of_x, of_y) = ((s.c * s.w) as u64, (s.k * problem.out_w()) as u64);
    let [stride, reach] = [s.stride[0], (s.r - 1) * s.dilation[0] + 1].map(|v| v as u64);
    let fits = |rows: u64| rows * of_y <= most && ((rows - 1) * stride + reach) * of_x <= most;
    let all = problem.out_h() as u64;
    let rows = (1..=all).rev().find(|&rows| fits(rows))?;
    let band = |first: u64| {
        let rows = rows.min(all - first);
        let start = (first * stride) as i64 - s.pad[0];
        Band { y: (first, rows), x: (start, (rows - 1) * stride + reach) }
    };
    Some((0..all).step_by(rows as usize).map(band).collect())
}

/// Any of the tensors is larger than a kernel addresses.
fn is_large(problem: &ConvProblem, caps: &DeviceCaps) -> bool {
    wave32_solve::too_large(problem, caps).is_some()
}

impl Planner {
    /// Runs a chain that has no plan because of its size; none where it is not that, or cannot be helped.
    pub(crate) fn convolve_in_bands(
        &mut self,
        queue: &mut dyn Queue,
        chain: &ConvChain,
        operands: ConvOperands<'_>,
    ) -> Option<Result<(), OpError>> {
        let caps = queue.caps().clone();
        let ConvOperands { x, w, y } = operands;
        let problem = chain.problem().with_epilogue(Epilogue::default()).ok()?;
        let spec = problem.spec();
        let has_rows = [x, y].iter().all(|view| view.rank() == 4) && w.rank() == 4;
        // Post-ops come last here, and may not want what was there before.
        if !has_rows || !is_large(&problem, &caps) || chain.post_ops().iter().any(|step| step.reads(y)) {
            return None;
        }
        let (plain, (x, y)) = (problem.to_plain(), if spec.transposed { (*y, *x) } else { (*x, *y) });
        let image = ConvProblem::new(ConvSpec { n: 1, ..plain.spec().clone() }).ok()?;
        let bands = if is_large(&image, &caps) { Some(bands(&image, &caps)?) } else { None };
        let tensors = Tensors { x, w: *w, y };
        Some(self.each(queue, &image, bands.as_deref(), tensors).and_then(|()| {
            let mut steps = Steps::new(queue);
            let target = operands.y;
            chain.post_ops().iter().try_for_each(|step| step.run(&mut steps, target, target))
        }))
    }

    /// Every image, every band of it.
    fn each(
        &mut self,
        queue: &mut dyn Queue,
        image: &ConvProblem,
        bands: Option<&[Band]>,
        all: Tensors,
    ) -> Result<(), OpError> {
        let spec = image.spec();
        let zero = Number::Int(0);
        match spec.direction {
            Direction::BackwardData if bands.is_some() => fill(queue, &all.x, zero)?,
            _ => {}
        }
        let mut steps = Steps::new(queue);
        let is_weights = spec.direction == Direction::BackwardWeights;
        // In f32 and in the order of memory, whatever the type and strides.
        let sum = if is_weights { Some(steps.make(wide(all.w.dtype), all.w.sizes())?) } else { None };
        if let Some(sum) = &sum {
            fill(steps.queue, sum, zero)?;
        }
        let part = if is_weights { steps.make(all.w.dtype, all.w.sizes())? } else { all.w };
        for n in 0..all.x.sizes()[0] {
            let one = Tensors { x: all.x.narrow(0, n, 1), w: part, y: all.y.narrow(0, n, 1) };
            let count = bands.map_or(1, <[Band]>::len);
            for at in 0..count {
                match bands {
                    None => self.plain(steps.queue, image, one)?,
                    Some(bands) => self.band(steps.queue, image, &bands[at], one)?,
                }
                if let Some(sum) = &sum {
                    steps.run(Op::Add, &[sum.into(), (&part).into()], [0.0; 2], sum)?;
                }
            }
        }
        sum.map_or(Ok(()), |sum| steps.copy(&sum, &all.w))
    }

    fn plain(&mut self, queue: &mut dyn Queue, problem: &ConvProblem, t: Tensors) -> Result<(), OpError> {
        let chain = ConvChain::new(problem.clone(), Vec::new());
        self.convolve(queue, &chain, ConvOperands { x: &t.x, w: &t.w, y: &t.y })
    }

    fn band(
        &mut self,
        queue: &mut dyn Queue,
        image: &ConvProblem,
        band: &Band,
        all: Tensors,
    ) -> Result<(), OpError> {
        let s = image.spec();
        let spec = ConvSpec { h: band.x.1 as i64, pad: [0, s.pad[1]], ..s.clone() };
        let problem = ConvProblem::new(spec).map_err(|e| OpError::refused("no-plan", e.to_string()))?;
        let y = all.y.narrow(2, band.y.0, band.y.1);
        let (start, rows, before) = band.inside(s.h as u64);
        let mut steps = Steps::new(queue);
        let x = {
            let [n, c, w] = [0, 1, 3].map(|dim| all.x.sizes()[dim]);
            let made = match s.layout {
                Layout::Nchw => steps.make(all.x.dtype, &[n, c, band.x.1, w])?,
                Layout::Nhwc => steps.make(all.x.dtype, &[n, band.x.1, w, c])?.channels_first(),
            };
            if s.direction != Direction::BackwardData {
                if rows < band.x.1 {
                    fill(steps.queue, &made, Number::Int(0))?;
                }
                if rows > 0 {
                    copy(steps.queue, &all.x.narrow(2, start, rows), &made.narrow(2, before, rows))?;
                }
            }
            made
        };
        self.plain(steps.queue, &problem, Tensors { x, y, ..all })?;
        if s.direction == Direction::BackwardData && rows > 0 {
            let (to, from) = (all.x.narrow(2, start, rows), x.narrow(2, before, rows));
            steps.run(Op::Add, &[(&to).into(), (&from).into()], [0.0; 2], &to)?;
        }
        Ok(())
    }
}
