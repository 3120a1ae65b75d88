//! What a program's buffers hold in the end, by arithmetic on the host: actions one by one, commands one by one.

use crate::program::*;
use crate::shaders::Shader;

/// All buffers' bytes.
pub fn run(program: &Program) -> Vec<Vec<u8>> {
    let mut memory = Model { buffers: (0..program.buffers.len()).map(|i| program.initial(i)).collect() };
    for action in &program.actions {
        match &action.what {
            What::Submit(submit) => {
                for buffer in &submit.buffers {
                    (0..buffer.times)
                        .for_each(|_| buffer.commands.iter().for_each(|command| memory.command(command)));
                }
            }
            What::Host(host) => {
                if let Some((range, a, b)) = host.touch {
                    let words = memory.words(range).into_iter().map(|w| w.wrapping_mul(a).wrapping_add(b));
                    memory.write(range, &words.collect::<Vec<_>>());
                }
            }
        }
    }
    memory.buffers
}

struct Model {
    buffers: Vec<Vec<u8>>,
}

impl Model {
    fn bytes(&mut self, range: Range) -> &mut [u8] {
        &mut self.buffers[range.buffer][range.at as usize..range.end() as usize]
    }

    fn words(&mut self, range: Range) -> Vec<u32> {
        self.bytes(range).as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
    }

    fn write(&mut self, range: Range, words: &[u32]) {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        self.bytes(range)[..bytes.len()].copy_from_slice(&bytes);
    }

    fn command(&mut self, command: &Command) {
        match command {
            Command::Fill { to, value } => self.write(*to, &vec![*value; to.bytes as usize / 4]),
            Command::Update { to, seed } => self.write(*to, &words(*seed, to.bytes as usize / 4)),
            Command::Copy { from, to, regions } => {
                for [source, target, bytes] in regions {
                    let copied = self.bytes(Range { buffer: *from, at: *source, bytes: *bytes }).to_vec();
                    self.bytes(Range { buffer: *to, at: *target, bytes: *bytes }).copy_from_slice(&copied);
                }
            }
            Command::Dispatch(dispatch) => self.dispatch(dispatch),
            Command::Secondary(commands) => commands.iter().for_each(|command| self.command(command)),
            Command::Barrier(_)
            | Command::SetEvent { .. }
            | Command::WaitEvent { .. }
            | Command::Timestamp { .. } => {}
        }
    }

    fn dispatch(&mut self, dispatch: &Dispatch) {
        let (first, groups) = match dispatch.grid {
            Grid::Groups(groups) => ([0; 3], groups),
            Grid::From(first, groups) => (first, groups),
            Grid::Indirect(range) => {
                let sizes = self.words(range);
                ([0; 3], [sizes[0], sizes[1], sizes[2]])
            }
        };
        let [x, mut y, z] =
            dispatch.bindings.map(|range| range.map_or(Vec::new(), |range| self.words(range)));
        let [.., sx, sy, _, _, _] = dispatch.parameters;
        for group_z in first[2]..first[2] + groups[2] {
            for group_y in first[1]..first[1] + groups[1] {
                for group_x in first[0]..first[0] + groups[0] {
                    let group = group_x + sx * (group_y + sy * group_z);
                    workgroup(dispatch, groups, group, &x, &mut y, &z);
                }
            }
        }
        if let Some(range) = dispatch.bindings[1] {
            self.write(range, &y);
        }
    }
}

fn workgroup(dispatch: &Dispatch, groups: [u32; 3], group: u32, x: &[u32], y: &mut [u32], z: &[u32]) {
    let [count, a, b, _, _, c, op, d] = dispatch.parameters;
    let local = dispatch.local;
    let base = group * local;
    let each = base..(base + local).min(count.max(base));
    let value = |i: u32, other: u32| if i < count { x[i as usize] } else { other };
    match dispatch.shader {
        Shader::Reduce => {
            let sum = (base..base + local).fold(0u32, |sum, i| {
                sum.wrapping_add(if i < count { x[i as usize].wrapping_mul(a) } else { b })
            });
            y.get_mut(group as usize).into_iter().for_each(|y| *y = sum);
        }
        Shader::Exchange => {
            let s: Vec<u32> = (base..base + local).map(|i| value(i, i.wrapping_mul(b))).collect();
            for i in each {
                let l = i - base;
                let other = (l * 7).wrapping_add(a) % local;
                y[i as usize] = s[(local - 1 - l) as usize] ^ s[other as usize];
            }
        }
        Shader::Subgroup => {
            let values = (base..base + local).map(|i| value(i, i ^ b));
            let (sum, most, odd) = values.fold((0u32, 0u32, 0), |(sum, most, odd), v| {
                (sum.wrapping_add(v), most.max(v), odd + (v & 1))
            });
            let result = (sum ^ most.wrapping_mul(a)).wrapping_add(odd);
            y.get_mut(group as usize).into_iter().for_each(|y| *y = result);
        }
        Shader::Args => {
            for i in (base..base + local).take_while(|i| *i < 3) {
                y[(d + i) as usize] = (x[i as usize] ^ a) % (b + 1);
            }
        }
        Shader::Atomic => {
            for i in each {
                let v = x[i as usize].wrapping_mul(b);
                let at = &mut y[(x[i as usize] ^ a) as usize % y.len()];
                *at = match op {
                    0 => at.wrapping_add(v),
                    1 => (*at).max(v),
                    2 => (*at).min(v),
                    3 => *at ^ v,
                    4 => *at | (v & 0x1111_1111),
                    _ => *at & (v | 0xeeee_eeee),
                };
            }
        }
        Shader::Gather => {
            for i in each {
                y[i as usize] = x[(z[i as usize] ^ a) as usize % x.len()].wrapping_add(b);
            }
        }
        Shader::Turn => {
            for i in each {
                let v = y[i as usize];
                y[i as usize] = v.rotate_left(1 + b % 31) ^ a.wrapping_add(i);
            }
        }
        shader => {
            for i in each {
                let v = x[i as usize];
                y[i as usize] = match shader {
                    Shader::Mix => mix(v.wrapping_mul(a).wrapping_add(b))
                        .wrapping_add(groups[0])
                        .wrapping_add(c.wrapping_mul(groups[2])),
                    Shader::Wide => wide(v, a, b, i),
                    Shader::Loop => steps(v, a),
                    Shader::Bits => bits(v, a, b),
                    _ => private(v, a, b),
                };
            }
        }
    }
}

