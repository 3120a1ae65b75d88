//! The problems that verify, bench and tests share: `suites/` of the repository, embedded.
//!
//! A suite file has one MIOpenDriver line a problem; the comment behind it is the problem's label, with
//! `xN` after it where N layers of a network share the problem.

use std::collections::HashSet;
use std::path::Path;
use wave32_host::file;
use wave32_host::text::quoted;
use wave32_problem::{
    ConvProblem, ConvSpec, DType, Direction, Epilogue, Layout, MatmulProblem, MatrixOrder, Problem,
    ProblemError, parse_line,
};

#[cfg(test)]
mod tests;

const SEEDS: &str = include_str!("../../../../../suites/seeds.txt");
const SHAPES: &str = include_str!("../../../../../suites/conv_shapes.json");

/// The networks of suite `nets`, in its order.
const NETS: [(&str, &str); 9] = [
    ("resnet18", include_str!("../../../../../suites/nets/resnet18.txt")),
    ("resnet50", include_str!("../../../../../suites/nets/resnet50.txt")),
    ("vgg16", include_str!("../../../../../suites/nets/vgg16.txt")),
    ("mobilenet_v2", include_str!("../../../../../suites/nets/mobilenet_v2.txt")),
    ("efficientnet_b0", include_str!("../../../../../suites/nets/efficientnet_b0.txt")),
    ("densenet121", include_str!("../../../../../suites/nets/densenet121.txt")),
    ("yolov8n", include_str!("../../../../../suites/nets/yolov8n.txt")),
    ("unet", include_str!("../../../../../suites/nets/unet.txt")),
    ("sd_vae_decoder", include_str!("../../../../../suites/nets/sd_vae_decoder.txt")),
];

/// One problem of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name for people: the comment of its line, or the shape in short where it has none.
    pub label: String,
    /// Layers of the network that share the problem; 1 outside networks.
    pub layers: u32,
    /// The forward pass of a convolution, as the base of the others; or a product of matrices.
    pub problem: Problem,
    /// The passes that the line asks for (its `-F`); forward alone of a product.
    pub directions: Vec<Direction>,
}

impl Entry {
    /// The pass `direction` in `dtype` (the line's own if `None`). Bias and activation stay with the
    /// forward pass; a product of matrices has that alone.
    ///
    /// # Errors
    /// [`ProblemError`] where the change makes the problem impossible, e.g. too large.
    pub fn pass(&self, direction: Direction, dtype: Option<DType>) -> Result<Problem, ProblemError> {
        let Some(base) = self.problem.conv().map(ConvProblem::spec) else {
            return self.problem.with_dtype(dtype.unwrap_or(self.problem.dtype()));
        };
        let epilogue = if direction == Direction::Forward { base.epilogue } else { Epilogue::default() };
        let dtype = dtype.unwrap_or(base.dtype);
        ConvProblem::new(ConvSpec { direction, dtype, epilogue, ..base.clone() }).map(Problem::Conv)
    }

    /// The same layer on `n` images; the label says so where that is a change. Products of matrices stay.
    ///
    /// # Errors
    /// [`ProblemError`] where that many do not fit.
    pub fn with_batch(mut self, n: i64) -> Result<Self, ProblemError> {
        if let Some(spec) = self.problem.conv().map(ConvProblem::spec).filter(|spec| spec.n != n) {
            self.problem = ConvProblem::new(ConvSpec { n, ..spec.clone() })?.into();
            self.label = format!("{} n={n}", self.label);
        }
        Ok(self)
    }
}

/// Why a suite cannot be had. What lies beneath is each error's source, not part of its text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuiteError {
    /// No suite, and no line or file either.
    #[error("`{name}` is no suite, no file and no MIOpenDriver line; suites are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The suites there are.
        known: String,
    },
    /// A file that cannot be read.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file that is no text of lines.
    #[error("cannot read {path}: {why}")]
    Content {
        /// The file.
        path: String,
        /// What it is, and what to do.
        why: &'static str,
    },
    /// A line of a suite or file that is wrong.
    #[error("{place}")]
    Line {
        /// `suite:line number`.
        place: String,
        /// What is wrong with it.
        source: ProblemError,
    },
    /// A line given by itself that is wrong.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The shape table is not what it should be.
    #[error("conv_shapes.json is not what it should be")]
    Shapes(#[from] serde_json::Error),
    /// A file without any problem.
    #[error("{0} holds no problem; give it one MIOpenDriver line a problem")]
    Empty(String),
}

