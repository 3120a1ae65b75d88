//! Tensor descriptors: type, sizes and strides.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Data, DataType, Id, In, Out, Status};
use crate::abi::objects::{self, Object};
use crate::vendor::next::next;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};
use wave32_ops::{MAX_DIMS, View};

/// What a descriptor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Type of the elements.
    pub dtype: DataType,
    rank: u8,
    sizes: [u64; MAX_DIMS],
    strides: [u64; MAX_DIMS],
}

impl Tensor {
    /// A tensor with these sizes and strides, in elements.
    ///
    /// # Errors
    /// Bad parameter: no or too many dimensions, sizes below 1, strides below 1 (0 where the size is 1 does no harm), a
    /// tensor past 2^63 bytes.
    pub fn new(dtype: DataType, sizes: &[i64], strides: &[i64]) -> Outcome<Self> {
        let rank = sizes.len();
        if rank == 0 || rank > MAX_DIMS || strides.len() != rank {
            return Err(Failure::bad(format!("a tensor of {rank} dimensions: 1 to {MAX_DIMS} are possible")));
        }
        let mut made = Self { dtype, rank: rank as u8, sizes: [1; MAX_DIMS], strides: [0; MAX_DIMS] };
        let mut last = 0u64;
        for (at, (&size, &stride)) in sizes.iter().zip(strides).enumerate() {
            if size < 1 || stride < 0 || (stride == 0 && size > 1) {
                let text = format!("a tensor of sizes {sizes:?}, strides {strides:?}: each is at least 1");
                return Err(Failure::bad(text));
            }
            (made.sizes[at], made.strides[at]) = (size as u64, stride as u64);
            let reach = (size as u64 - 1).checked_mul(stride as u64);
            last = reach.and_then(|reach| last.checked_add(reach)).ok_or_else(Self::too_large)?;
        }
        let spanned = last.checked_add(1).and_then(|n| n.checked_mul(dtype.size()));
        let elements = made.sizes().iter().try_fold(dtype.size(), |a, &b| a.checked_mul(b));
        let fits = |bytes: Option<u64>| bytes.is_some_and(|bytes| i64::try_from(bytes).is_ok());
        if fits(spanned) && fits(elements) { Ok(made) } else { Err(Self::too_large()) }
    }

    fn too_large() -> Failure {
        Failure::bad("a tensor past 2^63 bytes")
    }

    /// One whose elements lie in order, in the dimensions' order of `order` (outermost first).
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn packed(dtype: DataType, sizes: &[i64], order: &[usize]) -> Outcome<Self> {
        let mut strides = vec![1i64; sizes.len()];
        let mut stride = 1i64;
        for &at in order.iter().rev() {
            strides[at] = stride;
            stride = stride.checked_mul(sizes[at].max(1)).ok_or_else(Self::too_large)?;
        }
        Self::new(dtype, sizes, &strides)
    }

    /// One whose elements lie in order, the last dimension innermost.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub fn in_order(dtype: DataType, sizes: &[i64]) -> Outcome<Self> {
        Self::packed(dtype, sizes, &Vec::from_iter(0..sizes.len()))
    }

    /// As [`Tensor::packed`] makes it? The stride of a dimension of one element does not matter.
    pub fn is_packed_in(&self, order: &[usize]) -> bool {
        let mut expected = 1;
        order.iter().rev().all(|&at| {
            let (size, stride) = (self.sizes()[at], self.strides()[at]);
            let right = size == 1 || stride == expected;
            expected *= size;
            right
        })
    }

    /// The sizes.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes[..usize::from(self.rank)]
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &[u64] {
        &self.strides[..usize::from(self.rank)]
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.sizes().iter().product()
    }

    /// Bytes from the first to the last that it touches.
    pub fn bytes(&self) -> u64 {
        let reach = |(size, stride): (&u64, &u64)| (size - 1) * stride;
        (1 + self.sizes().iter().zip(self.strides()).map(reach).sum::<u64>()) * self.dtype.size()
    }

    /// The tensor at that address.
    ///
    /// # Errors
    /// Bad parameter, where the address is null.
    pub fn view(&self, name: &str, data: Data) -> Outcome<View> {
        if data == 0 {
            return Err(Failure::bad(format!("{name} is null")));
        }
        Ok(View::new(data as u64, self.dtype.element(), self.sizes(), self.strides())?)
    }
}

/// A tensor descriptor; empty until it is set.
#[derive(Debug, Default)]
pub struct Descriptor(Mutex<Option<Tensor>>);

