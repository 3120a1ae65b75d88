//! Code, decoded once: blocks of straight instructions with their handlers, found by address.

use crate::bind::{Handler, bind};
use crate::control::{self, End};
use crate::env::Regions;
use crate::strict::RegisterUse;
use crate::{Args, Class, Memory, Src};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use wave32_isa::{Inst, Opcode, Target};

/// Instructions that a block holds at most: a bound on what is decoded ahead, and on how late a deadline is noticed.
const BLOCK: usize = 512;
/// The program counter's bits, as programs read it: Mesa's compiler makes a buffer's descriptor of them, whose bits behind
/// these are the stride and whether it is swizzled. LLVM takes them for copies of bit 47, which would break that.
pub(crate) const PC: u64 = (1 << 48) - 1;

/// An instruction ready to run. What vector instructions need lies in one cache line: loops that were unrolled are longer
/// than the nearest cache.
#[repr(C, align(64))]
pub(crate) struct Step<M> {
    pub(crate) handler: Handler<M>,
    pub(crate) args: Args,
    /// Which of the block's instructions it is.
    pub(crate) index: u16,
}

/// Straight code, entered at its first instruction only.
pub(crate) struct Block<M> {
    pub(crate) pc: u64,
    /// The code itself: whoever enters the block again in another dispatch looks whether it is still there.
    bytes: Vec<u8>,
    /// All instructions with the bytes from `pc` to each; the last one is `end`'s, unless code ran into the next block.
    pub(crate) insts: Vec<(Inst, u32)>,
    /// What to execute where nobody watches: without hints.
    pub(crate) plain: Vec<Step<M>>,
    /// All of them.
    pub(crate) watched: Vec<Step<M>>,
    /// What the strict card looks at, once it has been there.
    plans: OnceLock<Vec<RegisterUse>>,
    /// The instructions' classes, and whether lanes count.
    pub(crate) classes: Vec<(Class, bool)>,
    pub(crate) end: End,
    /// Why it ends where it cannot go on.
    pub(crate) reason: String,
    /// VGPRs that it names.
    pub(crate) vgprs: usize,
}

/// By address, and whether the code is for wave64.
type ByAddress<M> = HashMap<(u64, bool), Arc<Block<M>>>;

/// Blocks of all kernels met, shared by threads and dispatches.
pub(crate) struct Programs<M> {
    target: Target,
    blocks: RwLock<ByAddress<M>>,
}

impl<M: Memory> Programs<M> {
    pub(crate) fn new(target: Target) -> Self {
        Self { target, blocks: RwLock::default() }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.blocks.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The block at `pc`, as memory has it now.
    pub(crate) fn block(&self, memory: &M, regions: &mut Regions, pc: u64, wave64: bool) -> Arc<Block<M>> {
        let known = self.blocks.read().unwrap_or_else(PoisonError::into_inner).get(&(pc, wave64)).cloned();
        if let Some(block) = known
            && block.is_current(memory, regions)
        {
            return block;
        }
        let block = Arc::new(Block::decode(memory, regions, pc, wave64, self.target));
        self.blocks.write().unwrap_or_else(PoisonError::into_inner).insert((pc, wave64), block.clone());
        block
    }
}

impl<M: Memory> Block<M> {
    fn is_current(&self, memory: &M, regions: &mut Regions) -> bool {
        let Some(region) = regions.find(memory, self.pc, self.bytes.len() as u64) else { return false };
        let mut now = vec![0; self.bytes.len()];
        memory.read(&region, self.pc, &mut now);
        // A block that ends for want of code may have got more.
        !matches!(self.end, End::NoCode | End::Illegal) && now == self.bytes
    }

