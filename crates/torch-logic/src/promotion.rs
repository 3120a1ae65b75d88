//! The type of a result: PyTorch's promotion, and what may be written where.

use crate::{Scalar, ScalarType, Wrong};

/// 0 truth value, 1 whole number, 2 float, 3 complex.
pub const fn category(dtype: ScalarType) -> u32 {
    match dtype {
        ScalarType::Bool => 0,
        dtype if dtype.is_complex() => 3,
        dtype if dtype.is_float() => 2,
        _ => 1,
    }
}

/// True for the types that all promote with each other.
const fn promotes(dtype: ScalarType) -> bool {
    use ScalarType::{Bool, I8, I16, I32, I64, U8};
    dtype.is_float() || dtype.is_complex() || matches!(dtype, Bool | U8 | I8 | I16 | I32 | I64)
}

/// What both are converted to (`torch.promote_types`). None where one is of the types for which PyTorch has few such rules,
/// or none: libtorch is asked.
pub fn promote_types(a: ScalarType, b: ScalarType) -> Option<ScalarType> {
    if a == b {
        return Some(a);
    }
    if !promotes(a) || !promotes(b) {
        return None;
    }
    let (low, high) = if category(a) <= category(b) { (a, b) } else { (b, a) };
    let wider = if low.bytes() > high.bytes() { low } else { high };
    match (category(low), category(high)) {
        // Signed, and wide enough for the bytes.
        (1, 1) if wider.bytes() == 1 => Some(ScalarType::I16),
        // The two types of halves.
        (2, 2) if low.bytes() == high.bytes() => Some(ScalarType::F32),
        (2 | 3, 3) => {
            let part = |dtype: ScalarType| dtype.part().unwrap_or(dtype);
            promote_types(part(low), part(high))?.of_parts()
        }
        (of_low, of_high) => Some(if of_low == of_high { wider } else { high }),
    }
}

/// What promotion looks at of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its type.
    pub dtype: ScalarType,
    /// Whether it has no dimensions: then it counts only where it is of a higher category.
    pub is_single: bool,
}

/// The type that two tensors promote to. None where only libtorch knows: whether a tensor without dimensions stands for a
/// Python number cannot be seen.
pub fn promoted_pair(a: Member, b: Member) -> Option<ScalarType> {
    match (a.is_single, b.is_single) {
        (false, false) => promote_types(a.dtype, b.dtype),
        (false, true) => (category(b.dtype) <= category(a.dtype)).then_some(a.dtype),
        (true, false) => (category(a.dtype) <= category(b.dtype)).then_some(b.dtype),
        (true, true) => None,
    }
}

/// The type of more than two, by the rule that torch has for these, which knows no Python's numbers among them: tensors
/// without dimensions count only where they are of a higher category. `promote` is [`promote_types`] with libtorch's answers
/// for what that leaves open. None without tensors.
///
/// # Errors
/// Those of `promote`.
pub fn promoted_list<E>(
    members: impl IntoIterator<Item = Member>,
    promote: impl Fn(ScalarType, ScalarType) -> Result<ScalarType, E>,
) -> Result<Option<ScalarType>, E> {
    let (mut full, mut single) = (None, None);
    for Member { dtype, is_single } in members {
        let slot = if is_single { &mut single } else { &mut full };
        *slot = Some(slot.map_or(Ok(dtype), |so_far| promote(so_far, dtype))?);
    }
    match (full, single) {
        (Some(full), Some(single)) if category(single) <= category(full) => Ok(Some(full)),
        // Of the floats' precision.
        (Some(full), Some(_)) if full.is_float() => promote(full, ScalarType::C32).map(Some),
        (Some(full), Some(single)) => promote(full, single).map(Some),
        (one, other) => Ok(one.or(other)),
    }
}

/// The type to compute in where Python's numbers beside a tensor decide that, which they do by being of a higher category.
///
/// # Errors
/// `NoKernel` for complex numbers.
pub fn promoted_by(
    dtype: ScalarType,
    numbers: &[Scalar],
    default_float: impl FnOnce() -> ScalarType,
) -> Result<Option<ScalarType>, Wrong> {
    let highest = numbers.iter().map(|number| number.category()).max().unwrap_or(0);
    if highest <= category(dtype) {
        return Ok(None);
    }
    match highest {
        1 => Ok(Some(ScalarType::I64)),
        2 => Ok(Some(default_float())),
        _ => Err(Wrong::NoKernel("a complex number".into())),
    }
}

/// Whether a result of type `from` may be written to a tensor of type `to`.
///
/// # Errors
/// `Invalid` where it is not.
pub fn castable(from: ScalarType, to: ScalarType) -> Result<(), Wrong> {
    let (have, room) = (category(from), category(to));
    if have <= room || have == 1 && room == 1 {
        return Ok(());
    }
    Err(Wrong::Invalid(format!(
        "result type {} can't be cast to the desired output type {}",
        from.scalar_name(),
        to.scalar_name()
    )))
}

/// Sums of whole numbers are `int64`.
pub const fn sum_type(of: ScalarType) -> ScalarType {
    use ScalarType::{Bool, I8, I16, I32, I64, U8};
    if matches!(of, Bool | U8 | I8 | I16 | I32 | I64) { I64 } else { of }
}

/// The type of an elementwise result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The promoted type of the operands.
    Same,
    /// That, or float where it is a whole number's.
    Float,
    /// Truth values.
    Truth,
    /// This type, in which it is computed too.
    As(ScalarType),
}

impl Rule {
    /// The type of a result of operands that promote to `promoted`.
    pub fn result(self, promoted: ScalarType, default_float: impl FnOnce() -> ScalarType) -> ScalarType {
        match self {
            Self::Truth => ScalarType::Bool,
            Self::As(dtype) => dtype,
            Self::Float if category(promoted) < 2 => default_float(),
            _ => promoted,
        }
    }

    /// Whether a kernel's own cast to elements of type `to` is what the result's type, cast once more, would be.
    pub fn stores(self, promoted: ScalarType, result: ScalarType, to: ScalarType) -> bool {
        use ScalarType::{BF16, Bool, F16, F32, F64, I64};
        if result == to {
            return true;
        }
        match result {
            F64 => to.is_float(),
            F32 => matches!(to, F16 | BF16),
            I64 => matches!(to, F32 | F16 | BF16) || category(to) == 1,
            // Doubles would be compared otherwise than what is promoted to.
            Bool => self == Self::Truth && (to != F64 || promoted == F64),
            _ => false,
        }
    }
}

/// Whether a whole type's elements are other numbers in a whole type that is computed in: one without dimensions counts
/// less than its type's size.
pub const fn wraps(from: ScalarType, to: ScalarType) -> bool {
    use ScalarType::{I8, I16, I32, U8};
    let narrow = matches!(to, I32 | I16 | I8 | U8);
    // Of one size there are only the signed and the unsigned bytes.
    narrow
        && category(from) == 1
        && (from.bytes() > to.bytes() || from.bytes() == to.bytes() && from as u8 != to as u8)
}

#[cfg(test)]
mod tests;