impl Object for Descriptor {
    const KIND: &'static str = "tensor descriptor";
}

/// Sets a descriptor.
///
/// # Errors
/// Bad parameter where `id` is no tensor descriptor, or a destroyed one.
pub fn describe(id: Id, tensor: Tensor) -> Outcome {
    Descriptor::set(id, tensor)
}

impl Descriptor {
    fn set(id: Id, tensor: Tensor) -> Outcome {
        *objects::get::<Self>(id, "tensorDesc")?.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(tensor);
        Ok(())
    }
}

/// What the descriptor says now.
///
/// # Errors
/// Bad parameter: no living tensor descriptor, or one that was never set.
pub fn tensor_of(id: Id, name: &str) -> Outcome<Tensor> {
    let descriptor = objects::get::<Descriptor>(id, name)?;
    if let Some(next) = next() {
        let (dtype, sizes, strides) = next.describe(id)?;
        let tensor = Tensor::new(DataType::from_c(dtype)?, &sizes, &strides)?;
        // A vectorised layout does not show in sizes and strides.
        return match next.bytes(id)? as u64 == tensor.bytes() {
            true => Ok(tensor),
            false => Err(Failure::absent(format!("the layout of {name}, a vectorised one,"))),
        };
    }
    let tensor = *descriptor.0.lock().unwrap_or_else(PoisonError::into_inner);
    tensor.ok_or_else(|| Failure::bad(format!("{name} was never set")))
}

/// A size or stride as the ABI's older calls tell it.
fn int(value: u64) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

fn dims(values: &[c_int]) -> Vec<i64> {
    values.iter().map(|&value| value.into()).collect()
}

fn count(number: c_int) -> Outcome<usize> {
    usize::try_from(number)
        .ok()
        .filter(|count| (1..=MAX_DIMS).contains(count))
        .ok_or_else(|| Failure::bad(format!("{number} dimensions: 1 to {MAX_DIMS} are possible")))
}

/// Creates an empty descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateTensorDescriptor(tensor: Out<Id>) -> Status {
    call("miopenCreateTensorDescriptor", || {
        tensor.check("tensorDesc")?;
        let id = match next() {
            None => objects::insert(Descriptor::default()),
            Some(next) => objects::insert_as(next.create_tensor()?, Descriptor::default()),
        };
        tensor.set("tensorDesc", id)
    })
}

/// Destroys it.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroyTensorDescriptor(tensor: Id) -> Status {
    call("miopenDestroyTensorDescriptor", || {
        objects::remove::<Descriptor>(tensor, "tensorDesc").map(drop)?;
        next().map_or(Ok(()), |next| next.destroy_tensor(tensor))
    })
}

/// N, C, H, W in order.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSet4dTensorDescriptor(
    tensor: Id,
    dtype: c_int,
    n: c_int,
    c: c_int,
    h: c_int,
    w: c_int,
) -> Status {
    call("miopenSet4dTensorDescriptor", || {
        Descriptor::set(tensor, Tensor::in_order(DataType::from_c(dtype)?, &dims(&[n, c, h, w]))?)
    })
}

/// N, C, H, W with strides.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenSet4dTensorDescriptorEx(
    tensor: Id,
    dtype: c_int,
    n: c_int,
    c: c_int,
    h: c_int,
    w: c_int,
    n_stride: c_int,
    c_stride: c_int,
    h_stride: c_int,
    w_stride: c_int,
) -> Status {
    call("miopenSet4dTensorDescriptorEx", || {
        let strides = dims(&[n_stride, c_stride, h_stride, w_stride]);
        Descriptor::set(tensor, Tensor::new(DataType::from_c(dtype)?, &dims(&[n, c, h, w]), &strides)?)
    })
}

/// `miopenTensorLayout_t`: the order of N, C, (D,) H, W in memory.
fn order(layout: c_int, rank: usize) -> Outcome<&'static [usize]> {
    match (layout, rank) {
        (0, 4) => Ok(&[0, 1, 2, 3]),
        (1, 4) => Ok(&[0, 2, 3, 1]),
        (7, 5) => Ok(&[0, 1, 2, 3, 4]),
        (8, 5) => Ok(&[0, 2, 3, 4, 1]),
        (2..=6, _) => Err(Failure::absent(format!("tensor layout {layout} (CHWN and vectorised ones)"))),
        _ => Err(Failure::bad(format!("{rank} dimensions in tensor layout {layout}"))),
    }
}

