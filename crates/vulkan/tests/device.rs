//! What is Vulkan's own: the list, the choice, the pipeline cache on disk, cutting, forks.

mod common;

use common::{assert_clean, open, options, seed};
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::time::Duration;
use wave32_device::{DeviceError, Operands, PlanDevice, Runner};
use wave32_problem::{ConvProblem, ConvSpec};
use wave32_solve::{Access, Binding, Launch, Model, Plan, Role};
use wave32_testing::Part;
use wave32_vulkan::{Options, VulkanQueue};

type Device = Runner<VulkanQueue>;

const PATIENCE: Duration = Duration::from_secs(30);

/// A plan of one launch of `kernel` on `count` words of X and Y.
fn plan(kernel: &str, count: u32, params: &[u32], roles: &[Role]) -> Plan {
    let access = |role| if role == Role::Y { Access::Write } else { Access::Read };
    let binding =
        |&role: &Role| Binding { role, offset: 0, size: 4 * u64::from(count), access: access(role) };
    let launch = Launch {
        kernel: kernel.into(),
        grid: [count.div_ceil(64), 1, 1],
        params: params.to_vec(),
        bindings: roles.iter().map(binding).collect(),
        flops: 2 * u64::from(count),
        bytes: 8 * u64::from(count),
        model: Model::Stream { bytes: 0 },
    };
    Plan {
        problem: ConvProblem::new(ConvSpec::default()).unwrap().into(),
        solver: "fixture",
        config: String::new(),
        tuned: false,
        workspace_bytes: 0,
        launches: vec![launch],
        prepared: None,
    }
}

/// X of random words, poisoned Y, and what `step` makes of X.
fn step_operands(device: &mut Device, count: u32, (mul, add): (u32, u32)) -> (Operands, Vec<u8>) {
    let mut rng = rand::rngs::StdRng::seed_from_u64(seed());
    let words: Vec<u32> = (0..count).map(|_| rng.random()).collect();
    let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let x = device.alloc(4 * u64::from(count)).unwrap();
    let y = device.alloc(4 * u64::from(count)).unwrap();
    device.write(x, 0, &bytes(&words)).unwrap();
    device.write(y, 0, &vec![0xa5; 4 * count as usize]).unwrap();
    let result: Vec<u32> = words.iter().map(|w| w.wrapping_mul(mul).wrapping_add(add)).collect();
    (Operands::new().with(Role::X, x, 0).with(Role::Y, y, 0), bytes(&result))
}

fn output(device: &mut Device, operands: &Operands, len: usize) -> Vec<u8> {
    let mut found = vec![0; len];
    device.read(operands.get(Role::Y).unwrap().0, 0, &mut found).unwrap();
    found
}

/// Runs `step` and checks its result: the device works.
fn assert_works(device: &mut Device) {
    let (operands, expected) = step_operands(device, 1000, (3, 7));
    let plan = plan("step", 1000, &[0, 1000, 3, 7], &[Role::X, Role::Y]);
    device.run(&plan, &operands, PATIENCE).unwrap();
    assert_eq!(output(device, &operands, 4000), expected);
}

#[test]
fn the_list_agrees_with_what_opens() {
    let dir = tempfile::tempdir().unwrap();
    let Some(best) = open(options(dir.path())) else { return };
    let listed = wave32_vulkan::list().unwrap();
    assert!(listed.iter().any(|l| l.info.id == best.info().id && l.unusable.is_none()));
    for (index, entry) in listed.iter().enumerate() {
        assert_eq!((entry.index, entry.info.id.as_str()), (index, format!("vulkan:{index}").as_str()));
        let caps = &entry.caps;
        eprintln!("{:?} {caps:?}", entry.info);
        assert!(caps.compute_units > 0 && caps.peak_flops() > 0.0 && caps.wave_size.is_power_of_two());
        assert!(caps.max_group_threads >= 128 && caps.lds_per_group >= 16384 && caps.max_range >= 1 << 27);
        assert!(caps.lds_per_cu >= caps.lds_per_group && caps.offset_alignment.is_power_of_two());
    }
    let missing = wave32_vulkan::open(Some(listed.len()), options(dir.path()));
    assert!(matches!(&missing, Err(DeviceError::NotFound(id)) if *id == format!("vulkan:{}", listed.len())));
}

