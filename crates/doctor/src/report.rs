//! The diagnosis as text: what works, what is wrong, what was found.

use crate::facts::{Facts, Gpu, Rocm};
use crate::finding::{Finding, Fix};
use crate::verdict::Diagnosis;

/// Columns of a line, where words allow.
const WIDTH: usize = 100;

/// The whole report.
pub fn text(diagnosis: &Diagnosis) -> String {
    let mut out = String::new();
    let facts = &diagnosis.facts;
    out += &format!("{}\n", host(facts));
    for gpu in &facts.gpus {
        out += &format!("  {}\n", self::gpu(gpu));
    }
    let lent = facts.host.wsl.as_ref().is_some_and(|wsl| wsl.dxg);
    if lent {
        out += "  GPUs of Windows, through /dev/dxg\n";
    } else if facts.gpus.is_empty() {
        out += "  no GPU\n";
    }
    out += "\n";
    for verdict in &diagnosis.verdicts {
        let line = format!("{:<7} {:<9} {}", verdict.route.name(), verdict.state.name(), verdict.because);
        out += &wrapped("", &line, 18);
        if verdict.route == diagnosis.best || verdict.state != crate::verdict::State::Ready {
            out += &wrapped("                  next: ", &verdict.next, 24);
        }
    }
    out += &format!("Best here: {}.\n", diagnosis.best.name());
    let (wrong, other): (Vec<&Finding>, Vec<&Finding>) =
        diagnosis.findings.iter().partition(|f| f.severity.is_wrong());
    if wrong.is_empty() {
        out += "\nNothing to put right.\n";
    } else {
        out += "\nTo put right, worst first\n";
    }
    let mut told: Vec<(&Fix, usize)> = Vec::new();
    for (number, finding) in wrong.iter().enumerate() {
        out += &self::finding(number + 1, finding, &mut told);
    }
    let changes = |f: &&Finding| match &f.fix {
        Fix::UnsetVariable { places, .. } => !places.is_empty(),
        Fix::RemoveLeftover { .. } | Fix::Restore { .. } => true,
        _ => false,
    };
    if wrong.iter().any(changes) {
        out += &wrapped(
            "",
            "`wave32 doctor --fix` makes those changes that are to files of yours (`--fix --system`, as root: the system's); it \
             shows each and asks, and `wave32 undo` takes it back.",
            0,
        );
    }
    if !other.is_empty() {
        out += "\nGood to know\n";
    }
    for (number, finding) in other.iter().enumerate() {
        out += &self::finding(wrong.len() + number + 1, finding, &mut told);
    }
    out += &found(facts);
    if facts.gpus.iter().any(|g| g.target.is_some()) {
        out += &native(diagnosis);
    }
    if !facts.gaps.is_empty() {
        out += "\nNot read\n";
        for gap in &facts.gaps {
            out += &wrapped("  ", gap, 4);
        }
    }
    safe(&out)
}

