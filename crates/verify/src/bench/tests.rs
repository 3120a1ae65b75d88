//! Bench on a device whose clock the test winds.

use super::stats::median;
use super::*;
use crate::proof::suites;
use std::collections::HashMap;
use std::path::PathBuf;
use wave32_device::{BufferId, DeviceError, DeviceInfo, DeviceKind, Operands, PlanDevice, Timing};
use wave32_problem::{ConvProblem, ConvSpec, DType, Direction, parse_line};
use wave32_solve::{DeviceCaps, Plan, Role, usual_boards};

/// Takes the milliseconds it is told to, and keeps account of buffers.
struct Wound {
    info: DeviceInfo,
    caps: DeviceCaps,
    /// Milliseconds of successive timed runs, in rotation.
    clock: Vec<f64>,
    /// Sizes of the buffers that are allocated; what is written to them is not kept.
    live: HashMap<BufferId, u64>,
    allocated: u64,
    memory: u64,
    /// Runs that succeed before the device is lost.
    lives: u32,
    sets: Vec<usize>,
    requested: Vec<u32>,
}

impl Wound {
    fn new(clock: &[f64]) -> Self {
        let info = DeviceInfo {
            id: "wound:0".into(),
            name: "Wound <clock> & \"co\"".into(),
            driver: "test 1".into(),
            kind: DeviceKind::Virtual,
            memory_bytes: 1 << 30,
        };
        let caps = DeviceCaps::of(usual_boards()[0]);
        Self {
            info,
            caps,
            clock: clock.to_vec(),
            live: HashMap::new(),
            allocated: 0,
            memory: 4 << 30,
            lives: u32::MAX,
            sets: Vec::new(),
            requested: Vec::new(),
        }
    }

    /// Every role of the plan is bound, large enough.
    fn check(&self, plan: &Plan, operands: &Operands) {
        for role in Role::ALL {
            let need = plan.role_bytes(role);
            if need > 0 {
                let (buffer, offset) = operands.get(role).unwrap_or_else(|| panic!("{role:?} is not bound"));
                assert!(self.live[&buffer] >= offset + need, "{role:?} is too small");
            }
        }
    }
}

impl PlanDevice for Wound {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn alloc(&mut self, bytes: u64) -> Result<BufferId, DeviceError> {
        let in_use: u64 = self.live.values().sum();
        if in_use + bytes > self.memory {
            return Err(DeviceError::OutOfMemory { requested: bytes, in_use });
        }
        self.allocated += 1;
        let id = BufferId(self.allocated);
        self.live.insert(id, bytes);
        Ok(id)
    }

    fn free(&mut self, buffer: BufferId) {
        self.live.remove(&buffer);
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        match self.live.get(&buffer) {
            Some(&size) if offset + data.len() as u64 <= size => Ok(()),
            _ => Err(DeviceError::Misuse("a write past the end or into nothing".into())),
        }
    }

    fn read(&mut self, _: BufferId, _: u64, _: &mut [u8]) -> Result<(), DeviceError> {
        Err(DeviceError::Misuse("bench has nothing to read".into()))
    }

    fn run(&mut self, plan: &Plan, operands: &Operands, deadline: Duration) -> Result<Timing, DeviceError> {
        self.check(plan, operands);
        if self.lives == 0 {
            return Err(DeviceError::Timeout { what: "a kernel".into(), deadline });
        }
        self.lives -= 1;
        Ok(Timing { total: Duration::from_secs_f64(self.clock[0] / 1e3), launches: vec![], submits: 1 })
    }

    fn time(
        &mut self,
        plan: &Plan,
        operands: &[Operands],
        repeats: u32,
        _: Duration,
    ) -> Result<wave32_device::Times, DeviceError> {
        operands.iter().for_each(|set| self.check(plan, set));
        self.sets.push(operands.len());
        self.requested.push(repeats);
        let clock = self.clock.iter().cycle().take(repeats as usize);
        let each: Vec<_> = clock.map(|ms| Duration::from_secs_f64(ms / 1e3)).collect();
        let mean = each.iter().sum::<Duration>() / repeats;
        Ok(wave32_device::Times { each, mean })
    }
}

fn line(text: &str) -> Vec<suites::Entry> {
    suites::select(text).unwrap()
}

