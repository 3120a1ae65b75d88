//! The oracle as a filter: one JSON case a line in, the output's elements a line out.
//!
//! In: `{"spec": ConvSpec, "a": [...], "b": [...], "bias": [...] or null}`. Out: `[...]`.

use std::io::BufRead;
use wave32_cpu::{Inputs, oracle};
use wave32_problem::{ConvProblem, ConvSpec};

#[derive(serde::Deserialize)]
struct Case {
    spec: ConvSpec,
    a: Vec<f64>,
    b: Vec<f64>,
    bias: Option<Vec<f64>>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in std::io::stdin().lock().lines() {
        let case: Case = serde_json::from_str(&line?)?;
        let p = ConvProblem::new(case.spec)?;
        let out = oracle::conv(&p, &Inputs { a: &case.a, b: &case.b, bias: case.bias.as_deref() });
        println!("{}", serde_json::to_string(&out)?);
    }
    Ok(())
}
