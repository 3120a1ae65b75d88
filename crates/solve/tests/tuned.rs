//! What was measured goes before what is modelled, and never further than the policy allows.

use std::collections::BTreeMap;
use wave32_problem::{Problem, parse_line};
use wave32_solve::{
    Choice, DeviceCaps, Policy, Tuned, candidates, explain, plan, ranked, tuning_key, usual_boards,
};

const LINE: &str = "MIOpenDriver conv -n 2 -c 64 -H 28 -W 28 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1";

fn problem(line: &str) -> Problem {
    parse_line(line).unwrap().remove(0)
}

fn caps(solver: &str, config: &str) -> DeviceCaps {
    let choice = Choice { solver: solver.into(), config: config.into() };
    let tuned = Tuned::new(BTreeMap::from([(tuning_key(&problem(LINE)), choice)]));
    DeviceCaps { tuned, ..DeviceCaps::of(usual_boards()[1]) }
}

#[test]
fn a_measured_choice_is_taken_with_and_without_bias() {
    let caps = caps("igemm", "g64x64/2");
    let biased = format!("{LINE} -b 1");
    for line in [LINE, biased.as_str()] {
        let problem = problem(line);
        let plan = plan(&problem, &caps, &Policy::default()).unwrap();
        assert_eq!((plan.solver, plan.config.as_str(), plan.tuned), ("igemm", "g64x64/2", true));
        assert_eq!(plan.problem, problem);
        let ranked = ranked(&problem, &caps, &Policy::default());
        assert_eq!(ranked[0].plan, plan);
        assert!(ranked.len() > 2 && ranked[1..].iter().all(|other| !other.plan.tuned));
        assert!(explain(&problem, &caps, &Policy::default()).to_string().contains("tuned"));
    }
    let other = problem(&LINE.replace("-n 2", "-n 3"));
    assert!(!plan(&other, &caps, &Policy::default()).unwrap().tuned);
}

#[test]
fn a_policy_and_what_is_not_there_any_more_leave_the_choice_to_the_model() {
    let usual = plan(&problem(LINE), &DeviceCaps::of(usual_boards()[1]), &Policy::default()).unwrap();
    let planned = |caps: &DeviceCaps, policy: &Policy| plan(&problem(LINE), caps, policy).unwrap();
    for (solver, config) in [("igemm", "g1x1/1"), ("none", "g64x64/2"), ("direct", "g64x64/2"), ("", "")] {
        assert_eq!(planned(&caps(solver, config), &Policy::default()), usual, "{solver} {config}");
    }
    let caps = caps("igemm", "g64x64/2");
    for policy in [
        Policy { skip: vec!["igemm".into()], ..Policy::default() },
        Policy { only: Some("direct".into()), ..Policy::default() },
        Policy { workspace_cap: Some(0), ..Policy::default() },
    ] {
        let plan = planned(&caps, &policy);
        assert!(
            !plan.tuned && plan.workspace_bytes <= policy.workspace_cap.unwrap_or(u64::MAX),
            "{policy:?}"
        );
    }
}

#[test]
fn candidates_are_all_configurations_the_chosen_first() {
    let caps = DeviceCaps::of(usual_boards()[1]);
    for line in [
        LINE,
        "MIOpenDriver conv -n 1 -c 3 -H 33 -W 31 -k 8 -y 3 -x 3 -F 7",
        "MIOpenDriver gemm -m 64 -k 64 -n 64",
    ] {
        for problem in parse_line(line).unwrap() {
            let all = candidates(&problem, &caps, &Policy::default());
            let chosen = plan(&problem, &caps, &Policy::default()).unwrap();
            assert_eq!(all[0].plan, chosen, "{problem}");
            let names: Vec<_> = all.iter().map(|c| (c.plan.solver, c.plan.config.clone())).collect();
            for (index, (solver, config)) in names.iter().enumerate() {
                assert!(!names[..index].contains(&names[index]), "{problem}: {solver} {config} twice");
                let policy = Policy {
                    only: Some((*solver).into()),
                    config: Some(config.clone()),
                    ..Policy::default()
                };
                assert_eq!(plan(&problem, &caps, &policy).unwrap(), all[index].plan, "{problem}");
            }
            for one in ranked(&problem, &caps, &Policy::default()) {
                assert!(names.contains(&(one.plan.solver, one.plan.config)), "{problem}");
            }
        }
    }
}
