use super::*;
use crate::testing::seeded;
use ScalarType::{BF16, Bool, C32, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
use rand::Rng;

const WHOLE: [ScalarType; 5] = [U8, I8, I16, I32, I64];

/// Least and most of a whole type.
fn limits(dtype: ScalarType) -> (i128, i128) {
    let bits = 8 * dtype.bytes();
    if dtype.name().starts_with('u') {
        (0, (1 << bits) - 1)
    } else {
        (-1 << (bits - 1), (1 << (bits - 1)) - 1)
    }
}

/// A number of random size.
fn whole(random: &mut impl Rng) -> i64 {
    random.random::<i64>() >> random.random_range(0..64)
}

#[test]
fn whole_numbers_are_stored_by_their_last_bytes_and_read_back() {
    seeded(|random| {
        let (dtype, number) = (WHOLE[random.random_range(0..5)], whole(random));
        let (least, most) = limits(dtype);
        if !(least..=most).contains(&i128::from(number)) || number.unsigned_abs() > 1 << 53 {
            return;
        }
        let bytes = Scalar::Int(number).bytes(dtype).unwrap();
        assert_eq!(bytes, number.to_le_bytes()[..dtype.bytes() as usize], "{number} as {}", dtype.name());
        assert_eq!(Scalar::read(dtype, &bytes), Ok(Scalar::Int(number)));
    });
}

#[test]
fn unsigned_numbers_have_all_their_bits() {
    for (dtype, number) in [(U16, 0xfedc), (U32, 0xfedc_ba98), (U64, i64::MAX)] {
        let bytes = Scalar::Int(number).bytes(dtype).unwrap();
        assert_eq!(bytes, number.to_le_bytes()[..dtype.bytes() as usize]);
    }
    assert_eq!(Scalar::read(U16, &[0xff, 0xff]), Ok(Scalar::Int(0xffff)));
    assert_eq!(Scalar::read(U32, &[0xff; 4]), Ok(Scalar::Int(0xffff_ffff)));
    assert!(matches!(Scalar::Int(0x1_0000).bytes(U16), Err(Wrong::NoKernel(_))));
}

/// Of the two neighbours of a float in a 16-bit type, the one that is nearer.
#[test]
fn halves_are_the_nearest_to_a_float() {
    seeded(|random| {
        let value =
            f64::from(random.random_range(-60000.0f32..60000.0) * 2f32.powi(random.random_range(-20..1)));
        for dtype in [F16, BF16] {
            let of = |bits: u16| match Scalar::read(dtype, &bits.to_le_bytes()) {
                Ok(Scalar::Float(value)) => value,
                other => panic!("{other:?}"),
            };
            let bytes = element(value, dtype).unwrap();
            let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
            let error = (of(bits) - value).abs();
            for neighbour in [bits.wrapping_sub(1), bits.wrapping_add(1)] {
                let away = (of(neighbour) - value).abs();
                assert!(
                    away.is_nan() || away >= error,
                    "{value} as {}: {} is nearer",
                    dtype.name(),
                    of(neighbour)
                );
            }
        }
    });
}

#[test]
fn a_complex_number_is_its_real_and_its_imaginary_part() {
    let number = Scalar::Complex(1.5, -2.0);
    for (dtype, part) in [(C32, F16), (C64, F32), (C128, F64)] {
        let expected = [element(1.5, part).unwrap(), element(-2.0, part).unwrap()].concat();
        assert_eq!(number.bytes(dtype), Ok(expected));
        assert_eq!(Scalar::Int(1).bytes(dtype), Scalar::Complex(1.0, 0.0).bytes(dtype));
    }
    assert_eq!(Scalar::read(C64, &number.bytes(C64).unwrap()), Ok(number));
    assert!(matches!(number.bytes(F32), Err(Wrong::NoKernel(_))));
    assert!(matches!(number.number(), Err(Wrong::NoKernel(_))));
}

#[test]
fn any_byte_but_0_is_true() {
    assert_eq!(Scalar::read(Bool, &[0]), Ok(Scalar::Bool(false)));
    assert_eq!(Scalar::read(Bool, &[2]), Ok(Scalar::Bool(true)));
    assert_eq!(element(0.5, Bool), Ok(vec![1]));
}

#[test]
fn bytes_after_the_element_are_not_read() {
    assert_eq!(Scalar::read(U8, &[7, 0xff, 0xff]), Ok(Scalar::Int(7)));
    assert_eq!(Scalar::read(U16, &[7, 1, 0xff]), Ok(Scalar::Int(263)));
    assert_eq!(Scalar::read(Bool, &[0, 1]), Ok(Scalar::Bool(false)));
}

#[test]
fn a_float_carries_whole_numbers_of_53_bits() {
    for number in [0, -1, 1 << 53, -(1 << 53)] {
        assert_eq!(Scalar::Int(number).float(), Ok(number as f64));
    }
    assert!(matches!(Scalar::Int((1 << 53) + 1).float(), Err(Wrong::NoKernel(_))));
    assert_eq!(Scalar::Bool(true).float(), Ok(1.0));
}

/// What PyTorch writes: whole numbers that the type holds, floats between its limits; of bytes, whole numbers down to -255.
#[test]
fn numbers_fit_that_the_type_holds() {
    seeded(|random| {
        let (dtype, number) = (WHOLE[random.random_range(0..5)], whole(random));
        let (least, most) = limits(dtype);
        let least = if dtype == U8 { -255 } else { least };
        let fits = (least..=most).contains(&i128::from(number));
        assert_eq!(Scalar::Int(number).fits(dtype).is_ok(), fits, "{number} in {}", dtype.name());
        let float = number as f64;
        let (least, most) = limits(dtype);
        let fits = float >= least as f64 && float as i128 <= most;
        assert_eq!(Scalar::Float(float).fits(dtype).is_ok(), fits, "{float} in {}", dtype.name());
    });
}

#[test]
fn floats_hold_infinities_and_whole_types_do_not() {
    for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        for dtype in [F16, BF16, F32, F64] {
            assert_eq!(Scalar::Float(value).fits(dtype), Ok(()));
        }
        for dtype in WHOLE {
            assert!(Scalar::Float(value).fits(dtype).is_err());
        }
    }
    assert!(Scalar::Float(65505.0).fits(F16).is_err());
    assert!(Scalar::Float(1e39).fits(F32).is_err() && Scalar::Float(1e39).fits(F64).is_ok());
    let text = "value cannot be converted to type int8_t without overflow";
    assert_eq!(Scalar::Int(128).fits(I8), Err(Wrong::Invalid(text.into())));
}

