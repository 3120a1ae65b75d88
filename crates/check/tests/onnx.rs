//! Shapes against torch's own, on files that torch.onnx wrote (weights stripped), and each rule by itself.

use prost::Message;
use std::path::{Path, PathBuf};
use wave32_check::infer::Given;
use wave32_check::layers::{Layer, layers};
use wave32_check::onnx::{
    self, Attribute, Dim, Dims, Graph, Model, Node, Tensor, TensorType, Type, ValueInfo, element,
};
use wave32_problem::{ConvProblem, ConvSpec, Epilogue, parse_lines};

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

/// The line without its bias: exporters fold a batch norm into one.
fn bare(layer: &Layer) -> String {
    let problem = layer.problem.as_ref().unwrap_or_else(|why| panic!("{}: {why}", layer.name));
    let spec = ConvSpec { epilogue: Epilogue::default(), ..problem.spec().clone() };
    ConvProblem::new(spec).unwrap().to_string()
}

#[test]
fn yolo_like_at_another_batch_and_size_has_torchs_shapes() {
    let text = std::fs::read_to_string(model("yolo_like_b2_480x352.txt")).unwrap();
    let mut right: Vec<String> = parse_lines(&text).unwrap().iter().map(ToString::to_string).collect();
    let given = Given { batch: Some(2), size: Some([480, 352]) };
    let graph = onnx::read(&model("yolo_like.onnx")).unwrap();
    let mut found: Vec<String> = layers(&graph, &given).iter().map(bare).collect();
    // Two branches meet: the exporter may write either first.
    right.sort();
    found.sort();
    assert_eq!(found, right);
}

#[test]
fn an_open_size_must_be_given() {
    let graph = onnx::read(&model("yolo_like.onnx")).unwrap();
    let found = layers(&graph, &Given::default());
    let why = found[0].problem.as_ref().unwrap_err();
    assert!(why.contains("height") && why.contains("--size"), "{why}");
    assert_eq!(found.len(), 12);
}

fn node(op: &str, inputs: &[&str], output: &str, attributes: &[(&str, &[i64])]) -> Node {
    let list = |(name, ints): &(&str, &[i64])| Attribute {
        name: name.to_string(),
        i: ints.first().copied().unwrap_or_default(),
        ints: ints.to_vec(),
        ..Attribute::default()
    };
    Node {
        inputs: inputs.iter().map(ToString::to_string).collect(),
        outputs: vec![output.to_string()],
        name: output.to_string(),
        op: op.to_string(),
        attributes: attributes.iter().map(list).collect(),
    }
}

fn weights(name: &str, dims: &[i64]) -> Tensor {
    Tensor { name: name.into(), dims: dims.to_vec(), dtype: element::FLOAT, ..Tensor::default() }
}

fn constant(name: &str, numbers: &[i64]) -> Tensor {
    let dims = vec![numbers.len() as i64];
    Tensor { name: name.into(), dims, dtype: element::INT64, int64s: numbers.to_vec(), ..Tensor::default() }
}

fn input(name: &str, dims: &[i64]) -> ValueInfo {
    let dims = dims.iter().map(|&v| Dim { value: Some(v), param: None }).collect();
    let tensor = TensorType { dtype: element::FLOAT, shape: Some(Dims { dims }) };
    ValueInfo { name: name.into(), ty: Some(Type { tensor: Some(tensor) }) }
}

/// A graph of nodes over an input `x`, ended by a 1x1 convolution to 5 channels of whatever `last` makes.
fn shape_of(
    dims: &[i64],
    nodes: Vec<Node>,
    constants: Vec<Tensor>,
    channels: i64,
) -> Result<[i64; 4], String> {
    let last = nodes.last().map_or("x".to_string(), |n| n.outputs[0].clone());
    let mut graph =
        Graph { inputs: vec![input("x", dims)], nodes, initializers: constants, ..Graph::default() };
    graph.initializers.push(weights("w", &[5, channels, 1, 1]));
    graph.nodes.push(node("Conv", &[&last, "w"], "end", &[]));
    // Through the file's bytes: reader and writer must agree too.
    let bytes = Model { producer: String::new(), graph: Some(graph) }.encode_to_vec();
    let graph = Model::decode(bytes.as_slice()).unwrap().graph.unwrap();
    let found = layers(&graph, &Given::default()).pop().unwrap();
    found.problem.map(|p| [p.spec().n, p.spec().c, p.spec().h, p.spec().w])
}

