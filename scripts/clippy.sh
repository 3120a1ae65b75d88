#!/bin/sh
# Clippy in rustc's place (RUSTC_WORKSPACE_WRAPPER), with warnings as errors: one build is linted and tested.
exec clippy-driver "$@" -D warnings
