//! `Display`: the line that MIOpen's log would print.

use crate::{Activation, ConvProblem, DType, Direction, Layout};
use std::fmt;

impl fmt::Display for ConvProblem {
    /// The canonical MIOpenDriver line: every flag that MIOpen's log gives, in its order, so that it can be
    /// run by MIOpenDriver and searched for in a log. What the log never says (output padding, bias, and
    /// our `--activ`) comes at the end, where it differs from the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.spec();
        let base = match s.dtype {
            DType::F32 => "conv",
            DType::F16 => "convfp16",
            DType::BF16 => "convbfp16",
        };
        write!(f, "MIOpenDriver {base} -n {} -c {} -H {} -W {} -k {}", s.n, s.c, s.h, s.w, s.k)?;
        write!(f, " -y {} -x {} -p {} -q {}", s.r, s.s, s.pad[0], s.pad[1])?;
        let ([u, v], [l, j]) = (s.stride, s.dilation);
        write!(f, " -u {u} -v {v} -l {l} -j {j}")?;
        if s.layout != Layout::Nchw {
            let name = s.layout.name();
            write!(f, " --in_layout {name} --fil_layout {name} --out_layout {name}")?;
        }
        let mode = if s.transposed { "trans" } else { "conv" };
        let direction = match s.direction {
            Direction::Forward => 1,
            Direction::BackwardData => 2,
            Direction::BackwardWeights => 4,
        };
        write!(f, " -m {mode} -g {} -F {direction} -t 1", s.groups)?;
        if s.output_pad != [0, 0] {
            write!(f, " -Y {} -X {}", s.output_pad[0], s.output_pad[1])?;
        }
        if s.epilogue.bias {
            write!(f, " -b 1")?;
        }
        match s.epilogue.activation {
            Activation::None => Ok(()),
            activation => write!(f, " --activ {activation}"),
        }
    }
}
