//! Lists of tensors in few launches: what lies in the same memory of the device is one launch (`kernels/optim.kern`).

use crate::call::{Bound, Call, fit, flag, range};
use crate::{ElementType, OpError, Queue, View, copy_bytes};
use std::collections::HashMap;
use wave32_device::run_number;
use wave32_params::optim;
use wave32_solve::Access;

const PER_GROUP: u64 = 256 * 4;
const ROLES: usize = 5;
/// The role of steps and numbers, behind those of tensors.
const STEPS: usize = ROLES;
/// Words before the entries: two numbers of gradient scaling.
const HEAD: usize = 2;

/// What a tensor of the first list is stepped by.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number<'a> {
    /// A number (F32) of the device.
    Of(&'a View),
    /// A number of the host.
    Is(f32),
}

/// Tensors that are stepped together, and what each is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'a> {
    /// Param, grad, m, v, w; those that are there are contiguous floats of one size.
    pub tensors: [Option<&'a View>; ROLES],
    pub number: Number<'a>,
    /// A number of the device that is written, in the place of w.
    pub found: Option<&'a View>,
}

/// What all have in common.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Common<'a> {
    pub mode: u32,
    pub flags: u32,
    /// A number (F32) that is 1 where nothing may change.
    pub found_inf: Option<&'a View>,
    /// A number (F32) by which gradients are divided first, in place.
    pub grad_scale: Option<&'a View>,
    /// lr, decay, beta1, beta2, eps, log1, log2, rest2.
    pub floats: [f64; 8],
    pub flops: u64,
}

/// A tensor, or a piece of one that is too long to be bound: where each role's lies and what it is.
#[derive(Debug, Clone, Copy)]
struct Piece {
    address: [Option<(u64, ElementType)>; ROLES + 1],
    /// The number's bits, where it is the host's.
    bits: u32,
    count: u64,
    /// The item's place in the list.
    item: usize,
}

/// Pieces that one launch steps: of each role a range of memory.
#[derive(Debug)]
struct Group {
    pieces: Vec<Piece>,
    hull: [Option<(u64, u64)>; ROLES + 1],
}

/// Whether one number (of this type) is what `view` holds.
///
/// # Errors
/// `no-such-layout` where it is not.
pub(crate) fn single(number: &View, dtype: ElementType) -> Result<(), OpError> {
    if number.elements() == 1 && number.dtype == dtype {
        return Ok(());
    }
    let detail = format!("{:?} of {:?} for one {dtype:?}", number.dtype, number.sizes());
    Err(OpError::refused("no-such-layout", detail))
}

impl Item<'_> {
    fn check(&self) -> Result<(), OpError> {
        let Some(param) = self.tensors[0] else {
            return Err(OpError::refused("no-such-layout", "no parameter"));
        };
        for tensor in self.tensors.into_iter().flatten() {
            let float = tensor.dtype.is_float() && tensor.dtype != ElementType::F64;
            if !tensor.is_contiguous() || tensor.sizes() != param.sizes() || !float {
                let detail = format!("{:?} of {:?}", tensor.dtype, tensor.sizes());
                return Err(OpError::refused("no-such-layout", detail));
            }
        }
        if let Number::Of(step) = self.number {
            single(step, ElementType::F32)?;
        }
        self.found.map_or(Ok(()), |found| single(found, ElementType::F32))
    }

    /// Adds its pieces: as many as the longest of its tensors needs to be bound.
    fn cut(&self, item: usize, queue: &dyn Queue, pieces: &mut Vec<Piece>) {
        let mut address = [None; ROLES + 1];
        for (to, tensor) in address.iter_mut().zip(self.tensors) {
            *to = tensor.map(|tensor| (tensor.address, tensor.dtype));
        }
        let bits = match self.number {
            Number::Of(step) => {
                address[STEPS] = Some((step.address, step.dtype));
                0
            }
            Number::Is(number) => number.to_bits(),
        };
        let all = self.tensors[0].map_or(0, View::elements);
        let mut parts = 1;
        let fits = |length: u64| {
            let mut tensors = self.tensors.into_iter().flatten();
            tensors.all(|tensor| {
                View::contiguous(tensor.address, tensor.dtype, &[length])
                    .is_ok_and(|part| part.fits(queue.caps()))
            })
        };
        while parts < all && !fits(all.div_ceil(parts)) {
            parts *= 2;
        }
        // Whole vectors: pieces start at the alignment of the tensor.
        let length = all.div_ceil(parts).next_multiple_of(64).max(1);
        for first in (0..all).step_by(length as usize) {
            let count = length.min(all - first);
            let moved = |(address, dtype): (u64, ElementType)| (address + first * dtype.size(), dtype);
            let mut address = address;
            address[..ROLES].iter_mut().flatten().for_each(|at| *at = moved(*at));
            if let Some(found) = self.found {
                address[ROLES - 1] = Some((found.address, found.dtype));
            }
            pieces.push(Piece { address, bits, count, item });
        }
    }
}