/// Every name that [`load`] takes.
pub fn names() -> Vec<String> {
    let fixed = ["seeds", "nets", "shapes"].map(String::from);
    fixed.into_iter().chain(NETS.iter().map(|(net, _)| format!("nets:{net}"))).collect()
}

/// An embedded suite: `seeds`, `nets` (all networks, problems that several share once), `nets:NAME`,
/// or `shapes` (the side-by-side measurements' problems, batch as given).
///
/// # Errors
/// [`SuiteError::Unknown`] for any other name.
pub fn load(name: &str) -> Result<Vec<Entry>, SuiteError> {
    let entries = match name {
        "seeds" => read("seeds", SEEDS)?,
        "shapes" => shapes()?,
        "nets" => {
            let nets = NETS.iter().map(|(net, text)| read(net, text));
            nets.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect()
        }
        _ => {
            let net = name.strip_prefix("nets:").and_then(|net| NETS.iter().find(|(known, _)| *known == net));
            let unknown = || SuiteError::Unknown { name: quoted(name), known: names().join(", ") };
            let (net, text) = net.ok_or_else(unknown)?;
            read(net, text)?
        }
    };
    Ok(distinct(entries))
}

/// What a user's word stands for: a suite, a MIOpenDriver line, or a file of such lines.
///
/// # Errors
/// [`SuiteError`] saying which of them it was taken for and what is wrong.
pub fn select(word: &str) -> Result<Vec<Entry>, SuiteError> {
    if looks_like_line(word) {
        return Ok(vec![entry(word)?]);
    }
    match load(word) {
        Err(SuiteError::Unknown { .. }) if Path::new(word).exists() => {
            let entries = distinct(read(&quoted(word), &text_of(word)?)?);
            if entries.is_empty() { Err(SuiteError::Empty(word.to_string())) } else { Ok(entries) }
        }
        result => result,
    }
}

/// The text of a file of lines.
fn text_of(path: &str) -> Result<String, SuiteError> {
    let bytes = file::read(Path::new(path), file::LINES)
        .map_err(|source| SuiteError::File { path: quoted(path), source })?;
    let why = if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        "it is UTF-16; save it as UTF-8 (in PowerShell: `Out-File -Encoding utf8`)"
    } else if bytes.contains(&0) {
        "it holds zero bytes; a text is wanted, a MIOpenDriver line a problem"
    } else {
        match String::from_utf8(bytes) {
            Ok(text) => return Ok(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text)),
            Err(_) => "it is not UTF-8; a text is wanted, a MIOpenDriver line a problem",
        }
    };
    Err(SuiteError::Content { path: quoted(path), why })
}

fn looks_like_line(word: &str) -> bool {
    let word = word.trim();
    word.contains("MIOpenDriver")
        || word.contains(" -n ")
        || word.contains("--batchsize")
        || ["conv ", "convfp16 ", "convbfp16 ", "gemm ", "gemmfp16 ", "gemmbfp16 "]
            .iter()
            .any(|start| word.starts_with(start))
}

/// The problems of a suite's text, blank lines and comments left out.
fn read(name: &str, text: &str) -> Result<Vec<Entry>, SuiteError> {
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.trim().starts_with('#'));
    lines
        .map(|(index, line)| {
            let place = format!("{name}:{}", index + 1);
            entry(line).map_err(|source| SuiteError::Line { place, source })
        })
        .collect()
}

