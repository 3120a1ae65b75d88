//! Pooling against loops over windows in f64, with what the workspace holds.

mod common;

use common::{Card, FLOATS, Id, NONE, ONE, Tensor, Type, ZERO, at, card, index};
use std::ffi::{c_int, c_void};

unsafe extern "C" {
    fn miopenCreatePoolingDescriptor(descriptor: *mut Id) -> c_int;
    fn miopenDestroyPoolingDescriptor(descriptor: Id) -> c_int;
    fn miopenSetPoolingIndexType(descriptor: Id, index_type: c_int) -> c_int;
    fn miopenSetPoolingWorkSpaceIndexMode(descriptor: Id, mode: c_int) -> c_int;
    fn miopenSetNdPoolingDescriptor(
        descriptor: Id,
        mode: c_int,
        rank: c_int,
        window: *const c_int,
        padding: *const c_int,
        stride: *const c_int,
    ) -> c_int;
    fn miopenGetPoolingNdForwardOutputDim(descriptor: Id, x: Id, rank: c_int, sizes: *mut c_int) -> c_int;
    fn miopenPoolingGetWorkSpaceSizeV2(descriptor: Id, y: Id, bytes: *mut usize) -> c_int;
    fn miopenPoolingForward(
        handle: Id,
        descriptor: Id,
        alpha: *const f32,
        x_desc: Id,
        x: *const c_void,
        beta: *const f32,
        y_desc: Id,
        y: *mut c_void,
        backward: bool,
        workspace: *mut c_void,
        bytes: usize,
    ) -> c_int;
    fn miopenPoolingBackward(
        handle: Id,
        descriptor: Id,
        alpha: *const f32,
        y_desc: Id,
        y: *const c_void,
        dy_desc: Id,
        dy: *const c_void,
        x_desc: Id,
        x: *const c_void,
        beta: *const f32,
        dx_desc: Id,
        dx: *mut c_void,
        workspace: *mut c_void,
    ) -> c_int;
}

struct Windows {
    mode: c_int,
    size: [usize; 2],
    pad: [usize; 2],
    stride: [usize; 2],
}

impl Windows {
    fn random(card: &mut Card, mode: c_int) -> Self {
        let size = [card.size(1, 4), card.size(1, 4)];
        let pad = size.map(|size| card.size(0, size - 1));
        Self { mode, size, pad, stride: [card.size(1, 3), card.size(1, 3)] }
    }

    /// Pixels of a window that are in the image: row, column, and the place within the window.
    fn pixels(&self, [h, w]: [usize; 2], [oh, ow]: [usize; 2]) -> Vec<(usize, usize, usize)> {
        let mut found = Vec::new();
        for r in 0..self.size[0] {
            for s in 0..self.size[1] {
                let row = (oh * self.stride[0] + r) as isize - self.pad[0] as isize;
                let column = (ow * self.stride[1] + s) as isize - self.pad[1] as isize;
                if (0..h as isize).contains(&row) && (0..w as isize).contains(&column) {
                    found.push((row as usize, column as usize, r * self.size[1] + s));
                }
            }
        }
        found
    }
}

/// y, dx for dy = dys, and the places of maxima (within windows, within planes).
struct Expected {
    y: Vec<f64>,
    dx: Vec<f64>,
    places: [Vec<f64>; 2],
}

fn oracle(windows: &Windows, xs: &[f64], sizes: [usize; 4], outs: [usize; 4], dys: &[f64]) -> Expected {
    let mut e = Expected { y: Vec::new(), dx: vec![0.0; xs.len()], places: [Vec::new(), Vec::new()] };
    let [n, c, h, w] = sizes;
    for image in 0..n * c {
        for oh in 0..outs[2] {
            for ow in 0..outs[3] {
                let (b, ch) = (image / c, image % c);
                let pixels = windows.pixels([h, w], [oh, ow]);
                let x = |p: &(usize, usize, usize)| index(sizes, [b, ch, p.0, p.1]);
                let dy = dys[e.y.len()];
                if windows.mode == 0 {
                    let mut best = pixels[0];
                    for p in &pixels {
                        if xs[x(p)] > xs[x(&best)] {
                            best = *p;
                        }
                    }
                    e.y.push(xs[x(&best)]);
                    e.dx[x(&best)] += dy;
                    e.places[0].push(best.2 as f64);
                    e.places[1].push((best.0 * w + best.1) as f64);
                } else {
                    let all = windows.size[0] * windows.size[1];
                    let count = if windows.mode == 1 { pixels.len() } else { all } as f64;
                    e.y.push(pixels.iter().map(|p| xs[x(p)]).sum::<f64>() / count);
                    pixels.iter().for_each(|p| e.dx[x(p)] += dy / count);
                }
            }
        }
    }
    e
}

