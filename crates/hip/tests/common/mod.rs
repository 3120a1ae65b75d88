//! What the tests share: a stand-in runtime, fixture kernels for it and for a card, and the card if there is one.
#![allow(dead_code, reason = "each test file uses its part")]

use std::borrow::Cow;
use std::ffi::{CString, c_char, c_long};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use wave32_device::conformance::{FIXTURE_THREADS, Fixture};
use wave32_device::{DeviceError, Runner};
use wave32_hip::{HipQueue, Kernel, KernelSource, Options};

pub const FIXTURE: Fixture = Fixture { step: "step", spin: "spin" };

/// The suite's fixture kernels: compiled for the card's target, or anything for a stand-in that knows them by name.
pub struct Fixtures {
    pub real: bool,
}

impl KernelSource for Fixtures {
    fn codes(&self, target: &str) -> Result<Vec<Cow<'static, [u8]>>, String> {
        if target == "gfx000" {
            return Err("no fixtures for gfx000".into());
        }
        Ok(vec![if self.real { Cow::Owned(compiled(target)?) } else { Cow::Borrowed(b"\x7fELF") }])
    }

    fn kernel(&self, _: &str, name: &str) -> Option<Kernel> {
        let (buffers, params) = match name {
            "step" => (2, 4),
            "spin" => (1, 3),
            "missing" => (1, 1),
            _ => return None,
        };
        Some(Kernel { threads: FIXTURE_THREADS, buffers, params })
    }
}

/// The code object of `fixtures.hip`.
fn compiled(target: &str) -> Result<Vec<u8>, String> {
    let clang = wave32_kernelc::clang::Clang::find().map_err(|e| e.to_string())?;
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let source = wave32_kernelc::Source {
        name: "fixtures".into(),
        text: include_str!("../fixtures.hip").into(),
        files: Vec::new(),
    };
    let object = clang.relocatable(&source, target, dir.path()).map_err(|e| e.to_string())?;
    let linked = dir.path().join("fixtures.elf");
    clang.link(&[object], &linked).map_err(|e| e.to_string())?;
    std::fs::read(linked).map_err(|e| e.to_string())
}

/// A stand-in runtime of its own: the file is loaded once, so settings of one test are not another's.
pub struct StandIn {
    _dir: tempfile::TempDir,
    pub path: PathBuf,
    library: libloading::Library,
}

impl StandIn {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libamdhip64.so.5");
        build(&path);
        // SAFETY: a C file without initialisers.
        let library = unsafe { libloading::Library::new(&path) }.unwrap();
        Self { _dir: dir, path, library }
    }

    /// Sets a count, or makes a function fail with a status.
    pub fn set(&self, name: &str, value: i64) {
        let text = CString::new(name).unwrap();
        // SAFETY: the function's type in `hip.c`.
        unsafe {
            let set =
                self.library.get::<unsafe extern "C" fn(*const c_char, c_long)>(b"standin_set").unwrap();
            set(text.as_ptr(), value);
        }
    }

    /// How often a function was called.
    pub fn calls(&self, name: &str) -> i64 {
        let text = CString::new(name).unwrap();
        // SAFETY: the function's type in `hip.c`.
        unsafe {
            let calls = self.library.get::<unsafe extern "C" fn(*const c_char) -> c_long>(b"standin_calls");
            calls.unwrap()(text.as_ptr())
        }
    }

    pub fn options(&self) -> Options {
        let library = Some(self.path.clone());
        Options { library, kernels: Arc::new(Fixtures { real: false }), ..Options::default() }
    }
}

/// Puts the stand-in runtime there, compiled once a test program. (The loader tells copies apart.)
pub fn build(path: &Path) {
    static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BUILT.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let first = dir.path().join("hip.so");
        compile(&first);
        std::fs::read(first).unwrap()
    });
    std::fs::write(path, bytes).unwrap();
}

fn compile(path: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin/hip.c");
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-o"])
        .args([path, &source])
        .status();
    assert!(status.unwrap().success());
}

/// The card's options, with the fixture kernels.
pub fn card_options() -> Options {
    Options { kernels: Arc::new(Fixtures { real: true }), ..Options::default() }
}

/// A runner on the best card, or `None` with the reason printed where there is none. Where `WAVE32_REQUIRE_HIP` is set (under the
/// virtual card), its absence is a failure.
pub fn card(options: Options) -> Option<Runner<HipQueue>> {
    match wave32_hip::open(None, options) {
        Ok(queue) => Some(Runner::new(queue)),
        Err(DeviceError::Unavailable(why)) if std::env::var_os("WAVE32_REQUIRE_HIP").is_none() => {
            eprintln!("skipped: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A fresh seed, printed for whoever has to repeat a failure.
pub fn seed() -> u64 {
    let seed = rand::random();
    eprintln!("seed {seed}");
    seed
}
