# Two commands: `make demo` proves wave32 on this machine, `make test` runs every test.
# Both install what is missing first; see scripts/setup.sh for what that is.

.DEFAULT_GOAL := help
.PHONY: help setup build demo test oracle lint verify

help:
	@echo 'make demo   install what is missing, build, verify the seed and network suites on every device here'
	@echo 'make test   install what is missing, run every test'
	@echo 'make lint   rustfmt and clippy, warnings as errors'

setup:
	@scripts/setup.sh

build: setup
	cargo build --release

demo: build
	target/release/wave32 devices
	target/release/wave32 verify seeds nets --html target/demo/verify.html

test: setup
	cargo test --workspace
	@$(MAKE) --no-print-directory oracle

# The f64 oracle against PyTorch on fresh random problems.
oracle:
	@python="$$(scripts/torch_python.sh)" && cargo build -q -p wave32-cpu --example oracle_stdin && \
		"$$python" scripts/oracle_torch.py --check

# A short run of the main job, for CI: every type, every device.
verify: build
	target/release/wave32 verify seeds nets fuzz:60 --max-gflop 0.001 --dtype f32,f16,bf16

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
