//! Elementwise operations on whole numbers, any types, shapes and strides.

use crate::common;

use common::{TestQueue, close, get, put, put_plain, random, room, rounded, stream, values};
use rand::Rng;
use wave32_ops::{ElementType, Elementwise, Kind, Number, Op, Operand, View};

const F: ElementType = ElementType::F32;

type OfWhole = (Op, Box<dyn Fn(i64, i64) -> i64>);
type OfDoubles = (Op, fn(f64, f64) -> f64);
type Compare = (Op, fn(f64, f64) -> bool);

/// A reference on whole numbers as the type wraps them.
fn wrapped(dtype: ElementType, value: i64) -> f64 {
    match dtype {
        ElementType::U8 => f64::from(value as u8),
        ElementType::I8 => f64::from(value as i8),
        ElementType::I16 => f64::from(value as i16),
        ElementType::I32 => f64::from(value as i32),
        _ => value as f64,
    }
}

#[test]
fn whole_numbers_are_exact() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let (sizes, strides) = ([5, 7, 11], [100, 1, 8]);
    for dtype in [ElementType::I64, ElementType::I32, ElementType::I16, ElementType::I8, ElementType::U8] {
        let [a, mut b] = [0; 2].map(|_| values(&mut random, dtype, 385, 120.0));
        b.iter_mut().filter(|b| **b == 0.0).for_each(|b| *b = 3.0);
        let x = put(&mut stream, dtype, &sizes, &strides, &a);
        let y = put_plain(&mut stream, dtype, &sizes, &b);
        let bits = 8 * dtype.size() as i64;
        let cases: Vec<OfWhole> = vec![
            (Op::Add, Box::new(|a, b| a + b)),
            (Op::Sub, Box::new(|a, b| a - b)),
            (Op::Mul, Box::new(|a, b| a * b)),
            (Op::AddScaled, Box::new(|a, b| a + 3 * b)),
            (Op::DivFloor, Box::new(|a, b| a.div_euclid(b) - i64::from(b < 0 && a.rem_euclid(b) != 0))),
            (Op::DivTrunc, Box::new(|a, b| a / b)),
            (Op::Remainder, Box::new(|a, b| ((a % b) + b) % b)),
            (Op::Fmod, Box::new(|a, b| a % b)),
            (Op::Maximum, Box::new(|a, b| a.max(b))),
            (Op::Minimum, Box::new(|a, b| a.min(b))),
            (Op::BitwiseAnd, Box::new(|a, b| a & b)),
            (Op::BitwiseOr, Box::new(|a, b| a | b)),
            (Op::BitwiseXor, Box::new(|a, b| a ^ b)),
            (Op::BitwiseNot, Box::new(|a, _| !a)),
            (Op::Abs, Box::new(|a, _| a.abs())),
            (Op::Neg, Box::new(|a, _| -a)),
            (Op::Sign, Box::new(|a, _| a.signum())),
        ];
        let out = room(&mut stream, dtype, &sizes);
        let mut ew = Elementwise::new(Op::Add, dtype);
        ew.parameters[0] = Number::Int(3);
        for (op, reference) in cases {
            ew.op = op;
            ew.run(&mut stream, &[(&x).into(), (&y).into()], &out).unwrap();
            let expected: Vec<f64> =
                a.iter().zip(&b).map(|(&a, &b)| wrapped(dtype, reference(a as i64, b as i64))).collect();
            close(&get(&mut stream, &out), &expected, 0.0, &format!("{op:?} of {dtype:?}, seed {seed}"));
        }
        let by: Vec<f64> = (0..385).map(|i| f64::from(i % (bits as i32 + 2))).collect();
        let by_view = put_plain(&mut stream, dtype, &sizes, &by);
        ew.parameters[0] = Number::Int(bits);
        for left in [true, false] {
            ew.op = if left { Op::ShiftLeft } else { Op::ShiftRight };
            ew.run(&mut stream, &[(&x).into(), (&by_view).into()], &out).unwrap();
            let shift = |a: i64, n: i64| match (left, n >= bits) {
                (true, true) => 0,
                (true, false) => a << n,
                (false, true) => {
                    if a < 0 {
                        -1
                    } else {
                        0
                    }
                }
                (false, false) => a >> n,
            };
            let expected: Vec<f64> =
                a.iter().zip(&by).map(|(&a, &n)| wrapped(dtype, shift(a as i64, n as i64))).collect();
            close(&get(&mut stream, &out), &expected, 0.0, &format!("{:?} of {dtype:?}", ew.op));
        }
        ew.op = Op::Pow;
        let small: Vec<f64> = (0..385).map(|i| f64::from(i % 7)).collect();
        let small_view = put_plain(&mut stream, dtype, &sizes, &small);
        ew.run(&mut stream, &[(&x).into(), (&small_view).into()], &out).unwrap();
        let expected: Vec<f64> =
            a.iter().zip(&small).map(|(&a, &n)| wrapped(dtype, (a as i64).wrapping_pow(n as u32))).collect();
        close(&get(&mut stream, &out), &expected, 0.0, &format!("Pow of {dtype:?}"));
    }
    let big = Number::Int((1 << 60) + 1);
    let out = room(&mut stream, ElementType::I64, &[3]);
    Elementwise::new(Op::Identity, ElementType::I64).run(&mut stream, &[Operand::Value(big)], &out).unwrap();
    let bool_out = room(&mut stream, ElementType::Bool, &[3]);
    let other = Operand::Value(Number::Int(1 << 60));
    Elementwise::new(Op::Gt, ElementType::I64).run(&mut stream, &[(&out).into(), other], &bool_out).unwrap();
    assert_eq!(get(&mut stream, &bool_out), [1.0; 3]);
}

