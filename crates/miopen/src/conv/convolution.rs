//! Convolution descriptors.

use crate::abi::entry::{Failure, Outcome, call};
use crate::abi::ffi::{Id, In, Out, Status};
use crate::abi::objects::{self, Object};
use crate::layers::tensor::{Tensor, tensor_of};
use crate::vendor::next::next;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

/// Most spatial dimensions.
pub const MAX_SPATIAL: usize = 3;

/// What a convolution descriptor says. Of the arrays the first `spatial` count: depth, height, width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolution {
    /// Spatial dimensions.
    pub spatial: usize,
    /// Filters are C x K/g x R x S, and the image grows.
    pub transposed: bool,
    /// Zero padding on both sides.
    pub pads: [i64; MAX_SPATIAL],
    /// Strides.
    pub strides: [i64; MAX_SPATIAL],
    /// Dilations; 1 is a dense filter.
    pub dilations: [i64; MAX_SPATIAL],
    /// Extra rows of a transposed convolution's output.
    pub output_pads: [i64; MAX_SPATIAL],
    /// Groups.
    pub groups: i64,
    /// `miopenConvolutionMode_t`, as it was set.
    mode: c_int,
    /// By `miopenConvolutionAttrib_t`. Kept to be read back: results here are deterministic and accumulated in f32
    /// whatever they say.
    attributes: [c_int; 3],
    /// `miopenConvolutionFindMode_t`. Kept to be read back: there is no search.
    find_mode: c_int,
}

impl Default for Convolution {
    fn default() -> Self {
        Self {
            spatial: 2,
            transposed: false,
            pads: [0; MAX_SPATIAL],
            strides: [1; MAX_SPATIAL],
            dilations: [1; MAX_SPATIAL],
            output_pads: [0; MAX_SPATIAL],
            groups: 1,
            mode: 0,
            attributes: [-1, 0, -1],
            find_mode: 5,
        }
    }
}

impl Convolution {
    fn new(mode: c_int, pads: &[c_int], strides: &[c_int], dilations: &[c_int]) -> Outcome<Self> {
        let text = || format!("pads {pads:?}, strides {strides:?}, dilations {dilations:?}");
        if pads.iter().any(|&pad| pad < 0) || strides.iter().chain(dilations).any(|&step| step < 1) {
            return Err(Failure::bad(format!("{}: pads are at least 0, the others 1", text())));
        }
        // 2 and 3 are old words for grouped and depthwise ones, which the group count tells today.
        if !(0..=3).contains(&mode) {
            return Err(Failure::bad(format!("{mode} is no convolution mode")));
        }
        let mut made = Self { spatial: pads.len(), transposed: mode == 1, mode, ..Self::default() };
        let fields = [(&mut made.pads, pads), (&mut made.strides, strides), (&mut made.dilations, dilations)];
        for (field, given) in fields {
            field.iter_mut().zip(given).for_each(|(at, &value)| *at = value.into());
        }
        Ok(made)
    }

    /// The sizes of y for those of x and w, N and K first.
    ///
    /// # Errors
    /// Bad parameter: channels, groups, filter and image do not go together.
    pub fn output(&self, x: &Tensor, w: &Tensor) -> Outcome<Vec<i64>> {
        let (x, w) = (x.sizes(), w.sizes());
        if x.len() != self.spatial + 2 || w.len() != x.len() {
            let text =
                format!("x has {} dimensions, w {}, the convolution {}", x.len(), w.len(), self.spatial);
            return Err(Failure::bad(text));
        }
        let size = |value: u64| value as i64;
        let (c, g) = (size(x[1]), self.groups);
        let [first, second] = [size(w[0]), size(w[1])];
        let k = if self.transposed { second.saturating_mul(g) } else { first };
        let wanted = if self.transposed { first } else { second.saturating_mul(g) };
        if c != wanted || c % g != 0 || k % g != 0 {
            return Err(Failure::bad(format!("x has {c} channels, w is {w:?}, in {g} groups")));
        }
        let mut sizes = vec![size(x[0]), k];
        for at in 0..self.spatial {
            let (input, span) = (size(x[at + 2]), (size(w[at + 2]) - 1).saturating_mul(self.dilations[at]));
            let (stride, pads) = (self.strides[at], 2 * self.pads[at]);
            let output = match self.transposed {
                true => (input - 1)
                    .saturating_mul(stride)
                    .saturating_add(span)
                    .saturating_add(1 - pads + self.output_pads[at]),
                false if span >= input.saturating_add(pads) => 0,
                false => (input + pads - span - 1) / stride + 1,
            };
            if output < 1 {
                let text = format!(
                    "nothing is left of an image of {input} (filter spans {}, pads {pads})",
                    span.saturating_add(1)
                );
                return Err(Failure::bad(text));
            }
            sizes.push(output);
        }
        Ok(sizes)
    }
}

