//! Environment variables that GPU software reads, and the files that set them.
//!
//! Files are read as text, never run: a line behind a condition counts as well, and the report says where it is.

use crate::code_objects;
use crate::facts::{Origin, Rocm, Variable};
use crate::system::System;
use std::collections::BTreeMap;

/// Beginnings of the names that matter.
const PREFIXES: &[&str] = &[
    "AMD_",
    "GPU_",
    "HIP_",
    "HSA_",
    "MIOPEN_",
    "PYTORCH_HIP_",
    "PYTORCH_TUNABLEOP_",
    "RADV_",
    "ROCBLAS_",
    "ROCM_",
    "ROCR_",
    "ROC_",
    "TENSILE_",
    "VK_",
    "WAVE32_",
];
/// Whole names that matter.
const NAMES: &[&str] = &[
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTORCH_ROCM_ARCH",
    "USE_MIOPEN",
    "USE_ROCM",
    // Older names, which the device `wave` still reads.
    "WAVE_FALLBACK",
    "WAVE_LAUNCH_BLOCKING",
    "WAVE_MEMORY_CAP",
    "WAVE_TIMEOUT",
    "WAVE_VISIBLE_DEVICES",
];

fn matters(name: &str) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|p| name.starts_with(p))
}

pub(super) fn variables(system: &System) -> Vec<Variable> {
    let mut found: BTreeMap<String, Variable> = BTreeMap::new();
    let mut entry = |name: &str, change: &mut dyn FnMut(&mut Variable)| {
        let variable = found.entry(name.to_string()).or_default();
        variable.name = name.to_string();
        change(variable);
    };
    for (name, value) in system.process.env.iter().filter(|(name, _)| matters(name)) {
        entry(name, &mut |variable| variable.now = Some(value.clone()));
    }
    for file in files(system) {
        let text = system.text(&file).unwrap_or_default();
        for (index, line) in text.lines().enumerate() {
            let (set, alone) = assignments(line);
            for (name, value) in set.into_iter().filter(|(name, _)| matters(name)) {
                let origin =
                    Origin { file: file.clone(), line: index + 1, value, text: line.to_string(), alone };
                entry(&name, &mut |variable| variable.origins.push(origin.clone()));
            }
        }
    }
    found.into_values().collect()
}

/// Every file that could set a variable for this user, in the order in which a login reads them.
fn files(system: &System) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    let folder = |folder: String, ending: &str, files: &mut Vec<String>| {
        let names = system.names(&folder).into_iter().filter(|n| n.ends_with(ending));
        files.extend(names.map(|n| format!("{folder}/{n}")));
    };
    files.push("/etc/environment".into());
    folder("/etc/environment.d".into(), ".conf", &mut files);
    files.push("/etc/profile".into());
    folder("/etc/profile.d".into(), ".sh", &mut files);
    let shells = ["bash.bashrc", "bashrc", "zsh/zshenv", "zsh/zshrc", "zshenv", "zshrc", "fish/config.fish"];
    files.extend(shells.iter().map(|f| format!("/etc/{f}")));
    folder("/etc/fish/conf.d".into(), ".fish", &mut files);
    units(system, "/etc/systemd/system", &mut files);
    if let Some(home) = system.home() {
        let config = system.env("XDG_CONFIG_HOME").map_or(format!("{home}/.config"), String::from);
        folder(format!("{config}/environment.d"), ".conf", &mut files);
        let own =
            [".pam_environment", ".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_aliases"];
        let zsh = [".zshenv", ".zprofile", ".zshrc", ".zlogin", ".xprofile", ".xsessionrc"];
        files.extend(own.iter().chain(&zsh).map(|f| format!("{home}/{f}")));
        files.push(format!("{config}/fish/config.fish"));
        folder(format!("{config}/fish/conf.d"), ".fish", &mut files);
        units(system, &format!("{config}/systemd/user"), &mut files);
    }
    if let Some(conda) = system.env("CONDA_PREFIX") {
        folder(format!("{conda}/etc/conda/activate.d"), "", &mut files);
    }
    if let Some(venv) = system.env("VIRTUAL_ENV") {
        files.extend(["activate", "activate.fish", "activate.csh"].iter().map(|f| format!("{venv}/bin/{f}")));
    }
    files.dedup();
    files
}

/// Services and their drop-ins.
fn units(system: &System, folder: &str, files: &mut Vec<String>) {
    for name in system.names(folder) {
        let path = format!("{folder}/{name}");
        if name.ends_with(".service") {
            files.push(path);
        } else if name.ends_with(".service.d") {
            let names = system.names(&path).into_iter().filter(|n| n.ends_with(".conf"));
            files.extend(names.map(|n| format!("{path}/{n}")));
        }
    }
}

