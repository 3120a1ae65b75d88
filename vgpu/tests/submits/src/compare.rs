//! The same programs on two drivers.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

#[derive(clap::Args)]
pub struct Compare {
    /// `wave32-vgpu`
    #[arg(long)]
    launcher: PathBuf,
    /// RADV's ICD file
    #[arg(long)]
    radv: PathBuf,
    /// lavapipe's
    #[arg(long)]
    lavapipe: PathBuf,
    /// The first seed [default: of the clock]
    #[arg(long)]
    first: Option<u64>,
    #[arg(long, default_value_t = 100)]
    count: u64,
}

/// Runs them; an error if anything differs.
pub fn run(compare: &Compare) -> Result<()> {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    let (first, count) = (compare.first.unwrap_or_else(clock), compare.count);
    println!("submit programs {first} to {}", first + (count - 1));
    let own = std::env::current_exe()?;
    let report = std::env::temp_dir().join(format!("wave32-submits-{}.json", std::process::id()));
    let mut plain = Command::new(&own);
    plain.env("VK_DRIVER_FILES", &compare.lavapipe).env("VK_ICD_FILENAMES", &compare.lavapipe);
    let mut card = Command::new(&compare.launcher);
    card.env("VK_DRIVER_FILES", &compare.radv).env("VK_ICD_FILENAMES", &compare.radv);
    card.args(["run", "--strict", "--deadline", "60", "--report"]).arg(&report).arg("--").arg(&own);
    let lines = [plain, card].map(|command| lines(command, first, count));
    let read = std::fs::read_to_string(&report);
    let _ = std::fs::remove_file(&report);
    let [plain, card] = lines;
    let (plain, card) = (plain?, card?);
    for (plain, card) in plain.iter().zip(&card) {
        ensure!(plain == card, "lavapipe: {plain}\nthe card: {card}\n{}", again(first, count));
    }
    ensure!(plain.len() == card.len() && plain.len() as u64 == count, "programs are missing");
    let report = read.context("no report")?;
    let clean = ["\"findings\": []", "\"left\": {}"];
    for part in clean {
        ensure!(report.contains(part), "the card's report has not {part}: {report}");
    }
    println!("{count} programs agree");
    Ok(())
}

fn again(first: u64, count: u64) -> String {
    format!(
        "again: wave32-submits compare --first {first} --count {count}; `show` prints a program, --limit N cuts it"
    )
}

/// The lines of the programs, by a driver.
fn lines(mut command: Command, first: u64, count: u64) -> Result<Vec<String>> {
    let started = Instant::now();
    command.args(["run", "--first", &first.to_string(), "--count", &count.to_string()]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let told: Vec<&str> = text.lines().filter(|line| line.starts_with("seed ")).collect();
        bail!("{command:?}: {}\n{}\n{}", output.status, told.join("\n"), again(first, count));
    }
    let (device, rest) = text.split_once('\n').context("no line")?;
    println!("{device}: {:.1} s", started.elapsed().as_secs_f64());
    Ok(rest.lines().map(str::to_owned).collect())
}
