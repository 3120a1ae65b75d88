//! The vendor's solvers on a rewritten problem with the same result: channels padded with zeros, the batch cut into parts.
//!
//! `wave32 probe` finds which rewriting a solver needs (docs/probe.md). Padded copies lie in the caller's workspace, behind
//! the vendor's own part of it, and are made on the handle's stream. Not done here, so that our own kernels compute: tiles,
//! parts of a batch in the weights' gradient (both would need sums or copies of each tile), and parts whose addresses are
//! no multiples of 256 bytes, at which the probe has run nothing.

use crate::abi::entry::{Failure, Outcome};
use crate::abi::ffi::{Data, Id};
use crate::abi::handle::Handle;
use crate::conv::bound_conv::BoundConv;
use crate::conv::rewriting::Rewriting;
use crate::vendor::next::{Next, Written};
use wave32_ops::{Number, View, copy, fill};
use wave32_problem::{ConvProblem, ConvSpec, Direction, Layout};
use wave32_solve::DeviceCaps;

/// What parts of the workspace, and parts of tensors, begin at multiples of.
const ALIGNED: u64 = 256;

impl Rewriting {
    /// Is anything rewritten?
    pub fn is_some(&self) -> bool {
        *self != Self::default()
    }

    /// The problem with padded channels, its batch whole.
    fn padded(&self, problem: &ConvProblem) -> Option<ConvProblem> {
        let spec = problem.spec();
        let Some([c, k]) = self.channels else { return Some(problem.clone()) };
        let fits = |new: i64, old: i64| new >= old && new % spec.groups == 0;
        let fits = fits(c, spec.c) && fits(k, spec.k);
        fits.then(|| ConvProblem::new(ConvSpec { c, k, ..spec.clone() }).ok()).flatten()
    }

    /// Can it be done for this problem?
    pub fn fits(&self, problem: &ConvProblem) -> bool {
        let spec = problem.spec();
        let Some(padded) = self.padded(problem) else { return false };
        let [x, _, y] = shapes(&padded);
        let cut = self.images.is_none_or(|n| {
            let aligned =
                |[_, c, h, w]: [i64; 4]| ((n * c * h * w) as u64 * spec.dtype.size()).is_multiple_of(ALIGNED);
            let sums = spec.direction == Direction::BackwardWeights;
            n > 0 && spec.n % n == 0 && !sums && aligned(x) && aligned(y)
        });
        cut && !spec.transposed
    }

    /// Bytes of the padded copies.
    fn copies(&self, problem: &ConvProblem) -> [u64; 3] {
        let Some(padded) = self.channels.and_then(|_| self.padded(problem)) else { return [0; 3] };
        let size = problem.spec().dtype.size();
        shapes(&padded).map(|shape| (shape.iter().product::<i64>() as u64 * size).next_multiple_of(ALIGNED))
    }

    /// Workspace for a solver that wants so much.
    pub fn workspace(&self, problem: &ConvProblem, solver: u64) -> u64 {
        match self.copies(problem) {
            [0, 0, 0] => solver,
            copies => solver.next_multiple_of(ALIGNED) + copies.iter().sum::<u64>(),
        }
    }

    /// Modelled seconds of what the probe's time leaves out: copies, and gaps between launches.
    pub fn seconds(&self, problem: &ConvProblem, caps: &DeviceCaps) -> f64 {
        // Filled, written, and read again.
        let bytes = 3 * self.copies(problem).iter().sum::<u64>();
        let parts = self.images.map_or(1, |n| problem.spec().n / n.max(1));
        let launches = parts - 1 + if bytes > 0 { 5 } else { 0 };
        caps.floors(0, bytes).1 + launches as f64 * caps.launch_us * 1e-6
    }
}

/// x, w and y in the order N C H W.
fn shapes(problem: &ConvProblem) -> [[i64; 4]; 3] {
    let s = problem.spec();
    [[s.n, s.c, s.h, s.w], [s.k, s.c / s.groups, s.r, s.s], [s.n, s.k, problem.out_h(), problem.out_w()]]
}

/// Packed strides of N C H W in a layout.
fn strides([_, c, h, w]: [i64; 4], layout: Layout) -> [i64; 4] {
    match layout {
        Layout::Nchw => [c * h * w, h * w, w, 1],
        Layout::Nhwc => [c * h * w, 1, w * c, c],
    }
}

/// A descriptor of the vendor's that ends with its owner.
struct Described<'n>(&'n Next, Id);

