//! The commands that work: what they touch, and numbers that keep them inside.

use rand::Rng;

use crate::generate::Generator;
use crate::program::*;
use crate::shaders::{LOCALS, Shader, Use};
use crate::track::Access;

/// Offsets of bindings: more than any driver here asks for.
pub const ALIGNMENT: u64 = 64;
/// Workgroups of an indirect dispatch in each direction, at most.
const INDIRECT_SIDE: u32 = 4;

impl Generator {
    /// A random part of a buffer.
    pub(crate) fn window(&mut self, buffer: usize, step: u64, least: u64) -> Range {
        let all = self.program.buffers[buffer].bytes;
        if all < least || self.chance(25) {
            return Range { buffer, at: 0, bytes: all };
        }
        let unit = if step == 1 { 1 } else { 4 };
        let at = self.rng.random_range(0..=(all - least) / step) * step;
        let most = (all - at - least) / unit;
        let bytes = if self.chance(30) { most } else { self.rng.random_range(0..=most) };
        Range { buffer, at, bytes: least + bytes * unit }
    }

    fn any(&mut self, step: u64, least: u64) -> Range {
        let buffer = self.rng.random_range(0..self.program.buffers.len());
        self.window(buffer, step, least)
    }

    pub(crate) fn work(&mut self) {
        match self.rng.random_range(0..100) {
            0..10 => {
                let (to, value) = (self.any(4, 4), self.rng.random());
                self.put(Command::Fill { to, value }, &[written(to)]);
            }
            10..20 => {
                let to = self.any(4, 4);
                let most = if self.chance(70) { 1024 } else { 65536 };
                let to = Range { bytes: to.bytes.min(most), ..to };
                let seed = self.rng.random();
                self.put(Command::Update { to, seed }, &[written(to)]);
            }
            20..38 => self.copy(),
            38..43 => {
                let query = self.program.queries;
                self.program.queries += 1;
                let two = self.chance(50);
                self.put(Command::Timestamp { query, two }, &[]);
            }
            43..58 if !self.from_anywhere => self.indirect(),
            _ => {
                let shader = Shader::ALL[self.rng.random_range(0..Shader::ALL.len())];
                self.dispatch(shader, None);
            }
        }
    }

    fn copy(&mut self) {
        let step = if self.chance(30) { 1 } else { 4 };
        let (mut from, mut to) = (self.any(step, 4), self.any(step, 4));
        if from.meets(&to) {
            // The lower half to the upper one.
            let half = self.program.buffers[to.buffer].bytes / 8 * 4;
            if half == 0 {
                return;
            }
            from = Range { at: 0, bytes: half, ..from };
            to = Range { at: half, bytes: half, ..to };
        }
        let mut regions = Vec::new();
        let mut at = to.at;
        for _ in 0..self.rng.random_range(1..=4) {
            let most = (to.end() - at).min(from.bytes) / step;
            if most == 0 {
                break;
            }
            let bytes = self.rng.random_range(1..=most) * step;
            let source = from.at + self.rng.random_range(0..=(from.bytes - bytes) / step) * step;
            regions.push([source, at, bytes]);
            at += bytes;
        }
        let read = Access { range: from, what: Use::Read, stage: TRANSFER };
        self.put(Command::Copy { from: from.buffer, to: to.buffer, regions }, &[read, written(to)]);
    }

    /// Bindings that do not meet where one is written, nor `avoid`.
    fn bindings(&mut self, shader: Shader, avoid: Option<Range>) -> Option<[Option<Range>; 3]> {
        let least = if matches!(shader, Shader::Args) { 64 } else { 4 };
        for _ in 0..20 {
            let ranges = shader.uses().map(|used| used.map(|_| self.any(ALIGNMENT, least)));
            let writes = |i: usize| shader.uses()[i].is_some_and(|used| used != Use::Read);
            let apart =
                |a: Option<Range>, b: Option<Range>| !matches!((a, b), (Some(a), Some(b)) if a.meets(&b));
            let fine = (0..3)
                .filter(|i| writes(*i))
                .all(|i| apart(ranges[i], avoid) && (0..3).all(|j| i == j || apart(ranges[i], ranges[j])));
            let large = ranges.iter().flatten().all(|range| range.bytes >= least);
            if fine && large {
                return Some(ranges);
            }
        }
        None
    }

