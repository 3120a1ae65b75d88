//! Four numbers for each variant, so that the table says what the instruction model says.

use crate::Options;
use crate::sample::sample;
use crate::times::{Asked, Times, Told};
use std::collections::BTreeMap;
use wave32_params::variants;
use wave32_solve::rates::{Rates, Shape};
use wave32_solve::{DeviceCaps, Launch, Model, SCALAR_EFFICIENCY};

const HEAD: &str = "\
# How long workgroups of each kernel variant take on RDNA1, modelled from the code that runs: `make rates` writes this file.
# variant, compiler, workgroups a WGP holds; clocks of one alone, and for each unit of its work; of one among many, the same.
";

/// Logarithms of a price over the simulated time that are shown.
const FAR: f64 = 0.3;

pub fn main(options: &Options) -> Result<(), String> {
    let mut rows: BTreeMap<(String, &str), Rates> = BTreeMap::new();
    // How many workgroups LLVM's code lets a WGP hold. ACO's is seen only where no other variant has the same grid; its
    // workgroups have the same size and local memory, and about as many registers.
    let mut held: BTreeMap<String, u64> = BTreeMap::new();
    // LLVM's comes first.
    for &(name, compiler) in options.compilers.iter().rev() {
        let caps = options.caps(compiler);
        let mut times = Times::new(options, compiler)?;
        let sample = sample(options, &caps)?;
        let asked: Vec<Asked> = sample.values().flatten().cloned().collect();
        eprintln!("{name}: {} variants, {} launches", sample.len(), asked.len());
        times.learn(&asked)?;
        let mut errors = Vec::new();
        for (variant, asked) in &sample {
            let told: Vec<(Shape, Told)> = asked
                .iter()
                .filter_map(|one| Some((Shape::new(&one.launch, &caps), times.get(&one.launch)?)))
                .collect();
            let resident = told.iter().filter_map(|(_, told)| told.resident).max();
            let Some(resident) = resident.or_else(|| held.get(variant).copied()) else {
                eprintln!("{name} {variant}: left out, no launch told how many workgroups fit");
                continue;
            };
            held.entry(variant.clone()).or_insert(resident);
            let bounds = bounds(variant, asked.first().map(|one| &one.launch));
            let (rates, residuals) = fit(&told, resident as u32, bounds, &caps)?;
            let worst = residuals.iter().map(|r| r.abs()).fold(0.0, f64::max);
            let mean = (residuals.iter().map(|r| r * r).sum::<f64>() / residuals.len() as f64).sqrt();
            eprintln!("{name} {variant:<28} {} launches, error {mean:.3}, worst {worst:.3}", told.len());
            for ((shape, told), residual) in told.iter().zip(&residuals).filter(|(_, r)| r.abs() > FAR) {
                eprintln!("    {residual:+.2}: {shape:?}, {:.1} us", told.seconds * 1e6);
            }
            errors.extend(residuals);
            rows.insert((variant.clone(), name), rates);
        }
        let mean = (errors.iter().map(|r| r * r).sum::<f64>() / errors.len().max(1) as f64).sqrt();
        eprintln!("{name}: error of all (natural logarithm, root mean square) {mean:.3}");
    }
    // A variant is priced for both or for none.
    let counts = rows.keys().fold(BTreeMap::new(), |mut counts: BTreeMap<String, usize>, (variant, _)| {
        *counts.entry(variant.clone()).or_default() += 1;
        counts
    });
    rows.retain(|(variant, _), _| counts[variant] == options.compilers.len());
    let usual = Options::root().join("crates/solve/src/rates.tsv");
    let before = std::fs::read_to_string(&usual).map_err(|e| format!("{}: {e}", usual.display()))?;
    // Rows that were not asked for, or are another card's, stay.
    let mut lines: BTreeMap<(String, String), String> = BTreeMap::new();
    for line in before.lines().filter(|line| !line.starts_with('#')) {
        let mut cells = line.split('\t').map(str::to_string);
        let key = cells.next().zip(cells.next()).ok_or_else(|| format!("`{line}` is no row"))?;
        if variants::find(&key.0).is_some() {
            lines.insert(key, line.to_string());
        }
    }
    for ((variant, compiler), Rates { resident, alone: [a0, a1], busy: [b0, b1] }) in rows {
        let cells = [a0, a1, b0, b1].map(rounded).join("\t");
        let line = format!("{variant}\t{compiler}\t{resident}\t{cells}");
        lines.insert((variant, compiler.to_string()), line);
    }
    let mut text = HEAD.to_string();
    lines.values().for_each(|line| text.extend([line.as_str(), "\n"]));
    let path = options.out.as_ref().unwrap_or(&usual);
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// What is known of a WGP's clocks for a unit of work before anything is simulated.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Multiply-adds at their peak rate: none is faster.
    least: f64,
    /// What is usual, and how much that says.
    usual: f64,
    weight: f64,
    /// How much it says that alone and busy are not orders of magnitude apart.
    near: f64,
}

