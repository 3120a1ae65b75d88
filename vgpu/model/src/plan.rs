//! Plans: each launch with the code that ships, on tensors that are addresses only.

use crate::card::ModelCard;
use crate::launch::{Effort, LaunchError, launch};
use crate::tensors::Tensors;
use crate::time::{Bracket, LaunchTime, PlanTime};
use wave32_exec::{CodeObject, Dispatch, Executor, Stop};
use wave32_isa::Target;
use wave32_params::variants;
use wave32_solve::{Launch, Plan, Role};

/// What every 16 bits of every tensor are: 1.0 in f16.
const BITS: u16 = 0x3c00;

/// Why a plan cannot be modelled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// This build embeds no code objects for RDNA1.
    #[error(
        "{0}; the model looks at gfx code: build wave32 with clang 15 or newer and lld installed, and WAVE32_GFX_TARGETS \
         unset or with gfx1010 in it"
    )]
    NoCode(String),
    /// A code object is not what it should be.
    #[error("the embedded code object cannot be read: {0}")]
    Object(Box<Stop>),
    /// A launch names a kernel that no code object has.
    #[error("kernel `{0}` is in no code object that this build has for the card")]
    Kernel(String),
    /// A launch of the plan.
    #[error("launch {index}, {kernel}: {error}")]
    Launch {
        /// Which.
        index: usize,
        /// Its kernel.
        kernel: String,
        /// Why.
        error: Box<LaunchError>,
    },
}

/// Models plans on one card.
pub struct Model {
    card: ModelCard,
    code: String,
    objects: Vec<CodeObject>,
    executor: Executor<Tensors>,
}

impl PlanTime {
    /// Of a plan's launches, each with the code of this compiler.
    pub fn new(
        card: &ModelCard,
        code: &str,
        compiler: String,
        launches: Vec<LaunchTime>,
        plan: &Plan,
    ) -> Self {
        let waits = 1 + plan.waits().into_iter().filter(|&waits| waits).count();
        let between = waits as f64 * card.launch;
        let time = launches.iter().map(|l| l.time).sum::<Bracket>() + Bracket { low: between, high: between };
        Self { card: card.name, code: code.into(), compiler, time, between_us: between * 1e6, launches }
    }
}

impl Model {
    /// Reads the code objects for the card's target; where the build has none, gfx1010's, which any RDNA1 card's
    /// instruction set includes.
    ///
    /// # Errors
    /// [`ModelError::NoCode`] where this build has neither.
    pub fn new(card: ModelCard) -> Result<Self, ModelError> {
        let of = |target| wave32_kernels::code_objects(target).map(|elfs| (target, elfs));
        let (code, elfs) = of(card.target)
            .or_else(|_| of("gfx1010"))
            .map_err(|missing| ModelError::NoCode(missing.to_string()))?;
        let objects = elfs.into_iter().map(CodeObject::parse).collect::<Result<_, _>>();
        let objects = objects.map_err(|stop| ModelError::Object(Box::new(stop)))?;
        let target = Target::named(code).unwrap_or_default();
        Ok(Self { card, code: code.into(), objects, executor: Executor::new(target, None) })
    }

    /// The card.
    pub fn card(&self) -> &ModelCard {
        &self.card
    }

    /// The modelled time of a plan.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn plan(&self, plan: &Plan, effort: Effort) -> Result<PlanTime, ModelError> {
        self.plan_with(plan, effort, BITS)
    }

    /// [`Model::plan`] with other numbers in the tensors, every 16 bits alike.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn plan_with(&self, plan: &Plan, effort: Effort, bits: u16) -> Result<PlanTime, ModelError> {
        let mut memory = Tensors::new(bits);
        let bases: Vec<u64> = self.objects.iter().map(|object| object.load(&mut memory.heap)).collect();
        let tensors: Vec<(Role, u64, u64)> = Role::ALL
            .into_iter()
            .filter(|role| plan.role_bytes(*role) > 0)
            .map(|role| (role, memory.add(plan.role_bytes(role)), plan.role_bytes(role)))
            .collect();
        let dispatches = plan
            .launches
            .iter()
            .map(|l| self.dispatch(l, &bases, &tensors, &mut memory))
            .collect::<Result<Vec<_>, _>>()?;
        let ranges: Vec<(u64, u64)> = tensors.iter().map(|&(_, at, bytes)| (at, bytes)).collect();
        let mut launches = Vec::new();
        for (index, dispatch) in dispatches.iter().enumerate() {
            let time =
                launch(&self.executor, &memory, dispatch, &ranges, &self.card, effort).map_err(|error| {
                    ModelError::Launch { index, kernel: dispatch.name.clone(), error: Box::new(error) }
                })?;
            launches.push(time);
        }
        Ok(PlanTime::new(&self.card, &self.code, "LLVM (HIP route)".into(), launches, plan))
    }

    /// As `crates/hip` launches: pointers, then the words.
    fn dispatch(
        &self,
        launch: &Launch,
        bases: &[u64],
        tensors: &[(Role, u64, u64)],
        memory: &mut Tensors,
    ) -> Result<Dispatch, ModelError> {
        let unknown = || ModelError::Kernel(launch.kernel.clone());
        let mut found = self.objects.iter().zip(bases);
        let found = found.find_map(|(object, base)| Some((object.kernels.get(&launch.kernel)?, base)));
        let ((descriptor, at), base) = found.ok_or_else(unknown)?;
        let threads = variants::find(&launch.kernel).ok_or_else(unknown)?.threads;
        let address = |role: Role| tensors.iter().find(|t| t.0 == role).map_or(0, |t| t.1);
        let mut arguments: Vec<u8> = Vec::new();
        for binding in &launch.bindings {
            arguments.extend((address(binding.role) + binding.offset).to_le_bytes());
        }
        launch.params.iter().for_each(|word| arguments.extend(word.to_le_bytes()));
        arguments.resize(arguments.len().max(descriptor.kernarg_bytes as usize), 0);
        let [x, y, z] = launch.grid;
        Ok(Dispatch {
            name: launch.kernel.clone(),
            descriptor: descriptor.clone(),
            kernel_object: base + at,
            grid: [x * threads, y, z],
            workgroup: [threads as u16, 1, 1],
            group_segment: descriptor.group_segment,
            private_segment: descriptor.private_segment,
            kernarg: memory.heap.alloc_from(&arguments),
            ..Dispatch::default()
        })
    }
}
