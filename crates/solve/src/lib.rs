//! From a problem to a plan: the solver table, its policy and cost model. Pure: no device, no compiler.
#![forbid(unsafe_code)]

mod candidates;
mod caps;
pub mod hazards;
mod model;
mod plan;
mod policy;
pub mod rates;
mod solvers;
mod table;
mod tuned;

pub use candidates::candidates;
pub use caps::{Compiler, DeviceCaps, usual_boards};
pub use hazards::{Access, Hazards};
pub use model::{SCALAR_EFFICIENCY, cost};
pub use plan::{Binding, HasRoles, Launch, Model, Plan, Prepared, Role};
pub use policy::{Fp16Accumulation, Policy};
pub use solvers::{matmul_solvers, solvers, too_large};
pub use table::{
    Candidate, Explanation, Outcome, Refusal, Row, Solvable, SolveError, Solver, explain, plan, plans, ranked,
};
pub use tuned::{Choice, Tuned, key as tuning_key};
