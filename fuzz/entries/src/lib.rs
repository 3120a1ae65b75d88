//! Every parser that reads what others wrote, as a function of bytes: for the fuzzers of `fuzz/`, and for the test that
//! runs their corpora without one.
//!
//! What a parser makes of bytes is its own tests' matter. Here it must come back, without a panic, and with what holds for
//! any bytes: what was read reads again as the same.
//!
//! Some modules are other crates' files: those crates wait minutes for kernels to be compiled.

mod bench;
#[allow(dead_code, missing_docs)] // one way in is enough
#[path = "../../../crates/vulkan/src/cache.rs"]
mod cache;
#[allow(dead_code)]
#[path = "../../../crates/probe/src/finding.rs"]
mod finding;
#[allow(dead_code)]
#[path = "../../../crates/probe/src/known.rs"]
mod known;
#[allow(dead_code)]
#[path = "../../../crates/verify/src/process/protocol.rs"]
mod protocol;
#[allow(dead_code)]
#[path = "../../../crates/miopen/src/conv/proven_table.rs"]
mod proven;
#[allow(dead_code)]
#[path = "../../../crates/miopen/src/conv/rewriting.rs"]
mod rewriting;
/// Where the table's text looks for it.
mod conv {
    pub(crate) use crate::rewriting;
}
#[allow(dead_code)]
#[path = "../../../crates/probe/src/quarantine.rs"]
mod quarantine;
#[allow(dead_code)]
#[path = "../../../crates/hipdnn/src/schema.rs"]
mod schema;
#[allow(dead_code)]
#[path = "../../../crates/probe/src/superseded.rs"]
mod superseded;

/// What `protocol` makes failures of.
mod data {
    #[derive(Debug)]
    pub struct NoMemory;

    impl std::fmt::Display for NoMemory {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("no memory")
        }
    }
}

use rewriting::Rewriting;
use std::path::{Path, PathBuf};
use wave32_problem::Problem;

/// Reads bytes that somebody else wrote; a panic is a finding.
pub type Entry = fn(&[u8]);

/// The entries by the names of their targets and corpora.
pub const ENTRIES: [(&str, Entry); 11] = [
    ("lines", lines),
    ("onnx", onnx),
    ("journal", journal),
    ("code_objects", code_objects),
    ("pipelines", pipelines),
    ("children", children),
    ("elf", elf),
    ("decoder", decoder),
    ("hipdnn", hipdnn),
    ("tables", tables),
    ("reports", reports),
];

/// MIOpenDriver lines, a file of them.
pub fn lines(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = wave32_problem::parse_lines(&text);
    for line in text.lines() {
        for problem in wave32_problem::parse_line(line).into_iter().flatten() {
            let said = problem.to_string();
            let again = wave32_problem::parse_line(&said).expect("what we print is a line");
            assert!(again.contains(&problem), "{said} reads as {again:?}");
        }
    }
}

/// Where files may be: in memory, if there is such a place.
fn place() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// A file that a parser opens by its name; one a thread.
fn with_file(bytes: &[u8], read: impl FnOnce(&Path)) {
    thread_local! {
        static FOLDER: tempfile::TempDir = tempfile::tempdir_in(place()).expect("a folder for the file");
    }
    FOLDER.with(|folder| {
        let path = folder.path().join("file");
        std::fs::write(&path, bytes).expect("a file");
        read(&path);
    });
}

/// A network: the file, its shapes, its convolutions.
pub fn onnx(bytes: &[u8]) {
    use wave32_check::infer::Given;
    with_file(bytes, |path| {
        let Ok(graph) = wave32_check::onnx::read(path) else { return };
        for given in [Given { batch: None, size: None }, Given { batch: Some(2), size: Some([64, 48]) }] {
            wave32_check::layers::layers(&graph, &given);
        }
    });
}

/// What `apply` remembers of a change.
pub fn journal(bytes: &[u8]) {
    let Ok(manifest) = serde_json::from_slice::<wave32_change::Manifest>(bytes) else { return };
    let text = serde_json::to_string(&manifest).expect("a manifest is JSON");
    let again: wave32_change::Manifest = serde_json::from_str(&text).expect("and reads back");
    assert_eq!(serde_json::to_string(&again).expect("JSON"), text);
}

