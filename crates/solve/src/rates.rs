//! How long workgroups of each kernel variant take on RDNA1, by the code of each compiler: the table `rates.tsv`.
//!
//! `make rates` makes it from the instruction model (docs/model.md): a sample of the solvers' launches is simulated with
//! the code that runs, and four numbers are fitted for each variant.

use crate::caps::Compiler;
use crate::{DeviceCaps, Launch, Model, Plan};
use std::collections::HashMap;
use std::sync::LazyLock;
use wave32_params::variants;
use wave32_problem::DType;

/// Clocks of a variant's workgroups on a workgroup processor (WGP).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Workgroups that a WGP holds at once.
    pub resident: u32,
    /// Clocks of a workgroup that is alone: of each, and of each unit of its work.
    pub alone: [f64; 2],
    /// Clocks that each workgroup adds where many keep the WGP busy.
    pub busy: [f64; 2],
}

impl Rates {
    /// Clocks until a WGP has done `part` workgroups with so many units of work each.
    pub fn clocks(&self, part: u64, units: f64) -> f64 {
        let alone = self.alone[0] + self.alone[1] * units;
        let busy = self.busy[0] + self.busy[1] * units;
        // Between waiting for latency and for units there is a soft bend: both count while waves are few.
        let round = |count: u64| {
            let busy = busy * count as f64;
            (alone.powi(BEND) + busy.powi(BEND)).powf(1.0 / f64::from(BEND))
        };
        let resident = u64::from(self.resident.max(1));
        let (full, rest) = (part / resident, part % resident);
        full as f64 * round(resident) + if rest > 0 { round(rest) } else { 0.0 }
    }
}

/// Sharpness of the bend: of 4, a workgroup whose two times are equal takes 1.19 of either.
const BEND: i32 = 4;
/// Bandwidth that long streams reach.
const STREAM: f64 = 0.85;

/// The table, by variant; of each variant by compiler.
static TABLE: LazyLock<HashMap<&'static str, [Option<Rates>; 2]>> =
    LazyLock::new(|| read(include_str!("rates.tsv")).unwrap_or_else(|error| panic!("rates.tsv: {error}")));

/// The rates of a table's text.
///
/// # Errors
/// The line that is wrong.
fn read(text: &str) -> Result<HashMap<&str, [Option<Rates>; 2]>, String> {
    let mut table: HashMap<&str, [Option<Rates>; 2]> = HashMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let bad = || format!("`{line}` is no row");
        let mut cells = line.split('\t');
        let (name, compiler) = cells.next().zip(cells.next()).ok_or_else(bad)?;
        let numbers: Vec<f64> = cells.map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
        let &[resident, a0, a1, b0, b1] = numbers.as_slice() else { return Err(bad()) };
        if numbers.iter().any(|n| !n.is_finite() || *n < 0.0) || resident < 1.0 {
            return Err(bad());
        }
        let column = match compiler {
            "aco" => 0,
            "llvm" => 1,
            _ => return Err(bad()),
        };
        let rates = Rates { resident: resident as u32, alone: [a0, a1], busy: [b0, b1] };
        table.entry(name).or_default()[column] = Some(rates);
    }
    Ok(table)
}

/// The rates of a variant in a compiler's code. bf16 computes as f32 does, and in RADV's code, of which none was simulated, dot products take
/// the instructions of sums in f16.
pub fn find(variant: &str, compiler: Compiler) -> Option<Rates> {
    let column = match compiler {
        Compiler::Aco => 0,
        Compiler::Llvm => 1,
        Compiler::Other => return None,
    };
    let of = |name: &str| TABLE.get(name).and_then(|both| both[column]);
    of(variant).or_else(|| {
        let known = variants::find(variant)?;
        let twin = |tag: &str, dtype: &str| of(&format!("{}_{tag}_{dtype}", known.source));
        match known.dtype {
            DType::BF16 => twin(&known.tag, "f32"),
            _ if known.is_dot() && known.source == "pack" => twin("t256", "f16"),
            _ if known.is_dot() => twin(&known.tag.replacen('d', "h", 1), "f16"),
            _ => None,
        }
    })
}

/// A launch as the table sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Workgroups of the busiest WGP.
    pub part: u64,
    /// Share of the WGPs' time that is used if all take as long as the busiest.
    pub even: f64,
    /// Units of work of a workgroup: steps of the reduction, multiply-adds or bytes.
    pub units: f64,
    /// Seconds to move its bytes.
    pub stream: f64,
}

