//! The table of `crates/solve/src/rates.tsv`, and how good the choice is that rests on it (docs/model.md).
//!
//!     cargo run -p wave32-model --example rates -- fit --launcher wave32-vgpu
//!     cargo run -p wave32-model --example rates -- judge --launcher wave32-vgpu

mod fit;
mod judge;
mod pool;
mod sample;
mod times;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wave32_cards::Board;
use wave32_problem::DType;
use wave32_solve::{Compiler, DeviceCaps};

/// Both compilers, by the names in the table.
pub const COMPILERS: [(&str, Compiler); 2] = [("aco", Compiler::Aco), ("llvm", Compiler::Llvm)];

/// What the command line says.
pub struct Options {
    /// `wave32-vgpu`.
    pub launcher: PathBuf,
    /// Times that are known from earlier runs.
    pub cache: PathBuf,
    /// The card.
    pub board: &'static Board,
    /// Where the result goes.
    pub out: Option<PathBuf>,
    /// Only these compilers.
    pub compilers: Vec<(&'static str, Compiler)>,
    /// Only variants, or problems, whose name contains this.
    pub only: String,
    /// Type of the problems judged.
    pub dtype: DType,
    /// Problems judged at most.
    pub most: usize,
    /// Other solvers' and configurations' plans simulated for each judged problem.
    pub rivals: usize,
}

impl Options {
    /// What solvers know of the card with that compiler's code.
    pub fn caps(&self, compiler: Compiler) -> DeviceCaps {
        let caps = DeviceCaps::of(self.board);
        if compiler == Compiler::Llvm {
            return caps.by_hip(self.board.target().name);
        }
        DeviceCaps { compiler, ..caps }
    }

    /// The repository's root.
    pub fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    fn parse(words: &[String]) -> Result<Self, String> {
        let value = |name: &str| {
            let at = words.iter().position(|word| word == name)?;
            words.get(at + 1).cloned()
        };
        let number = |name: &str, usual: usize| {
            value(name)
                .map_or(Ok(usual), |text| text.parse().map_err(|_| format!("{name} {text}: no number")))
        };
        let id = value("--card").unwrap_or_else(|| "rx5700xt".into());
        let compilers = COMPILERS
            .into_iter()
            .filter(|(name, _)| value("--compiler").is_none_or(|wanted| wanted == *name));
        Ok(Self {
            launcher: value("--launcher").unwrap_or_else(|| "target/vgpu/wave32-vgpu".into()).into(),
            cache: value("--cache").unwrap_or_else(|| "target/rates.jsonl".into()).into(),
            board: wave32_cards::by_id(&id).ok_or_else(|| format!("no card `{id}`"))?,
            out: value("--out").map(PathBuf::from),
            compilers: compilers.collect(),
            only: value("--only").unwrap_or_default(),
            dtype: match value("--dtype").as_deref() {
                None | Some("f32") => DType::F32,
                Some("f16") => DType::F16,
                Some(other) => return Err(format!("--dtype {other}: f32 or f16")),
            },
            most: number("--most", 80)?,
            rivals: number("--rivals", 6)?,
        })
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("fit") => Options::parse(&words).and_then(|options| fit::main(&options)),
        Some("judge") => Options::parse(&words).and_then(|options| judge::main(&options)),
        Some("__aco") if words.len() == 2 => times::aco_child(Path::new(&words[1])),
        _ => {
            Err("fit or judge, and --launcher, --cache, --card, --out, --compiler, --only, --dtype, --most, --rivals"
                .into())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}
