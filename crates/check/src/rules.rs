//! What each operator does to shapes: <https://onnx.ai/onnx/operators/>.

use crate::infer::{Shape, Values};
use crate::onnx::{Node, element};

/// Operators whose first result has the shape of their first operand.
const SAME: &[&str] = &[
    "Abs",
    "BatchNormalization",
    "Cast",
    "Ceil",
    "Celu",
    "Clip",
    "CumSum",
    "DequantizeLinear",
    "Dropout",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "InstanceNormalization",
    "LRN",
    "LayerNormalization",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "Mish",
    "Neg",
    "Not",
    "PRelu",
    "QuantizeLinear",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Cos",
    "Softmax",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Swish",
    "Tanh",
    "ThresholdedRelu",
    "Trilu",
];

/// Operators whose result has the shape that their operands broadcast to.
const BROADCAST: &[&str] = &[
    "Add",
    "And",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Mean",
    "Min",
    "Mod",
    "Mul",
    "Or",
    "Pow",
    "Sub",
    "Sum",
    "Where",
];

/// The shapes of a node's results.
///
/// # Errors
/// Why none is known: an operand's is not, or there is no rule for the operator.
pub fn apply(node: &Node, values: &Values) -> Result<Vec<Shape>, String> {
    let op = node.op.as_str();
    let one = |shape: Vec<i64>| Ok(vec![Ok(shape)]);
    if SAME.contains(&op) {
        return Ok(vec![values.shape(node, 0)]);
    }
    if BROADCAST.contains(&op) {
        let first = values.shape(node, 0)?;
        return one((1..node.inputs.len()).try_fold(first, |a, i| broadcast(&a, &values.shape(node, i)?))?);
    }
    match op {
        "Conv" | "FusedConv" | "ConvTranspose" => one(convolution(node, values)?),
        "MaxPool" | "AveragePool" | "LpPool" => {
            let x = values.shape(node, 0)?;
            if x.len() < 3 {
                return Err(format!("{op} of {} sizes", x.len()));
            }
            let kernel = node.ints("kernel_shape").ok_or("a pooling without kernel_shape")?.to_vec();
            let w = window(node, &x[2..], &kernel, false)?;
            one([&x[..2], w.outputs.as_slice()].concat())
        }
        "GlobalAveragePool" | "GlobalMaxPool" => {
            let x = values.shape(node, 0)?;
            one(x.iter().enumerate().map(|(axis, &v)| if axis < 2 { v } else { 1 }).collect())
        }
        "Concat" => {
            let shapes: Vec<Vec<i64>> =
                (0..node.inputs.len()).map(|i| values.shape(node, i)).collect::<Result<_, _>>()?;
            let mut shape = shapes.first().cloned().ok_or("Concat of nothing")?;
            let axis = axis(node.int("axis", 0), shape.len())?;
            shape[axis] =
                shapes.iter().map(|s| s.get(axis).copied().unwrap_or(0)).fold(0, i64::saturating_add);
            one(shape)
        }
        "Split" => split(node, values),
        "Flatten" => {
            let x = values.shape(node, 0)?;
            let at = axis(node.int("axis", 1), x.len() + 1)?;
            one(vec![product(&x[..at]), product(&x[at..])])
        }
        "Reshape" => one(reshape(&values.shape(node, 0)?, &sizes(node, values, 1)?)?),
        "Transpose" => {
            let x = values.shape(node, 0)?;
            let backwards: Vec<i64> = (0..x.len() as i64).rev().collect();
            let perm = node.ints("perm").unwrap_or(&backwards);
            let at = |&p: &i64| usize::try_from(p).ok().and_then(|p| x.get(p)).copied();
            one(perm
                .iter()
                .map(at)
                .collect::<Option<_>>()
                .ok_or("Transpose names an axis that is not there")?)
        }
        "Squeeze" => {
            let x = values.shape(node, 0)?;
            let axes = axes(node, values, x.len())?;
            let gone = |i: usize| axes.as_ref().map_or(x[i] == 1, |axes| axes.contains(&i));
            one((0..x.len()).filter(|&i| !gone(i)).map(|i| x[i]).collect())
        }
        "Unsqueeze" => {
            let mut x = values.shape(node, 0)?;
            let count = node
                .ints("axes")
                .map_or_else(|| values.integers(node, 1).map_or(0, |v| v.len()), <[i64]>::len);
            let mut new = axes(node, values, x.len() + count)?.ok_or("Unsqueeze without axes")?;
            new.sort_unstable();
            for at in new {
                x.insert(at.min(x.len()), 1);
            }
            one(x)
        }
        "Resize" | "Upsample" => one(resize(node, values)?),
        "Pad" => {
            let x = values.shape(node, 0)?;
            let pads = match node.ints("pads") {
                Some(pads) => pads.to_vec(),
                None => sizes(node, values, 1)?,
            };
            if pads.len() != 2 * x.len() {
                return Err("Pad with axes of its own is not followed".into());
            }
            one((0..x.len())
                .map(|i| x[i].saturating_add(pads[i]).saturating_add(pads[i + x.len()]))
                .collect())
        }
        "Slice" => one(slice(node, values)?),
        "DepthToSpace" | "SpaceToDepth" => {
            let (x, b) = (values.shape(node, 0)?, node.int("blocksize", 1).clamp(1, 1 << 15));
            let [n, c, h, w] = <[i64; 4]>::try_from(x).map_err(|_| format!("{op} takes four sizes"))?;
            one(if op == "DepthToSpace" {
                vec![n, c / (b * b), h.saturating_mul(b), w.saturating_mul(b)]
            } else {
                vec![n, c.saturating_mul(b * b), h / b, w / b]
            })
        }
        _ if op.starts_with("Reduce") => {
            let x = values.shape(node, 0)?;
            let axes = axes(node, values, x.len())?.unwrap_or_else(|| (0..x.len()).collect());
            let keep = node.int("keepdims", 1) != 0;
            let size = |i: usize| if axes.contains(&i) { keep.then_some(1) } else { Some(x[i]) };
            one((0..x.len()).filter_map(size).collect())
        }
        "MatMul" => one(matmul(&values.shape(node, 0)?, &values.shape(node, 1)?)?),
        "Gemm" => {
            let side = |index, flag, axis: usize| -> Result<i64, String> {
                let shape = values.shape(node, index)?;
                let at = if node.int(flag, 0) != 0 { 1 - axis } else { axis };
                shape.get(at).copied().ok_or_else(|| "Gemm of no matrix".into())
            };
            one(vec![side(0, "transA", 0)?, side(1, "transB", 1)?])
        }
        "Shape" => one(vec![values.shape(node, 0)?.len() as i64]),
        "Constant" => match node.attributes.first() {
            Some(a) => one(a.t.as_ref().map_or_else(
                || if a.ints.is_empty() { Vec::new() } else { vec![a.ints.len() as i64] },
                |t| t.dims.clone(),
            )),
            None => Err("a Constant without a value".into()),
        },
        "ConstantOfShape" => one(sizes(node, values, 0)?),
        "Expand" => one(broadcast(&values.shape(node, 0)?, &sizes(node, values, 1)?)?),
        "Gather" => {
            let (x, index) = (values.shape(node, 0)?, values.shape(node, 1)?);
            let at = axis(node.int("axis", 0), x.len())?;
            one([&x[..at], &index, &x[at + 1..]].concat())
        }
        _ => Err(format!("there is no shape rule for the operator {op}")),
    }
}

