//! The lines about GPUs in what the kernel said.

use crate::schema::{KernelLog, LogLine};
use std::collections::HashSet;

/// Words of lines about GPUs; drivers' names, mostly.
const WORDS: &[&str] = &[
    "amdgpu", "amdkfd", "kfd", "radeon", "[drm", "drm:", "nouveau", "nvrm", "nvidia", "i915", "xe 0000",
    "vgaarb", "gpu",
];

/// Lines that are kept, the latest.
const LINES: usize = 60;
/// Characters of one.
const LENGTH: usize = 300;

/// The lines about GPUs.
pub fn lines(text: &str) -> Vec<&str> {
    let about = |line: &&str| {
        let small = line.to_lowercase();
        WORDS.iter().any(|word| small.contains(word))
    };
    text.lines().map(str::trim).filter(about).collect()
}

/// What a report keeps of a log, which was `before` when the report began.
pub fn kept(source: &str, before: &str, now: &str) -> KernelLog {
    let old: HashSet<&str> = lines(before).into_iter().collect();
    let now = lines(now);
    let left_out = now.len().saturating_sub(LINES);
    let line = |text: &&str| LogLine {
        text: wave32_host::text::shortened(text, LENGTH).into_owned(),
        new: !old.contains(text),
    };
    KernelLog {
        source: Some(source.into()),
        lines: now[left_out..].iter().map(line).collect(),
        left_out,
        note: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_gpus_stay_and_new_ones_are_marked() {
        let before = "[1.0] Linux version 6\n[2.0] amdgpu 0000:03:00.0: SMU is initialized\n[2.1] usb 1-1: SerialNumber: 1\n";
        let now = format!("{before}[9.9] amdgpu 0000:03:00.0: ring comp_1.0.0 timeout\n");
        let kept = kept("/dev/kmsg", before, &now);
        let lines: Vec<(&str, bool)> = kept.lines.iter().map(|l| (l.text.as_str(), l.new)).collect();
        let [first, second] = lines[..] else { panic!("{lines:?}") };
        assert!(first.0.contains("SMU") && !first.1 && second.0.contains("timeout") && second.1, "{lines:?}");
    }

    #[test]
    fn long_logs_keep_their_end() {
        let text: String = (0..500).map(|n| format!("[{n}] amdgpu: {}\n", "x".repeat(1000))).collect();
        let kept = kept("x", "", &text);
        assert_eq!((kept.lines.len(), kept.left_out), (LINES, 500 - LINES));
        assert!(kept.lines[LINES - 1].text.starts_with("[499] ") && kept.lines[0].text.chars().count() < 400);
    }
}
