//! Whether a Python can know of the device `wave` at all.

use super::environment::Variables;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Why scripts of this program will find no `cuda`: it is the Python of a virtual environment without wave32. None for every
/// other program, of whose modules files do not tell enough.
pub fn python_lacks_wave32(program: &OsStr, before: &Variables) -> Option<String> {
    let name = Path::new(program).file_name()?.to_str()?;
    if !name.starts_with("python") {
        return None;
    }
    let path = before.get(OsStr::new("PATH")).map(OsString::as_os_str).unwrap_or_default();
    let program = find(program, path)?;
    let prefix = program.parent()?.parent()?;
    let settings = std::fs::read_to_string(prefix.join("pyvenv.cfg")).ok()?;
    let shares = settings.lines().filter_map(|line| line.split_once('=')).any(|(key, value)| {
        key.trim() == "include-system-site-packages" && value.trim().eq_ignore_ascii_case("true")
    });
    let added = before.contains_key(OsStr::new("PYTHONPATH"));
    if shares || added || has_package(prefix) {
        return None;
    }
    Some(format!(
        "{} has no wave32, so scripts will find no cuda: `pip install` it there first",
        program.display()
    ))
}

/// The file that a name means, as `exec` finds it.
fn find(program: &OsStr, path: &OsStr) -> Option<PathBuf> {
    let named = Path::new(program);
    if named.components().count() > 1 {
        return Some(named.to_path_buf());
    }
    std::env::split_paths(path).map(|folder| folder.join(named)).find(|file| file.is_file())
}

/// `lib/python3.X/site-packages` holds the package, or a link to it: an editable installation has a `.pth` file.
fn has_package(prefix: &Path) -> bool {
    let Ok(versions) = std::fs::read_dir(prefix.join("lib")) else { return false };
    let sites = versions.flatten().map(|version| version.path().join("site-packages"));
    let names = sites.filter_map(|site| std::fs::read_dir(site).ok()).flat_map(|entries| entries.flatten());
    names.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("wave32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_virtual_environment_without_it_is_told() {
        let root = tempfile::tempdir().unwrap();
        let (bin, site) = (root.path().join("bin"), root.path().join("lib/python3.12/site-packages"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&site).unwrap();
        std::fs::write(bin.join("python3"), "").unwrap();
        let told = |program: &str, variables: &[(&str, &str)]| {
            let mut before = Variables::from([("PATH".into(), bin.clone().into_os_string())]);
            before.extend(variables.iter().map(|(name, value)| (name.into(), value.into())));
            python_lacks_wave32(OsStr::new(program), &before)
        };
        assert_eq!(told("python3", &[]), None, "not of a virtual environment");
        std::fs::write(
            root.path().join("pyvenv.cfg"),
            "home = /usr/bin\ninclude-system-site-packages = false\n",
        )
        .unwrap();
        let line = told("python3", &[]).unwrap();
        assert!(line.starts_with(&format!("{}/python3 has no wave32", bin.display())), "{line}");
        assert!(told(bin.join("python3").to_str().unwrap(), &[]).is_some());
        assert_eq!(told("python3", &[("PYTHONPATH", "/somewhere")]), None);
        assert_eq!((told("bash", &[]), told("python4", &[])), (None, None));
        std::fs::create_dir(site.join("wave32-0.1.0.dist-info")).unwrap();
        assert_eq!(told("python3", &[]), None);
    }
}
