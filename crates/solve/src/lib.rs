//! From a problem to a plan: the solver table, its policy and cost model. Pure: no device, no compiler.
#![forbid(unsafe_code)]

mod caps;
pub mod hazards;
mod model;
mod plan;
mod policy;
mod solvers;
mod table;

pub use caps::{DeviceCaps, usual_boards};
pub use hazards::{Access, Hazards};
pub use model::cost;
pub use plan::{Binding, HasRoles, Launch, Model, Plan, Role};
pub use policy::{Fp16Accumulation, Policy};
pub use solvers::{matmul_solvers, solvers};
pub use table::{
    Candidate, Explanation, Outcome, Refusal, Row, Solvable, SolveError, Solver, explain, plan, plans, ranked,
};
