//! Running sums.

use crate::call::{Call, fit, fit_all, fit_inner, read, write};
use crate::scratch::scratch;
use crate::{Common, ElementType, Elementwise, Kind, MAX_DIMS, Op, OpError, Queue, View, copy};
use wave32_params::scan;

/// Elements that one workgroup sums up; longer rows are made of such pieces.
const PIECE: u64 = 1 << 14;

/// `y[i]` = the sum of `x` up to and with element i of dimension `dim`, in the precision of the wider type.
///
/// # Errors
/// `different-sizes`, `too-many-elements`, `range-too-large`, the device's.
pub fn cumsum(queue: &mut dyn Queue, x: &View, dim: usize, y: &View) -> Result<(), OpError> {
    if x.sizes() != y.sizes() || dim >= x.rank() {
        let detail = format!("{:?} along {dim} into {:?}", x.sizes(), y.sizes());
        return Err(OpError::refused("different-sizes", detail));
    }
    if x.elements() == 0 {
        return Ok(());
    }
    if x.sizes()[dim] > 4 * PIECE && x.rank() < MAX_DIMS {
        return in_pieces(queue, x, dim, y);
    }
    let kernel = match Kind::of([x.dtype, y.dtype]) {
        Kind::Float => scan::F,
        Kind::Int => scan::I,
        Kind::Double => scan::D,
    };
    let count = x.sizes()[dim];
    let common = Common::new(&[&x.select(dim, 0), &y.select(dim, 0)]);
    let kept = common.sizes4();
    let outs: u64 = kept.iter().product();
    common.outer(4, |offsets| {
        let buffers = scan::Buffers { src: read(queue, x)?, dst: write(queue, y)? };
        Call {
            kernel,
            params: scan::Params {
                outs: fit(outs)?,
                count: fit(count)?,
                k: fit_inner(kept)?,
                x_type: x.dtype.code(),
                x_at: fit(buffers.src.at() + offsets[0])?,
                x: fit_all(common.strides4(0))?,
                xd: fit(x.strides()[dim])?,
                y_type: y.dtype.code(),
                y_at: fit(buffers.dst.at() + offsets[1])?,
                y: fit_all(common.strides4(1))?,
                yd: fit(y.strides()[dim])?,
            },
            buffers,
            flops: 8 * outs * count,
            bytes: outs * count * (x.dtype.size() + y.dtype.size()),
        }
        .launch_items(queue, outs, 1)
    })
}

/// The sums within pieces first, each by a workgroup of its own; then those of the pieces before are added.
fn in_pieces(queue: &mut dyn Queue, x: &View, dim: usize, y: &View) -> Result<(), OpError> {
    let dtype = match Kind::of([x.dtype, y.dtype]) {
        Kind::Float => ElementType::F32,
        Kind::Int => ElementType::I64,
        Kind::Double => ElementType::F64,
    };
    let count = x.sizes()[dim];
    let (pieces, rest) = (count / PIECE, count % PIECE);
    scratch(queue, dtype, y.sizes(), |queue, sums| {
        let split = split_dim(sums, dim, pieces)?;
        cumsum(queue, &split_dim(x, dim, pieces)?, dim + 1, &split)?;
        let ends = split.select(dim + 1, PIECE - 1);
        scratch(queue, dtype, ends.sizes(), |queue, totals| {
            cumsum(queue, &ends, dim, totals)?;
            let add = |queue: &mut dyn Queue, before: &View, to: &View| {
                Elementwise::new(Op::Add, dtype).run(queue, &[to.into(), before.into()], to)
            };
            let before = totals.narrow(dim, 0, pieces - 1);
            let (mut sizes, mut strides) = (before.sizes().to_vec(), before.strides().to_vec());
            sizes.insert(dim + 1, 1);
            strides.insert(dim + 1, 0);
            let before = View::new(before.address, dtype, &sizes, &strides)?;
            add(queue, &before, &split.narrow(dim, 1, pieces - 1))?;
            if rest > 0 {
                let tail = sums.narrow(dim, count - rest, rest);
                cumsum(queue, &x.narrow(dim, count - rest, rest), dim, &tail)?;
                add(queue, &totals.narrow(dim, pieces - 1, 1), &tail)?;
            }
            Ok(())
        })?;
        copy(queue, sums, y)
    })
}

/// Its first `pieces` * [`PIECE`] elements along `dim` as two dimensions.
fn split_dim(view: &View, dim: usize, pieces: u64) -> Result<View, OpError> {
    let (mut sizes, mut strides) = (view.sizes().to_vec(), view.strides().to_vec());
    sizes[dim] = PIECE;
    sizes.insert(dim, pieces);
    strides.insert(dim, PIECE * strides[dim]);
    View::new(view.address, view.dtype, &sizes, &strides)
}
