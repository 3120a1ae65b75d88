//! Compiles every kernel variant ahead of time and writes the Rust tables that embed the results.
//!
//! Objects are kept by a hash of all that shapes them, so an edit recompiles only the kernels that it
//! touches; in the target folder rather than OUT_DIR, so that debug, release and test builds, which have
//! an OUT_DIR each, compile them once.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use wave32_kernelc::clang::{self, Clang};
use wave32_kernelc::{Source, Target, glsl, parallel, source};
use wave32_params::variants::{self, Variant};

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            for line in reason.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let variable = |name: &str| std::env::var(name).map_err(|e| format!("{name}: {e}"));
    let kernels = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("../../kernels");
    let out = PathBuf::from(variable("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", kernels.display());
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["WAVE32_CLANG", "WAVE32_GFX_TARGETS"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let all = variants::all();
    // OUT_DIR is target/PROFILE/build/PACKAGE-HASH/out; anywhere above it would do.
    let shared = out.ancestors().nth(4).unwrap_or(&out);
    let cache = Cache::open(shared.join("wave32-kernel-objects"))?;
    let mut generated = spirv(&kernels, all, &cache, &out)?;
    let objects = match Gfx::choose(&out)? {
        Ok(gfx) => gfx.build(&kernels, all, &cache)?,
        Err(reason) => {
            if std::env::var_os("CARGO_FEATURE_CODE_OBJECTS").is_some() {
                println!("cargo::warning=no gfx code objects (the `rocm` route will be missing): {reason}");
            }
            CodeObjects { built: Vec::new(), targets: Vec::new(), reason }
        }
    };
    cache.sweep()?;
    let pack_one = |(target, path): &(&str, PathBuf)| {
        let code = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(format!("({target:?}, {}),\n", packed(&code, &out.join(format!("{target}.zst")))?))
    };
    let rows: Result<Vec<String>, String> = parallel::map(&objects.built, pack_one).into_iter().collect();
    let (rows, names) = (rows?.concat(), &objects.targets);
    generated += &format!(
        "static CODE_OBJECTS: [(&str, Packed); {}] = [{rows}];\nstatic TARGETS: &[&str] = &{names:?};\n\
         const LEFT_OUT: &str = {:?};\n",
        objects.built.len(),
        objects.reason
    );
    save(&out.join("embedded.rs"), generated.as_bytes())
}

/// Compresses into a file; returns the expression that embeds it. Kernels resemble each other: a tenth of their size is left.
fn packed(bytes: &[u8], path: &Path) -> Result<String, String> {
    // All of what is compressed together is in the window.
    const WINDOW_LOG: u32 = 24;
    // The last fifth of the size costs thirty times the time: for what users download.
    let level = if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") { 19 } else { 9 };
    let compress = || {
        let mut compressor = zstd::bulk::Compressor::new(level)?;
        compressor.set_parameter(zstd::zstd_safe::CParameter::WindowLog(WINDOW_LOG))?;
        compressor.compress(bytes)
    };
    let small = compress().map_err(|e| format!("{}: {e}", path.display()))?;
    save(path, &small)?;
    Ok(format!("Packed::new(include_bytes!({:?}), {})", path.display().to_string(), bytes.len()))
}

fn save(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))
}

/// Compiles all SPIR-V, which is compressed by source; returns the tables, that of the variants sorted by name.
fn spirv(kernels: &Path, all: &[Variant], cache: &Cache, out: &Path) -> Result<String, String> {
    let compile = |variant: &Variant| {
        let source = source::source(kernels, variant, Target::Glsl).map_err(|e| e.to_string())?;
        let made = cache.get(&source, &[glsl::VERSION], |path| {
            let words = glsl::spirv(&source).map_err(|e| e.to_string())?;
            save(path, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>())
        })?;
        fs::read(&made).map_err(|e| format!("{}: {e}", made.display()))
    };
    let modules: Result<Vec<Vec<u8>>, String> = parallel::map(all, compile).into_iter().collect();
    let modules = modules?;
    let sources: BTreeSet<&str> = all.iter().map(|variant| variant.source.as_str()).collect();
    let (mut joined, mut rows) = (Vec::new(), Vec::new());
    for (index, source) in sources.into_iter().enumerate() {
        let mut bytes = Vec::new();
        for (variant, module) in all.iter().zip(&modules).filter(|(variant, _)| variant.source == source) {
            rows.push(format!("({:?}, {index}, {}, {}),\n", variant.name, bytes.len(), module.len()));
            bytes.extend(module);
        }
        joined.push((source, bytes));
    }
    rows.sort();
    let pack_one = |(name, bytes): &(&str, Vec<u8>)| packed(bytes, &out.join(format!("{name}.spv.zst")));
    let embedded: Result<Vec<String>, String> = parallel::map(&joined, pack_one).into_iter().collect();
    let (count, embedded, rows) = (joined.len(), embedded?.join(",\n"), rows.concat());
    Ok(format!(
        "static SOURCES: [Packed; {count}] = [{embedded}];\n\
         static MODULES: &[(&str, usize, usize, usize)] = &[{rows}];\n"
    ))
}

/// The clang to use and the targets to build for.
struct Gfx {
    clang: Clang,
    targets: Vec<&'static str>,
    scratch: PathBuf,
}