#[test]
fn comparisons_and_choices_take_any_types() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let sizes = [3, 4, 5, 6];
    let cases: [Compare; 9] = [
        (Op::Eq, |a, b| a == b),
        (Op::Ne, |a, b| a != b),
        (Op::Lt, |a, b| a < b),
        (Op::Le, |a, b| a <= b),
        (Op::Gt, |a, b| a > b),
        (Op::Ge, |a, b| a >= b),
        (Op::LogicalAnd, |a, b| a != 0.0 && b != 0.0),
        (Op::LogicalOr, |a, b| a != 0.0 || b != 0.0),
        (Op::LogicalXor, |a, b| (a != 0.0) != (b != 0.0)),
    ];
    for dtype in [
        ElementType::F32,
        ElementType::F16,
        ElementType::BF16,
        ElementType::F64,
        ElementType::I64,
        ElementType::I32,
        ElementType::U8,
        ElementType::Bool,
    ] {
        if dtype == ElementType::F64 && !stream.has_float64() {
            continue;
        }
        let mut a = values(&mut random, dtype, 360, 4.0);
        let mut b = values(&mut random, dtype, 30, 4.0);
        if dtype.is_float() {
            (a[7], b[3], a[11]) = (f64::NAN, f64::NAN, f64::INFINITY);
            a.iter_mut().skip(20).take(200).for_each(|v| *v = v.round());
            b.iter_mut().skip(5).for_each(|v| *v = v.round());
        }
        // Channels last, and a broadcast over two dimensions.
        let x = put(&mut stream, dtype, &sizes, &[120, 1, 24, 4], &a);
        let y = put_plain(&mut stream, dtype, &[5, 6], &b);
        let out = room(&mut stream, ElementType::Bool, &sizes);
        for (op, reference) in cases {
            Elementwise::new(op, dtype).run(&mut stream, &[(&x).into(), (&y).into()], &out).unwrap();
            let expected: Vec<f64> =
                a.iter().enumerate().map(|(i, &a)| f64::from(reference(a, b[i % 30]))).collect();
            close(&get(&mut stream, &out), &expected, 0.0, &format!("{op:?} of {dtype:?}, seed {seed}"));
        }
        let mask = values(&mut random, ElementType::Bool, 360, 1.0);
        let condition = put_plain(&mut stream, ElementType::Bool, &sizes, &mask);
        let chosen = put(&mut stream, dtype, &sizes, &[120, 1, 24, 4], &[]);
        let operands = [(&condition).into(), (&x).into(), (&y).into()];
        Elementwise::new(Op::Where, dtype).run(&mut stream, &operands, &chosen).unwrap();
        let expected: Vec<f64> = (0..360).map(|i| if mask[i] != 0.0 { a[i] } else { b[i % 30] }).collect();
        close(&get(&mut stream, &chosen), &expected, 0.0, &format!("Where of {dtype:?}, seed {seed}"));
        let operands = [(&x).into(), Operand::from(1i64), Operand::from(2i64)];
        if dtype != ElementType::Bool {
            Elementwise::new(Op::Clamp, dtype).run(&mut stream, &operands, &chosen).unwrap();
            let expected: Vec<f64> =
                a.iter().map(|&a| if a.is_nan() { a } else { a.clamp(1.0, 2.0) }).collect();
            close(&get(&mut stream, &chosen), &expected, 0.0, &format!("Clamp of {dtype:?}, seed {seed}"));
        }
    }
}

