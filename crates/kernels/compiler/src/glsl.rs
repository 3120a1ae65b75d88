//! GLSL to SPIR-V, by the vendored glslang.

use crate::source::source;
use crate::{CompileError, Source};
use glslang::{
    Compiler, CompilerOptions, Shader, ShaderInput, ShaderMessage, ShaderSource, ShaderStage, SourceLanguage,
    SpirvVersion, Target, VulkanVersion,
};
use std::path::Path;
use wave32_params::variants;

/// Changes whenever the bytes made from one source may change. It is part of cache keys.
pub const VERSION: &str = "glslang crate 0.9, Vulkan 1.1, SPIR-V 1.3";

/// Compiles a source for [`crate::Target::Glsl`]. The entry point is `main`.
///
/// # Errors
/// [`CompileError::Rejected`] with glslang's messages.
pub fn spirv(source: &Source) -> Result<Vec<u32>, CompileError> {
    let rejected = |log: String| CompileError::Rejected {
        compiler: "glslang".to_string(),
        variant: source.name.clone(),
        log: log.trim().to_string(),
    };
    let compiler =
        Compiler::acquire().ok_or_else(|| CompileError::Tool("glslang does not start".to_string()))?;
    let options = CompilerOptions {
        source_language: SourceLanguage::GLSL,
        target: Target::Vulkan { version: VulkanVersion::Vulkan1_1, spirv_version: SpirvVersion::SPIRV1_3 },
        version_profile: None,
        messages: ShaderMessage::DEFAULT | ShaderMessage::SPV_RULES | ShaderMessage::VULKAN_RULES,
    };
    if source.text.contains('\0') {
        return Err(rejected("the text contains a NUL character".to_string()));
    }
    let text = ShaderSource::from(source.text.as_str());
    let no_defines: Option<&[(&str, Option<&str>)]> = None;
    let input = ShaderInput::new(&text, ShaderStage::Compute, &options, no_defines, None);
    let input = input.map_err(|e| rejected(e.to_string()))?;
    let shader = Shader::new(compiler, input).parse().map_err(|e| rejected(e.to_string()))?;
    shader.compile().map_err(|e| rejected(e.to_string()))
}

/// The bytes of that kernel's SPIR-V, if it is one of instructions that not all devices have, with these emulated (`EMULATED` in the
/// sources): for tests on devices that lack them.
///
/// # Errors
/// [`CompileError`], as [`source`] and [`spirv`].
pub fn emulated(name: &str) -> Option<Result<Vec<u8>, CompileError>> {
    let mut variant = variants::find(name).filter(|variant| variant.needs_instructions())?.clone();
    variant.defines.insert("EMULATED".into(), 1);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../kernels");
    let words = source(&folder, &variant, crate::Target::Glsl).and_then(|source| spirv(&source));
    Some(words.map(|words| words.iter().flat_map(|word| word.to_le_bytes()).collect()))
}
