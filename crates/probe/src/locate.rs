//! Where libMIOpen may be.

use std::path::{Path, PathBuf};

/// The library's name since ROCm 3; the major number never changed.
const NAME: &str = "libMIOpen.so.1";

/// The folders of distribution packages that are not in every loader's path.
const FOLDERS: [&str; 4] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];

/// The libraries that are here, best first: what `LD_LIBRARY_PATH` and `ROCM_PATH` name, then `/opt/rocm` and its
/// numbered neighbours, the newest first, then the distribution's.
pub fn candidates(var: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    let listed = var("LD_LIBRARY_PATH").unwrap_or_default();
    folders.extend(listed.split(':').filter(|f| !f.is_empty()).map(PathBuf::from));
    folders.extend(var("ROCM_PATH").into_iter().map(|root| Path::new(&root).join("lib")));
    folders.push("/opt/rocm/lib".into());
    let entries = std::fs::read_dir("/opt").into_iter().flatten().flatten();
    let mut numbered: Vec<(Vec<u32>, PathBuf)> = entries
        .filter_map(|e| {
            let name = e.file_name().to_string_lossy().strip_prefix("rocm-")?.to_string();
            let version = name.split(['.', '-']).map_while(|part| part.parse().ok()).collect();
            Some((version, e.path().join("lib")))
        })
        .collect();
    numbered.sort_by(|a, b| b.0.cmp(&a.0));
    folders.extend(numbered.into_iter().map(|(_, folder)| folder));
    folders.extend(FOLDERS.map(PathBuf::from));
    let mut found: Vec<PathBuf> = Vec::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    for path in folders.into_iter().map(|f| f.join(NAME)) {
        let Ok(real) = path.canonicalize() else { continue };
        if !seen.contains(&real) {
            seen.push(real);
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_folders_come_first_and_a_library_once() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a/lib"), folder.path().join("b"));
        std::fs::create_dir_all(&a).unwrap();
        std::fs::write(a.join(NAME), "").unwrap();
        std::os::unix::fs::symlink(&a, &b).unwrap();
        let var = |name: &str| match name {
            "LD_LIBRARY_PATH" => Some(format!(":{}", b.display())),
            "ROCM_PATH" => Some(folder.path().join("a").display().to_string()),
            _ => None,
        };
        assert_eq!(candidates(var)[0], b.join(NAME));
        assert_eq!(candidates(var).iter().filter(|p| p.starts_with(folder.path())).count(), 1);
    }
}