fn sum(stream: &mut TestQueue, a: &View, b: &View, out: &View) {
    Elementwise::with(Op::AddScaled, out.dtype, -1.5, 0.0).run(stream, &[a.into(), b.into()], out).unwrap();
}

#[test]
fn broadcasts_of_every_shape_agree() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let sizes = [3, 5, 2, 6];
    let at = |shape: &[u64], i: u64| {
        let index = [i / 60, i / 12 % 5, i / 6 % 2, i % 6];
        shape.iter().zip(index).fold(0, |at, (&size, i)| at * size + if size == 1 { 0 } else { i }) as usize
    };
    for dtype in [ElementType::F32, ElementType::F16, ElementType::BF16, ElementType::F64] {
        if dtype == ElementType::F64 && !stream.has_float64() {
            continue;
        }
        let a = values(&mut random, dtype, 180, 4.0);
        for pattern in 0..16 {
            let shape: Vec<u64> = (0..4).map(|d| if pattern >> d & 1 == 0 { sizes[d] } else { 1 }).collect();
            let b = values(&mut random, dtype, shape.iter().product(), 4.0);
            let y = put_plain(&mut stream, dtype, &shape, &b);
            for strides in [[60, 12, 6, 1], [60, 1, 30, 5], [61, 12, 6, 1]] {
                let x = put(&mut stream, dtype, &sizes, &strides, &a);
                let out = put(&mut stream, dtype, &sizes, &strides, &[]);
                sum(&mut stream, &x, &y, &out);
                let expected: Vec<f64> =
                    (0..180).map(|i| rounded(dtype, a[i as usize] - 1.5 * b[at(&shape, i)])).collect();
                let tolerance = if dtype == ElementType::BF16 {
                    8e-3
                } else if dtype == ElementType::F16 {
                    1e-3
                } else {
                    3e-7
                };
                close(
                    &get(&mut stream, &out),
                    &expected,
                    tolerance,
                    &format!("{dtype:?} {shape:?} seed {seed}"),
                );
                // In place.
                sum(&mut stream, &x, &y, &x);
                assert_eq!(get(&mut stream, &x), get(&mut stream, &out));
            }
        }
    }
}

#[test]
fn more_dimensions_than_four() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let (sizes, strides) = ([2, 3, 2, 2, 3, 2], [201, 67, 1, 33, 11, 5]);
    let a = values(&mut random, F, 144, 4.0);
    let x = put(&mut stream, F, &sizes, &strides, &a);
    let y = put(&mut stream, F, &sizes, &[72, 24, 12, 6, 2, 1], &a);
    let out = room(&mut stream, F, &sizes);
    Elementwise::new(Op::Mul, F).run(&mut stream, &[(&x).into(), (&y).into()], &out).unwrap();
    let expected: Vec<f64> = a.iter().map(|a| a * a).collect();
    close(&get(&mut stream, &out), &expected, 2e-7, &format!("seed {seed}"));
}

