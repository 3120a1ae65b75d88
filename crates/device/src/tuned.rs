//! What `wave32 tune` measured on a device: a file for each route and card, in the user's state folder.
//!
//! A file that is damaged, somebody else's, of another driver or of other kernels is left aside with one line on standard
//! error: the model chooses then, as without it.

use crate::DeviceInfo;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use wave32_host::file::fnv1a;
use wave32_solve::{Choice, Tuned};

/// Version of the file's form.
const FORMAT: u32 = 1;
/// Bytes of a file at most: a problem's line is a few hundred.
const LARGEST: u64 = 64 << 20;

/// The best of what was measured for a problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The solver.
    pub solver: String,
    /// Its configuration.
    pub config: String,
    /// Its median.
    pub ms: f64,
    /// The model's choice, solver and configuration.
    pub usual: String,
    /// Its median; none where it failed.
    pub usual_ms: Option<f64>,
    /// Configurations that were timed.
    pub timed: usize,
}

/// A file's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    format: u32,
    /// Whose kernels: the version of wave32 and a hash of their sources.
    kernels: String,
    /// `vulkan` or `hip`.
    route: String,
    /// The device's name.
    device: String,
    /// Its driver, with the version.
    driver: String,
    /// By the problem's [`wave32_solve::tuning_key`].
    pub plans: BTreeMap<String, Entry>,
}

/// The kernels that are built in.
fn kernels() -> String {
    format!("wave32 {}, kernels {:016x}", env!("CARGO_PKG_VERSION"), wave32_params::SOURCES)
}

fn route(id: &str) -> &str {
    id.split(':').next().unwrap_or(id)
}

impl Record {
    /// Nothing measured yet on this device.
    pub fn new(info: &DeviceInfo) -> Self {
        Self {
            format: FORMAT,
            kernels: kernels(),
            route: route(&info.id).into(),
            device: info.name.clone(),
            driver: info.driver.clone(),
            plans: BTreeMap::new(),
        }
    }

    /// Reads a file, if it is there and of this very device, driver and these kernels.
    ///
    /// # Errors
    /// Why it is left aside, in words for people.
    pub fn read(path: &Path, info: &DeviceInfo) -> Result<Option<Self>, String> {
        let bytes = match wave32_host::file::read_own(path, LARGEST) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("it cannot be read: {error}")),
            Ok(bytes) => bytes,
        };
        let record: Self =
            serde_json::from_slice(&bytes).map_err(|error| format!("it is damaged: {error}"))?;
        let here = Self::new(info);
        let differs = |what: &str, was: &str, is: &str| {
            Err(format!("it was measured with another {what} ({was}; here is {is}); run `wave32 tune` again"))
        };
        match () {
            () if record.format != FORMAT => differs("version of wave32", &record.kernels, &here.kernels),
            () if (&record.route, &record.device) != (&here.route, &here.device) => {
                differs("device", &record.device, &here.device)
            }
            () if record.driver != here.driver => differs("driver", &record.driver, &here.driver),
            () if record.kernels != here.kernels => {
                differs("version of wave32", &record.kernels, &here.kernels)
            }
            () => Ok(Some(record)),
        }
    }

    /// As the file has it.
    ///
    /// # Errors
    /// Numbers that JSON does not have.
    pub fn text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    fn choices(self) -> Tuned {
        let choice = |entry: Entry| Choice { solver: entry.solver, config: entry.config };
        Tuned::new(self.plans.into_iter().map(|(line, entry)| (line, choice(entry))).collect())
    }
}

/// The file of a device: in `wave32/tuned` of `$XDG_STATE_HOME`, else of `~/.local/state` (`%LOCALAPPDATA%` on Windows).
pub fn path(info: &DeviceInfo) -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = if cfg!(windows) {
        absolute("LOCALAPPDATA")
    } else {
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))
    };
    let name: String = info.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let short: String =
        name.to_lowercase().split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
    let hash = fnv1a(info.name.as_bytes());
    let short: String = short.chars().take(48).collect();
    Some(base?.join("wave32/tuned").join(format!("{}-{short}-{:08x}.json", route(&info.id), hash as u32)))
}

/// What was measured on this device; nothing where `WAVE32_TUNE=0`, and where the file is left aside.
pub fn load(info: &DeviceInfo) -> Tuned {
    static SAID: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if std::env::var_os("WAVE32_TUNE").is_some_and(|value| value == "0") {
        return Tuned::default();
    }
    let Some(path) = path(info) else { return Tuned::default() };
    match Record::read(&path, info) {
        Ok(record) => record.map(Record::choices).unwrap_or_default(),
        Err(why) => {
            // Once in a process.
            if SAID.lock().is_ok_and(|mut said| said.insert(path.clone())) {
                let text = format!("wave32: {} is left aside: {why}", path.display());
                wave32_host::stream::tell(&wave32_host::text::readable(&text));
            }
            Tuned::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceKind;

    fn info() -> DeviceInfo {
        DeviceInfo {
            id: "vulkan:0".into(),
            name: "AMD Radeon RX 5700 XT (RADV NAVI10)".into(),
            driver: "radv Mesa 25.0.7".into(),
            kind: DeviceKind::Discrete,
            memory_bytes: 8 << 30,
        }
    }

    fn record() -> Record {
        let entry = Entry {
            solver: "igemm".into(),
            config: "g64x64/1".into(),
            ms: 1.0,
            usual: "direct o4t3".into(),
            usual_ms: Some(2.0),
            timed: 3,
        };
        Record { plans: BTreeMap::from([("MIOpenDriver conv".into(), entry)]), ..Record::new(&info()) }
    }

    #[test]
    fn a_file_is_of_one_device_driver_and_build() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.json");
        assert_eq!(Record::read(&path, &info()), Ok(None));
        std::fs::write(&path, record().text().unwrap()).unwrap();
        assert_eq!(Record::read(&path, &info()), Ok(Some(record())));
        let other = |change: fn(&mut DeviceInfo)| {
            let mut info = info();
            change(&mut info);
            Record::read(&path, &info)
        };
        // Another index of the same card is the same card.
        assert_eq!(other(|info| info.id = "vulkan:1".into()), Ok(Some(record())));
        for (change, what) in [
            ((|info| info.driver = "radv Mesa 25.1.0".into()) as fn(&mut DeviceInfo), "another driver"),
            (|info| info.name = "other".into(), "another device"),
            (|info| info.id = "hip:0".into(), "another device"),
        ] {
            assert!(other(change).is_err_and(|why| why.contains(what)), "{what}");
        }
        let older = Record { kernels: "wave32 0.0.1".into(), ..record() };
        std::fs::write(&path, older.text().unwrap()).unwrap();
        assert!(Record::read(&path, &info()).is_err_and(|why| why.contains("another version")));
    }

    #[test]
    fn damage_is_found_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.json");
        let text = record().text().unwrap();
        for end in 0..text.trim_end().len() {
            std::fs::write(&path, &text[..end]).unwrap();
            assert!(Record::read(&path, &info()).is_err_and(|why| why.contains("damaged")), "{end}");
        }
        std::fs::write(&path, [0xff; 100]).unwrap();
        assert!(Record::read(&path, &info()).is_err());
    }

    #[test]
    fn names_make_files() {
        let Some(path) = path(&info()) else { return };
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            name.starts_with("vulkan-amd-radeon-rx-5700-xt-radv-navi10-") && name.ends_with(".json"),
            "{name}"
        );
    }
}