fn host(facts: &Facts) -> String {
    let mut parts = vec![facts.host.system.clone().unwrap_or_else(|| "unknown system".into())];
    parts.extend(facts.host.kernel.as_ref().map(|k| format!("kernel {k}")));
    parts.extend(facts.host.memory_bytes.map(|b| format!("{} of memory", gib(b))));
    parts.extend(facts.host.wsl.as_ref().map(|_| "under Windows (WSL)".to_string()));
    parts.extend(facts.host.container.as_ref().map(|why| format!("in a container ({why})")));
    parts.join(", ")
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

fn gpu(gpu: &Gpu) -> String {
    let target = match (&gpu.target, gpu.target_from) {
        (Some(target), Some(from)) => format!("{target} (by {from})"),
        _ => format!("PCI {:04x}:{:04x}", gpu.vendor, gpu.device),
    };
    let driver = gpu.driver.as_deref().unwrap_or("no driver");
    let memory = gpu.vram_bytes.map(|b| format!(", {}", gib(b))).unwrap_or_default();
    format!("{} at {}: {target}{memory}, {driver}", gpu.name, gpu.address)
}

/// One finding; what is done about it is told once.
fn finding<'a>(number: usize, finding: &'a Finding, told: &mut Vec<(&'a Fix, usize)>) -> String {
    let routes: Vec<&str> = finding.routes.iter().map(|r| r.name()).collect();
    let head = format!("{} ({}): {}", finding.severity.name(), routes.join(", "), finding.what);
    let mut out = wrapped(&format!("{number:>3}. "), &head, 5);
    for evidence in &finding.evidence {
        out += &wrapped("     seen:  ", evidence, 12);
    }
    out += &wrapped("     means: ", finding.meaning, 12);
    match told.iter().find(|(fix, _)| **fix == finding.fix) {
        Some((_, earlier)) => out += &format!("     do:    as in {earlier}\n"),
        None => {
            told.push((&finding.fix, number));
            out += &fix(&finding.fix);
        }
    }
    out += &format!("     see:   {} [{}]\n", finding.source, finding.rule);
    out
}

fn fix(fix: &Fix) -> String {
    match fix {
        Fix::UnsetVariable { name, places, now } => {
            let mut out = String::new();
            for place in places {
                out += &wrapped(
                    "     do:    ",
                    &format!("take {name} out of {}, line {}", place.file, place.line),
                    12,
                );
            }
            if *now {
                out += &format!("     do:    in this shell: unset {name}\n");
            }
            out
        }
        Fix::RemoveLeftover { path } => wrapped("     do:    ", &format!("remove {path}"), 12),
        Fix::Restore { text, files, commands } => {
            let mut out = wrapped(
                "     do:    ",
                &format!("{text}. `sudo wave32 doctor --fix --system` does this:"),
                12,
            );
            for file in files {
                out += &format!("            move {file} away\n");
            }
            for command in commands {
                out += &format!("            $ {command}\n");
            }
            out
        }
        Fix::Run { text, commands } => {
            let mut out = wrapped("     do:    ", text, 12);
            for command in commands {
                out += &format!("            $ {command}\n");
            }
            out
        }
        Fix::Text { text } => wrapped("     do:    ", text, 12),
    }
}

fn found(facts: &Facts) -> String {
    let mut out = String::from("\nFound\n");
    for rocm in &facts.rocm {
        out += &wrapped("  ", &self::rocm(rocm), 4);
    }
    if facts.rocm.is_empty() {
        out += "  no ROCm\n";
    }
    for torch in &facts.torches {
        let built = match (&torch.hip, &torch.cuda) {
            (Some(hip), _) => format!("for ROCm (HIP {hip}), code for {}", list(&torch.targets)),
            (None, Some(cuda)) => format!("for CUDA {cuda}"),
            (None, None) => "for the CPU".into(),
        };
        let line = format!("PyTorch {} {built}, in {} ({})", torch.version, torch.path, torch.reach);
        out += &wrapped("  ", &line, 4);
    }
    if facts.torches.is_empty() {
        out += "  no PyTorch in reach\n";
    }
    for path in &facts.own_libraries {
        out += &wrapped("  ", &format!("wave32's {path}, for `wave32 run --route rocm`"), 4);
    }
    for device in facts.vulkan.devices.iter().flatten() {
        out += &wrapped("  ", &format!("Vulkan device {} ({})", device.name, device.driver), 4);
    }
    if facts.vulkan.devices.is_none() {
        for manifest in facts.vulkan.manifests.iter().filter(|m| m.problem.is_none()) {
            let library = manifest.library.as_deref().unwrap_or_default();
            out += &wrapped("  ", &format!("Vulkan driver {library} ({})", manifest.path), 4);
        }
    }
    out
}

fn rocm(rocm: &Rocm) -> String {
    let library = |name: &str, label: &str, what: &str| {
        let library = rocm.library(name)?;
        if let Some(own) = &library.ours {
            return Some(format!("{label}: wave32's {}", own.version));
        }
        let version = library.version.as_ref().map(|v| format!(" {v}")).unwrap_or_default();
        let targets = match what {
            "" => String::new(),
            what => format!(" ({what}: {})", list(&library.targets)),
        };
        Some(format!("{label}{version}{targets}"))
    };
    let parts = [
        library("hip", "HIP", ""),
        library("hsa", "ROCr", ""),
        library("miopen", "MIOpen", "databases"),
        library("rocblas", "rocBLAS", "code"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let version = rocm.version.as_deref().unwrap_or("of unknown version");
    format!("ROCm {version} in {} ({}): {}", rocm.path, rocm.kind, parts.join(", "))
}

fn list(targets: &[String]) -> String {
    if targets.is_empty() { "none".into() } else { targets.join(" ") }
}

fn native(diagnosis: &Diagnosis) -> String {
    let mut out = String::from("\nA PyTorch with the card's own code\n");
    for way in &diagnosis.native_pytorch {
        out += &wrapped("  ", &format!("{} for {}: {}", way.name, way.target, way.note), 4);
        for command in &way.commands {
            out += &format!("    $ {command}\n");
        }
        out += &format!("    see {}\n", way.source);
    }
    out
}

/// A paragraph with a first indent and one for its further lines; words are not cut.
fn wrapped(first: &str, text: &str, indent: usize) -> String {
    let mut out = String::from(first);
    let mut column = first.chars().count();
    let mut begun = false;
    // Spaces inside a table's line are kept.
    for word in text.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if begun && column + length > WIDTH {
            out.truncate(out.trim_end().len());
            out += "\n";
            out += &" ".repeat(indent);
            column = indent;
        }
        out += word;
        column += word.chars().count();
        begun = true;
    }
    out + "\n"
}

/// Names from files may hold anything; a terminal gets no control characters.
fn safe(text: &str) -> String {
    let keep = |c: char| c == '\n' || !c.is_control();
    text.chars().flat_map(|c| if keep(c) { vec![c] } else { c.escape_default().collect() }).collect()
}
