//! From descriptors to the problem that solvers know, and its tensors as N C H W.

use crate::abi::entry::{Failure, Outcome};
use crate::abi::ffi::{Data, DataType};
use crate::conv::convolution::Convolution;
use crate::layers::tensor::Tensor;
use std::ffi::c_int;
use wave32_ops::View;
use wave32_problem::{ConvProblem, ConvSpec, DType, Direction, Layout};

/// A convolution in two dimensions with its tensors, x, w and y (or their gradients), each as N C H W.
#[derive(Debug, Clone)]
pub struct BoundConv {
    /// The problem; valid.
    pub problem: ConvProblem,
    tensors: [Tensor; 3],
}

/// The order of dimensions in memory.
fn order(layout: Layout) -> [usize; 4] {
    match layout {
        Layout::Nchw => [0, 1, 2, 3],
        Layout::Nhwc => [0, 2, 3, 1],
    }
}

/// The same elements as a tensor of four dimensions: a line becomes an image of one row, a volume of one layer an image.
///
/// # Errors
/// Not implemented: volumes; bad parameter: no tensor of a convolution.
pub fn flat(tensor: &Tensor, name: &str) -> Outcome<Tensor> {
    let (sizes, strides) = (tensor.sizes(), tensor.strides());
    let signed = |values: &[u64]| values.iter().map(|&value| value as i64).collect::<Vec<_>>();
    let (mut sizes, mut strides) = (signed(sizes), signed(strides));
    match sizes.len() {
        4 => {}
        3 => {
            sizes.insert(2, 1);
            strides.insert(2, 0);
        }
        5 if sizes[2] == 1 => {
            sizes.remove(2);
            strides.remove(2);
        }
        5 => return Err(Failure::absent(format!("convolution over volumes ({name} has sizes {sizes:?})"))),
        rank => return Err(Failure::bad(format!("{name} of a convolution has {rank} dimensions"))),
    }
    Tensor::new(tensor.dtype, &sizes, &strides)
}

impl BoundConv {
    /// The problem of these descriptors.
    ///
    /// # Errors
    /// Bad parameter, where they do not go together; not implemented: volumes, element types other than f32, f16, bf16.
    pub fn new(
        direction: Direction,
        convolution: &Convolution,
        x: &Tensor,
        w: &Tensor,
        y: &Tensor,
    ) -> Outcome<Self> {
        let dtype = match x.dtype {
            DataType::Float => DType::F32,
            DataType::Half => DType::F16,
            DataType::BFloat16 => DType::BF16,
            other => return Err(Failure::absent(format!("convolution of {other:?}"))),
        };
        if x.dtype != w.dtype || x.dtype != y.dtype {
            return Err(Failure::bad(format!("x is {:?}, w {:?}, y {:?}", x.dtype, w.dtype, y.dtype)));
        }
        let mut adjusted = *convolution;
        if convolution.transposed && y.sizes().len() == convolution.spatial + 2 {
            // How much larger the output is, its own descriptor tells.
            adjusted.output_pads = [0; 3];
            let base = adjusted.output(x, w)?;
            for at in 0..convolution.spatial {
                adjusted.output_pads[at] = y.sizes()[at + 2] as i64 - base[at + 2];
            }
        }
        let wanted = adjusted.output(x, w)?;
        let found: Vec<i64> = y.sizes().iter().map(|&size| size as i64).collect();
        if wanted != found {
            return Err(Failure::bad(format!("y has sizes {found:?}, the convolution's are {wanted:?}")));
        }
        let planar = |field: [i64; 3], otherwise: i64| match convolution.spatial {
            1 => [otherwise, field[0]],
            2 => [field[0], field[1]],
            _ => [field[1], field[2]],
        };
        if convolution.spatial == 3 && (adjusted.pads[0] != 0 || adjusted.output_pads[0] != 0) {
            return Err(Failure::absent("convolution over volumes"));
        }
        let tensors = [flat(x, "x")?, flat(w, "w")?, flat(y, "y")?];
        let [n, c, height, width] = dims(&tensors[0]);
        let [_, _, r, s] = dims(&tensors[1]);
        let spec = ConvSpec {
            direction,
            dtype,
            layout: common_layout(&tensors),
            n,
            c,
            h: height,
            w: width,
            k: found[1],
            r,
            s,
            stride: planar(adjusted.strides, 1),
            pad: planar(adjusted.pads, 0),
            dilation: planar(adjusted.dilations, 1),
            groups: adjusted.groups,
            transposed: adjusted.transposed,
            output_pad: planar(adjusted.output_pads, 0),
            ..ConvSpec::default()
        };
        let problem = ConvProblem::new(spec).map_err(|error| Failure::bad(error.to_string()))?;
        Ok(Self { problem, tensors })
    }

    /// Do all tensors lie as the problem's layout says, without gaps?
    pub fn is_packed(&self) -> bool {
        let layout = self.problem.spec().layout;
        self.tensors.iter().all(|tensor| tensor.is_packed_in(&order(layout)))
    }

    /// `miopenDataType_t` of the tensors.
    pub fn dtype_code(&self) -> c_int {
        self.tensors[0].dtype as c_int
    }

    /// Which of the three is written.
    pub fn result(&self) -> usize {
        match self.problem.spec().direction {
            Direction::Forward => 2,
            Direction::BackwardData => 0,
            Direction::BackwardWeights => 1,
        }
    }

    /// x, w and y (or their gradients) at these addresses, each as N C H W.
    ///
    /// # Errors
    /// Bad parameter where a pointer is null.
    pub fn views(&self, data: [Data; 3]) -> Outcome<[View; 3]> {
        let [x, w, y] = &self.tensors;
        Ok([x.view("x", data[0])?, w.view("w", data[1])?, y.view("y", data[2])?])
    }
}

fn dims(tensor: &Tensor) -> [i64; 4] {
    std::array::from_fn(|at| tensor.sizes().get(at).map_or(1, |&size| size as i64))
}

/// The layout that most of the tensors' bytes are in; the rest is copied.
fn common_layout(tensors: &[Tensor; 3]) -> Layout {
    let bytes_in = |layout| -> u64 {
        tensors.iter().filter(|tensor| tensor.is_packed_in(&order(layout))).map(Tensor::bytes).sum()
    };
    if bytes_in(Layout::Nhwc) > bytes_in(Layout::Nchw) { Layout::Nhwc } else { Layout::Nchw }
}