    fn decode(memory: &M, regions: &mut Regions, pc: u64, wave64: bool, target: Target) -> Self {
        let mut block = Self {
            pc,
            bytes: Vec::new(),
            insts: Vec::new(),
            plain: Vec::new(),
            watched: Vec::new(),
            plans: OnceLock::new(),
            classes: Vec::new(),
            end: End::Next,
            reason: String::new(),
            vgprs: 0,
        };
        while block.insts.len() < BLOCK {
            let at = pc.wrapping_add(block.bytes.len() as u64);
            let Some(region) = regions.find(memory, at, 4) else {
                block.end = End::NoCode;
                return block;
            };
            let mut code = [0; 12];
            let code = &mut code[..((region.base + region.bytes - at) & !3).min(12) as usize];
            memory.read(&region, at, code);
            let words: Vec<u32> =
                code.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("4 bytes"))).collect();
            let inst = match wave32_isa::decode(&words, target, wave64) {
                Ok(inst) => inst,
                Err(error) => {
                    block.end = End::Illegal;
                    block.reason = error.to_string();
                    return block;
                }
            };
            if block.push(inst, &code[..usize::from(inst.len)]) {
                return block;
            }
        }
        block
    }

    /// What the strict card looks at in each instruction.
    pub(crate) fn plans(&self) -> &[RegisterUse] {
        self.plans.get_or_init(|| self.insts.iter().map(|(inst, _)| RegisterUse::new(inst)).collect())
    }

    /// Appends an instruction; whether it ended the block.
    fn push(&mut self, inst: Inst, code: &[u8]) -> bool {
        let offset = self.bytes.len() as u32;
        let index = self.insts.len() as u16;
        let next = self.pc.wrapping_add(u64::from(offset) + code.len() as u64);
        self.bytes.extend_from_slice(code);
        self.insts.push((inst, offset));
        let class = Class::of(&inst);
        self.classes.push((class, class.is_vector()));
        let registers =
            inst.args().iter().filter_map(|a| a.operand.as_vgpr().map(|v| v + usize::from(a.dwords)));
        self.vgprs = registers.fold(self.vgprs, usize::max);
        if control::is_control(inst.op) {
            self.end = End::of(&inst, next);
            return true;
        }
        let (handler, mut args) = bind(&inst);
        if inst.op == Opcode::s_getpc_b64 {
            args.src[0] = Src::constant(next & PC);
        }
        self.watched.push(Step { handler, index, args });
        if !matches!(handler, Handler::Hint) {
            self.plain.push(Step { handler, index, args });
        }
        false
    }

    /// Where the code behind the block starts.
    pub(crate) fn next(&self) -> u64 {
        self.pc.wrapping_add(self.bytes.len() as u64)
    }
}

/// A thread's way through the program: blocks with links between them, so that a loop looks nothing up.
pub(crate) struct Code<'a, M> {
    programs: &'a Programs<M>,
    memory: &'a M,
    wave64: bool,
    entered: Vec<Entered<M>>,
    by_pc: HashMap<u64, u32>,
}

/// A block in use, with those that were found to follow it.
pub(crate) struct Entered<M> {
    pub(crate) block: Arc<Block<M>>,
    taken: Option<u32>,
    next: Option<u32>,
}

impl<'a, M: Memory> Code<'a, M> {
    pub(crate) fn new(programs: &'a Programs<M>, memory: &'a M, wave64: bool) -> Self {
        Self { programs, memory, wave64, entered: Vec::new(), by_pc: HashMap::new() }
    }

    pub(crate) fn get(&self, id: u32) -> &Block<M> {
        &self.entered[id as usize].block
    }

    /// The block at an address; good as long as code does not change (`s_icache_inv`: see [`Code::forget`]).
    pub(crate) fn enter(&mut self, regions: &mut Regions, pc: u64) -> u32 {
        if let Some(&id) = self.by_pc.get(&pc) {
            return id;
        }
        let block = self.programs.block(self.memory, regions, pc, self.wave64);
        let id = self.entered.len() as u32;
        self.entered.push(Entered { block, taken: None, next: None });
        self.by_pc.insert(pc, id);
        id
    }

    /// The block that a branch at `from`'s end leads to, or the one behind it.
    pub(crate) fn follow(&mut self, regions: &mut Regions, from: u32, taken: bool, pc: u64) -> u32 {
        let entered = &self.entered[from as usize];
        if let Some(id) = if taken { entered.taken } else { entered.next } {
            return id;
        }
        let id = self.enter(regions, pc);
        let entered = &mut self.entered[from as usize];
        *(if taken { &mut entered.taken } else { &mut entered.next }) = Some(id);
        id
    }

    /// Looks at memory again for every block entered from now on.
    pub(crate) fn forget(&mut self) {
        self.by_pc.clear();
        for entered in &mut self.entered {
            (entered.taken, entered.next) = (None, None);
        }
    }
}
