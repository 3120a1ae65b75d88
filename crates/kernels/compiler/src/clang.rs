//! HIP device code to gfx code objects, by an installed clang and lld.

use crate::{CompileError, Source};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wave32_cards::targets::TARGETS;
use wave32_params::variants::Variant;

/// Targets that are tried; a clang that does not know one leaves it out.
#[must_use]
pub fn targets() -> Vec<&'static str> {
    TARGETS.iter().filter(|target| target.code_of.is_some()).map(|target| target.name).collect()
}

/// The variants that are compiled for that very target, not for one that it shares code with.
pub fn made_for<'v>(target: &str, variants: &[&'v Variant]) -> Vec<&'v Variant> {
    variants.iter().copied().filter(|v| v.code_of(target) == Some(target)).collect()
}

/// Oldest clang whose code objects v4 were tried.
const OLDEST: u32 = 15;
/// Newest clang that is looked for by a versioned name.
const NEWEST: u32 = 22;

/// A clang with its linker.
#[derive(Debug, Clone)]
pub struct Clang {
    clang: PathBuf,
    lld: PathBuf,
    /// First line of `clang --version`: part of cache keys and of the golden table's header.
    pub version: String,
}

/// Runs a tool to its end and returns its standard output.
fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// `19` from `... clang version 19.1.7 (...)`.
fn major(version: &str) -> Option<u32> {
    version.split("clang version ").nth(1)?.split('.').next()?.parse().ok()
}

impl Clang {
    /// The clang to use: `$WAVE32_CLANG` if set, else clang-19 (the version the golden table was made
    /// with), else the newest of the others, else `clang`; with the lld of the same version.
    ///
    /// # Errors
    /// [`CompileError::Tool`] saying what to install.
    pub fn find() -> Result<Self, CompileError> {
        if let Some(forced) = std::env::var_os("WAVE32_CLANG").filter(|v| !v.is_empty()) {
            return Self::at(Path::new(&forced));
        }
        let versions = std::iter::once(19).chain((OLDEST..=NEWEST).rev().filter(|v| *v != 19));
        let names = versions.map(|v| format!("clang-{v}")).chain(["clang".to_string()]);
        let mut reasons = Vec::new();
        for name in names {
            match Self::at(Path::new(&name)) {
                Ok(found) => return Ok(found),
                Err(CompileError::Tool(reason)) if !reason.contains("No such file") => reasons.push(reason),
                Err(_) => {}
            }
        }
        let seen = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
        Err(CompileError::Tool(format!(
            "no clang {OLDEST} or newer with AMDGPU support and its lld was found{seen}; \
             install clang-19 and lld-19, or set WAVE32_CLANG"
        )))
    }

    /// That clang, if it is new enough and its lld is there.
    ///
    /// # Errors
    /// [`CompileError::Tool`] with the reason.
    pub fn at(clang: &Path) -> Result<Self, CompileError> {
        let version = run(Command::new(clang).arg("--version")).map_err(CompileError::Tool)?;
        let version = version.lines().next().unwrap_or_default().trim().to_string();
        let Some(found) = major(&version).filter(|v| *v >= OLDEST) else {
            return Err(CompileError::Tool(format!("{}: {version} is older than {OLDEST}", clang.display())));
        };
        let lld = Self::sibling(clang, "ld.lld", found)?;
        Ok(Self { clang: clang.to_path_buf(), lld, version })
    }

    /// A tool of the same LLVM: beside clang's real path, or by versioned name, or by plain name.
    fn sibling(clang: &Path, tool: &str, version: u32) -> Result<PathBuf, CompileError> {
        let dir = run(Command::new(clang).arg(format!("-print-prog-name={tool}"))).unwrap_or_default();
        let candidates = [dir.trim().to_string(), format!("{tool}-{version}"), tool.to_string()];
        for candidate in candidates.iter().filter(|c| !c.is_empty()) {
            if run(Command::new(candidate).arg("--version")).is_ok() {
                return Ok(PathBuf::from(candidate));
            }
        }
        Err(CompileError::Tool(format!(
            "{} has no {tool} of its version: install lld-{version} (and llvm-{version})",
            clang.display()
        )))
    }

