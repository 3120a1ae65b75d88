//! Random Vulkan submit programs. `run` runs them on the device that the environment chooses and compares their buffers
//! with a model; `compare` does so on lavapipe and on the virtual card under RADV, and compares both. `share` has two
//! processes compute in the same buffers.

mod compare;
mod generate;
mod gpu;
mod model;
mod objects;
mod play;
mod program;
mod record;
mod shaders;
mod share;
mod track;
mod work;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;

use generate::Options;
use program::Program;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Run programs: a line for each, SEED HASH...
    Run(Seeds),
    /// Show a program.
    Show(Seeds),
    /// Run programs on lavapipe and on the virtual card.
    Compare(compare::Compare),
    /// Two processes share buffers, semaphores and a fence on virtual cards.
    Share(share::Share),
    /// One of them.
    #[command(hide = true)]
    Sharer(share::Sharer),
}

#[derive(clap::Args, Clone)]
struct Seeds {
    #[arg(long)]
    first: u64,
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Commands that work, at most
    #[arg(long, default_value_t = usize::MAX)]
    limit: usize,
    /// Without what the validation layers misunderstand
    #[arg(long)]
    validated: bool,
}

impl Seeds {
    fn programs(&self) -> impl Iterator<Item = Program> + '_ {
        let options = Options { limit: self.limit, validated: self.validated };
        (self.first..self.first + self.count).map(move |seed| generate::program(seed, options))
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Action::Run(seeds) => run(&seeds),
        Action::Show(seeds) => {
            seeds.programs().for_each(|program| println!("{program:#?}"));
            Ok(())
        }
        Action::Compare(compare) => compare::run(&compare),
        Action::Share(share) => share::run(&share),
        Action::Sharer(sharer) => share::sharer(&sharer),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("submits: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(seeds: &Seeds) -> Result<()> {
    let gpu = gpu::Gpu::open()?;
    println!("on {}, {} queues", gpu.name, gpu.queues.len());
    let mut wrong = 0;
    for program in seeds.programs() {
        let found = match play::run(&gpu, &program) {
            Ok(found) => found,
            Err(error) => {
                println!("seed {}: {error:#}", program.seed);
                // Work may be under way: nothing can be destroyed.
                std::process::exit(3);
            }
        };
        let hashes: Vec<String> = found.iter().map(|bytes| format!("{:016x}", hash(bytes))).collect();
        println!("{} {}", program.seed, hashes.join(" "));
        std::io::stdout().flush()?;
        wrong += u64::from(!is_as_modelled(&program, &found));
    }
    ensure!(wrong == 0, "{wrong} programs are not as the model has them");
    Ok(())
}

/// Compares with the model, and tells the first byte of each buffer that differs.
fn is_as_modelled(program: &Program, found: &[Vec<u8>]) -> bool {
    let expected = model::run(program);
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let mut different = (0..found.len()).filter(|at| found[*at] != expected[*at]);
        if let Some(at) = different.next() {
            let from = at / 4 * 4;
            println!(
                "seed {}: buffer {i}, byte {at} and {} more: {:02x?}, not {:02x?}",
                program.seed,
                different.count(),
                &found[from..from + 4],
                &expected[from..from + 4],
            );
        }
    }
    found == expected
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
