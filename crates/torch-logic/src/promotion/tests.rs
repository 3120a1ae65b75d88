use super::*;
use crate::testing::seeded;
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeSet;

use ScalarType::{BF16, Bool, C32, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8};

const TYPES: [ScalarType; 13] = [Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64, C32, C64, C128];

/// PyTorch's types as a partial order: each with those right above it.
const ABOVE: &[(ScalarType, &[ScalarType])] = &[
    (Bool, &[U8, I8]),
    (U8, &[I16]),
    (I8, &[I16]),
    (I16, &[I32]),
    (I32, &[I64]),
    (I64, &[F16, BF16]),
    (F16, &[F32, C32]),
    (BF16, &[F32]),
    (F32, &[F64, C64]),
    (F64, &[C128]),
    (C32, &[C64]),
    (C64, &[C128]),
    (C128, &[]),
];

/// A type and all above it, by its place among [`TYPES`].
fn upwards(dtype: ScalarType) -> BTreeSet<usize> {
    let (_, above) = ABOVE.iter().find(|(known, _)| *known == dtype).unwrap();
    let own = TYPES.iter().position(|&known| known == dtype).unwrap();
    above.iter().flat_map(|&next| upwards(next)).chain([own]).collect()
}

/// The one type above both that is below all others above both.
fn least_above_both(a: ScalarType, b: ScalarType) -> ScalarType {
    let both: BTreeSet<usize> = upwards(a).intersection(&upwards(b)).copied().collect();
    let mut least = both.iter().filter(|&&at| both.is_subset(&upwards(TYPES[at])));
    let found = TYPES[*least.next().unwrap()];
    assert_eq!(least.next(), None);
    found
}

#[test]
fn the_common_type_is_the_least_above_both() {
    for a in TYPES {
        for b in TYPES {
            assert_eq!(promote_types(a, b), Some(least_above_both(a, b)), "{} and {}", a.name(), b.name());
        }
    }
}

/// Examples of torch's documentation ("Tensor attributes", torch.dtype) and of its header `ScalarType.h`.
#[test]
fn documented_pairs_promote_as_documented() {
    for (a, b, to) in [
        (I32, F32, F32),
        (U8, I64, I64),
        (U8, I8, I16),
        (F16, BF16, F32),
        (I64, F16, F16),
        (F64, C64, C128),
        (BF16, C32, C64),
        (Bool, U8, U8),
    ] {
        assert_eq!(
            (promote_types(a, b), promote_types(b, a)),
            (Some(to), Some(to)),
            "{} and {}",
            a.name(),
            b.name()
        );
    }
}

#[test]
fn types_with_rules_of_their_own_are_left_to_torch() {
    for &a in ScalarType::ALL {
        for &b in ScalarType::ALL {
            let known = a == b || TYPES.contains(&a) && TYPES.contains(&b);
            assert_eq!(promote_types(a, b).is_some(), known, "{} and {}", a.name(), b.name());
        }
    }
}

fn member(random: &mut StdRng) -> Member {
    Member { dtype: TYPES[random.random_range(0..TYPES.len())], is_single: random.random_bool(0.5) }
}

fn common(members: &[ScalarType]) -> Option<ScalarType> {
    members.iter().copied().reduce(least_above_both)
}

/// torch's documentation: the type holds all operands with dimensions; those without count where their category is higher,
/// and then keep the precision of what they are combined with.
fn documented(members: &[Member]) -> Option<ScalarType> {
    let of = |is_single| -> Vec<ScalarType> {
        members.iter().filter(|m| m.is_single == is_single).map(|m| m.dtype).collect()
    };
    let (full, single) = (common(&of(false)), common(&of(true)));
    let (Some(full), Some(single)) = (full, single) else { return full.or(single) };
    let rank = |dtype: ScalarType| match dtype {
        Bool => "0",
        C32 | C64 | C128 => "3",
        F16 | BF16 | F32 | F64 => "2",
        _ => "1",
    };
    Some(match full {
        _ if rank(single) <= rank(full) => full,
        F16 => C32,
        BF16 | F32 => C64,
        F64 => C128,
        _ => single,
    })
}

#[test]
fn tensors_without_dimensions_count_where_their_category_is_higher() {
    seeded(|random| {
        let members: Vec<Member> = (0..random.random_range(0..5)).map(|_| member(random)).collect();
        let found = promoted_list(members.iter().copied(), |a, b| promote_types(a, b).ok_or((a, b)));
        assert_eq!(found, Ok(documented(&members)), "{members:?}");
    });
}