    /// Has a shader write sizes: where they are.
    fn sizes_by_shader(&mut self) -> Option<Range> {
        let [Some(from), Some(to), _] = self.bindings(Shader::Args, None)? else { return None };
        // All three, by the first workgroup.
        let at = self.rng.random_range(0..=(to.bytes / 4 - 3).min(13)) as u32;
        let parameters = [3, self.rng.random(), self.rng.random_range(0..=INDIRECT_SIDE), 1, 1, 0, 0, at];
        let local = LOCALS[self.rng.random_range(0..LOCALS.len())];
        let bindings = [Some(from), Some(to), None];
        self.put_dispatch(Dispatch {
            shader: Shader::Args,
            local,
            bindings,
            parameters,
            grid: Grid::Groups([1; 3]),
        });
        Some(Range { at: to.at + 4 * u64::from(at), bytes: 12, ..to })
    }

    /// A dispatch; with sizes from memory if told so.
    fn dispatch(&mut self, shader: Shader, sizes: Option<Range>) {
        let Some(bindings) = self.bindings(shader, sizes) else { return };
        let words = |i: usize| bindings[i].map_or(u64::MAX, |range| range.bytes / 4) as u32;
        let sums = matches!(shader, Shader::Reduce | Shader::Subgroup | Shader::Atomic);
        let count = if sums { words(0) } else { words(0).min(words(1)).min(words(2)) };
        let local = LOCALS[self.rng.random_range(0..LOCALS.len())];
        let kind = self.rng.random_range(0..6);
        let mut parameters = [count, self.rng.random(), self.rng.random(), 0, 0, self.rng.random(), kind, 0];
        if self.chance(20) {
            parameters[0] = self.rng.random_range(0..=count);
        }
        let from_anywhere = self.from_anywhere;
        let rng = &mut self.rng;
        let grid = if let Some(sizes) = sizes {
            [parameters[3], parameters[4]] = [INDIRECT_SIDE; 2];
            Grid::Indirect(sizes)
        } else {
            let total = count.div_ceil(local).clamp(1, 96);
            let total = if rng.random_bool(0.2) { rng.random_range(0..=total) } else { total };
            let x = rng.random_range(1..=total.max(1));
            let y = rng.random_range(1..=total.div_ceil(x).max(1));
            let groups = [if total == 0 { 0 } else { x }, y, total.div_ceil(x * y)];
            let first = if from_anywhere && rng.random_bool(0.4) {
                [0; 3].map(|_: u32| rng.random_range(0..3))
            } else {
                [0; 3]
            };
            [parameters[3], parameters[4]] = [first[0] + groups[0], first[1] + groups[1]];
            if first == [0; 3] { Grid::Groups(groups) } else { Grid::From(first, groups) }
        };
        if shader == Shader::Args {
            let room = words(1) - 3;
            parameters[2] = self.rng.random_range(0..=INDIRECT_SIDE);
            parameters[7] = self.rng.random_range(0..=room.min(13));
        }
        self.put_dispatch(Dispatch { shader, local, bindings, parameters, grid });
    }

    fn put_dispatch(&mut self, dispatch: Dispatch) {
        let mut accesses = Vec::new();
        for (range, used) in dispatch.bindings.iter().zip(dispatch.shader.uses()) {
            let (Some(range), Some(used)) = (*range, used) else { continue };
            let what = if let Use::Atomic(_) = used { Use::Atomic(dispatch.parameters[6]) } else { used };
            accesses.push(Access { range, what, stage: COMPUTE });
        }
        if let Grid::Indirect(range) = dispatch.grid {
            accesses.push(Access { range, what: Use::Read, stage: INDIRECT });
        }
        self.put(Command::Dispatch(dispatch), &accesses);
    }

    /// Sizes, written by a fill or a shader; and a dispatch, or two, of so many workgroups.
    fn indirect(&mut self) {
        let sizes = if self.chance(40) {
            let to = self.any(4, 12);
            if to.bytes < 12 {
                return;
            }
            let value = self.rng.random_range(0..=INDIRECT_SIDE);
            self.put(Command::Fill { to, value }, &[written(to)]);
            Range { at: to.at + 4 * self.rng.random_range(0..=(to.bytes - 12) / 4), bytes: 12, ..to }
        } else {
            let Some(sizes) = self.sizes_by_shader() else { return };
            sizes
        };
        for _ in 0..self.rng.random_range(1..=2) {
            let shader = Shader::ALL[self.rng.random_range(0..Shader::ALL.len())];
            if shader != Shader::Args {
                self.dispatch(shader, Some(sizes));
            }
        }
    }
}

fn written(range: Range) -> Access {
    Access { range, what: Use::Write, stage: TRANSFER }
}