/// The variables that a line of a shell, of `environment.d` or of a unit sets, and whether setting one is all it does.
pub(super) fn assignments(line: &str) -> (Vec<(String, String)>, bool) {
    let (words, whole) = words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_name = |n: &str| {
        let mut bytes = n.bytes();
        bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    match words.as_slice() {
        ["set", rest @ ..] if rest.first().is_some_and(|w| w.starts_with('-') && w.contains('x')) => {
            let rest: Vec<&str> = rest.iter().copied().skip_while(|w| w.starts_with('-')).collect();
            match rest.as_slice() {
                [name, value @ ..] if is_name(name) => (vec![(name.to_string(), value.join(" "))], whole),
                _ => (Vec::new(), whole),
            }
        }
        ["setenv", name, value] if is_name(name) => (vec![(name.to_string(), value.to_string())], whole),
        _ => {
            let skipped = |w: &&&str| matches!(**w, "export" | "declare" | "typeset" | "-x" | "-gx" | "env");
            let all = words.iter().skip_while(skipped).map(|w| w.strip_prefix("Environment=").unwrap_or(w));
            let all: Vec<&str> = all.collect();
            let pair = |w: &&str| w.split_once('=').map(|(n, v)| (n.to_string(), v.to_string()));
            let pairs = all.iter().map(pair).take_while(|p| p.as_ref().is_some_and(|(n, _)| is_name(n)));
            (pairs.flatten().collect(), whole && all.len() == 1)
        }
    }
}

/// Words of a line, quotes taken off, up to a comment or a separator; true if no separator came.
fn words(line: &str) -> (Vec<String>, bool) {
    let (mut words, mut word, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
    let mut whole = true;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some('"') | None, '\\') => word.extend(chars.next()),
            (None, '\'' | '"') => (quote, begun) = (Some(c), true),
            (None, '#') if word.is_empty() && !begun => break,
            (None, ';' | '&' | '|') => {
                whole = false;
                break;
            }
            (None, c) if c.is_whitespace() => {
                if begun || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            (_, c) => word.push(c),
        }
    }
    if begun || !word.is_empty() {
        words.push(word);
    }
    (words, whole && quote.is_none() && !line.ends_with('\\'))
}

/// Asks the MIOpens found whether they look the names up: a name that is in none of them does nothing.
pub(super) fn check_names(system: &System, rocm: &[Rocm], variables: &mut [Variable]) {
    let miopen: Vec<&str> = rocm.iter().filter_map(|r| Some(r.vendors_miopen()?.path.as_str())).collect();
    let asked = || variables.iter().filter(|v| v.name.starts_with("MIOPEN_"));
    let names: Vec<String> = asked().map(|v| v.name.clone()).collect();
    if names.is_empty() || miopen.is_empty() {
        return;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut known: Option<Vec<bool>> = None;
    for path in miopen {
        let Some(has) = code_objects::has_strings(system, path, &names) else { return };
        known = Some(match known {
            None => has,
            Some(before) => before.iter().zip(&has).map(|(a, b)| *a || *b).collect(),
        });
    }
    let known: BTreeMap<&str, bool> = names.into_iter().zip(known.unwrap_or_default()).collect();
    for variable in variables.iter_mut() {
        variable.known = known.get(variable.name.as_str()).copied();
    }
}

#[cfg(test)]
mod tests {
    fn assignments(line: &str) -> Vec<(String, String)> {
        super::assignments(line).0
    }

    #[test]
    fn a_line_that_does_more_is_not_alone() {
        for line in ["export A=1", "A='x;y' # why", "set -gx A 1", "Environment=A=1", "setenv A 1"] {
            assert!(super::assignments(line).1, "{line}");
        }
        for line in ["export A=1 B=2", "A=1; export A", "A=1 && b", "A=1 python x.py", "A='x", "A=x\\"] {
            assert!(!super::assignments(line).1, "{line}");
        }
    }

    #[test]
    fn lines_of_every_kind_of_file() {
        let one = |name: &str, value: &str| vec![(name.to_string(), value.to_string())];
        for line in [
            "A=1",
            "  export A=1",
            "export A='1'",
            "declare -x A=\"1\" # why",
            "set -gx A 1",
            "set --export A 1",
            "setenv A 1",
            "Environment=A=1",
            "Environment=\"A=1\"",
            "A=1; export A",
        ] {
            assert_eq!(assignments(line), one("A", "1"), "{line}");
        }
        assert_eq!(assignments("export A='x y' B=2").len(), 2);
        assert_eq!(assignments("A=1 B=2 python x.py C=3").len(), 2, "C is the program's");
        for line in ["# export A=1", "unset A", "if [ \"$A\" = 1 ]; then", "echo A=1", "set A 1", "A", ""] {
            assert_eq!(assignments(line), vec![], "{line}");
        }
    }
}
