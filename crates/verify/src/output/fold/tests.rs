//! Right results have their sums, wrong ones do not: on random problems of every kind, with integers of the f64 oracle.

use super::*;
use crate::proof::cases::Case;
use crate::proof::compare::{Reference, exact};
use crate::proof::fuzz::problems;
use crate::proof::inject::{spoil_channel, spoil_tile};
use std::collections::HashSet;
use wave32_cpu::oracle;
use wave32_problem::DType;

/// A fresh seed, told by every failure.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::from(now.subsec_nanos()) ^ now.as_secs()
}

/// Random problems without an activation, with what is exact for each.
fn cases(count: usize, seed: u64) -> Vec<(ConvProblem, Case, Data)> {
    let all = problems(count, seed, &Direction::ALL, &DType::ALL).into_iter();
    all.filter_map(|p| p.conv().cloned())
        .filter(|p| p.spec().epilogue.activation == Activation::None)
        .map(|p| {
            let case = Case::folded(&p.clone().into(), seed).unwrap();
            let [a, b] = [&case.inputs.a, &case.inputs.b].map(|data| data.to_f64().unwrap());
            let bias = case.inputs.bias.as_ref().map(|bias| bias.to_f64().unwrap());
            let right = oracle::conv(&p, &wave32_cpu::Inputs { a: &a, b: &b, bias: bias.as_deref() });
            let mut right = right.into_iter();
            let out = Data::generate(p.spec().dtype, right.len() as u64, || right.next().unwrap() as f32);
            (p, case, out.unwrap())
        })
        .collect()
}

fn fold(case: &Case) -> &Fold {
    match &case.reference {
        Reference::Folded(fold, _) => fold,
        other => panic!("{other:?}"),
    }
}

/// Adds to an element; false where the type cannot hold the sum.
fn nudge(out: &mut Data, index: usize, by: f32) -> bool {
    let before = out.get(index);
    match out {
        Data::F32(v) => v[index] += by,
        Data::F16(v) => v[index] = f16::from_f32(v[index].to_f32() + by),
        Data::BF16(v) => v[index] = bf16::from_f32(v[index].to_f32() + by),
    }
    out.get(index) == before + f64::from(by)
}

#[test]
fn right_results_have_their_sums_and_one_wrong_output_is_found_and_named() {
    let seed = seed();
    let mut random = rng(seed, 1);
    let (mut kinds, mut named) = (HashSet::new(), 0);
    for (p, case, right) in cases(120, seed) {
        let (fold, shape) = (fold(&case), OutputShape::of_output(&p.clone().into()));
        assert_eq!(fold.check(&right, &shape), Ok(()), "seed {seed}: {p}");
        assert_eq!(fold.outputs(), right.len(), "seed {seed}: {p}");
        kinds.insert((p.spec().direction, p.spec().transposed, p.spec().layout, p.spec().groups > 1));
        for at in [0, random.random_range(0..right.len()), right.len() - 1] {
            for by in [1.0, -1.0, 7.0] {
                let mut wrong = right.clone();
                if !nudge(&mut wrong, at, by) {
                    continue;
                }
                let text = fold.check(&wrong, &shape).unwrap_err();
                let exact = format!("{} where {} is exact", wrong.get(at), right.get(at));
                assert!(
                    text.contains(&shape.name(at as u64)) && text.contains(&exact),
                    "seed {seed}: {p}: {text}"
                );
                named += 1;
            }
        }
    }
    assert!(kinds.len() >= 8 && named > 200, "seed {seed}: {} kinds, {named} named", kinds.len());
}