#[test]
fn long_work_is_cut_into_submits() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = Options { submit_target: Some(Duration::from_micros(1)), ..options(dir.path()) };
    let Some(mut device) = open(tiny) else { return };
    let count = 20_000;
    let (operands, expected) = step_operands(&mut device, count, (5, 9));
    let plan = plan("step", count, &[0, count, 5, 9], &[Role::X, Role::Y]);
    // Said to be a billion times the work, so that a column is a submit whatever the device.
    let mut heavy = plan.clone();
    heavy.launches[0].flops *= 1_000_000_000;
    let timing = device.run(&heavy, &operands, PATIENCE).unwrap();
    assert_eq!(timing.submits, heavy.launches[0].grid[0]);
    assert_eq!(output(&mut device, &operands, expected.len()), expected);
    assert_clean(device.queue());
}

#[test]
fn grids_wider_than_the_device_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut device) = open(options(dir.path())) else { return };
    let most = device.caps().max_groups[0];
    if most > 1 << 20 {
        eprintln!("skipped: the device launches {most} groups at once");
        return;
    }
    let count = 5000;
    let (operands, expected) = step_operands(&mut device, count, (5, 9));
    let mut plan = plan("step", count, &[0, count, 5, 9], &[Role::X, Role::Y]);
    plan.launches[0].grid[0] = 2 * most + 1; // those past `count` do nothing
    device.run(&plan, &operands, PATIENCE).unwrap();
    assert_eq!(device.time(&plan, &[operands], 2, PATIENCE).unwrap().each.len(), 2);
    assert_eq!(output(&mut device, &operands, expected.len()), expected);
    plan.launches[0].grid = [1, device.caps().max_groups[1] + 1, 1];
    assert!(matches!(device.run(&plan, &operands, PATIENCE), Err(DeviceError::Unsupported(_))));
    assert_clean(device.queue());
}

#[test]
fn kernels_the_device_cannot_run_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut device) = open(options(dir.path())) else { return };
    for (kernel, params, roles, why) in [
        ("needs_int64_atomics", &[0][..], &[Role::Y][..], "capability 12"),
        ("truncated", &[0, 1, 1, 1], &[Role::X, Role::Y], "not SPIR-V"),
    ] {
        match device.prepare(&plan(kernel, 64, params, roles)) {
            Err(DeviceError::Unsupported(text)) => {
                assert!(text.contains(why) && text.contains(kernel), "{text}")
            }
            other => panic!("{kernel}: {other:?}"),
        }
    }
    let most = device.caps().max_range;
    let mut wide = plan("step", 64, &[0, 64, 1, 1], &[Role::X, Role::Y]);
    wide.launches[0].bindings[0].size = most + 1;
    assert!(matches!(device.prepare(&wide), Err(DeviceError::Unsupported(_))));
    assert_works(&mut device);
    assert_clean(device.queue());
}

#[test]
fn every_shipped_kernel_becomes_a_pipeline() {
    let dir = tempfile::tempdir().unwrap();
    let shipped = Options { kernels: Options::default().kernels, ..options(dir.path()) };
    let Some(mut device) = open(shipped) else { return };
    let part = Part::of(device.info().kind);
    let mut random = rand::rngs::StdRng::seed_from_u64(seed());
    let mut made = 0;
    for variant in part.pick_one_of(8, wave32_params::variants::all(), &mut random) {
        let roles = vec![Role::X; variant.buffers as usize];
        match device.prepare(&plan(&variant.name, 64, &vec![0; variant.params as usize], &roles)) {
            Ok(()) => made += 1,
            Err(DeviceError::Unsupported(why)) => eprintln!("{why}"), // 16-bit storage, threads, ...
            Err(error) => panic!("{}: {error}", variant.name),
        }
    }
    assert!(made > 0, "none of {} variants", wave32_params::variants::all().len());
    assert_clean(device.queue());
}

#[test]
fn the_memory_cap_holds() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut device) = open(Options { memory_cap: Some(10_240), ..options(dir.path()) }) else { return };
    let first = device.alloc(6_000).unwrap();
    match device.alloc(6_000) {
        Err(DeviceError::OutOfMemory { requested: 6_000, in_use: 6_144 }) => {}
        other => panic!("{other:?}"),
    }
    device.free(first);
    device.alloc(10_000).unwrap();
    assert_eq!(device.queue().heap_stats().allocated, 10_240, "whole multiples of 512");
}