/// Sizes in the order N, C, (D,) H, W, whatever the layout.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetNdTensorDescriptorWithLayout(
    tensor: Id,
    dtype: c_int,
    layout: c_int,
    sizes: In<c_int>,
    dimensions: c_int,
) -> Status {
    call("miopenSetNdTensorDescriptorWithLayout", || {
        let rank = count(dimensions)?;
        let sizes = dims(&sizes.get_all("lens", rank)?);
        Descriptor::set(tensor, Tensor::packed(DataType::from_c(dtype)?, &sizes, order(layout, rank)?)?)
    })
}

/// Sizes and, unless null, strides.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetTensorDescriptor(
    tensor: Id,
    dtype: c_int,
    dimensions: c_int,
    sizes: In<c_int>,
    strides: In<c_int>,
) -> Status {
    call("miopenSetTensorDescriptor", || {
        let rank = count(dimensions)?;
        let sizes = dims(&sizes.get_all("dimsA", rank)?);
        let strides = if strides.is_null() { None } else { Some(dims(&strides.get_all("stridesA", rank)?)) };
        Descriptor::set(tensor, of_dims(DataType::from_c(dtype)?, &sizes, strides.as_deref())?)
    })
}

/// The same in 64 bits.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetTensorDescriptorV2(
    tensor: Id,
    dtype: c_int,
    dimensions: c_int,
    sizes: In<usize>,
    strides: In<usize>,
) -> Status {
    call("miopenSetTensorDescriptorV2", || {
        let rank = count(dimensions)?;
        let wide = |values: Vec<usize>| -> Vec<i64> {
            values.into_iter().map(|value| i64::try_from(value).unwrap_or(-1)).collect()
        };
        let sizes = wide(sizes.get_all("dimsA", rank)?);
        let strides = if strides.is_null() { None } else { Some(wide(strides.get_all("stridesA", rank)?)) };
        Descriptor::set(tensor, of_dims(DataType::from_c(dtype)?, &sizes, strides.as_deref())?)
    })
}

fn of_dims(dtype: DataType, sizes: &[i64], strides: Option<&[i64]>) -> Outcome<Tensor> {
    match strides {
        Some(strides) => Tensor::new(dtype, sizes, strides),
        None => Tensor::in_order(dtype, sizes),
    }
}

/// Type, sizes and strides of one of four dimensions.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenGet4dTensorDescriptor(
    tensor: Id,
    dtype: Out<c_int>,
    n: Out<c_int>,
    c: Out<c_int>,
    h: Out<c_int>,
    w: Out<c_int>,
    n_stride: Out<c_int>,
    c_stride: Out<c_int>,
    h_stride: Out<c_int>,
    w_stride: Out<c_int>,
) -> Status {
    call("miopenGet4dTensorDescriptor", || {
        let found = tensor_of(tensor, "tensorDesc")?;
        if found.sizes().len() != 4 {
            let text = format!("tensorDesc has {} dimensions, not 4", found.sizes().len());
            return Err(Failure::bad(text));
        }
        dtype.set_if_wanted(found.dtype as c_int);
        let outs = [n, c, h, w, n_stride, c_stride, h_stride, w_stride];
        let values = found.sizes().iter().chain(found.strides());
        outs.iter().zip(values).for_each(|(out, &value)| out.set_if_wanted(int(value)));
        Ok(())
    })
}

/// Number of dimensions.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetTensorDescriptorSize(tensor: Id, size: Out<c_int>) -> Status {
    call("miopenGetTensorDescriptorSize", || {
        size.set("size", tensor_of(tensor, "tensorDesc")?.sizes().len() as c_int)
    })
}

/// Type, sizes and strides; each may be null.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetTensorDescriptor(
    tensor: Id,
    dtype: Out<c_int>,
    sizes: Out<c_int>,
    strides: Out<c_int>,
) -> Status {
    call("miopenGetTensorDescriptor", || {
        let found = tensor_of(tensor, "tensorDesc")?;
        dtype.set_if_wanted(found.dtype as c_int);
        for (out, values) in [(sizes, found.sizes()), (strides, found.strides())] {
            let values: Vec<c_int> = values.iter().copied().map(int).collect();
            if !out.is_null() {
                out.set_all("dims", &values)?;
            }
        }
        Ok(())
    })
}

/// Bytes from the first element to the last.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetTensorNumBytes(tensor: Id, bytes: Out<usize>) -> Status {
    call("miopenGetTensorNumBytes", || {
        bytes.set("numBytes", tensor_of(tensor, "tensorDesc")?.bytes() as usize)
    })
}