/// Modulo 2^bits, into the type's range.
#[test]
fn whole_numbers_wrap_to_the_type_that_is_computed_in() {
    seeded(|random| {
        let (dtype, number) = (WHOLE[random.random_range(0..5)], whole(random));
        let (least, most) = limits(dtype);
        let wrapped = (i128::from(number) - least).rem_euclid(most - least + 1) + least;
        assert_eq!(fitted(Number::Int(number), dtype, false), Number::Int(wrapped as i64));
    });
    assert_eq!(fitted(Number::Float(0.5), Bool, false), Number::Int(1));
    assert_eq!(fitted(Number::Float(0.1), F16, false), Number::Float(0.1));
    assert_eq!(fitted(Number::Float(0.1), F16, true), Number::Float(f16::from_f32(0.1).to_f64()));
    assert_eq!(fitted(Number::Float(0.1), BF16, true), Number::Float(bf16::from_f32(0.1).to_f64()));
}

#[test]
fn bounds_that_the_type_lacks_are_the_cpu_s() {
    seeded(|random| {
        let (dtype, number) = (WHOLE[random.random_range(0..5)], whole(random));
        let (least, most) = limits(dtype);
        let held = (least..=most).contains(&i128::from(number));
        assert_eq!(bound(Scalar::Int(number), dtype).is_ok(), held, "{number} for {}", dtype.name());
    });
    assert_eq!(bound(Scalar::Float(300.0), U8), Ok(Number::Float(300.0)));
}

/// Counted one by one.
#[test]
fn steps_are_counted_up_to_the_end() {
    seeded(|random| {
        let (from, to) = (random.random_range(-50i64..50), random.random_range(-50i64..50));
        let by = random.random_range(-9i64..10);
        let found = steps(Number::Int(from), Number::Int(to), Number::Int(by));
        if by == 0 || (to - from).signum() == -by.signum() {
            assert!(matches!(found, Err(Wrong::Invalid(_))), "{from} to {to} by {by}");
            return;
        }
        let is_before = |at: &i64| if by > 0 { *at < to } else { *at > to };
        let counted = (0..).map(|step| from + step * by).take_while(is_before).count();
        assert_eq!(found, Ok(counted as i64), "{from} to {to} by {by}");
        let halves = [from, to, by].map(|number| Number::Float(number as f64 / 2.0));
        assert_eq!(
            steps(halves[0], halves[1], halves[2]),
            Ok(counted as i64),
            "{from} to {to} by {by} halves"
        );
    });
    assert_eq!(steps(Number::Int(i64::MIN), Number::Int(i64::MAX), Number::Int(1)), Ok(i64::MAX));
}

/// The largest whole number up to which the type holds all.
#[test]
fn random_numbers_are_those_that_the_type_holds() {
    for dtype in WHOLE {
        let (least, most) = limits(dtype);
        assert_eq!(i128::from(range_of(dtype).unwrap()), most + 1);
        for from in [least, least + 1, 0] {
            let (from, count) = (from as i64, range_between(dtype, from as i64, None));
            // Of 2^64 numbers no count has room: 0 stands for it.
            assert_eq!(count, Ok((most + 1 - i128::from(from)) as u64), "{} from {from}", dtype.name());
        }
    }
    for dtype in [F16, BF16] {
        let is_held = |&number: &u64| {
            let bytes = element(number as f64, dtype).unwrap();
            Scalar::read(dtype, &bytes) == Ok(Scalar::Float(number as f64))
        };
        let last = (0..).take_while(is_held).last().unwrap();
        assert_eq!(range_of(dtype), Ok(last + 1), "{}", dtype.name());
    }
    assert!(matches!(range_of(C64), Err(Wrong::NoKernel(_))));
}

#[test]
fn bounds_of_random_numbers_are_the_type_s() {
    assert_eq!(range_between(U8, 3, Some(10)), Ok(7));
    assert_eq!(range_between(U8, 0, Some(256)), Ok(256));
    assert!(matches!(range_between(U8, -1, Some(10)), Err(Wrong::NoKernel(_))));
    assert!(matches!(range_between(U8, 0, Some(257)), Err(Wrong::NoKernel(_))));
    assert!(matches!(range_between(I8, -129, Some(0)), Err(Wrong::NoKernel(_))));
    assert_eq!(range_between(I64, i64::MIN, Some(i64::MAX)), Ok(u64::MAX));
    let text = "random_ expects 'from' to be less than 'to', but got from=4 >= to=4";
    assert_eq!(range_between(I32, 4, Some(4)), Err(Wrong::Invalid(text.into())));
}

#[test]
fn whole_types_count_in_whole_numbers() {
    assert_eq!(whole_for(Number::Float(2.9), I32), Number::Int(2));
    assert_eq!(whole_for(Number::Float(2.9), F16), Number::Float(2.9));
}
