//! Where rpm and rpmbuild are installed and the test is root's: a package is built, installed below a folder, tampered with.
#![cfg(unix)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use wave32_doctor::facts::Facts;
use wave32_doctor::scan::{Options, scan};
use wave32_doctor::system::{Process, System};

const LIBRARY: &str = "opt/rocm-6.2.4/lib/libMIOpen.so.1.0.60204";
/// Debian's rpm keeps its database in the home folder otherwise.
const DATABASE: [&str; 2] = ["--dbpath", "/var/lib/rpm"];
const SPEC: &str = "Name: miopen-hip\nVersion: 3.2.0\nRelease: 1\nSummary: MIOpen\nLicense: MIT\nAutoReqProv: no\n\
    %define debug_package %{nil}\n%define __os_install_post %{nil}\n%description\nMIOpen\n\
    %install\nmkdir -p %{buildroot}\ncp -a %{_topdir}/tree/. %{buildroot}\n\
    %files\n/opt/rocm-6.2.4/lib/*\n%config /opt/rocm-6.2.4/etc/libMIOpen.so.conf\n\
    %verifyscript\ntouch /verify-script-was-run\n";

fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn look(root: &Path) -> Facts {
    let env = [("PATH".to_string(), root.join("bin").display().to_string())].into();
    let process = Process { env, uid: Some(0), ..Process::default() };
    let options = Options { thorough: true, ..Options::default() };
    scan(&System::new(root.to_path_buf(), process, true), &options)
}

fn intact(facts: &Facts) -> Option<bool> {
    let library = facts.rocm.iter().find_map(|r| r.library("miopen")).expect("MIOpen");
    assert_eq!(library.package.as_deref(), Some("miopen-hip"), "{:?}", facts.gaps);
    library.intact
}

#[test]
fn a_package_of_rpms_own() {
    let (Some(rpm), Some(build)) = (found("rpm"), found("rpmbuild")) else {
        return println!("left out: rpm and rpmbuild are not installed");
    };
    if System::live().process.uid != Some(0) {
        return println!("left out: rpm installs below another root as root only");
    }
    let folder = tempfile::tempdir().unwrap();
    let (top, root) = (folder.path().join("top"), folder.path().join("root"));
    common::build(
        &top.join("tree"),
        &format!(
            "library /{LIBRARY} MIOPEN_FIND_MODE\nlink /opt/rocm-6.2.4/lib/libMIOpen.so.1 libMIOpen.so.1.0.60204\n\
                  one /opt/rocm-6.2.4/etc/libMIOpen.so.conf x\n"
        ),
    );
    fs::write(top.join("miopen.spec"), SPEC).unwrap();
    let define = format!("_topdir {}", top.display());
    run(Command::new(&build).arg("-bb").arg("--define").arg(define).arg(top.join("miopen.spec")));
    let package =
        fs::read_dir(top.join("RPMS")).unwrap().flatten().flat_map(|a| fs::read_dir(a.path()).unwrap());
    let package = package.flatten().next().expect("a package").path();
    fs::create_dir_all(root.join("var/lib/rpm")).unwrap();
    run(Command::new(&rpm)
        .arg("--root")
        .arg(&root)
        .args(DATABASE)
        .args(["-i", "--nodeps", "--noscripts"])
        .arg(package));
    let script = format!("exec {} --root {} {} \"$@\"", rpm.display(), root.display(), DATABASE.join(" "));
    common::program(&root.join("bin"), "rpm", &script);

    let library = root.join(LIBRARY);
    let original = fs::read(&library).unwrap();
    let facts = look(&root);
    assert_eq!(
        (intact(&facts), facts.missing.len(), facts.leftovers.len()),
        (Some(true), 0, 0),
        "{:?}",
        facts.gaps
    );
    assert!(!root.join("verify-script-was-run").exists(), "a package's scripts are not run");

    fs::write(root.join("opt/rocm-6.2.4/etc/libMIOpen.so.conf"), "edited\n").unwrap();
    assert_eq!(intact(&look(&root)), Some(true), "configuration is for editing");

    // One bit, the same size; then another size.
    let mut patched = original.clone();
    *patched.last_mut().unwrap() ^= 1;
    fs::write(&library, &patched).unwrap();
    assert_eq!(intact(&look(&root)), Some(false));
    patched.extend([0; 100]);
    fs::write(&library, &patched).unwrap();
    assert_eq!(intact(&look(&root)), Some(false));

    // Another file under its name: one that is outside too, where rpm looks before it enters its root.
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/passwd"), &original).unwrap();
    fs::remove_file(&library).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &library).unwrap();
    assert_eq!(intact(&look(&root)), Some(false));

    // Gone, while another version is there.
    fs::remove_file(&library).unwrap();
    fs::remove_file(root.join("opt/rocm-6.2.4/lib/libMIOpen.so.1")).unwrap();
    fs::write(root.join("opt/rocm-6.2.4/lib/libMIOpen.so.1"), &original).unwrap();
    let facts = look(&root);
    assert_eq!(intact(&facts), Some(false), "it was a link");
    let gone: Vec<&str> = facts.missing.iter().map(|m| m.path.as_str()).collect();
    assert_eq!(gone, [format!("/{LIBRARY}")]);
}