#[test]
fn several_wrong_outputs_are_found_whatever_their_plain_sum() {
    let seed = seed();
    let mut random = rng(seed, 2);
    let mut tried = 0;
    for (p, case, right) in cases(60, seed) {
        let (fold, shape) = (fold(&case), OutputShape::of_output(&p.clone().into()));
        if right.len() < 2 {
            continue;
        }
        // Two that cancel, two exchanged, a tile of the neighbour's, a channel left out.
        let at = [0, 1].map(|_| random.random_range(0..right.len()));
        let mut cancel = right.clone();
        let changed = at[0] != at[1] && nudge(&mut cancel, at[0], 1.0) && nudge(&mut cancel, at[1], -1.0);
        let mut exchanged = right.clone();
        let [x, y] = at.map(|at| right.get(at));
        nudge(&mut exchanged, at[0], (y - x) as f32);
        nudge(&mut exchanged, at[1], (x - y) as f32);
        let (mut tile, mut channel) = (right.clone(), right.clone());
        spoil_tile(&p.clone().into(), &mut tile);
        spoil_channel(&p.clone().into(), &mut channel);
        for (wrong, sure) in [(cancel, changed), (exchanged, x != y), (tile, false), (channel, false)] {
            let differs =
                wrong.bytes() != right.bytes() && (0..right.len()).any(|i| wrong.get(i) != right.get(i));
            assert!(differs || !sure, "seed {seed}: {p}");
            assert_eq!(fold.check(&wrong, &shape).is_err(), differs, "seed {seed}: {p}");
            tried += usize::from(differs);
        }
    }
    assert!(tried > 60, "seed {seed}: {tried}");
}

#[test]
fn what_was_not_written_and_what_is_no_integer_is_named() {
    let seed = seed();
    for (p, case, right) in cases(20, seed) {
        let (shape, size) = (OutputShape::of_output(&p.clone().into()), right.bytes().len() / right.len());
        let at = right.len() * 2 / 3;
        let mut wrong = right.clone();
        wrong.bytes_mut()[at * size..(at + 1) * size].fill(0xff);
        let text = exact(&wrong, &case.reference, &shape, &[0xff; 4]).unwrap_err();
        assert!(
            text.contains(&shape.name(at as u64)) && text.contains("(1 were never written)"),
            "seed {seed}: {text}"
        );
        let mut wrong = right.clone();
        if nudge(&mut wrong, at, 0.5) {
            let text = exact(&wrong, &case.reference, &shape, &[0xff; 4]).unwrap_err();
            assert!(text.contains(&shape.name(at as u64)), "seed {seed}: {text}");
        }
    }
}

#[test]
fn arithmetic_of_the_field() {
    let mut random = rng(seed(), 3);
    for _ in 0..1000 {
        let [a, b] = [0, 1].map(|_| random.random_range(0..P));
        assert_eq!(u128::from(mul(a, b)), u128::from(a) * u128::from(b) % u128::from(P));
        assert_eq!(u128::from(add(a, b)), (u128::from(a) + u128::from(b)) % u128::from(P));
        assert!(a == 0 || mul(a, inverse(a)) == 1);
        let [x, y] = [a, b].map(|v| i128::from(v) - i128::from(P / 2));
        assert_eq!(u128::from(signed(x * y)), (x * y).rem_euclid(i128::from(P)) as u128);
    }
    assert_eq!(
        [mul(P - 1, P - 1), add(P - 1, P - 1), reduce(u128::from(P)), signed(-1)],
        [1, P - 2, 0, P - 1]
    );
}

#[test]
fn sums_are_used_where_they_are_cheap() {
    let line = "MIOpenDriver conv -n 64 -c 256 -H 32 -W 32 -k 256 -y 5 -x 5 -p 2 -q 2";
    for p in wave32_problem::parse_line(line).unwrap() {
        assert!(applies(p.conv().unwrap(), 100.0), "{p}");
    }
    // Depthwise; one large image, whose weights would take gigabytes.
    for line in [
        "MIOpenDriver conv -n 64 -c 256 -H 32 -W 32 -k 256 -y 3 -x 3 -p 1 -q 1 -g 256",
        "MIOpenDriver conv -n 1 -c 256 -H 512 -W 512 -k 256 -y 5 -x 5 -p 2 -q 2 -F 3",
    ] {
        for p in wave32_problem::parse_line(line).unwrap() {
            assert!(!applies(p.conv().unwrap(), 4.0), "{p}");
        }
    }
}
