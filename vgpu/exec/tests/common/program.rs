//! A compiled program and its memory.

use std::time::Duration;
use wave32_exec::{CodeObject, Dispatch, Executor, HeapMemory, Options, Report, Stop};
use wave32_isa::Target;

/// A code object in memory of its own.
pub struct Program {
    pub memory: HeapMemory,
    pub object: CodeObject,
    pub base: u64,
    pub executor: Executor<HeapMemory>,
    pub options: Options,
    /// Scratch bytes of a work-item, where the kernel's own figure is less: recursion has none.
    pub stack: u32,
}

impl Program {
    pub fn new(elf: &[u8], threads: usize) -> Self {
        let object = CodeObject::parse(elf).expect("a code object");
        let mut memory = HeapMemory::new();
        let base = object.load(&mut memory);
        let options = Options { deadline: Duration::from_secs(20), ..Options::default() };
        Self {
            memory,
            object,
            base,
            executor: Executor::new(Target::Gfx1010, Some(threads)),
            options,
            stack: 1024,
        }
    }

    /// Runs a kernel whose arguments are 64-bit words.
    pub fn run(
        &mut self,
        kernel: &str,
        grid: [u32; 3],
        workgroup: [u16; 3],
        args: &[u64],
    ) -> Result<Report, Stop> {
        let bytes: Vec<u8> = args.iter().flat_map(|a| a.to_le_bytes()).collect();
        let kernarg = self.memory.alloc_from(&bytes);
        // Compilers read the workgroup's and the grid's size from the packet.
        let mut packet = [0; 64];
        for (i, (size, grid)) in workgroup.iter().zip(grid).enumerate() {
            packet[4 + 2 * i..][..2].copy_from_slice(&size.to_le_bytes());
            packet[12 + 4 * i..][..4].copy_from_slice(&grid.to_le_bytes());
        }
        let packet = self.memory.alloc_from(&packet);
        let (descriptor, at) = &self.object.kernels[kernel];
        let dispatch = Dispatch {
            name: kernel.into(),
            descriptor: descriptor.clone(),
            kernel_object: self.base + at,
            grid,
            workgroup,
            group_segment: descriptor.group_segment,
            private_segment: descriptor.private_segment.max(self.stack),
            kernarg,
            packet,
            ..Dispatch::default()
        };
        self.executor.run(&self.memory, &dispatch, &self.options, &())
    }
}