/// A library that doctor looks for code objects in: ELF, bundles, packed archives.
pub fn code_objects(bytes: &[u8]) {
    with_file(bytes, |path| {
        let root = path.parent().expect("a folder");
        let system = wave32_doctor::system::System::new(root.to_owned(), Default::default(), false);
        let _ = wave32_doctor::code_objects::read(&system, "/file");
        let _ = wave32_doctor::code_objects::has_strings(&system, "/file", &["miopen", "gfx1010"]);
        let _ = wave32_doctor::code_objects::defines(&system, "/file", &["miopenCreate"]);
    });
}

/// A pipeline cache. Its name says whose it is, its checksum is right more often than bytes of their own would have it.
pub fn pipelines(bytes: &[u8]) {
    let identity = cache::Identity {
        vendor: 1,
        device: 2,
        driver_version: 3,
        driver_uuid: [4; 16],
        device_uuid: [5; 16],
        cache_uuid: [6; 16],
    };
    let folder = tempfile::tempdir_in(place()).expect("a folder");
    let disk = cache::DiskCache::new(folder.path(), &identity);
    let (how, payload) = bytes.split_first().unwrap_or((&0, &[]));
    disk.save(payload);
    let file = std::fs::read_dir(folder.path())
        .expect("the folder")
        .next()
        .expect("it was saved")
        .expect("an entry");
    let mut whole = std::fs::read(file.path()).expect("the file");
    let saved = whole.clone();
    match how % 4 {
        0 => assert_eq!(disk.load().as_deref(), Some(payload)),
        1 => whole.truncate(usize::from(*how) * whole.len() / 256),
        2 => whole = payload.to_vec(),
        _ => {
            let at = payload.first().map_or(0, |at| usize::from(*at)) % whole.len();
            whole[at] ^= how | 1;
        }
    }
    if how % 4 != 0 && whole != saved {
        std::fs::write(file.path(), whole).expect("written");
        assert_eq!(disk.load(), None);
    }
}

/// What guarded children answer, and are asked.
pub fn children(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        if let Ok(reply) =
            serde_json::from_str::<protocol::Reply>(line.strip_prefix(protocol::MARK).unwrap_or(&line))
        {
            serde_json::to_string(&reply).expect("it can be said again");
        }
        if let Ok(request) = serde_json::from_str::<protocol::Request>(&line) {
            serde_json::to_string(&request).expect("it can be said again");
        }
    }
}

/// A code object, loaded where it is one.
pub fn elf(bytes: &[u8]) {
    let Ok(object) = wave32_exec::CodeObject::parse(bytes) else { return };
    object.load(&mut wave32_exec::HeapMemory::new());
}

/// Instructions: as text, and their branches.
pub fn decoder(bytes: &[u8]) {
    use wave32_isa::Target;
    let words: Vec<u32> = bytes
        .chunks(4)
        .map(|chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            u32::from_le_bytes(word)
        })
        .collect();
    for target in [Target::Gfx1010, Target::Gfx1011, Target::Gfx1012] {
        for wave64 in [false, true] {
            let mut at = 0;
            while at < words.len() {
                let Ok(inst) = wave32_isa::decode(&words[at..], target, wave64) else {
                    at += 1;
                    continue;
                };
                assert!(!inst.text().is_empty());
                let _ = inst.branch_target(4 * at as u64);
                let dwords = usize::from(inst.len) / 4;
                assert!((1..=words.len() - at).contains(&dwords), "{inst:?} of {dwords} dwords");
                at += dwords;
            }
        }
    }
}

/// A graph or configuration of hipDNN's: every field of every table.
pub fn hipdnn(bytes: &[u8]) {
    let words: Vec<u64> = bytes
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        })
        .collect();
    // Scalars are aligned, as the plugin copies them.
    let aligned: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let aligned = &aligned[..bytes.len()];
    if let Ok(config) = schema::engine_config(aligned) {
        let _ = config.engine();
    }
    let Ok(graph) = schema::graph(aligned) else { return };
    let _ = (graph.compute_type(), graph.intermediate_type(), graph.io_type());
    let _ = (graph.has_override_shapes(), graph.api_version());
    for tensor in graph.tensors().into_iter().flatten() {
        let _ = (tensor.uid(), tensor.data_type(), tensor.strides(), tensor.dims());
        let _ = (tensor.is_virtual(), tensor.is_special());
    }
    for node in graph.nodes().into_iter().flatten() {
        let _ = (node.compute_type(), node.is_special());
        match node.attributes() {
            schema::Attributes::Pointwise(found) => {
                let _ = (found.mode(), found.tensors(), found.numbers(), found.is_special());
            }
            schema::Attributes::Forward(found)
            | schema::Attributes::BackwardData(found)
            | schema::Attributes::BackwardWeights(found) => {
                let _ = (found.tensors(), found.pads(), found.strides(), found.dilations());
                let _ = (found.mode(), found.is_special());
            }
            schema::Attributes::Other(_) => {}
        }
    }
}

