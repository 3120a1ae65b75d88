//! The vendor's solvers on a rewritten problem with the same result: channels padded with zeros, the image cut into tiles
//! with halos, the batch cut into parts.
//!
//! `wave32 probe` finds which rewriting a solver needs (docs/probe.md). A piece's copies lie in the caller's workspace,
//! behind the vendor's own part of it, and are made on the handle's stream. Parts of a batch that begin at multiples of 256
//! bytes are taken as they lie. Weights' gradients of the pieces are added up in f32, in the pieces' order.

use crate::abi::entry::Outcome;
use crate::abi::ffi::{Data, Id};
use crate::abi::handle::{Engine, Handle};
use crate::conv::bound_conv::BoundConv;
use crate::conv::rewriting::{ALIGNED, Overlap, Piece, Pieces};
use crate::vendor::next::{Next, Written};
use wave32_ops::{ElementType, Elementwise, Number, Op, View, copy, fill};
use wave32_problem::{Direction, Layout};

/// Packed strides of N C H W in a layout.
fn strides([_, c, h, w]: [i64; 4], layout: Layout) -> [i64; 4] {
    match layout {
        Layout::Nchw => [c * h * w, h * w, w, 1],
        Layout::Nhwc => [c * h * w, 1, w * c, c],
    }
}

/// A descriptor of the vendor's that ends with its owner.
struct Described<'n>(&'n Next, Id, fn(&Next, Id) -> Outcome);

impl Drop for Described<'_> {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.2(self.0, self.1);
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
    pub pieces: &'r Pieces,
    /// The solver's number, and what it wants of the workspace.
    pub solver: (u64, u64),
}

/// The problem's tensors x, w and y, a piece's, and the sums of its results.
struct Tensors {
    own: [View; 3],
    piece: [View; 3],
    sums: Option<View>,
}

const X: usize = 0;
const W: usize = 1;
const Y: usize = 2;