#[test]
fn many_buffers_and_sets_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut device) = open(options(dir.path())) else { return };
    // More descriptor sets than one pool holds, each with its own buffers, freed in between.
    for round in 0..700u32 {
        let (mul, add) = (round | 1, round);
        let (operands, expected) = step_operands_quiet(&mut device, mul, add);
        device.run(&plan("step", 64, &[0, 64, mul, add], &[Role::X, Role::Y]), &operands, PATIENCE).unwrap();
        assert_eq!(output(&mut device, &operands, 256), expected, "round {round}");
        if round % 3 == 0 {
            [Role::X, Role::Y].iter().for_each(|role| device.free(operands.get(*role).unwrap().0));
        }
    }
    assert_clean(device.queue());
}

fn step_operands_quiet(device: &mut Device, mul: u32, add: u32) -> (Operands, Vec<u8>) {
    let (x, y) = (device.alloc(256).unwrap(), device.alloc(256).unwrap());
    let bytes = |f: &dyn Fn(u32) -> u32| (0..64).flat_map(|i| f(i).to_le_bytes()).collect::<Vec<u8>>();
    device.write(x, 0, &bytes(&|i| i * 0x0101_0101)).unwrap();
    device.write(y, 0, &[0xa5; 256]).unwrap();
    let expected = bytes(&|i| (i * 0x0101_0101).wrapping_mul(mul).wrapping_add(add));
    (Operands::new().with(Role::X, x, 0).with(Role::Y, y, 0), expected)
}

fn cache_files(dir: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn the_pipeline_cache_survives_anything() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut device) = open(options(dir.path())) else { return };
    assert_works(&mut device);
    drop(device);
    let [file] = cache_files(dir.path()).try_into().expect("one file");
    let good = std::fs::read(&file).unwrap();
    assert!(good.len() > 80, "{} bytes", good.len());
    let garbage: Vec<u8> = (0..5000u32).map(|i| (i * 31) as u8).collect();
    for damaged in [&good[..good.len() / 2], &[], &garbage, &[&good[..], b"tail"].concat()] {
        std::fs::write(&file, damaged).unwrap();
        let mut device = open(options(dir.path())).unwrap();
        assert_works(&mut device);
        assert_clean(device.queue());
        drop(device);
        assert_eq!(std::fs::read(&file).unwrap()[..80], good[..80], "rewritten, the same header");
    }
    // A folder that cannot be made, since a file is in its way.
    let mut device = open(options(&file.join("below"))).unwrap();
    assert_works(&mut device);
    drop(device);
    assert_eq!(cache_files(dir.path()), [file], "nothing is left behind");
}

#[cfg(unix)]
#[test]
fn a_forked_child_is_told_to_open_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut device) = open(options(dir.path())) else { return };
    assert_works(&mut device);
    // SAFETY: the child calls nothing but this crate's guard and `_exit`; it takes no lock that another
    // thread of the parent could hold, except the allocator's, which the C library makes safe.
    let status = unsafe {
        match libc::fork() {
            0 => {
                let told = matches!(device.alloc(4), Err(DeviceError::Misuse(text)) if text.contains("fork"));
                drop(device); // must not hang, nor touch the parent's device
                libc::_exit(if told { 0 } else { 1 });
            }
            child => {
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                status
            }
        }
    };
    assert_eq!(status, 0, "the child's exit status");
    assert_works(&mut device);
    assert_clean(device.queue());
}

#[test]
fn no_driver_is_an_error_with_advice() {
    const CHILD: &str = "WAVE32_TEST_NO_DRIVER";
    if std::env::var_os(CHILD).is_some() {
        for error in [wave32_vulkan::list().err(), wave32_vulkan::open(None, Options::default()).err()] {
            match error {
                Some(DeviceError::Unavailable(text)) => assert!(text.contains("install"), "{text}"),
                other => panic!("{other:?}"),
            }
        }
        return;
    }
    // The loader reads its environment once, so this needs a process of its own.
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "no_driver_is_an_error_with_advice"])
        .env(CHILD, "1")
        .envs(["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].map(|name| (name, "/no/such/driver.json")))
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
fn a_device_can_move_between_threads() {
    fn assert_send<T: Send>() {}
    assert_send::<VulkanQueue>();
}
