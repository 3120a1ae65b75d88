//! What holds of every plan, whatever the problem: limits obeyed, kernels' contracts met, same input same plan.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use wave32_params::variants::{self, Variant};
use wave32_problem::{
    Activation, Added, ConvProblem, ConvSpec, DType, Direction, Epilogue, Factor, Layout, MatmulProblem,
    MatmulSpec, Matrices, MatrixOrder, Pass,
};
use wave32_solve::{
    Access, Binding, DeviceCaps, Outcome, Plan, Policy, Role, SolveError, explain, plan, plans, solvers,
    usual_boards,
};

fn caps() -> DeviceCaps {
    DeviceCaps::of(usual_boards()[0])
}

fn random_problem(rng: &mut StdRng) -> ConvProblem {
    loop {
        let groups = [1, 1, 1, 2, 4, 16][rng.random_range(0..6)];
        let direction = Direction::ALL[rng.random_range(0..3)];
        let spec = ConvSpec {
            direction,
            dtype: DType::ALL[rng.random_range(0..3)],
            layout: [Layout::Nchw, Layout::Nhwc][rng.random_range(0..2)],
            n: rng.random_range(1..40),
            c: groups * rng.random_range(1..80),
            h: rng.random_range(1..90),
            w: rng.random_range(1..90),
            k: groups * rng.random_range(1..80),
            r: rng.random_range(1..8),
            s: rng.random_range(1..8),
            stride: [rng.random_range(1..4), rng.random_range(1..4)],
            pad: [rng.random_range(0..4), rng.random_range(0..4)],
            dilation: [rng.random_range(1..3), rng.random_range(1..3)],
            groups,
            transposed: rng.random_range(0..5) == 0,
            output_pad: [0, 0],
            epilogue: if direction == Direction::Forward {
                Epilogue { bias: rng.random(), activation: Activation::Relu }
            } else {
                Epilogue::default()
            },
        };
        // What is larger than a kernel addresses is refused, see below.
        if let Ok(problem) = ConvProblem::new(spec)
            && problem.x_elements().max(problem.w_elements()).max(problem.y_elements()) <= 1 << 29
        {
            return problem;
        }
    }
}

/// Panics where a plan breaks the contract between planner, device and kernel.
fn check(plan: &Plan, caps: &DeviceCaps, cap: Option<u64>) {
    let about = format!("{} by {} {}", plan.problem, plan.solver, plan.config);
    assert!(
        plan.workspace_bytes <= cap.unwrap_or(u64::MAX),
        "{about}: {} bytes over the cap",
        plan.workspace_bytes
    );
    assert!(!plan.launches.is_empty(), "{about}");
    for launch in &plan.launches {
        let variant =
            variants::find(&launch.kernel).unwrap_or_else(|| panic!("{about}: no {}", launch.kernel));
        assert_eq!(launch.params.len(), variant.params as usize, "{about}: {}", launch.kernel);
        assert_eq!(launch.bindings.len(), variant.buffers as usize, "{about}: {}", launch.kernel);
        // Copies are by size, not by type, and `ew` is told types; what goes from workspace to workspace has a type of its own.
        let of_tensors = |b: &Binding| b.role != Role::Workspace && b.access != Access::Unused;
        let is_typed =
            !["copy", "ew"].contains(&variant.source.as_str()) && launch.bindings.iter().any(of_tensors);
        assert!(!is_typed || variant.dtype == plan.problem.dtype(), "{about}: {}", launch.kernel);
        assert_eq!(launch.params[0], 0, "{about}: a plan starts at workgroup 0");
        let [x, y, z] = launch.grid;
        assert!(x > 0 && y > 0 && z > 0, "{about}: empty grid");
        assert!(y <= caps.max_groups[1] && z <= caps.max_groups[2], "{about}: grid {x}x{y}x{z}");
        for binding in &launch.bindings {
            let whole = plan.role_bytes(binding.role);
            assert!(
                binding.size > 0 && binding.offset + binding.size <= whole,
                "{about}: {binding:?} of {whole}"
            );
            assert!(binding.offset.is_multiple_of(caps.offset_alignment), "{about}: {binding:?}");
        }
    }
    if let Some(prepared) = plan.prepared {
        let (first, rest) = plan.launches.split_at(prepared.launches);
        let in_prepared = |b: &Binding| b.role == Role::Workspace && b.offset < prepared.bytes;
        for binding in first.iter().flat_map(|launch| &launch.bindings) {
            let is_filters = binding.role == Role::W && !binding.access.writes();
            let is_made = in_prepared(binding) && binding.offset + binding.size <= prepared.bytes;
            assert!(is_filters || is_made, "{about}: {binding:?} is no part of preparing filters");
        }
        for binding in rest.iter().flat_map(|launch| &launch.bindings) {
            assert!(!in_prepared(binding) || !binding.access.writes(), "{about}: {binding:?} over filters");
            assert!(!in_prepared(binding) || binding.offset + binding.size <= prepared.bytes, "{about}");
        }
    }
    let writes = |role| plan.launches.iter().any(|l| l.bindings.iter().any(|b| b.role == role));
    let result = match plan.problem.conv().map(|problem| problem.spec().direction) {
        None | Some(Direction::Forward) => Role::Y,
        Some(Direction::BackwardData) => Role::X,
        Some(Direction::BackwardWeights) => Role::W,
    };
    assert!(writes(result), "{about}: nothing binds the result");
}