fn small() -> Selection {
    let entries = line("MIOpenDriver conv -n 1 -c 16 -H 20 -W 20 -k 32 -y 3 -x 3 -p 1 -q 1 # small");
    select(&entries, &Wish::default()).unwrap()
}

#[test]
fn median_of_the_devices_clock() {
    let mut device = Wound::new(&[4.0, 1.0, 2.0]);
    let settings = Settings { repeats: Some(3), ..Settings::default() };
    let report = run(&mut GpuMeter::new(&mut device), &small(), &settings, |_, _| true);
    assert_eq!(report.rows.iter().map(|r| r.direction.as_str()).collect::<Vec<_>>(), ["fwd", "bwd", "wrw"]);
    assert!(report.ended_early.is_none());
    for row in &report.rows {
        let time = row.time.as_ref().unwrap_or_else(|| panic!("{:?}", row.error));
        assert!((time.median_ms - 2.0).abs() < 1e-9 && (time.min_ms - 1.0).abs() < 1e-9);
        assert!((time.max_ms - 4.0).abs() < 1e-9 && time.runs == 3);
        // 2 * 32 * 20 * 20 * 16 * 9 FLOP in 2 ms.
        assert!((row.tflops().unwrap() - 3_686_400.0 / 2e-3 / 1e12).abs() < 1e-12);
        // (16*400 + 32*400 + 32*16*9) floats in 2 ms.
        assert!((row.gbs().unwrap() - 95_232.0 / 2e-3 / 1e9).abs() < 1e-9);
        // 36 CU * 64 lanes * 2 * 1560 MHz and 288 GB/s (RX 5600 XT): arithmetic 0.000513 ms, memory 0.000331 ms.
        assert!((row.floor_share().unwrap() - 3_686_400.0 / 7.188_48e12 / 2e-3).abs() < 1e-9);
        assert_eq!(parse_line(&row.line).unwrap().len(), 1, "{}", row.line);
    }
    assert!(device.live.is_empty(), "buffers are left behind");
    assert_eq!(device.sets, [1, 1, 1]);
}

#[test]
fn repeats_follow_the_clock_unless_given() {
    let mut device = Wound::new(&[2.0]);
    run(&mut GpuMeter::new(&mut device), &small(), &Settings::default(), |_, _| true);
    assert_eq!(device.requested, [100, 100, 100]);
}

#[test]
fn cold_runs_rotate_past_the_caches() {
    let entries = line("MIOpenDriver conv -n 4 -c 64 -H 128 -W 128 -k 64 -y 1 -x 1 -F 1 # cold");
    let selection = select(&entries, &Wish::default()).unwrap();
    let bytes = selection.cases[0].problem.bytes();
    let mut device = Wound::new(&[1.0]);
    let settings = Settings { mode: BenchMode::Cold, repeats: Some(2), ..Settings::default() };
    let report = run(&mut GpuMeter::new(&mut device), &selection, &settings, |_, _| true);
    assert!(report.rows[0].error.is_none(), "{:?}", report.rows[0].error);
    assert!(device.sets[0] as u64 * bytes > 512 << 20, "{} sets of {bytes}", device.sets[0]);
    assert!(device.live.is_empty());
}

#[test]
fn out_of_memory_is_a_row_and_the_rest_goes_on() {
    let mut entries = line("MIOpenDriver conv -n 8 -c 16 -H 64 -W 64 -k 16 -y 1 -x 1 -F 1 # large");
    entries.extend(line("MIOpenDriver conv -n 1 -c 4 -H 8 -W 8 -k 4 -y 1 -x 1 -F 1 # little"));
    let mut device = Wound::new(&[1.0]);
    device.memory = 1 << 20;
    let selection = select(&entries, &Wish::default()).unwrap();
    let report = run(&mut GpuMeter::new(&mut device), &selection, &Settings::default(), |_, _| true);
    assert!(report.rows[0].error.as_ref().unwrap().contains("out of device memory"));
    assert!(report.rows[1].time.is_some());
    assert!(device.live.is_empty(), "the failed upload leaves buffers behind");
    assert!(table(&report).contains("not timed: large fwd f32"));
}

