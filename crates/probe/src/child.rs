//! The child's side: one MIOpen on one device, attempts from standard input, answers on standard output.

use crate::attempt::attempt;
use crate::protocol::{Finding, Reply, Request, SolverVerdict};
use crate::vendor::Vendor;
use crate::vendor_conv::VendorConv;
use wave32_problem::{ConvProblem, ConvSpec};
use wave32_verify::guard::{requests, say};

/// Serves until standard input ends, then ends the process.
pub fn serve() {
    let mut vendor: Option<Vendor> = None;
    for line in requests() {
        match serde_json::from_str(&line) {
            Ok(Request::Open { library, device }) => match Vendor::open(&library, device) {
                Ok(opened) => {
                    say(&Reply::Ready(Box::new(opened.identity().clone())));
                    vendor = Some(opened);
                }
                Err(text) => say(&Reply::NotOpen(text)),
            },
            Ok(Request::List(spec)) => match &vendor {
                Some(vendor) => say(&Reply::Offers(solutions(vendor, *spec))),
                None => say(&Reply::NotOpen("no device was opened".into())),
            },
            Ok(Request::Try(job)) => match &vendor {
                Some(vendor) => {
                    let finding = attempt(vendor, &job, &mut |stage| say(&Reply::Stage(stage.into())));
                    say(&Reply::Done(finding));
                }
                None => say(&Reply::NotOpen("no device was opened".into())),
            },
            Err(error) => say(&Reply::NotOpen(format!("request not understood: {error}"))),
        }
    }
    drop(vendor);
    std::process::exit(0);
}

fn solutions(vendor: &Vendor, spec: ConvSpec) -> Result<Vec<crate::protocol::VendorSolution>, Finding> {
    let problem = ConvProblem::new(spec).map_err(|e| Finding::of(SolverVerdict::Refuses, e.to_string()))?;
    VendorConv::new(vendor, &problem)?.solutions()
}
