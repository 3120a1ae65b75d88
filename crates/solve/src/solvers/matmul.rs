//! Products of matrices as passes of a 1x1 convolution, by the solvers of convolutions.
//!
//! A convolution of K channels and N pixels with M filters of 1x1 is the product of dense matrices; its backward passes are
//! the products with one side transposed. The batch is the convolution's groups. What does not lie so is packed first, and
//! the factors and what is added come last.

use super::build::{Buffer, BufferSource, Builder, Cheapest, NewLaunch, read, unused, write};
use super::skinny::Tensor;
use crate::{DeviceCaps, Model, Plan, Policy, Refusal, Role, Solver};
use wave32_params::variants::{self, Variant};
use wave32_params::{Divisors, Kernel, Name, copy, ew_fast, ew_ops};
use wave32_problem::{ConvProblem, ConvSpec, DType, Direction, MatmulProblem, MatrixOrder};

/// A solver of convolutions that takes products.
pub struct AsConv(pub &'static dyn Solver);

impl Solver<MatmulProblem> for AsConv {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn applicable(&self, problem: &MatmulProblem, caps: &DeviceCaps) -> Result<(), Refusal> {
        let mut found = Err(Refusal::new("no-pass", "no pass of a convolution is this product"));
        for pass in passes(problem) {
            found = pass.conv(problem).and_then(|conv| self.0.applicable(&conv, caps));
            if found.is_ok() {
                break;
            }
        }
        found
    }

    fn plan(&self, problem: &MatmulProblem, caps: &DeviceCaps, policy: &Policy) -> Result<Plan, Refusal> {
        let mut best = Cheapest::new(caps);
        for pass in passes(problem) {
            best.offer(self.by(&pass, problem, caps, policy));
        }
        best.plan()
    }
}

impl AsConv {
    fn by(
        &self,
        pass: &Pass,
        problem: &MatmulProblem,
        caps: &DeviceCaps,
        policy: &Policy,
    ) -> Result<Plan, Refusal> {
        let conv = pass.conv(problem)?;
        self.0.applicable(&conv, caps)?;
        let mut builder = Builder::new(problem, caps);
        let [a, b] = Tensor::operands(problem);
        let a = if pass.packs[0] { pack(&mut builder, &a)? } else { a.source };
        let b = if pass.packs[1] { pack(&mut builder, &b)? } else { b.source };
        // What is packed leaves the rest of the workspace to the convolution.
        let packed = builder.workspace();
        let left = policy.workspace_cap.map(|cap| cap.saturating_sub(packed));
        let fp16_accumulation = policy.fp16_accumulation.of_product();
        let policy_left = Policy { workspace_cap: left, fp16_accumulation, ..policy.clone() };
        let plan = self.0.plan(&conv, caps, &policy_left)?;
        let config = plan.config.clone();
        let out = BufferSource::Tensor(Role::Y);
        let [x, w, y] = match pass.direction {
            Direction::Forward => [b, a, out],
            Direction::BackwardData => [out, a, b],
            Direction::BackwardWeights => [b, out, a],
        };
        builder.append(plan, |role| match role {
            Role::X => x,
            Role::Y => y,
            _ => w,
        });
        finish(&mut builder, problem)?;
        builder.finish(self.0.name(), config, policy.workspace_cap)
    }
}

/// A product as a pass of a convolution.
struct Pass {
    direction: Direction,
    /// Whether a and b are copied into order first.
    packs: [bool; 2],
}

/// Two transposed operands are no pass: either may be packed.
fn passes(problem: &MatmulProblem) -> Vec<Pass> {
    use MatrixOrder::{ColumnMajor, RowMajor};
    let spec = problem.spec();
    let orders = [spec.a.order(problem.a_sizes()), spec.b.order(problem.b_sizes())];
    let packed = orders.map(|order| order.is_none());
    let order = orders.map(|order| order.unwrap_or(RowMajor));
    match order {
        [RowMajor, RowMajor] => vec![Pass { direction: Direction::Forward, packs: packed }],
        [RowMajor, ColumnMajor] => vec![Pass { direction: Direction::BackwardWeights, packs: packed }],
        [ColumnMajor, RowMajor] => vec![Pass { direction: Direction::BackwardData, packs: packed }],
        [ColumnMajor, ColumnMajor] => vec![
            Pass { direction: Direction::BackwardData, packs: [false, true] },
            Pass { direction: Direction::BackwardWeights, packs: [true, false] },
        ],
    }
}

/// True where nothing has to be packed.
pub fn is_in_order(problem: &MatmulProblem) -> bool {
    passes(problem).iter().any(|pass| pass.packs == [false; 2])
        && (problem.spec().added.is_none() || repeats(problem).is_some())
}

impl Pass {
    fn conv(&self, problem: &MatmulProblem) -> Result<ConvProblem, Refusal> {
        let s = problem.spec();
        // Below 2^63, as the matrices are.
        let [gm, gk, gn] = [s.m, s.k, s.n].map(|size| size.saturating_mul(s.batch));
        let base =
            ConvSpec { dtype: s.dtype, groups: s.batch, direction: self.direction, ..ConvSpec::default() };
        let spec = match self.direction {
            Direction::Forward => ConvSpec { c: gk, k: gm, w: s.n, ..base },
            Direction::BackwardData => ConvSpec { c: gm, k: gk, w: s.n, ..base },
            Direction::BackwardWeights => ConvSpec { c: gn, k: gm, w: s.k, ..base },
        };
        ConvProblem::new(spec).map_err(|error| Refusal::new("no-convolution", error.to_string()))
    }
}

/// The kernel that copies elements of this type as they are.
fn copy_name(dtype: DType) -> Name<copy::Kernel> {
    if dtype.size() == 2 { copy::S2 } else { copy::S4 }
}

/// The variant of that name.
pub fn variant<K: Kernel>(name: Name<K>) -> &'static Variant {
    let found = variants::find(name.as_str());
    found.unwrap_or_else(|| unreachable!("the variants table has {name:?}: it was made from it"))
}