/// A convolution descriptor.
#[derive(Debug, Default)]
pub struct Descriptor(Mutex<Convolution>);

impl Object for Descriptor {
    const KIND: &'static str = "convolution descriptor";
}

/// What the descriptor says now.
///
/// # Errors
/// Bad parameter where `id` is no convolution descriptor, or a destroyed one.
pub fn convolution(id: Id) -> Outcome<Convolution> {
    change(id, |found| Ok(*found))
}

fn change<T>(id: Id, work: impl FnOnce(&mut Convolution) -> Outcome<T>) -> Outcome<T> {
    let descriptor = objects::get::<Descriptor>(id, "convDesc")?;
    work(&mut descriptor.0.lock().unwrap_or_else(PoisonError::into_inner))
}

fn set(id: Id, convolution: Convolution) -> Outcome {
    change(id, |found| {
        *found = convolution;
        Ok(())
    })
}

/// Creates a descriptor: two dimensions, strides and dilations 1, no padding.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreateConvolutionDescriptor(convolution: Out<Id>) -> Status {
    call("miopenCreateConvolutionDescriptor", || {
        convolution.check("convDesc")?;
        let id = match next() {
            None => objects::insert(Descriptor::default()),
            Some(next) => objects::insert_as(next.create_convolution()?, Descriptor::default()),
        };
        convolution.set("convDesc", id)
    })
}

/// Destroys it.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroyConvolutionDescriptor(convolution: Id) -> Status {
    call("miopenDestroyConvolutionDescriptor", || {
        objects::remove::<Descriptor>(convolution, "convDesc").map(drop)?;
        next().map_or(Ok(()), |next| next.destroy_convolution(convolution))
    })
}

/// Sets one of two dimensions.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenInitConvolutionDescriptor(
    convolution: Id,
    mode: c_int,
    pad_h: c_int,
    pad_w: c_int,
    stride_h: c_int,
    stride_w: c_int,
    dilation_h: c_int,
    dilation_w: c_int,
) -> Status {
    call("miopenInitConvolutionDescriptor", || {
        let (pads, strides) = ([pad_h, pad_w], [stride_h, stride_w]);
        set(convolution, Convolution::new(mode, &pads, &strides, &[dilation_h, dilation_w])?)
    })
}

fn spatial(number: c_int) -> Outcome<usize> {
    usize::try_from(number)
        .ok()
        .filter(|count| (1..=MAX_SPATIAL).contains(count))
        .ok_or_else(|| Failure::bad(format!("{number} spatial dimensions: 1 to {MAX_SPATIAL} are possible")))
}

/// Sets one of 1 to 3 dimensions.
#[unsafe(no_mangle)]
pub extern "C" fn miopenInitConvolutionNdDescriptor(
    convolution: Id,
    dimensions: c_int,
    pads: In<c_int>,
    strides: In<c_int>,
    dilations: In<c_int>,
    mode: c_int,
) -> Status {
    call("miopenInitConvolutionNdDescriptor", || {
        let count = spatial(dimensions)?;
        let (pads, strides) = (pads.get_all("padA", count)?, strides.get_all("strideA", count)?);
        set(convolution, Convolution::new(mode, &pads, &strides, &dilations.get_all("dilationA", count)?)?)
    })
}

