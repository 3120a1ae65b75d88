//! Every kernel: a plan that launches it, and its result.

use crate::common::{error_of, error_of_sum, open, open_emulated, random};
use crate::shapes::{problems, shapes_for};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use wave32_device::PlanDevice;
use wave32_params::variants::{self, Variant};
use wave32_problem::ConvSpec;
use wave32_solve::{DeviceCaps, Fp16Accumulation, Plan, Policy};
use wave32_testing::Part;
use wave32_verify::tolerance::normwise;

/// Plans by the kernel that each of them launches.
type Plans = BTreeMap<&'static str, Plan>;

/// Which kernels a test is about.
type KernelFilter<'a> = &'a dyn Fn(&Variant) -> bool;

/// The cheapest plan over the shapes that launches each of the kernels, by kernel.
fn cheapest(kernels: &[&'static Variant], caps: &DeviceCaps) -> Plans {
    let mut found = Plans::new();
    let flops = |plan: &Plan| plan.launches.iter().map(|launch| launch.flops).sum::<u64>();
    let splits = |tag: &str| [1, 2, 3].map(|splits| format!("{tag}/{splits}"));
    // With the others, many partial results are added, and filters are prepared for sums in f32 and in f16.
    let of_planes = ["f4/hm64x64/1", "f4/hm64x64k16/1", "f4/hvt64x64/1", "f2/k32"];
    let packed = ["g64x64/16", "p64x64/1", "hp64x64/1", "hp64x64k16/1", "hp64x64k8/1", "dp64x64/1"];
    let others = of_planes.into_iter().chain(packed).map(String::from).collect::<Vec<_>>();
    let configs = |tag: &str| {
        let tags = vec![tag.to_string(), format!("f4/{tag}/1")];
        [tags, splits(tag).to_vec(), others.clone()].concat()
    };
    for variant in kernels {
        for spec in shapes_for(variant) {
            for problem in problems(&ConvSpec { dtype: variant.dtype, ..spec.clone() }) {
                let forced = configs(&variant.tag).into_iter().map(Some);
                for config in forced.chain([None]) {
                    let fp16_accumulation = Fp16Accumulation::Always;
                    let policy = Policy { config, fp16_accumulation, ..Policy::default() };
                    for plan in wave32_solve::plans(&problem, caps, &policy) {
                        let launches = plan.launches.iter().any(|launch| launch.kernel == variant.name);
                        let better =
                            found.get(variant.name.as_str()).is_none_or(|old| flops(&plan) < flops(old));
                        if launches && better {
                            found.insert(&variant.name, plan);
                        }
                    }
                }
            }
        }
    }
    found
}

/// Sources, and solvers, of the kernels that only products use.
const OF_PRODUCTS: [&str; 2] = ["gemm", "skinny"];

/// Each kernel that convolutions use has a plan that launches it; [`all_right`] says how many are run. Kernels that gave right
/// results are added to the file `WAVE32_TEST_KERNELS`, if that is set.
#[test]
fn every_kernel_of_convolutions_is_right() {
    check(convolution_plans);
}

/// Each kernel that only products use, as [`every_kernel_of_convolutions_is_right`].
#[test]
fn every_kernel_of_products_is_right() {
    check(product_plans);
}

/// The plans of kernels without dot products are right; of those of matrix instructions where the device has them.
fn check(make_plans: fn(&DeviceCaps, KernelFilter<'_>) -> Plans) {
    let Some(mut device) = open() else { return };
    let has_matrix = device.caps().float16_matrix;
    let plans = make_plans(device.caps(), &|v| (has_matrix || !v.is_matrix()) && !v.is_dot());
    all_right(device.as_mut(), &plans);
}

/// Each kernel of dot products, on a device that has them.
#[test]
fn every_kernel_of_dot_products_is_right() {
    let Some(mut device) = open() else { return };
    if !device.caps().float16_dot {
        println!("not checked: {} has no dot products", device.info().id);
        return;
    }
    let mut plans = convolution_plans(device.caps(), &Variant::is_dot);
    plans.extend(product_plans(device.caps(), &Variant::is_dot));
    assert!(!plans.is_empty());
    all_right(device.as_mut(), &plans);
}

/// Each kernel of matrix instructions or dot products, on a device that lacks them: what surrounds these is the same.
#[test]
fn every_kernel_of_emulated_instructions_is_right() {
    let Some(mut device) = open_emulated() else { return };
    let caps = DeviceCaps { float16_matrix: true, float16_dot: true, ..device.caps().clone() };
    let filter = |v: &Variant| v.needs_instructions() && v.matrix_lds() <= caps.lds_per_group;
    let mut plans = convolution_plans(&caps, &filter);
    plans.extend(product_plans(&caps, &filter));
    assert!(!plans.is_empty());
    all_right(&mut device, &plans);
}

/// Runs each kernel's plan, or one of [`crate::PART`].
fn all_right(device: &mut dyn PlanDevice, plans: &Plans) {
    let mut rng = random();
    let plans = Part::of(device.info().kind).pick_one_of(crate::PART, plans, &mut rng);
    let (mut failures, mut right) = (Vec::new(), String::new());
    for &(name, plan) in &plans {
        let errors = [error_of(device, plan, &mut rng), error_of_sum(device, plan, &mut rng).unwrap_or(0.0)];
        match errors.iter().all(|&error| error <= normwise(plan.problem.dtype(), plan.solver)) {
            true => right += &format!("{name}\n"),
            false => failures
                .push(format!("{name}: {}: {} {}: {errors:?}", plan.problem, plan.solver, plan.config)),
        }
    }
    if let Some(file) = std::env::var_os("WAVE32_TEST_KERNELS") {
        let mut file = std::fs::File::options().append(true).create(true).open(file).unwrap();
        file.write_all(right.as_bytes()).unwrap();
    }
    assert!(failures.is_empty(), "{} of {} wrong:\n{}", failures.len(), plans.len(), failures.join("\n"));
}

/// Whether only products use it: tiles whose sum runs through images are for the gradients of filters, those of planes for Winograd.
fn is_of_products(variant: &Variant) -> bool {
    let of_convolutions = variant.defines.contains_key("IMAGES") || variant.is_of_planes();
    OF_PRODUCTS.contains(&variant.source.as_str()) && !of_convolutions
}

/// Plans of convolutions for the kernels of the filter that they use.
fn convolution_plans(caps: &DeviceCaps, filter: KernelFilter<'_>) -> Plans {
    // What is compiled for RDNA1 only is for operations besides convolution.
    let of_others = |v: &Variant| {
        v.defines.contains_key("RDNA1") || v.source.starts_with("attention") || is_of_products(v)
    };
    let kernels: Vec<&Variant> = variants::all().iter().filter(|v| !of_others(v) && filter(v)).collect();
    let plans = cheapest(&kernels, caps);
    assert_complete(&plans, &kernels);
    plans
}

fn assert_complete(plans: &Plans, kernels: &[&Variant]) {
    let names = kernels.iter().map(|v| v.name.as_str());
    let missing: Vec<&str> = names.filter(|name| !plans.contains_key(name)).collect();
    assert!(missing.is_empty(), "no plan launches {missing:?}");
}

/// Plans of products for the kernels of the filter that only products use.
fn product_plans(caps: &DeviceCaps, filter: KernelFilter<'_>) -> Plans {
    let skinny = ["rows", "columns", "outer"].map(|form| ["a", "b"].map(|side| format!("{form}-{side}/1")));
    let tiles = variants::all().iter().filter(|v| v.source == "gemm").map(|v| format!("{}/1", v.tag));
    let configs = skinny.as_flattened().iter().cloned().chain(tiles).collect::<BTreeSet<_>>();
    let mut plans = Plans::new();
    // Few rows or terms and up to 16; rows of a length for vectors, and odd ones.
    for [m, n, k] in [[3, 68, 36], [13, 72, 40], [13, 67, 37], [68, 72, 3], [68, 72, 13], [67, 71, 13]] {
        for (word, u, v) in ["gemm", "gemmfp16", "gemmbfp16"]
            .into_iter()
            .flat_map(|word| [(word, 0, 0), (word, 0, 1), (word, 1, 0)])
        {
            let line = format!("MIOpenDriver {word} -m {m} -n {n} -k {k} -u {u} -v {v}");
            for problem in wave32_problem::parse_line(&line).unwrap() {
                for (only, config) in
                    OF_PRODUCTS.into_iter().flat_map(|only| configs.iter().map(move |c| (only, c)))
                {
                    let fp16_accumulation = Fp16Accumulation::Always;
                    let policy = Policy {
                        only: Some(only.into()),
                        config: Some(config.clone()),
                        fp16_accumulation,
                        ..Policy::default()
                    };
                    for plan in wave32_solve::plans(&problem, caps, &policy) {
                        let kernels = plan.launches.iter().map(|launch| launch.kernel.clone());
                        for kernel in kernels.collect::<Vec<_>>() {
                            let variant = variants::find(&kernel).expect("a variant");
                            plans.entry(variant.name.as_str()).or_insert_with(|| plan.clone());
                        }
                    }
                }
            }
        }
    }
    let kernels: Vec<&Variant> = variants::all().iter().filter(|v| is_of_products(v) && filter(v)).collect();
    plans.retain(|name, _| kernels.iter().any(|v| v.name == *name));
    assert_complete(&plans, &kernels);
    plans
}