#[test]
fn each_rule_leads_to_the_next_convolutions_shape() {
    let x = [2, 8, 13, 10];
    let pool = [("kernel_shape", [3, 3].as_slice()), ("strides", &[2, 2]), ("pads", &[1, 1, 1, 1])];
    let ceil = [("kernel_shape", [2, 2].as_slice()), ("strides", &[2, 2]), ("ceil_mode", &[1])];
    let cases: Vec<(Vec<Node>, Vec<Tensor>, [i64; 4])> = vec![
        (vec![node("Relu", &["x"], "y", &[])], vec![], [2, 8, 13, 10]),
        (vec![node("MaxPool", &["x"], "y", &pool)], vec![], [2, 8, 7, 5]),
        (vec![node("MaxPool", &["x"], "y", &ceil)], vec![], [2, 8, 7, 5]),
        (vec![node("GlobalAveragePool", &["x"], "y", &[])], vec![], [2, 8, 1, 1]),
        (vec![node("Concat", &["x", "x"], "y", &[("axis", &[1])])], vec![], [2, 16, 13, 10]),
        (vec![node("Transpose", &["x"], "y", &[("perm", &[0, 3, 1, 2])])], vec![], [2, 10, 8, 13]),
        (vec![node("Reshape", &["x", "s"], "y", &[])], vec![constant("s", &[0, 4, -1, 10])], [2, 4, 26, 10]),
        (
            vec![node("Resize", &["x", "", "", "s"], "y", &[])],
            vec![constant("s", &[2, 8, 26, 30])],
            [2, 8, 26, 30],
        ),
        (
            vec![node("Pad", &["x", "p"], "y", &[])],
            vec![constant("p", &[0, 0, 1, 2, 0, 0, 3, 4])],
            [2, 8, 17, 16],
        ),
        (
            vec![node("Slice", &["x", "b", "e", "a", "t"], "y", &[])],
            vec![
                constant("b", &[1, -9]),
                constant("e", &[i64::MAX, -1]),
                constant("a", &[2, 3]),
                constant("t", &[2, 1]),
            ],
            [2, 8, 6, 8],
        ),
        (vec![node("SpaceToDepth", &["x"], "y", &[("blocksize", &[1])])], vec![], [2, 8, 13, 10]),
        (
            vec![node("ReduceMean", &["x"], "y", &[("axes", &[2, 3]), ("keepdims", &[1])])],
            vec![],
            [2, 8, 1, 1],
        ),
        (
            vec![node("GlobalMaxPool", &["x"], "g", &[]), node("Mul", &["g", "x"], "y", &[])],
            vec![],
            [2, 8, 13, 10],
        ),
        (
            vec![
                node("Shape", &["x"], "all", &[]),
                node("Gather", &["all", "zero"], "n", &[]),
                node("Concat", &["n", "rest"], "s", &[("axis", &[0])]),
                node("Reshape", &["x", "s"], "y", &[]),
            ],
            vec![constant("zero", &[0]), constant("rest", &[2, 4, -1])],
            [2, 2, 4, 130],
        ),
        (
            vec![node(
                "ConvTranspose",
                &["x", "t"],
                "y",
                &[("strides", &[2, 2]), ("output_padding", &[1, 0])],
            )],
            vec![weights("t", &[8, 6, 3, 3])],
            [2, 6, 28, 21],
        ),
        (
            vec![node("Flatten", &["x"], "f", &[]), node("Reshape", &["f", "s"], "y", &[])],
            vec![constant("s", &[2, 8, 13, 10])],
            [2, 8, 13, 10],
        ),
    ];
    for (nodes, constants, right) in cases {
        let ops: Vec<String> = nodes.iter().map(|n| n.op.clone()).collect();
        assert_eq!(shape_of(&x, nodes, constants, right[1]), Ok(right), "{ops:?}");
    }
}