#[test]
fn plans_obey_their_limits_and_their_kernels() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    for _ in 0..400 {
        let problem = random_problem(&mut rng);
        let caps = DeviceCaps::of(usual_boards()[rng.random_range(0..3)]);
        for cap in [None, Some(0), Some(rng.random_range(0..1 << 22))] {
            let policy = Policy { workspace_cap: cap, ..Policy::default() };
            let all = plans(&problem, &caps, &policy);
            assert!(!all.is_empty(), "seed {seed}: {problem}: no plan under {cap:?}");
            let most = cap.unwrap_or_else(|| caps.workspace_cap());
            all.iter().for_each(|plan| check(plan, &caps, Some(most)));
            assert_eq!(all, plans(&problem, &caps, &policy), "seed {seed}: {problem}: two answers");
            let chosen = plan(&problem, &caps, &policy).expect("there are plans");
            assert_eq!(chosen, all[0], "seed {seed}: {problem}");
        }
    }
}

/// A product of matrices of any strides.
fn random_product(rng: &mut StdRng) -> MatmulProblem {
    loop {
        let mut side = |most: i64| rng.random_range(1..=most);
        let [batch, m, k, n] = [side(5), side(700), side(3000), side(700)];
        let matrices = |rng: &mut StdRng, rows, columns| match rng.random_range(0..4) {
            0 => Matrices { first: rng.random_range(0..9), strides: [0, 2 * columns, 2] },
            1 => Matrices::dense(MatrixOrder::ColumnMajor, rows, columns),
            _ => Matrices::dense(MatrixOrder::RowMajor, rows, columns),
        };
        let (a, b) = (matrices(rng, m, k), matrices(rng, k, n));
        let strides = if rng.random_bool(0.5) { [0, 0, 1] } else { [m * n + 7, 1, m] };
        let added = Added { beta: Factor(0.5), matrices: Matrices { first: 0, strides } };
        let spec = MatmulSpec {
            dtype: DType::ALL[rng.random_range(0..3)],
            batch,
            m,
            k,
            n,
            a,
            b,
            alpha: Factor(1.0),
            added: rng.random_bool(0.3).then_some(added),
            activation: Activation::ALL[rng.random_range(0..Activation::ALL.len())],
            pass: [Pass::Forward, Pass::Backward][rng.random_range(0..2)],
        };
        if let Ok(problem) = MatmulProblem::new(spec) {
            return problem;
        }
    }
}

#[test]
fn plans_of_products_obey_their_limits_and_their_kernels() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut solvers = BTreeSet::new();
    for _ in 0..200 {
        let problem = random_product(&mut rng);
        let mut caps = DeviceCaps::of(usual_boards()[rng.random_range(0..3)]);
        caps.offset_alignment = [4, 16, 64][rng.random_range(0..3)];
        for cap in [None, Some(0), Some(rng.random_range(0..1 << 22))] {
            let policy = Policy { workspace_cap: cap, ..Policy::default() };
            let all = plans(&problem, &caps, &policy);
            assert!(!all.is_empty(), "seed {seed}: {problem}: no plan under {cap:?}");
            all.iter().for_each(|plan| check(plan, &caps, cap));
            assert_eq!(all, plans(&problem, &caps, &policy), "seed {seed}: {problem}: two answers");
            solvers.insert(all[0].solver);
        }
        // What the device cannot bind at once is cut.
        caps.max_range = 1 << 20;
        plans(&problem, &caps, &Policy::default()).iter().for_each(|plan| {
            check(plan, &caps, None);
            let most = plan.launches.iter().flat_map(|l| &l.bindings).map(|b| b.size).max();
            assert!(most <= Some(caps.max_range), "seed {seed}: {problem}: binds {most:?}");
        });
    }
    assert_eq!(solvers.len(), 2, "{solvers:?}");
}

