//! The calls for pooling.

use crate::abi::entry::{Failure, call};
use crate::abi::ffi::{Data, Id, In, Out, Status};
use crate::abi::handle::Handle;
use crate::abi::slot;
use crate::layers::pooling::Pooling;
use crate::layers::steps::{Blend, Steps, one_float_type, one_size};
use crate::layers::tensor::tensor_of;
use std::ffi::c_int;

/// Creates a descriptor: indices of 8 bits within windows, windows not set.
#[unsafe(no_mangle)]
pub extern "C" fn miopenCreatePoolingDescriptor(descriptor: Out<Id>) -> Status {
    call("miopenCreatePoolingDescriptor", || slot::create(&descriptor, Some(Pooling::default())))
}

/// Destroys it.
#[unsafe(no_mangle)]
pub extern "C" fn miopenDestroyPoolingDescriptor(descriptor: Id) -> Status {
    call("miopenDestroyPoolingDescriptor", || slot::destroy::<Pooling>(descriptor))
}

/// Sets the type of places in the workspace.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetPoolingIndexType(descriptor: Id, index_type: c_int) -> Status {
    call("miopenSetPoolingIndexType", || {
        slot::change(descriptor, |pooling: &mut Pooling| match index_type {
            0..=3 => {
                pooling.index_type = index_type;
                Ok(())
            }
            _ => Err(Failure::bad(format!("{index_type} is no index type"))),
        })
    })
}

/// The type of places in the workspace.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetPoolingIndexType(descriptor: Id, index_type: Out<c_int>) -> Status {
    call("miopenGetPoolingIndexType", || {
        index_type.set("index_type", slot::get::<Pooling>(descriptor)?.index_type)
    })
}

/// Sets whether places are counted within windows (0) or images (1).
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetPoolingWorkSpaceIndexMode(descriptor: Id, mode: c_int) -> Status {
    call("miopenSetPoolingWorkSpaceIndexMode", || {
        slot::change(descriptor, |pooling: &mut Pooling| match mode {
            0 | 1 => {
                pooling.index_mode = mode;
                Ok(())
            }
            _ => Err(Failure::bad(format!("{mode} is no index mode"))),
        })
    })
}

/// Whether places are counted within windows (0) or images (1).
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetPoolingWorkSpaceIndexMode(descriptor: Id, mode: Out<c_int>) -> Status {
    call("miopenGetPoolingWorkSpaceIndexMode", || {
        mode.set("workspace_index", slot::get::<Pooling>(descriptor)?.index_mode)
    })
}

/// The padding is what the descriptor says: `miopenPaddingDefault`.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetPoolingPaddingMode(descriptor: Id, mode: Out<c_int>) -> Status {
    call("miopenGetPoolingPaddingMode", || {
        slot::get::<Pooling>(descriptor)?;
        mode.set("paddingMode", 0)
    })
}

/// Sets windows of two dimensions.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenSet2dPoolingDescriptor(
    descriptor: Id,
    mode: c_int,
    height: c_int,
    width: c_int,
    pad_h: c_int,
    pad_w: c_int,
    stride_h: c_int,
    stride_w: c_int,
) -> Status {
    call("miopenSet2dPoolingDescriptor", || {
        slot::change(descriptor, |pooling: &mut Pooling| {
            pooling.set(mode, &[height, width], &[pad_h, pad_w], &[stride_h, stride_w])
        })
    })
}

/// Windows of two dimensions; each may be null.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenGet2dPoolingDescriptor(
    descriptor: Id,
    mode: Out<c_int>,
    height: Out<c_int>,
    width: Out<c_int>,
    pad_h: Out<c_int>,
    pad_w: Out<c_int>,
    stride_h: Out<c_int>,
    stride_w: Out<c_int>,
) -> Status {
    call("miopenGet2dPoolingDescriptor", || {
        let found = slot::get::<Pooling>(descriptor)?;
        if found.window.len() != 2 {
            return Err(Failure::bad(format!("windows of {} dimensions", found.window.len())));
        }
        mode.set_if_wanted(found.mode as c_int);
        let values = [&found.window, &found.padding, &found.stride].into_iter().flatten();
        let outs = [height, width, pad_h, pad_w, stride_h, stride_w];
        outs.iter().zip(values).for_each(|(out, &value)| out.set_if_wanted(value as c_int));
        Ok(())
    })
}

/// Sets windows of two or three dimensions.
#[unsafe(no_mangle)]
pub extern "C" fn miopenSetNdPoolingDescriptor(
    descriptor: Id,
    mode: c_int,
    dimensions: c_int,
    window: In<c_int>,
    padding: In<c_int>,
    stride: In<c_int>,
) -> Status {
    call("miopenSetNdPoolingDescriptor", || {
        let rank = match dimensions {
            2 | 3 => dimensions as usize,
            _ => return Err(Failure::bad(format!("pooling in {dimensions} dimensions"))),
        };
        let window = window.get_all("windowDimA", rank)?;
        let (padding, stride) = (padding.get_all("padA", rank)?, stride.get_all("stridesA", rank)?);
        slot::change(descriptor, |pooling: &mut Pooling| pooling.set(mode, &window, &padding, &stride))
    })
}

