//! What the environment asks for; the launcher sets these.

use std::path::PathBuf;
use std::time::Duration;

use crate::cards::{USUAL, VirtualCard};

/// `WAVE32_VGPU_*`, read once when the card is first opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `CARD`: an id of the table.
    pub card: VirtualCard,
    /// `STRICT=1`: what a real card might let pass stops the kernel.
    pub strict: bool,
    /// `ROBUST=1`: strict, but for accesses past a buffer's records.
    pub robust: bool,
    /// `KEEP_GOING=1`: strict, but a finding does not stop the kernel.
    pub keep_going: bool,
    /// `THREADS`: that run kernels; else as many as there are processors.
    pub threads: Option<usize>,
    /// `REPORT`: a JSON file, written when the process ends.
    pub report: Option<PathBuf>,
    /// `DEADLINE`: seconds a kernel may take, with decimals if need be.
    pub deadline: Duration,
    /// `TIME=1`: how long each launch takes on the card is modelled.
    pub time: bool,
    /// `SAMPLE=1`: with `TIME`, only the workgroups run that are modelled; results are wrong.
    pub sample: bool,
    /// `FOLDER`: where each process leaves what the launcher tells at the end.
    pub folder: Option<PathBuf>,
    /// `TRACE=1`: each ioctl and packet on stderr.
    pub trace: bool,
}

/// Ten minutes: a kernel that takes longer here hangs on a card too.
const DEADLINE: Duration = Duration::from_secs(600);

impl Settings {
    /// By `value`, which knows the variables by their names without prefix.
    pub fn read(value: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let set = |name: &str| value(name).filter(|text| !text.is_empty());
        let flag = |name: &str| match set(name).as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(format!("WAVE32_VGPU_{name} is '{other}': 0 or 1 is meant")),
        };
        let number = |name: &str| match set(name).map(|text| text.parse::<usize>().map_err(|_| text)) {
            None => Ok(None),
            Some(Ok(count)) if count > 0 => Ok(Some(count)),
            Some(Ok(_)) => Err(format!("WAVE32_VGPU_{name} is 0: a whole number from 1 on is meant")),
            Some(Err(text)) => {
                Err(format!("WAVE32_VGPU_{name} is '{text}': a whole number from 1 on is meant"))
            }
        };
        let card = match set("CARD") {
            None => USUAL.to_owned(),
            Some(id) => id,
        };
        let card = VirtualCard::by_id(&card).ok_or_else(|| {
            let known: Vec<_> = VirtualCard::all().map(|card| card.board.id()).collect();
            format!("WAVE32_VGPU_CARD is '{card}': there are {}", known.join(", "))
        })?;
        let deadline = match set("DEADLINE") {
            None => DEADLINE,
            Some(text) => {
                let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                seconds.filter(|seconds| !seconds.is_zero()).ok_or_else(|| {
                    format!("WAVE32_VGPU_DEADLINE is '{text}': a number of seconds above 0 is meant")
                })?
            }
        };
        Ok(Self {
            card,
            strict: flag("STRICT")?,
            robust: flag("ROBUST")?,
            keep_going: flag("KEEP_GOING")?,
            threads: number("THREADS")?,
            report: set("REPORT").map(PathBuf::from),
            deadline,
            time: flag("TIME")?,
            sample: flag("SAMPLE")?,
            folder: set("FOLDER").map(PathBuf::from),
            trace: flag("TRACE")?,
        })
    }

    /// By the process's environment.
    pub fn from_environment() -> Result<Self, String> {
        Self::read(|name| std::env::var(format!("WAVE32_VGPU_{name}")).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &'static str, value: &'static str) -> Result<Settings, String> {
        Settings::read(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn each_variable_is_honoured() {
        let plain = Settings::read(|_| None).unwrap();
        assert_eq!(
            (plain.card.board.id().as_str(), plain.strict, plain.threads, plain.trace),
            (USUAL, false, None, false)
        );
        assert_eq!(read("CARD", "rx5500xt").unwrap().card.target.name, "gfx1012");
        assert!(read("STRICT", "1").unwrap().strict && read("ROBUST", "1").unwrap().robust);
        assert!(read("KEEP_GOING", "1").unwrap().keep_going && !read("STRICT", "1").unwrap().keep_going);
        assert_eq!(read("THREADS", "3").unwrap().threads, Some(3));
        assert_eq!(read("REPORT", "/x").unwrap().report, Some(PathBuf::from("/x")));
        assert_eq!(read("FOLDER", "/x").unwrap().folder, Some(PathBuf::from("/x")));
        assert_eq!(read("DEADLINE", "2").unwrap().deadline, Duration::from_secs(2));
        assert_eq!(read("DEADLINE", "0.05").unwrap().deadline, Duration::from_millis(50));
        assert!(read("TRACE", "1").unwrap().trace && read("TIME", "1").unwrap().time);
        assert!(!plain.sample && read("SAMPLE", "1").unwrap().sample);
        assert_eq!(read("CARD", "").unwrap(), plain, "empty is not set");
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let deadlines = ["-1", "0", "nan", "inf", "1e300", "soon"].map(|value| ("DEADLINE", value));
        for (name, value) in
            [("CARD", "rx480"), ("STRICT", "yes"), ("THREADS", "0"), ("TRACE", "2"), ("TIME", "2")]
                .into_iter()
                .chain(deadlines)
        {
            let error = read(name, value).unwrap_err();
            assert!(
                error.contains(&format!("WAVE32_VGPU_{name}"))
                    && error.contains("there are") | error.contains("meant"),
                "{error}"
            );
        }
    }
}
