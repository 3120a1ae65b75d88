//! A recipe for building PyTorch for one card, with what it needs looked up on the machine. Nothing is run.

use crate::facts::{Facts, Rocm};
use crate::system::System;
use serde::Serialize;
use wave32_cards::targets;

/// PyTorch's README, "Prerequisites": 10 GB of disk; a build in debug mode or with tests takes more.
const DISK: u64 = 10 << 30;
/// One compiler of a HIP kernel file takes about this much; an estimate of ours.
const MEMORY_A_JOB: u64 = 4 << 30;
const README: &str = "https://github.com/pytorch/pytorch#from-source";
const VERSIONS: &str = "https://pytorch.org/get-started/previous-versions/";
/// The PyTorch that was released for a ROCm.
const RELEASES: &[((u32, u32), &str)] = &[
    ((7, 0), "v2.10.0"),
    ((6, 4), "v2.9.1"),
    ((6, 3), "v2.7.1"),
    ((6, 2), "v2.5.1"),
    ((6, 1), "v2.4.1"),
    ((6, 0), "v2.3.1"),
    ((5, 7), "v2.2.2"),
    ((5, 6), "v2.1.2"),
    ((5, 4), "v2.0.1"),
    ((5, 2), "v1.13.1"),
];

/// Something a build needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Need {
    /// What.
    pub name: String,
    /// What is there of it, if anything.
    pub found: Option<String>,
    /// Whether that is enough.
    pub met: bool,
    /// How to get it.
    pub get: String,
}

/// The recipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BuildRecipe {
    /// Target to build for.
    pub target: String,
    /// Version of PyTorch.
    pub version: String,
    /// The ROCm it is built against.
    pub rocm: Option<String>,
    /// What it needs.
    pub needs: Vec<Need>,
    /// Commands, in order.
    pub steps: Vec<String>,
    /// Where that is known from.
    pub sources: Vec<&'static str>,
}

impl BuildRecipe {
    /// True if everything needed is there.
    pub fn is_ready(&self) -> bool {
        self.needs.iter().all(|n| n.met)
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut out = format!("PyTorch {} for {}\n\nNeeded\n", self.version, self.target);
        for need in &self.needs {
            let mark = if need.met { "ok     " } else { "MISSING" };
            let found = need.found.as_deref().unwrap_or("not found");
            out += &format!("  {mark} {}: {found}\n", need.name);
            if !need.met {
                out += &format!("          {}\n", need.get);
            }
        }
        out += if self.is_ready() { "\nTo build\n" } else { "\nTo build, once nothing is missing\n" };
        for step in &self.steps {
            out += &format!("  $ {step}\n");
        }
        out += "\nThis is a plan: nothing was run. See\n";
        for source in &self.sources {
            out += &format!("  {source}\n");
        }
        out
    }
}

/// Makes the recipe for a target.
pub fn plan(system: &System, facts: &Facts, target: &str) -> BuildRecipe {
    let whole = |r: &&Rocm| matches!(r.kind, "opt" | "distribution") && r.library("hip").is_some();
    let rocm =
        facts.rocm.iter().filter(whole).max_by_key(|r| numbers(r.version.as_deref().unwrap_or_default()));
    let version = rocm.and_then(|r| {
        let there = numbers(r.version.as_deref()?);
        RELEASES.iter().find(|(rocm, _)| *rocm <= there).map(|(_, tag)| *tag)
    });
    let version = version.unwrap_or("v2.10.0");
    let prefix = rocm.map_or("/opt/rocm", |r| if r.kind == "distribution" { "/usr" } else { &r.path });
    let jobs = facts.host.memory_bytes.map_or(1, |bytes| (bytes / MEMORY_A_JOB).clamp(1, 64));
    let steps = vec![
        format!(
            "git clone --recursive --branch {version} https://github.com/pytorch/pytorch pytorch-{target}"
        ),
        format!("cd pytorch-{target}"),
        "python3 -m venv build-env".into(),
        "build-env/bin/pip install -r requirements.txt cmake ninja".into(),
        "build-env/bin/python tools/amd_build/build_amd.py".into(),
        format!(
            "PATH=\"$PWD/build-env/bin:$PATH\" ROCM_PATH={prefix} CMAKE_PREFIX_PATH={prefix} PYTORCH_ROCM_ARCH={target} \
             USE_ROCM=1 USE_CUDA=0 MAX_JOBS={jobs} build-env/bin/python setup.py bdist_wheel"
        ),
        "build-env/bin/pip install dist/torch-*.whl".into(),
        "wave32 doctor --python build-env/bin/python".into(),
    ];
    BuildRecipe {
        target: target.to_string(),
        version: version.to_string(),
        rocm: rocm.map(|r| r.path.clone()),
        needs: needs(system, facts, rocm, prefix, target),
        steps,
        sources: vec![README, VERSIONS],
    }
}