#[test]
fn fills_and_ranges() {
    let Some(mut stream) = stream() else { return };
    for dtype in ElementType::ALL {
        if dtype == ElementType::F64 && !stream.has_float64() {
            continue;
        }
        let out = put(&mut stream, dtype, &[7, 9], &[1, 8], &[]);
        wave32_ops::fill(&mut stream, &out, Number::Int(1)).unwrap();
        assert_eq!(get(&mut stream, &out), vec![1.0; 63], "{dtype:?}");
        let plain = room(&mut stream, dtype, &[4099]);
        for value in [0, 1] {
            wave32_ops::fill(&mut stream, &plain, Number::Int(value)).unwrap();
            assert_eq!(get(&mut stream, &plain), vec![value as f64; 4099], "{dtype:?}");
        }
        if dtype == ElementType::Bool {
            continue;
        }
        let out = put(&mut stream, dtype, &[40], &[3], &[]);
        wave32_ops::arange(&mut stream, &out, Number::Int(5), Number::Int(3)).unwrap();
        let expected: Vec<f64> = (0..40).map(|i| wrapped(dtype, 5 + 3 * i)).collect();
        close(&get(&mut stream, &out), &expected, 0.0, &format!("{dtype:?}"));
    }
    let out = room(&mut stream, F, &[100_001]);
    wave32_ops::arange(&mut stream, &out, Number::Float(-3.7), Number::Float(0.1)).unwrap();
    let expected: Vec<f64> = (0..100_001).map(|i| -3.7 + 0.1 * f64::from(i)).collect();
    close(&get(&mut stream, &out), &expected, 1e-7, "arange");
    wave32_ops::linspace(&mut stream, &out, Number::Float(-0.3), Number::Float(7.9)).unwrap();
    let expected: Vec<f64> = (0..100_001).map(|i| -0.3 + 8.2 / 1e5 * f64::from(i)).collect();
    close(&get(&mut stream, &out), &expected, 2e-7, "linspace");
    let square = put(&mut stream, F, &[5, 7], &[9, 1], &[]);
    wave32_ops::eye(&mut stream, &square).unwrap();
    let expected: Vec<f64> = (0..35).map(|i| f64::from(i / 7 == i % 7)).collect();
    assert_eq!(get(&mut stream, &square), expected);
}

/// One function of each kernel of f64 and more; PyTorch's tests take all of them.
#[test]
fn functions_of_doubles() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let [a, b] = [0; 2].map(|_| (0..300).map(|_| random.random_range(0.1..0.9)).collect::<Vec<f64>>());
    let [x, y] = [&a, &b].map(|list| put(&mut stream, ElementType::F64, &[300], &[2], list));
    let out = room(&mut stream, ElementType::F64, &[300]);
    let cases: [OfDoubles; 11] = [
        (Op::Pow, f64::powf),
        (Op::Floor, |a, _| a.floor()),
        (Op::Exp, |a, _| a.exp()),
        (Op::Log, |a, _| a.ln()),
        (Op::Sin, |a, _| a.sin()),
        (Op::Tanh, |a, _| a.tanh()),
        (Op::Atan, |a, _| a.atan()),
        (Op::TanhBackward, |a, b| a * (1.0 - b * b)),
        (Op::Mse, |a, b| (a - b) * (a - b)),
        (Op::Hypot, f64::hypot),
        (Op::Logaddexp, |a, b| (a.exp() + b.exp()).ln()),
    ];
    for (op, reference) in cases {
        Elementwise::new(op, ElementType::F64).run(&mut stream, &[(&x).into(), (&y).into()], &out).unwrap();
        let expected: Vec<f64> = a.iter().zip(&b).map(|(&a, &b)| reference(a, b)).collect();
        close(&get(&mut stream, &out), &expected, 4e-15, &format!("seed {seed}: {op:?} of F64"));
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let Some(mut stream) = stream() else { return };
    let ints = room(&mut stream, ElementType::I64, &[3]);
    let refused =
        Elementwise::new(Op::Lerp, ElementType::I64).run(&mut stream, &[1.0.into()], &ints).unwrap_err();
    assert!(refused.to_string().starts_with("no-such-kind"), "{refused}");
    let floats = room(&mut stream, F, &[4]);
    let wide = room(&mut stream, F, &[3]);
    let refused = Elementwise::new(Op::Exp, F).run(&mut stream, &[(&wide).into()], &floats).unwrap_err();
    assert!(refused.to_string().starts_with("no-broadcast"), "{refused}");
}