/// A tensor of the problem copied to the workspace, its rows one after the other.
pub fn pack(builder: &mut Builder<'_, MatmulProblem>, from: &Tensor) -> Result<BufferSource, Refusal> {
    let dtype = builder.dtype();
    let to = Tensor::dense(from.sizes, |bytes| builder.reserve(bytes).into(), dtype);
    let count: u64 = from.sizes.iter().product();
    if count >= 1 << 31 {
        return Err(Refusal::new("tensor-too-large", format!("{count} elements to pack")));
    }
    let (src, in_at) = from.bind(builder.caps(), dtype)?;
    let (dst, out_at) = to.bind(builder.caps(), dtype)?;
    let [batch, rows, columns] = from.sizes.map(|size| size as u32);
    let code = dtype as u32;
    let strides = |tensor: &Tensor| {
        let [batch, row, column] = tensor.strides.map(|stride| stride as u32);
        [0, batch, row, column]
    };
    let name = variant(copy_name(dtype));
    // Neighbours that do not lie side by side cost a sector each.
    let spread = if from.strides[2] == 1 { 1 } else { 8 };
    builder.launch::<copy::Kernel>(NewLaunch {
        variant: name,
        grid: [(count as u32).div_ceil(4 * name.threads), 1, 1],
        params: copy::Params {
            count: count as u32,
            in_type: code,
            out_type: code,
            in_at,
            out_at,
            size: [batch, rows, columns],
            i: strides(from),
            o: strides(&to),
            by: Divisors::new(from.sizes),
        },
        buffers: copy::Buffers { src: read(src), dst: write(dst) },
        flops: 0,
        bytes: 2 * count * dtype.size(),
        model: Model::Stream { bytes: (1 + spread) * count * dtype.size() },
    });
    Ok(to.source)
}

