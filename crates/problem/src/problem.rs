//! [`ConvSpec`] (what somebody asked for) and [`ConvProblem`] (what is known to make sense).

use crate::{DType, Direction, Epilogue, Layout, ProblemError};
use serde::{Deserialize, Serialize};

/// Unchecked description of a 2-D convolution; 1-D is `h = 1`, `r = 1`.
///
/// Axis pairs are `[height, width]`. Signed, so that a negative number from a user reaches the error
/// message as it was typed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConvSpec {
    /// Pass.
    pub direction: Direction,
    /// Storage type.
    pub dtype: DType,
    /// Memory layout.
    pub layout: Layout,
    /// Images.
    pub n: i64,
    /// Input channels.
    pub c: i64,
    /// Input height.
    pub h: i64,
    /// Input width.
    pub w: i64,
    /// Output channels.
    pub k: i64,
    /// Filter height.
    pub r: i64,
    /// Filter width.
    pub s: i64,
    /// Stride.
    pub stride: [i64; 2],
    /// Zero padding on both sides.
    pub pad: [i64; 2],
    /// Dilation; 1 is a dense filter.
    pub dilation: [i64; 2],
    /// Groups; `c` for depthwise.
    pub groups: i64,
    /// Transposed ("deconvolution"): filters are C x K/g x R x S and the spatial size grows.
    pub transposed: bool,
    /// Extra rows and columns of a transposed output; `[0, 0]` otherwise.
    pub output_pad: [i64; 2],
    /// Fused bias and activation (forward only).
    pub epilogue: Epilogue,
}

impl Default for ConvSpec {
    /// A 1x1 forward convolution on one f32 pixel: the base to write tests and literals on.
    fn default() -> Self {
        Self {
            direction: Direction::Forward,
            dtype: DType::F32,
            layout: Layout::Nchw,
            n: 1,
            c: 1,
            h: 1,
            w: 1,
            k: 1,
            r: 1,
            s: 1,
            stride: [1, 1],
            pad: [0, 0],
            dilation: [1, 1],
            groups: 1,
            transposed: false,
            output_pad: [0, 0],
            epilogue: Epilogue::default(),
        }
    }
}

/// A convolution that makes sense: every size positive, the filter inside the padded input, groups
/// dividing both channel counts; the bytes of each tensor, of all together and the FLOP count below 2^63.
///
/// There is no other way to get one than [`ConvProblem::new`], so later code never re-checks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct ConvProblem {
    spec: ConvSpec,
    out: [i64; 2],
}

/// Product below 2^63, or the error that says which product.
fn product(what: &'static str, names: &str, factors: &[i64]) -> Result<i64, ProblemError> {
    factors.iter().try_fold(1i64, |a, &b| a.checked_mul(b)).ok_or_else(|| ProblemError::Overflow {
        what,
        terms: format!("{names} = {}", factors.iter().map(i64::to_string).collect::<Vec<_>>().join("*")),
    })
}

impl ConvProblem {
    /// Checks everything once. See the type's own text for what holds afterwards.
    ///
    /// # Errors
    /// [`ProblemError`] naming the first field that breaks a rule.
    pub fn new(spec: ConvSpec) -> Result<Self, ProblemError> {
        let s = &spec;
        for (field, value) in [
            ("n", s.n),
            ("c", s.c),
            ("h", s.h),
            ("w", s.w),
            ("k", s.k),
            ("r", s.r),
            ("s", s.s),
            ("stride_h", s.stride[0]),
            ("stride_w", s.stride[1]),
            ("dilation_h", s.dilation[0]),
            ("dilation_w", s.dilation[1]),
            ("groups", s.groups),
        ] {
            if value < 1 {
                return Err(ProblemError::field(field, value, "must be at least 1"));
            }
        }
        for (field, value) in [
            ("pad_h", s.pad[0]),
            ("pad_w", s.pad[1]),
            ("output_pad_h", s.output_pad[0]),
            ("output_pad_w", s.output_pad[1]),
        ] {
            if value < 0 {
                return Err(ProblemError::field(field, value, "must not be negative"));
            }
        }
        for (field, channels) in [("c", s.c), ("k", s.k)] {
            if channels % s.groups != 0 {
                let rule = format!("must divide {field} = {channels} without remainder");
                return Err(ProblemError::field("groups", s.groups, rule));
            }
        }
        check_epilogue(s)?;
        let out = [output_size(s, 0)?, output_size(s, 1)?];
        let problem = Self { out, spec };
        problem.check_products()?;
        Ok(problem)
    }

