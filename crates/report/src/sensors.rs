//! Temperatures and clocks of cards, as sysfs has them (linux `Documentation/gpu/amdgpu/thermal.rst`).

use crate::schema::{CardReadings, Reading, Sensors};
use wave32_cards::sysfs::{Files, PCI};

/// Readings of a card that a report keeps.
const KEPT: usize = 120;

/// The cards that have sensors: their places on the PCI bus, and their drivers' names for themselves.
pub fn cards(files: &impl Files) -> Vec<CardReadings> {
    let display = |address: &String| {
        let class: Option<u32> = files.hex(&format!("{PCI}/{address}/class"));
        class.is_some_and(|class| class >> 16 == 0x03 || class >> 8 == 0x1200)
    };
    let found = files.names(PCI).into_iter().filter(display).filter_map(|address| {
        let driver = hwmon(files, &address).and_then(|folder| files.attribute(&format!("{folder}/name")));
        let has_clocks = files.attribute(&format!("{PCI}/{address}/pp_dpm_sclk")).is_some();
        let driver = driver.or(has_clocks.then(|| "amdgpu".to_string()))?;
        Some(CardReadings { address, driver, readings: Vec::new() })
    });
    found.collect()
}

fn hwmon(files: &impl Files, address: &str) -> Option<String> {
    let folder = format!("{PCI}/{address}/hwmon");
    Some(format!("{folder}/{}", files.names(&folder).into_iter().next()?))
}

/// What a card's files say now.
pub fn read(files: &impl Files, address: &str, at_s: f64, during: &str) -> Reading {
    let mut reading = Reading { at_s, during: during.into(), ..Reading::default() };
    let here = |name: &str| format!("{PCI}/{address}/{name}");
    if let Some(folder) = hwmon(files, address) {
        let number = |name: &str| files.attribute(&format!("{folder}/{name}"))?.parse::<f64>().ok();
        for index in 1..=4 {
            let label = files.attribute(&format!("{folder}/temp{index}_label"));
            let celsius = number(&format!("temp{index}_input")).map(|milli| milli / 1e3);
            match label.as_deref() {
                Some("junction") => reading.junction_c = celsius,
                Some("mem") => reading.memory_c = celsius,
                // Older kernels have one sensor and no label.
                Some("edge") | None if index == 1 || celsius.is_some() => {
                    reading.edge_c = reading.edge_c.or(celsius);
                }
                _ => {}
            }
            let label = files.attribute(&format!("{folder}/freq{index}_label"));
            let mhz = number(&format!("freq{index}_input")).map(|hertz| hertz / 1e6);
            match label.as_deref() {
                Some("sclk") => reading.shader_mhz = mhz,
                Some("mclk") => reading.memory_mhz = mhz,
                _ => {}
            }
        }
        reading.power_w = number("power1_average").or(number("power1_input")).map(|micro| micro / 1e6);
        reading.fan_rpm = number("fan1_input");
    }
    let level = |name: &str| current(&files.text(&here(name))?);
    reading.shader_mhz = reading.shader_mhz.or_else(|| level("pp_dpm_sclk"));
    reading.memory_mhz = reading.memory_mhz.or_else(|| level("pp_dpm_mclk"));
    reading.busy_percent = files.attribute(&here("gpu_busy_percent")).and_then(|text| text.parse().ok());
    reading
}

/// The level with the star: `1: 1750Mhz *`.
fn current(levels: &str) -> Option<f64> {
    let line = levels.lines().find(|line| line.trim_end().ends_with('*'))?;
    line.split_once(':')?.1.trim().to_lowercase().split_once("mhz")?.0.parse().ok()
}

/// Not more readings than a report keeps: the first, the last, and some of those between.
fn thinned(readings: Vec<Reading>) -> Vec<Reading> {
    let count = readings.len();
    if count <= KEPT {
        return readings;
    }
    let keep = |index: usize| index * (KEPT - 1) / (count - 1);
    let mut last = None;
    let fresh = |(index, _): &(usize, Reading)| {
        let (mine, before) = (keep(*index), last);
        last = Some(mine);
        before != Some(mine) || *index == count - 1
    };
    readings.into_iter().enumerate().filter(fresh).map(|(_, reading)| reading).collect()
}

