//! [`MatmulSpec`] (what somebody asked for) and [`MatmulProblem`] (what is known to make sense).

use crate::{Activation, DType, Pass, ProblemError};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

/// How a batch of matrices lies in memory, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Matrices {
    /// Elements in front of the first.
    pub first: i64,
    /// From matrix to matrix, row to row, column to column; 0 where all are the same one.
    pub strides: [i64; 3],
}

/// The order of dense matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixOrder {
    /// Rows one after the other.
    RowMajor,
    /// Columns one after the other: a transposed matrix.
    ColumnMajor,
}

impl Matrices {
    /// Dense ones of so many rows and columns.
    pub fn dense(order: MatrixOrder, rows: i64, columns: i64) -> Self {
        let inner = match order {
            MatrixOrder::RowMajor => [columns, 1],
            MatrixOrder::ColumnMajor => [1, rows],
        };
        // A product that is too large is for `MatmulProblem::new` to name.
        Self { first: 0, strides: [rows.saturating_mul(columns), inner[0], inner[1]] }
    }
}

/// A factor, equal where its bits are.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Factor(pub f64);

impl PartialEq for Factor {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Factor {}

impl Hash for Factor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// What is added to a product: `beta * matrices`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Added {
    /// Its factor; not 0.
    pub beta: Factor,
    /// Where its M x N matrices lie. A bias of N numbers has the strides `[0, 0, 1]`.
    pub matrices: Matrices,
}

/// Unchecked description of `out[g] = activation(alpha * a[g] * b[g] + beta * added[g])` for a batch of G matrices: `a` is M x K,
/// `b` is K x N. `out` is M x N and dense, rows one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MatmulSpec {
    /// Storage type of all of them.
    pub dtype: DType,
    /// Matrices in the batch.
    pub batch: i64,
    /// Rows of `a` and `out`.
    pub m: i64,
    /// Columns of `a`, rows of `b`: the length of the sums.
    pub k: i64,
    /// Columns of `b` and `out`.
    pub n: i64,
    /// Where `a` lies.
    pub a: Matrices,
    /// Where `b` lies.
    pub b: Matrices,
    /// Factor of the product.
    pub alpha: Factor,
    /// What is added to it.
    pub added: Option<Added>,
    /// What is applied to the sum.
    #[serde(default)]
    pub activation: Activation,
    /// Of which pass it is part.
    #[serde(default)]
    pub pass: Pass,
}

impl MatmulSpec {
    /// A plain product of dense matrices.
    pub fn dense(dtype: DType, [batch, m, k, n]: [i64; 4], [a, b]: [MatrixOrder; 2]) -> Self {
        let (a, b) = (Matrices::dense(a, m, k), Matrices::dense(b, k, n));
        let (alpha, added, activation) = (Factor(1.0), None, Activation::None);
        Self { dtype, batch, m, k, n, a, b, alpha, added, activation, pass: Pass::Forward }
    }
}

/// A product of matrices that makes sense: every size positive, no stride or offset negative, factors finite, bytes and FLOP
/// below 2^63.
///
/// The strides of dimensions of size 1 are 0, so that equal problems are equal values. There is no other way to get one
/// than [`MatmulProblem::new`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct MatmulProblem {
    spec: MatmulSpec,
}

impl MatmulProblem {
    /// Checks everything once.
    ///
    /// # Errors
    /// [`ProblemError`] with the first field that breaks a rule.
    pub fn new(mut spec: MatmulSpec) -> Result<Self, ProblemError> {
        let s = &mut spec;
        for (field, value) in [("batch", s.batch), ("m", s.m), ("k", s.k), ("n", s.n)] {
            if value < 1 {
                return Err(ProblemError::field(field, value, "must be at least 1"));
            }
        }
        let factors = [("alpha", s.alpha), ("beta", s.added.map_or(Factor(1.0), |added| added.beta))];
        for (field, factor) in factors {
            if !factor.0.is_finite() {
                return Err(ProblemError::field(field, factor.0, "must be finite"));
            }
        }
        if s.added.is_some_and(|added| added.beta.0 == 0.0) {
            return Err(ProblemError::field("beta", 0, "must not be 0 where something is added"));
        }
        s.activation.check()?;
        let size = s.dtype.size() as i64;
        let product = |what, terms: &[i64]| {
            let made = terms.iter().try_fold(1i64, |product, &term| product.checked_mul(term));
            made.ok_or_else(|| ProblemError::Overflow { what, terms: format!("{terms:?}") })
        };
        product("the work in FLOP", &[2, s.batch, s.m, s.k, s.n])?;
        let mut bytes = product("the result in bytes", &[s.batch, s.m, s.n, size])?;
        let (a, b) = ([s.batch, s.m, s.k], [s.batch, s.k, s.n]);
        let added = s.added.as_mut().map(|added| ("added", &mut added.matrices, [s.batch, s.m, s.n]));
        for (what, matrices, sizes) in [("a", &mut s.a, a), ("b", &mut s.b, b)].into_iter().chain(added) {
            if matrices.first < 0 || matrices.strides.iter().any(|&stride| stride < 0) {
                let value = format!("{matrices:?}");
                return Err(ProblemError::field("strides", value, "must not be negative"));
            }
            for (stride, size) in matrices.strides.iter_mut().zip(sizes) {
                *stride = if size == 1 { 0 } else { *stride };
            }
            let reach = |(&stride, size): (&i64, i64)| stride.checked_mul(size - 1);
            let end = matrices
                .strides
                .iter()
                .zip(sizes)
                .map(reach)
                .try_fold(matrices.first, |end, reach| end.checked_add(reach?));
            let end = end.and_then(|end| end.checked_add(1)?.checked_mul(size)?.checked_add(bytes));
            bytes = end.ok_or_else(|| ProblemError::Overflow {
                what: "the memory of all matrices in bytes",
                terms: format!("{what}: {matrices:?} of {sizes:?}"),
            })?;
        }
        Ok(Self { spec })
    }