    fn check_products(&self) -> Result<(), ProblemError> {
        let (s, b, [p, q]) = (&self.spec, self.spec.dtype.size() as i64, self.out);
        let x = product("input size in bytes", "n*c*h*w*bytes", &[s.n, s.c, s.h, s.w, b])?;
        let y = product("output size in bytes", "n*k*p*q*bytes", &[s.n, s.k, p, q, b])?;
        let w = product("filter size in bytes", "k*c/g*r*s*bytes", &[s.k, s.c / s.groups, s.r, s.s, b])?;
        let bias = if s.epilogue.bias { product("bias size in bytes", "k*bytes", &[s.k, b])? } else { 0 };
        // Three tensors below 2^63 can pass 2^64 together.
        [w, y, bias].into_iter().try_fold(x, i64::checked_add).ok_or_else(|| ProblemError::Overflow {
            what: "memory of all tensors in bytes",
            terms: format!("{x} + {w} + {y} + {bias}"),
        })?;
        let [u, v] = if s.transposed { [s.h, s.w] } else { [p, q] };
        let cg = s.c / s.groups;
        product("work in FLOP", "2*n*k*p*q*c/g*r*s", &[2, s.n, s.k, u, v, cg, s.r, s.s])?;
        Ok(())
    }

    /// The same with more, or less, to do before a result is stored.
    ///
    /// # Errors
    /// As [`ConvProblem::new`]: this is no forward pass, or its bias is too large.
    pub fn with_epilogue(&self, epilogue: Epilogue) -> Result<Self, ProblemError> {
        let problem = Self { spec: ConvSpec { epilogue, ..self.spec.clone() }, out: self.out };
        check_epilogue(&problem.spec)?;
        problem.check_products()?;
        Ok(problem)
    }

    /// The checked description.
    pub fn spec(&self) -> &ConvSpec {
        &self.spec
    }

    /// Height of the output (the K-side tensor).
    pub fn out_h(&self) -> i64 {
        self.out[0]
    }

    /// Width of the output (the K-side tensor).
    pub fn out_w(&self) -> i64 {
        self.out[1]
    }

    /// Sizes of x, w and y in the order N C H W.
    pub fn shapes(&self) -> [[i64; 4]; 3] {
        let s = &self.spec;
        [[s.n, s.c, s.h, s.w], [s.k, s.c / s.groups, s.r, s.s], [s.n, s.k, self.out_h(), self.out_w()]]
    }

    /// Elements of x (or dx): n*c*h*w.
    pub fn x_elements(&self) -> u64 {
        let s = &self.spec;
        (s.n * s.c * s.h * s.w) as u64
    }

    /// Elements of w (or dw): k*(c/g)*r*s, in either orientation.
    pub fn w_elements(&self) -> u64 {
        let s = &self.spec;
        (s.k * (s.c / s.groups) * s.r * s.s) as u64
    }

    /// Elements of y (or dy): n*k*p*q.
    pub fn y_elements(&self) -> u64 {
        (self.spec.n * self.spec.k * self.out[0] * self.out[1]) as u64
    }

    /// Elements of the bias: output channels of the pass, 0 without a bias.
    pub fn bias_elements(&self) -> u64 {
        let s = &self.spec;
        match s.direction {
            _ if !s.epilogue.bias => 0,
            Direction::Forward => s.k as u64,
            // The plain form of a transposed forward.
            Direction::BackwardData => s.c as u64,
            Direction::BackwardWeights => 0,
        }
    }

    /// Elements the pass writes.
    pub fn output_elements(&self) -> u64 {
        match self.spec.direction {
            Direction::Forward => self.y_elements(),
            Direction::BackwardData => self.x_elements(),
            Direction::BackwardWeights => self.w_elements(),
        }
    }

    /// Products summed into one output element, the most any element has: decides exactness and error.
    pub fn reduction_len(&self) -> u64 {
        let s = &self.spec;
        let taps = (s.r * s.s) as u64;
        let [u, v] = if s.transposed { [s.h, s.w] } else { self.out };
        let (c, k) = ((s.c / s.groups) as u64, (s.k / s.groups) as u64);
        match s.direction {
            Direction::Forward => c * taps,
            Direction::BackwardData => k * taps,
            Direction::BackwardWeights => (s.n * u * v) as u64,
        }
    }

    /// Floating-point operations, two a multiply-add, padding counted as work (the field's custom).
    pub fn flops(&self) -> u64 {
        let s = &self.spec;
        let [u, v] = if s.transposed { [s.h, s.w] } else { self.out };
        (2 * s.n * s.k * u * v * (s.c / s.groups) * s.r * s.s) as u64
    }

    /// Fewest bytes through memory: both operands read once, the result written once.
    pub fn bytes(&self) -> u64 {
        let elements = self.x_elements() + self.w_elements() + self.y_elements() + self.bias_elements();
        elements * self.spec.dtype.size()
    }