/// The element type of a node's first result, where it is simple.
pub fn dtype(node: &Node, values: &Values) -> Option<i32> {
    match node.op.as_str() {
        "Cast" => i32::try_from(node.int("to", 0)).ok().filter(|&v| v > 0),
        "Shape" => Some(element::INT64),
        "Constant" => node.attributes.first()?.t.as_ref().map(|t| t.dtype),
        "Where" => values.dtype(node, 1),
        _ => values.dtype(node, 0),
    }
}

/// The numbers of a node's first result, where they follow from shapes and constants.
pub fn numbers(node: &Node, values: &Values) -> Option<Vec<f64>> {
    let of = |index| values.numbers(node, index);
    let both = |f: fn(f64, f64) -> f64| {
        let (a, b) = (of(0)?, of(1)?);
        let count = a.len().max(b.len());
        let fits = |v: &[f64]| v.len() == count || v.len() == 1;
        let at = |v: &[f64], i: usize| v[i % v.len()];
        (fits(a) && fits(b) && count > 0).then(|| (0..count).map(|i| f(at(a, i), at(b, i))).collect())
    };
    match node.op.as_str() {
        "Constant" => {
            let value = node.attributes.first()?;
            let list = || value.ints.iter().map(|&v| v as f64).collect::<Vec<f64>>();
            match (&value.t, value.name.as_str()) {
                (Some(tensor), _) => tensor.numbers(),
                (None, "value_ints") => Some(list()),
                (None, "value_int") => Some(vec![value.i as f64]),
                (None, "value_floats") => Some(value.floats.iter().map(|&v| f64::from(v)).collect()),
                _ => None,
            }
        }
        "Shape" => {
            let shape: Vec<f64> = values.shape(node, 0).ok()?.iter().map(|&v| v as f64).collect();
            let at = |v: i64| {
                (if v < 0 { v + shape.len() as i64 } else { v }).clamp(0, shape.len() as i64) as usize
            };
            let (start, end) = (at(node.int("start", 0)), at(node.int("end", shape.len() as i64)));
            shape.get(start..end).map(<[f64]>::to_vec)
        }
        "Cast" | "Identity" | "Unsqueeze" | "Squeeze" => Some(of(0)?.to_vec()),
        "Floor" => Some(of(0)?.iter().map(|v| v.floor()).collect()),
        "Ceil" => Some(of(0)?.iter().map(|v| v.ceil()).collect()),
        "Concat" => {
            let lists: Option<Vec<&[f64]>> = (0..node.inputs.len()).map(of).collect();
            Some(lists?.concat())
        }
        "Gather" => {
            let (list, index) = (of(0)?, of(1)?);
            let at = |&i: &f64| list.get(if i < 0.0 { list.len() as f64 + i } else { i } as usize).copied();
            index.iter().map(at).collect()
        }
        "Slice" => {
            let shape = slice(node, values).ok()?;
            let (list, start) = (of(0)?, *values.integers(node, 1)?.first()?);
            let start = (if start < 0 { start + list.len() as i64 } else { start })
                .clamp(0, list.len() as i64) as usize;
            let step = values.integers(node, 4).and_then(|v| v.first().copied()).unwrap_or(1);
            (step == 1 && shape.len() == 1)
                .then(|| list.get(start..start + shape[0] as usize).map(<[f64]>::to_vec))?
        }
        "Add" => both(|a, b| a + b),
        "Sub" => both(|a, b| a - b),
        "Mul" => both(|a, b| a * b),
        // Of integers, as sizes are.
        "Div" if values.dtype(node, 0) != Some(element::FLOAT) => both(|a, b| (a / b).trunc()),
        "Div" => both(|a, b| a / b),
        _ => None,
    }
}