/// A known-good table of `wave32 probe`, as the probe and as libMIOpen reads it, and a record of what was being tried.
pub fn tables(bytes: &[u8]) {
    with_file(bytes, |path| {
        let _ = quarantine::left(path);
        let state = path.parent().expect("a folder");
        let folder = state.join(superseded::TABLES);
        std::fs::create_dir_all(&folder).expect("a folder");
        let found = serde_json::from_slice::<known::Known>(bytes);
        let example = || finding::Identity {
            card: "card".into(),
            target: "gfx1010".into(),
            pci: "0000:03:00.0".into(),
            miopen: "2.20.0".into(),
            hip: "5.7.0".into(),
            kernel: "6.1.0".into(),
            library: "/lib/libMIOpen.so.1".into(),
        };
        let identity = found.map_or_else(|_| example(), |known| known.identity);
        // The system has no longer names.
        if identity.key().len() > 200 {
            return;
        }
        let store = known::Store::new(&folder, &identity);
        std::fs::write(store.path(), bytes).expect("a file");
        superseded::superseded(state, &[example()]);
        match store.read() {
            Ok(known) => agree(&known, path),
            Err(known::KnownError::Broken { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        std::fs::remove_file(store.path()).expect("it was there");
    });
}

/// libMIOpen takes from the table in a file the fastest solver that the probe holds for safe.
fn agree(known: &known::Known, file: &Path) {
    let read = || proven::read(file).expect("what the probe reads is a table");
    let theirs = &known.identity;
    let identity = proven::Identity {
        card: theirs.card.clone(),
        target: theirs.target.clone(),
        pci: theirs.pci.clone(),
        miopen: theirs.miopen.clone(),
        hip: theirs.hip.clone(),
        kernel: theirs.kernel.clone(),
        library: theirs.library.clone(),
    };
    let mut taken = proven::Tables::default();
    taken.take(read(), &identity);
    for row in &known.rows {
        let Ok(problems) = wave32_problem::parse_line(&row.key.problem) else { continue };
        let [Problem::Conv(problem)] = &problems[..] else { continue };
        if problem.to_string() != row.key.problem {
            continue;
        }
        let counts = |row: &&known::Row| {
            row.is_safe()
                && row.key.rewrite.is_empty()
                && row.finding.deterministic == Some(true)
                && (row.id.is_some() && row.finding.algorithm.is_some())
        };
        let times = known.rows.iter().filter(|other| other.key.problem == row.key.problem).filter(counts);
        let fastest = times.filter_map(|row| row.finding.ms).filter(|ms| *ms > 0.0).min_by(f64::total_cmp);
        let plain = taken.of(problem).iter().find(|proven| proven.rewriting == Rewriting::default());
        assert_eq!(plain.map(|proven| proven.milliseconds), fastest, "{}", row.key.problem);
    }
    let mut other = proven::Tables::default();
    other.take(read(), &proven::Identity { pci: format!("{}.", identity.pci), ..identity });
    assert!(known.rows.iter().all(|row| {
        let problems = wave32_problem::parse_line(&row.key.problem).unwrap_or_default();
        problems.iter().filter_map(Problem::conv).all(|problem| other.of(problem).is_empty())
    }));
}

/// Reports of `wave32 bench`, one beside another.
pub fn reports(bytes: &[u8]) {
    with_file(bytes, |path| {
        let Ok(report) = bench::Report::load(path) else { return };
        let again: bench::Report = serde_json::from_str(&report.json()).expect("what we print is a report");
        assert_eq!(again.rows.len(), report.rows.len());
        let compared = bench::compare(&report, &again);
        let timed = report.rows.iter().filter(|row| row.time.is_some()).count();
        assert!(compared.pairs.len() <= timed, "{} pairs of {timed} rows", compared.pairs.len());
        for row in &report.rows {
            let _ = (row.tflops(), row.gbs(), row.floor_share());
            let _ = compared.mean(&row.direction, &row.dtype);
        }
    });
}
