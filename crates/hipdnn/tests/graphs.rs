//! Which graphs are taken, and that what is not, broken ones too, is refused with a reason. Needs no card.

mod common;

use common::reference::{BIAS, Behind, Case, Lies, PASSES, Pass, TYPES, Type, W, X, Y};
use common::seed;
use common::write::{ADD, BACKWARD_DATA, Graph, HALF, Node, Pointwise, RELU, Tensor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wave32_hipdnn::graph::Pattern;
use wave32_miopen::solutions::Solutions;
use wave32_ops::{ConvChain, Planner};
use wave32_problem::Activation;
use wave32_solve::{DeviceCaps, usual_boards};

fn random() -> StdRng {
    StdRng::seed_from_u64(seed())
}

/// Bytes that begin at a multiple of 8, as the plugin's calls give them.
fn aligned<T>(bytes: &[u8], read: impl FnOnce(&[u8]) -> T) -> T {
    let mut words = vec![0u64; bytes.len().div_ceil(8) + 1];
    // SAFETY: as many bytes as the words have.
    let place = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), words.len() * 8) };
    place[..bytes.len()].copy_from_slice(bytes);
    read(&place[..bytes.len()])
}

fn read(graph: &Graph) -> Result<Pattern, String> {
    aligned(&graph.bytes(), Pattern::read)
}

/// A bias and a ReLU behind a forward pass.
fn fused(random: &mut StdRng) -> Case {
    let case = Case::random(random, Pass::Forward, Type::F16, Lies::Nchw);
    Case { behind: Behind { bias: true, activation: Some((RELU, vec![])) }, ..case }
}

#[test]
fn a_convolution_is_read_as_it_was_written() {
    let random = &mut random();
    for round in 0..200 {
        let (pass, dtype) = (PASSES[round % 3], TYPES[round / 3 % 3]);
        let lies = if random.random() { Lies::Nhwc } else { Lies::Nchw };
        let case = Case::random(random, pass, dtype, lies);
        let pattern = read(&case.graph()).unwrap_or_else(|why| panic!("{why}: {case:?}"));
        assert_eq!(pattern.uids, [X, W, Y]);
        assert_eq!(pattern.result, case.result().0);
        let spec = pattern.bound.problem.spec();
        let pair = |of: [usize; 2]| of.map(|value| value as i64);
        assert_eq!((spec.stride, spec.pad), (pair(case.stride), pair(case.pad)), "{case:?}");
        assert_eq!((spec.dilation, spec.groups), (pair(case.dilation), case.groups as i64), "{case:?}");
        assert_eq!([spec.n, spec.c, spec.h, spec.w], case.x.map(|value| value as i64));
        assert_eq!([spec.k, spec.r, spec.s], [case.w[0], case.w[2], case.w[3]].map(|value| value as i64));
    }
}

#[test]
fn a_bias_and_a_relu_are_the_kernels_own_work() {
    let case = fused(&mut random());
    let pattern = read(&case.graph()).unwrap();
    let chain = ConvChain::new(pattern.bound.problem.clone(), pattern.post_ops(0).unwrap());
    let epilogue = chain.problem().spec().epilogue;
    assert!(epilogue.bias && epilogue.activation == Activation::Relu && chain.fused() == 2);
    assert_eq!((pattern.bias, pattern.uids), (Some(BIAS), [X, W, Y]));
}

#[test]
fn types_that_a_tensor_or_node_leaves_open_are_the_graphs() {
    let mut graph = fused(&mut random()).graph();
    graph.tensors.iter_mut().for_each(|tensor| tensor.data_type = 0);
    graph.convolution().compute = 0;
    graph.pointwise(1).compute = 0;
    graph.pointwise(2).compute = 0;
    assert!(read(&graph).is_ok());
    graph.io = 0;
    assert!(read(&graph).is_err(), "nobody says what they are");
}