impl Shape {
    /// Of a launch on a device of these capabilities.
    pub fn new(launch: &Launch, caps: &DeviceCaps) -> Self {
        let groups = launch.grid.iter().map(|&n| u64::from(n)).product::<u64>().max(1);
        let wgps = u64::from(caps.compute_units.div_ceil(2).max(1));
        let part = groups.div_ceil(wgps);
        let units = match launch.model {
            Model::Tiles { depth } => depth as f64,
            Model::Scalar { multiply_adds, .. } | Model::Rows { multiply_adds } => {
                multiply_adds as f64 / groups as f64
            }
            Model::Stream { bytes } => bytes as f64 / groups as f64,
        };
        Self {
            part,
            even: groups as f64 / (part * wgps) as f64,
            units,
            stream: launch.bytes as f64 / (caps.bandwidth_gbs * 1e9 * STREAM),
        }
    }

    /// Seconds at these rates.
    pub fn seconds(&self, rates: &Rates, clock_mhz: u32) -> f64 {
        (rates.clocks(self.part, self.units) / (f64::from(clock_mhz) * 1e6)).max(self.stream)
    }
}

/// Modelled seconds of a plan by the table; none where it lacks a variant.
pub(crate) fn cost(plan: &Plan, caps: &DeviceCaps) -> Option<f64> {
    if caps.compiler == Compiler::Other {
        return None;
    }
    total(plan, caps, |launch| {
        let rates = find(&launch.kernel, caps.compiler)?;
        Some(Shape::new(launch, caps).seconds(&rates, caps.clock_mhz))
    })
}

/// Seconds of a plan whose launches alone take what `seconds` says; none where it does not say.
pub fn total(plan: &Plan, caps: &DeviceCaps, seconds: impl Fn(&Launch) -> Option<f64>) -> Option<f64> {
    let (mut total, mut longest, mut sum) = (0.0, 0.0f64, 0.0);
    for (launch, waits) in plan.launches.iter().zip(plan.waits()) {
        if waits {
            total += longest.max(sum) + caps.launch_us * 1e-6;
            (longest, sum) = (0.0, 0.0);
        }
        let seconds = seconds(launch)?;
        // Launches that do not wait for each other share the WGPs.
        longest = longest.max(seconds);
        sum += seconds * Shape::new(launch, caps).even;
    }
    Some(total + longest.max(sum) + caps.launch_us * 1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_workgroups_add_up() {
        let rates = Rates { resident: 4, alone: [100.0, 0.0], busy: [0.0, 0.0] };
        let clocks: Vec<f64> = [1, 4, 5, 8].iter().map(|&part| rates.clocks(part, 7.0)).collect();
        assert_eq!(clocks, [100.0, 100.0, 200.0, 200.0]);
        let busy = Rates { resident: 4, alone: [0.0, 0.0], busy: [10.0, 2.0] };
        for part in [1, 3, 4, 9] {
            assert!((busy.clocks(part, 5.0) - 20.0 * part as f64).abs() < 1e-9, "{part}");
        }
    }

    #[test]
    fn bad_rows_are_named() {
        assert_eq!(read("# head\na\taco\t1\t2\t3\t4\t5\n").unwrap()["a"][0].unwrap().busy, [4.0, 5.0]);
        for bad in [
            "a\taco\t1\t2\t3\t4",
            "a\tgcc\t1\t2\t3\t4\t5",
            "a\taco\t0\t2\t3\t4\t5",
            "a\taco\t1\tNaN\t3\t4\t5",
        ] {
            assert!(read(bad).is_err_and(|error| error.contains(bad)), "{bad}");
        }
    }

    #[test]
    fn the_table_is_well_formed() {
        for (variant, both) in TABLE.iter() {
            assert!(
                wave32_params::variants::find(variant).is_some(),
                "{variant} is no variant; `make rates`"
            );
            // The RADV that the model takes has no dot products.
            let is_dot = wave32_params::variants::find(variant).is_some_and(|variant| variant.is_dot());
            let fits = both.iter().all(Option::is_some) || (is_dot && both[1].is_some());
            assert!(fits, "{variant} lacks a compiler; `make rates`");
        }
    }
}
