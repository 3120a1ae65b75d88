//! From words to convolutions.

use super::flags::{FLAGS, Flag, Meaning};
use super::words::Words;
use crate::{ConvProblem, ConvSpec, Direction, Epilogue, Layout, ProblemError};

/// How `-z` sets the padding.
enum PadMode {
    Given,
    Same,
    Valid,
}

/// What the flags have said so far.
struct Reader {
    spec: ConvSpec,
    seen: Vec<bool>,
    layouts: [Layout; 3],
    directions: u8,
    epilogue: Epilogue,
    pad_mode: PadMode,
}

/// The problems that the words name.
///
/// # Errors
/// See [`super::parse_line`].
pub(super) fn problems(words: &Words<'_>) -> Result<Vec<ConvProblem>, ProblemError> {
    let mut reader = Reader {
        spec: ConvSpec { dtype: words.dtype, ..ConvSpec::default() },
        seen: vec![false; FLAGS.len()],
        layouts: [Layout::Nchw; 3],
        directions: 0b111,
        epilogue: Epilogue::default(),
        pad_mode: PadMode::Given,
    };
    values(words, FLAGS, |index, flag, value| {
        reader.seen[index] = true;
        reader.take(flag, value)
    })?;
    for (flag, seen) in FLAGS.iter().zip(&reader.seen) {
        if let (Meaning::Size(_, what), false) = (&flag.meaning, seen) {
            return Err(missing(flag, what));
        }
    }
    reader.finish(words.from_log)
}

/// What `--activ` takes.
pub(super) const ACTIVATIONS: &str = "must be none, relu, relu6, silu, hardswish, gelu, or leaky_relu with a slope in hundredths \
                                      (leaky_relu20 is 0.2)";

/// The error of a line without a size.
pub(super) fn missing<M>(flag: &Flag<M>, what: &str) -> ProblemError {
    let rule = format!("{what}; MIOpenDriver would silently assume a default");
    ProblemError::Missing { flag: flag.names(), rule }
}

/// Each flag of the words, by its row in `flags`, with its value, to `take`.
///
/// # Errors
/// [`ProblemError::Line`] at a word that is no flag, or that has no value; what `take` says.
pub(super) fn values<M>(
    words: &Words<'_>,
    flags: &'static [Flag<M>],
    mut take: impl FnMut(usize, &'static Flag<M>, &str) -> Result<(), ProblemError>,
) -> Result<(), ProblemError> {
    let mut args = words.args.iter().copied();
    while let Some(word) = args.next() {
        let (index, attached) = find(word, flags)?;
        let flag = &flags[index];
        let value = attached.or_else(|| args.next());
        let value =
            value.ok_or_else(|| ProblemError::line(word, format!("{} needs a value", flag.names())))?;
        take(index, flag, value)?;
    }
    Ok(())
}

/// Row of the flag that `word` is, and the value after its `=`.
fn find<'a, M>(word: &'a str, flags: &[Flag<M>]) -> Result<(usize, Option<&'a str>), ProblemError> {
    let unknown =
        || ProblemError::line(word, "no flag of this MIOpenDriver command, nor one of ours (--activ)");
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let index = flags.iter().position(|f| f.long == name || f.old == Some(name));
        return index.map(|index| (index, value)).ok_or_else(unknown);
    }
    let Some(short) = word.strip_prefix('-') else {
        return Err(ProblemError::line(word, "expected a flag such as -n or --batchsize here"));
    };
    let letter = short.chars().next().ok_or_else(unknown)?;
    let index = flags.iter().position(|f| f.short == Some(letter)).ok_or_else(unknown)?;
    let tail = &short[letter.len_utf8()..];
    if !tail.is_empty() {
        // Only a number is repeated in the advice: anything else may be as long and odd as it likes.
        let value = tail.trim_start_matches('=').parse::<i64>();
        let value = value.map_or_else(|_| "VALUE".to_string(), |number| number.to_string());
        let rule = format!("the value must be a word of its own: write `-{letter} {value}`");
        return Err(ProblemError::line(word, rule));
    }
    Ok((index, None))
}

