//! Sorting, and what is chosen by rank.

use crate::abi::error::Error;
use crate::dispatch::index_errors;
use crate::dispatch::register::Registration;
use crate::dispatch::result::{apart, bits, prepare, same_elements};
use crate::runtime::bridge::{run, view};
use crate::tensors::copies;
use crate::tensors::tensor::Tensor;
use wave32_ops::{argsort, index};
use wave32_torch_logic::ScalarType;
use wave32_torch_logic::sizes::wrap;

/// Kernels of `aten`.
pub const OPS: &[Registration] = crate::ops! {
    "sort.values_stable" =>
        |x: &Tensor, _stable: Option<bool>, dim: i64, descending: bool, values: &Tensor, places: &Tensor| {
            let dim = dimension(x, dim)?;
            ranked(x, dim, descending, &x.sizes(), values, places)
        },
    "topk.values" =>
        |x: &Tensor, k: i64, dim: i64, largest: bool, _sorted: bool, values: &Tensor, places: &Tensor| {
            let dim = dimension(x, dim)?;
            let mut sizes = x.sizes();
            if !(0..=sizes[dim]).contains(&k) {
                return Err(Error::Invalid("selected index k out of range".into()));
            }
            sizes[dim] = k;
            ranked(x, dim, largest, &sizes, values, places)
        },
};

fn dimension(x: &Tensor, dim: i64) -> Result<usize, Error> {
    if x.sizes().is_empty() {
        return Err(Error::NoKernel("a scalar in order".into()));
    }
    Ok(wrap(dim, x.sizes().len())?)
}

/// The first elements in order along `dim`, as many as `sizes` has.
fn ranked(
    x: &Tensor,
    dim: usize,
    descending: bool,
    sizes: &[i64],
    values: &Tensor,
    places: &Tensor,
) -> Result<(Tensor, Tensor), Error> {
    // What is sorted in place is read in another order than it is written.
    let source = if same_elements(values, x) { copies::to_device(x)? } else { x.share()? };
    let x = &source;
    apart(values, &[x])?;
    prepare(values, sizes, x.dtype()?, &[x])?;
    prepare(places, sizes, ScalarType::I64, &[x, values])?;
    if values.numel() > 0 {
        let (keys, names) = (view(x)?, view(places)?);
        let (from, to, word) = (bits(x)?, bits(values)?, index_errors::word()?);
        run(|queue| argsort(queue, &keys, dim, descending, &names))?;
        run(|queue| index::gather(queue, &from, dim, &names, &to, word))?;
    }
    Ok((values.share()?, places.share()?))
}
