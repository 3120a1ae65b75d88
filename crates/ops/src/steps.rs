//! What operations of several launches are made of: elementwise steps, and memory between them.

use crate::{ElementType, Elementwise, Number, Op, OpError, Operand, Queue, View, copy};

/// Launches, and the memory that they need in between: given back when this is dropped, behind what was launched.
pub struct Steps<'q> {
    /// Where to.
    pub queue: &'q mut dyn Queue,
    taken: Vec<u64>,
}

impl<'q> Steps<'q> {
    /// None yet.
    pub fn new(queue: &'q mut dyn Queue) -> Self {
        Self { queue, taken: Vec::new() }
    }

    /// Memory for a contiguous tensor.
    ///
    /// # Errors
    /// [`OpError::Device`] where the device fails.
    pub fn make(&mut self, dtype: ElementType, sizes: &[u64]) -> Result<View, OpError> {
        let bytes = sizes.iter().product::<u64>() * dtype.size();
        let address = self.queue.alloc(bytes.max(4))?;
        self.taken.push(address);
        View::contiguous(address, dtype, sizes)
    }

    /// A contiguous tensor with the same elements: itself, or a copy.
    ///
    /// # Errors
    /// [`OpError::Device`] where the device fails.
    pub fn contiguous(&mut self, view: &View) -> Result<View, OpError> {
        if view.is_contiguous() {
            return Ok(*view);
        }
        let made = self.make(view.dtype, view.sizes())?;
        copy(self.queue, view, &made)?;
        Ok(made)
    }

    /// `out = op(operands)` with the op's parameters s and t.
    ///
    /// # Errors
    /// The operation's.
    pub fn run(&mut self, op: Op, operands: &[Operand], [s, t]: [f64; 2], out: &View) -> Result<(), OpError> {
        Elementwise::with(op, wide(out.dtype), s, t).run(self.queue, operands, out)
    }

    /// The same in whole numbers, without parameters.
    ///
    /// # Errors
    /// The operation's.
    pub fn count(&mut self, op: Op, operands: &[Operand], out: &View) -> Result<(), OpError> {
        Elementwise::new(op, ElementType::I64).run(self.queue, operands, out)
    }

    /// `start + i step` along one dimension.
    ///
    /// # Errors
    /// [`OpError::Device`] where the device fails.
    pub fn range(&mut self, start: i64, step: i64, len: u64) -> Result<View, OpError> {
        let made = self.make(ElementType::I64, &[len])?;
        crate::arange(self.queue, &made, Number::Int(start), Number::Int(step))?;
        Ok(made)
    }

    /// `out = from`, converted; nothing where they are one.
    ///
    /// # Errors
    /// The copy's.
    pub fn copy(&mut self, from: &View, out: &View) -> Result<(), OpError> {
        if from == out { Ok(()) } else { copy(self.queue, from, out) }
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.taken.drain(..).for_each(|address| self.queue.retire(address));
    }
}

/// The type to keep intermediate results of `dtype` in.
pub fn wide(dtype: ElementType) -> ElementType {
    if dtype == ElementType::F64 { ElementType::F64 } else { ElementType::F32 }
}