/// The readings as a report has them.
pub fn report(cards: Vec<CardReadings>) -> Sensors {
    let is_empty = |r: &Reading| {
        let all = [r.edge_c, r.junction_c, r.memory_c, r.shader_mhz, r.memory_mhz, r.power_w, r.fan_rpm];
        all.iter().all(Option::is_none)
    };
    let cards = cards.into_iter().map(|card| CardReadings { readings: thinned(card.readings), ..card });
    let cards: Vec<_> = cards.filter(|card| card.readings.iter().any(|r| !is_empty(r))).collect();
    let note = cards
        .is_empty()
        .then(|| "no GPU of this machine has readings in /sys/bus/pci/devices (amdgpu has them)".into());
    Sensors { cards, note }
}

/// Highest of a quantity.
pub fn highest(readings: &[Reading], of: impl Fn(&Reading) -> Option<f64>) -> Option<f64> {
    readings.iter().filter_map(of).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct Tree(BTreeMap<String, String>);

    impl Files for Tree {
        fn text(&self, path: &str) -> Option<String> {
            self.0.get(path).cloned()
        }

        fn names(&self, folder: &str) -> Vec<String> {
            let folder = format!("{folder}/");
            let names = self.0.keys().filter_map(|path| path.strip_prefix(&folder)?.split('/').next());
            let mut names: Vec<String> = names.map(String::from).collect();
            names.dedup();
            names
        }
    }

    fn tree(files: &[(&str, &str)]) -> Tree {
        Tree(
            files
                .iter()
                .map(|(name, text)| (format!("{PCI}/0000:03:00.0/{name}"), format!("{text}\n")))
                .collect(),
        )
    }

    #[test]
    fn a_navi_card_is_read() {
        let files = tree(&[
            ("class", "0x030000"),
            ("hwmon/hwmon2/name", "amdgpu"),
            ("hwmon/hwmon2/temp1_input", "41000"),
            ("hwmon/hwmon2/temp1_label", "edge"),
            ("hwmon/hwmon2/temp2_input", "55500"),
            ("hwmon/hwmon2/temp2_label", "junction"),
            ("hwmon/hwmon2/temp3_input", "60000"),
            ("hwmon/hwmon2/temp3_label", "mem"),
            ("hwmon/hwmon2/power1_average", "37000000"),
            ("hwmon/hwmon2/fan1_input", "1100"),
            ("pp_dpm_sclk", "0: 300Mhz \n1: 800Mhz *\n2: 1780Mhz "),
            ("pp_dpm_mclk", "0: 100Mhz \n3: 875Mhz *"),
            ("gpu_busy_percent", "97"),
        ]);
        let found = cards(&files);
        assert_eq!((found.len(), found[0].driver.as_str()), (1, "amdgpu"));
        let expected = Reading {
            at_s: 1.5,
            during: "before".into(),
            edge_c: Some(41.0),
            junction_c: Some(55.5),
            memory_c: Some(60.0),
            shader_mhz: Some(800.0),
            memory_mhz: Some(875.0),
            power_w: Some(37.0),
            fan_rpm: Some(1100.0),
            busy_percent: Some(97.0),
        };
        assert_eq!(read(&files, "0000:03:00.0", 1.5, "before"), expected);
    }

    #[test]
    fn odd_and_absent_files_are_no_readings() {
        let files = tree(&[
            ("class", "0x030000"),
            ("pp_dpm_sclk", "no star\n:\n*"),
            ("hwmon/hwmon0/temp1_input", "hot"),
        ]);
        assert_eq!(read(&files, "0000:03:00.0", 0.0, ""), Reading::default());
        assert!(report(cards(&files)).note.is_some());
        assert!(cards(&tree(&[("class", "0x020000"), ("pp_dpm_sclk", "0: 1Mhz *")])).is_empty());
    }

    #[test]
    fn long_series_keep_their_ends() {
        let series: Vec<Reading> =
            (0..1000).map(|n| Reading { at_s: f64::from(n), ..Reading::default() }).collect();
        let thin = thinned(series);
        assert!(
            thin.len() <= KEPT + 1 && thin[0].at_s == 0.0 && thin.last().unwrap().at_s == 999.0,
            "{}",
            thin.len()
        );
    }
}
