//! What ROCm 7 asks of tensor descriptors beside sizes and strides.

use crate::abi::entry::{Failure, call};
use crate::abi::ffi::{Id, Out, Status};
use crate::layers::tensor::{Tensor, tensor_of};
use std::ffi::c_int;

/// `miopenTensorLayout_t` of a packed tensor of four or five dimensions; channels of one pixel or one channel count as in
/// front.
fn layout(tensor: &Tensor) -> Option<c_int> {
    let orders: &[(c_int, &[usize])] = match tensor.sizes().len() {
        4 => &[(0, &[0, 1, 2, 3]), (1, &[0, 2, 3, 1]), (2, &[1, 2, 3, 0])],
        5 => &[(7, &[0, 1, 2, 3, 4]), (8, &[0, 2, 3, 4, 1])],
        _ => return None,
    };
    orders.iter().find(|(_, order)| tensor.is_packed_in(order)).map(|(layout, _)| *layout)
}

/// Type, sizes and strides in 64 bits; each may be null.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetTensorDescriptorV2(
    tensor: Id,
    dtype: Out<c_int>,
    sizes: Out<usize>,
    strides: Out<usize>,
) -> Status {
    call("miopenGetTensorDescriptorV2", || {
        let found = tensor_of(tensor, "tensorDesc")?;
        dtype.set_if_wanted(found.dtype as c_int);
        for (out, values) in [(sizes, found.sizes()), (strides, found.strides())] {
            if !out.is_null() {
                let values: Vec<usize> = values.iter().map(|&value| value as usize).collect();
                out.set_all("dims", &values)?;
            }
        }
        Ok(())
    })
}

/// The layout of a packed tensor.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetTensorLayout(tensor: Id, out: Out<c_int>) -> Status {
    call("miopenGetTensorLayout", || {
        let found = tensor_of(tensor, "tensorDesc")?;
        let text = || {
            format!("no layout has a name that has sizes {:?}, strides {:?}", found.sizes(), found.strides())
        };
        out.set("layout", layout(&found).ok_or_else(|| Failure::bad(text()))?)
    })
}

/// Elements from the first to the last.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetTensorElementSpace(tensor: Id, elements: Out<usize>) -> Status {
    call("miopenGetTensorElementSpace", || {
        let found = tensor_of(tensor, "tensorDesc")?;
        elements.set("elementSpace", (found.bytes() / found.dtype.size()) as usize)
    })
}

/// Whether there are no gaps.
#[unsafe(no_mangle)]
pub extern "C" fn miopenIsTensorPacked(tensor: Id, packed: Out<u8>) -> Status {
    call("miopenIsTensorPacked", || {
        let found = tensor_of(tensor, "tensorDesc")?;
        packed.set("isPacked", u8::from(found.bytes() == found.elements() * found.dtype.size()))
    })
}

/// 1: tensors of vectors are refused where they are described.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetTensorVectorLength(tensor: Id, length: Out<usize>) -> Status {
    call("miopenGetTensorVectorLength", || {
        tensor_of(tensor, "tensorDesc")?;
        length.set("vectorLength", 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::ffi::DataType;

    #[test]
    fn layouts_have_their_names() {
        let named =
            |sizes: &[i64], order: &[usize]| layout(&Tensor::packed(DataType::Float, sizes, order).unwrap());
        assert_eq!(named(&[2, 3, 4, 5], &[0, 1, 2, 3]), Some(0));
        assert_eq!(named(&[2, 3, 4, 5], &[0, 2, 3, 1]), Some(1));
        assert_eq!(named(&[2, 3, 4, 5], &[1, 2, 3, 0]), Some(2));
        assert_eq!(named(&[2, 3, 4, 5], &[3, 2, 1, 0]), None);
        assert_eq!(named(&[2, 3, 1, 1], &[0, 2, 3, 1]), Some(0));
        assert_eq!(named(&[2, 3, 4, 5, 6], &[0, 2, 3, 4, 1]), Some(8));
        assert_eq!(named(&[2, 3, 4], &[0, 1, 2]), None);
    }
}