/// `[div, mod]` where the added element for the result's element i is `(i / div) % mod`; none where it is another.
fn repeats(problem: &MatmulProblem) -> Option<[u32; 2]> {
    let added = problem.spec().added.map_or([0; 3], |added| added.matrices.strides);
    let (mut div, mut modulus, mut stage, mut is_broken) = (1u64, 1u64, 0, false);
    for (size, stride) in problem.out_sizes().into_iter().zip(added.map(|stride| stride as u64)).rev() {
        match stride {
            _ if size == 1 => {}
            0 if stage == 0 => div *= size,
            0 => stage = 2,
            stride if stage < 2 && stride == modulus => (modulus, stage) = (modulus * size, 1),
            _ => is_broken = true,
        }
    }
    let fit = |number: u64| u32::try_from(number).ok();
    if is_broken { None } else { Some([fit(div)?, fit(modulus)?]) }
}

/// `alpha * result + beta * added` on a product that is there.
fn finish(builder: &mut Builder<'_, MatmulProblem>, problem: &MatmulProblem) -> Result<(), Refusal> {
    let s = problem.spec();
    if s.alpha.0 != 1.0 {
        let factor = (s.alpha.0 as f32).to_bits();
        let modes = ew_fast::SAME << 2;
        elementwise(builder, problem, (ew_ops::OP_MUL, 0.0), (modes, [factor, 1]), None)?;
    }
    if let Some(added) = s.added {
        let mut tensor = Tensor::added(problem);
        let is_dense = added.matrices.order(problem.out_sizes()) == Some(MatrixOrder::RowMajor)
            && problem.output_elements() == problem.added_elements();
        let operand = match repeats(problem) {
            Some(repeats) if !is_dense => (ew_fast::REPEAT << 2, repeats),
            found => {
                if found.is_none() {
                    let source = pack(builder, &tensor)?;
                    tensor = Tensor::dense(problem.out_sizes(), |_| source, s.dtype);
                }
                (ew_fast::FULL << 2, [1, 1])
            }
        };
        elementwise(builder, problem, (ew_ops::OP_ADD_SCALED, added.beta.0 as f32), operand, Some(&tensor))?;
    }
    Ok(())
}

/// `result = op(result, operand)`.
fn elementwise(
    builder: &mut Builder<'_, MatmulProblem>,
    problem: &MatmulProblem,
    (op, s): (u32, f32),
    (modes, [b_div, b_mod]): (u32, [u32; 2]),
    operand: Option<&Tensor>,
) -> Result<(), Refusal> {
    let (dtype, count) = (builder.dtype(), problem.output_elements());
    if count >= 1 << 31 {
        return Err(Refusal::new("tensor-too-large", format!("a result of {count} elements")));
    }
    let (b, b_at): (Buffer, u32) = match operand {
        Some(tensor) => {
            let (source, at) = tensor.bind(builder.caps(), dtype)?;
            (read(source), at)
        }
        None => (unused(Role::Y), 0),
    };
    let added = operand.map_or(0, |_| problem.added_elements().min(count));
    let bytes = (2 * count + added) * dtype.size();
    let variant = variant(ew_fast::HOT[dtype as usize]);
    builder.launch::<ew_fast::Kernel>(NewLaunch {
        variant,
        grid: [(count as u32).div_ceil(4 * ew_fast::HOT_VECTORS * variant.threads), 1, 1],
        params: ew_fast::Params {
            count: count as u32,
            op,
            modes: modes | ew_fast::SAME << 4,
            o_at: 0,
            a_at: 0,
            b_at,
            c_at: 0,
            a_div: 1,
            a_mod: 1,
            b_div,
            b_mod,
            c_div: 1,
            c_mod: 1,
            s,
            t: 0.0,
        },
        buffers: ew_fast::Buffers { dst: write(Role::Y), a: read(Role::Y), b, c: unused(Role::Y) },
        flops: 2 * count,
        bytes,
        model: Model::Stream { bytes },
    });
    Ok(())
}
