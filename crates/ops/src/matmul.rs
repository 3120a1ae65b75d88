//! Products of matrices by plans of their solver table.

use crate::convolution::storage;
use crate::steps::Steps;
use crate::{Elementwise, Op, OpError, Planner, PricedPlan, Queue, View, copy};
use wave32_device::{Addresses, DeviceError};
use wave32_problem::{Activation, Added, DType, Factor, MatmulProblem, MatmulSpec, Matrices, Pass};
use wave32_solve::{Fp16Accumulation, Role};

/// The epilogue of a matrix product: `activation(alpha * product + beta * added)`.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    /// A view of the product's sizes and type (broadcast dimensions have stride 0).
    pub added: View,
    /// Factor of `added`. With 0, `added` is not read and may hold NaN.
    pub beta: f64,
    /// Factor of the product.
    pub alpha: f64,
    /// Applied to the sum.
    pub activation: Activation,
}

impl Sum {
    /// Applies it to a product that is in `out`.
    fn finish(&self, queue: &mut dyn Queue, out: &View) -> Result<(), OpError> {
        if self.alpha != 1.0 {
            let operands = [out.into(), self.alpha.into()];
            Elementwise::new(Op::Mul, out.dtype).run(queue, &operands, out)?;
        }
        if self.beta != 0.0 {
            let operands = [out.into(), (&self.added).into()];
            Elementwise::with(Op::AddScaled, out.dtype, self.beta, 0.0).run(queue, &operands, out)?;
        }
        let Some(activation) = crate::activation::Activation::from_kernels(self.activation) else {
            return Ok(());
        };
        activation.forward(&mut Steps::new(queue), out, out)
    }
}

impl Planner {
    /// `out[g] = a[g] * b[g]` for each of a batch of matrices (`[G, M, K]`, `[G, K, N]`, `[G, M, N]`), of one type of
    /// f32, f16 or bf16. `out` is contiguous; `a` and `b` may be transposed and have any strides.
    ///
    /// # Errors
    /// `element-type`, `wrong-size`, `no-plan`, `misaligned`; [`OpError::Device`] where the device fails.
    pub fn matmul(
        &mut self,
        queue: &mut dyn Queue,
        pass: Pass,
        a: &View,
        b: &View,
        out: &View,
    ) -> Result<(), OpError> {
        self.product(queue, pass, None, a, b, out)
    }

    /// `out = activation(alpha * (a * b) + beta * added)`, as [`Planner::matmul`].
    ///
    /// # Errors
    /// As [`Planner::matmul`]; `no-broadcast`.
    pub fn addmm(
        &mut self,
        queue: &mut dyn Queue,
        pass: Pass,
        sum: &Sum,
        a: &View,
        b: &View,
        out: &View,
    ) -> Result<(), OpError> {
        let sum = Sum { added: sum.added.broadcast(out.sizes())?, ..*sum };
        if sum.added.dtype == a.dtype && sum.beta.is_finite() && sum.alpha.is_finite() {
            return self.product(queue, pass, Some(&sum), a, b, out);
        }
        self.product(queue, pass, None, a, b, out)?;
        sum.finish(queue, out)
    }

    fn product(
        &mut self,
        queue: &mut dyn Queue,
        pass: Pass,
        sum: Option<&Sum>,
        a: &View,
        b: &View,
        out: &View,
    ) -> Result<(), OpError> {
        let [g, m, k, n] = product_sizes(a, b, out)?;
        let dtype = storage(a.dtype)?;
        if out.elements() == 0 {
            return Ok(());
        }
        if k == 0 {
            crate::fill(queue, out, crate::Number::Int(0))?;
            return sum.map_or(Ok(()), |sum| sum.finish(queue, out));
        }
        let alignment = queue.caps().offset_alignment.max(16);
        if !out.is_contiguous() || !out.address.is_multiple_of(alignment) {
            let mut steps = Steps::new(queue);
            let made = steps.make(out.dtype, out.sizes())?;
            self.product(steps.queue, pass, sum, a, b, &made)?;
            return copy(steps.queue, &made, out);
        }
        let matrices = |view: &View| lies(view, alignment);
        let (a_lies, b_lies) = (matrices(a)?, matrices(b)?);
        let added = sum.filter(|sum| sum.beta != 0.0).map(|sum| &sum.added);
        let added_lies = added.map(matrices).transpose()?;
        let sum_or_none = sum.map_or((1.0, 0.0), |sum| (sum.alpha, sum.beta));
        // Elsewhere both passes share plans, and what `tune` measured.
        let sums_in_f16 = dtype == DType::F16 && self.fp16_accumulation(None) != Fp16Accumulation::Never;
        let spec = MatmulSpec {
            dtype,
            batch: g as i64,
            m: m as i64,
            k: k as i64,
            n: n as i64,
            a: a_lies.1,
            b: b_lies.1,
            alpha: Factor(sum_or_none.0),
            added: added_lies.map(|(_, matrices)| Added { beta: Factor(sum_or_none.1), matrices }),
            activation: sum.map_or(Activation::None, |sum| sum.activation),
            pass: if sums_in_f16 { pass } else { Pass::Forward },
        };
        let problem =
            MatmulProblem::new(spec).map_err(|error| OpError::refused("no-plan", error.to_string()))?;
        let mut addresses = Addresses::default();
        addresses[Role::X as usize] = a_lies.0;
        addresses[Role::W as usize] = b_lies.0;
        addresses[Role::Y as usize] = out.address;
        addresses[Role::Bias as usize] = added_lies.map_or(0, |(address, _)| address);
        let ranked = match self.ranked(queue.caps(), &problem, false) {
            Ok(ranked) => ranked,
            Err(refused) => {
                // The part that a plan refuses may be what is added, or the size.
                if let Some(sum) = sum {
                    self.product(queue, pass, None, a, b, out)?;
                    return sum.finish(queue, out);
                }
                return self.in_pieces(queue, pass, a, b, out).unwrap_or(Err(refused));
            }
        };
        match run_first(queue, &ranked, &mut addresses) {
            Err(OpError::Device(DeviceError::OutOfMemory { .. })) => {
                let frugal = self.ranked(&queue.caps().clone(), &problem, true)?;
                run_first(queue, &frugal, &mut addresses)
            }
            done => done,
        }
    }