#[test]
fn lines_and_volumes_of_one_layer_are_images() {
    let mut graph = Case::random(&mut random(), Pass::Forward, Type::F32, Lies::Nchw).graph();
    let whole = |graph: &mut Graph, dims: [[i64; 5]; 3]| {
        for (uid, dims) in [X, W, Y].into_iter().zip(dims) {
            let tensor = graph.tensor(uid);
            tensor.strides = (0..5).map(|at| dims[at + 1..].iter().product()).collect();
            tensor.dims = dims.to_vec();
        }
        let node = graph.convolution();
        (node.before, node.after) = (vec![0; 3], vec![0; 3]);
        (node.strides, node.dilations) = (vec![1; 3], vec![1; 3]);
    };
    whole(&mut graph, [[2, 3, 1, 5, 6], [4, 3, 1, 2, 3], [2, 4, 1, 4, 4]]);
    assert!(read(&graph).is_ok());
    whole(&mut graph, [[2, 3, 2, 5, 6], [4, 3, 1, 2, 3], [2, 4, 2, 4, 4]]);
    assert!(read(&graph).unwrap_err().contains("volumes"));
    for uid in [X, W, Y] {
        let tensor = graph.tensor(uid);
        tensor.dims = [[2, 3, 6], [4, 3, 3], [2, 4, 4]][(uid - X) as usize].to_vec();
        tensor.strides = vec![tensor.dims[1] * tensor.dims[2], tensor.dims[2], 1];
    }
    let node = graph.convolution();
    (node.before, node.after) = (vec![0], vec![0]);
    (node.strides, node.dilations) = (vec![1], vec![1]);
    assert!(read(&graph).is_ok());
}