impl Reader {
    /// One flag with its value.
    fn take(&mut self, flag: &Flag, value: &str) -> Result<(), ProblemError> {
        let wrong = |rule: &str| Err(ProblemError::line(value, format!("{}: {rule}", flag.names())));
        match &flag.meaning {
            Meaning::Size(slot, _) | Meaning::Number(slot) => match value.parse() {
                Ok(number) => *slot(&mut self.spec) = number,
                Err(_) => return wrong("needs a whole number below 2^63"),
            },
            Meaning::Mode => match value {
                "conv" => self.spec.transposed = false,
                "trans" => self.spec.transposed = true,
                _ => return wrong("must be conv or trans"),
            },
            Meaning::PadMode => match value {
                "default" => self.pad_mode = PadMode::Given,
                "same" => self.pad_mode = PadMode::Same,
                "valid" => self.pad_mode = PadMode::Valid,
                _ => return wrong("must be default, same or valid"),
            },
            Meaning::Layout(tensor) => {
                let known = [Layout::Nchw, Layout::Nhwc];
                match known.into_iter().find(|layout| value.eq_ignore_ascii_case(layout.name())) {
                    Some(layout) => self.layouts[*tensor] = layout,
                    None => return wrong("must be NCHW or NHWC"),
                }
            }
            Meaning::Directions => match value.parse() {
                Ok(0) => self.directions = 0b111,
                Ok(bits @ 1..=0b111) => self.directions = bits,
                _ => {
                    return wrong(
                        "must be 1 (forward), 2 (backward data), 4 (backward weights), a sum of these, or 0 \
                         (all)",
                    );
                }
            },
            Meaning::Bias => match value {
                "0" => self.epilogue.bias = false,
                "1" => self.epilogue.bias = true,
                _ => return wrong("must be 0 or 1"),
            },
            Meaning::Activation => match value.parse() {
                Ok(activation) => self.epilogue.activation = activation,
                Err(()) => return wrong(ACTIVATIONS),
            },
            Meaning::Only(values, why) => {
                if !values.contains(&value) {
                    return wrong(why);
                }
            }
            Meaning::Ignored => {}
        }
        Ok(())
    }

    fn finish(mut self, from_log: bool) -> Result<Vec<ConvProblem>, ProblemError> {
        self.set_padding();
        // Groups below 1 are for `ConvProblem::new` to name.
        let (k, groups) = (self.spec.k, self.spec.groups.max(1));
        if from_log && self.spec.transposed {
            self.spec.k = k.checked_mul(groups).ok_or_else(|| ProblemError::Overflow {
                what: "output channels",
                terms: format!("k/g*g = {k}*{groups}"),
            })?;
        }
        self.spec.layout = self.layout()?;
        let wanted = Direction::ALL.into_iter().enumerate();
        let wanted = wanted.filter(|(bit, _)| self.directions >> bit & 1 == 1);
        let problem = |direction| {
            let epilogue = if direction == Direction::Forward { self.epilogue } else { Epilogue::default() };
            ConvProblem::new(ConvSpec { direction, epilogue, ..self.spec.clone() })
        };
        wanted.map(|(_, direction)| problem(direction)).collect()
    }

    /// `-z` as MIOpenDriver applies it: to plain convolutions whose filter is not dilated.
    fn set_padding(&mut self) {
        let s = &mut self.spec;
        let (input, filter) = ([s.h, s.w], [s.r, s.s]);
        if s.transposed || (s.dilation != [1, 1] && filter != [1, 1]) {
            return;
        }
        for axis in 0..2 {
            match self.pad_mode {
                PadMode::Given => {}
                PadMode::Valid => s.pad[axis] = 0,
                PadMode::Same => {
                    // A stride or filter that makes no sense is for `ConvProblem::new` to name.
                    let stride = s.stride[axis].max(1);
                    let step = match input[axis] % stride {
                        0 => stride,
                        rest => rest,
                    };
                    s.pad[axis] = filter[axis].saturating_sub(step).max(0) / 2;
                }
            }
        }
    }

    /// The one layout of all tensors.
    ///
    /// MIOpen reads a tensor's layout off its strides, so it may print either where both are the same
    /// memory: one channel, or one pixel. Such a tensor agrees with any other.
    fn layout(&self) -> Result<Layout, ProblemError> {
        let [x, w, y] = self.layouts;
        if x == w && w == y {
            return Ok(x);
        }
        let problem = ConvProblem::new(ConvSpec { direction: Direction::Forward, ..self.spec.clone() })?;
        let s = problem.spec();
        let filter_channels = if s.transposed { s.k } else { s.c } / s.groups;
        let either = [
            s.c == 1 || (s.h, s.w) == (1, 1),
            filter_channels == 1 || (s.r, s.s) == (1, 1),
            s.k == 1 || (problem.out_h(), problem.out_w()) == (1, 1),
        ];
        let fits = |layout: Layout| self.layouts.iter().zip(either).all(|(&l, either)| either || l == layout);
        [Layout::Nchw, Layout::Nhwc].into_iter().find(|&layout| fits(layout)).ok_or_else(|| {
            let rule = format!(
                "the layouts must agree, but in_layout is {}, fil_layout {} and out_layout {} (NCHW where not \
                 given)",
                x.name(),
                w.name(),
                y.name()
            );
            ProblemError::line("--in_layout", rule)
        })
    }
}