impl Drop for Described<'_> {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.0.destroy_tensor(self.1);
    }
}

/// A vendor's solver on a rewritten problem.
#[derive(Debug)]
pub struct Run<'r> {
    /// The handle, and its number.
    pub handle: (&'r Handle, Id),
    /// The problem and its tensors.
    pub bound: &'r BoundConv,
    /// What is rewritten.
    pub rewriting: Rewriting,
    /// The solver's number, and what it wants of the workspace.
    pub solver: (u64, u64),
}

impl Run<'_> {
    /// Computes into the result. The workspace begins at a multiple of 256 bytes, and is as long as
    /// [`Rewriting::workspace`] says.
    ///
    /// # Errors
    /// Bad parameter for what is no memory of the card; the card's; the vendor's.
    pub fn run(&self, next: &Next, data: [Data; 3], convolution: &Written<'_>, workspace: Data) -> Outcome {
        let problem = &self.bound.problem;
        let spec = problem.spec();
        let views = self.bound.views(data)?;
        let padded =
            self.rewriting.padded(problem).ok_or_else(|| Failure::bad("the rewriting does not fit"))?;
        let whole = shapes(&padded);
        let mut addresses = data.map(|address| address as u64);
        if self.rewriting.channels.is_some() {
            let mut at = workspace as u64 + self.solver.1.next_multiple_of(ALIGNED);
            for (address, bytes) in addresses.iter_mut().zip(self.rewriting.copies(problem)) {
                (*address, at) = (at, at + bytes);
            }
        }
        let result = self.bound.result();
        let kept = |at: usize| -> Outcome<[View; 3]> {
            let view = View::new(
                addresses[at],
                views[at].dtype,
                &whole[at].map(|size| size as u64),
                &strides(whole[at], spec.layout).map(|stride| stride as u64),
            )?;
            let old = views[at].sizes();
            Ok([
                view,
                grouped(&view, at, spec.groups as u64, old)?,
                grouped(&views[at], at, spec.groups as u64, old)?,
            ])
        };
        let copied = self.rewriting.channels.is_some();
        if copied {
            self.handle.0.run(|engine| {
                for at in (0..3).filter(|&at| at != result) {
                    let [padded, inside, own] = kept(at)?;
                    fill(&mut engine.queue, &padded, Number::Float(0.0))?;
                    copy(&mut engine.queue, &own, &inside)?;
                }
                Ok(())
            })?;
        }
        self.parts(next, &whole, addresses, convolution, workspace)?;
        if copied {
            self.handle.0.run(|engine| {
                let [_, inside, own] = kept(result)?;
                Ok(copy(&mut engine.queue, &inside, &own)?)
            })?;
        }
        Ok(())
    }

    /// Each part of the batch, by the vendor.
    fn parts(
        &self,
        next: &Next,
        whole: &[[i64; 4]; 3],
        addresses: [u64; 3],
        convolution: &Written<'_>,
        workspace: Data,
    ) -> Outcome {
        let spec = self.bound.problem.spec();
        let images = self.rewriting.images.unwrap_or(spec.n);
        let part = [0, 1, 2].map(|at| {
            let [n, c, h, w] = whole[at];
            [if at == 1 { n } else { images }, c, h, w]
        });
        let rank = convolution.pads.len() + 2;
        let describe = |at: usize| -> Outcome<Described<'_>> {
            let tensor = Described(next, next.create_tensor()?);
            let (sizes, strides) = with_rank(part[at], strides(part[at], spec.layout), rank);
            next.set_tensor(tensor.1, self.bound.dtype_code(), &sizes, &strides)?;
            Ok(tensor)
        };
        let described = [describe(0)?, describe(1)?, describe(2)?];
        let bytes = |at: usize| match at {
            1 => 0,
            _ => part[at].iter().product::<i64>() as u64 * spec.dtype.size(),
        };
        for number in 0..(spec.n / images) as u64 {
            let [x, w, y] =
                [0, 1, 2].map(|at| (described[at].1, (addresses[at] + number * bytes(at)) as Data));
            let operands = match spec.direction {
                Direction::Forward => [w, x, y],
                Direction::BackwardData => [y, w, x],
                Direction::BackwardWeights => [y, x, w],
            };
            let (solver, wanted) = self.solver;
            let workspace = if wanted > 0 { workspace } else { 0 };
            next.immediate(
                self.handle.1,
                spec.direction,
                operands,
                convolution,
                (workspace, wanted),
                solver,
            )?;
        }
        Ok(())
    }
}