/// How many spatial dimensions.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetConvolutionSpatialDim(convolution: Id, dimensions: Out<c_int>) -> Status {
    call("miopenGetConvolutionSpatialDim", || {
        dimensions.set("spatialDim", self::convolution(convolution)?.spatial as c_int)
    })
}

/// Reads one of two dimensions; each output may be null.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenGetConvolutionDescriptor(
    convolution: Id,
    mode: Out<c_int>,
    pad_h: Out<c_int>,
    pad_w: Out<c_int>,
    stride_h: Out<c_int>,
    stride_w: Out<c_int>,
    dilation_h: Out<c_int>,
    dilation_w: Out<c_int>,
) -> Status {
    call("miopenGetConvolutionDescriptor", || {
        let found = self::convolution(convolution)?;
        if found.spatial != 2 {
            return Err(Failure::bad(format!("convDesc has {} spatial dimensions, not 2", found.spatial)));
        }
        mode.set_if_wanted(found.mode);
        for (outs, values) in [
            ([pad_h, pad_w], found.pads),
            ([stride_h, stride_w], found.strides),
            ([dilation_h, dilation_w], found.dilations),
        ] {
            outs.iter().zip(values).for_each(|(out, value)| out.set_if_wanted(value as c_int));
        }
        Ok(())
    })
}

/// Reads one of `requested` dimensions at most; each output may be null.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetConvolutionNdDescriptor(
    convolution: Id,
    requested: c_int,
    dimensions: Out<c_int>,
    pads: Out<c_int>,
    strides: Out<c_int>,
    dilations: Out<c_int>,
    mode: Out<c_int>,
) -> Status {
    call("miopenGetConvolutionNdDescriptor", || {
        let found = self::convolution(convolution)?;
        if usize::try_from(requested).is_ok_and(|requested| requested < found.spatial) || requested < 0 {
            let text = format!("{requested} dimensions are asked for, convDesc has {}", found.spatial);
            return Err(Failure::bad(text));
        }
        dimensions.set_if_wanted(found.spatial as c_int);
        mode.set_if_wanted(found.mode);
        for (out, values) in [(pads, found.pads), (strides, found.strides), (dilations, found.dilations)] {
            if !out.is_null() {
                out.set_all("", &values[..found.spatial].iter().map(|&v| v as c_int).collect::<Vec<_>>())?;
            }
        }
        Ok(())
    })
}

/// How many groups.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetConvolutionGroupCount(convolution: Id, groups: Out<c_int>) -> Status {
    call("miopenGetConvolutionGroupCount", || {
        groups.set("groupCount", self::convolution(convolution)?.groups as c_int)
    })
}

/// Sets the number of groups.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetConvolutionGroupCount(convolution: Id, groups: c_int) -> Status {
    call("miopenSetConvolutionGroupCount", || {
        change(convolution, |found| match groups {
            1.. => {
                found.groups = groups.into();
                Ok(())
            }
            _ => Err(Failure::bad(format!("{groups} groups"))),
        })
    })
}

fn set_output_pads(convolution: Id, pads: &[c_int]) -> Outcome {
    change(convolution, |found| {
        if pads.len() != found.spatial || pads.iter().any(|&pad| pad < 0) {
            let text = format!("output pads {pads:?} of a convolution of {} dimensions", found.spatial);
            return Err(Failure::bad(text));
        }
        found.output_pads.iter_mut().zip(pads).for_each(|(at, &pad)| *at = pad.into());
        Ok(())
    })
}

/// Sets the extra rows and columns of a transposed convolution's output.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetTransposeConvOutputPadding(
    convolution: Id,
    height: c_int,
    width: c_int,
) -> Status {
    call("miopenSetTransposeConvOutputPadding", || set_output_pads(convolution, &[height, width]))
}

