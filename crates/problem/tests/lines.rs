//! Lines as they are found in the wild, the round trip, and broken ones.

mod specs;

use proptest::prelude::*;
use specs::valid_spec;
use wave32_problem::{
    Activation, Added, ConvProblem, ConvSpec, DType, Direction, Epilogue, Factor, Layout, MatmulProblem,
    MatmulSpec, Matrices, MatrixOrder, Pass, ProblemError, parse_line, parse_lines,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn what_is_printed_reads_as_the_same(spec in valid_spec()) {
        let problem = ConvProblem::new(spec).expect("the strategy makes legal ones");
        let line = problem.to_string();
        prop_assert_eq!(line.parse::<ConvProblem>(), Ok(problem.clone()), "{}", &line);
        prop_assert_eq!(parse_line(&line), Ok(vec![problem.into()]), "{}", &line);
    }

    #[test]
    fn long_names_in_any_order_mean_the_same(spec in valid_spec(), order in any::<u64>(), joined in any::<bool>()) {
        let problem = ConvProblem::new(spec.clone()).expect("the strategy makes legal ones");
        let mut words = long_words(&spec);
        let turn = order as usize % words.len();
        words.rotate_left(turn);
        if order & 1 << 40 != 0 {
            words.reverse();
        }
        let base = ["conv", "convfp16", "convbfp16"][spec.dtype as usize];
        let glue = if joined { "=" } else { "  " };
        let flags: Vec<_> = words.iter().map(|(flag, value)| format!("--{flag}{glue}{value}")).collect();
        let line = format!("{base} {}", flags.join("\t"));
        prop_assert_eq!(parse_line(&line), Ok(vec![problem.into()]), "{}", &line);
    }
}

/// The problem in long flags, written independently of the printer.
fn long_words(s: &ConvSpec) -> Vec<(&'static str, String)> {
    let layout = if s.layout == Layout::Nhwc { "nhwc" } else { "NCHW" };
    let [direction] = [match s.direction {
        Direction::Forward => "1",
        Direction::BackwardData => "2",
        Direction::BackwardWeights => "4",
    }];
    let mut words: Vec<(&str, String)> = vec![
        ("batchsize", s.n.to_string()),
        ("in_channels", s.c.to_string()),
        ("in_h", s.h.to_string()),
        ("in_w", s.w.to_string()),
        ("out_channels", s.k.to_string()),
        ("fil_h", s.r.to_string()),
        ("fil_w", s.s.to_string()),
        ("pad_h", s.pad[0].to_string()),
        ("pad_w", s.pad[1].to_string()),
        ("conv_stride_h", s.stride[0].to_string()),
        ("conv_stride_w", s.stride[1].to_string()),
        ("dilation_h", s.dilation[0].to_string()),
        ("dilation_w", s.dilation[1].to_string()),
        ("group_count", s.groups.to_string()),
        ("trans_output_pad_h", s.output_pad[0].to_string()),
        ("trans_output_pad_w", s.output_pad[1].to_string()),
        ("mode", if s.transposed { "trans" } else { "conv" }.into()),
        ("forw", direction.into()),
        ("bias", i32::from(s.epilogue.bias).to_string()),
        ("activ", s.epilogue.activation.to_string()),
        ("spatial_dim", "2".into()),
        ("verify", "0".into()),
        ("solution", "ConvDirectNaiveConvFwd".into()),
    ];
    words.extend(["in_layout", "fil_layout", "out_layout"].map(|flag| (flag, layout.to_string())));
    words
}

/// A forward f32 problem from `n c h w k r s`.
fn forward([n, c, h, w, k, r, s]: [i64; 7]) -> ConvSpec {
    ConvSpec { n, c, h, w, k, r, s, ..ConvSpec::default() }
}