impl Piece {
    /// First byte and end of a role's tensor.
    fn range(&self, role: usize) -> Option<(u64, u64)> {
        let (address, dtype) = self.address[role]?;
        let count = if role == STEPS || (role == ROLES - 1 && self.is_found()) { 1 } else { self.count };
        Some((address, address + count * dtype.size()))
    }

    /// Whether a number is in the place of w: unscaling has no other states.
    fn is_found(&self) -> bool {
        self.address[4].is_some() && self.address[1].is_none()
    }

    fn code(&self, role: usize) -> u32 {
        self.address[role].map_or(0, |(_, dtype)| dtype.code())
    }
}

/// Whether no piece touches what another one writes: then all may run at the same time.
fn are_apart(pieces: &[Piece], writes: impl Fn(usize) -> bool) -> bool {
    let mut ranges = Vec::new();
    for piece in pieces {
        for role in (0..ROLES).filter(|&role| !(role == ROLES - 1 && piece.is_found())) {
            ranges.extend(piece.range(role).map(|(start, end)| (start, !writes(role), end, piece.item)));
        }
    }
    ranges.sort_unstable();
    // How far those before reach, and whose that is; none where it is several items'.
    let (mut written, mut read) = ((0, None), (0, None));
    for (start, reads, end, item) in ranges {
        let touches = |(reach, of): (u64, Option<usize>)| start < reach && of != Some(item);
        if touches(written) || (!reads && touches(read)) {
            return false;
        }
        let reach = if reads { &mut read } else { &mut written };
        let of = if start < reach.0 && reach.1 != Some(item) { None } else { Some(item) };
        *reach = (reach.0.max(end), of);
    }
    true
}

/// Pieces by the memory that their tensors lie in, as few as the device's longest binding allows.
fn grouped(queue: &dyn Queue, pieces: Vec<Piece>, together: bool) -> Vec<Group> {
    let most = queue.caps().max_range.saturating_sub(queue.caps().offset_alignment.max(16) + 4);
    let mut groups: Vec<Group> = Vec::new();
    let mut places: HashMap<[Option<(u64, ElementType)>; ROLES + 1], usize> = HashMap::new();
    for piece in pieces {
        // Memory that the device binds piece by piece only is each tensor's own.
        let home = |(address, dtype)| (queue.span(address).map_or(address, |(base, _)| base), dtype);
        let key = piece.address.map(|at| at.map(home));
        let mut hull = std::array::from_fn(|role| piece.range(role));
        let place = places.get(&key).copied().filter(|_| together).filter(|&place| {
            let joined = |role: usize| {
                let ((a, b), (c, d)) = (groups[place].hull[role]?, hull[role]?);
                Some((a.min(c), b.max(d)))
            };
            let wider: [_; ROLES + 1] = std::array::from_fn(joined);
            let fits = wider.iter().flatten().all(|(start, end)| end - start <= most);
            if fits {
                hull = wider;
            }
            fits
        });
        match place {
            Some(place) => {
                groups[place].pieces.push(piece);
                groups[place].hull = hull;
            }
            None => {
                places.insert(key, groups.len());
                groups.push(Group { pieces: vec![piece], hull });
            }
        }
    }
    groups
}

/// Steps all items: each as if alone and in order.
///
/// # Errors
/// `no-such-layout` unless an item's tensors are contiguous floats of one size, none of 64 bits, and numbers single F32s:
/// nothing is launched then. `range-too-large`, [`OpError::Device`] where the device fails.
pub(crate) fn step(queue: &mut dyn Queue, items: &[Item], common: &Common) -> Result<(), OpError> {
    for number in [common.found_inf, common.grad_scale].into_iter().flatten() {
        single(number, ElementType::F32)?;
    }
    let mut pieces = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        item.check()?;
        item.cut(at, queue, &mut pieces);
    }
    if pieces.is_empty() {
        return Ok(());
    }
    let writes = |role: usize| match role {
        0 => true,
        1 => common.grad_scale.is_some(),
        _ => common.mode <= optim::UNSCALE,
    };
    let together = are_apart(&pieces, writes);
    let groups = grouped(queue, pieces, together);
    let bound: Vec<[Bound; ROLES + 1]> =
        groups.iter().map(|group| group.bind(queue, together, writes)).collect::<Result<_, _>>()?;
    let mut table = vec![0u32; HEAD];
    for (group, bound) in groups.iter().zip(&bound) {
        group.write(bound, &mut table)?;
    }
    let bytes: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
    let address = queue.alloc(bytes.len() as u64)?;
    let done = run(queue, &groups, &bound, (address, &bytes), common);
    queue.retire(address);
    done
}