/// The numbers of an operand, as sizes.
fn sizes(node: &Node, values: &Values, index: usize) -> Result<Vec<i64>, String> {
    let unknown = || format!("{} by sizes that are only known when it runs", node.op);
    values.integers(node, index).ok_or_else(unknown)
}

/// An axis, counted from the end where negative.
fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let at = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(at).ok().filter(|&at| at < rank).ok_or_else(|| format!("axis {axis} of {rank} sizes"))
}

/// The axes that a node names in an attribute or, in newer files, an operand.
fn axes(node: &Node, values: &Values, rank: usize) -> Result<Option<Vec<usize>>, String> {
    let given = match node.ints("axes") {
        Some(axes) => Some(axes.to_vec()),
        None if node.input(1).is_some() => Some(sizes(node, values, 1)?),
        None => None,
    };
    given.map(|list| list.into_iter().map(|a| axis(a, rank)).collect()).transpose()
}

/// Largest size that is followed, so that sums and products of two stay far below 2^63.
const LARGEST: i64 = 1 << 30;

/// The product; the largest number there is where it does not fit.
fn product(sizes: &[i64]) -> i64 {
    sizes.iter().copied().fold(1, i64::saturating_mul)
}

fn broadcast(a: &[i64], b: &[i64]) -> Result<Vec<i64>, String> {
    let rank = a.len().max(b.len());
    let at = |v: &[i64], i: usize| (i + v.len()).checked_sub(rank).map_or(1, |i| v[i]);
    let size = |i| match (at(a, i), at(b, i)) {
        (1, y) => Ok(y),
        (x, 1) => Ok(x),
        (x, y) if x == y => Ok(x),
        _ => Err(format!("{a:?} and {b:?} do not broadcast")),
    };
    (0..rank).map(size).collect()
}