#[test]
fn a_solver_that_a_table_lacks_leaves_its_choice() {
    let caps = DeviceCaps::of(usual_boards()[0]);
    let product: MatmulProblem = "gemm -m 64 -k 64 -n 64".parse().unwrap();
    let only = |name: &str| Policy { only: Some(name.into()), ..Policy::default() };
    let chosen = plan(&product, &caps, &Policy::default()).unwrap();
    assert_eq!(plan(&product, &caps, &only("im2col_gemm")).unwrap(), chosen);
    assert_eq!(plan(&product, &caps, &only("skinny")).unwrap().solver, "skinny");
    assert_eq!(plan(&product, &caps, &only("gemm")).unwrap().solver, "gemm");
    assert!(only("skinny").check().is_ok() && only("nonsense").check().is_err());
}

#[test]
fn a_cut_launch_covers_its_columns_once() {
    let problem =
        ConvProblem::new(ConvSpec { c: 8, h: 64, w: 64, k: 8, ..ConvSpec::default() }).expect("valid");
    let launch = &plan(&problem, &caps(), &Policy::default()).expect("a plan").launches[0];
    let width = launch.grid[0];
    let (a, b) = (launch.cut(0, width / 2), launch.cut(width / 2, width - width / 2));
    assert_eq!((a.params[0], b.params[0]), (0, width / 2));
    assert_eq!(a.grid[0] + b.grid[0], width);
    assert_eq!(a.params[1..], launch.params[1..]);
    let again = b.cut(1, 1);
    assert_eq!(again.params[0], width / 2 + 1, "cuts add up");
}

#[test]
fn forced_and_skipped_by_name() {
    let problem =
        ConvProblem::new(ConvSpec { c: 16, h: 32, w: 32, k: 16, r: 3, s: 3, ..ConvSpec::default() });
    let problem = problem.expect("valid");
    for solver in solvers() {
        let name = solver.name();
        let only = Policy { only: Some(name.into()), ..Policy::default() };
        match plan(&problem, &caps(), &only) {
            Ok(plan) => assert_eq!(plan.solver, name),
            Err(e) => assert!(e.to_string().contains(name), "{e}"),
        }
        let skip = Policy { skip: vec![name.into()], ..Policy::default() };
        assert!(plans(&problem, &caps(), &skip).iter().all(|p| p.solver != name));
    }
    let pointwise = Policy { only: Some("gemm_1x1".into()), ..Policy::default() };
    let refused = plan(&problem, &caps(), &pointwise).expect_err("a 3x3 is not pointwise");
    assert!(
        matches!(&refused, SolveError::Refused { reasons, .. } if reasons.contains("not-pointwise")),
        "{refused}"
    );
}

#[test]
fn policy_from_the_environment() {
    let vars = |pairs: &'static [(&str, &str)]| {
        move |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_string())
    };
    let policy = Policy::from_vars(vars(&[("WAVE32_SKIP", "direct, igemm"), ("WAVE32_WORKSPACE", "4096")]));
    let policy = policy.expect("both are right");
    assert_eq!((policy.skip.len(), policy.workspace_cap), (2, Some(4096)));
    for pairs in [
        &[("WAVE32_FP16_ACCUMULATION", "yes")],
        &[("WAVE32_MATRIX", "off")],
        &[("WAVE32_SOLVER", "winograd9000")],
        &[("WAVE32_WORKSPACE", "lots")],
        &[("WAVE32_SKIP", "x")],
    ] {
        let error = Policy::from_vars(vars(pairs)).expect_err("wrong").to_string();
        assert!(error.contains(pairs[0].1), "{error}");
    }
}