/// Lines in the very format of MIOpen's log: what they mean, and that we print them as they were
/// (from `MIOpenDriver` on).
#[test]
fn log_lines_read_and_print_as_they_were() {
    use Direction::{BackwardData, BackwardWeights};
    let rows: Vec<(&str, ConvSpec)> = vec![
        (
            "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 16 -H 48 -W 48 -k 32 -y 3 \
             -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1",
            ConvSpec { pad: [1, 1], ..forward([1, 16, 48, 48, 32, 3, 3]) },
        ),
        (
            "MIOpen(HIP): Command [LogCmdFindConvolution] ./bin/MIOpenDriver convfp16 -n 64 -c 3 -H 224 -W 224 -k 64 \
             -y 7 -x 7 -p 3 -q 3 -u 2 -v 2 -l 1 -j 1 -m conv -g 1 -F 1 -t 1",
            ConvSpec {
                dtype: DType::F16,
                pad: [3, 3],
                stride: [2, 2],
                ..forward([64, 3, 224, 224, 64, 7, 7])
            },
        ),
        (
            "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convbfp16 -n 8 -c 256 -H 14 -W 14 -k 256 \
             -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 4 -t 1",
            ConvSpec {
                dtype: DType::BF16,
                direction: BackwardWeights,
                pad: [1, 1],
                ..forward([8, 256, 14, 14, 256, 3, 3])
            },
        ),
        (
            "MIOpen(HIP): Command [LogCmdConvolution] MIOpenDriver.exe conv -n 32 -c 64 -H 256 -W 256 -k 64 -y 3 -x 3 \
             -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 --in_layout NHWC --fil_layout NHWC --out_layout NHWC -m conv -g 1 -F 1 -t 1",
            ConvSpec { layout: Layout::Nhwc, pad: [1, 1], ..forward([32, 64, 256, 256, 64, 3, 3]) },
        ),
        (
            "MIOpen(OpenCL): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 2 -c 32 -H 112 -W 112 -k 32 -y 3 \
             -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 32 -F 2 -t 1",
            ConvSpec {
                direction: BackwardData,
                pad: [1, 1],
                groups: 32,
                ..forward([2, 32, 112, 112, 32, 3, 3])
            },
        ),
        (
            "MIOpen: Command [LogCmdFindConvolution] ./bin/MIOpenDriver conv -n 1 -c 512 -H 28 -W 28 -k 256 -y 2 -x 2 \
             -p 0 -q 0 -u 2 -v 2 -l 1 -j 1 -m trans -g 1 -F 1 -t 1",
            ConvSpec { transposed: true, stride: [2, 2], ..forward([1, 512, 28, 28, 256, 2, 2]) },
        ),
        (
            "2024-03-09 21:14:05.123456 MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 4 -c 512 \
             -H 33 -W 33 -k 512 -y 3 -x 3 -p 12 -q 12 -u 1 -v 1 -l 12 -j 12 -m conv -g 1 -F 4 -t 1",
            ConvSpec {
                direction: BackwardWeights,
                pad: [12, 12],
                dilation: [12, 12],
                ..forward([4, 512, 33, 33, 512, 3, 3])
            },
        ),
        (
            "  7.4231 MIOpen(HIP): Command [LogCmdConvolution] /opt/rocm-5.2.0/bin/MIOpenDriver conv -n 16 -c 1 -H 1 \
             -W 16000 -k 32 -y 1 -x 80 -p 0 -q 38 -u 1 -v 4 -l 1 -j 1 -m conv -g 1 -F 1 -t 1",
            ConvSpec { pad: [0, 38], stride: [1, 4], ..forward([16, 1, 1, 16000, 32, 1, 80]) },
        ),
        (
            "[rank0]: MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 1 -c 1280 -H 8 -W 8 \
             -k 320 -y 1 -x 1 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 --in_layout NHWC --fil_layout NHWC --out_layout NHWC \
             -m conv -g 1 -F 2 -t 1",
            ConvSpec {
                dtype: DType::F16,
                direction: BackwardData,
                layout: Layout::Nhwc,
                ..forward([1, 1280, 8, 8, 320, 1, 1])
            },
        ),
        (
            "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 2 -c 768 -H 17 -W 17 -k 192 -y 1 \
             -x 7 -p 0 -q 3 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1",
            ConvSpec { pad: [0, 3], ..forward([2, 768, 17, 17, 192, 1, 7]) },
        ),
    ];
    for (line, spec) in rows {
        let want = ConvProblem::new(spec).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(parse_line(line), Ok(vec![want.clone().into()]), "{line}");
        let command = line.split_once("MIOpenDriver").expect("every row has it").1;
        let command = command.trim_start_matches(".exe");
        assert_eq!(want.to_string(), format!("MIOpenDriver{command}"));
    }
}