#[test]
fn a_lost_device_ends_the_walk_with_what_there_is() {
    let mut device = Wound::new(&[1.0]);
    device.lives = 3;
    let report = run(&mut GpuMeter::new(&mut device), &small(), &Settings::default(), |_, _| true);
    assert_eq!(report.rows.len(), 2);
    assert!(report.rows[0].time.is_some() && report.rows[1].time.is_none());
    assert!(report.ended_early.as_ref().unwrap().contains("did not finish"), "{:?}", report.ended_early);
    assert!(table(&report).contains("ended early"));
}

#[test]
fn stopping_says_how_much_is_left() {
    let mut device = Wound::new(&[1.0]);
    let report = run(&mut GpuMeter::new(&mut device), &small(), &Settings::default(), |_, done| done < 2);
    assert_eq!(report.rows.len(), 2);
    assert!(report.ended_early.unwrap().contains("1 problems left"));
}

#[test]
fn all_solvers_has_the_chosen_one_first_and_no_other_twice() {
    let mut device = Wound::new(&[1.0]);
    let settings = Settings { all_solvers: true, repeats: Some(1), ..Settings::default() };
    let report = run(&mut GpuMeter::new(&mut device), &small(), &settings, |_, _| true);
    for direction in Direction::ALL {
        let rows: Vec<_> = report.rows.iter().filter(|r| r.direction == direction.name()).collect();
        assert!(rows.len() > 1, "only one solver takes a plain 3x3");
        assert!(rows[0].chosen && rows[1..].iter().all(|r| !r.chosen));
        let names: std::collections::HashSet<_> = rows.iter().map(|r| &r.solver).collect();
        assert_eq!(names.len(), rows.len());
    }
    let unknown = wave32_solve::Policy { only: Some("none-such".into()), ..Default::default() };
    let settings = Settings { policy: unknown, ..Settings::default() };
    let report = run(&mut GpuMeter::new(&mut device), &small(), &settings, |_, _| true);
    assert!(report.rows.iter().all(|r| r.error.is_some()));
}

#[test]
fn wishes_select() {
    let entries = line("MIOpenDriver convbfp16 -n 1 -c 2 -H 4 -W 4 -k 2 -y 1 -x 1 -F 5 # it");
    let passes = |wish: &Wish| {
        let selection = select(&entries, wish).unwrap();
        let spec = |c: &Case| {
            let spec = c.problem.conv().unwrap().spec();
            (spec.direction, spec.dtype, spec.n)
        };
        (selection.cases.iter().map(spec).collect::<Vec<_>>(), selection.too_large.len())
    };
    use Direction::{BackwardData, BackwardWeights, Forward};
    assert_eq!(passes(&Wish::default()).0, [(Forward, DType::BF16, 1), (BackwardWeights, DType::BF16, 1)]);
    let wish = Wish {
        directions: Some(vec![BackwardData]),
        dtypes: Some(vec![DType::F32, DType::F16]),
        batch: Some(3),
        max_gflop: None,
    };
    assert_eq!(passes(&wish).0, [(BackwardData, DType::F32, 3), (BackwardData, DType::F16, 3)]);
    // 2*2*2*16 = 128 FLOP
    assert_eq!(passes(&Wish { max_gflop: Some(127e-9), ..Wish::default() }), (vec![], 1));
    assert_eq!(passes(&Wish { max_gflop: Some(129e-9), ..Wish::default() }).1, 0);
    assert!(select(&entries, &Wish { batch: Some(-1), ..Wish::default() }).is_err());
}

#[test]
fn the_cpu_is_timed_too() {
    let mut meter = CpuMeter::new(wave32_cpu::Options::default());
    let settings = Settings { repeats: Some(3), ..Settings::default() };
    let wish = Wish { dtypes: Some(DType::ALL.to_vec()), ..Wish::default() };
    let entries = line("MIOpenDriver conv -n 1 -c 4 -H 12 -W 12 -k 6 -y 3 -x 3 -p 1 -q 1 -b 1 # small");
    let report = run(&mut meter, &select(&entries, &wish).unwrap(), &settings, |_, _| true);
    assert_eq!(report.rows.len(), 9);
    for row in &report.rows {
        assert_eq!(row.time.as_ref().map(|t| t.runs), Some(3), "{:?}", row.error);
        assert!(row.floor_ms.is_none());
    }
}