/// A step of a tile's reduction, or what counts as a multiply-add elsewhere; none for what moves bytes alone.
fn bounds(variant: &str, launch: Option<&Launch>) -> Option<Bounds> {
    let variant = variants::find(variant)?;
    // Multiply-adds that a WGP starts in a clock; two in an instruction where f16 is packed, and of dot products.
    let packed = if variant.is_half() || variant.is_dot() { 2.0 } else { 1.0 };
    let peak = 128.0 * packed;
    match launch?.model {
        Model::Tiles { .. } => {
            let least = (variant.define("BM") * variant.define("BN")) as f64 / peak;
            // Most reach three quarters.
            Some(Bounds { least, usual: least / 0.75, weight: 0.02, near: NEAR })
        }
        Model::Scalar { .. } => {
            // Weighed so that a multiply-add at the variant's rate (EFF) counts as one at `SCALAR_EFFICIENCY`.
            let own = variant.defines.get("EFF").map_or(SCALAR_EFFICIENCY, |&eff| eff as f64 / 100.0);
            let least = own / SCALAR_EFFICIENCY / peak;
            // Rates are of an H200; more waves on RDNA1 wait for less. Launches of much work are too long to simulate.
            let usual = 0.5 / SCALAR_EFFICIENCY / peak;
            Some(Bounds { least, usual, weight: 0.1, near: 10.0 * NEAR })
        }
        Model::Rows { .. } | Model::Stream { .. } => None,
    }
}

/// What is said of [`Bounds::near`] where launches say enough themselves.
const NEAR: f64 = 0.002;

/// Four digits.
fn rounded(value: f64) -> String {
    let digits = 3 - value.abs().max(1e-9).log10().floor() as i32;
    format!("{value:.*}", digits.clamp(0, 6) as usize)
}

/// The rates of a variant, and the logarithms of what they say over what was told.
fn fit(
    told: &[(Shape, Told)],
    resident: u32,
    bounds: Option<Bounds>,
    caps: &DeviceCaps,
) -> Result<(Rates, Vec<f64>), String> {
    let of = |p: &[f64; 4]| {
        let [a0, a1, b0, b1] = p.map(f64::exp);
        Rates { resident, alone: [a0, a1], busy: [b0, b1] }
    };
    let residuals = |rates: &Rates| -> Vec<f64> {
        told.iter().map(|(shape, told)| (shape.seconds(rates, caps.clock_mhz) / told.seconds).ln()).collect()
    };
    // What no launch says something about.
    let usual = (f64::from(resident).min(4.0)).ln();
    let loss = |p: &[f64; 4]| {
        let near = [(p[0] - p[2] - usual) / 3.0, (p[1] - p[3] - usual) / 3.0];
        let rate = bounds.map_or(0.0, |Bounds { least, usual, weight, .. }| {
            let below = (least.ln() - p[3]).max(least.ln() - p[1]).max(0.0);
            10.0 * below * below + weight * (p[3] - usual.ln()).powi(2)
        });
        rate + residuals(&of(p)).iter().map(|r| r * r).sum::<f64>()
            + bounds.map_or(NEAR, |bounds| bounds.near) * near.iter().map(|n| n * n).sum::<f64>()
    };
    let clock = f64::from(caps.clock_mhz) * 1e6;
    let mean = |of: &dyn Fn(&(Shape, Told)) -> f64| {
        (told.iter().map(|one| of(one).max(1e-12).ln()).sum::<f64>() / told.len() as f64).exp()
    };
    let clocks = mean(&|(shape, told)| told.seconds * clock / shape.part as f64);
    let units = mean(&|(shape, _)| shape.units.max(1.0));
    let mut best: Option<([f64; 4], f64)> = None;
    for fixed in [0.02, 0.3, 0.9] {
        let mut at = [
            (clocks * fixed).ln() + usual,
            (clocks * (1.0 - fixed) / units).ln() + usual,
            (clocks * fixed).ln(),
            (clocks * (1.0 - fixed) / units).ln(),
        ];
        let mut now = loss(&at);
        let mut step = 1.0;
        while step > 1e-3 {
            let mut moved = false;
            for direction in DIRECTIONS {
                for sign in [step, -step] {
                    let mut next = at;
                    next.iter_mut().zip(direction).for_each(|(v, d)| *v += sign * d);
                    let new = loss(&next);
                    if new < now - 1e-12 {
                        (at, now, moved) = (next, new, true);
                    }
                }
            }
            step *= if moved { 1.0 } else { 0.5 };
        }
        if best.as_ref().is_none_or(|(_, least)| now < *least) {
            best = Some((at, now));
        }
    }
    let rates = of(&best.ok_or("nothing to fit")?.0);
    Ok((rates, residuals(&rates)))
}

/// Along which the fit looks: each number, and pairs that make up for each other.
const DIRECTIONS: [[f64; 4]; 9] = [
    [1.0, 0.0, 0.0, 0.0],
    [0.0, 1.0, 0.0, 0.0],
    [0.0, 0.0, 1.0, 0.0],
    [0.0, 0.0, 0.0, 1.0],
    [1.0, -0.3, 0.0, 0.0],
    [0.0, 0.0, 1.0, -0.3],
    [0.3, -1.0, 0.0, 0.0],
    [0.0, 0.0, 0.3, -1.0],
    [1.0, 1.0, 1.0, 1.0],
];
