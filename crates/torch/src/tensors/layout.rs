//! Where tensors lie: overlaps that PyTorch refuses, and the formats that it keeps.

use crate::abi::error::Error;
use crate::tensors::tensor::Tensor;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use wave32_torch_logic::{MemoryFormat, settings, strides};

/// False where new tensors and results of convolutions have their channels first though PyTorch would have them last.
static KEEPS_CHANNELS_LAST: LazyLock<AtomicBool> = LazyLock::new(|| {
    AtomicBool::new(settings::variable("WAVE32_CHANNELS_LAST").is_none_or(|(_, text)| text.trim() != "0"))
});

/// Whether `channels_last` is kept from now on, where that is said; whether it was.
pub fn channels_last(keep: Option<bool>) -> bool {
    match keep {
        Some(keep) => KEEPS_CHANNELS_LAST.swap(keep, Ordering::Relaxed),
        None => KEEPS_CHANNELS_LAST.load(Ordering::Relaxed),
    }
}

/// The format that a new tensor gets where this one is asked for.
pub fn given_format(asked: Option<MemoryFormat>) -> Option<MemoryFormat> {
    match asked {
        Some(MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d) if !channels_last(None) => {
            Some(MemoryFormat::Contiguous)
        }
        _ => asked,
    }
}

/// True where several elements are one place in memory, as in expanded tensors.
pub fn overlaps_itself(tensor: &Tensor) -> bool {
    !tensor.is_contiguous() && strides::overlap(&tensor.sizes(), &tensor.strides())
}

/// Refuses to write into a tensor that overlaps itself.
///
/// # Errors
/// `Invalid`, as PyTorch words it.
pub fn no_internal_overlap(out: &Tensor) -> Result<(), Error> {
    if overlaps_itself(out) {
        return Err(Error::Invalid(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. \
             Please clone() the tensor before performing the operation."
                .into(),
        ));
    }
    Ok(())
}

/// Refuses to write into `out` where that shares some of the input's memory, but not element by element. As in
/// PyTorch only tensors without gaps are looked at.
///
/// # Errors
/// `Invalid`, as PyTorch words it.
pub fn no_partial_overlap(out: &Tensor, input: &Tensor) -> Result<(), Error> {
    let end = |tensor: &Tensor| Ok::<_, Error>(tensor.address() + tensor.span_bytes()?);
    let (to, from) = (out.address(), input.address());
    if to == 0 || out.is_same(input) || to >= end(input)? || from >= end(out)? {
        return Ok(());
    }
    if !out.is_dense() || !input.is_dense() {
        return Ok(());
    }
    let full = to == from && end(out)? == end(input)? && out.strides() == input.strides();
    if full { Ok(()) } else { Err(shared()) }
}

/// What PyTorch says where a result is part of an operand.
pub fn shared() -> Error {
    Error::Invalid(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory \
         location. Please clone() the tensor before performing the operation."
            .into(),
    )
}

/// True where PyTorch takes a tensor of four or five dimensions for one whose channels come last: by the order of its
/// strides, gaps allowed.
pub fn suggests_channels_last(tensor: &Tensor) -> bool {
    strides::suggest_channels_last(&tensor.sizes(), &tensor.strides())
}

/// True where results of a convolution of these come with the channels last: where PyTorch takes one of them for that, and that
/// is kept. A signal counts as an image of height 1, which a permuted input is copied into.
pub fn convolves_channels_last(input: &Tensor, weight: &Tensor) -> bool {
    let image = |tensor: &Tensor| strides::suggest_channels_last_image(&tensor.sizes(), &tensor.strides());
    let copied = input.dim() == 3 && !input.is_contiguous();
    ((!copied && image(input)) || image(weight)) && channels_last(None)
}

/// True where elements follow each other in memory, channels last or as usual.
pub fn in_some_format(tensor: &Tensor) -> bool {
    let last =
        || (4..=5).contains(&tensor.dim()) && strides::is_channels_last(&tensor.sizes(), &tensor.strides());
    tensor.is_contiguous() || last()
}

/// True where a normalisation keeps the channels last: in memory without gaps, whatever the strides of single elements
/// are, else as PyTorch takes the order of the strides. `plain`: so do the other operands.
pub fn normalises_channels_last(input: &Tensor, plain: bool) -> bool {
    match plain && in_some_format(input) {
        true => !input.is_contiguous(),
        false => suggests_channels_last(input),
    }
}

/// A tensor in another layout: itself where it has that layout.
///
/// # Errors
/// `Device`, `Gone` or `OutOfMemory` from the queue.
pub fn laid_out(tensor: Tensor, last: bool) -> Result<Tensor, Error> {
    let (sizes, present) = (tensor.sizes(), tensor.strides());
    let wanted = strides::in_format(last, &sizes);
    if present == wanted {
        return Ok(tensor);
    }
    if strides::are_alike(&sizes, &present, &wanted) {
        // Elements lie right; PyTorch reads the format off strides that mean nothing.
        return tensor.alias(&sizes, &wanted, tensor.offset());
    }
    let made = Tensor::empty_strided(&sizes, &wanted, tensor.dtype()?)?;
    crate::tensors::copies::copy(&tensor, &made)?;
    Ok(made)
}
