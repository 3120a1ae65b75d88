//! The entry: checks tensors against the problem, then picks the way.

use crate::arena::{Arena, Team};
use crate::element::Element;
use crate::geometry::Pass;
use crate::scatter::Finish;
use crate::{direct, gather, naive, weights};
use half::{bf16, f16};
use wave32_problem::{ConvProblem, DType, Direction};

/// A tensor to read.
#[derive(Debug, Clone, Copy)]
pub enum TensorRef<'a> {
    /// binary32.
    F32(&'a [f32]),
    /// binary16.
    F16(&'a [f16]),
    /// bfloat16.
    BF16(&'a [bf16]),
}

/// A tensor to write.
#[derive(Debug)]
pub enum TensorMut<'a> {
    /// binary32.
    F32(&'a mut [f32]),
    /// binary16.
    F16(&'a mut [f16]),
    /// bfloat16.
    BF16(&'a mut [bf16]),
}

/// How to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Threads, the caller's among them; 0 is every core. The result does not depend on it.
    pub threads: usize,
    /// Most bytes of scratch memory. Anything works, down to 0; less is slower. The default is 256 MiB.
    pub workspace_cap: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 0, workspace_cap: 256 << 20 }
    }
}

/// What a call did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Which way was taken: `gemm`, `direct` (small groups) or `naive` (the cap fits no tile).
    pub way: &'static str,
    /// Most bytes of scratch memory in use at once.
    pub workspace_peak: u64,
}

/// Why nothing was computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// A tensor does not have the problem's size.
    #[error("tensor {tensor} has {given} elements; this problem needs {needed}")]
    Length {
        /// `a`, `b`, `bias` or `out`.
        tensor: &'static str,
        /// What was passed.
        given: u64,
        /// What the problem says.
        needed: u64,
    },
    /// A tensor does not have the problem's type.
    #[error("tensor {tensor} is not {}, the problem's type; convert it or change the problem", .needed.name())]
    DType {
        /// `a`, `b`, `bias` or `out`.
        tensor: &'static str,
        /// What the problem says.
        needed: DType,
    },
    /// The epilogue wants a bias and none was passed, or the other way round.
    #[error("{0}")]
    Bias(&'static str),
    /// The system has no more threads.
    #[error("cannot start {threads} threads ({reason}); ask for fewer")]
    Threads {
        /// As asked.
        threads: usize,
        /// The system's words.
        reason: String,
    },
}

/// Computes the pass into `out`, in the problem's layout. Deterministic: the same bits on every run and
/// for every number of threads.
///
/// # Errors
/// [`CpuError`] where an operand has a wrong size or memory is missing. `out` is then unchanged.
pub fn run(
    p: &ConvProblem,
    a: TensorRef,
    b: TensorRef,
    bias: Option<TensorRef>,
    out: TensorMut,
    o: &Options,
) -> Result<(), CpuError> {
    run_reported(p, a, b, bias, out, o).map(drop)
}

/// As [`run`], and says what it did.
///
/// # Errors
/// As [`run`].
pub fn run_reported(
    p: &ConvProblem,
    a: TensorRef,
    b: TensorRef,
    bias: Option<TensorRef>,
    out: TensorMut,
    o: &Options,
) -> Result<Report, CpuError> {
    macro_rules! typed {
        ($variant:ident) => {{
            let read = |name, tensor| match tensor {
                TensorRef::$variant(slice) => Ok(slice),
                _ => Err(CpuError::DType { tensor: name, needed: DType::$variant }),
            };
            let out = match out {
                TensorMut::$variant(slice) => slice,
                _ => return Err(CpuError::DType { tensor: "out", needed: DType::$variant }),
            };
            checked(p, [read("a", a)?, read("b", b)?], bias.map(|t| read("bias", t)).transpose()?, out, o)
        }};
    }
    match p.spec().dtype {
        DType::F32 => typed!(F32),
        DType::F16 => typed!(F16),
        DType::BF16 => typed!(BF16),
    }
}

fn checked<T: Element>(
    p: &ConvProblem,
    [a, b]: [&[T]; 2],
    bias: Option<&[T]>,
    out: &mut [T],
    o: &Options,
) -> Result<Report, CpuError> {
    let (x, w, y) = (p.x_elements(), p.w_elements(), p.y_elements());
    let [needs_a, needs_b] = match p.spec().direction {
        Direction::Forward => [x, w],
        Direction::BackwardData => [y, w],
        Direction::BackwardWeights => [x, y],
    };
    let lengths = [("a", a.len(), needs_a), ("b", b.len(), needs_b), ("out", out.len(), p.output_elements())];
    let bias_length = bias.map(|bias| ("bias", bias.len(), p.spec().k as u64));
    for (tensor, given, needed) in lengths.into_iter().chain(bias_length) {
        if given as u64 != needed {
            return Err(CpuError::Length { tensor, given: given as u64, needed });
        }
    }
    match (bias, p.spec().epilogue.bias) {
        (None, true) => return Err(CpuError::Bias("the problem has a bias; pass its tensor")),
        (Some(_), false) => {
            return Err(CpuError::Bias("the problem has no bias; pass none, or set epilogue.bias"));
        }
        _ => {}
    }
    let team = Team::new(o.threads)
        .map_err(|error| CpuError::Threads { threads: o.threads, reason: error.to_string() })?;
    Ok(compute(p, [a, b], bias, out, &Arena::new(o.workspace_cap), &team))
}

fn compute<T: Element>(
    p: &ConvProblem,
    [a, b]: [&[T]; 2],
    bias: Option<&[T]>,
    out: &mut [T],
    arena: &Arena,
    team: &Team,
) -> Report {
    let plain = p.to_plain();
    let pass = Pass::new(&plain);
    let way = if plain.spec().direction == Direction::BackwardWeights {
        // The plain problem's x is a transposed problem's y.
        let operands = if p.spec().transposed { [b, a] } else { [a, b] };
        if direct::suits(&pass) && direct::weights(&pass, operands, out, arena, team) {
            "direct"
        } else if weights::run(&pass, operands, out, arena, team) {
            "gemm"
        } else {
            naive::weights(&pass, operands, out, arena, team);
            "naive"
        }
    } else {
        let finish = Finish { bias, activation: p.spec().epilogue.activation };
        if direct::suits_gather(&pass) && direct::gather(&pass, [a, b], out, finish, arena, team) {
            "direct"
        } else if gather::run(&pass, [a, b], out, finish, arena, team) {
            "gemm"
        } else {
            naive::gather(&pass, [a, b], out, finish, arena, team);
            "naive"
        }
    };
    Report { way, workspace_peak: arena.peak() }
}
