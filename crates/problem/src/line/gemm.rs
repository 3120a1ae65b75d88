//! `gemm`: from words to a product of matrices, and back.

use super::flags::{Flag, GEMM_FLAGS, GemmMeaning};
use super::read::{ACTIVATIONS, missing, values};
use super::words::Words;
use crate::{
    Activation, Added, DType, Factor, MatmulProblem, MatmulSpec, Matrices, MatrixOrder, Pass, ProblemError,
};
use std::fmt;

/// The problem that the words name.
///
/// # Errors
/// See [`super::parse_line`].
pub(super) fn problem(words: &Words<'_>) -> Result<MatmulProblem, ProblemError> {
    let mut spec = MatmulSpec::dense(words.dtype, [1; 4], [MatrixOrder::RowMajor; 2]);
    let mut seen = vec![false; GEMM_FLAGS.len()];
    let mut orders = [MatrixOrder::RowMajor; 2];
    let (mut strides, mut first) = ([None; 3], [0i64; 3]);
    let mut beta = 0.0;
    values(words, GEMM_FLAGS, |index, flag, value| {
        seen[index] = true;
        match flag.meaning {
            GemmMeaning::Size(slot, _) => *slot(&mut spec) = whole(flag, value)?,
            GemmMeaning::Batch => spec.batch = whole(flag, value)?,
            GemmMeaning::Transposed(at) => {
                orders[at] =
                    if is_one(flag, value)? { MatrixOrder::ColumnMajor } else { MatrixOrder::RowMajor };
            }
            GemmMeaning::Strides(at) => strides[at] = Some(three(flag, value)?),
            GemmMeaning::First(at) => first[at] = whole(flag, value)?,
            GemmMeaning::Alpha => spec.alpha = Factor(factor(flag, value)?),
            GemmMeaning::Beta => beta = factor(flag, value)?,
            GemmMeaning::Activation => {
                spec.activation = value.parse().map_err(|()| wrong(flag, value, ACTIVATIONS))?;
            }
            GemmMeaning::Backward => {
                spec.pass = if is_one(flag, value)? { Pass::Backward } else { Pass::Forward };
            }
            GemmMeaning::Only(values, why) if !values.contains(&value) => {
                return Err(wrong(flag, value, why));
            }
            GemmMeaning::Only(..) | GemmMeaning::Ignored => {}
        }
        Ok(())
    })?;
    for (flag, seen) in GEMM_FLAGS.iter().zip(&seen) {
        if let (GemmMeaning::Size(_, what), false) = (&flag.meaning, seen) {
            return Err(missing(flag, what));
        }
    }
    let matrices = |at: usize, order, rows, columns| {
        let dense = Matrices::dense(order, rows, columns);
        Matrices { first: first[at], strides: strides[at].unwrap_or(dense.strides) }
    };
    spec.a = matrices(0, orders[0], spec.m, spec.k);
    spec.b = matrices(1, orders[1], spec.k, spec.n);
    let added = Added { beta: Factor(beta), matrices: matrices(2, MatrixOrder::RowMajor, spec.m, spec.n) };
    spec.added = (beta != 0.0).then_some(added);
    MatmulProblem::new(spec)
}

fn wrong(flag: &Flag<GemmMeaning>, value: &str, rule: &str) -> ProblemError {
    ProblemError::line(value, format!("{}: {rule}", flag.names()))
}

fn is_one(flag: &Flag<GemmMeaning>, value: &str) -> Result<bool, ProblemError> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(wrong(flag, value, "must be 0 or 1")),
    }
}

fn whole(flag: &Flag<GemmMeaning>, value: &str) -> Result<i64, ProblemError> {
    value.parse().map_err(|_| wrong(flag, value, "needs a whole number below 2^63"))
}

fn factor(flag: &Flag<GemmMeaning>, value: &str) -> Result<f64, ProblemError> {
    let number = value.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| wrong(flag, value, "needs a number"))
}

fn three(flag: &Flag<GemmMeaning>, value: &str) -> Result<[i64; 3], ProblemError> {
    let numbers: Result<Vec<i64>, _> = value.split(',').map(|word| whole(flag, word)).collect();
    let rule = "needs three whole numbers: BATCH,ROW,COLUMN";
    numbers?.try_into().map_err(|_| wrong(flag, value, rule))
}

impl fmt::Display for MatmulProblem {
    /// MIOpenDriver's `gemm` line. Strides and offsets come at the end, where matrices are not dense.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.spec();
        let base = match s.dtype {
            DType::F32 => "gemm",
            DType::F16 => "gemmfp16",
            DType::BF16 => "gemmbfp16",
        };
        let [a, b] = [s.a.order(self.a_sizes()), s.b.order(self.b_sizes())];
        let turned = |order| u8::from(order == Some(MatrixOrder::ColumnMajor));
        let beta = s.added.map_or(0.0, |added| added.beta.0);
        write!(f, "MIOpenDriver {base} -b {} -m {} -k {} -n {}", s.batch, s.m, s.k, s.n)?;
        write!(f, " -u {} -v {} -A {} -B {beta} -t 1", turned(a), turned(b), s.alpha.0)?;
        if s.activation != Activation::None {
            write!(f, " --activ {}", s.activation)?;
        }
        if s.pass == Pass::Backward {
            f.write_str(" --backward 1")?;
        }
        let added = s.added.map(|added| added.matrices);
        // MIOpenDriver's C is row-major.
        let is_plain = |m: &Matrices| m.order(self.out_sizes()) == Some(MatrixOrder::RowMajor);
        let added = added.filter(|matrices| !is_plain(matrices));
        let odd = [
            ("a", Some(s.a).filter(|_| a.is_none())),
            ("b", Some(s.b).filter(|_| b.is_none())),
            ("added", added),
        ];
        for (name, matrices) in odd {
            let Some(Matrices { first, strides: [batch, row, column] }) = matrices else { continue };
            write!(f, " --{name}_strides {batch},{row},{column}")?;
            if first != 0 {
                write!(f, " --{name}_first {first}")?;
            }
        }
        Ok(())
    }
}