impl Run<'_> {
    /// Computes into the result. The workspace begins at a multiple of 256 bytes, and is as long as
    /// [`Pieces::workspace`] says.
    ///
    /// # Errors
    /// Bad parameter for what is no memory of the card; the card's; the vendor's.
    pub fn run(&self, next: &Next, data: [Data; 3], convolution: &Written<'_>, workspace: Data) -> Outcome {
        let tensors = self.tensors(data, workspace)?;
        let (result, [images, filter, _]) = (self.bound.result(), self.pieces.copied());
        let sub = self.pieces.sub.spec();
        let rank = convolution.pads.len() + 2;
        let describe = |at: usize| -> Outcome<Described<'_>> {
            let tensor = Described(next, next.create_tensor()?, Next::destroy_tensor);
            let shape = self.pieces.sub.shapes()[at];
            let (sizes, strides) = with_rank(shape, strides(shape, sub.layout), rank);
            next.set_tensor(tensor.1, self.bound.dtype_code(), &sizes, &strides)?;
            Ok(tensor)
        };
        let described = [describe(X)?, describe(W)?, describe(Y)?];
        let own = Described(next, next.create_convolution()?, Next::destroy_convolution);
        let none = vec![0; convolution.pads.len()];
        let pads = if sub.pad == [0, 0] { &none[..] } else { convolution.pads };
        let convolution = Written { id: own.1, pads, ..*convolution };
        if filter && result != W {
            let whole = [tensors.own[W], tensors.piece[W]];
            self.on_card(|engine| self.bring(engine, &tensors, W, whole))?;
        }
        for (number, piece) in self.pieces.each().enumerate() {
            let mut at = tensors.piece;
            if images {
                self.on_card(|engine| {
                    for operand in [X, Y].into_iter().filter(|&operand| operand != result) {
                        self.bring(engine, &tensors, operand, self.window(&tensors, &piece, operand))?;
                    }
                    Ok(())
                })?;
            } else {
                for tensor in [X, Y] {
                    at[tensor] = tensors.own[tensor].narrow(0, piece[tensor / 2][0].own, sub.n as u64);
                }
            }
            let [x, w, y] = [X, W, Y].map(|tensor| (described[tensor].1, at[tensor].address as Data));
            let operands = match sub.direction {
                Direction::Forward => [w, x, y],
                Direction::BackwardData => [y, w, x],
                Direction::BackwardWeights => [y, x, w],
            };
            let (solver, wanted) = self.solver;
            let space = (if wanted > 0 { workspace } else { 0 }, wanted);
            next.immediate(self.handle.1, sub.direction, operands, &convolution, space, solver)?;
            if (result == W && filter) || (result != W && images) {
                self.on_card(|engine| self.fetch(engine, &tensors, &piece, number == 0))?;
            }
        }
        if let Some(sums) = tensors.sums {
            self.on_card(|engine| Ok(copy(&mut engine.queue, &sums, &tensors.own[W])?))?;
        }
        Ok(())
    }

    fn on_card(&self, work: impl FnOnce(&mut Engine) -> Outcome) -> Outcome {
        self.handle.0.run(work)
    }

    fn tensors(&self, data: [Data; 3], workspace: Data) -> Outcome<Tensors> {
        let own = self.bound.views(data)?;
        let (shapes, layout) = (self.pieces.sub.shapes(), self.pieces.sub.spec().layout);
        let (copied, buffers) = (self.pieces.copied(), self.pieces.buffers());
        let mut address = workspace as u64 + self.solver.1.next_multiple_of(ALIGNED);
        let mut piece = own;
        for tensor in [X, W, Y].into_iter().filter(|&tensor| copied[tensor]) {
            let unsigned = |values: [i64; 4]| values.map(|value| value as u64);
            let (sizes, strides) = (unsigned(shapes[tensor]), unsigned(strides(shapes[tensor], layout)));
            piece[tensor] = View::new(address, own[tensor].dtype, &sizes, &strides)?;
            address += buffers[tensor];
        }
        let sums = || View::contiguous(address, ElementType::F32, own[W].sizes());
        let sums = self.pieces.adds().then(sums).transpose()?;
        Ok(Tensors { own, piece, sums })
    }

    /// With the groups' channels apart; of padded channels only those that there were.
    fn grouped(&self, view: &View, tensor: usize) -> Outcome<View> {
        let own = self.bound.problem.shapes()[tensor].map(|size| size as u64);
        grouped(view, tensor, self.bound.problem.spec().groups as u64, &own)
    }

    /// What a piece's tensor has of the problem's: in the problem's, and in its own.
    fn window(&self, tensors: &Tensors, piece: &Piece, tensor: usize) -> [View; 2] {
        let mut views = [tensors.own[tensor], tensors.piece[tensor]];
        for (axis, Overlap { own, piece, len }) in [0, 2, 3].into_iter().zip(piece[tensor / 2]) {
            views = [views[0].narrow(axis, own, len), views[1].narrow(axis, piece, len)];
        }
        views
    }

    /// An operand of a piece: what it has of the problem's, zeros elsewhere.
    fn bring(&self, engine: &mut Engine, tensors: &Tensors, tensor: usize, views: [View; 2]) -> Outcome {
        let [own, inside] = views;
        let all = &tensors.piece[tensor];
        if self.pieces.pads || inside.sizes() != all.sizes() {
            fill(&mut engine.queue, all, Number::Float(0.0))?;
        }
        let (own, inside) = (self.grouped(&own, tensor)?, self.grouped(&inside, tensor)?);
        Ok(copy(&mut engine.queue, &own, &inside)?)
    }

    /// The result of a piece, into the problem's or into the sums.
    fn fetch(&self, engine: &mut Engine, tensors: &Tensors, piece: &Piece, is_first: bool) -> Outcome {
        let (result, queue) = (self.bound.result(), &mut engine.queue);
        let [mut own, inside] = match result {
            W => [tensors.sums.unwrap_or(tensors.own[W]), tensors.piece[W]],
            _ => self.window(tensors, piece, result),
        };
        own = self.grouped(&own, result)?;
        let inside = self.grouped(&inside, result)?;
        if tensors.sums.is_some() && !is_first {
            let operands = [(&own).into(), (&inside).into()];
            return Ok(Elementwise::new(Op::Add, ElementType::F32).run(queue, &operands, &own)?);
        }
        Ok(copy(queue, &inside, &own)?)
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

    #[test]
    fn lines_and_volumes_of_one_layer_keep_their_elements() {
        let (sizes, strides) = ([2, 17, 1, 40], [680, 40, 40, 1]);
        assert_eq!(with_rank(sizes, strides, 3), (vec![2, 17, 40], vec![680, 40, 1]));
        assert_eq!(with_rank(sizes, strides, 4), (sizes.to_vec(), strides.to_vec()));
        assert_eq!(with_rank(sizes, strides, 5), (vec![2, 17, 1, 1, 40], vec![680, 40, 40, 40, 1]));
    }
}