    /// The same product with nothing added, no factor and no activation.
    pub fn without_epilogue(&self) -> Self {
        let spec = self.spec.clone();
        Self { spec: MatmulSpec { alpha: Factor(1.0), added: None, activation: Activation::None, ..spec } }
    }

    /// The checked description.
    pub fn spec(&self) -> &MatmulSpec {
        &self.spec
    }

    /// True where something is done to the product.
    pub fn has_epilogue(&self) -> bool {
        *self != self.without_epilogue()
    }

    /// Batch, rows and columns of `a`.
    pub fn a_sizes(&self) -> [u64; 3] {
        [self.spec.batch, self.spec.m, self.spec.k].map(|v| v as u64)
    }

    /// Batch, rows and columns of `b`.
    pub fn b_sizes(&self) -> [u64; 3] {
        [self.spec.batch, self.spec.k, self.spec.n].map(|v| v as u64)
    }

    /// Batch, rows and columns of the result and of what is added to it.
    pub fn out_sizes(&self) -> [u64; 3] {
        [self.spec.batch, self.spec.m, self.spec.n].map(|v| v as u64)
    }

    /// Elements from the buffer's begin to the last of `a`.
    pub fn a_elements(&self) -> u64 {
        extent(&self.spec.a, self.a_sizes())
    }

    /// Elements from the buffer's begin to the last of `b`.
    pub fn b_elements(&self) -> u64 {
        extent(&self.spec.b, self.b_sizes())
    }

    /// Elements from the buffer's begin to the last that is added; 0 where nothing is.
    pub fn added_elements(&self) -> u64 {
        self.spec.added.map_or(0, |added| extent(&added.matrices, self.out_sizes()))
    }

    /// Elements of the result.
    pub fn output_elements(&self) -> u64 {
        self.out_sizes().iter().product()
    }

    /// Products summed into one element of the result.
    pub fn reduction_len(&self) -> u64 {
        self.spec.k as u64
    }

    /// Floating-point operations, two a multiply-add.
    pub fn flops(&self) -> u64 {
        2 * self.output_elements() * self.reduction_len()
    }

    /// Fewest bytes through memory: every element that is there read once, the result written once.
    pub fn bytes(&self) -> u64 {
        let dense = |sizes: [u64; 3], elements: u64| sizes.iter().product::<u64>().min(elements);
        let a = dense(self.a_sizes(), self.a_elements());
        let b = dense(self.b_sizes(), self.b_elements());
        let added = dense(self.out_sizes(), self.added_elements());
        (a + b + added + self.output_elements()) * self.spec.dtype.size()
    }
}

fn extent(matrices: &Matrices, sizes: [u64; 3]) -> u64 {
    let reach: u64 =
        matrices.strides.iter().zip(sizes).map(|(&stride, size)| stride as u64 * (size - 1)).sum();
    matrices.first as u64 + reach + 1
}

impl Matrices {
    /// The order of matrices that lie densely from the buffer's begin on; none where they do not. `sizes`: batch, rows,
    /// columns; the strides of sizes of 1 do not matter.
    pub fn order(&self, [batch, rows, columns]: [u64; 3]) -> Option<MatrixOrder> {
        let is = |order| {
            let dense = Self::dense(order, rows as i64, columns as i64);
            let same = |at: usize, size: u64| size == 1 || self.strides[at] == dense.strides[at];
            self.first == 0 && same(0, batch) && same(1, rows) && same(2, columns)
        };
        [MatrixOrder::RowMajor, MatrixOrder::ColumnMajor].into_iter().find(|&order| is(order))
    }
}