/// Major and minor number.
fn numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|p| p.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn needs(system: &System, facts: &Facts, rocm: Option<&Rocm>, prefix: &str, target: &str) -> Vec<Need> {
    let get = |debian: &str, other: &str| {
        let is_debian = facts.host.like.iter().any(|l| l == "debian" || l == "ubuntu");
        if is_debian { format!("sudo apt install {debian}") } else { format!("install {other}") }
    };
    let need = |name: &str, found: Option<String>, met: bool, get: String| Need {
        name: name.into(),
        found,
        met,
        get,
    };
    let tool = |name: &'static str, debian: &str| {
        let found = path(system, name);
        need(name, found.clone(), found.is_some(), get(debian, name))
    };
    let version = rocm.and_then(|r| r.version.clone());
    let installed =
        rocm.map(|r| format!("{} in {}", version.as_deref().unwrap_or("unknown version"), r.path));
    let supported = version.as_deref().is_some_and(|v| numbers(v) >= (5, 2));
    let rocm_get = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/".to_string();
    let mut needs = vec![need("ROCm 5.2 or newer", installed, supported, rocm_get)];
    let file = |name: &str, places: &[String], debian: &str| {
        let found = places.iter().find(|p| system.is_file(p)).cloned();
        need(name, found.clone(), found.is_some(), get(debian, name))
    };
    needs.push(file("hipcc", &[format!("{prefix}/bin/hipcc"), "/usr/bin/hipcc".into()], "hipcc"));
    let header = |library: &str| format!("{prefix}/include/{library}");
    needs.push(file("HIP headers", &[header("hip/hip_runtime.h")], "libamdhip64-dev"));
    needs.push(file("MIOpen headers", &[header("miopen/miopen.h")], "libmiopen-dev"));
    needs.push(file(
        "rocBLAS headers",
        &[header("rocblas/rocblas.h"), header("rocblas.h")],
        "librocblas-dev",
    ));
    // The compiler's support for a target is a file of its device library.
    let isa = format!("oclc_isa_version_{}.bc", target.trim_start_matches("gfx"));
    let folders = ["amdgcn/bitcode", "lib/llvm/lib/clang/amdgcn/bitcode", "share/amdgcn/bitcode"];
    let mut places: Vec<String> = folders.iter().map(|f| format!("{prefix}/{f}/{isa}")).collect();
    places.extend(clang_bitcode(system, &isa));
    needs.push(file(&format!("device library for {target}"), &places, "rocm-device-libs"));
    let blas = rocm.and_then(|r| r.library("rocblas"));
    let code = blas.map(|l| if l.targets.is_empty() { "none".into() } else { l.targets.join(" ") });
    let met = blas.is_some_and(|l| targets::runs_on(&l.targets, target));
    let rebuild = format!(
        "build rocBLAS for {target} too, or install a ROCm that has it (a distribution's, TheRock's)"
    );
    needs.push(need(&format!("rocBLAS code for {target}"), code, met, rebuild));
    needs.push(tool("git", "git"));
    needs.push(tool("g++", "g++"));
    let python = python(system);
    needs.push(need(
        "Python 3.10 or newer",
        python.clone().map(|(minor, _)| format!("3.{minor}")),
        python.as_ref().is_some_and(|(minor, _)| *minor >= 10),
        get("python3", "Python"),
    ));
    let headers = python.and_then(|(_, headers)| headers);
    needs.push(need(
        "Python headers",
        headers.clone(),
        headers.is_some(),
        get("python3-dev python3-venv", "Python's headers"),
    ));
    let gib = |bytes: u64| format!("{:.0} GiB", bytes as f64 / f64::from(1 << 30));
    let free = facts.host.free_bytes;
    needs.push(need(
        "10 GiB of free disk here",
        free.map(gib),
        free.is_some_and(|b| b >= DISK),
        "make room, or build elsewhere".into(),
    ));
    let memory = facts.host.memory_bytes;
    let enough = memory.is_some_and(|b| b >= MEMORY_A_JOB);
    needs.push(need("4 GiB of memory a compiler", memory.map(gib), enough, "add swap".into()));
    needs
}

/// A program in PATH, or where programs usually are.
fn path(system: &System, name: &str) -> Option<String> {
    let own = system.env("PATH").unwrap_or_default().split(':').filter(|f| f.starts_with('/'));
    own.chain(["/usr/local/bin", "/usr/bin"]).map(|f| format!("{f}/{name}")).find(|p| system.is_file(p))
}

/// Debian keeps the device library with each clang.
fn clang_bitcode(system: &System, isa: &str) -> Vec<String> {
    let base = "/usr/lib/clang";
    system.names(base).into_iter().map(|v| format!("{base}/{v}/amdgcn/bitcode/{isa}")).collect()
}

/// The newest Python 3's minor version, and its header if that is there.
fn python(system: &System) -> Option<(u32, Option<String>)> {
    let folders = ["/usr/local", "/usr"];
    let found = folders.iter().flat_map(|prefix| {
        let names = system.names(&format!("{prefix}/bin")).into_iter();
        names
            .filter_map(|n| Some((n.strip_prefix("python3.")?.parse::<u32>().ok()?, *prefix)))
            .collect::<Vec<_>>()
    });
    let (minor, prefix) = found.max()?;
    let header = format!("{prefix}/include/python3.{minor}/Python.h");
    Some((minor, system.is_file(&header).then_some(header)))
}
