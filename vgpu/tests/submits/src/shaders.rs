//! The compute shaders: integers alone, and one result whatever the size of a subgroup and the order of invocations.

use anyhow::{Context, Result};
use wave32_kernelc::{Source, glsl};

/// What a shader does with a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Read,
    Write,
    /// Operations of one kind may meet: their order has no effect.
    Atomic(u32),
}

macro_rules! shaders {
    ($($name:ident $file:literal $uses:expr;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Shader {
            $($name,)*
        }

        impl Shader {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            fn source(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!("../shaders/", $file, ".comp")),)*
                }
            }

            /// By binding; an atomic's kind is the program's choice.
            pub fn uses(self) -> [Option<Use>; 3] {
                match self {
                    $(Self::$name => $uses,)*
                }
            }
        }
    };
}

const READ: Option<Use> = Some(Use::Read);
const WRITE: Option<Use> = Some(Use::Write);

shaders! {
    Mix "mix" [READ, WRITE, None];
    Gather "gather" [READ, WRITE, READ];
    Turn "turn" [None, WRITE, None];
    Atomic "atomic" [READ, Some(Use::Atomic(0)), None];
    Reduce "reduce" [READ, WRITE, None];
    Exchange "exchange" [READ, WRITE, None];
    Subgroup "subgroup" [READ, WRITE, None];
    Wide "wide" [READ, WRITE, None];
    Loop "loop" [READ, WRITE, None];
    Args "args" [READ, WRITE, None];
    Bits "bits" [READ, WRITE, None];
    Private "private" [READ, WRITE, None];
}

/// Sizes of workgroups.
pub const LOCALS: [u32; 4] = [32, 64, 100, 256];

impl Shader {
    pub fn spirv(self) -> Result<Vec<u32>> {
        let text = include_str!("../shaders/common.glsl").to_owned() + self.source();
        let source = Source { name: format!("{self:?}"), text, files: Vec::new() };
        glsl::spirv(&source).with_context(|| format!("{self:?}"))
    }
}