#[test]
fn what_is_too_large_is_refused_by_name() {
    let huge = ConvSpec { n: 1, c: 256, h: 4096, w: 4096, k: 8, ..ConvSpec::default() };
    let problem = ConvProblem::new(huge).expect("a valid problem of 17 GB");
    let explanation = explain(&problem, &caps(), &Policy::default());
    assert!(explanation.chosen.is_none());
    for (name, outcome) in &explanation.rows {
        let named = matches!(outcome, Outcome::Refused(r) if ["tensor-too-large", "not-pointwise", "not-3x3"].contains(&r.name));
        assert!(named, "{name}: {outcome:?}");
    }
    let text = explanation.to_string();
    assert!(text.contains("tensor-too-large") && text.contains("no plan"), "{text}");
}

#[test]
fn the_default_cap_is_an_eighth_of_the_memory_and_no_more_than_512_mib() {
    let of = |memory_bytes: u64| DeviceCaps { memory_bytes, ..caps() };
    assert_eq!(of(8 << 30).workspace_cap(), 512 << 20);
    assert_eq!(of(2 << 30).workspace_cap(), 256 << 20);
    assert_eq!([2, 8, 24].map(|gib| of(gib << 30).kept_cap()), [256 << 20, 1 << 30, 2 << 30]);
    let spec =
        ConvSpec { n: 64, c: 256, h: 56, w: 56, k: 256, r: 3, s: 3, pad: [1, 1], ..ConvSpec::default() };
    let problem = ConvProblem::new(spec).unwrap();
    let most = |caps: &DeviceCaps, workspace_cap| {
        let policy = Policy { workspace_cap, ..Policy::default() };
        plans(&problem, caps, &policy).iter().map(|plan| plan.workspace_bytes).max().unwrap()
    };
    let (large, small) = (most(&of(8 << 30), None), most(&of(256 << 20), None));
    assert!(small <= 32 << 20 && 32 << 20 < large && large <= 512 << 20, "{small}, {large}");
    assert_eq!(most(&of(256 << 20), Some(512 << 20)), large, "what is asked for counts");
}

/// A batch of any size has plans, of parts that the device binds.
#[test]
fn a_batch_that_is_too_large_is_cut() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut cut, mut whole) = (0, 0);
    for _ in 0..300 {
        let problem = random_problem(&mut rng);
        let mut caps = caps();
        caps.offset_alignment = [4, 16, 256][rng.random_range(0..3)];
        caps.max_range = 1 << rng.random_range(14..24);
        for plan in plans(&problem, &caps, &Policy::default()) {
            check(&plan, &caps, Some(caps.workspace_cap()));
            let most = plan.launches.iter().flat_map(|l| &l.bindings).map(|b| b.size).max();
            assert!(most <= Some(caps.max_range), "seed {seed}: {problem} by {}: {most:?}", plan.solver);
            *(if plan.config.contains(" in ") { &mut cut } else { &mut whole }) += 1;
        }
    }
    assert!(cut > 50 && whole > 50, "{cut} cut, {whole} whole");
    // 17 GB, on a real card's limits.
    let huge = ConvSpec { n: 64, c: 256, h: 512, w: 512, k: 8, ..ConvSpec::default() };
    for direction in Direction::ALL {
        let problem = ConvProblem::new(ConvSpec { direction, ..huge.clone() }).unwrap();
        let plan = plan(&problem, &caps(), &Policy::default()).unwrap();
        check(&plan, &caps(), Some(512 << 20));
        assert!(plan.config.contains(" in "), "{}", plan.config);
    }
}

#[test]
fn every_text_has_every_dtype_and_unique_names() {
    let all = variants::all();
    for text in [
        "igemm",
        "gemm",
        "skinny",
        "wrw",
        "direct",
        "direct_wrw",
        "pack",
        "reduce",
        "im2col",
        "col2im",
        "few",
        "winograd_data",
        "winograd_filter",
        "winograd_fused",
        "winograd_output",
        "winograd_weights",
    ] {
        for dtype in DType::ALL {
            assert!(variants::of(text, dtype).count() > 0, "{text} {}", dtype.name());
        }
    }
    for v in all {
        assert_eq!(variants::find(&v.name), Some(v));
        if ["igemm", "wrw", "gemm"].contains(&v.source.as_str()) {
            let tile = v.define("BM") * v.define("BN") / v.define("TM") / v.define("TN");
            // Of matrix instructions a thread stores two parts, one after the other.
            let parts = if v.is_matrix() { 2 } else { 1 };
            assert_eq!(tile, parts * i64::from(v.threads), "{}: threads cover the tile", v.name);
        }
    }
}

