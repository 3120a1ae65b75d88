#!/bin/bash
# Clippy in rustc's place (RUSTC_WORKSPACE_WRAPPER), with warnings as errors: one build is linted and tested.
# By bash: dash drops variables whose names it cannot hold, such as CARGO_BIN_EXE_wave32-vgpu.
exec clippy-driver "$@" -D warnings