fn mix(mut v: u32) -> u32 {
    v ^= v << 13;
    v ^= v >> 17;
    v ^ v << 5
}

fn wide(x: u32, a: u32, b: u32, i: u32) -> u32 {
    let mut v = (u64::from(x) << 32 | u64::from(a)).wrapping_mul(u64::from(b | 1)).wrapping_add(i.into());
    v ^= v >> 29;
    v = v.wrapping_add(v / u64::from(x | 1));
    let n = v as i64 >> 7;
    v ^= (n as u64).wrapping_add(if n < 0 { 3 } else { 5 });
    (v >> 32) as u32 ^ v as u32
}

fn steps(mut v: u32, a: u32) -> u32 {
    let mut n = 0;
    while v > 1 && n < 20 + a % 40 {
        v = if v & 1 != 0 { v.wrapping_mul(3).wrapping_add(1) } else { v >> 1 };
        if v % 19 == 7 {
            break;
        }
        n += 1;
    }
    v.wrapping_mul(64).wrapping_add(n)
}

fn bits(v: u32, a: u32, b: u32) -> u32 {
    // Neither -1 nor 32 where a number has no such bit, as in GLSL.
    let lowest = |v: u32| if v == 0 { u32::MAX } else { v.trailing_zeros() };
    let highest = |v: u32| if v == 0 { u32::MAX } else { 31 - v.leading_zeros() };
    let highest_signed = |v: u32| highest(if v as i32 >= 0 { v } else { !v });
    let mask = |bits: u32| if bits == 32 { u32::MAX } else { (1 << bits) - 1 };
    let mut r = v >> (a % 16) & mask(1 + b % 16);
    let width = 1 + a % 16;
    let part = v >> (b % 16) & mask(width);
    r = r.wrapping_add(((part << (32 - width)) as i32 >> (32 - width)) as u32);
    let place = mask(b % 17) << (a % 16);
    r = r.wrapping_add(v & !place | b << (a % 16) & place);
    r ^= v.count_ones() << 3;
    r = r.wrapping_add(lowest(v));
    r = r.wrapping_add(highest_signed(v).wrapping_mul(3)).wrapping_add(highest(v).wrapping_mul(5));
    let product = u64::from(v) * u64::from(a);
    r ^= ((product >> 32) as u32).wrapping_add(product as u32);
    r = r.wrapping_add(((i64::from(v as i32) * i64::from(a as i32)) >> 32) as u32);
    let (sum, carry) = v.overflowing_add(b);
    r = r.wrapping_add(sum ^ u32::from(carry));
    let (difference, borrow) = v.overflowing_sub(b);
    r = r.wrapping_add(difference ^ u32::from(borrow));
    r ^= (v as i32 / ((a & 0x7fff) | 1) as i32) as u32;
    let shifted = (v >> 1) as i32 >> (a % 31);
    r.wrapping_add(v % (b | 1))
        .wrapping_add(v.reverse_bits())
        .wrapping_add(shifted as u32)
        .wrapping_add((v as i32).min(a as i32) as u32)
}

fn private(x: u32, a: u32, b: u32) -> u32 {
    let mut t: Vec<u32> = (0..96).map(|k: u32| x.wrapping_add(k.wrapping_mul(a))).collect();
    for k in 0..48 {
        let at = (t[k] >> (k & 7)) as usize % 96;
        let v = t[at];
        t[at] = t[k] ^ b;
        t[k] = v;
    }
    t.iter().fold(0, |sum: u32, v| sum.wrapping_mul(3).wrapping_add(*v))
}