fn reshape(x: &[i64], wanted: &[i64]) -> Result<Vec<i64>, String> {
    let total = product(x);
    let mut shape: Vec<i64> = wanted
        .iter()
        .enumerate()
        .map(|(i, &v)| if v == 0 { x.get(i).copied().unwrap_or(0) } else { v })
        .collect();
    let rest = product(&shape.iter().copied().filter(|&v| v != -1).collect::<Vec<i64>>());
    for v in shape.iter_mut().filter(|v| **v == -1) {
        *v = if rest > 0 { total / rest } else { 0 };
    }
    let fits = product(&shape) == total;
    if fits { Ok(shape) } else { Err(format!("{x:?} does not reshape to {wanted:?}")) }
}

fn matmul(a: &[i64], b: &[i64]) -> Result<Vec<i64>, String> {
    let ([lead_a @ .., m, _], [lead_b @ .., _, n]) = (a, b) else {
        return Err("MatMul of vectors is not followed".into());
    };
    let mut shape = broadcast(lead_a, lead_b)?;
    shape.extend([*m, *n]);
    Ok(shape)
}

fn split(node: &Node, values: &Values) -> Result<Vec<Shape>, String> {
    let x = values.shape(node, 0)?;
    let at = axis(node.int("axis", 0), x.len())?;
    let parts = match (node.ints("split"), node.input(1)) {
        (Some(parts), _) => parts.to_vec(),
        (None, Some(_)) => sizes(node, values, 1)?,
        (None, None) => {
            let count = node.outputs.len().max(1) as i64;
            let size = x[at].saturating_add(count - 1) / count;
            (0..count).map(|i| size.min(x[at] - i * size)).collect()
        }
    };
    let part = |size| {
        let mut shape = x.clone();
        shape[at] = size;
        Ok(shape)
    };
    Ok(parts.into_iter().map(part).collect())
}

fn resize(node: &Node, values: &Values) -> Result<Vec<i64>, String> {
    let x = values.shape(node, 0)?;
    let scales_at = if node.op == "Upsample" || node.inputs.len() == 2 { 1 } else { 2 };
    let scales = match node.attribute("scales") {
        Some(a) => Some(a.floats.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>()),
        None => values.numbers(node, scales_at).map(<[f64]>::to_vec),
    };
    if let Some(sizes) = values.integers(node, 3).filter(|s| s.len() == x.len()) {
        return Ok(sizes);
    }
    let scales = scales.filter(|s| s.len() == x.len());
    let scales = scales.ok_or_else(|| format!("{} by sizes that are only known when it runs", node.op))?;
    Ok(x.iter().zip(&scales).map(|(&v, s)| (v as f64 * s).floor() as i64).collect())
}

fn slice(node: &Node, values: &Values) -> Result<Vec<i64>, String> {
    let mut x = values.shape(node, 0)?;
    let list = |name: &str, index| match node.ints(name) {
        Some(list) => Ok(list.to_vec()),
        None => sizes(node, values, index),
    };
    let (starts, ends) = (list("starts", 1)?, list("ends", 2)?);
    let all: Vec<i64> = (0..starts.len() as i64).collect();
    let axes = if node.ints("axes").is_some() || node.input(3).is_some() { list("axes", 3)? } else { all };
    let steps = values.integers(node, 4).unwrap_or_else(|| vec![1; starts.len()]);
    for (((&start, &end), &at), &step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let at = axis(at, x.len())?;
        let (size, step) = (x[at], step.clamp(-LARGEST, LARGEST));
        let place =
            |v: i64, low: i64, high: i64| (if v < 0 { v.saturating_add(size) } else { v }).clamp(low, high);
        x[at] = match step {
            0 => return Err("Slice with steps of 0".into()),
            1.. => (place(end, 0, size) - place(start, 0, size) + step - 1).div_euclid(step).max(0),
            _ => (place(start, 0, size - 1) - place(end, -1, size - 1) - step - 1).div_euclid(-step).max(0),
        };
    }
    Ok(x)
}