fn sample(ms: &[(&str, &str, bool, f64)]) -> Report {
    let device = &mut Wound::new(&[1.0]);
    let mut report = Report::new(GpuMeter::new(device).subject(), BenchMode::Warm);
    for (index, &(solver, label, chosen, ms)) in ms.iter().enumerate() {
        let h = 8 + label.len() as i64;
        let problem = ConvProblem::new(ConvSpec { h, w: 8, ..ConvSpec::default() }).unwrap();
        let case = Case { label: label.to_string(), problem: problem.into() };
        let row = Row::new(&case, report.subject.rates.as_ref()).timed(&[ms]);
        report.rows.push(Row { solver: solver.into(), chosen, config: format!("c{index}"), ..row });
    }
    report
}

#[test]
fn reports_survive_json_and_disk() {
    let report = sample(&[("a", "one", true, 0.125), ("b", "one", false, 3.0)]);
    let folder = std::env::temp_dir().join(format!("wave32-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("report.json");
    report.save(&path).unwrap();
    assert_eq!(Report::load(&path).unwrap(), report);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "a draft is left behind");
    std::fs::write(&path, "{\"rows\": 3").unwrap();
    assert!(Report::load(&path).unwrap_err().to_string().contains("no report of"));
    let nowhere: PathBuf = folder.join("no/such/folder.json");
    assert!(matches!(report.save(&nowhere), Err(ReportError::File { .. })));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn comparison_pairs_chosen_rows_and_equal_solvers() {
    let a = sample(&[
        ("x", "p", true, 4.0),
        ("y", "p", false, 6.0),
        ("x", "qq", true, 9.0),
        ("x", "only", true, 1.0),
    ]);
    let b = sample(&[("y", "p", true, 2.0), ("x", "qq", true, 1.0), ("z", "qq", false, 7.0)]);
    let comparison = compare(&a, &b);
    let ratios: Vec<_> = comparison.pairs.iter().map(|p| p.speedup().unwrap()).collect();
    assert_eq!(ratios, [2.0, 3.0, 9.0]);
    // "only" of a and z on "qq" of b.
    assert_eq!(comparison.unmatched, 2);
    assert!((comparison.mean("fwd", "f32").unwrap() - 54f64.cbrt()).abs() < 1e-12);
    assert_eq!(comparison.mean("bwd", "f32"), None);
    let text = comparison_table(&a, &b, &comparison);
    assert!(text.contains("fwd f32: B is 3.78 times as fast"), "{text}");
}

#[test]
fn bars_are_xml_with_one_bar_a_row() {
    let rows: Vec<(String, f64)> = (0..9).map(|i| (format!("s{i}"), 10f64.powi(i - 5) * 1.7)).collect();
    let rows: Vec<_> = rows.iter().map(|(s, ms)| (s.as_str(), "la<b>el & \"co\"\u{1}", true, *ms)).collect();
    let report = sample(&rows);
    let text = svg(&report);
    let document = roxmltree::Document::parse(&text).expect("well-formed");
    let bars: Vec<f64> = document
        .descendants()
        .filter(|n| n.has_tag_name("rect") && n.children().any(|c| c.has_tag_name("title")))
        .map(|n| n.attribute("width").unwrap().parse().unwrap())
        .collect();
    assert_eq!(bars.len(), 9);
    // Equal factors are equal steps on a logarithmic axis.
    let steps: Vec<f64> = bars.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(steps.iter().all(|s| *s > 1.0 && (s - steps[0]).abs() < 0.2), "{bars:?}");
    let words: String = document.descendants().filter_map(|n| n.text()).collect();
    for solver in report.rows.iter().map(|r| &r.solver) {
        assert!(words.contains(solver.as_str()));
    }
    assert!(words.contains("la<b>el & \"co\""));
    roxmltree::Document::parse(&svg(&sample(&[]))).expect("well-formed when empty");
}

#[test]
fn tables_show_three_digits_and_totals() {
    let text = table(&sample(&[
        ("a", "one", true, 0.012_345),
        ("b", "one", false, 1234.5),
        ("a", "three", true, 0.02),
    ]));
    assert!(text.contains("0.0123") && text.contains("1234") && text.contains("wound:0"), "{text}");
    // Totals are of the chosen rows: 0.012345 + 0.02.
    assert!(text.contains("fwd f32: 2 problems in 0.0323 ms"), "{text}");
    assert!(text.lines().all(|l| l.chars().count() < 140), "{text}");
    assert_eq!(median(&[1.0]), Some(1.0));
}