/// One line with its label.
fn entry(line: &str) -> Result<Entry, ProblemError> {
    let problems = parse_line(line)?;
    let pass = |p: &Problem| p.conv().map_or(Direction::Forward, |p| p.spec().direction);
    let directions = problems.iter().map(pass).collect();
    let Some(first) = problems.into_iter().next() else {
        let rule = "names no direction; give -F 1, 2, 4 or a sum".to_string();
        return Err(ProblemError::Line { token: line.to_string(), rule });
    };
    let problem = match first {
        Problem::Conv(p) => {
            ConvProblem::new(ConvSpec { direction: Direction::Forward, ..p.spec().clone() })?.into()
        }
        product @ Problem::Matmul(_) => product,
    };
    let comment = line.split_once('#').map(|(_, comment)| comment.trim()).filter(|c| !c.is_empty());
    let (label, layers) = match comment {
        Some(comment) => counted(comment),
        None => match &problem {
            Problem::Conv(p) => (short(p), 1),
            Problem::Matmul(p) => (short_product(p), 1),
        },
    };
    Ok(Entry { label, layers, problem, directions })
}

/// The shape in a few words: sizes always, the rest where it is not the plain case.
pub fn short(problem: &ConvProblem) -> String {
    let s = problem.spec();
    let mut text = format!("n{} {}->{} {}x{} {}x{}", s.n, s.c, s.k, s.h, s.w, s.r, s.s);
    for (letter, [h, w], plain) in [('s', s.stride, 1), ('p', s.pad, 0), ('d', s.dilation, 1)] {
        match (h, w) {
            _ if [h, w] == [plain; 2] => {}
            _ if h == w => text.push_str(&format!(" {letter}{h}")),
            _ => text.push_str(&format!(" {letter}{h}x{w}")),
        }
    }
    if s.groups != 1 {
        text.push_str(&format!(" g{}", s.groups));
    }
    if s.transposed {
        text.push_str(" transposed");
    }
    text
}

/// A product of matrices in a few words: its sizes, and whether A and B are transposed (T) or have other strides (S).
fn short_product(problem: &MatmulProblem) -> String {
    let s = problem.spec();
    let letter = |order| match order {
        Some(MatrixOrder::RowMajor) => "N",
        Some(MatrixOrder::ColumnMajor) => "T",
        None => "S",
    };
    let (a, b) = (letter(s.a.order(problem.a_sizes())), letter(s.b.order(problem.b_sizes())));
    let batch = if s.batch == 1 { String::new() } else { format!("{} of ", s.batch) };
    format!("{batch}{}x{}x{} {a}{b}", s.m, s.k, s.n)
}

/// `label x3` is three layers; any other comment is a label as it stands.
fn counted(comment: &str) -> (String, u32) {
    let split =
        comment.rsplit_once(" x").and_then(|(label, count)| Some((label.trim(), count.parse().ok()?)));
    match split {
        Some((label, count)) => (label.to_string(), count),
        None => (comment.to_string(), 1),
    }
}

/// The first of equal problems each, in order.
fn distinct(entries: Vec<Entry>) -> Vec<Entry> {
    let mut seen = HashSet::new();
    entries.into_iter().filter(|e| seen.insert((e.problem.clone(), e.directions.clone()))).collect()
}

/// One row of `conv_shapes.json`.
#[derive(serde::Deserialize)]
struct OutputShape {
    name: String,
    n: i64,
    c: i64,
    h: i64,
    w: i64,
    k: i64,
    r: i64,
    s: i64,
    stride: i64,
    pad: i64,
    dilation: i64,
    groups: i64,
    #[cfg_attr(not(test), expect(dead_code, reason = "checked by the tests against our own count"))]
    gflop: f64,
}

fn shape_rows() -> Result<Vec<OutputShape>, serde_json::Error> {
    serde_json::from_str(SHAPES)
}

fn shapes() -> Result<Vec<Entry>, SuiteError> {
    let row = |shape: OutputShape| {
        let OutputShape { name, n, c, h, w, k, r, s, stride, pad, dilation, groups, .. } = shape;
        let spec = ConvSpec {
            direction: Direction::Forward,
            dtype: DType::F32,
            layout: Layout::Nchw,
            stride: [stride; 2],
            pad: [pad; 2],
            dilation: [dilation; 2],
            n,
            c,
            h,
            w,
            k,
            r,
            s,
            groups,
            ..ConvSpec::default()
        };
        let problem = ConvProblem::new(spec)
            .map_err(|source| SuiteError::Line { place: format!("conv_shapes.json: {name}"), source })?;
        Ok(Entry { label: name, layers: 1, problem: problem.into(), directions: Direction::ALL.to_vec() })
    };
    shape_rows()?.into_iter().map(row).collect()
}