fn convolution(node: &Node, values: &Values) -> Result<Vec<i64>, String> {
    let (x, w) = (values.shape(node, 0)?, values.shape(node, 1)?);
    if x.len() < 3 || x.len() != w.len() {
        return Err(format!("{} of {} sizes by {} sizes", node.op, x.len(), w.len()));
    }
    let transposed = node.op == "ConvTranspose";
    let window = window(node, &x[2..], &w[2..], transposed)?;
    let channels = if transposed { w[1].saturating_mul(node.int("group", 1)) } else { w[0] };
    Ok([&[x[0], channels], window.outputs.as_slice()].concat())
}

/// A sliding window over the spatial sizes.
#[derive(Debug)]
pub struct Window {
    /// Steps.
    pub strides: Vec<i64>,
    /// Distances between taps.
    pub dilations: Vec<i64>,
    /// Padding: all begins, then all ends.
    pub pads: Vec<i64>,
    /// Sizes of the result.
    pub outputs: Vec<i64>,
}

/// The window of a convolution or pooling over spatial sizes `x` with a kernel `k`.
///
/// # Errors
/// The lists have different lengths, or a step is below 1.
pub fn window(node: &Node, x: &[i64], k: &[i64], transposed: bool) -> Result<Window, String> {
    let rank = x.len();
    let list = |name: &str, missing: i64, count: usize| {
        let list = node.ints(name).map_or(vec![missing; count], <[i64]>::to_vec);
        if list.len() == count { Ok(list) } else { Err(format!("{} with {} {name}", node.op, list.len())) }
    };
    let (strides, dilations) = (list("strides", 1, rank)?, list("dilations", 1, rank)?);
    if k.len() != rank || strides.iter().chain(&dilations).any(|&v| v < 1) {
        return Err(format!("{} with a kernel, strides or dilations that do not fit", node.op));
    }
    let mut pads = list("pads", 0, 2 * rank)?;
    let extra = list("output_padding", 0, rank)?;
    let (auto, ceil) = (node.text("auto_pad"), node.int("ceil_mode", 0) != 0);
    let all = x.iter().chain(k).chain(&strides).chain(&dilations).chain(&pads).chain(&extra);
    if all.into_iter().any(|v| v.unsigned_abs() > LARGEST.unsigned_abs()) {
        return Err(format!("{} with sizes that no memory holds", node.op));
    }
    let mut outputs = Vec::new();
    for i in 0..rank {
        let span = (k[i] - 1) * dilations[i] + 1;
        if let Some(upper) = match auto.as_str() {
            "SAME_UPPER" => Some(true),
            "SAME_LOWER" => Some(false),
            _ => None,
        } {
            // So that the result is the input over (transposed: times) the stride.
            let total = if transposed {
                span - strides[i] + extra[i]
            } else {
                ((x[i] + strides[i] - 1) / strides[i] - 1) * strides[i] + span - x[i]
            };
            let (small, large) = (total.max(0) / 2, (total.max(0) + 1) / 2);
            (pads[i], pads[rank + i]) = if upper { (small, large) } else { (large, small) };
        }
        let pad = pads[i] + pads[rank + i];
        outputs.push(if transposed {
            (x[i] - 1) * strides[i] + span + extra[i] - pad
        } else {
            let room = x[i] + pad - span;
            let up = if ceil { strides[i] - 1 } else { 0 };
            let mut count = (room + up).div_euclid(strides[i]) + 1;
            // A window that would start in the padding behind the image is left out.
            if ceil && (count - 1) * strides[i] >= x[i] + pads[i] {
                count -= 1;
            }
            count
        });
    }
    if outputs.iter().any(|&v| v < 1) {
        return Err(format!("{}: a kernel of {k:?} does not fit into {x:?}", node.op));
    }
    Ok(Window { strides, dilations, pads, outputs })
}