/// What was linked, and why other targets are not there.
struct CodeObjects {
    built: Vec<(&'static str, PathBuf)>,
    /// Of some the code is a sibling's.
    targets: Vec<&'static str>,
    reason: String,
}

impl Gfx {
    /// The inner error is the reason to go on without code objects.
    fn choose(out: &Path) -> Result<Result<Self, String>, String> {
        let scratch = out.join("scratch");
        fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
        if std::env::var_os("CARGO_FEATURE_CODE_OBJECTS").is_none() {
            return Ok(Err("wave32 was built without the feature `code-objects`".to_string()));
        }
        let asked = std::env::var("WAVE32_GFX_TARGETS").unwrap_or_default();
        if asked == "none" {
            return Ok(Err("WAVE32_GFX_TARGETS=none was set when wave32 was built".to_string()));
        }
        let asked: Vec<&str> = asked.split(',').map(str::trim).filter(|t| !t.is_empty()).collect();
        let all = clang::targets();
        if let Some(unknown) = asked.iter().find(|t| !all.contains(t)) {
            return Err(format!(
                "WAVE32_GFX_TARGETS: {unknown} is none of {}; or say `none`",
                all.join(", ")
            ));
        }
        let clang = match Clang::find() {
            Ok(clang) => clang,
            Err(reason) => {
                // A compiler that is installed later must be seen: watch where it would appear.
                let path = std::env::var_os("PATH").unwrap_or_default();
                for folder in std::env::split_paths(&path).filter(|f| f.is_dir()) {
                    println!("cargo::rerun-if-changed={}", folder.display());
                }
                return Ok(Err(reason.to_string()));
            }
        };
        let wanted: Vec<_> = all.into_iter().filter(|t| asked.is_empty() || asked.contains(t)).collect();
        let known: Vec<bool> = parallel::map(&wanted, |target| clang.knows(target, &scratch));
        let mut targets = Vec::new();
        for (target, known) in wanted.into_iter().zip(known) {
            if known {
                targets.push(target);
            } else if asked.is_empty() {
                println!("cargo::warning=no code object for {target}: {} cannot make it", clang.version);
            } else {
                return Err(format!("WAVE32_GFX_TARGETS: {} cannot make code for {target}", clang.version));
            }
        }
        Ok(Ok(Self { clang, targets, scratch }))
    }

    fn build(&self, kernels: &Path, all: &[Variant], cache: &Cache) -> Result<CodeObjects, String> {
        let for_target =
            |&target: &&'static str| all.iter().filter_map(move |v| Some((v.code_of(target)?, v)));
        // What targets share is made once.
        let mut jobs: Vec<(&'static str, &Variant)> = self.targets.iter().flat_map(for_target).collect();
        jobs.sort_by_key(|(source, variant)| (*source, &variant.name));
        jobs.dedup_by_key(|(source, variant)| (*source, &variant.name));
        let sources: BTreeSet<&'static str> = jobs.iter().map(|(source, _)| *source).collect();
        let compile = |&(target, variant): &(&str, &Variant)| {
            let source = source::source(kernels, variant, Target::Hip).map_err(|e| e.to_string())?;
            let flags = Clang::flags(&variant.name, target).join(" ");
            cache.get(&source, &[&self.clang.version, &flags], |path| {
                let object =
                    self.clang.relocatable(&source, target, &self.scratch).map_err(|e| e.to_string())?;
                fs::rename(&object, path).map_err(|e| format!("{}: {e}", path.display()))
            })
        };
        let objects: Result<Vec<PathBuf>, String> = parallel::map(&jobs, compile).into_iter().collect();
        let objects = objects?;
        let mut built = Vec::new();
        for &source in &sources {
            let parts = jobs.iter().zip(&objects).filter(|((t, _), _)| *t == source);
            let parts: Vec<PathBuf> = parts.map(|(_, object)| object.clone()).collect();
            let path = self.scratch.join(format!("{source}.elf"));
            self.clang.link(&parts, &path).map_err(|e| format!("linking for {source}: {e}"))?;
            built.push((source, path));
        }
        let reason = format!("this build has code for {} only", self.targets.join(", "));
        Ok(CodeObjects { built, targets: self.targets.clone(), reason })
    }
}

/// Compiled objects by a hash of what they are made from.
struct Cache {
    folder: PathBuf,
    used: std::sync::Mutex<HashSet<PathBuf>>,
}

impl Cache {
    fn open(folder: PathBuf) -> Result<Self, String> {
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self { folder, used: std::sync::Mutex::default() })
    }

    /// The object made from `source` and `key`; `make` writes it to a path if it is not there yet.
    fn get(
        &self,
        source: &Source,
        key: &[&str],
        make: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<PathBuf, String> {
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &source.name, &source.text, key).hash(&mut hasher);
            hasher.finish()
        };
        let path = self.folder.join(format!("{:016x}{:016x}", hash(0), hash(1)));
        if !path.is_file() {
            // By way of another name: an interrupted build leaves no half object, and two at once do not mix.
            let partial = path.with_extension(format!("partial-{}", std::process::id()));
            make(&partial)?;
            fs::rename(&partial, &path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        self.used.lock().unwrap_or_else(|e| e.into_inner()).insert(path.clone());
        Ok(path)
    }

    /// Removes what this build did not use and is older than a day: an edit that is undone, or another
    /// choice of targets, costs nothing.
    fn sweep(&self) -> Result<(), String> {
        let used = self.used.lock().unwrap_or_else(|e| e.into_inner());
        let entries = fs::read_dir(&self.folder).map_err(|e| format!("{}: {e}", self.folder.display()))?;
        let old = |entry: &fs::DirEntry| {
            let modified = entry.metadata().and_then(|m| m.modified()).ok();
            modified.and_then(|t| t.elapsed().ok()).is_some_and(|age| age > Duration::from_secs(24 * 3600))
        };
        for entry in entries.flatten().filter(|e| !used.contains(&e.path()) && old(e)) {
            // Best effort: a file left over costs disk space, nothing else.
            let _ = fs::remove_file(entry.path());
        }
        Ok(())
    }
}
