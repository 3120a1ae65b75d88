//! Which launches are simulated for the table: few of each variant, far apart in size.

use crate::Options;
use crate::judge::rivals;
use crate::pool::{lines, plans, suite};
use crate::times::Asked;
use std::collections::BTreeMap;
use wave32_params::variants;
use wave32_problem::DType;
use wave32_solve::rates::Shape;
use wave32_solve::{DeviceCaps, Launch, Model};

/// Launches of each variant.
const EACH: usize = 24;
/// Of every ninth problem from this one on, the launches of so many plans near the best are simulated too.
const NEARBY: (usize, usize, usize) = (9, 4, 4);
/// Plans further from the best one's price are not what the choice is about.
const SLOWER: f64 = 4.0;
/// Instructions of a workgroup, about, that are worth simulating.
const MOST: f64 = 400_000.0;

/// Variant names, each with the launches chosen.
pub fn sample(options: &Options, caps: &DeviceCaps) -> Result<BTreeMap<String, Vec<Asked>>, String> {
    let mut pool: BTreeMap<String, Vec<Asked>> = BTreeMap::new();
    let mut near: BTreeMap<String, Vec<Asked>> = BTreeMap::new();
    for dtype in [DType::F32, DType::F16] {
        for (index, named) in suite(dtype)?.into_iter().chain(lines(dtype)?).enumerate() {
            let all = plans(&named.problem, caps, SLOWER);
            if index % NEARBY.0 == NEARBY.1 {
                for candidate in rivals(all.clone(), NEARBY.2) {
                    for launch in candidate.plan.launches.iter().filter(|l| l.kernel.contains(&options.only))
                    {
                        let near = near.entry(launch.kernel.clone()).or_default();
                        if near.len() < EACH && instructions(launch) < 4.0 * MOST {
                            near.push(Asked::new(&candidate.plan, launch));
                        }
                    }
                }
            }
            for candidate in all {
                for launch in &candidate.plan.launches {
                    if launch.kernel.contains(&options.only) && instructions(launch) < MOST {
                        let pool = pool.entry(launch.kernel.clone()).or_default();
                        pool.push(Asked::new(&candidate.plan, launch));
                    }
                }
            }
        }
    }
    let mut taken: BTreeMap<[u32; 3], String> = BTreeMap::new();
    let mut found = BTreeMap::new();
    // The variants with the fewest launches choose first: a grid tells a variant only where no other has it.
    let mut order: Vec<_> = pool.into_iter().collect();
    order.sort_by_key(|(name, pool)| (pool.len(), name.clone()));
    for (name, pool) in order {
        let is_free = |asked: &&Asked| taken.get(&asked.launch.grid).is_none_or(|other| *other == name);
        let free: Vec<Asked> = pool.iter().filter(is_free).cloned().collect();
        let pool = if free.is_empty() { pool } else { free };
        let chosen = spread(pool, caps);
        for asked in &chosen {
            taken.insert(asked.launch.grid, name.clone());
        }
        let near = near.remove(&name).unwrap_or_default();
        found.insert(name, chosen.into_iter().chain(near).collect());
    }
    Ok(found)
}

/// Wave instructions of a workgroup, very roughly.
fn instructions(launch: &Launch) -> f64 {
    let groups = launch.grid.iter().map(|&n| f64::from(n)).product::<f64>();
    match launch.model {
        Model::Tiles { depth } => {
            let tile = variants::find(&launch.kernel).map_or(1, |v| v.define("BM") * v.define("BN"));
            1.3 * depth as f64 * tile as f64 / 32.0
        }
        Model::Scalar { multiply_adds, .. } | Model::Rows { multiply_adds } => {
            multiply_adds as f64 / groups / 4.0
        }
        Model::Stream { bytes } => bytes as f64 / groups / 8.0,
    }
}

/// Launches as far apart as can be in workgroups and in work of each; the smallest first.
fn spread(pool: Vec<Asked>, caps: &DeviceCaps) -> Vec<Asked> {
    let at = |asked: &Asked| {
        let shape = Shape::new(&asked.launch, caps);
        [(shape.part.min(64) as f64).ln(), shape.units.max(1.0).ln()]
    };
    let mut rest: Vec<([f64; 2], Asked)> = pool.into_iter().map(|asked| (at(&asked), asked)).collect();
    rest.sort_by(|(a, _), (b, _)| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    let mut chosen: Vec<([f64; 2], Asked)> = Vec::new();
    while chosen.len() < EACH {
        let far = |a: &[f64; 2]| {
            let apart = |b: &[f64; 2]| (a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2);
            chosen.iter().map(|(b, _)| apart(b)).fold(f64::INFINITY, f64::min)
        };
        // The first of those equally far.
        let best = (0..rest.len()).rev().max_by(|&i, &j| far(&rest[i].0).total_cmp(&far(&rest[j].0)));
        match best {
            Some(index) if far(&rest[index].0) > 1e-3 => chosen.push(rest.remove(index)),
            _ => break,
        }
    }
    chosen.into_iter().map(|(_, asked)| asked).collect()
}