/// Windows, as many dimensions as are requested at most; each may be null.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetNdPoolingDescriptor(
    descriptor: Id,
    requested: c_int,
    mode: Out<c_int>,
    dimensions: Out<c_int>,
    window: Out<c_int>,
    padding: Out<c_int>,
    stride: Out<c_int>,
) -> Status {
    call("miopenGetNdPoolingDescriptor", || {
        let found = slot::get::<Pooling>(descriptor)?;
        mode.set_if_wanted(found.mode as c_int);
        dimensions.set_if_wanted(found.window.len() as c_int);
        let count = usize::try_from(requested).unwrap_or(0).min(found.window.len());
        for (out, values) in [(window, &found.window), (padding, &found.padding), (stride, &found.stride)] {
            if !out.is_null() {
                let values: Vec<c_int> = values[..count].iter().map(|&value| value as c_int).collect();
                out.set_all("dims", &values)?;
            }
        }
        Ok(())
    })
}

/// Sizes of the result of windows of two dimensions.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetPoolingForwardOutputDim(
    descriptor: Id,
    x_desc: Id,
    n: Out<c_int>,
    c: Out<c_int>,
    h: Out<c_int>,
    w: Out<c_int>,
) -> Status {
    call("miopenGetPoolingForwardOutputDim", || {
        let sizes = slot::get::<Pooling>(descriptor)?.outputs(tensor_of(x_desc, "tensorDesc")?.sizes())?;
        if sizes.len() != 4 {
            return Err(Failure::bad(format!(
                "{} dimensions: call miopenGetPoolingNdForwardOutputDim",
                sizes.len()
            )));
        }
        [n, c, h, w].iter().zip(sizes).for_each(|(out, size)| out.set_if_wanted(size as c_int));
        Ok(())
    })
}

/// Sizes of the result, as many as are asked for.
#[unsafe(no_mangle)]
pub extern "C" fn miopenGetPoolingNdForwardOutputDim(
    descriptor: Id,
    x_desc: Id,
    dimensions: c_int,
    sizes: Out<c_int>,
) -> Status {
    call("miopenGetPoolingNdForwardOutputDim", || {
        let found = slot::get::<Pooling>(descriptor)?.outputs(tensor_of(x_desc, "tensorDesc")?.sizes())?;
        let found: Vec<c_int> = found.iter().map(|&size| size as c_int).collect();
        let count = usize::try_from(dimensions).unwrap_or(0).min(found.len());
        sizes.set_all("tensorDimArr", &found[..count])
    })
}

/// Bytes for places of 8 bits.
#[unsafe(no_mangle)]
pub extern "C" fn miopenPoolingGetWorkSpaceSize(y_desc: Id, bytes: Out<usize>) -> Status {
    call("miopenPoolingGetWorkSpaceSize", || {
        bytes.set("workSpaceSize", tensor_of(y_desc, "yDesc")?.elements() as usize)
    })
}

/// Bytes for places of the descriptor's type; 0 for averages.
#[unsafe(no_mangle)]
pub extern "C" fn miopenPoolingGetWorkSpaceSizeV2(descriptor: Id, y_desc: Id, bytes: Out<usize>) -> Status {
    call("miopenPoolingGetWorkSpaceSizeV2", || {
        let elements = tensor_of(y_desc, "yDesc")?.elements();
        bytes.set("workSpaceSize", slot::get::<Pooling>(descriptor)?.workspace(elements) as usize)
    })
}

/// Pools; alpha is 1 and beta 0. With `do_backward`, the workspace gets the places of maxima.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenPoolingForward(
    handle: Id,
    descriptor: Id,
    alpha: In<f32>,
    x_desc: Id,
    x: Data,
    beta: In<f32>,
    y_desc: Id,
    y: Data,
    do_backward: u8,
    workspace: Data,
    bytes: usize,
) -> Status {
    call("miopenPoolingForward", || {
        let handle = Handle::of(handle)?;
        let pooling = slot::get::<Pooling>(descriptor)?;
        Blend::plain(&alpha, &beta)?;
        let x = tensor_of(x_desc, "xDesc")?.view("x", x)?;
        let y = tensor_of(y_desc, "yDesc")?.view("y", y)?;
        one_float_type(&[("x", &x), ("y", &y)])?;
        pooling.check(&x, &y)?;
        let places = if do_backward == 0 { 0 } else { workspace as u64 };
        if do_backward != 0 {
            pooling.check_places(&x, &y, places, Some(bytes as u64))?;
        }
        handle.run(|engine| Ok(pooling.forward(&mut Steps::new(&mut engine.queue), &x, &y, places)?))
    })
}

/// The gradient; alpha is 1 and beta 0. x and y are not read: the workspace tells where maxima were.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the ABI's")]
pub extern "C" fn miopenPoolingBackward(
    handle: Id,
    descriptor: Id,
    alpha: In<f32>,
    _y_desc: Id,
    _y: Data,
    dy_desc: Id,
    dy: Data,
    x_desc: Id,
    _x: Data,
    beta: In<f32>,
    dx_desc: Id,
    dx: Data,
    workspace: Data,
) -> Status {
    call("miopenPoolingBackward", || {
        let handle = Handle::of(handle)?;
        let pooling = slot::get::<Pooling>(descriptor)?;
        Blend::plain(&alpha, &beta)?;
        let dy = tensor_of(dy_desc, "dyDesc")?.view("dy", dy)?;
        let dx_tensor = tensor_of(dx_desc, "dxDesc")?;
        let dx = dx_tensor.view("dx", dx)?;
        one_float_type(&[("dy", &dy), ("dx", &dx)])?;
        one_size(&[("dx", &dx), ("x", &tensor_of(x_desc, "xDesc")?.view("dx", dx.address as Data)?)])?;
        pooling.check(&dx, &dy)?;
        pooling.check_places(&dx, &dy, workspace as u64, None)?;
        handle.run(|engine| {
            Ok(pooling.backward(&mut Steps::new(&mut engine.queue), &dx, &dy, workspace as u64)?)
        })
    })
}
