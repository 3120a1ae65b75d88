//! The tables of flags: MIOpenDriver's `conv` and `gemm`, and a few of ours.

use crate::{ConvSpec, MatmulSpec};

/// Where a number goes.
pub(super) type Slot = fn(&mut ConvSpec) -> &mut i64;

/// What a flag's value does.
pub(super) enum Meaning {
    /// A size without which there is no problem; the text says what it is.
    Size(Slot, &'static str),
    /// A number that has a default.
    Number(Slot),
    /// `conv` or `trans`.
    Mode,
    /// `same`, `valid` or `default`.
    PadMode,
    /// Memory layout of x, w or y (0, 1, 2).
    Layout(usize),
    /// Sum of direction bits, 0 for all.
    Directions,
    /// 0 or 1.
    Bias,
    /// Its name.
    Activation,
    /// Would change the problem into one that cannot be said here, except with these values.
    Only(&'static [&'static str], &'static str),
    /// Steers MIOpenDriver's own run; any value.
    Ignored,
}

/// What the value of a flag of `gemm` does.
pub(super) enum GemmMeaning {
    /// A size without which there is no problem; the text says what it is.
    Size(fn(&mut MatmulSpec) -> &mut i64, &'static str),
    /// Matrices in the batch.
    Batch,
    /// Whether a or b (0, 1) is transposed: 0 or 1.
    Transposed(usize),
    /// Strides of a, b or what is added (0, 1, 2): from matrix to matrix, row to row, column to column.
    Strides(usize),
    /// Elements in front of a, b or what is added.
    First(usize),
    /// Factor of the product.
    Alpha,
    /// Factor of what is added.
    Beta,
    /// Its name.
    Activation,
    /// Whether it is part of a backward pass: 0 or 1.
    Backward,
    /// Would change the problem into one that cannot be said here, except with these values.
    Only(&'static [&'static str], &'static str),
    /// Steers MIOpenDriver's own run; any value.
    Ignored,
}

/// One row.
pub(super) struct Flag<M = Meaning> {
    /// Without its dash.
    pub(super) short: Option<char>,
    /// Without its dashes.
    pub(super) long: &'static str,
    /// Its long name in old releases, where that was another.
    pub(super) old: Option<&'static str>,
    /// What its value does.
    pub(super) meaning: M,
}

impl<M> Flag<M> {
    /// Both spellings, for messages.
    pub(super) fn names(&self) -> String {
        match self.short {
            Some(short) => format!("-{short}/--{}", self.long),
            None => format!("--{}", self.long),
        }
    }
}

const fn flag<M>(short: char, long: &'static str, meaning: M) -> Flag<M> {
    Flag { short: Some(short), long, old: None, meaning }
}

const fn renamed(short: char, long: &'static str, old: &'static str, meaning: Meaning) -> Flag {
    Flag { short: Some(short), long, old: Some(old), meaning }
}

const DEPTH: Meaning = Meaning::Only(&["0", "1"], "3-D convolutions are not supported; leave the depth out");
const CAST: Meaning = Meaning::Only(&["-1"], "casts to 8-bit types are not supported; leave it out");

use Meaning::{Activation, Bias, Directions, Ignored, Layout, Mode, Number, Only, PadMode, Size};

/// Every flag. Names are unique among those that matter; the first row of a name wins.
pub(super) static FLAGS: &[Flag] = &[
    flag('n', "batchsize", Size(|s| &mut s.n, "how many images")),
    flag('c', "in_channels", Size(|s| &mut s.c, "how many input channels")),
    flag('H', "in_h", Size(|s| &mut s.h, "the input's height")),
    flag('W', "in_w", Size(|s| &mut s.w, "the input's width")),
    flag('k', "out_channels", Size(|s| &mut s.k, "how many output channels")),
    flag('y', "fil_h", Size(|s| &mut s.r, "the filter's height")),
    flag('x', "fil_w", Size(|s| &mut s.s, "the filter's width")),
    flag('p', "pad_h", Number(|s| &mut s.pad[0])),
    flag('q', "pad_w", Number(|s| &mut s.pad[1])),
    renamed('u', "conv_stride_h", "conv_stride_0", Number(|s| &mut s.stride[0])),
    renamed('v', "conv_stride_w", "conv_stride_1", Number(|s| &mut s.stride[1])),
    flag('l', "dilation_h", Number(|s| &mut s.dilation[0])),
    flag('j', "dilation_w", Number(|s| &mut s.dilation[1])),
    flag('g', "group_count", Number(|s| &mut s.groups)),
    flag('Y', "trans_output_pad_h", Number(|s| &mut s.output_pad[0])),
    flag('X', "trans_output_pad_w", Number(|s| &mut s.output_pad[1])),
    flag('m', "mode", Mode),
    flag('z', "pad_mode", PadMode),
    flag('I', "in_layout", Layout(0)),
    flag('f', "fil_layout", Layout(1)),
    flag('O', "out_layout", Layout(2)),
    flag('F', "forw", Directions),
    flag('b', "bias", Bias),
    ours("activ", Activation),
    flag('_', "spatial_dim", Only(&["2"], "only 2-D is supported; write a 1-D convolution as -H 1 -y 1")),
    // MIOpenDriver does not look at these where spatial_dim is 2; tools that write every flag give 0 or 1.
    flag('!', "in_d", DEPTH),
    flag('@', "fil_d", DEPTH),
    flag('$', "pad_d", DEPTH),
    flag('#', "conv_stride_d", DEPTH),
    flag('^', "dilation_d", DEPTH),
    flag('%', "trans_output_pad_d", DEPTH),
    flag('Z', "tensor_vect", Only(&["0"], "vectorised layouts are not supported; leave it out")),
    flag('L', "vector_length", Only(&["1"], "vectorised layouts are not supported; leave it out")),
    flag('U', "in_cast_type", CAST),
    flag('T', "out_cast_type", CAST),
    flag('R', "wei_cast_type", CAST),
    // Only part of a cache file's name to MIOpenDriver, which always pads with zeros.
    flag('r', "pad_val", Ignored),
    flag('i', "iter", Ignored),
    flag('V', "verify", Ignored),
    flag('C', "verification_cache", Ignored),
    flag('t', "time", Ignored),
    flag('w', "wall", Ignored),
    flag('s', "search", Ignored),
    flag('P', "printconv", Ignored),
    flag('o', "dump_output", Ignored),
    flag('d', "in_data", Ignored),
    flag('e', "weights", Ignored),
    flag('a', "in_bias", Ignored),
    flag('D', "dout_data", Ignored),
    flag('S', "solution", Ignored),
    flag('G', "gpualloc", Ignored),
    flag('~', "gpubuffer_check", Ignored),
    flag('N', "init_output_nan", Ignored),
    flag('&', "tuning_policy", Ignored),
    flag('M', "math_type", Ignored),
    // Its letter changed between releases, so there are two rows.
    flag('J', "use_hip_graph", Ignored),
    flag('Q', "use_hip_graph", Ignored),
];

const fn ours<M>(long: &'static str, meaning: M) -> Flag<M> {
    Flag { short: None, long, old: None, meaning }
}

/// Every flag of `gemm`. The strides and offsets are ours.
pub(super) static GEMM_FLAGS: &[Flag<GemmMeaning>] = &[
    flag('b', "batch_count", GemmMeaning::Batch),
    flag('m', "a_h", GemmMeaning::Size(|s| &mut s.m, "how many rows of A")),
    flag('k', "a_w", GemmMeaning::Size(|s| &mut s.k, "how many columns of A")),
    flag('n', "b_w", GemmMeaning::Size(|s| &mut s.n, "how many columns of B")),
    flag('u', "transA", GemmMeaning::Transposed(0)),
    flag('v', "transB", GemmMeaning::Transposed(1)),
    flag('A', "alpha", GemmMeaning::Alpha),
    flag('B', "beta", GemmMeaning::Beta),
    ours("activ", GemmMeaning::Activation),
    ours("backward", GemmMeaning::Backward),
    ours("a_strides", GemmMeaning::Strides(0)),
    ours("b_strides", GemmMeaning::Strides(1)),
    ours("added_strides", GemmMeaning::Strides(2)),
    ours("a_first", GemmMeaning::First(0)),
    ours("b_first", GemmMeaning::First(1)),
    ours("added_first", GemmMeaning::First(2)),
    flag(
        'C',
        "isColMajor",
        GemmMeaning::Only(&["0"], "matrices are row-major; use -u and -v for transposed ones"),
    ),
    flag('F', "forw", GemmMeaning::Only(&["0", "1"], "a product has a forward pass only")),
    flag('i', "iter", GemmMeaning::Ignored),
    flag('V', "verify", GemmMeaning::Ignored),
    flag('t', "time", GemmMeaning::Ignored),
];

#[cfg(test)]
mod tests {
    use super::{FLAGS, Meaning};
    use std::collections::HashSet;

    #[test]
    fn no_name_can_hide_a_flag_that_matters() {
        let (mut longs, mut shorts) = (HashSet::new(), HashSet::new());
        for flag in FLAGS {
            let ignored = matches!(flag.meaning, Meaning::Ignored);
            assert!(longs.insert(flag.long) || ignored, "--{} twice", flag.long);
            assert!(flag.old.is_none_or(|old| longs.insert(old)), "{:?} twice", flag.old);
            assert!(flag.short.is_none_or(|short| shorts.insert(short)), "{:?} twice", flag.short);
        }
    }
}
