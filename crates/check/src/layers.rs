//! The convolutions of a network as problems.

use crate::infer::{Given, Values, walk};
use crate::onnx::{Graph, Node, element};
use crate::rules::{Window, window};
use wave32_problem::{ConvProblem, ConvSpec, DType, Epilogue};

/// One convolution of a network.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Its name in the file, or its place.
    pub name: String,
    /// The forward pass, or why its shape is not known or cannot be said.
    pub problem: Result<ConvProblem, String>,
    /// Padding that differs from side to side, which is then part of the input's size: top, left, bottom, right.
    pub uneven: Option<[i64; 4]>,
}

/// The convolutions of a graph, in its order.
pub fn layers(graph: &Graph, given: &Given) -> Vec<Layer> {
    let mut found: Vec<Layer> = Vec::new();
    walk(graph, given, |node, values| {
        let transposed = match node.op.as_str() {
            "Conv" | "FusedConv" => false,
            "ConvTranspose" => true,
            "ConvInteger" | "QLinearConv" => {
                let why = "8-bit integer convolutions are not supported; export the network in f32 or f16";
                found.push(Layer { name: name(node, found.len()), problem: Err(why.into()), uneven: None });
                return;
            }
            _ => return,
        };
        let mut uneven = None;
        let problem = problem(node, values, transposed, &mut uneven);
        found.push(Layer { name: name(node, found.len()), problem, uneven });
    });
    found
}

fn name(node: &Node, index: usize) -> String {
    match (node.name.as_str(), node.outputs.first()) {
        ("", Some(output)) if !output.is_empty() => output.clone(),
        ("", _) => format!("convolution {}", index + 1),
        (name, _) => name.to_string(),
    }
}

fn problem(
    node: &Node,
    values: &Values,
    transposed: bool,
    uneven: &mut Option<[i64; 4]>,
) -> Result<ConvProblem, String> {
    let (x, w) = (values.shape(node, 0)?, values.shape(node, 1)?);
    let dtype = match values.dtype(node, 0).or_else(|| values.dtype(node, 1)) {
        Some(element::FLOAT) => DType::F32,
        Some(element::FLOAT16) => DType::F16,
        Some(element::BFLOAT16) => DType::BF16,
        Some(other) => {
            return Err(format!("element type {other} of ONNX is not supported: f32, f16, bf16 are"));
        }
        None => return Err("the file does not say its element type".into()),
    };
    // One dimension is two, of height 1.
    let flat = x.len() == 3 && w.len() == 3;
    let two = |mut v: Vec<i64>| {
        if flat {
            v.insert(2, 1);
        }
        v
    };
    let (Ok([n, c, mut h, mut wd]), Ok([w0, w1, r, s])) =
        (<[i64; 4]>::try_from(two(x.clone())), <[i64; 4]>::try_from(two(w.clone())))
    else {
        return Err(format!(
            "{} with an input of {} sizes is not supported: 1-D and 2-D are",
            node.op,
            x.len()
        ));
    };
    let groups = node.int("group", 1);
    let Window { strides, dilations, pads, .. } = window(node, &x[2..], &w[2..], transposed)?;
    let pair = |v: &[i64], missing: i64| if flat { [missing, v[0]] } else { [v[0], v[1]] };
    let half = strides.len();
    let [top, left] = pair(&pads[..half], 0);
    let [bottom, right] = pair(&pads[half..], 0);
    let mut output_pad = node.ints("output_padding").map_or([0, 0], |v| pair(v, 0));
    let mut pad = [top, left];
    if [top, left] != [bottom, right] {
        *uneven = Some([top, left, bottom, right]);
        if transposed {
            // Cropping less at the end is output padding; the other way round nothing here can say.
            output_pad = [output_pad[0] + top - bottom, output_pad[1] + left - right];
        } else {
            // The smaller side is the padding, the rest of the larger one is part of the input.
            pad = [top.min(bottom), left.min(right)];
            h += (top - bottom).abs();
            wd += (left - right).abs();
        }
    }
    let k = if transposed { w1.saturating_mul(groups) } else { w0 };
    let input = if transposed { w0 } else { w1.saturating_mul(groups) };
    if input != c {
        return Err(format!("its weights are for {input} input channels and the shapes before lead to {c}"));
    }
    let spec = ConvSpec {
        dtype,
        n,
        c,
        h,
        w: wd,
        k,
        r,
        s,
        stride: pair(&strides, 1),
        pad,
        dilation: pair(&dilations, 1),
        groups,
        transposed,
        output_pad,
        epilogue: Epilogue { bias: node.input(2).is_some(), ..Epilogue::default() },
        ..ConvSpec::default()
    };
    ConvProblem::new(spec).map_err(|e| e.to_string())
}