/// Tensors past what the device binds at once; where it binds gigabytes this takes the ordinary way.
#[test]
fn large_tensors_are_cut() {
    let Some(mut stream) = stream() else { return };
    let (rows, columns) = (4099, 8750);
    let make = |stream: &mut TestQueue| {
        let address = stream.alloc(4 * rows * columns).unwrap();
        View::contiguous(address, F, &[rows, columns]).unwrap()
    };
    let (x, out) = (make(&mut stream), make(&mut stream));
    let row: Vec<f64> = (0..columns).map(|i| i as f64 * 0.5).collect();
    let column: Vec<f64> = (0..rows).map(|i| i as f64).collect();
    let row_view = put_plain(&mut stream, F, &[columns], &row);
    let column_view = put_plain(&mut stream, F, &[rows, 1], &column);
    wave32_ops::fill(&mut stream, &x, Number::Int(3)).unwrap();
    let mut step = |op, operands: &[Operand], out: &View| {
        Elementwise::new(op, F).run(&mut stream, operands, out).unwrap();
    };
    step(Op::Add, &[(&x).into(), (&row_view).into()], &out);
    step(Op::Mul, &[(&out).into(), (&column_view).into()], &out);
    for at in [0, 1, rows / 2 - 1, rows / 2, rows - 1] {
        let line = View::contiguous(out.address + 4 * at * columns, F, &[columns]).unwrap();
        let expected: Vec<f64> = row.iter().map(|r| (3.0 + r) * at as f64).collect();
        close(&get(&mut stream, &line), &expected, 1e-7, &format!("row {at}"));
    }
    stream.free(x.address);
    stream.free(out.address);
}

/// Every operation on contiguous operands, which have kernels of their own by type, against the same on strided ones, whose
/// values the other tests check.
#[test]
fn contiguous_operands_give_what_strided_ones_do() {
    let Some(mut stream) = stream() else { return };
    let (mut random, seed) = random();
    let sizes = [16u64, 24];
    for (dtype, tolerance) in
        [(ElementType::F32, 2e-6), (ElementType::F16, 2e-3), (ElementType::BF16, 1.6e-2)]
    {
        // Inside of every function's domain.
        let data: Vec<Vec<f64>> = (0..3)
            .map(|_| (0..384).map(|_| rounded(dtype, random.random_range(0.05..0.95))).collect())
            .collect();
        for op in Op::ALL {
            if !op.exists_in(Kind::Float) || matches!(op, Op::Arange | Op::Linspace) {
                continue;
            }
            let mut results = Vec::new();
            // Contiguous; any strides; rows apart, of whole vectors and not; dense in another order.
            let (dense, turned) = ([24u64, 1], [1, 16]);
            for (of, to) in
                [(dense, dense), ([25, 1], [27, 1]), ([28, 1], dense), ([25, 1], dense), (turned, turned)]
            {
                let views: Vec<_> =
                    data.iter().map(|values| put(&mut stream, dtype, &sizes, &of, values)).collect();
                let out = put(&mut stream, dtype, &sizes, &to, &[]);
                let operands: Vec<Operand> = views.iter().map(Into::into).collect();
                Elementwise::new(op, dtype).run(&mut stream, &operands, &out).unwrap();
                results.push(get(&mut stream, &out));
            }
            for other in &results[1..] {
                close(&results[0], other, tolerance, &format!("{op:?} {dtype:?} seed {seed}"));
            }
        }
    }
}
