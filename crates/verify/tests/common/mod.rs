//! A plan run on the device under test, and how far its result is from the f64 oracle's.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use wave32_cpu::{Inputs, oracle};
use wave32_device::{DeviceError, Operands, PlanDevice, Runner};
use wave32_kernelc::glsl;
use wave32_problem::{Activation, DType, Direction, Epilogue, Layout};
use wave32_solve::{Plan, Role};
use wave32_verify::backend::Backend;
use wave32_verify::tolerance::Tolerance;
use wave32_vulkan::{Kernel, KernelSource, Shipped, VulkanQueue};

const DEADLINE: Duration = Duration::from_secs(120);

/// The device under test: the best Vulkan one, or that of `WAVE32_TEST_DEVICE`.
fn name() -> String {
    std::env::var("WAVE32_TEST_DEVICE").unwrap_or_else(|_| "vulkan".into())
}

/// None where there is no driver (then the test is skipped, unless one is demanded).
fn opened<T>(result: Result<T, DeviceError>) -> Option<T> {
    let demanded = if name().starts_with("hip") { "WAVE32_REQUIRE_HIP" } else { "WAVE32_REQUIRE_VULKAN" };
    match result {
        Ok(device) => Some(device),
        Err(DeviceError::Unavailable(why)) if std::env::var_os(demanded).is_none() => {
            eprintln!("skipped: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The device under test.
pub fn open() -> Option<Box<dyn PlanDevice>> {
    match opened(Backend::open(&name()))? {
        Backend::Gpu(device) => Some(device),
        Backend::Cpu => panic!("WAVE32_TEST_DEVICE={}: a GPU is wanted", name()),
    }
}

/// The Vulkan device under test with kernels whose matrix instructions and dot products are emulated (`kernels/matrix.h`, `dot.h`);
/// none for HIP.
pub fn open_emulated() -> Option<Runner<VulkanQueue>> {
    if name().starts_with("hip") {
        return None;
    }
    let kernels = |name: &str| {
        let kernel = Shipped.kernel(name)?;
        Some(match glsl::emulated(name) {
            Some(spirv) => Kernel { spirv: spirv.unwrap().into(), ..kernel },
            None => kernel,
        })
    };
    let options = wave32_vulkan::Options { kernels: Arc::new(kernels), ..wave32_vulkan::Options::default() };
    opened(wave32_vulkan::open(None, options)).map(Runner::new)
}

/// The generator, with a seed that a variable may give and that is printed.
pub fn random() -> StdRng {
    let given = std::env::var("WAVE32_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let seed = given.unwrap_or_else(rand::random);
    println!("WAVE32_TEST_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// Values as the device stores them, and as the oracle sees them.
fn encode(values: &[f64], dtype: DType) -> (Vec<u8>, Vec<f64>) {
    let mut bytes = Vec::new();
    let mut exact = Vec::new();
    for &v in values {
        match dtype {
            DType::F32 => {
                bytes.extend((v as f32).to_le_bytes());
                exact.push(f64::from(v as f32));
            }
            DType::F16 => {
                let h = half::f16::from_f64(v);
                bytes.extend(h.to_le_bytes());
                exact.push(h.to_f64());
            }
            DType::BF16 => {
                let h = half::bf16::from_f64(v);
                bytes.extend(h.to_le_bytes());
                exact.push(h.to_f64());
            }
        }
    }
    (bytes, exact)
}

fn decode(bytes: &[u8], dtype: DType) -> Vec<f64> {
    match dtype {
        DType::F32 => {
            bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
        }
        DType::F16 => {
            bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f64()).collect()
        }
        DType::BF16 => {
            bytes.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f64()).collect()
        }
    }
}

/// Roles of (first operand, second operand, result).
fn roles(direction: Direction) -> [Role; 3] {
    match direction {
        Direction::Forward => [Role::X, Role::W, Role::Y],
        Direction::BackwardData => [Role::Y, Role::W, Role::X],
        Direction::BackwardWeights => [Role::X, Role::Y, Role::W],
    }
}

/// Runs the plan on fresh random operands; returns the normwise error against the oracle.
pub fn error_of(device: &mut dyn PlanDevice, plan: &Plan, rng: &mut StdRng) -> f64 {
    error_on(device, plan, &mut |_, _| rng.random_range(-1.0..1.0))
}

/// The same of its form that adds to what lies in the result's place; none where there is no such form.
pub fn error_of_sum(device: &mut dyn PlanDevice, plan: &Plan, rng: &mut StdRng) -> Option<f64> {
    let plan = plan.summing()?;
    let count = plan.role_bytes(Role::Y) / plan.problem.dtype().size();
    let before: Vec<f64> = (0..count).map(|_| rng.random_range(-8.0..8.0)).collect();
    let (encoded, before) = encode(&before, plan.problem.dtype());
    let conv = plan.problem.conv().expect("of a convolution");
    let Epilogue { bias, activation } = conv.spec().epilogue;
    let linear = conv.with_epilogue(Epilogue { bias, activation: Activation::None }).expect("a part of it");
    let oracle = |inputs: &Inputs<f64>| {
        let sums = oracle::conv(&linear, inputs).into_iter().zip(&before).map(|(y, before)| y + before);
        sums.map(|y| activation.apply(y)).collect()
    };
    Some(error_beside(device, &plan, &encoded, &mut |_, _| rng.random_range(-1.0..1.0), &oracle))
}

/// The larger error of its form that writes the moments of the result's channels too, of the result or of those; none where there
/// is no such form.
pub fn error_of_statistics(device: &mut dyn PlanDevice, plan: &Plan, rng: &mut StdRng) -> Option<f64> {
    let plan = plan.with_statistics()?;
    Some(error_of(device, &plan, rng))
}

/// The largest error of a channel's mean or variance, relative to the root mean square of all of `want`.
fn error_of_moments(plan: &Plan, moments: &[u8], want: &[f64]) -> f64 {
    let conv = plan.problem.conv().expect("of a convolution");
    let (channels, pixels) = (conv.spec().k as usize, (conv.out_h() * conv.out_w()) as usize);
    let channel_of = |at: usize| match conv.spec().layout {
        Layout::Nchw => at / pixels % channels,
        Layout::Nhwc => at % channels,
    };
    let square = want.iter().map(|w| w * w).sum::<f64>() / want.len() as f64;
    let moments = decode(moments, DType::F32);
    let per_channel = moments.len() / channels;
    let mut worst = 0.0f64;
    for (c, parts) in moments.chunks_exact(per_channel).enumerate() {
        let of_it: Vec<f64> =
            want.iter().enumerate().filter(|(at, _)| channel_of(*at) == c).map(|(_, w)| *w).collect();
        let n = of_it.len() as f64;
        let mean = of_it.iter().sum::<f64>() / n;
        let variance = of_it.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / n;
        let parts: Vec<&[f64]> = parts.chunks_exact(4).collect();
        assert_eq!(parts.iter().map(|part| part[0]).sum::<f64>(), n, "{}: channel {c}", plan.problem);
        let got = parts.iter().map(|part| part[0] * part[1]).sum::<f64>() / n;
        let about = parts.iter().map(|part| part[2] + part[0] * (part[1] - got).powi(2));
        let spread = about.sum::<f64>() / n;
        // NaN is the worst.
        let error = (got - mean).abs() / square.sqrt() + (spread - variance).abs() / square;
        worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
    }
    worst
}

/// As [`error_of`], on operands of `value(role, index)`.
pub fn error_on(device: &mut dyn PlanDevice, plan: &Plan, value: &mut dyn FnMut(Role, u64) -> f64) -> f64 {
    error_beside(device, plan, &[], value, &|inputs| oracle::all(&plan.problem, inputs))
}

/// The same against `oracle`, of a plan whose result's place holds `before`; poison where that is empty.
fn error_beside(
    device: &mut dyn PlanDevice,
    plan: &Plan,
    before: &[u8],
    value: &mut dyn FnMut(Role, u64) -> f64,
    oracle: &dyn Fn(&Inputs<f64>) -> Vec<f64>,
) -> f64 {
    let p = &plan.problem;
    let dtype = p.dtype();
    let [a, b, out] = roles(p.conv().map_or(Direction::Forward, |p| p.spec().direction));
    let mut operands = Operands::new();
    let mut buffers = Vec::new();
    let mut exact: Vec<(Role, Vec<f64>)> = Vec::new();
    for role in Role::ALL {
        let bytes = plan.role_bytes(role);
        if bytes == 0 {
            continue;
        }
        let buffer = device.alloc(bytes).expect("device memory");
        if role == a || role == b || role == Role::Bias {
            let values: Vec<f64> = (0..bytes / dtype.size()).map(|index| value(role, index)).collect();
            let (encoded, values) = encode(&values, dtype);
            device.write(buffer, 0, &encoded).expect("write");
            exact.push((role, values));
        } else if role == out && !before.is_empty() {
            device.write(buffer, 0, before).expect("write");
        } else {
            device.write(buffer, 0, &vec![0xff; bytes as usize]).expect("poison");
        }
        operands = operands.with(role, buffer, 0);
        buffers.push(buffer);
    }
    device
        .run(plan, &operands, DEADLINE)
        .unwrap_or_else(|e| panic!("{p}: {} {}: {e}", plan.solver, plan.config));
    let mut result = vec![0; plan.role_bytes(out) as usize];
    let (buffer, _) = operands.get(out).expect("the result's buffer");
    device.read(buffer, 0, &mut result).expect("read");
    let mut moments = vec![0; plan.role_bytes(Role::Statistics) as usize];
    if let Some((buffer, _)) = operands.get(Role::Statistics) {
        device.read(buffer, 0, &mut moments).expect("read");
    }
    for buffer in buffers {
        device.free(buffer);
    }
    let of = |role| exact.iter().find(|(r, _)| *r == role).map(|(_, v)| v.as_slice());
    let inputs = Inputs { a: of(a).expect("a"), b: of(b).expect("b"), bias: of(Role::Bias) };
    let want = oracle(&inputs);
    let got = decode(&result, dtype);
    let (mut off, mut norm) = (0.0, 0.0f64);
    for (g, w) in got.iter().zip(&want) {
        off += (g - w).powi(2);
        norm += w.powi(2);
    }
    if p.activation().cuts_large() {
        norm = norm.max(want.len() as f64 * Tolerance::new(p, plan.solver).typical.powi(2));
    }
    let error = if norm == 0.0 { off.sqrt() } else { (off / norm).sqrt() };
    if moments.is_empty() || norm == 0.0 { error } else { error.max(error_of_moments(plan, &moments, &want)) }
}