/// Other forms in which such lines travel; each must read as the canonical line beside it.
#[test]
fn pasted_lines_read_as_their_canonical_form() {
    let tail = "-p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1";
    let base = format!("MIOpenDriver conv -n 1 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 {tail}");
    let same = "MIOpenDriver conv -n 1 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1";
    let nhwc = "--in_layout NHWC --fil_layout NHWC --out_layout NHWC";
    let short = "-n 1 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -F 1";
    let rows: Vec<(String, String)> = vec![
        (format!("conv {short}"), base.clone()),
        (format!("  conv   {short}  \r\n"), base.clone()),
        (format!("MIOpenDriver: conv {short}"), base.clone()),
        (format!("$ MIOPEN_LOG_LEVEL=6 /opt/rocm/bin/MIOpenDriver conv {short} # slow one"), base.clone()),
        (format!(r"C:\TheRock\bin\MIOpenDriver.exe conv {short}"), base.clone()),
        (format!("\"./bin/MIOpenDriver conv {short}\","), base.clone()),
        (format!("'MIOpenDriver' 'conv' {short} -C \"\""), base.clone()),
        (format!("`MIOpenDriver conv {short}`"), base.clone()),
        (format!("\u{1b}[32mMIOpen(HIP): Command [LogCmdConvolution] \u{1b}[1;33m./bin/MIOpenDriver\u{1b}[0m conv {short}\u{1b}[0m"), base.clone()),
        (format!("\u{1b}]0;a title\u{7}MIOpenDriver conv {short} -V 0 -i 1 -w 1 -s 0 -P 0 -o 0 -r 3 -G 1 -M 1 -N 1 -~ 3 -& 2 -J 1 -Q 1"), base.clone()),
        (format!("conv {short} -d in.bin -e w.bin -a b.bin -D dy.bin -C /tmp/cache -S ConvOclDirectFwd -S 85"), base.clone()),
        (format!("conv {short} -_ 2 -! 1 -@ 1 -$ 0 -# 0 -^ 0 -% 0 -Z 0 -L 1 -U -1 -T -1 -R -1"), base.clone()),
        (format!("conv -n 5 -k 7 {short} -p 2 -p 0"), base.clone()), // the last of several counts
        (format!("conv {short} --conv_stride_0 1 --conv_stride_1 1 --activ none -b 0 -m trans -m conv"), base.clone()),
        (format!("conv {short} -p 9 -q 9 -z valid"), base.clone()),
        (format!("conv {short} -z same"), same.to_string()),
        (format!("conv {short} -p 1 -q 1 -z default"), same.to_string()),
        // What `same` makes of an input that the stride does not divide: (3 - 8 mod 3)/2 = 0, (5 - 9 mod 4)/2 = 2.
        (
            "conv -n 1 -c 4 -H 8 -W 9 -k 6 -y 3 -x 5 -u 3 -v 4 -z same -F 1".into(),
            "MIOpenDriver conv -n 1 -c 4 -H 8 -W 9 -k 6 -y 3 -x 5 -p 0 -q 2 -u 3 -v 4 -l 1 -j 1 -m conv -g 1 -F 1 -t 1".into(),
        ),
        // A dilated filter keeps its given padding, as in MIOpenDriver.
        (
            "conv -n 1 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -l 2 -j 2 -p 1 -q 1 -z same -F 1".into(),
            "MIOpenDriver conv -n 1 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 2 -j 2 -m conv -g 1 -F 1 -t 1".into(),
        ),
        (format!("conv {short} -I NHWC -f nhwc -O Nhwc"), base.replace(" -m", &format!(" {nhwc} -m"))),
        (format!("conv {short} -b 1 --activ relu"), format!("{base} -b 1 --activ relu")),
        (format!("conv {short} --activ=relu"), format!("{base} --activ relu")),
        (format!("conv {short} --activ=leaky_relu07"), format!("{base} --activ leaky_relu7")),
        (
            "conv -n 1 -c 4 -H 7 -W 7 -k 6 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -m trans -Y 1 -X 1 -g 2 -F 2".into(),
            "MIOpenDriver conv -n 1 -c 4 -H 7 -W 7 -k 6 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -l 1 -j 1 -m trans -g 2 -F 2 -t 1 -Y 1 -X 1".into(),
        ),
        // The log's -k of a transposed convolution is that of one group.
        (
            "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 1 -c 4 -H 7 -W 7 -k 3 -y 2 -x 2 -p 0 -q 0 -u 2 -v 2 -l 1 -j 1 -m trans -g 2 -F 1 -t 1".into(),
            "MIOpenDriver conv -n 1 -c 4 -H 7 -W 7 -k 6 -y 2 -x 2 -p 0 -q 0 -u 2 -v 2 -l 1 -j 1 -m trans -g 2 -F 1 -t 1".into(),
        ),
        // A 1x1 filter is the same memory in both layouts, and MIOpen may print either.
        (
            "conv -n 1 -c 4 -H 8 -W 8 -k 6 -y 1 -x 1 -F 1 --in_layout NHWC --out_layout NHWC".into(),
            format!("MIOpenDriver conv -n 1 -c 4 -H 8 -W 8 -k 6 -y 1 -x 1 {}", tail.replace("-m", &format!("{nhwc} -m"))),
        ),
        // A 1x1 filter has nothing to dilate, so its padding is set.
        (
            "conv -n 1 -c 4 -H 8 -W 8 -k 6 -y 1 -x 1 -l 2 -j 3 -p 5 -q 5 -z valid -F 1".into(),
            "MIOpenDriver conv -n 1 -c 4 -H 8 -W 8 -k 6 -y 1 -x 1 -p 0 -q 0 -u 1 -v 1 -l 2 -j 3 -m conv -g 1 -F 1 -t 1"
                .into(),
        ),
        // One channel is the same memory in both layouts, on either side ...
        (
            "conv -n 1 -c 4 -H 8 -W 8 -k 1 -y 3 -x 3 -F 1 -I NHWC -f NHWC".into(),
            format!("MIOpenDriver conv -n 1 -c 4 -H 8 -W 8 -k 1 -y 3 -x 3 {}", tail.replace("-m", &format!("{nhwc} -m"))),
        ),
        (
            "conv -n 1 -c 1 -H 8 -W 8 -k 4 -y 3 -x 3 -F 1 -O NHWC".into(),
            format!("MIOpenDriver conv -n 1 -c 1 -H 8 -W 8 -k 4 -y 3 -x 3 {}", tail.replace("-m", &format!("{nhwc} -m"))),
        ),
        // ... and so is everything of one pixel, where the first layout wins.
        (
            "conv -n 1 -c 4 -H 1 -W 1 -k 4 -y 1 -x 1 -F 1 -O NHWC".into(),
            format!("MIOpenDriver conv -n 1 -c 4 -H 1 -W 1 -k 4 -y 1 -x 1 {tail}"),
        ),
        // So are a depthwise filter, and an output of one pixel.
        (
            "conv -n 1 -c 4 -H 8 -W 8 -k 4 -y 8 -x 8 -g 4 -F 1 --in_layout NHWC".into(),
            format!("MIOpenDriver conv -n 1 -c 4 -H 8 -W 8 -k 4 -y 8 -x 8 {}", tail.replace("-m", &format!("{nhwc} -m")).replace("-g 1", "-g 4")),
        ),
    ];
    for (line, canonical) in rows {
        let problem: ConvProblem = line.parse().unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(problem.to_string(), canonical, "{line}");
    }
}