/// Groups apart, and of the padded channels only those that there were (`old` sizes).
fn grouped(view: &View, at: usize, groups: u64, old: &[u64]) -> Outcome<View> {
    let axis = if at == 1 { 0 } else { 1 };
    let (mut sizes, mut strides) = (view.sizes().to_vec(), view.strides().to_vec());
    let per_group = sizes[axis] / groups;
    sizes.splice(axis..=axis, [groups, per_group]);
    let stride = strides[axis];
    strides.splice(axis..=axis, [per_group * stride, stride]);
    let view = View::new(view.address, view.dtype, &sizes, &strides)?.narrow(axis + 1, 0, old[axis] / groups);
    // A filter's channels are those of one group.
    Ok(if at == 1 { view.narrow(2, 0, old[1]) } else { view })
}

/// As a line of that rank wants it: images of one row for one dimension, volumes of one layer for three.
fn with_rank(sizes: [i64; 4], strides: [i64; 4], rank: usize) -> (Vec<i64>, Vec<i64>) {
    let (mut sizes, mut strides) = (sizes.to_vec(), strides.to_vec());
    match rank {
        3 => {
            sizes.remove(2);
            strides.remove(2);
        }
        5 => {
            sizes.insert(2, 1);
            strides.insert(2, sizes[3] * strides[2]);
        }
        _ => {}
    }
    (sizes, strides)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problem(change: ConvSpec) -> ConvProblem {
        ConvProblem::new(ConvSpec { c: 16, h: 8, w: 8, k: 32, r: 3, s: 3, pad: [1, 1], ..change }).unwrap()
    }

    #[test]
    fn what_is_done_and_what_is_not() {
        let pad = json!({"kind": "pad-channels", "c": 17, "k": 33});
        let (batch, tiles) = (json!({"kind": "batch", "n": 1}), json!({"kind": "tiles", "h": 32, "w": 32}));
        let read = |steps: &[&serde_json::Value]| {
            Rewriting::read(&steps.iter().map(|&s| s.clone()).collect::<Vec<_>>())
        };
        assert!(!read(&[]).unwrap().is_some());
        for steps in [&[&tiles][..], &[&pad, &tiles], &[&pad, &tiles, &batch], &[&json!({"kind": "new"})]] {
            assert_eq!(read(steps), None, "{steps:?}");
        }
        let (pad, both, batch) =
            (read(&[&pad]).unwrap(), read(&[&pad, &batch]).unwrap(), read(&[&batch]).unwrap());
        let forward = problem(ConvSpec { n: 4, ..ConvSpec::default() });
        let weights =
            problem(ConvSpec { n: 4, direction: Direction::BackwardWeights, ..ConvSpec::default() });
        let pairs = problem(ConvSpec { n: 4, groups: 2, ..ConvSpec::default() });
        assert!(pad.fits(&forward) && pad.fits(&weights) && batch.fits(&forward));
        assert!(!batch.fits(&weights), "sums");
        assert!(!pad.fits(&pairs), "17 channels are no two groups");
        assert!(both.fits(&problem(ConvSpec { n: 2, ..ConvSpec::default() })));
        let odd = problem(ConvSpec { n: 2, ..ConvSpec::default() });
        let odd = ConvProblem::new(ConvSpec { c: 3, h: 5, ..odd.spec().clone() }).unwrap();
        assert!(!batch.fits(&odd), "a part would begin where nothing was proven");
        // x: 4*17*64, w: 33*17*9, y: 4*33*64 floats, each at a multiple of 256 bytes.
        assert_eq!(pad.workspace(&forward, 100), 256 + 17408 + 20224 + 33792);
        assert_eq!(batch.workspace(&forward, 100), 100);
    }

    #[test]
    fn lines_and_volumes_of_one_layer_keep_their_elements() {
        let (sizes, strides) = ([2, 17, 1, 40], [680, 40, 40, 1]);
        assert_eq!(with_rank(sizes, strides, 3), (vec![2, 17, 40], vec![680, 40, 1]));
        assert_eq!(with_rank(sizes, strides, 4), (sizes.to_vec(), strides.to_vec()));
        assert_eq!(with_rank(sizes, strides, 5), (vec![2, 17, 1, 1, 40], vec![680, 40, 40, 40, 1]));
    }
}