/// A change to a graph that was taken, and a word of the reason why it is not any more.
type Change = (&'static str, fn(&mut Graph));

#[test]
fn whatever_else_is_asked_is_refused() {
    let changes: &[Change] = &[
        ("padding", |graph| graph.convolution().after[1] += 1),
        ("mode 1", |graph| graph.convolution().mode = 1),
        ("mode 0", |graph| graph.convolution().mode = 0),
        ("mode 77", |graph| graph.convolution().mode = 77),
        ("computed", |graph| graph.convolution().compute = 4),
        ("computed", |graph| graph.convolution().compute = HALF),
        ("newer", |graph| graph.convolution().extra = Some((10, 1))),
        ("of -1", |graph| {
            (graph.convolution().before, graph.convolution().after) = (vec![-1; 2], vec![-1; 2])
        }),
        ("of 0", |graph| graph.convolution().strides[0] = 0),
        ("of 0", |graph| graph.convolution().dilations[1] = 0),
        ("of 9223372036854775807", |graph| graph.convolution().dilations[1] = i64::MAX),
        ("strides", |graph| graph.convolution().strides.push(1)),
        ("pads", |graph| (graph.convolution().before, graph.convolution().after) = (vec![], vec![])),
        ("kind 1", |graph| graph.nodes[0] = Node::Other(1)),
        ("union", |graph| graph.nodes[0] = Node::Other(0)),
        ("kind 200", |graph| graph.nodes[2] = Node::Other(200)),
        ("first node is pointwise", |graph| graph.nodes.reverse()),
        ("two convolutions", |graph| graph.nodes[1] = graph.nodes[0].clone()),
        ("nodes", |graph| graph.nodes.push(Node::Other(3))),
        ("without nodes", |graph| graph.nodes.clear()),
        ("uid 11", |graph| graph.tensors.retain(|tensor| tensor.uid != X)),
        ("uid 12", |graph| graph.tensors.push(graph.tensors[1].clone())),
        ("tensors", |graph| {
            graph.tensors.extend((100..120).map(|uid| Tensor { uid, ..Tensor::default() }));
        }),
        ("number, ragged", |graph| graph.tensor(X).extra = Some((6, 1))),
        ("number, ragged", |graph| graph.tensor(W).extra = Some((8, 1))),
        ("number, ragged", |graph| graph.tensor(Y).extra = Some((9, 5))),
        ("number, ragged", |graph| graph.tensor(BIAS).extra = Some((10, 64))),
        ("number, ragged", |graph| graph.tensor(X).extra = Some((30, 1))),
        ("virtual", |graph| graph.tensor(X).is_virtual = true),
        ("virtual", |graph| graph.tensor(Y).is_virtual = true),
        ("virtual", |graph| graph.tensor(BIAS).is_virtual = true),
        ("output too", |graph| graph.tensor(21).is_virtual = false),
        ("output too", |graph| graph.tensor(22).is_virtual = false),
        ("data type 4", |graph| graph.tensor(X).data_type = 4),
        ("data type 100", |graph| graph.tensor(W).data_type = 100),
        ("data type 3", |graph| graph.tensor(21).data_type = 3),
        ("w Float", |graph| graph.tensor(W).data_type = 1),
        ("another type", |graph| (graph.tensor(BIAS).data_type, graph.pointwise(1).compute) = (3, 1)),
        ("tensor of", |graph| graph.tensor(X).strides[0] = 0),
        ("tensor of", |graph| graph.tensor(X).dims.clear()),
        ("tensor", |graph| graph.tensor(X).dims[3] = i64::MAX),
        ("share a place", |graph| graph.tensor(Y).strides[0] -= 1),
        ("share a place", |graph| graph.tensor(Y).strides = vec![1; 4]),
        ("not of a bias", |graph| {
            for uid in [21, 22, BIAS, Y] {
                (graph.tensor(uid).dims, graph.tensor(uid).strides) = (vec![1], vec![1]);
            }
        }),
        ("y has sizes", |graph| [21, 22, Y].into_iter().for_each(|uid| graph.tensor(uid).dims[0] += 1)),
        ("is made of", |graph| graph.tensor(Y).dims[2] += 1),
        ("not of a bias", |graph| graph.tensor(BIAS).dims[3] = 2),
        ("not of a bias", |graph| graph.tensor(BIAS).dims[1] += 1),
        ("something else", |graph| graph.pointwise(1).inputs = [Some(X), Some(W), None]),
        ("something else", |graph| graph.pointwise(1).inputs = [Some(21), Some(21), None]),
        ("something else", |graph| graph.pointwise(1).inputs = [Some(21), None, None]),
        ("operand", |graph| graph.pointwise(1).inputs[2] = Some(X)),
        ("operand", |graph| graph.pointwise(1).numbers = vec![(12, 1.0)]),
        ("computed in", |graph| graph.pointwise(1).compute = 4),
        ("operation 30", |graph| graph.pointwise(1).mode = 30),
        ("operation 99", |graph| graph.pointwise(2).mode = 99),
        ("not a bias", |graph| {
            let inputs = [Some(22), Some(BIAS), None];
            graph.nodes[2] =
                Node::Pointwise(Pointwise { mode: ADD, inputs, output: Y, compute: 1, numbers: vec![] });
        }),
        ("where no activation", |graph| graph.pointwise(2).inputs[1] = Some(X)),
        ("of tensor 11", |graph| graph.pointwise(2).inputs[0] = Some(X)),
        ("data type 2", |graph| graph.pointwise(2).compute = HALF),
        ("a ReLU with", |graph| graph.pointwise(2).numbers = vec![(1, 0.5), (3, 0.5)]),
        ("a ReLU with", |graph| graph.pointwise(2).numbers = vec![(1, 0.5), (2, 0.25)]),
        ("an activation with", |graph| graph.pointwise(2).numbers = vec![(2, f32::NAN)]),
        ("axis", |graph| graph.pointwise(2).numbers = vec![(9, 1.0)]),
        ("uid 77", |graph| graph.pointwise(2).output = 77),
        ("is made of", |graph| graph.pointwise(2).output = 22),
        ("read and written", |graph| graph.pointwise(2).output = X),
        ("change at each run", |graph| graph.has_override_shapes = true),
        ("version 1.2", |graph| graph.version = Some([1, 2, 0])),
        ("version 2.0", |graph| graph.version = Some([2, 0, 0])),
    ];
    let random = &mut random();
    for (at, (word, change)) in changes.iter().enumerate() {
        // x and y of the same sizes, so that nothing but the change is to blame.
        let mut case = fused(random);
        case.x = [2, 4, 6, 6];
        case.w = [4, 4, 3, 3];
        case.y = case.x;
        (case.groups, case.stride, case.pad, case.dilation) = (1, [1; 2], [1; 2], [1; 2]);
        let mut graph = case.graph();
        graph.version = Some([1, 0, 9]);
        assert!(read(&graph).is_ok());
        change(&mut graph);
        let why = read(&graph).expect_err(&format!("{at}: {word}"));
        assert!(why.contains(word) && !why.contains('\n'), "{at}: {why}, not {word}");
    }
    let mut gradient = fused(random).graph();
    gradient.convolution().kind = BACKWARD_DATA;
    assert!(read(&gradient).is_err(), "an activation behind a gradient");
    let weights = Case::random(random, Pass::Weights, Type::F32, Lies::Nchw);
    let behind = Behind { bias: true, activation: None };
    assert!(read(&Case { behind, ..weights }.graph()).is_err(), "a bias behind a gradient of weights");
}

#[test]
fn broken_graphs_are_refused_and_never_crash() {
    let random = &mut random();
    let (mut taken, mut refused) = (0, 0);
    for round in 0..40_000 {
        let mut bytes = fused(random).graph().bytes();
        match round % 4 {
            0 => {
                bytes.clear();
                bytes.extend((0..random.random_range(0..600)).map(|_| random.random::<u8>()));
            }
            1 => bytes.truncate(random.random_range(0..bytes.len())),
            2 => {
                for _ in 0..random.random_range(1..4) {
                    let at = random.random_range(0..bytes.len());
                    bytes[at] ^= 1 << random.random_range(0..8);
                }
            }
            // Words of all kinds where offsets, lengths and sizes are.
            _ => {
                let words = [0, 1, 4, 0x7f, 0xff, 0x7fff_ffff, 0x8000_0000, u32::MAX];
                let at = random.random_range(0..bytes.len() / 4) * 4;
                bytes[at..at + 4].copy_from_slice(&words[random.random_range(0..words.len())].to_le_bytes());
            }
        }
        match aligned(&bytes, Pattern::read) {
            Ok(_) => taken += 1,
            Err(why) => {
                assert!(!why.is_empty());
                refused += 1;
            }
        }
    }
    // Flips in names, uids of nobody and unused bytes do no harm.
    assert!(refused > 25_000 && taken > 100, "{refused} refused, {taken} taken");
}

/// Whole FlatBuffers with contents that nobody would write.
#[test]
fn mixed_up_graphs_are_refused_and_never_crash() {
    const NUMBERS: [i64; 12] = [0, 1, -1, 2, 3, 7, 64, 1 << 31, 1 << 32, 1 << 62, i64::MAX, i64::MIN];
    const UIDS: [i64; 7] = [X, W, Y, BIAS, 21, 22, 0];
    let random = &mut random();
    let (mut planner, caps) = (Planner::default(), DeviceCaps::of(usual_boards()[0]));
    let mut refused = 0;
    for _ in 0..30_000 {
        let mut graph = fused(random).graph();
        for _ in 0..random.random_range(1..4) {
            let number = NUMBERS[random.random_range(0..NUMBERS.len())];
            let uid = UIDS[random.random_range(0..UIDS.len())];
            let change = |list: &mut Vec<i64>, random: &mut StdRng| match random.random_range(0..4) {
                0 => list.push(number),
                1 => drop(list.pop()),
                2 => *list = vec![number; random.random_range(0..6)],
                _ => {
                    let at = random.random_range(0..list.len().max(1));
                    list.iter_mut().skip(at).take(1).for_each(|value| *value = number);
                }
            };
            let at = random.random_range(0..graph.tensors.len());
            let tensor = &mut graph.tensors[at];
            match random.random_range(0..10) {
                0 => tensor.is_virtual = !tensor.is_virtual,
                1 => tensor.data_type = number as i8,
                2 => tensor.uid = uid,
                3 => change(&mut tensor.dims, random),
                4 => change(&mut tensor.strides, random),
                5 => change(&mut graph.convolution().strides, random),
                6 => change(&mut graph.convolution().dilations, random),
                7 => {
                    change(&mut graph.convolution().before, random);
                    graph.convolution().after = graph.convolution().before.clone();
                }
                8 => graph.convolution().tensors[random.random_range(0..3)] = uid,
                _ => {
                    let node = graph.pointwise(random.random_range(1..3));
                    node.inputs[random.random_range(0..3)] = (number < 3).then_some(uid);
                    node.output = if number > 64 { uid } else { node.output };
                }
            }
            if random.random_ratio(1, 20) {
                // All of one rank, that no convolution has.
                let rank = random.random_range(0..8);
                graph.tensors.iter_mut().for_each(|t| (t.dims, t.strides) = (vec![1; rank], vec![1; rank]));
            }
        }
        match read(&graph) {
            // Whatever the solvers say of it.
            Ok(pattern) => drop(Solutions::new(&mut planner, &caps, &[], &pattern.bound.problem)),
            Err(_) => refused += 1,
        }
    }
    assert!((20_000..30_000).contains(&refused), "{refused} refused");
}

/// The fuzzer's, whose program knows the fields only: here to what they mean.
#[test]
fn the_fuzzers_graphs_are_taken_or_refused() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/hipdnn");
    let random = &mut random();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let taken = aligned(&bytes, Pattern::read);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(taken.is_ok(), ["forward", "bias_relu"].contains(&&*name), "{name}: {taken:?}");
        for _ in 0..500 {
            let mut bytes = bytes.clone();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = if random.random() {
                    random.random()
                } else {
                    bytes[at] ^ 1 << random.random_range(0..8)
                };
            }
            let _ = aligned(&bytes, Pattern::read);
        }
    }
}

#[test]
fn a_graph_of_very_many_tensors_is_refused_soon() {
    let mut graph = fused(&mut random()).graph();
    graph.tensors.extend((100..20_000).map(|uid| Tensor { uid, ..Tensor::default() }));
    let start = std::time::Instant::now();
    assert!(read(&graph).is_err());
    assert!(start.elapsed().as_secs() < 8);
}