/// The same in any dimension.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetTransposeConvNdOutputPadding(
    convolution: Id,
    dimensions: c_int,
    pads: In<c_int>,
) -> Status {
    call("miopenSetTransposeConvNdOutputPadding", || {
        set_output_pads(convolution, &pads.get_all("adjA", spatial(dimensions)?)?)
    })
}

fn output(convolution: Id, x: Id, w: Id) -> Outcome<Vec<c_int>> {
    let (x, w) = (tensor_of(x, "inputTensorDesc")?, tensor_of(w, "filterDesc")?);
    let sizes = self::convolution(convolution)?.output(&x, &w)?;
    let past = |_| Failure::bad(format!("an output of {sizes:?}: past 32 bits"));
    sizes.iter().map(|&size| c_int::try_from(size).map_err(past)).collect()
}

/// The output's sizes, of two dimensions.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetConvolutionForwardOutputDim(
    convolution: Id,
    x: Id,
    w: Id,
    n: Out<c_int>,
    c: Out<c_int>,
    height: Out<c_int>,
    width: Out<c_int>,
) -> Status {
    call("miopenGetConvolutionForwardOutputDim", || {
        let sizes = output(convolution, x, w)?;
        if sizes.len() != 4 {
            return Err(Failure::bad(format!("an output of {} dimensions, not 4", sizes.len())));
        }
        let outs = [(n, "n"), (c, "c"), (height, "h"), (width, "w")];
        outs.iter().zip(sizes).try_for_each(|((out, name), size)| out.set(name, size))
    })
}

/// The output's sizes, in any dimension.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetConvolutionNdForwardOutputDim(
    convolution: Id,
    x: Id,
    w: Id,
    dimensions: Out<c_int>,
    sizes: Out<c_int>,
) -> Status {
    call("miopenGetConvolutionNdForwardOutputDim", || {
        let found = output(convolution, x, w)?;
        dimensions.set_if_wanted(found.len() as c_int);
        sizes.set_all("outputTensorDimA", &found)
    })
}

fn attribute(number: c_int) -> Outcome<usize> {
    let known = usize::try_from(number).ok().filter(|&number| number < 3);
    known.ok_or_else(|| Failure::bad(format!("{number} is no convolution attribute")))
}

/// Sets an attribute. Results are deterministic whatever it says.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetConvolutionAttribute(convolution: Id, number: c_int, value: c_int) -> Status {
    call("miopenSetConvolutionAttribute", || {
        let at = attribute(number)?;
        change(convolution, |found| {
            found.attributes[at] = value;
            Ok(())
        })
    })
}

/// Reads an attribute.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetConvolutionAttribute(convolution: Id, number: c_int, value: Out<c_int>) -> Status {
    call("miopenGetConvolutionAttribute", || {
        value.set("value", self::convolution(convolution)?.attributes[attribute(number)?])
    })
}

/// Sets how Find searches: it does not, whatever this says.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetConvolutionFindMode(convolution: Id, mode: c_int) -> Status {
    call("miopenSetConvolutionFindMode", || {
        change(convolution, |found| {
            found.find_mode = mode;
            Ok(())
        })
    })
}

/// Reads it back.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetConvolutionFindMode(convolution: Id, mode: Out<c_int>) -> Status {
    call("miopenGetConvolutionFindMode", || mode.set("findMode", self::convolution(convolution)?.find_mode))
}

/// The same under the name that MIGraphX calls it by; MIOpen declares it in no header.
#[unsafe(no_mangle)]
pub extern "C" fn miopenHiddenSetConvolutionFindMode(convolution: Id, mode: c_int) -> Status {
    miopenSetConvolutionFindMode(convolution, mode)
}

/// Reads it back.
#[unsafe(no_mangle)]
pub extern "C" fn miopenHiddenGetConvolutionFindMode(convolution: Id, mode: Out<c_int>) -> Status {
    miopenGetConvolutionFindMode(convolution, mode)
}
