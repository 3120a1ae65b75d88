//! The plugin in a host of our own on the strict virtual card, under AMD's HIP runtime, against f64 loops.

mod common;

use common::host::Host;
use common::reference::{Behind, Case, Lies, PASSES, Pass, TYPES};
use common::write::RELU;
use common::{on_card, seed};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// A host with a handle on a stream of its own, and random numbers.
fn with_host(body: impl FnOnce(&Host, usize, *mut std::ffi::c_void, &mut StdRng)) {
    let random = &mut StdRng::seed_from_u64(seed());
    let host = Host::open();
    let stream = host.stream();
    let handle = host.handle(stream);
    body(&host, handle, stream, random);
    // SAFETY: made above; nothing uses them any more.
    unsafe {
        host.ok((host.plugin.destroy)(handle), "destroy");
        assert_eq!((host.hip.end_stream)(stream), 0);
    }
}

#[test]
fn every_pass_in_every_type_and_layout() {
    on_card("every_pass_in_every_type_and_layout", || {
        with_host(|host, handle, stream, random| {
            for pass in PASSES {
                for dtype in TYPES {
                    for lies in [Lies::Nchw, Lies::Nhwc, Lies::Strided] {
                        for _ in 0..2 {
                            let case = Case::random(random, pass, dtype, lies);
                            host.run(handle, stream, &case, random);
                        }
                    }
                }
            }
        });
    });
}

#[test]
fn a_bias_and_an_activation_behind_it() {
    on_card("a_bias_and_an_activation_behind_it", || {
        with_host(|host, handle, stream, random| {
            let activations = [
                None,
                Some((RELU, vec![])),
                Some((RELU, vec![(3, 0.25)])),
                Some((RELU, vec![(1, -0.5), (2, 0.75)])),
                Some((1, vec![])),
                Some((14, vec![(10, 0.5)])),
                Some((37, vec![])),
                Some((47, vec![])),
            ];
            for (at, activation) in activations.into_iter().enumerate() {
                for (dtype, lies) in TYPES.into_iter().zip([Lies::Nchw, Lies::Nhwc, Lies::Strided]) {
                    let lies = if at % 2 == 0 { lies } else { Lies::Nhwc };
                    for bias in [true, false] {
                        let case = Case::random(random, Pass::Forward, dtype, lies);
                        let behind = Behind { bias, activation: activation.clone() };
                        host.run(handle, stream, &Case { behind, ..case }, random);
                    }
                }
            }
            // PyTorch's transposed convolution with a bias is a gradient of data with one.
            for dtype in TYPES {
                for lies in [Lies::Nchw, Lies::Nhwc] {
                    let case = Case::random(random, Pass::Data, dtype, lies);
                    let behind = Behind { bias: true, activation: None };
                    host.run(handle, stream, &Case { behind, ..case }, random);
                }
            }
        });
    });
}

#[test]
fn lines_and_volumes_of_one_layer() {
    on_card("lines_and_volumes_of_one_layer", || {
        with_host(|host, handle, stream, random| {
            for pass in PASSES {
                for (at, dtype) in TYPES.into_iter().enumerate() {
                    let bias = pass != Pass::Weights;
                    let activation =
                        (pass == Pass::Forward && at > 0).then(|| (if at == 1 { RELU } else { 37 }, vec![]));
                    let behind = Behind { bias, activation };
                    let case = Case { behind, ..Case::random(random, pass, dtype, Lies::Nchw) };
                    host.run(handle, stream, &Case { rank: 5, ..case.clone() }, random);
                    host.run(handle, stream, &case.line(), random);
                }
            }
        });
    });
}