fn set(descriptor: Id, windows: &Windows, deep: bool) {
    let of = |values: [usize; 2], front: c_int| {
        let mut all = if deep { vec![front] } else { Vec::new() };
        all.extend(values.map(|value| value as c_int));
        all
    };
    let (window, pad, stride) = (of(windows.size, 1), of(windows.pad, 0), of(windows.stride, 1));
    let rank = window.len() as c_int;
    // SAFETY: arrays as long as the rank.
    let done = unsafe {
        let (window, pad, stride) = (window.as_ptr(), pad.as_ptr(), stride.as_ptr());
        miopenSetNdPoolingDescriptor(descriptor, windows.mode, rank, window, pad, stride)
    };
    assert_eq!(done, 0);
}

#[test]
fn windows_places_and_gradients() {
    let Some(mut card) = card() else { return };
    let mut descriptor = 0;
    // SAFETY: the call writes one number.
    assert_eq!(unsafe { miopenCreatePoolingDescriptor(&mut descriptor) }, 0);
    let stored = [Type::U8, Type::U16, Type::I32, Type::I64];
    for turn in 0..24 {
        let (dtype, mode) = (FLOATS[turn % 3], (turn / 3 % 3) as c_int);
        let windows = Windows::random(&mut card, mode);
        let (index_type, index_mode) = (card.size(0, 3), card.size(0, 1));
        // Deep ones are flat ones in a third dimension that windows do not reach across.
        let deep = turn % 5 == 4;
        let sizes = [card.size(1, 2), card.size(1, 3), card.size(5, 9), card.size(5, 9)];
        let depth = if deep { card.size(1, 2) } else { 1 };
        let order = card.layout();
        let what = format!(
            "mode {mode} {:?} pad {:?} stride {:?} on {sizes:?} x {depth}, {dtype:?}, places {index_type} {index_mode}, seed {}",
            windows.size, windows.pad, windows.stride, card.seed
        );
        let with_depth = |sizes: [usize; 4]| match deep {
            true => vec![sizes[0], sizes[1], depth, sizes[2], sizes[3]],
            false => sizes.to_vec(),
        };
        let order: Vec<usize> = if deep { (0..5).collect() } else { order.to_vec() };
        let (x, xs) = card.random(dtype, &with_depth(sizes), &order, [-2.0, 2.0]);
        set(descriptor, &windows, deep);
        let mut dims = [0; 5];
        // SAFETY: as many numbers as are asked for.
        unsafe {
            let rank = x.sizes.len() as c_int;
            assert_eq!(miopenGetPoolingNdForwardOutputDim(descriptor, x.desc, rank, dims.as_mut_ptr()), 0);
            assert_eq!(miopenSetPoolingIndexType(descriptor, index_type as c_int), 0);
            assert_eq!(miopenSetPoolingWorkSpaceIndexMode(descriptor, index_mode as c_int), 0);
        }
        let along =
            |at: usize| (sizes[at + 2] + 2 * windows.pad[at] - windows.size[at]) / windows.stride[at] + 1;
        let outs = [sizes[0], sizes[1], along(0), along(1)];
        let out_sizes = with_depth(outs);
        assert_eq!(
            dims[..out_sizes.len()].iter().map(|&d| d as usize).collect::<Vec<_>>(),
            out_sizes,
            "{what}"
        );
        let y = card.poisoned(dtype, &out_sizes, &order);
        let dx = card.poisoned(dtype, &x.sizes, &order);
        let (dy, dys) = card.random(dtype, &out_sizes, &order, [-1.0, 1.0]);
        let workspace = card.plain(stored[index_type], &out_sizes);
        let mut bytes = usize::MAX;
        let (one, zero) = (at(&ONE), at(&ZERO));
        // SAFETY: living descriptors and tensors that fit them.
        unsafe {
            assert_eq!(miopenPoolingGetWorkSpaceSizeV2(descriptor, y.desc, &mut bytes), 0);
            let elements: usize = out_sizes.iter().product();
            assert_eq!(bytes, if mode == 0 { elements * stored[index_type].size() } else { 0 }, "{what}");
            let (h, ws) = (card.handle, workspace.data);
            let d = descriptor;
            let done = miopenPoolingForward(h, d, one, x.desc, x.data, zero, y.desc, y.data, true, ws, bytes);
            assert_eq!(done, 0, "{what}");
            let done = miopenPoolingBackward(
                h, d, one, y.desc, y.data, dy.desc, dy.data, x.desc, x.data, zero, dx.desc, dx.data, ws,
            );
            assert_eq!(done, 0, "{what}");
        }
        // The oracle takes depth for channels.
        let flat = |s: [usize; 4]| [s[0], s[1] * depth, s[2], s[3]];
        let e = oracle(&windows, &xs, flat(sizes), flat(outs), &dys);
        y.expect(&e.y, &what);
        dx.expect(&e.dx, &format!("gradient of {what}"));
        if mode == 0 {
            let (plane, image) = (sizes[2] * sizes[3], outs[2] * outs[3]);
            let shift =
                |at: usize| ((at / image % depth) * plane) as f64 * f64::from(u8::from(index_mode == 1));
            let places: Vec<_> =
                e.places[index_mode].iter().enumerate().map(|(at, p)| p + shift(at)).collect();
            workspace.near(&places, 0.0, &format!("places of {what}"));
        }
    }
    // SAFETY: made above.
    assert_eq!(unsafe { miopenDestroyPoolingDescriptor(descriptor) }, 0);
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(mut card) = card() else { return };
    let mut descriptor = 0;
    // SAFETY: the call writes one number.
    assert_eq!(unsafe { miopenCreatePoolingDescriptor(&mut descriptor) }, 0);
    let (x, _) = card.random(Type::F32, &[1, 1, 32, 32], &[0, 1, 2, 3], [0.0, 1.0]);
    let y = card.plain(Type::F32, &[1, 1, 16, 16]);
    let workspace = card.plain(Type::I32, &[1, 1, 16, 16]);
    let run = |y: &Tensor, workspace: *mut c_void, bytes: usize| {
        let (one, zero, h) = (at(&ONE), at(&ZERO), card.handle);
        // SAFETY: living tensors; what does not fit is what the call must find out.
        unsafe {
            miopenPoolingForward(
                h, descriptor, one, x.desc, x.data, zero, y.desc, y.data, true, workspace, bytes,
            )
        }
    };
    assert_eq!(run(&y, workspace.data, 1024), 3, "never set");
    set(descriptor, &Windows { mode: 0, size: [2, 2], pad: [0, 0], stride: [2, 2] }, false);
    assert_eq!(run(&y, NONE, 0), 3, "no workspace");
    assert_eq!(run(&y, workspace.data, 255), 3, "too small a workspace");
    assert_eq!(run(&y, workspace.data, 256), 0);
    // SAFETY: a living descriptor.
    assert_eq!(unsafe { miopenSetPoolingWorkSpaceIndexMode(descriptor, 1) }, 0);
    assert_eq!(run(&y, workspace.data, 256), 3, "1024 places in 8 bits");
    set(descriptor, &Windows { mode: 0, size: [2, 2], pad: [2, 2], stride: [2, 2] }, false);
    assert_eq!(run(&y, workspace.data, 1024), 6, "empty windows");
    let wrong = card.plain(Type::F32, &[1, 2, 16, 16]);
    assert_eq!(run(&wrong, workspace.data, 1024), 3, "channels");
    // SAFETY: made above.
    assert_eq!(unsafe { miopenDestroyPoolingDescriptor(descriptor) }, 0);
}
