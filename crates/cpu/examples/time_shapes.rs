//! Times the backend on request: one JSON line in, one out, so that another program can alternate with it.
//!
//! In: `{"spec": ConvSpec, "threads": 2, "repeats": 5}`. Out: `{"seconds": [...], "way": "gemm"}`.

use rand::{Rng, SeedableRng, rngs::StdRng};
use std::io::{BufRead, Write};
use std::time::Instant;
use wave32_cpu::{Options, TensorMut, TensorRef, run_reported};
use wave32_problem::{ConvProblem, ConvSpec, Direction};

#[derive(serde::Deserialize)]
struct Request {
    spec: ConvSpec,
    threads: usize,
    repeats: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in std::io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?)?;
        let p = ConvProblem::new(request.spec)?;
        let mut rng = StdRng::seed_from_u64(1);
        let mut random = |len: u64| (0..len).map(|_| rng.random_range(-1.0..1.0f32)).collect::<Vec<_>>();
        let (x, w, y) = (p.x_elements(), p.w_elements(), p.y_elements());
        let (a, b) = match p.spec().direction {
            Direction::Forward => (x, w),
            Direction::BackwardData => (y, w),
            Direction::BackwardWeights => (x, y),
        };
        let (a, b) = (random(a), random(b));
        let options = Options { threads: request.threads, ..Options::default() };
        let (mut seconds, mut way) = (Vec::new(), "");
        for _ in 0..request.repeats {
            // PyTorch allocates its result in the timed call, so we do as well.
            let start = Instant::now();
            let mut out = vec![0.0f32; p.output_elements() as usize];
            let (a, b) = (TensorRef::F32(&a), TensorRef::F32(&b));
            way = run_reported(&p, a, b, None, TensorMut::F32(&mut out), &options)?.way;
            std::hint::black_box(&out);
            drop(out);
            seconds.push(start.elapsed().as_secs_f64());
        }
        println!("{}", serde_json::json!({ "seconds": seconds, "way": way }));
        std::io::stdout().flush()?;
    }
    Ok(())
}