impl Group {
    /// Binds each role's range. Launches of one run touch parts of their own.
    fn bind(
        &self,
        queue: &dyn Queue,
        together: bool,
        writes: impl Fn(usize) -> bool,
    ) -> Result<[Bound; ROLES + 1], OpError> {
        let mut bound: [Option<Bound>; ROLES + 1] = [None; ROLES + 1];
        let mut any = None;
        for (role, (hull, bound)) in self.hull.iter().zip(&mut bound).enumerate() {
            let Some((start, end)) = *hull else { continue };
            let size = self.pieces[0].address[role].map_or(4, |(_, dtype)| dtype.size());
            let access = match (together, writes(role) && role != STEPS) {
                (true, _) => Access::Part(0),
                (_, true) => Access::Write,
                _ => Access::Read,
            };
            let made = range(queue, start, (end - start).div_ceil(size), size, access)?;
            *bound = Some(made);
            any = any.or(Some(made.unused()));
        }
        // What is absent is not read.
        let unused = any.ok_or_else(|| OpError::refused("no-such-layout", "no tensor"))?;
        Ok(bound.map(|bound| bound.unwrap_or(unused)))
    }

    /// Adds its entries to the table.
    fn write(&self, bound: &[Bound; ROLES + 1], table: &mut Vec<u32>) -> Result<(), OpError> {
        let mut first = 0;
        for piece in &self.pieces {
            let at = |role: usize| match (piece.address[role], self.hull[role]) {
                (Some((address, dtype)), Some((start, _)))
                    if (address - start).is_multiple_of(dtype.size()) =>
                {
                    fit(bound[role].at() + (address - start) / dtype.size())
                }
                (Some((address, _)), _) => {
                    Err(OpError::refused("misaligned", format!("address {address:#x}")))
                }
                _ => Ok(0),
            };
            let number = if piece.address[STEPS].is_some() { at(STEPS)? } else { piece.bits };
            table.extend([fit(first)?, fit(piece.count)?, at(0)?, at(1)?, at(2)?, at(3)?, at(4)?, number]);
            first += piece.count.div_ceil(PER_GROUP);
        }
        Ok(())
    }
}

fn run(
    queue: &mut dyn Queue,
    groups: &[Group],
    bound: &[[Bound; ROLES + 1]],
    (address, bytes): (u64, &[u8]),
    common: &Common,
) -> Result<(), OpError> {
    queue.upload(address, bytes)?;
    for (number, at) in [(common.found_inf, 0), (common.grad_scale, 4)] {
        if let Some(number) = number {
            copy_bytes(queue, number.address, address + at, 4)?;
        }
    }
    // The hulls of tensors may lie around the table, which none of the launches writes to.
    let number = run_number();
    let table = range(queue, address, bytes.len() as u64 / 4, 4, Access::Part(number))?;
    let flags = common.flags
        | flag(common.found_inf.is_some(), optim::FLAG_FOUND_INF)
        | flag(common.grad_scale.is_some(), optim::FLAG_GRAD_SCALE);
    let [lr, decay, beta1, beta2, eps, log1, log2, rest2] = common.floats.map(|value| value as f32);
    let mut entry = HEAD as u32;
    for (group, bound) in groups.iter().zip(bound) {
        let [param, grad, m, v, w, steps] = bound.map(|bound| bound.of_run(number));
        let first = &group.pieces[0];
        let tensors = group.pieces.len() as u32;
        let items: u64 = group.pieces.iter().map(|piece| piece.count.div_ceil(PER_GROUP)).sum();
        let count: u64 = group.pieces.iter().map(|piece| piece.count).sum();
        let moved: u64 =
            (0..ROLES).filter_map(|role| first.address[role]).map(|(_, dtype)| 2 * dtype.size()).sum();
        Call {
            kernel: optim::T,
            params: optim::Params {
                table_at: fit(table.at())? + entry,
                tensors,
                mode: common.mode,
                flags,
                types0: (0..4).map(|role| first.code(role) << (8 * role)).sum(),
                types1: first.code(4),
                lr,
                decay,
                beta1,
                beta2,
                eps,
                log1,
                log2,
                rest2,
            },
            buffers: optim::Buffers { param, grad, m, v, w, steps, table },
            flops: common.flops * count,
            bytes: moved * count,
        }
        .launch_items(queue, items, 1)?;
        entry += optim::ENTRY * tensors;
    }
    Ok(())
}
