//! What a release says about the command: its version, manual pages, completions, the reference.

use anyhow::{Context, Result};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

/// Version, and the commit where the build named one in WAVE32_COMMIT.
pub fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        option_env!("WAVE32_COMMIT").map_or(version.into(), |commit| format!("{version} ({commit})"))
    });
    &TEXT
}

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Gets man/, bash/, zsh/, fish/ and cli.md
    folder: PathBuf,
}

/// Writes the pages of `command`.
///
/// # Errors
/// The folder cannot be written.
pub fn main(args: &Args, command: clap::Command) -> Result<ExitCode> {
    // With the commit each release's pages would differ; each page has its own help.
    let command = visible(&command).version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    let folder = |name: &str| {
        let path = args.folder.join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        anyhow::Ok(path)
    };
    for (shell, name) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
        clap_complete::generate_to(shell, &mut command.clone(), "wave32", folder(name)?)?;
    }
    clap_mangen::generate_to(command.clone(), folder("man")?)?;
    let options = clap_markdown::MarkdownOptions::new().title("The command".into()).show_footer(false);
    let text = clap_markdown::help_markdown_command_custom(&command, &options);
    super::output::save(&args.folder.join("cli.md"), &text)?;
    Ok(ExitCode::SUCCESS)
}

/// Shells would offer the hidden commands as well.
fn visible(command: &clap::Command) -> clap::Command {
    let text = |text: Option<&clap::builder::StyledStr>| text.cloned().unwrap_or_default();
    clap::Command::new("wave32")
        .about(text(command.get_about()))
        .after_help(text(command.get_after_help()))
        .args(command.get_arguments().cloned())
        .subcommands(command.get_subcommands().filter(|inner| !inner.is_hide_set()).cloned())
        .subcommand_required(true)
}