#[test]
fn directions_are_the_sum_of_bits() {
    use Direction::{BackwardData, BackwardWeights, Forward};
    let cases: [(&str, &[Direction]); 9] = [
        ("", &[Forward, BackwardData, BackwardWeights]),
        ("-F 0", &[Forward, BackwardData, BackwardWeights]),
        ("-F 1", &[Forward]),
        ("-F 2", &[BackwardData]),
        ("-F 3", &[Forward, BackwardData]),
        ("-F 4", &[BackwardWeights]),
        ("-F 5", &[Forward, BackwardWeights]),
        ("-F 6", &[BackwardData, BackwardWeights]),
        ("-F 7", &[Forward, BackwardData, BackwardWeights]),
    ];
    for (flag, want) in cases {
        let line = format!("conv -n 1 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -b 1 {flag}");
        let problems = parse_line(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let got: Vec<_> = problems.iter().filter_map(|p| p.conv()).map(|p| p.spec().direction).collect();
        assert_eq!(got, want, "{line}");
        for problem in problems.iter().filter_map(|p| p.conv()) {
            let bias = Epilogue { bias: problem.spec().direction == Forward, ..Epilogue::default() };
            assert_eq!(problem.spec().epilogue, bias, "{line}");
        }
        let single = line.parse::<ConvProblem>();
        assert_eq!(single.is_ok(), want.len() == 1, "{line}");
        if let Err(error) = single {
            assert!(error.to_string().contains("give -F 1"), "{error}");
        }
    }
}

#[test]
fn broken_lines_say_what_is_wrong() {
    let table = include_str!("broken_lines.txt");
    let rows: Vec<_> = table.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(rows.len() >= 50, "only {} broken lines", rows.len());
    for row in rows {
        let (line, piece) = row.rsplit_once(" => ").expect("LINE => PIECE");
        let error = parse_line(line).expect_err(line).to_string();
        assert!(error.contains(piece), "{line}\n  says:  {error}\n  wants: {piece}");
        assert!(!error.contains('\n'), "{error:?}");
    }
}

#[test]
fn suites_skip_comments_and_number_errors() {
    let good = "conv -n 1 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3";
    let text = format!("\u{feff}# a suite\r\n\r\n{good} -F 1\r\n   # indented\n\t\n{good} -F 6  # two\n");
    assert_eq!(parse_lines(&text).map(|problems| problems.len()), Ok(3));
    assert_eq!(parse_lines(""), Ok(vec![]));
    let error = parse_lines(&format!("{text}\nconv -n 0\n")).expect_err("no sizes");
    assert!(matches!(&error, ProblemError::At { number: 8, .. }), "{error:?}");
    assert!(error.to_string().starts_with("line 8: the line has no -c/--in_channels"), "{error}");
}

#[test]
fn messages_stay_one_short_readable_line() {
    let noise = "\u{7}\u{8}".repeat(5000);
    for line in [noise.clone(), format!("conv {noise}"), format!("conv -n {noise}"), String::new()] {
        let error = parse_line(&line).expect_err("noise").to_string();
        assert!(error.len() < 1000 && !error.contains(char::is_control), "{error:?}");
    }
}

/// `gemm` lines written independently of the printer.
#[test]
fn products_of_matrices() {
    let dense = |dtype, sizes, orders| MatmulSpec::dense(dtype, sizes, orders);
    let (row, column) = (MatrixOrder::RowMajor, MatrixOrder::ColumnMajor);
    let added = |beta, strides| Some(Added { beta: Factor(beta), matrices: Matrices { first: 0, strides } });
    let cases = [
        ("gemm -m 3 -k 4 -n 5", dense(DType::F32, [1, 3, 4, 5], [row, row])),
        (
            "./bin/MIOpenDriver gemmfp16 --a_h=3 --a_w=4 --b_w=5 --batch_count 2 --transA 0 --transB 1 -t 1 -i 3",
            dense(DType::F16, [2, 3, 4, 5], [row, column]),
        ),
        (
            "gemmbfp16 -m 3 -k 4 -n 5 -u 1 -v 1 -A -2.5 -B 1",
            MatmulSpec {
                alpha: Factor(-2.5),
                added: added(1.0, [15, 5, 1]),
                ..dense(DType::BF16, [1, 3, 4, 5], [column, column])
            },
        ),
        (
            "gemm -m 3 -k 4 -n 5 --activ leaky_relu20",
            MatmulSpec {
                activation: Activation::LeakyRelu(20),
                ..dense(DType::F32, [1, 3, 4, 5], [row, row])
            },
        ),
        (
            "gemm -m 3 -k 4 -n 5 --backward 1",
            MatmulSpec { pass: Pass::Backward, ..dense(DType::F32, [1, 3, 4, 5], [row, row]) },
        ),
        (
            "gemm -m 3 -k 4 -n 5 -B 1 --added_strides 0,0,1 --a_strides 99,8,2 --a_first 1",
            MatmulSpec {
                a: Matrices { first: 1, strides: [99, 8, 2] },
                added: added(1.0, [0, 0, 1]),
                ..dense(DType::F32, [1, 3, 4, 5], [row, row])
            },
        ),
    ];
    for (line, spec) in cases {
        let problem = MatmulProblem::new(spec).unwrap();
        assert_eq!(line.parse::<MatmulProblem>(), Ok(problem.clone()), "{line}");
        let printed = problem.to_string();
        assert_eq!(printed.parse::<MatmulProblem>(), Ok(problem), "{printed}");
        assert!(printed.parse::<ConvProblem>().unwrap_err().to_string().contains("a convolution is wanted"));
    }
    let p: MatmulProblem = "gemmfp16 -b 2 -m 3 -k 4 -n 5 -B 1 --added_strides 0,0,1".parse().unwrap();
    assert_eq!((p.flops(), p.reduction_len(), p.output_elements()), (240, 4, 30));
    // A, B, five numbers that are added, and the result, of two bytes each.
    assert_eq!(p.bytes(), 2 * (24 + 40 + 5 + 30));
}