/// Where two are decided here, it is as in a list; what is left open has one without dimensions that decides.
#[test]
fn two_tensors_promote_as_a_list_does() {
    seeded(|random| {
        let pair = [member(random), member(random)];
        match promoted_pair(pair[0], pair[1]) {
            Some(found) => assert_eq!(Some(found), documented(&pair), "{pair:?}"),
            None => assert!(pair.iter().any(|member| member.is_single), "{pair:?}"),
        }
    });
}

#[test]
fn a_failure_to_promote_is_told() {
    let members = [U8, ScalarType::U16, I8].map(|dtype| Member { dtype, is_single: false });
    let found = promoted_list(members, |a, b| promote_types(a, b).ok_or((a, b)));
    assert_eq!(found, Err((U8, ScalarType::U16)));
}

#[test]
fn numbers_of_python_s_promote_by_category_alone() {
    let default = || F64;
    for dtype in TYPES {
        let all = [Scalar::Bool(true), Scalar::Int(1 << 40), Scalar::Float(1e300), Scalar::Complex(0.0, 1.0)];
        for (rank, number) in all.into_iter().enumerate() {
            let found = promoted_by(dtype, &[Scalar::Bool(false), number], default);
            let expected = match rank as u32 {
                rank if rank <= category(dtype) => Ok(None),
                1 => Ok(Some(I64)),
                2 => Ok(Some(F64)),
                _ => Err(Wrong::NoKernel("a complex number".into())),
            };
            assert_eq!(found, expected, "{} with {number:?}", dtype.name());
        }
    }
    assert_eq!(promoted_by(Bool, &[], default), Ok(None));
}

/// `torch.can_cast`: not from complex to real, from float to whole, or from anything else to a truth value.
#[test]
fn results_are_written_as_can_cast_says() {
    let complex = [C32, C64, C128];
    let float = [F16, BF16, F32, F64];
    for from in TYPES {
        for to in TYPES {
            let refused = (complex.contains(&from) && !complex.contains(&to))
                || (float.contains(&from) && !complex.contains(&to) && !float.contains(&to))
                || (from != Bool && to == Bool);
            assert_eq!(castable(from, to).is_err(), refused, "{} to {}", from.name(), to.name());
        }
    }
    let text = "result type Float can't be cast to the desired output type Long";
    assert_eq!(castable(F32, I64), Err(Wrong::Invalid(text.into())));
}

#[test]
fn results_have_the_type_of_their_rule() {
    for promoted in TYPES {
        let result = |rule: Rule| rule.result(promoted, || BF16);
        let whole = [Bool, U8, I8, I16, I32, I64].contains(&promoted);
        assert_eq!(result(Rule::Same), promoted);
        assert_eq!(result(Rule::Float), if whole { BF16 } else { promoted });
        assert_eq!(result(Rule::Truth), Bool);
        assert_eq!(result(Rule::As(I16)), I16);
        assert_eq!(sum_type(promoted), if whole { I64 } else { promoted });
    }
}

/// A number as an element of a whole type.
fn cast(number: i64, to: ScalarType) -> i64 {
    match to {
        I32 => i64::from(number as i32),
        I16 => i64::from(number as i16),
        I8 => i64::from(number as i8),
        U8 => i64::from(number as u8),
        _ => number,
    }
}

/// Kernels compute whole numbers in 64 bits: what they store is what a narrower result, stored, would be only where that
/// is as wide as what is stored to.
#[test]
fn a_kernel_s_cast_from_64_bits_is_a_cast_from_int64() {
    for to in [U8, I8, I16, I32] {
        assert!(Rule::Same.stores(I64, I64, to));
        assert!(!Rule::Same.stores(I16, I16, I32), "a sum past 2^15 wraps first");
        let number = 0x1_2345_6789_abcd;
        assert_eq!(cast(number, to), cast(cast(number, I64), to));
    }
    for dtype in TYPES {
        assert!(Rule::Same.stores(dtype, dtype, dtype));
        assert!(!Rule::Same.stores(Bool, Bool, dtype) || dtype == Bool);
    }
    assert!(Rule::Truth.stores(F32, Bool, I32) && !Rule::Truth.stores(F32, Bool, F64));
}

/// Some element of the one type is another number in the other.
#[test]
fn numbers_wrap_where_the_type_has_no_room_for_some() {
    let limits = |dtype: ScalarType| match dtype {
        U8 => (0, 255),
        I8 => (-128, 127),
        I16 => (-32768, 32767),
        I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    for from in [U8, I8, I16, I32, I64] {
        for to in [U8, I8, I16, I32, I64] {
            let (least, most) = limits(from);
            let changes = cast(least, to) != least || cast(most, to) != most;
            assert_eq!(wraps(from, to), changes, "{} in {}", from.name(), to.name());
        }
    }
    assert!(!wraps(Bool, U8) && !wraps(F32, I8) && !wraps(I64, F16));
}
