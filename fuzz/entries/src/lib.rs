//! Every parser that reads what others wrote, as a function of bytes: for the fuzzers of `fuzz/`, and for the test that
//! runs their corpora without one.
//!
//! What a parser makes of bytes is its own tests' matter. Here it must come back, without a panic, and with what holds for
//! any bytes: what was read reads again as the same.
//!
//! Three modules are other crates' files: those crates wait minutes for kernels to be compiled.

#[allow(dead_code, missing_docs)] // one way in is enough
#[path = "../../../crates/vulkan/src/cache.rs"]
mod cache;
#[allow(dead_code)]
#[path = "../../../crates/verify/src/protocol.rs"]
mod protocol;
#[allow(dead_code)]
#[path = "../../../crates/hipdnn/src/schema.rs"]
mod schema;

/// What `cache` names a driver by.
#[allow(missing_docs)]
mod adapter {
    pub struct Identity {
        pub vendor: u32,
        pub device: u32,
        pub driver_version: u32,
        pub driver_uuid: [u8; 16],
        pub device_uuid: [u8; 16],
        pub cache_uuid: [u8; 16],
    }
}

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

use std::path::{Path, PathBuf};

/// Reads bytes that somebody else wrote; a panic is a finding.
pub type Entry = fn(&[u8]);

/// The entries by the names of their targets and corpora.
pub const ENTRIES: [(&str, Entry); 9] = [
    ("lines", lines),
    ("onnx", onnx),
    ("journal", journal),
    ("code_objects", code_objects),
    ("pipelines", pipelines),
    ("children", children),
    ("elf", elf),
    ("decoder", decoder),
    ("hipdnn", hipdnn),
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
    let Ok(manifest) = serde_json::from_slice::<wave32_doctor::change::Manifest>(bytes) else { return };
    let text = serde_json::to_string(&manifest).expect("a manifest is JSON");
    let again: wave32_doctor::change::Manifest = serde_json::from_str(&text).expect("and reads back");
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
    let identity = adapter::Identity {
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
