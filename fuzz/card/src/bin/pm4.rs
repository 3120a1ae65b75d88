#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wave32_vgpu::fuzz::command_buffers(bytes));