    /// A product of matrices of which one is too large to bind, as two: half the rows of `a` each, else half the
    /// columns of `b`. What is only spread too far is copied first.
    fn in_pieces(
        &mut self,
        queue: &mut dyn Queue,
        pass: Pass,
        a: &View,
        b: &View,
        out: &View,
    ) -> Option<Result<(), OpError>> {
        let most = queue.caps().max_range;
        let is_large = |view: &View| view.elements() * view.dtype.size() > most;
        let (m, n) = (out.sizes()[1], out.sizes()[2]);
        let is_one = out.sizes()[0] == 1;
        if is_one && (is_large(a) || is_large(out)) && m > 1 {
            let halves = [(0, m / 2), (m / 2, m - m / 2)];
            return Some(halves.into_iter().try_for_each(|(start, length)| {
                self.matmul(queue, pass, &a.narrow(1, start, length), b, &out.narrow(1, start, length))
            }));
        }
        if is_one && is_large(b) && n > 1 {
            let halves = [(0, n / 2), (n / 2, n - n / 2)];
            return Some(halves.into_iter().try_for_each(|(start, length)| {
                self.matmul(queue, pass, a, &b.narrow(2, start, length), &out.narrow(2, start, length))
            }));
        }
        if [a, b].iter().all(|view| view.is_contiguous()) {
            return None;
        }
        let mut steps = Steps::new(queue);
        Some(steps.contiguous(a).and_then(|a| {
            let b = steps.contiguous(b)?;
            self.matmul(steps.queue, pass, &a, &b, out)
        }))
    }
}

/// Runs the fastest of the plans; where memory runs out, the fastest that needs less of it.
fn run_first(queue: &mut dyn Queue, ranked: &[PricedPlan], addresses: &mut Addresses) -> Result<(), OpError> {
    let (mut least, mut ran_out) = (u64::MAX, None);
    for PricedPlan { plan, .. } in ranked {
        if plan.workspace_bytes >= least {
            continue;
        }
        let mut steps = Steps::new(queue);
        if plan.workspace_bytes > 0 {
            match steps.make(crate::ElementType::U8, &[plan.workspace_bytes]) {
                Ok(workspace) => addresses[Role::Workspace as usize] = workspace.address,
                Err(OpError::Device(error @ DeviceError::OutOfMemory { .. })) => {
                    (least, ran_out) = (plan.workspace_bytes, Some(error));
                    continue;
                }
                Err(other) => return Err(other),
            }
        }
        return Ok(wave32_device::execute(steps.queue, plan, addresses)?);
    }
    Err(ran_out.map_or_else(|| OpError::refused("no-plan", "no solver takes it"), OpError::Device))
}

/// The aligned byte in front of a view, and how its matrices lie from there.
fn lies(view: &View, alignment: u64) -> Result<(u64, Matrices), OpError> {
    let (start, size) = (view.address / alignment * alignment, view.dtype.size());
    let skipped = view.address - start;
    if !skipped.is_multiple_of(size) {
        let detail = format!("address {:#x}, elements of {size} bytes", view.address);
        return Err(OpError::refused("misaligned", detail));
    }
    let strides = view.strides();
    let strides = [strides[0], strides[1], strides[2]].map(|stride| stride as i64);
    Ok((start, Matrices { first: (skipped / size) as i64, strides }))
}

/// `[g, m, k, n]` of a product.
fn product_sizes(a: &View, b: &View, out: &View) -> Result<[u64; 4], OpError> {
    if let (&[g, m, k], &[g2, k2, n], &[g3, m3, n3]) = (a.sizes(), b.sizes(), out.sizes())
        && (g, k) == (g2, k2)
        && (g, m, n) == (g3, m3, n3)
        && a.dtype == b.dtype
        && a.dtype == out.dtype
    {
        return Ok([g, m, k, n]);
    }
    let detail = format!("{:?} x {:?} to {:?}", a.sizes(), b.sizes(), out.sizes());
    Err(OpError::refused("wrong-size", detail))
}