    /// True where every group has one input channel (and so `groups == c`).
    pub fn is_depthwise(&self) -> bool {
        self.spec.groups > 1 && self.spec.groups == self.spec.c
    }

    /// The same arithmetic as a plain (not transposed) convolution.
    ///
    /// A transposed convolution is another pass of a plain one whose x is our y and whose y is our x
    /// (Dumoulin & Visin, "A guide to convolution arithmetic for deep learning", chapter 4). Callers
    /// of a transposed problem swap the x and y tensors. The result of a plain problem is itself.
    /// A transposed forward keeps its epilogue although the plain pass is backward-data: its bias then
    /// has one element per output channel, i.e. per `c` of the plain problem. [`ConvProblem::new`] would
    /// refuse that pair and no line can say it, so print the caller's problem, not its plain form.
    pub fn to_plain(&self) -> ConvProblem {
        if !self.spec.transposed {
            return self.clone();
        }
        let s = &self.spec;
        let direction = match s.direction {
            Direction::Forward => Direction::BackwardData,
            Direction::BackwardData => Direction::Forward,
            Direction::BackwardWeights => Direction::BackwardWeights,
        };
        let spec = ConvSpec {
            direction,
            c: s.k,
            k: s.c,
            h: self.out[0],
            w: self.out[1],
            transposed: false,
            output_pad: [0, 0],
            ..s.clone()
        };
        // Valid by construction: `output_size` admitted only sizes for which the plain problem's
        // output is exactly [h, w], and every product is one that was checked.
        ConvProblem { spec, out: [s.h, s.w] }
    }
}

fn check_epilogue(s: &ConvSpec) -> Result<(), ProblemError> {
    let fits = s.direction == Direction::Forward || s.epilogue.is_none();
    let rule = "is fused into the forward direction only";
    if !fits {
        return Err(ProblemError::field("epilogue", "bias/activation", rule));
    }
    s.epilogue.activation.check()
}

/// Output size on one axis (0 = height, 1 = width).
fn output_size(s: &ConvSpec, axis: usize) -> Result<i64, ProblemError> {
    const FILTER: [&str; 2] = ["r", "s"];
    const PAD: [&str; 2] = ["pad_h", "pad_w"];
    const OUTPUT_PAD: [&str; 2] = ["output_pad_h", "output_pad_w"];
    let (input, filter) = ([s.h, s.w][axis], [s.r, s.s][axis]);
    let (stride, pad, dilation) = (s.stride[axis], s.pad[axis], s.dilation[axis]);
    let overflow = |what| ProblemError::Overflow {
        what,
        terms: format!("input {input}, filter {filter}, stride {stride}, pad {pad}, dilation {dilation}"),
    };
    let span = (filter - 1).checked_mul(dilation).and_then(|v| v.checked_add(1));
    let span = span.ok_or_else(|| overflow("filter extent"))?;
    let pads = pad.checked_mul(2).ok_or_else(|| overflow("padding"))?;
    if s.transposed {
        let output_pad = s.output_pad[axis];
        if output_pad >= stride {
            let rule = format!("must be smaller than the stride, {stride}");
            return Err(ProblemError::field(OUTPUT_PAD[axis], output_pad, rule));
        }
        let full = (input - 1).checked_mul(stride).and_then(|v| v.checked_add(span));
        let full = full.and_then(|v| v.checked_add(output_pad)).ok_or_else(|| overflow("output size"))?;
        if full <= pads {
            let rule = format!("2*{pad} leaves nothing of a transposed output of {full}");
            return Err(ProblemError::field(PAD[axis], pad, rule));
        }
        // With `full >= span` and `output_pad < stride` the plain problem's output is the input again:
        // (full - span)/stride + 1 = input - 1 + output_pad/stride + 1. `to_plain` relies on it.
        return Ok(full - pads);
    }
    if s.output_pad[axis] != 0 {
        let rule = "only a transposed convolution has output padding";
        return Err(ProblemError::field(OUTPUT_PAD[axis], s.output_pad[axis], rule));
    }
    let padded = input.checked_add(pads).ok_or_else(|| overflow("padded input"))?;
    if span > padded {
        let rule =
            format!("filter extent {span} (dilation {dilation}) is larger than the padded input, {padded}");
        return Err(ProblemError::field(FILTER[axis], filter, rule));
    }
    Ok((padded - span) / stride + 1)
}

impl TryFrom<ConvSpec> for ConvProblem {
    type Error = ProblemError;

    fn try_from(spec: ConvSpec) -> Result<Self, ProblemError> {
        Self::new(spec)
    }
}