#[test]
fn what_has_no_rule_says_so_and_the_exporters_shape_helps() {
    let odd = || vec![node("NonMaxSuppression", &["x"], "y", &[])];
    let why = shape_of(&[1, 8, 4, 4], odd(), vec![], 8).unwrap_err();
    assert!(why.contains("NonMaxSuppression"), "{why}");
    let mut graph = Graph { inputs: vec![input("x", &[1, 8, 4, 4])], nodes: odd(), ..Graph::default() };
    graph.initializers.push(weights("w", &[5, 8, 1, 1]));
    graph.nodes.push(node("Conv", &["y", "w"], "end", &[]));
    graph.values.push(input("y", &[1, 8, 3, 2]));
    let sizes = |given: &Given| {
        let layer = layers(&graph, given).pop().unwrap();
        layer.problem.map(|p| [p.spec().n, p.spec().h, p.spec().w])
    };
    assert_eq!(sizes(&Given::default()), Ok([1, 3, 2]));
    assert_eq!(sizes(&Given { batch: Some(4), size: None }), Ok([4, 3, 2]));
    assert!(
        sizes(&Given { batch: None, size: Some([8, 8]) }).is_err(),
        "the exporter's shape is for another size"
    );
}

#[test]
fn uneven_and_automatic_padding() {
    let conv = |attributes: &[(&str, &[i64])], auto: Option<&'static str>| {
        let mut graph = Graph { inputs: vec![input("x", &[1, 3, 10, 11])], ..Graph::default() };
        graph.initializers.push(weights("w", &[4, 3, 3, 3]));
        let mut conv = node("Conv", &["x", "w"], "y", attributes);
        conv.attributes.extend(auto.map(|text| Attribute {
            name: "auto_pad".into(),
            s: bytes::Bytes::from_static(text.as_bytes()),
            ..Attribute::default()
        }));
        graph.nodes.push(conv);
        layers(&graph, &Given::default()).pop().unwrap()
    };
    // A TensorFlow export: stride 2 pads at the end only.
    let layer = conv(&[("strides", &[2, 2])], Some("SAME_UPPER"));
    let p = layer.problem.unwrap();
    assert_eq!((layer.uneven, [p.out_h(), p.out_w()]), (Some([0, 1, 1, 1]), [5, 6]));
    assert_eq!((p.spec().pad, [p.spec().h, p.spec().w]), ([0, 1], [11, 11]));
    let layer = conv(&[("pads", &[1, 1, 1, 1])], None);
    assert_eq!((layer.uneven, layer.problem.unwrap().out_h()), (None, 10));
}

#[test]
fn files_that_are_no_models() {
    let folder = std::env::temp_dir().join(format!("wave32-check-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("x.onnx");
    for (bytes, wanted) in
        [(&b"\xff\xff\xff\xff"[..], "no ONNX file"), (&b""[..], "no graph"), (&b"\x3a\x00"[..], "empty")]
    {
        std::fs::write(&path, bytes).unwrap();
        let text = onnx::read(&path).unwrap_err().to_string();
        assert!(text.contains(wanted), "{text}");
    }
    assert!(onnx::read(&folder.join("none.onnx")).unwrap_err().to_string().contains("cannot read"));
    // Every prefix of a model is an error or a model, never a panic.
    let whole = std::fs::read(model("yolo_like.onnx")).unwrap();
    for end in (0..whole.len()).step_by(37) {
        std::fs::write(&path, &whole[..end]).unwrap();
        if let Ok(graph) = onnx::read(&path) {
            layers(&graph, &Given { batch: None, size: Some([64, 64]) });
        }
    }
}