/// An f16 convolution of 16 images and 256 channels takes kernels of a kind if the card has instructions for them and nobody forbids these.
fn takes_instructions(
    caps: &DeviceCaps,
    spec: ConvSpec,
    is_kind: fn(&Variant) -> bool,
    has: bool,
    card: &str,
) {
    let problem = ConvProblem::new(ConvSpec { dtype: DType::F16, n: 16, c: 256, k: 256, ..spec }).unwrap();
    for no_matrix in [false, true] {
        let plan = plan(&problem, caps, &Policy { no_matrix, ..Policy::default() }).unwrap();
        let names = plan.launches.iter().map(|launch| launch.kernel.as_str());
        let takes = names.filter_map(variants::find).any(is_kind);
        assert_eq!(takes, has && !no_matrix, "{card}: {problem}: {}", plan.config);
    }
}

/// f16 runs on matrix instructions where a card has them and nobody forbids it, in each pass.
#[test]
fn f16_takes_the_matrix_instructions_of_a_card() {
    for (card, has_matrix) in
        [("rx7900xtx", true), ("rx9070xt", true), ("rx6800", false), ("rx5700xt", false)]
    {
        let caps = DeviceCaps::of(wave32_cards::by_id(card).unwrap());
        for direction in Direction::ALL {
            let spec = ConvSpec { direction, h: 28, w: 28, r: 3, s: 3, pad: [1, 1], ..ConvSpec::default() };
            takes_instructions(&caps, spec, Variant::is_matrix, has_matrix, card);
        }
    }
}

/// f16 runs on dot products where card and driver have them, but no matrix instructions, and nobody forbids it, in each pass.
#[test]
fn f16_takes_the_dot_products_of_a_card() {
    for (card, has_dot) in
        [("rx5500xt", true), ("pro5600m", true), ("rx6800", true), ("rx5700xt", false), ("rx7900xtx", false)]
    {
        let board = wave32_cards::by_id(card).unwrap();
        let caps = DeviceCaps { float16_dot: board.target().has_dot(), ..DeviceCaps::of(board) };
        for direction in Direction::ALL {
            for taps in [5, 1] {
                let (h, w, pad) = (32, 32, [taps / 2; 2]);
                let spec = ConvSpec { direction, h, w, r: taps, s: taps, pad, ..ConvSpec::default() };
                takes_instructions(&caps, spec, Variant::is_dot, has_dot, card);
            }
        }
    }
}

/// Near a workspace cap a solver takes what fits: where one of its configurations does, it does not refuse.
#[test]
fn no_solver_refuses_while_one_of_its_configurations_fits() {
    let seed = rand::random();
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut fitted, mut refused) = (0, 0);
    for _ in 0..60 {
        let problem = random_problem(&mut rng);
        let caps = DeviceCaps { offset_alignment: [4, 64, 256][rng.random_range(0..3)], ..caps() };
        for solver in solvers() {
            let plain = problem.to_plain();
            if solver.applicable(&plain, &caps).is_err() {
                continue;
            }
            let of = |config: Option<String>, cap: Option<u64>| {
                solver.plan(&plain, &caps, &Policy { config, workspace_cap: cap, ..Policy::default() })
            };
            let configs = variants::all().iter().filter(|v| v.dtype == problem.spec().dtype).flat_map(|v| {
                [1, 2, 3, 4, 6, 8, 16, 64, 128]
                    .map(|splits| format!("{}/{splits}", v.tag))
                    .into_iter()
                    .chain([v.tag.clone(), format!("{}x1", v.tag)])
            });
            let needs: Vec<u64> =
                configs.filter_map(|c| of(Some(c), None).ok()).map(|plan| plan.workspace_bytes).collect();
            let Some(&least) = needs.iter().min() else { continue };
            let one = needs[rng.random_range(0..needs.len())];
            // At what one configuration needs, around it, and far from it.
            for cap in
                [one, one + rng.random_range(0..300), least, rng.random_range(least..=one.max(least + 1))]
            {
                let plan = of(None, Some(cap));
                let plan = plan.unwrap_or_else(|e| {
                    panic!("{problem} by {} under {cap}, {least} fits: {e:?}, seed {seed}", solver.name())
                });
                assert!(plan.workspace_bytes <= cap, "{problem} by {}, seed {seed}", solver.name());
                fitted += 1;
            }
            refused += usize::from(least > 0 && of(None, Some(least - 1)).is_err());
        }
    }
    assert!(fitted > 100 && refused > 0, "{fitted} fitted, {refused} refused, seed {seed}");
}
