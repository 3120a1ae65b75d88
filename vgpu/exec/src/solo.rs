//! One wave on its own, with registers that the caller sets: for tests of instructions.

use crate::executor::Executor;
use crate::group::{Group, Progress, Runner};
use crate::launch::Launch;
use crate::program::Code;
use crate::{Descriptor, Dispatch, Lds, Memory, Options, Report, Signals, Stop, Wave};
use std::time::Instant;

/// A wave with what belongs to it.
#[derive(Debug)]
pub struct Solo {
    /// Its registers; what the program left in them afterwards.
    pub wave: Wave,
    /// LDS.
    pub lds: Lds,
    /// Scratch, as [`crate::Env::scratch`] has it.
    pub scratch: Vec<u32>,
}

impl<M: Memory> Executor<M> {
    /// Runs a wave from the code at `pc` to its `s_endpgm`.
    ///
    /// # Errors
    /// See [`Executor::run`]; the wave is then as the program left it.
    pub fn run_wave(
        &self,
        memory: &M,
        pc: u64,
        solo: &mut Solo,
        options: &Options,
        signals: &dyn Signals,
    ) -> Result<Report, Stop> {
        let dispatch = Dispatch {
            name: "wave".into(),
            descriptor: Descriptor {
                properties: u16::from(!solo.wave.wave64) << 10,
                ..Descriptor::default()
            },
            kernel_object: pc,
            grid: [1; 3],
            workgroup: [1; 3],
            ..Dispatch::default()
        };
        let launch = Launch::new(&dispatch)?;
        let code = Code::new(self.programs(), memory, solo.wave.wave64);
        let mut runner = Runner::new(&launch, memory, signals, options, code);
        let mut group = Group::solo(solo, options.strict);
        let started = Instant::now();
        let outcome = loop {
            match runner.run(&mut group) {
                Ok(Progress::Done) => break Ok(()),
                Ok(_) if started.elapsed() > options.deadline => break Err(runner.late(&group)),
                Ok(_) => {}
                Err(stop) => break Err(stop),
            }
        };
        group.into_solo(solo);
        outcome.map(|()| runner.finish())
    }
}