    /// The flags that shape the code; part of cache keys.
    pub fn flags(name: &str, target: &str) -> Vec<String> {
        let mut flags: Vec<String> =
            ["-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-nostdinc"]
                .map(String::from)
                .into();
        flags.extend(["-O3", "-mcode-object-version=4"].map(String::from));
        // HIP marks each compilation unit with a symbol of this name: reproducible, and distinct in one link.
        flags.push(format!("-cuid={name}"));
        flags.push(format!("--offload-arch={target}"));
        flags
    }

    /// Can it make code for `target`?
    pub fn knows(&self, target: &str, scratch: &Path) -> bool {
        let probe = Source {
            name: "probe".to_string(),
            text: "extern \"C\" __attribute__((global)) void probe() {}\n".to_string(),
            files: Vec::new(),
        };
        self.relocatable(&probe, target, scratch).is_ok()
    }

    /// Compiles a source for [`crate::Target::Hip`] to a relocatable `scratch/NAME.TARGET.o`.
    ///
    /// Two steps, because clang's HIP driver would link a single kernel at once: to assembly, then
    /// to an object. All kernels of a target are linked together by [`Clang::link`].
    ///
    /// # Errors
    /// [`CompileError::Rejected`] with clang's messages.
    pub fn relocatable(
        &self,
        source: &Source,
        target: &str,
        scratch: &Path,
    ) -> Result<PathBuf, CompileError> {
        let path = |extension: &str| scratch.join(format!("{}.{target}.{extension}", source.name));
        let (text, assembly, object) = (path("hip"), path("s"), path("o"));
        std::fs::write(&text, &source.text)
            .map_err(|e| CompileError::Tool(format!("{}: {e}", text.display())))?;
        let rejected = |log: String| CompileError::Rejected {
            compiler: format!("{} for {target}", self.clang.display()),
            variant: source.name.clone(),
            log,
        };
        let mut compile = Command::new(&self.clang);
        compile.args(Self::flags(&source.name, target)).arg("-S").arg(&text).arg("-o").arg(&assembly);
        run(&mut compile).map_err(rejected)?;
        let mut assemble = Command::new(&self.clang);
        assemble.args([
            "-target",
            "amdgcn-amd-amdhsa",
            "-mcode-object-version=4",
            &format!("-mcpu={target}"),
        ]);
        assemble.arg("-c").arg(&assembly).arg("-o").arg(&object);
        run(&mut assemble).map_err(rejected)?;
        for finished in [text, assembly] {
            // Best effort: a file left over costs disk space, nothing else.
            let _ = std::fs::remove_file(finished);
        }
        Ok(object)
    }

    /// Links relocatables of one target into the code object `out`.
    ///
    /// # Errors
    /// [`CompileError::Tool`] with lld's messages.
    pub fn link(&self, objects: &[PathBuf], out: &Path) -> Result<(), CompileError> {
        let mut link = Command::new(&self.lld);
        link.args(["-shared", "--no-undefined", "-o"]).arg(out).args(objects);
        run(&mut link).map_err(CompileError::Tool).map(drop)
    }

    /// The disassembly of a code object or relocatable, by the llvm-objdump of the same version.
    ///
    /// # Errors
    /// [`CompileError::Tool`] if llvm-objdump is missing or fails.
    pub fn disassemble(&self, object: &Path) -> Result<String, CompileError> {
        let version = major(&self.version).unwrap_or(OLDEST);
        let objdump = Self::sibling(&self.clang, "llvm-objdump", version)?;
        let mut command = Command::new(objdump);
        command.args(["-d", "--no-show-raw-insn"]).arg(object);
        run(&mut command).map_err(CompileError::Tool)
    }
}
