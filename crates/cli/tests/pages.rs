//! The pages that a release has of the command.

use std::path::Path;
use std::process::Command;

#[test]
fn the_reference_is_what_the_command_says() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_wave32")).arg("__pages").arg(folder.path()).status().unwrap();
    assert!(made.success());
    let page = std::fs::read_to_string(folder.path().join("cli.md")).unwrap();
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    if std::env::var_os("WAVE32_BLESS").is_some() {
        std::fs::write(&committed, &page).unwrap();
    }
    let told = std::fs::read_to_string(&committed).unwrap();
    assert!(page == told, "docs/cli.md is another command's; WAVE32_BLESS=1 writes it anew");
    for file in ["man/wave32.1", "man/wave32-verify.1", "bash/wave32.bash", "zsh/_wave32", "fish/wave32.fish"]
    {
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(text.contains("wave32"), "{file}");
        assert!(!text.contains("verify-child"), "{file}: hidden commands are not for users");
    }
}
