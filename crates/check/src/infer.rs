//! Shapes of a graph's values, from its inputs on.

use crate::onnx::{Graph, Node, ValueInfo, element};
use crate::rules;
use std::collections::HashMap;

/// Sizes that the file leaves open, or that the user wants otherwise.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Images: the first size of inputs with four.
    pub batch: Option<i64>,
    /// Height and width of inputs with four sizes.
    pub size: Option<[i64; 2]>,
}

/// What is known of a value, or why nothing is.
pub type Shape = Result<Vec<i64>, String>;

/// Everything known of a graph's values.
#[derive(Debug, Default)]
pub struct Values {
    shapes: HashMap<String, Shape>,
    /// Values whose few numbers are known: sizes, axes, scales.
    numbers: HashMap<String, Vec<f64>>,
    dtypes: HashMap<String, i32>,
}

impl Values {
    /// The shape of a node's operand.
    ///
    /// # Errors
    /// Why the shape is not known, in one line.
    pub fn shape(&self, node: &Node, index: usize) -> Shape {
        let name = node.input(index).ok_or_else(|| format!("{} has no operand {index}", node.op))?;
        self.shapes.get(name).cloned().unwrap_or_else(|| Err(format!("nothing makes `{name}`")))
    }

    /// The numbers of a node's operand, where known.
    pub fn numbers(&self, node: &Node, index: usize) -> Option<&[f64]> {
        self.numbers.get(node.input(index)?).map(Vec::as_slice)
    }

    /// As [`numbers`](Self::numbers), as integers.
    pub fn integers(&self, node: &Node, index: usize) -> Option<Vec<i64>> {
        self.numbers(node, index).map(|list| list.iter().map(|&v| v as i64).collect())
    }

    /// The element type of a node's operand, where known.
    pub fn dtype(&self, node: &Node, index: usize) -> Option<i32> {
        self.dtypes.get(node.input(index)?).copied()
    }
}

/// Walks the graph; `visit` sees each node with what is known of its operands.
pub fn walk(graph: &Graph, given: &Given, mut visit: impl FnMut(&Node, &Values)) {
    let mut values = Values::default();
    for tensor in &graph.initializers {
        values.shapes.insert(tensor.name.clone(), Ok(tensor.dims.clone()));
        values.dtypes.insert(tensor.name.clone(), tensor.dtype);
        if let Some(numbers) = tensor.numbers() {
            values.numbers.insert(tensor.name.clone(), numbers);
        }
    }
    let mut batches: Vec<(i64, i64)> = Vec::new();
    for input in &graph.inputs {
        if values.shapes.contains_key(&input.name) {
            continue;
        }
        let (shape, was) = input_shape(input, given);
        if let (Some(old), Ok(new)) = (was, &shape) {
            batches.extend(new.first().map(|&new| (old, new)));
        }
        values.shapes.insert(input.name.clone(), shape);
        values.dtypes.extend(dtype_of(input).map(|dtype| (input.name.clone(), dtype)));
    }
    // The exporter's own shapes, where a rule is missing: of use only as long as nothing was changed but the batch.
    let told: HashMap<&str, &ValueInfo> =
        graph.values.iter().chain(&graph.outputs).map(|v| (v.name.as_str(), v)).collect();
    for node in &graph.nodes {
        visit(node, &values);
        let ruled = rules::apply(node, &values);
        for (index, name) in node.outputs.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let shape = match &ruled {
                Ok(shapes) => shapes
                    .get(index)
                    .cloned()
                    .unwrap_or_else(|| Err(format!("{} says nothing of its result {index}", node.op))),
                Err(why) => Err(why.clone()),
            };
            let info = told.get(name.as_str()).copied();
            let known =
                |why| info.filter(|_| given.size.is_none()).and_then(|i| fixed(i, &batches)).ok_or(why);
            values.shapes.insert(name.clone(), shape.or_else(known));
            let dtype = rules::dtype(node, &values).or_else(|| info.and_then(dtype_of));
            values.dtypes.extend(dtype.map(|dtype| (name.clone(), dtype)));
        }
        if let (Some(numbers), Some(name)) = (rules::numbers(node, &values), node.outputs.first()) {
            values.numbers.insert(name.clone(), numbers);
        }
    }
}

fn dtype_of(info: &ValueInfo) -> Option<i32> {
    Some(info.ty.as_ref()?.tensor.as_ref()?.dtype)
}

/// An input's shape with what was given, and the batch that the file had in it.
fn input_shape(input: &ValueInfo, given: &Given) -> (Shape, Option<i64>) {
    let dims = input.ty.as_ref().and_then(|t| t.tensor.as_ref()?.shape.as_ref()).map(|s| &s.dims);
    let Some(dims) = dims else {
        return (Err(format!("the file leaves the shape of its input `{}` open", input.name)), None);
    };
    let image = dims.len() == 4;
    let mut shape = Vec::new();
    for (axis, dim) in dims.iter().enumerate() {
        let wanted = match (image, axis) {
            (true, 0) => given.batch,
            (true, 2 | 3) => given.size.map(|size| size[axis - 2]),
            _ => None,
        };
        let stated = dim.value.filter(|&v| v > 0);
        let open = if axis == 0 { Some(1) } else { None };
        match wanted.or(stated).or(open) {
            Some(value) => shape.push(value),
            None => {
                let name = dim.param.clone().unwrap_or_else(|| "?".into());
                let text = format!(
                    "the file leaves size {axis} (`{name}`) of its input `{}` open; give --size HxW",
                    input.name
                );
                return (Err(text), None);
            }
        }
    }
    (Ok(shape), dims.first().and_then(|d| d.value).filter(|_| image))
}

/// A shape that the exporter wrote down, with the batch as it is now.
fn fixed(info: &ValueInfo, batches: &[(i64, i64)]) -> Option<Vec<i64>> {
    let dims = &info.ty.as_ref()?.tensor.as_ref()?.shape.as_ref()?.dims;
    let mut shape = dims.iter().map(|d| d.value).collect::<Option<Vec<i64>>>()?;
    if let Some(first) = shape.first_mut()
        && let Some((_, new)) = batches.iter().find(|(old, new)| *old == *first && old != new)
    {
        *first = *new;
    }
    Some(shape)
}

/// True where the element type is a float that convolutions here take.
pub fn is_float(dtype: i32) -> bool {
    [element::FLOAT, element::FLOAT16, element::BFLOAT16].contains(&dtype)
}
