//! Memory instructions, each held against a model of its own (`mem/machine.rs`), on random state and EXEC, both wave
//! sizes.

mod buffer;
mod ds;
mod flat;
mod machine;
mod typed;

use wave32_isa::{Form, Opcode};

/// Operations with no semantic test, and why.
const UNTESTED: &[(&str, &str)] = &[
    ("ds_gws_", "global wave sync: graphics' and cooperative launches', refused"),
    ("ds_ordered_count", "global data share only, refused"),
    ("ds_condxchg32_rtn_b64", "no manual says what it does, refused"),
];

#[test]
fn every_memory_operation_has_a_semantic_test() {
    let tested: Vec<String> = [ds::tested(), flat::tested(), buffer::tested()].concat();
    let memory = |op: &&Opcode| {
        let form = op.row().form;
        matches!(form, Form::Ds | Form::Flat | Form::Global | Form::Scratch | Form::Mubuf | Form::Mtbuf)
    };
    let missing: Vec<&str> = Opcode::ALL
        .iter()
        .filter(memory)
        .map(|op| op.name())
        .filter(|name| {
            !tested.iter().any(|t| t == name) && !UNTESTED.iter().any(|(u, _)| name.starts_with(u))
        })
        .collect();
    assert!(missing.is_empty(), "no semantic test: {missing:?}");
    let names: Vec<&str> = Opcode::ALL.iter().map(|op| op.name()).collect();
    let unknown: Vec<&String> = tested.iter().filter(|t| !names.contains(&t.as_str())).collect();
    assert!(unknown.is_empty(), "tests name what the table has not: {unknown:?}");
}
