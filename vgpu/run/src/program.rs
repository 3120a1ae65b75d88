//! Whether a program can be given a card: a library can be preloaded only into dynamically linked ones of this machine.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};

/// The file that `name` means: a path, or found along `path`.
pub fn find(name: &OsStr, path: &OsStr) -> Result<PathBuf> {
    let executable = |file: &Path| {
        std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        if !file.exists() {
            bail!("there is no {}", file.display());
        }
        if !executable(&file) {
            bail!("{} cannot be executed", file.display());
        }
        return Ok(file);
    }
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|file| executable(file))
        .with_context(|| format!("there is no program {} in PATH", name.display()))
}

/// Scripts whose interpreter is a script: as many as Linux follows.
const MAX_SCRIPTS: u32 = 4;

/// An error that says why nothing can be preloaded into `program`, or into what interprets it.
pub fn check(program: &Path) -> Result<()> {
    check_within(program, MAX_SCRIPTS)
}

fn check_within(program: &Path, scripts: u32) -> Result<()> {
    let mut file =
        std::fs::File::open(program).with_context(|| format!("cannot read {}", program.display()))?;
    let mut head = [0; 256];
    let count = file.read(&mut head)?;
    if let Some(interpreter) = interpreter(&head[..count]) {
        if scripts == 0 {
            bail!("{} is one of too many scripts that interpret each other", program.display());
        }
        return check_within(&interpreter, scripts - 1)
            .with_context(|| format!("{} is a script", program.display()));
    }
    let found = std::fs::metadata(program)?;
    if found.mode() & 0o6000 != 0 {
        bail!(
            "{} changes its user or group when it starts: the system preloads nothing into it",
            program.display()
        );
    }
    if program.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-linux")) {
        // The dynamic linker, told which program to load.
        return Ok(());
    }
    if !head.starts_with(b"\x7fELF") {
        // The shell's way to run what has no `#!`; execve says whether there is one.
        return Ok(());
    }
    let bytes = std::fs::read(program)?;
    linked(&bytes).with_context(|| program.display().to_string())
}

fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let word = line.trim_ascii().split(|byte| byte.is_ascii_whitespace()).next()?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

fn linked(bytes: &[u8]) -> Result<()> {
    type Header = elf::FileHeader64<object::Endianness>;
    if bytes.get(4) != Some(&elf::ELFCLASS64.0) {
        bail!("a 32-bit program; the card is for x86-64");
    }
    let header = Header::parse(bytes).context("a damaged program")?;
    let endian = header.endian().context("a damaged program")?;
    if header.e_machine(endian) != elf::EM_X86_64 {
        bail!("not a program for x86-64");
    }
    let loader = header
        .program_headers(endian, bytes)
        .context("a damaged program")?
        .iter()
        .find_map(|part| part.interpreter(endian, bytes).ok().flatten());
    match loader {
        None => bail!("statically linked: nothing can be preloaded into it. Link it dynamically"),
        Some(loader) if !loader.windows(8).any(|part| part == b"ld-linux") => bail!(
            "made for another C library than glibc ({}): AMD's runtime and the card are not",
            String::from_utf8_lossy(loader)
        ),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("program");
        std::fs::write(&file, bytes).unwrap();
        format!("{:#}", check(&file).unwrap_err())
    }

    /// This test program, changed at one place.
    fn changed(at: usize, to: &[u8]) -> Vec<u8> {
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    }

    #[test]
    fn this_program_could_have_a_card() {
        check(&std::env::current_exe().unwrap()).unwrap();
    }

    #[test]
    fn what_cannot_have_one_is_told_why() {
        assert!(reason(&changed(4, &[1])).contains("32-bit"));
        assert!(reason(&changed(18, &[183])).contains("not a program for x86-64"));
        // No program headers: none asks for a dynamic linker.
        assert!(reason(&changed(56, &[0, 0])).contains("statically linked"));
        assert!(reason(b"#!/no/such/shell\n").contains("is a script"));
        let musl = {
            let bytes = changed(0, b"\x7f");
            let at = bytes.windows(8).position(|part| part == b"ld-linux").unwrap();
            changed(at, b"ld-musl-")
        };
        assert!(reason(&musl).contains("glibc"));
    }

    #[test]
    fn programs_are_found_as_the_shell_does() {
        let path = std::env::var_os("PATH").unwrap();
        assert!(find(OsStr::new("sh"), &path).unwrap().is_absolute());
        assert!(find(OsStr::new("no-such-program"), &path).unwrap_err().to_string().contains("PATH"));
        assert!(
            find(OsStr::new("./no-such-program"), &path).unwrap_err().to_string().contains("there is no")
        );
        assert!(find(OsStr::new("/etc/passwd"), &path).unwrap_err().to_string().contains("executed"));
    }
}
